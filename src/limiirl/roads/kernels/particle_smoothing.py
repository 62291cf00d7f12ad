"""From clouds of particles to one legal path: backward simulation, the path of greatest agreement, and the trip."""

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from limiirl._typing import FloatArray, IntArray
from limiirl.roads.kernels.particle_filter import (
    STANDS,
    MotionModel,
    ParticleCloud,
    ParticleStep,
    RoadArrays,
    advance,
    begin,
    density,
    pace_of,
    uniform,
    way_between,
)
from limiirl.roads.kernels.routing import Router, streets_between
from limiirl.roads.kernels.spatial_index import GridIndex, near_growing


class FilterEffort(NamedTuple):
    """How much to try.

    Attributes
    ----------
    n_particles, n_paths : int
        Of the filter, and drawn backwards.
    radius, max_radius : float
        Candidates lie within the first about a fix, in metres; it doubles up to the second where there are none.
    most : int
        The nearest so many of them.
    patience : int
        How many fixes in a row that nobody can reach, or with no road near, are passed over, before the path is broken.
    """

    n_particles: int
    n_paths: int
    radius: float
    max_radius: float
    most: int
    patience: int


@njit(cache=True, nogil=True)
def _ancestors(cloud: ParticleCloud, step: ParticleStep, moved: ParticleCloud, j: int, upto: FloatArray) -> None:
    """Write the running sums (N,) of the chances that particle j of a cloud came from each of the cloud before."""
    total = 0.0
    stood, parent = moved.option[j] == STANDS, moved.parent[j]
    for i in range(upto.size):
        same = cloud.segment[i] == moved.segment[j]
        if stood:
            # Who stands comes from the very point: the density of driving there counts for nothing beside it.
            if same and cloud.along[i] == cloud.along[parent]:
                total += cloud.weight[i]
        elif not same or cloud.along[i] <= moved.along[j]:
            d, g = way_between(cloud, i, moved, j, step.reach[step.group[i], moved.option[j]])
            if d <= step.pace.limit:
                total += cloud.weight[i] * density(d, g, step.pace)
        upto[i] = total


@njit(cache=True, nogil=True)
def _pick(upto: FloatArray, at: float) -> int:
    """The first place whose running sum passes `at` times the total."""
    return min(np.searchsorted(upto, at * upto[-1], side="right"), upto.size - 1)


@njit(cache=True, nogil=True)
def draw_paths(
    clouds: list[ParticleCloud], steps: list[ParticleStep], n_paths: int, state: NDArray[np.uint64]
) -> IntArray:
    """Return particles (T, M): paths drawn backwards from the smoothing distribution, given all fixes.

    The ancestry of the last cloud would do too, but all its members soon share one ancestor, so that it is always sure
    of the beginning of a trip.
    """
    last = len(clouds) - 1
    chosen, n = np.empty((last + 1, n_paths), dtype=np.int64), clouds[0].weight.size
    upto, offset = np.cumsum(clouds[last].weight), uniform(state)
    for m in range(n_paths):
        chosen[last, m] = _pick(upto, (m + offset) / n_paths)
    for t in range(last - 1, -1, -1):
        done = np.zeros(n_paths, dtype=np.bool_)
        for m in range(n_paths):
            if done[m]:
                continue
            j = chosen[t + 1, m]
            _ancestors(clouds[t], steps[t], clouds[t + 1], j, upto)
            for other in range(m, n_paths):
                if chosen[t + 1, other] == j:
                    done[other] = True
                    # Rounding can leave nothing where a weight is tiny; the parent is always possible.
                    chosen[t, other] = _pick(upto, uniform(state)) if upto[n - 1] > 0.0 else clouds[t + 1].parent[j]
    return chosen


