"""Expectation-maximisation over intents: the loop, its stopping rules, and what it does with an intent that nobody has.

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

Callback = Callable[["Iteration"], None]
# No share falls below this: at 0 an intent could never come back.
SMALLEST_SHARE = 1e-8
# Responsibilities that sum to less leave no digits for their mean features.
_NOBODY = 1e-250
# How often one fit plants an intent that nobody follows elsewhere.
_RESEEDS = 3


@dataclass(frozen=True)
class Settings:
    """When EM stops and how it goes; the parameters of `IntentMixture` by the same names."""

    max_iter: int = 100
    tol: float = 1e-6
    likelihood_tol: float | None = None
    max_evaluations: int = 50
    degenerate: str = "fit"
    temperatures: tuple[float, ...] = ()


@dataclass(frozen=True, eq=False)
class Iteration:
    """One line of a mixture's history.

    Attributes
    ----------
    iteration : int
        0 is the initial ensemble; n the ensemble after n M-steps.
    log_likelihood : float
        Mean over units of the log-likelihood of the mixture.
    objective : float
        The same less the model's penalty: what never falls but for an `event`.
    change : float
        Mean over units of the absolute change of responsibilities, summed over intents. At iteration 0 it is measured
        from the clusters of a warm start (the realised epsilon of the paper's theorem 1), nan without any.
    weights : (K,)
    n_evaluations : int
        Values and gradients that the M-step took, the most of any intent; 0 where the model does not tell.
    temperature : float
    event : str
        Empty, or why the objective may have fallen: "start", "projected" (from rewards outside the bounds),
        "annealed", "reseeded 2". Or a move that `refine` took, over which it rose: "split 2, merged 0 into 1"; such
        an entry stands for several M-steps, so that `iteration` goes up by as many.
    """

    iteration: int
    log_likelihood: float
    objective: float
    change: float
    weights: FloatArray
    n_evaluations: int = 0
    temperature: float = 1.0
    event: str = ""


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
    """EM on its way: the current ensemble and its E-step."""

    rho: FloatArray
    thetas: FloatArray
    U: Any
    found: EStep
    outside: bool
    reseeds_left: int
    history: list[Iteration]

    def __init__(
        self, prepared: FitProblem, start: Start | State, settings: Settings, callback: Callback | None
    ) -> None:
        self.prepared, self.settings, self.callback = prepared, settings, callback
        self.n = len(prepared.units)
        if isinstance(start, State):
            self.rho, self.thetas, self.U, self.found = start.rho, start.thetas, start.U, start.found
            self.outside, self.reseeds_left, self.history = start.outside, start.reseeds_left, list(start.history)
        else:
            self.begin(start)

    def begin(self, start: Start) -> None:
        """Make the first E-step."""
        self.rho, self.thetas = shares(start.rho, 1.0), start.thetas
        self.U = self.prepared.blank(len(self.rho)) if start.U is None else start.U.copy()
        self.reseeds_left = _RESEEDS
        self.history = []
        self.outside = not np.array_equal(self.prepared.project(self.thetas), self.thetas)
        try:
            self.found = self.expect(0)
        except DivergentPartition as error:
            raise DivergentPartition(
                f"EM cannot begin: at the initial rewards, {error} Use reward_init='mle', which begins where the sum "
                "is finite, or an init with lower rewards."
            ) from None
        self.record(np.nan if start.U is None else self.found.change, "start")

    def state(self) -> State:
        """Return all that the next iteration builds on."""
        return State(self.rho, self.thetas, self.U, self.found, self.outside, self.reseeds_left, list(self.history))

    def temperature(self, iteration: int) -> float:
        """Return the temperature of an iteration; the last has 1, so that its E-step is that of what is returned."""
        known = self.settings.temperatures
        return known[iteration] if iteration < min(len(known), self.settings.max_iter) else 1.0

    def expect(self, iteration: int) -> EStep:
        return self.prepared.e_step(self.rho, self.thetas, self.U, self.temperature(iteration))

    def record(self, change: float, event: str = "", n_evaluations: int = 0) -> None:
        iteration = len(self.history)
        log_likelihood = self.found.log_likelihood / self.n
        objective = log_likelihood - self.prepared.penalty(self.thetas) / self.n
        entry = Iteration(
            iteration,
            log_likelihood,
            objective,
            change,
            self.rho,
            n_evaluations,
            self.temperature(iteration),
            event,
        )
        self.history.append(entry)
        if self.callback is not None:
            self.callback(entry)

    def step(self) -> None:
        """Make an M-step, then the E-step of what it found."""
        moments, sizes = self.found.moments, self.found.sizes
        event = "projected" if self.outside else ""
        self.outside = False
        # Tempered responsibilities maximise another objective; so do those of the iteration that ends the tempering.
        if self.temperature(len(self.history) - 1) != 1.0:
            event = "annealed"
        small = few(sizes, self.n)
        if self.settings.degenerate == "reseed" and np.any(small) and self.reseeds_left:
            planted = self.reseed(int(np.argmax(small)))
            moments, sizes, event = self.prepared.moments(self.U), self.U.sum(axis=0), f"reseeded {planted}"
            small = few(sizes, self.n)
        which = np.flatnonzero(sizes > _NOBODY if self.settings.degenerate == "fit" else ~small)
        starts = self.prepared.project(self.thetas[which])
        thetas = self.thetas.copy()
        thetas[which], n_evaluations = self.prepared.m_step(moments, starts, which, self.settings.max_evaluations)
        self.rho, self.thetas = shares(sizes, self.n), thetas
        self.found = self.expect(len(self.history))
        self.record(self.found.change, event, n_evaluations)

    def reseed(self, k: int) -> int:
        """Give intent k the unit that the mixture explains worst."""
        self.reseeds_left -= 1
        log_p = self.prepared.log_prob(self.thetas) + np.log(self.rho)
        worst = int(np.argmin(np.logaddexp.reduce(log_p, axis=1)))
        self.U[worst] = 0.0
        self.U[worst, k] = 1.0
        return k

    def settled(self) -> bool:
        """Whether a stopping rule holds: the paper's, or that of the likelihood."""
        if len(self.history) == 1:
            return False
        last, before = self.history[-1], self.history[-2]
        if last.event or last.temperature != 1.0:
            return False
        if last.change < self.settings.tol:
            return True
        rise = self.settings.likelihood_tol
        return rise is not None and last.objective - before.objective < rise


def shares(sizes: FloatArray, total: float) -> FloatArray:
    """Return rho (K,) that maximises sum_k sizes_k log rho_k among shares of at least `SMALLEST_SHARE`.

    It raises what is below the floor and scales down the rest, which keeps the likelihood from falling.

    Examples
    --------
    >>> shares(np.array([3.0, 1.0, 0.0]), 4.0).round(4)
    array([0.75, 0.25, 0.  ])
    """
    rho = np.asarray(sizes / total, dtype=np.float64)
    low = rho < SMALLEST_SHARE
    while True:
        rest = 1.0 - SMALLEST_SHARE * np.count_nonzero(low)
        found = np.where(low, SMALLEST_SHARE, rho * rest / rho[~low].sum())
        lower = found < SMALLEST_SHARE
        if not np.any(lower):
            return found
        low |= lower


def few(sizes: FloatArray, n: int) -> NDArray[np.bool_]:
    """Return (K,) which intents have less than half a unit in all, or than one in a thousand: too few to learn from.

    Half, because the responsibilities of an intent that has one unit to itself sum to a little less than 1.
    """
    return np.asarray(sizes < max(0.5, 1e-3 * n))


def run(
    prepared: FitProblem,
    start: Start | State,
    settings: Settings,
    callback: Callback | None = None,
    keep: Callable[[State], None] | None = None,
) -> Solution:
    """Run EM from a start until a stopping rule holds or the iterations are used up.

    Parameters
    ----------
    start : Start or State
        A `State` goes on where `keep` was given it, and ends with the same bits as if it had never stopped.
    keep : callable, optional
        Given the state after each iteration, the start included.

    Examples
    --------
    >>> from limiirl import MDP, Demonstrations, MaxEnt
    >>> from limiirl.irl.problem import make_problem
    >>> mdp = MDP.from_edges([0, 0], [1, 2], p0=[1, 0, 0], state_features=[[0], [1], [-1]])
    >>> demos = Demonstrations.from_lists([[0, 1], [0, 1], [0, 2]])
    >>> start = Start(np.array([0.5, 0.5]), np.array([[1.0], [-1.0]]))
    >>> found = run(make_problem(MaxEnt(max_length=2, bounds=(-3, 3)), mdp, demos), start, Settings())
    >>> found.converged, found.rho.round(2), found.thetas.round(2).ravel()
    (True, array([0.67, 0.33]), array([ 3., -3.]))
    """
    em = _Run(prepared, start, settings, callback)
    if keep is not None and not isinstance(start, State):
        keep(em.state())
    converged = em.settled()
    while not converged and len(em.history) <= settings.max_iter:
        em.step()
        converged = em.settled()
        if keep is not None:
            keep(em.state())
    last = em.history[-1]
    found = (em.rho, em.thetas, em.U, last.log_likelihood, last.objective, converged, em.history)
    return Solution(*found, sizes=em.found.sizes)
