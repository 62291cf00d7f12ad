"""Scaling of a study with the number of workers: local processes, and workers of a local Dask cluster.

Run as `python -m benchmarks.trials [WORLDS]`. Each line runs the same trials of Table 1 into an empty store, from the
start of the executor to the last record. The rate is measured after all workers have started, because start-up does
not grow with the study. The ideal speed-up is the number of workers, up to the number of cores.
"""

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import joblib

from benchmarks.measure import describe_machine
from limiirl.executors import Executor
from limiirl.experiments import METHODS, Store, choose_studies, run_studies

LOCAL, DASK = (1, 2), (1, 2, 4)
# After this number of results, every worker has imported limiirl and loaded its compiled code.
_FIRST = 8


@contextmanager
def cluster(n_workers: int) -> Iterator[str]:
    """Start a scheduler and single-threaded workers on loopback, and yield the address."""
    with ExitStack() as stack, tempfile.TemporaryDirectory() as folder:
        scheduler_file = Path(folder) / "scheduler.json"

        def start(*words: str) -> None:
            process = subprocess.Popen(
                [sys.executable, "-m", "distributed.cli." + words[0], *words[1:]],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd=folder,
            )
            stack.callback(process.wait)
            stack.callback(process.terminate)

        options = ("--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--scheduler-file", str(scheduler_file))
        start("dask_scheduler", *options)
        while not scheduler_file.exists():
            time.sleep(0.1)
        for _ in range(n_workers):
            start(
                "dask_worker",
                "--scheduler-file",
                str(scheduler_file),
                "--nthreads",
                "1",
                "--no-nanny",
                "--no-dashboard",
            )
        from distributed import Client

        with Client(scheduler_file=str(scheduler_file)) as client:
            client.wait_for_workers(n_workers)
            address = str(client.scheduler.address)
        yield address


def run(executor: Executor, n_worlds: int) -> tuple[float, float, float]:
    """Return the seconds until every worker has started, the total seconds, and the trials per second in between."""
    came: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        summary = run_studies(
            choose_studies(["boxplots"]),
            Store(folder),
            executor,
            n_worlds,
            progress=lambda *_: came.append(time.perf_counter()),
        )
        taken = time.perf_counter() - start
    assert summary.done == summary.total
    assert not summary.failures
    return came[_FIRST] - start, taken, (len(came) - 1 - _FIRST) / (came[-1] - came[_FIRST])


def main() -> None:
    """Print one line per executor and number of workers."""
    n_worlds = int(sys.argv[1]) if len(sys.argv) > 1 else 30
    cores = joblib.cpu_count()
    n_trials = len(METHODS) * n_worlds
    print(f"trials: {n_trials} trials of Table 1 in {n_worlds} worlds")
    print(describe_machine())
    print("  executor  workers  start s  total s  trials per second  speed-up  ideal")
    base: dict[str, float] = {}

    def line(name: str, workers: int, executor: Executor) -> None:
        begun, whole, rate = run(executor, n_worlds)
        ratio = rate / base.setdefault(name, rate)
        cells = f"{begun:7.1f}  {whole:7.1f}  {rate:17.2f}  {ratio:8.2f}  {min(workers, cores):5d}"
        print(f"  {name:<8}  {workers:>7}  {cells}", flush=True)

    for workers in LOCAL:
        line("local", workers, Executor("local", workers))
    for workers in DASK:
        with cluster(workers) as address:
            line("dask", workers, Executor("dask", scheduler=address))


if __name__ == "__main__":
    main()
