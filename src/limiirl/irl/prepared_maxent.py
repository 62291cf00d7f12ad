"""Demonstrations under a MaxEnt model, reduced to what EM asks of them: features summed over each unit.

A trajectory's log-probability is linear in theta but for log Z. An E-step is then one pass over the features (G, d),
and an M-step needs their K weighted means alone, however many demonstrations there are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from limiirl.demos import Demonstrations
from limiirl.demos.units import Units
from limiirl.irl.engine import FiniteEngine, InfiniteEngine
from limiirl.irl.evidence import Demonstrated, Evidence
from limiirl.irl.prepared import Expectation, Int, Prepared
from limiirl.irl.prepared_rows import Moments, PreparedRows
from limiirl.kernels.expectation import Rows
from limiirl.mdp import MDP

if TYPE_CHECKING:
    from limiirl.irl.maxent import MaxEnt

Float = NDArray[np.float64]


class PreparedMaxEnt(PreparedRows):
    """Units of demonstrations under a MaxEnt model.

    Sums over rows say all where every feature is known and log Z is one for all starts; elsewhere this falls back to
    log-probabilities and responsibilities one by one.

    Parameters
    ----------
    model : MaxEnt
    engine : FiniteEngine or InfiniteEngine
        The sums over trajectories, kept with their memory from one step to the next.
    """

    evidence: Evidence

    def __init__(
        self, model: MaxEnt, mdp: MDP, demos: Demonstrations, units: Units, engine: FiniteEngine | InfiniteEngine
    ) -> None:
        evidence = Evidence(mdp, demos, by_start=engine.by_start)
        features = np.ascontiguousarray(units.total(evidence.features))
        rows = Rows(features, units.total(evidence.log_q), units.counts)
        super().__init__(model, mdp, demos, units, engine, rows)
        self.evidence = evidence

    @property
    def _linear(self) -> bool:
        """Whether log-probabilities are theta . features - count log Z, so that sums over units say all."""
        return self.evidence.fixed and not self.engine.by_start

    def log_prob(self, thetas: Float) -> Float:
        """Return (G, K)."""
        if self._linear:
            return super().log_prob(thetas)
        log_weight = self.evidence.log_weight(thetas)
        if self.engine.by_start:
            log_weight -= self.engine.log_partition_by_start(thetas)[self.demos.start_states]
        else:
            log_weight -= self.engine.log_partition(thetas)
        return self.units.total(log_weight)

    def expect(self, rho: Float, thetas: Float, U: Float, temperature: float = 1.0) -> Expectation:
        """Overwrite the responsibilities U (G, K); see `Prepared.expect`."""
        if self._linear:
            return super().expect(rho, thetas, U, temperature)
        return Prepared.expect(self, rho, thetas, U, temperature)

    def moments(self, U: Float) -> Moments:
        """Return the sums that `maximise` needs."""
        found = super().moments(U)
        return found if self._linear else found._replace(U=U)

    def _demonstrated(self, moments: Moments, which: Int) -> Demonstrated:
        if moments.U is None:
            return super()._demonstrated(moments, which)
        return self.evidence.demonstrated(self.units.spread(moments.U[:, which]))
