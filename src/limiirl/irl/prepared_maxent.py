"""Demonstrations under a MaxEnt model, reduced to what EM asks of them: features summed over each unit.

A trajectory's log-probability is linear in theta but for log Z. An E-step is then one pass over the features (G, d),
and an M-step needs their K weighted means alone, however many demonstrations there are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from limiirl.demos import Demonstrations
from limiirl.demos.units import Units
from limiirl.irl import checks
from limiirl.irl.engine import FiniteEngine, InfiniteEngine
from limiirl.irl.evidence import Demonstrated, Evidence
from limiirl.irl.likelihood import PathLikelihood, feasible_start
from limiirl.irl.optimise import SOLVERS, Box
from limiirl.irl.prepared import Expectation, Int, Maximised, Prepared
from limiirl.kernels.expectation import Rows, expect, weigh
from limiirl.mdp import MDP

if TYPE_CHECKING:
    from limiirl.irl.maxent import MaxEnt

Float = NDArray[np.float64]


class Moments(NamedTuple):
    """Responsibilities summed up: features (K, d), demonstrations (K,), and U (G, K) where more than sums is needed."""

    features: Float
    counts: Float
    U: Float | None


class PreparedMaxEnt(Prepared):
    """Units of demonstrations under a MaxEnt model.

    Parameters
    ----------
    model : MaxEnt
    engine : FiniteEngine or InfiniteEngine
        The sums over trajectories, kept with their memory from one step to the next.
    """

    def __init__(
        self, model: MaxEnt, mdp: MDP, demos: Demonstrations, units: Units, engine: FiniteEngine | InfiniteEngine
    ) -> None:
        super().__init__(model, mdp, demos, units)
        self.engine = engine
        self.evidence = Evidence(mdp, demos, by_start=engine.by_start)
        self.rows = Rows(
            np.ascontiguousarray(units.total(self.evidence.features)), units.total(self.evidence.log_q), units.counts
        )
        self._ridge = checks.positive(model.ridge, "ridge", zero=True)
        self._box = checks.box(model.bounds, mdp.feature_names)
        self._start: Float | None = None

    @property
    def n_parameters(self) -> int:
        """d, the number of features of the MDP."""
        return int(self.mdp.n_features)

    @property
    def _linear(self) -> bool:
        """Whether log-probabilities are theta . features - count log Z, so that sums over units say all."""
        return self.evidence.fixed and not self.engine.by_start

    def log_prob(self, thetas: Float) -> Float:
        """Return (G, K)."""
        if self._linear:
            log_Z = self.engine.log_partition(thetas)
            return self.rows.features @ thetas.T + self.rows.log_q[:, None] - np.outer(self.rows.counts, log_Z)
        log_weight = self.evidence.log_weight(thetas)
        if self.engine.by_start:
            log_weight -= self.engine.log_partition_by_start(thetas)[self.demos.start_states]
        else:
            log_weight -= self.engine.log_partition(thetas)
        return self.units.total(log_weight)

    def expect(self, rho: Float, thetas: Float, U: Float, temperature: float = 1.0) -> Expectation:
        """Overwrite the responsibilities U (G, K); see `Prepared.expect`."""
        if not self._linear:
            return super().expect(rho, thetas, U, temperature)
        found = expect(self.rows, thetas, self.engine.log_partition(thetas), np.log(rho), U, 1.0 / temperature)
        counts = weigh(self.rows.counts[:, None], U)[:, 0] if self.units.grouped else found.sizes
        return self._expectation(found, Moments(found.moments, counts, None))

    def moments(self, U: Float) -> Moments:
        """Return the sums that `maximise` needs."""
        features = weigh(self.rows.features, U)
        return Moments(features, weigh(self.rows.counts[:, None], U)[:, 0], None if self._linear else U)

    def maximise(self, moments: Moments, starts: Float | None, which: Int, max_evaluations: int) -> Maximised:
        """Return parameters (J, d) of the intents `which`, searched for in lockstep; never worse than the starts."""
        counts = moments.counts[which]
        demonstrated = Demonstrated(moments.features[which] / counts[:, None], None, None)
        if moments.U is not None:
            demonstrated = self.evidence.demonstrated(self.units.spread(moments.U[:, which]))
        # One penalty for the whole mixture, so that no share of an intent changes its prior: `penalty`, in the scale of
        # a mean over the intent's demonstrations.
        ridge = self._ridge * len(self.demos) / (len(moments.counts) * counts)
        objective = PathLikelihood(self.engine, self.evidence, demonstrated, ridge)
        tol = checks.positive(self.model.tol, "tol") * np.maximum(1.0, np.abs(demonstrated.mean_features))
        if starts is None:
            starts = np.tile(self._feasible(), (len(which), 1))
        results = SOLVERS[self.model.solver](objective, starts, self._box, tol, max_evaluations)
        return Maximised(np.array([result.theta for result in results]), max(r.n_evaluations for r in results))

    def _feasible(self) -> Float:
        if self._start is None:
            self._start = feasible_start(self.engine, self._box)
        return self._start

    def features(self) -> Float:
        """Return (G, d): mean feature counts. Unrecorded actions count as the first that they may have been."""
        return self.rows.features / self.rows.counts[:, None]

    def box(self, n_features: int) -> Box:
        """Return the bounds on theta."""
        del n_features
        return self._box

    def penalty(self, thetas: Float) -> float:
        """Return the ridge: a Gaussian prior on every intent, as strong as `fit` has it for N / K demonstrations."""
        return 0.5 * self._ridge * len(self.demos) / len(thetas) * float(np.sum(thetas**2))
