"""MDPs whose states include previous states or a counter of events, so that rewards can depend on the past."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from limiirl._typing import BoolArray, FloatArray, Int32Array, IntArray
from limiirl._validation import check_choice, check_count, check_each, check_flag, check_positive, check_type, to_array
from limiirl.demos.demonstrations import Demonstrations
from limiirl.demos.names import history_names
from limiirl.demos.validate import name_demo
from limiirl.errors import InvalidDemos, InvalidParameter
from limiirl.mdp import MDP, EdgeFeatures, add_edge_features, is_text, renumber

# Pseudo-count of each start state (the same as in MDP.from_demonstrations), and maximum number of edges.
_SMOOTHING, _MOST_EDGES = 0.1, 5_000_000


def with_history(
    mdp: MDP, demos: Demonstrations, order: int = 1, *, keep_starts: bool = False
) -> tuple[MDP, Demonstrations]:
    """Return an MDP whose states include the previous states, and the demonstrations in it.

    Each state of the new MDP is a path of `order` edges in `mdp`: a state with its `order` previous states, most recent
    first, such as "pond (from den)" or, with order=2, "pond (from den, nest)". Actions, transition probabilities,
    features and the parameters of a reward have the same meaning as in `mdp`. The attribute `history` (S, order + 1) of
    the new MDP contains the original indices of the current state, the previous state, and so on. Start probabilities
    are estimated from the demonstrations.

    A feature of the current and the previous state alone does not affect the policy in the current state, because it is
    the same for all actions. Habits are features of three or more consecutive states; add them with
    `limiirl.mdp.turn_features` and `limiirl.mdp.sequence_features`.

    Parameters
    ----------
    mdp : MDP
        MDP whose states do not yet include previous states. The names of the new states are composed of its state names
        or, if it has none, of its state indices.
    demos : Demonstrations
        Demonstrations to convert. The states of the new MDP do not depend on the demonstrations, so that another call
        with the same `mdp` can convert further demonstrations.
    order : int
        Number of previous states.
    keep_starts : bool
        If False, demonstrations start `order` steps later, and their first `order` states are used only as history. If
        True, the first `order` states of each demonstration become states with shorter histories, so that
        demonstrations keep their lengths. In addition, `Demonstrations.renumber` can then convert demonstrations from
        states of `mdp` to states of the new MDP.

    Examples
    --------
    >>> mdp = MDP.from_edges([0, 1, 1], [1, 0, 2], state_names=["den", "pond", "nest"])
    >>> demos = Demonstrations.from_lists([["den", "pond", "den", "pond", "nest"]])
    >>> longer, own = with_history(mdp, demos)
    >>> longer.state_names
    ('pond (from den)', 'den (from pond)', 'nest (from pond)')
    >>> own.states.tolist(), longer.history.tolist()
    ([0, 1, 0, 2], [[1, 0], [0, 1], [2, 1]])
    >>> kept, own = with_history(mdp, demos, keep_starts=True)
    >>> kept.n_states, own.states.tolist()
    (6, [0, 3, 4, 3, 5])
    """
    order = check_count(order, "order")
    keep = check_flag(keep_starts, "keep_starts")
    check_type(mdp, "mdp", MDP)
    if mdp.history is not None:
        rule = "must not have previous states or counters already"
        remedy = "Pass the original MDP with a higher order, and call with_counter last."
        raise InvalidParameter.of("mdp", mdp.history.shape, rule, remedy=remedy)
    demos = demos.renumber(mdp)
    demos.steps(mdp)  # raise if a transition is impossible
    if not keep:
        _check_lengths(demos, order)
    paths = _Paths(mdp, order)
    levels = range(order + 1) if keep else range(order, order + 1)
    first = np.cumsum([0, *(paths.last[level].size for level in levels)])
    history = np.concatenate([paths.pad(level) for level in levels])
    n_out = np.diff(mdp.out_ptr)[history[:, 0]]
    src = np.repeat(np.arange(len(history)), n_out)
    edge = np.arange(src.size) - np.repeat(np.cumsum(n_out) - n_out, n_out) + mdp.out_ptr[history[src, 0]]
    rank, dst = paths.rank(mdp.src[edge], mdp.dst[edge]), np.empty_like(src)
    for i, level in enumerate(levels):
        here = slice(*np.searchsorted(src, first[i : i + 2]))
        dst[here] = paths.extend(level, src[here] - first[i], rank[here]) + first[min(i + 1, len(levels) - 1)]
    own = _convert(demos, paths, first, keep)
    starts = np.bincount(own.start_states, minlength=len(history)) + _SMOOTHING
    names = mdp.state_names or tuple(map(str, range(mdp.n_states)))
    new = copy_states(mdp, history[:, 0], src, edge, dst).replace(
        p0=starts / starts.sum(), state_names=history_names(names, history), history=history, original_names=names
    )
    return new, own.replace(state_names=new.state_names)


def copy_states(mdp: MDP, state: NDArray[np.integer], src: IntArray, edge: IntArray, dst: IntArray) -> MDP:
    """Return an MDP whose states (S2,) and edges (E2,) are copies of the states `state` and edges `edge` of `mdp`.

    Edge i leads from state src[i] to state dst[i] of the new MDP. The start distribution is uniform, and states have no
    names.
    """
    mdp.check_no_goal_features()
    pair = np.flatnonzero(np.diff(np.stack([src, mdp.act[edge]]), prepend=-1).any(axis=0))
    return MDP(
        src=src.astype(np.int32),
        act=mdp.act[edge],
        dst=dst.astype(np.int32),
        prob=mdp.prob[edge],
        p0=np.full(state.size, 1.0 / state.size),
        gamma=mdp.gamma,
        terminal=mdp.terminal[state],
        state_features=None if mdp.state_features is None else mdp.state_features[state],
        action_features=None if mdp.action_features is None else mdp.action_features[mdp.pair_of_edge[edge[pair]]],
        edge_features=None if mdp.edge_features is None else mdp.edge_features[edge],
        feature_names=mdp.feature_names,
        action_names=mdp.action_names,
        environment=None if mdp.environment is None else mdp.environment[state],
        environment_names=mdp.environment_names,
    )


class _Paths:
    """Paths of 0 to `order` edges in an MDP; level j contains the paths of j edges, sorted by their states.

    Attributes
    ----------
    last : list of (n_j,)
        Last state of each path.
    states : list of (n_j, j + 1)
        States of each path, from the last to the first.
    """

    def __init__(self, mdp: MDP, order: int) -> None:
        S = mdp.n_states
        self.code = np.unique(mdp.src.astype(np.int64) * S + mdp.dst)
        source, successor = np.divmod(self.code, S)
        self.n_states, self.ptr = S, np.searchsorted(source, np.arange(S + 1))
        self._check_size(mdp, order, source, successor)
        self.last, self.states = [np.arange(S)], [np.arange(S, dtype=np.int32)[:, None]]
        # Paths children[i] to children[i + 1] of the next level extend path i by one edge, by rank of the edge.
        self._children: list[IntArray] = []
        # Index, in the level below, of each path without its first state.
        self._suffix: list[IntArray] = []
        for level in range(order):
            n = np.diff(self.ptr)[self.last[level]]
            self._children.append(np.concatenate([[0], np.cumsum(n)]))
            parent = np.repeat(np.arange(n.size), n)
            rank = np.arange(parent.size) - self._children[level][parent]
            self.last.append(successor[self.ptr[self.last[level][parent]] + rank])
            self._suffix.append(self.last[1] if level == 0 else self.extend(level, parent, rank, shorten=True))
            columns = [self.last[-1].astype(np.int32)[:, None], self.states[level][parent]]
            self.states.append(np.concatenate(columns, axis=1))

    def _check_size(self, mdp: MDP, order: int, source: IntArray, successor: IntArray) -> None:
        """Raise if the new MDP would be too large; counts are floats, because they may exceed int64."""
        paths: FloatArray = np.ones(self.n_states)
        for _ in range(order):
            paths = np.bincount(successor, paths[source], self.n_states).astype(np.float64)
        n_edges = float(paths @ np.diff(mdp.out_ptr))
        if n_edges > _MOST_EDGES:
            rule = (
                f"must give at most {_MOST_EDGES:,} edges, but gives {paths.sum():,.0f} states and {n_edges:,.0f} edges"
            )
            raise InvalidParameter.of("order", order, rule, remedy="Use a lower order, or an MDP with fewer states.")

    def pad(self, level: int) -> Int32Array:
        """Return the states (n, order + 1) of the paths of a level, with -1 for absent states."""
        absent = len(self.states) - 1 - level
        return np.pad(self.states[level], ((0, 0), (0, absent)), constant_values=-1)

    def rank(self, src: NDArray[np.integer], dst: NDArray[np.integer]) -> IntArray:
        """Return the rank of `dst` among the successors of `src`."""
        return np.asarray(np.searchsorted(self.code, src.astype(np.int64) * self.n_states + dst) - self.ptr[src])

    def extend(self, level: int, path: IntArray, rank: IntArray, *, shorten: bool = False) -> IntArray:
        """Return paths extended by one edge; the first state is dropped at the last level, or if `shorten`."""
        if shorten or level == len(self._children):
            level, path = level - 1, self._suffix[level - 1][path]
        return self._children[level][path] + rank


def _convert(demos: Demonstrations, paths: _Paths, first: IntArray, keep: bool) -> Demonstrations:
    """Return demonstrations in the states of the new MDP; `first` is the index of the first state of each level."""
    order = len(paths.last) - 1
    t = np.arange(demos.n_steps) - np.repeat(demos.offsets[:-1], demos.lengths)
    path, states = demos.states, demos.states.copy()
    for level in range(order):
        later = np.flatnonzero(t > level)
        longer = np.zeros_like(path)
        longer[later] = paths.extend(level, path[later - 1], paths.rank(demos.states[later - 1], demos.states[later]))
        path = longer
        states[later] = path[later] + (first[level + 1] if keep else 0)
    if keep:
        return demos.replace(states=states, state_names=None)
    chosen = t >= order
    return demos.replace(
        states=states[chosen],
        offsets=demos.offsets - order * np.arange(len(demos) + 1),
        actions=None if demos.actions is None else demos.actions[chosen],
        times=None if demos.times is None else demos.times[chosen],
        state_names=None,
    )


def _check_lengths(demos: Demonstrations, order: int) -> None:
    """Raise unless every demonstration has a state with a complete history."""
    short = np.flatnonzero(demos.lengths <= order)
    if short.size:
        i, n = int(short[0]), int(demos.lengths[short[0]])
        message = (
            f"{name_demo(demos.ids, i)} must have more than order = {order} states; it has {n}. {short.size} of "
            f"{len(demos)} demonstrations are too short. Drop them with demos[demos.lengths > {order}], or pass "
            "keep_starts=True."
        )
        raise InvalidDemos(message, parameter="demos", value=n, index=i)


# Maximum number of edges.
_MOST_EDGES = 5_000_000


def with_counter(
    mdp: MDP,
    demos: Demonstrations,
    event_states: Sequence[int] | Sequence[str] | ArrayLike,
    cap: int,
    *,
    count: str = "steps",
    scale: float = 1.0,
) -> tuple[MDP, Demonstrations]:
    """Return an MDP whose states include a counter of events, visits to some states, and the demonstrations in it.

    With count="steps", the counter is the number of steps since the last visit, at most `cap`; before the first visit,
    it is `cap`. With count="visits", the counter is the number of visits so far, at most `cap`.

    The new MDP has S (cap + 1) states, some of which may be unreachable. State s with counter c has index
    s (cap + 1) + c and the name "pond [c]", where "pond" is the name of s. The features of `mdp` are kept. One edge
    feature per value of the counter is appended: the indicator of a visit to an event state when the counter has this
    value. Its parameter is the reward of that visit, such as a visit 2 steps after the last one, or the third visit.

    Parameters
    ----------
    mdp : MDP
        May be the result of `with_history`. To use both functions, call `with_history` first.
    demos : Demonstrations
        Demonstrations to convert. The counter restarts in each demonstration.
    event_states : sequence of int or str
        Indices or names of the event states. If `mdp` is the result of `with_history`, these are states of the original
        MDP.
    cap : int
        Largest value of the counter.
    count : {"steps", "visits"}
    scale : float
        Value of the new features where they are nonzero, as in `limiirl.mdp.sequence_features`.

    Examples
    --------
    >>> mdp = MDP.from_edges([0, 0, 1], [0, 1, 0], state_names=["den", "pond"])
    >>> demos = Demonstrations.from_lists([["den", "pond", "den", "den", "den", "pond"]])
    >>> longer, own = with_counter(mdp, demos, ["pond"], 2)
    >>> [longer.state_names[s] for s in own.states]
    ['den [2]', 'pond [0]', 'den [1]', 'den [2]', 'den [2]', 'pond [0]']
    >>> longer.feature_names[2:]
    ('event after 1 step', 'event after 2 steps', 'event after more than 2 steps')
    """
    check_type(mdp, "mdp", MDP)
    n = check_count(cap, "cap") + 1
    visits = check_choice(count, "count", ("steps", "visits")) == "visits"
    scale = check_positive(scale, "scale")
    if mdp.n_edges * n > _MOST_EDGES:
        size = f"{mdp.n_states * n:,} states and {mdp.n_edges * n:,} edges"
        rule = f"must give at most {_MOST_EDGES:,} edges, but gives {size}"
        raise InvalidParameter.of("cap", cap, rule, remedy="Reduce it.")
    event = _find_events(mdp, event_states)
    demos = demos.renumber(mdp)
    demos.steps(mdp)  # raise if a transition is impossible
    order = np.lexsort(
        (np.repeat(np.arange(mdp.n_edges), n), np.tile(np.arange(n), mdp.n_edges), np.repeat(mdp.src, n))
    )
    edge, counter = np.divmod(order, n)
    to_event = event[mdp.dst[edge]]
    after = np.minimum(counter + to_event, cap) if visits else np.where(to_event, 0, np.minimum(counter + 1, cap))
    state, value = np.divmod(np.arange(mdp.n_states * n), n)
    first = event.astype(np.int64) if visits else np.where(event, 0, cap)
    src = mdp.src[edge].astype(np.int64) * n + counter
    names = mdp.state_names or tuple(map(str, range(mdp.n_states)))
    new = copy_states(mdp, state, src, edge, mdp.dst[edge].astype(np.int64) * n + after).replace(
        p0=np.where(value == first[state], mdp.p0[state], 0.0),
        state_names=tuple(f"{names[s]} [{c}]" for s, c in zip(state.tolist(), value.tolist(), strict=True)),
        history=state[:, None] if mdp.history is None else mdp.history[state],
        original_names=mdp.original_names or names,
    )
    rows = np.flatnonzero(to_event)
    columns = sparse.csr_array((np.full(rows.size, scale), (rows, counter[rows])), shape=(edge.size, n))
    new = add_edge_features(new, EdgeFeatures(columns, _feature_names(cap, visits)))
    values = _count(demos, event, cap, visits)
    return new, demos.replace(states=demos.states * n + values, state_names=new.state_names)


def _find_events(mdp: MDP, event_states: object) -> BoolArray:
    """Return the mask (S,) of the event states, given as indices or names in the MDP before `with_history`."""
    names = mdp.state_names if mdp.history is None else mdp.original_names
    original = np.arange(mdp.n_states) if mdp.history is None else mdp.history[:, 0].astype(np.int64)
    given = np.atleast_1d(to_array(event_states, "event_states"))
    numbers = renumber(given.tolist(), names or ()) if is_text(given) else given
    count = mdp.n_states if mdp.history is None else len(mdp.original_names or ())
    if given.ndim != 1 or given.size == 0 or numbers.dtype.kind not in "iu":
        raise InvalidParameter.of("event_states", event_states, "must be a list of state indices or names")
    check_each((numbers >= 0) & (numbers < count), given, "event_states", f"must be one of the {count} states")
    return np.isin(original, numbers)


def _feature_names(cap: int, visits: bool) -> tuple[str, ...]:
    if visits:
        return (*(f"event number {c}" for c in range(1, cap + 1)), f"event after number {cap}")
    steps = (f"event after {c} step{'s' if c > 1 else ''}" for c in range(1, cap + 1))
    return (*steps, f"event after more than {cap} step{'s' if cap > 1 else ''}")


def _count(demos: Demonstrations, event: BoolArray, cap: int, visits: bool) -> IntArray:
    """Return the value (n,) of the counter at each state of the demonstrations."""
    visited = event[demos.states]
    start = np.repeat(demos.offsets[:-1], demos.lengths)
    if visits:
        total = np.concatenate([[0], np.cumsum(visited)])
        return np.asarray(np.minimum(total[1:] - total[start], cap))
    position = np.arange(demos.n_steps)
    last = np.maximum.accumulate(np.where(visited, position, -1))
    return np.asarray(np.where(last >= start, np.minimum(position - last, cap), cap))
