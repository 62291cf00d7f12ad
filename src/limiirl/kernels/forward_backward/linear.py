"""Forward and backward passes in rescaled linear arithmetic, for K reward vectors at once.

A message is a flat array of (S + 1) K doubles, K per state; the last K entries are zeros, to which the empty slots of
`Neighbours.table` refer. The backward message is u_t = w_t beta_t for t > 0, and beta_0 for t = 0. The value of a
message is the stored array times 2**exponent.

    beta_t(s) = end(s) + sum_e x_t(e) u_{t+1}(s')        alpha_{t+1}(s') = w_{t+1}(s') sum_e x_t(e) alpha_t(s)

with w_t(s) = exp(discount_t r(s)) and x_t(e) = p(e) exp(discount_t r(e)). Results do not depend on the number of
threads: scales are powers of two, so that rescaling is exact, and no sum is over all states.

Each pass has three implementations: serial, parallel over the blocks of a step, and, for large graphs of small
bandwidth, a wavefront over several steps, in which each block is read from memory once (ADR 0003).

`inputs` is the tuple (near, rewards, weights, columns). `columns` is a tuple of K zeros, so that K is a compile-time
constant, or the integer K on small graphs with K > 4, so that one compiled function serves all K.

In the innermost loops, a row is a tuple of the K values of one state, or of one value if `columns` is an integer. Rows
are summed in registers over a fixed number of table slots, without branches. A None argument removes a branch at
compile time.
"""

import math
from typing import Any

import numpy as np
from numba import get_num_threads, njit, prange
from numpy.typing import NDArray

from limiirl._parallel import BLOCK, LOCK, ONLY_PRANGE
from limiirl.kernels.graph import EMPTY, Alpha, CountBuffers, Neighbours, Rewards, Weights
from limiirl.kernels.simd import add, count, exp, lanes, load, mul, scale, store

_ONE = np.uint64(1)
_TWO = np.uint64(2)
_THREE = np.uint64(3)


@njit(forceinline=True, error_model="numpy")
def _term(x: Any, prev: Any, other: Any, e: Any, k: Any, columns: Any) -> Any:
    """Return the product of x at edge e and `prev` at the neighbour `other`, as a row of columns."""
    n_columns = count(columns)
    row = load(prev, np.uint64(other) * n_columns + k, columns)
    if x is None:
        return row
    return mul(load(x, e * n_columns + k, columns), row)


@njit(forceinline=True, error_model="numpy")
def _gather(near: Any, x: Any, prev: Any, s: Any, k: Any, narrow: bool, columns: Any) -> Any:
    """Return the sum of x at the edge times `prev` at the neighbour, over the neighbours of s.

    If `narrow`, every state has at most three neighbours.
    """
    width = np.uint64(near.width)
    first = np.uint64(near.ptr[s])
    slot = s * _THREE if narrow else s * width
    total = _term(x, prev, near.table[slot], first, k, columns)
    total = add(total, _term(x, prev, near.table[slot + _ONE], first + _ONE, k, columns))
    total = add(total, _term(x, prev, near.table[slot + _TWO], first + _TWO, k, columns))
    if not narrow:
        for q in range(_THREE, width):
            total = add(total, _term(x, prev, near.table[slot + q], first + q, k, columns))
        for e in range(first + width, np.uint64(near.ptr[s + _ONE])):
            total = add(total, _term(x, prev, near.idx[e], e, k, columns))
    return total


@njit(forceinline=True, error_model="numpy")
def fill_nodes(weight: Any, rewards: Any, scale: float, lo: Any, hi: Any) -> None:
    """Set w[lo:hi] to exp(scale r)."""
    for i in range(lo, hi):
        weight[i] = exp(scale * rewards.node[i])


@njit(forceinline=True, error_model="numpy")
def fill_edges(x: Any, prob: Any, reward: Any, scale: float, lo: Any, hi: Any, columns: Any) -> None:
    """Set x = p exp(scale r) for the edges lo:hi; do nothing if x is None."""
    if x is not None:
        n_columns = count(columns)
        _fill_exp(x, reward, scale, lo * n_columns, hi * n_columns)
        _multiply(x, prob, lo, hi, n_columns)


