"""Tables: columns as arrays that numpy can sort exactly, numbering by name, and one row of features per state."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from limiirl._typing import BoolArray, FloatArray, IntArray
from limiirl.errors import InvalidDemos, InvalidParameter

_NULL_TYPES = frozenset({"NoneType", "NAType", "NaTType"})
_CLOCK = re.compile(r"(\d{1,2}):([0-5]\d)(?::([0-5]\d(?:\.\d+)?))?")
# Integers up to this value are exact in float64.
_EXACT = 2**53
# Kinds of numpy arrays that are rejected in general, and the exceptions by column.
_KINDS = {"b": "booleans", "c": "complex numbers", "m": "durations", "M": "dates", "S": "bytes", "V": "records"}
_ACCEPTED = {"t": "mM", "demo": "b", "group": "b", "label": "b"}
_OBJECTS = {"bool": "b", "complex": "c", "timedelta": "m", "Timedelta": "m", "bytes": "S"}
_DATES = frozenset({"date", "datetime", "Timestamp"})
_REMEDIES = {"M": "Convert it to text, e.g. with .astype(str).", "S": "Decode it, e.g. with .str.decode('utf-8')."}


def column_names(df: Any) -> list[Any] | None:
    """Return the names of the columns of a data frame, a pyarrow Table or a mapping; None for any other object."""
    # `columns` contains the names in a data frame, but the data in a pyarrow Table.
    names = next((getattr(df, field) for field in ("column_names", "columns") if hasattr(df, field)), None)
    if names is None:
        names = df.keys() if hasattr(df, "keys") else None
    return None if names is None else list(names)


def to_array(column: Any, name: str) -> NDArray[Any]:
    """Return a column of a table as a numpy array; raise `InvalidDemos` unless it contains numbers or text.

    Column t may also contain dates and durations, and the columns demo, group and label may contain booleans. Masked
    entries are never accepted.
    """
    try:
        if hasattr(column, "to_numpy"):
            array: Any = column.to_numpy()
        else:  # numpy would convert the numbers of a list to text if one entry is text
            array = column if isinstance(column, np.ndarray) else np.array(column, dtype=object)
    except (TypeError, ValueError) as error:
        raise InvalidDemos(f"Column {name!r} must contain scalars ({error}).", parameter=name) from None
    if np.ma.is_masked(array):
        row = int(np.flatnonzero(np.ma.getmaskarray(array))[0])
        rule = f"must not have masked entries; row {row} (from 0) is masked"
        message = f"Column {name!r} {rule}. Drop the row, or fill it."
        raise InvalidDemos(message, parameter=name, index=row)
    values: NDArray[Any] = np.asarray(array)  # removes the mask
    kind, row = str(values.dtype.kind), 0
    if kind == "O":
        kinds = [_kind(value) for value in values.flat]
        row = next((i for i, each in enumerate(kinds) if _is_refused(each, name)), 0)
        kind = kinds[row] if kinds else kind
    if values.size and _is_refused(kind, name):
        remedy = _REMEDIES.get(kind, "Convert it to numbers.")
        rule = f"must not contain {_KINDS[kind]}; row {row} (from 0) has {values.flat[row]}"
        message = f"Column {name!r} {rule}. {remedy}"
        raise InvalidDemos(message, parameter=name, value=values.flat[row], index=row)
    return values


def _kind(value: object) -> str:
    """Return numpy's letter for the type of a scalar in an object column, or "" if the type is not in `_KINDS`."""
    name = type(value).__name__
    return getattr(getattr(value, "dtype", None), "kind", "M" if name in _DATES else _OBJECTS.get(name, ""))


def _is_refused(kind: str, name: str) -> bool:
    return kind in _KINDS and kind not in _ACCEPTED.get(name, "")


def nulls(column: NDArray[Any]) -> BoolArray:
    """Return the mask of missing entries (None, NaN, NaT or NA)."""
    if column.dtype.kind == "O":
        empty = (type(x).__name__ in _NULL_TYPES or (isinstance(x, float) and x != x) for x in column)
        return np.fromiter(empty, dtype=np.bool_, count=column.size)
    return np.asarray(column != column)  # NaN and NaT only


