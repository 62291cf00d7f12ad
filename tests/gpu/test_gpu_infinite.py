"""Trajectories of unbounded length on a GPU, or its emulation, against the CPU: log Z, gradients, divergence, fits."""

from typing import Any

import numpy as np
import pytest

from limiirl import MDP, Demonstrations, IntentMixture, MaxEnt
from limiirl.errors import ConvergenceWarning, DivergentPartition, InvalidParameter, NumericalError
from limiirl.irl.estimator import GPU_MIN_SIZE
from limiirl.irl.maxent import gpu_infinite
from limiirl.irl.maxent.gpu_infinite import GpuInfinitePathSums
from limiirl.irl.maxent.infinite_horizon import InfinitePathSums
from tests.helpers import raises
from tests.oracles.gpu_cases import NO_DEVICE, ONLY_REAL, WORLDS, assert_same, costly_world, device

pytestmark = NO_DEVICE


def starts_of(mdp: MDP, K: int, allowed: np.ndarray | None = None) -> np.ndarray:
    """Distributions of start states (S, K), each of some states alone."""
    rng = np.random.default_rng(5)
    share = rng.random((mdp.n_states, K)) * (rng.random((mdp.n_states, K)) < 0.4)
    if allowed is not None:
        share[~allowed] = 0.0
    share[-1 if allowed is None else np.flatnonzero(allowed)[0]] += 0.1
    return share / share.sum(axis=0)


def with_ends(mdp: MDP) -> MDP:
    """Return the MDP with two absorbing states, and with state 2 leading to itself alone, so that it never ends."""
    kept = ~np.isin(mdp.src, [0, 4]) & ~((mdp.src == 2) & (mdp.dst != 2))
    src, dst = np.append(mdp.src[kept], 2), np.append(mdp.dst[kept], 2)
    p0 = np.arange(mdp.n_states) % 3 + 0.0
    ends = MDP.from_edges(src, dst, mdp.n_states, state_features=mdp.state_features, p0=p0 / p0.sum())
    rng = np.random.default_rng(7)
    given = {"action_features": rng.random((ends.n_pairs, 1)), "edge_features": rng.random((ends.n_edges, 1))}
    return ends.replace(feature_names=None, **given)


@pytest.fixture
def nothing_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """Raise an error if the device leaves work to the CPU."""
    monkeypatch.setattr(InfinitePathSums, "_factor", None)


def both(mdp: MDP, **options: Any) -> tuple[GpuInfinitePathSums, InfinitePathSums]:
    return GpuInfinitePathSums(mdp, device(), **options), InfinitePathSums(mdp, **options)


def compare(mdp: MDP, thetas: np.ndarray, starts: np.ndarray | None = None, **options: Any) -> None:
    gpu, cpu = both(mdp, **options)
    expected = cpu.value_and_grad(thetas, starts=starts)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(InfinitePathSums, "_factor", None)  # a call raises TypeError
        actual = gpu.value_and_grad(thetas, starts=starts)
        log_Z = gpu.log_partition(thetas, starts=starts)
    for one, other in zip(actual, expected, strict=True):
        assert_same(one, other)
    np.testing.assert_array_equal(log_Z, actual[0])


@pytest.mark.parametrize("by_start", [False, True])
@pytest.mark.parametrize("kind", WORLDS)
def test_log_partitions_and_gradients(kind: str, by_start: bool) -> None:
    compare(*costly_world(**WORLDS[kind]), by_start=by_start)


@pytest.mark.parametrize("K", [1, 9])
def test_any_number_of_intents(K: int) -> None:
    compare(*costly_world(K=K))
    mdp, thetas = costly_world(K=K, stochastic=True, kinds="state action")
    compare(mdp, thetas, starts_of(mdp, K), by_start=True)


@pytest.mark.parametrize("by_start", [False, True])
def test_trajectories_that_end_in_terminal_states(by_start: bool) -> None:
    mdp, thetas = costly_world()
    ends, thetas = with_ends(mdp), np.column_stack([thetas, np.full((3, 2), [-0.3, 0.2])])
    if by_start:
        allowed = np.zeros(mdp.n_states, dtype=bool)
        allowed[ends.terminal] = True
        for _ in range(mdp.n_states):
            np.logical_or.at(allowed, ends.src, allowed[ends.dst])
        assert 3 < allowed.sum() < mdp.n_states
        compare(ends, thetas, starts_of(ends, 3, allowed), stop="terminal", by_start=True)
        with raises(InvalidParameter, parameter="stop", value="terminal"):
            both(ends, stop="terminal", by_start=True)[0].value_and_grad(thetas)
    else:
        compare(ends, thetas, stop="terminal")


