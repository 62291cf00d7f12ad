"""Memory, parameters and time per iteration of streamed fits, and their growth with N.

Run as `python -m benchmarks.streaming [growth] [LARGEST]` or `python -m benchmarks.streaming claim [N] [FOLDER]`.

- `growth` (default, up to 1e6 demonstrations): the time of an EM iteration in plain numpy, with the library in memory,
  and streamed: from the files of a store, and from generated rows without files (views of one table, so that generating
  them takes no time). Prints demonstrations per second relative to numpy, and the peak memory of a new process. Beyond
  1e7, only generated rows are used; the others would need 20 GB of memory or disk.
- `claim`: N demonstrations (default 1e6; 1e7 takes 2 GB of disk) are written to a store shard by shard, fitted from the
  store in one new process, and fitted in memory in another, with the same initialisation and number of iterations.

Demonstrations are trajectories in a synthetic world with 24 features and three intents.
"""

import json
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from scipy.special import logsumexp

from benchmarks.measure import describe_machine, peak_bytes, run_fresh, seconds
from limiirl import MaxEnt, RewardEnsemble
from limiirl.demos import Groups
from limiirl.irl.maxent.problem import MaxEntProblem, RowStatistics
from limiirl.mixture.em import Settings, Start, run
from limiirl.streams import FeatureStore, FunctionSource, Rows, write_features
from limiirl.streams.passes import stream_problem
from limiirl.worlds import SyntheticWorld

ITERATIONS, PART = 5, 2**18
WORLD = SyntheticWorld(n_intents=3, n_features=24, n_states=120, separation=0.3, seed=1)
START = RewardEnsemble(np.full(3, 1 / 3), WORLD.ensemble.thetas * 0.7)
MODEL = MaxEnt(max_length=WORLD.horizon + 1, bounds=(-15.0, 0.0))
_LARGEST_IN_MEMORY = 1.5e7


def part(index: int, n: int = PART):
    """Return the demonstrations of shard `index`."""
    return WORLD.sample(n, seed=index)[0]


