"""Trials: records repeat bit for bit and agree with the library."""

import subprocess
import sys
from itertools import permutations

import numba
import numpy as np
import pytest

from limiirl import IntentMixture, MaxEnt, RewardEnsemble, SigmaGIRL, metrics
from limiirl.errors import InvalidParameter
from limiirl.experiments import trial
from limiirl.experiments.run import restore
from limiirl.experiments.spec import BASE, METHODS, Spec, method_spec, parameters
from limiirl.experiments.studies import STUDIES
from limiirl.experiments.trial import (
    assign_agents,
    attempt,
    make_agents,
    make_mixture,
    make_problem,
    run_trial,
    with_agents,
)
from limiirl.worlds import ElementWorld, geometric_weights
from limiirl.worlds.continuous_puddleworld import ContinuousPuddleWorld
from tests.helpers import raises

SMALL = BASE.with_(n_demos=40, n_test=30)


@pytest.mark.parametrize("method", METHODS)
def test_a_trial_equals_a_single_fit(method):
    spec = method_spec(SMALL, method)
    problem = make_problem(spec, 3)
    whole = make_mixture(spec, 3).fit(problem.world.mdp, problem.demos)
    record = run_trial(spec, 3)
    np.testing.assert_array_equal(record.thetas, whole.thetas_)
    np.testing.assert_array_equal(record.weights, whole.weights_)
    assert record.n_iter == whole.n_iter_ == (0 if method == "supervised" else len(record.history) - 1)
    assert record.history == [-entry.log_likelihood for entry in whole.history_]


def test_scores_of_the_initial_and_final_mixture():
    spec = method_spec(SMALL, "random rewards")
    world = ElementWorld(n_elements=3, wind=0.1, height=6, gamma=0.99, seed=5)
    demos, _ = world.sample(40, seed=10)
    test, labels = world.sample(30, seed=11)
    longest = int(max(demos.lengths.max(), test.lengths.max()))
    record = run_trial(spec, 5)
    assert record.max_length == longest
    for suffix, n in (("_start", 0), ("", 100)):
        mix = IntentMixture(3, MaxEnt(longest), "random_rewards", max_iter=n, random_state=5).fit(world.mdp, demos)
        np.testing.assert_allclose(getattr(record, "nll" + suffix), -mix.score(test), rtol=1e-12)
        np.testing.assert_allclose(getattr(record, "train_nll" + suffix), -mix.score(demos), rtol=1e-12)
        U = mix.predict_proba(test)
        np.testing.assert_allclose(getattr(record, "anid" + suffix), metrics.anid(labels, U), rtol=1e-12)
        hard = metrics.anid(labels, np.argmax(U, axis=1))
        np.testing.assert_allclose(getattr(record, "anid_hard" + suffix), hard, rtol=1e-12, atol=1e-15)
        predicted = np.argmax(U, axis=1)
        best = max(np.mean(np.array(names)[predicted] == labels) for names in permutations(range(3)))
        np.testing.assert_allclose(getattr(record, "accuracy" + suffix), best, rtol=1e-12)
        result = metrics.gevd(world.mdp, world.ensemble, mix.ensemble_)
        np.testing.assert_allclose(getattr(record, "gevd" + suffix), result.value, rtol=1e-9)
        log_p = mix.irl_.log_prob(world.mdp, world.ensemble.thetas, test)
        V = np.exp(log_p - np.logaddexp.reduce(log_p, axis=1, keepdims=True))
        np.testing.assert_allclose(getattr(record, "anid_truth" + suffix), metrics.anid(V, U), rtol=1e-9)


def test_records_are_reproducible_bit_for_bit():
    spec = method_spec(SMALL, "random responsibilities")
    first = run_trial(spec, 1)
    run_trial(method_spec(SMALL.in_world(wind=0.2), "GMM, MLE"), 4)
    trial._make_problem.cache_clear()
    assert run_trial(spec, 1).reproducible() == first.reproducible()


def test_demonstrations_depend_on_the_seed_and_not_on_the_method():
    one, other = (make_problem(method_spec(SMALL, method), 2) for method in ("k-means, MLE", "supervised"))
    np.testing.assert_array_equal(one.demos.states, other.demos.states)
    assert make_problem(SMALL, 3).demos.states.tolist() != one.demos.states.tolist()
    assert one.demos.states.tolist() != one.test.states.tolist()


