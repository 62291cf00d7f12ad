"""Every argument of `MaxEnt` that cannot be used: one error of ours that names the place and the remedy."""

import math

import numpy as np
import pytest

from limiirl.demos import Demonstrations
from limiirl.errors import DivergentPartition, InvalidDemos, InvalidParameter
from limiirl.irl import MaxEnt
from limiirl.mdp import MDP
from tests.oracles.likelihood import small_mdp

DEMOS = Demonstrations.from_lists([[0, 1, 3], [0, 2], [1, 3]], [[0, 1], [0], [0]])
ZERO = np.zeros(4)
SHAPE = (
    r"shape \(K, 4\) or \(4,\), .*\(state\[0\], state\[1\], action\[0\], edge\[0\]\); got shape .* one row per intent"
)


# Parameters of the model.


@pytest.mark.parametrize("value", [0, -1, 2.5, True, False, "x", math.nan, -math.inf, np.float64(0.5), [3]])
def test_max_length(value: object):
    message = "max_length must be a whole number of states, at least 1, or inf, or None for the longest demonstration"
    for use in (
        lambda model: model.fit(small_mdp(), DEMOS),
        lambda model: model.log_partition(small_mdp(), ZERO),
        lambda model: model.log_prob(small_mdp(), ZERO, DEMOS),
        lambda model: model.sample(small_mdp(), ZERO, 2),
    ):
        with pytest.raises(InvalidParameter, match=message) as caught:
            use(MaxEnt(value))  # type: ignore[arg-type]
        assert str(caught.value).endswith(f"it is {value!r}.")


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("solver", "adam", "solver must be one of newton, lbfgs, bfgs; got 'adam'."),
        ("stop", "never", "stop must be one of anywhere, terminal, terminal_or_max_length; it is 'never'."),
        ("condition", "goal", "condition must be one of none, start; got 'goal'."),
        ("arithmetic", "float32", "arithmetic must be one of auto, linear, log; got 'float32'."),
        ("ridge", -0.1, "ridge must be a finite number of at least 0; got -0.1."),
        ("ridge", math.nan, "ridge must be a finite number of at least 0; got nan."),
        ("ridge", "big", "ridge must be a finite number of at least 0; got 'big'."),
        ("gtol", 0.0, "gtol must be a finite number above 0; got 0.0."),
        ("gtol", -1e-6, "gtol must be a finite number above 0; got -1e-06."),
        ("gtol", math.inf, "gtol must be a finite number above 0; got inf."),
        ("gtol", None, "gtol must be a finite number above 0; got None."),
        ("max_evaluations", 0, "max_evaluations must be an integer of at least 1; got 0."),
        ("max_evaluations", 10.0, "max_evaluations must be an integer of at least 1; got 10.0."),
        ("max_evaluations", True, "max_evaluations must be an integer of at least 1; got True."),
        ("max_memory", -1, "max_memory must be a finite number of at least 0; got -1."),
        ("max_memory", math.nan, "max_memory must be a finite number of at least 0; got nan."),
        ("max_memory", "1 GB", "max_memory must be a finite number of at least 0; got '1 GB'."),
    ],
)
def test_parameters(name: str, value: object, message: str):
    with pytest.raises(InvalidParameter) as caught:
        MaxEnt(3).set_params(**{name: value}).fit(small_mdp(), DEMOS)
    assert str(caught.value) == message


@pytest.mark.parametrize("name", ["stop", "condition", "arithmetic"])
def test_names_are_checked_without_a_fit_too(name: str):
    with pytest.raises(InvalidParameter, match=f"{name} must be one of .*; (got|it is) 'x'"):
        MaxEnt(3).set_params(**{name: "x"}).log_partition(small_mdp(), ZERO)


@pytest.mark.parametrize("value", [None, 3, ["newton"]])
def test_a_name_that_is_no_string(value: object):
    with pytest.raises(InvalidParameter, match="solver must be one of newton, lbfgs, bfgs; got "):
        MaxEnt(3, solver=value).fit(small_mdp(), DEMOS)  # type: ignore[arg-type]


@pytest.mark.parametrize(("name", "value"), [("arithmetic", "x"), ("max_memory", -1)])
def test_parameters_that_any_length_does_not_use_are_checked_as_well(name: str, value: object):
    mdp = small_mdp(gamma=1.0)
    with pytest.raises(InvalidParameter, match=name):
        MaxEnt(math.inf).set_params(**{name: value}).log_partition(mdp, np.full(4, -2.0))


