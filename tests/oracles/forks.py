"""Processes to kill, forked from a server that has imported everything: starting Python takes seconds."""

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
    """A process with a pipe, which can be killed."""

    process: BaseProcess
    pipe: Connection
    received: list[Any] = field(default_factory=list)

    def receive(self) -> Any:
        """Return the next message; raise EOFError after the end of the process."""
        assert self.pipe.poll(PATIENCE), f"no message after {self.received}"
        self.received.append(self.pipe.recv())
        return self.received[-1]

    def send(self, text: str) -> None:
        """Send a message."""
        self.pipe.send(text)

    def rest(self) -> list[Any]:
        """Return all messages until the process ends."""
        messages = []
        try:
            while True:
                messages.append(self.receive())
        except (EOFError, OSError):  # killed while sending
            self.process.join(PATIENCE)
            return messages

    def kill(self) -> int | None:
        """Kill the process; return its exit code."""
        self.process.kill()
        self.process.join(PATIENCE)
        return self.process.exitcode

    def finish(self) -> list[Any]:
        """Wait for a successful end, and return the remaining messages."""
        messages = self.rest()
        assert self.process.exitcode == 0, self.received
        return messages


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
