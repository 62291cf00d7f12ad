"""Hidden Markov model of map matching: candidates per fix, transitions, Viterbi path and posteriors in log space.

Log-probabilities omit terms common to all sequences of one piece.
"""

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from limiirl._typing import FloatArray, IntArray
from limiirl.kernels.dijkstra import clear
from limiirl.roads.kernels.routing import Router, Streets, spread
from limiirl.roads.kernels.spatial_index import GridIndex, collect

# Log-probabilities that differ by no more are equal.
_TIE = 1e-9


class HmmModel(NamedTuple):
    """The numbers of the model; `limiirl.roads.matching.hmm.HmmSettings` explains them."""

    sigma_m: float
    beta_m: float
    radius_m: float
    max_radius_m: float
    most: int
    thin_m: float
    speed_ms: float
    slack_m: float
    detour_m: float
    back_m: float
    beam: float
    max_skips: int
    end_m: float


class ThinnedTrip(NamedTuple):
    """The fixes that the model looks at: metres east and north, seconds, and their numbers among all fixes."""

    x: FloatArray
    y: FloatArray
    time_s: FloatArray
    fix: IntArray


class CandidateLayers(NamedTuple):
    """Candidates, layer by layer: a layer is a fix.

    Attributes
    ----------
    ptr : (L + 1,) int64
        Layer j owns ``ptr[j]:ptr[j + 1]``.
    segment, street : int32
    along_m, pos_m : float64
        From the beginning of the segment, and of the street.
    distance_m : float64
        From the fix.
    """

    ptr: IntArray
    segment: NDArray[np.int32]
    street: NDArray[np.int32]
    along_m: FloatArray
    pos_m: FloatArray
    distance_m: FloatArray


@njit(cache=True, nogil=True)
def thin(x: FloatArray, y: FloatArray, time_s: FloatArray, gap_m: float) -> ThinnedTrip:
    """Keep the first and the last fix, and each that lies some metres from the one kept before.

    Fixes of a car that stands are many and no evidence of anything new.
    """
    kept, n = np.empty(x.size, dtype=np.int64), 1
    kept[0] = 0
    for i in range(1, x.size):
        if i == x.size - 1 or np.hypot(x[i] - x[kept[n - 1]], y[i] - y[kept[n - 1]]) >= gap_m:
            kept[n] = i
            n += 1
    fix = kept[:n].copy()
    return ThinnedTrip(x[fix], y[fix], time_s[fix], fix)


@njit(cache=True, nogil=True)
def lay(index: GridIndex, roads: Streets, trip: ThinnedTrip, model: HmmModel) -> CandidateLayers:
    """Return the candidates of each fix; a layer is empty where nothing lies within the largest radius."""
    most, n = model.most, trip.x.size
    ptr = np.zeros(n + 1, dtype=np.int64)
    segment, along, distance = np.empty(n * most, dtype=np.int32), np.empty(n * most), np.empty(n * most)
    for j in range(n):
        at, radius = ptr[j], model.radius_m
        while True:
            here = slice(at, at + most)
            found = collect(index, trip.x[j], trip.y[j], radius, True, segment[here], along[here], distance[here])
            if found > 0 or radius >= model.max_radius_m:
                break
            radius = min(2.0 * radius, model.max_radius_m)
        ptr[j + 1] = at + found
    total = ptr[n]
    chosen = segment[:total].copy()
    along_m = along[:total] * roads.segment_m[chosen]
    return CandidateLayers(
        ptr, chosen, roads.street[chosen], along_m, roads.start_m[chosen] + along_m, distance[:total].copy()
    )


@njit(cache=True, nogil=True)
def emission(layers: CandidateLayers, model: HmmModel, a: int) -> float:
    """Return the log-probability of a fix given candidate a: normal in the distance."""
    return -0.5 * (layers.distance_m[a] / model.sigma_m) ** 2


@njit(cache=True, nogil=True)
def _mark(layers: CandidateLayers, j: int, wanted: Any, value: bool) -> int:
    """Mark the streets of a layer as goals, or unmark them; return how many changed."""
    changed = 0
    for b in range(layers.ptr[j], layers.ptr[j + 1]):
        changed += wanted[layers.street[b]] != value
        wanted[layers.street[b]] = value
    return changed


