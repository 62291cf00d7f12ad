"""`MLIRL` on a GPU, or its emulation, against the CPU: hard and averaged values, ties, gradients, memory and fits."""

import contextlib
import io
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone

from limiirl import MDP, MLIRL, Demonstrations, IntentMixture
from limiirl.cli import main
from limiirl.errors import BackendUnavailable, DivergentPartition, InvalidParameter
from limiirl.irl.causal.finite_horizon import SoftmaxAverageSolver
from limiirl.irl.causal.gpu import GpuHardBellmanSolver, GpuSoftmaxAverageSolver
from limiirl.irl.causal.state_actions import StateActions
from limiirl.irl.causal.stationary import HardBellmanSolver
from limiirl.kernels.soft_bellman import ObservedPairs
from tests.gpu.emulator import EmulatedDevice
from tests.helpers import raises
from tests.oracles.gpu_cases import (
    NEEDS_COMPILER,
    NO_DEVICE,
    ONLY_REAL,
    WORLDS,
    Case,
    assert_same,
    device,
    make_case,
)
from tests.oracles.gpu_choices import circle, compare, events_of, walks

pytestmark = NO_DEVICE
BETA = 0.7


class OnDeviceOnly(GpuHardBellmanSolver):
    """Hard values that may not be left to the CPU."""

    def solve_on_cpu(self, thetas: Any, moves: Any) -> Any:
        raise AssertionError("left to the CPU")


def compare_hard(case: Case, on: Any = None) -> None:
    choices = StateActions(case.mdp)
    compare(OnDeviceOnly(choices, BETA, on or device()), HardBellmanSolver(choices, BETA), case, events_of(case.mdp))


def compare_average(case: Case, n_backups: int = 25, on: Any = None) -> None:
    choices = StateActions(case.mdp)
    gpu = GpuSoftmaxAverageSolver(choices, BETA, n_backups, on or device())
    compare(gpu, SoftmaxAverageSolver(choices, BETA, n_backups), case, events_of(case.mdp))


def every_pair(mdp: MDP) -> ObservedPairs:
    n = mdp.n_pairs
    return ObservedPairs(np.array([0, n]), mdp.pair_state.astype(np.int64), np.arange(n))


@pytest.mark.parametrize("gamma", [0.5, 0.95])
@pytest.mark.parametrize("world", WORLDS)
def test_hard_values(world: str, gamma: float) -> None:
    compare_hard(make_case(gamma=gamma, **WORLDS[world]))


@pytest.mark.parametrize("gamma", [0.5, 0.95, 1.0])
@pytest.mark.parametrize("world", WORLDS)
def test_softmax_average_values(world: str, gamma: float) -> None:
    compare_average(make_case(gamma=gamma, **WORLDS[world]))


@pytest.mark.parametrize("K", [1, 9])
def test_any_number_of_intents(K: int) -> None:
    case = make_case(K=K, gamma=0.9, stochastic=True, kinds="state edge")
    compare_hard(case)
    compare_average(case)


def test_no_rewards_at_all() -> None:
    mdp = make_case(gamma=0.9).mdp
    choices, moves = StateActions(mdp), every_pair(mdp)
    for solver in (GpuHardBellmanSolver(choices, BETA, device()), GpuSoftmaxAverageSolver(choices, BETA, 25, device())):
        solved = solver.solve(np.empty((0, mdp.n_features)), moves)
        assert solved.gradient(np.empty((mdp.n_pairs, 0))).shape == (0, mdp.n_features)


@NEEDS_COMPILER
@pytest.mark.parametrize("threads", [32, 256])
@pytest.mark.parametrize("reverse", [False, True])
def test_threads_of_a_block_in_either_order(reverse: bool, threads: int) -> None:
    case, on = make_case(gamma=0.6, **WORLDS["hub"]), EmulatedDevice(n_threads=threads, reverse=reverse)
    compare_hard(case, on)
    compare_average(case, on=on)


@pytest.mark.parametrize("n_backups", [1, 2, 100])
def test_any_number_of_backups(n_backups: int) -> None:
    compare_average(make_case(gamma=0.9, stochastic=True), n_backups)


def grid(side: int, gamma: float, *, ends: bool) -> MDP:
    """A square where moves go to the four sides, and stay at its edge; unless it `ends`, one may rest in a corner."""
    s = np.arange(side * side - ends)
    i, j = np.divmod(s, side)
    to = [np.minimum(side - 1, i + 1) * side + j, np.maximum(0, i - 1) * side + j,
          i * side + np.minimum(side - 1, j + 1), i * side + np.maximum(0, j - 1)]  # fmt: skip
    phi = np.ones((side * side, 2)) * [1.0, 0.0]
    phi[-1] = [0.0, 1.0]
    return MDP.from_edges(
        np.repeat(s, 4), np.stack(to, axis=1).ravel(), action=np.tile(np.arange(4), s.size), n_states=side * side,
        gamma=gamma, state_features=phi,
    )  # fmt: skip


