"""A particle filter on roads: positions that drive along legal turns, guided by the next fix.

The model is Duffield & Singh's (2020). Between two fixes dt seconds apart a driver stands with chance p0 =
exp(-stay_rate dt), or drives d > 0 metres along the shortest legal way, with the density

    (1 - p0) (speed_rate / dt) exp(-speed_rate d / dt) exp(-deviation_rate |d - g|),

g being the straight distance between the two positions; d is at most `max_speed` dt + `slack`. A fix is normal about
the position with deviation `sigma` each way. Ways that are longer than the distance between the fixes by more than
`detour` are looked for only where all others together are less likely than one of them could be.

All particles of a street share one bounded search. A way to go on is a pair of a particle and a segment near the next
fix; its mass is the emission integrated over that segment times the density at the nearest point. N pairs are drawn at
once by systematic resampling (an auxiliary particle filter that is all but fully adapted); the point on the segment is
drawn from the normal emission between the segment's ends, and the weight corrects for the density at that point.

Random numbers from a counter, so that a seed gives the same whatever the threads; and normal ones between bounds.
"""

import math
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from limiirl._typing import FloatArray, IntArray
from limiirl.kernels.dijkstra import clear
from limiirl.roads.kernels.routing import Router, Streets, spread

_ROOT_HALF = math.sqrt(0.5)
# A normal variable lies this many deviations off with a chance of 1e-300: beyond, the chance is no number any more.
FARTHEST = 37.0


@njit(cache=True, nogil=True)
def uniform(state: NDArray[np.uint64]) -> float:
    """Return a number in [0, 1) and move the counter `state[0]` on (SplitMix64: a counter, mixed)."""
    state[0] += np.uint64(0x9E3779B97F4A7C15)
    z = state[0]
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return float((z ^ (z >> np.uint64(31))) >> np.uint64(11)) * (1.0 / 9007199254740992.0)


@njit(cache=True, nogil=True)
def normal_mass(low: float, high: float) -> float:
    """Return the chance that a standard normal variable lies between two bounds, exact in the tails too."""
    if low > 0.0:
        return 0.5 * (math.erfc(low * _ROOT_HALF) - math.erfc(high * _ROOT_HALF))
    if high < 0.0:
        return 0.5 * (math.erfc(-high * _ROOT_HALF) - math.erfc(-low * _ROOT_HALF))
    return 0.5 * (math.erf(high * _ROOT_HALF) - math.erf(low * _ROOT_HALF))


@njit(cache=True, nogil=True)
def normal_between(low: float, high: float, state: NDArray[np.uint64]) -> float:
    """Draw a standard normal variable, given that it lies between two bounds, by rejection (Robert 1995)."""
    if high < 0.0:
        return -_above(-high, -low, state)
    if low > 0.0:
        return _above(low, high, state)
    if high - low < 2.5:
        return _flat(low, high, 0.0, state)
    while True:
        # Box and Muller's transform; both of a pair would do, one is simpler.
        radius = math.sqrt(-2.0 * math.log(1.0 - uniform(state)))
        z = radius * math.cos(2.0 * math.pi * uniform(state))
        if low <= z <= high:
            return z


@njit(cache=True, nogil=True)
def _above(low: float, high: float, state: NDArray[np.uint64]) -> float:
    """The same for bounds above 0: from an exponential variable, or a flat one where the bounds are close."""
    rate = 0.5 * (low + math.sqrt(low * low + 4.0))
    if (high - low) * rate < 1.0:
        return _flat(low, high, low, state)
    while True:
        z = low - math.log(1.0 - uniform(state)) / rate
        if z <= high and uniform(state) <= math.exp(-0.5 * (z - rate) ** 2):
            return z


@njit(cache=True, nogil=True)
def _flat(low: float, high: float, top: float, state: NDArray[np.uint64]) -> float:
    """The same from a flat variable, where the density is greatest at `top`."""
    while True:
        z = low + (high - low) * uniform(state)
        if uniform(state) <= math.exp(0.5 * (top * top - z * z)):
            return z


STANDS = -1
"""In place of a candidate: the particle stays where it was."""


class RoadArrays(NamedTuple):
    """A road network as the kernels need it.

    Attributes
    ----------
    streets : Streets
        Chains of segments without a choice, and the turns between them.
    length : (S,)
        Metres along each segment.
    start : (S, 2)
        Where it begins, in metres on the flat map.
    run : (S, 2)
        From there to its end.
    """

    streets: Streets
    length: FloatArray
    start: FloatArray
    run: FloatArray


