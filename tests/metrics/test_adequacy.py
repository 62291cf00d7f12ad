"""Residuals and calibration of next-step probabilities, against direct sums and simulated data."""

import numpy as np
import pytest
from scipy import stats

from limiirl import MDP, Demonstrations, IntentMixture, MaxCausalEnt, MaxEnt, RewardEnsemble, SigmaGIRL
from limiirl.baselines import MarkovChain
from limiirl.errors import InvalidDemos, InvalidParameter
from limiirl.metrics import check_fit
from tests.helpers import raises
from tests.oracles.sigma import pickers

GRID = MDP.from_edges(
    [0, 0, 1, 1, 2, 2, 3, 3], [1, 2, 3, 4, 3, 4, 4, 0], p0=[1, 0, 0, 0, 0], gamma=0.9,
    state_features=[[0, 0], [1, 0], [0, 1], [0.5, 0.5], [0, 0]], edge_features=np.eye(8)[:, [7]],
)  # fmt: skip
THETAS = np.array([[1.5, -1.0, -1.0], [-1.5, 1.0, 0.5]])
TRUTH = RewardEnsemble([0.6, 0.4], THETAS)
MODELS = [MaxEnt(8, bounds=None), MaxCausalEnt(bounds=None)]


def true_mixture(model):
    """Return a mixture with the true parameters, which EM does not change."""
    demos = Demonstrations.from_lists([[0, 1, 4], [0, 2, 4], [0, 1, 3, 4]])
    mix = IntentMixture(2, model, init=TRUTH, max_iter=0)
    return mix.fit(GRID, demos)


def test_sums_agree_with_the_likelihood():
    mix = true_mixture(MaxEnt(8, bounds=None))
    demos, _ = mix.sample(40, 1)
    checked = check_fit(mix, demos, simulations=0)
    by_demo = np.bincount(checked.demo, weights=checked.log_prob)
    np.testing.assert_allclose(by_demo, mix.score_samples(demos) - np.log(1.0), rtol=1e-9)
    assert checked.predictive is None
    assert checked.held_out == ()


def test_surprise_and_variance_of_one_step():
    mdp = MDP.from_edges([0, 0, 0], [1, 2, 3], p0=[1, 0, 0, 0], state_features=np.eye(4)[:, 1:3])
    demos = Demonstrations.from_lists([[0, 1], [0, 3]])
    mix = IntentMixture(
        1, MaxEnt(2, bounds=None, stop="terminal"), init=RewardEnsemble([1.0], [[1.0, -0.5]]), max_iter=0
    )
    checked = check_fit(mix.fit(mdp, demos), simulations=0)
    p = np.exp([1.0, -0.5, 0.0]) / np.exp([1.0, -0.5, 0.0]).sum()
    entropy = -np.sum(p * np.log(p))
    first = checked.t == 0
    np.testing.assert_allclose(checked.surprise[first], -np.log(p[[0, 2]]) - entropy, rtol=1e-10)
    np.testing.assert_allclose(checked.variance[first], np.sum(p * np.log(p) ** 2) - entropy**2, rtol=1e-10)
    expected = np.sum(checked.surprise[first]) / np.sqrt(2 * checked.variance[0])
    np.testing.assert_allclose([checked.z, checked.by_state.z[0], checked.by_step.z[0]], expected, rtol=1e-10)
    np.testing.assert_allclose(np.sum(checked.calibration.count * checked.calibration.observed), 2.0, rtol=1e-12)


@pytest.mark.parametrize("model", MODELS, ids=str)
def test_residuals_of_the_true_model_are_standard_normal(model):
    mix = true_mixture(model)
    z = []
    for seed in range(40):
        demos, _ = mix.sample(60, seed)
        checked = check_fit(mix, demos, simulations=0)
        z.append(checked.z)
        assert np.all(
            np.abs(checked.calibration.observed - checked.calibration.predicted) < 5 * checked.calibration.error
        )
    assert stats.kstest(z, "norm").pvalue > 0.001


