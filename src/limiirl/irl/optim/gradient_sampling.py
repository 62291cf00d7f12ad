"""Minimisation of nonsmooth functions: L-BFGS-B, and gradient sampling (Burke, Lewis and Overton 2005) at kinks.

The negative of the shortest vector in the convex hull of nearby gradients is a descent direction unless it is zero.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from limiirl._typing import FloatArray
from limiirl.irl.base import FitResult, Status
from limiirl.irl.optim.lbfgs import minimise_lbfgs
from limiirl.irl.optim.projected_newton import SUFFICIENT, Box, Objective

# Sampling radii relative to the largest parameter.
_RADII = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6)
# Step lengths relative to the radius; they are evaluated in one batch.
_LENGTHS = 4.0 ** np.arange(2, -5, -1)
# Maximum number of gradients per sample.
_MOST = 40
# Smallest relative decrease after which L-BFGS-B is restarted.
_WORTH = 1e-9


def minimise_nonsmooth(
    objective: Objective, starts: FloatArray, box: Box, tol: float | FloatArray, max_evaluations: int
) -> list[FitResult]:
    """Minimise K functions one after the other; arguments as for `minimise_newton`.

    At a kink, the search has converged if the components of a convex combination of nearby gradients are at most ten
    times the tolerance. Points are sampled with a fixed seed.
    """
    tols = np.broadcast_to(tol, starts.shape)
    return [_minimise(objective, k, start, box, tols[k], max_evaluations) for k, start in enumerate(starts)]


class _OneFunction:
    """Objective that consists of function k only."""

    def __init__(self, objective: Objective, k: int) -> None:
        self.objective, self.k = objective, k

    def evaluate(self, thetas: FloatArray, which: NDArray[np.intp]) -> tuple[FloatArray, FloatArray]:
        return self.objective.evaluate(thetas, np.full(which.shape, self.k))


def _minimise(objective: Objective, k: int, start: FloatArray, box: Box, tol: FloatArray, limit: int) -> FitResult:
    one, rng = _OneFunction(objective, k), np.random.default_rng(0)
    solution = minimise_lbfgs(one, start[None], box, tol[None], limit)[0]
    while solution.status is Status.STALLED:
        stepped = _step(one, solution, box, tol, limit, rng)
        if stepped.status is not Status.STALLED or stepped.value >= solution.value - _WORTH * (
            1.0 + abs(solution.value)
        ):
            return stepped
        left = limit - stepped.n_evaluations
        if left < 1:
            return replace(stepped, status=Status.EVALUATIONS)
        solution = minimise_lbfgs(one, stepped.theta[None], box, tol[None], left)[0]
        solution = replace(solution, n_evaluations=solution.n_evaluations + stepped.n_evaluations)
    return solution


def _step(
    one: _OneFunction, at: FitResult, box: Box, tol: FloatArray, limit: int, rng: np.random.Generator
) -> FitResult:
    """Return a point with a lower value or, if none is found, the same point with its final status.

    A lower point keeps the status STALLED, so that the search continues from it.
    """
    d, used = at.theta.size, at.n_evaluations
    size, n = max(1.0, float(np.max(np.abs(at.theta)))), min(_MOST, 2 * d) + 1
    for relative in _RADII:
        if used + n + _LENGTHS.size > limit:
            return replace(at, n_evaluations=used, status=Status.EVALUATIONS)
        radius = relative * size
        around = box.clip(at.theta + radius * np.vstack([np.zeros(d), rng.uniform(-1.0, 1.0, (n - 1, d))]))
        values, gradients = one.evaluate(around, np.zeros(n, dtype=np.intp))
        shortest = _shortest(gradients[np.isfinite(values)], at.theta, box)
        length = float(np.linalg.norm(shortest))
        used += n
        if length > 0.0:
            steps = radius * _LENGTHS[:, None] / length
            trials = box.clip(at.theta - steps * shortest)
            values, _ = one.evaluate(trials, np.zeros(len(trials), dtype=np.intp))
            used += len(trials)
            lower = values <= at.value - SUFFICIENT * steps[:, 0] * length**2
            if np.any(lower):
                best = int(np.argmin(np.where(lower, values, np.inf)))
                return replace(at, theta=trials[best], value=float(values[best]), n_evaluations=used)
    residual = float(np.max(np.abs(shortest), initial=0.0))
    solved = bool(np.all(np.abs(shortest) <= 10.0 * tol))
    status = Status.CONVERGED if solved else Status.STALLED
    return replace(at, n_evaluations=used, status=status, projected_gradient=residual)


def _shortest(gradients: FloatArray, theta: FloatArray, box: Box) -> FloatArray:
    """Return the shortest vector (d,) in the convex hull of gradients (n, d), with 0 for active variables."""
    solution = _hull(gradients)
    active = box.active(theta, solution)
    if np.any(active):
        solution = np.zeros(theta.size)
        solution[~active] = _hull(gradients[:, ~active])
        solution[box.active(theta, solution)] = 0.0
    return solution


def _hull(gradients: FloatArray) -> FloatArray:
    if not gradients.size:
        return np.zeros(gradients.shape[1])
    scale = float(np.max(np.abs(gradients))) or 1.0
    weights, _ = nnls(
        np.vstack([gradients.T / scale, np.ones(len(gradients))]), np.append(np.zeros(gradients.shape[1]), 1.0)
    )
    return np.asarray(gradients.T @ (weights / weights.sum()))
