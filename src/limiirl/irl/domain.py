"""Where convex functions are finite: a convex set, learned from the points that turn out to lie outside of it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Float = NDArray[np.float64]
# Half-spaces kept; those that were learned first are forgotten first.
_KEPT = 256


class Domain:
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

    >>> disc = Domain(lambda x: (float(x @ x) - 1.0, 2.0 * x))
    >>> disc.learn(np.array([2.0, 0.0]))
    True
    >>> disc.room(np.zeros(2))
    array([1.25])
    """

    def __init__(self, edge: Callable[[Float], tuple[float, Float] | None]) -> None:
        self._edge = edge
        self.rows: Float = np.empty((0, 0))
        self.most: Float = np.empty(0)

    def learn(self, theta: Float) -> bool:
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

    def room(self, theta: Float) -> Float:
        """Return (m,) how far a point (d,) of the domain is from the end of each half-space: not below 0."""
        if not self.most.size:
            return np.empty(0)
        return np.asarray(np.maximum(0.0, self.most - self.rows @ theta))

    def fork(self) -> Domain:
        """Return another that knows the same and goes on learning alone: threads must not depend on each other."""
        other = Domain(self._edge)
        other.rows, other.most = self.rows, self.most
        return other

    def merge(self, fork: Domain) -> None:
        """Add what a fork of this one has learned, whether or not others were merged meanwhile."""
        if fork.most.size:
            rows = self.rows.reshape(-1, fork.rows.shape[1])
            same = np.all(fork.rows[:, None] == rows, axis=2) & (fork.most[:, None] == self.most)
            new = ~np.any(same, axis=1)
            self._add(fork.rows[new], fork.most[new])

    def _add(self, rows: Float, most: Float) -> None:
        self.rows = np.concatenate([self.rows.reshape(-1, rows.shape[1]), rows])[-_KEPT:]
        self.most = np.concatenate([self.most, most])[-_KEPT:]
