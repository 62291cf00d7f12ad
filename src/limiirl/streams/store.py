"""`FeatureStore`: a table of feature sums in parts, larger than memory, and what it was made from.

Parts of a table of feature sums, and those on disk, which are memory maps.

Parts that a function makes whenever they are read: no disk, and any number of rows.

Where files go: folders that are named, made, and looked through.
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
AGAIN = "Run write_features again (`limiirl stream features`), which makes what is missing or damaged anew."
# Numpy reads headers with `ast`, which in Python 3.11 fails at times when two threads do (a Dask worker's, say).
_ONE_AT_A_TIME = threading.RLock()


class NewerFormat(InvalidFile):
    """A part that a later limiirl wrote: it is whole, and not to be written anew."""


class Facts(NamedTuple):
    """What a model asks of a part before it is fitted.

    Attributes
    ----------
    n : int
        Rows: demonstrations, or groups.
    n_demos : int
    longest, longest_at : int
        The most states of a demonstration, and which it is.
    loose, loose_at : (int, int) or None, int
        The least and the most states of those that do not end in a terminal state, and the first of them.
    """

    n: int
    n_demos: int
    longest: int
    longest_at: int
    loose: tuple[int, int] | None
    loose_at: int


class Part(Protocol):
    """A part as a pass sees it; it must survive pickling."""

    @property
    def name(self) -> str:
        """What it is called in messages."""

    @property
    def facts(self) -> Facts:
        """Its size, and what it holds."""

    @property
    def fingerprint(self) -> str:
        """What stands for its content."""

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
        The name of what it was made from, and a digest of that.
    mdp, by_group : str, bool
        The fingerprint of the MDP, and whether rows are groups.
    fingerprint : str
        A digest of the content.
    n_features : int
    sizes : dict
        Bytes of each file.
    """

    path: str
    source: str
    mark: str
    mdp: str
    by_group: bool
    facts: Facts
    fingerprint: str
    n_features: int
    sizes: tuple[tuple[str, int], ...]

    @property
    def name(self) -> str:
        """What it was made from."""
        return self.source

    @classmethod
    def write(cls, path: Path, rows: Rows, names: NDArray[Any] | None, facts: Facts, about: dict[str, Any]) -> None:
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
            raise InvalidFile(f"{path} is missing. {AGAIN}")
        try:
            header = json.loads(path.read_bytes())
            if header["format"] == PART_FORMAT and header["version"] > PART_VERSION:
                raise NewerFormat(
                    f"{path} has format version {header['version']}; this limiirl reads up to {PART_VERSION}. Upgrade "
                    "limiirl."
                )
            if header["format"] != PART_FORMAT:
                raise InvalidFile(f"{path} has format {header['format']!r}, which is not ours. {AGAIN}")
            part = cls(
                str(path),
                **{name: _of(str, header[name]) for name in ("source", "mark", "mdp", "fingerprint")},
                by_group=_of(bool, header["by_group"]),
                facts=_facts(header["facts"]),
                n_features=_of(int, header["n_features"]),
                sizes=tuple((kind, _of(int, header["sizes"][kind])) for kind in _kinds(header["sizes"])),
            )
        except (KeyError, TypeError, ValueError) as error:
            if isinstance(error, InvalidFile):
                raise
            raise InvalidFile(f"{path} is damaged ({error!s:.200}). {AGAIN}") from None
        for kind, size in part.sizes:
            target = _array_path(path, kind)
            found = target.stat().st_size if target.is_file() else None
            if found != size:
                what = "is missing" if found is None else f"is truncated or changed: {found} bytes instead of {size}"
                raise InvalidFile(f"{target} {what}. {AGAIN}")
        return part

    def windows(self, block: int) -> Iterator[Rows]:
        """Yield the rows in order; each window is mapped by itself, so that memory does not grow with the part."""
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
            raise InvalidFile(f"{self.path}: the content of its files is not what was written. {AGAIN}")

    def _rows(self, chosen: slice | NDArray[np.int64]) -> Rows:
        base = self._map("base")
        features = np.ascontiguousarray(self._map("features")[chosen])
        return Rows(features, np.ascontiguousarray(base[0, chosen]), np.ascontiguousarray(base[1, chosen]))

    def _map(self, kind: str) -> NDArray[Any]:
        path = _array_path(Path(self.path), kind)
        try:
            # Copy on write: nobody writes, and compiled code need not exist twice, once for arrays that are read-only.
            with _ONE_AT_A_TIME:
                found = np.asarray(np.lib.format.open_memmap(path, mode="c"))
        except (OSError, ValueError) as error:
            raise InvalidFile(f"{path} cannot be read ({error!s:.200}). {AGAIN}") from None
        n = self.facts.n
        shape = {"features": (n, self.n_features), "base": (2, n), "names": (n,)}[kind]
        if found.shape != shape or (kind != "names" and found.dtype != np.float64):
            raise InvalidFile(
                f"{path} has the shape {found.shape} and the type {found.dtype}; the part has {shape}. {AGAIN}"
            )
        return found


