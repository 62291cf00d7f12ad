"""Gymnasium environments of the worlds: interface, rewards, seeds, rendering, registration and errors."""

import inspect
import subprocess
import sys
from types import SimpleNamespace

import gymnasium
import matplotlib.pyplot as plt
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from scipy import stats

import limiirl.worlds.gym  # noqa: F401 - registers
from limiirl.demos import Demonstrations
from limiirl.errors import InvalidDemos, InvalidParameter
from limiirl.mdp import MDP
from limiirl.mdp.ensemble import RewardEnsemble
from limiirl.mdp.planning import optimal_policy
from limiirl.worlds import WORLDS, ContinuousPuddleWorld, ElementWorld
from limiirl.worlds.continuous_puddleworld import HORIZON, KINDS, GaussianPolicy, walk
from limiirl.worlds.gym import MAX_EPISODE_STEPS, ContinuousPuddleEnv, WorldEnv
from limiirl.worlds.plotting import AgentPicture
from tests.helpers import raises

NAMES = ["ElementWorld", "PuddleWorld", "ObjectWorld", "SyntheticWorld"]
ALL = pytest.mark.parametrize("name", NAMES)


class Ledger(gymnasium.Wrapper):
    """Keeps the intent, the rewards and the end of each episode that passes through it."""

    def __init__(self, env):
        super().__init__(env)
        self.intents, self.rewards, self.finished = [], [], []

    def reset(self, **kwargs):
        observation, info = self.env.reset(**kwargs)
        self.intents.append(info["intent"])
        self.rewards.append([])
        self.finished.append(False)
        return observation, info

    def step(self, action):
        observation, reward, terminated, truncated, info = self.env.step(action)
        self.rewards[-1].append(reward)
        self.finished[-1] = terminated
        return observation, reward, terminated, truncated, info


def patchy_world():
    """Three kinds of features, states with different actions, noise, a terminal state."""
    mdp = MDP.from_edges(
        src=[0, 0, 0, 1, 1, 2, 2],
        dst=[1, 2, 2, 0, 3, 1, 3],
        action=[0, 0, 2, 1, 1, 0, 1],
        prob=[0.3, 0.7, 1.0, 0.4, 0.6, 1.0, 1.0],
        p0=[0.75, 0.25, 0.0, 0.0],
        gamma=0.9,
        state_features=[[1.0, 0.0], [0.0, 2.0], [0.5, 0.5], [3.0, -1.0]],
        action_features=np.arange(12.0).reshape(4, 3, 1),
        edge_features=[[0.1], [0.2], [0.3], [0.4], [0.5], [0.6], [0.7]],
    )
    return SimpleNamespace(
        mdp=mdp, ensemble=RewardEnsemble([0.2, 0.8], [[1.0, -2.0, 0.5, 3.0], [-1.0, 0.3, 0.1, -2.0]])
    )


def any_move(mdp):
    """Probabilities (S, A) of a uniform choice among the actions that a state has."""
    table = np.zeros((mdp.n_states, mdp.n_actions))
    table[mdp.pair_state, mdp.pair_action] = 1.0
    return table / np.maximum(table.sum(axis=1, keepdims=True), 1.0)


def world_env(name):
    return WorldEnv(patchy_world()) if name == "patchy" else gymnasium.make(f"limiirl/{name}-v0")


@ALL
@pytest.mark.parametrize("intent", [None, 1])
def test_environments_pass_the_checker(name, intent):
    # What `make` made knows its registration, so the checker tries every render mode as well.
    check_env(gymnasium.make(f"limiirl/{name}-v0", intent=intent).unwrapped)


def test_gymnasiums_checker_accepts_a_state_that_lacks_an_action():
    check_env(WorldEnv(patchy_world()), skip_render_check=True)


@ALL
def test_registration_passes_parameters_and_truncates_like_samples(name):
    env = gymnasium.make(f"limiirl/{name}-v0", seed=3, gamma=0.8, intent=1)
    assert env.unwrapped.world == WORLDS[name](seed=3, gamma=0.8)
    assert env.reset(seed=0)[1]["intent"] == 1
    assert env.spec.max_episode_steps == MAX_EPISODE_STEPS
    assert inspect.signature(WORLDS[name].sample).parameters["max_length"].default == MAX_EPISODE_STEPS + 1
    assert gymnasium.envs.registration.EnvSpec.from_json(env.spec.to_json()).make().unwrapped.world.seed == 3


