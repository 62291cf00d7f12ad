"""Profile likelihood exp(-obj / 2) of reward weights omega given an agent's mean Jacobian J.

    obj(omega) = v^T B^-1 v,  v = J omega,  B = sum_jk omega_j omega_k Sigma_jk  (d x d),
    d obj / d omega_i = 2 J_i . y - 2 y^T (sum_j omega_j Sigma_ij) y,  y = B^-1 v.

Sigma is the covariance matrix of the d q entries of J, with blocks Sigma_jk (d x d). It is never computed as a whole.
obj does not depend on |omega|, and is not convex.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from limiirl._typing import BoolArray, FloatArray, IndexArray
from limiirl._validation import check_count, check_positive
from limiirl.demos import Agents, Groups
from limiirl.errors import IdentifiabilityWarning, InvalidDemos, NumericalError
from limiirl.irl.base import FitResult
from limiirl.irl.optim import Box, difference_hessian, minimise_lbfgs
from limiirl.irl.problem import FitProblem, MStep
from limiirl.irl.sigma_girl.policy_gradient import JacobianMoments, clone_policy, jacobian_moments, jacobians

if TYPE_CHECKING:
    from limiirl.irl.sigma_girl.model import SigmaGIRL

_LOG_2PI = float(np.log(2.0 * np.pi))


class DiagonalProfile:
    """Profile likelihood of agents with diagonal covariance matrices, in O(d q) per agent."""

    def __init__(self, agents: Sequence[JacobianMoments]) -> None:
        counts = [len(agent.mean) for agent in agents]
        self._starts = np.cumsum([0, *counts[:-1]])
        self._mean = np.concatenate([agent.mean for agent in agents])
        self._variances = np.concatenate([agent.variances for agent in agents])
        log_rows = np.sum(np.log(self._variances) + _LOG_2PI, axis=1)
        self.log_det = np.add.reduceat(log_rows, self._starts)

    def values(self, omegas: FloatArray) -> FloatArray:
        """Return obj (M, K) at omegas (K, q)."""
        v, B = self._mean @ omegas.T, self._variances @ (omegas**2).T
        return np.asarray(np.add.reduceat(v**2 / B, self._starts, axis=0))

    def gradients(self, omega: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return obj (M,) and its gradients (M, q) at omega (q,)."""
        v, B = self._mean @ omega, self._variances @ omega**2
        y = (v / B)[:, None]
        rows = 2.0 * self._mean * y - 2.0 * self._variances * omega * y**2
        return np.add.reduceat(v**2 / B, self._starts), np.add.reduceat(rows, self._starts, axis=0)


