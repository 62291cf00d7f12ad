"""Cells of a table as text, numbers and times; a column in which nothing can be read is an error that shows a cell."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from limiirl.errors import InvalidFile

Float = NDArray[np.float64]

DECIMAL_COMMAS = "numbers with a decimal comma, read as a point"
# What stands for nothing in a cell.
_NOTHING = ("", "nan", "null", "none", "na", "n/a", "-")
_COMMA = re.compile(r"\s*[-+]?\d+,\d+\s*")
_TIMES = (
    "Write times as 2013-07-02 18:05:00 (in 02/07/2013 the month could be either) or as seconds since 1970, or read "
    "the file without them: columns={'time': None}."
)
_WORDS = {
    "lat": ("latitude", "Write degrees as 41.15, or say which column has them: columns={'lat': ...}."),
    "lon": ("longitude", "Write degrees as -8.63, or say which column has them: columns={'lon': ...}."),
    "time": ("time", _TIMES),
}


class Cells:
    """Reads numbers and times, block after block, and remembers the first cell of each role that is neither.

    Examples
    --------
    >>> import pyarrow as pa
    >>> cells = Cells(Path("a.csv"), {"lat": "Breite"})
    >>> cells.numbers("lat", pa.array(["41,15", "north"]), row=0).tolist(), dict(cells.notes)
    ([41.15, nan], {'numbers with a decimal comma, read as a point': 1})
    >>> cells.check()  # one of them can be read
    """

    def __init__(self, path: Path, chosen: Mapping[str, str]) -> None:
        self.path, self.notes = path, Counter[str]()
        self._chosen = chosen
        self._read: Counter[str] = Counter()
        self._odd: dict[str, tuple[int, str]] = {}

    def numbers(self, role: str, column: Any, row: int) -> Float:
        """Return a block of a column as float64, NaN where no number stands; `row` is that of its first cell."""
        return self._seen(role, column, row, as_numbers(column, self.notes))

    def times(self, role: str, column: Any, row: int) -> Float:
        """Return a block of a column as seconds, or in whatever unit its numbers have; see `as_times`."""
        return self._seen(role, column, row, as_times(column, self.notes))

    def check(self) -> None:
        """Raise `InvalidFile` where a column has cells, and none of them could be read."""
        for role, (row, text) in self._odd.items():
            if not self._read[role]:
                word, remedy = _WORDS[role]
                raise InvalidFile(
                    f"{self.path}, row {row} (the first below the head is row 0): {text[:40]!r} in column "
                    f"{self._chosen[role]!r} is no {word} that can be read, nor is any other cell of it. {remedy}"
                )

    def _seen(self, role: str, column: Any, row: int, values: Float) -> Float:
        known = np.isfinite(values)
        self._read[role] += int(np.count_nonzero(known))
        if role not in self._odd and not self._read[role]:
            for i in np.flatnonzero(~known).tolist():
                text = str(column[i].as_py())
                if text.strip().lower() not in _NOTHING:
                    self._odd[role] = row + i, text
                    break
        return values


def as_text(column: Any) -> NDArray[Any]:
    """Return a column as text, "" where nothing stands."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_floating(column.type):
        column = pc.if_else(pc.is_nan(column), pa.scalar(None, column.type), column)  # NaN names nothing
        # Whole numbers become floats in a column with gaps.
        if pc.all(pc.equal(pc.floor(column), column)).as_py() is not False:
            with suppress(pa.ArrowInvalid):  # beyond 64 bits they stay as they are
                column = pc.cast(column, pa.int64())
    try:
        text = pc.fill_null(pc.cast(column, pa.large_string()), "").to_pylist()
    except pa.ArrowException:  # lists and the like have no text of Arrow's
        text = ["" if value is None else str(value) for value in column.to_pylist()]
    return np.array(text, dtype=np.str_) if text else np.empty(0, dtype="<U1")


def as_numbers(column: Any, notes: Counter[str] | None = None) -> Float:
    """Return a column as float64, NaN where nothing that is a number stands; decimal commas are counted in `notes`."""
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        numbers = pc.cast(column, pa.float64(), safe=False)
    except pa.ArrowException:
        cells = column.to_pylist()
        _count_commas(cells, notes)
        return np.array([float_or_nan(text) for text in cells])
    return np.asarray(pc.fill_null(numbers, float("nan")).to_numpy(zero_copy_only=False), dtype=np.float64)


def as_times(column: Any, notes: Counter[str] | None = None) -> Float:
    """Return a column of times as numbers: dates as seconds since 1970 (UTC unless they say otherwise)."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_timestamp(column.type):
        micro = pc.cast(pc.cast(column, pa.timestamp("us", tz=column.type.tz), safe=False), pa.int64())
        return np.asarray(pc.cast(micro, pa.float64(), safe=False).to_numpy(zero_copy_only=False)) / 1e6
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        return as_numbers(column)
    try:
        return as_numbers(pc.cast(column, pa.float64()))
    except pa.ArrowInvalid:
        pass
    for kind in (pa.timestamp("us"), pa.timestamp("us", tz="UTC")):
        try:
            return as_times(pc.cast(column, kind))
        except pa.ArrowInvalid:
            continue
    cells = column.to_pylist()
    _count_commas(cells, notes)
    return np.array([moment_s(text) for text in cells])


def float_or_nan(text: Any) -> float:
    """Return a number, NaN where the text is none; a single comma is a decimal one.

    Examples
    --------
    >>> float_or_nan("41,15"), float_or_nan("41.15"), float_or_nan("1,372,636")
    (41.15, 41.15, nan)
    """
    try:
        return float(text or "nan")
    except (ValueError, TypeError):
        comma = isinstance(text, str) and _COMMA.fullmatch(text)
        return float(text.replace(",", ".")) if comma else float("nan")


def moment_s(text: str | None) -> float:
    """Return a date or a number as seconds, NaN where it is neither."""
    number = float_or_nan(text)
    if number == number:  # a number of 8 or of 13 digits would pass for a date
        return number
    try:
        moment = datetime.fromisoformat((text or "").strip().replace("/", "-"))
    except ValueError:
        return number
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _count_commas(cells: list[Any], notes: Counter[str] | None) -> None:
    if notes is not None:
        notes[DECIMAL_COMMAS] += sum(isinstance(text, str) and _COMMA.fullmatch(text) is not None for text in cells)
