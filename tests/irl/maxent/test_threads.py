"""Threads: numba's and the caller's change no bit of a result."""

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

from limiirl.irl.maxent.path_sums import ExpectedCounts, FinitePathSums
from limiirl.kernels.threading import BLOCK
from limiirl.mdp import MDP
from tests.oracles.random_mdps import lean_bytes

LENGTH = 25


def large(seed: int) -> tuple[MDP, NDArray[np.float64]]:
    """A random graph of a few blocks, so that the sweeps go to numba's threads."""
    rng = np.random.default_rng(seed)
    n = 2 * BLOCK + 100 * seed + 11
    src, dst = np.repeat(np.arange(n), 2), rng.integers(n, size=2 * n)
    mdp = MDP.from_edges(src, dst, n, state_features=rng.random((n, 3)), edge_features=rng.random((2 * n, 1)))
    return mdp, -rng.random((2, 4))


def evaluate(mdp: MDP, thetas: NDArray[np.float64], space: str, length: int = LENGTH) -> ExpectedCounts:
    return FinitePathSums(mdp, length, arithmetic=space).expected_counts(thetas)


def assert_same(one: ExpectedCounts, other: ExpectedCounts) -> None:
    for left, right in zip(one, other, strict=True):
        assert (left is None) == (right is None)
        np.testing.assert_array_equal(left, right)


def together(calls: list[Callable[[], ExpectedCounts]]) -> list[list[ExpectedCounts]]:
    """What each call gives six times over, all of them at once in threads of their own."""
    ready = threading.Barrier(len(calls))
    found: list[list[ExpectedCounts]] = [[] for _ in calls]
    failed: list[BaseException] = []

    def work(i: int) -> None:
        try:
            ready.wait(timeout=60)
            for _ in range(6):
                found[i].append(calls[i]())
        except BaseException as error:  # noqa: BLE001 (shown by the test, in the main thread)
            failed.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
    assert not failed
    assert [len(results) for results in found] == [6] * len(calls)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("space", ["linear", "log"])
def test_two_callers_at_once_get_what_each_gets_alone(space: str) -> None:
    problems = [large(1), large(2)]
    alone = [evaluate(*problem, space) for problem in problems]
    for results, expected in zip(together([partial(evaluate, *p, space) for p in problems]), alone, strict=True):
        for result in results:
            assert_same(result, expected)


@pytest.mark.slow
@pytest.mark.parametrize("space", ["linear", "log"])
def test_threads_that_share_an_engine_get_what_each_gets_alone(space: str) -> None:
    mdp, thetas = large(1)
    engine = FinitePathSums(mdp, LENGTH, arithmetic=space)
    asked = [thetas, 3.0 * thetas, thetas[:1] - 1.0]
    alone = [evaluate(mdp, theta, space) for theta in asked]
    for results, expected in zip(
        together([partial(engine.expected_counts, theta) for theta in asked]), alone, strict=True
    ):
        for result in results:
            assert_same(result, expected)


def test_an_engine_that_was_pickled_starts_with_no_memory() -> None:
    mdp, thetas = large(1)
    engine = FinitePathSums(mdp, LENGTH)
    expected = engine.expected_counts(thetas)
    packed = pickle.dumps(engine)
    assert len(packed) < engine.buffer(thetas.shape[0]).nbytes
    assert_same(pickle.loads(packed).expected_counts(thetas), expected)


AGAIN = """
import warnings
import numba
from tests.irl.maxent.test_threads import test_two_callers_at_once_get_what_each_gets_alone as again
warnings.simplefilter("error")
again("linear")
print(numba.threading_layer(), end=": linear ")
again("log")
print("log")
"""


@pytest.mark.slow
def test_the_threading_layer_that_ends_the_process_is_kept_from_it() -> None:
    # Numba falls back on this layer where neither TBB nor OpenMP is at hand, and it aborts when two threads enter it at
    # once; the test above may run on a layer that allows it, so here it runs again on the one that does not.
    command = [sys.executable, "-c", AGAIN]
    environment = os.environ | {"NUMBA_THREADING_LAYER": "workqueue", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300, check=False)
    assert (done.returncode, done.stdout) == (0, "workqueue: linear log\n"), done.stdout + done.stderr


@pytest.mark.parametrize("space", ["linear", "log"])
def test_one_thread_and_two_give_the_same_bits(space: str) -> None:
    if numba.config.NUMBA_NUM_THREADS < 2:
        pytest.skip("numba was given one thread")
    mdp, thetas = large(3)
    before = numba.get_num_threads()
    try:
        numba.set_num_threads(2)
        two = evaluate(mdp, thetas, space)
        numba.set_num_threads(1)
        one = evaluate(mdp, thetas, space)
    finally:
        numba.set_num_threads(before)
    assert_same(one, two)


@pytest.mark.slow
@pytest.mark.parametrize("gamma", [1.0, 0.98])
def test_steps_that_are_swept_in_waves_are_those_swept_one_by_one(gamma: float) -> None:
    # A narrow graph of many blocks, whose steps may be swept several at a time; log space sweeps them one by one.
    n, length = 60 * BLOCK + 77, 45
    rng = np.random.default_rng(6)
    src = np.repeat(np.arange(n - 3), 2)
    dst = src + rng.integers(-3, 4, size=src.size).clip(-src, None)
    mdp = MDP.from_edges(src, dst, n, gamma=gamma, state_features=rng.random((n, 2)))
    assert FinitePathSums(mdp, length).graph.out.block > 0
    thetas = np.array([[-1.0, 0.2], [0.3, -0.5]])
    waves, steps = evaluate(mdp, thetas, "linear", length), evaluate(mdp, thetas, "log", length)
    lean = FinitePathSums(mdp, length, arithmetic="linear", max_bytes=lean_bytes(mdp, length, 2)).expected_counts(
        thetas
    )
    assert_same(lean, waves)
    np.testing.assert_allclose(waves.log_Z, steps.log_Z, rtol=1e-12)
    np.testing.assert_allclose(waves.node, steps.node, rtol=1e-11, atol=0)


@pytest.mark.slow
@pytest.mark.parametrize("space", ["linear", "log"])
def test_blocks_make_no_difference(space: str) -> None:
    # Copies of one small graph side by side, more than a block in all: swept by threads, renumbered, each as if alone.
    rng = np.random.default_rng(4)
    n, copies = 40, BLOCK // 40 + 3
    src, dst = np.repeat(np.arange(n), 3), rng.integers(n, size=3 * n)
    phi, thetas = rng.random((n, 2)), np.array([[-1.0, 0.2], [0.3, -0.5]])
    small = MDP.from_edges(src, dst, n, state_features=phi)
    shift = n * np.arange(copies)[:, None]
    side_by_side = MDP.from_edges(
        (src + shift).ravel(), (dst + shift).ravel(), n * copies, state_features=np.tile(phi, (copies, 1))
    )
    alone = FinitePathSums(small, LENGTH, arithmetic=space)
    together = FinitePathSums(side_by_side, LENGTH, arithmetic=space)
    np.testing.assert_allclose(together.log_partition(thetas), alone.log_partition(thetas), rtol=1e-13)
    nodes = together.expected_counts(thetas).node.reshape(copies, n, 2)
    np.testing.assert_allclose(
        nodes, np.broadcast_to(alone.expected_counts(thetas).node / copies, nodes.shape), rtol=1e-12
    )
