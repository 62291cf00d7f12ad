"""Recommendation of the number of intents from several criteria.

Numbers of intents whose held-out likelihood is within two standard errors of the best, or within one nat in total, are
adequate. The recommendation
is the adequate number with the lowest BIC, or the smallest if BIC is unavailable. Fits with nearly empty intents are
excluded, unless there are no others: such a fit effectively has fewer intents, even if it predicts better.
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
from limiirl.mixture.init import standardise

NAMES = {
    "held_out": "held-out likelihood",
    "bic": "BIC",
    "icl": "ICL",
    "aic": "AIC",
    "stability": "stability",
    "stick_breaking": "the stick-breaking GMM",
}
"""Criteria, the most reliable first."""

# Fallback criterion when there are no held-out scores.
_OTHERWISE = {
    "bic": "the lowest BIC, because held-out likelihood is not available",
    "icl": "the lowest ICL, because held-out likelihood and BIC are not available",
    "aic": "the lowest AIC, because held-out likelihood and BIC are not available",
}
# Adjusted Rand index below which labels depend on the sample.
_STABLE = 0.8
# Stabilities within this tolerance of the highest count as tied, and the largest tied number is chosen, because small
# numbers of intents are nearly always stable.
_AS_STABLE = 0.01
# Total held-out log-likelihood, in nats, that is negligible (ADR 0039): a likelihood ratio of e. A nearly constant gain
# per demonstration has a small standard error, however small the gain is.
_NEGLIGIBLE = 1.0
# A fit is a local optimum if its mean log-likelihood is more than this many nats below a fit with fewer intents.
_TRAPPED = 1e-4


@dataclass(frozen=True)
class SelectionRow:
    """Criteria for one number of intents; nan if a criterion is unavailable.

    Attributes
    ----------
    n_intents : int
    log_likelihood, bic, aic, icl : float
        Criteria of the fit to all data; `log_likelihood` is the mean per demonstration, or per group.
    held_out, held_out_se : float
        Mean cross-validated log-likelihood and its standard error.
    behind, behind_se : float
        Amount by which `held_out` is below the best value among fits without nearly empty intents, and its standard
        error. Negative only for fits with nearly empty intents.
    stability : float
        Mean adjusted Rand index between the labels of fits to resamples; nan for one intent.
    n_iter, converged, n_empty, warnings : int, bool, int, tuple of str
        Results of the fit to all data; `n_empty` is the number of nearly empty intents.
    n_warnings, error : int, str
        Number of warnings of all fits, and the messages of failed fits.
    n_units : int
        Number of demonstrations, or groups, with held-out log-likelihoods.
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
    n_units: int = 0


def compare_held_out(
    rows: Sequence[SelectionRow], scores: Mapping[int, FloatArray], blocks: NDArray[np.int64] | None = None
) -> list[SelectionRow]:
    """Add held-out means, differences and standard errors to rows, given log-likelihoods (G,) by number of intents.

    Rows with nan scores (a failed fold) are unchanged. Standard errors are clustered by blocks (G,), if given.
    """
    known = {k: values for k, values in scores.items() if values.size and np.all(np.isfinite(values))}
    if not known:
        return list(rows)
    filled = [row.n_intents for row in _without_empty(rows) if row.n_intents in known]
    best = max(filled or known, key=lambda k: (float(np.mean(known[k])), -k))

    def complete(row: SelectionRow) -> SelectionRow:
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
            n_units=own.size,
        )

    return [complete(row) for row in rows]


def _standard_error(values: FloatArray, blocks: NDArray[np.int64] | None) -> float:
    """Return the standard error of the mean, clustered by blocks."""
    deviations = values - np.mean(values)
    if blocks is not None:
        deviations = np.bincount(blocks, deviations)
    n = deviations.size
    return float(np.sqrt(n / (n - 1) * np.sum(deviations**2)) / values.size) if n > 1 else 0.0


def recommend(rows: Sequence[SelectionRow], stick_breaking_gmm: int | None) -> dict[str, int]:
    """Return the best number of intents by each available criterion, the most reliable first.

    For held-out likelihood it is the smallest number within one standard error of the best; for stability, the largest
    of the most stable numbers.
    """
    chosen = {}
    rows = _without_empty(rows)
    near = adequate(rows, within=1.0)
    if near:
        chosen["held_out"] = near[0].n_intents
    for name in ("bic", "icl", "aic"):
        known = [(getattr(row, name), row.n_intents) for row in rows if np.isfinite(getattr(row, name))]
        if known:
            chosen[name] = min(known)[1]
    stable = [row for row in rows if np.isfinite(row.stability)]
    if stable:
        highest = max(row.stability for row in stable)
        chosen["stability"] = max(row.n_intents for row in stable if row.stability >= highest - _AS_STABLE)
    if stick_breaking_gmm is not None:
        chosen["stick_breaking"] = stick_breaking_gmm
    return chosen


def adequate(rows: Sequence[SelectionRow], within: float = 2.0) -> list[SelectionRow]:
    """Return the rows whose held-out likelihood is near the best: by `within` standard errors, or by one nat in total.

    Examples
    --------
    >>> rows = [SelectionRow(k, behind=gap, behind_se=1e-6, n_units=100) for k, gap in ((1, 0.5), (2, 1e-4), (3, 0.0))]
    >>> [row.n_intents for row in adequate(rows)]
    [2, 3]
    """
    return [row for row in rows if row.behind <= within * row.behind_se or _is_negligible(row)]


