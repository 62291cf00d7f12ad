"""`Trips`: recorded GPS traces as one frozen value, and its rules."""

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
    """Return numbers in one dimension as float64, or say what they are instead."""
    array = np.asarray(values)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iuf"):
        raise InvalidTrips(
            f"{name} must be numbers in one dimension; it has {array.dtype}, shape {array.shape}.", parameter=name
        )
    return array.astype(np.float64, copy=False)


def check_offsets(values: object, n: int) -> IntArray:
    """Check that `values` cuts n fixes into trips of at least one fix each.

    Examples
    --------
    >>> check_offsets([0, 2, 2, 5], 5)
    Traceback (most recent call last):
    limiirl.errors.InvalidTrips: trip 1 has no fixes; offsets[1] is 2 and offsets[2] is 2. Leave it out.
    """
    array = np.asarray(values)
    if array.ndim != 1 or array.size == 0 or array.dtype.kind not in "iu":
        raise InvalidTrips(
            f"offsets must be N + 1 whole numbers; they have {array.dtype}, shape {array.shape}.", parameter="offsets"
        )
    array = array.astype(np.int64, copy=False)
    if array[0] != 0 or array[-1] != n:
        raise InvalidTrips(
            f"offsets must begin with 0 and end with {n} fixes; they are {array[0]} to {array[-1]}.",
            parameter="offsets",
            value=(int(array[0]), int(array[-1])),
        )
    short = np.diff(array) <= 0
    if short.any():
        i = int(np.argmax(short))
        raise InvalidTrips(
            f"trip {i} has no fixes; offsets[{i}] is {array[i]} and offsets[{i + 1}] is {array[i + 1]}. Leave it out.",
            parameter="offsets",
            value=int(array[i + 1]),
            index=i,
        )
    return array


def check_names(values: object, what: str, n: int) -> NDArray[Any]:
    """Check one name a trip: integers or strings."""
    array = np.asarray(values)
    if array.shape != (n,):
        raise InvalidTrips(
            f"{what} must have one entry per trip; got shape {array.shape} for {n} trips.",
            parameter=what,
            value=array.shape,
        )
    if array.size == 0:
        return array.astype(np.int64) if array.dtype.kind not in "U" else array
    if array.dtype.kind not in "iuU":
        raise InvalidTrips(
            f"{what} must be integers or strings; they have {array.dtype}. Convert them first.",
            parameter=what,
            value=str(array.dtype),
        )
    if array.dtype.kind == "U" or array.max() > np.iinfo(np.int64).max:
        return array.astype(np.str_, copy=False)
    return array.astype(np.int64, copy=False)


def check_pieces(values: object, ids: NDArray[Any], groups: NDArray[Any] | None) -> IntArray:
    """Check one number a trip, or number trips of one id and one driver as they come; also those that share a number.

    Examples
    --------
    >>> check_pieces(None, np.array(["a", "b", "a"]), None), check_pieces([3, 0, 3], np.array(["a", "b", "a"]), None)
    (array([0, 0, 1]), array([0, 0, 1]))
    >>> check_pieces([4, 0, 3], np.array(["a", "b", "a"]), None)
    array([4, 0, 3])
    """
    trip = index_trips(ids, groups)
    order = np.argsort(trip, kind="stable")
    counts = np.bincount(trip)
    number = np.empty(trip.size, dtype=np.int64)
    number[order] = np.arange(trip.size) - np.repeat(np.cumsum(counts) - counts, counts)
    if values is None:
        return number
    array = np.asarray(values)
    if array.shape != trip.shape or (array.size and (array.dtype.kind not in "iu" or array.min() < 0)):
        raise InvalidTrips(
            f"pieces must be one whole number from 0 per trip; they have {array.dtype}, shape {array.shape} for "
            f"{trip.size} trips. Leave them out to have them numbered.",
            parameter="pieces",
        )
    array = array.astype(np.int64)
    order = np.lexsort((array, trip))
    same = (np.diff(trip[order]) == 0) & (np.diff(array[order]) == 0)
    return np.where(np.isin(trip, trip[order][1:][same]), number, array)