class MotionModel(NamedTuple):
    """The constants of the model, in metres and seconds; no particle is further than `farthest` from its fix."""

    sigma: float
    deviation_rate: float
    speed_rate: float
    stay_rate: float
    max_speed: float
    slack: float
    detour: float
    farthest: float


class ParticleCloud(NamedTuple):
    """Particles at one fix: (N,) each.

    Attributes
    ----------
    segment, along : where they are
    street, position : the street, and metres from its beginning
    place : (N, 2)
        The same on the flat map.
    option : index among the fix's candidates, or `STANDS`
    parent : the particle of the fix before
    weight : sums to 1
    """

    segment: IntArray
    along: FloatArray
    street: IntArray
    position: FloatArray
    place: FloatArray
    option: IntArray
    parent: IntArray
    weight: FloatArray


class Pace(NamedTuple):
    """The chances of a step: of standing, and ``scale exp(-rate d - deviation_rate |d - g|)`` up to d = limit."""

    stands: float
    scale: float
    rate: float
    deviation_rate: float
    limit: float


class ParticleStep(NamedTuple):
    """What joins the clouds of two fixes.

    Attributes
    ----------
    group : (N,) int64
        Which row of `reach` is a particle's street.
    reach : (U, C)
        Metres from the beginning of each distinct street of the first cloud to that of each candidate segment, round
        about where it is on the same street; inf if too far.
    pace : Pace
    log_evidence : float
        Log of the density of the second fix, given those before; -inf where the cloud is lost.
    """

    group: IntArray
    reach: FloatArray
    pace: Pace
    log_evidence: float


@njit(cache=True, nogil=True)
def pace_of(motion: MotionModel, dt: float, most: float) -> Pace:
    """Return the chances of a step of dt seconds, of at most so many metres."""
    stands, rate = math.exp(-motion.stay_rate * dt), motion.speed_rate / dt
    limit = min(motion.max_speed * dt + motion.slack, most)
    return Pace(stands, (1.0 - stands) * rate, rate, motion.deviation_rate, limit)


@njit(cache=True, nogil=True)
def density(d: float, g: float, pace: Pace) -> float:
    """Return the density of driving d metres to a point g metres away, limit or not."""
    return pace.scale * math.exp(-pace.rate * d - pace.deviation_rate * abs(d - g))


@njit(cache=True, nogil=True)
def _settle(roads: RoadArrays, cloud: ParticleCloud, j: int, segment: int, along: float) -> None:
    """Put particle j somewhere."""
    cloud.segment[j], cloud.along[j], cloud.street[j] = segment, along, roads.streets.street[segment]
    cloud.position[j] = roads.streets.start_m[segment] + along
    share = along / roads.length[segment]
    cloud.place[j, 0] = roads.start[segment, 0] + share * roads.run[segment, 0]
    cloud.place[j, 1] = roads.start[segment, 1] + share * roads.run[segment, 1]


@njit(cache=True, nogil=True)
def project_fix(roads: RoadArrays, segments: IntArray, fix: FloatArray, sigma: float) -> tuple[FloatArray, FloatArray]:
    """Return how a fix lies beside segments: (C, 4) flat length, foot, nearest point and offset; and the mass (C,).

    The foot is where the perpendicular meets the segment's line, in flat metres from its start; the mass is the
    emission integrated over the segment, 0 beyond what numbers can tell.
    """
    found, mass = np.empty((segments.size, 4)), np.empty(segments.size)
    for c in range(segments.size):
        run, start = roads.run[segments[c]], roads.start[segments[c]]
        flat = math.hypot(run[0], run[1])
        if flat == 0.0:
            found[c], mass[c] = 0.0, 0.0
            continue
        east, north = fix[0] - start[0], fix[1] - start[1]
        foot = (east * run[0] + north * run[1]) / flat
        offset = (east * run[1] - north * run[0]) / flat
        found[c, 0], found[c, 1], found[c, 3] = flat, foot, offset
        found[c, 2] = min(max(foot, 0.0), flat)
        mass[c] = _mass(foot, offset, 0.0, flat, sigma)
    return found, mass


@njit(cache=True, nogil=True)
def _mass(foot: float, offset: float, low: float, high: float, sigma: float) -> float:
    """The normal emission, integrated along a line from low to high."""
    if abs(offset) > FARTHEST * sigma or low >= high:
        return 0.0
    across = math.exp(-0.5 * (offset / sigma) ** 2) / (math.sqrt(2.0 * math.pi) * sigma)
    return across * normal_mass((low - foot) / sigma, (high - foot) / sigma)


