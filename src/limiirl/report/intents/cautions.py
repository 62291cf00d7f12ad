"""Cautions of the page on a fitted mixture, each with an explanation and a remedy, and recommended next steps."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from limiirl.mixture import Selection, find_equal_pair, find_indistinct_pair, nearly_empty
from limiirl.report.document import Callout
from limiirl.report.intents.view import SURE, IntentsView
from limiirl.report.intents.words import capitalise, reward_claims
from limiirl.report.markup import literal
from limiirl.report.tables import format_percent

# Thresholds: fraction of clearly assigned demonstrations, and fraction of rewards on bounds or not identified.
_DOUBTFUL, _MANY = 0.5, 0.5
# Number of demonstrations per reward below which rewards are poorly determined.
_FEW = 5
# Further iterations would not change the page visibly if the mean change of the posterior probabilities is lower.
_SMALL = 1e-3


def cautions(view: IntentsView, warned: Sequence[str] = ()) -> list[Callout]:
    """Return the cautions on a fit, most serious first."""
    return [*_empty(view), *_duplicates(view), *_convergence(view), *_assignments(view), *reward_cautions(view)] + [
        Callout("note", "Warning issued by the fit", literal(message)) for message in warned
    ]


def _sizes(view: IntentsView) -> tuple[np.ndarray, int]:
    U = view.unit_posterior
    return (view.weights, 1) if U is None else (view.weights * len(U), len(U))


def _empty(view: IntentsView) -> list[Callout]:
    sizes, n = _sizes(view)
    if n < 2:
        return []
    small = [view.names[k] for k in np.flatnonzero(nearly_empty(sizes, n))]
    if not small:
        return []
    return [
        Callout(
            "problem",
            f"{capitalise(list_names(small))} {'is' if len(small) == 1 else 'are'} nearly empty",
            "Almost no demonstration is assigned to a nearly empty intent, so its reward and weight are meaningless. "
            "Use fewer intents.",
        )
    ]


def _duplicates(view: IntentsView) -> list[Callout]:
    U, K = view.unit_posterior, view.n_intents
    if U is None or K < 2:
        return []
    occupied = ~nearly_empty(*_sizes(view))
    pair = find_equal_pair(view.mixture.thetas_, occupied)
    if pair is None and len(U) > 1:
        pair = find_indistinct_pair(U, occupied)
    if pair is None:
        return []
    a, b = (view.names[k] for k in pair)
    return [
        Callout(
            "problem",
            f"{capitalise(a)} and {b} are the same intent",
            "They make the same predictions for all demonstrations, so that their separate weights have no "
            "meaning. Use "
            "fewer intents.",
        )
    ]


def _convergence(view: IntentsView) -> list[Callout]:
    out = []
    if not view.mixture.converged_:
        history = view.mixture.history_
        change = float(history[-1].change) if history else np.inf
        if change < _SMALL:
            text = f"The posterior probabilities change by {change:.1g} per iteration, too little to affect this page."
            out.append(Callout("note", "The fit stopped before it converged completely", text))
        else:
            text = (
                "More iterations would change the result. Raise `max_iter`, or `n_init` to try other initialisations."
            )
            out.append(Callout("problem", "The fit did not converge", text))
    starts = view.mixture.restarts_
    if len(starts) > 1 and sum(start.best for start in starts) == 1:
        text = (
            f"Only one of {len(starts)} initialisations reached the best solution; a better solution may exist. Raise "
            "`n_init`."
        )
        out.append(Callout("caution", "Other initialisations lead to other intents", text))
    return out


def _assignments(view: IntentsView) -> list[Callout]:
    U = view.unit_posterior
    if U is None or view.n_intents < 2:
        return []
    sure = float(np.mean(U.max(axis=1) >= SURE))
    if sure >= _DOUBTFUL:
        return []
    return [
        Callout(
            "caution",
            f"Only {format_percent(sure)} of the {view.noun} are clearly assigned",
            "The intents overlap for most of the data. Interpret averages over many assignments, not single "
            "assignments. Assignments are clearer with longer demonstrations or with one intent per group.",
        )
    ]


def reward_cautions(view: IntentsView) -> list[Callout]:
    """Return the cautions on rewards that are on a bound, not identified, or without clear differences."""
    out, status = [], view.status
    if not view.trained:
        text = (
            "Standard errors require the demonstrations of the fit, but other demonstrations or none were given. Pass "
            "the demonstrations of the fit: `limiirl report MIXTURE --demos FILE`."
        )
        return [Callout("note", "Rewards have no standard errors here", text)]
    bound = float(np.mean(status == "bound"))
    if bound > 0.0:
        features = [view.feature_names[j] for j in np.flatnonzero((status == "bound").any(axis=0))]
        text = (
            f"{format_percent(bound)} of the rewards ({literal(list_names(features, 4))}) are on a bound of the model "
            "and have no standard error: values beyond the bound would fit better. They are not compared in words. "
            "Widen the bounds (`irl__bounds`) or add a ridge."
        )
        out.append(Callout("caution" if bound > _MANY else "note", "Rewards on a bound", text))
    unknown = float(np.mean(np.isin(status, ("not identified", "flat"))))
    if unknown > 0.0:
        text = (
            f"{format_percent(unknown)} of the rewards cannot be determined from these data: other values give the "
            "same behaviour. They are not compared in words. Use fewer features or a ridge, or compare the visits."
        )
        out.append(Callout("caution" if unknown > _MANY else "note", "Rewards that are not identified", text))
    if np.any(status == "contrast"):
        text = "Adding a constant to these rewards does not change any behaviour. They are relative to their mean."
        out.append(Callout("note", "The level of some rewards is not identified", text))
    if np.any(status == "up to scale"):
        text = (
            "The model determines only the proportions of the rewards, which are scaled to sum to 1. They have no "
            "standard errors."
        )
        out.append(Callout("note", "Rewards are proportions", text))
    K = view.n_intents
    if (
        K > 1
        and np.isfinite(view.errors).any()
        and unknown <= _MANY
        and not any(reward_claims(view, k).n_clear for k in range(K))
    ):
        text = "No reward differs clearly between the intents: the data may not contain several intents."
        out.append(Callout("caution", "No clear difference between the rewards", text))
    n = 0 if view.unit_posterior is None else len(view.unit_posterior)
    if 0 < n < _FEW * view.mixture.thetas_.shape[1]:
        text = (
            f"There are {n:,} {view.noun} and {view.mixture.thetas_.shape[1]:,} features per intent. Use fewer "
            "features, such as groups of states, or a ridge (`irl__ridge`)."
        )
        out.append(Callout("note", "Few demonstrations per reward", text))
    return out


def next_steps(view: IntentsView, selection: Selection | None, evaluated: bool) -> list[str]:
    """Return recommendations that follow from a fit."""
    steps = []
    if selection is None and view.estimator != "BayesianIntentMixture":
        steps.append("Compare numbers of intents: `limiirl select DEMOS --report FOLDER`.")
    if len(view.mixture.restarts_) == 1:
        steps.append("Check that the intents do not depend on the initialisation: `limiirl fit ... --n-init 10`.")
    if view.recordings is not None and view.groups is None and view.mixture.groups_ is None:
        steps.append(
            "If each group keeps one intent, fit one intent per group: `limiirl fit ... --by-group`. "
            "Hold out whole groups in `limiirl select ... --fold-by-group`."
        )
    unknown = np.isin(view.status, ("not identified", "flat", "bound"))
    if view.trained and np.mean(unknown) > _MANY:
        steps.append("Describe the states by fewer features than there are states, so that the rewards are determined.")
    if not evaluated:
        steps.append("Measure the prediction of new data: `limiirl evaluate MIXTURE TEST --report FOLDER`.")
    steps.append("Assign new recordings to these intents: `limiirl predict MIXTURE NEW --out labels.csv`.")
    if all(name == f"intent {k}" for k, name in enumerate(view.names)):
        steps.append('Name the intents: `mix.report(folder, intent_names=["...", ...])`.')
    return steps


def list_names(names: Sequence[str], most: int = 6) -> str:
    """Return names as prose, at most `most` of them."""
    shown = list(names[:most])
    left = len(names) - len(shown)
    if left:
        return f"{', '.join(shown)} and {left} more"
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"
