"""Agents: construction from arrays, demonstrations and released data; selection, equality and files."""

import contextlib
import json
import pickle
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

from limiirl.demos import Demonstrations
from limiirl.demos.agents import Agent, Agents
from limiirl.errors import InvalidDemos, InvalidFile, InvalidParameter
from limiirl.irl import SigmaGIRL
from limiirl.mdp import MDP
from limiirl.mixture import IntentMixture
from limiirl.worlds import ElementWorld
from tests.helpers import raises

RNG = np.random.default_rng(0)
X, A, PHI = RNG.normal(size=(2, 4, 5, 3)), RNG.normal(size=(2, 4, 5, 1)), RNG.normal(size=(2, 4, 5, 2))


def two(**known) -> Agents:
    return Agents.from_arrays(list(X), list(A), list(PHI), **known)


def test_read_only_views_of_writeable_arrays_are_copied():
    x, phi = np.ones((2, 3, 1)), np.zeros((2, 3, 2))
    view = x.view()
    view.flags.writeable = False
    agent = Agents((Agent(view, np.zeros((2, 3), dtype=int), phi, np.ones((2, 3), dtype=bool)),))[0]
    x[:] = 7.0
    assert np.all(agent.policy_features == 1.0)


def test_arrays_are_stored_read_only():
    agents = two(names=["ann", "bob"], labels=[0, 1])
    assert (len(agents), agents.n_policy_features, agents.n_reward_features, agents.discrete) == (2, 3, 2, False)
    np.testing.assert_array_equal(agents[1].policy_features, X[1])
    np.testing.assert_array_equal(agents[1].actions, A[1])
    np.testing.assert_array_equal(agents[1].reward_features, PHI[1])
    assert agents[0].live.all()
    for part in agents[0]:
        assert not part.flags.writeable
    assert X.flags.writeable


def test_float32_and_small_integers_are_converted():
    agents = Agents.from_arrays([X[0].astype(np.float32)], [A[0, :, :, 0].astype(np.int8) ** 2], [PHI[0] > 0])
    assert agents.discrete
    assert (agents[0].policy_features.dtype, agents[0].actions.dtype) == (np.float64, np.int64)
    assert agents[0].reward_features.dtype == np.float64


def test_padding_has_no_action_and_no_reward():
    ragged = Agents.from_arrays([[X[0, 0], X[0, 1, :2]]], [[A[0, 0], A[0, 1, :2]]], [[PHI[0, 0], PHI[0, 1, :2]]])
    np.testing.assert_array_equal(ragged[0].live.sum(axis=1), [5, 2])
    np.testing.assert_array_equal(ragged[0].reward_features[1, 2:], 0.0)
    np.testing.assert_array_equal(ragged[0].reward_features[1, :2], PHI[0, 1, :2])


def test_features_are_mean_discounted_sums():
    agents = two()
    wanted = [sum(0.5**t * PHI[i, :, t] for t in range(5)).mean(axis=0) for i in range(2)]
    np.testing.assert_allclose(agents.features(0.5), wanted, rtol=1e-12)
    wanted = [sum(0.5**t * X[i, :, t] for t in range(5)).mean(axis=0) for i in range(2)]
    np.testing.assert_allclose(agents.features(0.5, of="policy"), wanted, rtol=1e-12)
    with raises(InvalidParameter, parameter="of", value="action"):
        agents.features(0.5, of="action")