def _is_negligible(row: SelectionRow) -> bool:
    return row.n_units > 0 and row.behind * row.n_units <= _NEGLIGIBLE


def _without_empty(rows: Sequence[SelectionRow]) -> Sequence[SelectionRow]:
    return [row for row in rows if row.n_empty == 0] or rows


def explain(rows: Sequence[SelectionRow], recommendations: Mapping[str, int], noun: str) -> tuple[int, str]:
    """Return the recommended number of intents and its explanation: agreeing and differing criteria, and cautions.

    `noun` is "demonstrations" or "groups".
    """
    chosen, why = _choose(rows, recommendations)
    sentences = [f"{_intents(chosen)}: {why}."]
    agree = [NAMES[name] for name, k in recommendations.items() if k == chosen]
    if len(agree) > 1:
        sentences.append(f"{_join(agree)} agree.")
    others = sorted({k for k in recommendations.values() if k != chosen})
    differ = [f"{k} ({_join([NAMES[name] for name, own in recommendations.items() if own == k])})" for k in others]
    if differ:
        sentences.append(f"Other criteria recommend {', '.join(differ)}.")
    return chosen, " ".join(_capital(sentence) for sentence in [*sentences, *_cautions(rows, chosen, noun)])


def _choose(rows: Sequence[SelectionRow], recommendations: Mapping[str, int]) -> tuple[int, str]:
    """Return the recommended number of intents, and the rule behind it."""
    near = adequate(_without_empty(rows))
    if near:
        best = next(row.n_intents for row in near if row.behind == 0.0)
        rule = f"whose held-out likelihood is within two standard errors, or one nat, of the best (K = {best})"
        if len(near) == 1:
            condition = " without nearly empty intents" if len(adequate(rows)) > 1 else ""
            return near[0].n_intents, f"the only number{condition} {rule}"
        alike = f"{_join([str(row.n_intents) for row in near])}, {rule}"
        priced = [(row.bic, row.n_intents) for row in near if np.isfinite(row.bic)]
        if priced:
            return min(priced)[1], f"the lowest BIC among {alike}"
        return near[0].n_intents, f"the smallest of {alike}"
    for name, why in _OTHERWISE.items():
        if name in recommendations:
            return recommendations[name], why
    fitted = min(row.n_intents for row in rows if np.isfinite(row.log_likelihood))
    return fitted, "the smallest number that could be fitted, because no criterion is available"


def _cautions(rows: Sequence[SelectionRow], chosen: int, noun: str) -> list[str]:
    """Return cautions about the recommended number."""
    own = next(row for row in rows if row.n_intents == chosen)
    cautions = []
    if chosen == max(row.n_intents for row in rows) and len(rows) > 1:
        cautions.append("It is the largest number tried: try larger ones.")
    if own.stability < _STABLE:
        cautions.append(
            f"Labels of {noun} depend on the sample (stability {own.stability:.2f}): do not rely on individual labels."
        )
    if np.isfinite(own.log_likelihood) and not own.converged:
        cautions.append("Its fit did not converge: raise max_iter.")
    empty = [str(row.n_intents) for row in rows if row.n_empty]
    if empty:
        cautions.append(f"Fits with {_join(empty)} intents have nearly empty intents.")
    caught = [str(row.n_intents) for row in find_local_optima(rows)]
    if caught:
        cautions.append(
            f"Fits with {_join(caught)} intents are local optima, since fewer intents fit better: raise n_init."
        )
    failed = [str(row.n_intents) for row in rows if row.error]
    if failed:
        cautions.append(f"Fits with {_join(failed)} intents failed; see `error` of their rows.")
    return cautions


def find_local_optima(rows: Sequence[SelectionRow]) -> list[SelectionRow]:
    """Return the rows with a lower likelihood than a fit with fewer intents."""
    worse, highest = [], -np.inf
    for row in rows:
        if row.log_likelihood < highest - _TRAPPED:
            worse.append(row)
        if np.isfinite(row.log_likelihood):
            highest = max(highest, row.log_likelihood)
    return worse


def _intents(k: int) -> str:
    return "1 intent" if k == 1 else f"{k} intents"


def _join(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _capital(sentence: str) -> str:
    return sentence[0].upper() + sentence[1:]


# Regularisation of component covariances, relative to the unit variance of the whitened points.
LEAST_VARIANCE = 0.2
_STARTS = 10
# Relative standard deviation below which a direction is rounding error.
_NO_SPREAD = 1e-8


def whiten(points: FloatArray) -> FloatArray:
    """Return points (G, r) with mean 0 and identity covariance, where r is the rank of the centred points (G, m)."""
    scaled = standardise(points)
    if scaled.shape[1] == 0:
        return scaled
    left, singular, _ = np.linalg.svd(scaled, full_matrices=False)
    kept = singular > _NO_SPREAD * singular[0]
    return np.asarray(left[:, kept] * np.sqrt(len(points)))


def stick_breaking(points: FloatArray, most: int, seed: int) -> int:
    """Return the number of components with weights above 1 / G in a stick-breaking GMM of points (G, m)."""
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
    # The count is valid without convergence.
    with one_thread(), warnings.catch_warnings():
        warnings.simplefilter("ignore", SklearnConvergenceWarning)
        mixture.fit(white)
    return max(1, int(np.count_nonzero(mixture.weights_ > 1.0 / len(white))))
