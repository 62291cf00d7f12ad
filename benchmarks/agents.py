"""Accuracy of EM with Sigma-GIRL on the released agents, from clusters and from random initialisations.

Run as `python -m benchmarks.agents [REPEATS] [--data FOLDER]`, with 40 repeats by default. FOLDER contains
gridworld_agents.npz; the default is `sigma_girl_gridworld` of the shared data. There are three agents (center, up,
border) and two intents, one of which is that of center alone. Jacobians are recomputed from 5, 20 and 100 trajectories
per agent. All seeds are fixed.

There are six data sets of 100 trajectories per agent. No test distinguishes the six data sets of an agent
(`same_policy`), so they are treated as recordings of one policy, and subsamples are drawn from all 600 trajectories
(pooled). Two alternatives are printed too. With "own", a repeat uses one of the six data sets for all agents; with 100
trajectories per agent, 40 repeats then have only six distinct inputs. With "mixed", a repeat draws a data set per
agent.

The last table omits the constant 1e-10 in the baselines of the original code (`baseline_floor=0`). Center collects the
same rewards in 589 of its 600 trajectories; without the constant, its Jacobian is zero and contains no information.
"""

import argparse
import os
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measure import describe_machine
from limiirl import Agents, SigmaGIRL
from limiirl.metrics import mean_interval
from limiirl.metrics.evaluate import recover
from limiirl.mixture.init import CLUSTERINGS
from tests.oracles.released import (
    LEVEL,
    SIZES,
    TRUTH,
    Score,
    exact,
    format_interval,
    gap,
    join,
    load,
    mix_sets,
    own,
    same_policy,
    score,
    seed,
)

FOLDER = Path(os.environ.get("LIMIIRL_DATA", Path(__file__).parents[2] / "shared" / "data")) / "sigma_girl_gridworld"
RANDOM = ("random", "random_rewards")
WARM = {f"{init}, {features}": (init, features) for init in ("kmeans", "gmm") for features in ("reward", "policy")}


def clusters_alone(agents: Agents, init: str, cluster_on: str, repeat: int) -> float:
    """Return the accuracy of the initial clusters of a warm start."""
    points = SigmaGIRL(cluster_on=cluster_on).features(None, agents)
    labels = CLUSTERINGS[init](points, 2, np.random.default_rng(repeat))
    return recover(TRUTH, labels if labels.ndim == 2 else np.eye(2)[labels]).accuracy


STARTS: dict[str, tuple[Any, str]] = (
    {init: (init, "reward") for init in RANDOM} | WARM | {"true labels": (TRUTH, "reward")}
)
"""Initialisations by name: `init`, and the features that are clustered."""


def compare(scores_by_size: dict[int, dict[str, list[Score]]]) -> None:
    """Print paired tests of warm starts against random initialisations."""
    gaps = {
        (n, name, base): gap(scores[name], scores[base])
        for n, scores in scores_by_size.items()
        for name in WARM
        for base in RANDOM
    }
    heads = f"{'accuracy':>16} {'higher':>6} {'lower':>5} {'exact p':>9} {'t':>9} {'Wilcoxon':>9}"
    print("  warm minus random, paired over repeats: mean ± half-width of the 95 % interval, and two-sided p")
    print(f"       n  {'warm':<15} {'random':<15} {heads} {'ANID':>16} {'t':>9} {'Wilcoxon':>9}")
    for (n, name, base), each in gaps.items():
        print(f"    {n:4d}  {name:<15} {base:<15} {each}")
    print(f"  worse: in mean accuracy or ANID, than random; better: in both, with p < {LEVEL:.3f} in all tests")
    for name in WARM:
        for n in scores_by_size:
            below, above = (
                " and ".join(base for base in RANDOM if getattr(gaps[n, name, base], direction)) or "neither"
                for direction in ("below", "above")
            )
            print(f"    {n:4d}  {name}: worse {below}; better {above}")


