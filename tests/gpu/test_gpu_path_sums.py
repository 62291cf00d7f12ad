"""Path sums on the GPU against the CPU: every result, on every kind of MDP.

Without a GPU the same CUDA source runs emulated, on small cases; with one, all of it runs there.
"""

import numpy as np
import pytest

from limiirl.kernels.graph import Rewards
from tests.gpu.emulator import EmulatedDevice
from tests.oracles.gpu_cases import NEEDS_COMPILER, NO_DEVICE, ONLY_REAL, Case, assert_same, make_case, make_path_sums
from tests.oracles.random_mdps import lean_bytes

pytestmark = NO_DEVICE
WORLDS = {
    "deterministic": {},
    "stochastic": {"stochastic": True},
    "discounted": {"gamma": 0.9},
    "hub": {"n_states": 120, "hub": True, "length": 9},
    "hub of weighted edges": {"n_states": 120, "hub": True, "length": 9, "stochastic": True, "gamma": 0.95},
    "actions": {"kinds": "state action", "stochastic": True},
    "edges": {"kinds": "edge", "gamma": 0.95},
    "all features, sparse": {"kinds": "state action edge sparse", "stochastic": True, "gamma": 0.9},
    "long": {"n_states": 7, "length": 150},
    "one step": {"length": 1},
    "two steps": {"length": 2, "n_states": 5},
    "one state": {"n_states": 1, "length": 30},
}


def compare(case: Case, together: int = 1, **options: object) -> None:
    """Compare all intents at once on the GPU with `together` at a time on the CPU, compiled for their number."""
    gpu, cpu = make_path_sums(case, **options)
    parts = [cpu.value_and_grad(case.thetas[k : k + together]) for k in range(0, len(case.thetas), together)]
    for actual, expected in zip(gpu.value_and_grad(case.thetas), zip(*parts, strict=True), strict=True):
        assert_same(actual, np.concatenate(expected))


@pytest.mark.parametrize("space", ["linear", "log", "auto"])
@pytest.mark.parametrize("world", WORLDS)
def test_value_and_gradient(world: str, space: str) -> None:
    compare(make_case(**WORLDS[world]), arithmetic=space)


def compare_all(world: str, place: object, space: str) -> None:
    """Compare passes from checkpoints and by start, counts, and the Hessian."""
    case = make_case(**WORLDS[world])
    lean = lean_bytes(case.mdp, case.length, len(case.thetas))
    compare(case, place=place, arithmetic=space)
    compare(case, place=place, arithmetic=space, by_start=True, max_bytes=lean)
    gpu, cpu = make_path_sums(case, place, arithmetic=space)
    for actual, expected in zip(
        gpu.expected_counts(case.thetas, edges=True), cpu.expected_counts(case.thetas, edges=True), strict=True
    ):
        assert_same(actual, expected)
    assert_same(gpu.covariance(case.thetas[0]), cpu.covariance(case.thetas[0]))


@NEEDS_COMPILER
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("threads", [32, 256])
@pytest.mark.parametrize("space", ["linear", "log"])
@pytest.mark.parametrize("world", ["deterministic", "hub of weighted edges", "long"])
def test_threads_of_a_block_in_either_order(world: str, space: str, threads: int, reverse: bool) -> None:
    compare_all(world, EmulatedDevice(n_threads=threads, reverse=reverse), space)


@NEEDS_COMPILER
@pytest.mark.parametrize("world", ["deterministic", "all features, sparse"])
def test_kernels_compiled_for_their_columns(world: str) -> None:
    """As they are for a GPU, for plain and for weighted edges."""
    for space in ("linear", "log"):
        compare(make_case(**WORLDS[world]), place=EmulatedDevice(compiled=True), arithmetic=space)


@pytest.mark.parametrize("K", [1, 3, 8, 32])
@pytest.mark.parametrize("space", ["linear", "log"])
def test_any_number_of_intents(K: int, space: str) -> None:
    compare(make_case(n_states=11, K=K, kinds="state edge", length=18), arithmetic=space)


@pytest.mark.parametrize("space", ["linear", "log"])
@pytest.mark.parametrize("by_start", [False, True])
@pytest.mark.parametrize("world", ["deterministic", "all features, sparse", "long"])
def test_from_checkpoints_and_by_start(world: str, by_start: bool, space: str) -> None:
    """The messages are recomputed in stretches that do not begin where scales change."""
    case = make_case(**WORLDS[world])
    lean = lean_bytes(case.mdp, case.length, len(case.thetas))
    compare(case, arithmetic=space, by_start=by_start, max_bytes=lean)


@pytest.mark.parametrize("space", ["linear", "log", "auto"])
@pytest.mark.parametrize("stop", ["terminal", "terminal_or_max_length"])
@pytest.mark.parametrize("by_start", [False, True])
def test_rules_of_stopping(stop: str, by_start: bool, space: str) -> None:
    case = make_case(n_states=15, kinds="state edge", gamma=0.95)
    mdp = case.mdp
    last = mdp.n_states
    joined = type(mdp).from_edges(
        np.append(mdp.src, np.arange(last)), np.append(mdp.dst, np.full(last, last)), n_states=last + 1,
        p0=np.append(mdp.p0, 0.0), gamma=mdp.gamma, terminal=np.arange(last + 1) == last,
        state_features=np.vstack([mdp.state_features, np.zeros(3)]),
        edge_features=np.vstack([mdp.edge_features, np.zeros((last, 3))]),
    )  # fmt: skip
    compare(Case(joined, case.length, case.thetas), arithmetic=space, stop=stop, by_start=by_start)


