"""Every `init` and `reward_init`: initial responsibilities, rewards and warnings, and errors for invalid data."""

import re
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, clone
from sklearn.cluster import DBSCAN, AgglomerativeClustering, KMeans
from sklearn.metrics import adjusted_rand_score
from sklearn.mixture import BayesianGaussianMixture
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from limiirl import Demonstrations, IntentMixture, MaxEnt, RewardEnsemble
from limiirl.demos import Groups
from limiirl.errors import (
    ConvergenceWarning,
    DegenerateIntentWarning,
    DivergentPartition,
    InvalidDemos,
    InvalidParameter,
    NotFitted,
)
from limiirl.irl.problem import make_problem
from limiirl.mixture.init import (
    as_responsibilities,
    cluster,
    gmm,
    kmeans,
    mean,
    mean_clipped,
    mean_ray,
    mle,
    random_rewards,
    start_from,
)
from limiirl.worlds import ElementWorld
from tests.helpers import raises
from tests.oracles.mixture import crossings, walks

MDP = crossings()
DEMOS, LABELS = walks(90, seed=5)
IRL = MaxEnt(max_length=7, bounds=(-5, 5))
WORLD = ElementWorld(seed=3)
ROLLS, TRUTH = WORLD.sample(90, seed=0)


def start(init, reward_init="mle", n_intents=2, mdp=MDP, demos=DEMOS, groups=None, irl=IRL, **parameters):
    """The initial mixture, without an iteration of EM."""
    mix = IntentMixture(n_intents, irl, init, reward_init, max_iter=0, random_state=0, **parameters)
    return mix.fit(mdp, demos, groups)


def rng():
    return np.random.default_rng(0)


@pytest.mark.parametrize("init", ["kmeans", "gmm"])
def test_clusters_in_feature_space_recover_the_elements(init):
    mix = start(init, n_intents=3, mdp=WORLD.mdp, demos=ROLLS, irl=MaxEnt())
    assert adjusted_rand_score(TRUTH, mix.labels_) > 0.9


def test_kmeans_does_not_scale_points():
    points = ROLLS.features(WORLD.mdp)
    labels = kmeans(points, 3, rng())
    inertia = sum(np.sum((points[labels == k] - points[labels == k].mean(axis=0)) ** 2) for k in range(3))
    wanted = KMeans(3, n_init=50, random_state=1).fit(points).inertia_
    np.testing.assert_allclose(inertia, wanted, rtol=1e-6)


def test_gmm_is_soft_and_survives_collinear_points():
    points = rng().normal(size=(30, 1)) * [1.0, 2.0, -1e6, 0.0]
    U = gmm(points, 3, rng())
    np.testing.assert_allclose(U.sum(axis=1), 1.0, rtol=1e-9)
    assert np.any((U > 0.01) & (U < 0.99))
    np.testing.assert_array_equal(gmm(np.ones((5, 2)), 2, rng()), np.eye(2)[np.zeros(5, dtype=int)])


def test_random_rewards_are_the_papers_baseline():
    lower, upper = np.array([-10.0, -2.0, -np.inf]), np.array([0.0, 0.0, np.inf])
    draws = [random_rewards(lower, upper, 3, np.random.default_rng(seed)) for seed in range(400)]
    thetas = np.concatenate([draw.thetas for draw in draws])
    assert np.all(thetas.min(axis=0) >= [-10.0, -2.0, -10.0])
    assert np.all(thetas.max(axis=0) <= 0.0)
    np.testing.assert_allclose(thetas.mean(axis=0), [-5.0, -1.0, -5.0], atol=0.35)
    weights = np.array([draw.weights for draw in draws])
    # Dir(1/K): the variance of a share is (1/K)(1 - 1/K) / 2.
    np.testing.assert_allclose(weights.var(axis=0).mean(), (1 / 3) * (2 / 3) / 2, rtol=0.12)
    mix = start("random_rewards")
    assert np.all(np.abs(mix.thetas_) <= 5)
    assert np.isnan(mix.history_[0].change)


