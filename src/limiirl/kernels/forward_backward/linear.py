"""Forward and backward passes in rescaled linear arithmetic, for K reward vectors at once.

A message is a flat array of (S + 1) K doubles, K per state, with a last row of zeros for the empty slots of
`Neighbours.table`. The backward message of step t > 0 is u_t = w_t beta_t, which includes the state's own reward; at
t = 0 it is beta_0, without it. The true value of a message is the stored one times 2**exponent.

    beta_t(s) = end(s) + sum_e x_t(e) u_{t+1}(s')        alpha_{t+1}(s') = w_{t+1}(s') sum_e x_t(e) alpha_t(s)

with w_t = exp(discount_t r(s)) and x_t = p(e) exp(discount_t r(e)). Scales are powers of two, hence exact, and nothing
is summed across states: the results do not depend on the number of threads.

Each direction has three drivers: serial, parallel over the blocks of a step, and, for large graphs of small bandwidth,
a wavefront of several steps, which reads a block from memory once for all of them (ADR 0003).

`columns` is a tuple of K zeros, so that K is a compile-time constant. On small graphs a K above four is passed as a
number, and one compiled function serves them all.
"""

import math
from typing import Any

import numpy as np
from numba import get_num_threads, njit, prange
from numpy.typing import NDArray

from limiirl.kernels.forward_backward.linear_blocks import backward_block, fill_edges, fill_nodes, forward_block
from limiirl.kernels.graph import Alpha, CountBuffers, Neighbours, Rewards, Weights
from limiirl.kernels.simd import count
from limiirl.kernels.threading import BLOCK, LOCK, ONLY_PRANGE

# Steps per wavefront, each one block behind the previous one.
WAVE = 4
# Steps between rescalings, each of which costs one more pass over the message.
RESCALE_EVERY = 4 * WAVE
_LN2 = math.log(2.0)


@njit(forceinline=True, error_model="numpy")
def _shift_of(message: Any, t: int, k: int, n_columns: int) -> int:
    """Return the exponent by which column k is rescaled at step t: that of its maximum, or 0 between rescalings."""
    if t % RESCALE_EVERY:
        return 0
    top = 0.0
    for i in range(np.uint64(k), np.uint64(message.size), np.uint64(n_columns)):
        top = max(top, message[i])
    return math.frexp(top)[1] if 0.0 < top < np.inf else 0


@njit(cache=True, error_model="numpy")
def backward_scales(scales: Any, messages: Any, exponents: Any, i: int, t: int) -> Any:
    """Set and return the rows of `scales`: the weight of stopping at step t, and the factor of the next message."""
    n_columns = exponents.shape[1]
    stop, factor = scales[0], scales[1]
    for k in range(n_columns):
        shift = _shift_of(messages[i + 1], t, k, n_columns)
        exponents[i, k] = exponents[i + 1, k] + shift
        factor[k] = math.ldexp(1.0, -shift)
        stop[k] = math.ldexp(1.0, -exponents[i, k])
        messages[i, messages.shape[1] - n_columns + k] = 0.0
    return stop, factor


@njit(cache=True, error_model="numpy")
def backward_stage(inputs: Any, end: Any, messages: Any, i: int, scales: Any, t: int, b: int, block: int) -> None:
    """Set block b of messages[i], of step t; do nothing for blocks beyond the states."""
    near, rewards, weights, columns = inputs
    n_states = messages.shape[1] // np.int64(count(columns)) - 1
    lo, hi = b * block, min(n_states, (b + 1) * block)
    if 0 <= lo < n_states:
        prev, out = messages[i + 1], messages[i]
        backward_block(near, rewards, weights, end, prev, out, scales, t, np.uint64(lo), np.uint64(hi), columns)


@njit(cache=True, error_model="numpy")
def forward_scales(scales: Any, cur: Any, alpha_exponent: Any, exponent: Any, log_norm: Any, gain: Any, t: int) -> Any:
    """Set and return the factors of the next alpha, of probabilities, and of state and edge counts at step t."""
    factor, scale, node_gain, edge_gain = scales[0], scales[1], scales[2], scales[3]
    for k in range(log_norm.size):
        shift = _shift_of(cur, t, k, log_norm.size)
        scale[k] = math.exp((alpha_exponent[k] + exponent[k]) * _LN2 - log_norm[k])
        node_gain[k] = gain[t] * scale[k]
        edge_gain[k] = gain[t - 1] * scale[k]
        factor[k] = math.ldexp(1.0, -shift)
        alpha_exponent[k] += shift
    return factor, scale, node_gain, edge_gain


