"""Routes between two states: the likeliest of the intents' own, and the best of all, each with its probability."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from limiirl.demos import Demonstrations
from limiirl.errors import InvalidParameter
from limiirl.forecast.checks import log
from limiirl.forecast.drivers import posterior
from limiirl.forecast.prefixes import alone
from limiirl.mdp import MDP
from limiirl.mdp.routes import Way, Ways

Float = NDArray[np.float64]
Int = NDArray[np.int64]
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

    states: Int
    edges: Int
    probability: float
    log_prob: float
    intents: Float
    exact: bool = True

    def __len__(self) -> int:
        return self.states.size

    def __repr__(self) -> str:
        k = int(np.argmax(self.intents))
        share = f"{100 * self.probability:.1f} %" if self.probability >= 5e-4 else f"{100 * self.probability:.1e} %"
        return f"{share}: {len(self)} states, {written(self.states)}; intent {k} ({100 * self.intents[k]:.0f} %)"


def written(states: Int) -> str:
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

    def __init__(self, mdp: MDP, thetas: Float) -> None:
        self.mdp = mdp
        self._state, self._edge = mdp.rewards(thetas)
        for values, what in ((self._state, "state"), (self._edge, "edge")):
            if values is not None and np.any(values > 0.0):
                row, k = np.argwhere(values > 0.0)[0]
                raise InvalidParameter(
                    f"Routes are searched by costs, so rewards must not be positive; that of {what} {row} is "
                    f"{values[row, k]:.4g} under intent {k}. Fit with bounds such as (-10, 0); "
                    "IntentMixture.most_likely takes any reward."
                )
        self._log_prob = log(mdp.prob)

    @property
    def n_intents(self) -> int:
        """K."""
        return int(self._state.shape[1])

    def of(self, k: int) -> Float:
        """Return (E,) what intent k pays."""
        cost = -self._log_prob - self._state[self.mdp.dst, k]
        return np.asarray(cost if self._edge is None else cost - self._edge[:, k]) + 0.0  # no -0.0

    def moves(self, k: int, edges: Int, step: Int) -> Float:
        """Return (m,) the log-weight under intent k of moves along edges (m,), each at its step (m,) of a route."""
        gamma = self.mdp.gamma
        found = self._log_prob[edges] + gamma ** (step + 1.0) * self._state[self.mdp.dst[edges], k]
        return np.asarray(found if self._edge is None else found + gamma ** (step * 1.0) * self._edge[edges, k])

    def first(self, k: int, starts: Int) -> Float:
        """Return (n,) the reward of states under intent k."""
        return np.asarray(self._state[starts, k])

    def log_weight(self, start: int, edges: Sequence[int]) -> Float:
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
        self, trips: Any, costs: Costs, log_prior: Float, start: int, goal: int, begun: Demonstrations | None = None
    ) -> None:
        so_far = alone(np.array([start])) if begun is None else begun
        last = np.array([goal])
        log_pair = np.logaddexp.reduce(log_prior + trips.log_begin(so_far, last)[0])
        if log_pair == -np.inf:
            raise InvalidParameter(
                f"No trip of the model leads from start = {start} to goal = {goal}. "
                "Choose another goal, or make a model with a larger max_length."
            )
        self.costs, self.start = costs, start
        self._origin = int(so_far.start_states[0])
        self._driven: list[int] = so_far.steps(costs.mdp).edge.tolist()
        self._log_scale = log_prior + trips.log_scale(so_far.start_states, last)[0] - log_pair
        self.max_length = getattr(trips, "max_length", math.inf)

    def log_joint(self, edges: Sequence[int]) -> Float:
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

    def log_bound(self, reached: Float) -> Float:
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
    ways = [Ways(costs.mdp, costs.of(k)).cheapest(*pair, threads=1).edges.tolist() for k in range(costs.n_intents)]
    log_prob = [np.logaddexp.reduce(scores.log_joint(edges)) for edges in ways]
    if max(log_prob) == -math.inf:
        raise InvalidParameter(
            f"The cheapest routes from start = {start} to goal = {goal} have more than max_length = "
            f"{scores.max_length} states. IntentMixture.most_likely finds the best that is short enough."
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
    lists = [Ways(costs.mdp, costs.of(j)).ranked(scores.start, goal) for j in range(costs.n_intents)]
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
        way: Way | None = next(lists[j], None)
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
