"""Execution of independent tasks in local processes or on a Dask cluster, with identical results."""

from __future__ import annotations

import functools
import re
import reprlib
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any, Self, TypeVar

from limiirl._parallel import Mapper, check_executor
from limiirl._validation import check_choice, check_count
from limiirl.errors import BackendUnavailable, InvalidParameter
from limiirl.executors.dask import DaskBackend, check_dask
from limiirl.executors.local import LocalBackend, TaskBackend, run_on_one_thread

Task = TypeVar("Task")
Result = TypeVar("Result")

_DASK_ADDRESS = re.compile(r"((tcp|tls|ws|wss|ucx)://)?[^\s/]+:\d+/?")


@dataclass(frozen=True)
class Executor:
    """Settings for running tasks in local processes or on a Dask cluster.

    Parameters
    ----------
    name : {"local", "dask"}
        "local" starts processes on this machine; "dask" uses a Dask cluster.
    workers : int, optional
        Maximum number of concurrent tasks. The default is the number of available CPUs for "local". For "dask", it is
        twice the number of workers in the cluster, so that each worker has one queued task.
    scheduler : str, optional
        Address of the Dask scheduler, such as "tcp://10.0.0.1:8786".

    Examples
    --------
    >>> Executor("local", workers=2).workers
    2
    """

    name: str = "local"
    workers: int | None = None
    scheduler: str | None = None

    def __post_init__(self) -> None:
        check_choice(self.name, "name", ("local", "dask"))
        if self.workers is not None:
            check_count(self.workers, "workers", bytes_each=2.0**20)  # minimum memory of a process
        if self.name == "local" and self.scheduler is not None:
            rule, remedy = "must be None for the executor 'local'", "Use the executor 'dask', or omit the scheduler."
            raise InvalidParameter.of("scheduler", self.scheduler, rule, remedy=remedy)
        if self.name == "dask" and not _DASK_ADDRESS.fullmatch(str(self.scheduler or "")):
            rule = "must be the address and port of the scheduler for the executor 'dask'"
            remedy = "Pass the address that `dask scheduler` prints, such as tcp://10.0.0.1:8786, not the dashboard."
            raise InvalidParameter.of("scheduler", self.scheduler, rule, remedy=remedy)

    def map(self, function: Callable[[Task], Result], tasks: Iterable[Task]) -> Iterator[Result]:
        """Yield the results in the order of the tasks, like `concurrent.futures.Executor.map`."""
        return _iterate_ordered(function, tasks, self)

    def session(self) -> Session:
        """Return a `Session`, a context manager that reuses the workers for several calls."""
        return Session(self)

    def check(self) -> None:
        """Raise `BackendUnavailable` if a required package is not installed."""
        if self.name == "dask":
            check_dask()

    def open(self) -> TaskBackend:
        """Start the workers, or connect to the cluster."""
        if self.name == "dask":
            return DaskBackend(str(self.scheduler), self.workers)
        return LocalBackend(self.workers)


class Session:
    """An open executor that reuses its workers for all calls of `execute`, `map_ordered` or `map`.

    For repeated calls, such as EM over the shards of a store, this saves the time to start processes or to connect to a
    cluster. Only one call may be active at a time.
    """

    def __init__(self, executor: Executor) -> None:
        self.executor = executor
        self._backend: TaskBackend | None = executor.open()
        self._busy = False

    def map(self, function: Callable[[Task], Result], tasks: Iterable[Task]) -> Iterator[Result]:
        """Yield the results in the order of the tasks."""
        return _iterate_ordered(function, tasks, self)

    @contextmanager
    def call(self) -> Iterator[TaskBackend]:
        """Return a context manager that reserves the backend for one call."""
        if self._backend is None:
            raise InvalidParameter("The session is closed. Open a new one: executor.session().", parameter="executor")
        if self._busy:
            message = "The session has an unfinished call. Consume its results first, or open another session."
            raise InvalidParameter(message, parameter="executor")
        self._busy = True
        try:
            yield self._backend
        finally:
            self._busy = False

    def close(self) -> None:
        """Stop the workers that the session started."""
        if self._backend is not None:
            self._backend.close()
        self._backend = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclass(frozen=True)
class LostTask:
    """Result of a task whose worker exited in every attempt. In the last attempt, no other task was running."""

    attempts: int  # number of workers that exited
    message: str

    def __str__(self) -> str:
        return self.message


@dataclass(eq=False)
class _PendingTask:
    task: Any
    failures: int = 0  # number of workers that exited while running the task
    reason: str = ""


