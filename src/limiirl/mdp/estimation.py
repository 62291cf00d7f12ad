"""Tables of recordings, and MDPs estimated from them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from limiirl._typing import BoolArray, FloatArray, Int32Array, IntArray
from limiirl._validation import check_positive
from limiirl.errors import InvalidDemos
from limiirl.mdp.features import as_features
from limiirl.mdp.indexing import number_within, row_pointers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from limiirl.mdp.features import FeatureInput
    from limiirl.mdp.mdp import MDP


_NULL_TYPES = frozenset({"NoneType", "NAType", "NaTType"})


class Trajectories(NamedTuple):
    """Recordings as flat arrays: those of demonstration i are ``offsets[i]:offsets[i + 1]``.

    `states` (n,) and `actions` (n,) are int32, with -1 for the action of each last state (nothing was seen to follow
    it); `actions` is None when they were not recorded. `offsets` (N + 1,) is int64; `ids`, `groups` and `labels` have
    one entry per demonstration.
    """

    states: Int32Array
    actions: Int32Array | None
    offsets: IntArray
    ids: NDArray[Any]
    groups: NDArray[Any] | None
    labels: NDArray[Any] | None


def read_frame(df: Any) -> Trajectories:
    """Read a table with the columns demo, t, state and, where there are such, action, group and label.

    The rows may stand in any order. They are sorted by demo and then by t, which only orders them: it may be a
    counter, a number of seconds or a date, and need not be without gaps. States and actions are integers from 0. The
    last action of a demonstration may be empty, NaN or -1; it is stored as -1 in any case, since its outcome was not
    seen. `group` (a driver, an animal) and `label` must be constant within a demonstration. Other columns are
    ignored.

    Parameters
    ----------
    df : pandas or polars DataFrame, pyarrow Table, or mapping from names to arrays

    Returns
    -------
    Trajectories
        The demonstrations in increasing order of `demo`.

    Examples
    --------
    >>> runs = read_frame({"demo": ["b", "a", "a"], "t": [0, 1, 0], "state": [7, 5, 4], "action": [None, None, 2]})
    >>> runs.states, runs.actions, runs.offsets, runs.ids
    (array([4, 5, 7], dtype=int32), array([ 2, -1, -1], dtype=int32), array([0, 2, 3]), array(['a', 'b'], dtype='<U1'))
    """
    columns = _columns(df)
    demo = _plain(columns["demo"], "demo")
    time = _plain(columns["t"], "t")
    ids, member = _distinct(demo, "demo")
    # Ranks stand for the times, so that dates, strings and numbers are all sorted alike.
    moment = _distinct(time, "t")[1]
    order = np.lexsort((moment, member))
    member, moment = member[order], moment[order]
    at = _Places(demo[order], time[order], order)
    twice = np.flatnonzero((member[1:] == member[:-1]) & (moment[1:] == moment[:-1]))
    if twice.size:
        raise InvalidDemos(
            f"A demonstration has one row for each t; {at.name(twice[0])} occurs twice. "
            "Remove one of the rows, or number t anew.",
            parameter="t",
            value=at.time[twice[0]],
            index=int(order[twice[0] + 1]),
        )
    offsets = np.zeros(ids.size + 1, dtype=np.int64)
    np.cumsum(np.bincount(member, minlength=ids.size), out=offsets[1:])
    states, missing = _whole_numbers(columns["state"][order], "state", at, lowest=0)
    if missing.any():
        where = at.name(np.flatnonzero(missing)[0])
        raise InvalidDemos(
            f"Every row needs a state; {where} has none. Drop the row, or cut the demonstration there.",
            parameter="state",
            index=int(order[np.flatnonzero(missing)[0]]),
        )
    return Trajectories(
        states=states,
        actions=_actions(columns["action"][order], offsets, at) if "action" in columns else None,
        offsets=offsets,
        ids=ids,
        groups=_constant(columns["group"], "group", order, offsets, ids) if "group" in columns else None,
        labels=_constant(columns["label"], "label", order, offsets, ids) if "label" in columns else None,
    )


class _Places(NamedTuple):
    """Where a sorted row stands, in the words of the table."""

    demo: NDArray[Any]
    time: NDArray[Any]
    row: IntArray

    def name(self, row: int | np.integer[Any]) -> str:
        return f"demo {self.demo[row]}, t {self.time[row]}"


def _columns(df: Any) -> dict[str, NDArray[Any]]:
    # A pyarrow Table's `columns` are its data and `column_names` their names; the frames have their names in `columns`.
    names = next((list(getattr(df, field)) for field in ("column_names", "columns") if hasattr(df, field)), None)
    if names is None:
        if not hasattr(df, "keys"):
            raise InvalidDemos(
                "Recordings must be a pandas or polars frame, a pyarrow Table or a mapping of columns; got "
                f"{type(df).__name__}. Convert them, or use Demonstrations.from_lists.",
                parameter="df",
                value=type(df).__name__,
            )
        names = list(df.keys())
    for required in ("demo", "t", "state"):
        if required not in names:
            raise InvalidDemos(
                f"The columns demo, t and state are needed; {required!r} is missing (there are "
                f"{', '.join(map(str, names))}). Rename your column.",
                parameter="df",
                value=required,
            )
    wanted = [name for name in ("demo", "t", "state", "action", "group", "label") if name in names]
    columns = {name: _to_numpy(df[name]) for name in wanted}
    shapes = {name: column.shape for name, column in columns.items()}
    if len(set(shapes.values())) > 1 or columns["state"].ndim != 1:
        raise InvalidDemos(
            f"Columns must be flat and of one length; the shapes are {shapes}. Cut them alike.",
            parameter="df",
            value=shapes,
        )
    if columns["state"].size == 0:
        raise InvalidDemos(
            "The table has no rows. Give at least one demonstration of one state.", parameter="df", value=0
        )
    return columns


def _to_numpy(column: Any) -> NDArray[Any]:
    array: NDArray[Any] = column.to_numpy() if hasattr(column, "to_numpy") else np.asarray(column)
    return array


def _nulls(column: NDArray[Any]) -> BoolArray:
    """Return which entries are missing, in any of the ways in which frames say so."""
    if column.dtype.kind == "O":
        empty = (type(x).__name__ in _NULL_TYPES or (isinstance(x, float) and x != x) for x in column)
        return np.fromiter(empty, dtype=np.bool_, count=column.size)
    # NaN and NaT are the only values of numpy's own types that differ from themselves.
    missing: BoolArray = column != column
    return missing


def _plain(column: NDArray[Any], name: str) -> NDArray[Any]:
    """Return a column without missing entries in a type that numpy sorts: strings as str_, numbers as numbers."""
    missing = _nulls(column)
    if missing.any():
        row = int(np.flatnonzero(missing)[0])
        raise InvalidDemos(
            f"The column {name!r} must be complete; row {row} is empty. Fill it, or drop the row.",
            parameter=name,
            index=row,
        )
    if column.dtype.kind != "O":
        return column
    kinds = {type(x) for x in column}
    if len(kinds) > 1 and str in kinds:
        example = next(type(x).__name__ for x in column if not isinstance(x, str))
        raise InvalidDemos(
            f"The column {name!r} mixes strings with {example}. Convert it to one type, e.g. str.",
            parameter=name,
            value=example,
        )
    plain = np.array(column.tolist())
    if plain.ndim != 1:
        raise InvalidDemos(
            f"The column {name!r} must hold single values; row 0 is {column[0]!r}. Make one value of it.",
            parameter=name,
            value=column[0],
            index=0,
        )
    return plain


def _distinct(values: NDArray[Any], name: str) -> tuple[NDArray[Any], IntArray]:
    """Return the different values in increasing order, and for each entry the number of its value."""
    try:
        distinct, which = np.unique(values, return_inverse=True)
    except TypeError as error:
        raise InvalidDemos(
            f"The column {name!r} cannot be sorted ({error}). Convert it to one type, e.g. str.", parameter=name
        ) from error
    return distinct, which.astype(np.int64, copy=False)


def _whole_numbers(column: NDArray[Any], name: str, at: _Places, *, lowest: int) -> tuple[Int32Array, BoolArray]:
    """Return integers from `lowest` (missing ones as -1) and the mask of the missing ones."""
    missing = _nulls(column)
    # Frames turn integers into floats or objects as soon as one entry is missing, so whole floats are integers here.
    try:
        values = np.where(missing, -1, column).astype(np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidDemos(
            f"The column {name!r} must hold integers from 0 ({error}). Number the values, e.g. with pandas.factorize.",
            parameter=name,
        ) from error
    outside = (values < lowest) | (values > np.iinfo(np.int32).max) | (values != np.floor(values))
    wrong = np.flatnonzero(outside & ~missing)
    if wrong.size:
        where, value = at.name(wrong[0]), column[wrong[0]]
        raise InvalidDemos(
            f"The column {name!r} must hold integers from 0; {where} has {value}. Number the values from 0.",
            parameter=name,
            value=value,
            index=int(at.row[wrong[0]]),
        )
    return values.astype(np.int32), missing


def _actions(column: NDArray[Any], offsets: IntArray, at: _Places) -> Int32Array:
    actions, _ = _whole_numbers(column, "action", at, lowest=-1)
    last = np.zeros(actions.size, dtype=np.bool_)
    last[offsets[1:] - 1] = True
    absent = np.flatnonzero((actions < 0) & ~last)
    if absent.size:
        raise InvalidDemos(
            f"Every row but the last of a demonstration needs an action; {at.name(absent[0])} has none. "
            "Fill it, or leave the column out if actions were not recorded.",
            parameter="action",
            index=int(at.row[absent[0]]),
        )
    actions[last] = -1
    return actions


def _constant(column: NDArray[Any], name: str, order: IntArray, offsets: IntArray, ids: NDArray[Any]) -> NDArray[Any]:
    """Return the value of each demonstration in a column that may not change within one."""
    values = _plain(column, name)[order]
    first = values[offsets[:-1]]
    change = np.flatnonzero(values != np.repeat(first, np.diff(offsets)))
    if change.size:
        demo = int(np.searchsorted(offsets, change[0], side="right")) - 1
        raise InvalidDemos(
            f"The column {name!r} must be constant within a demonstration; demo {ids[demo]} has {first[demo]} and "
            f"{values[change[0]]}. Split the demonstration, or correct the column.",
            parameter=name,
            value=values[change[0]],
            index=demo,
        )
    return first


def from_demonstrations(
    cls: type[MDP],
    data: Any,
    *,
    n_states: int | None = None,
    gamma: float = 1.0,
    smoothing: float = 0.1,
    state_features: FeatureInput | None = None,
    action_features: FeatureInput | None = None,
    feature_names: Sequence[str] | None = None,
) -> MDP:
    """Estimate an MDP from what was seen in recordings.

    With actions, an action is available in a state where somebody took it, and it leads to the states that followed
    that state, whatever the action:

        T(s' | s, a) = (n(s, a, s') + smoothing) / sum over the successors s'' of s of (n(s, a, s'') + smoothing)

    so that a rare slip seen under one action is thought possible under the others, but no move that was never seen
    is. Without actions, the subject is taken to choose where to go: each move s -> s' that was seen is a
    deterministic action of its own, numbered by increasing s'. A start has the probability (n(s) + smoothing) / (N +
    smoothing S).

    A state that nobody leaves is terminal. Beware of recordings that are cut by the clock: a state seen only at the
    cut looks terminal too; record longer, or leave that last state out. States that never occur are kept (they are
    terminal and start with the probability that the smoothing gives), so that state numbers and features stay as they
    are.

    Parameters
    ----------
    data : frame with the columns demo, t, state[, action], or Demonstrations
        Frames of pandas or polars, pyarrow Tables and mappings of columns; see `limiirl.mdp.estimation.read_frame`.
    n_states : int, optional
        By default the number of rows of `state_features`, or else the largest state seen plus one.
    gamma : float
        Discount in (0, 1].
    smoothing : float
        Pseudo-count, 0 for plain frequencies.
    state_features : (S, ds), optional
        Without features of any kind, indicators of the states.
    action_features : (S, A, da), optional
        Features on (s, a, s') can be added to the result with ``mdp.replace(edge_features=...)``, one row for each of
        its edges (`mdp.src`, `mdp.act`, `mdp.dst`).
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
    check_positive(smoothing, "smoothing", zero=True, remedy="Use 0 for plain frequencies.")
    runs = data if hasattr(data, "states") and hasattr(data, "offsets") else read_frame(data)
    states, offsets = np.asarray(runs.states, dtype=np.int64), np.asarray(runs.offsets, dtype=np.int64)
    if n_states is None and state_features is not None:
        n_states = as_features(state_features, "state_features").shape[0]
    if n_states is None:
        n_states = 1 + int(states.max(initial=-1))
    _check_range(states, offsets, n_states)
    starts = np.bincount(states[offsets[:-1]], minlength=n_states) + smoothing
    src, act, dst, prob = _moves(states, offsets, runs.actions, n_states, float(smoothing))
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
    )


