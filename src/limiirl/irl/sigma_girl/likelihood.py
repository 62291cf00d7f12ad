"""Behaviour cloning, Jacobians of reward features with GPOMDP, and the profile likelihood of reward weights omega.

The profile likelihood of an agent with mean Jacobian J is exp(-obj / 2), with

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
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve

from limiirl._typing import BoolArray, FloatArray, IndexArray
from limiirl._validation import check_count, check_positive
from limiirl.demos import Agent, Agents, Groups
from limiirl.errors import IdentifiabilityWarning, InvalidDemos, NumericalError
from limiirl.irl.base import FitResult
from limiirl.irl.optim import Box, difference_hessian, minimise_lbfgs
from limiirl.irl.problem import FitProblem, MStep
from limiirl.kernels.sequences import baseline

if TYPE_CHECKING:
    from limiirl.irl.sigma_girl.model import SigmaGIRL


# Residual variance, relative to the mean square of the actions, up to which a policy is considered deterministic.
_NO_NOISE = 1e-12
# Relative residual variance up to which the residual variance is computed again without the ridge.
_LITTLE_NOISE = 1e-2
# A policy that takes a single action for each distinct vector of policy features is considered deterministic only if
# each vector was observed at least this often. With fewer observations, this may happen by chance.
_VISITS = 10


class Clone(NamedTuple):
    """A cloned policy.

    Attributes
    ----------
    weights : (p, b)
        The weights W. For discrete actions, there is one column per observed action except the first, whose weights are
        zero.
    variance : float
        sigma^2 of continuous actions; nan for discrete actions.
    scores : (n, H, p b)
        Gradient of log pi(a_t | x_t) with respect to W; zero at steps without an action.
    """

    weights: FloatArray
    variance: float
    scores: FloatArray


def clone_policy(agent: Agent, ridge: float, number: int = 0) -> Clone:
    """Return the cloned policy of an agent; `number` is the agent's index in error messages.

    Parameters
    ----------
    ridge : float
        For discrete actions, coefficient of the penalty |W|^2 / 2 that is added to the negative log-likelihood, summed
        over steps. For continuous actions, constant that is added to the diagonal of X^T X.
    """
    x, a = agent.policy_features[agent.live], agent.actions[agent.live]
    weights, variance, gradients = _gaussian(x, a, ridge, number) if a.ndim == 2 else _categorical(x, a, ridge, number)
    scores = np.zeros((*agent.live.shape, weights.size))
    scores[agent.live] = (x[:, :, None] * gradients[:, None, :]).reshape(len(x), -1)
    return Clone(weights, variance, scores)


def _invalid(message: str, number: int, value: object = None) -> InvalidDemos:
    return InvalidDemos(message, parameter="agents", value=value, index=number)


def _gaussian(x: FloatArray, a: FloatArray, ridge: float, number: int) -> tuple[FloatArray, float, FloatArray]:
    """Return W (p, b), sigma^2, and d log pi / d (W^T x) (m, b) at each step."""
    gram = x.T @ x + ridge * np.eye(x.shape[1])
    try:
        weights = np.asarray(cho_solve(cho_factor(gram), x.T @ a), dtype=np.float64)
    except np.linalg.LinAlgError:
        message = f"agents[{number}] must not have collinear policy features. Increase the ridge, or drop features."
        raise _invalid(message, number) from None
    residuals = a - x @ weights
    variance = float(np.mean(residuals**2))
    # The ridge leaves residuals even if the actions are a function of the features.
    unpenalised = a - x @ np.linalg.lstsq(x, a)[0] if variance <= _LITTLE_NOISE * float(np.mean(a**2)) else residuals
    noise = float(np.mean(unpenalised**2))
    if noise <= _NO_NOISE * float(np.mean(a**2)):
        raise _invalid(
            f"agents[{number}] must have a stochastic policy; its actions are a function of its policy features "
            f"(residual variance {noise:.2g}). Use an agent with a stochastic policy, or drop policy features.",
            number,
            noise,
        )
    return weights, variance, residuals / variance


def _categorical(x: FloatArray, a: NDArray[Any], ridge: float, number: int) -> tuple[FloatArray, float, FloatArray]:
    """Return W (p, b), nan, and d log pi / d (W^T x) (m, b), for the observed actions except the first.

    The first action is the reference, because only differences between weights are identified.
    """
    from sklearn.linear_model import LogisticRegression

    taken = np.unique(a)
    if taken.size < 2:
        raise _invalid(
            f"agents[{number}] must take at least two different actions; it takes only action {taken[0]}. Record more "
            "trajectories, or drop the agent.",
            number,
            taken[0],
        )
    model = LogisticRegression(C=1.0 / ridge, fit_intercept=False, tol=1e-8, max_iter=10_000)
    model.fit(x, a)
    states, index, visits = np.unique(x, axis=0, return_inverse=True, return_counts=True)
    n_taken = np.count_nonzero(np.bincount(index.ravel() * taken.size + np.searchsorted(taken, a)))
    if n_taken == len(states) and visits.min() >= _VISITS:
        # Without the ridge, the probabilities of the recorded actions would tend to 1, and the scores to 0.
        raise _invalid(
            f"agents[{number}] must have a stochastic policy; its {len(x)} actions are a function of its policy "
            f"features, which have {len(states)} distinct values. Use a stochastic agent, or drop policy features.",
            number,
            len(x),
        )
    # scikit-learn returns one column if there are two actions, otherwise one column per action.
    weights = model.coef_.T if taken.size == 2 else (model.coef_[1:] - model.coef_[0]).T
    gradients = (a[:, None] == taken[1:]) - model.predict_proba(x)[:, 1:]
    return np.asarray(weights, dtype=np.float64), float("nan"), np.asarray(gradients, dtype=np.float64)


# Entries up to this size, relative to the sum of their absolute terms, are treated as rounding errors.
_ROUNDING = 1e-12
# Minimum shrinkage, because the Ledoit-Wolf estimate is 0 for two trajectories.
_LEAST_SHRINKAGE = 1e-6


class JacobianMoments(NamedTuple):
    """Mean and shrunk covariance of an agent's Jacobians.

    Attributes
    ----------
    mean : (d, q)
        Mean over trajectories.
    deviations : (n, d, q)
        Jacobian of each trajectory minus the mean.
    shrinkage : float
        delta in the covariance (1 - delta) S + delta mu I of Ledoit and Wolf (2004).
    target : float
        mu, the mean variance of an entry.
    """

    mean: FloatArray
    deviations: FloatArray
    shrinkage: float
    target: float

    @property
    def variances(self) -> FloatArray:
        """Diagonal (d, q) of the shrunk covariance of the *mean*."""
        n = len(self.deviations)
        own = np.mean(self.deviations**2, axis=0)
        return np.asarray((1.0 - self.shrinkage) * own + self.shrinkage * self.target) / n


def jacobians(scores: FloatArray, reward_features: FloatArray, gamma: float, floor: float) -> FloatArray:
    """Return the GPOMDP Jacobians (n, d, q): sum_t G_t (gamma^t phi_t - B_t)^T for each trajectory.

    G_t is the sum of scores up to t. Each entry of the baseline B_t is a mean over trajectories of gamma^t phi_t, with
    weights G_t^2, which minimises the variance. The baseline is also subtracted after the end of a trajectory, where
    phi is zero; otherwise, the mean would be biased.

    Parameters
    ----------
    scores : (n, H, d)
    reward_features : (n, H, q)
    floor : float
        Constant added to the sum of G_t^2 in the denominator of the baseline. With 0, features that are the same in all
        trajectories cancel exactly, and Jacobians at rounding level are set to 0.
    """
    G = np.cumsum(scores, axis=1)
    collected = gamma ** np.arange(scores.shape[1])[:, None] * reward_features
    J = np.einsum("ntd,ntq->ndq", G, collected, optimize=True)
    J -= np.einsum("ntd,tdq->ndq", G, baseline(G, collected, floor), optimize=True)
    if floor == 0.0:
        # The objective does not depend on the size of a Jacobian. Therefore rounding errors alone would affect the fit.
        size = np.einsum("ntd,ntq->ndq", np.abs(G), np.abs(collected), optimize=True)
        J[np.abs(J) <= _ROUNDING * size] = 0.0
    return np.asarray(J)


def jacobian_moments(J: FloatArray, number: int = 0) -> JacobianMoments:
    """Return the mean and shrunk covariance of Jacobians (n, d, q), without rows that are zero in all trajectories.

    If all rows are zero, every reward explains the agent equally well, and the result has one row of mean 0 and
    variance 1.
    """
    n = len(J)
    if n < 2:
        raise _invalid(f"agents[{number}] must have at least 2 trajectories for a covariance; got {n}.", number, n)
    if not np.any(J):
        return JacobianMoments(np.zeros((1, J.shape[2])), np.zeros((n, 1, J.shape[2])), 1.0, 1.0)
    kept = J[:, np.any(J != 0.0, axis=(0, 2))]
    mean = kept.mean(axis=0)
    deviations = kept - mean
    flat = deviations.reshape(n, -1)
    target = float(np.mean(flat**2))
    if not target > 0.0:
        message = f"agents[{number}] must have different trajectories; its {n} trajectories have the same Jacobian."
        raise _invalid(message, number)
    return JacobianMoments(mean, deviations, _shrinkage(flat / np.sqrt(target)), target)


def _shrinkage(scaled: FloatArray) -> float:
    """Return delta = E|S_i - S|^2 / (n |S - I|^2) for centred rows (n, P) of mean square 1."""
    n, P = scaled.shape
    length = np.sum(scaled**2, axis=1)
    squared = float(np.sum((scaled @ scaled.T) ** 2)) / n**2  # |S|^2
    noise = (float(np.mean(length**2)) - squared) / n
    distance = squared - P
    delta = noise / distance if distance > 0.0 else 1.0
    return min(1.0, max(_LEAST_SHRINKAGE, delta))


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
