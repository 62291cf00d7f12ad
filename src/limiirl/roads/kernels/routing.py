"""Bounded one-to-many shortest paths between streets, which are chains of segments without alternatives."""

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from limiirl._typing import Int32Array
from limiirl.kernels.dijkstra import Workspace, clear, pop, push, way, workspace


class Streets(NamedTuple):
    """C streets of S segments, and the turns between them (CSR)."""

    ptr: NDArray[np.int64]  # (C + 1,): street c has the segments items[ptr[c]:ptr[c + 1]], in order
    items: Int32Array  # (S,)
    place: Int32Array  # (S,): position of each segment in items
    street: Int32Array  # (S,): street of each segment
    start_m: NDArray[np.float64]  # (S,): distance from the start of the street to the start of the segment
    segment_m: NDArray[np.float64]  # (S,): length of each segment
    length_m: NDArray[np.float64]  # (C,): length of each street
    out_ptr: NDArray[np.int64]  # (C + 1,): street c has the turns out_ptr[c]:out_ptr[c + 1]
    out_to: Int32Array  # street after each turn
    out_from: Int32Array  # street before each turn


class Router(NamedTuple):
    """Search workspace of one thread, with one extra node C (the source reached by a cycle), and a mask of goals."""

    work: Workspace
    wanted: NDArray[np.bool_]


def router(streets: Streets) -> Router:
    """Return a cleared router for one thread."""
    n = streets.length_m.size
    return Router(workspace(n + 1, streets.out_to.size), np.zeros(n + 1, dtype=np.bool_))


@njit(cache=True)
def _chains(before: Int32Array, after: Int32Array, ptr: Any, items: Any) -> int:
    """Write the concatenated segments of all streets, and return the number of streets."""
    done = np.zeros(before.size, dtype=np.bool_)
    n, at = 0, 0
    # First open chains; the remaining segments form rings, which begin at their lowest index.
    for rings in range(2):
        for s in range(before.size):
            if done[s] or (rings == 0 and before[s] >= 0):
                continue
            t = s
            while t >= 0 and not done[t]:
                done[t], items[at] = True, t
                at += 1
                t = after[t]
            n += 1
            ptr[n] = at
    return n


def streets(
    before: Int32Array, after: Int32Array, length_m: NDArray[np.float64], out_ptr: Any, turn_to: Int32Array
) -> Streets:
    """Return the streets of a network.

    Parameters
    ----------
    before, after : (S,) int32
        Only predecessor and successor of each segment; -1 if there is none.
    length_m : (S,)
    out_ptr, turn_to
        Successors of each segment (CSR).
    """
    n = before.size
    bounds, items = np.zeros(n + 1, dtype=np.int64), np.empty(n, dtype=np.int32)
    ptr = bounds[: _chains(before, after, bounds, items) + 1].copy()
    sizes, lengths = np.diff(ptr), length_m[items]
    total = np.concatenate([[0.0], np.cumsum(lengths)])
    street, place, start_m = np.empty(n, dtype=np.int32), np.empty(n, dtype=np.int32), np.empty(n)
    street[items] = np.repeat(np.arange(sizes.size), sizes)
    place[items] = np.arange(n)
    start_m[items] = total[:-1] - np.repeat(total[ptr[:-1]], sizes)
    ends = items[ptr[1:] - 1]
    counts = out_ptr[ends + 1] - out_ptr[ends]
    follow = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    turns = np.arange(follow[-1]) + np.repeat(out_ptr[ends] - follow[:-1], counts)
    # Summed per street: differences of the running total would carry its rounding errors.
    length = np.add.reduceat(lengths, ptr[:-1]) if sizes.size else np.empty(0)
    source = np.repeat(np.arange(sizes.size), counts).astype(np.int32)
    return Streets(ptr, items, place, street, start_m, length_m, length, follow, street[turn_to[turns]], source)


@njit(cache=True, nogil=True)
def spread(roads: Streets, source: int, limit: float, n_wanted: int, router: Router) -> int:
    """Run Dijkstra's algorithm from the start of a street, and return the number of streets touched.

    Afterwards `work.dist` has the distances between the starts of streets; entry C is the cycle back to the source.
    Call `clear` with the return value after reading them.

    Parameters
    ----------
    limit : float
        Maximum distance.
    n_wanted : int
        Stop when this many of the streets in `router.wanted` are reached.
    """
    dist, via, _, done, touched, keys, items = router.work
    n = roads.length_m.size
    dist[source], touched[0] = 0.0, source
    size, n_touched, left = push(keys, items, 0, 0.0, source), 1, n_wanted
    while size > 0 and left > 0:
        key, c = keys[0], items[0]
        size = pop(keys, items, size)
        if done[c]:
            continue
        if key > limit:
            break
        done[c] = True
        if router.wanted[c]:
            left -= 1
        if c == n:
            continue
        ahead = key + roads.length_m[c]
        if ahead > limit:
            continue
        for e in range(roads.out_ptr[c], roads.out_ptr[c + 1]):
            t = roads.out_to[e]
            if t == source:
                t = n
            if ahead < dist[t]:
                if dist[t] == np.inf:
                    touched[n_touched] = t
                    n_touched += 1
                dist[t], via[t] = ahead, e
                size = push(keys, items, size, ahead, t)
    return n_touched


@njit(cache=True, nogil=True)
def streets_between(roads: Streets, source: int, goal: int, limit: float, router: Router) -> NDArray[np.int64]:
    """Return the streets of the shortest path after the source; the goal C is the cycle back to the source.

    The goal is the last of them; empty if there is no path within the limit.
    """
    router.wanted[goal] = True
    touched = spread(roads, source, limit, 1, router)
    router.wanted[goal] = False
    edges = way(roads.out_from, router.work, goal) if router.work.done[goal] else np.empty(0, dtype=np.int64)
    clear(router.work, touched)
    streets = np.empty(edges.size, dtype=np.int64)
    for k in range(edges.size):
        streets[k] = roads.out_to[edges[k]]
    return streets
