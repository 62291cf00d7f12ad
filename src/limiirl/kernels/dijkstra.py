"""Shortest paths in a CSR graph: Dijkstra's algorithm with a binary heap, for one source or many pairs."""

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

NOWHERE = -1
"""Index that denotes a missing state or edge."""


class Workspace(NamedTuple):
    """Arrays of a search, reused by later searches after `clear`.

    Attributes
    ----------
    dist : (S,)
        Distance from the source; inf if not reached.
    via : (S,) int64
        Last edge of the shortest path; -1 at the source and if not reached.
    order : (S,) int64
        Processed states, in ascending order of distance.
    done : (S,) bool
        True for processed states.
    touched : (S,) int64
        States with a finite distance.
    keys, items : (E + 1,)
        Binary heap of distances and states.
    """

    dist: NDArray[np.float64]
    via: NDArray[np.int64]
    order: NDArray[np.int64]
    done: NDArray[np.bool_]
    touched: NDArray[np.int64]
    keys: NDArray[np.float64]
    items: NDArray[np.int64]


def make_workspace(n_states: int, n_edges: int) -> Workspace:
    """Return a cleared workspace for searches in a graph of S states and E edges.

    Examples
    --------
    >>> make_workspace(3, 2).dist
    array([inf, inf, inf])
    """
    return Workspace(
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
    """Insert an item into a binary heap; return the new size of the heap."""
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
    """Remove the item with the smallest key from a binary heap; return the new size of the heap."""
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
    work: Workspace,
) -> tuple[int, int]:
    """Process states in ascending order of distance from a source; return how many were processed and touched.

    Parameters
    ----------
    ptr, head : (S + 1,), (E,)
        Outgoing edges as CSR: pointers and targets.
    cost : (E,)
        Nonnegative edge costs; inf removes an edge.
    source : int
    goal : int
        State at which the search ends; -1 to process all states within the limit.
    limit : float
        Maximum distance of processed states.
    work : Workspace
        Must be cleared. On return, distances of touched but unprocessed states are upper bounds.
    """
    dist, via, order, done, touched, keys, items = work
    dist[source], touched[0] = 0.0, source
    size, n_done, n_touched = push(keys, items, 0, 0.0, source), 0, 1
    while size > 0:
        key, s = keys[0], items[0]
        size = pop(keys, items, size)
        if done[s]:
            continue
        if key > limit:
            break
        done[s] = True
        order[n_done] = s
        n_done += 1
        if s == goal:
            break
        for e in range(ptr[s], ptr[s + 1]):
            t, distance = head[e], key + cost[e]
            if distance < dist[t]:
                if dist[t] == np.inf:
                    touched[n_touched] = t
                    n_touched += 1
                dist[t], via[t] = distance, e
                size = push(keys, items, size, distance, t)
    return n_done, n_touched


@njit(cache=True, nogil=True)
def clear(work: Workspace, n_touched: int) -> None:
    """Reset a workspace, given the number of states that the last search touched."""
    for i in range(n_touched):
        s = work.touched[i]
        work.dist[s], work.via[s], work.done[s] = np.inf, NOWHERE, False


@njit(cache=True, nogil=True)
def trace_path(tail: NDArray[np.int32], work: Workspace, goal: int) -> NDArray[np.int64]:
    """Return the edges of the shortest path to a processed state; `tail` (E,) contains the source of each edge."""
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
def shortest_paths(
    ptr: NDArray[np.int64],
    head: NDArray[np.int32],
    tail: NDArray[np.int32],
    cost: NDArray[np.float64],
    starts: NDArray[np.int64],
    goals: NDArray[np.int64],
    work: Workspace,
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """Return the concatenated edges of n shortest paths, and the number of edges and the cost (n,) of each path.

    A pair of states without a path has 0 edges and cost inf.

    Parameters
    ----------
    ptr, head, tail, cost : the graph; see `search` and `trace_path`
    starts, goals : (n,)
    work : Workspace
        Must be cleared; it is cleared again on return.

    Examples
    --------
    >>> graph = np.array([0, 2, 3, 3]), np.array([1, 2, 2]), np.array([0, 0, 1]), np.array([1.0, 3.0, 1.0])
    >>> shortest_paths(*graph, np.array([0, 2]), np.array([2, 0]), make_workspace(3, 3))
    (array([0, 2]), array([2, 0]), array([ 2., inf]))
    """
    n, used = starts.size, 0
    edges = np.empty(16 * n + 16, dtype=np.int64)
    sizes, total = np.zeros(n, dtype=np.int64), np.full(n, np.inf)
    for i in range(n):
        _, n_touched = search(ptr, head, cost, starts[i], goals[i], np.inf, work)
        if work.done[goals[i]]:
            path = trace_path(tail, work, goals[i])
            total[i], sizes[i] = work.dist[goals[i]], path.size
            if used + path.size > edges.size:
                larger = np.empty(2 * edges.size + path.size, dtype=np.int64)
                larger[:used] = edges[:used]
                edges = larger
            edges[used : used + path.size] = path
            used += path.size
        clear(work, n_touched)
    return edges[:used].copy(), sizes, total
