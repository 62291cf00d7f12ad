"""The variational bound of the Bayesian mixture, and the sweeps that raise it.

With q(z) = U, Beta stick-breaking weights q(v) and Gaussian rewards q(theta_k), the log evidence is at least

    sum_ik u_ik E[log p(i | theta_k)] + entropy(U) + E[log p(z | v)] - KL(q(v) | prior) - sum_k KL(q(theta_k) | prior)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import betaln, digamma, gammaln, xlogy

from limiirl._typing import FloatArray
from limiirl.errors import InvalidDemos
from limiirl.irl import FitProblem
from limiirl.mixture.bayesian.reward_posterior import (
    RewardPosterior,
    RewardPrior,
    expected_log_prob,
    finite_scores,
    fresh,
    improve,
    loss,
)
from limiirl.mixture.em import nearly_empty

Concentration = float | tuple[float, float]
# The posterior of alpha and those of the sticks depend on each other, and settle within a few dozen rounds.
_ROUNDS, _SETTLED = 500, 1e-12


@dataclass(frozen=True)
class StickWeights:
    """The posterior of the shares, given how many follow each intent.

    Attributes
    ----------
    taken, left : (K,)
        v_k ~ Beta(taken_k, left_k).
    concentration : float
        alpha, or its posterior mean where it has a prior.
    bound : float
        E[log p(z | v)] less the divergence of the posterior of v, and of alpha, from the prior. For whole sizes and a
        fixed alpha it is the log-probability of these labels.
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
        """Log of how much more probable the partition is than these labels of it, which the bound is about.

        Labels are names: the process gives the same partition by others, of more and more distant sticks. Their
        probabilities add up to that of the Chinese restaurant: prod_k (alpha + N_k + N_k+1 + ...) / N_k times this one.
        Intents that hardly anybody follows are no blocks, and have no names to exchange.
        """
        sizes = self.taken - 1.0
        counted = ~nearly_empty(sizes, math.ceil(sizes.sum()))
        return float(np.sum(np.log((self.left + sizes)[counted] / sizes[counted])))

    @property
    def weights(self) -> FloatArray:
        """E[pi_k] (K,); 1 less their sum is the share of intents that nobody has shown yet."""
        share = self.taken / (self.taken + self.left)
        return np.asarray(share * np.concatenate([[1.0], np.cumprod(1.0 - share[:-1])]))


