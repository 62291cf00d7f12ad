"""`GoalValues`: partition functions over paths to a goal at discount 1, from one elimination for all goals.

The paths from s to their first arrival in g have the total weight beta_g(s) = G(s, g) / G(g, g). G = (I - W)^-1 is the
Green's function of the edge weights W: G(s, t) is the weight of all walks from s to t.
"""

from __future__ import annotations

import math
import threading
import weakref
from collections import OrderedDict
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from limiirl._typing import FloatArray, IntArray
from limiirl.errors import DivergentPartition, InvalidParameter, NumericalError
from limiirl.kernels.elimination import numeric as kernel
from limiirl.kernels.elimination.symbolic import SymbolicFactorisation, factorise
from limiirl.mdp import MDP, expected_features

# Sums over walks of at least _NEAR are accurate in linear arithmetic if no sum exceeds _LARGEST: the error due to
# underflow is below 1e-308 times the other sums. Other pairs use a diagonal scaling per goal.
_NEAR = 1e-240
_LARGEST = 1e30
# Number of cached solutions per MDP, for the intents of a mixture.
_CACHE_SIZE = 8


class PairSums(NamedTuple):
    """Path sums of pairs: log beta_g(s) (m,), -inf if g is unreachable, and weighted expected edge counts (E,)."""

    log_value: FloatArray
    flow: FloatArray | None


