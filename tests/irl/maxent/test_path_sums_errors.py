"""Path sums return finite values or raise an error of the library, without NumPy warnings."""

import re

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from limiirl.errors import DivergentPartition, InvalidParameter, LimiirlError, NumericalError
from limiirl.irl.maxent.infinite_horizon import InfinitePathSums
from limiirl.irl.maxent.path_sums import FinitePathSums
from limiirl.mdp import MDP
from tests.helpers import examples, raises

Float = NDArray[np.float64]
STATE_AND_STEP = r"(?=.*\bstate \d+)(?=.*\bstep \d+)"


def loop(gamma: float = 1.0) -> MDP:
    return MDP.from_edges([0, 0, 1, 1], [0, 1, 0, 1], p0=[1, 0], gamma=gamma)


@pytest.mark.parametrize("method", ["expected_counts", "log_partition", "log_partition_by_start"])
@pytest.mark.parametrize("reward", [500.0, 710.0, 1e3, 1e10, 1e300])
@pytest.mark.parametrize("gamma", [1.0, 0.9])
def test_linear_overflow_names_state_and_step(reward: float, gamma: float, method: str) -> None:
    path_sums = FinitePathSums(loop(gamma), 20, arithmetic="linear")
    with pytest.raises(
        NumericalError, match=STATE_AND_STEP + r".*Use arithmetic='auto' or 'log', or smaller rewards\."
    ):
        getattr(path_sums, method)(np.full((1, 2), reward))


@pytest.mark.parametrize("method", ["covariance", "time_marginals"])
def test_linear_overflow_names_state_and_step_for_one_theta(method: str) -> None:
    path_sums = FinitePathSums(loop(), 20, arithmetic="linear")
    with pytest.raises(NumericalError, match=STATE_AND_STEP):
        getattr(path_sums, method)(np.full(2, 1e3))
    with pytest.raises(NumericalError, match=STATE_AND_STEP):
        path_sums.sample(np.full(2, 1e3), 3, np.random.default_rng(0))


@pytest.mark.parametrize("max_bytes", [0.0, 1e9])
def test_overflow_error_names_the_first_state_and_step(max_bytes: float) -> None:
    # Only state 3 has a reward. Backwards from step 9 its weight is e^300, then e^600, and overflows at step 7.
    mdp = MDP.from_edges([0, 0, 3, 3], [0, 3, 3, 0], n_states=5, p0=[1, 0, 0, 0, 0])
    path_sums = FinitePathSums(mdp, 10, arithmetic="linear", max_bytes=max_bytes)
    with pytest.raises(NumericalError, match=r"step 7, state 3\b"):
        path_sums.expected_counts(np.array([[0.0, 0.0, 0.0, 300.0, 0.0]]))


def test_linear_underflow_of_a_start_names_it() -> None:
    # State 2 ends at once; relative to the 2^1999 trajectories of state 0 its weight underflows.
    mdp = MDP.from_edges([0, 0, 1, 1], [0, 1, 0, 1], n_states=3, p0=[0.5, 0, 0.5])
    with pytest.raises(NumericalError, match=STATE_AND_STEP + r".*state 2\b"):
        FinitePathSums(mdp, 2000, arithmetic="linear").expected_counts(np.zeros((1, 3)))
    assert FinitePathSums(mdp, 2000).expected_counts(np.zeros((1, 3))).log_Z[0] == pytest.approx(
        2000 * np.log(2) + np.log(0.5), rel=1e-12
    )


@pytest.mark.parametrize("arithmetic", ["linear", "log", "auto"])
def test_largest_rewards_overflow(arithmetic: str) -> None:
    for theta in ([1e308, 1e308], [1.7e308, -1.7e308]):
        with pytest.raises(NumericalError, match=STATE_AND_STEP):
            FinitePathSums(loop(), 10, arithmetic=arithmetic).expected_counts(np.array([theta]))


