"""The values of tables and figures as CSV, for those who compute on."""

import csv
import io
from collections.abc import Callable, Mapping, Sequence

from limiirl.report.cells import Cell, Table
from limiirl.report.inline import clean


def table_csv(table: Table) -> str:
    """The table as CSV: numbers as plain numbers, intervals in columns of their own, marks in words.

    Examples
    --------
    >>> print(table_csv(Table("t", "T", "", ["a", "b"], [["x", Cell.estimate(-1, 0.5, mark="best")]])))
    a,b,b ±,b mark
    x,-1,0.5,best
    <BLANKLINE>
    """
    columns: list[tuple[str, Callable[[Cell], object]]] = []
    places: list[int] = []
    for place, heading in enumerate(table.headings):
        cells = [row[place] for row in table.cells]
        parts: list[tuple[str, Callable[[Cell], object], bool]] = [
            ("", _plain, True),
            (
                " ±",
                lambda cell: cell.spread[0] if len(cell.spread) == 1 else "",
                any(len(c.spread) == 1 for c in cells),
            ),
            (
                " low",
                lambda cell: cell.spread[0] if len(cell.spread) == 2 else "",
                any(len(c.spread) == 2 for c in cells),
            ),
            (
                " high",
                lambda cell: cell.spread[1] if len(cell.spread) == 2 else "",
                any(len(c.spread) == 2 for c in cells),
            ),
            (" mark", lambda cell: cell.mark or "", any(c.mark for c in cells)),
        ]
        chosen = [(heading.full_title + suffix, read) for suffix, read, present in parts if present]
        columns += chosen
        places += [place] * len(chosen)
    rows = [[read(row[place]) for (_, read), place in zip(columns, places, strict=True)] for row in table.cells]
    return _write_csv([title for title, _ in columns], rows)


def _plain(cell: Cell) -> object:
    return cell.text if cell.value is None else cell.value


def data_csv(data: Mapping[str, Sequence[object]]) -> str:
    """Named columns as CSV.

    Examples
    --------
    >>> print(data_csv({"n": [20, 40], "label": ["a", "b,c"]}))
    n,label
    20,a
    40,"b,c"
    <BLANKLINE>
    """
    return _write_csv(list(data), list(zip(*data.values(), strict=True)))


def _write_csv(titles: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow([clean(title) for title in titles])
    writer.writerows([clean(entry) if isinstance(entry, str) else entry for entry in row] for row in rows)
    return stream.getvalue()
