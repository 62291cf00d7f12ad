"""The results of a run in one SQLite file: atomic, safe from crashes, for several writers at once."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import sqlite3
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import fields
from operator import index
from pathlib import Path
from typing import Any, Generic, TypeVar, overload

from limiirl._version import __version__
from limiirl.errors import InvalidFile, InvalidParameter, LimiirlWarning
from limiirl.experiments.record import AnySpec, BaseRecord, Record
from limiirl.experiments.spec import Spec

FILE = "results.sqlite"
"""Name of the file in the run's folder."""
VERSION = 1
# The file's `application_id`, "limi", tells it from other SQLite files; `user_version` is the format's version.
_APPLICATION = 0x6C696D69
# Seconds that a writer waits for others.
_TIMEOUT_S = 60.0
_PACKAGES = ("numpy", "scipy", "numba", "scikit-learn")
# No index and no unique column: every row is read by its number, so that its digest alone decides whether it is whole.
# Rows are never changed. AUTOINCREMENT: a number is not used again when a damaged row is deleted.
_TABLES = ("header", "specs", "records", "runs", "examples")
_SCHEMA = "".join(
    f"CREATE TABLE IF NOT EXISTS {table} (id INTEGER PRIMARY KEY AUTOINCREMENT, content TEXT, digest TEXT);"
    for table in _TABLES
)
# Faults of the system by SQLite's names; what is not here is a fault of the file.
_SYSTEM_ERRORS = {
    "SQLITE_FULL": errno.ENOSPC,
    "SQLITE_BUSY": errno.EBUSY,
    "SQLITE_LOCKED": errno.EBUSY,
    "SQLITE_READONLY": errno.EACCES,
    "SQLITE_CANTOPEN": errno.EACCES,
    "SQLITE_PERM": errno.EACCES,
    "SQLITE_IOERR": errno.EIO,
    "SQLITE_NOMEM": errno.ENOMEM,
}

Key = tuple[str, int]
R = TypeVar("R", bound=BaseRecord)


