"""Table 1 of the paper, the ElementWorld half but for GEVD: NLL and ANID of every initialisation over 100 worlds.

Run as `python -m benchmarks.elementworld [WORLDS]`. Three elements, wind 0.1, height 6, discount 0.99, 100
demonstrations to learn from and 100 others to test, bounds -10 to 0; the largest length is the longest demonstration
of both sets. The paper's own warm starts end after 3.4 iterations on average, by a rule that its inexact gradient
triggers; a line with 3 iterations isolates what that does.
"""

import sys
import time
import warnings
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray
from scipy.stats import ttest_rel, wilcoxon

from benchmarks.measure import describe_machine
from limiirl import IntentMixture, MaxEnt
from limiirl.errors import LimiirlWarning
from limiirl.metrics import Interval, agrees, anid, mean_interval
from limiirl.worlds import ElementWorld

N_DEMOS = 100
# Initialisation, rewards, and the most iterations.
METHODS = {
    "supervised": ("labels", "mle", 0),
    "k-means, MLE": ("kmeans", "mle", 100),
    "k-means, MLE, 3 steps": ("kmeans", "mle", 3),
    "k-means, mean": ("kmeans", "mean", 100),
    "GMM, MLE": ("gmm", "mle", 100),
    "random responsibilities": ("random", "mle", 100),
    "random rewards": ("random_rewards", "mle", 100),
}
# Mean and half-width of the 95 % interval of test NLL and ANID; the paper prints the full widths.
PAPER = {
    "supervised": ((19.65, 0.33), (0.04, 0.005)),
    "k-means, MLE": ((19.65, 0.32), (0.03, 0.005)),
    "k-means, MLE, 3 steps": ((19.65, 0.32), (0.03, 0.005)),
    "k-means, mean": ((19.76, 0.225), (0.04, 0.005)),
    "random rewards": ((20.05, 0.355), (0.13, 0.035)),
}
# The paper's ANID has two decimals.
ROUNDING = (0.0, 0.005)


@dataclass(frozen=True)
class Record:
    """What one fit in one world came to."""

    iterations: int
    seconds: float
    nll: float
    anid: float
    train_anid: float
    converged: bool


def run_world(seed: int, max_length: int | None = None, methods: Iterable[str] = METHODS) -> dict[str, Record]:
    """Fit methods to the demonstrations of one world."""
    world = ElementWorld(seed=seed)
    train, train_labels = world.sample(N_DEMOS, seed=2 * seed)
    test, test_labels = world.sample(N_DEMOS, seed=2 * seed + 1)
    longest = max_length or int(max(train.lengths.max(), test.lengths.max()))
    truth, train_truth = np.eye(3)[test_labels], np.eye(3)[train_labels]
    found = {}
    for name in methods:
        init, reward_init, most = METHODS[name]
        given = train_labels if init == "labels" else init
        mix = IntentMixture(3, MaxEnt(longest), given, reward_init, max_iter=most, random_state=seed)
        start = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", LimiirlWarning)
            mix.fit(world.mdp, train)
        seconds = time.perf_counter() - start
        scores = (-mix.score(test), anid(truth, mix.predict_proba(test)), anid(train_truth, mix.responsibilities_))
        found[name] = Record(mix.n_iter_, seconds, *scores, mix.converged_)
    return found


def verdict(ours: Interval, paper: tuple[float, float], rounding: float) -> str:
    """Return "agrees", "in rounding" if it does for some number that the paper would print so, or "DIFFERS"."""
    if agrees(ours, paper):
        return "agrees"
    return "in rounding" if agrees(ours, paper, rounding) else "DIFFERS"


def gather(
    n_worlds: int, max_length: int | None = None, methods: Iterable[str] = METHODS, n_jobs: int = 2
) -> dict[str, dict[str, NDArray[np.float64]]]:
    """Run all worlds; arrays over worlds by method and measure."""
    records = Parallel(n_jobs=n_jobs)(delayed(run_world)(seed, max_length, tuple(methods)) for seed in range(n_worlds))
    measures = ("iterations", "nll", "anid", "train_anid")
    return {
        name: {m: np.array([getattr(record[name], m) for record in records], dtype=float) for m in measures}
        for name in methods
    }


def show(found: dict[str, dict[str, NDArray[np.float64]]]) -> None:
    """Print a line a method, the paper's figure in brackets, and paired tests against random rewards."""
    print(f"  {'':<24} {'iterations':>10}  {'test NLL':>35}  {'test ANID':>35}  {'training ANID':>15}")
    for name, measured in found.items():
        cells = []
        for j, measure in enumerate(("nll", "anid")):
            ours = mean_interval(measured[measure])
            cell = f"{ours[0]:7.3f} ± {ours[1]:.3f}"
            if name in PAPER:
                paper = PAPER[name][j]
                cell += f" ({paper[0]:.2f}: {verdict(ours, paper, ROUNDING[j])})"
            cells.append(cell)
        train = mean_interval(measured["train_anid"])
        cells.append(f"{train[0]:.3f} ± {train[1]:.3f}")
        print(f"  {name:<24} {measured['iterations'].mean():10.1f}  {cells[0]:>35}  {cells[1]:>35}  {cells[2]:>15}")
    print("  Against random rewards, paired by world, ANID of the test set:")
    baseline = found["random rewards"]["anid"]
    for name in ("k-means, MLE", "k-means, mean", "GMM, MLE", "random responsibilities"):
        ours = found[name]["anid"]
        p_t = ttest_rel(ours, baseline, alternative="less").pvalue
        p_w = wilcoxon(ours, baseline, alternative="less").pvalue
        print(f"    {name:<24} {np.mean(ours - baseline):+.3f}, t-test p = {p_t:.1e}, Wilcoxon p = {p_w:.1e}")


def main() -> None:
    """Print the table with the paper's lengths, then with L = 50."""
    n_worlds = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    print(f"elementworld: {n_worlds} worlds, {N_DEMOS} demonstrations, mean ± half-width of the 95 % interval (paper)")
    print(describe_machine())
    start = time.perf_counter()
    print("L = the longest demonstration of each world")
    show(gather(n_worlds))
    print("L = 50")
    show(gather(n_worlds, max_length=50))
    print(f"  {time.perf_counter() - start:.0f} s in all, on two processes")


if __name__ == "__main__":
    main()
