"""Agents under Sigma-GIRL, reduced to what EM asks of them: policies are cloned and Jacobians taken once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from limiirl.demos.agents import Agents
from limiirl.demos.units import Units
from limiirl.errors import InvalidDemos, NumericalError
from limiirl.irl import checks
from limiirl.irl.base import FitResult
from limiirl.irl.optimise import Box, minimise_lbfgs
from limiirl.irl.prepared import Int, Maximised, Prepared
from limiirl.irl.sigma_cloning import clone_policy
from limiirl.irl.sigma_jacobians import Spread, jacobians, spread
from limiirl.irl.sigma_likelihood import PROFILES, Profile

if TYPE_CHECKING:
    from limiirl.irl.sigma_girl import SigmaGIRL

Float = NDArray[np.float64]
# Weights whose sum is this near 1 are on the simplex.
_ON_SIMPLEX = 1e-9


class PreparedSigma(Prepared):
    """Units of agents under a Sigma-GIRL model.

    Parameters
    ----------
    model : SigmaGIRL
    agents : Agents
    units : Units
        Each agent by itself, or groups that share an intent.
    """

    def __init__(self, model: SigmaGIRL, agents: Agents, units: Units) -> None:
        super().__init__(model, None, agents, units)  # type: ignore[arg-type]
        gamma, ridge = checks.positive(model.gamma, "gamma"), checks.positive(model.ridge, "ridge")
        floor = checks.positive(model.baseline_floor, "baseline_floor", zero=True)
        self.spreads: list[Spread] = []
        for i, agent in enumerate(agents):
            if not np.any(agent.reward_features):
                raise InvalidDemos(
                    f"Agent {i} collects no reward features: they are 0 in all its steps. Record them, or leave it out."
                )
            J = jacobians(clone_policy(agent, ridge, i).scores, agent.reward_features, gamma, floor)
            if not np.all(np.isfinite(J)):
                raise NumericalError(f"The Jacobians of agent {i} are beyond float64. Rescale its features.")
            self.spreads.append(spread(J, i))
        self.profile: Profile = PROFILES[model.covariance](self.spreads)

    @property
    def n_parameters(self) -> int:
        """Number of reward features, q."""
        return int(self.spreads[0].mean.shape[1])

    def log_prob(self, thetas: Float) -> Float:
        """Return (G, K): -obj / 2 - log det(2 pi Sigma) / 2, summed over a unit's agents."""
        return self.units.total(-0.5 * self.profile.values(thetas) - 0.5 * self.profile.log_det[:, None])

    def maximise(self, moments: Float, starts: Float | None, which: Int, max_evaluations: int) -> Maximised:
        """Return weights (J, q) on the simplex for the intents `which`; never worse than the starts."""
        results = self.search(self.units.spread(moments[:, which]), starts, max_evaluations)
        return Maximised(np.array([found.theta for found in results]), max(found.n_evaluations for found in results))

    def search(self, weights: Float, starts: Float | None, max_evaluations: int) -> list[FitResult]:
        """Return for each column of weights (M, J) the omega that minimises sum_i weights_i obj_i / 2.

        The objective has several minima, so that the best is taken of searches from the uniform weights, from points
        drawn on the simplex, always the same, and from the start (J, q) where there is one. Each may take
        `max_evaluations`. It does not depend on the length of omega, so that a search among weights that are not
        negative is one on the simplex.
        """
        q, K = self.n_parameters, weights.shape[1]
        n_starts = checks.count(self.model.n_starts, "n_starts")
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
        tol = checks.positive(self.model.tol, "tol") * np.maximum(1.0, np.repeat(lowest, per_column)) / q
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

    def project(self, thetas: Float) -> Float:
        """Return weights (K, q) on the simplex: negative ones become 0, and the rest is divided by its sum."""
        positive = np.maximum(thetas, 0.0)
        total = positive.sum(axis=1, keepdims=True)
        scaled = np.where(np.abs(total - 1.0) <= _ON_SIMPLEX, positive, positive / np.where(total > 0.0, total, 1.0))
        return np.where(total > 0.0, scaled, 1.0 / thetas.shape[1])


class _Weighted:
    """Functions of omega for the optimiser: function r is that of column columns[r] of the weights (M, K)."""

    def __init__(self, profile: Profile, weights: Float, columns: Int) -> None:
        self.profile, self.weights, self.columns = profile, weights, columns

    def evaluate(self, thetas: Float, which: Int) -> tuple[Float, Float]:
        """Return the weighted means of obj / 2, and their gradients; inf at zero, where there is no direction."""
        values, gradients = np.full(len(thetas), np.inf), np.zeros(thetas.shape)
        for j, (theta, column) in enumerate(zip(thetas, self.columns[which], strict=True)):
            if np.any(theta != 0.0):
                obj, slopes = self.profile.gradients(theta)
                values[j], gradients[j] = 0.5 * self.weights[:, column] @ obj, 0.5 * self.weights[:, column] @ slopes
        return values, gradients

    def hessian(self, theta: Float, k: int) -> Float:
        """Not to be had: the functions are not convex, and are minimised by their gradients."""
        raise NotImplementedError
