"""Rewards that intents share: constraints, monotone likelihood, gradients, standard errors, criteria and files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from limiirl import MLIRL, DestinationMaxEnt, IntentMixture, MaxCausalEnt, MaxEnt
from limiirl.errors import InvalidParameter
from limiirl.irl import make_problem
from limiirl.mixture.em import ExpectedLikelihood, MarginalLikelihood, Pooling
from limiirl.worlds import ElementWorld
from tests.helpers import raises
from tests.mixture.test_em_acceleration import FitOnly, SlowOverlap

WORLD = ElementWorld(seed=3)
DEMOS, _ = WORLD.sample(40, seed=3)
NAMES = WORLD.mdp.feature_names
SHARED = np.array([True, False, False, True, False])
MODELS: list[Any] = [MaxEnt(max_length=40, ridge=1e-3), MaxCausalEnt(ridge=1e-2), MLIRL(q="bv", ridge=1e-2)]
QUIET = pytest.mark.filterwarnings("ignore::limiirl.errors.LimiirlWarning")


@QUIET
@pytest.mark.parametrize("accelerate", [False, True])
@pytest.mark.parametrize("model", MODELS, ids=str)
def test_shared_rewards_are_equal_and_the_objective_never_decreases(model: Any, accelerate: bool) -> None:
    mix = IntentMixture(3, model, shared=[NAMES[0], NAMES[3]], accelerate=accelerate, max_iter=12, random_state=0)
    mix.fit(WORLD.mdp, DEMOS)
    for k in (1, 2):
        np.testing.assert_array_equal(mix.thetas_[k, SHARED], mix.thetas_[0, SHARED])
        assert np.any(mix.thetas_[k, ~SHARED] != mix.thetas_[0, ~SHARED])
    objectives = [entry.objective for entry in mix.history_]
    assert np.all(np.diff(objectives) >= -1e-9 * np.abs(objectives[:-1]))


@pytest.mark.parametrize("model", MODELS, ids=str)
def test_gradients_agree_with_finite_differences(model: Any) -> None:
    problem, rng = make_problem(model, WORLD.mdp, DEMOS), np.random.default_rng(0)
    pooling, scale = Pooling(SHARED), 1.0 + rng.random(5)
    thetas = -1.0 - rng.random((3, 5))
    thetas[:, SHARED] = thetas[0, SHARED]
    marginal = MarginalLikelihood(problem, 3, scale, pooling)
    expected = ExpectedLikelihood(problem, rng.dirichlet(np.ones(3), 40), pooling, scale)
    logits = np.log([[0.5], [0.2], [0.3]]) - np.log(0.5)
    points = marginal.pack(logits, thetas), pooling.pack(thetas * scale)
    assert [point.size for point in points] == [2 + 2 + 9, 2 + 9]
    for objective, x in zip((marginal, expected), points, strict=True):
        _, gradient = objective.evaluate(x[None], np.array([0]))
        for j in range(x.size):
            step = 1e-5 * np.eye(x.size)[j]
            sides = [objective.evaluate((x + sign * step)[None], np.array([0]))[0][0] for sign in (1.0, -1.0)]
            np.testing.assert_allclose(gradient[0, j], (sides[0] - sides[1]) / 2e-5, rtol=1e-5, atol=1e-6)


@QUIET
def test_sharing_everything_is_one_intent_and_sharing_nothing_changes_nothing() -> None:
    case = SlowOverlap()
    options: dict[str, Any] = {"irl": DestinationMaxEnt(ridge=1e-3, gtol=1e-8), "random_state": 0, "accelerate": True}
    one = IntentMixture(1, **options).fit(case.mdp, case.demos)
    all_shared = IntentMixture(2, shared="*", **options).fit(case.mdp, case.demos)
    np.testing.assert_allclose(all_shared.thetas_, np.tile(one.thetas_, (2, 1)), atol=2e-4)
    np.testing.assert_allclose(all_shared.objective_, one.objective_, rtol=1e-7)
    part = IntentMixture(2, shared="edge[0]", **options).fit(case.mdp, case.demos)
    full = IntentMixture(2, **options).fit(case.mdp, case.demos)
    assert part.converged_
    assert one.objective_ < part.objective_ <= full.objective_ + 1e-9


def test_errors_and_criteria_count_shared_rewards_once() -> None:
    case = SlowOverlap()
    mix = IntentMixture(
        2, DestinationMaxEnt(bounds=None, ridge=1e-3), shared="edge[0]", accelerate=True, random_state=0
    )
    mix.fit(case.mdp, case.demos)
    errors = mix.standard_errors()
    assert errors.n_free == 1 + 1 + 4
    log_likelihood = mix.log_likelihood_ * len(case.demos)
    np.testing.assert_allclose(mix.bic(), -2.0 * log_likelihood + 6 * np.log(len(case.demos)), rtol=1e-9)
    assert mix.summary().n_free == 6
    np.testing.assert_allclose(errors.thetas[0, 0], errors.thetas[1, 0], rtol=1e-9)
    np.testing.assert_allclose(
        errors.of_contrasts([[1.0, 0.0, 0.0], [0.0, 1.0, -1.0]])[:, 0], errors.thetas[:, 0], rtol=1e-9
    )
    # The covariance is the inverse of the Hessian of the penalised likelihood in the joint parameters.
    problem = mix._problem
    marginal = MarginalLikelihood(problem, 2, np.ones(3), Pooling(np.array([True, False, False])))
    x = marginal.pack(np.log(mix.weights_ / mix.weights_[0])[:, None], mix.thetas_)
    steps = 1e-4 * np.eye(x.size)
    rows = [marginal.evaluate((x + h)[None], None)[1][0] - marginal.evaluate((x - h)[None], None)[1][0] for h in steps]  # type: ignore[arg-type]
    hessian = len(case.demos) * np.array(rows) / 2e-4
    expected = np.sqrt(np.diag(np.linalg.inv(0.5 * (hessian + hessian.T))))
    np.testing.assert_allclose(errors.thetas[0, 0], expected[1], rtol=1e-3)
    np.testing.assert_allclose(errors.thetas[:, 1:].ravel(), expected[2:], rtol=1e-3)


@QUIET
def test_null_directions_of_shared_rewards_are_not_counted() -> None:
    case = SlowOverlap()
    twice = np.column_stack([np.asarray(case.mdp.edge_features), np.asarray(case.mdp.edge_features)[:, 0]])
    mdp = case.mdp.replace(edge_features=twice, feature_names=("km", "a", "b", "km again"))
    for shared, n_free in (("km*", 1 + 1 + 4), ("km", 1 + 2 + 4)):
        mix = IntentMixture(2, DestinationMaxEnt(bounds=None, ridge=1e-2), shared=shared, max_iter=3, random_state=0)
        assert mix.fit(mdp, case.demos).standard_errors().n_free == n_free


@QUIET
def test_a_given_ensemble_is_pooled_and_a_saved_mixture_keeps_its_criteria(tmp_path: Path) -> None:
    case = SlowOverlap()
    options: dict[str, Any] = {"irl": DestinationMaxEnt(ridge=1e-2), "shared": ("edge[0]",), "random_state": 0}
    mix = IntentMixture(2, init="random_rewards", max_iter=4, **options).fit(case.mdp, case.demos)
    assert np.ptp(mix.thetas_[:, 0]) == 0.0
    assert np.ptp(mix.restarts_[0].ensemble.thetas[:, 0]) == 0.0
    mix.save(tmp_path / "mixture")
    loaded = IntentMixture.load(tmp_path / "mixture")
    assert loaded.shared == ("edge[0]",)
    assert loaded.bic(case.demos) == mix.bic(case.demos)
    assert loaded.summary().n_free == mix.summary().n_free


def test_unknown_names_and_models_without_gradients_are_refused() -> None:
    with raises(InvalidParameter, parameter="shared", value="link *", index=1):
        IntentMixture(2, MaxEnt(), shared=[NAMES[0], "link *"]).fit(WORLD.mdp, DEMOS)
    with raises(InvalidParameter, parameter="shared", value=1):
        IntentMixture(2, FitOnly(), shared=NAMES[0]).fit(WORLD.mdp, DEMOS)
