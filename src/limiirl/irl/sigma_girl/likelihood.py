"""The profile likelihood exp(-obj / 2) of reward weights omega under an agent's mean Jacobian J (spec.md, B, step 5).

    obj(omega) = v^T B^-1 v,  v = J omega,  B = sum_jk omega_j omega_k Sigma_jk  (d x d),
    d obj / d omega_i = 2 J_i . y - 2 y^T (sum_j omega_j Sigma_ij) y,  y = B^-1 v.

It does not depend on the length of omega, and is not convex. The covariance of all d q entries is never formed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from limiirl._typing import FloatArray, IndexArray
from limiirl._validation import check_count, check_positive
from limiirl.demos import Agents, Groups
from limiirl.errors import InvalidDemos, NumericalError
from limiirl.irl.base import FitResult
from limiirl.irl.optim import Box, minimise_lbfgs
from limiirl.irl.problem import M_STEP_EVALUATIONS, FitProblem, MStep
from limiirl.irl.sigma_girl.policy_gradient import Spread, clone_policy, jacobians, spread

if TYPE_CHECKING:
    from limiirl.irl.sigma_girl.model import SigmaGIRL

_LOG_2PI = float(np.log(2.0 * np.pi))


class DiagonalProfile:
    """Agents whose Jacobians' entries are taken as uncorrelated: O(d q) an agent, all agents in one product.

    Examples
    --------
    >>> from limiirl.irl.sigma_girl.policy_gradient import spread
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
    """Agents whose Jacobians' entries are correlated as they were seen to be, but for what shrinkage takes away.

    B = (1 - delta) / n^2 sum_n (D_n omega)(D_n omega)^T + delta mu / n |omega|^2 I, with D_n the deviations.
    """

    def __init__(self, agents: Sequence[Spread]) -> None:
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


def _solve(agent: Spread, omega: FloatArray) -> tuple[float, FloatArray, FloatArray]:
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


# Weights whose sum is this near 1 are on the simplex.
_ON_SIMPLEX = 1e-9


