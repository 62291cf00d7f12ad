"""`MaxEnt` inference: prefixes, policies and most likely trajectories in closed form, extreme values and errors."""

import math

import numpy as np
import pytest

from limiirl.demos import Demonstrations
from limiirl.errors import DivergentPartition, InvalidDemos, InvalidParameter, NotFitted, NumericalError
from limiirl.irl import MaxEnt
from limiirl.irl.maxent.trajectories import Layers
from limiirl.mdp import MDP
from limiirl.worlds import RoadGrid
from tests.helpers import raises
from tests.oracles.likelihood import small_mdp

ZERO = np.zeros(4)
PREFIXES = Demonstrations.from_lists([[0, 1], [0], [1]], [[0], [], []])


def two_routes(**changes: object) -> MDP:
    """Return an MDP with routes 0-1-3 and 0-2-3, a self-loop at 2, start state 0 and terminal state 3."""
    mdp = MDP.from_edges([0, 0, 1, 2, 2], [1, 2, 3, 2, 3], p0=[1, 0, 0, 0], state_features=np.eye(4))
    return mdp.replace(**changes)


# Prefixes and policies.


def test_prefix_probabilities_sum_over_extensions():
    """Trajectories 0, 0-1, 0-2, 0-1-3, 0-2-2, 0-2-3 have weights 1, 2, 1, 2, 1, 1."""
    theta, prefixes = [0.0, math.log(2.0), 0.0, 0.0], Demonstrations.from_lists([[0], [0, 1], [0, 2], [0, 2, 2]])
    model = MaxEnt(3)
    np.testing.assert_allclose(
        np.exp(model.log_prob_prefix(two_routes(), theta, prefixes))[:, 0], [1.0, 4 / 8, 3 / 8, 1 / 8], rtol=1e-12
    )
    action, stop = model.next_actions(two_routes(), theta, prefixes)
    assert action.shape == (4, 1, 2)
    assert stop.shape == (4, 1)
    np.testing.assert_allclose(action[:, 0], [[4 / 8, 3 / 8], [1 / 2, 0], [1 / 3, 1 / 3], [0, 0]], atol=1e-12)
    np.testing.assert_allclose(stop[:, 0], [1 / 8, 1 / 2, 1 / 3, 1.0], rtol=1e-12)


def test_policy_is_conditional_on_continuing():
    theta = [0.0, math.log(2.0), 0.0, 0.0]
    expected = [[4 / 7, 3 / 7], [1, 0], [1 / 2, 1 / 2], [0, 0]]
    np.testing.assert_allclose(
        MaxEnt(3).policy(two_routes(), theta)[[0, 1, 3]], np.array(expected)[[0, 1, 3]], rtol=1e-12
    )
    np.testing.assert_allclose(MaxEnt(3).policy(two_routes(), theta, step=1)[2], [1 / 2, 1 / 2], rtol=1e-12)
    np.testing.assert_array_equal(MaxEnt(3).policy(two_routes(), theta, step=np.int64(2)), np.zeros((4, 2)))


def test_unrecorded_actions_are_summed_over():
    mdp = small_mdp()
    recorded = Demonstrations.from_lists([[0, 1], [0, 1]], [[0], [1]])
    theta, model = [0.3, -0.2, 0.5, 0.7], MaxEnt(4)
    each = np.exp(model.log_prob_prefix(mdp, theta, recorded))
    both = np.exp(model.log_prob_prefix(mdp, theta, Demonstrations.from_lists([[0, 1]])))
    np.testing.assert_allclose(both[0], each.sum(axis=0), rtol=1e-12)


