"""Privacy tools: trip ends trimmed, zones masked, small counts suppressed. They do not make data anonymous.

`docs/responsible_use.md` states what each tool protects against, and what not.
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
    """Keep of every trip the longest stretch all of which is away from both its ends.

    A trip that passes its own beginning or end again would show it, be it between two fixes, so that what is on the
    other side goes as well. How far is drawn for each end, evenly from `metres` to ``(1 + jitter) * metres``, as the
    crow flies: with one distance for all, the ends that are left would lie on a circle about the place that is to be
    hidden. Clean the trips first: an outlier for a first fix would be far from what follows, and nothing would be
    trimmed.

    Parameters
    ----------
    trips : Trips or CleanedTrips
        CleanedTrips.
    metres : float
        Least distance of what is left from the old end.
    jitter : float
        See above.
    seed : int or Generator, optional
        For tests. Leave it out for data that you publish: whoever knows the seed knows the distances.

    Returns
    -------
    Trips
        Without the trips of which nothing is left; `notes` counts them and the fixes.

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
    """Drop what lies in circles, and cut trips there, also where a trip passes through a circle between two fixes.

    Parameters
    ----------
    trips : Trips or CleanedTrips
        Any.
    zones : list of (lat, lon, radius in metres)
        Put a circle about a home off its middle, by an amount that you do not publish: its rim shows in the data.

    Returns
    -------
    Trips
        Pieces keep the id of their trip and are told apart by `Trips.pieces`, also in a file; `Trips.cut` marks them,
        so that no rim passes for a place where somebody went. `notes` counts what is gone.

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
                f"No trip comes into zones[{i}], {radius:g} m about latitude {lat:g}, longitude {lon:g}. Is it where "
                "it should be? Latitude comes first.",
                LimiirlWarning,
                stacklevel=2,
            )
        inside |= within
        crossed[1:] |= passed
    return _pieces(trips, ~inside, crossed, "masked", rims=True)


def _trips(given: Trips | CleanedTrips) -> Trips:
    found = given.trips if isinstance(given, CleanedTrips) else given
    if not isinstance(found, Trips):
        raise InvalidTrips(
            f"trips must be Trips or what `clean` returns; it is a {type(given).__name__}.",
            parameter="trips",
            value=type(given).__name__,
        )
    return found


def _zone(given: object, i: int) -> tuple[float, float, float]:
    try:
        lat, lon, radius = (float(part) for part in given)  # type: ignore[attr-defined]
    except (TypeError, ValueError):
        lat = lon = radius = np.nan
    if not (abs(lat) <= 90.0 and abs(lon) <= 180.0 and radius > 0.0):
        raise InvalidParameter(
            f"zones[{i}] is {given}; zones is a list of (lat, lon, radius in metres) with a positive radius.",
            parameter="zones",
            value=given,
            index=i,
        )
    return lat, lon, radius


def trim_path_ends(
    demos: Demonstrations, lengths_m: ArrayLike, metres: float = 300.0, *, jitter: float = 0.5, seed: Seed = None
) -> Demonstrations:
    """Drop segments from the two ends of every matched path, for at least a distance drawn as in `trim_ends`.

    The distance is driven, not as the crow flies. A path that comes back to a segment dropped from its ends is cut
    there, and its longest stretch is kept. A street driven in the other direction is another segment, and what comes
    near an end on other streets is not seen at all: `trim_ends` before matching sees both. What is left begins and ends
    elsewhere: a model of where trips begin, or of where they are bound, then learns that.

    Parameters
    ----------
    demos : Demonstrations
        Paths of road segments.
    lengths_m : (S,)
        Length of each segment, as `RoadNetwork.length_m`.
    metres, jitter, seed
        See `trim_ends`.

    Returns
    -------
    Demonstrations
        Without the paths of which nothing is left.

    Examples
    --------
    >>> demos = Demonstrations.from_lists([[0, 1, 2, 3, 4], [1, 2]])
    >>> trim_path_ends(demos, [100.0] * 5, 150.0, jitter=0.0).states.tolist()
    [2]
    """
    lengths = np.asarray(lengths_m, dtype=np.float64)
    if demos.n_steps and (lengths.ndim != 1 or lengths.size <= demos.states.max()):
        raise InvalidParameter(
            f"lengths_m must have one entry per segment; it has shape {lengths.shape}, and a path passes segment "
            f"{demos.states.max()}.",
            parameter="lengths_m",
            value=lengths.shape,
        )
    radius = _radii(metres, jitter, seed, len(demos))
    demo = np.repeat(np.arange(len(demos)), demos.lengths)
    end_m = np.cumsum(lengths[demos.states])
    zero = np.concatenate([[0.0], end_m])
    driven = zero[:-1] - zero[demos.offsets[:-1]][demo]  # before the segment, from the start of its path
    ahead = zero[demos.offsets[1:]][demo] - end_m
    # Sums of the same lengths in another order differ by rounding; a millimetre is nobody's secret.
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
    known = [None if values is None else values[left] for values in (demos.groups, demos.labels, demos.ids)]
    return Demonstrations(demos.states[keep], offsets, actions, *known)


def _radii(metres: float, jitter: float, seed: Seed, n: int) -> FloatArray:
    """Return distances (2, n), one for each end of each trip."""
    check_positive(metres, "metres")
    check_positive(jitter, "jitter", zero=True)
    return metres * (1.0 + jitter * as_generator(seed).random((2, n)))


def _longest_runs(inside: BoolArray, cut: BoolArray, trip: IntArray) -> BoolArray:
    """Return (n,) which fixes belong to the longest run of `inside` in their trip, the first of equals.

    A run ends before a fix at which `cut` is set.
    """
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
    """Return what is kept of trips, cut where fixes are gone and where `cut` says so; count what is gone.

    With `rims`, one piece without its trip's first or last fix has a number above 0, so that it is seen to be a piece.
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