@njit(cache=True, error_model="numpy")
def forward_stage(
    inputs: Any, alpha: Any, u: Any, counts: Any, i: int, scales: Any, t: int, b: int, block: int
) -> None:
    """Compute block b of alpha_t and its expected counts, in row i; do nothing beyond the states."""
    near, rewards, weights, columns = inputs
    n_states = u.size // np.int64(count(columns)) - 1
    lo, hi = b * block, min(n_states, (b + 1) * block)
    if 0 <= lo < n_states:
        arrays = (alpha[(t - 1) % 2], alpha[t % 2], u)
        forward_block(near, rewards, weights, arrays, counts, i, scales, t, np.uint64(lo), np.uint64(hi), columns)


@njit(cache=True, error_model="numpy")
def _fill(near: Any, rewards: Any, weights: Any, n_columns: int) -> None:
    fill_nodes(weights.node, rewards, 1.0, 0, rewards.node.size)
    fill_edges(weights.edge, rewards.prob, rewards.edge, 1.0, np.uint64(0), np.uint64(near.idx.size), n_columns)


def fill(near: Neighbours, rewards: Rewards, weights: Weights, columns: tuple[int, ...]) -> None:
    """Compute the weights of step 0, those of every step if rewards are time-homogeneous."""
    _fill(near, rewards, weights, len(columns))


@njit(cache=True, error_model="numpy")
def _backward_serial(
    near: Any, rewards: Any, weights: Any, end: Any, messages: Any, exponents: Any, t_first: int, columns: Any
) -> None:
    lo, hi, room = np.uint64(0), np.uint64(near.ptr.size - 1), np.empty((2, exponents.shape[1]))
    for i in range(messages.shape[0] - 2, -1, -1):
        t, prev, out = t_first + i, messages[i + 1], messages[i]
        scales = backward_scales(room, messages, exponents, i, t)
        backward_block(near, rewards, weights, end, prev, out, scales, t, lo, hi, columns)


@njit(parallel=ONLY_PRANGE, cache=True, error_model="numpy")
def _backward_parallel(
    near: Any, rewards: Any, weights: Any, end: Any, messages: Any, exponents: Any, t_first: int, columns: Any
) -> None:
    n_blocks, room = (near.ptr.size + BLOCK - 2) // BLOCK, np.empty((2, exponents.shape[1]))
    for i in range(messages.shape[0] - 2, -1, -1):
        scales = backward_scales(room, messages, exponents, i, t_first + i)
        for b in prange(n_blocks):
            inputs = (near, rewards, weights, columns)
            backward_stage(inputs, end, messages, i, scales, t_first + i, b, BLOCK)


@njit(forceinline=True, error_model="numpy")
def _lean(c: int, n_chunks: int, n_blocks: int, j: int) -> Any:
    """Return the range of blocks of chunk c that step j of a wavefront can compute from step j - 1.

    A chunk loses one block per step at each border with another chunk.
    """
    first, last = c * n_blocks // n_chunks, (c + 1) * n_blocks // n_chunks
    return first + (j if c > 0 else 0), last - (j if c < n_chunks - 1 else 0)


@njit(cache=True, error_model="numpy")
def _backward_chunk(inputs: Any, end: Any, messages: Any, top: int, scales: Any, t: int, c: int, n_chunks: int) -> None:
    """Compute the steps of a wavefront in one chunk, each one block behind the previous one."""
    block, n_blocks, depth = inputs[0].block, _block_count(inputs[0]), len(scales)
    first, last = _lean(c, n_chunks, n_blocks, 0)
    for wave in range(first, last + depth - 1):
        for j in range(depth):
            lo, hi = _lean(c, n_chunks, n_blocks, j)
            if lo <= wave - j < hi:
                backward_stage(inputs, end, messages, top - j, scales[j], t - j, wave - j, block)


