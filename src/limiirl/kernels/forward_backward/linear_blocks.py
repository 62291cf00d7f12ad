"""Innermost loops of `linear`, over a block of states.

A row is a tuple of the K values of one state, or a tuple of one value if `columns` is an integer. Rows are summed in
registers over a fixed number of table slots, without branches. A None argument removes a branch at compile time.
"""

from typing import Any

import numpy as np
from numba import njit

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
