"""Demonstrations as ways to their last state: their log-probabilities, and the objective of a fit to them."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
from numpy.typing import NDArray

from limiirl._typing import FloatArray
from limiirl.demos import Demonstrations, name_demo
from limiirl.errors import DivergentPartition, InvalidDemos, NumericalError
from limiirl.irl.destination.path_sums import GoalValues, flow_features
from limiirl.irl.maxent.likelihood import ObservedPaths
from limiirl.irl.optim import CuttingPlanes
from limiirl.mdp import MDP

# Fits keep loops so far, in log-weight, from an infinite sum: a reward found there is finite for all who add it up in
# another order, and loops within loops pass rounding on, divided by this.
_MARGIN = 1e-6
# Rewards that make some sum infinite are moved towards a feasible point by this share of the way at a time.
_SHARES = (1e-6, 1e-3, 0.01, 0.03, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9, 1.0)
# Steps of differences are cut to one of these shares where they come near the edge: where one side is infinite, or
# the two differ by more than this share of their sum, and by more than rounding does (times the step).
_SHORTER = tuple(0.125**power for power in range(7))
_UNEVEN, _NOISE = 0.02, 1e-12


def arrives_once(demos: Demonstrations) -> NDArray[np.bool_]:
    """Return (N,): whether a demonstration is in its last state at its end alone."""
    again = demos.states == np.repeat(demos.last_states, demos.lengths)
    return np.asarray(np.add.reduceat(again, demos.offsets[:-1]) == 1) if len(demos) else np.zeros(0, dtype=bool)


def check_arrivals(demos: Demonstrations) -> None:
    """Raise unless every demonstration ends at the first arrival in its last state."""
    fine = arrives_once(demos)
    if not np.all(fine):
        i = int(np.argmin(fine))
        tau = demos.states[demos.offsets[i] : demos.offsets[i + 1]]
        step = int(np.argmax(tau == tau[-1]))
        raise InvalidDemos(
            f"{name_demo(demos.ids, i)} is in its last state, {tau[-1]}, at step {step} already and goes on to step "
            f"{tau.size - 1}; {np.count_nonzero(~fine)} of {len(demos)} do so. DestinationMaxEnt ends trips at their "
            "first arrival: leave such ones out with demos[model.admits(demos)], or cut them there.",
            parameter="demos",
            value=int(tau[-1]),
            index=(i, step),
        )


class ObservedTrips:
    """Demonstrations in an MDP, from their first state to their last.

    Attributes
    ----------
    observed : ObservedPaths
    features : (N, d)
        Feature counts without those of the first state, which all ways from there share.
    starts, goals : (m,)
        The distinct pairs of a first and a last state.
    pair : (N,)
        The pair of each demonstration.

    Examples
    --------
    >>> mdp = MDP.from_edges([0, 0, 1], [1, 2, 2], p0=[1, 0, 0])
    >>> trips = ObservedTrips(mdp, Demonstrations.from_lists([[0, 1, 2], [0, 2]]))
    >>> trips.features.tolist(), trips.goals.tolist()
    ([[0.0, 1.0, 1.0], [0.0, 0.0, 1.0]], [2])
    """

    def __init__(self, mdp: MDP, demos: Demonstrations) -> None:
        check_arrivals(demos)
        self.mdp, self.demos = mdp, demos
        self.observed = ObservedPaths(mdp, demos, by_start=True)
        self.features = self.observed.features - first_features(mdp, demos)
        key = demos.start_states * mdp.n_states + demos.last_states
        pairs, self.pair = np.unique(key, return_inverse=True)
        self.starts, self.goals = np.divmod(pairs, mdp.n_states)

    def log_weight(self, thetas: FloatArray) -> FloatArray:
        """Return (N, K): log q plus the rewards after the first state."""
        return log_weight_onward(self.observed, thetas)

    def log_value(self, values: GoalValues, thetas: FloatArray) -> FloatArray:
        """Return (N, K): the log-weight of all ways between the two ends of each demonstration."""
        return np.asarray(values.log_values(thetas, self.starts, self.goals)[self.pair])

    def log_prob(self, values: GoalValues, thetas: FloatArray) -> FloatArray:
        """Return (N, K)."""
        return self.log_weight(thetas) - self.log_value(values, thetas)


def first_features(mdp: MDP, demos: Demonstrations) -> FloatArray:
    """Return (N, d): the features of the first state of each demonstration."""
    found = np.zeros((len(demos), mdp.n_features))
    if mdp.state_features is not None:
        rows = mdp.state_features[demos.start_states]
        found[:, : mdp.n_state_features] = rows if isinstance(rows, np.ndarray) else rows.toarray()
    return found


def log_weight_onward(observed: ObservedPaths, thetas: FloatArray) -> FloatArray:
    """Return (N, K): the log-weight of demonstrations without the reward of their first state."""
    node, _ = observed.mdp.rewards(thetas)
    return np.asarray(observed.log_weight(thetas) - node[observed.demos.start_states])


class DestinationLikelihood:
    """The functions f_k(theta) = sum_i w_ik (log beta_i(theta) - log-weight_i(theta)) + ridge_k / 2 |theta|^2.

    The weights of each k sum to 1; i runs over demonstrations, and beta_i is the weight of all ways between the ends of
    demonstration i. Convex in theta, but for unrecorded actions.

    Parameters
    ----------
    values : GoalValues
    trips : ObservedTrips
    weights : (N, K)
        Scaled here to sum to 1.
    ridge : (K,)
    domains : list of CuttingPlanes, optional
        What each of K searches knows of where sums over ways are finite: the same for all weights.
    """

    def __init__(
        self,
        values: GoalValues,
        trips: ObservedTrips,
        weights: FloatArray,
        ridge: FloatArray,
        domains: list[CuttingPlanes] | None = None,
    ) -> None:
        self.values, self.trips, self.ridge = values, trips, ridge
        self.heavy = values.together
        self.domains = [feasible_domain(values)] * weights.shape[1] if domains is None else domains
        self._weights = weights / weights.sum(axis=0)
        self.mean_features = self._weights.T @ trips.features
        # The variance that a sum would have whose terms, one a step, are independent.
        steps = self._weights.T @ np.maximum(1.0, trips.demos.lengths - 1.0)
        squares = self._weights.T @ trips.features**2 / steps[:, None]
        self.scale = np.maximum(squares, 1e-6 * np.max(squares, axis=1, initial=1e-6, keepdims=True)) + ridge[:, None]
        self._by_pair = np.zeros((trips.starts.size, weights.shape[1]))
        np.add.at(self._by_pair, trips.pair, self._weights)

    def evaluate(self, thetas: FloatArray, which: NDArray[np.intp]) -> tuple[FloatArray, FloatArray]:
        """Return values (J,) and gradients (J, d); infinite where a sum over ways is, or is beyond float64."""
        trips, weights = self.trips, self._by_pair[:, which]
        values, gradients = self.values.weigh(thetas, trips.starts, trips.goals, weights, _MARGIN)
        for j, k in enumerate(which):
            if math.isfinite(values[j]):
                values[j], gradients[j] = self._complete(thetas[j], int(k), float(values[j]), gradients[j])
        return values, gradients

    def _complete(self, theta: FloatArray, k: int, value: float, gradient: FloatArray) -> tuple[float, FloatArray]:
        """Take off what the demonstrations themselves weigh, and add the ridge."""
        value -= float(self.mean_features[k] @ theta)
        gradient = gradient - self.mean_features[k]
        if not self.trips.observed.fixed:
            more, slope = self.trips.observed.correction(theta, self._weights[:, k])
            value, gradient = value - more, gradient - slope
        return value + 0.5 * self.ridge[k] * float(theta @ theta), gradient + self.ridge[k] * theta

    def _one(self, theta: FloatArray, k: int) -> tuple[float, FloatArray]:
        values, gradients = self.evaluate(theta[None], np.array([k]))
        return float(values[0]), gradients[0]

    def hessian(self, theta: FloatArray, k: int) -> FloatArray:
        """Return the Hessian (d, d) by central differences of the exact gradient."""
        # Truncation is about the square of the step, rounding 1e-15 divided by it.
        step = 1e-5 / np.maximum(1e-12, np.sqrt(np.mean(self.trips.features**2, axis=0)))
        here = self._one(theta, k)
        found = np.array([self._slopes(theta, k, here, j, float(h)) for j, h in enumerate(step)])
        return np.asarray(0.5 * (found + found.T))

    def _slopes(self, theta: FloatArray, k: int, here: tuple[float, FloatArray], j: int, h: float) -> FloatArray:
        """Return the derivatives (d,) of the gradient by theta[j], by differences that stay well in the domain."""
        value, gradient = here
        found: FloatArray | None = None
        for share in _SHORTER:
            e = share * h * np.eye(theta.size)[j]
            (above, up), (below, down) = self._one(theta + e, k), self._one(theta - e, k)
            if math.isfinite(above) and math.isfinite(below):
                found = np.asarray((up - down) / (2.0 * share * h))
                # Gradients grow without limit towards the edge: there the two sides differ in what they say.
                if abs(up[j] + down[j] - 2.0 * gradient[j]) <= max(_UNEVEN * abs(up[j] - down[j]), _NOISE * share / h):
                    return found
        if found is None and math.isfinite(value) and math.isfinite(below):
            found = np.asarray((gradient - down) / (share * h))
        elif found is None and math.isfinite(value) and math.isfinite(above):
            found = np.asarray((up - gradient) / (share * h))
        if found is None:
            raise DivergentPartition(
                "The curvature has no value here: a sum over ways is infinite. Use lower rewards, so that every cycle "
                "costs more than the ways around it make up for.",
                parameter="theta",
                value=theta,
            )
        return found


def feasible_domain(values: GoalValues) -> CuttingPlanes:
    """Return the set of parameters (d,) at which all sums over ways are surely finite; nothing is known of it yet."""
    return CuttingPlanes(partial(_edge, values))


def _edge(values: GoalValues, theta: FloatArray) -> tuple[float, FloatArray] | None:
    try:
        found = values.edge(theta, _MARGIN)
    except NumericalError:
        return None
    return None if found is None else (found[0] + _MARGIN, flow_features(values.mdp, found[1]))


def surely_finite(values: GoalValues, theta: FloatArray) -> bool:
    """Return whether all sums over ways are finite at theta (d,), as far from the edge as fits keep."""
    return values.finite(theta, _MARGIN)


def feasible(values: GoalValues, theta: FloatArray, inside: FloatArray) -> FloatArray:
    """Return theta (d,), or a point on the way from it to `inside` at which all sums over ways are surely finite.

    The parameters with finite sums are a convex set, so that the way leads into it and stays there.
    """
    if surely_finite(values, theta):
        return theta
    for share in _SHARES:
        trial = theta + share * (inside - theta)
        if surely_finite(values, trial):
            return np.asarray(trial)
    return inside
