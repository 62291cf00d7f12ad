"""Permutation tests over groups against enumeration and the rank-sum test, their size, intervals and corrections."""

import json
import math
from itertools import permutations

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from limiirl.errors import InvalidDemos, InvalidParameter
from limiirl.metrics import compare_groups, correct_p_values
from tests.helpers import examples, raises

mpl.use("agg")

values = st.lists(st.integers(-4, 4), min_size=2, max_size=3)


def contrast(a, b):
    """Comparison of two samples."""
    condition = ["a"] * len(a) + ["b"] * len(b)
    (row,) = compare_groups([*a, *b], condition, n_resamples=2).rows
    return row


@given(values, values)
@settings(max_examples=examples(30))
def test_p_value_is_that_of_all_permutations(a, b):
    row = contrast(a, b)
    n = len(a)
    differences = [
        abs(len(b) * sum(order[:n]) - n * sum(order[n:]))
        for order in permutations([*a, *b])  # integers, without error
    ]
    observed = abs(len(b) * sum(a) - n * sum(b))
    expected = np.mean([difference >= observed for difference in differences])
    np.testing.assert_allclose(row.p, expected, rtol=1e-12)
    assert row.exact
    assert row.n_assignments == math.comb(n + len(b), n)
    assert row.p >= row.least_p - 1e-15


@pytest.mark.parametrize(("n", "m", "exact"), [(5, 7, True), (9, 9, True), (14, 12, False)])
def test_p_value_of_ranks_is_that_of_the_rank_sum_test(n, m, exact):
    ranks = stats.rankdata(np.random.default_rng(n).normal(size=n + m) + 0.8 * (np.arange(n + m) < n))
    row = contrast(ranks[:n], ranks[n:])
    expected = stats.mannwhitneyu(ranks[:n], ranks[n:], method="exact").pvalue
    assert row.exact == exact
    # The number of extreme assignments among 10,000 random ones is binomial.
    tolerance = 1e-12 if exact else 4.0 * math.sqrt(expected * (1.0 - expected) / 10_000)
    np.testing.assert_allclose(row.p, expected, rtol=0, atol=tolerance)


@pytest.mark.parametrize("skewed", [False, True])
@pytest.mark.slow
def test_size_of_the_test(skewed):
    rng = np.random.default_rng(3)
    draws = rng.lognormal(size=(2000, 12)) if skewed else rng.normal(size=(2000, 12))
    names = [str(i) for i in range(len(draws))]
    condition = np.repeat(["a", "b"], [5, 7])
    rows = compare_groups(draws.T, condition, names, n_resamples=2, correction="none").rows
    assert 0.03 <= np.mean([row.p <= 0.05 for row in rows]) <= 0.07
    assert np.mean([row.p <= 0.5 for row in rows]) == pytest.approx(0.5, abs=0.04)


def test_holm_controls_the_familywise_error_and_a_real_difference_is_significant():
    rng = np.random.default_rng(0)
    columns = {"equal": rng.normal(size=14), "different": rng.normal(size=14) + np.repeat([0.0, 3.0], 7)}
    result = compare_groups(pd.DataFrame(columns), np.repeat([0, 1], 7))
    equal, different = result.rows
    assert different.p_corrected == pytest.approx(2 * different.p)
    assert different.p_corrected < 0.05 < equal.p
    assert different.low < -3.0 < different.high < 0.0
    assert (different.first, different.second) == ("0", "1")


def test_interval_is_that_of_the_normal_law_for_many_groups():
    rng = np.random.default_rng(1)
    a, b = rng.normal(size=300), rng.normal(size=400) + 1.0
    (row,) = compare_groups([*a, *b], [True] * 300 + [False] * 400).rows
    error = math.sqrt(a.var(ddof=1) / 300 + b.var(ddof=1) / 400)
    assert row.difference == pytest.approx(b.mean() - a.mean())
    np.testing.assert_allclose([row.low, row.high], row.difference + 1.96 * error * np.array([-1, 1]), rtol=0.02)


def test_missing_values_and_conditions_with_one_group():
    table = {"x": [1.0, np.nan, 2.0, 3.0, 4.0, 9.0], "y": [np.nan, np.nan, 2.0, 3.0, 4.0, 9.0]}
    x, y = compare_groups(table, list("aaabbb")).rows
    assert (x.n_first, x.n_second, x.n_assignments) == (2, 3, 10)
    assert (y.n_first, y.n_second) == (1, 3)
    assert np.isnan([y.p, y.p_corrected, y.low, y.high]).all()
    assert x.p_corrected == x.p  # the row without a test is not counted


