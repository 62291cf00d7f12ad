"""The paper's ElementWorld setting over 100 worlds: NLL and ANID agree with Table 1, warm starts beat random rewards.

The full table, with every initialisation and L = 50, is `python -m benchmarks.elementworld`.
"""

import numpy as np
import pytest
from scipy.stats import ttest_rel, wilcoxon

from benchmarks.elementworld import PAPER, ROUNDING, gather, verdict
from limiirl.metrics import Interval, agrees, mean_interval

METHODS = ("supervised", "k-means, MLE", "k-means, MLE, 3 steps", "k-means, mean", "random rewards")


@pytest.fixture(scope="module")
def found():
    return gather(100, methods=METHODS, n_jobs=1)


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_nll_agrees_with_the_paper(found, method):
    assert agrees(mean_interval(found[method]["nll"]), PAPER[method][0])


@pytest.mark.slow
@pytest.mark.parametrize("method", ["supervised", "k-means, mean", "random rewards"])
def test_anid_agrees_with_the_paper(found, method):
    assert agrees(mean_interval(found[method]["anid"]), PAPER[method][1])


@pytest.mark.slow
def test_anid_of_kmeans_and_mle_is_the_papers_but_for_its_early_stop_and_its_decimals(found):
    # Known not to agree with the printed .03: EM goes on where the paper's runs stopped, and the likelihood of a model
    # that tilts the wind still rises while the clusters get a little worse. After as many steps as theirs took, it is
    # within what a printed .03 may hide.
    converged, early = (mean_interval(found[f"k-means, MLE{name}"]["anid"]) for name in ("", ", 3 steps"))
    assert early[0] < converged[0] < 0.06
    assert agrees(early, PAPER["k-means, MLE"][1], ROUNDING[1])


@pytest.mark.slow
@pytest.mark.parametrize("method", ["k-means, MLE", "k-means, mean"])
def test_warm_starts_beat_random_rewards(found, method):
    ours, random = found[method]["anid"], found["random rewards"]["anid"]
    assert ttest_rel(ours, random, alternative="less").pvalue < 0.01
    assert wilcoxon(ours, random, alternative="less").pvalue < 0.01
    assert np.mean(found[method]["iterations"]) < 0.5 * np.mean(found["random rewards"]["iterations"])


def test_verdicts():
    ours = Interval(0.043, 0.007, 0.036, 0.05, 100)
    assert verdict(ours, (0.04, 0.005), 0.005) == "agrees"
    assert verdict(ours, (0.03, 0.005), 0.005) == "in rounding"
    assert verdict(ours, (0.02, 0.005), 0.005) == "DIFFERS"
