"""`FeatureStore`: a table of feature sums in parts, larger than memory, and what it was made from."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from limiirl.errors import InvalidFile, InvalidParameter, MissingFile
from limiirl.files import atomic_write
from limiirl.irl import checks
from limiirl.kernels.expectation import Rows
from limiirl.mdp import MDP
from limiirl.streams.generated import generated_parts
from limiirl.streams.parts import AGAIN, Part, StoredPart
from limiirl.streams.places import a_path

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
            same rows. For an engine with workers it must survive pickling.
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
        checks.mdp(mdp)
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
