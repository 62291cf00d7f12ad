"""Robust and clustered errors, the delta method, and profile-likelihood intervals."""

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import chi2, norm

from limiirl import MDP, Demonstrations, IntentMixture, MaxCausalEnt, MaxEnt, RewardEnsemble
from limiirl.demos import Groups
from limiirl.errors import IdentifiabilityWarning, InvalidDemos, InvalidParameter, NotFitted
from limiirl.metrics import compare_groups
from limiirl.mixture import group_rewards, wald_statistics
from tests.helpers import raises

# Three ends from one start; each demonstration is one choice.
PHI = [[0, 0], [2, 0], [0, 1], [1, 1]]
FORK = MDP.from_edges([0, 0, 0], [1, 2, 3], p0=[1, 0, 0, 0], state_features=PHI, feature_names=["x", "y"])
COUNTS = np.array([15, 20, 30, 35])
ENDS = Demonstrations.from_lists([[0]] * 15 + [[0, 1]] * 20 + [[0, 2]] * 30 + [[0, 3]] * 35)
TWO = RewardEnsemble([0.6, 0.4], [[1.0, -0.5], [-0.5, 1.0]])
WALK = MDP.from_edges([0, 0, 1, 1, 2, 2], [1, 2, 1, 2, 1, 2], p0=[1, 0, 0], state_features=[[0, 0], [1, 0], [0, 1]])


def fit_single(ridge: float = 0.0) -> MaxEnt:
    irl = MaxEnt(2, bounds=None, ridge=ridge, gtol=1e-10)
    irl.fit(FORK, ENDS)
    return irl


def fit_two(n: int = 150, **parameters) -> tuple[IntentMixture, Demonstrations]:
    irl = MaxEnt(6, bounds=(-4, 4))
    sizes = zip(TWO.thetas, (0.6 * n, 0.4 * n), strict=True)
    demos = Demonstrations.concat([irl.sample(WALK, theta, int(m), k) for k, (theta, m) in enumerate(sizes)])
    settings = {"init": TWO, "max_iter": 2000, "resp_tol": 1e-9, "accelerate": True} | parameters
    return IntentMixture(2, irl, **settings).fit(WALK, demos), demos


def log_likelihood(theta: np.ndarray) -> float:
    utility = np.array(PHI) @ theta
    return float(COUNTS @ (utility - np.log(np.exp(utility).sum())))


def test_t_and_p_are_those_of_the_normal_distribution():
    t, p = wald_statistics(np.array([1.0, -3.0, 1.0]), np.array([0.5, 1.0, np.nan]))
    np.testing.assert_allclose(t, [2.0, -3.0, np.nan], rtol=1e-15)
    np.testing.assert_allclose(p, [2 * norm.sf(2.0), 2 * norm.sf(3.0), np.nan], rtol=1e-12)


@pytest.mark.parametrize("ridge", [0.0, 0.3])
def test_robust_and_clustered_errors_of_a_multinomial_logit_are_those_of_dense_algebra(ridge: float):
    irl = fit_single(ridge)
    phi, index = np.array(PHI, dtype=float), np.repeat(np.arange(4), COUNTS)
    prob = np.exp(phi @ irl.theta_)
    prob /= prob.sum()
    scores = phi[index] - prob @ phi - ridge * irl.theta_  # each choice has an equal part of the penalty
    np.testing.assert_allclose(scores.sum(axis=0), 0.0, rtol=0.0, atol=1e-6)
    bread = np.linalg.inv(100 * (phi.T * prob @ phi - np.outer(prob @ phi, prob @ phi) + ridge * np.eye(2)))
    clusters = np.arange(100) % 7
    sums = np.array([scores[clusters == c].sum(axis=0) for c in range(7)])
    for own, meat, factor in ((None, scores, 100 / 99), (clusters, sums, 7 / 6)):
        expected = np.sqrt(factor * np.diag(bread @ meat.T @ meat @ bread))
        name = "robust" if own is None else "cluster"
        errors = irl.standard_errors(FORK, ENDS, covariance=name, clusters=own)
        np.testing.assert_allclose(errors.thetas[0], expected, rtol=1e-8)
        np.testing.assert_allclose(
            irl.summary(FORK, ENDS, covariance=name, clusters=own).errors[0], expected, rtol=1e-8
        )


