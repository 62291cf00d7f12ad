"""The trajectories that each expert can generate, and their mass among all trajectories of the model.

Paper: assumption 1 and lemma 2. T is the path set of a MaxEnt model: at most L states, ending where `stop` allows. T_k
holds the trajectories of T whose actions expert k may take and that end where experts end. What an expert can do is
known from its support alone, so that a walk needs one bit beside its state: whether it has left the support yet.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from limiirl.demos import Demonstrations
from limiirl.errors import InvalidParameter
from limiirl.irl.checks import choice, count
from limiirl.mdp import MDP

Float = NDArray[np.float64]
Bool = NDArray[np.bool_]

STOPS = ("anywhere", "terminal", "terminal_or_max_length")


@dataclass(frozen=True, eq=False)
class Weights:
    """n weights of a trajectory: ``start(s_0) + sum_t gamma^t node(s_t) + sum_t gamma^t edge(e_t)``.

    Attributes
    ----------
    node, edge, start : (S, n), (E, n) and (S, n)
        The last two may have one column for all n.
    gamma : float
    """

    node: Float
    edge: Float
    gamma: float
    start: Float

    @property
    def width(self) -> int:
        """The number n of weights."""
        return int(self.node.shape[1])


@dataclass(frozen=True, eq=False)
class PathSet:
    """All trajectories T of a model, and the sets T_k of K experts within it.

    Parameters
    ----------
    mdp : MDP
    supports : (K, P) bool, or (K, P) probabilities
        Whether expert k may take each (s, a) pair, in the order of `mdp.pair_state`; policies count where above 0.
    max_length : int
        L, the largest number of states.
    stop : {"anywhere", "terminal", "terminal_or_max_length"}
        Where a trajectory of the model may end; the paper's set is "anywhere".
    complete : bool
        Whether experts end only in a terminal state or after L states. If not, they too end wherever `stop` allows.

    Examples
    --------
    From state 0 one expert goes to state 1, the other to state 2. T has (0), (0, 1) and (0, 2).

    >>> mdp = MDP.from_edges([0, 0], [1, 2], p0=[1, 0, 0])
    >>> paths = PathSet(mdp, [[1, 0], [0, 1]], max_length=2)
    >>> np.exp(paths.log_Q), np.exp(paths.log_Q_other).round(12), round(np.exp(paths.log_Q_all), 12)
    (array([1., 1.]), array([2., 2.]), np.float64(3.0))
    """

    mdp: MDP
    supports: Any
    max_length: int
    stop: str = "anywhere"
    complete: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "supports", _supports(self.mdp, self.supports))
        count(self.max_length, "max_length")
        choice(self.stop, "stop", STOPS)

    @property
    def n_intents(self) -> int:
        """K, the number of experts."""
        return len(self.supports)

    @cached_property
    def _masses(self) -> tuple[Float, Float]:
        with np.errstate(divide="ignore"):
            start = np.log(self.mdp.p0)[:, None]
        masses = Weights(np.zeros((self.mdp.n_states, 1)), np.log(self.mdp.prob)[:, None], 1.0, start)
        each = range(self.n_intents)
        mine, others = ([sums(k, np.logaddexp, masses) for k in each] for sums in (self.inside, self.outside))
        return np.concatenate(mine), np.concatenate(others)

    @property
    def log_Q(self) -> Float:
        """Log of the mass Q_k, the sum of q over T_k: (K,), -inf where an expert can end nowhere."""
        return self._masses[0]

    @property
    def log_Q_other(self) -> Float:
        """Log of the mass of T less T_k: (K,). It is summed itself, not as a difference, which would cancel."""
        return self._masses[1]

    @property
    def log_Q_all(self) -> float:
        """Log of the mass of T."""
        return float(np.logaddexp(self.log_Q[0], self.log_Q_other[0]))

    def may_stop(self, remaining: int) -> tuple[Bool, Bool]:
        """Return (S,) twice: where a trajectory of T, and one of an expert, may end with `remaining` - 1 states left.

        Parameters
        ----------
        remaining : int
            L less the states before this one, so that 1 is the last that a trajectory can have.
        """
        whole = self.mdp.terminal | (remaining == 1)
        model = {"anywhere": np.ones_like(whole), "terminal": self.mdp.terminal, "terminal_or_max_length": whole}
        allowed = model[self.stop]
        return allowed, allowed & whole if self.complete else allowed

    def inside(self, k: int, combine: np.ufunc, weights: Weights) -> Float:
        """Combine the weights of all trajectories of T_k: (n,), -inf for none.

        With `np.logaddexp` as `combine` this sums masses; with `np.maximum` it is the largest weight.
        """
        reduce = _reducer(self.mdp, combine)
        outside = ~self.supports[k][self.mdp.pair_of_edge]
        mine = np.full((self.mdp.n_states, weights.width), -np.inf)
        for remaining in range(1, self.max_length + 1):
            go = weights.edge + (weights.gamma * mine)[self.mdp.dst]
            go[outside] = -np.inf
            ends = np.where(self.may_stop(remaining)[1], 0.0, -np.inf)[:, None]
            mine = weights.node + combine(ends, reduce(go))
        return np.asarray(combine.reduce(weights.start + mine, axis=0))

    def outside(self, k: int, combine: np.ufunc, weights: Weights) -> Float:
        """Combine the weights of all trajectories of T that are not in T_k: (n,), -inf for none."""
        reduce, n_states = _reducer(self.mdp, combine), self.mdp.n_states
        # Rows s are of walks that have kept to the support, rows S + s of those that have not: they stay there.
        gone = self.mdp.dst + n_states
        onwards = np.where(self.supports[k][self.mdp.pair_of_edge], self.mdp.dst, gone)
        both = np.full((2 * n_states, weights.width), -np.inf)
        for remaining in range(1, self.max_length + 1):
            model, expert = self.may_stop(remaining)
            ends = [np.where(mask, 0.0, -np.inf)[:, None] for mask in (model & ~expert, model)]
            ahead = weights.gamma * both
            kept, left = (reduce(weights.edge + ahead[target]) for target in (onwards, gone))
            both = np.concatenate([weights.node + combine(ends[0], kept), weights.node + combine(ends[1], left)])
        return np.asarray(combine.reduce(weights.start + both[:n_states], axis=0))

    def contains(self, demos: Demonstrations) -> Bool:
        """Return (N, K): whether each demonstration is in each T_k.

        An action that was not recorded is in a support if some action that it may have been is.

        Examples
        --------
        >>> mdp = MDP.from_edges([0, 0], [1, 2], p0=[1, 0, 0])
        >>> paths = PathSet(mdp, [[1, 0], [0, 1]], max_length=2)
        >>> paths.contains(Demonstrations.from_lists([[0, 1], [0, 2], [0]])).tolist()
        [[True, False], [False, True], [False, False]]
        """
        steps = demos.steps(self.mdp)
        pairs = self.mdp.pair_of_edge
        found = np.ones((len(demos), self.n_intents), dtype=np.bool_)
        for k, support in enumerate(self.supports):
            taken = support[pairs[steps.edge]] if self.mdp.n_edges else np.empty(0, dtype=np.bool_)
            if steps.ambiguous.size:
                taken[steps.ambiguous] = np.logical_or.reduceat(support[pairs[steps.cand_edge]], steps.cand_ptr[:-1])
            outside = np.bincount(steps.demo_of_step[~taken], minlength=len(demos))
            found[:, k] = outside == 0
        whole, inner = self.may_stop(1)[1], self.may_stop(2)[1]
        ends = np.where(demos.lengths == self.max_length, whole[demos.last_states], inner[demos.last_states])
        return found & (ends & (demos.lengths <= self.max_length))[:, None]


def observed_supports(mdp: MDP, demos: Demonstrations, labels: NDArray[np.int64]) -> Bool:
    """Return (K, P): the (s, a) pairs that the demonstrations of each intent 0..K-1 take, or may have taken.

    Examples
    --------
    >>> mdp = MDP.from_edges([0, 0, 1], [1, 2, 2])
    >>> observed_supports(mdp, Demonstrations.from_lists([[0, 1, 2], [0, 2]]), np.array([0, 1])).astype(int)
    array([[1, 0, 1],
           [0, 1, 0]])
    """
    steps = demos.steps(mdp)
    found = np.zeros((int(labels.max()) + 1, mdp.n_pairs), dtype=np.bool_)
    known = steps.edge >= 0
    found[labels[steps.demo_of_step[known]], mdp.pair_of_edge[steps.edge[known]]] = True
    unsure = np.repeat(steps.demo_of_step[steps.ambiguous], np.diff(steps.cand_ptr))
    found[labels[unsure], mdp.pair_of_edge[steps.cand_edge]] = True
    return found


def _reducer(mdp: MDP, combine: np.ufunc) -> Callable[[Float], Float]:
    """Return a function that combines values of edges (E, n) over the edges that leave each state: (S, n)."""
    sources = np.flatnonzero(np.diff(mdp.out_ptr) > 0)
    starts = mdp.out_ptr[sources]

    def reduce(values: Float) -> Float:
        found = np.full((mdp.n_states, values.shape[1]), -np.inf)
        if sources.size:
            found[sources] = combine.reduceat(values, starts, axis=0)
        return found

    return reduce


def _supports(mdp: MDP, given: ArrayLike) -> Bool:
    array = np.asarray(given)
    if array.ndim != 2 or array.shape[1] != mdp.n_pairs or len(array) == 0 or array.dtype.kind not in "biuf":
        raise InvalidParameter(
            f"Supports must have shape (K, {mdp.n_pairs}), one row an expert and one column a (s, a) pair; got shape "
            f"{array.shape}. Follow the order of mdp.pair_state and mdp.pair_action."
        )
    wrong = np.argwhere(~(array >= 0))
    if wrong.size:
        k, pair = wrong[0].tolist()
        raise InvalidParameter(
            f"Supports must not be negative; expert {k} has {array[k, pair]} at pair {pair}. Give booleans, or the "
            "probabilities of a policy."
        )
    found: Bool = array > 0
    found.flags.writeable = False
    return found
