"""Held-out log-likelihood of features for recordings without features: mice in a labyrinth (ADR 0023).

Run as `python -m benchmarks.default_features`. It reads `mouse_labyrinth` and `swirl_labyrinth` from
`shared/data` beside the checkout, or from the folder in `LIMIIRL_DATA`. One `MaxCausalEnt` reward is fitted per set of
features and ridge, and scored in nats per step on recordings of other mice (bouts, cut into pieces of 50 steps) or on
SWIRL's test windows. "degree" are indicators of the number of neighbours, and "distances" the numbers of moves to the
four most visited nodes. "turns" are rewards of turning back to the previous state and of staying.
"""

import os
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.csgraph import dijkstra

from benchmarks.measure import describe_machine
from limiirl import MDP, Demonstrations, MaxCausalEnt
from limiirl.demos import with_history
from limiirl.irl import choose_features
from limiirl.mdp import add_edge_features, turn_features

DATA = Path(os.environ.get("LIMIIRL_DATA", Path(__file__).parents[2] / "shared" / "data"))
RIDGES = (1e-5, 1e-4, 1e-3, 1e-2, 1e-1)


def read_bouts() -> tuple[Demonstrations, NDArray[np.bool_]]:
    """Return 4,000 pieces of 19 mice, and the mask of the pieces of every fourth mouse."""
    bouts = pd.read_csv(DATA / "mouse_labyrinth" / "bouts.csv")
    bouts = bouts[bouts.mouse != "D6"]
    nodes = [list(map(int, text.split())) for text in bouts.nodes.astype(str)]
    demos = Demonstrations.from_lists(nodes, groups=bouts.mouse.to_numpy().astype(str)).cut(50)
    demos = demos[demos.lengths > 1]
    demos = demos[np.sort(np.random.default_rng(0).choice(len(demos), 4000, replace=False))]
    mouse = np.asarray(demos.groups)
    return demos, np.isin(mouse, np.unique(mouse)[::4])


def read_windows() -> tuple[Demonstrations, NDArray[np.bool_]]:
    """Return SWIRL's windows, and the mask of its test windows."""
    with np.load(DATA / "swirl_labyrinth" / "labyrinth.npz") as file:
        demos = Demonstrations.from_lists(list(file["states"].astype(int)), list(file["actions"].astype(int)[:, :-1]))
    return demos, np.arange(len(demos)) % 5 == 0


def describe_states(mdp: MDP, demos: Demonstrations) -> NDArray[np.float64]:
    """Return standardised degrees of states and distances to the four most visited states."""
    graph = sparse.csr_array((np.ones(mdp.n_edges), (mdp.src, mdp.dst)), shape=(mdp.n_states, mdp.n_states))
    graph.data[:] = 1.0
    degree = np.diff(graph.indptr)
    often = np.argsort(-np.bincount(demos.states, minlength=mdp.n_states))[:4]
    distance = dijkstra(graph.T.tocsr(), unweighted=True, indices=often).T
    columns = np.hstack([(degree[:, None] == np.unique(degree)).astype(float), distance])
    return np.asarray((columns - columns.mean(axis=0)) / columns.std(axis=0))


def score(mdp: MDP, demos: Demonstrations, train: NDArray[np.int64], test: NDArray[np.bool_], ridge: float) -> float:
    """Return the held-out log-likelihood per step."""
    model, held_out = MaxCausalEnt(ridge=ridge, ridge_per="step", max_evaluations=500), demos[test]
    theta = model.fit_many(mdp, demos[train], np.ones((len(train), 1)))[0]
    total = model.log_prob(mdp, theta, held_out).sum() - np.log(mdp.p0[held_out.start_states]).sum()
    return float(total / held_out.n_transitions)


def main() -> None:
    warnings.simplefilter("ignore")
    print(describe_machine())
    if not (DATA / "mouse_labyrinth").is_dir() or not (DATA / "swirl_labyrinth").is_dir():
        print(f"skipped: no mouse_labyrinth and swirl_labyrinth at {DATA}; set LIMIIRL_DATA to their parent folder")
        return
    for title, (demos, test), sizes in (
        ("bouts", read_bouts(), (20, 100, 2880)),
        ("SWIRL's windows", read_windows(), (8, 190)),
    ):
        mdp = MDP.from_demonstrations(demos, gamma=0.9)
        longer, own = with_history(mdp, demos, keep_starts=True)
        longer = add_edge_features(longer, turn_features(longer))
        extra = describe_states(mdp, demos[~test])
        everything = np.hstack([np.eye(mdp.n_states), extra])
        candidates = {
            "degree, distances": (mdp.replace(state_features=extra), demos),
            "states": (mdp, demos),
            "states, degree, distances": (mdp.replace(state_features=everything), demos),
            "turns": (longer.replace(state_features=None), own),
            "states and turns": (longer, own),
        }
        rng = np.random.default_rng(1)
        for size in sizes:
            train = np.sort(rng.choice(np.flatnonzero(~test), size, replace=False))
            print(f"\n{title}, {size} for training: held-out nats per step, by ridge per step")
            print(f"{'':27}" + "".join(f"{ridge:>10g}" for ridge in RIDGES))
            for name, (changed, steps) in candidates.items():
                values = [score(changed, steps, train, test, ridge) for ridge in RIDGES]
                print(f"{name:27}" + "".join(f"{value:10.4f}" for value in values))
            start = time.process_time()
            choice = choose_features(mdp, demos[train], MaxCausalEnt())
            seconds = time.process_time() - start
            print(
                f"chosen within training: {choice.features}, ridge {choice.ridge:g}; {seconds:.1f} s of processor time"
            )


if __name__ == "__main__":
    main()