@pytest.mark.parametrize(
    ("lower", "upper", "low", "high"),
    [(0.0, np.inf, 0.0, 10.0), (-np.inf, -20.0, -30.0, -20.0), (-np.inf, np.inf, -10.0, 0.0), (-3.0, -1.0, -3.0, -1.0)],
)
def test_random_rewards_lie_within_one_bound_or_two_and_differ(lower, upper, low, high):
    thetas = random_rewards(np.full(2, lower), np.full(2, upper), 500, rng()).thetas
    assert np.all((thetas >= low) & (thetas <= high))
    np.testing.assert_allclose(thetas.mean(), (low + high) / 2, atol=0.1 * (high - low))


def test_random_responsibilities_differ_by_seed_and_restart():
    one, two = start("random"), IntentMixture(2, IRL, "random", max_iter=0, random_state=1).fit(MDP, DEMOS)
    assert np.abs(one.thetas_ - two.thetas_).max() > 1e-3
    several = start("random", n_init=3)
    assert len({restart.objective for restart in several.restarts_}) == 3


def test_labels_yield_one_fit_per_cluster():
    mix = start(LABELS)
    wanted = [IRL.fit(MDP, DEMOS[k == LABELS]) for k in (0, 1)]
    np.testing.assert_allclose(mix.thetas_, wanted, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(mix.weights_, [np.mean(LABELS == 0), np.mean(LABELS == 1)], rtol=1e-12)
    words = np.array(["river", "park"])[LABELS]
    np.testing.assert_array_equal(start(words).thetas_, mix.thetas_[::-1])
    np.testing.assert_array_equal(start(words.tolist()).thetas_, mix.thetas_[::-1])
    np.testing.assert_array_equal(start(LABELS + 5).thetas_, mix.thetas_)
    np.testing.assert_array_equal(start(LABELS.astype(float)).thetas_, mix.thetas_)
    series = start(pd.Series(LABELS), n_init=3)
    np.testing.assert_array_equal(series.thetas_, mix.thetas_)
    assert len(series.restarts_) == 1


def test_given_responsibilities_and_ensembles_are_unchanged():
    U = rng().dirichlet(np.ones(2), size=len(DEMOS))
    mix = start(U)
    np.testing.assert_allclose(mix.weights_, U.mean(axis=0), rtol=1e-10)
    np.testing.assert_allclose(mix.thetas_[1], IRL.fit(MDP, DEMOS, weights=U[:, 1]), rtol=1e-5, atol=1e-6)
    ensemble = RewardEnsemble([0.3, 0.7], [[0.1, 0.2, 0.3], [-1.0, 0.0, 1.0]])
    given = start(ensemble, n_init=5)
    np.testing.assert_array_equal(given.thetas_, ensemble.thetas)
    np.testing.assert_allclose(given.weights_, ensemble.weights, rtol=1e-12)
    assert len(given.restarts_) == 1


@pytest.mark.parametrize("clusterer", [AgglomerativeClustering(), KMeans(n_init=3), BayesianGaussianMixture()])
def test_any_clusterer_of_scikit_learn(clusterer):
    before = clusterer.get_params()
    mix = start(clusterer, n_intents=3, mdp=WORLD.mdp, demos=ROLLS, irl=MaxEnt())
    assert adjusted_rand_score(TRUTH, mix.labels_) > 0.8
    assert clusterer.get_params() == before
    assert not hasattr(clusterer, "labels_")


def test_noise_points_of_a_clusterer_belong_to_all():
    U = as_responsibilities(np.array([0, -1, 1, 1]), 2, Groups.from_labels(None, 4))
    np.testing.assert_array_equal(U, [[1, 0], [0.5, 0.5], [0, 1], [0, 1]])
    again = as_responsibilities(np.array([0.0, -1.0, 1.0, 1.0]), 2, Groups.from_labels(None, 4))
    np.testing.assert_array_equal(again, U)


@pytest.mark.parametrize("label", [np.nan, None, 0.5])
def test_a_missing_label_is_named(label):
    labels = LABELS.astype(object)
    labels[7] = label
    if not isinstance(label, type(None)):
        labels = labels.astype(float)
    with raises(InvalidParameter, parameter="init", value=label, index=7):
        start(labels)


def test_the_number_of_intents_is_set_in_a_pipeline():
    clusterer = make_pipeline(StandardScaler(), KMeans(n_init=3))
    mix = start(clusterer, n_intents=3, mdp=WORLD.mdp, demos=ROLLS, irl=MaxEnt())
    assert adjusted_rand_score(TRUTH, mix.labels_) > 0.8


def test_a_clusterer_with_too_many_clusters():
    with raises(InvalidParameter, parameter="init", value=26):
        start(DBSCAN(eps=0.1, min_samples=1), n_intents=1)


def test_a_function():
    def by_river(points, n_intents, rng):
        assert n_intents == 2
        return (points[:, 1] > np.median(points[:, 1])).astype(int)

    mix = start(by_river)
    river = DEMOS.features(MDP)[:, 1]
    wanted = start((river > np.median(river)).astype(int))
    np.testing.assert_array_equal(mix.thetas_, wanted.thetas_)
    made = start(lambda points, n_intents, rng: RewardEnsemble([0.5, 0.5], np.eye(2, 3)))
    np.testing.assert_array_equal(made.thetas_, np.eye(2, 3))


def test_the_embedding_is_clustered():
    hidden = LABELS[:, None] + 0.01 * rng().normal(size=(len(DEMOS), 1))
    mix, wanted = start("kmeans", embedding=hidden), start(LABELS)
    order = np.argsort(mix.thetas_[:, 1])[::-1]
    np.testing.assert_allclose(mix.thetas_[order], wanted.thetas_, rtol=1e-6)
    called = start("kmeans", embedding=lambda mdp, demos: hidden)
    np.testing.assert_array_equal(called.thetas_, mix.thetas_)


def test_mean_rewards_are_centred_on_demonstrations():
    ready, U = make_problem(IRL, MDP, DEMOS), np.eye(2)[LABELS]
    F = DEMOS.features(MDP)
    wanted = np.array([F[k == LABELS].mean(axis=0) - F.mean(axis=0) for k in (0, 1)])
    np.testing.assert_allclose(mean(ready, U), wanted, rtol=1e-10, atol=1e-12)
    narrow = make_problem(MaxEnt(7, (-0.1, 0.2)), MDP, DEMOS)
    np.testing.assert_allclose(mean_clipped(narrow, U), np.clip(wanted, -0.1, 0.2), atol=1e-12)


def test_mean_ray_is_the_best_multiple_in_every_unit():
    U = np.eye(2)[LABELS]
    for unit in (1.0, 1e-3, 1e3):
        mdp = MDP.replace(state_features=unit * MDP.state_features)
        ready = make_problem(MaxEnt(7, bounds=None), mdp, DEMOS)
        result, direction = mean_ray(ready, U), mean(ready, U)
        for k in range(2):
            factor = result[k, 1] / direction[k, 1]
            np.testing.assert_allclose(result[k], factor * direction[k], rtol=1e-9)
            values = [
                U[:, k] @ ready.log_prob((c * direction[k])[None])[:, 0] for c in factor * np.array([0.99, 1, 1.01])
            ]
            assert values[1] > max(values[0], values[2])


def test_mle_equals_one_fit_per_column_of_responsibilities():
    ready, U = make_problem(IRL, MDP, DEMOS), rng().dirichlet(np.ones(2), size=len(DEMOS))
    np.testing.assert_allclose(mle(ready, U)[0], IRL.fit(MDP, DEMOS, weights=U[:, 0]), rtol=1e-6, atol=1e-7)


def test_a_reward_init_may_be_a_function():
    with pytest.warns(DegenerateIntentWarning, match="same initial rewards"):
        result = start(LABELS, lambda problem, U: np.zeros((U.shape[1], 3))).thetas_
    assert np.all(np.abs(result) < 0.5)
    assert np.abs(result[0] - result[1]).max() > 1e-3
    made = start(LABELS, lambda problem, U: np.arange(6.0).reshape(2, 3) / 6)
    np.testing.assert_array_equal(made.thetas_, np.arange(6.0).reshape(2, 3) / 6)


def test_groups_have_one_initial_intent():
    groups = np.arange(len(DEMOS)) % 30
    per_group = LABELS[:30]
    mix = start(per_group, groups=groups)
    again = start(per_group[groups], groups=groups)
    np.testing.assert_array_equal(mix.thetas_, again.thetas_)
    assert mix.group_responsibilities_.shape == (30, 2)
    np.testing.assert_array_equal(mix.groups_, np.arange(30))
    np.testing.assert_array_equal(mix.responsibilities_, mix.group_responsibilities_[groups])
    np.testing.assert_allclose(mix.weights_, [np.mean(per_group == 0), np.mean(per_group == 1)], rtol=1e-12)
    F = DEMOS.features(MDP)
    wanted = np.array([F[groups == g].mean(axis=0) for g in range(30)])
    seen = []
    start(lambda points, K, r: seen.append(points) or per_group, groups=groups)
    np.testing.assert_allclose(seen[0], wanted, rtol=1e-12)


def test_labels_that_differ_within_a_group():
    with raises(InvalidParameter, parameter="init", value=0, index=3):
        start([0, 0, 1, 0], demos=DEMOS[:4], groups=["a", "a", "b", "b"])


def test_restarts_of_kmeans_begin_from_different_clusters():
    points = rng().normal(size=(200, 4))
    units = Groups.from_labels(None, 200)
    full = [cluster("kmeans", points, 5, units, np.random.default_rng(s), first=True) for s in range(4)]
    single = [cluster("kmeans", points, 5, units, np.random.default_rng(s), first=False) for s in range(4)]

    def inertia(U):
        centres = (U.T @ points) / U.sum(axis=0)[:, None]
        return float(np.sum((points - U @ centres) ** 2))

    assert np.ptp([inertia(U) for U in full]) < np.ptp([inertia(U) for U in single])


BAD = [
    {"init": "kmeens"},
    {"init": np.zeros(3, dtype=int)},
    {"init": np.arange(90)},
    {"init": np.full((90, 2), 0.7)},
    {"init": np.where(np.arange(180).reshape(90, 2) == 6, np.nan, 0.5)},
    {"init": np.tile([1.5, -0.5], (90, 1))},
    {"init": np.full((90, 3), 1 / 3)},
    {"init": RewardEnsemble([1.0], [[0.0, 0.0, 0.0]])},
    {"init": RewardEnsemble([0.5, 0.5], np.zeros((2, 4)))},
    {"init": 17},
    {"init": lambda points, K, r: np.zeros((2, 2))},
    {"reward_init": "best"},
    {"reward_init": lambda problem, U: np.zeros((3, 3))},
    {"reward_init": lambda problem, U: np.zeros((2, 9))},
    {"init": KMeans},
    {"irl": MaxEnt},
    {"progress": 3},
    {"init": np.full((90, 2), "x")},
    {"max_iter": 0.0},
    {"max_iter": False},
    {"init": np.zeros(90, dtype=int), "n_init": "x"},
    {"reward_init": lambda problem, U: np.full((2, 3), np.nan)},
    {"embedding": np.zeros((5, 2))},
    {"embedding": np.full((90, 1), np.inf)},
    {"embedding": "points"},
    {"n_intents": 0},
    {"n_intents": 91},
    {"n_intents": 2.0},
    {"n_init": 0},
    {"max_iter": -1},
    {"resp_tol": -1e-3},
    {"likelihood_tol": 0},
    {"max_evaluations": 0},
    {"degenerate": "drop"},
    {"annealing": 10.0},
    {"annealing": (0.5, 3)},
    {"random_state": "seed"},
    {"irl": object()},
]


@pytest.mark.parametrize("parameters", BAD, ids=[f"{i}-{next(iter(bad))}" for i, bad in enumerate(BAD)])
def test_invalid_parameters(parameters):
    wanted = "n_init" if "n_init" in parameters else next(iter(parameters))
    with raises(InvalidParameter, parameter=wanted):
        IntentMixture(**{"n_intents": 2, "irl": IRL} | parameters).fit(MDP, DEMOS)


@pytest.mark.parametrize("changes", [{"init": "kmean"}, {"reward_init": "median"}, {"embedding": "points"}])
def test_names_are_checked_before_the_data(changes):
    ((name, value),) = changes.items()
    with raises(InvalidParameter, parameter=name, value=value):
        IntentMixture(**changes).fit(None, None)


def test_invalid_features_are_an_error_of_the_model():
    class Short(MaxEnt):
        def features(self, mdp, demos):
            return np.full((len(demos), 2), np.nan)

        def log_prob(self, mdp, thetas, demos):  # feature sums are then not sufficient, and `features` is called
            return super().log_prob(mdp, thetas, demos)

    with raises(InvalidParameter, parameter="irl", index=0):
        IntentMixture(2, Short(7)).fit(MDP, DEMOS)


def test_empty_and_invalid_demonstrations():
    with raises(InvalidDemos, parameter="demos"):
        IntentMixture().fit(MDP, DEMOS[:0])
    with raises(InvalidDemos, parameter="demos"):
        IntentMixture().fit(MDP, [[0, 1]])
    with raises(InvalidParameter, parameter="mdp"):
        IntentMixture().fit(None, DEMOS)
    with pytest.raises(InvalidDemos, match="state 99"):
        IntentMixture().fit(MDP, Demonstrations.from_lists([[0, 1], [0, 99]]))
    assert not hasattr(IntentMixture(), "ensemble_")
    for method in ("predict", "predict_proba", "score", "score_samples"):
        with pytest.raises(NotFitted, match="Call fit"):
            getattr(IntentMixture(), method)(DEMOS)


def test_more_intents_than_groups():
    with raises(InvalidParameter, parameter="n_intents", value=4):
        IntentMixture(4, IRL).fit(MDP, DEMOS, groups=np.arange(90) % 3)


@pytest.mark.parametrize("init", ["kmeans", "gmm", "random", "random_rewards"])
def test_identical_demonstrations_leave_one_intent_and_no_nan(init):
    demos = DEMOS[np.zeros(20, dtype=int)]
    mix = IntentMixture(3, IRL, init, random_state=0, max_iter=500)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        mix.fit(MDP, demos)
    assert np.all(np.isfinite(mix.thetas_))
    assert np.all(np.isfinite(mix.responsibilities_))
    assert np.isfinite(mix.log_likelihood_)
    assert np.ptp(mix.responsibilities_, axis=0).max() < 1e-9
    assert [w.category for w in caught if w.category is not ConvergenceWarning] == [DegenerateIntentWarning]
    summary = mix.summary()
    assert not np.any(summary.weight_errors > 1.0)
    assert not np.any(summary.errors > 100.0)


EQUAL = RewardEnsemble([0.3, 0.7, 0.0], np.full((3, 3), -1.0))


@pytest.mark.parametrize("init", [np.where(LABELS == 1, 2, 0), EQUAL, "best"], ids=["empty", "equal", "best"])
@pytest.mark.parametrize("method", ["fit", "fit_predict"])
def test_warnings_of_initialisations_point_to_the_line_of_the_caller(init, method):
    demos = DEMOS[np.zeros(90, dtype=int)] if isinstance(init, str) else DEMOS
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        getattr(IntentMixture(3, IRL, init, random_state=0, max_iter=0), method)(MDP, demos)
    assert re.search("initially assigned|same initial rewards", str(caught[0].message))
    assert {(w.category, w.filename) for w in caught} == {(DegenerateIntentWarning, __file__)}


def test_the_warning_of_several_starts_is_issued_once_also_by_an_executor():
    demos = DEMOS[np.zeros(20, dtype=int)]
    issued = []
    with ThreadPoolExecutor(1) as pool:
        for executor in (None, pool):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                IntentMixture(3, IRL, n_init=3, random_state=0, max_iter=0).fit(MDP, demos, executor=executor)
            issued.append([(str(w.message), w.filename) for w in caught])
    assert issued[0] == issued[1]
    assert [filename for _, filename in issued[0]] == [__file__]


def test_an_empty_cluster_is_named_once_and_fitted_to_all_data():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        mix = start(np.where(LABELS == 1, 2, 0), n_intents=3)
    assert [w.category for w in caught] == [DegenerateIntentWarning]
    assert "assigned to intent 1" in str(caught[0].message)
    np.testing.assert_allclose(mix.thetas_[1], IRL.fit(MDP, DEMOS), rtol=1e-5, atol=1e-6)


def test_uniform_responsibilities_are_perturbed():
    with pytest.warns(DegenerateIntentWarning, match="Intents 0 and 1 have the same initial rewards"):
        mix = IntentMixture(2, IRL, np.full((90, 2), 0.5), random_state=0, max_iter=200).fit(MDP, DEMOS)
    assert np.abs(mix.thetas_[0] - mix.thetas_[1]).max() > 0.1


def test_an_ensemble_of_equal_rewards_is_perturbed():
    same = RewardEnsemble([0.3, 0.7], np.full((2, 3), -1.0))
    with pytest.warns(DegenerateIntentWarning, match="Intents 0 and 1 have the same initial rewards"):
        mix = IntentMixture(2, IRL, same, random_state=0, max_iter=300).fit(MDP, DEMOS)
    assert np.abs(mix.thetas_[0] - mix.thetas_[1]).max() > 0.1


def test_equal_means_are_perturbed():
    ready, U = make_problem(IRL, MDP, DEMOS), np.full((90, 2), 0.5)
    result = start_from(ready, U, "mean_ray", rng())
    assert len(result.warnings) == 1
    assert np.abs(result.thetas[0] - result.thetas[1]).max() > 1e-3


def test_random_states_of_all_types():
    one = start("random")
    again = IntentMixture(2, IRL, "random", max_iter=0, random_state=0).fit(MDP, DEMOS)
    np.testing.assert_array_equal(one.thetas_, again.thetas_)
    for make in (lambda: np.random.default_rng(3), lambda: np.random.RandomState(3)):
        fits = [IntentMixture(2, IRL, "random", max_iter=0, random_state=make()).fit(MDP, DEMOS) for _ in range(2)]
        np.testing.assert_array_equal(fits[0].thetas_, fits[1].thetas_)


def test_conventions_of_scikit_learn():
    mix = IntentMixture(3, MaxEnt(max_length=9, bounds=(-5, 5)), resp_tol=1e-3)
    assert mix.get_params()["irl__max_length"] == 9
    mix.set_params(irl__max_length=7, n_intents=2)
    copy = clone(mix)
    assert copy.get_params()["irl__max_length"] == 7
    assert copy.irl is not mix.irl
    assert isinstance(mix, BaseEstimator)
    assert mix.fit(MDP, DEMOS) is mix
    assert mix.irl.max_length == 7
    assert not hasattr(clone(mix), "thetas_")
    np.testing.assert_array_equal(IntentMixture(2, IRL, random_state=0).fit_predict(MDP, DEMOS),
                                  IntentMixture(2, IRL, random_state=0).fit(MDP, DEMOS).labels_)  # fmt: skip


def test_max_length_is_set_by_the_data_and_stored():
    mix = IntentMixture(2, MaxEnt(bounds=(-5, 5)), random_state=0).fit(MDP, DEMOS[DEMOS.lengths <= 6])
    assert mix.irl_.max_length == DEMOS.lengths[DEMOS.lengths <= 6].max()
    mix.score(DEMOS[:1] if DEMOS.lengths[0] <= 6 else DEMOS[DEMOS.lengths <= 3])
    assert mix.irl_.max_length == 6
    with raises(InvalidDemos, parameter="demos", value=7, index=0):
        mix.predict(DEMOS[DEMOS.lengths == 7])


@pytest.mark.parametrize("reward_init", ["mean", "mean_clipped", "mean_ray"])
def test_divergent_reward_init_raises(reward_init):
    ring = type(MDP).from_edges([0, 1, 1], [1, 0, 2], p0=[1, 0, 0], state_features=[[0.0], [1.0], [0.5]])
    demos = Demonstrations.from_lists([[0, 1, 2]] * 5 + [[0, 1, 0, 1, 2]] * 4)
    with raises(DivergentPartition, parameter="reward_init"):
        IntentMixture(1, MaxEnt(np.inf, (-10, 10)), reward_init=reward_init, random_state=0).fit(ring, demos)


def test_mle_is_finite_for_unbounded_length():
    ring = type(MDP).from_edges([0, 1, 1], [1, 0, 2], p0=[1, 0, 0], state_features=[[0.0], [1.0], [0.5]])
    demos = Demonstrations.from_lists([[0, 1, 2]] * 5 + [[0, 1, 0, 1, 2]] * 4)
    mix = IntentMixture(2, MaxEnt(np.inf, (-10, 10)), random_state=0, max_iter=3, resp_tol=1e-2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        mix.fit(ring, demos)
    assert np.all(np.isfinite(mix.thetas_))


def test_a_start_from_responsibilities_keeps_them_for_the_first_change():
    ready, U = make_problem(IRL, MDP, DEMOS), np.eye(2)[LABELS]
    result = start_from(ready, U, "mle", rng())
    assert result.U is U
    np.testing.assert_allclose(result.rho, U.mean(axis=0), rtol=1e-12)