class Store(Generic[R]):
    """Settings, records and invocations of a run, which any number of processes may write at once.

    Records are keyed by (hash of the settings, seed) and only ever added. Of several records of one key a success hides
    failures. Two successes that differ in more than times give a warning; which of them is read depends on their
    content alone, not on the order of writing. A row that does not match its digest is reported and removed, and its
    trial counts as not done.

    Parameters
    ----------
    folder : path
        The run's folder; its results are in the file results.sqlite.
    create : bool
        Make the folder a run's if it is absent or empty. If False, it must be one.
    record, spec : type
        Types of the records and of their settings; the driver experiment has its own.

    Raises
    ------
    InvalidFile
        If the folder holds other files, or the file is damaged or from a newer version.
    OSError
        From any method that writes, if the disk is full or the folder cannot be written. The store is as it was.

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

    @overload
    def __init__(self: Store[Record], folder: str | os.PathLike[str], *, create: bool = True) -> None: ...
    @overload
    def __init__(
        self, folder: str | os.PathLike[str], *, create: bool = True, record: type[R], spec: type[AnySpec]
    ) -> None: ...
    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        create: bool = True,
        record: type[Any] = Record,
        spec: type[AnySpec] = Spec,
    ) -> None:
        self.folder = Path(folder)
        self.record: type[R] = record
        self.spec = spec
        self._file = self.folder / FILE
        self._last_id = 0
        # The record to be read of each key, followed by those that contradict it.
        self._records: dict[Key, list[R]] = {}
        if create:
            self._create()
        elif not self._file.exists():
            raise InvalidFile(
                f"{self.folder} is not a run of limiirl: it has no {FILE}. Pass a folder that a run wrote.",
                value=str(self.folder),
            )
        self._check()
        self.refresh()

    def append(self, records: Sequence[R]) -> None:
        """Add some records in one transaction; once this returns, they survive the end of the process."""
        contents = [json.dumps(_encode(record, number)) for number, record in enumerate(records)]
        if contents:
            self._insert("records", contents)
            self.refresh()

    def refresh(self) -> int:
        """Read the records that were added since the last time, by anyone, and return their number."""
        disputed: set[Key] = set()
        rows = self._select("records", self._last_id)
        for number, content in rows.items():
            self._last_id = number
            if content is None:
                continue
            record = self._decode(content)
            known = self._records.get(record.key, [])
            self._records[record.key] = _distinct([*known, record])
            if len(self._records[record.key]) > 1:
                disputed.add(record.key)
        if disputed:
            spec, seed = min(disputed)
            warnings.warn(
                f"{self._file} has different results of one trial, {len(disputed)} times; the first is seed {seed} of "
                f"specification {spec}. Different versions of limiirl or its packages may have written them: repeat "
                "the run in a new folder.",
                LimiirlWarning,
                stacklevel=2,
            )
        return len(rows)

    def keys(self, *, failed: bool = True) -> set[Key]:
        """Return the keys that are recorded, with or without those of trials that failed."""
        self.refresh()
        return {key for key, (first, *_) in self._records.items() if failed or not first.failed}

    def read(self, hashes: Iterable[str] | None = None) -> list[R]:
        """Return the records of all settings, or of some, each key once, in the order of hash and seed."""
        self.refresh()
        wanted = None if hashes is None else set(hashes)
        return [self._records[key][0] for key in sorted(self._records) if wanted is None or key[0] in wanted]

    def add_specs(self, specs: Iterable[AnySpec]) -> None:
        """Keep the settings that the hashes in the records stand for.

        >>> import tempfile
        >>> store = Store(tempfile.mkdtemp())
        >>> store.add_specs([Spec(), Spec(n_demos=20)])
        >>> store.specs()[Spec().hash] == Spec()
        True
        """
        present = self.specs()
        new = {spec.hash: spec.to_dict() for spec in specs if spec.hash not in present}
        self._insert("specs", [json.dumps({"hash": key, "spec": content}) for key, content in new.items()])

    def specs(self) -> dict[str, AnySpec]:
        """Return the settings by their hashes."""
        try:
            return {entry["hash"]: self.spec.from_dict(entry["spec"]) for entry in self._contents("specs")}
        except InvalidFile as error:
            raise InvalidFile(f"{self._file}: {error}", value=error.value) from None

    def note(self, command: Sequence[str], seeds: Iterable[int] = (), studies: Iterable[str] = ()) -> None:
        """Add an invocation to the log, with the versions of packages and the kind of machine.

        Parameters
        ----------
        command : sequence of str
            The words of the command line, `sys.argv` for instance. Of an absolute path the last name is kept.
        seeds : iterable of int
            Seeds of the requested trials.
        studies : iterable of str
            Names of the requested studies.

        Examples
        --------
        >>> import tempfile
        >>> store = Store(tempfile.mkdtemp())
        >>> store.note(["/somewhere/bin/limiirl", "reproduce", "table1"], seeds=range(100), studies=["table1"])
        >>> store.runs()[0]["command"], store.studies()
        ('limiirl reproduce table1', ['table1'])
        """
        self._insert("runs", [json.dumps(describe(command, seeds, studies))])

    def runs(self) -> list[dict[str, Any]]:
        """Return the log of invocations in the order in which they started; see `describe` for its fields."""
        return sorted(self._contents("runs"), key=lambda content: str(content["started"]))

    def studies(self) -> list[str]:
        """Return the names of the studies that were requested, each once."""
        return list(dict.fromkeys(name for run in self.runs() for name in run["studies"]))

    def set_header(self, content: Mapping[str, Any]) -> None:
        """Set what all trials of the run share, once.

        Examples
        --------
        >>> import tempfile
        >>> store = Store(tempfile.mkdtemp())
        >>> store.set_header({"plan": 1})
        >>> store.header
        {'plan': 1}
        """
        with self._connect() as database:
            # Within one transaction: of two writers one sets it.
            if database.execute("SELECT 1 FROM header").fetchone() is None:
                _write(database, "header", [json.dumps(dict(content))])

    @property
    def header(self) -> dict[str, Any]:
        """What all trials share; empty where nothing was set."""
        return next(iter(self._contents("header")), {})

    def put_example(self, study: str, content: Mapping[str, Any]) -> None:
        """Keep what a report shows of one trial of a study; the last one counts."""
        text = json.dumps({"study": study, "example": dict(content)})
        if self.example(study) != json.loads(text)["example"]:
            self._insert("examples", [text])

    def example(self, study: str) -> dict[str, Any] | None:
        """Return what `put_example` kept last, None where there is nothing."""
        kept = [entry["example"] for entry in self._contents("examples") if entry["study"] == study]
        return kept[-1] if kept else None

    def _create(self) -> None:
        """Make the folder a run's, unless it is one or holds something else."""
        if self.folder.exists() and not self.folder.is_dir():
            raise InvalidFile(f"{self.folder} is a file, and results need a folder. Pass another name.")
        self.folder.mkdir(parents=True, exist_ok=True)
        others = [path.name for path in self.folder.iterdir() if not path.name.startswith(FILE)]
        # Another process that creates the run writes the results before all else: whatever of it was listed, they are
        # there by now.
        if others and not self._file.exists():
            raise InvalidFile(
                f"{self.folder} holds other files ({min(others)!r}) and no {FILE}: it is not a run of limiirl. "
                "Pass a new or an empty folder."
            )
        if self._file.exists() and self._file.stat().st_size:
            return
        with self._connect(create=True) as database:
            # Another process may have done so in the meantime; it is done once or twice with the same result.
            for statement in filter(None, _SCHEMA.split(";")):
                database.execute(statement)
            database.execute(f"PRAGMA application_id = {_APPLICATION}")
            database.execute(f"PRAGMA user_version = {VERSION}")

    def _check(self) -> None:
        """Check that the file is a run's of this experiment that this version can read."""
        with self._connect(write=False) as database:
            application, version = (
                int(database.execute(f"PRAGMA {name}").fetchone()[0]) for name in ("application_id", "user_version")
            )
            present = {name for (name,) in database.execute("SELECT name FROM sqlite_master")}
        if application != _APPLICATION or not present.issuperset(_TABLES):
            raise InvalidFile(
                f"{self._file} holds no results of limiirl. Pass another folder, or move it away.",
                value=str(self._file),
            )
        if version > VERSION:
            raise InvalidFile(
                f"{self._file} has format version {version}; this limiirl reads up to {VERSION}. Upgrade limiirl.",
                value=version,
            )

    @contextmanager
    def _connect(self, *, write: bool = True, create: bool = False) -> Iterator[sqlite3.Connection]:
        """Yield a connection within one transaction; it is committed as a whole, or not at all.

        A connection per transaction: none crosses a fork, and none keeps a lock.
        """
        address = f"{self._file.absolute().as_uri()}?mode={'rwc' if create else 'rw'}"
        database = None
        try:
            database = sqlite3.connect(address, uri=True, timeout=_TIMEOUT_S, isolation_level=None)
            database.execute("BEGIN IMMEDIATE" if write else "BEGIN")
            yield database
            database.execute("COMMIT")
        except (sqlite3.Error, UnicodeDecodeError) as error:  # the latter of a message that quotes a damaged schema
            raise self._explain(error) from error
        finally:
            if database is not None:
                database.close()  # rolls back what was not committed

    def _explain(self, error: Exception) -> Exception:
        """Return the error of a caller for one of SQLite's."""
        name = str(getattr(error, "sqlite_errorname", ""))
        code = next((code for prefix, code in _SYSTEM_ERRORS.items() if name.startswith(prefix)), None)
        if code is None:
            return InvalidFile(
                f"{self._file} is damaged ({error}). Recover it with `sqlite3 {FILE} .recover`, restore a copy, or "
                "move it away: its trials are then run again.",
                value=str(self._file),
            )
        reason = f"{os.strerror(code)} ({error})" if code == errno.EIO else os.strerror(code)
        return OSError(
            code,
            f"{reason}: nothing more can be written. What was recorded is safe; once the cause is removed, the same "
            "command resumes",
            str(self.folder),
        )

    def _insert(self, table: str, contents: Sequence[str]) -> None:
        if contents:
            with self._connect() as database:
                _write(database, table, contents)

    def _contents(self, table: str) -> list[dict[str, Any]]:
        return [content for content in self._select(table).values() if content is not None]

    def _select(self, table: str, after: int = 0) -> dict[int, dict[str, Any] | None]:
        """Return the contents of rows by number; None for those that do not match their digest.

        These are reported, and removed if possible.
        """
        with self._connect(write=False) as database:
            query = f"SELECT id, CAST(content AS BLOB), CAST(digest AS BLOB) FROM {table} WHERE id > ? ORDER BY id"
            rows = database.execute(query, (after,)).fetchall()
        contents = {
            number: json.loads(data) if data and digest == _digest(table, data) else None
            for number, data, digest in rows
        }
        damaged = [(number,) for number, content in contents.items() if content is None]
        if damaged:
            warnings.warn(
                f"{self._file} is damaged: {len(damaged)} of its {table} do not match their checksum. They are left "
                "out, and trials among them count as not done.",
                LimiirlWarning,
                stacklevel=4,
            )
            with suppress(OSError), self._connect() as database:
                database.executemany(f"DELETE FROM {table} WHERE id = ?", damaged)
        return contents

    def _decode(self, content: dict[str, Any]) -> R:
        """Return a record; a field that an older version did not write has its default."""
        unknown = content.keys() - {field.name for field in fields(self.record)}
        if unknown:
            raise InvalidFile(
                f"{self._file} has records with a field {min(unknown)!r} that this limiirl does not know in "
                f"{self.record.__name__}: a newer version or another experiment wrote it. Upgrade limiirl, or pass "
                "another folder.",
                value=min(unknown),
            )
        return self.record(**content)


