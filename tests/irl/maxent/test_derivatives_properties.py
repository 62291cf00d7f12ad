"""Gradient and Hessian of log Z: against enumeration to 1e-10, and against finite differences of the level below.

Accuracy of central differences with step h: the truncation error is h^2/6 times a third derivative of log Z (a third
cumulant of F, of the order of the size of F cubed), the rounding error about 1e-14 |f| / h. With h = 1e-4 and path
features of size B both together are below 1e-8 (1 + B^3) + 1e-10 |f|, which is what is asked for.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import assume, given, settings

from limiirl.irl.maxent.backends import expected_features
from limiirl.irl.maxent.path_sums import FinitePathSums
from tests.helpers import examples
from tests.oracles.compare import TOLERANCE, assert_close
from tests.oracles.enumeration import Enumeration, Law
from tests.oracles.random_mdps import Case, cases
from tests.oracles.recursion import gradient, hessian

EXACT = ("linear", "log")
STEP = 1e-4


def check_covariance(found: np.ndarray, law: Law) -> None:
    size = 1.0 + float(np.linalg.norm(law.second_moment()))
    assert_close(found, law.covariance(), "covariance", TOLERANCE, size)


def engine_gradient(engine: FinitePathSums, theta: np.ndarray) -> np.ndarray:
    totals = engine.expected_counts(theta[None])
    return expected_features(engine.mdp, totals.node, totals.edge)[0]


@pytest.mark.parametrize("space", EXACT)
@pytest.mark.parametrize("by_start", [False, True])
@settings(max_examples=examples(50))
@given(case=cases(columns=(1,)))
def test_hessian_is_the_enumerated_covariance(by_start: bool, space: str, case: Case) -> None:
    theta, paths = case.thetas[0], Enumeration(case.mdp, case.max_length)
    for max_bytes in (2.0**30, 0.0):
        engine = FinitePathSums(case.mdp, case.max_length, by_start=by_start, arithmetic=space, max_bytes=max_bytes)
        found = engine.covariance(theta)
        check_covariance(found, paths.law(theta, by_start=by_start))
        starts = case.starts[:, 0]
        check_covariance(engine.covariance(theta, starts=starts), paths.law(theta, by_start=by_start, starts=starts))


@pytest.mark.parametrize("space", EXACT)
@pytest.mark.parametrize("by_start", [False, True])
@pytest.mark.parametrize("stop", ["terminal", "terminal_or_max_length"])
@settings(max_examples=examples(40))
@given(case=cases(columns=(1,)))
def test_hessian_with_other_ends(stop: str, by_start: bool, space: str, case: Case) -> None:
    theta = case.thetas[0]
    law = Enumeration(case.mdp, case.max_length, stop).law(theta, by_start=by_start)
    assume(law.log_Z > -math.inf)
    engine = FinitePathSums(case.mdp, case.max_length, stop=stop, by_start=by_start, arithmetic=space)
    check_covariance(engine.covariance(theta), law)


@settings(max_examples=examples(50))
@given(case=cases(columns=(1,), scales=(30.0, 100.0, 300.0)))
def test_hessian_survives_large_rewards(case: Case) -> None:
    paths = Enumeration(case.mdp, case.max_length)
    for by_start in (False, True):
        engine = FinitePathSums(case.mdp, case.max_length, by_start=by_start)
        check_covariance(engine.covariance(case.thetas[0]), paths.law(case.thetas[0], by_start=by_start))


@settings(max_examples=examples(40))
@given(case=cases(columns=(1,), max_length=40, most_paths=10**30, max_states=3, max_actions=2, scales=(0.3,)))
def test_hessian_of_long_trajectories(case: Case) -> None:
    """Complex steps through the plain recursion, whose gradient is compared first."""
    theta = case.thetas[0]
    engine = FinitePathSums(case.mdp, case.max_length)
    mean = gradient(case.mdp, case.max_length, theta)
    assert_close(engine_gradient(engine, theta), mean, "expected features")
    expected = hessian(case.mdp, case.max_length, theta)
    size = 1.0 + float(np.linalg.norm(expected + np.outer(mean, mean)))
    assert_close(engine.covariance(theta), expected, "covariance", TOLERANCE, size)


@pytest.mark.parametrize("space", EXACT)
@pytest.mark.parametrize("by_start", [False, True])
@settings(max_examples=examples(30))
@given(case=cases(columns=(1,), scales=(0.3, 1.0)))
def test_derivatives_against_differences(by_start: bool, space: str, case: Case) -> None:
    theta = case.thetas[0]
    engine = FinitePathSums(case.mdp, case.max_length, by_start=by_start, arithmetic=space)
    reach = float(np.max(np.abs(Enumeration(case.mdp, case.max_length).F)))
    log_Z = abs(float(engine.log_partition(case.thetas)[0]))
    slope, curvature = engine_gradient(engine, theta), engine.covariance(theta)
    for j in range(theta.size):
        up, down = theta.copy(), theta.copy()
        up[j] += STEP
        down[j] -= STEP
        rise = engine.log_partition(up[None])[0] - engine.log_partition(down[None])[0]
        bend = engine_gradient(engine, up) - engine_gradient(engine, down)
        tolerance = 1e-8 * (1.0 + reach**3) + 1e-10 * log_Z
        assert abs(rise / (2 * STEP) - slope[j]) <= tolerance
        # One derivative more: the truncation error is a fourth cumulant, which is bounded by 10 reach^4.
        np.testing.assert_allclose(bend / (2 * STEP), curvature[j], rtol=0.0, atol=2e-8 * (1.0 + reach**4))
