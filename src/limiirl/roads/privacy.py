"""Privacy tools that trim trip ends, mask zones and suppress small counts. They do not make data anonymous.

`docs/responsible_use.md` states what each tool protects against and what it does not.
"""

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from limiirl._typing import BoolArray, FloatArray, IntArray
from limiirl._validation import as_generator, check_count, check_positive
from limiirl.demos import Demonstrations, as_readonly
from limiirl.errors import InvalidDemos, InvalidParameter, InvalidTrips, LimiirlWarning
from limiirl.roads.geometry import distance_m, line_distance_m, offsets_m
from limiirl.roads.network import RoadNetwork
from limiirl.roads.traces.cleaning import CleanedTrips, clean
from limiirl.roads.traces.trips import Trips

Seed = int | np.random.Generator | None


def trim_ends(trips: Trips | CleanedTrips, metres: float = 300.0, *, jitter: float = 0.5, seed: Seed = None) -> Trips:
    """Remove the fixes near the start and the end of every trip.

    The radius around each end is drawn uniformly from `metres` to ``(1 + jitter) * metres``; with a constant radius,
    the remaining ends would lie on a circle around the hidden location. A trip that returns to one of its ends is cut
    there, even if it does so between two fixes, and its longest part is kept. Clean the trips first: if the first fix
    is an outlier, the true start is not trimmed. Trips without remaining fixes are dropped; `notes` contains their
    number and the number of removed fixes.

    Parameters
    ----------
    trips : Trips or CleanedTrips
    metres : float
        Minimum straight-line distance of the remaining fixes from the original ends.
    jitter : float
        Relative width of the distribution of the radius.
    seed : int or Generator, optional
        For tests only. Do not set it for published data, since the seed reveals the radii.

    Examples
    --------
    >>> from limiirl.roads import Trips
    >>> trip = Trips.from_lists([41.15 + 0.001 * np.arange(20)], [np.full(20, -8.63)])  # a fix every 111 m
    >>> trim_ends(trip, 300.0, jitter=0.0)[0][0].round(3).tolist()[:2]
    [41.153, 41.154]
    """
    trips = _as_trips(trips)
    radius = _draw_radii(metres, jitter, seed, len(trips))
    if len(trips) == 0:
        return trips
    trip = trips.trip_of_fix
    beyond, crossed = np.ones(trips.n_fixes, dtype=np.bool_), np.zeros(trips.n_fixes, dtype=np.bool_)
    for end, metres_of_trip in zip((trips.offsets[:-1], trips.offsets[1:] - 1), radius, strict=True):
        lat, lon, most = trips.lat[end][trip], trips.lon[end][trip], metres_of_trip[trip]
        beyond &= distance_m(trips.lat, trips.lon, lat, lon) > most
        xy = offsets_m(lat, lon, trips.lat, trips.lon)
        crossed[1:] |= line_distance_m(xy[:-1], xy[1:]) <= most[1:]
    keep = _longest_runs(beyond, crossed, trip)
    return _cut_pieces(trips, keep, crossed, "trimmed from the ends")


def mask_zones(trips: Trips | CleanedTrips, zones: Sequence[tuple[float, ...]]) -> Trips:
    """Drop the fixes inside circular zones, and cut trips that cross a zone, even if they do so between two fixes.

    The pieces of a trip keep the id of the trip, with distinct numbers in `Trips.pieces`. They are marked in
    `Trips.cut`, so that the boundary of a zone is not mistaken for the start or end of a trip. `notes` contains the
    number of removed fixes.

    Parameters
    ----------
    trips : Trips or CleanedTrips
    zones : list of (lat, lon, radius in metres)
        Do not centre a zone on a home, since its boundary is visible in the data. Shift it by a secret offset.

    Examples
    --------
    >>> from limiirl.roads import Trips
    >>> trip = Trips.from_lists([41.15 + 0.001 * np.arange(9)], [np.full(9, -8.63)])  # a fix every 111 m
    >>> [lat.round(3).tolist() for lat, _, _ in mask_zones(trip, [(41.154, -8.63, 150.0)])]
    [[41.15, 41.151, 41.152], [41.156, 41.157, 41.158]]
    """
    trips = _as_trips(trips)
    inside, crossed = np.zeros((2, trips.n_fixes), dtype=np.bool_)
    for i, zone in enumerate(zones):
        lat, lon, radius = _parse_zone(zone, i)
        xy = offsets_m(lat, lon, trips.lat, trips.lon)
        within, passed = np.hypot(*xy.T) <= radius, line_distance_m(xy[:-1], xy[1:]) <= radius
        if not (within.any() or passed.any()):
            warnings.warn(
                f"No trip enters zones[{i}], {radius:g} m around latitude {lat:g}, longitude {lon:g}. Check the "
                "coordinates; latitude comes first.",
                LimiirlWarning,
                stacklevel=2,
            )
        inside |= within
        crossed[1:] |= passed
    return _cut_pieces(trips, ~inside, crossed, "masked", rims=True)


