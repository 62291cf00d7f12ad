"""Matching by the paper's particle filter: many guesses of where the car is, which drive along legal turns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from limiirl._progress import Progress
from limiirl._typing import FloatArray, IntArray
from limiirl.roads.kernels.particle_filter import MotionModel, RoadArrays
from limiirl.roads.kernels.particle_smoothing import FilterEffort, confidence_of, join, match_trip
from limiirl.roads.kernels.routing import Router
from limiirl.roads.kernels.spatial_index import GridIndex
from limiirl.roads.matching.candidates import (
    Radii,
    build_streets,
    check_numbers,
    loss_reasons,
    match_each,
    search_radii,
)
from limiirl.roads.matching.matches import MatchedPiece, TripMatch
from limiirl.roads.network import RoadNetwork
from limiirl.roads.traces.trips import Trips

_WHOLE = ("n_particles", "n_paths", "most", "patience", "seed")
_FROM_ZERO = ("deviation_rate", "slack_m", "detour_m", "patience", "end_m", "seed")


@dataclass(frozen=True)
class ParticleSettings:
    """The numbers of the filter; those of the model are Duffield and Singh's (2020), fitted to Porto's taxis.

    Parameters
    ----------
    n_particles : int
        Guesses at each fix.
    n_paths : int
        Paths drawn backwards from them, which decide and say how sure they are.
    sigma_m : float
        Standard deviation of a fix, east and north; `match` estimates it where it is not given, and the number here is
        for too few fixes.
    deviation_rate : float
        A metre by which the way is longer than the straight line is so much less likely.
    speed_rate : float
        The same of a metre a second.
    stay_rate : float
        The chance to stand still for t seconds is exp(-stay_rate t).
    max_speed_ms, slack_m : float
        Metres a second that are possible, and metres on top of it for the noise of both fixes.
    detour_m : float
        Ways longer than the line between the fixes by more are looked for only where the others are very unlikely.
    radius_m : float, optional
        How far from a fix roads are looked for: 4 sigmas, but at least 50 m, by default.
    max_radius_m : float, optional
        Where there are none the radius doubles up to this: twice the radius by default.
    most : int
        How many segments nearest to a fix are looked at.
    patience : int
        How many fixes in a row that no particle can reach, or with no road near, are skipped before the trip is cut.
    end_m : float
        A first or last segment of which less was driven, and less than half, is left out.
    seed : int
        Trip i of those given draws from (seed, i), whatever the threads.

    Examples
    --------
    >>> ParticleSettings().sigma_m, ParticleSettings(n_particles=500).n_particles
    (5.23, 500)
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

    def __post_init__(self) -> None:
        """Check the numbers, and make them plain ones."""
        check_numbers(self, whole=_WHOLE, from_zero=_FROM_ZERO, optional=("radius_m", "max_radius_m"))

    def motion(self) -> MotionModel:
        """Return the model as the kernel takes it."""
        rates = (self.sigma_m, self.deviation_rate, self.speed_rate, self.stay_rate)
        return MotionModel(*rates, self.max_speed_ms, self.slack_m, self.detour_m, self.radii().max_radius_m)

    def effort(self) -> FilterEffort:
        """Return how much to try as the kernel takes it."""
        return FilterEffort(self.n_particles, self.n_paths, *self.radii(), self.most, self.patience)

    def radii(self) -> Radii:
        """Return both radii, as they follow from sigma where they are not given."""
        return search_radii(self.sigma_m, self.radius_m, self.max_radius_m)


def build_road_arrays(network: RoadNetwork) -> RoadArrays:
    """Return a network as the filter's kernels take it.

    Examples
    --------
    >>> street = RoadNetwork.from_segments([41.15, 41.151], [-8.63, -8.63], [0], [1])
    >>> build_road_arrays(street).run.round(1)
    array([[  0. , 111.1]])
    """
    start, end = network.node_xy[network.tail], network.node_xy[network.head]
    return RoadArrays(
        build_streets(network), network.length_m, np.ascontiguousarray(start), np.ascontiguousarray(end - start)
    )


