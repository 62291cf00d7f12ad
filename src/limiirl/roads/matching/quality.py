"""Quality of matched trips, and their agreement with known paths."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from limiirl._typing import FloatArray, IntArray
from limiirl._validation import check_positive
from limiirl.demos import Demonstrations
from limiirl.errors import InvalidDemos, InvalidParameter, InvalidTrips
from limiirl.roads.kernels.hmm import path_progress
from limiirl.roads.kernels.spatial_index import length_near
from limiirl.roads.matching.matches import UNMATCHED, Matches
from limiirl.roads.network import RoadNetwork
from limiirl.roads.traces.trips import Trips

if TYPE_CHECKING:
    from limiirl.roads.traces.cleaning import CleanedTrips


LEVELS = (0.05, 0.25, 0.5, 0.75, 0.95, 0.99)
"""Levels of the quantiles."""
NEAR_M = (10.0, 25.0, 50.0)
"""Distances in metres within which the fraction of fixes is reported."""
LONG_S, LONG_M = 60.0, 500.0
"""An interval between two fixes with a longer time or route distance is a gap."""


@dataclass(frozen=True)
class Quality:
    """Statistics of matched trips; quantiles have the levels `LEVELS`, and are NaN if there are no data."""

    n_trips: int  # recorded trips, including trips dropped in cleaning if `CleanedTrips` are passed
    n_pieces_given: int  # trips, or pieces after cleaning, that were passed to `match`
    n_matched: int  # recorded trips with at least one matched piece
    n_whole: int  # recorded trips that were matched completely
    n_paths: int  # matched pieces, M
    dropped: Mapping[str, int]  # fixes dropped in cleaning, by reason
    reasons: Mapping[str, int]  # unmatched parts, by reason
    lost: Mapping[str, int]  # trips that were unreadable or dropped in cleaning, by reason
    unread: Mapping[str, int]  # rows and files that could not be read, by reason
    n_fixes: int  # fixes that were passed to `match`
    n_fixes_matched: int
    distance_m: FloatArray  # (6,): quantiles of the distance between matched fixes and their segments
    within: Mapping[float, float]  # fraction of the matched fixes within each distance of `NEAR_M`
    gap_s: FloatArray  # (6,): quantiles of the time between consecutive matched fixes
    gap_m: FloatArray  # (6,): quantiles of the route distance between consecutive matched fixes
    n_gaps: int  # intervals of more than `LONG_S` seconds or `LONG_M` metres
    fraction_in_gaps: float  # fraction of the route length in gaps, where the path is interpolated
    length_ratio: FloatArray  # (M,): route length divided by the length of the polyline of the fixes, or NaN
    confidence: FloatArray  # (M,)
    worst: IntArray  # paths with the lowest confidence
    typical: IntArray  # paths with the confidence nearest the median

    @property
    def fraction_whole(self) -> float:
        """Fraction of the recorded trips that were matched completely."""
        return self.n_whole / self.n_trips if self.n_trips else float("nan")

    @property
    def fraction_matched(self) -> float:
        """Fraction of the fixes that were matched."""
        return self.n_fixes_matched / self.n_fixes if self.n_fixes else float("nan")

    def __repr__(self) -> str:
        sure, ratio = (_quantiles(values)[2] for values in (self.confidence, self.length_ratio))
        near = ", ".join(f"{100 * share:.1f} % within {metres:g} m" for metres, share in self.within.items())
        whole = f"{self.n_whole:,} of {self.n_trips:,} trips matched completely ({100 * self.fraction_whole:.1f} %)"
        fixes = f"{self.n_fixes_matched:,} of {self.n_fixes:,} matched, median distance {self.distance_m[2]:.1f} m"
        lines = (
            f"Quality: {whole}",
            f"  paths      {self.n_paths:,} of {self.n_matched:,} trips, median confidence {sure:.3f}",
            f"  fixes      {fixes}",
            f"             {near}",
            f"  length     {ratio:.3f} of the polyline of the fixes (median)",
            f"  gaps       {self.n_gaps:,} with {100 * self.fraction_in_gaps:.1f} % of the length",
        )
        return "\n".join(lines)


def measure_quality(
    network: RoadNetwork, trips: Trips | CleanedTrips, matches: Matches, *, examples: int = 6
) -> Quality:
    """Return statistics of matched trips.

    Parameters
    ----------
    network : RoadNetwork
    trips : Trips or CleanedTrips
        Trips that were passed to `match`.
    matches : Matches
        Result of `match`.
    examples : int
        Number of example paths, for each of `worst` and `typical`.

    Examples
    --------
    >>> from limiirl.roads import City, match, measure_quality, simulate_gps
    >>> city = City(radius_km=0.8)
    >>> trips = simulate_gps(city.network, city.drive(2, 2).demos, noise_m=1.0)
    >>> quality = measure_quality(city.network, trips, match(city.network, trips))
    >>> quality.n_whole, quality.fraction_matched, bool(quality.distance_m[2] < 2.0)
    (4, 1.0, True)
    """
    matches.on(network)
    given = trips if isinstance(trips, Trips) else trips.trips
    if matches.fix_offsets.size != given.offsets.size or np.any(matches.fix_offsets != given.offsets):
        message = "trips must be the trips that were matched; the numbers of fixes differ."
        raise InvalidTrips(message, parameter="trips")
    source = np.arange(len(given)) if isinstance(trips, Trips) else trips.source
    on = matches.fix_segment != UNMATCHED
    distance = matches.fix_distance_m[on]
    seconds, metres, ratio = _stretches(network, given, matches)
    long = (seconds > LONG_S) | (metres > LONG_M)
    middle = np.median(matches.confidence) if len(matches) else 0.0
    lost, unread = (Counter(skip.reason for skip in given.skipped if skip.trip == whole) for whole in (True, False))
    unreadable = lost.total()
    if not isinstance(trips, Trips):
        lost.update(trips.lost)
    return Quality(
        n_trips=(len(given) if isinstance(trips, Trips) else trips.n_trips) + unreadable,
        n_pieces_given=len(given),
        n_matched=np.unique(source[matches.trip]).size,
        n_whole=matches.n_whole,
        n_paths=len(matches),
        dropped={} if isinstance(trips, Trips) else dict(trips.dropped),
        reasons=dict(matches.reasons),
        lost=dict(lost),
        unread=dict(unread),
        n_fixes=int(on.size),
        n_fixes_matched=int(np.count_nonzero(on)),
        distance_m=_quantiles(distance),
        within={near: float(np.mean(distance <= near)) if distance.size else float("nan") for near in NEAR_M},
        gap_s=_quantiles(seconds),
        gap_m=_quantiles(metres),
        n_gaps=int(np.count_nonzero(long)),
        fraction_in_gaps=float(metres[long].sum() / metres.sum()) if metres.sum() > 0.0 else float("nan"),
        length_ratio=ratio,
        confidence=np.array(matches.confidence),
        worst=np.argsort(matches.confidence, kind="stable")[:examples],
        typical=np.argsort(np.abs(matches.confidence - middle), kind="stable")[:examples],
    )


def _stretches(network: RoadNetwork, trips: Trips, matches: Matches) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the times and route distances between consecutive matched fixes, and the length ratios (M,)."""
    xy = network.plane.xy(trips.lat, trips.lon)
    seconds, metres, ratio = [np.empty(0)], [np.empty(0)], np.full(len(matches), np.nan)
    for i in range(len(matches)):
        rows = slice(matches.span[i, 0], matches.span[i, 1] + 1)
        segment, along = matches.fix_segment[rows], matches.fix_along_m[rows]
        on = segment != UNMATCHED
        driven = np.diff(path_progress(matches.path(i), network.length_m, segment, along)[on])
        straight = np.hypot(*np.diff(xy[rows][on], axis=0).T).sum()
        seconds.append(np.diff(trips.time_s[rows][on]))
        metres.append(driven)
        if straight > 0.0:
            ratio[i] = driven.sum() / straight
    return np.concatenate(seconds), np.concatenate(metres), ratio


