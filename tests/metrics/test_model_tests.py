"""Likelihood-ratio, Wald and Vuong tests, and the parametric bootstrap."""

import numpy as np
import pytest
from scipy.stats import chi2, kstest, norm

from limiirl import MDP, Demonstrations, IntentMixture, MaxEnt, RewardEnsemble
from limiirl.errors import InvalidParameter, NotFitted
from limiirl.metrics import bootstrap_test, likelihood_ratio_test, vuong_test, wald_test
from limiirl.mixture import FunctionEstimate
from tests.helpers import raises

EDGES = ([0, 0], [1, 2])
BOTH = MDP.from_edges(*EDGES, p0=[1, 0, 0], state_features=[[0, 0], [1, 0], [0, 1]])
SAME = MDP.from_edges(*EDGES, p0=[1, 0, 0], state_features=[[0], [1], [1]])
WALK = MDP.from_edges([0, 0, 1, 1, 2, 2], [1, 2, 1, 2, 1, 2], p0=[1, 0, 0], state_features=[[0, 0], [1, 0], [0, 1]])


def ends(counts) -> Demonstrations:
    paths = ([0], [0, 1], [0, 2])
    return Demonstrations.from_lists([path for path, n in zip(paths, counts, strict=True) for _ in range(n)])


def fit(mdp: MDP, demos: Demonstrations) -> MaxEnt:
    irl = MaxEnt(2, bounds=None, gtol=1e-10)
    irl.fit(mdp, demos)
    return irl


def multinomial(counts: np.ndarray, p: np.ndarray) -> float:
    return float(counts @ np.log(p))


def test_the_likelihood_ratio_of_equal_rewards_is_that_of_multinomials():
    counts = np.array([10, 20, 40])
    small, large = (fit(mdp, ends(counts)).summary(mdp, ends(counts)) for mdp in (SAME, BOTH))
    result = likelihood_ratio_test(small, large)
    free, equal = counts / 70, np.array([10, 30, 30]) / 70
    expected = 2.0 * (multinomial(counts, free) - multinomial(counts, equal))
    np.testing.assert_allclose(result.statistic, expected, rtol=1e-8)
    assert result.df == 1
    np.testing.assert_allclose(result.p, chi2.sf(expected, 1), rtol=1e-8)
    mixtures = [IntentMixture(1, MaxEnt(2, bounds=None, gtol=1e-10)).fit(mdp, ends(counts)) for mdp in (SAME, BOTH)]
    np.testing.assert_allclose(likelihood_ratio_test(*mixtures).statistic, expected, rtol=1e-6)


def test_conditions_of_the_likelihood_ratio_test_are_checked():
    demos = ends([10, 20, 40])
    small, large = (fit(mdp, demos).summary(mdp, demos) for mdp in (SAME, BOTH))
    with raises(InvalidParameter, parameter="restricted", value=2):
        likelihood_ratio_test(large, small)
    other = ends([10, 20, 41])
    with raises(InvalidParameter, parameter="restricted", value=71):
        likelihood_ratio_test(fit(SAME, other).summary(SAME, other), large)
    two = IntentMixture(2, MaxEnt(2, bounds=(-5, 5)), random_state=0).fit(SAME, demos)
    with raises(InvalidParameter, parameter="restricted", value=1):
        likelihood_ratio_test(small, two)
    worse = MaxEnt(2, bounds=(-0.1, 0.1))
    worse.fit(BOTH, demos)
    three = MDP.from_edges(*EDGES, p0=[1, 0, 0], state_features=[[0, 0], [1, 0], [0, 1]])
    best = fit(SAME, demos)
    bad = IntentMixture(1, MaxEnt(2, bounds=None), init=RewardEnsemble([1.0], [[-1.0, -1.0]]), max_iter=0)
    with raises(InvalidParameter, parameter="restricted"):
        likelihood_ratio_test(best.summary(SAME, demos), bad.fit(three, demos))


def test_wald_statistics_are_quadratic_forms():
    covariance = np.array([[2.0, 0.5], [0.5, 1.0]])
    estimate = FunctionEstimate(np.array([1.0, -2.0]), covariance, "observed information")
    gap = np.array([1.0, -2.5])
    result = wald_test(estimate, [0.0, 0.5])
    np.testing.assert_allclose(result.statistic, gap @ np.linalg.solve(covariance, gap), rtol=1e-12)
    assert result.df == 2
    # A linear combination that is implied by others adds no degree of freedom.
    J = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, -1.0]])
    redundant = FunctionEstimate(J @ estimate.value, J @ covariance @ J.T, "")
    again = wald_test(redundant, J @ [0.0, 0.5])
    np.testing.assert_allclose([again.statistic, again.df], [result.statistic, 2], rtol=1e-10)
    with raises(InvalidParameter, parameter="value"):
        wald_test(estimate, [1.0, 2.0, 3.0])
    with raises(InvalidParameter, parameter="estimate", index=1):
        wald_test(FunctionEstimate(np.array([1.0, 2.0]), np.diag([1.0, np.nan]), ""))


