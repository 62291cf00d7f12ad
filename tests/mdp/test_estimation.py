"""Dynamics estimated from recordings, against counts by hand and by loop."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import polars as pl
import pytest

from limiirl.errors import InvalidDemos, InvalidParameter
from limiirl.mdp import MDP
from tests.helpers import raises

# Three runs in a corridor 0, 1, 2, 3. In state 1: action 0 led to 2, 2 and 0; action 1 led to 0. State 3 is never left.
STATES = [[0, 1, 2, 3], [0, 1, 2, 3], [1, 0, 1, 0]]
ACTIONS = [[0, 0, 0, -1], [0, 0, 2, -1], [0, 0, 1, -1]]


def frame(states=STATES, actions=ACTIONS, make=pd.DataFrame):
    rows = {
        "demo": [i for i, run in enumerate(states) for _ in run],
        "t": [t for run in states for t in range(len(run))],
        "state": [s for run in states for s in run],
    }
    if actions is not None:
        rows["action"] = [a for run in actions for a in run]
    return make(rows)


def flat(states=STATES, actions=ACTIONS):
    """An object with the flat arrays of Demonstrations."""
    return SimpleNamespace(
        states=np.concatenate(states),
        actions=None if actions is None else np.concatenate(actions),
        offsets=np.cumsum([0] + [len(run) for run in states]),
    )


def edges(mdp):
    return {(int(s), int(a), int(t)): float(p) for s, a, t, p in zip(mdp.src, mdp.act, mdp.dst, mdp.prob, strict=True)}


def test_smoothed_frequencies_by_hand():
    mdp = MDP.from_demonstrations(frame(), smoothing=0.5)
    expected = {
        (0, 0, 1): 1.0,
        (1, 0, 0): (1 + 0.5) / (3 + 1.0),
        (1, 0, 2): (2 + 0.5) / (3 + 1.0),
        # Nobody saw action 1 lead to 2, but 2 follows 1 under action 0.
        (1, 1, 0): (1 + 0.5) / (1 + 1.0),
        (1, 1, 2): (0 + 0.5) / (1 + 1.0),
        (2, 0, 3): 1.0,
        (2, 2, 3): 1.0,
    }
    assert edges(mdp).keys() == expected.keys()
    for edge, prob in expected.items():
        assert edges(mdp)[edge] == pytest.approx(prob, rel=1e-15)
    np.testing.assert_array_equal(mdp.terminal, [False, False, False, True])
    np.testing.assert_allclose(mdp.p0, [2.5 / 5, 1.5 / 5, 0.5 / 5, 0.5 / 5], rtol=1e-15, atol=0)
    assert mdp.gamma == 1.0


def test_without_smoothing_only_what_was_seen():
    mdp = MDP.from_demonstrations(frame(), smoothing=0)
    assert edges(mdp) == {
        (0, 0, 1): 1.0,
        (1, 0, 0): 1 / 3,
        (1, 0, 2): 2 / 3,
        (1, 1, 0): 1.0,
        (2, 0, 3): 1.0,
        (2, 2, 3): 1.0,
    }
    np.testing.assert_array_equal(mdp.p0, [2 / 3, 1 / 3, 0.0, 0.0])


def test_without_actions_each_move_is_an_action():
    mdp = MDP.from_demonstrations(frame(actions=None))
    assert edges(mdp) == {(0, 0, 1): 1.0, (1, 0, 0): 1.0, (1, 1, 2): 1.0, (2, 0, 3): 1.0}
    np.testing.assert_allclose(mdp.p0, np.array([2.1, 1.1, 0.1, 0.1]) / 3.4, rtol=1e-15, atol=0)


@pytest.mark.parametrize("actions", [ACTIONS, None])
def test_frames_and_demonstrations_agree(actions):
    mdp = MDP.from_demonstrations(frame(actions=actions))
    assert MDP.from_demonstrations(flat(actions=actions)) == mdp
    assert MDP.from_demonstrations(frame(actions=actions, make=pl.DataFrame)) == mdp


@pytest.mark.parametrize("seed", range(5))
def test_frequencies_equal_a_loop(seed):
    rng = np.random.default_rng(seed)
    states = [rng.integers(0, 6, size=rng.integers(1, 12)) for _ in range(15)]
    actions = [np.append(rng.integers(0, 3, size=run.size - 1), -1) for run in states]
    mdp = MDP.from_demonstrations(flat(states, actions), n_states=8, smoothing=0.3)
    counts, successors = {}, {}
    for run, choices in zip(states, actions, strict=True):
        for s, a, t in zip(run[:-1].tolist(), choices[:-1].tolist(), run[1:].tolist(), strict=True):
            counts[s, a, t] = counts.get((s, a, t), 0) + 1
            successors.setdefault(s, set()).add(t)
    expected = {}
    for s, a in {(s, a) for s, a, _ in counts}:
        weights = {t: counts.get((s, a, t), 0) + 0.3 for t in successors[s]}
        expected |= {(s, a, t): weight / sum(weights.values()) for t, weight in weights.items()}
    estimated = edges(mdp)
    assert estimated.keys() == expected.keys()
    for edge, prob in expected.items():
        assert estimated[edge] == pytest.approx(prob, rel=1e-13)
    starts = np.full(8, 0.3)
    for run in states:
        starts[run[0]] += 1
    np.testing.assert_allclose(mdp.p0, starts / starts.sum(), rtol=1e-14, atol=0)
    np.testing.assert_array_equal(mdp.terminal, [s not in successors for s in range(8)])


def test_features_are_attached():
    phi = np.arange(12.0).reshape(6, 2)
    on_action = np.arange(18.0).reshape(6, 3, 1)
    mdp = MDP.from_demonstrations(
        frame(), gamma=0.9, state_features=phi, action_features=on_action, feature_names=["x", "y", "z"]
    )
    # The features say that there are six states, although only four were visited.
    assert mdp.n_states == 6
    np.testing.assert_array_equal(mdp.terminal, [False, False, False, True, True, True])
    np.testing.assert_array_equal(mdp.state_features, phi)
    np.testing.assert_array_equal(mdp.action_features, on_action[mdp.pair_state, mdp.pair_action])
    assert mdp.feature_names == ("x", "y", "z")
    assert mdp.gamma == 0.9
    longer = mdp.replace(edge_features=np.ones((mdp.n_edges, 1)))
    assert longer.feature_names == ("x", "y", "z", "edge[0]")


@pytest.mark.parametrize("actions", [[[-1]], None])
def test_recordings_without_a_move(actions):
    mdp = MDP.from_demonstrations(flat([[2]], actions), smoothing=0)
    assert mdp.n_edges == 0
    np.testing.assert_array_equal(mdp.p0, [0.0, 0.0, 1.0])


@pytest.mark.parametrize("smoothing", [-0.1, np.nan, np.inf, "much"])
def test_bad_smoothing_is_refused(smoothing):
    with raises(InvalidParameter, parameter="smoothing", value=smoothing):
        MDP.from_demonstrations(frame(), smoothing=smoothing)


def test_states_outside_are_named():
    with raises(InvalidDemos, parameter="states", value=3, index=(0, 3)):
        MDP.from_demonstrations(frame(), n_states=3)
    with raises(InvalidDemos, parameter="states", value=3, index=(0, 3)):
        MDP.from_demonstrations(frame(), state_features=np.ones((3, 1)))
    with raises(InvalidDemos, parameter="states", value=-2, index=(1, 1)):
        MDP.from_demonstrations(flat([[0, 1], [0, -2]], None))


def test_bad_tables_are_refused_like_demonstrations():
    with raises(InvalidDemos, parameter="df", value="state"):
        MDP.from_demonstrations(frame().drop(columns="state"))
