"""How sure a match is: the probability of each candidate given all fixes, forward and backward in log space."""

import numpy as np
from numba import njit
from numpy.typing import NDArray

from limiirl.kernels.viterbi_matching import Layers, Model, emission

Float = NDArray[np.float64]
Int = NDArray[np.int64]


@njit(cache=True, nogil=True)
def _log_add(x: float, y: float) -> float:
    if x < y:
        x, y = y, x
    return x if y == -np.inf else x + np.log1p(np.exp(y - x))


@njit(cache=True, nogil=True)
def posteriors(layers: Layers, chain: Int, ptr: Int, links: Float, model: Model) -> Float:
    """Return the probability of each candidate given all fixes of a piece; 0 for those of layers outside of it."""
    alpha, beta = np.full(layers.segment.size, -np.inf), np.full(layers.segment.size, -np.inf)
    n = chain.size
    for a in range(layers.ptr[chain[0]], layers.ptr[chain[0] + 1]):
        alpha[a] = emission(layers, model, a)
    for k in range(1, n):
        i, j = chain[k - 1], chain[k]
        width = layers.ptr[j + 1] - layers.ptr[j]
        for b in range(layers.ptr[j], layers.ptr[j + 1]):
            for a in range(layers.ptr[i], layers.ptr[i + 1]):
                step = links[ptr[k] + (a - layers.ptr[i]) * width + b - layers.ptr[j]]
                alpha[b] = _log_add(alpha[b], alpha[a] + step)
            alpha[b] += emission(layers, model, b)
    for a in range(layers.ptr[chain[n - 1]], layers.ptr[chain[n - 1] + 1]):
        beta[a] = 0.0
    for k in range(n - 1, 0, -1):
        i, j = chain[k - 1], chain[k]
        width = layers.ptr[j + 1] - layers.ptr[j]
        for a in range(layers.ptr[i], layers.ptr[i + 1]):
            for b in range(layers.ptr[j], layers.ptr[j + 1]):
                step = links[ptr[k] + (a - layers.ptr[i]) * width + b - layers.ptr[j]]
                beta[a] = _log_add(beta[a], step + emission(layers, model, b) + beta[b])
    probability = np.zeros(layers.segment.size)
    for k in range(n):
        here = slice(layers.ptr[chain[k]], layers.ptr[chain[k] + 1])
        log_joint = alpha[here] + beta[here]
        weight = np.exp(log_joint - log_joint.max())
        probability[here] = weight / weight.sum()
    return probability


@njit(cache=True, nogil=True)
def sureness(layers: Layers, chain: Int, path: Int, upto: Int, probability: Float) -> float:
    """Return the mean over fixes of the probability that the car was on the path between the fixes around it.

    A fix that was skipped counts as one that is nowhere.
    """
    total, n = 0.0, chain[chain.size - 1] - chain[0] + 1
    for k in range(chain.size):
        low, high = upto[max(0, k - 1)], upto[min(chain.size - 1, k + 1)] + 1
        for a in range(layers.ptr[chain[k]], layers.ptr[chain[k] + 1]):
            for i in range(low, high):
                if path[i] == layers.segment[a]:
                    total += probability[a]
                    break
    return min(1.0, total / n)
