"""Straightforward values and gradients of causal models in numpy and scipy.sparse, for one reward.

Soft and hard values are computed by value iteration to convergence, and the adjoint by one linear solve: dense up to
250 states, otherwise `spsolve`. Finite horizons and the softmax average use stored backups and reverse-mode
differentiation.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.linalg import spsolve

from limiirl import MDP, MaxCausalEnt
from limiirl.irl.causal.problem import CausalLikelihood

Float = NDArray[np.float64]
_CHANGE = 1e-12


class Plain:
    """An MDP as matrices: state-action pairs of each state, and transition probabilities."""

    def __init__(self, mdp: MDP, objective: CausalLikelihood) -> None:
        S, P = mdp.n_states, mdp.n_pairs
        self.mdp, self.objective, self.small = mdp, objective, S <= 250
        self.owner = mdp.pair_state
        self.T: Any = sparse.csr_array((mdp.prob, (mdp.pair_of_edge, mdp.dst)), shape=(P, S))
        self.sum: Any = sparse.csr_array((np.ones(P), (self.owner, np.arange(P))), shape=(S, P))
        if self.small:
            self.T, self.sum = self.T.toarray(), self.sum.toarray()
        self.alive = np.unique(self.owner)
        self.first = np.searchsorted(self.owner, self.alive)
        self.moves, self.share = objective.decisions.candidates, objective._mean_counts

    def best(self, Q: Float) -> Float:
        """Return the largest Q (S,) of each state, or 0 if it has no actions."""
        top = np.zeros(self.mdp.n_states)
        top[self.alive] = np.maximum.reduceat(Q, self.first)
        return top

    def soft(self, Q: Float, beta: float, stop: bool = False) -> tuple[Float, Float]:
        """Return the log-sum-exp (S,) and the policy (P,)."""
        top = np.maximum(self.best(Q), 0.0) if stop else self.best(Q)
        weight = np.exp(beta * (Q - top[self.owner]))
        total = self.sum @ weight + (np.exp(-beta * top) if stop else 0.0)
        total[total == 0.0] = 1.0
        norm = top + np.log(total) / beta
        norm[np.setdiff1d(np.arange(norm.size), self.alive, assume_unique=True)] = 0.0
        return norm, weight / total[self.owner]

    def gradient_of_Q(self, counts: Float, pi: Float, beta: float, stops: Float | float = 0.0) -> Float:
        """Return the derivative (P,) with respect to Q of the log-likelihood of counts (P,) and stops (S,)."""
        return np.asarray(beta * (counts - pi * (self.sum @ counts + stops)[self.owner]))

    def features(self, node: Float) -> Float:
        """Return the gradient (d,) from derivatives with respect to state rewards."""
        return np.asarray(self.mdp.state_features.T @ node)


def formulation(model: Any, mdp: MDP, objective: CausalLikelihood) -> Callable[[Float, int], tuple[float, Float]]:
    """Return a function of theta and k that returns value and gradient, for recorded actions and state features."""
    plain = Plain(mdp, objective)
    if isinstance(model, MaxCausalEnt) and model.max_length != math.inf:
        return lambda theta, k: _horizon(plain, theta, k, model.beta, model.max_length)
    if isinstance(model, MaxCausalEnt):
        return lambda theta, k: _stationary(plain, theta, k, model.beta, soft=True)
    if model.q == "hard":
        return lambda theta, k: _stationary(plain, theta, k, model.beta, soft=False)
    return lambda theta, k: _average(plain, theta, k, model.beta, model.n_backups)


def _stationary(plain: Plain, theta: Float, k: int, beta: float, *, soft: bool) -> tuple[float, Float]:
    mdp, r = plain.mdp, plain.mdp.state_features @ theta
    V = r.copy()
    while True:
        Q = mdp.gamma * (plain.T @ V)
        new = r + (plain.soft(Q, beta)[0] if soft else plain.best(Q))
        change, V = float(np.max(np.abs(new - V))), new
        if change <= _CHANGE * float(np.max(np.abs(V))):
            break
    norm, pi = plain.soft(Q, beta)
    ties = (plain.best(Q)[plain.owner] - Q <= 1e-9 * float(np.max(np.abs(V)))).astype(np.float64)
    omega = pi if soft else ties / (plain.sum @ ties)[plain.owner]
    share = plain.share[:, k]
    counts = np.bincount(plain.moves.pair, share, minlength=mdp.n_pairs)
    grad_Q = plain.gradient_of_Q(counts, pi, beta)
    right = mdp.gamma * (plain.T.T @ grad_Q)
    if plain.small:
        mu = np.linalg.solve(np.eye(mdp.n_states) - mdp.gamma * ((plain.sum * omega) @ plain.T).T, right)
    else:
        chosen: Any = plain.sum * omega[None]
        mu = spsolve(sparse.csc_array(sparse.eye_array(mdp.n_states) - mdp.gamma * (chosen @ plain.T).T), right)
    value = -beta * float(share @ (Q[plain.moves.pair] - norm[plain.moves.state]))
    return value, -plain.features(mu)


def _horizon(plain: Plain, theta: Float, k: int, beta: float, horizon: int) -> tuple[float, Float]:
    mdp, r, moves = plain.mdp, plain.mdp.state_features @ theta, plain.moves
    values, value = [r], 0.0
    share = plain.share[:, k]
    for t in range(horizon - 2, -1, -1):
        Q = mdp.gamma * (plain.T @ values[-1])
        norm, _ = plain.soft(Q, beta, stop=True)
        values.append(r + norm)
        made = slice(moves.ptr[t], moves.ptr[t + 1])
        taken = np.where(moves.pair[made] >= 0, Q[moves.pair[made]], 0.0)
        value -= beta * float(share[made] @ (taken - norm[moves.state[made]]))
    node, mu = np.zeros(mdp.n_states), np.zeros(mdp.n_states)
    for t in range(horizon - 1):
        Q = mdp.gamma * (plain.T @ values[horizon - 2 - t])
        _, pi = plain.soft(Q, beta, stop=True)
        made = slice(moves.ptr[t], moves.ptr[t + 1])
        pair, weight = moves.pair[made], share[made]
        counts = np.bincount(pair[pair >= 0], weight[pair >= 0], minlength=mdp.n_pairs)
        stops = np.bincount(moves.state[made][pair < 0], weight[pair < 0], minlength=mdp.n_states)
        node += mu
        mu = mdp.gamma * (plain.T.T @ (plain.gradient_of_Q(counts, pi, beta, stops) + pi * mu[plain.owner]))
    return value, -plain.features(node + mu)


def _average(plain: Plain, theta: Float, k: int, beta: float, n_backups: int) -> tuple[float, Float]:
    mdp, r = plain.mdp, plain.mdp.state_features @ theta
    tables = [np.zeros(mdp.n_pairs)]
    for _ in range(n_backups):
        _, pi = plain.soft(tables[-1], beta)
        tables.append(mdp.gamma * (plain.T @ (r + plain.sum @ (pi * tables[-1]))))
    norm, pi = plain.soft(tables[-1], beta)
    share = plain.share[:, k]
    counts = np.bincount(plain.moves.pair, share, minlength=mdp.n_pairs)
    grad_Q, node = plain.gradient_of_Q(counts, pi, beta), np.zeros(mdp.n_states)
    for Q in tables[-2::-1]:
        mu = mdp.gamma * (plain.T.T @ grad_Q)
        node += mu
        _, pi = plain.soft(Q, beta)
        mean = plain.sum @ (pi * Q)
        grad_Q = mu[plain.owner] * pi * (1.0 + beta * (Q - mean[plain.owner]))
    value = -beta * float(share @ (tables[-1][plain.moves.pair] - norm[plain.moves.state]))
    return value, -plain.features(node)
