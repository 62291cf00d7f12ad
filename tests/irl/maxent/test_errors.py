"""Errors of `MaxEnt` for invalid arguments."""

import math

import numpy as np
import pytest

from limiirl.demos import Demonstrations, Groups
from limiirl.errors import DivergentPartition, InvalidDemos, InvalidParameter
from limiirl.irl import FitProblem, MaxEnt, MaxEntProblem
from limiirl.mdp import MDP
from tests.helpers import raises
from tests.oracles.likelihood import small_mdp

DEMOS = Demonstrations.from_lists([[0, 1, 3], [0, 2], [1, 3]], [[0, 1], [0], [0]])
ZERO = np.zeros(4)


# Parameters of the model.


@pytest.mark.parametrize("value", [0, -1, 2.5, True, False, "x", math.nan, -math.inf, np.float64(0.5), [3]])
def test_max_length(value: object):
    for call in (
        lambda model: model.fit(small_mdp(), DEMOS),
        lambda model: model.log_partition(small_mdp(), ZERO),
        lambda model: model.log_prob(small_mdp(), ZERO, DEMOS),
        lambda model: model.sample(small_mdp(), ZERO, 2),
    ):
        with raises(InvalidParameter, parameter="max_length", value=value):
            call(MaxEnt(value))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("solver", "adam"),
        ("stop", "never"),
        ("condition", "goal"),
        ("arithmetic", "float32"),
        ("ridge", -0.1),
        ("ridge", math.nan),
        ("ridge", "big"),
        ("gtol", 0.0),
        ("gtol", -1e-6),
        ("gtol", math.inf),
        ("gtol", None),
        ("max_evaluations", 0),
        ("max_evaluations", 10.0),
        ("max_evaluations", True),
        ("max_memory", -1),
        ("max_memory", math.nan),
        ("max_memory", "1 GB"),
    ],
)
def test_parameters(name: str, value: object):
    with raises(InvalidParameter, parameter=name, value=value):
        MaxEnt(3).set_params(**{name: value}).fit(small_mdp(), DEMOS)


@pytest.mark.parametrize("name", ["stop", "condition", "arithmetic"])
def test_names_are_checked_without_a_fit(name: str):
    with raises(InvalidParameter, parameter=name, value="x"):
        MaxEnt(3).set_params(**{name: "x"}).log_partition(small_mdp(), ZERO)


@pytest.mark.parametrize("value", [None, 3, ["newton"]])
def test_solver_must_be_a_string(value: object):
    with raises(InvalidParameter, parameter="solver", value=value):
        MaxEnt(3, solver=value).fit(small_mdp(), DEMOS)  # type: ignore[arg-type]


@pytest.mark.parametrize(("name", "value"), [("arithmetic", "x"), ("max_memory", -1)])
def test_parameters_unused_for_unbounded_length_are_checked_as_well(name: str, value: object):
    mdp = small_mdp(gamma=1.0)
    with raises(InvalidParameter, parameter=name, value=value):
        MaxEnt(math.inf).set_params(**{name: value}).log_partition(mdp, np.full(4, -2.0))


@pytest.mark.parametrize(
    ("bounds", "index"),
    [
        ((0.0, -1.0), 0),
        ((1.0, 1.0), 0),
        ([(-1, 1), (-1, 1), (-1, 1), (5, 2)], 3),
        ((math.nan, 1.0), 0),
        ([(-1, 1)] * 3, None),
        ((-1, 0, 1), None),
        (5.0, None),
        ("wide", None),
        (([-1] * 4, [1] * 4), None),
    ],
)
def test_bounds(bounds: object, index: int | None):
    with raises(InvalidParameter, parameter="bounds", index=index):
        MaxEnt(3, bounds).fit(small_mdp(), DEMOS)


