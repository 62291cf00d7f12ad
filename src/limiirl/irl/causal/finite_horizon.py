"""Policies from a fixed number of Bellman backups: up to `max_length` states, and the softmax average."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from limiirl._typing import FloatArray
from limiirl.irl.causal.state_actions import StateActions
from limiirl.kernels.soft_bellman import Moves, look_ahead, plan, plan_back, pull_of_moves, soften, unroll, unroll_back

# Bytes of values kept at a time, unless a single column needs more.
_MEMORY = 2.0**28


def _portions(n_states: int, n_backups: int, K: int) -> Iterator[slice]:
    width = max(1, int(_MEMORY / (8.0 * n_states * n_backups)))
    return (slice(k, min(K, k + width)) for k in range(0, K, width))


class _Portion:
    """Some columns of a solution, with what their reverse sweeps need."""

    def __init__(self, columns: slice, reward: FloatArray, V: FloatArray, Q: FloatArray) -> None:
        self.columns, self.reward, self.V, self.Q = columns, reward, V, Q


class UnrolledPolicies:
    """Policies from sweeps; see `limiirl.irl.causal.stationary.Policies`."""

    def __init__(self, solver: FiniteHorizonSolver | SoftmaxAverageSolver, moves: Moves, K: int) -> None:
        self._solver, self._moves = solver, moves
        self.log_choice = np.empty((moves.pair.size, K))
        self.residual = np.zeros(K)
        self._parts: list[_Portion] = []

    def keep(self, part: _Portion) -> None:
        """Add a portion of columns."""
        self._parts.append(part)

    def gradient(self, weight: FloatArray) -> FloatArray:
        """Return (K, d), by reverse sweeps."""
        choices, K = self._solver.choices, weight.shape[1]
        node, pair = np.zeros((choices.mdp.n_states, K)), np.zeros((choices.mdp.n_pairs, K))
        for part in self._parts:
            columns = part.columns
            of_node, of_pair = self._solver.reverse(part, self._moves, np.ascontiguousarray(weight[:, columns]))
            node[:, columns], pair[:, columns] = of_node, of_pair
        return choices.features(node, pair)


class FiniteHorizonSolver:
    """Soft values of trajectories of at most `max_length` states: V_t(s) = r(s) + log(1 + sum_a exp(beta Q_t)) / beta.

    The 1 is to stop where one is; without `stop` it is left out, and one goes on to a terminal state or the horizon.

    Examples
    --------
    Of 0, 0-1, 0-2 and 0-1-2 one in four stops at once.

    >>> from limiirl.mdp import MDP
    >>> solver = FiniteHorizonSolver(StateActions(MDP.from_edges([0, 0, 1], [1, 2, 2])), beta=1.0, max_length=3)
    >>> pi, stop = solver.policy(np.zeros(3), 0)
    >>> pi.round(2), stop.round(2)
    (array([0.67, 0.33, 1.  ]), array([0.25, 0.5 , 1.  ]))
    """

    def __init__(self, choices: StateActions, beta: float, max_length: int, *, stop: bool = True) -> None:
        self.choices, self.beta, self.max_length, self.stop = choices, beta, max_length, stop

    def solve(self, thetas: FloatArray, moves: Moves) -> UnrolledPolicies:
        """See `limiirl.irl.causal.stationary.PolicySolver`."""
        found, K = UnrolledPolicies(self, moves, thetas.shape[0]), thetas.shape[0]
        for columns in _portions(self.choices.mdp.n_states, self.max_length, K):
            r_state, r_pair = self.choices.rewards(thetas[columns])
            V = np.empty((self.max_length, *r_state.shape))
            log_choice = np.empty((moves.pair.size, r_state.shape[1]))
            # Soft Bellman backups from the last step to the first: Ziebart (2010), equations (9.1) to (9.3).
            plan(self.choices.graph, r_state, r_pair, self.beta, self.stop, moves, V, log_choice)
            found.log_choice[:, columns] = log_choice
            found.keep(_Portion(columns, r_pair, V, np.empty((0, 0))))
        return found

    def reverse(self, part: _Portion, moves: Moves, weight: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the derivatives by rewards of states (S, K) and pairs (P, K) of weighted log-probabilities."""
        node, pair = np.zeros(part.V.shape[1:]), np.zeros(part.reward.shape)
        # Expected occupancy of states and pairs, forwards in time: Ziebart (2010), chapter 9.
        plan_back(self.choices.graph, part.reward, self.beta, self.stop, moves, part.V, weight, node, pair)
        return node, pair

    def policy(self, theta: FloatArray, step: int) -> tuple[FloatArray, FloatArray]:
        """See `limiirl.irl.causal.stationary.PolicySolver`."""
        return self.policies(theta, step)(step)

    def policies(self, theta: FloatArray, first: int = 0) -> Callable[[int], tuple[FloatArray, FloatArray]]:
        """Return `policy` as a function of the step, from `first` on, by one sweep for all steps."""
        mdp, beta = self.choices.mdp, self.beta
        look = self._look(theta, first)

        def at(step: int) -> tuple[FloatArray, FloatArray]:
            if step >= self.max_length - 1:
                return np.zeros(mdp.n_pairs), np.ones(mdp.n_states)
            Q, norm, pi = look(step)
            stop = np.exp(-beta * norm[:, 0]) if self.stop else mdp.terminal.astype(np.float64)
            # Those who go on may be too few for float64; what they do is known nevertheless.
            soften(self.choices.graph.pair_ptr, Q, beta, False, norm, pi)
            return pi[:, 0], stop

        return at

    def log_policies(self, theta: FloatArray) -> Callable[[int], tuple[FloatArray, FloatArray]]:
        """Return a function of the step: the log-probabilities (P,) of pairs, and (S,) of stopping."""
        mdp, look = self.choices.mdp, self._look(theta, 0)

        def at(step: int) -> tuple[FloatArray, FloatArray]:
            if step >= self.max_length - 1:
                return np.full(mdp.n_pairs, -np.inf), np.zeros(mdp.n_states)
            Q, norm, _ = look(step)
            log_stop = -self.beta * norm[:, 0] if self.stop else np.where(mdp.terminal, 0.0, -np.inf)
            return self.beta * (Q[:, 0] - norm[mdp.pair_state, 0]), log_stop

        return at

    def _look(self, theta: FloatArray, first: int) -> Callable[[int], tuple[FloatArray, FloatArray, FloatArray]]:
        """Return a function of the step, before the last: Q (P, 1), norm (S, 1) and a place for pi (P, 1)."""
        r_state, r_pair = self.choices.rewards(theta[None])
        V = np.empty((max(1, self.max_length - first), *r_state.shape))
        nothing = np.zeros(0, dtype=np.int64)
        nobody = Moves(np.zeros(len(V) + 1, dtype=np.int64), nothing, nothing)
        plan(self.choices.graph, r_state, r_pair, self.beta, self.stop, nobody, V, np.empty((0, 1)))

        def at(step: int) -> tuple[FloatArray, FloatArray, FloatArray]:
            Q, norm, pi = np.empty(r_pair.shape), np.empty(r_state.shape), np.zeros(r_pair.shape)
            look_ahead(self.choices.graph, r_pair, V[step + 1 - first], Q)
            soften(self.choices.graph.pair_ptr, Q, self.beta, self.stop, norm, pi)
            return Q, norm, pi

        return at


