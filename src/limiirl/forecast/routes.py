"""Routes between two states: the likeliest of the intents' own, and the best of all, each with its probability.

Predicted routes for thousands of pairs of states, by an ensemble of intents or by any cost of edges.
"""

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
from limiirl.forecast.prefixes import alone, posterior
from limiirl.forecast.validate import log, pairs
from limiirl.mdp import MDP, PathFinder, ShortestPath, ShortestPaths

# Bounds are compared with probabilities that were added up in another order.
_ROUNDING = 1e-12


@dataclass(frozen=True, eq=False, repr=False)
class Route:
    """A route between two states, and how likely the mixture finds it.

    Attributes
    ----------
    states : (T,)
    edges : (T - 1,)
        Edges of the MDP: where two join the same states, the routes by them are two.
    probability, log_prob : float
        Of those who go from the first state to the last, the share that takes this route; over all intents.
    intents : (K,)
        The posterior of the intent of one who takes it.
    exact : bool
        For one of the `best_routes`, whether it is certain that no other route belongs before it.

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
        share = f"{100 * self.probability:.1f} %" if self.probability >= 5e-4 else f"{100 * self.probability:.1e} %"
        return f"{share}: {len(self)} states, {written(self.states)}; intent {k} ({100 * self.intents[k]:.0f} %)"


def written(states: IntArray) -> str:
    """Return states as text, shortened in the middle.

    Examples
    --------
    >>> written(np.arange(20))
    '0 - 1 - 2 - 3 - ... - 17 - 18 - 19'
    """
    listed = [str(s) for s in states]
    return " - ".join(listed if len(listed) <= 8 else [*listed[:4], "...", *listed[-3:]])


class Costs:
    """What K intents pay for each edge: minus its reward, the next state's reward, and the log of its probability.

    The cheapest route of an intent is its likeliest one where the discount is 1. Rewards are taken without discount.

    Examples
    --------
    >>> mdp = MDP.from_edges([0, 0, 1], [1, 2, 2], state_features=[1.0, 2.0, 5.0])
    >>> Costs(mdp, np.array([[-1.0]])).of(0)
    array([2., 5., 5.])
    """

    def __init__(self, mdp: MDP, thetas: FloatArray) -> None:
        self.mdp = mdp
        self._state, self._edge = mdp.rewards(thetas)
        for values, what in ((self._state, "state"), (self._edge, "edge")):
            if values is not None and np.any(values > 0.0):
                row, k = np.argwhere(values > 0.0)[0]
                raise InvalidParameter(
                    f"Routes are searched by costs, so rewards must not be positive; that of {what} {row} is "
                    f"{values[row, k]:.4g} under intent {k}. Fit with bounds such as (-10, 0); "
                    "IntentMixture.most_likely takes any reward.",
                    parameter="mixture",
                    value=float(values[row, k]),
                    index=(int(row), int(k)),
                )
        self._log_prob = log(mdp.prob)

    @property
    def n_intents(self) -> int:
        """K."""
        return int(self._state.shape[1])

    def of(self, k: int) -> FloatArray:
        """Return (E,) what intent k pays."""
        cost = -self._log_prob - self._state[self.mdp.dst, k]
        return np.asarray(cost if self._edge is None else cost - self._edge[:, k]) + 0.0  # no -0.0

    def moves(self, k: int, edges: IntArray, step: IntArray) -> FloatArray:
        """Return (m,) the log-weight under intent k of moves along edges (m,), each at its step (m,) of a route."""
        gamma = self.mdp.gamma
        found = self._log_prob[edges] + gamma ** (step + 1.0) * self._state[self.mdp.dst[edges], k]
        return np.asarray(found if self._edge is None else found + gamma ** (step * 1.0) * self._edge[edges, k])

    def first(self, k: int, starts: IntArray) -> FloatArray:
        """Return (n,) the reward of states under intent k."""
        return np.asarray(self._state[starts, k])

    def log_weight(self, start: int, edges: Sequence[int]) -> FloatArray:
        """Return (K,) the log-weight of a route under each intent, rewards discounted."""
        moved, step = np.array(edges, dtype=np.int64), np.arange(len(edges))
        each = [self._state[start, k] + math.fsum(self.moves(k, moved, step)) for k in range(self.n_intents)]
        return np.array(each)


class Scores:
    """The probabilities of routes between two states, given that somebody goes from one to the other.

    Where a trip has begun already, they are of how it goes on from its last state, given all that was driven: the
    discount and the length of a trip count from its own first state.

    Parameters
    ----------
    trips : FreeEnds or GivenEnds
    costs : Costs
    log_prior : (K,)
        Of intents.
    start, goal : int
    begun : Demonstrations, optional
        One partial trip, which ends in `start`.
    """

    def __init__(
        self,
        trips: Any,
        costs: Costs,
        log_prior: FloatArray,
        start: int,
        goal: int,
        begun: Demonstrations | None = None,
    ) -> None:
        so_far = alone(np.array([start])) if begun is None else begun
        last = np.array([goal])
        log_pair = np.logaddexp.reduce(log_prior + trips.log_begin(so_far, last)[0])
        if log_pair == -np.inf:
            raise InvalidParameter(
                f"No trip of the model leads from start = {start} to goal = {goal}. "
                "Choose another goal, or make a model with a larger max_length.",
                parameter="goal",
                value=goal,
            )
        self.costs, self.start = costs, start
        self._origin = int(so_far.start_states[0])
        self._driven: list[int] = so_far.steps(costs.mdp).edge.tolist()
        self._log_scale = log_prior + trips.log_scale(so_far.start_states, last)[0] - log_pair
        self.max_length = getattr(trips, "max_length", math.inf)

    def log_joint(self, edges: Sequence[int]) -> FloatArray:
        """Return (K,) the log-probability of a route and of each intent; -inf where it is too long for the model."""
        whole = [*self._driven, *edges]
        if len(whole) + 1 > self.max_length:
            return np.full(self._log_scale.size, -np.inf)
        return np.asarray(self._log_scale + self.costs.log_weight(self._origin, whole))

    def route(self, edges: Sequence[int]) -> Route:
        """Return a route with its probability."""
        moved = np.array(edges, dtype=np.int64)
        states = np.concatenate([[self.start], self.costs.mdp.dst[moved]]).astype(np.int64)
        log_joint = self.log_joint(edges)
        log_prob = float(np.logaddexp.reduce(log_joint))
        return Route(states, moved, math.exp(log_prob), log_prob, posterior(log_joint[None])[0][0])

    def log_bound(self, reached: FloatArray) -> FloatArray:
        """Return (K,) the largest log-probability with each intent of a route that costs it at least `reached` (K,).

        A discount makes a route of cost c weigh at most -gamma^(L - 1) c, as no step is discounted more.
        """
        gamma = self.costs.mdp.gamma
        least = 1.0 if gamma == 1.0 else gamma ** (self.max_length - 1.0)
        return np.asarray(self._log_scale + self.costs.log_weight(self._origin, self._driven) - least * reached)


def likeliest_route(scores: Scores, goal: int) -> Route:
    """Return, of the intents' likeliest routes, that of the largest sum_k rho_k p_k(route); each is its cheapest."""
    costs, start = scores.costs, scores.start
    pair = np.array([start]), np.array([goal])
    ways = [
        PathFinder(costs.mdp, costs.of(k)).shortest(*pair, threads=1).edges.tolist() for k in range(costs.n_intents)
    ]
    log_prob = [np.logaddexp.reduce(scores.log_joint(edges)) for edges in ways]
    if max(log_prob) == -math.inf:
        raise InvalidParameter(
            f"The cheapest routes from start = {start} to goal = {goal} have more than max_length = "
            f"{scores.max_length} states. IntentMixture.most_likely finds the best that is short enough.",
            parameter="goal",
            value=goal,
        )
    return scores.route(ways[int(np.argmax(log_prob))])


