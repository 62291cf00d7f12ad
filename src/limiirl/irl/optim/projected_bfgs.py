"""Projected BFGS method for K convex functions that may be infinite outside an unknown domain."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.linalg import LinAlgError, cholesky, solve_triangular
from scipy.optimize import lsq_linear, nnls

from limiirl._parallel import one_thread
from limiirl._typing import FloatArray
from limiirl.irl.base import FitResult, Status
from limiirl.irl.optim.projected_newton import HALVINGS, Box, NewtonSearch, Objective, descend

# Maximum number of half-spaces; if exceeded, the oldest are dropped.
_KEPT = 256


class CuttingPlanes:
    """Half-spaces ``rows @ theta <= most`` that contain the effective domain of convex functions (cutting planes).

    Let c be a convex function that is negative on the domain, and x a point outside of the domain with c(x) >= 0. Then
    the half-space c(x) + c'(x) . (theta - x) < 0 contains the domain, but not x.

    Parameters
    ----------
    edge : callable
        Returns c(x) and c'(x) (d,) at a point x (d,) outside of the domain, or None if no such function c is known.

    Attributes
    ----------
    rows, most : (m, d), (m,)

    Examples
    --------
    The domain is the unit disc. The cut at (2, 0) is x <= 1.25.

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
        """Add a half-space that excludes a point theta (d,) outside of the domain; return False if there is none."""
        result = self._edge(theta)
        if result is None:
            return False
        level, normal = result
        size = float(np.linalg.norm(normal))
        if not (size > 0.0 and np.isfinite(size) and np.isfinite(level)):
            return False
        self._add(normal[None] / size, np.array([float(normal @ theta) - level]) / size)
        return True

    def room(self, theta: FloatArray) -> FloatArray:
        """Return the distances (m,) of a point (d,) to the boundaries of the half-spaces, or 0 if it is outside."""
        if not self.most.size:
            return np.empty(0)
        return np.asarray(np.maximum(0.0, self.most - self.rows @ theta))

    def fork(self) -> CuttingPlanes:
        """Return a copy for one thread, so that results do not depend on other threads."""
        other = CuttingPlanes(self._edge)
        other.rows, other.most = self.rows, self.most
        return other

    def merge(self, fork: CuttingPlanes) -> None:
        """Add the half-spaces of a copy made by `fork` that are not yet included."""
        if fork.most.size:
            rows = self.rows.reshape(-1, fork.rows.shape[1])
            same = np.all(fork.rows[:, None] == rows, axis=2) & (fork.most[:, None] == self.most)
            new = ~np.any(same, axis=1)
            self._add(fork.rows[new], fork.most[new])

    def _add(self, rows: FloatArray, most: FloatArray) -> None:
        self.rows = np.concatenate([self.rows.reshape(-1, rows.shape[1]), rows])[-_KEPT:]
        self.most = np.concatenate([self.most, most])[-_KEPT:]


# Largest change in a variable in the first step, in units of its scale.
_FIRST = 1.0
# Lower limit of the curvature along a step, relative to the curvature of the model (Powell 1978).
_LEAST = 1e-4
# Distance to a bound that is treated as 0, relative to the largest component of a step.
_ROUNDING = 1e-12


class BFGSMatrix:
    """Positive definite BFGS approximation `matrix` (d, d) of the Hessian.

    `scale` (d,) contains the initial second derivatives, up to a common factor.
    """

    def __init__(self, scale: FloatArray) -> None:
        self.matrix = np.diag(scale)
        self._begun = self._learned = False

    def begin(self, gradient: FloatArray) -> None:
        """Before the first step, set the common factor of `scale` so that this step is short."""
        if not self._begun:
            self._begun = True
            root = np.sqrt(np.diag(self.matrix))
            self.matrix = self.matrix * max(1.0, float(np.max(np.abs(gradient) / root)) / _FIRST)

    def update(self, step: FloatArray, change: FloatArray) -> None:
        """Update the approximation with the change in the gradient (d,) along a step (d,)."""
        along = self.matrix @ step
        model, true = float(step @ along), float(step @ change)
        if not self._learned and true > 0.0:
            # The first step determines the common factor of `scale`.
            self.matrix, along, model = self.matrix * (true / model), along * (true / model), true
            self._learned = True
        if true < _LEAST * model:
            factor = (1.0 - _LEAST) * model / (model - true)
            change = factor * change + (1.0 - factor) * along
            true = float(step @ change)
        if not (true > 0.0 and model > 0.0 and np.isfinite(true)):  # the step is below rounding error
            return
        self.matrix = self.matrix - np.outer(along, along) / model + np.outer(change, change) / true


