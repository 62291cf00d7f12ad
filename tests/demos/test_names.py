"""Demonstrations with names of states and actions: encoding, numbering of an MDP, concatenation, files, models."""

from itertools import chain

import numpy as np
import pandas as pd
import pytest

from limiirl.demos import Agents, Demonstrations, with_history
from limiirl.errors import InvalidDemos
from limiirl.irl import DestinationMaxEnt, MaxCausalEnt, MaxEnt
from limiirl.mdp import MDP
from limiirl.metrics import edit_distance
from limiirl.mixture import IntentMixture
from tests.helpers import raises

STATES = [["den", "pond", "nest"], ["den", "nest"], ["pond", "nest"]]
ACTIONS = [["run", "go"], ["go"], ["go"]]
# Neither the order of the demonstrations' names nor their number.
PLACES = ("nest", "tree", "pond", "den")
MOVES = ("go", "run", "hide")


@pytest.fixture
def mdp():
    src, dst, action = [3, 3, 2, 2, 1], [2, 0, 0, 3, 0], [1, 0, 0, 1, 0]
    phi = [[0.0, 1.0], [0.0, 0.0], [1.0, 0.0], [0.5, 0.0]]
    return MDP.from_edges(
        src, dst, 4, action, gamma=0.9, state_features=phi, terminal=[0], state_names=PLACES, action_names=MOVES
    )


@pytest.fixture
def named():
    return Demonstrations.from_lists(STATES, ACTIONS, groups=list("aab"))


@pytest.fixture
def numbered():
    """The same demonstrations, with the numbers of the MDP."""
    states = [[PLACES.index(name) for name in names] for names in STATES]
    actions = [[MOVES.index(name) for name in names] for names in ACTIONS]
    return Demonstrations.from_lists(states, actions, groups=list("aab"))


def test_text_becomes_sorted_names(named):
    assert named.state_names == ("den", "nest", "pond")
    assert named.action_names == ("go", "run")
    assert [named.state_names[s] for s in named.states] == list(chain(*STATES))
    assert named.actions.tolist() == [1, 0, -1, 0, -1, 0, -1]


def test_arrays_of_text_and_unrecorded_actions():
    demos = Demonstrations.from_lists([np.array(["b", "a"]), np.array(["a"])], [["go"], None])
    assert (demos.states.tolist(), demos.state_names) == ([1, 0, 0], ("a", "b"))
    assert Demonstrations.from_lists([["a", "b", "a"]], [["go", -1]]).actions.tolist() == [0, -1, -1]


def test_given_names_determine_the_numbers():
    demos = Demonstrations.from_lists(STATES, ACTIONS, state_names=PLACES, action_names=MOVES)
    assert demos.states.tolist() == [3, 2, 0, 3, 0, 2, 0]
    assert demos.action_names == MOVES
    with raises(InvalidDemos, parameter="states", value="pond", index=(0, 1)):
        Demonstrations.from_lists(STATES, state_names=["den", "nest"])


@pytest.mark.parametrize(
    ("names", "value", "index"),
    [
        ("abc", "abc", None),
        (["a", "b"], 2, None),
        (["a", "b", 3], 3, 2),
        (["a", "b", "a"], "a", 2),
        (["a", "b", "\ud800"], "\ud800", 2),
    ],
)
def test_invalid_names_are_rejected(names, value, index):
    with raises(InvalidDemos, parameter="state_names", value=value, index=index):
        Demonstrations.from_lists([[0, 1, 2]], state_names=names)
    with raises(InvalidDemos, parameter="action_names", value=value, index=index):
        Demonstrations.from_lists([[0, 1, 2, 3]], [[0, 1, 2]], action_names=names)


def test_names_are_kept(named, tmp_path):
    for other in (named[1:], named.subset([2, 0]), named.replace(groups=None), Demonstrations.concat([named, named])):
        assert (other.state_names, other.action_names) == (named.state_names, named.action_names)
    named.to_parquet(tmp_path / "named.parquet")
    assert Demonstrations.from_parquet(tmp_path / "named.parquet") == named
    assert pd.read_parquet(tmp_path / "named.parquet").state.tolist() == list(chain(*STATES))
    assert named != named.replace(state_names=("den", "nest", "tree"))


def test_names_without_a_state_and_trailing_nul_characters_survive_a_file(tmp_path):
    demos = Demonstrations.from_lists([["a\0", "a"]], state_names=["z", "a", "a\0"])
    demos.to_parquet(tmp_path / "d.parquet")
    assert Demonstrations.from_parquet(tmp_path / "d.parquet") == demos
    assert demos.states.tolist() == [2, 1]


def test_concatenation_uses_all_names(named):
    other = Demonstrations.from_lists([["tree", "den"]], [["hide"]], groups=["c"])
    both = named + other
    assert [both.state_names[s] for s in both.states] == [*chain(*STATES), "tree", "den"]
    assert [both.action_names[a] for a in both.actions if a >= 0] == [*chain(*ACTIONS), "hide"]
    with raises(InvalidDemos, parameter="state_names", index=1):
        named + Demonstrations.from_lists([[0, 1]], groups=["c"])


