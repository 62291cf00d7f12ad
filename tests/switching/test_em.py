"""Extrapolated EM converges to the maximum of plain EM, in fewer iterations."""

import numpy as np
import pytest

from limiirl import MaxCausalEnt, SwitchingMixture
from limiirl.switching import em
from limiirl.switching.problem import Parameters, SwitchingProblem
from limiirl.switching.transitions import Logits
from tests.oracles.switching import random_problem
from tests.switching.test_estimator import switch


def test_acceleration_takes_fewer_iterations_to_the_same_maximum(monkeypatch):
    mdp, demos, intents = switch(n_demos=4, length=150)
    options = {"init": intents.ravel(), "tol": 1e-9, "max_iter": 2000}
    fast = SwitchingMixture(2, MaxCausalEnt(ridge=1e-3), **options).fit(mdp, demos)
    monkeypatch.setattr(em, "_FIRST_ACCELERATED", 10**9)
    slow = SwitchingMixture(2, MaxCausalEnt(ridge=1e-3), **options).fit(mdp, demos)
    assert fast.objective_ == pytest.approx(slow.objective_, abs=1e-6)
    assert fast.objective_ >= slow.objective_ - 1e-8
    np.testing.assert_allclose(fast.transition_, slow.transition_, rtol=0, atol=1e-3)
    assert fast.n_iter_ < slow.n_iter_


@pytest.mark.parametrize("kind", ["homogeneous", "state", "covariates"])
def test_vectors_of_parameters_are_inverted(kind):
    problem = random_problem(0, kind, 3)
    x = None if problem.covariates is None else problem.x
    own = SwitchingProblem(MaxCausalEnt(bounds=(-1, 1)), problem.mdp, problem.demos, kind, x)
    A = problem.A - np.diag(problem.A)[:, None]
    if kind == "homogeneous":
        A = np.log(np.exp(A) / np.exp(A).sum(axis=1, keepdims=True))
    given = Parameters(problem.initial, np.clip(problem.thetas, -1, 1), Logits(A, problem.B))
    again = own.from_vector(own.to_vector(given), given)
    for one, other in zip((*again[:2], *again.logits), (*given[:2], *given.logits), strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-13)
    far = own.from_vector(own.to_vector(given) * 1e3, given)
    assert np.abs(far.thetas).max() <= 1.0
    assert far.initial.min() >= 1e-8 * (1 - 1e-9)
    assert far.initial.sum() == pytest.approx(1.0, abs=1e-12)
    if kind == "homogeneous":
        np.testing.assert_allclose(np.exp(far.logits.A).sum(axis=1), 1.0, rtol=1e-12)
    else:
        assert np.abs(far.logits.A).max() <= 18.4


def test_shares_of_the_history_are_occupancies():
    mdp, demos, _ = switch(n_demos=2, length=60)
    sw = SwitchingMixture(2, MaxCausalEnt(ridge=1e-3), random_state=0).fit(mdp, demos)
    np.testing.assert_allclose(sw.history_[-1].weights, sw.shares_, rtol=1e-12)
    np.testing.assert_allclose(sw.shares_, sw.predict_proba(demos).mean(axis=0), rtol=1e-10)
    assert [entry.iteration for entry in sw.history_] == list(range(sw.n_iter_ + 1))
