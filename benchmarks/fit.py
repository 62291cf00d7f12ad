"""Cost of a fit in the paper's ElementWorld setting for each initialisation, compared with scikit-learn's Gaussian EM.

Run as `python -m benchmarks.fit [WORLDS]`.
"""

import sys
import warnings

import numpy as np
from sklearn.exceptions import ConvergenceWarning as SklearnConvergenceWarning
from sklearn.mixture import GaussianMixture

from benchmarks.measure import describe_machine, seconds
from limiirl import IntentMixture, MaxEnt
from limiirl.errors import LimiirlWarning
from limiirl.worlds import ElementWorld

METHODS = (
    ("kmeans", "mle"),
    ("kmeans", "mean"),
    ("kmeans", "mean_ray"),
    ("gmm", "mle"),
    ("random", "mle"),
    ("random_rewards", "mle"),
)


def main() -> None:
    """Print milliseconds per fit, iterations and evaluations."""
    n_worlds = int(sys.argv[1]) if len(sys.argv) > 1 else 40
    warnings.simplefilter("ignore", LimiirlWarning)
    warnings.simplefilter("ignore", SklearnConvergenceWarning)
    print(f"fit: {n_worlds} ElementWorlds, 54 states, 100 demonstrations, K = 3, L = the longest demonstration")
    print(describe_machine())
    data = []
    for seed in range(n_worlds):
        world = ElementWorld(seed=seed)
        demos, _ = world.sample(100, seed=seed)
        data.append((world.mdp, demos))
    IntentMixture(3, MaxEnt(), random_state=0).fit(*data[0])  # compiles
    head = (
        "initialisation",
        "median ms",
        "mean ms",
        "worst ms",
        "over 100 ms",
        "iterations",
        "ms each",
        "evaluations per M-step",
    )
    print("  {:<22} {:>9} {:>8} {:>9} {:>12} {:>11} {:>8} {:>22}".format(*head))
    reference = 0.0
    for init, reward_init in METHODS:
        spent, iterations, evaluations, looped = [], [], [], 0.0
        for seed, (mdp, demos) in enumerate(data):
            mix = IntentMixture(3, MaxEnt(), init, reward_init, random_state=seed)
            spent.append(seconds(lambda mix=mix, mdp=mdp, demos=demos: mix.fit(mdp, demos), 3))
            iterations.append(mix.n_iter_)
            evaluations += [entry.n_evaluations for entry in mix.history_[1:]]
            start = mix.set_params(max_iter=0)
            looped += spent[-1] - seconds(lambda mix=start, mdp=mdp, demos=demos: mix.fit(mdp, demos), 3)
        times = 1e3 * np.array(spent)
        each = 1e3 * looped / sum(iterations)
        print(
            f"  {init + ', ' + reward_init:<22} {np.median(times):9.1f} {times.mean():8.1f} {times.max():9.1f} "
            f"{np.sum(times > 100):12d} {np.mean(iterations):11.1f} {each:8.2f} {np.mean(evaluations):22.1f}"
        )
        if (init, reward_init) == ("kmeans", "mle"):
            reference = each
    gaussian(data, reference)


def gaussian(data: list, reference: float) -> None:
    """Print the time per iteration of scikit-learn's Gaussian EM on the same features, without initialisation."""
    spent, iterations = 0.0, 200
    for seed, (mdp, demos) in enumerate(data):
        points = demos.features(mdp) + 1e-3 * np.random.default_rng(seed).normal(size=(len(demos), mdp.n_features))
        mixture = GaussianMixture(3, reg_covar=1e-4, tol=0.0, random_state=seed)
        for sign, max_iter in ((1.0, iterations + 1), (-1.0, 1)):  # the difference excludes the initialisation
            mixture.set_params(max_iter=max_iter)
            spent += sign * seconds(lambda mixture=mixture, points=points: mixture.fit(points), 3)
    each = 1e3 * spent / (iterations * len(data))
    print(
        f"  scikit-learn's GaussianMixture on the same features: {each:.2f} ms per iteration; limiirl (kmeans, mle)",
        end=" ",
    )
    print(f"takes {reference / each:.1f} times as long, with an exact sum over all trajectories in every M-step")


if __name__ == "__main__":
    main()
