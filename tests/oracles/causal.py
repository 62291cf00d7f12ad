"""Policies by dense iteration, and probabilities of demonstrations step by step: slow and obvious causal models."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from limiirl.demos import Demonstrations
from limiirl.mdp import MDP
from tests.oracles.dense_planning import tensors

Float = NDArray[np.float64]


def softmax(values: Float, beta: float) -> Float:
    """exp(beta values) (S, A), each row normalised; absent actions are nan and get 0, and so do states without any."""
    weight = np.nan_to_num(np.exp(beta * (values - best(values))))
    return weight / np.maximum(weight.sum(axis=1, keepdims=True), 1e-300)


def best(values: Float) -> Float:
    """The largest of each row (S, 1), 0 where there is none."""
    top = np.where(np.isnan(values), -np.inf, values).max(axis=1, keepdims=True, initial=-np.inf)
    return np.where(np.isneginf(top), 0.0, top)


def state_values(kind: str, values: Float, beta: float) -> Float:
    """The operator of a model on the Q-values (S, A), nan where there is no action: (S,)."""
    if kind == "hard":
        return best(values)[:, 0]
    if kind == "soft":
        total = np.nan_to_num(np.exp(beta * (values - best(values)))).sum(axis=1)
        return best(values)[:, 0] + np.log(np.maximum(total, 1e-300)) / beta
    return np.asarray((softmax(values, beta) * np.nan_to_num(values)).sum(axis=1))


def q_tables(mdp: MDP, theta: Float) -> tuple[Float, Float]:
    """Return the expected reward (S, A) of each action, with the state's, nan for absent actions, and T (S, A, S)."""
    T, R = tensors(mdp, theta)
    earned = np.einsum("sat,sat->sa", T, R)
    earned[T.sum(axis=2) == 0.0] = np.nan
    return earned, T


def stationary_policy(mdp: MDP, theta: Float, kind: str, beta: float, n_backups: int | None = None) -> Float:
    """pi (S, A), by Bellman backups until nothing changes, or by n_backups from Q = r (that of the pair included)."""
    r = mdp.rewards(theta)[0][:, 0]
    earned, T = q_tables(mdp, theta)
    Q = earned
    for _ in range(100_000 if n_backups is None else n_backups):
        new = earned + mdp.gamma * T @ np.where(mdp.terminal, r, state_values(kind, Q, beta))
        change, size = np.nan_to_num(np.abs(new - Q)).max(), np.nan_to_num(np.abs(new)).max()
        Q = new
        if n_backups is None and change <= 1e-15 * size:
            break
    return softmax(Q, beta)


def horizon_policies(mdp: MDP, theta: Float, beta: float, horizon: int, *, stop: bool) -> tuple[Float, Float]:
    """pi (L, S, A) and the probability of stopping (L, S), step by step from the last."""
    r = mdp.rewards(theta)[0][:, 0]
    earned, T = q_tables(mdp, theta)
    pi, stops = np.zeros((horizon, mdp.n_states, max(mdp.n_actions, 1))), np.ones((horizon, mdp.n_states))
    V = r.copy()
    for t in range(horizon - 2, -1, -1):
        options = np.hstack([earned + mdp.gamma * T @ V, np.where(stop, r, np.nan)[:, None]])
        V = np.where(mdp.terminal, r, state_values("soft", options, beta))
        chosen = softmax(options, beta)
        pi[t] = np.where(mdp.terminal[:, None], 0.0, chosen[:, :-1])
        stops[t] = np.where(mdp.terminal, 1.0, chosen[:, -1])
    return pi, stops


def log_prob(mdp: MDP, demos: Demonstrations, pi: Float, stops: Float | None = None) -> Float:
    """log p (N,): start, then each step summed over the actions it may have been; pi (S, A), or (L, S, A) by step."""
    T, _ = tensors(mdp, np.zeros(mdp.n_features))
    log_p = np.zeros(len(demos))
    for i, demo in enumerate(demos):
        p = float(mdp.p0[demo.states[0]])
        for t, (s, target) in enumerate(zip(demo.states[:-1], demo.states[1:], strict=True)):
            now = pi if pi.ndim == 2 else pi[t]
            a = -1 if demo.actions is None else int(demo.actions[t])
            p *= sum(now[s, b] * T[s, b, target] for b in range(now.shape[1])) if a < 0 else now[s, a] * T[s, a, target]
        if stops is not None:
            p *= stops[len(demo.states) - 1, demo.states[-1]]
        log_p[i] = math.log(p)
    return log_p