def test_renumber_matches_names(mdp, named, numbered):
    renumbered = named.renumber(mdp)
    np.testing.assert_array_equal(renumbered.states, numbered.states)
    np.testing.assert_array_equal(renumbered.actions, numbered.actions)
    assert renumbered.renumber(mdp) is renumbered
    assert numbered.renumber(mdp) is numbered
    np.testing.assert_array_equal(named.features(mdp), numbered.features(mdp))
    np.testing.assert_array_equal(named.log_q(mdp), numbered.log_q(mdp))


def test_unknown_names_are_reported_with_their_row(mdp, named):
    with raises(InvalidDemos, parameter="demos", value="lake", index=(1, 0)):
        Demonstrations.from_lists([["den"], ["lake", "den"]]).renumber(mdp)
    with raises(InvalidDemos, parameter="demos", value="fly", index=(0, 0)):
        Demonstrations.from_lists([["den", "nest"]], [["fly"]]).renumber(mdp)
    with raises(InvalidDemos, parameter="demos", value="den"):
        named.renumber(mdp.replace(state_names=None))
    # Names that do not occur need no counterpart.
    assert Demonstrations.from_lists([["den"]], state_names=["lake", "den"]).renumber(mdp).states.tolist() == [3]


def test_other_numbers_are_never_used_by_position(mdp, named):
    with raises(InvalidDemos, parameter="demos"):
        named.steps(mdp)


def test_messages_name_states_and_actions(mdp):
    with raises(InvalidDemos, index=(0, 0)) as caught:
        Demonstrations.from_lists([["tree", "den"]]).features(mdp)
    assert "'tree'" in str(caught.value)
    assert "'den'" in str(caught.value)
    assert "'den' to 'pond'" in repr(Demonstrations.from_lists(STATES))


@pytest.mark.parametrize("irl", [MaxEnt(4), MaxCausalEnt(), DestinationMaxEnt()], ids=lambda irl: type(irl).__name__)
def test_models_match_names(mdp, named, numbered, irl):
    mdp = mdp.replace(gamma=1.0) if isinstance(irl, DestinationMaxEnt) else mdp
    thetas = [[-0.1, -0.2], [-0.3, 0.0]]
    np.testing.assert_array_equal(irl.log_prob(mdp, thetas, named), irl.log_prob(mdp, thetas, numbered))
    weights = np.array([[1.0, 0.5], [1.0, 2.0], [1.0, 1.0]])
    fits = [irl.set_params(ridge=0.1).fit_many(mdp, demos, weights) for demos in (named, numbered)]
    np.testing.assert_array_equal(*fits)


def test_mixtures_match_and_save_names(mdp, named, numbered, tmp_path):
    mix = IntentMixture(1, MaxEnt(4, ridge=0.1), random_state=0).fit(mdp, named)
    np.testing.assert_array_equal(mix.thetas_, IntentMixture(1, MaxEnt(4, ridge=0.1)).fit(mdp, numbered).thetas_)
    mix.save(tmp_path / "mix")
    loaded = IntentMixture.load(tmp_path / "mix")
    assert (loaded.mdp_.state_names, loaded.mdp_.action_names) == (PLACES, MOVES)
    np.testing.assert_array_equal(loaded.score_samples(named), mix.score_samples(numbered))
    np.testing.assert_array_equal(loaded.next_actions(named[:1]).action, mix.next_actions(numbered[:1]).action)
    assert loaded.sample(3, seed=0)[0].state_names == PLACES
    assert loaded.most_likely(3, 0).demos.action_names == MOVES
    with raises(InvalidDemos, value="lake", index=(0, 1)):
        loaded.predict(Demonstrations.from_lists([["den", "lake"]]))


def test_estimated_mdps_have_the_names(named):
    mdp = MDP.from_demonstrations(named)
    assert (mdp.state_names, mdp.action_names) == (named.state_names, named.action_names)
    assert mdp.feature_names == ("state[den]", "state[nest]", "state[pond]")
    with raises(InvalidDemos, value="lake"):
        mdp_of_others = Demonstrations.from_lists([["lake", "den"]])
        mdp_of_others.features(mdp)


def test_agents_and_distances_match_names(mdp, named, numbered):
    one, other = (Agents.from_demonstrations(mdp, demos) for demos in (named, numbered))
    for a, b in zip(one, other, strict=True):
        np.testing.assert_array_equal(a.actions, b.actions)
        np.testing.assert_array_equal(a.policy_features, b.policy_features)
    np.testing.assert_array_equal(edit_distance(named, named.renumber(mdp)), [0, 0, 0])


def test_an_unknown_place_is_named_without_its_previous_places():
    demos = Demonstrations.from_lists([["a", "b", "c", "a", "b", "a"]] * 2)
    mdp, _ = with_history(MDP.from_demonstrations(demos), demos, keep_starts=True)
    assert demos.renumber(mdp).state_names == mdp.state_names
    assert mdp.n_states > 3
    other = Demonstrations.from_lists([["a", "b", "d", "a"]])
    with raises(InvalidDemos, parameter="demos", value="d", index=(0, 2)) as caught:
        other.renumber(mdp)
    assert "the 3 states" in str(caught.value)
