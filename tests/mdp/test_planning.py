"""Planning: MDPs solved by hand, ties, sparse solvers, reference values of spec.md, and errors."""

from __future__ import annotations

import numpy as np
import pytest

from limiirl.errors import InvalidParameter, NumericalError
from limiirl.mdp import MDP
from limiirl.mdp.planning import (
    action_values,
    optimal_policy,
    optimal_values,
    policy_pairs,
    policy_table,
    policy_values,
)
from limiirl.worlds import ElementWorld
from tests.helpers import raises
from tests.oracles.dense_planning import tensors

KINDS = ("state", "action", "edge")


def fork(gamma: float, **features: object) -> MDP:
    """From 0 surely to 1 (action 0), or to 1 or 2 (action 1); from 1 to 2, which is terminal."""
    src, act, dst, prob = [0, 0, 0, 1], [0, 1, 1, 0], [1, 1, 2, 2], [1.0, 0.25, 0.75, 1.0]
    return MDP.from_edges(src, dst, 3, action=act, prob=prob, gamma=gamma, terminal=[2], **features)  # type: ignore[arg-type]


@pytest.mark.parametrize("gamma", [0.5, 1.0])
def test_values_with_all_kinds_of_rewards_by_hand(gamma: float) -> None:
    features = {
        "state_features": [[-1.0], [-2.0], [8.0]],
        "action_features": [[0.5], [-0.5], [-0.5], [0.0]],
        "edge_features": [[0.0], [3.0], [1.0], [-4.0]],
    }
    mdp = fork(gamma, **features)
    theta = [1.0, 2.0, 0.5]
    V1 = -2.0 - 2.0 + gamma * 8.0
    Q00 = -1.0 + 1.0 + gamma * V1
    Q01 = -1.0 - 1.0 + 0.25 * (1.5 + gamma * V1) + 0.75 * (0.5 + gamma * 8.0)
    Q = action_values(mdp, [0.0, V1, 8.0], theta)
    np.testing.assert_allclose(Q, [Q00, Q01, V1], rtol=1e-14, atol=1e-14)
    np.testing.assert_allclose(optimal_values(mdp, theta), [max(Q00, Q01), V1, 8.0], rtol=1e-14, atol=1e-14)
    least = optimal_values(mdp, theta, minimise=True)
    np.testing.assert_allclose(least, [min(Q00, Q01), V1, 8.0], rtol=1e-14, atol=1e-14)
    assert Q00 != Q01
    mixed = policy_values(mdp, [0.25, 0.75, 1.0], theta)
    np.testing.assert_allclose(mixed, [0.25 * Q00 + 0.75 * Q01, V1, 8.0], rtol=1e-14, atol=1e-14)
    np.testing.assert_array_equal(optimal_policy(mdp, theta), [float(Q00 > Q01), float(Q01 > Q00), 1.0])


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_of_reward_alone(kind: str) -> None:
    rows = {"state": 3, "action": 4, "edge": 4}[kind]
    features = -np.ones((rows, 1))
    mdp = fork(1.0, **{f"{kind}_features": features})
    # Rewards on states are paid at the end as well.
    expected = [-2.25, -2.0, -1.0] if kind == "state" else [-1.25, -1.0, 0.0]
    np.testing.assert_allclose(optimal_values(mdp, [1.0]), expected, rtol=1e-14, atol=0.0)


def test_all_states_terminal() -> None:
    mdp = MDP.from_edges([], [], 2, state_features=[1.0, 2.0], gamma=1.0)
    np.testing.assert_array_equal(optimal_values(mdp, [3.0]), [3.0, 6.0])
    np.testing.assert_array_equal(policy_values(mdp, [], [3.0]), [3.0, 6.0])
    assert optimal_policy(mdp, [3.0]).shape == (0,)
    assert action_values(mdp, [0.0, 0.0], [3.0]).shape == (0,)


@pytest.mark.parametrize("scale", [1.0, 1e-9, 1e9])
def test_ties_are_relative_to_the_range_of_q(scale: float) -> None:
    """Actions worth 0, -1e-7 and -1e-5 where Q ranges over 1: the first two tie, whatever the unit."""
    mdp = MDP.from_edges([0, 0, 0, 0], [1, 2, 3, 4], gamma=1.0, state_features=[0.0, 0.0, -1e-7, -1e-5, -1.0])
    np.testing.assert_array_equal(optimal_policy(mdp, [scale]), [0.5, 0.5, 0.0, 0.0])
    np.testing.assert_array_equal(optimal_policy(mdp, [scale], tol=1e-4), [1 / 3, 1 / 3, 1 / 3, 0.0])
    np.testing.assert_array_equal(optimal_policy(mdp, [scale], tol=1e-8), [1.0, 0.0, 0.0, 0.0])


