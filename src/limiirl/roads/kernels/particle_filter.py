"""Map matching with a particle filter and backward simulation, for the model of Duffield and Singh (2020).

Between two fixes with a time difference of dt seconds, the vehicle does not move with probability
p0 = exp(-stay_rate dt). Otherwise it moves d > 0 metres along the shortest legal path, with the density

    (1 - p0) (speed_rate / dt) exp(-speed_rate d / dt) exp(-deviation_rate |d - g|),

where g is the straight-line distance between the two positions, and d <= max_speed dt + slack. The emission
probability of a fix is normal around the position, with standard deviation sigma in each coordinate. Paths that exceed
the distance between the fixes by more than `detour` are searched only if all other paths together are less likely than
an upper bound on the probability of one of them.

A proposal is a pair of a particle and a segment near the next fix. Its weight is the emission probability, integrated
over the segment, times the transition density at the point nearest to the fix. N pairs are sampled by systematic
resampling (an almost fully adapted auxiliary particle filter). The point on the segment is sampled from the truncated
normal emission, and the importance weight corrects for the transition density at this point.
"""

import math
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from limiirl._typing import FloatArray, IntArray
from limiirl.kernels.dijkstra import clear
from limiirl.roads.kernels.routing import Router, Streets, spread, streets_between
from limiirl.roads.kernels.spatial_index import GridIndex, near_growing

_ROOT_HALF = math.sqrt(0.5)
# Number of standard deviations beyond which the normal tail probability underflows (1e-300).
FARTHEST = 37.0


@njit(cache=True, nogil=True)
def uniform(state: NDArray[np.uint64]) -> float:
    """Return a random number, uniform in [0, 1), and advance the counter `state[0]` (SplitMix64)."""
    state[0] += np.uint64(0x9E3779B97F4A7C15)
    z = state[0]
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return float((z ^ (z >> np.uint64(31))) >> np.uint64(11)) * (1.0 / 9007199254740992.0)


@njit(cache=True, nogil=True)
def normal_mass(low: float, high: float) -> float:
    """Return the probability of a standard normal variable between two bounds, accurate in the tails."""
    if low > 0.0:
        return 0.5 * (math.erfc(low * _ROOT_HALF) - math.erfc(high * _ROOT_HALF))
    if high < 0.0:
        return 0.5 * (math.erfc(-high * _ROOT_HALF) - math.erfc(-low * _ROOT_HALF))
    return 0.5 * (math.erf(high * _ROOT_HALF) - math.erf(low * _ROOT_HALF))


@njit(cache=True, nogil=True)
def normal_between(low: float, high: float, state: NDArray[np.uint64]) -> float:
    """Draw from a truncated standard normal distribution by rejection (Robert 1995)."""
    if high < 0.0:
        return -_draw_above(-high, -low, state)
    if low > 0.0:
        return _draw_above(low, high, state)
    if high - low < 2.5:
        return _draw_uniform(low, high, 0.0, state)
    while True:
        # Box-Muller transform.
        radius = math.sqrt(-2.0 * math.log(1.0 - uniform(state)))
        z = radius * math.cos(2.0 * math.pi * uniform(state))
        if low <= z <= high:
            return z


@njit(cache=True, nogil=True)
def _draw_above(low: float, high: float, state: NDArray[np.uint64]) -> float:
    """Sample between positive bounds, with an exponential proposal, or with a uniform one if the bounds are close."""
    rate = 0.5 * (low + math.sqrt(low * low + 4.0))
    if (high - low) * rate < 1.0:
        return _draw_uniform(low, high, low, state)
    while True:
        z = low - math.log(1.0 - uniform(state)) / rate
        if z <= high and uniform(state) <= math.exp(-0.5 * (z - rate) ** 2):
            return z


@njit(cache=True, nogil=True)
def _draw_uniform(low: float, high: float, top: float, state: NDArray[np.uint64]) -> float:
    """Sample with a uniform proposal; `top` is the mode."""
    while True:
        z = low + (high - low) * uniform(state)
        if uniform(state) <= math.exp(0.5 * (top * top - z * z)):
            return z


STANDS = -1
"""Value of `ParticleCloud.option` for a particle that does not move."""


class RoadArrays(NamedTuple):
    """Arrays of a road network."""

    streets: Streets
    length: FloatArray  # (S,): metres along each segment
    start: FloatArray  # (S, 2): start on the plane, in metres
    run: FloatArray  # (S, 2): vector from start to end


