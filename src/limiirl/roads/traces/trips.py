"""`Trips`: recorded GPS traces in flat, immutable arrays, and their validation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from os import PathLike
from typing import Any, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from limiirl._typing import FloatArray, IntArray
from limiirl.demos import as_readonly, same_arrays
from limiirl.errors import InvalidParameter, InvalidTrips


def as_numbers(values: object, name: str) -> FloatArray:
    """Return a one-dimensional float64 array; raise `InvalidTrips` for anything else."""
    array = np.asarray(values)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iuf"):
        raise InvalidTrips.of(name, f"{array.dtype}, shape {array.shape}", "must be a one-dimensional array of numbers")
    return array.astype(np.float64, copy=False)


def check_offsets(values: object, n: int) -> IntArray:
    """Check that offsets divide n fixes into trips with at least one fix each."""
    array = np.asarray(values)
    if array.ndim != 1 or array.size == 0 or array.dtype.kind not in "iu":
        raise InvalidTrips.of("offsets", f"{array.dtype}, shape {array.shape}", "must be N + 1 integers")
    array = array.astype(np.int64, copy=False)
    if array[0] != 0 or array[-1] != n:
        ends = int(array[0]), int(array[-1])
        raise InvalidTrips.of("offsets", ends, f"must start with 0 and end with the number of fixes, {n}")
    short = np.diff(array) <= 0
    if short.any():
        i = int(np.argmax(short))
        message = f"Trip {i} has no fixes: offsets[{i}] is {array[i]} and offsets[{i + 1}] is {array[i + 1]}. Drop it."
        raise InvalidTrips(message, parameter="offsets", value=int(array[i + 1]), index=i)
    return array


def check_names(values: object, what: str, n: int) -> NDArray[Any]:
    """Check integer or string names, one per trip."""
    array = np.asarray(values)
    if array.shape != (n,):
        raise InvalidTrips.of(what, array.shape, f"must have one entry per trip ({n})")
    if array.size == 0:
        return array.astype(np.int64) if array.dtype.kind not in "U" else array
    if array.dtype.kind not in "iuU":
        raise InvalidTrips.of(what, str(array.dtype), "must be integers or strings", remedy="Convert them first.")
    if array.dtype.kind == "U" or array.max() > np.iinfo(np.int64).max:
        return array.astype(np.str_, copy=False)
    return array.astype(np.int64, copy=False)


def check_pieces(values: object, ids: NDArray[Any], groups: NDArray[Any] | None) -> IntArray:
    """Validate the piece numbers, one per trip; if they are missing or not unique, number the pieces in order."""
    trip = index_trips(ids, groups)
    order = np.argsort(trip, kind="stable")
    counts = np.bincount(trip)
    number = np.empty(trip.size, dtype=np.int64)
    number[order] = np.arange(trip.size) - np.repeat(np.cumsum(counts) - counts, counts)
    if values is None:
        return number
    array = np.asarray(values)
    if array.shape != trip.shape or (array.size and (array.dtype.kind not in "iu" or array.min() < 0)):
        rule = f"must be one nonnegative integer per trip ({trip.size})"
        remedy = "Omit pieces to number them in order."
        raise InvalidTrips.of("pieces", f"{array.dtype}, shape {array.shape}", rule, remedy=remedy)
    array = array.astype(np.int64)
    order = np.lexsort((array, trip))
    same = (np.diff(trip[order]) == 0) & (np.diff(array[order]) == 0)
    return np.where(np.isin(trip, trip[order][1:][same]), number, array)


def index_trips(ids: NDArray[Any], groups: NDArray[Any] | None) -> IntArray:
    """Return the index (N,) of each trip's (id, driver) pair among the distinct pairs."""
    _, trip = np.unique(ids, return_inverse=True)
    if groups is not None:
        _, driver = np.unique(groups, return_inverse=True)
        _, trip = np.unique(trip * (driver.max(initial=0) + 1) + driver, return_inverse=True)
    return trip.astype(np.int64)


