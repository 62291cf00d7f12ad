"""Where demonstrations come from, part by part: files of a folder, a list or generator of them, or a function.

A part is small enough for memory; how many there are does not matter. Each can be read by any worker, by itself.

Names that must lie within one part: groups, and demonstrations of files.
"""

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
# What a table may say of a step; other columns are not read, and may differ.
_COLUMNS = ("demo", "t", "state", "action", "group")


class PartSource(Protocol):
    """One part of a source; it must survive pickling."""

    @property
    def name(self) -> str:
        """What it is called in messages."""

    def read(self) -> Demonstrations:
        """Return the demonstrations."""

    def mark(self) -> str:
        """Return what changes when the data do, without reading them as demonstrations; empty where nobody can say."""


@dataclass(frozen=True)
class FilePart:
    """A parquet or CSV file, as `Demonstrations.from_file` reads it; its name is that within its source."""

    path: str
    name: str

    def read(self) -> Demonstrations:
        """Return the demonstrations; errors name the file."""
        import pyarrow as pa

        try:
            return Demonstrations.from_file(self.path)
        except (pa.ArrowException, UnicodeDecodeError) as error:  # in what should be text
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
    """What a function returns for a part's number; `told` is what the caller says of the data."""

    index: int
    function: Callable[[int], Demonstrations]
    told: str = ""

    @property
    def name(self) -> str:
        """Its number."""
        return f"part {self.index}"

    def read(self) -> Demonstrations:
        """Return the demonstrations."""
        return self.function(self.index)

    def mark(self) -> str:
        """Return what the caller said: calling again is all that could tell more."""
        return self.told


@dataclass(frozen=True)
class Calls:
    """A source that a function makes: part i is function(i), for i below `n_parts`.

    Whether the function would make the same again is not found out. Give a `mark` that stands for the data (a date, a
    seed, a version): parts that were written with another are refused.

    Examples
    --------
    >>> made = Calls(lambda i: Demonstrations.from_lists([[i, i + 1]]), n_parts=3)
    >>> [part.read().states.tolist() for part in parts_of(made)]
    [[0, 1], [1, 2], [2, 3]]
    """

    function: Callable[[int], Demonstrations]
    n_parts: int
    mark: str = ""

    def __post_init__(self) -> None:
        check_function(self.function, self.mark)
        check_count(self.n_parts, "n_parts")


def parts_of(source: Any) -> Iterable[PartSource]:
    """Return the parts of a source: a folder of files, files, `Calls`, or Demonstrations one by one.

    It is a list where it is known how many there are.

    Parameters
    ----------
    source : path, paths, Calls, Demonstrations or iterable of Demonstrations
        A folder's .parquet and .csv files are taken in the order of their names, with those of its subfolders; names
        of files and folders that begin with a dot or an underscore are passed over, and so are parquet files without
        rows. A generator is asked for its next demonstrations when there is room. What a file's folder is called is
        not looked at.

    Examples
    --------
    >>> [part.name for part in parts_of([Demonstrations.from_lists([[0, 1]])])]
    ['part 0']
    """
    if isinstance(source, Calls):
        return [CalledPart(index, source.function, source.mark) for index in range(source.n_parts)]
    if isinstance(source, Demonstrations):
        return [GivenPart(0, source)]
    if isinstance(source, str | os.PathLike):
        place = Path(source)
        return _files(_listed(place), place if place.is_dir() else place.parent)
    if isinstance(source, list | tuple):
        if source and all(isinstance(item, str | os.PathLike) for item in source):
            return _files([Path(item) for item in source], None)
        return list(_given(source))
    if isinstance(source, Iterable):
        return _given(source)
    raise InvalidParameter(
        f"source must be a folder, files, Demonstrations in parts, or Calls(function, n_parts); it is {source!r}."
    )


def _given(items: Iterable[Any]) -> Iterator[GivenPart]:
    for index, item in enumerate(items):
        if not isinstance(item, Demonstrations):
            raise InvalidParameter(
                f"A source must yield Demonstrations; item {index} is a {type(item).__name__}. Pass Demonstrations, or "
                "a list of paths."
            )
        yield GivenPart(index, item)


def _listed(place: Path) -> list[Path]:
    """Return a file, or the files of a folder."""
    if place.is_file():
        return [place]
    if not place.is_dir():
        raise MissingFile(f"There is no folder or file {place}. Check the name.")
    found = [
        path
        for path in place.rglob("*")
        if path.suffix in _SUFFIXES
        and not any(name.startswith((".", "_")) for name in path.relative_to(place).parts)
        and path.is_file()
    ]
    if not found:
        raise InvalidFile(
            f"{place} has no .parquet or .csv file. Give a folder of demonstrations, a part in each file."
        )
    return sorted(found, key=lambda path: path.relative_to(place).parts)


def _files(paths: list[Path], within: Path | None) -> list[FilePart]:
    _check_paths(paths)
    empty = _check_schemas([path for path in paths if path.suffix == ".parquet"])
    empty |= {path for path in paths if path.suffix == ".csv" and _header_alone(path)}
    if len(empty) == len(paths):
        raise InvalidFile(f"{paths[0]} has no rows, nor has any other file. Give files with demonstrations.")
    paths = [path for path in paths if path not in empty]
    names = [path.name if within is None else path.relative_to(within).as_posix() for path in paths]
    # Absolute, since workers may stand elsewhere.
    return [FilePart(str(path.absolute()), name) for path, name in zip(paths, names, strict=True)]