@pytest.mark.parametrize("tol", [1e-6, 0.0])
def test_rounding_does_not_break_ties(tol: float) -> None:
    """A constant reward makes every action as good as every other, but Q is the same up to rounding only."""
    rng = np.random.default_rng(0)
    prob = rng.random(60 * 9) + 0.1
    src, act = np.repeat(np.arange(60), 9), np.tile(np.repeat([0, 1, 2], 3), 60)
    dst = np.concatenate([rng.choice(60, 3, replace=False) for _ in range(180)])
    mdp = MDP.from_edges(src, dst, 60, action=act, prob=prob, normalise=True, gamma=0.999, state_features=np.ones(60))
    assert np.ptp(action_values(mdp, optimal_values(mdp, [-0.1]), [-0.1])) > 0.0
    np.testing.assert_allclose(optimal_policy(mdp, [-0.1], tol=tol), 1.0 / 3.0, rtol=1e-15, atol=0.0)


@pytest.mark.parametrize(("gamma", "branches"), [(0.9, 3), (0.999, 3), (0.999999, 3), (0.9999, 1), (1.0, 2)])
def test_sparse_solvers_agree_with_dense_algebra(gamma: float, branches: int) -> None:
    """600 states on a random graph, too many for the dense solve; both Krylov and LU are taken."""
    rng = np.random.default_rng(5)
    n = 600
    src, act = np.repeat(np.arange(n), 2 * branches), np.tile(np.repeat([0, 1], branches), n)
    dst = np.concatenate([rng.choice(n, branches, replace=False) for _ in range(2 * n)])
    terminal = np.arange(n) % 50 == 0
    mdp = MDP.from_edges(
        src,
        dst,
        n,
        action=act,
        prob=rng.random(src.size) + 0.1,
        normalise=True,
        gamma=gamma,
        terminal=terminal | (np.arange(n) == 1),
        state_features=-rng.random((n, 2)),
        action_features=-rng.random((src.size, 1)) if branches == 1 else None,
    )
    theta = np.arange(1.0, mdp.n_features + 1.0)
    T, R = tensors(mdp, theta)
    r = mdp.rewards(theta)[0][:, 0]
    policy = np.full(mdp.n_pairs, 0.5)
    earned = np.where(mdp.terminal, r, 0.5 * np.einsum("sat,sat->s", T, R))
    exact = np.linalg.solve(np.eye(n) - 0.5 * gamma * T.sum(axis=1), earned)
    np.testing.assert_allclose(policy_values(mdp, policy, theta), exact, rtol=1e-10, atol=0.0)
    V = optimal_values(mdp, theta)
    Q = np.einsum("sat,sat->sa", T, R) + gamma * T @ V
    # A residual of e is an error of e / (1 - gamma) at most.
    np.testing.assert_allclose(V, np.where(mdp.terminal, r, Q.max(axis=1)), rtol=2e-13, atol=0.0)
    assert np.all(V - exact >= -1e-9)


def test_long_ring_is_solved() -> None:
    """A reward once a round of 3000 moves: V at distance m is gamma^m / (1 - gamma^3000)."""
    n, gamma = 3000, 0.9999
    mdp = MDP.from_edges(np.arange(n), np.roll(np.arange(n), -1), n, gamma=gamma, state_features=np.eye(1, n).T)
    distance = (n - np.arange(n)) % n
    exact = gamma**distance / (1.0 - gamma**n)
    np.testing.assert_allclose(optimal_values(mdp, [2.0]), 2.0 * exact, rtol=1e-11, atol=0.0)


def test_elementworld_figures_of_the_specification() -> None:
    """spec.md, section D: a learned theta of 0 loses 185 when it mixes over ties, the worst policy 970.5."""
    world = ElementWorld()
    for theta in world.ensemble.thetas:
        V = optimal_values(world.mdp, theta)
        mixed = policy_values(world.mdp, optimal_policy(world.mdp, np.zeros(5)), theta)
        worst = optimal_values(world.mdp, theta, minimise=True)
        np.testing.assert_allclose(world.mdp.p0 @ (V - mixed), 185.0, rtol=0.0, atol=0.5)
        np.testing.assert_allclose(world.mdp.p0 @ (V - worst), 970.5, rtol=0.0, atol=0.05)


def test_small_improvements_are_not_ignored() -> None:
    mdp = MDP.from_edges([0, 0], [1, 1], 2, gamma=1.0, edge_features=[-1.0 - 1e-10, -1.0])
    np.testing.assert_allclose(optimal_values(mdp, [1.0]), [-1.0, 0.0], rtol=1e-12, atol=0.0)
    np.testing.assert_array_equal(optimal_policy(mdp, [1.0], tol=0.0), [0.0, 1.0])


def loop(reward: float, gamma: float = 1.0) -> MDP:
    """Two states that lead to each other, 0 also to the terminal state 2, which pays -5."""
    return MDP.from_edges([0, 0, 1], [1, 2, 0], 3, gamma=gamma, state_features=[[reward], [reward], [-5.0]])


