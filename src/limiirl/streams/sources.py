"""Sources of demonstrations in parts, each small enough for memory: files, a list or generator, or a function."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from limiirl._validation import check_count
from limiirl.demos import Demonstrations
from limiirl.errors import InvalidDemos, InvalidFile, InvalidParameter, MissingFile
from limiirl.streams.store import StoredPart, check_function

_SUFFIXES = (".parquet", ".csv")
# The columns that are read; others may differ between files.
_COLUMNS = ("demo", "t", "state", "action", "group")


class PartSource(Protocol):
    """One part of a source; it must survive pickling."""

    @property
    def name(self) -> str:
        """Its name in messages."""

    def read(self) -> Demonstrations:
        """Return the demonstrations."""

    def mark(self) -> str:
        """Return a text that changes with the data; empty if unknown."""


@dataclass(frozen=True)
class FilePart:
    """A parquet or CSV file, as `Demonstrations.from_file` reads it; its name is relative to the source."""

    path: str
    name: str

    def read(self) -> Demonstrations:
        """Return the demonstrations; errors name the file."""
        import pyarrow as pa

        try:
            return Demonstrations.from_file(self.path)
        except (pa.ArrowException, UnicodeDecodeError) as error:  # in text
            if isinstance(error, MemoryError):
                raise
            raise _damaged(self.path) from None

    def mark(self) -> str:
        """Return a digest of the file."""
        with Path(self.path).open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()


@dataclass(frozen=True)
class GivenPart:
    """Demonstrations that are there already."""

    index: int
    demos: Demonstrations

    @property
    def name(self) -> str:
        """Its number in the list."""
        return f"part {self.index}"

    def read(self) -> Demonstrations:
        """Return the demonstrations."""
        return self.demos

    def mark(self) -> str:
        """Return a digest of the content."""
        digest = hashlib.sha256()
        for name in ("states", "offsets", "actions", "groups", "ids"):
            values = getattr(self.demos, name)
            digest.update(f"{name} {'' if values is None else values.dtype.str}".encode())
            digest.update(b"" if values is None else np.ascontiguousarray(values).tobytes())
        return digest.hexdigest()


@dataclass(frozen=True)
class CalledPart:
    """The result of a function for a part's number; `version` is the caller's mark of the data."""

    index: int
    function: Callable[[int], Demonstrations]
    version: str = ""

    @property
    def name(self) -> str:
        """Its number."""
        return f"part {self.index}"

    def read(self) -> Demonstrations:
        """Return the demonstrations."""
        return self.function(self.index)

    def mark(self) -> str:
        """Return the caller's mark: only another call could tell more."""
        return self.version


@dataclass(frozen=True)
class FunctionSource:
    """A source whose part i is function(i), for i below `n_parts`.

    Whether the function would return the same again is not checked. Give a `mark` that identifies the data (a date, a
    seed, a version): parts that were written with another mark are refused.

    Examples
    --------
    >>> source = FunctionSource(lambda i: Demonstrations.from_lists([[i, i + 1]]), n_parts=3)
    >>> [part.read().states.tolist() for part in list_parts(source)]
    [[0, 1], [1, 2], [2, 3]]
    """

    function: Callable[[int], Demonstrations]
    n_parts: int
    mark: str = ""

    def __post_init__(self) -> None:
        check_function(self.function, self.mark)
        check_count(self.n_parts, "n_parts")


def list_parts(source: Any) -> Iterable[PartSource]:
    """Return the parts of a source, as a list if their number is known.

    Parameters
    ----------
    source : path, paths, FunctionSource, Demonstrations or iterable of Demonstrations
        The .parquet and .csv files of a folder and its subfolders are taken in the order of their names. Files and
        folders whose names begin with a dot or an underscore are skipped, and so are files without rows. A generator
        is advanced when there is room for another part.

    Examples
    --------
    >>> [part.name for part in list_parts([Demonstrations.from_lists([[0, 1]])])]
    ['part 0']
    """
    if isinstance(source, FunctionSource):
        return [CalledPart(index, source.function, source.mark) for index in range(source.n_parts)]
    if isinstance(source, Demonstrations):
        return [GivenPart(0, source)]
    if isinstance(source, str | os.PathLike):
        place = Path(source)
        return _files(_find_files(place), place if place.is_dir() else place.parent)
    if isinstance(source, list | tuple):
        if source and all(isinstance(item, str | os.PathLike) for item in source):
            return _files([Path(item) for item in source], None)
        return list(_iterate_given(source))
    if isinstance(source, Iterable):
        return _iterate_given(source)
    raise InvalidParameter(
        f"source must be a folder, files, Demonstrations, or FunctionSource(function, n_parts); got {source!r}.",
        parameter="source",
        value=source,
    )