def test_policy_features_are_summed_over_live_steps():
    live = np.ones((4, 5), dtype=bool)
    live[:, 3:] = False
    agents = Agents.from_arrays([X[0]], [A[0]], [PHI[0]], [live])
    np.testing.assert_allclose(agents.features(1.0, of="policy")[0], X[0, :, :3].sum(axis=1).mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(agents.features(1.0)[0], PHI[0].sum(axis=1).mean(axis=0), rtol=1e-12)


def test_selection_keeps_names_and_labels_together():
    agents = two(names=["ann", "bob"], labels=[3, 4])
    for index in ([1, 0], np.array([1, 0]), slice(None, None, -1)):
        turned = agents[index]
        assert (turned.names.tolist(), turned.labels.tolist()) == (["bob", "ann"], [4, 3])
        np.testing.assert_array_equal(turned[0].actions, A[1])
    assert agents[np.array([False, True])].names.tolist() == ["bob"]
    with raises(InvalidDemos, parameter="records", value=()):
        agents[[]]


def test_equality_compares_content():
    assert two() == two()
    assert hash(two()) == hash(two())
    assert two() != two(names=["ann", "bob"])
    assert two() != two()[[1, 0]]
    assert two() != 3
    assert pickle.loads(pickle.dumps(two(labels=[0, 1]))) == two(labels=[0, 1])


def test_subsample_draws_distinct_trajectories_and_is_reproducible():
    agents = two(labels=[0, 1])
    some = agents.subsample(3, seed=5)
    assert some == agents.subsample(3, seed=5)
    assert some.labels.tolist() == [0, 1]
    for i, agent in enumerate(some):
        place = [next(j for j in range(4) if np.array_equal(X[i, j], one)) for one in agent.policy_features]
        assert len(set(place)) == 3
        np.testing.assert_array_equal(agent.actions, A[i, place])
        np.testing.assert_array_equal(agent.reward_features, PHI[i, place])
    assert agents.subsample(4, seed=1) == agents
    for n in (0, 5, 2.0, True):
        with raises(InvalidParameter, parameter="n", value=n, index=0):
            agents.subsample(n, seed=0)


def test_summary():
    assert repr(two()).splitlines()[0] == "Agents: 2 agents, 4 trajectories each of up to 5 steps"
    assert "actions in 1 dimensions" in repr(two())
    uneven = Agents((two()[0], Agent(*(part[:1] for part in two()[0]))), np.arange(2))
    assert "1 to 4 trajectories" in repr(uneven)


def break_value(part: str, value: float = np.nan, agent: int = 1) -> dict[str, list[np.ndarray]]:
    given = {"policy_features": list(X.copy()), "actions": list(A.copy()), "reward_features": list(PHI.copy())}
    given[part][agent][2, 3, 0] = value
    return given


@pytest.mark.parametrize("part", ["policy_features", "actions", "reward_features"])
def test_error_for_nan_has_its_index(part):
    with raises(InvalidDemos, parameter=part, index=(1, 2, 3, 0)):
        Agents.from_arrays(**break_value(part))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (([], [], []), {"parameter": "records", "value": ()}),
        (([X[0]], [A[0], A[1]], [PHI[0]]), {"parameter": "actions", "value": 2}),
        (([X[0]], [A[0, :3]], [PHI[0]]), {"parameter": "actions", "value": 3, "index": 0}),
        (([X[0]], [A[0, :, :4]], [PHI[0]]), {"parameter": "actions", "value": 4, "index": (0, 0)}),
        (([X[0]], [A[0]], [PHI[0, :, :, 0]]), {"parameter": "reward_features", "value": (4, 5), "index": 0}),
        (([X[0]], [A[0, :, :, 0]], [PHI[0]]), {"parameter": "actions", "value": (4, 5), "index": 0}),
        (([X[0]], [np.full((4, 5), -1)], [PHI[0]]), {"parameter": "actions", "value": -1, "index": (0, 0, 0)}),
        (([X[0]], [A[0]], [np.full((4, 5, 2), "far")]), {"parameter": "reward_features", "index": 0}),
        (
            ([X[0], X[1]], [A[0], A[1]], [PHI[0], PHI[1, :, :, :1]]),
            {"parameter": "reward_features", "value": "1 real columns", "index": 1},
        ),
        (
            ([X[0], X[1]], [A[0], np.ones((4, 5), int)], list(PHI)),
            {"parameter": "actions", "value": "discrete", "index": 1},
        ),
        (([X[0]], [A[0]], [PHI[0]], [np.zeros((4, 5), bool)]), {"parameter": "live", "value": False, "index": 0}),
        (([X[0]], [A[0]], [PHI[0]], [np.ones((4, 5))]), {"parameter": "live", "value": (4, 5), "index": 0}),
        # Four causes: an empty trajectory, unequal columns, no trajectory, and no sequence.
        (([[X[0, 0], X[0, 1, :0]]], [A[0]], [PHI[0]]), {"parameter": "policy_features", "value": 0, "index": (0, 1)}),
        (
            ([[X[0, 0], X[0, 1, :, :2]]], [A[0]], [PHI[0]]),
            {"parameter": "policy_features", "value": [(2,), (3,)], "index": 0},
        ),
        (([[]], [[]], [[]]), {"parameter": "policy_features", "value": 0, "index": 0}),
        (([3.0], [A[0]], [PHI[0]]), {"parameter": "policy_features", "value": 3.0, "index": 0}),
    ],
)
def test_inconsistent_arrays_are_rejected(given, expected):
    with raises(InvalidDemos, **expected):
        Agents.from_arrays(*given)


