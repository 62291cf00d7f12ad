"""`FeatureStore`: a table of feature sums in parts, which are memory maps of files or made by a function.

A part on disk is a JSON header beside plain .npy files, not an npz archive: only plain files can be memory-mapped.
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

PART_FORMAT, PART_VERSION = "limiirl.features.part", 1
REMEDY = "Run write_features again (`limiirl stream features`): it rebuilds missing and damaged parts."
# Numpy parses headers with `ast`, which in Python 3.11 fails at times when two threads do so (of a Dask worker, say).
_ONE_AT_A_TIME = threading.RLock()


def file_error(
    message: str, path: str | PathLike[str], parameter: str = "folder", kind: type[InvalidFile] = InvalidFile
) -> InvalidFile:
    """Return an error about a file or folder, which is its value."""
    return kind(message, parameter=parameter, value=str(path))


class NewerFormat(InvalidFile):
    """A part that a later limiirl wrote: it is intact, and must not be rebuilt."""


class PartFacts(NamedTuple):
    """The facts about a part that decide whether a model can be fitted to it.

    Attributes
    ----------
    n : int
        Rows: demonstrations, or groups.
    n_demos : int
    longest, longest_at : int
        States of the longest demonstration, and its index.
    loose, loose_at : (int, int) or None, int
        The fewest and the most states of demonstrations that do not end in a terminal state, and the index of the
        first of them.
    """

    n: int
    n_demos: int
    longest: int
    longest_at: int
    loose: tuple[int, int] | None
    loose_at: int


class FeaturePart(Protocol):
    """The rows of one part; it must survive pickling."""

    @property
    def name(self) -> str:
        """Its name in messages."""

    @property
    def facts(self) -> PartFacts:
        """Its size and longest demonstrations."""

    @property
    def fingerprint(self) -> str:
        """A text that identifies its content."""

    def windows(self, block: int) -> Iterator[Rows]:
        """Yield the rows in order, at most `block` at a time where that saves memory."""

    def take(self, index: NDArray[np.int64]) -> Rows:
        """Return some rows."""

    def names(self) -> NDArray[Any] | None:
        """Return the names of the rows (n,), where they have any."""


@dataclass(frozen=True)
class StoredPart:
    """A part on disk.

    Attributes
    ----------
    path : str
        Of its header.
    source, mark : str
        Name and digest of its source.
    mdp, by_group : str, bool
        The fingerprint of the MDP, and whether rows are groups.
    fingerprint : str
        A digest of the content.
    n_features : int
    sizes : tuple of (str, int)
        Bytes of each file.
    """

    path: str
    source: str
    mark: str
    mdp: str
    by_group: bool
    facts: PartFacts
    fingerprint: str
    n_features: int
    sizes: tuple[tuple[str, int], ...]

    @property
    def name(self) -> str:
        """The name of its source."""
        return self.source

    @classmethod
    def write(cls, path: Path, rows: Rows, names: NDArray[Any] | None, facts: PartFacts, about: dict[str, Any]) -> None:
        """Write a part; `about` has source, mark, mdp and by_group. The header comes last."""
        arrays = {"features": rows.features, "base": np.stack([rows.log_q, rows.counts])}
        if names is not None:
            arrays["names"] = names
        sizes = {}
        for kind, array in arrays.items():
            target = _array_path(path, kind)
            with atomic_write(target) as scratch:
                with scratch.open("wb") as stream:
                    _save(stream, np.ascontiguousarray(array))
                sizes[kind] = scratch.stat().st_size
        header = {
            "format": PART_FORMAT,
            "version": PART_VERSION,
            **about,
            "facts": facts._asdict(),
            "fingerprint": _digest(arrays.values()),
            "n_features": rows.features.shape[1],
            "sizes": sizes,
        }
        with atomic_write(path) as scratch:
            scratch.write_text(json.dumps(header, indent=1) + "\n", encoding="ascii")

    @classmethod
    def open(cls, path: Path) -> StoredPart:
        """Read a header, and check that its files have the size that they were written with."""
        if not path.is_file():
            raise file_error(f"{path} is missing. {REMEDY}", path)
        try:
            header = json.loads(path.read_bytes())
            if header["format"] == PART_FORMAT and header["version"] > PART_VERSION:
                raise file_error(
                    f"{path} has format version {header['version']}; this limiirl reads up to {PART_VERSION}. Upgrade "
                    "limiirl.",
                    path,
                    kind=NewerFormat,
                )
            if header["format"] != PART_FORMAT:
                raise file_error(f"{path} has format {header['format']!r}, not {PART_FORMAT!r}. {REMEDY}", path)
            part = cls(
                str(path),
                **{name: _check_type(header[name], str) for name in ("source", "mark", "mdp", "fingerprint")},
                by_group=_check_type(header["by_group"], bool),
                facts=_read_facts(header["facts"]),
                n_features=_check_type(header["n_features"], int),
                sizes=tuple((kind, _check_type(header["sizes"][kind], int)) for kind in _list_arrays(header["sizes"])),
            )
        except (KeyError, TypeError, ValueError) as error:
            if isinstance(error, InvalidFile):
                raise
            raise file_error(f"{path} is damaged ({error!s:.200}). {REMEDY}", path) from None
        for kind, size in part.sizes:
            target = _array_path(path, kind)
            actual = target.stat().st_size if target.is_file() else None
            if actual != size:
                what = "is missing" if actual is None else f"is truncated or changed: {actual} bytes instead of {size}"
                raise file_error(f"{target} {what}. {REMEDY}", target)
        return part

    def windows(self, block: int) -> Iterator[Rows]:
        """Yield the rows in order; each window is mapped separately, so that memory does not grow with the part."""
        for lo in range(0, self.facts.n, block):
            yield self._rows(slice(lo, lo + block))

    def take(self, index: NDArray[np.int64]) -> Rows:
        """Return some rows."""
        return self._rows(index)

    def names(self) -> NDArray[Any] | None:
        """Return the names of the rows (n,), where they have any."""
        return np.array(self._map("names")) if "names" in dict(self.sizes) else None

    def verify(self) -> None:
        """Read everything, and check that it is what was written."""
        arrays = [self._map(kind) for kind, _ in self.sizes]
        if _digest(arrays) != self.fingerprint:
            raise file_error(f"{self.path}: the checksum of its files does not match. {REMEDY}", self.path)

    def _rows(self, chosen: slice | NDArray[np.int64]) -> Rows:
        base = self._map("base")
        features = np.ascontiguousarray(self._map("features")[chosen])
        return Rows(features, np.ascontiguousarray(base[0, chosen]), np.ascontiguousarray(base[1, chosen]))

    def _map(self, kind: str) -> NDArray[Any]:
        path = _array_path(Path(self.path), kind)
        try:
            # Copy on write, although nothing is written: read-only arrays would need their own compiled code.
            with _ONE_AT_A_TIME:
                array = np.asarray(np.lib.format.open_memmap(path, mode="c"))
        except (OSError, ValueError) as error:
            raise file_error(f"{path} cannot be read ({error!s:.200}). {REMEDY}", path) from None
        n = self.facts.n
        shape = {"features": (n, self.n_features), "base": (2, n), "names": (n,)}[kind]
        if array.shape != shape or (kind != "names" and array.dtype != np.float64):
            raise file_error(
                f"{path} has shape {array.shape} and type {array.dtype}; the part has {shape}. {REMEDY}", path
            )
        return array


def _check_type(value: Any, kind: type) -> Any:
    """Return a value of a header; numbers are counts."""
    if type(value) is not kind or (isinstance(value, int) and value < 0):
        raise TypeError(f"{value!r:.50} should be a {kind.__name__}")
    return value


def _list_arrays(sizes: Any) -> Iterable[str]:
    known = set(_check_type(sizes, dict))
    if known not in ({"features", "base"}, {"features", "base", "names"}):
        raise ValueError(f"unknown arrays {', '.join(sorted(known))}")
    return [kind for kind in ("features", "base", "names") if kind in known]


def _read_facts(header: Any) -> PartFacts:
    numbers = {name: _check_type(header[name], int) for name in PartFacts._fields if name != "loose"}
    if numbers["n"] < 1:
        raise ValueError("a part must have at least one row")
    loose = header["loose"]
    if loose is not None:
        least, most = loose
        loose = (_check_type(least, int), _check_type(most, int))
    return PartFacts(**numbers, loose=loose)


def _array_path(header: Path, kind: str) -> Path:
    return header.with_suffix(f".{kind}.npy")


def _save(stream: BinaryIO, array: NDArray[Any]) -> None:
    """Write an .npy file, with an error on a full disk; numpy leaves the last bytes to a buffer of C and ignores it."""
    np.lib.format.write_array_header_1_0(stream, np.lib.format.header_data_from_array_1_0(array))
    stream.write(array.view(np.uint8).data)


def _digest(arrays: Any) -> str:
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(f"{array.dtype.str} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).view(np.uint8).data)
    return digest.hexdigest()


@dataclass(frozen=True)
class GeneratedPart:
    """A part that is computed whenever it is read: function(index) -> Rows.

    Attributes
    ----------
    mark : str
        Identifies the data.
    by_group : bool
        Whether a row may stand for several demonstrations, their number being its count.
    """

    index: int
    function: Callable[[int], Rows]
    facts: PartFacts
    n_features: int
    mark: str = ""
    by_group: bool = False

    @property
    def name(self) -> str:
        """Its number."""
        return f"part {self.index}"

    @property
    def fingerprint(self) -> str:
        """Its size, the function's name, and the mark: the content itself is not computed."""
        return f"{self.name}: {self.facts}, {qualified_name(self.function)}, {self.mark}"

    def windows(self, block: int) -> Iterator[Rows]:
        """Yield all rows at once: they are in memory already."""
        del block
        yield self._make()

    def take(self, index: NDArray[np.int64]) -> Rows:
        """Return some rows."""
        return Rows(*(array[index] for array in self._make()))

    def names(self) -> None:
        """Return None: rows are not named."""

    def _make(self) -> Rows:
        made = self.function(self.index)
        if not isinstance(made, tuple | list) or len(made) != len(Rows._fields):
            raise self._error(f"function must return Rows(features, log_q, counts); got a {type(made).__name__}", made)
        try:
            rows = Rows(*(np.ascontiguousarray(array, dtype=np.float64).reshape(np.shape(array)) for array in made))
        except (TypeError, ValueError) as error:
            raise self._error(f"function must return numbers ({error!s:.200})", made) from None
        n = self.facts.n
        for name, array, shape in zip(Rows._fields, rows, ((n, self.n_features), (n,), (n,)), strict=True):
            if array.shape != shape:
                raise self._error(f"function must return {name} of shape {shape}; got {array.shape}", array.shape)
        if not self.by_group and np.any(rows.counts != 1.0):
            row = int(np.argmax(rows.counts != 1.0))
            raise InvalidParameter(
                f"{self.name}, row {row}: the count of a generated row must be 1; got {rows.counts[row]:g}. For "
                "groups, use write_features(..., by_group=True).",
                parameter="function",
                value=float(rows.counts[row]),
                index=(self.index, row),
            )
        return rows

    def _error(self, message: str, value: object) -> InvalidParameter:
        return InvalidParameter(f"{self.name}: {message}.", parameter="function", value=value, index=self.index)


