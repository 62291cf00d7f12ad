"""`Matches`: matched paths of segments with confidences; validation and file format."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from os import PathLike
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from limiirl._io import FileFormat, read_archive, write_archive
from limiirl._typing import FloatArray, IntArray
from limiirl.demos import Demonstrations
from limiirl.errors import InvalidDemos, InvalidFile, InvalidTrips
from limiirl.roads.network import freeze

if TYPE_CHECKING:
    from limiirl.roads.network import RoadNetwork
    from limiirl.roads.traces.trips import Trips


FORMAT = FileFormat("limiirl.matches", 1, "matched trips", "Matches.save or `limiirl roads match`")
UNMATCHED = -1
_IN_HEADER = ("reasons", "settings")


class MatchedPiece(NamedTuple):
    """Contiguous matched part of a trip."""

    first: int  # index of the first fix within the trip
    last: int  # index of the last fix within the trip
    segments: IntArray  # (k,): the path; consecutive segments are connected by a legal turn
    confidence: float  # in [0, 1]


class TripMatch(NamedTuple):
    """Match of one trip of n fixes."""

    pieces: tuple[MatchedPiece, ...]  # in the order of their fixes; empty if nothing was matched
    segment: IntArray  # (n,): segment of each fix; -1 for unmatched fixes
    along_m: FloatArray  # (n,): metres from the start of the segment; NaN for unmatched fixes
    distance_m: FloatArray  # (n,): metres from the fix to the segment; NaN for unmatched fixes
    reasons: tuple[str, ...] = ()  # reasons for unmatched parts


@dataclass(frozen=True, eq=False, repr=False)
class Matches:
    """M matched pieces of N trips; a trip may have several pieces, and an unmatched trip has none.

    Attributes
    ----------
    segments, offsets : (n,) int64, (M + 1,) int64
        Piece i has the path ``segments[offsets[i]:offsets[i + 1]]``.
    trip : (M,) int64
        Index of the trip of each piece.
    ids, groups : (M,)
        Id and driver of the trip of each piece; groups is None if drivers are unknown.
    confidence : (M,)
        Expected fraction of the fixes that are matched to the correct segment under the model.
    whole : (M,) bool
        True if the piece contains the first and the last fix of its trip.
    span : (M, 2) int64
        Index of the first and the last fix of each piece among the fixes of all trips.
    fix_segment : (m,) int64
        Segment of every fix of all trips; -1 for unmatched fixes.
    fix_along_m, fix_distance_m : (m,)
        Distances in metres from the start of the segment, and from the fix to the segment; NaN for unmatched fixes.
    fix_offsets : (N + 1,) int64
        Trip i has the fixes ``fix_offsets[i]:fix_offsets[i + 1]``.
    reasons : dict
        Counts of the reasons for unmatched parts.
    settings : dict
        Method, settings, source of `sigma_m` ("sigma_from"), and fingerprint of the network.
    """

    segments: IntArray
    offsets: IntArray
    trip: IntArray
    ids: NDArray[Any]
    groups: NDArray[Any] | None
    confidence: FloatArray
    whole: NDArray[np.bool_]
    span: IntArray
    fix_segment: IntArray
    fix_along_m: FloatArray
    fix_distance_m: FloatArray
    fix_offsets: IntArray
    reasons: Mapping[str, int] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Validate the arrays and replace them by read-only copies."""
        for part in fields(self):
            value = getattr(self, part.name)
            if part.name in _IN_HEADER:
                object.__setattr__(self, part.name, dict(value))
            elif value is not None:
                object.__setattr__(self, part.name, freeze(np.array(value)))
        _check_shapes(self)
        _check_values(self)

    @classmethod
    def from_trips(
        cls,
        trips: Trips,
        matches: Sequence[TripMatch],
        *,
        whole: NDArray[np.bool_] | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> Matches:
        """Combine the matches of N trips.

        Parameters
        ----------
        trips : Trips
        matches : sequence of N TripMatch
        whole : (N,) bool, optional
            True for complete trips, such as `CleanedTrips.whole`; by default ``~trips.cut``.
        settings : dict, optional
            See `Matches`.
        """
        if len(matches) != len(trips):
            raise InvalidTrips.of("matches", len(matches), f"must have one entry per trip ({len(trips)})")
        entire = ~trips.cut if whole is None else np.asarray(whole, dtype=np.bool_)
        pieces = [(i, piece) for i, match in enumerate(matches) for piece in match.pieces]
        trip = np.array([i for i, _ in pieces], dtype=np.int64)
        last = np.diff(trips.offsets)[trip] - 1
        within = np.array([(piece.first, piece.last) for _, piece in pieces], dtype=np.int64).reshape(-1, 2)
        sizes = [piece.segments.size for _, piece in pieces]
        none, empty = np.empty(0, dtype=np.int64), np.empty(0)
        return cls(
            segments=np.concatenate([none, *(piece.segments for _, piece in pieces)]).astype(np.int64),
            offsets=np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
            trip=trip,
            ids=trips.ids[trip],
            groups=None if trips.groups is None else trips.groups[trip],
            confidence=np.array([piece.confidence for _, piece in pieces], dtype=np.float64),
            whole=entire[trip] & (within[:, 0] == 0) & (within[:, 1] == last),
            span=within + trips.offsets[trip][:, None],
            fix_segment=np.concatenate([none, *(match.segment for match in matches)]),
            fix_along_m=np.concatenate([empty, *(match.along_m for match in matches)]),
            fix_distance_m=np.concatenate([empty, *(match.distance_m for match in matches)]),
            fix_offsets=trips.offsets,
            reasons=dict(Counter(reason for match in matches for reason in match.reasons)),
            settings={} if settings is None else settings,
        )

    def save(self, path: str | PathLike[str]) -> None:
        """Write the matches to one npz file, atomically; `Matches.load` returns equal matches."""
        arrays = {part.name: getattr(self, part.name) for part in fields(self) if part.name not in _IN_HEADER}
        header: dict[str, Any] = {name: dict(getattr(self, name)) for name in _IN_HEADER}
        for name in ("ids", "groups"):
            if arrays[name] is None or arrays[name].dtype.kind == "U":
                header[name] = None if arrays[name] is None else arrays[name].tolist()
                del arrays[name]
        write_archive(path, FORMAT, header, arrays)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Matches:
        """Read matches written by `save`; raise `InvalidFile` if the file is corrupted or has other content."""
        header, arrays = read_archive(path, FORMAT)
        try:
            words: dict[str, Any] = {name: header[name] for name in (*_IN_HEADER, "ids", "groups") if name in header}
            for name in ("ids", "groups"):
                if words.get(name) is not None:
                    words[name] = np.asarray(words[name], dtype=np.str_)
            return cls(**(words | arrays))
        except (KeyError, TypeError, ValueError, InvalidTrips) as error:
            raise InvalidFile.at(path, f"is corrupted: {error!s:.300} Match the trips again.") from error

    @property
    def lengths(self) -> IntArray:
        """Number of segments (M,) of each piece."""
        return np.diff(self.offsets)

    @property
    def n_whole(self) -> int:
        """Number of trips that were matched completely."""
        return int(self.whole.sum())

    def path(self, i: int) -> IntArray:
        """Return the segments of piece i; negative i counts from the end."""
        if not -len(self) <= i < len(self):
            raise IndexError(f"piece {i} is out of range for {len(self)} pieces.")
        i %= len(self)
        return self.segments[self.offsets[i] : self.offsets[i + 1]]

    def lengths_m(self, network: RoadNetwork) -> FloatArray:
        """Return the path length (M,) in metres of each matched piece of a trip, with whole first and last segments."""
        total = np.concatenate([[0.0], np.cumsum(network.length_m[self.on(network)])])
        return np.asarray(np.diff(total[self.offsets]))

    def geometry(self, network: RoadNetwork, i: int, *, clip: bool = False) -> FloatArray:
        """Return the polyline (k, 2) of piece i as latitudes and longitudes.

        With `clip`, it begins and ends at the projections of the first and the last fix, instead of at nodes.
        """
        self.on(network)
        path = self.path(i)
        nodes = np.concatenate([network.tail[path[:1]], network.head[path]])
        line = np.column_stack([network.lat[nodes], network.lon[nodes]])
        if clip:
            low, high = self.span[i]
            first, last = (
                self.fix_along_m[fix] / network.length_m[segment] if self.fix_segment[fix] == segment else default
                for fix, segment, default in ((low, path[0], 0.0), (high, path[-1], 1.0))
            )
            first = min(first, last) if path.size == 1 else first
            start, end = line[[0, 1]], line[[-2, -1]]
            line[0], line[-1] = start[0] + first * (start[1] - start[0]), end[0] + last * (end[1] - end[0])
        return line

    def selection(
        self,
        min_segments: int = 10,
        max_segments: int = 300,
        min_confidence: float = 0.0,
        whole: bool = True,
        drop_cycles: bool = False,
    ) -> tuple[IntArray, dict[str, int]]:
        """Return the selected pieces, and the number of rejected pieces by the first rule that applies."""
        rules = {
            "not matched completely": ~self.whole & whole,
            f"fewer than {min_segments} segments": self.lengths < min_segments,
            f"more than {max_segments} segments": self.lengths > max_segments,
            f"confidence below {min_confidence:g}": self.confidence < min_confidence,
            "repeated segment": self.cycles() & drop_cycles,
        }
        left, counts = np.ones(len(self), dtype=np.bool_), {}
        for reason, broken in rules.items():
            counts[reason] = int(np.sum(left & broken))
            left &= ~broken
        return np.flatnonzero(left), {reason: count for reason, count in counts.items() if count}

    def demonstrations(
        self,
        min_segments: int = 10,
        max_segments: int = 300,
        min_confidence: float = 0.0,
        whole: bool = True,
        drop_cycles: bool = False,
    ) -> Demonstrations:
        """Return the selected paths as demonstrations: states are segments, groups are drivers, ids are trip ids.

        Parameters
        ----------
        min_segments, max_segments : int
            Minimum and maximum number of segments of a path.
        min_confidence : float
            Minimum confidence of a path.
        whole : bool
            Exclude trips that were not matched completely.
        drop_cycles : bool
            Exclude paths with a repeated segment.
        """
        chosen, dropped = self.selection(min_segments, max_segments, min_confidence, whole, drop_cycles)
        if not chosen.size:
            why = "; ".join(f"{count}: {reason}" for reason, count in dropped.items()) or "nothing was matched"
            message = f"None of {len(self)} matched pieces is selected ({why}). Relax the limits."
            raise InvalidDemos(message, parameter="matches", value=dropped)
        lengths = self.lengths[chosen]
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        rows = np.arange(offsets[-1]) + np.repeat(self.offsets[chosen] - offsets[:-1], lengths)
        groups = None if self.groups is None else self.groups[chosen]
        return Demonstrations(self.segments[rows], offsets, groups=groups, ids=self.ids[chosen])

    def cycles(self) -> NDArray[np.bool_]:
        """Return a mask (M,) of the pieces with a repeated segment."""
        piece = np.repeat(np.arange(len(self)), self.lengths)
        order = np.lexsort((self.segments, piece))
        again = (np.diff(piece[order]) == 0) & (np.diff(self.segments[order]) == 0)
        return np.isin(np.arange(len(self)), piece[order][1:][again])

    def on(self, network: RoadNetwork) -> IntArray:
        """Return all segments; raise `InvalidTrips` if the trips were matched to another network."""
        if self.segments.size and self.segments.max() >= network.n_segments:
            rule = f"network must be the network of the matches, which contain segment {self.segments.max()}"
            message = f"{rule}; got a network of {network.n_segments} segments."
            raise InvalidTrips(message, parameter="network", value=network.n_segments)
        expected = self.settings.get("network")
        if expected is not None and network.fingerprint() != expected:
            raise InvalidTrips.of("network", network.fingerprint(), f"must be the network of the matches, {expected}")
        return self.segments

    def __len__(self) -> int:
        return int(self.offsets.size - 1)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Matches):
            return NotImplemented
        return all(_equal(getattr(self, part.name), getattr(other, part.name)) for part in fields(self))

    def __hash__(self) -> int:
        return hash((self.segments.tobytes(), self.offsets.tobytes()))

    def __repr__(self) -> str:
        trips, fixes = self.fix_offsets.size - 1, self.fix_segment.size
        matched = int(np.sum(self.fix_segment != UNMATCHED))
        lines = [
            f"Matches: {len(self):,} paths with {self.segments.size:,} segments from {trips:,} trips",
            f"  complete   {self.n_whole:,} trips",
            f"  fixes      {matched:,} of {fixes:,} matched",
        ]
        if "sigma_from" in self.settings:
            lines.append(f"  noise      {self.settings['sigma_m']:.1f} m, {self.settings['sigma_from']}")
        return "\n".join(lines + [f"  dropped    {count:,}: {reason}" for reason, count in self.reasons.items()])


