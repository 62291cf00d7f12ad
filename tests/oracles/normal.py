"""A model with a closed-form posterior: feature counts are normal about theta, in worlds where they take any value.

Log-likelihoods are quadratic in theta, so that Gaussian posteriors and their expectations are exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm
from sklearn.base import BaseEstimator

from limiirl import MDP, Demonstrations

Float = NDArray[np.float64]


class Normal(BaseEstimator):
    """A demonstration's feature count is N(theta, 1)."""

    bounds = None

    def log_prob(self, mdp: Any, thetas: Any, demos: Any) -> Float:
        return norm.logpdf(demos.features(mdp)[:, :1], np.asarray(thetas)[:, 0])

    def fit(self, mdp: Any, demos: Any, weights: Any = None, start: Any = None) -> Float:
        return np.atleast_1d(np.average(demos.features(mdp)[:, 0], weights=weights))


def numbers(values: Sequence[float] | Float) -> tuple[MDP, Demonstrations]:
    """An MDP with a state for each value, and a demonstration that ends in each."""
    n = len(values)
    phi = np.concatenate([[0.0], values])[:, None]
    mdp = MDP.from_edges([0] * n, range(1, n + 1), p0=np.eye(n + 1)[0], state_features=phi)
    return mdp, Demonstrations.from_lists([[0, i + 1] for i in range(n)])
