"""Soft and hard Bellman backups for K rewards at once, and their adjoints.

`Graph` lists the state-action pairs of each state and the outcomes of each pair, as CSR. The last axis of arrays is K.
Q excludes the reward of the state itself: V = r + op(Q), with op(Q) = 0 for a state without actions.
"""

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from limiirl._typing import FloatArray, IntArray


class Graph(NamedTuple):
    """Pairs of states, pair_ptr (S + 1,), and their outcomes, edge_ptr (P + 1,), to dst (E,) with prob (E,)."""

    pair_ptr: IntArray
    edge_ptr: IntArray
    dst: NDArray[np.int32]
    prob: FloatArray
    gamma: float


class Moves(NamedTuple):
    """Observed state-action pairs: ptr (L + 1,) by step, states (m,) and pairs (m,), -1 to stop."""

    ptr: IntArray
    state: IntArray
    pair: IntArray


@njit(cache=True, error_model="numpy")
def look_ahead(graph: Any, reward: Any, V: Any, Q: Any) -> None:
    """Set Q (P, K) to reward (P, K) + gamma sum_s' P(s' | pair) V(s')."""
    K = Q.shape[1]
    for p in range(Q.shape[0]):
        for k in range(K):
            Q[p, k] = reward[p, k]
        for e in range(graph.edge_ptr[p], graph.edge_ptr[p + 1]):
            share, d = graph.gamma * graph.prob[e], graph.dst[e]
            for k in range(K):
                Q[p, k] += share * V[d, k]


@njit(cache=True, error_model="numpy")
def look_back(graph: Any, adjoint: Any, mu: Any) -> None:
    """Set mu (S, K) to gamma sum over pairs of P(s | pair) adjoint(pair): `look_ahead`, transposed."""
    K = mu.shape[1]
    mu[:] = 0.0
    for p in range(adjoint.shape[0]):
        for e in range(graph.edge_ptr[p], graph.edge_ptr[p + 1]):
            share, d = graph.gamma * graph.prob[e], graph.dst[e]
            for k in range(K):
                mu[d, k] += share * adjoint[p, k]


@njit(cache=True, error_model="numpy")
def soften(pair_ptr: Any, Q: Any, beta: float, stop: bool, norm: Any, pi: Any) -> None:
    """Set norm (S, K) to log sum_a exp(beta Q) / beta and pi (P, K) to exp(beta (Q - norm)).

    With `stop`, stopping has value 0. The norm of states without actions is 0; it is optional.
    """
    for s in range(pair_ptr.size - 1):
        lo, hi = pair_ptr[s], pair_ptr[s + 1]
        for k in range(Q.shape[1]):
            if lo == hi:
                if norm is not None:
                    norm[s, k] = 0.0
                continue
            top = 0.0 if stop else -np.inf
            for p in range(lo, hi):
                top = max(top, Q[p, k])
            # The best has exp(0) = 1; on roads, where most segments lead on in one way, that is most of the work.
            total = 0.0
            if stop:
                total = 1.0 if top == 0.0 else np.exp(-beta * top)
            for p in range(lo, hi):
                pi[p, k] = 1.0 if Q[p, k] == top else np.exp(beta * (Q[p, k] - top))
                total += pi[p, k]
            for p in range(lo, hi):
                pi[p, k] /= total
            if norm is not None:
                norm[s, k] = top + (0.0 if total == 1.0 else np.log(total) / beta)


@njit(cache=True, error_model="numpy")
def settle(graph: Any, r_state: Any, reward: Any, beta: float, V: Any, n_sweeps: int) -> None:
    """Sweep V (S, K) towards soft values in place, up and down the states by turns, so that news travels far."""
    S, K = V.shape
    widest = 0
    for s in range(S):
        widest = max(widest, graph.pair_ptr[s + 1] - graph.pair_ptr[s])
    Q = np.empty((widest, K))
    for i in range(n_sweeps):
        for j in range(S):
            s = j if i % 2 else S - 1 - j
            lo, n = graph.pair_ptr[s], graph.pair_ptr[s + 1] - graph.pair_ptr[s]
            for p in range(n):
                for k in range(K):
                    Q[p, k] = reward[lo + p, k]
                for e in range(graph.edge_ptr[lo + p], graph.edge_ptr[lo + p + 1]):
                    for k in range(K):
                        Q[p, k] += graph.gamma * graph.prob[e] * V[graph.dst[e], k]
            for k in range(K):
                top, total = -np.inf, 0.0
                for p in range(n):
                    top = max(top, Q[p, k])
                for p in range(n):
                    total += np.exp(beta * (Q[p, k] - top))
                V[s, k] = r_state[s, k] + (top + np.log(total) / beta if n else 0.0)


@njit(cache=True, error_model="numpy")
def _average(pair_ptr: Any, Q: Any, beta: float, pi: Any, mean: Any) -> None:
    """Set pi as `soften` does, and mean (S, K) to sum_a pi Q."""
    soften(pair_ptr, Q, beta, False, None, pi)
    for s in range(mean.shape[0]):
        for k in range(mean.shape[1]):
            mean[s, k] = 0.0
        for p in range(pair_ptr[s], pair_ptr[s + 1]):
            for k in range(mean.shape[1]):
                mean[s, k] += pi[p, k] * Q[p, k]


