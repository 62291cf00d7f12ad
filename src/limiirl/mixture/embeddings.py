"""Embeddings for clustering: normalised feature counts, or gradients of the log-likelihood (ADR 0012).

Feature counts grow with the length of a trajectory, so k-means on them may separate lengths instead of intents.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from limiirl._parallel import one_thread
from limiirl._typing import FloatArray
from limiirl.errors import InvalidParameter
from limiirl.irl import FitProblem
from limiirl.mixture.information import scores

# Directions with a smaller second moment, relative to the largest, are rounding errors.
_FLAT = 1e-6
# Maximum number of evaluations of the single-intent fit.
_EVALUATIONS = 1000


def shares(problem: FitProblem) -> FloatArray:
    """Return feature counts (G, m) divided by their absolute sum, and so independent of the length."""
    features = problem.features()
    total = np.abs(features).sum(axis=1, keepdims=True)
    return np.asarray(features / np.where(total > 0.0, total, 1.0))


def gradients(problem: FitProblem) -> FloatArray:
    """Return the whitened scores (G, r) of units at the reward of a single-intent fit.

    The score is the gradient of the unit's mean log-likelihood per demonstration. Whitening with sum_i s_i s_i' / G
    makes it independent of the scale of the features.
    """
    pooled = np.ones((len(problem.units), 1))
    limit = None if problem.initial_evaluations is None else _EVALUATIONS  # None: the model has no limit
    theta = problem.m_step(problem.moments(pooled), None, np.arange(1), limit).thetas
    blocks = [block[:, 0] for _, block in scores(problem, theta, np.ones(theta.shape, dtype=bool)).blocks()]
    return whiten_scores(np.concatenate(blocks) / problem.units.counts[:, None])


def whiten_scores(points: FloatArray) -> FloatArray:
    """Return points (G, r) with identity second moments, without directions of zero variance."""
    with one_thread():
        sizes, directions = np.linalg.eigh(points.T @ points / len(points))
        wide = sizes > _FLAT * max(sizes[-1], np.finfo(np.float64).tiny)
        if not np.any(wide):
            return np.zeros((len(points), 1))
        return np.ascontiguousarray(points @ directions[:, wide] / np.sqrt(sizes[wide]))


EMBEDDINGS: dict[str, Callable[[FitProblem], FloatArray]] = {"shares": shares, "gradients": gradients}
"""Embeddings by name: functions of a fit problem that return points (G, m)."""


def check_embedding(embedding: Any) -> None:
    """Raise for an unknown name."""
    if isinstance(embedding, str) and embedding not in EMBEDDINGS:
        rule = f"must be one of {', '.join(EMBEDDINGS)}, an array, or a function of (mdp, demos)"
        raise InvalidParameter.of("embedding", embedding, rule)
