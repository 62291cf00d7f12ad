"""From clusters to first rewards: the maximum likelihood fit to each, or the cluster's mean features themselves.

Paper: section "The LiMIIRL algorithm", the two ways to initialise rewards. The mean is centred on all demonstrations;
uncentred counts are positive and would reward going in circles.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from limiirl._typing import FloatArray
from limiirl.errors import DegenerateIntentWarning, InvalidParameter
from limiirl.irl import FitProblem, minimise_ray
from limiirl.mixture.em import Start

RewardInit = Callable[[FitProblem, FloatArray], FloatArray]
# Rewards closer than this (relative to their size) count as the same.
_SAME = 1e-9
# Two intents between which nobody's log-odds differ by more than this are one to anybody who looks at the data.
_INDISTINCT = 0.05
# How far the same rewards are stirred apart, relative to their size, and how often that is tried.
_STIR, _STIRS = 0.1, 10
# Largest difference in log-probability between a cluster's mean and that of all that `mean_ray` looks at.
_LARGEST_GAP = 1e3


def mle(problem: FitProblem, U: FloatArray) -> FloatArray:
    """Return (K, d): the rewards that explain each cluster best."""
    # The start is far away; the mixture's cap is about the M-steps that follow.
    cap = problem.initial_evaluations
    return problem.m_step(problem.moments(U), None, np.arange(U.shape[1]), cap).thetas


def mean(problem: FitProblem, U: FloatArray) -> FloatArray:
    """Return (K, d): the mean features of each cluster less those of all demonstrations; bounds are not looked at."""
    features, weights = problem.features(), U * problem.units.counts[:, None]
    counts = problem.units.counts / problem.units.counts.sum()
    return np.asarray((weights.T @ features) / weights.sum(axis=0)[:, None] - counts @ features)


def mean_clipped(problem: FitProblem, U: FloatArray) -> FloatArray:
    """Return (K, d): `mean`, moved into the bounds."""
    return problem.project(mean(problem, U))


def mean_ray(problem: FitProblem, U: FloatArray) -> FloatArray:
    """Return (K, d): `mean`, times the factor that explains the cluster best.

    A feature in metres gives rewards a million times too strong for one in kilometres; the factor is free of units.
    """
    direction = mean(problem, U)
    weights = U / U.sum(axis=0)
    found = np.zeros_like(direction)
    for k, theta in enumerate(direction):

        def loss(factor: float, theta: FloatArray = theta, k: int = k) -> float:
            log_p = problem.log_prob((factor * theta)[None])[:, 0]
            return -float(weights[:, k] @ log_p)

        length = float(theta @ theta)
        found[k] = minimise_ray(loss, _LARGEST_GAP / length) * theta if length > 0.0 else 0.0
    return found


REWARDS: dict[str, RewardInit] = {"mle": mle, "mean": mean, "mean_ray": mean_ray, "mean_clipped": mean_clipped}
"""Reward initialisations by name."""


def start_from(problem: FitProblem, U: FloatArray, reward_init: Any, rng: np.random.Generator) -> Start:
    """Return the ensemble that responsibilities (G, K) begin with.

    A cluster without members takes the rewards of all demonstrations together.
    """
    make = REWARDS.get(reward_init) if isinstance(reward_init, str) else reward_init
    if not callable(make):
        raise InvalidParameter(
            f"reward_init must be one of {', '.join(REWARDS)} or a function; it is {reward_init!r}.",
            parameter="reward_init",
            value=reward_init,
        )
    sizes = U.sum(axis=0)
    empty = sizes == 0.0
    if np.any(empty):
        listed = ", ".join(map(str, np.flatnonzero(empty)))
        warnings.warn(
            f"No {problem.units.noun} begin in intent {listed}: there are fewer distinct ones, or labels, than "
            f"n_intents={len(sizes)}. It starts from the rewards of all together, with next to no share; "
            "use fewer intents.",
            DegenerateIntentWarning,
            stacklevel=4,
        )
    thetas = _checked(make(problem, np.where(empty, 1.0, U)), len(sizes), problem)
    return Start(sizes / len(U), separated(thetas, ~empty, problem, rng), U, tuple(np.flatnonzero(empty).tolist()))


def separated(
    thetas: FloatArray, counted: NDArray[np.bool_], problem: FitProblem, rng: np.random.Generator
) -> FloatArray:
    """Return rewards (K, d) of which no two counted ones are the same.

    EM treats the same rewards alike for ever, so that they are stirred, unless no demonstration differs from another.
    """
    pair = equal_pair(thetas, counted)
    if pair is None or not np.any(np.ptp(problem.features(), axis=0) > 0):
        return thetas
    warnings.warn(
        f"Intents {pair[0]} and {pair[1]} begin with the same rewards, which EM cannot tell apart; they were stirred "
        "at random. Pass initial responsibilities or rewards that differ, or init='kmeans'.",
        DegenerateIntentWarning,
        stacklevel=5,
    )
    found = thetas
    for _ in range(_STIRS):
        found = problem.project(thetas + _STIR * (1.0 + np.abs(thetas)) * rng.normal(size=thetas.shape))
        if equal_pair(found, counted) is None:
            break
    return found


def _checked(thetas: Any, n_intents: int, problem: FitProblem) -> FloatArray:
    found = np.ascontiguousarray(thetas, dtype=np.float64)
    d = problem.n_parameters
    wrong = found.ndim != 2 or found.shape[0] != n_intents or (d is not None and found.shape[1] != d)
    if wrong or not np.all(np.isfinite(found)):
        raise InvalidParameter(
            f"Initial rewards must be finite numbers of shape ({n_intents}, {'d' if d is None else d}); got shape "
            f"{found.shape}. Use reward_init='mle', or mend the function.",
            parameter="reward_init",
            value=found.shape,
        )
    return found


def equal_pair(thetas: FloatArray, counted: NDArray[np.bool_]) -> tuple[int, int] | None:
    """Return two intents with the same rewards, or None."""
    for k in np.flatnonzero(counted):
        for other in np.flatnonzero(counted[:k]):
            if np.all(np.abs(thetas[k] - thetas[other]) <= _SAME * (1.0 + np.abs(thetas[k]))):
                return int(other), int(k)
    return None


def indistinct_pair(U: FloatArray, counted: NDArray[np.bool_]) -> tuple[int, int] | None:
    """Return two intents that explain all demonstrations alike, by responsibilities (n, K), or None.

    Examples
    --------
    Both say of each of two demonstrations that it is the second's twice as likely.

    >>> indistinct_pair(np.array([[0.2, 0.4, 0.4], [0.3, 0.6, 0.1]]), np.ones(3, dtype=bool))
    (0, 1)
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        log_U = np.log(U)
        for k in np.flatnonzero(counted):
            for other in np.flatnonzero(counted[:k]):
                if np.ptp(log_U[:, k] - log_U[:, other]) <= _INDISTINCT:
                    return int(other), int(k)
    return None
