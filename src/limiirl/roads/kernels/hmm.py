"""Map matching with a hidden Markov model: candidates, transition probabilities, Viterbi path and posteriors.

Log-probabilities omit terms that are equal for all candidate sequences of a piece.
"""

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from limiirl._typing import FloatArray, IntArray
from limiirl.kernels.dijkstra import clear
from limiirl.roads.kernels.routing import Router, Streets, spread, streets_between
from limiirl.roads.kernels.spatial_index import GridIndex, closest, collect_growing

# Log-probabilities that differ by at most this value are ties.
_TIE = 1e-9


class HmmModel(NamedTuple):
    """Parameters of the model; see `limiirl.roads.matching.hmm.HmmSettings`."""

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
    """Fixes that are used: metres east and north, seconds, and indices among all fixes of the trip."""

    x: FloatArray
    y: FloatArray
    time_s: FloatArray
    fix: IntArray


class CandidateLayers(NamedTuple):
    """Concatenated candidates of all layers; a layer belongs to one fix."""

    ptr: IntArray  # (L + 1,): layer j has the candidates ptr[j]:ptr[j + 1]
    segment: NDArray[np.int32]
    street: NDArray[np.int32]
    along_m: FloatArray  # metres from the start of the segment
    pos_m: FloatArray  # metres from the start of the street
    distance_m: FloatArray  # metres from the fix


@njit(cache=True, nogil=True)
def thin(x: FloatArray, y: FloatArray, time_s: FloatArray, gap_m: float) -> ThinnedTrip:
    """Keep the first and the last fix, and every fix at least `gap_m` metres from the previously kept fix."""
    kept, n = np.empty(x.size, dtype=np.int64), 1
    kept[0] = 0
    for i in range(1, x.size):
        if i == x.size - 1 or np.hypot(x[i] - x[kept[n - 1]], y[i] - y[kept[n - 1]]) >= gap_m:
            kept[n] = i
            n += 1
    fix = kept[:n].copy()
    return ThinnedTrip(x[fix], y[fix], time_s[fix], fix)


@njit(cache=True, nogil=True)
def collect_candidates(index: GridIndex, roads: Streets, trip: ThinnedTrip, model: HmmModel) -> CandidateLayers:
    """Return the candidates of each fix; a layer is empty if no segment is within the maximum radius."""
    most, n = model.most, trip.x.size
    ptr = np.zeros(n + 1, dtype=np.int64)
    segment, along, distance = np.empty(n * most, dtype=np.int32), np.empty(n * most), np.empty(n * most)
    for j in range(n):
        here = slice(ptr[j], ptr[j] + most)
        ptr[j + 1] = ptr[j] + collect_growing(
            index, trip.x[j], trip.y[j], model.radius_m, model.max_radius_m, True, segment[here], along[here],
            distance[here],
        )  # fmt: skip
    total = ptr[n]
    chosen = segment[:total].copy()
    along_m = along[:total] * roads.segment_m[chosen]
    return CandidateLayers(
        ptr, chosen, roads.street[chosen], along_m, roads.start_m[chosen] + along_m, distance[:total].copy()
    )


class MatchingProblem(NamedTuple):
    """Candidates of one trip, with the model and a router."""

    roads: Streets
    layers: CandidateLayers
    trip: ThinnedTrip
    model: HmmModel
    router: Router


@njit(cache=True, nogil=True)
def emission(layers: CandidateLayers, model: HmmModel, a: int) -> float:
    """Return the emission log-density of a fix given candidate a: normal in the distance, without the constant."""
    return -0.5 * (layers.distance_m[a] / model.sigma_m) ** 2


@njit(cache=True, nogil=True)
def _mark(layers: CandidateLayers, j: int, wanted: Any, value: bool) -> int:
    """Set the goal mask to `value` for the streets of a layer; return the number of changed entries."""
    changed = 0
    for b in range(layers.ptr[j], layers.ptr[j + 1]):
        changed += wanted[layers.street[b]] != value
        wanted[layers.street[b]] = value
    return changed


