"""Real processes to kill, forked from one that has imported everything: starting Python anew takes seconds each."""

import multiprocessing
import os
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

# Only imports happen there: no thread runs that a fork would lose.
PRELOADED = ("limiirl.experiments.trial", "limiirl.streams", "pytest")
PATIENCE = 120.0


@dataclass
class Fork:
    """A process that says things, hears things and can be killed."""

    process: BaseProcess
    pipe: Connection
    heard: list[Any] = field(default_factory=list)

    def hear(self) -> Any:
        """The next thing that it says; nothing comes after its end."""
        assert self.pipe.poll(PATIENCE), f"silence after {self.heard}"
        self.heard.append(self.pipe.recv())
        return self.heard[-1]

    def tell(self, text: str) -> None:
        """Say something to it."""
        self.pipe.send(text)

    def rest(self) -> list[Any]:
        """All that it says until its end, whatever that is."""
        said = []
        try:
            while True:
                said.append(self.hear())
        except (EOFError, OSError):  # it may have been killed in the middle of a word
            self.process.join(PATIENCE)
            return said

    def kill(self) -> int | None:
        """Kill it now; return how it ended."""
        self.process.kill()
        self.process.join(PATIENCE)
        return self.process.exitcode

    def finish(self) -> list[Any]:
        """Wait for its end, which must be good, and return what it said since we last listened."""
        said = self.rest()
        assert self.process.exitcode == 0, self.heard
        return said


@contextmanager
def fork(job: Callable[..., None], *arguments: Any) -> Iterator[Fork]:
    """Run `job(pipe, *arguments)` in a process of its own, until the end of the block at most."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(PRELOADED))
    ours, theirs = context.Pipe()
    process = context.Process(target=_run, args=(theirs, job, arguments))
    process.start()
    theirs.close()
    try:
        yield Fork(process, ours)
    finally:
        process.kill()
        process.join(PATIENCE)
        ours.close()


def _run(pipe: Connection, job: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    try:
        job(pipe, *arguments)
    except BaseException:  # noqa: BLE001 (of any kind: the test shows it)
        pipe.send(traceback.format_exc())
        os._exit(1)
