"""Properties of the Bayesian mixture: a lower bound, independent of the order, without empty intents."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import xlogy
from scipy.stats import norm

from limiirl.irl.optim import Box
from limiirl.irl.problem import make_problem
from limiirl.mixture.bayesian.reward_posterior import RewardPrior
from limiirl.mixture.bayesian.search import improve_by_move, search
from limiirl.mixture.bayesian.variational import VariationalProblem, stick_posterior
from tests.helpers import examples
from tests.oracles.normal import Normal, numbers
from tests.oracles.partitions import block_evidence, exact

GRID = np.linspace(-60.0, 60.0, 6001)
VALUES = st.lists(st.integers(-20, 20).map(lambda x: x / 4.0), min_size=1, max_size=5)


def problem(values: list[float], scale: float, alpha: float) -> VariationalProblem:
    ready = make_problem(Normal(), *numbers(values))
    return VariationalProblem(
        ready, RewardPrior(Box(np.array([-np.inf]), np.array([np.inf])), scale), alpha, ready.features()
    )


@settings(max_examples=examples(25), deadline=None)
@given(VALUES, st.sampled_from([1.0, 4.0]), st.sampled_from([0.3, 1.0, 3.0]), st.integers(1, 4), st.integers(0, 99))
def test_every_posterior_is_below_the_exact_evidence(values, scale, alpha, K, seed):
    made = problem(values, scale, alpha)
    log_p = norm.logpdf(np.array(values)[:, None], GRID)
    log_prior = norm.logpdf(GRID, 0.0, scale) + np.log(GRID[1] - GRID[0])
    evidence = exact(log_p, log_prior, alpha).log_evidence
    state = made.start(np.random.default_rng(seed).dirichlet(np.ones(K), size=len(values)))
    # The log-likelihood is quadratic: rewards attain the integral over theta, and the bound is known in closed form.
    blocks = sum(block_evidence(log_p, state.U[:, k], log_prior) for k in range(state.n_intents))
    expected = blocks - np.sum(xlogy(state.U, state.U)) + stick_posterior(state.sizes, alpha).bound
    np.testing.assert_allclose(state.bound, expected, atol=1e-4)
    for _ in range(3):
        after = made.update(state)
        assert state.bound - 1e-8 <= after.bound <= evidence + 1e-6
        state = after


@settings(max_examples=examples(15), deadline=None)
@given(VALUES, st.randoms(use_true_random=False))
def test_the_order_of_demonstrations_does_not_matter(values, random):
    order = list(range(len(values)))
    random.shuffle(order)
    moved = [values[i] for i in order]
    U = np.eye(3)[np.digitize(values, [-1.6, 1.6])]
    one = search(problem(values, 4.0, 1.0), U, 5, 30, 1e-4).state
    other = search(problem(moved, 4.0, 1.0), U[order], 5, 30, 1e-4).state
    np.testing.assert_allclose(one.bound, other.bound, atol=1e-6)
    np.testing.assert_allclose(one.U[order], other.U, atol=1e-4)


@settings(max_examples=examples(15), deadline=None)
@given(VALUES)
def test_no_intent_is_empty_and_the_bound_never_decreases(values):
    made = problem(values, 4.0, 1.0)
    result = search(made, np.eye(len(values)), len(values), 50, 1e-4)
    assert 1 <= result.state.n_intents <= len(set(values))
    assert np.all(np.diff(result.state.sizes) <= 1e-9)
    assert result.state.sizes[-1] > 1e-3
    np.testing.assert_allclose(result.state.U.sum(axis=1), 1.0, rtol=1e-12)
    assert result.state.n_intents in result.evidence
    if result.converged:  # no move is left
        assert improve_by_move(made, result.state, len(values)) is None
    assert min(np.diff([step.bound for step in result.history]), default=0.0) > -1.1e-3  # ties
