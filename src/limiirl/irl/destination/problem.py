"""Fit problem of `DestinationMaxEnt`, and the search for a feasible initial point."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import TYPE_CHECKING

import numba
import numpy as np
from scipy.optimize import linprog

from limiirl._parallel import one_thread
from limiirl._typing import BoolArray, FloatArray, IndexArray
from limiirl._validation import check_positive
from limiirl.demos import Demonstrations, Groups
from limiirl.errors import DivergentPartition
from limiirl.irl.base import FitResult
from limiirl.irl.destination.likelihood import (
    DestinationLikelihood,
    ObservedTrips,
    feasible_domain,
    is_feasible,
    make_feasible,
)
from limiirl.irl.destination.path_sums import GoalValues
from limiirl.irl.optim import SOLVERS, Box, CuttingPlanes, minimise_lbfgs, minimise_scaled
from limiirl.irl.problem import FitProblem, MStep, Regulariser
from limiirl.mdp import MDP

if TYPE_CHECKING:
    from limiirl.irl.destination.model import DestinationMaxEnt

# Costs that are tried first. The range is large, because the units of features vary.
_COSTS = (0.0, *(2.0**power for power in range(-4, 21)))
# Half-widths of the boxes whose Chebyshev centres are tried next, and maximum number of trials.
_WIDTHS = tuple(4.0**power for power in range(11))
_ROUNDS = 50
# Relative radius below which the remaining polytope is considered empty.
_SMALLEST = 1e-9


def feasible_start(values: GoalValues, box: Box, domain: CuttingPlanes | None = None) -> FloatArray:
    """Return a feasible theta (d,) within the bounds, after trying 0, costs and Chebyshev centres.

    Increasing costs are tried first; the sign of each parameter is opposite to that of its feature summed over all
    edges. Every infeasible point adds a cutting plane to `domain`. If no cost is feasible, Chebyshev centres of the
    remaining polytope are tried.
    """
    domain = feasible_domain(values) if domain is None else domain
    mdp = values.mdp
    start = box.clip(np.zeros(mdp.n_features))
    against = np.sign(values.feature_totals())
    for cost in _COSTS:
        trial = box.clip(start - cost * against)
        if is_feasible(values, trial):
            return trial
        domain.learn(trial)
    centre = _search_centres(values, box, start, domain)
    if centre is not None:
        return centre
    raise DivergentPartition(
        "The partition function over paths of unbounded length is infinite for all thetas within the bounds, because "
        "the number of alternative actions on some cycle outweighs the costs. Use limiirl.irl.with_choices(mdp), or "
        "wider bounds.",
        parameter="bounds",
    )


def _search_centres(values: GoalValues, box: Box, start: FloatArray, domain: CuttingPlanes) -> FloatArray | None:
    """Return a feasible theta, or None if the cutting planes exclude the whole box."""
    tried = 0
    for width in _WIDTHS:
        part = Box(np.maximum(box.lower, start - width), np.minimum(box.upper, start + width))
        while (trial := chebyshev_centre(domain, part)) is not None:
            if is_feasible(values, trial):
                return trial
            tried += 1
            if not domain.learn(trial):  # the weight of the divergent cycles does not depend on theta
                return None
            if tried == _ROUNDS:
                raise DivergentPartition(
                    f"No theta with finite partition functions was found in {tried} trials. Pass a feasible start with "
                    "higher costs on cycles, or use narrower bounds.",
                    parameter="bounds",
                )
    return None


def chebyshev_centre(domain: CuttingPlanes, box: Box) -> FloatArray | None:
    """Return the centre (d,) of the largest ball inside a bounded box and the half-spaces, or None if there is no ball.

    Coordinates are scaled so that the box is the unit cube. Therefore the result does not depend on units.

    Examples
    --------
    >>> disc = CuttingPlanes(lambda x: (float(x @ x) - 1.0, 2.0 * x))
    >>> disc.learn(np.array([-2.0, 0.0]))
    True
    >>> float(chebyshev_centre(disc, Box(np.full(2, -3.0), np.full(2, -0.75)))[0].round(3))  # in [-1.25, -0.75]
    -1.0
    """
    d, widths = box.lower.size, box.upper - box.lower
    rows = domain.rows.reshape(-1, d) * widths
    sizes = np.linalg.norm(rows, axis=1)
    room = domain.most - domain.rows.reshape(-1, d) @ box.lower
    flat = sizes == 0.0
    if np.any(room[flat] <= 0.0):
        return None
    rows, room = rows[~flat] / sizes[~flat, None], room[~flat] / sizes[~flat]
    ones = np.ones((d, 1))
    faces = np.block([[np.eye(d), ones], [-np.eye(d), ones]])
    constraints = np.vstack([np.column_stack([rows, np.ones(len(rows))]), faces])
    most = np.concatenate([room, np.ones(d), np.zeros(d)])
    ball = linprog(np.append(np.zeros(d), -1.0), A_ub=constraints, b_ub=most, bounds=[(0.0, 1.0)] * d + [(0.0, 0.5)])
    if ball.x is None or ball.x[-1] < _SMALLEST:
        return None
    return np.asarray(box.clip(box.lower + widths * ball.x[:-1]))


FEW_FEATURES = 200
"""Number of features up to which solver="auto" uses BFGS.

