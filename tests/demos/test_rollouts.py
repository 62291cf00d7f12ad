"""Rollouts in Gymnasium environments: every step feasible in the environment's MDP, seeds, policies of each form."""

import gymnasium
import numpy as np
import pytest

from limiirl.demos import Demonstrations
from limiirl.errors import InvalidDemos, InvalidParameter
from limiirl.mdp import MDP
from tests.helpers import raises


def lake(slippery=True):
    return gymnasium.make("FrozenLake-v1", is_slippery=slippery)


def anything(observation, rng):
    return int(rng.integers(4))


@pytest.mark.parametrize("slippery", [True, False])
def test_every_step_on_the_lake_is_an_edge_of_its_mdp(slippery):
    env = lake(slippery)
    mdp = MDP.from_gymnasium(env)
    demos = Demonstrations.from_rollouts(env, anything, n=200, seed=3)
    steps = demos.steps(mdp)
    assert len(demos) == 200
    assert steps.n_transitions == demos.n_transitions > 500
    assert np.all(steps.edge >= 0)
    np.testing.assert_array_equal(mdp.act[steps.edge], demos.actions[demos.actions >= 0])
    # Holes and the goal end an episode, and nothing else does within so few steps.
    assert np.all(mdp.terminal[demos.last_states])
    assert np.all(np.isfinite(demos.log_q(mdp)))
    # On the ice the same walks are feasible without their actions too, and no less probable.
    without = demos.replace(actions=None)
    assert np.all(without.log_q(mdp) >= demos.log_q(mdp) - 1e-12)


def test_a_seed_fixes_the_episodes_and_another_changes_them():
    one = Demonstrations.from_rollouts(lake(), anything, n=20, seed=5)
    assert Demonstrations.from_rollouts(lake(), anything, n=20, seed=5) == one
    assert Demonstrations.from_rollouts(lake(), anything, n=20, seed=6) != one
    # Even a policy without chance meets different luck in each episode.
    right = Demonstrations.from_rollouts(lake(), np.full(16, 2), n=20, seed=5)
    assert len({tuple(demo.states) for demo in right}) > 5


def test_the_policy_does_not_share_the_environments_stream():
    # FrozenLake draws its slips from env.unwrapped.np_random; a policy given the same stream could foresee them.
    draws = []
    Demonstrations.from_rollouts(lake(), lambda s, rng: draws.append(rng.random()) or 0, n=1, seed=8)
    of_environment, _ = gymnasium.utils.seeding.np_random(8)
    assert set(draws).isdisjoint(of_environment.random(1000))


def test_a_policy_of_actions_is_followed():
    rng = np.random.default_rng(0)
    policy = rng.integers(4, size=16)
    demos = Demonstrations.from_rollouts(lake(), policy, n=50, seed=1)
    acted = demos.actions >= 0
    np.testing.assert_array_equal(demos.actions[acted], policy[demos.states[acted]])


def test_a_policy_of_probabilities_is_followed():
    policy = np.zeros((16, 4))
    policy[:, 1], policy[:, 2] = 0.25, 0.75
    policy[5] = policy[15] = 0  # a hole and the goal, where nothing is chosen
    demos = Demonstrations.from_rollouts(lake(), policy, n=400, seed=2)
    taken = demos.actions[demos.actions >= 0]
    assert set(taken.tolist()) == {1, 2}
    # The share of action 2 has standard error sqrt(0.25 * 0.75 / n); five of them err once in 1.7 million runs.
    assert abs(np.mean(taken == 2) - 0.75) < 5 * np.sqrt(0.1875 / taken.size)


def test_certain_probabilities_give_the_same_episodes_as_actions():
    policy = np.random.default_rng(4).integers(4, size=16)
    one_hot = np.eye(4)[policy]
    assert Demonstrations.from_rollouts(lake(), one_hot, 30, 7) == Demonstrations.from_rollouts(lake(), policy, 30, 7)


@pytest.mark.parametrize("longest", [0, 1, 5])
def test_max_steps_counts_actions(longest):
    demos = Demonstrations.from_rollouts(lake(slippery=False), np.zeros(16, dtype=int), n=3, max_steps=longest)
    np.testing.assert_array_equal(demos.lengths, [longest + 1] * 3)
    np.testing.assert_array_equal(demos.states, 0)


def test_truncation_by_the_environment_ends_an_episode():
    env = gymnasium.make("FrozenLake-v1", is_slippery=False, max_episode_steps=7)
    demos = Demonstrations.from_rollouts(env, np.zeros(16, dtype=int), n=2)
    np.testing.assert_array_equal(demos.lengths, [8, 8])


class Countdown(gymnasium.Env):
    """Observations 10, 11, 12 and actions 3, 4; action 4 moves on, 12 is the end."""

    observation_space = gymnasium.spaces.Discrete(3, start=10)
    action_space = gymnasium.spaces.Discrete(2, start=3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at = 10
        return self.at, {}

    def step(self, action):
        if action not in (3, 4):
            raise ValueError(f"no action {action}")
        self.at += action - 3
        return self.at, 0.0, self.at == 12, False, {}


def test_spaces_that_start_elsewhere_are_counted_from_0():
    expected = Demonstrations.from_lists([[0, 1, 2]], [[1, 1]])
    assert Demonstrations.from_rollouts(Countdown(), lambda observation, rng: 4, n=1) == expected
    assert Demonstrations.from_rollouts(Countdown(), [1, 1, 0], n=1) == expected
    assert Demonstrations.from_rollouts(Countdown(), [[0, 1], [0, 1], [0, 0]], n=1) == expected


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (np.zeros(15, dtype=int), {"parameter": "policy", "value": (15,)}),
        (np.zeros(16), {"parameter": "policy", "value": (16,)}),
        (np.full((4, 16), 0.25), {"parameter": "policy", "value": (4, 16)}),
        (np.r_[np.zeros(15, dtype=int), 4], {"parameter": "policy", "value": 4, "index": 15}),
        (np.full((16, 4), 0.2), {"parameter": "policy", "index": 0}),
        (np.r_[np.full((9, 4), 0.25), [[2, -1, 0, 0]], np.full((6, 4), 0.25)], {"parameter": "policy", "index": 9}),
        (np.r_[np.full((9, 4), 0.25), np.full((7, 4), np.nan)], {"parameter": "policy", "index": 9}),
        (np.zeros((16, 4)), {"parameter": "policy", "index": 0}),
    ],
)
def test_bad_policies(policy, expected):
    with raises(InvalidParameter, **expected):
        Demonstrations.from_rollouts(lake(), policy, n=1)


def test_bad_numbers_and_environments():
    with raises(InvalidParameter, parameter="n", value=0):
        Demonstrations.from_rollouts(lake(), anything, n=0)
    with raises(InvalidParameter, parameter="seed", value=-1):
        Demonstrations.from_rollouts(lake(), anything, n=1, seed=-1)
    with raises(InvalidParameter, parameter="max_steps", value=-1):
        Demonstrations.from_rollouts(lake(), anything, n=1, max_steps=-1)
    with raises(InvalidDemos, parameter="env"):
        Demonstrations.from_rollouts(gymnasium.make("CartPole-v1"), anything, n=1)
    env = Countdown()
    env.action_space = gymnasium.spaces.Box(0, 1)
    with raises(InvalidDemos, parameter="env"):
        Demonstrations.from_rollouts(env, anything, n=1)