def _equal(a: Any, b: Any) -> bool:
    """Return True if two fields are equal; NaN equals NaN."""
    if not isinstance(a, np.ndarray) or not isinstance(b, np.ndarray):
        return bool(a == b) if type(a) is type(b) else False
    return np.array_equal(a, b, equal_nan=a.dtype.kind == "f" and b.dtype.kind == "f")


def _check_shapes(matches: Matches) -> None:
    m, n_fixes, offsets = matches.offsets.size - 1, matches.fix_segment.size, matches.offsets
    if m < 0 or offsets[0] != 0 or offsets[-1] != matches.segments.size:
        raise InvalidTrips(
            f"offsets must start with 0 and end with the number of segments, {matches.segments.size}.",
            parameter="offsets",
        )
    if np.any(np.diff(offsets) < 1):
        i = int(np.argmax(np.diff(offsets) < 1))
        raise InvalidTrips(f"Piece {i} has no segments. Omit it.", parameter="offsets", index=i)
    shapes: dict[str, tuple[int, ...]] = dict.fromkeys(("trip", "ids", "groups", "confidence", "whole"), (m,))
    shapes |= {"span": (m, 2), "fix_along_m": (n_fixes,), "fix_distance_m": (n_fixes,)}
    for name, shape in shapes.items():
        array = getattr(matches, name)
        if array is not None and array.shape != shape:
            raise InvalidTrips.of(name, array.shape, f"must have shape {shape}")


