"""Minimisation in rescaled variables, for features of very different sizes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from limiirl._typing import FloatArray, IndexArray
from limiirl.irl.base import FitResult
from limiirl.irl.optim.projected_newton import Box

Solver = Callable[[Any, FloatArray, Box, FloatArray, int], list[FitResult]]


def minimise_scaled(
    solver: Solver,
    objective: Any,
    starts: FloatArray,
    box: Box,
    tol: FloatArray,
    max_evaluations: int,
    scale: FloatArray,
) -> list[FitResult]:
    """Minimise K functions over thetas (K, d) in the variables scale * theta, in which features have size 1.

    `tol` (K, d) is relative to `scale` (d,). With a scale of 1 the result is that of the solver, bit for bit.
    """
    if np.all(scale == 1.0):
        return solver(objective, starts, box, tol, max_evaluations)
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
