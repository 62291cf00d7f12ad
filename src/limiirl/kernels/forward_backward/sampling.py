"""Forward sampling from backward messages, and one step of the Viterbi recursion."""

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from limiirl.kernels.graph import Neighbours
from limiirl.kernels.simd import exp


@njit(forceinline=True, error_model="numpy")
def _edge_weight(prob: Any, reward: Any, scale: float, continuation: float, top: float, log: bool, e: int) -> float:
    """Return the weight of an edge; in log arithmetic, divided by exp(top)."""
    power = 0.0 if reward is None else scale * reward[e]
    if log:
        return exp((0.0 if prob is None else prob[e]) + power + continuation - top)
    return (1.0 if prob is None else prob[e]) * exp(power) * continuation


@njit(forceinline=True, error_model="numpy")
def _log_top(near: Any, prob: Any, reward: Any, scale: float, continuation: Any, stop: float, s: int) -> float:
    top = stop
    for e in range(near.ptr[s], near.ptr[s + 1]):
        power = (0.0 if prob is None else prob[e]) + (0.0 if reward is None else scale * reward[e])
        top = max(top, power + continuation[near.idx[e]])
    return top


@njit(cache=True, error_model="numpy")
def choose(
    near: Neighbours,
    prob: NDArray[np.float64] | None,
    reward: NDArray[np.float64] | None,
    scale: float,
    continuation: NDArray[np.float64],
    stop: NDArray[np.float64],
    log: bool,
    at: NDArray[np.int64],
    uniform: NDArray[np.float64],
    chosen: NDArray[np.int64],
) -> None:
    """Draw the next edge chosen[i] of each trajectory i, which is in state at[i]; -1 means that it stops.

    Parameters
    ----------
    near : successors of each state
    prob, reward : (E,) or None, as in `Rewards`, for one intent
    scale : discount of the step
    continuation : (S + 1,), backward message of the next step
    stop : (S,), weight of stopping, with the exponent of `continuation`
    log : True if `prob`, `continuation` and `stop` are logarithms
    uniform : (n,), random numbers in [0, 1)
    """
    for i in range(at.size):
        s = at[i]
        top = _log_top(near, prob, reward, scale, continuation, stop[s], s) if log else 0.0
        ended = exp(stop[s] - top) if log else stop[s]
        total = ended
        for e in range(near.ptr[s], near.ptr[s + 1]):
            total += _edge_weight(prob, reward, scale, continuation[near.idx[e]], top, log, e)
        left = uniform[i] * total - ended
        chosen[i] = -1
        if left >= 0.0:
            for e in range(near.ptr[s], near.ptr[s + 1]):
                weight = _edge_weight(prob, reward, scale, continuation[near.idx[e]], top, log, e)
                if weight > 0.0:
                    chosen[i] = e  # the last edge absorbs the rounding error of the sum
                    left -= weight
                    if left < 0.0:
                        break


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
    """Set out (S,) to the largest log-weight of a path that ends in each state; return the maximum.

    Parameters
    ----------
    ptr, src : (S + 1,), (E,)
        Incoming edges as CSR: pointers and sources.
    log_prob, reward : (E,) or None, in the same order
    scale : discount of edge rewards
    node : (S,), state rewards
    node_scale : discount of state rewards
    layer : (S,), log-weights of the previous step
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
    """Return the position in `src` of the best edge into state s, the first in case of ties."""
    chosen, best = ptr[s], -np.inf
    for j in range(ptr[s], ptr[s + 1]):
        weight = _arrival(layer, src, log_prob, reward, scale, j)
        if weight > best:
            chosen, best = j, weight
    return chosen
