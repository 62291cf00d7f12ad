"""Most probable routes between two states under a mixture, for one pair or many pairs of states."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from limiirl._typing import FloatArray, IntArray
from limiirl.demos import Demonstrations
from limiirl.errors import InvalidParameter
from limiirl.forecast.partial_trips import one_state_trips, posterior
from limiirl.forecast.validate import check_pairs, log
from limiirl.irl import group_conditions
from limiirl.mdp import MDP, PathFinder, ShortestPath, ShortestPaths

# Tolerance for comparing bounds with log-probabilities, because terms are summed in a different order.
_ROUNDING = 1e-12


@dataclass(frozen=True, eq=False, repr=False)
class Route:
    """A route between two states, and its probability under the mixture.

    Attributes
    ----------
    states : (T,)
    edges : (T - 1,)
        Edges of the MDP; routes along parallel edges are distinct.
    probability, log_prob : float
        P(route | first and last state).
    intents : (K,)
        Posterior over intents given the route.
    exact : bool
        True if `best_routes` has proven that the rank of the route is correct.

    Examples
    --------
    >>> Route(np.array([0, 1, 3]), np.array([0, 2]), 0.25, math.log(0.25), np.array([0.9, 0.1]))
    25.0 %: 3 states, 0 - 1 - 3; intent 0 (90 %)
    """

    states: IntArray
    edges: IntArray
    probability: float
    log_prob: float
    intents: FloatArray
    exact: bool = True

    def __len__(self) -> int:
        return self.states.size

    def __repr__(self) -> str:
        k = int(np.argmax(self.intents))
        percent = f"{100 * self.probability:.1f} %" if self.probability >= 5e-4 else f"{100 * self.probability:.1e} %"
        return (
            f"{percent}: {len(self)} states, {format_states(self.states)}; intent {k} ({100 * self.intents[k]:.0f} %)"
        )


def format_states(states: IntArray) -> str:
    """Format a route as text; long routes are abbreviated to seven states."""
    listed = [str(s) for s in states]
    return " - ".join(listed if len(listed) <= 8 else [*listed[:4], "...", *listed[-3:]])


class Costs:
    """Edge costs of K intents: minus the reward of the edge, minus the reward of its target state, minus log P(edge).

    If gamma is 1, the cheapest route of an intent is its most likely route. A discount below 1 does not affect the
    costs.
    """

    def __init__(self, mdp: MDP, thetas: FloatArray) -> None:
        self.mdp = mdp
        self._state, self._edge = mdp.rewards(thetas)
        for values, what in ((self._state, "state"), (self._edge, "edge")):
            if values is not None and np.any(values > 0.0):
                row, k = np.argwhere(values > 0.0)[0]
                raise InvalidParameter(
                    f"Route searches require nonpositive rewards; {what} {row} has reward {values[row, k]:.4g} under "
                    f"intent {k}. Fit with bounds such as (-10, 0), or use IntentMixture.most_likely.",
                    parameter="mixture",
                    value=float(values[row, k]),
                    index=(int(row), int(k)),
                )
        self._log_prob = log(mdp.prob)

    @property
    def n_intents(self) -> int:
        """Number K of intents."""
        return int(self._state.shape[1])

    def of(self, k: int) -> FloatArray:
        """Return the edge costs (E,) of intent k."""
        cost = -self._log_prob - self._state[self.mdp.dst, k]
        return np.asarray(cost if self._edge is None else cost - self._edge[:, k]) + 0.0  # no -0.0

    def step_weights(self, k: int, edges: IntArray, step: IntArray) -> FloatArray:
        """Return the log-weights (m,) of edges (m,) under intent k, at steps (m,) of a route."""
        gamma = self.mdp.gamma
        log_w = self._log_prob[edges] + gamma ** (step + 1.0) * self._state[self.mdp.dst[edges], k]
        return np.asarray(log_w if self._edge is None else log_w + gamma ** (step * 1.0) * self._edge[edges, k])

    def state_rewards(self, k: int, states: IntArray) -> FloatArray:
        """Return the rewards (n,) of states (n,) under intent k."""
        return np.asarray(self._state[states, k])

    def log_total(self, state: int) -> FloatArray:
        """Return the log-weight (K,) of a path of cost 0 from a state to the goal."""
        del state
        return np.zeros(self.n_intents)

    def log_weight(self, start: int, edges: Sequence[int]) -> FloatArray:
        """Return the log-weight (K,) of a route under each intent, with discounted rewards."""
        path, step = np.array(edges, dtype=np.int64), np.arange(len(edges))
        each = [self._state[start, k] + math.fsum(self.step_weights(k, path, step)) for k in range(self.n_intents)]
        return np.array(each)


class PolicyCosts(Costs):
    """Edge costs -log P(edge | state, goal) of K intents of `DestinationMaxEnt`, for trips from an origin to a goal.

    They are nonnegative for rewards of any sign, and rewards may depend on the goal. `trips` is `DestinationTrips`.
    """

    def __init__(self, trips: Any, origin: int | None, goal: int) -> None:
        self.mdp = trips.mdp
        general = trips.mdp.without_goal_features
        self._state = general.rewards(trips.thetas[:, : general.n_features])[0]
        solutions = trips.solve_at(origin, goal)
        self._log_w = np.stack([sums.log_weights() for sums in solutions], axis=1)
        self._log_beta = np.stack([sums.values_to(goal) for sums in solutions], axis=1)
        self._cost = np.stack(
            [-log(sums.policy_to(goal, self._log_beta[:, k])) for k, sums in enumerate(solutions)], axis=1
        )

    def of(self, k: int) -> FloatArray:
        """Return the edge costs (E,) of intent k; inf for edges from which the goal is unreachable."""
        return np.maximum(self._cost[:, k], 0.0)

    def step_weights(self, k: int, edges: IntArray, step: IntArray) -> FloatArray:
        """Return the log-weights (m,) of edges (m,) under intent k; the discount is 1."""
        del step
        return np.asarray(self._log_w[edges, k])

    def log_total(self, state: int) -> FloatArray:
        """See `Costs.log_total`."""
        return np.asarray(self._log_beta[state])


class Scores:
    """Probabilities of routes, given the start, the goal and a log-prior (K,) over intents.

    If a partial trip `prefix` that ends in `start` is given, routes are its continuations, and steps are counted from
    its first state.
    """

    def __init__(
        self,
        trips: Any,
        costs: Costs,
        log_prior: FloatArray,
        start: int,
        goal: int,
        prefix: Demonstrations | None = None,
    ) -> None:
        prefix = one_state_trips(np.array([start])) if prefix is None else prefix
        last = np.array([goal])
        log_pair = np.logaddexp.reduce(log_prior + trips.log_prob_prefix(prefix, last)[0])
        if log_pair == -np.inf:
            raise InvalidParameter.of("goal", goal, f"must be reachable from start = {start} within max_length")
        self.costs, self.start = costs, start
        self._origin = int(prefix.start_states[0])
        self._prefix: list[int] = prefix.steps(costs.mdp).edge.tolist()
        self._log_scale = log_prior + trips.log_scale(prefix.start_states, last)[0] - log_pair
        self.max_length = getattr(trips, "max_length", math.inf)

    def log_joint(self, edges: Sequence[int]) -> FloatArray:
        """Return log p(route, intent) (K,), or -inf if the route is longer than max_length."""
        whole = [*self._prefix, *edges]
        if len(whole) + 1 > self.max_length:
            return np.full(self._log_scale.size, -np.inf)
        return np.asarray(self._log_scale + self.costs.log_weight(self._origin, whole))

    def route(self, edges: Sequence[int]) -> Route:
        """Return a route with its probability and posterior over intents."""
        path = np.array(edges, dtype=np.int64)
        states = np.concatenate([[self.start], self.costs.mdp.dst[path]]).astype(np.int64)
        log_joint = self.log_joint(edges)
        log_prob = float(np.logaddexp.reduce(log_joint))
        return Route(states, path, math.exp(log_prob), log_prob, posterior(log_joint[None])[0][0])

    def log_bound(self, reached: FloatArray) -> FloatArray:
        """Return an upper bound (K,) on log p(route, intent) for routes with costs of at least `reached` (K,).

        The log-weight of a route of cost c is at most -gamma^(L - 1) c, because gamma^t >= gamma^(L - 1) for t < L.
        """
        gamma = self.costs.mdp.gamma
        least = 1.0 if gamma == 1.0 else gamma ** (self.max_length - 1.0)
        before = self.costs.log_weight(self._origin, self._prefix) + self.costs.log_total(self.start)
        return np.asarray(self._log_scale + before - least * reached)


def most_likely_route(scores: Scores, goal: int) -> Route:
    """Return the route with the largest sum_k rho_k p_k(route) among K candidates: each intent's cheapest route."""
    costs, start = scores.costs, scores.start
    pair = np.array([start]), np.array([goal])
    paths = [
        PathFinder(costs.mdp, costs.of(k)).shortest(*pair, threads=1).edges.tolist() for k in range(costs.n_intents)
    ]
    log_prob = [np.logaddexp.reduce(scores.log_joint(edges)) for edges in paths]
    if max(log_prob) == -math.inf:
        raise InvalidParameter(
            f"The cheapest route from start = {start} to goal = {goal} has more than max_length = {scores.max_length} "
            "states under every intent. Use IntentMixture.most_likely.",
            parameter="goal",
            value=goal,
        )
    return scores.route(paths[int(np.argmax(log_prob))])


