"""`clean`: removal of implausible fixes, and division of trips into pieces."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from limiirl._typing import BoolArray, FloatArray, IntArray
from limiirl.demos import as_readonly
from limiirl.errors import InvalidParameter, InvalidTrips
from limiirl.roads.kernels import gps as kernel
from limiirl.roads.traces.trips import Trips

if TYPE_CHECKING:
    from limiirl.roads.network import RoadNetwork


REASONS = (
    "kept",
    "latitude and longitude swapped",
    "same time as the previous fix",
    "outlier: impossible speed from or to its neighbours",
    "outside the network",
    "standing still, between the first and the last fix of a stop",
    "in a piece with too few fixes",
    "in a piece that is too short",
)
"""Outcomes of cleaning for a fix; `CleanedTrips.fate` contains indices into this tuple."""
CUTS = ("not cut", "a gap in time", "an impossible jump", "fixes outside the network", "a long stop")
"""Reasons for a cut before a fix."""


@dataclass(frozen=True, eq=False, repr=False)
class CleanedTrips:
    """Pieces of trips, with the outcome for every fix.

    Attributes
    ----------
    trips : Trips
        M pieces, with the id and the driver of their trip, numbered by `Trips.pieces`.
    source : (M,) int64
        Index of the trip of each piece.
    fix : (m,) int64
        Index of each kept fix among the n input fixes.
    whole : (M,) bool
        True if a piece contains the first and the last fix of a trip that was not cut.
    fate : (n,) int8
        Index into `REASONS` for each input fix; 0 means "kept".
    dropped : dict
        Number of dropped fixes, by reason.
    cuts : dict
        Number of cuts, by reason.
    lost : dict
        Number of trips without a remaining piece, by the most frequent reason for dropping their fixes.
    n_trips : int
        Number of input trips.

    Examples
    --------
    >>> from limiirl.roads import Trips, clean
    >>> lat = [41.15, 41.152, 41.30, 41.156, 41.158, 41.160]  # the third is 16 km off
    >>> cleaned = clean(Trips.from_lists([lat], [[-8.63] * 6]))
    >>> cleaned
    CleanedTrips: 1 piece of 1 trip, 1 whole; 5 of 6 fixes kept
      dropped   1 fix: outlier: impossible speed from or to its neighbours
    >>> cleaned.fix.tolist()
    [0, 1, 3, 4, 5]
    """

    trips: Trips
    source: IntArray
    fix: IntArray
    whole: BoolArray
    fate: NDArray[np.int8]
    dropped: Mapping[str, int]
    cuts: Mapping[str, int]
    lost: Mapping[str, int]
    n_trips: int

    def __post_init__(self) -> None:
        for name in ("source", "fix", "whole", "fate"):
            object.__setattr__(self, name, as_readonly(np.asarray(getattr(self, name))))
        for name in ("dropped", "cuts", "lost"):
            object.__setattr__(self, name, MappingProxyType(dict(getattr(self, name))))

    def __len__(self) -> int:
        return len(self.trips)

    def __repr__(self) -> str:
        pieces, n = len(self.trips), self.n_trips
        head = f"CleanedTrips: {pieces:,} piece{'s' * (pieces != 1)} of {n:,} trip{'s' * (n != 1)}"
        kept = f"{self.fix.size:,} of {self.fate.size:,} fixes kept"
        lines = [f"{head}, {np.count_nonzero(self.whole):,} whole; {kept}"]
        for word, counts, one, many in (
            ("dropped", self.dropped, "fix", "fixes"),
            ("cut", self.cuts, "time", "times"),
            ("lost", self.lost, "trip", "trips"),
        ):
            lines += [f"  {word:<9} {count:,} {one if count == 1 else many}: {why}" for why, count in counts.items()]
        return "\n".join(lines)


def clean(  # noqa: PLR0913 (trips and limits with defaults)
    trips: Trips,
    network: RoadNetwork | None = None,
    *,
    max_gap_s: float = 120.0,
    max_speed_ms: float = 45.0,
    min_fixes: int = 5,
    min_length_m: float = 200.0,
    stop_radius_m: float = 15.0,
    split_stops_s: float | None = None,
    max_outliers: int = 5,
    bridge_jumps: bool = False,
    slack_m: float = 30.0,
    margin_m: float = 200.0,
) -> CleanedTrips:
    """Drop impossible fixes, merge stops, and cut trips at gaps.

    The steps are: (1) keep the first of simultaneous fixes; (2) drop short excursions at an impossible speed; (3) cut
    trips at time gaps, at remaining jumps and outside the network; (4) keep the first and the last fix of each stop;
    (5) drop small pieces.

    Parameters
    ----------
    trips : Trips
    network : RoadNetwork, optional
        Fixes with a distance above `margin_m` from its bounding box are outside the network.
    max_gap_s : float
        Maximum time between fixes; trips are cut at longer gaps.
    max_speed_ms, slack_m : float
        Maximum speed in metres per second, and a tolerance in metres for the noise of both fixes.
    min_fixes, min_length_m
        Minimum number of fixes and minimum length of a piece.
    stop_radius_m : float
        Radius of a stop around its first fix; 0 merges only fixes at the same position.
    split_stops_s : float, optional
        Maximum duration of a stop; trips are cut at longer stops, as in Ziebart et al. (2008).
    max_outliers : int
        Maximum number of fixes in an excursion that is dropped; trips are cut at both ends of a longer excursion.
    bridge_jumps : bool
        Instead of cutting a trip at a jump, drop as few fixes as necessary to make the speed possible. Use it for files
        with missing fixes and without times per fix.
    margin_m : float
        See `network`.

    Returns
    -------
    CleanedTrips
        Pieces of trips, and counts of dropped fixes by reason.

    Examples
    --------
    >>> from limiirl.roads import Trips, clean
    >>> trip = Trips.from_lists([[41.15, 41.16]], [[-8.63, -8.63]])
    >>> dict(clean(trip).lost), len(clean(trip, min_fixes=2))
    ({'in a piece with too few fixes': 1}, 0)
    """
    # With fixed types, the kernel is compiled once.
    limits = kernel.CleaningLimits(
        max_gap_s=float(max_gap_s),
        max_speed_ms=float(max_speed_ms),
        slack_m=float(slack_m),
        max_outliers=float(max_outliers),
        stop_radius_m=float(stop_radius_m),
        split_stops_s=float("inf") if split_stops_s is None else float(split_stops_s),
        min_fixes=float(min_fixes),
        min_length_m=float(min_length_m),
        bridge_jumps=bool(bridge_jumps),
    )
    for name, value in (limits._asdict() | {"margin_m": margin_m}).items():
        if not value >= 0.0 or (value == 0.0 and name in ("max_gap_s", "max_speed_ms")):
            raise InvalidParameter.of(name, value, f"must be {'positive' if value == 0.0 else 'at least 0'}")
    fate, cut = np.zeros((2, trips.n_fixes), dtype=np.int8)
    outside = np.zeros(trips.n_fixes, dtype=np.bool_)
    if network is not None:
        swapped, outside = check_swapped(trips, network, margin_m)
        fate[np.repeat(swapped, trips.lengths)] = kernel.SWAPPED
    kernel.clean_fixes(trips.lat, trips.lon, trips.time_s, trips.offsets, outside, fate, cut, limits)
    return _collect_pieces(trips, fate, cut)


def check_swapped(trips: Trips, network: RoadNetwork, margin_m: float = 200.0) -> tuple[BoolArray, BoolArray]:
    """Return masks of trips (N,) with swapped coordinates and of fixes (n,) outside the network.

    A trip looks swapped if most of its fixes lie outside the network's bounding box, and inside after exchanging
    latitude and longitude. `InvalidTrips` is raised if most trips look swapped (parameter "trips"), or if all fixes are
    outside (parameter "network").
    """
    box = np.stack([network.node_xy.min(axis=0) - margin_m, network.node_xy.max(axis=0) + margin_m])

    def inside(lat: FloatArray, lon: FloatArray) -> BoolArray:
        xy = network.plane.xy(lat, lon)
        return np.asarray(np.all((xy >= box[0]) & (xy <= box[1]), axis=1))

    if len(trips) == 0:
        return np.zeros(0, dtype=np.bool_), np.zeros(0, dtype=np.bool_)
    as_given = inside(trips.lat, trips.lon)
    exchanged = inside(trips.lon, trips.lat)
    trip = trips.trip_of_fix
    half = 0.5 * trips.lengths
    given_in, exchanged_in = (np.bincount(trip[which], minlength=len(trips)) for which in (as_given, exchanged))
    swapped = (given_in < half) & (exchanged_in > half) & (exchanged_in > given_in)
    here = f"({np.median(trips.lat):.2f}, {np.median(trips.lon):.2f})"
    there = f"({network.centre[0]:.2f}, {network.centre[1]:.2f})"
    if np.count_nonzero(swapped) > 0.5 * len(trips):
        message = (
            f"Latitude and longitude look swapped in {np.count_nonzero(swapped):,} of {len(trips):,} trips: the trips "
            f"lie around {here}, the network around {there}. Read them with read_trips(..., swap=True)."
        )
        raise InvalidTrips(message, parameter="trips", value=int(np.count_nonzero(swapped)))
    if not as_given.any():
        message = (
            f"No fix lies within {margin_m:g} m of the network's bounding box: the trips lie around {here}, the "
            f"network around {there}. Check whether the map is of another place."
        )
        raise InvalidTrips(message, parameter="network", value=network.centre)
    return swapped, ~as_given


def _collect_pieces(trips: Trips, fate: NDArray[np.int8], cut: NDArray[np.int8]) -> CleanedTrips:
    fix = np.flatnonzero(fate == kernel.KEPT)
    source_of_fix = trips.trip_of_fix[fix]
    begins = np.concatenate([[True], np.diff(source_of_fix) > 0])[: fix.size] | (cut[fix] != kernel.NO_CUT)
    starts = np.flatnonzero(begins)
    offsets = np.append(starts, fix.size)
    source = source_of_fix[starts]
    groups = None if trips.groups is None else trips.groups[source]
    kept = trips.lat[fix], trips.lon[fix], trips.time_s[fix], offsets, trips.ids[source], groups
    pieces = Trips(*kept, skipped=trips.skipped, notes=trips.notes, pieces=trips.pieces[source])
    # Only the first of simultaneous last fixes is kept; the trip is still complete.
    timed = np.flatnonzero(fate != kernel.SAME_TIME)
    ends = timed[np.searchsorted(timed, trips.offsets[1:]) - 1] if timed.size else timed
    whole = (fix[offsets[:-1]] == trips.offsets[source]) & (fix[offsets[1:] - 1] == ends[source])
    whole &= ~trips.cut[source]
    counts = np.bincount(fate, minlength=len(REASONS))
    cuts = np.bincount(cut, minlength=len(CUTS))
    return CleanedTrips(
        trips=pieces,
        source=source,
        fix=fix,
        whole=whole,
        fate=fate,
        dropped={REASONS[k]: int(counts[k]) for k in range(1, len(REASONS)) if counts[k]},
        cuts={CUTS[k]: int(cuts[k]) for k in range(1, len(CUTS)) if cuts[k]},
        lost=_count_lost(trips, fate, source),
        n_trips=len(trips),
    )


def _count_lost(trips: Trips, fate: NDArray[np.int8], source: IntArray) -> dict[str, int]:
    """Count trips without a piece by the most frequent reason for dropping their fixes (the first if tied)."""
    gone = np.ones(len(trips), dtype=np.bool_)
    gone[source] = False
    mine = np.repeat(gone, trips.lengths)
    pairs = trips.trip_of_fix[mine] * len(REASONS) + fate[mine]
    table = np.bincount(pairs, minlength=len(trips) * len(REASONS)).reshape(len(trips), len(REASONS))
    counts = np.bincount(np.argmax(table[gone], axis=1), minlength=len(REASONS))
    return {REASONS[k]: int(counts[k]) for k in range(len(REASONS)) if counts[k]}