def _quantiles(values: FloatArray) -> FloatArray:
    finite = values[np.isfinite(values)]
    return np.quantile(finite, LEVELS) if finite.size else np.full(len(LEVELS), np.nan)


@dataclass(frozen=True)
class Agreement:
    """Agreement between two sets of N polylines: lengths that lie near the other polyline."""

    length_m: FloatArray  # (N, 2): length of the first and the second polyline of each trip
    near_m: FloatArray  # (N, 2): length of the first polyline near the second, and of the second near the first
    metres: float  # distance within which points are near

    @property
    def shares(self) -> FloatArray:
        """Fraction (N, 2) of the length of each polyline that lies near the other; NaN if the length is 0."""
        with np.errstate(invalid="ignore"):
            return np.asarray(np.where(self.length_m > 0.0, self.near_m / self.length_m, np.nan))

    @property
    def total(self) -> tuple[float, float]:
        """Fraction of the total length of the first and of the second set near the other; NaN if the length is 0."""
        with np.errstate(invalid="ignore"):
            first, second = self.near_m.sum(axis=0) / self.length_m.sum(axis=0)
        return float(first), float(second)

    @property
    def worst(self) -> NDArray[np.int64]:
        """Trips (N,) in ascending order of the minimum of their two fractions; NaN is last."""
        return np.argsort(self.shares.min(axis=1), kind="stable")

    def __len__(self) -> int:
        return len(self.length_m)


