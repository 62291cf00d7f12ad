"""Executors: the same tasks on processes of this machine, on a Dask cluster or on a Ray cluster, with the same results."""

from __future__ import annotations

import functools
import re
import reprlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import islice
from numbers import Integral
from typing import Any, Self, TypeVar

from limiirl.errors import BackendUnavailable, InvalidParameter
from limiirl.executors.dask import DaskPool, RayPool, absent
from limiirl.executors.local import Death, LocalPool, Pool, Ticket, on_one_thread

Task = TypeVar("Task")
Result = TypeVar("Result")

EXECUTORS = ("local", "dask", "ray")
_DASK_ADDRESS = re.compile(r"((tcp|tls|ws|wss|ucx)://)?[^\s/]+:\d+/?")


@dataclass(frozen=True)
class Executor:
    """Where tasks run.

    Parameters
    ----------
    name : str
        "local" for processes of this machine, "dask" or "ray" for a cluster.
    workers : int, optional
        How many tasks run at once; by default as many as there are CPUs that this process may use, or threads in the
        cluster. On Ray at least two.
    scheduler : str, optional
        The cluster's address. Dask needs it, as in "tcp://10.0.0.1:8786"; Ray starts a cluster here without it.

    Examples
    --------
    >>> Executor("local", workers=2).workers
    2
    """

    name: str = "local"
    workers: int | None = None
    scheduler: str | None = None

    def __post_init__(self) -> None:
        if self.name not in EXECUTORS:
            raise InvalidParameter(f"executor must be one of {', '.join(EXECUTORS)}; got {self.name!r}.")
        if self.workers is not None and (
            isinstance(self.workers, bool) or not isinstance(self.workers, Integral) or self.workers < 1
        ):
            raise InvalidParameter(f"workers must be a whole number of at least 1, or None; got {self.workers!r}.")
        if self.name == "local" and self.scheduler is not None:
            raise InvalidParameter(
                f"scheduler is a cluster's address; got {self.scheduler!r} with the executor 'local'. "
                "Pass the executor 'dask', or no scheduler."
            )
        if not isinstance(self.scheduler, str | None):
            raise InvalidParameter(
                f"scheduler must be an address, as in 'tcp://10.0.0.1:8786'; got {self.scheduler!r}."
            )
        if self.name == "dask" and not _DASK_ADDRESS.fullmatch(self.scheduler or ""):
            raise InvalidParameter(
                f"The executor 'dask' needs the scheduler's address with its port; got {self.scheduler!r}. "
                "Start one with `dask scheduler` and pass the address that it prints, as in tcp://10.0.0.1:8786; that "
                "of its dashboard, http://, is another."
            )

    def map(self, function: Callable[[Task], Result], tasks: Iterable[Task]) -> Iterator[Result]:
        """Yield the results in the order of the tasks, as `concurrent.futures.Executor.map` does; see `ordered`."""
        return _in_order(function, tasks, self)

    def session(self) -> Session:
        """Return the executor with workers that stay from one call to the next, for a `with` block; see `Session`."""
        return Session(self)

    def check(self) -> None:
        """Raise `BackendUnavailable` if the package that the executor needs is absent."""
        if self.name != "local":
            package = {"dask": "distributed", "ray": "ray"}[self.name]
            if find_spec(package) is None:
                raise BackendUnavailable(absent(self.name))


class Session:
    """An executor that is open: its workers stay from one call of `execute`, `ordered` or `map` to the next.

    Starting processes, or meeting a cluster, takes longer than a small task. What hands out tasks again and again, such
    as EM over parts of the data, opens its executor once. One call at a time: a second is refused
    until the first's results are all taken, or its iterator is closed.

    Parameters
    ----------
    executor : Executor

    Examples
    --------
    >>> with Executor(workers=1).session() as session:
    ...     ordered(abs, [-2, 1], session), list(session.map(str, [3]))
    ([2, 1], ['3'])
    """

    def __init__(self, executor: Executor) -> None:
        self.executor = executor
        self.pool = _open(executor)
        self._busy, self._closed = False, False

    def map(self, function: Callable[[Task], Result], tasks: Iterable[Task]) -> Iterator[Result]:
        """Yield the results in the order of the tasks."""
        return _in_order(function, tasks, self)

    @contextmanager
    def call(self) -> Iterator[Pool]:
        """Yield the pool for one call, and forget afterwards what is left of it."""
        if self._closed:
            raise InvalidParameter("The session is closed. Open another: executor.session().")
        if self._busy:
            raise InvalidParameter(
                "The session is still at work on another call, whose results have not all been taken. Take them, close "
                "its iterator, or open another session."
            )
        self._busy = True
        try:
            yield self.pool
        finally:
            self._busy = False
            self.pool.drop()

    def close(self) -> None:
        """Stop the workers that are ours."""
        self._closed = True
        self.pool.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclass(frozen=True)
