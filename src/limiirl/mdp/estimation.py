"""Parsing of tables of demonstrations, and estimation of an MDP from demonstrations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from limiirl._typing import BoolArray, FloatArray, Int32Array, IntArray
from limiirl._validation import check_positive
from limiirl.errors import InvalidDemos, InvalidParameter
from limiirl.kernels.graph import number_within, row_pointers
from limiirl.mdp.features import as_features
from limiirl.mdp.tables import (
    as_sortable,
    as_times,
    column_names,
    encode,
    is_text,
    nulls,
    read_state_features,
    to_array,
)
from limiirl.mdp.validate import check_n_states

if TYPE_CHECKING:
    from collections.abc import Sequence

    from limiirl.mdp.features import FeatureInput
    from limiirl.mdp.mdp import MDP


_REQUIRED = ("demo", "t", "state")
_COLUMNS = ("demo", "t", "state", "action", "group", "label")


class Trajectories(NamedTuple):
    """N demonstrations as flat arrays; demonstration i occupies ``offsets[i]:offsets[i + 1]``.

    The action in the last state of each demonstration is -1; `actions` is None if no actions were recorded. `ids`,
    `groups` and `labels` have one entry per demonstration. Text states and actions are numbered in sorted order;
    `state_names` and `action_names` are their names, or None.
    """

    states: Int32Array
    actions: Int32Array | None
    offsets: IntArray
    ids: NDArray[Any]
    groups: NDArray[Any] | None
    labels: NDArray[Any] | None
    times: NDArray[Any] | None = None
    state_names: tuple[str, ...] | None = None
    action_names: tuple[str, ...] | None = None


def read_frame(df: Any, columns: Mapping[str, str] | None = None) -> Trajectories:
    """Read a table with the columns demo, t and state, and optionally action, group and label.

    Rows are sorted by demo and t. `t` contains numbers, durations, dates or times of day, or such values as text; it
    may have gaps. States and actions are nonnegative integers or text. The last action of a demonstration may be
    missing or -1, and is stored as -1. `group` (a driver, an animal) and `label` must be constant within a
    demonstration. Other columns are ignored.

    Parameters
    ----------
    df : pandas or polars DataFrame, pyarrow Table, or mapping from names to arrays
    columns : mapping, optional
        Columns with other names, such as {"demo": "session", "state": "place"}. A name like "mouse+bout" joins the
        columns "mouse" and "bout" to one identifier.

    Returns
    -------
    Trajectories
        The demonstrations in increasing order of `demo`.

    Examples
    --------
    >>> runs = read_frame({"demo": ["b", "a", "a"], "t": [0, 1, 0], "state": [7, 5, 4], "action": [None, None, 2]})
    >>> runs.states, runs.actions, runs.offsets, runs.ids
    (array([4, 5, 7], dtype=int32), array([ 2, -1, -1], dtype=int32), array([0, 2, 3]), array(['a', 'b'], dtype='<U1'))
    >>> rows = {"session": ["a", "a"], "t": [0, 1], "place": ["pond", "den"]}
    >>> runs = read_frame(rows, {"demo": "session", "state": "place"})
    >>> runs.states, runs.state_names
    (array([1, 0], dtype=int32), ('den', 'pond'))
    """
    arrays = _columns(df, rename_columns(columns))
    demo = as_sortable(arrays["demo"], "demo")
    ids, member = _unique(demo, "demo")
    time = as_times(arrays["t"], member)
    rank = _unique(time, "t")[1]  # ranks sort dates, strings and numbers alike
    order = np.lexsort((rank, member))
    member, rank = member[order], rank[order]
    rows = _SortedRows(demo[order], time[order], order)
    repeated = np.flatnonzero((member[1:] == member[:-1]) & (rank[1:] == rank[:-1]))
    if repeated.size:
        first = repeated[0]
        message = f"Column 't' must not repeat within a demonstration; {rows.name(first)} occurs twice."
        raise InvalidDemos(message, parameter="t", value=time[order][first], index=int(order[first + 1]))
    offsets = row_pointers(member, ids.size)
    states, missing, state_names = _as_numbers(arrays["state"][order], "state", rows, lowest=0)
    if missing.any():
        first = np.flatnonzero(missing)[0]
        remedy = "Drop the row, or split the demonstration there."
        message = f"Column 'state' must be complete; {rows.name(first)} is empty. {remedy}"
        raise InvalidDemos(message, parameter="state", index=int(order[first]))
    actions, action_names = None, None
    if "action" in arrays:
        actions, action_names = _actions(arrays["action"][order], offsets, rows)
    return Trajectories(
        states=states,
        actions=actions,
        offsets=offsets,
        ids=ids,
        groups=_constant(arrays["group"], "group", order, offsets, ids) if "group" in arrays else None,
        labels=_constant(arrays["label"], "label", order, offsets, ids) if "label" in arrays else None,
        times=_as_recorded(time[order], offsets),
        state_names=state_names,
        action_names=action_names,
    )


def _as_recorded(time: NDArray[Any], offsets: IntArray) -> NDArray[Any] | None:
    """Return the times of the sorted rows, or None if they are the step numbers 0, 1, ... of each demonstration."""
    t = np.arange(time.size) - np.repeat(offsets[:-1], np.diff(offsets))
    return None if time.dtype.kind in "iuf" and np.array_equal(time, t) else time


class _SortedRows(NamedTuple):
    """Keys of the sorted rows, and their positions in the table."""

    demo: NDArray[Any]
    time: NDArray[Any]
    row: IntArray

    def name(self, row: int | np.integer[Any]) -> str:
        return f"demo {self.demo[row]}, t {self.time[row]}"


def rename_columns(columns: Mapping[str, str] | None) -> dict[str, str]:
    """Return the column of each field of a table; see `read_frame`."""
    given = {} if columns is None else columns
    if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given.values()):
        rule = f"must map some of {', '.join(_COLUMNS)} to names of columns"
        raise InvalidParameter.of("columns", columns, rule)
    unknown = next((name for name in given if name not in _COLUMNS), None)
    if unknown is not None:
        raise InvalidParameter.of("columns", unknown, f"must have only keys among {', '.join(_COLUMNS)}")
    return {name: name for name in _COLUMNS} | dict(given)


def _columns(df: Any, sources: dict[str, str]) -> dict[str, NDArray[Any]]:
    """Return the columns of a table; `sources` maps each field to a column, or to several columns joined by "+"."""
    names = column_names(df)
    if names is None:
        rule = "must be a pandas or polars DataFrame, a pyarrow Table or a mapping of columns"
        raise InvalidDemos.of("df", type(df).__name__, rule, remedy="Or use Demonstrations.from_lists.")
    parts = {field: [source] if source in names else split_columns(source) for field, source in sources.items()}
    for field in _COLUMNS:
        absent = next((part for part in parts[field] if part not in names), None)
        if absent is not None and (field in _REQUIRED or sources[field] != field):
            listed = ", ".join(map(str, names))
            rule = (
                "the columns demo, t and state" if sources[field] == field else f"the column {absent!r} for {field!r}"
            )
            remedy = "Pass columns={...}, or --columns NAME=COLUMN,... on the command line, for other names."
            message = f"The table must have {rule}; {absent!r} is not among {listed}. {remedy}"
            raise InvalidDemos(message, parameter="df", value=absent)
        if absent is not None:
            del parts[field]
    used = {part for field in parts.values() for part in field}
    repeated = [name for name, count in Counter(names).items() if count > 1 and name in used]
    if repeated:
        message = (
            f"The table must not repeat a column; {repeated[0]!r} occurs {names.count(repeated[0])} times. Rename one."
        )
        raise InvalidDemos(message, parameter="df", value=repeated[0])
    columns = {field: _join([to_array(df[part], field) for part in parts[field]], field) for field in parts}
    shapes = {name: column.shape for name, column in columns.items()}
    if len(set(shapes.values())) > 1 or columns["state"].ndim != 1:
        raise InvalidDemos.of("df", shapes, "must have one-dimensional columns of equal length")
    if columns["state"].size == 0:
        raise InvalidDemos("The table must have at least one row.", parameter="df", value=0)
    return columns


def split_columns(source: str) -> list[str]:
    """Return the names of columns that are joined by "+"."""
    return [part.strip() for part in source.split("+")]


def _join(parts: list[NDArray[Any]], name: str) -> NDArray[Any]:
    """Return one column, or several columns as text joined by slashes."""
    if len(parts) == 1:
        return parts[0]
    rows = list(zip(*(as_sortable(part, name).tolist() for part in parts), strict=True))
    joined = {row: "/".join(map(str, row)) for row in rows}
    if len(set(joined.values())) < len(joined):
        text = Counter(joined.values()).most_common(1)[0][0]
        message = f"Columns joined as {name!r} are ambiguous: different rows become {text!r}. Remove slashes from them."
        raise InvalidDemos(message, parameter=name, value=text)
    return np.array([joined[row] for row in rows], dtype=object)


def _unique(values: NDArray[Any], name: str) -> tuple[NDArray[Any], IntArray]:
    try:
        distinct, inverse = np.unique(values, return_inverse=True)
    except TypeError as error:
        message = f"Column {name!r} cannot be sorted ({error}). Convert it to one type, e.g. str."
        raise InvalidDemos(message, parameter=name) from error
    return distinct, inverse.astype(np.int64, copy=False)


def _as_numbers(
    column: NDArray[Any], name: str, rows: _SortedRows, *, lowest: int
) -> tuple[Int32Array, BoolArray, tuple[str, ...] | None]:
    """Return states or actions as integers (-1 where missing), the mask of missing entries, and the names if text."""
    if not is_text(column):
        return *_as_integers(column, name, rows, lowest=lowest), None
    empty = (isinstance(x, str) and not x.strip(" \t\0") for x in column.tolist())
    missing = nulls(column) | np.fromiter(empty, dtype=np.bool_, count=column.size)
    numbers, names = encode(column, missing, None)
    wrong = np.flatnonzero(numbers == -2)
    if wrong.size:
        value = column[wrong[0]]
        message = (
            f"Column {name!r} must contain numbers or text, not both; {rows.name(wrong[0])} has the number {value!r}. "
            "Convert the column to text."
        )
        raise InvalidDemos(message, parameter=name, value=value, index=int(rows.row[wrong[0]]))
    return numbers.astype(np.int32), missing, names


def _as_integers(column: NDArray[Any], name: str, rows: _SortedRows, *, lowest: int) -> tuple[Int32Array, BoolArray]:
    """Return integers >= `lowest` (-1 where missing) and the mask of missing entries."""
    missing = nulls(column)
    # Data frames convert integers to float or object if an entry is missing, so integral floats are accepted.
    try:
        values = np.where(missing, -1, column).astype(np.float64)
    except (TypeError, ValueError) as error:
        message = f"Column {name!r} must contain nonnegative integers or text ({error})."
        raise InvalidDemos(message, parameter=name) from error
    outside = (values < lowest) | (values > np.iinfo(np.int32).max) | (values != np.floor(values))
    wrong = np.flatnonzero(outside & ~missing)
    if wrong.size:
        value = column[wrong[0]]
        message = f"Column {name!r} must contain nonnegative integers; {rows.name(wrong[0])} has {value}."
        raise InvalidDemos(message, parameter=name, value=value, index=int(rows.row[wrong[0]]))
    return values.astype(np.int32), missing


def _actions(column: NDArray[Any], offsets: IntArray, rows: _SortedRows) -> tuple[Int32Array, tuple[str, ...] | None]:
    actions, _, names = _as_numbers(column, "action", rows, lowest=-1)
    last = np.zeros(actions.size, dtype=np.bool_)
    last[offsets[1:] - 1] = True
    absent = np.flatnonzero((actions < 0) & ~last)
    if absent.size:
        message = (
            f"Column 'action' may be empty only in the last row of a demonstration; {rows.name(absent[0])} is empty. "
            "Fill it, or drop the column if actions were not recorded."
        )
        raise InvalidDemos(message, parameter="action", index=int(rows.row[absent[0]]))
    actions[last] = -1
    return actions, names


def _constant(column: NDArray[Any], name: str, order: IntArray, offsets: IntArray, ids: NDArray[Any]) -> NDArray[Any]:
    """Return one value (N,) per demonstration from a column that must be constant within demonstrations."""
    values = as_sortable(column, name)[order]
    first = values[offsets[:-1]]
    change = np.flatnonzero(values != np.repeat(first, np.diff(offsets)))
    if change.size:
        demo = int(np.searchsorted(offsets, change[0], side="right")) - 1
        value = values[change[0]]
        message = (
            f"Column {name!r} must be constant within a demonstration; demo {ids[demo]} has {first[demo]} and {value}."
        )
        raise InvalidDemos(message, parameter=name, value=value, index=demo)
    return first


def from_demonstrations(
    cls: type[MDP],
    data: Any,
    *,
    n_states: int | None = None,
    gamma: float = 1.0,
    smoothing: float = 0.1,
    state_features: FeatureInput | Any | None = None,
    action_features: FeatureInput | None = None,
    feature_names: Sequence[str] | None = None,
) -> MDP:
    """Estimate an MDP from demonstrations.

    With actions, (s, a) is available if it was observed, and its possible outcomes are all observed successors of s:

        T(s' | s, a) = (n(s, a, s') + smoothing) / sum over the successors s'' of s of (n(s, a, s'') + smoothing)

    Without actions, each observed transition s -> s' is a deterministic action, numbered by increasing s'. The start
    distribution is p0(s) = (n(s) + smoothing) / (N + smoothing S).

    States without an observed successor are terminal. This includes states that occur only at the end of truncated
    recordings, and states that were never observed.

    Parameters
    ----------
    data : table with the columns demo, t, state[, action], or Demonstrations
        pandas or polars DataFrame, pyarrow Table or mapping of columns; see `limiirl.mdp.read_frame`.
    n_states : int, optional
        Number of states. Default: the number of names or rows of `state_features`, or the largest observed state plus
        one.
    gamma : float
        Discount in (0, 1].
    smoothing : float
        Pseudo-count of each outcome; with 0, probabilities are relative frequencies.
    state_features : (S, ds) or table, optional
        A table has a column `state` and one row per state; see `limiirl.mdp.read_state_features`. Default: state
        indicators.
    action_features : (S, A, da), optional
        Add features of (s, a, s') with ``mdp.replace(edge_features=...)``, one row per edge.
    feature_names : sequence of d strings, optional

    Examples
    --------
    >>> from limiirl.mdp import MDP
    >>> table = {"demo": [0, 0, 0, 1, 1], "t": [0, 1, 2, 0, 1], "state": [0, 0, 1, 0, 1], "action": [1, 1, -1, 0, -1]}
    >>> mdp = MDP.from_demonstrations(table, smoothing=0.5)
    >>> for edge in zip(mdp.src, mdp.act, mdp.dst, mdp.prob):
    ...     print(*edge)
    0 0 0 0.25
    0 0 1 0.75
    0 1 0 0.5
    0 1 1 0.5
    """
    check_positive(smoothing, "smoothing", zero=True, remedy="Use 0 for relative frequencies.")
    runs = data if hasattr(data, "states") and hasattr(data, "offsets") else read_frame(data)
    state_names, action_names = (getattr(runs, name, None) for name in ("state_names", "action_names"))
    if state_names is not None:
        n_states = _check_named_states(n_states, state_names)
    states, offsets = np.asarray(runs.states, dtype=np.int64), np.asarray(runs.offsets, dtype=np.int64)
    if state_features is not None and column_names(state_features) is not None:
        least = None if state_names is not None or n_states is not None else 1 + int(states.max(initial=-1))
        table = read_state_features(state_features, state_names, n_states, least=least)
        state_features = table.matrix
        if feature_names is None and action_features is None:
            feature_names = table.names
    if n_states is None and state_features is not None:
        n_states = as_features(state_features, "state_features").shape[0]
    if n_states is None:
        n_states = 1 + int(states.max(initial=-1))
    n_states = check_n_states(n_states)
    _check_range(states, offsets, n_states)
    starts = np.bincount(states[offsets[:-1]], minlength=n_states) + float(smoothing)
    src, act, dst, prob = _estimate_edges(states, offsets, runs.actions, n_states, float(smoothing))
    return cls.from_edges(
        src,
        dst,
        n_states,
        act,
        prob,
        starts / starts.sum(),
        gamma,
        state_features=state_features,
        action_features=action_features,
        feature_names=feature_names,
        state_names=state_names,
        action_names=action_names,
    )


def _check_named_states(n_states: int | None, names: Sequence[str]) -> int:
    if n_states not in (None, len(names)):
        rule = f"must be the number of state names, {len(names)}"
        raise InvalidParameter.of("n_states", n_states, rule, remedy="Omit it.")
    return len(names)


def _estimate_edges(
    states: IntArray, offsets: IntArray, actions: Any, n_states: int, smoothing: float
) -> tuple[IntArray, IntArray, IntArray, NDArray[np.float64]]:
    has_successor = np.ones(states.size, dtype=np.bool_)
    has_successor[offsets[1:] - 1] = False
    steps = np.flatnonzero(has_successor)
    src, dst = states[steps], states[steps + 1]
    if actions is None:
        source, target = np.divmod(np.unique(src * n_states + dst), n_states)
        return source, number_within(source), target, np.ones(source.size)
    taken = np.asarray(actions, dtype=np.int64)[steps]
    if np.any(taken < 0):
        position = int(steps[np.argmax(taken < 0)])
        demo = int(np.searchsorted(offsets, position, side="right")) - 1
        step = int(position - offsets[demo])
        message = f"actions must be recorded for all steps or for none; demonstration {demo}, step {step} has none."
        raise InvalidDemos(message, parameter="actions", index=(demo, step))
    return _frequencies(src, taken, dst, n_states, smoothing)


def _check_range(states: IntArray, offsets: IntArray, n_states: int) -> None:
    wrong = np.flatnonzero((states < 0) | (states >= n_states))
    if wrong.size:
        demo = int(np.searchsorted(offsets, wrong[0], side="right")) - 1
        index = (demo, int(wrong[0] - offsets[demo]))
        rule, remedy = f"must lie in 0..{n_states - 1}", "Pass a larger n_states or more rows of state_features."
        raise InvalidDemos.of("states", int(states[wrong[0]]), rule, index=index, remedy=remedy)


def _frequencies(
    src: IntArray, act: IntArray, dst: IntArray, n_states: int, smoothing: float
) -> tuple[IntArray, IntArray, IntArray, FloatArray]:
    """Return the edges (s, a, s', p) with smoothed frequencies of the successors of each observed (s, a)."""
    n_actions = int(act.max(initial=-1)) + 1
    pairs, pair = np.unique(src * n_actions + act, return_inverse=True)
    transitions, transition = np.unique(src * n_states + dst, return_inverse=True)
    pair_state, pair_action = np.divmod(pairs, max(n_actions, 1))
    source, successor = np.divmod(transitions, n_states)
    # Each pair (s, a) has one edge per observed transition (s, s'); the edges of pair p start at first[p].
    pointers = row_pointers(source, n_states)
    degree = np.diff(pointers)[pair_state]
    first = np.concatenate([[0], np.cumsum(degree)])
    edge_pair = np.repeat(np.arange(pairs.size), degree)
    edge_transition = np.arange(first[-1]) - first[edge_pair] + pointers[pair_state[edge_pair]]
    observed = first[pair] + transition - pointers[src]
    weight = np.bincount(observed, minlength=int(first[-1])) + smoothing
    total = np.bincount(edge_pair, weights=weight, minlength=pairs.size)
    return pair_state[edge_pair], pair_action[edge_pair], successor[edge_transition], weight / total[edge_pair]
