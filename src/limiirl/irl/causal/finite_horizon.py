"""Policies from a fixed number of Bellman backups: finite-horizon policies and softmax-averaged values."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from limiirl._typing import FloatArray
from limiirl._validation import check_count
from limiirl.irl.causal.state_actions import StateActions
from limiirl.kernels.soft_bellman import (
    ObservedPairs,
    apply_softmax,
    compute_policy_adjoint,
    compute_q,
    plan,
    plan_adjoint,
    unroll,
    unroll_adjoint,
)

# Memory in bytes for the values of one batch of thetas; a batch has at least one theta.
_MEMORY = 2.0**28


def _batches(n_states: int, n_backups: int, K: int) -> Iterator[slice]:
    width = max(1, int(_MEMORY / (8.0 * n_states * n_backups)))
    return (slice(k, min(K, k + width)) for k in range(0, K, width))


class _ColumnBatch(NamedTuple):
    """Rewards (P, J), values (n, S, J) and Q (P, J) of J thetas, for reverse-mode differentiation."""

    columns: slice
    reward: FloatArray
    V: FloatArray
    Q: FloatArray


class UnrolledPolicies:
    """Policies from unrolled backups; see `limiirl.irl.causal.stationary.Policies`."""

    def __init__(self, solver: FiniteHorizonSolver | SoftmaxAverageSolver, observed: ObservedPairs, K: int) -> None:
        self._solver, self._observed = solver, observed
        self.log_prob = np.empty((observed.pair.size, K))
        self.residual = np.zeros(K)
        self.batches: list[_ColumnBatch] = []

    def gradient(self, weight: FloatArray) -> FloatArray:
        """Return the gradient (K, d) by reverse-mode differentiation."""
        pairs, K = self._solver.pairs, weight.shape[1]
        node, pair = np.zeros((pairs.mdp.n_states, K)), np.zeros((pairs.mdp.n_pairs, K))
        for batch in self.batches:
            columns = batch.columns
            given = np.ascontiguousarray(weight[:, columns])
            node[:, columns], pair[:, columns] = self._solver.reverse(batch, self._observed, given)
        return pairs.features(node, pair)


class FiniteHorizonSolver:
    """Soft values of trajectories of at most `max_length` states: V_t(s) = r(s) + log(1 + sum_a exp(beta Q_t)) / beta.

    The term 1 is the weight of stopping. If `stop` is False, the term is omitted, and trajectories continue to a
    terminal state or to the horizon.

    Examples
    --------
    One of the four trajectories 0, 0-1, 0-2 and 0-1-2 stops immediately.

    >>> from limiirl.mdp import MDP
    >>> solver = FiniteHorizonSolver(StateActions(MDP.from_edges([0, 0, 1], [1, 2, 2])), beta=1.0, max_length=3)
    >>> pi, stop = solver.policy(np.zeros(3), 0)
    >>> pi.round(2), stop.round(2)
    (array([0.67, 0.33, 1.  ]), array([0.25, 0.5 , 1.  ]))
    """

    def __init__(self, pairs: StateActions, beta: float, max_length: int, *, stop: bool = True) -> None:
        check_count(max_length, "max_length", bytes_each=8.0 * pairs.mdp.n_states)  # values of all steps
        self.pairs, self.beta, self.max_length, self.stop = pairs, beta, max_length, stop

    @np.errstate(over="ignore", invalid="ignore")
    def solve(self, thetas: FloatArray, observed: ObservedPairs) -> UnrolledPolicies:
        """See `limiirl.irl.causal.stationary.PolicySolver`."""
        policies, K = UnrolledPolicies(self, observed, thetas.shape[0]), thetas.shape[0]
        for columns in _batches(self.pairs.mdp.n_states, self.max_length, K):
            r_state, r_pair = self.pairs.rewards(thetas[columns])
            V = np.empty((self.max_length, *r_state.shape))
            log_prob = np.empty((observed.pair.size, r_state.shape[1]))
            # Soft Bellman backups from the last step to the first; see Ziebart (2010), equations (9.1) to (9.3).
            plan(self.pairs.graph, r_state, r_pair, self.beta, self.stop, observed, V, log_prob)
            policies.log_prob[:, columns] = log_prob
            policies.batches.append(_ColumnBatch(columns, r_pair, V, np.empty((0, 0))))
        return policies

    def reverse(
        self, batch: _ColumnBatch, observed: ObservedPairs, weight: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Return the gradient of the weighted log-probabilities with respect to the rewards of states and pairs."""
        node, pair = np.zeros(batch.V.shape[1:]), np.zeros(batch.reward.shape)
        # Expected occupancy of states and pairs, forward in time; see Ziebart (2010), chapter 9.
        plan_adjoint(self.pairs.graph, batch.reward, self.beta, self.stop, observed, batch.V, weight, node, pair)
        return node, pair

    def policy(self, theta: FloatArray, step: int) -> tuple[FloatArray, FloatArray]:
        """See `limiirl.irl.causal.stationary.PolicySolver`."""
        return self.policies(theta, step)(step)

    def policies(self, theta: FloatArray, first: int = 0) -> Callable[[int], tuple[FloatArray, FloatArray]]:
        """Run one backward pass, and return a function that maps steps from `first` on to the result of `policy`."""
        mdp, beta = self.pairs.mdp, self.beta
        q_values_at = self._q_values(theta, first)

        def policy_at(step: int) -> tuple[FloatArray, FloatArray]:
            if step >= self.max_length - 1:
                return np.zeros(mdp.n_pairs), np.ones(mdp.n_states)
            Q, norm, pi = q_values_at(step)
            stop = np.exp(-beta * norm[:, 0]) if self.stop else mdp.terminal.astype(np.float64)
            # Normalise over actions only, because the probability of continuing may underflow.
            apply_softmax(self.pairs.graph.pair_ptr, Q, beta, False, norm, pi)
            return pi[:, 0], stop

        return policy_at

    def log_policies(self, theta: FloatArray) -> Callable[[int], tuple[FloatArray, FloatArray]]:
        """Return a function that maps a step to the log-probabilities (P,) of pairs and (S,) of stopping."""
        mdp, q_values_at = self.pairs.mdp, self._q_values(theta, 0)

        def log_policy_at(step: int) -> tuple[FloatArray, FloatArray]:
            if step >= self.max_length - 1:
                return np.full(mdp.n_pairs, -np.inf), np.zeros(mdp.n_states)
            Q, norm, _ = q_values_at(step)
            log_stop = -self.beta * norm[:, 0] if self.stop else np.where(mdp.terminal, 0.0, -np.inf)
            return self.beta * (Q[:, 0] - norm[mdp.pair_state, 0]), log_stop

        return log_policy_at

    def _q_values(self, theta: FloatArray, first: int) -> Callable[[int], tuple[FloatArray, FloatArray, FloatArray]]:
        """Return a function that maps each step except the last to Q (P, 1), norm (S, 1) and pi (P, 1)."""
        r_state, r_pair = self.pairs.rewards(theta[None])
        V = np.empty((max(1, self.max_length - first), *r_state.shape))
        empty = np.zeros(0, dtype=np.int64)
        no_pairs = ObservedPairs(np.zeros(len(V) + 1, dtype=np.int64), empty, empty)
        plan(self.pairs.graph, r_state, r_pair, self.beta, self.stop, no_pairs, V, np.empty((0, 1)))

        def q_values_at(step: int) -> tuple[FloatArray, FloatArray, FloatArray]:
            Q, norm, pi = np.empty(r_pair.shape), np.empty(r_state.shape), np.zeros(r_pair.shape)
            compute_q(self.pairs.graph, r_pair, V[step + 1 - first], Q)
            apply_softmax(self.pairs.graph.pair_ptr, Q, self.beta, self.stop, norm, pi)
            return Q, norm, pi

        return q_values_at


