"""Value and gradient on a GPU at the size of the paper's road network, memory traffic, a training run, and the CPU.

Run as `python -m benchmarks.gpu` on a machine with a GPU and CuPy. `--quick` uses a network of a twentieth of the
size, `--parts` selects tables, and `--roads` adds a network to the table of goals. Ratios are relative to the CPU in
the same run, with all cores that numba uses.
"""

import argparse
import math
import warnings
from collections.abc import Callable
from typing import Any

import numba
import numpy as np

from benchmarks.measure import describe_machine, seconds
from benchmarks.path_sums import MAX_LENGTH, intents, network
from limiirl import MDP, MLIRL, Demonstrations, DestinationMaxEnt, IntentMixture, MaxCausalEnt, MaxEnt
from limiirl.demos import Groups
from limiirl.irl import with_choices
from limiirl.irl.causal.problem import DecisionCounts
from limiirl.irl.destination.gpu import GpuGoalValues
from limiirl.irl.destination.path_sums import GoalValues
from limiirl.irl.estimator import choose_backend
from limiirl.irl.maxent.gpu_infinite import GpuInfinitePathSums
from limiirl.irl.maxent.infinite_horizon import InfinitePathSums
from limiirl.irl.maxent.path_sums import FinitePathSums
from limiirl.kernels.elimination.numeric import compute_heights
from limiirl.kernels.gpu.device import need_device
from limiirl.roads import RoadNetwork
from limiirl.worlds import RoadGrid

PARTS = ("evaluation", "variants", "sizes", "large", "causal", "goals", "endless", "training")
STORED = 1e11
LARGEST_ON_CPU = 10_000_000


def make_path_sums(mdp: MDP, device: str, length: int = MAX_LENGTH, **options: Any) -> FinitePathSums:
    """Return path sums on a device; all messages are stored by default."""
    options = {"max_bytes": STORED} | options
    return FinitePathSums(mdp, length, backend=choose_backend(device, mdp), **options)


def copy_bandwidth() -> float:
    """Return the bandwidth (bytes read and written per second) of copying 2 GB on the device."""
    xp = need_device().xp
    source = xp.ones(2**28)
    target = xp.empty_like(source)

    def copy() -> None:
        xp.copyto(target, source)
        xp.cuda.Device().synchronize()

    copy()
    return 2 * source.nbytes / seconds(copy, 20)


def compare(name: str, gpu: Callable[[], Any], cpu: Callable[[], Any], repeats: tuple[int, int]) -> tuple[float, float]:
    """Print the times of a call on the GPU and on the CPU, after checking that the results agree; return both."""
    mine, other = gpu(), cpu()
    error = 0.0
    for actual, expected in zip(mine, other, strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-9, atol=1e-9 * np.max(np.abs(expected)))
        error = max(error, float(np.max(np.abs(actual - expected)) / np.max(np.abs(expected))))
    fast, slow = seconds(gpu, repeats[0]), seconds(cpu, repeats[1])
    print(f"  {name:<44} {1e3 * fast:9.2f} ms {1e3 * slow:10.1f} ms {slow / fast:7.0f} x  {error:.0e}", flush=True)
    return fast, slow


def evaluation(mdp: MDP) -> None:
    """Print the time of value and gradient for several K, and the memory traffic."""
    bandwidth = copy_bandwidth()
    print(f"value and gradient: GPU, CPU, ratio, largest relative difference (copy: {bandwidth / 1e12:.2f} TB/s)")
    gpu, cpu = make_path_sums(mdp, "gpu"), make_path_sums(mdp, "cpu")
    for n in (1, 3, 8, 32):
        thetas = intents(mdp, n)
        taken, _ = compare(
            f"K = {n}",
            lambda t=thetas: gpu.value_and_grad(t),
            lambda t=thetas: cpu.value_and_grad(t),
            (20, 2 if n < 32 else 1),
        )
        # Messages are written and read once; features are read for the rewards and for the gradient.
        moved = 2 * 8 * MAX_LENGTH * (mdp.n_states + 1) * n + 2 * 8 * mdp.n_states * mdp.n_features
        # Each step also gathers messages along edges in both directions and writes alpha, all within the cache.
        cached = 8 * MAX_LENGTH * n * (2 * mdp.n_edges + mdp.n_states)
        print(
            f"    {moved / 1e9:6.2f} GB of memory traffic: {moved / taken / 1e12:.2f} TB/s, "
            f"{moved / taken / bandwidth:.0%} of the copy bandwidth; {cached / 1e9:.1f} GB of traffic in the cache"
        )


