"""`ObservedPaths`: features and log-probabilities of demonstrations, shared by all models with an MDP."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from limiirl._typing import FloatArray, IntArray
from limiirl.demos import Demonstrations, feature_counts
from limiirl.errors import InvalidDemos
from limiirl.mdp import MDP, edge_parts, expected_features, to_dense


class Unrecorded(NamedTuple):
    """Transitions (m,) without a recorded action: demonstration, discount, and candidate edges in CSR format."""

    demo: NDArray[np.int64]
    discount: FloatArray
    ptr: NDArray[np.int64]
    edge: NDArray[np.int64]


class ObservedMoments(NamedTuple):
    """Sufficient statistics of demonstrations under K columns of weights, each of which sums to 1.

    Attributes
    ----------
    mean_features : (K, d)
    starts : (S, K) or None
        Distribution of start states if the model is conditioned on the start, otherwise None.
    weights : (N, K) or None
        The weights if the expected features of unrecorded actions depend on theta, otherwise None.
    """

    mean_features: FloatArray
    starts: FloatArray | None
    weights: FloatArray | None


@dataclass(frozen=True, eq=False)
class ObservedPaths:
    """Unnormalised log-likelihood of demonstrations: log of q(tau) exp(theta . F(tau)), summed over unrecorded actions.

    If all actions are recorded, or if rewards do not depend on actions, it equals log q + theta . F. Otherwise,
    `features` contains the features of the first candidate for each unrecorded action, and a correction that depends on
    theta is added.

    Attributes
    ----------
    by_start : bool
        If True, p0 is omitted from log q, because the model is conditioned on the start state.
    features : (N, d)
    log_q : (N,)
    unrecorded : Unrecorded or None
        The transitions without a recorded action; None if they do not affect the rewards.
    """

    mdp: MDP
    demos: Demonstrations
    by_start: bool
    features: FloatArray
    log_q: FloatArray
    unrecorded: Unrecorded | None

    @classmethod
    def from_demos(
        cls, mdp: MDP, demos: Demonstrations, by_start: bool = False, goals: IntArray | None = None
    ) -> ObservedPaths:
        """Return the features and the log-probabilities of demonstrations.

        `goals` (N,), by default the last states, are the goals for features that depend on them.
        """
        log_q = demos.log_q(mdp)
        if by_start:
            log_q = log_q - mdp.log_p0[demos.start_states]
        steps = demos.steps(mdp)
        if not (steps.ambiguous.size and (mdp.n_action_features or mdp.n_edge_features)):
            features = demos.features(mdp) if goals is None else feature_counts(demos, mdp, goals=goals)
            return cls(mdp, demos, by_start, features, log_q, None)
        if any(feature.of == "edge" for feature in mdp.goal_features):
            rule = "must be recorded, because features of edges depend on the goal"
            raise InvalidDemos.of("actions", None, rule)
        demo, t = steps.demo_of_step[steps.ambiguous], steps.t_of_step[steps.ambiguous]
        edge = steps.edge.copy()
        edge[steps.ambiguous] = steps.cand_edge[steps.cand_ptr[:-1]]
        unrecorded = Unrecorded(demo, mdp.gamma ** t.astype(np.float64), steps.cand_ptr, steps.cand_edge)
        return cls(mdp, demos, by_start, feature_counts(demos, mdp, edge, goals), log_q, unrecorded)

    @property
    def fixed(self) -> bool:
        """True if the log-likelihood is linear in theta."""
        return self.unrecorded is None

    def moments(self, weights: FloatArray) -> ObservedMoments:
        """Return the statistics under weights (N, K), whose columns are scaled to sum to 1."""
        scaled = weights / weights.sum(axis=0)
        starts = self.starts(scaled) if self.by_start else None
        return ObservedMoments(scaled.T @ self.features, starts, None if self.fixed else scaled)

    def starts(self, weights: FloatArray) -> FloatArray:
        """Return the distribution of start states (S, K) under weights (N, K)."""
        counts = np.zeros((self.mdp.n_states, weights.shape[1]))
        np.add.at(counts, self.demos.start_states, weights)
        return counts

    @np.errstate(over="ignore", invalid="ignore")
    def log_weight(self, thetas: FloatArray) -> FloatArray:
        """Return the unnormalised log-likelihood (N, K) under thetas (K, d)."""
        log_weight = self.features @ thetas.T + self.log_q[:, None]
        if self.unrecorded is not None:
            for k, theta in enumerate(thetas):
                correction, _ = self._correct(self.unrecorded, theta)
                log_weight[:, k] += np.bincount(self.unrecorded.demo, weights=correction, minlength=len(self.demos))
        return log_weight

    def correction(self, theta: FloatArray, weights: FloatArray) -> tuple[float, FloatArray]:
        """Return the correction of sum_i weights_i log_weight_i for unrecorded actions, and its gradient (d,)."""
        if self.unrecorded is None:
            return 0.0, np.zeros(self.mdp.n_features)
        demo, discount, ptr, edge = self.unrecorded
        correction, posterior = self._correct(self.unrecorded, theta)
        scale = weights[demo] * discount
        adjoint = np.zeros(self.mdp.n_edges)
        adjoint += np.bincount(edge, weights=np.repeat(scale, np.diff(ptr)) * posterior, minlength=self.mdp.n_edges)
        adjoint -= np.bincount(edge[ptr[:-1]], weights=scale, minlength=self.mdp.n_edges)
        gradient = np.zeros(self.mdp.n_features)
        general = self.mdp.without_goal_features
        node = np.zeros((general.n_states, 1))
        gradient[: general.n_features] = expected_features(general, node, adjoint[:, None])[0]
        return float(weights[demo] @ correction), gradient

    def covariance(self, theta: FloatArray, weights: FloatArray) -> FloatArray:
        """Return the weighted sum (d, d) of the Hessians of log-weights.

        The Hessian of a log-weight is the covariance of the discounted features of the unrecorded actions, given the
        demonstration.
        """
        d, first = self.mdp.n_features, self.mdp.n_state_features
        last = self.mdp.without_goal_features.n_features
        covariance = np.zeros((d, d))
        if self.unrecorded is None:
            return covariance
        demo, discount, ptr, edge = self.unrecorded
        _, posterior = self._correct(self.unrecorded, theta)
        # The candidates of a step lead to the same state, so their state features do not vary.
        phi = np.hstack([to_dense(part)[edge] for part in edge_parts(self.mdp)])
        mean = np.add.reduceat(posterior[:, None] * phi, ptr[:-1])
        deviation = phi - np.repeat(mean, np.diff(ptr), axis=0)
        scale = np.repeat(weights[demo] * discount**2, np.diff(ptr)) * posterior
        covariance[first:last, first:last] = deviation.T @ (scale[:, None] * deviation)
        return covariance

    def _correct(self, unrecorded: Unrecorded, theta: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the correction (m,) for each unrecorded action, and the posterior probabilities of its candidates."""
        _, discount, ptr, edge = unrecorded
        general = self.mdp.without_goal_features
        reward = np.asarray(general.rewards(theta[: general.n_features])[1])[:, 0]
        sizes = np.diff(ptr)
        base = np.repeat(reward[edge[ptr[:-1]]], sizes)
        log_prob = np.log(self.mdp.prob[edge])
        power = log_prob + np.repeat(discount, sizes) * (reward[edge] - base)
        total = _segment_logsumexp(power, ptr)
        return total - _segment_logsumexp(log_prob, ptr), np.exp(power - np.repeat(total, sizes))


def _segment_logsumexp(values: FloatArray, ptr: NDArray[np.int64]) -> FloatArray:
    top = np.maximum.reduceat(values, ptr[:-1])
    return top + np.log(np.add.reduceat(np.exp(values - np.repeat(top, np.diff(ptr))), ptr[:-1]))
