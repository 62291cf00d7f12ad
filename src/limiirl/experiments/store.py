"""The results of a run, keyed by specification and seed: written once, read in one order, safe from crashes."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from limiirl._version import __version__
from limiirl.errors import InvalidFile, LimiirlWarning
from limiirl.experiments.folder import RunFolder
from limiirl.experiments.records import Record
from limiirl.experiments.shards import digest, pack, unpack
from limiirl.experiments.spec import Spec

Key = tuple[str, int]

_SUFFIX = ".parquet"
_PACKAGES = ("numpy", "scipy", "numba", "scikit-learn", "pyarrow")


class Store:
    """Specifications, records and invocations in one folder, which any number of processes may write at once.

    Records are keyed by (hash of the specification, seed). Each `append` adds one file; none is ever changed. A file
    that is not as it was written is moved to the subfolder quarantine with a warning, and what it held counts as not
    done. Of several records of one key a success hides failures. Two successes that differ in more than times give a
    warning; which is read depends on their content alone, not on who was first.

    Parameters
    ----------
    folder : path
        The run folder.
    create : bool
        Make the folder a run's if it is absent or empty. If False, it must be one.

    Examples
    --------
    >>> import tempfile
    >>> store = Store(tempfile.mkdtemp())
    >>> store.append([Record("ab", 1, nll=0.5), Record("ab", 0, error="no path")])
    >>> sorted(store.keys()), store.keys(failed=False)
    ([('ab', 0), ('ab', 1)], {('ab', 1)})
    >>> Store(store.folder, create=False).read()[1].nll
    0.5
    """

    def __init__(self, folder: str | os.PathLike[str], *, create: bool = True) -> None:
        self._files = RunFolder(folder, create=create)
        self._read: set[str] = set()
        # The record to be read of each key, followed by those that contradict it.
        self._found: dict[Key, list[Record]] = {}
        # By whether those of failed trials belong to them.
        self._keys: dict[bool, set[Key]] = {}
        self.refresh()

    @property
    def folder(self) -> Path:
        """The run folder."""
        return self._files.path

    def append(self, records: Sequence[Record]) -> None:
        """Record some trials in one new file; once this returns, they survive the end of the process.

        Raises
        ------
        OSError
            They could not be written, on a full disk for instance; the store is as it was.

        Examples
        --------
        >>> import tempfile
        >>> store = Store(tempfile.mkdtemp())
        >>> store.append([Record("ab", 0)])
        >>> store.append([Record("ab", 0)])
        >>> len(store.read())
        1
        """
        if records:
            data = pack(records)
            self._files.write("records", digest(data) + _SUFFIX, data)
            self.refresh()

    def refresh(self) -> int:
        """Read the files that were added since, and return how many there were; `keys` and `read` do so themselves.

        >>> import tempfile
        >>> one = Store(tempfile.mkdtemp())
        >>> other = Store(one.folder)
        >>> one.append([Record("ab", 0)])
        >>> other.refresh(), other.refresh()
        (1, 0)
        """
        tried: set[str] = set()
        disputed: set[Key] = set()
        before = len(self._read)
        # Listed again until nothing is new: a file that vanished before it was read has been merged into one that
        # the listing may not have had.
        while new := self._files.names("records", _SUFFIX) - self._read - tried:
            tried |= new
            for name in sorted(new):
                records = self._files.load("records", name, unpack)
                if records is not None:
                    self._read.add(name)
                    self._keys.clear()
                    disputed.update(record.key for record in records if self._contradicts(record))
        if disputed:
            spec, seed = min(disputed)
            warnings.warn(
                f"{self.folder} has different results of one trial, {len(disputed)} times; the first is seed {seed} of "
                f"specification {spec}. Different versions of limiirl or its packages may have written them: repeat "
                "the run in a new folder.",
                LimiirlWarning,
                stacklevel=2,
            )
        return len(self._read) - before

    def keys(self, *, failed: bool = True) -> set[Key]:
        """Return the keys that are recorded, with or without those of trials that failed.

        >>> import tempfile
        >>> store = Store(tempfile.mkdtemp())
        >>> store.append([Record("ab", 0, error="no path")])
        >>> store.keys(), store.keys(failed=False)
        ({('ab', 0)}, set())
        """
        self.refresh()
        if failed not in self._keys:
            self._keys[failed] = {key for key, (first, *_) in self._found.items() if failed or not first.failed}
        return self._keys[failed].copy()

    def read(self, hashes: Iterable[str] | None = None) -> list[Record]:
        """Return the records of all specifications, or of some, each key once, in the order of hash and seed.

        >>> import tempfile
        >>> store = Store(tempfile.mkdtemp())
        >>> store.append([Record("b", 0), Record("a", 7), Record("a", 2)])
        >>> [record.key for record in store.read()]
        [('a', 2), ('a', 7), ('b', 0)]
        >>> [record.key for record in store.read(["b"])]
        [('b', 0)]
        """
        self.refresh()
        wanted = None if hashes is None else set(hashes)
        return [self._found[key][0] for key in sorted(self._found) if wanted is None or key[0] in wanted]

    def compact(self) -> None:
        """Merge the files of records into one, which is read many times faster; nothing that is read changes.

        Safe while others write, and if killed: the whole is written before its parts are deleted, and only parts that
        it holds are.

        >>> import tempfile
        >>> store = Store(tempfile.mkdtemp())
        >>> for seed in range(3):
        ...     store.append([Record("ab", seed)])
        >>> store.compact()
        >>> len(list(store.folder.glob("records/*"))), len(store.read())
        (1, 3)
        """
        self.refresh()
        parts = self._read & self._files.names("records", _SUFFIX)
        if len(parts) < 2:
            return
        # Contradictions too: merging must not hide them.
        data = pack([record for key in sorted(self._found) for record in self._found[key]])
        whole = digest(data) + _SUFFIX
        self._files.write("records", whole, data)
        self._read.add(whole)
        for name in parts - {whole}:
            (self.folder / "records" / name).unlink(missing_ok=True)

    def add_specs(self, specs: Iterable[Spec]) -> None:
        """Keep what the hashes in the records stand for.

        >>> import tempfile
        >>> store = Store(tempfile.mkdtemp())
        >>> store.add_specs([Spec(), Spec(n_demos=20)])
        >>> store.specs()[Spec().hash] == Spec()
        True
        """
        present = self.specs()
        for spec in specs:
            if spec.hash not in present:
                self._files.write_json("specs", f"{spec.hash}.json", {"hash": spec.hash, "spec": spec.to_dict()})

    def specs(self) -> dict[str, Spec]:
        """Return the specifications by their hashes.

        >>> import tempfile
        >>> Store(tempfile.mkdtemp()).specs()
        {}
        """
        found = {}
        for name, content in self._files.load_json("specs").items():
            try:
                found[content["hash"]] = Spec.from_dict(content["spec"])
            except InvalidFile as error:
                raise InvalidFile(f"{self.folder / 'specs' / name}: {error}") from None
        return found

    def note(self, command: Sequence[str], seeds: Iterable[int] = ()) -> None:
        """Add this invocation, its versions and the kind of this machine to the log.

        Parameters
        ----------
        command : sequence of str
            The words of the command line, `sys.argv` for instance. Of an absolute path the last name is kept.
        seeds : iterable of int
            Seeds of the trials that are asked for.

        Examples
        --------
        >>> import tempfile
        >>> store = Store(tempfile.mkdtemp())
        >>> store.note(["/somewhere/bin/limiirl", "reproduce", "table1"], seeds=range(100))
        >>> store.runs()[0]["command"]
        'limiirl reproduce table1'
        """
        content = describe(command, seeds)
        self._files.write_json("runs", f"{digest(repr(content).encode())}.json", content)

    def runs(self) -> list[dict[str, Any]]:
        """Return the log of invocations in the order in which they started; see `describe` for its fields.

        >>> import tempfile
        >>> Store(tempfile.mkdtemp()).runs()
        []
        """
        return sorted(self._files.load_json("runs").values(), key=lambda content: str(content["started"]))

    def _contradicts(self, record: Record) -> bool:
        """Add a record to those of its key; return whether it contradicts them."""
        present = self._found.get(record.key, [])
        self._found[record.key] = _distinct([*present, record])
        return len(self._found[record.key]) > 1


def _distinct(records: list[Record]) -> list[Record]:
    """Return the records of one key that differ in what can be reproduced, the one to be read first.

    A success hides failures. The order is that of the contents, never of files or times, so that all readers agree.
    """
    if len(records) == 1:
        return records
    succeeded = [record for record in records if not record.failed]
    found: dict[str, Record] = {}
    # As text, because NaN is not equal to itself.
    for record in sorted(succeeded or records, key=repr):
        found.setdefault(repr(record.reproducible()), record)
    return list(found.values()) if succeeded else list(found.values())[:1]


def describe(command: Sequence[str], seeds: Iterable[int] = ()) -> dict[str, Any]:
    """Return what a methods paragraph says of a run: command, time, versions, kind of machine; no name and no path.

    >>> found = describe(["limiirl", "--out=/somewhere/runs/a"], [2, 1])
    >>> found["command"], found["seeds"]
    ('limiirl --out=a', [1, 2])
    >>> sorted(found), sorted(found["machine"])
    (['command', 'machine', 'seeds', 'started', 'versions'], ['cores', 'processor', 'system'])
    """
    import platform
    import shlex
    from datetime import UTC, datetime
    from importlib.metadata import version

    return {
        "command": shlex.join(_without_folders(word) for word in command),
        "started": datetime.now(UTC).isoformat(timespec="microseconds"),
        "seeds": sorted(set(seeds)),
        "versions": {"limiirl": __version__, "python": platform.python_version()}
        | {name: version(name) for name in _PACKAGES},
        "machine": {"system": platform.system(), "processor": platform.machine(), "cores": os.cpu_count()},
    }


def _without_folders(word: str) -> str:
    """Return a word of a command line with an absolute path cut down to its last name."""
    option, equals, value = word.rpartition("=")
    return option + equals + (Path(value).name if Path(value).is_absolute() else value)
