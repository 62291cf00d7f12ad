"""Tables in HTML, LaTeX, Markdown and CSV."""

import csv
import io
import re
from html.parser import HTMLParser

import numpy as np
import pytest

from limiirl.report import Cell, Column, Table
from limiirl.report.tables import data_csv, table_csv, table_html, table_latex, table_markdown, table_notes
from tests.oracles.report import HOSTILE, comparison


class Grid(HTMLParser):
    """Parser of the cells of a table: tag, attributes and texts, by row."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.rows: list[list[tuple[str, dict[str, str | None], list[str]]]] = []
        self.tags: set[str] = set()
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        if tag == "tr":
            self.rows.append([])
        elif tag in ("th", "td"):
            self.rows[-1].append((tag, dict(attrs), []))

    def handle_data(self, data: str) -> None:
        if data.strip():
            self.rows[-1][-1][2].append(data.strip())


def test_html_has_scopes_groups_and_every_cell() -> None:
    table = comparison()
    grid = Grid(table_html(table))
    groups, titles, *body = grid.rows
    assert [(tag, attrs.get("scope"), attrs["colspan"]) for tag, attrs, _ in groups] == [
        ("td", None, "1"),
        *[("th", "colgroup", "2")] * 4,
    ]
    assert [text for _, _, text in groups] == [[], ["NLL"], ["ANID"], ["GEVD"], ["Iterations"]]
    assert all(tag == "th" and attrs["scope"] == "col" for tag, attrs, _ in titles)
    assert len(body) == len(table.cells)
    for row, cells in zip(body, table.cells, strict=True):
        assert (row[0][0], row[0][1]["scope"]) == ("th", "row")
        assert {tag for tag, _, _ in row[1:]} == {"td"}
        assert [text[0] if text else "" for _, _, text in row] == [cell.text for cell in cells]


def test_html_has_marks_and_alignment() -> None:
    columns = [Column("a", "left"), Column("b"), Column("c")]
    html = table_html(Table("t", "T", "", columns, [["x", Cell("1", mark="differs"), Cell("2")], ["y", "3", "z" * 40]]))
    grid = Grid(html)
    assert [cell[1].get("class") for cell in grid.rows[1]] == ["left", None, None]
    assert grid.rows[1][1][2] == ["1", "≠", "differs"]
    assert grid.rows[2][2][1]["class"] == "long"
    # Only unmarked cells of columns with marks have an empty sign.
    assert html.count('<span class="mark"></span>') == 1


def test_html_escapes_hostile_text() -> None:
    html = table_html(comparison())
    assert Grid(html).tags <= {"table", "thead", "tbody", "tr", "th", "td", "span", "sup", "strong"}
    assert "&lt;script&gt;alert(1)&lt;/script&gt; &quot;double&quot; &#x27;single&#x27; &amp;" in html


def test_equal_notes_share_a_letter() -> None:
    rows = [["x", Cell("1", note="n")], ["y", Cell("2", note="m", mark="best")], ["z", Cell("3", note="n")]]
    table = Table("t", "T", "", ["a", "b"], rows)
    assert table_notes(table) == [("best", "★", "best"), ("note", "a", "n"), ("note", "b", "m")]
    assert re.findall(r"<sup>(\w)</sup>", table_html(table)) == ["a", "b", "a"]
    assert re.findall(r"<sup>(\w)</sup>", table_markdown(table)) == ["a", "b", "a", "a", "b"]


def test_latex_has_groups_marks_and_notes() -> None:
    rows = [
        ["[x] & y", Cell.estimate(-1.5, 0.25, mark="best"), Cell("50%", mark="agrees")],
        ["z", Cell("1", mark="differs", note="a_b"), None],
    ]
    table = Table(
        "t-1",
        "Scores of #1",
        "All *good*.",
        [Column("M", "left"), Column("o", group="G_1"), Column("p", group="G_1")],
        rows,
    )
    below = [r"$^{=}$\,agrees", r"$^{\neq}$\,differs", r"$^{\star}$\,best", r"\textsuperscript{a}\,a\_b"]
    assert table_latex(table).splitlines() == [
        r"% Requires \usepackage{booktabs}.",
        r"\begin{table}",
        r"  \centering",
        r"  \caption{Scores of \#1. All \emph{good}.}",
        r"  \label{tab:t-1}",
        r"  \begin{tabular}{lrr}",
        r"    \toprule",
        r"    \multicolumn{1}{c}{} & \multicolumn{2}{c}{G\_1} \\",
        r"    \cmidrule(lr){2-3}",
        r"    M & o & p \\",
        r"    \midrule",
        r"    {[}x] \& y & \textbf{$-$1.50 $\pm$ 0.25}$^{\star}$ & 50\%$^{=}$ \\",
        r"    z & 1$^{\neq}$\textsuperscript{a} &  \\",
        r"    \bottomrule",
        r"  \end{tabular}",
        rf"  \par\smallskip\footnotesize {'; '.join(below)}",
        r"\end{table}",
    ]


def test_latex_escapes_hostile_text() -> None:
    table = comparison()
    text = table_latex(table)
    bare = re.sub(r"\\[{}]", "", text)
    assert bare.count("{") == bare.count("}")
    rows = [line for line in text.splitlines() if line.endswith(r"\\")]
    assert len(rows) == len(table.cells) + 2
    assert {len(re.findall(r"(?<!\\)&", row)) for row in rows[1:]} == {len(table.headings) - 1}


def test_markdown_has_one_pipe_per_border() -> None:
    table = comparison()
    lines = [line for line in table_markdown(table).splitlines() if line.startswith("|")]
    assert len(lines) == len(table.cells) + 2
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in lines} == {len(table.headings) + 1}
    assert lines[0].startswith("| Method | NLL ours | NLL paper |")
    assert lines[1].startswith("| :-- | --: |")
    assert lines[3].split(" | ")[3] == "**10.40 ± 0.25** ★"
    assert "<script" not in table_markdown(table)


def test_markdown_escapes_pipes_and_line_breaks() -> None:
    text = table_markdown(Table("t", "T", "", ["a"], [["x|y\nz"]]))
    assert text.splitlines()[-1] == r"| x\|y z |"


def test_csv_has_plain_numbers_and_complete_text() -> None:
    rows = [
        ['x, "y"\n' + HOSTILE, Cell.estimate(-1.5, 0.25, mark="best"), Cell.number(1.0), np.int64(3)],
        ["z", Cell.number(None), Cell.number(-2.25), None],
    ]
    columns = ["Method", Column("o", group="G"), "p", "q"]
    read = list(csv.reader(io.StringIO(table_csv(Table("t", "T", "", columns, rows)))))
    assert read == [
        ["Method", "G o", "G o ±", "G o mark", "p", "q"],
        ['x, "y"\n' + HOSTILE, "-1.5", "0.25", "best", "1.0", "3"],
        ["z", "", "", "", "-2.25", ""],
    ]


@pytest.mark.parametrize("kind", [np.float64, np.float32, float])
def test_data_columns_are_written_exactly(kind: type) -> None:
    read = list(csv.reader(io.StringIO(data_csv({"x": np.array([0.1, 1 / 3]).astype(kind), "flag": [True, None]}))))
    assert read[0] == ["x", "flag"]
    assert [kind(row[0]) for row in read[1:]] == [kind(0.1), kind(1 / 3)]
    assert [row[1] for row in read[1:]] == ["True", ""]
    assert data_csv({}) == "\n"
