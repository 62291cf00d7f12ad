"""Path sums are independent of the number of columns, the state numbering and the number of threads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numba
import numpy as np
import pytest
from hypothesis import given, settings

from limiirl._parallel import BLOCK
from limiirl.irl.maxent.path_sums import FinitePathSums
from limiirl.mdp import MDP, expected_features
from tests.helpers import examples
from tests.oracles.compare import assert_close
from tests.oracles.enumeration import Enumeration
from tests.oracles.random_mdps import Case, cases, lean_bytes
from tests.oracles.recursion import LogRecursion, hessian

EXACT = ("linear", "log")


@pytest.mark.parametrize("arithmetic", EXACT)
@settings(max_examples=examples(50))
@given(case=cases(columns=(3,)))
def test_columns_together_equal_columns_alone(arithmetic: str, case: Case) -> None:
    path_sums = FinitePathSums(case.mdp, case.max_length, arithmetic=arithmetic)
    check_columns(path_sums, case.thetas, case.starts)


def check_columns(path_sums: FinitePathSums, thetas: np.ndarray, starts: np.ndarray | None = None) -> None:
    """Check that each column is bitwise equal to the same column computed alone."""
    together = path_sums.expected_counts(thetas, starts=starts, edges=True)
    by_start = path_sums.log_partition_by_start(thetas)
    assert together.edge is not None
    for k in range(len(thetas)):
        alone = path_sums.expected_counts(
            thetas[k : k + 1], starts=None if starts is None else starts[:, k : k + 1], edges=True
        )
        assert alone.edge is not None
        np.testing.assert_array_equal(together.log_Z[k], alone.log_Z[0])
        np.testing.assert_array_equal(together.node[:, k], alone.node[:, 0])
        np.testing.assert_array_equal(together.edge[:, k], alone.edge[:, 0])
        np.testing.assert_array_equal(by_start[:, k], path_sums.log_partition_by_start(thetas[k : k + 1])[:, 0])


def indicator_mdp(seed: int = 3, **fields: object) -> MDP:
    """Return a stochastic MDP with five states and indicator features, whose products with theta are exact."""
    rng = np.random.default_rng(seed)
    T = rng.random((5, 2, 5)) * (rng.random((5, 2, 5)) < 0.5)
    T[:, :, 0] += 0.1
    T[4] = 0.0
    T[:4] /= T[:4].sum(axis=2, keepdims=True)
    mdp = MDP.from_dense(T, p0=[0.5, 0.25, 0.25, 0.0, 0.0], gamma=0.9, state_features=np.eye(5), terminal=[4])
    return mdp.replace(edge_features=np.eye(mdp.n_edges), **fields)


@pytest.mark.parametrize("n_columns", [2, 9])
@pytest.mark.parametrize("arithmetic", ["linear", "log", "auto"])
def test_any_number_of_columns(n_columns: int, arithmetic: str) -> None:
    """Nine columns exceed the largest number that is computed together."""
    mdp = indicator_mdp()
    thetas = np.random.default_rng(0).normal(size=(n_columns, mdp.n_features))
    starts = np.random.default_rng(1).dirichlet(np.ones(5), size=n_columns).T
    for by_start in (False, True):
        path_sums = FinitePathSums(mdp, 20, arithmetic=arithmetic, by_start=by_start)
        check_columns(path_sums, thetas)
        check_columns(path_sums, thetas, starts)


def test_linear_and_log_columns_in_one_call() -> None:
    """Eight linear columns, then linear and log columns alternately: each equals its own arithmetic, in order.

    Kernels are compiled per number of columns; other tests here use eight, three and one as well.
    """
    mdp = indicator_mdp()
    thetas = np.random.default_rng(0).normal(size=(14, mdp.n_features))
    thetas[9::2] *= 400.0
    counts = FinitePathSums(mdp, 6).expected_counts(thetas)
    assert counts.edge is not None
    for k, theta in enumerate(thetas):
        path_sums = FinitePathSums(mdp, 6, arithmetic="log" if k in (9, 11, 13) else "linear")
        alone = path_sums.expected_counts(theta[None])
        assert alone.edge is not None
        np.testing.assert_array_equal(counts.log_Z[k], alone.log_Z[0])
        np.testing.assert_array_equal(counts.node[:, k], alone.node[:, 0])
        np.testing.assert_array_equal(counts.edge[:, k], alone.edge[:, 0])
    oracle = [LogRecursion(mdp, 6, theta) for theta in thetas]
    assert_close(counts.log_Z, [one.log_Z for one in oracle], "log_Z")


@pytest.mark.parametrize("arithmetic", EXACT)
@settings(max_examples=examples(50))
@given(case=cases(columns=(3,)))
def test_results_are_independent_of_state_numbering(arithmetic: str, case: Case) -> None:
    mdp, n = case.mdp, case.mdp.n_states
    new = np.random.default_rng(n).permutation(n)
    order = np.lexsort((new[mdp.dst], mdp.act, new[mdp.src]))
    pairs = np.unique(new[mdp.src].astype(np.int64)[order] * 10 + mdp.act[order], return_index=True)[1]
    old_of_new = np.argsort(new)
    relabelled = MDP(
        src=new[mdp.src][order].astype(np.int32),
        act=mdp.act[order],
        dst=new[mdp.dst][order].astype(np.int32),
        prob=mdp.prob[order],
        p0=mdp.p0[old_of_new],
        gamma=mdp.gamma,
        terminal=mdp.terminal[old_of_new],
        state_features=None if mdp.state_features is None else mdp.state_features[old_of_new],
        action_features=None if mdp.action_features is None else mdp.action_features[mdp.pair_of_edge[order][pairs]],
        edge_features=None if mdp.edge_features is None else mdp.edge_features[order],
    )
    one = FinitePathSums(mdp, case.max_length, arithmetic=arithmetic)
    other = FinitePathSums(relabelled, case.max_length, arithmetic=arithmetic)
    before, after = one.expected_counts(case.thetas, edges=True), other.expected_counts(case.thetas, edges=True)
    assert before.edge is not None
    assert after.edge is not None
    assert_close(after.log_Z, before.log_Z, "log_Z", 1e-13)
    assert_close(after.node[new], before.node, "counts of states", 1e-13)
    assert_close(after.edge, before.edge[order], "counts of edges", 1e-13)
    marginals = one.time_marginals(case.thetas[0])
    assert_close(other.time_marginals(case.thetas[0])[:, new], marginals, "time marginals", 1e-13)
    size = float(np.linalg.norm(Enumeration(mdp, case.max_length).law(case.thetas[0]).second_moment()))
    covariance = one.covariance(case.thetas[0])
    assert_close(other.covariance(case.thetas[0]), covariance, "covariance", 1e-13, 1.0 + size)


def large_mdp(kind: str, gamma: float) -> MDP:
    """Return a randomly ordered ring of more than two blocks, with chords, self-loops, terminals and a hub.

    "plain" is deterministic with state features only (edges have no weights); "rich" has parallel edges, stochastic
    actions, and state, action and edge features.
    """
    rng = np.random.default_rng(17)
    n = 2 * BLOCK + 413
    name, ring = rng.permutation(n), np.arange(n)
    # Edges to the next state and to the seventh; then chords, self-loops, edges parallel to the ring, and a hub.
    src = np.concatenate([ring, ring, rng.integers(n, size=n // 2), ring[:30], ring[:500], rng.integers(n, size=50)])
    jumps = [(ring + 1) % n, (ring + 7) % n, rng.integers(n, size=n // 2), ring[:30], ring[:500] + 1, np.zeros(50, int)]
    dst = np.concatenate(jumps)
    terminal = name[rng.choice(n, size=20, replace=False)]
    features: dict[str, Any] = {"state_features": rng.integers(-8, 9, size=(n, 2)) / 8}
    if kind == "plain":
        src, dst = np.divmod(np.unique(src * n + dst), n)
    else:  # the two ring edges are outcomes of action 0; every other edge has its own action
        order = np.argsort(src, kind="stable")
        rank = np.empty(src.size, dtype=np.int64)
        rank[order] = np.arange(src.size) - np.searchsorted(src[order], src[order])
        chance = 0.1 + 0.8 * rng.random(n)
        features["action"] = np.maximum(rank - 1, 0)
        features["prob"] = np.concatenate([chance, 1.0 - chance, np.ones(src.size - 2 * n)])
        features["edge_features"] = rng.integers(-8, 9, size=(src.size, 1)) / 8
        features["action_features"] = rng.integers(-8, 9, size=(n, int(rank.max()), 1)) / 8
    p0 = np.where(rng.random(n) < 0.1, rng.random(n), 0.0)
    return MDP.from_edges(name[src], name[dst], n, p0=p0 / p0.sum(), gamma=gamma, terminal=terminal, **features)


@pytest.fixture
def threads() -> Iterator[list[int]]:
    before = numba.get_num_threads()
    yield [1, 2] if numba.config.NUMBA_NUM_THREADS >= 2 else [1]
    numba.set_num_threads(before)


LARGE = [("plain", 1.0), ("rich", 0.97)]
# Threaded kernels take seconds to compile, so only these two combinations are compiled here.
COLUMNS = {"plain": 1, "rich": 3}
LENGTH = 40


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "gamma"), LARGE)
@pytest.mark.parametrize("arithmetic", EXACT)
def test_large_graphs_on_any_number_of_threads(kind: str, gamma: float, arithmetic: str, threads: list[int]) -> None:
    mdp = large_mdp(kind, gamma)
    thetas = 0.3 * np.random.default_rng(2).normal(size=(COLUMNS[kind], mdp.n_features))
    results = []
    for n in threads:
        numba.set_num_threads(n)
        for max_bytes in (2.0**30, lean_bytes(mdp, LENGTH, len(thetas))):
            path_sums = FinitePathSums(mdp, LENGTH, arithmetic=arithmetic, max_bytes=max_bytes)
            counts = path_sums.expected_counts(thetas, edges=True)
            assert counts.edge is not None
            results.append([counts.log_Z, counts.node, counts.edge])
    for other in results[1:]:
        for one, two in zip(results[0], other, strict=True):
            np.testing.assert_array_equal(one, two)
    assert np.any(path_sums.graph.order != np.arange(mdp.n_states)), "the states were not reordered"
    oracle = [LogRecursion(mdp, LENGTH, theta) for theta in thetas]
    expected = [one.counts(one.discount) for one in oracle]
    assert_close(results[0][0], [one.log_Z for one in oracle], "log_Z")
    # The largest count is far below 1, so a tolerance relative to 1 would be too loose.
    assert_close(results[0][1], np.stack([node for node, _ in expected], axis=1), "counts of states", size=1e-4)
    assert_close(results[0][2], np.stack([edge for _, edge in expected], axis=1), "counts of edges", size=1e-4)
    gradient = expected_features(mdp, results[0][1], results[0][2])
    assert_close(gradient, [one.expected_features() for one in oracle], "expected features")


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "gamma", "arithmetic"), [("plain", 1.0, "linear"), ("rich", 0.97, "log")])
def test_time_marginals_of_large_graphs(kind: str, gamma: float, arithmetic: str, threads: list[int]) -> None:
    """The covariance test below covers both graphs in linear arithmetic."""
    mdp = large_mdp(kind, gamma)
    theta = 0.3 * np.random.default_rng(2).normal(size=mdp.n_features)
    oracle = LogRecursion(mdp, LENGTH, theta).occupancy
    results = []
    for n in threads:
        numba.set_num_threads(n)
        for max_bytes in (2.0**30, 0.0):
            path_sums = FinitePathSums(mdp, LENGTH, arithmetic=arithmetic, max_bytes=max_bytes)
            results.append(path_sums.time_marginals(theta))
    for other in results[1:]:
        np.testing.assert_array_equal(results[0], other)
    # The marginals are far below 1, as above.
    assert_close(results[0], oracle, "time marginals", size=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "gamma"), LARGE)
def test_covariance_of_large_graphs(kind: str, gamma: float, threads: list[int]) -> None:
    mdp = large_mdp(kind, gamma)
    theta = 0.3 * np.random.default_rng(2).normal(size=mdp.n_features)
    expected = hessian(mdp, 12, theta)
    for n in threads:
        numba.set_num_threads(n)
        mean = LogRecursion(mdp, 12, theta).expected_features()
        size = 1.0 + float(np.linalg.norm(expected + np.outer(mean, mean)))
        assert_close(FinitePathSums(mdp, 12).covariance(theta), expected, "covariance", size=size)


@pytest.mark.slow
@pytest.mark.parametrize("by_start", [False, True])
@pytest.mark.parametrize("arithmetic", EXACT)
def test_columns_of_large_graphs(arithmetic: str, by_start: bool) -> None:
    mdp = large_mdp("rich", 0.97)
    thetas = np.random.default_rng(2).integers(-32, 33, size=(3, mdp.n_features)) / 64
    check_columns(FinitePathSums(mdp, 10, arithmetic=arithmetic, by_start=by_start), thetas)


@pytest.mark.slow
def test_pipelined_steps_against_the_recursion(threads: list[int]) -> None:
    """A long ring of small bandwidth, on which several steps are computed concurrently."""
    rng = np.random.default_rng(23)
    n = 25 * BLOCK
    ring = np.arange(n)
    chance = 0.1 + 0.8 * rng.random(n)
    mdp = MDP.from_edges(
        np.concatenate([ring, ring, ring[::3]]),
        np.concatenate([(ring + 1) % n, (ring + 5) % n, ring[::3]]),
        n,
        action=np.repeat([0, 0, 1], [n, n, ring[::3].size]),
        prob=np.concatenate([chance, 1.0 - chance, np.ones(ring[::3].size)]),
        gamma=0.97,
        terminal=ring[::1000],
        state_features=rng.integers(-8, 9, size=(n, 2)) / 8,
        edge_features=rng.integers(-8, 9, size=(2 * n + ring[::3].size, 1)) / 8,
    )
    thetas = rng.integers(-64, 65, size=(3, 3)) / 64
    results = []
    for n_threads in threads:
        numba.set_num_threads(n_threads)
        for max_bytes in (2.0**30, lean_bytes(mdp, 21, len(thetas))):
            path_sums = FinitePathSums(mdp, 21, arithmetic="linear", max_bytes=max_bytes)
            results.append(path_sums.expected_counts(thetas, edges=True))
    assert path_sums.graph.out.block > 0
    for other in results[1:]:
        for one, two in zip(results[0], other, strict=True):
            np.testing.assert_array_equal(one, two)
    for k, theta in enumerate(thetas):
        oracle = LogRecursion(mdp, 21, theta)
        node, edge = oracle.counts(oracle.discount)
        assert_close(results[0].log_Z[k], oracle.log_Z, "log_Z")
        # Counts are about 1e-4, so a tolerance relative to 1 would be too loose.
        assert_close(results[0].node[:, k], node, "counts of states", size=1e-4)
        assert results[0].edge is not None
        assert_close(results[0].edge[:, k], edge, "counts of edges", size=1e-4)