def test_robust_errors_of_a_mixture_are_those_of_differenced_scores():
    mix, demos = fit_two()
    x = np.concatenate([mix.weights_[:1], mix.thetas_.ravel()])

    def per_demo(x: np.ndarray) -> np.ndarray:
        log_p = mix.irl_.log_prob(WALK, x[1:].reshape(2, 2), demos)
        return np.logaddexp(np.log(x[0]) + log_p[:, 0], np.log1p(-x[0]) + log_p[:, 1])

    def scores(x: np.ndarray, step: float = 1e-4) -> np.ndarray:
        return np.array([(per_demo(x + e) - per_demo(x - e)) / (2 * step) for e in step * np.eye(5)]).T

    hessian = np.array([(scores(x + e) - scores(x - e)).sum(axis=0) / 2e-3 for e in 1e-3 * np.eye(5)])
    bread, s = np.linalg.inv(-hessian), scores(x)
    expected = np.sqrt(np.diag(bread @ s.T @ s @ bread) * len(demos) / (len(demos) - 1))
    errors = mix.standard_errors(covariance="robust")
    np.testing.assert_allclose(errors.weights, expected[[0, 0]], rtol=1e-4)
    np.testing.assert_allclose(errors.thetas.ravel(), expected[1:], rtol=1e-4)


def test_clusters_of_repeated_data_do_not_change_the_clustered_errors():
    mix, demos = fit_two(60)
    twice = Demonstrations.concat([demos, demos])
    once = mix.standard_errors(covariance="robust").thetas
    clustered = mix.standard_errors(twice, covariance="cluster", clusters=np.tile(np.arange(60), 2)).thetas
    np.testing.assert_allclose(clustered, once, rtol=1e-10)
    ratio = mix.standard_errors(twice, covariance="robust").thetas / once
    np.testing.assert_allclose(ratio, np.sqrt(0.5 * (120 / 119) / (60 / 59)), rtol=1e-10)


