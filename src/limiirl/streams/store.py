"""`FeatureStore`: a table of feature sums in shards, which are memory-mapped files or computed by a function.

A shard on disk is a JSON header beside plain .npy files, since arrays inside an npz archive cannot be memory-mapped.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from limiirl._io import atomic_write
from limiirl._validation import check_count
from limiirl.errors import InvalidFile, InvalidParameter, MissingFile
from limiirl.irl import validate
from limiirl.kernels.e_step import Rows
from limiirl.mdp import MDP

SHARD_FORMAT, SHARD_VERSION = "limiirl.features.shard", 1
REMEDY = "Run write_features again (`limiirl stream features`): it rebuilds missing and damaged shards."
# Numpy parses .npy headers with `ast`, which is not thread-safe in Python 3.11 (threads of a Dask worker).
_HEADER_LOCK = threading.RLock()


def file_error(message: str, path: str | PathLike[str], kind: type[InvalidFile] = InvalidFile) -> InvalidFile:
    """Return an error about a file or folder, whose path is the error's value."""
    return kind(message, parameter="folder", value=str(path))


class NewerFormat(InvalidFile):
    """A shard written by a later version of limiirl: it is intact and must not be rebuilt."""


class ShardInfo(NamedTuple):
    """Metadata of a shard that decides whether a model can be fitted to it."""

    n: int  # rows: demonstrations or groups
    n_demos: int
    longest: int  # states of the longest demonstration
    longest_at: int  # its index
    open_ended: tuple[int, int] | None  # min and max length of demonstrations that do not end in a terminal state
    open_ended_at: int  # index of the shortest of them


class FeatureShard(Protocol):
    """Rows of one shard; must be picklable."""

    @property
    def name(self) -> str:
        """Name in messages."""

    @property
    def info(self) -> ShardInfo:
        """Size and longest demonstrations."""

    @property
    def fingerprint(self) -> str:
        """Identifier of the content."""

    def windows(self, block: int) -> Iterator[Rows]:
        """Yield the rows in order, at most `block` at a time where that saves memory."""

    def take(self, index: NDArray[np.int64]) -> Rows:
        """Return the rows at `index`."""

    def names(self) -> NDArray[Any] | None:
        """Return the names of the rows (n,), or None."""


