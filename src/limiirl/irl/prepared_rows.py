"""A MaxEnt model and sums of features: all that its EM needs, wherever the sums come from.

Where log-probabilities are theta . F - count log Z, an M-step needs K weighted sums of features and K counts, and an
E-step a row of features for each unit. `PreparedSums` has the M-step alone, for data that lie elsewhere; `PreparedRows`
has the rows too. Demonstrations come on top of it in `limiirl.irl.prepared_maxent`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from limiirl.demos.units import Units
from limiirl.irl import checks
from limiirl.irl.engine import FiniteEngine, InfiniteEngine
from limiirl.irl.evidence import Demonstrated, Evidence
from limiirl.irl.likelihood import PathLikelihood, feasible_start
from limiirl.irl.optimise import SOLVERS
from limiirl.irl.prepared import Expectation, Int, Maximised
from limiirl.irl.prepared_features import PreparedFeatures
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


class PreparedSums(PreparedFeatures):
    """A MaxEnt model with its engine: M-steps from sums over demonstrations that may lie anywhere.

    Parameters
    ----------
    model : MaxEnt
    units : Units
        Or anything that has a length and can name its members.
    engine : FiniteEngine or InfiniteEngine
        The sums over trajectories, kept with their memory from one step to the next.
    n_demos : int
        N, all demonstrations together; the ridge is in proportion to it.
    """

    evidence: Evidence | None = None

    def __init__(
        self, model: MaxEnt, mdp: MDP, demos: Any, units: Any, engine: FiniteEngine | InfiniteEngine, n_demos: int
    ) -> None:
        super().__init__(model, mdp, demos, units, n_demos)
        self.engine = engine

    def maximise(self, moments: Moments, starts: Float | None, which: Int, max_evaluations: int) -> Maximised:
        """Return parameters (J, d) of the intents `which`, searched for in lockstep; never worse than the starts."""
        counts = moments.counts[which]
        demonstrated = self._demonstrated(moments, which)
        ridge = self.ridges(len(moments.counts), counts)
        objective = PathLikelihood(self.engine, self.evidence, demonstrated, ridge)
        tol = checks.positive(self.model.tol, "tol") * np.maximum(1.0, np.abs(demonstrated.mean_features))
        if starts is None:
            starts = np.tile(self._feasible(), (len(which), 1))
        results = SOLVERS[self.model.solver](objective, starts, self._box, tol, max_evaluations)
        return Maximised(np.array([result.theta for result in results]), max(r.n_evaluations for r in results))

    def _demonstrated(self, moments: Moments, which: Int) -> Demonstrated:
        """Return what the responsibilities of some intents say to a fit: their mean features."""
        return Demonstrated(moments.features[which] / moments.counts[which, None], None, None)

    def _feasible(self) -> Float:
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
    >>> engine = FiniteEngine(mdp, 2)
    >>> rows = Rows(np.array([[1.0], [-1.0]]), np.zeros(2), np.ones(2))
    >>> ready = PreparedRows(MaxEnt(2, bounds=(-3, 3)), mdp, None, Units.of(None, 2), engine, rows)
    >>> ready.maximise(ready.moments(np.eye(2)), None, np.arange(2), 50).thetas.tolist()
    [[3.0], [-3.0]]
    """

    def __init__(
        self, model: MaxEnt, mdp: MDP, demos: Any, units: Units, engine: FiniteEngine | InfiniteEngine, rows: Rows
    ) -> None:
        super().__init__(model, mdp, demos, units, engine, int(rows.counts.sum()))
        self.rows = rows

    def log_prob(self, thetas: Float) -> Float:
        """Return (G, K)."""
        return self.rows.log_prob(thetas, self.engine.log_partition(thetas))

    def expect(self, rho: Float, thetas: Float, U: Float, temperature: float = 1.0) -> Expectation:
        """Overwrite the responsibilities U (G, K); see `Prepared.expect`."""
        found = expect(self.rows, thetas, self.engine.log_partition(thetas), np.log(rho), U, 1.0 / temperature)
        counts = weigh(self.rows.counts[:, None], U)[:, 0] if self.units.grouped else found.sizes
        return self._expectation(found, Moments(found.moments, counts, None))

    def moments(self, U: Float) -> Moments:
        """Return the sums that `maximise` needs."""
        return Moments(weigh(self.rows.features, U), weigh(self.rows.counts[:, None], U)[:, 0], None)

    def features(self) -> Float:
        """Return (G, d): mean feature counts. Unrecorded actions count as the first that they may have been."""
        return self.rows.features / self.rows.counts[:, None]