def test_prefixes_that_cannot_end_have_probability_zero():
    """With stop="terminal", state 2 is a trap, and 0-0-0 is too long to reach state 1."""
    mdp = MDP.from_edges([0, 0, 0, 2], [0, 1, 2, 2], p0=[0.5, 0.0, 0.5], state_features=np.eye(3))
    prefixes = Demonstrations.from_lists([[0], [0, 2], [2], [0, 0, 0]])
    for arithmetic, condition in (("linear", "none"), ("log", "none"), ("linear", "start"), ("auto", "start")):
        model = MaxEnt(3, stop="terminal", arithmetic=arithmetic, condition=condition)
        np.testing.assert_array_equal(
            model.log_prob_prefix(mdp, np.zeros((2, 3)), prefixes),
            [[0.0] * 2, [-np.inf] * 2, [-np.inf] * 2, [-np.inf] * 2],
        )
        action, stop = model.next_actions(mdp, np.zeros(3), prefixes)
        np.testing.assert_allclose(action[0, 0], [0.5, 0.5, 0.0], rtol=1e-12)
        np.testing.assert_array_equal(action[1:], 0.0)
        np.testing.assert_array_equal(stop, 0.0)


def test_unbounded_length_by_start_with_traps():
    mdp = MDP.from_edges([0, 0, 2], [1, 2, 2], p0=[0.5, 0.0, 0.5], state_features=np.eye(3))
    prefixes, model = (
        Demonstrations.from_lists([[0], [2], [0, 2]]),
        MaxEnt(math.inf, stop="terminal", condition="start"),
    )
    np.testing.assert_array_equal(model.log_prob_prefix(mdp, np.zeros(3), prefixes)[:, 0], [0.0, -np.inf, -np.inf])
    trapped = mdp.replace(p0=[0.0, 0.0, 1.0])
    np.testing.assert_array_equal(model.log_prob_prefix(trapped, np.zeros(3), prefixes[1:2]), [[-np.inf]])


@pytest.mark.parametrize("max_length", [1, 5, math.inf])
def test_empty_prefixes(max_length: float):
    mdp, model = small_mdp(gamma=1.0), MaxEnt(max_length)
    theta = np.array([-3.0, -3.0, 0.0, 0.0])
    assert model.log_prob_prefix(mdp, np.stack([theta, theta]), PREFIXES[:0]).shape == (0, 2)
    assert model.next_actions(mdp, theta, PREFIXES[:0]).action.shape == (0, 1, 3)


def test_max_length_one():
    mdp, theta = small_mdp(), [0.3, -0.2, 0.5, 0.7]
    np.testing.assert_allclose(
        MaxEnt(1).log_prob_prefix(mdp, theta, PREFIXES[1:]), MaxEnt(1).log_prob(mdp, theta, PREFIXES[1:]), rtol=1e-12
    )
    np.testing.assert_array_equal(MaxEnt(1).next_actions(mdp, theta, PREFIXES[1:]).stop, 1.0)


def test_mdp_without_edges():
    mdp = MDP.from_edges([], [], n_states=2, p0=[0.25, 0.75])
    prefixes = Demonstrations.from_lists([[0], [1]])
    np.testing.assert_allclose(np.exp(MaxEnt(3).log_prob_prefix(mdp, [0, 0], prefixes)), [[0.25], [0.75]], rtol=1e-12)
    assert MaxEnt(3).policy(mdp, [0, 0]).shape == (2, 0)
    demos, log_prob = MaxEnt(3).most_likely(mdp, [0, 0], 1, 1)
    assert demos.states.tolist() == [1]
    np.testing.assert_allclose(math.exp(log_prob), 0.75, rtol=1e-12)


@pytest.mark.parametrize("arithmetic", ["auto", "linear", "log"])
def test_policy_is_accurate_where_weights_underflow(arithmetic: str):
    """Continuing from 0 has probability exp(-900), which underflows; the conditional policy is still 2 to 1."""
    theta, model = [0.0, -900.0 + math.log(2.0), -900.0, -900.0], MaxEnt(2, arithmetic=arithmetic)
    np.testing.assert_allclose(model.policy(two_routes(), theta)[0], [2 / 3, 1 / 3], rtol=1e-10)
    prefixes = Demonstrations.from_lists([[0], [0, 1]])
    log_prob = model.log_prob_prefix(two_routes(), theta, prefixes)[:, 0]
    np.testing.assert_allclose(log_prob, [0.0, -900.0 + math.log(2.0)], rtol=1e-12, atol=1e-12)
    action, stop = model.next_actions(two_routes(), theta, prefixes)
    np.testing.assert_array_equal(action, 0.0)
    np.testing.assert_array_equal(stop, 1.0)


