"""Index arithmetic on sorted edge lists, graph layout for the forward-backward kernels, and their arrays."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import reverse_cuthill_mckee

from limiirl._parallel import BLOCK
from limiirl._typing import Int32Array, IntArray


def edge_order(src: NDArray[np.integer], act: NDArray[np.integer], dst: NDArray[np.integer]) -> IntArray | None:
    """Return the permutation that sorts edges by (src, act, dst), or None if they are already sorted."""
    if not descents(src, act, dst).any():
        return None
    return np.lexsort((dst, act, src)).astype(np.int64, copy=False)


def descents(src: NDArray[np.integer], act: NDArray[np.integer], dst: NDArray[np.integer]) -> NDArray[np.bool_]:
    """Return the mask (E - 1,) of positions i where edge i + 1 sorts before edge i by (src, act, dst)."""
    same_src, same_act = src[1:] == src[:-1], act[1:] == act[:-1]
    descends_in_act = (act[1:] < act[:-1]) | (same_act & (dst[1:] < dst[:-1]))
    return np.asarray((src[1:] < src[:-1]) | (same_src & descends_in_act))


def pair_starts(src: NDArray[np.integer], act: NDArray[np.integer]) -> NDArray[np.bool_]:
    """Return a mask (E,) of the first edge of each (s, a) pair, for sorted edges."""
    first = np.ones(src.size, dtype=np.bool_)
    first[1:] = (src[1:] != src[:-1]) | (act[1:] != act[:-1])
    return first


def pair_index(src: NDArray[np.integer], act: NDArray[np.integer]) -> Int32Array:
    """Return the index (E,) of each edge's (s, a) pair, for sorted edges."""
    return (np.cumsum(pair_starts(src, act)) - 1).astype(np.int32)


def row_pointers(rows: NDArray[np.integer], n_rows: int) -> IntArray:
    """Return CSR pointers (n_rows + 1,); the sorted entries of row i are pointers[i]:pointers[i + 1]."""
    pointers = np.zeros(n_rows + 1, dtype=np.int64)
    np.cumsum(np.bincount(rows, minlength=n_rows), out=pointers[1:])
    return pointers


def number_within(groups: NDArray[np.integer]) -> IntArray:
    """Number the entries of each group 0, 1, ... in order of appearance."""
    order = np.argsort(groups, kind="stable")
    ordered = groups[order]
    new = np.ones(groups.size, dtype=np.bool_)
    new[1:] = ordered[1:] != ordered[:-1]
    starts = np.flatnonzero(new)
    numbers = np.empty(groups.size, dtype=np.int64)
    numbers[order] = np.arange(groups.size) - starts[np.cumsum(new) - 1]
    return numbers


# Minimum number of blocks for wavefronts; with fewer blocks, most time is spent filling and draining the pipeline.
_WAVE_BLOCKS = 48
# Smallest block size of wavefronts; smaller blocks are dominated by overhead.
_LEAST_BLOCK = 1024


class Neighbours(NamedTuple):
    """Successors or predecessors of each state.

    `ptr` (S + 1,) and `idx` (E,) are CSR arrays. `table[s * width : (s + 1) * width]` contains the first `width`
    neighbours of state s, padded with the index S, at which messages are zero. If `overflows`, some states have more
    neighbours, which are read from `idx`. `block` is the block size of wavefronts, at least the bandwidth; 0 if
    wavefronts are not used.
    """

    ptr: NDArray[np.uint32]
    idx: NDArray[np.uint32]
    table: NDArray[np.uint32]
    width: int
    overflows: bool
    block: int


class PathGraph(NamedTuple):
    """Successors and predecessors of the states of a graph, with states and edges reordered.

    `order[i]` is the original index of state i, and `rank` is the inverse permutation. Edges are sorted by source;
    `edge_order[e]` is the original index of edge e, and `in_edge[j]` is the j-th edge in the order of targets.
    """

    out: Neighbours
    into: Neighbours
    order: NDArray[np.int64]
    rank: NDArray[np.int64]
    edge_order: NDArray[np.int64]
    in_edge: NDArray[np.int64]

    @property
    def n_states(self) -> int:
        """Number of states S."""
        return self.order.size

    @property
    def n_edges(self) -> int:
        """Number of edges E."""
        return self.edge_order.size


def build_graph(n_states: int, src: NDArray[np.integer], dst: NDArray[np.integer]) -> PathGraph:
    """Return the graph of the edges (src[e], dst[e]).

    States of large graphs are reordered with the reverse Cuthill-McKee algorithm, so that memory access is local.

    Examples
    --------
    >>> graph = build_graph(3, np.array([0, 0, 1]), np.array([1, 2, 2]))
    >>> graph.n_states, graph.n_edges
    (3, 3)
    """
    order = _locality_order(n_states, src, dst)
    rank = np.empty_like(order)
    rank[order] = np.arange(n_states)
    tail, head = rank[src], rank[dst]
    edge_order = np.lexsort((head, tail))
    tail, head = tail[edge_order], head[edge_order]
    in_edge = np.lexsort((tail, head))
    out = _neighbours(n_states, tail, head)
    into = _neighbours(n_states, head[in_edge], tail[in_edge])
    return PathGraph(out, into, order, rank, edge_order, in_edge)


