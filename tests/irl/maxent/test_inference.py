"""What a known reward says about what comes next: examples worked by hand, extremes, and every error."""

import math

import numpy as np
import pytest

from limiirl.demos import Demonstrations
from limiirl.errors import DivergentPartition, InvalidDemos, InvalidParameter, NotFitted, NumericalError
from limiirl.irl import MaxEnt
from limiirl.irl.maxent.viterbi import Layers
from limiirl.mdp import MDP
from limiirl.worlds import RoadGrid
from tests.helpers import raises
from tests.oracles.likelihood import small_mdp

ZERO = np.zeros(4)
BEGUN = Demonstrations.from_lists([[0, 1], [0], [1]], [[0], [], []])


def two_ways(**changes: object) -> MDP:
    """0 to 3 by 1 or by 2, where it can be waited at the door; everything starts in 0, and 3 is terminal."""
    mdp = MDP.from_edges([0, 0, 1, 2, 2], [1, 2, 3, 2, 3], p0=[1, 0, 0, 0], state_features=np.eye(4))
    return mdp.replace(**changes)


# What comes next.


def test_a_prefix_is_followed_by_what_its_extensions_do():
    """Trajectories 0, 0-1, 0-2, 0-1-3, 0-2-2, 0-2-3 weigh 1, 2, 1, 2, 1, 1."""
    theta, begun = [0.0, math.log(2.0), 0.0, 0.0], Demonstrations.from_lists([[0], [0, 1], [0, 2], [0, 2, 2]])
    model = MaxEnt(3)
    np.testing.assert_allclose(
        np.exp(model.log_prob_prefix(two_ways(), theta, begun))[:, 0], [1.0, 4 / 8, 3 / 8, 1 / 8], rtol=1e-12
    )
    action, stop = model.next_actions(two_ways(), theta, begun)
    assert action.shape == (4, 1, 2)
    assert stop.shape == (4, 1)
    np.testing.assert_allclose(action[:, 0], [[4 / 8, 3 / 8], [1 / 2, 0], [1 / 3, 1 / 3], [0, 0]], atol=1e-12)
    np.testing.assert_allclose(stop[:, 0], [1 / 8, 1 / 2, 1 / 3, 1.0], rtol=1e-12)


def test_a_policy_is_given_that_one_goes_on():
    theta = [0.0, math.log(2.0), 0.0, 0.0]
    expected = [[4 / 7, 3 / 7], [1, 0], [1 / 2, 1 / 2], [0, 0]]
    np.testing.assert_allclose(
        MaxEnt(3).policy(two_ways(), theta)[[0, 1, 3]], np.array(expected)[[0, 1, 3]], rtol=1e-12
    )
    np.testing.assert_allclose(MaxEnt(3).policy(two_ways(), theta, step=1)[2], [1 / 2, 1 / 2], rtol=1e-12)
    np.testing.assert_array_equal(MaxEnt(3).policy(two_ways(), theta, step=np.int64(2)), np.zeros((4, 2)))


def test_actions_that_were_not_recorded_are_summed_over():
    mdp = small_mdp()
    recorded = Demonstrations.from_lists([[0, 1], [0, 1]], [[0], [1]])
    theta, model = [0.3, -0.2, 0.5, 0.7], MaxEnt(4)
    each = np.exp(model.log_prob_prefix(mdp, theta, recorded))
    both = np.exp(model.log_prob_prefix(mdp, theta, Demonstrations.from_lists([[0, 1]])))
    np.testing.assert_allclose(both[0], each.sum(axis=0), rtol=1e-12)


