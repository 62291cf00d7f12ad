"""Quality of matched trips: matched fractions, distances, gaps, confidences, and example paths."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from limiirl._typing import FloatArray, IntArray
from limiirl.errors import InvalidTrips
from limiirl.roads.kernels.hmm import path_progress
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
