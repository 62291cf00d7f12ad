"""Sweeps over all trajectories in rescaled linear space, for K reward vectors at once.

A message is a flat array of (S + 1) K doubles, a row of K for each state and a last row of zeros for the empty slots of
`Neighbours.table`. Going backwards, the message at step t > 0 is u_t = w_t beta_t (the weight of every way to go on
from a state, its own reward included); at t = 0 it is beta_0 (own reward excluded: the caller adds it, shifted, so
that it cannot underflow). Going forwards, alpha_t includes the state's own reward. The true value of a message is the
stored one times 2**exponent.

    beta_t(s) = end(s) + sum_e x_t(e) u_{t+1}(s')        alpha_{t+1}(s') = w_{t+1}(s') sum_e x_t(e) alpha_t(s)

with w_t = exp(discount_t r(s)) and x_t = p(e) exp(discount_t r(e)). Scales are powers of two, hence exact, and
nothing here is summed across states: the results are the same bits on any number of threads.

Each direction has three drivers around the same blocks: one for graphs that fit a cache, one that deals the blocks of a
step out to threads, and one for large graphs with near neighbours, which lets several steps chase each other through
memory, so that a block is read from memory once for all of them (ADR 0003).

`columns` is a tuple of K zeros: its length is part of its type, so that numba knows K when it compiles. On small
graphs a K above four is passed as a number, for one compiled function serves them all.
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

# Steps that sweep over a large graph together, each a block behind the one before (see `linear`).
WAVE = 4
# A column is rescaled every so many steps: each costs one more pass over the message, and doubles have room for many.
RESCALE_EVERY = 4 * WAVE
_LN2 = math.log(2.0)
# Numba compiles the drivers for small graphs for each K up to this one, and once for all larger ones.
_SPECIALISED = 4


@njit(forceinline=True, error_model="numpy")
def _shift_of(message: Any, t: int, k: int, n_columns: int) -> int:
    """Return the exponent by which column k is rescaled at step t: mostly 0, now and then that of its maximum."""
    if t % RESCALE_EVERY:
        return 0
    top = 0.0
    for i in range(np.uint64(k), np.uint64(message.size), np.uint64(n_columns)):
        top = max(top, message[i])
    return math.frexp(top)[1] if 0.0 < top < np.inf else 0


@njit(cache=True, error_model="numpy")
def backward_scales(scales: Any, messages: Any, exponents: Any, i: int, t: int) -> Any:
    """Set and return the rows of `scales`: what stopping weighs at step t, and the factor of the next message."""
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
def backward_stage(sweep: Any, end: Any, messages: Any, i: int, scales: Any, t: int, b: int, block: int) -> None:
    """Set block b of messages[i], which is of step t; blocks beyond the states are nothing to do."""
    near, rewards, weights, columns = sweep
    n_states = messages.shape[1] // np.int64(count(columns)) - 1
    lo, hi = b * block, min(n_states, (b + 1) * block)
    if 0 <= lo < n_states:
        prev, out = messages[i + 1], messages[i]
        backward_block(near, rewards, weights, end, prev, out, scales, t, np.uint64(lo), np.uint64(hi), columns)


@njit(cache=True, error_model="numpy")
def forward_scales(scales: Any, cur: Any, alpha_exponent: Any, exponent: Any, log_norm: Any, gain: Any, t: int) -> Any:
    """Set and return the rows of `scales` for step t: factors of the next alpha, of probabilities, of both tallies."""
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
def forward_stage(sweep: Any, alpha: Any, u: Any, tally: Any, i: int, scales: Any, t: int, b: int, block: int) -> None:
    """Carry alpha to block b of step t and tally it in row i; blocks beyond the states are nothing to do."""
    near, rewards, weights, columns = sweep
    n_states = u.size // np.int64(count(columns)) - 1
    lo, hi = b * block, min(n_states, (b + 1) * block)
    if 0 <= lo < n_states:
        arrays = (alpha[(t - 1) % 2], alpha[t % 2], u)
        forward_block(near, rewards, weights, arrays, tally, i, scales, t, np.uint64(lo), np.uint64(hi), columns)


@njit(cache=True, error_model="numpy")
def _fill(near: Any, rewards: Any, weights: Any, n_columns: int) -> None:
    fill_nodes(weights.node, rewards, 1.0, 0, rewards.node.size)
    fill_edges(weights.edge, rewards.prob, rewards.edge, 1.0, np.uint64(0), np.uint64(near.idx.size), n_columns)


def fill(near: Neighbours, rewards: Rewards, weights: Weights, columns: tuple[int, ...]) -> None:
    """Compute the weights of step 0, which are those of every step when the rewards are steady."""
    _fill(near, rewards, weights, len(columns))


@njit(cache=True, error_model="numpy")
def _backward_serial(
    near: Any, rewards: Any, weights: Any, end: Any, messages: Any, exponents: Any, t_first: int, columns: Any
) -> None:
    sweep, room = (near, rewards, weights, columns), np.empty((2, exponents.shape[1]))
    for i in range(messages.shape[0] - 2, -1, -1):
        scales = backward_scales(room, messages, exponents, i, t_first + i)
        backward_stage(sweep, end, messages, i, scales, t_first + i, 0, messages.shape[1])


@njit(parallel=ONLY_PRANGE, cache=True, error_model="numpy")
def _backward_parallel(
    near: Any, rewards: Any, weights: Any, end: Any, messages: Any, exponents: Any, t_first: int, columns: Any
) -> None:
    n_blocks, room = (near.ptr.size + BLOCK - 2) // BLOCK, np.empty((2, exponents.shape[1]))
    for i in range(messages.shape[0] - 2, -1, -1):
        scales = backward_scales(room, messages, exponents, i, t_first + i)
        for b in prange(n_blocks):
            sweep = (near, rewards, weights, columns)
            backward_stage(sweep, end, messages, i, scales, t_first + i, b, BLOCK)


@njit(forceinline=True, error_model="numpy")
def _lean(c: int, n_chunks: int, n_blocks: int, j: int) -> Any:
    """Return the blocks, from the first to before the last, of chunk c that step j of a group can compute from j - 1.

    A chunk loses a block a step on each side where it borders on another, whose blocks are being computed meanwhile.
    """
    first, last = c * n_blocks // n_chunks, (c + 1) * n_blocks // n_chunks
    return first + (j if c > 0 else 0), last - (j if c < n_chunks - 1 else 0)


@njit(cache=True, error_model="numpy")
def _backward_chunk(sweep: Any, end: Any, messages: Any, top: int, scales: Any, t: int, c: int, n_chunks: int) -> None:
    """Compute the steps of a group in one chunk, each a block behind the one before, which it finds in the cache."""
    block, n_blocks, depth = sweep[0].block, _block_count(sweep[0]), len(scales)
    first, last = _lean(c, n_chunks, n_blocks, 0)
    for wave in range(first, last + depth - 1):
        for j in range(depth):
            lo, hi = _lean(c, n_chunks, n_blocks, j)
            if lo <= wave - j < hi:
                backward_stage(sweep, end, messages, top - j, scales[j], t - j, wave - j, block)


@njit(cache=True, error_model="numpy")
def _backward_gap(sweep: Any, end: Any, messages: Any, top: int, scales: Any, t: int, c: int, n_chunks: int) -> None:
    """Compute what chunks c and c + 1 left out between them."""
    middle = _lean(c, n_chunks, _block_count(sweep[0]), 0)[1]
    for j in range(1, len(scales)):
        for b in range(middle - j, middle + j):
            backward_stage(sweep, end, messages, top - j, scales[j], t - j, b, sweep[0].block)


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
        # A step that rescales reads the whole message before it, so that it can only be the first of a group.
        t = t_first + top
        depth = min(top + 1, (t - 1) % WAVE + 1)
        room = np.empty((depth, 2, exponents.shape[1]))
        scales = [backward_scales(room[j], messages, exponents, top - j, t - j) for j in range(depth)]
        for c in prange(n_chunks):
            _backward_chunk((near, rewards, weights, columns), end, messages, top, scales, t, c, n_chunks)
        for c in prange(n_chunks - 1):
            _backward_gap((near, rewards, weights, columns), end, messages, top, scales, t, c, n_chunks)
        top -= depth


def _few(columns: tuple[int, ...]) -> Any:
    return columns if len(columns) <= _SPECIALISED else len(columns)


def _chunk_count(near: Neighbours) -> int:
    """Return one chunk a thread, unless their gaps would touch."""
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
    """Fill messages[i] for steps t_first + i, from the last row down, which is given.

    Parameters
    ----------
    near : successors of each state
    end : (S,) 1 where a trajectory may stop, 0 elsewhere; None where it may stop anywhere
    messages : (n + 1, (S + 1) K), the last row given
    exponents : (n + 1, K), the last row given
    """
    if near.ptr.size - 1 <= BLOCK:
        _backward_serial(near, rewards, weights, end, messages, exponents, t_first, _few(columns))
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
    tally: Any,
    t_first: int,
    columns: Any,
) -> None:
    alpha, alpha_exponent, log_norm = state
    sweep, room = (near, rewards, weights, columns), np.empty((4, log_norm.size))
    for i in range(messages.shape[0] - 1):
        t = t_first + i + 1
        scales = forward_scales(room, alpha[(t - 1) % 2], alpha_exponent, exponents[i + 1], log_norm, gain, t)
        forward_stage(sweep, alpha, messages[i + 1], tally, i, scales, t, 0, messages.shape[1])


@njit(parallel=ONLY_PRANGE, cache=True, error_model="numpy")
def _forward_parallel(
    near: Any,
    rewards: Any,
    weights: Any,
    messages: Any,
    exponents: Any,
    state: Any,
    gain: Any,
    tally: Any,
    t_first: int,
    columns: Any,
) -> None:
    alpha, alpha_exponent, log_norm = state
    n_blocks, room = (near.ptr.size + BLOCK - 2) // BLOCK, np.empty((4, log_norm.size))
    for i in range(messages.shape[0] - 1):
        t = t_first + i + 1
        scales = forward_scales(room, alpha[(t - 1) % 2], alpha_exponent, exponents[i + 1], log_norm, gain, t)
        for b in prange(n_blocks):
            sweep = (near, rewards, weights, columns)
            forward_stage(sweep, alpha, messages[i + 1], tally, i, scales, t, b, BLOCK)


@njit(cache=True, error_model="numpy")
def _forward_chunk(
    sweep: Any, alpha: Any, messages: Any, tally: Any, first: int, scales: Any, t: int, place: Any
) -> None:
    """As `_backward_chunk`. Two rows of alpha are enough: a step overwrites a block after the last that reads it."""
    c, n_chunks = place
    block, n_blocks, depth = sweep[0].block, _block_count(sweep[0]), len(scales)
    begin, last = _lean(c, n_chunks, n_blocks, 0)
    for wave in range(begin, last + depth - 1):
        for j in range(depth):
            lo, hi = _lean(c, n_chunks, n_blocks, j)
            if lo <= wave - j < hi:
                u = messages[first + j + 1]
                forward_stage(sweep, alpha, u, tally, first + j, scales[j], t + j, wave - j, block)


@njit(cache=True, error_model="numpy")
def _forward_gap(
    sweep: Any, alpha: Any, messages: Any, tally: Any, first: int, scales: Any, t: int, place: Any
) -> None:
    c, n_chunks = place
    middle = _lean(c, n_chunks, _block_count(sweep[0]), 0)[1]
    for j in range(1, len(scales)):
        for b in range(middle - j, middle + j):
            u = messages[first + j + 1]
            forward_stage(sweep, alpha, u, tally, first + j, scales[j], t + j, b, sweep[0].block)


@njit(parallel=ONLY_PRANGE, cache=True, error_model="numpy")
def _forward_waves(
    near: Any,
    rewards: Any,
    weights: Any,
    messages: Any,
    exponents: Any,
    state: Any,
    gain: Any,
    tally: Any,
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
            sweep = (near, rewards, weights, columns)
            _forward_chunk(sweep, alpha, messages, tally, first, scales, t, (c, n_chunks))
        for c in prange(n_chunks - 1):
            sweep = (near, rewards, weights, columns)
            _forward_gap(sweep, alpha, messages, tally, first, scales, t, (c, n_chunks))
        first += depth


def forward(
    near: Neighbours,
    rewards: Rewards,
    weights: Weights,
    messages: NDArray[np.float64],
    exponents: NDArray[np.int64],
    state: Alpha,
    gain: NDArray[np.float64],
    tally: CountBuffers,
    t_first: int,
    columns: tuple[int, ...],
) -> None:
    """Carry alpha from step t_first over the steps of `messages`, tallying every step on the way.

    Parameters
    ----------
    near : predecessors of each state
    messages, exponents : u_t for t from t_first to t_first + n, as `backward` left them
    state : alpha at step t_first, updated
    gain : (L,) weight of step t in the tallies
    """
    if near.ptr.size - 1 <= BLOCK:
        _forward_serial(near, rewards, weights, messages, exponents, state, gain, tally, t_first, _few(columns))
        return
    with LOCK:
        if near.block:
            n_chunks = _chunk_count(near)
            _forward_waves(near, rewards, weights, messages, exponents, state, gain, tally, t_first, columns, n_chunks)
        else:
            _forward_parallel(near, rewards, weights, messages, exponents, state, gain, tally, t_first, columns)
