"""Extrapolation of measured costs to a continent and a billion trips; each measurement is given with its file.

`python -m benchmarks.scale cost` prints the result.
"""

import math

SEGMENTS, TRIPS, K, FEATURES = 50e6, 1e9, 3, 24
PAPER_STATES, PAPER_LENGTH = 292_604, 300
# docs/results/gpu/gpu.txt: ms per evaluation at the paper's size, K = 3; bytes per second of a copy.
GPU_MS, GPU_BOUNDED_MS, GPU_LOG_MS, GPU_COPY = 5.87, 8.89, 20.44, 4.17e12
# The same file: seconds per evaluation for a continent with checkpoints, L = 300, K = 3; and for 10 million states on
# 16 cores.
CONTINENT_S, CORES_S, CORES_STATES = 2.160, 17.99, 10e6
# docs/results/gpu/rivals.txt: extra seconds with one launch per step (CUDA graph) instead of one per pass.
LAUNCH_S = (8.18e-3 - 4.19e-3) / (2 * PAPER_LENGTH)
# docs/results/matching.txt: fixes per second of one processor; numbers of matched fixes and trips.
FIXES_PER_SECOND, FIXES, MATCHED_TRIPS = 78_589, 658_505, 17_084
# docs/results/streaming.txt: rows per second and core in one pass, on two cores; 24 features, K = 3, N = 1e7.
STREAMED, IN_MEMORY = 6.41e6 / 2, 13.67e6 / 2
# docs/results/gpu/gpu.txt: seconds for value and gradient of 1,000 pairs in Porto, K = 3, including elimination.
PAIRS_GPU_S, PAIRS_GPU, PORTO = 14.36e-3, 1_000, 85_189
# docs/adr/0016-destination-model.md: seconds per pair for value and flow in Porto; seconds per factorisation.
PAIR_S = 0.103 / 818
FACTOR_S = {("Porto", 85_189): 0.035, ("a synthetic network with two edges per state", PAPER_STATES): 20.0}
CORES_PER_GPU = 16  # as on the machine that was measured
ITERATIONS, EVALUATIONS = 5, 50
# Assumed: seconds per exchange of a few hundred kB within a machine and between machines.
EXCHANGE_S = {1: 0.0, 8: 20e-6, 64: 40e-6}


def cost() -> None:
    """Print the estimated cost of a continent and a billion trips."""
    print(f"cost: {SEGMENTS:,.0f} segments, {TRIPS:,.0f} trips, K = {K}; extrapolated from measurements")
    per = 1e9 / (PAPER_STATES * PAPER_LENGTH * K)
    print(
        f"  measured, one H200, per state, step and intent: {per * GPU_MS:.1f} ps stored, "
        f"{per * GPU_BOUNDED_MS:.1f} bounded memory, {per * GPU_LOG_MS:.1f} in log arithmetic"
    )
    print(f"  measured: {1e6 * LAUNCH_S:.1f} us more per step with one launch per step (CUDA graph)")
    for length in (PAPER_LENGTH, 4000):
        evaluations(length)
    pairs, fit = TRIPS * PAIR_S, ITERATIONS * EVALUATIONS * K
    works = {
        "matching, once": TRIPS * FIXES / MATCHED_TRIPS / FIXES_PER_SECOND,
        "one E-step from files": TRIPS / STREAMED,
        "one E-step in memory": TRIPS / IN_MEMORY,
        "with destinations: flows of all pairs, K = 1": pairs,
        f"  {fit} evaluations": fit * pairs,
        f"  {fit} evaluations of 10,000 pairs": fit * 1e4 * PAIR_S,
    }
    print(f"  feature store: {TRIPS * (FEATURES + 2) * 8 / 1e9:.0f} GB")
    for name, core_s in works.items():
        by = ", ".join(f"{span(core_s / (n * CORES_PER_GPU))} on {n * CORES_PER_GPU:,} cores" for n in EXCHANGE_S)
        print(f"  {name:<46} {core_s / 3600:10,.2f} core-hours: {by}")
    print(
        f"  a region of {PORTO:,} states on a GPU, elimination and {PAIRS_GPU:,} pairs, K = {K}: "
        f"{1e3 * PAIRS_GPU_S:.0f} ms; {SEGMENTS / PORTO:.0f} such regions take {span(SEGMENTS / PORTO * PAIRS_GPU_S)}"
    )
    for (name, states), taken in FACTOR_S.items():
        whole = taken * (SEGMENTS / states) ** 1.5
        print(f"  factorisation of {SEGMENTS:,.0f} states, extrapolated as S^1.5 from {name}: {span(whole)}")


def evaluations(length: int) -> None:
    """Print memory and time of an evaluation and of a fit on 1, 8 and 64 GPUs."""
    row, stretch = 8 * SEGMENTS * K, math.isqrt(length - 1)
    rows = stretch + 1 + math.ceil((length - 1) / stretch) + 1  # as `irl.maxent.messages` stores them
    print(
        f"  L = {length:,}: messages {row * length / 1e12:.2f} TB; with checkpoints {rows} steps, "
        f"{row * rows / 1e9:.0f} GB for {K} intents at once, {row * rows / K / 1e9:.0f} GB for one at a time"
    )
    moved = least_traffic(8) * SEGMENTS * length
    print(f"    minimum traffic, linear, 64 bits: {moved / 1e12:.1f} TB, {moved / GPU_COPY:.2f} s at copy bandwidth")
    scale = CONTINENT_S * length / PAPER_LENGTH
    for name, whole in (("linear", scale), ("log", scale * GPU_LOG_MS / GPU_MS)):
        cells = []
        for n, wait in EXCHANGE_S.items():
            taken = whole / n + (3 * length * (LAUNCH_S + wait) if n > 1 else 0.0)  # with checkpoints: three passes
            fit = ITERATIONS * EVALUATIONS * taken
            cells.append(f"{n} x {span(taken)} ({whole / n / taken:.0%}; {span(fit)}, {n * fit / 3600:.2f} GPU-h)")
        print(
            f"    {name:<6} time per evaluation (efficiency; fit of {ITERATIONS * EVALUATIONS} evaluations): "
            + ", ".join(cells)
        )
    cores = CORES_S * SEGMENTS / CORES_STATES * length / PAPER_LENGTH
    print(f"    linear on 16 cores without a GPU: {cores:.0f} s")


def span(seconds: float) -> str:
    """Return a time as text."""
    for unit, size in (("h", 3600), ("min", 60), ("s", 1)):
        if seconds >= size:
            return f"{seconds / size:,.{0 if seconds >= 100 * size else 1}f} {unit}"
    return f"{1e3 * seconds:.0f} ms"


def least_traffic(size: int) -> int:
    """Return the minimum memory traffic in bytes per state and step, without cache hits for messages.

    Messages have `size` bytes per value. Each of the two backward passes reads and writes messages, and reads the
    weights and the table of neighbours; the forward pass reads messages, reads and writes alpha and the counts, and
    reads the weights and the table.
    """
    return 2 * (2 * size * K + 8 * K + 12) + 3 * size * K + 3 * 8 * K + 12
