"""Speed-up with 1, 2 and 4 Dask workers on this machine, and the overhead per task.

Run as `python -m benchmarks.dask_scaling [TASKS]`. Sessions are opened before timing starts, and the fastest of several
runs counts, after all workers have loaded their modules; `benchmarks.trials` measures the start-up. The ideal speed-up
is the number of workers, up to the number of cores. All jobs must return the same values for any number of workers.
"""

import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import joblib
import numpy as np

from benchmarks.measure import describe_machine
from benchmarks.streaming import MODEL, START, WORLD
from benchmarks.trials import cluster
from limiirl import IntentMixture, select_intents
from limiirl.executors import Executor, Session, map_ordered
from limiirl.streams import FunctionSource, fit_streamed, write_features
from limiirl.worlds import RoadGrid

WORKERS = (1, 2, 4)
SHARDS, ROWS, RUNS = 8, 50_000, 4
Job = Callable[[Session], Any]


def empty_task(inputs: Any, task: Any) -> None:
    """Do nothing, so that only the overhead of the task is measured."""
    del inputs, task


def seconds_per_task(session: Session, inputs: Any, tasks: list[Any]) -> float:
    """Return the seconds per empty task, after a first call that loads the modules."""
    function = partial(empty_task, inputs)
    map_ordered(function, tasks[:8], session)
    begun = time.perf_counter()
    map_ordered(function, tasks, session)
    return (time.perf_counter() - begun) / len(tasks)


def overheads(n_tasks: int) -> None:
    """Print the cost of an empty task: alone, with an MDP in the function, and with an MDP in every task."""
    mdp = RoadGrid(20_000, 40_000, seed=0).mdp
    few = list(range(max(8, n_tasks // 10)))
    print(f"\nempty tasks; the MDP has {mdp.n_states:,} states and {len(mdp.src):,} edges")
    print("  executor  workers  ms per task  with the MDP in the function  with the MDP in every task")
    for name in ("dask", "local"):
        for workers in (1, 2):
            with open_session(name, workers) as session:
                alone = seconds_per_task(session, None, list(range(n_tasks)))
                once = seconds_per_task(session, mdp, list(range(n_tasks)))
                always = seconds_per_task(session, None, [(mdp, i) for i in few])
            more = "".join(f"{1e3 * taken:14.2f} ({taken / alone:5.2f} x)" for taken in (once, always))
            print(f"  {name:<8}  {workers:7}  {1e3 * alone:9.2f}  {more}", flush=True)


@contextmanager
def open_session(name: str, workers: int) -> Iterator[Session]:
    """Open a session on a local executor, and start its cluster if needed."""
    with ExitStack() as stack:
        address = stack.enter_context(cluster(workers)) if name == "dask" else None
        yield stack.enter_context(Executor(name, None if address else workers, address).session())


def jobs(folder: Path) -> dict[str, Job]:
    """Return the jobs: restarts, model selection, and EM over shards of a stream."""
    demos, _ = WORLD.sample(400, seed=1)
    short: dict[str, Any] = {"max_iter": 20, "resp_tol": 0.0}
    store = write_features(WORLD.mdp, FunctionSource(sample_shard, SHARDS), folder)

    def restarts(session: Session) -> Any:
        mixture = IntentMixture(3, MODEL, init="random", n_init=24, random_state=0, **short)
        return mixture.fit(WORLD.mdp, demos, executor=session).thetas_

    def selection(session: Session) -> Any:
        mixture = IntentMixture(irl=MODEL, **short)
        chosen = select_intents(
            WORLD.mdp, demos, (1, 2, 3), mixture=mixture, folds=4, resamples=4, seed=0, executor=session
        )
        return np.concatenate([mix.thetas_ for mix in chosen.mixtures.values()])

    def stream(session: Session) -> Any:
        mixture = IntentMixture(3, MODEL, init=START, resp_tol=0.0, max_iter=3)
        return fit_streamed(mixture, WORLD.mdp, store, executor=session).thetas_

    return {"24 restarts": restarts, "23 fits of a selection": selection, f"3 iterations over {SHARDS} shards": stream}


def sample_shard(index: int) -> Any:
    """Return the demonstrations of one shard of the stream."""
    return WORLD.sample(ROWS, seed=index)[0]


def speed_ups() -> None:
    """Print the speed-up of each job relative to one worker."""
    cores = joblib.cpu_count()
    print(f"\nspeed-up on {cores} cores relative to one worker; shards of the stream have {ROWS:,} demonstrations")
    print("  workers  ideal  " + "".join(f"{name:>30}" for name in ("job", "seconds", "speed-up")))
    base: dict[str, float] = {}
    expected: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the fixed number of iterations is less than EM needs
        jobs_by_name = jobs(Path(folder) / "features")
        for workers in WORKERS:
            with open_session("dask", workers) as session:
                for name, job in jobs_by_name.items():
                    # The first run loads modules on the workers, except on a worker that started late.
                    taken = np.inf
                    for _ in range(RUNS):
                        begun = time.perf_counter()
                        thetas = job(session)
                        taken = min(taken, time.perf_counter() - begun)
                        np.testing.assert_array_equal(thetas, expected.setdefault(name, thetas))
                    faster = base.setdefault(name, taken) / taken
                    print(f"  {workers:7}  {min(workers, cores):5}  {name:>30}{taken:30.2f}{faster:30.2f}", flush=True)


def main() -> None:
    """Print both tables."""
    print("dask_scaling: Dask workers on this machine")
    print(describe_machine())
    overheads(int(sys.argv[1]) if len(sys.argv) > 1 else 500)
    speed_ups()


if __name__ == "__main__":
    main()
