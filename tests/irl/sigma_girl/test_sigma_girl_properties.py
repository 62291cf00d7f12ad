"""The profile likelihood of Sigma-GIRL against dense algebra, on random Jacobians."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from limiirl.irl.sigma_girl.likelihood import PROFILES, jacobian_moments, jacobians
from tests.oracles.sigma import (
    central_differences,
    dense_covariance,
    jacobians_by_loops,
    kronecker_objective,
    log_likelihood_by_search,
)

seeds = st.integers(0, 2**32 - 1)
kinds = st.sampled_from(sorted(PROFILES))


@st.composite
def random_jacobians(draw) -> np.ndarray:
    """(n, d, q), correlated over entries and of different scales."""
    n, d, q = draw(st.integers(3, 9)), draw(st.integers(1, 4)), draw(st.integers(1, 4))
    rng = np.random.default_rng(draw(seeds))
    mixing = rng.normal(size=(d * q, d * q))
    scale = 10.0 ** draw(st.integers(-3, 3))
    J = (rng.normal(size=(n, d * q)) @ mixing + rng.normal(size=d * q)).reshape(n, d, q)
    return scale * J


@st.composite
def problems(draw) -> tuple[np.ndarray, np.ndarray]:
    """Jacobians, and weights on the simplex."""
    J = draw(random_jacobians())
    rng = np.random.default_rng(draw(seeds))
    return J, rng.dirichlet(np.ones(J.shape[2]))


@given(problems(), kinds)
def test_objective_agrees_with_the_kronecker_product(problem, kind):
    J, omega = problem
    covariance = dense_covariance(J, diagonal=kind == "diagonal")
    expected = kronecker_objective(J.mean(axis=0), covariance, omega)
    result = PROFILES[kind]([jacobian_moments(J)]).values(omega[None])
    np.testing.assert_allclose(result, [[expected]], rtol=1e-6, atol=1e-9)


@given(problems(), kinds)
def test_the_likelihood_is_the_largest_among_stationary_jacobians(problem, kind):
    J, omega = problem
    covariance = dense_covariance(J, diagonal=kind == "diagonal")
    expected = log_likelihood_by_search(J.mean(axis=0), covariance, omega)
    profile = PROFILES[kind]([jacobian_moments(J)])
    result = -0.5 * profile.values(omega[None])[0, 0] - 0.5 * profile.log_det[0]
    np.testing.assert_allclose(result, expected, rtol=1e-6, atol=1e-6)


@given(problems(), kinds)
def test_gradients_agree_with_finite_differences(problem, kind):
    J, omega = problem
    profile = PROFILES[kind]([jacobian_moments(J), jacobian_moments(J[::-1] * 2.0 + 1.0)])
    values, gradients = profile.gradients(omega)
    np.testing.assert_allclose(values, profile.values(omega[None])[:, 0], rtol=1e-12)
    for i in range(2):
        expected = central_differences(lambda w, i=i: profile.values(w[None])[i, 0], omega, 1e-6)
        np.testing.assert_allclose(gradients[i], expected, rtol=1e-6, atol=1e-6 * (1.0 + values[i]))


@given(problems(), kinds, st.floats(1e-6, 1e6))
def test_objective_is_invariant_to_the_norm_of_omega(problem, kind, factor):
    J, omega = problem
    profile = PROFILES[kind]([jacobian_moments(J)])
    values, gradients = profile.gradients(omega)
    np.testing.assert_allclose(profile.gradients(factor * omega)[0], values, rtol=1e-8)
    np.testing.assert_allclose(profile.gradients(-omega)[0], values, rtol=1e-8)
    # Euler's identity: the gradient along omega is zero.
    slack = 1e-8 * (1.0 + np.abs(gradients).max())
    np.testing.assert_allclose(gradients @ omega, 0.0, rtol=0, atol=slack)


@given(problems(), kinds, st.floats(1e-2, 1e2))
def test_objective_is_invariant_to_the_unit_of_rewards(problem, kind, factor):
    J, omega = problem
    one, other = (PROFILES[kind]([jacobian_moments(J * scale)]).values(omega[None]) for scale in (1.0, factor))
    np.testing.assert_allclose(one, other, rtol=1e-7)


@given(random_jacobians(), kinds)
def test_agents_are_independent(J, kind):
    rng = np.random.default_rng(0)
    others = [rng.normal(size=(5, d, J.shape[2])) for d in (1, 6)]
    omegas = rng.dirichlet(np.ones(J.shape[2]), 3)
    together = PROFILES[kind]([jacobian_moments(one) for one in (others[0], J, others[1])])
    alone = PROFILES[kind]([jacobian_moments(J)])
    np.testing.assert_allclose(together.values(omegas)[1], alone.values(omegas)[0], rtol=1e-9)
    np.testing.assert_allclose(together.log_det[1], alone.log_det[0], rtol=1e-12)
    np.testing.assert_allclose(together.gradients(omegas[0])[1][1], alone.gradients(omegas[0])[1][0], rtol=1e-9)


@given(st.integers(1, 5), st.integers(1, 4), st.integers(1, 3), st.integers(1, 3), st.floats(0.3, 1.0), seeds)
def test_jacobians_agree_with_explicit_loops(n, H, d, q, gamma, seed):
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=(n, H, d)) * (rng.random((n, H, 1)) < 0.8)
    phi = rng.normal(size=(n, H, q)) * (rng.random((n, H, 1)) < 0.8)
    result = jacobians(scores, phi, gamma, floor=0.0)
    np.testing.assert_allclose(result, jacobians_by_loops(scores, phi, gamma), rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("kind", sorted(PROFILES))
def test_the_objective_is_not_convex(kind):
    # A point between two others can be higher than both, so several starts are needed.
    J = np.random.default_rng(0).normal(size=(9, 2, 3)) + np.array([[1.0, -1.0, 0.5], [-1.0, 1.0, 0.5]])
    profile = PROFILES[kind]([jacobian_moments(J)])
    rng = np.random.default_rng(1)
    a, b = rng.dirichlet(np.ones(3), 500), rng.dirichlet(np.ones(3), 500)
    middle = profile.values((a + b) / 2)[0]
    assert np.any(middle > np.maximum(profile.values(a)[0], profile.values(b)[0]) + 1e-3)