@njit(cache=True, error_model="numpy")
def _backward_gap(inputs: Any, end: Any, messages: Any, top: int, scales: Any, t: int, c: int, n_chunks: int) -> None:
    """Compute the blocks between chunks c and c + 1."""
    middle = _lean(c, n_chunks, _block_count(inputs[0]), 0)[1]
    for j in range(1, len(scales)):
        for b in range(middle - j, middle + j):
            backward_stage(inputs, end, messages, top - j, scales[j], t - j, b, inputs[0].block)


@njit(forceinline=True, error_model="numpy")
def _block_count(near: Any) -> int:
    return (near.ptr.size + near.block - 2) // near.block


@njit(parallel=ONLY_PRANGE, cache=True, error_model="numpy")
def _backward_waves(
    near: Any,
    rewards: Any,
    weights: Any,
    end: Any,
    messages: Any,
    exponents: Any,
    t_first: int,
    columns: Any,
    n_chunks: int,
) -> None:
    top = messages.shape[0] - 2
    while top >= 0:
        # A rescaling step reads the whole previous message, so that it must be the first of a wavefront.
        t = t_first + top
        depth = min(top + 1, (t - 1) % WAVE + 1)
        room = np.empty((depth, 2, exponents.shape[1]))
        scales = [backward_scales(room[j], messages, exponents, top - j, t - j) for j in range(depth)]
        for c in prange(n_chunks):
            _backward_chunk((near, rewards, weights, columns), end, messages, top, scales, t, c, n_chunks)
        for c in prange(n_chunks - 1):
            _backward_gap((near, rewards, weights, columns), end, messages, top, scales, t, c, n_chunks)
        top -= depth