@njit(cache=True, error_model="numpy")
def pull_of_moves(pair_ptr: Any, moves: Any, weight: Any, beta: float, pi: Any, adjoint: Any) -> None:
    """Set adjoint (P, K) to the derivative by Q of sum_m weight (m, K) log pi: beta (c(s, a) - pi(a | s) sum_a' c)."""
    K = adjoint.shape[1]
    adjoint[:] = 0.0
    for m in range(weight.shape[0]):
        for k in range(K):
            adjoint[moves.pair[m], k] += beta * weight[m, k]
    for s in range(pair_ptr.size - 1):
        for k in range(K):
            seen = 0.0
            for p in range(pair_ptr[s], pair_ptr[s + 1]):
                seen += adjoint[p, k]
            for p in range(pair_ptr[s], pair_ptr[s + 1]):
                adjoint[p, k] -= seen * pi[p, k]


@njit(cache=True, error_model="numpy")
def fill_systems(graph: Any, omega: Any, systems: Any) -> None:
    """Set systems (K, S, S) to I - gamma P, where P[s, s'] = sum_a omega(s, a) P(s' | s, a) for omega (P, K)."""
    systems[:] = 0.0
    for k in range(systems.shape[0]):
        for s in range(systems.shape[1]):
            systems[k, s, s] = 1.0
            for p in range(graph.pair_ptr[s], graph.pair_ptr[s + 1]):
                for e in range(graph.edge_ptr[p], graph.edge_ptr[p + 1]):
                    systems[k, s, graph.dst[e]] -= graph.gamma * graph.prob[e] * omega[p, k]


@njit(cache=True, error_model="numpy")
def unroll(graph: Any, r_state: Any, reward: Any, beta: float, V: Any, Q: Any) -> None:
    """Sweep by the softmax average from Q = reward: V (n, S, K) are the values on the way, Q (P, K) the last."""
    pi = np.empty(Q.shape)
    Q[:] = reward
    for i in range(V.shape[0]):
        _average(graph.pair_ptr, Q, beta, pi, V[i])
        V[i] += r_state
        look_ahead(graph, reward, V[i], Q)


@njit(cache=True, error_model="numpy")
def unroll_back(graph: Any, reward: Any, beta: float, V: Any, adjoint: Any, node: Any, pair: Any) -> None:
    """Add to node (S, K) and pair (P, K) the derivatives of a function of the last Q of `unroll`.

    adjoint (P, K) is its derivative by that Q, and is overwritten. dV = sum_a pi (1 + beta (Q - mean)) dQ.
    """
    S, K = node.shape
    mean, mu = np.empty((S, K)), np.empty((S, K))
    pi, Q = np.empty(adjoint.shape), np.empty(adjoint.shape)
    for i in range(V.shape[0] - 1, -1, -1):
        pair += adjoint
        look_back(graph, adjoint, mu)
        node += mu
        if i > 0:
            look_ahead(graph, reward, V[i - 1], Q)
        else:
            Q[:] = reward
        _average(graph.pair_ptr, Q, beta, pi, mean)
        for s in range(S):
            for p in range(graph.pair_ptr[s], graph.pair_ptr[s + 1]):
                for k in range(K):
                    adjoint[p, k] = mu[s, k] * pi[p, k] * (1.0 + beta * (Q[p, k] - mean[s, k]))
    pair += adjoint


@njit(cache=True, error_model="numpy")
def plan(graph: Any, r_state: Any, reward: Any, beta: float, stop: bool, moves: Any, V: Any, log_choice: Any) -> None:
    """Plan from the last step back: V (L, S, K) by step, and log_choice (m, K), the log-probability of each move."""
    norm, pi, Q = np.empty(r_state.shape), np.empty(reward.shape), np.empty(reward.shape)
    V[-1] = r_state
    for t in range(V.shape[0] - 2, -1, -1):
        look_ahead(graph, reward, V[t + 1], Q)
        soften(graph.pair_ptr, Q, beta, stop, norm, pi)
        V[t] = r_state + norm
        for m in range(moves.ptr[t], moves.ptr[t + 1]):
            s, p = moves.state[m], moves.pair[m]
            for k in range(norm.shape[1]):
                log_choice[m, k] = beta * ((Q[p, k] if p >= 0 else 0.0) - norm[s, k])


@njit(cache=True, error_model="numpy")
def plan_back(
    graph: Any, reward: Any, beta: float, stop: bool, moves: Any, V: Any, weight: Any, node: Any, pair: Any
) -> None:
    """Add to node (S, K) and pair (P, K) the derivatives of sum_m weight (m, K) log_choice (m, K) of `plan`."""
    S, K = node.shape
    mu, seen = np.zeros((S, K)), np.zeros((S, K))
    pi, Q, adjoint = np.empty(pair.shape), np.empty(pair.shape), np.empty(pair.shape)
    for t in range(V.shape[0] - 1):
        look_ahead(graph, reward, V[t + 1], Q)
        soften(graph.pair_ptr, Q, beta, stop, None, pi)
        node += mu
        for m in range(moves.ptr[t], moves.ptr[t + 1]):
            for k in range(K):
                seen[moves.state[m], k] += beta * weight[m, k]
        for s in range(S):
            for p in range(graph.pair_ptr[s], graph.pair_ptr[s + 1]):
                for k in range(K):
                    adjoint[p, k] = pi[p, k] * (mu[s, k] - seen[s, k])
        for m in range(moves.ptr[t], moves.ptr[t + 1]):
            for k in range(K):
                seen[moves.state[m], k] = 0.0
                if moves.pair[m] >= 0:
                    adjoint[moves.pair[m], k] += beta * weight[m, k]
        pair += adjoint
        look_back(graph, adjoint, mu)
    node += mu