def test_names_and_labels_have_one_entry_per_agent():
    with raises(InvalidDemos, parameter="names", value=(1,)):
        two(names=["ann"])
    with raises(InvalidDemos, parameter="labels", value=(3,)):
        two(labels=[0, 1, 2])


def test_agents_without_names_are_numbered():
    record = Agent(np.ones((2, 3, 1)), np.ones((2, 3, 1)), np.ones((2, 3, 1)), np.ones((2, 3), dtype=bool))
    for agents in (Agents((record, record)), Agents((record, record), None)):
        assert agents.names.tolist() == [0, 1]
        assert not agents.names.flags.writeable
        assert agents[1:].names.tolist() == [1]
        assert hash(agents) == hash(Agents((record, record), np.arange(2)))


def test_released_agents_are_read(shared_data: Callable[[str], Path]):
    path = shared_data("sigma_girl_gridworld") / "gridworld_agents.npz"
    agents = Agents.from_released(path, dataset=3)
    assert agents.names.tolist() == ["center", "up", "border"]
    assert [agent.live.shape for agent in agents] == [(100, 30)] * 3
    assert (agents.n_policy_features, agents.n_reward_features) == (25, 3)
    for agent in agents:
        # spec.md, section B: normalised radial features while it moves, and one feature of the reward at a time.
        np.testing.assert_allclose(agent.policy_features.sum(axis=2), agent.live, rtol=0, atol=1e-6)
        np.testing.assert_array_equal(agent.reward_features @ [-1.0, -1.0, 1.0], 1.0)
        np.testing.assert_array_equal(np.any(agent.actions != 0, axis=2), agent.live)
        assert np.all(np.diff(agent.live.astype(int), axis=1) <= 0)
    others = Agents.from_released(path, dataset=3, names=["border", "down"])
    assert others.names.tolist() == ["border", "down"]
    np.testing.assert_array_equal(others[0].actions, agents[2].actions)


def test_invalid_files_of_released_agents(tmp_path):
    with pytest.raises(InvalidFile, match="does not exist"):
        Agents.from_released(tmp_path / "none.npz")
    (tmp_path / "text.npz").write_text("hello")
    with pytest.raises(InvalidFile, match="not an npz file"):
        Agents.from_released(tmp_path / "text.npz")
    np.savez(tmp_path / "part.npz", up_0_policy_features=X[0], up_0_actions=A[0])
    with pytest.raises(InvalidFile, match="no up_0_reward_features"):
        Agents.from_released(tmp_path / "part.npz", names=["up"])
    objects = np.array([{"a": 1}], dtype=object)
    np.savez(tmp_path / "pickle.npz", up_0_policy_features=objects, up_0_actions=A[0], up_0_reward_features=PHI[0])
    with pytest.raises(InvalidFile, match="not an npz file"):
        Agents.from_released(tmp_path / "pickle.npz", names=["up"])
    np.savez(tmp_path / "nan.npz", up_0_policy_features=X[0], up_0_actions=A[0] * np.nan, up_0_reward_features=PHI[0])
    with pytest.raises(InvalidFile, match=r"actions\[0, 0, 0, 0\]"):
        Agents.from_released(tmp_path / "nan.npz", names=["up"])


STATE, ACTION = np.array([[1.0, 0.0], [0.0, 2.0], [0.5, 0.5], [3.0, -1.0]]), np.arange(12.0).reshape(4, 3, 1)
EDGE = np.linspace(0.1, 0.7, 7)[:, None]
SRC, DST, ACT = [0, 0, 0, 1, 1, 2, 2], [1, 2, 2, 0, 3, 1, 3], [0, 0, 2, 1, 1, 0, 1]


