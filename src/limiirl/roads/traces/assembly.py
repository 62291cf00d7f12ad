"""Construction of `Trips` from the raw content of files: validation, sorting, unique names, and counts of repairs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

import numpy as np
from numpy.typing import NDArray

from limiirl._typing import BoolArray, FloatArray, IntArray
from limiirl.demos import as_readonly
from limiirl.errors import InvalidTrips
from limiirl.roads.traces.trips import SkippedTrip, Trips

SWAPPED = "its latitudes exceed 90 degrees; if latitude and longitude are swapped, read it with swap=True"
# Each entry is the minimum median of times in a unit, the divisor to seconds, and the unit. For example, 1e11 is the
# year 5138 in seconds since 1970, but 1973 in milliseconds.
_UNITS = ((1e17, 1e9, "nanoseconds"), (1e14, 1e6, "microseconds"), (1e11, 1e3, "milliseconds"))


@dataclass
class RawTrips:
    """Unvalidated trips of a file; unreadable values are NaN.

    `time` (n,) is the time of each fix in seconds. `start` (N,) is the start time of each trip if its fixes have no
    times, else NaN. `counts` and `rows` (N,) are the number of fixes and the position in the file of each trip.
    """

    lat: FloatArray
    lon: FloatArray
    time: FloatArray | None
    start: FloatArray | None
    counts: IntArray
    rows: IntArray
    ids: NDArray[Any]
    groups: NDArray[Any] | None
    skipped: list[SkippedTrip] = field(default_factory=list)
    notes: Counter[str] = field(default_factory=Counter)
    pieces: IntArray | None = None


def assemble(raw: RawTrips, step_s: float) -> Trips:
    """Return the trips of a file, with a reason for each skipped trip and counts of repairs."""
    notes, skipped = raw.notes, raw.skipped
    trip = np.repeat(np.arange(raw.counts.size), raw.counts)
    time_s = _compute_times(raw, trip, step_s)
    reason = np.zeros(raw.counts.size, dtype=np.int64)
    good = _select_fixes(raw, time_s, trip, reason, notes)
    reasons = {
        1: "it has no fixes",
        2: SWAPPED,
        3: "none of its fixes has a readable latitude, longitude and time",
        4: "all of its coordinates are out of range; degrees are needed, not projected metres",
    }
    for i in np.flatnonzero(reason).tolist():
        skipped.append(SkippedTrip(str(raw.ids[i]), int(raw.rows[i]), reasons[int(reason[i])]))
    keep = reason == 0
    good &= keep[trip]
    lat, lon, counts = raw.lat, raw.lon, raw.counts[keep]
    if not good.all():
        lat, lon, time_s, trip = lat[good], lon[good], time_s[good], trip[good]
        counts = np.bincount(trip, minlength=raw.counts.size)[keep]
    lat, lon, time_s = _sort_fixes(lat, lon, time_s, counts, notes)
    groups = None if raw.groups is None else as_names(raw.groups[keep])
    fields = (lat, lon, time_s, np.concatenate([[0], np.cumsum(counts)]))
    for part in fields:
        part.flags.writeable = False  # avoids a copy in `Trips`
    first = Trips(*fields, as_names(raw.ids[keep]), groups)
    pieces = np.zeros(len(first), dtype=np.int64) if raw.pieces is None else raw.pieces[keep]
    return _make_distinct(first, pieces, raw.rows[keep], skipped, notes)


def to_seconds(values: FloatArray, notes: Counter[str]) -> FloatArray:
    """Return times in seconds; milliseconds and smaller units are detected by their size, converted and counted."""
    known = values[np.isfinite(values)]
    usual = float(np.median(np.abs(known))) if known.size else 0.0
    for least, divisor, name in _UNITS:
        if usual >= least:
            notes[f"times in {name}, divided by {divisor:.0f}"] += int(known.size)
            return values / divisor
    return values


def as_names(text: NDArray[Any]) -> NDArray[Any]:
    """Return names as int64 if all are written as integers, else as text."""
    if text.dtype.kind != "U":
        return text
    try:
        numbers = text.astype(np.int64)
    except (ValueError, OverflowError):
        return text
    return numbers if np.array_equal(numbers.astype(text.dtype), text) else text


def merge(parts: Sequence[RawTrips]) -> RawTrips:
    """Concatenate the content of several files; either all files or none must have drivers."""
    if len(parts) == 1:
        return parts[0]
    known = [part.groups for part in parts if part.groups is not None]
    if known and len(known) < len(parts):
        message = "Some files have drivers and others do not. Read them separately, or pass columns={'driver': None}."
        raise InvalidTrips(message, parameter="columns")
    notes: Counter[str] = Counter()
    for part in parts:
        notes.update(part.notes)
    return RawTrips(
        lat=np.concatenate([part.lat for part in parts]),
        lon=np.concatenate([part.lon for part in parts]),
        time=np.concatenate([np.full(part.lat.size, np.nan) if part.time is None else part.time for part in parts]),
        start=np.concatenate([_start_times(part) for part in parts]),
        counts=np.concatenate([part.counts for part in parts]),
        rows=np.concatenate([part.rows for part in parts]),
        ids=np.concatenate([part.ids for part in parts]),
        groups=np.concatenate(known) if known else None,
        skipped=[skip for part in parts for skip in part.skipped],
        notes=notes,
        pieces=np.concatenate(
            [np.zeros(part.counts.size, dtype=np.int64) if part.pieces is None else part.pieces for part in parts]
        ),
    )


def _start_times(raw: RawTrips) -> FloatArray:
    """Return the start time (N,) of each trip; NaN for trips with times per fix, 0 if the file has no times."""
    if raw.start is not None:
        return raw.start
    return np.full(raw.counts.size, 0.0 if raw.time is None else np.nan)


def _compute_times(raw: RawTrips, trip: IntArray, step_s: float) -> FloatArray:
    """Return the time (n,) of every fix, from the file or computed from the start of its trip and `step_s`."""
    fix = np.arange(trip.size) - np.repeat(np.cumsum(raw.counts) - raw.counts, raw.counts)
    counted = np.repeat(_start_times(raw), raw.counts) + step_s * fix
    return counted if raw.time is None else np.where(np.isfinite(counted), counted, raw.time)


def _select_fixes(
    raw: RawTrips, time_s: FloatArray, trip: IntArray, reason: IntArray, notes: Counter[str]
) -> BoolArray:
    """Return a mask (n,) of the usable fixes; set `reason` for trips without usable fixes."""
    lat, lon, counts = raw.lat, raw.lon, raw.counts
    known = np.isfinite(lat) & np.isfinite(lon) & np.isfinite(time_s)
    on_globe = (np.abs(lat) <= 90.0) & (np.abs(lon) <= 180.0)
    good = np.asarray(known & on_globe)
    reason[counts == 0] = 1
    if good.all():
        return good
    swapped = known & (np.abs(lat) > 90.0) & (np.abs(lat) <= 180.0) & (np.abs(lon) <= 90.0)
    n_good, n_swapped = (np.bincount(trip[which], minlength=counts.size) for which in (good, swapped))
    n_known = np.bincount(trip[known], minlength=counts.size)
    reason[(n_good == 0) & (counts > 0)] = 3
    reason[(n_good == 0) & (n_known > 0)] = 4
    # Most latitudes exceed 90 degrees.
    reason[n_swapped > n_good] = 2
    rest = reason[trip] == 0
    notes["fixes without latitude, longitude or time, dropped"] += int(np.count_nonzero(~known & rest))
    notes["fixes with degrees out of range, dropped"] += int(np.count_nonzero(known & ~on_globe & rest))
    return good


def _sort_fixes(
    lat: FloatArray, lon: FloatArray, time_s: FloatArray, counts: IntArray, notes: Counter[str]
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the fixes sorted by time within each trip; simultaneous fixes keep their order."""
    trip = np.repeat(np.arange(counts.size), counts)
    fall = (np.diff(time_s) < 0.0) & (np.diff(trip) == 0)
    if not fall.any():
        return lat, lon, time_s
    notes["trips whose fixes were not in order of time, sorted"] += int(np.unique(trip[1:][fall]).size)
    order = np.lexsort((time_s, trip))
    return lat[order], lon[order], time_s[order]


