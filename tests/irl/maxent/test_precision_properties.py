"""The engine against 60 digits: reward scales from 1e-3 to 1e3, up to 1,000 states, discounts 1, 0.99 and 0.9."""

import itertools
import math

import numpy as np
import pytest
from numpy.typing import NDArray

from limiirl.irl.maxent.backends import expected_features
from limiirl.irl.maxent.infinite_horizon import InfinitePathSums
from limiirl.irl.maxent.path_sums import FinitePathSums
from limiirl.mdp import MDP
from tests.oracles.precise import Precise, solve

Float = NDArray[np.float64]
# A ring of four states, each with a way out to the terminal state 4.
WAY_OUT = (np.repeat(np.arange(4), 2), np.array([1, 4, 2, 4, 3, 4, 0, 4]))
SIGNS = {"positive": (0.0, 1.0), "negative": (-1.0, 0.0), "mixed": (-1.0, 1.0)}
KINDS = ("s", "e", "sa", "sae")


def random_mdp(rng: np.random.Generator, gamma: float, kinds: str) -> MDP:
    """3 to 8 states, the last one terminal; one to three actions each, with one or two outcomes; features in [0, 1]."""
    n_states = int(rng.integers(3, 9))
    edges = []
    for s in range(n_states - 1):
        for a in range(rng.integers(1, 4)):
            n = int(rng.integers(1, 3))
            targets, chances = rng.choice(n_states, n, replace=False), rng.dirichlet(np.ones(n))
            edges += [(s, int(target), a, p) for target, p in zip(targets, chances, strict=True)]
    src, dst, action, prob = (np.array(column) for column in zip(*edges, strict=True))
    features = {}
    if "s" in kinds:
        features["state_features"] = rng.random((n_states, 2))
    if "a" in kinds:
        features["action_features"] = rng.random((n_states, 3, 2))
    if "e" in kinds:
        features["edge_features"] = rng.random((src.size, 2))
    p0 = rng.dirichlet(np.ones(n_states))
    return MDP.from_edges(
        src, dst, n_states, action, prob, p0=p0, gamma=gamma, terminal=[n_states - 1], normalise=True, **features
    )


def check(engine: FinitePathSums, theta: Float, truth: Precise, rtol: float) -> None:
    """log Z and counts to `rtol`; a count that is next to nothing only needs to be so compared with the largest."""
    found = engine.expected_counts(theta[None], edges=True)
    assert found.edge is not None
    scale = rtol * float(truth.node.max())
    np.testing.assert_allclose(found.log_Z[0], truth.log_Z, rtol=rtol, atol=1e-13)
    np.testing.assert_allclose(found.node[:, 0], truth.node, rtol=rtol, atol=1e-3 * scale)
    np.testing.assert_allclose(found.edge[:, 0], truth.edge, rtol=rtol, atol=1e-3 * scale)
    expected = expected_features(engine.mdp, truth.node[:, None], truth.edge[:, None])
    np.testing.assert_allclose(expected_features(engine.mdp, found.node, found.edge), expected, rtol=rtol, atol=scale)


@pytest.mark.parametrize("length", [1, 2, 10, 100, 1000])
@pytest.mark.parametrize("gamma", [1.0, 0.99, 0.9])
@pytest.mark.parametrize("sign", SIGNS)
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_every_scale_and_length(scale: float, sign: str, gamma: float, length: int) -> None:
    case = list(itertools.product([1e-3, 1.0, 1e3], SIGNS, [1.0, 0.99, 0.9], [1, 2, 10, 100, 1000]))
    number = case.index((scale, sign, gamma, length))
    rng = np.random.default_rng(number)
    mdp = random_mdp(rng, gamma, KINDS[number % len(KINDS)])
    theta = scale * rng.uniform(*SIGNS[sign], mdp.n_features)
    truth = solve(mdp, theta, length)
    engine = FinitePathSums(mdp, length)
    check(engine, theta, truth, 1e-9)
    np.testing.assert_allclose(
        engine.log_partition_by_start(theta[None])[:, 0], truth.log_Z_by_start, rtol=1e-9, atol=1e-13
    )
    if not engine.single(theta).log:
        spaces = [FinitePathSums(mdp, length, arithmetic=space) for space in ("linear", "log")]
        for forced in spaces:
            check(forced, theta, truth, 1e-11)
        linear, log = (forced.expected_counts(theta[None]).node for forced in spaces)
        np.testing.assert_allclose(linear, log, rtol=1e-11, atol=1e-14 * float(truth.node.max()))


