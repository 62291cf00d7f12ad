"""`GoalValues`: partition functions over paths to a goal at discount 1, from one elimination for all goals.

The paths from s to their first arrival in g have the total weight beta_g(s) = G(s, g) / G(g, g). Here G = (I - W)^-1 is
the Green's function of the edge weights W, and G(s, t) is the total weight of all walks from s to t.
"""

from __future__ import annotations

import math
import threading
import weakref
from collections import OrderedDict
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from limiirl._typing import FloatArray, IntArray
from limiirl.errors import DivergentPartition, InvalidParameter, NumericalError
from limiirl.kernels.elimination import linear
from limiirl.kernels.elimination import numeric as kernel
from limiirl.kernels.elimination.symbolic import SymbolicFactorisation, factorise
from limiirl.mdp import MDP, expected_features

# If no sum over walks exceeds _LARGEST, sums of at least _NEAR are accurate in linear arithmetic, because underflow
# changes a sum by at most 1e-308 _LARGEST^2 per operation. Smaller sums are computed in log arithmetic, with one
# diagonal scaling per goal.
_NEAR = 1e-220
_LARGEST = 1e30
# Number of cached solutions per MDP; a mixture has one per intent.
_CACHE_SIZE = 8


class PairSums(NamedTuple):
    """Path sums of pairs: log beta_g(s) (m,), or -inf if g is unreachable, and weighted expected edge counts (E,)."""

    log_value: FloatArray
    flow: FloatArray | None


