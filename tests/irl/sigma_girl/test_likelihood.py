"""Components of Sigma-GIRL: cloned policies and their scores, Jacobians, and shrunk covariances."""

import warnings

import numpy as np
import pytest
from scipy.special import log_softmax
from scipy.stats import norm
from sklearn.covariance import ledoit_wolf

from limiirl.demos.agents import Agent, Agents
from limiirl.errors import IdentifiabilityWarning, InvalidDemos
from limiirl.irl import SigmaGIRL
from limiirl.irl.sigma_girl.likelihood import PROFILES, clone_policy, jacobian_moments, jacobians
from limiirl.mixture import IntentMixture
from tests.helpers import raises
from tests.oracles.sigma import central_differences, dense_covariance, jacobians_by_loops, pickers, vec


def random_agent(seed: int) -> Agent:
    rng = np.random.default_rng(seed)
    x, live = rng.normal(size=(7, 5, 3)), rng.random((7, 5)) < 0.7
    actions = x @ rng.normal(size=(3, 2)) + 0.4 * rng.normal(size=(7, 5, 2))
    return Agents.from_arrays([x], [actions], [rng.normal(size=(7, 5, 2))], [live])[0]


def test_a_linear_policy_is_the_ridge_solution_over_the_steps_with_a_choice():
    agent = random_agent(0)
    x, a = agent.policy_features[agent.live], agent.actions[agent.live]
    clone = clone_policy(agent, ridge=0.3)
    stacked = np.vstack([x, np.sqrt(0.3) * np.eye(3)])  # ridge as three more observations of zero
    expected = np.linalg.lstsq(stacked, np.vstack([a, np.zeros((3, 2))]), rcond=None)[0]
    np.testing.assert_allclose(clone.weights, expected, rtol=1e-10)
    np.testing.assert_allclose(clone.variance, np.mean((a - x @ expected) ** 2), rtol=1e-10)


def test_scores_of_a_linear_policy_are_gradients_of_its_log_density():
    agent = random_agent(1)
    clone = clone_policy(agent, ridge=0.01)
    for n, t in np.argwhere(agent.live)[::5]:

        def log_pi(w, n=n, t=t):
            mean = agent.policy_features[n, t] @ w.reshape(3, 2)
            return norm.logpdf(agent.actions[n, t], mean, np.sqrt(clone.variance)).sum()

        expected = central_differences(log_pi, clone.weights.ravel(), 1e-5)
        np.testing.assert_allclose(clone.scores[n, t], expected, rtol=1e-6, atol=1e-6)
    np.testing.assert_array_equal(clone.scores[~agent.live], 0.0)


