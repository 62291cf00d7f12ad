"""Telling a user how EM goes: a callback, and a progress bar.

Telling a user how the search of a Bayesian mixture goes: a callback, and a line that counts sweeps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from limiirl.mixture.bayesian.search import SearchStep
from limiirl.mixture.em import Callback, Iteration

Told = Callable[[int], Callback | None]


@contextmanager
def reporting(
    verbose: bool, n_starts: int, max_iter: int, callback: Callable[[int, Iteration], None] | None
) -> Iterator[Told]:
    """Yield a function of a start's number that gives the callback for its EM."""
    if not verbose:
        yield lambda i: None if callback is None else lambda entry: callback(i, entry)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("log-likelihood {task.fields[value]}, change {task.fields[change]}"),
    )
    # On stderr, so that a command's output stays clean.
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:

        def told(i: int) -> Callback:
            name = "EM" if n_starts == 1 else f"EM, start {i + 1} of {n_starts}"
            task = bar.add_task(name, total=max_iter, value="", change="")

            def show(entry: Iteration) -> None:
                value, change = f"{entry.log_likelihood:.4f}", f"{entry.change:.1e}"
                bar.update(task, completed=entry.iteration, value=value, change=change)
                if callback is not None:
                    callback(i, entry)

            return show

        yield told


ToldBayesian = Callable[[SearchStep], None]


@contextmanager
def searching(verbose: bool, callback: ToldBayesian | None) -> Iterator[ToldBayesian | None]:
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

        def show(step: SearchStep) -> None:
            said = f"{step.event}: {step.n_intents} intents, bound {step.bound:.3f}"
            bar.update(task, advance=1, description=said)
            if callback is not None:
                callback(step)

        yield show