def _as_trips(given: Trips | CleanedTrips) -> Trips:
    trips = given.trips if isinstance(given, CleanedTrips) else given
    if not isinstance(trips, Trips):
        raise InvalidTrips.of("trips", type(given).__name__, "must be Trips or CleanedTrips")
    return trips


def _parse_zone(given: object, i: int) -> tuple[float, float, float]:
    try:
        lat, lon, radius = (float(part) for part in given)  # type: ignore[attr-defined]
    except (TypeError, ValueError):
        lat = lon = radius = np.nan
    if not (abs(lat) <= 90.0 and abs(lon) <= 180.0 and radius > 0.0):
        raise InvalidParameter.of(
            "zones", given, "must be (lat, lon, radius in metres) with a positive radius", index=i
        )
    return lat, lon, radius


def trim_path_ends(
    demos: Demonstrations, lengths_m: ArrayLike, metres: float = 300.0, *, jitter: float = 0.5, seed: Seed = None
) -> Demonstrations:
    """Drop segments from both ends of every matched path.

    The distance that is dropped at each end is random, as in `trim_ends`. A path that returns to a dropped segment is
    cut there, and its longest part is kept. Returns in the opposite direction or on a nearby street are not detected;
    to remove them, apply `trim_ends` to the trips before matching. Models that are fitted to the result describe starts
    and destinations at the trimmed ends. Paths without remaining segments are dropped.

    Parameters
    ----------
    demos : Demonstrations
        Paths of road segments.
    lengths_m : (S,)
        Length of each segment, as in `RoadNetwork.length_m`.
    metres, jitter, seed
        As in `trim_ends`; `metres` is a driven distance.

    Examples
    --------
    >>> demos = Demonstrations.from_lists([[0, 1, 2, 3, 4], [1, 2]])
    >>> trim_path_ends(demos, [100.0] * 5, 150.0, jitter=0.0).states.tolist()
    [2]
    """
    lengths = np.asarray(lengths_m, dtype=np.float64)
    if demos.n_steps and (lengths.ndim != 1 or lengths.size <= demos.states.max()):
        rule = f"must have one entry per segment (at least {demos.states.max() + 1})"
        raise InvalidParameter.of("lengths_m", lengths.shape, rule)
    radius = _draw_radii(metres, jitter, seed, len(demos))
    demo = np.repeat(np.arange(len(demos)), demos.lengths)
    end_m = np.cumsum(lengths[demos.states])
    zero = np.concatenate([[0.0], end_m])
    driven = zero[:-1] - zero[demos.offsets[:-1]][demo]  # from the start of the path to the segment
    remaining = zero[demos.offsets[1:]][demo] - end_m
    # One millimetre covers rounding errors of the sums.
    away = (driven >= radius[0][demo] - 1e-3) & (remaining >= radius[1][demo] - 1e-3)
    key = demo * lengths.size + demos.states
    keep = _longest_runs(away & ~np.isin(key, key[~away]), np.zeros(demo.size, dtype=np.bool_), demo)
    counts = np.bincount(demo[keep], minlength=len(demos))
    left = counts > 0
    offsets = np.concatenate([[0], np.cumsum(counts[left])])
    actions = None
    if demos.actions is not None:
        actions = demos.actions[keep].copy()
        actions[offsets[1:] - 1] = -1  # the last state has no action
    given = {name: getattr(demos, name) for name in ("groups", "labels", "ids")}
    per_demo = {name: None if values is None else values[left] for name, values in given.items()}
    return Demonstrations(demos.states[keep], offsets, actions, **per_demo)