@njit(cache=True, nogil=True)
def _row(
    roads: Streets, layers: CandidateLayers, a: int, j: int, straight: float, limit: float, n: int, model: HmmModel,
    router: Router, out: Any,
) -> bool:  # fmt: skip
    """Write the log-probabilities of going on from candidate a to those of layer j; return whether any is possible."""
    c, p, around = layers.street[a], layers.pos_m[a], roads.length_m.size
    for b in range(layers.ptr[j], layers.ptr[j + 1]):
        if layers.street[b] == c and layers.pos_m[b] < p - model.back_m:
            router.wanted[around] = True
    touched = spread(roads, c, limit + p, n + router.wanted[around], router)
    router.wanted[around] = False
    possible = False
    for k in range(out.size):
        b = layers.ptr[j] + k
        t, q = layers.street[b], layers.pos_m[b]
        if t == c and q >= p - model.back_m:
            # A little back on the same street is noise, not driving: a route of negative length, and dear as such.
            route = q - p
        else:
            goal = around if t == c else t
            route = router.work.dist[goal] - p + q if router.work.settled[goal] else np.inf
        out[k] = -np.inf if route > limit else -abs(route - straight) / model.beta_m
        possible |= route <= limit
    clear(router.work, touched)
    return possible


@njit(cache=True, nogil=True)
def link(
    roads: Streets,
    layers: CandidateLayers,
    trip: ThinnedTrip,
    i: int,
    j: int,
    delta: FloatArray,
    model: HmmModel,
    router: Router,
    out: Any,
) -> bool:
    """Write the log-probabilities (K_i K_j,) of going from layer i to layer j; return whether any way was found.

    Ways much longer than the straight line are looked for only where there is no other; candidates far less likely than
    the best are not looked at then.
    """
    straight = np.hypot(trip.x[j] - trip.x[i], trip.y[j] - trip.y[i])
    widest = model.speed_ms * (trip.time_s[j] - trip.time_s[i]) + model.slack_m
    usual = min(widest, straight + model.detour_m)
    low, high, width = layers.ptr[i], layers.ptr[i + 1], layers.ptr[j + 1] - layers.ptr[j]
    if width == 0 or straight > widest:
        return False
    best = -np.inf
    for a in range(low, high):
        best = max(best, delta[a])
    n, found = _mark(layers, j, router.wanted, True), False
    for limit, floor in ((usual, best - model.beam), (widest, -np.inf)):
        for a in range(low, high):
            row = out[(a - low) * width : (a - low + 1) * width]
            if delta[a] == -np.inf or delta[a] < floor:
                row[:] = -np.inf
            elif _row(roads, layers, a, j, straight, limit, n, model, router, row):
                found = True
        if found:
            break
    _mark(layers, j, router.wanted, False)
    return found


@njit(cache=True, nogil=True)
def _prefer(layers: CandidateLayers, a: int, score: float, b: int, other: float) -> bool:
    """Return whether candidate a is to be chosen before b; of equals that of the lower segment, whatever the rounding.

    The end of a segment and the beginning of the next are one place, so that equals are common.
    """
    if score == other or abs(score - other) <= _TIE:
        return layers.segment[a] < layers.segment[b]
    return score > other


@njit(cache=True, nogil=True)
def _advance(
    layers: CandidateLayers, i: int, j: int, model: HmmModel, links: Any, delta: FloatArray, back: IntArray
) -> None:
    """Take one step of Viterbi's algorithm."""
    low, width = layers.ptr[i], layers.ptr[j + 1] - layers.ptr[j]
    for k in range(width):
        b = layers.ptr[j] + k
        delta[b], back[b] = -np.inf, -1
        for a in range(low, layers.ptr[i + 1]):
            score = delta[a] + links[(a - low) * width + k]
            if score > -np.inf and (back[b] < 0 or _prefer(layers, a, score, back[b], delta[b])):
                delta[b], back[b] = score, a
        delta[b] += emission(layers, model, b)


@njit(cache=True, nogil=True)
def follow(
    roads: Streets,
    layers: CandidateLayers,
    trip: ThinnedTrip,
    first: int,
    model: HmmModel,
    router: Router,
    delta: FloatArray,
    back: IntArray,
) -> tuple[IntArray, IntArray, FloatArray]:
    """Follow a trip from a layer that is not empty until no way leads on.

    A fix that cannot be reached may be an outlier, and so may the last one that could: up to `max_skips` fixes are
    skipped forward, then one is given up backward, before the piece ends.

    Returns
    -------
    chain : (n,)
        The layers used.
    ptr : (n,)
        Where in `links` the matrix into each begins.
    links : float64
        Log-probabilities of going from each candidate to each of the next layer, row by row.
    """
    n_layers = layers.ptr.size - 1
    chain, ptr, n = np.empty(n_layers - first, dtype=np.int64), np.zeros(n_layers - first, dtype=np.int64), 1
    links, used = np.empty(64 * model.most), 0
    chain[0] = first
    for a in range(layers.ptr[first], layers.ptr[first + 1]):
        delta[a], back[a] = emission(layers, model, a), -1
    while True:
        front, reached = chain[n - 1], False
        if links.size < used + model.most * model.most:
            grown = np.empty(2 * links.size + model.most * model.most)
            grown[:used] = links[:used]
            links = grown
        for j in range(front + 1, min(front + 2 + model.max_skips, n_layers)):
            if link(roads, layers, trip, front, j, delta, model, router, links[used:]):
                reached = True
                break
        if not reached and n >= 2 and front + 1 < n_layers and front - chain[n - 2] <= model.max_skips:
            j = front + 1
            reached = link(roads, layers, trip, chain[n - 2], j, delta, model, router, links[used:])
            if reached:
                n -= 1
                front, size = chain[n - 1], model.most * model.most
                links[ptr[n] : ptr[n] + size] = links[used : used + size].copy()
                used = ptr[n]
        if not reached:
            return chain[:n].copy(), ptr[:n].copy(), links
        _advance(layers, front, j, model, links[used:], delta, back)
        chain[n], ptr[n] = j, used
        used += (layers.ptr[front + 1] - layers.ptr[front]) * (layers.ptr[j + 1] - layers.ptr[j])
        n += 1


