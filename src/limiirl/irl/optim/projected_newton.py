"""Projected Newton method (Bertsekas 1982) for K convex functions within bounds, all in lockstep."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from limiirl._typing import FloatArray, IndexArray
from limiirl.errors import DivergentPartition
from limiirl.irl.base import FitResult, Status

# Share of the decrease predicted by the gradient that a step must achieve (Armijo).
_SUFFICIENT = 1e-4
# Steps are halved at most this often before the search is given up: 2**-40 of a step is lost in rounding.
HALVINGS = 40
# No parameter moves further than this in one step, or than the largest is from 0: features may be in any unit.
LONGEST = 20.0


class Objective(Protocol):
    """K functions of d variables with gradients."""

    def evaluate(self, thetas: FloatArray, which: IndexArray) -> tuple[FloatArray, FloatArray]:
        """Return values (J,) and gradients (J, d) of functions `which` (J,) at thetas (J, d); inf where undefined."""
        ...


class TwiceDifferentiable(Objective, Protocol):
    """K functions of d variables with Hessians."""

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

    def aim(self, objective: Any, k: int, box: Box) -> None:
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


def damped_solve(matrix: FloatArray, right: FloatArray) -> FloatArray:
    """Solve (matrix + damping) x = right with the least damping that makes it definite, from 1e-8 of its mean on."""
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


def minimise_newton(
    objective: TwiceDifferentiable, starts: FloatArray, box: Box, tol: float | FloatArray, max_evaluations: int
) -> list[FitResult]:
    """Minimise K convex functions by a projected Newton method with exact Hessians.

    Variables on a bound that the gradient pushes against are held; the others take a Newton step, which is projected
    and halved until it lowers the function enough. A singular Hessian is damped a little, so that null directions stay
    where they are. Every accepted point is lower than the one before, up to rounding: the last is the best, also when
    the cap on evaluations ends the search.

    Parameters
    ----------
    starts : (K, d)
    tol : float or (K, d)
        Largest projected gradient at which a problem counts as solved.
    max_evaluations : int
        Cap on values with gradients, for each problem.
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
    """Move K searches in lockstep, one batched evaluation per step, until each has stopped."""
    thetas, tols = box.clip(starts), np.broadcast_to(tol, starts.shape)
    everyone = range(thetas.shape[0])
    values, gradients = evaluate_starts(objective, thetas, np.arange(thetas.shape[0]))
    searches = [begin(*point) for point in zip(everyone, thetas, values.tolist(), gradients, strict=True)]
    for k in everyone:
        _aim(objective, searches[k], k, box, tols[k])
        _count(searches[k], max_evaluations)
    while pending := [k for k in everyone if searches[k].status is None]:
        which = np.array(pending)
        trials = np.array([searches[k].trial(box) for k in pending])
        values, gradients = objective.evaluate(trials, which)
        for k, trial, value, gradient in zip(pending, trials, values.tolist(), gradients, strict=True):
            _advance(objective, searches[k], k, (trial, value, gradient), box, tols[k], max_evaluations)
    return [_result(search, box) for search in searches]


def _advance(
    objective: Objective,
    search: NewtonSearch,
    k: int,
    point: tuple[FloatArray, float, FloatArray],
    box: Box,
    tol: FloatArray,
    max_evaluations: int,
) -> None:
    """Accept a trial point and aim anew, or halve the step."""
    search.n_evaluations += 1
    if search.accepts(*point, box):
        search.move(*point)
        _aim(objective, search, k, box, tol)
    elif not search.reject(*point, box):
        search.status = Status.STALLED
    _count(search, max_evaluations)


def _count(search: NewtonSearch, max_evaluations: int) -> None:
    if search.status is None and search.n_evaluations >= max_evaluations:
        search.status = Status.EVALUATIONS


def evaluate_starts(objective: Objective, thetas: FloatArray, which: IndexArray) -> tuple[FloatArray, FloatArray]:
    """Return values and gradients at the starts, all of which must be finite."""
    values, gradients = objective.evaluate(thetas, which)
    if not np.all(np.isfinite(values)):
        j = int(np.argmin(np.isfinite(values)))
        k = int(which[j])
        raise DivergentPartition(
            f"The sum over trajectories is infinite, or beyond float64, at the start of column {k}; no search begins "
            "there. Pass a start with lower rewards, or none.",
            parameter="starts",
            value=thetas[j],
            index=k,
        )
    return values, gradients


def _aim(objective: Objective, search: NewtonSearch, k: int, box: Box, tol: FloatArray) -> None:
    """Set the next direction, or the status if the point is a minimum."""
    if box.residual(search.theta, search.gradient / tol) <= 1.0:
        search.status = Status.CONVERGED
        return
    search.aim(objective, k, box)


def _result(search: NewtonSearch, box: Box) -> FitResult:
    theta, value, gradient = search.best()
    status = search.status or Status.STALLED
    return FitResult(theta, value, status, search.n_evaluations, search.n_hessians, box.residual(theta, gradient))