def best_routes(scores: Scores, goal: int, k: int, most: int = 1000) -> list[Route]:
    """Return the k routes of the largest probability under the mixture that pass no state twice, the likeliest first.

    Each intent lists its own routes, the cheapest first. A route that no list has shown yet costs intent j at least
    the last cost c_j of its list, and hence has a probability of at most ``sum_j rho_j p_j(cost c_j)``. Once that is no
    more than the probability of the k-th best route seen, no unseen route can belong among the k best: they are exact.

    Parameters
    ----------
    scores : Scores
    goal : int
    k : int
        How many; fewer where there are fewer.
    most : int
        Routes to look at. Where they do not decide it, `Route.exact` is False for those that the bound leaves open.
    """
    costs = scores.costs
    lists = [PathFinder(costs.mdp, costs.of(j)).ranked(scores.start, goal) for j in range(costs.n_intents)]
    reached = np.zeros(costs.n_intents)
    seen: dict[tuple[int, ...], float] = {}
    bound = math.inf
    for _ in range(most):
        shares = scores.log_bound(reached)
        bound = float(np.logaddexp.reduce(shares))
        ranked = sorted(seen.values(), reverse=True)
        if bound == -math.inf or (len(ranked) >= k and ranked[k - 1] >= bound - _ROUNDING):
            break
        j = int(np.argmax(shares))
        way: ShortestPath | None = next(lists[j], None)
        if way is None:
            bound = -math.inf  # one list has shown every route
            break
        reached[j] = way.cost
        if way.edges not in seen:
            seen[way.edges] = float(np.logaddexp.reduce(scores.log_joint(way.edges)))
    else:
        bound = float(np.logaddexp.reduce(scores.log_bound(reached)))
    order = sorted(seen, key=lambda edges: (-seen[edges], len(edges), edges))
    found = [scores.route(edges) for edges in order[:k] if seen[edges] > -math.inf]
    return [replace(route, exact=route.log_prob >= bound - _ROUNDING) for route in found]