class GoalValues:
    """Path sums of an MDP with discount 1, with its symbolic factorisation.

    The `last` states with the highest indices are eliminated last; see `factorise`. `batched` is True if a batch of
    thetas costs less than separate calls.

    Examples
    --------
    Paths lead from 0 to 3 via 1 or 2; the edge from 1 back to 0 has weight 1/2.

    >>> mdp = MDP.from_edges([0, 0, 1, 1, 2], [1, 2, 0, 3, 3], state_features=[[1], [0], [0], [0]])
    >>> np.exp(GoalValues(mdp).solve(np.log([0.5])).values_to(3)).round(3)  # b0 = b1 + b2, b1 = b0 / 2 + 1
    array([4., 3., 1., 1.])
    """

    batched = False

    def __init__(self, mdp: MDP, last: int = 0) -> None:
        if mdp.gamma != 1.0:
            raise InvalidParameter.of(
                "gamma", mdp.gamma, "must be 1 for paths of unbounded length", remedy="Use mdp.replace(gamma=1.0)."
            )
        self.mdp = mdp
        factorisations = _FACTORISATIONS.setdefault(mdp, {})
        if last not in factorisations:
            edges = mdp.src.astype(np.int64), mdp.dst.astype(np.int64)
            factorisations[last] = _CachedFactorisation(factorise(mdp.n_states, *edges, last), OrderedDict())
        self.symbolic, self._recent = factorisations[last].symbolic, factorisations[last].recent

    def edge_log_weights(self, theta: FloatArray) -> FloatArray:
        """Return the edge log-weights (E,): log P plus the rewards of the edge and its target state."""
        with np.errstate(over="ignore", invalid="ignore"):
            node, edge = self.mdp.rewards(theta)
            log_w = np.log(self.mdp.prob) + node[self.mdp.dst, 0]
            if edge is not None:
                log_w = log_w + edge[:, 0]
        if not np.all(np.isfinite(log_w)):
            e = int(np.argmin(np.isfinite(log_w)))
            raise NumericalError(
                f"The reward of edge {e} (state {self.mdp.src[e]} to {self.mdp.dst[e]}) is not finite. Use smaller "
                "parameters or features.",
                parameter="theta",
                value=theta,
                index=e,
            )
        return np.asarray(log_w)

    def is_finite(self, theta: FloatArray, margin: float = 0.0) -> bool:
        """Return True if all path sums are finite at theta (d,) and all cycles weigh less than exp(-margin)."""
        return self._eliminate(self.edge_log_weights(theta), margin)[2] < 0

    def solve(self, theta: FloatArray, margin: float = 0.0) -> GoalPathSums:
        """Return the path sums at theta (d,); raise `DivergentPartition` if a cycle weighs exp(-margin) or more."""
        log_w = self.edge_log_weights(theta)
        value, star, divergent_rank = self._eliminate(log_w, margin)
        if divergent_rank >= 0:
            raise divergent(self.symbolic, divergent_rank)
        return GoalPathSums(self, log_w, value, star)

    def divergent_loop(self, theta: FloatArray, margin: float = 0.0) -> tuple[float, FloatArray] | None:
        """Return the log-weight of the cycles at a state with a divergent sum, and their expected edge counts (E,).

        The cycles visit only states that are eliminated before that state. Their log-weight is a convex function of the
        edge log-weights with the counts as its gradient. It is at least -margin at theta (d,), and less at every
        feasible theta. Returns None if theta is feasible.
        """
        log_w, symbolic = self.edge_log_weights(theta), self.symbolic
        value, star, divergent_rank = self._eliminate(log_w, margin)
        if divergent_rank < 0:
            return None
        entry, adjoint = 2 * symbolic.up.size + divergent_rank, np.zeros(symbolic.n_values)
        adjoint[entry] = 1.0
        _adjoint(symbolic, value, star, adjoint, np.zeros_like(star))
        return float(value[entry]), _edge_counts(symbolic, log_w, value, adjoint)

    def log_values(self, thetas: FloatArray, starts: IntArray, goals: IntArray) -> FloatArray:
        """Return log beta_g(s) (m, K) of pairs (m,) under thetas (K, d); raise `DivergentPartition` if infinite."""
        log_beta = np.empty((starts.size, thetas.shape[0]))
        for k, theta in enumerate(thetas):
            log_beta[:, k] = self.solve(theta).pair_sums(starts, goals).log_value
        return log_beta

    def sum_pairs(
        self, thetas: FloatArray, starts: IntArray, goals: IntArray, weights: FloatArray, margin: float = 0.0
    ) -> tuple[FloatArray, FloatArray]:
        """Return the weighted sums (K,) of log beta over pairs (m,), for weights (m, K), and their gradients (K, d).

        A sum is inf, with gradient 0, if `solve` raises an error. Pairs of weight 0 are ignored.
        """
        parts = [self._sum_pairs(theta, starts, goals, weights[:, k], margin) for k, theta in enumerate(thetas)]
        return np.array([value for value, _ in parts]), np.array([grad for _, grad in parts]).reshape(thetas.shape)

    def _sum_pairs(
        self, theta: FloatArray, starts: IntArray, goals: IntArray, weights: FloatArray, margin: float
    ) -> tuple[float, FloatArray]:
        used = np.flatnonzero(weights)
        try:
            sums = self.solve(theta, margin).pair_sums(starts[used], goals[used], weights[used])
        except (DivergentPartition, NumericalError):
            return np.inf, np.zeros_like(theta)
        assert sums.flow is not None
        return float(weights[used] @ sums.log_value), flow_features(self.mdp, sums.flow)

    def solve_cached(self, theta: FloatArray) -> GoalPathSums:
        """Return `solve(theta)` from a cache of recent solutions."""
        key = theta.tobytes()
        with _LOCK:
            arrays = self._recent.pop(key, None)
        if arrays is None:
            solution = self.solve(theta)
            arrays = (solution.log_w, solution._value, solution._star)
        with _LOCK:
            self._recent[key] = arrays
            while len(self._recent) > _CACHE_SIZE:
                self._recent.popitem(last=False)
        return GoalPathSums(self, *arrays)

    def _eliminate(self, log_w: FloatArray, margin: float) -> tuple[FloatArray, FloatArray, int]:
        symbolic = self.symbolic
        value, star = kernel.load(log_w, symbolic.slot, symbolic.n_values), np.zeros(self.mdp.n_states)
        divergent_rank = kernel.eliminate(
            symbolic.up_ptr, symbolic.up, symbolic.low_ptr, symbolic.low, symbolic.place, value, star, margin
        )
        return value, star, int(divergent_rank)


class _CachedFactorisation(NamedTuple):
    """Symbolic factorisation and recent solutions of an MDP, without a reference to the MDP."""

    symbolic: SymbolicFactorisation
    recent: OrderedDict[bytes, tuple[FloatArray, FloatArray, FloatArray]]


_FACTORISATIONS: weakref.WeakKeyDictionary[MDP, dict[int, _CachedFactorisation]] = weakref.WeakKeyDictionary()
_LOCK = threading.Lock()