def _draw_radii(metres: float, jitter: float, seed: Seed, n: int) -> FloatArray:
    """Return random radii (2, n) around the start and the end of each trip."""
    check_positive(metres, "metres")
    check_positive(jitter, "jitter", zero=True)
    return metres * (1.0 + jitter * as_generator(seed).random((2, n)))


def _longest_runs(inside: BoolArray, cut: BoolArray, trip: IntArray) -> BoolArray:
    """Return a mask (n,) of the longest run of `inside` per trip, the first if tied; a new run starts at each `cut`."""
    if not inside.size:
        return inside
    begins = np.ones(inside.size, dtype=np.bool_)
    begins[1:] = (np.diff(trip) > 0) | (inside[1:] != inside[:-1]) | cut[1:]
    run = np.cumsum(begins) - 1
    size = np.where(inside[begins], np.bincount(run), 0)
    of_trip = trip[begins]
    order = np.lexsort((-size, of_trip))
    best = order[np.concatenate([[True], np.diff(of_trip[order]) > 0])]
    return np.asarray(inside & np.isin(run, best))


def _cut_pieces(trips: Trips, keep: BoolArray, cut: BoolArray, word: str, *, rims: bool = False) -> Trips:
    """Return the fixes in `keep`, with trips cut at removed fixes and before each fix in `cut`.

    The notes contain the number of removed fixes. With `rims`, pieces without the first or the last fix of their trip
    have piece numbers above 0.
    """
    trip, fix = trips.trip_of_fix, np.flatnonzero(keep)
    begins = np.ones(fix.size, dtype=np.bool_)
    begins[1:] = (np.diff(fix) > 1) | (np.diff(trip[fix]) > 0) | cut[fix[1:]]
    starts = np.flatnonzero(begins)
    offsets = np.append(starts, fix.size)
    source = trip[fix[starts]]
    pieces = trips.pieces[source]
    if rims:
        ends = np.stack([fix[starts], fix[offsets[1:] - 1]])
        pieces = np.maximum(pieces, np.any(ends != [trips.offsets[source], trips.offsets[source + 1] - 1], axis=0))
    gone = len(trips) - np.unique(source).size
    notes = Counter(trips.notes)
    notes.update({f"fixes {word}": trips.n_fixes - fix.size, f"trips without remaining fixes, {word}": gone})
    return Trips(
        lat=trips.lat[fix],
        lon=trips.lon[fix],
        time_s=trips.time_s[fix],
        offsets=offsets,
        ids=trips.ids[source],
        groups=None if trips.groups is None else trips.groups[source],
        skipped=trips.skipped,
        notes=+notes,
        pieces=pieces,
    )


def suppress_small(counts: ArrayLike, least: int = 5, *, total_axes: tuple[int, ...] = ()) -> FloatArray:
    """Replace positive counts below `least` with NaN.

    If totals are published, a single hidden count can be computed by subtraction. Therefore the next smallest counts of
    a row or column are also hidden, until at least two are hidden and their sum is at least `least`. To suppress small
    totals, call this function on them separately.

    Parameters
    ----------
    counts : array
        Counts of persons; counts of trips do not protect a person with many trips.
    least : int
        Smallest count that is not hidden.
    total_axes : tuple of int
        Axes of `counts` whose sums are published: 0 for column totals, 1 for row totals.

    Examples
    --------
    >>> suppress_small([12, 3, 0, 7])
    array([12., nan,  0.,  7.])
    >>> suppress_small([12, 3, 0, 7], total_axes=(0,))  # the published total of 22 would reveal a single hidden 3
    array([12., nan,  0., nan])
    """
    table = np.array(counts, dtype=np.float64)
    wrong = ~(np.isfinite(table) & (table >= 0.0) & (table == np.floor(table)))
    if wrong.any():
        raise InvalidParameter.of("counts", float(table[wrong][0]), "must be nonnegative integers")
    check_count(least, "least")
    if any(not 0 <= axis < table.ndim for axis in total_axes):
        raise InvalidParameter.of("total_axes", total_axes, f"must be axes of a table with {table.ndim} dimension(s)")
    hidden = (table > 0) & (table < least)
    before = -1
    while before != hidden.sum():
        before = int(hidden.sum())
        for axis in total_axes:
            _hide_more(np.moveaxis(table, axis, -1), np.moveaxis(hidden, axis, -1), least)
    table[hidden] = np.nan
    return table


