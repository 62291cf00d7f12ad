"""Features and dynamics of demonstrations against loops that follow the definitions."""

import numpy as np
import pytest
from scipy.sparse import csr_array

from limiirl.demos import Demonstrations
from limiirl.errors import InvalidDemos
from limiirl.mdp import MDP
from tests.demos.test_transitions import hide_some, random_start, random_table, random_walks
from tests.helpers import raises

KINDS = ("state_features", "action_features", "edge_features")


def random_features(rng, S, A, by_action=True):
    """Features of all three kinds; without `by_action`, actions that join the same states cannot be told apart."""
    phi_s, phi_a, phi_e = rng.normal(size=(S, 2)), rng.normal(size=(S, A, 3)), rng.normal(size=(S, A, S, 2))
    phi_e[rng.random(phi_e.shape) < 0.5] = 0
    if not by_action:
        phi_a[:], phi_e[:] = phi_a[:, :1], phi_e[:, :1]
    return dict(zip(KINDS, (phi_s, phi_a, phi_e), strict=True))


def with_sparse_features(mdp):
    return mdp.replace(**{kind: csr_array(getattr(mdp, kind)) for kind in KINDS if getattr(mdp, kind) is not None})


def naive_features(states, actions, phi, gamma):
    rows = []
    for walk, taken in zip(states, actions, strict=True):
        parts = [np.zeros(phi[kind].shape[-1]) if kind in phi else np.zeros(0) for kind in KINDS]
        for t, s in enumerate(walk):
            if "state_features" in phi:
                parts[0] += gamma**t * phi["state_features"][s]
            if t < len(taken) and "action_features" in phi:
                parts[1] += gamma**t * phi["action_features"][s, taken[t]]
            if t < len(taken) and "edge_features" in phi:
                parts[2] += gamma**t * phi["edge_features"][s, taken[t], walk[t + 1]]
        rows.append(np.concatenate(parts))
    return np.array(rows)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("gamma", [0.5, 0.9, 1.0])
