"""Value and gradient on a road network of the paper's size, compared with the best scipy.sparse formulation.

The network has 292,604 states, 594,933 edges and 24 features; paths have up to 300 states, and the discount is 1. Run
as `python -m benchmarks.path_sums`; `--quick` uses a network of a twentieth of the size.
"""

import argparse
import sys

import numba
import numpy as np
from numpy.typing import NDArray

from benchmarks.measure import describe_machine, peak_bytes, run_fresh, seconds
from benchmarks.scipy_formulations import FORMULATIONS
from limiirl import MDP
from limiirl.irl.maxent.path_sums import FinitePathSums
from limiirl.mdp import expected_features
from limiirl.worlds import RoadGrid

MAX_LENGTH = 300
STORED, BOUNDED = 1e11, 3e8
INTENTS = (1, 3, 8)


def network(quick: bool, gamma: float = 1.0) -> MDP:
    """Return the road network as an MDP."""
    size = {"n_states": 14_630, "n_edges": 29_746} if quick else {}
    return RoadGrid(gamma=gamma, **size).mdp


def intents(mdp: MDP, n: int) -> NDArray[np.float64]:
    """Return reward vectors of plausible drivers: every kilometre has a cost, which differs between intents."""
    return -np.random.default_rng(0).uniform(0.5, 3.0, (n, mdp.n_features))


class PathSums:
    """Value and gradient by path sums as in a fit, with one object for all calls."""

    def __init__(self, mdp: MDP, max_bytes: float) -> None:
        self.path_sums = FinitePathSums(mdp, MAX_LENGTH, max_bytes=max_bytes)

    def __call__(self, thetas: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return log Z (K,) and expected features (K, d)."""
        counts = self.path_sums.expected_counts(thetas)
        return counts.log_Z, expected_features(self.path_sums.mdp, counts.node, counts.edge)


def print_table(mdp: MDP, n: int, repeats: int) -> None:
    """Time every formulation for n intents, check that they agree, and print the ratios."""
    thetas = intents(mdp, n)
    times, answers = {}, {}
    for formulation in FORMULATIONS:
        for reordered in (False, True):
            call = formulation(mdp, MAX_LENGTH, reordered)
            name = f"scipy, {formulation.name}, states {'reordered' if reordered else 'in given order'}"
            answers[name] = call(thetas)
            times[name] = seconds(lambda call=call: call(thetas), repeats)
    best = min(times.values())
    for max_bytes, kind in ((STORED, "all messages stored"), (BOUNDED, "memory bounded")):
        call = PathSums(mdp, max_bytes)
        for threads in (1, 2):
            numba.set_num_threads(min(threads, numba.config.NUMBA_NUM_THREADS))
            name = f"limiirl, {kind}, {threads} thread{'s' * (threads > 1)}"
            answers[name] = call(thetas)
            times[name] = seconds(lambda call=call: call(thetas), repeats)
    reference = next(iter(answers.values()))
    for name, taken in times.items():
        for mine, other in zip(answers[name], reference, strict=True):
            np.testing.assert_allclose(mine, other, rtol=1e-9, atol=1e-9)
        print(f"  {name:<52} {taken:8.3f} s {best / taken:7.1f} x as fast as the best scipy")


def memory(kind: str, n: int, quick: bool) -> None:
    """Print the peak memory of this process after one evaluation."""
    mdp = network(quick)
    if kind in ("stored", "bounded"):
        PathSums(mdp, STORED if kind == "stored" else BOUNDED)(intents(mdp, n))
    else:
        FORMULATIONS[int(kind)](mdp, MAX_LENGTH, True)(intents(mdp, n))
    print(peak_bytes())


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--memory", nargs=2, metavar=("KIND", "K"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.memory:
        memory(options.memory[0], int(options.memory[1]), options.quick)
        return
    mdp = network(options.quick)
    print(f"path_sums: value and gradient of log Z, {mdp.n_states:,} states, {mdp.n_edges:,} edges, L = {MAX_LENGTH}")
    print(describe_machine())
    for n in INTENTS:
        print(f"K = {n}")
        print_table(mdp, n, 1 if n > 3 else 3)
    discounted = network(options.quick, gamma=0.999)
    numba.set_num_threads(numba.config.NUMBA_NUM_THREADS)
    call, thetas = PathSums(discounted, STORED), intents(discounted, 3)
    call(thetas)
    print(f"discount 0.999, K = 3, all messages stored: {seconds(lambda: call(thetas)):.3f} s")
    print("peak memory of a new process in total")
    quick = ("--quick",) if options.quick else ()
    for n in INTENTS:
        for kind, name in (
            ("0", "scipy, one product per intent"),
            ("1", "scipy, one (S, K) block"),
            ("stored", "limiirl, stored"),
            ("bounded", "limiirl, bounded"),
        ):
            peak = int(run_fresh("benchmarks.path_sums", "--memory", kind, str(n), *quick))
            print(f"  K = {n}  {name:<28} {peak / 1e6:8.0f} MB")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