def test_what_cannot_end_has_probability_zero():
    """With stop="terminal": state 2 is a trap, and after two steps in state 0 there is no time left to reach 1."""
    mdp = MDP.from_edges([0, 0, 0, 2], [0, 1, 2, 2], p0=[0.5, 0.0, 0.5], state_features=np.eye(3))
    begun = Demonstrations.from_lists([[0], [0, 2], [2], [0, 0, 0]])
    for space, condition in (("linear", "none"), ("log", "none"), ("linear", "start"), ("auto", "start")):
        model = MaxEnt(3, stop="terminal", arithmetic=space, condition=condition)
        np.testing.assert_array_equal(
            model.log_prob_prefix(mdp, np.zeros((2, 3)), begun),
            [[0.0] * 2, [-np.inf] * 2, [-np.inf] * 2, [-np.inf] * 2],
        )
        action, stop = model.next_actions(mdp, np.zeros(3), begun)
        np.testing.assert_allclose(action[0, 0], [0.5, 0.5, 0.0], rtol=1e-12)
        np.testing.assert_array_equal(action[1:], 0.0)
        np.testing.assert_array_equal(stop, 0.0)


def test_any_length_by_start_where_one_start_is_a_trap_or_all_are():
    mdp = MDP.from_edges([0, 0, 2], [1, 2, 2], p0=[0.5, 0.0, 0.5], state_features=np.eye(3))
    begun, model = Demonstrations.from_lists([[0], [2], [0, 2]]), MaxEnt(math.inf, stop="terminal", condition="start")
    np.testing.assert_array_equal(model.log_prob_prefix(mdp, np.zeros(3), begun)[:, 0], [0.0, -np.inf, -np.inf])
    trapped = mdp.replace(p0=[0.0, 0.0, 1.0])
    np.testing.assert_array_equal(model.log_prob_prefix(trapped, np.zeros(3), begun[1:2]), [[-np.inf]])


@pytest.mark.parametrize("max_length", [1, 5, math.inf])
def test_no_prefixes(max_length: float):
    mdp, model = small_mdp(gamma=1.0), MaxEnt(max_length)
    theta = np.array([-3.0, -3.0, 0.0, 0.0])
    assert model.log_prob_prefix(mdp, np.stack([theta, theta]), BEGUN[:0]).shape == (0, 2)
    assert model.next_actions(mdp, theta, BEGUN[:0]).action.shape == (0, 1, 3)


def test_one_state_is_a_whole_trajectory():
    mdp, theta = small_mdp(), [0.3, -0.2, 0.5, 0.7]
    np.testing.assert_allclose(
        MaxEnt(1).log_prob_prefix(mdp, theta, BEGUN[1:]), MaxEnt(1).log_prob(mdp, theta, BEGUN[1:]), rtol=1e-12
    )
    np.testing.assert_array_equal(MaxEnt(1).next_actions(mdp, theta, BEGUN[1:]).stop, 1.0)


def test_an_mdp_without_moves():
    mdp = MDP.from_edges([], [], n_states=2, p0=[0.25, 0.75])
    begun = Demonstrations.from_lists([[0], [1]])
    np.testing.assert_allclose(np.exp(MaxEnt(3).log_prob_prefix(mdp, [0, 0], begun)), [[0.25], [0.75]], rtol=1e-12)
    assert MaxEnt(3).policy(mdp, [0, 0]).shape == (2, 0)
    demos, log_prob = MaxEnt(3).most_likely(mdp, [0, 0], 1, 1)
    assert demos.states.tolist() == [1]
    np.testing.assert_allclose(math.exp(log_prob), 0.75, rtol=1e-12)


@pytest.mark.parametrize("space", ["auto", "linear", "log"])
def test_weights_that_underflow_still_have_a_policy(space: str):
    """Going on from 0 has probability exp(-900): none in float64, but 2 to 1 for one of the ways if one goes on."""
    theta, model = [0.0, -900.0 + math.log(2.0), -900.0, -900.0], MaxEnt(2, arithmetic=space)
    np.testing.assert_allclose(model.policy(two_ways(), theta)[0], [2 / 3, 1 / 3], rtol=1e-10)
    begun = Demonstrations.from_lists([[0], [0, 1]])
    found = model.log_prob_prefix(two_ways(), theta, begun)[:, 0]
    np.testing.assert_allclose(found, [0.0, -900.0 + math.log(2.0)], rtol=1e-12, atol=1e-12)
    action, stop = model.next_actions(two_ways(), theta, begun)
    np.testing.assert_array_equal(action, 0.0)
    np.testing.assert_array_equal(stop, 1.0)