@njit(cache=True, nogil=True)
def _row(problem: MatchingProblem, a: int, j: int, straight: float, limit: float, n: int, out: Any) -> bool:
    """Write the transition log-probabilities from candidate a to layer j; return True if one is finite."""
    roads, layers, _, model, router = problem
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
            # A small backward movement on a street is noise: its route distance is negative, which is improbable but
            # possible.
            route = q - p
        else:
            goal = around if t == c else t
            route = router.work.dist[goal] - p + q if router.work.done[goal] else np.inf
        out[k] = -np.inf if route > limit else -abs(route - straight) / model.beta_m
        possible |= route <= limit
    clear(router.work, touched)
    return possible


@njit(cache=True, nogil=True)
def link(problem: MatchingProblem, i: int, j: int, delta: FloatArray, out: Any) -> bool:
    """Write the transition log-probabilities (K_i K_j,) from layer i to layer j; return True if one is finite.

    Long detours and candidates outside the beam are searched only if there is no other transition.
    """
    _, layers, trip, model, router = problem
    straight = np.hypot(trip.x[j] - trip.x[i], trip.y[j] - trip.y[i])
    widest = model.speed_ms * (trip.time_s[j] - trip.time_s[i]) + model.slack_m
    usual = min(widest, straight + model.detour_m)
    low, high, width = layers.ptr[i], layers.ptr[i + 1], layers.ptr[j + 1] - layers.ptr[j]
    if width == 0 or straight > widest:
        return False
    best = -np.inf
    for a in range(low, high):
        best = max(best, delta[a])
    n, reached = _mark(layers, j, router.wanted, True), False
    for limit, floor in ((usual, best - model.beam), (widest, -np.inf)):
        for a in range(low, high):
            row = out[(a - low) * width : (a - low + 1) * width]
            if delta[a] == -np.inf or delta[a] < floor:
                row[:] = -np.inf
            elif _row(problem, a, j, straight, limit, n, row):
                reached = True
        if reached:
            break
    _mark(layers, j, router.wanted, False)
    return reached


@njit(cache=True, nogil=True)
def _prefer(layers: CandidateLayers, a: int, score: float, b: int, other: float) -> bool:
    """Return True if candidate a is better than b; ties (up to rounding) are broken in favour of the lower segment."""
    # Ties are common, because the end of a segment and the start of its successor are the same point.
    if score == other or abs(score - other) <= _TIE:
        return layers.segment[a] < layers.segment[b]
    return score > other