def as_sortable(column: NDArray[Any], name: str) -> NDArray[Any]:
    """Return identifiers in a dtype that numpy can sort exactly; raise `InvalidDemos` if one is missing.

    Examples
    --------
    >>> as_sortable(np.array(["b", " "], dtype=object), "group")
    Traceback (most recent call last):
    limiirl.errors.InvalidDemos: Column 'group' must be complete; row 1 (from 0) is empty.
    """
    missing = nulls(column)
    texts = column.tolist() if column.dtype.kind in "OUT" else []
    blank = np.fromiter((isinstance(x, str) and not x.strip(" \t\0") for x in texts), np.bool_, len(texts))
    missing = missing | blank if texts else missing
    if missing.any():
        row = int(np.flatnonzero(missing)[0])
        raise InvalidDemos(f"Column {name!r} must be complete; row {row} (from 0) is empty.", parameter=name, index=row)
    if column.dtype.kind == "O":
        column = _unpack_objects(column, name)
        row = next((i for i, x in enumerate(texts) if isinstance(x, str) and x.endswith("\0")), -1)
        if row >= 0:  # numpy would remove it
            rule = f"must not end in a NUL character; row {row} (from 0) has {texts[row]!r}"
            message = f"Column {name!r} {rule}. Remove it."
            raise InvalidDemos(message, parameter=name, value=texts[row], index=row)
    if column.dtype.kind == "f" and name != "t":
        large = np.flatnonzero(np.abs(column) > _EXACT)
        if large.size:
            value = float(column[large[0]])
            message = (
                f"Column {name!r} must not have floats above 2**53, which do not represent all integers; row "
                f"{large[0]} has {value}. Read the column as text."
            )
            raise InvalidDemos(message, parameter=name, value=value, index=int(large[0]))
    return column


def _unpack_objects(column: NDArray[Any], name: str) -> NDArray[Any]:
    """Return an array of the common type of Python objects."""
    kinds = {type(x) for x in column}
    if len(kinds) > 1 and (str in kinds or bool in kinds):
        odd = str if str in kinds else bool
        example = next(type(x).__name__ for x in column if not isinstance(x, odd))
        noun = "strings" if odd is str else "booleans"
        message = f"Column {name!r} mixes {noun} with {example}. Convert it to one type, e.g. str."
        raise InvalidDemos(message, parameter=name, value=example)
    if kinds <= {int, float} and len(kinds) > 1:  # numpy would round the integers
        large = next((x for x in column if isinstance(x, int) and abs(x) > _EXACT), None)
        if large is not None:
            message = (
                f"Column {name!r} mixes floats with the integer {large}, which is not exact in float64. Use integers."
            )
            raise InvalidDemos(message, parameter=name, value=large)
    if kinds == {int} and not all(-(2**63) <= x < 2**63 for x in column):
        row = next(i for i, x in enumerate(column) if not -(2**63) <= x < 2**63)
        rule = f"must fit into int64; row {row} (from 0) has {column[row]}"
        message = f"Column {name!r} {rule}. Convert the column to text."
        raise InvalidDemos(message, parameter=name, value=column[row], index=row)
    try:
        array = np.array(column.tolist())
    except (TypeError, ValueError):
        array = np.empty((0, 0))
    if array.ndim != 1:
        raise InvalidDemos.of(name, column[0], "must be a column of scalars", index=0)
    return array


