"""Quasi-Newton searches on the marginal likelihood: exact gradients, the fixed points of EM, and no decrease."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from limiirl import MLIRL, Demonstrations, DestinationMaxEnt, IntentMixture, MaxCausalEnt, MaxEnt
from limiirl.errors import InvalidParameter
from limiirl.irl import make_problem
from limiirl.mixture.em import MarginalLikelihood
from limiirl.worlds import ElementWorld
from tests.helpers import raises

WORLD = ElementWorld(seed=3)
DEMOS, _ = WORLD.sample(40, seed=3)
MODELS: list[Any] = [
    MaxEnt(max_length=40, ridge=1e-3),
    MaxCausalEnt(ridge=1e-2),
    MLIRL(q="bv", ridge=1e-2),
]


class SlowOverlap:
    """Two groups of trips between the same places whose preferences overlap, so that EM converges slowly."""

    def __init__(self) -> None:
        from limiirl import MDP

        rng = np.random.default_rng(0)
        x, y = np.divmod(np.arange(25), 5)
        right, down = np.flatnonzero(x < 4), np.flatnonzero(y < 4)
        src = np.concatenate([right, right + 5, down, down + 1])
        dst = np.concatenate([right + 5, right, down + 1, down])
        self.mdp = MDP.from_edges(src, dst, 25, edge_features=np.column_stack([np.ones(80), rng.random((80, 2))]))
        model, ends = DestinationMaxEnt(), rng.permuted(np.tile(np.arange(25), (150, 1)), axis=1)[:, :2]
        parts = [
            model.sample(self.mdp, theta, ends[half, 0], ends[half, 1], seed=1)
            for theta, half in (([-1.6, -2.0, 0.0], slice(0, 75)), ([-1.6, 0.0, -1.0], slice(75, 150)))
        ]
        self.demos = Demonstrations.concat(parts)


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("model", MODELS, ids=str)
def test_gradient_agrees_with_finite_differences(model: Any, grouped: bool) -> None:
    problem = make_problem(model, WORLD.mdp, DEMOS, np.arange(40) // 3 if grouped else None)
    d, rng = WORLD.mdp.n_features, np.random.default_rng(0)
    objective = MarginalLikelihood(problem, 3, 1.0 + rng.random(d))
    x = objective.pack(np.log([[1.0], [0.4], [0.6]]), -1.0 - rng.random((3, d)))
    value, gradient = objective.evaluate(x[None], np.array([0]))
    logits, thetas = objective.unpack(x)
    rho = np.exp(logits[:, 0]) / np.exp(logits).sum()
    n = 14 if grouped else 40
    expected = (problem.e_step(rho, thetas, problem.allocate(3)).log_likelihood - problem.penalty(thetas)) / n
    np.testing.assert_allclose(value, -expected, rtol=1e-12)
    for j in range(x.size):
        step = 1e-5 * np.eye(x.size)[j]
        sides = [objective.evaluate((x + sign * step)[None], np.array([0]))[0][0] for sign in (1.0, -1.0)]
        np.testing.assert_allclose(gradient[0, j], (sides[0] - sides[1]) / 2e-5, rtol=1e-5, atol=1e-6)


def test_a_slow_mixture_converges_in_fewer_evaluations_to_a_stationary_point_of_em() -> None:
    case = SlowOverlap()
    options: dict[str, Any] = {"irl": DestinationMaxEnt(ridge=1e-3, gtol=1e-8), "random_state": 0, "max_iter": 2000}
    plain = IntentMixture(2, **options).fit(case.mdp, case.demos)
    fast = IntentMixture(2, accelerate=True, **options).fit(case.mdp, case.demos)
    assert fast.converged_
    assert fast.objective_ >= plain.objective_ - 1e-9
    used = [sum(entry.n_evaluations for entry in mix.history_) for mix in (plain, fast)]
    assert used[1] < used[0] / 2
    again = IntentMixture(2, init=fast.ensemble_, **options).fit(case.mdp, case.demos)
    np.testing.assert_allclose(again.thetas_, fast.thetas_, atol=1e-3)
    np.testing.assert_allclose(again.objective_, fast.objective_, atol=1e-9)


@pytest.mark.parametrize("model", MODELS, ids=str)
def test_the_objective_never_decreases(model: Any) -> None:
    mix = IntentMixture(3, model, init="random", accelerate=True, random_state=1).fit(WORLD.mdp, DEMOS)
    objectives = [entry.objective for entry in mix.history_]
    assert np.all(np.diff(objectives) >= -1e-9 * np.abs(objectives[:-1]))
    assert "accelerated" in {entry.event for entry in mix.history_}
    np.testing.assert_array_equal(
        mix.thetas_,
        IntentMixture(3, model, init="random", accelerate=True, random_state=1).fit(WORLD.mdp, DEMOS).thetas_,
    )


class FitOnly:
    """A model with `fit` and `log_prob` only."""

    def fit(self, mdp: Any, demos: Any, weights: Any = None, start: Any = None) -> Any:
        return MaxEnt(40).fit(mdp, demos, weights, start)

    def log_prob(self, mdp: Any, thetas: Any, demos: Any) -> Any:
        return MaxEnt(40).log_prob(mdp, thetas, demos)


def test_models_without_gradients_are_refused() -> None:
    with raises(InvalidParameter, parameter="accelerate", value=True):
        IntentMixture(2, FitOnly(), accelerate=True).fit(WORLD.mdp, DEMOS)
    with raises(InvalidParameter, parameter="accelerate", value="yes"):
        IntentMixture(2, accelerate="yes").fit(WORLD.mdp, DEMOS)
