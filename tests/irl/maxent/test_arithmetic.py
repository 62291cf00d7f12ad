"""The overflow bound of linear arithmetic, and the choice between linear and log arithmetic."""

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from limiirl.errors import NumericalError
from limiirl.irl.maxent.backends import LOSS, log_loss_bound
from limiirl.irl.maxent.path_sums import FinitePathSums
from limiirl.kernels.forward_backward.hessian import log_growth
from limiirl.kernels.graph import Rewards, build_graph
from limiirl.mdp import MDP
from tests.oracles.precise import solve

Float = NDArray[np.float64]


def growth_by_step(
    src: object, dst: object, rewards: tuple[Float, Float], prob: Float, gamma: float, length: int
) -> list[list[float]]:
    """Return the log of the summed weight of the edges out of state s at step t, as rows[t][s]."""
    node, edge = rewards
    rows = []
    for t in range(length - 1):
        total = [0.0] * node.size
        for e, (s, target) in enumerate(zip(src, dst, strict=True)):
            total[s] += prob[e] * math.exp(gamma**t * edge[e] + gamma ** (t + 1) * node[target])
        rows.append([math.log(v) if v > 0 else -math.inf for v in total])
    return rows


def growth_bound(src: Float, dst: Float, rewards: tuple[Float, Float], prob: Float, gamma: float, length: int) -> float:
    node, edge = rewards
    graph = build_graph(node.size, src, dst)
    np.testing.assert_array_equal(graph.order, np.arange(node.size))
    order = graph.edge_order
    ordered = Rewards(node, prob[order], edge[order], gamma ** np.arange(length, dtype=np.float64), gamma == 1.0)
    return float(log_growth(graph.out, ordered, (0,))[0])


@pytest.mark.parametrize("length", [2, 3, 10, 60])
@pytest.mark.parametrize("gamma", [1.0, 0.95, 0.5])
@pytest.mark.parametrize(("low", "high"), [(-3.0, 3.0), (-9.0, 0.0), (0.0, 2.0), (-60.0, -50.0)])
def test_growth_bounds_every_step(low: float, high: float, gamma: float, length: int) -> None:
    rng = np.random.default_rng(abs(hash((low, gamma, length))) % 1000)
    for _ in range(5):
        src, dst = np.repeat(np.arange(5), 3), np.tile([1, 3, 5], 5)
        prob, rewards = rng.uniform(0.1, 1.0, 15), (rng.uniform(low, high, 6), rng.uniform(low, high, 15))
        largest = max(max(row) for row in growth_by_step(src, dst, rewards, prob, gamma, length))
        bound = growth_bound(src, dst, rewards, prob, gamma, length)
        assert bound >= largest - 1e-12
        if (
            low * high >= 0.0
        ):  # with rewards of one sign, all edges attain their maximum at the same step, and the bound is tight
            assert bound == pytest.approx(largest, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("gamma", [1.0, 0.9])
def test_growth_bound_uses_the_largest_weight_of_each_edge(gamma: float) -> None:
    # One edge has its largest weight at the first step, the other at the last, so the bound is not attained.
    src, dst, prob, length = np.array([0, 0]), np.array([1, 2]), np.ones(2), 30
    rewards = (np.array([0.0, 2.0, -3.0]), np.array([0.5, -1.0]))
    heaviest = [max(gamma**t * (r + gamma * v) for t in range(length - 1)) for r, v in ((0.5, 2.0), (-1.0, -3.0))]
    expected = math.log(sum(math.exp(c) for c in heaviest))
    assert growth_bound(src, dst, rewards, prob, gamma, length) == pytest.approx(expected, rel=1e-13)


def test_growth_is_computed_per_column() -> None:
    graph = build_graph(2, np.array([0, 0]), np.array([0, 1]))
    node = np.array([[0.0, 1.0, -5.0], [0.0, 3.0, -7.0]])
    growth = log_growth(graph.out, Rewards(node.ravel(), None, None, np.ones(4), True), (0, 0, 0))
    np.testing.assert_allclose(growth, np.log(np.exp(node).sum(axis=0)), rtol=1e-14)


def test_growth_without_edges_is_zero() -> None:
    graph = build_graph(3, np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64))
    assert log_growth(graph.out, Rewards(np.ones(3), None, None, np.ones(5), True), (0,))[0] == -np.inf


def test_loss_bound_equals_the_specification() -> None:
    growth = np.array([-5.0, 0.0, 1.5])
    expected = math.log(54) + 2 * math.log(50) + 50 * np.array([0.0, 0.0, 1.5]) - 708.0
    np.testing.assert_allclose(log_loss_bound(54, 50, growth), expected, rtol=1e-15)
    assert LOSS == 1e-12


