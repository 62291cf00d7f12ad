"""Coverage of 95 % intervals of standard errors (observed, robust) and of the profile likelihood, by simulation.

Run as `python -m benchmarks.coverage [DATA_SETS [DESIGN ...]]`. Data are drawn from known models and fitted with the
public estimators; the table shows the percentage of data sets whose interval contains the true value. With n data sets
a coverage of 95 % is measured with a standard error of sqrt(0.95 * 0.05 / n). EM starts at the truth, so that intents
keep their order and only the error of the maximum likelihood estimate matters.
"""

import sys
import time
import warnings
from collections.abc import Iterator

import numba
import numpy as np
from scipy.special import expit, ndtri
from threadpoolctl import threadpool_limits

from benchmarks.measure import describe_machine
from limiirl import MDP, Demonstrations, IntentMixture, MaxCausalEnt, MaxEnt, RewardEnsemble
from limiirl.errors import LimiirlWarning

FORK = MDP.from_edges(
    [0, 0, 1, 1, 2, 2], [1, 2, 1, 2, 1, 2], p0=[1, 0, 0], state_features=[[0, 0], [1, 0], [0, 1]]
)  # fmt: skip
# Every state leads to all states.
RING = MDP.from_edges(
    [0, 0, 0, 1, 1, 1, 2, 2, 2], [0, 1, 2] * 3, p0=[1, 0, 0], gamma=0.9, state_features=[[0, 0], [1, 0], [0, 1]]
)
GROUPS_OF = 4
Z = float(ndtri(0.975))
Row = tuple[str, dict[str, tuple[float, float]], float]  # a parameter, its intervals by name, and its true value


def overlapping_intents(seed: int) -> Iterator[Row]:
    """Yield intervals of two overlapping intents of `MaxEnt`; posteriors of demonstrations are far from 0 and 1."""
    truth = RewardEnsemble([0.6, 0.4], [[1.2, -0.6], [-0.6, 1.2]])
    irl, rng = MaxEnt(8, bounds=(-6, 6)), np.random.default_rng(seed)
    sizes = rng.multinomial(600, truth.weights)
    demos = Demonstrations.concat([irl.sample(FORK, t, int(n), rng) for t, n in zip(truth.thetas, sizes, strict=True)])
    yield from intervals(IntentMixture(2, irl, init=truth, max_iter=500, accelerate=True).fit(FORK, demos), truth)


def groups_of_demonstrations(seed: int) -> Iterator[Row]:
    """Yield intervals of two intents of `MaxCausalEnt`, with one intent per group of demonstrations."""
    truth = RewardEnsemble([0.65, 0.35], [[0.8, -0.4], [-0.4, 0.8]])
    irl, rng = MaxCausalEnt(bounds=(-6, 6), ridge=0.0), np.random.default_rng(seed)
    sizes = GROUPS_OF * rng.multinomial(120, truth.weights)
    pairs = zip(truth.thetas, sizes.tolist(), strict=True)
    parts = [irl.sample(RING, theta, n, rng, max_length=6) for theta, n in pairs]
    demos, groups = Demonstrations.concat(parts), np.repeat(np.arange(120), GROUPS_OF)
    mix = IntentMixture(2, irl, init=truth, max_iter=500, accelerate=True).fit(RING, demos, groups)
    yield from intervals(mix, truth)


def intervals(mix: IntentMixture, truth: RewardEnsemble) -> Iterator[Row]:
    """Yield the intervals of the first weight, by its logit, and of all rewards."""
    errors = {name: mix.standard_errors(covariance=name) for name in ("observed", "robust")}
    wanted = [(0, "weight"), *np.ndindex(*mix.thetas_.shape)]
    for (k, j), profile in zip(wanted, mix.profile_intervals(wanted), strict=True):
        result = {"profile": (profile.low, profile.high)}
        for name, own in errors.items():
            if j == "weight":
                odds = own.delta_method(lambda weights, _: np.log(weights[0] / weights[1]))
                low, high = expit(odds.interval())
            else:
                low, high = mix.thetas_[k, j] + np.array([-Z, Z]) * own.thetas[k, j]
            result[name] = (low, high)
        value = truth.weights[0] if j == "weight" else truth.thetas[k, j]
        yield f"intent {k}: {'weight' if j == 'weight' else f'reward {j}'}", result, float(value)


DESIGNS = {design.__name__: design for design in (overlapping_intents, groups_of_demonstrations)}


def main() -> None:
    """Print one table per design."""
    n_sets = int(sys.argv[1]) if len(sys.argv) > 1 else 250
    numba.set_num_threads(1)
    print(
        f"coverage: {n_sets} data sets per design; standard error {100 * np.sqrt(0.0475 / n_sets):.1f} % per parameter"
    )
    print(describe_machine(), flush=True)
    for design in [DESIGNS[name] for name in sys.argv[2:]] or DESIGNS.values():
        start, hits = time.process_time(), {}
        with threadpool_limits(1), warnings.catch_warnings():
            warnings.simplefilter("ignore", LimiirlWarning)
            for seed in range(n_sets):
                for parameter, ends, value in design(seed):
                    for name, (low, high) in ends.items():
                        hits.setdefault(parameter, {}).setdefault(name, []).append(low <= value <= high)
        names = ("observed", "robust", "profile")
        print(f"\n{design.__name__}, {(time.process_time() - start) / n_sets:.2f} s of processor time per data set")
        print(f"  {'coverage in %':<20}" + "".join(f"{name:>10}" for name in names))
        for parameter, own in hits.items():
            print(f"  {parameter:<20}" + "".join(f"{100 * np.mean(own[name]):10.1f}" for name in names))
        total = [100 * np.mean([np.mean(own[name]) for own in hits.values()]) for name in names]
        print(f"  {'mean':<20}" + "".join(f"{value:10.1f}" for value in total), flush=True)


if __name__ == "__main__":
    main()
