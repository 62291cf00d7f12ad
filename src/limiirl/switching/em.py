"""Expectation-maximisation for intents that switch within a demonstration.

M-steps never lower the expected penalised log-likelihood, even if truncated, so the objective is nondecreasing. Every
second step is extrapolated, if this raises the objective.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from limiirl._typing import FloatArray
from limiirl.errors import LimiirlError
from limiirl.kernels.switching import ChainCounts
from limiirl.mixture import Callback, ConvergenceMonitor, Iteration, Settings
from limiirl.switching.problem import Parameters, SwitchingProblem


@dataclass(frozen=True, eq=False)
class SwitchingState:
    """Parameters of an iteration, and the expected counts of its E-step."""

    parameters: Parameters
    counts: ChainCounts
    history: list[Iteration]

    @property
    def objective(self) -> float:
        """Penalised log-likelihood per step."""
        return self.history[-1].objective


@dataclass(frozen=True)
class SwitchingRestart:
    """The result of EM from one initialisation.

    Attributes
    ----------
    objective, log_likelihood : float
        Per step, with and without the penalty.
    n_iter, converged : int, bool
    best : bool
        True if the objective is within 1e-5 nats of the best one.
    """

    objective: float
    log_likelihood: float
    n_iter: int
    converged: bool
    best: bool


# Number of iterations before the first extrapolation, so that it does not decide between local maxima.
_FIRST_ACCELERATED = 10


@dataclass(frozen=True)
class EM:
    """EM for a fit problem; `ridge` penalises the coefficients of the transition model."""

    problem: SwitchingProblem
    settings: Settings
    ridge: float

    def run(self, start: Parameters, callback: Callback | None = None) -> tuple[SwitchingState, bool]:
        """Run EM from initial parameters; return the last state, and whether it has converged."""
        monitor = ConvergenceMonitor(self.settings, callback)
        state = self._evaluate(start, [], 0)
        path = [start]
        while True:
            if callback is not None:
                callback(state.history[-1])
            if monitor.stops(state):
                return state, monitor.has_converged(state)
            limit = self.settings.max_evaluations
            parameters, n_evaluations = self.problem.m_step(state.parameters, state.counts, self.ridge, limit)
            before, state = state.history, self._evaluate(parameters, state.history, n_evaluations)
            path.append(parameters)
            if len(path) == 3:
                state = self._accelerate(path, state, before)
                path = [state.parameters]

    def _accelerate(self, path: list[Parameters], state: SwitchingState, before: list[Iteration]) -> SwitchingState:
        """Return the state at parameters extrapolated from the last two steps, if their objective is higher.

        This is the squared extrapolation of Varadhan and Roland (2008, scheme S3). EM alone converges linearly, and
        slowly where intents overlap.
        """
        if len(before) < _FIRST_ACCELERATED:
            return state
        first, second, third = (self.problem.to_vector(parameters) for parameters in path)
        change, curve = second - first, third - 2.0 * second + first
        size = float(np.linalg.norm(curve))
        if not np.isfinite(size) or size == 0.0:
            return state
        step = float(np.linalg.norm(change)) / size
        if step <= 1.0:  # the extrapolation would not exceed the last M-step
            return state
        parameters = self.problem.from_vector(first + 2.0 * step * change + step**2 * curve, path[0])
        try:
            trial = self._evaluate(parameters, before, state.history[-1].n_evaluations)
        except LimiirlError:  # the policy may not exist there
            return state
        return trial if trial.objective > state.objective else state

    def _evaluate(self, parameters: Parameters, history: list[Iteration], n_evaluations: int) -> SwitchingState:
        """Return the state after the E-step of parameters."""
        n, counts = self.problem.n_steps, self.problem.e_step(parameters)
        log_likelihood = counts.log_prob / n
        objective = log_likelihood - self.problem.penalty(parameters, self.ridge) / n
        shares = counts.decisions.sum(axis=0) / n
        event = "" if history else "start"
        entry = Iteration(len(history), log_likelihood, objective, np.nan, shares, n_evaluations, event=event)
        return SwitchingState(parameters, counts, [*history, entry])


# Largest difference of objectives, in nats per step, that count as equal.
_SAME_OBJECTIVE = 1e-5


def compare_restarts(runs: list[tuple[SwitchingState, bool]]) -> list[SwitchingRestart]:
    """Return one `SwitchingRestart` per run."""
    highest = max(state.objective for state, _ in runs)
    return [
        SwitchingRestart(
            state.objective,
            state.history[-1].log_likelihood,
            state.history[-1].iteration,
            converged,
            highest - state.objective <= _SAME_OBJECTIVE,
        )
        for state, converged in runs
    ]


def occupancy(counts: ChainCounts) -> FloatArray:
    """Return the expected fraction (K,) of steps with each intent."""
    sizes = counts.decisions.sum(axis=0)
    return np.asarray(sizes / sizes.sum())


def mean_transition(counts: ChainCounts, transition: FloatArray) -> FloatArray:
    """Return the fraction (K, K) of the steps of each intent that are followed by each intent.

    `transition` is (K, K) or (S, K, K); its mean is used for intents without expected steps.
    """
    left = counts.transitions.sum(axis=1, keepdims=True)
    fallback = transition.reshape(-1, *transition.shape[-2:]).mean(axis=0)
    return np.where(left > 0.0, counts.transitions / np.where(left > 0.0, left, 1.0), fallback)
