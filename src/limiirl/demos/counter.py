"""States that include a counter: the steps since an event, or the number of events so far."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from limiirl._typing import BoolArray, IntArray
from limiirl._validation import check_choice, check_count, check_positive, check_type, to_array
from limiirl.demos.demonstrations import Demonstrations
from limiirl.demos.history import copy_states
from limiirl.errors import InvalidParameter
from limiirl.mdp import MDP, EdgeFeatures, add_edge_features, is_text, renumber

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
    """Return an MDP whose states include a counter of visits to the event states, and the demonstrations in it.

    With count="steps", the counter is the number of steps since the last visit, at most `cap`; before the first visit,
    it is `cap`. With count="visits", the counter is the number of visits so far, at most `cap`.

    The new MDP has S (cap + 1) states, some of which may be unreachable. State s with counter c has index
    s (cap + 1) + c and the name "pond [c]", where "pond" is the name of s. The features of `mdp` are kept. One edge
    feature per value of the counter is appended; its parameter is the reward of a visit 1, 2, ..., `cap` or more than
    `cap` steps after the last visit, or of the first, second, ... visit.

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
    wrong = np.flatnonzero((numbers < 0) | (numbers >= count))
    if wrong.size:
        i = int(wrong[0])
        rule = f"must be one of the {count} states"
        raise InvalidParameter.of("event_states", given[i].item(), rule, index=i)
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
