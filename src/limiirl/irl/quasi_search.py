"""A search whose curvature is learned from gradients, and the edge of the domain from infinite values."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from limiirl.irl.base import Status
from limiirl.irl.domain import Domain
from limiirl.irl.quasi_newton import Curvature, bounded_step
from limiirl.irl.search import HALVINGS, Box, Objective, Search

Float = NDArray[np.float64]
# A step is too long where the slope at its end is above this share of minus that at its beginning, and is cut to a
# share between these, this often at most for that reason.
_OVERSHOT = 0.9
_SHARES = (0.1, 0.7)
_TRIES = 6
# After an infinite value; half would leave the next point so near the edge that every later step runs into it.
_INFINITE = 0.25
# Where infinite values tell the edge, a step goes at most this share of the way to it, in full length so often.
_NEARER = 0.9
_FULL = 5


class QuasiSearch(Search):
    """One of K problems on its way.

    Parameters
    ----------
    curvature : Curvature
    domain : Domain or None
        What is known of where values are finite; it learns from those that are not.
    theta, value, gradient : (d,), float, (d,)
        The start.
    """

    def __init__(
        self, curvature: Curvature, domain: Domain | None, theta: Float, value: float, gradient: Float
    ) -> None:
        super().__init__(theta, value, gradient)
        self.curvature, self.domain = curvature, domain
        self.lowest = theta, value, gradient

    def aim(self, objective: Objective, k: int, box: Box) -> None:
        """Set the next direction: to the minimum of the model within the bounds and what is known of the domain."""
        del objective, k
        self._aim(box)

    def _aim(self, box: Box) -> None:
        self.curvature.begin(self.gradient)
        lower, upper = box.lower - self.theta, box.upper - self.theta
        cuts = None if self.domain is None else (self.domain.rows, _NEARER * self.domain.room(self.theta))
        self.direction = bounded_step(self.curvature.matrix, self.gradient, lower, upper, cuts)
        self.shorten()

    def accepts(self, trial: Float, value: float, gradient: Float, box: Box) -> bool:
        """Return whether a trial point lowers the function enough, and does not lie far beyond the minimum."""
        # A point may be lower and yet not low enough for so long a step; the cap may come before a better one.
        if value < self.lowest[1]:
            self.lowest = trial, value, gradient
        # Near the edge of the domain gradients grow without limit. A point there may be lower, but what its gradient
        # says of the curvature holds nowhere else, so that a step may not go far beyond the minimum along it.
        beyond = float(gradient @ self.direction) > -_OVERSHOT * float(self.gradient @ self.direction)
        return not (beyond and self.halvings < _TRIES) and super().accepts(trial, value, gradient, box)

    def best(self) -> tuple[Float, float, Float]:
        """Return the minimum, or else the lowest point seen, with its value and gradient."""
        return super().best() if self.status is Status.CONVERGED else self.lowest

    def move(self, theta: Float, value: float, gradient: Float) -> None:
        """Go to a point that was accepted, and learn the curvature on the way."""
        self.curvature.update(theta - self.theta, gradient - self.gradient)
        super().move(theta, value, gradient)

    def reject(self, trial: Float, value: float, gradient: Float, box: Box) -> bool:
        """Aim anew where an infinite value tells the edge; else shorten the step.

        It ends at the minimum of a cubic with these values and slopes, or well before a point of infinite value.
        """
        self.halvings += 1
        finite = bool(np.isfinite(value))
        if not finite and self.domain is not None and self.domain.learn(trial):
            tries = self.halvings
            self._aim(box)
            # The edge is curved, and there may be others: a step that keeps running into new ones gets shorter.
            self.length, self.halvings = _INFINITE ** max(0, tries - _FULL), tries
            return self.halvings <= HALVINGS
        first, last = (self.length * float(g @ self.direction) for g in (self.gradient, gradient))
        share = _INFINITE
        if finite and np.isfinite(last):
            middle = first + last - 3.0 * (value - self.value)
            root = np.sqrt(max(0.0, middle**2 - first * last))
            share = 1.0 - (last + root - middle) / max(last - first + 2.0 * root, 1e-300)
        self.length *= min(_SHARES[1], max(_SHARES[0], share))
        return self.halvings <= HALVINGS
