"""The example of `limiirl demo`: recovery of three known intents, and a small study of initialisations."""

from __future__ import annotations

import warnings
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from limiirl import IntentMixture, MaxEnt
from limiirl._progress import show_progress
from limiirl.errors import ModelMismatchWarning
from limiirl.experiments import METHODS, Store, choose_studies, iterate_trials, run_studies
from limiirl.mixture import align_to_labels
from limiirl.report import write
from limiirl.report.studies import (
    DemoExample,
    accuracy_rows,
    compare_initialisations,
    demo_report,
    describe_intents,
    element_features,
    gather,
)
from limiirl.worlds import ElementWorld

if TYPE_CHECKING:
    from limiirl.experiments import Record


def fit_example(n: int, seed: int) -> DemoExample:
    """Draw n demonstrations, hide their labels, and fit a mixture to them."""
    world = ElementWorld(seed=seed)
    demos, labels = world.sample(n, seed=seed)
    demos = demos.replace(labels=None)
    with warnings.catch_warnings():
        # This is the paper's setting. `fit` warns that MaxEnt treats random deflections by the wind as choices.
        warnings.simplefilter("ignore", ModelMismatchWarning)
        mixture = IntentMixture(world.n_elements, MaxEnt(), random_state=seed).fit(world.mdp, demos)
    # The labels determine only the order in which the learned intents are shown.
    mixture = align_to_labels(mixture, labels, world.n_elements)
    return DemoExample(world, demos, mixture, labels, mixture.summary())


def to_dict(example: DemoExample) -> dict[str, Any]:
    """Return a dictionary for JSON."""
    scores = {"n_demos": len(example.labels), "correct": example.correct, "anid": example.anid}
    return scores | {"summary": example.summary.to_dict()}


def describe(example: DemoExample) -> str:
    """Describe the intents and the accuracy of their assignment in a few lines."""
    n, summary = len(example.labels), example.summary
    described = zip(summary.weights, describe_intents(summary, element_features(example.world)), strict=True)
    lines = [
        f"{summary.n_intents} intents learned from {n} unlabelled trajectories in a grid world with three elements:",
        "",
    ]
    lines += [f"  intent {k}  {100 * weight:3.0f} %  {text}" for k, (weight, text) in enumerate(described)]
    lines += [
        "",
        f"{example.correct} of {n} trajectories are assigned to their true intent (not used in the fit).",
    ]
    return "\n".join(lines)


def run_study(n_worlds: int, folder: Path, words: list[str]) -> Store[Record]:
    """Compare the paper's initialisations in `n_worlds` worlds."""
    studies = choose_studies(["boxplots"])
    store = Store(folder / "run")
    seeds = sorted({seed for _, seed in iterate_trials(studies, n_worlds)})
    store.note(["limiirl", *words], seeds, [study.name for study in studies])
    with show_progress(f"{len(METHODS)} initialisations in {n_worlds} worlds") as progress:
        run_studies(studies, store, repeats=n_worlds, progress=progress)
    return store


def describe_study(store: Store[Record]) -> str:
    """List the percentage of correctly assigned test trajectories per initialisation."""
    lines = []
    for results in gather(store):
        n = len(results.seeds)
        worlds = "1 world" if n == 1 else f"{n} worlds, with 95 % intervals"
        lines += [f"Test trajectories assigned to the correct intent by initialisation ({worlds}):", ""]
        lines += [f"  {method:<24} {text:>18}" for method, text in accuracy_rows(results)]
        lines += ["", *wrap(compare_initialisations(results), 110)]
    return "\n".join(lines)


def write_report(example: DemoExample, store: Store[Record], folder: Path) -> Path:
    """Write the report, and return the path of its page."""
    with show_progress("writing the report") as progress:
        return write(demo_report(example, store), folder, progress)
