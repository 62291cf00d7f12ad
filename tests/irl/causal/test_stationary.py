import numpy as np
import pytest

from limiirl import MDP
from limiirl.irl.causal import state_actions, stationary
from limiirl.irl.causal.state_actions import StateActions
from limiirl.irl.causal.stationary import SoftBellmanSolver
from limiirl.kernels import policy_systems

STATES = 300


@pytest.fixture
def solver():
    """A solver for a ring, which is large enough for state elimination."""
    s = np.arange(STATES)
    features = np.random.default_rng(0).normal(size=(STATES, 3))
    mdp = MDP.from_edges(np.tile(s, 2), np.r_[(s + 1) % STATES, (s - 1) % STATES], gamma=0.9, state_features=features)
    return SoftBellmanSolver(StateActions(mdp), 1.0)


def test_stored_soft_values_are_those_of_the_same_rewards(solver, monkeypatch):
    calls = []
    solve = stationary.solve_soft_columns
    monkeypatch.setattr(
        stationary, "solve_soft_columns", lambda *args: calls.append(args[3][0].shape[1]) or solve(*args)
    )
    a, b, c = np.random.default_rng(1).normal(size=(3, 3))
    first = solver.values(np.array([a, b]))
    again = solver.values(np.array([c, b, a]))
    assert sum(calls) == 3
    np.testing.assert_array_equal(again.Q[:, [2, 1]], first.Q)
    np.testing.assert_array_equal(again.norm[:, [2, 1]], first.norm)
    np.testing.assert_array_equal(again.pi[:, [2, 1]], first.pi)
    fresh = SoftBellmanSolver(solver.pairs, 1.0).values(np.array([c, b, a]))
    np.testing.assert_allclose(again.Q, fresh.Q, rtol=1e-12)


@pytest.mark.parametrize("K", [2, 20])
def test_values_do_not_depend_on_the_other_rewards_of_a_batch(solver, K):
    thetas = np.random.default_rng(2).normal(size=(K, 3))
    together = solver.values(thetas)
    for k in range(K):
        alone = SoftBellmanSolver(solver.pairs, 1.0).values(thetas[[k]])
        np.testing.assert_allclose(together.Q[:, k], alone.Q[:, 0], rtol=1e-12)
        np.testing.assert_allclose(together.pi[:, k], alone.pi[:, 0], rtol=1e-11)


def test_one_and_several_threads_give_the_same_bits(solver, monkeypatch):
    thetas = np.random.default_rng(3).normal(size=(20, 3))
    several = solver.values(thetas)
    monkeypatch.setattr(policy_systems, "_MANY_COLUMNS", 100)
    one = SoftBellmanSolver(solver.pairs, 1.0).values(thetas)
    np.testing.assert_array_equal(several.Q, one.Q)
    np.testing.assert_array_equal(several.residual, one.residual)


def test_factors_of_stored_values_are_copied(solver):
    theta = np.array([[1.0, -1.0, 0.5]])
    factors = solver.values(theta).factors.by_column[0]
    expected = [part.copy() for part in factors]
    for part in factors:
        part[:] = np.nan
    for part, same in zip(solver.values(theta).factors.by_column[0], expected, strict=True):
        np.testing.assert_array_equal(part, same)


def test_the_least_recently_used_values_are_dropped(solver, monkeypatch):
    monkeypatch.setattr(stationary, "_MOST_SOLVED", 2)
    thetas = np.eye(3)
    for k in (0, 1, 0, 2):
        solver.values(thetas[[k]])
    kept = list(solver._solved)
    solver.values(thetas[[0]])  # stored: only its position changes
    assert list(solver._solved) == kept[::-1]


@pytest.mark.parametrize("stored", [False, True])
def test_scores_are_derivatives_of_log_probabilities_also_in_a_used_workspace(solver, monkeypatch, stored):
    if not stored:
        monkeypatch.setattr(state_actions, "_MOST_STORED", 0)
    theta, step = np.array([1.0, -1.0, 0.5]), 1e-5
    solver.derivatives(theta + 1.0)
    derivatives = solver.derivatives(theta)
    for j, unit in enumerate(np.eye(3)):
        up, down = (solver.values((theta + sign * step * unit)[None]) for sign in (1, -1))
        difference = np.log(up.pi[:, 0] / down.pi[:, 0]) / (2 * step)
        np.testing.assert_allclose(derivatives.scores[:, j], difference, atol=1e-7)


def test_small_workspaces_are_reused(solver, monkeypatch):
    theta = np.array([1.0, -1.0, 0.5])
    assert solver.derivatives(theta).scores is solver.derivatives(theta).scores
    monkeypatch.setattr(state_actions, "_MOST_STORED", 0)
    fresh = SoftBellmanSolver(StateActions(solver.pairs.mdp), 1.0)
    assert fresh.derivatives(theta).scores is not fresh.derivatives(theta).scores


def test_more_values_are_stored_on_request(solver):
    thetas = np.random.default_rng(4).normal(size=(50, 3))
    solver.values(thetas)
    default = len(solver._solved)
    solver.store(100)
    solver.values(thetas)
    assert len(solver._solved) == 50
    solver.store(0)
    assert len(solver._solved) == default < 50


def test_stored_values_are_limited_by_memory(solver, monkeypatch):
    monkeypatch.setattr(stationary, "_SOLVED_BYTES", 2**23)
    solver.store(10**6)
    solver.values(np.random.default_rng(4).normal(size=(500, 3)))
    stored = sum(part.nbytes for solved in solver._solved.values() for part in (solved.Q, solved.norm, solved.pi))
    assert 32 < len(solver._solved) < 500
    assert stored < 2**23
