"""Bounded one-to-many shortest paths between streets, which are maximal chains of unique successors."""

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from limiirl._typing import Int32Array
from limiirl.kernels.dijkstra import Workspace, clear, make_workspace, pop, push, trace_path


class Streets(NamedTuple):
    """C streets that consist of S segments, and the turns between streets in CSR format."""

    ptr: NDArray[np.int64]  # (C + 1,): street c has the segments items[ptr[c]:ptr[c + 1]], in order
    items: Int32Array  # (S,)
    place: Int32Array  # (S,): position of each segment in items
    street: Int32Array  # (S,): street of each segment
    start_m: NDArray[np.float64]  # (S,): distance from the start of the street to the start of the segment
    segment_m: NDArray[np.float64]  # (S,): length of each segment
    length_m: NDArray[np.float64]  # (C,): length of each street
    out_ptr: NDArray[np.int64]  # (C + 1,): street c has the turns out_ptr[c]:out_ptr[c + 1]
    out_to: Int32Array  # second street of each turn
    out_from: Int32Array  # first street of each turn


class Router(NamedTuple):
    """Search workspace of one thread, and a mask of goal streets; index C is the source street, reached by a cycle."""

    work: Workspace
    wanted: NDArray[np.bool_]


def router(streets: Streets) -> Router:
    """Return an empty search workspace for one thread."""
    n = streets.length_m.size
    return Router(make_workspace(n + 1, streets.out_to.size), np.zeros(n + 1, dtype=np.bool_))


@njit(cache=True)
def _chains(before: Int32Array, after: Int32Array, ptr: Any, items: Any) -> int:
    """Write the segments of all streets to `items` and their offsets to `ptr`; return the number of streets."""
    done = np.zeros(before.size, dtype=np.bool_)
    n, at = 0, 0
    # Open chains first. The remaining segments form rings, each of which begins at its lowest index.
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

    `before` and `after` (S,) are the unique predecessor and successor of each segment (see `GridIndex`); `out_ptr` and
    `turn_to` are the successors in CSR format.
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
    # Sums per street are more accurate than differences of one cumulative sum.
    length = np.add.reduceat(lengths, ptr[:-1]) if sizes.size else np.empty(0)
    source = np.repeat(np.arange(sizes.size), counts).astype(np.int32)
    return Streets(ptr, items, place, street, start_m, length_m, length, follow, street[turn_to[turns]], source)


@njit(cache=True, nogil=True)
def spread(roads: Streets, source: int, limit: float, n_wanted: int, router: Router) -> int:
    """Run Dijkstra's algorithm from the start of a street, and return the number of visited streets.

    The search stops at the distance `limit`, or when `n_wanted` of the streets in `router.wanted` are reached.
    Afterwards `work.dist` contains the distances from the start of the source to the starts of streets; entry C is the
    length of the shortest cycle through the source. Call `clear` with the returned number before the next search.
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
        at_end = key + roads.length_m[c]
        if at_end > limit:
            continue
        for e in range(roads.out_ptr[c], roads.out_ptr[c + 1]):
            t = roads.out_to[e]
            if t == source:
                t = n
            if at_end < dist[t]:
                if dist[t] == np.inf:
                    touched[n_touched] = t
                    n_touched += 1
                dist[t], via[t] = at_end, e
                size = push(keys, items, size, at_end, t)
    return n_touched


@njit(cache=True, nogil=True)
def streets_between(roads: Streets, source: int, goal: int, limit: float, router: Router) -> NDArray[np.int64]:
    """Return the streets of the shortest path after the source, up to and including the goal.

    The goal C denotes a cycle back to the source. The result is empty if there is no path within the limit.
    """
    router.wanted[goal] = True
    touched = spread(roads, source, limit, 1, router)
    router.wanted[goal] = False
    edges = trace_path(roads.out_from, router.work, goal) if router.work.done[goal] else np.empty(0, dtype=np.int64)
    clear(router.work, touched)
    streets = np.empty(edges.size, dtype=np.int64)
    for k in range(edges.size):
        streets[k] = roads.out_to[edges[k]]
    return streets
