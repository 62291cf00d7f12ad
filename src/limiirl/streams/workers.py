"""Workers that stay for all passes over a stream."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from limiirl.engines import Engine, Session
from limiirl.errors import InvalidParameter

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


def check_progress(progress: object) -> None:
    """Check that there is somebody to tell, if anybody."""
    if progress is not None and not callable(progress):
        raise InvalidParameter(f"progress must be a function of what is done and of all, or None; it is {progress!r}.")