@pytest.mark.parametrize("space", ["linear", "log"])
@pytest.mark.parametrize("world", ["deterministic", "all features, sparse", "hub"])
def test_counts_and_marginals(world: str, space: str) -> None:
    case = make_case(**WORLDS[world])
    gpu, cpu = make_path_sums(case, arithmetic=space)
    gain = np.random.default_rng(1).uniform(0.5, 1.5, case.length)
    for actual, expected in zip(
        gpu.expected_counts(case.thetas, step_weights=gain, edges=True),
        cpu.expected_counts(case.thetas, step_weights=gain, edges=True),
        strict=True,
    ):
        assert_same(actual, expected)
    assert_same(gpu.time_marginals(case.thetas[0]), cpu.time_marginals(case.thetas[0]))
    assert_same(gpu.log_partition(case.thetas), cpu.log_partition(case.thetas))
    assert_same(gpu.log_partition_by_start(case.thetas), cpu.log_partition_by_start(case.thetas))


@pytest.mark.parametrize("space", ["linear", "log"])
@pytest.mark.parametrize("by_start", [False, True])
@pytest.mark.parametrize("max_bytes", [0.0, 1e9])
@pytest.mark.parametrize("world", ["deterministic", "all features, sparse", "hub of weighted edges"])
def test_hessian(world: str, max_bytes: float, by_start: bool, space: str) -> None:
    case = make_case(**WORLDS[world])
    gpu, cpu = make_path_sums(case, arithmetic=space, by_start=by_start, max_bytes=max_bytes)
    assert_same(gpu.covariance(case.thetas[0]), cpu.covariance(case.thetas[0]))


def test_starts_of_demonstrations() -> None:
    case = make_case(n_states=30)
    starts = np.random.default_rng(2).dirichlet(np.ones(30), 3).T
    gpu, cpu = make_path_sums(case, by_start=True)
    for actual, expected in zip(
        gpu.value_and_grad(case.thetas, starts=starts), cpu.value_and_grad(case.thetas, starts=starts), strict=True
    ):
        assert_same(actual, expected)
    assert_same(
        gpu.covariance(case.thetas[1], starts=starts[:, 1]), cpu.covariance(case.thetas[1], starts=starts[:, 1])
    )


@pytest.mark.parametrize("lean", [True, False])
def test_backward_messages(lean: bool) -> None:
    case = make_case()
    gpu, cpu = make_path_sums(case, max_bytes=lean_bytes(case.mdp, case.length, 3) if lean else 1e9)
    rng = np.random.default_rng(3)
    step, state = rng.integers(0, case.length, 40), rng.integers(0, case.mdp.n_states, 40)
    mine, other = gpu.backward_messages(case.thetas, step, state), cpu.backward_messages(case.thetas, step, state)
    assert_same(mine.log_Z, other.log_Z)
    assert_same(mine.value + mine.scale, other.value + other.scale)


def test_scales_of_extreme_rewards() -> None:
    """Sums far beyond float64, and far below it, in both arithmetics; "auto" chooses one per intent."""
    case = make_case(n_states=12, length=80, scale=1.0)
    thetas = np.array([[0.1, -0.2, 0.1], [25.0, 18.0, 30.0], [-60.0, -70.0, -50.0], [0.0, 0.0, 0.0]])
    compare(case._replace(thetas=thetas))
    compare(case._replace(thetas=thetas), arithmetic="log", by_start=True)


@ONLY_REAL
@pytest.mark.parametrize("K", [1, 3, 8, 32])
@pytest.mark.parametrize("space", ["linear", "log"])
@pytest.mark.parametrize(
    "world",
    [
        {"n_states": 3_000, "length": 60},
        {"n_states": 40_000, "length": 120, "seed": 1},
        {"n_states": 20_000, "length": 40, "stochastic": True, "gamma": 0.98, "kinds": "state action edge"},
        {"n_states": 5_000, "length": 50, "hub": True, "kinds": "state edge sparse"},
    ],
    ids=str,
)
def test_large_worlds(world: dict, space: str, K: int) -> None:
    compare(make_case(K=K, **world), together=8, arithmetic=space)


@ONLY_REAL
@pytest.mark.parametrize("by_start", [False, True])
@pytest.mark.parametrize("space", ["linear", "log"])
def test_large_worlds_from_checkpoints(space: str, by_start: bool) -> None:
    case = make_case(n_states=30_000, length=150, K=3, gamma=0.99)
    compare(case, together=8, arithmetic=space, by_start=by_start, max_bytes=lean_bytes(case.mdp, case.length, 3))
    gpu, cpu = make_path_sums(case, arithmetic=space, by_start=by_start, max_bytes=1e8)
    assert_same(gpu.covariance(case.thetas[0]), cpu.covariance(case.thetas[0]))


@pytest.mark.parametrize("world", ["discounted", "edges", "stochastic", "hub of weighted edges"])
def test_growth_bound_equals_the_cpu_bound(world: str) -> None:
    """Late weights tend to 1 under a discount: a bound from the first step alone would be too small."""
    case = make_case(**WORLDS[world])
    bounds = []
    for sums in make_path_sums(case):
        rewards, (prob, _) = sums.backend.rewards(case.mdp, case.thetas), sums.backend.edge_weights(False)
        edge = None if rewards.edge is None else rewards.edge.ravel()
        flat = Rewards(rewards.node.ravel(), prob, edge, sums.discount, False)
        bounds.append(sums.backend.log_growth(flat, sums.discount, len(case.thetas)))
    assert_same(*bounds)
