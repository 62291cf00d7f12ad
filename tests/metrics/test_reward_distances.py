"""EPIC and DARD: their formulas written out as loops, shaping and scaling, degenerate rewards, and errors."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from numpy.typing import NDArray

from limiirl.errors import InvalidParameter
from limiirl.mdp import MDP
from limiirl.metrics import dard, epic
from limiirl.metrics.reward_distances import canonical_dard, canonical_epic, pearson_distances
from limiirl.worlds import ElementWorld, RoadGrid
from tests.helpers import raises

Float = NDArray[np.float64]
GAMMA = 0.9


def epic_by_loops(R: Float, gamma: float, states: Float, actions: Float) -> Float:
    n, m, _ = R.shape
    C = np.zeros_like(R)
    for s, a, t in product(range(n), range(m), range(n)):
        C[s, a, t] = R[s, a, t]
        for A, after in product(range(m), range(n)):
            weight = actions[A] * states[after]
            C[s, a, t] += weight * (gamma * R[t, A, after] - R[s, A, after])
            C[s, a, t] -= weight * gamma * sum(states[u] * R[u, A, after] for u in range(n))
    return C


def dard_by_loops(R: Float, T: Float, gamma: float) -> Float:
    """All actions are available everywhere, and drawn uniformly."""
    n, m, _ = R.shape
    C = np.zeros_like(R)
    for s, a, t in product(range(n), range(m), range(n)):
        C[s, a, t] = R[s, a, t]
        for A in range(m):
            for u in range(n):
                C[s, a, t] += (gamma * T[t, A, u] * R[t, A, u] - T[s, A, u] * R[s, A, u]) / m
                for v in range(n):
                    C[s, a, t] -= gamma * T[s, A, u] * T[t, A, v] * R[u, A, v] / m
    return C


def dynamics(rng: np.random.Generator, n: int, m: int) -> Float:
    """Sparse rows that sum to 1."""
    T = rng.random((n, m, n)) * (rng.random((n, m, n)) < 0.5)
    T[:, :, 0] += 0.1
    return T / T.sum(axis=2, keepdims=True)


def shape_reward(R: Float, potential: Float, factor: float = 2.5) -> Float:
    return factor * R + GAMMA * potential - potential[:, None, None]


def distance(one: Float, other: Float, weights: Float | None = None) -> float:
    weights = np.ones(one.size) if weights is None else weights
    scales = (np.abs(one).max(keepdims=True).ravel(), np.abs(other).max(keepdims=True).ravel())
    return float(pearson_distances(one.reshape(1, -1), other.reshape(1, -1), weights.ravel(), scales)[0, 0])


@pytest.mark.parametrize("seed", range(4))
def test_canonical_forms_are_their_formulas(seed: int) -> None:
    rng = np.random.default_rng(seed)
    R, T = rng.normal(size=(4, 3, 4)), dynamics(rng, 4, 3)
    uniform = epic_by_loops(R, GAMMA, np.full(4, 1 / 4), np.full(3, 1 / 3))
    np.testing.assert_allclose(canonical_epic(R, GAMMA), uniform, rtol=0.0, atol=1e-14)
    np.testing.assert_allclose(canonical_dard(R, T, GAMMA), dard_by_loops(R, T, GAMMA), rtol=0.0, atol=1e-14)


@pytest.mark.parametrize("seed", range(4))
def test_shaped_and_scaled_rewards_are_the_same(seed: int) -> None:
    rng = np.random.default_rng(seed)
    R, T, potential = rng.normal(size=(5, 3, 5)), dynamics(rng, 5, 3), 3.0 * rng.normal(size=5)
    # Some states lack some actions.
    T[1, 2] = T[3, 0] = 0.0
    other = shape_reward(R, potential)
    feasible = (T > 0.0).astype(np.float64)
    assert distance(canonical_epic(R, GAMMA), canonical_epic(other, GAMMA)) == 0.0
    assert distance(canonical_dard(R, T, GAMMA), canonical_dard(other, T, GAMMA), feasible) == 0.0
    np.testing.assert_allclose(distance(canonical_epic(R, GAMMA), canonical_epic(-other, GAMMA)), 1.0, rtol=1e-14)
    # Neither is blind, nor is shaping with another discount a shaping.
    for form in (lambda r: canonical_epic(r, GAMMA), lambda r: canonical_dard(r, T, GAMMA)):
        assert distance(form(R), form(R + rng.normal(size=R.shape)), feasible) > 0.1
        assert distance(form(R), form(R + 0.5 * potential - potential[:, None, None]), feasible) > 0.01


def full(rng: np.random.Generator, n: int = 4, m: int = 2) -> tuple[MDP, Float]:
    """An MDP in which everything is possible, with an indicator feature for each edge: any reward is a theta."""
    T = rng.dirichlet(np.ones(n), size=(n, m))
    src, act, dst = (index.ravel() for index in np.indices((n, m, n)))
    mdp = MDP.from_edges(src, dst, n, action=act, prob=T.ravel(), gamma=GAMMA, edge_features=np.eye(src.size))
    return mdp, T


def test_rewards_of_edges_where_all_exist() -> None:
    rng = np.random.default_rng(0)
    mdp, T = full(rng)
    R, other = rng.normal(size=(2, *T.shape))
    potential = rng.normal(size=4)
    for measure in (epic, dard):
        assert measure(mdp, R.ravel(), shape_reward(R, potential).ravel()) == 0.0
    expected = distance(canonical_epic(R, GAMMA), canonical_epic(other, GAMMA))
    np.testing.assert_allclose(epic(mdp, R.ravel(), other.ravel()), expected, rtol=1e-12)
    expected = distance(canonical_dard(R, T, GAMMA), canonical_dard(other, T, GAMMA))
    np.testing.assert_allclose(dard(mdp, R.ravel(), other.ravel()), expected, rtol=1e-12)


def test_epic_of_rewards_of_states_is_their_correlation() -> None:
    """R(s) becomes gamma (R(s') - mean): the Pearson distance over states."""
    world = ElementWorld()
    one, other = world.ensemble.thetas[:2]
    rho = np.corrcoef(*world.mdp.rewards(np.stack([one, other]))[0].T)[0, 1]
    np.testing.assert_allclose(epic(world.mdp, one, other), np.sqrt((1 - rho) / 2), rtol=1e-12)
    assert epic(world.mdp, one, 3.0 * one - 4.0) == 0.0


def test_coverage_weights_the_transitions() -> None:
    mdp = MDP.from_edges([0, 0, 0, 1], [1, 2, 3, 3], 4, gamma=GAMMA, state_features=np.eye(4))
    one, other = np.array([0.0, 1.0, 3.0, 2.0]), np.array([0.0, 1.0, 3.0, -7.0])
    seen = np.zeros((4, 3, 4))
    seen[:, :, 1:3] = 1.0
    assert epic(mdp, one, other) > 0.1
    assert epic(mdp, one, other, coverage=seen) == 0.0
    assert dard(mdp, one, other) > 0.1
    assert dard(mdp, one, other, coverage=[1.0, 1.0, 0.0, 0.0]) == 0.0
    # A canonical reward of four edges, of which the last, the only one of its state, has no effect.
    C, D = (GAMMA * (r[[1, 2, 3, 3]] - np.array([*[r[1:].mean()] * 3, r[3]])) for r in (one, other))
    rho = np.corrcoef(C, D)[0, 1]
    np.testing.assert_allclose(dard(mdp, one, other), np.sqrt((1 - rho) / 2), rtol=1e-12)


def test_dard_shapes_through_a_terminal_state() -> None:
    """Its reward is the last that is earned: shaping takes its potential away, and the reward stays equivalent."""
    rng = np.random.default_rng(1)
    T = rng.dirichlet(np.ones(4), size=(4, 2))
    # State 3 is terminal, and leads to state 4, in which nothing is earned.
    padded = np.zeros((5, 2, 5))
    padded[:4, :, :4] = T
    padded[3:, :, :] = np.eye(5)[4]
    R = np.zeros((5, 2, 5)) + np.append(rng.normal(size=4), 0.0)[:, None, None]
    potential = np.append(rng.normal(size=4), 0.0)
    edges = np.zeros((5, 2, 5))
    edges[:3, :, :4] = 1.0
    forms = [canonical_dard(r, padded, GAMMA) for r in (R, shape_reward(R, potential), R + rng.normal(size=R.shape))]
    assert distance(forms[0], forms[1], edges) == 0.0
    src, act, dst = np.nonzero(edges)
    mdp = MDP.from_edges(src, dst, 4, action=act, prob=T[src, act, dst], gamma=GAMMA, state_features=np.eye(4))
    thetas = rng.normal(size=(2, 4))
    tensors = [np.zeros((5, 2, 5)) + np.append(theta, 0.0)[:, None, None] for theta in thetas]
    expected = distance(*(canonical_dard(r, padded, GAMMA) for r in tensors), weights=edges)
    np.testing.assert_allclose(dard(mdp, *thetas), expected, rtol=1e-12)


def test_rewards_of_actions() -> None:
    """DARD draws among the available actions of a state; EPIC needs all actions."""
    src, act, dst = [0, 0, 1, 1], [0, 1, 0, 1], [1, 0, 0, 1]
    mdp = MDP.from_edges(src, dst, 2, action=act, gamma=GAMMA, action_features=np.eye(4))
    one, other = np.array([1.0, -1.0, 2.0, 0.5]), np.array([1.0, 0.0, -2.0, 0.5])
    T = np.zeros((2, 2, 2))
    T[src, act, dst] = 1.0
    tensors = [np.zeros((2, 2, 2)) + theta.reshape(2, 2, 1) for theta in (one, other)]
    expected = distance(*(canonical_epic(R, GAMMA) for R in tensors))
    np.testing.assert_allclose(epic(mdp, one, other), expected, rtol=1e-12)
    expected = distance(*(canonical_dard(R, T, GAMMA) for R in tensors), weights=T)
    np.testing.assert_allclose(dard(mdp, one, other), expected, rtol=1e-12)
    fewer = MDP.from_edges(src[:3], dst[:3], 2, action=act[:3], gamma=GAMMA, action_features=np.eye(3))
    with raises(InvalidParameter, parameter="mdp"):
        epic(fewer, one[:3], other[:3])
    # State 1 has one action, which stands for both.
    tensors = [np.zeros((2, 2, 2)) + np.append(theta[:3], theta[2]).reshape(2, 2, 1) for theta in (one, other)]
    T[1] = [1.0, 0.0]
    seen = np.zeros((2, 2, 2))
    seen[src[:3], act[:3], dst[:3]] = 1.0
    expected = distance(*(canonical_dard(R, T, GAMMA) for R in tensors), weights=seen)
    np.testing.assert_allclose(dard(fewer, one[:3], other[:3]), expected, rtol=1e-12)


def test_pearson_distances() -> None:
    x = np.array([[1.0, -1.0, 1.0, -1.0], [1.0, 1.0, -1.0, -1.0], [5.0, 5.0, 5.0, 5.0]])
    scales = (np.full(3, 5.0), np.full(3, 5.0))
    half = np.sqrt(0.5)
    result = pearson_distances(x, -x, np.ones(4), scales)
    np.testing.assert_allclose(result, [[1.0, half, half], [half, 1.0, half], [half, half, 0.0]], rtol=1e-14)
    weighted = pearson_distances(x[:1], x[1:2], np.array([3.0, 1.0, 1.0, 3.0]), (scales[0][:1], scales[1][:1]))
    np.testing.assert_allclose(weighted, np.sqrt((1 - 0.5) / 2), rtol=1e-14)


@pytest.mark.parametrize("measure", [epic, dard])
def test_degenerate_rewards(measure) -> None:  # type: ignore[no-untyped-def]
    world = ElementWorld()
    theta, constant = world.ensemble.thetas[0], np.full(5, -0.1)
    assert measure(world.mdp, constant, np.zeros(5)) == 0.0
    np.testing.assert_allclose(measure(world.mdp, theta, constant), np.sqrt(0.5), rtol=1e-14)
    np.testing.assert_allclose(measure(world.mdp, np.zeros(5), theta), np.sqrt(0.5), rtol=1e-14)
    assert measure(world.mdp, theta, 1e-9 * theta) == 0.0
    ends = MDP.from_edges([], [], 2, state_features=np.eye(2))
    assert dard(ends, [1.0, 2.0], [2.0, 1.0]) == 0.0


def test_errors() -> None:
    world = ElementWorld()
    theta = world.ensemble.thetas[0]
    with raises(InvalidParameter, parameter="theta_learned", value=(2,)):
        epic(world.mdp, theta, theta[:2])
    with raises(InvalidParameter, parameter="theta_true", value=3):
        dard(world.mdp, world.ensemble.thetas, theta)
    with raises(InvalidParameter, parameter="coverage"):
        epic(world.mdp, theta, theta, coverage=[1.0, 2.0, 3.0])
    with raises(InvalidParameter, parameter="coverage"):
        dard(world.mdp, theta, theta, coverage=np.zeros(world.mdp.n_edges))
    town = RoadGrid(3000, 6000).mdp
    with raises(InvalidParameter, parameter="mdp", value=36_000_000):
        epic(town, np.zeros(24), np.zeros(24))
    with raises(InvalidParameter, parameter="mdp", value=36_024_004):
        dard(town, np.zeros(24), np.zeros(24))
    edges = MDP.from_edges([0, 0, 1], [1, 2, 2], gamma=0.5, edge_features=np.eye(3))
    with raises(InvalidParameter, parameter="mdp"):
        epic(edges, np.zeros(3), np.zeros(3))
    with raises(InvalidParameter, parameter="mdp"):
        dard(edges, np.zeros(3), np.zeros(3))
    cube = np.zeros((2, 1, 2))
    with raises(InvalidParameter, parameter="reward"):
        canonical_epic(np.zeros((2, 3)), 0.5)
    with raises(InvalidParameter, parameter="T"):
        canonical_dard(cube, np.zeros((3, 1, 3)), 0.5)
    with raises(InvalidParameter, parameter="T", index=1):
        canonical_dard(cube, np.array([[[0.0, 1.0]], [[0.0, 0.0]]]), 0.5)