@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("kinds", [KINDS, KINDS[:1], KINDS[1:2], KINDS[2:], KINDS[1:]], ids="+".join)
def test_features_of_recorded_actions(seed, gamma, deterministic, kinds):
    rng = np.random.default_rng([seed, deterministic])
    T, p0 = random_table(rng, deterministic=deterministic), random_start(rng)
    phi = {kind: x for kind, x in random_features(rng, *T.shape[:2]).items() if kind in kinds}
    states, actions = random_walks(rng, T, p0)
    expected = naive_features(states, actions, phi, gamma)
    demos = Demonstrations.from_lists(states, actions)
    dense = MDP.from_dense(T, p0, gamma=gamma, **phi)
    for mdp in (dense, with_sparse_features(dense)):
        features = demos.features(mdp)
        assert features.shape == (30, mdp.n_features)
        assert features.dtype == np.float64
        assert features.flags.c_contiguous
        np.testing.assert_allclose(features, expected, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("recorded", ["some", "none"])
def test_features_of_unrecorded_actions_that_cannot_be_told_apart(seed, deterministic, recorded):
    rng = np.random.default_rng([seed, deterministic])
    T, p0 = random_table(rng, deterministic=deterministic), random_start(rng)
    phi = random_features(rng, *T.shape[:2], by_action=False)
    states, actions = random_walks(rng, T, p0)
    demos = Demonstrations.from_lists(states, hide_some(rng, actions) if recorded == "some" else None)
    dense = MDP.from_dense(T, p0, gamma=0.9, **phi)
    assert demos.steps(dense).ambiguous.size > 0
    for mdp in (dense, with_sparse_features(dense)):
        expected = naive_features(states, actions, phi, 0.9)
        np.testing.assert_allclose(demos.features(mdp), expected, rtol=1e-13, atol=1e-13)


def two_ways(sparse, **features):
    """0 -> 1 by actions 0 and 1, 1 -> 2 by action 0 alone."""
    mdp = MDP.from_edges([0, 0, 1], [1, 1, 2], n_states=3, action=[0, 1, 0], p0=[0.5, 0.5, 0], gamma=0.5, **features)
    return with_sparse_features(mdp) if sparse else mdp


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("kind", ["action_features", "edge_features"])
def test_unrecorded_actions_with_different_features_have_none(sparse, kind):
    states, actions = [[1, 2], [0, 1, 2], [0, 1]], [[0], [1, 0], [0]]
    differing = two_ways(sparse, **{kind: [[1.0, 3.0], [1.5, 2.5], [7.0, 0.0]]})
    with raises(InvalidDemos, parameter="demos", index=(1, 0)):
        Demonstrations.from_lists(states).features(differing)
    # Once the actions are known, or where the ambiguous step does not occur, there is nothing to ask.
    recorded = Demonstrations.from_lists(states, actions).features(differing)
    np.testing.assert_array_equal(recorded, [[7, 0], [5, 2.5], [1, 3]])
    np.testing.assert_array_equal(Demonstrations.from_lists(states[:1]).features(differing), [[7, 0]])
    equal = two_ways(sparse, **{kind: [[1.0, 3.0], [1.0, 3.0], [7.0, 0.0]]})
    np.testing.assert_array_equal(Demonstrations.from_lists(states).features(equal), [[7, 0], [4.5, 3], [1, 3]])


def test_the_error_names_the_first_step_whose_own_candidates_differ():
    # Both 0 -> 1 and 1 -> 2 are ambiguous; only the actions of 1 -> 2 can be told apart by a feature.
    mdp = MDP.from_edges(
        [0, 0, 1, 1], [1, 1, 2, 2], n_states=3, action=[0, 1, 0, 1], edge_features=[[1.0], [1.0], [2.0], [3.0]]
    )
    demos = Demonstrations.from_lists([[0, 1], [0, 1, 2], [1, 2]])
    with raises(InvalidDemos, parameter="demos", index=(1, 1)):
        demos.features(mdp)


def test_state_features_alone_need_no_actions():
    mdp = two_ways(False, state_features=np.eye(3))
    np.testing.assert_array_equal(Demonstrations.from_lists([[0, 1, 2]]).features(mdp), [[1, 0.5, 0.25]])


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("recorded", ["all", "some", "none"])
def test_log_q_sums_over_unrecorded_actions(seed, deterministic, recorded):
    rng = np.random.default_rng([seed, deterministic])
    T, p0 = random_table(rng, deterministic=deterministic), random_start(rng)
    states, actions = random_walks(rng, T, p0)
    if recorded != "all":
        actions = hide_some(rng, actions) if recorded == "some" else [[-1] * len(x) for x in actions]
    expected = []
    for walk, taken in zip(states, actions, strict=True):
        q = np.log(p0[walk[0]])
        for t, a in enumerate(taken):
            q += np.log(T[walk[t], :, walk[t + 1]].sum() if a < 0 else T[walk[t], a, walk[t + 1]])
        expected.append(q)
    log_q = Demonstrations.from_lists(states, actions).log_q(MDP.from_dense(T, p0))
    assert log_q.shape == (30,)
    np.testing.assert_allclose(log_q, expected, rtol=1e-13, atol=1e-13)


def test_log_q_of_two_sure_actions_is_log_2():
    mdp = two_ways(False)
    log_q = Demonstrations.from_lists([[0, 1], [1, 2], [0]]).log_q(mdp)
    np.testing.assert_allclose(log_q, np.log([0.5 * 2, 0.5, 0.5]), rtol=1e-15, atol=1e-15)


def test_statistics_without_demonstrations_or_without_edges():
    mdp = two_ways(False, action_features=[[1.0], [2.0], [3.0]])
    empty = Demonstrations.from_lists([])
    assert empty.features(mdp).shape == (0, 1)
    assert empty.log_q(mdp).shape == (0,)
    still = MDP.from_edges([], [], n_states=2, p0=[0.25, 0.75])
    demos = Demonstrations.from_lists([[0], [1]])
    np.testing.assert_array_equal(demos.features(still), np.eye(2))
    np.testing.assert_allclose(demos.log_q(still), np.log([0.25, 0.75]), rtol=1e-15)


def test_long_demonstrations_are_discounted_to_the_end():
    mdp = MDP.from_edges([0], [0], n_states=1, gamma=0.999, state_features=[[1.0]], edge_features=[[1.0]])
    features = Demonstrations.from_lists([[0] * 5000]).features(mdp)
    expected = [(1 - 0.999**5000) / 0.001, (1 - 0.999**4999) / 0.001]
    np.testing.assert_allclose(features, [expected], rtol=1e-11)
