"""Paths to a goal on a GPU, or its emulation, against the CPU: values, gradients, the edge of the domain, and fits."""

import warnings
from typing import Any

import numpy as np
import pytest

from limiirl import MDP, Demonstrations, DestinationMaxEnt, IntentMixture
from limiirl.demos import Groups
from limiirl.errors import DivergentPartition, InvalidParameter, NumericalError
from limiirl.irl import with_choices
from limiirl.irl.destination import path_sums
from limiirl.irl.destination.gpu import GpuGoalValues, GpuPathSums, entry_bytes
from limiirl.irl.destination.path_sums import GoalValues
from limiirl.irl.destination.problem import DestinationProblem
from limiirl.kernels.elimination import numeric as goals_on_cpu
from limiirl.kernels.gpu import elimination
from limiirl.worlds import RoadGrid
from tests.gpu.emulator import EmulatedDevice
from tests.helpers import raises
from tests.oracles.gpu_cases import (
    NEEDS_COMPILER,
    NO_DEVICE,
    ONLY_REAL,
    WORLDS,
    assert_same,
    costly_world,
    device,
)

pytestmark = NO_DEVICE


def pairs(mdp: MDP, n: int, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Pairs of states, a few of which share an end, or are the same state twice."""
    rng = np.random.default_rng(seed)
    starts, goals = rng.integers(0, mdp.n_states, (2, n))
    goals[: n // 3] = goals[0]
    starts[1] = goals[1]
    return starts, goals


def compare(mdp: MDP, thetas: np.ndarray, n: int = 14, place: Any = None, **options: Any) -> None:
    cpu, gpu = GoalValues(mdp), GpuGoalValues(mdp, place or device(), **options)
    starts, goals = pairs(mdp, n)
    expected = cpu.log_values(thetas, starts, goals)
    assert_same(gpu.log_values(thetas, starts, goals), expected)
    linked = np.isfinite(expected).all(axis=1)
    weights = np.random.default_rng(2).uniform(0.0, 1.0, (n, len(thetas))) * linked[:, None]
    weights[2] = 0.0
    mine, other = (values.sum_pairs(thetas, starts, goals, weights, 1e-6) for values in (gpu, cpu))
    for k in range(len(thetas)):
        assert_same(mine[0][k], other[0][k])
        assert_same(mine[1][k], other[1][k])


def compare_reach(mdp: MDP, thetas: np.ndarray, place: Any) -> None:
    gpu = GpuGoalValues(mdp, place)
    goals = gpu._elimination.goals
    actual = gpu.device.take(goals.finish_reach(gpu._eliminate_many(thetas, 0.0)[1]))
    for k, theta in enumerate(thetas):
        (value, star), right = GoalValues(mdp).solve(theta)._factors.log, np.zeros(mdp.n_states)
        goals_on_cpu.solve(gpu.symbolic.up_ptr, gpu.symbolic.up, value, star, right)
        assert_same(actual[:, k], right)


@pytest.mark.parametrize("name", WORLDS)
def test_values_and_gradients(name: str) -> None:
    compare(*costly_world(**WORLDS[name]))


@NEEDS_COMPILER
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("K", [1, 3])
@pytest.mark.parametrize("threads", [32, 256])
@pytest.mark.parametrize("name", ["deterministic", "hub"])
def test_threads_of_a_block_in_either_order(
    name: str, threads: int, K: int, reverse: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several lanes per sum, as in large blocks, and several ancestor paths and states per block."""
    monkeypatch.setattr(elimination, "_BLOCKS_PER_PROCESSOR", 1)
    mdp, thetas = costly_world(K, **WORLDS[name])
    place = EmulatedDevice(n_threads=threads, reverse=reverse)
    compare(mdp, thetas, place=place)
    compare_reach(mdp, thetas, place)


@NEEDS_COMPILER
def test_the_largest_blocks() -> None:
    compare(*costly_world(), place=EmulatedDevice(n_threads=1024))


@pytest.mark.parametrize("K", [1, 9])
def test_any_number_of_rewards(K: int) -> None:
    """Nine are more than are computed together."""
    compare(*costly_world(K))


def test_roads() -> None:
    mdp = with_choices(RoadGrid(220, 290, seed=0).mdp)
    compare(mdp, np.stack([np.full(mdp.n_features, cost) for cost in (-1.0, -2.0)]))


def test_several_edges_between_two_states() -> None:
    """Parallel edges with different features are summed before elimination."""
    mdp, thetas = costly_world(kinds="state edge")
    rng = np.random.default_rng(0)
    twice = np.concatenate([np.arange(mdp.n_edges), rng.integers(0, mdp.n_edges, 20)])
    src, dst = mdp.src[twice], mdp.dst[twice]
    made = MDP.from_edges(src, dst, n_states=mdp.n_states, state_features=mdp.state_features)
    made = made.replace(edge_features=rng.normal(size=(twice.size, 3)))
    thetas[:, 0] -= 1.0
    compare(made, thetas)


def test_other_goals_of_the_same_starts() -> None:
    mdp, thetas = costly_world()
    cpu, gpu = GoalValues(mdp), GpuGoalValues(mdp, device())
    starts, goals = pairs(mdp, 6)
    for ends in (goals, goals[::-1].copy(), goals):
        assert_same(gpu.log_values(thetas, starts, ends), cpu.log_values(thetas, starts, ends))


def test_pairs_that_do_not_fit_memory_at_once() -> None:
    mdp, thetas = costly_world()
    gpu = GpuGoalValues(mdp, device(), max_bytes=1e4)
    starts, goals = pairs(mdp, 14)
    assert len(list(gpu._elimination.paths.batches(starts, goals, 3, 5e3))) > 2
    compare(mdp, thetas, max_bytes=1e4)


@pytest.mark.parametrize("most", [2e3, 4e3, 7e3, 1e4])
def test_parts_take_no_more_memory_than_they_may(most: float) -> None:
    """No ancestor path is shared here, so that the memory is known; a pair that takes more is a part by itself."""
    mdp, _ = costly_world(n_states=40)
    starts, goals = np.random.default_rng(0).permutation(40).reshape(2, 20)
    parts = list(GpuGoalValues(mdp, device())._elimination.paths.batches(starts, goals, 3, most))
    sizes = [(routes.up.size + routes.down.size) * entry_bytes(3) for routes in parts]
    np.testing.assert_array_equal(np.sort(np.concatenate([routes.pairs for routes in parts])), np.arange(20))
    assert len(parts) > 2
    assert all(size <= most or routes.pairs.size == 1 for size, routes in zip(sizes, parts, strict=True))


def test_states_without_a_path_between_them() -> None:
    """A forest: two chains, and a state alone."""
    mdp = MDP.from_edges([0, 1, 2, 4, 5], [1, 2, 1, 5, 4], n_states=7, state_features=np.ones((7, 1)))
    starts, goals = (part.ravel().astype(np.int64) for part in np.indices((7, 7)))
    actual, expected = (
        values.log_values(np.array([[-1.0]]), starts, goals)
        for values in (GpuGoalValues(mdp, device()), GoalValues(mdp))
    )
    assert np.count_nonzero(expected == -np.inf) > 20
    np.testing.assert_array_equal(actual == -np.inf, expected == -np.inf)
    linked = expected > -np.inf
    np.testing.assert_allclose(actual[linked], expected[linked], rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("reward", [-120.0, 9.0])
def test_pairs_beyond_linear_arithmetic_are_left_to_the_cpu(reward: float) -> None:
    """Sums below 1e-240, and sums above 1e30, beside others that are neither."""
    n = 12
    src = np.concatenate([np.arange(n - 1), np.arange(n - 2)])
    dst = np.concatenate([np.arange(1, n), np.arange(2, n)])
    mdp = MDP.from_edges(src, dst, state_features=np.ones((n, 1)))
    cpu, gpu = GoalValues(mdp), GpuGoalValues(mdp, device())
    starts, goals = np.array([0, 0, 3, 9, 4]), np.array([11, 10, 5, 11, 4])
    thetas, weights = np.array([[reward], [-0.5]]), np.random.default_rng(0).uniform(0.5, 1.0, (5, 2))
    expected = cpu.log_values(thetas, starts, goals)
    assert_same(gpu.log_values(thetas, starts, goals), expected)
    (routes,) = gpu._elimination.paths.batches(starts, goals, 2, 1e6)
    left = np.isnan(GpuPathSums(gpu, thetas, 0.0).log_values(routes))
    far = expected[routes.pairs] < np.log(1e-240)
    far[:, 0] |= reward > 0.0  # one sum that is too large, and no sum can be relied on
    assert 0 < np.count_nonzero(far) < 10
    np.testing.assert_array_equal(left, far)
    mine, other = (values.sum_pairs(thetas, starts, goals, weights) for values in (gpu, cpu))
    np.testing.assert_allclose(mine[0], other[0], rtol=1e-12)
    np.testing.assert_allclose(mine[1], other[1], rtol=1e-10)


@pytest.mark.parametrize("name", WORLDS)
def test_sums_over_all_paths_from_a_state(name: str) -> None:
    """The largest of them decides whether linear arithmetic is used."""
    compare_reach(*costly_world(**WORLDS[name]), device())


def test_common_pairs_are_not_left_to_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    mdp, thetas = costly_world()
    gpu, (starts, goals) = GpuGoalValues(mdp, device()), pairs(mdp, 9)
    linked = np.isfinite(GoalValues(mdp).log_values(thetas, starts, goals)).all(axis=1)
    monkeypatch.setattr(path_sums.GoalPathSums, "pair_sums", None)
    assert np.all(np.isfinite(gpu.log_values(thetas, starts[linked], goals[linked])))
    assert np.all(np.isfinite(gpu.sum_pairs(thetas, starts[linked], goals[linked], np.ones((linked.sum(), 3)))[0]))


@pytest.mark.parametrize("name", WORLDS)
def test_divergence_is_detected_as_on_the_cpu(name: str) -> None:
    mdp, thetas = costly_world(**WORLDS[name])
    cpu, gpu = GoalValues(mdp), GpuGoalValues(mdp, device())
    mixed = thetas.copy()
    mixed[1, 0] += 4.5
    starts, goals = pairs(mdp, 5)
    messages = []
    for values in (gpu, cpu):
        assert [values.is_finite(theta) for theta in mixed] == [True, False, True]
        with pytest.raises(DivergentPartition) as caught:
            values.log_values(mixed, starts, goals)
        messages.append(str(caught.value))
        assert values.divergent_loop(thetas[0]) is None
    assert messages[0] == messages[1]
    mine, other = gpu.divergent_loop(mixed[1]), cpu.divergent_loop(mixed[1])
    assert mine is not None
    assert other is not None
    assert_same(mine[0], other[0])
    assert_same(mine[1], other[1])
    linked = np.isfinite(cpu.log_values(thetas, starts, goals)).all(axis=1)
    weights = np.repeat(linked.astype(float)[:, None], 3, axis=1)
    actual, expected = (values.sum_pairs(mixed, starts, goals, weights) for values in (gpu, cpu))
    assert actual[0][1] == np.inf
    assert_same(actual[0][[0, 2]], expected[0][[0, 2]])
    assert_same(actual[1], expected[1])


def test_no_pairs_at_all() -> None:
    mdp, thetas = costly_world()
    none = np.empty(0, dtype=np.int64)
    for values in (GpuGoalValues(mdp, device()), GoalValues(mdp)):
        assert values.log_values(thetas, none, none).shape == (0, 3)
        value, gradient = values.sum_pairs(thetas, none, none, np.empty((0, 3)))
        assert not np.any(value)
        assert not np.any(gradient)


def test_no_rewards_at_all() -> None:
    mdp, thetas = costly_world()
    starts, goals = pairs(mdp, 5)
    for values in (GpuGoalValues(mdp, device()), GoalValues(mdp)):
        assert values.log_values(thetas[:0], starts, goals).shape == (5, 0)
        value, gradient = values.sum_pairs(thetas[:0], starts, goals, np.empty((5, 0)))
        assert value.shape == (0,)
        assert gradient.shape == thetas[:0].shape


def test_a_margin_is_kept_to_the_last_digits() -> None:
    """Loops of weight exp(-0.1), and margins on either side of that."""
    mdp = MDP.from_edges([0, 1, 1], [1, 0, 2], state_features=[[1.0], [0.0], [0.0]])
    for values in (GpuGoalValues(mdp, device()), GoalValues(mdp)):
        assert values.is_finite(np.array([-0.1]), 0.1 - 1e-12)
        assert not values.is_finite(np.array([-0.1]), 0.1 + 1e-12)
        assert np.isinf(values.sum_pairs(np.array([[-0.1]]), np.array([0]), np.array([2]), np.ones((1, 1)), 0.2)[0][0])


def test_rewards_that_are_not_finite() -> None:
    mdp, thetas = costly_world(2)
    thetas[0, :] = 1e308
    messages = []
    for values in (GpuGoalValues(mdp, device()), GoalValues(mdp)):
        with pytest.raises(NumericalError) as caught:
            values.is_finite(thetas[0])
        messages.append(str(caught.value))
        starts, goals = np.array([int(mdp.src[0])]), np.array([int(mdp.dst[0])])
        value, gradient = values.sum_pairs(thetas, starts, goals, np.ones((1, 2)))
        assert np.isinf(value[0])
        assert np.isfinite(value[1])
        assert not np.any(gradient[0])
    assert messages[0] == messages[1]


def test_the_same_bits_every_time() -> None:
    mdp, thetas = costly_world()
    starts, goals = pairs(mdp, 9)
    runs = [GpuGoalValues(mdp, device()).sum_pairs(thetas, starts, goals, np.ones((9, 3))) for _ in range(2)]
    np.testing.assert_array_equal(runs[0][0], runs[1][0])
    np.testing.assert_array_equal(runs[0][1], runs[1][1])


def test_more_values_than_the_gpu_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elimination, "_MAX_VALUES", 100)
    mdp, _ = costly_world(seed=3)
    with pytest.raises(InvalidParameter, match="133 values"):
        GpuGoalValues(mdp, device())


def trips() -> tuple[MDP, Demonstrations]:
    """Two kinds of drivers in a small grid of streets."""
    side, rng = 4, np.random.default_rng(0)
    states = np.arange(side * side).reshape(side, side)
    links = np.concatenate([np.stack([states[:, :-1], states[:, 1:]]).reshape(2, -1).T,
                            np.stack([states[:-1], states[1:]]).reshape(2, -1).T])  # fmt: skip
    both = np.concatenate([links, links[:, ::-1]])
    mdp = MDP.from_edges(both[:, 0], both[:, 1], state_features=rng.uniform(0.5, 1.5, (side * side, 2)))
    model, drawn = DestinationMaxEnt(), []
    for theta in ([-4.0, -1.5], [-1.5, -4.0]):
        starts, goals = rng.integers(0, side * side, (2, 8))
        demos = model.sample(mdp, theta, starts, goals, seed=rng)
        drawn += [list(map(int, trip)) for trip in np.split(demos.states, demos.offsets[1:-1])]
    return mdp, Demonstrations.from_lists(drawn)


@pytest.mark.parametrize(("solver", "cap"), [("bfgs", 6), ("lbfgs", 6), ("newton", 2)])
def test_fits_agree_with_the_cpu(solver: str, cap: int, on_device: None) -> None:
    mdp, demos = trips()
    weights = np.random.default_rng(1).uniform(0.0, 1.0, (len(demos), 2))
    starts = np.array([[-4.0, -4.0], [-3.0, -6.0]])
    fits = []
    for name in ("gpu", "cpu"):
        model = DestinationMaxEnt(device=name, solver=solver, max_evaluations=cap)
        thetas = model.fit_many(mdp, demos, weights, starts)
        fits.append((thetas, [result.value for result in model.results_], model.log_prob(mdp, thetas, demos)))
    for mine, other in zip(*fits, strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-7, atol=1e-7)


def test_joint_searches_keep_separate_cutting_planes() -> None:
    """Demonstrations that wander about have their optimum where sums are nearly infinite."""
    mdp, _ = trips()
    edge = max(cost for cost in np.linspace(-3.0, 0.0, 61) if GoalValues(mdp).is_finite(np.full(2, cost)))
    model, rng = DestinationMaxEnt(bounds=(-30.0, 5.0)), np.random.default_rng(3)
    demos = model.sample(mdp, np.full(2, edge), *rng.integers(0, 16, (2, 20)), seed=4)
    weights, starts = rng.uniform(0.0, 1.0, (20, 3)) ** 4, np.array([[-6.0, -6.0], [-2.0, -9.0], [-9.0, -2.0]])
    thetas = []
    for values in (GpuGoalValues(mdp, device()), GoalValues(mdp)):
        ready = DestinationProblem.from_demos(model, mdp, demos, Groups.from_labels(None, 20), values)
        thetas.append([result.theta for result in ready.search(weights, np.zeros(3), starts, 9)])
        assert ready._domain.most.size > 9  # several of the three came beyond the edge
    np.testing.assert_allclose(*thetas, rtol=1e-6, atol=1e-6)


def test_mixtures_agree_with_the_cpu(on_device: None) -> None:
    mdp, demos = trips()
    fits = []
    for name in ("gpu", "cpu"):
        model = DestinationMaxEnt(device=name)
        mixture = IntentMixture(2, model, init="random", max_iter=2, max_evaluations=3, random_state=0)
        with warnings.catch_warnings(action="ignore"):  # two iterations are too few to converge
            fits.append(mixture.fit(mdp, demos))
    np.testing.assert_allclose(fits[0].log_likelihood_, fits[1].log_likelihood_, rtol=1e-9)
    np.testing.assert_allclose(fits[0].thetas_, fits[1].thetas_, rtol=1e-6, atol=1e-6)


def test_gpu_is_used_if_requested_or_faster(on_device: None) -> None:
    kinds = {}
    for n in (30, 30_000):
        line = MDP.from_edges(np.arange(n - 1), np.arange(1, n), state_features=np.ones((n, 1)))
        kinds[n] = [type(DestinationMaxEnt(device=name)._values(line)) for name in ("cpu", "auto", "gpu")]
    assert kinds == {
        30: [GoalValues, GoalValues, GpuGoalValues],
        30_000: [GoalValues, GpuGoalValues, GpuGoalValues],
    }
    with raises(InvalidParameter, parameter="device", value="tpu"):
        DestinationMaxEnt(device="tpu")._values(line)


@ONLY_REAL
@pytest.mark.parametrize("K", [1, 3, 8])
def test_large_worlds(K: int) -> None:
    mdp = with_choices(RoadGrid(20_000, 25_000, seed=0).mdp)
    compare(mdp, -np.random.default_rng(0).uniform(1.0, 2.0, (K, mdp.n_features)), 500)
