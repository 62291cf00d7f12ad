"""Features and ridges that are chosen by held-out likelihood."""

import numpy as np
import pytest

from limiirl.demos import Demonstrations, simulate, with_history
from limiirl.errors import InvalidParameter
from limiirl.irl import MaxCausalEnt, MaxEnt, choose_features
from limiirl.irl.defaults import RIDGES
from limiirl.mdp import MDP, add_edge_features, turn_features
from limiirl.mixture import IntentMixture
from tests.helpers import raises

N = 8
RING = MDP.from_edges(
    np.repeat(np.arange(N), 2), (np.repeat(np.arange(N), 2) + np.tile([1, -1], N)) % N, gamma=0.9, p0=np.full(N, 1 / N)
)


def walk(theta, mdp, n, length=25, seed=0):
    """Demonstrations of the causal model, in the states of the ring."""
    policy = MaxCausalEnt().policy(mdp, theta)
    demos = simulate(mdp, policy[mdp.pair_state, mdp.pair_action], n, seed, max_length=length)
    current = np.array([int(name.split(" ")[0]) for name in mdp.state_names]) if mdp.state_names else np.arange(N)
    return Demonstrations(current[demos.states], demos.offsets, demos.actions)


@pytest.fixture(scope="module")
def turning():
    """Agents that avoid turning back."""
    start = Demonstrations.from_lists([[0, 1]])
    longer, _ = with_history(RING, start, keep_starts=True)
    longer = add_edge_features(longer, turn_features(longer))
    return walk([0.0] * N + [-2.0], longer, 40)


def test_turns_are_chosen_for_agents_that_do_not_turn(turning):
    choice = choose_features(RING, turning, MaxCausalEnt())
    assert choice.features == "states and turns"
    assert choice.scores["states and turns"] > choice.scores["states"] + 0.1
    assert choice.mdp.feature_names[-1] == "turning back"
    assert choice.model.ridge_per == "step"
    assert choice.demos.n_steps == turning.n_steps
    theta = choice.model.fit_many(choice.mdp, choice.demos, np.ones((len(turning), 1)))[0]
    assert theta[-1] < -1.0


def test_states_are_chosen_for_agents_that_seek_a_state():
    demos = walk(np.eye(N)[3] * 4.0, RING, 60)
    choice = choose_features(RING, demos, MaxCausalEnt())
    np.testing.assert_allclose(choice.scores["states"], choice.scores["states and turns"], atol=0.01)
    assert choice.ridge < max(RIDGES)


def test_groups_that_seek_different_states_are_separated():
    # On average over all groups, no state is preferred.
    parts = [walk(np.roll(np.eye(N)[0], 4 * (i % 2)), RING, 3, seed=i) for i in range(6)]
    demos = Demonstrations.concat([part.replace(groups=[f"animal {i}"] * 3) for i, part in enumerate(parts)])
    choice = choose_features(RING, demos, MaxCausalEnt())
    mix = IntentMixture(2, choice.model, random_state=0).fit(choice.mdp, choice.demos, demos.groups)
    labels = mix.group_responsibilities_.argmax(axis=1)
    np.testing.assert_array_equal(labels[::2], labels[0])
    np.testing.assert_array_equal(labels[1::2], 1 - labels[0])


def test_rewards_of_random_walks_are_shrunk():
    choice = choose_features(RING, walk(np.zeros(N), RING, 20), MaxCausalEnt())
    assert choice.ridge == max(RIDGES)


def test_the_choice_does_not_depend_on_how_recordings_are_cut(turning):
    # A piece has one step without a previous state, so that scores differ slightly.
    whole, pieces = (choose_features(RING, d, MaxCausalEnt()) for d in (turning.cut(24), turning.cut(12)))
    assert whole.features == pieces.features
    ones = [np.ones((len(choice.demos), 1)) for choice in (whole, pieces)]
    plain = [
        MaxCausalEnt(ridge=0.01, ridge_per="step").fit_many(RING, d, w)
        for d, w in zip((turning.cut(24), turning.cut(12)), ones, strict=True)
    ]
    np.testing.assert_allclose(plain[0], plain[1], rtol=1e-3, atol=1e-4)


def test_folds_keep_groups_together(turning):
    # With all demonstrations in one group there is no held-out group, and nothing is compared.
    choice = choose_features(RING, turning, MaxCausalEnt(), groups=np.zeros(len(turning)))
    assert np.isnan(list(choice.scores.values())).all()
    assert choice.features == "states and turns"


def test_given_ridges_are_kept(turning):
    choice = choose_features(RING, turning, MaxCausalEnt(ridge=0.05))
    assert (choice.model.ridge, choice.model.ridge_per, choice.ridge) == (0.05, "demonstration", 0.05)


def test_other_models_have_no_default_features(turning):
    with raises(InvalidParameter, parameter="model", value="MaxEnt"):
        choose_features(RING, turning, MaxEnt())