def patchy(**features) -> MDP:
    """States with different actions, noise, a terminal state; three kinds of features unless others are given."""
    given = features or {"state_features": STATE, "action_features": ACTION, "edge_features": EDGE}
    prob = [0.3, 0.7, 1.0, 0.4, 0.6, 1.0, 1.0]
    return MDP.from_edges(SRC, DST, action=ACT, prob=prob, p0=[0.5, 0.25, 0.25, 0.0], gamma=0.9, **given)


STATES = [[0, 2, 1, 3], [1, 0, 2], [0, 1], [2, 1, 0, 2, 3], [0, 2, 3]]
ACTIONS = [[2, 0, 1], [1, 0], [0], [0, 1, 2, 1], [0, 1]]
GROUPS = ["b", "a", "b", "a", "b"]


def demos(**known) -> Demonstrations:
    return Demonstrations.from_lists(STATES, ACTIONS, **known)


def features_of(mdp: MDP, states: list[int], actions: list[int], t: int) -> np.ndarray:
    """Return the features of step t, looked up edge by edge."""
    moving = t < len(actions)
    edge = next((e for e in range(7) if moving and (SRC[e], ACT[e], DST[e]) == (*key(states, actions, t),)), None)
    of_action = ACTION[states[t], actions[t]] if moving else [0.0]
    return np.concatenate([STATE[states[t]], of_action, [0.0] if edge is None else EDGE[edge]])


def key(states: list[int], actions: list[int], t: int) -> tuple[int, int, int]:
    return states[t], actions[t], states[t + 1]


def test_last_step_of_a_trajectory_has_no_action():
    mdp = patchy()
    agents = Agents.from_demonstrations(mdp, demos(), GROUPS)
    assert agents.names.tolist() == ["a", "b"]
    assert agents.discrete
    assert agents.labels is None
    for agent, members in zip(agents, ([1, 3], [0, 2, 4]), strict=True):
        assert agent.live.shape == (len(members), max(len(STATES[i]) for i in members))
        for j, i in enumerate(members):
            states, actions = STATES[i], ACTIONS[i]
            T = len(states)
            assert agent.live[j].tolist() == [t < T - 1 for t in range(agent.live.shape[1])]
            assert agent.actions[j, : T - 1].tolist() == actions
            np.testing.assert_array_equal(agent.policy_features[j, :T], np.eye(4)[states])
            np.testing.assert_array_equal(agent.policy_features[j, T:], 0.0)
            for t in range(T):
                np.testing.assert_array_equal(agent.reward_features[j, t], features_of(mdp, states, actions, t))
            np.testing.assert_array_equal(agent.reward_features[j, T:], 0.0)


@pytest.mark.parametrize(
    "features",
    [
        {},
        {"state_features": STATE},
        {"action_features": ACTION},
        {"edge_features": EDGE, "state_features": sparse.csr_array(STATE)},
    ],
)
def test_agent_features_are_means_of_demonstration_features(features):
    mdp = patchy(**features)
    agents = Agents.from_demonstrations(mdp, demos(groups=GROUPS))
    each = demos().features(mdp)
    wanted = [each[[1, 3]].mean(axis=0), each[[0, 2, 4]].mean(axis=0)]
    np.testing.assert_allclose(agents.features(mdp.gamma), wanted, rtol=1e-12)


def test_groups_argument_overrides_the_groups_of_demonstrations():
    agents = Agents.from_demonstrations(patchy(), demos(groups=GROUPS), [7, 7, 5, 5, 5])
    assert agents.names.tolist() == [5, 7]
    assert [len(agent.live) for agent in agents] == [3, 2]


def test_actions_are_inferred_from_states_if_unique():
    mdp = MDP.from_edges([0, 0, 1], [1, 2, 2], n_states=3, state_features=np.eye(3))
    bare = Demonstrations.from_lists([[0, 1, 2], [0, 2]], groups=[0, 0])
    agent = Agents.from_demonstrations(mdp, bare)[0]
    assert agent.actions[agent.live].tolist() == [0, 0, 1]


