"""States that include the previous state."""

import numpy as np
import pytest
from scipy import sparse

from limiirl.demos import Demonstrations, with_previous_state
from limiirl.errors import InvalidDemos
from limiirl.irl import MaxCausalEnt
from limiirl.mdp import MDP
from limiirl.mixture import IntentMixture
from tests.helpers import raises

RNG = np.random.default_rng(0)


@pytest.fixture
def mdp():
    """A stochastic MDP with features of all kinds, self-loops and a terminal state."""
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


def test_states_are_pairs_of_a_state_and_its_predecessor(mdp, demos):
    longer, own = with_previous_state(mdp, demos)
    assert [longer.state_names[s] for s in own[0].states] == [
        "a",
        "b (from a)",
        "a (from b)",
        "a (from a)",
        "b (from a)",
        "c (from b)",
        "d (from c)",
    ]
    assert own.groups.tolist() == demos.groups.tolist()
    assert longer.feature_names[-2:] == ("stays", "turns back")
    assert longer.n_states == mdp.n_states + len(set(zip(mdp.src, mdp.dst, strict=True)))


def test_old_features_and_dynamics_are_unchanged(mdp, demos):
    longer, own = with_previous_state(mdp, demos)
    old = demos.features(mdp)
    np.testing.assert_allclose(own.features(longer)[:, : old.shape[1]], old, rtol=1e-12)
    start = [np.log(m.p0[d.renumber(m).start_states]) for m, d in ((mdp, demos), (longer, own))]
    np.testing.assert_allclose(own.log_q(longer) - start[1], demos.log_q(mdp) - start[0], rtol=1e-12)
    theta = np.array([0.3, -0.2, 0.5, 0.1])
    before = MaxCausalEnt().log_prob(mdp, theta, demos)[:, 0] - start[0]
    after = MaxCausalEnt().log_prob(longer, [*theta, 0.0, 0.0], own)[:, 0] - start[1]
    np.testing.assert_allclose(after, before, rtol=1e-9)


def test_turns_are_counted(mdp, demos):
    longer, own = with_previous_state(mdp.replace(gamma=1.0), demos)
    # a b a a b c d: turns back at the third state, stays at the fourth; b b c b: stays, turns back.
    np.testing.assert_array_equal(own.features(longer)[:, -2:], [[1, 1], [1, 1], [0, 0]])


def test_turns_that_distinguish_no_edges_are_not_features():
    ring = MDP.from_edges([0, 1, 2], [1, 2, 0])
    longer, _ = with_previous_state(ring, Demonstrations.from_lists([[0, 1, 2, 0]]))
    assert longer.n_edge_features == 0


@pytest.mark.parametrize("named", [True, False])
def test_new_demonstrations_are_matched_by_name(mdp, demos, named):
    if not named:
        mdp, demos = mdp.replace(state_names=None), demos.renumber(mdp).replace(state_names=None)
    longer, own = with_previous_state(mdp, demos)
    assert demos.renumber(longer) == own
    assert own.renumber(longer) is own
    mix = IntentMixture(1, MaxCausalEnt(ridge=0.1)).fit(longer, own)
    np.testing.assert_array_equal(mix.score_samples(demos), mix.score_samples(own))
    if named:
        with raises(InvalidDemos, parameter="demos", index=(0, 1)):
            Demonstrations.from_lists([["a", "d"]]).renumber(longer)


def test_names_that_look_like_pairs_are_names(demos):
    mdp = MDP.from_edges([0, 1], [1, 0], state_names=["letter", "letter (from ann)"])
    walk = Demonstrations.from_lists([["letter", "letter (from ann)", "letter"]])
    assert walk.renumber(mdp).states.tolist() == [0, 1, 0]
