"""Path sets of experts (paper, assumption 1 and lemma 2): masses, extremes of features, and distributions of features.

T is the set of trajectories of a MaxEnt model: at most L states, ending where `stop` allows. T_k contains those that
use only state-action pairs in the support of expert k and end where experts may stop. Sums over the complement of T_k
use dynamic programming with one more bit of state: whether the trajectory has left the support.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from limiirl._typing import BoolArray, FloatArray, IntArray
from limiirl._validation import check_choice, check_count, check_each
from limiirl.demos import Demonstrations
from limiirl.errors import InvalidParameter
from limiirl.mdp import MDP, FeatureMatrix

STOPS = ("anywhere", "terminal", "terminal_or_max_length")


@dataclass(frozen=True, eq=False)
class TrajectoryWeights:
    """Log-weights (n,) of trajectories, ``start(s_0) + sum_t gamma^t node(s_t) + sum_t gamma^t edge(e_t)``.

    `node` has shape (S, n); `edge` (E, n) and `start` (S, n) may also have a single column.
    """

    node: FloatArray
    edge: FloatArray
    gamma: float
    start: FloatArray


@dataclass(frozen=True, eq=False)
class PathSet:
    """All trajectories T of a model, and the sets T_k of K experts within it.

    Parameters
    ----------
    mdp : MDP
    supports : (K, P) bool, or (K, P) probabilities
        Support of each expert: its state-action pairs of positive probability, in the order of `mdp.pair_state`.
    max_length : int
        L, the maximum number of states.
    stop : {"anywhere", "terminal", "terminal_or_max_length"}
        Where a trajectory of the model may end; the paper's set is "anywhere".
    complete : bool
        If True, experts stop only in a terminal state or after L states; otherwise they stop wherever `stop` allows.

    Examples
    --------
    From state 0, one expert moves to state 1 and the other to state 2. T contains (0), (0, 1) and (0, 2).

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
        object.__setattr__(self, "supports", check_supports(self.mdp, self.supports, "supports"))
        check_count(self.max_length, "max_length")
        check_choice(self.stop, "stop", STOPS)

    @property
    def n_intents(self) -> int:
        """Number of experts, K."""
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
        """Log of the masses Q_k (K,), the sums of q over T_k; -inf if T_k is empty."""
        return self._masses[0]

    @property
    def log_Q_other(self) -> FloatArray:
        """Log of the mass (K,) of the trajectories in T but not in T_k, summed directly to avoid cancellation."""
        return self._masses[1]

    @property
    def log_Q_all(self) -> float:
        """Log of the mass of T."""
        return float(np.logaddexp(self.log_Q[0], self.log_Q_other[0]))

    def may_stop(self, remaining: int) -> tuple[BoolArray, BoolArray]:
        """Return two masks (S,): states where a trajectory of T may end, and states where an expert may stop.

        `remaining` is the number of states until the maximum length, including the current one.
        """
        whole = self.mdp.terminal | (remaining == 1)
        model = {"anywhere": np.ones_like(whole), "terminal": self.mdp.terminal, "terminal_or_max_length": whole}
        allowed = model[self.stop]
        return allowed, allowed & whole if self.complete else allowed

    def inside(self, k: int, combine: np.ufunc, weights: TrajectoryWeights) -> FloatArray:
        """Return the log-sum or the maximum (n,) of the log-weights over T_k; -inf if T_k is empty.

        `combine` is np.logaddexp or np.maximum.
        """
        reduce = _reducer(self.mdp, combine)
        outside = ~self.supports[k][self.mdp.pair_of_edge]
        mine = np.full_like(weights.node, -np.inf)
        for remaining in range(1, self.max_length + 1):
            go = weights.edge + (weights.gamma * mine)[self.mdp.dst]
            go[outside] = -np.inf
            ends = np.where(self.may_stop(remaining)[1], 0.0, -np.inf)[:, None]
            mine = weights.node + combine(ends, reduce(go))
        return np.asarray(combine.reduce(weights.start + mine, axis=0))

    def outside(self, k: int, combine: np.ufunc, weights: TrajectoryWeights) -> FloatArray:
        """Return the log-sum or the maximum (n,) of the log-weights over T outside T_k; -inf if there are none."""
        reduce, n_states = _reducer(self.mdp, combine), self.mdp.n_states
        # Rows s: trajectories within the support so far; rows S + s: trajectories that have left it.
        gone = self.mdp.dst + n_states
        target_of = np.where(self.supports[k][self.mdp.pair_of_edge], self.mdp.dst, gone)
        both = np.full((2 * n_states, weights.node.shape[1]), -np.inf)
        for remaining in range(1, self.max_length + 1):
            model, expert = self.may_stop(remaining)
            ends = [np.where(mask, 0.0, -np.inf)[:, None] for mask in (model & ~expert, model)]
            message = weights.gamma * both
            kept, left = (reduce(weights.edge + message[target]) for target in (target_of, gone))
            both = np.concatenate([weights.node + combine(ends[0], kept), weights.node + combine(ends[1], left)])
        return np.asarray(combine.reduce(weights.start + both[:n_states], axis=0))

    def contains(self, demos: Demonstrations) -> BoolArray:
        """Return the mask (N, K) of demonstrations that are in T_k.

        A step with an unrecorded action is in the support if any compatible action is.
        """
        steps = demos.steps(self.mdp)
        pairs = self.mdp.pair_of_edge
        inside = np.ones((len(demos), self.n_intents), dtype=np.bool_)
        for k, support in enumerate(self.supports):
            taken = support[pairs[steps.edge]] if self.mdp.n_edges else np.empty(0, dtype=np.bool_)
            if steps.ambiguous.size:
                taken[steps.ambiguous] = np.logical_or.reduceat(support[pairs[steps.cand_edge]], steps.cand_ptr[:-1])
            outside = np.bincount(steps.demo_of_step[~taken], minlength=len(demos))
            inside[:, k] = outside == 0
        whole, inner = self.may_stop(1)[1], self.may_stop(2)[1]
        ends = np.where(demos.lengths == self.max_length, whole[demos.last_states], inner[demos.last_states])
        return inside & (ends & (demos.lengths <= self.max_length))[:, None]