# Parameters of the reward.


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("thetas", lambda model, mdp, theta: model.log_prob(mdp, theta, DEMOS)),
        ("thetas", lambda model, mdp, theta: model.log_partition(mdp, theta)),
        ("thetas", lambda model, mdp, theta: model.expected_features(mdp, theta)),
        ("theta", lambda model, mdp, theta: model.hessian(mdp, theta)),
        ("thetas", lambda model, mdp, theta: model.state_marginals(mdp, theta)),
        ("thetas", lambda model, mdp, theta: model.edge_marginals(mdp, theta)),
        ("theta", lambda model, mdp, theta: model.time_marginals(mdp, theta)),
        ("theta", lambda model, mdp, theta: model.sample(mdp, theta, 3)),
        ("start", lambda model, mdp, theta: model.fit(mdp, DEMOS, start=theta)),
        ("starts", lambda model, mdp, theta: model.fit_many(mdp, DEMOS, np.ones((3, 1)), theta)),
    ],
)
def test_theta_with_wrong_shape_or_non_finite_value(name: str, call: object):
    mdp, model = small_mdp(), MaxEnt(3)
    for wrong in (np.zeros(3), np.zeros((1, 5)), np.zeros((1, 1, 4))):
        with raises(InvalidParameter, parameter=name, value=wrong.shape):
            call(model, mdp, wrong)  # type: ignore[operator]
    with raises(InvalidParameter, parameter=name, value=math.nan, index=(0, 2)):
        call(model, mdp, [0.0, 0.0, math.nan, 0.0])  # type: ignore[operator]
    with raises(InvalidParameter, parameter=name):
        call(model, mdp, "steep")  # type: ignore[operator]


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("theta", lambda model, mdp, theta: model.hessian(mdp, theta)),
        ("theta", lambda model, mdp, theta: model.time_marginals(mdp, theta)),
        ("theta", lambda model, mdp, theta: model.sample(mdp, theta, 3)),
        ("theta", lambda model, mdp, theta: model.null_directions(mdp, theta)),
        ("start", lambda model, mdp, theta: model.fit(mdp, DEMOS, start=theta)),
    ],
)
@pytest.mark.parametrize("stop", ["anywhere", "terminal"])
def test_functions_of_one_theta_reject_several(stop: str, name: str, call: object):
    with raises(InvalidParameter, parameter=name, value=(2, 4)):
        call(MaxEnt(3, stop=stop), small_mdp(), np.zeros((2, 4)))  # type: ignore[operator]


@pytest.mark.parametrize("n", [0, -3, 2.0, True, None, "3"])
def test_number_of_samples(n: object):
    with raises(InvalidParameter, parameter="n", value=n):
        MaxEnt(3).sample(small_mdp(), ZERO, n)  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", [-1, "x", 1.5])
def test_seed(seed: object):
    with raises(InvalidParameter, parameter="seed", value=seed):
        MaxEnt(3).sample(small_mdp(), ZERO, 2, seed=seed)  # type: ignore[arg-type]


def test_time_marginals_need_a_finite_max_length():
    with raises(InvalidParameter, parameter="max_length", value=math.inf):
        MaxEnt(math.inf).time_marginals(small_mdp(gamma=1.0), np.full(4, -2.0))


def test_unbounded_length_needs_discount_one():
    with raises(DivergentPartition, parameter="max_length", value=math.inf):
        MaxEnt(math.inf).log_partition(small_mdp(gamma=0.9), np.full(4, -2.0))


def test_unbounded_length_has_no_stop_at_max_length():
    with raises(InvalidParameter, parameter="stop", value="terminal_or_max_length"):
        MaxEnt(math.inf, stop="terminal_or_max_length").log_partition(small_mdp(gamma=1.0), np.full(4, -2.0))


# Weights and starts.


@pytest.mark.parametrize(
    ("weights", "value", "index"),
    [
        ([1.0, -0.5, 1.0], -0.5, 1),
        ([1.0, 1.0, math.nan], math.nan, 2),
        ([math.inf, 1.0, 1.0], math.inf, 0),
        ([1.0, 1.0], (2,), None),
        (np.ones(4), (4,), None),
        (np.ones((3, 1)), (3, 1), None),
    ],
)
def test_weights_of_fit(weights: object, value: object, index: object):
    with raises(InvalidParameter, parameter="weights", value=value, index=index):
        MaxEnt(3).fit(small_mdp(), DEMOS, weights)  # type: ignore[arg-type]