def merge_small(labels: ArrayLike, least: int = 5, *, into: str = "others") -> NDArray[np.str_]:
    """Return labels as strings, with all groups of fewer than `least` members merged into one group.

    While the merged group has fewer than `least` members, the next smallest group is merged with it.

    Examples
    --------
    >>> merge_small(["a", "a", "a", "b", "c", "a"], least=2).tolist()
    ['a', 'a', 'a', 'others', 'others', 'a']
    """
    check_count(least, "least")
    names, inverse, counts = np.unique(np.asarray(labels).astype(np.str_), return_inverse=True, return_counts=True)
    if into in names:
        raise InvalidParameter.of("into", into, "must differ from the existing labels")
    order = np.argsort(counts, kind="stable")
    small = counts < least
    for k in order:
        if small.any() and counts[small].sum() < least:
            small[k] = True
    return np.where(small[inverse], into, names[inverse]).astype(np.str_)


@dataclass(frozen=True, eq=False)
class RouteMask:
    """Mask of the road segments that too few drivers passed for publication.

    Attributes
    ----------
    drivers : (S,) int64
        Number of drivers who passed each segment.
    least : int
        Smallest number of drivers of a segment that is not hidden.

    Examples
    --------
    >>> demos = Demonstrations.from_lists([[0, 1], [1, 2], [1, 1]], groups=["ann", "bob", "bob"])
    >>> mask = RouteMask.from_demos(demos, n_segments=4, least=2)
    >>> mask.drivers.tolist(), mask.hidden.tolist()
    ([1, 2, 1, 0], [True, False, True, False])
    >>> mask.apply([5.0, 6.0, 7.0, 0.0])
    array([nan,  6., nan,  0.])
    """

    drivers: IntArray
    least: int

    def __post_init__(self) -> None:
        check_count(self.least, "least")
        object.__setattr__(self, "drivers", as_readonly(np.asarray(self.drivers, dtype=np.int64)))

    @classmethod
    def from_demos(cls, demos: Demonstrations, n_segments: int, least: int = 5) -> RouteMask:
        """Count the drivers (`Demonstrations.groups`) who passed each segment."""
        if demos.groups is None:
            raise InvalidDemos(
                "demos must have groups (drivers); counts of trips do not protect a driver with many trips. Pass "
                "demos.replace(groups=...).",
                parameter="demos",
            )
        _check_segments(demos, n_segments)
        return cls(count_drivers_by_segment(demos, demos.states, n_segments), least)

    @property
    def hidden(self) -> BoolArray:
        """Mask (S,) of the segments with at least one driver, but fewer than `least`."""
        return np.asarray((self.drivers > 0) & (self.drivers < self.least))

    def apply(self, values: ArrayLike) -> FloatArray:
        """Return values per segment (S, ...), with NaN for hidden segments."""
        table = np.array(values, dtype=np.float64)
        if table.shape[:1] != self.drivers.shape:
            rule = f"must have one row per segment ({self.drivers.size})"
            raise InvalidParameter.of("values", table.shape, rule)
        table[self.hidden] = np.nan
        return table

    def select_paths(self, demos: Demonstrations) -> BoolArray:
        """Return a mask (N,) of the paths without a hidden segment."""
        _check_segments(demos, self.drivers.size)
        seen = np.concatenate([[0], np.cumsum(self.hidden[demos.states])])
        return np.asarray(np.diff(seen[demos.offsets]) == 0)


