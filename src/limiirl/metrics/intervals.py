"""Confidence intervals of means and statistics, and paired comparisons of two methods.

The paper's Table 1 prints the full width of each 95 % interval after the "±"; this module prints the half-width.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Real
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from limiirl._typing import FloatArray
from limiirl._validation import (
    as_floats,
    as_generator,
    check_choice,
    check_count,
    check_each,
    check_level,
    check_positive,
)
from limiirl.errors import InvalidParameter, NumericalError

# Relative differences below this value are rounding errors.
_ROUNDING = 1e-14


class Interval(NamedTuple):
    """A mean or another statistic of n values with its confidence interval (low, high).

    A bootstrap interval need not be symmetric around `mean`; `half_width` is half of ``high - low``.

    Examples
    --------
    >>> print(Interval(3.65, 0.33, 3.32, 3.98, 100))
    3.65 ± 0.33
    """

    mean: float
    half_width: float
    low: float
    high: float
    n: int

    def __str__(self) -> str:
        if not math.isfinite(self.half_width) or self.half_width == 0.0:
            return f"{self.mean:.4g} ± {self.half_width:.2g}"
        decimals = max(1 - math.floor(math.log10(self.half_width)), 0)
        return f"{self.mean:.{decimals}f} ± {self.half_width:.{decimals}f}"


def mean_interval(values: ArrayLike, level: float = 0.95) -> Interval:
    """Return the mean of values (n,), n >= 2, with Student's confidence interval ``mean ± t_{n-1} s / sqrt(n)``.

    Examples
    --------
    >>> print(mean_interval([1.0, 2.0, 3.0, 4.0]))
    2.5 ± 2.1
    """
    array = _check_sample(values, "values")
    mean, n = float(array.mean()), array.size
    quantile = float(stats.t.ppf(0.5 + check_level(level) / 2.0, n - 1))
    half = quantile * float(array.std(ddof=1)) / math.sqrt(n)
    return Interval(mean, half, mean - half, mean + half, n)


def bootstrap_interval(
    values: ArrayLike,
    statistic: Callable[..., Any] = np.mean,
    level: float = 0.95,
    *,
    method: Literal["bca", "percentile"] = "bca",
    n_resamples: int = 9999,
    seed: int | np.random.Generator = 0,
) -> Interval:
    """Return a statistic of values (n,) with its bootstrap confidence interval.

    Parameters
    ----------
    values : (n,), n >= 2
    statistic : callable
        Function of an array and `axis`, such as `np.mean` or `np.median`.
    method : "bca" or "percentile"
        Bias-corrected and accelerated bootstrap, or percentile bootstrap.
    n_resamples, seed : int

    Examples
    --------
    >>> interval = bootstrap_interval([1.0, 2.0, 3.0, 10.0], np.median, method="percentile", seed=1)
    >>> interval.mean, interval.low, interval.high
    (2.5, 1.0, 10.0)
    """
    array, _ = _check_sample(values, "values"), check_level(level)
    check_choice(method, "method", ("bca", "percentile"))
    check_count(n_resamples, "n_resamples", bytes_each=8.0 * array.size)
    if not callable(statistic):
        raise InvalidParameter.of("statistic", statistic, "must be a function of an array and axis")
    estimate = float(statistic(array, axis=-1))
    if np.all(array == array[0]):  # BCa would divide by zero
        return Interval(estimate, 0.0, estimate, estimate, array.size)
    low, high = bootstrap((array,), statistic, level, method, n_resamples, seed)
    if not (math.isfinite(low) and math.isfinite(high)):
        message = "The BCa interval is undefined for a degenerate bootstrap distribution. Use method='percentile'."
        raise NumericalError(message, parameter="method", value=method)
    return Interval(estimate, (high - low) / 2.0, low, high, array.size)


def bootstrap(
    samples: tuple[FloatArray, ...], statistic: Callable[..., Any], level: float, method: str, n: int, seed: Any
) -> tuple[float, float]:
    """Return the ends of the bootstrap interval of a statistic of independent samples; nan if BCa is undefined."""
    with warnings.catch_warnings(), np.errstate(invalid="ignore", divide="ignore"):
        warnings.simplefilter("ignore", stats.DegenerateDataWarning)
        interval = stats.bootstrap(
            samples,
            statistic,
            n_resamples=n,
            confidence_level=level,
            method="BCa" if method == "bca" else "percentile",
            rng=as_generator(seed),
        ).confidence_interval
    return float(interval.low), float(interval.high)


def agrees_with(
    ours: Interval | tuple[float, float], paper: Interval | tuple[float, float], rounding: float = 0.0
) -> bool:
    """Return True if two means differ by at most ``sqrt(h_ours^2 + h_paper^2)``, where h are the half-widths.

    Parameters
    ----------
    ours, paper : Interval or tuple
        An interval, or a mean and its half-width. The half-width is half the value that the paper prints after the "±".
    rounding : float
        Rounding error of the printed mean, such as 0.005 for two decimals.

    Examples
    --------
    >>> agrees_with((20.08, 0.57), (19.65, 0.32)), agrees_with((20.08, 0.1), (19.65, 0.1))
    (True, False)
    """
    for name, interval in (("ours", ours), ("paper", paper)):
        if not isinstance(interval, tuple) or not all(isinstance(x, Real) for x in interval[:2]) or len(interval) < 2:
            raise InvalidParameter.of(name, interval, "must be an Interval, or a mean and its half-width")
    check_positive(rounding, "rounding", zero=True)
    return abs(ours[0] - paper[0]) <= math.hypot(ours[1], paper[1]) + rounding


@dataclass(frozen=True)
class Comparison:
    """Paired comparison of two methods on the same problems.

    Attributes
    ----------
    names, means : (str, str), (float, float)
    difference : Interval
        Mean of the differences, first minus second.
    t, p_t, p_wilcoxon : float
        Statistic and p-value of the paired t-test, and p-value of the Wilcoxon signed-rank test; both are two-sided.
    effect : float
        Cohen's d: mean difference divided by the standard deviation of the differences.
    better : str or None
        Name of the better method if both tests are significant at level 1 - `level`, otherwise None.
    """

    names: tuple[str, str]
    means: tuple[float, float]
    difference: Interval
    t: float
    p_t: float
    p_wilcoxon: float
    effect: float
    better: str | None
    level: float

    def to_dict(self) -> dict[str, Any]:
        """Return all fields as JSON types; infinite values are None."""
        values = {name: getattr(self, name) for name in ("t", "p_t", "p_wilcoxon", "effect", "better", "level")}
        plain = {name: None if value in (math.inf, -math.inf) else value for name, value in values.items()}
        pairs = {"names": list(self.names), "means": list(self.means), "difference": self.difference._asdict()}
        return pairs | plain

    def __str__(self) -> str:
        first, second = self.names
        if self.better is not None:
            verdict = f"{self.better} is better than {second if self.better == first else first}"
        elif (self.p_t < 1.0 - self.level) != (self.p_wilcoxon < 1.0 - self.level):
            verdict = f"The two tests disagree about {first} and {second}"
        else:
            verdict = f"No significant difference between {first} and {second}"
        return (
            f"{verdict}: {self.means[0]:.4g} and {self.means[1]:.4g}, difference {self.difference} "
            f"({100 * self.level:g} %) over {self.difference.n} pairs; t-test p = {self.p_t:.2g}, Wilcoxon p = "
            f"{self.p_wilcoxon:.2g}; effect size d = {self.effect:.2f} ({_describe_effect(self.effect)})."
        )


def compare_paired(
    first: ArrayLike,
    second: ArrayLike,
    names: tuple[str, str] = ("the first", "the second"),
    *,
    lower_is_better: bool = True,
    level: float = 0.95,
    tie: float = 0.0,
) -> Comparison:
    """Compare two methods on the same problems.

    Parameters
    ----------
    first, second : (n,), n >= 2
        The i-th entries belong to the same problem.
    names : (str, str)
    lower_is_better : bool
        True for NLL, ANID, EVD and GEVD; False for accuracies.
    level : float
        Confidence level. A difference is significant if the p-values of the paired t-test and of the Wilcoxon
        signed-rank test are both below 1 - level and both tests indicate the same direction. With fewer than six pairs,
        Wilcoxon's p-value is never below 0.05.
    tie : float
        Differences of at most this size count as 0.

    Examples
    --------
    >>> warm, random = [0.03, 0.04, 0.02, 0.05, 0.03, 0.04], [0.13, 0.19, 0.10, 0.21, 0.12, 0.18]
    >>> print(compare_paired(warm, random, ("k-means", "random rewards")))
    k-means is better than random rewards: 0.035 and 0.155, difference -0.120 ± 0.036 (95 %) over 6 pairs; ...
    """
    a, b = _check_sample(first, "first"), _check_sample(second, "second")
    if not isinstance(names, tuple | list) or len(names) != 2:
        raise InvalidParameter.of("names", names, "must be two strings")
    tie = check_positive(tie, "tie", zero=True)
    if a.size != b.size:
        raise InvalidParameter.of("second", b.size, f"must have {a.size} values, for the same problems as first")
    differences = np.where(np.abs(a - b) <= np.maximum(_ROUNDING * np.maximum(np.abs(a), np.abs(b)), tie), 0.0, a - b)
    difference = mean_interval(differences, level)
    t, p_t, effect = _t_test(differences)
    p_w = _wilcoxon_test(differences)
    better = None
    # The tests may be significant in opposite directions, if a few large differences oppose many small ones.
    if max(p_t, p_w) < 1.0 - level and _rank_sum(differences) * difference.mean > 0.0:
        better = names[0] if (difference.mean < 0.0) == lower_is_better else names[1]
    means = (float(a.mean()), float(b.mean()))
    return Comparison((names[0], names[1]), means, difference, t, p_t, p_w, effect, better, level)


def _t_test(differences: FloatArray) -> tuple[float, float, float]:
    """Return t, its two-sided p-value and Cohen's d; t and d are infinite if all differences are equal and nonzero."""
    mean, spread = float(differences.mean()), float(differences.std(ddof=1))
    if spread <= 1e-14 * abs(mean):  # the spread is rounding error
        return (0.0, 1.0, 0.0) if mean == 0.0 else (math.copysign(math.inf, mean), 0.0, math.copysign(math.inf, mean))
    effect = mean / spread
    t = effect * math.sqrt(differences.size)
    return t, float(2.0 * stats.t.sf(abs(t), differences.size - 1)), effect


def _wilcoxon_test(differences: FloatArray) -> float:
    """Return the two-sided p-value of the signed-rank test; zero differences are dropped."""
    nonzero = differences[differences != 0.0]
    return 1.0 if nonzero.size == 0 else float(stats.wilcoxon(nonzero).pvalue)


def _rank_sum(differences: FloatArray) -> float:
    nonzero = differences[differences != 0.0]
    return float(np.sum(np.sign(nonzero) * stats.rankdata(np.abs(nonzero))))


def _describe_effect(effect: float) -> str:
    """Return Cohen's label of an effect size."""
    size = abs(effect)
    return "negligible" if size < 0.2 else "small" if size < 0.5 else "medium" if size < 0.8 else "large"


def _check_sample(values: ArrayLike, name: str) -> FloatArray:
    array = as_floats(values, name)
    if array.ndim != 1 or array.size < 2:
        raise InvalidParameter.of(name, array.shape, "must have shape (n,) with n >= 2")
    check_each(np.isfinite(array), array, name, "must be finite")
    return array
