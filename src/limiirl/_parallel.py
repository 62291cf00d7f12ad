"""One thread for the libraries below numpy, and a map over tasks, in this process or by an executor."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache
from multiprocessing.pool import ThreadPool
from typing import Any, Protocol, TypeVar

from threadpoolctl import ThreadpoolController

from limiirl.errors import InvalidParameter

Task = TypeVar("Task")
Result = TypeVar("Result")


def one_thread(user_api: str | None = None) -> AbstractContextManager[Any]:
    """Return a context in which libraries use one thread: with several, the order of a sum and its last bits vary.

    Parameters
    ----------
    user_api : {"blas", "openmp"}, optional
        Limit only this kind: with "blas", the kernels' own loops keep their threads.

    Examples
    --------
    >>> from threadpoolctl import threadpool_info
    >>> import numpy
    >>> with one_thread("blas"):
    ...     {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}
    {1}
    """
    limits: AbstractContextManager[Any] = _libraries(user_api).limit(limits=1, user_api=user_api)
    return limits


@cache
def _libraries(user_api: str | None) -> ThreadpoolController:
    """Return the libraries that are loaded at the first call, which takes milliseconds to find out.

    One entry per kind: more libraries may be loaded between the first limit of linear algebra and that of all.
    """
    del user_api
    return ThreadpoolController()


class Mapper(Protocol):
    """An executor: `limiirl.executors.Executor`, or any executor or pool of processes.

    The function should be sent once per worker; tasks are small; results come in the order of the tasks.
    """

    def map(self, function: Any, tasks: Any, /) -> Iterable[Any]:
        """Return the results in the order of the tasks."""


@dataclass(frozen=True)
class WarningRecorder:
    """A function that returns its result with its warnings, which would be lost in another process."""

    function: Callable[[Any], Any]

    def __call__(self, task: Any) -> tuple[Any, list[Warning | str]]:
        """Return the result of a task, and its warnings."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            result = self.function(task)
        return result, [warning.message for warning in caught]


def map_tasks(function: Callable[[Task], Result], tasks: Iterable[Task], executor: Mapper | None) -> Iterator[Result]:
    """Yield the results in the order of the tasks: in this process, or by an executor's `map`.

    Warnings of another process are issued here, with the result.

    Examples
    --------
    >>> from concurrent.futures import ThreadPoolExecutor
    >>> with ThreadPoolExecutor(1) as pool:
    ...     list(map_tasks(abs, [-2, 1], pool)), list(map_tasks(abs, [-2, 1], None))
    ([2, 1], [2, 1])
    """
    if executor is None:
        yield from map(function, tasks)
        return
    check_executor(executor)
    for result, messages in executor.map(WarningRecorder(function), tasks):
        for message in messages:
            warnings.warn(message, stacklevel=3)
        yield result


def check_executor(executor: object, method: str = "map") -> None:
    """Raise `InvalidParameter` unless an executor has a method and does not run tasks on several threads."""

    def invalid(message: str) -> InvalidParameter:
        return InvalidParameter(message, parameter="executor", value=executor)

    name = type(executor).__name__
    if not callable(getattr(executor, method, None)):
        raise invalid(f"executor must have a method {method}, like limiirl.executors.Executor; got a {name}.")
    threads = 1
    if isinstance(executor, ThreadPoolExecutor):
        threads = executor._max_workers
    elif isinstance(executor, ThreadPool):
        threads = int(getattr(executor, "_processes", 1))
    if threads > 1:
        raise invalid(
            f"executor is a {name} of {threads} threads, which would share the buffers of a fit. "
            "Use processes: limiirl.executors.Executor, or a ProcessPoolExecutor."
        )
    # Its `map` returns futures, not results.
    if any(kind.__module__ == "distributed.client" and kind.__name__ == "Client" for kind in type(executor).__mro__):
        address = getattr(getattr(executor, "scheduler", None), "address", "ADDRESS")
        raise invalid(
            f"executor is a {name} of Dask. Give the address of the cluster instead: "
            f"limiirl.executors.Executor('dask', scheduler='{address}')."
        )
