"""The number of intents that each criterion speaks for, and the recommendation.

Held-out likelihood rules out the numbers that predict worse than the best by more than two standard errors of the
difference, unit by unit; of the rest BIC chooses, or the fewest are enough. Fits with empty intents do not count.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning as SklearnConvergenceWarning
from sklearn.mixture import BayesianGaussianMixture

from limiirl._parallel import one_thread
from limiirl._typing import FloatArray
from limiirl.mixture.init import standardised

NAMES = {
    "held_out": "held-out likelihood",
    "bic": "BIC",
    "icl": "ICL",
    "aic": "AIC",
    "stability": "stability",
    "stick_breaking": "the stick-breaking GMM",
}
"""Criteria, the most trusted first."""

# How the recommendation is come to where nothing was held out.
_OTHERWISE = {
    "bic": "by BIC, as nothing was held out",
    "icl": "by ICL, as neither held-out likelihood nor BIC is known",
    "aic": "by AIC, as neither held-out likelihood nor BIC is known",
}
# Below this adjusted Rand index, who follows which intent depends on the sample.
_STABLE = 0.8
# Few intents are nearly always stable; of those that are so alike, the most tell the most.
_AS_STABLE = 0.01
# A fit whose mean log-likelihood is this many nats below that of fewer intents is not the best there is.
_TRAPPED = 1e-4


@dataclass(frozen=True)
class SelectionRow:
    """One number of intents and what speaks for it; nan where a criterion is unknown or was left out.

    Attributes
    ----------
    n_intents : int
    log_likelihood : float
        Mean over demonstrations, or groups, of the fit to all.
    bic, aic, icl : float
        Lower is better.
    held_out, held_out_se : float
        Mean log-likelihood of those left out by cross-validation, and its standard error.
    behind, behind_se : float
        By how much `held_out` is below that of the best number of intents, and the standard error of this difference.
    stability : float
        Mean adjusted Rand index between the labels of fits to resamples; nan for one intent.
    n_iter, converged : int, bool
        Of the fit to all.
    n_empty : int
        Intents that hardly anybody follows in the fit to all.
    n_warnings : int
        Of all fits together.
    warnings : tuple of str
        Of the fit to all.
    error : str
        What failed, and why; empty where all went well.
    """

    n_intents: int
    log_likelihood: float = np.nan
    bic: float = np.nan
    aic: float = np.nan
    icl: float = np.nan
    held_out: float = np.nan
    held_out_se: float = np.nan
    behind: float = np.nan
    behind_se: float = np.nan
    stability: float = np.nan
    n_iter: int = 0
    converged: bool = False
    n_empty: int = 0
    n_warnings: int = 0
    warnings: tuple[str, ...] = ()
    error: str = ""


def compare_held_out(
    rows: Sequence[SelectionRow], scores: Mapping[int, FloatArray], blocks: NDArray[np.int64] | None = None
) -> list[SelectionRow]:
    """Return rows with the means and differences of held-out log-likelihoods (G,), by the number of intents.

    A number of intents with a nan, from a fold that failed, stays unknown: the rest of its folds is other data. Units
    of a block (G,), such as the pieces of an animal's recording, are not taken for independent.
    """
    known = {k: found for k, found in scores.items() if found.size and np.all(np.isfinite(found))}
    if not known:
        return list(rows)
    best = max(known, key=lambda k: (float(np.mean(known[k])), -k))

    def completed(row: SelectionRow) -> SelectionRow:
        if row.n_intents not in known:
            return row
        own = known[row.n_intents]
        difference = known[best] - own
        return replace(
            row,
            held_out=float(np.mean(own)),
            held_out_se=_standard_error(own, blocks),
            behind=float(np.mean(difference)),
            behind_se=_standard_error(difference, blocks),
        )

    return [completed(row) for row in rows]


def _standard_error(values: FloatArray, blocks: NDArray[np.int64] | None) -> float:
    """Return the standard error of the mean, from the totals of blocks where there are any."""
    totals = values - np.mean(values)
    if blocks is not None:
        totals = np.bincount(blocks, totals)
    n = totals.size
    return float(np.sqrt(n / (n - 1) * np.sum(totals**2)) / values.size) if n > 1 else 0.0


def recommend(rows: Sequence[SelectionRow], sticks: int | None) -> dict[str, int]:
    """Return the number of intents that each known criterion speaks for, the most trusted criterion first.

    Held-out likelihood for itself speaks for the fewest within one standard error of the best; stability for the most
    of those that are as stable as the best.

    Examples
    --------
    >>> recommend([SelectionRow(1, bic=20.0, aic=18.0), SelectionRow(2, bic=21.0, aic=16.0)], sticks=2)
    {'bic': 1, 'aic': 2, 'stick_breaking': 2}
    """
    found = {}
    rows = _followed(rows)
    near = adequate(rows, within=1.0)
    if near:
        found["held_out"] = near[0].n_intents
    for name in ("bic", "icl", "aic"):
        known = [(getattr(row, name), row.n_intents) for row in rows if np.isfinite(getattr(row, name))]
        if known:
            found[name] = min(known)[1]
    stable = [row for row in rows if np.isfinite(row.stability)]
    if stable:
        highest = max(row.stability for row in stable)
        found["stability"] = max(row.n_intents for row in stable if row.stability >= highest - _AS_STABLE)
    if sticks is not None:
        found["stick_breaking"] = sticks
    return found


def adequate(rows: Sequence[SelectionRow], within: float = 2.0) -> list[SelectionRow]:
    """Return the rows that predict what was held out within so many standard errors of the best."""
    return [row for row in rows if row.behind <= within * row.behind_se]


def _followed(rows: Sequence[SelectionRow]) -> Sequence[SelectionRow]:
    """Return the rows all of whose intents somebody follows; all rows where there is none."""
    return [row for row in rows if row.n_empty == 0] or rows


def explain(rows: Sequence[SelectionRow], recommendations: Mapping[str, int], noun: str) -> tuple[int, str]:
    """Return the number of intents to use, and why: who agrees, who does not, and what to be careful about.

    Parameters
    ----------
    noun : str
        What follows an intent: "demonstrations" or "groups".

    Examples
    --------
    >>> rows = [SelectionRow(1, -3.0, bic=20.0, converged=True), SelectionRow(2, -2.0, bic=21.0, converged=True)]
    >>> explain(rows, {"bic": 1, "stick_breaking": 2}, "groups")
    (1, '1 intent, by BIC, as nothing was held out. It would be 2 by the stick-breaking GMM.')
    """
    chosen, why = _choose(rows, recommendations, noun)
    sentences = [f"{_intents(chosen)}, {why}."]
    agree = [NAMES[name] for name, k in recommendations.items() if k == chosen]
    if len(agree) > 1:
        sentences.append(f"{_listed(agree)} agree.")
    others = sorted({k for k in recommendations.values() if k != chosen})
    differ = [f"{k} by {_listed([NAMES[name] for name, own in recommendations.items() if own == k])}" for k in others]
    if differ:
        sentences.append(f"It would be {', '.join(differ)}.")
    return chosen, " ".join(_capital(sentence) for sentence in [*sentences, *_cautions(rows, chosen, noun)])


def _choose(rows: Sequence[SelectionRow], recommendations: Mapping[str, int], noun: str) -> tuple[int, str]:
    """Return the number of intents, and the rule that leads to it."""
    near = adequate(_followed(rows)) or adequate(rows)
    if near:
        best = next(row.n_intents for row in rows if row.behind == 0.0)
        rule = f"predict left-out {noun} within two standard errors of the best ({best})"
        if len(near) == 1:
            followed = " all of whose intents somebody follows" if len(adequate(rows)) > 1 else ""
            return near[0].n_intents, f"the only number{followed} to {rule}"
        alike = f"those that {rule}: {_listed([str(row.n_intents) for row in near])}"
        priced = [(row.bic, row.n_intents) for row in near if np.isfinite(row.bic)]
        if priced:
            return min(priced)[1], f"BIC's choice among {alike}"
        return near[0].n_intents, f"the fewest of {alike}"
    for name, why in _OTHERWISE.items():
        if name in recommendations:
            return recommendations[name], why
    fitted = min(row.n_intents for row in rows if np.isfinite(row.log_likelihood))
    return fitted, "the fewest that could be fitted, as no criterion is known"


def _cautions(rows: Sequence[SelectionRow], chosen: int, noun: str) -> list[str]:
    """Return what a reader should know before using the recommended number."""
    own = next(row for row in rows if row.n_intents == chosen)
    found = []
    if chosen == max(row.n_intents for row in rows) and len(rows) > 1:
        found.append("It is the largest number that was tried: try more.")
    if own.stability < _STABLE:
        found.append(
            f"Which {noun} follow which intent depends on the sample (stability {own.stability:.2f}): do not rely on "
            "single labels."
        )
    if np.isfinite(own.log_likelihood) and not own.converged:
        found.append("Its fit did not converge: raise max_iter.")
    empty = [str(row.n_intents) for row in rows if row.n_empty]
    if empty:
        found.append(f"With {_listed(empty)} an intent was left without followers, so that it is one of fewer.")
    caught = [str(row.n_intents) for row in trapped(rows)]
    if caught:
        found.append(f"Fewer intents fit better than {_listed(caught)}, a sign of local optima: raise n_init.")
    failed = [str(row.n_intents) for row in rows if row.error]
    if failed:
        found.append(f"Something failed for {_listed(failed)}; the rows say what.")
    return found


def trapped(rows: Sequence[SelectionRow]) -> list[SelectionRow]:
    """Return the rows whose fit is worse than one of fewer intents, which no best solution is."""
    found, highest = [], -np.inf
    for row in rows:
        if row.log_likelihood < highest - _TRAPPED:
            found.append(row)
        if np.isfinite(row.log_likelihood):
            highest = max(highest, row.log_likelihood)
    return found


def _intents(k: int) -> str:
    return "1 intent" if k == 1 else f"{k} intents"


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _capital(sentence: str) -> str:
    return sentence[0].upper() + sentence[1:]


# A component's variance in any direction of the whitened points is at least this share of theirs, which is 1.
LEAST_VARIANCE = 0.2
_STARTS = 10
# Directions with less than this share of the largest standard deviation are rounding, not data.
_NO_SPREAD = 1e-8


def whiten(points: FloatArray) -> FloatArray:
    """Return points (G, r) of mean 0 and covariance 1, r being the number of directions in which (G, m) vary.

    Constant and collinear columns leave fewer directions than columns. The units of a column do not matter.
    """
    scaled = standardised(points)
    if scaled.shape[1] == 0:
        return scaled
    left, singular, _ = np.linalg.svd(scaled, full_matrices=False)
    kept = singular > _NO_SPREAD * singular[0]
    return np.asarray(left[:, kept] * np.sqrt(len(points)))


def stick_breaking(points: FloatArray, most: int, seed: int) -> int:
    """Return the number of clusters among points (G, m), at most `most`: components of a weight above 1 / G.

    Examples
    --------
    >>> corners = np.repeat([[0.0, 0.0], [9.0, 0.0], [0.0, 9.0]], 20, axis=0)
    >>> stick_breaking(corners + np.random.default_rng(0).normal(size=corners.shape), 6, seed=0)
    3
    """
    white = whiten(points)
    most = min(most, len(white))
    if white.shape[1] == 0 or most < 2:
        return 1
    mixture = BayesianGaussianMixture(
        n_components=most,
        covariance_type="full",
        weight_concentration_prior_type="dirichlet_process",
        weight_concentration_prior=1.0 / most,
        reg_covar=LEAST_VARIANCE,
        n_init=_STARTS,
        max_iter=1000,
        random_state=seed,
    )
    # An early stop changes no count.
    with one_thread(), warnings.catch_warnings():
        warnings.simplefilter("ignore", SklearnConvergenceWarning)
        mixture.fit(white)
    return max(1, int(np.count_nonzero(mixture.weights_ > 1.0 / len(white))))
