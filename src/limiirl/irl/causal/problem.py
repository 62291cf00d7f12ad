"""Fit problem of a causal model, in which demonstrations are reduced to counts of distinct decisions per unit.

An E-step is one sparse product of the counts with the log-probabilities of the decisions; an M-step needs K weighted
sums of the counts.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from limiirl._typing import BoolArray, FloatArray, IndexArray
from limiirl._validation import check_positive
from limiirl.demos import Demonstrations, Groups
from limiirl.irl.base import FitResult
from limiirl.irl.causal.likelihood import CausalLikelihood, DecisionCounts, feasible_start
from limiirl.irl.causal.stationary import HardBellmanSolver, PolicySolver, StationarySolver
from limiirl.irl.observed_paths import ObservedPaths
from limiirl.irl.optim import difference_hessian, minimise_lbfgs, minimise_nonsmooth, minimise_scaled
from limiirl.irl.problem import FitProblem, MStep, Regulariser
from limiirl.mdp import MDP

if TYPE_CHECKING:
    from limiirl.irl.causal.model import CausalModel


# Change in theta . F in central differences of gradients.
_STEP = 1e-4


class StateActionMoments(NamedTuple):
    """Sums of responsibilities for each decision (m, K), and over all demonstrations (K,)."""

    decisions: FloatArray
    counts: FloatArray


class CausalProblem(FitProblem):
    """Fit problem of a causal model, with the solver of its policies and the decisions of the units."""

    regulariser: Regulariser

    def __init__(
        self,
        model: CausalModel,
        mdp: MDP,
        demos: Demonstrations,
        units: Groups,
        regulariser: Regulariser,
        solver: PolicySolver,
        decisions: DecisionCounts,
    ) -> None:
        super().__init__(model, mdp, demos, units, regulariser)
        self.solver, self.decisions = solver, decisions
        self._start: FloatArray | None = None

    @classmethod
    def from_demos(
        cls,
        model: CausalModel,
        mdp: MDP,
        demos: Demonstrations,
        units: Groups,
        solver: PolicySolver,
        decisions: DecisionCounts,
    ) -> CausalProblem:
        """Return the fit problem, in which a ridge per step is multiplied by the mean number of steps."""
        regulariser = Regulariser.from_model(model, mdp, len(demos))
        if model.ridge_per == "step" and len(demos):
            regulariser = replace(regulariser, ridge=regulariser.ridge * float(np.mean(demos.lengths - 1.0)))
        return cls(model, mdp, demos, units, regulariser, solver, decisions)

    def log_prob(self, thetas: FloatArray) -> FloatArray:
        """Return the log-probabilities (G, K) of the units."""
        log_p, _ = self.decisions.log_prob(self.solver.solve(thetas, self.decisions.candidates).log_prob)
        if np.all(np.isfinite(log_p)):
            return np.asarray(self.decisions.counts @ log_p + self.decisions.log_q[:, None])
        # Impossible decisions are counted separately, because 0 times -inf is nan.
        impossible = self.decisions.counts @ np.isneginf(log_p).astype(np.float64)
        finite = self.decisions.counts @ np.where(np.isneginf(log_p), 0.0, log_p) + self.decisions.log_q[:, None]
        return np.where(impossible > 0.0, -np.inf, finite)

    def moments(self, U: FloatArray) -> StateActionMoments:
        """Return the argument of `m_step` for responsibilities U (G, K)."""
        return StateActionMoments(self.decisions.total(U), self.units.counts @ U)

    def m_step(
        self,
        moments: StateActionMoments,
        starts: FloatArray | None,
        which: IndexArray,
        max_evaluations: int | None = None,
    ) -> MStep:
        """See `FitProblem.m_step`."""
        counts = moments.counts[which]
        ridge = self.regulariser.ridges(len(moments.counts), counts)
        part = StateActionMoments(moments.decisions[:, which], counts)
        return MStep.from_results(self.search(part, ridge, starts, self.limit_evaluations(max_evaluations)))

    def search(
        self, moments: StateActionMoments, ridge: FloatArray, starts: FloatArray | None, max_evaluations: int
    ) -> list[FitResult]:
        """Minimise the objective of each column of the moments, from `starts` (J, d) or a feasible point."""
        objective = CausalLikelihood(self.solver, self.decisions, moments.decisions, moments.counts, ridge)
        if starts is None:
            starts = np.tile(self.feasible_start(), (len(moments.counts), 1))
        tol = check_positive(self.model.gtol, "gtol") * np.maximum(1.0, objective.n_decisions)[:, None]
        tols = np.broadcast_to(tol, starts.shape)
        search = minimise_nonsmooth if isinstance(self.solver, HardBellmanSolver) else minimise_lbfgs
        box, scale = self.regulariser.box, self.feature_scale
        return minimise_scaled(search, objective, starts, box, tols, max_evaluations, scale)

    def curvature(self, U: FloatArray, thetas: FloatArray, free: BoolArray) -> FloatArray:
        """Return -sum_i u_ik Hessian(log p_ik) (K, d, d).

        For stationary policies it is computed with d linear solves per intent, otherwise by central differences of the
        gradient with 2 d evaluations. Where actions of hard values are tied, it is that of their average.
        """
        counts = self.decisions.total(U)
        if isinstance(self.solver, StationarySolver):
            return np.array([self._exact_curvature(self.solver, counts[:, k], theta) for k, theta in enumerate(thetas)])
        K, size = len(thetas), np.sqrt(np.mean(self.features() ** 2, axis=0))
        objective = CausalLikelihood(self.solver, self.decisions, counts, np.ones(K), np.zeros(K))

        def evaluate(theta: FloatArray, k: int) -> tuple[float, FloatArray]:
            values, gradients = objective.evaluate(theta[None], np.array([k]))
            return float(values[0]), gradients[0]

        steps = _STEP / np.where(size > 0.0, size, 1.0)
        each = [difference_hessian(partial(evaluate, k=k), theta, steps, free[k]) for k, theta in enumerate(thetas)]
        return np.array(each)

    def _exact_curvature(self, solver: StationarySolver, counts: FloatArray, theta: FloatArray) -> FloatArray:
        """Return the curvature (d, d) of decisions with weighted counts (m,)."""
        decisions, candidates = self.decisions, self.decisions.candidates
        derivatives = solver.derivatives(theta)
        _, posterior = decisions.log_prob(derivatives.log_prob[candidates.pair][:, None])
        repeats = np.diff(decisions.ptr)
        weight = np.repeat(counts, repeats) * posterior[:, 0]
        curvature = -solver.hessian(derivatives, candidates, weight)
        if not decisions.certain:
            # The Hessian of a log-sum over candidates has in addition the covariance of their scores.
            scores = derivatives.scores[candidates.pair]
            mean = np.add.reduceat(posterior * scores, decisions.ptr[:-1])
            deviation = scores - np.repeat(mean, repeats, axis=0)
            curvature -= deviation.T @ (weight[:, None] * deviation)
        return np.asarray(0.5 * (curvature + curvature.T))

    def objective(self, U: FloatArray) -> CausalLikelihood:
        """See `FitProblem.objective`."""
        moments = self.moments(U)
        return CausalLikelihood(self.solver, self.decisions, *moments, np.zeros(U.shape[1]))

    def feasible_start(self) -> FloatArray:
        """Return a theta (d,) within the bounds with finite Bellman values."""
        if self._start is None:
            self._start = feasible_start(self.solver, self.decisions, self.regulariser.box)
        return self._start

    def features(self) -> FloatArray:
        """Return the mean feature counts (G, d); unrecorded actions are replaced by their first candidates."""
        return self.units.mean(ObservedPaths.from_demos(self.mdp, self.demos).features)