def solve_box_qp(
    matrix: FloatArray,
    gradient: FloatArray,
    lower: FloatArray,
    upper: FloatArray,
    cuts: tuple[FloatArray, FloatArray] | None = None,
) -> FloatArray:
    """Return the step (d,) within [lower, upper] that minimises gradient . step + step . matrix step / 2.

    Parameters
    ----------
    cuts : ((m, d), (m,)), optional
        Half-spaces rows . step <= most that must contain the step. They contain 0.

    Examples
    --------
    >>> solve_box_qp(np.eye(2), np.array([-3.0, 1.0]), np.array([-1.0, 0.0]), np.array([2.0, 1.0]))
    array([2., 0.])
    >>> half = np.array([[1.0, 1.0]]), np.array([1.0])
    >>> solve_box_qp(np.eye(2), np.array([-1.5, -1.0]), np.zeros(2), np.full(2, 2.0), half)
    array([0.75, 0.25])
    """
    step, free = np.zeros_like(gradient), upper > lower
    # Scale the quadratic model to a unit diagonal, because the units of features vary.
    unit = 1.0 / np.sqrt(np.maximum(np.abs(np.diag(matrix)[free]), 1e-150))
    scaled = matrix[np.ix_(free, free)] * np.outer(unit, unit)
    damping, eye = 1e-12, np.eye(unit.size)
    while True:
        try:
            root = cholesky(scaled + damping * eye)
            break
        except LinAlgError:
            damping *= 100.0
    right = -solve_triangular(root, gradient[free] * unit, trans="T")
    plain = solve_triangular(root, right)
    low, high = lower[free] / unit, upper[free] / unit
    if np.any((plain < low) | (plain > high)):
        plain = lsq_linear(root, right, (low, high), method="bvls").x
    if cuts is not None and cuts[1].size:
        rows, most = cuts[0][:, free] * unit, cuts[1]
        if np.any(rows @ plain > most):
            plain = _within(root, right, np.vstack([rows, eye, -eye]), np.concatenate([most, high, -low]), plain)
            # Set components within rounding error of a bound to the bound.
            reach = _ROUNDING * float(np.max(np.abs(plain)))
            plain = np.where(plain > high - reach, high, np.where(plain < low + reach, low, plain))
    step[free] = np.clip(plain * unit, lower[free], upper[free])
    return step


def _within(root: FloatArray, right: FloatArray, rows: FloatArray, most: FloatArray, plain: FloatArray) -> FloatArray:
    """Return the x (d,) that minimises |root x - right| subject to rows . x <= most, where x = 0 is feasible.

    In terms of y = root x - right, this is the least distance problem of Lawson and Hanson (1974, chapter 23), which is
    solved by nonnegative least squares. `plain` is the solution without cuts.
    """
    finite = np.isfinite(most)
    rows, most = rows[finite], most[finite]
    against = -solve_triangular(root, rows.T, trans="T").T
    size = np.maximum(np.linalg.norm(against, axis=1), 1e-300)
    # The unit of length is |y| at x = 0, which the solution does not exceed.
    unit = float(np.linalg.norm(right))
    system = np.vstack([(against / size[:, None]).T, (-most - against @ right) / (size * unit)])
    target = np.append(np.zeros(right.size), 1.0)
    try:
        rest = system @ nnls(system, target)[0] - target
    except RuntimeError:  # not converged: truncate the solution without cuts at the first cut
        along = rows @ plain
        return np.asarray(plain * float(np.min(most[along > most] / along[along > most], initial=1.0)))
    return np.asarray(solve_triangular(root, right - unit * rest[:-1] / rest[-1]))


# A step overshoots if the slope at its end exceeds -_OVERSHOT times the slope at its start. It is then shortened by a
# factor in the interval _FACTORS, at most _TRIES times.
_OVERSHOT = 0.9
_FACTORS = (0.1, 0.7)
_TRIES = 6
# Factor of the step length after an infinite value; with 0.5, the next point would be too close to the boundary.
_INFINITE = 0.25
# Largest step towards a cutting plane, as a fraction of the distance, and number of attempts with full step length.
_NEARER = 0.9
_FULL = 5


