"""Sources of demonstrations in shards: files, objects in memory or a function; and unique names across shards."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from limiirl._validation import check_count
from limiirl.demos import Demonstrations
from limiirl.errors import InvalidDemos, InvalidFile, InvalidParameter, LimiirlError, MissingFile
from limiirl.streams.store import StoredShard, check_function

_SUFFIXES = (".parquet", ".csv")
# Columns that are read; other columns may differ between files.
_COLUMNS = ("demo", "t", "state", "action", "group")


@dataclass(frozen=True)
class FileShard:
    """A parquet or CSV file in the format of `Demonstrations.from_file`; its name is relative to the source."""

    path: str
    name: str

    def read(self) -> Demonstrations:
        """Return the demonstrations; errors name the file."""
        import pyarrow as pa

        try:
            return Demonstrations.from_file(self.path)
        except (pa.ArrowException, UnicodeDecodeError) as error:
            if isinstance(error, MemoryError):
                raise
            raise _file_error(self.path) from None

    def checksum(self) -> str:
        """Return the SHA-256 of the file."""
        with Path(self.path).open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()


@dataclass(frozen=True)
class MemoryShard:
    """Demonstrations in memory."""

    name: str
    demos: Demonstrations

    def read(self) -> Demonstrations:
        """Return the demonstrations."""
        return self.demos

    def checksum(self) -> str:
        """Return the SHA-256 of the arrays."""
        checksum = hashlib.sha256()
        for name in ("states", "offsets", "actions", "groups", "ids"):
            values = getattr(self.demos, name)
            checksum.update(f"{name} {'' if values is None else values.dtype.str}".encode())
            checksum.update(b"" if values is None else np.ascontiguousarray(values).tobytes())
        return checksum.hexdigest()


@dataclass(frozen=True)
class FunctionShard:
    """The result of a function of the shard index; `version` identifies the data."""

    index: int
    function: Callable[[int], Demonstrations]
    version: str = ""

    @property
    def name(self) -> str:
        """Name used in messages."""
        return f"shard {self.index}"

    def read(self) -> Demonstrations:
        """Return the demonstrations."""
        return self.function(self.index)

    def checksum(self) -> str:
        """Return `version`, which replaces a checksum of the data."""
        return self.version


# One shard of a source; must be picklable. The checksum identifies the data, and is empty if unknown.
ShardSource = FileShard | MemoryShard | FunctionShard


@dataclass(frozen=True)
class FunctionSource:
    """A source whose shard i is function(i), for i below `n_shards`.

    The function must be deterministic; this is not checked. `version` is a string that identifies the data, for example
    a date or str(seed). An existing shard with a different version raises an error.

    Examples
    --------
    >>> source = FunctionSource(lambda i: Demonstrations.from_lists([[i, i + 1]]), n_shards=3)
    >>> [shard.read().states.tolist() for shard in list_shards(source)]
    [[0, 1], [1, 2], [2, 3]]
    """

    function: Callable[[int], Demonstrations]
    n_shards: int
    version: str = ""

    def __post_init__(self) -> None:
        check_function(self.function, self.version)
        check_count(self.n_shards, "n_shards")


def list_shards(source: Any) -> Iterable[ShardSource]:
    """Return the shards of a source: a list if their number is known, otherwise an iterator.

    Parameters
    ----------
    source : path, paths, FunctionSource, Demonstrations or iterable of Demonstrations
        For a folder, the .parquet and .csv files of the folder and its subfolders, sorted by name. Files without rows
        are ignored, as are files and folders whose names begin with a dot or an underscore. Generators are consumed
        lazily.
    """
    if isinstance(source, FunctionSource):
        return [FunctionShard(index, source.function, source.version) for index in range(source.n_shards)]
    if isinstance(source, Demonstrations):
        return [MemoryShard("shard 0", source)]
    if isinstance(source, str | os.PathLike):
        path = Path(source)
        return _file_shards(_list_files(path), path if path.is_dir() else path.parent)
    if isinstance(source, list | tuple):
        if source and all(isinstance(item, str | os.PathLike) for item in source):
            return _file_shards([Path(item) for item in source], None)
        return list(_memory_shards(source))
    if isinstance(source, Iterable):
        return _memory_shards(source)
    rule = "must be a folder, files, Demonstrations, or FunctionSource(function, n_shards)"
    raise InvalidParameter.of("source", source, rule)


def _memory_shards(items: Iterable[Any]) -> Iterator[MemoryShard]:
    for index, item in enumerate(items):
        if not isinstance(item, Demonstrations):
            raise InvalidParameter.of("source", item, "items must be all Demonstrations or all paths", index=index)
        yield MemoryShard(f"shard {index}", item)


def _error(error_type: type[LimiirlError], message: str, path: str | Path, index: int | None = None) -> LimiirlError:
    return error_type(message, parameter="source", value=str(path), index=index)


def _list_files(root: Path) -> list[Path]:
    if root.is_file():
        return [root]
    if not root.is_dir():
        raise _error(MissingFile, f"There is no folder or file {root}. Check the path.", root)
    paths = [
        path
        for path in root.rglob("*")
        if path.suffix in _SUFFIXES
        and not any(name.startswith((".", "_")) for name in path.relative_to(root).parts)
        and path.is_file()
    ]
    if not paths:
        message = f"{root} has no .parquet or .csv files. Pass a folder of demonstrations with one file per shard."
        raise _error(InvalidFile, message, root)
    return sorted(paths, key=lambda path: path.relative_to(root).parts)


def _file_shards(paths: list[Path], within: Path | None) -> list[FileShard]:
    _check_paths(paths)
    empty = _check_schemas([path for path in paths if path.suffix == ".parquet"])
    empty |= {path for path in paths if path.suffix == ".csv" and _has_only_header(path)}
    if len(empty) == len(paths):
        raise _error(
            InvalidFile, f"All files are empty ({paths[0]}, ...). Pass files that contain demonstrations.", paths[0]
        )
    paths = [path for path in paths if path not in empty]
    names = [path.name if within is None else path.relative_to(within).as_posix() for path in paths]
    # Absolute paths, because workers may have another working directory.
    return [FileShard(str(path.absolute()), name) for path, name in zip(paths, names, strict=True)]


def _check_paths(paths: list[Path]) -> None:
    """Check that all paths are distinct files."""
    seen: dict[Path, int] = {}
    for index, path in enumerate(paths):
        if path.is_dir():
            message = f"{path} (item {index}) is a folder. Pass one folder, or a list of files."
            raise _error(InvalidParameter, message, path, index)
        if not path.is_file():
            raise _error(MissingFile, f"There is no file {path} (item {index}). Check the path.", path, index)
        first = seen.setdefault(path.resolve(), index)
        if first != index:
            message = f"{path} (item {index}) is the same file as {paths[first]} (item {first}). Remove one of them."
            raise _error(InvalidParameter, message, path, index)


def _check_schemas(paths: list[Path]) -> set[Path]:
    """Check that all parquet files have the same columns, and return the files without rows; read only footers."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    expected: dict[str, str] = {}
    empty = set()
    for path in paths:
        try:
            with pq.ParquetFile(path) as file:
                schema, rows = file.schema_arrow, file.metadata.num_rows
            types = {name: schema.field(name).type for name in _COLUMNS if name in schema.names}
            columns = {name: "integer" if pa.types.is_integer(dtype) else str(dtype) for name, dtype in types.items()}
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise
            raise _file_error(path) from None
        if rows == 0:
            empty.add(path)
            continue
        if not expected:
            expected, first = columns, path
        if columns != expected:
            a, b = (", ".join(f"{name} {dtype}" for name, dtype in table.items()) for table in (expected, columns))
            message = f"Files must have the same columns; {first} has {a}, but {path} has {b}."
            raise _error(InvalidFile, f"{message} Write them with the same columns and types.", path)
    return empty


