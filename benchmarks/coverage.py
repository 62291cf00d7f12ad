"""Coverage of 95 % intervals: standard errors (observed, robust), profile likelihood and posterior, by simulation.

Run as `python -m benchmarks.coverage [--posterior] [DATA_SETS [DESIGN ...]]`. With `--posterior`, the posterior of each
data set is sampled as well (several seconds each; it requires the extra `bayes`). Data are drawn from known models and
fitted with the public estimators; the table shows the percentage of data sets whose interval contains the true value.
With n data sets a coverage of 95 % is measured with a standard error of sqrt(0.95 * 0.05 / n). EM starts at the truth,
so that intents keep their order and only the error of the maximum likelihood estimate matters.
"""

import argparse
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
from limiirl.mixture import PosteriorSamples

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


def overlapping_intents(seed: int, posterior: bool) -> Iterator[Row]:
    """Yield intervals of two overlapping intents of `MaxEnt`; posteriors of demonstrations are far from 0 and 1."""
    truth = RewardEnsemble([0.6, 0.4], [[1.2, -0.6], [-0.6, 1.2]])
    irl, rng = MaxEnt(8, bounds=(-6, 6)), np.random.default_rng(seed)
    sizes = rng.multinomial(600, truth.weights)
    demos = Demonstrations.concat([irl.sample(FORK, t, int(n), rng) for t, n in zip(truth.thetas, sizes, strict=True)])
    mix = IntentMixture(2, irl, init=truth, max_iter=500, accelerate=True).fit(FORK, demos)
    yield from intervals(mix, truth, posterior)


def groups_of_demonstrations(seed: int, posterior: bool) -> Iterator[Row]:
    """Yield intervals of two intents of `MaxCausalEnt`, with one intent per group of demonstrations."""
    truth = RewardEnsemble([0.65, 0.35], [[0.8, -0.4], [-0.4, 0.8]])
    irl, rng = MaxCausalEnt(bounds=(-6, 6), ridge=0.0), np.random.default_rng(seed)
    sizes = GROUPS_OF * rng.multinomial(120, truth.weights)
    pairs = zip(truth.thetas, sizes.tolist(), strict=True)
    parts = [irl.sample(RING, theta, n, rng, max_length=6) for theta, n in pairs]
    demos, groups = Demonstrations.concat(parts), np.repeat(np.arange(120), GROUPS_OF)
    mix = IntentMixture(2, irl, init=truth, max_iter=500, accelerate=True).fit(RING, demos, groups)
    yield from intervals(mix, truth, posterior)


def weights_by_covariates(seed: int, posterior: bool) -> Iterator[Row]:
    """Yield intervals of two overlapping intents of `MaxEnt`, whose weights depend on a number and an indicator."""
    logits = np.array([-0.5, 0.8, 0.6])
    truth = RewardEnsemble([0.6, 0.4], [[1.2, -0.6], [-0.6, 1.2]])
    irl, rng = MaxEnt(8, bounds=(-6, 6)), np.random.default_rng(seed)
    X = np.column_stack([rng.normal(size=600), rng.integers(2, size=600)])
    second = rng.random(600) < expit(logits[0] + X @ logits[1:])
    sizes = np.bincount(second, minlength=2)
    demos = Demonstrations.concat([irl.sample(FORK, t, int(n), rng) for t, n in zip(truth.thetas, sizes, strict=True)])
    X = X[np.argsort(second, kind="stable")]
    mix = IntentMixture(2, irl, init=truth, max_iter=500, accelerate=True)
    yield from intervals(mix.fit(FORK, demos, covariates=X), truth, posterior, logits)


def intervals(
    mix: IntentMixture, truth: RewardEnsemble, posterior: bool, logits: np.ndarray | None = None
) -> Iterator[Row]:
    """Yield the intervals of the first weight, or of intercept and coefficients (m + 1,), and of all rewards."""
    errors = {name: mix.standard_errors(covariance=name) for name in ("observed", "robust")}
    draws = mix.sample_posterior(draws=500, tune=300, chains=1, seed=0) if posterior else None
    if logits is None:
        yield weight_intervals(mix, truth, draws)
    else:
        yield from logit_intervals(mix, logits, draws)
    wanted = list(np.ndindex(*mix.thetas_.shape))
    for (k, j), profile in zip(wanted, mix.profile_intervals(wanted), strict=True):
        result = {"profile": (profile.low, profile.high)}
        for name, own in errors.items():
            low, high = mix.thetas_[k, j] + np.array([-Z, Z]) * own.thetas[k, j]
            result[name] = (low, high)
        if draws is not None:
            result["posterior"] = central(draws.thetas[0, :, k, j])
        yield f"intent {k}: reward {j}", result, float(truth.thetas[k, j])