def _moves(
    states: IntArray, offsets: IntArray, actions: Any, n_states: int, smoothing: float
) -> tuple[IntArray, IntArray, IntArray, NDArray[np.float64]]:
    """Return the edges (s, a, s', p) that the moves of all recordings amount to."""
    moving = np.ones(states.size, dtype=np.bool_)
    moving[offsets[1:] - 1] = False
    steps = np.flatnonzero(moving)
    src, dst = states[steps], states[steps + 1]
    if actions is None:
        return _choices(src, dst, n_states)
    taken = np.asarray(actions, dtype=np.int64)[steps]
    if np.any(taken < 0):
        position = int(steps[np.argmax(taken < 0)])
        demo = int(np.searchsorted(offsets, position, side="right")) - 1
        raise InvalidDemos(
            f"demonstration {demo}, step {position - offsets[demo]}: its action was not recorded, while others were. "
            "Record all actions, or none: then every move is taken to be a choice.",
            parameter="actions",
            index=(demo, int(position - offsets[demo])),
        )
    return _frequencies(src, taken, dst, n_states, smoothing)


def _check_range(states: IntArray, offsets: IntArray, n_states: int) -> None:
    wrong = np.flatnonzero((states < 0) | (states >= n_states))
    if wrong.size:
        demo = int(np.searchsorted(offsets, wrong[0], side="right")) - 1
        raise InvalidDemos(
            f"States must lie in 0..{n_states - 1}; demonstration {demo} has {int(states[wrong[0]])} at step "
            f"{int(wrong[0] - offsets[demo])}. Pass a larger n_states (and as many rows of state_features).",
            parameter="states",
            value=int(states[wrong[0]]),
            index=(demo, int(wrong[0] - offsets[demo])),
        )


