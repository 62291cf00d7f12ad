"""`DestinationMaxEnt`: values, flows, fits, errors, null directions and mixtures."""

from __future__ import annotations

import numba
import numpy as np
import pytest
from scipy import sparse

from limiirl import MDP, Demonstrations, DestinationMaxEnt, IntentMixture, MaxEnt, select_intents
from limiirl.demos import Groups
from limiirl.errors import DivergentPartition, IdentifiabilityWarning, InvalidDemos, InvalidParameter
from limiirl.irl import with_choices
from limiirl.irl.destination.likelihood import DestinationLikelihood, ObservedTrips
from limiirl.irl.destination.path_sums import GoalValues, flow_features
from limiirl.irl.destination.problem import DestinationProblem
from limiirl.irl.identifiability import null_directions
from limiirl.mdp import add_edge_features, edge_constants
from limiirl.testing import cases, checks
from tests.helpers import raises
from tests.oracles.goals import ExactPaths, list_paths, log_weights

# The model requires discount 1.
CHECKS = [
    (problem.name, check)
    for problem in cases()
    for check in checks(
        DestinationMaxEnt(bounds=(-10.0, 10.0)), mdp=problem.mdp.replace(gamma=1.0), demos=problem.demos
    )
]


@pytest.mark.parametrize("check", [check for _, check in CHECKS], ids=[f"{name}-{check}" for name, check in CHECKS])
def test_conformance(check: object) -> None:
    check()  # type: ignore[operator]


def grid(side: int = 5, seed: int = 0, terminal: bool = False) -> MDP:
    """Return a square grid with two state features and one edge feature; `terminal` makes the last state terminal."""
    rng = np.random.default_rng(seed)
    src, dst = [], []
    for s in range(side * side):
        row, column = divmod(s, side)
        near = [(row - 1, column), (row + 1, column), (row, column - 1), (row, column + 1)]
        for r, c in near:
            if 0 <= r < side and 0 <= c < side and not (terminal and s == side * side - 1):
                src.append(s)
                dst.append(side * r + c)
    return MDP.from_edges(
        src,
        dst,
        n_states=side * side,
        state_features=rng.uniform(0.2, 1.0, (side * side, 2)),
        edge_features=rng.integers(0, 2, (len(src), 1)).astype(float),
    )


def pairs(mdp: MDP, n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.integers(0, mdp.n_states, n), rng.integers(0, mdp.n_states, n)


THETA = np.array([-2.0, -3.0, -0.5])


def test_agrees_with_maxent_where_the_goal_is_the_only_terminal_state() -> None:
    mdp = grid(terminal=True)
    other = MaxEnt(np.inf, bounds=None, stop="terminal", condition="start")
    demos = DestinationMaxEnt().sample(mdp, THETA, np.arange(24), np.full(24, 24), seed=0)
    ours, theirs = DestinationMaxEnt().log_prob(mdp, THETA, demos), other.log_prob(mdp, THETA, demos)
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-10)
    box = {"bounds": (-10.0, 0.0), "gtol": 1e-8}
    mine = DestinationMaxEnt(**box).fit(mdp, demos)
    fitted = MaxEnt(np.inf, stop="terminal", condition="start", **box).fit(mdp, demos)
    np.testing.assert_allclose(mine, fitted, rtol=0, atol=1e-4)


def test_a_grid_full_of_cycles_against_sixty_digits() -> None:
    mdp = grid(4)
    starts, goals = np.arange(16).repeat(2), np.tile([5, 15], 16)
    result = GoalValues(mdp).solve(THETA).pair_sums(starts, goals, np.ones(32))
    exact = {goal: ExactPaths(mdp, THETA, goal) for goal in (5, 15)}
    expected = [exact[goal].log_value()[start] for start, goal in zip(starts, goals, strict=True)]
    np.testing.assert_allclose(result.log_value, expected, rtol=0, atol=1e-12)
    flow = sum(exact[goal].flow(start) for start, goal in zip(starts.tolist(), goals.tolist(), strict=True))
    np.testing.assert_allclose(result.flow, flow, rtol=0, atol=1e-11)