def test_the_vuong_statistic_is_a_studentised_mean():
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 50))
    difference = a - b
    expected = np.sqrt(50) * difference.mean() / difference.std()
    result = vuong_test(a, b)
    np.testing.assert_allclose([result.statistic, result.p], [expected, 2 * norm.sf(abs(expected))], rtol=1e-12)
    np.testing.assert_allclose(vuong_test(b, a).statistic, -expected, rtol=1e-12)
    shift = vuong_test(a, b, n_free=(5, 3), correction="bic").statistic - expected
    np.testing.assert_allclose(shift, -np.log(50) / (np.sqrt(50) * difference.std()), rtol=1e-10)
    groups = np.repeat(np.arange(10), 5)
    sums = difference.reshape(10, 5).sum(axis=1)
    clustered = vuong_test(a, b, groups=groups).statistic
    np.testing.assert_allclose(clustered, np.sqrt(10) * sums.mean() / sums.std(), rtol=1e-12)
    for first, second, name in (([1.0], [1.0], "first"), (a, b[:-1], "second"), (a, a, "second")):
        with raises(InvalidParameter, parameter=name):
            vuong_test(first, second)
    with raises(InvalidParameter, parameter="correction", value="hq"):
        vuong_test(a, b, correction="hq")


@pytest.mark.slow
def test_sizes_of_the_likelihood_ratio_and_wald_tests():
    """Under the hypothesis, p-values are nearly uniform."""
    rng, p = np.random.default_rng(0), {"lr": [], "wald": []}
    for _ in range(400):
        demos = ends(rng.multinomial(300, [0.3, 0.35, 0.35]))
        small, large = fit(SAME, demos), fit(BOTH, demos)
        test = likelihood_ratio_test(small.summary(SAME, demos), large.summary(BOTH, demos))
        p["lr"].append(test.p)
        errors = large.standard_errors(BOTH, demos, covariance="robust")
        p["wald"].append(wald_test(errors.delta_method(lambda _, thetas: thetas[0, 0] - thetas[0, 1])).p)
    for values in p.values():
        assert 0.03 <= np.mean(np.array(values) < 0.05) <= 0.07
        assert kstest(values, "uniform").pvalue > 0.01


def fit_intents(demos: Demonstrations, groups=None) -> list[IntentMixture]:
    settings = {"random_state": 0, "max_iter": 300, "likelihood_tol": 1e-5}
    return [IntentMixture(k, MaxEnt(8, bounds=(-3, 3)), **settings).fit(WALK, demos, groups) for k in (1, 2)]


def test_the_bootstrap_rejects_one_intent_for_two_and_keeps_it_for_one():
    irl = MaxEnt(8, bounds=(-3, 3))
    apart = Demonstrations.concat([irl.sample(WALK, theta, 60, k) for k, theta in enumerate(([1, -1], [-1, 1]))])
    result = bootstrap_test(*fit_intents(apart), 19, seed=1)
    assert result.p == 1 / 20
    null, alternative = fit_intents(irl.sample(WALK, [0.4, 0.2], 80, 0))
    observed = 2.0 * 80 * (alternative.log_likelihood_ - null.log_likelihood_)
    result = bootstrap_test(null, alternative, 19, seed=1)
    np.testing.assert_allclose(result.statistic, observed, rtol=1e-12)
    assert result.p > 0.05
    again = bootstrap_test(null, alternative, 19, seed=1)
    assert again.p == result.p


def test_the_bootstrap_draws_one_intent_per_group():
    irl = MaxEnt(8, bounds=(-3, 3))
    demos = Demonstrations.concat([irl.sample(WALK, theta, 45, k) for k, theta in enumerate(([1, -1], [-1, 1]))])
    groups = np.repeat(np.arange(30), 3)
    assert bootstrap_test(*fit_intents(demos, groups), 9).p == 0.1


def test_arguments_of_the_bootstrap_are_checked(tmp_path):
    null, alternative = fit_intents(MaxEnt(8, bounds=(-3, 3)).sample(WALK, [0.4, 0.2], 20, 0))
    with raises(InvalidParameter, parameter="alternative", value=1):
        bootstrap_test(alternative, null)
    with raises(InvalidParameter, parameter="null", value="MaxEnt"):
        bootstrap_test(MaxEnt(), alternative)
    with raises(NotFitted):
        bootstrap_test(null, IntentMixture(2))
    null.save(tmp_path / "one")
    with raises(InvalidParameter, parameter="null"):
        bootstrap_test(IntentMixture.load(tmp_path / "one"), alternative)