def test_edges_side_by_side_and_rewards_of_edges_alone() -> None:
    src, dst = np.array([0, 0, 0, 1, 2]), np.array([1, 1, 2, 2, 0])
    mdp = MDP.from_edges(src, dst, 3, state_features=None, edge_features=[[1.0], [2.0], [1.0], [3.0], [1.0]])
    compare(mdp, np.array([[-1.0], [-2.0]]), by_start=True)
    compare(MDP.from_edges(src, dst, 3), np.full((1, 3), -1.0))


def test_given_starts_without_conditioning_are_left_to_the_cpu() -> None:
    mdp, thetas = costly_world()
    gpu, cpu = both(mdp)
    starts = starts_of(mdp, 3)
    for one, other in zip(
        gpu.value_and_grad(thetas, starts=starts), cpu.value_and_grad(thetas, starts=starts), strict=True
    ):
        np.testing.assert_array_equal(one, other)


def two_cycles(theta: float) -> tuple[MDP, np.ndarray]:
    """Two pairs of states that lead to each other, without a path between the pairs; the second pair is costly."""
    mdp = MDP.from_edges([0, 1, 2, 3], [1, 0, 3, 2], 4, p0=[0, 0, 1, 0], state_features=[[1, 0]] * 2 + [[0, 1]] * 2)
    return mdp, np.array([[theta, -1.0]])


@pytest.mark.usefixtures("nothing_left")
def test_divergence_is_reported_without_the_cpu() -> None:
    mdp, thetas = two_cycles(0.5)
    with raises(DivergentPartition, parameter="thetas", index=0):
        both(mdp.replace(p0=[0.5, 0, 0.5, 0]))[0].value_and_grad(thetas)
    starts = np.array([[0.0, 0.5], [0, 0], [1.0, 0.5], [0, 0]])
    with raises(DivergentPartition, parameter="thetas", index=1):
        both(mdp, by_start=True)[0].value_and_grad(np.repeat(thetas, 2, axis=0), starts=starts)


def test_unreachable_loops_have_no_effect() -> None:
    mdp, thetas = two_cycles(0.5)
    compare(mdp, thetas)
    gpu, cpu = both(mdp, by_start=True)  # by start, other starts are possible: elimination fails, and the CPU does not
    for one, other in zip(gpu.value_and_grad(thetas), cpu.value_and_grad(thetas), strict=True):
        np.testing.assert_array_equal(one, other)


def test_an_infinite_sum_in_a_later_batch_is_judged_by_its_own_starts() -> None:
    mdp, thetas = two_cycles(0.5)
    starts = np.zeros((4, 9))
    starts[2] = 1.0  # what the first eight columns start from, and the ninth does not
    starts[:, 8] = [1.0, 0.0, 0.0, 0.0]
    gpu = both(mdp, by_start=True)[0]
    with raises(DivergentPartition, parameter="thetas"):
        gpu.value_and_grad(np.repeat(thetas, 9, axis=0), starts=starts)
    assert np.all(np.isfinite(gpu.value_and_grad(np.repeat(thetas, 8, axis=0), starts=starts[:, :8])[0]))


@pytest.mark.parametrize("theta", [-1e-13, -1e-10, 0.0, 1e-12])
def test_loops_of_weight_near_one_are_left_to_the_cpu(theta: float) -> None:
    mdp, thetas = two_cycles(theta)
    gpu, cpu = both(mdp.replace(p0=[1, 0, 0, 0]))
    outcomes = []
    for sums in (gpu, cpu):
        try:
            outcomes.append(str(sums.value_and_grad(thetas)[0][0]))
        except DivergentPartition as error:
            outcomes.append(str(error))
    assert outcomes[0] == outcomes[1]


def test_one_column_left_to_the_cpu_leaves_the_others() -> None:
    mdp, thetas = costly_world()
    thetas[1, 0] = -800.0  # weights of trajectories underflow
    gpu, cpu = both(mdp)
    for one, other in zip(gpu.value_and_grad(thetas), cpu.value_and_grad(thetas), strict=True):
        assert_same(one, other)
    thetas[1, 0] = 1e3  # overflows on the CPU; in logarithms the sum is detected as infinite
    with raises(DivergentPartition, parameter="thetas"):
        gpu.value_and_grad(thetas)
    thetas[1] = 1.7e308
    with pytest.raises(NumericalError, match="overflows float64"):
        gpu.value_and_grad(thetas)