def check_fixes(arrays: dict[str, Any]) -> None:
    """Check that fixes are complete, within the range of degrees, and sorted by time within each trip."""
    lat, lon, time_s = arrays["lat"], arrays["lon"], arrays["time_s"]
    if not lat.size == lon.size == time_s.size:
        sizes = lat.size, lon.size, time_s.size
        raise InvalidTrips.of("time_s", sizes, "must have as many entries as lat and lon")
    for name, most in (("lat", 90.0), ("lon", 180.0), ("time_s", np.inf)):
        values = arrays[name]
        wrong = ~(np.abs(values) <= most) | np.isinf(values)
        if wrong.any():
            i = int(np.argmax(wrong))
            rule = "finite" if name == "time_s" else f"in [-{most:g}, {most:g}] degrees"
            hint = " Check whether latitude and longitude are swapped." if name == "lat" and abs(lon[i]) <= 90.0 else ""
            message = f"{format_fix(arrays, i)}: {name} must be {rule}; got {values[i]}.{hint}"
            raise InvalidTrips(message, parameter=name, value=float(values[i]), index=i)
    falls = np.flatnonzero(np.diff(time_s) < 0.0) + 1
    falls = falls[~np.isin(falls, arrays["offsets"])]
    if falls.size:
        i = int(falls[0])
        change = f"{time_s[i]:.3f} follows {time_s[i - 1]:.3f}"
        message = f"{format_fix(arrays, i)}: time_s must not decrease; {change}. Sort the fixes of a trip by time."
        raise InvalidTrips(message, parameter="time_s", value=float(time_s[i]), index=i)


def format_fix(arrays: dict[str, Any], fix: int) -> str:
    """Return the position of a fix for an error message: "Trip 1 (id 'b'), fix 1"."""
    trip = int(np.searchsorted(arrays["offsets"], fix, side="right")) - 1
    name = arrays["ids"][trip].item()
    return f"Trip {trip}{'' if name == trip else f' (id {name!r})'}, fix {fix - int(arrays['offsets'][trip])}"


def check_shapes(lat: Sequence[FloatArray], lon: Sequence[FloatArray], time_s: Sequence[FloatArray]) -> None:
    """Check that the lists of latitudes, longitudes and times have the same lengths."""
    if not len(lat) == len(lon) == len(time_s):
        sizes = len(lat), len(lon), len(time_s)
        raise InvalidTrips.of("lat", sizes, "must have as many lists as lon and time_s")
    for i, parts in enumerate(zip(lat, lon, time_s, strict=True)):
        n = tuple(part.size for part in parts)
        if len(set(n)) > 1 or any(part.ndim != 1 for part in parts):
            message = f"Trip {i} must have one latitude, longitude and time per fix; got {n[0]}, {n[1]} and {n[2]}."
            raise InvalidTrips(message, parameter="lat", value=n, index=i)


def as_index_array(index: Any, n: int) -> IntArray:
    """Convert a slice, a mask or indices into nonnegative indices below n."""
    if isinstance(index, slice):
        return np.arange(n)[index]
    array = np.asarray(index)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iub"):
        rule = "must be a slice, a mask or a one-dimensional array of integers"
        raise InvalidParameter.of("index", f"{array.dtype}, shape {array.shape}", rule)
    if array.dtype.kind == "b":
        if array.size != n:
            raise InvalidParameter.of("index", array.size, f"must have one entry per trip ({n}) if it is a mask")
        return np.flatnonzero(array)
    outside = (array >= n) | (array < -n)
    if outside.any():
        raise IndexError(f"trip index {array[np.argmax(outside)]} is out of range for {n} trips")
    return array.astype(np.int64) % max(n, 1)


