"""Behavioural cloning: the policy that an agent seems to follow, and how its actions would change with it.

spec.md, section B, steps 1 and 2. A real action is drawn from N(W^T x, sigma^2 I), with W by ridge regression; a
discrete one from a softmax of W^T x, with W by multinomial logistic regression. The score is the gradient of the log
policy in W: zero wherever the agent did not choose.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve

from limiirl.demos.agents import Agent
from limiirl.errors import InvalidDemos

Float = NDArray[np.float64]
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

    weights: Float
    variance: float
    scores: Float


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


def _gaussian(x: Float, a: Float, ridge: float, number: int) -> tuple[Float, float, Float]:
    """Return W (p, b), sigma^2, and d log pi / d (W^T x) for every step (m, b)."""
    gram = x.T @ x + ridge * np.eye(x.shape[1])
    try:
        weights = np.asarray(cho_solve(cho_factor(gram), x.T @ a), dtype=np.float64)
    except np.linalg.LinAlgError:
        raise InvalidDemos(
            f"The policy features of agent {number} are collinear, so that no policy can be cloned. Use a ridge above "
            "0, or drop features."
        ) from None
    residuals = a - x @ weights
    variance = float(np.mean(residuals**2))
    if variance <= _NO_NOISE * float(np.mean(a**2)):
        raise InvalidDemos(
            f"The actions of agent {number} follow from its policy features without any noise (residual variance "
            f"{variance:.2g}), so that nothing tells what other actions would bring. Record a stochastic policy."
        )
    return weights, variance, residuals / variance


def _categorical(x: Float, a: NDArray[Any], ridge: float, number: int) -> tuple[Float, float, Float]:
    """Return W (p, b), nan, and d log pi / d (W^T x) (m, b), for the b actions that the agent took but the first.

    One action is left out because only differences of weights matter: with all of them, rows would count twice.
    """
    from sklearn.linear_model import LogisticRegression

    taken = np.unique(a)
    if taken.size < 2:
        raise InvalidDemos(
            f"Agent {number} only ever takes action {taken[0]}, so that nothing tells what other actions would bring. "
            "Record more of it, or leave the agent out."
        )
    model = LogisticRegression(C=1.0 / ridge, fit_intercept=False, tol=1e-8, max_iter=10_000)
    model.fit(x, a)
    # Of two actions sklearn has one column, of more a column each, which sum to zero.
    weights = model.coef_.T if taken.size == 2 else (model.coef_[1:] - model.coef_[0]).T
    slopes = (a[:, None] == taken[1:]) - model.predict_proba(x)[:, 1:]
    return np.asarray(weights, dtype=np.float64), float("nan"), np.asarray(slopes, dtype=np.float64)