@pytest.mark.parametrize(
    ("bounds", "message"),
    [
        ((0.0, -1.0), r"low < high; feature 0 \(state\[0\]\) has 0.0 and -1.0. Swap or widen them"),
        ((1.0, 1.0), r"low < high; feature 0 \(state\[0\]\) has 1.0 and 1.0"),
        ([(-1, 1), (-1, 1), (-1, 1), (5, 2)], r"low < high; feature 3 \(edge\[0\]\) has 5.0 and 2.0"),
        ((math.nan, 1.0), r"feature 0 \(state\[0\]\) has nan and 1.0"),
        ([(-1, 1)] * 3, r"bounds must be \(low, high\), an array of shape \(4, 2\), or None; it is \[\(-1, 1\)"),
        ((-1, 0, 1), r"bounds must be \(low, high\), an array of shape \(4, 2\), or None; it is \(-1, 0, 1\)"),
        (5.0, r"bounds must be \(low, high\), .*; it is 5.0"),
        ("wide", r"bounds must be \(low, high\), .*; it is 'wide'"),
        (([-1] * 4, [1] * 4), r"bounds must be \(low, high\), an array of shape \(4, 2\), or None; it is "),
    ],
)
def test_bounds(bounds: object, message: str):
    with pytest.raises(InvalidParameter, match=message):
        MaxEnt(3, bounds).fit(small_mdp(), DEMOS)


# Parameters of the reward.


@pytest.mark.parametrize(
    "ask",
    [
        lambda model, mdp, theta: model.log_prob(mdp, theta, DEMOS),
        lambda model, mdp, theta: model.log_partition(mdp, theta),
        lambda model, mdp, theta: model.expected_features(mdp, theta),
        lambda model, mdp, theta: model.hessian(mdp, theta),
        lambda model, mdp, theta: model.state_marginals(mdp, theta),
        lambda model, mdp, theta: model.edge_marginals(mdp, theta),
        lambda model, mdp, theta: model.time_marginals(mdp, theta),
        lambda model, mdp, theta: model.sample(mdp, theta, 3),
        lambda model, mdp, theta: model.fit(mdp, DEMOS, start=theta),
        lambda model, mdp, theta: model.fit_many(mdp, DEMOS, np.ones((3, 1)), theta),
    ],
)
def test_theta_of_the_wrong_shape_or_not_finite(ask: object):
    mdp, model = small_mdp(), MaxEnt(3)
    for wrong in (np.zeros(3), np.zeros((1, 5)), np.zeros((1, 1, 4))):
        with pytest.raises(InvalidParameter, match=SHAPE):
            ask(model, mdp, wrong)  # type: ignore[operator]
    with pytest.raises(InvalidParameter, match=r"row 0, column 2 \(action\[0\]\) is nan"):
        ask(model, mdp, [0.0, 0.0, math.nan, 0.0])  # type: ignore[operator]


@pytest.mark.parametrize(
    "ask",
    [
        lambda model, mdp, theta: model.hessian(mdp, theta),
        lambda model, mdp, theta: model.time_marginals(mdp, theta),
        lambda model, mdp, theta: model.sample(mdp, theta, 3),
        lambda model, mdp, theta: model.null_directions(mdp, theta),
        lambda model, mdp, theta: model.fit(mdp, DEMOS, start=theta),
    ],
)
@pytest.mark.parametrize("stop", ["anywhere", "terminal"])
def test_functions_of_one_theta_refuse_several(stop: str, ask: object):
    with pytest.raises(InvalidParameter, match="One parameter vector is wanted here; there are 2. Call it for each"):
        ask(MaxEnt(3, stop=stop), small_mdp(), np.zeros((2, 4)))  # type: ignore[operator]


@pytest.mark.parametrize("n", [0, -3, 2.0, True, None, "3"])
def test_number_of_samples(n: object):
    with pytest.raises(InvalidParameter, match=r"n must be an integer of at least 1; got "):
        MaxEnt(3).sample(small_mdp(), ZERO, n)  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", [-1, "x", 1.5])
def test_seed(seed: object):
    with pytest.raises(InvalidParameter, match="seed must be a nonnegative integer, a Generator or None"):
        MaxEnt(3).sample(small_mdp(), ZERO, 2, seed=seed)  # type: ignore[arg-type]


def test_time_marginals_need_a_last_step():
    with pytest.raises(
        InvalidParameter, match="time_marginals needs a last step; max_length is inf. .* finite max_length"
    ):
        MaxEnt(math.inf).time_marginals(small_mdp(gamma=1.0), np.full(4, -2.0))


