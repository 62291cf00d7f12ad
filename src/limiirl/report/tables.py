"""Tables, and their conversion to HTML, LaTeX, Markdown and CSV."""

import csv
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from math import isfinite
from typing import Literal, TypeAlias, get_args

from limiirl._io import escape_formula
from limiirl._validation import check_choice
from limiirl.errors import InvalidParameter
from limiirl.report.markup import (
    clean,
    escape_html,
    escape_latex,
    escape_markdown,
    prose_html,
    prose_latex,
    prose_markdown,
)

# Only lower case, because some file systems ignore case.
_NAME = re.compile(r"[a-z0-9]+(?:[-_][a-z0-9]+)*")
_RESERVED = re.compile(r"con|prn|aux|nul|(?:com|lpt)[0-9]")

Mark: TypeAlias = Literal["agrees", "differs", "best", "certain"]
Align: TypeAlias = Literal["left", "right"]
Content: TypeAlias = "Cell | str | float | None"
"""Types of values that are converted to cells."""


def check_name(name: str) -> None:
    """Check that a name is a portable file name and a valid anchor."""
    if not (isinstance(name, str) and len(name) <= 80 and _NAME.fullmatch(name) and not _RESERVED.fullmatch(name)):
        raise InvalidParameter.of(
            "name",
            name,
            "must be at most 80 lower-case letters and digits, separated by single '-' or '_'",
            remedy="Use a name such as 'anid-by-wind'.",
        )


def check_filled(parameter: str, text: str) -> None:
    """Check that a text is not blank."""
    if not (isinstance(text, str) and text.strip()):
        raise InvalidParameter.of(parameter, text, "must not be blank")


@dataclass(frozen=True)
class Cell:
    """A cell of a table.

    Parameters
    ----------
    text : str
    mark : {"agrees", "differs", "best", "certain"}, optional
        Shown as a sign, which is explained below the table.
    note : str
        Prose of a footnote.
    value : int, float, str or None
        Replaces the text in the CSV file.
    half_width : float, optional
        Half-width of the interval, for the CSV file.

    >>> Cell.number(-3.14159, digits=2).text
    '−3.14'
    >>> Cell.estimate(12.345, 0.5, digits=1, mark="agrees").text
    '12.3 ± 0.5'
    """

    text: str
    mark: Mark | None = None
    note: str = ""
    value: int | float | str | None = None
    half_width: float | None = None

    def __post_init__(self) -> None:
        if self.mark is not None:
            check_choice(self.mark, "mark", get_args(Mark))

    @classmethod
    def number(cls, value: float | None, digits: int = 2, mark: Mark | None = None, note: str = "") -> "Cell":
        """Return a cell with a fixed number of decimals, or with a dash for None and non-finite values."""
        if value is None or not isfinite(value):
            return cls("–", mark, note, value="")
        return cls(_format_decimal(value, digits), mark, note, value=value)

    @classmethod
    def estimate(
        cls, value: float, half_width: float, digits: int = 2, mark: Mark | None = None, note: str = ""
    ) -> "Cell":
        """Return a cell with a value and the half-width of its interval."""
        if not isfinite(value):
            return cls.number(None, digits, mark, note)
        half = _format_decimal(half_width, digits) if isfinite(half_width) else "–"
        width = half_width if isfinite(half_width) else None
        return cls(f"{_format_decimal(value, digits)} ± {half}", mark, note, value, width)

    @classmethod
    def count(cls, n: int) -> "Cell":
        """Return a cell with a thousands separator."""
        return cls(f"{n:,}", value=int(n))

    @classmethod
    def percent(cls, fraction: float, digits: int = 0) -> "Cell":
        """Return a cell that shows a fraction in percent."""
        return cls(format_percent(fraction, digits), value=fraction)


def format_percent(fraction: float, digits: int = 0) -> str:
    """Return a fraction in percent, with a non-breaking space before the sign."""
    return f"{100.0 * fraction:.{digits}f}\u00a0%"


def _format_decimal(value: float, digits: int) -> str:
    text = f"{value:.{digits}f}"
    if float(text) == 0:
        text = text.removeprefix("-")
    return text.replace("-", "−")


