"""Solvers by name, rescaling of variables, minimisation along a ray, feasible trial points, and numerical Hessians."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.optimize import minimize_scalar

from limiirl._typing import BoolArray, FloatArray, IndexArray
from limiirl.errors import DivergentPartition, NumericalError
from limiirl.irl.base import FitResult
from limiirl.irl.optim.lbfgs import minimise_lbfgs
from limiirl.irl.optim.projected_bfgs import minimise_bfgs
from limiirl.irl.optim.projected_newton import Box, minimise_newton

Solver = Callable[..., list[FitResult]]
"""Function of an objective, starts (K, d), a box, tolerances (K, d) and the maximum number of evaluations."""

SOLVERS: dict[str, Solver] = {
    "newton": minimise_newton,
    "lbfgs": minimise_lbfgs,
    "bfgs": minimise_bfgs,
}
"""Solvers by name."""


def increasing_costs(box: Box, features: FloatArray) -> Iterator[FloatArray]:
    """Yield 0, then thetas (d,) of increasing size within the bounds, with signs opposite to those of features (d,).

    Parameters are as large as 4^10, because the units of features vary.
    """
    start = box.clip(np.zeros(features.size))
    for cost in (0.0, *(4.0**power for power in range(11))):
        yield box.clip(start - cost * np.sign(features))


def evaluate_separately(
    evaluate: Callable[[slice], tuple[FloatArray, ...]], n: int, failed: tuple[FloatArray, ...], axis: int = 0
) -> tuple[FloatArray, ...]:
    """Evaluate n columns one by one, after a joint evaluation has raised an error.

    `evaluate` returns arrays for a slice of columns; these are concatenated along `axis`. If n is 1, the failed
    evaluation was that of a single column, and `failed` is returned.
    """
    if n == 1:
        return failed
    parts = [evaluate(slice(j, j + 1)) for j in range(n)]
    return tuple(np.concatenate(arrays, axis=axis) for arrays in zip(*parts, strict=True))


def minimise_ray(loss: Callable[[float], float], longest: float) -> float:
    """Return the factor in [0, longest] that minimises a convex function of one variable, with a search in log space.

    If the loss raises `DivergentPartition` or `NumericalError`, it is treated as infinite.

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

    # A convex function of x is unimodal in log x. The minimum may be as small as 1e-6, because units of features vary.
    grid = np.linspace(np.log(1e-9 * longest), np.log(longest), 25)
    values = [safe(power) for power in grid]
    best = int(np.argmin(values))
    if not np.isfinite(values[best]) or at(0.0) <= values[best]:
        return 0.0
    low, high = grid[max(0, best - 1)], grid[min(len(grid) - 1, best + 1)]
    result: Any = minimize_scalar(safe, bounds=(low, high), method="bounded", options={"xatol": 1e-8})
    return float(np.exp(result.x if result.fun <= values[best] else grid[best]))


def minimise_scaled(
    solver: Solver,
    objective: Any,
    starts: FloatArray,
    box: Box,
    tol: FloatArray,
    max_evaluations: int,
    scale: FloatArray,
) -> list[FitResult]:
    """Minimise K functions over thetas (K, d) in the variables `scale * theta`, for which features have size 1.

    `tol` (K, d) is in units of `scale` (d,).
    """
    scaled = Box(box.lower * scale, box.upper * scale)
    results = solver(_Rescaled(objective, scale), starts * scale, scaled, tol, max_evaluations)
    return [replace(result, theta=box.clip(result.theta / scale)) for result in results]


class _Rescaled:
    """Functions of scale * theta."""

    def __init__(self, objective: Any, scale: FloatArray) -> None:
        self._objective, self._scale = objective, scale
        self.batched = getattr(objective, "batched", False)

    def evaluate(self, thetas: FloatArray, which: IndexArray) -> tuple[FloatArray, FloatArray]:
        """Return values (J,) and gradients (J, d) of functions `which` (J,)."""
        values, gradients = self._objective.evaluate(thetas / self._scale, which)
        return values, gradients / self._scale

    def hessian(self, theta: FloatArray, k: int) -> FloatArray:
        """Return the Hessian (d, d) of function k."""
        return np.asarray(self._objective.hessian(theta / self._scale, k) / np.outer(self._scale, self._scale))


Evaluate = Callable[[FloatArray], tuple[float, FloatArray]]
"""Function of theta (d,) that returns a value, which is inf outside of the domain, and its gradient (d,)."""

# Factors by which steps are shortened near the boundary of the domain, that is, if the value on one side is infinite or
# the one-sided differences disagree by more than _UNEVEN (relative) and _NOISE (absolute).
_SHORTER = tuple(0.125**power for power in range(7))
_UNEVEN, _NOISE = 0.02, 1e-12


def difference_hessian(
    evaluate: Evaluate, theta: FloatArray, steps: FloatArray, free: BoolArray | None = None
) -> FloatArray:
    """Return the Hessian (d, d) of a function at theta (d,), with 2 d evaluations of its gradient.

    The truncation error is of the order of the square of the steps. The rounding error is that of the gradient divided
    by the steps. Near the boundary of the domain, steps are shortened or one-sided.

    Parameters
    ----------
    evaluate : callable
    theta, steps : (d,)
    free : (d,), optional
        Mask of the parameters that may change. Rows and columns of the other parameters are 0.

    Examples
    --------
    >>> difference_hessian(lambda x: (x[0] * x[1], x[::-1]), np.ones(2), np.full(2, 0.25))
    array([[0., 1.],
           [1., 0.]])
    """
    here, rows = evaluate(theta), np.zeros((theta.size, theta.size))
    moving = np.arange(theta.size) if free is None else np.flatnonzero(free)
    for j in moving:
        rows[j, moving] = _row(evaluate, theta, here, int(j), float(steps[j]))[moving]
    return np.asarray(0.5 * (rows + rows.T))


def _row(evaluate: Evaluate, theta: FloatArray, here: tuple[float, FloatArray], j: int, h: float) -> FloatArray:
    """Return the derivative (d,) of the gradient with respect to theta[j]."""
    value, gradient = here
    row: FloatArray | None = None
    for factor in _SHORTER:
        e = factor * h * np.eye(theta.size)[j]
        (above, up), (below, down) = evaluate(theta + e), evaluate(theta - e)
        if math.isfinite(above) and math.isfinite(below):
            row = np.asarray((up - down) / (2.0 * factor * h))
            # Near the boundary, gradients diverge and the one-sided differences disagree.
            if abs(up[j] + down[j] - 2.0 * gradient[j]) <= max(_UNEVEN * abs(up[j] - down[j]), _NOISE * factor / h):
                return row
    if row is None and math.isfinite(value) and math.isfinite(below):
        row = np.asarray((gradient - down) / (factor * h))
    elif row is None and math.isfinite(value) and math.isfinite(above):
        row = np.asarray((up - gradient) / (factor * h))
    if row is None:
        raise DivergentPartition(
            "The Hessian does not exist, because a partition function is infinite. Use lower rewards on cycles.",
            parameter="theta",
            value=theta,
        )
    return row
