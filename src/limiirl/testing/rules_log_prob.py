"""Rules about `log_prob`: the E-step of a mixture, which compares intents demonstration by demonstration."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from limiirl.errors import LimiirlError
from limiirl.testing.trial import ROUNDING, Rule, Trial, expect

Float = NDArray[np.float64]
# Where a model has no bounds, a cluster that nothing contradicts drives rewards far out.
_FAR = 1000.0


def log_prob_is_a_matrix(trial: Trial) -> None:
    """log_prob is (N, K), of numbers or -inf, also far out."""
    model, theta = trial.fit()
    thetas = np.vstack([theta, trial.nearby(theta, 2)])
    for given in (thetas[:1], thetas):
        found = trial.log_prob(model, given)
        shape = (trial.n, len(given))
        remedy = "Return a row for each demonstration and a column for each row of thetas, also where there is one."
        expect(found.shape == shape, f"shape {shape}", f"shape {found.shape}", remedy)
        _numbers(found)
    box = trial.box(theta.size)
    for corner in (np.maximum(box.lower, -_FAR), np.minimum(box.upper, _FAR)):
        try:
            far = trial.log_prob(model, corner)
        except LimiirlError:
            continue  # a model may refuse what it cannot compute
        _numbers(far)


def _numbers(found: Float) -> None:
    bad = np.argwhere(np.isnan(found) | (found == np.inf))
    remedy = "Sum in log space (scipy.special.logsumexp); a trajectory that is impossible has -inf."
    expect(not len(bad), "numbers or -inf", f"{found[tuple(bad[0])] if len(bad) else 0} at {bad[:1].tolist()}", remedy)


def log_prob_columns_are_independent(trial: Trial) -> None:
    """An intent's column does not depend on the intents beside it."""
    model, theta = trial.fit()
    thetas = np.vstack([theta, trial.nearby(theta, 2)])
    together = trial.log_prob(model, thetas)
    alone = np.hstack([trial.log_prob(model, one) for one in thetas])
    remedy = "Normalise each intent by itself; a mixture compares them with its own weights."
    _same(together, alone, "each column as for its theta alone", remedy)
    _same(trial.log_prob(model, thetas[::-1]), together[:, ::-1], "columns in the order of thetas", remedy)


def log_prob_rows_follow_demos(trial: Trial) -> None:
    """A demonstration's row goes where the demonstration goes, and does not depend on those beside it."""
    model, theta = trial.fit()
    thetas = np.vstack([theta, trial.nearby(theta, 1)])
    whole, order = trial.log_prob(model, thetas), trial.rng().permutation(trial.n)
    remedy = "Keep what depends on the data out of log_prob; fit may settle it."
    _same(
        trial.log_prob(model, thetas, trial.demos[order]), whole[order], "rows in the order of demonstrations", remedy
    )
    half = order[: max(1, trial.n // 2)]
    _same(trial.log_prob(model, thetas, trial.demos[half]), whole[half], "the same rows for half the data", remedy)


def log_prob_repeats_itself(trial: Trial) -> None:
    """Equal questions get equal answers, whatever was fitted in between to the same demonstrations."""
    model, theta = trial.fit()
    first = trial.log_prob(model, theta)
    remedy = "log_prob depends on its arguments and on the model's parameters, not on the last theta."
    expect(np.array_equal(trial.log_prob(model, theta), first), "the same bits from a second call", "others", remedy)
    model.fit(trial.mdp, trial.demos, weights=trial.weights())
    _same(trial.log_prob(model, theta), first, "the same after a fit with other weights", remedy)


def log_prob_leaves_inputs_alone(trial: Trial) -> None:
    """Thetas and the model's parameters are as before."""
    model, theta = trial.fit()
    thetas = np.vstack([theta, trial.nearby(theta, 2)])
    before = thetas.copy()
    model.log_prob(trial.mdp, thetas, trial.demos)
    expect(np.array_equal(thetas, before), "thetas untouched", "other values", "Work on a copy of thetas.")


def probabilities_sum_to_at_most_one(trial: Trial) -> None:
    """Where moves are certain, complete trajectories exclude each other, so that their probabilities cannot exceed 1.

    Models of whole trajectories leave some for those that stop early; causal models, with or without the probability
    of the moves, give all of it to the complete ones.
    """
    complete = trial.problem.complete
    model = trial.fresh()
    theta = np.asarray(model.fit(trial.mdp, complete, weights=1.0 + np.arange(len(complete or ()))), dtype=np.float64)
    thetas = np.vstack([theta, trial.nearby(theta, 3)])
    total = np.exp(trial.log_prob(model, thetas, complete)).sum(axis=0)
    remedy = "Divide by the sum over all trajectories (or actions). A score that is none declares normalised = False."
    expect(np.all(total <= 1.0 + ROUNDING), "probabilities that sum to at most 1", total.max(), remedy)
    expect(np.all(total > 0.0), "some complete trajectory to be possible", "none", remedy)


def features_are_points(trial: Trial) -> None:
    """`features`, where a model has it, gives a warm start points to cluster."""
    model, _ = trial.fit()
    found = np.asarray(model.features(trial.mdp, trial.demos), dtype=np.float64)
    fine = found.ndim == 2 and len(found) == trial.n and found.shape[1] > 0 and bool(np.all(np.isfinite(found)))
    remedy = "Return a finite point for each demonstration, or leave the method out to have feature counts clustered."
    expect(fine, f"finite points of shape ({trial.n}, m)", f"shape {found.shape}", remedy)


def _same(found: Float, wanted: Float, what: str, remedy: str) -> None:
    fine = found.shape == wanted.shape and np.allclose(found, wanted, rtol=ROUNDING, atol=ROUNDING, equal_nan=True)
    expect(fine, what, "other numbers" if found.shape == wanted.shape else f"shape {found.shape}", remedy)


def _not_listed(trial: Trial) -> str:
    if not getattr(trial.model, "normalised", True):
        return "the model declares normalised = False"
    return "" if trial.problem.complete is not None else "only where all trajectories are listed"


def _no_features(trial: Trial) -> str:
    return "" if hasattr(trial.model, "features") else "the model has no features, which is optional"


RULES = (
    Rule(log_prob_columns_are_independent),
    Rule(log_prob_rows_follow_demos),
    Rule(log_prob_repeats_itself),
    Rule(log_prob_leaves_inputs_alone),
    Rule(probabilities_sum_to_at_most_one, skip=_not_listed),
    Rule(features_are_points, skip=_no_features),
)