class SigmaProblem(FitProblem):
    """Units of agents under a Sigma-GIRL model."""

    def __init__(self, model: SigmaGIRL, agents: Agents, units: Groups) -> None:
        super().__init__(model, None, agents, units)
        gamma, ridge = check_positive(model.gamma, "gamma"), check_positive(model.ridge, "ridge")
        floor = check_positive(model.baseline_floor, "baseline_floor", zero=True)
        self.spreads: list[Spread] = []
        for i, agent in enumerate(agents):
            if not np.any(agent.reward_features):
                raise InvalidDemos(
                    f"Agent {i} has reward features of 0 in all its steps. Record them, or leave the agent out.",
                    parameter="agents",
                    index=i,
                )
            J = jacobians(clone_policy(agent, ridge, i).scores, agent.reward_features, gamma, floor)
            if not np.all(np.isfinite(J)):
                raise NumericalError(
                    f"The Jacobians of agent {i} are beyond float64. Rescale its features.", parameter="agents", index=i
                )
            self.spreads.append(spread(J, i))
        self.profile = PROFILES[model.covariance](self.spreads)

    @property
    def initial_evaluations(self) -> int:
        """Cap on the evaluations of a fit from far away."""
        return int(self.model.max_evaluations)

    @property
    def n_parameters(self) -> int:
        """Number of reward features, q."""
        return int(self.spreads[0].mean.shape[1])

    def log_prob(self, thetas: FloatArray) -> FloatArray:
        """Return (G, K): -obj / 2 - log det(2 pi Sigma) / 2, summed over a unit's agents."""
        log_prob = -0.5 * self.profile.values(thetas) - 0.5 * self.profile.log_det[:, None]
        return np.asarray(self.units.sum(log_prob))

    def m_step(
        self, moments: FloatArray, starts: FloatArray | None, which: IndexArray, max_evaluations: int | None = None
    ) -> MStep:
        """Return weights (J, q) on the simplex for the intents `which`; never worse than the starts."""
        results = self.search(self.units.broadcast(moments[:, which]), starts, max_evaluations or M_STEP_EVALUATIONS)
        return MStep(np.array([found.theta for found in results]), max(found.n_evaluations for found in results))

    def search(self, weights: FloatArray, starts: FloatArray | None, max_evaluations: int) -> list[FitResult]:
        """Return for each column of weights (M, J) the omega that minimises sum_i weights_i obj_i / 2.

        The objective has several minima, so that the best is taken of searches from the uniform weights, from points
        drawn on the simplex, always the same, and from the start (J, q) where there is one. Each may take
        `max_evaluations`. It does not depend on the length of omega, so that a search among weights that are not
        negative is one on the simplex.
        """
        q, K = self.n_parameters, weights.shape[1]
        n_starts = check_count(self.model.n_starts, "n_starts")
        drawn = np.random.default_rng(self.model.random_state).dirichlet(np.ones(q), n_starts)
        common = np.vstack([np.full(q, 1.0 / q), drawn])
        tried = [common if starts is None else np.vstack([self.project(starts[k : k + 1]), common]) for k in range(K)]
        per_column = len(tried[0])
        objective = _Weighted(self.profile, weights / weights.sum(axis=0), np.repeat(np.arange(K), per_column))
        # Gradients shrink as omega grows: without a roof, a search could meet its tolerance by walking away. Under one
        # it ends at the same points: a slope that the roof holds would be one along omega, and there is none.
        box = Box(np.zeros(q), np.ones(q))
        points = np.concatenate(tried)
        lowest = objective.evaluate(points, np.arange(len(points)))[0].reshape(K, per_column).min(axis=1)
        # On the simplex a gradient is at most q times what it is in the corner of the box.
        tol = check_positive(self.model.gtol, "gtol") * np.maximum(1.0, np.repeat(lowest, per_column)) / q
        found = minimise_lbfgs(objective, points, box, np.repeat(tol[:, None], q, axis=1), max_evaluations)
        return [self._best(found[k * per_column : (k + 1) * per_column]) for k in range(K)]

    def _best(self, found: list[FitResult]) -> FitResult:
        """Return the lowest of several results, the first of equals, on the simplex."""
        best = found[int(np.argmin([result.value for result in found]))]
        return FitResult(
            self.project(best.theta[None])[0],
            best.value,
            best.status,
            sum(result.n_evaluations for result in found),
            0,
            best.projected_gradient,
        )

    def project(self, thetas: FloatArray) -> FloatArray:
        """Return weights (K, q) on the simplex: negative ones become 0, and the rest is divided by its sum."""
        positive = np.maximum(thetas, 0.0)
        total = positive.sum(axis=1, keepdims=True)
        scaled = np.where(np.abs(total - 1.0) <= _ON_SIMPLEX, positive, positive / np.where(total > 0.0, total, 1.0))
        return np.where(total > 0.0, scaled, 1.0 / thetas.shape[1])


class _Weighted:
    """Functions of omega for the optimiser: function r is that of column columns[r] of the weights (M, K)."""

    def __init__(self, profile: DiagonalProfile | FullProfile, weights: FloatArray, columns: IndexArray) -> None:
        self.profile, self.weights, self.columns = profile, weights, columns

    def evaluate(self, thetas: FloatArray, which: IndexArray) -> tuple[FloatArray, FloatArray]:
        """Return the weighted means of obj / 2, and their gradients; inf at zero, where there is no direction."""
        values, gradients = np.full(len(thetas), np.inf), np.zeros(thetas.shape)
        for j, (theta, column) in enumerate(zip(thetas, self.columns[which], strict=True)):
            if np.any(theta != 0.0):
                obj, slopes = self.profile.gradients(theta)
                values[j], gradients[j] = 0.5 * self.weights[:, column] @ obj, 0.5 * self.weights[:, column] @ slopes
        return values, gradients
