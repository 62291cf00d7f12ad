"""Path sums for features that depend on the goal, or on the start and the goal; link size (Fosgerau et al. 2013).

The edge weights differ between conditions: goals, or pairs of a start and a goal. Every condition requires its own
factorisation of I - W. Several conditions are factorised at once, as columns of one elimination. The gradient of log
beta_g(s) with respect to the log-weight of edge e is the expected flow w_e G(s, src) G(dst, g) / G(s, g), minus that of
walks beyond the goal, and requires only triangular solves.
"""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numba
import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from limiirl._parallel import one_thread
from limiirl._typing import FloatArray, IntArray
from limiirl.errors import DivergentPartition, NumericalError
from limiirl.irl.destination.path_sums import (
    GoalPathSums,
    GoalValues,
    PairSums,
    divergent,
    flow_features,
    is_accurate,
    is_within_limit,
)
from limiirl.kernels.elimination import linear
from limiirl.kernels.elimination.symbolic import SymbolicFactorisation
from limiirl.mdp import MDP, GoalFeature

# Number of conditions per elimination: one cache line of values.
_WIDTH = 8
# Maximum number of cached solutions for policies and samples.
_CACHED = 64
# Expected flows below this value are stored as 0 in `link_size`.
_LEAST_FLOW = 1e-9


class Conditions(NamedTuple):
    """Distinct conditions of m pairs of starts and goals.

    Attributes
    ----------
    starts, goals : (C,)
        `starts` contains -1 if no feature depends on the start.
    of_pair : (m,)
        Condition of each pair.
    """

    starts: IntArray
    goals: IntArray
    of_pair: NDArray[np.intp]