@pytest.mark.parametrize("by_start", [False, True])
@pytest.mark.parametrize("stop", ["anywhere", "terminal", "terminal_or_max_length"])
@pytest.mark.parametrize("length", [9, 250])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_every_stop_and_condition(scale: float, length: int, stop: str, by_start: bool) -> None:
    rng = np.random.default_rng(length)
    mdp = MDP.from_edges(
        *WAY_OUT,
        5,
        gamma=0.99,
        p0=rng.dirichlet(np.ones(5)),
        state_features=rng.random((5, 2)),
        edge_features=rng.random(8),
    )
    theta = scale * rng.uniform(-1.0, 1.0, 3)
    truth = solve(mdp, theta, length, stop=stop, by_start=by_start)
    engine = FinitePathSums(mdp, length, stop=stop, by_start=by_start)
    check(engine, theta, truth, 1e-9)
    found = engine.log_partition_by_start(theta[None])[:, 0]
    np.testing.assert_allclose(found, truth.log_Z_by_start, rtol=1e-9, atol=1e-13)


@pytest.mark.parametrize("by_start", [False, True])
@pytest.mark.parametrize("gamma", [1.0, 0.9999])
@pytest.mark.parametrize("reward", [736.6327592946544, 1000.2132715515344, -1000.2132715515344])
def test_rounding_does_not_add_up_over_a_thousand_large_rewards(reward: float, gamma: float, by_start: bool) -> None:
    # log Z is about a million here, and the last place of a million is 1e-10: a sum of a thousand such roundings must
    # not decide probabilities.
    mdp = MDP.from_edges([0, 0, 1, 1, 2, 2, 0], [1, 2, 2, 0, 0, 1, 0], p0=[1, 0, 0], gamma=gamma)
    theta = reward + np.array([0.0, 0.3, -0.2])
    check(FinitePathSums(mdp, 1000, by_start=by_start), theta, solve(mdp, theta, 1000, by_start=by_start), 1e-9)


def test_visits_of_a_step_are_a_distribution_for_large_rewards() -> None:
    mdp = MDP.from_edges([0, 0, 1, 1, 2, 2, 0], [1, 2, 2, 0, 0, 1, 0], p0=[1, 0, 0])
    visits = FinitePathSums(mdp, 1000).time_marginals(1000.2132715515344 + np.array([0.0, 0.3, -0.2]))
    # Stopping early forgoes a thousand: nobody does.
    np.testing.assert_allclose(visits.sum(axis=1), 1.0, rtol=1e-9)


def test_positive_rewards_of_a_thousand_for_a_thousand_steps() -> None:
    mdp = MDP.from_edges([0, 0, 1], [0, 1, 0], p0=[1, 0])
    found = FinitePathSums(mdp, 1000).expected_counts(np.full((1, 2), 1e3))
    assert found.log_Z[0] == pytest.approx(solve(mdp, np.full(2, 1e3), 1000).log_Z, rel=1e-12)
    assert np.all(np.isfinite(found.node))
    assert found.node.sum() == pytest.approx(1000.0, rel=1e-9)


# A sum that the discount makes infinite: these seven states have the three figures that the specification gives.
FADING = ((0, (1, 3, 5)), (1, (1, 4, 6)), (2, (1,)), (3, (2, 3)), (4, (1, 3, 4, 5)), (5, (2, 3)), (6, (2, 3, 6)))