class GoalPathSums:
    """Path sums at one theta, returned by `GoalValues.solve`."""

    def __init__(self, values: GoalValues, log_w: FloatArray, value: FloatArray, star: FloatArray) -> None:
        self.mdp, self.symbolic = values.mdp, values.symbolic
        self.log_w, self._value, self._star = log_w, value, star
        self._largest: float | None = None

    def values_to(self, goal: int) -> FloatArray:
        """Return log beta_g(s) (S,) of all states: 0 at the goal, and -inf if the goal is unreachable."""
        log_green = self._log_green(goal)[self.symbolic.rank]
        return np.asarray(log_green - log_green[goal])

    def policy_to(self, goal: int, log_value: FloatArray | None = None) -> FloatArray:
        """Return the probability (E,) of each edge given its source and the goal; 0 if the goal is unreachable."""
        log_beta = self.values_to(goal) if log_value is None else log_value
        here = log_beta[self.mdp.src]
        on = (here > -np.inf) & (self.mdp.src != goal)
        prob = np.zeros(self.mdp.n_edges)
        prob[on] = np.exp(self.log_w[on] + log_beta[self.mdp.dst[on]] - here[on])
        return prob

    def pair_sums(self, starts: IntArray, goals: IntArray, weights: FloatArray | None = None) -> PairSums:
        """Return the path sums of pairs (m,) of starts and goals, with edge counts if weights (m,) are not None."""
        start, goal = self.symbolic.rank[starts], self.symbolic.rank[goals]
        flow = None if weights is None else _FlowAdjoint(self)
        log_value = np.full(start.size, -np.inf)
        done = np.zeros(start.size, dtype=bool)
        if self._is_within_limit():
            done = self._sum_accurate(start, goal, np.zeros(self.mdp.n_states), log_value, weights, flow)
        for g in np.unique(goal[~done]):
            # Scaled by the sums over walks to the goal, the edge weights are probabilities and these sums are 1.
            mine = np.flatnonzero(~done & (goal == g))
            shift = self._log_green(int(np.flatnonzero(self.symbolic.rank == g)[0]))
            mine = mine[shift[start[mine]] > -np.inf]
            if mine.size:
                part, given = log_value[mine], None if weights is None else weights[mine]
                self._sum_accurate(start[mine], goal[mine], shift, part, given, flow)
                log_value[mine] = part
        return PairSums(log_value, None if flow is None else flow.by_edge())

    def _sum_accurate(
        self,
        start: IntArray,
        goal: IntArray,
        shift: FloatArray,
        log_value: FloatArray,
        weights: FloatArray | None,
        flow: _FlowAdjoint | None,
    ) -> NDArray[np.bool_]:
        """Set `log_value` (m,) and add to `flow` for the pairs that are accurate under a scaling; return their mask."""
        symbolic, stars = self.symbolic, np.exp(self._star)
        moves = kernel.scale_diagonally(symbolic.up_ptr, symbolic.up, self._value, self._star, shift)
        tree = (symbolic.up_ptr, symbolic.level, symbolic.parent, symbolic.depth)
        n = symbolic.up.size
        ends, end_of = np.unique(goal, return_inverse=True)
        begins = np.unique(np.concatenate([start, goal]))
        up_ptr, down_ptr = _pointers(symbolic.depth[begins]), _pointers(symbolic.depth[ends])
        up_sum, down_sum = np.empty(up_ptr[-1]), np.empty(down_ptr[-1])
        kernel.solve_triangular(*tree, moves[:n], begins, up_ptr, up_sum)
        kernel.solve_triangular(*tree, moves[n:], ends, down_ptr, down_sum)
        # The sums from each start to its goal are followed by the sums from each goal to itself.
        pair = (np.concatenate([start, ends]), np.concatenate([goal, ends]))
        offsets = (up_ptr[np.searchsorted(begins, pair[0])], down_ptr[np.concatenate([end_of, np.arange(ends.size)])])
        total = kernel.combine(symbolic.parent, symbolic.depth, stars, *pair, *offsets, up_sum, down_sum)
        m = start.size
        done = is_accurate(total[:m])
        own = total[m:][end_of]
        log_value[done] = np.log(total[:m][done] / own[done]) + shift[start[done]] - shift[goal[done]]
        if flow is None or weights is None:
            return done
        counted = np.where(done, weights, 0.0)
        by_sum = np.concatenate([counted, -np.bincount(end_of, weights=counted, minlength=ends.size)])
        by_sum[by_sum != 0.0] /= total[by_sum != 0.0]
        up_adjoint, down_adjoint, adjoint = np.zeros_like(up_sum), np.zeros_like(down_sum), np.zeros(2 * n)
        kernel.combine_adjoint(
            symbolic.parent,
            symbolic.depth,
            stars,
            *pair,
            *offsets,
            up_sum,
            down_sum,
            by_sum,
            up_adjoint,
            down_adjoint,
            flow.star,
        )
        kernel.solve_triangular_adjoint(*tree, moves[:n], begins, up_ptr, up_sum, up_adjoint, adjoint[:n])
        kernel.solve_triangular_adjoint(*tree, moves[n:], ends, down_ptr, down_sum, down_adjoint, adjoint[n:])
        flow.add(adjoint * moves)
        return done

    def _log_green(self, goal: int) -> FloatArray:
        """Return log G(s, goal) (S,) in elimination order."""
        right = np.full(self.mdp.n_states, -np.inf)
        right[self.symbolic.rank[goal]] = 0.0
        kernel.solve(self.symbolic.up_ptr, self.symbolic.up, self._value, self._star, right)
        return right

    def _is_within_limit(self) -> bool:
        """Return True if the sums over all walks from each state are within the limit of linear arithmetic."""
        if self._largest is None:
            right = np.zeros(self.mdp.n_states)
            kernel.solve(self.symbolic.up_ptr, self.symbolic.up, self._value, self._star, right)
            self._largest = float(np.max(right))
        return bool(is_within_limit(self._largest))