class MotionModel(NamedTuple):
    """Parameters of the model, in metres and seconds; `farthest` is the maximum distance of a particle from its fix."""

    sigma: float
    deviation_rate: float
    speed_rate: float
    stay_rate: float
    max_speed: float
    slack: float
    detour: float
    farthest: float


class ParticleCloud(NamedTuple):
    """N particles at one fix."""

    segment: IntArray
    along: FloatArray  # metres from the start of the segment
    street: IntArray
    position: FloatArray  # metres from the start of the street
    place: FloatArray  # (N, 2): position on the plane
    option: IntArray  # index of the candidate segment, or STANDS
    parent: IntArray  # particle of the previous fix
    weight: FloatArray  # sums to 1


class Pace(NamedTuple):
    """Density of one step: P(no movement), and scale exp(-rate d - deviation_rate |d - g|) for d <= limit."""

    stands: float
    scale: float
    rate: float
    deviation_rate: float
    limit: float


class ParticleStep(NamedTuple):
    """Transition between the clouds of two fixes."""

    group: IntArray  # (N,): row of `reach` for each particle's street
    reach: FloatArray  # (U, C): metres from the start of each street to each candidate; inf if it is too far
    pace: Pace
    log_evidence: float  # log-density of the second fix given the previous ones; -inf if no particle survives


@njit(cache=True, nogil=True)
def pace_of(motion: MotionModel, dt: float, most: float) -> Pace:
    """Return the transition density of a step of dt seconds and at most `most` metres."""
    stands, rate = math.exp(-motion.stay_rate * dt), motion.speed_rate / dt
    limit = min(motion.max_speed * dt + motion.slack, most)
    return Pace(stands, (1.0 - stands) * rate, rate, motion.deviation_rate, limit)


@njit(cache=True, nogil=True)
def density(d: float, g: float, pace: Pace) -> float:
    """Return the transition density for a route distance d and a straight-line distance g, without the limit on d."""
    return pace.scale * math.exp(-pace.rate * d - pace.deviation_rate * abs(d - g))


@njit(cache=True, nogil=True)
def _set_position(roads: RoadArrays, cloud: ParticleCloud, j: int, segment: int, along: float) -> None:
    cloud.segment[j], cloud.along[j], cloud.street[j] = segment, along, roads.streets.street[segment]
    cloud.position[j] = roads.streets.start_m[segment] + along
    fraction = along / roads.length[segment]
    cloud.place[j, 0] = roads.start[segment, 0] + fraction * roads.run[segment, 0]
    cloud.place[j, 1] = roads.start[segment, 1] + fraction * roads.run[segment, 1]


@njit(cache=True, nogil=True)
def project_fix(roads: RoadArrays, segments: IntArray, fix: FloatArray, sigma: float) -> tuple[FloatArray, FloatArray]:
    """Return the projection (C, 4) of a fix onto segments, and the emission probability integrated over each (C,).

    The columns are the planar length of the segment; the foot of the perpendicular and the nearest point, in metres
    from the start of the segment; and the offset from the line.
    """
    relative, mass = np.empty((segments.size, 4)), np.empty(segments.size)
    for c in range(segments.size):
        run, start = roads.run[segments[c]], roads.start[segments[c]]
        flat = math.hypot(run[0], run[1])
        if flat == 0.0:
            relative[c], mass[c] = 0.0, 0.0
            continue
        east, north = fix[0] - start[0], fix[1] - start[1]
        foot = (east * run[0] + north * run[1]) / flat
        offset = (east * run[1] - north * run[0]) / flat
        relative[c, 0], relative[c, 1], relative[c, 3] = flat, foot, offset
        relative[c, 2] = min(max(foot, 0.0), flat)
        mass[c] = _mass(foot, offset, 0.0, flat, sigma)
    return relative, mass


@njit(cache=True, nogil=True)
def _mass(foot: float, offset: float, low: float, high: float, sigma: float) -> float:
    """Return the emission probability integrated along a line from low to high."""
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
    at = foot + sigma * normal_between((low - foot) / sigma, (high - foot) / sigma, state)
    return min(max(at, low), high)


@njit(cache=True, nogil=True)
def empty_cloud(n: int) -> ParticleCloud:
    """Return n uninitialised particles of equal weight."""
    segment, street, option = np.empty((3, n), dtype=np.int64)
    along, position, place = np.empty(n), np.empty(n), np.empty((n, 2))
    return ParticleCloud(segment, along, street, position, place, option, np.full(n, -1), np.full(n, 1.0 / n))


