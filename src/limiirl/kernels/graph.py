"""The graph as the sweeps want it: states reordered for locality, neighbours in a table, both directions.

What the sweeps read and write: rewards and weights, the forward message, and the tallies.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import reverse_cuthill_mckee

from limiirl.kernels.threading import BLOCK

# Fewer blocks than this, and filling and draining the waves costs more than they save.
_WAVE_BLOCKS = 48
# Smaller blocks spend their time on bookkeeping; larger ones than needed do not stay in a core's own cache.
_LEAST_BLOCK = 1024


class Neighbours(NamedTuple):
    """One direction of a graph: for each state the states it gathers from.

    The first `width` neighbours of state s stand in `table[s * width : (s + 1) * width]`, short rows being filled with
    the index S, whose message is zero: a fixed number of slots has no branch to mispredict. `ptr` and `idx` are the
    plain CSR arrays; where the table has no room for some (`overflows`), the rest is read from them. `block` is a
    number of states that no edge reaches beyond, for sweeping several steps at once, or 0 where that does not pay.
    """

    ptr: NDArray[np.uint32]
    idx: NDArray[np.uint32]
    table: NDArray[np.uint32]
    width: int
    overflows: bool
    block: int


class PathGraph(NamedTuple):
    """Both directions of a graph in engine order.

    `order[i]` is the caller's number of the state at position i, and `rank` its inverse. Engine edges are sorted by
    source; `edge_order[e]` is the caller's number of engine edge e, and `in_edge[j]` the engine edge that stands at
    place j when sorted by target.
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
    """Sort the edges (src[e], dst[e]) for both directions, after numbering the states by reverse Cuthill-McKee.

    That order places neighbours near each other, so that a sweep over a large graph reads memory almost in sequence.

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


def owners(near: Neighbours) -> NDArray[np.int64]:
    """Return (E,): the state whose row each entry of `near.idx` stands in."""
    degree = near.ptr[1:].astype(np.int64) - near.ptr[:-1]
    return np.repeat(np.arange(degree.size), degree)


def _locality_order(n_states: int, src: NDArray[np.integer], dst: NDArray[np.integer]) -> NDArray[np.int64]:
    if n_states <= BLOCK:  # the whole message lies in the first-level cache in any order
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
    """Return the least block that no edge reaches beyond, or 0 if there would be too few of them."""
    block = max(_LEAST_BLOCK, bandwidth)
    return block if n_states >= _WAVE_BLOCKS * block else 0


def _table_width(degree: NDArray[np.int64]) -> int:
    """Return the width of least work: a slot costs one unit a state, a neighbour beyond the table about four.

    Three is the least: the sweeps have a faster loop for a table of three that holds everything.
    """
    widths = np.arange(3, np.clip(int(degree.max(initial=0)), 3, 64) + 1)
    beyond = np.array([np.maximum(degree - w, 0).sum() for w in widths])
    return int(widths[np.argmin(widths * degree.size + 4 * beyond)])


class Rewards(NamedTuple):
    """The rewards of K intents on one direction of a graph, in engine order, flat with K fastest.

    `discount[t]` multiplies every reward of step t. `steady` says that it is 1 throughout, so that weights need
    computing only once. `prob` is None where every edge has probability 1, `edge` is None where edges bring no reward.
    """

    node: NDArray[np.float64]
    prob: NDArray[np.float64] | None
    edge: NDArray[np.float64] | None
    discount: NDArray[np.float64]
    steady: bool


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


class CountBuffers(NamedTuple):
    """What a forward sweep accumulates; None is not computed.

    node (S K) and edge (E K, sorted by target) sum gain_t times the probability of being there at step t; visits (n,
    S K) and share (n, E K) record, step by step, the probability of each state and the chance that one who stands in
    it came by each edge.
    """

    node: NDArray[np.float64] | None
    edge: NDArray[np.float64] | None
    visits: NDArray[np.float64] | None
    share: NDArray[np.float64] | None
