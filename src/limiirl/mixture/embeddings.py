"""What a warm start may cluster instead of feature counts: their shares, or gradients of the likelihood.

Feature counts grow with the length of a walk, so that k-means may tell the long from the short rather than one intent
from another. ADR 0012 compares embeddings, among them some that are not here as they found nothing that these did not.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from limiirl._parallel import one_thread
from limiirl._typing import FloatArray
from limiirl.errors import InvalidParameter
from limiirl.irl import FitProblem
from limiirl.mixture.information import scores

# Directions in which scores have a smaller mean square than this, relative to the widest, are rounding: a thousandth of
# the spread.
_FLAT = 1e-6
# Evaluations that the fit of a single intent may take.
_EVALUATIONS = 1000


def shares(prepared: FitProblem) -> FloatArray:
    """Return (G, m): feature counts divided by the sum of their sizes, so that a walk twice as long is the same point.

    Examples
    --------
    >>> from limiirl import MDP, Demonstrations, MaxEnt
    >>> from limiirl.irl.problem import make_problem
    >>> mdp = MDP.from_edges([0, 1], [1, 0], p0=[1, 0], state_features=[[1, 0], [0, 1]])
    >>> shares(make_problem(MaxEnt(), mdp, Demonstrations.from_lists([[0, 1], [0, 1, 0, 1]]))).tolist()
    [[0.5, 0.5], [0.5, 0.5]]
    """
    features = prepared.features()
    total = np.abs(features).sum(axis=1, keepdims=True)
    return np.asarray(features / np.where(total > 0.0, total, 1.0))


def gradients(prepared: FitProblem) -> FloatArray:
    r"""Return (G, r): how each unit would change the reward that explains all together.

    A unit's score is the gradient of its log-likelihood at that reward, a demonstration's mean; scores are divided by
    the root of their own information, sum_i s_i s_i^T / G, so that units of features do not matter. In a causal model
    chance moves no score on average, only choices do.

    Examples
    --------
    >>> from limiirl import MDP, Demonstrations, MaxEnt
    >>> from limiirl.irl.problem import make_problem
    >>> mdp = MDP.from_edges([0, 0], [1, 2], p0=[1, 0, 0], state_features=[[0], [1], [-1]])
    >>> found = gradients(make_problem(MaxEnt(max_length=2), mdp, Demonstrations.from_lists([[0, 1], [0, 2]])))
    >>> np.abs(found).round(6).tolist(), bool(found[0, 0] == -found[1, 0])
    ([[1.0], [1.0]], True)
    """
    together = np.ones((len(prepared.units), 1))
    cap = None if prepared.initial_evaluations is None else _EVALUATIONS  # a model may have no cap to set
    theta = prepared.m_step(prepared.moments(together), None, np.arange(1), cap).thetas
    parts = [part[:, 0] for _, part in scores(prepared, theta, np.ones(theta.shape, dtype=bool)).blocks()]
    return whitened(np.concatenate(parts) / prepared.units.counts[:, None])


def whitened(points: FloatArray) -> FloatArray:
    """Return points (G, r) whose second moments are the identity, in the directions in which they are not all zero."""
    with one_thread():
        sizes, directions = np.linalg.eigh(points.T @ points / len(points))
        wide = sizes > _FLAT * max(sizes[-1], np.finfo(np.float64).tiny)
        if not np.any(wide):
            return np.zeros((len(points), 1))
        return np.ascontiguousarray(points @ directions[:, wide] / np.sqrt(sizes[wide]))


EMBEDDINGS: dict[str, Callable[[FitProblem], FloatArray]] = {"shares": shares, "gradients": gradients}
"""Embeddings by name, as functions of the prepared model to one point per unit (G, m)."""


def embedding(name: str) -> Callable[[FitProblem], FloatArray]:
    """Return an embedding by its name."""
    if name not in EMBEDDINGS:
        raise InvalidParameter(
            f"embedding must be one of {', '.join(EMBEDDINGS)}, points, or a function of (mdp, demos); got {name!r}.",
            parameter="embedding",
            value=name,
        )
    return EMBEDDINGS[name]
