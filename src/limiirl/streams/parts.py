"""Parts of a table of feature sums, and those on disk, which are memory maps.

A part on disk is a JSON header beside plain .npy files: features (n, d); log q and counts (2, n); and, where units have
names, the names (n,). The header is written last, so that a part without one was never finished.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from limiirl.errors import InvalidFile
from limiirl.files import atomic_write
from limiirl.kernels.expectation import Rows

Float = NDArray[np.float64]
FORMAT, VERSION = "limiirl.features.part", 1
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
            "format": FORMAT,
            "version": VERSION,
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
            if header["format"] == FORMAT and header["version"] > VERSION:
                raise NewerFormat(
                    f"{path} has format version {header['version']}; this limiirl reads up to {VERSION}. Upgrade "
                    "limiirl."
                )
            if header["format"] != FORMAT:
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