def variants(mdp: MDP) -> None:
    """Print the time of variants: bounded memory, log arithmetic, a discount, the Hessian."""
    print("variants, K = 3 (Hessian: one intent)")
    thetas = intents(mdp, 3)
    discounted = mdp.replace(gamma=0.999)
    for name, given, options in (
        ("memory bounded (3e8 bytes)", mdp, {"max_bytes": 3e8}),
        ("log arithmetic", mdp, {"arithmetic": "log"}),
        ("discount 0.999", discounted, {}),
        ("conditioned on the start state", mdp, {"by_start": True}),
    ):
        gpu, cpu = make_path_sums(given, "gpu", **options), make_path_sums(given, "cpu", **options)
        compare(name, lambda g=gpu: g.value_and_grad(thetas), lambda c=cpu: c.value_and_grad(thetas), (10, 1))
    gpu, cpu = make_path_sums(mdp, "gpu"), make_path_sums(mdp, "cpu")
    compare("Hessian", lambda: (gpu.covariance(thetas[0]),), lambda: (cpu.covariance(thetas[0]),), (3, 1))


def sizes() -> None:
    """Print the smallest size at which the GPU is faster, which determines the threshold of device='auto'."""
    print("value and gradient of smaller networks, K = 3 (crossover between CPU and GPU)")
    for length in (30, 300):
        for n in (300, 1_000, 3_000, 10_000, 30_000, 100_000):
            mdp = RoadGrid(n, 2 * n).mdp
            thetas = intents(mdp, 3)
            gpu, cpu = make_path_sums(mdp, "gpu", length), make_path_sums(mdp, "cpu", length)
            name = f"{n:,} states, L = {length}"
            compare(
                name, lambda g=gpu, t=thetas: g.value_and_grad(t), lambda c=cpu, t=thetas: c.value_and_grad(t), (20, 5)
            )


def large() -> None:
    """Print the time for networks up to the size of a continent, whose messages do not fit in device memory."""
    print("value and gradient of larger networks, K = 3; messages may use half of the free memory")
    for n in (1_000_000, 10_000_000, 50_000_000):
        mdp = RoadGrid(n, 2 * n).mdp
        thetas = intents(mdp, 3)
        gpu, name = make_path_sums(mdp, "gpu", max_bytes=None), f"{n:,} states"
        if n <= LARGEST_ON_CPU:
            cpu = make_path_sums(mdp, "cpu", max_bytes=None)
            taken, _ = compare(
                name, lambda g=gpu, t=thetas: g.value_and_grad(t), lambda c=cpu, t=thetas: c.value_and_grad(t), (3, 1)
            )
        else:
            gpu.value_and_grad(thetas)
            taken = seconds(lambda g=gpu, t=thetas: g.value_and_grad(t), 3)
            print(f"  {name:<44} {1e3 * taken:9.2f} ms", flush=True)
        print(f"    {1e12 * taken / (n * MAX_LENGTH * 3):.0f} ps per state, step and intent")


def causal() -> None:
    """Print value and gradient of the causal models; for infinite horizons the CPU uses Newton's method and LU."""
    print("causal models, K = 3: log-probabilities of 2,000 state-action pairs, and their gradient")
    soft = [(3_000, 50, 1.0), (30_000, 50, 1.0), (292_604, 50, 1.0), (3_000, math.inf, 0.99)]
    soft += [(30_000, math.inf, gamma) for gamma in (0.9, 0.99, 0.999)]
    for n, horizon, gamma in soft:
        kind = f"horizon {horizon}" if horizon < math.inf else f"infinite horizon, discount {gamma}"
        policies(n, gamma, kind, horizon, lambda device, h=horizon: MaxCausalEnt(max_length=h, device=device))
    for n, gamma in ((3_000, 0.95), (30_000, 0.95), (30_000, 0.99)):
        for q in ("hard", "bv"):
            policies(n, gamma, f"MLIRL, {q}, discount {gamma}", math.inf, lambda device, q=q: MLIRL(q=q, device=device))