def test_default_clusters_are_the_groups_of_the_fit_or_of_the_demonstrations():
    mix, demos = fit_two(60)
    named = demos.replace(groups=np.arange(60) // 3)
    expected = mix.standard_errors(demos, covariance="cluster", clusters=np.arange(60) // 3)
    np.testing.assert_array_equal(mix.standard_errors(named, covariance="cluster").thetas, expected.thetas)
    grouped = mix.standard_errors(demos, np.arange(60) // 3, covariance="cluster")
    robust = mix.standard_errors(demos, np.arange(60) // 3, covariance="robust")
    np.testing.assert_array_equal(grouped.thetas, robust.thetas)
    # Clusters of groups are larger units.
    outer = mix.standard_errors(demos, np.arange(60) // 3, covariance="cluster", clusters=np.arange(60) // 6)
    assert "10" in outer.method


def test_wrong_covariances_and_clusters_are_refused():
    mix, demos = fit_two(60)
    with raises(InvalidParameter, parameter="covariance", value="hc3"):
        mix.standard_errors(covariance="hc3")
    with raises(InvalidParameter, parameter="clusters"):
        mix.standard_errors(covariance="cluster")
    with raises(InvalidParameter, parameter="clusters", value="robust"):
        mix.standard_errors(covariance="robust", clusters=np.arange(60))
    with raises(InvalidParameter, parameter="clusters", value=1):
        mix.standard_errors(covariance="cluster", clusters=np.zeros(60))
    with raises(InvalidDemos, parameter="groups"):
        mix.standard_errors(covariance="cluster", clusters=np.arange(59))
    with raises(InvalidParameter, parameter="clusters", value=1, index=1):
        mix.standard_errors(demos, np.arange(60) // 3, covariance="cluster", clusters=np.arange(60) % 2)
    with raises(NotFitted):
        MaxEnt().summary(FORK, ENDS)


def test_the_delta_method_is_exact_for_linear_functions_and_agrees_with_given_gradients():
    errors = fit_single().standard_errors(FORK, ENDS)
    linear = errors.delta_method(lambda weights, thetas: thetas[0] @ np.array([[1.0, 2.0], [-1.0, 0.5]]))
    A = np.array([[1.0, -1.0], [2.0, 0.5]])
    np.testing.assert_allclose(linear.covariance, A @ errors.covariance[1:, 1:] @ A.T, rtol=1e-7)

    def ratio(weights, thetas):
        return thetas[0, 0] / thetas[0, 1]

    def gradient(weights, thetas):
        x, y = thetas[0]
        return np.zeros(1), np.array([[1.0 / y, -x / y**2]])

    numeric, exact = errors.delta_method(ratio), errors.delta_method(ratio, gradient)
    np.testing.assert_allclose(numeric.error, exact.error, rtol=1e-6)
    x, y = errors._estimates[1:]
    g = np.array([1.0 / y, -x / y**2])
    np.testing.assert_allclose(exact.error, np.sqrt(g @ errors.covariance[1:, 1:] @ g), rtol=1e-12)
    ends = exact.value + np.array([-1, 1]) * norm.ppf(0.975) * exact.error
    np.testing.assert_allclose(exact.interval(0.95), ends, rtol=1e-12)
    assert exact.p == pytest.approx(2 * norm.sf(abs(exact.t)), rel=1e-12)


def test_the_delta_method_of_weights_keeps_their_sum():
    mix, _ = fit_two()
    errors = mix.standard_errors()
    np.testing.assert_allclose(mix.delta_method(lambda rho, thetas: rho.sum()).error, 0.0, rtol=0.0, atol=1e-8)
    np.testing.assert_allclose(mix.delta_method(lambda rho, thetas: rho[0]).error, errors.weights[0], rtol=1e-8)
    odds = mix.delta_method(lambda rho, thetas: np.log(rho[0] / rho[1]))
    np.testing.assert_allclose(odds.error, errors.weights[0] / mix.weights_.prod(), rtol=1e-5)


def test_functions_of_unidentified_rewards_have_no_error():
    mdp = MDP.from_edges([0, 0], [1, 2], p0=[1, 0, 0], state_features=[[0, 0], [1, 0], [0, 1]])
    demos = Demonstrations.from_lists([[0, 1], [0, 1], [0, 1], [0, 2]])
    irl = MaxEnt(2, bounds=None, stop="terminal")
    with pytest.warns(IdentifiabilityWarning):
        irl.fit(mdp, demos)
    errors = irl.standard_errors(mdp, demos)
    both = errors.delta_method(lambda weights, thetas: np.array([thetas[0, 0] - thetas[0, 1], thetas[0, 0]]))
    np.testing.assert_allclose(both.error, [np.sqrt(4 / 3), np.nan], rtol=1e-6)
    given = errors.delta_method(lambda w, thetas: thetas[0, 0], lambda w, thetas: (np.zeros(1), np.array([[1.0, 0.0]])))
    assert np.isnan(given.error)
    with raises(InvalidParameter, parameter="function"):
        errors.delta_method(lambda w, thetas: np.inf)
    with raises(InvalidParameter, parameter="gradient", value=1):
        errors.delta_method(lambda w, thetas: thetas[0, 0], lambda w, thetas: (np.zeros(1),))


def test_profile_intervals_end_where_the_profile_likelihood_falls_by_half_the_quantile():
    irl = fit_single()
    mix = IntentMixture(1, MaxEnt(2, bounds=None), resp_tol=1e-9).fit(FORK, ENDS)
    fall = 0.5 * chi2.ppf(0.9, 1)
    best = log_likelihood(irl.theta_)

    def profile(x: float) -> float:
        """Return the maximum over y, by the zero of the derivative."""
        phi = np.array(PHI, dtype=float)

        def derivative(y: float) -> float:
            p = np.exp(phi @ np.array([x, y]))
            return float(COUNTS @ phi[:, 1] - COUNTS.sum() * (p / p.sum()) @ phi[:, 1])

        return log_likelihood(np.array([x, brentq(derivative, -5.0, 5.0, xtol=1e-13)]))

    x = irl.theta_[0]
    ends = [brentq(lambda v: profile(v) - best + fall, *bracket) for bracket in ((x - 1.0, x), (x, x + 1.0))]
    by_name, by_number = mix.profile_intervals([(0, "x"), (0, 0)], level=0.9)
    np.testing.assert_allclose(by_name[3:], ends, rtol=0.0, atol=1e-4)
    np.testing.assert_allclose(by_number[3:], by_name[3:], rtol=1e-12)
    summary = mix.summary(profile=[(0, "x")])
    assert summary.profile[0].feature == "x"
    assert f"{summary.profile[0].low:.4g}" in str(summary)
    assert summary.to_dict()["profile"][0]["estimate"] == pytest.approx(x, rel=1e-6)


def test_profile_intervals_of_a_mixture_include_weights_and_stop_at_bounds():
    mix, demos = fit_two()
    errors = mix.standard_errors()
    weight, other, reward = mix.profile_intervals([(0, "weight"), (1, "weight"), (0, 0)])
    np.testing.assert_allclose([weight.low, weight.high], [1.0 - other.high, 1.0 - other.low], rtol=0.0, atol=1e-4)
    for interval, error in ((weight, errors.weights[0]), (reward, errors.thetas[0, 0])):
        assert interval.low < interval.estimate < interval.high
        np.testing.assert_allclose(interval.high - interval.low, 2 * 1.96 * error, rtol=0.35)
    # At the ends, EM with this weight fixed reaches the likelihood at which the interval ends.
    tight = MaxEnt(6, bounds=(-0.7, 1.2))
    bounded = IntentMixture(2, tight, init=TWO, max_iter=2000, resp_tol=1e-9, accelerate=True).fit(WALK, demos)
    free = [(k, j) for k, j in np.argwhere(np.isfinite(bounded.standard_errors().thetas))]
    for interval in bounded.profile_intervals(free):
        assert interval.low >= -0.7
        assert interval.high <= 1.2


def test_profile_intervals_of_three_weights_depend_on_one_weight_only():
    irl = MaxEnt(6, bounds=(-4, 4))
    three = RewardEnsemble([0.5, 0.3, 0.2], [[1.5, -1.5], [-1.5, 1.5], [1.0, 1.0]])
    demos = Demonstrations.concat([irl.sample(WALK, t, 100, k) for k, t in enumerate(three.thetas)])
    mix = IntentMixture(3, irl, init=three, max_iter=3000, resp_tol=1e-7, accelerate=True).fit(WALK, demos)
    order = mix.align_to(RewardEnsemble(mix.weights_[::-1].copy(), mix.thetas_[::-1].copy()))
    first, second = mix.profile_intervals([(0, "weight"), (1, "weight")])
    again, *_ = order.profile_intervals([(2, "weight")])
    np.testing.assert_allclose([first.low, first.high], [again.low, again.high], rtol=0.0, atol=1e-3)
    assert 0.0 < second.low < second.estimate < second.high < 1.0


def test_profile_intervals_require_parameters_with_errors_and_gradients():
    mix, _ = fit_two(60)
    for wrong in ((2, 0), (0, 2), (0, "z"), 0):
        with raises(InvalidParameter, parameter="parameters", value=wrong):
            mix.profile_intervals([wrong])
    with raises(InvalidParameter, parameter="level", value=1.0):
        mix.profile_intervals([(0, 0)], level=1.0)

    class Plain:
        def fit(self, mdp, demos, weights=None, start=None):
            return MaxEnt(6, bounds=(-4, 4)).fit(mdp, demos, weights, start)

        def log_prob(self, mdp, thetas, demos):
            return MaxEnt(6, bounds=(-4, 4)).log_prob(mdp, thetas, demos)

    _, demos = fit_two(60)
    plain = IntentMixture(1, Plain()).fit(WALK, demos)
    with raises(InvalidParameter, parameter="irl", value="Plain"):
        plain.profile_intervals([(0, 0)])


def test_rho_squared_is_relative_to_zero_rewards():
    mix, demos = fit_two(60)
    summary = mix.summary()
    null = float(mix.irl_.log_prob(WALK, np.zeros((1, 2)), demos).sum())
    assert summary.null_log_likelihood == pytest.approx(null, rel=1e-12)
    assert summary.rho_squared == pytest.approx(1.0 - summary.total_log_likelihood / null, rel=1e-12)
    assert summary.to_dict()["rho_squared"] == pytest.approx(summary.rho_squared, rel=1e-15)
    # At discount 1, zero rewards on a cycle have an infinite partition function.
    cycle = MDP.from_edges([0, 1, 1], [1, 0, 2], p0=[1, 0, 0], state_features=[[1], [1], [0]])
    loops = Demonstrations.from_lists([[0, 1, 2], [0, 1, 0, 1, 2], [0, 1, 2]])
    irl = MaxCausalEnt(bounds=None)
    irl.fit(cycle, loops)
    assert np.isfinite(irl.summary(cycle, loops).total_log_likelihood)


def draw_animals(shift: float, n_animals: int = 10, n: int = 30, seed: int = 0) -> tuple[Demonstrations, np.ndarray]:
    """Return demonstrations of animals, and their animals; the first reward of the second half is higher by `shift`."""
    rng, parts = np.random.default_rng(seed), []
    irl = MaxEnt(6, bounds=(-4, 4))
    for i in range(n_animals):
        theta = np.array([0.3 + shift * (i >= n_animals // 2), -0.2])
        parts.append(irl.sample(WALK, theta, n, rng))
    return Demonstrations.concat(parts), np.repeat(np.arange(n_animals), n)


def test_rewards_of_groups_are_one_newton_step_from_the_common_rewards():
    demos, animal = draw_animals(0.2, 4, 200)
    irl = MaxEnt(6, bounds=(-4, 4), gtol=1e-10)
    mix = IntentMixture(1, irl, resp_tol=1e-9).fit(WALK, demos)
    units = Groups.from_labels(animal, len(demos))
    estimates = group_rewards(mix._data(None, None), mix.weights_, mix.thetas_, units, np.ones((800, 1)))[:, 0]
    own = np.array([irl.fit(WALK, demos[animal == i]) for i in range(4)])
    np.testing.assert_allclose(estimates, own, rtol=0.0, atol=0.05)
    assert np.abs(own - mix.thetas_).max() > 0.1
    np.testing.assert_allclose(estimates.mean(axis=0), mix.thetas_[0], rtol=0.0, atol=1e-6)


def test_groups_with_the_same_data_have_the_common_rewards():
    mix, demos = fit_two(60)
    twice = Demonstrations.concat([demos, demos])
    units = Groups.from_labels(np.repeat(["a", "b"], 60), 120)
    estimates = group_rewards(mix._data(twice, None), mix.weights_, mix.thetas_, units, mix.predict_proba(twice))
    np.testing.assert_allclose(estimates, np.tile(mix.thetas_, (2, 1, 1)), rtol=0.0, atol=1e-4)


def test_shared_rewards_are_not_estimated_per_group():
    demos, animal = draw_animals(0.2, 4, 200)
    irl = MaxEnt(6, bounds=(-4, 4), gtol=1e-10)
    mix = IntentMixture(1, irl, resp_tol=1e-9).fit(WALK, demos)
    units = Groups.from_labels(animal, len(demos))
    args = mix._data(None, None), mix.weights_, mix.thetas_, units, np.ones((800, 1))
    estimates = group_rewards(*args, shared=np.array([False, True]))[:, 0]
    assert np.all(np.isnan(estimates[:, 1]))
    low, high = mix.thetas_[0, [1, 1]] + np.array([-1e-6, 1e-6])
    fixed = MaxEnt(6, bounds=[(-4, 4), (low, high)], gtol=1e-10)
    own = [fixed.fit(WALK, demos[animal == i])[0] for i in range(4)]
    np.testing.assert_allclose(estimates[:, 0], own, rtol=0.0, atol=0.02)
    assert np.abs(estimates[:, 0] - group_rewards(*args)[:, 0, 0]).max() > 0.01


def test_groups_are_compared_by_mean_posteriors_and_rewards():
    demos, animal = draw_animals(1.2)
    condition = np.where(animal >= 5, "late", "early")
    one = IntentMixture(1, MaxEnt(6, bounds=(-4, 4))).fit(WALK, demos)
    rows = {row.quantity: row for row in one.compare_groups(demos, animal, condition, correction="none").rows}
    assert rows["intent 0: state[0]"].p == pytest.approx(2 / 252)  # all 252 assignments of 10 animals to two conditions
    assert rows["intent 0: state[0]"].difference < -0.8
    assert rows["intent 0: state[1]"].p > 0.05
    mix, demos = fit_two(60)
    animal = np.arange(60) // 10
    kinds = dict.fromkeys(range(3), "a") | dict.fromkeys(range(3, 6), "b")
    table = mix.compare_groups(demos, animal, kinds, rewards=False)
    U = mix.predict_proba(demos)
    means = np.array([U[animal == i, 0].mean() for i in range(6)])
    assert [row.quantity for row in table.rows] == ["weight of intent 0"]  # the other weight is 1 minus this one
    np.testing.assert_allclose(table.rows[0].difference, means[:3].mean() - means[3:].mean(), rtol=1e-10)
    expected = compare_groups(means, ["a"] * 3 + ["b"] * 3).rows[0]
    assert table.rows[0].p == pytest.approx(expected.p)
    grouped = IntentMixture(2, mix.irl_, init=TWO).fit(WALK, demos, animal)
    own = grouped.compare_groups(condition=kinds, rewards=False).rows[0]
    posterior = grouped.group_responsibilities_[:, 0]
    np.testing.assert_allclose(own.difference, posterior[:3].mean() - posterior[3:].mean(), rtol=0.0, atol=1e-9)


@pytest.mark.slow
def test_the_size_of_the_comparison_of_groups():
    """Without differences between conditions, the exact test of the first reward rejects in about 5 % of data sets."""
    rejections = []
    for seed in range(400):
        demos, animal = draw_animals(0.0, 10, 8, seed)
        one = IntentMixture(1, MaxEnt(6, bounds=(-4, 4))).fit(WALK, demos)
        row = one.compare_groups(demos, animal, animal >= 5, correction="none", n_resamples=2).rows[0]
        rejections.append(row.p < 0.05)
    assert 0.03 <= np.mean(rejections) <= 0.07


@pytest.mark.slow
def test_95_percent_intervals_cover_the_truth():
    """`benchmarks/coverage.py` has more data sets and a model with groups."""
    irl, rng, hits = MaxEnt(8, bounds=(-6, 6)), np.random.default_rng(0), []
    truth = RewardEnsemble([0.6, 0.4], [[1.2, -0.6], [-0.6, 1.2]])
    for _ in range(200):
        sizes = rng.multinomial(600, truth.weights)
        parts = [irl.sample(WALK, theta, int(n), rng) for theta, n in zip(truth.thetas, sizes, strict=True)]
        mix = IntentMixture(2, irl, init=truth, max_iter=500, accelerate=True).fit(WALK, Demonstrations.concat(parts))
        errors = [mix.standard_errors(covariance=name).thetas for name in ("observed", "robust")]
        wald = [np.abs(mix.thetas_ - truth.thetas) <= norm.ppf(0.975) * error for error in errors]
        ends = mix.profile_intervals(list(np.ndindex(2, 2)))
        profile = [row.low <= truth.thetas[row.intent].flat[j % 2] <= row.high for j, row in enumerate(ends)]
        hits.append([*(own.ravel() for own in wald), np.array(profile)])
    coverage = np.mean(hits, axis=(0, 2))  # over data sets and rewards
    assert np.all((coverage >= 0.92) & (coverage <= 0.98)), coverage


def test_errors_and_profiles_of_mixtures_with_covariates():
    irl, rng = MaxEnt(6, bounds=(-4, 4)), np.random.default_rng(3)
    age = rng.normal(size=(120, 1))
    intent = (rng.random(120) < 1.0 / (1.0 + np.exp(-age[:, 0]))).astype(int)
    demos = Demonstrations.concat([irl.sample(WALK, TWO.thetas[k], 1, rng) for k in intent])
    settings = {"init": TWO, "max_iter": 2000, "resp_tol": 1e-9, "accelerate": True}
    mix = IntentMixture(2, irl, **settings).fit(WALK, demos, covariates=age)
    once = mix.standard_errors(covariance="robust")
    twice, tiled = Demonstrations.concat([demos, demos]), np.tile(np.arange(120), 2)
    options = {"covariates": np.vstack([age, age]), "covariance": "cluster", "clusters": tiled}
    again = mix.standard_errors(twice, **options)
    np.testing.assert_allclose(again.thetas, once.thetas, rtol=1e-8)
    np.testing.assert_allclose(again.weights, once.weights, rtol=1e-8)
    np.testing.assert_allclose(once.thetas, mix.standard_errors().thetas, rtol=0.5)
    difference = mix.delta_method(lambda _, thetas: thetas[0] - thetas[1], covariance="robust")
    V = once.covariance[2:, 2:]
    expected = np.sqrt([V[j, j] + V[2 + j, 2 + j] - 2.0 * V[j, 2 + j] for j in range(2)])
    np.testing.assert_allclose(difference.error, expected, rtol=1e-6)
    (interval,) = mix.profile_intervals([(0, 0)])
    assert interval.low < mix.thetas_[0, 0] < interval.high
    np.testing.assert_allclose(interval.high - interval.low, 3.92 * mix.standard_errors().thetas[0, 0], rtol=0.35)
    with raises(InvalidParameter, parameter="parameters", value=(0, "weight")):
        mix.profile_intervals([(0, "weight")])