def sizes(n: int) -> list[int]:
    """Return the number of rows in each shard."""
    return [PART] * (n // PART) + ([n % PART] if n % PART else [])


def write_store(n: int, folder: Path) -> FeatureStore:
    """Return a store of n demonstrations; write it unless it exists, and raise if it has another size."""
    rows = sizes(n)
    source = FunctionSource(lambda i: part(i, rows[i]), len(rows), version=f"{n} demonstrations in parts of {PART}")
    return write_features(WORLD.mdp, source, folder)


def in_memory(rows: Rows) -> MaxEntProblem:
    """Return the fit problem of `IntentMixture.fit`, without the demonstrations."""
    n = len(rows.log_q)
    units = Groups(None, rows.counts, np.arange(n))
    return MaxEntProblem(MODEL, WORLD.mdp, None, units, MODEL.path_sums(WORLD.mdp), RowStatistics(rows, units))


def tile(n: int = 2 * PART) -> Rows:
    """Return a table from which generated shards are views."""
    demos = part(0, n)
    return Rows(demos.features(WORLD.mdp), demos.log_q(WORLD.mdp), np.ones(n))


def generate_store(n: int, known: Rows) -> FeatureStore:
    """Return a store of n rows without files, whose shards are views of one table."""
    rows = sizes(n)
    offsets = np.random.default_rng(0).integers(len(known.log_q) - PART, size=len(rows))

    def window(i: int) -> Rows:
        return Rows(*(array[offsets[i] : offsets[i] + rows[i]] for array in known))

    return FeatureStore.from_function(window, rows, WORLD.mdp.n_features, longest=WORLD.horizon + 1)


def em(problem, iterations: int):
    """Run EM from the common initialisation."""
    begin = Start(np.array(START.weights), np.array(START.thetas))
    return run(problem, begin, Settings(max_iter=iterations, resp_tol=0.0))


def iteration_time(problem) -> float:
    """Return the seconds per iteration: the time of several iterations minus the time of the initialisation."""
    em(problem, 0)  # compiles
    first = seconds(lambda: em(problem, 0), 2)
    return max(seconds(lambda: em(problem, ITERATIONS), 2) - first, 1e-9) / ITERATIONS


def numpy_iteration(rows: Rows, problem: MaxEntProblem, state: dict) -> None:
    """Run the same iteration with numpy and scipy's logsumexp; the M-step is that of the library."""
    log_Z = problem.path_sums.log_partition(state["thetas"])
    joint = rows.features @ state["thetas"].T + rows.log_q[:, None] - np.outer(rows.counts, log_Z)
    joint += np.log(state["rho"])
    U = np.exp(joint - logsumexp(joint, axis=1)[:, None])
    state["change"] = np.abs(U - state["U"]).sum() / len(U)
    moments = problem.moments(np.empty((0, 3)))._replace(features=U.T @ rows.features, counts=U.sum(axis=0))
    state["thetas"] = problem.m_step(moments, state["thetas"], np.arange(3), 50).thetas
    state["rho"], state["U"] = U.mean(axis=0), U


def measure(kind: str, n: int, folder: str) -> dict:
    """Time an iteration with one source of rows in this process."""
    if kind == "generated":
        problem = stream_problem(MODEL, WORLD.mdp, generate_store(n, tile()))
    elif kind == "files":
        problem = stream_problem(MODEL, WORLD.mdp, FeatureStore.open(folder))
    else:
        problem = in_memory(FeatureStore.open(folder).take(np.arange(n)))
    if kind == "numpy":
        empty = in_memory(Rows(np.empty((0, 24)), np.empty(0), np.empty(0)))

        def several(iterations: int) -> None:
            state = {"thetas": np.array(START.thetas), "rho": np.array(START.weights), "U": np.zeros((n, 3))}
            for _ in range(iterations):
                numpy_iteration(problem.rows, empty, state)

        several(1)
        taken = seconds(lambda: several(ITERATIONS), 2) / ITERATIONS
    else:
        taken = iteration_time(problem)
    return {"seconds": taken, "peak": peak_bytes()}


def growth(largest: float) -> None:
    """Print the cost of an iteration for each N and each source of rows."""
    print(f"streaming: EM iterations on 24 features, K = 3, shards of {PART:,} rows")
    print(describe_machine())
    print("demonstrations per second (ratio to numpy; peak memory of the process)")
    kinds = ("numpy", "memory", "files", "generated")
    print(f"  {'N':>12} " + "".join(f"{kind:>34}" for kind in kinds))
    times = []
    for n in (10**power for power in range(5, 9) if 10**power <= largest):
        cells, base = [], None
        with tempfile.TemporaryDirectory() as scratch:
            folder = str(Path(scratch) / "store")
            if n < _LARGEST_IN_MEMORY:
                write_store(n, Path(folder))
            for kind in kinds:
                if kind != "generated" and n >= _LARGEST_IN_MEMORY:
                    cells.append(f"{'-':>34}")
                    continue
                report = json.loads(run_fresh("benchmarks.streaming", "one", kind, str(n), folder))
                base = report["seconds"] if kind == "numpy" else base
                ratio = f"{base / report['seconds']:.2f}x, " if base else ""
                cells.append(f"{n / report['seconds']:15,.0f} ({ratio}{report['peak'] / 2**20:,.0f} MB)".rjust(34))
                if kind == "generated":
                    times.append((n, report["seconds"]))
        print(f"  {n:12,} " + "".join(cells), flush=True)
    if len(times) > 1:
        exponent = np.polyfit(*np.log(np.array(times)).T, 1)[0]
        print(f"  time per iteration, generated: N to the power {exponent:.2f} (1 is proportional)")


def fit(kind: str, folder: str) -> dict:
    """Fit a store in this process, and return the parameters and the peak memory."""
    store = FeatureStore.open(folder)
    problem = stream_problem(MODEL, WORLD.mdp, store) if kind == "files" else in_memory(store.take(np.arange(store.n)))
    began = time.perf_counter()
    result = em(problem, ITERATIONS)
    taken = time.perf_counter() - began
    report = {"rho": result.rho.tolist(), "thetas": result.thetas.tolist(), "log_likelihood": result.log_likelihood}
    return report | {"seconds": taken, "peak": peak_bytes()}


def largest_difference(actual: object, expected: object) -> float:
    """Return the largest relative difference; a reward at its bound of 0 must be 0 in both."""
    one, other = np.array(actual), np.array(expected)
    return float(np.max(np.where(one == other, 0.0, np.abs(one - other) / np.maximum(np.abs(other), 1e-300))))


def claim(n: int, folder: Path) -> None:
    """Print the peak memory, and the differences between the parameters."""
    print(f"streaming: {n:,} demonstrations, 24 features, K = 3, {ITERATIONS} iterations, from disk and in memory")
    print(describe_machine())
    known, began = folder.exists(), time.perf_counter()
    store = write_store(n, folder)
    rate, peak = n / (time.perf_counter() - began), peak_bytes() / 2**20
    how = (
        "already written"
        if known
        else f"{rate:,.0f} demonstrations per second (including sampling), peak {peak:,.0f} MB"
    )
    print(f"  features in {len(store.shards)} shards: {how}")
    reports = {
        kind: json.loads(run_fresh("benchmarks.streaming", "fit", kind, str(folder))) for kind in ("files", "memory")
    }
    for kind, name in (("files", "streamed"), ("memory", "in memory")):
        rate = n * (ITERATIONS + 1) / reports[kind]["seconds"]
        print(
            f"  {name:<9} {rate:12,.0f} demonstrations per second in each pass, "
            f"peak {reports[kind]['peak'] / 2**20:,.0f} MB"
        )
    on_disk, in_ram = reports["files"], reports["memory"]
    differences = {
        name: largest_difference(on_disk[name], in_ram[name]) for name in ("rho", "thetas", "log_likelihood")
    }
    print("  largest relative difference: " + ", ".join(f"{name} {value:.1e}" for name, value in differences.items()))
    limit, near = max(on_disk["peak"], 2**20 * peak) < 2e9, all(value < 1e-8 for value in differences.values())
    print(f"  under 2 GB: {'yes' if limit else 'NO'}; within 1e-8: {'yes' if near else 'NO'}")


def main() -> None:
    """Run the benchmark named on the command line."""
    words = sys.argv[1:]
    if words[:1] == ["one"]:
        print(json.dumps(measure(words[1], int(words[2]), words[3])))
    elif words[:1] == ["fit"]:
        print(json.dumps(fit(words[1], words[2])))
    elif words[:1] == ["claim"]:
        n = int(float(words[1])) if len(words) > 1 else 10**6
        with tempfile.TemporaryDirectory() as scratch:
            claim(n, Path(words[2]) if len(words) > 2 else Path(scratch) / "store")
    else:
        growth(float(words[-1]) if words and words[-1] != "growth" else 1e6)


if __name__ == "__main__":
    main()