@pytest.mark.parametrize("ends", [True, False])
@pytest.mark.parametrize("gamma", [0.9, 0.99])
def test_ties_agree_with_the_cpu(gamma: float, ends: bool) -> None:
    """Most paths across a square are equally good. Resting in the corner has value 0, a limit of the iteration."""
    mdp = grid(6, gamma, ends=ends)
    choices, moves = StateActions(mdp), every_pair(mdp)
    thetas = np.array([[-1.0, 0.0], [-0.1, 0.7], [-1.0 / 3.0, 1.0 / 7.0], [0.3, 0.1], [0.0, 0.0]])
    cpu, gpu = HardBellmanSolver(choices, BETA), OnDeviceOnly(choices, BETA, device())
    actual, expected = gpu.solve(thetas, moves), cpu.values(thetas)
    omega = np.hstack([gpu.device.take(gpu.omega(part, None)) for part in actual.parts])  # type: ignore[attr-defined]
    np.testing.assert_array_equal(omega, expected.omega)
    assert np.mean((omega > 0.0) & (omega < 1.0)) > 0.3
    compare(gpu, cpu, Case(mdp, 0, thetas), events_of(mdp))


def test_ties_up_to_rounding() -> None:
    """To reach one of four equal ends, or any of them by chance, has the same value except for the last bit."""
    share = np.array([0.1, 0.2, 0.3, 0.4])
    ends = np.arange(1, 5)
    mdp = MDP.from_edges(
        np.zeros(8, dtype=int), np.append(ends, ends), action=[0, 1, 2, 3, 4, 4, 4, 4], gamma=0.7,
        prob=np.append(np.ones(4), share), n_states=5, state_features=(np.arange(5) > 0).astype(float)[:, None],
    )  # fmt: skip
    choices, thetas = StateActions(mdp), np.linspace(0.3, 2.3, 9)[:, None]
    cpu, gpu = HardBellmanSolver(choices, BETA), OnDeviceOnly(choices, BETA, device())
    expected = cpu.values(thetas)
    assert np.any(np.ptp(expected.Q, axis=0) > 0.0)
    np.testing.assert_array_equal(expected.omega, 0.2)
    actual: Any = gpu.solve(thetas, every_pair(mdp))
    omega = np.hstack([gpu.device.take(gpu.omega(part, None)) for part in actual.parts])
    np.testing.assert_array_equal(omega, expected.omega)


def test_values_converge_to_the_solution() -> None:
    """Stopping when values change by a few units in the last place leaves an error 1 / (1 - gamma) times as large."""
    mdp = MDP.from_edges([0, 1], [1, 0], n_states=2, gamma=0.999, state_features=np.ones((2, 1)))
    solution: Any = OnDeviceOnly(StateActions(mdp), BETA, device()).solve(np.array([[1.0], [-3.0]]), every_pair(mdp))
    np.testing.assert_allclose(device().take(solution.parts[0].V), [[1e3, -3e3]] * 2, rtol=2e-13)


def test_values_on_a_circle_converge() -> None:
    """Bellman backups from the rewards of states keep values on this circle alternating by rounding."""
    compare_hard(circle())


def test_large_values_have_exact_gradients() -> None:
    """Probabilities that do not sum exactly to 1 would leave a flow that never vanishes, of a large value."""
    case = make_case(gamma=0.99, stochastic=True)
    phi = np.hstack([case.mdp.state_features, np.ones((case.mdp.n_states, 1))])  # type: ignore[list-item]
    thetas = np.hstack([case.thetas, np.full((3, 1), 300.0)])
    compare_hard(Case(case.mdp.replace(state_features=phi), 0, thetas))


@pytest.mark.parametrize("q", ["hard", "bv"])
def test_gradients_agree_with_differences(q: str) -> None:
    case = make_case(gamma=0.9, stochastic=True, kinds="state action edge", K=2)
    choices, moves = StateActions(case.mdp), every_pair(case.mdp)
    solver: Any = OnDeviceOnly(choices, BETA, device())
    if q == "bv":
        solver = GpuSoftmaxAverageSolver(choices, BETA, 25, device())
    weight = np.random.default_rng(2).uniform(0.0, 1.0, (case.mdp.n_pairs, 2))
    step, d = 1e-5, case.mdp.n_features
    differences = np.empty((2, d))
    for i in range(d):
        ends = [solver.solve(case.thetas + sign * step * np.eye(d)[i], moves).log_prob for sign in (1.0, -1.0)]
        differences[:, i] = np.sum(weight * (ends[0] - ends[1]), axis=0) / (2.0 * step)
    gradient = solver.solve(case.thetas, moves).gradient(weight)
    np.testing.assert_allclose(gradient, differences, rtol=1e-6, atol=1e-6)


