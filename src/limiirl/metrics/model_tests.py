"""Tests of fitted models: likelihood ratio, Wald, Vuong, and a parametric bootstrap for the number of intents."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats
from sklearn.base import BaseEstimator, clone

from limiirl._parallel import Mapper, map_tasks
from limiirl._progress import Progress, report_progress
from limiirl._validation import as_floats, as_generator, check_choice, check_count, check_type
from limiirl.demos import Demonstrations, Groups
from limiirl.errors import InvalidParameter, LimiirlWarning
from limiirl.mixture import FunctionEstimate, HypothesisTest, IntentMixture, check_fitted, is_given, training_units

# Largest decrease of a log-likelihood, per unit, that is attributed to the tolerance of a fit.
_TOLERANCE = 1e-6
# Relative size of eigenvalues of a covariance that are treated as zero.
_SINGULAR = 1e-10


def likelihood_ratio_test(restricted: Any, full: Any) -> HypothesisTest:
    """Test the restrictions of a model against a model without them, by 2 (log L_full - log L_restricted).

    Parameters
    ----------
    restricted, full : fitted mixture or summary
        Fitted to the same units, with the same number of intents. `irl.summary(mdp, demos)` is the summary of a model
        that was fitted without a mixture.

    Examples
    --------
    >>> from limiirl import MDP, Demonstrations, MaxEnt
    >>> demos = Demonstrations.from_lists([[0]] * 10 + [[0, 1]] * 20 + [[0, 2]] * 40)
    >>> edges, p0 = ([0, 0], [1, 2]), [1, 0, 0]
    >>> both = MDP.from_edges(*edges, p0=p0, state_features=[[0, 0], [1, 0], [0, 1]])
    >>> same = MDP.from_edges(*edges, p0=p0, state_features=[[0], [1], [1]])
    >>> summaries = []
    >>> for mdp in (same, both):
    ...     irl = MaxEnt(2, bounds=None)
    ...     theta = irl.fit(mdp, demos)
    ...     summaries.append(irl.summary(mdp, demos))
    >>> print(likelihood_ratio_test(*summaries))
    likelihood ratio test: 6.796 with 1 degree of freedom, p = 0.00914
      Valid if ...
    """
    small, large = (_summary(model, name) for model, name in ((restricted, "restricted"), (full, "full")))
    if small.n_intents != large.n_intents:
        message = (
            "restricted and full must have the same number of intents, because a mixture weight of 0 is on the "
            f"boundary of the parameters; got {small.n_intents} and {large.n_intents}. Use bootstrap_test."
        )
        raise InvalidParameter(message, parameter="restricted", value=small.n_intents)
    n, m = _n_units(small), _n_units(large)
    if n != m:
        raise InvalidParameter.of("restricted", n, f"must be fitted to the same {m} units as full")
    df = large.n_free - small.n_free
    if df < 1:
        raise InvalidParameter.of("restricted", small.n_free, f"must have fewer than {large.n_free} free parameters")
    statistic = 2.0 * (large.total_log_likelihood - small.total_log_likelihood)
    if statistic < -_TOLERANCE * n:
        message = (
            f"restricted must not have a higher log-likelihood than full; it is higher by {-0.5 * statistic:.4g}. The "
            "models are not nested, or the fit of full did not converge."
        )
        raise InvalidParameter(message, parameter="restricted", value=-0.5 * statistic)
    conditions = (
        "restricted is full with some parameters fixed or equal, not on bounds; both are at their maximum without a "
        "ridge; units are independent; and the full model is correct."
    )
    statistic = max(statistic, 0.0)
    return HypothesisTest("likelihood ratio test", statistic, df, float(stats.chi2.sf(statistic, df)), conditions)


def _summary(model: Any, name: str) -> Any:
    """Return the summary of a fitted mixture, or the given summary."""
    if hasattr(model, "total_log_likelihood"):
        return model
    if not isinstance(model, BaseEstimator) or not hasattr(model, "summary"):
        raise InvalidParameter.of(name, model, "must be a fitted mixture or a summary")
    return model.summary()


def _n_units(summary: Any) -> int:
    return int(summary.n_units if hasattr(summary, "n_units") else summary.n_steps)


def wald_test(estimate: FunctionEstimate, value: ArrayLike = 0.0) -> HypothesisTest:
    """Test that functions of the parameters have given values, by (f - v)' Cov(f)^-1 (f - v).

    Parameters
    ----------
    estimate : FunctionEstimate
        From `delta_method` of a mixture or of standard errors, for example of differences between two intents. Its
        covariance may be robust or clustered.
    value : scalar or array
        The values under the hypothesis.

    Examples
    --------
    >>> from limiirl import MDP, Demonstrations, MaxEnt
    >>> mdp = MDP.from_edges([0, 0], [1, 2], p0=[1, 0, 0], state_features=[[0, 0], [1, 0], [0, 1]])
    >>> demos = Demonstrations.from_lists([[0]] * 10 + [[0, 1]] * 20 + [[0, 2]] * 40)
    >>> irl = MaxEnt(2, bounds=None)
    >>> theta = irl.fit(mdp, demos)
    >>> equal = irl.standard_errors(mdp, demos).delta_method(lambda weights, thetas: thetas[0, 0] - thetas[0, 1])
    >>> print(wald_test(equal))
    Wald test: 6.406 with 1 degree of freedom, p = 0.0114
      Valid if ...
    """
    check_type(estimate, "estimate", FunctionEstimate, remedy="Pass the result of delta_method.")
    hypothesis = as_floats(value, "value")
    if hypothesis.ndim and hypothesis.shape != estimate.value.shape:
        raise InvalidParameter.of("value", hypothesis.shape, f"must be a number or have shape {estimate.value.shape}")
    gap = (estimate.value - hypothesis).ravel()
    if not np.all(np.isfinite(estimate.covariance)):
        i = int(np.argmin(np.isfinite(np.diag(estimate.covariance))))
        raise InvalidParameter.of("estimate", float(estimate.value.flat[i]), "must have standard errors", index=i)
    scale = np.sqrt(np.diag(estimate.covariance))
    scale = np.where(scale > 0.0, scale, 1.0)
    values, vectors = np.linalg.eigh(estimate.covariance / np.outer(scale, scale))
    kept = values > _SINGULAR * max(float(values.max()), 1e-300)
    statistic = float(np.sum((vectors.T @ (gap / scale))[kept] ** 2 / values[kept]))
    df = int(np.count_nonzero(kept))
    conditions = (
        "the estimates are nearly normal, the functions nearly linear within their errors, and the covariance "
        f"({estimate.method}) is valid: units (or clusters) are independent."
    )
    return HypothesisTest("Wald test", statistic, df, float(stats.chi2.sf(statistic, df)), conditions)


def vuong_test(
    first: ArrayLike,
    second: ArrayLike,
    *,
    n_free: tuple[int, int] | None = None,
    correction: Literal["none", "aic", "bic"] = "none",
    groups: ArrayLike | None = None,
) -> HypothesisTest:
    """Compare two models that are not nested, by the mean of the differences of their log-likelihoods.

    The statistic is nearly standard normal if both models are equally close to the truth; it is positive if the first
    is closer.

    Parameters
    ----------
    first, second : (N,)
        Log-likelihoods of the same demonstrations, for example from `score_samples`.
    n_free : (int, int), optional
        Numbers of free parameters; required for a correction.
    correction : {"none", "aic", "bic"}
        Penalty for parameters estimated from the same demonstrations; none for held-out demonstrations.
    groups : (N,), optional
        Demonstrations of a group may be dependent; differences are summed over groups.

    Examples
    --------
    >>> print(vuong_test([-1.0, -2.0, -1.5, -1.2, -0.9], [-1.1, -2.3, -1.4, -1.6, -1.5]))
    Vuong test: 2.406, p = 0.0161
      Valid if ...
    """
    a, b = (as_floats(values, name) for values, name in ((first, "first"), (second, "second")))
    if a.ndim != 1 or a.size < 2 or not np.all(np.isfinite(a)):
        raise InvalidParameter.of("first", a.shape, "must be finite and have shape (N,) with N >= 2")
    if b.shape != a.shape or not np.all(np.isfinite(b)):
        raise InvalidParameter.of("second", b.shape, f"must be finite and have shape {a.shape}, like first")
    check_choice(correction, "correction", ("none", "aic", "bic"))
    if correction != "none" and n_free is None:
        message = f"n_free is required for correction={correction!r}. Pass two numbers of free parameters."
        raise InvalidParameter(message, parameter="n_free")
    difference = Groups.from_labels(groups, a.size).sum(a - b)
    n = difference.size
    price = {"none": 0.0, "aic": 1.0, "bic": 0.5 * float(np.log(n))}[correction]
    more = 0 if n_free is None else n_free[0] - n_free[1]
    total = float(difference.sum()) - price * more
    spread = float(difference.std(ddof=0))
    if n < 2 or spread == 0.0:
        rule = "must differ from first by different amounts; equal models cannot be compared"
        raise InvalidParameter.of("second", spread, rule)
    statistic = total / (np.sqrt(n) * spread)
    conditions = (
        "neither model contains the other (for nested models use likelihood_ratio_test), the models are "
        f"distinguishable, and the {n} {'groups' if groups is not None else 'demonstrations'} are independent."
    )
    return HypothesisTest("Vuong test", statistic, None, float(2.0 * stats.norm.sf(abs(statistic))), conditions)


def bootstrap_test(
    null: IntentMixture,
    alternative: IntentMixture,
    n_resamples: int = 99,
    *,
    seed: int | np.random.Generator | None = 0,
    progress: Progress | None = None,
    verbose: bool = False,
    executor: Mapper | None = None,
) -> HypothesisTest:
    """Test K intents against more by a parametric bootstrap of the likelihood ratio.

    Data sets of the same size are drawn from the fitted mixture `null`, and both mixtures are fitted to each; the
    p-value is (1 + number of likelihood ratios at least as large as the observed one) / (1 + `n_resamples`). The
    likelihood ratio has no chi-square distribution here, because a weight of 0 is on the boundary of the parameters.

    Parameters
    ----------
    null, alternative : IntentMixture
        Fitted to the same demonstrations, with K and more than K intents. Refits use their parameters; given initial
        labels or rewards are replaced by k-means. With groups, all demonstrations of a group have one intent.
    n_resamples : int
    seed : int, Generator or None
    progress, verbose
        As for `IntentMixture`.
    executor : limiirl.executors.Executor or concurrent.futures.Executor, optional
        Runs the refits in parallel. The result is the same, bit for bit.

    Examples
    --------
    >>> from limiirl import MDP, IntentMixture, MaxEnt
    >>> mdp = MDP.from_edges([0, 0, 1, 1, 2, 2], [1, 2, 1, 2, 2, 1], p0=[1, 0, 0], state_features=[[0], [1], [-1]])
    >>> irl = MaxEnt(4, bounds=(-3, 3))
    >>> demos = irl.sample(mdp, [0.5], 60, 0)
    >>> one, two = (IntentMixture(k, irl, likelihood_tol=1e-3, random_state=0).fit(mdp, demos) for k in (1, 2))
    >>> bootstrap_test(one, two, 19).p > 0.05
    True
    """
    for name, mixture in (("null", null), ("alternative", alternative)):
        if not isinstance(mixture, IntentMixture):
            raise InvalidParameter.of(name, type(mixture).__name__, "must be a fitted IntentMixture")
        check_fitted(mixture)
        if mixture.covariates_ is not None:
            rule = "must have constant mixture weights; use membership_.likelihood_ratio_test for covariates"
            raise InvalidParameter.of(name, "covariates", rule)
    K, L = len(null.weights_), len(alternative.weights_)
    if L <= K:
        raise InvalidParameter.of("alternative", L, f"must have more than {K} intents")
    check_count(n_resamples, "n_resamples")
    units = training_units(null)
    if units is None or training_units(alternative) is None:
        message = "null and alternative must have training data, which a mixture loaded from a file has not. Fit both."
        raise InvalidParameter(message, parameter="null")
    n = len(units)
    observed = 2.0 * n * (alternative.log_likelihood_ - null.log_likelihood_)
    seeds = as_generator(seed).integers(2**63 - 1, size=n_resamples)
    refit = _Refit(null, tuple(_as_template(mixture) for mixture in (null, alternative)), units.index)
    values = []
    with report_progress("refits", verbose, progress) as report:
        for value in map_tasks(refit, seeds.tolist(), executor):
            values.append(value)
            if report is not None:
                report(len(values), n_resamples, f"likelihood ratio {value:.3f}")
    exceeding = int(np.count_nonzero(np.array(values) >= observed - _TOLERANCE * n))
    conditions = (
        f"the model with {K} intents is correct, {units.noun} are independent, and both fits reach the maximum: raise "
        "n_init if not."
    )
    name = f"parametric bootstrap of {K} against {L} intents, {n_resamples} resamples"
    return HypothesisTest(name, observed, None, (1.0 + exceeding) / (1.0 + n_resamples), conditions)


def _as_template(mixture: IntentMixture) -> IntentMixture:
    """Return an unfitted copy with the resolved model and an initialisation that does not depend on the data."""
    init = "kmeans" if is_given(mixture.init) else mixture.init
    changed = clone(mixture).set_params(irl=clone(mixture.irl_), init=init, progress=None, verbose=False)
    result: IntentMixture = changed
    return result


@dataclass(frozen=True, eq=False)
class _Refit:
    """Picklable function that returns the likelihood ratio of one simulated data set."""

    null: IntentMixture
    templates: tuple[IntentMixture, ...]
    groups: NDArray[np.int64] | None

    def __call__(self, seed: int) -> float:
        rng = np.random.default_rng(seed)
        demos = self._draw(rng)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", LimiirlWarning)  # the larger mixture is not identified here
            fits = [
                clone(mixture).set_params(random_state=int(rng.integers(2**31))).fit(self.null.mdp_, demos, self.groups)
                for mixture in self.templates
            ]
        small, large = (fit.log_likelihood_ for fit in fits)
        n = len(demos) if self.groups is None else int(self.groups.max()) + 1
        return float(max(2.0 * n * (large - small), 0.0))

    def _draw(self, rng: np.random.Generator) -> Demonstrations:
        """Return demonstrations with one intent per group."""
        if self.groups is None:
            return self.null.sample(len(self.null.responsibilities_), rng)[0]
        weights = self.null.weights_
        intent = rng.choice(weights.size, size=int(self.groups.max()) + 1, p=weights)[self.groups]
        parts = list(self._draw_intents(np.bincount(intent, minlength=weights.size), rng))
        order = np.empty(intent.size, dtype=np.int64)
        order[np.argsort(intent, kind="stable")] = np.arange(intent.size)
        return Demonstrations.concat(parts)[order]

    def _draw_intents(self, counts: NDArray[np.int64], rng: np.random.Generator) -> Iterator[Demonstrations]:
        for theta, count in zip(self.null.thetas_, counts, strict=True):
            if count:
                yield self.null.irl_.sample(self.null.mdp_, theta, int(count), rng)
