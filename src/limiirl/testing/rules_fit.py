"""Rules about `fit`: the M-step of a mixture, which must repeat itself and never make things worse."""

from __future__ import annotations

import numpy as np

from limiirl.testing.trial import NOT_WORSE, SAME_FIT, Rule, Trial, expect, same_parameters


def fit_returns_theta(trial: Trial) -> None:
    """The parameters come as one vector of finite numbers."""
    _, theta = trial.fit()
    shape = "a vector (d,) of at least one finite number"
    remedy = "Return theta as a one-dimensional array; bounds keep a maximum from running away to infinity."
    expect(theta.ndim == 1 and theta.size, shape, f"shape {theta.shape}", remedy)
    expect(np.all(np.isfinite(theta)), shape, theta, remedy)
    _, other = trial.fit(weights=trial.weights())
    expect(other.shape == theta.shape, f"{theta.size} parameters for any weights", other.shape, remedy)


def fit_respects_bounds(trial: Trial) -> None:
    """Theta lies within `bounds`, from any start."""
    _, theta = trial.fit()
    box = trial.box(theta.size)
    for found in (theta, trial.fit(weights=trial.weights(), start=trial.nearby(theta, 1)[0])[1]):
        out = np.flatnonzero((found < box.lower) | (found > box.upper))
        expect(
            not out.size,
            f"theta within {trial.model.bounds}",
            f"{found[out[:1]]} at parameter {out[:1]}",
            "Pass the bounds to the optimiser, or clip what it returns.",
        )


def fit_repeats_itself(trial: Trial) -> None:
    """Equal questions get equal answers, also of a model that was fitted to something else in between."""
    model, theta = trial.fit()
    remedy = "Seed what is random within fit, and begin from `start` or from a fixed point, not from the last fit."
    expect(np.array_equal(trial.fit()[1], theta), "the same bits from a second fit", "others", remedy)
    model.fit(trial.mdp, trial.demos, weights=trial.weights())
    again = np.asarray(model.fit(trial.mdp, trial.demos))
    expect(np.array_equal(again, theta), "the same bits after another fit of the same object", "others", remedy)


def fit_leaves_inputs_alone(trial: Trial) -> None:
    """Weights, start and the model's parameters are as before."""
    _, theta = trial.fit()
    weights, start = trial.weights(), trial.nearby(theta, 1)[0]
    model, copies = trial.fresh(), (weights.copy(), start.copy())
    before = dict(model.get_params(deep=False))
    model.fit(trial.mdp, trial.demos, weights=weights, start=start)
    for name, value, copied in zip(("weights", "start"), (weights, start), copies, strict=True):
        expect(np.array_equal(value, copied), f"{name} untouched", "other values", f"Work on a copy of {name}.")
    expect(
        same_parameters(before, model.get_params(deep=False)),
        f"the parameters {before} after fit",
        model.get_params(deep=False),
        "Write what fit finds to attributes with a trailing underscore.",
    )


def fit_improves_on_its_start(trial: Trial) -> None:
    """EM starts each M-step from the current reward; one that ends lower is lost."""
    model, theta = trial.fit(weights=trial.weights())
    for start in (theta, *trial.nearby(theta, 2)):
        _, found = trial.fit(weights=trial.weights(), start=start)
        before, after = (trial.objective(model, x, trial.weights()) for x in (start, found))
        expect(
            after >= before - NOT_WORSE * (1.0 + abs(before)),
            f"a mean log-likelihood of at least {before:.6g}, the start's",
            f"{after:.6g}",
            "Keep the best point seen, the start included. A model with a prior says so by Prepared.penalty.",
        )


def fit_beats_other_rewards(trial: Trial) -> None:
    """No parameters nearby explain the weighted demonstrations better."""
    weights = trial.weights()
    model, theta = trial.fit(weights=weights)
    best = trial.objective(model, theta, weights)
    for other in trial.nearby(theta, 8):
        found = trial.objective(model, other, weights)
        expect(
            found <= best + NOT_WORSE * (1.0 + abs(best)),
            "fit to find the highest weighted log-likelihood",
            f"{best:.6g}, and {found:.6g} at theta = {other.round(3)}",
            "Check that fit maximises sum_i weights_i log_prob_i: its sign, its gradient, and that it ran long enough.",
        )


def order_of_demos_is_irrelevant(trial: Trial) -> None:
    """Demonstrations are a set."""
    order, weights = trial.rng().permutation(trial.n), trial.weights()
    model, theta = trial.fit(weights=weights)
    other = trial.fresh().fit(trial.mdp, trial.demos[order], weights=weights[order])
    apart = trial.same_fit(model, theta, np.asarray(other))
    expect(
        apart <= SAME_FIT,
        "the same fit to the same demonstrations in another order",
        f"log-probabilities that differ by {apart:.2g}",
        "Let no demonstration count by its place.",
    )


def _without_bounds(trial: Trial) -> str:
    return "" if getattr(trial.model, "bounds", None) is not None else "the model has no bounds"


RULES = (
    Rule(fit_respects_bounds, skip=_without_bounds),
    Rule(fit_repeats_itself),
    Rule(fit_leaves_inputs_alone),
    Rule(fit_improves_on_its_start),
    Rule(fit_beats_other_rewards),
    Rule(order_of_demos_is_irrelevant),
)
