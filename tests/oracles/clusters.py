"""Dask clusters of real processes on loopback, and hands that kill parts of them."""

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]


class Cluster(NamedTuple):
    """A scheduler's address and process."""

    address: str
    scheduler: subprocess.Popen[bytes]

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])


@contextmanager
def dask(*arguments: object, allowed_failures: int = 0) -> Iterator[subprocess.Popen[bytes]]:
    """A process of `dask ...`, until the end of the block."""
    # A scheduler that gives up at the first death leaves the second try, alone, to us, and saves waiting for restarts.
    environment = os.environ | {
        "DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": str(allowed_failures),
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep),
        # Several threads, for the task to limit.
        "OMP_NUM_THREADS": "2",
        "OPENBLAS_NUM_THREADS": "2",
    }
    started = subprocess.Popen(
        [sys.executable, "-m", "dask", *map(str, arguments), "--no-dashboard"],
        env=environment,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield started
    finally:
        started.terminate()
        try:
            started.wait(timeout=3)  # a worker whose scheduler is gone would say goodbye to it for long
        except subprocess.TimeoutExpired:
            started.kill()
            started.wait()


@contextmanager
def cluster(
    folder: Path, workers: int, *, port: int = 0, memory: str = "0", allowed_failures: int = 0
) -> Iterator[Cluster]:
    """A scheduler with so many workers of one thread, each with so much memory; "0" is no limit."""
    contact = folder / "scheduler.json"
    contact.unlink(missing_ok=True)
    with ExitStack() as stack:
        listening = ("--host", "127.0.0.1", "--port", port, "--scheduler-file", contact)
        scheduler = stack.enter_context(dask("scheduler", *listening, allowed_failures=allowed_failures))
        end = time.monotonic() + 30
        while not contact.exists() and time.monotonic() < end:
            time.sleep(0.05)
        for _ in range(workers):
            options = ("--nthreads", "1", "--memory-limit", memory, "--local-directory", folder)
            stack.enter_context(dask("worker", "--scheduler-file", contact, *options))
        address = json.loads(contact.read_text())["address"]
        if workers:
            # On a busy machine they may take longer than an engine waits for its first worker.
            from distributed import Client

            with Client(address, set_as_default=False) as client:
                client.wait_for_workers(workers, timeout=120)
        yield Cluster(address, scheduler)


@contextmanager
def killing(address: str, times: int, seed: int, within: float = 1.0) -> Iterator[list[int]]:
    """Kill a random worker's process at random moments of the block, so many times; its nanny starts another.

    The list has the processes that were killed.
    """
    from distributed import Client

    dice, over, killed = random.Random(seed), threading.Event(), []
    with Client(address, set_as_default=False) as client:

        def kill() -> None:
            while len(killed) < times and not over.wait(dice.uniform(0.0, within)):
                living = client.run(os.getpid, on_error="ignore")
                if living:
                    victim = living[dice.choice(sorted(living))]
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(victim, signal.SIGKILL)
                        killed.append(victim)

        thread = threading.Thread(target=kill)
        thread.start()
        try:
            yield killed
        finally:
            over.set()
            thread.join()
