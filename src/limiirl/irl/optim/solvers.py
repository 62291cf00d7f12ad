"""Minimising smooth functions within bounds: the only place that calls an optimiser.

Problems come in batches: K functions of the same shape whose values are cheapest when computed together, as the
M-step of a mixture does. `minimise_newton` and `minimise_bfgs` move all of them in lockstep; `minimise_lbfgs` runs
scipy's L-BFGS-B on one after the other. Where functions are infinite beyond some edge, L-BFGS-B loses its memory at
every infinite value, and `minimise_bfgs` does not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize, minimize_scalar

from limiirl._parallel import one_thread
from limiirl._typing import FloatArray
from limiirl.errors import DivergentPartition, NumericalError
from limiirl.irl.base import FitResult, Status
from limiirl.irl.optim.batched_lbfgs import BatchedEvaluator
from limiirl.irl.optim.projected_bfgs import BFGSSearch
from limiirl.irl.optim.projected_newton import LONGEST, BFGSMatrix, Box, NewtonSearch, Objective


def minimise_newton(
    objective: Objective, starts: FloatArray, box: Box, tol: float | FloatArray, max_evaluations: int
) -> list[FitResult]:
    """Minimise K convex functions by a projected Newton method (Bertsekas 1982) with exact Hessians, all in lockstep.

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
    return _descend(objective, starts, box, tol, max_evaluations, lambda _, *point: NewtonSearch(*point))


def minimise_bfgs(
    objective: Objective, starts: FloatArray, box: Box, tol: float | FloatArray, max_evaluations: int
) -> list[FitResult]:
    """Minimise K convex functions by a projected BFGS method, all in lockstep; arguments as for `minimise_newton`.

    Every step minimises a quadratic model within the bounds, and is shortened until it lowers the function enough. An
    infinite value shortens the step and nothing else: what is known of the curvature stays. No Hessian is asked for.

    Two attributes of the objective help where it has them. With `scale` (K, d), of second derivatives, the model
    begins. With `domains`, `CuttingPlanes` for each of the K, every infinite value adds a half-space that steps keep
    out of.
    """
    scales = getattr(objective, "scale", np.ones_like(starts))
    domains = getattr(objective, "domains", [None] * len(starts))

    def begin(k: int, theta: FloatArray, value: float, gradient: FloatArray) -> NewtonSearch:
        return BFGSSearch(BFGSMatrix(scales[k]), domains[k], theta, value, gradient)

    with one_thread("blas"):
        return _descend(objective, starts, box, tol, max_evaluations, begin)


def _descend(
    objective: Objective,
    starts: FloatArray,
    box: Box,
    tol: float | FloatArray,
    max_evaluations: int,
    begin: Callable[[int, FloatArray, float, FloatArray], NewtonSearch],
) -> list[FitResult]:
    thetas, tols = box.clip(starts), np.broadcast_to(tol, starts.shape)
    everyone = range(thetas.shape[0])
    values, gradients = _evaluate_starts(objective, thetas, np.arange(thetas.shape[0]))
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