def slow_growth() -> tuple[MDP, Float]:
    """Return an MDP and theta for which weights shrink at first and grow at later steps.

    State 0 ends at once; state 1 costs 900 and leads to 2 and 3, with four edges each. An edge costs 10 at first, but
    the discount reduces the cost, and finally the 4^1000 trajectories outweigh e^-900.
    """
    src = [1, *[2] * 4, *[3] * 4]
    dst = [2, 2, 2, 3, 3, 2, 2, 3, 3]
    return MDP.from_edges(src, dst, 4, p0=[0.5, 0.5, 0, 0], gamma=0.9, terminal=[0]), np.array(
        [0.0, -900.0, -10.0, -10.0]
    )


def test_auto_uses_log_where_weights_grow_late() -> None:
    mdp, theta = slow_growth()
    truth = solve(mdp, theta, 1000)
    assert truth.log_Z == pytest.approx(393.1, abs=0.05)
    path_sums = FinitePathSums(mdp, 1000)
    assert path_sums.single(theta).log
    counts = path_sums.expected_counts(theta[None])
    np.testing.assert_allclose(counts.log_Z, truth.log_Z, rtol=1e-9)
    np.testing.assert_allclose(counts.node[:, 0], truth.node, rtol=1e-9, atol=1e-12)


def test_bound_on_the_first_weights_alone_is_not_enough() -> None:
    mdp, theta = slow_growth()
    steps = growth_by_step(mdp.src, mdp.dst, (theta, np.zeros(mdp.n_edges)), mdp.prob, mdp.gamma, 1000)
    first, largest = max(steps[0]), max(max(row) for row in steps)
    assert first < 0.0  # weights shrink at first ...
    assert log_loss_bound(4, 1000, np.array([first]))[0] < math.log(LOSS)
    assert largest == pytest.approx(math.log(4), abs=1e-9)  # ... and grow later
    assert log_loss_bound(4, 1000, np.array([largest]))[0] > 0.0
    # Linear arithmetic cannot represent 1 and 4^1000 together. It must raise, not drop a start and return log 0.5.
    with pytest.raises(NumericalError, match=r"state 0\b"):
        FinitePathSums(mdp, 1000, arithmetic="linear").expected_counts(theta[None])


def ring(gamma: float = 1.0) -> MDP:
    """Return a ring of three states with two outgoing edges each."""
    return MDP.from_edges([0, 0, 1, 1, 2, 2], [1, 2, 2, 0, 0, 1], gamma=gamma)


def test_auto_uses_log_where_the_bound_exceeds_the_loss() -> None:
    # Solves log 3 + 2 log L + L (log 2 + r) - 708 = log 1e-12 for r, which is negative at L = 1200.
    length = 1200
    crossing = (708.0 + math.log(1e-12) - math.log(3) - 2 * math.log(length)) / length - math.log(2)
    assert crossing < -0.1
    below, above = np.full(3, crossing - 1e-6), np.full(3, crossing + 1e-6)
    path_sums = FinitePathSums(ring(), length)
    assert not path_sums.single(below).log
    assert path_sums.single(above).log
    assert not FinitePathSums(ring(), length - 1).single(above).log  # the bound depends on the length
    for one, other in zip(path_sums.expected_counts(below[None]), path_sums.expected_counts(above[None]), strict=True):
        if one is not None:
            np.testing.assert_allclose(one, other, rtol=1e-4)


@pytest.mark.parametrize("stop", ["terminal", "terminal_or_max_length"])
def test_auto_is_log_for_other_stopping_rules(stop: str) -> None:
    mdp = MDP.from_edges([0, 0], [0, 1], n_states=2)
    assert FinitePathSums(mdp, 5, stop=stop).single(np.zeros(2)).log
    assert not FinitePathSums(mdp, 5).single(np.zeros(2)).log


@pytest.mark.parametrize(("arithmetic", "log"), [("linear", False), ("log", True)])
def test_arithmetic_can_be_forced(arithmetic: str, log: bool) -> None:
    for scale in (0.0, 3.0):
        assert FinitePathSums(ring(), 50, arithmetic=arithmetic).single(np.full(3, scale)).log is log


