"""The arithmetic of a continent and a billion trips: measured figures, each with the file it is from, in proportion.

`python -m benchmarks.scale cost` prints it.
"""

import math

SEGMENTS, TRIPS, K, FEATURES = 50e6, 1e9, 3, 24
PAPER_STATES, PAPER_LENGTH = 292_604, 300
# docs/results/gpu/gpu.txt: ms of an evaluation at the paper's size, K = 3; bytes per second of a copy.
GPU_MS, GPU_BOUNDED_MS, GPU_LOG_MS, GPU_COPY = 5.87, 8.89, 20.44, 4.17e12
# The same file: seconds of an evaluation of a continent's segments, L = 300, K = 3, from checkpoints; and of 10 million
# on 16 cores.
CONTINENT_S, CORES_S, CORES_STATES = 2.160, 17.99, 10e6
# docs/results/gpu/rivals.txt: seconds with a launch a step, as a CUDA graph, less those with one launch a sweep.
LAUNCH_S = (8.18e-3 - 4.19e-3) / (2 * PAPER_LENGTH)
# docs/results/matching.txt: fixes a second of one processor; fixes matched and trips that they are of.
FIXES_A_SECOND, FIXES, MATCHED_TRIPS = 78_589, 658_505, 17_084
# docs/results/streaming.txt: rows per second and pass of a core, on a machine of two; 24 features, K = 3, N = 1e7.
STREAMED, IN_MEMORY = 6.41e6 / 2, 13.67e6 / 2
# docs/results/gpu/gpu.txt: seconds for value and gradient of 1,000 pairs, K = 3, in Porto; the elimination included.
PAIRS_GPU_S, PAIRS_GPU, PORTO = 14.36e-3, 1_000, 85_189
# docs/adr/0016-destination-model.md: seconds a pair for value and flow, in Porto; seconds of a factorisation.
PAIR_S = 0.103 / 818
FACTOR_S = {("Porto", 85_189): 0.035, ("a generated network of two edges a state", PAPER_STATES): 20.0}
CORES_A_GPU = 16  # as on the machine that was measured
ITERATIONS, EVALUATIONS = 5, 50
# Not measured here: seconds that an exchange of a few hundred kB takes within a machine and between machines.
EXCHANGE_S = {1: 0.0, 8: 20e-6, 64: 40e-6}


def cost() -> None:
    """Print the arithmetic of a continent and a billion trips."""
    print(f"cost: {SEGMENTS:,.0f} segments, {TRIPS:,.0f} trips, K = {K}; in proportion to what was measured")
    per = 1e9 / (PAPER_STATES * PAPER_LENGTH * K)
    print(
        f"  measured, one H200, a state, step and intent: {per * GPU_MS:.1f} ps stored, "
        f"{per * GPU_BOUNDED_MS:.1f} memory bounded, {per * GPU_LOG_MS:.1f} in log space"
    )
    print(f"  measured: {1e6 * LAUNCH_S:.1f} us more a step where each step is a launch of a CUDA graph")
    for length in (PAPER_LENGTH, 4000):
        evaluations(length)
    pairs, fit = TRIPS * PAIR_S, ITERATIONS * EVALUATIONS * K
    works = {
        "matching, once": TRIPS * FIXES / MATCHED_TRIPS / FIXES_A_SECOND,
        "an E-step from files": TRIPS / STREAMED,
        "an E-step in memory": TRIPS / IN_MEMORY,
        "given destinations: flows of all pairs, K = 1": pairs,
        f"  {fit} of them": fit * pairs,
        f"  {fit} times 10,000 pairs": fit * 1e4 * PAIR_S,
    }
    print(f"  the store: {TRIPS * (FEATURES + 2) * 8 / 1e9:.0f} GB of feature sums")
    for name, core_s in works.items():
        by = ", ".join(f"{span(core_s / (n * CORES_A_GPU))} on {n * CORES_A_GPU:,}" for n in EXCHANGE_S)
        print(f"  {name:<46} {core_s / 3600:10,.2f} core-hours: {by}")
    print(
        f"  a region of {PORTO:,} states on a GPU, elimination and {PAIRS_GPU:,} pairs, K = {K}: "
        f"{1e3 * PAIRS_GPU_S:.0f} ms; {SEGMENTS / PORTO:.0f} such regions {span(SEGMENTS / PORTO * PAIRS_GPU_S)}"
    )
    for (name, states), taken in FACTOR_S.items():
        whole = taken * (SEGMENTS / states) ** 1.5
        print(f"  a factorisation of {SEGMENTS:,.0f} states by S^1.5, from {name}: {span(whole)}")


def evaluations(length: int) -> None:
    """Print memory and time of an evaluation on one GPU, on eight and on 64, and of a fit's evaluations."""
    row, stretch = 8 * SEGMENTS * K, math.isqrt(length - 1)
    rows = stretch + 1 + math.ceil((length - 1) / stretch) + 1  # as `irl.maxent.messages` stores them
    print(
        f"  L = {length:,}: messages {row * length / 1e12:.2f} TB; with checkpoints {rows} of them, "
        f"{row * rows / 1e9:.0f} GB for {K} intents at once, {row * rows / K / 1e9:.0f} GB one by one"
    )
    moved = least_traffic(8) * SEGMENTS * length
    print(
        f"    least traffic, linear space, 64 bits: {moved / 1e12:.1f} TB, {moved / GPU_COPY:.2f} s at a copy's speed"
    )
    scale = CONTINENT_S * length / PAPER_LENGTH
    for name, whole in (("linear", scale), ("log", scale * GPU_LOG_MS / GPU_MS)):
        cells = []
        for n, wait in EXCHANGE_S.items():
            taken = whole / n + (3 * length * (LAUNCH_S + wait) if n > 1 else 0.0)  # bounded: three sweeps
            fit = ITERATIONS * EVALUATIONS * taken
            cells.append(f"{n} x {span(taken)} ({whole / n / taken:.0%}; {span(fit)}, {n * fit / 3600:.2f} GPU-h)")
        print(f"    {name:<6} an evaluation (efficiency; a fit of {ITERATIONS * EVALUATIONS}): " + ", ".join(cells))
    cores = CORES_S * SEGMENTS / CORES_STATES * length / PAPER_LENGTH
    print(f"    linear on 16 cores without a GPU: {cores:.0f} s")


def span(seconds: float) -> str:
    """Return a time in words."""
    for unit, size in (("h", 3600), ("min", 60), ("s", 1)):
        if seconds >= size:
            return f"{seconds / size:,.{0 if seconds >= 100 * size else 1}f} {unit}"
    return f"{1e3 * seconds:.0f} ms"


def least_traffic(size: int) -> int:
    """Return the bytes per state and step that pass through memory where no message stays in the cache.

    Messages have `size` bytes per number. Two backward passes read and write one, and read weights and the table of
    neighbours; the forward one reads a message, reads and writes alpha and the counts, and reads weights and the table.
    """
    return 2 * (2 * size * K + 8 * K + 12) + 3 * size * K + 3 * 8 * K + 12