def as_times(column: NDArray[Any], row_demo: NDArray[np.integer[Any]]) -> NDArray[Any]:
    """Convert the column `t` to numbers or dates; `row_demo` (n,) is the demonstration of each row.

    Text is parsed as numbers, as dates in ISO 8601 or as times of day H:MM[:SS]. Other text raises `InvalidDemos`,
    because it would be sorted alphabetically. Times of day must not decrease within a demonstration, because a decrease
    suggests that the recording passed midnight.

    Examples
    --------
    >>> as_times(np.array(["10:00", "9:30"]), np.array([1, 0]))
    array([36000., 34200.])
    >>> as_times(np.array(["9", "x"]), np.array([0, 0]))
    Traceback (most recent call last):
    limiirl.errors.InvalidDemos: Column 't' must contain only numbers, only dates (2024-05-31 14:05), or only times o...
    """
    if column.dtype.kind == "O" and column.size and all(type(x).__name__ == "time" for x in column):
        column = np.array([x.isoformat() for x in column])
    times = as_sortable(column, "t")
    if times.dtype.kind not in "UT":
        return times
    distinct, inverse = np.unique(times.astype(np.str_), return_inverse=True)
    clock = [_CLOCK.fullmatch(text.strip()) for text in distinct.tolist()]
    if not any(clock):
        return _parse_text(distinct, times)[inverse]
    if not all(clock):
        stray = distinct[[match is None for match in clock]]
        raise _time_error(times, int(np.flatnonzero(np.isin(times.astype(np.str_), stray))[0]))
    hms = np.array([[float(part or 0) for part in match.groups()] for match in clock if match is not None])
    seconds = (hms @ [3600.0, 60.0, 1.0])[inverse]
    order = np.argsort(row_demo, kind="stable")
    fall = np.flatnonzero((np.diff(seconds[order]) < 0) & (np.diff(row_demo[order]) == 0))
    if fall.size:
        row = int(order[fall[0] + 1])
        message = (
            "Times of day in column 't' must not decrease within a demonstration; "
            f"row {row} (from 0) has {times[row]} after a later time. Add the dates, or sort the rows by time."
        )
        raise InvalidDemos(message, parameter="t", value=str(times[row]), index=row)
    return np.asarray(seconds)


def _parse_text(distinct: NDArray[np.str_], times: NDArray[Any]) -> NDArray[Any]:
    """Return distinct texts as integers, floats or dates; raise for the first row of a different type."""
    import pyarrow as pa
    import pyarrow.compute as pc

    def parse(texts: NDArray[np.str_], kind: pa.DataType) -> NDArray[Any] | None:
        try:
            parsed = pa.array([text.strip() for text in texts.tolist()]).cast(kind)
        except pa.ArrowInvalid:
            return None
        valid = not pa.types.is_floating(kind) or pc.all(pc.is_finite(parsed)).as_py()
        return np.asarray(parsed.to_numpy(zero_copy_only=False)) if valid else None

    # Microseconds first: outside the years 1678 to 2261, nanoseconds overflow, in pyarrow 20 without an error.
    kinds = [pa.int64(), pa.float64(), *(pa.timestamp(unit, zone) for unit in ("us", "ns") for zone in (None, "UTC"))]
    for kind in kinds:
        parsed = parse(distinct, kind)
        if parsed is not None:
            return parsed
    # The first row decides the type in the message.
    kind = next((kind for kind in kinds[1:] if parse(distinct[distinct == times[0]], kind) is not None), kinds[0])
    row = next((i for i in range(times.size) if parse(times[i : i + 1].astype(np.str_), kind) is None), 0)
    raise _time_error(times, row)


def _time_error(times: NDArray[Any], row: int) -> InvalidDemos:
    message = (
        "Column 't' must contain only numbers, only dates (2024-05-31 14:05), or only times of day (14:05); "
        f"row {row} (from 0) has {str(times[row])!r}. Convert the column, or drop the row."
    )
    return InvalidDemos(message, parameter="t", value=str(times[row]), index=row)


def is_text(values: NDArray[Any]) -> bool:
    """Return True if an array contains strings; an object array is text if any value is a string."""
    return values.dtype.kind in "UT" or (values.dtype.kind == "O" and any(isinstance(x, str) for x in values.flat))


