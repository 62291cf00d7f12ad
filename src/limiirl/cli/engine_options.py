"""The options that say where a command's work is done, the same for every command that has them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from limiirl.engines import Engine

EngineName = Annotated[
    str | None, typer.Option("--engine", help="Where to run: local, dask, or ray (not covered by our tests).")
]
Workers = Annotated[int | None, typer.Option(help="Processes at once; as many as there are cores by default.")]
Scheduler = Annotated[str | None, typer.Option(help="Address of the cluster, for dask and ray.")]


def chosen_engine(name: str | None, workers: int | None, scheduler: str | None) -> Engine | None:
    """Return the engine that was asked for, whose package is there; None where no option was given.

    >>> chosen_engine(None, None, None) is None
    True
    >>> chosen_engine(None, 2, None)
    Engine(name='local', workers=2, scheduler=None)
    """
    if name is None and workers is None and scheduler is None:
        return None
    from limiirl.engines import Engine

    engine = Engine(name or "local", workers, scheduler)
    engine.check()
    return engine
