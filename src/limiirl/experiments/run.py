"""Running studies: skip what the store has, send the rest to an executor, and write what comes back."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from limiirl.executors import Executor, Lost, execute
from limiirl.experiments.spec import Spec, Study
from limiirl.experiments.store import Store
from limiirl.experiments.studies import tasks
from limiirl.experiments.trial import Record, attempt

# A run that is killed does these seconds' trials again: a shard each would cost more than that over a run.
_FLUSH_SECONDS = 1.0

Task = tuple[Spec, int]


@dataclass
class Progress:
    """How far a run has come.

    Attributes
    ----------
    total : int
        Trials in all.
    skipped : int
        Trials that the store had when the run began, or that another run has added since.
    failed_before : int
        Those among the skipped whose record is an error.
    done : int
        Trials that this run has written or is about to.
    failed : list of Record
        Those among them that ended in an error.
    """

    total: int
    skipped: int = 0
    failed_before: int = 0
    done: int = 0
    failed: list[Record] = field(default_factory=list, repr=False)


class _Ledger:
    """What the store has, and what waits to be written to it; both are brought up to date about once a second."""

    def __init__(self, store: Store, *, retry_failed: bool) -> None:
        self.store, self.retry_failed = store, retry_failed
        self.waiting: list[Record] = []
        self.flush()

    def __contains__(self, task: Task) -> bool:
        spec, seed = task
        return (spec.hash, seed) in self.known

    def failed(self, task: Task) -> bool:
        spec, seed = task
        return (spec.hash, seed) not in self.succeeded

    def add(self, record: Record) -> None:
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
    store: Store,
    executor: Executor | None = None,
    repeats: int | None = None,
    *,
    retry_failed: bool = False,
    tell: Callable[[Progress], None] | None = None,
) -> Progress:
    """Run every trial of some studies that the store does not have, and write its record.

    The records are the same whatever the executor, the number of workers and the interruptions. Several runs may write
    to one store at once: each takes up what the other has written by the time it gets there.

    Parameters
    ----------
    studies : sequence of Study
    store : Store
    executor : Executor, optional
        All cores of this machine by default.
    repeats : int, optional
        Worlds a study; the paper's by default.
    retry_failed : bool
        Whether trials whose record is an error are run again.
    tell : callable, optional
        Called with the `Progress` after every trial.

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
    wanted = wanted[first:] + wanted[:first]
    store.add_specs({spec for spec, _ in wanted})
    progress = Progress(len(wanted))
    ledger = _Ledger(store, retry_failed=retry_failed)

    def told() -> None:
        if tell is not None:
            tell(progress)

    def missing() -> Iterator[Task]:
        # Lazily: what another run has written by now need not be sent.
        for task in wanted:
            if task in ledger:
                progress.skipped += 1
                progress.failed_before += ledger.failed(task)
                told()
            else:
                yield task

    try:
        for (spec, seed), result in execute(attempt, missing(), executor or Executor()):
            record = _lost(spec, seed, result) if isinstance(result, Lost) else result
            progress.done += 1
            if record.failed:
                progress.failed.append(record)
            ledger.add(record)
            told()
    finally:
        ledger.flush()  # an interrupted run keeps what it has
    store.compact()
    return progress


def _lost(spec: Spec, seed: int, result: Lost) -> Record:
    return Record(spec.hash, seed, f"WorkerDied: {result.message}")