def test_scales_of_long_trajectories_leave_their_digits():
    """Weights of about exp(20000): the next action's probability is exp(0.5) / (1 + exp(0.5)) up to rounding."""
    mdp = MDP.from_edges([0, 0], [0, 0], n_states=1, action_features=[[1.0, 0.0], [1.0, 1.0]])
    for space in ("log", "linear"):
        model = MaxEnt(1001, arithmetic=space, max_memory=0.0)
        policy = model.policy(mdp, [20.0, 0.5], step=10)
        np.testing.assert_allclose(policy, [[1.0, math.exp(0.5)]] / np.float64(1 + math.exp(0.5)), rtol=1e-12)
        found = model.next_actions(mdp, [20.0, 0.5], Demonstrations.from_lists([[0] * 11], [[0] * 10]))
        np.testing.assert_allclose(found.action[0], policy, rtol=1e-12)


@pytest.fixture(scope="module")
def town() -> MDP:
    """States in another order than the engine's: a sweep over more than one block renumbers them."""
    return RoadGrid(6_000, 12_000, seed=1, gamma=0.999).mdp


@pytest.mark.slow
def test_a_town_step_by_step(town: MDP):
    """The probability of a prefix is that of its first state times those of its moves, each given what was before."""
    model, rng = MaxEnt(40, max_memory=0.0), np.random.default_rng(0)
    thetas = -rng.uniform(1.0, 6.0, size=(2, town.n_features))
    whole = model.sample(town, thetas[0], 20, seed=0)
    demo = max(whole, key=lambda demo: demo.states.size)
    states, actions = demo.states.tolist(), demo.actions.tolist()
    begun = Demonstrations.from_lists(
        [states[: i + 1] for i in range(len(states))], [actions[:i] for i in range(len(states))]
    )
    log_prob, (action, stop) = model.log_prob_prefix(town, thetas, begun), model.next_actions(town, thetas, begun)
    moves = np.array([action[i, :, actions[i]] for i in range(len(states) - 1)])
    assert len(states) > 10
    np.testing.assert_allclose(np.diff(log_prob, axis=0), np.log(moves), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(log_prob[-1] + np.log(stop[-1]), model.log_prob(town, thetas, begun[-1:])[0], rtol=1e-10)
    first = model.time_marginals(town, thetas[0])[0, states[0]]
    np.testing.assert_allclose(log_prob[0, 0], np.log(first), rtol=1e-9)
    policy = model.policy(town, thetas[0], step=3)
    np.testing.assert_allclose(policy[states[3]], action[3, 0] / (1 - stop[3, 0]), rtol=1e-9)
    np.testing.assert_allclose(policy.sum(axis=1), 1.0, rtol=1e-12)


def test_policies_of_a_thousand_actions():
    """A thousand actions in state 0, the first few of them each half as likely as the one before."""
    n_states = 1001
    target = np.minimum(np.arange(1000), n_states - 1)
    mdp = MDP.from_edges(np.zeros(1000, dtype=int), target, n_states, state_features=np.arange(n_states)[:, None])
    found = MaxEnt(2).policy(mdp, [-math.log(2.0)])
    assert found.shape == (n_states, 1000)
    np.testing.assert_allclose([found[0, a] for a in range(5)], 0.5 ** np.arange(1, 6), rtol=1e-12)


# The most likely trajectory.


def test_the_most_likely_trajectory_of_a_town_is_above_all_samples(town: MDP):
    model, theta = MaxEnt(60), np.full(town.n_features, -3.0)
    for demo in model.sample(town, theta, 5, seed=1):
        start, goal = int(demo.states[0]), int(demo.states[-1])
        found, log_prob = model.most_likely(town, theta, start, goal)
        sampled = Demonstrations.from_lists([demo.states], [demo.actions])
        assert log_prob >= model.log_prob(town, theta, sampled)[0, 0] - 1e-9
        np.testing.assert_allclose(model.log_prob(town, theta, found)[0, 0], log_prob, rtol=1e-10)


def test_any_length_finds_the_same_way_through_a_town(town: MDP):
    undiscounted, theta = town.replace(gamma=1.0), np.full(town.n_features, -10.0)
    longest = Layers(undiscounted, theta).heaviest(17, 4_000, 400)
    demos, _ = MaxEnt(math.inf, condition="start").most_likely(undiscounted, theta, 17, 4_000)
    assert longest is not None
    assert demos.states.size >= 30
    np.testing.assert_allclose(demos.features(undiscounted)[0] @ theta, longest.log_weight, rtol=1e-10)


def test_a_goal_may_be_passed_and_returned_to():
    """Going round brings theta each time; where it brings nothing, or a gain and a loss, the shortest is taken."""
    mdp = MDP.from_edges([0, 1], [1, 0], p0=[1, 0], state_features=[[1.0], [0.0]])
    even = mdp.replace(state_features=[[1.0], [-1.0]])
    assert MaxEnt(6).most_likely(mdp, [0.0], 0, 1)[0].states.tolist() == [0, 1]
    assert MaxEnt(6).most_likely(even, [1.0], 0, 1)[0].states.tolist() == [0, 1]
    demos, _ = MaxEnt(6).most_likely(mdp, [1.0], 0, 0)
    assert demos.states.tolist() == [0, 1, 0, 1, 0]
    demos, _ = MaxEnt(6).most_likely(mdp, [-1.0], 0, 0)
    assert demos.states.tolist() == [0]
    assert demos.actions is None


def test_discounts_are_those_of_the_step():
    """A toll of 0.45 at step 1 or of 1 at step 2: 0.45 < 1, but with discount 0.4 they cost 0.18 and 0.16."""
    mdp = MDP.from_edges(
        [0, 0, 1, 2, 3, 4], [1, 3, 2, 5, 4, 5], p0=np.eye(6)[0], state_features=np.array([[0, 0.45, 0, 0, 1, 0]]).T
    )
    assert MaxEnt(4).most_likely(mdp, [-1.0], 0, 5)[0].states.tolist() == [0, 1, 2, 5]
    assert MaxEnt(4).most_likely(mdp.replace(gamma=0.4), [-1.0], 0, 5)[0].states.tolist() == [0, 3, 4, 5]


@pytest.mark.parametrize("max_length", [3, math.inf])
def test_ties_go_to_the_lowest_edge(max_length: float):
    mdp = MDP.from_edges([0, 0, 0, 1, 1], [1, 1, 1, 2, 2], p0=[1, 0, 0], state_features=np.ones((3, 1)))
    demos, log_prob = MaxEnt(max_length).most_likely(mdp, [-3.0], 0, 2)
    assert demos.actions is not None
    assert demos.actions.tolist() == [0, 0, -1]
    np.testing.assert_allclose(log_prob, MaxEnt(max_length).log_prob(mdp, [-3.0], demos)[0, 0], rtol=1e-12)


def test_only_trajectories_of_full_length_end_in_states_that_are_not_terminal():
    mdp, model = two_ways(), MaxEnt(4, stop="terminal_or_max_length")
    assert model.most_likely(mdp, np.zeros(4), 0, 2)[0].states.tolist() == [0, 2, 2, 2]
    assert model.most_likely(mdp, np.zeros(4), 0, 3)[0].states.tolist() == [0, 1, 3]
    with pytest.raises(InvalidParameter) as caught:
        model.most_likely(mdp, np.zeros(4), 0, 1)
    assert str(caught.value) == (
        "No trajectory of exactly max_length = 4 states leads from start = 0 to goal = 1. Choose another goal, or make "
        "a model with a larger max_length."
    )


def test_given_the_start_p0_does_not_matter():
    mdp = two_ways()
    demos, log_prob = MaxEnt(3, condition="start").most_likely(mdp, np.zeros(4), 2, 3)  # of 2, 2-2, 2-3, 2-2-2, 2-2-3
    assert demos.states.tolist() == [2, 3]
    np.testing.assert_allclose(log_prob, -math.log(5.0), rtol=1e-12)
    with raises(InvalidParameter, parameter="start", value=2):
        MaxEnt(3).most_likely(mdp, np.zeros(4), 2, 3)


# Errors.


def test_a_prefix_that_is_too_long():
    for use in (MaxEnt(2).log_prob_prefix, MaxEnt(2).next_actions):
        with pytest.raises(InvalidDemos, match="demonstration 1 has 3 states, more than max_length = 2"):
            use(two_ways(), np.zeros(4), Demonstrations.from_lists([[0], [0, 2, 2]]))


def test_a_prefix_that_is_impossible_or_none():
    with raises(InvalidDemos, parameter="demos", index=(0, 0)):
        MaxEnt(3).log_prob_prefix(two_ways(), np.zeros(4), Demonstrations.from_lists([[0, 3]]))
    with raises(InvalidDemos, parameter="demos"):
        MaxEnt(3).next_actions(two_ways(), np.zeros(4), [[0, 1]])  # type: ignore[arg-type]


def test_a_length_before_any_fit():
    with raises(NotFitted, parameter="max_length"):
        MaxEnt().log_prob_prefix(two_ways(), np.zeros(4), BEGUN)


@pytest.mark.parametrize("step", [-1, 3, 1.0, True, None])
def test_steps(step: object):
    with raises(InvalidParameter, parameter="step", value=step):
        MaxEnt(3).policy(two_ways(), np.zeros(4), step)  # type: ignore[arg-type]


def test_steps_of_unbounded_length():
    with raises(InvalidParameter, parameter="step", value=-1):
        MaxEnt(math.inf).policy(two_ways(), np.full(4, -3.0), -1)


@pytest.mark.parametrize("value", [-1, 4, 1.0, True, "3"])
def test_states(value: object):
    for name, ends in (("start", (value, 3)), ("goal", (0, value))):
        with raises(InvalidParameter, parameter=name, value=value):
            MaxEnt(3).most_likely(two_ways(), np.zeros(4), *ends)  # type: ignore[arg-type]


def test_one_theta_only():
    for use in (lambda m, *a: m.policy(*a), lambda m, *a: m.most_likely(*a, 0, 1)):
        with raises(InvalidParameter, parameter="theta", value=(2, 4)):
            use(MaxEnt(3), two_ways(), np.zeros((2, 4)))


def test_a_goal_that_cannot_be_reached():
    with raises(InvalidParameter, parameter="goal", value=3):
        MaxEnt(2).most_likely(two_ways(), np.zeros(4), 0, 3)
    for stop, condition in (("anywhere", "none"), ("terminal", "start")):
        # Another terminal state, so that with stop="terminal" too there are trajectories.
        mdp = MDP.from_edges([0, 2], [1, 3], p0=[0.5, 0, 0.5, 0])
        with raises(InvalidParameter, parameter="goal", value=3):
            MaxEnt(math.inf, stop=stop, condition=condition).most_likely(mdp, np.full(4, -1.0), 0, 3)


def test_a_goal_that_must_be_terminal():
    for max_length in (3, math.inf):
        with raises(InvalidParameter, parameter="goal", value=2):
            MaxEnt(max_length, stop="terminal").most_likely(two_ways(), np.full(4, -1.0), 0, 2)


def test_a_cycle_that_pays_has_no_likeliest_trajectory_of_any_length():
    with pytest.raises(DivergentPartition, match="Use lower rewards"):
        MaxEnt(math.inf).most_likely(two_ways(), [0.0, 0.0, 0.1, 0.0], 0, 3)


def test_rewards_beyond_the_range():
    with pytest.raises(NumericalError, match="The reward of state 1 is not finite. Use smaller parameters"):
        MaxEnt(3).most_likely(two_ways(state_features=10.0 * np.eye(4)), [0.0, 1e308, 0.0, 0.0], 0, 3)