def test_custom_features():
    mdp = patchy()
    for given in (-STATE, sparse.csr_array(-STATE)):
        agents = Agents.from_demonstrations(mdp, demos(), GROUPS, policy_features=given, reward_features=given)
        np.testing.assert_array_equal(agents[0].policy_features[0, :3], -STATE[STATES[1]])
        np.testing.assert_array_equal(agents[0].reward_features[0, :3], -STATE[STATES[1]])
    agents = Agents.from_demonstrations(mdp, demos(), GROUPS, reward_features=-ACTION)
    wanted = [-ACTION[1, 1], -ACTION[0, 0], [0.0], [0.0], [0.0]]  # the last state has no action, and it is padded
    np.testing.assert_array_equal(agents[0].reward_features[0], wanted)


def test_sigma_girl_fits_agents_from_demonstrations():
    world = ElementWorld(n_elements=2, wind=0.1)
    recorded, intents = world.sample(240, seed=1)
    recorded = recorded[np.argsort(intents, kind="stable")]
    agents = Agents.from_demonstrations(
        world.mdp, recorded, np.arange(240) // 30, reward_features=-world.mdp.state_features
    )
    assert agents.labels.tolist() == [0] * 4 + [1] * 4
    labels = IntentMixture(2, SigmaGIRL(gamma=world.gamma), random_state=0).fit(None, agents).labels_
    np.testing.assert_array_equal(labels == labels[0], agents.labels == 0)


def test_labels_must_be_constant_within_an_agent():
    labelled = demos(labels=[1, 0, 1, 0, 1])
    assert Agents.from_demonstrations(patchy(), labelled, GROUPS).labels.tolist() == [0, 1]
    assert Agents.from_demonstrations(patchy(), demos(labels=list("xyxyx")), GROUPS).labels.tolist() == ["y", "x"]
    with raises(InvalidDemos, parameter="labels", value=0, index=4):
        Agents.from_demonstrations(patchy(), demos(labels=[1, 0, 1, 0, 0]), GROUPS)


def test_demonstrations_without_groups_or_actions_are_rejected():
    mdp = patchy()
    with raises(InvalidDemos, parameter="groups"):
        Agents.from_demonstrations(mdp, demos())
    with raises(InvalidDemos, parameter="demos", value=0):
        Agents.from_demonstrations(mdp, demos(groups=GROUPS)[:0])
    with raises(InvalidDemos, parameter="groups", value=(3,)):
        Agents.from_demonstrations(mdp, demos(), GROUPS[:3])
    unknown = Demonstrations.from_lists([[1, 0, 2], [1, 0]], [[1, -1], None], groups=[0, 0])
    with raises(InvalidDemos, parameter="demos", index=(0, 1)):
        Agents.from_demonstrations(mdp, unknown)
    with raises(InvalidDemos, parameter="demos", value=1, index=(0, 0)):
        Agents.from_demonstrations(mdp, Demonstrations.from_lists([[0, 1]], [[1]], groups=[0]))
    with raises(InvalidDemos, parameter="live", value=False, index=0):
        Agents.from_demonstrations(mdp, Demonstrations.from_lists([[0], [1]], groups=[0, 0]))
    line = MDP.from_edges(np.arange(29_999), np.arange(1, 30_000), state_features=np.ones((30_000, 1)))
    far = Demonstrations.from_lists([np.arange(30_000)], groups=[0])
    with raises(InvalidParameter, parameter="policy_features", value=30000):
        Agents.from_demonstrations(line, far)
    with raises(InvalidParameter, parameter="policy_features", value=1):
        Agents.from_demonstrations(line.replace(state_features=None), far, policy_features=np.ones((30_000, 1)))
    assert Agents.from_demonstrations(line, far, policy_features=np.ones((30_000, 1))).n_policy_features == 1


@pytest.mark.parametrize(
    ("kind", "given", "expected"),
    [
        (InvalidParameter, {"policy_features": np.ones((3, 2))}, {"parameter": "policy_features", "value": (3, 2)}),
        (InvalidParameter, {"policy_features": ACTION}, {"parameter": "policy_features", "value": ACTION.shape}),
        (
            InvalidParameter,
            {"reward_features": np.ones((4, 2, 1))},
            {"parameter": "reward_features", "value": (4, 2, 1)},
        ),
        (InvalidParameter, {"reward_features": np.ones(4)}, {"parameter": "reward_features", "value": (4,)}),
        (InvalidParameter, {"reward_features": [["far"]] * 4}, {"parameter": "reward_features", "value": "str"}),
        (
            InvalidDemos,
            {"reward_features": np.full((4, 1), np.nan)},
            {"parameter": "reward_features", "index": (0, 0, 0, 0)},
        ),
    ],
)
def test_features_of_wrong_shape_are_rejected(kind, given, expected):
    with raises(kind, **expected):
        Agents.from_demonstrations(patchy(), demos(), GROUPS, **given)


