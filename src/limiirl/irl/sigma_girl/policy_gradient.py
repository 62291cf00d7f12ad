"""Cloned policies of agents, and the Jacobians of their reward features by GPOMDP (spec.md, section B)."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve

from limiirl._typing import FloatArray
from limiirl.demos import Agent
from limiirl.errors import InvalidDemos
from limiirl.kernels.sequences import baseline

# A policy whose residuals are this small a part of its actions has no noise to learn from.
_NO_NOISE = 1e-12


class Clone(NamedTuple):
    """A policy in the place of an agent's own.

    Attributes
    ----------
    weights : (p, b)
        W. For discrete actions a column for each but the first that the agent ever took, whose weights are zero.
    variance : float
        sigma^2 of real actions; nan for discrete ones.
    scores : (n, H, p b)
        The gradient of log pi(a_t | x_t) in the entries of W, zero where the agent did not choose.
    """

    weights: FloatArray
    variance: float
    scores: FloatArray


def clone_policy(agent: Agent, ridge: float, number: int = 0) -> Clone:
    """Return the policy of an agent, whose number is for messages.

    Parameters
    ----------
    ridge : float
        Added to the diagonal of X^T X, or half the weight of the squared length of W beside minus the log-likelihood.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=(50, 4, 2))
    >>> a = x @ [[1.0], [-2.0]] + 0.1 * rng.normal(size=(50, 4, 1))
    >>> clone = clone_policy(Agent(x, a, x, np.ones((50, 4), dtype=bool)), ridge=1e-2)
    >>> clone.weights.round(1).ravel().tolist(), round(clone.variance, 2), clone.scores.shape
    ([1.0, -2.0], 0.01, (50, 4, 2))
    """
    x, a = agent.policy_features[agent.live], agent.actions[agent.live]
    weights, variance, slopes = _gaussian(x, a, ridge, number) if a.ndim == 2 else _categorical(x, a, ridge, number)
    scores = np.zeros((*agent.live.shape, weights.size))
    scores[agent.live] = (x[:, :, None] * slopes[:, None, :]).reshape(len(x), -1)
    return Clone(weights, variance, scores)


def _invalid(message: str, number: int, value: object = None) -> InvalidDemos:
    return InvalidDemos(message, parameter="agents", value=value, index=number)


def _gaussian(x: FloatArray, a: FloatArray, ridge: float, number: int) -> tuple[FloatArray, float, FloatArray]:
    """Return W (p, b), sigma^2, and d log pi / d (W^T x) for every step (m, b)."""
    gram = x.T @ x + ridge * np.eye(x.shape[1])
    try:
        weights = np.asarray(cho_solve(cho_factor(gram), x.T @ a), dtype=np.float64)
    except np.linalg.LinAlgError:
        raise _invalid(
            f"The policy features of agent {number} are collinear, so that no policy can be cloned. Use a ridge above "
            "0, or drop features.",
            number,
        ) from None
    residuals = a - x @ weights
    variance = float(np.mean(residuals**2))
    if variance <= _NO_NOISE * float(np.mean(a**2)):
        raise _invalid(
            f"The actions of agent {number} follow from its policy features without any noise (residual variance "
            f"{variance:.2g}), so that nothing tells what other actions would bring. Record a stochastic policy.",
            number,
            variance,
        )
    return weights, variance, residuals / variance


def _categorical(x: FloatArray, a: NDArray[Any], ridge: float, number: int) -> tuple[FloatArray, float, FloatArray]:
    """Return W (p, b), nan, and d log pi / d (W^T x) (m, b), for the b actions that the agent took but the first.

    One action is left out because only differences of weights matter: with all of them, rows would count twice.
    """
    from sklearn.linear_model import LogisticRegression

    taken = np.unique(a)
    if taken.size < 2:
        raise _invalid(
            f"Agent {number} only ever takes action {taken[0]}, so that nothing tells what other actions would bring. "
            "Record more of it, or leave the agent out.",
            number,
            taken[0],
        )
    model = LogisticRegression(C=1.0 / ridge, fit_intercept=False, tol=1e-8, max_iter=10_000)
    model.fit(x, a)
    # Of two actions sklearn has one column, of more a column each, which sum to zero.
    weights = model.coef_.T if taken.size == 2 else (model.coef_[1:] - model.coef_[0]).T
    slopes = (a[:, None] == taken[1:]) - model.predict_proba(x)[:, 1:]
    return np.asarray(weights, dtype=np.float64), float("nan"), np.asarray(slopes, dtype=np.float64)


# Jacobians smaller than this share of the terms that they are the difference of are rounding.
_ROUNDING = 1e-12
# The least weight of the target in a shrunk covariance: with two trajectories, Ledoit and Wolf's is 0.
_LEAST_SHRINKAGE = 1e-6


class Spread(NamedTuple):
    """The Jacobians of an agent, as a Gaussian likelihood sees them.

    Attributes
    ----------
    mean : (d, q)
        The mean over trajectories.
    deviations : (n, d, q)
        Each trajectory's Jacobian less the mean.
    shrinkage : float
        delta, the share of the target in the covariance (1 - delta) S + delta mu I of Ledoit and Wolf (2004).
    target : float
        mu, the mean variance of an entry.
    """

    mean: FloatArray
    deviations: FloatArray
    shrinkage: float
    target: float

    @property
    def variances(self) -> FloatArray:
        """The diagonal (d, q) of the covariance of the *mean*: shrunk, and divided by n."""
        n = len(self.deviations)
        own = np.mean(self.deviations**2, axis=0)
        return np.asarray((1.0 - self.shrinkage) * own + self.shrinkage * self.target) / n


def jacobians(scores: FloatArray, reward_features: FloatArray, gamma: float, floor: float) -> FloatArray:
    """Return (n, d, q): for each trajectory, sum_t G_t (gamma^t phi_t - B_t)^T.

    G_t is the sum of scores up to t. The baseline B_t, entry by entry, is the mean over trajectories of gamma^t phi_t
    weighted by G_t^2, which makes the variance smallest; where no trajectory has a score it is zero. It is subtracted
    after the end of a trajectory too, where phi is zero, since it has no effect on the mean only if all trajectories
    count. What is the same in all trajectories it takes away altogether.

    Parameters
    ----------
    scores : (n, H, d)
    reward_features : (n, H, q)
    floor : float
        Added to the sum of G_t^2 by which a baseline is divided. With 0, what is the same in all trajectories is taken
        away to the last bit, and Jacobians that are rounding are set to 0.
    """
    G = np.cumsum(scores, axis=1)
    collected = gamma ** np.arange(scores.shape[1])[:, None] * reward_features
    found = np.einsum("ntd,ntq->ndq", G, collected, optimize=True)
    found -= np.einsum("ntd,tdq->ndq", G, baseline(G, collected, floor), optimize=True)
    if floor == 0.0:
        # The objective does not depend on the size of a Jacobian, so that rounding would count like anything else.
        size = np.einsum("ntd,ntq->ndq", np.abs(G), np.abs(collected), optimize=True)
        found[np.abs(found) <= _ROUNDING * size] = 0.0
    return np.asarray(found)


def spread(J: FloatArray, number: int = 0) -> Spread:
    """Return the mean and the shrunk covariance of Jacobians (n, d, q), without rows that are identically zero.

    Where all are zero, nothing that the agent does matters to what it collects, and all rewards explain it: one row is
    left, of mean 0 and variance 1, which is the same under all of them.

    The weight delta of the target is that of Ledoit and Wolf, from the n x n products of centred Jacobians; the
    covariance of all d q entries is never formed.
    """
    n = len(J)
    if n < 2:
        raise _invalid(
            f"Agent {number} has {n} trajectory; a covariance needs at least 2. Record more, or leave the agent out.",
            number,
            n,
        )
    if not np.any(J):
        return Spread(np.zeros((1, J.shape[2])), np.zeros((n, 1, J.shape[2])), 1.0, 1.0)
    kept = J[:, np.any(J != 0.0, axis=(0, 2))]
    mean = kept.mean(axis=0)
    deviations = kept - mean
    flat = deviations.reshape(n, -1)
    target = float(np.mean(flat**2))
    if not target > 0.0:
        raise _invalid(
            f"The Jacobians of agent {number} do not vary over its {n} trajectories: they are copies. Record "
            "trajectories that differ.",
            number,
        )
    return Spread(mean, deviations, _shrinkage(flat / np.sqrt(target)), target)


def _shrinkage(scaled: FloatArray) -> float:
    """Return delta for centred rows (n, P) of mean square 1: E|S_i - S|^2 / n over |S - I|^2, the norms per entry."""
    n, P = scaled.shape
    length = np.sum(scaled**2, axis=1)
    squared = float(np.sum((scaled @ scaled.T) ** 2)) / n**2  # the squared norm of S
    noise = (float(np.mean(length**2)) - squared) / n
    distance = squared - P
    found = noise / distance if distance > 0.0 else 1.0
    return min(1.0, max(_LEAST_SHRINKAGE, found))
