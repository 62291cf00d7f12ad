"""The example of `limiirl demo`: recovery of three known intents, and a small study of initialisations."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from limiirl import IntentMixture, MaxEnt
from limiirl._progress import show_progress
from limiirl.experiments import METHODS, Store, choose_studies, iterate_trials, run_studies
from limiirl.metrics import anid
from limiirl.mixture import align_to_labels
from limiirl.report.studies import write_run
from limiirl.worlds import ElementWorld


@dataclass(frozen=True)
class FittedExample:
    """A world, a mixture fitted to it with intents in the order of the true intents, and the true labels (N,)."""

    world: ElementWorld
    mixture: IntentMixture
    labels: NDArray[np.int64]

    @property
    def correct(self) -> int:
        """Number of demonstrations that are assigned to their true intent."""
        return int(np.sum(self.mixture.labels_ == self.labels))

    @property
    def anid(self) -> float:
        """Adjusted normalised information distance between learned and true intents: 0 is perfect, 1 is chance."""
        return anid(np.eye(self.world.n_elements)[self.labels], self.mixture.responsibilities_)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        scores = {"n_demos": len(self.labels), "correct": self.correct, "anid": self.anid}
        return scores | {"summary": self.mixture.summary().to_dict()}


def fit_example(n: int, seed: int) -> FittedExample:
    """Draw n demonstrations, hide their labels, and fit a mixture to them."""
    world = ElementWorld(seed=seed)
    demos, labels = world.sample(n, seed=seed)
    mixture = IntentMixture(world.n_elements, MaxEnt(), random_state=seed).fit(world.mdp, demos.replace(labels=None))
    # The labels only determine the order in which the learned intents are printed.
    return FittedExample(world, align_to_labels(mixture, labels, world.n_elements), labels)


def describe(example: FittedExample) -> str:
    """Describe the world, the mixture and its accuracy."""
    n = len(example.labels)
    return "\n".join(
        [
            "ElementWorld: paths on a cylinder from the start column S to the goal G, across three elements. An agent",
            "of intent k pays 1 per step on element k + 1 and 10 on other elements; wind diverts 10 % of the steps.",
            "",
            str(example.world),
            "",
            f"Mixture fitted to {n} unlabelled demonstrations:",
            "",
            str(example.mixture.summary()),
            "",
            f"{example.correct} of {n} demonstrations are assigned to their true intent.",
            f"ANID (adjusted normalised information distance): {example.anid:.3f}; 0 is perfect, 1 is chance.",
        ]
    )


def run_study(n_worlds: int, folder: Path, words: list[str]) -> Path:
    """Compare the paper's initialisations in `n_worlds` worlds, and return the path of the report."""
    studies = choose_studies(["boxplots"])
    store = Store(folder / "run")
    seeds = sorted({seed for _, seed in iterate_trials(studies, n_worlds)})
    store.note(["limiirl", *words], seeds, [study.name for study in studies])
    with show_progress(f"{len(METHODS)} initialisations in {n_worlds} worlds") as progress:
        run_studies(studies, store, repeats=n_worlds, progress=progress)
    return write_run(store, folder, "Three intents in ElementWorld: a small study")