class SoftmaxAverageSolver:
    """Values V(s) = r(s) + sum_a pi(a | s) Q(s, a) of Babes-Vroman et al. (2011), after `n_backups` backups from Q = r.

    The backup is not a contraction, so the number of backups and the initial values are part of the model. The
    `residual` of the policies is the relative change in the last backup.
    """

    def __init__(self, pairs: StateActions, beta: float, n_backups: int) -> None:
        self.pairs, self.beta, self.n_backups = pairs, beta, n_backups

    @np.errstate(over="ignore", invalid="ignore")
    def solve(self, thetas: FloatArray, observed: ObservedPairs) -> UnrolledPolicies:
        """See `limiirl.irl.causal.stationary.PolicySolver`."""
        policies, K = UnrolledPolicies(self, observed, thetas.shape[0]), thetas.shape[0]
        for columns in _batches(self.pairs.mdp.n_states, self.n_backups, K):
            batch, norm, _ = self._backups(thetas[columns], columns)
            policies.log_prob[:, columns] = self.beta * (batch.Q[observed.pair] - norm[observed.state])
            policies.residual[columns] = self._residual(thetas[columns], batch)
            policies.batches.append(batch)
        return policies

    def _backups(self, thetas: FloatArray, columns: slice) -> tuple[_ColumnBatch, FloatArray, FloatArray]:
        r_state, r_pair = self.pairs.rewards(thetas)
        V, Q = np.empty((self.n_backups, *r_state.shape)), np.empty(r_pair.shape)
        unroll(self.pairs.graph, r_state, r_pair, self.beta, V, Q)
        norm, pi = np.empty(r_state.shape), np.zeros(Q.shape)
        apply_softmax(self.pairs.graph.pair_ptr, Q, self.beta, False, norm, pi)
        return _ColumnBatch(columns, r_pair, V, Q), norm, pi

    def _residual(self, thetas: FloatArray, batch: _ColumnBatch) -> FloatArray:
        before = batch.V[-2] if self.n_backups > 1 else self.pairs.rewards(thetas)[0]
        scale = np.maximum(np.max(np.abs(batch.V[-1]), axis=0), 1e-300)
        return np.asarray(np.max(np.abs(batch.V[-1] - before), axis=0) / scale)

    def reverse(
        self, batch: _ColumnBatch, observed: ObservedPairs, weight: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """See `FiniteHorizonSolver.reverse`."""
        node, pair = np.zeros(batch.V.shape[1:]), np.zeros(batch.reward.shape)
        norm, pi = np.empty(node.shape), np.zeros(pair.shape)
        apply_softmax(self.pairs.graph.pair_ptr, batch.Q, self.beta, False, norm, pi)
        q_bar = np.empty(pair.shape)
        compute_policy_adjoint(self.pairs.graph.pair_ptr, observed, weight, self.beta, pi, q_bar)
        unroll_adjoint(self.pairs.graph, batch.reward, self.beta, batch.V, q_bar, node, pair)
        return node, pair

    def policy(self, theta: FloatArray, step: int) -> tuple[FloatArray, FloatArray]:
        """Return the policy (P,), which does not depend on the step, and stopping probabilities (S,) of 0."""
        del step
        return self._backups(theta[None], slice(0, 1))[2][:, 0], np.zeros(self.pairs.mdp.n_states)
