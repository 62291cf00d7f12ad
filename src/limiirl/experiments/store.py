"""Results of a run in an SQLite file, with atomic transactions and concurrent writers."""

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

from limiirl._io import as_path, load_json
from limiirl._version import __version__
from limiirl.errors import InvalidFile, InvalidParameter, LimiirlWarning
from limiirl.experiments.record import AnySpec, BaseRecord, Record
from limiirl.experiments.spec import Spec, Study

FILE = "results.sqlite"
"""Name of the file in the run folder."""
VERSION = 1
# The SQLite field `application_id` ("limi") identifies the file, and `user_version` is the format version.
_APPLICATION = 0x6C696D69
_TIMEOUT_S = 60.0  # maximum time to wait for another writer
_PACKAGES = ("numpy", "scipy", "numba", "scikit-learn")
# Rows are never changed and there is no index, so a checksum per row is sufficient to detect corruption. With
# AUTOINCREMENT, ids of deleted rows are not reused.
_TABLES = ("header", "specs", "records", "runs", "examples")
_SCHEMA = "".join(
    f"CREATE TABLE IF NOT EXISTS {table} (id INTEGER PRIMARY KEY AUTOINCREMENT, content TEXT, digest TEXT);"
    for table in _TABLES
)
# SQLite errors that are raised as OSError. Any other error means that the file is corrupted.
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
    """Settings, records and invocations of a run, for any number of concurrent writers.

    Records are identified by (hash of the settings, seed). They are added, but never changed. If a trial has several
    records, a successful record is preferred to failed records. If two successful records differ in more than their
    times, a warning is issued, and all readers select the same record. A row that does not match its checksum is
    reported and removed, so that its trial is run again.

    Parameters
    ----------
    folder : path
        Run folder; the results are in its file results.sqlite.
    create : bool
        Whether to create the run if the folder is absent or empty.
    record, spec : type
        Types of the records and of their settings.

    Raises
    ------
    InvalidFile
        If the folder is not a run, or the file is corrupted or was written by a newer version.
    OSError
        Raised by any method that writes if the disk is full or read-only. The store is unchanged.

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
        self.folder = as_path(folder, "folder")
        self.record: type[R] = record
        self.spec = spec
        self._file = self.folder / FILE
        self._last_id = 0
        # For each key, the record that is used, followed by records that conflict with it.
        self._records: dict[Key, list[R]] = {}
        if create:
            self._create()
        elif not self._file.exists():
            raise InvalidFile(
                f"{self.folder} is not the folder of a run: it does not contain {FILE}. Pass the folder of a run.",
                parameter="folder",
                value=str(self.folder),
            )
        self._check()
        self.refresh()

    def append(self, records: Sequence[R]) -> None:
        """Add records in one durable transaction."""
        contents = [json.dumps(_encode(record, number)) for number, record in enumerate(records)]
        if contents:
            self._insert("records", contents)
            self.refresh()

    def refresh(self) -> int:
        """Read the records that were added by any process since the last call, and return their number."""
        conflicting: set[Key] = set()
        rows = self._select("records", self._last_id)
        for number, content in rows.items():
            self._last_id = number
            if content is None:
                continue
            record = self._decode(content)
            self._records[record.key] = _distinct([*self._records.get(record.key, []), record])
            if len(self._records[record.key]) > 1:
                conflicting.add(record.key)
        if conflicting:
            spec, seed = min(conflicting)
            warnings.warn(
                f"{self._file} contains conflicting results for {len(conflicting)} trials; the first trial has seed "
                f"{seed} and specification {spec}. The results may be from different versions of limiirl or of its "
                "dependencies. Repeat the run in a new folder.",
                LimiirlWarning,
                stacklevel=2,
            )
        return len(rows)

    def keys(self, *, failed: bool = True) -> set[Key]:
        """Return the keys of all records, or of successful records only."""
        self.refresh()
        return {key for key, (first, *_) in self._records.items() if failed or not first.failed}

    def read(self, hashes: Iterable[str] | None = None) -> list[R]:
        """Return one record per trial, sorted by hash and seed; `hashes` selects settings."""
        self.refresh()
        wanted = None if hashes is None else set(hashes)
        return [self._records[key][0] for key in sorted(self._records) if wanted is None or key[0] in wanted]

    def add_specs(self, specs: Iterable[AnySpec]) -> None:
        """Store settings; records refer to them by hash."""
        present = self.specs()
        new = {spec.hash: spec.to_dict() for spec in specs if spec.hash not in present}
        self._insert("specs", [json.dumps({"hash": key, "spec": content}) for key, content in new.items()])

    def specs(self) -> dict[str, AnySpec]:
        """Return the settings by hash."""
        try:
            return {entry["hash"]: self.spec.from_dict(entry["spec"]) for entry in self._contents("specs")}
        except InvalidFile as error:
            raise InvalidFile(f"{self._file}: {error}", parameter="folder", value=error.value) from None

    def note(self, command: Sequence[str], seeds: Iterable[int] = (), studies: Iterable[str] = ()) -> None:
        """Log an invocation with the versions of packages and a description of the machine.

        Parameters
        ----------
        command : sequence of str
            The command line, such as `sys.argv`; absolute paths are reduced to their last component.
        seeds, studies : iterable of int, of str
            Seeds of the trials and names of the studies.

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
        """Return the logged invocations in order of time; see `describe` for their fields."""
        return sorted(self._contents("runs"), key=lambda content: str(content["started"]))

    def studies(self) -> list[str]:
        """Return the distinct names of the logged studies."""
        return list(dict.fromkeys(name for run in self.runs() for name in run["studies"]))

    def set_header(self, content: Mapping[str, Any]) -> None:
        """Set the settings common to all trials, unless they are already set."""
        with self._connect() as database:  # in one transaction, so that only one writer sets the header
            if database.execute("SELECT 1 FROM header").fetchone() is None:
                _write(database, "header", [json.dumps(dict(content))])

    @property
    def header(self) -> dict[str, Any]:
        """Settings common to all trials; empty if none were set."""
        return next(iter(self._contents("header")), {})

    def put_example(self, study: str, content: Mapping[str, Any]) -> None:
        """Store the example world of a study; it replaces an earlier example."""
        text = json.dumps({"study": study, "example": dict(content)})
        if self.example(study) != load_json(text)["example"]:
            self._insert("examples", [text])

    def example(self, study: str) -> dict[str, Any] | None:
        """Return the example world of a study, or None if there is none."""
        examples = [entry["example"] for entry in self._contents("examples") if entry.get("study") == study]
        return examples[-1] if examples else None

    def put_study(self, study: Study) -> None:
        """Store the definition of a study for reports; it replaces an earlier definition."""
        if study not in self.custom_studies():
            self._insert("examples", [json.dumps({"definition": study.to_dict()})])

    def custom_studies(self) -> list[Study]:
        """Return the stored definitions of studies."""
        entries = (entry["definition"] for entry in self._contents("examples") if "definition" in entry)
        return list({study.name: study for study in map(Study.from_dict, entries)}.values())

    def _create(self) -> None:
        """Create the file of the run unless it exists; raise if the folder contains other files."""
        if self.folder.exists() and not self.folder.is_dir():
            raise InvalidFile(f"{self.folder} is a file. Pass a folder.", parameter="folder", value=str(self.folder))
        self.folder.mkdir(parents=True, exist_ok=True)
        others = [path.name for path in self.folder.iterdir() if not path.name.startswith(FILE)]
        # A concurrent run creates the results file before any other file, so it exists if other files are listed.
        if others and not self._file.exists():
            raise InvalidFile(
                f"{self.folder} is not the folder of a run: it contains {min(others)!r}, but not {FILE}. Pass a new "
                "or empty folder.",
                parameter="folder",
                value=str(self.folder),
            )
        if self._file.exists() and self._file.stat().st_size:
            return
        with self._connect(create=True) as database:
            # The statements are idempotent, because another process may create the file at the same time.
            for statement in filter(None, _SCHEMA.split(";")):
                database.execute(statement)
            database.execute(f"PRAGMA application_id = {_APPLICATION}")
            database.execute(f"PRAGMA user_version = {VERSION}")

    def _check(self) -> None:
        """Raise `InvalidFile` unless the file contains results that this version can read."""
        with self._connect(write=False) as database:
            application, version = (
                int(database.execute(f"PRAGMA {name}").fetchone()[0]) for name in ("application_id", "user_version")
            )
            present = {name for (name,) in database.execute("SELECT name FROM sqlite_master")}
        if application != _APPLICATION or not present.issuperset(_TABLES):
            raise InvalidFile(
                f"{self._file} does not contain results of limiirl. Pass another folder.",
                parameter="folder",
                value=str(self._file),
            )
        if version > VERSION:
            raise InvalidFile(
                f"{self._file} has format version {version}; this version of limiirl reads up to version {VERSION}. "
                "Upgrade limiirl.",
                parameter="folder",
                value=version,
            )

    @contextmanager
    def _connect(self, *, write: bool = True, create: bool = False) -> Iterator[sqlite3.Connection]:
        """Yield a connection in one transaction and close it, because forked processes must not share a connection."""
        address = f"{self._file.absolute().as_uri()}?mode={'rwc' if create else 'rw'}"
        database = None
        try:
            database = sqlite3.connect(address, uri=True, timeout=_TIMEOUT_S, isolation_level=None)
            database.execute("BEGIN IMMEDIATE" if write else "BEGIN")
            yield database
            database.execute("COMMIT")
        except (sqlite3.Error, UnicodeDecodeError) as error:  # an error message of SQLite may quote a corrupted schema
            raise self._explain(error) from error
        finally:
            if database is not None:
                database.close()  # rolls back if not committed

    def _explain(self, error: Exception) -> Exception:
        """Convert an error of SQLite to `InvalidFile` or `OSError`."""
        name = str(getattr(error, "sqlite_errorname", ""))
        code = next((code for prefix, code in _SYSTEM_ERRORS.items() if name.startswith(prefix)), None)
        if code is None:
            return InvalidFile(
                f"{self._file} is corrupted ({error}). Recover it with `sqlite3 {FILE} .recover`, restore a backup, or "
                "delete it to run its trials again.",
                parameter="folder",
                value=str(self._file),
            )
        reason = f"{os.strerror(code)} ({error})" if code == errno.EIO else os.strerror(code)
        return OSError(
            code,
            f"{reason}; recorded trials are not affected. Fix the cause, and run the same command to resume",
            str(self.folder),
        )

    def _insert(self, table: str, contents: Sequence[str]) -> None:
        if contents:
            with self._connect() as database:
                _write(database, table, contents)

    def _contents(self, table: str) -> list[dict[str, Any]]:
        return [content for content in self._select(table).values() if content is not None]

    def _select(self, table: str, after: int = 0) -> dict[int, dict[str, Any] | None]:
        """Return the contents of rows by id; a row with a wrong checksum is reported, removed and returned as None."""
        with self._connect(write=False) as database:
            query = f"SELECT id, CAST(content AS BLOB), CAST(digest AS BLOB) FROM {table} WHERE id > ? ORDER BY id"
            rows = database.execute(query, (after,)).fetchall()
        contents = {
            number: load_json(data) if data and digest == _digest(table, data) else None
            for number, data, digest in rows
        }
        corrupted = [(number,) for number, content in contents.items() if content is None]
        if corrupted:
            warnings.warn(
                f"{self._file} is corrupted: {len(corrupted)} of its {table} did not match their checksums "
                "and were removed. The affected trials will be run again.",
                LimiirlWarning,
                stacklevel=4,
            )
            with suppress(OSError), self._connect() as database:
                database.executemany(f"DELETE FROM {table} WHERE id = ?", corrupted)
        return contents

    def _decode(self, content: dict[str, Any]) -> R:
        """Return the record with the given fields; missing fields have default values."""
        unknown = content.keys() - {field.name for field in fields(self.record)}
        if unknown:
            raise InvalidFile(
                f"{self._file} contains records with a field {min(unknown)!r} that {self.record.__name__} does not "
                "have. Upgrade limiirl if a newer version wrote them, or pass another folder.",
                parameter="folder",
                value=min(unknown),
            )
        return self.record(**content)


