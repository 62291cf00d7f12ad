"""Runs of `limiirl reproduce` as processes that can be monitored and killed, and their expected records."""

import contextlib
import io
import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
import uuid
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from limiirl.cli import main
from limiirl.experiments import Record, Store, choose_studies, iterate_trials
from limiirl.experiments.store import FILE
from limiirl.experiments.trial import attempt

COMMAND = (sys.executable, "-c", "from limiirl.cli import main; main()")
# In the environment of a run and of all that it starts, so that orphans are found too.
_MARK = "LIMIIRL_TEST_RUN"
# Generous, since the tests may share few cores with others.
PATIENCE = 400.0

Key = tuple[str, int]
# Lines of `limiirl._progress`: "margin ..." and "margin: 3 of 15, about 7 s left".
_PROGRESS = re.compile(r"[\w, -]+( \.\.\.|: [\d,]+ of [\d,]+.*)")


@cache
def expected(study: str, repeats: int) -> dict[Key, dict[str, Any]]:
    """Return the expected records of a study, computed in this process without executor and store."""
    records = [attempt(task) for task in iterate_trials(choose_studies([study]), repeats)]
    assert not any(record.failed for record in records), [record.error for record in records]
    return {record.key: record.reproducible() for record in records}


def read_records(folder: Path) -> dict[Key, dict[str, Any]]:
    """Return the records of a run, which must have distinct keys."""
    records = Store(folder, create=False).read()
    by_key = {record.key: record.reproducible() for record in records}
    assert len(by_key) == len(records), "a trial was read twice"
    return by_key


def rows(folder: Path) -> list[Key]:
    """Return the keys of all rows of records in the file, repetitions included."""
    if not (folder / FILE).exists() or not (folder / FILE).stat().st_size:
        return []
    with contextlib.closing(sqlite3.connect(folder / FILE, timeout=60.0)) as database:
        contents = [json.loads(text) for (text,) in database.execute("SELECT content FROM records")]
    return sorted((content["spec"], content["seed"]) for content in contents)


def read_keys(folder: Path) -> set[Key]:
    """Return the keys of the trials that a run has written so far."""
    return set(rows(folder))


class Done(NamedTuple):
    """Exit code and output of a finished command."""

    code: int
    stdout: str
    stderr: str

    @property
    def messages(self) -> list[str]:
        """Lines on stderr other than progress."""
        return [line for line in self.stderr.splitlines() if not _PROGRESS.fullmatch(line)]

    @property
    def counts(self) -> dict[str, Any]:
        """The JSON object on stdout."""
        content = json.loads(self.stdout)
        assert isinstance(content, dict)
        return content


@dataclass
class Run:
    """A command in a process group of its own."""

    process: subprocess.Popen[str]
    mark: str

    def family(self) -> list[psutil.Process]:
        """Return this process and its running descendants, orphans included."""
        processes = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.status() != psutil.STATUS_ZOMBIE and process.environ().get(_MARK) == self.mark:
                    processes.append(process)
        return processes

    def workers(self) -> list[psutil.Process]:
        """Return the worker processes."""
        processes = []
        for process in self.family():
            with contextlib.suppress(psutil.Error):
                if "popen_loky_posix" in " ".join(process.cmdline()):
                    processes.append(process)
        return processes

    def must_vanish(self, seconds: float = 20.0) -> None:
        """Wait until all processes of this run have ended; a worker checks for its parent once per second."""
        wait_until(lambda: not self.family(), seconds, every=0.2)  # listing all processes is slow

    def finish(self) -> Done:
        """Wait for the end."""
        out, err = self.process.communicate(timeout=PATIENCE)
        return Done(self.process.returncode, out, err)

    def kill_group(self) -> None:
        """Kill this process and all that it has started, in one go, as the end of a machine would."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.communicate(timeout=PATIENCE)

    def kill_parent(self) -> None:
        """Kill this process only. Its workers hold on to its stderr, which is therefore not read to the end."""
        self.process.kill()
        self.process.wait(timeout=PATIENCE)

    def until(self, happened: Callable[[], object]) -> None:
        """Wait until something has happened while this process runs."""
        wait_until(lambda: happened() or self.process.poll() is not None)
        assert self.process.poll() is None, self.finish()


def cpu_seconds(processes: list[psutil.Process]) -> float:
    """Return the processor time of some processes."""
    times = [process.cpu_times() for process in processes]
    return sum(spent.user + spent.system for spent in times)


def wait_until(happened: Callable[[], object], seconds: float = PATIENCE, every: float = 0.01) -> None:
    """Wait until something has happened, and fail if it does not."""
    end = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(every)


@contextlib.contextmanager
def start(*arguments: object, cwd: Path | None = None) -> Iterator[Run]:
    """Start `limiirl` with some arguments; whatever of it still lives at the end is killed."""
    mark = uuid.uuid4().hex
    process = subprocess.Popen(
        [*COMMAND, *map(str, arguments)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=cwd,
        env=os.environ | {_MARK: mark},
        start_new_session=True,
    )
    run = Run(process, mark)
    try:
        with process:
            try:
                yield run
            finally:
                if process.poll() is None:
                    process.kill()
                for other in run.family():
                    with contextlib.suppress(psutil.Error):
                        other.kill()
    finally:
        run.must_vanish()


def command(*arguments: object, code: int = 0) -> Done:
    """Run `limiirl` in this process: what it refuses or skips needs no other, and starting one takes seconds."""
    out, err, shows, ended = io.StringIO(), io.StringIO(), warnings.showwarning, 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main([str(argument) for argument in arguments])
        except SystemExit as end:
            ended = int(end.code or 0)
        finally:
            warnings.showwarning = shows
    done = Done(ended, out.getvalue(), err.getvalue())
    assert ended == code, done
    return done


def fill(folder: Path, records: list[Record]) -> Store[Record]:
    """Make a run folder with some records."""
    store = Store(folder)
    store.append(records)
    return store


def counts(done: Done) -> tuple[int, int, int]:
    """Return the numbers of all, skipped and run trials; none of them failed."""
    content = done.counts
    assert (content["failed"], content["failed_before"]) == ([], 0)
    return content["total"], content["skipped"], content["run"]