class GoalValues:
    """Path sums of an MDP with discount 1, with its symbolic factorisation.

    The `last` states with the highest indices are eliminated last; see `factorise`. The attribute `batched` is True if
    a batch of thetas costs less than separate calls.

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
        self.mdp, self._last = mdp, last

    @cached_property
    def _cached(self) -> _CachedFactorisation:
        factorisations = _FACTORISATIONS.setdefault(self.mdp, {})
        if self._last not in factorisations:
            edges = self.mdp.src.astype(np.int64), self.mdp.dst.astype(np.int64)
            symbolic = factorise(self.mdp.n_states, *edges, self._last)
            factorisations[self._last] = _CachedFactorisation(symbolic, OrderedDict())
        return factorisations[self._last]

    @property
    def symbolic(self) -> SymbolicFactorisation:
        """Elimination order, fill-in and elimination tree."""
        return self._cached.symbolic

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
        """Return True if all path sums are finite at theta (d,) and cycles have a total weight below exp(-margin)."""
        return _Factors(self.symbolic, self.edge_log_weights(theta), margin).divergent_rank < 0

    def solve(self, theta: FloatArray, margin: float = 0.0) -> GoalPathSums:
        """Return the path sums at theta (d,); raise `DivergentPartition` if cycles have weight exp(-margin) or more."""
        return self.solve_weights(self.edge_log_weights(theta), margin)

    def solve_weights(self, log_w: FloatArray, margin: float = 0.0) -> GoalPathSums:
        """Return the path sums for edge log-weights (E,); see `solve`."""
        factors = _Factors(self.symbolic, log_w, margin)
        if factors.divergent_rank >= 0:
            raise divergent(self.symbolic.state_at(factors.divergent_rank))
        return GoalPathSums(self, factors)

    def solve_at(self, theta: FloatArray, start: int | None, goal: int) -> GoalPathSums:
        """Return the path sums at theta (d,) for paths from `start` to `goal`, on which only goal features depend."""
        del start, goal
        return self.solve_cached(theta)

    @staticmethod
    def divergent_rank(symbolic: SymbolicFactorisation, log_w: FloatArray, margin: float) -> int:
        """Return the rank of the first state with cycles of weight exp(-margin) or more, or -1."""
        return _Factors(symbolic, log_w, margin).divergent_rank

    def divergent_loop(self, theta: FloatArray, margin: float = 0.0) -> tuple[float, FloatArray] | None:
        """Return the log-weight of the cycles through a divergent state, and their expected edge counts (E,).

        Apart from the state itself, the cycles visit only states that are eliminated before it. Their log-weight c is a
        convex function of the edge log-weights, and the counts are its gradient. At theta, c >= -margin; at every
        feasible theta, c < -margin. The result is None if theta is feasible.
        """
        return self.loop_of_weights(self.edge_log_weights(theta), margin)

    def loop_of_weights(self, log_w: FloatArray, margin: float = 0.0) -> tuple[float, FloatArray] | None:
        """Return `divergent_loop` for edge log-weights (E,)."""
        factors = _Factors(self.symbolic, log_w, margin)
        return None if factors.divergent_rank < 0 else factors.loop()

    def loop_features(self, theta: FloatArray, margin: float = 0.0) -> tuple[float, FloatArray] | None:
        """Return the log-weight c of `divergent_loop`, and its gradient (d,) with respect to theta."""
        loop = self.divergent_loop(theta, margin)
        return None if loop is None else (loop[0], flow_features(self.mdp, loop[1]))

    def feature_totals(self) -> FloatArray:
        """Return the features (d,) summed over all edges."""
        return flow_features(self.mdp, np.ones(self.mdp.n_edges))

    def expected_features(self, theta: FloatArray, starts: IntArray, goals: IntArray) -> FloatArray:
        """Return E[F | s, g] (m, d) for pairs (m,), without the features of the start; one solution per pair."""
        mdp = self.mdp.without_goal_features
        expected = np.empty((starts.size, self.mdp.n_features))
        for i, (start, goal) in enumerate(zip(starts.tolist(), goals.tolist(), strict=True)):
            flow = self.solve_at(theta, start, goal).flow_between(start, goal)
            expected[i, : mdp.n_features] = flow_features(mdp, flow)
            for j, feature in enumerate(self.mdp.goal_features, mdp.n_features):
                row = int(feature.rows(starts[[i]], goals[[i]])[0])
                expected[i, j] = flow @ feature.of_edges(row, mdp.dst)
        return expected

    def pair_sums(
        self,
        theta: FloatArray,
        states: IntArray,
        goals: IntArray,
        weights: FloatArray | None = None,
        origins: IntArray | None = None,
    ) -> PairSums:
        """Return the path sums from states (m,) to goals (m,) at theta (d,); see `GoalPathSums.pair_sums`.

        `origins` (m,), by default the states, are the starts for features that depend on the start.
        """
        del origins
        return self.solve_cached(theta).pair_sums(states, goals, weights)

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

        If `solve` raises an error for a theta, its sum is inf and the gradient 0. Pairs of weight 0 are ignored.
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
            factors = self._cached.recent.pop(key, None)
        if factors is None:
            factors = self.solve(theta)._factors
        with _LOCK:
            recent = self._cached.recent
            recent[key] = factors
            while len(recent) > _CACHE_SIZE:
                recent.popitem(last=False)
        return GoalPathSums(self, factors)


class _Factors:
    """Numeric factorisation at one theta, in linear arithmetic if that is accurate, otherwise in log arithmetic.

    Attributes
    ----------
    log_w : (E,)
        Edge log-weights.
    divergent_rank : int
        Rank of the first state at which cycles have weight exp(-margin) or more, or -1.
    linear : (values, stars) or None
        Factors in linear arithmetic; None if a sum over walks may exceed `_LARGEST`.
    """

    def __init__(self, symbolic: SymbolicFactorisation, log_w: FloatArray, margin: float) -> None:
        self.symbolic, self.log_w, self._margin = symbolic, log_w, margin
        self.linear, self.divergent_rank = self._eliminate()
        if self.linear is None and self.divergent_rank < 0:
            self.divergent_rank = self._log_factors[2]

    def _eliminate(self) -> tuple[tuple[FloatArray, FloatArray] | None, int]:
        if self.log_w.size and not is_within_limit(float(np.max(self.log_w))):
            return None, -1
        symbolic = self.symbolic
        value, star = linear.load(np.exp(self.log_w), symbolic.slot, symbolic.n_values), np.zeros(symbolic.rank.size)
        graph = symbolic.up_ptr, symbolic.up, symbolic.low_ptr, symbolic.low, symbolic.place
        rank = int(linear.eliminate(*graph, value, star, math.exp(-self._margin)))
        if rank >= 0:
            return (value, star), rank
        largest = np.ones(symbolic.rank.size)
        linear.solve(symbolic.up_ptr, symbolic.up, value, star, largest)
        accurate = is_within_limit(math.log(float(np.max(largest, initial=1.0))))
        return ((value, star) if accurate else None), -1

    @property
    def log(self) -> tuple[FloatArray, FloatArray]:
        """Values and Kleene stars in log arithmetic, computed if needed."""
        return self._log_factors[:2]

    @cached_property
    def _log_factors(self) -> tuple[FloatArray, FloatArray, int]:
        symbolic = self.symbolic
        value, star = kernel.load(self.log_w, symbolic.slot, symbolic.n_values), np.zeros(symbolic.rank.size)
        graph = symbolic.up_ptr, symbolic.up, symbolic.low_ptr, symbolic.low, symbolic.place
        return value, star, int(kernel.eliminate(*graph, value, star, self._margin))

    def loop(self) -> tuple[float, FloatArray]:
        """Return the log-weight of the cycles at the divergent state, and their expected edge counts (E,)."""
        symbolic = self.symbolic
        entry, adjoint = 2 * symbolic.up.size + self.divergent_rank, np.zeros(symbolic.n_values)
        if self.linear is not None:
            weight = float(self.linear[0][entry])
            adjoint[entry] = 1.0 / weight
            return math.log(weight), self.propagate_linear(adjoint, np.zeros_like(self.linear[1]))
        adjoint[entry] = 1.0
        return float(self.log[0][entry]), self.propagate_log(adjoint, np.zeros_like(self.log[1]))

    def propagate_linear(self, adjoint: FloatArray, star_adjoint: FloatArray) -> FloatArray:
        """Return the derivatives (E,) with respect to the edge log-weights; see `linear.eliminate_adjoint`."""
        assert self.linear is not None
        symbolic = self.symbolic
        graph = symbolic.up_ptr, symbolic.up, symbolic.low_ptr, symbolic.low, symbolic.place
        linear.eliminate_adjoint(*graph, *self.linear, adjoint, star_adjoint)
        return np.asarray(adjoint[symbolic.slot] * np.exp(self.log_w))

    def propagate_log(self, adjoint: FloatArray, star_adjoint: FloatArray) -> FloatArray:
        """Return the derivatives (E,) with respect to the edge log-weights; see `numeric.eliminate_adjoint`."""
        symbolic, (value, star) = self.symbolic, self.log
        graph = symbolic.up_ptr, symbolic.up, symbolic.low_ptr, symbolic.low, symbolic.place
        kernel.eliminate_adjoint(*graph, value, star, adjoint, star_adjoint)
        return np.asarray(adjoint[symbolic.slot] * np.exp(self.log_w - value[symbolic.slot]))


class _CachedFactorisation(NamedTuple):
    """Symbolic factorisation and recent solutions of an MDP, without a reference to the MDP."""

    symbolic: SymbolicFactorisation
    recent: OrderedDict[bytes, _Factors]


_FACTORISATIONS: weakref.WeakKeyDictionary[MDP, dict[int, _CachedFactorisation]] = weakref.WeakKeyDictionary()
_LOCK = threading.Lock()


class GoalPathSums:
    """Path sums at one theta, returned by `GoalValues.solve`."""

    def __init__(self, values: GoalValues, factors: _Factors) -> None:
        self.mdp, self.symbolic, self._factors = values.mdp, values.symbolic, factors

    def log_weights(self) -> FloatArray:
        """Return the edge log-weights (E,)."""
        return self._factors.log_w

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
        prob[on] = np.exp(self.log_weights()[on] + log_beta[self.mdp.dst[on]] - here[on])
        return prob

    def pair_sums(self, starts: IntArray, goals: IntArray, weights: FloatArray | None = None) -> PairSums:
        """Return the path sums of pairs (m,) of starts and goals, with edge counts if weights (m,) are not None."""
        start, goal = self.symbolic.rank[starts], self.symbolic.rank[goals]
        flow = None if weights is None else np.zeros(self.mdp.n_edges)
        log_value, done = np.full(start.size, -np.inf), np.zeros(start.size, dtype=bool)
        if self._factors.linear is not None:
            done = self._sum_linear(start, goal, log_value, weights, flow)
        far = np.flatnonzero(~done)
        if far.size:
            given = None if weights is None else weights[far]
            log_value[far] = self._sum_by_goal(start[far], goal[far], given, flow)
        # The subtraction of walks beyond the goal may cause negative rounding errors.
        return PairSums(log_value, None if flow is None else np.maximum(flow, 0.0))

    def flow_between(self, start: int, goal: int) -> FloatArray:
        """Return the expected number of traversals (E,) of each edge on a path from `start` to `goal`."""
        s, g, factors = self.symbolic.rank[start], self.symbolic.rank[goal], self._factors
        if factors.linear is not None:
            to_goal, from_start = np.zeros((2, self.mdp.n_states))
            to_goal[g] = 1.0
            linear.solve(self.symbolic.up_ptr, self.symbolic.up, *factors.linear, to_goal)
            if is_accurate(to_goal[s]):
                from_start[s] += 1.0 / to_goal[s]
                from_start[g] -= 1.0 / to_goal[g]
                linear.solve_transposed(self.symbolic.up_ptr, self.symbolic.up, *factors.linear, from_start)
                rank = self.symbolic.rank
                flow = np.exp(factors.log_w) * from_start[rank[self.mdp.src]] * to_goal[rank[self.mdp.dst]]
                return np.maximum(flow, 0.0)
        sums = self.pair_sums(np.array([start]), np.array([goal]), np.ones(1))
        if sums.log_value[0] == -np.inf or sums.flow is None:
            raise InvalidParameter.of("goals", goal, f"must be reachable from state {start}")
        return sums.flow

    def _sum_linear(
        self,
        start: IntArray,
        goal: IntArray,
        log_value: FloatArray,
        weights: FloatArray | None,
        flow: FloatArray | None,
    ) -> NDArray[np.bool_]:
        """Set `log_value` (m,) and add to `flow` (E,) for the pairs that are accurate in linear arithmetic."""
        symbolic = self.symbolic
        assert self._factors.linear is not None
        value, star = self._factors.linear
        paths = _PathSums(symbolic, linear.multiply_stars(symbolic.up_ptr, value, star), star, start, goal)
        done = is_accurate(paths.total)
        log_value[done] = np.log(paths.total[done] / paths.own[done])
        if flow is not None and weights is not None and done.any():
            star_adjoint = np.zeros_like(star)
            by_move = paths.adjoint(np.where(done, weights, 0.0), star_adjoint)
            adjoint = np.concatenate([linear.multiply_stars(symbolic.up_ptr, by_move, star), np.zeros_like(star)])
            _add_star_adjoints(symbolic, by_move * paths.moves, star_adjoint)
            flow += self._factors.propagate_linear(adjoint, star_adjoint)
        return done

    def _sum_by_goal(
        self, start: IntArray, goal: IntArray, weights: FloatArray | None, flow: FloatArray | None
    ) -> FloatArray:
        """Return log beta (m,) of pairs in log arithmetic, with a diagonal scaling per goal, and add to `flow` (E,)."""
        symbolic, (value, star) = self.symbolic, self._factors.log
        log_value, stars = np.full(start.size, -np.inf), np.exp(star)
        adjoint, star_adjoint = np.zeros(symbolic.n_values), np.zeros_like(star)
        for g in np.unique(goal):
            # Scaling by the sums over walks to the goal turns edge weights into probabilities, and every sum into 1.
            mine = np.flatnonzero(goal == g)
            shift = self._log_green(symbolic.state_at(g))
            mine = mine[shift[start[mine]] > -np.inf]
            if not mine.size:
                continue
            moves = kernel.scale_diagonally(symbolic.up_ptr, symbolic.up, value, star, shift)
            paths = _PathSums(symbolic, moves, stars, start[mine], goal[mine])
            log_value[mine] = np.log(paths.total / paths.own) + shift[start[mine]] - shift[g]
            if weights is not None:
                by_move = paths.adjoint(weights[mine], star_adjoint) * moves
                adjoint[: by_move.size] += by_move
                _add_star_adjoints(symbolic, by_move, star_adjoint)
        if flow is not None:
            flow += self._factors.propagate_log(adjoint, star_adjoint)
        return log_value

    def _log_green(self, goal: int) -> FloatArray:
        """Return log G(s, goal) (S,) in elimination order."""
        right = np.full(self.mdp.n_states, -np.inf)
        right[self.symbolic.rank[goal]] = 0.0
        kernel.solve(self.symbolic.up_ptr, self.symbolic.up, *self._factors.log, right)
        return right


class _PathSums:
    """Sums `total` (m,) over walks from starts to goals, and `own` (m,) over walks from each goal to itself.

    `moves` (2 n,) are the weights of transitions up and down the elimination tree. Each is multiplied by the Kleene
    star of its lower state.
    """

    def __init__(
        self, symbolic: SymbolicFactorisation, moves: FloatArray, stars: FloatArray, start: IntArray, goal: IntArray
    ) -> None:
        self._symbolic, self.moves, self._stars = symbolic, moves, stars
        self._tree = (symbolic.up_ptr, symbolic.level, symbolic.parent, symbolic.depth)
        n = symbolic.up.size
        ends, self._end_of = np.unique(goal, return_inverse=True)
        begins = np.unique(np.concatenate([start, goal]))
        up_ptr, down_ptr = _pointers(symbolic.depth[begins]), _pointers(symbolic.depth[ends])
        self._up, self._down = (begins, up_ptr, np.empty(up_ptr[-1])), (ends, down_ptr, np.empty(down_ptr[-1]))
        kernel.solve_triangular(*self._tree, moves[:n], *self._up)
        kernel.solve_triangular(*self._tree, moves[n:], *self._down)
        # The sums from each start to its goal are followed by the sums from each goal to itself.
        pair = (np.concatenate([start, ends]), np.concatenate([goal, ends]))
        offsets = (
            up_ptr[np.searchsorted(begins, pair[0])],
            down_ptr[np.concatenate([self._end_of, np.arange(ends.size)])],
        )
        self._pairs = symbolic.parent, symbolic.depth, stars, *pair, *offsets, self._up[2], self._down[2]
        self._all = kernel.combine(*self._pairs)
        self.total, self.own = self._all[: start.size], self._all[start.size :][self._end_of]

    def adjoint(self, weights: FloatArray, star_adjoint: FloatArray) -> FloatArray:
        """Return the adjoints (2 n,) of `moves` for the sum of log(total / own), weighted by `weights` (m,).

        The adjoints of the log Kleene stars are added to `star_adjoint` (S,).
        """
        n, n_ends = self._symbolic.up.size, self._all.size - self.total.size
        by_sum = np.concatenate([weights, -np.bincount(self._end_of, weights=weights, minlength=n_ends)])
        by_sum[by_sum != 0.0] /= self._all[by_sum != 0.0]
        up_adjoint, down_adjoint, adjoint = (np.zeros_like(part) for part in (self._up[2], self._down[2], self.moves))
        kernel.combine_adjoint(*self._pairs, by_sum, up_adjoint, down_adjoint, star_adjoint)
        kernel.solve_triangular_adjoint(*self._tree, self.moves[:n], *self._up, up_adjoint, adjoint[:n])
        kernel.solve_triangular_adjoint(*self._tree, self.moves[n:], *self._down, down_adjoint, adjoint[n:])
        return adjoint


def _add_star_adjoints(symbolic: SymbolicFactorisation, by_log_move: FloatArray, star_adjoint: FloatArray) -> None:
    """Add the adjoints of the log Kleene stars, given the adjoints (2 n,) of the log-weights that contain the stars."""
    n = symbolic.up.size
    total = np.concatenate([[0.0], np.cumsum(by_log_move[:n] + by_log_move[n:])])
    star_adjoint += np.diff(total[symbolic.up_ptr])


def is_accurate(total: FloatArray) -> NDArray[np.bool_]:
    """Return the mask (m,) of sums over walks that are accurate in linear arithmetic."""
    return np.asarray(total >= _NEAR)


def is_within_limit(log_sums: FloatArray | float) -> Any:
    """Return True if a log-sum over all walks from a state is within the limit of linear arithmetic."""
    return log_sums <= math.log(_LARGEST)


def divergent(state: int) -> DivergentPartition:
    """Return the error for cycles of infinite total weight through a state."""
    return DivergentPartition(
        f"The partition function over paths of unbounded length is infinite: cycles through state {state} have "
        "weight 1 or more. Use lower rewards on cycles.",
        parameter="theta",
        index=state,
    )


def flow_features(mdp: MDP, flow: FloatArray) -> FloatArray:
    """Return the sum (d,) of edge counts (E,) times the features of edges and their target states."""
    node = np.zeros((mdp.n_states, 1))
    np.add.at(node[:, 0], mdp.dst, flow)
    return np.asarray(expected_features(mdp, node, flow[:, None])[0])


def _pointers(depth: IntArray) -> IntArray:
    return np.concatenate([[0], np.cumsum(depth + 1)])
