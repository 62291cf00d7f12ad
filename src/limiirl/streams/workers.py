"""Workers that stay for all passes over a stream."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from limiirl.engines import Engine, Session

Workers = Engine | Session | None


@contextmanager
def opened(engine: Workers) -> Iterator[Workers]:
    """Yield an engine whose workers stay until the end of the block, for many passes.

    Examples
    --------
    >>> with opened(Engine(workers=1)) as workers:
    ...     list(workers.map(abs, [-2])), list(workers.map(abs, [-3]))
    ([2], [3])
    """
    if isinstance(engine, Engine):
        with engine.session() as session:
            yield session
    else:
        yield engine