def best_routes(scores: Scores, goal: int, k: int, most: int = 1000) -> list[Route]:
    """Return the k most probable routes without repeated states under the mixture, in descending order.

    Routes are enumerated by increasing cost for each intent. If c_j is the last enumerated cost under intent j, each
    remaining route has a probability of at most ``sum_j rho_j p_j(cost c_j)``. The search ends when this bound is below
    the probability of the k-th best route, or after `most` routes. `Route.exact` is True for the routes whose rank is
    proven to be correct.
    """
    costs = scores.costs
    finders = [PathFinder(costs.mdp, costs.of(j)) for j in range(costs.n_intents)]
    lists = [finder.shortest_simple_paths(scores.start, goal) for finder in finders]
    reached = np.zeros(costs.n_intents)
    seen: dict[tuple[int, ...], float] = {}
    bound = math.inf
    for _ in range(most):
        by_intent = scores.log_bound(reached)
        bound = float(np.logaddexp.reduce(by_intent))
        ranked = sorted(seen.values(), reverse=True)
        if bound == -math.inf or (len(ranked) >= k and ranked[k - 1] >= bound - _ROUNDING):
            break
        j = int(np.argmax(by_intent))
        path: ShortestPath | None = next(lists[j], None)
        if path is None:
            bound = -math.inf  # all routes have been enumerated
            break
        reached[j] = path.cost
        if path.edges not in seen:
            seen[path.edges] = float(np.logaddexp.reduce(scores.log_joint(path.edges)))
    else:
        bound = float(np.logaddexp.reduce(scores.log_bound(reached)))
    order = sorted(seen, key=lambda edges: (-seen[edges], len(edges), edges))
    best = [scores.route(edges) for edges in order[:k] if seen[edges] > -math.inf]
    return [replace(route, exact=route.log_prob >= bound - _ROUNDING) for route in best]