@dataclass(frozen=True)
class StoredShard:
    """A shard on disk."""

    path: str  # of the header
    source: str
    source_checksum: str
    mdp: str  # fingerprint
    by_group: bool
    info: ShardInfo
    fingerprint: str  # checksum of the content
    n_features: int
    sizes: tuple[tuple[str, int], ...]  # name and bytes of each array's file

    @property
    def name(self) -> str:
        """Name of the source."""
        return self.source

    @classmethod
    def write(cls, path: Path, rows: Rows, names: NDArray[Any] | None, info: ShardInfo, about: dict[str, Any]) -> None:
        """Write a shard, its header last; `about` has source, source_checksum, mdp and by_group."""
        arrays = {"features": rows.features, "base": np.stack([rows.log_q, rows.counts])}
        if names is not None:
            arrays["names"] = names
        sizes = {}
        for kind, array in arrays.items():
            with atomic_write(_array_path(path, kind)) as scratch:
                with scratch.open("wb") as stream:
                    _save(stream, np.ascontiguousarray(array))
                sizes[kind] = scratch.stat().st_size
        header = {
            "format": SHARD_FORMAT,
            "version": SHARD_VERSION,
            **about,
            "info": info._asdict(),
            "fingerprint": _checksum(arrays.values()),
            "n_features": rows.features.shape[1],
            "sizes": sizes,
        }
        _write_json(path, header)

    @classmethod
    def open(cls, path: Path) -> StoredShard:
        """Read a header, and check that its files have the size that they were written with."""
        if not path.is_file():
            raise file_error(f"{path} is missing. {REMEDY}", path)
        try:
            header = json.loads(path.read_bytes())
            if header["format"] != SHARD_FORMAT:
                raise file_error(f"{path} has format {header['format']!r}, not {SHARD_FORMAT!r}. {REMEDY}", path)
            if header["version"] > SHARD_VERSION:
                message = f"{path} has format version {header['version']}; the newest readable is {SHARD_VERSION}."
                raise file_error(f"{message} Upgrade limiirl.", path, kind=NewerFormat)
            shard = cls(
                str(path),
                **{
                    name: _check_type(header[name], str) for name in ("source", "source_checksum", "mdp", "fingerprint")
                },
                by_group=_check_type(header["by_group"], bool),
                info=_read_info(header["info"]),
                n_features=_check_type(header["n_features"], int),
                sizes=tuple((kind, _check_type(header["sizes"][kind], int)) for kind in _list_arrays(header["sizes"])),
            )
        except (KeyError, TypeError, ValueError) as error:
            if isinstance(error, InvalidFile):
                raise
            raise file_error(f"{path} is damaged ({error!s:.200}). {REMEDY}", path) from None
        for kind, size in shard.sizes:
            target = _array_path(path, kind)
            actual = target.stat().st_size if target.is_file() else None
            if actual != size:
                what = "is missing" if actual is None else f"is truncated or changed: {actual} bytes instead of {size}"
                raise file_error(f"{target} {what}. {REMEDY}", target)
        return shard

    def windows(self, block: int) -> Iterator[Rows]:
        """Yield the rows in order; each window is mapped separately, so that memory does not grow with the shard."""
        for lo in range(0, self.info.n, block):
            yield self.take(slice(lo, lo + block))

    def take(self, index: slice | NDArray[np.int64]) -> Rows:
        """Return the rows at `index`."""
        base = self._map("base")
        features = np.ascontiguousarray(self._map("features")[index])
        return Rows(features, np.ascontiguousarray(base[0, index]), np.ascontiguousarray(base[1, index]))

    def names(self) -> NDArray[Any] | None:
        """Return the names of the rows (n,), or None."""
        return np.array(self._map("names")) if "names" in dict(self.sizes) else None

    def verify(self) -> None:
        """Read all arrays and compare their checksum with the header."""
        if _checksum(self._map(kind) for kind, _ in self.sizes) != self.fingerprint:
            raise file_error(f"{self.path}: the checksum of its files does not match. {REMEDY}", self.path)

    def _map(self, kind: str) -> NDArray[Any]:
        path = _array_path(Path(self.path), kind)
        try:
            # Copy on write, although nothing is written: numba would compile the kernels again for read-only arrays.
            with _HEADER_LOCK:
                array = np.asarray(np.lib.format.open_memmap(path, mode="c"))
        except (OSError, ValueError) as error:
            raise file_error(f"{path} cannot be read ({error!s:.200}). {REMEDY}", path) from None
        n = self.info.n
        shape = {"features": (n, self.n_features), "base": (2, n), "names": (n,)}[kind]
        if array.shape != shape or (kind != "names" and array.dtype != np.float64):
            message = f"{path} has shape {array.shape} and type {array.dtype}; expected shape {shape}. {REMEDY}"
            raise file_error(message, path)
        return array


def _check_type(value: Any, kind: type) -> Any:
    """Return a value of a header; integers are counts."""
    if type(value) is not kind or (isinstance(value, int) and value < 0):
        raise TypeError(f"{value!r:.50} should be a {kind.__name__}")
    return value


def _list_arrays(sizes: Any) -> Iterable[str]:
    names = set(_check_type(sizes, dict))
    if names not in ({"features", "base"}, {"features", "base", "names"}):
        raise ValueError(f"unknown arrays {', '.join(sorted(names))}")
    return [kind for kind in ("features", "base", "names") if kind in names]


def _read_info(header: Any) -> ShardInfo:
    numbers = {name: _check_type(header[name], int) for name in ShardInfo._fields if name != "open_ended"}
    if numbers["n"] < 1:
        raise ValueError("a shard must have at least one row")
    open_ended = header["open_ended"]
    if open_ended is not None:
        least, most = open_ended
        open_ended = (_check_type(least, int), _check_type(most, int))
    return ShardInfo(**numbers, open_ended=open_ended)


def _array_path(header: Path, kind: str) -> Path:
    return header.with_suffix(f".{kind}.npy")


def _save(stream: BinaryIO, array: NDArray[Any]) -> None:
    """Write an .npy file; unlike `np.save`, raise if the disk is full when the last bytes are flushed."""
    np.lib.format.write_array_header_1_0(stream, np.lib.format.header_data_from_array_1_0(array))
    stream.write(array.view(np.uint8).data)