def test_sums_over_longer_paths_converge_to_the_value() -> None:
    mdp = MDP.from_edges([0, 0, 1, 1, 1, 2, 2], [1, 2, 0, 2, 3, 0, 3], state_features=[[1.0], [2.0], [1.5], [1.0]])
    theta = np.array([-1.2])
    log_value = DestinationMaxEnt().log_value(mdp, theta, [3])[0, 0, 0]
    sums = [np.exp(log_weights(mdp, theta, list_paths(mdp, 0, 3, n))).sum() for n in (4, 8, 16)]
    errors = 1.0 - np.array(sums) / np.exp(log_value)
    assert np.all(errors > 0)
    assert np.all(np.diff(errors) < 0)
    assert errors[-1] < 1e-6


def test_values_below_the_range_of_float64() -> None:
    n = 30
    src = np.concatenate([np.arange(n - 1), np.arange(1, n), np.arange(n - 2)])
    dst = np.concatenate([np.arange(1, n), np.arange(n - 1), np.arange(2, n)])
    mdp = MDP.from_edges(src, dst, state_features=np.linspace(180, 200, n)[:, None])
    model, exact = DestinationMaxEnt(bounds=None), ExactPaths(mdp, np.array([-1.0]), n - 1)
    expected = exact.log_value()
    assert expected.min() < -2725.0
    np.testing.assert_allclose(model.log_value(mdp, [-1.0], [n - 1])[0, :, 0], expected, rtol=1e-13, atol=0)
    starts = np.arange(n)
    solution = GoalValues(mdp).solve(np.array([-1.0]))
    np.testing.assert_allclose(solution.pair_sums(starts, np.full(n, n - 1)).log_value, expected, rtol=1e-13, atol=0)
    flow = model.expected_flow(mdp, [-1.0], [0], [n - 1])
    np.testing.assert_allclose(flow, exact.flow(0), rtol=1e-10, atol=1e-12)
    path = model.sample(mdp, [-1.0], [0], [n - 1], seed=0)
    assert np.isfinite(model.log_prob(mdp, [-1.0], path)).all()


def test_distant_and_near_pairs_in_one_call() -> None:
    mdp = MDP.from_edges(np.arange(9), np.arange(1, 10), state_features=np.full((10, 1), 100.0))
    starts, goals = np.array([0, 8, 0, 9]), np.array([9, 9, 1, 0])
    result = GoalValues(mdp).solve(np.array([-1.0])).pair_sums(starts, goals, np.array([1.0, 2.0, 4.0, 0.0]))
    np.testing.assert_allclose(result.log_value, [-900.0, -100.0, -100.0, -np.inf], rtol=1e-14, atol=0)
    np.testing.assert_allclose(result.flow, [5, 1, 1, 1, 1, 1, 1, 1, 3], rtol=1e-13, atol=0)


def test_samples_have_the_expected_flow() -> None:
    mdp, n = grid(4), 4000
    drawn = DestinationMaxEnt().sample(mdp, THETA, np.zeros(n, dtype=int), np.full(n, 15), seed=3)
    used = np.bincount(drawn.steps(mdp).edge, minlength=mdp.n_edges) / n
    expected = DestinationMaxEnt().expected_flow(mdp, THETA, [0], [15])
    # A path uses each edge about once, so the standard error is a small multiple of sqrt(1 / n).
    np.testing.assert_allclose(used, expected, rtol=0, atol=5.0 / np.sqrt(n))
    again = DestinationMaxEnt().sample(mdp, THETA, np.zeros(n, dtype=int), np.full(n, 15), seed=3)
    assert drawn == again


