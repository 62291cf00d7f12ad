"""The recursions of the specification (section C) in plain NumPy, one intent at a time, for what is too large to list.

`LogRecursion` keeps logarithms and is right for any length and reward. `gradient` works on the weights themselves, so
that it also takes complex parameters: a derivative is then the imaginary part of a step that is too small to round.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from limiirl.mdp import MDP
from tests.oracles.enumeration import dense

Array = NDArray[np.inexact]
Float = NDArray[np.float64]


def rewards(mdp: MDP, theta: Array) -> tuple[Array, Array]:
    """r(s) (S,) and r(s, a) + r(s, a, s') (E,), the pairs numbered from the edges themselves."""
    parts = np.split(theta, [mdp.n_state_features, mdp.n_state_features + mdp.n_action_features])
    r_state, r_edge = np.zeros(mdp.n_states, dtype=theta.dtype), np.zeros(mdp.n_edges, dtype=theta.dtype)
    if mdp.state_features is not None:
        r_state = r_state + mdp.state_features @ parts[0]
    if mdp.action_features is not None:
        r_edge = r_edge + (mdp.action_features @ parts[1])[pair_numbers(mdp)]
    if mdp.edge_features is not None:
        r_edge = r_edge + mdp.edge_features @ parts[2]
    return r_state, r_edge


def pair_numbers(mdp: MDP) -> NDArray[np.intp]:
    """The number of each edge's (s, a) among the sorted pairs."""
    return np.unique(mdp.src.astype(np.int64) * (mdp.n_actions + 1) + mdp.act, return_inverse=True)[1]


def features_of_counts(mdp: MDP, node: Array, edge: Array) -> Array:
    """The features (d,) of counts of states and edges."""
    of_state, of_edge = dense(mdp.state_features, mdp.n_states), dense(mdp.edge_features, mdp.n_edges)
    of_action = dense(mdp.action_features, mdp.n_edges)
    if mdp.action_features is not None:
        of_action = of_action[pair_numbers(mdp)]
    return np.concatenate([of_state.T @ node, of_action.T @ edge, of_edge.T @ edge])


class LogRecursion:
    """Forward and backward messages in log arithmetic for one theta (d,); `stop` as in `MaxEnt`.

    Attributes
    ----------
    log_Z : float
    occupancy : (L, S) p_t(s)
    moves : (L - 1, E) the probability of edge e at step t
    """

    def __init__(self, mdp: MDP, max_length: int, theta: Float, stop: str = "anywhere") -> None:
        self.mdp, self.max_length = mdp, max_length
        self.discount = mdp.gamma ** np.arange(max_length)
        r_state, r_edge = rewards(mdp, theta)
        own = self.discount[:, None] * r_state
        along = np.log(mdp.prob) + self.discount[:-1, None] * r_edge
        with np.errstate(divide="ignore"):
            log_alpha = [np.log(mdp.p0) + own[0]]
            end = np.zeros(mdp.n_states) if stop == "anywhere" else np.log(mdp.terminal.astype(np.float64))
        for t in range(max_length - 1):
            arrived = _log_gather(mdp.dst, log_alpha[t][mdp.src] + along[t], mdp.n_states)
            log_alpha.append(arrived + own[t + 1])
        log_beta = [end if stop != "terminal_or_max_length" else np.zeros(mdp.n_states)]
        for t in range(max_length - 2, -1, -1):
            continuation = along[t] + (own[t + 1] + log_beta[0])[mdp.dst]
            log_beta.insert(0, np.logaddexp(end, _log_gather(mdp.src, continuation, mdp.n_states)))
        self.log_Z = float(np.logaddexp.reduce(log_alpha[0] + log_beta[0]))
        self.occupancy = np.exp(np.array(log_alpha) + log_beta - self.log_Z)
        flows = [
            log_alpha[t][mdp.src] + along[t] + (own[t + 1] + log_beta[t + 1])[mdp.dst] for t in range(max_length - 1)
        ]
        self.moves = np.exp(np.array(flows).reshape(max_length - 1, mdp.n_edges) - self.log_Z)

    def counts(self, gain: Float) -> tuple[Float, Float]:
        """sum_t gain_t p_t of states (S,) and edges (E,)."""
        return gain @ self.occupancy, gain[:-1] @ self.moves

    def expected_features(self) -> Float:
        """E[F] (d,)."""
        return features_of_counts(self.mdp, *self.counts(self.discount))


def _log_gather(row: NDArray[np.int32], values: Float, n: int) -> Float:
    """log sum exp of the values that share a row, -inf for rows without any."""
    top = np.full(n, -np.inf)
    np.maximum.at(top, row, values)
    finite = np.where(np.isfinite(top), top, 0.0)
    total = np.bincount(row, weights=np.exp(values - finite[row]), minlength=n)
    with np.errstate(divide="ignore"):
        return finite + np.log(total)


def gradient(mdp: MDP, max_length: int, theta: Array) -> Array:
    """E[F] (d,) in plain linear arithmetic, for moderate rewards; theta may be complex."""
    discount = mdp.gamma ** np.arange(max_length)
    r_state, r_edge = rewards(mdp, theta)
    w = np.exp(discount[:, None] * r_state)
    x = mdp.prob * np.exp(discount[:-1, None] * r_edge)
    alpha, beta = [mdp.p0 * w[0]], [np.ones_like(w[0])]
    for t in range(max_length - 1):
        alpha.append(w[t + 1] * _gather(mdp.dst, x[t] * alpha[t][mdp.src], mdp.n_states))
    for t in range(max_length - 2, -1, -1):
        beta.insert(0, 1.0 + _gather(mdp.src, x[t] * (w[t + 1] * beta[0])[mdp.dst], mdp.n_states))
    Z = np.sum(alpha)
    node = sum(discount[t] * alpha[t] * beta[t] for t in range(max_length)) / Z
    edge = np.zeros(mdp.n_edges, dtype=w.dtype)
    for t in range(max_length - 1):
        edge += discount[t] * alpha[t][mdp.src] * x[t] * (w[t + 1] * beta[t + 1])[mdp.dst] / Z
    return features_of_counts(mdp, node, edge)


def _gather(row: NDArray[np.int32], values: Array, n: int) -> Array:
    sums = np.zeros(n, dtype=values.dtype)
    np.add.at(sums, row, values)
    return sums


def hessian(mdp: MDP, max_length: int, theta: Float, step: float = 1e-40) -> Float:
    """The Jacobian (d, d) of `gradient` by complex steps, exact to rounding."""
    shifts = 1j * step * np.eye(theta.size)
    return np.array([gradient(mdp, max_length, theta + shift).imag / step for shift in shifts])
