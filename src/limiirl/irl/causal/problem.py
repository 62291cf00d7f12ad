"""Demonstrations under a causal model, reduced to what EM asks of them: counts of distinct choices, summed over units.

An E-step is one sparse product of the counts with the log-policies, and an M-step needs K weighted sums of the counts
alone, however many demonstrations there are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from limiirl._typing import FloatArray, IndexArray
from limiirl._validation import check_positive
from limiirl.demos import Demonstrations, Groups
from limiirl.irl.base import FitResult
from limiirl.irl.causal.likelihood import CausalLikelihood, DecisionCounts, feasible_start
from limiirl.irl.causal.stationary import HardBellmanSolver, PolicySolver
from limiirl.irl.maxent.likelihood import ObservedPaths
from limiirl.irl.optim import minimise_lbfgs
from limiirl.irl.optim.gradient_sampling import minimise_nonsmooth
from limiirl.irl.problem import M_STEP_EVALUATIONS, FitProblem, MStep, Regulariser
from limiirl.mdp import MDP

if TYPE_CHECKING:
    from limiirl.irl.causal.model import CausalModel


class StateActionMoments(NamedTuple):
    """Responsibilities summed up: choices (m, K), and demonstrations (K,)."""

    choices: FloatArray
    counts: FloatArray


class CausalProblem(FitProblem):
    """Units of demonstrations under a causal model.

    Parameters
    ----------
    model : CausalModel
    engine : PolicySolver
        From rewards to policies.
    events : DecisionCounts
        The choices of each unit.
    """

    regulariser: Regulariser

    def __init__(
        self,
        model: CausalModel,
        mdp: MDP,
        demos: Demonstrations,
        units: Groups,
        engine: PolicySolver,
        events: DecisionCounts,
    ) -> None:
        super().__init__(model, mdp, demos, units, Regulariser.from_model(model, mdp, len(demos)))
        self.engine, self.events = engine, events
        self._start: FloatArray | None = None

    def log_prob(self, thetas: FloatArray) -> FloatArray:
        """Return (G, K)."""
        log_p, _ = self.events.log_prob(self.engine.solve(thetas, self.events.moves).log_choice)
        if np.all(np.isfinite(log_p)):
            return np.asarray(self.events.counts @ log_p + self.events.log_q[:, None])
        # 0 times -inf is no number: impossible choices are counted apart.
        impossible = self.events.counts @ np.isneginf(log_p).astype(np.float64)
        found = self.events.counts @ np.where(np.isneginf(log_p), 0.0, log_p) + self.events.log_q[:, None]
        return np.where(impossible > 0.0, -np.inf, found)

    def moments(self, U: FloatArray) -> StateActionMoments:
        """Return the sums that `m_step` needs."""
        return StateActionMoments(self.events.total(U), self.units.counts @ U)

    def m_step(
        self,
        moments: StateActionMoments,
        starts: FloatArray | None,
        which: IndexArray,
        max_evaluations: int | None = None,
    ) -> MStep:
        """Return parameters (J, d) of the intents `which`; never worse than the starts."""
        counts = moments.counts[which]
        ridge = self.regulariser.ridges(len(moments.counts), counts)
        results = self.search(
            StateActionMoments(moments.choices[:, which], counts), ridge, starts, max_evaluations or M_STEP_EVALUATIONS
        )
        return MStep(np.array([result.theta for result in results]), max(r.n_evaluations for r in results))

    def search(
        self, moments: StateActionMoments, ridge: FloatArray, starts: FloatArray | None, max_evaluations: int
    ) -> list[FitResult]:
        """Minimise the objective of every column of the moments."""
        objective = CausalLikelihood(self.engine, self.events, moments.choices, moments.counts, ridge)
        if starts is None:
            if self._start is None:
                self._start = feasible_start(self.engine, self.events, self.regulariser.box)
            starts = np.tile(self._start, (len(moments.counts), 1))
        tol = check_positive(self.model.gtol, "gtol") * np.maximum(1.0, objective.n_choices)[:, None]
        search = minimise_nonsmooth if isinstance(self.engine, HardBellmanSolver) else minimise_lbfgs
        return search(objective, starts, self.regulariser.box, np.broadcast_to(tol, starts.shape), max_evaluations)

    def features(self) -> FloatArray:
        """Return (G, d): mean feature counts. Unrecorded actions count as the first that they may have been."""
        return self.units.mean(ObservedPaths(self.mdp, self.demos).features)