class BFGSSearch(NewtonSearch):
    """State of a projected BFGS search, with an optional outer approximation of the domain."""

    def __init__(
        self, curvature: BFGSMatrix, domain: CuttingPlanes | None, theta: FloatArray, value: float, gradient: FloatArray
    ) -> None:
        super().__init__(theta, value, gradient)
        self.curvature, self.domain = curvature, domain
        self.lowest = theta, value, gradient

    def aim(self, objective: Any, k: int, box: Box) -> None:
        """Set the direction to the minimum of the quadratic model within the bounds and the cutting planes."""
        del objective, k
        self._aim(box)

    def _aim(self, box: Box) -> None:
        self.curvature.begin(self.gradient)
        lower, upper = box.lower - self.theta, box.upper - self.theta
        cuts = None if self.domain is None else (self.domain.rows, _NEARER * self.domain.room(self.theta))
        self.direction = solve_box_qp(self.curvature.matrix, self.gradient, lower, upper, cuts)
        self.shorten()

    def accepts(self, trial: FloatArray, value: float, gradient: FloatArray, box: Box) -> bool:
        """Return True if a trial point satisfies the Armijo rule and does not overshoot the minimum."""
        # A rejected point may still be the lowest point when the maximum number of evaluations is reached.
        if value < self.lowest[1]:
            self.lowest = trial, value, gradient
        # Gradients diverge at the boundary of the domain and degrade the BFGS approximation. Do not step far beyond the
        # minimum along the direction, even if the value there is lower than at the current point.
        beyond = float(gradient @ self.direction) > -_OVERSHOT * float(self.gradient @ self.direction)
        return not (beyond and self.halvings < _TRIES) and super().accepts(trial, value, gradient, box)

    def best(self) -> tuple[FloatArray, float, FloatArray]:
        """Return the minimum, or the lowest evaluated point if not converged, with its value and gradient."""
        return super().best() if self.status is Status.CONVERGED else self.lowest

    def move(self, theta: FloatArray, value: float, gradient: FloatArray) -> None:
        """Set the current point and update the BFGS approximation of the Hessian."""
        self.curvature.update(theta - self.theta, gradient - self.gradient)
        super().move(theta, value, gradient)

    def reject(self, trial: FloatArray, value: float, gradient: FloatArray, box: Box) -> bool:
        """Set a new direction if an infinite value adds a cutting plane; otherwise shorten the step.

        If the value is finite, the new step ends at the minimum of the cubic polynomial that interpolates the values
        and slopes at both ends.
        """
        self.halvings += 1
        finite = bool(np.isfinite(value))
        if not finite and self.domain is not None and self.domain.learn(trial):
            tries = self.halvings
            self._aim(box)
            # Shorten the step if it has already added several cutting planes.
            self.length, self.halvings = _INFINITE ** max(0, tries - _FULL), tries
            return self.halvings <= HALVINGS
        first, last = (self.length * float(g @ self.direction) for g in (self.gradient, gradient))
        factor = _INFINITE
        if finite and np.isfinite(last):
            middle = first + last - 3.0 * (value - self.value)
            root = np.sqrt(max(0.0, middle**2 - first * last))
            factor = 1.0 - (last + root - middle) / max(last - first + 2.0 * root, 1e-300)
        self.length *= min(_FACTORS[1], max(_FACTORS[0], factor))
        return self.halvings <= HALVINGS


def minimise_bfgs(
    objective: Objective, starts: FloatArray, box: Box, tol: float | FloatArray, max_evaluations: int
) -> list[FitResult]:
    """Minimise K convex functions in lockstep with a projected BFGS method; arguments as for `minimise_newton`.

    Every step minimises a quadratic model within the bounds and is shortened until it satisfies the Armijo rule. After
    an infinite value, the step is shortened and the model is not updated.

    The objective may have two optional attributes: `scale` (K, d), the initial second derivatives, and `domains`, one
    `CuttingPlanes` per function. Every infinite value adds a half-space to the `CuttingPlanes` of its function.
    """
    scales = getattr(objective, "scale", np.ones_like(starts))
    domains = getattr(objective, "domains", [None] * len(starts))

    def begin(k: int, theta: FloatArray, value: float, gradient: FloatArray) -> NewtonSearch:
        return BFGSSearch(BFGSMatrix(scales[k]), domains[k], theta, value, gradient)

    with one_thread("blas"):
        return descend(objective, starts, box, tol, max_evaluations, begin)