def test_the_same_call_gives_the_same_bits() -> None:
    case = make_case(gamma=0.9, stochastic=True)
    choices, moves = StateActions(case.mdp), every_pair(case.mdp)
    for solver in (GpuHardBellmanSolver(choices, BETA, device()), GpuSoftmaxAverageSolver(choices, BETA, 25, device())):
        solved = [solver.solve(case.thetas, moves) for _ in range(2)]
        np.testing.assert_array_equal(solved[0].log_prob, solved[1].log_prob)
        weight = np.random.default_rng(0).uniform(size=solved[0].log_prob.shape)
        np.testing.assert_array_equal(solved[0].gradient(weight), solved[1].gradient(weight))


class SmallDevice(EmulatedDevice):
    """An emulated device with room for so many bytes."""

    room = 0.0

    def free_bytes(self) -> float:
        return self.room


@NEEDS_COMPILER
@pytest.mark.parametrize(("columns", "kept"), [(0.5, 0), (1.0, 1), (2.5, 2), (9.0, 5)])
def test_values_that_do_not_fit_memory_are_recomputed(columns: float, kept: int) -> None:
    """A third of the memory holds so many columns of values, of five."""
    case, small = make_case(gamma=0.9, stochastic=True, K=5), SmallDevice()
    small.room = 3.0 * columns * 8.0 * case.mdp.n_states * 26
    compare_average(case, 25, small)
    solved: Any = GpuSoftmaxAverageSolver(StateActions(case.mdp), BETA, 25, small).solve(
        case.thetas, every_pair(case.mdp)
    )
    assert sum(part.V.shape[2] for part in solved._parts if part.V is not None) == kept
    assert max(part.columns.stop - part.columns.start for part in solved._parts) <= max(1.0, columns)


def test_without_a_discount_hard_values_are_the_cpu_s() -> None:
    mdp = grid(4, 1.0, ends=True)
    choices, moves, thetas = StateActions(mdp), every_pair(mdp), np.array([[-1.0, 0.0], [-0.4, 3.0]])
    mine, other = (solver.solve(thetas, moves) for solver in (GpuHardBellmanSolver(choices, BETA, device()),
                                                              HardBellmanSolver(choices, BETA)))  # fmt: skip
    np.testing.assert_array_equal(mine.log_prob, other.log_prob)
    np.testing.assert_array_equal(mine.gradient(mine.log_prob), other.gradient(other.log_prob))
    with pytest.raises(DivergentPartition, match=r"thetas\[0\].*total reward"):
        GpuHardBellmanSolver(choices, BETA, device()).solve(np.array([[1.0, 0.0]]), moves)


def test_values_that_do_not_converge_are_left_to_the_cpu() -> None:
    """So near to discount 1, 65,536 backups are too few."""
    phi = [[1.0, 0.0], [0.0, 1.0]]
    mdp = MDP.from_edges([0, 0, 1], [0, 1, 0], n_states=2, gamma=1.0 - 1e-7, state_features=phi)
    choices, moves, thetas = StateActions(mdp), every_pair(mdp), np.array([[-1.0, -0.5]])
    mine, other = (solver.solve(thetas, moves) for solver in (GpuHardBellmanSolver(choices, BETA, device()),
                                                              HardBellmanSolver(choices, BETA)))  # fmt: skip
    np.testing.assert_array_equal(mine.log_prob, other.log_prob)


def world(gamma: float = 0.9) -> tuple[MDP, Demonstrations]:
    case = make_case(12, gamma=gamma, seed=3, stochastic=True)
    return case.mdp, walks(case.mdp, 30, 8, seed=1)