def _has_only_header(path: Path) -> bool:
    """Return True if a CSV file has column names but no rows. An empty file is considered truncated."""
    with path.open(encoding="utf-8-sig", errors="replace") as file:  # in text mode, because lines may end in CR
        return bool(next(file, "").strip()) and not any(line.strip() for line in file)


def _file_error(path: str | Path) -> LimiirlError:
    message = f"{path} is not a {Path(path).suffix[1:]} file, or is corrupted. Write or copy it again."
    return _error(InvalidFile, message, path)


Keys = NDArray[np.uint64]
# Maximum number of names that are compared (128 MB of hash keys). If there are more, `check_names` compares a sample,
# and the first and last name of each file: in a table sorted by name, only these can be split between files.
MAX_NAMES = 2**24
_DUPLICATE = {
    "group": "Group {!r} has demonstrations in {} and in {}. Write all demonstrations of a group to the same shard.",
    "demo": "Demonstration {!r} has rows in {} and in {}. Write them to one file, and use unique names across files.",
}


def check_names(shards: Sequence[StoredShard], unit: str, max_keys: float = np.inf) -> None:
    """Check that no name occurs in two shards.

    Parameters
    ----------
    unit : {"group", "demo"}
        The column of the names.
    max_keys : float
        Maximum number of hash keys in memory. If there are more names, only the names with the lowest keys (a random
        sample that is the same in all shards) and the first and last name of each shard are compared.
    """
    first_shards: dict[bool, str] = {}  # first shard with names of each type (True: strings, False: numbers)
    lowest: list[Keys] = []
    ends: list[Keys] = []
    limit = 2**64 - 1
    for shard in shards:
        names = shard.names()
        if names is None:
            continue
        first_shards.setdefault(names.dtype.kind == "U", shard.name)
        keys = np.unique(hash_names(names))
        lowest.append(keys[keys <= np.uint64(limit)])
        ends.append(np.unique(hash_names(names[[0, -1]])))
        while sum(map(len, lowest)) > max_keys:
            limit //= 2
            lowest = [keys[keys <= np.uint64(limit)] for keys in lowest]
    if len(first_shards) > 1:  # the text "2" and the number 2 would be different names
        strings, numbers = first_shards[True], first_shards[False]
        message = f"The column {unit} must have one type; it has strings in {strings} and numbers in {numbers}."
        raise InvalidDemos(f"{message} Convert the numbers to strings.", parameter="source", value=unit)
    suspects = np.union1d(_find_repeats(lowest), _find_repeats(ends))
    if suspects.size:
        _compare_names(shards, suspects, _DUPLICATE[unit])


