"""Messages: checkpoints give back every message, bit for bit, from a bounded number of rows."""

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


class Recurrence:
    """A stand-in for a backward sweep: each message depends on the next one and on its step, and counts its calls."""

    def __init__(self) -> None:
        self.steps = 0

    def __call__(self, rows: Float, exponents: Int, t: int) -> None:
        for i in range(rows.shape[0] - 2, -1, -1):
            rows[i] = np.sin(rows[i + 1] * (t + i + 1)) + np.arange(ROW)
            exponents[i] = exponents[i + 1] + (t + i) % 3 + np.arange(COLUMNS)
            self.steps += 1


def truth(length: int, last: Float) -> tuple[Float, Int]:
    rows, exponents = np.zeros((length, ROW)), np.zeros((length, COLUMNS), dtype=np.int64)
    rows[-1, : last.size] = last
    Recurrence()(rows, exponents, 0)
    return rows, exponents


def check(messages: Messages, sweep: Callable[..., None], expected: tuple[Float, Int], backwards: bool = False) -> None:
    """Read all stretches; each must hold the true messages, and together every step, neighbours sharing one."""
    reached = []
    for first, rows, exponents in messages.segments(sweep, backwards=backwards):
        after = first + rows.shape[0]
        np.testing.assert_array_equal(rows, expected[0][first:after])
        np.testing.assert_array_equal(exponents, expected[1][first:after])
        reached.append((first, after - 1))
    if backwards:
        reached.reverse()
    assert [lo for lo, _ in reached] == [0, *(hi for _, hi in reached[:-1])][: len(reached)]
    if messages.length > 1:
        assert reached[-1][1] == messages.length - 1
        assert all(lo < hi for lo, hi in reached)
    else:
        assert reached == []


@pytest.mark.parametrize("max_bytes", [0.0, 1e9])
@pytest.mark.parametrize("length", LENGTHS)
def test_gives_back_every_message(length: int, max_bytes: float) -> None:
    last = np.linspace(0.3, 0.9, ROW - 2)
    messages, sweep = Messages(length, ROW, COLUMNS, max_bytes), Recurrence()
    expected = truth(length, last)
    row, exponent = messages.run_backward(last, sweep)
    np.testing.assert_array_equal(row, expected[0][0])
    np.testing.assert_array_equal(exponent, expected[1][0])
    assert sweep.steps == length - 1
    check(messages, sweep, expected)
    # Against time after along it, and along it again: what lies in place is another stretch each time.
    check(messages, sweep, expected, backwards=True)
    check(messages, sweep, expected)


@pytest.mark.parametrize("length", [2, 10, 50])
def test_a_second_sweep_forgets_the_first(length: int) -> None:
    messages, sweep = Messages(length, ROW, COLUMNS, 0.0), Recurrence()
    messages.run_backward(np.full(ROW, 0.5), sweep)
    for _ in messages.segments(sweep):
        pass
    last = np.linspace(0.1, 0.2, ROW - 1)
    messages.run_backward(last, sweep)
    check(messages, sweep, truth(length, last))


def test_an_abandoned_walk_does_no_harm() -> None:
    last = np.full(ROW, 0.5)
    messages, sweep = Messages(100, ROW, COLUMNS, 0.0), Recurrence()
    messages.run_backward(last, sweep)
    walk = messages.segments(sweep)
    for _ in range(4):
        next(walk)
    check(messages, sweep, truth(100, last))


@pytest.mark.parametrize("length", LENGTHS)
def test_memory_is_about_two_square_roots_of_the_length(length: int) -> None:
    messages = Messages(length, ROW, COLUMNS, 0.0)
    assert messages.nbytes <= 8 * ROW * min(length + 2, 2 * math.isqrt(length) + 4)