def test_labels_do_not_leak_into_unsupervised_fits():
    problem = make_problem(SMALL, 2)
    fitted = [
        make_mixture(method_spec(SMALL, "k-means, MLE"), 2).fit(problem.world.mdp, demos).thetas_
        for demos in (problem.demos, problem.demos.replace(labels=problem.labels[::-1].copy()))
    ]
    np.testing.assert_array_equal(*fitted)


def test_imbalance_sets_both_the_demonstrations_and_the_truth():
    problem = make_problem(BASE.with_(imbalance=0.4), 0)
    weights = geometric_weights(3, 0.4)
    np.testing.assert_array_equal(problem.truth.weights, weights)
    np.testing.assert_allclose(np.bincount(problem.labels) / 100, weights, atol=0.01)
    np.testing.assert_allclose(np.bincount(problem.test_labels) / 100, weights, atol=0.01)


def test_max_length_is_given_or_the_longest_of_both_sets():
    problem = make_problem(SMALL, 0)
    assert make_mixture(SMALL, 0).irl.max_length == max(problem.demos.lengths.max(), problem.test.lengths.max())
    assert make_mixture(SMALL.with_(max_length=50), 0).irl.max_length == 50


def test_the_margin_is_the_mean_smallest_distance_between_intents():
    problem, record = make_problem(SMALL, 0), run_trial(method_spec(SMALL, "supervised"), 0)
    F = problem.demos.features(problem.world.mdp)
    least = [
        min(np.linalg.norm(a - b) for a in F[problem.labels == i] for b in F[problem.labels == j])
        for i, j in ((0, 1), (0, 2), (1, 2))
    ]
    np.testing.assert_allclose(record.margin, np.mean(least), rtol=1e-12)


def test_the_supervised_baseline_is_one_fit_per_label():
    record, problem = run_trial(method_spec(SMALL, "supervised"), 0), make_problem(SMALL, 0)
    for k, theta in enumerate(record.thetas):
        alone = MaxEnt(record.max_length).fit(problem.world.mdp, problem.demos[problem.labels == k])
        np.testing.assert_allclose(theta, alone, atol=1e-4)
    assert (record.n_iter, record.seconds_em) == (0, 0.0)


def test_other_worlds_and_one_intent_work():
    puddle = Spec(world="PuddleWorld", n_demos=30, n_test=20, n_intents=2)
    assert run_trial(puddle, 0).error == ""
    alone = BASE.in_world(n_elements=1).with_(n_demos=10, n_test=10, n_intents=1)
    record = run_trial(alone, 0)
    assert (record.margin, record.anid) == (None, 0.0)


def test_a_failed_trial_records_its_error():
    impossible = SMALL.with_(world="Nowhere")
    record = attempt((impossible, 7))
    assert record.failed
    assert record.key == (impossible.hash, 7)
    assert record.error.startswith("InvalidParameter: world must be one of ElementWorld")
    assert "make_problem" in record.trace
    assert record.nll is None


def test_a_trial_runs_on_one_thread(monkeypatch):
    seen = []
    judge = trial.evaluate
    monkeypatch.setattr(trial, "evaluate", lambda *given: (seen.append(numba.get_num_threads()), judge(*given))[1])
    run_trial(method_spec(SMALL, "supervised"), 0)
    assert seen == [1]


def test_the_full_gmm_has_five_random_starts():
    made = make_mixture(method_spec(SMALL, "full GMM, MLE"), 0).init
    assert (made.covariance_type, made.init_params, made.n_init) == ("full", "random", 5)


def test_a_trial_restores_the_number_of_threads():
    before = numba.get_num_threads()
    attempt((method_spec(SMALL, "supervised"), 0))
    attempt((SMALL.with_(model="None"), 0))
    assert numba.get_num_threads() == before