def cheapest_routes(
    mdp: MDP, cost: ArrayLike, starts: ArrayLike, goals: ArrayLike, *, threads: int | None = None
) -> Demonstrations:
    """Return the cheapest route of each pair of states for a cost of each edge, such as its length or its time.

    Where edges join the same two states, the cheaper one is taken; where routes cost the same, the same one each time.

    Parameters
    ----------
    mdp : MDP
    cost : (E,)
        Not negative. For a cost of entering states c (S,), pass ``c[mdp.dst]``.
    starts, goals : (n,)
    threads : int, optional
        By default one for each core. The routes do not depend on it.

    Examples
    --------
    >>> from limiirl import MDP
    >>> mdp = MDP.from_edges([0, 0, 1, 2], [1, 2, 3, 3])
    >>> [demo.states.tolist() for demo in cheapest_routes(mdp, [1.0, 2.0, 1.0, 1.0], [0, 1, 0], [3, 3, 2])]
    [[0, 1, 3], [1, 3], [0, 2]]
    """
    first, last = pairs(starts, goals, mdp)
    return demonstrations(mdp, first, PathFinder(mdp, cost).shortest(first, last, threads=threads), last)


def predicted_routes(
    trips: Any, costs: Costs, log_prior: FloatArray, starts: IntArray, goals: IntArray, *, threads: int | None = None
) -> tuple[Demonstrations, IntArray, FloatArray]:
    """Return for each pair, of the intents' likeliest routes, that of the largest sum_k rho_k p_k(route).

    With it come the intent that it fits best, and the logarithm of that sum. Each intent's route is its cheapest,
    rewards not discounted: one search a pair and intent. Where the discount is 1 it is its likeliest one. The logarithm
    is -inf where the route has more states than the model allows.

    Parameters
    ----------
    trips : FreeEnds or GivenEnds
    costs : Costs
    log_prior : (n, K)
        Of the intents of those who drive.
    starts, goals : (n,)
    """
    mdp, n_intents = costs.mdp, log_prior.shape[1]
    found = [PathFinder(mdp, costs.of(k)).shortest(starts, goals, threads=threads) for k in range(n_intents)]
    _none_missing(found[0], starts, goals)
    log_scale = log_prior + trips.log_scale(starts, goals)
    # log_joint[j] is of the route of intent j, with each intent.
    log_joint = np.array([log_scale + _log_weights(costs, starts, ways) for ways in found])
    log_prob = np.logaddexp.reduce(log_joint, axis=2).T
    lengths = np.array([np.diff(ways.offsets) for ways in found])
    too_long: NDArray[np.bool_] = np.greater(lengths.T + 1, getattr(trips, "max_length", np.inf))
    # A route that is too long for the model is still a prediction where no intent has a shorter one.
    whose = np.argmax(np.where(too_long & ~np.all(too_long, axis=1, keepdims=True), -np.inf, log_prob), axis=1)
    log_prob[too_long] = -np.inf
    pair = np.arange(starts.size)
    intent = np.argmax(log_joint[whose, pair], axis=1)
    best = ShortestPaths(*_chosen(found, whose, lengths[whose, pair]), np.zeros(starts.size))
    return demonstrations(mdp, starts, best, goals), intent, log_prob[pair, whose]