def table(whole: Agents, repeats: int) -> dict[int, dict[str, list[Score]]]:
    """Print one line per size and initialisation for pooled trajectories, and return all scores."""
    print("  pooled: mean ± half-width of the 95 % interval; clusters: accuracy of the initial clusters, and how often")
    print("  EM improves or worsens them")
    heads = f"{'accuracy':>16} {'ANID':>16} {'hard ANID':>16} {'iterations':>11} {'seconds':>8} {'stopped':>8}"
    print(f"       n  {'initialisation':<18} {heads}   clusters, improved, worsened")
    scores_by_size: dict[int, dict[str, list[Score]]] = {}
    for n in SIZES:
        inputs = [whole.subsample(n, seed(n, repeat)) for repeat in range(repeats)]
        scores_by_size[n] = {}
        for name, start in STARTS.items():
            scores = scores_by_size[n][name] = [score(agents, *start, repeat) for repeat, agents in enumerate(inputs)]
            measures = ("accuracy", "anid", "anid_hard")
            row = " ".join(format_interval(mean_interval([getattr(s, m) for s in scores])) for m in measures)
            iterations, seconds = (np.mean([getattr(s, m) for s in scores]) for m in ("n_iter", "seconds"))
            cut = sum(not s.converged for s in scores)
            clusters_row = ""
            if name in WARM:
                alone = [clusters_alone(agents, *WARM[name], repeat) for repeat, agents in enumerate(inputs)]
                improved, worsened, _ = exact([s.accuracy for s in scores], alone)
                clusters_row = f"{np.mean(alone):.3f}, {improved}, {worsened}"
            print(f"    {n:4d}  {name:<18} {row} {iterations:11.1f} {seconds:8.3f} {cut:8d}   {clusters_row}")
    return scores_by_size


def others(sets: list[Agents], whole: Agents, repeats: int) -> None:
    """Print accuracy and ANID for the other two sampling schemes, and with exact baselines."""
    print(f"  other sampling schemes, and pooled without the constant in baselines: accuracy (ANID), {repeats} repeats")
    starts = (*RANDOM, "kmeans, reward")
    print(f"       n  {'':<16}" + "".join(f"{name:>18}" for name in starts))
    makers = {
        "own": (own, sets, 1e-10),
        "mixed": (mix_sets, sets, 1e-10),
        "exact baselines": (lambda data, n, repeat: data.subsample(n, seed(n, repeat)), whole, 0.0),
    }
    for label, (read, data, floor) in makers.items():
        for n in SIZES:
            inputs = [read(data, n, repeat) for repeat in range(repeats)]
            cells = []
            for name in starts:
                scores = [score(agents, *STARTS[name], repeat, floor) for repeat, agents in enumerate(inputs)]
                cells.append(f"{np.mean([s.accuracy for s in scores]):.3f} ({np.mean([s.anid for s in scores]):.3f})")
            print(f"    {n:4d}  {label:<16}" + "".join(f"{cell:>18}" for cell in cells))


def main() -> None:
    """Print the table, the comparisons and the verdicts."""
    parser = argparse.ArgumentParser(description="Sigma-GIRL on the released agents.")
    parser.add_argument("repeats", nargs="?", type=int, default=40)
    parser.add_argument("--data", type=Path, default=FOLDER, help="folder with gridworld_agents.npz")
    given = parser.parse_args()
    if given.repeats < 2:
        parser.error("REPEATS must be at least 2: one repeat has no interval.")
    print(f"agents: Sigma-GIRL on the released agents, {given.repeats} repeats")
    if not (given.data / "gridworld_agents.npz").exists():
        print("  skipped: no gridworld_agents.npz. Pass its folder with --data, or set LIMIIRL_DATA.")
        return
    print(describe_machine())
    sets = load(given.data)
    start = time.perf_counter()
    smallest = ", ".join(f"{p:.2f}" for p in same_policy(sets))
    print(
        "  one policy per agent in all six data sets: smallest p of two F-tests "
        f"{smallest} ({', '.join(sets[0].names)})"
    )
    whole = join(sets)
    compare(table(whole, given.repeats))
    others(sets, whole, (given.repeats + 1) // 2)
    print(f"  {time.perf_counter() - start:.0f} s in total")


if __name__ == "__main__":
    main()