def test_a_restored_mixture_equals_the_recorded_one():
    spec = method_spec(SMALL, "k-means, MLE")
    record = run_trial(spec, 0)
    mixture, problem = restore(spec, record), make_problem(spec, 0)
    np.testing.assert_allclose(np.sort(mixture.thetas_, axis=0), np.sort(record.thetas, axis=0), rtol=1e-12)
    assert np.mean(mixture.labels_ == problem.labels) > 0.9
    result = RewardEnsemble(record.weights, record.thetas)
    np.testing.assert_allclose(metrics.gevd(problem.world.mdp, result, mixture.ensemble_).value, 0.0, atol=1e-9)


def test_model_parameters_are_applied():
    spec = SMALL.with_(model_parameters=parameters(bounds=(-3.0, 0.0)))
    assert np.min(run_trial(spec, 0).thetas) >= -3.0


def test_mixture_parameters_are_applied():
    spec = method_spec(SMALL, "random rewards").with_(
        mixture_parameters=parameters(n_init=2, resp_tol=0.01), max_iter=20
    )
    problem = make_problem(spec, 3)
    whole = make_mixture(spec, 3)
    assert (whole.n_init, whole.resp_tol) == (2, 0.01)
    whole.fit(problem.world.mdp, problem.demos)
    record = run_trial(spec, 3)
    np.testing.assert_array_equal(record.thetas, whole.thetas_)
    assert (record.n_iter, len(whole.restarts_)) == (whole.n_iter_, 2)
    best = max(restart.objective for restart in whole.restarts_)
    np.testing.assert_allclose(record.train_nll, -best, rtol=1e-12)


def test_compilation_is_not_timed(monkeypatch):
    fitted, fit = [], trial.fit_problem
    monkeypatch.setattr(
        trial, "fit_problem", lambda mixture, problem: (fitted.append(len(problem.demos)), fit(mixture, problem))[1]
    )
    trial._warm_up.cache_clear()
    spec = method_spec(SMALL, "supervised").with_(model="MaxCausalEnt", model_parameters=parameters(beta=2.0))
    run_trial(spec, 0)
    assert fitted == [18, 18, 40]
    run_trial(spec, 1)
    assert fitted[3:] == [40]


ELEMENTS = BASE.in_world(n_elements=2).with_(
    n_demos=40, n_test=40, n_intents=2, n_agents=2, model="SigmaGIRL", model_parameters=parameters(gamma=0.99)
)


PUDDLE = STUDIES["sigma-girl"].spec("k-means, reward features", 5)


@pytest.mark.filterwarnings("ignore::limiirl.errors.LimiirlWarning")  # of random starts; a trial ignores them too
@pytest.mark.parametrize("method", STUDIES["sigma-girl"].methods)
def test_a_trial_with_agents_equals_a_single_fit(method):
    spec = STUDIES["sigma-girl"].spec(method, 5)
    whole = make_mixture(spec, 1).fit(None, make_agents(spec, 1).demos)
    record = run_trial(spec, 1)
    np.testing.assert_allclose(record.thetas, whole.thetas_, rtol=0, atol=1e-12)
    np.testing.assert_allclose(record.weights, whole.weights_, rtol=0, atol=1e-12)
    assert record.n_iter == whole.n_iter_


@pytest.mark.filterwarnings("ignore::limiirl.errors.IdentifiabilityWarning")  # a feature that never varies
def test_scores_are_those_of_test_agents():
    record = run_trial(PUDDLE, 1)
    world = ContinuousPuddleWorld(gamma=0.999, seed=1)
    mix = IntentMixture(2, SigmaGIRL(gamma=0.999), random_state=1).fit(None, world.agents(5, seed=2))
    new = world.agents(5, seed=3)
    U = mix.predict_proba(new)
    np.testing.assert_allclose(record.nll, -mix.score(new), rtol=1e-10)
    np.testing.assert_allclose(record.train_nll, -mix.log_likelihood_, rtol=1e-10)
    np.testing.assert_allclose(record.anid, metrics.anid([0, 1, 1], U), rtol=0, atol=1e-9)
    predicted = np.argmax(U, axis=1)
    assert record.accuracy == max(np.mean(predicted == [0, 1, 1]), np.mean(predicted == [1, 0, 0]))
    assert (record.gevd, record.gevd_start, record.gevd_normalised, record.anid_truth) == (None, None, None, None)
    assert record.max_length is None