@njit(cache=True, nogil=True)
def _advance(
    layers: CandidateLayers, i: int, j: int, model: HmmModel, links: Any, delta: FloatArray, back: IntArray
) -> None:
    """Perform one step of the Viterbi recursion."""
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
    problem: MatchingProblem, first: int, delta: FloatArray, back: IntArray
) -> tuple[IntArray, IntArray, FloatArray]:
    """Run the Viterbi recursion from a nonempty layer until no transition is possible.

    An unreachable fix may be an outlier, and so may the fix before it. Therefore up to `max_skips` unreachable fixes
    are skipped; if this fails, the fix before them is skipped instead. Returns the layers (n,) of the piece, the
    position (n,) of the transition matrix into each layer, and the concatenated matrices of log-probabilities.
    """
    layers, model = problem.layers, problem.model
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
            if link(problem, front, j, delta, links[used:]):
                reached = True
                break
        if not reached and n >= 2 and front + 1 < n_layers and front - chain[n - 2] <= model.max_skips:
            j = front + 1
            reached = link(problem, chain[n - 2], j, delta, links[used:])
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
    """Return the candidates (n,) of the Viterbi path."""
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
    """Return the posterior probability of each candidate given all fixes of a piece (forward-backward algorithm)."""
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
    """Return the mean posterior probability that a fix lies on the path between the fixes before and after it.

    Skipped fixes have probability 0.
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


@njit(cache=True, nogil=True)
def _extend(path: IntArray, n: int, items: Any, low: int, high: int) -> tuple[IntArray, int]:
    """Append items[low:high] to a path of n segments; return the (possibly reallocated) path and its size."""
    if n + max(0, high - low) > path.size:
        grown = np.empty(2 * path.size + high - low, dtype=np.int64)
        grown[:n] = path[:n]
        path = grown
    for k in range(low, high):
        path[n] = items[k]
        n += 1
    return path, n


@njit(cache=True, nogil=True)
def trace(problem: MatchingProblem, chain: IntArray, chosen: IntArray) -> tuple[IntArray, IntArray, float]:
    """Connect the chosen candidates by shortest paths.

    Returns the path (k,) of segments, the index (n,) in the path that is reached at each layer (nondecreasing), and the
    distance driven along the last street, in metres from its start.
    """
    roads, layers, trip, model, router = problem
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
def trim(
    roads: Streets, path: IntArray, upto: IntArray, start_m: float, reach_m: float, end_m: float
) -> tuple[int, int]:
    """Return the range of a path without the artefacts that noise in its first and last fix causes.

    Artefacts are a first or last segment of which less than `end_m` and less than half was driven, and a loop between
    the first two or the last two fixes that returns to a segment that was just driven.
    """
    low, high, n = 0, path.size, upto.size
    if np.any(path[upto[max(0, n - 3)] : high - 1] == path[high - 1]):
        high = upto[n - 2] + 1
    elif high > 1:
        last = path[high - 1]
        high -= reach_m - roads.start_m[last] < min(end_m, 0.5 * roads.segment_m[last])
    if np.any(path[1 : min(upto[min(n - 1, 2)] + 1, high)] == path[0]):
        low = min(upto[1], high - 1)
    elif high > 1:
        low += roads.segment_m[path[0]] - start_m < min(end_m, 0.5 * roads.segment_m[path[0]])
    return low, high


@njit(cache=True, nogil=True)
def _project(index: GridIndex, path: IntArray, low: int, high: int, x: float, y: float) -> tuple[int, float, float]:
    """Project a point onto path[low:high]; return the segment, the relative position on it, and the distance."""
    best, fraction, nearest = path[low], 0.0, np.inf
    for i in range(low, high):
        along, distance = closest(index, path[i], x, y)
        if distance < nearest:
            best, fraction, nearest = path[i], along, distance
    return best, fraction, nearest


@njit(cache=True, nogil=True)
def _put(roads: Streets, i: int, place: Any, segment: IntArray, along_m: FloatArray, distance_m: FloatArray) -> None:
    s, share, far = place
    segment[i], along_m[i], distance_m[i] = s, share * roads.segment_m[s], far


@njit(cache=True, nogil=True)
def place_fixes(
    problem: MatchingProblem, index: GridIndex, chain: IntArray, chosen: IntArray, path: IntArray, upto: IntArray,
    low: int, high: int, x: FloatArray, y: FloatArray, segment: IntArray, along_m: FloatArray, distance_m: FloatArray,
) -> None:  # fmt: skip
    """Write the position on path[low:high] of each fix of a piece.

    Fixes with a layer are at their candidates, or at the nearest point of the path if the candidate was trimmed. Fixes
    that were thinned out are at the nearest point between the adjacent layers. Skipped fixes, and fixes thinned out
    after a skipped fix, have no position.
    """
    roads, layers, trip, _, _ = problem
    for k in range(chain.size):
        fix, s = trip.fix[chain[k]], layers.segment[chosen[k]]
        here = min(max(upto[k], low), high - 1)
        # Because of noise, the candidate may lie before the position that is already reached on its street.
        at = upto[k] + roads.place[s] - roads.place[path[upto[k]]]
        if low <= at < high and path[at] == s:
            segment[fix], along_m[fix] = s, layers.along_m[chosen[k]]
            distance_m[fix] = layers.distance_m[chosen[k]]
        else:
            _put(roads, fix, _project(index, path, here, here + 1, x[fix], y[fix]), segment, along_m, distance_m)
        until = trip.fix[chain[k] + 1] if chain[k] + 1 < trip.fix.size else x.size
        following = min(max(upto[min(k + 1, chain.size - 1)], low), high - 1)
        for i in range(fix + 1, until):
            _put(roads, i, _project(index, path, here, following + 1, x[i], y[i]), segment, along_m, distance_m)


@njit(cache=True, nogil=True)
def match_trip(
    index: GridIndex, roads: Streets, x: FloatArray, y: FloatArray, time_s: FloatArray, model: HmmModel, router: Router
) -> tuple[Any, Any, Any, Any, Any, Any, Any, Any]:
    """Match one trip of n fixes.

    Returns the concatenated paths of the pieces and their offsets; the first and the last fix (pieces, 2) and the
    confidence (pieces,) of each piece; the segment, position and distance (n,) of each fix (-1 and NaN for unmatched
    fixes); and three counts: layers without candidates, skipped layers within pieces, and pieces with one layer.
    """
    trip = thin(x, y, time_s, model.thin_m)
    layers = collect_candidates(index, roads, trip, model)
    problem = MatchingProblem(roads, layers, trip, model, router)
    delta, back = np.empty(layers.segment.size), np.empty(layers.segment.size, dtype=np.int64)
    segments, n_layers = np.empty(0, dtype=np.int64), trip.x.size
    offsets, confidence = np.zeros(n_layers + 1, dtype=np.int64), np.empty(n_layers)
    span = np.empty((n_layers, 2), dtype=np.int64)
    segment, along_m, distance_m = np.full(x.size, -1, dtype=np.int64), np.full(x.size, np.nan), np.full(x.size, np.nan)
    lost, pieces, j = np.zeros(3, dtype=np.int64), 0, 0
    while j < n_layers:
        if layers.ptr[j] == layers.ptr[j + 1]:
            lost[0] += 1
            j += 1
            continue
        chain, ptr, links = follow(problem, j, delta, back)
        j = chain[chain.size - 1] + 1
        if chain.size == 1:
            lost[2] += 1
            continue
        chosen = decode(layers, chain, delta, back)
        path, upto, reach = trace(problem, chain, chosen)
        low, high = trim(roads, path, upto, layers.along_m[chosen[0]], reach, model.end_m)
        probability = posteriors(layers, chain, ptr, links, model)
        confidence[pieces] = confidence_of(layers, chain, path, upto, probability)
        place_fixes(problem, index, chain, chosen, path, upto, low, high, x, y, segment, along_m, distance_m)
        segments = np.concatenate((segments, path[low:high]))
        span[pieces, 0], span[pieces, 1] = trip.fix[chain[0]], trip.fix[chain[chain.size - 1]]
        lost[1] += chain[chain.size - 1] - chain[0] + 1 - chain.size
        pieces += 1
        offsets[pieces] = segments.size
    ends, spans, sure = offsets[: pieces + 1].copy(), span[:pieces].copy(), confidence[:pieces].copy()
    return segments, ends, spans, sure, segment, along_m, distance_m, lost


@njit(cache=True, nogil=True)
def path_progress(path: IntArray, length: FloatArray, segment: IntArray, along: FloatArray) -> FloatArray:
    """Return the driven distance (k,) from the start of a path (n,) to each fix; NaN for unmatched fixes.

    `length` (S,) has the lengths of all segments; `segment` (-1 for unmatched fixes) and `along` (k,) are the positions
    of the fixes. A fix that is not on the remaining path, because of noise, has the distance of the previous fix.
    """
    progress = np.full(segment.size, np.nan)
    at, start, last = 0, 0.0, 0.0
    for k in range(segment.size):
        if segment[k] < 0:
            continue
        i, distance = at, start
        while i < path.size and path[i] != segment[k]:
            distance += length[path[i]]
            i += 1
        if i < path.size:
            at, start = i, distance
            last = max(last, start + along[k])
        progress[k] = last
    return progress