def policies(n: int, gamma: float, kind: str, horizon: float, model: Callable[[str], Any]) -> None:
    """Print value and gradient of a causal model in a network with n states."""
    mdp = RoadGrid(n, 594_933 if n == 292_604 else 2 * n, gamma=gamma).mdp
    rng = np.random.default_rng(0)
    thetas = intents(mdp, 3)
    edges = rng.integers(mdp.n_edges, size=2_000)
    demos = Demonstrations.from_lists(
        [[int(mdp.src[e]), int(mdp.dst[e])] for e in edges], [[int(mdp.act[e])] for e in edges]
    )
    given = (None, False) if horizon == math.inf else (int(horizon), True)
    events = DecisionCounts.from_demos(mdp, demos, Groups.from_labels(None, len(demos)), *given)
    weight = rng.uniform(size=(events.candidates.pair.size, 3))
    calls = []
    for device in ("gpu", "cpu"):
        values = model(device)._solver(mdp)

        def call(values: Any = values) -> Any:
            solution = values.solve(thetas, events.candidates)
            return solution.log_prob, solution.gradient(weight)

        calls.append(call)
    compare(f"{n:,} states, {kind}", calls[0], calls[1], (5, 1))


def towns() -> list[MDP]:
    """Return synthetic networks of several sizes."""
    sizes = ((1_000, 1_200), (3_000, 3_600), (10_000, 12_000), (30_000, 36_000), (85_189, 102_227))
    return [RoadGrid(n_states=n, n_edges=edges, seed=0).mdp for n, edges in sizes]


def endless() -> None:
    """Print log Z and its gradient over trajectories of unbounded length: elimination (GPU), sparse LU (CPU)."""
    print("unbounded length: log Z and gradient of MaxEnt(max_length=inf), K = 3; CPU: one reward at a time")
    for mdp in towns():
        thetas = -np.random.default_rng(0).uniform(4.0, 8.0, (3, mdp.n_features))
        gpu, cpu = GpuInfinitePathSums(mdp, need_device()), InfinitePathSums(mdp)
        compare(
            f"{mdp.n_states:,} states",
            lambda g=gpu, t=thetas: g.value_and_grad(t),
            lambda c=cpu, t=thetas: c.value_and_grad(t),
            (10, 1),
        )


def goals(roads: str | None) -> None:
    """Print value and gradient of path sums to goals for 1,000 pairs, for several numbers of rewards at once."""
    print("goals: path sums of 1,000 origin-destination pairs and their gradients, and the finiteness check")
    worlds = towns()
    if roads is not None:
        worlds.append(RoadNetwork.load(roads).mdp())
    for mdp in map(with_choices, worlds):
        n = mdp.n_states
        cpu, gpu = GoalValues(mdp), GpuGoalValues(mdp, need_device())
        rng = np.random.default_rng(0)
        starts, ends = rng.integers(0, n, (2, 2_000))
        linked = np.isfinite(cpu.log_values(np.full((1, mdp.n_features), -1.0), starts, ends)[:, 0])
        starts, ends = starts[linked][:1_000], ends[linked][:1_000]
        levels = int(compute_heights(cpu.symbolic.parent).max()) + 1
        print(f"  {n:,} states: {cpu.symbolic.up.size:,} edges after elimination, {levels} levels")
        for K in (1, 3, 8) if n >= 10_000 else (3,):
            thetas = -rng.uniform(1.0, 2.0, (K, mdp.n_features))
            given = (thetas, starts, ends, np.full((starts.size, K), 1e-3), 1e-6)
            compare(
                f"    K = {K}",
                lambda g=gpu, a=given: g.sum_pairs(*a),
                lambda c=cpu, a=given: c.sum_pairs(*a),
                (10, 1),
            )
        cheap, costly = np.zeros(mdp.n_features), np.full(mdp.n_features, -1.0)
        for name, at in (("infinite", cheap), ("finite", costly)):
            answers = [lambda v=v, t=at: (np.array([1.0 + v.is_finite(t, 1e-6)]),) for v in (gpu, cpu)]
            compare(f"    finiteness check: {name}", *answers, (20, 3))
    train_goals(with_choices(worlds[-1] if roads is not None else worlds[2]))


