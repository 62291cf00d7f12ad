"""Dense path sums against the sparse ones, which 60-digit arithmetic checks, and the choice between both."""

from __future__ import annotations

import numpy as np
import pytest

from limiirl import MDP, DestinationMaxEnt
from limiirl.errors import DivergentPartition
from limiirl.irl.destination import dense
from limiirl.irl.destination.dense import DenseGoalValues, make_goal_values
from limiirl.irl.destination.path_sums import GoalValues
from limiirl.kernels.elimination.dense import eliminate
from tests.helpers import raises

THETA = np.array([-1.5, -0.5, -1.0])


def hyperlinks(n: int, links: int, seed: int = 0) -> MDP:
    """Return a random graph in which each state links to the next one and to `links` others."""
    rng = np.random.default_rng(seed)
    src = np.concatenate([np.arange(n), np.repeat(np.arange(n), links)])
    dst = np.concatenate([(np.arange(n) + 1) % n, rng.integers(n, size=n * links)])
    action = np.concatenate([np.zeros(n, dtype=int), np.tile(np.arange(1, links + 1), n)])
    features = rng.random((n, 2)), rng.random((src.size, 1))
    return MDP.from_edges(src, dst, n, action=action, state_features=1.0 + features[0], edge_features=features[1])


def draw_pairs(n: int, m: int, seed: int = 1) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.integers(n, size=m), rng.integers(n, size=m), rng.random(m)


@pytest.mark.parametrize("n", [40, 64, 65, 300])
def test_sums_and_gradients_agree_with_sparse_elimination(n: int) -> None:
    mdp, (starts, goals, weights) = hyperlinks(n, 3), draw_pairs(n, 400)
    sparse, own = GoalValues(mdp), DenseGoalValues(mdp)
    for theta in (THETA, 40.0 * THETA):
        expected = sparse.sum_pairs(theta[None], starts, goals, weights[:, None])
        value, gradient = own.sum_pairs(theta[None], starts, goals, weights[:, None])
        np.testing.assert_allclose(value, expected[0], rtol=1e-12)
        np.testing.assert_allclose(gradient, expected[1], rtol=1e-10)
        log_values = own.log_values(theta[None], starts, goals)
        np.testing.assert_allclose(log_values, sparse.log_values(theta[None], starts, goals), rtol=1e-12, atol=1e-12)


def test_sums_of_distant_states_have_a_small_relative_error() -> None:
    """In a ring with a cost of 3 per step, the sum of 140 steps is e^-420, far below the rounding error of others."""
    n = 141
    mdp = MDP.from_edges(np.arange(n), (np.arange(n) + 1) % n, n, state_features=np.ones((n, 1)))
    solution = DenseGoalValues(mdp).solve(np.array([-3.0]))
    np.testing.assert_allclose(solution.values_to(n - 1), -3.0 * np.arange(n - 1, -1, -1), rtol=1e-13)


def test_results_do_not_depend_on_the_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    mdp, (starts, goals, weights) = hyperlinks(300, 4), draw_pairs(300, 2000)
    results = []
    for threads in (1, 3):
        monkeypatch.setattr(dense.numba, "get_num_threads", lambda threads=threads: threads)
        results.append(DenseGoalValues(mdp).solve(THETA * 3).pair_sums(starts, goals, weights))
    np.testing.assert_array_equal(results[0].log_value, results[1].log_value)
    assert results[0].flow is not None
    np.testing.assert_array_equal(results[0].flow, results[1].flow)


@pytest.mark.parametrize("margin", [0.0, 1e-6, 0.5])
def test_divergent_cycles_have_a_weight_above_the_limit_and_its_gradient(margin: float) -> None:
    mdp = hyperlinks(130, 3)
    values = DenseGoalValues(mdp)
    theta = next(t for t in (THETA * s for s in np.linspace(1.0, 0.1, 40)) if not values.is_finite(t, margin))
    loop = values.divergent_loop(theta, margin)
    assert loop is not None
    assert loop[0] >= -margin
    state = values._factor(theta).divergent_state(margin)
    with raises(DivergentPartition, parameter="theta", index=state):
        values.solve(theta, margin)
    # The state has the same cycles at nearby theta, so that the counts are the derivative of their log-weight.
    step = np.array([1e-6, 0.0, 0.0])
    sides = []
    for sign in (1.0, -1.0):
        weight = np.zeros((130, 130))
        np.add.at(weight, (mdp.src, mdp.dst), np.exp(values.edge_log_weights(theta + sign * step)))
        inner = np.linalg.solve(np.eye(state) - weight[:state, :state], weight[:state, state])
        sides.append(np.log(weight[state, state] + weight[state, :state] @ inner))
    assert mdp.state_features is not None
    np.testing.assert_allclose(
        loop[1] @ np.asarray(mdp.state_features)[mdp.dst, 0], np.subtract(*sides) / 2e-6, rtol=1e-5
    )
    assert values.divergent_loop(20.0 * THETA, margin) is None


def test_dense_factorisation_is_chosen_for_graphs_with_much_fill_in() -> None:
    side = 20
    x, y = np.divmod(np.arange(side * side), side)
    right, down = np.flatnonzero(x < side - 1), np.flatnonzero(y < side - 1)
    grid = MDP.from_edges(
        np.concatenate([right, right + side, down, down + 1]), np.concatenate([right + side, right, down + 1, down])
    )
    assert type(make_goal_values(grid)) is GoalValues
    assert type(make_goal_values(hyperlinks(300, 3))) is DenseGoalValues
    assert type(make_goal_values(hyperlinks(300, 12))) is DenseGoalValues
    assert type(make_goal_values(hyperlinks(100, 12))) is GoalValues


def test_fits_agree_with_sparse_elimination(monkeypatch: pytest.MonkeyPatch) -> None:
    mdp = hyperlinks(220, 3)
    starts, goals, _ = draw_pairs(220, 300)
    apart = starts != goals
    demos = DestinationMaxEnt().sample(mdp, THETA, starts[apart], goals[apart], seed=0)
    model = DestinationMaxEnt(gtol=1e-8)
    assert type(model._values(mdp)) is DenseGoalValues
    theta = model.fit(mdp, demos)
    monkeypatch.setitem(dense._CHOICES, mdp, False)
    assert type(model._values(mdp)) is GoalValues
    np.testing.assert_allclose(model.fit(mdp, demos), theta, rtol=1e-5)
    np.testing.assert_allclose(theta, THETA, atol=0.4)


def test_elimination_ends_at_the_first_divergent_state() -> None:
    W = np.zeros((70, 70))
    W[66, 66], W[68, 68] = 1.0, 2.0
    factors = eliminate(W, 1.0)
    assert factors.divergent == 66
    np.testing.assert_array_equal(factors.solve(np.eye(70), 66), np.eye(70)[:66])
