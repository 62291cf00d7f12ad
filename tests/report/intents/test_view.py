import numpy as np
import pytest

from limiirl import (
    MDP,
    BayesianIntentMixture,
    Demonstrations,
    DestinationMaxEnt,
    IntentMixture,
    MaxCausalEnt,
    MaxEnt,
    RewardEnsemble,
    SigmaGIRL,
)
from limiirl.demos import with_history
from limiirl.errors import InvalidParameter
from limiirl.report.intents.view import make_view, sampling_distance, total_variation
from limiirl.worlds import ElementWorld
from tests.helpers import raises
from tests.oracles.sigma import regulators


@pytest.fixture(scope="module")
def world():
    return ElementWorld(n_elements=2, height=6, seed=1)


@pytest.fixture(scope="module")
def fitted(world):
    demos, _ = world.sample(60, seed=1)
    return IntentMixture(2, MaxEnt(max_length=30), random_state=0).fit(world.mdp, demos), demos


def test_contrasts_of_two_intents_are_opposite_with_the_error_of_a_difference(fitted):
    mix, _ = fitted
    view = make_view(mix)
    errors = mix.standard_errors()
    K, d = mix.thetas_.shape
    np.testing.assert_allclose(view.rewards.differences[0], mix.thetas_[0] - mix.thetas_[1], rtol=1e-10)
    np.testing.assert_allclose(view.rewards.differences[0], -view.rewards.differences[1], rtol=1e-10)
    j = int(np.flatnonzero(np.isfinite(view.rewards.errors[0]))[0])
    cells = [K + j, K + d + j]
    a, b, ab = (errors.covariance[x, y] for x, y in ((cells[0], cells[0]), (cells[1], cells[1]), cells))
    np.testing.assert_allclose(view.rewards.errors[0, j], np.sqrt(a + b - 2 * ab), rtol=1e-10)


def test_rewards_on_a_bound_are_never_clear(fitted):
    view = make_view(fitted[0])
    assert np.any(view.status == "bound")
    assert not np.any(view.rewards.clear & (view.status == "bound"))


def test_visits_are_percentages_of_steps_weighted_by_the_posterior(fitted):
    mix, demos = fitted
    view = make_view(mix)
    counts = np.array([np.bincount(demo.states, minlength=mix.mdp_.n_states) for demo in demos])
    expected = 100 * mix.responsibilities_.T @ counts / (mix.responsibilities_.T @ demos.lengths)[:, None]
    np.testing.assert_allclose(view.visits.values, expected, atol=1e-10)
    np.testing.assert_allclose(view.visits.values.sum(axis=1), 100.0, rtol=1e-10)