def execute(
    function: Callable[[Task], Result], tasks: Iterable[Task], executor: Executor | Session | Mapper
) -> Iterator[tuple[Task, Result | LostTask]]:
    """Return an iterator over pairs of a task and its result, in order of completion.

    The function runs on one thread in a worker process, and its exceptions are raised in the caller. If a worker exits,
    its task is retried after all other tasks; in the last attempt, no other task runs at the same time. Closing the
    iterator or interrupting the program stops the workers. Bind large inputs to the function with `functools.partial`,
    because the function is sent only once per worker.

    Parameters
    ----------
    function : callable
        Maps a task to its result. Function, tasks and results must be picklable.
    tasks : iterable
        Consumed lazily, in the caller's thread.
    executor : Executor, Session or concurrent.futures.Executor
        A `concurrent.futures` executor receives the function with every task, and tasks are not retried.

    Returns
    -------
    iterator of (task, result)
        The result is a `LostTask` if every attempt failed. Raises `BackendUnavailable` if a package is not installed or
        the connection to the cluster is lost.

    Examples
    --------
    >>> sorted(execute(abs, [-2, 1, -3], Executor(workers=1)))
    [(-3, 3), (-2, 2), (1, 1)]
    """
    queue: Iterator[_PendingTask] = map(_PendingTask, tasks)
    in_flight: dict[Future[Any], _PendingTask] = {}
    with _open(executor) as backend:
        backend.load(functools.partial(run_on_one_thread, function))
        try:
            for attempt in range(1, backend.attempts + 1):
                failed = []
                for pending, future in _complete(backend, queue, in_flight, alone=1 < attempt == backend.attempts):
                    error = future.exception()
                    if error is None:
                        yield pending.task, future.result()
                    else:
                        failures, pending.reason = backend.explain(error)
                        pending.failures += failures
                        failed.append(pending)
                queue = iter(failed)
        finally:
            backend.discard(in_flight)
    for pending in queue:
        attempts = f"The worker exited in each of {pending.failures} attempts to run this task"
        message = f"{attempts}; no other task was running in the last attempt."
        remedy = "If memory ran out, use smaller tasks or workers with more memory; otherwise run the task again."
        yield pending.task, LostTask(pending.failures, f"{message} {pending.reason} {remedy}")


def _open(executor: Executor | Session | Mapper) -> Any:
    if isinstance(executor, Session):
        return executor.call()
    if isinstance(executor, Executor):
        return closing(executor.open())
    check_executor(executor, "submit")
    return closing(TaskBackend(executor))


def _complete(
    backend: TaskBackend, queue: Iterator[_PendingTask], in_flight: dict[Future[Any], _PendingTask], *, alone: bool
) -> Iterator[tuple[_PendingTask, Future[Any]]]:
    """Submit tasks as workers become free (one at a time if `alone`), and yield completed tasks."""

    def submit() -> None:
        for pending in islice(queue, max(0, (1 if alone else backend.width()) - len(in_flight))):
            in_flight[backend.submit(pending.task)] = pending

    submit()
    while in_flight:
        done = wait(in_flight, timeout=backend.poll_s, return_when=FIRST_COMPLETED).done
        if not done:
            backend.check()
        for future in done:
            pending = in_flight.pop(future)
            submit()  # submit before the caller processes this result, so that the worker is not idle
            yield pending, future
        submit()


def map_ordered(
    function: Callable[[Task], Result], tasks: Iterable[Task], executor: Executor | Session | Mapper
) -> list[Result]:
    """Return the results in the order of the tasks.

    The parameters are the same as for `execute`. Raises `BackendUnavailable` for a `LostTask`.

    Examples
    --------
    >>> map_ordered(abs, [-2, 1, -3], Executor(workers=1))
    [2, 1, 3]
    """
    return list(_iterate_ordered(function, tasks, executor))


def _iterate_ordered(
    function: Callable[[Task], Result], tasks: Iterable[Task], executor: Executor | Session | Mapper
) -> Iterator[Result]:
    results: dict[int, Result] = {}
    next_index = 0
    for (index, task), result in execute(functools.partial(_call_numbered, function), enumerate(tasks), executor):
        if isinstance(result, LostTask):
            message = f"Task {index} ({reprlib.repr(task)}) has no result. {result}"
            raise BackendUnavailable(message, value=task, index=index)
        results[index] = result
        while next_index in results:
            yield results.pop(next_index)
            next_index += 1


def _call_numbered(function: Callable[[Task], Result], task: tuple[int, Task]) -> Result:
    return function(task[1])


__all__ = ["Executor", "LostTask", "Session", "execute", "map_ordered"]
