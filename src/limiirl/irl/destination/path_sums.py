"""`GoalValues`: sums over all ways between states, for discount 1; one factorisation of the MDP serves every goal.

The ways from s that end at their first arrival in g weigh beta_g(s) = G(s, g) / G(g, g), where G(s, t) is the weight of
all walks from s to t: those that go on from g to g are divided out.
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
from limiirl.irl.maxent.compiled import expected_features
from limiirl.kernels.elimination import numeric as kernel
from limiirl.kernels.elimination.symbolic import Plan, plan
from limiirl.mdp import MDP

# Sums of walks that are at least this are right in linear space: what is lost on the way to them is below 1e-308
# times the sums that follow, for which there is the other limit. Pairs further apart get a frame of their own.
_NEAR = 1e-240
_LARGEST = 1e30
# Solutions kept for each MDP: the intents of a mixture.
_REMEMBERED = 8


class PairSums(NamedTuple):
    """What pairs of a start and a goal say.

    Attributes
    ----------
    log_value : (m,)
        log beta_g(s) of each pair; -inf where no way leads from s to g.
    flow : (E,) or None
        Expected number of uses of each edge, summed over pairs by their weights.
    """

    log_value: FloatArray
    flow: FloatArray | None


class GoalValues:
    """An MDP with discount 1, ready for sums over ways.

    Parameters
    ----------
    mdp : MDP
    last : int
        How many states of the highest numbers are eliminated last; see `plan`.

    Attributes
    ----------
    together : bool
        Whether several thetas at once cost less than one after the other.

    Examples
    --------
    From 0 two ways lead to 3: by 1, or by 2, and one may go from 1 back to 0 at the weight 1/2 of 0.

    >>> mdp = MDP.from_edges([0, 0, 1, 1, 2], [1, 2, 0, 3, 3], state_features=[[1], [0], [0], [0]])
    >>> np.exp(GoalValues(mdp).solve(np.log([0.5])).values_to(3)).round(3)  # b0 = b1 + b2, b1 = b0 / 2 + 1
    array([4., 3., 1., 1.])
    """

    together = False

    def __init__(self, mdp: MDP, last: int = 0) -> None:
        if mdp.gamma != 1.0:
            raise InvalidParameter(
                f"DestinationMaxEnt needs discount 1; it is {mdp.gamma}. Ways to a goal have no largest length, and "
                "rewards that fade away no longer hold back the long ones. Use mdp.replace(gamma=1.0).",
                parameter="gamma",
                value=mdp.gamma,
            )
        self.mdp = mdp
        plans = _KNOWN.setdefault(mdp, {})
        known = plans.get(last)
        if known is None:
            edges = mdp.src.astype(np.int64), mdp.dst.astype(np.int64)
            known = plans[last] = _CachedPlan(plan(mdp.n_states, *edges, last))
        self.plan, self._recent = known.plan, known.recent

    def log_moves(self, theta: FloatArray) -> FloatArray:
        """Return (E,) the log-weight of each edge: of its outcome, its own reward and that of the state it leads to."""
        with np.errstate(over="ignore", invalid="ignore"):
            node, edge = self.mdp.rewards(theta)
            found = np.log(self.mdp.prob) + node[self.mdp.dst, 0]
            if edge is not None:
                found = found + edge[:, 0]
        if not np.all(np.isfinite(found)):
            e = int(np.argmin(np.isfinite(found)))
            raise NumericalError(
                f"The reward of edge {e} (state {self.mdp.src[e]} to {self.mdp.dst[e]}) is not finite. Use smaller "
                "parameters or features.",
                parameter="theta",
                value=theta,
                index=e,
            )
        return np.asarray(found)

    def finite(self, theta: FloatArray, margin: float = 0.0) -> bool:
        """Return whether the sums over ways are finite at theta (d,), and loops weigh less than exp(-margin)."""
        return self._eliminate(self.log_moves(theta), margin)[2] < 0

    def solve(self, theta: FloatArray, margin: float = 0.0) -> GoalPathSums:
        """Return the sums at theta (d,), or raise `DivergentPartition` where some loop weighs exp(-margin) or more."""
        log_w = self.log_moves(theta)
        value, star, stuck = self._eliminate(log_w, margin)
        if stuck >= 0:
            raise divergent(self.plan, stuck)
        return GoalPathSums(self, log_w, value, star)

    def edge(self, theta: FloatArray, margin: float = 0.0) -> tuple[float, FloatArray] | None:
        """Return the log-weight of loops through some state and their uses of edges (E,), where sums are infinite.

        Looked at are loops that pass states eliminated before that one alone. Their log-weight is convex in those of
        edges, with the uses for its slope. At theta (d,) it is -margin or more, and below wherever `finite` with this
        margin; None where theta is such a point.
        """
        log_w, plan = self.log_moves(theta), self.plan
        value, star, stuck = self._eliminate(log_w, margin)
        if stuck < 0:
            return None
        loop, pull = 2 * plan.up.size + stuck, np.zeros(plan.n_values)
        pull[loop] = 1.0
        _adjoint(plan, value, star, pull, np.zeros_like(star))
        return float(value[loop]), _uses(plan, log_w, value, pull)

    def log_values(self, thetas: FloatArray, starts: IntArray, goals: IntArray) -> FloatArray:
        """Return log beta_g(s) (m, K) of pairs (m,) under each of thetas (K, d), or raise `DivergentPartition`."""
        found = np.empty((starts.size, thetas.shape[0]))
        for k, theta in enumerate(thetas):
            found[:, k] = self.solve(theta).ways(starts, goals).log_value
        return found

    def weigh(
        self, thetas: FloatArray, starts: IntArray, goals: IntArray, weights: FloatArray, margin: float = 0.0
    ) -> tuple[FloatArray, FloatArray]:
        """Return sums (K,) of log beta over pairs (m,) by weights (m, K), and their derivatives (K, d) by thetas.

        Infinite, with derivatives 0, where `solve` with this margin raises; pairs without weight do not count.
        """
        parts = [self._weigh(theta, starts, goals, weights[:, k], margin) for k, theta in enumerate(thetas)]
        return np.array([value for value, _ in parts]), np.array([slope for _, slope in parts]).reshape(thetas.shape)

    def _weigh(
        self, theta: FloatArray, starts: IntArray, goals: IntArray, weights: FloatArray, margin: float
    ) -> tuple[float, FloatArray]:
        used = np.flatnonzero(weights)
        try:
            found = self.solve(theta, margin).ways(starts[used], goals[used], weights[used])
        except (DivergentPartition, NumericalError):
            return np.inf, np.zeros_like(theta)
        assert found.flow is not None
        return float(weights[used] @ found.log_value), flow_features(self.mdp, found.flow)

    def known(self, theta: FloatArray) -> GoalPathSums:
        """Return the sums at theta (d,), from memory if it was asked for lately: a forecast asks again and again."""
        key, found = theta.tobytes(), None
        with _LOCK:
            found = self._recent.pop(key, None)
        if found is None:
            solution = self.solve(theta)
            found = (solution.log_w, solution._value, solution._star)
        with _LOCK:
            self._recent[key] = found
            while len(self._recent) > _REMEMBERED:
                self._recent.popitem(last=False)
        return GoalPathSums(self, *found)

    def _eliminate(self, log_w: FloatArray, margin: float) -> tuple[FloatArray, FloatArray, int]:
        plan = self.plan
        value, star = kernel.load(log_w, plan.slot, plan.n_values), np.zeros(self.mdp.n_states)
        stuck = kernel.eliminate(plan.up_ptr, plan.up, plan.low_ptr, plan.low, plan.place, value, star, margin)
        return value, star, int(stuck)


class _CachedPlan:
    """What is remembered of an MDP, without a reference to it: its plan, and the last few that were solved."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.recent: OrderedDict[bytes, tuple[FloatArray, FloatArray, FloatArray]] = OrderedDict()