def test_flow_is_conserved_and_adds_up() -> None:
    mdp = grid()
    starts, goals = pairs(mdp, 30)
    weights = np.linspace(0.5, 2.0, 30)
    flow = DestinationMaxEnt().expected_flow(mdp, THETA, starts, goals, weights)
    net = np.bincount(mdp.src, flow, mdp.n_states) - np.bincount(mdp.dst, flow, mdp.n_states)
    expected = np.bincount(starts, weights, mdp.n_states) - np.bincount(goals, weights, mdp.n_states)
    np.testing.assert_allclose(net, expected, rtol=0, atol=1e-12)
    one_by_one = sum(
        w * DestinationMaxEnt().expected_flow(mdp, THETA, [s], [g])
        for s, g, w in zip(starts, goals, weights, strict=True)
    )
    np.testing.assert_allclose(flow, one_by_one, rtol=0, atol=1e-12)


def test_a_fit_recovers_the_reward() -> None:
    mdp = grid()
    starts, goals = pairs(mdp, 1500)
    demos = DestinationMaxEnt().sample(mdp, THETA, starts, goals, seed=1)
    model = DestinationMaxEnt(gtol=1e-6)
    theta = model.fit(mdp, demos)
    assert model.result_.converged
    np.testing.assert_allclose(theta, THETA, rtol=0, atol=0.5)
    newton = DestinationMaxEnt(solver="newton", gtol=1e-6).fit(mdp, demos)
    np.testing.assert_allclose(newton, theta, rtol=0, atol=1e-4)


def test_demonstration_of_one_state_has_probability_one() -> None:
    mdp = grid()
    result = DestinationMaxEnt().log_prob(mdp, THETA, Demonstrations.from_lists([[3], [0, 1]]))
    assert result[0, 0] == 0.0
    assert result[1, 0] < 0.0


class TestErrors:
    def test_a_discount(self) -> None:
        mdp = grid().replace(gamma=0.999)
        with raises(InvalidParameter, parameter="gamma", value=0.999):
            DestinationMaxEnt().log_value(mdp, THETA, [0])

    def test_demonstrations_that_pass_their_goal(self) -> None:
        mdp, demos = grid(), Demonstrations.from_lists([[0, 1], [1, 2, 1, 6, 1], [5, 6]])
        with raises(InvalidDemos, parameter="demos", value=1, index=(1, 0)):
            DestinationMaxEnt().fit(mdp, demos)
        model = DestinationMaxEnt()
        assert model.admits(demos).tolist() == [True, False, True]
        assert model.log_prob(mdp, THETA, demos[model.admits(demos)]).shape == (2, 1)

    def test_rewards_that_make_sums_infinite(self) -> None:
        with raises(DivergentPartition, parameter="theta", index=19):
            DestinationMaxEnt().log_value(grid(), np.zeros(3), [0])

    def test_bounds_that_leave_no_finite_sum(self) -> None:
        mdp = grid()
        demos = Demonstrations.from_lists([[0, 1]])
        with pytest.raises(DivergentPartition, match="bounds"):
            DestinationMaxEnt(bounds=(-0.01, 0.0)).fit(mdp, demos)

    def test_an_infeasible_start(self) -> None:
        with raises(DivergentPartition, parameter="start"):
            DestinationMaxEnt().fit(grid(), Demonstrations.from_lists([[0, 1]]), start=np.zeros(3))

    def test_ends_that_are_not_connected(self) -> None:
        mdp = MDP.from_edges([0, 1], [1, 2], n_states=3)
        for call in (
            lambda: DestinationMaxEnt().sample(mdp, np.zeros(3), [2], [0]),
            lambda: DestinationMaxEnt().expected_flow(mdp, np.zeros(3), [2], [0]),
        ):
            with raises(InvalidParameter, parameter="goals", value=0, index=0):
                call()
        with raises(InvalidParameter, parameter="goal", value=0, index=None):
            DestinationMaxEnt().most_likely(mdp, np.zeros(3), 2, 0)

    @pytest.mark.parametrize(
        ("starts", "goals", "weights", "expected"),
        [
            ([0], [1, 2], None, {"parameter": "goals", "value": 2}),
            ([0], [25], None, {"parameter": "goals", "value": 25, "index": 0}),
            ([0.5], [1], None, {"parameter": "starts"}),
            ([0], [1], [-1.0], {"parameter": "weights"}),
            ([0], [1], [1.0, 2.0], {"parameter": "weights"}),
        ],
    )
    def test_invalid_pairs(self, starts: list, goals: list, weights: list | None, expected: dict[str, object]) -> None:
        with raises(InvalidParameter, **expected):
            DestinationMaxEnt().expected_flow(grid(), THETA, starts, goals, weights)

    def test_unsupported_methods_of_a_mixture(self) -> None:
        mdp = grid()
        demos = two_intents(mdp, 20)
        mixture = IntentMixture(1, DestinationMaxEnt()).fit(mdp, demos)
        for name, call in (
            ("sample", lambda: mixture.sample(3, seed=0)),
            ("log_prob_prefix", lambda: mixture.predict(demos[:2], partial=True)),
            ("log_prob_prefix", lambda: mixture.next_actions(demos[:2])),
            ("policy", lambda: mixture.policy(0)),
        ):
            with raises(InvalidParameter, parameter="irl", value=name):
                call()
        start, goal = int(demos.start_states[0]), int(demos.last_states[0])
        assert mixture.most_likely(start, goal).demos.last_states[0] == goal
        for call in (DestinationMaxEnt().log_prob_prefix, DestinationMaxEnt().sample):
            with raises(InvalidParameter, parameter="goals"):
                call(mdp, THETA, demos[:2] if call.__name__ == "log_prob_prefix" else [0])

    @pytest.mark.parametrize("demos", [None, [[0, 1]]])
    def test_demonstrations_of_another_type(self, demos: object) -> None:
        with raises(InvalidDemos, parameter="demos", value=type(demos).__name__):
            DestinationMaxEnt().log_prob(grid(), THETA, demos)  # type: ignore[arg-type]
        with raises(InvalidDemos, parameter="demos", value=type(demos).__name__):
            DestinationMaxEnt().log_prob_prefix(grid(), THETA, demos, [0])  # type: ignore[arg-type]

    def test_prefixes_need_one_goal_each(self) -> None:
        with raises(InvalidParameter, parameter="goals", value=2):
            DestinationMaxEnt().log_prob_prefix(grid(), THETA, Demonstrations.from_lists([[0, 1]]), [3, 4])


