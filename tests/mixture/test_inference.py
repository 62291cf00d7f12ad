"""Inference with a fitted mixture on training, new and partial demonstrations, compared with averages over intents."""

import numpy as np
import pytest

from limiirl import Demonstrations, IntentMixture, MaxEnt, RewardEnsemble
from limiirl.errors import InvalidDemos, InvalidParameter, NotFitted
from tests.helpers import raises
from tests.oracles.enumeration import paths as all_paths
from tests.oracles.mixture import TASTES, crossings, responsibilities, walks

MDP = crossings()
DEMOS, LABELS = walks(60, seed=8)
RHO = np.array([0.6, 0.4])
MIX = IntentMixture(2, MaxEnt(7, (-5, 5)), RewardEnsemble(RHO, TASTES), max_iter=0).fit(MDP, DEMOS)
IRL = MIX.irl_


def test_posterior_and_likelihood_of_new_demonstrations():
    new, _ = walks(30, seed=9)
    U, log_lik = responsibilities(IRL.log_prob(MDP, TASTES, new), RHO)
    np.testing.assert_allclose(MIX.predict_proba(new), U, rtol=1e-10)
    np.testing.assert_array_equal(MIX.predict(new), np.argmax(U, axis=1))
    np.testing.assert_allclose(MIX.score_samples(new), log_lik, rtol=1e-12)
    np.testing.assert_allclose(MIX.score(new), log_lik.mean(), rtol=1e-12)


def test_groups_share_a_posterior():
    groups = np.arange(60) % 20
    log_p = IRL.log_prob(MDP, TASTES, DEMOS)
    together = np.array([log_p[groups == g].sum(axis=0) for g in range(20)])
    U, log_lik = responsibilities(together, RHO)
    np.testing.assert_allclose(MIX.predict_proba(DEMOS, groups), U[groups], rtol=1e-9, atol=1e-15)
    np.testing.assert_allclose(MIX.score_samples(DEMOS, groups), log_lik, rtol=1e-12)
    assert MIX.predict(DEMOS, groups).shape == (60,)


def test_no_new_demonstrations():
    assert MIX.predict_proba(DEMOS[:0]).shape == (0, 2)
    assert MIX.score_samples(DEMOS[:0]).shape == (0,)
    with raises(InvalidDemos, parameter="demos"):
        MIX.score(DEMOS[:0])


def beginning_so(prefix) -> np.ndarray:
    """(K,) by enumeration: the probability of all trajectories that begin with the states of a prefix."""
    paths = [states for states, _ in all_paths(MDP, 7) if states[0] == 0]
    log_p = IRL.log_prob(MDP, TASTES, Demonstrations.from_lists([list(states) for states in paths]))
    begun = np.array([states[: len(prefix)] == tuple(prefix) for states in paths])
    return np.exp(log_p[begun]).sum(axis=0)


@pytest.mark.parametrize("prefix", [[0], [0, 1], [0, 4, 8], [0, 1, 2, 6]])
def test_posterior_of_a_prefix_sums_over_all_continuations(prefix):
    joint = RHO * beginning_so(prefix)
    begun = Demonstrations.from_lists([prefix])
    np.testing.assert_allclose(MIX.predict_proba(begun, partial=True)[0], joint / joint.sum(), rtol=1e-10)
    np.testing.assert_allclose(MIX.score_samples(begun, partial=True), np.log(joint.sum()), rtol=1e-10)


@pytest.mark.parametrize("prefix", [[0], [0, 1], [0, 4, 8], [0, 1, 2, 6]])
def test_next_actions_given_a_prefix(prefix):
    result = MIX.next_actions(Demonstrations.from_lists([prefix]))
    total = RHO @ beginning_so(prefix)
    state = prefix[-1]
    for edge in range(int(MDP.out_ptr[state]), int(MDP.out_ptr[state + 1])):
        wanted = RHO @ beginning_so([*prefix, int(MDP.dst[edge])]) / total
        np.testing.assert_allclose(result.action[0, MDP.act[edge]], wanted, rtol=1e-9)
    np.testing.assert_allclose(result.action.sum(axis=1) + result.stop, 1.0, rtol=1e-12)


def test_most_likely_over_intents():
    paths = [list(states) for states, _ in all_paths(MDP, 7) if states[0] == 0 and states[-1] == 15]
    log_p = np.log(RHO) + IRL.log_prob(MDP, TASTES, Demonstrations.from_lists(paths))
    result = MIX.most_likely(0, 15)
    np.testing.assert_allclose(result.log_prob, log_p.max(), rtol=1e-12)
    assert result.intent == int(np.argmax(log_p.max(axis=0)))
    log_prob = IRL.log_prob(MDP, TASTES, result.demos)[0, result.intent] + np.log(RHO[result.intent])
    np.testing.assert_allclose(log_prob, result.log_prob, rtol=1e-12)
    for k in range(2):
        own = MIX.most_likely(0, 15, intent=k)
        assert own.intent == k
        np.testing.assert_allclose(own.log_prob, log_p[:, k].max(), rtol=1e-12)


