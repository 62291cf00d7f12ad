"""Map matching with the particle filter of the paper (model of Duffield and Singh 2020)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from limiirl._progress import Progress
from limiirl._typing import FloatArray, IntArray
from limiirl.roads.kernels.particle_filter import (
    FilterEffort,
    FilterProblem,
    MotionModel,
    RoadArrays,
    confidence_of,
    join,
    match_trip,
)
from limiirl.roads.kernels.routing import Router
from limiirl.roads.kernels.spatial_index import GridIndex
from limiirl.roads.matching.candidates import MatcherSettings, build_streets, loss_reasons, match_each
from limiirl.roads.matching.matches import MatchedPiece, TripMatch
from limiirl.roads.network import RoadNetwork
from limiirl.roads.traces.trips import Trips


@dataclass(frozen=True)
class ParticleSettings(MatcherSettings):
    """Settings of the particle filter; the defaults are those of Duffield and Singh (2020) for taxis in Porto.

    Parameters
    ----------
    n_particles : int
        Number of particles per fix.
    n_paths : int
        Number of paths sampled by backward simulation, which determine the match and its confidence.
    sigma_m : float
        Standard deviation of each coordinate of a fix. `match` estimates it by default.
    deviation_rate : float
        Rate, per metre, of the exponential density of the difference between route and straight-line distance.
    speed_rate : float
        Rate, in seconds per metre, of the exponential density of the speed.
    stay_rate : float
        Rate, per second, of the exponential stopping time: P(no movement for t seconds) = exp(-stay_rate t).
    max_speed_ms, slack_m : float
        Maximum speed in metres per second, and a constant added to the reachable distance.
    detour_m : float
        Routes that exceed the straight-line distance by more than this are searched only if all others are unlikely.
    radius_m, max_radius_m : float, optional
        Search radius around a fix, by default 4 sigma and at least 50 m. While there are no candidates, it is doubled
        up to the maximum, by default twice the radius.
    most : int
        Maximum number of candidate segments per fix.
    patience : int
        Maximum number of consecutive unreachable fixes that are skipped before the trip is cut.
    end_m : float
        The first or last segment is dropped if the distance driven on it is less than this and less than half of its
        length.
    seed : int
        Seed of the random numbers; trip i uses the seed sequence (seed, i).
    """

    n_particles: int = 100
    n_paths: int = 40
    sigma_m: float = 5.23
    deviation_rate: float = 0.052
    speed_rate: float = 0.068
    stay_rate: float = 0.133
    max_speed_ms: float = 35.0
    slack_m: float = 100.0
    detour_m: float = 300.0
    radius_m: float | None = None
    max_radius_m: float | None = None
    most: int = 64
    patience: int = 2
    end_m: float = 5.0
    seed: int = 0

    whole: ClassVar = ("n_particles", "n_paths", "most", "patience", "seed")
    from_zero: ClassVar = ("deviation_rate", "slack_m", "detour_m", "patience", "end_m", "seed")

    def motion(self) -> MotionModel:
        """Return the motion model for the kernels."""
        rates = (self.sigma_m, self.deviation_rate, self.speed_rate, self.stay_rate)
        return MotionModel(*rates, self.max_speed_ms, self.slack_m, self.detour_m, self.radii().max_radius_m)

    def effort(self) -> FilterEffort:
        """Return the particle and path counts and the search limits for the kernels."""
        return FilterEffort(self.n_particles, self.n_paths, *self.radii(), self.most, self.patience)


def build_road_arrays(network: RoadNetwork) -> RoadArrays:
    """Return the arrays of a network for the kernels."""
    start, end = network.node_xy[network.tail], network.node_xy[network.head]
    return RoadArrays(
        build_streets(network), network.length_m, np.ascontiguousarray(start), np.ascontiguousarray(end - start)
    )


def match_particles(
    network: RoadNetwork, index: GridIndex, trips: Trips, settings: ParticleSettings, *, threads: int | None = None,
    progress: Progress | None = None,
) -> list[TripMatch]:  # fmt: skip
    """Match each trip independently with its own seed; see `limiirl.roads.match`."""
    roads, xy = build_road_arrays(network), network.plane.xy(trips.lat, trips.lon)
    motion, effort = settings.motion(), settings.effort()

    def match_one(i: int, router: Router) -> TripMatch:
        rows = slice(trips.offsets[i], trips.offsets[i + 1])
        state = np.random.SeedSequence([int(settings.seed), i]).generate_state(1, np.uint64)
        fixes = np.ascontiguousarray(xy[rows])
        problem = FilterProblem(roads, index, motion, effort, router)
        result = match_trip(problem, fixes, trips.time_s[rows], state)
        return _make_trip_match(roads, fixes, result, float(settings.end_m), router)

    return match_each(match_one, len(trips), roads.streets, threads, progress)


def _make_trip_match(
    roads: RoadArrays, fixes: FloatArray, result: tuple[IntArray, FloatArray, IntArray, IntArray], end_m: float,
    router: Router,
) -> TripMatch:  # fmt: skip
    """Return the pieces of one trip with their ends trimmed, and the position of each fix."""
    segment, along, piece, drawn = result
    sizes = np.bincount(piece[piece >= 0])
    kept = np.flatnonzero(sizes > 1)
    single = sizes.size - kept.size
    # Pieces of one fix are dropped; the others are renumbered.
    number = np.append(np.where(sizes > 1, np.cumsum(sizes > 1) - 1, -1), -1)
    piece = number[piece]
    segment = np.where(piece >= 0, segment, -1)
    paths, ptr, upto = join(roads, segment, piece, router)
    agreement, pieces = confidence_of(paths, upto, piece, drawn), []
    for k in range(kept.size):
        path, on = paths[ptr[k] : ptr[k + 1]], np.flatnonzero(piece == k)
        low, high = _trim(roads.length[path[[0, -1]]], along[on[[0, -1]]], path.size, end_m)
        for cut, end, fraction in ((path[:low], path[low], 0.0), (path[high:], path[high - 1], 1.0)):
            # Fixes on a trimmed segment are moved to the start or end of the path.
            moved = on[np.isin(segment[on], cut) & ~np.isin(segment[on], path[low:high])]
            segment[moved], along[moved] = end, fraction * roads.length[end]
        # Skipped fixes have confidence 0.
        confidence = min(1.0, float(agreement[on].sum() / (on[-1] - on[0] + 1)))
        pieces.append(MatchedPiece(int(on[0]), int(on[-1]), path[low:high].copy(), confidence))
    away = np.where(segment >= 0, _distance(roads, segment, fixes), np.nan)
    inside = np.zeros(segment.size, dtype=np.bool_)
    for each in pieces:
        inside[each.first : each.last + 1] = True
    skipped, outside = (int(np.count_nonzero((segment < 0) & where)) for where in (inside, ~inside))
    reasons = loss_reasons(segment.size, len(pieces), single=single, away=outside - single, skipped=skipped)
    return TripMatch(tuple(pieces), segment, np.where(segment >= 0, along, np.nan), away, reasons)


def _trim(length: FloatArray, along: FloatArray, n: int, end_m: float) -> tuple[int, int]:
    """Return the range of n segments without a first or last segment that was barely driven; see `end_m`.

    `length` (2,) is the length of the first and the last segment, and `along` (2,) is the position of the first and the
    last fix on them.
    """
    first, last = np.array([length[0] - along[0], along[1]]) < np.minimum(end_m, 0.5 * length)
    low = int(first and n > 1)
    return low, n - int(last and n - low > 1)


def _distance(roads: RoadArrays, segment: IntArray, fixes: FloatArray) -> FloatArray:
    off, run = fixes - roads.start[segment], roads.run[segment]
    square = np.maximum((run**2).sum(axis=1), np.finfo(np.float64).tiny)
    fraction = np.clip((off * run).sum(axis=1) / square, 0.0, 1.0)
    return np.asarray(np.hypot(*(off - fraction[:, None] * run).T))
