"""The results of a run, keyed by specification and seed: written once, read in one order, safe from crashes.

Records as bytes: a parquet table with a typed column for every field, restored exactly and checked by its name.

The folder of a run: files that are written whole or not at all, checked when read, and put aside when damaged.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import fields
from functools import cache
from operator import index
from pathlib import Path
from typing import Any, TypeVar

from limiirl._io import atomic_write
from limiirl._version import __version__
from limiirl.errors import InvalidFile, InvalidParameter, LimiirlWarning
from limiirl.experiments.spec import Spec
from limiirl.experiments.trial import Record

SHARD_FORMAT = "limiirl.records"
VERSION = 1

# Arrow's own exceptions for values that do not fit are a ValueError and a TypeError.
_UNFIT = (ValueError, TypeError, OverflowError, AttributeError)


class Damaged(InvalidFile):
    """A file of a store is truncated or altered; the store puts it aside, and what it held is computed again."""


def digest(data: bytes) -> str:
    """Return the name of a file with this content: 32 hexadecimal digits.

    >>> digest(b"whole") == digest(b"whol")
    False
    """
    return hashlib.blake2b(data, digest_size=16).hexdigest()


@cache
def schema() -> Any:
    """Return the Arrow schema of a shard, which follows from the fields of `Record`.

    >>> schema().field("history").type
    ListType(list<item: double>)
    """
    import pyarrow as pa

    columns = {
        "str": pa.string(),
        "int": pa.int64(),
        "float": pa.float64(),
        "bool": pa.bool_(),
        "list[float]": pa.list_(pa.float64()),
        "list[list[float]]": pa.list_(pa.list_(pa.float64())),
    }
    typed = [pa.field(field.name, columns[str(field.type).removesuffix(" | None")]) for field in fields(Record)]
    return pa.schema(typed, metadata={"limiirl.format": SHARD_FORMAT, "limiirl.version": str(VERSION)})


def pack(records: Sequence[Record]) -> bytes:
    """Return the content of a shard with these records.

    >>> pack([Record("ab", 0, nll=1.5)])[:4]
    b'PAR1'
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = [_column(field, [getattr(record, field.name) for record in records]) for field in schema()]
    out = pa.BufferOutputStream()
    # A shard has few rows of digits: dictionaries and statistics would be a quarter of it, and nothing can be squeezed.
    pq.write_table(
        pa.table(columns, schema=schema()),
        out,
        compression="none",
        use_dictionary=False,
        write_statistics=False,
    )
    return bytes(out.getvalue())


