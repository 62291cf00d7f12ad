"""`Endings`: an MDP in which trips end in chosen states alone, made so that `MaxEnt` itself sums over them.

One more state is added, and an edge to it from each of the chosen ones, which earns nothing. Trajectories of at most L
+ 1 states that end there are those of at most L states that end in a chosen state, with the same weights: whatever
`MaxEnt` computes with stop="terminal" in this MDP is exact for trips with these ends.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import clone

from limiirl.demos import Demonstrations
from limiirl.irl import MaxEnt
from limiirl.irl.evidence import Evidence
from limiirl.irl.inference import look_past
from limiirl.mdp import MDP

Float = NDArray[np.float64]
Int = NDArray[np.int64]


class Endings:
    """A model and an MDP for trips that end in some states of another MDP.

    Parameters
    ----------
    model : MaxEnt
    mdp : MDP
    max_length : float
        Of the trips, without the added state.
    goals : (G,)
        States in which trips end, each once.

    Attributes
    ----------
    mdp : MDP
        With one state more, the last.

    Examples
    --------
    Of the trips that begin in state 0, two end in state 2.

    >>> mdp = MDP.from_edges([0, 0, 1], [1, 2, 2], p0=[1, 0, 0])
    >>> there = Endings(MaxEnt(3), mdp, 3, np.array([2]))
    >>> np.exp(there.log_mass(np.zeros((1, 3)), Demonstrations.from_lists([[0], [0, 1]]))).ravel()
    array([2., 1.])
    """

    def __init__(self, model: MaxEnt, mdp: MDP, max_length: float, goals: Int) -> None:
        self._model, self._base, self._max_length, self._goals = model, mdp, max_length, goals
        n, ends = mdp.n_states, np.zeros(mdp.n_states, dtype=bool)
        ends[goals] = True
        # What was terminal and is no goal any more leads to itself for ever, and so to no end.
        stuck = np.flatnonzero(mdp.terminal & ~ends)
        free = np.full(n, -1, dtype=np.int64)
        np.maximum.at(free, mdp.src, mdp.act)
        extra_src = np.concatenate([goals, stuck])
        extra_dst = np.concatenate([np.full(goals.size, n), stuck])
        self.mdp = MDP.from_edges(
            np.concatenate([mdp.src, extra_src]),
            np.concatenate([mdp.dst, extra_dst]),
            n_states=n + 1,
            action=np.concatenate([mdp.act, free[extra_src] + 1]),
            prob=np.concatenate([mdp.prob, np.ones(extra_src.size)]),
            p0=np.append(mdp.p0, 0.0),
            gamma=mdp.gamma,
            state_features=_padded(mdp.state_features, 1),
            action_features=_padded(_rows(mdp.action_features, mdp.pair_of_edge), extra_src.size),
            edge_features=_padded(mdp.edge_features, extra_src.size),
            terminal=[n],
        )

    @property
    def end(self) -> int:
        """The state that was added."""
        return self._base.n_states

    @cached_property
    def edges(self) -> Int:
        """The edges (E,) of this MDP that are those of the other one."""
        new = (self.mdp.dst == self.end) | np.append(self._base.terminal, False)[self.mdp.src]
        return np.flatnonzero(~new)

    @cached_property
    def last_edges(self) -> Int:
        """The edge (G,) by which each of the goals is left for the added state, in the order of the goals."""
        found = np.full(self.mdp.n_states, -1, dtype=np.int64)
        into = np.flatnonzero(self.mdp.dst == self.end)
        found[self.mdp.src[into]] = into
        return found[self._goals]

    def model(self, *, by_start: bool = False, after: int = 0) -> MaxEnt:
        """Return the model of trips with these ends, or of what is left of them after some steps."""
        longest = math.inf if self._max_length == math.inf else int(self._max_length) - after + 1
        found: MaxEnt = clone(self._model)
        found.set_params(max_length=longest, stop="terminal", condition="start" if by_start else "none")
        return found

    def log_mass(self, thetas: Float, demos: Demonstrations) -> Float:
        """Return (N, K) the log-weight, p0 included, of all trips with these ends that begin with each of `demos`."""
        ahead = look_past(self.model()._engine(self.mdp), thetas, demos)
        return np.asarray(Evidence(self.mdp, demos).log_weight(thetas) + ahead.log_total() + ahead.log_factor)

    def beginning_in(self, p0: Float) -> MDP:
        """Return the MDP with another distribution (S,) of starts."""
        return self.mdp.replace(p0=np.append(p0, 0.0))


def _rows(matrix: Any, rows: Any) -> Any:
    """Return rows of a feature matrix, if there is one."""
    return None if matrix is None else matrix[rows]


def _padded(matrix: Any, n: int) -> Any:
    """Return a feature matrix with n more rows of zeros, if there is one."""
    if matrix is None:
        return None
    empty = (n, matrix.shape[1])
    if sparse.issparse(matrix):
        both: list[Any] = [matrix, sparse.csr_array(empty)]
        return sparse.vstack(both).tocsr()
    return np.vstack([matrix, np.zeros(empty)])