def _of(kind: type, value: Any) -> Any:
    """Return a value of a header, which must be of a kind; numbers are counts."""
    if type(value) is not kind or (isinstance(value, int) and value < 0):
        raise TypeError(f"{value!r:.50} should be a {kind.__name__}")
    return value


def _kinds(sizes: Any) -> Iterable[str]:
    """Return which arrays a part has."""
    known = set(_of(dict, sizes))
    if known not in ({"features", "base"}, {"features", "base", "names"}):
        raise ValueError(f"there are no such arrays as {', '.join(sorted(known))}")
    return [kind for kind in ("features", "base", "names") if kind in known]


def _facts(given: Any) -> Facts:
    numbers = {name: _of(int, given[name]) for name in Facts._fields if name != "loose"}
    if numbers["n"] < 1:
        raise ValueError("a part has at least one row")
    loose = given["loose"]
    if loose is not None:
        least, most = loose
        loose = (_of(int, least), _of(int, most))
    return Facts(**numbers, loose=loose)


def _array_path(header: Path, kind: str) -> Path:
    return header.with_suffix(f".{kind}.npy")


def _save(stream: BinaryIO, array: NDArray[Any]) -> None:
    """Write an .npy file; unlike numpy, which leaves the last bytes to a buffer of C, with an error on a full disk."""
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
    """A part that a function makes whenever it is read: function(index) -> Rows.

    Attributes
    ----------
    n_features : int
        Columns of the features.
    mark : str
        What the caller says of the data; another is taken for other data.
    by_group : bool
        Whether a row may stand for several demonstrations, which are its count.
    """

    index: int
    function: Callable[[int], Rows]
    facts: Facts
    n_features: int
    mark: str = ""
    by_group: bool = False

    @property
    def name(self) -> str:
        """Its number."""
        return f"part {self.index}"

    @property
    def fingerprint(self) -> str:
        """What is known of its content without making it: its size, the function's name, and the mark."""
        return f"{self.name}: {self.facts}, {name_of(self.function)}, {self.mark}"

    def windows(self, block: int) -> Iterator[Rows]:
        """Yield all rows at once: they are in memory already."""
        del block
        yield self._made()

    def take(self, index: NDArray[np.int64]) -> Rows:
        """Return some rows."""
        return Rows(*(array[index] for array in self._made()))

    def names(self) -> None:
        """Return None: rows have numbers only."""

    def _made(self) -> Rows:
        rows = self._arrays(self.function(self.index))
        if {array.shape[:1] for array in rows} != {(self.facts.n,)}:
            n_rows, n_log_q, n_counts = (len(np.atleast_1d(array)) for array in rows)
            raise InvalidParameter(
                f"{self.name}: the function made {n_rows} rows of features, {n_log_q} of log q and {n_counts} counts; "
                f"{self.facts.n} of each were announced."
            )
        expected = ((self.facts.n, self.n_features), (self.facts.n,), (self.facts.n,))
        for what, array, shape in zip(Rows._fields, rows, expected, strict=True):
            if array.shape != shape:
                raise InvalidParameter(
                    f"{self.name}: the function made {what} of the shape {array.shape}; {shape} was announced."
                )
        if not self.by_group and np.any(rows.counts != 1.0):
            row = int(np.argmax(rows.counts != 1.0))
            raise InvalidParameter(
                f"{self.name}, row {row}: its count is {rows.counts[row]:g}. A row that is generated is one "
                "demonstration, with the count 1; groups need files: write_features(..., by_group=True)."
            )
        return rows

    def _arrays(self, made: Any) -> Rows:
        """Return what the function made as arrays of numbers."""
        if not isinstance(made, tuple | list) or len(made) != len(Rows._fields):
            raise InvalidParameter(
                f"{self.name}: the function must return Rows(features, log_q, counts); it returned a "
                f"{type(made).__name__}."
            )
        try:
            return Rows(*(np.ascontiguousarray(array, dtype=np.float64).reshape(np.shape(array)) for array in made))
        except (TypeError, ValueError) as error:
            raise InvalidParameter(f"{self.name}: the function must return numbers ({error!s:.200}).") from None


