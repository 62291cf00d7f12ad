"""Agents from grouped demonstrations in a finite MDP: steps, actions, features, labels, errors."""

import numpy as np
import pytest
from scipy import sparse

from limiirl.demos import Agents, Demonstrations
from limiirl.errors import InvalidDemos, InvalidParameter
from limiirl.irl import SigmaGIRL
from limiirl.mdp import MDP
from limiirl.mixture import IntentMixture
from limiirl.worlds import ElementWorld
from tests.helpers import raises

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
    """What step t collects, looked up edge by edge."""
    moving = t < len(actions)
    edge = next((e for e in range(7) if moving and (SRC[e], ACT[e], DST[e]) == (*key(states, actions, t),)), None)
    of_action = ACTION[states[t], actions[t]] if moving else [0.0]
    return np.concatenate([STATE[states[t]], of_action, [0.0] if edge is None else EDGE[edge]])


def key(states: list[int], actions: list[int], t: int) -> tuple[int, int, int]:
    return states[t], actions[t], states[t + 1]


def test_steps_are_states_in_the_last_of_which_nothing_is_chosen():
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
def test_features_are_the_means_of_those_of_the_demonstrations(features):
    mdp = patchy(**features)
    agents = Agents.from_demonstrations(mdp, demos(groups=GROUPS))
    each = demos().features(mdp)
    wanted = [each[[1, 3]].mean(axis=0), each[[0, 2, 4]].mean(axis=0)]
    np.testing.assert_allclose(agents.features(mdp.gamma), wanted, rtol=1e-12)


def test_groups_given_come_before_those_of_the_demonstrations():
    agents = Agents.from_demonstrations(patchy(), demos(groups=GROUPS), [7, 7, 5, 5, 5])
    assert agents.names.tolist() == [5, 7]
    assert [len(agent.live) for agent in agents] == [3, 2]


def test_actions_that_follow_from_the_states_need_no_recording():
    mdp = MDP.from_edges([0, 0, 1], [1, 2, 2], n_states=3, state_features=np.eye(3))
    bare = Demonstrations.from_lists([[0, 1, 2], [0, 2]], groups=[0, 0])
    agent = Agents.from_demonstrations(mdp, bare)[0]
    assert agent.actions[agent.live].tolist() == [0, 0, 1]


def test_features_of_one_s_own():
    mdp = patchy()
    for given in (-STATE, sparse.csr_array(-STATE)):
        agents = Agents.from_demonstrations(mdp, demos(), GROUPS, policy_features=given, reward_features=given)
        np.testing.assert_array_equal(agents[0].policy_features[0, :3], -STATE[STATES[1]])
        np.testing.assert_array_equal(agents[0].reward_features[0, :3], -STATE[STATES[1]])
    agents = Agents.from_demonstrations(mdp, demos(), GROUPS, reward_features=-ACTION)
    wanted = [-ACTION[1, 1], -ACTION[0, 0], [0.0], [0.0], [0.0]]  # the last state has no action, and it is padded
    np.testing.assert_array_equal(agents[0].reward_features[0], wanted)


def test_a_model_learns_from_them():
    world = ElementWorld(n_elements=2, wind=0.1)
    recorded, intents = world.sample(240, seed=1)
    recorded = recorded[np.argsort(intents, kind="stable")]
    agents = Agents.from_demonstrations(
        world.mdp, recorded, np.arange(240) // 30, reward_features=-world.mdp.state_features
    )
    assert agents.labels.tolist() == [0] * 4 + [1] * 4
    found = IntentMixture(2, SigmaGIRL(gamma=world.gamma), random_state=0).fit(None, agents).labels_
    np.testing.assert_array_equal(found == found[0], agents.labels == 0)


def test_an_agent_has_one_label():
    labelled = demos(labels=[1, 0, 1, 0, 1])
    assert Agents.from_demonstrations(patchy(), labelled, GROUPS).labels.tolist() == [0, 1]
    assert Agents.from_demonstrations(patchy(), demos(labels=list("xyxyx")), GROUPS).labels.tolist() == ["y", "x"]
    with raises(InvalidDemos, parameter="labels", value=0, index=4):
        Agents.from_demonstrations(patchy(), demos(labels=[1, 0, 1, 0, 0]), GROUPS)


def test_what_cannot_be_made_into_agents():
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
        (InvalidParameter, {"reward_features": [["far"]] * 4}, {"parameter": "reward_features", "value": None}),
        (
            InvalidDemos,
            {"reward_features": np.full((4, 1), np.nan)},
            {"parameter": "reward_features", "index": (0, 0, 0, 0)},
        ),
    ],
)
def test_features_that_do_not_fit(kind, given, expected):
    with raises(kind, **expected):
        Agents.from_demonstrations(patchy(), demos(), GROUPS, **given)


def test_features_that_an_mdp_has_by_itself():
    mdp = MDP.from_edges([0, 1], [1, 2], n_states=3)
    agents = Agents.from_demonstrations(mdp, Demonstrations.from_lists([[0, 1, 2], [0, 1]], groups=[0, 0]))
    np.testing.assert_array_equal(agents[0].reward_features, agents[0].policy_features)
