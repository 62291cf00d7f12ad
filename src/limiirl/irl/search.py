"""One search for the minimum of a smooth function within bounds, as `limiirl.irl.optimise` moves it along."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from limiirl.irl.base import Status
from limiirl.irl.quasi_newton import damped_solve

Float = NDArray[np.float64]
# Share of the decrease predicted by the gradient that a step must achieve (Armijo).
_SUFFICIENT = 1e-4
# Steps are halved at most this often before the search is given up: 2**-40 of a step is lost in rounding.
HALVINGS = 40
# No parameter moves further than this in one step, or than the largest is from 0: features may be in any unit.
LONGEST = 20.0


class Objective(Protocol):
    """K convex functions of d variables, with derivatives."""

    def evaluate(self, thetas: Float, which: NDArray[np.intp]) -> tuple[Float, Float]:
        """Return values (J,) and gradients (J, d) of functions `which` (J,) at thetas (J, d); inf where undefined."""
        ...

    def hessian(self, theta: Float, k: int) -> Float:
        """Return the Hessian (d, d) of function k at theta (d,)."""
        ...


@dataclass(frozen=True)
class Box:
    """Bounds (d,) on every variable, -inf and inf where there are none."""

    lower: Float
    upper: Float

    def clip(self, thetas: Float) -> Float:
        """Return the nearest point within the bounds."""
        return np.clip(thetas, self.lower, self.upper)

    def held(self, theta: Float, gradient: Float) -> NDArray[np.bool_]:
        """Return which variables lie on a bound that the negative gradient pushes against."""
        return ((theta <= self.lower) & (gradient > 0)) | ((theta >= self.upper) & (gradient < 0))

    def residual(self, theta: Float, gradient: Float) -> float:
        """Return the largest component of the gradient that a step within bounds could follow: zero at the minimum."""
        return float(np.max(np.abs(np.where(self.held(theta, gradient), 0.0, gradient)), initial=0.0))


class Search:
    """One of K problems on its way: the current point, the direction tried, the length of the step."""

    def __init__(self, theta: Float, value: float, gradient: Float) -> None:
        self.theta, self.value, self.gradient = theta, value, gradient
        self.direction = np.zeros_like(theta)
        self.length = 1.0
        self.halvings = 0
        self.n_evaluations, self.n_hessians = 1, 0
        self.status: Status | None = None

    def trial(self, box: Box) -> Float:
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

    def move(self, theta: Float, value: float, gradient: Float) -> None:
        """Go to a point that was accepted."""
        self.theta, self.value, self.gradient = theta, value, gradient

    def reject(self, trial: Float, value: float, gradient: Float, box: Box) -> bool:
        """Take half the step, and return whether that is still one."""
        del trial, value, gradient, box
        self.length *= 0.5
        self.halvings += 1
        return self.halvings <= HALVINGS

    def best(self) -> tuple[Float, float, Float]:
        """Return the best point so far, with its value and gradient."""
        return self.theta, self.value, self.gradient

    def accepts(self, trial: Float, value: float, gradient: Float, box: Box) -> bool:
        """Return whether a trial point lowers the function enough."""
        predicted = float(self.gradient @ (trial - self.theta))
        if value <= self.value + _SUFFICIENT * predicted and value < self.value:
            return True
        # At the very end values differ by rounding alone, while the gradient still tells better from worse.
        rounding = 8 * np.finfo(float).eps * max(1.0, abs(self.value))
        return bool(value <= self.value + rounding) and box.residual(trial, gradient) < 0.5 * box.residual(
            self.theta, self.gradient
        )
