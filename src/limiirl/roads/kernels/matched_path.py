"""From chosen candidates to the path of segments, the place of every fix, and the distance driven along the path."""

from typing import Any

import numpy as np
from numba import njit

from limiirl._typing import FloatArray, IntArray
from limiirl.roads.kernels.hmm import (
    CandidateLayers,
    HmmModel,
    ThinnedTrip,
    confidence_of,
    decode,
    follow,
    lay,
    posteriors,
    thin,
)
from limiirl.roads.kernels.routing import Router, Streets, streets_between
from limiirl.roads.kernels.spatial_index import GridIndex, closest


@njit(cache=True, nogil=True)
def _extend(path: IntArray, n: int, items: Any, low: int, high: int) -> tuple[IntArray, int]:
    """Append items[low:high] to a path of n segments, and return it, grown if need be, and its new size."""
    if n + max(0, high - low) > path.size:
        grown = np.empty(2 * path.size + high - low, dtype=np.int64)
        grown[:n] = path[:n]
        path = grown
    for k in range(low, high):
        path[n] = items[k]
        n += 1
    return path, n


@njit(cache=True, nogil=True)
def trace(
    roads: Streets,
    layers: CandidateLayers,
    trip: ThinnedTrip,
    chain: IntArray,
    chosen: IntArray,
    model: HmmModel,
    router: Router,
) -> tuple[IntArray, IntArray, float]:
    """Join the chosen candidates by the shortest ways between them.

    Returns
    -------
    path : (k,)
        Segments, each joined to the next by a legal turn.
    upto : (n,)
        Where on the path each layer has come to; it never falls, since going back a little is no driving.
    reach : float
        How far along its street the last one has come.
    """
    path, n, upto = np.empty(4 * chain.size + 16, dtype=np.int64), 1, np.zeros(chain.size, dtype=np.int64)
    path[0] = layers.segment[chosen[0]]
    at, reach = roads.place[path[0]], layers.pos_m[chosen[0]]
    for k in range(1, chain.size):
        a, b = chosen[k - 1], chosen[k]
        c, t, p, q = layers.street[a], layers.street[b], layers.pos_m[a], layers.pos_m[b]
        to = roads.place[layers.segment[b]]
        if c == t and q >= p - model.back_m:
            path, n = _extend(path, n, roads.items, at + 1, to + 1)
            at, reach = max(at, to), max(reach, q)
        else:
            seconds = trip.time_s[chain[k]] - trip.time_s[chain[k - 1]]
            limit = model.speed_ms * seconds + model.slack_m + p
            between = streets_between(roads, c, roads.length_m.size if c == t else t, limit, router)
            path, n = _extend(path, n, roads.items, at + 1, roads.ptr[c + 1])
            for u in between[:-1]:
                path, n = _extend(path, n, roads.items, roads.ptr[u], roads.ptr[u + 1])
            path, n = _extend(path, n, roads.items, roads.ptr[t], to + 1)
            at, reach = to, q
        upto[k] = n - 1
    return path[:n].copy(), upto, reach


@njit(cache=True, nogil=True)
def _again(path: IntArray, s: int, low: int, high: int) -> bool:
    return bool(np.any(path[low:high] == s))


@njit(cache=True, nogil=True)
def trim(
    roads: Streets, path: IntArray, upto: IntArray, start_m: float, reach_m: float, end_m: float
) -> tuple[int, int]:
    """Return the range of a path without what only the noise of its first or last fix has driven.

    That is an end segment driven for less than `end_m` and less than half of it, which would decide on a turn that
    nobody took; and a way round the block between the last two fixes, or the first two, that comes back to a segment
    driven just before: the last fix lies a little behind, and there is no way to it but around.
    """
    low, high, n = 0, path.size, upto.size
    if _again(path, path[high - 1], upto[max(0, n - 3)], high - 1):
        high = upto[n - 2] + 1
    elif high > 1:
        last = path[high - 1]
        high -= reach_m - roads.start_m[last] < min(end_m, 0.5 * roads.segment_m[last])
    if _again(path, path[0], 1, min(upto[min(n - 1, 2)] + 1, high)):
        low = min(upto[1], high - 1)
    elif high > 1:
        low += roads.segment_m[path[0]] - start_m < min(end_m, 0.5 * roads.segment_m[path[0]])
    return low, high


@njit(cache=True, nogil=True)
def _project(index: GridIndex, path: IntArray, low: int, high: int, x: float, y: float) -> tuple[int, float, float]:
    """Return the segment of path[low:high] closest to a point, the share along it, and the distance."""
    best, share, far = path[low], 0.0, np.inf
    for i in range(low, high):
        along, distance = closest(index, path[i], x, y)
        if distance < far:
            best, share, far = path[i], along, distance
    return best, share, far


@njit(cache=True, nogil=True)
def _put(roads: Streets, i: int, place: Any, segment: IntArray, along_m: FloatArray, distance_m: FloatArray) -> None:
    s, share, far = place
    segment[i], along_m[i], distance_m[i] = s, share * roads.segment_m[s], far


