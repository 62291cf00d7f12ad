"""Time of parallel kernels while another program uses one core, by the wait policy of threads at barriers.

Run as `python -m benchmarks.busy_core` from the root of a checkout. Every row is a process of its own. It computes
expected features on a network of 40,000 states, first without and then with a busy process on core 0. The last column
is the ratio of the two times.
"""

import argparse
import multiprocessing
import os
import statistics
import subprocess
import sys
import time

import numba
import numpy as np

import limiirl  # before any parallel kernel, because it sets the wait policy
from benchmarks.measure import describe_machine
from limiirl import MaxEnt
from limiirl.worlds import RoadGrid

STEPS, REPEATS = 100, 7


def spin() -> None:
    """Use core 0 until terminated."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    while True:
        pass


def measure(threads: int) -> None:
    """Print the median seconds of an evaluation without and with a busy core, and the processor time of both."""
    numba.set_num_threads(threads)
    mdp = RoadGrid(n_states=40_000, n_edges=81_300, seed=0).mdp
    model, thetas = MaxEnt(max_length=STEPS, bounds=(-10.0, 0.0)), -np.ones((3, mdp.n_features))
    model.expected_features(mdp, thetas)

    def median() -> float:
        seconds = []
        for _ in range(REPEATS):
            start = time.perf_counter()
            model.expected_features(mdp, thetas)
            seconds.append(time.perf_counter() - start)
        return statistics.median(seconds)

    alone = median()
    process = multiprocessing.get_context("spawn").Process(target=spin, daemon=True)
    process.start()
    time.sleep(2.0)
    try:
        busy = median()
    finally:
        process.terminate()
    print(f"{alone:8.3f} s {busy:8.3f} s {busy / alone:6.1f}")


def main() -> None:
    """Measure one and two threads, with threads that sleep (the default) and that spin at barriers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, help="measure in this process")
    given = parser.parse_args().threads
    if given is not None:
        measure(given)
        return
    print(describe_machine())
    load = os.getloadavg()[0]
    print(f"load before the run: {load:.1f}; limiirl {limiirl.__version__}")
    print("threads  at barriers    alone       busy    ratio")
    spinning = os.environ | {"OMP_WAIT_POLICY": "active"}
    unset = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
    for threads, name, environment in ((1, "-", unset), (2, "sleep", unset), (2, "spin", spinning)):
        command = [sys.executable, "-m", "benchmarks.busy_core", "--threads", str(threads)]
        done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)
        print(f"{threads:7}  {name:11}{done.stdout.rstrip()}", flush=True)


if __name__ == "__main__":
    main()