def _make_parts(
    function: Any, sizes: Sequence[Any], n_features: Any, longest: Any, mark: Any
) -> tuple[GeneratedPart, ...]:
    """Return the parts of `FeatureStore.generated`, which has the same arguments."""
    check_function(function, mark)
    check_count(n_features, "n_features")
    check_count(longest, "longest")
    try:
        listed = list(sizes)
    except TypeError:
        raise InvalidParameter(
            f"sizes must be a list of numbers of rows; got {sizes!r}.", parameter="sizes", value=sizes
        ) from None
    if not listed:
        raise InvalidParameter("sizes must have at least one part; it is empty.", parameter="sizes", value=sizes)
    for index, n in enumerate(listed):
        whole = isinstance(n, int | np.integer) or (isinstance(n, float | np.floating) and float(n).is_integer())
        if not whole or n < 1:
            raise InvalidParameter(
                f"sizes must be integers of at least 1; part {index} has {n!r}. Leave out parts without rows.",
                parameter="sizes",
                value=n,
                index=index,
            )
    return tuple(
        GeneratedPart(index, function, PartFacts(int(n), int(n), int(longest), 0, None, 0), int(n_features), mark)
        for index, n in enumerate(listed)
    )


def check_function(function: Any, mark: Any) -> None:
    """Check the function of a source, and the text that identifies its data."""
    if not callable(function):
        raise InvalidParameter(
            f"function must be a function of a part's number; got {function!r}.", parameter="function", value=function
        )
    if not isinstance(mark, str):
        raise InvalidParameter(
            f"mark must be a text, such as a date or str(seed); got {mark!r}.", parameter="mark", value=mark
        )