class TestChoices:
    def test_choices_feature_makes_sums_finite(self) -> None:
        mdp = grid().replace(edge_features=None)
        assert not GoalValues(mdp).is_finite(np.full(2, -0.01))
        assert GoalValues(with_choices(mdp)).is_finite(np.array([-0.01, -0.01, -1.0]))
        demos = Demonstrations.from_lists([[0, 1, 2], [5, 6, 7, 12]])
        with pytest.raises(DivergentPartition, match="with_choices"):
            DestinationMaxEnt(bounds=(-0.1, 0.0)).fit(mdp, demos)
        bounds = np.array([[-0.1, 0.0], [-0.1, 0.0], [-5.0, 0.0]])
        assert np.all(np.isfinite(DestinationMaxEnt(bounds=bounds).fit(with_choices(mdp), demos)))

    def test_choices_follow_the_action_features(self) -> None:
        mdp = grid()
        first = np.arange(mdp.n_pairs, dtype=float)[:, None]
        for given in (first, sparse.csr_array(first)):
            result = with_choices(mdp.replace(action_features=given))
            assert result.feature_names[-3:] == ("action[0]", "choices", "edge[0]")
            columns = result.action_features if isinstance(given, np.ndarray) else result.action_features.toarray()
            np.testing.assert_allclose(columns[:, 0], first[:, 0], rtol=0, atol=0)
            inner = result.pair_state == 12
            np.testing.assert_allclose(columns[inner, 1], np.log(4.0), rtol=1e-15, atol=0)


def test_a_prefix_that_has_passed_its_goal_is_impossible() -> None:
    mdp = grid()
    prefixes = Demonstrations.from_lists([[0, 1, 2], [0, 1, 2], [0]])
    result = np.exp(DestinationMaxEnt().log_prob_prefix(mdp, THETA, prefixes, [1, 2, 0])[:, 0])
    whole = np.exp(DestinationMaxEnt().log_prob(mdp, THETA, prefixes[1:2])[0, 0])
    np.testing.assert_allclose(result, [0.0, whole, 1.0], rtol=1e-12, atol=0)