def generated_parts(
    function: Any, sizes: Sequence[Any], n_features: Any, longest: Any, mark: Any
) -> tuple[GeneratedPart, ...]:
    """Return the parts of `FeatureStore.generated`, whose arguments these are.

    Examples
    --------
    >>> parts = generated_parts(lambda i: Rows(np.eye(2), np.zeros(2), np.ones(2)), [2, 2], 2, 3, "")
    >>> [part.name for part in parts]
    ['part 0', 'part 1']
    """
    check_function(function, mark)
    check_count(n_features, "n_features")
    check_count(longest, "longest")
    try:
        listed = list(sizes)
    except TypeError:
        raise InvalidParameter(f"sizes must be a list of numbers of rows; it is {sizes!r}.") from None
    if not listed:
        raise InvalidParameter("sizes is empty: a store must have at least one part.")
    for index, n in enumerate(listed):
        whole = isinstance(n, int | np.integer) or (isinstance(n, float | np.floating) and float(n).is_integer())
        if not whole or n < 1:
            raise InvalidParameter(
                f"sizes must be whole numbers of at least 1; part {index} has {n!r}. Leave out parts without rows."
            )
    return tuple(
        GeneratedPart(index, function, Facts(int(n), int(n), int(longest), 0, None, 0), int(n_features), mark)
        for index, n in enumerate(listed)
    )


def check_function(function: Any, mark: Any) -> None:
    """Check what is to make parts, and the text that stands for its data."""
    if not callable(function):
        raise InvalidParameter(f"function must be a function of a part's number; it is {function!r}.")
    if not isinstance(mark, str):
        raise InvalidParameter(f"mark must be a text, such as a date or str(seed); it is {mark!r}.")


def name_of(value: Any) -> str:
    """Return the full name of a function or class, or of an object's class: what tells it from others, if not surely.

    >>> name_of(functools.partial(len)), name_of(np.eye(2))
    ('partial of builtins.len', 'numpy.ndarray')
    """
    if isinstance(value, functools.partial):
        return f"partial of {name_of(value.func)}"
    named = value if hasattr(value, "__qualname__") else type(value)
    return f"{named.__module__}.{named.__qualname__}"


def a_path(given: Any, name: str) -> Path:
    """Return a path as it was given.

    Examples
    --------
    >>> a_path("features", "folder").name
    'features'
    >>> a_path(3, "folder")
    Traceback (most recent call last):
    limiirl.errors.InvalidParameter: folder must be a path; it is 3.
    """
    if not isinstance(given, str | os.PathLike):
        raise InvalidParameter(f"{name} must be a path; it is {given!r}.")
    return Path(given)