def test_all_pairs_of_conditions_are_compared_and_equal_values_have_no_difference():
    result = compare_groups([1.0] * 9, list("abc") * 3, groups=[f"m{i}" for i in range(9)])
    assert [(row.first, row.second) for row in result.rows] == [("a", "b"), ("a", "c"), ("b", "c")]
    assert {(row.p, row.low, row.high) for row in result.rows} == {(1.0, 0.0, 0.0)}
    assert result.groups[8] == "m8"
    assert json.loads(json.dumps(result.to_dict()))["rows"][0]["p"] == 1.0
    assert len(result.to_frame()) == 3
    # Three groups on each side have 20 assignments, so that no difference can be significant.
    assert result.rows[0].least_p == pytest.approx(0.1)
    assert len(result.notes) == 2


def test_corrections_by_definition():
    p = np.array([0.3, 0.01, np.nan, 0.04, 0.012])
    order = [0.01, 0.012, 0.04, 0.3]
    holm = dict(zip(order, np.maximum.accumulate([4 * 0.01, 3 * 0.012, 2 * 0.04, 0.3]), strict=True))
    np.testing.assert_allclose(correct_p_values(p)[[0, 1, 3, 4]], [holm[x] for x in p[[0, 1, 3, 4]]], rtol=1e-12)
    hochberg = {0.01: 0.024, 0.012: 0.024, 0.04: 4 * 0.04 / 3, 0.3: 0.3}
    corrected = correct_p_values(p, "benjamini-hochberg")
    np.testing.assert_allclose(corrected[[0, 1, 3, 4]], [hochberg[x] for x in p[[0, 1, 3, 4]]], rtol=1e-12)
    assert np.isnan(corrected[2])
    np.testing.assert_array_equal(correct_p_values(p, "none"), p)
    assert correct_p_values([0.6, 0.9]).tolist() == [1.0, 1.0]
    with raises(InvalidParameter, parameter="correction", value="bonferroni"):
        correct_p_values(p, "bonferroni")


class TestErrors:
    def test_shapes(self):
        with raises(InvalidParameter, parameter="condition", value=(2,)):
            compare_groups([1.0, 2.0, 3.0], ["a", "b"])
        with raises(InvalidParameter, parameter="values"):
            compare_groups(np.ones((2, 2, 2)), ["a", "b"])
        with raises(InvalidParameter, parameter="values"):
            compare_groups({"x": [1.0, 2.0], "y": [1.0]}, ["a", "b"])
        with raises(InvalidParameter, parameter="names"):
            compare_groups(np.ones((2, 2)), ["a", "b"], ["x", "x"])

    def test_one_condition(self):
        with raises(InvalidParameter, parameter="condition", value="a"):
            compare_groups([1.0, 2.0], ["a", "a"])

    def test_missing_condition(self):
        with raises(InvalidDemos, parameter="condition", index=1):
            compare_groups([1.0, 2.0, 3.0], ["a", None, "b"])

    def test_options(self):
        with raises(InvalidParameter, parameter="correction", value="bonferroni"):
            compare_groups([1.0, 2.0], ["a", "b"], correction="bonferroni")
        with raises(InvalidParameter, parameter="level"):
            compare_groups([1.0, 2.0], ["a", "b"], level=95.0)


COLUMNS = {"share": [0.1, 0.3, 0.2, 0.8, 0.9, np.nan], "dwell": [5.0, 6.0, 7.0, 1.0, 2.0, 3.0]}


class TestPlot:
    """Figures of the values of groups."""

    comparison = compare_groups(COLUMNS, list("bbbaaa"))

    def test_points_and_means_are_those_of_the_groups(self):
        figure = self.comparison.plot()
        assert len(figure.axes) == 2
        points = figure.axes[0].lines[0], figure.axes[0].lines[2]
        np.testing.assert_allclose(points[0].get_ydata(), [0.8, 0.9], rtol=1e-12)
        np.testing.assert_allclose(points[1].get_ydata(), [0.1, 0.2, 0.3], rtol=1e-12)
        np.testing.assert_allclose(figure.axes[1].lines[1].get_ydata(), [2.0, 2.0], rtol=1e-12)
        assert [label.get_text() for label in figure.axes[1].get_xticklabels()] == ["a", "b"]
        p = next(row.p_corrected for row in self.comparison.rows if row.quantity == "dwell")
        assert f"{p:.2g}" in figure.axes[1].get_title()

    def test_selected_quantities(self):
        assert len(self.comparison.plot(["dwell"]).axes) == 1
        several = compare_groups(COLUMNS, list("aabbcc"))
        assert "p = " not in several.plot(["dwell"]).axes[0].get_title()
        for quantities, value in ((["length"], "length"), ([], [])):
            with raises(InvalidParameter, parameter="quantities", value=value):
                self.comparison.plot(quantities)
