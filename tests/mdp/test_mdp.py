"""MDP: derived indices, immutability, equality, copies, summary and validation."""

import copy
import dataclasses
import pickle

import numpy as np
import pytest
from scipy import sparse

from limiirl.errors import InvalidMDP
from limiirl.mdp import MDP
from tests.helpers import raises


def random_mdp(seed):
    rng = np.random.default_rng(seed)
    T = rng.random((8, 3, 8)) * (rng.random((8, 3, 8)) < 0.4)
    T[7] = 0.0
    return MDP.from_dense(T, normalise=True, gamma=0.95, state_features=rng.normal(size=(8, 2)))


def small():
    """A fork: 0 -> 1 or 2 by one action, 0 -> 2 by another, 1 -> 2; 2 is terminal."""
    return MDP.from_edges(
        [0, 0, 0, 1],
        [1, 2, 2, 2],
        action=[0, 0, 1, 0],
        prob=[0.25, 0.75, 1.0, 1.0],
        gamma=0.9,
        state_features=[[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]],
        action_features=[[1.0], [1.0], [2.0], [3.0]],
        edge_features=sparse.csr_array([[0.0], [4.0], [0.0], [5.0]]),
    )


@pytest.mark.parametrize("seed", range(5))
def test_pointers_list_each_edge_once_in_both_directions(seed):
    mdp = random_mdp(seed)
    for s in range(mdp.n_states):
        leaving = np.arange(mdp.out_ptr[s], mdp.out_ptr[s + 1])
        np.testing.assert_array_equal(leaving, np.flatnonzero(mdp.src == s))
        entering = mdp.in_order[mdp.in_ptr[s] : mdp.in_ptr[s + 1]]
        np.testing.assert_array_equal(np.sort(entering), np.flatnonzero(mdp.dst == s))
    keys = list(zip(mdp.dst[mdp.in_order], mdp.src[mdp.in_order], mdp.act[mdp.in_order], strict=True))
    assert keys == sorted(keys)
    assert (mdp.out_ptr.dtype, mdp.in_ptr.dtype, mdp.in_order.dtype) == (np.int64, np.int64, np.int32)


@pytest.mark.parametrize("seed", range(5))
def test_pairs_are_the_distinct_state_action_combinations(seed):
    mdp = random_mdp(seed)
    pairs = sorted(set(zip(mdp.src.tolist(), mdp.act.tolist(), strict=True)))
    assert list(zip(mdp.pair_state.tolist(), mdp.pair_action.tolist(), strict=True)) == pairs
    assert mdp.n_pairs == len(pairs)
    np.testing.assert_array_equal(mdp.pair_state[mdp.pair_of_edge], mdp.src)
    np.testing.assert_array_equal(mdp.pair_action[mdp.pair_of_edge], mdp.act)
    assert {mdp.pair_of_edge.dtype, mdp.pair_state.dtype, mdp.pair_action.dtype} == {np.dtype(np.int32)}


def test_counts():
    mdp = small()
    assert (mdp.n_states, mdp.n_edges, mdp.n_actions, mdp.n_pairs, mdp.n_features) == (3, 4, 2, 3, 4)
    assert not mdp.deterministic
    assert MDP.from_edges([0], [1]).deterministic


def test_mdp_is_immutable():
    mdp = small()
    with pytest.raises(dataclasses.FrozenInstanceError):
        mdp.gamma = 0.5
    arrays = [getattr(mdp, name) for name in ("src", "act", "dst", "prob", "p0", "terminal", "state_features")]
    arrays += [mdp.action_features, mdp.edge_features.data, mdp.edge_features.indices, mdp.edge_features.indptr]
    arrays += [mdp.out_ptr, mdp.in_ptr, mdp.in_order, mdp.pair_of_edge, mdp.pair_state, mdp.pair_action]
    for array in arrays:
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


CHANGES = {
    "gamma": 0.8,
    "p0": [0.0, 1.0, 0.0],
    "prob": [0.5, 0.5, 1.0, 1.0],
    "state_features": np.zeros((3, 2)),
    "action_features": [[1.0], [2.0], [4.0]],
    "edge_features": sparse.csr_array([[0.0], [4.0], [0.0], [6.0]]),
    "feature_names": ["a", "b", "c", "d"],
    "state_names": ["x", "y", "z"],
    "action_names": ["go", "stay", "hide"],
    "src": [0, 0, 1, 1],
    "act": [0, 0, 2, 0],
    "dst": [0, 2, 2, 2],
}


@pytest.mark.parametrize("field", CHANGES)
def test_equality_and_fingerprint_see_every_field(field):
    mdp = small()
    changes = {field: CHANGES[field]}
    if field == "src":
        changes |= {"act": [0, 0, 0, 1], "prob": [0.5, 0.5, 1.0, 1.0], "action_features": [[1.0], [2.0], [3.0]]}
    other = mdp.replace(**changes)
    assert other != mdp
    assert other.fingerprint() != mdp.fingerprint()
    assert mdp == small()


def test_equality_sees_terminal_states_and_storage():
    loop = MDP.from_edges([0], [1], n_states=3)
    dense, stored = (loop.replace(state_features=kind(np.eye(3))) for kind in (np.array, sparse.csr_array))
    assert dense != stored
    assert stored == loop
    assert loop != "an MDP"
    assert MDP.from_edges([], [], 1) != MDP.from_edges([0], [0], 1)


