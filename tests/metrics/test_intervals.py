"""Intervals of a mean, the bootstrap, the rule of agreement with the paper, and paired comparisons."""

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from limiirl.errors import InvalidParameter, NumericalError
from limiirl.metrics.intervals import Interval, agrees_with, bootstrap_interval, compare_paired, mean_interval
from tests.helpers import examples, raises

SKEWED = np.random.default_rng(5).gamma(0.5, size=40)
samples = st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=12).map(np.array)


@given(samples, st.floats(0.05, 0.999))
@settings(max_examples=examples(50))
def test_mean_interval_is_students(values, level):
    result = mean_interval(values, level)
    assert result.n == values.size
    np.testing.assert_allclose(result.mean, math.fsum(values) / values.size, rtol=1e-12, atol=1e-12)
    error = math.sqrt(math.fsum((values - result.mean) ** 2) / (values.size - 1) / values.size)
    # The tail beyond the half-width holds (1 - level) / 2 of Student's law with n - 1 degrees of freedom.
    if error > 1e-9:
        tail = stats.t.sf(result.half_width / error, values.size - 1)
        np.testing.assert_allclose(tail, (1.0 - level) / 2.0, rtol=1e-6)
    np.testing.assert_allclose(
        [result.low, result.high], result.mean + result.half_width * np.array([-1, 1]), rtol=1e-12
    )


def test_half_width_of_a_textbook_sample():
    # n = 4, s = sqrt(5/3), t_{3, 0.975} = 3.1824: a half-width, not the full width that the paper's table prints.
    result = mean_interval([1.0, 2.0, 3.0, 4.0])
    np.testing.assert_allclose(result.half_width, 3.182446305284263 * math.sqrt(5 / 3) / 2, rtol=1e-12)
    np.testing.assert_allclose(result.high - result.low, 2 * result.half_width, rtol=1e-12)


def test_the_interval_covers_the_mean_as_often_as_it_says():
    draws = np.random.default_rng(0).normal(3.0, 2.0, size=(2000, 6))
    hits = sum(abs(result.mean - 3.0) <= result.half_width for result in map(mean_interval, draws))
    assert abs(hits / 2000 - 0.95) < 4 * math.sqrt(0.95 * 0.05 / 2000)


@pytest.mark.parametrize(
    ("interval", "text"),
    [
        (Interval(3.6512, 0.332, 0, 0, 9), "3.65 ± 0.33"),
        (Interval(0.0312, 0.00512, 0, 0, 9), "0.0312 ± 0.0051"),
        (Interval(1234.5, 120.0, 0, 0, 9), "1234 ± 120"),
        (Interval(2.0, 0.0, 2, 2, 9), "2 ± 0"),
    ],
)
def test_intervals_are_printed_to_two_digits_of_their_half_width(interval, text):
    assert str(interval) == text


@pytest.mark.parametrize(("method", "scipys"), [("bca", "BCa"), ("percentile", "percentile")])
def test_bootstrap_repeats_itself_and_is_scipys(method, scipys):
    result = bootstrap_interval(SKEWED, method=method, n_resamples=500, seed=3, level=0.9)
    rng = np.random.default_rng(3)
    wanted = stats.bootstrap(
        (SKEWED,), np.mean, n_resamples=500, method=scipys, confidence_level=0.9, rng=rng
    ).confidence_interval
    assert (result.low, result.high) == (wanted.low, wanted.high)
    assert result.mean == SKEWED.mean()
    np.testing.assert_allclose(result.half_width, (wanted.high - wanted.low) / 2, rtol=1e-12)
    assert result == bootstrap_interval(SKEWED, method=method, n_resamples=500, seed=3, level=0.9)
    assert result != bootstrap_interval(SKEWED, method=method, n_resamples=500, seed=4, level=0.9)


def test_bca_follows_the_skew():
    result, plain = (bootstrap_interval(SKEWED, method=method, seed=1) for method in ("bca", "percentile"))
    assert result.high - result.mean > result.mean - result.low
    assert result.low > plain.low


def test_bootstrap_where_nothing_varies():
    assert bootstrap_interval([2.0, 2.0, 2.0], n_resamples=99) == Interval(2.0, 0.0, 2.0, 2.0, 3)
    with raises(NumericalError, parameter="method"):
        bootstrap_interval(np.append(np.zeros(50), 1.0), np.median, n_resamples=99)
    assert bootstrap_interval(np.append(np.zeros(50), 1.0), np.median, n_resamples=99, method="percentile").high == 0.0


def test_agreement_is_the_root_of_both_squared_half_widths():
    # 3, 4, 5: a gap of exactly the root agrees, one just beyond does not; a sum of half-widths would allow 7.
    assert agrees_with((10.0, 3.0), (15.0, 4.0))
    assert agrees_with((15.0, 3.0), (10.0, 4.0))
    assert not agrees_with((10.0, 3.0), (15.001, 4.0))
    assert agrees_with((10.0, 3.0), (15.001, 4.0), rounding=0.01)
    assert agrees_with(Interval(10.0, 3.0, 7.0, 13.0, 9), Interval(15.0, 4.0, 11.0, 19.0, 9))


