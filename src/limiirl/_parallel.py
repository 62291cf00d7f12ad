"""One thread for the libraries below numpy, where several cost time, or make the last bits depend on the machine.

Work that may be done elsewhere: a function over many tasks, here or by an executor, with the same results.
"""

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


def one_thread(user_api: str | None = None) -> AbstractContextManager[Any]:
    """Return a context in which libraries have one thread: several add up in any order, and bits would differ.

    Parameters
    ----------
    user_api : {"blas", "openmp"}, optional
        Limit this kind alone: with "blas", the kernels' own loops keep their threads.

    Examples
    --------
    >>> from threadpoolctl import threadpool_info
    >>> import numpy
    >>> with one_thread("blas"):
    ...     {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}
    {1}
    """
    found: AbstractContextManager[Any] = _libraries(user_api).limit(limits=1, user_api=user_api)
    return found


@cache
def _libraries(user_api: str | None) -> ThreadpoolController:
    """Return the libraries that are loaded when first asked for, which takes milliseconds to find out.

    More may be loaded between the first limit of linear algebra and that of all, so that both are asked for apart.
    """
    del user_api
    return ThreadpoolController()


Task = TypeVar("Task")
Result = TypeVar("Result")


class Mapper(Protocol):
    """What can take over the work: a `limiirl.executors.Executor`, or any executor or pool of processes.

    What the function holds should travel once to each worker, tasks are small; results come in the order of the tasks.
    """

    def map(self, function: Any, tasks: Any, /) -> Iterable[Any]:
        """Return the results in the order of the tasks."""


@dataclass(frozen=True)
class Recorded:
    """A function that returns its result with the warnings that it gave, which would be lost in another process."""

    function: Callable[[Any], Any]

    def __call__(self, task: Any) -> tuple[Any, list[Warning | str]]:
        """Return the result of a task, and what it warned of."""
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            result = self.function(task)
        return result, [warning.message for warning in said]


def spread(function: Callable[[Task], Result], tasks: Iterable[Task], executor: Mapper | None) -> Iterator[Result]:
    """Yield the results in the order of the tasks: in this process, or by an executor's `map`.

    Warnings that are given elsewhere are given here, once the result is there.

    Examples
    --------
    >>> from concurrent.futures import ThreadPoolExecutor
    >>> with ThreadPoolExecutor(1) as pool:
    ...     list(spread(abs, [-2, 1], pool)), list(spread(abs, [-2, 1], None))
    ([2, 1], [2, 1])
    """
    if executor is None:
        yield from map(function, tasks)
        return
    if not callable(getattr(executor, "map", None)):
        raise InvalidParameter(
            f"executor must have a method map(function, tasks), as limiirl.executors.Executor has; it is a "
            f"{type(executor).__name__}."
        )
    _check_threads(executor)
    _check_client(executor)
    for result, said in executor.map(Recorded(function), tasks):
        for warning in said:
            warnings.warn(warning, stacklevel=3)
        yield result


def _check_threads(executor: Mapper) -> None:
    """Refuse several threads: they would share a model's buffers, and each overwrite what another computes."""
    threads = 1
    if isinstance(executor, ThreadPoolExecutor):
        threads = executor._max_workers
    elif isinstance(executor, ThreadPool):
        threads = int(getattr(executor, "_processes", 1))
    if threads > 1:
        raise InvalidParameter(
            f"executor is a {type(executor).__name__} of {threads} threads, which would share what a fit works with. "
            "Use processes: limiirl.executors.Executor, or a ProcessPoolExecutor."
        )


def _check_client(executor: Mapper) -> None:
    """Refuse Dask's own client, whose `map` gives futures and not results."""
    if any(kind.__module__ == "distributed.client" and kind.__name__ == "Client" for kind in type(executor).__mro__):
        address = getattr(getattr(executor, "scheduler", None), "address", "ADDRESS")
        raise InvalidParameter(
            f"executor is a {type(executor).__name__} of Dask, whose map gives futures. Give the cluster's address "
            f"instead: limiirl.executors.Executor('dask', scheduler='{address}')."
        )
