"""Demonstrations under a MaxEnt model, reduced to what EM asks of them: features summed over each unit.

A trajectory's log-probability is linear in theta but for log Z. An E-step is then one pass over the features (G, d),
and an M-step needs their K weighted means alone, however many demonstrations there are.

A MaxEnt model and sums of features: all that its EM needs, wherever the sums come from.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from limiirl._typing import FloatArray, IndexArray
from limiirl._validation import check_positive
from limiirl.demos import Demonstrations, Groups
from limiirl.irl.maxent.infinite_horizon import InfinitePathSums
from limiirl.irl.maxent.likelihood import ObservedMoments, ObservedPaths, PathLikelihood, feasible_start
from limiirl.irl.maxent.path_sums import FinitePathSums
from limiirl.irl.optim.solvers import SOLVERS
from limiirl.irl.problem import EStep, FitProblem, MStep, PreparedFeatures
from limiirl.kernels.e_step import Rows, e_step, weighted_sums
from limiirl.mdp import MDP

if TYPE_CHECKING:
    from limiirl.irl.maxent.model import MaxEnt


class Moments(NamedTuple):
    """Responsibilities summed up: features (K, d), demonstrations (K,), and U (G, K) where more than sums is needed."""

    features: FloatArray
    counts: FloatArray
    U: FloatArray | None


class PreparedSums(PreparedFeatures):
    """A MaxEnt model with its engine: M-steps from sums over demonstrations that may lie anywhere.

    Parameters
    ----------
    model : MaxEnt
    units : Groups
        Or anything that has a length and can name its members.
    engine : FinitePathSums or InfinitePathSums
        The sums over trajectories, kept with their memory from one step to the next.
    n_demos : int
        N, all demonstrations together; the ridge is in proportion to it.
    """

    observed: ObservedPaths | None = None

    def __init__(
        self, model: MaxEnt, mdp: MDP, demos: Any, units: Any, engine: FinitePathSums | InfinitePathSums, n_demos: int
    ) -> None:
        super().__init__(model, mdp, demos, units, n_demos)
        self.engine = engine

    def m_step(self, moments: Moments, starts: FloatArray | None, which: IndexArray, max_evaluations: int) -> MStep:
        """Return parameters (J, d) of the intents `which`, searched for in lockstep; never worse than the starts."""
        counts = moments.counts[which]
        demonstrated = self._demonstrated(moments, which)
        ridge = self.ridges(len(moments.counts), counts)
        objective = PathLikelihood(self.engine, self.observed, demonstrated, ridge)
        tol = check_positive(self.model.tol, "tol") * np.maximum(1.0, np.abs(demonstrated.mean_features))
        if starts is None:
            starts = np.tile(self._feasible(), (len(which), 1))
        results = SOLVERS[self.model.solver](objective, starts, self._box, tol, max_evaluations)
        return MStep(np.array([result.theta for result in results]), max(r.n_evaluations for r in results))

    def _demonstrated(self, moments: Moments, which: IndexArray) -> ObservedMoments:
        """Return what the responsibilities of some intents say to a fit: their mean features."""
        return ObservedMoments(moments.features[which] / moments.counts[which, None], None, None)

    def _feasible(self) -> FloatArray:
        if self._start is None:
            self._start = feasible_start(self.engine, self._box)
        return self._start


class PreparedRows(PreparedSums):
    """Units of demonstrations under a MaxEnt model, each a row of summed features.

    Parameters
    ----------
    rows : Rows
        One for each unit.

    Examples
    --------
    >>> from limiirl.irl import MaxEnt
    >>> mdp = MDP.from_edges([0, 0], [1, 2], p0=[1, 0, 0], state_features=[[0], [1], [-1]])
    >>> engine = FinitePathSums(mdp, 2)
    >>> rows = Rows(np.array([[1.0], [-1.0]]), np.zeros(2), np.ones(2))
    >>> ready = PreparedRows(MaxEnt(2, bounds=(-3, 3)), mdp, None, Groups.from_labels(None, 2), engine, rows)
    >>> ready.m_step(ready.moments(np.eye(2)), None, np.arange(2), 50).thetas.tolist()
    [[3.0], [-3.0]]
    """

    def __init__(
        self, model: MaxEnt, mdp: MDP, demos: Any, units: Groups, engine: FinitePathSums | InfinitePathSums, rows: Rows
    ) -> None:
        super().__init__(model, mdp, demos, units, engine, int(rows.counts.sum()))
        self.rows = rows

    def log_prob(self, thetas: FloatArray) -> FloatArray:
        """Return (G, K)."""
        return self.rows.log_prob(thetas, self.engine.log_partition(thetas))

    def e_step(self, rho: FloatArray, thetas: FloatArray, U: FloatArray, temperature: float = 1.0) -> EStep:
        """Overwrite the responsibilities U (G, K); see `FitProblem.e_step`."""
        found = e_step(self.rows, thetas, self.engine.log_partition(thetas), np.log(rho), U, 1.0 / temperature)
        counts = weighted_sums(self.rows.counts[:, None], U)[:, 0] if self.units.grouped else found.sizes
        return self._expectation(found, Moments(found.moments, counts, None))

    def moments(self, U: FloatArray) -> Moments:
        """Return the sums that `m_step` needs."""
        return Moments(weighted_sums(self.rows.features, U), weighted_sums(self.rows.counts[:, None], U)[:, 0], None)

    def features(self) -> FloatArray:
        """Return (G, d): mean feature counts. Unrecorded actions count as the first that they may have been."""
        return self.rows.features / self.rows.counts[:, None]


class MaxEntProblem(PreparedRows):
    """Units of demonstrations under a MaxEnt model.

    Sums over rows say all where every feature is known and log Z is one for all starts; elsewhere this falls back to
    log-probabilities and responsibilities one by one.

    Parameters
    ----------
    model : MaxEnt
    engine : FinitePathSums or InfinitePathSums
        The sums over trajectories, kept with their memory from one step to the next.
    """

    observed: ObservedPaths

    def __init__(
        self, model: MaxEnt, mdp: MDP, demos: Demonstrations, units: Groups, engine: FinitePathSums | InfinitePathSums
    ) -> None:
        observed = ObservedPaths(mdp, demos, by_start=engine.by_start)
        features = np.ascontiguousarray(units.sum(observed.features))
        rows = Rows(features, units.sum(observed.log_q), units.counts)
        super().__init__(model, mdp, demos, units, engine, rows)
        self.observed = observed

    @property
    def _linear(self) -> bool:
        """Whether log-probabilities are theta . features - count log Z, so that sums over units say all."""
        return self.observed.fixed and not self.engine.by_start

    def log_prob(self, thetas: FloatArray) -> FloatArray:
        """Return (G, K)."""
        if self._linear:
            return super().log_prob(thetas)
        log_weight = self.observed.log_weight(thetas)
        if self.engine.by_start:
            log_weight -= self.engine.log_partition_by_start(thetas)[self.demos.start_states]
        else:
            log_weight -= self.engine.log_partition(thetas)
        return self.units.sum(log_weight)

    def e_step(self, rho: FloatArray, thetas: FloatArray, U: FloatArray, temperature: float = 1.0) -> EStep:
        """Overwrite the responsibilities U (G, K); see `FitProblem.e_step`."""
        if self._linear:
            return super().e_step(rho, thetas, U, temperature)
        return FitProblem.e_step(self, rho, thetas, U, temperature)

    def moments(self, U: FloatArray) -> Moments:
        """Return the sums that `m_step` needs."""
        found = super().moments(U)
        return found if self._linear else found._replace(U=U)

    def _demonstrated(self, moments: Moments, which: IndexArray) -> ObservedMoments:
        if moments.U is None:
            return super()._demonstrated(moments, which)
        return self.observed.moments(self.units.broadcast(moments.U[:, which]))