def measure_agreement(
    network: RoadNetwork, ours: Sequence[ArrayLike], theirs: Sequence[ArrayLike], metres: float = 15.0
) -> Agreement:
    """Measure the length of each polyline that lies within some distance of another polyline.

    The result is exact: the points near a line segment form a convex set, so that each pair of line segments
    contributes one interval. The direction of travel and the order of the points are ignored.

    Parameters
    ----------
    network : RoadNetwork
        Network that defines the planar projection.
    ours, theirs : N arrays (k, 2)
        Latitudes and longitudes of polylines, such as results of `Matches.geometry`.
    metres : float
        Points within this distance of the other polyline are near it.

    Examples
    --------
    >>> from limiirl.roads import RoadNetwork
    >>> network = RoadNetwork.from_segments([41.15, 41.16], [-8.63, -8.63], [0, 1], [1, 0])
    >>> street = [(41.15, -8.63), (41.16, -8.63)]
    >>> half = [(41.15, -8.63), (41.155, -8.63)]
    >>> agreement = measure_agreement(network, [street], [half], metres=10.0)
    >>> agreement.length_m.round(1), agreement.shares.round(3)
    (array([[1110.6,  555.3]]), array([[0.509, 1.   ]]))
    """
    if len(ours) != len(theirs):
        raise InvalidTrips.of("theirs", len(theirs), f"must have as many polylines as ours ({len(ours)})")
    check_positive(metres, "metres")
    length, near = np.zeros((len(ours), 2)), np.zeros((len(ours), 2))
    for i in range(len(ours)):
        first, second = _project(network, ours[i], "ours", i), _project(network, theirs[i], "theirs", i)
        length[i, 0], near[i, 0] = length_near(first, second, metres)
        length[i, 1], near[i, 1] = length_near(second, first, metres)
    return Agreement(length, near, float(metres))