def find_supports(mdp: MDP, demos: Demonstrations, labels: NDArray[np.int64]) -> BoolArray:
    """Return the mask (K, P) of state-action pairs in the demonstrations of each intent.

    All actions compatible with an unrecorded action are included.
    """
    steps = demos.steps(mdp)
    support = np.zeros((int(labels.max()) + 1, mdp.n_pairs), dtype=np.bool_)
    recorded = steps.edge >= 0
    support[labels[steps.demo_of_step[recorded]], mdp.pair_of_edge[steps.edge[recorded]]] = True
    ambiguous = np.repeat(steps.demo_of_step[steps.ambiguous], np.diff(steps.cand_ptr))
    support[labels[ambiguous], mdp.pair_of_edge[steps.cand_edge]] = True
    return support


def _reducer(mdp: MDP, combine: np.ufunc) -> Callable[[FloatArray], FloatArray]:
    """Return a function that reduces values (E, n) over the outgoing edges of each state to (S, n)."""
    sources = np.flatnonzero(np.diff(mdp.out_ptr) > 0)
    starts = mdp.out_ptr[sources]

    def reduce(values: FloatArray) -> FloatArray:
        reduced = np.full((mdp.n_states, values.shape[1]), -np.inf)
        if sources.size:
            reduced[sources] = combine.reduceat(values, starts, axis=0)
        return reduced

    return reduce


def check_supports(mdp: MDP, given: ArrayLike, name: str) -> BoolArray:
    """Return the read-only mask (K, P) of positive entries of a nonnegative array."""
    array = np.asarray(given)
    if array.ndim != 2 or array.shape[1] != mdp.n_pairs or len(array) == 0 or array.dtype.kind not in "biuf":
        rule = f"must have shape (K, {mdp.n_pairs}), one row per expert and one column per state-action pair"
        raise InvalidParameter.of(name, array.shape, rule, remedy="Use the order of mdp.pair_state.")
    check_each(array >= 0, array, name, "must not be negative")
    support: BoolArray = array > 0
    support.flags.writeable = False
    return support


# Relative tolerance for equal sums of features.
_SAME = 1e-9
# Maximum number of array elements in dynamic programming over many directions.
_BLOCK = 1_000_000


@dataclass(frozen=True, eq=False)
class Extremes:
    """Extremes (n,) of theta . phi over T_k, and its maximum over all other trajectories, for n directions theta.

    Over an empty set, the minimum is inf and the maximum is -inf.
    """

    inside_min: FloatArray
    inside_max: FloatArray
    outside_max: FloatArray

    @property
    def margin(self) -> FloatArray:
        """Margin (n,) between T_k and all other trajectories, inside_min - outside_max; negative if they overlap."""
        return self.inside_min - self.outside_max