def make_folder(given: Any) -> Path:
    """Return the absolute path of a folder, since workers may stand elsewhere; it is made if it is not there."""
    place = a_path(given, "folder").absolute()
    try:
        place.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise InvalidFile(
            f"{place} cannot be a folder: that, or what it should lie in, is a file. Give another."
        ) from None
    return place


def is_scratch(path: Path) -> bool:
    """Whether a file is what `atomic_write` renames in the end, or leaves behind when it is killed."""
    return path.name.startswith(".") and path.name.endswith(".tmp")


FORMAT, VERSION = "limiirl.features", 1
HEADER, MDP_FILE = "store.json", "mdp.npz"


@dataclass(frozen=True)
class FeatureStore:
    """Feature sums of demonstrations, or of groups of them, in parts.

    `write_features` makes one in a folder, `FeatureStore.open` reads it, `FeatureStore.generated` makes one without a
    disk.

    Attributes
    ----------
    parts : tuple of Part
        In order; the rows of the store are theirs, one part after the other.
    n_features : int
    mdp_fingerprint : str
        Of the MDP that the features are sums of; empty where nobody checked.
    by_group : bool
        Whether a row is a group of demonstrations that share an intent.
    folder : Path or None

    Examples
    --------
    >>> made = FeatureStore.generated(lambda i: Rows(np.full((2, 1), i), np.zeros(2), np.ones(2)), [2, 2], 1, longest=3)
    >>> made.n, len(made.parts), made.take(np.array([1, 2])).features.ravel().tolist()
    (4, 2, [0.0, 1.0])
    """

    parts: tuple[Part, ...]
    n_features: int
    mdp_fingerprint: str = ""
    by_group: bool = False
    folder: Path | None = None

    @classmethod
    def open(cls, folder: str | PathLike[str]) -> FeatureStore:
        """Read the headers of a store that `write_features` finished; a missing or truncated file is an error."""
        place = a_path(folder, "folder").absolute()  # workers may stand elsewhere
        header = read_header(place)
        names = header["parts"]
        if names is None:
            raise InvalidFile(
                f"{place} is not finished: write_features was stopped before its last part. Run it again; it goes on "
                "where it was."
            )
        if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
            raise InvalidFile(f"{place / HEADER} is damaged: its parts are {names!r:.50}. {AGAIN}")
        parts = tuple(StoredPart.open(place / name) for name in names)
        for part in parts:
            if (part.mdp, part.by_group) != (header["mdp"], header["by_group"]):
                raise InvalidFile(
                    f"{part.path} belongs to another store than {place}. Write the features to another folder."
                )
            if part.n_features != header["n_features"]:
                raise InvalidFile(
                    f"{part.path} has {part.n_features} features; the store has {header['n_features']}. {AGAIN}"
                )
        return cls(parts, header["n_features"], header["mdp"], header["by_group"], place)

    @classmethod
    def generated(
        cls, function: Callable[[int], Rows], sizes: Sequence[int], n_features: int, *, longest: int, mark: str = ""
    ) -> FeatureStore:
        """Return a store whose part i is function(i), made anew for every pass: no disk, and any number of rows.

        Parameters
        ----------
        function : callable
            Of a part's number to its `Rows`, each of them one demonstration (count 1); the same number must give the
            same rows. For an executor with workers it must survive pickling.
        sizes : (P,)
            Rows of each part, at least one.
        longest : int
            The most states of a demonstration.
        mark : str
            Stands for the data, such as a date or a seed: a checkpoint goes on only with the same mark. What the
            function makes is not looked at for that, only its name.
        """
        return cls(generated_parts(function, sizes, n_features, longest, mark), int(n_features))

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
        """The most states of a demonstration."""
        return max(part.facts.longest for part in self.parts)

    @property
    def noun(self) -> str:
        """What rows are called in messages."""
        return "groups" if self.by_group else "demonstrations"

    @cached_property
    def fingerprint(self) -> str:
        """A digest of the parts: another order, part or MDP gives another.

        Parts on disk are known by their content; generated ones by their sizes, the function's name and the mark.
        """
        marks = [part.fingerprint for part in self.parts]
        about = [self.mdp_fingerprint, self.by_group, self.n_features, marks]
        return hashlib.sha256(json.dumps(about).encode()).hexdigest()

    def mdp(self) -> MDP:
        """Return the MDP that the store was written with."""
        if self.folder is None:
            raise InvalidParameter("A generated store has no MDP of its own. Pass the one that its features belong to.")
        path = self.folder / MDP_FILE
        try:
            found = MDP.load(path)
        except InvalidFile as error:
            raise InvalidFile(f"{path} is missing or damaged ({error!s:.200}). {AGAIN}") from None
        if found.fingerprint() != self.mdp_fingerprint:
            raise InvalidFile(f"{path} is the MDP {found.fingerprint()}, not {self.mdp_fingerprint}. {AGAIN}")
        return found

    def check(self, mdp: MDP) -> None:
        """Check that the features are those of an MDP."""
        validate.mdp(mdp)
        if self.n_features != mdp.n_features:
            raise InvalidParameter(f"The store has {self.n_features} features; the MDP has {mdp.n_features}.")
        if self.mdp_fingerprint and self.mdp_fingerprint != mdp.fingerprint():
            raise InvalidParameter(
                f"The store has features of the MDP {self.mdp_fingerprint}; this one is {mdp.fingerprint()}. Pass the "
                "MDP that it was written with (store.mdp()), or write the features anew."
            )

    def verify(self) -> None:
        """Read everything, and check that it is what was written; `open` looks at sizes alone."""
        for part in self.parts:
            if isinstance(part, StoredPart):
                part.verify()

    def take(self, index: NDArray[np.int64]) -> Rows:
        """Return the rows of sorted numbers, counted over all parts."""
        found, begin = [], 0
        for part in self.parts:
            lo, hi = np.searchsorted(index, [begin, begin + part.facts.n])
            if hi > lo:
                found.append(part.take(index[lo:hi] - begin))
            begin += part.facts.n
        return Rows(*(np.concatenate(arrays) for arrays in zip(*found, strict=True)))


