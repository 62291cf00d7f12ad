"""Behaviour cloning of agents, and Jacobians of their reward features with GPOMDP."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve

from limiirl._typing import FloatArray
from limiirl.demos import Agent
from limiirl.errors import InvalidDemos
from limiirl.kernels.sequences import baseline

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