def test_any_length_needs_discount_one():
    with pytest.raises(
        DivergentPartition, match=r"needs discount 1; it is 0.9.* finite max_length, or use mdp.replace\(gamma=1.0\)"
    ):
        MaxEnt(math.inf).log_partition(small_mdp(gamma=0.9), np.full(4, -2.0))


def test_any_length_has_no_last_step_to_stop_at():
    with pytest.raises(
        InvalidParameter, match="'anywhere' or 'terminal' with max_length=inf; it is 'terminal_or_max_length'"
    ):
        MaxEnt(math.inf, stop="terminal_or_max_length").log_partition(small_mdp(gamma=1.0), np.full(4, -2.0))


# Weights and starts.


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1.0, -0.5, 1.0], "finite and not negative; demonstration 1, column 0 has -0.5"),
        ([1.0, 1.0, math.nan], "finite and not negative; demonstration 2, column 0 has nan"),
        ([math.inf, 1.0, 1.0], "finite and not negative; demonstration 0, column 0 has inf"),
        ([1.0, 1.0], r"weights must have the shape \(3,\), one for each demonstration; it is \(2,\)\."),
        (np.ones(4), r"weights must have the shape \(3,\), one for each demonstration; it is \(4,\)\."),
        (np.ones((3, 1)), r"weights must have the shape \(3,\), one for each demonstration; it is \(3, 1\)\."),
        ([0.0, 0.0, 0.0], "must not all be zero"),
    ],
)
def test_weights_of_fit(weights: object, message: str):
    with pytest.raises(InvalidParameter, match=message):
        MaxEnt(3).fit(small_mdp(), DEMOS, weights)  # type: ignore[arg-type]


@pytest.mark.parametrize("weights", [1.0, ["a", "b", "c"], [[1.0], [1.0, 2.0], [3.0]]])
def test_weights_that_are_no_vector_of_numbers(weights: object):
    with pytest.raises(InvalidParameter, match="weights must"):
        MaxEnt(3).fit(small_mdp(), DEMOS, weights)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (np.ones(3), r"weights must have the shape \(3, K\), a row for each demonstration; it is \(3,\)\."),
        (np.ones((2, 3)), r"weights must have the shape \(3, K\), a row for each demonstration; it is \(2, 3\)\."),
        ([[1, 1], [1, -2], [1, 1]], "demonstration 1, column 1 has -2.0"),
        ([[1, 0], [1, 0], [1, 0]], "must not all be zero; those of column 1 are. Leave that intent out"),
    ],
)
def test_weights_of_fit_many(weights: object, message: str):
    with pytest.raises(InvalidParameter, match=message):
        MaxEnt(3).fit_many(small_mdp(), DEMOS, weights)  # type: ignore[arg-type]


@pytest.mark.parametrize("n", [1, 3])
def test_number_of_starts(n: int):
    with pytest.raises(InvalidParameter, match=f"one start for each of 2 columns of weights; there are {n}"):
        MaxEnt(3).fit_many(small_mdp(), DEMOS, np.ones((3, 2)), np.zeros((n, 4)))


def test_fit_has_one_start():
    with pytest.raises(InvalidParameter, match="One parameter vector is wanted here; there are 2. Call it for each"):
        MaxEnt(3).fit(small_mdp(), DEMOS, start=np.zeros((2, 4)))


# Demonstrations.


def test_no_demonstrations():
    none = Demonstrations.from_lists([])
    with pytest.raises(InvalidDemos, match="at least one demonstration; there are none. Check the filter or the file"):
        MaxEnt(3).fit(small_mdp(), none)
    with pytest.raises(InvalidDemos, match="at least one demonstration"):
        MaxEnt().fit_many(small_mdp(), DEMOS[:0], np.ones((0, 2)))
    assert MaxEnt(3).log_prob(small_mdp(), ZERO, none).shape == (0, 1)


def impossible() -> Demonstrations:
    """Step 3 of demonstration 12 goes from state 1 to state 0."""
    good = ([0, 0, 0, 1, 3], [2, 2, 0, 1])
    lists = [good] * 12 + [([0, 0, 0, 1, 0], [2, 2, 0, 1])] + [good] * 2
    return Demonstrations.from_lists([states for states, _ in lists], [actions for _, actions in lists])