class _FlowAdjoint:
    """Adjoints of the eliminated values, accumulated over pairs and propagated to the edges of the MDP."""

    def __init__(self, solution: GoalPathSums) -> None:
        self._solution = solution
        self._moves, self.star = np.zeros(solution.symbolic.n_values), np.zeros(solution.mdp.n_states)

    def add(self, by_move: FloatArray) -> None:
        """Add the adjoints (2 n,) of up and down edges, whose weights include the Kleene star of their lower state."""
        symbolic, n = self._solution.symbolic, self._solution.symbolic.up.size
        self._moves[: 2 * n] += by_move
        total = np.concatenate([[0.0], np.cumsum(by_move[:n] + by_move[n:])])
        self.star += np.diff(total[symbolic.up_ptr])

    def by_edge(self) -> FloatArray:
        """Return the expected edge counts (E,): the derivatives with respect to the edge log-weights."""
        solution, symbolic = self._solution, self._solution.symbolic
        _adjoint(symbolic, solution._value, solution._star, self._moves, self.star)
        # Subtracting walks beyond the goal may leave rounding errors below 0.
        return np.maximum(_edge_counts(symbolic, solution.log_w, solution._value, self._moves), 0.0)


def is_accurate(total: FloatArray) -> NDArray[np.bool_]:
    """Return the mask (m,) of sums over walks that are accurate in linear arithmetic."""
    return np.asarray(total >= _NEAR)


def is_within_limit(log_sums: FloatArray | float) -> Any:
    """Return True if a log-sum over all walks from a state is within the limit of linear arithmetic."""
    return log_sums <= math.log(_LARGEST)


def divergent(symbolic: SymbolicFactorisation, rank: int) -> DivergentPartition:
    """Return the error for an infinite sum at the state with a given rank in the elimination order."""
    state = int(np.flatnonzero(symbolic.rank == rank)[0])
    return DivergentPartition(
        f"The partition function over paths of unbounded length is infinite: cycles through state {state} have "
        "weight 1 or more. Use lower rewards on cycles.",
        parameter="theta",
        index=state,
    )


def flow_features(mdp: MDP, flow: FloatArray) -> FloatArray:
    """Return the features (d,) of edge counts (E,), including the features of target states."""
    node = np.zeros((mdp.n_states, 1))
    np.add.at(node[:, 0], mdp.dst, flow)
    return np.asarray(expected_features(mdp, node, flow[:, None])[0])


def _adjoint(
    symbolic: SymbolicFactorisation, value: FloatArray, star: FloatArray, adjoint: FloatArray, star_adjoint: FloatArray
) -> None:
    kernel.eliminate_adjoint(
        symbolic.up_ptr, symbolic.up, symbolic.low_ptr, symbolic.low, symbolic.place, value, star, adjoint, star_adjoint
    )


def _edge_counts(
    symbolic: SymbolicFactorisation, log_w: FloatArray, value: FloatArray, adjoint: FloatArray
) -> FloatArray:
    """Return the derivatives (E,) with respect to the edge log-weights, from the adjoints of eliminated values."""
    return np.asarray(adjoint[symbolic.slot] * np.exp(log_w - value[symbolic.slot]))


def _pointers(depth: IntArray) -> IntArray:
    return np.concatenate([[0], np.cumsum(depth + 1)])