@dataclass(frozen=True)
class Column:
    """Heading, alignment and shared group heading of a column.

    >>> Column("ours", group="ANID").align
    'right'
    """

    title: str
    align: Align = "right"
    group: str = ""

    def __post_init__(self) -> None:
        check_choice(self.align, "align", get_args(Align))

    @property
    def full_title(self) -> str:
        """Heading preceded by the group heading, for formats with one heading row."""
        return f"{self.group} {self.title}".strip()


@dataclass(frozen=True)
class Table:
    """A table whose first column names the rows.

    Parameters
    ----------
    name : str
        File name without extension, unique in a report.
    title : str
    caption : str
        Prose that explains the table.
    columns : sequence of Column or str
        Strings are right-aligned columns, except that the first is left-aligned.
    rows : sequence of sequences of Cell, str, int, float or None
        Numbers are shown with at most six digits and written exactly to the CSV file; None is an empty cell.

    >>> table = Table("scores", "Scores", "", ["Method", "ANID"], [["random", Cell.number(0.5)], ["ours", 1]])
    >>> [cell.text for cell in table.cells[1]]
    ['ours', '1']
    """

    name: str
    title: str
    caption: str
    columns: Sequence[Column | str]
    rows: Sequence[Sequence[Content]]
    headings: tuple[Column, ...] = field(init=False, repr=False)
    cells: tuple[tuple[Cell, ...], ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        check_name(self.name)
        check_filled("title", self.title)
        headings = tuple(
            column if isinstance(column, Column) else Column(column, "right" if index else "left")
            for index, column in enumerate(self.columns)
        )
        if not headings:
            raise InvalidParameter(f"columns must not be empty; table {self.name!r} has none.", parameter="columns")
        cells = tuple(tuple(map(_to_cell, row)) for row in self.rows)
        for index, row in enumerate(cells):
            if len(row) != len(headings):
                raise InvalidParameter(
                    f"rows must have {len(headings)} cells, one per column; row {index} of table {self.name!r} has "
                    f"{len(row)}. Pass None for an empty cell.",
                    parameter="rows",
                    value=len(row),
                    index=index,
                )
        object.__setattr__(self, "headings", headings)
        object.__setattr__(self, "cells", cells)


def _to_cell(content: Content) -> Cell:
    if isinstance(content, Cell):
        return content
    if content is None:
        return Cell("", value="")
    if isinstance(content, str):
        return Cell(content)
    number = content.item() if hasattr(content, "item") else content
    text = f"{number:.6g}" if isinstance(number, float) else str(number)
    return Cell(text.replace("-", "−"), value=number)


LEGEND = {"agrees": "agrees", "differs": "differs", "best": "best", "certain": "significant"}
"""Explanation of each mark, shown below a table."""

# Cells with at least this many characters are wrapped.
_LONG = 40
# Tables with more columns have a smaller font.
_MANY = 6
_SIGNS = {"agrees": "✓", "differs": "≠", "best": "★", "certain": "•"}
_LATEX_SIGNS = {"agrees": r"$^{=}$", "differs": r"$^{\neq}$", "best": r"$^{\star}$", "certain": r"$^{\bullet}$"}


class _Notes:
    """Footnote letters by note, and the marks that a table uses."""

    def __init__(self, table: Table) -> None:
        notes = [cell.note for row in table.cells for cell in row if cell.note]
        self.letters = {note: _letter(index) for index, note in enumerate(dict.fromkeys(notes))}
        used = {cell.mark for row in table.cells for cell in row}
        self.marks = [mark for mark in LEGEND if mark in used]


def _letter(index: int) -> str:
    letters = ""
    index += 1
    while index:
        index, rest = divmod(index - 1, 26)
        letters = chr(ord("a") + rest) + letters
    return letters


def _group_headings(headings: Sequence[Column]) -> list[tuple[str, int]]:
    return [(group, len(list(columns))) for group, columns in groupby(headings, key=lambda column: column.group)]


def table_html(table: Table) -> str:
    """Return the HTML table element without caption and notes.

    >>> print(table_html(Table("t", "T", "", ["a", "b"], [["x", Cell("<1", mark="best")]])))
    <table aria-labelledby="table-t-title"><thead><tr><th scope="col" class="left">a</th><th scope="col">b</th></tr>...
    <tbody><tr><th scope="row" class="left">x</th><td><strong>&lt;1</strong><span class="mark best">
    <span aria-hidden="true">★</span><span class="unseen">best</span></span></td></tr></tbody></table>
    """
    letters = _Notes(table).letters
    marked = [any(row[j].mark for row in table.cells) for j in range(len(table.headings))]
    body = []
    for row in table.cells:
        cells = []
        for j, (cell, column) in enumerate(zip(row, table.headings, strict=True)):
            tag, scope = ("th", ' scope="row"') if j == 0 else ("td", "")
            cells.append(f"<{tag}{scope}{_html_class(column, cell)}>{_html_cell(cell, letters, marked[j])}</{tag}>")
        body.append(f"<tr>{''.join(cells)}</tr>\n")
    dense = ' class="dense"' if len(table.headings) > _MANY else ""
    return (
        f'<table{dense} aria-labelledby="table-{table.name}-title"><thead>{_html_head(table.headings)}</thead>\n'
        f"<tbody>{''.join(body).rstrip()}</tbody></table>"
    )


def _html_head(headings: Sequence[Column]) -> str:
    titles = "".join(f'<th scope="col"{_html_class(column)}>{escape_html(column.title)}</th>' for column in headings)
    if not any(column.group for column in headings):
        return f"<tr>{titles}</tr>"
    groups = "".join(
        f'<th scope="colgroup" colspan="{count}" class="group">{escape_html(group)}</th>'
        if group
        else f'<td colspan="{count}"></td>'
        for group, count in _group_headings(headings)
    )
    return f"<tr>{groups}</tr>\n<tr>{titles}</tr>"


def _html_class(column: Column, cell: Cell | None = None) -> str:
    classes: list[str] = [column.align] if column.align != "right" else []
    if cell is not None and len(cell.text) >= _LONG:
        classes.append("long")
    return f' class="{" ".join(classes)}"' if classes else ""


def _html_cell(cell: Cell, letters: Mapping[str, str], marked: bool) -> str:
    text = escape_html(cell.text)
    if cell.mark == "best":
        text = f"<strong>{text}</strong>"
    if cell.mark:
        text += (
            f'<span class="mark {cell.mark}">\n<span aria-hidden="true">{_SIGNS[cell.mark]}</span>'
            f'<span class="unseen">{LEGEND[cell.mark]}</span></span>'
        )
    elif marked and text:
        # An empty mark aligns the cell with marked cells.
        text += '<span class="mark"></span>'
    return text + (f"<sup>{letters[cell.note]}</sup>" if cell.note else "")


def table_notes(table: Table) -> list[tuple[str, str, str]]:
    """Return the footnotes of a table as (kind, symbol, HTML); the kind is the name of a mark, or "note".

    >>> table_notes(Table("t", "T", "", ["a"], [[Cell("1", mark="differs", note="see *there*")]]))
    [('differs', '≠', 'differs'), ('note', 'a', 'see <em>there</em>')]
    """
    notes = _Notes(table)
    marks = [(mark, _SIGNS[mark], LEGEND[mark]) for mark in notes.marks]
    return marks + [("note", letter, prose_html(note)) for note, letter in notes.letters.items()]


def table_latex(table: Table) -> str:
    """Return the table as a LaTeX float, which requires the package booktabs."""
    notes = _Notes(table)
    lines = [_latex_row(escape_latex(column.title) for column in table.headings), r"\midrule"]
    lines += [_latex_row(_latex_cell(cell, notes.letters) for cell in row) for row in table.cells]
    layout = "".join(column.align[0] for column in table.headings)
    below = [f"{_LATEX_SIGNS[mark]}\\,{LEGEND[mark]}" for mark in notes.marks]
    below += [f"\\textsuperscript{{{letter}}}\\,{prose_latex(note)}" for note, letter in notes.letters.items()]
    caption = " ".join(filter(None, [end_sentence(escape_latex(table.title)), prose_latex(table.caption)]))
    inner = [r"\toprule", *_latex_groups(table.headings), *lines, r"\bottomrule"]
    return "\n".join(
        [
            r"% Requires \usepackage{booktabs}.",
            r"\begin{table}",
            r"  \centering",
            f"  \\caption{{{caption}}}",
            f"  \\label{{tab:{table.name}}}",
            f"  \\begin{{tabular}}{{{layout}}}",
            *(f"    {line}" for line in inner),
            r"  \end{tabular}",
            *([r"  \par\smallskip\footnotesize " + "; ".join(below)] if below else []),
            r"\end{table}",
            "",
        ]
    )


def end_sentence(text: str) -> str:
    """Return a title with a final full stop, unless it ends with punctuation."""
    return text if text.endswith((".", "?", "!")) else f"{text}."


def _latex_row(cells: Iterable[str]) -> str:
    return " & ".join(cells) + r" \\"


def _latex_cell(cell: Cell, letters: Mapping[str, str]) -> str:
    text = escape_latex(cell.text)
    if cell.mark == "best":
        text = f"\\textbf{{{text}}}"
    text += _LATEX_SIGNS[cell.mark] if cell.mark else ""
    return text + (f"\\textsuperscript{{{letters[cell.note]}}}" if cell.note else "")


def _latex_groups(headings: Sequence[Column]) -> list[str]:
    if not any(column.group for column in headings):
        return []
    cells, rules, start = [], [], 1
    for group, count in _group_headings(headings):
        cells.append(f"\\multicolumn{{{count}}}{{c}}{{{escape_latex(group)}}}")
        if group:
            rules.append(f"\\cmidrule(lr){{{start}-{start + count - 1}}}")
        start += count
    return [_latex_row(cells), " ".join(rules)]


def table_markdown(table: Table) -> str:
    """Return the table in GitHub-flavoured Markdown."""
    notes = _Notes(table)
    rules = {"left": ":--", "right": "--:"}
    rows = [
        [escape_markdown(column.full_title) for column in table.headings],
        [rules[column.align] for column in table.headings],
        *([_markdown_cell(cell, notes.letters) for cell in row] for row in table.cells),
    ]
    head = [f"**{escape_markdown(table.title)}**", "", *([prose_markdown(table.caption), ""] if table.caption else [])]
    below = [f"{_SIGNS[mark]} {LEGEND[mark]}" for mark in notes.marks]
    below += [f"<sup>{letter}</sup> {prose_markdown(note)}" for note, letter in notes.letters.items()]
    lines = head + [f"| {' | '.join(row)} |" for row in rows] + (["", "; ".join(below)] if below else [])
    return "\n".join(lines) + "\n"


def _markdown_cell(cell: Cell, letters: Mapping[str, str]) -> str:
    text = escape_markdown(cell.text).strip()
    if cell.mark == "best" and text:
        text = f"**{text}**"
    text += f" {_SIGNS[cell.mark]}" if cell.mark else ""
    return text + (f"<sup>{letters[cell.note]}</sup>" if cell.note else "")


def table_csv(table: Table) -> str:
    """Return the table as CSV, with half-widths and marks in separate columns.

    >>> print(table_csv(Table("t", "T", "", ["a", "b"], [["x", Cell.estimate(-1, 0.5, mark="best")]])))
    a,b,b ±,b mark
    x,-1,0.5,best
    <BLANKLINE>
    """
    titles: list[str] = []
    columns: list[list[object]] = []
    for j, heading in enumerate(table.headings):
        cells = [row[j] for row in table.cells]
        titles.append(heading.full_title)
        columns.append([cell.text if cell.value is None else cell.value for cell in cells])
        if any(cell.half_width is not None for cell in cells):
            titles.append(f"{heading.full_title} ±")
            columns.append(["" if cell.half_width is None else cell.half_width for cell in cells])
        if any(cell.mark for cell in cells):
            titles.append(f"{heading.full_title} mark")
            columns.append([cell.mark or "" for cell in cells])
    return _write_csv(titles, list(zip(*columns, strict=True)))


def data_csv(data: Mapping[str, Sequence[object]]) -> str:
    """Return named columns as CSV."""
    return _write_csv(list(data), list(zip(*data.values(), strict=True)))


def _write_csv(titles: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    for row in (titles, *rows):
        writer.writerow([escape_formula(clean(entry)) if isinstance(entry, str) else entry for entry in row])
    return stream.getvalue()