def _choices(src: IntArray, dst: IntArray, n_states: int) -> tuple[IntArray, IntArray, IntArray, FloatArray]:
    """Return each distinct move as a deterministic action."""
    source, target = np.divmod(np.unique(src * n_states + dst), n_states)
    return source, number_within(source), target, np.ones(source.size)


def _frequencies(
    src: IntArray, act: IntArray, dst: IntArray, n_states: int, smoothing: float
) -> tuple[IntArray, IntArray, IntArray, FloatArray]:
    """Return the smoothed frequencies of the successors of a state under each action taken there."""
    n_actions = int(act.max(initial=-1)) + 1
    pairs, pair = np.unique(src * n_actions + act, return_inverse=True)
    moves, move = np.unique(src * n_states + dst, return_inverse=True)
    pair_state, pair_action = np.divmod(pairs, max(n_actions, 1))
    move_state, successor = np.divmod(moves, n_states)
    # The edges are the join of the (s, a) pairs with the moves (s, s') over s: those of pair p start at first[p].
    move_ptr = row_pointers(move_state, n_states)
    degree = np.diff(move_ptr)[pair_state]
    first = np.concatenate([[0], np.cumsum(degree)])
    edge_pair = np.repeat(np.arange(pairs.size), degree)
    edge_move = np.arange(first[-1]) - first[edge_pair] + move_ptr[pair_state[edge_pair]]
    seen = first[pair] + move - move_ptr[src]
    weight = np.bincount(seen, minlength=int(first[-1])) + smoothing
    total = np.bincount(edge_pair, weights=weight, minlength=pairs.size)
    return pair_state[edge_pair], pair_action[edge_pair], successor[edge_move], weight / total[edge_pair]