@given(st.integers(3, 30), st.integers(0, 10**6))
@settings(max_examples=examples(40))
def test_paired_tests_are_scipys(n, seed):
    rng = np.random.default_rng(seed)
    a, b = rng.normal(size=n), rng.normal(0.5, size=n)
    result = compare_paired(a, b)
    wanted = stats.ttest_rel(a, b)
    np.testing.assert_allclose([result.t, result.p_t], [wanted.statistic, wanted.pvalue], rtol=1e-9)
    np.testing.assert_allclose(result.p_wilcoxon, stats.wilcoxon(a, b).pvalue, rtol=1e-9)
    np.testing.assert_allclose(result.effect, (a - b).mean() / (a - b).std(ddof=1), rtol=1e-12)
    assert result.difference == mean_interval(a - b)
    other = compare_paired(b, a)
    np.testing.assert_allclose([other.p_t, other.p_wilcoxon], [result.p_t, result.p_wilcoxon], rtol=1e-12)
    np.testing.assert_allclose(other.effect, -result.effect, rtol=1e-12)


def test_the_better_method_is_named():
    low, high = np.linspace(0, 1, 12), np.linspace(0, 1, 12) + np.random.default_rng(0).normal(1.0, 0.2, 12)
    assert compare_paired(low, high, ("ours", "theirs")).better == "ours"
    assert compare_paired(high, low, ("ours", "theirs")).better == "theirs"
    assert compare_paired(low, high, ("ours", "theirs"), lower_is_better=False).better == "theirs"
    assert compare_paired(high, low, ("ours", "theirs"), lower_is_better=False).better == "ours"
    text = str(compare_paired(high, low, ("ours", "theirs")))
    assert text.startswith("theirs is better than ours: 1.")
    assert "over 12 pairs" in text
    assert "(large)" in text
    assert str(compare_paired(low, high, ("ours", "theirs"))).startswith("ours is better than theirs")


def test_no_difference_is_claimed_if_tests_are_not_significant():
    rng = np.random.default_rng(2)
    a = rng.normal(size=20)
    result = compare_paired(a, a + rng.normal(0.0, 1.0, 20), ("ours", "theirs"))
    assert result.better is None
    assert str(result).startswith("No significant difference between ours and theirs")
    # One huge difference among small ones the other way: ranks see what the mean does not.
    gaps = np.append(np.full(11, -0.1) - 0.01 * np.arange(11), 30.0)
    torn = compare_paired(gaps, np.zeros(12), ("ours", "theirs"))
    assert torn.p_wilcoxon < 0.05 < torn.p_t
    assert torn.better is None
    assert str(torn).startswith("The two tests disagree about ours and theirs")
    # Five pairs can never satisfy Wilcoxon at 5 %, whatever the t-test says.
    assert compare_paired(np.arange(5.0), np.arange(5.0) + np.linspace(5.0, 5.4, 5)).better is None


def test_equal_differences():
    same = compare_paired([1.0, 2.0, 3.0], [1.0, 2.0, 3.0])
    assert (same.t, same.p_t, same.p_wilcoxon, same.effect, same.better) == (0.0, 1.0, 1.0, 0.0, None)
    assert "(negligible)" in str(same)
    apart = compare_paired(np.arange(8.0), np.arange(8.0) + 2.0)
    assert (apart.t, apart.p_t, apart.effect) == (-math.inf, 0.0, -math.inf)
    assert apart.better == "the first"
    read = json.loads(json.dumps(apart.to_dict(), allow_nan=False))
    assert read["t"] is None
    assert read["difference"]["mean"] == -2.0
    assert read["means"] == [3.5, 5.5]


@pytest.mark.parametrize(
    ("call", "parameter", "attributes"),
    [
        (lambda: mean_interval([1.0]), "values", {}),
        (lambda: mean_interval([[1.0, 2.0]]), "values", {}),
        (lambda: mean_interval([1.0, np.nan]), "values", {"index": 1}),
        (lambda: mean_interval(["a", "b"]), "values", {}),
        (lambda: mean_interval([1.0, 2.0], 95), "level", {"value": 95}),
        (lambda: bootstrap_interval([1.0, 2.0], level=0.0), "level", {"value": 0.0}),
        (lambda: bootstrap_interval([1.0, 2.0], method="BCA"), "method", {"value": "BCA"}),
        (lambda: bootstrap_interval([1.0, 2.0], n_resamples=0), "n_resamples", {"value": 0}),
        (lambda: compare_paired([1.0, 2.0], [1.0, 2.0, 3.0]), "second", {"value": 3}),
        (lambda: compare_paired([1.0, 2.0], [1.0, np.inf]), "second", {"value": np.inf, "index": 1}),
    ],
)
def test_errors(call, parameter, attributes):
    with raises(InvalidParameter, parameter=parameter, **attributes):
        call()


@pytest.mark.parametrize("names", ["kmeans", ("a", "b", "c")])
def test_names_are_two(names):
    with raises(InvalidParameter, parameter="names"):
        compare_paired([1.0, 2.0], [2.0, 4.0], names)


def test_rounding_is_no_difference():
    result = compare_paired([0.1 + 0.2] * 6, [0.3] * 6)
    assert result.better is None
    assert result.p_t == 1.0
