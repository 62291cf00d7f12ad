"""Quadratic models of a convex function: one learned from its gradients, and the steps that minimise them.

One search for the minimum of a smooth function within bounds, as `limiirl.irl.optim.solvers` moves it along.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cho_factor, cho_solve, cholesky, solve_triangular
from scipy.optimize import lsq_linear, nnls

from limiirl._typing import FloatArray
from limiirl.irl.base import Status

# Before anything is known of the curvature, no variable moves further than this in the unit of its scale.
_FIRST = 1.0
# Curvature along a step is taken for at least this share of the model's (Powell 1978): rounding may make it negative.
_LEAST = 1e-4
# Of the longest part of a step.
_ROUNDING = 1e-12


class BFGSMatrix:
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

    >>> hessian, model = np.array([[2.0, 1.0], [1.0, 3.0]]), BFGSMatrix(np.ones(2))
    >>> for step in np.array([[1.0, 0.0], [1.0, -2.0]]):  # conjugate to each other
    ...     model.update(step, hessian @ step)
    >>> model.matrix.round(6)
    array([[2., 1.],
           [1., 3.]])
    """

    def __init__(self, scale: FloatArray) -> None:
        self.matrix = np.diag(scale)
        self._begun = self._learned = False

    def begin(self, gradient: FloatArray) -> None:
        """Choose the factor of the scale, if nothing is known yet: the first step is a short one."""
        if not self._begun:
            self._begun = True
            root = np.sqrt(np.diag(self.matrix))
            self.matrix = self.matrix * max(1.0, float(np.max(np.abs(gradient) / root)) / _FIRST)

    def update(self, step: FloatArray, change: FloatArray) -> None:
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


def _within(root: FloatArray, right: FloatArray, rows: FloatArray, most: FloatArray, plain: FloatArray) -> FloatArray:
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


def damped_solve(matrix: FloatArray, right: FloatArray) -> FloatArray:
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


# Share of the decrease predicted by the gradient that a step must achieve (Armijo).
_SUFFICIENT = 1e-4
# Steps are halved at most this often before the search is given up: 2**-40 of a step is lost in rounding.
HALVINGS = 40
# No parameter moves further than this in one step, or than the largest is from 0: features may be in any unit.
LONGEST = 20.0


class Objective(Protocol):
    """K convex functions of d variables, with derivatives."""

    def evaluate(self, thetas: FloatArray, which: NDArray[np.intp]) -> tuple[FloatArray, FloatArray]:
        """Return values (J,) and gradients (J, d) of functions `which` (J,) at thetas (J, d); inf where undefined."""
        ...

    def hessian(self, theta: FloatArray, k: int) -> FloatArray:
        """Return the Hessian (d, d) of function k at theta (d,)."""
        ...


@dataclass(frozen=True)
class Box:
    """Bounds (d,) on every variable, -inf and inf where there are none."""

    lower: FloatArray
    upper: FloatArray

    def clip(self, thetas: FloatArray) -> FloatArray:
        """Return the nearest point within the bounds."""
        return np.clip(thetas, self.lower, self.upper)

    def held(self, theta: FloatArray, gradient: FloatArray) -> NDArray[np.bool_]:
        """Return which variables lie on a bound that the negative gradient pushes against."""
        return ((theta <= self.lower) & (gradient > 0)) | ((theta >= self.upper) & (gradient < 0))

    def residual(self, theta: FloatArray, gradient: FloatArray) -> float:
        """Return the largest component of the gradient that a step within bounds could follow: zero at the minimum."""
        return float(np.max(np.abs(np.where(self.held(theta, gradient), 0.0, gradient)), initial=0.0))


class NewtonSearch:
    """One of K problems on its way: the current point, the direction tried, the length of the step."""

    def __init__(self, theta: FloatArray, value: float, gradient: FloatArray) -> None:
        self.theta, self.value, self.gradient = theta, value, gradient
        self.direction = np.zeros_like(theta)
        self.length = 1.0
        self.halvings = 0
        self.n_evaluations, self.n_hessians = 1, 0
        self.status: Status | None = None

    def trial(self, box: Box) -> FloatArray:
        """Return the point (d,) to look at next."""
        return box.clip(self.theta + self.length * self.direction)

    def aim(self, objective: Objective, k: int, box: Box) -> None:
        """Set the next direction: a damped Newton step of the variables that no bound holds."""
        hessian = objective.hessian(self.theta, k)
        self.n_hessians += 1
        free = ~box.held(self.theta, self.gradient)
        self.direction = np.zeros_like(self.theta)
        self.direction[free] = -damped_solve(hessian[np.ix_(free, free)], self.gradient[free])
        self.shorten()

    def shorten(self) -> None:
        """Cut a new direction to a length that can be trusted."""
        # Far from the minimum the curvature may all but vanish, and the step lead out of the range of float64.
        longest = max(LONGEST, float(np.max(np.abs(self.theta))))
        self.direction *= min(1.0, longest / float(np.max(np.abs(self.direction), initial=1.0)))
        self.length, self.halvings = 1.0, 0

    def move(self, theta: FloatArray, value: float, gradient: FloatArray) -> None:
        """Go to a point that was accepted."""
        self.theta, self.value, self.gradient = theta, value, gradient

    def reject(self, trial: FloatArray, value: float, gradient: FloatArray, box: Box) -> bool:
        """Take half the step, and return whether that is still one."""
        del trial, value, gradient, box
        self.length *= 0.5
        self.halvings += 1
        return self.halvings <= HALVINGS

    def best(self) -> tuple[FloatArray, float, FloatArray]:
        """Return the best point so far, with its value and gradient."""
        return self.theta, self.value, self.gradient

    def accepts(self, trial: FloatArray, value: float, gradient: FloatArray, box: Box) -> bool:
        """Return whether a trial point lowers the function enough."""
        predicted = float(self.gradient @ (trial - self.theta))
        if value <= self.value + _SUFFICIENT * predicted and value < self.value:
            return True
        # At the very end values differ by rounding alone, while the gradient still tells better from worse.
        rounding = 8 * np.finfo(float).eps * max(1.0, abs(self.value))
        return bool(value <= self.value + rounding) and box.residual(trial, gradient) < 0.5 * box.residual(
            self.theta, self.gradient
        )
