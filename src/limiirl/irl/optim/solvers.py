"""Solvers by name, and minimisation along a ray."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.optimize import minimize_scalar

from limiirl.errors import DivergentPartition, NumericalError
from limiirl.irl.base import FitResult
from limiirl.irl.optim.lbfgs import minimise_lbfgs
from limiirl.irl.optim.projected_bfgs import minimise_bfgs
from limiirl.irl.optim.projected_newton import minimise_newton

SOLVERS: dict[str, Callable[..., list[FitResult]]] = {
    "newton": minimise_newton,
    "lbfgs": minimise_lbfgs,
    "bfgs": minimise_bfgs,
}
"""Solvers of K problems within bounds, by name."""


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
    result: Any = minimize_scalar(safe, bounds=(low, high), method="bounded", options={"xatol": 1e-8})
    return float(np.exp(result.x if result.fun <= values[best] else grid[best]))
