"""Telling a user how the search of a Bayesian mixture goes: a callback, and a line that counts sweeps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from limiirl.mixture.bayesian_search import Step

Told = Callable[[Step], None]


@contextmanager
def searching(verbose: bool, callback: Told | None) -> Iterator[Told | None]:
    """Yield what to call with each step of a search.

    Examples
    --------
    >>> with searching(False, None) as told:
    ...     print(told)
    None
    """
    if not verbose:
        yield callback
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    # On stderr, so that a command's output stays clean.
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("first rewards", total=None)

        def show(step: Step) -> None:
            said = f"{step.event}: {step.n_intents} intents, bound {step.bound:.3f}"
            bar.update(task, advance=1, description=said)
            if callback is not None:
                callback(step)

        yield show
