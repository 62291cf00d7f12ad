"""Progress protocol, and its display on stderr: a bar on a terminal, lines elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING, Protocol

from limiirl.errors import InvalidParameter

if TYPE_CHECKING:
    from collections.abc import Callable

EVERY_S = 15.0
"""Minimum number of seconds between two lines of a command if stderr is not a terminal."""

VERBOSE_S = 2.0
"""Minimum number of seconds between two lines of an estimator with ``verbose=True`` if stderr is not a terminal."""


class Progress(Protocol):
    """Callback of long computations: ``progress(done, total, message)``."""

    def __call__(self, done: int, total: int | None, message: str, /) -> None:
        """Report that `done` of `total` steps are complete.

        Parameters
        ----------
        done : int
            Completed steps; 0 at the start of a stage.
        total : int or None
            Number of steps; None if unknown.
        message : str
            Stage, or result of the last step; may be empty.
        """


def check_progress(progress: object, name: str = "progress") -> None:
    """Raise `InvalidParameter` unless `progress` is None or callable."""
    if progress is not None and not callable(progress):
        raise InvalidParameter.of(name, progress, "must be a function of (done, total, message), or None")


@contextmanager
def show_progress(title: str = "", *, every_s: float = EVERY_S, ends: bool = False) -> Iterator[Progress]:
    """Yield a `Progress` that writes to stderr: a bar on a terminal, otherwise at most one line per `every_s` seconds.

    If `ends` is True, the first and the last report are also written, so that short computations are shown. A report
    with ``done=0, total=None`` starts a stage; if stderr is not a terminal, one line is written per stage.
    """
    from rich import progress as bars
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:
        lines = LineReport(title, every_s, ends=ends)
        yield lines
        lines.finish()
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
            message = escape_controls(message)
            description, message = (title, message) if title else (message, "")
            bar.update(task, completed=done, total=total, description=description, message=message)

        yield report


class LineReport:
    """A `Progress` that writes at most one line per `every_s` seconds to stderr, and one line per stage.

    If `ends` is True, the first report is also written, and `finish` writes the last one.
    """

    def __init__(
        self, title: str, every_s: float = EVERY_S, clock: Callable[[], float] = monotonic, *, ends: bool = False
    ) -> None:
        self._title, self._every_s, self._clock, self._ends = title, every_s, clock, ends
        self._stage = self._pending = ""
        self._last = clock() - (every_s if ends else 0.0)
        self._last_done: int | None = None  # value of `done` at the last line

    def __call__(self, done: int, total: int | None, message: str, /) -> None:
        """Write a line, unless the last line was written less than `every_s` seconds ago."""
        if total is None and not done:
            if message != self._stage:
                self._stage = message
                _write(f"{message} ...")
            return
        now = self._clock()
        line = f"{self._title}: " if self._title else "  "
        line += f"{done:,}" if total is None else f"{done:,} of {total:,}"
        line += f", {message}" if message else ""
        if now - self._last < self._every_s:
            self._pending = line
            return
        # Use the rate since the last line, because the first steps may be slow (start-up) or skipped.
        if total and self._last_done is not None and self._last < now and self._last_done < done < total:
            left = (now - self._last) / (done - self._last_done) * (total - done)
            line += f", about {left:.0f} s left"
        self._last, self._last_done, self._pending = now, done, ""
        _write(line)

    def finish(self) -> None:
        """Write the last report if `ends` is True and it has not been written yet."""
        if self._ends and self._pending:
            _write(self._pending)


@contextmanager
def report_progress(
    title: str, verbose: bool, progress: Progress | None, *, every_s: float = VERBOSE_S
) -> Iterator[Progress | None]:
    """Yield a `Progress` that calls `progress` and, if `verbose`, writes to stderr; None if neither is requested.

    Examples
    --------
    >>> with report_progress("EM", False, print) as report:
    ...     report(1, 10, "log-likelihood -2.5")
    1 10 log-likelihood -2.5
    """
    if not verbose:
        yield progress
        return
    with show_progress(title, every_s=every_s, ends=True) as shown:

        def report(done: int, total: int | None, message: str, /) -> None:
            shown(done, total, message)
            if progress is not None:
                progress(done, total, message)

        yield report


# Control characters except tab and line feed; a name may contain escape sequences, which a terminal would execute.
_CODES = (*range(9), *range(11, 32), *range(127, 160), *range(0x202A, 0x202F), *range(0x2066, 0x206A))
_CONTROL = {code: f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}" for code in _CODES}


def escape_controls(text: str) -> str:
    r"""Return text with control characters, and undecodable bytes of file names, as escapes.

    >>> escape_controls("red \x1b[31m")
    'red \\x1b[31m'
    """
    return text.translate(_CONTROL).encode("utf-8", "backslashreplace").decode("utf-8")


def _write(line: str) -> None:
    sys.stderr.write(f"{escape_controls(line)}\n")
    sys.stderr.flush()