def test_weights_of_fit_that_are_all_zero():
    with raises(InvalidParameter, parameter="weights"):
        MaxEnt(3).fit(small_mdp(), DEMOS, [0.0, 0.0, 0.0])


@pytest.mark.parametrize("weights", [1.0, ["a", "b", "c"], [[1.0], [1.0, 2.0], [3.0]]])
def test_weights_must_be_a_numeric_vector(weights: object):
    with raises(InvalidParameter, parameter="weights"):
        MaxEnt(3).fit(small_mdp(), DEMOS, weights)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("weights", "value", "index"),
    [(np.ones(3), (3,), None), (np.ones((2, 3)), (2, 3), None), ([[1, 1], [1, -2], [1, 1]], -2.0, (1, 1))],
)
def test_weights_of_fit_many(weights: object, value: object, index: object):
    with raises(InvalidParameter, parameter="weights", value=value, index=index):
        MaxEnt(3).fit_many(small_mdp(), DEMOS, weights)  # type: ignore[arg-type]


def test_weights_of_fit_many_with_an_empty_column():
    with raises(InvalidParameter, parameter="weights", index=1):
        MaxEnt(3).fit_many(small_mdp(), DEMOS, [[1, 0], [1, 0], [1, 0]])


@pytest.mark.parametrize("n", [1, 3])
def test_number_of_starts(n: int):
    with raises(InvalidParameter, parameter="starts", value=(n, 4)):
        MaxEnt(3).fit_many(small_mdp(), DEMOS, np.ones((3, 2)), np.zeros((n, 4)))


# Demonstrations.


def test_no_demonstrations():
    none = Demonstrations.from_lists([])
    with raises(InvalidDemos, parameter="demos"):
        MaxEnt(3).fit(small_mdp(), none)
    with raises(InvalidDemos, parameter="demos"):
        MaxEnt().fit_many(small_mdp(), DEMOS[:0], np.ones((0, 2)))
    assert MaxEnt(3).log_prob(small_mdp(), ZERO, none).shape == (0, 1)


def impossible() -> Demonstrations:
    """Step 3 of demonstration 12 goes from state 1 to state 0."""
    good = ([0, 0, 0, 1, 3], [2, 2, 0, 1])
    lists = [good] * 12 + [([0, 0, 0, 1, 0], [2, 2, 0, 1])] + [good] * 2
    return Demonstrations.from_lists([states for states, _ in lists], [actions for _, actions in lists])


@pytest.mark.parametrize("stop", ["anywhere", "terminal_or_max_length"])
@pytest.mark.parametrize("recorded", [True, False])
def test_error_names_demonstration_and_step(recorded: bool, stop: str):
    demos = impossible() if recorded else impossible().replace(actions=None)
    model = MaxEnt(5, stop=stop)
    for call in (
        lambda: model.fit(small_mdp(), demos),
        lambda: model.fit_many(small_mdp(), demos, np.ones((15, 2))),
        lambda: model.log_prob(small_mdp(), ZERO, demos),
    ):
        with raises(InvalidDemos, parameter="demos", index=(12, 3)):
            call()


def test_infeasible_steps_are_errors_even_with_zero_weight():
    with raises(InvalidDemos, parameter="demos", index=(12, 3)):
        MaxEnt(5).fit(small_mdp(), impossible(), np.arange(15) < 12)


def test_start_state_of_probability_zero():
    with raises(InvalidDemos, parameter="demos", index=(1, 0)):
        MaxEnt(3).fit(small_mdp(), Demonstrations.from_lists([[0], [3]]))


