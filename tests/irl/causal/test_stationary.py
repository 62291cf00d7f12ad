import numpy as np
import pytest

from limiirl import MDP
from limiirl.irl.causal import stationary
from limiirl.irl.causal.state_actions import StateActions
from limiirl.irl.causal.stationary import SoftBellmanSolver

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
    solve = stationary.solve_soft_values
    monkeypatch.setattr(stationary, "solve_soft_values", lambda *args: calls.append(1) or solve(*args))
    a, b, c = np.random.default_rng(1).normal(size=(3, 3))
    first = solver.values(np.array([a, b]))
    again = solver.values(np.array([c, b, a]))
    assert len(calls) == 3
    np.testing.assert_array_equal(again.Q[:, [2, 1]], first.Q)
    np.testing.assert_array_equal(again.norm[:, [2, 1]], first.norm)
    np.testing.assert_array_equal(again.pi[:, [2, 1]], first.pi)
    fresh = SoftBellmanSolver(solver.pairs, 1.0).values(np.array([c, b, a]))
    np.testing.assert_array_equal(again.Q, fresh.Q)


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
