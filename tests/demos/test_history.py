"""States that include the previous states."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from limiirl.demos import Demonstrations, with_history
from limiirl.errors import InvalidDemos, InvalidMDP, InvalidParameter
from limiirl.irl import MaxCausalEnt
from limiirl.mdp import MDP, add_edge_features, sequence_features, turn_features
from limiirl.mixture import IntentMixture
from tests.helpers import examples, raises

RNG = np.random.default_rng(0)
KEEP = pytest.mark.parametrize("keep", [False, True])
ORDER = pytest.mark.parametrize("order", [1, 2, 3])


@pytest.fixture
def mdp():
    """A stochastic MDP with features of all kinds, parallel edges, self-loops and a terminal state."""
    T = np.zeros((4, 2, 4))
    T[0, 0], T[0, 1, 1] = [0.2, 0.8, 0.0, 0.0], 1.0
    T[1, 0, [0, 2]], T[1, 1, 1] = 0.5, 1.0
    T[2, 0, [1, 3]] = 0.3, 0.7
    return MDP.from_dense(
        T,
        p0=[0.5, 0.5, 0, 0],
        gamma=0.9,
        state_features=sparse.csr_array(RNG.normal(size=(4, 2))),
        action_features=RNG.normal(size=(4, 2, 1)),
        edge_features=RNG.normal(size=(4, 2, 4, 1)),
        state_names=["a", "b", "c", "d"],
    )


@pytest.fixture
def demos():
    return Demonstrations.from_lists(
        [["a", "b", "a", "a", "b", "c", "d"], ["b", "b", "c", "b"], ["a"]],
        [[0, 0, 0, 0, 0, 0], [1, 0, 0], []],
        groups=["x", "x", "y"],
    )


def list_paths(mdp, n_edges):
    """Return all paths of `n_edges` edges, by enumeration."""
    successors = {s: sorted({int(t) for t in mdp.dst[mdp.src == s]}) for s in range(mdp.n_states)}
    paths = [(s,) for s in range(mdp.n_states)]
    for _ in range(n_edges):
        paths = [(*path, t) for path in paths for t in successors[path[-1]]]
    return paths


def edges_by_history(mdp):
    """Return {(history, action, history of the next state): probability}."""
    rows = [tuple(row) for row in mdp.history.tolist()]
    edges = zip(mdp.src, mdp.act, mdp.dst, mdp.prob, strict=True)
    return {(rows[s], int(a), rows[t]): p for s, a, t, p in edges}


def brute_force(mdp, order, keep):
    """Return the histories and the edges of `with_history`, by enumeration."""
    paths = [path for n in (range(order + 1) if keep else [order]) for path in list_paths(mdp, n)]
    padded = {path: (*path[::-1], *[-1] * (order + 1 - len(path))) for path in paths}
    edges = {}
    for path in paths:
        for s, a, t, p in zip(mdp.src, mdp.act, mdp.dst, mdp.prob, strict=True):
            if s == path[-1]:
                edges[padded[path], int(a), padded[(*path, int(t))[-order - 1 :]]] = p
    return set(padded.values()), edges


def random_problem(seed, n_states=4):
    """Return a random MDP with parallel edges, self-loops and a terminal state, and demonstrations in it."""
    rng = np.random.default_rng(seed)
    T = rng.random((n_states, 2, n_states)) * (rng.random((n_states, 2, n_states)) < 0.6)
    T[0] += 0.1
    T /= np.maximum(T.sum(axis=2, keepdims=True), 1e-300)
    mdp = MDP.from_dense(
        T, p0=np.full(n_states, 1 / n_states), gamma=0.8, state_features=rng.normal(size=(n_states, 2))
    )
    demos = MaxCausalEnt().sample(mdp, np.zeros(2), 8, seed=seed, max_length=9)
    recorded = [a if i % 2 else [-1] * len(a) for i, a in enumerate(demo.actions.tolist() for demo in demos)]
    return mdp, Demonstrations.from_lists([demo.states for demo in demos], recorded)


@ORDER
@KEEP
def test_states_and_edges_equal_those_of_an_enumeration(mdp, demos, order, keep):
    longer, _ = with_history(mdp, demos[:2], order, keep_starts=keep)
    histories, edges = brute_force(mdp, order, keep)
    assert len(longer.history) == len(histories)
    assert {tuple(row) for row in longer.history.tolist()} == histories
    assert edges_by_history(longer) == edges
    np.testing.assert_array_equal(longer.terminal, mdp.terminal[longer.history[:, 0]])


@settings(max_examples=examples(30))
@given(st.integers(0, 10**6), st.integers(1, 3), st.booleans())
def test_conditional_likelihood_and_policies_are_unchanged(seed, order, keep):
    mdp, demos = random_problem(seed)
    demos = demos if keep else demos[demos.lengths > order]
    if len(demos) == 0:
        return
    longer, own = with_history(mdp, demos, order, keep_starts=keep)
    assert edges_by_history(longer) == brute_force(mdp, order, keep)[1]
    theta = np.random.default_rng(seed).normal(size=2)
    model = MaxCausalEnt()
    policy = model.policy(mdp, theta)
    np.testing.assert_allclose(model.policy(longer, theta), policy[longer.history[:, 0]], rtol=0, atol=1e-9)
    # The steps that only condition are left out of the original likelihood.
    first = 0 if keep else order
    tails = Demonstrations.from_lists([d.states[first:] for d in demos], [d.actions[first:] for d in demos])
    log_start = [np.log(m.p0[d.start_states]) for m, d in ((mdp, tails), (longer, own))]
    before = model.log_prob(mdp, theta, tails)[:, 0] - log_start[0]
    np.testing.assert_allclose(model.log_prob(longer, theta, own)[:, 0] - log_start[1], before, rtol=1e-8, atol=1e-9)
    np.testing.assert_array_equal(longer.history[own.states, 0], tails.states)


def test_demonstrations_start_later_by_the_order(mdp, demos):
    longer, own = with_history(mdp, demos[:2], 2)
    assert [longer.state_names[s] for s in own[0].states] == [
        "a (from b, a)",
        "a (from a, b)",
        "b (from a, a)",
        "c (from b, a)",
        "d (from c, b)",
    ]
    assert own[0].actions.tolist() == [0, 0, 0, 0]
    assert own.groups.tolist() == ["x", "x"]
    np.testing.assert_array_equal(longer.history[own[1].states], [[2, 1, 1], [1, 2, 1]])


def test_kept_starts_have_shorter_histories(mdp, demos):
    longer, own = with_history(mdp, demos, keep_starts=True)
    names = ["a", "b (from a)", "a (from b)", "a (from a)", "b (from a)", "c (from b)", "d (from c)"]
    assert [longer.state_names[s] for s in own[0].states] == names
    assert own.groups.tolist() == demos.groups.tolist()
    assert longer.n_states == mdp.n_states + len(set(zip(mdp.src, mdp.dst, strict=True)))
    np.testing.assert_allclose(own.features(longer), demos.features(mdp), rtol=1e-12)


def test_short_demonstrations_are_named(mdp, demos):
    with raises(InvalidDemos, parameter="demos", index=2, value=1):
        with_history(mdp, demos)
    with raises(InvalidDemos, parameter="demos", index=1, value=4):
        with_history(mdp, demos[:2], 4)


def test_a_second_history_is_refused(mdp, demos):
    longer, own = with_history(mdp, demos, keep_starts=True)
    with raises(InvalidParameter, parameter="mdp"):
        with_history(longer, own)


def test_too_large_orders_are_refused_without_allocating():
    src = np.repeat(np.arange(30), 30)
    mdp = MDP.from_edges(src, np.tile(np.arange(30), 30))
    with raises(InvalidParameter, parameter="order", value=40):
        with_history(mdp, Demonstrations.from_lists([[0, 1]]), 40, keep_starts=True)


@KEEP
def test_histories_survive_a_file_and_features_survive_replacement(mdp, demos, keep, tmp_path):
    longer, _ = with_history(mdp, demos[:2], 2, keep_starts=keep)
    longer = add_edge_features(longer, turn_features(longer), sequence_features(longer))
    longer.save(tmp_path / "mdp.npz")
    again = MDP.load(tmp_path / "mdp.npz")
    assert again == longer
    assert again.fingerprint() == longer.fingerprint()
    np.testing.assert_array_equal(again.history, longer.history)
    assert sparse.issparse(again.edge_features)
    assert longer.replace(history=None) != longer


@pytest.mark.parametrize("history", [[[0, 1]] * 3, [0, 1], [[0.5, 1]] * 2, [[], []]])
def test_histories_of_wrong_shape_are_refused(history):
    with raises(InvalidMDP, parameter="history"):
        MDP.from_edges([0, 1], [1, 0]).replace(history=history)


def test_histories_need_a_current_state():
    with raises(InvalidMDP, parameter="history", index=(1, 0), value=-1):
        MDP.from_edges([0, 1], [1, 0]).replace(history=[[0, 1], [-1, 0]])


@pytest.mark.parametrize("named", [True, False])
@ORDER
def test_new_demonstrations_are_matched_by_name(mdp, demos, named, order):
    if not named:
        mdp, demos = mdp.replace(state_names=None), demos.renumber(mdp).replace(state_names=None)
    longer, own = with_history(mdp, demos, order, keep_starts=True)
    assert demos.renumber(longer) == own
    assert own.renumber(longer) is own
    if order == 1:
        mix = IntentMixture(1, MaxCausalEnt(ridge=0.1)).fit(longer, own)
        np.testing.assert_array_equal(mix.score_samples(demos), mix.score_samples(own))
    if named:
        with raises(InvalidDemos, parameter="demos", index=(0, 1)):
            Demonstrations.from_lists([["a", "d"]]).renumber(longer)


def test_names_that_look_like_histories_are_names():
    mdp = MDP.from_edges([0, 1], [1, 0], state_names=["letter", "letter (from ann)"])
    path = Demonstrations.from_lists([["letter", "letter (from ann)", "letter"]])
    assert path.renumber(mdp).states.tolist() == [0, 1, 0]
    longer, own = with_history(mdp, path, keep_starts=True)
    assert path.renumber(longer) == own


def test_the_same_mdp_gives_the_same_states_for_other_demonstrations(mdp, demos):
    one, _ = with_history(mdp, demos[:1], 2)
    other, own = with_history(mdp, demos[1:2], 2)
    assert one.state_names == other.state_names
    MaxCausalEnt().log_prob(one, np.zeros(one.n_features), own)


def test_pairs_cancel_and_triples_do_not(mdp, demos):
    """A reward on (v | u) is the same for all actions in (v | u): with discount near 0 it changes no policy."""
    longer, _ = with_history(mdp.replace(gamma=1e-12), demos[:2])
    base = longer.replace(state_features=None, action_features=None, edge_features=None)
    pairs = np.random.default_rng(1).normal(size=base.n_states)
    policy = MaxCausalEnt().policy(base, pairs)
    np.testing.assert_allclose(policy, MaxCausalEnt().policy(base, np.zeros(base.n_states)), rtol=0, atol=1e-9)
    turned = add_edge_features(base, turn_features(base))
    theta = np.append(np.zeros(base.n_states), np.ones(turned.n_edge_features))
    assert np.abs(MaxCausalEnt().policy(turned, theta) - policy).max() > 0.05


def test_histories_of_demonstrations_are_their_last_states(mdp, demos):
    longer, own = with_history(mdp, demos, 3, keep_starts=True)
    original = demos.renumber(mdp)
    for demo, converted in zip(original, own, strict=True):
        states = demo.states.tolist()
        for t, row in enumerate(longer.history[converted.states].tolist()):
            assert row == [*states[max(0, t - 3) : t + 1][::-1], *[-1] * (3 - min(t, 3))]
    assert all(set(pairwise(d.states.tolist())) <= set(zip(longer.src, longer.dst, strict=True)) for d in own)