def feature_extremes(paths: PathSet, k: int, thetas: ArrayLike) -> Extremes:
    """Return the extremes of theta . phi over T_k and its complement, for directions (n, d) or (d,).

    Examples
    --------
    T also contains the trajectory (0), whose features are 0.

    >>> mdp = MDP.from_edges([0, 0], [1, 2], p0=[1, 0, 0], state_features=[[0, 0], [3, 0], [0, 2]])
    >>> paths = PathSet(mdp, [[1, 0], [0, 1]], max_length=2)
    >>> extremes = feature_extremes(paths, 0, [[3.0, 0.0], [1.5, -1.0]])
    >>> extremes.inside_min, extremes.outside_max, extremes.margin
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
    """Return the maximum (n,) of theta . phi over T outside T_k, for directions (n, d)."""
    blocks = [paths.outside(k, np.maximum, block) for block in _blocks(paths.mdp, thetas)]
    return np.concatenate([np.empty(0), *blocks])


def _blocks(mdp: MDP, thetas: FloatArray) -> Iterator[TrajectoryWeights]:
    """Yield the rewards of directions (n, d), in blocks of bounded size."""
    start = np.where(mdp.p0 > 0.0, 0.0, -np.inf)[:, None]
    size = max(1, _BLOCK // (mdp.n_edges + mdp.n_states))
    for first in range(0, len(thetas), size):
        node, moves = mdp.rewards(thetas[first : first + size])
        yield TrajectoryWeights(node, np.zeros((mdp.n_edges, 1)) if moves is None else moves, mdp.gamma, start)


@dataclass(frozen=True, eq=False)
class FeatureDistribution:
    """Exact distribution of phi over an expert's trajectories.

    Attributes
    ----------
    points, log_mass : (m, d), (m,)
        Distinct phi of the trajectories in T_k, and their log-masses.
    experts : (m, K) bool
        Experts that can generate the trajectories of each point. Trajectories with equal phi but different experts
        belong to separate points.
    """

    points: FloatArray
    log_mass: FloatArray
    experts: BoolArray


def feature_distribution(paths: PathSet, k: int, limit: int = 1000) -> FeatureDistribution | None:
    """Return the distribution of phi over T_k, or None if there are more than `limit` distinct prefixes at any step.

    Prefixes that agree in state, features and experts are merged, which is effective for discount 1 and integer
    features. Otherwise nearly all trajectories of T_k are enumerated.

    Examples
    --------
    >>> mdp = MDP.from_edges([0, 0, 1, 2], [1, 2, 3, 3], p0=[1, 0, 0, 0], state_features=[0.0, 1.0, 1.0, 0.0])
    >>> distribution = feature_distribution(PathSet(mdp, [[1, 1, 1, 1], [0, 1, 0, 1]], max_length=3), 0)
    >>> distribution.points.tolist(), np.exp(distribution.log_mass).tolist(), distribution.experts.tolist()
    ([[1.0], [1.0]], [1.0, 1.0], [[True, False], [True, True]])
    """
    mdp = paths.mdp
    of_state, of_edge = _dense(mdp)
    usable = np.flatnonzero(paths.supports[k][mdp.pair_of_edge])
    ptr = np.searchsorted(mdp.src[usable], np.arange(mdp.n_states + 1))
    state = np.flatnonzero(mdp.p0 > 0.0)
    prefixes = _PartialTrajectories(
        state, of_state[state], np.log(mdp.p0[state]), np.ones((state.size, paths.n_intents), dtype=np.bool_)
    )
    ended: list[_PartialTrajectories] = []
    for t in range(paths.max_length):
        prefixes = prefixes.merge()
        if len(prefixes.state) > limit:
            return None
        ended.append(prefixes.select(paths.may_stop(paths.max_length - t)[1][prefixes.state]))
        if t == paths.max_length - 1:
            break
        n_edges = np.diff(ptr)[prefixes.state]
        parent = np.repeat(np.arange(n_edges.size), n_edges)
        first = np.repeat(np.cumsum(n_edges) - n_edges, n_edges)
        edge = usable[np.arange(parent.size) - first + ptr[prefixes.state][parent]]
        state = mdp.dst[edge].astype(np.int64)
        points = prefixes.points[parent] + mdp.gamma**t * (of_edge[edge] + mdp.gamma * of_state[state])
        experts = prefixes.experts[parent] & paths.supports[:, mdp.pair_of_edge[edge]].T
        prefixes = _PartialTrajectories(state, points, prefixes.log_mass[parent] + np.log(mdp.prob[edge]), experts)
    names = ("points", "log_mass", "experts")
    fields = [np.concatenate([getattr(prefixes, name) for prefixes in ended]) for name in names]
    merged = _PartialTrajectories(np.zeros(len(fields[0]), dtype=np.int64), *fields).merge()
    return None if len(merged.state) > limit else FeatureDistribution(merged.points, merged.log_mass, merged.experts)


@dataclass(frozen=True, eq=False)
class _PartialTrajectories:
    """Prefixes of trajectories: last states, features, log-masses, and the experts that can generate them."""

    state: IntArray
    points: FloatArray
    log_mass: FloatArray
    experts: BoolArray

    def select(self, mask: BoolArray) -> _PartialTrajectories:
        return _PartialTrajectories(self.state[mask], self.points[mask], self.log_mass[mask], self.experts[mask])

    def merge(self) -> _PartialTrajectories:
        if not self.state.size:
            return self
        scale = max(1.0, float(np.abs(self.points).max(initial=0.0))) * _SAME
        keys = np.column_stack([self.state, self.experts, np.rint(self.points / scale)])
        _, first, index = np.unique(keys, axis=0, return_index=True, return_inverse=True)
        order = np.argsort(index.ravel(), kind="stable")
        starts = np.searchsorted(index.ravel()[order], np.arange(first.size))
        log_mass = np.logaddexp.reduceat(self.log_mass[order], starts)
        return _PartialTrajectories(self.state[first], self.points[first], log_mass, self.experts[first])


def _dense(mdp: MDP) -> tuple[FloatArray, FloatArray]:
    """Return dense features of states (S, d) and edges (E, d), with columns as in theta."""
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