def cheapest_routes(
    mdp: MDP, cost: ArrayLike, starts: ArrayLike, goals: ArrayLike, *, threads: int | None = None
) -> Demonstrations:
    """Return the cheapest route between each pair of states for given edge costs, such as lengths or travel times.

    Parameters
    ----------
    mdp : MDP
    cost : (E,)
        Nonnegative edge costs. To use state costs c (S,), pass ``c[mdp.dst]``.
    starts, goals : (n,)
    threads : int, optional
        Number of threads, which does not affect the routes. Default: one per core.

    Examples
    --------
    >>> from limiirl import MDP
    >>> mdp = MDP.from_edges([0, 0, 1, 2], [1, 2, 3, 3])
    >>> [demo.states.tolist() for demo in cheapest_routes(mdp, [1.0, 2.0, 1.0, 1.0], [0, 1, 0], [3, 3, 2])]
    [[0, 1, 3], [1, 3], [0, 2]]
    """
    first, last = check_pairs(starts, goals, mdp)
    return as_demonstrations(mdp, first, PathFinder(mdp, cost).shortest(first, last, threads=threads), last)


def predict_routes(
    trips: Any, costs: Costs, log_prior: FloatArray, starts: IntArray, goals: IntArray, *, threads: int | None = None
) -> tuple[Demonstrations, IntArray, FloatArray]:
    """Return `most_likely_route` of n pairs, its most likely intent (n,), and log sum_k rho_k p_k(route) (n,).

    `log_prior` (n, K) is over the drivers' intents. The log-probability of a route longer than max_length is -inf.
    """
    mdp, n_intents = costs.mdp, log_prior.shape[1]
    by_intent = [PathFinder(mdp, costs.of(k)).shortest(starts, goals, threads=threads) for k in range(n_intents)]
    _check_connected(by_intent[0], starts, goals)
    log_scale = log_prior + trips.log_scale(starts, goals)
    # log_joint[j, i, k] = log p(route of intent j for pair i, intent k).
    log_joint = np.array([log_scale + _log_weights(costs, starts, paths) for paths in by_intent])
    log_prob = np.logaddexp.reduce(log_joint, axis=2).T
    lengths = np.array([np.diff(paths.offsets) for paths in by_intent])
    too_long: NDArray[np.bool_] = np.greater(lengths.T + 1, getattr(trips, "max_length", np.inf))
    # A route longer than max_length is selected only if the routes of all intents are too long.
    chosen = np.argmax(np.where(too_long & ~np.all(too_long, axis=1, keepdims=True), -np.inf, log_prob), axis=1)
    log_prob[too_long] = -np.inf
    pair = np.arange(starts.size)
    intent = np.argmax(log_joint[chosen, pair], axis=1)
    best = ShortestPaths(*_select_paths(by_intent, chosen, lengths[chosen, pair]), np.zeros(starts.size))
    return as_demonstrations(mdp, starts, best, goals), intent, log_prob[pair, chosen]


