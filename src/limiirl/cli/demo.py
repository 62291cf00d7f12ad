"""What `limiirl demo` does: learn the intents of unlabelled walks, compare with the truth, report a small study."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from limiirl import IntentMixture, MaxEnt
from limiirl._progress import show_progress
from limiirl.experiments import METHODS, Store, choose, run_studies, tasks
from limiirl.metrics import anid
from limiirl.mixture import in_order_of_labels
from limiirl.report.studies import write_run
from limiirl.worlds import ElementWorld


@dataclass(frozen=True)
class Learned:
    """A mixture whose intents stand in the order of the world's, and the true intents (N,)."""

    world: ElementWorld
    mixture: IntentMixture
    labels: NDArray[np.int64]

    @property
    def correct(self) -> int:
        """How many demonstrations were given their true intent."""
        return int(np.sum(self.mixture.labels_ == self.labels))

    @property
    def anid(self) -> float:
        """Distance between learned and true intents: 0 is perfect, 1 is chance."""
        return anid(np.eye(self.world.n_elements)[self.labels], self.mixture.responsibilities_)

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        found = {"n_demos": len(self.labels), "correct": self.correct, "anid": self.anid}
        return found | {"summary": self.mixture.summary().to_dict()}


def learn(n: int, seed: int) -> Learned:
    """Draw n demonstrations, a third by the followers of each element, hide whose they are, and learn it back."""
    world = ElementWorld(seed=seed)
    demos, labels = world.sample(n, seed=seed)
    mixture = IntentMixture(world.n_elements, MaxEnt(), random_state=seed).fit(world.mdp, demos.replace(labels=None))
    # The truth decides only which learned intent is printed first.
    return Learned(world, in_order_of_labels(mixture, labels, world.n_elements), labels)


def tell(found: Learned) -> str:
    """Return the world, what was learned, and how right it is."""
    n, world = len(found.labels), found.world
    verdict = f"Intent k follows element k + 1: {found.correct} of {n} walks were given to the right walkers"
    return "\n".join(
        [
            "A world on a cylinder: from the start column S to the goal G, over three elements. Each of three kinds of",
            "walkers pays 1 for a step on its own element and 10 on any other; the wind blows one step in ten astray.",
            "",
            str(world),
            "",
            f"{n} walks, and nobody says who is who. What the mixture makes of them:",
            "",
            str(found.mixture.summary()),
            "",
            f"{verdict} (ANID {found.anid:.3f} of soft memberships; 0 is perfect, 1 is chance).",
        ]
    )


def study(n_worlds: int, folder: Path, words: list[str]) -> Path:
    """Compare the paper's initialisations in a few worlds, and return the page of the report; records lie beside it."""
    chosen = choose(["boxplots"])
    store = Store(folder / "run")
    seeds = sorted({seed for _, seed in tasks(chosen, n_worlds)})
    store.note(["limiirl", *words], seeds, [study.name for study in chosen])
    with show_progress(f"{len(METHODS)} initialisations in {n_worlds} worlds") as progress:
        run_studies(chosen, store, repeats=n_worlds, progress=progress)
    return write_run(store, folder, "Three kinds of walkers: a small study")