def unpack(data: bytes, path: Path) -> list[Record]:
    """Return the records in the content of the shard at `path`, which is named by their digest.

    Raises
    ------
    Damaged
        The content is not what was written.
    InvalidFile
        The shard is whole, but a newer limiirl wrote it.

    Examples
    --------
    >>> data = pack([Record("ab", 0, nll=1.5)])
    >>> unpack(data, Path(f"{digest(data)}.parquet"))[0].nll
    1.5
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    if digest(data) != path.stem:
        raise Damaged(f"{path} is truncated or altered: the digest of its {len(data)} bytes is not its name.")
    try:
        with pq.ParquetFile(pa.BufferReader(data)) as file:
            _check(path, file.schema_arrow)
            table = file.read(use_threads=False)
    except (pa.ArrowException, OSError) as error:
        reason = str(error).partition("\n")[0].rstrip(".")
        raise Damaged(f"{path} is no parquet file ({reason}).") from None
    names = table.column_names
    # A column that an older version did not write leaves the field's default.
    rows = zip(*(column.to_pylist() for column in table.columns), strict=True)
    return [Record(**dict(zip(names, row, strict=True))) for row in rows]


def _column(field: Any, values: list[Any]) -> Any:
    """Return one field of all records as an Arrow array."""
    try:
        return _array(values, field.type)
    except _UNFIT as error:
        at = next(at for at, value in enumerate(values) if not _fits(value, field.type))
        raise InvalidParameter(
            f"Field {field.name} of a record must be {field.type} or None; record {at} has {values[at]!r:.100}. "
            "Convert it to plain Python values."
        ) from error


def _array(values: list[Any], column: Any) -> Any:
    import pyarrow as pa

    if column == pa.string():
        # A message may quote a file name that is no valid text; it must not keep the failure from being recorded.
        values = [value.encode("utf-8", "backslashreplace").decode() for value in values]
    elif column == pa.int64():
        # Arrow would cut 0.5 down to 0.
        values = [None if value is None else index(value) for value in values]
    return pa.array(values, type=column)


def _fits(value: Any, column: Any) -> bool:
    try:
        _array([value], column)
    except _UNFIT:
        return False
    return True


def _check(path: Path, found: Any) -> None:
    """Check that the columns are ours, and not from the future."""
    about = found.metadata or {}
    if about.get(b"limiirl.format", b"").decode() != SHARD_FORMAT:
        raise Damaged(f"{path} is a parquet file without records of limiirl.")
    version = about.get(b"limiirl.version", b"").decode()
    if not version.isdecimal() or int(version) > VERSION:
        raise InvalidFile(
            f"{path} has version {version or 'none'} of the format; this limiirl reads up to {VERSION}. Upgrade it."
        )
    if found.equals(schema()):  # nearly always, and much quicker
        return
    for field in found:
        if field.name not in schema().names:
            raise InvalidFile(
                f"{path} has a column {field.name!r} that this limiirl does not know: a newer one wrote it. "
                "Upgrade limiirl, or start a new folder."
            )
        expected = schema().field(field.name).type
        if field.type != expected:
            raise InvalidFile(
                f"{path} has {field.type} in column {field.name!r}, this limiirl has {expected}: another version wrote "
                "it. Use that version, or start a new folder."
            )
    absent = [name for name in ("spec", "seed") if name not in found.names]
    if absent:
        raise Damaged(f"{path} has no column {absent[0]!r}.")


FORMAT = "limiirl.run"

_HEADER = "run.json"
_PARTS = ("records", "specs", "runs")
# A write lasts milliseconds: what is older than this many seconds was left by a writer that was killed.
_STALE = 3600.0

T = TypeVar("T")


class RunFolder:
    """A folder with the header run.json, in which several processes may work at once.

    Parameters
    ----------
    path : path
    create : bool
        Make it a run's folder if it is absent or empty. If False, it must be one.

    Examples
    --------
    >>> import tempfile
    >>> folder = RunFolder(tempfile.mkdtemp(), create=True)
    >>> folder.write("specs", "a.json", b"[]")
    >>> folder.names("specs", ".json")
    {'a.json'}
    """

    def __init__(self, path: str | os.PathLike[str], *, create: bool) -> None:
        self.path = Path(path)
        # Damaged files that could not be moved, since the folder cannot be written: one warning each is enough.
        self._left: set[Path] = set()
        if self.path.exists() and not self.path.is_dir():
            raise InvalidFile(f"{self.path} is a file, and results need a folder. Give another name.")
        if create:
            self._create()
        self._check()

    def names(self, part: str, suffix: str) -> set[str]:
        """Return the names of the files in a subfolder, without those that are being written."""
        try:
            with os.scandir(self.path / part) as entries:
                return {entry.name for entry in entries if entry.name.endswith(suffix)}
        except FileNotFoundError:  # nothing was written yet
            return set()

    def write(self, part: str, name: str, data: bytes) -> None:
        """Write a file of a subfolder; if this fails, the folder is as it was, and the OSError says so."""
        path = self.path / part / name
        try:
            path.parent.mkdir(exist_ok=True)
            with atomic_write(path) as scratch:
                scratch.write_bytes(data)
        except OSError as error:
            raise self._unwritable(error) from error

    def load(self, part: str, name: str, parse: Callable[[bytes, Path], T]) -> T | None:
        """Return what `parse` makes of a file, or None if the file is gone or `Damaged`, which is put aside."""
        path = self.path / part / name
        if path in self._left:
            return None
        try:
            return parse(path.read_bytes(), path)
        except FileNotFoundError:
            return None
        except Damaged as fault:
            self._put_aside(path, fault, parse)
            return None

    def write_json(self, part: str, name: str, content: dict[str, Any]) -> None:
        """Write plain values as JSON with their digest."""
        self.write(part, name, json.dumps({"digest": _seal(content), **content}, indent=1).encode())

    def load_json(self, part: str) -> dict[str, dict[str, Any]]:
        """Return the content of every JSON file of a subfolder that agrees with its digest, by name.

        >>> import tempfile
        >>> folder = RunFolder(tempfile.mkdtemp(), create=True)
        >>> folder.write_json("specs", "a.json", {"x": 1})
        >>> folder.load_json("specs")
        {'a.json': {'x': 1}}
        """
        loaded = {name: self.load(part, name, _unseal) for name in sorted(self.names(part, ".json"))}
        return {name: content for name, content in loaded.items() if content is not None}

    def _create(self) -> None:
        """Make the folder a run's, unless it is one or holds something else."""
        self.path.mkdir(parents=True, exist_ok=True)
        strangers = [path.name for path in self.path.iterdir() if not path.name.startswith(f".{_HEADER}.")]
        # Another process may be creating the folder at the same time. It writes the header before all else, so that
        # whatever of it was listed, the header is there by now.
        if not (self.path / _HEADER).exists():
            if strangers:
                raise InvalidFile(
                    f"{self.path} holds other files ({min(strangers)!r}) and no {_HEADER}: it is no run of limiirl. "
                    "Give a new or an empty folder."
                )
            content = {"format": FORMAT, "version": VERSION, "made_by": f"limiirl {__version__}"}
            self.write("", _HEADER, json.dumps(content, indent=1).encode())
        self._sweep()

    def _check(self) -> None:
        """Check that the folder is a run's that this version can read."""
        header = self.path / _HEADER
        if not header.exists():
            raise InvalidFile(f"{self.path} is no run of limiirl: it has no {_HEADER}. Give a folder that a run wrote.")
        try:
            content = json.loads(header.read_bytes())
            known, version = content["format"] == FORMAT, int(content["version"])
        except (ValueError, KeyError, TypeError):
            known, version = False, 0
        if not known:
            raise InvalidFile(
                f"{header} is damaged or not of limiirl. If the folder is a run, write "
                f"{json.dumps({'format': FORMAT, 'version': VERSION})} into it; else give another folder."
            )
        if version > VERSION:
            raise InvalidFile(
                f"{self.path} has version {version} of the format; this limiirl reads up to {VERSION}. Upgrade it."
            )

    def _sweep(self) -> None:
        """Delete what killed writers left behind. It is never read, so that failing to do so does no harm."""
        with suppress(OSError):
            for part in ("", *_PARTS):
                for path in (self.path / part).glob(".*.tmp"):
                    if time.time() - path.stat().st_mtime > _STALE:
                        path.unlink(missing_ok=True)

    def _put_aside(self, path: Path, fault: Damaged, parse: Callable[[bytes, Path], object]) -> None:
        """Move a damaged file to quarantine, and say so."""
        target = self.path / "quarantine" / path.name
        try:
            target.parent.mkdir(exist_ok=True)
            path.replace(target)
        except FileNotFoundError:  # another process was quicker
            return
        except OSError as error:
            self._left.add(path)
            message = f"{fault} It is left out, and stays where it is ({error.strerror})."
        else:
            with suppress(Damaged, FileNotFoundError):
                # Between our reading and our moving another process may have put the damaged one aside, computed the
                # trials again and written the very bytes that were lost: those are good, and go back.
                parse(target.read_bytes(), target)
                target.replace(path)
                return
            message = f"{fault} It was moved to {target.parent}, and what it held counts as not done."
        warnings.warn(message, LimiirlWarning, stacklevel=4)

    def _unwritable(self, error: OSError) -> OSError:
        return OSError(
            error.errno,
            f"{error.strerror or error}, so that nothing more can be written there. What was recorded is safe: once "
            "this is mended, the same command goes on from it",
            str(self.path),
        )


def _seal(content: dict[str, Any]) -> str:
    return digest(json.dumps(content, sort_keys=True).encode())


def _unseal(data: bytes, path: Path) -> dict[str, Any]:
    """Return the content of a JSON file that agrees with its digest."""
    try:
        content = json.loads(data)
        seal = content.pop("digest")
    except (ValueError, KeyError, TypeError, AttributeError):
        raise Damaged(f"{path} is truncated or altered.") from None
    # What is named by a hash of its own must lie under that name.
    if seal != _seal(content) or content.get("hash", path.stem) != path.stem:
        raise Damaged(f"{path} is truncated or altered: its digest is not that of its content.")
    return dict(content)


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
