"""Path sums against 60-digit arithmetic: reward scales 1e-3 to 1e3, lengths up to 1,000, discounts 0.9 to 1."""

import itertools
import math

import numpy as np
import pytest
from numpy.typing import NDArray

from limiirl.irl.maxent.infinite_horizon import InfinitePathSums
from limiirl.irl.maxent.path_sums import FinitePathSums
from limiirl.mdp import MDP, expected_features
from tests.oracles.precise import Precise, solve

Float = NDArray[np.float64]
# A ring of four states, each with an edge to the terminal state 4.
RING_WITH_EXITS = (np.repeat(np.arange(4), 2), np.array([1, 4, 2, 4, 3, 4, 0, 4]))
SIGNS = {"positive": (0.0, 1.0), "negative": (-1.0, 0.0), "mixed": (-1.0, 1.0)}
KINDS = ("s", "e", "sa", "sae")


def random_mdp(rng: np.random.Generator, gamma: float, kinds: str) -> MDP:
    """Return an MDP with 3 to 8 states, the last one terminal, and features in [0, 1].

    Each other state has one to three actions with one or two outcomes.
    """
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


def check(path_sums: FinitePathSums, theta: Float, truth: Precise, rtol: float) -> None:
    """Compare log Z and the counts with relative tolerance `rtol`; tiny counts relative to the largest count."""
    counts = path_sums.expected_counts(theta[None], edges=True)
    assert counts.edge is not None
    scale = rtol * float(truth.node.max())
    np.testing.assert_allclose(counts.log_Z[0], truth.log_Z, rtol=rtol, atol=1e-13)
    np.testing.assert_allclose(counts.node[:, 0], truth.node, rtol=rtol, atol=1e-3 * scale)
    np.testing.assert_allclose(counts.edge[:, 0], truth.edge, rtol=rtol, atol=1e-3 * scale)
    expected = expected_features(path_sums.mdp, truth.node[:, None], truth.edge[:, None])
    np.testing.assert_allclose(
        expected_features(path_sums.mdp, counts.node, counts.edge), expected, rtol=rtol, atol=scale
    )


@pytest.mark.parametrize("length", [1, 2, 10, 100, 1000])
@pytest.mark.parametrize("gamma", [1.0, 0.99, 0.9])
@pytest.mark.parametrize("sign", SIGNS)
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_every_scale_and_length(scale: float, sign: str, gamma: float, length: int) -> None:
    case = list(itertools.product([1e-3, 1.0, 1e3], SIGNS, [1.0, 0.99, 0.9], [1, 2, 10, 100, 1000]))
    seed = case.index((scale, sign, gamma, length))
    rng = np.random.default_rng(seed)
    mdp = random_mdp(rng, gamma, KINDS[seed % len(KINDS)])
    theta = scale * rng.uniform(*SIGNS[sign], mdp.n_features)
    truth = solve(mdp, theta, length)
    path_sums = FinitePathSums(mdp, length)
    check(path_sums, theta, truth, 1e-9)
    np.testing.assert_allclose(
        path_sums.log_partition_by_start(theta[None])[:, 0], truth.log_Z_by_start, rtol=1e-9, atol=1e-13
    )
    if not path_sums.single(theta).log:
        forced = [FinitePathSums(mdp, length, arithmetic=arithmetic) for arithmetic in ("linear", "log")]
        for sums in forced:
            check(sums, theta, truth, 1e-11)
        linear, log = (sums.expected_counts(theta[None]).node for sums in forced)
        np.testing.assert_allclose(linear, log, rtol=1e-11, atol=1e-14 * float(truth.node.max()))


@pytest.mark.parametrize("by_start", [False, True])
@pytest.mark.parametrize("stop", ["anywhere", "terminal", "terminal_or_max_length"])
@pytest.mark.parametrize("length", [9, 250])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_every_stop_and_condition(scale: float, length: int, stop: str, by_start: bool) -> None:
    rng = np.random.default_rng(length)
    mdp = MDP.from_edges(
        *RING_WITH_EXITS,
        5,
        gamma=0.99,
        p0=rng.dirichlet(np.ones(5)),
        state_features=rng.random((5, 2)),
        edge_features=rng.random(8),
    )
    theta = scale * rng.uniform(-1.0, 1.0, 3)
    truth = solve(mdp, theta, length, stop=stop, by_start=by_start)
    path_sums = FinitePathSums(mdp, length, stop=stop, by_start=by_start)
    check(path_sums, theta, truth, 1e-9)
    log_Z = path_sums.log_partition_by_start(theta[None])[:, 0]
    np.testing.assert_allclose(log_Z, truth.log_Z_by_start, rtol=1e-9, atol=1e-13)


@pytest.mark.parametrize("by_start", [False, True])
@pytest.mark.parametrize("gamma", [1.0, 0.9999])
@pytest.mark.parametrize("reward", [736.6327592946544, 1000.2132715515344, -1000.2132715515344])
def test_rounding_errors_do_not_accumulate_over_a_thousand_steps(reward: float, gamma: float, by_start: bool) -> None:
    # log Z is about 1e6, with a rounding error of 1e-10; a thousand of these must not affect the probabilities.
    mdp = MDP.from_edges([0, 0, 1, 1, 2, 2, 0], [1, 2, 2, 0, 0, 1, 0], p0=[1, 0, 0], gamma=gamma)
    theta = reward + np.array([0.0, 0.3, -0.2])
    check(FinitePathSums(mdp, 1000, by_start=by_start), theta, solve(mdp, theta, 1000, by_start=by_start), 1e-9)


