"""Run trials: skip what the store has, send the rest to an executor, and write what comes back."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from limiirl._progress import Progress, check_progress
from limiirl.executors import Executor, LostTask, execute
from limiirl.experiments.example import store_examples
from limiirl.experiments.record import AnySpec, BaseRecord, Record
from limiirl.experiments.spec import Study
from limiirl.experiments.store import Store
from limiirl.experiments.studies import tasks
from limiirl.experiments.trial import attempt

# A run that is killed repeats the trials of these seconds: a transaction per trial would cost more than that.
_FLUSH_SECONDS = 1.0

S = TypeVar("S", bound=AnySpec)
R = TypeVar("R", bound=BaseRecord)


@dataclass
class RunCounts:
    """Numbers of trials of a run.

    Attributes
    ----------
    total : int
        All trials.
    skipped : int
        Trials that the store had when the run began, or that another run has added since.
    failed_before : int
        Skipped trials whose record is an error.
    done : int
        Trials that this run has written.
    failed : list of records
        Those among them that ended in an error.
    """

    total: int
    skipped: int = 0
    failed_before: int = 0
    done: int = 0
    failed: list[Any] = field(default_factory=list, repr=False)


def run_trials(
    trials: Sequence[tuple[S, int]],
    store: Store[R],
    attempt: Callable[[tuple[S, int]], R],
    executor: Executor | None = None,
    *,
    retry_failed: bool = False,
    progress: Progress | None = None,
) -> RunCounts:
    """Run every trial that a store does not have, and write its record.

    Parameters
    ----------
    trials : sequence of (settings, seed)
    store : Store
    attempt : callable
        Runs one trial and returns its record, that of an error if it fails.
    executor : Executor, optional
        By default the trials run one after the other in this process, on all its threads.
    retry_failed : bool
        Whether trials whose record is an error are run again.
    progress : callable, optional
        Called as ``progress(done, total, message)`` after every trial, skipped ones included.
    """
    check_progress(progress)
    store.add_specs({spec for spec, _ in trials})
    counts = RunCounts(len(trials))
    ledger = _Ledger(store, retry_failed=retry_failed)

    def report() -> None:
        if progress is not None:
            skipped = f"{counts.skipped:,} done before" if counts.skipped else ""
            progress(counts.done + counts.skipped, counts.total, skipped)

    def missing() -> Iterator[tuple[S, int]]:
        # Lazily: what another run has written by now need not be sent.
        for spec, seed in trials:
            if (spec.hash, seed) in ledger.known:
                counts.skipped += 1
                counts.failed_before += (spec.hash, seed) not in ledger.succeeded
                report()
            else:
                yield spec, seed

    try:
        for (spec, seed), result in _run(attempt, missing(), executor):
            if isinstance(result, LostTask):
                result = store.record(spec.hash, seed, f"WorkerDied: {result.message}")
            counts.done += 1
            if result.failed:
                counts.failed.append(result)
            ledger.add(result)
            report()
    finally:
        ledger.flush()  # an interrupted run keeps what it has
    return counts


def _run(
    attempt: Callable[[tuple[S, int]], R], trials: Iterable[tuple[S, int]], executor: Executor | None
) -> Iterator[tuple[tuple[S, int], R | LostTask]]:
    return ((trial, attempt(trial)) for trial in trials) if executor is None else execute(attempt, trials, executor)


class _Ledger:
    """Keys that the store has, and records that wait to be written; both are brought up to date once per second."""

    def __init__(self, store: Store[Any], *, retry_failed: bool) -> None:
        self.store, self.retry_failed = store, retry_failed
        self.waiting: list[BaseRecord] = []
        self.flush()

    def add(self, record: BaseRecord) -> None:
        self.waiting.append(record)
        if time.monotonic() - self.flushed >= _FLUSH_SECONDS:
            self.flush()

    def flush(self) -> None:
        self.store.append(self.waiting)
        self.waiting = []
        self.succeeded = self.store.keys(failed=False)
        self.known = self.succeeded if self.retry_failed else self.store.keys()
        self.flushed = time.monotonic()


def run_studies(
    studies: Sequence[Study],
    store: Store[Record],
    executor: Executor | None = None,
    repeats: int | None = None,
    *,
    retry_failed: bool = False,
    progress: Progress | None = None,
) -> RunCounts:
    """Run every trial of some studies that the store does not have, and write its record.

    The records are the same whatever the executor, the number of workers and the interruptions. Several runs may write
    to one store at once: each skips what the other has written by the time it gets there. At the end the store also
    has what a report shows of a single world.

    Parameters
    ----------
    studies : sequence of Study
    store : Store
    executor : Executor, optional
        All cores of this machine by default.
    repeats : int, optional
        Worlds per study; the paper's by default.
    retry_failed : bool
        Whether trials whose record is an error are run again.
    progress : callable, optional
        Called as ``progress(done, total, message)`` after every trial.

    Examples
    --------
    >>> import tempfile
    >>> from limiirl.experiments.studies import choose
    >>> store = Store(tempfile.mkdtemp())
    >>> run_studies(choose(["margin"]), store, Executor(workers=1), repeats=1).done
    5
    >>> run_studies(choose(["margin"]), store, Executor(workers=1), repeats=1).skipped
    5
    """
    wanted = list(tasks(studies, repeats))
    # Runs that share a store begin at different places, so that they meet when the work is done, not at every trial.
    first = os.getpid() * 7919 % max(len(wanted), 1)
    counts = run_trials(
        wanted[first:] + wanted[:first],
        store,
        attempt,
        executor or Executor(),
        retry_failed=retry_failed,
        progress=progress,
    )
    store_examples(studies, store)
    return counts
