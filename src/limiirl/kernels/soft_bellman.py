"""Soft Bellman backups for K reward vectors at once, and their adjoints.

The last axis of all arrays is K; P is the number of state-action pairs. Q excludes the reward of the state: V(s) = r(s)
+ op_a Q(s, a), where op is the soft maximum or the softmax average; for a state without actions, V(s) = r(s).
"""

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from limiirl._typing import FloatArray, IntArray


class Graph(NamedTuple):
    """Transition graph as CSR.

    The pairs of state s are pair_ptr[s]:pair_ptr[s + 1]; the edges of pair p are edge_ptr[p]:edge_ptr[p + 1], with
    targets `dst` (E,) and probabilities `prob` (E,).
    """

    pair_ptr: IntArray
    edge_ptr: IntArray
    dst: NDArray[np.int32]
    prob: FloatArray
    gamma: float


class ObservedPairs(NamedTuple):
    """Observed states (m,) and pair indices (m,), where -1 means stop; the entries of step t are ptr[t]:ptr[t + 1]."""

    ptr: IntArray
    state: IntArray
    pair: IntArray


@njit(cache=True, error_model="numpy")
def compute_q(graph: Any, reward: Any, V: Any, Q: Any) -> None:
    """Set Q (P, K) to reward (P, K) + gamma sum_s' P(s' | pair) V(s')."""
    K = Q.shape[1]
    for p in range(Q.shape[0]):
        for k in range(K):
            Q[p, k] = reward[p, k]
        for e in range(graph.edge_ptr[p], graph.edge_ptr[p + 1]):
            weight, d = graph.gamma * graph.prob[e], graph.dst[e]
            for k in range(K):
                Q[p, k] += weight * V[d, k]


@njit(cache=True, error_model="numpy")
def compute_q_adjoint(graph: Any, adjoint: Any, mu: Any) -> None:
    """Set mu (S, K) to gamma sum_p P(s | pair p) adjoint(p): the adjoint of V, given the adjoint (P, K) of Q."""
    K = mu.shape[1]
    mu[:] = 0.0
    for p in range(adjoint.shape[0]):
        for e in range(graph.edge_ptr[p], graph.edge_ptr[p + 1]):
            weight, d = graph.gamma * graph.prob[e], graph.dst[e]
            for k in range(K):
                mu[d, k] += weight * adjoint[p, k]


