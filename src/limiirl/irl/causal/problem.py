"""Fit problem of a causal model, in which demonstrations are reduced to counts of distinct decisions per unit.

An E-step is one sparse product of the counts with the log-probabilities of the decisions; an M-step needs K weighted
sums of the counts.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from limiirl._typing import FloatArray, IndexArray
from limiirl._validation import check_positive
from limiirl.demos import Demonstrations, Groups
from limiirl.irl.base import FitResult
from limiirl.irl.causal.likelihood import CausalLikelihood, DecisionCounts, feasible_start
from limiirl.irl.causal.stationary import HardBellmanSolver, PolicySolver
from limiirl.irl.observed_paths import ObservedPaths
from limiirl.irl.optim import minimise_lbfgs, minimise_nonsmooth
from limiirl.irl.problem import M_STEP_EVALUATIONS, FitProblem, MStep, Regulariser
from limiirl.mdp import MDP

if TYPE_CHECKING:
    from limiirl.irl.causal.model import CausalModel


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
        return MStep.from_results(self.search(part, ridge, starts, max_evaluations or M_STEP_EVALUATIONS))

    def search(
        self, moments: StateActionMoments, ridge: FloatArray, starts: FloatArray | None, max_evaluations: int
    ) -> list[FitResult]:
        """Minimise the objective of each column of the moments, from `starts` (J, d) or a feasible point."""
        objective = CausalLikelihood(self.solver, self.decisions, moments.decisions, moments.counts, ridge)
        if starts is None:
            if self._start is None:
                self._start = feasible_start(self.solver, self.decisions, self.regulariser.box)
            starts = np.tile(self._start, (len(moments.counts), 1))
        tol = check_positive(self.model.gtol, "gtol") * np.maximum(1.0, objective.n_decisions)[:, None]
        search = minimise_nonsmooth if isinstance(self.solver, HardBellmanSolver) else minimise_lbfgs
        return search(objective, starts, self.regulariser.box, np.broadcast_to(tol, starts.shape), max_evaluations)

    def features(self) -> FloatArray:
        """Return the mean feature counts (G, d); unrecorded actions are replaced by their first candidates."""
        return self.units.mean(ObservedPaths.from_demos(self.mdp, self.demos).features)