def test_undiscounted_zero_reward_loop_beats_costs() -> None:
    np.testing.assert_array_equal(optimal_values(loop(0.0), [1.0]), [0.0, 0.0, -5.0])
    np.testing.assert_array_equal(optimal_policy(loop(0.0), [1.0]), [1.0, 0.0, 1.0])
    np.testing.assert_array_equal(policy_values(loop(0.0), [1.0, 0.0, 1.0], [1.0]), [0.0, 0.0, -5.0])
    np.testing.assert_array_equal(optimal_values(loop(0.0), [1.0], minimise=True), [-5.0, -5.0, -5.0])


def test_undiscounted_step_costs_lead_to_the_end() -> None:
    np.testing.assert_array_equal(optimal_values(loop(-1.0), [1.0]), [-6.0, -7.0, -5.0])
    np.testing.assert_allclose(policy_values(loop(-1.0), [0.5, 0.5, 1.0], [1.0]), [-8.0, -9.0, -5.0], rtol=1e-14)
    # From a trap on the way, nothing is lost where nothing is earned.
    trap = MDP.from_edges([0, 0, 1], [1, 2, 1], 3, gamma=1.0, state_features=[-1.0, 0.0, -5.0])
    np.testing.assert_array_equal(optimal_values(trap, [1.0]), [-1.0, 0.0, -5.0])


@pytest.mark.parametrize(
    ("mdp", "theta", "minimise", "expected"),
    [
        (loop(1.0), 1.0, False, {"parameter": "theta", "index": 0}),
        (loop(-1.0), 1.0, True, {"parameter": "theta", "index": 0}),
        (loop(1.0), 1e-6, False, {"parameter": "theta", "index": 0}),
        (MDP.from_edges([0, 1], [1, 0], state_features=[-1.0, -1.0]), 1.0, False, {"parameter": "theta", "index": 0}),
        (
            MDP.from_edges([0, 0, 1], [2, 1, 1], 3, action=[0, 0, 0], prob=[0.9, 0.1, 1.0], state_features=-np.ones(3)),
            1.0,
            False,
            {"parameter": "theta", "index": 1},
        ),
    ],
)
def test_unbounded_total_rewards_are_errors(
    mdp: MDP, theta: float, minimise: bool, expected: dict[str, object]
) -> None:
    with raises(InvalidParameter, **expected):
        optimal_values(mdp, [theta], minimise=minimise)
    assert np.isfinite(optimal_values(mdp.replace(gamma=0.999), [theta], minimise=minimise)).all()


def test_policy_that_never_terminates_is_an_error() -> None:
    with raises(InvalidParameter, parameter="theta", index=0):
        policy_values(loop(-1.0), [1.0, 0.0, 1.0], [1.0])


@pytest.mark.parametrize("n_states", [2, 400])
def test_values_beyond_float64_are_an_error(n_states: int) -> None:
    src, act = np.repeat(np.arange(n_states - 1), 2), np.zeros(2 * n_states - 2, dtype=int)
    dst = np.column_stack([np.arange(n_states - 1), np.full(n_states - 1, n_states - 1)]).ravel()
    prob = np.tile([1.0, 1e-300], n_states - 1)
    mdp = MDP.from_edges(src, dst, n_states, action=act, prob=prob, state_features=-np.ones(n_states))
    with pytest.raises(NumericalError, match="float64"):
        policy_values(mdp, np.ones(n_states - 1), [1.0])


def test_invalid_arguments_are_rejected() -> None:
    mdp = loop(-1.0)
    with raises(InvalidParameter, parameter="theta", value=(2, 1)):
        optimal_values(mdp, [[1.0], [2.0]])
    with raises(InvalidParameter, parameter="thetas", value=(2,)):
        optimal_policy(mdp, [1.0, 2.0])
    with raises(InvalidParameter, parameter="values", value=(2,)):
        action_values(mdp, [1.0, 2.0], [1.0])
    for tol in (-1e-9, 1.0, float("nan")):
        with raises(InvalidParameter, parameter="tol"):
            optimal_policy(mdp, [1.0], tol=tol)
    with raises(InvalidParameter, parameter="policy", value=0.5, index=0):
        policy_values(mdp, [0.25, 0.25, 1.0], [1.0])


def test_policy_tables_and_pairs_are_inverse():
    mdp = fork(0.9, state_features=np.eye(3))
    np.testing.assert_array_equal(policy_table(mdp, [0.25, 0.75, 1.0]), [[0.25, 0.75], [1.0, 0.0], [0.0, 0.0]])
    world = ElementWorld(seed=1).mdp
    policy = optimal_policy(world, np.arange(5.0))
    np.testing.assert_array_equal(policy_pairs(world, policy_table(world, policy)), policy)


def test_policy_tables_of_another_shape_or_sum_are_refused():
    mdp = fork(0.9, state_features=np.eye(3))
    with raises(InvalidParameter, parameter="table", value=(3, 3)):
        policy_pairs(mdp, np.ones((3, 3)))
    with raises(InvalidParameter, parameter="policy", value=0.5, index=1):
        policy_pairs(mdp, [[0.5, 0.5], [0.5, 0.5], [0.0, 0.0]])