def test_a_state_where_behaviour_differs_has_the_largest_residual():
    """In every state, the first action has probability 0.8; in state 2, the data have 0.2."""
    src, dst = [0, 0, 1, 1, 2, 2], [1, 2, 3, 4, 3, 4]
    mdp = MDP.from_edges(src, dst, p0=[1, 0, 0, 0, 0], edge_features=np.array([[1.0], [0.0]] * 3))
    usual, odd = [[0, 1, 3]] * 320 + [[0, 1, 4]] * 80, [[0, 2, 3]] * 20 + [[0, 2, 4]] * 80
    start = RewardEnsemble([1.0], [[np.log(4.0)]])
    mix = IntentMixture(1, MaxCausalEnt(bounds=None), init=start, max_iter=0)
    checked = check_fit(mix.fit(mdp, Demonstrations.from_lists(usual + odd)), simulations=0)
    states = checked.by_state
    # 0.6 of the outcomes are less probable than expected, by log 4 each; the deviation of the surprise is 0.4 log 4.
    np.testing.assert_allclose(states.excess[:3], [0.0, 0.0, 0.6 * np.log(4.0)], atol=1e-9)
    np.testing.assert_allclose(states.z[:3], [0.0, 0.0, 0.6 / 0.4 * 10.0], atol=1e-6)
    assert states.worst(1).index[0] == 2
    assert np.all(states.p[:2] > 0.99)
    assert states.p[2] < 1e-10
    assert len(checked.plot().axes) == 3
    np.testing.assert_array_equal(np.diff(checked.by_demo.worst(10).z) <= 0, True)
    assert str(checked).count("z = ") == 10


def test_simulated_means():
    mix = true_mixture(MaxEnt(8, bounds=None))
    same, _ = mix.sample(80, 3)
    assert np.all(check_fit(mix, same, simulations=100).predictive.p > 0.01)
    other = IntentMixture(1, MaxEnt(8, bounds=None), init=RewardEnsemble([1.0], THETAS[:1]), max_iter=0).fit(GRID, same)
    far, _ = other.sample(80, 3)
    checked = check_fit(mix, far, simulations=100)
    assert np.min(checked.predictive.p) < 0.05
    assert checked.predictive.name[-1] == "length"


def test_comparison_with_a_baseline():
    mix = true_mixture(MaxCausalEnt(bounds=None))
    train, test = (mix.sample(200, seed)[0].replace(actions=None) for seed in (0, 1))
    chain = MarkovChain(1).fit(train, GRID)
    (row,) = check_fit(mix, test, baselines={"chain": chain}, simulations=0).held_out
    np.testing.assert_allclose(row.baseline, chain.score(test), rtol=1e-12)
    assert row.mixture > row.baseline
    assert 0.0 < row.error < 0.1


def test_covariates_determine_the_prior_of_each_demonstration():
    demos = true_mixture(MODELS[0]).sample(60, 0)[0]
    x = np.random.default_rng(0).normal(size=60)
    mix = IntentMixture(2, MaxEnt(8, bounds=(-5, 5)), init=TRUTH, membership_ridge=1.0, max_iter=20, resp_tol=1e-2)
    mix.fit(GRID, demos, covariates=x)
    checked = check_fit(mix, simulations=0)
    by_demo = np.bincount(checked.demo, weights=checked.log_prob)
    np.testing.assert_allclose(by_demo, mix.score_samples(demos, covariates=x), rtol=1e-9)
    part = check_fit(mix, demos[:5], covariates=x[:5], simulations=0)
    np.testing.assert_allclose(part.log_prob, checked.log_prob[: part.t.size], rtol=1e-9)


def test_models_and_data_that_cannot_be_checked():
    agents = IntentMixture(1, SigmaGIRL())
    agents.fit(None, pickers(4, 0))
    with pytest.raises((InvalidDemos, InvalidParameter)):
        check_fit(agents)
    with raises(InvalidParameter, parameter="simulations", value=-1):
        check_fit(true_mixture(MODELS[0]), simulations=-1)
