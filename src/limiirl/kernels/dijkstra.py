"""Shortest ways over a CSR graph: Dijkstra's algorithm with a binary heap, bounded, and stopped where nobody looks.

The cheapest ways between many pairs of states, one search a pair, on one desk.
"""

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

NOWHERE = -1
"""In place of a state or an edge: none."""


class Desk(NamedTuple):
    """What a search writes on; cleared by `clear` after each, at the cost of what the search touched.

    Attributes
    ----------
    dist : (S,)
        Cost of the cheapest way from the source to each state; inf where the search did not come.
    via : (S,) int64
        The edge by which that way arrives; -1 at the source and where the search did not come.
    order : (S,) int64
        States in the order in which they were settled, so that `dist` ascends along it.
    settled : (S,) bool
    keys, items : (E + 1,)
        The heap.
    """

    dist: NDArray[np.float64]
    via: NDArray[np.int64]
    order: NDArray[np.int64]
    settled: NDArray[np.bool_]
    touched: NDArray[np.int64]
    keys: NDArray[np.float64]
    items: NDArray[np.int64]


def desk(n_states: int, n_edges: int) -> Desk:
    """Return a clear desk for searches in a graph of S states and E edges.

    Examples
    --------
    >>> desk(3, 2).dist
    array([inf, inf, inf])
    """
    return Desk(
        np.full(n_states, np.inf),
        np.full(n_states, NOWHERE, dtype=np.int64),
        np.empty(n_states, dtype=np.int64),
        np.zeros(n_states, dtype=np.bool_),
        np.empty(n_states, dtype=np.int64),
        np.empty(n_edges + 1),
        np.empty(n_edges + 1, dtype=np.int64),
    )


@njit(cache=True, nogil=True)
def push(keys: Any, items: Any, size: int, key: float, item: int) -> int:
    """Put an item on a heap of some size, and return the new size."""
    at = size
    while at > 0:
        parent = (at - 1) >> 1
        if keys[parent] <= key:
            break
        keys[at], items[at] = keys[parent], items[parent]
        at = parent
    keys[at], items[at] = key, item
    return size + 1


@njit(cache=True, nogil=True)
def pop(keys: Any, items: Any, size: int) -> int:
    """Take the item of the smallest key off, which must have been read at place 0, and return the new size."""
    size -= 1
    key, item, at = keys[size], items[size], 0
    while True:
        child = 2 * at + 1
        if child >= size:
            break
        if child + 1 < size and keys[child + 1] < keys[child]:
            child += 1
        if keys[child] >= key:
            break
        keys[at], items[at] = keys[child], items[child]
        at = child
    keys[at], items[at] = key, item
    return size


@njit(cache=True, nogil=True)
def search(
    ptr: NDArray[np.int64],
    head: NDArray[np.int32],
    cost: NDArray[np.float64],
    source: int,
    goal: int,
    limit: float,
    work: Desk,
) -> tuple[int, int]:
    """Settle states in the order of their cost from a source, and return how many were settled and touched.

    Parameters
    ----------
    ptr, head : the target (E,) of the edges that leave each state, as CSR
    cost : (E,)
        Of taking each edge; not negative. inf closes an edge.
    source : int
        Settled first, at cost 0.
    goal : int
        Stop once it is settled; -1 to settle all within the limit.
    limit : float
        Settle nothing that costs more.
    work : Desk
        Clear; `order[:settled]` and `dist` hold the answer. Costs of states that were touched but not settled are
        upper bounds.
    """
    dist, via, order, settled, touched, keys, items = work
    dist[source], touched[0] = 0.0, source
    size, n_settled, n_touched = push(keys, items, 0, 0.0, source), 0, 1
    while size > 0:
        key, s = keys[0], items[0]
        size = pop(keys, items, size)
        if settled[s]:
            continue
        if key > limit:
            break
        settled[s] = True
        order[n_settled] = s
        n_settled += 1
        if s == goal:
            break
        for e in range(ptr[s], ptr[s + 1]):
            t, onward = head[e], key + cost[e]
            if onward < dist[t]:
                if dist[t] == np.inf:
                    touched[n_touched] = t
                    n_touched += 1
                dist[t], via[t] = onward, e
                size = push(keys, items, size, onward, t)
    return n_settled, n_touched


@njit(cache=True, nogil=True)
def clear(work: Desk, n_touched: int) -> None:
    """Make a desk ready for the next search, given how many states the last one touched."""
    for i in range(n_touched):
        s = work.touched[i]
        work.dist[s], work.via[s], work.settled[s] = np.inf, NOWHERE, False


@njit(cache=True, nogil=True)
def way(tail: NDArray[np.int32], work: Desk, goal: int) -> NDArray[np.int64]:
    """Return the edges of the cheapest way to a state that was settled, in order; `tail` (E,) is each edge's source."""
    n, s = 0, goal
    while work.via[s] != NOWHERE:
        s = tail[work.via[s]]
        n += 1
    edges = np.empty(n, dtype=np.int64)
    s = goal
    for i in range(n - 1, -1, -1):
        edges[i] = work.via[s]
        s = tail[edges[i]]
    return edges


@njit(cache=True, nogil=True)
def cheapest_ways(
    ptr: NDArray[np.int64],
    head: NDArray[np.int32],
    tail: NDArray[np.int32],
    cost: NDArray[np.float64],
    starts: NDArray[np.int64],
    goals: NDArray[np.int64],
    work: Desk,
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """Return the edges of all ways one after the other, how many each has (n,), and what each costs (n,).

    A way that does not exist has no edges and costs inf. From a state to itself there is nothing to do, at cost 0.

    Parameters
    ----------
    ptr, head, tail, cost : the graph as CSR; see `shortest.search`
    starts, goals : (n,)
    work : Desk
        Clear, and left clear.

    Examples
    --------
    >>> from limiirl.kernels.dijkstra import desk
    >>> graph = np.array([0, 2, 3, 3]), np.array([1, 2, 2]), np.array([0, 0, 1]), np.array([1.0, 3.0, 1.0])
    >>> cheapest_ways(*graph, np.array([0, 2]), np.array([2, 0]), desk(3, 3))
    (array([0, 2]), array([2, 0]), array([ 2., inf]))
    """
    n, used = starts.size, 0
    edges = np.empty(16 * n + 16, dtype=np.int64)
    sizes, total = np.zeros(n, dtype=np.int64), np.full(n, np.inf)
    for i in range(n):
        _, n_touched = search(ptr, head, cost, starts[i], goals[i], np.inf, work)
        if work.settled[goals[i]]:
            found = way(tail, work, goals[i])
            total[i], sizes[i] = work.dist[goals[i]], found.size
            if used + found.size > edges.size:
                larger = np.empty(2 * edges.size + found.size, dtype=np.int64)
                larger[:used] = edges[:used]
                edges = larger
            edges[used : used + found.size] = found
            used += found.size
        clear(work, n_touched)
    return edges[:used].copy(), sizes, total