@njit(cache=True, nogil=True)
def decide(clouds: list[ParticleCloud], chosen: IntArray) -> tuple[IntArray, FloatArray]:
    """Return segments (T,) and metres along (T,): the path that agrees most with the drawn ones.

    Of all chains of moves that some drawn path makes, the one with the greatest sum over fixes of the share of drawn
    paths that are on its segment then: the most fixes right, in expectation.
    """
    n_fixes, n_paths = chosen.shape
    state, share = np.empty((n_fixes, n_paths), dtype=np.int64), np.zeros((n_fixes, n_paths))
    score, back = np.zeros((n_fixes, n_paths)), np.full((n_fixes, n_paths), -1)
    for t in range(n_fixes):
        for m in range(n_paths):
            k = 0
            while clouds[t].segment[chosen[t, k]] != clouds[t].segment[chosen[t, m]]:
                k += 1
            # A segment is called after the first drawn path that is on it.
            state[t, m] = k
            share[t, k] += 1.0 / n_paths
        for m in range(n_paths):
            k = state[t, m]
            if t > 0 and (back[t, k] < 0 or score[t - 1, state[t - 1, m]] > score[t - 1, back[t, k]]):
                back[t, k] = state[t - 1, m]
        for m in range(n_paths):
            if state[t, m] == m:
                score[t, m] = share[t, m] + (score[t - 1, back[t, m]] if t > 0 else 0.0)
    segment, along = np.empty(n_fixes, dtype=np.int64), np.zeros(n_fixes)
    k = int(np.argmax(score[n_fixes - 1]))
    for t in range(n_fixes - 1, -1, -1):
        segment[t] = clouds[t].segment[chosen[t, k]]
        for m in range(n_paths):
            if state[t, m] == k:
                along[t] += clouds[t].along[chosen[t, m]]
        along[t] /= share[t, k] * n_paths
        k = back[t, k]
    for t in range(1, n_fixes):
        # Means over different paths may step back a little; nobody drives backwards.
        if segment[t] == segment[t - 1]:
            along[t] = max(along[t], along[t - 1])
    return segment, along


@njit(cache=True, nogil=True)
def _near(index: GridIndex, fix: FloatArray, effort: FilterEffort) -> IntArray:
    """Candidates about a fix."""
    found = near_growing(index, fix[0], fix[1], effort.radius, effort.max_radius, effort.most, False)
    return found[0].astype(np.int64)


@njit(cache=True, nogil=True)
def filter_fixes(
    roads: RoadArrays,
    index: GridIndex,
    fixes: FloatArray,
    times: FloatArray,
    motion: MotionModel,
    effort: FilterEffort,
    router: Router,
    state: NDArray[np.uint64],
) -> tuple[list[ParticleCloud], list[ParticleStep], list[int], list[float], int]:
    """Run the filter from the first fix on, until it is lost or the trip ends.

    Returns
    -------
    clouds, steps, used, log_evidence
        The particles at each fix used, what joins them, which fixes these are, and the log evidence of each; all
        empty if the first fix has no road near it.
    onward : int
        The fix to begin again from; the number of fixes at the end.
    """
    near_by = _near(index, fixes[0], effort)
    cloud, evidence = begin(roads, near_by, fixes[0], effort.n_particles, motion.sigma, state)
    no_step = ParticleStep(near_by, np.empty((0, 0)), pace_of(motion, 1.0, 1.0), 0.0)
    # Lists get their type from what they hold first.
    clouds, steps, used, told = [cloud], [no_step], [0], [evidence]
    steps.pop()
    if evidence == -np.inf:
        clouds.pop()
        return clouds, steps, used, told, 1
    missed, onward = 0, times.size
    for t in range(1, times.size):
        near_by, dt = _near(index, fixes[t], effort), times[t] - times[used[-1]]
        if dt <= 0.0:
            continue
        if near_by.size > 0:
            ends = np.stack((fixes[used[-1]], fixes[t]))
            cloud, step = advance(roads, clouds[-1], near_by, ends, dt, motion, router, state)
            if step.log_evidence > -np.inf:
                clouds.append(cloud)
                steps.append(step)
                used.append(t)
                told.append(step.log_evidence)
                missed, onward = 0, times.size
                continue
        missed, onward = missed + 1, min(onward, t)
        if missed > effort.patience:
            return clouds, steps, used, told, onward
    return clouds, steps, used, told, times.size


class MatchedStretch(NamedTuple):
    """What is known of the k fixes of one unbroken path.

    Attributes
    ----------
    used : (k,) int64
        Which fixes they are.
    segment, along : (k,)
        Where the path decided on is then.
    drawn : (k, M) int64
        Segments of the paths that were drawn.
    log_evidence : (k,)
        Of each fix, given those before.
    onward : int
        The fix to begin again from.
    """

    used: IntArray
    segment: IntArray
    along: FloatArray
    drawn: IntArray
    log_evidence: FloatArray
    onward: int


