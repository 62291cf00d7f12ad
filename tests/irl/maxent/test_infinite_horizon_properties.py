"""Path sums of unbounded length against long finite lengths and enumeration; divergent sums."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given, settings

from limiirl.errors import DivergentPartition, InvalidParameter
from limiirl.irl.maxent.infinite_horizon import InfinitePathSums
from limiirl.irl.maxent.path_sums import FinitePathSums
from limiirl.mdp import MDP, expected_features
from tests.helpers import examples, raises
from tests.oracles.compare import TOLERANCE, assert_close
from tests.oracles.enumeration import Enumeration, Law
from tests.oracles.random_mdps import Case, cases
from tests.oracles.recursion import rewards


def radius(mdp: MDP, theta: np.ndarray) -> float:
    """Return the spectral radius of W(s, s') = sum_a T(s, a, s') exp(r(s, a, s') + r(s')) on the reachable states."""
    r_state, r_edge = rewards(mdp, theta)
    W = np.zeros((mdp.n_states, mdp.n_states))
    np.add.at(W, (mdp.src, mdp.dst), mdp.prob * np.exp(r_edge + r_state[mdp.dst]))
    reached = mdp.p0 > 0
    for _ in range(mdp.n_states):
        reached = reached | (reached @ (W > 0))
    return float(np.max(np.abs(np.linalg.eigvals(W[np.ix_(reached, reached)]))))


def check_against_law(
    path_sums: InfinitePathSums, theta: np.ndarray, law: Law, starts: np.ndarray | None = None
) -> None:
    counts = path_sums.expected_counts(theta[None], starts=None if starts is None else starts[:, None], edges=True)
    assert counts.edge is not None
    ones = np.ones(law.paths.max_length)
    assert_close(counts.log_Z[0], law.log_Z, "log_Z")
    assert_close(counts.node[:, 0], law.state_counts(ones), "counts of states")
    assert_close(counts.edge[:, 0], law.edge_counts(ones), "counts of edges")
    assert_close(expected_features(path_sums.mdp, counts.node, counts.edge)[0], law.mean(), "expected features")
    size = 1.0 + float(np.linalg.norm(law.second_moment()))
    assert_close(path_sums.covariance(theta, starts=starts), law.covariance(), "covariance", size=size)


@pytest.mark.parametrize("by_start", [False, True])
@settings(max_examples=examples(60))
@given(case=cases(columns=(1,), acyclic=True, discounts=(1.0,), most_paths=10**6))
def test_acyclic_mdps_against_enumeration(by_start: bool, case: Case) -> None:
    theta, paths = case.thetas[0], Enumeration(case.mdp, case.mdp.n_states)
    path_sums = InfinitePathSums(case.mdp, by_start=by_start)
    law = paths.law(theta, by_start=by_start)
    check_against_law(path_sums, theta, law)
    starts = case.starts[:, 0]
    check_against_law(path_sums, theta, paths.law(theta, by_start=by_start, starts=starts), starts)
    reached = (law.time_marginals() > 0).any(axis=0)
    assert_close(
        path_sums.log_partition_by_start(theta[None])[reached, 0], law.log_Z_by_start[reached], "log Z by start"
    )


@pytest.mark.parametrize("by_start", [False, True])
@settings(max_examples=examples(60))
@given(case=cases(columns=(1,), acyclic=True, discounts=(1.0,), most_paths=10**6))
def test_acyclic_mdps_with_stop_terminal(by_start: bool, case: Case) -> None:
    theta = case.thetas[0]
    law = Enumeration(case.mdp, case.mdp.n_states, "terminal").law(theta, by_start=by_start)
    check_against_law(InfinitePathSums(case.mdp, stop="terminal", by_start=by_start), theta, law)


@pytest.mark.parametrize("stop", ["anywhere", "terminal"])
@pytest.mark.parametrize("by_start", [False, True])
@settings(max_examples=examples(50))
@given(case=cases(columns=(1,), discounts=(1.0,)))
def test_long_finite_lengths_converge_to_unbounded_length(by_start: bool, stop: str, case: Case) -> None:
    """The remainder after L steps is about radius^L, here below 1e-17; features grow with L^2 at most."""
    mdp, theta = case.mdp, case.thetas[0]
    assume(radius(mdp, theta) < 0.9)
    finite = FinitePathSums(mdp, 400, stop=stop, by_start=by_start, arithmetic="log")
    infinite = InfinitePathSums(mdp, stop=stop, by_start=by_start)
    if impossible(mdp, stop, by_start):
        for path_sums in (finite, infinite):
            with raises(InvalidParameter, parameter="stop", value=stop):
                path_sums.expected_counts(theta[None], edges=True)
        return
    one, other = (path_sums.expected_counts(theta[None], edges=True) for path_sums in (infinite, finite))
    assert one.edge is not None
    assert other.edge is not None
    assert_close(one.log_Z, other.log_Z, "log_Z")
    assert_close(one.node, other.node, "counts of states")
    assert_close(one.edge, other.edge, "counts of edges")
    covariance, mean = finite.covariance(theta), expected_features(mdp, other.node, other.edge)[0]
    size = 1.0 + float(np.linalg.norm(covariance + np.outer(mean, mean)))
    assert_close(infinite.covariance(theta), covariance, "covariance", size=size)


def impossible(mdp: MDP, stop: str, by_start: bool) -> bool:
    """Return True if no trajectory (by start: for some start state none) ends where it may."""
    if stop == "anywhere":
        return False
    ends = mdp.terminal.copy()
    for _ in range(mdp.n_states):
        np.logical_or.at(ends, mdp.src, ends[mdp.dst])
    started = ends[mdp.p0 > 0]
    return not (started.all() if by_start else started.any())


@settings(max_examples=examples(100))
@given(case=cases(columns=(1,), discounts=(1.0,), scales=(0.3, 1.0)))
def test_divergence_agrees_with_the_spectral_radius(case: Case) -> None:
    mdp, theta = case.mdp, case.thetas[0]
    rho = radius(mdp, theta)
    assume(abs(rho - 1.0) > 1e-9)
    path_sums = InfinitePathSums(mdp)
    if rho < 1.0:
        assert math.isfinite(path_sums.log_partition(theta[None])[0])
    else:
        with raises(DivergentPartition, parameter="thetas"):
            path_sums.log_partition(theta[None])


def cycle(weight: float, length: int) -> tuple[MDP, np.ndarray]:
    """Return a ring with two actions per state, and theta such that one round has weight `weight` ** length."""
    src = np.repeat(np.arange(length), 2)
    mdp = MDP.from_edges(src, (src + 1) % length, length, state_features=np.ones((length, 1)), p0=np.eye(length)[0])
    return mdp, np.array([math.log(weight / 2.0)])


@pytest.mark.parametrize("length", [1, 2, 5])
@pytest.mark.parametrize("weight", [0.5, 0.999, 0.999999])
def test_radius_just_below_one(weight: float, length: int) -> None:
    """The sum is a geometric series whose first state has weight `weight` / 2."""
    mdp, theta = cycle(weight, length)
    counts = InfinitePathSums(mdp).expected_counts(theta[None])
    # Near 1 the condition number of the sum is 1 / (1 - weight).
    tolerance = 1e-14 / (1.0 - weight)
    np.testing.assert_allclose(counts.log_Z, math.log(weight / 2.0 / (1.0 - weight)), rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(counts.node.sum(), 1.0 / (1.0 - weight), rtol=tolerance, atol=0.0)
    # The number of states is geometric: its variance is weight / (1 - weight)^2.
    variance = InfinitePathSums(mdp).covariance(theta)
    np.testing.assert_allclose(variance, weight / (1.0 - weight) ** 2, rtol=20 * tolerance, atol=0.0)


@pytest.mark.parametrize("length", [1, 2, 5])
@pytest.mark.parametrize("weight", [1.0, 1.000001, 1.001, 2.0, 50.0])
def test_radius_of_one_or_more(weight: float, length: int) -> None:
    mdp, theta = cycle(weight, length)
    for method in (InfinitePathSums(mdp).expected_counts, InfinitePathSums(mdp, by_start=True).log_partition):
        with pytest.raises(DivergentPartition, match=f"factor of about {weight:.4g} per step"):
            method(theta[None])
    with pytest.raises(DivergentPartition):
        InfinitePathSums(mdp).covariance(theta)
    with pytest.raises(DivergentPartition):
        InfinitePathSums(mdp).sample(theta, 3, np.random.default_rng(0))


@pytest.mark.parametrize("branches", [3, 5, 6, 7, 10, 11, 13, 100])
def test_radius_of_one_up_to_rounding(branches: int) -> None:
    """n edges of weight exp(log(1 / n)) sum to exactly 1, and to 1 up to rounding in float64."""
    mdp = MDP.from_edges([0] * branches, [0] * branches, 1, state_features=[[1.0]])
    with pytest.raises(DivergentPartition):
        InfinitePathSums(mdp).log_partition(np.array([[-math.log(branches)]]))


def test_divergence_in_unreachable_states_is_ignored() -> None:
    """State 2 loops with weight 3 but is unreachable; for "terminal", a loop cannot reach a terminal state."""
    src, dst = [0, 2, 2, 2], [1, 2, 2, 2]
    mdp = MDP.from_edges(src, dst, 4, p0=[0.5, 0.5, 0, 0], terminal=[1, 3], state_features=np.ones((4, 1)))
    theta = np.zeros((1, 1))
    # The trajectories are 0, 0-1 and 1.
    np.testing.assert_allclose(InfinitePathSums(mdp).log_partition(theta), math.log(1.5), rtol=TOLERANCE, atol=0.0)
    with pytest.raises(DivergentPartition):
        InfinitePathSums(mdp.replace(p0=[0.5, 0.25, 0.25, 0])).log_partition(theta)
    trap = MDP.from_edges([0, 0, 2, 2], [1, 2, 2, 2], 3, p0=[1, 0, 0], terminal=[1], state_features=np.ones((3, 1)))
    counts = InfinitePathSums(trap, stop="terminal").expected_counts(theta)
    np.testing.assert_allclose(counts.node[:, 0], [1.0, 1.0, 0.0], rtol=0.0, atol=TOLERANCE)
    with pytest.raises(DivergentPartition):
        InfinitePathSums(trap).expected_counts(theta)


def test_start_distributions_determine_reachability() -> None:
    mdp = MDP.from_edges([0, 1, 1], [2, 1, 1], 3, p0=[1, 0, 0], terminal=[2], state_features=np.ones((3, 1)))
    theta = np.zeros((1, 1))
    path_sums = InfinitePathSums(mdp)
    np.testing.assert_allclose(path_sums.log_partition(theta), math.log(2.0), rtol=TOLERANCE, atol=0.0)
    with pytest.raises(DivergentPartition):
        path_sums.log_partition(theta, starts=np.array([[0.5], [0.5], [0.0]]))


def test_discount_below_one_is_an_error() -> None:
    mdp = MDP.from_edges([0], [1], gamma=0.99)
    with raises(DivergentPartition, parameter="max_length", value=math.inf):
        InfinitePathSums(mdp)


def test_stop_at_max_length_is_an_error() -> None:
    with raises(InvalidParameter, parameter="stop", value="terminal_or_max_length"):
        InfinitePathSums(MDP.from_edges([0], [1]), stop="terminal_or_max_length")


def exact_log_beta(weights: np.ndarray, end: np.ndarray) -> np.ndarray:
    """Return log((I - W)^-1 end), computed in rational arithmetic."""
    n = end.size
    rows = [[Fraction(int(i == j)) - Fraction(float(weights[i, j])) for j in range(n)] for i in range(n)]
    right = [Fraction(int(e)) for e in end]
    for i in range(n):
        for below in range(i + 1, n):
            factor = rows[below][i] / rows[i][i]
            rows[below] = [a - factor * b for a, b in zip(rows[below], rows[i], strict=True)]
            right[below] -= factor * right[i]
    for i in reversed(range(n)):
        right[i] = (right[i] - sum(a * b for a, b in zip(rows[i][i + 1 :], right[i + 1 :], strict=True))) / rows[i][i]
    return np.array([math.log(value) for value in right])


@pytest.mark.parametrize("seed", range(40))
def test_rare_trajectories_are_accurate(seed: int) -> None:
    """Compare log Z and the gradient with rational arithmetic, for weights e^-25 to e^8 and cycles far below 1."""
    rng = np.random.default_rng(seed)
    n = 5
    src, dst = np.nonzero(~np.eye(n, dtype=bool) & (np.arange(n) < n - 1)[:, None])
    while True:
        log_w = rng.uniform(-25.0, 8.0, src.size)
        W = np.zeros((n, n))
        W[src, dst] = np.exp(log_w)
        if np.max(np.abs(np.linalg.eigvals(W))) < 0.5:
            break
    mdp = MDP.from_edges(src, dst, n, p0=[0.25] * 4 + [0], state_features=None, edge_features=log_w[:, None])
    path_sums = InfinitePathSums(mdp, stop="terminal", by_start=True)
    log_Z, gradient = path_sums.value_and_grad(np.ones((1, 1)))
    exact = exact_log_beta(W, np.arange(n) == n - 1)
    np.testing.assert_allclose(log_Z[0], exact[:4].mean(), rtol=1e-13, atol=1e-13)
    beta = np.exp(exact)
    # Expected log-weight by a separate recursion: m(s) = sum_s' w beta' (log w + m') / beta.
    transition = W * beta / beta[:, None]
    mean = np.linalg.solve(
        np.eye(n) - transition, (transition * np.log(W, where=W > 0, out=np.zeros_like(W))).sum(axis=1)
    )
    np.testing.assert_allclose(gradient[0, 0], mean[:4].mean(), rtol=1e-11)
