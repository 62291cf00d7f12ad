"""Number of intents from the stick-breaking GMM, by covariance type, floor and number of initialisations.

Run as `python -m benchmarks.stick_breaking`: ten ElementWorlds for each of 2 to 5 elements, 100 demonstrations,
whitened features.
"""

import warnings

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import BayesianGaussianMixture

from benchmarks.measure import describe_machine
from limiirl.mixture.selection.recommend import whiten
from limiirl.worlds import ElementWorld

ELEMENTS = (2, 3, 4, 5)
# Different from the worlds on which the settings were chosen.
SEEDS = range(100, 110)
MOST = 6
SETTINGS = [(covariance, floor, 10) for covariance in ("full", "tied", "diag", "spherical") for floor in (0.2, 1e-6)]


def count(points: np.ndarray, covariance: str, floor: float, n_starts: int) -> int:
    """Return the number of components with a weight above 1 / N."""
    mixture = BayesianGaussianMixture(
        n_components=MOST,
        covariance_type=covariance,
        weight_concentration_prior_type="dirichlet_process",
        weight_concentration_prior=1.0 / MOST,
        reg_covar=floor,
        n_init=n_starts,
        max_iter=1000,
        random_state=0,
    ).fit(points)
    return int(np.count_nonzero(mixture.weights_ > 1.0 / len(points)))


def main() -> None:
    """Print the mean count and the number of correct counts for each true number."""
    warnings.simplefilter("ignore", ConvergenceWarning)
    print(f"stick_breaking: components of a stick-breaking GMM with at most {MOST}; mean (correct of {len(SEEDS)})")
    print(describe_machine())
    data: dict[int, list[np.ndarray]] = {}
    for n_elements in ELEMENTS:
        worlds = [ElementWorld(n_elements=n_elements, seed=seed) for seed in SEEDS]
        data[n_elements] = [whiten(world.sample(100, seed=world.seed)[0].features(world.mdp)) for world in worlds]
    print("  covariance  floor  n_init  " + "  ".join(f"K = {k}   " for k in ELEMENTS) + "  correct of 40")
    for covariance, floor, n_starts in [*SETTINGS, ("full", 1e-6, 1)]:
        n_clusters = {k: [count(points, covariance, floor, n_starts) for points in data[k]] for k in ELEMENTS}
        right = {k: sum(value == k for value in n_clusters[k]) for k in ELEMENTS}
        cells = "  ".join(f"{np.mean(n_clusters[k]):.1f} ({right[k]:2d})" for k in ELEMENTS)
        print(f"  {covariance:<10} {floor:6g}  {n_starts:6d}  {cells}  {sum(right.values()):8d}")


if __name__ == "__main__":
    main()
