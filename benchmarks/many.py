"""Cost of an EM iteration for 1,000 to 10 million demonstrations in one MDP.

Run as `python -m benchmarks.many [LARGEST]`. Demonstrations are represented by their features and log q, resampled
from real ones, which is all that EM uses. An iteration consists of the M-step, which does not depend on N, and one
pass over the rows.
"""

import sys

import numpy as np

from benchmarks.measure import describe_machine, peak_bytes, seconds
from limiirl import MaxEnt
from limiirl.irl.maxent.problem import MaxEntProblem
from limiirl.irl.problem import make_problem
from limiirl.kernels.e_step import Rows
from limiirl.mixture.em import Settings, Start, run
from limiirl.worlds import ElementWorld

ITERATIONS = 5


def enlarge(problem: MaxEntProblem, n: int) -> None:
    """Replace the rows of a fit problem by n rows resampled from them."""
    chosen = np.random.default_rng(0).integers(len(problem.rows.counts), size=n)
    problem.rows = Rows(problem.rows.features[chosen], problem.rows.log_q[chosen], np.ones(n))
    problem.units = type(problem.units)(None, problem.rows.counts, np.arange(n))


def measure(n: int) -> tuple[float, float, float]:
    """Return the seconds per iteration, the seconds of the E-step, and the bytes read."""
    world = ElementWorld(seed=1)
    demos, labels = world.sample(1000, seed=0)
    problem = make_problem(MaxEnt(), world.mdp, demos)
    U = np.eye(3)[labels]
    thetas = problem.m_step(problem.moments(U), None, np.arange(3), 50).thetas
    enlarge(problem, n)
    start = Start(np.full(3, 1 / 3), thetas)
    run(problem, start, Settings(max_iter=1, resp_tol=0.0))  # compiles
    first = seconds(lambda: run(problem, start, Settings(max_iter=0, resp_tol=0.0)))
    whole = (seconds(lambda: run(problem, start, Settings(max_iter=ITERATIONS, resp_tol=0.0))) - first) / ITERATIONS
    U = np.zeros((n, 3))
    e_step = seconds(lambda: problem.e_step(start.rho, thetas, U))
    return whole, e_step, 8 * n * (problem.rows.features.shape[1] + 2 + 3)


def main() -> None:
    """Print seconds per iteration against N, and the constant and linear terms of a least-squares line."""
    largest = float(sys.argv[1]) if len(sys.argv) > 1 else 1e7
    sizes = [int(n) for n in (1e3, 1e4, 1e5, 1e6, 1e7) if n <= largest]
    print(f"many: EM on ElementWorld (54 states, 5 features), K = 3, {ITERATIONS} iterations")
    print(describe_machine())
    print(
        f"  {'N':>10} {'ms per iteration':>16} {'ms per E-step':>15} {'ns per row':>10} {'GB/s read':>10} {'peak':>9}"
    )
    rows = []
    for n in sizes:
        whole, e_step, size = measure(n)
        rows.append((n, whole))
        print(
            f"  {n:10,} {1e3 * whole:16.2f} {1e3 * e_step:15.2f} {1e9 * e_step / n:10.1f} {size / e_step / 1e9:10.1f} "
            f"{peak_bytes() / 2**20:6.0f} MB"
        )
    n, t = np.array(rows).T
    # Minimise relative errors, so that small and large N have equal weight.
    (constant, per_row), *_ = np.linalg.lstsq(np.column_stack([1 / t, n / t]), np.ones_like(t), rcond=None)
    print(f"  time per iteration = {1e3 * constant:.2f} ms (the M-step) + {1e9 * per_row:.1f} ns per demonstration")
    print("  fitted line / measured time: " + ", ".join(f"{(constant + per_row * m) / s:.2f}" for m, s in rows))


if __name__ == "__main__":
    main()
