"""Checkpointed backward messages equal the stored messages bit for bit, in bounded memory."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from limiirl.irl.maxent.messages import Messages
from limiirl.irl.maxent.path_sums import FinitePathSums
from limiirl.mdp import MDP
from tests.oracles.random_mdps import lean_bytes

Float = NDArray[np.float64]
Int = NDArray[np.int64]
ROW, COLUMNS = 7, 2
SQUARES = [n * n + d for n in (2, 3, 5, 10) for d in (-1, 0, 1, 2)]
LENGTHS = sorted({1, 2, 3, 4, 5, 6, 7, 300, 1000, *SQUARES})


class CountedRecurrence:
    """Stand-in for a backward pass; each message depends on the next one and on its step. Counts the steps computed."""

    def __init__(self) -> None:
        self.steps = 0

    def __call__(self, rows: Float, exponents: Int, t: int) -> None:
        for i in range(rows.shape[0] - 2, -1, -1):
            rows[i] = np.sin(rows[i + 1] * (t + i + 1)) + np.arange(ROW)
            exponents[i] = exponents[i + 1] + (t + i) % 3 + np.arange(COLUMNS)
            self.steps += 1


def reference(length: int, last: Float) -> tuple[Float, Int]:
    rows, exponents = np.zeros((length, ROW)), np.zeros((length, COLUMNS), dtype=np.int64)
    rows[-1, : last.size] = last
    CountedRecurrence()(rows, exponents, 0)
    return rows, exponents


def check(
    messages: Messages, backward_pass: Callable[..., None], expected: tuple[Float, Int], backwards: bool = False
) -> None:
    """Check the messages of all segments; neighbouring segments share one step, and together they cover all steps."""
    bounds = []
    for first, rows, exponents in messages.segments(backward_pass, backwards=backwards):
        stop = first + rows.shape[0]
        np.testing.assert_array_equal(rows, expected[0][first:stop])
        np.testing.assert_array_equal(exponents, expected[1][first:stop])
        bounds.append((first, stop - 1))
    if backwards:
        bounds.reverse()
    assert [lo for lo, _ in bounds] == [0, *(hi for _, hi in bounds[:-1])][: len(bounds)]
    if messages.length > 1:
        assert bounds[-1][1] == messages.length - 1
        assert all(lo < hi for lo, hi in bounds)
    else:
        assert bounds == []


@pytest.mark.parametrize("max_bytes", [0.0, 1e9])
@pytest.mark.parametrize("length", LENGTHS)
def test_every_message_is_returned(length: int, max_bytes: float) -> None:
    last = np.linspace(0.3, 0.9, ROW - 2)
    messages, backward_pass = Messages(length, ROW, COLUMNS, max_bytes), CountedRecurrence()
    expected = reference(length, last)
    row, exponent = messages.run_backward(last, backward_pass)
    np.testing.assert_array_equal(row, expected[0][0])
    np.testing.assert_array_equal(exponent, expected[1][0])
    assert backward_pass.steps == length - 1
    check(messages, backward_pass, expected)
    # Each traversal begins with another segment in the buffer.
    check(messages, backward_pass, expected, backwards=True)
    check(messages, backward_pass, expected)


@pytest.mark.parametrize("length", [2, 10, 50])
def test_second_backward_pass_replaces_the_first(length: int) -> None:
    messages, backward_pass = Messages(length, ROW, COLUMNS, 0.0), CountedRecurrence()
    messages.run_backward(np.full(ROW, 0.5), backward_pass)
    for _ in messages.segments(backward_pass):
        pass
    last = np.linspace(0.1, 0.2, ROW - 1)
    messages.run_backward(last, backward_pass)
    check(messages, backward_pass, reference(length, last))


def test_iterators_can_be_abandoned() -> None:
    last = np.full(ROW, 0.5)
    messages, backward_pass = Messages(100, ROW, COLUMNS, 0.0), CountedRecurrence()
    messages.run_backward(last, backward_pass)
    iterator = messages.segments(backward_pass)
    for _ in range(4):
        next(iterator)
    check(messages, backward_pass, reference(100, last))


@pytest.mark.parametrize("length", LENGTHS)
def test_memory_is_about_two_sqrt_of_the_length(length: int) -> None:
    messages = Messages(length, ROW, COLUMNS, 0.0)
    assert messages.nbytes <= 8 * ROW * min(length + 2, 2 * math.isqrt(length) + 4)


@pytest.mark.parametrize("length", LENGTHS)
def test_all_messages_are_stored_if_they_fit(length: int) -> None:
    full = 8 * ROW * length
    assert Messages(length, ROW, COLUMNS, full).nbytes == full
    backward_pass = CountedRecurrence()
    messages = Messages(length, ROW, COLUMNS, full)
    messages.run_backward(np.ones(ROW), backward_pass)
    for _ in messages.segments(backward_pass):
        pass
    assert backward_pass.steps == length - 1  # nothing was computed twice
    if length > 10:
        assert Messages(length, ROW, COLUMNS, full - 1).nbytes < full


@pytest.mark.parametrize("length", [9, 10, 11, 300, 1000])
def test_checkpoints_cost_one_more_backward_pass(length: int) -> None:
    messages, backward_pass = Messages(length, ROW, COLUMNS, 0.0), CountedRecurrence()
    messages.run_backward(np.ones(ROW), backward_pass)
    for _ in messages.segments(backward_pass):
        pass
    assert length - 1 < backward_pass.steps < 2 * (length - 1)


def random_mdp(gamma: float) -> MDP:
    rng = np.random.default_rng(5)
    src, dst = np.repeat(np.arange(6), 3), rng.integers(7, size=18)
    return MDP.from_edges(
        src,
        dst,
        7,
        gamma=gamma,
        p0=rng.dirichlet(np.ones(7)),
        state_features=rng.normal(size=(7, 2)),
        edge_features=rng.normal(size=18),
    )


@pytest.mark.parametrize("gamma", [1.0, 0.97])
@pytest.mark.parametrize("arithmetic", ["linear", "log"])
@pytest.mark.parametrize("length", [1, 2, 3, 16, 17, 18, 50, 101, 257])
def test_path_sums_are_the_same_with_checkpoints(length: int, arithmetic: str, gamma: float) -> None:
    # Weights grow by about e per step, so linear arithmetic rescales often and segments begin at different scales.
    mdp, thetas = random_mdp(gamma), np.array([[0.3, 0.1, 0.2], [0.5, -0.2, -0.1]])
    full = FinitePathSums(mdp, length, arithmetic=arithmetic)
    lean = FinitePathSums(mdp, length, arithmetic=arithmetic, max_bytes=lean_bytes(mdp, length, 2))
    assert length < 9 or lean.buffer(2).nbytes < full.buffer(2).nbytes
    for one, other in zip(full.expected_counts(thetas), lean.expected_counts(thetas), strict=True):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(full.time_marginals(thetas[0]), lean.time_marginals(thetas[0]))
    # A Hessian ends in matrix products, whose last bits depend on the memory alignment of the arrays.
    np.testing.assert_allclose(lean.covariance(thetas[1]), full.covariance(thetas[1]), rtol=1e-11, atol=1e-11)
    samples = [path_sums.sample(thetas[0], 50, np.random.default_rng(0)) for path_sums in (full, lean)]
    np.testing.assert_array_equal(samples[0].states, samples[1].states)


@pytest.mark.parametrize("length", [1, 2, 3, 4, 5, 10, 17, 18, 300, 301])
def test_checkpoints_use_least_rows(length: int) -> None:
    assert Messages(length, ROW, COLUMNS, 0.0).nbytes == 8 * ROW * Messages.least_rows(length)


@pytest.mark.parametrize(("room", "sizes"), [(0, [1] * 5), (1, [1] * 5), (2, [2, 2, 1]), (4, [4, 1]), (9, [5])])
def test_number_of_columns_per_pass_is_limited_by_memory(room: int, sizes: list[int]) -> None:
    mdp, length = random_mdp(0.97), 50
    thetas = np.random.default_rng(0).normal(0.0, 0.3, (5, 3))
    lean = FinitePathSums(mdp, length, max_bytes=lean_bytes(mdp, length, room))
    assert [columns.size for columns, _ in lean.passes(thetas)] == sizes
    for one, other in zip(
        FinitePathSums(mdp, length).expected_counts(thetas), lean.expected_counts(thetas), strict=True
    ):
        np.testing.assert_array_equal(one, other)


def test_buffers_are_reused_between_evaluations() -> None:
    path_sums = FinitePathSums(random_mdp(1.0), 20)
    assert path_sums.buffer(2) is path_sums.buffer(2)
    thetas = np.array([[0.3, 0.1, 0.2], [0.5, -0.2, -0.1]])
    before = path_sums.expected_counts(thetas)
    path_sums.expected_counts(-thetas)
    path_sums.expected_counts(thetas[:1])
    for one, other in zip(before, path_sums.expected_counts(thetas), strict=True):
        np.testing.assert_array_equal(one, other)