def two_intents(mdp: MDP, n: int) -> Demonstrations:
    thetas = np.array([[-6.0, -0.8, -1.0], [-0.8, -6.0, -1.0]])
    model, parts = DestinationMaxEnt(), []
    for k, theta in enumerate(thetas):
        starts, goals = pairs(mdp, n, seed=k)
        far = np.abs(starts - goals) > 4
        drawn = model.sample(mdp, theta, starts[far], goals[far], seed=k)
        parts.append(
            Demonstrations(
                drawn.states, drawn.offsets, drawn.actions, np.arange(len(drawn)) % 8 + 8 * k, np.full(len(drawn), k)
            )
        )
    return Demonstrations.concat(parts)


class TestInMixtures:
    def test_two_intents_are_recovered_and_saved(self, tmp_path: object) -> None:
        mdp = grid(6)
        demos = two_intents(mdp, 120)
        mixture = IntentMixture(2, DestinationMaxEnt(), random_state=0).fit(mdp, demos, groups=demos.groups)
        assert demos.labels is not None
        driver, first = np.unique(demos.groups, return_index=True)
        true = demos.labels[first]
        result = mixture.group_responsibilities_.argmax(axis=1)
        assert driver.size == 16
        assert np.array_equal(result, true) or np.array_equal(result, 1 - true)
        mixture.save(tmp_path)  # type: ignore[arg-type]
        again = IntentMixture.load(tmp_path)  # type: ignore[arg-type]
        assert isinstance(again.irl_, DestinationMaxEnt)
        assert np.array_equal(again.thetas_, mixture.thetas_)

    def test_the_number_of_intents_is_selected(self) -> None:
        mdp = grid(6)
        demos = two_intents(mdp, 60)
        mixture = IntentMixture(irl=DestinationMaxEnt(), max_iter=20, resp_tol=1e-3)
        result = select_intents(mdp, demos, [1, 2], mixture=mixture, groups=demos.groups, folds=2, resamples=2, seed=0)
        assert result.recommended == 2

    def test_results_are_independent_of_the_number_of_threads(self) -> None:
        mdp = grid()
        demos = two_intents(mdp, 40)
        weights = np.random.default_rng(0).random((len(demos), 3))
        before = numba.get_num_threads()
        result = []
        try:
            for threads in {1, min(2, numba.config.NUMBA_NUM_THREADS)}:
                numba.set_num_threads(threads)
                result.append(DestinationMaxEnt().fit_many(mdp, demos, weights))
        finally:
            numba.set_num_threads(before)
        assert all(np.array_equal(result[0], other) for other in result)

    def test_warm_start_features_are_residuals(self) -> None:
        mdp = grid()
        demos = two_intents(mdp, 40)
        model = DestinationMaxEnt(gtol=1e-7)
        problem = DestinationProblem.from_demos(
            model, mdp, demos, Groups.from_labels(None, len(demos)), GoalValues(mdp)
        )
        result = problem.features()
        theta = model.fit(mdp, demos)
        flows = [
            flow_features(mdp, model.expected_flow(mdp, theta, [s], [g]))
            for s, g in zip(demos.start_states, demos.last_states, strict=True)
        ]
        np.testing.assert_allclose(result, ObservedTrips.from_demos(mdp, demos).features - flows, rtol=0, atol=1e-3)
        np.testing.assert_allclose(model.features(mdp, demos), result, rtol=0, atol=1e-12)

    def test_rewards_outside_the_domain_are_projected(self) -> None:
        mdp = grid()
        demos = two_intents(mdp, 10)
        problem = DestinationProblem.from_demos(
            DestinationMaxEnt(), mdp, demos, Groups.from_labels(None, len(demos)), GoalValues(mdp)
        )
        given = np.array([[0.5, 0.5, 0.5], [-2.0, -3.0, -20.0]])
        result = problem.project(given)
        assert np.all(result <= 0.0)
        assert np.all(np.isfinite(problem.log_prob(result)))
        assert result[1].tolist() == [-2.0, -3.0, -10.0]


