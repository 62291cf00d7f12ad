"""What demonstrations say about a reward: the unnormalised log-weight of each, and its derivative."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from limiirl.demos import Demonstrations
from limiirl.demos.statistics import feature_counts
from limiirl.irl.engine.features import expected_features
from limiirl.mdp import MDP

Float = NDArray[np.float64]


class _Unrecorded(NamedTuple):
    """Transitions whose action is unknown: demo, discount (m,), and candidate edges as CSR, the first the baseline."""

    demo: NDArray[np.int64]
    discount: Float
    ptr: NDArray[np.int64]
    edge: NDArray[np.int64]


class Demonstrated(NamedTuple):
    """What K weightings of demonstrations, each summing to 1, say to a fit.

    Attributes
    ----------
    mean_features : (K, d)
    starts : (S, K) or None
        Distribution of start states, for a model that is conditioned on them.
    weights : (N, K) or None
        The weights themselves, where features of unrecorded actions depend on theta.
    """

    mean_features: Float
    starts: Float | None
    weights: Float | None


class Evidence:
    """Demonstrations in an MDP as a function of the reward: the log of q(tau) exp(theta . F(tau)).

    Where actions were not recorded, it is the log of the sum over them.
    Where every action is known, or where no reward depends on it, this is log q + theta . F with F fixed. Otherwise
    `features` takes the first candidate of every unrecorded action, and the rest is a correction that depends on theta.

    Parameters
    ----------
    by_start : bool
        Leave out the start probability p0, for a model that is conditioned on the start state.

    Attributes
    ----------
    features : (N, d)
    log_q : (N,)
    """

    def __init__(self, mdp: MDP, demos: Demonstrations, by_start: bool = False) -> None:
        self.mdp, self.demos, self.by_start = mdp, demos, by_start
        self.log_q = demos.log_q(mdp)
        if by_start:
            self.log_q = self.log_q - np.log(mdp.p0[demos.start_states])
        steps = demos.steps(mdp)
        self._unrecorded: _Unrecorded | None = None
        if steps.ambiguous.size and (mdp.n_action_features or mdp.n_edge_features):
            demo, t = steps.demo_of_step[steps.ambiguous], steps.t_of_step[steps.ambiguous]
            self._unrecorded = _Unrecorded(demo, mdp.gamma ** t.astype(np.float64), steps.cand_ptr, steps.cand_edge)
            edge = steps.edge.copy()
            edge[steps.ambiguous] = self._unrecorded.edge[self._unrecorded.ptr[:-1]]
            self.features = feature_counts(demos, mdp, edge)
        else:
            self.features = demos.features(mdp)

    @property
    def fixed(self) -> bool:
        """Whether the features of every demonstration are known, so that its log-weight is linear in theta."""
        return self._unrecorded is None

    def demonstrated(self, weights: Float) -> Demonstrated:
        """Return what weights (N, K) say to a fit; each column is first scaled to sum to 1."""
        scaled = weights / weights.sum(axis=0)
        starts = self.starts(scaled) if self.by_start else None
        return Demonstrated(scaled.T @ self.features, starts, None if self.fixed else scaled)

    def starts(self, weights: Float) -> Float:
        """Return (S, K): how the start states of the demonstrations are distributed under weights (N, K)."""
        found = np.zeros((self.mdp.n_states, weights.shape[1]))
        np.add.at(found, self.demos.start_states, weights)
        return found

    def log_weight(self, thetas: Float) -> Float:
        """Return (N, K) for thetas (K, d)."""
        found = self.features @ thetas.T + self.log_q[:, None]
        if self._unrecorded is not None:
            for k, theta in enumerate(thetas):
                correction, _ = self._correct(self._unrecorded, theta)
                found[:, k] += np.bincount(self._unrecorded.demo, weights=correction, minlength=len(self.demos))
        return found

    def correction(self, theta: Float, weights: Float) -> tuple[float, Float]:
        """Return what unrecorded actions add to weights (N,) . log_weight at theta (d,), and its gradient (d,)."""
        if self._unrecorded is None:
            return 0.0, np.zeros(self.mdp.n_features)
        demo, discount, ptr, edge = self._unrecorded
        correction, posterior = self._correct(self._unrecorded, theta)
        scale = weights[demo] * discount
        pull = np.zeros(self.mdp.n_edges)
        pull += np.bincount(edge, weights=np.repeat(scale, np.diff(ptr)) * posterior, minlength=self.mdp.n_edges)
        pull -= np.bincount(edge[ptr[:-1]], weights=scale, minlength=self.mdp.n_edges)
        gradient = expected_features(self.mdp, np.zeros((self.mdp.n_states, 1)), pull[:, None])[0]
        return float(weights[demo] @ correction), gradient

    def _correct(self, unrecorded: _Unrecorded, theta: Float) -> tuple[Float, Float]:
        """Return (m,) what each unrecorded action adds to its demonstration, and the posterior of the candidates."""
        _, discount, ptr, edge = unrecorded
        reward = np.asarray(self.mdp.rewards(theta)[1])[:, 0]
        sizes = np.diff(ptr)
        base = np.repeat(reward[edge[ptr[:-1]]], sizes)
        log_prob = np.log(self.mdp.prob[edge])
        power = log_prob + np.repeat(discount, sizes) * (reward[edge] - base)
        total = _segment_logsumexp(power, ptr)
        return total - _segment_logsumexp(log_prob, ptr), np.exp(power - np.repeat(total, sizes))


def _segment_logsumexp(values: Float, ptr: NDArray[np.int64]) -> Float:
    top = np.maximum.reduceat(values, ptr[:-1])
    return top + np.log(np.add.reduceat(np.exp(values - np.repeat(top, np.diff(ptr))), ptr[:-1]))
