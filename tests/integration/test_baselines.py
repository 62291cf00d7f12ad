"""The published figures of predictors without rewards on SWIRL's labyrinth split (README of the data set)."""

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import limiirl as ll
from limiirl.baselines import HMM, BehaviourCloning, MarkovChain, NGram, Uniform
from limiirl.mdp import add_edge_features, turn_features

pytestmark = pytest.mark.smoke


@pytest.fixture
def labyrinth(shared_data: Callable[[str], Path]) -> tuple[ll.MDP, ll.Demonstrations]:
    """Return the labyrinth and the windows of 500 actions, whose last state follows from the dynamics."""
    with np.load(shared_data("swirl_labyrinth") / "labyrinth.npz") as data:
        states, actions, following = (data[name].astype(int) for name in ("states", "actions", "next_state"))
    states = np.column_stack([states, following[states[:, -1], actions[:, -1]]])
    n = len(following)
    src, act = np.repeat(np.arange(n), 4), np.tile(np.arange(4), n)
    mdp = ll.MDP.from_edges(src, following.ravel(), n_states=n, action=act, gamma=0.9)
    return mdp, ll.Demonstrations.from_lists(list(states), list(actions))


def score(model: ll.baselines.Baseline, mdp: ll.MDP, demos: ll.Demonstrations) -> float:
    """Return the held-out nats per step of actions 1 to 499, given state 0 and action 0."""
    held_out = np.arange(len(demos)) % 5 == 0
    log_prob = model.fit(demos[~held_out], mdp).predictive_log_prob(demos[held_out])
    return float(log_prob.reshape(-1, 500)[:, 1:].mean())


# The README has four digits. Chains have one concentration, as there, but it is optimised instead of taken from a grid.
@pytest.mark.parametrize(
    ("model", "published"),
    [
        (Uniform(), -1.3863),
        (MarkovChain(1), -0.8739),
        (MarkovChain(2), -0.6794),
        (MarkovChain(3), -0.6552),
        (MarkovChain(4), -0.6449),
    ],
    ids=str,
)
def test_chains_reproduce_the_published_figures(labyrinth, model, published):
    value = score(model, *labyrinth)
    sys.stdout.write(f"{model}: {value:.4f}, published {published}\n")
    assert abs(value - published) < 2e-4


# A concentration per length, EM from other starts and a chosen prior improve the third decimal.
@pytest.mark.parametrize(
    ("model", "published", "margin"), [(NGram(5), -0.6405, 0.004), (HMM(3, 2, random_state=0), -0.6490, 0.004)], ids=str
)
def test_stronger_smoothing_is_at_least_as_good_as_published(labyrinth, model, published, margin):
    value = score(model, *labyrinth)
    sys.stdout.write(f"{model}: {value:.4f}, published {published}\n")
    assert published <= value < published + margin


def test_behaviour_cloning_of_turns_is_close_to_one_published_intent(labyrinth):
    """One intent with 127 node rewards and turns by depth has -0.7257; cloning of the same kind of features, -0.72."""
    mdp, demos = labyrinth
    longer, own = ll.with_history(mdp, demos, keep_starts=True)
    depth = np.floor(np.log2(np.arange(mdp.n_states) + 1)).astype(int)
    longer = add_edge_features(longer, turn_features(longer, root=0, per=depth))
    value = score(BehaviourCloning(), longer, own)
    sys.stdout.write(f"behaviour cloning, {longer.n_features} features: {value:.4f}\n")
    assert abs(value + 0.7257) < 0.005