def _chunk_count(near: Neighbours) -> int:
    """Return one chunk per thread, unless their gaps would touch."""
    return int(max(1, min(get_num_threads(), _block_count.py_func(near) // (2 * WAVE))))


def backward(
    near: Neighbours,
    rewards: Rewards,
    weights: Weights,
    end: NDArray[np.float64] | None,
    messages: NDArray[np.float64],
    exponents: NDArray[np.int64],
    t_first: int,
    columns: tuple[int, ...],
) -> None:
    """Compute messages[i] of steps t_first + i from the last row, which is given.

    Parameters
    ----------
    near : successors of each state
    end : (S,) 1 where a trajectory may stop, 0 elsewhere; None where it may stop anywhere
    messages : (n + 1, (S + 1) K), the last row given
    exponents : (n + 1, K), the last row given
    """
    if near.ptr.size - 1 <= BLOCK:
        _backward_serial(near, rewards, weights, end, messages, exponents, t_first, len(columns))
        return
    with LOCK:
        if near.block:
            n_chunks = _chunk_count(near)
            _backward_waves(near, rewards, weights, end, messages, exponents, t_first, columns, n_chunks)
        else:
            _backward_parallel(near, rewards, weights, end, messages, exponents, t_first, columns)


@njit(cache=True, error_model="numpy")
def _forward_serial(
    near: Any,
    rewards: Any,
    weights: Any,
    messages: Any,
    exponents: Any,
    state: Any,
    gain: Any,
    counts: Any,
    t_first: int,
    columns: Any,
) -> None:
    alpha, alpha_exponent, log_norm = state
    lo, hi, room = np.uint64(0), np.uint64(near.ptr.size - 1), np.empty((4, log_norm.size))
    for i in range(messages.shape[0] - 1):
        t = t_first + i + 1
        arrays = (alpha[(t - 1) % 2], alpha[t % 2], messages[i + 1])
        scales = forward_scales(room, arrays[0], alpha_exponent, exponents[i + 1], log_norm, gain, t)
        forward_block(near, rewards, weights, arrays, counts, i, scales, t, lo, hi, columns)


@njit(parallel=ONLY_PRANGE, cache=True, error_model="numpy")
def _forward_parallel(
    near: Any,
    rewards: Any,
    weights: Any,
    messages: Any,
    exponents: Any,
    state: Any,
    gain: Any,
    counts: Any,
    t_first: int,
    columns: Any,
) -> None:
    alpha, alpha_exponent, log_norm = state
    n_blocks, room = (near.ptr.size + BLOCK - 2) // BLOCK, np.empty((4, log_norm.size))
    for i in range(messages.shape[0] - 1):
        t = t_first + i + 1
        scales = forward_scales(room, alpha[(t - 1) % 2], alpha_exponent, exponents[i + 1], log_norm, gain, t)
        for b in prange(n_blocks):
            inputs = (near, rewards, weights, columns)
            forward_stage(inputs, alpha, messages[i + 1], counts, i, scales, t, b, BLOCK)


@njit(cache=True, error_model="numpy")
def _forward_chunk(
    inputs: Any, alpha: Any, messages: Any, counts: Any, first: int, scales: Any, t: int, place: Any
) -> None:
    """Forward counterpart of `_backward_chunk`; two rows of alpha suffice."""
    c, n_chunks = place
    block, n_blocks, depth = inputs[0].block, _block_count(inputs[0]), len(scales)
    begin, last = _lean(c, n_chunks, n_blocks, 0)
    for wave in range(begin, last + depth - 1):
        for j in range(depth):
            lo, hi = _lean(c, n_chunks, n_blocks, j)
            if lo <= wave - j < hi:
                u = messages[first + j + 1]
                forward_stage(inputs, alpha, u, counts, first + j, scales[j], t + j, wave - j, block)


@njit(cache=True, error_model="numpy")
def _forward_gap(
    inputs: Any, alpha: Any, messages: Any, counts: Any, first: int, scales: Any, t: int, place: Any
) -> None:
    c, n_chunks = place
    middle = _lean(c, n_chunks, _block_count(inputs[0]), 0)[1]
    for j in range(1, len(scales)):
        for b in range(middle - j, middle + j):
            u = messages[first + j + 1]
            forward_stage(inputs, alpha, u, counts, first + j, scales[j], t + j, b, inputs[0].block)


@njit(parallel=ONLY_PRANGE, cache=True, error_model="numpy")
def _forward_waves(
    near: Any,
    rewards: Any,
    weights: Any,
    messages: Any,
    exponents: Any,
    state: Any,
    gain: Any,
    counts: Any,
    t_first: int,
    columns: Any,
    n_chunks: int,
) -> None:
    alpha, alpha_exponent, log_norm = state
    first = 0
    while first < messages.shape[0] - 1:
        t = t_first + first + 1
        depth = min(messages.shape[0] - 1 - first, WAVE - t % WAVE)
        room, cur = np.empty((depth, 4, log_norm.size)), alpha[(t - 1) % 2]
        scales = [
            forward_scales(room[j], cur, alpha_exponent, exponents[first + j + 1], log_norm, gain, t + j)
            for j in range(depth)
        ]
        for c in prange(n_chunks):
            inputs = (near, rewards, weights, columns)
            _forward_chunk(inputs, alpha, messages, counts, first, scales, t, (c, n_chunks))
        for c in prange(n_chunks - 1):
            inputs = (near, rewards, weights, columns)
            _forward_gap(inputs, alpha, messages, counts, first, scales, t, (c, n_chunks))
        first += depth


def forward(
    near: Neighbours,
    rewards: Rewards,
    weights: Weights,
    messages: NDArray[np.float64],
    exponents: NDArray[np.int64],
    state: Alpha,
    gain: NDArray[np.float64],
    counts: CountBuffers,
    t_first: int,
    columns: tuple[int, ...],
) -> None:
    """Carry alpha from step t_first over the steps of `messages`, accumulating expected counts.

    Parameters
    ----------
    near : predecessors of each state
    messages, exponents : u_t for t from t_first to t_first + n, as `backward` left them
    state : alpha at step t_first, updated
    gain : (L,) weight of step t in the expected counts
    """
    if near.ptr.size - 1 <= BLOCK:
        _forward_serial(near, rewards, weights, messages, exponents, state, gain, counts, t_first, len(columns))
        return
    with LOCK:
        if near.block:
            n_chunks = _chunk_count(near)
            _forward_waves(near, rewards, weights, messages, exponents, state, gain, counts, t_first, columns, n_chunks)
        else:
            _forward_parallel(near, rewards, weights, messages, exponents, state, gain, counts, t_first, columns)
