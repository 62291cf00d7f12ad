"""The evidence lower bound of the Bayesian mixture, and its coordinate ascent.

With q(z) = U, Beta stick-breaking weights q(v) and Gaussian rewards q(theta_k), the bound is

    sum_ik u_ik E[log p(i | theta_k)] + entropy(U) + E[log p(z | v)] - KL(q(v) | prior) - sum_k KL(q(theta_k) | prior)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import betaln, digamma, gammaln, xlogy

from limiirl._typing import FloatArray
from limiirl.irl import FitProblem, impossible_unit
from limiirl.mixture.bayesian.reward_posterior import (
    RewardPosterior,
    RewardPrior,
    expected_log_prob,
    finite_scores,
    fit_posteriors,
    improve,
    loss,
)
from limiirl.mixture.em import nearly_empty

Concentration = float | tuple[float, float]
# Maximum number of iterations and tolerance of the fixed point of q(alpha) and q(v); a few dozen iterations suffice.
_ROUNDS, _CONVERGED = 500, 1e-12


@dataclass(frozen=True)
class StickWeights:
    """Posterior v_k ~ Beta(taken_k, left_k) of the stick-breaking weights, and alpha or its posterior mean.

    `bound` is E[log p(z | v)] - KL(q(v) | prior) - KL(q(alpha) | prior). For integer sizes and fixed alpha it is
    the log-probability of the labels.
    """

    taken: FloatArray
    left: FloatArray
    concentration: float
    bound: float

    @property
    def log_weights(self) -> FloatArray:
        """E[log pi_k] (K,)."""
        total = digamma(self.taken + self.left)
        rest = digamma(self.left) - total
        return np.asarray(digamma(self.taken) - total + np.concatenate([[0.0], np.cumsum(rest[:-1])]))

    @property
    def log_labellings(self) -> float:
        """Log-ratio of the probabilities of the partition (Chinese restaurant process) and of one of its labellings.

        It is the sum of log((alpha + N_k + N_k+1 + ...) / N_k) over intents that are not nearly empty.
        """
        sizes = self.taken - 1.0
        counted = ~nearly_empty(sizes, math.ceil(sizes.sum()))
        return float(np.sum(np.log((self.left + sizes)[counted] / sizes[counted])))

    @property
    def weights(self) -> FloatArray:
        """E[pi_k] (K,); 1 - sum is the expected weight of unobserved intents."""
        v = self.taken / (self.taken + self.left)
        return np.asarray(v * np.concatenate([[1.0], np.cumprod(1.0 - v[:-1])]))


def stick_posterior(sizes: FloatArray, concentration: Concentration) -> StickWeights:
    """Return the optimal posterior of stick-breaking weights for expected sizes (K,) in decreasing order.

    `concentration` is alpha, or the (shape, rate) of its Gamma prior.
    """
    after = np.concatenate([np.cumsum(sizes[::-1])[-2::-1], [0.0]])
    if not isinstance(concentration, tuple):
        taken, left = 1.0 + sizes, concentration + after
        return StickWeights(taken, left, concentration, float(np.sum(betaln(taken, left) - betaln(1.0, concentration))))
    shape, rate = concentration
    posterior_shape, alpha = shape + len(sizes), shape / rate
    for _ in range(_ROUNDS):
        taken, left = 1.0 + sizes, alpha + after
        log_rest = digamma(left) - digamma(taken + left)
        before, posterior_rate = alpha, rate - float(np.sum(log_rest))
        alpha = posterior_shape / posterior_rate
        if abs(alpha - before) <= _CONVERGED * alpha:
            break
    log_alpha = float(digamma(posterior_shape)) - np.log(posterior_rate)
    # E[log p(z, v | alpha)] - E[log q(v)]: the terms in log v cancel, and the terms in log(1 - v) differ by the last
    # change in alpha.
    bound = float(np.sum(log_alpha + (alpha + after - left) * log_rest + betaln(taken, left)))
    bound -= _gamma_divergence(posterior_shape, posterior_rate, shape, rate)
    return StickWeights(taken, left, alpha, bound)


def _gamma_divergence(a: float, b: float, shape: float, rate: float) -> float:
    """Return the Kullback-Leibler divergence of Gamma(a, b) from Gamma(shape, rate)."""
    divergence = (a - shape) * digamma(a) - gammaln(a) + gammaln(shape) + shape * np.log(b / rate) + a * (rate - b) / b
    return float(divergence)


# Smaller intents are removed, which changes the bound by less than its rounding error.
_EMPTY = 1e-12
# Maximum numbers of trials for initial intents, and per sweep.
_FIRST_TRIALS, _TRIALS = 8, 4


@dataclass(frozen=True, eq=False)
class VariationalPosterior:
    """A variational posterior with intents in decreasing order of size."""

    U: FloatArray
    rewards: RewardPosterior
    log_p: FloatArray
    stick_posterior: StickWeights
    bound: float

    @property
    def n_intents(self) -> int:
        """Number K of intents."""
        return int(self.U.shape[1])

    @property
    def sizes(self) -> FloatArray:
        """Expected number of units (K,) of each intent."""
        return np.asarray(self.U.sum(axis=0))


class VariationalProblem:
    """A fit problem with the priors, and the updates of its variational posterior."""

    def __init__(
        self, fit_problem: FitProblem, prior: RewardPrior, concentration: Concentration, points: FloatArray
    ) -> None:
        self.fit_problem, self.prior, self.concentration, self.points = fit_problem, prior, concentration, points
        self.origin = finite_scores(fit_problem, prior)

    def state(self, U: FloatArray, rewards: RewardPosterior, log_p: FloatArray) -> VariationalPosterior:
        """Return the posterior with optimal stick-breaking weights; intents are sorted by size, empty ones removed."""
        sizes = U.sum(axis=0)
        order = np.lexsort((*rewards.mean.T[::-1], -sizes.round(9)))
        order = order[sizes[order] > _EMPTY]
        U, rewards, log_p = np.ascontiguousarray(U[:, order]), rewards[order], log_p[:, order]
        weights = stick_posterior(U.sum(axis=0), self.concentration)
        with np.errstate(invalid="ignore"):  # replaces 0 * -inf; an impossible intent has responsibility 0
            explained = np.sum(np.where(U > 0.0, U * log_p, 0.0))
        bound = float(explained - np.sum(xlogy(U, U)) + weights.bound - np.sum(rewards.divergence))
        return VariationalPosterior(U, rewards, log_p, weights, bound)

    def improve_rewards(
        self, U: FloatArray, rewards: RewardPosterior, max_trials: int
    ) -> tuple[RewardPosterior, FloatArray]:
        """Return better posterior rewards for responsibilities (G, J) without zero columns, and E[log p] (G, J)."""
        rewards = improve(loss(self.fit_problem, U, self.prior.scale), self.prior, rewards, max_trials)
        return rewards, expected_log_prob(self.fit_problem, self.prior, rewards)

    def start(self, U: FloatArray) -> VariationalPosterior:
        """Return the initial posterior for responsibilities (G, K)."""
        U = np.ascontiguousarray(U[:, U.sum(axis=0) > _EMPTY])
        objective = loss(self.fit_problem, U, self.prior.scale)
        rewards = fit_posteriors(objective, self.prior, self.origin, U.shape[1], _FIRST_TRIALS)
        return self.state(U, rewards, expected_log_prob(self.fit_problem, self.prior, rewards))

    def update_responsibilities(self, state: VariationalPosterior) -> VariationalPosterior:
        """Return the posterior with optimal responsibilities."""
        scores = state.log_p + state.stick_posterior.log_weights
        top = scores.max(axis=1)
        if not np.all(np.isfinite(top)):
            raise impossible_unit(self.fit_problem.units, int(np.argmin(np.isfinite(top))))
        U = np.exp(scores - top[:, None])
        return self.state(U / U.sum(axis=1, keepdims=True), state.rewards, state.log_p)

    def update(self, state: VariationalPosterior) -> VariationalPosterior:
        """Return the posterior after one update of responsibilities, stick-breaking weights and rewards."""
        state = self.update_responsibilities(state)
        return self.state(state.U, *self.improve_rewards(state.U, state.rewards, _TRIALS))

    def run(
        self,
        state: VariationalPosterior,
        max_iter: int,
        tol: float,
        callback: Callable[[VariationalPosterior], None] | None = None,
        goal: float = -np.inf,
    ) -> tuple[VariationalPosterior, bool]:
        """Return the posterior after at most `max_iter` iterations, and whether the last gain was below `tol`.

        From the second on, iterations also end if the bound would remain below `goal` with further gains as large as
        the last one.
        """
        for i in range(max_iter):
            before, state = state.bound, self.update(state)
            if callback is not None:
                callback(state)
            gain = state.bound - before
            if gain < tol:
                return state, True
            if i > 0 and state.bound + (max_iter - 1 - i) * gain < goal:
                break
        return state, False
