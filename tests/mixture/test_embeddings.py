"""Embeddings by name, compared with brute force and finite differences, for groups, agents, files and mixtures."""

import warnings

import numpy as np
import pytest
from sklearn.base import clone

from limiirl import MDP, Demonstrations, IntentMixture, MaxCausalEnt, MaxEnt, SigmaGIRL
from limiirl.demos.agents import Agents
from limiirl.errors import ConvergenceWarning, DegenerateIntentWarning, IdentifiabilityWarning, InvalidParameter
from limiirl.irl.problem import make_problem
from limiirl.mixture.init import EMBEDDINGS, compute_gradients, embed, normalise_counts, whiten_scores
from limiirl.mixture.selection.select import select_intents
from tests.helpers import raises
from tests.oracles.mixture import crossings, walks

MAP = crossings()
DEMOS, LABELS = walks(60, seed=3)
GROUPS = np.repeat(np.arange(6), [2, 4, 8, 10, 16, 20])
MODELS = [MaxEnt(max_length=7, bounds=(-5, 5), gtol=1e-9), MaxCausalEnt(bounds=(-5, 5), gtol=1e-9)]


def test_shares_are_features_over_their_sum():
    result = normalise_counts(make_problem(MODELS[0], MAP, DEMOS))
    for row, features in zip(result, DEMOS.features(MAP), strict=True):
        np.testing.assert_allclose(row, [x / sum(abs(features)) for x in features], rtol=1e-12)


def test_shares_of_zero_features_are_zero():
    mdp = MDP.from_edges([0], [1], p0=[1, 0], state_features=[[0.0], [-2.0]])
    result = normalise_counts(make_problem(MODELS[0], mdp, Demonstrations.from_lists([[0], [0, 1]])))
    np.testing.assert_array_equal(result, [[0.0], [-1.0]])


@pytest.mark.parametrize("irl", MODELS, ids=["MaxEnt", "MaxCausalEnt"])
@pytest.mark.parametrize("groups", [None, GROUPS], ids=["demos", "groups"])
def test_gradients_are_whitened_differences_of_log_prob(irl, groups):
    names = np.arange(60) if groups is None else groups
    members = [np.flatnonzero(names == name) for name in np.unique(names)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IdentifiabilityWarning)  # all walks have the same length
        theta = irl.fit(MAP, DEMOS)
    h, scores = 1e-5, np.empty((60, 3))
    for j in range(3):
        either = np.array([theta + h * np.eye(3)[j], theta - h * np.eye(3)[j]])
        log_p = irl.log_prob(MAP, either, DEMOS)
        scores[:, j] = (log_p[:, 0] - log_p[:, 1]) / (2 * h)
    means = np.array([scores[rows].mean(axis=0) for rows in members])
    # Distances between whitened points are Mahalanobis distances, independent of the axes.
    inverse = np.linalg.pinv(means.T @ means / len(means), rcond=1e-6, hermitian=True)
    result = compute_gradients(make_problem(irl, MAP, DEMOS, groups))
    for i in (0, 3, 5):
        for j in range(len(means)):
            wanted = (means[i] - means[j]) @ inverse @ (means[i] - means[j])
            np.testing.assert_allclose(np.sum((result[i] - result[j]) ** 2), wanted, rtol=1e-4, atol=1e-6)


def test_whitened_points_have_unit_moments_and_no_empty_directions():
    points = np.random.default_rng(0).normal(size=(50, 3)) @ np.diag([1.0, 100.0, 0.0])
    result = whiten_scores(points)
    assert result.shape == (50, 2)
    np.testing.assert_allclose(result.T @ result / 50, np.eye(2), atol=1e-10)
    np.testing.assert_array_equal(whiten_scores(np.zeros((4, 2))), np.zeros((4, 1)))


