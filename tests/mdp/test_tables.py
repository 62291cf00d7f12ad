"""MDP.from_dense: what it builds, and what it refuses."""

import numpy as np
import pytest
from scipy import sparse

from limiirl.errors import InvalidMDP
from limiirl.mdp import MDP
from tests.helpers import raises


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
def test_table_comes_back_exactly(seed):
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


def test_all_states_terminal_start_anywhere():
    mdp = MDP.from_dense(np.zeros((4, 2, 4)))
    np.testing.assert_array_equal(mdp.p0, [0.25] * 4)
    assert mdp.n_edges == mdp.n_actions == mdp.n_pairs == 0


def test_normalise_turns_counts_into_frequencies():
    counts = np.zeros((2, 2, 2))
    counts[0, 0] = [3, 1]
    counts[0, 1] = [0, 7]
    counts[1, 1] = [2, 2]
    mdp = MDP.from_dense(counts, normalise=True)
    np.testing.assert_array_equal(mdp.prob, [0.75, 0.25, 1.0, 0.5, 0.5])
    np.testing.assert_array_equal(mdp.pair_action, [0, 1, 1])


@pytest.mark.parametrize("as_sparse", [False, True])
def test_features_are_picked_by_state_action_and_target(as_sparse):
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


def changed(index, value):
    T = chain()
    T[index] = value
    return T


BAD_TABLES = [
    (changed((1, 0, 2), 0.93), {"parameter": "prob", "value": 0.93, "index": (1, 0)}),
    (
        changed((1, 0, 0), -0.5),
        {"parameter": "T", "value": -0.5, "index": (1, 0, 0)},
    ),
    (changed((0, 0, 2), np.nan), {"parameter": "T", "index": (0, 0, 2)}),
    (changed((0, 0, 2), np.inf), {"parameter": "T", "index": (0, 0, 2)}),
    (changed((0, 0, 1), 4.0), {"parameter": "T", "value": 4.0, "index": (0, 0, 1)}),
    (np.zeros((3, 3)), {"parameter": "T", "value": (3, 3)}),
    (np.zeros((3, 1, 2)), {"parameter": "T", "value": (3, 1, 2)}),
    (np.zeros((0, 1, 0)), {"parameter": "n_states", "value": 0}),
    ([[["a"]]], {"parameter": "T"}),
]


@pytest.mark.parametrize(("T", "expected"), BAD_TABLES)
def test_bad_tables_are_refused(T, expected):
    with raises(InvalidMDP, **expected):
        MDP.from_dense(T)


@pytest.mark.parametrize("value", [np.nan, np.inf, -1.0])
def test_normalise_does_not_hide_entries_that_are_no_counts(value):
    with raises(InvalidMDP, parameter="T", index=(0, 0, 2)):
        MDP.from_dense(changed((0, 0, 2), value), normalise=True)


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
]


@pytest.mark.parametrize(("options", "expected"), BAD_OPTIONS)
def test_bad_options_are_refused(options, expected):
    with raises(InvalidMDP, **expected):
        MDP.from_dense(chain(), **options)


def test_nan_features_of_unavailable_actions_do_not_matter():
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
