"""Privacy tools: trim trip ends, mask zones and suppress small counts. They do not make data anonymous.

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
    """Keep the longest part of every trip that stays away from both its ends.

    A trip that passes its own start or end again is cut there, also between two fixes. The straight-line distance of
    each end is drawn uniformly from `metres` to ``(1 + jitter) * metres``; with one distance for all trips, the
    remaining ends would lie on a circle around the hidden place. Clean the trips first: if the first fix is an outlier,
    the true start is not trimmed. Trips of which nothing is left are dropped; `notes` counts them and the removed
    fixes.

    Parameters
    ----------
    trips : Trips or CleanedTrips
    metres : float
        Minimum distance of the remaining fixes from the original ends.
    jitter : float
        Relative width of the random part of the distance.
    seed : int or Generator, optional
        For tests only. Leave it out for data that you publish: the seed reveals the distances.

    Examples
    --------
    >>> from limiirl.roads import Trips
    >>> trip = Trips.from_lists([41.15 + 0.001 * np.arange(20)], [np.full(20, -8.63)])  # a fix every 111 m
    >>> trim_ends(trip, 300.0, jitter=0.0)[0][0].round(3).tolist()[:2]
    [41.153, 41.154]
    """
    trips = _trips(trips)
    radius = _radii(metres, jitter, seed, len(trips))
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
    return _pieces(trips, keep, crossed, "trimmed from the ends")


def mask_zones(trips: Trips | CleanedTrips, zones: Sequence[tuple[float, ...]]) -> Trips:
    """Drop the fixes inside circular zones and cut the trips there, also where a trip crosses a zone between two fixes.

    Pieces keep the id of their trip and differ in `Trips.pieces`; `Trips.cut` marks them, so that a zone boundary is
    not mistaken for the start or end of a trip. `notes` counts what was removed.

    Parameters
    ----------
    trips : Trips or CleanedTrips
    zones : list of (lat, lon, radius in metres)
        Do not centre a zone on a home: its boundary shows in the data. Shift it by an amount that you do not publish.

    Examples
    --------
    >>> from limiirl.roads import Trips
    >>> trip = Trips.from_lists([41.15 + 0.001 * np.arange(9)], [np.full(9, -8.63)])  # a fix every 111 m
    >>> [lat.round(3).tolist() for lat, _, _ in mask_zones(trip, [(41.154, -8.63, 150.0)])]
    [[41.15, 41.151, 41.152], [41.156, 41.157, 41.158]]
    """
    trips = _trips(trips)
    inside, crossed = np.zeros((2, trips.n_fixes), dtype=np.bool_)
    for i, zone in enumerate(zones):
        lat, lon, radius = _zone(zone, i)
        xy = offsets_m(lat, lon, trips.lat, trips.lon)
        within, passed = np.hypot(*xy.T) <= radius, line_distance_m(xy[:-1], xy[1:]) <= radius
        if not (within.any() or passed.any()):
            warnings.warn(
                f"No trip enters zones[{i}], {radius:g} m around latitude {lat:g}, longitude {lon:g}. Check its "
                "position; latitude comes first.",
                LimiirlWarning,
                stacklevel=2,
            )
        inside |= within
        crossed[1:] |= passed
    return _pieces(trips, ~inside, crossed, "masked", rims=True)


def _trips(given: Trips | CleanedTrips) -> Trips:
    trips = given.trips if isinstance(given, CleanedTrips) else given
    if not isinstance(trips, Trips):
        raise InvalidTrips.of("trips", type(given).__name__, "must be Trips or CleanedTrips")
    return trips


def _zone(given: object, i: int) -> tuple[float, float, float]:
    try:
        lat, lon, radius = (float(part) for part in given)  # type: ignore[attr-defined]
    except (TypeError, ValueError):
        lat = lon = radius = np.nan
    if not (abs(lat) <= 90.0 and abs(lon) <= 180.0 and radius > 0.0):
        raise InvalidParameter.of("zones", given, "must be (lat, lon, radius in metres), radius above 0", index=i)
    return lat, lon, radius


def trim_path_ends(
    demos: Demonstrations, lengths_m: ArrayLike, metres: float = 300.0, *, jitter: float = 0.5, seed: Seed = None
) -> Demonstrations:
    """Drop segments from both ends of every matched path, over at least a distance drawn as in `trim_ends`.

    The distance is driven, not straight-line. A path that returns to a dropped segment is cut there, and its longest
    part is kept. The opposite direction of a street is another segment, and a return on nearby streets is not detected:
    `trim_ends` before matching detects both. Models of trip starts or destinations fitted afterwards learn the trimmed
    ends. Paths of which nothing is left are dropped.

    Parameters
    ----------
    demos : Demonstrations
        Paths of road segments.
    lengths_m : (S,)
        Length of each segment, as in `RoadNetwork.length_m`.
    metres, jitter, seed : see `trim_ends`

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
    radius = _radii(metres, jitter, seed, len(demos))
    demo = np.repeat(np.arange(len(demos)), demos.lengths)
    end_m = np.cumsum(lengths[demos.states])
    zero = np.concatenate([[0.0], end_m])
    driven = zero[:-1] - zero[demos.offsets[:-1]][demo]  # before the segment, from the start of its path
    ahead = zero[demos.offsets[1:]][demo] - end_m
    # Summing the same lengths in another order differs by rounding; allow one millimetre.
    away = (driven >= radius[0][demo] - 1e-3) & (ahead >= radius[1][demo] - 1e-3)
    place = demo * lengths.size + demos.states
    keep = _longest_runs(away & ~np.isin(place, place[~away]), np.zeros(demo.size, dtype=np.bool_), demo)
    counts = np.bincount(demo[keep], minlength=len(demos))
    left = counts > 0
    offsets = np.concatenate([[0], np.cumsum(counts[left])])
    actions = None
    if demos.actions is not None:
        actions = demos.actions[keep].copy()
        actions[offsets[1:] - 1] = -1  # the last state has none
    per_demo = [None if values is None else values[left] for values in (demos.groups, demos.labels, demos.ids)]
    return Demonstrations(demos.states[keep], offsets, actions, *per_demo)