def test_id_with_the_module_needs_no_import():
    code = (
        "import gymnasium; env = gymnasium.make('limiirl.worlds.gym:limiirl/ElementWorld-v0', wind=0.2); "
        "print(env.unwrapped.world.wind)"
    )
    result = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout == "0.2\n"


def test_worlds_work_without_gymnasium_and_environments_report_its_absence():
    code = (
        "import sys; sys.modules['gymnasium'] = None\n"
        "import limiirl.worlds\n"
        "from limiirl.errors import BackendUnavailable\n"
        "try: import limiirl.worlds.gym\n"
        "except BackendUnavailable as error: print(error)\n"
    )
    result = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True)
    assert "pip install gymnasium" in result.stdout


@pytest.mark.parametrize("name", [*NAMES, "patchy"])
def test_transitions_starts_and_intents_match_their_probabilities(name):
    env = world_env(name)
    mdp, ensemble = env.unwrapped.world.mdp, env.unwrapped.world.ensemble
    ledger = Ledger(env)
    n = 1500
    demos = Demonstrations.from_rollouts(ledger, any_move(mdp), n=n, seed=5, max_steps=30)
    edge = demos.steps(mdp).edge  # an impossible move would be an error here
    assert edge.min() >= 0
    counts = np.bincount(edge, minlength=mdp.n_edges)
    tried = np.bincount(mdp.pair_of_edge, weights=counts, minlength=mdp.n_pairs)
    expected = tried[mdp.pair_of_edge] * mdp.prob
    # An action's counts are multinomial, so its statistic has one degree of freedom fewer than it has outcomes.
    enough = np.bincount(mdp.pair_of_edge, weights=expected < 5, minlength=mdp.n_pairs) == 0
    used = enough[mdp.pair_of_edge]
    assert enough.sum() >= 4
    statistic = np.sum((counts - expected)[used] ** 2 / expected[used])
    freedom = used.sum() - enough.sum()
    assert freedom == 0 or 0.001 < stats.chi2.sf(statistic, freedom) < 0.999
    starts = np.bincount(demos.start_states, minlength=mdp.n_states)
    assert np.all(starts[mdp.p0 == 0] == 0)
    possible = mdp.p0 > 0
    assert stats.chisquare(starts[possible], n * mdp.p0[possible]).pvalue > 0.001
    assert stats.chisquare(np.bincount(ledger.intents), n * ensemble.weights).pvalue > 0.001


