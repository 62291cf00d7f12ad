"""Hessians by central differences of exact gradients, within the domain of the function."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from limiirl._typing import BoolArray, FloatArray
from limiirl.errors import DivergentPartition

Evaluate = Callable[[FloatArray], tuple[float, FloatArray]]
"""Function of theta (d,) that returns a value, inf outside of the domain, and its gradient (d,)."""

# Factors by which steps are shortened near the boundary of the domain, that is, if one side is infinite or the
# one-sided differences disagree by more than _UNEVEN (relative) and _NOISE (absolute).
_SHORTER = tuple(0.125**power for power in range(7))
_UNEVEN, _NOISE = 0.02, 1e-12


def difference_hessian(
    evaluate: Evaluate, theta: FloatArray, steps: FloatArray, free: BoolArray | None = None
) -> FloatArray:
    """Return the Hessian (d, d) of a function at theta (d,), with 2 d evaluations of its gradient.

    The truncation error is of the order of the square of the steps, the rounding error that of the gradient divided by
    the steps. Near the boundary of the domain, steps are shortened or one-sided.

    Parameters
    ----------
    evaluate : callable
    theta, steps : (d,)
    free : (d,), optional
        Parameters that may change; rows and columns of the others are 0.

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
            # Near the boundary, where gradients diverge, the one-sided differences disagree.
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
