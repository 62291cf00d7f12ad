"""Rewards, clusters and time of a mixture of each single-intent model in the paper's setting.

Run as `python -m benchmarks.models [WORLDS]`. Every model is fitted to the same 100 demonstrations per world,
initialised with k-means and maximum likelihood, and evaluated on 100 others; the same model with the true labels is
printed for comparison. ML-IRL with q="hard", beta 0.5 and rewards in [-10, 0] is the model of the paper's appendix.
Likelihoods are not compared, because causal models do not include the probability of stopping.
"""

import sys
import time

from joblib import Parallel, delayed

from benchmarks.measure import describe_machine
from limiirl.experiments import BASE, Record, method_spec, parameters, run_trial
from limiirl.metrics import compare_paired, mean_interval

MODELS = {
    "MaxEnt": BASE,
    "MaxCausalEnt": BASE.with_(model="MaxCausalEnt"),
    "MaxCausalEnt, [-10, 0]": BASE.with_(model="MaxCausalEnt", model_parameters=parameters(bounds=(-10.0, 0.0))),
    "MLIRL": BASE.with_(model="MLIRL"),
    "MLIRL, [-10, 0]": BASE.with_(model="MLIRL", model_parameters=parameters(bounds=(-10.0, 0.0))),
    "MLIRL, q = bv": BASE.with_(model="MLIRL", model_parameters=parameters(q="bv")),
}
METHODS = ("k-means, MLE", "supervised")


def run_world(seed: int) -> dict[tuple[str, str], Record]:
    """Fit every model to one world."""
    return {
        (model, method): run_trial(method_spec(spec, method), seed)
        for model, spec in MODELS.items()
        for method in METHODS
    }


def main() -> None:
    """Print one line per model, and paired tests against MaxEnt."""
    n_worlds = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    print(f"models: {n_worlds} ElementWorlds, mean ± half-width of the 95 % interval, supervised in brackets")
    print(describe_machine())
    start = time.perf_counter()
    worlds = Parallel(n_jobs=2)(delayed(run_world)(seed) for seed in range(n_worlds))
    heads = f"{'GEVD':>32} {'ANID':>36} {'iterations':>12} {'seconds':>9}  p of GEVD and ANID against MaxEnt"
    print(f"  {'model':<24} {heads}")
    for model in MODELS:

        def values(measure: str, method: str, model: str = model) -> list[float]:
            return [float(getattr(world[model, method], measure)) for world in worlds]

        cells = [
            f"{mean_interval(values(m, 'k-means, MLE'))} ({mean_interval(values(m, 'supervised')).mean:.4f})"
            for m in ("gevd", "anid")
        ]
        plain = [mean_interval(values(m, "k-means, MLE")).mean for m in ("n_iter", "seconds")]
        tests = [
            compare_paired(values(m, "k-means, MLE"), values(m, "k-means, MLE", "MaxEnt"), tie=1e-4)
            for m in ("gevd", "anid")
        ]
        p_values = "" if model == "MaxEnt" else ", ".join(f"{max(t.p_t, t.p_wilcoxon):.1g}" for t in tests)
        print(f"  {model:<24} {cells[0]:>32} {cells[1]:>36} {plain[0]:12.1f} {plain[1]:9.3f}  {p_values}")
    print(f"  {time.perf_counter() - start:.0f} s in total, in two processes")


if __name__ == "__main__":
    main()
