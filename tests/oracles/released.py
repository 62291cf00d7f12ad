"""The agents that were released with Sigma-GIRL: how they are read, joined and drawn from, and how fits are judged.

For `benchmarks.agents` and the tests of its claims, so that both are of one experiment.
"""

import time
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

from limiirl import Agents, IntentMixture, SigmaGIRL
from limiirl.demos.agents import Agent
from limiirl.errors import ConvergenceWarning, DegenerateIntentWarning
from limiirl.metrics import Comparison, Interval, compare_paired
from limiirl.metrics.evaluate import recover

N_SETS = 6
TRUTH = np.array([0, 1, 1])
SIZES = (5, 20, 100)
# There is one test for each of three sizes, and one success is required.
LEVEL = 0.05 / len(SIZES)
# Soft memberships of two runs to the same solution differ by EM's tolerance.
TIE = 1e-4


class Score(NamedTuple):
    """Scores of one fit."""

    accuracy: float
    anid: float
    anid_hard: float
    n_iter: int
    seconds: float
    converged: bool


def load(folder: Path) -> list[Agents]:
    """Return the six data sets."""
    return [Agents.from_released(folder / "gridworld_agents.npz", dataset=dataset) for dataset in range(N_SETS)]


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


def mix_sets(sets: list[Agents], n: int, repeat: int) -> Agents:
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
    recovery = recover(TRUTH, mix.responsibilities_)
    return Score(recovery.accuracy, recovery.anid, recovery.anid_hard, mix.n_iter_, seconds, mix.converged_)


def exact(first: list[float], second: list[float]) -> tuple[int, int, float]:
    """Return how often the first is higher, how often lower, and the two-sided sign test (McNemar's exact one)."""
    gaps = np.subtract(first, second)
    up, down = int(np.sum(gaps > 1e-9)), int(np.sum(gaps < -1e-9))
    return up, down, 1.0 if up + down == 0 else float(stats.binomtest(up, up + down).pvalue)


def format_interval(value: Interval) -> str:
    """Return a mean and half-width to three decimals; identical labels have a half-width of rounding."""
    return f"{value.mean:8.3f} ± {value.half_width:.3f}"


class Gap(NamedTuple):
    """Differences of a warm start from a random one over the same repeats."""

    higher: int
    lower: int
    p_exact: float
    accuracy: Comparison
    anid: Comparison

    @property
    def below(self) -> bool:
        """True if the warm start is worse in mean accuracy or in mean ANID."""
        return self.accuracy.difference.mean < -1e-9 or self.anid.difference.mean > TIE

    @property
    def above(self) -> bool:
        """True if it is better in both, by all tests."""
        sure = max(self.p_exact, self.anid.p_t, self.anid.p_wilcoxon) < LEVEL
        return sure and self.accuracy.difference.mean > 0.0 > self.anid.difference.mean

    def __str__(self) -> str:
        tests = [self.p_exact, self.accuracy.p_t, self.accuracy.p_wilcoxon, self.anid.p_t, self.anid.p_wilcoxon]
        p = [f"{value:9.1e}" for value in tests]
        first = f"{format_interval(self.accuracy.difference)} {self.higher:6d} {self.lower:5d} {' '.join(p[:3])}"
        return f"{first} {format_interval(self.anid.difference)} {' '.join(p[3:])}"


def gap(warm: list[Score], chance: list[Score]) -> Gap:
    """Compare two starts, repeat by repeat."""
    accuracy, distance = ([[getattr(s, m) for s in each] for each in (warm, chance)] for m in ("accuracy", "anid"))
    return Gap(*exact(*accuracy), compare_paired(*accuracy, lower_is_better=False), compare_paired(*distance, tie=TIE))


def same_policy(sets: list[Agents]) -> list[float]:
    """Return for each agent the p of one linear policy against one a data set (F-test, the lower of two actions).

    Directions of the policy features that hardly vary are left out: they would fit anything.
    """
    p_values = []
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
        p_values.append(float(np.min(stats.f.sf((joint - apart) / more / (apart / left), more, left))))
    return p_values