def test_costs_become_rewards_in_the_world():
    record, problem = run_trial(ELEMENTS, 0), make_problem(ELEMENTS, 0)
    assert np.max(record.thetas) <= 0.0
    np.testing.assert_allclose(np.sum(record.thetas, axis=1), -1.0, rtol=1e-9)
    learned = RewardEnsemble(record.weights, record.thetas)
    result = metrics.gevd(problem.world.mdp, problem.truth, learned)
    np.testing.assert_allclose(record.gevd, result.value, rtol=1e-9)


def test_records_of_agents_are_reproducible_bit_for_bit():
    first = run_trial(PUDDLE, 1).reproducible(), run_trial(ELEMENTS, 1).reproducible()
    run_trial(PUDDLE.with_(init="random"), 2)
    for cache in (trial._make_puddle_agents, trial._convert_to_agents, trial._make_puddle_world):
        cache.cache_clear()
    assert (run_trial(PUDDLE, 1).reproducible(), run_trial(ELEMENTS, 1).reproducible()) == first


def test_a_restored_mixture_of_agents_equals_the_recorded_one():
    for spec in (PUDDLE.with_(init="labels", max_iter=0), ELEMENTS.with_(init="labels", max_iter=0)):
        record, problem = run_trial(spec, 0), make_agents(spec, 0)
        mixture = restore(spec, record)
        np.testing.assert_allclose(problem.rewards(mixture.thetas_), record.thetas, rtol=0, atol=1e-12)


def test_invalid_trials_of_agents_record_their_errors():
    assert "mdp must be None for SigmaGIRL" in attempt((ELEMENTS.with_(n_agents=None), 0)).error
    assert attempt((ELEMENTS.with_(n_agents=15), 0)).error.startswith("InvalidDemos: agents[1] ")
    assert not with_agents(Spec(model="SigmaGIRL"))
    with raises(InvalidParameter, parameter="n_agents"):
        make_agents(ELEMENTS.with_(n_agents=None), 0)


@pytest.mark.slow
def test_sigma_girl_does_not_need_gymnasium():
    code = (
        "import sys; sys.modules['gymnasium'] = None\n"
        "from limiirl.experiments.studies import STUDIES\n"
        "from limiirl.experiments.trial import run_trial\n"
        "record = run_trial(STUDIES['sigma-girl'].spec('supervised', 5), 0)\n"
        "print(record.accuracy)"
    )
    ran = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert float(ran.stdout) >= 2 / 3


def test_max_length_bounds_causal_models():
    spec = SMALL.with_(model="MaxCausalEnt", max_length=60)
    assert make_mixture(spec, 0).irl.max_length == 60
    assert make_mixture(spec.with_(max_length="longest"), 0).irl.max_length == np.inf
    record = run_trial(spec, 0)
    assert record.max_length == 60
    assert record.nll != run_trial(spec.with_(max_length="longest"), 0).nll
    with raises(InvalidParameter, parameter="max_length", value=60):
        make_mixture(spec.with_(model="MLIRL"), 0)


def test_agents_share_all_demonstrations_of_their_intent():
    labels = np.array([1, 0, 1, 1, 0, 1, 0])
    owners = assign_agents(labels, 2)
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
def test_agents_depend_on_the_seed_and_not_on_the_method():
    one, other = (make_agents(ELEMENTS.with_(init=init), 3) for init in ("kmeans", "labels"))
    assert one is other
    assert make_agents(ELEMENTS, 4).demos != one.demos
    assert one.test != one.demos
    one, other = (make_agents(STUDIES["sigma-girl"].spec(method, 5), 1) for method in ("supervised", "random rewards"))
    assert one is other
    assert make_agents(PUDDLE, 2).demos != one.demos
    assert one.test != one.demos


def test_agents_of_the_puddle_world():
    problem, world = make_agents(PUDDLE.with_(n_test=7), 1), ContinuousPuddleWorld(gamma=0.999, seed=1)
    assert problem.demos == world.agents(5, seed=2)
    assert problem.test == world.agents(7, seed=3)
    assert problem.labels.tolist() == [0, 1, 1]
    assert problem.mdp is None
