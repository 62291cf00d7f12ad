"""Features that depend on the goal: likelihood, gradients, policies and routes, against one plain MDP per condition."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy import sparse
from scipy.special import logsumexp

from limiirl import MDP, Demonstrations, DestinationMaxEnt, IntentMixture, MaxCausalEnt, MaxEnt
from limiirl.demos import with_history
from limiirl.demos.groups import Groups
from limiirl.errors import DivergentPartition, InvalidMDP, InvalidParameter
from limiirl.irl import ConditionalGoalValues, link_size, make_problem, value_and_reward_grad
from limiirl.irl.destination import by_goal, path_sums
from limiirl.irl.destination.likelihood import DestinationLikelihood, ObservedTrips, is_feasible
from limiirl.mdp import GoalFeature, add_goal_features, distance_to_goal
from tests.helpers import raises
from tests.oracles.goals import list_paths, log_weights

MODEL = DestinationMaxEnt(bounds=None)
THETA = np.array([-1.2, 0.3, -0.6, -0.8])


def lattice(seed: int = 0) -> MDP:
    """Return a square lattice of 16 states with two features and moves in four directions."""
    rng = np.random.default_rng(seed)
    x, y = np.divmod(np.arange(16), 4)
    right, down = np.flatnonzero(x < 3), np.flatnonzero(y < 3)
    src, dst = np.concatenate([right, right + 4, down, down + 1]), np.concatenate([right + 4, right, down + 1, down])
    features = {"state_features": 1.0 + rng.random((16, 1)), "edge_features": rng.random((src.size, 1))}
    return MDP.from_edges(src, dst, 16, **features)


def with_goals(by_start: bool, sparse_values: bool = False) -> MDP:
    """Return the lattice with a feature of (state, goal) and one of (edge, goal) or (edge, start, goal)."""
    mdp, rng = lattice(), np.random.default_rng(1)
    if by_start:
        starts, goals = (part.ravel() for part in np.meshgrid(np.arange(16), np.arange(16)))
        values = rng.random((256, mdp.n_edges)) * (rng.random((256, mdp.n_edges)) < 0.5)
    else:
        starts, goals, values = None, np.arange(16), rng.random((16, mdp.n_edges))
    own = GoalFeature("own", sparse.csr_array(values) if sparse_values else values, goals, starts, "edge")
    return add_goal_features(mdp, distance_to_goal(mdp, np.arange(16)), own)


def flatten(mdp: MDP, start: int, goal: int) -> MDP:
    """Return the MDP without goal features whose edge features have their values for one condition."""
    columns = [f.of_edges(int(f.rows(np.array([start]), np.array([goal]))[0]), mdp.dst) for f in mdp.goal_features]
    general = mdp.without_goal_features
    own = [] if general.edge_features is None else [np.asarray(general.edge_features)]
    return general.replace(edge_features=np.column_stack([*own, *columns]))


def trips(mdp: MDP, n: int = 30) -> Demonstrations:
    ends = np.random.default_rng(3).permuted(np.tile(np.arange(16), (n, 1)), axis=1)[:, :2]
    return MODEL.sample(mdp, THETA, ends[:, 0], ends[:, 1], seed=5)


def test_repeated_conditions_are_refused() -> None:
    with raises(InvalidMDP, parameter="goals", value=2, index=2):
        GoalFeature("distance", np.zeros((3, 4)), [2, 1, 2])


@pytest.mark.parametrize("sparse_values", [False, True])
@pytest.mark.parametrize("by_start", [False, True])
def test_log_prob_equals_that_of_one_mdp_per_condition(by_start: bool, sparse_values: bool) -> None:
    mdp = with_goals(by_start, sparse_values)
    demos = trips(mdp)
    thetas = np.stack([THETA, THETA * [1.2, 1.0, 0.5, 1.5]])
    log_prob = MODEL.log_prob(mdp, thetas, demos)
    for i in range(len(demos)):
        plain = flatten(mdp, int(demos.start_states[i]), int(demos.last_states[i]))
        np.testing.assert_allclose(log_prob[i], MODEL.log_prob(plain, thetas, demos[[i]])[0], rtol=1e-10)


def test_log_prob_equals_enumeration_on_an_acyclic_network() -> None:
    mdp = MDP.from_edges([0, 0, 1, 1, 2, 3, 0], [1, 2, 3, 2, 3, 4, 4], state_features=np.arange(5.0))
    rng = np.random.default_rng(0)
    mdp = add_goal_features(mdp, GoalFeature("own", rng.random((5, 7)), np.arange(5), of="edge"))
    theta = np.array([-0.4, 1.7])
    for goal in (3, 4):
        plain = flatten(mdp, 0, goal)
        paths = list_paths(plain, 0, goal, 5)
        log_w = log_weights(plain, theta, paths)
        demos = Demonstrations.from_lists([[0, *mdp.dst[path].tolist()] for path in paths])
        np.testing.assert_allclose(MODEL.log_prob(mdp, theta, demos)[:, 0], log_w - logsumexp(log_w), rtol=1e-12)
        best, log_best = MODEL.most_likely(mdp, theta, 0, goal)
        np.testing.assert_array_equal(best.states, [0, *mdp.dst[paths[int(np.argmax(log_w))]]])
        np.testing.assert_allclose(log_best, np.max(log_w) - logsumexp(log_w), rtol=1e-12)


@pytest.mark.parametrize("far", [False, True])
@pytest.mark.parametrize("by_start", [False, True])
def test_gradients_agree_with_central_differences(by_start: bool, far: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    mdp = with_goals(by_start)
    demos, rng = trips(mdp), np.random.default_rng(0)
    if far:  # every sum is computed in log arithmetic
        monkeypatch.setattr(path_sums, "_LARGEST", 1e-300)
    observed = ObservedTrips.from_demos(mdp, demos)
    values = ConditionalGoalValues(mdp, observed.starts, observed.goals)
    objective = DestinationLikelihood(values, observed, rng.random((len(demos), 2)), np.array([0.0, 0.3]))
    both, which = np.tile(THETA, (2, 1)), np.arange(2)
    value, gradient = objective.evaluate(both, which)
    weights = objective._weights
    log_prob = np.diag(weights.T @ MODEL.log_prob(mdp, both, demos))
    np.testing.assert_allclose(value - [0.0, 0.15 * THETA @ THETA], -log_prob, rtol=1e-10)
    for j in range(4):
        step = 1e-5 * np.eye(4)[j]
        sides = [objective.evaluate(both + sign * step, which)[0] for sign in (1.0, -1.0)]
        np.testing.assert_allclose(gradient[:, j], (sides[0] - sides[1]) / 2e-5, rtol=1e-6, atol=1e-8)


def test_expected_features_and_flows_agree_with_one_mdp_per_condition() -> None:
    mdp = with_goals(by_start=True)
    starts, goals = np.array([0, 3, 15]), np.array([15, 12, 0])
    values = ConditionalGoalValues(mdp, starts, goals)
    expected = values.expected_features(THETA, starts, goals)
    flow = MODEL.expected_flow(mdp, THETA, starts, goals, [1.0, 2.0, 0.5])
    total = np.zeros(mdp.n_edges)
    for i, weight in enumerate([1.0, 2.0, 0.5]):
        plain = flatten(mdp, int(starts[i]), int(goals[i]))
        own = MODEL.expected_flow(plain, THETA, starts[[i]], goals[[i]])
        np.testing.assert_allclose(expected[i], path_sums.flow_features(plain, own), rtol=1e-9)
        np.testing.assert_allclose(
            MODEL.policy_to(mdp, THETA, int(goals[i]), int(starts[i])),
            MODEL.policy_to(plain, THETA, int(goals[i])),
            rtol=1e-9,
        )
        total += weight * own
    np.testing.assert_allclose(flow, total, rtol=1e-9)


@pytest.mark.parametrize("by_start", [False, True])
def test_prefixes_and_samples(by_start: bool) -> None:
    mdp = with_goals(by_start)
    demos = trips(mdp, 10)
    begun = Demonstrations.from_lists([demo.states[:2] for demo in demos], [demo.actions[:1] for demo in demos])
    log_prob = MODEL.log_prob_prefix(mdp, THETA, begun, demos.last_states)[:, 0]
    for i in range(len(demos)):
        plain = flatten(mdp, int(demos.start_states[i]), int(demos.last_states[i]))
        expected = MODEL.log_prob_prefix(plain, THETA, begun[[i]], demos.last_states[[i]])[0, 0]
        np.testing.assert_allclose(log_prob[i], expected, rtol=1e-9, atol=1e-12)
    drawn = MODEL.sample(mdp, THETA, np.zeros(4000, int), np.full(4000, 15), seed=0)
    expected = ConditionalGoalValues(mdp, np.array([0]), np.array([15])).expected_features(
        THETA, np.array([0]), np.array([15])
    )[0]
    first = mdp.state_features[0, 0] * np.eye(4)[0]
    np.testing.assert_allclose(drawn.features(mdp).mean(axis=0) - first, expected, rtol=0.03)


def test_a_fit_recovers_parameters_and_standard_errors_exist() -> None:
    mdp = with_goals(by_start=False)
    demos = trips(mdp, 1500)
    mix = IntentMixture(1, MODEL).fit(mdp, demos)
    errors = mix.standard_errors()
    assert errors.method == "observed information"
    assert np.all(np.abs(mix.thetas_[0] - THETA) < 4.0 * errors.thetas[0])
    assert mix.summary().n_free == 4


def test_infeasible_parameters_are_detected_for_any_condition() -> None:
    mdp = with_goals(by_start=False)
    demos = trips(mdp)
    high = np.array([0.0, 0.0, 0.0, 1.0])
    with raises(DivergentPartition, parameter="theta"):
        MODEL.log_prob(mdp, high, demos)
    values = make_problem(MODEL, mdp, demos).values  # type: ignore[attr-defined]
    assert is_feasible(values, THETA)
    assert not is_feasible(values, high)
    level, gradient = values.loop_features(high)
    steps = [1e-6 * np.eye(4)[j] for j in range(4)]
    # The loop of the first divergent condition, at a point that diverges too.
    numeric = [(values.loop_features(high + h)[0] - values.loop_features(high - h)[0]) / 2e-6 for h in steps]
    assert level >= 0.0
    np.testing.assert_allclose(gradient, numeric, rtol=1e-5)
    theta = MODEL.fit(mdp, demos, start=None)
    assert is_feasible(values, theta)


def test_null_directions_include_goal_features() -> None:
    mdp = lattice()
    same = GoalFeature("same", np.tile(np.asarray(mdp.state_features)[:, 0], (16, 1)), np.arange(16))
    directions = MODEL.null_directions(add_goal_features(mdp, same), np.zeros(3))
    np.testing.assert_allclose(np.abs(directions), [[np.sqrt(0.5), 0.0, np.sqrt(0.5)]], atol=1e-7)


def test_a_mixture_with_goal_features_is_saved_and_loaded(tmp_path: Path) -> None:
    mdp = with_goals(by_start=True, sparse_values=True)
    demos = trips(mdp)
    mix = IntentMixture(2, DestinationMaxEnt(bounds=None, ridge=0.1), max_iter=3, random_state=0)
    with pytest.warns(match="did not converge"):
        mix.fit(mdp, demos)
    mix.save(tmp_path / "mixture")
    loaded = IntentMixture.load(tmp_path / "mixture")
    assert loaded.mdp_ == mdp
    assert loaded.mdp_.fingerprint() == mdp.fingerprint()
    assert mdp.without_goal_features != mdp
    np.testing.assert_array_equal(loaded.score_samples(demos), mix.score_samples(demos))


def test_link_size_is_the_expected_flow() -> None:
    mdp = lattice()
    feature = link_size(mdp, THETA[:2], [0, 0, 5], [15, 15, 2])
    assert feature.goals.tolist() == [2, 15]
    rows = feature.rows(np.array([0, 5]), np.array([15, 2]))
    for row, start, goal in zip(rows.tolist(), (0, 5), (15, 2), strict=True):
        flow = MODEL.expected_flow(mdp, THETA[:2], [start], [goal])
        visits = np.bincount(mdp.dst, weights=flow, minlength=16)
        np.testing.assert_allclose(feature.values[[row]].toarray()[0], visits, rtol=1e-9, atol=1e-9)


def test_invalid_pairs_of_link_size_are_named() -> None:
    mdp = with_goals(by_start=False)
    for starts, goals, name in (([0], [99], "goals"), ([-1], [15], "starts"), ([0, 1], [15], "goals")):
        with raises(InvalidParameter, parameter=name):
            link_size(mdp, THETA[:2], starts, goals)
    with raises(InvalidParameter, parameter="of", value="link"):
        link_size(mdp, THETA[:2], [0], [15], of="link")


def test_link_size_in_log_arithmetic(monkeypatch: pytest.MonkeyPatch) -> None:
    mdp = lattice()
    expected = link_size(mdp, THETA[:2], [0], [15]).values.toarray()
    monkeypatch.setattr(path_sums, "_LARGEST", 1e-300)
    np.testing.assert_allclose(link_size(mdp, 1.0001 * THETA[:2], [0], [15]).values.toarray(), expected, rtol=1e-3)


@pytest.mark.parametrize("model", [MaxEnt(5), MaxCausalEnt()], ids=str)
def test_other_models_refuse_goal_features(model: object) -> None:
    mdp = with_goals(by_start=False)
    demos, mdp = trips(mdp, 2), mdp.replace(gamma=0.9)
    with raises(InvalidParameter, parameter="mdp", value=2):
        model.log_prob(mdp, THETA, demos)  # type: ignore[attr-defined]
    with raises(InvalidParameter, parameter="mdp", value=2):
        model.fit(mdp, demos)  # type: ignore[attr-defined]


def test_rewards_of_other_tools() -> None:
    mdp = with_goals(by_start=False)
    demos = trips(mdp, 4)
    with raises(InvalidParameter, parameter="mdp", value=2):
        mdp.rewards(THETA)
    with raises(InvalidParameter, parameter="mdp", value=2):
        with_history(mdp, demos)
    # The features of the MDP do not matter for rewards per state.
    value, gradient = value_and_reward_grad(mdp, -2.0 * np.ones(16), demos, MODEL)
    assert np.isfinite(value)
    assert gradient.state.shape == (16,)


def test_missing_conditions_and_wrong_values_are_refused() -> None:
    mdp = lattice()
    near = GoalFeature("near", np.ones((1, 16)), [0])
    demos = Demonstrations.from_lists([[0, 1, 2]])
    with raises(InvalidParameter, parameter="goals", value=2, index=0):
        MODEL.log_prob(add_goal_features(mdp, near), np.zeros(3), demos)
    pair = add_goal_features(mdp, GoalFeature("pair", np.ones((1, 16)), [15], [0]))
    with raises(InvalidParameter, parameter="start"):
        MODEL.policy_to(pair, [-2.0, 0.0, 0.0], 15)
    with raises(InvalidMDP, parameter="goal_features", index=0):
        add_goal_features(mdp, GoalFeature("short", np.ones((1, 3)), [15]))
    with raises(InvalidMDP, parameter="values", index=(0, 1)):
        GoalFeature("bad", [[0.0, np.nan]], [0])
    with raises(InvalidMDP, parameter="goals"):
        GoalFeature("twice", np.ones((2, 16)), [3, 3])


def test_blocks_do_not_change_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    mdp = with_goals(by_start=True)
    demos = trips(mdp)
    units = Groups.from_labels(None, len(demos))
    problem = MODEL.make_problem(mdp, demos, units)
    before = problem.log_prob(THETA[None])
    monkeypatch.setattr(by_goal, "_WIDTH", 3)
    np.testing.assert_allclose(problem.log_prob(THETA[None]), before, rtol=1e-13)