def _iterate_given(items: Iterable[Any]) -> Iterator[GivenPart]:
    for index, item in enumerate(items):
        if not isinstance(item, Demonstrations):
            raise InvalidParameter(
                f"source must yield Demonstrations; item {index} is a {type(item).__name__}. Pass Demonstrations, or a "
                "list of paths.",
                parameter="source",
                value=item,
                index=index,
            )
        yield GivenPart(index, item)


def _find_files(place: Path) -> list[Path]:
    if place.is_file():
        return [place]
    if not place.is_dir():
        raise MissingFile(f"There is no folder or file {place}. Check the name.", parameter="source", value=str(place))
    paths = [
        path
        for path in place.rglob("*")
        if path.suffix in _SUFFIXES
        and not any(name.startswith((".", "_")) for name in path.relative_to(place).parts)
        and path.is_file()
    ]
    if not paths:
        raise InvalidFile(
            f"{place} has no .parquet or .csv file. Give a folder of demonstrations, one file per part.",
            parameter="source",
            value=str(place),
        )
    return sorted(paths, key=lambda path: path.relative_to(place).parts)


def _files(paths: list[Path], within: Path | None) -> list[FilePart]:
    _check_paths(paths)
    empty = _check_schemas([path for path in paths if path.suffix == ".parquet"])
    empty |= {path for path in paths if path.suffix == ".csv" and _has_only_header(path)}
    if len(empty) == len(paths):
        raise InvalidFile(
            f"No file has rows ({paths[0]}, ...). Give files with demonstrations.",
            parameter="source",
            value=str(paths[0]),
        )
    paths = [path for path in paths if path not in empty]
    names = [path.name if within is None else path.relative_to(within).as_posix() for path in paths]
    # Absolute: workers may have another working directory.
    return [FilePart(str(path.absolute()), name) for path, name in zip(paths, names, strict=True)]


def _check_paths(paths: list[Path]) -> None:
    """Check that all are files, and no two the same."""
    known: dict[Path, int] = {}
    for index, path in enumerate(paths):
        if path.is_dir():
            raise InvalidParameter(
                f"{path} (item {index}) is a folder. Give one folder, or a list of files.",
                parameter="source",
                value=str(path),
                index=index,
            )
        if not path.is_file():
            raise MissingFile(
                f"There is no file {path} (item {index}). Check the name.",
                parameter="source",
                value=str(path),
                index=index,
            )
        first = known.setdefault(path.resolve(), index)
        if first != index:
            raise InvalidParameter(
                f"{path} (item {index}) is the same file as {paths[first]} (item {first}): its demonstrations would "
                "count twice. Remove one of them.",
                parameter="source",
                value=str(path),
                index=index,
            )


