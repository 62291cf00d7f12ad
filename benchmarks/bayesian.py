"""Number of intents inferred by the Bayesian mixture, and ANID, compared with EM with the true number of intents.

Run as `python -m benchmarks.bayesian [WORLDS] [MODEL ...]`. Uses ElementWorlds with 2, 3 and 4 elements (five each by
default), 100 training demonstrations, and 100 test demonstrations for ANID against the true labels. The Bayesian
mixture starts from 10 clusters with the default priors. "BIC" is the number of intents from 1 to 6 with the lowest BIC.
"""

import sys
import time
import warnings

import numpy as np

import limiirl as ll
from benchmarks.measure import describe_machine
from limiirl.errors import LimiirlWarning
from limiirl.irl.defaults import model_class
from limiirl.metrics import anid

ELEMENTS = (2, 3, 4)
MODELS = ("MaxEnt", "MaxCausalEnt")
MOST = 6


def run_world(name: str, n_elements: int, seed: int) -> dict[str, float]:
    """Fit both mixtures to one world."""
    world = ll.worlds.ElementWorld(n_elements=n_elements, seed=seed)
    demos, _ = world.sample(100, seed=2 * seed)
    test, labels = world.sample(100, seed=2 * seed + 1)
    # max_length is a parameter of MaxEnt and must cover both sets.
    longest = {"max_length": int(max(demos.lengths.max(), test.lengths.max()))} if name == "MaxEnt" else {}
    irl, truth = model_class(name)(**longest), np.eye(n_elements)[labels]
    start = time.perf_counter()
    bayesian = ll.BayesianIntentMixture(irl=irl, random_state=0).fit(world.mdp, demos)
    middle = time.perf_counter()
    em = {k: ll.IntentMixture(k, irl, random_state=0).fit(world.mdp, demos) for k in range(1, MOST + 1)}
    return {
        "intents": bayesian.n_intents_,
        "expected": bayesian.expected_intents_,
        "bic": min(em, key=lambda k: em[k].bic(demos)),
        "anid": float(anid(truth, bayesian.predict_proba(test))),
        "em": float(anid(truth, em[n_elements].predict_proba(test))),
        "seconds": middle - start,
    }


def main() -> None:
    """Print one line per model and number of elements."""
    n_worlds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    print(f"bayesian: {n_worlds} ElementWorlds per number of elements, means; ANID on test demonstrations")
    print(describe_machine())
    print("  model          elements  intents inferred       E[K]  BIC selects            ANID  EM, K given  seconds")
    for name in sys.argv[2:] or MODELS:
        for n_elements in ELEMENTS:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", LimiirlWarning)
                worlds = [run_world(name, n_elements, seed) for seed in range(n_worlds)]
            columns = {key: [world[key] for world in worlds] for key in worlds[0]}
            intents, bic = (", ".join(str(int(n)) for n in columns[key]) for key in ("intents", "bic"))
            mean = {key: float(np.mean(values)) for key, values in columns.items()}
            print(
                f"  {name:<14} {n_elements:8d}  {intents:<20} {mean['expected']:6.2f}  {bic:<20} {mean['anid']:6.3f}  "
                f"{mean['em']:12.3f}  {mean['seconds']:7.2f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