def stick_posterior(sizes: FloatArray, concentration: Concentration) -> StickWeights:
    """Return the best posterior of the sticks for sizes (K,), the expected numbers of followers.

    Parameters
    ----------
    sizes : (K,)
        In falling order, which gives the highest bound.
    concentration : float or (shape, rate)
        alpha, or the parameters of its Gamma prior.

    Examples
    --------
    >>> found = stick_posterior(np.array([2.0, 1.0]), 1.0)
    >>> found.weights.round(4), round(float(np.exp(found.bound)), 4)  # the labels 0, 0, 1: (1/3)(1/4)(1/2)
    (array([0.6   , 0.2667]), 0.0417)
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
        if abs(alpha - before) <= _SETTLED * alpha:
            break
    log_alpha = float(digamma(posterior_shape)) - np.log(posterior_rate)
    # E log p(z, v | alpha) - E log q(v): the exponents of v are those of q, and those of 1 - v differ by what alpha
    # moved in the last round.
    bound = float(np.sum(log_alpha + (alpha + after - left) * log_rest + betaln(taken, left)))
    bound -= _gamma_divergence(posterior_shape, posterior_rate, shape, rate)
    return StickWeights(taken, left, alpha, bound)


def _gamma_divergence(a: float, b: float, shape: float, rate: float) -> float:
    """Return the Kullback-Leibler divergence of Gamma(a, b) from Gamma(shape, rate)."""
    found = (a - shape) * digamma(a) - gammaln(a) + gammaln(shape) + shape * np.log(b / rate) + a * (rate - b) / b
    return float(found)


# An intent with fewer followers than this is none: dropping it changes the bound by less than rounding.
_NOBODY = 1e-12
# Newton steps of a posterior that begins anew, and of one that has only to follow its members.
_FRESH_STEPS, _STEPS = 20, 2


@dataclass(frozen=True, eq=False)
class VariationalPosterior:
    """A variational posterior, intents in falling order of size."""

    U: FloatArray
    rewards: RewardPosterior
    log_p: FloatArray
    stick_posterior: StickWeights
    bound: float

    @property
    def n_intents(self) -> int:
        """K, the number of intents that anybody follows."""
        return int(self.U.shape[1])

    @property
    def sizes(self) -> FloatArray:
        """Expected number (K,) of units that follow each intent."""
        return np.asarray(self.U.sum(axis=0))


class VariationalProblem:
    """Units under a model, with the priors: makes posteriors and improves them."""

    def __init__(
        self, prepared: FitProblem, prior: RewardPrior, concentration: Concentration, points: FloatArray
    ) -> None:
        self.prepared, self.prior, self.concentration, self.points = prepared, prior, concentration, points
        self.origin = finite_scores(prepared, prior)

    def state(self, U: FloatArray, rewards: RewardPosterior, log_p: FloatArray) -> VariationalPosterior:
        """Return the posterior of these responsibilities and rewards, with its best sticks.

        Intents are sorted by size, and those that nobody follows are left out.
        """
        sizes = U.sum(axis=0)
        order = np.lexsort((*rewards.mean.T[::-1], -sizes.round(9)))
        order = order[sizes[order] > _NOBODY]
        U, rewards, log_p = np.ascontiguousarray(U[:, order]), rewards[order], log_p[:, order]
        found = stick_posterior(U.sum(axis=0), self.concentration)
        with np.errstate(invalid="ignore"):  # an impossible intent has responsibility 0
            explained = np.sum(np.where(U > 0.0, U * log_p, 0.0))
        bound = float(explained - np.sum(xlogy(U, U)) + found.bound - np.sum(rewards.divergence))
        return VariationalPosterior(U, rewards, log_p, found, bound)

    def fresh(self, U: FloatArray) -> tuple[RewardPosterior, FloatArray]:
        """Return the posterior rewards of responsibilities (G, J), no column all 0, and their log-probabilities."""
        found = fresh(loss(self.prepared, U, self.prior.scale), self.prior, self.origin, U.shape[1], _FRESH_STEPS)
        return found, expected_log_prob(self.prepared, self.prior, found)

    def start(self, U: FloatArray) -> VariationalPosterior:
        """Return the posterior that begins with responsibilities (G, K)."""
        U = np.ascontiguousarray(U[:, U.sum(axis=0) > _NOBODY])
        return self.state(U, *self.fresh(U))

    def expect(self, state: VariationalPosterior) -> VariationalPosterior:
        """Return the posterior with the best responsibilities."""
        scores = state.log_p + state.stick_posterior.log_weights
        top = scores.max(axis=1)
        if not np.all(np.isfinite(top)):
            unit = self.prepared.units.name(int(np.argmin(np.isfinite(top))))
            raise InvalidDemos(
                f"{unit} has no probability under any intent. Remove it, fix the MDP, or bound the rewards.",
                parameter="demos",
                index=int(np.argmin(np.isfinite(top))),
            )
        U = np.exp(scores - top[:, None])
        return self.state(U / U.sum(axis=1, keepdims=True), state.rewards, state.log_p)

    def sweep(self, state: VariationalPosterior) -> VariationalPosterior:
        """Return the posterior after one round: responsibilities, sticks, rewards."""
        state = self.expect(state)
        rewards = improve(loss(self.prepared, state.U, self.prior.scale), self.prior, state.rewards, _STEPS)
        return self.state(state.U, rewards, expected_log_prob(self.prepared, self.prior, rewards))

    def run(
        self,
        state: VariationalPosterior,
        max_iter: int,
        tol: float,
        told: Callable[[VariationalPosterior], None] | None = None,
    ) -> tuple[VariationalPosterior, bool]:
        """Return where sweeps end, and whether the last rise was below `tol`."""
        for _ in range(max_iter):
            before, state = state.bound, self.sweep(state)
            if told is not None:
                told(state)
            if state.bound - before < tol:
                return state, True
        return state, False