@njit(forceinline=True, error_model="numpy")
def _fill_exp(x: Any, reward: Any, scale: float, lo: Any, hi: Any) -> None:
    if reward is None or reward.size == 0:
        x[lo:hi] = 1.0
    else:
        for i in range(lo, hi):
            x[i] = exp(scale * reward[i])


@njit(forceinline=True, error_model="numpy")
def _multiply(x: Any, prob: Any, lo: Any, hi: Any, n_columns: Any) -> None:
    if prob is None or prob.size == 0:
        return
    for e in range(lo, hi):
        for k in range(n_columns):
            x[e * n_columns + k] *= prob[e]


@njit(forceinline=True, error_model="numpy")
def refresh(near: Any, rewards: Any, weights: Any, t_node: int, t_edge: int, lo: Any, hi: Any, columns: Any) -> None:
    """Compute the weights of the states lo:hi and of their edges, unless they are time-homogeneous."""
    if rewards.time_homogeneous:
        return
    n_columns = count(columns)
    fill_nodes(weights.node, rewards, rewards.discount[t_node], lo * n_columns, hi * n_columns)
    first, last = np.uint64(near.ptr[lo]), np.uint64(near.ptr[hi])
    fill_edges(weights.edge, rewards.prob, rewards.edge, rewards.discount[t_edge], first, last, columns)


@njit(forceinline=True, error_model="numpy")
def _stop_weight(stop: Any, end: Any, s: Any) -> Any:
    if end is None or end.size == 0:
        return stop
    return scale(stop, end[s])


@njit(forceinline=True, error_model="numpy")
def _backward_rows(
    inputs: Any, end: Any, prev: Any, out: Any, scales: Any, own: bool, narrow: bool, lo: Any, hi: Any
) -> None:
    near, _, (w, x), columns = inputs
    n_columns = count(columns)
    for k in range(np.uint64(0), n_columns, lanes(columns)):
        stop, factor = load(scales[0], k, columns), load(scales[1], k, columns)
        for s in range(lo, hi):
            continuation = mul(factor, _gather(near, x, prev, s, k, narrow, columns))
            total = add(_stop_weight(stop, end, s), continuation)
            o = s * n_columns + k
            if own:
                total = mul(total, load(w, o, columns))
            store(out, o, total)


@njit(cache=True, error_model="numpy")
def backward_block(inputs: Any, end: Any, prev: Any, out: Any, scales: Any, t: int, lo: Any, hi: Any) -> None:
    """Set `out`, the message of step t, for the states lo:hi; `prev` is the message of step t + 1."""
    near, rewards, weights, columns = inputs
    refresh(near, rewards, weights, t, t, lo, hi, columns)
    if near.width == 3 and not near.overflows and t > 0:
        _backward_rows(inputs, end, prev, out, scales, True, True, lo, hi)
    else:
        _backward_rows(inputs, end, prev, out, scales, t > 0, False, lo, hi)


@njit(forceinline=True, error_model="numpy")
def _add_edge_counts(near: Any, x: Any, cur: Any, edge: Any, weight: Any, s: Any, k: Any, columns: Any) -> None:
    """Add the expected counts of the edges into s."""
    if edge is None or edge.size == 0:
        return
    n_columns = count(columns)
    for e in range(np.uint64(near.ptr[s]), np.uint64(near.ptr[s + _ONE])):
        flow = _term(x, cur, near.idx[e], e, k, columns)
        o = e * n_columns + k
        store(edge, o, add(load(edge, o, columns), mul(weight, flow)))


@njit(forceinline=True, error_model="numpy")
def _record_edge_prob(
    near: Any, x: Any, cur: Any, edge_prob: Any, i: int, incoming: Any, s: Any, k: Any, columns: Any
) -> None:
    """Set row i of `edge_prob` to P(edge into s = e | state s)."""
    if edge_prob is None or edge_prob.size == 0:
        return
    n_columns = count(columns)
    for e in range(np.uint64(near.ptr[s]), np.uint64(near.ptr[s + _ONE])):
        flow = _term(x, cur, near.idx[e], e, k, columns)
        for j in range(len(incoming)):
            edge_prob[i, e * n_columns + k + np.uint64(j)] = flow[j] / incoming[j] if incoming[j] > 0.0 else 0.0


