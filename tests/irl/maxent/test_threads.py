"""Path sums are bitwise independent of numba's threads and of concurrent callers."""

import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import partial

import numba
import numpy as np
import pytest
from numpy.typing import NDArray

from limiirl._parallel import BLOCK
from limiirl.irl.maxent.path_sums import ExpectedCounts, FinitePathSums
from limiirl.mdp import MDP
from tests.oracles.random_mdps import lean_bytes

LENGTH = 25


def large_problem(seed: int) -> tuple[MDP, NDArray[np.float64]]:
    """Return a random graph of several blocks, which numba's threads share, and parameters."""
    rng = np.random.default_rng(seed)
    n = 2 * BLOCK + 100 * seed + 11
    src, dst = np.repeat(np.arange(n), 2), rng.integers(n, size=2 * n)
    mdp = MDP.from_edges(src, dst, n, state_features=rng.random((n, 3)), edge_features=rng.random((2 * n, 1)))
    return mdp, -rng.random((2, 4))


def evaluate(mdp: MDP, thetas: NDArray[np.float64], arithmetic: str, length: int = LENGTH) -> ExpectedCounts:
    return FinitePathSums(mdp, length, arithmetic=arithmetic).expected_counts(thetas)


def assert_same(one: ExpectedCounts, other: ExpectedCounts) -> None:
    for left, right in zip(one, other, strict=True):
        assert (left is None) == (right is None)
        np.testing.assert_array_equal(left, right)


def run_concurrently(calls: list[Callable[[], ExpectedCounts]]) -> list[list[ExpectedCounts]]:
    """Run each call six times, all calls concurrently in separate threads, and return their results."""
    ready = threading.Barrier(len(calls))
    results: list[list[ExpectedCounts]] = [[] for _ in calls]
    errors: list[BaseException] = []

    def run(i: int) -> None:
        try:
            ready.wait(timeout=60)
            for _ in range(6):
                results[i].append(calls[i]())
        except BaseException as error:  # noqa: BLE001 (reported in the main thread)
            errors.append(error)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
    assert not errors
    assert [len(counts) for counts in results] == [6] * len(calls)
    return results


@pytest.mark.slow
@pytest.mark.parametrize("arithmetic", ["linear", "log"])
def test_concurrent_calls_equal_sequential_calls(arithmetic: str) -> None:
    problems = [large_problem(1), large_problem(2)]
    expected_counts = [evaluate(*problem, arithmetic) for problem in problems]
    for results, expected in zip(
        run_concurrently([partial(evaluate, *p, arithmetic) for p in problems]), expected_counts, strict=True
    ):
        for result in results:
            assert_same(result, expected)


@pytest.mark.slow
@pytest.mark.parametrize("arithmetic", ["linear", "log"])
def test_threads_can_share_path_sums(arithmetic: str) -> None:
    mdp, thetas = large_problem(1)
    path_sums = FinitePathSums(mdp, LENGTH, arithmetic=arithmetic)
    parameters = [thetas, 3.0 * thetas, thetas[:1] - 1.0]
    expected_counts = [evaluate(mdp, theta, arithmetic) for theta in parameters]
    for results, expected in zip(
        run_concurrently([partial(path_sums.expected_counts, theta) for theta in parameters]),
        expected_counts,
        strict=True,
    ):
        for result in results:
            assert_same(result, expected)


@pytest.mark.slow
def test_pickles_contain_no_buffers() -> None:
    mdp, thetas = large_problem(1)
    path_sums = FinitePathSums(mdp, LENGTH)
    expected = path_sums.expected_counts(thetas)
    packed = pickle.dumps(path_sums)
    assert len(packed) < path_sums.buffer(thetas.shape[0]).nbytes
    assert_same(pickle.loads(packed).expected_counts(thetas), expected)