def test_samples_follow_their_intents():
    demos, labels = MIX.sample(4000, seed=0)
    np.testing.assert_allclose(np.bincount(labels) / 4000, RHO, atol=4 * np.sqrt(0.24 / 4000))
    for k in range(2):
        F = demos[labels == k].features(MDP)
        spread = np.sqrt(np.diag(IRL.hessian(MDP, TASTES[k])) / np.sum(labels == k))
        assert np.all(np.abs(F.mean(axis=0) - IRL.expected_features(MDP, TASTES[k])[0]) < 4 * spread)
    again, labels_again = MIX.sample(4000, seed=0)
    assert again == demos
    np.testing.assert_array_equal(labels, labels_again)
    assert len(MIX.sample(1, seed=3)[0]) == 1


def test_policy_of_an_intent():
    np.testing.assert_array_equal(MIX.policy(1), IRL.policy(MDP, TASTES[1]))
    np.testing.assert_array_equal(MIX.policy(0, step=3), IRL.policy(MDP, TASTES[0], step=3))
    for k in (2, -1, 0.0, True):
        with raises(InvalidParameter, parameter="k", value=k):
            MIX.policy(k)


class Likelihood:
    """A model of `fit` and `log_prob` alone."""

    bounds = None

    def fit(self, mdp, demos, weights=None, start=None):
        return np.zeros(3) if start is None else start

    def log_prob(self, mdp, thetas, demos):
        return MaxEnt(7).log_prob(mdp, thetas, demos)


class Halved(MaxEnt):
    """A subclass that overrides the likelihood, so that MaxEnt's sufficient statistics do not apply."""

    def log_prob(self, mdp, thetas, demos):
        return 0.5 * super().log_prob(mdp, thetas, demos)


class Ragged(Likelihood):
    def fit(self, mdp, demos, weights=None, start=None):
        return np.zeros(3 if weights[0] > 0 else 2)


def test_a_subclass_of_maxent_keeps_its_own_likelihood():
    mix = IntentMixture(2, Halved(7, (-5, 5)), LABELS, max_iter=0).fit(MDP, DEMOS)
    np.testing.assert_allclose(mix.score(DEMOS), mix.log_likelihood_, rtol=1e-12)


def test_demonstrations_longer_than_max_length_raise():
    with pytest.raises(InvalidParameter, match="^Ragged.fit must"):
        IntentMixture(2, Ragged(), np.eye(2)[LABELS]).fit(MDP, DEMOS)


class Hopeless(Likelihood):
    """Demonstration 4 can never be."""

    def log_prob(self, mdp, thetas, demos):
        result = super().log_prob(mdp, thetas, demos)
        result[4] = -np.inf
        return result


class NotANumber(Hopeless):
    def log_prob(self, mdp, thetas, demos):
        result = super().log_prob(mdp, thetas, demos)
        result[4, -1] = np.nan
        return result


@pytest.mark.parametrize("model", [Hopeless(), NotANumber()])
def test_a_demonstration_impossible_under_every_intent_is_named(model):
    mix = IntentMixture(2, model, RewardEnsemble(RHO, TASTES))
    with pytest.raises(InvalidDemos, match="^demonstration 4 "):
        mix.fit(MDP, DEMOS)
    groups = np.where(np.arange(60) == 4, "zoe", "ann")
    with pytest.raises(InvalidDemos, match="^group 'zoe' "):
        mix.fit(MDP, DEMOS, groups=groups)


def test_unsupported_method_raises():
    mix = IntentMixture(2, Likelihood(), RewardEnsemble(RHO, TASTES), max_iter=0).fit(MDP, DEMOS)
    assert mix.predict(DEMOS).shape == (60,)
    for call, name in (
        (lambda: mix.sample(3), "sample"),
        (lambda: mix.policy(0), "policy"),
        (lambda: mix.most_likely(0, 15), "most_likely"),
        (lambda: mix.next_actions(DEMOS), "log_prob_prefix"),
        (lambda: mix.predict_proba(DEMOS, partial=True), "log_prob_prefix"),
    ):
        with raises(InvalidParameter, parameter="irl", value=name):
            call()


@pytest.mark.parametrize("call", ["sample", "policy", "most_likely"])
def test_not_fitted(call):
    with pytest.raises(NotFitted, match="Call fit"):
        getattr(IntentMixture(), call)(*([0, 1] if call == "most_likely" else [1]))
