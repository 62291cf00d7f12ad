"""Fit problems: restriction to units, objectives, feasible starts, and errors."""

import numpy as np
import pytest
from sklearn.base import clone

from limiirl.demos import Demonstrations, Groups
from limiirl.errors import InvalidDemos, InvalidParameter
from limiirl.irl import DestinationMaxEnt, FitProblem, MaxCausalEnt, MaxEnt, impossible_unit, make_problem
from limiirl.irl.optim import Box
from limiirl.irl.problem import Regulariser
from limiirl.mdp import MDP
from limiirl.worlds import ElementWorld
from tests.helpers import raises

PHI = [[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.5, 0.5]]
FORK = MDP.from_edges([0, 0, 1, 2], [1, 2, 3, 3], p0=[1, 0, 0, 0], state_features=PHI)
DEMOS = Demonstrations.from_lists([[0, 1, 3], [0, 2, 3], [0, 1], [0, 1, 3], [0, 2]])
GROUPS = np.array([1, 0, 1, 2, 0])
THETAS = np.array([[0.3, -0.4], [-1.0, 0.2]])
MODELS = [MaxEnt(4, bounds=(-3, 3)), MaxEnt(4, (-3, 3), condition="start"), MaxCausalEnt(max_length=4)]


class Calling(MaxEnt):
    """A model whose fit problem calls `log_prob`, because it overrides the likelihood."""

    def log_prob(self, mdp, thetas, demos):
        return 2.0 * super().log_prob(mdp, thetas, demos)


@pytest.mark.parametrize("groups", [None, GROUPS])
@pytest.mark.parametrize("model", [*MODELS, Calling(4)], ids=str)
def test_a_restricted_problem_has_the_log_probabilities_of_its_units(model, groups):
    problem = make_problem(model, FORK, DEMOS, groups)
    whole = problem.log_prob(THETAS)
    part = problem.restrict(slice(1, 3))
    assert len(part.units) == 2
    np.testing.assert_allclose(part.log_prob(THETAS), whole[1:3], rtol=1e-13)
    assert [part.units.name(i) for i in (0, 1)] == [problem.units.name(i) for i in (1, 2)] or groups is None


@pytest.mark.parametrize("model", MODELS, ids=str)
def test_objectives_are_weighted_means_of_log_probabilities(model):
    problem = make_problem(model, FORK, DEMOS, GROUPS)
    U = np.random.default_rng(0).dirichlet(np.ones(2), size=3)
    objective = problem.objective(U)
    assert objective is not None
    values, gradients = objective.evaluate(THETAS, np.arange(2))
    counts = problem.units.counts @ U

    def expected(thetas):
        return -np.sum(U * problem.log_prob(thetas), axis=0) / counts

    # A constant of each column, the mean of log q, is not part of the objective.
    moved = np.array([[0.1, 0.5], [0.0, -0.3]])
    np.testing.assert_allclose(
        values - objective.evaluate(moved, np.arange(2))[0], expected(THETAS) - expected(moved), atol=1e-12
    )
    for j in range(2):
        step = 1e-6 * np.eye(2)[j]
        expected_gradient = (expected(THETAS + step) - expected(THETAS - step)) / 2e-6
        np.testing.assert_allclose(gradients[:, j], expected_gradient, atol=1e-8)


def test_models_without_gradients_have_no_objective():
    problem = make_problem(Calling(4), FORK, DEMOS)
    assert type(problem) is FitProblem
    assert problem.objective(np.ones((5, 1))) is None
    assert problem.feasible_start() is None


def test_feasible_starts_are_within_the_bounds_and_have_finite_partition_functions():
    loop = MDP.from_edges([0, 1, 1], [1, 0, 2], p0=[1, 0, 0], state_features=[[1.0], [1.0], [0.0]])
    demos = Demonstrations.from_lists([[0, 1, 2], [0, 1, 0, 1, 2]])
    for model in (MaxEnt(np.inf, (-20, 0)), MaxCausalEnt(bounds=(-20, 0)), DestinationMaxEnt((-20, 0))):
        problem = make_problem(model, loop, demos)
        start = problem.feasible_start()
        assert start is not None
        assert np.all((start >= -20.0) & (start <= 0.0))
        assert np.all(np.isfinite(problem.log_prob(start[None])))


def test_the_error_of_an_impossible_unit_has_its_index():
    with raises(InvalidDemos, parameter="demos", index=1):
        raise impossible_unit(Groups.from_labels(GROUPS, 5), 1)


def test_max_length_is_resolved_in_the_model_of_the_problem():
    model = MaxEnt(bounds=(-3, 3))
    problem = make_problem(model, FORK, DEMOS[2:3])
    assert problem.model is not model
    assert problem.model.max_length == 2
    assert problem.model.bounds == (-3, 3)
    assert model.max_length is None
    assert make_problem(MODELS[0], FORK, DEMOS).model is MODELS[0]
    assert make_problem(Calling(), FORK, DEMOS).model.max_length == 3


# The feature without a reward is set to 0, and the reward of the goal is not identified in a causal model.
@pytest.mark.filterwarnings("ignore::limiirl.errors.IdentifiabilityWarning")
def test_ridge_per_pattern_of_feature_names():
    """A huge coefficient sets the parameters of its block to zero, and leaves a fit to the other features."""
    world = ElementWorld(seed=0)
    demos, _ = world.sample(40, seed=0)
    names = world.mdp.feature_names
    for model in (MaxEnt(40, bounds=None), MaxCausalEnt()):
        blocked = clone(model).set_params(ridge={"element 1": 1e9, "element *": 1e-2, "goal": 0.5, "start": 0.1})
        theta = blocked.fit(world.mdp, demos)
        np.testing.assert_allclose(theta[names.index("element 1")], 0.0, atol=1e-6)
        rest = [j for j, name in enumerate(names) if name != "element 1"]
        assert np.min(np.abs(theta[rest])) > 1e-3
        # Features divided by the root of their coefficients have the same penalty.
        scale = np.sqrt([{"goal": 0.5, "start": 0.1}.get(name, 1e-2) for name in names])
        scaled = world.mdp.replace(
            state_features=np.where(np.array(names) == "element 1", 0.0, world.mdp.state_features / scale)
        )
        other = clone(model).set_params(ridge=1.0, gtol=1e-9).fit(scaled, demos)
        np.testing.assert_allclose((other / scale)[rest], theta[rest], rtol=1e-3)


def test_ridge_of_a_mixture_is_the_sum_over_features():
    regulariser = Regulariser(Box(np.full(2, -1.0), np.ones(2)), np.array([2.0, 0.5]), 6)
    thetas = np.array([[1.0, 2.0], [0.0, -2.0], [1.0, 0.0]])
    np.testing.assert_allclose(regulariser.penalty(thetas), 0.5 * 6 / 3 * (2.0 * 2 + 0.5 * 8), rtol=1e-14)
    np.testing.assert_allclose(regulariser.penalty_gradient(thetas), 2.0 * thetas * [2.0, 0.5], rtol=1e-14)
    np.testing.assert_allclose(regulariser.ridges(3, np.array([1.0, 4.0])), [[4.0, 1.0], [1.0, 0.25]], rtol=1e-14)


@pytest.mark.parametrize(("ridge", "value"), [({"lane *": 1.0}, "lane *"), ({"goal": -1.0}, -1.0), ("goal", "goal")])
def test_odd_ridges_are_refused(ridge, value):
    world = ElementWorld(seed=0)
    demos, _ = world.sample(5, seed=0)
    with raises(InvalidParameter, parameter="ridge", value=value):
        MaxEnt(40, ridge=ridge).fit(world.mdp, demos)
