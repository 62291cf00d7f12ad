"""MDP.from_dense: what it builds, and what it refuses."""

import re

import numpy as np
import pytest
from scipy import sparse

from limiirl.errors import InvalidMDP
from limiirl.mdp import MDP


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
    (changed((1, 0, 2), 0.93), "T rows must sum to 1; state 1, action 0 sums to 0.93. Pass normalise=True"),
    (
        changed((1, 0, 0), -0.5),
        "Probabilities must lie in [0, 1]; T at state 1, action 0, next state 0 has -0.5. Correct",
    ),
    (changed((0, 0, 2), np.nan), "T at state 0, action 0, next state 2 has nan. Correct"),
    (changed((0, 0, 2), np.inf), "T at state 0, action 0, next state 2 has inf. Correct"),
    (changed((0, 0, 1), 4.0), "T at state 0, action 0, next state 1 has 4.0. Pass normalise=True"),
    (np.zeros((3, 3)), "T must have shape (S, A, S); it has shape (3, 3). Index it as T[s, a, s']"),
    (np.zeros((3, 1, 2)), "T must have shape (S, A, S); it has shape (3, 1, 2)"),
    (np.zeros((0, 1, 0)), "An MDP needs 1 to 2147483647 states; n_states is 0. Pass n_states, or an edge"),
    ([[["a"]]], "T must be an array of real numbers"),
]


@pytest.mark.parametrize(("T", "message"), BAD_TABLES, ids=[message[:40] for _, message in BAD_TABLES])
def test_bad_tables_are_refused(T, message):
    with pytest.raises(InvalidMDP, match=re.escape(message)):
        MDP.from_dense(T)


@pytest.mark.parametrize("value", [np.nan, np.inf, -1.0])
def test_normalise_does_not_hide_entries_that_are_no_counts(value):
    with pytest.raises(InvalidMDP, match=r"T at state 0, action 0, next state 2 has"):
        MDP.from_dense(changed((0, 0, 2), value), normalise=True)


BAD_OPTIONS = [
    ({"p0": [0.5, 0.5]}, "p0 must have one entry a state, shape (3,); it has shape (2,). Give 0 to states"),
    ({"p0": [1.5, -0.5, 0.0]}, "p0 must be finite and not negative; state 1 has -0.5. Replace that entry"),
    ({"p0": [0.0, 0.0, np.nan]}, "p0 must be finite and not negative; state 2 has nan. Replace"),
    ({"p0": [np.inf, 0.0, 0.0]}, "p0 must be finite and not negative; state 0 has inf. Replace"),
    ({"p0": [0.5, 0.4, 0.0]}, "p0 must sum to 1; it sums to 0.9 over 3 states. Divide it by its sum"),
    ({"gamma": 0.0}, "The discount must lie in (0, 1]; gamma is 0.0. Use 1.0"),
    ({"gamma": 1.01}, "The discount must lie in (0, 1]; gamma is 1.01"),
    ({"gamma": float("nan")}, "The discount must lie in (0, 1]; gamma is nan"),
    ({"gamma": "high"}, "The discount must lie in (0, 1]; gamma is 'high'"),
    (
        {"terminal": [False, True]},
        "terminal must have one entry a state, shape (3,); the mask has shape (2,). Give a mask",
    ),
    ({"terminal": [5]}, "terminal states must lie in 0..2; entry 0 is 5. Integers are read as state indices"),
    ({"terminal": [-1]}, "terminal states must lie in 0..2; entry 0 is -1"),
    (
        {"terminal": [0, 0, 1]},
        "it names state 0 2 times. Integers are read as state indices: name each state once, or pass",
    ),
    ({"terminal": [0.0, 1.0]}, "terminal must hold integers; its dtype is float64. Convert"),
    (
        {"terminal": [1]},
        "A state that is not terminal needs an outgoing edge; state 2 has none (1 in all). Add it to terminal",
    ),
    ({"terminal": []}, "A state that is not terminal needs an outgoing edge; state 2 has none"),
    ({"state_features": np.zeros((4, 2))}, "state_features must have 3 rows; it has 4. Give one row a state"),
    ({"state_features": np.zeros((3, 2, 1))}, "state_features must have two dimensions here"),
    ({"state_features": np.zeros((3, 0))}, "An MDP needs at least one feature"),
    (
        {"state_features": [[0.0], [1.0], [np.nan]]},
        "state_features must be finite; state 2, column 0 is nan. Replace it",
    ),
    ({"state_features": [["x"], ["y"], ["z"]]}, "state_features must be an array of real numbers"),
    ({"state_features": [1 + 1j, 0, 0]}, "state_features must be an array of real numbers (dtype complex128)"),
    (
        {"state_features": sparse.csr_array([[0.0, 0.0], [0.0, np.inf], [0.0, 0.0]])},
        "state_features must be finite; state 1, column 1 is inf. Replace it",
    ),
    ({"action_features": np.zeros((3, 2, 1))}, "action_features must have shape (3, 1, d); it has shape (3, 2, 1)"),
    ({"action_features": sparse.csr_array((4, 1))}, "Sparse action_features must have 3 rows"),
    (
        {"action_features": [[[0.0]], [[np.nan]], [[0.0]]]},
        "action_features must be finite; state 1, action 0, column 0 is nan",
    ),
    ({"edge_features": np.zeros((3, 1))}, "edge_features must have shape (3, 1, 3, d); it has shape (3, 1)"),
    (
        {"edge_features": np.full((3, 1, 3, 1), np.nan)},
        "edge_features must be finite; edge 0 (state 0, action 0, next state 1), column 0 is nan",
    ),
    ({"feature_names": ["a"]}, "feature_names must have one entry a feature, 3; it has 1. Give one name for each"),
    ({"feature_names": "abc"}, "feature_names must be a sequence of strings; got the string 'abc'. Put it in a list"),
    ({"feature_names": ["a", "b", 3]}, "feature_names must be strings; entry 2 is 3. Convert it with str()"),
    ({"state_names": ["a", "b"]}, "state_names must have one entry a state, 3; it has 2"),
]


@pytest.mark.parametrize(("options", "message"), BAD_OPTIONS, ids=[message[:50] for _, message in BAD_OPTIONS])
def test_bad_options_are_refused(options, message):
    with pytest.raises(InvalidMDP, match=re.escape(message)):
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
    with pytest.raises(InvalidMDP, match=r"next state 1 has 1\.00000002"):
        MDP.from_dense(T)