@pytest.mark.parametrize("stop", ["anywhere", "terminal", "terminal_or_max_length"])
def test_state_out_of_range(stop: str):
    demos = Demonstrations.from_lists([[2, 3], [0, 2, 99]])
    with raises(InvalidDemos, parameter="demos", index=(1, 2)):
        MaxEnt(5, stop=stop).fit(small_mdp(), demos)
    with raises(InvalidDemos, parameter="demos", index=(1, 2)):
        MaxEnt(5, stop=stop).log_prob(small_mdp(), ZERO, demos)


def test_last_state_must_be_terminal():
    demos = Demonstrations.from_lists([[0, 1, 3], [2, 3], [0, 0, 1]], [[0, 1], [1], [2, 0]])
    for model in (MaxEnt(3, stop="terminal"), MaxEnt(stop="terminal")):
        with raises(InvalidDemos, parameter="demos", index=2):
            model.fit(small_mdp(), demos)
    with raises(InvalidDemos, parameter="demos", index=2):
        MaxEnt(3, stop="terminal").log_prob(small_mdp(), ZERO, demos)
    assert np.all(np.isfinite(MaxEnt(3, stop="terminal").log_prob(small_mdp(), ZERO, demos[:2])))


def test_last_state_must_be_terminal_or_at_max_length():
    demos = Demonstrations.from_lists([[0, 1, 3], [0, 0, 1]], [[0, 1], [2, 0]])
    assert np.all(np.isfinite(MaxEnt(3, stop="terminal_or_max_length").log_prob(small_mdp(), ZERO, demos)))
    with raises(InvalidDemos, parameter="demos", index=1):
        MaxEnt(4, stop="terminal_or_max_length").log_prob(small_mdp(), ZERO, demos)


def test_no_trajectory_can_end():
    chain = MDP.from_edges([0, 1, 2], [1, 2, 3], p0=[1, 0, 0, 0])
    with raises(InvalidParameter, parameter="stop", value="terminal", index=0):
        MaxEnt(3, stop="terminal").log_partition(chain, ZERO)


def test_failed_fit_does_not_change_the_model():
    mdp, model = small_mdp(), MaxEnt()
    theta = model.fit(mdp, DEMOS)
    before = model.log_prob(mdp, theta, DEMOS)
    longer = Demonstrations.from_lists([[0, 0, 0, 0, 1, 3]], [[2, 2, 2, 0, 1]])
    with pytest.raises(InvalidParameter):
        model.fit(mdp, longer, [-1.0])
    assert model.max_length_ == 3
    np.testing.assert_array_equal(model.log_prob(mdp, theta, DEMOS), before)


def test_streamed_problem_has_no_per_demonstration_results():
    class Streamed:
        n_demos = 3

    mdp, model = small_mdp(), MaxEnt(3)
    units = Groups.from_labels(None, 3)
    problem = MaxEntProblem(model, mdp, None, units, model.path_sums(mdp), Streamed())  # type: ignore[arg-type]
    for call in (lambda: problem.log_prob(ZERO[None]), lambda: problem.moments(np.ones((3, 1))), problem.features):
        with raises(InvalidDemos, parameter="demos"):
            call()


def test_model_with_wrong_output_shapes():
    class Odd:
        def fit(self, mdp, demos, weights=None, start=None):
            return np.zeros((2, 4))

        def log_prob(self, mdp, thetas, demos):
            return np.zeros(3)

    problem = FitProblem(Odd(), small_mdp(), DEMOS, Groups.from_labels(None, 3))
    with raises(InvalidParameter, parameter="irl"):
        problem.log_prob(np.zeros((1, 4)))
    with raises(InvalidParameter, parameter="irl"):
        problem.m_step(np.ones((3, 1)), None, np.arange(1))


def test_no_feasible_start():
    with raises(DivergentPartition, parameter="bounds"):
        MaxEnt(math.inf, (1.0, 2.0)).fit(MDP.from_edges([0], [0]), Demonstrations.from_lists([[0, 0]]))