@njit(cache=True, nogil=True)
def _emission(place: FloatArray, fix: FloatArray, sigma: float, farthest: float) -> float:
    off = (place[0] - fix[0]) ** 2 + (place[1] - fix[1]) ** 2
    if off > farthest**2:
        return 0.0
    return math.exp(-0.5 * off / sigma**2) / (2.0 * math.pi * sigma**2)


@njit(cache=True, nogil=True)
def _draw_along(foot: float, low: float, high: float, sigma: float, state: NDArray[np.uint64]) -> float:
    """A point from low to high along a line, by the normal emission."""
    at = foot + sigma * normal_between((low - foot) / sigma, (high - foot) / sigma, state)
    return min(max(at, low), high)


@njit(cache=True, nogil=True)
def empty_cloud(n: int) -> ParticleCloud:
    """Return room for n particles of equal weight."""
    segment, street, option = np.empty((3, n), dtype=np.int64)
    along, position, place = np.empty(n), np.empty(n), np.empty((n, 2))
    return ParticleCloud(segment, along, street, position, place, option, np.full(n, -1), np.full(n, 1.0 / n))


@njit(cache=True, nogil=True)
def begin(
    roads: RoadArrays, segments: IntArray, fix: FloatArray, n: int, sigma: float, state: NDArray[np.uint64]
) -> tuple[ParticleCloud, float]:
    """Return n particles about the first fix, flat over the roads but for the emission, and the log evidence."""
    cloud, (found, mass) = empty_cloud(n), project_fix(roads, segments, fix, sigma)
    total = mass.sum()
    if total <= 0.0:
        return cloud, -np.inf
    c, upto, offset = 0, mass[0], uniform(state)
    for j in range(n):
        while upto < (j + offset) * total / n and c < segments.size - 1:
            c += 1
            upto += mass[c]
        s, flat = segments[c], found[c, 0]
        cloud.option[j] = c
        _settle(roads, cloud, j, s, _draw_along(found[c, 1], 0.0, flat, sigma, state) * roads.length[s] / flat)
    return cloud, math.log(total)


@njit(cache=True, nogil=True)
def driven_distance(position: float, start: float, same_street: bool, same_segment: bool, reach: float) -> float:
    """Return the metres from a position on a street to the start of a segment; below 0 for the own segment.

    Nobody comes to an earlier place of the own segment, since that is a long way round, and fixes are close in time.
    """
    if same_street and (same_segment or start >= position):
        return start - position
    return reach - position


@njit(cache=True, nogil=True)
def _reach(
    roads: RoadArrays, cloud: ParticleCloud, segments: IntArray, limit: float, router: Router
) -> tuple[IntArray, FloatArray]:
    """Group particles by street, and search once from each: see `ParticleStep`."""
    n, streets, work = cloud.segment.size, roads.streets, router.work
    group, source, farthest, n_groups = np.empty(n, dtype=np.int64), np.empty(n, dtype=np.int64), np.zeros(n), 0
    for i in range(n):
        g, street = 0, cloud.street[i]
        while g < n_groups and source[g] != street:
            g += 1
        if g == n_groups:
            source[g] = street
            n_groups += 1
        group[i] = g
        farthest[g] = max(farthest[g], cloud.position[i])
    reach = np.full((n_groups, segments.size), np.inf)
    for g in range(n_groups):
        wanted, n_wanted = np.empty(segments.size, dtype=np.int64), 0
        for c in range(segments.size):
            street = streets.street[segments[c]]
            # The way round to the source itself is kept in the place after the last street.
            wanted[c] = streets.length_m.size if street == source[g] else street
            n_wanted += not router.wanted[wanted[c]]
            router.wanted[wanted[c]] = True
        touched = spread(streets, source[g], limit + farthest[g], n_wanted, router)
        for c in range(segments.size):
            router.wanted[wanted[c]] = False
            if work.settled[wanted[c]]:
                reach[g, c] = work.dist[wanted[c]] + streets.start_m[segments[c]]
        clear(work, touched)
    return group, reach


@njit(cache=True, nogil=True)
def way_between(cloud: ParticleCloud, i: int, moved: ParticleCloud, j: int, reach: float) -> tuple[float, float]:
    """Return how far particle i drives to become j of the next cloud, and how far that is straight."""
    start, same = moved.position[j] - moved.along[j], cloud.street[i] == moved.street[j]
    d = driven_distance(cloud.position[i], start, same, cloud.segment[i] == moved.segment[j], reach) + moved.along[j]
    return d, math.hypot(moved.place[j, 0] - cloud.place[i, 0], moved.place[j, 1] - cloud.place[i, 1])


