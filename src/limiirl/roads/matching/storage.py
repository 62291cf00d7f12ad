"""One npz file for matched trips; and the rules that their arrays keep."""

from __future__ import annotations

from dataclasses import fields
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np

from limiirl.archives import Kind, read_archive, write_archive
from limiirl.errors import InvalidFile, InvalidTrips

if TYPE_CHECKING:
    from limiirl.roads.matching.matches import Matches

KIND = Kind("limiirl.matches", 1, "matched trips", "Matches.save or `limiirl roads match`")
WORDS = ("reasons", "settings")


def save(matches: Matches, path: str | PathLike[str]) -> None:
    """Write matches to `path`; see `Matches.save`."""
    arrays = {part.name: getattr(matches, part.name) for part in fields(matches) if part.name not in WORDS}
    words: dict[str, Any] = {name: dict(getattr(matches, name)) for name in WORDS}
    for name in ("ids", "groups"):
        if arrays[name] is None or arrays[name].dtype.kind == "U":
            words[name] = None if arrays[name] is None else arrays[name].tolist()
            del arrays[name]
    write_archive(path, KIND, words, arrays)


def load(cls: type[Matches], path: str | PathLike[str]) -> Matches:
    """Read what `save` wrote; a file that is truncated or foreign is an `InvalidFile` that says so.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> from limiirl.roads import Matches, Trips
    >>> from limiirl.roads.matching.matches import Piece, TripMatch
    >>> trips = Trips.from_lists([[41.15, 41.16]], [[-8.63, -8.63]], ids=["a"])
    >>> piece = Piece(0, 1, np.array([0]), 1.0)
    >>> match = TripMatch((piece,), np.zeros(2, dtype=np.int64), np.zeros(2), np.zeros(2))
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "matches.npz"
    >>> Matches.from_trips(trips, [match]).save(path)
    >>> Matches.load(path).ids
    array(['a'], dtype='<U1')
    """
    header, arrays = read_archive(path, KIND)
    try:
        words: dict[str, Any] = {name: header[name] for name in (*WORDS, "ids", "groups") if name in header}
        for name in ("ids", "groups"):
            if words.get(name) is not None:
                words[name] = np.asarray(words[name], dtype=np.str_)
        return cls(**(words | arrays))
    except (KeyError, TypeError, ValueError, InvalidTrips) as error:
        raise InvalidFile(f"{path} is damaged: {error!s:.300} Match the trips again.") from error


def same(one: Any, two: Any) -> bool:
    """Return whether two fields are equal; NaN, which stands where a fix is unmatched, equals itself."""
    if not isinstance(one, np.ndarray) or not isinstance(two, np.ndarray):
        return bool(one == two) if type(one) is type(two) else False
    return np.array_equal(one, two, equal_nan=one.dtype.kind == "f" and two.dtype.kind == "f")


def check(matches: Matches) -> None:
    """Check that lengths fit; the content is the matcher's word."""
    m, n_fixes = matches.offsets.size - 1, matches.fix_segment.size
    if m < 0 or matches.offsets[0] != 0 or matches.offsets[-1] != matches.segments.size:
        raise InvalidTrips(f"offsets must run from 0 to {matches.segments.size} segments.")
    if np.any(np.diff(matches.offsets) < 1):
        raise InvalidTrips(f"piece {int(np.argmax(np.diff(matches.offsets) < 1))} has no segments; leave it out.")
    for name, shape in {
        "trip": (m,), "ids": (m,), "groups": (m,), "confidence": (m,), "whole": (m,), "span": (m, 2),
        "fix_along_m": (n_fixes,), "fix_distance_m": (n_fixes,),
    }.items():  # fmt: skip
        array = getattr(matches, name)
        if array is not None and array.shape != shape:
            raise InvalidTrips(f"{name} must have shape {shape}; it has {array.shape}.")
    low = int(matches.segments.min(initial=0))
    if low < 0:
        raise InvalidTrips(f"segments must be numbers from 0 on; one is {low}.")
    if matches.fix_segment.min(initial=0) < -1:
        raise InvalidTrips(f"fix_segment must be from -1 on; one is {matches.fix_segment.min()}.")
    if matches.fix_offsets.ndim != 1 or not matches.fix_offsets.size or matches.fix_offsets[0] != 0:
        raise InvalidTrips("fix_offsets must be a row of numbers that begins with 0.")
    if matches.fix_offsets[-1] != n_fixes:
        raise InvalidTrips(f"fix_offsets must end with {n_fixes} fixes; they end with {matches.fix_offsets[-1]}.")
    if np.any(np.diff(matches.fix_offsets) < 0):
        raise InvalidTrips("fix_offsets must not fall.")
    if matches.trip.size and not 0 <= matches.trip.min() <= matches.trip.max() < matches.fix_offsets.size - 1:
        raise InvalidTrips(f"trip must name one of {matches.fix_offsets.size - 1} trips.")
    first, last = matches.span.T
    if np.any((first < 0) | (first > last) | (last >= n_fixes)):
        raise InvalidTrips(f"span must be a first and a last of {n_fixes} fixes, in order.")