def _write(database: sqlite3.Connection, table: str, contents: Sequence[str]) -> None:
    rows = [(content, _digest(table, content.encode()).decode()) for content in contents]
    database.executemany(f"INSERT INTO {table} (content, digest) VALUES (?, ?)", rows)


def _digest(table: str, data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=16, person=table.encode()).hexdigest().encode()


def _encode(record: BaseRecord, number: int) -> dict[str, Any]:
    """Return a record as plain values for JSON, which restores every float exactly."""
    content = {}
    for field in fields(record):
        value, kind = getattr(record, field.name), str(field.type)
        try:
            content[field.name] = None if value is None and "None" in kind else _PLAIN[kind.partition(" | ")[0]](value)
        except (TypeError, ValueError, OverflowError, AttributeError) as error:
            raise InvalidParameter(
                f"Field {field.name} of a record must be {kind}; record {number} has {value!r:.100}. Convert it to "
                "plain Python values.",
                parameter=field.name,
                value=value,
                index=number,
            ) from error
    return content


def _float(value: Any) -> float:
    if isinstance(value, str | bytes):
        raise TypeError(value)
    return float(value)


def _int(value: Any) -> int:
    number = index(value)
    if not -(2**63) <= number < 2**63:
        raise OverflowError(value)
    return number


