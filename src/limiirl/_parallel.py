"""Threads of numerical libraries and kernels, and evaluation of tasks in this process or with an executor."""

from __future__ import annotations

import os
import threading
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

# States or rows per block, the unit of work of a thread; smaller inputs are processed by one thread.
BLOCK = 2048
# Parallelise only explicit prange loops, not array expressions.
ONLY_PRANGE = dict.fromkeys(("comprehension", "reduction", "inplace_binop", "setitem", "numpy", "stencil"), False) | {
    "prange": True
}
# Numba's workqueue threading layer is not thread-safe.
LOCK = threading.Lock()
# Threads sleep at barriers instead of spinning. If another program uses a core, a spinning thread takes the processor
# from the thread that it waits for; see benchmarks/busy_core.py. OpenMP reads the variable when it is loaded, which is
# before the first parallel kernel runs.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")


Task = TypeVar("Task")
Result = TypeVar("Result")


def one_thread(user_api: str | None = None) -> AbstractContextManager[Any]:
    """Return a context manager that limits numerical libraries to one thread, so that sums are bit-reproducible.

    Parameters
    ----------
    user_api : {"blas", "openmp"}, optional
        Limit only these libraries; "blas" does not limit the threads of the numba kernels. Default: all libraries.
    """
    limits: AbstractContextManager[Any] = _libraries(user_api).limit(limits=1, user_api=user_api)
    return limits


@cache
def _libraries(user_api: str | None) -> ThreadpoolController:
    del user_api  # cache key only: libraries may be loaded between calls with different APIs
    return ThreadpoolController()


class Mapper(Protocol):
    """`limiirl.executors.Executor`, or any other process executor or pool with an ordered `map`."""

    def map(self, function: Any, tasks: Any, /) -> Iterable[Any]:
        """Return the results in the order of the tasks."""


@dataclass(frozen=True)
class WarningRecorder:
    """Wrapper of a function for use in another process: it returns the result and the warnings that were issued."""

    function: Callable[[Any], Any]

    def __call__(self, task: Any) -> tuple[Any, list[Warning | str]]:
        """Return the result of a task, and its warnings."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            result = self.function(task)
        return result, [warning.message for warning in caught]


def map_tasks(function: Callable[[Task], Result], tasks: Iterable[Task], executor: Mapper | None) -> Iterator[Result]:
    """Yield the results in the order of the tasks, computed in this process or with an executor's `map`.

    Warnings issued in other processes are issued again in this process.
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
    """Raise `InvalidParameter` if an executor lacks `method`, uses several threads, or is a Dask client."""

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
            f"executor must use processes, since threads would share the buffers of a fit; got a {name} with {threads} "
            "threads. Use limiirl.executors.Executor or a ProcessPoolExecutor."
        )
    # The `map` of a Dask client returns futures, not results.
    if any(kind.__module__ == "distributed.client" and kind.__name__ == "Client" for kind in type(executor).__mro__):
        address = getattr(getattr(executor, "scheduler", None), "address", "ADDRESS")
        raise invalid(
            f"executor must not be a Dask {name}. Use limiirl.executors.Executor('dask', scheduler='{address}')."
        )
