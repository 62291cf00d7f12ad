"""`BayesianIntentMixture`, compared with the exact posterior of tiny problems, on known intents, and edge cases."""

import itertools
import warnings
from functools import partial

import numpy as np
import pytest
from scipy.stats import norm
from sklearn.base import clone
from sklearn.cluster import AgglomerativeClustering, KMeans

import limiirl as ll
from limiirl import MDP, MLIRL, BayesianIntentMixture, Demonstrations, IntentMixture, MaxCausalEnt, MaxEnt, _progress
from limiirl.errors import ConvergenceWarning, InvalidParameter, NotFitted
from limiirl.mixture.bayesian import estimator
from limiirl.worlds import ElementWorld
from tests.helpers import raises
from tests.oracles.mixture import crossings, walks
from tests.oracles.normal import Normal, numbers
from tests.oracles.partitions import canonical, exact, partitions

SCALE = 5.0


def exactly(values, alpha):
    grid = np.linspace(-30.0, 30.0, 1201)
    log_prior = norm.logpdf(grid, 0.0, SCALE) + np.log(grid[1] - grid[0])
    return exact(norm.logpdf(np.asarray(values)[:, None], grid), log_prior, alpha)


TINY = [
    [0.0, 0.3, -0.2, 5.0, 5.4, 4.8],
    [-5.0, -4.7, 0.0, 0.2, 5.0, 5.3, 4.9],
    [0.0, 0.5, 1.0, 1.5, 2.0, 2.5],
    [-1.0, -1.2, 2.0, 2.2, 2.4],
    [0.0] * 6,
    [-3.0, 3.0],
]


@pytest.mark.parametrize("values", TINY, ids=str)
@pytest.mark.parametrize("alpha", [0.5, 1.0])
def test_tiny_problems_agree_with_all_partitions(values, alpha):
    truth = exactly(values, alpha)
    mdp, demos = numbers(values)
    mix = BayesianIntentMixture(
        len(values), Normal(), concentration=alpha, prior_scale=SCALE, bound_tol=1e-6, random_state=0
    ).fit(mdp, demos)
    assert canonical(mix.labels_) == truth.best
    # Expectations over rewards are exact here, so that the bound is one. One partition in place of all costs
    # -log(its probability), and the names of its K blocks up to log K! more.
    K = mix.n_intents_
    gap = -np.log(truth.posterior[truth.best]) + np.sum(np.log(np.arange(1, K + 1))) + K * np.log(1.0 + alpha)
    assert truth.log_evidence - gap < mix.bound_ < truth.log_evidence
    # The exact posterior adds up all the partitions in which one or two stand apart, of which ours knows the best.
    np.testing.assert_allclose(mix.expected_intents_, truth.expected_blocks, atol=0.5)


def test_oracle_enumerates_all_partitions_with_their_probabilities():
    assert [len(list(partitions(n))) for n in range(1, 8)] == [1, 2, 5, 15, 52, 203, 877]
    np.testing.assert_allclose(sum(exactly(TINY[0], 1.0).posterior.values()), 1.0, rtol=1e-9)