def _find_repeats(keys: list[Keys]) -> Keys:
    ordered = np.concatenate([np.empty(0, dtype=np.uint64), *keys])
    ordered.sort()
    return np.asarray(ordered[1:][ordered[1:] == ordered[:-1]])


def _compare_names(shards: Sequence[StoredShard], suspects: Keys, message: str) -> None:
    seen: dict[Any, str] = {}
    for shard in shards:
        names = shard.names()
        if names is None:
            continue
        # A dict is ordered, so that the error is the same in every run.
        here = dict.fromkeys(names[np.isin(hash_names(names), suspects)].tolist(), shard.name)
        for name in here:
            if name in seen:
                raise InvalidDemos(message.format(name, seen[name], shard.name), parameter="source", value=name)
        seen |= here


def hash_names(names: NDArray[Any]) -> Keys:
    """Return the hashes (n,) of strings or numbers; equal names have equal hashes for all array types."""
    if names.dtype.kind == "U":
        letters = np.ascontiguousarray(names).view(np.uint32).reshape(len(names), -1)
        keys = np.zeros(len(names), dtype=np.uint64)
        for position, column in enumerate(letters.T):
            # Strings are padded with 0, which must not change the hash.
            keys += np.where(
                column > 0, _mix_bits(column.astype(np.uint64) + np.uint64((position + 1) << 32)), np.uint64(0)
            )
        return keys
    if names.dtype.kind != "f":
        return _mix_bits(names.astype(np.int64).view(np.uint64))
    whole = (names == np.floor(names)) & (np.abs(names) < 2.0**63)
    numbers = np.where(whole, names, 0.0).astype(np.int64).view(np.uint64)
    return _mix_bits(np.where(whole, numbers, np.ascontiguousarray(names, dtype=np.float64).view(np.uint64)))


def _mix_bits(values: Keys) -> Keys:
    """Return the values of a pseudorandom bijection of 64-bit integers."""
    values = values * np.uint64(0x9E3779B97F4A7C15)
    values = (values ^ (values >> np.uint64(32))) * np.uint64(0xD1342543DE82EF95)
    return np.asarray(values ^ (values >> np.uint64(29)))
