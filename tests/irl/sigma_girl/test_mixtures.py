"""Agents of several intents: Sigma-GIRL inside the mixture, on known problems."""

import numpy as np
import pytest

import limiirl as ll
from limiirl.demos.agents import Agents
from limiirl.irl.sigma_girl.model import SigmaGIRL
from limiirl.mixture import IntentMixture
from limiirl.testing import check_irl_model, checks
from tests.oracles.sigma import pickers, regulators

TRUE = np.array([[0.9, 0.1], [0.3, 0.7]])
TRUTH = np.array([0, 1, 1, 0, 1, 0])


def many(n: int = 300, seed: int = 0) -> Agents:
    return regulators(TRUE[TRUTH], n, seed, labels=TRUTH)


def agreement(U: np.ndarray, truth: np.ndarray) -> float:
    """The share of agents in the right one of two intents, whichever is called which."""
    right = float(np.mean(np.argmax(U, axis=1) == truth))
    return max(right, 1.0 - right)


@pytest.mark.parametrize(
    ("covariance", "init", "cluster_on"),
    [
        ("diagonal", "kmeans", "reward"),
        ("diagonal", "gmm", "reward"),
        ("full", "kmeans", "reward"),
        ("diagonal", "kmeans", "policy"),
    ],
)
def test_intents_and_weights_of_regulators_are_found(covariance, init, cluster_on):
    irl = SigmaGIRL(gamma=0.9, covariance=covariance, cluster_on=cluster_on)
    # Positions average to nothing, so that clusters of policy features are as good as random: EM has to do the rest.
    n_init = 1 if cluster_on == "reward" else 6
    mix = IntentMixture(2, irl, init=init, n_init=n_init, random_state=0).fit(None, many())
    assert agreement(mix.responsibilities_, TRUTH) == 1.0
    first = mix.labels_[0]
    np.testing.assert_allclose(mix.thetas_[[first, 1 - first]], TRUE, rtol=0, atol=0.1)
    np.testing.assert_allclose(mix.weights_, 0.5, rtol=0, atol=0.01)
    assert mix.converged_


def test_responsibilities_and_likelihood_agree_with_the_profile():
    mix = IntentMixture(2, SigmaGIRL(gamma=0.9), random_state=0).fit(None, many(100))
    joint = np.log(mix.weights_) + SigmaGIRL(gamma=0.9).log_prob(None, mix.thetas_, many(100))
    total = np.logaddexp.reduce(joint, axis=1)
    np.testing.assert_allclose(mix.responsibilities_, np.exp(joint - total[:, None]), rtol=1e-8, atol=1e-12)
    np.testing.assert_allclose(mix.log_likelihood_, total.mean(), rtol=1e-10)
    np.testing.assert_allclose(mix.weights_, mix.responsibilities_.mean(axis=0), rtol=0, atol=1e-5)


def test_clusters_take_the_place_of_the_first_e_step():
    agents, U = many(100), np.random.default_rng(0).dirichlet(np.ones(2), 6)
    irl = SigmaGIRL(gamma=0.9)
    mix = IntentMixture(2, irl, init=U, max_iter=0).fit(None, agents)
    np.testing.assert_allclose(mix.thetas_, irl.fit_many(None, agents, U), rtol=0, atol=1e-6)
    np.testing.assert_allclose(mix.weights_, U.mean(axis=0), rtol=1e-12)


@pytest.mark.parametrize(("cluster_on", "m"), [("reward", 2), ("policy", 2)])
def test_the_points_are_mean_discounted_features(cluster_on, m):
    agents, seen = many(10), []

    def init(points, n_intents, rng):
        seen.append(points)
        return TRUTH

    IntentMixture(2, SigmaGIRL(gamma=0.8, cluster_on=cluster_on), init=init).fit(None, agents)
    assert seen[0].shape == (6, m)
    np.testing.assert_array_equal(seen[0], agents.features(0.8, of=cluster_on))


def test_the_length_of_weights_is_no_free_parameter():
    mix = IntentMixture(2, SigmaGIRL(gamma=0.9), random_state=0).fit(None, many())
    assert mix.standard_errors().n_free == 3  # a share, and one weight an intent
    np.testing.assert_allclose(mix.bic(many()), -2 * 6 * mix.log_likelihood_ + 3 * np.log(6), rtol=1e-10)
    corner = IntentMixture(1, SigmaGIRL(gamma=0.9), max_iter=0, init=ll.RewardEnsemble([1.0], [[1.0, 0.0]]))
    assert corner.fit(None, many(20)).standard_errors().n_free == 0


def test_agents_of_a_group_share_their_intent():
    groups = ["x", "y", "y", "x", "z", "z"]
    mix = IntentMixture(2, SigmaGIRL(gamma=0.9), random_state=0).fit(None, many(100), groups=groups)
    assert mix.groups_.tolist() == ["x", "y", "z"]
    for one, other in ((0, 3), (1, 2), (4, 5)):
        np.testing.assert_array_equal(mix.responsibilities_[one], mix.responsibilities_[other])


def test_saved_mixture_classifies_new_agents(tmp_path):
    mix = IntentMixture(2, SigmaGIRL(gamma=0.9), random_state=0).fit(None, many())
    new = many(seed=7)
    assert agreement(mix.predict_proba(new), TRUTH) == 1.0
    mix.save(tmp_path / "mix")
    back = IntentMixture.load(tmp_path / "mix")
    np.testing.assert_array_equal(back.predict_proba(new), mix.predict_proba(new))


@pytest.mark.parametrize("init", ["random", "random_rewards"])
def test_random_starts_end_on_the_simplex(init):
    mix = IntentMixture(2, SigmaGIRL(gamma=0.9), init=init, random_state=3).fit(None, many(100))
    assert mix.thetas_.min() >= 0.0
    np.testing.assert_allclose(mix.thetas_.sum(axis=1), 1.0, rtol=0, atol=1e-9)


@pytest.mark.parametrize("check", checks(SigmaGIRL(gamma=0.9), demos=pickers(15, seed=0)), ids=str)
def test_the_rules_of_models_hold(check):
    check()


@pytest.mark.slow
def test_conformance():
    report = check_irl_model(SigmaGIRL(gamma=0.9, covariance="full"), demos=many(12))
    skipped = [line.split("[")[0] for line in report.skipped]
    assert skipped == ["probabilities_sum_to_at_most_one"]


def test_models_of_an_mdp_refuse_agents():
    mdp = ll.MDP.from_edges([0], [1])
    with pytest.raises(ll.errors.InvalidDemos, match="^demos must"):
        IntentMixture(1, ll.MaxEnt()).fit(mdp, many(5))