def _check_schemas(paths: list[Path]) -> set[Path]:
    """Check that all parquet files have the same columns, and return those without rows; reads footers only."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    first: dict[str, str] = {}
    empty = set()
    for path in paths:
        try:
            with pq.ParquetFile(path) as file:
                schema, rows = file.schema_arrow, file.metadata.num_rows
            kinds = {name: schema.field(name).type for name in _COLUMNS if name in schema.names}
            known = {name: "integer" if pa.types.is_integer(kind) else str(kind) for name, kind in kinds.items()}
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise
            raise _damaged(path) from None
        if rows == 0:
            empty.add(path)
            continue
        if not first:
            first, pattern = known, path
        if known != first:
            one, other = (", ".join(f"{name} {kind}" for name, kind in columns.items()) for columns in (first, known))
            raise InvalidFile(
                f"Files must have the same columns; {pattern} has {one}, {path} has {other}.",
                parameter="source",
                value=str(path),
            )
    return empty


def _has_only_header(path: Path) -> bool:
    """Whether a CSV file has column names and no rows; a file without even these is truncated."""
    with path.open(encoding="utf-8-sig", errors="replace") as file:  # as text: lines may end in CR
        return bool(next(file, "").strip()) and not any(line.strip() for line in file)


def _damaged(path: str | Path) -> InvalidFile:
    return InvalidFile(
        f"{path} is not a {Path(path).suffix[1:]} file, or is damaged. Write or copy it again.",
        parameter="source",
        value=str(path),
    )


Keys = NDArray[np.uint64]
# Names of demonstrations that are compared: 128 MB of keys. Of more, a sample of this size, and the first and last name
# of each file: a table that is sorted by name is cut there.
MAX_NAMES = 2**24
_TWO_PARTS = {
    "group": (
        "A group must lie within one part; group {!r} has demonstrations in {} and in {}. Partition the data by group."
    ),
    "demo": (
        "A demonstration must lie within one file and have a unique name; demonstration {!r} has rows in {} and in {}. "
        "Write it to one file, or number demonstrations through all files."
    ),
}


def check_names(parts: Sequence[StoredPart], unit: str, most: float = np.inf) -> None:
    """Check that no name occurs in two parts.

    Parameters
    ----------
    unit : {"group", "demo"}
        What has the names.
    most : float
        Keys to keep in memory. Beyond that only the lowest keys are compared, a random sample of names that is the
        same in all parts, and the first and last name of each part.
    """
    kinds: dict[bool, str] = {}
    lowest: list[Keys] = []
    ends: list[Keys] = []
    limit = 2**64 - 1
    for part in parts:
        names = part.names()
        if names is None:
            continue
        kinds.setdefault(names.dtype.kind == "U", part.name)
        keys = np.unique(hash_names(names))
        lowest.append(keys[keys <= np.uint64(limit)])
        ends.append(np.unique(hash_names(names[[0, -1]])))
        while sum(map(len, lowest)) > most:
            limit //= 2
            lowest = [keys[keys <= np.uint64(limit)] for keys in lowest]
    if len(kinds) > 1:  # the text "2" and the number 2 would pass for two names
        raise InvalidDemos(
            f"The column {unit} must have one type; it has texts in {kinds[True]} and numbers in {kinds[False]}.",
            parameter="source",
            value=unit,
        )
    suspects = np.union1d(_find_repeats(lowest), _find_repeats(ends))
    if suspects.size:
        _compare_names(parts, suspects, _TWO_PARTS[unit])


def _find_repeats(keys: list[Keys]) -> Keys:
    ordered = np.concatenate([np.empty(0, dtype=np.uint64), *keys])
    ordered.sort()
    return np.asarray(ordered[1:][ordered[1:] == ordered[:-1]])


def _compare_names(parts: Sequence[StoredPart], suspects: Keys, message: str) -> None:
    known: dict[Any, str] = {}
    for part in parts:
        names = part.names()
        if names is None:
            continue
        # A dict keeps the order, so that the error is the same in every run.
        here = dict.fromkeys(names[np.isin(hash_names(names), suspects)].tolist(), part.name)
        for name in here:
            if name in known:
                raise InvalidDemos(message.format(name, known[name], part.name), parameter="source", value=name)
        known |= here


def hash_names(names: NDArray[Any]) -> Keys:
    """Return (n,) hashes of texts or numbers; equal names have equal hashes whatever the type of their arrays.

    Examples
    --------
    >>> bool(hash_names(np.array([1]))[0] == hash_names(np.array([1.0]))[0])
    True
    >>> bool(hash_names(np.array(["ann"]))[0] == hash_names(np.array(["ann", "christopher"]))[0])
    True
    >>> np.unique(hash_names(np.array(["ann", "nan", "an", "1"]))).size
    4
    """
    if names.dtype.kind == "U":
        letters = np.ascontiguousarray(names).view(np.uint32).reshape(len(names), -1)
        keys = np.zeros(len(names), dtype=np.uint64)
        for place, column in enumerate(letters.T):
            # Shorter texts are padded with 0, which must not matter.
            keys += np.where(
                column > 0, _mix_bits(column.astype(np.uint64) + np.uint64((place + 1) << 32)), np.uint64(0)
            )
        return keys
    if names.dtype.kind != "f":
        return _mix_bits(names.astype(np.int64).view(np.uint64))
    whole = (names == np.floor(names)) & (np.abs(names) < 2.0**63)
    numbers = np.where(whole, names, 0.0).astype(np.int64).view(np.uint64)
    return _mix_bits(np.where(whole, numbers, np.ascontiguousarray(names, dtype=np.float64).view(np.uint64)))


def _mix_bits(values: Keys) -> Keys:
    """Return a bijection of 64-bit integers that looks random."""
    values = values * np.uint64(0x9E3779B97F4A7C15)
    values = (values ^ (values >> np.uint64(32))) * np.uint64(0xD1342543DE82EF95)
    return np.asarray(values ^ (values >> np.uint64(29)))
