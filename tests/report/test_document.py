"""Elements of a report: validation, cells and prose."""

import dataclasses

import numpy as np
import pytest
from matplotlib.figure import Figure as Drawing

from limiirl.errors import InvalidParameter
from limiirl.report import Callout, Cell, Column, Facts, Figure, Fold, Grid, Report, Section, Table, literal
from limiirl.report.markup import (
    blocks_html,
    escape_latex,
    escape_markdown,
    prose_html,
    prose_latex,
    prose_markdown,
    prose_text,
)
from tests.helpers import raises
from tests.oracles.report import HOSTILE, every_kind


def table(name: str) -> Table:
    return Table(name, "T", "", ["a"], [["x"]])


def figure(name: str) -> Figure:
    return Figure(name, "F", "A frame.", "", Drawing, {"x": [1]})


@pytest.mark.parametrize("name", ["a", "anid-by-n", "table_1", "2d", "a" * 80])
def test_portable_names_are_accepted(name: str) -> None:
    assert table(name).name == figure(name).name == name


@pytest.mark.parametrize(
    "name",
    ["", "A", "a b", "../x", "a/b", ".hidden", "-a", "a-", "a--b", "é", "a.b", "nul", "com1", "a" * 81, "a\n", 3],
)
def test_other_names_are_rejected(name: str) -> None:
    for make in (table, figure):
        with raises(InvalidParameter, parameter="name", value=name):
            make(name)


def test_names_are_unique_at_all_levels() -> None:
    sections = [
        Section("One", [Grid([figure("x")])]),
        Section("Two", [Section("In", [Fold("f", [Grid([table("x")])])])]),
    ]
    with raises(InvalidParameter, parameter="sections", value="x"):
        Report("R", "", sections)


def test_figures_and_tables_are_listed_in_reading_order() -> None:
    sections = [
        Section("One", [figure("a"), Section("In", [Grid([figure("b"), Fold("f", [table("s"), figure("c")])])])]),
        Section("Two", [table("t"), figure("d")]),
    ]
    report = Report("R", "", sections, methods=[figure("e"), table("u")])
    assert [item.name for item in report.figures] == ["a", "b", "c", "d", "e"]
    assert [item.name for item in report.tables] == ["s", "t", "u"]


def test_rows_of_unequal_length_are_rejected() -> None:
    with raises(InvalidParameter, parameter="rows", value=1, index=1):
        Table("t", "T", "", ["a", "b"], [["x", 1], ["y"]])
    with raises(InvalidParameter, parameter="columns"):
        Table("t", "T", "", [], [])


def test_data_columns_have_equal_length() -> None:
    with raises(InvalidParameter, parameter="data", value=3, index=2):
        Figure("f", "F", "A.", "", Drawing, {"x": [1, 2], "y": [1, 2], "z": [1, 2, 3]})


@pytest.mark.parametrize("blank", ["", "  \n"])
def test_blank_titles_and_text_alternatives_are_rejected(blank: str) -> None:
    makes = [
        ("alt", lambda: Figure("f", "F", blank, "", Drawing, {})),
        ("title", lambda: Figure("f", blank, "A.", "", Drawing, {})),
        ("title", lambda: Table("t", blank, "", ["a"], [])),
        ("title", lambda: Section(blank, [])),
        ("title", lambda: Report(blank, "", [])),
    ]
    for parameter, make in makes:
        with raises(InvalidParameter, parameter=parameter, value=blank):
            make()


def test_unknown_marks_alignments_and_verdicts_are_rejected() -> None:
    with raises(InvalidParameter, parameter="mark", value="worst"):
        Cell("x", mark="worst")  # type: ignore[arg-type]
    with raises(InvalidParameter, parameter="align", value="center"):
        Column("x", align="center")  # type: ignore[arg-type]
    with raises(InvalidParameter, parameter="verdict", value="maybe"):
        Callout("maybe", "x")  # type: ignore[arg-type]


def test_sections_are_nested_one_level_deep() -> None:
    with raises(InvalidParameter, parameter="items", value="b", index=0):
        Section("a", [Section("b", [Section("c", [])])])