class ConditionalGoalValues(GoalValues):
    """Path sums of an MDP whose features depend on the goal.

    Parameters
    ----------
    mdp : MDP
        With goal features, and discount 1. Path sums are computed on the CPU.
    starts, goals : (m,)
        Pairs for which `is_finite` and `loop_features` examine all path sums.
    """

    def __init__(self, mdp: MDP, starts: IntArray, goals: IntArray) -> None:
        super().__init__(mdp)
        self._general = GoalValues(mdp.without_goal_features)
        self._by_start = any(feature.by_start for feature in mdp.goal_features)
        self._known = self._distinguish(starts, goals)
        self._solutions: dict[tuple[bytes, int, int], GoalPathSums] = {}

    @property
    def symbolic(self) -> SymbolicFactorisation:
        """Elimination order, fill-in and elimination tree."""
        return self._general.symbolic

    def edge_log_weights(self, theta: FloatArray) -> FloatArray:
        """Return the part (E,) of the edge log-weights that does not depend on the goal."""
        return self._general.edge_log_weights(theta[: theta.size - len(self.mdp.goal_features)])

    def edge_log_weights_at(self, theta: FloatArray, starts: IntArray | None, goals: IntArray) -> FloatArray:
        """Return the edge log-weights (m, E) for pairs (m,)."""
        log_w = np.repeat(self.edge_log_weights(theta)[None], goals.size, axis=0)
        for feature, parameter in zip(self.mdp.goal_features, theta[-len(self.mdp.goal_features) :], strict=True):
            log_w += parameter * self._values_of(feature, starts, goals)
        return log_w

    def solve_at(self, theta: FloatArray, start: int | None, goal: int, margin: float = 0.0) -> GoalPathSums:
        """See `GoalValues.solve_at`; recent results are cached."""
        key = theta.tobytes() + repr(margin).encode(), -1 if start is None or not self._by_start else start, goal
        solution = self._solutions.get(key)
        if solution is None:
            origin = None if start is None else np.array([start])
            log_w = self.edge_log_weights_at(theta, origin, np.array([goal]))[0]
            solution = self._general.solve_weights(log_w, margin)
            if len(self._solutions) >= _CACHED:
                self._solutions.clear()
            self._solutions[key] = solution
        return solution

    def is_finite(self, theta: FloatArray, margin: float = 0.0) -> bool:
        """Return True if the path sums of all pairs are finite at theta (d,)."""
        return self._first_divergent(theta, margin) is None

    def loop_features(self, theta: FloatArray, margin: float = 0.0) -> tuple[float, FloatArray] | None:
        """See `GoalValues.loop_features`; the loops of the first divergent condition are used."""
        condition = self._first_divergent(theta, margin)
        if condition is None:
            return None
        start, goal = (part[[condition]] for part in self._known[:2])
        loop = self._general.loop_of_weights(self.edge_log_weights_at(theta, start, goal)[0], margin)
        if loop is None:
            return None
        level, flow = loop
        own = [flow @ self._values_of(feature, start, goal)[0] for feature in self.mdp.goal_features]
        return level, np.append(flow_features(self._general.mdp, flow), own)

    def feature_totals(self) -> FloatArray:
        """See `GoalValues.feature_totals`."""
        own = [float(feature.values.sum()) for feature in self.mdp.goal_features]
        return np.append(flow_features(self._general.mdp, np.ones(self.mdp.n_edges)), own)

    def log_values(self, thetas: FloatArray, starts: IntArray, goals: IntArray) -> FloatArray:
        """See `GoalValues.log_values`."""
        return np.stack([self.pair_sums(theta, starts, goals).log_value for theta in thetas], axis=1)

    def pair_sums(
        self,
        theta: FloatArray,
        states: IntArray,
        goals: IntArray,
        weights: FloatArray | None = None,
        origins: IntArray | None = None,
    ) -> PairSums:
        """See `GoalValues.pair_sums`."""
        sums = self._sum(theta, states, goals, weights, 0.0, states if origins is None else origins)
        return PairSums(sums.log_value, sums.flow)

    def _sum_pairs(
        self, theta: FloatArray, starts: IntArray, goals: IntArray, weights: FloatArray, margin: float
    ) -> tuple[float, FloatArray]:
        used = np.flatnonzero(weights)
        try:
            sums = self._sum(theta, starts[used], goals[used], weights[used], margin, starts[used])
        except (DivergentPartition, NumericalError):
            return np.inf, np.zeros_like(theta)
        assert sums.flow is not None
        gradient = np.append(flow_features(self._general.mdp, sums.flow), sums.by_goal)
        return float(weights[used] @ sums.log_value), gradient

    def _sum(
        self,
        theta: FloatArray,
        states: IntArray,
        goals: IntArray,
        weights: FloatArray | None,
        margin: float,
        origins: IntArray,
    ) -> _Sums:
        conditions = self._distinguish(origins, goals)
        order = np.argsort(conditions.of_pair, kind="stable")
        first = np.searchsorted(conditions.of_pair[order], np.arange(conditions.goals.size + 1))
        blocks = [slice(i, min(i + _WIDTH, conditions.goals.size)) for i in range(0, conditions.goals.size, _WIDTH)]

        def one(block: slice) -> tuple[IntArray, _Sums]:
            mine = order[first[block.start] : first[block.stop]]
            column = conditions.of_pair[mine] - block.start
            given = None if weights is None else weights[mine]
            starts = conditions.starts[block] if self._by_start else None
            return mine, self._sum_block(theta, starts, conditions.goals[block], states[mine], column, given, margin)

        total = _Sums(np.full(goals.size, -np.inf), None, np.zeros(len(self.mdp.goal_features)))
        if weights is not None:
            total = total._replace(flow=np.zeros(self.mdp.n_edges))
        # The blocks do not depend on the number of threads, and are added in their order.
        with one_thread("blas"), ThreadPoolExecutor(int(numba.get_num_threads())) as pool:
            for mine, part in pool.map(one, blocks):
                total.log_value[mine] = part.log_value
                if total.flow is not None and part.flow is not None:
                    np.add(total.flow, part.flow, out=total.flow)
                    np.add(total.by_goal, part.by_goal, out=total.by_goal)
        return total

    def _sum_block(
        self,
        theta: FloatArray,
        starts: IntArray | None,
        goals: IntArray,
        states: IntArray,
        column: NDArray[np.intp],
        weights: FloatArray | None,
        margin: float,
    ) -> _Sums:
        """Return the sums from `states` (m,) under the conditions column (m,) of at most `_WIDTH` goals."""
        symbolic = self.symbolic
        log_w = self.edge_log_weights_at(theta, starts, goals)
        factors = _Columns(symbolic, log_w, margin)
        if np.any(factors.divergent >= 0):
            raise divergent(symbolic.state_at(int(factors.divergent[np.argmax(factors.divergent >= 0)])))
        to_goals = factors.solve(symbolic.rank[goals])
        total = to_goals[symbolic.rank[states], column]
        own = to_goals[symbolic.rank[goals], np.arange(goals.size)]
        done = factors.accurate[column] & is_accurate(total)
        log_value = np.full(states.size, -np.inf)
        log_value[done] = np.log(total[done] / own[column[done]])
        flow = None if weights is None else np.zeros((goals.size, self.mdp.n_edges))
        if flow is not None and weights is not None and done.any():
            right = np.zeros_like(to_goals)
            np.add.at(right, (symbolic.rank[states[done]], column[done]), weights[done] / total[done])
            by_goal = np.bincount(column[done], weights=weights[done], minlength=goals.size)
            right[symbolic.rank[goals], np.arange(goals.size)] -= by_goal / own
            factors.substitute(right, transposed=True)
            flow += factors.weight * right[symbolic.rank[self.mdp.src]].T * to_goals[symbolic.rank[self.mdp.dst]].T
            np.maximum(flow, 0.0, out=flow)
        for j in np.unique(column[~done]):  # sums that underflow or overflow in linear arithmetic
            mine = np.flatnonzero(~done & (column == j))
            given = None if weights is None else weights[mine]
            rest = self._general.solve_weights(log_w[j], margin).pair_sums(
                states[mine], np.full(mine.size, goals[j]), given
            )
            log_value[mine] = rest.log_value
            if flow is not None and rest.flow is not None:
                flow[j] += rest.flow
        if flow is None:
            return _Sums(log_value, None, np.empty(0))
        own_features = [float(np.sum(flow * self._values_of(f, starts, goals))) for f in self.mdp.goal_features]
        return _Sums(log_value, flow.sum(axis=0), np.array(own_features))

    def _values_of(self, feature: GoalFeature, starts: IntArray | None, goals: IntArray) -> FloatArray:
        """Return the values (m, E) of a goal feature for pairs (m,)."""
        rows: Any = feature.values[feature.rows(starts, goals)]
        dense = np.asarray(rows if isinstance(rows, np.ndarray) else rows.toarray())
        return np.asarray(dense[:, self.mdp.dst]) if feature.of == "state" else dense

    def _distinguish(self, starts: IntArray, goals: IntArray) -> Conditions:
        keys = (starts << 32) | goals if self._by_start else goals
        distinct, index = np.unique(keys, return_inverse=True)
        if self._by_start:
            return Conditions(distinct >> 32, distinct & (2**32 - 1), index)
        return Conditions(np.full(distinct.size, -1), distinct, index)

    def _first_divergent(self, theta: FloatArray, margin: float) -> int | None:
        """Return the index of a condition with an infinite path sum, or None."""
        starts, goals, _ = self._known
        for first in range(0, goals.size, _WIDTH):
            block = slice(first, first + _WIDTH)
            log_w = self.edge_log_weights_at(theta, starts[block] if self._by_start else None, goals[block])
            rank = _Columns(self.symbolic, log_w, margin).divergent
            if np.any(rank >= 0):
                return first + int(np.argmax(rank >= 0))
        return None


