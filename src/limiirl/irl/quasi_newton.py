"""Quadratic models of a convex function: one learned from its gradients, and the steps that minimise them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cho_factor, cho_solve, cholesky, solve_triangular
from scipy.optimize import lsq_linear, nnls

Float = NDArray[np.float64]
# Before anything is known of the curvature, no variable moves further than this in the unit of its scale.
_FIRST = 1.0
# Curvature along a step is taken for at least this share of the model's (Powell 1978): rounding may make it negative.
_LEAST = 1e-4
# Of the longest part of a step.
_ROUNDING = 1e-12


class Curvature:
    """A positive definite model (d, d) of the Hessian, by the formula of Broyden, Fletcher, Goldfarb and Shanno.

    Parameters
    ----------
    scale : (d,)
        What is known of the second derivatives, up to a factor.

    Attributes
    ----------
    matrix : (d, d)

    Examples
    --------
    Two steps tell the Hessian of a quadratic function of two variables along them.

    >>> hessian, model = np.array([[2.0, 1.0], [1.0, 3.0]]), Curvature(np.ones(2))
    >>> for step in np.array([[1.0, 0.0], [1.0, -2.0]]):  # conjugate to each other
    ...     model.update(step, hessian @ step)
    >>> model.matrix.round(6)
    array([[2., 1.],
           [1., 3.]])
    """

    def __init__(self, scale: Float) -> None:
        self.matrix = np.diag(scale)
        self._begun = self._learned = False

    def begin(self, gradient: Float) -> None:
        """Choose the factor of the scale, if nothing is known yet: the first step is a short one."""
        if not self._begun:
            self._begun = True
            root = np.sqrt(np.diag(self.matrix))
            self.matrix = self.matrix * max(1.0, float(np.max(np.abs(gradient) / root)) / _FIRST)

    def update(self, step: Float, change: Float) -> None:
        """Learn from the change of the gradient (d,) along a step (d,)."""
        along = self.matrix @ step
        model, true = float(step @ along), float(step @ change)
        if not self._learned and true > 0.0:
            # The first step tells how large the scale should have been.
            self.matrix, along, model = self.matrix * (true / model), along * (true / model), true
            self._learned = True
        if true < _LEAST * model:
            share = (1.0 - _LEAST) * model / (model - true)
            change = share * change + (1.0 - share) * along
            true = float(step @ change)
        if not (true > 0.0 and model > 0.0 and np.isfinite(true)):  # a step lost in rounding says nothing
            return
        self.matrix = self.matrix - np.outer(along, along) / model + np.outer(change, change) / true


def bounded_step(
    matrix: Float, gradient: Float, lower: Float, upper: Float, cuts: tuple[Float, Float] | None = None
) -> Float:
    """Return the step (d,) within [lower, upper] that minimises gradient . step + step . matrix step / 2.

    Parameters
    ----------
    cuts : ((m, d), (m,)), optional
        Rows and most: half-spaces rows . step <= most that the step must not leave; 0 lies in all of them.

    Examples
    --------
    >>> bounded_step(np.eye(2), np.array([-3.0, 1.0]), np.array([-1.0, 0.0]), np.array([2.0, 1.0]))
    array([2., 0.])
    >>> half = np.array([[1.0, 1.0]]), np.array([1.0])
    >>> bounded_step(np.eye(2), np.array([-1.5, -1.0]), np.zeros(2), np.full(2, 2.0), half)
    array([0.75, 0.25])
    """
    step, free = np.zeros_like(gradient), upper > lower
    # In units in which the model has a diagonal of ones: features may be in metres or in thousands of kilometres.
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
            # What rounding keeps off a bound lies on it.
            reach = _ROUNDING * float(np.max(np.abs(plain)))
            plain = np.where(plain > high - reach, high, np.where(plain < low + reach, low, plain))
    step[free] = np.clip(plain * unit, lower[free], upper[free])
    return step


def _within(root: Float, right: Float, rows: Float, most: Float, plain: Float) -> Float:
    """Return the x (d,) for which |root x - right| is least among those with rows . x <= most, 0 being one of them.

    By y = root x - right it is the problem of least distance of Lawson and Hanson (1974, chapter 23), which is one of
    least squares without negative numbers. `plain` keeps all but the first rows.
    """
    told = np.isfinite(most)
    rows, most = rows[told], most[told]
    against = -solve_triangular(root, rows.T, trans="T").T
    size = np.maximum(np.linalg.norm(against, axis=1), 1e-300)
    # The least y is no longer than that of x = 0, so that in units of this length nothing below is near 0.
    unit = float(np.linalg.norm(right))
    system = np.vstack([(against / size[:, None]).T, (-most - against @ right) / (size * unit)])
    target = np.append(np.zeros(right.size), 1.0)
    try:
        rest = system @ nnls(system, target)[0] - target
    except RuntimeError:  # too many rounds: the step without cuts, up to the first of them
        along = rows @ plain
        return np.asarray(plain * float(np.min(most[along > most] / along[along > most], initial=1.0)))
    return np.asarray(solve_triangular(root, right - unit * rest[:-1] / rest[-1]))


def damped_solve(matrix: Float, right: Float) -> Float:
    """Solve (matrix + damping) x = right with the least damping that makes it definite, from 1e-8 of its mean on.

    Examples
    --------
    >>> damped_solve(np.diag([2.0, 0.0]), np.array([2.0, 0.0])).round(6)
    array([1., 0.])
    """
    # Where curvature has underflowed, the floor keeps the solution within float64, so that its direction is still told.
    mean = max(float(np.trace(matrix)) / matrix.shape[0], 1e-150)
    damping = 1e-8 * mean
    while True:
        try:
            factor = cho_factor(matrix + damping * np.eye(matrix.shape[0]))
        except LinAlgError:
            damping *= 100.0
            continue
        return np.asarray(cho_solve(factor, right), dtype=np.float64)