def row_of_entry(near: Neighbours) -> NDArray[np.int64]:
    """Return the row (E,) of each entry of `near.idx`."""
    degree = near.ptr[1:].astype(np.int64) - near.ptr[:-1]
    return np.repeat(np.arange(degree.size), degree)


def _locality_order(n_states: int, src: NDArray[np.integer], dst: NDArray[np.integer]) -> NDArray[np.int64]:
    if n_states <= BLOCK:  # a message fits into the L1 cache; `forward_backward.small` requires this order
        return np.arange(n_states)
    links = csr_array((np.ones(src.size, dtype=np.int8), (src, dst)), shape=(n_states, n_states))
    symmetric = (links + links.T).tocsr()
    return reverse_cuthill_mckee(symmetric, symmetric_mode=True).astype(np.int64)


def _neighbours(n_states: int, owner: NDArray[np.int64], other: NDArray[np.int64]) -> Neighbours:
    degree = np.bincount(owner, minlength=n_states)
    ptr = np.zeros(n_states + 1, dtype=np.uint32)
    np.cumsum(degree, out=ptr[1:], dtype=np.uint32)
    width = _table_width(degree)
    slot = np.arange(owner.size) - ptr[owner]
    fits = slot < width
    table = np.full((n_states, width), n_states, dtype=np.uint32)
    table[owner[fits], slot[fits]] = other[fits]
    overflows = bool(degree.max(initial=0) > width)
    block = _wave_block(n_states, int(np.max(np.abs(owner - other), initial=0)))
    return Neighbours(ptr, other.astype(np.uint32), table.ravel(), width, overflows, block)


def _wave_block(n_states: int, bandwidth: int) -> int:
    """Return the block size for wavefront passes, or 0 if there would be fewer than `_WAVE_BLOCKS` blocks.

    The size is at least the bandwidth max |src - dst|, so that every edge connects states in the same block or in
    adjacent blocks.
    """
    block = max(_LEAST_BLOCK, bandwidth)
    return block if n_states >= _WAVE_BLOCKS * block else 0


def _table_width(degree: NDArray[np.int64]) -> int:
    """Return the number of columns (3 to 64) of the padded neighbour table that minimises memory accesses.

    A slot of the table costs 1 access; a neighbour that does not fit in the table costs about 4.
    """
    widths = np.arange(3, np.clip(int(degree.max(initial=0)), 3, 64) + 1)
    beyond = np.array([np.maximum(degree - w, 0).sum() for w in widths])
    return int(widths[np.argmin(widths * degree.size + 4 * beyond)])


# Replace None in kernels that are not specialised for missing arrays.
EMPTY, EMPTY_ROWS = np.empty(0), np.empty((0, 0))


class Rewards(NamedTuple):
    """State rewards `node` (S K,) and edge rewards `edge` (E K,) of K intents, with K fastest.

    `discount[t]` multiplies all rewards of step t; if `time_homogeneous`, it is 1 for all t. Edge rewards and the edge
    probabilities `prob` (E,) are in the order of `Neighbours.idx`. `prob` is None if all probabilities are 1; `edge` is
    None if all edge rewards are 0.
    """

    node: NDArray[np.float64]
    prob: NDArray[np.float64] | None
    edge: NDArray[np.float64] | None
    discount: NDArray[np.float64]
    time_homogeneous: bool

    def without_none(self) -> Rewards:
        """Replace None by empty arrays."""
        prob, edge = EMPTY if self.prob is None else self.prob, EMPTY if self.edge is None else self.edge
        return Rewards(self.node, prob, edge, self.discount, self.time_homogeneous)


class Weights(NamedTuple):
    """Buffers for w (S K,) and x ((E + width) K,), padded for empty slots; x is None if all edge weights are 1."""

    node: NDArray[np.float64]
    edge: NDArray[np.float64] | None


class Alpha(NamedTuple):
    """Forward message: row t % 2 of `value` (2, (S + 1) K) is alpha_t, with the exponents `exponent` (K,).

    Expected counts are divided by exp(log_norm), where `log_norm` is (K,).
    """

    value: NDArray[np.float64]
    exponent: NDArray[np.int64]
    log_norm: NDArray[np.float64]


class CountBuffers(NamedTuple):
    """Outputs of a forward pass; an output that is None is not computed.

    `node` (S K,) and `edge` (E K,), sorted by target, accumulate c_t P(s_t = s) and c_t P(edge at t = e) with step
    weights c. Row i of `marginals` (n, S K) and `edge_prob` (n, E K) is P(s_t = s) and P(edge into s_t = e | s_t).
    """

    node: NDArray[np.float64] | None
    edge: NDArray[np.float64] | None
    marginals: NDArray[np.float64] | None
    edge_prob: NDArray[np.float64] | None

    def without_none(self) -> CountBuffers:
        """Replace None by empty arrays."""
        return CountBuffers(
            EMPTY if self.node is None else self.node,
            EMPTY if self.edge is None else self.edge,
            EMPTY_ROWS if self.marginals is None else self.marginals,
            EMPTY_ROWS if self.edge_prob is None else self.edge_prob,
        )