_KNOWN: weakref.WeakKeyDictionary[MDP, dict[int, _CachedPlan]] = weakref.WeakKeyDictionary()
_LOCK = threading.Lock()


class GoalPathSums:
    """Sums over walks at one theta; made by `GoalValues.solve`."""

    def __init__(self, values: GoalValues, log_w: FloatArray, value: FloatArray, star: FloatArray) -> None:
        self.mdp, self.plan = values.mdp, values.plan
        self.log_w, self._value, self._star = log_w, value, star
        self._largest: float | None = None

    def values_to(self, goal: int) -> FloatArray:
        """Return log beta_g(s) (S,) of all states; -inf where no way leads to the goal, and 0 at the goal."""
        found = self._walks(goal)[self.plan.rank]
        return np.asarray(found - found[goal])

    def policy_to(self, goal: int, log_value: FloatArray | None = None) -> FloatArray:
        """Return (E,) the probability of each edge for those bound for the goal, 0 where they cannot be."""
        ahead = self.values_to(goal) if log_value is None else log_value
        here = ahead[self.mdp.src]
        on = (here > -np.inf) & (self.mdp.src != goal)
        found = np.zeros(self.mdp.n_edges)
        found[on] = np.exp(self.log_w[on] + ahead[self.mdp.dst[on]] - here[on])
        return found

    def ways(self, starts: IntArray, goals: IntArray, weights: FloatArray | None = None) -> PairSums:
        """Return what pairs (m,) of starts and goals say, with the flows of weights (m,) where these are given."""
        start, goal = self.plan.rank[starts], self.plan.rank[goals]
        flow = None if weights is None else _FlowAdjoint(self)
        log_value = np.full(start.size, -np.inf)
        done = np.zeros(start.size, dtype=bool)
        if self._bounded():
            done = self._near(start, goal, np.zeros(self.mdp.n_states), log_value, weights, flow)
        for g in np.unique(goal[~done]):
            # Weights seen from the goal are probabilities: sums of walks to it are all 1.
            mine = np.flatnonzero(~done & (goal == g))
            shift = self._walks(int(np.flatnonzero(self.plan.rank == g)[0]))
            mine = mine[shift[start[mine]] > -np.inf]
            if mine.size:
                part = log_value[mine]
                self._near(start[mine], goal[mine], shift, part, None if weights is None else weights[mine], flow)
                log_value[mine] = part
        return PairSums(log_value, None if flow is None else flow.by_edge())

    def _near(
        self,
        start: IntArray,
        goal: IntArray,
        shift: FloatArray,
        log_value: FloatArray,
        weights: FloatArray | None,
        flow: _FlowAdjoint | None,
    ) -> NDArray[np.bool_]:
        """Fill log_value (m,), and add to the flow, what can be told in a frame; return for which pairs it could."""
        plan, loops = self.plan, np.exp(self._star)
        moves = kernel.frame(plan.up_ptr, plan.up, self._value, self._star, shift)
        tree = (plan.up_ptr, plan.level, plan.parent, plan.depth)
        n = plan.up.size
        ends, end_of = np.unique(goal, return_inverse=True)
        begins = np.unique(np.concatenate([start, goal]))
        up_ptr, down_ptr = _pointers(plan.depth[begins]), _pointers(plan.depth[ends])
        leg_up, leg_down = np.empty(up_ptr[-1]), np.empty(down_ptr[-1])
        kernel.climb(*tree, moves[:n], begins, up_ptr, leg_up)
        kernel.climb(*tree, moves[n:], ends, down_ptr, leg_down)
        # Sums from each start to its goal, and then from each goal to itself.
        pair = (np.concatenate([start, ends]), np.concatenate([goal, ends]))
        legs = (up_ptr[np.searchsorted(begins, pair[0])], down_ptr[np.concatenate([end_of, np.arange(ends.size)])])
        total = kernel.join(plan.parent, plan.depth, loops, *pair, *legs, leg_up, leg_down)
        m = start.size
        done = near(total[:m])
        own = total[m:][end_of]
        log_value[done] = np.log(total[:m][done] / own[done]) + shift[start[done]] - shift[goal[done]]
        if flow is None or weights is None:
            return done
        counted = np.where(done, weights, 0.0)
        by_sum = np.concatenate([counted, -np.bincount(end_of, weights=counted, minlength=ends.size)])
        by_sum[by_sum != 0.0] /= total[by_sum != 0.0]
        pull_up, pull_down, pull = np.zeros_like(leg_up), np.zeros_like(leg_down), np.zeros(2 * n)
        kernel.join_adjoint(
            plan.parent, plan.depth, loops, *pair, *legs, leg_up, leg_down, by_sum, pull_up, pull_down, flow.star
        )
        kernel.climb_adjoint(*tree, moves[:n], begins, up_ptr, leg_up, pull_up, pull[:n])
        kernel.climb_adjoint(*tree, moves[n:], ends, down_ptr, leg_down, pull_down, pull[n:])
        flow.add(pull * moves)
        return done

    def _walks(self, goal: int) -> FloatArray:
        """Return log G(s, goal) (S,), numbered by the plan."""
        right = np.full(self.mdp.n_states, -np.inf)
        right[self.plan.rank[goal]] = 0.0
        kernel.solve(self.plan.up_ptr, self.plan.up, self._value, self._star, right)
        return right

    def _bounded(self) -> bool:
        """Return whether no sum of walks from a state exceeds the limit of linear space."""
        if self._largest is None:
            right = np.zeros(self.mdp.n_states)
            kernel.solve(self.plan.up_ptr, self.plan.up, self._value, self._star, right)
            self._largest = float(np.max(right))
        return bool(bounded(self._largest))


