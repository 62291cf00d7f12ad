"""The prior on rewards of the Bayesian mixture, and the coordinates in which it is a standard Gaussian.

Each reward has the prior N(0, scale^2), restricted to its bounds. Its normal score u = Phi^-1(F(theta)), F being the
prior's distribution function, has the prior N(0, 1) and no bounds, whatever bounds theta has. Posteriors are Gaussian
in u: they never leave the bounds, and a reward that the data push against a bound needs no treatment of its own.
Without bounds theta is scale times u.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from limiirl.errors import InvalidParameter
from limiirl.irl.optimise import Box

Float = NDArray[np.float64]
# Bounds with less of the prior between them are a mistake, and beyond what differences of Phi can tell.
_LEAST_MASS = 1e-9


class Prior:
    """Independent rewards N(0, scale^2), restricted to a box.

    Parameters
    ----------
    box : Box
        Bounds (d,) of theta.
    scale : float

    Examples
    --------
    >>> prior = Prior(Box(np.array([-10.0, -np.inf]), np.array([0.0, np.inf])), 10.0)
    >>> prior.theta(np.array([[0.0, 0.0], [-9.0, 1.0]])).round(3)  # a median, then a bound and a standard deviation
    array([[ -4.418,   0.   ],
           [-10.   ,  10.   ]])
    """

    def __init__(self, box: Box, scale: float) -> None:
        self.box, self.scale = box, scale
        self.free = np.isneginf(box.lower) & np.isposinf(box.upper)
        low, high = box.lower / scale, box.upper / scale
        self._below, self._above = ndtr(low), ndtr(-high)
        # Of two ends on the same side of 0, the difference is taken in the tail where digits are left.
        self._mass = np.where(low > 0.0, ndtr(-low) - self._above, ndtr(high) - self._below)
        if np.any(self._mass < _LEAST_MASS):
            j = int(np.argmin(self._mass))
            raise InvalidParameter(
                f"prior_scale={scale:g} leaves next to no probability between the bounds {box.lower[j]:g} and "
                f"{box.upper[j]:g} of parameter {j}. Raise prior_scale, or move the bounds towards 0."
            )

    def theta(self, u: Float) -> Float:
        """Return rewards (..., d) of normal scores (..., d)."""
        tail = np.where(u <= 0.0, self._below, self._above) + ndtr(-np.abs(u)) * self._mass
        bounded = np.where(u <= 0.0, 1.0, -1.0) * ndtri(tail) * self.scale
        return np.asarray(np.where(self.free, self.scale * u, self.box.clip(bounded)))

    def score(self, theta: Float) -> Float:
        """Return normal scores (..., d) of rewards (..., d) within the bounds; infinite on a bound."""
        at = theta / self.scale
        # From the nearer end, where digits are left.
        below, above = (ndtr(at) - self._below) / self._mass, (ndtr(-at) - self._above) / self._mass
        bounded = np.where(below < above, ndtri(np.maximum(below, 0.0)), -ndtri(np.maximum(above, 0.0)))
        return np.asarray(np.where(self.free, at, bounded))

    def slope(self, u: Float) -> Float:
        """Return d theta / d u (..., d)."""
        at = self.theta(u) / self.scale
        with np.errstate(over="ignore"):  # of rewards without bounds, which may be any
            bounded = self.scale * self._mass * np.exp(0.5 * (at**2 - u**2))
        return np.asarray(np.where(self.free, self.scale, bounded))
