"""The same function over parts: in this process, or by an engine's workers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from limiirl.engines import Engine, Session

Task = TypeVar("Task")
Result = TypeVar("Result")
Workers = Engine | Session | None


@contextmanager
def opened(engine: Workers) -> Iterator[Workers]:
    """Yield an engine whose workers stay until the end of the block, for many passes.

    Examples
    --------
    >>> with opened(Engine(workers=1)) as workers:
    ...     list(over(abs, [-2], workers)), list(over(abs, [-3], workers))
    ([2], [3])
    """
    if isinstance(engine, Engine):
        with engine.session() as session:
            yield session
    else:
        yield engine


def over(function: Callable[[Task], Result], tasks: Iterable[Task], engine: Workers) -> Iterator[Result]:
    """Yield results in the order of the tasks; without an engine one by one, as they are asked for.

    Examples
    --------
    >>> list(over(abs, [-2, 1], None))
    [2, 1]
    """
    if engine is None:
        yield from map(function, tasks)
    else:
        yield from engine.map(function, tasks)