class SoftmaxAverageSolver:
    """Values of the policy itself, V(s) = r(s) + sum_a pi Q (Babes-Vroman et al. 2011), after `n_backups` backups.

    The softmax average is no contraction, and its equation may have several solutions. So the sweeps always begin with
    Q = r and are as many as they are: they are part of the model. `residual` says how far they were from settled.
    """

    def __init__(self, choices: StateActions, beta: float, n_backups: int) -> None:
        self.choices, self.beta, self.n_backups = choices, beta, n_backups

    def solve(self, thetas: FloatArray, moves: Moves) -> UnrolledPolicies:
        """See `limiirl.irl.causal.stationary.PolicySolver`."""
        found, K = UnrolledPolicies(self, moves, thetas.shape[0]), thetas.shape[0]
        for columns in _portions(self.choices.mdp.n_states, self.n_backups, K):
            part, norm, _ = self._sweep(thetas[columns], columns)
            found.log_choice[:, columns] = self.beta * (part.Q[moves.pair] - norm[moves.state])
            found.residual[columns] = self._residual(thetas[columns], part)
            found.keep(part)
        return found

    def _sweep(self, thetas: FloatArray, columns: slice) -> tuple[_Portion, FloatArray, FloatArray]:
        r_state, r_pair = self.choices.rewards(thetas)
        V, Q = np.empty((self.n_backups, *r_state.shape)), np.empty(r_pair.shape)
        unroll(self.choices.graph, r_state, r_pair, self.beta, V, Q)
        norm, pi = np.empty(r_state.shape), np.zeros(Q.shape)
        soften(self.choices.graph.pair_ptr, Q, self.beta, False, norm, pi)
        return _Portion(columns, r_pair, V, Q), norm, pi

    def _residual(self, thetas: FloatArray, part: _Portion) -> FloatArray:
        """Return (K,): how far the last two sweeps were apart, relative to the largest value."""
        if self.n_backups > 1:
            before = part.V[-2]
        else:
            before = self.choices.rewards(thetas)[0]
        scale = np.maximum(np.max(np.abs(part.V[-1]), axis=0), 1e-300)
        return np.asarray(np.max(np.abs(part.V[-1] - before), axis=0) / scale)

    def reverse(self, part: _Portion, moves: Moves, weight: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the derivatives by rewards of states (S, K) and pairs (P, K) of weighted log-probabilities."""
        node, pair = np.zeros(part.V.shape[1:]), np.zeros(part.reward.shape)
        norm, pi = np.empty(node.shape), np.zeros(pair.shape)
        soften(self.choices.graph.pair_ptr, part.Q, self.beta, False, norm, pi)
        pull = np.empty(pair.shape)
        pull_of_moves(self.choices.graph.pair_ptr, moves, weight, self.beta, pi, pull)
        unroll_back(self.choices.graph, part.reward, self.beta, part.V, pull, node, pair)
        return node, pair

    def policy(self, theta: FloatArray, step: int) -> tuple[FloatArray, FloatArray]:
        """See `limiirl.irl.causal.stationary.PolicySolver`; the step does not matter."""
        del step
        return self._sweep(theta[None], slice(0, 1))[2][:, 0], np.zeros(self.choices.mdp.n_states)
