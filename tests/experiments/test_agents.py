"""Trials of agents: the same agents for every method, one intent each, and records that say what the library says."""

import subprocess
import sys

import numpy as np
import pytest

from limiirl import IntentMixture, RewardEnsemble, SigmaGIRL, metrics
from limiirl.errors import InvalidParameter
from limiirl.experiments import problem
from limiirl.experiments.example import restore
from limiirl.experiments.problem import handed_out, make_agents, make_problem, with_agents
from limiirl.experiments.spec import BASE, Spec, parameters
from limiirl.experiments.studies import STUDIES
from limiirl.experiments.trial import attempt, make_mixture, run_trial
from limiirl.worlds.continuous_puddleworld import ContinuousPuddleWorld
from tests.helpers import raises

ELEMENTS = BASE.in_world(n_elements=2).with_(
    n_demos=40, n_test=40, n_intents=2, n_agents=2, model="SigmaGIRL", model_parameters=parameters(gamma=0.99)
)
PUDDLE = STUDIES["sigma-girl"].spec("k-means, reward features", 5)


def test_agents_share_the_demonstrations_of_their_intent_and_nothing_is_lost():
    labels = np.array([1, 0, 1, 1, 0, 1, 0])
    owners = handed_out(labels, 2)
    np.testing.assert_array_equal(owners, [2, 0, 3, 2, 1, 3, 0])
    problem, plain = make_agents(ELEMENTS, 3), make_problem(ELEMENTS, 3)
    assert problem.labels.tolist() == problem.test_labels.tolist() == [0, 0, 1, 1]
    assert sum(len(agent.live) for agent in problem.demos) == 40
    for k in range(2):
        own = np.flatnonzero(plain.labels == k)
        for i in range(2):
            mine = plain.demos[own[i::2]]
            expected = -mine.features(plain.world.mdp).mean(axis=0)  # costs
            np.testing.assert_allclose(problem.demos.features(0.99)[2 * k + i], expected, rtol=1e-12, atol=1e-12)


@pytest.mark.slow
def test_methods_meet_the_same_agents_and_seeds_differ():
    one, other = (make_agents(ELEMENTS.with_(init=init), 3) for init in ("kmeans", "labels"))
    assert one is other
    assert make_agents(ELEMENTS, 4).demos != one.demos
    assert one.test != one.demos
    one, other = (make_agents(STUDIES["sigma-girl"].spec(method, 5), 1) for method in ("supervised", "random rewards"))
    assert one is other
    assert make_agents(PUDDLE, 2).demos != one.demos
    assert one.test != one.demos


def test_the_agents_of_the_puddle_are_its_own():
    problem, world = make_agents(PUDDLE.with_(n_test=7), 1), ContinuousPuddleWorld(gamma=0.999, seed=1)
    assert problem.demos == world.agents(5, seed=2)
    assert problem.test == world.agents(7, seed=3)
    assert problem.labels.tolist() == [0, 1, 1]
    assert problem.mdp is None


@pytest.mark.filterwarnings("ignore::limiirl.errors.LimiirlWarning")  # of random starts; a trial ignores them too
@pytest.mark.parametrize("method", STUDIES["sigma-girl"].methods)
def test_a_trial_in_two_parts_is_one_fit(method):
    spec = STUDIES["sigma-girl"].spec(method, 5)
    whole = make_mixture(spec, 1).fit(None, make_agents(spec, 1).demos)
    record = run_trial(spec, 1)
    np.testing.assert_allclose(record.thetas, whole.thetas_, rtol=0, atol=1e-12)
    np.testing.assert_allclose(record.weights, whole.weights_, rtol=0, atol=1e-12)
    assert record.n_iter == whole.n_iter_


def test_scores_are_those_of_new_agents():
    record = run_trial(PUDDLE, 1)
    world = ContinuousPuddleWorld(gamma=0.999, seed=1)
    mix = IntentMixture(2, SigmaGIRL(gamma=0.999), random_state=1).fit(None, world.agents(5, seed=2))
    new = world.agents(5, seed=3)
    U = mix.predict_proba(new)
    np.testing.assert_allclose(record.nll, -mix.score(new), rtol=1e-10)
    np.testing.assert_allclose(record.train_nll, -mix.log_likelihood_, rtol=1e-10)
    np.testing.assert_allclose(record.anid, metrics.anid([0, 1, 1], U), rtol=0, atol=1e-9)
    told = np.argmax(U, axis=1)
    assert record.accuracy == max(np.mean(told == [0, 1, 1]), np.mean(told == [1, 0, 0]))
    assert (record.gevd, record.gevd_start, record.gevd_normalised, record.anid_truth) == (None, None, None, None)
    assert record.max_length is None


def test_costs_become_rewards_in_the_world():
    record, problem = run_trial(ELEMENTS, 0), make_problem(ELEMENTS, 0)
    assert np.max(record.thetas) <= 0.0
    np.testing.assert_allclose(np.sum(record.thetas, axis=1), -1.0, rtol=1e-9)
    learned = RewardEnsemble(record.weights, record.thetas)
    found = metrics.gevd(problem.world.mdp, problem.truth, learned)
    np.testing.assert_allclose(record.gevd, found.value, rtol=1e-9)


def test_records_repeat_themselves_bit_for_bit_whatever_came_before():
    first = run_trial(PUDDLE, 1).reproducible(), run_trial(ELEMENTS, 1).reproducible()
    run_trial(PUDDLE.with_(init="random"), 2)
    for cache in (problem._own_agents, problem._handed_out, problem._puddle):
        cache.cache_clear()
    assert (run_trial(PUDDLE, 1).reproducible(), run_trial(ELEMENTS, 1).reproducible()) == first


def test_a_restored_mixture_is_the_recorded_one_in_the_order_of_the_truth():
    for spec in (PUDDLE.with_(init="labels", max_iter=0), ELEMENTS.with_(init="labels", max_iter=0)):
        record, problem = run_trial(spec, 0), make_agents(spec, 0)
        mixture = restore(spec, record)
        np.testing.assert_allclose(problem.rewards(mixture.thetas_), record.thetas, rtol=0, atol=1e-12)


def test_what_cannot_be_recorded_by_agents_is_a_record_that_says_so():
    assert "SigmaGIRL knows no MDP" in attempt((ELEMENTS.with_(n_agents=None), 0)).error
    assert attempt((ELEMENTS.with_(n_agents=15), 0)).error.startswith("InvalidDemos: Agent 1 ")  # has hardly anything
    assert not with_agents(Spec(model="SigmaGIRL"))
    with raises(InvalidParameter, parameter="n_agents"):
        make_agents(ELEMENTS.with_(n_agents=None), 0)


@pytest.mark.slow
def test_sigma_girl_is_computed_without_gymnasium():
    code = (
        "import sys; sys.modules['gymnasium'] = None\n"
        "from limiirl.experiments.studies import STUDIES\n"
        "from limiirl.experiments.trial import run_trial\n"
        "record = run_trial(STUDIES['sigma-girl'].spec('supervised', 5), 0)\n"
        "print(record.accuracy)"
    )
    ran = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert float(ran.stdout) >= 2 / 3