class TestNullDirections:
    def test_a_difference_of_potentials_has_no_effect(self) -> None:
        mdp = grid()
        potential = np.random.default_rng(0).normal(size=mdp.n_states)
        shaped = np.column_stack([np.asarray(mdp.edge_features)[:, 0], potential[mdp.dst] - potential[mdp.src]])
        mdp = mdp.replace(edge_features=shaped)
        model = DestinationMaxEnt(bounds=None)
        np.testing.assert_allclose(model.null_directions(mdp, np.zeros(4)), [[0, 0, 0, 1]], rtol=0, atol=1e-7)
        theta = np.array([-2.0, -3.0, -0.5, 0.0])
        starts, goals = pairs(mdp, 20)
        demos = model.sample(mdp, theta, starts, goals, seed=0)
        moved = theta + np.array([0, 0, 0, 7.0])
        one, other = model.log_prob(mdp, theta, demos), model.log_prob(mdp, moved, demos)
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-9)

    def test_null_directions_agree_with_the_hessian(self) -> None:
        mdp = grid(4)
        phi = np.asarray(mdp.state_features)
        mdp = mdp.replace(state_features=np.column_stack([phi, phi @ [1.0, 2.0]]))
        theta = np.array([-1.0, -1.0, -1.0, -0.5])
        starts, goals = pairs(mdp, 30)
        demos = DestinationMaxEnt().sample(mdp, theta, starts, goals, seed=0)
        objective = DestinationLikelihood(
            GoalValues(mdp), ObservedTrips.from_demos(mdp, demos), np.ones((30, 1)), np.zeros(1)
        )
        hessian = objective.hessian(theta, 0)
        result = DestinationMaxEnt().null_directions(mdp, theta)
        assert result.shape == (1, 4)
        np.testing.assert_allclose(hessian @ result[0], 0.0, rtol=0, atol=1e-6)
        rounded = null_directions(np.where(np.abs(hessian) < 1e-8, 0.0, hessian), np.ones(4) * 1e3)
        assert rounded.shape[0] <= 1
        assert np.linalg.eigvalsh(hessian)[1] > 1e-3
        with pytest.warns(IdentifiabilityWarning, match="1 of 4 directions"):
            DestinationMaxEnt().fit(mdp, demos)

    def test_nothing_is_identified_without_alternatives(self) -> None:
        ring = MDP.from_edges([0, 1, 2], [1, 2, 0])
        assert DestinationMaxEnt().null_directions(ring, np.zeros(3)).shape == (3, 3)


def random_walks() -> tuple[MDP, Demonstrations]:
    """Return random walks to goals; the best reward has a spectral radius of 0.99."""
    rng, n = np.random.default_rng(0), 30
    moves = [(s, int(t)) for s in range(n) for t in rng.choice(n, 3, replace=False) if t != s]
    mdp = MDP.from_edges(*zip(*moves, strict=True), n_states=n, state_features=rng.uniform(0.2, 1, (n, 3)))
    out = {s: [t for tail, t in moves if tail == s] for s in range(n)}
    result: list[list[int]] = []
    while len(result) < 200:
        goal, path = int(rng.integers(5)), [int(rng.integers(n))]
        while path[-1] != goal and len(path) < 400:
            path.append(int(rng.choice(out[path[-1]])))
        if path[-1] == goal:
            result.append(path)
    return mdp, Demonstrations.from_lists(result)


def test_fit_near_the_boundary_is_independent_of_its_start() -> None:
    mdp, demos = random_walks()
    newton = DestinationMaxEnt(solver="newton", gtol=1e-6)
    newton.fit(mdp, demos)
    for start in (None, [-3.0, -3.0, -3.0], [-8.0, -1.0, -1.0], [-1.0, -1.0, -8.0], [-1.0, -8.0, -1.0]):
        model = DestinationMaxEnt(gtol=1e-6)
        model.fit(mdp, demos, start=start)
        assert model.result_.converged
        assert model.result_.n_evaluations < 100
        np.testing.assert_allclose(model.result_.value, newton.result_.value, atol=1e-6, rtol=0)