@njit(cache=True, nogil=True)
def _options(
    roads: RoadArrays,
    cloud: ParticleCloud,
    segments: IntArray,
    group: IntArray,
    reach: FloatArray,
    found: FloatArray,
    mass: FloatArray,
    pace: Pace,
    sigma: float,
) -> tuple[FloatArray, FloatArray]:
    """Weigh what each particle can do: (C + 1, N) masses, the last to stand and left 0; and densities at the nearest.

    The density is taken without the limit: the nearest point may lie beyond it where another of the segment does not.
    """
    n, n_options = cloud.segment.size, segments.size
    share, by = np.zeros((n_options + 1, n)), np.ones((n_options + 1, n))
    for c in range(n_options):
        s, flat = segments[c], found[c, 0]
        if mass[c] <= 0.0:
            continue
        street, start, scale = roads.streets.street[s], roads.streets.start_m[s], roads.length[s] / flat
        x0, y0, east, north = roads.start[s, 0], roads.start[s, 1], roads.run[s, 0] / flat, roads.run[s, 1] / flat
        for i in range(n):
            own = cloud.segment[i] == s
            d = driven_distance(cloud.position[i], start, cloud.street[i] == street, own, reach[group[i], c])
            if d > pace.limit:
                continue
            at, here = found[c, 2], mass[c]
            if own:
                low = cloud.along[i] / scale
                at, here = max(at, low), _mass(found[c, 1], found[c, 3], low, flat, sigma)
            g = math.hypot(x0 + at * east - cloud.place[i, 0], y0 + at * north - cloud.place[i, 1])
            by[c, i] = density(d + at * scale, g, pace)
            share[c, i] = cloud.weight[i] * here * by[c, i]
    return share, by


@njit(cache=True, nogil=True)
def advance(
    roads: RoadArrays,
    cloud: ParticleCloud,
    segments: IntArray,
    fixes: FloatArray,
    dt: float,
    motion: MotionModel,
    router: Router,
    state: NDArray[np.uint64],
) -> tuple[ParticleCloud, ParticleStep]:
    """Move particles on to the next fix; the log evidence of the step is -inf where none can come near it.

    Parameters
    ----------
    segments : (C,) int64
        Candidates near the next fix.
    fixes : (2, 2)
        The fix of the cloud and the next, on the flat map.
    dt : float
        Seconds between them, above 0.
    """
    n, n_options, sigma, to = cloud.segment.size, segments.size, motion.sigma, fixes[1]
    straight = math.hypot(fixes[1, 0] - fixes[0, 0], fixes[1, 1] - fixes[0, 1])
    found, mass = project_fix(roads, segments, to, sigma)
    for detour in (motion.detour, np.inf):
        pace = pace_of(motion, dt, straight + detour)
        group, reach = _reach(roads, cloud, segments, pace.limit, router)
        share, by = _options(roads, cloud, segments, group, reach, found, mass, pace, sigma)
        for i in range(n):
            share[n_options, i] = cloud.weight[i] * pace.stands * _emission(cloud.place[i], to, sigma, motion.farthest)
        total = share.sum()
        if total > mass.max() * pace.scale * math.exp(-motion.deviation_rate * detour):
            break
    moved = empty_cloud(n)
    if not total > 0.0:
        return moved, ParticleStep(group, reach, pace, -np.inf)
    # Pairs are in the order of candidates: in that of particles, the chances would repeat in the very period of the
    # systematic draw, and all particles would do the same.
    k, upto, offset, last = 0, share[0, 0], uniform(state), n * (n_options + 1) - 1
    for j in range(n):
        while upto < (j + offset) * total / n and k < last:
            k += 1
            upto += share[k // n, k % n]
        c, i = k // n, k % n
        moved.parent[j] = i
        if c == n_options:
            _settle(roads, moved, j, cloud.segment[i], cloud.along[i])
            moved.option[j], moved.weight[j] = STANDS, 1.0
            continue
        s, flat = segments[c], found[c, 0]
        low = cloud.along[i] * flat / roads.length[s] if s == cloud.segment[i] else 0.0
        _settle(roads, moved, j, s, _draw_along(found[c, 1], low, flat, sigma, state) * roads.length[s] / flat)
        moved.option[j] = c
        d, g = way_between(cloud, i, moved, j, reach[group[i], c])
        moved.weight[j] = density(d, g, pace) / by[c, i] if d <= pace.limit and by[c, i] > 0.0 else 0.0
    mean = moved.weight.mean()
    if not mean > 0.0:
        return moved, ParticleStep(group, reach, pace, -np.inf)
    moved.weight[:] /= n * mean
    return moved, ParticleStep(group, reach, pace, math.log(total) + math.log(mean))