def _radii(metres: float, jitter: float, seed: Seed, n: int) -> FloatArray:
    """Return one distance for each end of each trip (2, n)."""
    check_positive(metres, "metres")
    check_positive(jitter, "jitter", zero=True)
    return metres * (1.0 + jitter * as_generator(seed).random((2, n)))


def _longest_runs(inside: BoolArray, cut: BoolArray, trip: IntArray) -> BoolArray:
    """Mark (n,) the longest run of `inside` in each trip, the first of ties; a run also ends before each `cut` fix."""
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


def _pieces(trips: Trips, keep: BoolArray, cut: BoolArray, word: str, *, rims: bool = False) -> Trips:
    """Keep some fixes, cut trips at gaps and at `cut`, and count what was removed.

    With `rims`, a single piece that lacks its trip's first or last fix gets a number above 0 to mark it.
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
    notes.update({f"fixes {word}": trips.n_fixes - fix.size, f"trips of which nothing is left, {word}": gone})
    return Trips(
        trips.lat[fix],
        trips.lon[fix],
        trips.time_s[fix],
        offsets,
        trips.ids[source],
        None if trips.groups is None else trips.groups[source],
        trips.skipped,
        +notes,
        pieces,
    )


def suppress_small(counts: ArrayLike, least: int = 5, *, total_axes: tuple[int, ...] = ()) -> FloatArray:
    """Replace counts from 1 to below `least` by NaN.

    Zeros stay, since they disclose no one. Where totals are published as well, a single hidden count follows by
    subtraction, and two that sum to less than `least` are almost as revealing; then the next smallest count of that
    row or column is hidden too. Suppress small totals in a separate call.

    Parameters
    ----------
    counts : array
        Counts of people, not of trips, if people are to be protected.
    least : int
        The smallest count that is shown.
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
    """Return labels as strings, with all groups of fewer than `least` members merged into one.

    If the merged group still has fewer than `least` members, the next smallest group is added to it.

    Examples
    --------
    >>> merge_small(["a", "a", "a", "b", "c", "a"], least=2).tolist()
    ['a', 'a', 'a', 'others', 'others', 'a']
    """
    check_count(least, "least")
    names, inverse, counts = np.unique(np.asarray(labels).astype(np.str_), return_inverse=True, return_counts=True)
    if into in names:
        raise InvalidParameter.of("into", into, "must not be the name of an existing group")
    order = np.argsort(counts, kind="stable")
    small = counts < least
    for k in order:
        if small.any() and counts[small].sum() < least:
            small[k] = True
    return np.where(small[inverse], into, names[inverse]).astype(np.str_)