def test_smallest_rewards_are_exact() -> None:
    counts = FinitePathSums(loop(), 10).expected_counts(np.full((1, 2), -1.7e308))
    np.testing.assert_array_equal(counts.log_Z, [-1.7e308])
    np.testing.assert_array_equal(counts.node[:, 0], [1.0, 0.0])


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("state", r"state 1 at step 0"),
        ("edge", r"edge 1 .*at step 0|edge 1 at step 0"),
        ("action", r"edge 1 at step 0"),
    ],
)
def test_overflow_of_features_times_theta(kind: str, message: str) -> None:
    rows = {f"{kind}_features": np.array([[1.0, 1.0], [1e200, 1.0]])}
    mdp = MDP.from_edges([0, 1], [1, 0], **rows)
    with pytest.raises(NumericalError, match=message + r".*Use smaller parameters or features\."):
        FinitePathSums(mdp, 10).expected_counts(np.array([[1e200, 0.0]]))
    # Infinities of opposite sign would add up to NaN.
    with pytest.raises(NumericalError, match=message):
        FinitePathSums(mdp.replace(**{f"{kind}_features": np.array([[1.0, 1.0], [1e200, 1e200]])}), 10).expected_counts(
            np.array([[1e200, -1e200]])
        )


def test_overflow_in_an_unreachable_state() -> None:
    mdp = MDP.from_edges([0, 1, 1], [0, 1, 1], p0=[1, 0])
    path_sums = FinitePathSums(mdp, 5)
    theta = np.array([[0.0, 1.7e308]])
    # The result does not depend on that state. An error that names it is acceptable; infinity or NaN is not.
    try:
        counts = path_sums.expected_counts(theta)
    except NumericalError as error:
        assert re.search(r"state 1\b", str(error))  # noqa: PT017 (an error is one of two correct outcomes)
    else:
        np.testing.assert_allclose(counts.log_Z, np.log(5.0), rtol=1e-14)
        np.testing.assert_allclose(counts.node[:, 0], [3.0, 0.0], rtol=1e-14)
    with pytest.raises(NumericalError, match=r"state 1\b"):
        path_sums.log_partition_by_start(theta)


def test_hessian_overflow_names_features() -> None:
    mdp = MDP.from_edges([0], [1], p0=[1, 0], state_features=[[1e200], [1.0]])
    for path_sums in (FinitePathSums(mdp, 5), InfinitePathSums(mdp)):
        with pytest.raises(NumericalError, match=r"feature"):
            path_sums.covariance(np.zeros(1))


@pytest.mark.parametrize("by_start", [False, True])
def test_no_terminal_state_within_max_length(by_start: bool) -> None:
    mdp = MDP.from_edges([0, 1, 2], [1, 2, 3], p0=[0, 1, 0, 0])
    with raises(InvalidParameter, parameter="stop", value="terminal", index=1):
        FinitePathSums(mdp, 2, stop="terminal", by_start=by_start).expected_counts(np.zeros((1, 4)))
    assert FinitePathSums(mdp, 3, stop="terminal", by_start=by_start).log_partition(np.zeros((1, 4)))[0] == 0.0


def test_start_that_cannot_end_is_an_error_only_by_start() -> None:
    mdp = MDP.from_edges([0, 1, 1], [2, 1, 0], p0=[0.5, 0.5, 0], terminal=[2])
    assert np.isfinite(FinitePathSums(mdp, 2, stop="terminal").expected_counts(np.zeros((1, 3))).log_Z[0])
    with raises(InvalidParameter, parameter="stop", value="terminal", index=1):
        FinitePathSums(mdp, 2, stop="terminal", by_start=True).expected_counts(np.zeros((1, 3)))


@pytest.mark.parametrize("arithmetic", ["auto", "log", "linear"])
def test_states_that_cannot_end_are_allowed_outside_the_start_distribution(arithmetic: str) -> None:
    mdp = MDP.from_edges([0, 1], [2, 1], p0=[1, 0, 0], terminal=[2])
    counts = FinitePathSums(mdp, 5, stop="terminal", by_start=True, arithmetic=arithmetic).expected_counts(
        np.zeros((1, 3))
    )
    np.testing.assert_array_equal(counts.log_Z, [0.0])
    np.testing.assert_array_equal(counts.node[:, 0], [1.0, 0.0, 1.0])