def _project(network: RoadNetwork, line: ArrayLike, name: str, i: int) -> FloatArray:
    corners = np.asarray(line, dtype=np.float64)
    if corners.ndim != 2 or corners.shape[1] != 2 or not len(corners) or not np.all(np.isfinite(corners)):
        message = f"{name}[{i}] must be a nonempty array (k, 2) of finite latitudes and longitudes. Omit the trip."
        raise InvalidTrips(message, parameter=name, index=i)
    return np.ascontiguousarray(network.plane.xy(corners[:, 0], corners[:, 1]))


@dataclass(frozen=True)
class PathRecovery:
    """Recovery of N true paths by map matching: driven, correctly matched and wrongly matched lengths.

    A segment that was driven twice must be matched twice; the order is ignored. Unmatched trips are included.
    """

    driven_m: FloatArray  # (N,): length of the true path, including the whole first and last segment
    recovered_m: FloatArray  # (N,): length that was driven and matched
    added_m: FloatArray  # (N,): length that was matched but not driven

    @property
    def share(self) -> float:
        """Recovered length as a fraction of the driven length."""
        return float(self.recovered_m.sum() / self.driven_m.sum())

    @property
    def added(self) -> float:
        """Length that was matched but not driven, as a fraction of the driven length."""
        return float(self.added_m.sum() / self.driven_m.sum())

    def __repr__(self) -> str:
        km = self.driven_m.sum() / 1000.0
        return f"PathRecovery: {100 * self.share:.2f} % of {km:,.1f} km recovered, {100 * self.added:.2f} % added"


def path_recovery(
    network: RoadNetwork, truth: Demonstrations, matches: Matches, source: ArrayLike | None = None
) -> PathRecovery:
    """Compare matched paths with the true paths.

    Parameters
    ----------
    network : RoadNetwork
    truth : Demonstrations
        N true paths.
    matches : Matches
        Matches of recordings of these paths.
    source : (M,) int, optional
        Index of the true path of each matched trip, such as `CleanedTrips.source`; by default 0, 1, 2, ...

    Examples
    --------
    >>> from limiirl.roads import City, match, simulate_gps
    >>> city = City(radius_km=0.8)
    >>> demos = city.drive(2, 2).demos
    >>> trips = simulate_gps(city.network, demos, noise_m=0.5, step_s=5.0)
    >>> recovery = path_recovery(city.network, demos, match(city.network, trips))
    >>> recovery.share > 0.999, recovery.added < 0.001
    (True, True)
    """
    segments, n_trips = matches.on(network), matches.fix_offsets.size - 1
    if truth.n_steps and truth.states.max() >= network.n_segments:
        rule = f"must have segments below {network.n_segments}, the number of segments of the network"
        raise InvalidDemos.of("truth", int(truth.states.max()), rule)
    of_trip = np.arange(n_trips) if source is None else np.asarray(source)
    integers = of_trip.shape == (n_trips,) and (of_trip.dtype.kind in "iu" or not n_trips)
    if not integers or np.any((of_trip < 0) | (of_trip >= len(truth))):
        rule = f"source must be {n_trips} integers (one per matched trip) from 0 to {len(truth) - 1}"
        message = f"{rule}; got {of_trip.dtype} of shape {of_trip.shape}. Pass CleanedTrips.source for cleaned trips."
        raise InvalidParameter(message, parameter="source")
    of_trip, n = of_trip.astype(np.int64), network.n_segments
    driven = np.repeat(np.arange(len(truth)), truth.lengths) * n + truth.states
    matched = np.repeat(of_trip[matches.trip], matches.lengths) * n + segments
    keys, column = np.unique(np.concatenate([driven, matched]), return_inverse=True)
    n_driven, n_matched = (np.bincount(part, minlength=keys.size) for part in np.split(column, [driven.size]))
    length, trip = network.length_m[keys % n], keys // n
    shared = np.minimum(n_driven, n_matched)

    def total(count: NDArray[np.int64]) -> FloatArray:
        return np.bincount(trip, weights=count * length, minlength=len(truth)).astype(np.float64)

    return PathRecovery(total(n_driven), total(shared), total(n_matched - shared))