@pytest.mark.parametrize("name", [*NAMES, "patchy"])
@pytest.mark.parametrize("max_steps", [4, 1000])
def test_discounted_return_is_theta_times_features(name, max_steps):
    env = world_env(name)
    mdp, ensemble = env.unwrapped.world.mdp, env.unwrapped.world.ensemble
    ledger = Ledger(env)
    policy = any_move(mdp)
    # Half of the moves lead to the end, so that a walk arrives there and still wanders.
    policy[mdp.pair_state, mdp.pair_action] += optimal_policy(mdp, ensemble.thetas[0])
    policy[~mdp.terminal] /= 2.0
    demos = Demonstrations.from_rollouts(ledger, policy, n=60, seed=1, max_steps=max_steps)
    returns = np.array([np.sum(mdp.gamma ** np.arange(len(paid)) * paid) for paid in ledger.rewards])
    intents = np.array(ledger.intents)
    expected = np.sum(demos.features(mdp) * ensemble.thetas[intents], axis=1)
    # Of an episode cut short, the last state has been reached and not yet paid.
    last = mdp.rewards(ensemble.thetas)[0][demos.last_states, intents]
    finished = np.array(ledger.finished)
    expected -= np.where(finished, 0.0, mdp.gamma ** (demos.lengths - 1.0) * last)
    np.testing.assert_allclose(returns, expected, rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(finished, mdp.terminal[demos.last_states])
    assert not finished.all() if max_steps == 4 else finished.any() == mdp.terminal.any()
    assert len(np.unique(intents)) == ensemble.n_intents


@pytest.mark.parametrize("name", [*NAMES, "patchy"])
def test_mdp_from_the_environment_equals_the_mdp_of_the_world(name):
    env = world_env(name)
    mdp = env.unwrapped.world.mdp
    rebuilt = MDP.from_gymnasium(env, gamma=mdp.gamma)
    fields = ("state_features", "action_features", "edge_features", "feature_names", "state_names")
    assert rebuilt.replace(**{field: getattr(mdp, field) for field in fields}) == mdp


def test_table_has_the_rewards_of_steps():
    env = WorldEnv(patchy_world())
    assert np.isnan(env.P[0][0][0][2])  # no intent before the first reset
    rng = np.random.default_rng(0)
    state, info = env.reset(seed=2)
    seen = set()
    for _ in range(300):
        action = int(rng.choice(np.flatnonzero(info["action_mask"])))
        table = {target: (reward, done) for _, target, reward, done in env.P[state][action]}
        assert sorted(env.P[state]) == np.flatnonzero(info["action_mask"]).tolist()
        target, reward, terminated, truncated, info = env.step(action)
        assert (reward, terminated) == table[target]
        assert not truncated
        seen.add((state, action, target, info["intent"]))
        state, info = env.reset() if terminated else (target, info)
    assert len(seen) == 14  # every edge, with either intent
    assert env.P[3] == {a: [(1.0, 3, 0.0, True)] for a in range(3)}


def test_unavailable_action_stays_put_with_the_state_reward():
    world = patchy_world()
    env = WorldEnv(world, intent=1)
    state, info = env.reset(seed=0)
    assert state == 0
    np.testing.assert_array_equal(info["action_mask"], np.array([1, 0, 1], dtype=np.int8))
    state, reward, terminated, truncated, _ = env.step(1)
    assert (state, reward, terminated, truncated) == (0, -1.0, False, False)
    # It is no move of the MDP.
    with raises(InvalidDemos, parameter="demos", value=0, index=(0, 0)):
        Demonstrations.from_rollouts(env, np.array([1, 0, 0, 0]), n=1, max_steps=1).steps(world.mdp)


def test_terminal_state_is_absorbing_without_reward():
    env = WorldEnv(patchy_world(), intent=0)
    state, _ = env.reset(seed=0)
    assert state == 0
    assert env.step(2)[0] == 2
    state, reward, terminated, _, info = env.step(1)
    assert (state, terminated) == (3, True)
    assert reward > 0
    assert not info["action_mask"].any()
    assert env.step(0)[:4] == (3, 0.0, True, False)


@pytest.mark.parametrize("name", [*NAMES, "patchy"])
def test_seed_determines_the_episode(name):
    def record(seed):
        ledger = Ledger(world_env(name))
        policy = any_move(ledger.unwrapped.world.mdp)
        demos = Demonstrations.from_rollouts(ledger, policy, n=20, seed=seed)
        return demos, ledger.intents, ledger.rewards

    np.random.seed(1)  # noqa: NPY002 - to show that the global generator has no part in it
    first = record(7)
    np.random.seed(2)  # noqa: NPY002
    assert record(7) == first
    assert record(8) != first


def test_vectorised_environments_run():
    vector = gymnasium.make_vec("limiirl/ElementWorld-v0", num_envs=3, vectorization_mode="sync", wind=0.0)
    states, info = vector.reset(seed=4)
    assert info["action_mask"].shape == (3, 4)
    moved, *_ = vector.step(np.full(3, 3))
    np.testing.assert_array_equal(moved, states + 1)


@ALL
def test_text_marks_the_agent_and_changes_nothing_else(name):
    env = gymnasium.make(f"limiirl/{name}-v0", render_mode="ansi")
    world = env.unwrapped.world
    layers = getattr(world, "layers", None)
    seen = set()
    env.action_space.seed(0)
    state, info = env.reset(seed=3)
    for _ in range(60):
        seen.add(state)
        if layers is None:
            row, column = world.cell(state)
        else:
            column = next(i for i, layer in enumerate(layers) if state in layer)
            row = layers[column].tolist().index(state)
        lines = env.render().splitlines()
        assert [i for i, line in enumerate(lines) if "[" in line] == [row]
        assert len(lines[row][: lines[row].index("[")].split()) == column
        bare = [line.replace("[", " ", 1).replace("]", " ", 1).rstrip() for line in lines]
        assert bare == [f" {line}".rstrip() for line in str(world).splitlines()]
        state, _, terminated, truncated, info = env.step(env.action_space.sample(mask=info["action_mask"]))
        if terminated or truncated:
            state, info = env.reset()
    assert len(seen) > 10


def test_text_without_cells_names_the_state():
    env = WorldEnv(patchy_world(), render_mode="ansi")
    state, _ = env.reset(seed=0)
    assert env.render().endswith(f"\nagent in state {state}")


@ALL
def test_picture_changes_only_at_the_agent(name):
    env = gymnasium.make(f"limiirl/{name}-v0", render_mode="rgb_array")
    open_figures = plt.get_fignums()
    frames = {}
    for seed in range(20):
        state, _ = env.reset(seed=seed)
        frames.setdefault(state, env.render())
    state, _ = env.reset(seed=0)
    np.testing.assert_array_equal(env.render(), frames[state])
    assert plt.get_fignums() == open_figures
    a, b, *_ = frames.values()
    changed = np.any(a != b, axis=2)
    assert 100 < changed.sum() < 0.02 * changed.size


def test_marker_is_in_the_cell_of_the_agent():
    world = ElementWorld(wind=0.0)
    picture = AgentPicture(world)

    def middle(row, column):
        """Pixel in the middle of the mark: what differs from the pictures of the agent at two other places."""
        here, *others = (picture.frame(world.state(*cell)) for cell in [(row, column), (8, 5), (8, 0)])
        return np.mean(np.argwhere(np.all([np.any(here != other, axis=2) for other in others], axis=0)), axis=0)

    down, right = middle(2, 1) - middle(1, 1), middle(1, 2) - middle(1, 1)
    side = down[0]
    assert side > 40
    np.testing.assert_allclose([down, right], [[side, 0.0], [0.0, side]], atol=1.0)
    np.testing.assert_allclose(middle(0, 0) + side * np.array([7, 4]), middle(7, 4), atol=3.0)
    # The start column is pale, the goal column dark; a mark that hid its cell would be neither.
    colours = [picture.frame(8 * world.height)[tuple(np.rint(middle(0, c) + 12).astype(int))] for c in (0, 5)]
    assert colours[0].min() > 200
    assert colours[1].max() < 80


def test_other_worlds_show_the_state_in_the_title():
    world = patchy_world()
    world.plot = lambda ax: ax.plot([0, 1], [0, 1])
    env = WorldEnv(world, render_mode="rgb_array")
    state, _ = env.reset(seed=0)
    before = env.render()
    assert env.step(2)[0] != state
    changed = np.argwhere(np.any(env.render() != before, axis=2))
    assert 0 < len(changed) < 500
    assert changed[:, 0].max() < 30


def test_render_returns_none_without_a_mode():
    env = WorldEnv("ElementWorld")
    env.reset(seed=0)
    assert env.render() is None


@pytest.mark.parametrize("intent", [-1, 3, 1.0, True, "first"])
def test_invalid_intent_is_rejected(intent):
    with raises(InvalidParameter, parameter="intent"):
        gymnasium.make("limiirl/ElementWorld-v0", intent=intent)


def test_other_errors_have_parameter_and_value():
    with raises(InvalidParameter, parameter="world", value="Elementworld"):
        WorldEnv("Elementworld")
    with raises(InvalidParameter, parameter="wind", value=0.2):
        WorldEnv(ElementWorld(), wind=0.2)
    with raises(InvalidParameter, parameter="render_mode", value="human"):
        WorldEnv("ElementWorld", render_mode="human")
    world = patchy_world()
    with raises(InvalidParameter, parameter="render_mode", value="rgb_array"):
        WorldEnv(world, render_mode="rgb_array")
    ended = SimpleNamespace(mdp=world.mdp.replace(p0=[0.5, 0.0, 0.0, 0.5]), ensemble=world.ensemble)
    with raises(InvalidParameter, parameter="world", value=0.5, index=3):
        WorldEnv(ended)
    env = WorldEnv(world, render_mode="ansi")
    for call in (lambda: env.step(0), env.render):
        with pytest.raises(gymnasium.error.ResetNeeded, match="Call env.reset()"):
            call()
    env.reset(seed=0)
    for action in (3, -1, 0.5):
        with raises(InvalidParameter, parameter="action", value=action):
            env.step(action)


ID = "limiirl/ContinuousPuddleWorld-v0"


@pytest.mark.parametrize("kind", KINDS)
def test_continuous_environment_passes_the_checker(kind):
    check_env(gymnasium.make(ID, kind=kind).unwrapped)


def test_continuous_registration():
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
def test_single_episode_equals_batched_walks(kind):
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


def test_goal_is_rewarded_once():
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


def test_returned_arrays_are_copies():
    env = ContinuousPuddleEnv()
    position, _ = env.reset()
    for x in (1.0, 2.0):
        position[:] = 8.9
        position, *_ = env.step([1.0, 0.0])
        assert position.tolist() == [x, 4.5]


def test_pictures_show_the_position_of_the_agent():
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


def test_continuous_errors():
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