@njit(forceinline=True, error_model="numpy")
def _add_state_counts(node: Any, weight: Any, o: Any, columns: Any) -> None:
    if node is None or node.size == 0:
        return
    store(node, o, add(load(node, o, columns), weight))


@njit(forceinline=True, error_model="numpy")
def _record_marginals(marginals: Any, i: int, probability: Any, o: Any) -> None:
    if marginals is None or marginals.size == 0:
        return
    store(marginals, np.uint64(i) * np.uint64(marginals.shape[1]) + o, probability)


@njit(forceinline=True, error_model="numpy")
def _forward_rows(inputs: Any, arrays: Any, counts: Any, i: int, scales: Any, narrow: bool, lo: Any, hi: Any) -> None:
    near, _, (w, x), columns = inputs
    cur, nxt, u = arrays
    n_columns = count(columns)
    for k in range(np.uint64(0), n_columns, lanes(columns)):
        factor, norm = load(scales[0], k, columns), load(scales[1], k, columns)
        node_factor, edge_factor = load(scales[2], k, columns), load(scales[3], k, columns)
        for s in range(lo, hi):
            o = s * n_columns + k
            incoming = _gather(near, x, cur, s, k, narrow, columns)
            continuation = load(u, o, columns)
            joint = mul(incoming, continuation)
            _add_state_counts(counts.node, mul(node_factor, joint), o, columns)
            _add_edge_counts(near, x, cur, counts.edge, mul(edge_factor, continuation), s, k, columns)
            _record_marginals(counts.marginals, i, mul(norm, joint), o)
            _record_edge_prob(near, x, cur, counts.edge_prob, i, incoming, s, k, columns)
            store(nxt, o, mul(incoming, mul(factor, load(w, o, columns))))


@njit(cache=True, error_model="numpy")
def forward_block(inputs: Any, arrays: Any, counts: Any, i: int, scales: Any, t: int, lo: Any, hi: Any) -> None:
    """Compute alpha_t and the expected counts of the states lo:hi; `arrays` are alpha_{t-1}, alpha_t and u_t.

    Marginals and edge probabilities are recorded in row i of `counts`.
    """
    near, rewards, weights, columns = inputs
    refresh(near, rewards, weights, t, t - 1, lo, hi, columns)
    if near.width == 3 and not near.overflows:
        _forward_rows(inputs, arrays, counts, i, scales, True, lo, hi)
    else:
        _forward_rows(inputs, arrays, counts, i, scales, False, lo, hi)


# Steps per wavefront; each step is one block behind the previous step.
WAVE = 4
# Steps between rescalings; a rescaling reads the whole message once more.
RESCALE_EVERY = 4 * WAVE
_LN2 = math.log(2.0)


@njit(forceinline=True, error_model="numpy")
def _shift_of(message: Any, t: int, k: int, n_columns: int) -> int:
    """Return the binary exponent of the maximum of column k if the message is rescaled at step t, otherwise 0."""
    if t % RESCALE_EVERY:
        return 0
    top = 0.0
    for i in range(np.uint64(k), np.uint64(message.size), np.uint64(n_columns)):
        top = max(top, message[i])
    return math.frexp(top)[1] if 0.0 < top < np.inf else 0


@njit(cache=True, error_model="numpy")
def backward_scales(scales: Any, messages: Any, exponents: Any, i: int, t: int) -> Any:
    """Set and return the rows of `scales` (2, K): weight of stopping at step t, and factor of messages[i + 1]."""
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
    """Set block b of messages[i], which is the message of step t; do nothing if b is out of range."""
    n_states = messages.shape[1] // np.int64(count(inputs[3])) - 1
    lo, hi = b * block, min(n_states, (b + 1) * block)
    if 0 <= lo < n_states:
        backward_block(inputs, end, messages[i + 1], messages[i], scales, t, np.uint64(lo), np.uint64(hi))


