"""Edge features of habits."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from limiirl.demos import Demonstrations, with_history
from limiirl.errors import InvalidParameter
from limiirl.irl import MaxCausalEnt
from limiirl.irl.causal.state_actions import StateActions
from limiirl.mdp import MDP, EdgeFeatures, add_edge_features, policy_features, sequence_features, turn_features
from tests.helpers import examples, raises

# A binary tree of depth 2.
TREE = MDP.from_edges([0, 0, 1, 1, 1, 2, 2, 2, 3, 4, 5, 6], [1, 2, 0, 3, 4, 0, 5, 6, 1, 1, 2, 2], n_states=7)


def grid(n):
    """Return an n x n grid with staying, and its coordinates (y points upwards)."""
    cells = [(x, y) for y in range(n) for x in range(n)]
    moves = [(0, 0), (1, 0), (-1, 0), (0, 1), (0, -1)]
    edges = [
        (i, cells.index((x + a, y + b))) for i, (x, y) in enumerate(cells) for a, b in moves if (x + a, y + b) in cells
    ]
    return MDP.from_edges(*zip(*edges, strict=True)), np.array(cells, dtype=float)


def augment(mdp, order, keep=True):
    demos = Demonstrations.from_lists([[int(mdp.src[0])]])
    if not keep:
        path = [int(mdp.src[0])]
        for _ in range(order):
            path.append(int(mdp.dst[mdp.out_ptr[path[-1]]]))
        demos = Demonstrations.from_lists([path])
    return with_history(mdp, demos, order, keep_starts=keep)[0]


def active(mdp, block):
    """Return {states from the oldest to the next: names of the features that are not 0}, for each edge."""
    values = block.values.toarray()
    rows = [[s for s in row if s >= 0][::-1] for row in mdp.history.tolist()]
    keys = [(*rows[s], int(mdp.history[t, 0])) for s, t in zip(mdp.src, mdp.dst, strict=True)]
    return {key: {block.names[j] for j in np.flatnonzero(row)} for key, row in zip(keys, values, strict=True)}


def fit(mdp, demos, ridge):
    """Return the fitted parameters, without the warning that some of them are not identified."""
    return MaxCausalEnt(ridge=ridge, gtol=1e-9).fit_many(mdp, demos, np.ones((len(demos), 1)))[0]


def test_turns_of_a_grid():
    mdp, xy = grid(3)
    longer = augment(mdp, 2)
    turns = active(longer, turn_features(longer, xy=xy))
    # Cells are numbered by row: 0 1 2 / 3 4 5 / 6 7 8, with row 0 at the bottom.
    assert turns[3, 4, 5] == {"straight"}
    assert turns[3, 4, 7] == {"left"}
    assert turns[3, 4, 1] == {"right"}
    assert turns[3, 4, 3] == {"turning back"}
    assert turns[3, 4, 4] == {"staying"}
    assert turns[4, 4] == {"staying"}
    assert turns[4, 4, 5] == set()  # no direction before
    assert turns[4, 5] == set()
    assert turns[0, 1, 4, 5] == {"right", "alternating"}
    assert turns[0, 1, 4, 3] == {"left"}
    assert turns[2, 1, 4, 3] == {"left", "alternating"}
    assert turns[3, 3, 4, 7] == {"left"}


def test_consecutive_turns():
    mdp, xy = grid(3)
    longer = augment(mdp, 2, keep=False)
    turns = active(longer, turn_features(longer, xy=xy, n_turns=2))
    assert turns[0, 1, 4, 5] == {"right after left"}
    assert turns[0, 1, 4, 1] == {"turning back after left"}
    assert turns[0, 1, 1, 1] == {"staying after staying"}
    assert turns[0, 1, 1, 4] == set()


def test_turns_of_a_tree():
    longer = augment(TREE, 2)
    turns = active(longer, turn_features(longer, root=0))
    assert turns[0, 1, 3] == {"down 1"}
    assert turns[0, 1, 4] == {"down 2"}
    assert turns[0, 1, 0] == {"back up"}
    assert turns[4, 1, 4] == {"back down 2"}
    assert turns[4, 1, 0] == {"up from 2"}
    assert turns[3, 1, 4] == {"across 1 to 2"}
    assert turns[1, 0, 2, 6] == {"down 2"}
    assert turns[0, 1, 3, 1] == {"back up"}


def test_alternation_and_shape_of_a_tree():
    deep = MDP.from_edges([0, 0, 1, 1, 2, 3, 4, 3, 3, 5, 6], [1, 2, 3, 4, 0, 1, 1, 5, 6, 3, 3])
    longer = augment(deep, 2)
    turns = active(longer, turn_features(longer, root=0))
    assert turns[0, 1, 3, 6] == {"down 2", "alternating"}
    assert turns[0, 1, 3, 5] == {"down 1"}
    assert turns[1, 3, 6] == {"down 2"}
    cycle = augment(MDP.from_edges([0, 1, 2], [1, 2, 0]), 1)
    with raises(InvalidParameter, parameter="root", value=0):
        turn_features(cycle, root=0)


def test_turns_of_a_graph_per_group():
    longer = augment(TREE, 1)
    depth = np.floor(np.log2(np.arange(7) + 1)).astype(int)
    block = turn_features(longer, per=depth, scale=2.0)
    assert block.names == ("turning back, 0", "turning back, 1", "turning back, 2")
    assert active(longer, block)[3, 1, 3] == {"turning back, 1"}
    np.testing.assert_array_equal(block.values.data, 2.0)


def test_turns_that_distinguish_no_edges_are_omitted():
    ring = augment(MDP.from_edges([0, 1, 2], [1, 2, 0]), 1)
    block = turn_features(ring)
    assert block.names == ()
    assert add_edge_features(ring, block) is ring


@settings(max_examples=examples(30))
@given(st.integers(0, 10**6), st.integers(1, 4), st.booleans())
def test_sequences_partition_the_edges_with_enough_history(seed, length, actions):
    rng = np.random.default_rng(seed)
    src, dst = rng.integers(0, 4, 9), rng.integers(0, 4, 9)
    mdp = MDP.from_edges(src, dst, n_states=4)  # parallel edges have different actions
    longer = augment(mdp, 2) if mdp.n_edges else mdp
    block = sequence_features(longer, length, actions=actions, scale=3.0)
    history = longer.history
    sequence = np.column_stack([history[longer.dst, 0], history[longer.src]])[:, :length]
    complete = np.all(sequence >= 0, axis=1)
    np.testing.assert_array_equal(block.values.sum(axis=1), np.where(complete, 3.0, 0.0))
    keys = [(*row, a if actions else 0) for row, a in zip(sequence.tolist(), longer.act.tolist(), strict=True)]
    column = {}
    for i in np.flatnonzero(complete):
        column.setdefault(keys[i], set()).add(int(block.values[[i]].indices[0]))
    assert all(len(columns) == 1 for columns in column.values())
    assert len(block.names) == len({min(columns) for columns in column.values()}) == len(column)


def test_names_of_sequences():
    mdp = MDP.from_edges([0, 0, 1], [1, 1, 0], state_names=["den", "pond"], action_names=["walk", "run"])
    longer = augment(mdp, 1)
    assert sequence_features(longer, 3).names == ("den > pond > den", "pond > den > pond")
    assert sequence_features(longer, 2, actions=True).names[:2] == ("den > pond (walk)", "den > pond (run)")
    assert sequence_features(mdp, 1).names == ("den", "pond")


def test_bad_arguments():
    mdp, xy = grid(2)
    longer = augment(mdp, 1)
    with raises(InvalidParameter, parameter="length", value=4):
        sequence_features(longer, 4)
    with raises(InvalidParameter, parameter="scale", value=0.0):
        sequence_features(longer, 2, scale=0.0)
    with raises(InvalidParameter, parameter="n_turns", value=2):
        turn_features(longer, n_turns=2)
    with raises(InvalidParameter, parameter="n_turns", value=1):
        turn_features(mdp)
    with raises(InvalidParameter, parameter="xy", value=(3, 2)):
        turn_features(longer, xy=xy[:3])
    with raises(InvalidParameter, parameter="per", value=(3,)):
        turn_features(longer, per=[0, 1, 2])
    with raises(InvalidParameter, parameter="root", value=0):
        turn_features(longer, root=0)  # a grid has cycles
    with raises(InvalidParameter, parameter="root", value=0):
        turn_features(longer, xy=xy, root=0)
    with raises(InvalidParameter, parameter="blocks", index=0):
        add_edge_features(longer, sequence_features(mdp, 2))


def test_a_scale_divides_the_ridge_by_its_square():
    longer = augment(TREE, 1).replace(gamma=0.5)
    demos = MaxCausalEnt().sample(longer, np.zeros(longer.n_features), 20, seed=0, max_length=20)
    base = longer.replace(state_features=None, edge_features=np.zeros((longer.n_edges, 1)))
    rewards = []
    for scale, ridge in ((0.5, 0.1), (1.0, 0.4)):
        mdp = add_edge_features(base, sequence_features(base, 3, scale=scale))
        rewards.append(scale * fit(mdp, demos, ridge)[1:])
    np.testing.assert_allclose(rewards[0], rewards[1], rtol=0, atol=1e-6)


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array])
def test_sparse_edge_features_stay_sparse_and_agree_with_dense_ones(kind):
    longer = augment(TREE, 1)
    own = np.random.default_rng(0).normal(size=(longer.n_edges, 1))
    mdp = add_edge_features(longer.replace(edge_features=kind(own), gamma=0.9), sequence_features(longer, 3))
    assert sparse.issparse(mdp.edge_features)
    assert all(sparse.issparse(features) for features in StateActions(mdp).pair_features)
    dense = mdp.replace(edge_features=mdp.edge_features.toarray())
    demos = MaxCausalEnt().sample(mdp, np.zeros(mdp.n_features), 20, seed=0, max_length=20)
    one, other = (fit(m, demos, 0.1) for m in (mdp, dense))
    np.testing.assert_allclose(one, other, rtol=0, atol=1e-7)


def test_many_sparse_features_need_no_dense_matrix():
    """A dense matrix (edges, features) would have 3.2 GB."""
    n = 20_000
    mdp = MDP.from_edges(np.arange(n), (np.arange(n) + 1) % n, n_states=n)
    mdp = add_edge_features(mdp, sequence_features(mdp, 2))
    assert mdp.edge_features.nnz == mdp.n_edges
    assert all(features.nnz == n for features in StateActions(mdp).pair_features)
    assert EdgeFeatures(mdp.edge_features, mdp.feature_names[n:]).values.shape == (n, n)


# Reference policies.


@pytest.fixture
def reference():
    """A reference policy of the tree, with equal and unequal probabilities."""
    rng = np.random.default_rng(0)
    table = np.zeros((TREE.n_states, TREE.n_actions))
    table[TREE.src, TREE.act] = rng.uniform(0.1, 1.0, TREE.n_edges)
    return table / table.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("gamma", [1e-300, 0.5, 0.95])
def test_policy_without_other_rewards_is_the_reference_policy(reference, gamma):
    mdp = add_edge_features(TREE.replace(gamma=gamma), policy_features(TREE, reference))
    theta = np.append(np.zeros(TREE.n_features), 1.0)
    np.testing.assert_allclose(MaxCausalEnt().policy(mdp, theta), reference, rtol=0, atol=1e-12)


def test_rewards_are_relative_to_the_reference_policy(reference):
    """The policy is pi_0 exp(r + gamma V) up to a factor per state, where V = log sum pi_0 exp(r + gamma V')."""
    gamma, reward = 0.7, np.arange(7.0)
    mdp = add_edge_features(TREE.replace(gamma=gamma), policy_features(TREE, reference))
    V = np.zeros(7)
    for _ in range(500):
        weight = np.zeros_like(reference)
        weight[TREE.src, TREE.act] = reference[TREE.src, TREE.act] * np.exp(gamma * V[TREE.dst])
        V = reward + np.log(weight.sum(axis=1))
    expected = weight / weight.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(MaxCausalEnt().policy(mdp, np.append(reward, 1.0)), expected, rtol=0, atol=1e-10)


def test_reference_policy_must_allow_all_actions(reference):
    reference[3, 0] = 0.0
    with raises(InvalidParameter, parameter="policy", value=0.0, index=(3, 0)):
        policy_features(TREE, reference)
    with raises(InvalidParameter, parameter="policy", value=(7, 2)):
        policy_features(TREE, reference[:, :2])