@pytest.mark.usefixtures("on_device")
def test_a_fit_and_a_mixture(monkeypatch: pytest.MonkeyPatch) -> None:
    mdp, thetas = costly_world(K=2)
    model = MaxEnt(np.inf, (-8, 2), solver="lbfgs", gtol=1e-9)
    demos = model.sample(mdp, thetas[0], 60, 0)
    calls = []
    monkeypatch.setattr(gpu_infinite, "GpuPathSums", _count_calls(gpu_infinite.GpuPathSums, calls))
    on_gpu = MaxEnt(np.inf, (-8, 2), solver="lbfgs", gtol=1e-9, device="gpu").fit(mdp, demos)
    assert calls
    np.testing.assert_allclose(on_gpu, model.fit(mdp, demos), rtol=1e-6, atol=1e-7)
    log_likelihoods = []
    for name in ("gpu", "cpu"):
        irl = MaxEnt(np.inf, (-8, 2), condition="start", device=name)
        with pytest.warns(ConvergenceWarning, match="EM did not converge in 3 iterations"):
            log_likelihoods.append(IntentMixture(2, irl, max_iter=3, random_state=0).fit(mdp, demos).log_likelihood_)
    np.testing.assert_allclose(log_likelihoods[0], log_likelihoods[1], rtol=1e-8)


def _count_calls(kind: Any, calls: list[int]) -> Any:
    def make(*args: Any) -> Any:
        calls.append(1)
        return kind(*args)

    return make


@pytest.mark.parametrize("solver", ["lbfgs", "newton"])
@pytest.mark.usefixtures("on_device")
def test_intents_are_evaluated_together(monkeypatch: pytest.MonkeyPatch, solver: str) -> None:
    mdp, thetas = costly_world(K=1)
    demos = MaxEnt(np.inf).sample(mdp, thetas[0], 40, 0)
    weights = np.random.default_rng(0).random((40, 3))
    sizes, expectation = [], GpuInfinitePathSums.value_and_grad

    def record_size(self: Any, thetas: np.ndarray, *, starts: Any = None) -> Any:
        sizes.append(len(thetas))
        return expectation(self, thetas, starts=starts)

    monkeypatch.setattr(GpuInfinitePathSums, "value_and_grad", record_size)
    on_gpu, on_cpu = (
        MaxEnt(np.inf, (-8, 2), solver=solver, device=name).fit_many(mdp, demos, weights) for name in ("gpu", "cpu")
    )
    assert sizes.count(3) > len(sizes) / 2
    np.testing.assert_allclose(on_gpu, on_cpu, rtol=1e-4, atol=1e-4)


@pytest.mark.usefixtures("on_device")
def test_max_memory_limits_the_columns() -> None:
    mdp, thetas = costly_world(K=5)
    sums = MaxEnt(np.inf, max_memory=1.0, device="gpu").path_sums(mdp)
    assert isinstance(sums, GpuInfinitePathSums)
    assert sums._values.columns(5) == [range(k, k + 1) for k in range(5)]
    assert_same(sums.value_and_grad(thetas)[0], InfinitePathSums(mdp).value_and_grad(thetas)[0])


@pytest.mark.usefixtures("on_device")
def test_a_fit_survives_underflow_of_the_hessian() -> None:
    # The weight of trajectories from state 2, which few pass, underflows; log Z does not.
    src, dst = [0, 0, 2, 3], [1, 2, 3, 1]
    mdp = MDP.from_edges(src, dst, 4, p0=[1, 0, 0, 0], state_features=[[0, 0], [0, 0], [1, 0], [800, 0.5]])
    demos = Demonstrations.from_lists([[0, 1]] * 3)
    model = MaxEnt(np.inf, (-1, -0.99), stop="terminal", solver="lbfgs", device="gpu")
    with pytest.raises(NumericalError, match="underflows"):
        InfinitePathSums(mdp, stop="terminal").covariance(np.array([-1.0, -1.0]))
    assert model.fit(mdp, demos).shape == (2,)
    assert model.result_.null_directions.shape == (0, 2)


@pytest.mark.usefixtures("on_device")
def test_auto_uses_the_gpu_for_large_mdps() -> None:
    model = MaxEnt(np.inf, device="auto")
    small, large = (MDP.from_edges(np.arange(n - 1), np.arange(1, n), n) for n in (50, GPU_MIN_SIZE))
    assert type(model.path_sums(small)) is InfinitePathSums
    assert type(model.path_sums(large)) is GpuInfinitePathSums


@ONLY_REAL
@pytest.mark.parametrize("by_start", [False, True])
@pytest.mark.parametrize("options", [{"n_states": 3000}, {"n_states": 2000, "stochastic": True, "kinds": "state edge"}])
def test_large_worlds(options: dict[str, Any], by_start: bool) -> None:
    mdp, thetas = costly_world(**options)
    compare(mdp, thetas, starts_of(mdp, 3) if by_start else None, by_start=by_start)
