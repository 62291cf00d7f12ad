"""`init="best"`: several clusterings, of which the one whose rewards explain the demonstrations best begins EM.

No clustering is right everywhere: k-means of feature counts may tell long walks from short ones, a Gaussian mixture may
join what lies close, and the likelihood of the rewards that each leads to says which did so. That takes a fit for each
that differs, and no EM.
"""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from limiirl.demos.units import Units
from limiirl.errors import DivergentPartition
from limiirl.irl.prepared import Prepared
from limiirl.mdp.ensemble import RewardEnsemble
from limiirl.mixture.em import Settings, Start, run
from limiirl.mixture.embeddings import gradients
from limiirl.mixture.init import Rng, grouping
from limiirl.mixture.rewards import start_from

Float = NDArray[np.float64]
BEST = "best"
# Clusters that differ by less (in responsibility) are the same: their rewards would be, too.
_SAME = 1e-3


class Candidate(NamedTuple):
    """A clustering by name, and the points (G, m) that it is given."""

    init: str
    points: Float


def candidates(prepared: Prepared, points: Float, *, with_gradients: bool) -> list[Candidate]:
    """Return what to try: k-means and a Gaussian mixture of the points, and k-means of gradients.

    Parameters
    ----------
    points : (G, m)
        Feature counts, or the user's embedding.
    with_gradients : bool
        Whether to try the gradients, beside the points.
    """
    found = [Candidate("kmeans", points), Candidate("gmm", points)]
    if with_gradients:
        found.append(Candidate("kmeans", gradients(prepared)))
    return found


def best_start(
    prepared: Prepared, tried: list[Candidate], n_intents: int, reward_init: Any, rng: Rng, *, first: bool
) -> Start:
    """Return the start of the highest objective among those of some clusterings, the first of equals.

    Warnings are those of the start that is taken.

    Examples
    --------
    >>> from limiirl import MDP, Demonstrations, MaxEnt
    >>> from limiirl.irl.prepared import prepare
    >>> mdp = MDP.from_edges([0, 0], [1, 2], p0=[1, 0, 0], state_features=[[0], [1], [-1]])
    >>> ready = prepare(MaxEnt(2, bounds=(-3, 3)), mdp, Demonstrations.from_lists([[0, 1], [0, 1], [0, 2]]))
    >>> tried = candidates(ready, ready.features(), with_gradients=True)
    >>> start = best_start(ready, tried, 2, "mle", np.random.default_rng(0), first=True)
    >>> sorted(start.rho.round(2).tolist())
    [0.33, 0.67]
    """
    known: list[Float] = []
    best, told, highest, failed = None, [], -np.inf, None
    for candidate in tried:
        U = _clusters(candidate, n_intents, prepared.units, rng, first=first)
        if any(_same(U, other) for other in known):
            continue
        known.append(U)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            start = start_from(prepared, U, reward_init, rng)
            try:
                objective = run(prepared, start, Settings(max_iter=0)).objective
            except DivergentPartition as error:
                failed = error
                continue
        if best is None or objective > highest:
            best, told, highest = start, said, objective
    if best is None:
        assert failed is not None  # there is at least one candidate
        raise failed
    for warning in told:
        warnings.warn(warning.message, stacklevel=4)
    return best


def _clusters(candidate: Candidate, n_intents: int, units: Units, rng: Rng, *, first: bool) -> Float:
    found = grouping(candidate.init, candidate.points, n_intents, units, rng, first=first)
    assert not isinstance(found, RewardEnsemble)  # k-means and Gaussian mixtures say who belongs together
    return found


def _same(U: Float, other: Float) -> bool:
    """Whether two clusterings are the same but for the numbers of clusters."""
    order = np.argmax(U.T @ other, axis=1)
    if np.unique(order).size < order.size:
        return False
    return bool(np.max(np.abs(U - other[:, order])) < _SAME)