def _check_segments(demos: Demonstrations, n_segments: int) -> None:
    if demos.n_steps and demos.states.max() >= n_segments:
        largest = int(demos.states.max())
        message = f"demos contain segment {largest}, but the network has {n_segments} segments. Check the network."
        raise InvalidDemos(message, parameter="demos", value=largest)


def _hide_more(table: FloatArray, hidden: BoolArray, least: int) -> None:
    """Hide more counts along the last axis, until the sums do not reveal hidden counts; see `suppress_small`."""
    for line in np.ndindex(table.shape[:-1]):
        counts, gone = table[line], hidden[line]
        while gone.any() and (np.count_nonzero(gone) < 2 or counts[gone].sum() < least):
            rest = np.flatnonzero(~gone & (counts > 0))
            if rest.size == 0:
                break  # the sum is small, or all positive counts are hidden
            gone[rest[np.argmin(counts[rest])]] = True


def index_drivers(demos: Demonstrations) -> IntArray:
    """Return the index (N,) of the driver of each trip; if drivers are unknown, every trip has its own driver.

    Examples
    --------
    >>> index_drivers(Demonstrations.from_lists([[0], [1], [2]], groups=["bob", "ann", "bob"]))
    array([1, 0, 1])
    """
    groups = np.arange(len(demos)) if demos.groups is None else demos.groups
    return np.asarray(np.unique(groups, return_inverse=True)[1])


def count_drivers_by_segment(demos: Demonstrations, passed: IntArray, n_segments: int) -> IntArray:
    """Count the drivers (S,) of each segment; `passed` (n,) is the segment of each entry of `demos.states`."""
    pairs = np.unique(np.repeat(index_drivers(demos), demos.lengths) * np.int64(n_segments) + passed)
    return np.bincount(pairs % n_segments, minlength=n_segments)


def count_drivers_by_street(demos: Demonstrations, opposite: IntArray) -> IntArray:
    """Count the drivers (S,) of each segment and its `RoadNetwork.opposite` (S,) together.

    Examples
    --------
    >>> both = Demonstrations.from_lists([[0], [1], [2]], groups=["ann", "bob", "bob"])
    >>> count_drivers_by_street(both, np.array([1, 0, -1]))
    array([2, 2, 1])
    """
    own = np.arange(opposite.size)
    street = np.where(opposite >= 0, np.minimum(opposite, own), own)
    return np.asarray(count_drivers_by_segment(demos, street[demos.states], opposite.size)[street])


_CUT_TRIP = "cut before its ends could be trimmed"


def trim_cleaned(cleaned: CleanedTrips, network: RoadNetwork, metres: float) -> CleanedTrips:
    """Trim the ends of cleaned trips with `trim_ends`, clean the result, and count every dropped trip and fix.

    Trips that were cut by cleaning are dropped, since their original ends are unknown. `InvalidTrips` is raised if no
    trip is left.
    """
    given = cleaned.trips
    entire = replace(given[cleaned.whole], skipped=given.skipped, notes=given.notes)
    trimmed = trim_ends(entire, metres)
    if len(trimmed) == 0:
        message = f"No trip is left after trimming {metres:g} m at both ends. Trim less."
        raise InvalidTrips(message, parameter="metres", value=metres)
    # Cleaning keeps only the first and the last fix of a stop; the time between them is not a gap.
    again = clean(trimmed, network, max_gap_s=math.inf)
    cut = {
        _CUT_TRIP: int(np.unique(cleaned.source[~cleaned.whole]).size),
        "no fixes left after trimming": len(entire) - len(trimmed),
    }
    ends = {
        f"in a trip {_CUT_TRIP}": given.n_fixes - entire.n_fixes,
        "at the ends, trimmed": entire.n_fixes - trimmed.n_fixes,
    }
    lost = Counter(cleaned.lost) + Counter(again.lost) + Counter(cut)
    dropped = Counter(cleaned.dropped) + Counter(again.dropped) + Counter(ends)
    return replace(again, lost=lost, dropped=dropped, n_trips=cleaned.n_trips)
