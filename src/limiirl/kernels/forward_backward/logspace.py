"""Forward and backward passes in log arithmetic: slower than `linear`, but accurate for all finite rewards.

`backward` and `forward` have the signatures of `linear`, but messages are logarithms minus the integers in `exponents`,
`rewards.prob` contains log-probabilities, and `weights` is unused.
"""

import math
from typing import Any

import numpy as np
from numba import njit, prange
from numpy.typing import NDArray

from limiirl._parallel import BLOCK, LOCK, ONLY_PRANGE
from limiirl.kernels.graph import EMPTY, Alpha, CountBuffers, Neighbours, Rewards, Weights
from limiirl.kernels.simd import exp

_EMPTY = -np.inf


@njit(forceinline=True, error_model="numpy")
def _edge_log_weight(prob: Any, reward: Any, scale: float, e: int, k: int, n_columns: int) -> float:
    return _log_prob(prob, e) + _scale_reward(reward, scale, e * n_columns + k)


@njit(forceinline=True, error_model="numpy")
def _log_prob(prob: Any, e: int) -> float:
    if prob is None:
        return 0.0
    return prob[e]


@njit(forceinline=True, error_model="numpy")
def _scale_reward(reward: Any, scale: float, i: int) -> float:
    if reward is None:
        return 0.0
    return scale * reward[i]


@njit(forceinline=True, error_model="numpy")
def _log_sum(
    near: Any,
    prob: Any,
    reward: Any,
    scale: float,
    prev: Any,
    s: int,
    k: int,
    n_columns: int,
    floor: float,
    drop: float,
) -> float:
    """Return log(exp(floor) + sum over the neighbours of s of x(edge) exp(prev(neighbour) - drop))."""
    top = floor
    for e in range(near.ptr[s], near.ptr[s + 1]):
        top = max(
            top, _edge_log_weight(prob, reward, scale, e, k, n_columns) + prev[near.idx[e] * n_columns + k] - drop
        )
    if not -np.inf < top < np.inf:
        return top
    total = exp(floor - top)
    for e in range(near.ptr[s], near.ptr[s + 1]):
        total += exp(
            _edge_log_weight(prob, reward, scale, e, k, n_columns) + prev[near.idx[e] * n_columns + k] - drop - top
        )
    return top + math.log(total)


@njit(forceinline=True, error_model="numpy")
def _floor(end: Any, s: int) -> float:
    """Return the logarithm of the weight of stopping in s."""
    if end is None or end.size == 0:
        return 0.0
    return 0.0 if end[s] > 0.0 else _EMPTY