@dataclass(frozen=True, eq=False)
class RouteMask:
    """Mask of the road segments that enough drivers passed to be shown.

    Attributes
    ----------
    drivers : (S,) int64
        Number of drivers who passed each segment.
    least : int
        The smallest number that is shown.

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
        """Count the drivers (`Demonstrations.groups`) of each segment."""
        if demos.groups is None:
            raise InvalidDemos(
                "demos must have groups (drivers): many trips of one driver do not hide that driver. Pass "
                "demos.replace(groups=...).",
                parameter="demos",
            )
        _check_segments(demos, n_segments)
        return cls(count_drivers_by_segment(demos, demos.states, n_segments), least)

    @property
    def hidden(self) -> BoolArray:
        """Segments (S,) that at least one driver passed, but fewer than `least`."""
        return np.asarray((self.drivers > 0) & (self.drivers < self.least))

    def apply(self, values: ArrayLike) -> FloatArray:
        """Return values per segment (S, ...), with NaN where they are hidden."""
        table = np.array(values, dtype=np.float64)
        if table.shape[:1] != self.drivers.shape:
            rule = f"must have one row per segment ({self.drivers.size})"
            raise InvalidParameter.of("values", table.shape, rule)
        table[self.hidden] = np.nan
        return table

    def select_paths(self, demos: Demonstrations) -> BoolArray:
        """Return (N,) True for the paths without a hidden segment, which may be drawn completely."""
        _check_segments(demos, self.drivers.size)
        seen = np.concatenate([[0], np.cumsum(self.hidden[demos.states])])
        return np.asarray(np.diff(seen[demos.offsets]) == 0)


def _check_segments(demos: Demonstrations, n_segments: int) -> None:
    if demos.n_steps and demos.states.max() >= n_segments:
        largest = int(demos.states.max())
        message = f"demos pass segment {largest}, but the network has {n_segments} segments. Is it another network?"
        raise InvalidDemos(message, parameter="demos", value=largest)


def _hide_more(table: FloatArray, hidden: BoolArray, least: int) -> None:
    """Hide more counts along the last axis until no hidden count follows from the sum of its line."""
    for line in np.ndindex(table.shape[:-1]):
        counts, gone = table[line], hidden[line]
        while gone.any() and (np.count_nonzero(gone) < 2 or counts[gone].sum() < least):
            rest = np.flatnonzero(~gone & (counts > 0))
            if rest.size == 0:
                break  # the sum itself is small, or this is the only count of its line
            gone[rest[np.argmin(counts[rest])]] = True


def index_drivers(demos: Demonstrations) -> IntArray:
    """Return the driver (N,) of each trip, numbered from 0; without groups every trip is its own driver.

    Examples
    --------
    >>> index_drivers(Demonstrations.from_lists([[0], [1], [2]], groups=["bob", "ann", "bob"]))
    array([1, 0, 1])
    """
    groups = np.arange(len(demos)) if demos.groups is None else demos.groups
    return np.asarray(np.unique(groups, return_inverse=True)[1])


def count_drivers_by_segment(demos: Demonstrations, passed: IntArray, n_segments: int) -> IntArray:
    """Count the drivers (S,) of each segment; `passed` has one segment per state of the demonstrations."""
    pairs = np.unique(np.repeat(index_drivers(demos), demos.lengths) * np.int64(n_segments) + passed)
    return np.bincount(pairs % n_segments, minlength=n_segments)


def count_drivers_by_street(demos: Demonstrations, opposite: IntArray) -> IntArray:
    """Count the drivers (S,) of each street in either direction; `opposite` (S,) as in `RoadNetwork`.

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
    """Trim the ends of uncut trips as `trim_ends`, clean the rest again, and account for every trip and fix.

    Trips that cleaning has cut are dropped, since their ends lie in the middle. Cleaning comes before trimming:
    otherwise an outlier at the start would be trimmed in place of the home. Raises `InvalidTrips` if nothing is left of
    any trip.
    """
    given = cleaned.trips
    entire = replace(given[cleaned.whole], skipped=given.skipped, notes=given.notes)
    trimmed = trim_ends(entire, metres)
    if len(trimmed) == 0:
        message = f"No trip is left after trimming {metres:g} m at both ends. Trim less."
        raise InvalidTrips(message, parameter="metres", value=metres)
    # A stop keeps its first and last fix; the time between them is not a gap.
    again = clean(trimmed, network, max_gap_s=math.inf)
    cut = {
        _CUT_TRIP: int(np.unique(cleaned.source[~cleaned.whole]).size),
        "nothing left without its ends": len(entire) - len(trimmed),
    }
    ends = {
        f"in a trip {_CUT_TRIP}": given.n_fixes - entire.n_fixes,
        "at the ends, trimmed": entire.n_fixes - trimmed.n_fixes,
    }
    lost = Counter(cleaned.lost) + Counter(again.lost) + Counter(cut)
    dropped = Counter(cleaned.dropped) + Counter(again.dropped) + Counter(ends)
    return replace(again, lost=lost, dropped=dropped, n_trips=cleaned.n_trips)
