"""How many clusters a Dirichlet process mixture of Gaussians sees in the feature counts (the paper's way to K).

Its sticks are broken variationally (scikit-learn). Feature counts are whole visits, discounted: discrete and skewed,
nothing like a Gaussian, and the textbook mixture fills the skew with components until it has used up most of them. Two
choices keep it from that: a floor under the variances, as a share of that of all the data; and the best of several
starts, since from one it seldom finds the way to fewer components.
"""

from __future__ import annotations

import warnings

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning as SklearnConvergenceWarning
from sklearn.mixture import BayesianGaussianMixture

from limiirl.irl.threads import one_thread
from limiirl.mixture.init import standardised

Float = NDArray[np.float64]
# A component's variance in any direction of the whitened points is at least this share of theirs, which is 1.
LEAST_VARIANCE = 0.2
_STARTS = 10
# Directions with less than this share of the largest standard deviation are rounding, not data.
_NO_SPREAD = 1e-8


def whiten(points: Float) -> Float:
    """Return points (G, r) of mean 0 and covariance 1, r being the number of directions in which (G, m) vary.

    Constant and collinear columns leave fewer directions than columns. The units of a column do not matter.

    Examples
    --------
    >>> white = whiten(np.array([[0.0, 0.0, 7.0], [1.0, 2.0, 7.0], [2.0, 4.0, 7.0]]))  # one direction in three columns
    >>> np.abs(white).round(4).ravel()
    array([1.2247, 0.    , 1.2247])
    """
    scaled = standardised(points)
    if scaled.shape[1] == 0:
        return scaled
    left, singular, _ = np.linalg.svd(scaled, full_matrices=False)
    kept = singular > _NO_SPREAD * singular[0]
    return np.asarray(left[:, kept] * np.sqrt(len(points)))


def stick_breaking(points: Float, most: int, seed: int) -> int:
    """Return the number of clusters among points (G, m), at most `most`: components of a weight above 1 / G.

    Examples
    --------
    >>> corners = np.repeat([[0.0, 0.0], [9.0, 0.0], [0.0, 9.0]], 20, axis=0)
    >>> stick_breaking(corners + np.random.default_rng(0).normal(size=corners.shape), 6, seed=0)
    3
    """
    white = whiten(points)
    most = min(most, len(white))
    if white.shape[1] == 0 or most < 2:
        return 1
    mixture = BayesianGaussianMixture(
        n_components=most,
        covariance_type="full",
        weight_concentration_prior_type="dirichlet_process",
        weight_concentration_prior=1.0 / most,
        reg_covar=LEAST_VARIANCE,
        n_init=_STARTS,
        max_iter=1000,
        random_state=seed,
    )
    # An early stop changes no count.
    with one_thread(), warnings.catch_warnings():
        warnings.simplefilter("ignore", SklearnConvergenceWarning)
        mixture.fit(white)
    return max(1, int(np.count_nonzero(mixture.weights_ > 1.0 / len(white))))