@njit(cache=True, error_model="numpy")
def apply_softmax(pair_ptr: Any, Q: Any, beta: float, stop: bool, norm: Any, pi: Any) -> None:
    """Set norm (S, K) to log sum_a exp(beta Q) / beta and pi (P, K) to exp(beta (Q - norm)).

    If `stop`, stopping is a further action with Q = 0. `norm` may be None; it is 0 for states without actions.
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
            # Skip exp(0) = 1, because most states of road networks have a single action.
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
def iterate_values(graph: Any, r_state: Any, reward: Any, beta: float, V: Any, n_backups: int) -> None:
    """Apply soft Bellman backups to V (S, K) in place, in alternating order of the states (symmetric Gauss-Seidel)."""
    S, K = V.shape
    widest = 0
    for s in range(S):
        widest = max(widest, graph.pair_ptr[s + 1] - graph.pair_ptr[s])
    Q = np.empty((widest, K))
    for i in range(n_backups):
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
def _average_q(pair_ptr: Any, Q: Any, beta: float, pi: Any, mean: Any) -> None:
    """Set pi (P, K) to the softmax policy, and mean (S, K) to sum_a pi(a | s) Q(s, a)."""
    apply_softmax(pair_ptr, Q, beta, False, None, pi)
    for s in range(mean.shape[0]):
        for k in range(mean.shape[1]):
            mean[s, k] = 0.0
        for p in range(pair_ptr[s], pair_ptr[s + 1]):
            for k in range(mean.shape[1]):
                mean[s, k] += pi[p, k] * Q[p, k]


@njit(cache=True, error_model="numpy")
def compute_policy_adjoint(pair_ptr: Any, observed: Any, weight: Any, beta: float, pi: Any, adjoint: Any) -> None:
    """Set adjoint (P, K) to the derivative of sum_m weight[m] log pi(pair[m]) with respect to Q.

    It is beta (c(s, a) - pi(a | s) sum_a' c(s, a')), where c(s, a) is the sum of the weights of pair (s, a).
    """
    K = adjoint.shape[1]
    adjoint[:] = 0.0
    for m in range(weight.shape[0]):
        for k in range(K):
            adjoint[observed.pair[m], k] += beta * weight[m, k]
    for s in range(pair_ptr.size - 1):
        for k in range(K):
            total = 0.0
            for p in range(pair_ptr[s], pair_ptr[s + 1]):
                total += adjoint[p, k]
            for p in range(pair_ptr[s], pair_ptr[s + 1]):
                adjoint[p, k] -= total * pi[p, k]


@njit(cache=True, error_model="numpy")
def add_average(pair_ptr: Any, weight: Any, rows: Any, sums: Any) -> None:
    """Add sum_a weight(s, a) rows(s, a) to sums (S, K), for weights (P,) and rows (P, K)."""
    for s in range(sums.shape[0]):
        for p in range(pair_ptr[s], pair_ptr[s + 1]):
            for k in range(sums.shape[1]):
                sums[s, k] += weight[p] * rows[p, k]


@njit(cache=True, error_model="numpy")
def centre_scores(pair_ptr: Any, pi: Any, beta: float, Q: Any) -> None:
    """Replace derivatives Q (P, K) by those of log pi, beta (Q(s, a) - sum_b pi(b | s) Q(s, b)), for pi (P,)."""
    mean = np.empty((1, Q.shape[1]))
    for s in range(pair_ptr.size - 1):
        lo, hi = pair_ptr[s], pair_ptr[s + 1]
        mean[:] = 0.0
        add_average(np.array([0, hi - lo]), pi[lo:hi], Q[lo:hi], mean)
        for p in range(lo, hi):
            for k in range(Q.shape[1]):
                Q[p, k] = beta * (Q[p, k] - mean[0, k])


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
    """Apply n backups with the softmax average, starting from Q = reward; set V (n, S, K) and the last Q (P, K)."""
    pi = np.empty(Q.shape)
    Q[:] = reward
    for i in range(V.shape[0]):
        _average_q(graph.pair_ptr, Q, beta, pi, V[i])
        V[i] += r_state
        compute_q(graph, reward, V[i], Q)


@njit(cache=True, error_model="numpy")
def unroll_adjoint(graph: Any, reward: Any, beta: float, V: Any, adjoint: Any, node: Any, pair: Any) -> None:
    """Add to node (S, K) and pair (P, K) the derivatives of a function of the last Q with respect to the rewards.

    `adjoint` (P, K) is the derivative of the function with respect to the last Q; it is overwritten. For one backup,
    dV(s) = sum_a pi(a | s) (1 + beta (Q(s, a) - mean(s))) dQ(s, a), where mean(s) is the mean of Q(s, a) under pi.
    """
    S, K = node.shape
    mean, mu = np.empty((S, K)), np.empty((S, K))
    pi, Q = np.empty(adjoint.shape), np.empty(adjoint.shape)
    for i in range(V.shape[0] - 1, -1, -1):
        pair += adjoint
        compute_q_adjoint(graph, adjoint, mu)
        node += mu
        if i > 0:
            compute_q(graph, reward, V[i - 1], Q)
        else:
            Q[:] = reward
        _average_q(graph.pair_ptr, Q, beta, pi, mean)
        for s in range(S):
            for p in range(graph.pair_ptr[s], graph.pair_ptr[s + 1]):
                for k in range(K):
                    adjoint[p, k] = mu[s, k] * pi[p, k] * (1.0 + beta * (Q[p, k] - mean[s, k]))
    pair += adjoint


@njit(cache=True, error_model="numpy")
def plan(graph: Any, r_state: Any, reward: Any, beta: float, stop: bool, observed: Any, V: Any, log_pi: Any) -> None:
    """Set V (L, S, K), backwards from the last step, and log_pi (m, K), the log-probabilities of the observed pairs."""
    norm, pi, Q = np.empty(r_state.shape), np.empty(reward.shape), np.empty(reward.shape)
    V[-1] = r_state
    for t in range(V.shape[0] - 2, -1, -1):
        compute_q(graph, reward, V[t + 1], Q)
        apply_softmax(graph.pair_ptr, Q, beta, stop, norm, pi)
        V[t] = r_state + norm
        for m in range(observed.ptr[t], observed.ptr[t + 1]):
            s, p = observed.state[m], observed.pair[m]
            for k in range(norm.shape[1]):
                log_pi[m, k] = beta * ((Q[p, k] if p >= 0 else 0.0) - norm[s, k])


@njit(cache=True, error_model="numpy")
def plan_adjoint(
    graph: Any, reward: Any, beta: float, stop: bool, observed: Any, V: Any, weight: Any, node: Any, pair: Any
) -> None:
    """Add to node (S, K) and pair (P, K) the derivatives of sum_m weight[m] log_pi[m] with respect to the rewards."""
    S, K = node.shape
    mu, total = np.zeros((S, K)), np.zeros((S, K))
    pi, Q, adjoint = np.empty(pair.shape), np.empty(pair.shape), np.empty(pair.shape)
    for t in range(V.shape[0] - 1):
        compute_q(graph, reward, V[t + 1], Q)
        apply_softmax(graph.pair_ptr, Q, beta, stop, None, pi)
        node += mu
        for m in range(observed.ptr[t], observed.ptr[t + 1]):
            for k in range(K):
                total[observed.state[m], k] += beta * weight[m, k]
        for s in range(S):
            for p in range(graph.pair_ptr[s], graph.pair_ptr[s + 1]):
                for k in range(K):
                    adjoint[p, k] = pi[p, k] * (mu[s, k] - total[s, k])
        for m in range(observed.ptr[t], observed.ptr[t + 1]):
            for k in range(K):
                total[observed.state[m], k] = 0.0
                if observed.pair[m] >= 0:
                    adjoint[observed.pair[m], k] += beta * weight[m, k]
        pair += adjoint
        compute_q_adjoint(graph, adjoint, mu)
    node += mu
