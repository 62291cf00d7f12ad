"""Fit problem of a MaxEnt model, in which demonstrations are reduced to feature counts, summed over units.

A unit is a group of demonstrations with a common intent, or a single demonstration. The log-probability of a trajectory
is theta . F + log q - log Z. Therefore an E-step is one pass over the feature counts (G, d) of the units, in memory or
streamed, and an M-step requires only K weighted means of the counts.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from scipy import sparse

from limiirl._typing import BoolArray, FloatArray, IndexArray
from limiirl._validation import check_positive
from limiirl.demos import Demonstrations, Groups
from limiirl.errors import DivergentPartition, InvalidDemos, NumericalError
from limiirl.irl import validate
from limiirl.irl.base import FitResult
from limiirl.irl.maxent.infinite_horizon import InfinitePathSums
from limiirl.irl.maxent.joint import JointPathSums
from limiirl.irl.maxent.path_sums import FinitePathSums
from limiirl.irl.observed_paths import ObservedMoments, ObservedPaths
from limiirl.irl.optim import SOLVERS, Box, evaluate_separately, increasing_costs
from limiirl.irl.problem import EStep, FitProblem, MStep, Regulariser, UnitScores
from limiirl.kernels.e_step import EStepSums, Rows, e_step, sum_weighted
from limiirl.mdp import MDP, expected_features

if TYPE_CHECKING:
    from limiirl.irl.maxent.model import MaxEnt


PathSums = FinitePathSums | InfinitePathSums | JointPathSums


class PathLikelihood:
    """Objectives f_k(theta) = log Z(theta) - sum_i w_ik log-weight_i(theta) + ridge_k / 2 |theta|^2.

    The objectives are convex if all actions are recorded. `observed` is required only for unrecorded actions.
    """

    def __init__(
        self,
        path_sums: PathSums,
        observed: ObservedPaths | None,
        demonstrated: ObservedMoments,
        ridge: FloatArray,
    ) -> None:
        self.path_sums, self.observed, self.ridge = path_sums, observed, ridge.reshape(len(ridge), -1)
        self.mean_features, self._starts, self._weights = demonstrated

    @property
    def batched(self) -> bool:
        """True if a batch of thetas costs less than separate evaluations."""
        return self.path_sums.batched

    def evaluate(self, thetas: FloatArray, which: IndexArray) -> tuple[FloatArray, FloatArray]:
        """Return values (J,) and gradients (J, d); a value is inf if log Z is infinite or overflows."""
        starts = None if self._starts is None else self._starts[:, which]
        try:
            with np.errstate(over="ignore", invalid="ignore"):
                log_Z, expected = self.path_sums.value_and_grad(thetas, starts=starts)
        except (DivergentPartition, NumericalError):
            failed = np.array([np.inf]), np.zeros_like(thetas)
            values, gradients = evaluate_separately(lambda j: self.evaluate(thetas[j], which[j]), len(which), failed)
            return values, gradients
        with np.errstate(over="ignore", invalid="ignore"):
            # Ziebart et al. (2008), equation (6): the gradient is expected minus demonstrated features.
            return self._combine(thetas, which, log_Z, expected - self.mean_features[which])

    def _combine(
        self, thetas: FloatArray, which: IndexArray, log_Z: FloatArray, gradients: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        linear = np.sum(self.mean_features[which] * thetas, axis=1)
        ridge_gradient = self.ridge[which] * thetas
        values = log_Z - linear + 0.5 * np.sum(ridge_gradient * thetas, axis=1)
        gradients = gradients + ridge_gradient
        if self._weights is not None and self.observed is not None:
            for j, k in enumerate(which):
                value, gradient = self.observed.correction(thetas[j], self._weights[:, k])
                values[j] -= value
                gradients[j] -= gradient
        return values, gradients

    def hessian(self, theta: FloatArray, k: int) -> FloatArray:
        """Return the Hessian (d, d) of log Z plus the ridge.

        The concave term for unrecorded actions is omitted, so that the result is positive semidefinite.
        """
        starts = None if self._starts is None else self._starts[:, k]
        covariance = self.path_sums.covariance(theta, starts=starts)
        return np.asarray(covariance + self.ridge[k] * np.eye(theta.size))


def feasible_start(path_sums: PathSums, box: Box) -> FloatArray:
    """Return a theta (d,) within the bounds with a finite partition function, after trying 0 and increasing costs."""
    mdp = path_sums.mdp
    if path_sums.max_length < math.inf:  # the partition function is always finite
        return box.clip(np.zeros(mdp.n_features))
    features = expected_features(mdp, np.ones((mdp.n_states, 1)), np.ones((mdp.n_edges, 1)))[0]
    for i, trial in enumerate(increasing_costs(box, features)):
        try:
            path_sums.log_partition(trial[None])
        except DivergentPartition:
            continue
        except NumericalError:
            if i == 0:
                raise
            break  # larger costs would overflow too
        return trial
    raise DivergentPartition(
        "The partition function over trajectories of unbounded length is infinite for every reward vector that was "
        "tried within the bounds. Widen the bounds, pass a feasible `start`, add a constant feature, or use a finite "
        "max_length.",
        parameter="bounds",
    )


class Moments(NamedTuple):
    """Weighted sums of features (K, d), weighted numbers of demonstrations (K,), and the weights U (G, K) or None.

    U is included if the sums are not sufficient statistics.
    """

    features: FloatArray
    counts: FloatArray
    U: FloatArray | None


class PathStatistics(Protocol):
    """Statistics of `n_demos` demonstrations that determine the likelihood, in memory or streamed."""

    n_demos: int

    def allocate(self, n_intents: int) -> Any:
        """Return a buffer for the responsibilities, the argument U of `e_step`."""

    def e_step(
        self, path_sums: PathSums, rho: FloatArray, thetas: FloatArray, U: Any, temperature: float
    ) -> tuple[EStepSums, Moments]:
        """Overwrite U with the responsibilities; return sums over units and the moments for the M-step."""


class RowStatistics:
    """Summed features of each unit, in memory.

    These statistics are sufficient if log Z is the same for all demonstrations and no reward depends on an unrecorded
    action.
    """

    def __init__(self, rows: Rows, units: Any) -> None:
        self.rows, self.units = rows, units
        self.n_demos = int(rows.counts.sum())

    def allocate(self, n_intents: int) -> FloatArray:
        """Return a buffer for the responsibilities (G, K)."""
        return np.zeros((len(self.units), n_intents))

    def e_step(
        self, path_sums: PathSums, rho: FloatArray, thetas: FloatArray, U: FloatArray, temperature: float
    ) -> tuple[EStepSums, Moments]:
        """Overwrite the responsibilities U (G, K) in one pass over the rows."""
        sums = e_step(self.rows, thetas, path_sums.log_partition(thetas), np.log(rho), U, 1.0 / temperature)
        counts = sum_weighted(self.rows.counts[:, None], U)[:, 0] if self.units.grouped else sums.sizes
        return sums, Moments(sums.moments, counts, None)

    def moments(self, U: FloatArray) -> Moments:
        """Return the weighted sums for responsibilities U (G, K)."""
        return Moments(sum_weighted(self.rows.features, U), sum_weighted(self.rows.counts[:, None], U)[:, 0], None)

    def log_prob(self, path_sums: PathSums, thetas: FloatArray) -> FloatArray:
        """Return the log-probabilities (G, K) of the units."""
        return self.rows.log_prob(thetas, path_sums.log_partition(thetas))

    def features(self) -> FloatArray:
        """Return the mean feature counts (G, d) of the units."""
        return self.rows.features / self.rows.counts[:, None]


class DemoStatistics(RowStatistics):
    """Statistics for condition="start" or rewards of unrecorded actions, where summed features are not sufficient."""

    def __init__(self, rows: Rows, units: Groups, observed: ObservedPaths) -> None:
        super().__init__(rows, units)
        self.observed = observed

    def e_step(
        self, path_sums: PathSums, rho: FloatArray, thetas: FloatArray, U: FloatArray, temperature: float
    ) -> tuple[EStepSums, Moments]:
        """Overwrite the responsibilities U (G, K)."""
        log_p = np.ascontiguousarray(self.log_prob(path_sums, thetas))
        return e_step(log_p, thetas, np.empty(0), np.log(rho), U, 1.0 / temperature), self.moments(U)

    def moments(self, U: FloatArray) -> Moments:
        """Return the weighted sums and the responsibilities U (G, K)."""
        return super().moments(U)._replace(U=U)

    def log_prob(self, path_sums: PathSums, thetas: FloatArray) -> FloatArray:
        """Return the log-probabilities (G, K) of the units."""
        log_weight = self.observed.log_weight(thetas)
        if path_sums.by_start:
            log_weight -= path_sums.log_partition_by_start(thetas)[self.observed.demos.start_states]
        else:
            log_weight -= path_sums.log_partition(thetas)
        return np.asarray(self.units.sum(log_weight))


class MaxEntProblem(FitProblem):
    """Fit problem of a MaxEnt model, with its path sums and the statistics of the demonstrations.

    If the demonstrations are streamed, `demos` and `observed` are None, and `units` has only `__len__` and `name(i)`.
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
        self.compiles_per_batch = path_sums.max_length < math.inf
        self._start: FloatArray | None = None

    @classmethod
    def from_demos(
        cls, model: MaxEnt, mdp: MDP, demos: Demonstrations, units: Groups, path_sums: PathSums
    ) -> MaxEntProblem:
        """Return the fit problem of demonstrations in memory, with the smallest sufficient statistics."""
        observed = ObservedPaths.from_demos(mdp, demos, by_start=path_sums.by_start)
        features = np.ascontiguousarray(units.sum(observed.features))
        rows = Rows(features, units.sum(observed.log_q), units.counts)
        linear = observed.fixed and not path_sums.by_start
        statistics = RowStatistics(rows, units) if linear else DemoStatistics(rows, units, observed)
        return cls(model, mdp, demos, units, path_sums, statistics, observed)

    @np.errstate(over="ignore", invalid="ignore")
    def log_prob(self, thetas: FloatArray) -> FloatArray:
        """Return the log-probabilities (G, K) of the units."""
        return validate.check_log_prob(self._rows().log_prob(self.path_sums, thetas))

    def allocate(self, n_intents: int) -> Any:
        """Return a buffer for the responsibilities, the argument U of `e_step`."""
        return self.statistics.allocate(n_intents)

    def e_step(self, rho: FloatArray, thetas: FloatArray, U: Any, temperature: float = 1.0) -> EStep:
        """Overwrite the responsibilities U (G, K); see `FitProblem.e_step`."""
        if rho.ndim == 2:
            return super().e_step(rho, thetas, U, temperature)
        return self._finish_e_step(*self.statistics.e_step(self.path_sums, rho, thetas, U, temperature))

    def moments(self, U: FloatArray) -> Moments:
        """Return the argument of `m_step` for responsibilities U (G, K)."""
        return self._rows().moments(U)

    def m_step(
        self, moments: Moments, starts: FloatArray | None, which: IndexArray, max_evaluations: int | None = None
    ) -> MStep:
        """See `FitProblem.m_step`."""
        counts = moments.counts[which]
        if moments.U is None or self.observed is None:
            observed = ObservedMoments(moments.features[which] / counts[:, None], None, None)
        else:
            observed = self.observed.moments(self.units.broadcast(moments.U[:, which]))
        ridge = self.regulariser.ridges(len(moments.counts), counts)
        return MStep.from_results(self.search(observed, ridge, starts, self.limit_evaluations(max_evaluations)))

    def search(
        self, observed: ObservedMoments, ridge: FloatArray, starts: FloatArray | None, max_evaluations: int
    ) -> list[FitResult]:
        """Minimise the objective of each column of the moments, from `starts` (J, d) or a feasible point."""
        objective = PathLikelihood(self.path_sums, self.observed, observed, ridge)
        tol = check_positive(self.model.gtol, "gtol") * np.maximum(
            1.0, np.abs(observed.mean_features) / self.feature_scale
        )
        if starts is None:
            starts = np.tile(self.feasible_start(), (len(ridge), 1))
        solver = self.rescale(SOLVERS[self.model.solver])
        return solver(objective, starts, self.regulariser.box, tol, max_evaluations)

    def curvature(self, U: FloatArray, thetas: FloatArray, free: BoolArray) -> FloatArray:
        """Return -sum_i u_ik Hessian(log p_ik) (K, d, d).

        It is the weighted covariance of F under the model, minus the covariance of F over unrecorded actions given the
        demonstrations.
        """
        del free
        path_sums, observed = self.path_sums, self.observed
        total = self._rows().rows.counts @ U
        weights = None if observed is None else self.units.broadcast(U)
        curvature = np.empty((*thetas.shape, thetas.shape[1]))
        for k, theta in enumerate(thetas):
            starts = None
            if path_sums.by_start and observed is not None and weights is not None:
                # The start distribution of an empty intent is arbitrary, because its curvature is multiplied by 0.
                starts = observed.starts(weights[:, k : k + 1] if total[k] > 0.0 else np.ones((len(weights), 1)))[:, 0]
                starts /= starts.sum()
            curvature[k] = total[k] * path_sums.covariance(theta, starts=starts)
            if observed is not None and weights is not None:
                curvature[k] -= observed.covariance(theta, weights[:, k])
        return curvature

    def scores(self, thetas: FloatArray) -> UnitScores | None:
        """See `FitProblem.scores`; None if the features of unrecorded actions depend on theta.

        If the model is conditioned on the start, E_k[F | s] is computed as a central difference of log Z(s). Otherwise,
        the condition s is omitted.
        """
        if not isinstance(self.statistics, RowStatistics) or not (self.observed is None or self.observed.fixed):
            return None
        features, units = self.statistics.rows.features, self.units
        if not self.path_sums.by_start:
            expected = self.path_sums.value_and_grad(thetas)[1][None]
            return UnitScores(features, sparse.csr_array(units.counts[:, None]), expected)
        starts, column = np.unique(self.demos.start_states, return_inverse=True)
        row = np.arange(len(self.demos)) if units.index is None else units.index
        entries, shape = (np.ones(column.size), (row, column)), (len(units), starts.size)
        return UnitScores(
            features, sparse.coo_array(entries, shape=shape).tocsr(), self._expected_by_start(thetas, starts)
        )

    def _expected_by_start(self, thetas: FloatArray, starts: IndexArray) -> FloatArray:
        """Return E_k[F | s] (m, K, d) for start states (m,)."""
        K, d = thetas.shape
        expected, steps = np.empty((starts.size, K, d)), self.difference_steps(d)
        for j in range(d):
            step = steps[j] * np.eye(d)[j]
            log_Z = self.path_sums.log_partition_by_start(np.vstack([thetas + step, thetas - step]))
            expected[:, :, j] = (log_Z[starts, :K] - log_Z[starts, K:]) / (2.0 * steps[j])
        return expected

    def objective(self, U: FloatArray) -> PathLikelihood | None:
        """See `FitProblem.objective`; None if the demonstrations are streamed."""
        if self.observed is None:
            return None
        moments = self.observed.moments(self.units.broadcast(U))
        return PathLikelihood(self.path_sums, self.observed, moments, np.zeros(U.shape[1]))

    def feasible_start(self) -> FloatArray:
        """Return a theta (d,) within the bounds with a finite partition function."""
        if self._start is None:
            self._start = feasible_start(self.path_sums, self.regulariser.box)
        return self._start

    def restrict(self, which: slice) -> MaxEntProblem:
        """Return the problem of a slice of units, with the same path sums."""
        return MaxEntProblem.from_demos(self.model, self.mdp, *self._select(which), self.path_sums)

    def features(self) -> FloatArray:
        """Return the mean feature counts (G, d); unrecorded actions are replaced by their first candidates."""
        return self._rows().features()

    def _rows(self) -> RowStatistics:
        if not isinstance(self.statistics, RowStatistics):
            raise InvalidDemos(
                "demos must be in memory for log-probabilities, moments and features; got a stream. Use a sample.",
                parameter="demos",
            )
        return self.statistics
