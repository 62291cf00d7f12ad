"""Projected Newton with the exact Hessian compared with L-BFGS-B: evaluations and time of a MaxEnt fit.

Run as `python -m benchmarks.solvers`. The default solver was chosen with this benchmark (ADR 0004).
"""

import time
import warnings

import numpy as np

from benchmarks.measure import describe_machine
from limiirl import MDP, Demonstrations, MaxEnt
from limiirl.errors import LimiirlWarning
from limiirl.worlds import ElementWorld, RoadGrid


def problems() -> dict[str, tuple[MDP, Demonstrations, MaxEnt]]:
    """Return named problems: demonstrations sampled from a known reward, and the model to fit."""
    cases = {}
    world, model = ElementWorld(), MaxEnt(max_length=30)
    for k, bounds in ((0, (-10.0, 0.0)), (1, None)):
        theta = np.clip(world.ensemble.thetas[k], -2.5, 0.0)
        demos = model.sample(world.mdp, theta, 100, seed=k)
        cases[f"ElementWorld, 54 states, bounds {bounds}"] = world.mdp, demos, MaxEnt(max_length=30, bounds=bounds)
    roads = RoadGrid(n_states=14_630, n_edges=29_746).mdp
    model = MaxEnt(max_length=60)
    theta = -np.random.default_rng(0).uniform(0.5, 6.0, roads.n_features)
    cases["roads, 14,630 states, 24 features"] = roads, model.sample(roads, theta, 1000, seed=0), model
    return cases


def main() -> None:
    """Print one row per problem and solver."""
    warnings.simplefilter("ignore", LimiirlWarning)
    print("solvers: MaxEnt fits to a projected gradient of 1e-6, started from 0 (cold) or near the solution (warm)")
    print(describe_machine())
    for name, (mdp, demos, model) in problems().items():
        print(f"  {name}")
        for solver in ("newton", "lbfgs"):
            model.set_params(solver=solver)
            theta = model.fit(mdp, demos)
            for kind, start in (("cold", None), ("warm", np.clip(theta * 1.05, -10.0, 10.0))):
                began = time.perf_counter()
                weights = np.ones((len(demos), 1))
                model.fit_many(mdp, demos, weights, None if start is None else start[None])
                taken = time.perf_counter() - began
                model.fit(mdp, demos, start=start)
                result = model.result_
                print(
                    f"    {solver:<7} {kind} {1e3 * taken:9.1f} ms {result.n_evaluations:5d} evaluations "
                    f"{result.n_hessians:4d} Hessians  {result.status.name.lower()}"
                )


if __name__ == "__main__":
    main()