@njit(cache=True, error_model="numpy")
def forward_scales(
    scales: Any, cur: Any, alpha_exponent: Any, exponent: Any, log_norm: Any, step_weight: Any, t: int
) -> Any:
    """Return, in the rows of `scales` (4, K), the factors of alpha_t, of marginals, and of state and edge counts."""
    factor, scale, node_factor, edge_factor = scales[0], scales[1], scales[2], scales[3]
    for k in range(log_norm.size):
        shift = _shift_of(cur, t, k, log_norm.size)
        scale[k] = math.exp((alpha_exponent[k] + exponent[k]) * _LN2 - log_norm[k])
        node_factor[k] = step_weight[t] * scale[k]
        edge_factor[k] = step_weight[t - 1] * scale[k]
        factor[k] = math.ldexp(1.0, -shift)
        alpha_exponent[k] += shift
    return factor, scale, node_factor, edge_factor


@njit(cache=True, error_model="numpy")
def forward_stage(
    inputs: Any, alpha: Any, u: Any, counts: Any, i: int, scales: Any, t: int, b: int, block: int
) -> None:
    """Compute block b of alpha_t and its expected counts; do nothing if b is out of range."""
    n_states = u.size // np.int64(count(inputs[3])) - 1
    lo, hi = b * block, min(n_states, (b + 1) * block)
    if 0 <= lo < n_states:
        arrays = (alpha[(t - 1) % 2], alpha[t % 2], u)
        forward_block(inputs, arrays, counts, i, scales, t, np.uint64(lo), np.uint64(hi))


@njit(cache=True, error_model="numpy")
def _fill(near: Any, rewards: Any, weights: Any, n_columns: int) -> None:
    fill_nodes(weights.node, rewards, 1.0, 0, rewards.node.size)
    fill_edges(weights.edge, rewards.prob, rewards.edge, 1.0, np.uint64(0), np.uint64(near.idx.size), n_columns)


def fill(near: Neighbours, rewards: Rewards, weights: Weights, columns: tuple[int, ...]) -> None:
    """Compute the weights of step 0, which apply to every step if rewards are time-homogeneous."""
    _fill(near, rewards.without_none(), weights, len(columns))


@njit(cache=True, error_model="numpy")
def _backward_serial(inputs: Any, end: Any, messages: Any, exponents: Any, t_first: int) -> None:
    lo, hi, scratch = np.uint64(0), np.uint64(inputs[0].ptr.size - 1), np.empty((2, exponents.shape[1]))
    for i in range(messages.shape[0] - 2, -1, -1):
        scales = backward_scales(scratch, messages, exponents, i, t_first + i)
        backward_block(inputs, end, messages[i + 1], messages[i], scales, t_first + i, lo, hi)


@njit(parallel=ONLY_PRANGE, cache=True, error_model="numpy")
def _backward_parallel(
    near: Any, rewards: Any, weights: Any, columns: Any, end: Any, messages: Any, exponents: Any, t_first: int
) -> None:
    n_blocks, scratch = (near.ptr.size + BLOCK - 2) // BLOCK, np.empty((2, exponents.shape[1]))
    for i in range(messages.shape[0] - 2, -1, -1):
        scales = backward_scales(scratch, messages, exponents, i, t_first + i)
        for b in prange(n_blocks):
            backward_stage((near, rewards, weights, columns), end, messages, i, scales, t_first + i, b, BLOCK)


@njit(forceinline=True, error_model="numpy")
def _chunk_range(c: int, n_chunks: int, n_blocks: int, j: int) -> Any:
    """Return the blocks of chunk c at step j of a wavefront: at each inner border, one block fewer per step."""
    first, last = c * n_blocks // n_chunks, (c + 1) * n_blocks // n_chunks
    return first + (j if c > 0 else 0), last - (j if c < n_chunks - 1 else 0)


