"""Recommendations of `select_intents` on simulated data, by true number of intents.

Run as `python -m benchmarks.select_rule [FIRST_SEED [ROWS [stored]]]`; a data set takes about 10 s. ROWS is a file to
which the criteria of each data set are appended as JSON, so that a run can be continued, and rules can be compared
without new fits; with "stored", nothing is fitted.

There are three worlds with 1 to 4 intents and `N_SEEDS` seeds each. Demonstrators are optimal for even seeds, and
Boltzmann for odd seeds. A data set is separable if EM from the true labels assigns at least `SEPARABLE` of the
demonstrations to their true intent. The rule of ADR 0008 was chosen on ElementWorlds with 2 to 5 intents and on 30
small data sets; the default seeds here were not used to choose any rule.
"""

import json
import sys
import warnings
from dataclasses import fields
from pathlib import Path
from typing import Any

import numba
import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.measure import describe_machine
from limiirl import IntentMixture, select_intents
from limiirl.errors import LimiirlWarning
from limiirl.mixture import Selection, SelectionRow
from limiirl.mixture.selection.recommend import explain
from limiirl.worlds import ElementWorld, ObjectWorld, SyntheticWorld

INTENTS, N_SEEDS, N_DEMOS, LENGTH, MOST, SEPARABLE = range(1, 5), 5, 100, 15, 5, 0.9
WORLDS = {
    "ElementWorld": lambda k, seed: ElementWorld(n_elements=k, height=5, zone_size=3 if k == 1 else 2, seed=seed),
    "ObjectWorld": lambda k, seed: ObjectWorld(size=5, n_objects=8, n_colours=max(k, 2), n_intents=k, seed=seed),
    "SyntheticWorld": lambda k, seed: SyntheticWorld(n_states=31, horizon=6, n_intents=k, separation=0.8, seed=seed),
}


def judge(name: str, n_intents: int, seed: int) -> dict[str, Any]:
    """Return the criteria and the recommendation for one data set, and whether it is separable."""
    world = WORLDS[name](n_intents, seed)
    policy = "boltzmann" if seed % 2 else "optimal"
    demos, labels = world.sample(N_DEMOS, seed=seed, policy=policy, max_length=LENGTH)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LimiirlWarning)
        informed = IntentMixture(n_intents, init=labels).fit(world.mdp, demos)
        selection: Selection = select_intents(world.mdp, demos, range(1, MOST + 1), resamples=0, seed=seed)
    return {
        "world": name,
        "true": n_intents,
        "seed": seed,
        "agreement": float(np.mean(informed.labels_ == labels)),
        "recommended": selection.recommended,
        "criteria": selection.recommendations,
        "rows": selection.to_dict()["rows"],
    }


def read_rows(result: dict[str, Any]) -> list[SelectionRow]:
    """Return the rows of a selection from JSON types."""
    names = [field.name for field in fields(SelectionRow)]
    rows = [{"n_units": N_DEMOS} | row for row in result["rows"]]
    return [SelectionRow(**{name: np.nan if row[name] is None else row[name] for name in names}) for row in rows]


def collect(first_seed: int, path: Path | None, *, stored: bool) -> list[dict[str, Any]]:
    """Return the results of all data sets, or of the `stored` ones; those in the file are read instead of computed."""
    lines = path.read_text().splitlines() if path is not None and path.exists() else []
    known = {(r["world"], r["true"], r["seed"]): r for r in map(json.loads, lines)}
    if stored:
        return [result for result in known.values() if first_seed <= result["seed"] < first_seed + N_SEEDS]
    results = []
    for seed in range(first_seed, first_seed + N_SEEDS):
        for n_intents in INTENTS:
            for name in WORLDS:
                result = known.get((name, n_intents, seed)) or judge(name, n_intents, seed)
                results.append(result)
                if path is not None and (name, n_intents, seed) not in known:
                    with path.open("a") as stream:
                        stream.write(json.dumps(result) + "\n")
    return results


def print_table(title: str, results: list[dict[str, Any]]) -> None:
    """Print the confusion table of the recommendations, and the number of correct results per criterion and world."""
    n, table = len(results), np.zeros((max(INTENTS), MOST), dtype=int)
    for result in results:
        table[result["true"] - 1, result["recommended"] - 1] += 1
    right = sum(r["recommended"] == r["true"] for r in results)
    print(f"\n{title}: recommended correctly {right} of {n} ({100 * right / max(n, 1):.0f} %)")
    print("  true   recommended " + " ".join(f"{k:4d}" for k in range(1, MOST + 1)))
    for k in INTENTS:
        print(f"  {k:4d}   {'':11} " + " ".join(f"{value:4d}" for value in table[k - 1]))
    for name in sorted({name for result in results for name in result["criteria"]}):
        correct = sum(result["criteria"].get(name) == result["true"] for result in results)
        print(f"  {name:<15} {correct:3d} of {n}")
    for name in WORLDS:
        own = [result for result in results if result["world"] == name]
        print(f"  {name:<15} {sum(r['recommended'] == r['true'] for r in own):3d} of {len(own)}")


def main() -> None:
    """Print confusion tables of separable and of other data sets."""
    first_seed = int(sys.argv[1]) if len(sys.argv) > 1 else 5000
    path = Path(sys.argv[2]) if len(sys.argv) > 2 else None
    numba.set_num_threads(1)
    with threadpool_limits(1):
        results = collect(first_seed, path, stored=sys.argv[3:] == ["stored"])
    n_all = len(WORLDS) * len(INTENTS) * N_SEEDS
    print(f"select_rule: select_intents on {len(results)} of {n_all} data sets of {N_DEMOS} demonstrations")
    print(f"seeds {first_seed} to {first_seed + N_SEEDS - 1}; {describe_machine()}")
    for result in results:  # the present rule, also for criteria from a file
        result["recommended"], _ = explain(read_rows(result), result["criteria"], "demonstrations")
    print_table("separable", [r for r in results if r["agreement"] >= SEPARABLE])
    print_table("other", [r for r in results if r["agreement"] < SEPARABLE])


if __name__ == "__main__":
    main()
