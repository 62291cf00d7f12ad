"""Projected Newton method (Bertsekas 1982) for K convex functions with bounds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dposv

from limiirl._typing import FloatArray, IndexArray
from limiirl.errors import DivergentPartition
from limiirl.irl.base import FitResult, Status

# Minimum fraction of the predicted decrease that a step must achieve (Armijo rule).
SUFFICIENT = 1e-4
# Maximum number of halvings of a step; 2**-40 of a step is below rounding error.
HALVINGS = 40
_EPSILON = float(np.finfo(np.float64).eps)
# Largest change in a parameter per step. If the largest parameter exceeds this value, it is the limit instead, because
# the units of features vary.
LONGEST = 20.0


class Objective(Protocol):
    """K functions of d variables with gradients."""

    def evaluate(self, thetas: FloatArray, which: IndexArray) -> tuple[FloatArray, FloatArray]:
        """Return values (J,), inf if undefined, and gradients (J, d) of functions `which` (J,) at thetas (J, d)."""


class TwiceDifferentiable(Objective, Protocol):
    """K functions of d variables with Hessians."""

    def hessian(self, theta: FloatArray, k: int) -> FloatArray:
        """Return the Hessian (d, d) of function k at theta (d,)."""


@dataclass(frozen=True)
class Box:
    """Lower and upper bounds (d,) of the variables; -inf and inf if unbounded."""

    lower: FloatArray
    upper: FloatArray

    def clip(self, thetas: FloatArray) -> FloatArray:
        """Return the projection onto the box."""
        return np.clip(thetas, self.lower, self.upper)

    def active(self, theta: FloatArray, gradient: FloatArray) -> NDArray[np.bool_]:
        """Return the mask (d,) of variables at a bound for which the negative gradient points outwards."""
        return ((theta <= self.lower) & (gradient > 0)) | ((theta >= self.upper) & (gradient < 0))

    def residual(self, theta: FloatArray, gradient: FloatArray) -> float:
        """Return the largest absolute component of the projected gradient, which is zero at the minimum."""
        return float(np.max(np.abs(np.where(self.active(theta, gradient), 0.0, gradient)), initial=0.0))


class NewtonSearch:
    """State of the search for one minimum: the current point, the direction and the step length."""

    def __init__(self, theta: FloatArray, value: float, gradient: FloatArray) -> None:
        self.theta, self.value, self.gradient = theta, value, gradient
        self.direction = np.zeros_like(theta)
        self.length = 1.0
        self.halvings = 0
        self.n_evaluations, self.n_hessians = 1, 0
        self.status: Status | None = None

    def trial(self, box: Box) -> FloatArray:
        """Return the next point (d,) to evaluate."""
        return box.clip(self.theta + self.length * self.direction)

    def aim(self, objective: Any, k: int, box: Box) -> None:
        """Set the direction to a damped Newton step of the inactive variables."""
        hessian = objective.hessian(self.theta, k)
        self.n_hessians += 1
        free = ~box.active(self.theta, self.gradient)
        if not free.all():
            hessian = hessian[free][:, free]
        self.direction = np.zeros_like(self.theta)
        self.direction[free] = -solve_damped(hessian, self.gradient[free])
        self.shorten()

    def shorten(self) -> None:
        """Limit the length of a new direction, because it may overflow if the curvature vanishes."""
        longest = max(LONGEST, float(np.abs(self.theta).max()))
        self.direction *= min(1.0, longest / float(np.abs(self.direction).max(initial=1.0)))
        self.length, self.halvings = 1.0, 0

    def move(self, theta: FloatArray, value: float, gradient: FloatArray) -> None:
        """Set the current point."""
        self.theta, self.value, self.gradient = theta, value, gradient

    def reject(self, trial: FloatArray, value: float, gradient: FloatArray, box: Box) -> bool:
        """Halve the step; return False if it is below rounding error."""
        del trial, value, gradient, box
        self.length *= 0.5
        self.halvings += 1
        return self.halvings <= HALVINGS

    def best(self) -> tuple[FloatArray, float, FloatArray]:
        """Return the best point so far, with its value and gradient."""
        return self.theta, self.value, self.gradient

    def accepts(self, trial: FloatArray, value: float, gradient: FloatArray, box: Box) -> bool:
        """Return True if a trial point satisfies the Armijo rule."""
        predicted = float(self.gradient @ (trial - self.theta))
        if value <= self.value + SUFFICIENT * predicted and value < self.value:
            return True
        # Near the minimum, values differ only by rounding errors, so gradients are compared instead.
        rounding = 8 * _EPSILON * max(1.0, abs(self.value))
        return bool(value <= self.value + rounding) and box.residual(trial, gradient) < 0.5 * box.residual(
            self.theta, self.gradient
        )


def solve_damped(matrix: FloatArray, right: FloatArray) -> FloatArray:
    """Solve (matrix + damping I) x = right, where the damping makes the matrix positive definite."""
    if not right.size:
        return right
    # The lower limit keeps the solution finite if the curvature underflows.
    matrix = np.asarray_chkfinite(matrix)
    damping = 1e-8 * max(float(matrix.trace()) / right.size, 1e-150)
    identity = np.eye(right.size)
    while True:
        _, solution, info = dposv(matrix + damping * identity, right)
        if info == 0:
            return np.asarray(solution, dtype=np.float64)
        damping *= 100.0


def minimise_newton(
    objective: TwiceDifferentiable, starts: FloatArray, box: Box, tol: float | FloatArray, max_evaluations: int
) -> list[FitResult]:
    """Minimise K convex functions with a projected Newton method and exact Hessians.

    Active variables are fixed. The other variables take a Newton step, which is projected and then halved until it
    satisfies the Armijo rule. A singular Hessian is damped, so that theta does not change along null directions. Up to
    rounding, values decrease monotonically, so that the last point is the best.

    Parameters
    ----------
    starts : (K, d)
    tol : float or (K, d)
        Tolerance on the components of the projected gradient.
    max_evaluations : int
        Maximum number of evaluations of the value and gradient of each function.
    """
    return descend(objective, starts, box, tol, max_evaluations, lambda _, *point: NewtonSearch(*point))


def descend(
    objective: Objective,
    starts: FloatArray,
    box: Box,
    tol: float | FloatArray,
    max_evaluations: int,
    begin: Callable[[int, FloatArray, float, FloatArray], NewtonSearch],
) -> list[FitResult]:
    """Run K searches in lockstep, with one batched evaluation per iteration, until all have stopped."""
    thetas, tols = box.clip(starts), np.broadcast_to(tol, starts.shape)
    values, gradients = objective.evaluate(thetas, np.arange(thetas.shape[0]))
    check_starts(thetas, values, np.arange(thetas.shape[0]))
    searches = [begin(k, thetas[k], float(values[k]), gradients[k]) for k in range(thetas.shape[0])]
    for k, search in enumerate(searches):
        _continue(objective, search, k, box, tols[k], max_evaluations, moved=True)
    while pending := [k for k, search in enumerate(searches) if search.status is None]:
        trials = np.array([searches[k].trial(box) for k in pending])
        values, gradients = objective.evaluate(trials, np.array(pending))
        for k, trial, value, gradient in zip(pending, trials, values.tolist(), gradients, strict=True):
            search = searches[k]
            search.n_evaluations += 1
            accepted = search.accepts(trial, value, gradient, box)
            if accepted:
                search.move(trial, value, gradient)
            elif not search.reject(trial, value, gradient, box):
                search.status = Status.STALLED
            _continue(objective, search, k, box, tols[k], max_evaluations, moved=accepted)
    return [_result(search, box) for search in searches]


def _continue(
    objective: Objective, search: NewtonSearch, k: int, box: Box, tol: FloatArray, max_evaluations: int, *, moved: bool
) -> None:
    """Update the status of a search, and its direction if the point has changed."""
    if moved and box.residual(search.theta, search.gradient / tol) <= 1.0:
        search.status = Status.CONVERGED
    elif moved:
        search.aim(objective, k, box)
    if search.status is None and search.n_evaluations >= max_evaluations:
        search.status = Status.EVALUATIONS


def check_starts(thetas: FloatArray, values: FloatArray, which: IndexArray) -> None:
    """Raise unless the values (J,) of functions `which` (J,) at the initial points thetas (J, d) are finite."""
    if not np.all(np.isfinite(values)):
        j = int(np.argmin(np.isfinite(values)))
        k = int(which[j])
        raise DivergentPartition(
            f"starts[{k}] must have a finite partition function; it is infinite or overflows float64. Use lower "
            "rewards, or omit `start`.",
            parameter="starts",
            value=thetas[j],
            index=k,
        )


def _result(search: NewtonSearch, box: Box) -> FitResult:
    theta, value, gradient = search.best()
    status = search.status or Status.STALLED
    counts = search.n_evaluations, search.n_hessians
    return FitResult(theta, value, status, *counts, box.residual(theta, gradient), (), np.empty((0, 0)))
