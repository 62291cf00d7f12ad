"""`MaxEnt` against enumeration on random small MDPs: probabilities, fits and null directions."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from limiirl.errors import ConvergenceWarning
from limiirl.irl import MaxEnt
from limiirl.irl.identifiability import null_directions, variation
from limiirl.irl.maxent.path_sums import FinitePathSums
from limiirl.irl.observed_paths import ObservedPaths
from tests.helpers import examples
from tests.oracles.enumeration import Enumeration, log_sum
from tests.oracles.likelihood import as_demonstrations, log_probs, objective, possible, same_states
from tests.oracles.random_mdps import Case, cases

CONDITIONS = ("none", "start")
# Few trajectories, so hundreds of MDPs are enumerated in seconds.
SMALL = {"max_length": 4, "most_paths": 200}


def rank(matrix: np.ndarray) -> int:
    """Return the rank; features have size 1 and three digits, so singular values below 1e-8 are rounding errors."""
    return int(np.linalg.matrix_rank(matrix, tol=1e-8)) if matrix.size else 0


def feature_differences(paths: Enumeration, by_start: bool) -> np.ndarray:
    """Return F of every trajectory minus F of a reference trajectory (by start: from the same start state)."""
    rows = possible(paths)
    F, first = paths.F[rows], paths.first[rows]
    if not by_start:
        return F - F[0]
    return np.vstack([F[first == s] - F[first == s][0] for s in np.unique(first)])


@pytest.mark.parametrize("condition", CONDITIONS)
@settings(max_examples=examples(30))
@given(case=cases(**SMALL))
def test_probabilities_sum_to_one(condition: str, case: Case) -> None:
    paths = Enumeration(case.mdp, case.max_length)
    model = MaxEnt(case.max_length, condition=condition)
    rows = possible(paths)
    groups = list(same_states(paths).values())
    whole = model.log_prob(case.mdp, case.thetas, as_demonstrations(paths, rows))
    states = model.log_prob(case.mdp, case.thetas, as_demonstrations(paths, [g[0] for g in groups], actions=False))
    n_starts = np.unique(paths.first[rows]).size if condition == "start" else 1
    np.testing.assert_allclose(np.exp(whole).sum(axis=0), n_starts, rtol=1e-10)
    np.testing.assert_allclose(np.exp(states).sum(axis=0), n_starts, rtol=1e-10)
    for k, theta in enumerate(case.thetas):
        log_p = log_probs(paths, theta, condition == "start")
        np.testing.assert_allclose(whole[:, k], log_p[rows], rtol=1e-10, atol=1e-10)
        np.testing.assert_allclose(states[:, k], [log_sum(log_p[g]) for g in groups], rtol=1e-10, atol=1e-10)


@settings(max_examples=examples(60))
@given(case=cases(columns=(1,), **SMALL))
def test_gradient_of_the_correction_agrees_with_finite_differences(case: Case) -> None:
    paths = Enumeration(case.mdp, case.max_length)
    groups = list(same_states(paths).values())
    observed = ObservedPaths.from_demos(case.mdp, as_demonstrations(paths, [g[0] for g in groups], actions=False))
    weights, theta = np.linspace(0.5, 1.5, len(groups)), case.thetas[0]
    _, gradient = observed.correction(theta, weights)
    differences = [
        (observed.correction(theta + h, weights)[0] - observed.correction(theta - h, weights)[0]) / 2e-5
        for h in 1e-5 * np.eye(theta.size)
    ]
    np.testing.assert_allclose(gradient, differences, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("by_start", [False, True])
@settings(max_examples=examples(60))
@given(case=cases(**SMALL))
def test_null_directions_span_the_null_space_of_feature_differences(by_start: bool, case: Case) -> None:
    """The null space of F(tau) - F(tau') over all pairs equals the null space of the covariance at any theta."""
    paths = Enumeration(case.mdp, case.max_length)
    differences = feature_differences(paths, by_start)
    d = case.mdp.n_features
    directions = null_directions(*variation(case.mdp, case.max_length, by_start))
    assert directions.shape == (d - rank(differences), d)
    np.testing.assert_allclose(directions @ directions.T, np.eye(len(directions)), atol=1e-10)
    np.testing.assert_allclose(differences @ directions.T, 0.0, atol=1e-9)


@pytest.mark.parametrize("by_start", [False, True])
@settings(max_examples=examples(40))
@given(case=cases(scales=(0.3,), **SMALL))
def test_null_directions_span_the_null_space_of_the_covariance(by_start: bool, case: Case) -> None:
    path_sums = FinitePathSums(case.mdp, case.max_length, by_start=by_start)
    directions = null_directions(*variation(case.mdp, case.max_length, by_start))
    for theta in case.thetas:
        covariance = path_sums.covariance(theta)
        np.testing.assert_allclose(covariance @ directions.T, 0.0, atol=1e-10 * (1 + np.abs(covariance).max()))
        assert rank(covariance) == case.mdp.n_features - len(directions)


@pytest.mark.parametrize("condition", CONDITIONS)
@settings(max_examples=examples(50))
@given(case=cases(columns=(1,), **SMALL))
def test_null_directions_do_not_change_probabilities(condition: str, case: Case) -> None:
    model = MaxEnt(case.max_length, condition=condition)
    directions = model.null_directions(case.mdp, case.thetas[0])
    assume(len(directions))
    paths = Enumeration(case.mdp, case.max_length)
    demos = as_demonstrations(paths, possible(paths))
    before = model.log_prob(case.mdp, case.thetas[0], demos)
    for direction in directions:  # one at a time, because kernels are compiled per number of columns
        shifted = model.log_prob(case.mdp, case.thetas[0] + 2.0 * direction, demos)
        np.testing.assert_allclose(shifted, before, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("solver", ["newton", "lbfgs"])
@pytest.mark.parametrize("condition", CONDITIONS)
@pytest.mark.filterwarnings("ignore::limiirl.errors.IdentifiabilityWarning")
@settings(max_examples=examples(25))
@given(case=cases(columns=(1,), scales=(0.3, 1.0), **SMALL), seed=st.integers(0, 2**20))
def test_fits_satisfy_the_optimality_conditions(condition: str, solver: str, case: Case, seed: int) -> None:
    """Demonstrations are drawn uniformly, so many maxima are at a bound or not identified."""
    paths = Enumeration(case.mdp, case.max_length)
    rng = np.random.default_rng(seed)
    rows = rng.choice(possible(paths), size=6)
    low, high, ridge = -3.0, 1.0, float(rng.choice([0.0, 0.2]))
    model = MaxEnt(case.max_length, (low, high), condition=condition, solver=solver, ridge=ridge)
    theta = model.fit(case.mdp, as_demonstrations(paths, rows), start=case.thetas[0])
    counts = np.bincount(rows, minlength=len(paths.listed)).astype(float)
    target = objective(paths, counts, condition == "start", ridge)
    value, gradient = target(theta)
    tol = 1.1e-6 * max(1.0, float(np.max(np.abs(counts @ paths.F / counts.sum()))))
    assert np.all((theta >= low) & (theta <= high))
    assert np.all(np.abs(gradient[(theta > low) & (theta < high)]) <= tol)
    assert np.all(gradient[theta == low] >= -tol)
    assert np.all(gradient[theta == high] <= tol)
    assert value <= target(np.clip(case.thetas[0], low, high))[0] + 1e-12
    np.testing.assert_allclose(model.result_.value, value, rtol=1e-10, atol=1e-10)


@settings(max_examples=examples(30))
@given(case=cases(columns=(3,), scales=(0.3, 1.0), **SMALL), seed=st.integers(0, 2**20))
def test_fit_many_satisfies_the_optimality_conditions_per_column(case: Case, seed: int) -> None:
    paths = Enumeration(case.mdp, case.max_length)
    rng = np.random.default_rng(seed)
    rows = rng.choice(possible(paths), size=6)
    weights = rng.dirichlet(np.ones(3), size=6)
    model = MaxEnt(case.max_length, (-3.0, 1.0))
    thetas = model.fit_many(case.mdp, as_demonstrations(paths, rows), weights, case.thetas)
    demonstrated = weights.T @ paths.F[rows] / weights.sum(axis=0)[:, None]
    tol = 1.1e-6 * max(1.0, float(np.max(np.abs(demonstrated))))
    for k, theta in enumerate(thetas):
        counts = np.bincount(rows, weights=weights[:, k], minlength=len(paths.listed))
        _, gradient = objective(paths, counts)(theta)
        active = ((theta == -3.0) & (gradient >= 0)) | ((theta == 1.0) & (gradient <= 0))
        assert np.all(np.abs(gradient[~active]) <= tol)


@settings(max_examples=examples(30))
@given(case=cases(columns=(1,), scales=(3.0,), **SMALL), seed=st.integers(0, 2**20), limit=st.integers(2, 6))
@pytest.mark.filterwarnings("ignore::limiirl.errors.IdentifiabilityWarning")
@pytest.mark.parametrize("solver", ["newton", "lbfgs"])
def test_limited_fit_is_never_worse_than_its_start(solver: str, case: Case, seed: int, limit: int) -> None:
    paths = Enumeration(case.mdp, case.max_length)
    rows = np.random.default_rng(seed).choice(possible(paths), size=6)
    counts = np.bincount(rows, minlength=len(paths.listed)).astype(float)
    model = MaxEnt(case.max_length, (-8.0, 8.0), solver=solver, max_evaluations=limit, gtol=1e-7)
    demos = as_demonstrations(paths, rows)
    target = objective(paths, counts)
    try:
        theta = model.fit(case.mdp, demos, start=case.thetas[0])
    except ConvergenceWarning:  # warnings are errors in tests; fit_many does not warn
        theta = model.fit_many(case.mdp, demos, np.ones((6, 1)), case.thetas)[0]
    value, start = target(theta)[0], target(np.clip(case.thetas[0], -8.0, 8.0))[0]
    assert math.isfinite(value)
    assert value <= start + 1e-12 * max(1.0, abs(start))