def suppress_small(counts: ArrayLike, least: int = 5, *, totals: tuple[int, ...] = ()) -> FloatArray:
    """Return a table of counts with NaN in place of those from 1 to below `least`.

    A zero stays: nobody stands behind it. Where totals are shown as well, a count that is hidden alone follows
    by subtraction, and two that add up to less than `least` are as good as one; then the next smallest of that row or
    column is hidden too. Hide small totals by another call.

    Parameters
    ----------
    counts : array
        People, not trips, if people are to be protected.
    least : int
        The smallest count that is shown.
    totals : tuple of int
        Axes of `counts` whose sums are shown: 0 for the totals under the columns of a table, 1 for those beside rows.

    Examples
    --------
    >>> suppress_small([12, 3, 0, 7])
    array([12., nan,  0.,  7.])
    >>> suppress_small([12, 3, 0, 7], totals=(0,))  # 22 in all: 3 alone could be computed
    array([12., nan,  0., nan])
    """
    table = np.array(counts, dtype=np.float64)
    wrong = ~(np.isfinite(table) & (table >= 0.0) & (table == np.floor(table)))
    if wrong.any():
        raise InvalidParameter(
            f"counts must be whole numbers from 0; one of them is {table[wrong][0]}.",
            parameter="counts",
            value=float(table[wrong][0]),
        )
    check_count(least, "least")
    if any(not 0 <= axis < table.ndim for axis in totals):
        raise InvalidParameter(
            f"totals names axes of a table that has {table.ndim}; got {totals}.", parameter="totals", value=totals
        )
    hidden = (table > 0) & (table < least)
    before = -1
    while before != hidden.sum():
        before = int(hidden.sum())
        for axis in totals:
            _hide_more(np.moveaxis(table, axis, -1), np.moveaxis(hidden, axis, -1), least)
    table[hidden] = np.nan
    return table


def merge_small(labels: ArrayLike, least: int = 5, *, into: str = "others") -> NDArray[np.str_]:
    """Return labels as text, with all groups of fewer than `least` members under one name.

    If those together are still fewer than `least`, the next smallest group joins them.

    Examples
    --------
    >>> merge_small(["a", "a", "a", "b", "c", "a"], least=2).tolist()
    ['a', 'a', 'a', 'others', 'others', 'a']
    """
    check_count(least, "least")
    names, inverse, counts = np.unique(np.asarray(labels).astype(np.str_), return_inverse=True, return_counts=True)
    if into in names:
        raise InvalidParameter(
            f"there is a group called {into!r} already. Pass another name: into=...", parameter="into", value=into
        )
    order = np.argsort(counts, kind="stable")
    small = counts < least
    for k in order:
        if small.any() and counts[small].sum() < least:
            small[k] = True
    return np.where(small[inverse], into, names[inverse]).astype(np.str_)


