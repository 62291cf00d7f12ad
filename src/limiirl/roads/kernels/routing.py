"""Bounded shortest paths between streets, which are chains of segments without a choice, to many goals at once."""

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from limiirl._typing import Int32Array
from limiirl.kernels.dijkstra import Desk, clear, desk, pop, push, way


class Streets(NamedTuple):
    """C streets of S segments, and the turns between their ends.

    Attributes
    ----------
    ptr : (C + 1,) int64
        Street c is ``items[ptr[c]:ptr[c + 1]]``.
    items : (S,) int32
        Segments in the order in which a street is driven.
    place : (S,) int32
        Where each segment stands in `items`.
    street : (S,) int32
        The street of each segment.
    start_m : (S,)
        How far from the beginning of its street each segment begins.
    segment_m : (S,)
        Length of each segment.
    length_m : (C,)
        Of streets.
    out_ptr, out_to : the streets that follow each street, as CSR
    out_from : the street at whose end each of these turns lies
    """

    ptr: NDArray[np.int64]
    items: Int32Array
    place: Int32Array
    street: Int32Array
    start_m: NDArray[np.float64]
    segment_m: NDArray[np.float64]
    length_m: NDArray[np.float64]
    out_ptr: NDArray[np.int64]
    out_to: Int32Array
    out_from: Int32Array


class Router(NamedTuple):
    """What one thread searches on: a desk with a place for one street more, and the marks of goals.

    The street more is the source itself, arrived at from behind.
    """

    work: Desk
    wanted: NDArray[np.bool_]


def router(streets: Streets) -> Router:
    """Return a clear router for one thread."""
    n = streets.length_m.size
    return Router(desk(n + 1, streets.out_to.size), np.zeros(n + 1, dtype=np.bool_))


@njit(cache=True)
def _chains(before: Int32Array, after: Int32Array, ptr: Any, items: Any) -> int:
    """Write the segments of all streets, one after the other, and return the number of streets."""
    done = np.zeros(before.size, dtype=np.bool_)
    n, at = 0, 0
    # Streets that begin somewhere first; what is left are rings, which begin at their lowest number.
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
        The only neighbours of each segment, -1 where there is a choice.
    length_m : (S,)
        Of segments.
    out_ptr, turn_to : the segments that follow each segment, as CSR

    Examples
    --------
    >>> before, after = np.array([-1, 0, -1, -1], dtype=np.int32), np.array([1, -1, -1, -1], dtype=np.int32)
    >>> fork = streets(before, after, np.ones(4), np.array([0, 1, 3, 3, 3]), np.array([1, 2, 3], dtype=np.int32))
    >>> fork.street, fork.length_m, fork.out_to
    (array([0, 0, 1, 2], dtype=int32), array([2., 1., 1.]), array([1, 2], dtype=int32))
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
    # Summed anew for each street: differences of the running total would carry its rounding.
    length = np.add.reduceat(lengths, ptr[:-1]) if sizes.size else np.empty(0)
    source = np.repeat(np.arange(sizes.size), counts).astype(np.int32)
    return Streets(ptr, items, place, street, start_m, length_m, length, follow, street[turn_to[turns]], source)


@njit(cache=True, nogil=True)
def spread(roads: Streets, source: int, limit: float, n_wanted: int, router: Router) -> int:
    """Search from the beginning of a street, and return how many streets were touched.

    Parameters
    ----------
    roads : Streets
    source : int
        `work.dist` then holds the way from its beginning to the beginning of other streets; at C the way round to
        its own beginning.
    limit : float
        Settle nothing further away.
    n_wanted : int
        Stop when so many of the streets marked in `router.wanted` are settled.
    router : Router
        With a clear desk; call `clear` with the number returned after reading the answer.
    """
    dist, via, _, settled, touched, keys, items = router.work
    n = roads.length_m.size
    dist[source], touched[0] = 0.0, source
    size, n_touched, left = push(keys, items, 0, 0.0, source), 1, n_wanted
    while size > 0 and left > 0:
        key, c = keys[0], items[0]
        size = pop(keys, items, size)
        if settled[c]:
            continue
        if key > limit:
            break
        settled[c] = True
        if router.wanted[c]:
            left -= 1
        if c == n:
            continue
        onward = key + roads.length_m[c]
        if onward > limit:
            continue
        for e in range(roads.out_ptr[c], roads.out_ptr[c + 1]):
            t = roads.out_to[e]
            if t == source:
                t = n
            if onward < dist[t]:
                if dist[t] == np.inf:
                    touched[n_touched] = t
                    n_touched += 1
                dist[t], via[t] = onward, e
                size = push(keys, items, size, onward, t)
    return n_touched


@njit(cache=True, nogil=True)
def streets_between(roads: Streets, source: int, goal: int, limit: float, router: Router) -> NDArray[np.int64]:
    """Return the streets after the source on the shortest way to a goal, which is C for the way round to the source.

    The goal is the last of them; empty if there is no way within the limit.
    """
    router.wanted[goal] = True
    touched = spread(roads, source, limit, 1, router)
    router.wanted[goal] = False
    edges = way(roads.out_from, router.work, goal) if router.work.settled[goal] else np.empty(0, dtype=np.int64)
    clear(router.work, touched)
    found = np.empty(edges.size, dtype=np.int64)
    for k in range(edges.size):
        found[k] = roads.out_to[edges[k]]
    return found
