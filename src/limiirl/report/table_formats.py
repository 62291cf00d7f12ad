"""Tables as HTML, LaTeX, Markdown and CSV."""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby

from limiirl.report.markup import (
    clean,
    escape_html,
    escape_latex,
    escape_markdown,
    prose_html,
    prose_latex,
    prose_markdown,
)
from limiirl.report.tables import Cell, Column, Table

LEGEND = {"agrees": "agrees", "differs": "differs", "best": "best", "certain": "significant"}
"""Meaning of each mark, shown below a table."""

# Cells with at least this many characters may break into lines.
_LONG = 40
# Tables with more columns are set smaller to stay on the page.
_MANY = 6
_SIGNS = {"agrees": "✓", "differs": "≠", "best": "★", "certain": "•"}
_LATEX_SIGNS = {"agrees": r"$^{=}$", "differs": r"$^{\neq}$", "best": r"$^{\star}$", "certain": r"$^{\bullet}$"}


class _Notes:
    """Footnote letters, shared by equal notes, and the marks in use."""

    def __init__(self, table: Table) -> None:
        notes = [cell.note for row in table.cells for cell in row if cell.note]
        self.letters = {note: _letter(place) for place, note in enumerate(dict.fromkeys(notes))}
        used = {cell.mark for row in table.cells for cell in row}
        self.marks = [mark for mark in LEGEND if mark in used]


def _letter(place: int) -> str:
    """Return a, b, ..., z, aa, ab, ... by place.

    >>> _letter(0), _letter(25), _letter(26)
    ('a', 'z', 'aa')
    """
    letters = ""
    place += 1
    while place:
        place, rest = divmod(place - 1, 26)
        letters = chr(ord("a") + rest) + letters
    return letters


def _groups(headings: Sequence[Column]) -> list[tuple[str, int]]:
    """Return the shared headings, each with its number of columns."""
    return [(group, len(list(columns))) for group, columns in groupby(headings, key=lambda column: column.group)]


def table_html(table: Table) -> str:
    """Return the table element; caption, notes and scroll box belong to the page.

    >>> print(table_html(Table("t", "T", "", ["a", "b"], [["x", Cell("<1", mark="best")]])))
    <table aria-labelledby="table-t-title"><thead><tr><th scope="col" class="left">a</th><th scope="col">b</th></tr>...
    <tbody><tr><th scope="row" class="left">x</th><td><strong>&lt;1</strong><span class="mark best">
    <span aria-hidden="true">★</span><span class="unseen">best</span></span></td></tr></tbody></table>
    """
    letters = _Notes(table).letters
    marked = [any(row[place].mark for row in table.cells) for place in range(len(table.headings))]
    body = []
    for row in table.cells:
        cells = []
        for place, (cell, column) in enumerate(zip(row, table.headings, strict=True)):
            tag, scope = ("th", ' scope="row"') if place == 0 else ("td", "")
            cells.append(f"<{tag}{scope}{_html_class(column, cell)}>{_html_cell(cell, letters, marked[place])}</{tag}>")
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
        for group, count in _groups(headings)
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
        # An empty sign keeps the numbers of a column aligned.
        text += '<span class="mark"></span>'
    return text + (f"<sup>{letters[cell.note]}</sup>" if cell.note else "")


def table_notes(table: Table) -> list[tuple[str, str, str]]:
    """Return the lines below a table on a page: mark or "note", sign, and HTML.

    >>> table_notes(Table("t", "T", "", ["a"], [[Cell("1", mark="differs", note="see *there*")]]))
    [('differs', '≠', 'differs'), ('note', 'a', 'see <em>there</em>')]
    """
    notes = _Notes(table)
    marks = [(mark, _SIGNS[mark], LEGEND[mark]) for mark in notes.marks]
    return marks + [("note", letter, prose_html(note)) for note, letter in notes.letters.items()]


def table_latex(table: Table) -> str:
    """Return the table as a LaTeX float, which needs the package booktabs."""
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
            r"% Needs \usepackage{booktabs}.",
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
    """Return a title with a full stop, unless it ends a sentence already."""
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
    for group, count in _groups(headings):
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
    """Return the table as CSV: plain numbers, half-widths and marks in columns of their own.

    >>> print(table_csv(Table("t", "T", "", ["a", "b"], [["x", Cell.estimate(-1, 0.5, mark="best")]])))
    a,b,b ±,b mark
    x,-1,0.5,best
    <BLANKLINE>
    """
    titles: list[str] = []
    columns: list[list[object]] = []
    for place, heading in enumerate(table.headings):
        cells = [row[place] for row in table.cells]
        titles.append(heading.full_title)
        columns.append([cell.text if cell.value is None else cell.value for cell in cells])
        if any(cell.spread for cell in cells):
            titles.append(f"{heading.full_title} ±")
            columns.append([cell.spread[0] if cell.spread else "" for cell in cells])
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
    writer.writerow([clean(title) for title in titles])
    writer.writerows([clean(entry) if isinstance(entry, str) else entry for entry in row] for row in rows)
    return stream.getvalue()