@njit(cache=True, nogil=True)
def begin(
    roads: RoadArrays, segments: IntArray, fix: FloatArray, n: int, sigma: float, state: NDArray[np.uint64]
) -> tuple[ParticleCloud, float]:
    """Return n particles at the first fix for a uniform prior over the roads, and the log evidence."""
    cloud, (relative, mass) = empty_cloud(n), project_fix(roads, segments, fix, sigma)
    total = mass.sum()
    if total <= 0.0:
        return cloud, -np.inf
    c, upto, offset = 0, mass[0], uniform(state)
    for j in range(n):
        while upto < (j + offset) * total / n and c < segments.size - 1:
            c += 1
            upto += mass[c]
        s, flat = segments[c], relative[c, 0]
        cloud.option[j] = c
        _set_position(roads, cloud, j, s, _draw_along(relative[c, 1], 0.0, flat, sigma, state) * roads.length[s] / flat)
    return cloud, math.log(total)


@njit(cache=True, nogil=True)
def route_distance(position: float, start: float, same_street: bool, same_segment: bool, reach: float) -> float:
    """Return the route distance from a position on a street to the start of a segment.

    The distance is negative if the position is on the segment: cycles back to this segment are not considered.
    """
    if same_street and (same_segment or start >= position):
        return start - position
    return reach - position


@njit(cache=True, nogil=True)
def _reach(
    roads: RoadArrays, cloud: ParticleCloud, segments: IntArray, limit: float, router: Router
) -> tuple[IntArray, FloatArray]:
    """Run one search per street of the particles; return `group` and `reach` of `ParticleStep`."""
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
            # Index C denotes the source street, reached again through a cycle.
            wanted[c] = streets.length_m.size if street == source[g] else street
            n_wanted += not router.wanted[wanted[c]]
            router.wanted[wanted[c]] = True
        touched = spread(streets, source[g], limit + farthest[g], n_wanted, router)
        for c in range(segments.size):
            router.wanted[wanted[c]] = False
            if work.done[wanted[c]]:
                reach[g, c] = work.dist[wanted[c]] + streets.start_m[segments[c]]
        clear(work, touched)
    return group, reach


@njit(cache=True, nogil=True)
def route_between(cloud: ParticleCloud, i: int, moved: ParticleCloud, j: int, reach: float) -> tuple[float, float]:
    """Return the route distance and the straight-line distance from particle i to particle j of the next cloud."""
    start, same = moved.position[j] - moved.along[j], cloud.street[i] == moved.street[j]
    d = route_distance(cloud.position[i], start, same, cloud.segment[i] == moved.segment[j], reach) + moved.along[j]
    return d, math.hypot(moved.place[j, 0] - cloud.place[i, 0], moved.place[j, 1] - cloud.place[i, 1])


@njit(cache=True, nogil=True)
def _options(
    roads: RoadArrays, cloud: ParticleCloud, segments: IntArray, group: IntArray, reach: FloatArray,
    relative: FloatArray, mass: FloatArray, pace: Pace, sigma: float,
) -> tuple[FloatArray, FloatArray]:  # fmt: skip
    """Return the proposal weights (C + 1, N), with zeros in the last row (no movement), and the transition densities.

    The densities are evaluated at the points nearest to the fix, without the distance limit: another part of the
    segment may be within the limit even if this point is beyond it.
    """
    n, n_options = cloud.segment.size, segments.size
    proposal, by = np.zeros((n_options + 1, n)), np.ones((n_options + 1, n))
    for c in range(n_options):
        s, flat = segments[c], relative[c, 0]
        if mass[c] <= 0.0:
            continue
        street, start, scale = roads.streets.street[s], roads.streets.start_m[s], roads.length[s] / flat
        x0, y0, east, north = roads.start[s, 0], roads.start[s, 1], roads.run[s, 0] / flat, roads.run[s, 1] / flat
        for i in range(n):
            own = cloud.segment[i] == s
            d = route_distance(cloud.position[i], start, cloud.street[i] == street, own, reach[group[i], c])
            if d > pace.limit:
                continue
            at, here = relative[c, 2], mass[c]
            if own:
                low = cloud.along[i] / scale
                at, here = max(at, low), _mass(relative[c, 1], relative[c, 3], low, flat, sigma)
            g = math.hypot(x0 + at * east - cloud.place[i, 0], y0 + at * north - cloud.place[i, 1])
            by[c, i] = density(d + at * scale, g, pace)
            proposal[c, i] = cloud.weight[i] * here * by[c, i]
    return proposal, by


