"""Backends for any `concurrent.futures` executor and for local processes."""

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

# One task runs and one is queued, so that a worker is not idle between tasks.
TASKS_PER_WORKER = 2
# NUMBA_NUM_THREADS is not included, because numba raises an error if it changes after the import.
_THREAD_VARIABLES = [*(f"{name}_NUM_THREADS" for name in ("OMP", "OPENBLAS", "MKL", "BLIS")), "VECLIB_MAXIMUM_THREADS"]
_LIMITED = threading.local()
_ONE_AT_A_TIME = threading.Lock()


def run_on_one_thread(function: Callable[[Task], Result], task: Task) -> Result:
    """Run one task in a worker, on one thread and without concurrent tasks.

    With several threads, rounding errors of sums would depend on the machine. Concurrent tasks in one process would
    overwrite each other's buffers.
    """
    import numba

    with _ONE_AT_A_TIME:
        numba.set_num_threads(1)  # importing numba has loaded OpenMP with one thread per core
        # The limit of OpenMP is per thread, so set it once in every thread. The variables apply to libraries loaded
        # later.
        if not hasattr(_LIMITED, "libraries"):
            from threadpoolctl import threadpool_limits

            os.environ.update(dict.fromkeys(_THREAD_VARIABLES, "1"))
            _LIMITED.libraries = threadpool_limits(limits=1)
        return function(task)


class TaskBackend:
    """Backend for any `concurrent.futures.Executor`, without retries."""

    attempts = 1  # maximum number of attempts per task; if above 1, the task runs alone in the last attempt
    poll_s: float | None = None  # seconds without a completed task after which `check` is called

    def __init__(self, executor: Any) -> None:
        self._executor = executor
        self._workers = int(getattr(executor, "_max_workers", 0) or os.cpu_count() or 1)

    def load(self, function: Callable[[Any], Any]) -> None:
        """Set the function that subsequent tasks call."""
        self._function = function

    def width(self) -> int:
        """Return the maximum number of unfinished tasks."""
        return TASKS_PER_WORKER * self._workers

    def submit(self, task: Any) -> Future[Any]:
        """Submit a task."""
        future: Future[Any] = self._executor.submit(self._function, task)
        return future

    def check(self) -> None:
        """Raise `BackendUnavailable` if the connection to the workers is lost."""

    def explain(self, error: BaseException) -> tuple[int, str]:
        """Return the number of exited workers and a hint for the message; re-raise the error of a failed task."""
        raise error

    def discard(self, futures: Collection[Future[Any]]) -> None:
        """Cancel unfinished tasks."""
        for future in futures:
            future.cancel()

    def close(self) -> None:
        """Stop the workers that the backend started."""


class LocalBackend(TaskBackend):
    """Local processes managed by loky, which is bundled with joblib.

    `joblib.Parallel` is not used because it runs a single worker in the calling process, discards completed results
    when a worker exits, and iterates over the tasks in another thread.
    """

    attempts = 3

    def __init__(self, workers: int | None) -> None:
        from joblib import cpu_count

        super().__init__(None)
        self._workers = workers or cpu_count()  # respects CPU affinity and container limits
        self._folder = Path(tempfile.mkdtemp(prefix="limiirl-"))
        self._loads = 0

    def _start(self) -> Any:
        from joblib.externals.loky import ProcessPoolExecutor

        # Loky restarts a worker whose memory usage has grown. The warning about it requires no action by the user.
        warnings.filterwarnings("ignore", message="A worker stopped while some jobs were given", category=UserWarning)
        environment = dict.fromkeys((*_THREAD_VARIABLES, "NUMBA_NUM_THREADS"), "1")
        return ProcessPoolExecutor(
            self._workers, env=environment, initializer=_initialise_worker, initargs=(os.getpid(), self._folder)
        )

    @property
    def _path(self) -> Path:
        # Each function has its own file name, so that a worker detects a new function.
        return self._folder / f"{self._loads}.pickle"

    def load(self, function: Callable[[Any], Any]) -> None:
        """Write the function to a file that each worker reads once, because loky would send it with every task."""
        from joblib.externals.loky.backend import reduction

        self._path.unlink(missing_ok=True)
        self._loads += 1
        with self._path.open("wb") as stream:
            reduction.dump(function, stream)

    def submit(self, task: Any) -> Future[Any]:
        """Submit a task; restart the process pool if a worker has exited."""
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
        """Return 1 (exited worker) and its exit status for the message; re-raise the error of a failed task."""
        from joblib.externals.loky.process_executor import BrokenProcessPool

        # A task that cannot be unpickled, for example because a module is missing, would fail again.
        if not isinstance(error, BrokenProcessPool) or "un-serialize" in str(error):
            raise error
        exit_codes = re.search(r"\{(.+)\}", str(error))
        return 1, f"Exit status: {exit_codes[1]}." if exit_codes else str(error)

    def discard(self, futures: Collection[Future[Any]]) -> None:
        """Kill the workers if there are unfinished tasks; a running task cannot be cancelled."""
        if futures:
            # Loky 3.6 raises an error if workers are killed before all submitted tasks are queued.
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


# State of a worker: the path of the last function file, and the function.
_LOADED: dict[Path, Callable[[Any], Any]] = {}


def _call_loaded(path: Path, task: Any) -> Any:
    if path not in _LOADED:
        _LOADED.clear()
        with path.open("rb") as stream:
            _LOADED[path] = pickle.load(stream)  # noqa: S301 (written by the parent process to a private folder)
    return _LOADED[path](task)


def _initialise_worker(parent: int, folder: Path) -> None:
    """Ignore interrupts, which the parent process handles, and exit if the parent process is killed."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        shutil.rmtree(folder, ignore_errors=True)
        os._exit(1)

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if os.name == "posix":
        threading.Thread(target=watch, daemon=True).start()
