"""Planning on dense tensors: value iteration to the last digits, and every policy of a tiny MDP one by one."""

from __future__ import annotations

from itertools import product

import numpy as np
from numpy.typing import NDArray

from limiirl.mdp import MDP

Float = NDArray[np.float64]


def tensors(mdp: MDP, theta: Float) -> tuple[Float, Float]:
    """T (S, A, S) and the reward of a step, R (S, A, S): r(s) + r(s, a, s'). Absent actions have rows of zeros."""
    T = np.zeros((mdp.n_states, max(mdp.n_actions, 1), mdp.n_states))
    R = np.zeros_like(T)
    r_state, r_edge = mdp.rewards(theta)
    for e in range(mdp.n_edges):
        s, a, t = mdp.src[e], mdp.act[e], mdp.dst[e]
        T[s, a, t] = mdp.prob[e]
        R[s, a, t] = r_state[s, 0] + (0.0 if r_edge is None else r_edge[e, 0])
    return T, R


def dense_q(mdp: MDP, theta: Float, V: Float) -> Float:
    """Q (S, A), NaN for absent actions."""
    T, R = tensors(mdp, theta)
    Q = np.einsum("sat,sat->sa", T, R + mdp.gamma * V)
    Q[T.sum(axis=2) == 0.0] = np.nan
    return np.asarray(Q)


def value_iteration(mdp: MDP, theta: Float, *, minimise: bool = False) -> Float:
    """V (S,) within 1e-13 of the largest value, for a discount below 1."""
    T, R = tensors(mdp, theta)
    earned = np.einsum("sat,sat->sa", T, R)
    absent = T.sum(axis=2) == 0.0
    r = mdp.rewards(theta)[0][:, 0]
    V = np.zeros(mdp.n_states)
    while True:
        Q = earned + mdp.gamma * T @ V
        best = np.where(absent, np.inf, Q).min(axis=1) if minimise else np.where(absent, -np.inf, Q).max(axis=1)
        new = np.where(mdp.terminal, r, best)
        if np.max(np.abs(new - V)) <= 1e-14 * (1.0 - mdp.gamma) * max(float(np.max(np.abs(new))), 1e-3):
            return new
        V = new


def policy_iterates(mdp: MDP, policy: Float, theta: Float, doublings: int = 40) -> Float:
    """Undiscounted V (S,) of a policy (P,) over 2^40 steps, the number of steps doubled at a time.

    For rewards of one sign: a total beyond 1e8 is taken for infinite.
    """
    T, R = tensors(mdp, theta)
    pi = np.zeros(T.shape[:2])
    pi[mdp.pair_state, mdp.pair_action] = policy
    n = mdp.n_states
    # One state more, in which nothing happens, follows the terminal ones.
    P = np.zeros((n + 1, n + 1))
    P[:n, :n] = np.einsum("sa,sat->st", pi, T)
    P[:n, n] = mdp.terminal
    P[n, n] = 1.0
    V = np.zeros(n + 1)
    V[:n] = np.einsum("sa,sat,sat->s", pi, T, R) + np.where(mdp.terminal, mdp.rewards(theta)[0][:, 0], 0.0)
    for _ in range(doublings):
        V = V + P @ V
        P = P @ P
        P /= P.sum(axis=1, keepdims=True)
    return np.where(np.abs(V) > 1e8, np.copysign(np.inf, V), V)[:n]


def best_of_all_policies(mdp: MDP, theta: Float) -> Float:
    """Undiscounted V* (S,) for rewards that are nowhere positive, the largest over all deterministic policies."""
    pairs = [np.flatnonzero(mdp.pair_state == s) for s in range(mdp.n_states) if not mdp.terminal[s]]
    best = np.full(mdp.n_states, -np.inf)
    for choice in product(*pairs):
        policy = np.zeros(mdp.n_pairs)
        policy[list(choice)] = 1.0
        best = np.maximum(best, policy_iterates(mdp, policy, theta))
    return best
