"""`DenseGoalValues`: path sums by dense factorisation, for graphs whose sparse factors are almost dense.

With G = (I - W)^-1, log beta_g(s) = log G(s, g) - log G(g, g) requires the columns of goals only. The weighted sum of
log beta over pairs has the derivative w_e P(src, .) . G(dst, .) with respect to the log-weight of edge e, where
P = G' B, and B has the entries weight / G(s, g) at (s, g), and minus their sum over s at (g, g).
"""

from __future__ import annotations

import math
import threading
import weakref
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.csgraph import reverse_cuthill_mckee

from limiirl._parallel import one_thread
from limiirl._typing import FloatArray, IntArray
from limiirl.irl.destination.path_sums import (
    GoalPathSums,
    GoalValues,
    PairSums,
    divergent,
    is_accurate,
    is_within_limit,
)
from limiirl.kernels.elimination import dense
from limiirl.mdp import MDP

# Minimum and maximum number of states for dense matrices, bytes of cached factors per MDP, and number of goals that
# are processed at once.
_FEWEST_STATES, _MOST_STATES, _CACHE_BYTES, _COLUMNS = 200, 6_000, 2**28, 128
# Dense factorisation is faster if sparse elimination needs more than this fraction of S^3 multiplications, as measured
# on lattices and random graphs (python -m benchmarks.dense_graphs).
_DENSE_FRACTION = 0.01
# Edges per state from which a graph without a narrow band is not ordered, because that takes longer than a solution.
_MANY_EDGES = 6.0


def make_goal_values(mdp: MDP) -> GoalValues:
    """Return the path sums of an MDP, with the factorisation that is faster for its graph."""
    if mdp not in _CHOICES:
        _CHOICES[mdp] = prefers_dense(mdp)
    return DenseGoalValues(mdp) if _CHOICES[mdp] else GoalValues(mdp)


def prefers_dense(mdp: MDP) -> bool:
    """Return True if dense factorisation is faster than sparse elimination.

    Examples
    --------
    In a chain, elimination creates no new edges; in a random graph, most states become adjacent.

    >>> chain = MDP.from_edges(np.arange(299), np.arange(1, 300))
    >>> links = np.random.default_rng(0).integers(300, size=900)
    >>> at_random = MDP.from_edges(np.repeat(np.arange(300), 3), links, action=np.tile(np.arange(3), 300))
    >>> prefers_dense(chain), prefers_dense(at_random)
    (False, True)
    """
    n, most = mdp.n_states, _DENSE_FRACTION * float(mdp.n_states) ** 3
    if not _FEWEST_STATES <= n <= _MOST_STATES or band_multiplications(mdp) <= most:
        return False
    if mdp.n_edges >= _MANY_EDGES * n:
        return True
    return float(np.sum(np.diff(GoalValues(mdp).symbolic.up_ptr).astype(np.float64) ** 2)) > most


def band_multiplications(mdp: MDP) -> float:
    """Return an upper bound on the multiplications of sparse elimination: those within a band of the graph."""
    ones = np.ones(mdp.n_edges)
    graph = sparse.csr_array((ones, (mdp.src, mdp.dst)), shape=(mdp.n_states, mdp.n_states))
    graph = graph + graph.T
    rank = np.empty(mdp.n_states, dtype=np.int64)
    rank[reverse_cuthill_mckee(graph, symmetric_mode=True)] = np.arange(mdp.n_states)
    low, high = np.minimum(rank[mdp.src], rank[mdp.dst]), np.maximum(rank[mdp.src], rank[mdp.dst])
    first = np.arange(mdp.n_states)
    np.minimum.at(first, high, low)
    return float(np.sum((np.arange(mdp.n_states) - first).astype(np.float64) ** 2))