@dataclass(frozen=True, eq=False)
class RouteMask:
    """Which road segments may be shown: those that at least so many drivers passed.

    Attributes
    ----------
    drivers : (S,) int64
        How many drivers passed each segment.
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
                "These demonstrations do not say who drove, and many trips of one driver hide nobody. "
                "Give them groups: demos.replace(groups=...).",
                parameter="demos",
            )
        _check_segments(demos, n_segments)
        return cls(count_drivers_by_segment(demos, demos.states, n_segments), least)

    @property
    def hidden(self) -> BoolArray:
        """Segments (S,) that somebody passed, but too few."""
        return np.asarray((self.drivers > 0) & (self.drivers < self.least))

    def apply(self, values: ArrayLike) -> FloatArray:
        """Return values a segment, (S, ...), with NaN where they are hidden."""
        table = np.array(values, dtype=np.float64)
        if table.shape[:1] != self.drivers.shape:
            raise InvalidParameter(
                f"values must have one row per segment, {self.drivers.size}; shape is {table.shape}.",
                parameter="values",
                value=table.shape,
            )
        table[self.hidden] = np.nan
        return table

    def shown(self, demos: Demonstrations) -> BoolArray:
        """Return which paths (N,) lead over no hidden segment at all, and may be drawn as a whole."""
        _check_segments(demos, self.drivers.size)
        seen = np.concatenate([[0], np.cumsum(self.hidden[demos.states])])
        return np.asarray(np.diff(seen[demos.offsets]) == 0)


def _check_segments(demos: Demonstrations, n_segments: int) -> None:
    """Say that paths are of another network."""
    if demos.n_steps and demos.states.max() >= n_segments:
        raise InvalidDemos(
            f"a path passes segment {demos.states.max()}, but there are {n_segments} segments. Is it another network?",
            parameter="demos",
            value=int(demos.states.max()),
        )


def _hide_more(table: FloatArray, hidden: BoolArray, least: int) -> None:
    """Hide more of the lines along the last axis, until no hidden count follows from the line's sum."""
    for line in np.ndindex(table.shape[:-1]):
        counts, gone = table[line], hidden[line]
        while gone.any() and (np.count_nonzero(gone) < 2 or counts[gone].sum() < least):
            rest = np.flatnonzero(~gone & (counts > 0))
            if rest.size == 0:
                break  # the sum itself is small, or the only count of its line
            gone[rest[np.argmin(counts[rest])]] = True


def index_drivers(demos: Demonstrations) -> IntArray:
    """Return the driver (N,) of each trip, numbered from 0; another for each where they are not known.

    Examples
    --------
    >>> index_drivers(Demonstrations.from_lists([[0], [1], [2]], groups=["bob", "ann", "bob"]))
    array([1, 0, 1])
    """
    groups = np.arange(len(demos)) if demos.groups is None else demos.groups
    return np.asarray(np.unique(groups, return_inverse=True)[1])


def count_drivers_by_segment(demos: Demonstrations, passed: IntArray, n_segments: int) -> IntArray:
    """Return how many drivers (S,) pass each segment; `passed` has one for every state of the demonstrations."""
    pairs = np.unique(np.repeat(index_drivers(demos), demos.lengths) * np.int64(n_segments) + passed)
    return np.bincount(pairs % n_segments, minlength=n_segments)


def count_drivers_by_street(demos: Demonstrations, opposite: IntArray) -> IntArray:
    """Return how many drivers (S,) pass each street, either way; `opposite` (S,) is that of `RoadNetwork`.

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
    """Trim the ends of whole trips, clean the rest again, and account for every trip and fix.

    Trips that cleaning cut have ends in the middle, and are left out. Cleaning comes before trimming: an outlier at
    the beginning of a trip would be trimmed in place of the home.

    Parameters
    ----------
    cleaned : CleanedTrips
        Trips cleaned on `network`.
    network : RoadNetwork
    metres : float
        As of `trim_ends`.

    Raises
    ------
    InvalidTrips
        If nothing is left of any trip.
    """
    given = cleaned.trips
    entire = replace(given[cleaned.whole], skipped=given.skipped, notes=given.notes)
    trimmed = trim_ends(entire, metres)
    if len(trimmed) == 0:
        raise InvalidTrips(
            f"Nothing is left of any trip without {metres:g} m at both ends. Trim less.",
            parameter="metres",
            value=metres,
        )
    # A stop has kept its first and its last fix, between which there is no gap.
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