An evaluation with 1,747 features takes 3 times as long as with L-BFGS (python -m benchmarks.fixed_effects).
"""
# Step of the central differences in `features`, as a change in theta . F for typical feature counts F.
_MOVE = 1e-4
# Number of pairs of start and goal per feature up to which `features` uses one solution per pair instead of central
# differences: two evaluations of all pairs take about as long as the solutions of 60 pairs (Borlänge).
_PAIRS_PER_FEATURE = 60
# Maximum number of evaluations of the one-intent fit in `features`, which need not be precise.
_ROUGH_EVALUATIONS = 30


class DestinationProblem(FitProblem):
    """Fit problem of `DestinationMaxEnt`; `values` contains the symbolic factorisation of the MDP."""

    regulariser: Regulariser

    def __init__(
        self, model: DestinationMaxEnt, mdp: MDP, trips: ObservedTrips, units: Groups, values: GoalValues
    ) -> None:
        demos = trips.observed.demos
        super().__init__(model, mdp, demos, units, Regulariser.from_model(model, mdp, len(demos)))
        self._start: FloatArray | None = None
        self.values, self.trips = values, trips
        self._domain = feasible_domain(values)
        self._features: FloatArray | None = None

    @classmethod
    def from_demos(
        cls, model: DestinationMaxEnt, mdp: MDP, demos: Demonstrations, units: Groups, values: GoalValues
    ) -> DestinationProblem:
        """Return the fit problem of demonstrations that visit their last state only at the end."""
        return cls(model, mdp, ObservedTrips.from_demos(mdp, demos), units, values)

    def log_prob(self, thetas: FloatArray) -> FloatArray:
        """Return the log-probabilities (G, K) of the units."""
        return self.units.sum(self.trips.log_prob(self.values, thetas))

    def m_step(
        self, moments: FloatArray, starts: FloatArray | None, which: IndexArray, max_evaluations: int | None = None
    ) -> MStep:
        """See `FitProblem.m_step`."""
        weights = self.units.broadcast(moments[:, which])
        ridge = self.regulariser.ridges(moments.shape[1], weights.sum(axis=0))
        return MStep.from_results(self.search(weights, ridge, starts, self.limit_evaluations(max_evaluations)))

    def search(
        self, weights: FloatArray, ridge: FloatArray, starts: FloatArray | None, max_evaluations: int
    ) -> list[FitResult]:
        """Minimise the objective of each column of weights (N, J), batched on a GPU or with one thread per column."""
        if starts is None:
            starts = np.tile(self.feasible_start(), (weights.shape[1], 1))
        else:
            # A start near the boundary is moved inside the feasible set. For an infeasible start, the solver raises.
            at_edge = np.array(
                [self.values.is_finite(start) for start in self.regulariser.box.clip(starts)], dtype=bool
            )
            starts = np.array(starts, dtype=np.float64)
            starts[at_edge] = self.project(starts[at_edge])
        # Concurrent searches do not share cutting planes, so that results are reproducible. Later searches use them.
        each = range(weights.shape[1])
        domains = [self._domain.fork() for _ in each]
        objective = DestinationLikelihood(self.values, self.trips, weights, ridge, domains)
        tol = check_positive(self.model.gtol, "gtol") * np.maximum(self.feature_scale, np.abs(objective.mean_features))
        name, many = self.model.solver, starts.shape[1] > FEW_FEATURES
        name = ("lbfgs" if many else "bfgs") if name == "auto" else name

        def solve(part: DestinationLikelihood, mine: slice) -> list[FitResult]:
            args = part, starts[mine], self.regulariser.box
            if name != "lbfgs":  # the other solvers use second derivatives
                return SOLVERS[name](*args, tol[mine], max_evaluations)
            scale = self.search_scale
            return minimise_scaled(minimise_lbfgs, *args, tol[mine] / scale, max_evaluations, scale)

        def one(k: int) -> FitResult:
            alone = DestinationLikelihood(
                self.values, self.trips, weights[:, k : k + 1], ridge[k : k + 1], domains[k : k + 1]
            )
            return solve(alone, slice(k, k + 1))[0]

        threads = min(len(each), int(numba.get_num_threads()))
        if self.values.batched:
            results = solve(objective, slice(None))
        elif threads == 1:
            results = [one(k) for k in each]
        else:
            with one_thread("blas"), ThreadPoolExecutor(threads) as pool:
                results = list(pool.map(one, each))
        for fork in domains:
            self._domain.merge(fork)
        return results

    @cached_property
    def search_scale(self) -> FloatArray:
        """Scale (d,) of L-BFGS searches, the root of the approximate curvature of the objective of all demonstrations.

        It does not depend on responsibilities, so that a search is the same alone and in a batch.
        """
        everyone = np.ones((len(self.trips.features), 1))
        ridge = self.regulariser.ridge[None]
        return np.asarray(np.sqrt(DestinationLikelihood(self.values, self.trips, everyone, ridge).scale[0]))

    def feasible_start(self) -> FloatArray:
        """Return a feasible theta (d,) within the bounds."""
        if self._start is None:
            self._start = feasible_start(self.values, self.regulariser.box, self._domain)
        return self._start

    def curvature(self, U: FloatArray, thetas: FloatArray, free: BoolArray) -> FloatArray:
        """Return -sum_i u_ik Hessian(log p_ik) (K, d, d), with 2 d evaluations of the gradient per intent."""
        weights, K = self.units.broadcast(U), len(thetas)
        used = weights.sum(axis=0) > 0.0
        objective = DestinationLikelihood(self.values, self.trips, np.where(used, weights, 1.0), np.zeros(K))
        each = [objective.hessian(theta, k, free[k]) for k, theta in enumerate(thetas)]
        return np.asarray(weights.sum(axis=0)[:, None, None] * np.array(each))

    def objective(self, U: FloatArray) -> DestinationLikelihood:
        """See `FitProblem.objective`."""
        return DestinationLikelihood(self.values, self.trips, self.units.broadcast(U), np.zeros(U.shape[1]))

    def features(self) -> FloatArray:
        """Return the features (G, d) that a warm start clusters: F - E[F | start, goal] under a one-intent fit.

        These are the scores of the one-intent model. Feature counts would mainly reflect the distance from start to
        goal.
        """
        if self._features is None:
            n, d = self.trips.features.shape
            theta = self.search(np.ones((n, 1)), self.regulariser.ridge[None], None, _ROUGH_EVALUATIONS)[0].theta
            if self.trips.starts.size <= _PAIRS_PER_FEATURE * d and not self.values.batched:
                by_pair = self.values.expected_features(theta, self.trips.starts, self.trips.goals)
                expected = by_pair[self.trips.pair]
            else:
                expected = self._difference_features(theta)
            self._features = self.units.mean(self.trips.features - expected)
        return self._features

    def _difference_features(self, theta: FloatArray) -> FloatArray:
        """Return E[F | start, goal] (N, d) by central differences of the path sums."""
        size = np.sqrt(np.mean(self.trips.features**2, axis=0))
        expected = np.zeros(self.trips.features.shape)
        for j in np.flatnonzero(size > 0.0):
            step = _MOVE / size[j] * np.eye(theta.size)[j]
            # Near the boundary of the feasible set, an infeasible point is moved towards theta.
            both = np.array([make_feasible(self.values, theta + s * step, theta) for s in (1.0, -1.0)])
            width = both[0, j] - both[1, j]
            if width > 0.0:
                log_value = self.trips.log_value(self.values, both)
                expected[:, j] = (log_value[:, 0] - log_value[:, 1]) / width
            else:  # the score of the feature is 0 if neither side is feasible
                expected[:, j] = self.trips.features[:, j]
        return expected

    def project(self, thetas: FloatArray) -> FloatArray:
        """Return thetas (K, d) near the given ones, within the bounds and with finite partition functions."""
        projected = np.array(self.regulariser.box.clip(thetas))
        for k, theta in enumerate(projected):
            # `feasible_start` raises if no theta is feasible, so it is called only if needed.
            if not is_feasible(self.values, theta):
                projected[k] = make_feasible(self.values, theta, self.feasible_start())
        return projected

    def is_finite(self, thetas: FloatArray) -> bool:
        """Return True if all partition functions are finite at thetas (K, d)."""
        return all(self.values.is_finite(theta) for theta in thetas)