def test_linear_underflow_is_not_reported_as_an_impossible_end() -> None:
    mdp = MDP.from_edges([0], [1], p0=[1, 0])
    with pytest.raises(NumericalError, match=STATE_AND_STEP):
        FinitePathSums(mdp, 5, stop="terminal", arithmetic="linear").expected_counts(np.array([[0.0, -1000.0]]))
    assert FinitePathSums(mdp, 5, stop="terminal").log_partition(np.array([[0.0, -1000.0]]))[0] == -1000.0


@pytest.mark.parametrize("stop", ["never", "", "Anywhere"])
def test_unknown_stop(stop: str) -> None:
    with raises(InvalidParameter, parameter="stop", value=stop):
        FinitePathSums(loop(), 5, stop=stop)


def test_unknown_arithmetic() -> None:
    with raises(InvalidParameter, parameter="arithmetic", value="double"):
        FinitePathSums(loop(), 5, arithmetic="double")


@pytest.mark.parametrize("theta", [[np.nan, 0.0], [0.0, np.inf], [-np.inf, 0.0]])
def test_theta_must_be_finite(theta: list[float]) -> None:
    with pytest.raises(LimiirlError, match=r"finite"):
        FinitePathSums(loop(), 5).expected_counts(np.array([theta]))


@pytest.mark.parametrize("reward", [-1.0, -2000.0])
def test_start_that_cannot_end_with_unbounded_length(reward: float) -> None:
    # State 1 loops forever; state 0 ends, at a cost.
    mdp = MDP.from_edges([0, 1], [2, 1], p0=[0.5, 0.5, 0], terminal=[2])
    theta = np.array([[reward, 0.0, 0.0]])
    counts = InfinitePathSums(mdp, stop="terminal").expected_counts(theta)
    np.testing.assert_allclose(counts.log_Z, reward + np.log(0.5), rtol=1e-14)
    np.testing.assert_allclose(counts.node[:, 0], [1.0, 0.0, 1.0], rtol=1e-14)
    with raises(InvalidParameter, parameter="stop", value="terminal", index=1):
        InfinitePathSums(mdp, stop="terminal", by_start=True).expected_counts(theta)


def test_divergence_and_overflow_with_unbounded_length() -> None:
    with raises(DivergentPartition, parameter="thetas"):
        InfinitePathSums(loop()).expected_counts(np.zeros((1, 2)))
    with pytest.raises(NumericalError, match=STATE_AND_STEP):
        InfinitePathSums(loop()).expected_counts(np.array([[0.0, 1e3]]))


EXTREMES = [
    0.0,
    -0.0,
    5e-324,
    1e-300,
    1e-3,
    1.0,
    17.3,
    350.0,
    700.0,
    708.5,
    709.9,
    745.5,
    1e3,
    1e5,
    1e10,
    1e150,
    1e155,
    1e300,
    1.7e308,
]
extremes = st.builds(lambda sign, size: sign * size, st.sampled_from([1.0, -1.0]), st.sampled_from(EXTREMES))
numbers = st.one_of(extremes, st.floats(allow_nan=False, allow_infinity=False), st.floats(-1000.0, 1000.0))


