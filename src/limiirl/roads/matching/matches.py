"""`Matches`: matched paths of segments with confidences and losses, their rules and their file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from os import PathLike
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from limiirl._io import Kind, read_archive, write_archive
from limiirl._typing import FloatArray, IntArray
from limiirl.demos import Demonstrations
from limiirl.errors import InvalidDemos, InvalidFile, InvalidTrips
from limiirl.roads.network import freeze

if TYPE_CHECKING:
    from limiirl.roads.network import RoadNetwork
    from limiirl.roads.traces.trips import Trips


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
    >>> from limiirl.roads.matching.matches import MatchedPiece, TripMatch
    >>> trips = Trips.from_lists([[41.15, 41.16]], [[-8.63, -8.63]], ids=["a"])
    >>> piece = MatchedPiece(0, 1, np.array([0]), 1.0)
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
        raise InvalidFile(
            f"{path} is damaged: {error!s:.300} Match the trips again.", parameter="path", value=str(path)
        ) from error


def same(one: Any, two: Any) -> bool:
    """Return whether two fields are equal; NaN, which stands where a fix is unmatched, equals itself."""
    if not isinstance(one, np.ndarray) or not isinstance(two, np.ndarray):
        return bool(one == two) if type(one) is type(two) else False
    return np.array_equal(one, two, equal_nan=one.dtype.kind == "f" and two.dtype.kind == "f")


def check(matches: Matches) -> None:
    """Check that lengths fit; the content is the matcher's word."""
    m, n_fixes = matches.offsets.size - 1, matches.fix_segment.size
    if m < 0 or matches.offsets[0] != 0 or matches.offsets[-1] != matches.segments.size:
        raise InvalidTrips(f"offsets must run from 0 to {matches.segments.size} segments.", parameter="offsets")
    if np.any(np.diff(matches.offsets) < 1):
        raise InvalidTrips(
            f"piece {int(np.argmax(np.diff(matches.offsets) < 1))} has no segments; leave it out.",
            parameter="offsets",
            index=int(np.argmax(np.diff(matches.offsets) < 1)),
        )
    for name, shape in {
        "trip": (m,), "ids": (m,), "groups": (m,), "confidence": (m,), "whole": (m,), "span": (m, 2),
        "fix_along_m": (n_fixes,), "fix_distance_m": (n_fixes,),
    }.items():  # fmt: skip
        array = getattr(matches, name)
        if array is not None and array.shape != shape:
            raise InvalidTrips(
                f"{name} must have shape {shape}; it has {array.shape}.", parameter=name, value=array.shape
            )
    low = int(matches.segments.min(initial=0))
    if low < 0:
        raise InvalidTrips(f"segments must be numbers from 0 on; one is {low}.", parameter="segments", value=low)
    if matches.fix_segment.min(initial=0) < -1:
        raise InvalidTrips(
            f"fix_segment must be from -1 on; one is {matches.fix_segment.min()}.",
            parameter="fix_segment",
            value=int(matches.fix_segment.min()),
        )
    if matches.fix_offsets.ndim != 1 or not matches.fix_offsets.size or matches.fix_offsets[0] != 0:
        raise InvalidTrips("fix_offsets must be a row of numbers that begins with 0.", parameter="fix_offsets")
    if matches.fix_offsets[-1] != n_fixes:
        raise InvalidTrips(
            f"fix_offsets must end with {n_fixes} fixes; they end with {matches.fix_offsets[-1]}.",
            parameter="fix_offsets",
            value=int(matches.fix_offsets[-1]),
        )
    if np.any(np.diff(matches.fix_offsets) < 0):
        raise InvalidTrips("fix_offsets must not fall.", parameter="fix_offsets")
    if matches.trip.size and not 0 <= matches.trip.min() <= matches.trip.max() < matches.fix_offsets.size - 1:
        raise InvalidTrips(f"trip must name one of {matches.fix_offsets.size - 1} trips.", parameter="trip")
    first, last = matches.span.T
    if np.any((first < 0) | (first > last) | (last >= n_fixes)):
        raise InvalidTrips(f"span must be a first and a last of {n_fixes} fixes, in order.", parameter="span")


UNMATCHED = -1


class MatchedPiece(NamedTuple):
    """A stretch of one trip that was matched without a break.

    Attributes
    ----------
    first, last : int
        Its first and last fix, counted from the trip's first.
    segments : (k,) int64
        The path, each segment joined to the next by a legal turn.
    confidence : float
        In [0, 1].
    """

    first: int
    last: int
    segments: IntArray
    confidence: float