@njit(cache=True, error_model="numpy")
def _backward_chunk(inputs: Any, end: Any, messages: Any, top: int, scales: Any, t: int, c: int, n_chunks: int) -> None:
    """Compute the steps of a wavefront in chunk c; each step is one block behind the previous step."""
    block, n_blocks, depth = inputs[0].block, _block_count(inputs[0]), len(scales)
    first, last = _chunk_range(c, n_chunks, n_blocks, 0)
    for wave in range(first, last + depth - 1):
        for j in range(depth):
            lo, hi = _chunk_range(c, n_chunks, n_blocks, j)
            if lo <= wave - j < hi:
                backward_stage(inputs, end, messages, top - j, scales[j], t - j, wave - j, block)


@njit(cache=True, error_model="numpy")
def _backward_border(
    inputs: Any, end: Any, messages: Any, top: int, scales: Any, t: int, c: int, n_chunks: int
) -> None:
    """Compute the blocks at the border of chunks c and c + 1, which `_backward_chunk` omits."""
    middle = _chunk_range(c, n_chunks, _block_count(inputs[0]), 0)[1]
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
    columns: Any,
    end: Any,
    messages: Any,
    exponents: Any,
    t_first: int,
    n_chunks: int,
) -> None:
    top = messages.shape[0] - 2
    while top >= 0:
        # A rescaling step reads the whole previous message, and must therefore be the first step of a wavefront.
        t = t_first + top
        depth = min(top + 1, (t - 1) % WAVE + 1)
        scratch = np.empty((depth, 2, exponents.shape[1]))
        scales = [backward_scales(scratch[j], messages, exponents, top - j, t - j) for j in range(depth)]
        for c in prange(n_chunks):
            _backward_chunk((near, rewards, weights, columns), end, messages, top, scales, t, c, n_chunks)
        for c in prange(n_chunks - 1):
            _backward_border((near, rewards, weights, columns), end, messages, top, scales, t, c, n_chunks)
        top -= depth


def _chunk_count(near: Neighbours) -> int:
    """Return the number of chunks: one per thread, unless the borders of a chunk would overlap."""
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
    """Compute the backward messages of the steps t_first, ..., t_first + n - 1 from the message of step t_first + n.

    Parameters
    ----------
    near : successors of each state
    end : (S,), 1 in states where a trajectory may stop, otherwise 0; None if it may stop in every state
    messages, exponents : (n + 1, (S + 1) K) and (n + 1, K)
        Row i is the message of step t_first + i; the last row is input.
    """
    if near.ptr.size - 1 <= BLOCK:
        serial = (near, rewards.without_none(), weights, len(columns))
        _backward_serial(serial, EMPTY if end is None else end, messages, exponents, t_first)
        return
    inputs = (near, rewards, weights, columns)
    with LOCK:
        if near.block:
            _backward_waves(*inputs, end, messages, exponents, t_first, _chunk_count(near))
        else:
            _backward_parallel(*inputs, end, messages, exponents, t_first)


@njit(cache=True, error_model="numpy")
def _forward_serial(
    inputs: Any, messages: Any, exponents: Any, state: Any, step_weight: Any, counts: Any, t_first: int
) -> None:
    alpha, alpha_exponent, log_norm = state
    lo, hi, scratch = np.uint64(0), np.uint64(inputs[0].ptr.size - 1), np.empty((4, log_norm.size))
    for i in range(messages.shape[0] - 1):
        t = t_first + i + 1
        arrays = (alpha[(t - 1) % 2], alpha[t % 2], messages[i + 1])
        scales = forward_scales(scratch, arrays[0], alpha_exponent, exponents[i + 1], log_norm, step_weight, t)
        forward_block(inputs, arrays, counts, i, scales, t, lo, hi)


@njit(parallel=ONLY_PRANGE, cache=True, error_model="numpy")
def _forward_parallel(
    near: Any,
    rewards: Any,
    weights: Any,
    columns: Any,
    messages: Any,
    exponents: Any,
    state: Any,
    step_weight: Any,
    counts: Any,
    t_first: int,
) -> None:
    alpha, alpha_exponent, log_norm = state
    n_blocks, scratch = (near.ptr.size + BLOCK - 2) // BLOCK, np.empty((4, log_norm.size))
    for i in range(messages.shape[0] - 1):
        t = t_first + i + 1
        scales = forward_scales(scratch, alpha[(t - 1) % 2], alpha_exponent, exponents[i + 1], log_norm, step_weight, t)
        for b in prange(n_blocks):
            here = (near, rewards, weights, columns)
            forward_stage(here, alpha, messages[i + 1], counts, i, scales, t, b, BLOCK)


