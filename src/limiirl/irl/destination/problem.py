"""Demonstrations under `DestinationMaxEnt`, gathered once for many E- and M-steps.

A first reward at which all sums over ways are finite.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import numba
import numpy as np
from scipy.optimize import linprog

from limiirl._parallel import one_thread
from limiirl._typing import FloatArray, IndexArray
from limiirl._validation import check_positive
from limiirl.demos import Demonstrations, Groups
from limiirl.errors import DivergentPartition
from limiirl.irl.base import FitResult
from limiirl.irl.destination.likelihood import (
    DestinationLikelihood,
    ObservedTrips,
    feasible,
    feasible_domain,
    surely_finite,
)
from limiirl.irl.destination.path_sums import GoalValues, flow_features
from limiirl.irl.optim import SOLVERS
from limiirl.irl.optim.projected_bfgs import CuttingPlanes
from limiirl.irl.optim.projected_newton import Box
from limiirl.irl.problem import M_STEP_EVALUATIONS, FitProblem, MStep, Regulariser
from limiirl.mdp import MDP

if TYPE_CHECKING:
    from limiirl.irl.destination.model import DestinationMaxEnt

# What is tried first: features may be in any unit, so that a cost of 1 a step may need parameters of 1000.
_COSTS = (0.0, *(2.0**power for power in range(-4, 21)))
# Then points in the middle of what is left of boxes of these half-widths, this many in all.
_WIDTHS = tuple(4.0**power for power in range(11))
_ROUNDS = 50
# A ball of this share of the box is too small to look into.
_SMALLEST = 1e-9


def feasible_start(values: GoalValues, box: Box, domain: CuttingPlanes | None = None) -> FloatArray:
    """Return a point (d,) within the bounds where all sums over ways are finite: 0, or growing costs, or else any.

    A cost is a parameter of the sign that makes its feature, summed over all edges, a loss. Where features have both
    signs, that may miss the domain; every point outside cuts off a half-space, and the next is the middle of the rest.
    The domain learns from the points that are not feasible.

    Examples
    --------
    One may stay in state 0 at the weight exp(-theta); the feature of state 1 is larger, and says nothing of that.

    >>> from limiirl.mdp import MDP
    >>> mdp = MDP.from_edges([0, 0], [0, 1], state_features=[[-1.0], [5.0]])
    >>> feasible_start(GoalValues(mdp), Box(np.array([-20.0]), np.array([20.0]))).round(3)
    array([0.5])
    """
    domain = feasible_domain(values) if domain is None else domain
    mdp = values.mdp
    start = box.clip(np.zeros(mdp.n_features))
    against = np.sign(flow_features(mdp, np.ones(mdp.n_edges)))
    for cost in _COSTS:
        trial = box.clip(start - cost * against)
        if surely_finite(values, trial):
            return trial
        domain.learn(trial)
    found = _between_cuts(values, box, start, domain)
    if found is not None:
        return found
    raise DivergentPartition(
        "The sum over ways of any length stays infinite whatever features cost within the bounds: some cycle collects "
        "too little for the choices on it. Add a cost of choices by limiirl.irl.with_choices(mdp), or widen the bounds."
    )


def _between_cuts(values: GoalValues, box: Box, start: FloatArray, domain: CuttingPlanes) -> FloatArray | None:
    """Return a point of the domain, or None if half-spaces that hold it have nothing in common with the bounds."""
    tried = 0
    for width in _WIDTHS:
        part = Box(np.maximum(box.lower, start - width), np.minimum(box.upper, start + width))
        while (trial := middle(domain, part)) is not None:
            if surely_finite(values, trial):
                return trial
            tried += 1
            if not domain.learn(trial):  # no parameter changes the loops that weigh too much
                return None
            if tried == _ROUNDS:
                raise DivergentPartition(
                    f"No parameters with a finite sum over ways of any length were found in {tried} rounds. Give a "
                    "start at which every cycle costs more than the ways around it make up for, or narrower bounds."
                )
    return None


def middle(domain: CuttingPlanes, box: Box) -> FloatArray | None:
    """Return the centre (d,) of the largest ball in a bounded box and all half-spaces, or None if there is none.

    The ball is one where the box is the unit cube, so that units of features do not matter.

    Examples
    --------
    >>> disc = CuttingPlanes(lambda x: (float(x @ x) - 1.0, 2.0 * x))
    >>> disc.learn(np.array([-2.0, 0.0]))
    True
    >>> float(middle(disc, Box(np.full(2, -3.0), np.full(2, -0.75)))[0].round(3))  # left is -1.25 <= x <= -0.75
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
    given = np.vstack([np.column_stack([rows, np.ones(len(rows))]), faces])
    most = np.concatenate([room, np.ones(d), np.zeros(d)])
    found = linprog(np.append(np.zeros(d), -1.0), A_ub=given, b_ub=most, bounds=[(0.0, 1.0)] * d + [(0.0, 0.5)])
    if found.x is None or found.x[-1] < _SMALLEST:
        return None
    return np.asarray(box.clip(box.lower + widths * found.x[:-1]))