@st.composite
def problems(draw: st.DrawFn) -> tuple[MDP, Float, int]:
    """Draw an MDP with four states and at most six deterministic edges, extreme parameters, and a length."""
    n_edges = draw(st.integers(1, 6))
    src, dst = (draw(st.lists(st.integers(0, 3), min_size=n_edges, max_size=n_edges)) for _ in range(2))
    starts = draw(st.sampled_from([[1, 0, 0, 0], [0.5, 0.5, 0, 0], [1e-300, 1, 0, 0], [0.25] * 4, [5e-324, 1, 0, 0]]))
    gamma = draw(st.sampled_from([1.0, 0.99, 0.5, 1e-3]))
    sizes = draw(st.sampled_from([1.0, 1e-200, 1e150, 1e200]))
    theta = np.array(draw(st.lists(numbers, min_size=5, max_size=5)))
    mdp = MDP.from_edges(
        src,
        dst,
        4,
        p0=starts,
        gamma=gamma,
        state_features=np.eye(4) * [1, 1, 1, sizes],
        edge_features=np.linspace(0.5, 1, n_edges),
    )
    return mdp, theta, draw(st.sampled_from([1, 2, 3, 17, 40, 1200]))


def _assert_finite(values: Float, empty: bool = False) -> None:
    """Assert that values are finite; `empty` also allows log 0 = -inf."""
    assert np.all(np.isfinite(values) | (empty & (values == -np.inf)))


@settings(max_examples=examples(150))
@given(
    problems(),
    st.sampled_from(["auto", "linear", "log"]),
    st.sampled_from(["anywhere", "terminal", "terminal_or_max_length"]),
    st.booleans(),
)
@example((MDP.from_edges([0], [1], p0=[1, 0]), np.array([1000.0, 0.0]), 2), "auto", "anywhere", False)
@example(
    (
        MDP.from_edges(
            [0, 0, 0, 0, 0, 1], [0, 0, 0, 0, 0, 1], 4, p0=[1, 0, 0, 0], edge_features=[0.5, 0.6, 0.7, 0.8, 1.0, 0.9]
        ),
        np.array([-53.0, 0.0, 0.0, 0.0, 117.0]),
        1200,
    ),
    "auto",
    "anywhere",
    False,
)
def test_results_are_finite_or_a_library_error(
    problem: tuple[MDP, Float, int], arithmetic: str, stop: str, by_start: bool
) -> None:
    mdp, theta, length = problem
    path_sums = FinitePathSums(mdp, length, stop=stop, by_start=by_start, arithmetic=arithmetic, max_bytes=2000.0)
    try:
        counts = path_sums.expected_counts(theta[None], edges=True)
    except LimiirlError:
        counts = None
    if counts is not None:
        assert counts.edge is not None
        for values in counts:
            _assert_finite(values)
        assert np.all(counts.node >= 0.0)
        assert np.all(counts.edge >= 0.0)
        if np.abs(theta).max() <= 1e3 and mdp.state_features.max() <= 1.0:
            # Each log step rounds log alpha, which is at most about log Z; the errors add up over the steps.
            rounding = length * np.finfo(float).eps * np.abs(counts.log_Z).max()
            assert counts.node.sum() <= length * (1 + 1e-9 + rounding)
    for call in (
        lambda: _assert_finite(path_sums.log_partition_by_start(theta[None]), empty=True),
        lambda: _assert_finite(path_sums.covariance(theta)),
        lambda: _assert_finite(path_sums.time_marginals(theta)),
        lambda: path_sums.sample(theta, 2, np.random.default_rng(0)),
    ):
        try:
            call()
        except LimiirlError:
            continue


@settings(max_examples=examples(60))
@given(problems(), st.sampled_from(["anywhere", "terminal"]), st.booleans())
def test_results_are_finite_or_a_library_error_with_unbounded_length(
    problem: tuple[MDP, Float, int], stop: str, by_start: bool
) -> None:
    mdp, theta, _ = problem
    path_sums = InfinitePathSums(mdp.replace(gamma=1.0), stop=stop, by_start=by_start)
    for call in (
        lambda: [_assert_finite(values) for values in path_sums.expected_counts(theta[None], edges=True)],
        lambda: _assert_finite(path_sums.log_partition_by_start(theta[None]), empty=True),
        lambda: _assert_finite(path_sums.covariance(theta)),
    ):
        try:
            call()
        except LimiirlError:
            continue