def test_errors_of_visits_are_those_of_a_ratio_clustered_by_recording(world):
    demos, _ = world.sample(40, seed=3)
    demos = demos.replace(groups=np.arange(40) // 4)
    view = make_view(IntentMixture(1, MaxEnt(max_length=30)).fit(world.mdp, demos))
    counts = np.array([np.bincount(demo.states, minlength=world.mdp.n_states) for demo in demos])
    by_group = np.add.reduceat(counts, np.arange(0, 40, 4))
    steps = np.add.reduceat(demos.lengths, np.arange(0, 40, 4))
    residual = by_group - counts.sum(axis=0) / demos.lengths.sum() * steps[:, None]
    np.testing.assert_allclose(
        view.visits.errors[0], 100 * np.sqrt((residual**2).sum(axis=0)) / demos.lengths.sum(), atol=1e-9
    )


def test_expected_visits_of_a_policy_match_samples_of_the_model():
    mdp = MDP.from_edges([0, 0, 1, 1, 2, 2], [1, 2, 0, 2, 0, 1], gamma=0.9, p0=[1, 0, 0], state_features=np.eye(3))
    truth, model = np.array([0.0, 1.0, -1.0]), MaxCausalEnt()
    demos = model.sample(mdp, truth, 300, 0, max_length=25)
    mix = IntentMixture(1, model).fit(mdp, demos)
    view = make_view(mix)
    drawn = model.sample(mdp, mix.thetas_[0], 4000, 1, max_length=25)
    rates = 100 * np.bincount(drawn.states, minlength=3) / drawn.states.size
    np.testing.assert_allclose(view.expected_visits[0], rates, atol=0.6)
    assert total_variation(view.visits.values, view.expected_visits)[0] < 0.03


def test_expected_visits_follow_demonstrations_that_end_in_a_terminal_state():
    mdp = MDP.from_edges([0, 0, 1], [1, 2, 2], gamma=0.9, p0=[1, 0, 0], state_features=np.eye(3))
    demos = Demonstrations.from_lists([[0, 1, 2]] * 3 + [[0, 2]])
    view = make_view(IntentMixture(1, MaxCausalEnt()).fit(mdp, demos))
    np.testing.assert_allclose(view.expected_visits[0], 100 * np.array([4, 3, 4]) / 11, atol=0.2)


def test_expected_visits_of_demonstrations_of_unequal_lengths():
    n, rng, lengths = 4, np.random.default_rng(0), np.array([1, 2, 2, 5, 9])
    src, dst = np.repeat(np.arange(n), 2), (np.repeat(np.arange(n), 2) + np.tile([1, -1], n)) % n
    mdp = MDP.from_edges(src, dst, gamma=0.9, state_features=np.eye(n))
    paths = [np.cumsum([i % n, *rng.choice([1, -1], length - 1)]) % n for i, length in enumerate(lengths)]
    demos = Demonstrations.from_lists([path.tolist() for path in paths])
    ensemble = RewardEnsemble([0.4, 0.6], [[1.0, 0, 0, 0], [0, 0.5, -1.0, 0]])
    mix = IntentMixture(2, MaxCausalEnt(), init=ensemble, max_iter=0).fit(mdp, demos)
    view = make_view(mix)
    for k, u in enumerate(mix.responsibilities_.T):
        P, pi = np.zeros((n, n)), np.asarray(mix.policy(k))
        P[mdp.src, mdp.dst] = pi[mdp.pair_state, mdp.pair_action][mdp.pair_of_edge]
        # At each step, the fraction of the recordings of an intent that ends is the observed one.
        p, counts = np.bincount(demos.start_states, u, n), np.zeros(n)
        for length in range(1, lengths.max() + 1):
            counts += p
            p = p @ P * (1.0 - u[lengths == length].sum() / u[lengths >= length].sum())
        np.testing.assert_allclose(counts.sum(), u @ lengths, rtol=1e-12)
        np.testing.assert_allclose(view.expected_visits[k], 100 * counts / counts.sum(), rtol=1e-10)


def test_expected_visits_of_recordings_that_end_in_terminal_and_in_other_states():
    # From 0, "try" leads to 1 or to the terminal state 2 with probabilities 0.75 and 0.25; "quit" leads to 2.
    mdp = MDP(
        *([0, 0, 0, 1, 3], [0, 0, 1, 0, 0], [1, 2, 2, 3, 3], [0.75, 0.25, 1.0, 1.0, 1.0]), p0=[1, 0, 0, 0],
        gamma=0.9, terminal=[False, False, True, False], state_features=np.eye(4),
    )  # fmt: skip
    lists = [[0, 2], [0, 2], [0, 1], [0, 1], [0, 1, 3], [0, 1, 3, 3]]
    demos = Demonstrations.from_lists(lists, [[1], [0], [0], [0], [0, 0], [0, 0, 0]])
    ensemble = RewardEnsemble([1.0], [[0.0, 1.0, 0.3, -0.2]])
    mix = IntentMixture(1, MaxCausalEnt(), init=ensemble, max_iter=0).fit(mdp, demos)
    passed = 6 * 0.75 * np.asarray(mix.policy(0))[0, 0]
    # Of four recordings that reach 1, two end there; of the other two, one ends at once in 3.
    counts = np.array([6.0, passed, 6.0 - passed, passed * 2 / 4 * (1.0 + 1 / 2)])
    np.testing.assert_allclose(make_view(mix).expected_visits[0], 100 * counts / counts.sum(), rtol=1e-10)


def test_expected_visits_of_trips_are_those_of_all_paths_to_their_destinations():
    src, dst = [0, 0, 1, 1, 2, 2, 3], [1, 2, 2, 3, 1, 3, 0]
    mdp = MDP.from_edges(src, dst, state_features=[[-1.0, 0], [-1, 1], [-1, 0], [-1, 0]])
    demos = Demonstrations.from_lists([[0, 1, 3], [0, 2, 3], [0, 1, 2, 3], [1, 3], [1, 2, 3], [2, 1]])
    ensemble = RewardEnsemble([0.5, 0.5], [[1.5, 0.2], [2.0, -0.4]])
    mix = IntentMixture(2, DestinationMaxEnt(bounds=(-5, 5)), init=ensemble, max_iter=0).fit(mdp, demos)
    expected = np.zeros((2, 4))
    for k, theta in enumerate(mix.thetas_):
        M = np.zeros((4, 4))
        M[src, dst] = np.exp(mdp.state_features @ theta)[dst]
        for start, goal, u in zip(demos.start_states, demos.last_states, mix.responsibilities_[:, k], strict=True):
            # Paths that end on first arrival: the total weight of those from x to y is green[x, y].
            green = np.linalg.inv(np.eye(4) - np.where(np.arange(4)[:, None] == goal, 0.0, M))
            expected[k] += u * green[start] * green[:, goal] / green[start, goal]
    assert np.linalg.eigvals(M).real.max() < 1.0
    np.testing.assert_allclose(
        make_view(mix).expected_visits, 100 * expected / expected.sum(axis=1, keepdims=True), rtol=1e-8
    )


def test_sampling_distance_is_the_mean_over_samples():
    rng, p = np.random.default_rng(0), np.array([[50.0, 30.0, 20.0, 0.0]])
    draws = rng.multinomial(80, p[0] / 100, size=4000) / 0.8
    expected = np.mean(total_variation(draws, p))
    np.testing.assert_allclose(sampling_distance(p, np.array([80.0]))[0], expected, rtol=0.03)


def test_training_data_are_recognised_in_a_loaded_mixture(fitted, tmp_path, world):
    mix, demos = fitted
    mix.save(tmp_path / "mix")
    loaded = IntentMixture.load(tmp_path / "mix")
    assert make_view(loaded).data is None
    view = make_view(loaded, demos)
    assert view.trained
    np.testing.assert_allclose(view.errors, make_view(mix).errors, rtol=1e-10)
    others = make_view(loaded, world.sample(60, seed=9)[0])
    assert not others.trained
    assert np.all(np.isnan(others.errors))


def test_bayesian_mixtures_have_the_errors_of_their_summary(world):
    demos, _ = world.sample(40, seed=1)
    mix = BayesianIntentMixture(3, MaxEnt(max_length=30), random_state=0).fit(world.mdp, demos)
    np.testing.assert_allclose(make_view(mix).errors, mix.summary().errors, rtol=1e-10)


def test_agents_have_neither_visits_nor_examples():
    agents = regulators(np.array([[0.9, 0.1], [0.3, 0.7]])[[0, 1, 1, 0]], 100, 0)
    view = make_view(IntentMixture(1, SigmaGIRL(gamma=0.9)).fit(None, agents))
    assert view.noun == "agents"
    assert view.visits is None
    assert view.expected_visits is None
    assert view.layout is None
    assert view.examples(0).size == 0


def test_indicators_of_states_have_the_names_of_states():
    mdp = MDP.from_edges([0, 0], [1, 2], p0=[1, 0, 0], state_names=["door", "food", "water"])
    demos = Demonstrations.from_lists([[0, 1]] * 3 + [[0, 2]])
    assert make_view(IntentMixture(1).fit(mdp, demos)).feature_names == ["door", "food", "water"]


def test_names_and_groups_are_checked(fitted):
    for names in (["one"], 3, "ab", np.array(2)):
        with raises(InvalidParameter, parameter="intent_names"):
            make_view(fitted[0], intent_names=names)
    with raises(InvalidParameter, parameter="groups"):
        make_view(fitted[0], groups=np.zeros(60))


def test_demonstrations_with_names_are_renumbered(tmp_path):
    mdp = MDP.from_edges([0, 0], [1, 2], p0=[1, 0, 0], state_names=["door", "food", "water"])
    demos = Demonstrations.from_lists([["door", "water"]] * 3 + [["door", "food"]])
    mix = IntentMixture(1, MaxEnt(bounds=(-3, 3))).fit(mdp, demos)
    mix.save(tmp_path / "mix")
    view = make_view(IntentMixture.load(tmp_path / "mix"), demos)
    assert view.trained
    assert view.visits.values[0].tolist() == [50.0, 12.5, 37.5]


@pytest.mark.parametrize("keep", [True, False])
def test_previous_states_are_merged(keep):
    mdp = MDP.from_edges([0, 1, 1, 2], [1, 0, 2, 1], gamma=0.8, state_names=["den", "path", "pond"])
    demos = Demonstrations.from_lists([["den", "path", "pond", "path"], ["den", "path", "den"]] * 5)
    longer, pairs = with_history(mdp, demos, keep_starts=keep)
    view = make_view(IntentMixture(1, MaxCausalEnt(ridge=1e-2)).fit(longer, pairs))
    assert view.state_names == ["den", "path", "pond"]
    visits = np.array([3, 3, 1] if keep else [1, 3, 1])  # without the first states
    np.testing.assert_allclose(view.visits.values[0], 100 * visits / visits.sum(), rtol=1e-10)
    np.testing.assert_allclose(view.expected_visits.sum(), 100.0, rtol=1e-10)
    assert view.path(0).tolist() == [0, 1, 2, 1][not keep :]
    assert view.layout.xy.shape == (3, 2)
    assert view.feature_names[:3] == ["den", "path", "pond"]
