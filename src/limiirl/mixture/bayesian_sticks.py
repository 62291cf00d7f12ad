"""The sticks of a Dirichlet process: how probable it is that so many follow each intent, and the shares that follow.

Intents are broken off a stick in turn: intent k takes the share v_k ~ Beta(1, alpha) of what is left, so that
pi_k = v_k prod_j<k (1 - v_j). The variational posterior of each v_k is a Beta. No stick is cut short: intents beyond
those listed keep their prior, and nobody, so that the bound is one on the evidence of the whole process, however many
are listed. Following Blei & Jordan (2006), who set the last v to 1 instead.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaln, digamma, gammaln

from limiirl.mixture.em import few

Float = NDArray[np.float64]
Concentration = float | tuple[float, float]
# The posterior of alpha and those of the sticks depend on each other, and settle within a few dozen rounds.
_ROUNDS, _SETTLED = 500, 1e-12


@dataclass(frozen=True)
class Sticks:
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

    taken: Float
    left: Float
    concentration: float
    bound: float

    @property
    def log_weights(self) -> Float:
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
        counted = ~few(sizes, math.ceil(sizes.sum()))
        return float(np.sum(np.log((self.left + sizes)[counted] / sizes[counted])))

    @property
    def weights(self) -> Float:
        """E[pi_k] (K,); 1 less their sum is the share of intents that nobody has shown yet."""
        share = self.taken / (self.taken + self.left)
        return np.asarray(share * np.concatenate([[1.0], np.cumprod(1.0 - share[:-1])]))


def sticks(sizes: Float, concentration: Concentration) -> Sticks:
    """Return the best posterior of the sticks for sizes (K,), the expected numbers of followers.

    Parameters
    ----------
    sizes : (K,)
        In falling order, which gives the highest bound.
    concentration : float or (shape, rate)
        alpha, or the parameters of its Gamma prior.

    Examples
    --------
    >>> found = sticks(np.array([2.0, 1.0]), 1.0)
    >>> found.weights.round(4), round(float(np.exp(found.bound)), 4)  # the labels 0, 0, 1: (1/3)(1/4)(1/2)
    (array([0.6   , 0.2667]), 0.0417)
    """
    after = np.concatenate([np.cumsum(sizes[::-1])[-2::-1], [0.0]])
    if not isinstance(concentration, tuple):
        taken, left = 1.0 + sizes, concentration + after
        return Sticks(taken, left, concentration, float(np.sum(betaln(taken, left) - betaln(1.0, concentration))))
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
    return Sticks(taken, left, alpha, bound)


def _gamma_divergence(a: float, b: float, shape: float, rate: float) -> float:
    """Return the Kullback-Leibler divergence of Gamma(a, b) from Gamma(shape, rate)."""
    found = (a - shape) * digamma(a) - gammaln(a) + gammaln(shape) + shape * np.log(b / rate) + a * (rate - b) / b
    return float(found)
