"""The log-likelihood of a mixture from a list of all trajectories, and derivatives by differences."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from tests.oracles.enumeration import Enumeration, log_sum

Float = NDArray[np.float64]
Scalar = Callable[[Float], float]


def unit_log_likelihoods(
    paths: Enumeration,
    units: Sequence[Sequence[Sequence[int]]],
    rho: Float,
    thetas: Float,
    by_start: bool = False,
) -> list[float]:
    """log sum_k rho_k prod_demos p(demo | theta_k) of every unit; weights need not sum to 1.

    A unit is a list of demonstrations, and a demonstration a list of the trajectories that its recording may have been.
    """
    each = [_log_probs(paths, theta, by_start) for theta in thetas]
    return [
        log_sum(
            np.array(
                [
                    math.log(share) + math.fsum(log_sum(log_p[list(demo)]) for demo in unit)
                    for share, log_p in zip(rho, each, strict=True)
                ]
            )
        )
        for unit in units
    ]


def _log_probs(paths: Enumeration, theta: Float, by_start: bool) -> Float:
    """log p (N,) of every trajectory, summed in plain double precision: differences need thousands of them."""
    weight = paths.log_P + paths.F @ theta
    if by_start:
        log_Z = [np.logaddexp.reduce(weight[paths.first == s]) for s in range(paths.mdp.n_states)]
        return weight - np.array(log_Z)[paths.first]
    with np.errstate(divide="ignore"):
        weight += np.log(paths.mdp.p0)[paths.first]
    return weight - np.logaddexp.reduce(weight)


def second_derivatives(value: Scalar, x: Float, step: float = 4e-3) -> Float:
    """The Hessian (n, n) by central differences at two steps, extrapolated (Richardson)."""
    return (4.0 * _second(value, x, 0.5 * step) - _second(value, x, step)) / 3.0


def _second(value: Scalar, x: Float, step: float) -> Float:
    n, moves = x.size, step * np.eye(x.size)
    hessian = np.empty((n, n))
    for i in range(n):
        for j in range(i + 1):
            a, b = moves[i], moves[j]
            corners = value(x + a + b) - value(x + a - b) - value(x - a + b) + value(x - a - b)
            hessian[i, j] = hessian[j, i] = corners / (4.0 * step**2)
    return hessian


def first_derivatives(values: Callable[[Float], list[float]], x: Float, step: float = 1e-3) -> Float:
    """The Jacobian (m, n) of m values by central differences at two steps, extrapolated."""

    def differences(step: float) -> Float:
        moves = step * np.eye(x.size)
        return np.stack([(np.array(values(x + a)) - np.array(values(x - a))) / (2.0 * step) for a in moves], axis=1)

    return (4.0 * differences(0.5 * step) - differences(step)) / 3.0