def train_goals(mdp: MDP) -> None:
    """Print a training run of the destination model: K = 3, 1,000 trips, 5 iterations of at most 50 evaluations."""
    print(
        f"training with destinations, {mdp.n_states:,} states: K = 3, 1,000 trips, "
        "5 EM iterations of at most 50 evaluations"
    )
    rng = np.random.default_rng(0)
    starts, ends = rng.integers(0, mdp.n_states, (2, 4_000))
    truth = -rng.uniform(1.0, 2.0, (3, mdp.n_features))
    linked = np.isfinite(GoalValues(mdp).log_values(truth, starts, ends)).all(axis=1)
    chosen = np.array_split(np.flatnonzero(linked)[:1_000], 3)
    drawn = [DestinationMaxEnt().sample(mdp, t, starts[c], ends[c], rng) for t, c in zip(truth, chosen, strict=True)]
    train(mdp, concatenate(drawn), lambda device: DestinationMaxEnt(device=device), "bfgs")


def training(mdp: MDP) -> None:
    """Print a training run: K = 3, 1,000 trips, 5 iterations of at most 50 evaluations."""
    print("training: K = 3, 1,000 trips, 5 EM iterations of at most 50 evaluations")
    truth = intents(mdp, 3)
    rng = np.random.default_rng(1)
    drawn = [MaxEnt(MAX_LENGTH).sample(mdp, theta, n, rng) for theta, n in zip(truth, (334, 333, 333), strict=True)]
    options: dict[str, Any] = {"max_memory": STORED, "max_evaluations": 50}
    for solver in ("lbfgs", "newton"):

        def model(device: str, solver: str = solver) -> MaxEnt:
            return MaxEnt(MAX_LENGTH, device=device, solver=solver, **options)

        train(mdp, concatenate(drawn), model, solver, on_cpu=solver == "lbfgs")


def concatenate(drawn: list[Demonstrations]) -> Demonstrations:
    """Concatenate demonstrations."""
    lists = [list(map(int, trip)) for demos in drawn for trip in np.split(demos.states, demos.offsets[1:-1])]
    return Demonstrations.from_lists(lists)


def train(mdp: MDP, demos: Demonstrations, model: Callable[[str], Any], name: str, *, on_cpu: bool = True) -> None:
    """Print the times of a fit on the GPU (after compilation) and on the CPU, and the difference of their results."""
    fits = []
    for device in ("gpu", "cpu")[: 1 + on_cpu]:
        mixture = IntentMixture(3, model(device), resp_tol=1e-12, max_iter=5, max_evaluations=50, random_state=0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if device == "gpu":
                mixture.fit(mdp, demos)  # compiles
            taken = seconds(lambda m=mixture: m.fit(mdp, demos), 2 if device == "gpu" else 1)
        fits.append(mixture)
        print(
            f"  {name}, {device}: {taken:8.2f} s, log-likelihood per trip {mixture.score(demos):.6f}, "
            f"{mixture.n_iter_} iterations", flush=True,
        )  # fmt: skip
    if on_cpu:
        gap = np.max(np.abs(fits[0].thetas_ - fits[1].thetas_))
        print(f"  {name}: largest difference between the parameters {gap:.1e}")


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--roads", metavar="NETWORK.npz", help="also run goals on this network")
    options = parser.parse_args()
    mdp = network(options.quick)
    device = need_device()
    print(f"gpu: {mdp.n_states:,} states, {mdp.n_edges:,} edges, {mdp.n_features} features, L = {MAX_LENGTH}")
    print(f"{device.name}, CuPy {device.xp.__version__}, CUDA {device.xp.cuda.runtime.runtimeGetVersion()}")
    print(f"{describe_machine()}, {numba.config.NUMBA_NUM_THREADS} threads", flush=True)
    for part in options.parts:
        if part == "goals":
            goals(options.roads)
        elif part in ("sizes", "large", "causal", "endless"):
            globals()[part]()
        else:
            globals()[part](mdp)


if __name__ == "__main__":
    main()