class _Sums(NamedTuple):
    """Path sums (m,), edge counts (E,) or None, and expected goal features (g,)."""

    log_value: FloatArray
    flow: FloatArray | None
    by_goal: FloatArray


class _Columns:
    """Factors of I - W in linear arithmetic for B weightings of a graph, given as log-weights (B, E).

    Attributes
    ----------
    weight : (B, E)
    divergent : (B,)
        Rank of the first state with cycles of weight exp(-margin) or more, or -1.
    accurate : (B,) bool
        True if no sum over walks exceeds the limit of linear arithmetic.
    """

    def __init__(self, symbolic: SymbolicFactorisation, log_w: FloatArray, margin: float) -> None:
        self._symbolic, width = symbolic, len(log_w)
        with np.errstate(over="ignore"):
            self.weight = np.exp(log_w)
        self._value, self._star = np.zeros((symbolic.n_values, width)), np.zeros((symbolic.rank.size, width))
        linear.load_columns(self.weight, symbolic.slot, self._value)
        graph = symbolic.up_ptr, symbolic.up, symbolic.low_ptr, symbolic.low, symbolic.place
        self.divergent = linear.eliminate_columns(*graph, self._value, self._star, math.exp(-margin))
        largest = np.ones((symbolic.rank.size, width))
        self.substitute(largest)
        highest = np.max(log_w, axis=1, initial=-np.inf)
        with np.errstate(divide="ignore", invalid="ignore"):
            sums = np.log(np.max(largest, axis=0, initial=1.0))
        self.accurate = is_within_limit(highest) & is_within_limit(sums)
        # Overflow may be mistaken for divergence; logarithms decide.
        for b in np.flatnonzero((self.divergent >= 0) & ~is_within_limit(highest)):
            self.divergent[b] = GoalValues.divergent_rank(symbolic, log_w[b], margin)

    def solve(self, ranks: IntArray) -> FloatArray:
        """Return the columns (S, B) of G at `ranks` (B,)."""
        right = np.zeros_like(self._star)
        right[ranks, np.arange(ranks.size)] = 1.0
        self.substitute(right)
        return right

    def substitute(self, right: FloatArray, transposed: bool = False) -> None:
        """Overwrite right (S, B) with G right or G' right."""
        linear.solve_columns(self._symbolic.up_ptr, self._symbolic.up, self._value, self._star, right, transposed)


