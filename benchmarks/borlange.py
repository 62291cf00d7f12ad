"""Route choice in Borlänge: held-out log-likelihood over the 20 published splits, with one or more intents.

Run as `python -m benchmarks.borlange [SPLITS]`. The attributes are travel time, left turn, link constant, U-turn and
the logarithm of the number of next links. The number of intents is chosen by BIC within the training trips of a split.
"""

import os
import sys
import time
import warnings
from pathlib import Path

import numpy as np

from benchmarks.measure import describe_machine
from limiirl import DestinationMaxEnt, IntentMixture
from limiirl.errors import LimiirlWarning
from limiirl.mdp import MDP
from tests.integration.test_borlange import read

FOLDER = Path(os.environ.get("LIMIIRL_DATA", Path(__file__).parents[2] / "shared" / "data")) / "borlange"
# Links with this number or a higher one stand for destinations.
FIRST_DESTINATION = 7288
INTENTS = (1, 2, 3)
# Mean total over the splits, from the table of published values; the last is the README's figure for version 0.1.
BEST_BEFORE = -1221.04


def with_next_links(mdp: MDP) -> MDP:
    """Add the logarithm of the number of links that follow the next link (choice aversion, Knies et al. 2022)."""
    real = mdp.dst < FIRST_DESTINATION
    n_next = np.bincount(mdp.src[real], minlength=mdp.n_states)
    column = np.log(np.maximum(1, n_next[mdp.dst])) * real
    return mdp.replace(edge_features=np.column_stack([np.asarray(mdp.edge_features), column]), feature_names=None)


def main() -> None:
    """Print the held-out log-likelihood of each split, and the means."""
    n_splits = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    print(describe_machine())
    mdp, demos = read(FOLDER)
    mdp = with_next_links(mdp)
    splits = np.load(FOLDER / "splits.npz")["test"][:n_splits]
    model, results, chosen = DestinationMaxEnt(bounds=None), np.empty((n_splits, len(INTENTS))), []
    print("split: held-out log-likelihood with 1, 2, 3 intents; intents with the lowest BIC; seconds of CPU")
    for i, test in enumerate(splits):
        begun, bic = time.process_time(), []
        for j, K in enumerate(INTENTS):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", LimiirlWarning)
                mix = IntentMixture(K, model, accelerate=True, random_state=0).fit(mdp, demos[~test])
            if not mix.converged_:
                print(f"  split {i}: {K} intents did not converge")
            bic.append(mix.bic())
            # Without the uniform distribution of starts, the score is conditional on origin and destination.
            results[i, j] = mix.score(demos[test]) * np.count_nonzero(test)
        chosen.append(int(np.argmin(bic)))
        row = "  ".join(f"{value:9.2f}" for value in results[i])
        print(f"  {i:2d}:  {row}   K = {INTENTS[chosen[-1]]}   {time.process_time() - begun:.0f} s", flush=True)
    best = results[np.arange(n_splits), chosen]
    print("mean with 1, 2, 3 intents: " + "  ".join(f"{value:.2f}" for value in results.mean(axis=0)))
    print(f"mean with the number of intents chosen within training: {best.mean():.2f} (version 0.1: {BEST_BEFORE})")


if __name__ == "__main__":
    main()