def qualified_name(value: Any) -> str:
    """Return the full name of a function or class, or of an object's class.

    >>> qualified_name(functools.partial(len)), qualified_name(np.eye(2))
    ('partial of builtins.len', 'numpy.ndarray')
    """
    if isinstance(value, functools.partial):
        return f"partial of {qualified_name(value.func)}"
    named = value if hasattr(value, "__qualname__") else type(value)
    return f"{named.__module__}.{named.__qualname__}"


def check_path(value: Any, name: str) -> Path:
    """Return a path.

    Examples
    --------
    >>> check_path("features", "folder").name
    'features'
    """
    if not isinstance(value, str | os.PathLike):
        raise InvalidParameter(f"{name} must be a path; got {value!r}.", parameter=name, value=value)
    return Path(value)


def make_folder(folder: Any) -> Path:
    """Create a folder if it does not exist, and return its absolute path (workers may have another directory)."""
    place = check_path(folder, "folder").absolute()
    try:
        place.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise file_error(f"{place} cannot be a folder: it or its parent is a file. Give another.", place) from None
    return place


def is_scratch(path: Path) -> bool:
    """Whether a file is a temporary file of `atomic_write`, which a killed process leaves behind."""
    return path.name.startswith(".") and path.name.endswith(".tmp")


