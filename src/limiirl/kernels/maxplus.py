"""One step of the heaviest way: the best arrival in every state from the layer before."""

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray


@njit(forceinline=True, error_model="numpy")
def _arrival(layer: Any, src: Any, log_prob: Any, reward: Any, scale: float, j: int) -> float:
    weight = layer[src[j]]
    if log_prob is not None:
        weight += log_prob[j]
    if reward is not None:
        weight += scale * reward[j]
    return weight


@njit(cache=True, error_model="numpy")
def advance(
    ptr: NDArray[np.int64],
    src: NDArray[np.int32],
    log_prob: NDArray[np.float64] | None,
    reward: NDArray[np.float64] | None,
    scale: float,
    node: NDArray[np.float64],
    node_scale: float,
    layer: NDArray[np.float64],
    out: NDArray[np.float64],
) -> float:
    """Fill out (S,) with the largest log-weights of arriving in each state; return the largest of all.

    Parameters
    ----------
    ptr, src : the sources (E,) of the edges into each state, as CSR
    log_prob, reward : (E,) or None, in the same order
    scale : discount of the edges' rewards
    node : (S,) rewards of states
    node_scale : discount of the states' rewards
    layer : (S,) log-weights at the step before
    """
    top = -np.inf
    for s in range(out.size):
        best = -np.inf
        for j in range(ptr[s], ptr[s + 1]):
            best = max(best, _arrival(layer, src, log_prob, reward, scale, j))
        out[s] = best + node_scale * node[s]
        top = max(top, out[s])
    return top


@njit(cache=True, error_model="numpy")
def best_arrival(
    ptr: NDArray[np.int64],
    src: NDArray[np.int32],
    log_prob: NDArray[np.float64] | None,
    reward: NDArray[np.float64] | None,
    scale: float,
    layer: NDArray[np.float64],
    s: int,
) -> int:
    """Return the place, within the edges sorted by target, of the first of the best edges into state s."""
    chosen, best = ptr[s], -np.inf
    for j in range(ptr[s], ptr[s + 1]):
        weight = _arrival(layer, src, log_prob, reward, scale, j)
        if weight > best:
            chosen, best = j, weight
    return chosen
