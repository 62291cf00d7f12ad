"""The profile likelihood of reward weights: how far an agent's Jacobian is from one that omega makes stationary.

spec.md, section B, step 5. With the mean Jacobian J (d, q) and its covariance, the likelihood N(J; M, Sigma) is
maximised over all M with M omega = 0. What is left is exp(-obj / 2) with

    obj(omega) = v^T B^-1 v,  v = J omega,  B = sum_jk omega_j omega_k Sigma_jk  (d x d),
    d obj / d omega_i = 2 J_i . y - 2 y^T (sum_j omega_j Sigma_ij) y,  y = B^-1 v.

It does not depend on the length of omega, and is not convex. The covariance of all d q entries is never formed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve

from limiirl.irl.sigma_jacobians import Spread

Float = NDArray[np.float64]
_LOG_2PI = float(np.log(2.0 * np.pi))


class Profile(Protocol):
    """The profile likelihoods of M agents."""

    log_det: Float
    """(M,): log det(2 pi Sigma), which no omega changes."""

    def values(self, omegas: Float) -> Float:
        """Return obj (M, K) at omegas (K, q), none of them zero."""
        ...

    def gradients(self, omega: Float) -> tuple[Float, Float]:
        """Return obj (M,) and its gradients (M, q) at omega (q,)."""
        ...


class DiagonalProfile:
    """Agents whose Jacobians' entries are taken as uncorrelated: O(d q) an agent, all agents in one product.

    Examples
    --------
    >>> from limiirl.irl.sigma_jacobians import spread
    >>> J = np.random.default_rng(0).normal(size=(9, 4, 2)) * [1.0, 0.0] + [0.0, 1.0]
    >>> profile = DiagonalProfile([spread(J)])
    >>> profile.values(np.array([[1.0, 0.0], [0.5, 0.5]])).round(2)  # the second feature could be raised
    array([[ 3.85, 44.69]])
    """

    def __init__(self, agents: Sequence[Spread]) -> None:
        counts = [len(agent.mean) for agent in agents]
        self._starts = np.cumsum([0, *counts[:-1]])
        self._mean = np.concatenate([agent.mean for agent in agents])
        self._variances = np.concatenate([agent.variances for agent in agents])
        log_rows = np.sum(np.log(self._variances) + _LOG_2PI, axis=1)
        self.log_det = np.add.reduceat(log_rows, self._starts)

    def values(self, omegas: Float) -> Float:
        """Return obj (M, K) at omegas (K, q)."""
        v, B = self._mean @ omegas.T, self._variances @ (omegas**2).T
        return np.asarray(np.add.reduceat(v**2 / B, self._starts, axis=0))

    def gradients(self, omega: Float) -> tuple[Float, Float]:
        """Return obj (M,) and its gradients (M, q) at omega (q,)."""
        v, B = self._mean @ omega, self._variances @ omega**2
        y = (v / B)[:, None]
        rows = 2.0 * self._mean * y - 2.0 * self._variances * omega * y**2
        return np.add.reduceat(v**2 / B, self._starts), np.add.reduceat(rows, self._starts, axis=0)


class FullProfile:
    """Agents whose Jacobians' entries are correlated as they were seen to be, but for what shrinkage takes away.

    B = (1 - delta) / n^2 sum_n (D_n omega)(D_n omega)^T + delta mu / n |omega|^2 I, with D_n the deviations.

    Examples
    --------
    >>> from limiirl.irl.sigma_jacobians import spread
    >>> J = np.random.default_rng(0).normal(size=(9, 4, 2)) * [1.0, 0.0] + [0.0, 1.0]
    >>> FullProfile([spread(J)]).values(np.array([[1.0, 0.0], [0.5, 0.5]])).round(2)
    array([[ 7.71, 47.62]])
    """

    def __init__(self, agents: Sequence[Spread]) -> None:
        self._agents = agents
        self.log_det = np.array([_log_det(agent) for agent in agents])

    def values(self, omegas: Float) -> Float:
        """Return obj (M, K) at omegas (K, q)."""
        return np.array([[_solve(agent, omega)[0] for omega in omegas] for agent in self._agents])

    def gradients(self, omega: Float) -> tuple[Float, Float]:
        """Return obj (M,) and its gradients (M, q) at omega (q,)."""
        values, gradients = np.empty(len(self._agents)), np.empty((len(self._agents), omega.size))
        for i, agent in enumerate(self._agents):
            values[i], y, along = _solve(agent, omega)
            sample, ridge = _shares(agent)
            pulls = np.einsum("ndq,d->nq", agent.deviations, y)  # D_n^T y
            curvature = sample * (along @ y) @ pulls + ridge * (y @ y) * omega
            gradients[i] = 2.0 * agent.mean.T @ y - 2.0 * curvature
        return values, gradients


PROFILES: dict[str, type[DiagonalProfile | FullProfile]] = {"diagonal": DiagonalProfile, "full": FullProfile}
"""Ways to see the covariance of a Jacobian, by name."""


def _shares(agent: Spread) -> tuple[float, float]:
    """Return the factors of sum_n D_n D_n^T and of the identity in the covariance of the mean."""
    n = len(agent.deviations)
    return (1.0 - agent.shrinkage) / n**2, agent.shrinkage * agent.target / n


def _solve(agent: Spread, omega: Float) -> tuple[float, Float, Float]:
    """Return obj, y = B^-1 v (d,), and the deviations along omega (n, d)."""
    sample, ridge = _shares(agent)
    along = agent.deviations @ omega
    B = sample * along.T @ along
    B.flat[:: len(B) + 1] += ridge * float(omega @ omega)
    v = agent.mean @ omega
    y = np.asarray(cho_solve(cho_factor(B), v), dtype=np.float64)
    return float(v @ y), y, along


def _log_det(agent: Spread) -> float:
    """Return log det(2 pi Sigma) through the n x n products of deviations (Sylvester's identity)."""
    sample, ridge = _shares(agent)
    flat = agent.deviations.reshape(len(agent.deviations), -1)
    inner = np.eye(len(flat)) + sample / ridge * flat @ flat.T
    return float(flat.shape[1] * (np.log(ridge) + _LOG_2PI) + np.linalg.slogdet(inner)[1])
