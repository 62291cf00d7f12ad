"""Rules about weights, which in a mixture are responsibilities: how often a demonstration counts."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from limiirl.testing.trial import SAME_FIT, Rule, Trial, expect

Float = NDArray[np.float64]


def no_weights_are_equal_weights(trial: Trial) -> None:
    """weights=None counts every demonstration once."""
    model, theta = trial.fit()
    _alike(trial, model, theta, trial.fit(weights=np.ones(trial.n))[1], "without weights as with weights of 1")


def zero_weight_is_absence(trial: Trial) -> None:
    """A demonstration of weight 0 might as well not be there."""
    weights = trial.weights()
    weights[1::2] = 0.0
    # The longest may settle the model's length, so it stays.
    longest = int(np.argmax(getattr(trial.demos, "lengths", np.zeros(trial.n))))
    weights[longest] = 0.5
    kept = np.flatnonzero(weights)
    model, theta = trial.fit(weights=weights)
    other = trial.fresh().fit(trial.mdp, trial.demos[kept], weights=weights[kept])
    _alike(trial, model, theta, other, "with demonstrations of weight 0 as without them", kept)


def scale_of_weights_is_irrelevant(trial: Trial) -> None:
    """Weights say how demonstrations compare."""
    model, theta = trial.fit(weights=trial.weights())
    for factor in (0.01, 40.0):
        other = trial.fit(weights=factor * trial.weights())[1]
        _alike(trial, model, theta, other, f"for weights as for {factor:g} times these")


def weight_two_is_a_copy(trial: Trial) -> None:
    """A demonstration of weight 2 counts as two of weight 1."""
    twice = np.arange(trial.n) % 3 == 0
    model, theta = trial.fit(weights=1.0 + twice)
    copied = trial.demos[np.concatenate([np.arange(trial.n), np.flatnonzero(twice)])]
    _alike(
        trial, model, theta, trial.fresh().fit(trial.mdp, copied), "for weights of 2 as for demonstrations given twice"
    )


def fit_many_is_fit(trial: Trial) -> None:
    """`fit_many` finds for each column of weights what `fit` finds for it alone, with and without starts."""
    weights = np.column_stack([trial.weights(), trial.weights()[::-1] ** 2, np.ones(trial.n)])
    model, theta = trial.fit()
    for starts in (None, trial.nearby(theta, 3)):
        found = np.asarray(trial.fresh().fit_many(trial.mdp, trial.demos, weights, starts))
        remedy = "Return one row for each column of weights, in their order."
        expect(found.shape == (3, theta.size), f"thetas of shape {(3, theta.size)}", f"shape {found.shape}", remedy)
        for k, row in enumerate(found):
            _, alone = trial.fit(weights=weights[:, k], start=None if starts is None else starts[k])
            _alike(trial, model, alone, row, f"from fit_many in row {k} as from fit")


def _alike(trial: Trial, model: Any, one: Float, other: Any, what: str, which: Any = slice(None)) -> None:
    apart = trial.same_fit(model, one, np.asarray(other, dtype=np.float64), which)
    expect(
        apart <= SAME_FIT,
        f"the same fit {what}",
        f"log-probabilities that differ by {apart:.2g}",
        "Maximise sum_i weights_i log_prob_i / sum_i weights_i, and let weights enter nowhere else.",
    )


def _no_fit_many(trial: Trial) -> str:
    return "" if hasattr(trial.model, "fit_many") else "the model has no fit_many, which is optional"


RULES = (
    Rule(no_weights_are_equal_weights),
    Rule(zero_weight_is_absence),
    Rule(scale_of_weights_is_irrelevant),
    Rule(weight_two_is_a_copy),
    Rule(fit_many_is_fit, skip=_no_fit_many),
)