def join_names(parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Concatenate names; if there are strings and integers, all are converted to strings."""
    kinds = {part.dtype.kind for part in parts if part.size}
    if len(kinds) > 1:
        return np.concatenate([part.astype(np.str_) for part in parts])
    return np.concatenate([part for part in parts if part.size] or [np.empty(0, dtype=np.int64)])


def join_groups(parts: Sequence[NDArray[Any] | None]) -> NDArray[Any] | None:
    """Concatenate drivers; either all parts or none must have drivers."""
    known = [part for part in parts if part is not None]
    if known and len(known) < len(parts):
        absent = next(i for i, part in enumerate(parts) if part is None)
        message = f"parts[{absent}] has no groups (drivers), but other parts do. Pass groups for all parts or for none."
        raise InvalidTrips(message, parameter="parts", index=absent)
    return join_names(known) if known else None


def _format_count(n: int, one: str, many: str = "") -> str:
    return f"{n:,} {one if n == 1 else many or one + 's'}"


Subset = slice | Sequence[int] | Sequence[bool] | NDArray[np.integer] | NDArray[np.bool_]


@dataclass(frozen=True)
class SkippedTrip:
    """Trip, or part of a trip, that could not be read.

    Attributes
    ----------
    id : str
        Name of the trip in the file; "" if it is unreadable.
    row : int
        Index of the trip in the file, or of the row in its table, from 0; -1 if unknown.
    reason : str
        Reason why it could not be read.
    trip : bool
        True for a trip; False for a row of a table of fixes, or for a file.
    """

    id: str
    row: int
    reason: str
    trip: bool = field(default=True, repr=False)


@dataclass(frozen=True, eq=False, repr=False)
class Trips:
    """N recorded trips, with the fixes of all trips in flat, read-only arrays.

    Read them with `limiirl.roads.read_trips`, or build them with `from_lists`. ``trips[3]`` is one trip as
    (lat, lon, time_s); slices, masks and index arrays select several; `concat` concatenates sets.

    Attributes
    ----------
    lat, lon : (n,)
        Coordinates of all fixes, in degrees (WGS84).
    time_s : (n,)
        Times of all fixes in seconds, nondecreasing within a trip. Dates are converted to seconds since 1970 (UTC).
    offsets : (N + 1,) int64
        Trip i has the fixes ``offsets[i]:offsets[i + 1]``, at least one.
    ids : (N,)
        Names of the trips, integers or strings.
    groups : (N,) or None
        Drivers, integers or strings.
    skipped : tuple of SkippedTrip
        Trips that could not be read, with the reasons.
    notes : dict
        Counts of repairs made while reading, by reason.
    pieces : (N,) int64
        Number of each piece among the pieces with the same id and driver (0 for trips that were not cut). By default,
        pieces are numbered in order.

    Examples
    --------
    >>> trips = Trips.from_lists([[41.15, 41.16], [41.1]], [[-8.63, -8.62], [-8.6]], ids=["a", "b"])
    >>> trips
    Trips: 2 trips, 3 fixes
      fixes     1 to 2 per trip, median 1.5
      times     0 to 15 s, median step 15 s
      latitude  41.10000 to 41.16000
      longitude -8.63000 to -8.60000
    >>> trips[0][0].tolist(), trips[1:].ids.tolist()
    ([41.15, 41.16], ['b'])
    """

    lat: FloatArray
    lon: FloatArray
    time_s: FloatArray
    offsets: IntArray
    ids: NDArray[Any]
    groups: NDArray[Any] | None = None
    skipped: tuple[SkippedTrip, ...] = ()
    notes: Mapping[str, int] = field(default_factory=dict)
    pieces: IntArray = None  # type: ignore[assignment] # an array after __post_init__

    def __post_init__(self) -> None:
        arrays: dict[str, Any] = {name: as_numbers(getattr(self, name), name) for name in ("lat", "lon", "time_s")}
        arrays["offsets"] = check_offsets(self.offsets, arrays["lat"].size)
        n = arrays["offsets"].size - 1
        arrays["ids"] = check_names(self.ids, "ids", n)
        arrays["groups"] = None if self.groups is None else check_names(self.groups, "groups", n)
        arrays["pieces"] = check_pieces(self.pieces, arrays["ids"], arrays["groups"])
        check_fixes(arrays)
        for name, array in arrays.items():
            object.__setattr__(self, name, None if array is None else as_readonly(array))
        object.__setattr__(self, "skipped", tuple(self.skipped))
        object.__setattr__(self, "notes", {str(reason): int(count) for reason, count in self.notes.items()})

    @classmethod
    def from_lists(
        cls,
        lat: Iterable[ArrayLike],
        lon: Iterable[ArrayLike],
        time_s: Iterable[ArrayLike] | None = None,
        *,
        step_s: float = 15.0,
        ids: ArrayLike | None = None,
        groups: ArrayLike | None = None,
    ) -> Trips:
        """Build trips from one list of latitudes and one list of longitudes per trip, in degrees.

        Without `time_s`, the fixes of a trip are at 0, `step_s`, 2 `step_s`, ... seconds. `ids` are 0, 1, 2, ... by
        default; `groups` are the drivers.

        Examples
        --------
        >>> Trips.from_lists([[41.1, 41.2]], [[-8.6, -8.7]], step_s=5.0).time_s.tolist()
        [0.0, 5.0]
        """
        north, east = ([np.asarray(one, dtype=np.float64) for one in many] for many in (lat, lon))
        if time_s is None:
            times = [step_s * np.arange(one.size, dtype=np.float64) for one in north]
        else:
            times = [np.asarray(one, dtype=np.float64) for one in time_s]
        check_shapes(north, east, times)
        lengths = [one.size for one in north]
        none = np.empty(0)
        return cls(
            np.concatenate([none, *north]),
            np.concatenate([none, *east]),
            np.concatenate([none, *times]),
            np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]),
            np.arange(len(north)) if ids is None else np.asarray(ids),
            None if groups is None else np.asarray(groups),
        )

    @classmethod
    def concat(cls, parts: Sequence[Trips]) -> Trips:
        """Concatenate sets of trips; trips with the same id and driver become pieces of one trip."""
        if not parts:
            raise InvalidParameter("parts must have at least one set of trips; the list is empty.", parameter="parts")
        lengths = np.concatenate([part.lengths for part in parts])
        notes: Counter[str] = Counter()
        for part in parts:
            notes.update(part.notes)
        lat, lon, time_s = (
            np.concatenate([getattr(part, name) for part in parts]) for name in ("lat", "lon", "time_s")
        )
        return cls(
            lat,
            lon,
            time_s,
            np.concatenate([[0], np.cumsum(lengths)]),
            join_names([part.ids for part in parts]),
            join_groups([part.groups for part in parts]),
            tuple(skip for part in parts for skip in part.skipped),
            notes,
            np.concatenate([part.pieces for part in parts]),
        )

    @property
    def n_fixes(self) -> int:
        """Number of fixes n."""
        return int(self.lat.size)

    @property
    def lengths(self) -> IntArray:
        """Number of fixes (N,) of each trip."""
        return np.diff(self.offsets)

    @property
    def trip_of_fix(self) -> IntArray:
        """Trip (n,) of each fix."""
        return np.repeat(np.arange(len(self)), self.lengths)

    @property
    def cut(self) -> NDArray[np.bool_]:
        """Mask (N,) of the trips that are pieces: the id and driver are not unique, or the piece number is not 0."""
        trip = index_trips(self.ids, self.groups)
        return np.asarray((np.bincount(trip)[trip] > 1) | (self.pieces > 0))

    def subset(self, index: Subset) -> Trips:
        """Return the trips selected by a slice, a mask or an index array; `skipped` and `notes` are dropped."""
        chosen = as_index_array(index, len(self))
        lengths = self.lengths[chosen]
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        rows = np.arange(offsets[-1]) + np.repeat(self.offsets[chosen] - offsets[:-1], lengths)
        groups = None if self.groups is None else self.groups[chosen]
        fixes = self.lat[rows], self.lon[rows], self.time_s[rows]
        return Trips(*fixes, offsets, self.ids[chosen], groups, pieces=self.pieces[chosen])

    def to_parquet(self, path: str | PathLike[str]) -> None:
        """Write one row per fix (trip, piece, time, lat, lon[, driver]), atomically; `read_trips` restores the trips.

        Pieces of a trip remain pieces. Trips of different drivers with the same id are renamed by `read_trips`.
        """
        from limiirl.roads.traces.tables import write_parquet

        write_parquet(self, path)

    def __len__(self) -> int:
        return int(self.offsets.size - 1)

    @overload
    def __getitem__(self, index: int) -> tuple[FloatArray, FloatArray, FloatArray]: ...

    @overload
    def __getitem__(self, index: Subset) -> Trips: ...

    def __getitem__(self, index: int | Subset) -> tuple[FloatArray, FloatArray, FloatArray] | Trips:
        if not isinstance(index, int | np.integer):
            return self.subset(index)
        i = int(as_index_array([int(index)], len(self))[0])
        rows = slice(self.offsets[i], self.offsets[i + 1])
        return self.lat[rows], self.lon[rows], self.time_s[rows]

    def __iter__(self) -> Iterator[tuple[FloatArray, FloatArray, FloatArray]]:
        return (self[i] for i in range(len(self)))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Trips):
            return NotImplemented
        data = [part.name for part in fields(self) if part.name not in ("skipped", "notes")]
        return all(same_arrays(getattr(self, name), getattr(other, name)) for name in data)

    def __hash__(self) -> int:
        return hash((self.lat.tobytes(), self.offsets.tobytes()))

    def __repr__(self) -> str:
        lines = [f"Trips: {_format_count(len(self), 'trip')}, {_format_count(self.n_fixes, 'fix', 'fixes')}"]
        if len(self):
            lengths = self.lengths
            inside = np.ones(self.n_fixes, dtype=np.bool_)
            inside[self.offsets[:-1]] = False
            steps = np.diff(self.time_s, prepend=0.0)[inside]
            step = f", median step {np.median(steps):g} s" if steps.size else ""
            lines.append(f"  fixes     {lengths.min():,} to {lengths.max():,} per trip, median {np.median(lengths):g}")
            lines.append(f"  times     {self.time_s.min():.10g} to {self.time_s.max():.10g} s{step}")
            lines.append(f"  latitude  {self.lat.min():.5f} to {self.lat.max():.5f}")
            lines.append(f"  longitude {self.lon.min():.5f} to {self.lon.max():.5f}")
        if self.groups is not None:
            lines.append(f"  drivers   {np.unique(self.groups).size:,}")
        if self.skipped:
            what = ("trip",) if all(skip.trip for skip in self.skipped) else ("trip or row", "trips or rows")
            lines.append(
                f"  skipped   {_format_count(len(self.skipped), *what)}; first reason: {self.skipped[0].reason}"
            )
        lines += [f"  repaired  {reason}: {count:,}" for reason, count in self.notes.items()]
        return "\n".join(lines)