def test_maxent_on_a_tiny_problem_agrees_with_all_partitions():
    mdp = MDP.from_edges([0, 0, 1, 2], [1, 2, 3, 3], p0=[1, 0, 0, 0], state_features=[[0], [1], [-1], [0]])
    demos = Demonstrations.from_lists([[0, 1, 3]] * 18 + [[0, 2, 3]] * 18)
    groups = np.concatenate([np.arange(18) // 6, 3 + np.arange(18) // 6])  # six people, three of each kind
    irl, grid = MaxEnt(3, bounds=None), np.linspace(-20.0, 20.0, 801)
    log_p = np.hstack([irl.log_prob(mdp, theta[:, None], demos) for theta in np.split(grid[:-1], 50)])
    each = np.array([log_p[groups == g].sum(axis=0) for g in range(6)])
    truth = exact(each, norm.logpdf(grid[:-1], 0.0, SCALE) + np.log(grid[1] - grid[0]), 1.0)
    mix = BayesianIntentMixture(6, irl, prior_scale=SCALE, random_state=0).fit(mdp, demos, groups)
    assert canonical(np.argmax(mix.group_responsibilities_, axis=1)) == truth.best == (0, 0, 0, 1, 1, 1)
    # Skew posteriors are Gaussian only nearly: a tenth of a nat an intent.
    assert truth.log_evidence - 3.0 < mix.bound_ < truth.log_evidence + 0.2
    # No partition separates people of one type, while the exact posterior sometimes separates all six.
    assert 1.9 < mix.expected_intents_ < truth.expected_blocks


@pytest.fixture(scope="module")
def world():
    made = ElementWorld(n_elements=2, seed=0)
    demos, labels = made.sample(24, seed=1)
    return made, demos, labels


@pytest.mark.slow
@pytest.mark.parametrize("irl", [MaxEnt(), MaxCausalEnt(), MLIRL()], ids=lambda irl: type(irl).__name__)
def test_two_elements_are_two_intents(world, irl):
    made, demos, labels = world
    mix = BayesianIntentMixture(3, irl, random_state=0).fit(made.mdp, demos)
    assert mix.n_intents_ == 2
    assert ll.metrics.anid(np.eye(2)[labels], mix.responsibilities_) < 0.05
    bounds = [step.bound for step in mix.history_]
    assert min(after - before for before, after in itertools.pairwise(bounds)) > -2e-3  # two ties at most
    np.testing.assert_allclose(bounds[-1], mix.bound_, rtol=1e-12)
    assert max(mix.intent_posterior_, key=mix.intent_posterior_.__getitem__) == 2


def test_all_methods_of_a_fitted_mixture(world, tmp_path):
    made, demos, _ = world
    mix = BayesianIntentMixture(4, MaxEnt(), random_state=0).fit(made.mdp, demos)
    assert mix.weights_.shape == (2,)
    assert mix.thetas_.shape == (2, 4)
    np.testing.assert_allclose(mix.weights_.sum(), 1.0, rtol=1e-12)
    np.testing.assert_allclose(mix.new_intent_weight_, 1.0 / 25.0, rtol=1e-12)  # alpha / (alpha + N)
    np.testing.assert_array_equal(mix.predict(demos), mix.labels_)
    np.testing.assert_allclose(mix.predict_proba(demos), mix.responsibilities_, atol=0.1)
    np.testing.assert_allclose(mix.score(demos), mix.mixture_.score(demos), rtol=1e-12)
    assert mix.policy(0).shape == (made.mdp.n_states, 4)
    summary = mix.summary()
    assert summary.converged
    assert summary.n_iter == mix.n_iter_ > 0
    assert "kmeans, 4 initial intents" in str(summary)
    assert f"variational inference: {mix.n_iter_} iterations, " in str(summary)
    low, high = np.moveaxis(mix.credible_intervals(0.6827), 2, 0)
    np.testing.assert_allclose(summary.errors, (high - low) / 2, rtol=1e-12)
    assert str(summary).startswith("BayesianIntentMixture: 2 intents")
    assert f"evidence lower bound {mix.bound_:.2f}" in str(summary)
    for judged in ("bic", "aic", "icl"):
        np.testing.assert_allclose(getattr(mix, judged)(demos), getattr(mix.mixture_, judged)(demos), rtol=1e-12)
    np.testing.assert_allclose(mix.standard_errors().thetas, mix.mixture_.standard_errors().thetas, rtol=1e-9)
    assert mix.align_to(made.ensemble).thetas_.shape == (2, 4)
    mix.save(tmp_path / "mixture")
    loaded = IntentMixture.load(tmp_path / "mixture")
    np.testing.assert_array_equal(loaded.predict_proba(demos), mix.predict_proba(demos))
    assert loaded.summary().converged
    assert loaded.fit(made.mdp, demos).n_iter_ > 0  # EM goes on from there
    low, high = np.moveaxis(mix.credible_intervals(0.9), 2, 0)
    assert np.all((low <= mix.thetas_) & (mix.thetas_ <= high) & (low >= -10.0) & (high <= 0.0))


def test_credible_intervals_are_those_of_the_exact_posterior():
    values = np.array([1.0, 2.0, 1.5, 1.2])
    mix = BayesianIntentMixture(1, Normal(), prior_scale=2.0).fit(*numbers(values))
    precision = 4 + 0.25
    expected = norm(values.sum() / precision, precision**-0.5).interval(0.9)
    np.testing.assert_allclose(mix.credible_intervals(0.9)[0, 0], expected, rtol=1e-6)
    with raises(InvalidParameter, parameter="level", value=2):
        mix.credible_intervals(2)


def test_the_order_of_demonstrations_does_not_matter_to_the_start():
    values = np.random.default_rng(0).normal(size=12) + np.repeat([-4.0, 0.0, 4.0], 4)
    order = np.random.default_rng(1).permutation(12)
    parameters = {"max_intents": 5, "irl": Normal(), "prior_scale": SCALE, "random_state": 0}
    one = BayesianIntentMixture(**parameters).fit(*numbers(values))
    other = BayesianIntentMixture(**parameters).fit(*numbers(values[order]))
    np.testing.assert_allclose(
        [step.bound for step in one.history_], [step.bound for step in other.history_], atol=1e-6
    )
    np.testing.assert_array_equal(one.labels_[order], other.labels_)


def test_demonstrations_of_a_group_have_one_intent():
    demos, labels = walks(60, seed=3)
    groups = labels * 100 + np.arange(60) % 5
    mix = BayesianIntentMixture(6, MaxEnt(7, bounds=(-5, 5)), random_state=0).fit(crossings(), demos, groups)
    assert mix.n_intents_ == 2
    np.testing.assert_array_equal(mix.labels_ == mix.labels_[0], labels == labels[0])
    assert mix.group_responsibilities_.shape == (len(np.unique(groups)), 2)
    np.testing.assert_array_equal(mix.predict(demos, groups), mix.labels_)
    assert mix.mixture_.groups_.tolist() == mix.groups_.tolist()


def test_one_demonstration_is_one_intent():
    mix = BayesianIntentMixture(10, MaxEnt(), random_state=0).fit(crossings(), walks(5, seed=0)[0][[0]])
    assert mix.n_intents_ == 1
    assert mix.weights_.tolist() == [1.0]
    assert mix.labels_.tolist() == [0]


def test_identical_demonstrations_are_one_intent():
    mix = BayesianIntentMixture(4, MaxEnt(), random_state=0).fit(crossings(), walks(5, seed=0)[0][[0] * 8])
    assert mix.n_intents_ == 1


def test_a_larger_prior_scale_and_a_smaller_concentration_never_find_more():
    mdp, demos = numbers([-2.0, -1.5, -1.8, 1.2, 1.6, 2.0])
    result = [
        BayesianIntentMixture(6, Normal(), prior_scale=scale, concentration=alpha, random_state=0).fit(mdp, demos)
        for scale, alpha in [(3.0, 1.0), (300.0, 1.0), (3e6, 1e-3)]
    ]
    assert [mix.n_intents_ for mix in result] == [2, 1, 1]


def test_a_concentration_with_a_prior_is_inferred():
    mdp, demos = numbers([-9.0, -6.0, -3.0, 0.0, 3.0, 6.0, 9.0])
    few, many = (
        BayesianIntentMixture(7, Normal(), prior_scale=10.0, concentration=(1.0, rate), random_state=0).fit(mdp, demos)
        for rate in (100.0, 0.1)
    )
    assert few.concentration_ < 0.2 < 1.0 < many.concentration_
    assert few.n_intents_ <= many.n_intents_


@pytest.mark.parametrize(
    "init",
    [
        "gmm",
        "best",
        "random",
        "random_rewards",
        np.arange(30) % 3,
        np.eye(3)[np.arange(30) % 3],
        KMeans(n_init=2),
        AgglomerativeClustering(),
        lambda points, K, rng: points[:, 1] > 0,
    ],
    ids=[
        "gmm",
        "best",
        "random",
        "random_rewards",
        "labels",
        "responsibilities",
        "KMeans",
        "Agglomerative",
        "function",
    ],
)
def test_every_init_of_a_mixture_is_accepted(init):
    demos, _ = walks(30, seed=3)
    mix = BayesianIntentMixture(3, MaxEnt(7, bounds=(-5, 5)), init, random_state=0).fit(crossings(), demos)
    assert 1 <= mix.n_intents_ <= 3
    started = BayesianIntentMixture(3, MaxEnt(7, bounds=(-5, 5)), mix.ensemble_).fit(crossings(), demos)
    assert started.bound_ > mix.bound_ - 0.01


def test_the_same_seed_gives_the_same_bits_and_the_model_is_not_changed():
    demos, _ = walks(30, seed=3)
    irl = MaxEnt(bounds=(-5, 5))
    mix = BayesianIntentMixture(4, irl, random_state=7).fit(crossings(), demos)
    again = clone(mix).fit(crossings(), demos)
    np.testing.assert_array_equal(mix.thetas_, again.thetas_)
    assert mix.bound_ == again.bound_
    assert irl.max_length is None
    assert mix.irl_.max_length == demos.lengths.max()


@pytest.mark.parametrize(
    ("parameters", "parameter"),
    [
        ({"max_intents": 0}, "max_intents"),
        ({"concentration": -1.0}, "concentration"),
        ({"concentration": (1.0,)}, "concentration"),
        ({"prior_scale": 0.0}, "prior_scale"),
        ({"init": "nothing"}, "init"),
        ({"init": KMeans}, "init"),
        ({"bound_tol": -1.0}, "bound_tol"),
        ({"progress": 3}, "progress"),
        ({"max_intents": 2, "init": np.eye(3)[[0, 1, 2, 0, 1]]}, "init"),
        ({"max_intents": 2, "init": [0, 1, 2, 0, 1]}, "init"),
        (
            {"max_intents": 2, "init": ll.RewardEnsemble(np.ones(3) / 3, np.zeros((3, 3)))},
            "init",
        ),
    ],
)
def test_invalid_parameters(parameters, parameter):
    with raises(InvalidParameter, parameter=parameter):
        BayesianIntentMixture(**parameters).fit(crossings(), walks(5, seed=0)[0])


def test_sigma_girl_is_rejected_and_an_unfitted_mixture_raises():
    rng = np.random.default_rng(0)
    shape = (6, 5)
    agents = ll.Agents.from_arrays(
        policy_features=[rng.normal(size=(*shape, 2))] * 2,
        actions=[rng.normal(size=(*shape, 1))] * 2,
        reward_features=[rng.normal(size=(*shape, 3))] * 2,
    )
    with raises(InvalidParameter, parameter="irl"):
        BayesianIntentMixture(2, ll.SigmaGIRL()).fit(None, agents)
    with pytest.raises(NotFitted):
        BayesianIntentMixture().predict(walks(5, seed=0)[0])


def test_sweeps_that_end_early_warn():
    demos, _ = walks(40, seed=3)
    with pytest.warns(ConvergenceWarning, match="bound_tol=0"), warnings.catch_warnings():
        BayesianIntentMixture(2, MaxEnt(7, bounds=(-5, 5)), "random", max_iter=1, bound_tol=0.0, random_state=0).fit(
            crossings(), demos
        )


def test_a_function_as_init_receives_points_in_order():
    values = np.array([5.0, -5.0, 5.1, -5.1, 4.9, -4.9])
    seen = []

    def know(points, K, rng):
        seen.append(points[:, 0].copy())
        return np.array([0, 1, 0, 1, 0, 1])

    mix = BayesianIntentMixture(2, Normal(), know, prior_scale=SCALE).fit(*numbers(values))
    np.testing.assert_array_equal(seen, [values])
    assert mix.history_[0].bound > mix.bound_ - 1.0  # it begins where it ends


def test_the_number_of_intents_is_in_its_posterior_and_progress_reports_each_step():
    values = np.random.default_rng(4).normal(size=10) + np.repeat([-4.0, 4.0], 5)
    seen = []
    mix = BayesianIntentMixture(
        5, Normal(), prior_scale=SCALE, random_state=0, progress=lambda *report: seen.append(report)
    )
    mix.fit(*numbers(values))
    assert [done for done, _, _ in seen] == list(range(1, len(mix.history_) + 1))
    assert seen[0] == (1, None, f"start: {mix.history_[0].n_intents} intents, bound {mix.history_[0].bound:.3f}")
    assert mix.n_intents_ in mix.intent_posterior_
    np.testing.assert_allclose(sum(mix.intent_posterior_.values()), 1.0, rtol=1e-12)
    assert {1, 2, 3} <= set(mix.intent_posterior_)


def test_verbose_writes_each_step_to_stderr(capsys, monkeypatch):
    monkeypatch.setattr(estimator, "report_progress", partial(_progress.report_progress, every_s=0.0))
    mix = BayesianIntentMixture(2, Normal(), prior_scale=SCALE, verbose=True).fit(*numbers([-3.0, 3.0]))
    written = capsys.readouterr()
    assert written.out == ""
    assert [step.event in line for step, line in zip(mix.history_, written.err.splitlines(), strict=True)] == [
        True
    ] * len(mix.history_)


@pytest.mark.slow
@pytest.mark.parametrize("irl", [MaxEnt(np.inf, bounds=(-5, 5)), MaxCausalEnt(bounds=None)], ids=lambda irl: repr(irl))
def test_partition_functions_that_diverge_at_the_prior_median(irl):
    # Each of five states may stay, go to any other, or end. The first feature is what a step costs.
    src, dst = np.repeat(np.arange(5), 6), np.tile(np.arange(6), 5)
    phi = np.column_stack([np.arange(6) < 5, np.arange(6) == 1]).astype(float)
    mdp = MDP.from_edges(src, dst, p0=np.eye(6)[0], state_features=phi)
    demos = Demonstrations.from_lists([[0, 0, 0, 5]] * 6 + [[0, 1, 1, 5]] * 6)
    with pytest.raises(ll.errors.DivergentPartition):
        irl.log_prob(mdp, np.zeros((1, 2)), demos)
    mix = BayesianIntentMixture(3, irl, prior_scale=3.0, random_state=0).fit(mdp, demos, np.arange(12) // 3)
    assert np.isfinite(mix.bound_)
    assert np.all(mix.thetas_[:, 0] < 0.0)
    np.testing.assert_array_equal(mix.labels_ == mix.labels_[0], np.arange(12) < 6)
