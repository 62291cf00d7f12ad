"""Sigma-GIRL slowly: Jacobians by loops, covariances and Kronecker products in full; and agents of known weights."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from sklearn.covariance import ledoit_wolf

from limiirl.demos.agents import Agents

Float = NDArray[np.float64]


def jacobians_by_loops(scores: Float, phi: Float, gamma: float, floor: float = 0.0) -> Float:
    """(n, d, q): the sum over t of G_t (gamma^t phi_t - B_t), entry by entry."""
    n, H, d = scores.shape
    q = phi.shape[2]
    jacobians = np.zeros((n, d, q))
    for i in range(d):
        for j in range(q):
            for t in range(H):
                G = [float(np.sum(scores[k, : t + 1, i])) for k in range(n)]
                reward = [gamma**t * phi[k, t, j] for k in range(n)]
                above = sum(G[k] ** 2 * reward[k] for k in range(n))
                total = sum(g**2 for g in G) + floor
                baseline = above / total if total > 0.0 else 0.0
                for k in range(n):
                    jacobians[k, i, j] += G[k] * (reward[k] - baseline)
    return jacobians


def vec(J: Float) -> Float:
    """The columns of (d, q) one below the other."""
    return np.asarray(J.flatten(order="F"))


def dense_covariance(J: Float, *, diagonal: bool) -> Float:
    """(d q, d q): the shrunk covariance of the mean of Jacobians (n, d, q), in the order of `vec`."""
    rows = np.array([vec(one) for one in J])
    covariance = np.asarray(ledoit_wolf(rows)[0]) / len(rows)
    return np.diag(np.diag(covariance)) if diagonal else covariance


def kronecker_objective(mean: Float, covariance: Float, omega: Float) -> float:
    """v^T (A^T Sigma A)^-1 v with A = omega (x) I formed in full, v = A^T vec(J)."""
    A = np.kron(omega[:, None], np.eye(len(mean)))
    v = A.T @ vec(mean)
    return float(v @ np.linalg.solve(A.T @ covariance @ A, v))


def log_likelihood_by_search(mean: Float, covariance: Float, omega: Float) -> float:
    """The largest log N(vec J; vec M, Sigma) among M with M omega = 0, by least squares over all such M."""
    q = omega.size
    # Rows of M are orthogonal to omega: combinations of the other directions of an orthonormal basis.
    others = np.linalg.svd(omega[None])[2][1:]
    columns = [vec(np.outer(unit, other)) for unit in np.eye(len(mean)) for other in others]
    whiten = np.linalg.inv(np.linalg.cholesky(covariance))
    basis = np.array(columns).T if q > 1 else np.zeros((mean.size, 1))
    residual = vec(mean) - basis @ np.linalg.lstsq(whiten @ basis, whiten @ vec(mean), rcond=None)[0]
    log_det = float(np.linalg.slogdet(2.0 * np.pi * covariance)[1])
    return -0.5 * float(np.sum((whiten @ residual) ** 2)) - 0.5 * log_det


def central_differences(function: Any, at: Float, step: float) -> Float:
    """The gradient of a scalar function."""
    return np.array([(function(at + step * e) - function(at - step * e)) / (2.0 * step) for e in np.eye(at.size)])


def best_gain(omega: Float, noise: float, horizon: int, gamma: float) -> float:
    """The gain k of a = -k s + noise that maximises E sum_t gamma^t (-omega_0 s_t^2 - omega_1 a_t^2), s' = s + a."""

    def cost(k: float) -> float:
        square, total = 1.0, 0.0  # E s_t^2, from s_0 ~ N(0, 1)
        for t in range(horizon):
            total += gamma**t * (omega[0] * square + omega[1] * (k**2 * square + noise**2))
            square = (1.0 - k) ** 2 * square + noise**2
        return total

    optimum: Any = minimize_scalar(cost, bounds=(0.0, 1.0), method="bounded", options={"xatol": 1e-10})
    return float(optimum.x)


def regulators(
    omegas: Float, n: int, seed: int, *, noise: float = 0.5, horizon: int = 6, gamma: float = 0.9, **known: Any
) -> Agents:
    """One agent for each row of omegas (M, 2): the best linear regulator in two dimensions, recorded n times."""
    rng = np.random.default_rng(seed)
    x, actions, phi = [], [], []
    for omega in omegas:
        k = best_gain(omega, noise, horizon, gamma)
        states, moves = np.empty((n, horizon, 2)), np.empty((n, horizon, 2))
        s = rng.normal(size=(n, 2))
        for t in range(horizon):
            a = -k * s + noise * rng.normal(size=(n, 2))
            states[:, t], moves[:, t] = s, a
            s = s + a
        x.append(states)
        actions.append(moves)
        phi.append(np.stack([-np.sum(states**2, axis=2), -np.sum(moves**2, axis=2)], axis=2))
    return Agents.from_arrays(x, actions, phi, **known)


def pickers(n: int, seed: int, n_actions: int = 3) -> Agents:
    """Three agents of random softmax policies over numbered actions, with rewards that depend on the action."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(3, n, 5, 2))
    gumbel = rng.gumbel(size=(3, n, 5, n_actions))
    actions = np.argmax(x @ rng.normal(size=(3, 1, 2, n_actions)) + gumbel, axis=-1)
    phi = np.stack([x[..., 0] * (actions == 0), x[..., 1] * (actions == 1), -1.0 * (actions == 0)], axis=-1)
    return Agents.from_arrays(list(x), list(actions), list(phi))
