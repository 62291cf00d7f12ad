"""Sigma-GIRL on the agents that were released with it: does EM end nearer the truth from clusters than from chance?

Run as `python -m benchmarks.agents [REPEATS] [--data FOLDER]`, 40 repeats by default. FOLDER holds gridworld_agents.npz
and is `sigma_girl_gridworld` of the shared data unless given. Three agents (center, up, border), two intents, center by
itself; Jacobians are recomputed from 5, 20 and 100 trajectories an agent. All seeds are fixed here.

There are six data sets of 100 trajectories an agent. No test tells an agent's six apart (`same_policy`): they are six
recordings of one policy, and a subsample is drawn from all 600 of its trajectories (pooled). Two other readings are
printed too: a repeat has a data set to itself (own), where 100 of 100 trajectories are always the same, so that 40
repeats are six inputs; or the data set of each agent is drawn for each repeat (mixed).

The last table leaves out the constant 1e-10 of the original's baselines (`baseline_floor=0`). Center collects the same
rewards in 589 of its 600 trajectories: its Jacobian is then zero, but for that constant, and tells nothing.
"""

import argparse
import os
import time
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

from benchmarks.measure import describe_machine
from limiirl import Agents, IntentMixture, SigmaGIRL
from limiirl.demos.agents import Agent
from limiirl.errors import ConvergenceWarning, DegenerateIntentWarning
from limiirl.metrics import Comparison, Interval, mean_interval, paired
from limiirl.metrics.evaluation import recover
from limiirl.mixture.init import CLUSTERINGS

FOLDER = Path(os.environ.get("LIMIIRL_DATA", Path(__file__).parents[2] / "shared" / "data")) / "sigma_girl_gridworld"
N_SETS = 6
TRUTH = np.array([0, 1, 1])
SIZES = (5, 20, 100)
RANDOM = ("random", "random_rewards")
WARM = {f"{init}, {features}": (init, features) for init in ("kmeans", "gmm") for features in ("reward", "policy")}
# There is one test for each of three sizes, and one success is asked for.
LEVEL = 0.05 / len(SIZES)
# Soft memberships of two runs to the same solution differ by EM's tolerance.
TIE = 1e-4


class Score(NamedTuple):
    """What one fit is judged by."""

    accuracy: float
    anid: float
    anid_hard: float
    n_iter: int
    seconds: float
    converged: bool


def load(folder: Path) -> list[Agents]:
    """Return the six data sets."""
    return [Agents.from_released(folder / "gridworld_agents.npz", dataset) for dataset in range(N_SETS)]


def join(sets: list[Agents]) -> Agents:
    """Return the agents with the trajectories of all data sets."""
    each = range(len(sets[0]))
    records = [Agent._make(map(np.concatenate, zip(*(agents[i] for agents in sets), strict=True))) for i in each]
    return Agents(tuple(records), sets[0].names)


def seed(n: int, repeat: int) -> int:
    """Return the seed of a subsample."""
    return 1000 * n + repeat


def own(sets: list[Agents], n: int, repeat: int) -> Agents:
    """Return a repeat's agents, all of one data set."""
    return sets[repeat % N_SETS].subsample(n, seed(n, repeat))


def mixed(sets: list[Agents], n: int, repeat: int) -> Agents:
    """Return a repeat's agents, each of a data set that was drawn for it; no two repeats have the same three."""
    triples = np.random.default_rng(0).permutation(N_SETS ** len(TRUTH))
    chosen = np.unravel_index(triples[repeat % triples.size], (N_SETS,) * len(TRUTH))
    records = tuple(sets[k][i] for i, k in enumerate(chosen))
    return Agents(records, sets[0].names).subsample(n, seed(n, repeat))


def score(agents: Agents, init: Any, cluster_on: str, repeat: int, floor: float = 1e-10) -> Score:
    """Fit two intents, and judge them by the truth."""
    irl = SigmaGIRL(cluster_on=cluster_on, baseline_floor=floor)
    mix = IntentMixture(2, irl, init=init, random_state=repeat)
    start = time.perf_counter()
    with warnings.catch_warnings():
        # Random responsibilities often lead to the same weights, which are stirred; intents may end empty.
        warnings.simplefilter("ignore", DegenerateIntentWarning)
        warnings.simplefilter("ignore", ConvergenceWarning)
        mix.fit(None, agents)
    seconds = time.perf_counter() - start
    found = recover(TRUTH, mix.responsibilities_)
    return Score(found.accuracy, found.anid, found.anid_hard, mix.n_iter_, seconds, mix.converged_)