@njit(cache=True, nogil=True)
def decode(layers: CandidateLayers, chain: IntArray, delta: FloatArray, back: IntArray) -> IntArray:
    """Return the candidates (n,) of the most likely sequence."""
    chosen, last = np.empty(chain.size, dtype=np.int64), chain[chain.size - 1]
    best = layers.ptr[last]
    for a in range(layers.ptr[last], layers.ptr[last + 1]):
        if _prefer(layers, a, delta[a], best, delta[best]):
            best = a
    for k in range(chain.size - 1, -1, -1):
        chosen[k] = best
        best = back[best]
    return chosen


@njit(cache=True, nogil=True)
def _log_add(x: float, y: float) -> float:
    if x < y:
        x, y = y, x
    return x if y == -np.inf else x + np.log1p(np.exp(y - x))


@njit(cache=True, nogil=True)
def posteriors(
    layers: CandidateLayers, chain: IntArray, ptr: IntArray, links: FloatArray, model: HmmModel
) -> FloatArray:
    """Return the probability of each candidate given all fixes of a piece; 0 for those of layers outside of it."""
    alpha, beta = np.full(layers.segment.size, -np.inf), np.full(layers.segment.size, -np.inf)
    n = chain.size
    for a in range(layers.ptr[chain[0]], layers.ptr[chain[0] + 1]):
        alpha[a] = emission(layers, model, a)
    for k in range(1, n):
        i, j = chain[k - 1], chain[k]
        width = layers.ptr[j + 1] - layers.ptr[j]
        for b in range(layers.ptr[j], layers.ptr[j + 1]):
            for a in range(layers.ptr[i], layers.ptr[i + 1]):
                step = links[ptr[k] + (a - layers.ptr[i]) * width + b - layers.ptr[j]]
                alpha[b] = _log_add(alpha[b], alpha[a] + step)
            alpha[b] += emission(layers, model, b)
    for a in range(layers.ptr[chain[n - 1]], layers.ptr[chain[n - 1] + 1]):
        beta[a] = 0.0
    for k in range(n - 1, 0, -1):
        i, j = chain[k - 1], chain[k]
        width = layers.ptr[j + 1] - layers.ptr[j]
        for a in range(layers.ptr[i], layers.ptr[i + 1]):
            for b in range(layers.ptr[j], layers.ptr[j + 1]):
                step = links[ptr[k] + (a - layers.ptr[i]) * width + b - layers.ptr[j]]
                beta[a] = _log_add(beta[a], step + emission(layers, model, b) + beta[b])
    probability = np.zeros(layers.segment.size)
    for k in range(n):
        here = slice(layers.ptr[chain[k]], layers.ptr[chain[k] + 1])
        log_joint = alpha[here] + beta[here]
        weight = np.exp(log_joint - log_joint.max())
        probability[here] = weight / weight.sum()
    return probability


@njit(cache=True, nogil=True)
def confidence_of(
    layers: CandidateLayers, chain: IntArray, path: IntArray, upto: IntArray, probability: FloatArray
) -> float:
    """Return the mean over fixes of the probability that the car was on the path between the fixes around it.

    A fix that was skipped counts as one that is nowhere.
    """
    total, n = 0.0, chain[chain.size - 1] - chain[0] + 1
    for k in range(chain.size):
        low, high = upto[max(0, k - 1)], upto[min(chain.size - 1, k + 1)] + 1
        for a in range(layers.ptr[chain[k]], layers.ptr[chain[k] + 1]):
            for i in range(low, high):
                if path[i] == layers.segment[a]:
                    total += probability[a]
                    break
    return min(1.0, total / n)
