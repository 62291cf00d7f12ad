"""EM for a mixture, written plainly: dense tables of log-probabilities, scipy's logsumexp, no shortcuts."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from limiirl import MDP, Demonstrations, MaxEnt

Float = NDArray[np.float64]


def crossings() -> MDP:
    """4 x 4 crossings from which one may walk east or south; crossing 0 is home. Features: each walk's length, the
    river (third row), the park (third column)."""
    moves = [(s, t) for s in range(16) for t in (s + 1, s + 4) if t < 16 and (t != s + 1 or t % 4)]
    src, dst = zip(*moves, strict=True)
    phi = np.column_stack([np.ones(16), np.repeat([0, 0, 1, 0], 4), np.tile([0, 0, 1, 0], 4)])
    return MDP.from_edges(src, dst, p0=np.eye(16)[0], state_features=phi, feature_names=["step", "river", "park"])


TASTES = np.array([[0.5, 1.5, -0.5], [0.4, -0.5, 1.2]])
"""Two intents of overlapping behaviour on the crossings: some like the river, some the park."""


def walks(n: int, seed: int, shares: tuple[float, ...] = (0.6, 0.4)) -> tuple[Demonstrations, NDArray[np.int64]]:
    """n demonstrations of `TASTES` on the crossings, drawn exactly, with their intents."""
    rng = np.random.default_rng(seed)
    labels = np.sort(rng.choice(2, size=n, p=shares))
    irl = MaxEnt(max_length=7)
    parts = [irl.sample(crossings(), TASTES[k], int(m), rng) for k, m in enumerate(np.bincount(labels)) if m]
    order = rng.permutation(n)
    return Demonstrations.concat(parts)[order], labels[order]


def responsibilities(log_p: Float, rho: Float) -> tuple[Float, Float]:
    """U (N, K) and log-likelihoods (N,) from a table of log-probabilities (N, K)."""
    joint = log_p + np.log(rho)
    log_lik = logsumexp(joint, axis=1)
    return np.exp(joint - log_lik[:, None]), log_lik


def plain_em(irl: MaxEnt, mdp: MDP, demos: Demonstrations, U: Float, n_steps: int) -> tuple[Float, Float, list[float]]:
    """Weights, rewards and mean log-likelihoods after an M-step from U and n_steps rounds of E and M."""
    log_likelihoods = []
    rho, thetas = U.mean(axis=0), np.array([irl.fit(mdp, demos, U[:, k]) for k in range(U.shape[1])])
    for _ in range(n_steps):
        U, log_lik = responsibilities(irl.log_prob(mdp, thetas, demos), rho)
        log_likelihoods.append(float(log_lik.mean()))
        rho, thetas = U.mean(axis=0), np.array([irl.fit(mdp, demos, U[:, k]) for k in range(U.shape[1])])
    log_likelihoods.append(float(responsibilities(irl.log_prob(mdp, thetas, demos), rho)[1].mean()))
    return rho, thetas, log_likelihoods