@pytest.mark.parametrize("n_actions", [2, 3, 5])
def test_scores_of_a_softmax_policy_are_gradients_of_its_log_probability(n_actions):
    agent = pickers(40, seed=n_actions, n_actions=n_actions)[1]
    # Actions need not be 0, 1, 2, ..., nor all be taken.
    agent = agent._replace(actions=3 * agent.actions + 2)
    clone = clone_policy(agent, ridge=0.5)
    assert clone.weights.shape == (2, n_actions - 1)
    for n, t in [(0, 0), (5, 3), (17, 4)]:

        def log_pi(w, n=n, t=t):
            logits = np.concatenate([[0.0], agent.policy_features[n, t] @ w.reshape(2, n_actions - 1)])
            return log_softmax(logits)[(agent.actions[n, t] - 2) // 3]

        expected = central_differences(log_pi, clone.weights.ravel(), 1e-5)
        np.testing.assert_allclose(clone.scores[n, t], expected, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("n_actions", [2, 3])
def test_softmax_policy_maximises_the_penalised_likelihood(n_actions):
    agent = pickers(100, seed=9, n_actions=n_actions)[0]
    clone = clone_policy(agent, ridge=20.0)
    # Gradient of 10 |W|^2 with respect to the centred weights of all actions; for two actions, to their difference.
    weights = np.concatenate([np.zeros((2, 1)), clone.weights], axis=1)
    penalty_gradient = clone.weights if n_actions == 2 else (weights - weights.mean(axis=1, keepdims=True))[:, 1:]
    np.testing.assert_allclose(clone.scores.sum(axis=(0, 1)), 20.0 * penalty_gradient.ravel(), rtol=1e-3, atol=1e-3)


def test_jacobians_agree_with_explicit_loops():
    rng = np.random.default_rng(2)
    scores, phi = rng.normal(size=(6, 4, 3)), rng.normal(size=(6, 4, 2))
    scores[1, 2:], phi[1, 3:] = 0.0, 0.0
    for floor in (0.0, 1e-10, 0.5):
        result = jacobians(scores, phi, 0.9, floor)
        np.testing.assert_allclose(result, jacobians_by_loops(scores, phi, 0.9, floor), rtol=1e-10, atol=1e-12)


def test_a_constant_feature_has_no_gradient():
    # The baseline removes constant rewards in every trajectory, however small the scores.
    rng = np.random.default_rng(3)
    scores = rng.normal(size=(6, 4, 3)) * [1.0, 1e-6, 0.0]
    result = jacobians(scores, np.full((6, 4, 1), 2.5), 0.9, floor=0.0)
    np.testing.assert_array_equal(result, 0.0)
    # The constant of the original code leaves a remainder, which grows as the scores shrink.
    left = np.abs(jacobians(scores, np.full((6, 4, 1), 2.5), 0.9, floor=1e-10)).max(axis=(0, 2))
    assert 0.0 < left[0] < 1e-8 < left[1]
    assert left[2] == 0.0


def test_agent_without_influence_fits_all_rewards_equally():
    J = np.zeros((5, 4, 3))
    for profile in (profile_class([jacobian_moments(J)]) for profile_class in PROFILES.values()):
        values, gradients = profile.gradients(np.array([0.2, 0.3, 0.5]))
        np.testing.assert_array_equal(values, 0.0)
        np.testing.assert_array_equal(gradients, 0.0)
        assert np.isfinite(profile.log_det[0])


def test_jacobians_estimate_the_gradient_of_expected_features():
    # One step, a ~ N(w, 1), phi = a^2: the derivative of E a^2 with respect to w is 2 w.
    rng = np.random.default_rng(4)
    a = rng.normal(1.5, 1.0, size=(200_000, 1, 1))
    result = jacobians(a - 1.5, a**2, 1.0, floor=0.0)
    assert abs(result.mean() - 3.0) < 5.0 * result.std() / np.sqrt(len(a))
    plain = (a - 1.5) * a**2
    assert result.std() < 0.9 * plain.std()  # the baseline reduces the variance


def test_rows_of_zeros_are_dropped():
    J = np.random.default_rng(5).normal(size=(8, 5, 2))
    J[:, [1, 3]] = 0.0
    J[2, 0] = 0.0  # zero in one trajectory only
    result = jacobian_moments(J)
    assert result.mean.shape == (3, 2)
    np.testing.assert_allclose(result.mean, J.mean(axis=0)[[0, 2, 4]], rtol=1e-12)


@pytest.mark.parametrize("n", [3, 10, 200])
def test_covariances_agree_with_ledoit_wolf(n):
    J = 5.0 + np.random.default_rng(n).normal(size=(n, 4, 3)) * np.arange(1.0, 4.0)
    result = jacobian_moments(J)
    expected, shrinkage = ledoit_wolf(np.array([vec(one) for one in J]))
    np.testing.assert_allclose(result.shrinkage, shrinkage, rtol=1e-9)
    np.testing.assert_allclose(vec(result.variances), np.diag(expected) / n, rtol=1e-9)
    np.testing.assert_allclose(vec(result.variances), np.diag(dense_covariance(J, diagonal=True)), rtol=1e-9)


def test_variances_of_two_trajectories_are_positive():
    J = np.zeros((2, 3, 2))
    J[:, 0, 0], J[:, 1:, 1] = [1.0, 2.0], 4.0  # all entries except one are constant
    result = jacobian_moments(J)
    assert result.shrinkage == 1e-6
    assert result.variances.min() > 0.0


def discrete_agent(actions: np.ndarray, phi: np.ndarray) -> Agent:
    """Return an agent with one-hot features of two states, which it visits alternately."""
    n, H = actions.shape
    x = np.eye(2)[np.arange(H) % 2]
    return Agent(np.broadcast_to(x, (n, H, 2)), actions, phi, np.ones((n, H), dtype=bool))


def test_policies_whose_actions_are_a_function_of_the_features_are_refused() -> None:
    phi = np.random.default_rng(0).normal(size=(5, 4, 1))
    deterministic = np.tile([0, 1, 0, 1], (5, 1))
    with raises(InvalidDemos, parameter="agents", index=3):
        clone_policy(discrete_agent(deterministic, phi), 1e-2, 3)
    few = discrete_agent(deterministic[:4], phi[:4])  # too few to conclude that the policy is deterministic
    varied = discrete_agent(np.tile([0, 1, 0, 2], (5, 1)), phi)  # two actions in the second state
    for agent in (few, varied):
        assert np.any(clone_policy(agent, 1e-2, 3).scores != 0.0)


@pytest.mark.parametrize("ridge", [1e-8, 1e-2, 1.0])
def test_continuous_actions_without_noise_are_refused_with_every_ridge(ridge: float) -> None:
    rng = np.random.default_rng(0)
    x, phi, live = rng.normal(size=(20, 6, 2)), rng.normal(size=(20, 6, 1)), np.ones((20, 6), dtype=bool)
    exact = x @ np.array([[1.0], [2.0]])
    with raises(InvalidDemos, parameter="agents", index=3):
        clone_policy(Agent(x, exact, phi, live), ridge, 3)
    noisy = Agent(x, exact + 1e-4 * rng.normal(size=exact.shape), phi, live)
    assert np.any(clone_policy(noisy, ridge, 3).scores != 0.0)


def test_features_that_never_vary_give_a_warning() -> None:
    rng = np.random.default_rng(0)
    actions, phi = rng.integers(2, size=(6, 4)), rng.normal(size=(6, 4, 3))
    phi[:, :, 1] = [2.0, 1.0, 0.0, 5.0]  # the same in all trajectories
    varied = phi.copy()
    varied[0, 0, 1] = 7.0
    agents = Agents((discrete_agent(actions, phi), discrete_agent(actions, phi)))
    one_varies = Agents((discrete_agent(actions, phi), discrete_agent(actions, varied)))
    with pytest.warns(IdentifiabilityWarning):
        SigmaGIRL().fit(None, agents)
    with pytest.warns(IdentifiabilityWarning):
        IntentMixture(1, SigmaGIRL(), max_iter=0).fit(None, agents)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        SigmaGIRL().fit(None, one_varies)
