"""How good a matching is, in numbers: what was matched, how near, how sure, and which trips to look at."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from limiirl._typing import FloatArray, IntArray
from limiirl.errors import InvalidTrips
from limiirl.roads.kernels.matched_path import path_progress
from limiirl.roads.matching.matches import UNMATCHED, Matches
from limiirl.roads.network import RoadNetwork
from limiirl.roads.traces.trips import Trips

if TYPE_CHECKING:
    from limiirl.roads.traces.cleaning import CleanedTrips


LEVELS = (0.05, 0.25, 0.5, 0.75, 0.95, 0.99)
"""Of the quantiles."""
NEAR_M = (10.0, 25.0, 50.0)
"""Distances of which the share of fixes within is told."""
LONG_S, LONG_M = 60.0, 500.0
"""A stretch between two fixes that takes longer, or is longer on the road, is a gap."""


@dataclass(frozen=True)
class Quality:
    """Numbers about matched trips; quantiles are at `LEVELS`, NaN where there is nothing to measure.

    Attributes
    ----------
    n_trips : int
        Recorded trips, before cleaning where that is known.
    n_pieces_given : int
        What the matcher was given: pieces after cleaning, or the trips themselves.
    n_matched, n_whole : int
        Recorded trips of which something was matched, and of which all was, end to end.
    n_paths : int
        Unbroken matched paths.
    dropped, reasons : dict
        Fixes dropped in cleaning, and what the matcher lost; counts by reason.
    lost : dict
        Trips that never came to the matcher, by reason: not read, or nothing left after cleaning.
    unread : dict
        What could not be read and is no trip of its own, by reason: rows of a fix each, or whole files.
    n_fixes, n_fixes_matched : int
        That the matcher was given, and that have a place on a road.
    distance_m : (6,)
        Quantiles of the distances of matched fixes from their roads.
    within : dict
        Share of matched fixes within so many metres.
    gap_s, gap_m : (6,)
        Quantiles of the time, and of the length routed, between neighbouring matched fixes of a path.
    n_gaps : int
        Stretches over `LONG_S` seconds or `LONG_M` metres.
    gap_share : float
        Share of the routed length that lies in them: what was driven there is the shortest way, not evidence.
    length_ratio : (M,)
        Routed length over that of the line through the fixes, path by path; NaN where the line has no length.
    confidence : (M,)
        Of paths.
    worst, typical : (at most 6,) int64
        Paths to look at: least sure first, and those nearest the median.
    """

    n_trips: int
    n_pieces_given: int
    n_matched: int
    n_whole: int
    n_paths: int
    dropped: Mapping[str, int]
    reasons: Mapping[str, int]
    lost: Mapping[str, int]
    unread: Mapping[str, int]
    n_fixes: int
    n_fixes_matched: int
    distance_m: FloatArray
    within: Mapping[float, float]
    gap_s: FloatArray
    gap_m: FloatArray
    n_gaps: int
    gap_share: float
    length_ratio: FloatArray
    confidence: FloatArray
    worst: IntArray
    typical: IntArray

    @property
    def share_whole(self) -> float:
        """Share of the recorded trips that were matched end to end."""
        return self.n_whole / self.n_trips if self.n_trips else float("nan")

    @property
    def share_fixes(self) -> float:
        """Share of the fixes given that were matched."""
        return self.n_fixes_matched / self.n_fixes if self.n_fixes else float("nan")

    def __repr__(self) -> str:
        sure, ratio = (_quantiles(values)[2] for values in (self.confidence, self.length_ratio))
        near = ", ".join(f"{100 * share:.1f} % within {metres:g} m" for metres, share in self.within.items())
        whole = f"{self.n_whole:,} of {self.n_trips:,} trips matched end to end ({100 * self.share_whole:.1f} %)"
        fixes = f"{self.n_fixes_matched:,} of {self.n_fixes:,} matched, median {self.distance_m[2]:.1f} m off"
        return "\n".join(
            [
                f"Quality: {whole}",
                f"  paths      {self.n_paths:,} of {self.n_matched:,} trips, median confidence {sure:.3f}",
                f"  fixes      {fixes}",
                f"             {near}",
                f"  length     {ratio:.3f} of the line through the fixes (median)",
                f"  gaps       {self.n_gaps:,} with {100 * self.gap_share:.1f} % of the length",
            ]
        )


def measure_quality(
    network: RoadNetwork, trips: Trips | CleanedTrips, matches: Matches, *, examples: int = 6
) -> Quality:
    """Measure a matching.

    Parameters
    ----------
    network : RoadNetwork
    trips : Trips or CleanedTrips
        What `match` was given.
    matches : Matches
        What it made of it.
    examples : int
        How many paths to name as worst and as typical.

    Examples
    --------
    >>> from limiirl.roads import City, match, simulate_gps
    >>> from limiirl.roads.matching.quality import measure_quality
    >>> city = City(radius_km=0.8)
    >>> trips = simulate_gps(city.network, city.drive(2, 2).demos, noise_m=1.0)
    >>> found = measure_quality(city.network, trips, match(city.network, trips))
    >>> found.n_whole, found.share_fixes, bool(found.distance_m[2] < 2.0)
    (4, 1.0, True)
    """
    matches.on(network)
    given = trips if isinstance(trips, Trips) else trips.trips
    if matches.fix_offsets.size != given.offsets.size or np.any(matches.fix_offsets != given.offsets):
        raise InvalidTrips(
            "These are not the trips that were matched: their numbers of fixes differ.", parameter="trips"
        )
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
        gap_share=float(metres[long].sum() / metres.sum()) if metres.sum() > 0.0 else float("nan"),
        length_ratio=ratio,
        confidence=np.array(matches.confidence),
        worst=np.argsort(matches.confidence, kind="stable")[:examples],
        typical=np.argsort(np.abs(matches.confidence - middle), kind="stable")[:examples],
    )


def _stretches(network: RoadNetwork, trips: Trips, matches: Matches) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return seconds and routed metres between neighbouring matched fixes, and the ratio (M,) of lengths."""
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
    known = values[np.isfinite(values)]
    return np.quantile(known, LEVELS) if known.size else np.full(len(LEVELS), np.nan)