def _check_values(matches: Matches) -> None:
    n_fixes, ends = matches.fix_segment.size, matches.fix_offsets
    for name, least in (("segments", 0), ("fix_segment", UNMATCHED)):
        low = int(getattr(matches, name).min(initial=0))
        if low < least:
            raise InvalidTrips.of(name, low, f"must be at least {least}")
    if ends.ndim != 1 or not ends.size or ends[0] != 0:
        raise InvalidTrips("fix_offsets must be one-dimensional and start with 0.", parameter="fix_offsets")
    if ends[-1] != n_fixes:
        raise InvalidTrips.of("fix_offsets", int(ends[-1]), f"must end with the number of fixes, {n_fixes}")
    if np.any(np.diff(ends) < 0):
        raise InvalidTrips("fix_offsets must not decrease.", parameter="fix_offsets")
    if matches.trip.size and not 0 <= matches.trip.min() <= matches.trip.max() < ends.size - 1:
        raise InvalidTrips(f"trip must be indices from 0 to {ends.size - 2}.", parameter="trip")
    first, last = matches.span.T
    if np.any((first < 0) | (first > last) | (last >= n_fixes)):
        raise InvalidTrips(
            f"span must be the first and last fix of each piece, 0 <= first <= last < {n_fixes}.", parameter="span"
        )
