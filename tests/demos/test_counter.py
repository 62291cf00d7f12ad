"""States that include a counter."""

import numpy as np
import pytest
from scipy import sparse

from limiirl.demos import Demonstrations, with_counter, with_history
from limiirl.errors import InvalidParameter
from limiirl.irl import MaxCausalEnt
from limiirl.mdp import MDP
from tests.helpers import raises

COUNT = pytest.mark.parametrize("count", ["steps", "visits"])


@pytest.fixture
def mdp():
    rng = np.random.default_rng(0)
    T = rng.random((4, 3, 4)) * (rng.random((4, 3, 4)) < 0.6)
    T[:, 0, 1] += 0.1
    T[3] = 0.0
    T /= np.maximum(T.sum(axis=2, keepdims=True), 1e-300)
    return MDP.from_dense(T, p0=[0.4, 0.3, 0.3, 0.0], gamma=0.8, state_features=rng.normal(size=(4, 2)))


@pytest.fixture
def demos(mdp):
    return MaxCausalEnt().sample(mdp, np.zeros(2), 30, seed=1, max_length=12)


def slow_counter(states, events, cap, count):
    """Return the counter at each state of one demonstration."""
    values, value = [], 0 if count == "visits" else cap
    for state in states:
        if count == "visits":
            value = min(cap, value + (state in events))
        else:
            value = 0 if state in events else min(cap, value + 1)
        values.append(value)
    return values


@COUNT
@pytest.mark.parametrize("cap", [1, 3])
def test_counters_of_demonstrations_equal_a_loop(mdp, demos, count, cap):
    longer, own = with_counter(mdp, demos, [0, 2], cap, count=count)
    assert longer.n_states == 4 * (cap + 1)
    for before, after in zip(demos, own, strict=True):
        state, value = np.divmod(after.states, cap + 1)
        np.testing.assert_array_equal(state, before.states)
        assert value.tolist() == slow_counter(before.states.tolist(), {0, 2}, cap, count)
        np.testing.assert_array_equal(after.actions, before.actions)


@COUNT
def test_likelihood_is_unchanged_without_rewards_of_the_counter(mdp, demos, count):
    longer, own = with_counter(mdp, demos, [0, 2], 2, count=count)
    theta = np.array([0.7, -0.4])
    whole = np.append(theta, np.zeros(3))
    expected = MaxCausalEnt().log_prob(mdp, theta, demos)
    np.testing.assert_allclose(MaxCausalEnt().log_prob(longer, whole, own), expected, rtol=1e-9)
    policy = MaxCausalEnt().policy(mdp, theta)
    np.testing.assert_allclose(MaxCausalEnt().policy(longer, whole), np.repeat(policy, 3, axis=0), rtol=0, atol=1e-9)


@COUNT
def test_features_count_events_by_the_counter_before(mdp, demos, count):
    longer, own = with_counter(mdp.replace(gamma=1.0), demos, [2], 2, count=count, scale=0.5)
    assert sparse.issparse(longer.edge_features)
    expected = np.zeros((len(demos), 3))
    for i, demo in enumerate(demos):
        values = slow_counter(demo.states.tolist(), {2}, 2, count)
        for t in np.flatnonzero(demo.states[1:] == 2):
            expected[i, values[t]] += 0.5
    np.testing.assert_array_equal(own.features(longer)[:, 2:], expected)


def test_counters_follow_histories(mdp, demos):
    pairs, own = with_history(mdp, demos, keep_starts=True)
    longer, counted = with_counter(pairs, own, [2], 2)
    state, value = np.divmod(counted.states, 3)
    np.testing.assert_array_equal(state, own.states)
    np.testing.assert_array_equal(longer.history, np.repeat(pairs.history, 3, axis=0))
    plain, other = with_counter(mdp, demos, [2], 2)
    np.testing.assert_array_equal(other.states % 3, value)
    with raises(InvalidParameter, parameter="mdp"):
        with_history(plain, other)


def test_events_may_be_names():
    mdp = MDP.from_edges([0, 1], [1, 0], state_names=["den", "pond"])
    demos = Demonstrations.from_lists([["den", "pond", "den"]])
    assert with_counter(mdp, demos, ["pond"], 3) == with_counter(mdp, demos, [1], 3)
    with raises(InvalidParameter, parameter="event_states", value="nest", index=1):
        with_counter(mdp, demos, ["den", "nest"], 3)
    with raises(InvalidParameter, parameter="event_states", value=2, index=0):
        with_counter(mdp, demos, [2], 3)
    with raises(InvalidParameter, parameter="event_states"):
        with_counter(mdp, demos, [], 3)
    with raises(InvalidParameter, parameter="cap", value=0):
        with_counter(mdp, demos, [0], 0)
    with raises(InvalidParameter, parameter="cap", value=10**7):
        with_counter(mdp, demos, [0], 10**7)
