"""Backends of executors: any executor of `concurrent.futures`, and processes of this machine."""

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
from collections.abc import Callable, Collection
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypeVar

Task = TypeVar("Task")
Result = TypeVar("Result")

# Tasks in flight per worker: one runs and one waits, so that no worker is idle. More would only be lost together when a
# worker dies, and would be taken from the caller too early.
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


def run_on_one_thread(function: Callable[[Task], Result], task: Task) -> Result:
    """Run one task in a worker, on one thread, one task at a time where a worker has several threads.

    The order of a sum over several threads, hence its last bits, depends on the machine. Concurrent tasks in one
    process would share the buffers of a model.
    """
    import numba

    with _ONE_AT_A_TIME:
        numba.set_num_threads(1)  # first: loading numba loads OpenMP and sets it to all cores
        # Permanently, per thread: a Dask worker has its own threads, and OpenMP keeps its number per thread. The
        # variables are for libraries that are loaded later.
        if not hasattr(_LIMITED, "libraries"):
            from threadpoolctl import threadpool_limits

            os.environ.update(dict.fromkeys(_THREAD_VARIABLES, "1"))
            _LIMITED.libraries = threadpool_limits(limits=1)
        return function(task)


class TaskBackend:
    """The workers behind `execute`: here any `concurrent.futures.Executor`, which retries nothing.

    Attributes
    ----------
    attempts : int
        How often a task is submitted before it is given up; the last time alone.
    poll_s : float or None
        Seconds between two calls of `check` while no task ends.
    """

    attempts = 1
    poll_s: float | None = None

    def __init__(self, executor: Any) -> None:
        self._executor = executor
        self._workers = int(getattr(executor, "_max_workers", 0) or os.cpu_count() or 1)

    def load(self, function: Callable[[Any], Any]) -> None:
        """Set the function of the following tasks."""
        self._function = function

    def width(self) -> int:
        """Return how many tasks may be in flight."""
        return AHEAD * self._workers

    def submit(self, task: Any) -> Future[Any]:
        """Submit a task."""
        future: Future[Any] = self._executor.submit(self._function, task)
        return future

    def check(self) -> None:
        """Raise `BackendUnavailable` if the workers cannot be reached any more."""

    def explain(self, error: BaseException) -> tuple[int, str]:
        """Return how many workers died and why, if the error of a task means that; otherwise raise it."""
        raise error

    def discard(self, futures: Collection[Future[Any]]) -> None:
        """Give up tasks in flight."""
        for future in futures:
            future.cancel()

    def close(self) -> None:
        """Stop the workers that the backend started."""


class LocalBackend(TaskBackend):
    """Processes of this machine, by the loky executor that joblib includes.

    Not `joblib.Parallel`: it runs a single worker inside this process, which a crash would end; it discards finished
    results when a worker dies; and it iterates the caller's tasks on a thread of its own.
    """

    attempts = 3

    def __init__(self, workers: int | None) -> None:
        from joblib import cpu_count

        super().__init__(None)
        self._workers = workers or cpu_count()  # respects affinity and a container's limit
        self._folder = Path(tempfile.mkdtemp(prefix="limiirl-"))
        self._loads = 0

    def _start(self) -> Any:
        from joblib.externals.loky import ProcessPoolExecutor

        # Loky replaces a worker whose memory has grown and warns; there is nothing that a user could do.
        warnings.filterwarnings("ignore", message="A worker stopped while some jobs were given", category=UserWarning)
        environment = dict.fromkeys((*_THREAD_VARIABLES, "NUMBA_NUM_THREADS"), "1")
        return ProcessPoolExecutor(
            self._workers, env=environment, initializer=_follow_parent, initargs=(os.getpid(), self._folder)
        )

    @property
    def _path(self) -> Path:
        # One name per function: a worker knows by the name whether it has read the file.
        return self._folder / f"{self._loads}.pickle"

    def load(self, function: Callable[[Any], Any]) -> None:
        """Set the function, through a file that each worker reads once (loky would pickle it with every task)."""
        from joblib.externals.loky.backend import reduction

        self._path.unlink(missing_ok=True)
        self._loads += 1
        with self._path.open("wb") as stream:
            reduction.dump(function, stream)

    def submit(self, task: Any) -> Future[Any]:
        """Submit a task, to new processes if one has died."""
        from joblib.externals.loky.process_executor import BrokenProcessPool

        if self._executor is None:
            self._executor = self._start()
        try:
            future: Future[Any] = self._executor.submit(_call_loaded, self._path, task)
        except BrokenProcessPool:
            self._stop()
            self._executor = self._start()
            future = self._executor.submit(_call_loaded, self._path, task)
        return future

    def explain(self, error: BaseException) -> tuple[int, str]:
        """Return how a worker ended, or raise the error of a task."""
        from joblib.externals.loky.process_executor import BrokenProcessPool

        # A worker that cannot unpickle a task, say for want of a module, fails again in the same way.
        if not isinstance(error, BrokenProcessPool) or "un-serialize" in str(error):
            raise error
        exit_codes = re.search(r"\{(.+)\}", str(error))
        return 1, f"It ended with {exit_codes[1]}." if exit_codes else str(error)

    def discard(self, futures: Collection[Future[Any]]) -> None:
        """End the workers of unfinished tasks; nothing else stops a task."""
        if futures:
            # Told to kill, loky 3.6 fails on a task that it has accepted but not yet put into its workers' queue. The
            # queue has room for all of ours, so that this takes no time.
            end = time.monotonic() + 1.0
            while any(not (future.running() or future.done()) for future in futures) and time.monotonic() < end:
                time.sleep(0.001)
            self._stop()

    def close(self) -> None:
        """Stop the workers and remove the folder."""
        self._stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _stop(self) -> None:
        if self._executor is not None:
            self._executor.shutdown(wait=True, kill_workers=True)
        self._executor = None


# The function of a local worker, by the path from which it was read; a single entry.
_LOADED: dict[Path, Callable[[Any], Any]] = {}


def _call_loaded(path: Path, task: Any) -> Any:
    """Run a task in a local worker."""
    if path not in _LOADED:
        _LOADED.clear()
        with path.open("rb") as stream:
            _LOADED[path] = pickle.load(stream)  # noqa: S301 (written by our parent into a private folder)
    return _LOADED[path](task)


def _follow_parent(parent: int, folder: Path) -> None:
    """Prepare a local worker: it ignores interrupts, which the parent handles, and ends with the parent.

    A killed parent can neither stop its workers, which would wait for tasks indefinitely, nor remove its folder.
    """

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        shutil.rmtree(folder, ignore_errors=True)
        os._exit(1)

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if os.name == "posix":
        threading.Thread(target=watch, daemon=True).start()