class _FlowAdjoint:
    """Derivatives of sums by the values of the completed moves, gathered on their way to the MDP's edges."""

    def __init__(self, solution: GoalPathSums) -> None:
        self._solution = solution
        self._moves, self.star = np.zeros(solution.plan.n_values), np.zeros(solution.mdp.n_states)

    def add(self, by_move: FloatArray) -> None:
        """Add derivatives by moves up and down (2 n,), each of which contains the star of its lower state."""
        plan, n = self._solution.plan, self._solution.plan.up.size
        self._moves[: 2 * n] += by_move
        total = np.concatenate([[0.0], np.cumsum(by_move[:n] + by_move[n:])])
        self.star += np.diff(total[plan.up_ptr])

    def by_edge(self) -> FloatArray:
        """Return (E,) the derivatives by the log-weights of edges: how often each is used."""
        found, plan = self._solution, self._solution.plan
        _adjoint(plan, found._value, found._star, self._moves, self.star)
        # What is subtracted for walks beyond the goal may leave a little less than 0.
        return np.maximum(_uses(plan, found.log_w, found._value, self._moves), 0.0)


def near(total: FloatArray) -> NDArray[np.bool_]:
    """Return (m,) which sums over walks are large enough to be right in linear space."""
    return np.asarray(total >= _NEAR)


