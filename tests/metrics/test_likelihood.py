"""Mixture NLL against every trajectory written out, and not the upper bound that the released code reports."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from scipy.special import logsumexp

from limiirl import Demonstrations, IntentMixture, MaxEnt, RewardEnsemble
from limiirl.errors import InvalidDemos, InvalidParameter, LimiirlError, NotFitted
from limiirl.metrics.evaluate import ensemble_nll, mixture_nll
from limiirl.worlds import ElementWorld
from tests.helpers import examples, raises
from tests.oracles.enumeration import Enumeration
from tests.oracles.likelihood import as_demonstrations, log_probs, possible, small_mdp
from tests.oracles.mixture import TASTES, crossings, walks
from tests.oracles.random_mdps import Case, cases

MDP = small_mdp()
PATHS = Enumeration(MDP, 4)
TRUTH = RewardEnsemble([0.2, 0.5, 0.3], np.random.default_rng(3).normal(scale=2.0, size=(3, MDP.n_features)))


def naive(log_p, weights):
    """-log sum_k rho_k p_k, one demonstration at a time."""
    return np.array([-logsumexp(row, b=weights) for row in log_p])


@pytest.fixture(scope="module")
def fitted():
    demos, _ = walks(60, seed=2)
    mix = IntentMixture(2, MaxEnt(7, (-5, 5)), random_state=0).fit(crossings(), demos)
    return mix, demos


def test_ensemble_nll_equals_enumeration_and_stays_below_the_released_codes_bound():
    rows = possible(PATHS)[::3]
    demos = as_demonstrations(PATHS, rows)
    log_p = np.column_stack([log_probs(PATHS, theta)[rows] for theta in TRUTH.thetas])
    nll = ensemble_nll(MaxEnt(4), MDP, TRUTH, demos)
    np.testing.assert_allclose(nll.values, naive(log_p, TRUTH.weights), rtol=1e-10)
    # Fault 13: sum_k rho_k NLL_k is an upper bound, by Jensen, and here by much.
    bound = -(log_p @ TRUTH.weights)
    assert np.all(nll.values < bound)
    assert bound.mean() - nll.mean > 0.5
    np.testing.assert_array_equal(nll.n_steps, demos.lengths)
    assert nll.unit == "demonstrations"


@given(cases())
@settings(max_examples=examples(30))
def test_nll_of_any_ensemble_equals_enumeration_and_probabilities_sum_to_one(case: Case):
    paths = Enumeration(case.mdp, case.max_length)
    rows = possible(paths)
    weights = np.random.default_rng(len(rows)).dirichlet(np.ones(len(case.thetas)))
    demos = as_demonstrations(paths, rows)
    log_p = np.column_stack([log_probs(paths, theta)[rows] for theta in case.thetas])
    nll = ensemble_nll(MaxEnt(case.max_length), case.mdp, RewardEnsemble(weights, case.thetas), demos)
    np.testing.assert_allclose(nll.values, naive(log_p, weights), rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(np.exp(-nll.values).sum(), 1.0, rtol=1e-8)
    assert np.all(nll.values <= -(log_p @ weights) + 1e-8)


def test_mixture_nll_is_minus_score_samples_and_equals_ensemble_nll(fitted):
    mix, demos = fitted
    nll = mixture_nll(mix, demos)
    np.testing.assert_array_equal(nll.values, -mix.score_samples(demos))
    np.testing.assert_allclose(nll.mean, -mix.score(demos), rtol=1e-14)
    np.testing.assert_allclose(nll.values, ensemble_nll(mix.irl_, mix.mdp_, mix.ensemble_, demos).values, rtol=1e-12)
    np.testing.assert_allclose(nll.per_step, nll.values.sum() / demos.n_steps, rtol=1e-14)
    per_intent = mix.irl_.log_prob(mix.mdp_, mix.thetas_, demos)
    assert nll.mean < -(per_intent @ mix.weights_).mean() - 0.01


def test_groups_share_their_intent(fitted):
    mix, demos = fitted
    groups = np.array(["a", "b", "c"])[np.arange(60) % 3]
    nll = mixture_nll(mix, demos, groups)
    log_p = mix.irl_.log_prob(mix.mdp_, mix.thetas_, demos)
    wanted = [-logsumexp(log_p[groups == name].sum(axis=0), b=mix.weights_) for name in "abc"]
    np.testing.assert_allclose(nll.values, wanted, rtol=1e-12)
    assert nll.names.tolist() == ["a", "b", "c"]
    assert nll.unit == "groups"
    np.testing.assert_array_equal(nll.n_demos, [20, 20, 20])
    np.testing.assert_array_equal(nll.n_steps, [demos.lengths[groups == name].sum() for name in "abc"])
    np.testing.assert_allclose(nll.per_demo, nll.total / 60, rtol=1e-14)
    np.testing.assert_allclose(nll.mean, nll.total / 3, rtol=1e-14)
    np.testing.assert_allclose(
        ensemble_nll(mix.irl_, mix.mdp_, mix.ensemble_, demos, groups).values, nll.values, rtol=1e-12
    )
    assert "per group" in repr(nll)


def test_an_intent_of_weight_zero_plays_no_part():
    demos, _ = walks(20, seed=1)
    two = RewardEnsemble([0.6, 0.4], TASTES)
    three = RewardEnsemble([0.6, 0.0, 0.4], np.insert(TASTES, 1, [5.0, 5.0, 5.0], axis=0))
    one, other = (ensemble_nll(MaxEnt(7), crossings(), ensemble, demos) for ensemble in (two, three))
    np.testing.assert_array_equal(one.values, other.values)


def test_to_dict_is_plain(fitted):
    mix, demos = fitted
    nll = mixture_nll(mix, demos)
    read = json.loads(json.dumps(nll.to_dict(), allow_nan=False))
    np.testing.assert_array_equal(read["values"], nll.values)
    assert (read["n_demos"], read["n_steps"], read["per_step"]) == (60, demos.n_steps, nll.per_step)


class Impossible:
    """A model under which demonstration 2 has zero likelihood."""

    def log_prob(self, mdp, thetas, demos):
        nll = np.zeros((len(demos), len(thetas)))
        nll[2] = -np.inf
        return nll


def test_errors(fitted):
    mix, demos = fitted
    ensemble = RewardEnsemble([1.0], TASTES[:1])
    with raises(InvalidDemos, parameter="demos"):
        mixture_nll(mix, demos[:0])
    with raises(InvalidDemos, parameter="demos"):
        ensemble_nll(MaxEnt(7), crossings(), ensemble, [[0, 1]])
    with raises(InvalidParameter, parameter="ensemble"):
        ensemble_nll(MaxEnt(7), crossings(), mix, demos)
    with pytest.raises(NotFitted):
        mixture_nll(IntentMixture(), demos)
    with raises(InvalidDemos, parameter="demos", index=2):
        ensemble_nll(Impossible(), None, ensemble, demos)
    with pytest.raises(LimiirlError, match="max_length"):
        ensemble_nll(MaxEnt(3), crossings(), ensemble, Demonstrations.from_lists([[0, 1, 2, 3]]))


def test_arguments_in_another_order_are_named():
    world = ElementWorld()
    demos, _ = world.sample(5, seed=0)
    with raises(InvalidParameter, parameter="mixture"):
        mixture_nll(world.ensemble, demos)
    with raises(InvalidParameter, parameter="irl"):
        ensemble_nll(world.mdp, MaxEnt(50), world.ensemble, demos)