def encode(values: NDArray[Any], missing: BoolArray, names: Sequence[str] | None) -> tuple[IntArray, tuple[str, ...]]:
    """Number text values by their position in `names`; by default, the distinct values in sorted order.

    Missing values are numbered -1, and values that are not among the names -2.

    Examples
    --------
    >>> encode(np.array(["pond", "den", ""]), np.array([False, False, True]), None)
    (array([ 1,  0, -1]), ('den', 'pond'))
    """
    present = values[~missing].tolist()  # not an array of strings, which would drop trailing NUL characters
    distinct = {x for x in present if isinstance(x, str)}
    named = tuple(sorted(distinct) if names is None else names)
    number = dict(zip(distinct, renumber(list(distinct), named).tolist(), strict=True))
    codes = np.full(values.size, -1, dtype=np.int64)
    codes[~missing] = [number[x] if isinstance(x, str) else -2 for x in present]
    return codes, named


def renumber(names: Sequence[str], target: Sequence[str]) -> IntArray:
    """Return the position in `target` of each name: -2 if it is absent, -3 if it occurs more than once.

    >>> renumber(["den", "pond", "nest"], ["pond", "den", "den"])
    array([-3,  0, -2])
    """
    position: dict[str, int] = {}
    for i, name in enumerate(target):
        position[name] = -3 if name in position else i
    return np.array([position.get(name, -2) for name in names], dtype=np.int64)


def name_of(names: Sequence[str] | None, number: int) -> str:
    """Return the quoted name of a state or action for messages, or its number if there are no names."""
    return repr(names[number]) if names is not None and 0 <= number < len(names) else str(number)


_LISTED = 5


class StateFeatures(NamedTuple):
    """Features (S, d) of states, and their names (d,)."""

    matrix: FloatArray
    names: tuple[str, ...]


def read_state_features(
    df: Any, state_names: Sequence[str] | None = None, n_states: int | None = None, *, least: int | None = None
) -> StateFeatures:
    """Return state features from a table with a column `state` and numeric, boolean or text columns.

    A numeric column is one feature, a boolean column is 0 or 1, and a text or categorical column has one indicator per
    value. Rows of states that are not in `state_names` are ignored.

    Parameters
    ----------
    df : pandas or polars DataFrame, pyarrow Table, or mapping from names to arrays
        One row per state, in any order.
    state_names : sequence of S strings, optional
        Names that the column `state` refers to. Without names, the column contains state indices.
    n_states : int, optional
        Number of states if there are no names. Default: the largest state index in the table plus one, and at least
        `least`.

    Examples
    --------
    >>> table = {"state": ["pond", "den"], "depth": [1.5, 0.0], "zone": ["wet", "dry"]}
    >>> features = read_state_features(table, ["den", "pond"])
    >>> features.names
    ('depth', 'zone[dry]', 'zone[wet]')
    >>> features.matrix
    array([[0. , 1. , 0. ],
           [1.5, 0. , 1. ]])
    """
    columns = column_names(df)
    if columns is None:
        rule = "must be a pandas or polars DataFrame, a pyarrow Table or a mapping of columns"
        raise InvalidParameter.of("state_features", type(df).__name__, rule)
    if "state" not in columns or len(columns) < 2:
        listed = ", ".join(map(str, columns))
        rule = "must have the column 'state' and at least one other column"
        raise InvalidParameter.of("state_features", listed, rule, remedy="Name the columns in the first row.")
    if len(set(columns)) < len(columns):
        name = next(name for name in columns if columns.count(name) > 1)
        raise InvalidParameter.of("state_features", name, "must not repeat a column", remedy="Rename one.")
    states = _to_numpy(df["state"])
    position = _row_of_state(states, state_names, n_states, least or 0)
    blocks, names = [], list[str]()
    for column in columns:
        if column != "state":
            block, titles = _encode_column(_to_numpy(df[column])[position], str(column), states[position])
            blocks.append(block)
            names += titles
    return StateFeatures(np.ascontiguousarray(np.concatenate(blocks, axis=1)), tuple(names))


