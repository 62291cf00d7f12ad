"""What an executor offers to the loop of `execute`, and the executor of this machine: a pool of processes."""

from __future__ import annotations

import os
import pickle
import re
import shutil
import signal
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

Task = TypeVar("Task")
Result = TypeVar("Result")

# Tasks in flight for each that can run: one runs and one waits, so that no worker waits for us. More would only be lost
# together when a worker dies, and would be taken from the caller too early.
AHEAD = 2
# NUMBA_NUM_THREADS is not among them: numba refuses another value once it is loaded.
_THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)
_LIMITED = threading.local()
_ONE_AT_A_TIME = threading.Lock()


@dataclass(eq=False)
class Ticket:
    """A task on its way, and how many workers have died under it."""

    task: Any
    deaths: int = 0


@dataclass(frozen=True)
class Death:
    """Stands for the result of a task whose worker has died, maybe by a neighbour's fault; `deaths` of them."""

    reason: str
    deaths: int = 1


class Pool(Protocol):
    """What the loop needs of an executor."""

    # How many times a task is tried before it is given up; the last time alone.
    rounds: int

    def use(self, function: Callable[[Any], Any]) -> None:
        """Take the function for the tasks that follow; it, and what it holds, travels once to each worker."""

    def width(self) -> int:
        """How many tasks may be in flight."""

    def submit(self, ticket: Ticket) -> None:
        """Send a task."""

    def collect(self) -> Iterator[tuple[Ticket, Any]]:
        """Wait until a task has ended, and give those that have, each with its result or a `Death`."""

    def drop(self) -> None:
        """Forget the tasks that are in flight."""

    def close(self) -> None:
        """Stop what still runs; nothing of ours remains."""


def on_one_thread(function: Callable[[Task], Result], task: Task) -> Result:
    """Run one task in a worker, on one thread, and one after the other where a worker has several threads.

    Sums by several threads come out in any order, and the bits would depend on the machine. Tasks that run at once in
    one process would share what a model works with, and each overwrite what another computes.
    """
    import numba

    with _ONE_AT_A_TIME:
        # First numba, for it brings OpenMP along and sets that to all cores.
        numba.set_num_threads(1)
        _limit_libraries()
        return function(task)


def _limit_libraries() -> None:
    """Limit linear algebra and OpenMP to one thread, for good, in each thread that runs tasks.

    Not for the time of a task: a Dask worker has threads of its own, and the next task may be another one's. The
    variables are for libraries that are loaded later. OpenMP keeps its number thread by thread.
    """
    if not hasattr(_LIMITED, "libraries"):
        from threadpoolctl import threadpool_limits

        os.environ.update(dict.fromkeys(_THREAD_VARIABLES, "1"))
        _LIMITED.libraries = threadpool_limits(limits=1)


class LocalPool:
    """Processes of this machine, by loky, which joblib is built on and brings along.

    Not `joblib.Parallel`, for three reasons. It runs a single worker inside this process, which a crash would end. It
    throws away finished results when a worker dies, and does not say which tasks were running. It takes the caller's
    tasks on a thread of its own.
    """

    rounds = 3

    def __init__(self, workers: int | None) -> None:
        from joblib import cpu_count

        self._workers: int = workers or cpu_count()  # respects affinity and a container's limit
        self._tickets: dict[Any, Ticket] = {}
        self._executor: Any = None
        self._folder = Path(tempfile.mkdtemp(prefix="limiirl-"))
        self._path: Path | None = None
        self._uses = 0

    def _start(self) -> Any:
        from joblib.externals.loky import ProcessPoolExecutor

        # Loky replaces a worker whose memory has grown, and warns that it did; nobody can act on that.
        warnings.filterwarnings("ignore", message="A worker stopped while some jobs were given", category=UserWarning)
        environment = dict.fromkeys((*_THREAD_VARIABLES, "NUMBA_NUM_THREADS"), "1")
        prepared = {"initializer": _live_with, "initargs": (os.getpid(), self._folder)}
        return ProcessPoolExecutor(self._workers, env=environment, **prepared)

    def use(self, function: Callable[[Any], Any]) -> None:
        """Take the function for the tasks that follow, through a file that each worker reads once."""
        from joblib.externals.loky.backend import reduction

        before = self._path
        # A name of its own for each, for a worker knows by it whether it has read the file.
        self._uses += 1
        self._path = self._folder / f"{self._uses}.pickle"
        with self._path.open("wb") as stream:
            reduction.dump(function, stream)
        if before is not None:
            before.unlink(missing_ok=True)

    def width(self) -> int:
        """How many tasks may be in flight."""
        return AHEAD * self._workers

    def submit(self, ticket: Ticket) -> None:
        """Send a task."""
        from joblib.externals.loky.process_executor import BrokenProcessPool

        if self._executor is None:
            self._executor = self._start()
        try:
            future = self._executor.submit(_from_file, self._path, ticket.task)
        except BrokenProcessPool:
            # A worker died since the last look. The tasks of the old pool have been told; they are still in _tickets.
            self._executor.shutdown(kill_workers=True)
            self._executor = self._start()
            future = self._executor.submit(_from_file, self._path, ticket.task)
        self._tickets[future] = ticket

    def collect(self) -> Iterator[tuple[Ticket, Any]]:
        """Wait until a task has ended, and give those that have."""
        from concurrent.futures import FIRST_COMPLETED, wait

        from joblib.externals.loky.process_executor import BrokenProcessPool

        for future in wait(self._tickets, return_when=FIRST_COMPLETED).done:
            ticket = self._tickets.pop(future)
            error = future.exception()
            if isinstance(error, BrokenProcessPool):
                exit_codes = re.search(r"\{(.+)\}", str(error))
                yield ticket, Death(f"It ended with {exit_codes[1]}." if exit_codes else str(error))
            elif error is not None:
                raise error
            else:
                yield ticket, future.result()

    def drop(self) -> None:
        """Forget the tasks that are in flight; their workers end, for nothing else stops a task."""
        if self._tickets:
            self._stop()

    def close(self) -> None:
        """Stop what still runs."""
        self._stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _stop(self) -> None:
        if self._executor is not None:
            # Told to kill, loky 3.6 stumbles over a task that it has accepted but not yet put into its workers' queue.
            # The queue has room for all of ours, so this takes no time.
            end = time.monotonic() + 1.0
            while any(not (task.running() or task.done()) for task in self._tickets) and time.monotonic() < end:
                time.sleep(0.001)
            self._executor.shutdown(wait=True, kill_workers=True)
        self._executor = None
        self._tickets.clear()


# The function that a local worker uses, by the path that it was read from; a single one.
_READ: dict[Path, Callable[[Any], Any]] = {}


def _from_file(path: Path, task: Any) -> Any:
    """Run a task in a local worker."""
    if path not in _READ:
        _READ.clear()
        with path.open("rb") as stream:
            _READ[path] = pickle.load(stream)  # noqa: S301 (our parent wrote it, where nobody else may)
    return _READ[path](task)


def _live_with(parent: int, folder: Path) -> None:
    """Prepare a local worker: an interrupt is the parent's affair, and without the parent there is nothing to do.

    A killed parent cannot stop its workers, which would wait for tasks for ever, nor remove its folder.
    """

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        shutil.rmtree(folder, ignore_errors=True)
        os._exit(1)

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if os.name == "posix":
        threading.Thread(target=watch, daemon=True).start()
