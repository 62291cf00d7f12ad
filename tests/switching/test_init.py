"""Initial parameters: windows, labels, responsibilities and fitted mixtures."""

import numpy as np
import pytest

from limiirl import IntentMixture, MaxCausalEnt, SwitchingMixture
from limiirl.demos import Demonstrations
from limiirl.switching.init import SwitchingStarts, is_random
from limiirl.switching.problem import SwitchingProblem
from tests.oracles.switching import random_problem
from tests.switching.test_estimator import MODEL, switch


@pytest.fixture(scope="module")
def data():
    return switch(n_demos=4, length=120)


def starts(data, init, K=2, window=20, model=MODEL):
    mdp, demos, _ = data
    return SwitchingStarts(init, SwitchingProblem(model, mdp, demos), K, window)


def test_only_named_starts_are_random(data):
    assert is_random("kmeans")
    assert not is_random(np.zeros(3))


@pytest.mark.parametrize("init", ["kmeans", "random"])
def test_steps_of_a_window_have_the_same_responsibilities(data, init):
    own = starts(data, init, window=30)
    U = own._responsibilities(np.random.default_rng(0), first=True)
    assert sorted(np.unique(U).round(12).tolist()) == [0.05, 0.95]
    windows = U.reshape(16, 30, 2)
    np.testing.assert_array_equal(windows, np.broadcast_to(windows[:, :1], windows.shape))


def test_clusters_of_windows_resemble_the_intents(data):
    intents = data[2].ravel()
    U = starts(data, "kmeans", window=15)._responsibilities(np.random.default_rng(0), first=True)
    agreement = np.mean(np.argmax(U, axis=1) == intents)
    assert max(agreement, 1 - agreement) > 0.75


def test_random_windows_depend_on_the_seed(data):
    own = starts(data, "random")
    one, two = (own._responsibilities(np.random.default_rng(seed), first=True) for seed in (0, 1))
    assert np.any(one != two)
    np.testing.assert_array_equal(one, own._responsibilities(np.random.default_rng(0), first=True))


def test_large_data_cluster_a_sample(data, monkeypatch):
    monkeypatch.setattr("limiirl.switching.init._MOST_WINDOWS", 12)
    U = starts(data, "kmeans", window=15)._responsibilities(np.random.default_rng(0), first=True)
    agreement = np.mean(np.argmax(U, axis=1) == data[2].ravel())
    assert max(agreement, 1 - agreement) > 0.75


def test_labels_are_nearly_certain(data):
    labels = data[2].ravel()
    U = starts(data, labels)._responsibilities(np.random.default_rng(0), first=True)
    np.testing.assert_allclose(U[np.arange(labels.size), labels], 0.95, rtol=1e-12)
    np.testing.assert_allclose(U.sum(axis=1), 1.0, rtol=1e-12)


def test_responsibilities_are_used_as_given(data):
    given = np.random.default_rng(0).dirichlet(np.ones(2), size=480)
    U = starts(data, given)._responsibilities(np.random.default_rng(0), first=True)
    np.testing.assert_allclose(U, given, rtol=1e-14)


def test_m_step_counts_transitions_between_labels(data):
    labels = data[2]
    parameters = starts(data, labels.ravel()).begin(np.random.default_rng(0), first=True)
    counts = np.ones((2, 2))
    np.add.at(counts, (labels[:, :-1], labels[:, 1:]), 1.0)
    np.testing.assert_allclose(np.exp(parameters.logits.A), counts / counts.sum(axis=1, keepdims=True), rtol=1e-12)
    share = np.mean(labels[:, 0] == 0)
    np.testing.assert_allclose(parameters.initial[0], 0.05 + 0.9 * share, rtol=1e-12)


def test_posterior_of_an_intent_mixture_is_that_of_its_windows(data):
    mdp, demos, _ = data
    pieces = demos.cut(20)
    mix = IntentMixture(2, MaxCausalEnt(ridge=1e-3), random_state=0, resp_tol=1e-3).fit(mdp, pieces)
    U = starts(data, mix)._responsibilities(np.random.default_rng(0), first=True)
    expected = np.repeat(mix.predict_proba(pieces), pieces.lengths - 1, axis=0)
    np.testing.assert_allclose(U, expected, rtol=0, atol=1e-10)
    sw = SwitchingMixture(2, MODEL, init=mix).fit(mdp, demos)
    assert len(sw.restarts_) == 1
    assert sw.converged_


def test_fitted_mixture_continues_from_its_parameters(data):
    mdp, demos, _ = data
    first = SwitchingMixture(2, MODEL, random_state=0).fit(mdp, demos)
    second = SwitchingMixture(2, MODEL, init=first, max_iter=0).fit(mdp, demos)
    assert second.objective_ == pytest.approx(first.objective_, abs=1e-12)
    by_state = SwitchingMixture(2, MODEL, "state", init=first).fit(mdp, demos)
    assert by_state.history_[0].log_likelihood == pytest.approx(first.log_likelihood_, abs=1e-12)
    assert by_state.objective_ >= first.objective_


def test_more_intents_than_distinct_windows():
    # All windows are equal, so that k-means has fewer clusters than intents.
    problem = random_problem(0, lengths=(4,))
    demos = Demonstrations.concat([problem.demos] * 5)
    own = SwitchingStarts("kmeans", SwitchingProblem(MODEL, problem.mdp, demos), 3, 4)
    parameters = own.begin(np.random.default_rng(0), first=True)
    assert np.isfinite(parameters.thetas).all()
    np.testing.assert_allclose(parameters.initial.sum(), 1.0, rtol=1e-12)


@pytest.mark.parametrize("K", [2, 3, 9])
def test_recordings_shorter_than_a_window_are_divided(K):
    problem = random_problem(0, lengths=(9,))
    own = SwitchingStarts("kmeans", SwitchingProblem(MODEL, problem.mdp, problem.demos), K, 20)
    assert own._windows[1].shape[0] >= K
    parameters = own.begin(np.random.default_rng(0), first=True)
    assert np.unique(parameters.thetas.round(6), axis=0).shape[0] > 1


def test_one_intent_needs_no_clusters(data, monkeypatch):
    monkeypatch.delattr("limiirl.switching.init.kmeans")
    start = starts(data, "kmeans", K=1).begin(np.random.default_rng(0), first=True)
    assert start.thetas.shape[0] == start.initial.size == 1