@pytest.mark.parametrize(
    ("gamma", "length", "expected", "digits"),
    [(0.99, 50, -1.57, 2), (0.99, 300, 83.0, 0), (1.0, 50, -1.584, 3), (1.0, 300, -1.584, 3), (1.0, 1000, -1.584, 3)],
)
def test_fading_costs_let_long_trajectories_take_over(gamma: float, length: int, expected: float, digits: int) -> None:
    edges = [(s, target) for s, targets in FADING for target in targets]
    src, dst = zip(*edges, strict=True)
    mdp = MDP.from_edges(src, dst, 7, gamma=gamma, p0=np.full(7, 1 / 7), state_features=np.ones((7, 1)))
    theta = np.array([-2.0])
    found = FinitePathSums(mdp, length).log_partition(theta[None])[0]
    assert round(found, digits) == expected
    assert found == pytest.approx(solve(mdp, theta, length).log_Z, rel=1e-11)


@pytest.mark.parametrize("by_start", [False, True])
@pytest.mark.parametrize("stop", ["anywhere", "terminal"])
def test_any_length_is_the_limit_of_long_ones(stop: str, by_start: bool) -> None:
    rng = np.random.default_rng(7)
    mdp = MDP.from_edges(*WAY_OUT, 5, state_features=rng.random((5, 2)), edge_features=rng.random((8, 1)))
    theta = -0.2 - 0.3 * rng.random(3)
    truth = solve(mdp, theta, 400, stop=stop, by_start=by_start)
    found = InfinitePathSums(mdp, stop=stop, by_start=by_start).expected_counts(theta[None])
    np.testing.assert_allclose(found.log_Z[0], truth.log_Z, rtol=1e-11)
    np.testing.assert_allclose(found.node[:, 0], truth.node, rtol=1e-11, atol=1e-13)
    assert found.edge is not None
    np.testing.assert_allclose(found.edge[:, 0], truth.edge, rtol=1e-11, atol=1e-13)


def test_the_oracle_counts_trajectories() -> None:
    # 2^0 + ... + 2^(L - 1) trajectories through one state with two loops, e^(r k) each; and r = 0 gives their number.
    mdp = MDP.from_edges([0, 0], [0, 0], n_states=1)
    assert solve(mdp, np.zeros(1), 12).log_Z == pytest.approx(math.log(2**12 - 1), rel=1e-15)
    total = sum(2 ** (k - 1) * math.exp(0.3 * k) for k in range(1, 13))
    truth = solve(mdp, np.array([0.3]), 12)
    assert truth.log_Z == pytest.approx(math.log(total), rel=1e-14)
    lengths = [k * 2 ** (k - 1) * math.exp(0.3 * k) / total for k in range(1, 13)]
    assert truth.node[0] == pytest.approx(sum(lengths), rel=1e-14)
    assert truth.edge.sum() == pytest.approx(sum(lengths) - 1.0, rel=1e-14)


def test_the_oracles_counts_are_the_slope_of_its_log_partition() -> None:
    rng = np.random.default_rng(3)
    for stop, by_start in itertools.product(["anywhere", "terminal_or_max_length"], [False, True]):
        mdp = random_mdp(rng, 0.9, "sae")
        theta, h = rng.normal(size=mdp.n_features), 2.0**-20
        truth = solve(mdp, theta, 7, stop=stop, by_start=by_start)
        slope = expected_features(mdp, truth.node[:, None], truth.edge[:, None])[0]
        for j, step in enumerate(h * np.eye(mdp.n_features)):
            up, down = (solve(mdp, theta + way * step, 7, stop=stop, by_start=by_start).log_Z for way in (1, -1))
            assert (up - down) / (2 * h) == pytest.approx(slope[j], rel=1e-7, abs=1e-8)
