"""Rules about a model inside a mixture: EM climbs, and what was fitted can be saved."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

from limiirl.irl.registry import MODELS
from limiirl.mixture import IntentMixture
from limiirl.testing.trial import ROUNDING, Rule, Trial, expect


def works_in_a_mixture(trial: Trial) -> None:
    """Two intents are learnt, and the objective never falls but where the history says why."""
    mixture = _mixture(trial)
    expect(
        np.all(np.isfinite(mixture.thetas_)) and np.all(np.isfinite(mixture.responsibilities_)),
        "finite rewards and responsibilities",
        mixture.thetas_,
        "Check what fit returns for the weights of a small cluster.",
    )
    for before, entry in zip(mixture.history_[:-1], mixture.history_[1:], strict=True):
        expect(
            entry.event or entry.objective >= before.objective - ROUNDING * (1.0 + abs(before.objective)),
            f"an objective of at least {before.objective:.9g} at iteration {entry.iteration}",
            f"{entry.objective:.9g}",
            "fit must maximise what log_prob computes, and log_prob must not change as the model is fitted.",
        )


def prepared_agrees(trial: Trial) -> None:
    """What EM asks of the model with its data is what the model says of the demonstrations."""
    mixture = _mixture(trial)
    score = mixture.score(trial.demos)
    expect(
        abs(score - mixture.log_likelihood_) <= ROUNDING * (1.0 + abs(score)),
        f"the log-likelihood {score:.9g} that log_prob gives, in EM too",
        f"{mixture.log_likelihood_:.9g}",
        "A prepare of its own, or an inherited one, must compute what log_prob does; remove it to use log_prob itself.",
    )


def saves_and_loads(trial: Trial) -> None:
    """A registered model comes back from disk as it was."""
    mixture = _mixture(trial)
    with tempfile.TemporaryDirectory() as folder:
        mixture.save(Path(folder) / "mixture")
        back = IntentMixture.load(Path(folder) / "mixture")
    expect(
        np.array_equal(back.score_samples(trial.demos), mixture.score_samples(trial.demos)),
        "the same log-likelihoods from a mixture that was saved and loaded",
        "others",
        "Keep what fit settles in attributes with a trailing underscore: numbers, texts, arrays, or lists of them.",
    )


def _mixture(trial: Trial) -> IntentMixture:
    return IntentMixture(n_intents=2, irl=trial.fresh(), random_state=0, max_iter=10).fit(trial.mdp, trial.demos)


def _not_registered(trial: Trial) -> str:
    return "" if type(trial.model) in MODELS.values() else "the model is not registered (limiirl.irl.register_model)"


RULES = (Rule(works_in_a_mixture), Rule(prepared_agrees), Rule(saves_and_loads, skip=_not_registered, once=True))
