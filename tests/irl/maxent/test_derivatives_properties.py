"""Gradient and Hessian of log Z against enumeration (to 1e-10) and against finite differences.

Central differences with step h have a truncation error of h^2/6 times a third derivative of log Z (a third cumulant of
F, of order |F|^3) and a rounding error of about 1e-14 |f| / h. With h = 1e-4 and path features of size B, their sum is
below 1e-8 (1 + B^3) + 1e-10 |f|, the tolerance of the tests.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings

from limiirl.irl.maxent.path_sums import FinitePathSums
from limiirl.mdp import expected_features
from tests.helpers import examples
from tests.oracles.compare import TOLERANCE, assert_close
from tests.oracles.enumeration import Enumeration, Law
from tests.oracles.random_mdps import Case, cases
from tests.oracles.recursion import gradient, hessian

EXACT = ("linear", "log")
STEP = 1e-4


def check_covariance(covariance: np.ndarray, law: Law) -> None:
    size = 1.0 + float(np.linalg.norm(law.second_moment()))
    assert_close(covariance, law.covariance(), "covariance", TOLERANCE, size)


def path_sums_gradient(path_sums: FinitePathSums, theta: np.ndarray) -> np.ndarray:
    counts = path_sums.expected_counts(theta[None])
    return expected_features(path_sums.mdp, counts.node, counts.edge)[0]


@pytest.mark.parametrize("arithmetic", EXACT)
@pytest.mark.parametrize("by_start", [False, True])
@settings(max_examples=examples(50))
@given(case=cases(columns=(1,)))
def test_hessian_is_the_enumerated_covariance(by_start: bool, arithmetic: str, case: Case) -> None:
    theta, paths = case.thetas[0], Enumeration(case.mdp, case.max_length)
    for max_bytes in (2.0**30, 0.0):
        path_sums = FinitePathSums(
            case.mdp, case.max_length, by_start=by_start, arithmetic=arithmetic, max_bytes=max_bytes
        )
        covariance = path_sums.covariance(theta)
        check_covariance(covariance, paths.law(theta, by_start=by_start))
        starts = case.starts[:, 0]
        check_covariance(path_sums.covariance(theta, starts=starts), paths.law(theta, by_start=by_start, starts=starts))


@pytest.mark.parametrize("arithmetic", EXACT)
@pytest.mark.parametrize("by_start", [False, True])
@pytest.mark.parametrize("stop", ["terminal", "terminal_or_max_length"])
@settings(max_examples=examples(40), suppress_health_check=[HealthCheck.filter_too_much])
@given(case=cases(columns=(1,)))
def test_hessian_with_other_stopping_rules(stop: str, by_start: bool, arithmetic: str, case: Case) -> None:
    theta = case.thetas[0]
    law = Enumeration(case.mdp, case.max_length, stop).law(theta, by_start=by_start)
    assume(law.log_Z > -math.inf)
    path_sums = FinitePathSums(case.mdp, case.max_length, stop=stop, by_start=by_start, arithmetic=arithmetic)
    check_covariance(path_sums.covariance(theta), law)


@settings(max_examples=examples(50))
@given(case=cases(columns=(1,), scales=(30.0, 100.0, 300.0)))
def test_hessian_with_large_rewards(case: Case) -> None:
    paths = Enumeration(case.mdp, case.max_length)
    for by_start in (False, True):
        path_sums = FinitePathSums(case.mdp, case.max_length, by_start=by_start)
        check_covariance(path_sums.covariance(case.thetas[0]), paths.law(case.thetas[0], by_start=by_start))


@settings(max_examples=examples(40))
@given(case=cases(columns=(1,), max_length=40, most_paths=10**30, max_states=3, max_actions=2, scales=(0.3,)))
def test_hessian_of_long_trajectories(case: Case) -> None:
    """Compare with complex-step derivatives of the recursion, whose gradient is compared first."""
    theta = case.thetas[0]
    path_sums = FinitePathSums(case.mdp, case.max_length)
    mean = gradient(case.mdp, case.max_length, theta)
    assert_close(path_sums_gradient(path_sums, theta), mean, "expected features")
    expected = hessian(case.mdp, case.max_length, theta)
    size = 1.0 + float(np.linalg.norm(expected + np.outer(mean, mean)))
    assert_close(path_sums.covariance(theta), expected, "covariance", TOLERANCE, size)


@pytest.mark.parametrize("arithmetic", EXACT)
@pytest.mark.parametrize("by_start", [False, True])
@settings(max_examples=examples(30))
@given(case=cases(columns=(1,), scales=(0.3, 1.0)))
def test_derivatives_against_differences(by_start: bool, arithmetic: str, case: Case) -> None:
    theta = case.thetas[0]
    path_sums = FinitePathSums(case.mdp, case.max_length, by_start=by_start, arithmetic=arithmetic)
    largest = float(np.max(np.abs(Enumeration(case.mdp, case.max_length).F)))
    log_Z = abs(float(path_sums.log_partition(case.thetas)[0]))
    grad, hess = path_sums_gradient(path_sums, theta), path_sums.covariance(theta)
    for j in range(theta.size):
        up, down = theta.copy(), theta.copy()
        up[j] += STEP
        down[j] -= STEP
        value_difference = path_sums.log_partition(up[None])[0] - path_sums.log_partition(down[None])[0]
        gradient_difference = path_sums_gradient(path_sums, up) - path_sums_gradient(path_sums, down)
        tolerance = 1e-8 * (1.0 + largest**3) + 1e-10 * log_Z
        assert abs(value_difference / (2 * STEP) - grad[j]) <= tolerance
        # The truncation error is a fourth cumulant, which is bounded by 10 largest^4.
        np.testing.assert_allclose(gradient_difference / (2 * STEP), hess[j], rtol=0.0, atol=2e-8 * (1.0 + largest**4))