def _chosen(found: list[ShortestPaths], whose: IntArray, sizes: IntArray) -> tuple[IntArray, IntArray]:
    """Return the edges and offsets of one way a pair: that of intent `whose` (n,)."""
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    first = np.array([ways.offsets[:-1] for ways in found])[whose, np.arange(whose.size)]
    place = np.arange(offsets[-1]) + np.repeat(first - offsets[:-1], sizes)
    edges = np.empty(offsets[-1], dtype=np.int64)
    owner = np.repeat(whose, sizes)
    for k, ways in enumerate(found):
        edges[owner == k] = ways.edges[place[owner == k]]
    return edges, offsets


def demonstrations(mdp: MDP, starts: IntArray, ways: ShortestPaths, goals: IntArray) -> Demonstrations:
    """Return ways as demonstrations with their actions; one that does not exist is an error."""
    _none_missing(ways, starts, goals)
    n = starts.size
    offsets = ways.offsets + np.arange(n + 1)
    states = np.empty(offsets[-1], dtype=np.int64)
    actions = np.full(offsets[-1], -1, dtype=np.int64)
    moved = np.ones(states.size, dtype=bool)
    moved[offsets[:-1]] = False
    states[offsets[:-1]], states[moved] = starts, mdp.dst[ways.edges]
    left = np.ones(states.size, dtype=bool)
    left[offsets[1:] - 1] = False
    actions[left] = mdp.act[ways.edges]
    return Demonstrations(states, offsets, actions)


def _none_missing(ways: ShortestPaths, starts: IntArray, goals: IntArray) -> None:
    missing = np.isinf(ways.cost)
    if np.any(missing):
        i = int(np.argmax(missing))
        raise InvalidParameter(
            f"No route leads from starts[{i}] = {starts[i]} to goals[{i}] = {goals[i]} ({int(missing.sum())} of "
            f"{starts.size} pairs have none). Leave such pairs out.",
            parameter="goals",
            value=int(goals[i]),
            index=int(i),
        )


def _log_weights(costs: Costs, starts: IntArray, ways: ShortestPaths) -> FloatArray:
    """Return (n, K) the log-weight of each way under each intent, rewards discounted; see `Costs.log_weight`."""
    sizes = np.diff(ways.offsets)
    owner = np.repeat(np.arange(starts.size), sizes)
    step = np.arange(ways.edges.size) - np.repeat(ways.offsets[:-1], sizes)
    each = [
        costs.first(k, starts) + np.bincount(owner, weights=costs.moves(k, ways.edges, step), minlength=starts.size)
        for k in range(costs.n_intents)
    ]
    return np.stack(each, axis=1)
