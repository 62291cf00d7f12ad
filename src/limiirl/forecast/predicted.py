"""Predicted routes for thousands of pairs of states, by an ensemble of intents or by any cost of edges."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from limiirl.demos import Demonstrations
from limiirl.errors import InvalidParameter
from limiirl.forecast.checks import pairs
from limiirl.mdp.routes import Found, Ways

if TYPE_CHECKING:
    from limiirl.forecast.routes import Costs
    from limiirl.mdp import MDP

Float = NDArray[np.float64]
Int = NDArray[np.int64]


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
    return demonstrations(mdp, first, Ways(mdp, cost).cheapest(first, last, threads=threads), last)


def predicted_routes(
    trips: Any, costs: Costs, log_prior: Float, starts: Int, goals: Int, *, threads: int | None = None
) -> tuple[Demonstrations, Int, Float]:
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
    found = [Ways(mdp, costs.of(k)).cheapest(starts, goals, threads=threads) for k in range(n_intents)]
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
    best = Found(*_chosen(found, whose, lengths[whose, pair]), np.zeros(starts.size))
    return demonstrations(mdp, starts, best, goals), intent, log_prob[pair, whose]


def _chosen(found: list[Found], whose: Int, sizes: Int) -> tuple[Int, Int]:
    """Return the edges and offsets of one way a pair: that of intent `whose` (n,)."""
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    first = np.array([ways.offsets[:-1] for ways in found])[whose, np.arange(whose.size)]
    place = np.arange(offsets[-1]) + np.repeat(first - offsets[:-1], sizes)
    edges = np.empty(offsets[-1], dtype=np.int64)
    owner = np.repeat(whose, sizes)
    for k, ways in enumerate(found):
        edges[owner == k] = ways.edges[place[owner == k]]
    return edges, offsets


def demonstrations(mdp: MDP, starts: Int, ways: Found, goals: Int) -> Demonstrations:
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


def _none_missing(ways: Found, starts: Int, goals: Int) -> None:
    missing = np.isinf(ways.cost)
    if np.any(missing):
        i = int(np.argmax(missing))
        raise InvalidParameter(
            f"No route leads from starts[{i}] = {starts[i]} to goals[{i}] = {goals[i]} ({int(missing.sum())} of "
            f"{starts.size} pairs have none). Leave such pairs out."
        )


def _log_weights(costs: Costs, starts: Int, ways: Found) -> Float:
    """Return (n, K) the log-weight of each way under each intent, rewards discounted; see `Costs.log_weight`."""
    sizes = np.diff(ways.offsets)
    owner = np.repeat(np.arange(starts.size), sizes)
    step = np.arange(ways.edges.size) - np.repeat(ways.offsets[:-1], sizes)
    each = [
        costs.first(k, starts) + np.bincount(owner, weights=costs.moves(k, ways.edges, step), minlength=starts.size)
        for k in range(costs.n_intents)
    ]
    return np.stack(each, axis=1)