def link_size(
    mdp: MDP, theta: ArrayLike, starts: ArrayLike, goals: ArrayLike, *, of: str = "state", name: str = "link size"
) -> GoalFeature:
    """Return the link size attribute of pairs (m,) of a start and a goal (Fosgerau, Frejinger and Karlström 2013).

    The link size of a link is its expected flow per trip between the pair, under the recursive logit model with a fixed
    parameter vector. Links that most paths of a pair share have large values. The parameter of the attribute corrects
    the utility of overlapping paths.

    Parameters
    ----------
    mdp : MDP
        Its features that depend on the goal are ignored.
    theta : (d,)
        Parameters of the features that do not depend on the goal.
    starts, goals : (m,)
        For example, the first and last states of demonstrations. Repeated pairs are computed once.
    of : {"state", "edge"}
        "state" if links are states, as in networks of turns; "edge" if links are edges.

    Examples
    --------
    Two of three paths from state 0 to state 4 share state 1.

    >>> mdp = MDP.from_edges([0, 0, 1, 1, 2, 3, 5], [1, 2, 3, 5, 4, 4, 4], state_features=[0, 0, 1, 0, 0, 0])
    >>> link_size(mdp, [0.0], [0], [4]).values.toarray().round(3)
    array([[0.   , 0.667, 0.333, 0.333, 1.   , 0.333]])
    """
    general = mdp.without_goal_features
    checked = general.check_thetas(theta, "theta")[0]
    pairs = np.unique(np.stack([np.asarray(goals, dtype=np.int64), np.asarray(starts, dtype=np.int64)]), axis=1)
    sums, rows = GoalValues(general).solve_cached(checked), list[Any]()
    for goal, start in pairs.T.tolist():
        flow = sums.flow_between(start, goal)
        values = np.bincount(general.dst, weights=flow, minlength=general.n_states) if of == "state" else flow
        rows.append(sparse.csr_array(np.where(values > _LEAST_FLOW, values, 0.0)[None]))
    return GoalFeature(name, sparse.csr_array(sparse.vstack(rows, format="csr")), pairs[0], pairs[1], of)