@njit(cache=True, nogil=True)
def advance(
    roads: RoadArrays, cloud: ParticleCloud, segments: IntArray, fixes: FloatArray, dt: float, motion: MotionModel,
    router: Router, state: NDArray[np.uint64],
) -> tuple[ParticleCloud, ParticleStep]:  # fmt: skip
    """Move the particles to the next fix; the log evidence of the step is -inf if no particle can reach it.

    `segments` (C,) are the candidates near the next fix, `fixes` (2, 2) the projected positions of the current and the
    next fix, and `dt` > 0 the seconds between them.
    """
    n, n_options, sigma, to = cloud.segment.size, segments.size, motion.sigma, fixes[1]
    straight = math.hypot(fixes[1, 0] - fixes[0, 0], fixes[1, 1] - fixes[0, 1])
    relative, mass = project_fix(roads, segments, to, sigma)
    for detour in (motion.detour, np.inf):
        pace = pace_of(motion, dt, straight + detour)
        group, reach = _reach(roads, cloud, segments, pace.limit, router)
        proposal, by = _options(roads, cloud, segments, group, reach, relative, mass, pace, sigma)
        for i in range(n):
            emission = _emission(cloud.place[i], to, sigma, motion.farthest)
            proposal[n_options, i] = cloud.weight[i] * pace.stands * emission
        total = proposal.sum()
        if total > mass.max() * pace.scale * math.exp(-motion.deviation_rate * detour):
            break
    moved = empty_cloud(n)
    if not total > 0.0:
        return moved, ParticleStep(group, reach, pace, -np.inf)
    # The outer index is the candidate. With particles as the outer index, the weights could have the same period as
    # systematic resampling, and all particles could be assigned to one candidate.
    k, upto, offset, last = 0, proposal[0, 0], uniform(state), n * (n_options + 1) - 1
    for j in range(n):
        while upto < (j + offset) * total / n and k < last:
            k += 1
            upto += proposal[k // n, k % n]
        c, i = k // n, k % n
        moved.parent[j] = i
        if c == n_options:
            _set_position(roads, moved, j, cloud.segment[i], cloud.along[i])
            moved.option[j], moved.weight[j] = STANDS, 1.0
            continue
        s, flat = segments[c], relative[c, 0]
        low = cloud.along[i] * flat / roads.length[s] if s == cloud.segment[i] else 0.0
        _set_position(roads, moved, j, s, _draw_along(relative[c, 1], low, flat, sigma, state) * roads.length[s] / flat)
        moved.option[j] = c
        d, g = route_between(cloud, i, moved, j, reach[group[i], c])
        moved.weight[j] = density(d, g, pace) / by[c, i] if d <= pace.limit and by[c, i] > 0.0 else 0.0
    mean = moved.weight.mean()
    if not mean > 0.0:
        return moved, ParticleStep(group, reach, pace, -np.inf)
    moved.weight[:] /= n * mean
    return moved, ParticleStep(group, reach, pace, math.log(total) + math.log(mean))


class FilterEffort(NamedTuple):
    """Particle and path counts, and limits of the search."""

    n_particles: int
    n_paths: int  # number of paths sampled by backward simulation
    radius: float  # search radius around a fix, in metres
    max_radius: float  # maximum radius after doubling
    most: int  # maximum number of candidates
    patience: int  # maximum number of consecutive unreachable fixes before the path is cut


class FilterProblem(NamedTuple):
    """A road network with its grid index, the model, the limits, and a router."""

    roads: RoadArrays
    grid: GridIndex
    motion: MotionModel
    effort: FilterEffort
    router: Router


@njit(cache=True, nogil=True)
def _ancestors(cloud: ParticleCloud, step: ParticleStep, moved: ParticleCloud, j: int, upto: FloatArray) -> None:
    """Write the cumulative sums (N,) of the unnormalised P(ancestor = i given particle j of the next cloud)."""
    total = 0.0
    stood, parent = moved.option[j] == STANDS, moved.parent[j]
    for i in range(upto.size):
        same = cloud.segment[i] == moved.segment[j]
        if stood:
            # A particle that did not move has its ancestor at the same point.
            if same and cloud.along[i] == cloud.along[parent]:
                total += cloud.weight[i]
        elif not same or cloud.along[i] <= moved.along[j]:
            d, g = route_between(cloud, i, moved, j, step.reach[step.group[i], moved.option[j]])
            if d <= step.pace.limit:
                total += cloud.weight[i] * density(d, g, step.pace)
        upto[i] = total


@njit(cache=True, nogil=True)
def _pick(upto: FloatArray, at: float) -> int:
    """Return the first index whose cumulative weight exceeds `at` times the total."""
    return min(np.searchsorted(upto, at * upto[-1], side="right"), upto.size - 1)


@njit(cache=True, nogil=True)
def draw_paths(
    clouds: list[ParticleCloud], steps: list[ParticleStep], n_paths: int, state: NDArray[np.uint64]
) -> IntArray:
    """Sample M paths (T, M) of particles from the smoothing distribution by backward simulation.

    Tracing the ancestors of the last cloud instead would give few distinct paths (path degeneracy).
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
                    # If all weights underflow, use the parent, which has positive probability.
                    chosen[t, other] = _pick(upto, uniform(state)) if upto[n - 1] > 0.0 else clouds[t + 1].parent[j]
    return chosen


@njit(cache=True, nogil=True)
def decide(clouds: list[ParticleCloud], chosen: IntArray) -> tuple[IntArray, FloatArray]:
    """Return segments (T,) and positions in metres (T,) that maximise the expected number of correctly matched fixes.

    This expected number is the sum over fixes of the fraction of sampled paths on the segment. Only transitions that
    occur in a sampled path are allowed.
    """
    n_fixes, n_paths = chosen.shape
    state, share = np.empty((n_fixes, n_paths), dtype=np.int64), np.zeros((n_fixes, n_paths))
    score, back = np.zeros((n_fixes, n_paths)), np.full((n_fixes, n_paths), -1)
    for t in range(n_fixes):
        for m in range(n_paths):
            k = 0
            while clouds[t].segment[chosen[t, k]] != clouds[t].segment[chosen[t, m]]:
                k += 1
            # A segment is represented by the first sampled path on it.
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
        # The averages of two fixes are over different paths, so the position may decrease along a segment.
        if segment[t] == segment[t - 1]:
            along[t] = max(along[t], along[t - 1])
    return segment, along


@njit(cache=True, nogil=True)
def _near(index: GridIndex, fix: FloatArray, effort: FilterEffort) -> IntArray:
    return near_growing(index, fix[0], fix[1], effort.radius, effort.max_radius, effort.most, False)[0].astype(np.int64)


@njit(cache=True, nogil=True)
def filter_fixes(
    problem: FilterProblem, fixes: FloatArray, times: FloatArray, state: NDArray[np.uint64]
) -> tuple[list[ParticleCloud], list[ParticleStep], list[int], list[float], int]:
    """Run the filter from the first fix until all particles are lost or the trip ends.

    Returns the particles, transitions, indices and log evidence of the used fixes (no particles if no road is near the
    first fix), and the fix from which to restart.
    """
    roads, grid, motion, effort, router = problem
    near_by = _near(grid, fixes[0], effort)
    cloud, evidence = begin(roads, near_by, fixes[0], effort.n_particles, motion.sigma, state)
    no_step = ParticleStep(near_by, np.empty((0, 0)), pace_of(motion, 1.0, 1.0), 0.0)
    # Numba infers the type of a list from its first element.
    clouds, steps, used, log_evidence = [cloud], [no_step], [0], [evidence]
    steps.pop()
    if evidence == -np.inf:
        clouds.pop()
        return clouds, steps, used, log_evidence, 1
    missed, following = 0, times.size
    for t in range(1, times.size):
        near_by, dt = _near(grid, fixes[t], effort), times[t] - times[used[-1]]
        if dt <= 0.0:
            continue
        if near_by.size > 0:
            ends = np.stack((fixes[used[-1]], fixes[t]))
            cloud, step = advance(roads, clouds[-1], near_by, ends, dt, motion, router, state)
            if step.log_evidence > -np.inf:
                clouds.append(cloud)
                steps.append(step)
                used.append(t)
                log_evidence.append(step.log_evidence)
                missed, following = 0, times.size
                continue
        missed, following = missed + 1, min(following, t)
        if missed > effort.patience:
            return clouds, steps, used, log_evidence, following
    return clouds, steps, used, log_evidence, times.size


class MatchedStretch(NamedTuple):
    """Match of the k fixes of one contiguous path."""

    used: IntArray  # (k,): indices of the fixes
    segment: IntArray  # (k,): matched segments
    along: FloatArray  # (k,): metres from the start of the segment
    drawn: IntArray  # (k, M): segments of the sampled paths
    log_evidence: FloatArray  # (k,): log-density of each fix given the previous fixes
    following: int  # fix from which to restart


@njit(cache=True, nogil=True)
def follow(problem: FilterProblem, fixes: FloatArray, times: FloatArray, state: NDArray[np.uint64]) -> MatchedStretch:
    """Match the fixes of a trip from the first fix until all particles are lost."""
    clouds, steps, used, log_evidence, following = filter_fixes(problem, fixes, times, state)
    n_paths = problem.effort.n_paths
    if len(clouds) == 0:
        none, drawn = np.empty(0, dtype=np.int64), np.empty((0, n_paths), dtype=np.int64)
        return MatchedStretch(none, none, np.empty(0), drawn, np.empty(0), following)
    chosen = draw_paths(clouds, steps, n_paths, state)
    drawn = np.empty(chosen.shape, dtype=np.int64)
    for k in range(len(clouds)):
        drawn[k] = clouds[k].segment[chosen[k]]
    segment, along = decide(clouds, chosen)
    return MatchedStretch(np.array(used), segment, along, drawn, np.array(log_evidence), following)


@njit(cache=True, nogil=True)
def match_trip(
    problem: FilterProblem, fixes: FloatArray, times: FloatArray, state: NDArray[np.uint64]
) -> tuple[IntArray, FloatArray, IntArray, IntArray]:
    """Match all fixes of one trip.

    Returns the segment (T,) of each fix, the metres (T,) from the start of the segment, the index (T,) of the piece,
    and the segments (T, M) of the sampled paths. The integers are -1 for skipped fixes.
    """
    segment, piece = np.full(times.size, -1), np.full(times.size, -1)
    along, drawn = np.zeros(times.size), np.full((times.size, problem.effort.n_paths), -1)
    at, n_pieces = 0, 0
    while at < times.size:
        stretch = follow(problem, fixes[at:], times[at:], state)
        for k in range(stretch.used.size):
            t = at + stretch.used[k]
            segment[t], along[t], piece[t], drawn[t] = stretch.segment[k], stretch.along[k], n_pieces, stretch.drawn[k]
        n_pieces += stretch.used.size > 0
        at += stretch.following
    return segment, along, piece, drawn


@njit(cache=True, nogil=True)
def join(roads: RoadArrays, segment: IntArray, piece: IntArray, router: Router) -> tuple[IntArray, IntArray, IntArray]:
    """Connect the segments (T,) of each piece by shortest paths.

    Returns the concatenated paths (n,), their offsets (pieces + 1,), and the position (T,) of each fix in the paths.
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
                cycle = streets.length_m.size if source == goal else goal
                for street in streets_between(streets, source, cycle, np.inf, router):
                    path.extend([np.int64(s) for s in streets.items[first : streets.ptr[source + 1]]])
                    source, first = street, streets.ptr[street]
            path.extend([np.int64(s) for s in streets.items[first:last]])
        before, upto[t] = t, len(path) - 1
    ptr.append(len(path))
    return np.array(path, dtype=np.int64), np.array(ptr, dtype=np.int64), upto


@njit(cache=True, nogil=True)
def confidence_of(path: IntArray, upto: IntArray, piece: IntArray, drawn: IntArray) -> FloatArray:
    """Return, for each fix (T,), the fraction of sampled paths that are on the path between its adjacent fixes."""
    on = np.flatnonzero(piece >= 0)
    fraction = np.zeros(piece.size)
    for k in range(on.size):
        t = on[k]
        low = upto[on[k - 1]] if k > 0 and piece[on[k - 1]] == piece[t] else upto[t]
        high = upto[on[k + 1]] if k + 1 < on.size and piece[on[k + 1]] == piece[t] else upto[t]
        for m in range(drawn.shape[1]):
            for i in range(low, high + 1):
                if path[i] == drawn[t, m]:
                    fraction[t] += 1.0 / drawn.shape[1]
                    break
    return fraction
