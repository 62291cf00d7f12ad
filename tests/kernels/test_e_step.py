"""The fused E-step against scipy, row by row and over many blocks."""

import numba
import numpy as np
import pytest

from limiirl._parallel import BLOCK
from limiirl.kernels.e_step import Rows, e_step, sum_weighted
from tests.oracles.mixture import responsibilities

NONE = np.empty(0)


def problem(n: int, K: int, d: int, seed: int = 0):
    rng = np.random.default_rng(seed)
    rows = Rows(rng.normal(size=(n, d)), rng.normal(size=n), rng.integers(1, 4, size=n).astype(float))
    return rows, rng.normal(scale=5.0, size=(K, d)), rng.normal(size=K), rng.dirichlet(np.ones(K), size=n)


def table(rows: Rows, thetas, log_Z):
    return rows.features @ thetas.T + rows.log_q[:, None] - np.outer(rows.counts, log_Z)


@pytest.mark.parametrize("n", [1, 7, BLOCK, BLOCK + 1, 3 * BLOCK + 5])
@pytest.mark.parametrize("K", [1, 2, 5])
def test_e_step_over_rows_and_over_a_table_equals_scipy(n, K):
    rows, thetas, log_Z, before = problem(n, K, d=4)
    rho = np.random.default_rng(1).dirichlet(np.ones(K))
    wanted, log_lik = responsibilities(table(rows, thetas, log_Z), rho)
    for given in (rows, np.ascontiguousarray(table(rows, thetas, log_Z))):
        U = before.copy()
        result = e_step(given, thetas, log_Z, np.log(rho), U)
        np.testing.assert_allclose(U, wanted, rtol=1e-11, atol=1e-14)
        np.testing.assert_allclose(result.log_likelihood, log_lik.sum(), rtol=1e-12)
        np.testing.assert_allclose(result.change, np.abs(wanted - before).sum(), rtol=1e-11)
        np.testing.assert_allclose(result.sizes, wanted.sum(axis=0), rtol=1e-11, atol=1e-14)
        assert result.bad_row == -1
        if isinstance(given, Rows):
            np.testing.assert_allclose(result.moments, U.T @ rows.features, rtol=1e-9, atol=1e-10)


def test_sum_weighted_equals_the_matrix_product():
    rows, _, _, U = problem(2 * BLOCK + 3, 3, 4)
    np.testing.assert_allclose(sum_weighted(rows.features, U), U.T @ rows.features, rtol=1e-10, atol=1e-10)


def test_log_probabilities_far_apart_and_far_below_the_range_of_exp():
    log_p = np.array([[-5000.0, -5700.0], [-1e5, -1e5 + np.log(3.0)], [-np.inf, -2.0]])
    U = np.zeros((3, 2))
    result = e_step(log_p, np.empty((2, 0)), NONE, np.log([0.5, 0.5]), U)
    np.testing.assert_allclose(U, [[1.0, np.exp(-700.0)], [0.25, 0.75], [0.0, 1.0]], rtol=1e-12)
    wanted = -5000.0 + (-1e5 + np.log(4.0)) - 2.0 + 3 * np.log(0.5)
    np.testing.assert_allclose(result.log_likelihood, wanted, rtol=1e-14)


@pytest.mark.parametrize("bad", [[-np.inf, -np.inf], [np.nan, 0.0], [0.0, np.nan], [np.inf, 0.0]])
@pytest.mark.parametrize("row", [0, 5, 2 * BLOCK + 1])
def test_a_row_without_finite_likelihood_is_reported(bad, row):
    log_p = np.zeros((2 * BLOCK + 3, 2))
    log_p[row] = bad
    result = e_step(log_p, np.empty((2, 0)), NONE, np.log([0.5, 0.5]), np.zeros_like(log_p))
    assert result.bad_row == row


def test_the_first_of_several_bad_rows_is_reported():
    log_p = np.zeros((2 * BLOCK, 2))
    log_p[[3, 9, BLOCK + 2]] = np.nan
    assert e_step(log_p, np.empty((2, 0)), NONE, np.log([0.5, 0.5]), np.zeros_like(log_p)).bad_row == 3


def test_inverse_temperature_changes_responsibilities_but_not_the_likelihood():
    rows, thetas, log_Z, U = problem(50, 3, 4)
    rho, V = np.array([0.2, 0.3, 0.5]), U.copy()
    result = e_step(rows, thetas, log_Z, np.log(rho), U, inverse_temperature=0.1)
    joint = 0.1 * (table(rows, thetas, log_Z) + np.log(rho))
    wanted, _ = responsibilities(joint, np.ones(3))
    np.testing.assert_allclose(U, wanted, rtol=1e-12)
    assert result.log_likelihood == e_step(rows, thetas, log_Z, np.log(rho), V).log_likelihood


def test_threads_change_no_bit():
    rows, thetas, log_Z, before = problem(9 * BLOCK + 17, 3, 5)
    results = []
    known = numba.get_num_threads()
    try:
        for threads in (1, min(2, numba.config.NUMBA_NUM_THREADS)):
            numba.set_num_threads(threads)
            U = before.copy()
            results.append((e_step(rows, thetas, log_Z, np.log([0.2, 0.3, 0.5]), U), U, sum_weighted(rows.features, U)))
    finally:
        numba.set_num_threads(known)
    one, two = results
    for a, b in zip((*one[0], one[1], one[2]), (*two[0], two[1], two[2]), strict=True):
        np.testing.assert_array_equal(a, b)
