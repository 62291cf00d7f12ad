"""The rules of `Trips`, and the lines that they print of themselves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from limiirl.errors import InvalidParameter, InvalidTrips

if TYPE_CHECKING:
    from limiirl.roads.traces.trips import Trips

Float = NDArray[np.float64]
Int = NDArray[np.int64]


def numbers(values: object, name: str) -> Float:
    """Return numbers in one dimension as float64, or say what they are instead."""
    array = np.asarray(values)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iuf"):
        raise InvalidTrips(f"{name} must be numbers in one dimension; it has {array.dtype}, shape {array.shape}.")
    return array.astype(np.float64, copy=False)


def offsets(values: object, n: int) -> Int:
    """Check that `values` cuts n fixes into trips of at least one fix each.

    Examples
    --------
    >>> offsets([0, 2, 2, 5], 5)
    Traceback (most recent call last):
    limiirl.errors.InvalidTrips: trip 1 has no fixes; offsets[1] is 2 and offsets[2] is 2. Leave it out.
    """
    array = np.asarray(values)
    if array.ndim != 1 or array.size == 0 or array.dtype.kind not in "iu":
        raise InvalidTrips(f"offsets must be N + 1 whole numbers; they have {array.dtype}, shape {array.shape}.")
    array = array.astype(np.int64, copy=False)
    if array[0] != 0 or array[-1] != n:
        raise InvalidTrips(f"offsets must begin with 0 and end with {n} fixes; they are {array[0]} to {array[-1]}.")
    short = np.diff(array) <= 0
    if short.any():
        i = int(np.argmax(short))
        raise InvalidTrips(
            f"trip {i} has no fixes; offsets[{i}] is {array[i]} and offsets[{i + 1}] is {array[i + 1]}. Leave it out."
        )
    return array


def names(values: object, what: str, n: int) -> NDArray[Any]:
    """Check one name a trip: integers or strings."""
    array = np.asarray(values)
    if array.shape != (n,):
        raise InvalidTrips(f"{what} must have one entry a trip; got shape {array.shape} for {n} trips.")
    if array.size == 0:
        return array.astype(np.int64) if array.dtype.kind not in "U" else array
    if array.dtype.kind not in "iuU":
        raise InvalidTrips(f"{what} must be integers or strings; they have {array.dtype}. Convert them first.")
    if array.dtype.kind == "U" or array.max() > np.iinfo(np.int64).max:
        return array.astype(np.str_, copy=False)
    return array.astype(np.int64, copy=False)


def pieces(values: object, ids: NDArray[Any], groups: NDArray[Any] | None) -> Int:
    """Check one number a trip, or number trips of one id and one driver as they come; also those that share a number.

    Examples
    --------
    >>> pieces(None, np.array(["a", "b", "a"]), None), pieces([3, 0, 3], np.array(["a", "b", "a"]), None)
    (array([0, 0, 1]), array([0, 0, 1]))
    >>> pieces([4, 0, 3], np.array(["a", "b", "a"]), None)
    array([4, 0, 3])
    """
    trip = numbered(ids, groups)
    order = np.argsort(trip, kind="stable")
    counts = np.bincount(trip)
    number = np.empty(trip.size, dtype=np.int64)
    number[order] = np.arange(trip.size) - np.repeat(np.cumsum(counts) - counts, counts)
    if values is None:
        return number
    array = np.asarray(values)
    if array.shape != trip.shape or (array.size and (array.dtype.kind not in "iu" or array.min() < 0)):
        raise InvalidTrips(
            f"pieces must be one whole number from 0 a trip; they have {array.dtype}, shape {array.shape} for "
            f"{trip.size} trips. Leave them out to have them numbered."
        )
    array = array.astype(np.int64)
    order = np.lexsort((array, trip))
    same = (np.diff(trip[order]) == 0) & (np.diff(array[order]) == 0)
    return np.where(np.isin(trip, trip[order][1:][same]), number, array)


def numbered(ids: NDArray[Any], groups: NDArray[Any] | None) -> Int:
    """Return a number (N,) from 0 for each id and driver.

    Examples
    --------
    >>> numbered(np.array(["a", "b", "a"]), np.array([1, 1, 2]))
    array([0, 2, 1])
    """
    _, trip = np.unique(ids, return_inverse=True)
    if groups is not None:
        _, driver = np.unique(groups, return_inverse=True)
        _, trip = np.unique(trip * (driver.max(initial=0) + 1) + driver, return_inverse=True)
    return trip.astype(np.int64)


def fixes(arrays: dict[str, Any]) -> None:
    """Check that fixes are as many as they should be, lie on the globe, and that time never falls within a trip."""
    lat, lon, time_s = arrays["lat"], arrays["lon"], arrays["time_s"]
    if not lat.size == lon.size == time_s.size:
        raise InvalidTrips(
            f"lat, lon and time_s must have one entry a fix; they have {lat.size}, {lon.size} and {time_s.size}."
        )
    for name, most in (("lat", 90.0), ("lon", 180.0), ("time_s", np.inf)):
        values = arrays[name]
        wrong = ~(np.abs(values) <= most) | np.isinf(values)
        if wrong.any():
            i = int(np.argmax(wrong))
            rule = "finite" if name == "time_s" else f"degrees within {most:g} of 0"
            hint = " Are latitude and longitude swapped?" if name == "lat" and abs(lon[i]) <= 90.0 else ""
            raise InvalidTrips(
                f"{place(arrays, i)}: {name} is {values[i]}; it must be {rule}.{hint} Leave the fix out."
            )
    falls = np.flatnonzero(np.diff(time_s) < 0.0) + 1
    falls = falls[~np.isin(falls, arrays["offsets"])]
    if falls.size:
        i = int(falls[0])
        raise InvalidTrips(
            f"{place(arrays, i)}: time_s falls from {time_s[i - 1]:.3f} to {time_s[i]:.3f}. "
            "Sort the fixes of a trip by time."
        )


def place(arrays: dict[str, Any], fix: int) -> str:
    """Name a fix for an error message.

    Examples
    --------
    >>> place({"offsets": np.array([0, 2, 5]), "ids": np.array(["a", "b"])}, 3)
    "trip 1 (id 'b'), fix 1"
    """
    trip = int(np.searchsorted(arrays["offsets"], fix, side="right")) - 1
    name = arrays["ids"][trip].item()
    return f"trip {trip}{'' if name == trip else f' (id {name!r})'}, fix {fix - int(arrays['offsets'][trip])}"


def alike(lat: Sequence[Float], lon: Sequence[Float], time_s: Sequence[Float]) -> None:
    """Check that lists of lists have the same shape."""
    if not len(lat) == len(lon) == len(time_s):
        raise InvalidTrips(
            f"lat, lon and time_s must have one list a trip; they have {len(lat)}, {len(lon)} and {len(time_s)}."
        )
    for i, parts in enumerate(zip(lat, lon, time_s, strict=True)):
        sizes = [part.size for part in parts]
        if len(set(sizes)) > 1 or any(part.ndim != 1 for part in parts):
            raise InvalidTrips(
                f"trip {i} has {sizes[0]} latitudes, {sizes[1]} longitudes and {sizes[2]} times; "
                "one of each makes a fix."
            )


def as_index_array(index: Any, n: int) -> Int:
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
            f"Trips are selected by a slice, a mask or integers in one dimension; got {array.dtype}, {array.shape}."
        )
    if array.dtype.kind == "b":
        if array.size != n:
            raise InvalidParameter(f"A mask must have one entry a trip, {n}; this one has {array.size}.")
        return np.flatnonzero(array)
    outside = (array >= n) | (array < -n)
    if outside.any():
        raise IndexError(f"there is no trip {array[np.argmax(outside)]} among {n}; count from 0.")
    return array.astype(np.int64) % max(n, 1)


def joined_names(parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Join ids or groups of several sets; where one set has text and another numbers, all become text."""
    kinds = {part.dtype.kind for part in parts if part.size}
    if len(kinds) > 1:
        return np.concatenate([part.astype(np.str_) for part in parts])
    return np.concatenate([part for part in parts if part.size] or [np.empty(0, dtype=np.int64)])


def joined_groups(parts: Sequence[NDArray[Any] | None]) -> NDArray[Any] | None:
    """Join the drivers of several sets; all must have them, or none."""
    known = [part for part in parts if part is not None]
    if known and len(known) < len(parts):
        absent = next(i for i, part in enumerate(parts) if part is None)
        raise InvalidTrips(
            f"part {absent} does not say who drove (groups), while others do. Give groups to all or none."
        )
    return joined_names(known) if known else None


def summary(trips: Trips) -> str:
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
