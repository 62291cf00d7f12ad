"""Likelihood of demonstrations as paths to their last states, and the objective of a fit."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from limiirl._typing import BoolArray, FloatArray, IntArray
from limiirl.demos import Demonstrations, name_demo
from limiirl.errors import InvalidDemos, NumericalError
from limiirl.irl import validate
from limiirl.irl.destination.path_sums import GoalValues
from limiirl.irl.observed_paths import ObservedPaths
from limiirl.irl.optim import CuttingPlanes, difference_hessian
from limiirl.mdp import MDP, to_dense

# At a feasible theta, the log-weight of a loop is at most -_MARGIN. With this margin, path sums are finite for every
# elimination order. Nested loops amplify rounding errors by 1 / _MARGIN.
_MARGIN = 1e-6
# Fractions that are tried on the line segment from an infeasible theta to a feasible point.
_FRACTIONS = (1e-6, 1e-3, 0.01, 0.03, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9, 1.0)
# Step of the central differences in `hessian`, as a change in theta . F for typical feature counts F.
_STEP = 1e-5


def arrives_once(demos: Demonstrations) -> NDArray[np.bool_]:
    """Return the mask (N,) of demonstrations that visit their last state only at the end."""
    again = demos.states == np.repeat(demos.last_states, demos.lengths)
    return np.asarray(np.add.reduceat(again, demos.offsets[:-1]) == 1) if len(demos) else np.zeros(0, dtype=bool)


def check_arrivals(demos: Demonstrations) -> None:
    """Check that every demonstration visits its last state only at the end."""
    fine = arrives_once(demos)
    if not np.all(fine):
        i = int(np.argmin(fine))
        tau = demos.states[demos.offsets[i] : demos.offsets[i + 1]]
        step = int(np.argmax(tau == tau[-1]))
        raise InvalidDemos(
            f"{name_demo(demos.ids, i)} must end at its first visit to its destination {tau[-1]}, at step {step}; it "
            f"continues until step {tau.size - 1}. {np.count_nonzero(~fine)} of {len(demos)} demonstrations have this "
            "problem. Drop them with demos = demos[model.admits(demos)], or truncate them.",
            parameter="demos",
            value=int(tau[-1]),
            index=(i, step),
        )


@dataclass(frozen=True, eq=False)
class ObservedTrips:
    """Demonstrations as trips from their first to their last state.

    Attributes
    ----------
    observed : ObservedPaths
    features : (N, d)
        Feature counts, excluding the first state.
    starts, goals : (m,)
        Distinct pairs of first and last state.
    pair : (N,)
        Index of each demonstration's pair.
    """

    observed: ObservedPaths
    features: FloatArray
    starts: IntArray
    goals: IntArray
    pair: IntArray

    @classmethod
    def from_demos(cls, mdp: MDP, demos: Demonstrations) -> ObservedTrips:
        """Return the trips of demonstrations that visit their last state only at the end."""
        check_arrivals(demos)
        observed = ObservedPaths.from_demos(mdp, demos, by_start=True)
        pairs, pair = np.unique(demos.start_states * mdp.n_states + demos.last_states, return_inverse=True)
        starts, goals = np.divmod(pairs, mdp.n_states)
        return cls(observed, observed.features - first_features(mdp, demos), starts, goals, pair)

    def log_weight(self, thetas: FloatArray) -> FloatArray:
        """Return the log-weights (N, K): log q plus the rewards after the first state."""
        return log_weight_after_start(self.observed, thetas)

    def log_value(self, values: GoalValues, thetas: FloatArray) -> FloatArray:
        """Return the log total weight (N, K) of all paths from the first to the last state of a demonstration."""
        return np.asarray(values.log_values(thetas, self.starts, self.goals)[self.pair])

    @np.errstate(over="ignore", invalid="ignore")
    def log_prob(self, values: GoalValues, thetas: FloatArray) -> FloatArray:
        """Return the log-probabilities (N, K)."""
        return validate.check_log_prob(self.log_weight(thetas) - self.log_value(values, thetas))


def first_features(mdp: MDP, demos: Demonstrations) -> FloatArray:
    """Return the features (N, d) of the first state of each demonstration."""
    features = np.zeros((len(demos), mdp.n_features))
    if mdp.state_features is not None:
        rows = mdp.state_features[demos.start_states]
        features[:, : mdp.n_state_features] = to_dense(rows)
    return features


def log_weight_after_start(observed: ObservedPaths, thetas: FloatArray) -> FloatArray:
    """Return the log-weights (N, K) of demonstrations, excluding the reward of the first state."""
    mdp = observed.mdp.without_goal_features
    node, _ = mdp.rewards(thetas[:, : mdp.n_features])
    return np.asarray(observed.log_weight(thetas) - node[observed.demos.start_states])


class DestinationLikelihood:
    """Objectives f_k(theta) = sum_i w_ik (log beta_i(theta) - log-weight_i(theta)) + sum_j ridge_kj theta_j^2 / 2.

    beta_i is the total weight of all paths from the first to the last state of demonstration i. f_k is convex if all
    actions are recorded.

    Parameters
    ----------
    weights : (N, K)
        Weights w_ik before normalisation; each column is scaled to sum to 1.
    ridge : (K,) or (K, d)
    domains : list of CuttingPlanes, optional
        Outer approximations of the feasible set, one per search.
    """

    def __init__(
        self,
        values: GoalValues,
        trips: ObservedTrips,
        weights: FloatArray,
        ridge: FloatArray,
        domains: list[CuttingPlanes] | None = None,
    ) -> None:
        self.values, self.trips, self.ridge = values, trips, ridge.reshape(len(ridge), -1)
        self.batched = values.batched
        self.domains = [feasible_domain(values)] * weights.shape[1] if domains is None else domains
        self._weights = weights / weights.sum(axis=0)
        self.mean_features = self._weights.T @ trips.features
        # Approximate second derivatives: a bound on the sums of squares of features along a path, that is, on the
        # variances of F if steps are independent.
        squares = (self._weights.T @ np.abs(trips.features)) * values.mdp.feature_sizes
        self.scale = np.maximum(squares, 1e-6 * np.max(squares, axis=1, initial=1e-6, keepdims=True)) + self.ridge
        self._by_pair = np.zeros((trips.starts.size, weights.shape[1]))
        np.add.at(self._by_pair, trips.pair, self._weights)

    def evaluate(self, thetas: FloatArray, which: NDArray[np.intp]) -> tuple[FloatArray, FloatArray]:
        """Return values (J,) and gradients (J, d); a value is inf if a partition function diverges or overflows."""
        trips, weights = self.trips, self._by_pair[:, which]
        values, gradients = self.values.sum_pairs(thetas, trips.starts, trips.goals, weights, _MARGIN)
        for j, k in enumerate(which):
            if math.isfinite(values[j]):
                values[j], gradients[j] = self._complete(thetas[j], int(k), float(values[j]), gradients[j])
        return values, gradients

    def _complete(self, theta: FloatArray, k: int, value: float, gradient: FloatArray) -> tuple[float, FloatArray]:
        """Subtract the log-weights of the demonstrations and add the ridge penalty."""
        value -= float(self.mean_features[k] @ theta)
        gradient = gradient - self.mean_features[k]
        if not self.trips.observed.fixed:
            more, more_gradient = self.trips.observed.correction(theta, self._weights[:, k])
            value, gradient = value - more, gradient - more_gradient
        own = self.ridge[k] * theta
        return value + 0.5 * float(own @ theta), gradient + own

    def _one(self, theta: FloatArray, k: int) -> tuple[float, FloatArray]:
        values, gradients = self.evaluate(theta[None], np.array([k]))
        return float(values[0]), gradients[0]

    def hessian(self, theta: FloatArray, k: int, free: BoolArray | None = None) -> FloatArray:
        """Return the Hessian (d, d), by central differences of the exact gradient; see `difference_hessian`."""
        steps = _STEP / np.maximum(1e-12, np.sqrt(np.mean(self.trips.features**2, axis=0)))
        return difference_hessian(lambda point: self._one(point, k), theta, steps, free)


def feasible_domain(values: GoalValues) -> CuttingPlanes:
    """Return a cutting-plane approximation of the feasible set, initially without cuts."""
    return CuttingPlanes(partial(_cut, values))


def _cut(values: GoalValues, theta: FloatArray) -> tuple[float, FloatArray] | None:
    try:
        loop = values.loop_features(theta, _MARGIN)
    except NumericalError:
        return None
    return None if loop is None else (loop[0] + _MARGIN, loop[1])


def is_feasible(values: GoalValues, theta: FloatArray) -> bool:
    """Return True if all partition functions are finite at theta (d,) with the margin that fits require."""
    return values.is_finite(theta, _MARGIN)


def make_feasible(values: GoalValues, theta: FloatArray, inside: FloatArray) -> FloatArray:
    """Return theta (d,) if it is feasible, otherwise a nearby feasible point on the line segment to `inside`."""
    if is_feasible(values, theta):
        return theta
    for fraction in _FRACTIONS:
        trial = theta + fraction * (inside - theta)
        if is_feasible(values, trial):
            return np.asarray(trial)
    return inside
