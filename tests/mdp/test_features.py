"""Rewards of states and edges against a loop, and checks of parameter vectors."""

import numpy as np
import pytest
from scipy import sparse

from limiirl.errors import InvalidParameter
from limiirl.mdp import MDP
from tests.helpers import raises


def random_mdp(seed, kinds, as_sparse):
    rng = np.random.default_rng(seed)
    T = rng.random((5, 2, 5)) * (rng.random((5, 2, 5)) < 0.6)
    T[4] = 0.0
    features = {
        "state": rng.normal(size=(5, 3)) * (rng.random((5, 3)) < 0.7),
        "action": rng.normal(size=(5, 2, 2)),
        "edge": rng.normal(size=(5, 2, 5, 4)) * (rng.random((5, 2, 5, 4)) < 0.5),
    }
    given = {kind: features[kind] for kind in kinds}
    if as_sparse:
        given = {kind: sparse.csr_array(x.reshape(-1, x.shape[-1])) for kind, x in given.items()}
    mdp = MDP.from_dense(T, normalise=True, **{f"{kind}_features": x for kind, x in given.items()})
    return mdp, {kind: features[kind] for kind in kinds}


def naive_rewards(mdp, features, theta):
    """One entry at a time, from the tables that the MDP was made of."""
    cut = {}
    start = 0
    for kind in ("state", "action", "edge"):
        stop = start + (features[kind].shape[-1] if kind in features else 0)
        cut[kind] = theta[start:stop]
        start = stop
    of_state = [sum(features["state"][s] * cut["state"]) if "state" in features else 0.0 for s in range(mdp.n_states)]
    of_edge = []
    for s, a, t in zip(mdp.src, mdp.act, mdp.dst, strict=True):
        reward = 0.0
        if "action" in features:
            reward += sum(features["action"][s, a] * cut["action"])
        if "edge" in features:
            reward += sum(features["edge"][s, a, t] * cut["edge"])
        of_edge.append(reward)
    return np.array(of_state), np.array(of_edge)


KINDS = [
    ("state",),
    ("action",),
    ("edge",),
    ("state", "action"),
    ("state", "edge"),
    ("action", "edge"),
    ("state", "action", "edge"),
]


@pytest.mark.parametrize("as_sparse", [False, True])
@pytest.mark.parametrize("kinds", KINDS)
def test_rewards_equal_a_loop_over_states_and_edges(kinds, as_sparse):
    mdp, features = random_mdp(11, kinds, as_sparse)
    thetas = np.random.default_rng(5).normal(size=(3, mdp.n_features))
    r_state, r_edge = mdp.rewards(thetas)
    assert r_state.shape == (5, 3)
    assert r_state.flags.c_contiguous
    if kinds == ("state",):
        assert r_edge is None
    else:
        assert r_edge.shape == (mdp.n_edges, 3)
        assert r_edge.flags.c_contiguous
    for k, theta in enumerate(thetas):
        of_state, of_edge = naive_rewards(mdp, features, theta)
        np.testing.assert_allclose(r_state[:, k], of_state, rtol=1e-13, atol=1e-13)
        if r_edge is not None:
            np.testing.assert_allclose(r_edge[:, k], of_edge, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("kinds", KINDS)
def test_counts_of_features_by_kind(kinds):
    mdp, features = random_mdp(2, kinds, False)
    counts = [features[kind].shape[-1] if kind in features else 0 for kind in ("state", "action", "edge")]
    assert [mdp.n_state_features, mdp.n_action_features, mdp.n_edge_features] == counts
    assert mdp.n_features == sum(counts) == len(mdp.feature_names)


def test_split_returns_state_action_and_edge_blocks():
    mdp, _ = random_mdp(0, ("state", "action", "edge"), True)
    parts = mdp.split(np.arange(18.0).reshape(2, 9))
    np.testing.assert_array_equal(parts[0], [[0, 1, 2], [9, 10, 11]])
    np.testing.assert_array_equal(parts[1], [[3, 4], [12, 13]])
    np.testing.assert_array_equal(parts[2], [[5, 6, 7, 8], [14, 15, 16, 17]])


def test_one_vector_is_one_row():
    mdp, _ = random_mdp(0, ("state",), False)
    checked = mdp.check_thetas([1, 2, 3])
    assert checked.shape == (1, 3)
    assert checked.dtype == np.float64
    assert mdp.rewards([1, 2, 3])[0].shape == (5, 1)
    transposed = mdp.check_thetas(np.ones((3, 2)).T)
    assert transposed.flags.c_contiguous


BAD = [
    (
        np.zeros((2, 4)),
        {"parameter": "thetas", "value": (2, 4)},
    ),
    (np.zeros(2), {"parameter": "thetas", "value": (2,)}),
    (np.zeros((1, 2, 3)), {"parameter": "thetas", "value": (1, 2, 3)}),
    (np.zeros((0, 3)), {"parameter": "thetas", "value": (0, 3)}),
    (1.0, {"parameter": "thetas", "value": ()}),
    ([[0.0, 0.0, 0.0], [0.0, np.nan, 0.0]], {"parameter": "thetas", "index": (1, 1)}),
    ([np.inf, 0.0, 0.0], {"parameter": "thetas", "index": (0, 0)}),
    ([["a", "b", "c"]], {"parameter": "thetas"}),
    ([[1.0], [1.0, 2.0]], {"parameter": "thetas"}),
    ([1j, 0, 0], {"parameter": "thetas"}),
]


@pytest.mark.parametrize(("thetas", "expected"), BAD)
def test_invalid_thetas_are_rejected(thetas, expected):
    mdp, _ = random_mdp(0, ("state",), False)
    with raises(InvalidParameter, **expected):
        mdp.check_thetas(thetas)
    with raises(InvalidParameter, **expected):
        mdp.rewards(thetas)


def test_long_lists_of_feature_names_are_truncated():
    mdp = MDP.from_edges([0], [1], state_features=np.ones((2, 30)))
    with raises(InvalidParameter, parameter="thetas", value=(1,)):
        mdp.rewards([1.0])
