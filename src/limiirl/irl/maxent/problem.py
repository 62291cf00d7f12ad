"""EM of a MaxEnt model on statistics of demonstrations: their features, summed over groups.

A trajectory's log-probability is linear in theta except for log Z. An E-step is then one pass over the features (G, d),
and an M-step needs their K weighted means alone, however many demonstrations there are and wherever they are stored.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from limiirl._typing import FloatArray, IndexArray
from limiirl._validation import check_positive
from limiirl.demos import Demonstrations, Groups
from limiirl.errors import InvalidDemos
from limiirl.irl.maxent.infinite_horizon import InfinitePathSums
from limiirl.irl.maxent.likelihood import ObservedMoments, ObservedPaths, PathLikelihood, feasible_start
from limiirl.irl.maxent.path_sums import FinitePathSums
from limiirl.irl.optim import SOLVERS
from limiirl.irl.problem import M_STEP_EVALUATIONS, EStep, FitProblem, MStep, Regulariser
from limiirl.kernels.e_step import EStepSums, Rows, e_step, sum_weighted
from limiirl.mdp import MDP

if TYPE_CHECKING:
    from limiirl.irl.maxent.model import MaxEnt

PathSums = FinitePathSums | InfinitePathSums


class Moments(NamedTuple):
    """Sums of responsibilities times features (K, d) and demonstrations (K,); U (G, K) where sums do not suffice."""

    features: FloatArray
    counts: FloatArray
    U: FloatArray | None


class PathStatistics(Protocol):
    """Statistics of demonstrations that determine the likelihood of a MaxEnt model, in memory or streamed.

    Attributes
    ----------
    n_demos : int
        N, all demonstrations; the ridge is in proportion to it.
    """

    n_demos: int

    def allocate(self, n_intents: int) -> Any:
        """Return responsibilities that `e_step` overwrites, or their substitute."""
        ...

    def e_step(
        self, path_sums: PathSums, rho: FloatArray, thetas: FloatArray, U: Any, temperature: float
    ) -> tuple[EStepSums, Moments]:
        """Overwrite U with the responsibilities of an ensemble; return their sums."""
        ...


class RowStatistics:
    """One row of summed features per group, in memory: sufficient where features are known and log Z is common to all.

    Parameters
    ----------
    rows : Rows
    units : Groups
    """

    def __init__(self, rows: Rows, units: Any) -> None:
        self.rows, self.units = rows, units
        self.n_demos = int(rows.counts.sum())

    def allocate(self, n_intents: int) -> FloatArray:
        """Return responsibilities (G, K), all 0."""
        return np.zeros((len(self.units), n_intents))

    def e_step(
        self, path_sums: PathSums, rho: FloatArray, thetas: FloatArray, U: FloatArray, temperature: float
    ) -> tuple[EStepSums, Moments]:
        """Overwrite the responsibilities U (G, K) in one pass over the rows."""
        sums = e_step(self.rows, thetas, path_sums.log_partition(thetas), np.log(rho), U, 1.0 / temperature)
        counts = sum_weighted(self.rows.counts[:, None], U)[:, 0] if self.units.grouped else sums.sizes
        return sums, Moments(sums.moments, counts, None)

    def moments(self, U: FloatArray) -> Moments:
        """Return the sums that an M-step needs."""
        return Moments(sum_weighted(self.rows.features, U), sum_weighted(self.rows.counts[:, None], U)[:, 0], None)

    def log_prob(self, path_sums: PathSums, thetas: FloatArray) -> FloatArray:
        """Return (G, K)."""
        return self.rows.log_prob(thetas, path_sums.log_partition(thetas))

    def features(self) -> FloatArray:
        """Return (G, d): mean feature counts."""
        return self.rows.features / self.rows.counts[:, None]


class DemoStatistics(RowStatistics):
    """Demonstrations whose rows are not sufficient: unrecorded actions with rewards, or log Z by start state."""

    def __init__(self, rows: Rows, units: Groups, observed: ObservedPaths) -> None:
        super().__init__(rows, units)
        self.observed = observed

    def e_step(
        self, path_sums: PathSums, rho: FloatArray, thetas: FloatArray, U: FloatArray, temperature: float
    ) -> tuple[EStepSums, Moments]:
        """Overwrite the responsibilities U (G, K), from log-probabilities."""
        log_p = np.ascontiguousarray(self.log_prob(path_sums, thetas))
        return e_step(log_p, thetas, np.empty(0), np.log(rho), U, 1.0 / temperature), self.moments(U)

    def moments(self, U: FloatArray) -> Moments:
        """Return the sums, with the responsibilities themselves."""
        return super().moments(U)._replace(U=U)

    def log_prob(self, path_sums: PathSums, thetas: FloatArray) -> FloatArray:
        """Return (G, K)."""
        log_weight = self.observed.log_weight(thetas)
        if path_sums.by_start:
            log_weight -= path_sums.log_partition_by_start(thetas)[self.observed.demos.start_states]
        else:
            log_weight -= path_sums.log_partition(thetas)
        return np.asarray(self.units.sum(log_weight))


class MaxEntProblem(FitProblem):
    """A MaxEnt model, its path sums, and statistics of demonstrations.

    Parameters
    ----------
    model : MaxEnt
    demos : Demonstrations, optional
        None where the statistics are all that is known.
    units : Groups
        Or an object that has a length and names its members.
    path_sums : FinitePathSums or InfinitePathSums
        With their buffers, from one step to the next.
    statistics : PathStatistics
    observed : ObservedPaths, optional
        The demonstrations as functions of theta.

    Examples
    --------
    >>> from limiirl.irl import MaxEnt
    >>> mdp = MDP.from_edges([0, 0], [1, 2], p0=[1, 0, 0], state_features=[[0], [1], [-1]])
    >>> units = Groups.from_labels(None, 2)
    >>> statistics = RowStatistics(Rows(np.array([[1.0], [-1.0]]), np.zeros(2), np.ones(2)), units)
    >>> problem = MaxEntProblem(MaxEnt(2, bounds=(-3, 3)), mdp, None, units, FinitePathSums(mdp, 2), statistics)
    >>> problem.m_step(problem.moments(np.eye(2)), None, np.arange(2), 50).thetas.tolist()
    [[3.0], [-3.0]]
    """

    regulariser: Regulariser

    def __init__(
        self,
        model: MaxEnt,
        mdp: MDP,
        demos: Demonstrations | None,
        units: Any,
        path_sums: PathSums,
        statistics: PathStatistics,
        observed: ObservedPaths | None = None,
    ) -> None:
        super().__init__(model, mdp, demos, units, Regulariser.from_model(model, mdp, statistics.n_demos))
        self.path_sums, self.statistics, self.observed = path_sums, statistics, observed
        self._start: FloatArray | None = None

    @classmethod
    def from_demos(
        cls, model: MaxEnt, mdp: MDP, demos: Demonstrations, units: Groups, path_sums: PathSums
    ) -> MaxEntProblem:
        """Return the problem of demonstrations in memory, with the smallest statistics that are sufficient."""
        observed = ObservedPaths(mdp, demos, by_start=path_sums.by_start)
        features = np.ascontiguousarray(units.sum(observed.features))
        rows = Rows(features, units.sum(observed.log_q), units.counts)
        linear = observed.fixed and not path_sums.by_start
        statistics = RowStatistics(rows, units) if linear else DemoStatistics(rows, units, observed)
        return cls(model, mdp, demos, units, path_sums, statistics, observed)

    def log_prob(self, thetas: FloatArray) -> FloatArray:
        """Return (G, K)."""
        return self._rows().log_prob(self.path_sums, thetas)

    def allocate(self, n_intents: int) -> Any:
        """Return what `e_step` overwrites."""
        return self.statistics.allocate(n_intents)

    def e_step(self, rho: FloatArray, thetas: FloatArray, U: Any, temperature: float = 1.0) -> EStep:
        """Overwrite the responsibilities U (G, K); see `FitProblem.e_step`."""
        return self.e_step_of(*self.statistics.e_step(self.path_sums, rho, thetas, U, temperature))

    def moments(self, U: FloatArray) -> Moments:
        """Return the sums that `m_step` needs."""
        return self._rows().moments(U)

    def m_step(
        self, moments: Moments, starts: FloatArray | None, which: IndexArray, max_evaluations: int | None = None
    ) -> MStep:
        """Return parameters (J, d) of the intents `which`, searched for in lockstep; never worse than the starts."""
        counts = moments.counts[which]
        if moments.U is None or self.observed is None:
            observed = ObservedMoments(moments.features[which] / counts[:, None], None, None)
        else:
            observed = self.observed.moments(self.units.broadcast(moments.U[:, which]))
        ridge, box = self.regulariser.ridges(len(moments.counts), counts), self.regulariser.box
        objective = PathLikelihood(self.path_sums, self.observed, observed, ridge)
        tol = check_positive(self.model.gtol, "gtol") * np.maximum(1.0, np.abs(observed.mean_features))
        if starts is None:
            if self._start is None:
                self._start = feasible_start(self.path_sums, box)
            starts = np.tile(self._start, (len(which), 1))
        cap = M_STEP_EVALUATIONS if max_evaluations is None else max_evaluations
        results = SOLVERS[self.model.solver](objective, starts, box, tol, cap)
        return MStep(np.array([result.theta for result in results]), max(r.n_evaluations for r in results))

    def features(self) -> FloatArray:
        """Return mean feature counts (G, d); an unrecorded action counts as its first candidate."""
        return self._rows().features()

    def _rows(self) -> RowStatistics:
        if not isinstance(self.statistics, RowStatistics):
            raise InvalidDemos(
                "The demonstrations of a stream are not in memory, so that they have no log-probabilities, moments or "
                "features. Use a problem of a sample of them.",
                parameter="demos",
            )
        return self.statistics
