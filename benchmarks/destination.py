"""Processor time of `DestinationMaxEnt`: symbolic and numeric factorisation, values and flows.

Run as `python -m benchmarks.destination [PAIRS]` from the root of a checkout. Porto is included if its data are
present.
"""

import sys
import time
from collections.abc import Callable

import numpy as np

from benchmarks import porto
from benchmarks.measure import describe_machine
from limiirl import MDP
from limiirl.irl import with_choices
from limiirl.irl.destination.path_sums import GoalValues
from limiirl.worlds import RoadGrid

# Candidate values of all parameters; the first one with finite path sums is used.
COSTS = (-0.5, -1.0, -2.0, -4.0, -8.0)


def processor_seconds(call: Callable[[], object], repeats: int = 3) -> float:
    """Return the smallest processor time of several calls, which other processes affect little."""
    best = float("inf")
    for _ in range(repeats):
        start = time.process_time()
        call()
        best = min(best, time.process_time() - start)
    return best


def measure(name: str, mdp: MDP, n_pairs: int) -> None:
    """Print one line for a network."""
    begun = time.process_time()
    values = GoalValues(mdp)
    symbolic = time.process_time() - begun
    theta = next(theta for cost in COSTS if values.is_finite(theta := np.full(mdp.n_features, cost)))
    solution = values.solve(theta)
    rng = np.random.default_rng(0)
    starts, goals = rng.integers(0, mdp.n_states, (2, n_pairs))
    log_value = solution.pair_sums(starts, goals).log_value
    starts, goals = starts[log_value > -np.inf], goals[log_value > -np.inf]
    weights = np.ones(starts.size)
    print(
        f"{name}: {mdp.n_states:,} states, {mdp.n_edges:,} edges; {values.symbolic.up.size:,} edges after elimination, "
        f"elimination tree of depth {values.symbolic.depth.max()}; theta {theta[0]}, {starts.size} pairs, median "
        f"log value {np.median(log_value[log_value > -np.inf]):.1f}\n"
        f"  symbolic factorisation {symbolic:.2f} s, numeric factorisation "
        f"{processor_seconds(lambda: values.solve(theta)):.3f} s, values "
        f"{processor_seconds(lambda: solution.pair_sums(starts, goals)):.3f} s, values and flows "
        f"{processor_seconds(lambda: solution.pair_sums(starts, goals, weights)):.3f} s, values of all states for "
        f"one goal {processor_seconds(lambda: solution.values_to(0)):.3f} s"
    )


def main() -> None:
    """Measure a synthetic network of Porto's size, and Porto."""
    n_pairs = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    print(describe_machine())
    measure("synthetic", RoadGrid(n_states=85_189, n_edges=102_227, seed=0).mdp, n_pairs)
    if porto.available():
        measure("Porto", with_choices(porto.network(1.0)), n_pairs)


if __name__ == "__main__":
    main()