def _write(database: sqlite3.Connection, table: str, contents: Sequence[str]) -> None:
    rows = [(content, _digest(table, content.encode()).decode()) for content in contents]
    database.executemany(f"INSERT INTO {table} (content, digest) VALUES (?, ?)", rows)


def _digest(table: str, data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=16, person=table.encode()).hexdigest().encode()


def _encode(record: BaseRecord, number: int) -> dict[str, Any]:
    """Return a record as plain values for JSON; floats are preserved exactly."""
    content = {}
    for field in fields(record):
        value, kind = getattr(record, field.name), str(field.type)
        try:
            content[field.name] = None if value is None and "None" in kind else _PLAIN[kind.partition(" | ")[0]](value)
        except (TypeError, ValueError, OverflowError, AttributeError) as error:
            raise InvalidParameter(
                f"{field.name} of records must be {kind}; record {number} has {value!r:.100}.",
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


# Strings may contain file names that are not valid Unicode.
_PLAIN: dict[str, Callable[[Any], Any]] = {
    "str": lambda value: value.encode("utf-8", "backslashreplace").decode(),
    "int": _int,
    "float": _float,
    "bool": bool,
    "list[float]": lambda value: [_float(x) for x in value],
    "list[list[float]]": lambda value: [[_float(x) for x in row] for row in value],
    "dict[str, float]": lambda value: {name: _float(x) for name, x in value.items()},
}


def _distinct(records: list[R]) -> list[R]:
    """Return the distinct records of one trial, ignoring measured times; the first record is used.

    Failed records are dropped if there is a successful record. The order depends only on the contents, so that all
    processes use the same record.
    """
    if len(records) == 1:
        return records
    succeeded = [record for record in records if not record.failed]
    distinct: dict[str, R] = {}
    for record in sorted(succeeded or records, key=repr):  # as text, because NaN != NaN
        distinct.setdefault(repr(record.reproducible()), record)
    return list(distinct.values()) if succeeded else list(distinct.values())[:1]


def describe(command: Sequence[str], seeds: Iterable[int] = (), studies: Iterable[str] = ()) -> dict[str, Any]:
    """Return the command, time, package versions and machine type of a run, without host names or paths.

    Examples
    --------
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
    """Replace an absolute path in a command-line argument by its last component."""
    option, equals, value = word.rpartition("=")
    return option + equals + (Path(value).name if Path(value).is_absolute() else value)