class DenseSolution(NamedTuple):
    """Edge weights (E,) at one theta, and the factors of I - W up to the first pivot of 0 or less."""

    weight: FloatArray
    factors: dense.DenseFactors
    accurate: bool

    def divergent_state(self, margin: float) -> int:
        """Return the first state at which cycles through earlier states have weight exp(-margin) or more, or -1."""
        end = len(self.factors.lu) if self.factors.divergent < 0 else self.factors.divergent
        low = np.flatnonzero(~(np.diagonal(self.factors.lu)[:end] > -math.expm1(-margin)))
        return int(low[0]) if low.size else self.factors.divergent


class DenseGoalValues(GoalValues):
    """Path sums of an MDP with discount 1 by dense factorisation.

    Pairs whose sums underflow are computed by sparse factorisation in log arithmetic.

    Examples
    --------
    >>> mdp = MDP.from_edges([0, 0, 1, 1, 2], [1, 2, 0, 3, 3], state_features=[[1], [0], [0], [0]])
    >>> np.exp(DenseGoalValues(mdp).solve(np.log([0.5])).values_to(3)).round(3)
    array([4., 3., 1., 1.])
    """

    def is_finite(self, theta: FloatArray, margin: float = 0.0) -> bool:
        """See `GoalValues.is_finite`."""
        return self._factor(theta).divergent_state(margin) < 0

    def solve(self, theta: FloatArray, margin: float = 0.0) -> GoalPathSums:
        """See `GoalValues.solve`."""
        solution = self._factor(theta)
        state = solution.divergent_state(margin)
        if state >= 0:
            raise divergent(state)
        return DensePathSums(self, theta, solution) if solution.accurate else super().solve(theta, margin)

    def solve_cached(self, theta: FloatArray) -> GoalPathSums:
        """Return `solve(theta)`, whose factors are cached."""
        return self.solve(theta)

    def divergent_loop(self, theta: FloatArray, margin: float = 0.0) -> tuple[float, FloatArray] | None:
        """See `GoalValues.divergent_loop`."""
        weight, factors, _ = solution = self._factor(theta)
        v = solution.divergent_state(margin)
        if v < 0:
            return None
        src, dst = self.mdp.src, self.mdp.dst
        into, out = np.zeros((2, self.mdp.n_states, 1))
        np.add.at(out[:, 0], dst[src == v], weight[src == v])
        np.add.at(into[:, 0], src[dst == v], weight[dst == v])
        loop = out[v, 0] + out[:v, 0] @ (ahead := factors.solve(into, v))[:, 0]
        # Sums over walks from v to each earlier state, and from each earlier state to v; 1 for v itself.
        behind = factors.solve_transposed(out, v)
        begin, end = np.zeros((2, self.mdp.n_states))
        begin[:v], end[:v], begin[v], end[v] = behind[:, 0], ahead[:, 0], 1.0, 1.0
        return math.log(loop), np.asarray(begin[src] * weight * end[dst] / loop)

    def _factor(self, theta: FloatArray) -> DenseSolution:
        """Return the factors at theta (d,), from a cache of recent ones."""
        key, recent = theta.tobytes(), _RECENT.setdefault(self.mdp, OrderedDict())
        with _LOCK:
            solution = recent.pop(key, None)
        if solution is None:
            solution = self._factor_again(theta)
        with _LOCK:
            recent[key] = solution
            while len(recent) > max(1, _CACHE_BYTES // (8 * self.mdp.n_states**2)):
                recent.popitem(last=False)
        return solution

    def _factor_again(self, theta: FloatArray) -> DenseSolution:
        n = self.mdp.n_states
        log_w = self.edge_log_weights(theta)
        weight = np.exp(np.minimum(log_w, 700.0))
        matrix = np.zeros((n, n))
        np.add.at(matrix, (self.mdp.src, self.mdp.dst), weight)
        with one_thread("blas"):
            factors = dense.eliminate(matrix, 1.0)
            accurate = False
            if factors.divergent < 0 and is_within_limit(float(np.max(log_w, initial=-np.inf))):
                largest = float(np.max(factors.solve(np.ones((n, 1))), initial=1.0))
                accurate = bool(is_within_limit(math.log(largest)))
        return DenseSolution(weight, factors, accurate)


_CHOICES: weakref.WeakKeyDictionary[MDP, bool] = weakref.WeakKeyDictionary()
_RECENT: weakref.WeakKeyDictionary[MDP, OrderedDict[bytes, DenseSolution]] = weakref.WeakKeyDictionary()
_LOCK = threading.Lock()


class DensePathSums(GoalPathSums):
    """Path sums at one theta, in linear arithmetic; `GoalValues` computes those that underflow."""

    def __init__(self, values: DenseGoalValues, theta: FloatArray, solution: DenseSolution) -> None:
        self.mdp, self.values, self.theta, self.solution = values.mdp, values, theta, solution

    def _sparse(self) -> GoalPathSums:
        return GoalValues(self.mdp).solve_cached(self.theta)

    def values_to(self, goal: int) -> FloatArray:
        """See `GoalPathSums.values_to`."""
        right = np.zeros((self.mdp.n_states, 1))
        right[goal] = 1.0
        with one_thread("blas"):
            total = self.solution.factors.solve(right)[:, 0]
        if not np.all(is_accurate(total)):
            return self._sparse().values_to(goal)
        return np.asarray(np.log(total / total[goal]))

    def log_weights(self) -> FloatArray:
        """Return the edge log-weights (E,)."""
        return self.values.edge_log_weights(self.theta)

    def pair_sums(self, starts: IntArray, goals: IntArray, weights: FloatArray | None = None) -> PairSums:
        """See `GoalPathSums.pair_sums`."""
        log_value = np.full(starts.size, -np.inf)
        flow = None if weights is None else np.zeros(self.mdp.n_edges)
        ends, column = np.unique(goals, return_inverse=True)

        def add(first: int) -> FloatArray | None:
            mine = np.flatnonzero((column >= first) & (column < first + _COLUMNS))
            given = None if weights is None else weights[mine]
            log_value[mine], counts = self._sum(
                starts[mine], column[mine] - first, ends[first : first + _COLUMNS], given
            )
            return counts

        # The blocks of goals do not depend on the number of threads, and are added in their order.
        with one_thread("blas"), ThreadPoolExecutor(int(numba.get_num_threads())) as pool:
            for counts in pool.map(add, range(0, ends.size, _COLUMNS)):
                if flow is not None and counts is not None:
                    flow += counts
        far = np.flatnonzero(log_value == -np.inf)
        if far.size:
            rest = self._sparse().pair_sums(starts[far], goals[far], None if weights is None else weights[far])
            log_value[far] = rest.log_value
            if flow is not None and rest.flow is not None:
                flow += rest.flow
        return PairSums(log_value, None if flow is None else np.maximum(flow, 0.0))

    def _sum(
        self, starts: IntArray, column: NDArray[np.intp], ends: IntArray, weights: FloatArray | None
    ) -> tuple[FloatArray, FloatArray | None]:
        """Return log beta (m,), -inf if it underflows, and expected edge counts (E,) if weights are not None."""
        factors, (n, m) = self.solution.factors, (self.mdp.n_states, ends.size)
        right = np.zeros((n, m))
        right[ends, np.arange(m)] = 1.0
        to_goals = factors.solve(right)
        total, own = to_goals[starts, column], to_goals[ends, np.arange(m)]
        done = is_accurate(total)
        log_value = np.full(starts.size, -np.inf)
        log_value[done] = np.log(total[done] / own[column[done]])
        if weights is None:
            return log_value, None
        right[:] = 0.0
        np.add.at(right, (starts[done], column[done]), weights[done] / total[done])
        by_goal = np.bincount(column[done], weights=weights[done], minlength=m)
        right[ends, np.arange(m)] -= by_goal / own
        from_starts = factors.solve_transposed(right)
        flow = self.solution.weight * dense.multiply_pairs(self.mdp.src, self.mdp.dst, from_starts, to_goals)
        return log_value, flow
