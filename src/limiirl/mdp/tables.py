"""State features from a table with one row per state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from limiirl._typing import FloatArray, IntArray
from limiirl.errors import InvalidParameter
from limiirl.mdp.columns import column_names, nulls
from limiirl.mdp.names import encode, is_text, name_of

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
        message = f"Column 'state' of the state features must be complete; row {row} is empty."
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
