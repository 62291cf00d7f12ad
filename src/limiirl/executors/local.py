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

# Tasks in flight per worker: one runs and one waits, so that no worker is idle.
AHEAD = 2
# Without NUMBA_NUM_THREADS, which numba does not allow to change once it is loaded.
_THREAD_VARIABLES = [*(f"{name}_NUM_THREADS" for name in ("OMP", "OPENBLAS", "MKL", "BLIS")), "VECLIB_MAXIMUM_THREADS"]
_LIMITED = threading.local()
_ONE_AT_A_TIME = threading.Lock()


def run_on_one_thread(function: Callable[[Task], Result], task: Task) -> Result:
    """Run one task in a worker, on one thread and without concurrent tasks.

    The rounding of a sum over several threads depends on the machine; concurrent tasks would share a model's buffers.
    """
    import numba

    with _ONE_AT_A_TIME:
        numba.set_num_threads(1)  # first: loading numba loads OpenMP and sets it to all cores
        # Permanent, per thread: OpenMP keeps its limit per thread. The variables are for libraries loaded later.
        if not hasattr(_LIMITED, "libraries"):
            from threadpoolctl import threadpool_limits

            os.environ.update(dict.fromkeys(_THREAD_VARIABLES, "1"))
            _LIMITED.libraries = threadpool_limits(limits=1)
        return function(task)


class TaskBackend:
    """Workers behind `execute`: here any `concurrent.futures.Executor`, without retries."""

    attempts = 1  # maximum number of submissions of one task; the last time alone
    poll_s: float | None = None  # seconds between two calls of `check` while no task ends

    def __init__(self, executor: Any) -> None:
        self._executor = executor
        self._workers = int(getattr(executor, "_max_workers", 0) or os.cpu_count() or 1)

    def load(self, function: Callable[[Any], Any]) -> None:
        """Set the function of the following tasks."""
        self._function = function

    def width(self) -> int:
        """Return the maximum number of tasks in flight."""
        return AHEAD * self._workers

    def submit(self, task: Any) -> Future[Any]:
        """Submit a task."""
        future: Future[Any] = self._executor.submit(self._function, task)
        return future

    def check(self) -> None:
        """Raise `BackendUnavailable` if the workers can no longer be reached."""

    def explain(self, error: BaseException) -> tuple[int, str]:
        """Return how many workers exited and why, if that is the cause of the error; otherwise raise it."""
        raise error

    def discard(self, futures: Collection[Future[Any]]) -> None:
        """Cancel tasks in flight."""
        for future in futures:
            future.cancel()

    def close(self) -> None:
        """Stop the workers that the backend started."""


class LocalBackend(TaskBackend):
    """Processes of this machine, by the loky executor that joblib includes.

    Not `joblib.Parallel`: it runs a single worker inside this process, discards finished results when a worker exits,
    and iterates the tasks on another thread.
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

        # Loky replaces a worker whose memory has grown, with a warning that a user cannot act on.
        warnings.filterwarnings("ignore", message="A worker stopped while some jobs were given", category=UserWarning)
        environment = dict.fromkeys((*_THREAD_VARIABLES, "NUMBA_NUM_THREADS"), "1")
        return ProcessPoolExecutor(
            self._workers, env=environment, initializer=_follow_parent, initargs=(os.getpid(), self._folder)
        )

    @property
    def _path(self) -> Path:
        # One name per function: a worker compares names to decide whether to read the file.
        return self._folder / f"{self._loads}.pickle"

    def load(self, function: Callable[[Any], Any]) -> None:
        """Write the function to a file that each worker reads once; loky would pickle it with every task."""
        from joblib.externals.loky.backend import reduction

        self._path.unlink(missing_ok=True)
        self._loads += 1
        with self._path.open("wb") as stream:
            reduction.dump(function, stream)

    def submit(self, task: Any) -> Future[Any]:
        """Submit a task, to new processes if one has exited."""
        from joblib.externals.loky.process_executor import BrokenProcessPool

        self._executor = self._executor or self._start()
        try:
            future: Future[Any] = self._executor.submit(_call_loaded, self._path, task)
        except BrokenProcessPool:
            self._stop()
            self._executor = self._start()
            future = self._executor.submit(_call_loaded, self._path, task)
        return future

    def explain(self, error: BaseException) -> tuple[int, str]:
        """Return the exit code of a worker, or raise the error of a task."""
        from joblib.externals.loky.process_executor import BrokenProcessPool

        # A worker that cannot unpickle a task (a missing module) would fail again.
        if not isinstance(error, BrokenProcessPool) or "un-serialize" in str(error):
            raise error
        exit_codes = re.search(r"\{(.+)\}", str(error))
        return 1, f"Exit status: {exit_codes[1]}." if exit_codes else str(error)

    def discard(self, futures: Collection[Future[Any]]) -> None:
        """Kill the workers of unfinished tasks; a running task cannot be cancelled."""
        if futures:
            # Killing workers, loky 3.6 fails on a task that is accepted but not yet queued; queueing takes no time.
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


# In a worker: the function by the path from which it was read; a single entry.
_LOADED: dict[Path, Callable[[Any], Any]] = {}


def _call_loaded(path: Path, task: Any) -> Any:
    """Run a task in a local worker."""
    if path not in _LOADED:
        _LOADED.clear()
        with path.open("rb") as stream:
            _LOADED[path] = pickle.load(stream)  # noqa: S301 (written by our parent into a private folder)
    return _LOADED[path](task)


def _follow_parent(parent: int, folder: Path) -> None:
    """Prepare a local worker: ignore interrupts, which the parent handles, and exit if the parent was killed."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        shutil.rmtree(folder, ignore_errors=True)
        os._exit(1)

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if os.name == "posix":
        threading.Thread(target=watch, daemon=True).start()