@pytest.mark.parametrize("stop", ["anywhere", "terminal_or_max_length"])
@pytest.mark.parametrize("recorded", [True, False])
def test_an_infeasible_step_in_demonstration_12_at_step_3(recorded: bool, stop: str):
    demos = impossible() if recorded else impossible().replace(actions=None)
    reason = (
        r"action 1 in state 1 cannot lead to state 0 \(it leads to 3\)"
        if recorded
        else r"no action in state 1 leads to state 0 \(they lead to 2, 3\)"
    )
    message = rf"demonstration 12, step 3: {reason}. Fix the recording, or add the transition to the MDP"
    model = MaxEnt(5, stop=stop)
    for use in (
        lambda: model.fit(small_mdp(), demos),
        lambda: model.fit_many(small_mdp(), demos, np.ones((15, 2))),
        lambda: model.log_prob(small_mdp(), ZERO, demos),
    ):
        with pytest.raises(InvalidDemos, match=message):
            use()


def test_a_zero_weight_does_not_excuse_an_infeasible_step():
    with pytest.raises(InvalidDemos, match="demonstration 12, step 3"):
        MaxEnt(5).fit(small_mdp(), impossible(), np.arange(15) < 12)


def test_a_start_without_probability():
    with pytest.raises(InvalidDemos, match="demonstration 1, step 0: it starts in state 3, where p0 is 0"):
        MaxEnt(3).fit(small_mdp(), Demonstrations.from_lists([[0], [3]]))


@pytest.mark.parametrize("stop", ["anywhere", "terminal", "terminal_or_max_length"])
def test_a_state_that_does_not_exist(stop: str):
    demos = Demonstrations.from_lists([[2, 3], [0, 2, 99]])
    with pytest.raises(InvalidDemos, match="demonstration 1, step 2: state 99 does not exist in an MDP of 4 states"):
        MaxEnt(5, stop=stop).fit(small_mdp(), demos)
    with pytest.raises(InvalidDemos, match="demonstration 1, step 2: state 99 does not exist in an MDP of 4 states"):
        MaxEnt(5, stop=stop).log_prob(small_mdp(), ZERO, demos)


def test_an_end_that_is_not_terminal():
    demos = Demonstrations.from_lists([[0, 1, 3], [2, 3], [0, 0, 1]], [[0, 1], [1], [2, 0]])
    message = (
        r"demonstration 2, step 2: it ends in state 1, which is not terminal, but the model has stop='terminal'. "
        r"Use stop='anywhere', or mark the state as terminal"
    )
    for model in (MaxEnt(3, stop="terminal"), MaxEnt(stop="terminal")):
        with pytest.raises(InvalidDemos, match=message):
            model.fit(small_mdp(), demos)
    with pytest.raises(InvalidDemos, match=message):
        MaxEnt(3, stop="terminal").log_prob(small_mdp(), ZERO, demos)
    assert np.all(np.isfinite(MaxEnt(3, stop="terminal").log_prob(small_mdp(), ZERO, demos[:2])))


def test_an_end_that_is_neither_terminal_nor_the_last_step():
    demos = Demonstrations.from_lists([[0, 1, 3], [0, 0, 1]], [[0, 1], [2, 0]])
    assert np.all(np.isfinite(MaxEnt(3, stop="terminal_or_max_length").log_prob(small_mdp(), ZERO, demos)))
    with pytest.raises(
        InvalidDemos,
        match="demonstration 1, step 2: it ends in state 1, which is not terminal, .*'terminal_or_max_length'",
    ):
        MaxEnt(4, stop="terminal_or_max_length").log_prob(small_mdp(), ZERO, demos)


def test_no_trajectory_ends_where_the_model_lets_it():
    chain = MDP.from_edges([0, 1, 2], [1, 2, 3], p0=[1, 0, 0, 0])
    with pytest.raises(InvalidParameter, match="No trajectory of at most 3 states from state 0 .* Raise max_length"):
        MaxEnt(3, stop="terminal").log_partition(chain, ZERO)


def test_a_fit_that_fails_leaves_the_model_as_it_was():
    mdp, model = small_mdp(), MaxEnt()
    theta = model.fit(mdp, DEMOS)
    before = model.log_prob(mdp, theta, DEMOS)
    longer = Demonstrations.from_lists([[0, 0, 0, 0, 1, 3]], [[2, 2, 2, 0, 1]])
    with pytest.raises(InvalidParameter):
        model.fit(mdp, longer, [-1.0])
    assert model.max_length_ == 3
    np.testing.assert_array_equal(model.log_prob(mdp, theta, DEMOS), before)