@pytest.mark.parametrize("length", LENGTHS)
def test_all_are_kept_exactly_where_they_fit(length: int) -> None:
    full = 8 * ROW * length
    assert Messages(length, ROW, COLUMNS, full).nbytes == full
    sweep = Recurrence()
    messages = Messages(length, ROW, COLUMNS, full)
    messages.run_backward(np.ones(ROW), sweep)
    for _ in messages.segments(sweep):
        pass
    assert sweep.steps == length - 1  # nothing was computed twice
    if length > 10:
        assert Messages(length, ROW, COLUMNS, full - 1).nbytes < full


@pytest.mark.parametrize("length", [9, 10, 11, 300, 1000])
def test_checkpoints_cost_one_more_backward_sweep(length: int) -> None:
    messages, sweep = Messages(length, ROW, COLUMNS, 0.0), Recurrence()
    messages.run_backward(np.ones(ROW), sweep)
    for _ in messages.segments(sweep):
        pass
    assert length - 1 < sweep.steps < 2 * (length - 1)


def _world(gamma: float) -> MDP:
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
@pytest.mark.parametrize("space", ["linear", "log"])
@pytest.mark.parametrize("length", [1, 2, 3, 16, 17, 18, 50, 101, 257])
def test_an_engine_gives_the_same_bits_with_checkpoints(length: int, space: str, gamma: float) -> None:
    # Growth of about e a step, so that linear space is rescaled many times and stretches begin at scales of their own.
    mdp, thetas = _world(gamma), np.array([[0.3, 0.1, 0.2], [0.5, -0.2, -0.1]])
    full = FinitePathSums(mdp, length, arithmetic=space)
    lean = FinitePathSums(mdp, length, arithmetic=space, max_bytes=lean_bytes(mdp, length, 2))
    assert length < 9 or lean.buffer(2).nbytes < full.buffer(2).nbytes
    for one, other in zip(full.expected_counts(thetas), lean.expected_counts(thetas), strict=True):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(full.time_marginals(thetas[0]), lean.time_marginals(thetas[0]))
    # A Hessian ends in matrix products, whose last bits depend on where the arrays lie in memory.
    np.testing.assert_allclose(lean.covariance(thetas[1]), full.covariance(thetas[1]), rtol=1e-11, atol=1e-11)
    drawn = [engine.sample(thetas[0], 50, np.random.default_rng(0)) for engine in (full, lean)]
    np.testing.assert_array_equal(drawn[0].states, drawn[1].states)


@pytest.mark.parametrize("length", [1, 2, 3, 4, 5, 10, 17, 18, 300, 301])
def test_the_rows_of_checkpoints_are_as_many_as_said(length: int) -> None:
    assert Messages(length, ROW, COLUMNS, 0.0).nbytes == 8 * ROW * Messages.least_rows(length)


@pytest.mark.parametrize(("room", "sizes"), [(0, [1] * 5), (1, [1] * 5), (2, [2, 2, 1]), (4, [4, 1]), (9, [5])])
def test_as_many_intents_are_swept_together_as_have_room(room: int, sizes: list[int]) -> None:
    mdp, length = _world(0.97), 50
    thetas = np.random.default_rng(0).normal(0.0, 0.3, (5, 3))
    lean = FinitePathSums(mdp, length, max_bytes=lean_bytes(mdp, length, room))
    assert [columns.size for columns, _ in lean.passes(thetas)] == sizes
    for one, other in zip(
        FinitePathSums(mdp, length).expected_counts(thetas), lean.expected_counts(thetas), strict=True
    ):
        np.testing.assert_array_equal(one, other)


def test_a_buffer_is_kept_from_one_evaluation_to_the_next() -> None:
    engine = FinitePathSums(_world(1.0), 20)
    assert engine.buffer(2) is engine.buffer(2)
    thetas = np.array([[0.3, 0.1, 0.2], [0.5, -0.2, -0.1]])
    before = engine.expected_counts(thetas)
    engine.expected_counts(-thetas)
    engine.expected_counts(thetas[:1])
    for one, other in zip(before, engine.expected_counts(thetas), strict=True):
        np.testing.assert_array_equal(one, other)