def clusters_alone(agents: Agents, init: str, cluster_on: str, repeat: int) -> float:
    """Return the accuracy of the clusters that a warm start begins with."""
    points = SigmaGIRL(cluster_on=cluster_on).features(None, agents)
    found = CLUSTERINGS[init](points, 2, np.random.default_rng(repeat))
    return recover(TRUTH, found if found.ndim == 2 else np.eye(2)[found]).accuracy


STARTS: dict[str, tuple[Any, str]] = (
    {init: (init, "reward") for init in RANDOM} | WARM | {"the truth": (TRUTH, "reward")}
)
"""Ways to start by name: an init, and what is clustered."""


def exact(first: list[float], second: list[float]) -> tuple[int, int, float]:
    """Return how often the first is higher, how often lower, and the two-sided sign test (McNemar's exact one)."""
    gaps = np.subtract(first, second)
    up, down = int(np.sum(gaps > 1e-9)), int(np.sum(gaps < -1e-9))
    return up, down, 1.0 if up + down == 0 else float(stats.binomtest(up, up + down).pvalue)


def shown(value: Interval) -> str:
    """Return a figure to three decimals: one of labels that are all the same has an interval of rounding."""
    return f"{value.mean:8.3f} ± {value.half_width:.3f}"


class Gap(NamedTuple):
    """How a warm start differs from a random one over the same repeats."""

    higher: int
    lower: int
    p_exact: float
    accuracy: Comparison
    anid: Comparison

    @property
    def below(self) -> bool:
        """Whether the warm start is worse in mean accuracy or in mean ANID."""
        return self.accuracy.difference.mean < -1e-9 or self.anid.difference.mean > TIE

    @property
    def above(self) -> bool:
        """Whether it is better in both, by all tests."""
        sure = max(self.p_exact, self.anid.p_t, self.anid.p_wilcoxon) < LEVEL
        return sure and self.accuracy.difference.mean > 0.0 > self.anid.difference.mean

    def __str__(self) -> str:
        tests = [self.p_exact, self.accuracy.p_t, self.accuracy.p_wilcoxon, self.anid.p_t, self.anid.p_wilcoxon]
        p = [f"{value:9.1e}" for value in tests]
        first = f"{shown(self.accuracy.difference)} {self.higher:6d} {self.lower:5d} {' '.join(p[:3])}"
        return f"{first} {shown(self.anid.difference)} {' '.join(p[3:])}"


def gap(warm: list[Score], chance: list[Score]) -> Gap:
    """Compare two starts, repeat by repeat."""
    accuracy, distance = ([[getattr(s, m) for s in each] for each in (warm, chance)] for m in ("accuracy", "anid"))
    return Gap(*exact(*accuracy), paired(*accuracy, lower_is_better=False), paired(*distance, tie=TIE))


def compare(found: dict[int, dict[str, list[Score]]]) -> None:
    """Print how the warm starts differ from the random ones, and whether any is below or above."""
    gaps = {
        (n, name, base): gap(scores[name], scores[base])
        for n, scores in found.items()
        for name in WARM
        for base in RANDOM
    }
    heads = f"{'accuracy':>16} {'higher':>6} {'lower':>5} {'exact p':>9} {'t':>9} {'Wilcoxon':>9}"
    print("  warm less random, paired over repeats: mean ± half-width of the 95 % interval, and two-sided p")
    print(f"       n  {'warm':<15} {'random':<15} {heads} {'ANID':>16} {'t':>9} {'Wilcoxon':>9}")
    for (n, name, base), each in gaps.items():
        print(f"    {n:4d}  {name:<15} {base:<15} {each}")
    print(f"  below a random start in mean accuracy or ANID? above it in both, all tests p < {LEVEL:.3f}?")
    for name in WARM:
        for n in found:
            below, above = (
                " and ".join(base for base in RANDOM if getattr(gaps[n, name, base], way)) or "neither"
                for way in ("below", "above")
            )
            print(f"    {n:4d}  {name}: below {below}; above {above}")