@njit(cache=True, error_model="numpy")
def _forward_chunk(
    inputs: Any, alpha: Any, messages: Any, counts: Any, first: int, scales: Any, t: int, chunk: Any
) -> None:
    """Forward counterpart of `_backward_chunk`; alpha_t is stored in row t % 2."""
    c, n_chunks = chunk
    block, n_blocks, depth = inputs[0].block, _block_count(inputs[0]), len(scales)
    begin, last = _chunk_range(c, n_chunks, n_blocks, 0)
    for wave in range(begin, last + depth - 1):
        for j in range(depth):
            lo, hi = _chunk_range(c, n_chunks, n_blocks, j)
            if lo <= wave - j < hi:
                u = messages[first + j + 1]
                forward_stage(inputs, alpha, u, counts, first + j, scales[j], t + j, wave - j, block)


@njit(cache=True, error_model="numpy")
def _forward_border(
    inputs: Any, alpha: Any, messages: Any, counts: Any, first: int, scales: Any, t: int, chunk: Any
) -> None:
    c, n_chunks = chunk
    middle = _chunk_range(c, n_chunks, _block_count(inputs[0]), 0)[1]
    for j in range(1, len(scales)):
        for b in range(middle - j, middle + j):
            u = messages[first + j + 1]
            forward_stage(inputs, alpha, u, counts, first + j, scales[j], t + j, b, inputs[0].block)


@njit(parallel=ONLY_PRANGE, cache=True, error_model="numpy")
def _forward_waves(
    near: Any,
    rewards: Any,
    weights: Any,
    columns: Any,
    messages: Any,
    exponents: Any,
    state: Any,
    step_weight: Any,
    counts: Any,
    t_first: int,
    n_chunks: int,
) -> None:
    alpha, alpha_exponent, log_norm = state
    first = 0
    while first < messages.shape[0] - 1:
        t = t_first + first + 1
        depth = min(messages.shape[0] - 1 - first, WAVE - t % WAVE)
        scratch, cur = np.empty((depth, 4, log_norm.size)), alpha[(t - 1) % 2]
        scales = [
            forward_scales(scratch[j], cur, alpha_exponent, exponents[first + j + 1], log_norm, step_weight, t + j)
            for j in range(depth)
        ]
        for c in prange(n_chunks):
            here = (near, rewards, weights, columns)
            _forward_chunk(here, alpha, messages, counts, first, scales, t, (c, n_chunks))
        for c in prange(n_chunks - 1):
            here = (near, rewards, weights, columns)
            _forward_border(here, alpha, messages, counts, first, scales, t, (c, n_chunks))
        first += depth


def forward(
    near: Neighbours,
    rewards: Rewards,
    weights: Weights,
    messages: NDArray[np.float64],
    exponents: NDArray[np.int64],
    state: Alpha,
    step_weight: NDArray[np.float64],
    counts: CountBuffers,
    t_first: int,
    columns: tuple[int, ...],
) -> None:
    """Compute alpha for the steps t_first + 1, ..., t_first + n, and accumulate expected counts.

    Parameters
    ----------
    near : predecessors of each state
    messages, exponents : outputs of `backward` for the steps t_first, ..., t_first + n
    state : alpha of step t_first; overwritten with alpha of step t_first + n
    step_weight : (L,), weight of each step in the expected counts
    """
    if near.ptr.size - 1 <= BLOCK:
        inputs = (near, rewards.without_none(), weights, len(columns))
        _forward_serial(inputs, messages, exponents, state, step_weight, counts.without_none(), t_first)
        return
    arguments = (near, rewards, weights, columns, messages, exponents, state, step_weight, counts, t_first)
    with LOCK:
        if near.block:
            _forward_waves(*arguments, _chunk_count(near))
        else:
            _forward_parallel(*arguments)