def _to_numpy(column: Any) -> NDArray[Any]:
    return np.asarray(column.to_numpy() if hasattr(column, "to_numpy") else column)


def _row_of_state(states: NDArray[Any], names: Sequence[str] | None, n_states: int | None, least: int) -> IntArray:
    """Return the row (S,) of each state; raise if a state has no row or several rows."""
    missing = nulls(states)
    if names is not None:
        # State names may look like numbers, such as 1 or 01.
        text = states if is_text(states) else np.array([None if x != x else str(x) for x in states.tolist()], object)
        numbers, _ = encode(text, missing, names)
        n = len(names)
    else:
        numbers = _as_numbers(states, missing)
        n = n_states if n_states is not None else max(least, 1 + int(numbers.max(initial=-1)))
    if missing.any():
        row = int(np.argmax(missing))
        message = f"Column 'state' of the state features must be complete; row {row} (from 0) is empty."
        raise InvalidParameter(message, parameter="state_features", index=row)
    rows = np.flatnonzero((numbers >= 0) & (numbers < n))
    count = np.bincount(numbers[rows], minlength=n)
    if np.any(count > 1):
        state = int(np.argmax(count > 1))
        row = int(rows[numbers[rows] == state][1])
        message = f"State features must have one row per state; state {name_of(names, state)} has {count[state]}."
        raise InvalidParameter(message, parameter="state_features", value=_value(names, state), index=row)
    if np.any(count == 0):
        absent = np.flatnonzero(count == 0)
        listed = ", ".join(name_of(names, int(s)) for s in absent[:_LISTED]) + (
            ", ..." if absent.size > _LISTED else ""
        )
        message = f"State features must have a row for every state; {absent.size} have none: {listed}. Add the rows."
        raise InvalidParameter(message, parameter="state_features", value=_value(names, int(absent[0])))
    position = np.empty(n, dtype=np.int64)
    position[numbers[rows]] = rows
    return position


def _value(names: Sequence[str] | None, state: int) -> str | int:
    return state if names is None else names[state]


def _as_numbers(states: NDArray[Any], missing: NDArray[np.bool_]) -> IntArray:
    """Return state indices, -1 where missing."""
    try:
        values = np.where(missing, -1, states).astype(np.float64)
        wrong = np.flatnonzero(((values < 0) | (values != np.floor(values))) & ~missing)
    except (TypeError, ValueError):
        values, wrong = np.empty(0), np.flatnonzero([isinstance(x, str) for x in states.tolist()])
    if wrong.size:
        row = int(wrong[0])
        rule = "must contain state indices in the column 'state', because the demonstrations have no state names"
        raise InvalidParameter.of("state_features", states[row], rule, index=row)
    return values.astype(np.int64)


def _encode_column(column: NDArray[Any], name: str, states: NDArray[Any]) -> tuple[FloatArray, list[str]]:
    """Return the features (S, m) of a column in the order of states, and their names."""
    missing = nulls(column)
    if is_text(column):
        missing = missing | np.array([isinstance(x, str) and not x.strip() for x in column.tolist()])
    if column.ndim != 1 or missing.any():
        row = int(np.argmax(missing))
        message = (
            f"Column {name!r} of the state features must be complete; state {states[row]!r} has no value. Fill it."
        )
        raise InvalidParameter(message, parameter="state_features", value=states[row])
    if is_text(column):
        codes, values = encode(np.array([str(x) for x in column.tolist()], dtype=object), missing, None)
        return np.eye(len(values))[codes], [f"{name}[{value}]" for value in values]
    try:
        if column.dtype.kind not in "biufO":
            raise TypeError
        values_of = column.astype(np.float64)
    except (TypeError, ValueError):
        values_of = np.full(column.shape, np.nan)
    bad = np.flatnonzero(~np.isfinite(values_of))
    if bad.size:
        rule = f"must be finite numbers, booleans or text in column {name!r}"
        raise InvalidParameter.of("state_features", column[bad[0]], rule, index=int(bad[0]))
    return values_of[:, None], [name]
