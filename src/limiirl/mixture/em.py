"""Expectation-maximisation over intents: the loop, and its handling of empty components.

Paper: section "The LiMIIRL algorithm". The M-step never lowers the expected log-likelihood, so that the (penalised)
likelihood never falls from one iteration to the next, whether M-steps are solved or cut short. The steps that are
exempt carry an `event` in the history.
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

# Floor on mixture weights; zero is absorbing under EM.
SMALLEST_WEIGHT = 1e-8
# Responsibilities that sum to less leave no digits for their mean features.
_NOBODY = 1e-250
# How often one fit plants an intent that nobody follows elsewhere.
_RESEEDS = 3


@dataclass(frozen=True)
class Settings:
    """When EM stops and how it goes; the parameters of `IntentMixture` by the same names."""

    max_iter: int = 100
    resp_tol: float = 1e-6
    likelihood_tol: float | None = None
    max_evaluations: int | None = None
    degenerate: str = "fit"
    temperatures: tuple[float, ...] = ()


@dataclass(frozen=True)
class Start:
    """Where EM begins: an ensemble, the responsibilities (G, K) it was made from, if any, intents without members."""

    rho: FloatArray
    thetas: FloatArray
    U: FloatArray | None = None
    empty: tuple[int, ...] = ()


@dataclass(frozen=True)
class State:
    """EM between two iterations: all that the next one builds on.

    Attributes
    ----------
    U : Any
        What the E-step overwrites, not a copy: responsibilities (G, K), or what a model has in their place.
    found : EStep
        The E-step of rho and thetas.
    outside : bool
        Whether the rewards lie outside the bounds.
    reseeds_left : int
    history : list of Iteration
    """

    rho: FloatArray
    thetas: FloatArray
    U: Any
    found: EStep
    outside: bool
    reseeds_left: int
    history: list[Iteration]


@dataclass(frozen=True)
class Solution:
    """Where EM ended. Responsibilities, their sums and likelihoods belong to the parameters beside them."""

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
        """Number of M-steps after the start."""
        return self.history[-1].iteration


class _Run:
    """EM on its way: the current ensemble, its E-step, and the monitor."""

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
        """Make the first E-step."""
        self.rho, self.thetas = floored_weights(start.rho, 1.0), start.thetas
        self.U = self.problem.allocate(len(self.rho)) if start.U is None else start.U.copy()
        self.reseeds_left = _RESEEDS
        self.outside = not np.array_equal(self.problem.project(self.thetas), self.thetas)
        temperature = self.temperature(0)
        try:
            self.e_step = self.problem.e_step(self.rho, self.thetas, self.U, temperature)
        except DivergentPartition as error:
            raise DivergentPartition(
                f"EM cannot begin: at the initial rewards, {error} Use reward_init='mle', which begins where the sum "
                "is finite, or an init with lower rewards.",
                parameter="reward_init",
            ) from None
        self.record(np.nan if start.U is None else self.e_step.change, temperature, "start")

    def resume(self, state: State) -> None:
        """Continue from a state that was saved."""
        self.rho, self.thetas, self.U, self.e_step = state.rho, state.thetas, state.U, state.found
        self.outside, self.reseeds_left = state.outside, state.reseeds_left
        self.monitor.history = list(state.history)

    def state(self) -> State:
        """Return all that the next iteration builds on."""
        history = list(self.monitor.history)
        return State(self.rho, self.thetas, self.U, self.e_step, self.outside, self.reseeds_left, history)

    def temperature(self, iteration: int) -> float:
        """Return the temperature of an iteration; the last has 1, so that its E-step is that of the solution."""
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
        """Make an M-step, then the E-step of its parameters."""
        moments, sizes = self.e_step.moments, self.e_step.sizes
        number = len(self.monitor.history)
        event = "projected" if self.outside else ""
        self.outside = False
        # Tempered responsibilities maximise another objective; so do those of the iteration that ends the tempering.
        if self.temperature(number - 1) != 1.0:
            event = "annealed"
        small = nearly_empty(sizes, self.n)
        if self.settings.degenerate == "reseed" and np.any(small) and self.reseeds_left:
            planted = self.reseed(int(np.argmax(small)))
            moments, sizes, event = self.problem.moments(self.U), self.U.sum(axis=0), f"reseeded {planted}"
            small = nearly_empty(sizes, self.n)
        which = np.flatnonzero(sizes > _NOBODY if self.settings.degenerate == "fit" else ~small)
        starts = self.problem.project(self.thetas[which])
        thetas = self.thetas.copy()
        thetas[which], n_evaluations = self.problem.m_step(moments, starts, which, self.settings.max_evaluations)
        self.rho, self.thetas = floored_weights(sizes, self.n), thetas
        temperature = self.temperature(number)
        self.e_step = self.problem.e_step(self.rho, self.thetas, self.U, temperature)
        self.record(self.e_step.change, temperature, event, n_evaluations)

    def reseed(self, k: int) -> int:
        """Give intent k the unit that the mixture explains worst."""
        self.reseeds_left -= 1
        log_p = self.problem.log_prob(self.thetas) + np.log(self.rho)
        worst = int(np.argmin(np.logaddexp.reduce(log_p, axis=1)))
        self.U[worst] = 0.0
        self.U[worst, k] = 1.0
        return k


def floored_weights(sizes: FloatArray, total: float) -> FloatArray:
    """Return rho (K,) that maximises sum_k sizes_k log rho_k among weights of at least `SMALLEST_WEIGHT`.

    It raises what is below the floor and scales down the rest, which keeps the likelihood from falling.

    Examples
    --------
    >>> floored_weights(np.array([3.0, 1.0, 0.0]), 4.0).round(4)
    array([0.75, 0.25, 0.  ])
    """
    rho = np.asarray(sizes / total, dtype=np.float64)
    low = rho < SMALLEST_WEIGHT
    while True:
        rest = 1.0 - SMALLEST_WEIGHT * np.count_nonzero(low)
        found = np.where(low, SMALLEST_WEIGHT, rho * rest / rho[~low].sum())
        lower = found < SMALLEST_WEIGHT
        if not np.any(lower):
            return found
        low |= lower


def nearly_empty(sizes: FloatArray, n: int) -> NDArray[np.bool_]:
    """Return (K,) which intents have less than half a unit in all, or than one in a thousand: too few to learn from.

    Half, because the responsibilities of an intent that has one unit to itself sum to a little less than 1.
    """
    return np.asarray(sizes < max(0.5, 1e-3 * n))


def run(
    problem: FitProblem,
    start: Start | State,
    settings: Settings,
    callback: Callback | None = None,
    keep: Callable[[State], None] | None = None,
) -> Solution:
    """Run EM from a start until a stopping rule holds or the iterations are used up.

    Parameters
    ----------
    start : Start or State
        From a `State` that `keep` was given, EM ends with the same bits as if it had never stopped.
    callback : callable, optional
        Given each `Iteration`.
    keep : callable, optional
        Given the state after each iteration, the start included.

    Examples
    --------
    >>> from limiirl import MDP, Demonstrations, MaxEnt
    >>> from limiirl.irl.problem import make_problem
    >>> mdp = MDP.from_edges([0, 0], [1, 2], p0=[1, 0, 0], state_features=[[0], [1], [-1]])
    >>> demos = Demonstrations.from_lists([[0, 1], [0, 1], [0, 2]])
    >>> start = Start(np.array([0.5, 0.5]), np.array([[1.0], [-1.0]]))
    >>> solution = run(make_problem(MaxEnt(max_length=2, bounds=(-3, 3)), mdp, demos), start, Settings())
    >>> solution.converged, solution.rho.round(2), solution.thetas.round(2).ravel()
    (True, array([0.67, 0.33]), array([ 3., -3.]))
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
    return Solution(
        em.rho,
        em.thetas,
        em.U,
        last.log_likelihood,
        last.objective,
        monitor.converged,
        monitor.history,
        em.e_step.sizes,
    )