class Lost:
    """Stands for the result of a task that killed its worker every time, the last time running alone.

    Attributes
    ----------
    attempts : int
        How many workers died.
    message : str
        What is known about it.

    Examples
    --------
    >>> print(Lost(3, "The worker died."))
    The worker died.
    """

    attempts: int
    message: str

    def __str__(self) -> str:
        return self.message


def execute(
    function: Callable[[Task], Result], tasks: Iterable[Task], executor: Executor | Session
) -> Iterator[tuple[Task, Result | Lost]]:
    """Yield each task with its result, as they come, in any order.

    Tasks are taken one by one as workers become free. The function runs on one thread, in another process, and what it
    raises is raised here. Closing the iterator, or an interrupt, stops the workers. Put large inputs into the function,
    by `functools.partial` or as an object with `__call__`: it travels once to each worker, a task every time.

    Parameters
    ----------
    function : callable
        Takes a task and returns its result. It and they must survive pickling.
    tasks : iterable
        May be lazy; it is iterated in the caller's thread.
    executor : Executor or Session
        Where they run.

    Yields
    ------
    task
        One of the tasks.
    result
        What the function returned, or `Lost` if its worker died every time.

    Raises
    ------
    BackendUnavailable
        If the executor's package is absent, or the cluster cannot be reached or goes away.

    Examples
    --------
    >>> sorted(execute(abs, [-2, 1, -3], Executor(workers=1)))
    [(-3, 3), (-2, 2), (1, 1)]
    """
    suspects: list[tuple[Ticket, Death]] = []
    tickets: Iterator[Ticket] = map(Ticket, tasks)
    with executor.call() if isinstance(executor, Session) else closing(_open(executor)) as pool:
        pool.use(functools.partial(on_one_thread, function))
        for round_ in range(1, pool.rounds + 1):
            suspects = []
            for ticket, outcome in _drive(pool, tickets, alone=round_ == pool.rounds):
                if isinstance(outcome, Death):
                    ticket.deaths += outcome.deaths
                    suspects.append((ticket, outcome))
                else:
                    yield ticket.task, outcome
            tickets = iter([ticket for ticket, _ in suspects])
    for ticket, death in suspects:
        yield (
            ticket.task,
            Lost(ticket.deaths, f"{ticket.deaths} workers died, the last while it ran this task alone. {death.reason}"),
        )


def ordered(function: Callable[[Task], Result], tasks: Iterable[Task], executor: Executor | Session) -> list[Result]:
    """Return the results in the order of the tasks.

    Parameters
    ----------
    function, tasks, executor
        As `execute` takes them.

    Returns
    -------
    list
        One result a task.

    Raises
    ------
    BackendUnavailable
        As `execute` raises it; and if a task killed its worker every time, for then a result is missing.

    Examples
    --------
    >>> ordered(abs, [-2, 1, -3], Executor(workers=1))
    [2, 1, 3]
    """
    return list(_in_order(function, tasks, executor))


def _in_order(
    function: Callable[[Task], Result], tasks: Iterable[Task], executor: Executor | Session
) -> Iterator[Result]:
    waiting: dict[int, Result] = {}
    following = 0
    for (index, task), result in execute(functools.partial(_numbered, function), enumerate(tasks), executor):
        if isinstance(result, Lost):
            raise BackendUnavailable(
                f"Task {index} ({reprlib.repr(task)}) has no result: {result} "
                "If it needs more memory than a worker has, use smaller parts or larger workers; if machines were "
                "taken away, start the run again."
            )
        waiting[index] = result
        while following in waiting:
            yield waiting.pop(following)
            following += 1


def _numbered(function: Callable[[Task], Result], task: tuple[int, Task]) -> Result:
    return function(task[1])


def _open(executor: Executor) -> Pool:
    if executor.name == "dask":
        return DaskPool(str(executor.scheduler), executor.workers)
    if executor.name == "ray":
        return RayPool(executor.scheduler, executor.workers)
    return LocalPool(executor.workers)


def _drive(pool: Pool, tickets: Iterator[Ticket], alone: bool) -> Iterator[tuple[Ticket, Any]]:
    """Yield tasks with their outcomes; `alone` keeps a single one in flight."""
    in_flight = 0
    while True:
        for ticket in islice(tickets, max(0, (1 if alone else pool.width()) - in_flight)):
            pool.submit(ticket)
            in_flight += 1
        if not in_flight:
            return
        for ticket, outcome in pool.collect():
            in_flight -= 1
            # The freed worker gets its next task before the caller does something with this result.
            for following in islice(tickets, 1 - in_flight if alone else 1):
                pool.submit(following)
                in_flight += 1
            yield ticket, outcome


__all__ = ["Executor", "Lost", "Session", "execute", "ordered"]