def weight_intervals(mix: IntentMixture, truth: RewardEnsemble, draws: PosteriorSamples | None) -> Row:
    """Return the intervals of the first weight, by its logit."""
    (profile,) = mix.profile_intervals([(0, "weight")])
    result = {"profile": (profile.low, profile.high)}
    for name in ("observed", "robust"):
        odds = mix.standard_errors(covariance=name).delta_method(lambda weights, _: np.log(weights[0] / weights[1]))
        low, high = expit(odds.interval())
        result[name] = (float(low), float(high))
    if draws is not None:
        result["posterior"] = central(draws.weights[0, :, 0])
    return "intent 0: weight", result, float(truth.weights[0])


def logit_intervals(mix: IntentMixture, logits: np.ndarray, draws: PosteriorSamples | None) -> Iterator[Row]:
    """Yield the intervals of the intercept and the coefficients of the covariates."""
    members = mix.membership_
    estimates = np.concatenate([members.intercepts[1:], members.coefficients[1]])
    for j, value in enumerate(logits):
        low, high = estimates[j] + np.array([-Z, Z]) * members.errors[1, j]
        result = {"observed": (low, high)}
        if draws is not None:
            change = draws.logits[0, :, 1] - draws.logits[0, :, 0]
            by_unit = change[:, 1:] / members.scale.scale
            column = change[:, 0] - by_unit @ members.scale.mean if j == 0 else by_unit[:, j - 1]
            result["posterior"] = central(column)
        yield "intercept" if j == 0 else f"coefficient {j}", result, float(value)


def central(draws: np.ndarray) -> tuple[float, float]:
    """Return the interval between the 2.5 % and the 97.5 % quantile."""
    low, high = np.quantile(draws, [0.025, 0.975])
    return float(low), float(high)


DESIGNS = {design.__name__: design for design in (overlapping_intents, groups_of_demonstrations, weights_by_covariates)}


def main() -> None:
    """Print one table per design."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("n_sets", metavar="DATA_SETS", type=int, nargs="?", default=250)
    parser.add_argument("designs", metavar="DESIGN", nargs="*", default=list(DESIGNS))
    parser.add_argument("--posterior", action="store_true")
    options = parser.parse_args()
    n_sets, names = options.n_sets, ["observed", "robust", "profile"] + ["posterior"] * options.posterior
    numba.set_num_threads(1)
    print(
        f"coverage: {n_sets} data sets per design; standard error {100 * np.sqrt(0.0475 / n_sets):.1f} % per parameter"
    )
    print(describe_machine(), flush=True)
    for design in [DESIGNS[name] for name in options.designs]:
        start, hits = time.process_time(), {}
        with threadpool_limits(1), warnings.catch_warnings():
            warnings.simplefilter("ignore", LimiirlWarning)
            for seed in range(n_sets):
                for parameter, ends, value in design(seed, options.posterior):
                    for name, (low, high) in ends.items():
                        hits.setdefault(parameter, {}).setdefault(name, []).append(low <= value <= high)
        print(f"\n{design.__name__}, {(time.process_time() - start) / n_sets:.2f} s of processor time per data set")
        print(f"  {'coverage in %':<20}" + "".join(f"{name:>10}" for name in names))
        for parameter, own in hits.items():
            cells = (f"{100 * np.mean(own[name]):10.1f}" if name in own else f"{'-':>10}" for name in names)
            print(f"  {parameter:<20}" + "".join(cells))
        each = [[np.mean(own[name]) for own in hits.values() if name in own] for name in names]
        print(f"  {'mean':<20}" + "".join(f"{100 * np.mean(own):10.1f}" for own in each), flush=True)


if __name__ == "__main__":
    main()
