"""The continuous PuddleWorld as a Gymnasium environment: the interface, and the same walks as many at once."""

import subprocess
import sys

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import limiirl.worlds.gym  # noqa: F401 - registers
from limiirl.errors import InvalidParameter
from limiirl.worlds import ContinuousPuddleWorld
from limiirl.worlds.continuous_puddleworld import HORIZON, KINDS, GaussianPolicy, walk
from limiirl.worlds.gym import ContinuousPuddleEnv
from tests.helpers import raises

ID = "limiirl/ContinuousPuddleWorld-v0"


@pytest.mark.parametrize("kind", KINDS)
def test_gymnasiums_checker_has_nothing_to_say(kind):
    check_env(gymnasium.make(ID, kind=kind).unwrapped)


def test_registration():
    env = gymnasium.make(ID, kind="down")
    assert (env.unwrapped.kind, env.spec.max_episode_steps) == ("down", HORIZON)
    assert gymnasium.envs.registration.EnvSpec.from_json(env.spec.to_json()).make().unwrapped.kind == "down"
    code = f"import gymnasium; print(gymnasium.make('limiirl.worlds.gym:{ID}').unwrapped.kind)"
    result = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout == "center\n"


def play(env, policy, noise):
    """Return positions, reward features and rewards of one episode, and how it ended."""
    position, _ = env.reset(seed=0)
    places, features, rewards = [position], [], []
    for step in noise:
        position, reward, terminated, truncated, info = env.step(policy.act(position, step))
        places.append(position)
        features.append(info["reward_features"])
        rewards.append(reward)
        if terminated or truncated:
            return np.array(places), np.array(features), rewards, terminated, truncated
    raise AssertionError("the episode went on beyond its horizon")


@pytest.mark.parametrize("kind", KINDS)
def test_a_policy_walks_exactly_as_among_many(kind):
    env = gymnasium.make(ID, kind=kind)
    wandering = GaussianPolicy(np.random.default_rng(4).uniform([-0.2, -1.0], [1.0, 1.0], size=(25, 2)))
    noise = np.random.default_rng(5).normal(size=(25, HORIZON, 2))
    ends = set()
    for policy in (ContinuousPuddleWorld().policy(kind), wandering):
        walks = walk(policy, kind, noise)
        for i in range(len(noise)):
            places, features, rewards, terminated, truncated = play(env, policy, noise[i])
            steps = walks.live[i].sum()
            assert len(rewards) == steps
            np.testing.assert_array_equal(places, walks.positions[i, : steps + 1])
            np.testing.assert_array_equal(features, walks.reward_features[i, :steps])
            np.testing.assert_array_equal(rewards, features @ KINDS[kind])
            assert terminated == (features[-1, 2] == 1.0)
            assert truncated == (steps == HORIZON)
            ends.add(terminated)
    assert ends == {True, False}


def test_the_goal_pays_once():
    env = ContinuousPuddleEnv("up")
    env.reset()
    for _ in range(8):
        position, reward, terminated, _, _ = env.step([2.0, 0.0])  # counts as 1
    assert (position.tolist(), reward, terminated) == ([8.0, 4.5], -1.0, False)  # on the rim
    position, reward, terminated, _, _ = env.step([0.25, 0.0])
    assert (position.tolist(), reward, terminated) == ([8.25, 4.5], 1.0, True)
    position, reward, terminated, _, info = env.step([-1.0, 0.0])
    assert (position.tolist(), reward, terminated) == ([8.25, 4.5], 0.0, True)
    assert info["reward_features"].tolist() == [0.0, 0.0, 1.0]


def test_what_an_episode_gives_can_be_written_to():
    env = ContinuousPuddleEnv()
    position, _ = env.reset()
    for x in (1.0, 2.0):
        position[:] = 8.9
        position, *_ = env.step([1.0, 0.0])
        assert position.tolist() == [x, 4.5]


def test_pictures_show_where_the_agent_is():
    env = ContinuousPuddleEnv(render_mode="rgb_array")
    with pytest.raises(gymnasium.error.ResetNeeded, match="env.reset"):
        env.render()
    env.reset()
    first = env.render()
    env.step([1.0, 1.0])
    second = env.render()
    assert first.shape == second.shape == (480, 600, 3)
    assert first.dtype == np.uint8
    assert 0 < np.any(first != second, axis=2).sum() < 1000  # two marks of about ten pixels
    assert ContinuousPuddleEnv().render() is None


def test_errors():
    with raises(InvalidParameter, parameter="kind", value="left"):
        ContinuousPuddleEnv("left")
    with raises(InvalidParameter, parameter="render_mode", value="human"):
        ContinuousPuddleEnv(render_mode="human")
    env = ContinuousPuddleEnv()
    with pytest.raises(gymnasium.error.ResetNeeded, match="env.reset"):
        env.step([0.0, 0.0])
    env.reset()
    for action in ([1.0], [np.nan, 0.0], 3.0):
        with raises(InvalidParameter, parameter="action"):
            env.step(action)