def as_store(given: Any) -> FeatureStore:
    """Return a store that is given, or the one in a folder."""
    if isinstance(given, FeatureStore):
        return given
    if isinstance(given, str | PathLike):
        return FeatureStore.open(given)
    raise InvalidParameter(f"store must be a FeatureStore, or the folder of one; it is a {type(given).__name__}.")


def read_header(place: Path) -> dict[str, Any]:
    """Return what `write_header` wrote."""
    path = place / HEADER
    if not path.is_file():
        what = f"it has no {HEADER}" if place.is_dir() else "there is no such folder"
        raise MissingFile(f"{place} is not a store of features: {what}. Give a folder that write_features wrote.")
    try:
        header = json.loads(path.read_bytes())
        if header["format"] != FORMAT or header["version"] > VERSION:
            raise InvalidFile(
                f"{path} has format {header['format']!r}, version {header['version']}; this limiirl reads {FORMAT!r} "
                f"up to version {VERSION}."
            )
        header["parts"]  # which may be anything yet: write_features writes them anew
        for name, kind in (("mdp", str), ("by_group", bool), ("n_features", int)):
            if type(header[name]) is not kind:
                raise TypeError(f"{name} is {header[name]!r:.50}")
    except (KeyError, TypeError, ValueError) as error:
        if isinstance(error, InvalidFile):
            raise
        raise InvalidFile(f"{path} is damaged ({error!s:.200}). Write the features to another folder.") from None
    return dict(header)


def write_header(place: Path, mdp: MDP, *, by_group: bool, parts: list[str] | None) -> None:
    """Write what a store is; its parts only once all are there."""
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