def _checksum(arrays: Iterable[NDArray[Any]]) -> str:
    checksum = hashlib.sha256()
    for array in arrays:
        checksum.update(f"{array.dtype.str} {array.shape}".encode())
        checksum.update(np.ascontiguousarray(array).view(np.uint8).data)
    return checksum.hexdigest()


def _write_json(path: Path, header: dict[str, Any]) -> None:
    with atomic_write(path) as scratch:
        scratch.write_text(json.dumps(header, indent=1) + "\n", encoding="ascii")


@dataclass(frozen=True)
class GeneratedShard:
    """A shard computed at every read, as function(index) -> Rows; `version` identifies the data."""

    index: int
    function: Callable[[int], Rows]
    info: ShardInfo
    n_features: int
    version: str = ""
    by_group: bool = False

    @property
    def name(self) -> str:
        """Name in messages."""
        return f"shard {self.index}"

    @property
    def fingerprint(self) -> str:
        """Size, function name and version; the content is not computed."""
        return f"{self.name}: {self.info}, {get_qualified_name(self.function)}, {self.version}"

    def windows(self, block: int) -> Iterator[Rows]:
        """Yield all rows at once: they are in memory already."""
        del block
        yield self._generate()

    def take(self, index: NDArray[np.int64]) -> Rows:
        """Return the rows at `index`."""
        return Rows(*(array[index] for array in self._generate()))

    def names(self) -> None:
        """Return None: generated rows have no names."""

    def _generate(self) -> Rows:
        made = self.function(self.index)
        if not isinstance(made, tuple | list) or len(made) != len(Rows._fields):
            raise self._error(f"function must return Rows(features, log_q, counts); got a {type(made).__name__}", made)
        try:
            rows = Rows(*(np.ascontiguousarray(array, dtype=np.float64).reshape(np.shape(array)) for array in made))
        except (TypeError, ValueError) as error:
            raise self._error(f"function must return numbers ({error!s:.200})", made) from None
        n = self.info.n
        for name, array, shape in zip(Rows._fields, rows, ((n, self.n_features), (n,), (n,)), strict=True):
            if array.shape != shape:
                raise self._error(f"function must return {name} of shape {shape}; got {array.shape}", array.shape)
        if not self.by_group and np.any(rows.counts != 1.0):
            row = int(np.argmax(rows.counts != 1.0))
            message = f"function must return counts of 1; row {row} has {rows.counts[row]:g}"
            remedy = "For groups, use write_features(..., by_group=True)"
            raise self._error(f"{message}. {remedy}", float(rows.counts[row]), row)
        return rows

    def _error(self, message: str, value: object, *row: int) -> InvalidParameter:
        index = (self.index, *row) if row else self.index
        return InvalidParameter(f"{self.name}: {message}.", parameter="function", value=value, index=index)


def check_function(function: Any, version: Any) -> None:
    """Check the function of a source, and the text that identifies its data."""
    if not callable(function):
        raise InvalidParameter.of("function", function, "must be a function of the shard index")
    if not isinstance(version, str):
        raise InvalidParameter.of("version", version, "must be a string, such as a date or str(seed)")


def get_qualified_name(value: Any) -> str:
    """Return the full name of a function or class, or of an object's class; ``partial of builtins.len``."""
    if isinstance(value, functools.partial):
        return f"partial of {get_qualified_name(value.func)}"
    named = value if hasattr(value, "__qualname__") else type(value)
    return f"{named.__module__}.{named.__qualname__}"


def check_path(value: Any, name: str) -> Path:
    """Return an argument as a Path."""
    if not isinstance(value, str | os.PathLike):
        raise InvalidParameter.of(name, value, "must be a path")
    return Path(value)


def make_folder(folder: Any) -> Path:
    """Create a folder if it does not exist, and return its absolute path (workers may have another directory)."""
    place = check_path(folder, "folder").absolute()
    try:
        place.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise file_error(f"{place} cannot be a folder: it or its parent is a file. Choose another.", place) from None
    return place


def is_scratch(path: Path) -> bool:
    """Return whether a file is a temporary file of `atomic_write`, which a killed process leaves behind."""
    return path.name.startswith(".") and path.name.endswith(".tmp")


