"""Parts of a table of feature sums: on disk as memory maps, or made by a function whenever they are read.

A part on disk is a JSON header beside plain .npy files: features (n, d); log q and counts (2, n); and, where units have
names, the names (n,). The header is written last, so that a part without one was never finished.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from limiirl.errors import InvalidFile, InvalidParameter
from limiirl.files import atomic_write
from limiirl.kernels.expectation import Rows

Float = NDArray[np.float64]
FORMAT, VERSION = "limiirl.features.part", 1
_ARRAYS = ("features", "base", "names")


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
                    np.save(stream, np.ascontiguousarray(array), allow_pickle=False)
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
            raise InvalidFile(f"{path} is missing. {_AGAIN}")
        try:
            header = json.loads(path.read_bytes())
            if header["format"] != FORMAT or header["version"] > VERSION:
                raise InvalidFile(f"{path} has format {header['format']!r} {header['version']}; this limiirl reads 1.")
            facts = dict(header["facts"])
            loose = facts.pop("loose")
            part = cls(
                str(path),
                **{name: header[name] for name in ("source", "mark", "mdp", "by_group")},
                facts=Facts(**facts, loose=None if loose is None else (int(loose[0]), int(loose[1]))),
                fingerprint=header["fingerprint"],
                n_features=header["n_features"],
                sizes=tuple(header["sizes"].items()),
            )
        except (KeyError, TypeError, ValueError) as error:
            if isinstance(error, InvalidFile):
                raise
            raise InvalidFile(f"{path} is damaged ({error!s:.200}). {_AGAIN}") from None
        for kind, size in part.sizes:
            target = _array_path(path, kind)
            found = target.stat().st_size if target.is_file() else None
            if found != size:
                what = "is missing" if found is None else f"is truncated or changed: {found} bytes instead of {size}"
                raise InvalidFile(f"{target} {what}. {_AGAIN}")
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
        if "names" not in dict(self.sizes):
            return None
        return np.asarray(np.load(_array_path(Path(self.path), "names"), allow_pickle=False))

    def verify(self) -> None:
        """Read everything, and check that it is what was written."""
        arrays = [self._map(kind) for kind, _ in self.sizes]
        if _digest(arrays) != self.fingerprint:
            raise InvalidFile(f"{self.path}: the content of its files is not what was written. {_AGAIN}")

    def _rows(self, chosen: slice | NDArray[np.int64]) -> Rows:
        base = self._map("base")
        if base.shape != (2, self.facts.n):
            raise InvalidFile(f"{_array_path(Path(self.path), 'base')} has the shape {base.shape}. {_AGAIN}")
        features = np.ascontiguousarray(self._map("features")[chosen])
        return Rows(features, np.ascontiguousarray(base[0, chosen]), np.ascontiguousarray(base[1, chosen]))

    def _map(self, kind: str) -> NDArray[Any]:
        path = _array_path(Path(self.path), kind)
        try:
            # Copy on write: nobody writes, and compiled code need not exist twice, once for arrays that are read-only.
            return np.asarray(np.load(path, mmap_mode="c", allow_pickle=False))
        except (OSError, ValueError) as error:
            raise InvalidFile(f"{path} cannot be read ({error!s:.200}). {_AGAIN}") from None


_AGAIN = "Run write_features again (`limiirl stream features`), which makes what is missing or damaged anew."


@dataclass(frozen=True)
class GeneratedPart:
    """A part that a function makes whenever it is read: function(index) -> Rows.

    Attributes
    ----------
    mark : str
        What the caller says of the data; another is taken for other data.
    by_group : bool
        Whether a row may stand for several demonstrations, which are its count.
    """

    index: int
    function: Callable[[int], Rows]
    facts: Facts
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
        rows = Rows(*(np.ascontiguousarray(array, dtype=np.float64) for array in self.function(self.index)))
        if {len(array) for array in rows} != {self.facts.n}:
            raise InvalidParameter(
                f"{self.name}: the function made {len(rows.features)} rows of features, {len(rows.log_q)} of log q and "
                f"{len(rows.counts)} counts; {self.facts.n} of each were announced."
            )
        if not self.by_group and np.any(rows.counts != 1.0):
            row = int(np.argmax(rows.counts != 1.0))
            raise InvalidParameter(
                f"{self.name}, row {row}: its count is {rows.counts[row]:g}. A row that is generated is one "
                "demonstration, with the count 1; groups need files: write_features(..., by_group=True)."
            )
        return rows


def name_of(value: Any) -> str:
    """Return the full name of a function or class, or of an object's class: what tells it from others, if not surely.

    >>> name_of(json.loads), name_of(Path("a"))[:8]
    ('json.loads', 'pathlib.')
    """
    if isinstance(value, functools.partial):
        return f"partial of {name_of(value.func)}"
    named = value if hasattr(value, "__qualname__") else type(value)
    return f"{named.__module__}.{named.__qualname__}"


def is_scratch(path: Path) -> bool:
    """Whether a file is what a killed `atomic_write` leaves behind."""
    return path.name.startswith(".") and path.name.endswith(".tmp")


def _array_path(header: Path, kind: str) -> Path:
    return header.with_suffix(f".{kind}.npy")


def _digest(arrays: Any) -> str:
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(f"{array.dtype.str} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).view(np.uint8).data if array.size else b"")
    return digest.hexdigest()
