"""Sweeps over all trajectories in rescaled linear space, for K reward vectors at once.

A message is a flat array of (S + 1) K doubles, a row of K for each state and a last row of zeros for the empty slots of
`Neighbours.table`. Going backwards, the message at step t > 0 is u_t = w_t beta_t (the weight of every way to go on
from a state, its own reward included); at t = 0 it is beta_0 (own reward excluded: the caller adds it, shifted, so
that it cannot underflow). Going forwards, alpha_t includes the state's own reward. The true value of a message is the
stored one times 2**exponent.

    beta_t(s) = end(s) + sum_e x_t(e) u_{t+1}(s')        alpha_{t+1}(s') = w_{t+1}(s') sum_e x_t(e) alpha_t(s)

with w_t = exp(discount_t r(s)) and x_t = p(e) exp(discount_t r(e)). Scales are powers of two, hence exact, and
nothing here is summed across states: the results are the same bits on any number of threads.

`columns` is a tuple of K zeros: its length is part of its type, so that numba unrolls the loops over K. Arguments
that may be None select a variant when numba compiles, not when it runs.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from numba import njit, prange
from numpy.typing import NDArray

from limiirl.kernels.graph import Neighbours, Rewards
from limiirl.kernels.parallel import BLOCK, LOCK, ONLY_PRANGE
from limiirl.kernels.vector import exp, rowwise

# A column is rescaled every so many steps: each costs one more pass over the message, and doubles have room for many.
RESCALE_EVERY = 16
_ONE = np.uint64(1)
_LN2 = math.log(2.0)


class Weights(NamedTuple):
    """Buffers for w (S K) and, unless every edge weighs 1, for x.

    x has (E + table width) K entries: the last row's empty slots read past the edges.
    """

    node: NDArray[np.float64]
    edge: NDArray[np.float64] | None


class Alpha(NamedTuple):
    """The forward message: `value` (2, (S + 1) K) holds alpha_t in row t % 2, `exponent` (K,) its scale.

    Tallies are divided by exp(log_norm).
    """

    value: NDArray[np.float64]
    exponent: NDArray[np.int64]
    log_norm: NDArray[np.float64]


class Tally(NamedTuple):
    """What a forward sweep accumulates; None is not computed.

    node (S K) and edge (E K, sorted by target) sum gain_t times the probability of being there at step t; visits (n,
    S K) and share (n, E K) record, step by step, the probability of each state and the chance that one who stands in
    it came by each edge.
    """

    node: NDArray[np.float64] | None
    edge: NDArray[np.float64] | None
    visits: NDArray[np.float64] | None
    share: NDArray[np.float64] | None


@njit(forceinline=True, error_model="numpy")
def _add_row(x: Any, prev: Any, out: Any, o: Any, other: Any, e: Any, columns: Any) -> None:
    n_columns = np.uint64(len(columns))
    row = other * n_columns
    for k in range(n_columns):
        if x is None:
            out[o + k] += prev[row + k]
        else:
            out[o + k] += x[e * n_columns + k] * prev[row + k]


@njit(forceinline=True, error_model="numpy")
def _gather_row(near: Any, x: Any, prev: Any, out: Any, s: Any, columns: Any) -> None:
    """Set row s of `out` to the sum over the neighbours of s of x(edge) prev(neighbour)."""
    n_columns = np.uint64(len(columns))
    width = np.uint64(near.width)
    o = s * n_columns
    first = np.uint64(near.ptr[s])
    slot = s * width
    a = np.uint64(near.table[slot]) * n_columns
    b = np.uint64(near.table[slot + _ONE]) * n_columns
    for k in range(n_columns):
        if x is None:
            out[o + k] = prev[a + k] + prev[b + k]
        else:
            i = first * n_columns + k
            out[o + k] = x[i] * prev[a + k] + x[i + n_columns] * prev[b + k]
    for q in range(np.uint64(2), width):
        rowwise()
        _add_row(x, prev, out, o, np.uint64(near.table[slot + q]), first + q, columns)
    for e in range(first + width, np.uint64(near.ptr[s + _ONE])):
        rowwise()
        _add_row(x, prev, out, o, np.uint64(near.idx[e]), e, columns)


@njit(forceinline=True, error_model="numpy")
def _fill_nodes(weight: Any, rewards: Any, scale: float, lo: Any, hi: Any) -> None:
    for i in range(lo, hi):
        weight[i] = exp(scale * rewards.node[i])


@njit(forceinline=True, error_model="numpy")
def _fill_edges(x: Any, prob: Any, reward: Any, scale: float, lo: Any, hi: Any, columns: Any) -> None:
    if x is not None:
        n_columns = np.uint64(len(columns))
        for e in range(lo, hi):
            for k in range(n_columns):
                i = e * n_columns + k
                x[i] = 1.0 if reward is None else exp(scale * reward[i])
                if prob is not None:
                    x[i] *= prob[e]


@njit(cache=True, error_model="numpy")
def fill(near: Neighbours, rewards: Rewards, weights: Weights, columns: Any) -> None:
    """Compute the weights of step 0, which are those of every step when the rewards are steady."""
    _fill_nodes(weights.node, rewards, 1.0, 0, rewards.node.size)
    _fill_edges(weights.edge, rewards.prob, rewards.edge, 1.0, np.uint64(0), np.uint64(near.idx.size), columns)


@njit(forceinline=True, error_model="numpy")
def _refresh(near: Any, rewards: Any, weights: Any, t_node: int, t_edge: int, lo: Any, hi: Any, columns: Any) -> None:
    """Recompute the weights of states lo to hi, and of their edges, for these steps, where rewards are discounted."""
    if rewards.steady:
        return
    n_columns = np.uint64(len(columns))
    _fill_nodes(weights.node, rewards, rewards.discount[t_node], lo * n_columns, hi * n_columns)
    first, last = np.uint64(near.ptr[lo]), np.uint64(near.ptr[hi])
    _fill_edges(weights.edge, rewards.prob, rewards.edge, rewards.discount[t_edge], first, last, columns)


@njit(forceinline=True, error_model="numpy")
def _stopped(stop: float, end: Any, s: Any) -> float:
    if end is None:
        return stop
    return stop * end[s]


@njit(cache=True, error_model="numpy")
def _backward_block(
    near: Any,
    rewards: Any,
    weights: Any,
    end: Any,
    prev: Any,
    out: Any,
    scales: Any,
    t: int,
    lo: Any,
    hi: Any,
    columns: Any,
) -> None:
    n_columns = np.uint64(len(columns))
    stop, factor = scales
    _refresh(near, rewards, weights, t, t, lo, hi, columns)
    for s in range(lo, hi):
        rowwise()
        _gather_row(near, weights.edge, prev, out, s, columns)
        o = s * n_columns
        for k in range(n_columns):
            total = _stopped(stop[k], end, s) + factor[k] * out[o + k]
            out[o + k] = total * weights.node[o + k] if t > 0 else total


@njit(cache=True, error_model="numpy")
def _shift_of(message: Any, t: int, shift: Any, columns: Any) -> None:
    """Choose the exponents by which a message is rescaled at step t: mostly 0, now and then those of its maxima."""
    n_columns = np.uint64(len(columns))
    for k in range(n_columns):
        shift[k] = 0
        if t % RESCALE_EVERY == 0:
            top = 0.0
            for s in range(np.uint64(message.size) // n_columns):
                top = max(top, message[s * n_columns + k])
            if 0.0 < top < np.inf:
                shift[k] = math.frexp(top)[1]


@njit(cache=True, error_model="numpy")
def _backward_scales(messages: Any, exponents: Any, i: int, t: int, columns: Any) -> Any:
    """Return (stop, factor): what stopping weighs at step t, and what the message of the next step is multiplied by."""
    n_columns = len(columns)
    shift = np.empty(n_columns, dtype=np.int64)
    stop, factor = np.empty(n_columns), np.empty(n_columns)
    _shift_of(messages[i + 1], t, shift, columns)
    for k in range(n_columns):
        exponents[i, k] = exponents[i + 1, k] + shift[k]
        factor[k] = math.ldexp(1.0, -shift[k])
        stop[k] = math.ldexp(1.0, -exponents[i, k])
        messages[i, messages.shape[1] - n_columns + k] = 0.0
    return stop, factor


@njit(cache=True, error_model="numpy")
def _backward_serial(
    near: Any, rewards: Any, weights: Any, end: Any, messages: Any, exponents: Any, t_first: int, columns: Any
) -> None:
    hi = np.uint64(messages.shape[1] // len(columns) - 1)
    for i in range(messages.shape[0] - 2, -1, -1):
        t = t_first + i
        scales = _backward_scales(messages, exponents, i, t, columns)
        prev, out = messages[i + 1], messages[i]
        _backward_block(near, rewards, weights, end, prev, out, scales, t, np.uint64(0), hi, columns)


@njit(parallel=ONLY_PRANGE, cache=True, error_model="numpy")
def _backward_parallel(
    near: Any, rewards: Any, weights: Any, end: Any, messages: Any, exponents: Any, t_first: int, columns: Any
) -> None:
    n_states = messages.shape[1] // len(columns) - 1
    for i in range(messages.shape[0] - 2, -1, -1):
        t = t_first + i
        scales = _backward_scales(messages, exponents, i, t, columns)
        prev, out = messages[i + 1], messages[i]
        for b in prange((n_states + BLOCK - 1) // BLOCK):
            lo, hi = np.uint64(b * BLOCK), np.uint64(min(n_states, (b + 1) * BLOCK))
            _backward_block(near, rewards, weights, end, prev, out, scales, t, lo, hi, columns)


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
    if near.ptr.size - 1 > BLOCK:
        with LOCK:
            _backward_parallel(near, rewards, weights, end, messages, exponents, t_first, columns)
    else:
        _backward_serial(near, rewards, weights, end, messages, exponents, t_first, columns)


@njit(forceinline=True, error_model="numpy")
def _tally_edges(
    near: Any, x: Any, cur: Any, nxt: Any, u: Any, edge: Any, share: Any, edge_gain: Any, s: Any, columns: Any
) -> None:
    """Accumulate the edges into s: nxt holds, in row s, the total that came in."""
    if edge is None and share is None:
        return
    n_columns = np.uint64(len(columns))
    o = s * n_columns
    for e in range(np.uint64(near.ptr[s]), np.uint64(near.ptr[s + _ONE])):
        rowwise()
        row = np.uint64(near.idx[e]) * n_columns
        for k in range(n_columns):
            flow = cur[row + k] if x is None else x[e * n_columns + k] * cur[row + k]
            if edge is not None:
                edge[e * n_columns + k] += edge_gain[k] * flow * u[o + k]
            if share is not None:
                total = nxt[o + k]
                share[e * n_columns + k] = flow / total if total > 0.0 else 0.0


@njit(forceinline=True, error_model="numpy")
def _tally_row(arrived: Any, u: Any, node: Any, visits: Any, node_gain: Any, scale: Any, o: Any, columns: Any) -> None:
    n_columns = np.uint64(len(columns))
    for k in range(n_columns):
        if node is not None:
            node[o + k] += node_gain[k] * (arrived[o + k] * u[o + k])
        if visits is not None:
            visits[o + k] = scale[k] * (arrived[o + k] * u[o + k])


@njit(forceinline=True, error_model="numpy")
def _row(record: Any, i: int) -> Any:
    """Return record[i], or None where nothing is recorded."""
    if record is None:
        return None
    return record[i]


@njit(cache=True, error_model="numpy")
def _forward_block(
    near: Any,
    rewards: Any,
    weights: Any,
    cur: Any,
    nxt: Any,
    u: Any,
    tally: Any,
    i: int,
    scales: Any,
    t: int,
    lo: Any,
    hi: Any,
    columns: Any,
) -> None:
    n_columns = np.uint64(len(columns))
    factor, scale, node_gain, edge_gain = scales
    visits, share = _row(tally.visits, i), _row(tally.share, i)
    _refresh(near, rewards, weights, t, t - 1, lo, hi, columns)
    for s in range(lo, hi):
        rowwise()
        _gather_row(near, weights.edge, cur, nxt, s, columns)
        _tally_edges(near, weights.edge, cur, nxt, u, tally.edge, share, edge_gain, s, columns)
        o = s * n_columns
        _tally_row(nxt, u, tally.node, visits, node_gain, scale, o, columns)
        for k in range(n_columns):
            nxt[o + k] *= factor[k] * weights.node[o + k]


@njit(cache=True, error_model="numpy")
def _forward_scales(
    cur: Any, alpha_exponent: Any, exponent: Any, log_norm: Any, gain: Any, t: int, columns: Any
) -> Any:
    """Return (factor, scale, node gain, edge gain) of step t: of the next alpha, of a probability, of the tallies."""
    n_columns = len(columns)
    shift = np.empty(n_columns, dtype=np.int64)
    factor, scale, node_gain, edge_gain = (
        np.empty(n_columns),
        np.empty(n_columns),
        np.empty(n_columns),
        np.empty(n_columns),
    )
    _shift_of(cur, t, shift, columns)
    for k in range(n_columns):
        scale[k] = math.exp((alpha_exponent[k] + exponent[k]) * _LN2 - log_norm[k])
        node_gain[k] = gain[t] * scale[k]
        edge_gain[k] = gain[t - 1] * scale[k]
        factor[k] = math.ldexp(1.0, -shift[k])
        alpha_exponent[k] += shift[k]
    return factor, scale, node_gain, edge_gain


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
    hi = np.uint64(messages.shape[1] // len(columns) - 1)
    for i in range(messages.shape[0] - 1):
        t = t_first + i + 1
        cur, nxt = alpha[(t - 1) % 2], alpha[t % 2]
        scales = _forward_scales(cur, alpha_exponent, exponents[i + 1], log_norm, gain, t, columns)
        _forward_block(
            near, rewards, weights, cur, nxt, messages[i + 1], tally, i, scales, t, np.uint64(0), hi, columns
        )


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
    n_states = messages.shape[1] // len(columns) - 1
    for i in range(messages.shape[0] - 1):
        t = t_first + i + 1
        cur, nxt, u = alpha[(t - 1) % 2], alpha[t % 2], messages[i + 1]
        scales = _forward_scales(cur, alpha_exponent, exponents[i + 1], log_norm, gain, t, columns)
        for b in prange((n_states + BLOCK - 1) // BLOCK):
            lo, hi = np.uint64(b * BLOCK), np.uint64(min(n_states, (b + 1) * BLOCK))
            _forward_block(near, rewards, weights, cur, nxt, u, tally, i, scales, t, lo, hi, columns)


def forward(
    near: Neighbours,
    rewards: Rewards,
    weights: Weights,
    messages: NDArray[np.float64],
    exponents: NDArray[np.int64],
    state: Alpha,
    gain: NDArray[np.float64],
    tally: Tally,
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
    if near.ptr.size - 1 > BLOCK:
        with LOCK:
            _forward_parallel(near, rewards, weights, messages, exponents, state, gain, tally, t_first, columns)
    else:
        _forward_serial(near, rewards, weights, messages, exponents, state, gain, tally, t_first, columns)