FORMAT, VERSION = "limiirl.features", 2
HEADER, MDP_FILE = "store.json", "mdp.npz"


@dataclass(frozen=True)
class FeatureStore:
    """Feature sums of demonstrations, or of groups of demonstrations, in shards.

    `write_features` writes a store to a folder, `open` reads it; `from_function` makes one that needs no disk.

    Examples
    --------
    >>> def make(i):
    ...     return Rows(np.full((2, 1), i), np.zeros(2), np.ones(2))
    >>> store = FeatureStore.from_function(make, [2, 2], 1, longest=3)
    >>> store.n, len(store.shards), store.take(np.array([1, 2])).features.ravel().tolist()
    (4, 2, [0.0, 1.0])
    """

    shards: tuple[FeatureShard, ...]  # the rows of the store are those of its shards, concatenated
    n_features: int
    mdp_fingerprint: str = ""  # of the MDP that the features belong to; empty if unknown
    by_group: bool = False  # whether a row is a group of demonstrations that share an intent
    folder: Path | None = None

    @classmethod
    def open(cls, folder: str | PathLike[str]) -> FeatureStore:
        """Read the headers of a complete store of `write_features`; a missing or truncated file is an error."""
        place = check_path(folder, "folder").absolute()  # workers may have another working directory
        header = read_header(place)
        names = header["shards"]
        if names is None:
            message = (
                f"{place} is incomplete: write_features was stopped before its last shard. Run it again to resume."
            )
            raise file_error(message, place)
        if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
            raise file_error(f"{place / HEADER} is damaged: its shards are {names!r:.50}. {REMEDY}", place / HEADER)
        shards = tuple(StoredShard.open(place / name) for name in names)
        for shard in shards:
            path, d = shard.path, shard.n_features
            if (shard.mdp, shard.by_group) != (header["mdp"], header["by_group"]):
                message = f"{path} belongs to another store than {place}. Write the features to another folder."
                raise file_error(message, path)
            if d != header["n_features"]:
                raise file_error(f"{path} has {d} features; the store has {header['n_features']}. {REMEDY}", path)
        return cls(shards, header["n_features"], header["mdp"], header["by_group"], place)

    @classmethod
    def from_function(
        cls, function: Callable[[int], Rows], sizes: Sequence[int], n_features: int, *, longest: int, version: str = ""
    ) -> FeatureStore:
        """Return a store whose shard i is function(i), computed again at every pass and never written to disk.

        Parameters
        ----------
        function : callable
            Maps the index of a shard to its `Rows`, one per demonstration (count 1). Must be deterministic, and
            picklable if an executor is used.
        sizes : sequence of int
            Number of rows of each shard, at least one.
        longest : int
            Number of states of the longest demonstration.
        version : str
            Identifies the data, such as a date or a seed. A checkpoint is resumed only for the same version and
            function name; the rows are not compared.
        """
        check_function(function, version)
        check_count(n_features, "n_features")
        check_count(longest, "longest")
        try:
            listed = list(sizes)
        except TypeError:
            raise InvalidParameter.of("sizes", sizes, "must be a list of numbers of rows") from None
        if not listed:
            raise InvalidParameter.of("sizes", sizes, "must have at least one entry")
        for i, n in enumerate(listed):
            whole = isinstance(n, int | np.integer) or (isinstance(n, float | np.floating) and float(n).is_integer())
            if not whole or n < 1:
                raise InvalidParameter.of("sizes", n, "must be an integer of at least 1", index=i)
        infos = [ShardInfo(int(n), int(n), int(longest), 0, None, 0) for n in listed]
        d = int(n_features)
        return cls(tuple(GeneratedShard(i, function, info, d, version) for i, info in enumerate(infos)), d)

    @cached_property
    def n(self) -> int:
        """Number of rows: demonstrations or groups."""
        return sum(shard.info.n for shard in self.shards)

    @cached_property
    def n_demos(self) -> int:
        """Number of demonstrations."""
        return sum(shard.info.n_demos for shard in self.shards)

    @property
    def longest(self) -> int:
        """Number of states of the longest demonstration."""
        return max(shard.info.longest for shard in self.shards)

    @property
    def noun(self) -> str:
        """Name of the rows in messages."""
        return "groups" if self.by_group else "demonstrations"

    @cached_property
    def fingerprint(self) -> str:
        """Checksum of the shards, their order and the MDP."""
        about = [self.mdp_fingerprint, self.by_group, self.n_features, [shard.fingerprint for shard in self.shards]]
        return hashlib.sha256(json.dumps(about).encode()).hexdigest()

    def mdp(self) -> MDP:
        """Return the MDP that the store was written with."""
        if self.folder is None:
            raise InvalidParameter("A generated store has no MDP. Pass the MDP of its features.", parameter="mdp")
        path = self.folder / MDP_FILE
        try:
            mdp = MDP.load(path)
        except InvalidFile as error:
            raise file_error(f"{path} is missing or damaged ({error!s:.200}). {REMEDY}", path) from None
        if mdp.fingerprint() != self.mdp_fingerprint:
            raise file_error(f"{path} is the MDP {mdp.fingerprint()}, not {self.mdp_fingerprint}. {REMEDY}", path)
        return mdp

    def check(self, mdp: MDP) -> None:
        """Raise `InvalidParameter` unless the features belong to `mdp`."""
        validate.mdp(mdp)
        if self.n_features != mdp.n_features:
            message = f"mdp must have {self.n_features} features like the store; got {mdp.n_features}."
            raise InvalidParameter(message, parameter="mdp", value=mdp.n_features)
        if self.mdp_fingerprint and self.mdp_fingerprint != mdp.fingerprint():
            rule, remedy = f"must be the MDP {self.mdp_fingerprint} of the store", "Pass store.mdp()."
            raise InvalidParameter.of("mdp", mdp.fingerprint(), rule, remedy=remedy)

    def verify(self) -> None:
        """Read all shards and compare their checksums; `open` compares file sizes only."""
        for shard in self.shards:
            if isinstance(shard, StoredShard):
                shard.verify()

    def take(self, index: NDArray[np.int64]) -> Rows:
        """Return the rows at sorted positions, counted over all shards."""
        rows, begin = [], 0
        for shard in self.shards:
            lo, hi = np.searchsorted(index, [begin, begin + shard.info.n])
            if hi > lo:
                rows.append(shard.take(index[lo:hi] - begin))
            begin += shard.info.n
        return Rows(*(np.concatenate(arrays) for arrays in zip(*rows, strict=True)))


