"""Small problems that every single-intent model should be able to fit.

All demonstrations end in a terminal state after at most six states and have their actions recorded, so that models of
whole trajectories, of any stopping rule, and causal ones are all at home.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from limiirl.demos import Demonstrations
from limiirl.demos.simulate import simulate
from limiirl.errors import InvalidParameter
from limiirl.mdp import MDP

_N_EACH = 12
_LONGEST = 6


@dataclass(frozen=True, eq=False)
class Problem:
    """Something to fit.

    Attributes
    ----------
    name : str
    mdp : MDP or None
    demos : Demonstrations
    complete : Demonstrations or None
        Every trajectory that ends in a terminal state, where they are few; then all moves are certain and all start
        in one state, so that the probability of a trajectory is that of its actions.
    action_features : bool
        Whether some features belong to actions.
    """

    name: str
    mdp: Any
    demos: Any
    complete: Demonstrations | None = None
    action_features: bool = False


def problems() -> list[Problem]:
    """Return the problems: certain moves, slippery ones, discounted ones with cycles, and features on actions.

    Examples
    --------
    >>> [problem.name for problem in problems()]
    ['deterministic', 'stochastic', 'discounted', 'action_features']
    """
    layers = _layers()
    return [
        Problem("deterministic", layers, walks(layers, 1), complete=_complete(layers)),
        Problem("stochastic", _slippery(), walks(_slippery(), 2)),
        Problem("discounted", _cyclic(), walks(_cyclic(), 3)),
        Problem("action_features", _with_actions(), walks(_with_actions(), 4), action_features=True),
    ]


def given(mdp: Any, demos: Any) -> Problem:
    """Return a user's problem; without demonstrations, random walks in the MDP."""
    if demos is None:
        if not isinstance(mdp, MDP):
            raise InvalidParameter(f"mdp must be an MDP; it is a {type(mdp).__name__}. Build one with MDP.from_edges.")
        demos = walks(mdp, 0)
    features = mdp is not None and getattr(mdp, "n_features", 0) > getattr(mdp, "n_state_features", 0)
    return Problem("given", mdp, demos, action_features=features)


def walks(mdp: MDP, seed: int) -> Demonstrations:
    """Draw demonstrations of two stochastic policies, one after the other; those that arrive, where any do."""
    rng = np.random.default_rng(seed)
    parts = []
    for _ in range(2):
        share = rng.gamma(1.0, size=mdp.n_pairs) + 0.1
        total = np.bincount(mdp.pair_state, weights=share, minlength=mdp.n_states)
        drawn = simulate(mdp, share / total[mdp.pair_state], 20 * _N_EACH, rng, max_length=_LONGEST)
        arrived = np.flatnonzero(mdp.terminal[drawn.last_states])
        parts.append(drawn[arrived[:_N_EACH] if arrived.size else np.arange(_N_EACH)])
    return Demonstrations.concat(parts)


# Three layers between the start, 0, and the goal, 5, and a short cut.
_SRC, _DST = [0, 0, 0, 1, 1, 2, 2, 3, 4], [1, 2, 5, 3, 4, 3, 4, 5, 5]
_PHI = [[0.0, 0.0], [1.0, 0.2], [0.3, 1.0], [0.8, 0.5], [0.1, 0.9], [0.5, 0.0]]


def _layers() -> MDP:
    return MDP.from_edges(_SRC, _DST, p0=[1, 0, 0, 0, 0, 0], state_features=_PHI)


def _slippery() -> MDP:
    """Two actions in each of four states; one in five moves goes where the other action leads."""
    src = np.repeat([0, 1, 2, 3], 4)
    dst = [1, 2, 1, 2, 3, 4, 3, 4, 3, 4, 3, 4, 4, 5, 4, 5]
    return MDP.from_edges(
        src,
        dst,
        action=np.tile([0, 0, 1, 1], 4),
        prob=np.tile([0.8, 0.2, 0.2, 0.8], 4),
        p0=[0.6, 0.1, 0.3, 0, 0, 0],
        state_features=_PHI,
    )


def _cyclic() -> MDP:
    """A ring of four states, left for the goal from two of them."""
    src, dst = [0, 0, 1, 1, 1, 2, 2, 3, 3, 3], [1, 3, 0, 2, 4, 1, 3, 2, 0, 4]
    return MDP.from_edges(src, dst, p0=[0.5, 0, 0.5, 0, 0], gamma=0.9, state_features=_PHI[1:])


def _with_actions() -> MDP:
    mdp = _slippery()
    return mdp.replace(action_features=np.linspace(-0.5, 0.5, mdp.n_pairs)[:, None] ** 2 * [[1.0, -2.0]])


def _complete(mdp: MDP) -> Demonstrations:
    """Return every trajectory of an MDP without cycles that ends in a terminal state."""

    def onward(states: list[int], actions: list[int]) -> Iterator[tuple[list[int], list[int]]]:
        if mdp.terminal[states[-1]]:
            yield states, actions
        for edge in range(mdp.out_ptr[states[-1]], mdp.out_ptr[states[-1] + 1]):
            yield from onward([*states, int(mdp.dst[edge])], [*actions, int(mdp.act[edge])])

    listed = [path for start in np.flatnonzero(mdp.p0) for path in onward([int(start)], [])]
    return Demonstrations.from_lists([states for states, _ in listed], [actions for _, actions in listed])