PROGRAM = """
import warnings
import numba
from tests.irl.maxent.test_threads import test_concurrent_calls_equal_sequential_calls as run
warnings.simplefilter("error")
run("linear")
print(numba.threading_layer(), end=": linear ")
run("log")
print("log")
"""


@pytest.mark.slow
def test_concurrent_calls_with_the_workqueue_layer() -> None:
    # Numba falls back to this layer without TBB and OpenMP. It aborts if two threads enter it at once.
    command = [sys.executable, "-c", PROGRAM]
    environment = os.environ | {"NUMBA_THREADING_LAYER": "workqueue", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300, check=False)
    assert (done.returncode, done.stdout) == (0, "workqueue: linear log\n"), done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("arithmetic", ["linear", "log"])
def test_results_are_independent_of_the_number_of_threads(arithmetic: str) -> None:
    if numba.config.NUMBA_NUM_THREADS < 2:
        pytest.skip("numba has one thread")
    mdp, thetas = large_problem(3)
    before = numba.get_num_threads()
    try:
        numba.set_num_threads(2)
        two = evaluate(mdp, thetas, arithmetic)
        numba.set_num_threads(1)
        one = evaluate(mdp, thetas, arithmetic)
    finally:
        numba.set_num_threads(before)
    assert_same(one, two)


@pytest.mark.slow
@pytest.mark.parametrize("gamma", [1.0, 0.98])
def test_pipelined_steps_equal_sequential_steps(gamma: float) -> None:
    # On a graph of small bandwidth, linear arithmetic computes several steps concurrently; log arithmetic does not.
    n, length = 60 * BLOCK + 77, 45
    rng = np.random.default_rng(6)
    src = np.repeat(np.arange(n - 3), 2)
    dst = src + rng.integers(-3, 4, size=src.size).clip(-src, None)
    mdp = MDP.from_edges(src, dst, n, gamma=gamma, state_features=rng.random((n, 2)))
    assert FinitePathSums(mdp, length).graph.out.block > 0
    thetas = np.array([[-1.0, 0.2], [0.3, -0.5]])
    pipelined, steps = evaluate(mdp, thetas, "linear", length), evaluate(mdp, thetas, "log", length)
    lean = FinitePathSums(mdp, length, arithmetic="linear", max_bytes=lean_bytes(mdp, length, 2)).expected_counts(
        thetas
    )
    assert_same(lean, pipelined)
    np.testing.assert_allclose(pipelined.log_Z, steps.log_Z, rtol=1e-12)
    np.testing.assert_allclose(pipelined.node, steps.node, rtol=1e-11, atol=0)


@pytest.mark.slow
@pytest.mark.parametrize("arithmetic", ["linear", "log"])
def test_results_are_independent_of_blocks(arithmetic: str) -> None:
    # Disjoint copies of a small graph, more than one block in total.
    rng = np.random.default_rng(4)
    n, copies = 40, BLOCK // 40 + 3
    src, dst = np.repeat(np.arange(n), 3), rng.integers(n, size=3 * n)
    phi, thetas = rng.random((n, 2)), np.array([[-1.0, 0.2], [0.3, -0.5]])
    small = MDP.from_edges(src, dst, n, state_features=phi)
    shift = n * np.arange(copies)[:, None]
    side_by_side = MDP.from_edges(
        (src + shift).ravel(), (dst + shift).ravel(), n * copies, state_features=np.tile(phi, (copies, 1))
    )
    single = FinitePathSums(small, LENGTH, arithmetic=arithmetic)
    replicated = FinitePathSums(side_by_side, LENGTH, arithmetic=arithmetic)
    np.testing.assert_allclose(replicated.log_partition(thetas), single.log_partition(thetas), rtol=1e-13)
    nodes = replicated.expected_counts(thetas).node.reshape(copies, n, 2)
    np.testing.assert_allclose(
        nodes, np.broadcast_to(single.expected_counts(thetas).node / copies, nodes.shape), rtol=1e-12
    )
