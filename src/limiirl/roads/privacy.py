"""Showing less of people: trip ends trimmed, zones masked, small numbers hidden.

None of this makes a data set anonymous. Read `docs/responsible_use.md` for what each tool protects against, and what
not.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from limiirl.demos import Demonstrations
from limiirl.errors import InvalidParameter, InvalidTrips, LimiirlWarning
from limiirl.roads.geodesy import distance_m, passing_m, seen_m
from limiirl.roads.small_numbers import RouteMask, merge_small, suppress_small
from limiirl.roads.traces.cleaning import Cleaned
from limiirl.roads.traces.trips import Trips

__all__ = ["RouteMask", "mask_zones", "merge_small", "suppress_small", "trim_ends", "trim_path_ends"]

Float = NDArray[np.float64]
Int = NDArray[np.int64]
Bool = NDArray[np.bool_]
Seed = int | np.random.Generator | None


def trim_ends(trips: Trips | Cleaned, metres: float = 300.0, *, jitter: float = 0.5, seed: Seed = None) -> Trips:
    """Keep of every trip the longest stretch all of which is away from both its ends.

    A trip that passes its own beginning or end again would show it, be it between two fixes, so that what is on the
    other side goes as well. How far is drawn for each end, evenly from `metres` to ``(1 + jitter) * metres``, as the
    crow flies: with one distance for all, the ends that are left would lie on a circle about the place that is to be
    hidden. Clean the trips first: an outlier for a first fix would be far from what follows, and nothing would be
    trimmed.

    Parameters
    ----------
    trips : Trips or Cleaned
        Cleaned.
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
        xy = seen_m(lat, lon, trips.lat, trips.lon)
        crossed[1:] |= passing_m(xy[:-1], xy[1:]) <= most[1:]
    keep = _longest_runs(beyond, crossed, trip)
    return _pieces(trips, keep, crossed, "trimmed from the ends")


def mask_zones(trips: Trips | Cleaned, zones: Sequence[tuple[float, ...]]) -> Trips:
    """Drop what lies in circles, and cut trips there, also where a trip passes through a circle between two fixes.

    Parameters
    ----------
    trips : Trips or Cleaned
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
        xy = seen_m(lat, lon, trips.lat, trips.lon)
        within, passed = np.hypot(*xy.T) <= radius, passing_m(xy[:-1], xy[1:]) <= radius
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


def _trips(given: Trips | Cleaned) -> Trips:
    found = given.trips if isinstance(given, Cleaned) else given
    if not isinstance(found, Trips):
        raise InvalidTrips(f"trips must be Trips or what `clean` returns; it is a {type(given).__name__}.")
    return found


def _zone(given: object, i: int) -> tuple[float, float, float]:
    try:
        lat, lon, radius = (float(part) for part in given)  # type: ignore[attr-defined]
    except (TypeError, ValueError):
        lat = lon = radius = np.nan
    if not (abs(lat) <= 90.0 and abs(lon) <= 180.0 and radius > 0.0):
        raise InvalidParameter(
            f"zones[{i}] is {given}; zones is a list of (lat, lon, radius in metres) with a positive radius."
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
            f"lengths_m must have one entry a segment; it has shape {lengths.shape}, and a path passes segment "
            f"{demos.states.max()}."
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


def _radii(metres: float, jitter: float, seed: Seed, n: int) -> Float:
    """Return distances (2, n), one for each end of each trip."""
    if not (np.isfinite(metres) and metres > 0.0 and np.isfinite(jitter) and jitter >= 0.0):
        raise InvalidParameter(f"metres must be positive and jitter at least 0; got {metres} and {jitter}.")
    return metres * (1.0 + jitter * np.random.default_rng(seed).random((2, n)))


def _longest_runs(inside: Bool, cut: Bool, trip: Int) -> Bool:
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


def _pieces(trips: Trips, keep: Bool, cut: Bool, word: str, *, rims: bool = False) -> Trips:
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