def _make_distinct(
    trips: Trips, pieces: IntArray, rows: IntArray, skipped: list[SkippedTrip], notes: Counter[str]
) -> Trips:
    """Return trips with unique names: copies are skipped, other trips of the same name are renamed ``name#2``.

    Pieces of one trip share an id and a driver, and have distinct numbers.
    """
    unique, inverse, times = np.unique(trips.ids, return_inverse=True, return_counts=True)
    ids, keep = trips.ids, np.ones(len(trips), dtype=np.bool_)
    if unique.size < len(trips) and not _only_pieces(inverse, pieces, trips.groups):
        ids = ids.astype(np.str_).astype(object)
        taken = set(unique.astype(np.str_).tolist())
        seen: dict[tuple[int, int, bytes], int] = {}
        trips_of: Counter[int] = Counter()
        # Maps (name, driver) to the id of the last trip and the piece numbers of this trip so far.
        last: dict[tuple[int, Any], tuple[str, set[int]]] = {}
        for i in np.flatnonzero(times[inverse] > 1).tolist():
            name, piece = int(inverse[i]), int(pieces[i])
            twin = seen.setdefault((name, piece, sha256((np.stack(trips[i]) + 0.0).tobytes()).digest()), i)
            if twin != i:
                keep[i] = False
                skipped.append(SkippedTrip(str(ids[i]), int(rows[i]), "it is a copy of an earlier trip"))
                continue
            driver = None if trips.groups is None else trips.groups[i].item()
            known, met = last.get((name, driver), ("", {piece}))
            if piece in met:
                trips_of[name] += 1
                known, met = str(ids[i]), set()
                if trips_of[name] > 1:
                    known = _find_unused_name(known, trips_of[name], taken)
                    notes["other trips of the same id, renamed (id#2, id#3, ...)"] += 1
                last[name, driver] = known, met
            ids[i] = known
            met.add(piece)
        ids = as_names(ids.astype(np.str_))
    chosen = trips if keep.all() else trips.subset(keep)
    kept = {reason: count for reason, count in notes.items() if count}
    skips = tuple(sorted(skipped, key=lambda skip: skip.row))
    fixes = chosen.lat, chosen.lon, chosen.time_s, chosen.offsets
    return Trips(*fixes, as_readonly(ids[keep]), chosen.groups, skips, kept, pieces[keep])


def _only_pieces(name: IntArray, pieces: IntArray, groups: NDArray[Any] | None) -> bool:
    """Return True if trips with the same name are pieces of one trip: same driver, and distinct numbers."""
    order = np.lexsort((pieces, name))
    together = np.diff(name[order]) == 0
    return not (
        (together & (np.diff(pieces[order]) == 0)).any()
        or (groups is not None and (together & (groups[order][1:] != groups[order][:-1])).any())
    )


def _find_unused_name(name: str, number: int, taken: set[str]) -> str:
    while f"{name}#{number}" in taken:
        number += 1
    taken.add(f"{name}#{number}")
    return f"{name}#{number}"