def index_trips(ids: NDArray[Any], groups: NDArray[Any] | None) -> IntArray:
    """Return a number (N,) from 0 for each id and driver.

    Examples
    --------
    >>> index_trips(np.array(["a", "b", "a"]), np.array([1, 1, 2]))
    array([0, 2, 1])
    """
    _, trip = np.unique(ids, return_inverse=True)
    if groups is not None:
        _, driver = np.unique(groups, return_inverse=True)
        _, trip = np.unique(trip * (driver.max(initial=0) + 1) + driver, return_inverse=True)
    return trip.astype(np.int64)


def check_fixes(arrays: dict[str, Any]) -> None:
    """Check that fixes are as many as they should be, lie on the globe, and that time never falls within a trip."""
    lat, lon, time_s = arrays["lat"], arrays["lon"], arrays["time_s"]
    if not lat.size == lon.size == time_s.size:
        raise InvalidTrips(
            f"lat, lon and time_s must have one entry per fix; they have {lat.size}, {lon.size} and {time_s.size}.",
            parameter="time_s",
            value=(lat.size, lon.size, time_s.size),
        )
    for name, most in (("lat", 90.0), ("lon", 180.0), ("time_s", np.inf)):
        values = arrays[name]
        wrong = ~(np.abs(values) <= most) | np.isinf(values)
        if wrong.any():
            i = int(np.argmax(wrong))
            rule = "finite" if name == "time_s" else f"degrees within {most:g} of 0"
            hint = " Are latitude and longitude swapped?" if name == "lat" and abs(lon[i]) <= 90.0 else ""
            raise InvalidTrips(
                f"{format_fix(arrays, i)}: {name} is {values[i]}; it must be {rule}.{hint} Leave the fix out.",
                parameter=name,
                value=float(values[i]),
                index=i,
            )
    falls = np.flatnonzero(np.diff(time_s) < 0.0) + 1
    falls = falls[~np.isin(falls, arrays["offsets"])]
    if falls.size:
        i = int(falls[0])
        raise InvalidTrips(
            f"{format_fix(arrays, i)}: time_s falls from {time_s[i - 1]:.3f} to {time_s[i]:.3f}. "
            "Sort the fixes of a trip by time.",
            parameter="time_s",
            value=float(time_s[i]),
            index=i,
        )


def format_fix(arrays: dict[str, Any], fix: int) -> str:
    """Name a fix for an error message.

    Examples
    --------
    >>> format_fix({"offsets": np.array([0, 2, 5]), "ids": np.array(["a", "b"])}, 3)
    "trip 1 (id 'b'), fix 1"
    """
    trip = int(np.searchsorted(arrays["offsets"], fix, side="right")) - 1
    name = arrays["ids"][trip].item()
    return f"trip {trip}{'' if name == trip else f' (id {name!r})'}, fix {fix - int(arrays['offsets'][trip])}"


def check_shapes(lat: Sequence[FloatArray], lon: Sequence[FloatArray], time_s: Sequence[FloatArray]) -> None:
    """Check that lists of lists have the same shape."""
    if not len(lat) == len(lon) == len(time_s):
        raise InvalidTrips(
            f"lat, lon and time_s must have one list per trip; they have {len(lat)}, {len(lon)} and {len(time_s)}.",
            parameter="lat",
            value=(len(lat), len(lon), len(time_s)),
        )
    for i, parts in enumerate(zip(lat, lon, time_s, strict=True)):
        sizes = [part.size for part in parts]
        if len(set(sizes)) > 1 or any(part.ndim != 1 for part in parts):
            raise InvalidTrips(
                f"trip {i} has {sizes[0]} latitudes, {sizes[1]} longitudes and {sizes[2]} times; "
                "one of each makes a fix.",
                parameter="lat",
                value=tuple(sizes),
                index=i,
            )