@njit(cache=True, nogil=True)
def place_fixes(
    index: GridIndex, roads: Streets, layers: CandidateLayers, trip: ThinnedTrip, chain: IntArray, chosen: IntArray,
    path: IntArray, upto: IntArray, low: int, high: int, x: FloatArray, y: FloatArray, segment: IntArray,
    along_m: FloatArray, distance_m: FloatArray,
) -> None:  # fmt: skip
    """Write where on path[low:high] each fix of a piece lies.

    Fixes of the layers lie at their candidates, or at the nearest place where that was trimmed; those that were thinned
    out lie at the nearest place between the layers around them; skipped ones, and those after them, lie nowhere.
    """
    for k in range(chain.size):
        fix, s = trip.fix[chain[k]], layers.segment[chosen[k]]
        here = min(max(upto[k], low), high - 1)
        # A step back on the street: some segments before what was reached.
        at = upto[k] + roads.place[s] - roads.place[path[upto[k]]]
        if low <= at < high and path[at] == s:
            segment[fix], along_m[fix] = s, layers.along_m[chosen[k]]
            distance_m[fix] = layers.distance_m[chosen[k]]
        else:
            _put(roads, fix, _project(index, path, here, here + 1, x[fix], y[fix]), segment, along_m, distance_m)
        until = trip.fix[chain[k] + 1] if chain[k] + 1 < trip.fix.size else x.size
        onward = min(max(upto[min(k + 1, chain.size - 1)], low), high - 1)
        for i in range(fix + 1, until):
            _put(roads, i, _project(index, path, here, onward + 1, x[i], y[i]), segment, along_m, distance_m)


@njit(cache=True, nogil=True)
def match_trip(
    index: GridIndex, roads: Streets, x: FloatArray, y: FloatArray, time_s: FloatArray, model: HmmModel, router: Router
) -> tuple[Any, Any, Any, Any, Any, Any, Any, Any]:
    """Match one trip of n fixes.

    Returns
    -------
    segments, offsets : paths of the pieces, one after the other
    span : (pieces, 2)
        First and last fix of each.
    confidence : (pieces,)
    fix_segment, fix_along_m, fix_distance_m : (n,)
        -1 and NaN where unmatched.
    lost : (3,) int64
        CandidateLayers without candidates, layers skipped within pieces, pieces of a single layer that were dropped.
    """
    trip = thin(x, y, time_s, model.thin_m)
    layers = lay(index, roads, trip, model)
    delta, back = np.empty(layers.segment.size), np.empty(layers.segment.size, dtype=np.int64)
    segments, n_layers = np.empty(0, dtype=np.int64), trip.x.size
    offsets, span, confidence = (
        np.zeros(n_layers + 1, dtype=np.int64),
        np.empty((n_layers, 2), dtype=np.int64),
        np.empty(n_layers),
    )
    segment, along_m, distance_m = np.full(x.size, -1, dtype=np.int64), np.full(x.size, np.nan), np.full(x.size, np.nan)
    lost, pieces, j = np.zeros(3, dtype=np.int64), 0, 0
    while j < n_layers:
        if layers.ptr[j] == layers.ptr[j + 1]:
            lost[0] += 1
            j += 1
            continue
        chain, ptr, links = follow(roads, layers, trip, j, model, router, delta, back)
        j = chain[chain.size - 1] + 1
        if chain.size == 1:
            lost[2] += 1
            continue
        chosen = decode(layers, chain, delta, back)
        path, upto, reach = trace(roads, layers, trip, chain, chosen, model, router)
        low, high = trim(roads, path, upto, layers.along_m[chosen[0]], reach, model.end_m)
        probability = posteriors(layers, chain, ptr, links, model)
        confidence[pieces] = confidence_of(layers, chain, path, upto, probability)
        place_fixes(
            index, roads, layers, trip, chain, chosen, path, upto, low, high, x, y, segment, along_m, distance_m
        )
        segments = np.concatenate((segments, path[low:high]))
        span[pieces, 0], span[pieces, 1] = trip.fix[chain[0]], trip.fix[chain[chain.size - 1]]
        lost[1] += chain[chain.size - 1] - chain[0] + 1 - chain.size
        pieces += 1
        offsets[pieces] = segments.size
    found = slice(0, pieces)
    return (
        segments,
        offsets[: pieces + 1].copy(),
        span[found].copy(),
        confidence[found].copy(),
        segment,
        along_m,
        distance_m,
        lost,
    )


@njit(cache=True, nogil=True)
def path_progress(path: IntArray, length: FloatArray, segment: IntArray, along: FloatArray) -> FloatArray:
    """Return metres (k,) from the beginning of a path at each fix; NaN for those unmatched.

    Parameters
    ----------
    path : (n,) int64
        Segments in the order driven.
    length : (S,)
        Of all segments of the network.
    segment, along : (k,)
        Of the fixes, in order; -1 where unmatched. One that lies on no later segment of the path, since noise took it
        back, is where the one before was.
    """
    found = np.full(segment.size, np.nan)
    at, begins, last = 0, 0.0, 0.0
    for k in range(segment.size):
        if segment[k] < 0:
            continue
        ahead, start = at, begins
        while ahead < path.size and path[ahead] != segment[k]:
            start += length[path[ahead]]
            ahead += 1
        if ahead < path.size:
            at, begins = ahead, start
            last = max(last, begins + along[k])
        found[k] = last
    return found