@njit(cache=True, error_model="numpy")
def _shift_of(message: Any, n_columns: int) -> Any:
    """Return the maxima (K,) of a message, rounded to integers; subtracting them reduces rounding error."""
    shift = np.zeros(n_columns, dtype=np.int64)
    for k in range(n_columns):
        top = -np.inf
        for s in range(message.size // n_columns - 1):
            top = max(top, message[s * n_columns + k])
        if -1e15 < top < 1e15:
            shift[k] = np.int64(np.rint(top))
    return shift


@njit(cache=True, error_model="numpy")
def _backward_scales(messages: Any, exponents: Any, i: int, n_columns: int) -> Any:
    shift = _shift_of(messages[i + 1], n_columns)
    for k in range(n_columns):
        exponents[i, k] = exponents[i + 1, k] + shift[k]
    return shift, exponents[i]


@njit(cache=True, error_model="numpy")
def _forward_scales(cur: Any, alpha_exponent: Any, exponent: Any, log_norm: Any, n_columns: int) -> Any:
    shift, offset = _shift_of(cur, n_columns), np.empty(n_columns)
    for k in range(n_columns):
        offset[k] = (alpha_exponent[k] + exponent[k]) - log_norm[k]
        alpha_exponent[k] += shift[k]
    return shift, offset


@njit(cache=True, error_model="numpy")
def _backward_block(
    near: Any, rewards: Any, end: Any, prev: Any, out: Any, scales: Any, t: int, lo: int, hi: int, n_columns: int
) -> None:
    shift, exponent = scales
    own = rewards.discount[t] if t > 0 else 0.0
    for s in range(lo, hi):
        for k in range(n_columns):
            floor = _floor(end, s) - exponent[k]
            continuation = _log_sum(
                near, rewards.prob, rewards.edge, rewards.discount[t], prev, s, k, n_columns, floor, shift[k]
            )
            out[s * n_columns + k] = continuation + own * rewards.node[s * n_columns + k]


@njit(cache=True, error_model="numpy")
def _backward_serial(
    near: Any, rewards: Any, end: Any, messages: Any, exponents: Any, t_first: int, n_columns: int
) -> None:
    hi = messages.shape[1] // n_columns - 1
    for i in range(messages.shape[0] - 2, -1, -1):
        scales = _backward_scales(messages, exponents, i, n_columns)
        _backward_block(near, rewards, end, messages[i + 1], messages[i], scales, t_first + i, 0, hi, n_columns)


@njit(parallel=ONLY_PRANGE, cache=True, error_model="numpy")
def _backward_parallel(
    near: Any, rewards: Any, end: Any, messages: Any, exponents: Any, t_first: int, n_columns: int
) -> None:
    n_states = messages.shape[1] // n_columns - 1
    for i in range(messages.shape[0] - 2, -1, -1):
        prev, out = messages[i + 1], messages[i]
        scales = _backward_scales(messages, exponents, i, n_columns)
        for b in prange((n_states + BLOCK - 1) // BLOCK):
            lo, hi = b * BLOCK, min(n_states, (b + 1) * BLOCK)
            _backward_block(near, rewards, end, prev, out, scales, t_first + i, lo, hi, n_columns)


def backward(
    near: Neighbours,
    rewards: Rewards,
    weights: Weights | None,
    end: NDArray[np.float64] | None,
    messages: NDArray[np.float64],
    exponents: NDArray[np.int64],
    t_first: int,
    columns: tuple[int, ...],
) -> None:
    """Compute messages[i] = log u_t for t = t_first + i (log beta_0 for t = 0); the last row is input."""
    if near.ptr.size - 1 > BLOCK:
        with LOCK:
            _backward_parallel(near, rewards, end, messages, exponents, t_first, len(columns))
    else:
        end = EMPTY if end is None else end
        _backward_serial(near, rewards, end, messages, exponents, t_first, len(columns))


@njit(forceinline=True, error_model="numpy")
def _add_edge_counts(
    near: Any,
    rewards: Any,
    cur: Any,
    messages: Any,
    edge: Any,
    edge_prob: Any,
    step_weight: Any,
    t: int,
    s: int,
    k: int,
    n_columns: int,
) -> None:
    incoming, continuation = messages
    prob, reward, scale = rewards.prob, rewards.edge, rewards.discount[t - 1]
    if (edge is None or edge.size == 0) and (edge_prob is None or edge_prob.size == 0):
        return
    for e in range(near.ptr[s], near.ptr[s + 1]):
        flow = _edge_log_weight(prob, reward, scale, e, k, n_columns) + cur[near.idx[e] * n_columns + k]
        if edge is not None and edge.size:
            edge[e * n_columns + k] += step_weight[t - 1] * exp(flow + continuation)
        if edge_prob is not None and edge_prob.size:
            edge_prob[e * n_columns + k] = exp(flow - incoming) if incoming > _EMPTY else 0.0


@njit(forceinline=True, error_model="numpy")
def _add_state_counts(node: Any, marginals: Any, i: int, step_weight: float, probability: float) -> None:
    if node is not None and node.size:
        node[i] += step_weight * probability
    if marginals is not None and marginals.size:
        marginals[i] = probability


@njit(forceinline=True, error_model="numpy")
def _row(record: Any, i: int) -> Any:
    if record is None:
        return None
    return record[i : i + 1].ravel()


@njit(cache=True, error_model="numpy")
def _forward_block(
    inputs: Any, arrays: Any, scales: Any, step_weight: Any, counts: Any, i: int, t: int, lo: int, hi: int
) -> None:
    near, rewards, n_columns = inputs
    cur, nxt, u = arrays
    shift, offset = scales
    marginals, edge_prob = _row(counts.marginals, i), _row(counts.edge_prob, i)
    prob, reward, scale = rewards.prob, rewards.edge, rewards.discount[t - 1]
    for s in range(lo, hi):
        for k in range(n_columns):
            o = s * n_columns + k
            incoming = _log_sum(near, prob, reward, scale, cur, s, k, n_columns, _EMPTY, 0.0)
            continuation = u[o] + offset[k]
            both = (incoming, continuation)
            _add_edge_counts(near, rewards, cur, both, counts.edge, edge_prob, step_weight, t, s, k, n_columns)
            _add_state_counts(counts.node, marginals, o, step_weight[t], exp(incoming + continuation))
            nxt[o] = incoming - shift[k] + rewards.discount[t] * rewards.node[o]


@njit(cache=True, error_model="numpy")
def _forward_serial(
    inputs: Any, messages: Any, exponents: Any, state: Any, step_weight: Any, counts: Any, t_first: int
) -> None:
    alpha, alpha_exponent, log_norm = state
    n_columns = inputs[2]
    hi = messages.shape[1] // n_columns - 1
    for i in range(messages.shape[0] - 1):
        t = t_first + i + 1
        arrays = (alpha[(t - 1) % 2], alpha[t % 2], messages[i + 1])
        scales = _forward_scales(arrays[0], alpha_exponent, exponents[i + 1], log_norm, n_columns)
        _forward_block(inputs, arrays, scales, step_weight, counts, i, t, 0, hi)


@njit(parallel=ONLY_PRANGE, cache=True, error_model="numpy")
def _forward_parallel(
    near: Any,
    rewards: Any,
    n_columns: int,
    messages: Any,
    exponents: Any,
    state: Any,
    step_weight: Any,
    counts: Any,
    t_first: int,
) -> None:
    alpha, alpha_exponent, log_norm = state
    n_states = messages.shape[1] // n_columns - 1
    for i in range(messages.shape[0] - 1):
        t = t_first + i + 1
        cur, nxt, u = alpha[(t - 1) % 2], alpha[t % 2], messages[i + 1]
        scales = _forward_scales(cur, alpha_exponent, exponents[i + 1], log_norm, n_columns)
        for b in prange((n_states + BLOCK - 1) // BLOCK):
            lo, hi = b * BLOCK, min(n_states, (b + 1) * BLOCK)
            here, arrays = (near, rewards, n_columns), (cur, nxt, u)
            _forward_block(here, arrays, scales, step_weight, counts, i, t, lo, hi)


def forward(
    near: Neighbours,
    rewards: Rewards,
    weights: Weights | None,
    messages: NDArray[np.float64],
    exponents: NDArray[np.int64],
    state: Alpha,
    step_weight: NDArray[np.float64],
    counts: CountBuffers,
    t_first: int,
    columns: tuple[int, ...],
) -> None:
    """Compute log alpha for the steps t_first + 1, ..., t_first + n, and accumulate expected counts."""
    inputs = (near, rewards, len(columns))
    if near.ptr.size - 1 > BLOCK:
        with LOCK:
            _forward_parallel(*inputs, messages, exponents, state, step_weight, counts, t_first)
    else:
        _forward_serial(inputs, messages, exponents, state, step_weight, counts.without_none(), t_first)