# How far theta . F moves in the central differences of `features`.
_MOVE = 1e-4
# A warm start does not need the last digits of the reward that all share.
_ROUGH_EVALUATIONS = 30


class DestinationProblem(FitProblem):
    """Units of demonstrations under a destination-conditioned model.

    Parameters
    ----------
    model : DestinationMaxEnt
    values : GoalValues
        The MDP with its order of elimination.
    """

    regulariser: Regulariser

    def __init__(self, model: DestinationMaxEnt, mdp: MDP, demos: Demonstrations, units: Groups, values: GoalValues):
        super().__init__(model, mdp, demos, units, Regulariser.from_model(model, mdp, len(demos)))
        self._start: FloatArray | None = None
        self.values = values
        self.trips = ObservedTrips(mdp, demos)
        self._domain = feasible_domain(values)
        self._features: FloatArray | None = None

    def log_prob(self, thetas: FloatArray) -> FloatArray:
        """Return (G, K)."""
        return self.units.sum(self.trips.log_prob(self.values, thetas))

    def m_step(
        self, moments: FloatArray, starts: FloatArray | None, which: IndexArray, max_evaluations: int | None = None
    ) -> MStep:
        """Return parameters (J, d) of the intents `which`; never worse than the starts."""
        weights = self.units.broadcast(moments[:, which])
        ridge = self.regulariser.ridges(moments.shape[1], weights.sum(axis=0))
        results = self.search(weights, ridge, starts, max_evaluations or M_STEP_EVALUATIONS)
        return MStep(np.array([result.theta for result in results]), max(r.n_evaluations for r in results))

    def search(
        self, weights: FloatArray, ridge: FloatArray, starts: FloatArray | None, max_evaluations: int
    ) -> list[FitResult]:
        """Minimise the objective of every column of weights (N, J), together on a GPU, or else each in a thread."""
        if starts is None:
            starts = np.tile(self.inside(), (weights.shape[1], 1))
        else:
            # A start at the very edge moves inside a little; one beyond it is an error, which the solver tells.
            at_edge = np.array([self.values.finite(start) for start in self.regulariser.box.clip(starts)], dtype=bool)
            starts = np.array(starts, dtype=np.float64)
            starts[at_edge] = self.project(starts[at_edge])
        # What one search learns of the domain helps all later ones, but not its neighbours, which may be as far or not.
        each = range(weights.shape[1])
        domains = [self._domain.fork() for _ in each]
        objective = DestinationLikelihood(self.values, self.trips, weights, ridge, domains)
        tol = check_positive(self.model.gtol, "gtol") * np.maximum(1.0, np.abs(objective.mean_features))
        solver = SOLVERS[self.model.solver]

        def one(k: int) -> FitResult:
            alone = DestinationLikelihood(
                self.values, self.trips, weights[:, k : k + 1], ridge[k : k + 1], domains[k : k + 1]
            )
            return solver(alone, starts[k : k + 1], self.regulariser.box, tol[k : k + 1], max_evaluations)[0]

        threads = min(len(each), int(numba.get_num_threads()))
        if self.values.together:
            found = solver(objective, starts, self.regulariser.box, tol, max_evaluations)
        elif threads == 1:
            found = [one(k) for k in each]
        else:
            with one_thread("blas"), ThreadPoolExecutor(threads) as pool:
                found = list(pool.map(one, each))
        for fork in domains:
            self._domain.merge(fork)
        return found

    def inside(self) -> FloatArray:
        """Return a point (d,) within the bounds where all sums over ways are finite."""
        if self._start is None:
            self._start = feasible_start(self.values, self.regulariser.box, self._domain)
        return self._start

    def features(self) -> FloatArray:
        """Return (G, d): how far the features of a unit are from those that one reward for all expects of its trips.

        Feature counts alone say how far apart the two ends of a trip are. What is left once E[F | start, goal] is taken
        off is the score of the one-intent model, and that is where intents differ.
        """
        if self._features is None:
            n, d = self.trips.features.shape
            result = self.search(np.ones((n, 1)), np.full(1, self.regulariser.ridge), None, _ROUGH_EVALUATIONS)[0]
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

    def project(self, thetas: FloatArray) -> FloatArray:
        """Return parameters (K, d) within the bounds at which all sums over ways are finite, near the given ones."""
        found = np.array(self.regulariser.box.clip(thetas))
        for k, theta in enumerate(found):
            # A point inside is only looked for where it is needed: there may be none to find.
            if not surely_finite(self.values, theta):
                found[k] = feasible(self.values, theta, self.inside())
        return found

    def finite(self, thetas: FloatArray) -> bool:
        """Return whether all sums over ways are finite at parameters (K, d)."""
        return all(self.values.finite(theta) for theta in thetas)