def test_default_features_equal_the_features_of_the_mdp():
    mdp = MDP.from_edges([0, 1], [1, 2], n_states=3)
    agents = Agents.from_demonstrations(mdp, Demonstrations.from_lists([[0, 1, 2], [0, 1]], groups=[0, 0]))
    np.testing.assert_array_equal(agents[0].reward_features, agents[0].policy_features)


FILE_RNG = np.random.default_rng(0)
FILE_X, FILE_PHI = FILE_RNG.normal(size=(2, 4, 5, 3)), FILE_RNG.normal(size=(2, 4, 5, 2))
VECTORS, NUMBERS = FILE_RNG.normal(size=(2, 4, 5, 2)), FILE_RNG.integers(0, 3, size=(2, 4, 5))


def agents(actions=VECTORS, **known) -> Agents:
    live = FILE_RNG.random((2, 4, 5)) < 0.7
    live[:, :, 0] = True
    return Agents.from_arrays(list(FILE_X), list(actions), list(FILE_PHI), list(live), **known)


@pytest.mark.parametrize(
    "known",
    [
        {},
        {"names": ["ann", "Bob the 2nd, né \x00 Ø"], "labels": ["in", "out"]},
        {"names": [7, 3], "labels": [0.5, np.inf]},
        {"labels": [True, False]},
    ],
)
@pytest.mark.parametrize("actions", [VECTORS, NUMBERS])
def test_saved_agents_are_loaded_without_loss(tmp_path, actions, known):
    given = agents(actions, **known)
    given.save(tmp_path / "agents.npz")
    loaded = Agents.load(str(tmp_path / "agents.npz"))
    assert loaded == given
    assert (loaded.names.tolist(), loaded.discrete) == (given.names.tolist(), given.discrete)
    for one, two in zip(loaded, given, strict=True):
        for part, wanted in zip(one, two, strict=True):
            assert part.dtype == wanted.dtype
            assert not part.flags.writeable
    assert [path.name for path in tmp_path.iterdir()] == ["agents.npz"]


def test_agents_of_different_lengths(tmp_path):
    given = Agents.from_arrays(
        [FILE_X[0], FILE_X[1, :2, :3]], [NUMBERS[0], NUMBERS[1, :2, :3]], [FILE_PHI[0], FILE_PHI[1, :2, :3]]
    )
    given.save(tmp_path / "agents")
    assert Agents.load(tmp_path / "agents") == given


def test_failed_save_keeps_the_old_file(tmp_path):
    with pytest.raises(OSError, match="none"):
        agents().save(tmp_path / "none" / "agents.npz")
    folder = tmp_path / "folder"  # a folder cannot be replaced by a file
    folder.mkdir()
    (folder / "note.txt").write_text("mine")
    with pytest.raises(OSError, match="folder"):
        agents().save(folder)
    assert [str(each.relative_to(tmp_path)) for each in sorted(tmp_path.rglob("*"))] == ["folder", "folder/note.txt"]


def test_file_contains_no_objects(tmp_path):
    agents(names=["ann", "bob"], labels=["x", "y"]).save(tmp_path / "agents.npz")
    with np.load(tmp_path / "agents.npz", allow_pickle=False) as stored:
        assert all(stored[name].dtype.kind in "iufb" for name in stored.files)


def test_truncation_at_any_byte_is_detected(tmp_path):
    path = tmp_path / "agents.npz"
    agents().save(path)
    whole = path.read_bytes()
    for length in [0, 1, 3, 4, 100, *range(200, len(whole) - 1, 977), len(whole) - 1]:
        path.write_bytes(whole[:length])
        with pytest.raises(InvalidFile, match=r"agents\.npz is truncated"):
            Agents.load(path)


