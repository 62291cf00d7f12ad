"""The exact posterior of a Dirichlet process mixture of very few units, by all set partitions and integration.

The Chinese restaurant's probability of a partition into blocks of sizes n_1 ... n_K of N units is
alpha^K prod_k (n_k - 1)! / (alpha (alpha + 1) ... (alpha + N - 1)); a block's members share one theta, which is
integrated out on a grid.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp
from scipy.stats import multivariate_t, norm

Float = NDArray[np.float64]
Partition = tuple[int, ...]


def partitions(n: int) -> Iterator[Partition]:
    """Every partition of n units once, as labels in the order of first appearance."""

    def grow(labels: Partition, used: int) -> Iterator[Partition]:
        if len(labels) == n:
            yield labels
            return
        for label in range(used + 1):
            yield from grow((*labels, label), max(used, label + 1))

    return grow((), 0)


def log_restaurant(labels: Partition, alpha: float) -> float:
    """Log of the Chinese restaurant's probability, one customer after the other."""
    log_p, seated = 0.0, {}
    for i, label in enumerate(labels):
        log_p += math.log(seated.get(label, alpha) / (alpha + i))
        seated[label] = seated.get(label, 0) + 1
    return log_p


class Exact(NamedTuple):
    """Log evidence, the posterior of each partition, the most probable one, and the expected number of blocks."""

    log_evidence: float
    posterior: dict[Partition, float]
    best: Partition
    expected_blocks: float


def exact(log_p: Float, log_prior: Float, alpha: float) -> Exact:
    """The exact posterior.

    log_p (n, m) are log-probabilities of units at points of a grid on theta, log_prior (m,) the log of the prior's
    density times the grid's spacing.
    """
    joint = {}
    for labels in partitions(len(log_p)):
        blocks = [np.array(labels) == k for k in range(max(labels) + 1)]
        explained = sum(float(logsumexp(log_p[block].sum(axis=0) + log_prior)) for block in blocks)
        joint[labels] = log_restaurant(labels, alpha) + explained
    log_evidence = float(logsumexp(list(joint.values())))
    posterior = {labels: math.exp(value - log_evidence) for labels, value in joint.items()}
    expected = sum((max(labels) + 1) * p for labels, p in posterior.items())
    return Exact(log_evidence, posterior, max(posterior, key=posterior.__getitem__), expected)


def block_evidence(log_p: Float, weights: Float, log_prior: Float) -> float:
    """Log of the integral over theta of the prior times prod_i p_i^weights_i: what the best posterior attains."""
    return float(logsumexp(weights @ log_p + log_prior))


def canonical(labels: NDArray[np.int64]) -> Partition:
    """Labels renamed in the order of first appearance."""
    names: dict[int, int] = {}
    return tuple(names.setdefault(int(label), len(names)) for label in labels)


class Sampled(NamedTuple):
    """Means over draws from a Gaussian posterior of normal scores."""

    log_p: float
    log_evidence: float


def sample_posterior(log_p: Callable[[Float], Float], mean: Float, root: Float, n: int, seed: int = 0) -> Sampled:
    """The mean of log_p under N(mean, root root'), and log of its integral's exponential under the prior N(0, I).

    log_p is a function of normal scores (n, d) to the log-probability (n,) of an intent's members. Draws come in pairs
    on either side of the mean. The integral is by importance sampling, from a t distribution of 5 degrees of freedom.
    """
    rng, d = np.random.default_rng(seed), mean.size
    z = rng.normal(size=(n // 2, d))
    expected = float(np.mean(log_p(mean + np.concatenate([z, -z]) @ root.T)))
    drawn = multivariate_t(mean, 1.5 * root @ root.T, df=5, seed=rng)
    u = drawn.rvs(n)
    weights = log_p(u) + norm.logpdf(u).sum(axis=1) - drawn.logpdf(u)
    return Sampled(expected, float(logsumexp(weights)) - math.log(n))
