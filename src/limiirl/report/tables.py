"""Tables as values: cells with text, number and mark."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Literal, TypeAlias, get_args

from limiirl._validation import check_choice
from limiirl.errors import InvalidParameter

# Lower case, because some file systems do not distinguish cases.
_NAME = re.compile(r"[a-z0-9]+(?:[-_][a-z0-9]+)*")
_RESERVED = re.compile(r"con|prn|aux|nul|(?:com|lpt)[0-9]")

Mark: TypeAlias = Literal["agrees", "differs", "best", "certain"]
Align: TypeAlias = Literal["left", "right"]
Content: TypeAlias = "Cell | str | float | None"
"""Input types of a table cell."""


def check_name(name: str) -> None:
    """Check that a name is a portable file name and a page anchor."""
    if not (isinstance(name, str) and len(name) <= 80 and _NAME.fullmatch(name) and not _RESERVED.fullmatch(name)):
        raise InvalidParameter.of(
            "name",
            name,
            "must be a file name of at most 80 lower-case letters and digits, joined by single '-' or '_'",
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
        Shown as a sign with a legend below the table.
    note : str
        Prose of a footnote.
    value : int, float, str or None
        Replaces the text in the CSV file.
    spread : tuple of float
        For the CSV file: empty, or the half-width of an interval.

    >>> Cell.number(-3.14159, digits=2).text
    '−3.14'
    >>> Cell.estimate(12.345, 0.5, digits=1, mark="agrees").text
    '12.3 ± 0.5'
    """

    text: str
    mark: Mark | None = None
    note: str = ""
    value: int | float | str | None = None
    spread: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if self.mark is not None:
            check_choice(self.mark, "mark", get_args(Mark))
        object.__setattr__(self, "spread", tuple(float(end) for end in self.spread))
        if len(self.spread) > 1:
            raise InvalidParameter.of("spread", self.spread, "must have at most one number, the half-width")

    @classmethod
    def number(cls, value: float | None, digits: int = 2, mark: Mark | None = None, note: str = "") -> "Cell":
        """Return a number with fixed decimals, or a dash for None and non-finite values."""
        if value is None or not isfinite(value):
            return cls("–", mark, note, value="")
        return cls(_format_decimal(value, digits), mark, note, value=value)

    @classmethod
    def estimate(
        cls, value: float, half_width: float, digits: int = 2, mark: Mark | None = None, note: str = ""
    ) -> "Cell":
        """Return a number with the half-width of its interval."""
        if not isfinite(value):
            return cls.number(None, digits, mark, note)
        half = _format_decimal(half_width, digits) if isfinite(half_width) else "–"
        spread = (half_width,) if isfinite(half_width) else ()
        return cls(f"{_format_decimal(value, digits)} ± {half}", mark, note, value, spread)


def _format_decimal(value: float, digits: int) -> str:
    text = f"{value:.{digits}f}"
    if float(text) == 0:
        text = text.removeprefix("-")
    return text.replace("-", "−")


@dataclass(frozen=True)
class Column:
    """Heading and alignment of a column, and the heading that it shares with its neighbours.

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
        """Heading preceded by the shared one, for formats with one line of headings."""
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
        Prose that explains how to read it.
    columns : sequence of Column or str
        Strings are right-aligned columns, the first one left-aligned.
    rows : sequence of sequences of Cell, str, int, float or None
        Numbers are shown with at most six digits and stored exactly; None is an empty cell.

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
            column if isinstance(column, Column) else Column(column, "right" if place else "left")
            for place, column in enumerate(self.columns)
        )
        if not headings:
            raise InvalidParameter(f"columns must not be empty; table {self.name!r} has none.", parameter="columns")
        cells = tuple(tuple(map(_to_cell, row)) for row in self.rows)
        for place, row in enumerate(cells):
            if len(row) != len(headings):
                raise InvalidParameter(
                    f"rows must have {len(headings)} cells, one per column; row {place} of table {self.name!r} has "
                    f"{len(row)}. Pass None for an empty cell.",
                    parameter="rows",
                    value=len(row),
                    index=place,
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
