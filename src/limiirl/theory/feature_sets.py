"""The trajectories that each expert can generate, and their mass among all trajectories of the model.

Paper: assumption 1 and lemma 2. T is the path set of a MaxEnt model: at most L states, ending where `stop` allows. T_k
holds the trajectories of T whose actions expert k may take and that end where experts end. What an expert can do is
known from its support alone, so that a walk needs one bit beside its state: whether it has left the support yet.

Extremes of phi(tau) . phi(.) over sets of trajectories too large to list, and the law of phi where it is small.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from limiirl._typing import BoolArray, FloatArray, IntArray
from limiirl._validation import check_choice, check_count
from limiirl.demos import Demonstrations
from limiirl.errors import InvalidParameter
from limiirl.mdp import MDP, FeatureMatrix

STOPS = ("anywhere", "terminal", "terminal_or_max_length")


@dataclass(frozen=True, eq=False)
class TrajectoryWeights:
    """n weights of a trajectory: ``start(s_0) + sum_t gamma^t node(s_t) + sum_t gamma^t edge(e_t)``.

    Attributes
    ----------
    node, edge, start : (S, n), (E, n) and (S, n)
        The last two may have one column for all n.
    gamma : float
    """

    node: FloatArray
    edge: FloatArray
    gamma: float
    start: FloatArray

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
        check_count(self.max_length, "max_length")
        check_choice(self.stop, "stop", STOPS)

    @property
    def n_intents(self) -> int:
        """K, the number of experts."""
        return len(self.supports)

    @cached_property
    def _masses(self) -> tuple[FloatArray, FloatArray]:
        with np.errstate(divide="ignore"):
            start = np.log(self.mdp.p0)[:, None]
        masses = TrajectoryWeights(np.zeros((self.mdp.n_states, 1)), np.log(self.mdp.prob)[:, None], 1.0, start)
        each = range(self.n_intents)
        mine, others = ([sums(k, np.logaddexp, masses) for k in each] for sums in (self.inside, self.outside))
        return np.concatenate(mine), np.concatenate(others)

    @property
    def log_Q(self) -> FloatArray:
        """Log of the mass Q_k, the sum of q over T_k: (K,), -inf where an expert can end nowhere."""
        return self._masses[0]

    @property
    def log_Q_other(self) -> FloatArray:
        """Log of the mass of T less T_k: (K,). It is summed itself, not as a difference, which would cancel."""
        return self._masses[1]

    @property
    def log_Q_all(self) -> float:
        """Log of the mass of T."""
        return float(np.logaddexp(self.log_Q[0], self.log_Q_other[0]))

    def may_stop(self, remaining: int) -> tuple[BoolArray, BoolArray]:
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

    def inside(self, k: int, combine: np.ufunc, weights: TrajectoryWeights) -> FloatArray:
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

    def outside(self, k: int, combine: np.ufunc, weights: TrajectoryWeights) -> FloatArray:
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

    def contains(self, demos: Demonstrations) -> BoolArray:
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


def observed_supports(mdp: MDP, demos: Demonstrations, labels: NDArray[np.int64]) -> BoolArray:
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


def _reducer(mdp: MDP, combine: np.ufunc) -> Callable[[FloatArray], FloatArray]:
    """Return a function that combines values of edges (E, n) over the edges that leave each state: (S, n)."""
    sources = np.flatnonzero(np.diff(mdp.out_ptr) > 0)
    starts = mdp.out_ptr[sources]

    def reduce(values: FloatArray) -> FloatArray:
        found = np.full((mdp.n_states, values.shape[1]), -np.inf)
        if sources.size:
            found[sources] = combine.reduceat(values, starts, axis=0)
        return found

    return reduce


def _supports(mdp: MDP, given: ArrayLike) -> BoolArray:
    array = np.asarray(given)
    if array.ndim != 2 or array.shape[1] != mdp.n_pairs or len(array) == 0 or array.dtype.kind not in "biuf":
        raise InvalidParameter(
            f"Supports must have shape (K, {mdp.n_pairs}), one row an expert and one column a (s, a) pair; got shape "
            f"{array.shape}. Follow the order of mdp.pair_state and mdp.pair_action.",
            parameter="supports",
            value=array.shape,
        )
    wrong = np.argwhere(~(array >= 0))
    if wrong.size:
        k, pair = wrong[0].tolist()
        raise InvalidParameter(
            f"Supports must not be negative; expert {k} has {array[k, pair]} at pair {pair}. Give booleans, or the "
            "probabilities of a policy.",
            parameter="supports",
            value=float(array[k, pair]),
            index=(int(k), int(pair)),
        )
    found: BoolArray = array > 0
    found.flags.writeable = False
    return found


# Sums of features closer than this, relative to the largest, are the same but for rounding.
_SAME = 1e-9
# Numbers held at once by a dynamic programme over many directions.
_BLOCK = 1_000_000


@dataclass(frozen=True, eq=False)
class Extremes:
    """For n directions theta, the extremes of theta . phi(.) over T_k and over all trajectories outside of it.

    Attributes
    ----------
    inside_min, inside_max : (n,)
        Over T_k; inf and -inf where it is empty.
    outside_max : (n,)
        Over T less T_k; -inf where that is empty.
    """

    inside_min: FloatArray
    inside_max: FloatArray
    outside_max: FloatArray

    @property
    def margin(self) -> FloatArray:
        """d(tau) (n,): by how much theta separates T_k from all others; negative where it does not."""
        return self.inside_min - self.outside_max


def feature_extremes(paths: PathSet, k: int, thetas: ArrayLike) -> Extremes:
    """Return the extremes of theta . phi(.) over T_k and its complement, for directions (n, d) or (d,).

    Examples
    --------
    Two lanes; T has (0) as well, whose features are 0.

    >>> mdp = MDP.from_edges([0, 0], [1, 2], p0=[1, 0, 0], state_features=[[0, 0], [3, 0], [0, 2]])
    >>> paths = PathSet(mdp, [[1, 0], [0, 1]], max_length=2)
    >>> found = feature_extremes(paths, 0, [[3.0, 0.0], [1.5, -1.0]])
    >>> found.inside_min, found.outside_max, found.margin
    (array([9. , 4.5]), array([0., 0.]), array([9. , 4.5]))
    """
    blocks = list(_blocks(paths.mdp, paths.mdp.check_thetas(thetas)))
    negative = (TrajectoryWeights(-block.node, -block.edge, block.gamma, block.start) for block in blocks)
    return Extremes(
        np.concatenate([-paths.inside(k, np.maximum, block) for block in negative]),
        np.concatenate([paths.inside(k, np.maximum, block) for block in blocks]),
        np.concatenate([paths.outside(k, np.maximum, block) for block in blocks]),
    )


def outside_max(paths: PathSet, k: int, thetas: FloatArray) -> FloatArray:
    """Return (n,) the largest theta . phi(.) over all trajectories outside of T_k, for directions (n, d)."""
    found = [paths.outside(k, np.maximum, block) for block in _blocks(paths.mdp, thetas)]
    return np.concatenate([np.empty(0), *found])


def _blocks(mdp: MDP, thetas: FloatArray) -> Iterator[TrajectoryWeights]:
    """Yield the rewards of directions (n, d), so many at once that they fit into memory."""
    start = np.where(mdp.p0 > 0.0, 0.0, -np.inf)[:, None]
    size = max(1, _BLOCK // (mdp.n_edges + mdp.n_states))
    for first in range(0, len(thetas), size):
        node, moves = mdp.rewards(thetas[first : first + size])
        yield TrajectoryWeights(node, np.zeros((mdp.n_edges, 1)) if moves is None else moves, mdp.gamma, start)


@dataclass(frozen=True, eq=False)
class Law:
    """The features of an expert's trajectories with their masses, exactly.

    Attributes
    ----------
    points : (m, d)
        phi of the trajectories in T_k, trajectories with the same features taken together.
    log_mass : (m,)
        Log of the sum of q over each.
    experts : (m, K) bool
        The experts in whose T_k these trajectories are; those that others can generate as well are points of their own.
    """

    points: FloatArray
    log_mass: FloatArray
    experts: BoolArray


def feature_distribution(paths: PathSet, k: int, limit: int = 1000) -> Law | None:
    """Return the law of phi over T_k, or None where more than `limit` walks differ in features at any step.

    At a discount of 1 with whole features few do, because walks that have collected the same are one; otherwise this is
    an enumeration of T_k.

    Examples
    --------
    >>> mdp = MDP.from_edges([0, 0, 1, 2], [1, 2, 3, 3], p0=[1, 0, 0, 0], state_features=[0.0, 1.0, 1.0, 0.0])
    >>> law = feature_distribution(PathSet(mdp, [[1, 1, 1, 1], [0, 1, 0, 1]], max_length=3), 0)
    >>> law.points.tolist(), np.exp(law.log_mass).tolist(), law.experts.tolist()
    ([[1.0], [1.0]], [1.0, 1.0], [[True, False], [True, True]])
    """
    mdp = paths.mdp
    of_state, of_edge = _dense(mdp)
    usable = np.flatnonzero(paths.supports[k][mdp.pair_of_edge])
    ptr = np.searchsorted(mdp.src[usable], np.arange(mdp.n_states + 1))
    state = np.flatnonzero(mdp.p0 > 0.0)
    walks = _Walks(
        state, of_state[state], np.log(mdp.p0[state]), np.ones((state.size, paths.n_intents), dtype=np.bool_)
    )
    ended: list[_Walks] = []
    for t in range(paths.max_length):
        walks = walks.merged()
        if len(walks.state) > limit:
            return None
        ended.append(walks.those(paths.may_stop(paths.max_length - t)[1][walks.state]))
        if t == paths.max_length - 1:
            break
        many = np.diff(ptr)[walks.state]
        who = np.repeat(np.arange(many.size), many)
        edge = usable[np.arange(who.size) - np.repeat(np.cumsum(many) - many, many) + ptr[walks.state][who]]
        state = mdp.dst[edge].astype(np.int64)
        points = walks.points[who] + mdp.gamma**t * (of_edge[edge] + mdp.gamma * of_state[state])
        experts = walks.experts[who] & paths.supports[:, mdp.pair_of_edge[edge]].T
        walks = _Walks(state, points, walks.log_mass[who] + np.log(mdp.prob[edge]), experts)
    fields = [np.concatenate([getattr(walks, name) for walks in ended]) for name in ("points", "log_mass", "experts")]
    found = _Walks(np.zeros(len(fields[0]), dtype=np.int64), *fields).merged()
    return None if len(found.state) > limit else Law(found.points, found.log_mass, found.experts)


@dataclass(frozen=True, eq=False)
class _Walks:
    """Walks on their way: where they are, what they have collected, their mass, and the experts that they may be of."""

    state: IntArray
    points: FloatArray
    log_mass: FloatArray
    experts: BoolArray

    def those(self, mask: BoolArray) -> _Walks:
        return _Walks(self.state[mask], self.points[mask], self.log_mass[mask], self.experts[mask])

    def merged(self) -> _Walks:
        """Take together the walks that are in the same state with the same features and experts."""
        if not self.state.size:
            return self
        scale = max(1.0, float(np.abs(self.points).max(initial=0.0))) * _SAME
        keys = np.column_stack([self.state, self.experts, np.rint(self.points / scale)])
        _, first, index = np.unique(keys, axis=0, return_index=True, return_inverse=True)
        order = np.argsort(index.ravel(), kind="stable")
        starts = np.searchsorted(index.ravel()[order], np.arange(first.size))
        log_mass = np.logaddexp.reduceat(self.log_mass[order], starts)
        return _Walks(self.state[first], self.points[first], log_mass, self.experts[first])


def _dense(mdp: MDP) -> tuple[FloatArray, FloatArray]:
    """Return the features of states (S, d) and of edges (E, d), in the columns of theta."""
    ends = np.cumsum([mdp.n_state_features, mdp.n_action_features, mdp.n_edge_features])
    of_state, of_edge = np.zeros((mdp.n_states, mdp.n_features)), np.zeros((mdp.n_edges, mdp.n_features))
    of_state[:, : ends[0]] = _array(mdp.state_features, mdp.n_states)
    of_edge[:, ends[0] : ends[1]] = _array(mdp.action_features, mdp.n_pairs)[mdp.pair_of_edge]
    of_edge[:, ends[1] :] = _array(mdp.edge_features, mdp.n_edges)
    return of_state, of_edge


def _array(features: FeatureMatrix | None, rows: int) -> FloatArray:
    if features is None:
        return np.empty((rows, 0))
    return features if isinstance(features, np.ndarray) else np.asarray(features.toarray())