def test_time_marginals_sum_to_one_for_large_rewards() -> None:
    mdp = MDP.from_edges([0, 0, 1, 1, 2, 2, 0], [1, 2, 2, 0, 0, 1, 0], p0=[1, 0, 0])
    marginals = FinitePathSums(mdp, 1000).time_marginals(1000.2132715515344 + np.array([0.0, 0.3, -0.2]))
    # Stopping early would forgo a reward of 1,000 and has probability 0.
    np.testing.assert_allclose(marginals.sum(axis=1), 1.0, rtol=1e-9)


def test_rewards_of_a_thousand_over_a_thousand_steps() -> None:
    mdp = MDP.from_edges([0, 0, 1], [0, 1, 0], p0=[1, 0])
    counts = FinitePathSums(mdp, 1000).expected_counts(np.full((1, 2), 1e3))
    assert counts.log_Z[0] == pytest.approx(solve(mdp, np.full(2, 1e3), 1000).log_Z, rel=1e-12)
    assert np.all(np.isfinite(counts.node))
    assert counts.node.sum() == pytest.approx(1000.0, rel=1e-9)


# With discount 0.99 the sum diverges as the length grows; the specification has the values for these seven states.
FADING = ((0, (1, 3, 5)), (1, (1, 4, 6)), (2, (1,)), (3, (2, 3)), (4, (1, 3, 4, 5)), (5, (2, 3)), (6, (2, 3, 6)))


@pytest.mark.parametrize(
    ("gamma", "length", "expected", "digits"),
    [(0.99, 50, -1.57, 2), (0.99, 300, 83.0, 0), (1.0, 50, -1.584, 3), (1.0, 300, -1.584, 3), (1.0, 1000, -1.584, 3)],
)
def test_discounted_costs_let_long_trajectories_dominate(
    gamma: float, length: int, expected: float, digits: int
) -> None:
    edges = [(s, target) for s, targets in FADING for target in targets]
    src, dst = zip(*edges, strict=True)
    mdp = MDP.from_edges(src, dst, 7, gamma=gamma, p0=np.full(7, 1 / 7), state_features=np.ones((7, 1)))
    theta = np.array([-2.0])
    log_Z = FinitePathSums(mdp, length).log_partition(theta[None])[0]
    assert round(log_Z, digits) == expected
    assert log_Z == pytest.approx(solve(mdp, theta, length).log_Z, rel=1e-11)


@pytest.mark.parametrize("by_start", [False, True])
@pytest.mark.parametrize("stop", ["anywhere", "terminal"])
def test_unbounded_length_is_the_limit_of_finite_lengths(stop: str, by_start: bool) -> None:
    rng = np.random.default_rng(7)
    mdp = MDP.from_edges(*RING_WITH_EXITS, 5, state_features=rng.random((5, 2)), edge_features=rng.random((8, 1)))
    theta = -0.2 - 0.3 * rng.random(3)
    truth = solve(mdp, theta, 400, stop=stop, by_start=by_start)
    counts = InfinitePathSums(mdp, stop=stop, by_start=by_start).expected_counts(theta[None])
    np.testing.assert_allclose(counts.log_Z[0], truth.log_Z, rtol=1e-11)
    np.testing.assert_allclose(counts.node[:, 0], truth.node, rtol=1e-11, atol=1e-13)
    assert counts.edge is not None
    np.testing.assert_allclose(counts.edge[:, 0], truth.edge, rtol=1e-11, atol=1e-13)


def test_oracle_in_closed_form() -> None:
    # One state with two loops has 2^(k - 1) trajectories of k states, each of weight e^(r k).
    mdp = MDP.from_edges([0, 0], [0, 0], n_states=1)
    assert solve(mdp, np.zeros(1), 12).log_Z == pytest.approx(math.log(2**12 - 1), rel=1e-15)
    total = sum(2 ** (k - 1) * math.exp(0.3 * k) for k in range(1, 13))
    truth = solve(mdp, np.array([0.3]), 12)
    assert truth.log_Z == pytest.approx(math.log(total), rel=1e-14)
    lengths = [k * 2 ** (k - 1) * math.exp(0.3 * k) / total for k in range(1, 13)]
    assert truth.node[0] == pytest.approx(sum(lengths), rel=1e-14)
    assert truth.edge.sum() == pytest.approx(sum(lengths) - 1.0, rel=1e-14)


def test_oracle_counts_equal_the_gradient_of_its_log_partition() -> None:
    rng = np.random.default_rng(3)
    for stop, by_start in itertools.product(["anywhere", "terminal_or_max_length"], [False, True]):
        mdp = random_mdp(rng, 0.9, "sae")
        theta, h = rng.normal(size=mdp.n_features), 2.0**-20
        truth = solve(mdp, theta, 7, stop=stop, by_start=by_start)
        gradient = expected_features(mdp, truth.node[:, None], truth.edge[:, None])[0]
        for j, step in enumerate(h * np.eye(mdp.n_features)):
            up, down = (solve(mdp, theta + sign * step, 7, stop=stop, by_start=by_start).log_Z for sign in (1, -1))
            assert (up - down) / (2 * h) == pytest.approx(gradient[j], rel=1e-7, abs=1e-8)
