"""A search whose curvature is learned from gradients, and the edge of the domain from infinite values.

Where convex functions are finite: a convex set, learned from the points that turn out to lie outside of it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from limiirl._typing import FloatArray
from limiirl.irl.base import Status
from limiirl.irl.optim.projected_newton import HALVINGS, BFGSMatrix, Box, NewtonSearch, Objective, bounded_step

# Half-spaces kept; those that were learned first are forgotten first.
_KEPT = 256


class CuttingPlanes:
    """Half-spaces rows . theta <= most that hold the whole domain of some functions.

    Let c be convex and negative on the domain, and c(x) >= 0 at a point x outside. Then the domain lies where
    c(x) + c'(x) . (theta - x) < 0, which cuts off x and what is behind it.

    Parameters
    ----------
    edge : callable
        Returns c(x) and c'(x) (d,) of some such c at a point x (d,) outside, or None if there is none to tell.

    Attributes
    ----------
    rows, most : (m, d), (m,)

    Examples
    --------
    A function is finite on a disc; what is learned at (2, 0) is the tangent x <= 1.25 and not yet x <= 1.

    >>> disc = CuttingPlanes(lambda x: (float(x @ x) - 1.0, 2.0 * x))
    >>> disc.learn(np.array([2.0, 0.0]))
    True
    >>> disc.room(np.zeros(2))
    array([1.25])
    """

    def __init__(self, edge: Callable[[FloatArray], tuple[float, FloatArray] | None]) -> None:
        self._edge = edge
        self.rows: FloatArray = np.empty((0, 0))
        self.most: FloatArray = np.empty(0)

    def learn(self, theta: FloatArray) -> bool:
        """Add a half-space that does not hold theta (d,), a point outside the domain; return whether there is one."""
        found = self._edge(theta)
        if found is None:
            return False
        level, slope = found
        size = float(np.linalg.norm(slope))
        if not (size > 0.0 and np.isfinite(size) and np.isfinite(level)):
            return False
        self._add(slope[None] / size, np.array([float(slope @ theta) - level]) / size)
        return True

    def room(self, theta: FloatArray) -> FloatArray:
        """Return (m,) how far a point (d,) of the domain is from the end of each half-space: not below 0."""
        if not self.most.size:
            return np.empty(0)
        return np.asarray(np.maximum(0.0, self.most - self.rows @ theta))

    def fork(self) -> CuttingPlanes:
        """Return another that knows the same and goes on learning alone: threads must not depend on each other."""
        other = CuttingPlanes(self._edge)
        other.rows, other.most = self.rows, self.most
        return other

    def merge(self, fork: CuttingPlanes) -> None:
        """Add what a fork of this one has learned, whether or not others were merged meanwhile."""
        if fork.most.size:
            rows = self.rows.reshape(-1, fork.rows.shape[1])
            same = np.all(fork.rows[:, None] == rows, axis=2) & (fork.most[:, None] == self.most)
            new = ~np.any(same, axis=1)
            self._add(fork.rows[new], fork.most[new])

    def _add(self, rows: FloatArray, most: FloatArray) -> None:
        self.rows = np.concatenate([self.rows.reshape(-1, rows.shape[1]), rows])[-_KEPT:]
        self.most = np.concatenate([self.most, most])[-_KEPT:]


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


class BFGSSearch(NewtonSearch):
    """One of K problems on its way.

    Parameters
    ----------
    curvature : BFGSMatrix
    domain : Domain or None
        What is known of where values are finite; it learns from those that are not.
    theta, value, gradient : (d,), float, (d,)
        The start.
    """

    def __init__(
        self, curvature: BFGSMatrix, domain: CuttingPlanes | None, theta: FloatArray, value: float, gradient: FloatArray
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

    def accepts(self, trial: FloatArray, value: float, gradient: FloatArray, box: Box) -> bool:
        """Return whether a trial point lowers the function enough, and does not lie far beyond the minimum."""
        # A point may be lower and yet not low enough for so long a step; the cap may come before a better one.
        if value < self.lowest[1]:
            self.lowest = trial, value, gradient
        # Near the edge of the domain gradients grow without limit. A point there may be lower, but what its gradient
        # says of the curvature holds nowhere else, so that a step may not go far beyond the minimum along it.
        beyond = float(gradient @ self.direction) > -_OVERSHOT * float(self.gradient @ self.direction)
        return not (beyond and self.halvings < _TRIES) and super().accepts(trial, value, gradient, box)

    def best(self) -> tuple[FloatArray, float, FloatArray]:
        """Return the minimum, or else the lowest point seen, with its value and gradient."""
        return super().best() if self.status is Status.CONVERGED else self.lowest

    def move(self, theta: FloatArray, value: float, gradient: FloatArray) -> None:
        """Go to a point that was accepted, and learn the curvature on the way."""
        self.curvature.update(theta - self.theta, gradient - self.gradient)
        super().move(theta, value, gradient)

    def reject(self, trial: FloatArray, value: float, gradient: FloatArray, box: Box) -> bool:
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