def table(whole: Agents, repeats: int) -> dict[int, dict[str, list[Score]]]:
    """Print a line for each size and start, on pooled trajectories, and return all scores."""
    print("  pooled: mean ± half-width of the 95 % interval; alone: accuracy of the clusters themselves, and how often")
    print("  EM mends or spoils them")
    heads = f"{'accuracy':>16} {'ANID':>16} {'hard ANID':>16} {'iterations':>11} {'seconds':>8} {'cut off':>8}"
    print(f"       n  {'start':<18} {heads}   alone, mended, spoilt")
    found: dict[int, dict[str, list[Score]]] = {}
    for n in SIZES:
        inputs = [whole.subsample(n, seed(n, repeat)) for repeat in range(repeats)]
        found[n] = {}
        for name, start in STARTS.items():
            scores = found[n][name] = [score(agents, *start, repeat) for repeat, agents in enumerate(inputs)]
            measures = ("accuracy", "anid", "anid_hard")
            row = " ".join(shown(mean_interval([getattr(s, m) for s in scores])) for m in measures)
            iterations, seconds = (np.mean([getattr(s, m) for s in scores]) for m in ("n_iter", "seconds"))
            cut = sum(not s.converged for s in scores)
            told = ""
            if name in WARM:
                alone = [clusters_alone(agents, *WARM[name], repeat) for repeat, agents in enumerate(inputs)]
                mended, spoilt, _ = exact([s.accuracy for s in scores], alone)
                told = f"{np.mean(alone):.3f}, {mended}, {spoilt}"
            print(f"    {n:4d}  {name:<18} {row} {iterations:11.1f} {seconds:8.3f} {cut:8d}   {told}")
    return found


def others(sets: list[Agents], whole: Agents, repeats: int) -> None:
    """Print the accuracy and ANID of the other two ways to make repeats, and with exact baselines."""
    print(f"  other readings, and pooled without the constant in baselines: accuracy (ANID) of {repeats} repeats")
    starts = (*RANDOM, "kmeans, reward")
    print(f"       n  {'':<16}" + "".join(f"{name:>18}" for name in starts))
    makers = {
        "own": (own, sets, 1e-10),
        "mixed": (mixed, sets, 1e-10),
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


def same_policy(sets: list[Agents]) -> list[float]:
    """Return for each agent the p of one linear policy against one a data set (F-test, the lower of two actions).

    Directions of the policy features that hardly vary are left out: they would fit anything.
    """
    found = []
    for i in range(len(TRUTH)):
        agents = [agents[i] for agents in sets]
        x, a = ([getattr(agent, part)[agent.live] for agent in agents] for part in ("policy_features", "actions"))
        _, sizes, directions = np.linalg.svd(np.concatenate(x), full_matrices=False)
        kept = directions[sizes > 1e-2 * sizes[0]].T
        reduced = [part @ kept for part in x]

        def residual(features: np.ndarray, actions: np.ndarray) -> np.ndarray:
            weights = np.linalg.lstsq(features, actions, rcond=None)[0]
            return np.asarray(np.sum((actions - features @ weights) ** 2, axis=0))

        joint = residual(np.concatenate(reduced), np.concatenate(a))
        apart = np.sum([residual(*pair) for pair in zip(reduced, a, strict=True)], axis=0)
        more, left = (N_SETS - 1) * kept.shape[1], len(np.concatenate(a)) - N_SETS * kept.shape[1]
        found.append(float(np.min(stats.f.sf((joint - apart) / more / (apart / left), more, left))))
    return found


def main() -> None:
    """Print the table, the comparisons and the verdicts."""
    parser = argparse.ArgumentParser(description="Sigma-GIRL on the released agents.")
    parser.add_argument("repeats", nargs="?", type=int, default=40)
    parser.add_argument("--data", type=Path, default=FOLDER, help="the folder of gridworld_agents.npz")
    given = parser.parse_args()
    if given.repeats < 2:
        parser.error("REPEATS must be at least 2: one repeat has no interval.")
    print(f"agents: Sigma-GIRL on the released agents, {given.repeats} repeats")
    if not (given.data / "gridworld_agents.npz").exists():
        print("  skipped: there is no gridworld_agents.npz. Name its folder by --data, or set LIMIIRL_DATA.")
        return
    print(describe_machine())
    sets = load(given.data)
    start = time.perf_counter()
    least = ", ".join(f"{p:.2f}" for p in same_policy(sets))
    print(f"  one policy an agent in all six data sets? least p of two F-tests: {least} ({', '.join(sets[0].names)})")
    whole = join(sets)
    compare(table(whole, given.repeats))
    others(sets, whole, (given.repeats + 1) // 2)
    print(f"  {time.perf_counter() - start:.0f} s in all")


if __name__ == "__main__":
    main()