def predict_routes_by_goal(
    trips: Any, log_prior: FloatArray, starts: IntArray, goals: IntArray
) -> tuple[Demonstrations, IntArray, FloatArray]:
    """Return `predict_routes` with the `PolicyCosts` of each goal, or of each pair if features depend on the start."""
    parts, order = [], []
    for mine, start, goal in group_conditions(trips.mdp, starts, goals):
        costs = PolicyCosts(trips, start, goal)
        parts.append(predict_routes(trips, costs, log_prior[mine], starts[mine], goals[mine], threads=1))
        order.append(mine)
    back = np.argsort(np.concatenate(order))
    intent, log_prob = (np.concatenate([part[i] for part in parts])[back] for i in (1, 2))
    return Demonstrations.concat([part[0] for part in parts])[back], intent, log_prob


def _select_paths(by_intent: list[ShortestPaths], chosen: IntArray, sizes: IntArray) -> tuple[IntArray, IntArray]:
    """Return the edges and offsets of the path of intent chosen[i] for each pair i."""
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    first = np.array([paths.offsets[:-1] for paths in by_intent])[chosen, np.arange(chosen.size)]
    index = np.arange(offsets[-1]) + np.repeat(first - offsets[:-1], sizes)
    edges = np.empty(offsets[-1], dtype=np.int64)
    owner = np.repeat(chosen, sizes)
    for k, paths in enumerate(by_intent):
        edges[owner == k] = paths.edges[index[owner == k]]
    return edges, offsets


def as_demonstrations(mdp: MDP, starts: IntArray, paths: ShortestPaths, goals: IntArray) -> Demonstrations:
    """Return paths as demonstrations with actions."""
    _check_connected(paths, starts, goals)
    n = starts.size
    offsets = paths.offsets + np.arange(n + 1)
    states = np.empty(offsets[-1], dtype=np.int64)
    actions = np.full(offsets[-1], -1, dtype=np.int64)
    not_first, not_last = np.ones((2, states.size), dtype=bool)
    not_first[offsets[:-1]] = False
    not_last[offsets[1:] - 1] = False
    states[offsets[:-1]], states[not_first] = starts, mdp.dst[paths.edges]
    actions[not_last] = mdp.act[paths.edges]
    return Demonstrations(states, offsets, actions)


def _check_connected(paths: ShortestPaths, starts: IntArray, goals: IntArray) -> None:
    missing = np.isinf(paths.cost)
    if np.any(missing):
        i = int(np.argmax(missing))
        remedy = f"Drop the {int(missing.sum())} of {starts.size} pairs that are not connected."
        rule = f"must be reachable from state {starts[i]}"
        raise InvalidParameter.of("goals", int(goals[i]), rule, index=i, remedy=remedy)


def _log_weights(costs: Costs, starts: IntArray, paths: ShortestPaths) -> FloatArray:
    """Return the log-weights (n, K) of paths under each intent; see `Costs.log_weight`."""
    sizes = np.diff(paths.offsets)
    owner = np.repeat(np.arange(starts.size), sizes)
    step = np.arange(paths.edges.size) - np.repeat(paths.offsets[:-1], sizes)
    each = [
        costs.state_rewards(k, starts)
        + np.bincount(owner, weights=costs.step_weights(k, paths.edges, step), minlength=starts.size)
        for k in range(costs.n_intents)
    ]
    return np.stack(each, axis=1)
