"""Differences between fits whose values and gradients differ only by rounding, as between a GPU and a CPU.

K = 3, 1,000 trips, 5 EM iterations, on a road network of a twentieth of the paper's size. One fit is unchanged; in the
others, every value and gradient has a random relative error of 1e-13 or 1e-11. M-steps are limited to 50 evaluations,
as in `benchmarks.gpu`, or run to convergence. Run as `python -m benchmarks.rounding`.
"""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.measure import describe_machine
from benchmarks.path_sums import MAX_LENGTH, intents, network
from limiirl import MDP, Demonstrations, IntentMixture, MaxEnt
from limiirl.errors import LimiirlWarning
from limiirl.irl.maxent.path_sums import FinitePathSums

CAPS, OFF = (50, 2000), (0.0, 1e-13, 1e-11)


def draw_trips(mdp: MDP) -> Demonstrations:
    """Return 1,000 trips from three reward functions."""
    rng = np.random.default_rng(1)
    kinds = [
        MaxEnt(MAX_LENGTH).sample(mdp, theta, n, rng) for theta, n in zip(intents(mdp, 3), (334, 333, 333), strict=True)
    ]
    return Demonstrations.from_lists([trip for demos in kinds for trip in np.split(demos.states, demos.offsets[1:-1])])


def add_noise(plain: Callable[..., Any], size: float) -> Callable[..., Any]:
    """Return `value_and_grad` of path sums with relative noise of the given size."""
    noise = np.random.default_rng(7)

    def value_and_grad(*args: Any, **options: Any) -> tuple[Any, ...]:
        return tuple(exact * (1.0 + size * noise.standard_normal(exact.shape)) for exact in plain(*args, **options))

    return value_and_grad


def fit(mdp: MDP, demos: Demonstrations, cap: int) -> IntentMixture:
    """Run 5 EM iterations with M-steps of at most `cap` evaluations."""
    irl = MaxEnt(MAX_LENGTH, solver="lbfgs", max_memory=1e10, max_evaluations=cap)
    mixture = IntentMixture(3, irl, resp_tol=1e-12, max_iter=5, max_evaluations=cap, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LimiirlWarning)
        return mixture.fit(mdp, demos)


def main() -> None:
    """Print one line per fit."""
    mdp = network(quick=True)
    demos = draw_trips(mdp)
    print(f"rounding: K = 3, {len(demos)} trips, {mdp.n_states:,} states, 5 EM iterations, L-BFGS")
    print(describe_machine())
    print(f"{'evaluations':>11} {'noise':>7} {'log-likelihood per trip':>23} {'difference':>11} {'max parameter':>17}")
    plain = FinitePathSums.value_and_grad
    for cap in CAPS:
        base = None
        for size in OFF:
            FinitePathSums.value_and_grad = add_noise(plain, size) if size else plain  # type: ignore[method-assign]
            try:
                mixture = fit(mdp, demos, cap)
            finally:
                FinitePathSums.value_and_grad = plain  # type: ignore[method-assign]
            score = mixture.score(demos)
            base = base or (score, mixture.thetas_)
            gap = np.max(np.abs(mixture.thetas_ - base[1]))
            print(f"{cap:11} {size:7.0e} {score:23.9f} {score - base[0]:11.1e} {gap:17.1e}", flush=True)


if __name__ == "__main__":
    main()