def _check_paths(paths: list[Path]) -> None:
    """Check that all are files, each another."""
    known: dict[Path, int] = {}
    for index, path in enumerate(paths):
        if path.is_dir():
            raise InvalidParameter(f"{path} (item {index}) is a folder. Give a folder by itself, or a list of files.")
        if not path.is_file():
            raise MissingFile(f"There is no file {path} (item {index}). Check the name.")
        first = known.setdefault(path.resolve(), index)
        if first != index:
            raise InvalidParameter(
                f"{path} (item {index}) is the same file as {paths[first]} (item {first}): its demonstrations would "
                "count twice. Remove one of them."
            )


def _check_schemas(paths: list[Path]) -> set[Path]:
    """Check that all parquet files have the same columns, and return those without rows.

    Their last bytes say so, which takes no time. Whole numbers are one kind, of whatever size.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    first: dict[str, str] = {}
    empty = set()
    for path in paths:
        try:
            with pq.ParquetFile(path) as file:
                schema, rows = file.schema_arrow, file.metadata.num_rows
            kinds = {name: schema.field(name).type for name in _COLUMNS if name in schema.names}
            known = {name: "whole number" if pa.types.is_integer(kind) else str(kind) for name, kind in kinds.items()}
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
                f"The files have different columns: {pattern} has {one}; {path} has {other}. Write them alike."
            )
    return empty


def _header_alone(path: Path) -> bool:
    """Return whether a CSV file has its columns' names and nothing else; one without even these was cut off."""
    with path.open(encoding="utf-8-sig", errors="replace") as file:  # as text, so that a line may end in CR too
        return bool(next(file, "").strip()) and not any(line.strip() for line in file)


def _damaged(path: str | Path) -> InvalidFile:
    return InvalidFile(f"{path} is no {Path(path).suffix[1:]} file, or damaged. Write or copy it again.")


Keys = NDArray[np.uint64]
# Demonstrations whose names are compared: 128 MB of keys. Of more, as many are drawn, beside the lowest and the highest
# of each file: where a table is sorted by name, it is there that it is cut.
MOST = 2**24
_TWO_PARTS = {
    "group": (
        "Group {!r} has demonstrations in {} and in {}. A group must lie within one part: partition the data by group."
    ),
    "demo": (
        "Demonstration {!r} has rows in {} and in {}. A demonstration must lie within one file, and each needs a name "
        "of its own: write it to one file, or number demonstrations through all files."
    ),
}


def check_names(parts: Sequence[StoredPart], unit: str, most: float = np.inf) -> None:
    """Check that no name occurs in two parts.

    Parameters
    ----------
    unit : {"group", "demo"}
        What has the names.
    most : float
        Keys to keep in memory. Beyond that only the lowest are compared, which are a random sample of names and the
        same in all parts, and the lowest and highest names of each.
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
        keys = np.unique(keys_of(names))
        lowest.append(keys[keys <= np.uint64(limit)])
        ends.append(np.unique(keys_of(names[[0, -1]])))
        while sum(map(len, lowest)) > most:
            limit //= 2
            lowest = [keys[keys <= np.uint64(limit)] for keys in lowest]
    if len(kinds) > 1:  # the text "2" and the number 2 would pass for two names
        raise InvalidDemos(
            f"The column {unit} has texts in {kinds[True]} and numbers in {kinds[False]}. Write them alike."
        )
    suspects = np.union1d(_twice(lowest), _twice(ends))
    if suspects.size:
        _compare(parts, suspects, _TWO_PARTS[unit])


def _twice(keys: list[Keys]) -> Keys:
    ordered = np.concatenate([np.empty(0, dtype=np.uint64), *keys])
    ordered.sort()
    return np.asarray(ordered[1:][ordered[1:] == ordered[:-1]])


def _compare(parts: Sequence[StoredPart], suspects: Keys, message: str) -> None:
    known: dict[Any, str] = {}
    for part in parts:
        names = part.names()
        if names is None:
            continue
        # A dict, to keep their order: which is named should not change from run to run.
        found = dict.fromkeys(names[np.isin(keys_of(names), suspects)].tolist(), part.name)
        for name in found:
            if name in known:
                raise InvalidDemos(message.format(name, known[name], part.name))
        known |= found


def keys_of(names: NDArray[Any]) -> Keys:
    """Return (n,) keys of texts or numbers: equal names have equal keys, of whatever type their arrays are.

    Examples
    --------
    >>> bool(keys_of(np.array([1]))[0] == keys_of(np.array([1.0]))[0])
    True
    >>> bool(keys_of(np.array(["ann"]))[0] == keys_of(np.array(["ann", "christopher"]))[0])
    True
    >>> np.unique(keys_of(np.array(["ann", "nan", "an", "1"]))).size
    4
    """
    if names.dtype.kind == "U":
        letters = np.ascontiguousarray(names).view(np.uint32).reshape(len(names), -1)
        keys = np.zeros(len(names), dtype=np.uint64)
        for place, column in enumerate(letters.T):
            # What fills up a shorter text is 0, and must not matter.
            keys += np.where(column > 0, _mixed(column.astype(np.uint64) + np.uint64((place + 1) << 32)), np.uint64(0))
        return keys
    if names.dtype.kind != "f":
        return _mixed(names.astype(np.int64).view(np.uint64))
    whole = (names == np.floor(names)) & (np.abs(names) < 2.0**63)
    numbers = np.where(whole, names, 0.0).astype(np.int64).view(np.uint64)
    return _mixed(np.where(whole, numbers, np.ascontiguousarray(names, dtype=np.float64).view(np.uint64)))


def _mixed(values: Keys) -> Keys:
    """Return numbers that look random, another for each."""
    values = values * np.uint64(0x9E3779B97F4A7C15)
    values = (values ^ (values >> np.uint64(32))) * np.uint64(0xD1342543DE82EF95)
    return np.asarray(values ^ (values >> np.uint64(29)))
