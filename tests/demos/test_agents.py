"""Agents: recorded batches, padded, checked once, selected and compared; and those that were released."""

import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from limiirl.demos.agents import Agent, Agents
from limiirl.errors import InvalidDemos, InvalidFile, InvalidParameter
from tests.helpers import raises

RNG = np.random.default_rng(0)
X, A, PHI = RNG.normal(size=(2, 4, 5, 3)), RNG.normal(size=(2, 4, 5, 1)), RNG.normal(size=(2, 4, 5, 2))


def two(**known) -> Agents:
    return Agents.from_arrays(list(X), list(A), list(PHI), **known)


def test_arrays_are_kept_and_cannot_be_changed():
    agents = two(names=["ann", "bob"], labels=[0, 1])
    assert (len(agents), agents.n_policy_features, agents.n_reward_features, agents.discrete) == (2, 3, 2, False)
    np.testing.assert_array_equal(agents[1].policy_features, X[1])
    np.testing.assert_array_equal(agents[1].actions, A[1])
    np.testing.assert_array_equal(agents[1].reward_features, PHI[1])
    assert agents[0].live.all()
    for part in agents[0]:
        assert not part.flags.writeable
    assert X.flags.writeable


def test_float32_and_small_integers_become_the_library_s_types():
    agents = Agents.from_arrays([X[0].astype(np.float32)], [A[0, :, :, 0].astype(np.int8) ** 2], [PHI[0] > 0])
    assert agents.discrete
    assert (agents[0].policy_features.dtype, agents[0].actions.dtype) == (np.float64, np.int64)
    assert agents[0].reward_features.dtype == np.float64


def test_short_trajectories_end_without_choice_and_reward():
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


def test_policy_features_count_only_where_the_agent_chose():
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


def broken(part: str, value: float = np.nan, agent: int = 1) -> dict[str, list[np.ndarray]]:
    given = {"policy_features": list(X.copy()), "actions": list(A.copy()), "reward_features": list(PHI.copy())}
    given[part][agent][2, 3, 0] = value
    return given


@pytest.mark.parametrize("part", ["policy_features", "actions", "reward_features"])
def test_error_for_nan_has_its_index(part):
    with raises(InvalidDemos, parameter=part, index=(1, 2, 3, 0)):
        Agents.from_arrays(**broken(part))


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


def test_the_released_agents_are_read(shared_data: Callable[[str], Path]):
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