FORMAT, VERSION = "limiirl.features", 1
HEADER, MDP_FILE = "store.json", "mdp.npz"


@dataclass(frozen=True)
class FeatureStore:
    """Feature sums of demonstrations, or of groups of them, in parts.

    `write_features` writes one into a folder, `FeatureStore.open` opens it, `FeatureStore.generated` needs no disk.

    Attributes
    ----------
    parts : tuple of FeaturePart
        In order; the rows of the store are those of its parts, one after the other.
    n_features : int
    mdp_fingerprint : str
        Fingerprint of the MDP whose features these are; empty if unknown.
    by_group : bool
        Whether a row is a group of demonstrations that share an intent.
    folder : Path or None

    Examples
    --------
    >>> made = FeatureStore.generated(lambda i: Rows(np.full((2, 1), i), np.zeros(2), np.ones(2)), [2, 2], 1, longest=3)
    >>> made.n, len(made.parts), made.take(np.array([1, 2])).features.ravel().tolist()
    (4, 2, [0.0, 1.0])
    """

    parts: tuple[FeaturePart, ...]
    n_features: int
    mdp_fingerprint: str = ""
    by_group: bool = False
    folder: Path | None = None

    @classmethod
    def open(cls, folder: str | PathLike[str]) -> FeatureStore:
        """Read the headers of a complete store of `write_features`; a missing or truncated file is an error."""
        place = check_path(folder, "folder").absolute()  # workers may have another working directory
        header = read_header(place)
        names = header["parts"]
        if names is None:
            raise file_error(
                f"{place} is not finished: write_features was stopped before its last part. Run it again to continue.",
                place,
            )
        if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
            raise file_error(f"{place / HEADER} is damaged: its parts are {names!r:.50}. {REMEDY}", place / HEADER)
        parts = tuple(StoredPart.open(place / name) for name in names)
        for part in parts:
            if (part.mdp, part.by_group) != (header["mdp"], header["by_group"]):
                raise file_error(
                    f"{part.path} belongs to another store than {place}. Write the features to another folder.",
                    part.path,
                )
            if part.n_features != header["n_features"]:
                raise file_error(
                    f"{part.path} has {part.n_features} features; the store has {header['n_features']}. {REMEDY}",
                    part.path,
                )
        return cls(parts, header["n_features"], header["mdp"], header["by_group"], place)

    @classmethod
    def generated(
        cls, function: Callable[[int], Rows], sizes: Sequence[int], n_features: int, *, longest: int, mark: str = ""
    ) -> FeatureStore:
        """Return a store whose part i is function(i), computed again for every pass: no disk, any number of rows.

        Parameters
        ----------
        function : callable
            Maps a part's number to its `Rows`, each of them one demonstration (count 1). The same number must give the
            same rows. With an executor it must survive pickling.
        sizes : (P,)
            Rows of each part, at least one.
        longest : int
            States of the longest demonstration.
        mark : str
            Identifies the data, such as a date or a seed: a checkpoint is continued only with the same mark and
            function name; the rows are not compared.
        """
        return cls(_make_parts(function, sizes, n_features, longest, mark), int(n_features))

    @cached_property
    def n(self) -> int:
        """The number of rows: demonstrations, or groups."""
        return sum(part.facts.n for part in self.parts)

    @cached_property
    def n_demos(self) -> int:
        """The number of demonstrations."""
        return sum(part.facts.n_demos for part in self.parts)

    @property
    def longest(self) -> int:
        """States of the longest demonstration."""
        return max(part.facts.longest for part in self.parts)

    @property
    def noun(self) -> str:
        """The name of rows in messages."""
        return "groups" if self.by_group else "demonstrations"

    @cached_property
    def fingerprint(self) -> str:
        """A digest of the parts, their order and the MDP."""
        marks = [part.fingerprint for part in self.parts]
        about = [self.mdp_fingerprint, self.by_group, self.n_features, marks]
        return hashlib.sha256(json.dumps(about).encode()).hexdigest()

    def mdp(self) -> MDP:
        """Return the MDP that the store was written with."""
        if self.folder is None:
            raise InvalidParameter("A generated store has no MDP. Pass the one of its features.", parameter="mdp")
        path = self.folder / MDP_FILE
        try:
            mdp = MDP.load(path)
        except InvalidFile as error:
            raise file_error(f"{path} is missing or damaged ({error!s:.200}). {REMEDY}", path) from None
        if mdp.fingerprint() != self.mdp_fingerprint:
            raise file_error(f"{path} is the MDP {mdp.fingerprint()}, not {self.mdp_fingerprint}. {REMEDY}", path)
        return mdp

    def check(self, mdp: MDP) -> None:
        """Raise `InvalidParameter` unless the features are those of an MDP."""
        validate.mdp(mdp)
        if self.n_features != mdp.n_features:
            raise InvalidParameter(
                f"The store has {self.n_features} features; mdp has {mdp.n_features}.",
                parameter="mdp",
                value=mdp.n_features,
            )
        if self.mdp_fingerprint and self.mdp_fingerprint != mdp.fingerprint():
            raise InvalidParameter(
                f"The store has features of the MDP {self.mdp_fingerprint}; mdp is {mdp.fingerprint()}. Pass the MDP "
                "that it was written with (store.mdp()), or write the features again.",
                parameter="mdp",
                value=mdp.fingerprint(),
            )

    def verify(self) -> None:
        """Read everything and compare the checksums; `open` compares sizes only."""
        for part in self.parts:
            if isinstance(part, StoredPart):
                part.verify()

    def take(self, index: NDArray[np.int64]) -> Rows:
        """Return the rows of sorted numbers, counted over all parts."""
        rows, begin = [], 0
        for part in self.parts:
            lo, hi = np.searchsorted(index, [begin, begin + part.facts.n])
            if hi > lo:
                rows.append(part.take(index[lo:hi] - begin))
            begin += part.facts.n
        return Rows(*(np.concatenate(arrays) for arrays in zip(*rows, strict=True)))


