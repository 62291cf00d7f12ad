"""The M-step of the transition model: gradients, optima, and checks of covariates."""

import numpy as np
import pytest
from scipy.optimize import minimize

from limiirl.kernels.switching import ChainCounts
from limiirl.switching.transitions import Design, LogitObjective, Logits, fit_logits, transition_table
from tests.oracles.switching import transition_rows

K, M = 3, 7


def draw_counts(seed, rows=M):
    """Random expected transitions of each row, as the E-step returns them."""
    pairs = np.random.default_rng(seed).gamma(0.7, size=(rows, K, K)) * 5.0
    empty = np.zeros((0, K))
    return pairs, ChainCounts(0.0, empty, np.ones(K), pairs.sum(axis=2), pairs.sum(axis=1), pairs.sum(axis=0), -1)


def designs():
    yield "state", Design.by_state(np.arange(M), M), np.eye(M)
    X = np.random.default_rng(9).normal(size=(M, 2))
    yield "covariates", Design.by_covariates(X), X


def expected_log_likelihood(pairs, A, B, X):
    return sum(np.sum(pairs[r] * np.log(transition_rows(A, B, X[r]))) for r in range(len(X)))


@pytest.mark.parametrize(("name", "design", "X"), list(designs()), ids=["state", "covariates"])
class TestObjective:
    def test_value_is_the_expected_log_likelihood(self, name, design, X):
        pairs, counts = draw_counts(0)
        rng = np.random.default_rng(1)
        logits = Logits(rng.normal(size=(K, K)), rng.normal(size=(K, X.shape[1])))
        value, _, _ = LogitObjective(design, counts, 0.0).gradient(logits)
        assert value == pytest.approx(expected_log_likelihood(pairs, *logits, X), rel=1e-12)

    def test_gradient_equals_differences(self, name, design, X):
        _, counts = draw_counts(1)
        objective = LogitObjective(design, counts, 0.3)
        rng = np.random.default_rng(2)
        objective.scale = rng.random(objective.scale.size) + 0.5
        x = rng.normal(size=objective.scale.size)
        _, gradients = objective.evaluate(x[None], np.array([0]))
        for i in range(x.size):
            step = 1e-5 * np.eye(x.size)[i]
            ends = [objective.evaluate((x + sign * step)[None], np.array([0]))[0][0] for sign in (1, -1)]
            assert (ends[0] - ends[1]) / 2e-5 == pytest.approx(gradients[0, i], abs=1e-8)

    @pytest.mark.parametrize("ridge", [0.1, 10.0])
    def test_fit_reaches_the_optimum_of_a_general_optimiser(self, name, design, X, ridge):
        pairs, counts = draw_counts(2)
        m, off = X.shape[1], ~np.eye(K, dtype=bool)

        def loss(x):
            A = np.zeros((K, K))
            A[off] = x[: K * (K - 1)]
            B = x[K * (K - 1) :].reshape(K, m)
            return 0.5 * ridge * np.sum(B**2) - expected_log_likelihood(pairs, A, B, X)

        best = minimize(loss, np.zeros(K * (K - 1) + K * m), method="BFGS", options={"gtol": 1e-7})
        logits = Logits(np.zeros((K, K)), np.zeros((K, m)))
        for _ in range(20):
            logits = fit_logits(design, counts, logits, ridge)
        reached = 0.5 * ridge * np.sum(logits.B**2) - expected_log_likelihood(pairs, *logits, X)
        assert reached == pytest.approx(best.fun, abs=1e-7)
        np.testing.assert_array_equal(np.diag(logits.A), 0.0)

    def test_fit_never_lowers_the_objective(self, name, design, X):
        rng = np.random.default_rng(3)
        for seed in range(10):
            pairs, counts = draw_counts(seed)
            start = Logits(rng.normal(size=(K, K)), rng.normal(size=(K, X.shape[1])))
            after = fit_logits(design, counts, start, 1.0)
            values = [expected_log_likelihood(pairs, *x, X) - 0.5 * np.sum(x.B**2) for x in (start, after)]
            assert values[1] >= values[0] - 1e-12 * abs(values[0])

    def test_large_ridge_gives_the_homogeneous_solution(self, name, design, X):
        _, counts = draw_counts(4)
        logits = Logits(np.zeros((K, K)), np.zeros((K, X.shape[1])))
        for _ in range(20):
            logits = fit_logits(design, counts, logits, 1e9)
        share = counts.transitions / counts.transitions.sum(axis=1, keepdims=True)
        np.testing.assert_allclose(transition_table(logits, design.eta(logits.B))[3], share, rtol=0, atol=1e-6)


class TestHomogeneous:
    def test_probabilities_are_normalised_counts(self):
        _, counts = draw_counts(5)
        logits = fit_logits(Design.homogeneous(3), counts, Logits(np.zeros((K, K)), np.zeros((K, 0))), 1.0)
        share = counts.transitions / counts.transitions.sum(axis=1, keepdims=True)
        np.testing.assert_allclose(np.exp(logits.A), share, rtol=1e-14, atol=0)

    def test_absent_transitions_keep_a_positive_probability(self):
        _, counts = draw_counts(5)
        counts.transitions[0] = [4.0, 0.0, 2.0]
        logits = fit_logits(Design.homogeneous(3), counts, Logits(np.zeros((K, K)), np.zeros((K, 0))), 1.0)
        np.testing.assert_allclose(np.exp(logits.A[0, 1]), 1e-8, rtol=1e-12, atol=0)

    def test_intents_without_transitions_keep_their_row(self):
        _, counts = draw_counts(5)
        counts.transitions[1] = 0.0
        start = Logits(np.log(np.full((K, K), 1 / K)), np.zeros((K, 0)))
        logits = fit_logits(Design.homogeneous(3), counts, start, 1.0)
        np.testing.assert_array_equal(logits.A[1], start.A[1])


def test_one_intent_is_kept_as_it_is():
    counts = ChainCounts(0.0, np.ones((1, 1)), *(np.ones((1, 1)),) * 3, np.ones((1, 1)), -1)
    start = Logits(np.zeros((1, 1)), np.zeros((1, 2)))
    assert fit_logits(Design.by_covariates(np.ones((1, 2))), counts, start, 1.0) is start
