"""`Trips`: recorded GPS traces as one frozen value."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from os import PathLike
from typing import Any, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from limiirl.demos.checks import frozen
from limiirl.demos.selection import same
from limiirl.errors import InvalidParameter
from limiirl.roads.traces import checks

Float = NDArray[np.float64]
Int = NDArray[np.int64]
Subset = slice | Sequence[int] | Sequence[bool] | NDArray[np.integer] | NDArray[np.bool_]


@dataclass(frozen=True)
class Skipped:
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
    >>> Skipped("7", 3, "it has no fixes")
    Skipped(id='7', row=3, reason='it has no fixes')
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
    skipped : tuple of Skipped
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

    lat: Float
    lon: Float
    time_s: Float
    offsets: Int
    ids: NDArray[Any]
    groups: NDArray[Any] | None = None
    skipped: tuple[Skipped, ...] = ()
    notes: Mapping[str, int] = field(default_factory=dict)
    pieces: Int = None  # type: ignore[assignment] # always an array once it is made

    def __post_init__(self) -> None:
        """Check every rule once and take private, read-only copies."""
        arrays: dict[str, Any] = {name: checks.numbers(getattr(self, name), name) for name in ("lat", "lon", "time_s")}
        arrays["offsets"] = checks.offsets(self.offsets, arrays["lat"].size)
        n = arrays["offsets"].size - 1
        arrays["ids"] = checks.names(self.ids, "ids", n)
        arrays["groups"] = None if self.groups is None else checks.names(self.groups, "groups", n)
        arrays["pieces"] = checks.pieces(self.pieces, arrays["ids"], arrays["groups"])
        checks.fixes(arrays)
        for name, array in arrays.items():
            object.__setattr__(self, name, None if array is None else frozen(array))
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
        checks.alike(north, east, times)
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
            raise InvalidParameter("Trips.concat needs at least one set of trips; the list is empty.")
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
            checks.joined_names([part.ids for part in parts]),
            checks.joined_groups([part.groups for part in parts]),
            tuple(skip for part in parts for skip in part.skipped),
            notes,
            np.concatenate([part.pieces for part in parts]),
        )

    @property
    def n_fixes(self) -> int:
        """Number of fixes n."""
        return int(self.lat.size)

    @property
    def lengths(self) -> Int:
        """Fixes (N,) of each trip."""
        return np.diff(self.offsets)

    @property
    def trip_of_fix(self) -> Int:
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
        trip = checks.numbered(self.ids, self.groups)
        return np.asarray((np.bincount(trip)[trip] > 1) | (self.pieces > 0))

    def subset(self, index: Subset) -> Trips:
        """Return the trips of a slice, a mask or an index array; what was skipped in reading is not carried along."""
        chosen = checks.as_index_array(index, len(self))
        lengths = self.lengths[chosen]
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        rows = np.arange(offsets[-1]) + np.repeat(self.offsets[chosen] - offsets[:-1], lengths)
        groups = None if self.groups is None else self.groups[chosen]
        fixes = self.lat[rows], self.lon[rows], self.time_s[rows]
        return Trips(*fixes, offsets, self.ids[chosen], groups, pieces=self.pieces[chosen])

    def to_parquet(self, path: str | PathLike[str]) -> None:
        """Write one row a fix (trip, piece, time, lat, lon[, driver]), atomically; `read_trips` gives them back.

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
    def __getitem__(self, index: int) -> tuple[Float, Float, Float]: ...

    @overload
    def __getitem__(self, index: Subset) -> Trips: ...

    def __getitem__(self, index: int | Subset) -> tuple[Float, Float, Float] | Trips:
        if not isinstance(index, int | np.integer):
            return self.subset(index)
        i = int(checks.as_index_array([int(index)], len(self))[0])
        rows = slice(self.offsets[i], self.offsets[i + 1])
        return self.lat[rows], self.lon[rows], self.time_s[rows]

    def __iter__(self) -> Iterator[tuple[Float, Float, Float]]:
        return (self[i] for i in range(len(self)))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Trips):
            return NotImplemented
        data = [part.name for part in fields(self) if part.name not in ("skipped", "notes")]
        return all(same(getattr(self, name), getattr(other, name)) for name in data)

    def __hash__(self) -> int:
        return hash((self.lat.tobytes(), self.offsets.tobytes()))

    def __repr__(self) -> str:
        return checks.summary(self)