def test_flipped_bytes_are_detected_or_harmless(tmp_path):
    path = tmp_path / "agents.npz"
    given = agents()
    given.save(path)
    whole = path.read_bytes()
    arrays = array_bytes(path)
    for position in range(0, len(whole), 37):
        broken = bytearray(whole)
        broken[position] ^= 0xFF
        path.write_bytes(broken)
        with contextlib.suppress(InvalidFile):
            # Dates and other things that no reader needs are not protected by a check sum; arrays are.
            assert Agents.load(path) == given
            assert position not in arrays
    assert len(arrays.intersection(range(0, len(whole), 37))) > 50


def array_bytes(path):
    """Return the positions of all bytes of arrays in an npz file, without those of the archive itself."""
    positions = set()
    with zipfile.ZipFile(path) as archive, path.open("rb") as file:
        for member in archive.infolist():
            file.seek(member.header_offset + 26)  # lengths of the name and of the extra field, which precede the data
            n_name, n_extra = struct.unpack("<HH", file.read(4))
            start = member.header_offset + 30 + n_name + n_extra
            positions.update(range(start, start + member.compress_size))
    return positions


def test_files_of_other_kinds_are_rejected(tmp_path):
    with pytest.raises(InvalidFile, match=r"none\.npz does not exist"):
        Agents.load(tmp_path / "none.npz")
    (tmp_path / "text.npz").write_text("hello")
    with pytest.raises(InvalidFile, match="no npz signature"):
        Agents.load(tmp_path / "text.npz")
    np.save(tmp_path / "one.npy", FILE_X)
    with pytest.raises(InvalidFile, match="single array"):
        Agents.load(tmp_path / "one.npy")
    np.savez(tmp_path / "other.npz", x=FILE_X)
    with pytest.raises(InvalidFile, match="no header"):
        Agents.load(tmp_path / "other.npz")
    MDP.from_edges([0, 1], [1, 0]).save(tmp_path / "mdp.npz")
    with pytest.raises(InvalidFile, match=r"'limiirl\.mdp', not 'limiirl\.agents'"):
        Agents.load(tmp_path / "mdp.npz")
    np.savez(tmp_path / "objects.npz", header=np.array([{}], dtype=object))
    with pytest.raises(InvalidFile, match="objects"):
        Agents.load(tmp_path / "objects.npz")


def rewrite(path, *, without=(), **changes) -> None:
    """Write a file of agents again, without some arrays, with others changed; a dict changes the header."""
    with np.load(path) as stored:
        arrays = {name: stored[name] for name in stored.files if name not in without}
    if isinstance(changes.get("header"), dict):
        header = {**json.loads(arrays["header"].tobytes()), **changes["header"]}
        changes["header"] = np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)
    np.savez(path, **{**arrays, **changes})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"header": {"version": 2}}, "format version 2"),
        ({"header": {"version": "new"}}, "not 'limiirl.agents'"),
        ({"header": {"n_agents": 3}}, r"corrupted: '2\.policy_features'"),
        ({"header": {"n_agents": 0}}, "corrupted: records"),
        ({"header": {"texts": 5}}, "corrupted"),
        ({"header": np.array([255], dtype=np.uint8)}, "no header"),
        ({"without": ["1.live"]}, r"corrupted: '1\.live'"),
        ({"without": ["names"]}, "corrupted: 'names'"),
        ({"names": np.arange(3)}, "corrupted: names must"),
        ({"1.actions": np.full((4, 5, 2), np.nan)}, r"corrupted: actions\[1, 0, 0, 0\]"),
    ],
)
def test_corrupted_files_are_rejected(tmp_path, change, message):
    path = tmp_path / "agents.npz"
    agents().save(path)
    rewrite(path, **change)
    with pytest.raises(InvalidFile, match=message):
        Agents.load(path)


def test_compressed_files_are_read(tmp_path):
    path = tmp_path / "agents.npz"
    agents().save(path)
    with zipfile.ZipFile(path) as stored:
        parts = {name: stored.read(name) for name in stored.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, content in parts.items():
            packed.writestr(name, content)
    whole = bytearray(path.read_bytes())
    assert len(Agents.load(path)) == 2
    whole[30 + len(next(iter(parts)))] = 0xFF  # what is packed begins after a header and a name, by no such byte
    path.write_bytes(whole)
    with pytest.raises(InvalidFile, match="Error -3"):
        Agents.load(path)