def bounded(log_sums: FloatArray | float) -> Any:
    """Return whether the sums of all walks from a state, given by their logarithms, are small enough for that."""
    return log_sums <= math.log(_LARGEST)


def divergent(plan: Plan, stuck: int) -> DivergentPartition:
    """Return the error that elimination has found an infinite sum at a state, numbered by the plan."""
    state = int(np.flatnonzero(plan.rank == stuck)[0])
    return DivergentPartition(
        f"The sum over ways of any length is infinite: cycles through state {state} weigh 1 or more. Use lower "
        "rewards, so that every cycle costs more than the ways around it make up for.",
        parameter="theta",
        index=state,
    )


def flow_features(mdp: MDP, flow: FloatArray) -> FloatArray:
    """Return (d,): the features collected by uses of edges (E,), those of the states that they lead to included."""
    node = np.zeros((mdp.n_states, 1))
    np.add.at(node[:, 0], mdp.dst, flow)
    return np.asarray(expected_features(mdp, node, flow[:, None])[0])


def _adjoint(plan: Plan, value: FloatArray, star: FloatArray, pull: FloatArray, pull_star: FloatArray) -> None:
    kernel.eliminate_adjoint(plan.up_ptr, plan.up, plan.low_ptr, plan.low, plan.place, value, star, pull, pull_star)


def _uses(plan: Plan, log_w: FloatArray, value: FloatArray, pull: FloatArray) -> FloatArray:
    """Return (E,) the derivatives by the log-weights of edges, from those by the values that they are part of."""
    return np.asarray(pull[plan.slot] * np.exp(log_w - value[plan.slot]))


def _pointers(depth: IntArray) -> IntArray:
    return np.concatenate([[0], np.cumsum(depth + 1)])
