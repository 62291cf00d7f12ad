"""Value and gradient at the size of the paper's ElementWorld: 54 states, K = 3, paths of up to 50 states.

Run as `python -m benchmarks.small`.
"""

import numpy as np

from benchmarks.measure import describe_machine, seconds
from limiirl.irl.maxent.messages import ForwardBackward
from limiirl.irl.maxent.path_sums import FinitePathSums
from limiirl.kernels.forward_backward import linear
from limiirl.kernels.graph import CountBuffers
from limiirl.mdp import expected_features
from limiirl.worlds import ElementWorld

MAX_LENGTH = 50
REPEATS = 2000


def kernel_seconds(run: ForwardBackward) -> float:
    """Return the time of the compiled kernels of both passes alone."""
    graph, gain = run.path_sums.graph, run.path_sums.discount
    rows = np.zeros((MAX_LENGTH, (graph.n_states + 1) * run.n_columns))
    rows[-1, : -run.n_columns] = 1.0
    exponents = np.zeros((MAX_LENGTH, run.n_columns), dtype=np.int64)
    counts = CountBuffers(np.zeros(graph.n_states * run.n_columns), None, None, None)
    alpha = run.alpha()

    def both() -> None:
        run.resume(rows, exponents, 0)
        linear.forward(graph.into, run.into, run.into_weights, rows, exponents, alpha, gain, counts, 0, run.columns)

    both()
    return seconds(both, REPEATS)


def main() -> None:
    """Print the time per evaluation and the fraction spent in Python."""
    world = ElementWorld()
    mdp, thetas = world.mdp, world.ensemble.thetas
    path_sums = FinitePathSums(mdp, MAX_LENGTH)

    def evaluate() -> None:
        counts = path_sums.expected_counts(thetas)
        expected_features(mdp, counts.node, counts.edge)

    evaluate()
    whole = seconds(evaluate, REPEATS)
    ((_, run),) = path_sums.passes(thetas)
    compiled = kernel_seconds(run)
    size = f"{mdp.n_states} states, K = {len(thetas)}, L = {MAX_LENGTH}, discount {mdp.gamma}"
    print(f"small: value and gradient of log Z, {size}")
    print(describe_machine())
    print(f"  total                {1e6 * whole:7.0f} microseconds (target: under 300)")
    print(f"  compiled kernels     {1e6 * compiled:7.0f} microseconds")
    print(f"  spent in Python      {100 * (1 - compiled / whole):7.0f} %")


if __name__ == "__main__":
    main()