def test_limited_m_step_improves_on_its_start() -> None:
    mdp, demos = random_walks()
    problem = DestinationMaxEnt()._problem(mdp, demos, Groups.from_labels(None, len(demos)))
    starts, moments = np.array([[-3.0, -3.0, -3.0], [-8.0, -1.0, -1.0]]), np.full((len(demos), 2), 0.5)
    before = problem.log_prob(starts).sum(axis=0)
    for limit in (2, 10, 50):
        result = problem.m_step(moments, starts, np.arange(2), limit)
        assert result.n_evaluations <= limit
        assert np.all(problem.log_prob(result.thetas).sum(axis=0) > before)


def test_null_directions_of_a_fit_depend_on_the_demonstrated_pairs() -> None:
    """Only the pair 0-6 has two paths, and it is not demonstrated."""
    phi = np.zeros((8, 1))
    phi[4] = 1.0
    mdp = MDP.from_edges([0, 2, 1, 3, 0, 0, 4, 7], [2, 5, 3, 6, 4, 7, 6, 6], n_states=8, state_features=phi)
    demos = Demonstrations.from_lists([[0, 2, 5], [1, 3, 6]])
    model = DestinationMaxEnt()
    with pytest.warns(IdentifiabilityWarning):
        model.fit(mdp, demos)
    np.testing.assert_allclose(np.abs(model.result_.null_directions), [[1.0]], atol=1e-12)
    np.testing.assert_allclose(np.ptp(model.log_prob(mdp, [[0.0], [-1.0], [-5.0]], demos), axis=1), 0.0, atol=1e-12)
    assert model.null_directions(mdp, [0.0]).shape[0] == 0
    model.fit(mdp, Demonstrations.from_lists([[0, 2, 5], [0, 4, 6], [0, 7, 6]]))
    assert model.result_.null_directions.shape[0] == 0


def test_many_rewards_with_a_ridge_have_no_null_directions():
    mdp = grid(9)
    names = tuple(f"turn {e}" for e in range(mdp.n_edges))
    wide = add_edge_features(mdp, edge_constants(mdp, "turn"))
    assert wide.n_features > 200
    rng = np.random.default_rng(0)
    ends = rng.permuted(np.tile(np.arange(mdp.n_states), (60, 1)), axis=1)[:, :2]
    model = DestinationMaxEnt(ridge={"turn *": 0.1, "*": 0.0}, bounds=None)
    demos = model.sample(wide, np.full(wide.n_features, -1.0), ends[:, 0], ends[:, 1], seed=0)
    model.fit(wide, demos)
    with_ridge = np.array([name in names for name in wide.feature_names])
    directions = model.result_.null_directions
    np.testing.assert_allclose(directions[:, with_ridge], 0.0, rtol=0.0, atol=0.0)
    assert len(model.null_directions(wide, np.zeros(wide.n_features))) > len(directions)


def test_lbfgs_does_not_depend_on_the_units_of_features():
    mdp = grid()
    units = np.array([100.0, 1.0, 0.1])
    other = mdp.replace(state_features=mdp.state_features * units[:2], edge_features=mdp.edge_features * units[2])
    model = DestinationMaxEnt(bounds=None, solver="lbfgs", ridge=0.0)
    rng = np.random.default_rng(0)
    ends = rng.permuted(np.tile(np.arange(mdp.n_states), (80, 1)), axis=1)[:, :2]
    start = np.full(3, -1.5)
    demos = model.sample(mdp, [-1.0, -2.0, -1.5], ends[:, 0], ends[:, 1], seed=0)
    theta = model.fit(mdp, demos, start=start)
    n_evaluations = model.result_.n_evaluations
    np.testing.assert_allclose(model.fit(other, demos, start=start / units) * units, theta, rtol=1e-3)
    assert model.result_.n_evaluations <= n_evaluations + 3
