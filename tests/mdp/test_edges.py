"""MDP.from_edges: order does not matter, defaults are filled in, and errors count edges as the caller does."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from limiirl.errors import InvalidMDP
from limiirl.mdp import MDP
from tests.helpers import examples, raises


def random_edges(seed, n_states=7, n_actions=3):
    """Random distinct edges with probabilities that sum to one over each (s, a), and features of all three kinds."""
    rng = np.random.default_rng(seed)
    present = rng.random((n_states, n_actions, n_states)) < 0.35
    present[0, 0, 0] = True
    src, act, dst = np.nonzero(present)
    weight = rng.integers(1, 8, size=src.size).astype(float)
    total = np.zeros((n_states, n_actions))
    np.add.at(total, (src, act), weight)
    by_pair = rng.normal(size=(n_states, n_actions, 2))
    return {
        "src": src,
        "dst": dst,
        "action": act,
        "prob": weight / total[src, act],
        "edge_features": rng.normal(size=(src.size, 3)),
        "action_features": by_pair[src, act],
        "n_states": n_states,
        "state_features": rng.normal(size=(n_states, 2)),
    }


PER_EDGE = ("src", "dst", "action", "prob", "edge_features", "action_features")


@settings(max_examples=examples(60), deadline=None)
@given(seed=st.integers(0, 10**6), as_sparse=st.booleans())
def test_the_order_of_the_edges_does_not_matter(seed, as_sparse):
    edges = random_edges(seed)
    order = np.random.default_rng(seed + 1).permutation(edges["src"].size)
    shuffled = edges | {name: edges[name][order] for name in PER_EDGE}
    if as_sparse:
        for name in ("edge_features", "action_features", "state_features"):
            edges[name], shuffled[name] = sparse.csr_array(edges[name]), sparse.coo_array(shuffled[name])
    one, other = MDP.from_edges(**edges), MDP.from_edges(**shuffled)
    assert one == other
    assert one.fingerprint() == other.fingerprint()


@pytest.mark.parametrize("seed", range(5))
def test_features_follow_their_edges(seed):
    edges = random_edges(seed)
    order = np.random.default_rng(99).permutation(edges["src"].size)
    mdp = MDP.from_edges(**(edges | {name: edges[name][order] for name in PER_EDGE}))
    # random_edges lists the edges in canonical order, so that each array must come back as it was made.
    np.testing.assert_array_equal(mdp.src, edges["src"])
    np.testing.assert_array_equal(mdp.act, edges["action"])
    np.testing.assert_array_equal(mdp.dst, edges["dst"])
    np.testing.assert_array_equal(mdp.prob, edges["prob"])
    np.testing.assert_array_equal(mdp.edge_features, edges["edge_features"])
    np.testing.assert_array_equal(mdp.action_features[mdp.pair_of_edge], edges["action_features"])


def test_action_features_may_be_indexed_by_state_and_action():
    by_pair = np.arange(12.0).reshape(3, 2, 2)
    mdp = MDP.from_edges([1, 0, 0], [2, 2, 1], action=[1, 1, 0], action_features=by_pair)
    np.testing.assert_array_equal(mdp.action_features, [by_pair[0, 0], by_pair[0, 1], by_pair[1, 1]])


def test_agrees_with_the_dense_constructor():
    edges = random_edges(4)
    T = np.zeros((7, 3, 7))
    T[edges["src"], edges["action"], edges["dst"]] = edges["prob"]
    sparse_one = MDP.from_edges(edges["src"], edges["dst"], 7, edges["action"], edges["prob"], gamma=0.9)
    assert sparse_one == MDP.from_dense(T, gamma=0.9)


def test_every_edge_is_an_action_of_its_own_by_default():
    mdp = MDP.from_edges([2, 0, 2, 0, 2], [0, 1, 0, 3, 2])
    assert mdp.deterministic
    assert mdp.gamma == 1.0
    assert mdp.n_states == 4
    np.testing.assert_array_equal(mdp.src, [0, 0, 2, 2, 2])
    np.testing.assert_array_equal(mdp.act, [0, 1, 0, 1, 2])
    np.testing.assert_array_equal(mdp.dst, [1, 3, 0, 0, 2])
    np.testing.assert_array_equal(mdp.terminal, [False, True, False, True])
    np.testing.assert_array_equal(mdp.p0, [0.5, 0.0, 0.5, 0.0])


def test_without_features_rewards_are_one_a_state():
    mdp = MDP.from_edges([0, 1], [1, 2])
    assert sparse.issparse(mdp.state_features)
    np.testing.assert_array_equal(mdp.state_features.toarray(), np.eye(3))
    assert mdp.feature_names == ("state[0]", "state[1]", "state[2]")
    only_edges = MDP.from_edges([0, 1], [1, 2], edge_features=[1.0, 2.0])
    assert only_edges.state_features is None
    assert only_edges.feature_names == ("edge[0]",)


def test_states_without_an_edge_exist_when_asked_for():
    mdp = MDP.from_edges([0], [1], n_states=4)
    assert mdp.n_states == 4
    np.testing.assert_array_equal(mdp.terminal, [False, True, True, True])
    lonely = MDP.from_edges([], [], n_states=2)
    np.testing.assert_array_equal(lonely.p0, [0.5, 0.5])
    assert lonely.n_edges == 0


def test_impossible_edges_are_dropped_with_their_features():
    mdp = MDP.from_edges(
        [0, 0, 1], [1, 2, 2], action=[0, 0, 0], prob=[0.0, 1.0, 1.0], edge_features=[1.0, 2.0, 3.0], terminal=[2]
    )
    np.testing.assert_array_equal(mdp.edge_features, [[2.0], [3.0]])
    never = MDP.from_edges([0, 1], [1, 0], action=[0, 0], prob=[1.0, 0.0])
    np.testing.assert_array_equal(never.terminal, [False, True])


def test_edges_out_of_terminal_states_are_dropped_with_their_features():
    mdp = MDP.from_edges([1, 0], [0, 1], terminal=[1], edge_features=[5.0, 6.0], action_features=[7.0, 8.0])
    np.testing.assert_array_equal(mdp.edge_features, [[6.0]])
    np.testing.assert_array_equal(mdp.action_features, [[8.0]])


def test_normalise_takes_counts():
    mdp = MDP.from_edges([0, 0, 0], [0, 1, 1], action=[0, 0, 1], prob=[30, 10, 5], normalise=True)
    np.testing.assert_array_equal(mdp.prob, [0.75, 0.25, 1.0])


@pytest.mark.parametrize("kind", [np.int8, np.uint16, np.int64, np.uint64])
def test_any_integer_type_will_do(kind):
    assert MDP.from_edges(np.array([0, 1], dtype=kind), np.array([1, 0], dtype=kind)) == MDP.from_edges([0, 1], [1, 0])


@pytest.mark.parametrize("make", [sparse.csr_matrix, sparse.csc_array, sparse.coo_matrix, sparse.lil_array])
def test_any_sparse_format_will_do(make):
    dense = np.array([[0.0, 2.0], [1.0, 0.0], [0.0, 0.0]])
    mdp = MDP.from_edges([0, 1], [1, 2], state_features=make(dense.astype(np.float32)))
    assert isinstance(mdp.state_features, sparse.csr_array)
    assert mdp.state_features.dtype == np.float64
    np.testing.assert_array_equal(mdp.state_features.toarray(), dense)


def test_sparse_features_become_canonical():
    # Column 1 is given twice, unsorted, with a stored zero: equal content must be equal in memory.
    untidy = sparse.csr_array(
        (np.array([1.0, 2.0, 0.0, 4.0]), np.array([1, 1, 0, 0]), np.array([0, 3, 4])), shape=(2, 2)
    )
    tidy = sparse.csr_array(np.array([[0.0, 3.0], [4.0, 0.0]]))
    mdp = MDP.from_edges([0], [1], state_features=untidy)
    assert mdp == MDP.from_edges([0], [1], state_features=tidy)
    np.testing.assert_array_equal(mdp.state_features.data, [3.0, 4.0])
    for array in (untidy.data, untidy.indices, untidy.indptr):
        array.flags.writeable = False
    assert MDP.from_edges([0], [1], state_features=untidy) == mdp


BASE = {"src": [0, 0, 1], "dst": [1, 2, 2], "action": [0, 0, 0], "prob": [0.25, 0.75, 1.0]}
BAD = [
    ({"prob": [0.25, 0.68, 1.0]}, {"parameter": "prob", "value": 0.93, "index": (0, 0)}),
    ({"prob": [0.25, -0.75, 1.0]}, {"parameter": "prob", "value": -0.75, "index": 1}),
    ({"prob": [0.25, np.nan, 1.0]}, {"parameter": "prob", "index": 1}),
    ({"prob": [0.25, 0.75, np.inf]}, {"parameter": "prob", "index": 2}),
    ({"prob": [0.25, 0.75, 2.0]}, {"parameter": "prob", "value": 2.0, "index": 2}),
    ({"prob": [0.25, 0.75]}, {"parameter": "prob", "value": (2,)}),
    ({"prob": None}, {"parameter": "prob", "index": (0, 1)}),
    ({"action": None}, {"parameter": "prob", "value": 0.25, "index": 0}),
    ({"action": [0, -1, 0]}, {"parameter": "action", "value": -1, "index": 1}),
    ({"action": [0, 0]}, {"parameter": "src", "value": (3, 2, 3)}),
    ({"action": [0.0, 0.0, 0.0]}, {"parameter": "action"}),
    ({"src": [0, -1, 1]}, {"parameter": "src", "value": -1, "index": 1}),
    ({"n_states": 2}, {"parameter": "dst", "value": 2, "index": 1}),
    ({"src": [0.0, 0.0, 1.0]}, {"parameter": "src"}),
    ({"dst": [True, False, True]}, {"parameter": "dst"}),
    ({"src": [[0, 0, 1]]}, {"parameter": "src", "value": (1, 3)}),
    ({"n_states": 0}, {"parameter": "n_states", "value": 0}),
    ({"n_states": 2.5}, {"parameter": "n_states", "value": 2.5}),
    ({"dst": [1, 1, 2]}, {"parameter": "src", "index": (0, 1)}),
    ({"state_features": np.zeros((5, 1))}, {"parameter": "state_features", "value": (5, 1)}),
    ({"edge_features": np.zeros((2, 1))}, {"parameter": "edge_features", "value": (2, 1)}),
    ({"edge_features": [0.0, np.nan, 0.0]}, {"parameter": "edge_features", "index": (1, 0)}),
    ({"action_features": [1.0, 2.0, 3.0]}, {"parameter": "action_features", "index": (0, 1)}),
    (
        {"action_features": sparse.csr_array([[1.0], [0.0], [3.0]])},
        {"parameter": "action_features", "index": (0, 1)},
    ),
    ({"action_features": np.zeros((2, 1, 1))}, {"parameter": "action_features", "value": (2, 1, 1)}),
    ({"terminal": [True, False]}, {"parameter": "terminal", "value": (2,)}),
]


@pytest.mark.parametrize(("changes", "expected"), BAD)
def test_bad_edges_are_refused(changes, expected):
    with raises(InvalidMDP, **expected):
        MDP.from_edges(**(BASE | changes))


def test_no_edges_and_no_number_of_states_is_refused():
    with raises(InvalidMDP, parameter="n_states", value=0):
        MDP.from_edges([], [])


def test_messages_count_edges_as_the_caller_does():
    # Sorted, the bad feature stands at row 0 and the duplicates are neighbours; the caller knows them by other numbers.
    with raises(InvalidMDP, parameter="edge_features", index=(2, 1)):
        MDP.from_edges([2, 1, 0], [0, 0, 1], edge_features=[[0, 0], [0, 0], [0, np.inf]])
    with raises(InvalidMDP, parameter="src", index=(0, 3)):
        MDP.from_edges([1, 0, 2, 1], [0, 0, 0, 0], action=[0, 0, 0, 0], prob=[0.5, 1, 1, 0.5])


def test_caller_keeps_the_arrays():
    features = np.ones((2, 1))
    src = np.array([0])
    mdp = MDP.from_edges(src, [1], state_features=features)
    features[:] = 7.0
    src[:] = 1
    np.testing.assert_array_equal(mdp.state_features, [[1.0], [1.0]])
    np.testing.assert_array_equal(mdp.src, [0])
