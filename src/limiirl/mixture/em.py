"""Expectation-maximisation for a mixture of intents, including the treatment of empty components.

Paper: section "The LiMIIRL algorithm". An M-step never lowers the expected log-likelihood, even if truncated, so the
penalised likelihood is nondecreasing, except at iterations with an `event` in the history.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from limiirl._typing import FloatArray
from limiirl.errors import DivergentPartition
from limiirl.irl import EStep, FitProblem
from limiirl.mixture.monitor import Callback, ConvergenceMonitor, Iteration

# Lower bound on mixture weights: a weight of zero would remain zero under EM.
SMALLEST_WEIGHT = 1e-8
# Smaller intents are not fitted, because averages of their features underflow.
_UNDERFLOW = 1e-250
# Maximum number of reseeds of empty intents per fit.
_RESEEDS = 3


@dataclass(frozen=True)
class Settings:
    """Parameters of EM, named as in `IntentMixture`; `temperatures` is the annealing schedule."""

    max_iter: int = 100
    resp_tol: float = 1e-6
    likelihood_tol: float | None = None
    max_evaluations: int | None = None
    degenerate: str = "fit"
    temperatures: tuple[float, ...] = ()


@dataclass(frozen=True)
class Start:
    """Initial weights and rewards, and the responsibilities (G, K) that they were computed from, if any.

    `empty` contains the intents without initial responsibilities, `warnings` the messages of the warnings that `fit`
    issues, and `parameter` the name of the argument of `IntentMixture` that determined the rewards.
    """

    rho: FloatArray
    thetas: FloatArray
    U: FloatArray | None = None
    empty: tuple[int, ...] = ()
    warnings: tuple[str, ...] = ()
    parameter: str = "init"


@dataclass(frozen=True)
class State:
    """State after an iteration from which EM can resume.

    The next E-step overwrites `U`; copy it to retain it. `outside` is True if the rewards lie outside the bounds.
    """

    rho: FloatArray
    thetas: FloatArray
    U: Any
    e_step: EStep
    outside: bool
    reseeds_left: int
    history: list[Iteration]


@dataclass(frozen=True)
class Solution:
    """Final parameters of EM with their responsibilities, sizes and likelihood."""

    rho: FloatArray
    thetas: FloatArray
    U: FloatArray
    log_likelihood: float
    objective: float
    converged: bool
    history: list[Iteration] = field(default_factory=list)
    sizes: FloatArray = field(default_factory=lambda: np.empty(0))

    @property
    def n_iter(self) -> int:
        """Number of M-steps."""
        return self.history[-1].iteration


class _Run:
    """The current weights and rewards of EM, their E-step, and the monitor."""

    rho: FloatArray
    thetas: FloatArray
    U: Any
    e_step: EStep
    outside: bool
    reseeds_left: int

    def __init__(self, problem: FitProblem, settings: Settings, monitor: ConvergenceMonitor) -> None:
        self.problem, self.settings, self.monitor = problem, settings, monitor
        self.n = len(problem.units)

    def begin(self, start: Start) -> None:
        """Run the first E-step."""
        self.rho, self.thetas = floor_weights(start.rho, 1.0), start.thetas
        self.U = self.problem.allocate(len(self.rho)) if start.U is None else start.U.copy()
        self.reseeds_left = _RESEEDS
        self.outside = not np.array_equal(self.problem.project(self.thetas), self.thetas)
        temperature = self.temperature(0)
        try:
            self.e_step = self.problem.e_step(self.rho, self.thetas, self.U, temperature)
        except DivergentPartition as error:
            message = f"The initial rewards from {start.parameter} have an infinite partition function. {error}"
            raise DivergentPartition(
                message, parameter=start.parameter, value=error.value, index=error.index
            ) from error
        self.record(np.nan if start.U is None else self.e_step.change, temperature, "start")

    def resume(self, state: State) -> None:
        """Continue from a saved state."""
        self.rho, self.thetas, self.U, self.e_step = state.rho, state.thetas, state.U, state.e_step
        self.outside, self.reseeds_left = state.outside, state.reseeds_left
        self.monitor.history = list(state.history)

    def state(self) -> State:
        """Return the state after the last iteration."""
        history = list(self.monitor.history)
        return State(self.rho, self.thetas, self.U, self.e_step, self.outside, self.reseeds_left, history)

    def temperature(self, iteration: int) -> float:
        """Return the temperature of an iteration, which is 1 in the last one, so that the solution is not tempered."""
        schedule = self.settings.temperatures
        return schedule[iteration] if iteration < min(len(schedule), self.settings.max_iter) else 1.0

    def record(self, change: float, temperature: float, event: str = "", n_evaluations: int = 0) -> None:
        log_likelihood = self.e_step.log_likelihood / self.n
        objective = log_likelihood - self.problem.penalty(self.thetas) / self.n
        number = len(self.monitor.history)
        self.monitor.record(
            Iteration(number, log_likelihood, objective, change, self.rho, n_evaluations, temperature, event)
        )

    def step(self) -> None:
        """Run an M-step, then the E-step of its parameters."""
        moments, sizes = self.e_step.moments, self.e_step.sizes
        number = len(self.monitor.history)
        event = "projected" if self.outside else ""
        self.outside = False
        # An M-step after a tempered E-step optimises another objective.
        if self.temperature(number - 1) != 1.0:
            event = "annealed"
        small = nearly_empty(sizes, self.n)
        if self.settings.degenerate == "reseed" and np.any(small) and self.reseeds_left:
            k = int(np.argmax(small))
            self.reassign_worst(k)
            moments, sizes, event = self.problem.moments(self.U), self.U.sum(axis=0), f"reseeded {k}"
            small = nearly_empty(sizes, self.n)
        which = np.flatnonzero(sizes > _UNDERFLOW if self.settings.degenerate == "fit" else ~small)
        starts = self.problem.project(self.thetas[which])
        thetas = self.thetas.copy()
        thetas[which], n_evaluations = self.problem.m_step(moments, starts, which, self.settings.max_evaluations)
        self.rho, self.thetas = floor_weights(sizes, self.n), thetas
        temperature = self.temperature(number)
        self.e_step = self.problem.e_step(self.rho, self.thetas, self.U, temperature)
        self.record(self.e_step.change, temperature, event, n_evaluations)

    def reassign_worst(self, k: int) -> None:
        """Assign the unit with the lowest likelihood to intent k."""
        self.reseeds_left -= 1
        log_p = self.problem.log_prob(self.thetas) + np.log(self.rho)
        worst = int(np.argmin(np.logaddexp.reduce(log_p, axis=1)))
        self.U[worst] = 0.0
        self.U[worst, k] = 1.0


def floor_weights(sizes: FloatArray, total: float) -> FloatArray:
    """Return rho (K,) that maximises sum_k sizes_k log rho_k subject to rho_k >= `SMALLEST_WEIGHT`."""
    rho = np.asarray(sizes / total, dtype=np.float64)
    low = rho < SMALLEST_WEIGHT
    while True:
        rest = 1.0 - SMALLEST_WEIGHT * np.count_nonzero(low)
        floored = np.where(low, SMALLEST_WEIGHT, rho * rest / rho[~low].sum())
        lower = floored < SMALLEST_WEIGHT
        if not np.any(lower):
            return floored
        low |= lower


def nearly_empty(sizes: FloatArray, n: int) -> NDArray[np.bool_]:
    """Return the mask (K,) of intents with a size below 0.5 or below n / 1000.

    The first threshold is below 1 because the responsibilities of an intent with one unit sum to slightly less than 1.
    """
    return np.asarray(sizes < max(0.5, 1e-3 * n))


def run(
    problem: FitProblem,
    start: Start | State,
    settings: Settings,
    callback: Callback | None = None,
    keep: Callable[[State], None] | None = None,
) -> Solution:
    """Run EM until convergence or `max_iter`.

    A run resumed from a `State` is bit-identical to an uninterrupted run. `callback` is called with each `Iteration`,
    and `keep` with the `State` after each iteration, including iteration 0.
    """
    monitor = ConvergenceMonitor(settings.max_iter, settings.resp_tol, settings.likelihood_tol, callback)
    em = _Run(problem, settings, monitor)
    if isinstance(start, State):
        em.resume(start)
    else:
        em.begin(start)
        if keep is not None:
            keep(em.state())
    while not monitor.stops:
        em.step()
        if keep is not None:
            keep(em.state())
    last = monitor.history[-1]
    fit = last.log_likelihood, last.objective, monitor.converged
    return Solution(em.rho, em.thetas, em.U, *fit, history=monitor.history, sizes=em.e_step.sizes)