def test_fingerprint_is_stable_across_sessions():
    assert small().fingerprint() == "e151ba9cd849c1d7"
    assert hash(small()) == hash(small())


def test_sign_of_zero_does_not_matter():
    plus, minus = (MDP.from_edges([0], [1], state_features=[[zero], [1.0]]) for zero in (0.0, -0.0))
    assert plus == minus
    assert plus.fingerprint() == minus.fingerprint()
    assert len({plus, minus}) == 1


def through_pickle(mdp):
    # As joblib does between processes.
    return pickle.loads(pickle.dumps(mdp))


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, through_pickle])
def test_copies_are_equal_and_frozen(duplicate):
    mdp = small()
    assert mdp.n_pairs == 3
    twin = duplicate(mdp)
    assert twin == mdp
    assert not twin.prob.flags.writeable
    assert not twin.edge_features.data.flags.writeable


def test_replace_validates():
    with raises(InvalidMDP, parameter="gamma", value=2):
        small().replace(gamma=2)
    with raises(InvalidMDP, parameter="discount", value=0.5):
        small().replace(discount=0.5)


def test_replace_keeps_names_of_features_that_keep_their_number():
    mdp = small().replace(feature_names=["u", "v", "go", "far"])
    assert mdp.replace(gamma=0.5).feature_names == ("u", "v", "go", "far")
    assert mdp.replace(state_features=np.ones((3, 2))).feature_names == ("u", "v", "go", "far")
    assert mdp.replace(state_features=[1, 2, 3]).feature_names == ("state[0]", "go", "far")
    assert mdp.replace(action_features=None).feature_names == ("u", "v", "far")
    wider = mdp.replace(edge_features=np.ones((4, 2)))
    assert wider.feature_names == ("u", "v", "go", "edge[0]", "edge[1]")
    bare = mdp.replace(state_features=None, action_features=None, edge_features=None)
    assert bare.feature_names == ("state[0]", "state[1]", "state[2]")


def test_replace_shares_unchanged_arrays():
    mdp = small()
    assert mdp.replace(gamma=0.5).state_features is mdp.state_features
    assert mdp.replace(gamma=0.5).edge_features is mdp.edge_features


def test_summary_of_a_stochastic_mdp():
    assert repr(small()).splitlines() == [
        "MDP: 3 states (1 terminal), 2 actions, 4 edges, discount 0.9",
        "  transitions: stochastic, 1 to 2 actions per state, up to 2 outcomes per action",
        "  starts: 2 states",
        "  features: 2 on states (dense), 1 on actions (dense), 1 on edges (sparse)",
    ]


def test_summary_counts_unreachable_states():
    mdp = MDP.from_edges([0, 2, 3, 1], [1, 0, 3, 1], p0=[1, 0, 0, 0])
    assert "starts: 1 state; 2 states unreachable" in repr(mdp)
    assert "transitions: deterministic, 1 action per state" in repr(mdp)
    assert "unreachable" not in repr(mdp.replace(p0=[0, 0, 0.5, 0.5]))


def test_summary_without_transitions():
    assert repr(MDP.from_edges([], [], 1)).splitlines()[:2] == [
        "MDP: 1 state (1 terminal), 0 actions, 0 edges, discount 1",
        "  transitions: none",
    ]


CANONICAL = {
    "src": [0, 0, 1],
    "act": [0, 0, 0],
    "dst": [1, 2, 2],
    "prob": [0.25, 0.75, 1.0],
    "p0": [1.0, 0.0, 0.0],
    "gamma": 0.9,
    "terminal": [False, False, True],
}
BAD = [
    ({"dst": [2, 1, 2]}, {"parameter": "src", "index": 1}),
    ({"dst": [1, 1, 2]}, {"parameter": "src", "index": 1}),
    ({"src": [0, 1, 0]}, {"parameter": "src", "index": 2}),
    ({"prob": [0.0, 1.0, 1.0]}, {"parameter": "prob", "value": 0.0, "index": 0}),
    ({"prob": [0.25, 0.7, 1.0]}, {"parameter": "prob", "value": 0.95, "index": (0, 0)}),
    ({"terminal": [False, True, True]}, {"parameter": "terminal", "value": 1, "index": 2}),
    ({"terminal": [False, False, False]}, {"parameter": "terminal", "value": 2}),
    ({"dst": [1, 3, 2]}, {"parameter": "dst", "value": 3, "index": 1}),
    ({"action_features": [[1.0], [2.0], [3.0]]}, {"parameter": "action_features", "value": (3, 1)}),
    ({"action_features": [[1.0], [np.inf]]}, {"parameter": "action_features", "index": (1, 0)}),
    ({"edge_features": [[1.0], [2.0]]}, {"parameter": "edge_features", "value": (2, 1)}),
    ({"p0": []}, {"parameter": "n_states", "value": 0}),
]


@pytest.mark.parametrize(("changes", "expected"), BAD)
def test_constructor_requires_canonical_arrays(changes, expected):
    assert MDP(**CANONICAL).n_edges == 3
    with raises(InvalidMDP, **expected):
        MDP(**(CANONICAL | changes))