def as_store(store: Any) -> FeatureStore:
    """Return a store, or open the one in a folder."""
    if isinstance(store, FeatureStore):
        return store
    if isinstance(store, str | PathLike):
        return FeatureStore.open(store)
    raise InvalidParameter.of("store", store, "must be a FeatureStore or its folder")


def read_header(place: Path) -> dict[str, Any]:
    """Return the header of a store."""
    path = place / HEADER
    if not path.is_file():
        what = f"it has no {HEADER}" if place.is_dir() else "there is no such folder"
        message = f"{place} is not a feature store: {what}. Pass a folder written by write_features."
        raise file_error(message, place, kind=MissingFile)
    try:
        header = json.loads(path.read_bytes())
        if header["format"] != FORMAT or header["version"] != VERSION:
            written = f"{header['format']!r}, version {header['version']}"
            message = f"{path} has format {written}; this limiirl reads {FORMAT!r}, version {VERSION}."
            raise file_error(f"{message} Write the features to another folder.", path)
        header["shards"]  # of any type here: write_features overwrites it
        for name, kind in (("mdp", str), ("by_group", bool), ("n_features", int)):
            if type(header[name]) is not kind:
                raise TypeError(f"{name} is {header[name]!r:.50}")
    except (KeyError, TypeError, ValueError) as error:
        if isinstance(error, InvalidFile):
            raise
        raise file_error(f"{path} is damaged ({error!s:.200}). Write the features to another folder.", path) from None
    return dict(header)


def write_header(place: Path, mdp: MDP, *, by_group: bool, shards: list[str] | None) -> None:
    """Write the header of a store, with the names of its shards once all are complete."""
    header = {
        "format": FORMAT,
        "version": VERSION,
        "mdp": mdp.fingerprint(),
        "by_group": by_group,
        "n_features": mdp.n_features,
        "feature_names": list(mdp.feature_names),
        "shards": shards,
    }
    _write_json(place / HEADER, header)
