"""Report of `limiirl demo`: statements respect errors and significance."""

import re

import numpy as np
import pytest

from limiirl.experiments import STUDIES
from limiirl.mixture import Summary
from limiirl.report.studies import accuracy_rows, compare_initialisations, describe_intents
from tests.oracles.records import make_results

NAMES = ("start", "goal", "element 1", "element 2", "element 3")


def make_summary(thetas, errors):
    thetas, errors = np.array(thetas, dtype=float), np.array(errors, dtype=float)
    K, d = thetas.shape
    return Summary(
        n_intents=K, n_units=10, unit="demonstrations", model="", init="", convergence="", starts="", converged=True,
        n_iter=1, log_likelihood=-1.0, bic=1.0, n_free=1, weights=np.full(K, 1 / K), weight_errors=np.zeros(K),
        sizes=np.ones(K), counts=np.ones(K, dtype=int), feature_names=NAMES[:d], thetas=thetas, errors=errors,
        status=np.full((K, d), "ok"), n_starts=1, n_best=1, distances=np.zeros(1),
    )  # fmt: skip


def read_preference(theta, error):
    (sentence,) = describe_intents(make_summary([theta], [error]), [2, 3, 4])
    return re.findall(r"prefers ([a-z0-9 ]+):", sentence)


def test_the_element_with_the_clearly_highest_reward_is_read_preference():
    assert read_preference([0, 0, -3, -1, -3], [0.1] * 5) == ["element 2"]
    assert read_preference([9, 9, -3, -3, -1], [0.1] * 5) == ["element 3"]


@pytest.mark.parametrize(
    ("theta", "error"),
    [
        ([0, 0, -1.0, -1.3, -3.0], [0.1] * 5),  # the difference is below the sum of the half-widths
        ([0, 0, -1.0, -5.0, -5.0], [0.1, 0.1, 0.1, 4.2, 0.1]),  # one error is large
        ([0, 0, -1.0, -5.0, -5.0], [0.1, 0.1, np.nan, 0.1, 0.1]),  # one error is missing
        ([0, 0, -1.0, -1.0, -1.0], [0.0] * 5),  # a tie
    ],
)
def test_no_element_is_preferred_within_the_errors(theta, error):
    assert read_preference(theta, error) == []


def compare(gap, n_worlds):
    def value(method, x, measure, seed):
        return 1.0 - (gap * (1.0 + 0.1 * (seed % 3)) if method == "random rewards" else 0.0)

    return make_results(STUDIES["boxplots"], value, n_worlds)


def test_a_difference_of_initialisations_is_claimed_only_if_it_is_significant():
    assert "significant (p = " in compare_initialisations(compare(0.2, 10))
    assert "not significant" in compare_initialisations(compare(0.0, 10))
    assert "not significant" in compare_initialisations(compare(0.2, 4))
    assert "significant" not in compare_initialisations(compare(0.2, 1))


def test_accuracies_are_means_over_worlds():
    rows = dict(accuracy_rows(compare(0.2, 3)))
    assert rows["k-means, MLE"] == "100.0 % [100, 100]"
    assert rows["random rewards"].split(" %")[0] == "78.0"  # 100 - 20 * 1.1


def test_intervals_of_accuracies_are_within_0_and_100():
    ends = [re.findall(r"[\d.-]+(?=[,\]])", text) for _, text in accuracy_rows(compare(0.9, 2))]
    assert all(0.0 <= float(low) <= float(high) <= 100.0 for low, high in ends)
    assert any(low == "0" and high != "0" for low, high in ends)
