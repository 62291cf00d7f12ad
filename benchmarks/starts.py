"""Initialisations of unsupervised mixtures compared with supervision, by number of elements.

Run as `python -m benchmarks.starts [WORLDS] [FIRST_SEED]`; a world takes minutes. Every option is fitted to the same
100 demonstrations per world and evaluated on 100 others. Differences from the same model with the true labels are
paired by world; "yes" means that the 95 % interval lies below 0.02. "objective" is the mean penalised log-likelihood
minus that of EM from the true labels; if it is negative, EM converged to a worse local maximum. Options were chosen on
worlds with seeds 1000 to 1019, never on seeds 0 to 99. Times are for one thread; the time of "supervised", which runs
first, includes compilation.
"""

import sys
import time
import warnings

import numba
import numpy as np
from joblib import Parallel, delayed
from threadpoolctl import threadpool_limits

from benchmarks.measure import describe_machine
from limiirl import IntentMixture
from limiirl.errors import LimiirlWarning
from limiirl.experiments import BASE, NEAR, make_mixture, make_problem
from limiirl.metrics import evaluate, mean_interval

ELEMENTS = (3, 4, 5, 6)
MODELS = ("MaxEnt", "MaxCausalEnt")
OPTIONS: dict[str, dict[str, object]] = {
    "supervised": {"max_iter": 0},
    "EM from the labels": {},
    "k-means": {},
    "k-means, no EM": {"max_iter": 0},
    "GMM": {"init": "gmm"},
    "shares": {"embedding": "shares"},
    "gradients": {"embedding": "gradients"},
    "best start": {"init": "best"},
    "best start, no EM": {"init": "best", "max_iter": 0},
    "split and merge": {"refine": "split_merge"},
    "best, split and merge": {"init": "best", "refine": "split_merge"},
    "k-means, 5 starts": {"n_init": 5},
    "k-means, annealed": {"annealing": (5.0, 10)},
}
LABELLED = ("supervised", "EM from the labels")
Scores = dict[tuple[str, int, str], tuple[float, float, float]]


def run_world(seed: int) -> Scores:
    """Return test ANID, objective and seconds for every model, number of elements and option."""
    scores: Scores = {}
    numba.set_num_threads(1)
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore", LimiirlWarning)
        for model in MODELS:
            for n in ELEMENTS:
                spec = BASE.in_world(n_elements=n).with_(n_intents=n, model=model)
                problem = make_problem(spec, seed)
                for option, parameters in OPTIONS.items():
                    mixture: IntentMixture = make_mixture(spec, seed).set_params(**parameters)
                    if option in LABELLED:
                        mixture.set_params(init=problem.labels)
                    start = time.perf_counter()
                    mixture.fit(problem.world.mdp, problem.demos)
                    seconds = time.perf_counter() - start
                    recovery = evaluate(mixture, problem.test, problem.test_labels, problem.truth).recovery
                    assert recovery is not None  # labels were given
                    scores[model, n, option] = (recovery.anid, mixture.objective_, seconds)
    return scores


def main() -> None:
    """Print one line per model, number of elements and option."""
    n_worlds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    first = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    print(f"starts: {n_worlds} ElementWorlds from seed {first}; mean ± half-width of the 95 % interval")
    print(describe_machine())
    start = time.perf_counter()
    worlds = Parallel(n_jobs=2)(delayed(run_world)(seed) for seed in range(first, first + n_worlds))
    heads = f"{'held-out ANID':>18} {'minus supervised':>18}  {'near':<5} {'objective':>10} {'time / k-means':>14}"
    for model in MODELS:
        for n in ELEMENTS:
            print(f"  {model}, {n} elements\n  {'':<22} {heads}")
            table = {option: np.array([world[model, n, option] for world in worlds]) for option in OPTIONS}
            for option, values in table.items():
                gap = mean_interval(values[:, 0] - table["supervised"][:, 0])
                rise = float(np.mean(values[:, 1] - table["EM from the labels"][:, 1]))
                ratio = float(np.sum(values[:, 2]) / np.sum(table["k-means"][:, 2]))
                near = "yes" if gap.high < NEAR else "no" if gap.low > NEAR else "open"
                row = f"{mean_interval(values[:, 0])!s:>18} {gap!s:>18}  {near:<5} {rise:>+10.4f} {ratio:>14.2f}"
                print(f"  {option:<22} {row}")
    print(f"  {time.perf_counter() - start:.0f} s in total, in two processes")


if __name__ == "__main__":
    main()
