"""Tables as values: cells that know their text, their number and how they compare."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Literal, TypeAlias, get_args

from limiirl._validation import check_choice
from limiirl.errors import InvalidParameter

# Lower case, since some file systems do not tell cases apart.
_NAME = re.compile(r"[a-z0-9]+(?:[-_][a-z0-9]+)*")
_RESERVED = re.compile(r"con|prn|aux|nul|(?:com|lpt)[0-9]")


def check_name(name: str) -> None:
    """Check that a name can be a file name on every system, and an anchor on a page."""
    if not (isinstance(name, str) and len(name) <= 80 and _NAME.fullmatch(name) and not _RESERVED.fullmatch(name)):
        raise InvalidParameter(
            f"name must be a file name of at most 80 lower-case letters, digits, single '-' and '_' between them; got "
            f"{name!r}. Use a name such as 'anid-by-wind'.",
            parameter="name",
            value=name,
        )


def check_filled(parameter: str, text: str) -> None:
    """Check that a text is not blank."""
    if not (isinstance(text, str) and text.strip()):
        raise InvalidParameter(f"{parameter} must not be blank; got {text!r}.", parameter=parameter, value=text)


Mark: TypeAlias = Literal["agrees", "differs", "best", "certain"]
Align: TypeAlias = Literal["left", "right", "centre"]
Content: TypeAlias = "Cell | str | float | None"
"""What a table's cell may be given as."""


@dataclass(frozen=True)
class Cell:
    """A cell of a table.

    Parameters
    ----------
    text : str
        What is shown.
    mark : {"agrees", "differs", "best", "certain"}, optional
        Shown as a sign with a legend under the table.
    note : str
        Prose of a footnote.
    value : int, float, str or None
        What the CSV file holds in place of the text.
    spread : tuple of float
        For the CSV file: nothing, the half-width of an interval, or its two ends.

    Examples
    --------
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
        if len(self.spread) > 2:
            raise InvalidParameter(
                f"spread must have at most 2 numbers; got {len(self.spread)}. Pass a half-width or two ends.",
                parameter="spread",
                value=self.spread,
            )

    @classmethod
    def number(cls, value: float | None, digits: int = 2, mark: Mark | None = None, note: str = "") -> "Cell":
        """A number with a fixed count of decimals; a dash for None and for what is not finite."""
        if value is None or not isfinite(value):
            return cls("–", mark, note, value="")
        return cls(_decimal(value, digits), mark, note, value=value)

    @classmethod
    def estimate(
        cls, value: float, half_width: float, digits: int = 2, mark: Mark | None = None, note: str = ""
    ) -> "Cell":
        """A number with the half-width of its interval."""
        if not isfinite(value):
            return cls.number(None, digits, mark, note)
        half = _decimal(half_width, digits) if isfinite(half_width) else "–"
        spread = (half_width,) if isfinite(half_width) else ()
        return cls(f"{_decimal(value, digits)} ± {half}", mark, note, value, spread)

    @classmethod
    def interval(
        cls, value: float, low: float, high: float, digits: int = 2, mark: Mark | None = None, note: str = ""
    ) -> "Cell":
        """A number with the two ends of its interval."""
        text = f"{_decimal(value, digits)} [{_decimal(low, digits)}, {_decimal(high, digits)}]"
        return cls(text, mark, note, value, (low, high))


def _decimal(value: float, digits: int) -> str:
    text = f"{value:.{digits}f}"
    if float(text) == 0:
        text = text.removeprefix("-")
    return text.replace("-", "−")


@dataclass(frozen=True)
class Column:
    """A column's heading, its alignment, and the heading it shares with its neighbours.

    Examples
    --------
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
        """The heading with the one above it, for forms that have one line of headings."""
        return f"{self.group} {self.title}".strip()


@dataclass(frozen=True)
class Table:
    """A table; the first column names the rows.

    Parameters
    ----------
    name : str
        File name without ending, unique in a report.
    title : str
        A few words.
    caption : str
        Prose that says how to read it.
    columns : sequence of Column or str
        A plain string is a column aligned right, the first one left.
    rows : sequence of sequences of Cell, str, int, float or None
        Numbers are shown with six digits at most and stored whole; None is an empty cell.

    Examples
    --------
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
            raise InvalidParameter(
                f"columns must name at least one column; table {self.name!r} has none.", parameter="columns"
            )
        cells = tuple(tuple(map(_cell, row)) for row in self.rows)
        for place, row in enumerate(cells):
            if len(row) != len(headings):
                raise InvalidParameter(
                    f"A row must have {len(headings)} cells, one per column; row {place} of table {self.name!r} has "
                    f"{len(row)}. Pass None for an empty cell.",
                    parameter="rows",
                    value=len(row),
                    index=place,
                )
        object.__setattr__(self, "headings", headings)
        object.__setattr__(self, "cells", cells)


def _cell(content: Content) -> Cell:
    if isinstance(content, Cell):
        return content
    if content is None:
        return Cell("", value="")
    if isinstance(content, str):
        return Cell(content)
    number = content.item() if hasattr(content, "item") else content
    text = f"{number:.6g}" if isinstance(number, float) else str(number)
    return Cell(text.replace("-", "−"), value=number)
