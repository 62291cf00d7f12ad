"""Growth of the time of value and gradient with states, edges, path length and intents.

One size is varied at a time; the exponent is the slope of log time against log size. Run as `python -m
benchmarks.growth`.
"""

import numpy as np

from benchmarks.measure import describe_machine, seconds
from benchmarks.path_sums import intents
from limiirl.irl.maxent.path_sums import FinitePathSums
from limiirl.worlds import RoadGrid

STATES, DEGREE, LENGTH, K = 60_000, 2.0, 60, 3


def evaluation_time(n_states: int = STATES, degree: float = DEGREE, max_length: int = LENGTH, n: int = K) -> float:
    """Return the time of one evaluation with all messages stored, in seconds."""
    mdp = RoadGrid(n_states=n_states, n_edges=round(degree * n_states)).mdp
    path_sums, thetas = FinitePathSums(mdp, max_length, max_bytes=1e11), intents(mdp, n)
    path_sums.expected_counts(thetas)
    return seconds(lambda: path_sums.expected_counts(thetas), 5)


def main() -> None:
    """Print the exponents."""
    print("growth: exponent of each size in the time of value and gradient (1: proportional)")
    print(describe_machine())
    sizes = {
        "states S (E proportional)": [{"n_states": n} for n in (15_000, 30_000, 60_000, 120_000, 240_000)],
        "edges E (S constant)": [{"degree": d} for d in (1.3, 1.6, 2.0, 2.4, 2.7)],
        "path length L": [{"max_length": n} for n in (15, 30, 60, 120, 240)],
        "intents K": [{"n": n} for n in (1, 2, 4, 8)],
    }
    for name, cases in sizes.items():
        values = np.array([next(iter(case.values())) for case in cases], dtype=float)
        times = np.array([evaluation_time(**case) for case in cases])
        exponent = np.polyfit(np.log(values), np.log(times), 1)[0]
        listed = "  ".join(f"{value:g}: {1e3 * taken:.1f}" for value, taken in zip(values, times, strict=True))
        print(f"  {name:<28} exponent {exponent:5.2f}    ms at {listed}")


if __name__ == "__main__":
    main()
