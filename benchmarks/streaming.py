"""Streams: the memory and the parameters of a fit larger than memory, what an iteration costs, and how that grows.

Run as `python -m benchmarks.streaming [growth] [LARGEST]` or `python -m benchmarks.streaming claim [N] [FOLDER]`.

- `growth` (default, up to 1e6 demonstrations): the time of an EM iteration in plain numpy, by the library in memory,
  and streamed: from the files of a store, and from rows without any (windows of one table, so that making them takes no
  time). Demonstrations per second as ratios to numpy, and the peak memory of a fresh process each. Beyond 1e7 only the
  last is run: the others would need 20 GB of memory or of disk.
- `claim`: N demonstrations (default 1e6; the issue's figure is 1e7, which takes 2 GB of disk) are written to a store,
  part by part; fitted from it in a fresh process; and fitted in memory in another, from the same start for as many
  iterations.

Demonstrations are walks in a synthetic world: 24 features, three intents.
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
from limiirl.demos.groups import Groups
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
    """Demonstrations of part `index`."""
    return WORLD.sample(n, seed=index)[0]


def sizes(n: int) -> list[int]:
    """Rows of each part."""
    return [PART] * (n // PART) + ([n % PART] if n % PART else [])


def write_store(n: int, folder: Path) -> FeatureStore:
    """Return a store of n demonstrations, written now or before; a folder with another number of them is rejected."""
    rows = sizes(n)
    made = FunctionSource(lambda i: part(i, rows[i]), len(rows), version=f"{n} demonstrations in parts of {PART}")
    return write_features(WORLD.mdp, made, folder)


def in_memory(rows: Rows) -> MaxEntProblem:
    """Return the problem that `IntentMixture.fit` runs EM on, without the demonstrations."""
    n = len(rows.log_q)
    units = Groups(None, rows.counts, np.arange(n))
    return MaxEntProblem(
        MODEL, WORLD.mdp, None, units, MODEL.path_sums_for_fit(WORLD.mdp, 0), RowStatistics(rows, units)
    )


def tile(n: int = 2 * PART) -> Rows:
    """A table from which generated parts are windows."""
    demos = part(0, n)
    return Rows(demos.features(WORLD.mdp), demos.log_q(WORLD.mdp), np.ones(n))


def generate_store(n: int, known: Rows) -> FeatureStore:
    """n rows without files: each part a window of one table."""
    rows = sizes(n)
    offsets = np.random.default_rng(0).integers(len(known.log_q) - PART, size=len(rows))

    def window(i: int) -> Rows:
        return Rows(*(array[offsets[i] : offsets[i] + rows[i]] for array in known))

    return FeatureStore.from_function(window, rows, WORLD.mdp.n_features, longest=WORLD.horizon + 1)


def em(ready, iterations: int):
    """Run EM from the start that all share."""
    begin = Start(np.array(START.weights), np.array(START.thetas))
    return run(ready, begin, Settings(max_iter=iterations, resp_tol=0.0))


def iteration_time(ready) -> float:
    """Seconds of one iteration: those of several less those of the start."""
    em(ready, 0)  # compiles
    first = seconds(lambda: em(ready, 0), 2)
    return max(seconds(lambda: em(ready, ITERATIONS), 2) - first, 1e-9) / ITERATIONS


def numpy_iteration(rows: Rows, ready: MaxEntProblem, state: dict) -> None:
    """The same iteration with arrays of numpy and scipy's logsumexp; the M-step is the library's."""
    log_Z = ready.path_sums.log_partition(state["thetas"])
    joint = rows.features @ state["thetas"].T + rows.log_q[:, None] - np.outer(rows.counts, log_Z)
    joint += np.log(state["rho"])
    U = np.exp(joint - logsumexp(joint, axis=1)[:, None])
    state["change"] = np.abs(U - state["U"]).sum() / len(U)
    moments = ready.moments(np.empty((0, 3)))._replace(features=U.T @ rows.features, counts=U.sum(axis=0))
    state["thetas"] = ready.m_step(moments, state["thetas"], np.arange(3), 50).thetas
    state["rho"], state["U"] = U.mean(axis=0), U


def measure(kind: str, n: int, folder: str) -> dict:
    """Time an iteration of one kind in this process."""
    if kind == "generated":
        ready = stream_problem(MODEL, WORLD.mdp, generate_store(n, tile()))
    elif kind == "files":
        ready = stream_problem(MODEL, WORLD.mdp, FeatureStore.open(folder))
    else:
        ready = in_memory(FeatureStore.open(folder).take(np.arange(n)))
    if kind == "numpy":
        empty = in_memory(Rows(np.empty((0, 24)), np.empty(0), np.empty(0)))

        def several(iterations: int) -> None:
            state = {"thetas": np.array(START.thetas), "rho": np.array(START.weights), "U": np.zeros((n, 3))}
            for _ in range(iterations):
                numpy_iteration(ready.rows, empty, state)

        several(1)
        taken = seconds(lambda: several(ITERATIONS), 2) / ITERATIONS
    else:
        taken = iteration_time(ready)
    return {"seconds": taken, "peak": peak_bytes()}


def growth(largest: float) -> None:
    """Print the cost of an iteration for each N and each source of rows."""
    print(f"streaming: an EM iteration on 24 features, K = 3, parts of {PART:,} rows")
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
        print(f"  time of an iteration, generated: N to the power {exponent:.2f} (1 is proportional)")


def fit(kind: str, folder: str) -> dict:
    """Fit to a store in this process; return the parameters and the peak memory."""
    store = FeatureStore.open(folder)
    ready = stream_problem(MODEL, WORLD.mdp, store) if kind == "files" else in_memory(store.take(np.arange(store.n)))
    began = time.perf_counter()
    result = em(ready, ITERATIONS)
    taken = time.perf_counter() - began
    report = {"rho": result.rho.tolist(), "thetas": result.thetas.tolist(), "log_likelihood": result.log_likelihood}
    return report | {"seconds": taken, "peak": peak_bytes()}


def farthest(actual: object, expected: object) -> float:
    """The largest relative difference; a reward on its bound of 0 must be 0 in both."""
    one, other = np.array(actual), np.array(expected)
    return float(np.max(np.where(one == other, 0.0, np.abs(one - other) / np.maximum(np.abs(other), 1e-300))))


def claim(n: int, folder: Path) -> None:
    """Print the peaks of memory, and how far the parameters are apart."""
    print(f"streaming: {n:,} demonstrations, 24 features, K = 3, {ITERATIONS} iterations, from disk and in memory")
    print(describe_machine())
    known, began = folder.exists(), time.perf_counter()
    store = write_store(n, folder)
    rate, peak = n / (time.perf_counter() - began), peak_bytes() / 2**20
    how = (
        "there already"
        if known
        else f"{rate:,.0f} demonstrations per second (drawing them included), peak {peak:,.0f} MB"
    )
    print(f"  features in {len(store.shards)} parts: {how}")
    reports = {
        kind: json.loads(run_fresh("benchmarks.streaming", "fit", kind, str(folder))) for kind in ("files", "memory")
    }
    for kind, name in (("files", "streamed"), ("memory", "in memory")):
        rate = n * (ITERATIONS + 1) / reports[kind]["seconds"]
        print(
            f"  {name:<9} {rate:12,.0f} demonstrations per second and pass, "
            f"peak {reports[kind]['peak'] / 2**20:,.0f} MB"
        )
    on_disk, in_ram = reports["files"], reports["memory"]
    apart = {name: farthest(on_disk[name], in_ram[name]) for name in ("rho", "thetas", "log_likelihood")}
    print("  largest relative difference: " + ", ".join(f"{name} {value:.1e}" for name, value in apart.items()))
    limit, near = max(on_disk["peak"], 2**20 * peak) < 2e9, all(value < 1e-8 for value in apart.values())
    print(f"  under 2 GB: {'yes' if limit else 'NO'}; within 1e-8: {'yes' if near else 'NO'}")


def main() -> None:
    """Run the part named on the command line."""
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