@pytest.mark.parametrize("gamma", [1.0, 0.9])
def test_linear_and_log_columns_in_one_call_keep_their_order(gamma: float) -> None:
    # The first eight columns, which form one pass, are linear; every second one of the other six is log.
    rng = np.random.default_rng(0)
    log = (np.arange(14) >= 8) & (np.arange(14) % 2 == 0)
    thetas = rng.uniform(-1, 1, (14, 3)) * np.where(log, 400.0, 1.0)[:, None]
    path_sums = FinitePathSums(ring(gamma), 60)
    assert [path_sums.single(theta).log for theta in thetas] == log.tolist()
    # Counts of edges are compared in test_columns_properties.
    counts = path_sums.expected_counts(thetas)
    starts = path_sums.log_partition_by_start(thetas)
    for k, theta in enumerate(thetas):
        alone = path_sums.expected_counts(theta[None])
        np.testing.assert_array_equal(counts.log_Z[k], alone.log_Z[0])
        np.testing.assert_array_equal(counts.node[:, k], alone.node[:, 0])
        np.testing.assert_array_equal(starts[:, k], path_sums.log_partition_by_start(theta[None])[:, 0])


def check_against_oracle(mdp: MDP, theta: Float, length: int) -> None:
    truth, counts = solve(mdp, theta, length), FinitePathSums(mdp, length).expected_counts(theta[None], edges=True)
    np.testing.assert_allclose(counts.log_Z[0], truth.log_Z, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(counts.node[:, 0], truth.node, rtol=1e-9, atol=1e-12)
    assert counts.edge is not None
    np.testing.assert_allclose(counts.edge[:, 0], truth.edge, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("size", [1.0, 600.0, 709.0, 715.0, 800.0, 1e4])
@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("gamma", [1.0, 0.999])
def test_edge_and_state_rewards_that_cancel(size: float, sign: float, gamma: float) -> None:
    # The product of the two weights is about 1, but each of them is beyond the range of float64.
    src, dst = [0, 0, 1, 1], [1, 2, 1, 2]
    mdp = MDP.from_edges(
        src, dst, 3, p0=[1, 0, 0], gamma=gamma, state_features=[[0.0], [1.0], [1.0]], edge_features=np.ones(4)
    )
    check_against_oracle(mdp, np.array([sign * size, -sign * size]), 4)


@pytest.mark.parametrize("reward", [-2000.0, -700.0, 700.0, 2000.0])
@pytest.mark.parametrize("gamma", [1.0, 0.95])
def test_reward_of_a_start_without_incoming_edges(reward: float, gamma: float) -> None:
    # This state is never a successor, so the growth bound does not depend on it.
    mdp = MDP.from_edges([0, 1, 1, 2], [1, 1, 2, 1], p0=[1, 0, 0], gamma=gamma)
    check_against_oracle(mdp, np.array([reward, -0.5, 0.1]), 30)


@pytest.mark.parametrize("reward", [-2000.0, -800.0, 800.0, 2000.0])
@pytest.mark.parametrize("gamma", [1.0, 0.95])
def test_start_rewards_beyond_the_range(reward: float, gamma: float) -> None:
    mdp = MDP.from_edges([0, 1, 2, 2, 3], [2, 3, 2, 3, 2], p0=[0.3, 0.7, 0, 0], gamma=gamma)
    check_against_oracle(mdp, np.array([reward, reward - 1.0, -1.0, -1.5]), 40)


@pytest.mark.parametrize("p", [1e-100, 1e-300, 1e-320])
@pytest.mark.parametrize("bonus", [-10.0, 0.0, 300.0])
@pytest.mark.parametrize("cost", [0.0, -60.0, -100.0])
def test_start_of_tiny_probability_and_large_reward(p: float, bonus: float, cost: float) -> None:
    # The reward of state 0 offsets its small probability; its successor has a cost, then weights double per step.
    mdp = MDP.from_edges([0, 2, 3, 3], [2, 3, 3, 3], p0=[p, 1.0, 0, 0], terminal=[1])
    check_against_oracle(mdp, np.array([bonus - math.log(p), 0.0, cost, 0.0]), 200)


def test_rare_start_by_start() -> None:
    mdp = MDP.from_edges([0, 2, 3, 3], [2, 3, 3, 3], p0=[1e-300, 1.0, 0, 0], terminal=[1])
    theta = np.array([690.0, 0.0, -60.0, 0.0])
    truth, counts = (
        solve(mdp, theta, 200, by_start=True),
        FinitePathSums(mdp, 200, by_start=True).expected_counts(theta[None]),
    )
    np.testing.assert_allclose(counts.log_Z[0], truth.log_Z, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(counts.node[:, 0], truth.node, rtol=1e-9, atol=0)