def as_store(store: Any) -> FeatureStore:
    """Return a store, or open the one in a folder."""
    if isinstance(store, FeatureStore):
        return store
    if isinstance(store, str | PathLike):
        return FeatureStore.open(store)
    raise InvalidParameter(
        f"store must be a FeatureStore or its folder; got a {type(store).__name__}.", parameter="store", value=store
    )


def read_header(place: Path) -> dict[str, Any]:
    """Return the header of a store."""
    path = place / HEADER
    if not path.is_file():
        what = f"it has no {HEADER}" if place.is_dir() else "there is no such folder"
        raise file_error(
            f"{place} is not a store of features: {what}. Give a folder of write_features.", place, kind=MissingFile
        )
    try:
        header = json.loads(path.read_bytes())
        if header["format"] != FORMAT or header["version"] > VERSION:
            raise file_error(
                f"{path} has format {header['format']!r}, version {header['version']}; this limiirl reads {FORMAT!r} "
                f"up to version {VERSION}.",
                path,
            )
        header["parts"]  # of any type here: write_features writes it again
        for name, kind in (("mdp", str), ("by_group", bool), ("n_features", int)):
            if type(header[name]) is not kind:
                raise TypeError(f"{name} is {header[name]!r:.50}")
    except (KeyError, TypeError, ValueError) as error:
        if isinstance(error, InvalidFile):
            raise
        raise file_error(f"{path} is damaged ({error!s:.200}). Write the features to another folder.", path) from None
    return dict(header)


def write_header(place: Path, mdp: MDP, *, by_group: bool, parts: list[str] | None) -> None:
    """Write the header of a store, with the names of its parts once all are complete."""
    header = {
        "format": FORMAT,
        "version": VERSION,
        "mdp": mdp.fingerprint(),
        "by_group": by_group,
        "n_features": mdp.n_features,
        "feature_names": list(mdp.feature_names),
        "parts": parts,
    }
    with atomic_write(place / HEADER) as scratch:
        scratch.write_text(json.dumps(header, indent=1) + "\n", encoding="ascii")