@pytest.mark.parametrize("name", list(EMBEDDINGS))
def test_an_embedding_by_name_equals_its_array(name):
    points = EMBEDDINGS[name](make_problem(MODELS[0], MAP, DEMOS))
    by_name, by_array = (
        IntentMixture(2, MODELS[0], embedding=how, random_state=0, max_iter=2, resp_tol=0.5).fit(MAP, DEMOS)
        for how in (name, points)
    )
    np.testing.assert_array_equal(by_name.responsibilities_, by_array.responsibilities_)
    assert not np.array_equal(points, DEMOS.features(MAP))


@pytest.mark.parametrize("name", list(EMBEDDINGS))
def test_identical_demonstrations_have_one_point(name):
    same = Demonstrations.from_lists([[0, 1, 5]] * 4)
    result = EMBEDDINGS[name](make_problem(MODELS[0], MAP, same))
    np.testing.assert_array_equal(np.ptp(result, axis=0), 0.0)
    with pytest.warns(DegenerateIntentWarning):
        mix = IntentMixture(2, MODELS[0], embedding=name, random_state=0).fit(MAP, same)
    np.testing.assert_allclose(mix.weights_.max(), 1.0, atol=1e-6)


@pytest.mark.parametrize("name", list(EMBEDDINGS))
def test_agents_need_no_mdp(name):
    rng = np.random.default_rng(0)
    x, phi = rng.normal(size=(4, 3, 6, 2)), rng.normal(size=(4, 3, 6, 2))
    agents = Agents.from_arrays(list(x), [rng.integers(0, 2, size=(3, 6)) for _ in range(4)], list(phi))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DegenerateIntentWarning)
        mix = IntentMixture(2, SigmaGIRL(), embedding=name, random_state=0, max_iter=1, resp_tol=2.0).fit(None, agents)
    assert mix.responsibilities_.shape == (4, 2)


def test_names_are_kept_by_files_clones_and_select_intents(tmp_path):
    mix = IntentMixture(2, MODELS[0], embedding="gradients", refine="split_merge", init="best", random_state=0)
    mix.set_params(likelihood_tol=1e-3).fit(MAP, DEMOS)
    mix.save(tmp_path / "mixture")
    again = IntentMixture.load(tmp_path / "mixture")
    for name in ("embedding", "refine", "init"):
        assert again.get_params()[name] == clone(mix).get_params()[name] == mix.get_params()[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = select_intents(MAP, DEMOS, [1, 2], mixture=clone(mix), folds=2, resamples=0)
    assert [row.n_intents for row in result.rows] == [1, 2]


def test_unknown_names_raise_with_a_list_of_names():
    with raises(InvalidParameter, parameter="embedding", value="nowhere") as caught:
        IntentMixture(2, MODELS[0], embedding="nowhere").fit(MAP, DEMOS)
    assert "shares, gradients" in str(caught.value)


def lengths_and_ends(mdp, demos):
    return np.column_stack([demos.lengths, mdp.state_features[demos.last_states]])


@pytest.mark.parametrize("groups", [None, GROUPS], ids=["demos", "groups"])
def test_an_embedding_may_be_a_function(groups):
    """The function of (mdp, demos) returns one point per demonstration; the point of a group is their mean."""
    given = {"irl": MODELS[0], "random_state": 0, "max_iter": 2, "resp_tol": 0.5}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        by_points, by_function, plain = (
            IntentMixture(2, embedding=how, **given).fit(MAP, DEMOS, groups)
            for how in (lengths_and_ends(MAP, DEMOS), lengths_and_ends, None)
        )
    np.testing.assert_array_equal(by_points.responsibilities_, by_function.responsibilities_)
    assert not np.array_equal(by_function.responsibilities_, plain.responsibilities_)
    result = embed(lengths_and_ends, make_problem(MODELS[0], MAP, DEMOS, GROUPS))
    wanted = [lengths_and_ends(MAP, DEMOS)[group == GROUPS].mean(axis=0) for group in range(6)]
    np.testing.assert_allclose(result, wanted, rtol=1e-12)


def test_a_function_must_return_one_point_per_demonstration():
    with raises(InvalidParameter, parameter="embedding", value=(3, 3)):
        IntentMixture(2, MODELS[0], embedding=lambda mdp, demos: np.zeros((3, mdp.n_features))).fit(MAP, DEMOS)