def match_particles(
    network: RoadNetwork,
    index: GridIndex,
    trips: Trips,
    settings: ParticleSettings,
    *,
    threads: int | None = None,
    progress: Progress | None = None,
) -> list[TripMatch]:
    """Match every trip on its own; the seed decides, not the threads.

    Parameters
    ----------
    network : RoadNetwork
    index : GridIndex
        From `limiirl.roads.matching.candidates.build_grid`.
    trips : Trips
    settings : ParticleSettings
    threads : int, optional
        As many as numba uses by default.
    progress : callable, optional
        Called as ``progress(done, total, message)`` after each trip.

    Examples
    --------
    >>> from limiirl.roads import RoadNetwork, Trips
    >>> from limiirl.roads.matching import candidates
    >>> street = RoadNetwork.from_segments([41.15, 41.151, 41.152], [-8.63] * 3, [0, 1, 2, 1], [1, 2, 1, 0])
    >>> trips = Trips.from_lists([[41.1502, 41.1512, 41.1518]], [[-8.62999, -8.63002, -8.63001]])
    >>> (found,) = match_particles(street, candidates.build_grid(street), trips, ParticleSettings())
    >>> found.pieces[0].segments, found.segment
    (array([0, 1]), array([0, 1, 1]))
    """
    roads, xy = build_road_arrays(network), network.plane.xy(trips.lat, trips.lon)
    motion, effort = settings.motion(), settings.effort()

    def one(i: int, desk: Router) -> TripMatch:
        rows = slice(trips.offsets[i], trips.offsets[i + 1])
        state = np.random.SeedSequence([int(settings.seed), i]).generate_state(1, np.uint64)
        fixes = np.ascontiguousarray(xy[rows])
        found = match_trip(roads, index, fixes, trips.time_s[rows], motion, effort, desk, state)
        return _match(roads, fixes, found, float(settings.end_m), desk)

    return match_each(one, len(trips), roads.streets, threads, progress)


def _match(
    roads: RoadArrays,
    fixes: FloatArray,
    found: tuple[IntArray, FloatArray, IntArray, IntArray],
    end_m: float,
    desk: Router,
) -> TripMatch:
    """Return the pieces of one trip, with the ends trimmed, and the place of each fix."""
    segment, along, piece, drawn = found
    sizes = np.bincount(piece[piece >= 0])
    kept = np.flatnonzero(sizes > 1)
    single = sizes.size - kept.size
    # Pieces of one fix are no paths; the others are numbered anew.
    number = np.append(np.where(sizes > 1, np.cumsum(sizes > 1) - 1, -1), -1)
    piece = number[piece]
    segment = np.where(piece >= 0, segment, -1)
    paths, ptr, upto = join(roads, segment, piece, desk)
    sure, pieces = confidence_of(paths, upto, piece, drawn), []
    for k in range(kept.size):
        path, on = paths[ptr[k] : ptr[k + 1]], np.flatnonzero(piece == k)
        low, high = _trimmed(roads.length[path[[0, -1]]], along[on[[0, -1]]], path.size, end_m)
        for cut, stays, share in ((path[:low], path[low], 0.0), (path[high:], path[high - 1], 1.0)):
            # Fixes on what was trimmed lie where the path begins or ends.
            moved = on[np.isin(segment[on], cut) & ~np.isin(segment[on], path[low:high])]
            segment[moved], along[moved] = stays, share * roads.length[stays]
        # A fix that was skipped counts as one that is nowhere.
        confidence = min(1.0, float(sure[on].sum() / (on[-1] - on[0] + 1)))
        pieces.append(MatchedPiece(int(on[0]), int(on[-1]), path[low:high].copy(), confidence))
    away = np.where(segment >= 0, _distance(roads, segment, fixes), np.nan)
    inside = np.zeros(segment.size, dtype=np.bool_)
    for each in pieces:
        inside[each.first : each.last + 1] = True
    skipped, outside = (int(np.count_nonzero((segment < 0) & where)) for where in (inside, ~inside))
    reasons = loss_reasons(segment.size, len(pieces), single=single, away=outside - single, skipped=skipped)
    return TripMatch(tuple(pieces), segment, np.where(segment >= 0, along, np.nan), away, reasons)


def _trimmed(length: FloatArray, along: FloatArray, n: int, end_m: float) -> tuple[int, int]:
    """Return which of n segments stay: a sliver at an end is as likely noise as a turn that somebody took.

    `length` and `along` are of the first and the last segment, and of the first and the last fix on them.
    """
    first, last = np.array([length[0] - along[0], along[1]]) < np.minimum(end_m, 0.5 * length)
    low = int(first and n > 1)
    return low, n - int(last and n - low > 1)


def _distance(roads: RoadArrays, segment: IntArray, fixes: FloatArray) -> FloatArray:
    """Return how far (T,) each fix is from its segment, on the flat map."""
    off, run = fixes - roads.start[segment], roads.run[segment]
    square = np.maximum((run**2).sum(axis=1), np.finfo(np.float64).tiny)
    share = np.clip((off * run).sum(axis=1) / square, 0.0, 1.0)
    return np.asarray(np.hypot(*(off - share[:, None] * run).T))