@njit(cache=True, nogil=True)
def follow(
    roads: RoadArrays,
    index: GridIndex,
    fixes: FloatArray,
    times: FloatArray,
    motion: MotionModel,
    effort: FilterEffort,
    router: Router,
    state: NDArray[np.uint64],
) -> MatchedStretch:
    """Match the fixes of a trip from the first on, until the particles are lost; nothing where no road is near it."""
    clouds, steps, used, told, onward = filter_fixes(roads, index, fixes, times, motion, effort, router, state)
    if len(clouds) == 0:
        none = np.empty(0, dtype=np.int64)
        return MatchedStretch(
            none, none, np.empty(0), np.empty((0, effort.n_paths), dtype=np.int64), np.empty(0), onward
        )
    chosen = draw_paths(clouds, steps, effort.n_paths, state)
    drawn = np.empty(chosen.shape, dtype=np.int64)
    for k in range(len(clouds)):
        drawn[k] = clouds[k].segment[chosen[k]]
    segment, along = decide(clouds, chosen)
    return MatchedStretch(np.array(used), segment, along, drawn, np.array(told), onward)


@njit(cache=True, nogil=True)
def match_trip(
    roads: RoadArrays,
    index: GridIndex,
    fixes: FloatArray,
    times: FloatArray,
    motion: MotionModel,
    effort: FilterEffort,
    router: Router,
    state: NDArray[np.uint64],
) -> tuple[IntArray, FloatArray, IntArray, IntArray]:
    """Match all fixes of one trip.

    Returns
    -------
    segment : (T,) int64
        At each fix; -1 where it was passed over.
    along : (T,)
        Metres from the segment's start.
    piece : (T,) int64
        Number of the unbroken path to which the fix belongs; -1 where it was passed over.
    drawn : (T, M) int64
        Segments of the paths that were drawn.
    """
    segment, piece = np.full(times.size, -1), np.full(times.size, -1)
    along, drawn = np.zeros(times.size), np.full((times.size, effort.n_paths), -1)
    at, n_pieces = 0, 0
    while at < times.size:
        found = follow(roads, index, fixes[at:], times[at:], motion, effort, router, state)
        for k in range(found.used.size):
            t = at + found.used[k]
            segment[t], along[t], piece[t], drawn[t] = found.segment[k], found.along[k], n_pieces, found.drawn[k]
        n_pieces += found.used.size > 0
        at += found.onward
    return segment, along, piece, drawn


@njit(cache=True, nogil=True)
def join(roads: RoadArrays, segment: IntArray, piece: IntArray, router: Router) -> tuple[IntArray, IntArray, IntArray]:
    """Return the segments driven, the pointers of pieces into them, and where (T,) on them each fix lies.

    Between fixes it is the shortest way.

    Parameters
    ----------
    segment, piece : (T,) int64
        As `match_trip` gives them.
    """
    streets, path, ptr, before, upto = roads.streets, [np.int64(0)], [0], -1, np.full(segment.size, -1)
    path.pop()
    for t in range(segment.size):
        if piece[t] < 0:
            continue
        if before < 0 or piece[before] != piece[t]:
            if before >= 0:
                ptr.append(len(path))
            path.append(segment[t])
        elif segment[before] != segment[t]:
            source, goal = streets.street[segment[before]], streets.street[segment[t]]
            first, last = streets.place[segment[before]] + 1, streets.place[segment[t]] + 1
            if source != goal or first > last:
                round_about = streets.length_m.size if source == goal else goal
                for street in streets_between(streets, source, round_about, np.inf, router):
                    path.extend([np.int64(s) for s in streets.items[first : streets.ptr[source + 1]]])
                    source, first = street, streets.ptr[street]
            path.extend([np.int64(s) for s in streets.items[first:last]])
        before, upto[t] = t, len(path) - 1
    ptr.append(len(path))
    return np.array(path, dtype=np.int64), np.array(ptr, dtype=np.int64), upto


@njit(cache=True, nogil=True)
def confidence_of(path: IntArray, upto: IntArray, piece: IntArray, drawn: IntArray) -> FloatArray:
    """Return (T,) the share of drawn paths that are, at each fix, on the path between the fixes around it."""
    on = np.flatnonzero(piece >= 0)
    sure = np.zeros(piece.size)
    for k in range(on.size):
        t = on[k]
        low = upto[on[k - 1]] if k > 0 and piece[on[k - 1]] == piece[t] else upto[t]
        high = upto[on[k + 1]] if k + 1 < on.size and piece[on[k + 1]] == piece[t] else upto[t]
        for m in range(drawn.shape[1]):
            for i in range(low, high + 1):
                if path[i] == drawn[t, m]:
                    sure[t] += 1.0 / drawn.shape[1]
                    break
    return sure