class TripMatch(NamedTuple):
    """What a matcher makes of one trip of n fixes.

    Attributes
    ----------
    pieces : tuple of MatchedPiece
        In the order of their fixes; none if nothing was matched.
    segment : (n,) int64
        Of each fix; -1 where unmatched.
    along_m, distance_m : (n,)
        How far along its segment, and how far from it, each fix is; NaN where unmatched.
    reasons : tuple of str
        Why something is missing; empty if nothing is.
    """

    pieces: tuple[MatchedPiece, ...]
    segment: IntArray
    along_m: FloatArray
    distance_m: FloatArray
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False, repr=False)
class Matches:
    """M matched pieces of trips; a trip that had to be cut has several, one that was lost has none.

    Attributes
    ----------
    segments : (n,) int64
        Paths, one after the other.
    offsets : (M + 1,) int64
        MatchedPiece i owns ``segments[offsets[i]:offsets[i + 1]]``.
    trip : (M,) int64
        Which of the trips given it belongs to.
    ids, groups : (M,)
        That trip's id and driver; groups is None where no driver is known.
    confidence : (M,)
        Expected share of the fixes whose road is right, as far as the model is; in [0, 1].
    whole : (M,) bool
        The piece runs from the first to the last fix of its trip without a break.
    span : (M, 2) int64
        Its first and last fix, numbered through all trips given.
    fix_segment : (m,) int64
        Of every fix of the trips given; -1 where unmatched.
    fix_along_m, fix_distance_m : (m,)
        How far along that segment, and how far from it; NaN where unmatched.
    fix_offsets : (N + 1,) int64
        Of the trips given.
    reasons : dict
        How often each reason cost a trip or a part of it.
    settings : dict
        Method, numbers, where `sigma_m` among them comes from, and the fingerprint of the network.
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

    load = classmethod(load)

    def __post_init__(self) -> None:
        """Check that the arrays fit each other, and take private, read-only copies."""
        for part in fields(self):
            value = getattr(self, part.name)
            if part.name in WORDS:
                object.__setattr__(self, part.name, dict(value))
            elif value is not None:
                object.__setattr__(self, part.name, freeze(np.array(value)))
        check(self)

    @classmethod
    def from_trips(
        cls,
        trips: Trips,
        found: Sequence[TripMatch],
        *,
        whole: NDArray[np.bool_] | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> Matches:
        """Put together what a matcher made of each trip.

        Parameters
        ----------
        trips : Trips
            N of them.
        found : N TripMatch
        whole : (N,) bool, optional
            Whether each trip given is a whole recording, such as `CleanedTrips.whole`; by default all but the pieces of
            trips that were cut (`Trips.cut`).
        settings : dict, optional
        """
        if len(found) != len(trips):
            raise InvalidTrips(
                f"There are {len(trips)} trips, but {len(found)} of them were matched.",
                parameter="found",
                value=len(found),
            )
        entire = ~trips.cut if whole is None else np.asarray(whole, dtype=np.bool_)
        pieces = [(i, piece) for i, match in enumerate(found) for piece in match.pieces]
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
            fix_segment=np.concatenate([none, *(match.segment for match in found)]),
            fix_along_m=np.concatenate([empty, *(match.along_m for match in found)]),
            fix_distance_m=np.concatenate([empty, *(match.distance_m for match in found)]),
            fix_offsets=trips.offsets,
            reasons=dict(Counter(reason for match in found for reason in match.reasons)),
            settings={} if settings is None else settings,
        )

    @property
    def lengths(self) -> IntArray:
        """Segments (M,) of each piece."""
        return np.diff(self.offsets)

    @property
    def n_whole(self) -> int:
        """How many trips were matched end to end."""
        return int(self.whole.sum())

    def path(self, i: int) -> IntArray:
        """Return the segments of piece i, counted from 0; from the last, -1, where i is negative."""
        if not -len(self) <= i < len(self):
            raise IndexError(f"there is no piece {i} among {len(self)}; count from 0.")
        i %= len(self)
        return self.segments[self.offsets[i] : self.offsets[i + 1]]

    def lengths_m(self, network: RoadNetwork) -> FloatArray:
        """Return the length (M,) of each piece's path in metres, its first and last segments counted whole."""
        total = np.concatenate([[0.0], np.cumsum(network.length_m[self.on(network)])])
        return np.asarray(np.diff(total[self.offsets]))

    def geometry(self, network: RoadNetwork, i: int, *, clip: bool = False) -> FloatArray:
        """Return the line (k, 2) of piece i: latitudes and longitudes, corner by corner.

        Parameters
        ----------
        network : RoadNetwork
            The one it was matched to.
        i : int
        clip : bool
            Begin and end where the first and last fix are, not at the ends of their segments.
        """
        self.on(network)
        path = self.path(i)
        nodes = np.concatenate([network.tail[path[:1]], network.head[path]])
        line = np.column_stack([network.lat[nodes], network.lon[nodes]])
        if clip:
            first, last = self._shares(network, i)
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
        """Return which pieces pass, and how many fail by each rule; a piece is counted under the first it breaks."""
        rules = {
            "not matched end to end": ~self.whole & whole,
            f"fewer than {min_segments} segments": self.lengths < min_segments,
            f"more than {max_segments} segments": self.lengths > max_segments,
            f"confidence under {min_confidence:g}": self.confidence < min_confidence,
            "a segment twice": self.cycles() & drop_cycles,
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
        """Return the paths that pass as demonstrations: states are segments, groups drivers, ids those of the trips.

        Parameters
        ----------
        min_segments, max_segments : int
            Lengths allowed; the paper keeps at most 300.
        min_confidence : float
        whole : bool
            Only trips that were matched end to end.
        drop_cycles : bool
            Leave out paths that drive a segment twice.
        """
        chosen, dropped = self.selection(min_segments, max_segments, min_confidence, whole, drop_cycles)
        if not chosen.size:
            why = "; ".join(f"{count}: {reason}" for reason, count in dropped.items()) or "nothing was matched"
            raise InvalidDemos(
                f"None of {len(self)} matched pieces passes ({why}). Relax the rules that cost most.",
                parameter="matches",
                value=dropped,
            )
        lengths = self.lengths[chosen]
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        rows = np.arange(offsets[-1]) + np.repeat(self.offsets[chosen] - offsets[:-1], lengths)
        groups = None if self.groups is None else self.groups[chosen]
        return Demonstrations(self.segments[rows], offsets, groups=groups, ids=self.ids[chosen])

    def cycles(self) -> NDArray[np.bool_]:
        """Return (M,) which pieces drive some segment twice."""
        piece = np.repeat(np.arange(len(self)), self.lengths)
        order = np.lexsort((self.segments, piece))
        again = (np.diff(piece[order]) == 0) & (np.diff(self.segments[order]) == 0)
        return np.isin(np.arange(len(self)), piece[order][1:][again])

    def save(self, path: str | PathLike[str]) -> None:
        """Write everything to one npz file, atomically; `Matches.load` gives an equal value back."""
        save(self, path)

    def on(self, network: RoadNetwork) -> IntArray:
        """Return all segments, or say that the network is not the one they were matched to."""
        if self.segments.size and self.segments.max() >= network.n_segments:
            raise InvalidTrips(
                f"The paths use segment {self.segments.max()}, but the network has {network.n_segments}: "
                "give the one they were matched to.",
                parameter="network",
                value=network.n_segments,
            )
        wanted = self.settings.get("network")
        if wanted is not None:
            # Lines are asked for one by one, and the digest reads the whole network, which cannot change.
            kept = vars(network)
            mark = kept["_mark"] if "_mark" in kept else kept.setdefault("_mark", network.fingerprint())
            if mark != wanted:
                raise InvalidTrips(
                    f"The paths were matched to network {wanted}, but this one is {mark}: give the one they belong to.",
                    parameter="network",
                    value=mark,
                )
        return self.segments

    def _shares(self, network: RoadNetwork, i: int) -> tuple[float, float]:
        """Return where, as shares of its first and last segment, piece i begins and ends; in order on a single one."""
        path, (low, high) = self.path(i), self.span[i]
        first, last = (
            self.fix_along_m[fix] / network.length_m[segment] if self.fix_segment[fix] == segment else default
            for fix, segment, default in ((low, path[0], 0.0), (high, path[-1], 1.0))
        )
        return (min(first, last), last) if path.size == 1 else (first, last)

    def __len__(self) -> int:
        return int(self.offsets.size - 1)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Matches):
            return NotImplemented
        mine, theirs = ([getattr(one, part.name) for part in fields(one)] for one in (self, other))
        return all(same(one, two) for one, two in zip(mine, theirs, strict=True))

    def __hash__(self) -> int:
        return hash((self.segments.tobytes(), self.offsets.tobytes()))

    def __repr__(self) -> str:
        trips, fixes = self.fix_offsets.size - 1, self.fix_segment.size
        matched = int(np.sum(self.fix_segment != UNMATCHED))
        lines = [
            f"Matches: {len(self):,} paths of {self.segments.size:,} segments from {trips:,} trips",
            f"  end to end {self.n_whole:,} trips",
            f"  fixes      {matched:,} of {fixes:,} matched",
        ]
        if "sigma_from" in self.settings:
            lines.append(f"  noise      {self.settings['sigma_m']:.1f} m, {self.settings['sigma_from']}")
        return "\n".join(lines + [f"  dropped    {count:,}: {reason}" for reason, count in self.reasons.items()])