# Text in an error may quote a file name that is not valid Unicode; this must not prevent its recording.
_PLAIN: dict[str, Callable[[Any], Any]] = {
    "str": lambda value: value.encode("utf-8", "backslashreplace").decode(),
    "int": _int,
    "float": _float,
    "bool": bool,
    "list[float]": lambda value: [_float(x) for x in value],
    "list[list[float]]": lambda value: [[_float(x) for x in row] for row in value],
}


def _distinct(records: list[R]) -> list[R]:
    """Return the records of one key that differ in what can be reproduced, the one to be read first.

    A success hides failures. The order is that of the contents, never of rows or times, so that all readers agree.
    """
    if len(records) == 1:
        return records
    succeeded = [record for record in records if not record.failed]
    distinct: dict[str, R] = {}
    # As text, because NaN is not equal to itself.
    for record in sorted(succeeded or records, key=repr):
        distinct.setdefault(repr(record.reproducible()), record)
    return list(distinct.values()) if succeeded else list(distinct.values())[:1]


def describe(command: Sequence[str], seeds: Iterable[int] = (), studies: Iterable[str] = ()) -> dict[str, Any]:
    """Return what a methods paragraph reports of a run: command, time, versions, kind of machine; no name and no path.

    >>> content = describe(["limiirl", "--out=/somewhere/runs/a"], [2, 1], ["margin"])
    >>> content["command"], content["seeds"], content["studies"]
    ('limiirl --out=a', [1, 2], ['margin'])
    >>> sorted(content), sorted(content["machine"])
    (['command', 'machine', 'seeds', 'started', 'studies', 'versions'], ['cores', 'processor', 'system'])
    """
    import platform
    import shlex
    from datetime import UTC, datetime
    from importlib.metadata import version

    return {
        "command": shlex.join(_without_folders(word) for word in command),
        "started": datetime.now(UTC).isoformat(timespec="microseconds"),
        "studies": list(studies),
        "seeds": sorted(set(seeds)),
        "versions": {"limiirl": __version__, "python": platform.python_version()}
        | {name: version(name) for name in _PACKAGES},
        "machine": {"system": platform.system(), "processor": platform.machine(), "cores": os.cpu_count()},
    }


def _without_folders(word: str) -> str:
    """Return a word of a command line with an absolute path reduced to its last name."""
    option, equals, value = word.rpartition("=")
    return option + equals + (Path(value).name if Path(value).is_absolute() else value)
