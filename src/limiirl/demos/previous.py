"""States that include the previous state, so that rewards can depend on turning back or staying."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from limiirl._typing import FloatArray
from limiirl.demos.demonstrations import Demonstrations
from limiirl.demos.names import previous_names
from limiirl.errors import InvalidParameter
from limiirl.mdp import MDP

# Pseudo-count of each start state, as in MDP.from_demonstrations, and maximum number of edges.
_SMOOTHING, _MOST_EDGES = 0.1, 5_000_000


def with_previous_state(mdp: MDP, demos: Demonstrations) -> tuple[MDP, Demonstrations]:
    """Return an MDP whose states include the previous state, and the demonstrations in it.

    The new MDP contains the states of `mdp` as start states, and one state per pair of a state and its predecessor,
    named "pond (from den)". Existing features are kept. The edge features "stays" (the state does not change) and
    "turns back" (to the previous state) are added if they distinguish edges. Start probabilities are estimated. Other
    demonstrations in `mdp` are matched to the new MDP by name.

    Parameters
    ----------
    mdp : MDP
    demos : Demonstrations

    Examples
    --------
    >>> mdp = MDP.from_edges([0, 1], [1, 0], state_names=["den", "pond"])
    >>> longer, demos = with_previous_state(mdp, Demonstrations.from_lists([["den", "pond", "den"]]))
    >>> longer.state_names
    ('den', 'pond', 'pond (from den)', 'den (from pond)')
    >>> demos.states.tolist(), longer.feature_names
    ([0, 2, 3], ('state[den]', 'state[pond]', 'turns back'))
    """
    demos = demos.renumber(mdp)
    demos.steps(mdp)  # raises if a transition is impossible
    S = mdp.n_states
    code = np.unique(mdp.src.astype(np.int64) * S + mdp.dst)
    before, after = np.divmod(code, S)
    current, previous = np.concatenate([np.arange(S), after]), np.concatenate([np.full(S, -1), before])
    n_out = np.diff(mdp.out_ptr)[current]
    if n_out.sum() > _MOST_EDGES:
        rule = f"must have at most {_MOST_EDGES:,} edges with previous states"
        raise InvalidParameter.of("mdp", int(n_out.sum()), rule)
    src = np.repeat(np.arange(current.size), n_out)
    edge = np.arange(src.size) - np.repeat(np.cumsum(n_out) - n_out, n_out) + mdp.out_ptr[current[src]]
    dst = S + np.searchsorted(code, mdp.src[edge].astype(np.int64) * S + mdp.dst[edge])
    stays, back = mdp.dst[edge] == mdp.src[edge], mdp.dst[edge] == previous[src]
    turns = {"stays": stays, "turns back": back & ~stays}
    turns = {name: column for name, column in turns.items() if column.any() and not column.all()}
    states = _combine(demos, code, S)
    starts = np.bincount(states[demos.offsets[:-1]], minlength=current.size) + _SMOOTHING
    pair = np.flatnonzero(np.diff(np.stack([src, mdp.act[edge]]), prepend=-1).any(axis=0))
    new = MDP(
        src=src.astype(np.int32),
        act=mdp.act[edge],
        dst=dst.astype(np.int32),
        prob=mdp.prob[edge],
        p0=starts / starts.sum(),
        gamma=mdp.gamma,
        terminal=mdp.terminal[current],
        state_features=None if mdp.state_features is None else mdp.state_features[current],
        action_features=None if mdp.action_features is None else mdp.action_features[mdp.pair_of_edge[edge[pair]]],
        edge_features=_edge_features(mdp, edge, list(turns.values())),
        feature_names=(*mdp.feature_names, *turns),
        state_names=previous_names(mdp.state_names or list(map(str, range(S))), before, after),
        action_names=mdp.action_names,
    )
    return new, demos.replace(states=states, state_names=new.state_names)


def _combine(demos: Demonstrations, code: NDArray[np.int64], n_states: int) -> NDArray[np.int64]:
    """Return the states (n,) of demonstrations with their previous states."""
    states = demos.states.copy()
    first = np.zeros(states.size, dtype=np.bool_)
    first[demos.offsets[:-1]] = True
    later = np.flatnonzero(~first)
    states[later] = n_states + np.searchsorted(code, demos.states[later - 1] * n_states + demos.states[later])
    return states


def _edge_features(mdp: MDP, edge: NDArray[np.int64], turns: Sequence[NDArray[np.bool_]]) -> FloatArray | None:
    columns = [turn.astype(np.float64)[:, None] for turn in turns]
    if mdp.edge_features is not None:
        own = mdp.edge_features[edge]
        columns.insert(0, own if isinstance(own, np.ndarray) else own.toarray())
    return np.concatenate(columns, axis=1) if columns else None
