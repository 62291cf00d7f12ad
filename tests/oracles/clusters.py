"""Dask clusters of real processes on loopback, and helpers that kill parts of them."""

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
_PRELOADED = "LIMIIRL_TEST_PRELOADED"


class Cluster(NamedTuple):
    """A scheduler's address and process."""

    address: str
    scheduler: subprocess.Popen[bytes]

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])


@contextmanager
def dask(*arguments: object, allowed_failures: int = 0, preloaded: str = "") -> Iterator[subprocess.Popen[bytes]]:
    """A process of `dask ...`, until the end of the block."""
    # A scheduler that gives up at the first death leaves the second try, alone, to us, and saves waiting for restarts.
    environment = os.environ | {
        "DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": str(allowed_failures),
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep),
        # Several threads, for the task to limit.
        "OMP_NUM_THREADS": "2",
        "OPENBLAS_NUM_THREADS": "2",
        # Workers are forked from a process that has imported what they need: each would take seconds for it, and so
        # would the one that takes the place of one that was killed.
        "DASK_DISTRIBUTED__WORKER__MULTIPROCESSING_METHOD": "forkserver",
        _PRELOADED: preloaded,
    }
    started = subprocess.Popen(
        [sys.executable, "-m", "dask", *map(str, arguments), "--no-dashboard"],
        env=environment,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield started
    finally:
        # Killed, not terminated: a worker waits long for a scheduler that is gone. It ends with its nanny.
        started.kill()
        started.wait()


def dask_setup(nanny: object) -> None:
    """Let the workers of a nanny begin with what their tasks import; Dask calls this in the nanny's process."""
    del nanny
    from distributed.utils import get_mp_context

    get_mp_context().set_forkserver_preload(["distributed", os.environ[_PRELOADED]])


@contextmanager
def cluster(
    folder: Path,
    workers: int,
    *,
    port: int = 0,
    memory: str = "0",
    allowed_failures: int = 0,
    preloaded: str = "limiirl.executors",
    threads: int = 1,
) -> Iterator[Cluster]:
    """A scheduler with so many workers, of one thread by default, each with so much memory; "0" is no limit.

    The workers begin with a module imported, which should be what most of their tasks need.
    """
    contact = folder / "scheduler.json"
    with ExitStack() as stack:
        listening = ("--host", "127.0.0.1", "--port", port, "--scheduler-file", contact)
        # A port that was a scheduler's before may be in use: then this one ends at once, and is tried again.
        for _ in range(10):
            contact.unlink(missing_ok=True)
            scheduler = stack.enter_context(dask("scheduler", *listening, allowed_failures=allowed_failures))
            address = _address(contact, scheduler)
            if address and port in (0, int(address.rpartition(":")[2])):
                break
            scheduler.kill()
            time.sleep(1.0)
        else:
            raise RuntimeError(f"No scheduler could be started at port {port}.")
        if workers:
            options = (
                "--nworkers",
                workers,
                "--nthreads",
                threads,
                "--memory-limit",
                memory,
                "--local-directory",
                folder,
            )
            hook = ("--preload-nanny", "tests.oracles.clusters")
            stack.enter_context(dask("worker", "--scheduler-file", contact, *options, *hook, preloaded=preloaded))
            # On a busy machine they may take longer than an executor waits for its first worker.
            await_workers(address, workers)
        yield Cluster(address, scheduler)


def _address(contact: Path, scheduler: subprocess.Popen[bytes]) -> str:
    """The address that a scheduler writes, once it is there as a whole; nothing if the scheduler has ended."""
    end = time.monotonic() + 60
    while scheduler.poll() is None and time.monotonic() < end:
        with contextlib.suppress(OSError, ValueError, KeyError):
            return str(json.loads(contact.read_text())["address"])
        time.sleep(0.05)
    return ""


def list_workers(address: str) -> list[int]:
    """The processes of the workers that answer."""
    from distributed import Client

    with Client(address, set_as_default=False) as client:
        return list(client.run(os.getpid, on_error="ignore").values())


def await_workers(address: str, workers: int) -> None:
    """Wait until so many workers answer; the scheduler may still count one that was killed a moment ago."""
    end = time.monotonic() + 120
    while len(list_workers(address)) < workers:
        assert time.monotonic() < end, f"fewer than {workers} workers after two minutes"
        time.sleep(0.1)


def await_work(address: str) -> None:
    """Wait until some worker has a task, so that what comes next meets work in flight."""
    from distributed import Client

    end = time.monotonic() + 120
    with Client(address, set_as_default=False) as client:
        while not any(client.processing().values()):
            assert time.monotonic() < end, "no task within two minutes"
            time.sleep(0.01)


@contextmanager
def kill_workers(address: str, times: int, seed: int, within: float = 0.3) -> Iterator[list[int]]:
    """Kill a random worker that has tasks, at random moments of the block, so many times; its nanny starts another.

    The list has the processes that were killed.
    """
    from distributed import Client

    dice, over, killed = random.Random(seed), threading.Event(), []
    with Client(address, set_as_default=False) as client:

        def kill() -> None:
            while len(killed) < times and not over.wait(dice.uniform(0.0, within)):
                living, tasks = client.run(os.getpid, on_error="ignore"), client.processing()
                busy = sorted(worker for worker in living if tasks.get(worker))
                if busy:
                    victim = living[dice.choice(busy)]
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
