"""MDP.from_dense and MDP.from_edges: construction, defaults and errors."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from limiirl.errors import InvalidMDP
from limiirl.mdp import MDP
from tests.helpers import examples, raises


def random_table(seed, n_states=6, n_actions=3):
    """A table with state-dependent action sets, self-loops and two terminal states at the end."""
    rng = np.random.default_rng(seed)
    T = rng.random((n_states, n_actions, n_states)) * (rng.random((n_states, n_actions, n_states)) < 0.5)
    T[rng.random((n_states, n_actions)) < 0.3] = 0.0
    T[:, 0, :] = rng.random((n_states, n_states))
    T /= np.where(T.sum(axis=2, keepdims=True) > 0, T.sum(axis=2, keepdims=True), 1.0)
    T[-2:] = 0.0
    return T


def rebuild(mdp, shape):
    T = np.zeros(shape)
    for s, a, t, p in zip(mdp.src, mdp.act, mdp.dst, mdp.prob, strict=True):
        assert T[s, a, t] == 0.0
        T[s, a, t] = p
    return T


def chain():
    """States 0 -> 1 -> 2, the last terminal; one action."""
    T = np.zeros((3, 1, 3))
    T[0, 0, 1] = T[1, 0, 2] = 1.0
    return T


@pytest.mark.parametrize("seed", range(10))
def test_from_dense_preserves_the_table(seed):
    T = random_table(seed)
    mdp = MDP.from_dense(T, gamma=0.9)
    np.testing.assert_array_equal(rebuild(mdp, T.shape), T)
    np.testing.assert_array_equal(mdp.terminal, [False] * 4 + [True] * 2)
    np.testing.assert_array_equal(mdp.p0, [0.25] * 4 + [0.0] * 2)


def test_types_and_order_are_canonical():
    mdp = MDP.from_dense(random_table(0).astype(np.float64))
    assert mdp.src.dtype == mdp.act.dtype == mdp.dst.dtype == np.int32
    assert mdp.prob.dtype == mdp.p0.dtype == np.float64
    edges = list(zip(mdp.src.tolist(), mdp.act.tolist(), mdp.dst.tolist(), strict=True))
    assert edges == sorted(set(edges))
    assert mdp.gamma == 0.99


def test_edges_out_of_terminal_states_are_dropped():
    T = chain()
    T[2, 0, 2] = 1.0
    looping = MDP.from_dense(T)
    assert not looping.terminal.any()
    assert looping.n_edges == 3
    stopping = MDP.from_dense(T, terminal=[False, False, True])
    assert stopping.n_edges == 2
    assert stopping == MDP.from_dense(T, terminal=[2])
    assert stopping == MDP.from_dense(chain())


def test_rows_of_terminal_states_need_not_sum_to_one():
    T = chain()
    T[2, 0, 2] = 0.3
    assert MDP.from_dense(T, terminal=[2]) == MDP.from_dense(chain())


def test_default_start_is_uniform_if_all_states_are_terminal():
    mdp = MDP.from_dense(np.zeros((4, 2, 4)))
    np.testing.assert_array_equal(mdp.p0, [0.25] * 4)
    assert mdp.n_edges == mdp.n_actions == mdp.n_pairs == 0


def test_normalise_converts_counts_to_frequencies():
    counts = np.zeros((2, 2, 2))
    counts[0, 0] = [3, 1]
    counts[0, 1] = [0, 7]
    counts[1, 1] = [2, 2]
    mdp = MDP.from_dense(counts, normalise=True)
    np.testing.assert_array_equal(mdp.prob, [0.75, 0.25, 1.0, 0.5, 0.5])
    np.testing.assert_array_equal(mdp.pair_action, [0, 1, 1])


@pytest.mark.parametrize("as_sparse", [False, True])
def test_features_are_indexed_by_state_action_and_target(as_sparse):
    T = random_table(3)
    S, A, _ = T.shape
    rng = np.random.default_rng(1)
    on_state, on_action, on_edge = rng.normal(size=(S, 2)), rng.normal(size=(S, A, 3)), rng.normal(size=(S, A, S, 2))
    given = (on_state, on_action, on_edge)
    if as_sparse:
        given = tuple(sparse.coo_array(x.reshape(-1, x.shape[-1])) for x in given)
    mdp = MDP.from_dense(T, state_features=given[0], action_features=given[1], edge_features=given[2])
    kept = [mdp.state_features, mdp.action_features, mdp.edge_features]
    assert all(sparse.issparse(x) == as_sparse for x in kept)
    on_pairs, on_edges = (x.toarray() if as_sparse else x for x in kept[1:])
    np.testing.assert_array_equal(on_pairs, on_action[mdp.pair_state, mdp.pair_action])
    np.testing.assert_array_equal(on_edges, on_edge[mdp.src, mdp.act, mdp.dst])
    assert mdp.feature_names == ("state[0]", "state[1]", "action[0]", "action[1]", "action[2]", "edge[0]", "edge[1]")


def test_arrays_without_a_last_axis_are_one_feature():
    T = chain()
    mdp = MDP.from_dense(
        T, state_features=[1, 2, 3], action_features=[[4], [5], [6]], edge_features=np.arange(9.0).reshape(3, 1, 3)
    )
    np.testing.assert_array_equal(mdp.state_features, [[1.0], [2.0], [3.0]])
    np.testing.assert_array_equal(mdp.action_features, [[4.0], [5.0]])
    np.testing.assert_array_equal(mdp.edge_features, [[1.0], [5.0]])


def change(index, value):
    T = chain()
    T[index] = value
    return T


BAD_TABLES = [
    (change((1, 0, 2), 0.93), {"parameter": "prob", "value": 0.93, "index": (1, 0)}),
    (
        change((1, 0, 0), -0.5),
        {"parameter": "T", "value": -0.5, "index": (1, 0, 0)},
    ),
    (change((0, 0, 2), np.nan), {"parameter": "T", "index": (0, 0, 2)}),
    (change((0, 0, 2), np.inf), {"parameter": "T", "index": (0, 0, 2)}),
    (change((0, 0, 1), 4.0), {"parameter": "T", "value": 4.0, "index": (0, 0, 1)}),
    (np.zeros((3, 3)), {"parameter": "T", "value": (3, 3)}),
    (np.zeros((3, 1, 2)), {"parameter": "T", "value": (3, 1, 2)}),
    (np.zeros((0, 1, 0)), {"parameter": "n_states", "value": 0}),
    ([[["a"]]], {"parameter": "T"}),
]


@pytest.mark.parametrize(("T", "expected"), BAD_TABLES)
def test_invalid_tables_are_rejected(T, expected):
    with raises(InvalidMDP, **expected):
        MDP.from_dense(T)


@pytest.mark.parametrize("value", [np.nan, np.inf, -1.0])
def test_normalise_still_rejects_invalid_entries(value):
    with raises(InvalidMDP, parameter="T", index=(0, 0, 2)):
        MDP.from_dense(change((0, 0, 2), value), normalise=True)


BAD_OPTIONS = [
    ({"p0": [0.5, 0.5]}, {"parameter": "p0", "value": (2,)}),
    ({"p0": [1.5, -0.5, 0.0]}, {"parameter": "p0", "value": -0.5, "index": 1}),
    ({"p0": [0.0, 0.0, np.nan]}, {"parameter": "p0", "index": 2}),
    ({"p0": [np.inf, 0.0, 0.0]}, {"parameter": "p0", "index": 0}),
    ({"p0": [0.5, 0.4, 0.0]}, {"parameter": "p0", "value": 0.9}),
    ({"gamma": 0.0}, {"parameter": "gamma", "value": 0.0}),
    ({"gamma": 1.01}, {"parameter": "gamma", "value": 1.01}),
    ({"gamma": float("nan")}, {"parameter": "gamma"}),
    ({"gamma": "high"}, {"parameter": "gamma", "value": "high"}),
    (
        {"terminal": [False, True]},
        {"parameter": "terminal", "value": (2,)},
    ),
    ({"terminal": [5]}, {"parameter": "terminal", "value": 5, "index": 0}),
    ({"terminal": [-1]}, {"parameter": "terminal", "value": -1, "index": 0}),
    (
        {"terminal": [0, 0, 1]},
        {"parameter": "terminal", "value": 0},
    ),
    ({"terminal": [0.0, 1.0]}, {"parameter": "terminal"}),
    (
        {"terminal": [1]},
        {"parameter": "terminal", "value": 2},
    ),
    ({"terminal": []}, {"parameter": "terminal", "value": 2}),
    ({"state_features": np.zeros((4, 2))}, {"parameter": "state_features", "value": (4, 2)}),
    ({"state_features": np.zeros((3, 2, 1))}, {"parameter": "state_features", "value": (3, 2, 1)}),
    ({"state_features": np.zeros((3, 0))}, {"parameter": "state_features", "value": 0}),
    (
        {"state_features": [[0.0], [1.0], [np.nan]]},
        {"parameter": "state_features", "index": (2, 0)},
    ),
    ({"state_features": [["x"], ["y"], ["z"]]}, {"parameter": "state_features"}),
    ({"state_features": [1 + 1j, 0, 0]}, {"parameter": "state_features"}),
    (
        {"state_features": sparse.csr_array([[0.0, 0.0], [0.0, np.inf], [0.0, 0.0]])},
        {"parameter": "state_features", "index": (1, 1)},
    ),
    ({"action_features": np.zeros((3, 2, 1))}, {"parameter": "action_features", "value": (3, 2, 1)}),
    ({"action_features": sparse.csr_array((4, 1))}, {"parameter": "action_features", "value": (4, 1)}),
    (
        {"action_features": [[[0.0]], [[np.nan]], [[0.0]]]},
        {"parameter": "action_features", "index": (1, 0)},
    ),
    ({"edge_features": np.zeros((3, 1))}, {"parameter": "edge_features", "value": (3, 1)}),
    (
        {"edge_features": np.full((3, 1, 3, 1), np.nan)},
        {"parameter": "edge_features", "index": (0, 0)},
    ),
    ({"feature_names": ["a"]}, {"parameter": "feature_names", "value": 1}),
    ({"feature_names": "abc"}, {"parameter": "feature_names", "value": "abc"}),
    ({"feature_names": ["a", "b", 3]}, {"parameter": "feature_names", "value": 3, "index": 2}),
    ({"state_names": ["a", "b"]}, {"parameter": "state_names", "value": 2}),
    ({"state_names": ["a", "b", "a"]}, {"parameter": "state_names", "value": "a", "index": 2}),
    ({"action_names": []}, {"parameter": "action_names", "value": 0}),
    ({"action_names": ["go", 1]}, {"parameter": "action_names", "value": 1, "index": 1}),
]


@pytest.mark.parametrize(("options", "expected"), BAD_OPTIONS)
def test_invalid_options_are_rejected(options, expected):
    with raises(InvalidMDP, **expected):
        MDP.from_dense(chain(), **options)


def test_nan_features_of_unavailable_actions_are_ignored():
    on_action = np.full((3, 1, 1), np.nan)
    on_action[:2] = 1.0
    np.testing.assert_array_equal(MDP.from_dense(chain(), action_features=on_action).action_features, [[1.0], [1.0]])


def test_rounding_of_rows_is_tolerated_but_never_exceeds_one():
    T = chain()
    T[0, 0, 1] = 1.0 + 1e-12
    mdp = MDP.from_dense(T)
    assert mdp.prob.max() == 1.0
    T[0, 0, 1] = 1.0 + 2e-8
    with raises(InvalidMDP, parameter="T", value=1.00000002, index=(0, 0, 1)):
        MDP.from_dense(T)


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
def test_order_of_edges_does_not_matter(seed, as_sparse):
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
def test_features_are_sorted_with_their_edges(seed):
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


def test_default_is_one_action_per_edge():
    mdp = MDP.from_edges([2, 0, 2, 0, 2], [0, 1, 0, 3, 2])
    assert mdp.deterministic
    assert mdp.gamma == 1.0
    assert mdp.n_states == 4
    np.testing.assert_array_equal(mdp.src, [0, 0, 2, 2, 2])
    np.testing.assert_array_equal(mdp.act, [0, 1, 0, 1, 2])
    np.testing.assert_array_equal(mdp.dst, [1, 3, 0, 0, 2])
    np.testing.assert_array_equal(mdp.terminal, [False, True, False, True])
    np.testing.assert_array_equal(mdp.p0, [0.5, 0.0, 0.5, 0.0])


def test_default_features_are_state_indicators():
    mdp = MDP.from_edges([0, 1], [1, 2])
    assert sparse.issparse(mdp.state_features)
    np.testing.assert_array_equal(mdp.state_features.toarray(), np.eye(3))
    assert mdp.feature_names == ("state[0]", "state[1]", "state[2]")
    only_edges = MDP.from_edges([0, 1], [1, 2], edge_features=[1.0, 2.0])
    assert only_edges.state_features is None
    assert only_edges.feature_names == ("edge[0]",)


def test_n_states_adds_states_without_an_edge():
    mdp = MDP.from_edges([0], [1], n_states=4)
    assert mdp.n_states == 4
    np.testing.assert_array_equal(mdp.terminal, [False, True, True, True])
    lonely = MDP.from_edges([], [], n_states=2)
    np.testing.assert_array_equal(lonely.p0, [0.5, 0.5])
    assert lonely.n_edges == 0


def test_edges_of_probability_zero_are_dropped_with_their_features():
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


def test_normalise_accepts_counts():
    mdp = MDP.from_edges([0, 0, 0], [0, 1, 1], action=[0, 0, 1], prob=[30, 10, 5], normalise=True)
    np.testing.assert_array_equal(mdp.prob, [0.75, 0.25, 1.0])


@pytest.mark.parametrize("kind", [np.int8, np.uint16, np.int64, np.uint64])
def test_any_integer_dtype_is_accepted(kind):
    assert MDP.from_edges(np.array([0, 1], dtype=kind), np.array([1, 0], dtype=kind)) == MDP.from_edges([0, 1], [1, 0])


@pytest.mark.parametrize("make", [sparse.csr_matrix, sparse.csc_array, sparse.coo_matrix, sparse.lil_array])
def test_any_sparse_format_is_accepted(make):
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
def test_invalid_edges_are_rejected(changes, expected):
    with raises(InvalidMDP, **expected):
        MDP.from_edges(**(BASE | changes))


def test_empty_edge_list_without_n_states_is_rejected():
    with raises(InvalidMDP, parameter="n_states", value=0):
        MDP.from_edges([], [])


def test_error_index_is_the_position_in_the_input():
    # Sorted, the bad feature stands at row 0 and the duplicates are neighbours; the caller knows them by other numbers.
    with raises(InvalidMDP, parameter="edge_features", index=(2, 1)):
        MDP.from_edges([2, 1, 0], [0, 0, 1], edge_features=[[0, 0], [0, 0], [0, np.inf]])
    with raises(InvalidMDP, parameter="src", index=(0, 3)):
        MDP.from_edges([1, 0, 2, 1], [0, 0, 0, 0], action=[0, 0, 0, 0], prob=[0.5, 1, 1, 0.5])


def test_input_arrays_are_not_modified():
    features = np.ones((2, 1))
    src = np.array([0])
    mdp = MDP.from_edges(src, [1], state_features=features)
    features[:] = 7.0
    src[:] = 1
    np.testing.assert_array_equal(mdp.state_features, [[1.0], [1.0]])
    np.testing.assert_array_equal(mdp.src, [0])