def as_index_array(index: Any, n: int) -> IntArray:
    """Turn a slice, a mask or indices into indices from 0 below n.

    Examples
    --------
    >>> as_index_array([True, False, True], 3).tolist(), as_index_array([-1], 3).tolist()
    ([0, 2], [2])
    """
    if isinstance(index, slice):
        return np.arange(n)[index]
    array = np.asarray(index)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iub"):
        raise InvalidParameter(
            f"Trips are selected by a slice, a mask or integers in one dimension; got {array.dtype}, {array.shape}.",
            parameter="index",
            value=str(array.dtype),
        )
    if array.dtype.kind == "b":
        if array.size != n:
            raise InvalidParameter(
                f"A mask must have one entry per trip, {n}; this one has {array.size}.",
                parameter="index",
                value=array.size,
            )
        return np.flatnonzero(array)
    outside = (array >= n) | (array < -n)
    if outside.any():
        raise IndexError(f"there is no trip {array[np.argmax(outside)]} among {n}; count from 0.")
    return array.astype(np.int64) % max(n, 1)


def join_names(parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Join ids or groups of several sets; where one set has text and another numbers, all become text."""
    kinds = {part.dtype.kind for part in parts if part.size}
    if len(kinds) > 1:
        return np.concatenate([part.astype(np.str_) for part in parts])
    return np.concatenate([part for part in parts if part.size] or [np.empty(0, dtype=np.int64)])


def join_groups(parts: Sequence[NDArray[Any] | None]) -> NDArray[Any] | None:
    """Join the drivers of several sets; all must have them, or none."""
    known = [part for part in parts if part is not None]
    if known and len(known) < len(parts):
        absent = next(i for i, part in enumerate(parts) if part is None)
        raise InvalidTrips(
            f"part {absent} does not say who drove (groups), while others do. Give groups to all or none.",
            parameter="parts",
            index=absent,
        )
    return join_names(known) if known else None


def describe_trips(trips: Trips) -> str:
    """Describe trips in a few lines."""
    lines = [f"Trips: {_count(len(trips), 'trip')}, {_count(trips.n_fixes, 'fix', 'fixes')}"]
    if len(trips):
        lengths = trips.lengths
        inside = np.ones(trips.n_fixes, dtype=np.bool_)
        inside[trips.offsets[:-1]] = False
        steps = np.diff(trips.time_s, prepend=0.0)[inside]
        step = f", median step {np.median(steps):g} s" if steps.size else ""
        lines.append(f"  fixes     {lengths.min():,} to {lengths.max():,} a trip, median {np.median(lengths):g}")
        lines.append(f"  times     {trips.time_s.min():.10g} to {trips.time_s.max():.10g} s{step}")
        lines.append(f"  latitude  {trips.lat.min():.5f} to {trips.lat.max():.5f}")
        lines.append(f"  longitude {trips.lon.min():.5f} to {trips.lon.max():.5f}")
    if trips.groups is not None:
        lines.append(f"  drivers   {np.unique(trips.groups).size:,}")
    if trips.skipped:
        what = ("trip",) if all(skip.trip for skip in trips.skipped) else ("trip or row", "trips or rows")
        lines.append(f"  skipped   {_count(len(trips.skipped), *what)}, the first because {trips.skipped[0].reason}")
    for reason, count in trips.notes.items():
        lines.append(f"  mended    {reason}: {count:,}")
    return "\n".join(lines)


def _count(n: int, one: str, many: str = "") -> str:
    return f"{n:,} {one if n == 1 else many or one + 's'}"


Subset = slice | Sequence[int] | Sequence[bool] | NDArray[np.integer] | NDArray[np.bool_]


@dataclass(frozen=True)
class SkippedTrip:
    """A trip that could not be read, or a part of one.

    Attributes
    ----------
    id : str
        Its name in the file, "" where even that is unreadable.
    row : int
        Which trip of the file it was, or which row of its table, counted from 0; -1 where that makes no sense.
    reason : str
        What is wrong with it.
    trip : bool
        Whether it was one trip. A row of a table with a fix a row is less than one, and a file may be more.

    Examples
    --------
    >>> SkippedTrip("7", 3, "it has no fixes")
    SkippedTrip(id='7', row=3, reason='it has no fixes')
    """

    id: str
    row: int
    reason: str
    trip: bool = field(default=True, repr=False)


@dataclass(frozen=True, eq=False, repr=False)
class Trips:
    """N recorded trips, their fixes one after the other in flat arrays.

    Read them with `limiirl.roads.read_trips`, or build them with `from_lists`. Arrays are read-only. ``trips[3]`` is
    one trip as (lat, lon, time_s); slices, masks and index arrays select several; `concat` joins sets.

    Attributes
    ----------
    lat, lon : (n,)
        Of all fixes, in degrees (WGS84).
    time_s : (n,)
        In seconds; within a trip it never falls. Files with dates give seconds since 1970, in UTC.
    offsets : (N + 1,) int64
        Trip i owns the fixes ``offsets[i]:offsets[i + 1]``, at least one of them.
    ids : (N,)
        Names of the trips, integers or strings.
    groups : (N,) or None
        Who drove, integers or strings.
    skipped : tuple of SkippedTrip
        What the file held besides, and why it is not here.
    notes : dict
        What was mended on the way in: counts by reason.
    pieces : (N,) int64
        Which piece of its trip each one is, where trips were cut: 0, 1, 2, ... among those of one id and one driver. No
        two of these share a number, so that nothing can join again what was cut. Numbered in order if not given.

    Examples
    --------
    >>> trips = Trips.from_lists([[41.15, 41.16], [41.1]], [[-8.63, -8.62], [-8.6]], ids=["a", "b"])
    >>> trips
    Trips: 2 trips, 3 fixes
      fixes     1 to 2 a trip, median 1.5
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
    pieces: IntArray = None  # type: ignore[assignment] # always an array once it is made

    def __post_init__(self) -> None:
        """Check every rule once and take private, read-only copies."""
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
        """Build from one list of latitudes and one of longitudes a trip.

        Parameters
        ----------
        lat, lon : N sequences of float
            In degrees, as many of one as of the other.
        time_s : N sequences of float, optional
            In seconds; 0, `step_s`, 2 `step_s`, ... by default.
        step_s : float
            Seconds between fixes where `time_s` is not given.
        ids : (N,), optional
            0, 1, 2, ... by default.
        groups : (N,), optional
            Who drove.

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
        """Join several sets, one after the other; trips of one id and one driver become pieces of each other.

        Examples
        --------
        >>> one = Trips.from_lists([[41.1]], [[-8.6]])
        >>> len(Trips.concat([one, one]))
        2
        """
        if not parts:
            raise InvalidParameter(
                "Trips.concat needs at least one set of trips; the list is empty.", parameter="parts"
            )
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
        """Fixes (N,) of each trip."""
        return np.diff(self.offsets)

    @property
    def trip_of_fix(self) -> IntArray:
        """Trip (n,) to which each fix belongs."""
        return np.repeat(np.arange(len(self)), self.lengths)

    @property
    def cut(self) -> NDArray[np.bool_]:
        """Which (N,) are pieces of a trip: those whose id and driver others share, and all with a number above 0.

        Examples
        --------
        >>> line = [41.15, 41.16]
        >>> Trips.from_lists([line] * 3, [[-8.63, -8.62]] * 3, ids=["a", "b", "a"]).cut
        array([ True, False,  True])
        """
        trip = index_trips(self.ids, self.groups)
        return np.asarray((np.bincount(trip)[trip] > 1) | (self.pieces > 0))

    def subset(self, index: Subset) -> Trips:
        """Return the trips of a slice, a mask or an index array; what was skipped in reading is not carried along."""
        chosen = as_index_array(index, len(self))
        lengths = self.lengths[chosen]
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        rows = np.arange(offsets[-1]) + np.repeat(self.offsets[chosen] - offsets[:-1], lengths)
        groups = None if self.groups is None else self.groups[chosen]
        fixes = self.lat[rows], self.lon[rows], self.time_s[rows]
        return Trips(*fixes, offsets, self.ids[chosen], groups, pieces=self.pieces[chosen])

    def to_parquet(self, path: str | PathLike[str]) -> None:
        """Write one row per fix (trip, piece, time, lat, lon[, driver]), atomically; `read_trips` gives them back.

        What was cut stays cut: pieces of a trip come back as pieces. Trips of one id and several drivers come back
        under an id each, as they do from any file.

        Examples
        --------
        >>> import tempfile, pathlib
        >>> from limiirl.roads import read_trips
        >>> trips = Trips.from_lists([[41.15, 41.16]], [[-8.63, -8.62]], ids=["a"], groups=["ann"])
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "trips.parquet"
        >>> trips.to_parquet(path)
        >>> read_trips(path) == trips
        True
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
        return describe_trips(self)
