"""Demonstrations under `DestinationMaxEnt`, gathered once for many E- and M-steps."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import numba
import numpy as np
from numpy.typing import NDArray

from limiirl.demos import Demonstrations
from limiirl.demos.units import Units
from limiirl.irl import checks
from limiirl.irl.base import FitResult
from limiirl.irl.destination_likelihood import Trips, WayLikelihood, feasible, finite_ways, surely_finite
from limiirl.irl.destination_start import feasible_start
from limiirl.irl.destination_values import GoalValues
from limiirl.irl.optimise import SOLVERS
from limiirl.irl.prepared import Int, Maximised
from limiirl.irl.prepared_features import PreparedFeatures
from limiirl.irl.threads import one_thread
from limiirl.mdp import MDP

if TYPE_CHECKING:
    from limiirl.irl.destination import DestinationMaxEnt

Float = NDArray[np.float64]
# How far theta . F moves in the central differences of `features`.
_MOVE = 1e-4
# A warm start does not need the last digits of the reward that all share.
_ROUGH_EVALUATIONS = 30


class PreparedDestination(PreparedFeatures):
    """Units of demonstrations under a destination-conditioned model.

    Parameters
    ----------
    model : DestinationMaxEnt
    values : GoalValues
        The MDP with its order of elimination.
    """

    def __init__(self, model: DestinationMaxEnt, mdp: MDP, demos: Demonstrations, units: Units, values: GoalValues):
        super().__init__(model, mdp, demos, units, len(demos))
        self.values = values
        self.trips = Trips(mdp, demos)
        self._domain = finite_ways(values)
        self._features: Float | None = None

    def log_prob(self, thetas: Float) -> Float:
        """Return (G, K)."""
        return self.units.total(self.trips.log_prob(self.values, thetas))

    def maximise(self, moments: Float, starts: Float | None, which: Int, max_evaluations: int) -> Maximised:
        """Return parameters (J, d) of the intents `which`; never worse than the starts."""
        weights = self.units.spread(moments[:, which])
        ridge = self.ridges(moments.shape[1], weights.sum(axis=0))
        results = self.search(weights, ridge, starts, max_evaluations)
        return Maximised(np.array([result.theta for result in results]), max(r.n_evaluations for r in results))

    def search(self, weights: Float, ridge: Float, starts: Float | None, max_evaluations: int) -> list[FitResult]:
        """Minimise the objective of every column of weights (N, J), together on a GPU, or else each in a thread."""
        if starts is None:
            starts = np.tile(self.inside(), (weights.shape[1], 1))
        else:
            # A start at the very edge moves inside a little; one beyond it is an error, which the solver tells.
            at_edge = np.array([self.values.finite(start) for start in self._box.clip(starts)], dtype=bool)
            starts = np.array(starts, dtype=np.float64)
            starts[at_edge] = self.project(starts[at_edge])
        # What one search learns of the domain helps all later ones, but not its neighbours, which may be as far or not.
        each = range(weights.shape[1])
        domains = [self._domain.fork() for _ in each]
        objective = WayLikelihood(self.values, self.trips, weights, ridge, domains)
        tol = checks.positive(self.model.tol, "tol") * np.maximum(1.0, np.abs(objective.mean_features))
        solver = SOLVERS[self.model.solver]

        def one(k: int) -> FitResult:
            alone = WayLikelihood(self.values, self.trips, weights[:, k : k + 1], ridge[k : k + 1], domains[k : k + 1])
            return solver(alone, starts[k : k + 1], self._box, tol[k : k + 1], max_evaluations)[0]

        threads = min(len(each), int(numba.get_num_threads()))
        if self.values.together:
            found = solver(objective, starts, self._box, tol, max_evaluations)
        elif threads == 1:
            found = [one(k) for k in each]
        else:
            with one_thread("blas"), ThreadPoolExecutor(threads) as pool:
                found = list(pool.map(one, each))
        for fork in domains:
            self._domain.merge(fork)
        return found

    def inside(self) -> Float:
        """Return a point (d,) within the bounds where all sums over ways are finite."""
        if self._start is None:
            self._start = feasible_start(self.values, self._box, self._domain)
        return self._start

    def features(self) -> Float:
        """Return (G, d): how far the features of a unit are from those that one reward for all expects of its trips.

        Feature counts alone say how far apart the two ends of a trip are. What is left once E[F | start, goal] is taken
        off is the score of the one-intent model, and that is where intents differ.
        """
        if self._features is None:
            n, d = self.trips.features.shape
            result = self.search(np.ones((n, 1)), np.full(1, self._ridge), None, _ROUGH_EVALUATIONS)[0]
            size = np.sqrt(np.mean(self.trips.features**2, axis=0))
            expected = np.zeros((n, d))
            for j in np.flatnonzero(size > 0.0):
                step = _MOVE / size[j] * np.eye(d)[j]
                # Near the edge of the domain, only one side may be feasible: the other is then moved back.
                both = np.array([feasible(self.values, result.theta + s * step, result.theta) for s in (1.0, -1.0)])
                apart = both[0, j] - both[1, j]
                if apart > 0.0:
                    found = self.trips.log_value(self.values, both)
                    expected[:, j] = (found[:, 0] - found[:, 1]) / apart
                else:  # neither side is: this feature tells nothing
                    expected[:, j] = self.trips.features[:, j]
            self._features = self.units.mean(self.trips.features - expected)
        return self._features

    def project(self, thetas: Float) -> Float:
        """Return parameters (K, d) within the bounds at which all sums over ways are finite, near the given ones."""
        found = np.array(self._box.clip(thetas))
        for k, theta in enumerate(found):
            # A point inside is only looked for where it is needed: there may be none to find.
            if not surely_finite(self.values, theta):
                found[k] = feasible(self.values, theta, self.inside())
        return found

    def finite(self, thetas: Float) -> bool:
        """Return whether all sums over ways are finite at parameters (K, d)."""
        return all(self.values.finite(theta) for theta in thetas)
