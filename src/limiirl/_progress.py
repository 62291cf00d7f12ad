"""One protocol for the progress of long work, and its display on stderr: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING, Any, Protocol

from limiirl.errors import InvalidParameter

if TYPE_CHECKING:
    from collections.abc import Callable

EVERY_S = 15.0
"""Seconds between two lines about a job, where there is no terminal to draw on."""


class Progress(Protocol):
    """The callback of every long job of the library: ``progress(done, total, message)``."""

    def __call__(self, done: int, total: int | None, message: str, /) -> None:
        """Report that `done` of `total` steps are complete.

        Parameters
        ----------
        done : int
            Completed steps; 0 when a stage begins.
        total : int or None
            All steps; None while their number is unknown.
        message : str
            The stage, or the result of the last step; may be empty.
        """


def check_progress(progress: object, name: str = "progress") -> None:
    """Raise `InvalidParameter` unless `progress` is None or callable.

    Examples
    --------
    >>> check_progress(print)
    """
    if progress is not None and not callable(progress):
        raise InvalidParameter(
            f"{name} must be a function of (done, total, message), or None; got {progress!r}.",
            parameter=name,
            value=progress,
        )


@contextmanager
def show_progress(title: str = "", *, every_s: float = EVERY_S) -> Iterator[Progress]:
    """Yield a `Progress` that writes to stderr: a bar on a terminal, otherwise at most one line per `every_s` seconds.

    A report without a total and with nothing done names a stage. Elsewhere than on a terminal, each stage is one line.

    Examples
    --------
    >>> with show_progress("matching") as progress:
    ...     progress(1, 10, "trip 1")
    """
    from rich import progress as bars
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:
        yield LineReport(title, every_s)
        return
    columns = (
        bars.TextColumn("{task.description}", markup=False),
        bars.BarColumn(),
        bars.MofNCompleteColumn(),
        bars.TextColumn("{task.fields[message]}", markup=False),
        bars.TimeElapsedColumn(),
        bars.TimeRemainingColumn(),
    )
    with bars.Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(title, total=None, message="")

        def report(done: int, total: int | None, message: str, /) -> None:
            description, message = (title, message) if title else (message, "")
            bar.update(task, completed=done, total=total, description=description, message=message)

        yield report


class LineReport:
    """A `Progress` that writes at most one line per `every_s` seconds to stderr, and one line per stage.

    Examples
    --------
    >>> seconds = iter([0.0, 5.0, 20.0, 21.0])
    >>> report = LineReport("matching", 15.0, lambda: next(seconds))  # the clock starts here
    >>> report(1, 9, "too soon"), report(2, 9, "on stderr"), report(3, 9, "too soon again")
    (None, None, None)
    """

    def __init__(self, title: str, every_s: float = EVERY_S, clock: Callable[[], float] = monotonic) -> None:
        self._title, self._every_s, self._clock = title, every_s, clock
        self._stage = ""
        self._last = clock()
        self._last_done: int | None = None  # at the last line

    def __call__(self, done: int, total: int | None, message: str, /) -> None:
        """Write a line, unless the last was written less than `every_s` seconds ago."""
        if total is None and not done:
            if message != self._stage:
                self._stage = message
                _write(f"{message} ...")
            return
        now = self._clock()
        if now - self._last < self._every_s:
            return
        line = f"{self._title}: " if self._title else "  "
        line += f"{done:,}" if total is None else f"{done:,} of {total:,}"
        line += f", {message}" if message else ""
        # The rate since the last line: the first steps may be slow (start-up) or have been skipped.
        if total and self._last_done is not None and self._last < now and self._last_done < done < total:
            left = (now - self._last) / (done - self._last_done) * (total - done)
            line += f", about {left:.0f} s left"
        self._last, self._last_done = now, done
        _write(line)


def iterations(text: str) -> Any:
    """Write `text`, and return a callback of `IntentMixture` that writes a line per 15 seconds about EM."""
    _write(f"{text} ...")
    report = LineReport("")

    return lambda progress: report(progress.done, None, f"start {progress.restart + 1}: {progress.message}")


def _write(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()