def test_values_are_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        every_kind().title = "other"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("cell", "text", "value", "half_width"),
    [
        (Cell.number(-0.001, 2), "0.00", -0.001, None),
        (Cell.number(-1.5, 1), "−1.5", -1.5, None),
        (Cell.number(None), "–", "", None),
        (Cell.number(float("nan")), "–", "", None),
        (Cell.estimate(1.0, 0.25), "1.00 ± 0.25", 1.0, 0.25),
        (Cell.estimate(1.0, float("inf")), "1.00 ± –", 1.0, None),
        (Cell.estimate(float("nan"), 1.0), "–", "", None),
        (Cell.count(12345), "12,345", 12345, None),
        (Cell.percent(0.1234, 1), "12.3\u00a0%", 0.1234, None),
    ],
)
def test_numbers_are_formatted(cell: Cell, text: str, value: object, half_width: float | None) -> None:
    assert (cell.text, cell.value, cell.half_width) == (text, value, half_width)


def test_plain_values_are_converted_to_cells() -> None:
    row = Table("t", "T", "", list("abcde"), [["s", 1, 0.1 + 0.2, np.float64(-2.5), None]]).cells[0]
    assert [cell.text for cell in row] == ["s", "1", "0.3", "−2.5", ""]
    assert [cell.value for cell in row] == [None, 1, 0.1 + 0.2, -2.5, ""]


def test_text_is_divided_into_paragraphs_and_lists() -> None:
    html = blocks_html(" one\ntwo \n \n- a\n- b\n\nthree <b>")
    assert html == "<p>one\ntwo</p>\n<ul>\n<li>a</li>\n<li>b</li>\n</ul>\n<p>three &lt;b&gt;</p>\n"
    assert blocks_html("") == ""


def test_facts_accept_a_mapping_or_pairs() -> None:
    assert Facts({"a": 1}).entries == Facts([("a", 1)]).entries == (("a", "1"),)


@pytest.mark.parametrize(
    ("prose", "html"),
    [
        ("a *b* c", "a <em>b</em> c"),
        ("**b**", "<strong>b</strong>"),
        ("`<i>*x*`", "<code>&lt;i&gt;*x*</code>"),
        ("2 * 3 * 4 and a_b_c", "2 * 3 * 4 and a_b_c"),
        ("[w](https://a.b/c?d=1&e=2)", '<a href="https://a.b/c?d=1&amp;e=2">w</a>'),
        ("[w](#table-x)", '<a href="#table-x">w</a>'),
        ("[w](javascript:alert(1))", "[w](javascript:alert(1))"),
        ('[w](https://a.b/"onclick=x)', '<a href="https://a.b/%22onclick=x">w</a>'),
        (r"\*b\* \\ \`c\`", r"*b* \ `c`"),
        ("bell\x07 \ud800", "bell\ufffd \ufffd"),
    ],
)
def test_other_markup_is_escaped(prose: str, html: str) -> None:
    assert prose_html(prose) == html


@pytest.mark.parametrize("text", [HOSTILE, r"\*a* `b` [c](https://d.e) **f** \\", "plain", "*", "`"])
def test_literal_text_is_unchanged(text: str) -> None:
    assert prose_text(literal(text)) == text
    assert "<" not in prose_html(literal(text))


def test_latex_specials_are_escaped() -> None:
    text = escape_latex("\\{}&%$#_~^<>|`[*±−θ–--repeats\nx")
    expected = (
        r"\textbackslash{}\{\}\&\%\$\#\_\textasciitilde{}\textasciicircum{}\textless{}\textgreater{}\textbar{}"
        r"\textasciigrave{}{[}{*}$\pm$$-$$\theta$---{}-repeats x"
    )
    assert text == expected
    assert prose_latex("*a_b* **c** `d%` [e](https://f.g)") == r"\emph{a\_b} \textbf{c} \texttt{d\%} e"


def test_markdown_specials_are_escaped() -> None:
    assert escape_markdown("a|b\n<i> &amp; *x* `y` _z_") == r"a\|b &lt;i> &amp;amp; \*x\* \`y\` \_z\_"
    assert prose_markdown("*a* `b|c` [w](https://x.y) [v](#z)") == "*a* `b|c` [w](https://x.y) v"
