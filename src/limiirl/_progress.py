"""What a long job tells meanwhile, on stderr: a bar or the running stage on a terminal, plain lines elsewhere."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Any

import typer

EVERY_S = 15.0
"""Seconds between two lines of a job, where there is no terminal to draw on."""


@contextmanager
def told_stages() -> Iterator[Callable[[str], None]]:
    """Yield a function to call with the name of each stage as it begins."""
    from rich.console import Console

    console = Console(stderr=True)
    if console.is_terminal:
        with console.status("") as status:
            yield status.update
        return
    told: set[str] = set()

    def tell(stage: str) -> None:
        if stage not in told:
            told.add(stage)
            typer.echo(f"{stage} ...", err=True)

    yield tell


@contextmanager
def counted(text: str) -> Iterator[Callable[[int, int], None]]:
    """Yield a function to call with how much is done and how much there is."""
    from rich import progress as bars
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:
        typer.echo(f"{text} ...", err=True)
        say = now_and_then()
        yield lambda done, total: say(f"  {done:,} of {total:,}")
        return
    with bars.Progress(console=console) as bar:
        task = bar.add_task(text, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def iterations(text: str) -> Callable[[int, Any], None]:
    """Say what begins, and return a callback of `IntentMixture` that tells now and then how far EM is."""
    typer.echo(f"{text} ...", err=True)
    say = now_and_then()

    def tell(start: int, entry: Any) -> None:
        say(f"  start {start + 1}, iteration {entry.iteration}: log-likelihood {entry.log_likelihood:.4f}")

    return tell


def fits() -> Callable[[int, int, str], None]:
    """Return a callback of `select_intents` that tells now and then how many fits are done."""
    say = now_and_then()
    return lambda done, total, what: say(f"  {done:,} of {total:,} fits: {what}")


def now_and_then(every_s: float = EVERY_S, clock: Callable[[], float] = monotonic) -> Callable[[str], None]:
    """Return a function that prints what it is given, unless it did so less than so many seconds ago.

    Examples
    --------
    >>> seconds = iter([0.0, 5.0, 20.0, 21.0])
    >>> say = now_and_then(15.0, lambda: next(seconds))  # the clock starts here
    >>> say("too soon"), say("on stderr"), say("too soon again")
    (None, None, None)
    """
    last = clock()

    def say(text: str) -> None:
        nonlocal last
        now = clock()
        if now - last >= every_s:
            last = now
            typer.echo(text, err=True)

    return say