def test_policy_is_accurate_for_long_trajectories():
    """With weights of about exp(20000), the probability of the next action is exp(0.5) / (1 + exp(0.5))."""
    mdp = MDP.from_edges([0, 0], [0, 0], n_states=1, action_features=[[1.0, 0.0], [1.0, 1.0]])
    for arithmetic in ("log", "linear"):
        model = MaxEnt(1001, arithmetic=arithmetic, max_memory=0.0)
        policy = model.policy(mdp, [20.0, 0.5], step=10)
        np.testing.assert_allclose(policy, [[1.0, math.exp(0.5)]] / np.float64(1 + math.exp(0.5)), rtol=1e-12)
        following = model.next_actions(mdp, [20.0, 0.5], Demonstrations.from_lists([[0] * 11], [[0] * 10]))
        np.testing.assert_allclose(following.action[0], policy, rtol=1e-12)


@pytest.fixture(scope="module")
def town() -> MDP:
    """Return a road network of several blocks, whose states the path sums renumber."""
    return RoadGrid(6_000, 12_000, seed=1, gamma=0.999).mdp


@pytest.mark.slow
def test_prefix_probabilities_are_products_of_steps(town: MDP):
    """The probability of a prefix is the product of the probabilities of its first state and its steps."""
    model, rng = MaxEnt(40, max_memory=0.0), np.random.default_rng(0)
    thetas = -rng.uniform(1.0, 6.0, size=(2, town.n_features))
    whole = model.sample(town, thetas[0], 20, seed=0)
    demo = max(whole, key=lambda demo: demo.states.size)
    states, actions = demo.states.tolist(), demo.actions.tolist()
    prefixes = Demonstrations.from_lists(
        [states[: i + 1] for i in range(len(states))], [actions[:i] for i in range(len(states))]
    )
    log_prob, (action, stop) = model.log_prob_prefix(town, thetas, prefixes), model.next_actions(town, thetas, prefixes)
    steps = np.array([action[i, :, actions[i]] for i in range(len(states) - 1)])
    assert len(states) > 10
    np.testing.assert_allclose(np.diff(log_prob, axis=0), np.log(steps), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(
        log_prob[-1] + np.log(stop[-1]), model.log_prob(town, thetas, prefixes[-1:])[0], rtol=1e-10
    )
    first = model.time_marginals(town, thetas[0])[0, states[0]]
    np.testing.assert_allclose(log_prob[0, 0], np.log(first), rtol=1e-9)
    policy = model.policy(town, thetas[0], step=3)
    np.testing.assert_allclose(policy[states[3]], action[3, 0] / (1 - stop[3, 0]), rtol=1e-9)
    np.testing.assert_allclose(policy.sum(axis=1), 1.0, rtol=1e-12)


def test_policies_of_a_thousand_actions():
    """State 0 has a thousand actions; each of the first few is half as likely as the previous one."""
    n_states = 1001
    target = np.minimum(np.arange(1000), n_states - 1)
    mdp = MDP.from_edges(np.zeros(1000, dtype=int), target, n_states, state_features=np.arange(n_states)[:, None])
    policy = MaxEnt(2).policy(mdp, [-math.log(2.0)])
    assert policy.shape == (n_states, 1000)
    np.testing.assert_allclose([policy[0, a] for a in range(5)], 0.5 ** np.arange(1, 6), rtol=1e-12)


# The most likely trajectory.


def test_most_likely_trajectory_is_at_least_as_likely_as_samples(town: MDP):
    model, theta = MaxEnt(60), np.full(town.n_features, -3.0)
    for demo in model.sample(town, theta, 5, seed=1):
        start, goal = int(demo.states[0]), int(demo.states[-1])
        best, log_prob = model.most_likely(town, theta, start, goal)
        sampled = Demonstrations.from_lists([demo.states], [demo.actions])
        assert log_prob >= model.log_prob(town, theta, sampled)[0, 0] - 1e-9
        np.testing.assert_allclose(model.log_prob(town, theta, best)[0, 0], log_prob, rtol=1e-10)


def test_most_likely_trajectory_of_unbounded_length(town: MDP):
    undiscounted, theta = town.replace(gamma=1.0), np.full(town.n_features, -10.0)
    longest = Layers(undiscounted, theta).heaviest(17, 4_000, 400)
    demos, _ = MaxEnt(math.inf, condition="start").most_likely(undiscounted, theta, 17, 4_000)
    assert longest is not None
    assert demos.states.size >= 30
    np.testing.assert_allclose(demos.features(undiscounted)[0] @ theta, longest.log_weight, rtol=1e-10)


def test_trajectories_may_pass_their_goal():
    """A round has reward theta; if its total reward is zero, the shortest trajectory is returned."""
    mdp = MDP.from_edges([0, 1], [1, 0], p0=[1, 0], state_features=[[1.0], [0.0]])
    even = mdp.replace(state_features=[[1.0], [-1.0]])
    assert MaxEnt(6).most_likely(mdp, [0.0], 0, 1)[0].states.tolist() == [0, 1]
    assert MaxEnt(6).most_likely(even, [1.0], 0, 1)[0].states.tolist() == [0, 1]
    demos, _ = MaxEnt(6).most_likely(mdp, [1.0], 0, 0)
    assert demos.states.tolist() == [0, 1, 0, 1, 0]
    demos, _ = MaxEnt(6).most_likely(mdp, [-1.0], 0, 0)
    assert demos.states.tolist() == [0]
    assert demos.actions is None


def test_rewards_are_discounted_by_step():
    """Costs of 0.45 at step 1 and of 1 at step 2 become 0.18 and 0.16 with discount 0.4."""
    mdp = MDP.from_edges(
        [0, 0, 1, 2, 3, 4], [1, 3, 2, 5, 4, 5], p0=np.eye(6)[0], state_features=np.array([[0, 0.45, 0, 0, 1, 0]]).T
    )
    assert MaxEnt(4).most_likely(mdp, [-1.0], 0, 5)[0].states.tolist() == [0, 1, 2, 5]
    assert MaxEnt(4).most_likely(mdp.replace(gamma=0.4), [-1.0], 0, 5)[0].states.tolist() == [0, 3, 4, 5]


@pytest.mark.parametrize("max_length", [3, math.inf])
def test_ties_are_resolved_by_lowest_edge(max_length: float):
    mdp = MDP.from_edges([0, 0, 0, 1, 1], [1, 1, 1, 2, 2], p0=[1, 0, 0], state_features=np.ones((3, 1)))
    demos, log_prob = MaxEnt(max_length).most_likely(mdp, [-3.0], 0, 2)
    assert demos.actions is not None
    assert demos.actions.tolist() == [0, 0, -1]
    np.testing.assert_allclose(log_prob, MaxEnt(max_length).log_prob(mdp, [-3.0], demos)[0, 0], rtol=1e-12)


def test_trajectories_of_full_length_may_end_in_any_state():
    mdp, model = two_routes(), MaxEnt(4, stop="terminal_or_max_length")
    assert model.most_likely(mdp, np.zeros(4), 0, 2)[0].states.tolist() == [0, 2, 2, 2]
    assert model.most_likely(mdp, np.zeros(4), 0, 3)[0].states.tolist() == [0, 1, 3]
    with raises(InvalidParameter, parameter="goal", value=1):
        model.most_likely(mdp, np.zeros(4), 0, 1)


def test_conditioned_on_the_start_p0_has_no_effect():
    mdp = two_routes()
    demos, log_prob = MaxEnt(3, condition="start").most_likely(mdp, np.zeros(4), 2, 3)  # of 2, 2-2, 2-3, 2-2-2, 2-2-3
    assert demos.states.tolist() == [2, 3]
    np.testing.assert_allclose(log_prob, -math.log(5.0), rtol=1e-12)
    with raises(InvalidParameter, parameter="start", value=2):
        MaxEnt(3).most_likely(mdp, np.zeros(4), 2, 3)


# Errors.


def test_prefix_longer_than_max_length():
    for call in (MaxEnt(2).log_prob_prefix, MaxEnt(2).next_actions):
        with raises(InvalidDemos, parameter="demos", value=3, index=1):
            call(two_routes(), np.zeros(4), Demonstrations.from_lists([[0], [0, 2, 2]]))


def test_invalid_prefixes():
    with raises(InvalidDemos, parameter="demos", index=(0, 0)):
        MaxEnt(3).log_prob_prefix(two_routes(), np.zeros(4), Demonstrations.from_lists([[0, 3]]))
    with raises(InvalidDemos, parameter="demos"):
        MaxEnt(3).next_actions(two_routes(), np.zeros(4), [[0, 1]])  # type: ignore[arg-type]


def test_max_length_before_fit():
    with raises(NotFitted, parameter="max_length"):
        MaxEnt().log_prob_prefix(two_routes(), np.zeros(4), PREFIXES)


@pytest.mark.parametrize("step", [-1, 3, 1.0, True, None])
def test_invalid_steps(step: object):
    with raises(InvalidParameter, parameter="step", value=step):
        MaxEnt(3).policy(two_routes(), np.zeros(4), step)  # type: ignore[arg-type]


def test_invalid_steps_with_unbounded_length():
    with raises(InvalidParameter, parameter="step", value=-1):
        MaxEnt(math.inf).policy(two_routes(), np.full(4, -3.0), -1)


@pytest.mark.parametrize("value", [-1, 4, 1.0, True, "3"])
def test_invalid_states(value: object):
    for name, ends in (("start", (value, 3)), ("goal", (0, value))):
        with raises(InvalidParameter, parameter=name, value=value):
            MaxEnt(3).most_likely(two_routes(), np.zeros(4), *ends)  # type: ignore[arg-type]


def test_one_theta_only():
    for call in (lambda m, *a: m.policy(*a), lambda m, *a: m.most_likely(*a, 0, 1)):
        with raises(InvalidParameter, parameter="theta", value=(2, 4)):
            call(MaxEnt(3), two_routes(), np.zeros((2, 4)))


def test_unreachable_goal():
    with raises(InvalidParameter, parameter="goal", value=3):
        MaxEnt(2).most_likely(two_routes(), np.zeros(4), 0, 3)
    for stop, condition in (("anywhere", "none"), ("terminal", "start")):
        # Another terminal state, so that with stop="terminal" too there are trajectories.
        mdp = MDP.from_edges([0, 2], [1, 3], p0=[0.5, 0, 0.5, 0])
        with raises(InvalidParameter, parameter="goal", value=3):
            MaxEnt(math.inf, stop=stop, condition=condition).most_likely(mdp, np.full(4, -1.0), 0, 3)


def test_goal_must_be_terminal():
    for max_length in (3, math.inf):
        with raises(InvalidParameter, parameter="goal", value=2):
            MaxEnt(max_length, stop="terminal").most_likely(two_routes(), np.full(4, -1.0), 0, 2)


def test_unbounded_length_with_a_cycle_of_positive_reward():
    with raises(DivergentPartition, parameter="thetas"):
        MaxEnt(math.inf).most_likely(two_routes(), [0.0, 0.0, 0.1, 0.0], 0, 3)


def test_rewards_beyond_the_range():
    with raises(NumericalError, parameter="thetas", index=1):
        MaxEnt(3).most_likely(two_routes(state_features=10.0 * np.eye(4)), [0.0, 1e308, 0.0, 0.0], 0, 3)