def _evaluate_starts(
    objective: Objective, thetas: FloatArray, which: NDArray[np.intp]
) -> tuple[FloatArray, FloatArray]:
    values, gradients = objective.evaluate(thetas, which)
    if not np.all(np.isfinite(values)):
        k = int(which[np.argmin(np.isfinite(values))])
        raise DivergentPartition(
            f"The sum over trajectories is infinite, or beyond float64, at the start of column {k}; no search begins "
            "there. Pass a start with lower rewards, or none.",
            parameter="starts",
            value=thetas[np.argmin(np.isfinite(values))],
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


def minimise_lbfgs(
    objective: Objective, starts: FloatArray, box: Box, tol: float | FloatArray, max_evaluations: int
) -> list[FitResult]:
    """Minimise K functions by scipy's L-BFGS-B; arguments as for `minimise_newton`.

    One after the other, or in lockstep where the objective says that one pass serves several (`heavy`).

    The best point evaluated is returned, whichever was the last. scipy checks a cap only between its iterations and
    gives up at an infinite value, so that both are handled here: the cap ends the search at once, and after an infinite
    value it begins anew from the best point.

    Linear algebra keeps to one thread meanwhile. L-BFGS-B factors matrices of at most 40 rows at every step, and
    OpenBLAS wakes a second thread for each: with 2 threads an iteration in 7, 18 or 60 variables took 2.9, 4.0 or 6.5
    ms of processor time, with one 0.2 to 0.3 (two busy cores).
    """
    tols, clipped = np.broadcast_to(tol, starts.shape), box.clip(starts)

    def search(values: Any, k: int) -> FitResult:
        return _lbfgs(values, clipped[k], k, box, tols[k], max_evaluations)

    with one_thread("blas"):
        if len(clipped) > 1 and getattr(objective, "heavy", False):
            return BatchedEvaluator(objective).run(search, len(clipped))
        return [search(objective, k) for k in range(len(clipped))]


class _EvaluationLimit(Exception):
    """The cap on evaluations is reached."""


class _Recorder:
    """One of the K functions, for scipy: counts its evaluations, keeps the best, and stops at the cap."""

    def __init__(self, objective: Objective, k: int, start: FloatArray, cap: int) -> None:
        self.objective, self.which, self.cap = objective, np.array([k]), cap
        values, gradients = _evaluate_starts(objective, start[None], self.which)
        self.n_evaluations = 1
        self.value, self.theta, self.gradient = float(values[0]), start, gradients[0]
        self.jumped = False

    def __call__(self, theta: Any) -> tuple[float, Any]:
        if np.array_equal(theta, self.theta):
            return self.value, self.gradient
        if self.n_evaluations >= self.cap:
            raise _EvaluationLimit
        self.n_evaluations += 1
        values, gradients = self.objective.evaluate(theta[None], self.which)
        value = float(values[0])
        self.jumped |= not np.isfinite(value)
        if value < self.value:
            self.value, self.theta, self.gradient = value, theta.copy(), gradients[0]
        return value, gradients[0]


def _lbfgs(
    objective: Objective, start: FloatArray, k: int, box: Box, tol: FloatArray, max_evaluations: int
) -> FitResult:
    best = _Recorder(objective, k, start, max_evaluations)
    status, radius = Status.STALLED, np.inf
    while True:
        # After an infinite value, the next search keeps within a box around the best point that is halved each time.
        best.jumped, before = False, best.value
        near = Box(np.maximum(box.lower, best.theta - radius), np.minimum(box.upper, best.theta + radius))
        options: Any = {"maxfun": 10**9, "maxiter": 10**9, "gtol": 0.1 * float(np.min(tol)), "ftol": 0.0, "maxcor": 20}
        bounds = list(zip(near.lower, near.upper, strict=True))
        try:
            minimize(best, best.theta, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
        except _EvaluationLimit:
            status = Status.EVALUATIONS
            break
        if box.residual(best.theta, best.gradient / tol) <= 1.0 or radius < 1e-6:
            break
        if best.jumped:
            radius = min(LONGEST, radius) / 2
        elif best.value >= before:
            break
    residual = box.residual(best.theta, best.gradient)
    if box.residual(best.theta, best.gradient / tol) <= 1.0:
        status = Status.CONVERGED
    return FitResult(best.theta, best.value, status, best.n_evaluations, 0, residual)


def minimise_ray(loss: Callable[[float], float], longest: float) -> float:
    """Return the factor in [0, longest] that minimises a convex function of one variable, by its order of magnitude.

    Factors where the function is infinite, or the sum over trajectories is, are too large.

    Examples
    --------
    >>> round(minimise_ray(lambda x: (x - 0.02) ** 2, 1e3), 6)
    0.02
    """

    def at(factor: float) -> float:
        try:
            value = loss(factor)
        except (DivergentPartition, NumericalError):
            return np.inf
        return value if np.isfinite(value) else np.inf

    def safe(power: float) -> float:
        return at(float(np.exp(power)))

    # A convex function of x is unimodal in log x, and the right factor may be a millionth: features have units.
    grid = np.linspace(np.log(1e-9 * longest), np.log(longest), 25)
    values = [safe(power) for power in grid]
    best = int(np.argmin(values))
    if not np.isfinite(values[best]) or at(0.0) <= values[best]:
        return 0.0
    low, high = grid[max(0, best - 1)], grid[min(len(grid) - 1, best + 1)]
    found: Any = minimize_scalar(safe, bounds=(low, high), method="bounded", options={"xatol": 1e-8})
    return float(np.exp(found.x if found.fun <= values[best] else grid[best]))


SOLVERS = {"newton": minimise_newton, "lbfgs": minimise_lbfgs, "bfgs": minimise_bfgs}