@pytest.mark.parametrize("q", ["hard", "bv"])
def test_fits_agree_with_the_cpu(q: str, on_device: None) -> None:
    mdp, demos = world()
    weights = np.random.default_rng(1).uniform(0.1, 1.0, (len(demos), 2))
    fits = []
    for name in ("gpu", "cpu"):
        model = MLIRL(q=q, n_backups=20, ridge=0.01, device=name)
        thetas = model.fit_many(mdp, demos, weights)
        fits.append((thetas, [result.value for result in model.results_], model.log_prob(mdp, thetas, demos)))
        assert all(result.converged for result in model.results_)
    for mine, other in zip(*fits, strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(fits[0][1], fits[1][1], rtol=1e-9)


@pytest.mark.parametrize("q", ["hard", "bv"])
def test_mixtures_agree_with_the_cpu(q: str, on_device: None) -> None:
    mdp, demos = world()
    fits = []
    for name in ("gpu", "cpu"):
        model = MLIRL(q=q, n_backups=20, device=name)
        mixture = IntentMixture(2, model, init="random", max_iter=2, max_evaluations=4, random_state=0)
        assert clone(mixture).irl.device == name
        with warnings.catch_warnings(action="ignore"):  # two iterations are too few to converge
            fits.append(mixture.fit(mdp, demos))
    np.testing.assert_allclose(fits[0].log_likelihood_, fits[1].log_likelihood_, rtol=1e-9)
    np.testing.assert_allclose(fits[0].thetas_, fits[1].thetas_, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("q", ["hard", "bv"])
def test_single_evaluations_equal_the_cpu(q: str, on_device: None) -> None:
    mdp, demos = world()
    theta = np.array([0.4, -0.3, 0.2])
    mine, other = (MLIRL(q=q, device=name) for name in ("gpu", "cpu"))
    np.testing.assert_array_equal(mine.policy(mdp, theta), other.policy(mdp, theta))
    np.testing.assert_array_equal(mine.sample(mdp, theta, 9, seed=1).states, other.sample(mdp, theta, 9, seed=1).states)
    np.testing.assert_array_equal(mine.null_directions(mdp, theta), other.null_directions(mdp, theta))
    assert_same(mine.log_prob(mdp, [theta], demos), other.log_prob(mdp, [theta], demos))
    np.testing.assert_allclose(mine.residual(mdp, [theta]), other.residual(mdp, [theta]), rtol=1e-9, atol=1e-14)


@pytest.mark.parametrize("q", ["hard", "bv"])
def test_without_a_gpu_the_error_states_the_remedy(q: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LIMIIRL_GPU", "off")
    mdp, demos = world()
    with raises(BackendUnavailable, parameter="device", value="gpu"):
        MLIRL(q=q, device="gpu").fit(mdp, demos)
    with raises(InvalidParameter, parameter="device", value="tpu"):
        MLIRL(q=q, device="tpu").fit(mdp, demos)
    assert type(MLIRL(q=q, device="auto")._solver(mdp)) in (HardBellmanSolver, SoftmaxAverageSolver)


def test_a_gpu_is_used_if_requested_or_faster(on_device: None) -> None:
    kinds: dict[tuple[str, int], list[type]] = {}
    for n in (30, 6_000):
        line = MDP.from_edges(np.arange(n - 1), np.arange(1, n), state_features=np.ones((n, 1)))
        for q in ("hard", "bv"):
            kinds[q, n] = [type(MLIRL(q=q, device=name)._solver(line)) for name in ("cpu", "auto", "gpu")]
    assert kinds == {
        ("hard", 30): [HardBellmanSolver, HardBellmanSolver, GpuHardBellmanSolver],
        ("hard", 6_000): [HardBellmanSolver, GpuHardBellmanSolver, GpuHardBellmanSolver],
        ("bv", 30): [SoftmaxAverageSolver, SoftmaxAverageSolver, GpuSoftmaxAverageSolver],
        ("bv", 6_000): [SoftmaxAverageSolver, GpuSoftmaxAverageSolver, GpuSoftmaxAverageSolver],
    }


def test_the_command_reaches_the_model(tmp_path: Path, on_device: None) -> None:
    mdp, demos = world()
    mdp.save(tmp_path / "world.npz")
    demos.to_parquet(tmp_path / "walks.parquet")
    fits = []
    for name in ("gpu", "cpu"):
        given = ["fit", "walks.parquet", "--mdp", "world.npz", "--model", "MLIRL", "--intents", "1", "--device", name,
                 "--set", "irl__q=bv", "--set", "irl__n_backups=15", "--out", name]  # fmt: skip
        output, shows = io.StringIO(), warnings.showwarning
        redirections = contextlib.redirect_stdout(output), contextlib.redirect_stderr(output)
        with contextlib.chdir(tmp_path), redirections[0], redirections[1], pytest.raises(SystemExit) as ended:
            main(given)
        warnings.showwarning = shows
        assert not ended.value.code, output.getvalue()
        fits.append(IntentMixture.load(tmp_path / name))
    assert [mixture.irl.device != "cpu" for mixture in fits] == [True, False]
    np.testing.assert_allclose(fits[0].log_likelihood_, fits[1].log_likelihood_, rtol=1e-8)


@ONLY_REAL
@pytest.mark.parametrize("K", [1, 3, 8])
def test_large_worlds(K: int) -> None:
    case = make_case(n_states=20_000, K=K, gamma=0.95, kinds="state edge", stochastic=True)
    compare_hard(case)
    compare_average(case, 100)
