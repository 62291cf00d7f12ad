"""Initial rewards of clusters: maximum likelihood, or centred mean features.

Paper: section "The LiMIIRL algorithm". Means are centred on the mean of all demonstrations: uncentred feature counts
are positive and would reward cycles.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from limiirl._typing import FloatArray
from limiirl._validation import as_floats
from limiirl.errors import InvalidParameter
from limiirl.irl import FitProblem, minimise_ray
from limiirl.mixture.em import Start

RewardInit = Callable[[FitProblem, FloatArray], FloatArray]
# Maximum relative difference between rewards that count as equal.
_SAME = 1e-9
# Two intents are indistinct if the range of their log-odds over all units is at most this.
_INDISTINCT = 0.05
# Relative size of the perturbation of equal rewards, and the number of attempts.
_NOISE, _ATTEMPTS = 0.1, 10
# Upper limit of the search in `mean_ray`: the factor times |theta|^2.
_LARGEST_DIFFERENCE = 1e3


def mle(problem: FitProblem, U: FloatArray) -> FloatArray:
    """Return the maximum likelihood rewards (K, d) of each cluster."""
    # The limit for M-steps is too small here, since the search starts far from the optimum.
    limit = problem.initial_evaluations
    return problem.m_step(problem.moments(U), None, np.arange(U.shape[1]), limit).thetas


def mean(problem: FitProblem, U: FloatArray) -> FloatArray:
    """Return the mean features (K, d) of each cluster minus the overall mean, regardless of bounds."""
    features, weights = problem.features(), U * problem.units.counts[:, None]
    counts = problem.units.counts / problem.units.counts.sum()
    return np.asarray((weights.T @ features) / weights.sum(axis=0)[:, None] - counts @ features)


def mean_clipped(problem: FitProblem, U: FloatArray) -> FloatArray:
    """Return `mean` (K, d) clipped to the bounds."""
    return problem.project(mean(problem, U))


def mean_ray(problem: FitProblem, U: FloatArray) -> FloatArray:
    """Return `mean` (K, d) with each row multiplied by the factor that maximises the likelihood."""
    direction = mean(problem, U)
    weights = U / U.sum(axis=0)
    thetas = np.zeros_like(direction)
    for k, theta in enumerate(direction):

        def loss(factor: float, theta: FloatArray = theta, k: int = k) -> float:
            log_p = problem.log_prob((factor * theta)[None])[:, 0]
            return -float(weights[:, k] @ log_p)

        length = float(theta @ theta)
        thetas[k] = minimise_ray(loss, _LARGEST_DIFFERENCE / length) * theta if length > 0.0 else 0.0
    return thetas


REWARDS: dict[str, RewardInit] = {"mle": mle, "mean": mean, "mean_ray": mean_ray, "mean_clipped": mean_clipped}


def check_reward_init(reward_init: Any) -> RewardInit:
    """Return the function that computes initial rewards."""
    compute: Any = REWARDS.get(reward_init) if isinstance(reward_init, str) else reward_init
    if not callable(compute):
        raise InvalidParameter.of("reward_init", reward_init, f"must be one of {', '.join(REWARDS)}, or a function")
    return cast("RewardInit", compute)


def start_from(problem: FitProblem, U: FloatArray, reward_init: Any, rng: np.random.Generator) -> Start:
    """Return the initial ensemble for responsibilities (G, K); an empty cluster gets the reward of all data."""
    compute = check_reward_init(reward_init)
    sizes = U.sum(axis=0)
    empty = sizes == 0.0
    listed = ", ".join(map(str, np.flatnonzero(empty)))
    message = (
        f"No {problem.units.noun} are initially assigned to intent {listed}; n_intents={len(sizes)} may exceed the "
        "number of distinct labels or feature vectors. Use fewer intents."
    )
    given = _check_thetas(compute(problem, np.where(empty, 1.0, U)), len(sizes), problem)
    thetas, equal = separate_equal(given, ~empty, problem, rng)
    warned = (message, *equal) if listed else equal
    return Start(sizes / len(U), thetas, U, tuple(np.flatnonzero(empty).tolist()), warned, "reward_init")


def separate_equal(
    thetas: FloatArray, counted: NDArray[np.bool_], problem: FitProblem, rng: np.random.Generator
) -> tuple[FloatArray, tuple[str, ...]]:
    """Perturb rewards (K, d) if two of the `counted` intents have equal rewards; return rewards and warnings."""
    pair = find_equal_pair(thetas, counted)
    if pair is None or not np.any(np.ptp(problem.features(), axis=0) > 0):
        return thetas, ()
    message = (
        f"Intents {pair[0]} and {pair[1]} have the same initial rewards, and EM would not separate them; random noise "
        "was added. Pass distinct initial responsibilities or rewards, or init='kmeans'."
    )
    noisy = thetas
    for _ in range(_ATTEMPTS):
        noisy = problem.project(thetas + _NOISE * (1.0 + np.abs(thetas)) * rng.normal(size=thetas.shape))
        if find_equal_pair(noisy, counted) is None:
            break
    return noisy, (message,)


def _check_thetas(given: Any, n_intents: int, problem: FitProblem) -> FloatArray:
    thetas = np.ascontiguousarray(as_floats(given, "reward_init"))
    d = problem.n_parameters
    wrong = thetas.ndim != 2 or thetas.shape[0] != n_intents or (d is not None and thetas.shape[1] != d)
    if wrong or not np.all(np.isfinite(thetas)):
        rule = f"must return finite rewards of shape ({n_intents}, {'d' if d is None else d})"
        raise InvalidParameter.of("reward_init", thetas.shape, rule)
    return thetas


def find_equal_pair(thetas: FloatArray, counted: NDArray[np.bool_]) -> tuple[int, int] | None:
    """Return two of the `counted` intents with equal rewards, or None."""
    for k in np.flatnonzero(counted):
        for other in np.flatnonzero(counted[:k]):
            if np.all(np.abs(thetas[k] - thetas[other]) <= _SAME * (1.0 + np.abs(thetas[k]))):
                return int(other), int(k)
    return None


def find_indistinct_pair(U: FloatArray, counted: NDArray[np.bool_]) -> tuple[int, int] | None:
    """Return two of the `counted` intents whose columns of U (n, K) have the same ratio for all units, or None."""
    with np.errstate(divide="ignore", invalid="ignore"):
        log_U = np.log(U)
        for k in np.flatnonzero(counted):
            for other in np.flatnonzero(counted[:k]):
                if np.ptp(log_U[:, k] - log_U[:, other]) <= _INDISTINCT:
                    return int(other), int(k)
    return None
