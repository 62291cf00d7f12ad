"""Compile the numba kernels that most tests use, before the test processes start: `python -m tests.warm`.

In a fresh clone every test process would compile the same kernels, and two writers at once corrupt the cache of
quantecon. Here two processes compile one half each.
"""

import importlib.util
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np

from limiirl import MDP, MLIRL, IntentMixture, MaxCausalEnt, MaxEnt
from limiirl.irl.maxent.path_sums import FinitePathSums
from limiirl.roads import run_demo
from limiirl.worlds import ElementWorld

ROOT = Path(__file__).resolve().parents[1]


def small_mdps() -> list[MDP]:
    """Features on states or on all; deterministic or not; discounted or not: each is a variant of the kernels."""
    rng = np.random.default_rng(0)
    T = rng.random((4, 2, 4))
    T[3] = 0.0
    T[:3] /= T[:3].sum(axis=2, keepdims=True)
    src, dst = np.array([0, 0, 1, 2]), np.array([1, 2, 3, 3])
    plain = MDP.from_edges(src, dst, 4, p0=np.full(4, 0.25), terminal=[3], state_features=np.eye(4))
    random = MDP.from_dense(T, p0=np.full(4, 0.25), gamma=0.9, terminal=[3], state_features=np.eye(4))
    both = [mdp.replace(edge_features=np.eye(mdp.n_edges)[:, :2]) for mdp in (plain, random)]
    return [plain, random, *both]


def paths() -> None:
    """The forward and backward passes, for one and for three columns, in both arithmetics."""
    for mdp in small_mdps():
        for space in ("linear", "log"):
            for K in (1, 3):
                thetas = np.zeros((K, mdp.n_features)) - 0.1
                for stop in ("anywhere", "terminal"):
                    sums = FinitePathSums(mdp, 5, arithmetic=space, stop=stop)
                    sums.expected_counts(thetas)
                    sums.expected_counts(thetas, edges=True)
                sums.time_marginals(thetas[0])
                sums.covariance(thetas[0])


def fits() -> None:
    """The mixture, and the independent solver in the tests of planning."""
    world = ElementWorld()
    demos, _ = world.sample(30, seed=0)
    IntentMixture(3, MaxEnt(), max_iter=1, random_state=0).fit(world.mdp, demos)
    if importlib.util.find_spec("quantecon"):
        from tests.mdp.test_planning_independent import test_planning_agrees_with_quantecon

        test_planning_agrees_with_quantecon(5, 0, 0.5)


def policies() -> None:
    """The Bellman equations of the causal models, for one and for three columns."""
    world = ElementWorld()
    demos, _ = world.sample(10, seed=0)
    for model in (MaxCausalEnt(), MaxCausalEnt(max_length=60), MLIRL(), MLIRL(q="bv")):
        model.fit(world.mdp, demos)
        model.log_prob(world.mdp, world.ensemble.thetas, demos)


def roads() -> None:
    """Everything from a map to driving styles, which are fits of paths to known destinations."""
    run_demo(radius_km=0.8, n_drivers=6, trips_each=2)


def main() -> None:
    if len(sys.argv) > 1:
        warnings.simplefilter("ignore")
        for name in sys.argv[1:]:
            {"paths": paths, "fits": fits, "policies": policies, "roads": roads}[name]()
        return
    parts = (["paths", "fits"], ["roads", "policies"])
    started = [subprocess.Popen([sys.executable, "-m", "tests.warm", *part], cwd=ROOT) for part in parts]
    sys.exit(max(process.wait() for process in started))


if __name__ == "__main__":
    main()