class FullProfile:
    """Profile likelihood of agents with full covariance matrices, shrunk by delta towards mu I.

    The covariance of the mean Jacobian times omega is

        B = (1 - delta) / n^2 sum_i (D_i omega)(D_i omega)^T + delta mu / n |omega|^2 I,

    where D_i is the deviation of Jacobian i from the mean, and mu is the mean variance of an entry.
    """

    def __init__(self, agents: Sequence[JacobianMoments]) -> None:
        self._agents = agents
        self.log_det = np.array([_log_det(agent) for agent in agents])

    def values(self, omegas: FloatArray) -> FloatArray:
        """Return obj (M, K) at omegas (K, q)."""
        return np.array([[_solve(agent, omega)[0] for omega in omegas] for agent in self._agents])

    def gradients(self, omega: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return obj (M,) and its gradients (M, q) at omega (q,)."""
        values, gradients = np.empty(len(self._agents)), np.empty((len(self._agents), omega.size))
        for i, agent in enumerate(self._agents):
            values[i], y, along = _solve(agent, omega)
            sample, ridge = _covariance_factors(agent)
            projected = np.einsum("ndq,d->nq", agent.deviations, y)  # D_i^T y
            curvature = sample * (along @ y) @ projected + ridge * (y @ y) * omega
            gradients[i] = 2.0 * agent.mean.T @ y - 2.0 * curvature
        return values, gradients


PROFILES: dict[str, type[DiagonalProfile | FullProfile]] = {"diagonal": DiagonalProfile, "full": FullProfile}
"""Profile likelihoods by the value of the parameter `covariance`."""


def _covariance_factors(agent: JacobianMoments) -> tuple[float, float]:
    """Return the coefficients of sum_i D_i D_i^T and of I in the covariance of the mean Jacobian."""
    n = len(agent.deviations)
    return (1.0 - agent.shrinkage) / n**2, agent.shrinkage * agent.target / n


def _solve(agent: JacobianMoments, omega: FloatArray) -> tuple[float, FloatArray, FloatArray]:
    """Return obj, y = B^-1 v (d,), and the vectors D_i omega (n, d)."""
    sample, ridge = _covariance_factors(agent)
    along = agent.deviations @ omega
    B = sample * along.T @ along
    B.flat[:: len(B) + 1] += ridge * float(omega @ omega)
    v = agent.mean @ omega
    y = np.asarray(cho_solve(cho_factor(B), v), dtype=np.float64)
    return float(v @ y), y, along


def _log_det(agent: JacobianMoments) -> float:
    """Return log det(2 pi Sigma) from the (n, n) inner products of deviations (Sylvester's identity)."""
    sample, ridge = _covariance_factors(agent)
    flat = agent.deviations.reshape(len(agent.deviations), -1)
    inner = np.eye(len(flat)) + sample / ridge * flat @ flat.T
    return float(flat.shape[1] * (np.log(ridge) + _LOG_2PI) + np.linalg.slogdet(inner)[1])


# Step of central differences of gradients at points on the simplex.
_STEP = 1e-5
# Tolerance on the sum of weights on the simplex.
_ON_SIMPLEX = 1e-9


class SigmaProblem(FitProblem):
    """Fit problem of `SigmaGIRL`."""

    up_to_scale = True

    def __init__(
        self, model: SigmaGIRL, agents: Agents, units: Groups, jacobian_moments: Sequence[JacobianMoments]
    ) -> None:
        super().__init__(model, None, agents, units)
        self.jacobian_moments = jacobian_moments
        self.profile = PROFILES[model.covariance](jacobian_moments)

    @classmethod
    def from_agents(cls, model: SigmaGIRL, agents: Agents, units: Groups) -> SigmaProblem:
        """Clone the policy of each agent, and return the fit problem for the moments of the Jacobians."""
        gamma, ridge = check_positive(model.gamma, "gamma"), check_positive(model.ridge, "ridge")
        floor = check_positive(model.baseline_floor, "baseline_floor", zero=True)
        moments: list[JacobianMoments] = []
        for i, agent in enumerate(agents):
            if not np.any(agent.reward_features):
                raise InvalidDemos(
                    f"agents[{i}] must have nonzero reward features.", parameter="agents", value=0.0, index=i
                )
            J = jacobians(clone_policy(agent, ridge, i).scores, agent.reward_features, gamma, floor)
            if not np.all(np.isfinite(J)):
                raise NumericalError(
                    f"The Jacobians of agents[{i}] overflow float64. Rescale its features.", parameter="agents", index=i
                )
            moments.append(jacobian_moments(J, i))
        return cls(model, agents, units, moments)

    @property
    def initial_evaluations(self) -> int:
        """Maximum number of evaluations of an initial fit."""
        return int(self.model.max_evaluations)

    @property
    def n_parameters(self) -> int:
        """Number of reward features, q."""
        return int(self.jacobian_moments[0].mean.shape[1])

    def log_prob(self, thetas: FloatArray) -> FloatArray:
        """Return the log-likelihood (G, K): -obj / 2 - log det(2 pi Sigma) / 2, summed over the agents of a unit."""
        log_prob = -0.5 * self.profile.values(thetas) - 0.5 * self.profile.log_det[:, None]
        return np.asarray(self.units.sum(log_prob))

    def curvature(self, U: FloatArray, thetas: FloatArray, free: BoolArray) -> FloatArray:
        """Return -sum_i u_ik Hessian(log p_ik) (K, q, q), with 2 q evaluations of the gradient per intent."""
        objective = _WeightedProfiles(self.profile, self.units.broadcast(U), np.arange(len(thetas)))

        def evaluate(theta: FloatArray, k: int) -> tuple[float, FloatArray]:
            values, gradients = objective.evaluate(theta[None], np.array([k]))
            return float(values[0]), gradients[0]

        return np.array(
            [
                difference_hessian(partial(evaluate, k=k), theta, np.full(theta.size, _STEP), free[k])
                for k, theta in enumerate(thetas)
            ]
        )

    def warn_of_features(self, stacklevel: int) -> None:
        """Issue an `IdentifiabilityWarning` about features that are the same in all trajectories of every agent."""
        same = [np.all(agent.reward_features == agent.reward_features[:1], axis=(0, 1)) for agent in self.demos]
        constant = np.flatnonzero(np.all(same, axis=0))
        if constant.size:
            listed = ", ".join(map(str, constant.tolist()))
            warnings.warn(
                f"Reward features {listed} are the same in all trajectories of every agent, so their weights are not "
                "identified. Drop them.",
                IdentifiabilityWarning,
                stacklevel=stacklevel + 1,
            )

    def m_step(
        self, moments: FloatArray, starts: FloatArray | None, which: IndexArray, max_evaluations: int | None = None
    ) -> MStep:
        """See `FitProblem.m_step`; thetas (J, q) lie on the simplex."""
        weights = self.units.broadcast(moments[:, which])
        return MStep.from_results(self.search(weights, starts, self.limit_evaluations(max_evaluations)))

    def search(self, weights: FloatArray, starts: FloatArray | None, max_evaluations: int) -> list[FitResult]:
        """Return, for each column of weights (M, J), the omega that minimises sum_i weights_i obj_i / 2.

        The result is the best of several local searches with at most `max_evaluations` evaluations each. They start at
        uniform weights, at fixed random points on the simplex, and at `starts` (J, q) if given. Because obj does not
        depend on |omega|, the searches are over nonnegative omega.
        """
        q, K = self.n_parameters, weights.shape[1]
        n_starts = check_count(self.model.n_starts, "n_starts")
        drawn = np.random.default_rng(self.model.random_state).dirichlet(np.ones(q), n_starts)
        common = np.vstack([np.full(q, 1.0 / q), drawn])
        points = [common if starts is None else np.vstack([self.project(starts[k : k + 1]), common]) for k in range(K)]
        per_column = len(points[0])
        objective = _WeightedProfiles(self.profile, weights / weights.sum(axis=0), np.repeat(np.arange(K), per_column))
        # Gradients decrease as |omega| increases. Without an upper bound, scaling omega could therefore meet the
        # tolerance. The bound does not change the solutions, because obj does not depend on |omega|.
        box = Box(np.zeros(q), np.ones(q))
        first = np.concatenate(points)
        lowest = objective.evaluate(first, np.arange(len(first)))[0].reshape(K, per_column).min(axis=1)
        # Rescaling omega from the box to the simplex multiplies its gradient by sum(omega) <= q.
        tol = check_positive(self.model.gtol, "gtol") * np.maximum(1.0, np.repeat(lowest, per_column)) / q
        results = minimise_lbfgs(objective, first, box, np.repeat(tol[:, None], q, axis=1), max_evaluations)
        return [self._best(results[k * per_column : (k + 1) * per_column]) for k in range(K)]

    def _best(self, results: list[FitResult]) -> FitResult:
        best = results[int(np.argmin([result.value for result in results]))]
        n_evaluations = sum(result.n_evaluations for result in results)
        return replace(best, theta=self.project(best.theta[None])[0], n_evaluations=n_evaluations, n_hessians=0)

    def project(self, thetas: FloatArray) -> FloatArray:
        """Project thetas (K, q) onto the simplex: negative entries are set to 0, and rows are normalised."""
        positive = np.maximum(thetas, 0.0)
        total = positive.sum(axis=1, keepdims=True)
        scaled = np.where(np.abs(total - 1.0) <= _ON_SIMPLEX, positive, positive / np.where(total > 0.0, total, 1.0))
        return np.where(total > 0.0, scaled, 1.0 / thetas.shape[1])


class _WeightedProfiles:
    """Objectives for an optimiser; function r is the mean of obj / 2 with weights `weights[:, columns[r]]` (M,)."""

    def __init__(self, profile: DiagonalProfile | FullProfile, weights: FloatArray, columns: IndexArray) -> None:
        self.profile, self.weights, self.columns = profile, weights, columns

    def evaluate(self, thetas: FloatArray, which: IndexArray) -> tuple[FloatArray, FloatArray]:
        """Return the weighted means of obj / 2 and their gradients; inf at omega = 0."""
        values, gradients = np.full(len(thetas), np.inf), np.zeros(thetas.shape)
        for j, (theta, column) in enumerate(zip(thetas, self.columns[which], strict=True)):
            if np.any(theta != 0.0):
                obj, by_agent = self.profile.gradients(theta)
                values[j], gradients[j] = 0.5 * self.weights[:, column] @ obj, 0.5 * self.weights[:, column] @ by_agent
        return values, gradients
