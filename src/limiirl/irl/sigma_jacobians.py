"""How the features that an agent collects would change with its policy: GPOMDP's Jacobians, their mean and spread.

spec.md, section B, steps 3 and 4. A reward that an agent maximises is one along which its expected features cannot be
raised: the Jacobian times omega is zero, but for noise, whose covariance is estimated beside it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from limiirl.errors import InvalidDemos
from limiirl.kernels.gpomdp import baseline

Float = NDArray[np.float64]
# Jacobians smaller than this share of the terms that they are the difference of are rounding.
_ROUNDING = 1e-12
# The least weight of the target in a shrunk covariance: with two trajectories, Ledoit and Wolf's is 0.
_LEAST_SHRINKAGE = 1e-6


class Spread(NamedTuple):
    """The Jacobians of an agent, as a Gaussian likelihood sees them.

    Attributes
    ----------
    mean : (d, q)
        The mean over trajectories.
    deviations : (n, d, q)
        Each trajectory's Jacobian less the mean.
    shrinkage : float
        delta, the share of the target in the covariance (1 - delta) S + delta mu I of Ledoit and Wolf (2004).
    target : float
        mu, the mean variance of an entry.
    """

    mean: Float
    deviations: Float
    shrinkage: float
    target: float

    @property
    def variances(self) -> Float:
        """The diagonal (d, q) of the covariance of the *mean*: shrunk, and divided by n."""
        n = len(self.deviations)
        own = np.mean(self.deviations**2, axis=0)
        return np.asarray((1.0 - self.shrinkage) * own + self.shrinkage * self.target) / n


def jacobians(scores: Float, reward_features: Float, gamma: float, floor: float) -> Float:
    """Return (n, d, q): for each trajectory, sum_t G_t (gamma^t phi_t - B_t)^T.

    G_t is the sum of scores up to t. The baseline B_t, entry by entry, is the mean over trajectories of gamma^t phi_t
    weighted by G_t^2, which makes the variance smallest; where no trajectory has a score it is zero. It is subtracted
    after the end of a trajectory too, where phi is zero, since it has no effect on the mean only if all trajectories
    count. What is the same in all trajectories it takes away altogether.

    Parameters
    ----------
    scores : (n, H, d)
    reward_features : (n, H, q)
    floor : float
        Added to the sum of G_t^2 by which a baseline is divided. With 0, what is the same in all trajectories is taken
        away to the last bit, and Jacobians that are rounding are set to 0.

    Examples
    --------
    With one trajectory the baseline takes everything away.

    >>> J = jacobians(np.ones((1, 4, 2)), np.ones((1, 4, 3)), gamma=0.9, floor=0.0)
    >>> J.shape, bool(np.any(J))
    ((1, 2, 3), False)
    """
    G = np.cumsum(scores, axis=1)
    collected = gamma ** np.arange(scores.shape[1])[:, None] * reward_features
    found = np.einsum("ntd,ntq->ndq", G, collected, optimize=True)
    found -= np.einsum("ntd,tdq->ndq", G, baseline(G, collected, floor), optimize=True)
    if floor == 0.0:
        # The objective does not depend on the size of a Jacobian, so that rounding would count like anything else.
        size = np.einsum("ntd,ntq->ndq", np.abs(G), np.abs(collected), optimize=True)
        found[np.abs(found) <= _ROUNDING * size] = 0.0
    return np.asarray(found)


def spread(J: Float, number: int = 0) -> Spread:
    """Return the mean and the shrunk covariance of Jacobians (n, d, q), without rows that are identically zero.

    Where all are zero, nothing that the agent does matters to what it collects, and all rewards explain it: one row is
    left, of mean 0 and variance 1, which is the same under all of them.

    The weight delta of the target is that of Ledoit and Wolf, from the n x n products of centred Jacobians; the
    covariance of all d q entries is never formed.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> found = spread(rng.normal(size=(40, 5, 3)))
    >>> found.mean.shape, found.variances.shape, bool(0 < found.shrinkage <= 1)
    ((5, 3), (5, 3), True)
    """
    n = len(J)
    if n < 2:
        raise InvalidDemos(
            f"Agent {number} has {n} trajectory; a covariance needs at least 2. Record more, or leave the agent out."
        )
    if not np.any(J):
        return Spread(np.zeros((1, J.shape[2])), np.zeros((n, 1, J.shape[2])), 1.0, 1.0)
    kept = J[:, np.any(J != 0.0, axis=(0, 2))]
    mean = kept.mean(axis=0)
    deviations = kept - mean
    flat = deviations.reshape(n, -1)
    target = float(np.mean(flat**2))
    if not target > 0.0:
        raise InvalidDemos(
            f"The Jacobians of agent {number} do not vary over its {n} trajectories: they are copies. Record "
            "trajectories that differ."
        )
    return Spread(mean, deviations, _shrinkage(flat / np.sqrt(target)), target)


def _shrinkage(scaled: Float) -> float:
    """Return delta for centred rows (n, P) of mean square 1: E|S_i - S|^2 / n over |S - I|^2, the norms per entry."""
    n, P = scaled.shape
    length = np.sum(scaled**2, axis=1)
    squared = float(np.sum((scaled @ scaled.T) ** 2)) / n**2  # the squared norm of S
    noise = (float(np.mean(length**2)) - squared) / n
    distance = squared - P
    found = noise / distance if distance > 0.0 else 1.0
    return min(1.0, max(_LEAST_SHRINKAGE, found))
