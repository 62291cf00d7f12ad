"""Route choice in Shanghai with a penalised constant per turn: 1,747 features, 714 links, 10,000 paths.

Run as `python -m benchmarks.fixed_effects [EVALUATIONS]` from the root of a checkout with the shared data. The number
limits the evaluations with BFGS, which stores a matrix of 1,747 x 1,747 (default 20).
"""

import sys
import time
import warnings

import numpy as np

from benchmarks import shanghai_data as data
from benchmarks.measure import describe_machine
from limiirl import DestinationMaxEnt
from limiirl.errors import LimiirlWarning
from limiirl.irl import make_problem
from limiirl.mdp import add_edge_features, edge_constants

RIDGE = {"turn *": 1e-4}


def main() -> None:
    """Print the time of a fit, and the time per evaluation of both solvers."""
    limit = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    print(describe_machine())
    fold = data.read(0)
    mdp = add_edge_features(fold.mdp, edge_constants(fold.mdp, name="turn"))
    train, test = fold.demos[~fold.test], fold.demos[fold.test]
    warnings.simplefilter("ignore", LimiirlWarning)
    model = DestinationMaxEnt(bounds=None, ridge=RIDGE)
    wall, cpu = time.perf_counter(), time.process_time()
    theta = model.fit(mdp, train)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    result = model.result_
    print(f"{mdp.n_features} features, {mdp.n_states} links, {len(train)} paths: {wall:.1f} s ({cpu:.1f} s of CPU)")
    print(f"  converged: {result.converged}, {result.n_evaluations} evaluations, objective {result.value:.6f}")
    print(f"  held-out log-probability per path: {model.log_prob(mdp, theta, test).mean():.4f}")
    for solver in ("lbfgs", "bfgs"):
        problem = make_problem(DestinationMaxEnt(bounds=None, ridge=RIDGE, solver=solver), mdp, train)
        cpu = time.process_time()
        result = problem.search(np.ones((len(train), 1)), problem.regulariser.ridge[None], None, limit)[0]
        each = (time.process_time() - cpu) / result.n_evaluations
        print(f"  {solver}: {1e3 * each:.0f} ms of CPU per evaluation")


if __name__ == "__main__":
    main()
