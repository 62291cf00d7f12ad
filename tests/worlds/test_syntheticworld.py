"""SyntheticWorld: layers, features and separation of the intents."""

import numpy as np
import pytest

from limiirl import IntentMixture, MaxEnt
from limiirl.errors import InvalidParameter
from limiirl.metrics import anid
from limiirl.theory import inter_cluster_margin
from limiirl.worlds import SyntheticWorld
from tests.helpers import raises

SHAPES = [
    {},
    {"n_states": 24, "horizon": 5, "branching": 1, "seed": 3},  # layers of 5, 5, 5, 4, 4
    {"n_states": 21, "n_actions": 1, "horizon": 4, "branching": 5, "n_features": 3, "seed": 1},
    {"n_states": 8, "horizon": 1, "branching": 3, "n_features": 4, "n_intents": 1},
]


@pytest.mark.parametrize("shape", SHAPES)
def test_every_action_leads_to_random_states_of_the_next_layer(shape: dict[str, int]) -> None:
    world = SyntheticWorld(**shape)
    mdp, S = world.mdp, world.n_states
    assert (mdp.n_states, mdp.n_features, mdp.n_pairs) == (S, world.n_features, (S - 1) * world.n_actions)
    layer_of = np.repeat(np.arange(len(world.layers)), [layer.size for layer in world.layers])
    np.testing.assert_array_equal(layer_of[mdp.dst], layer_of[mdp.src] + 1)
    sizes = np.bincount(layer_of)
    assert np.ptp(sizes[:-1]) <= 1
    assert sizes[-1] == 1
    targets = np.bincount(mdp.pair_of_edge)
    np.testing.assert_array_equal(targets, np.minimum(world.branching, sizes[layer_of[mdp.pair_state] + 1]))
    sums = np.bincount(mdp.pair_of_edge, weights=mdp.prob)
    np.testing.assert_allclose(sums, 1.0, rtol=0.0, atol=1e-12)
    assert np.flatnonzero(mdp.terminal).tolist() == [S - 1]
    np.testing.assert_allclose(mdp.p0[layer_of == 0], 1.0 / sizes[0], rtol=1e-14, atol=0.0)
    demos, _ = world.sample(20)
    assert demos.lengths.tolist() == [world.horizon + 1] * 20
    assert np.all(demos.last_states == S - 1)


@pytest.mark.parametrize("shape", SHAPES)
def test_features_are_one_hot_and_even(shape: dict[str, int]) -> None:
    world = SyntheticWorld(**shape)
    counts = np.asarray(world.mdp.state_features).sum(axis=0)
    assert np.ptp(counts) <= 1
    np.testing.assert_array_equal(np.asarray(world.mdp.state_features)[:-1], np.eye(world.n_features)[world.kinds])
    np.testing.assert_array_equal(np.asarray(world.mdp.state_features)[-1], 0.0)


def test_targets_and_probabilities_are_random() -> None:
    """All targets of a layer occur about equally often, and probabilities of two are uniform on 0..1."""
    world = SyntheticWorld(n_states=1001, horizon=2, n_actions=10, n_features=3)
    inner = ~world.mdp.terminal[world.mdp.dst]
    counts = np.bincount(world.mdp.dst[inner] - 500)
    assert counts.sum() == 2 * 500 * 10
    assert 500 - 160 < ((counts - 20.0) ** 2 / 20.0).sum() < 500 + 160  # chi-square, five standard deviations
    np.testing.assert_allclose(
        np.quantile(world.mdp.prob[inner], [0.25, 0.5, 0.75]), [0.25, 0.5, 0.75], rtol=0, atol=0.02
    )


def test_separation_scales_the_difference_of_rewards() -> None:
    same = SyntheticWorld(separation=0.0, seed=4).ensemble.thetas
    np.testing.assert_array_equal(same, np.tile(same[0], (3, 1)))
    assert -4.0 <= same.min() <= same.max() <= -1.0
    assert np.ptp(same[0]) > 0.5
    half, full = (SyntheticWorld(separation=dial, seed=4).ensemble.thetas for dial in (0.5, 1.0))
    others = np.array([[0, 1, 1, 0, 1, 1], [1, 0, 1, 1, 0, 1], [1, 1, 0, 1, 1, 0]])
    np.testing.assert_allclose(half, same - 3.0 * others, rtol=1e-14, atol=0.0)
    np.testing.assert_allclose(full, same - 6.0 * others, rtol=1e-14, atol=0.0)
    # The dial turns nothing else.
    assert SyntheticWorld(separation=0.0, seed=4).mdp == SyntheticWorld(separation=1.0, seed=4).mdp
    assert SyntheticWorld(seed=4).mdp != SyntheticWorld(seed=5).mdp


def test_margin_increases_with_separation() -> None:
    dials = (0.0, 0.1, 0.25, 0.5, 1.0)
    margins = np.zeros((20, len(dials)))
    for seed in range(20):
        for j, dial in enumerate(dials):
            world = SyntheticWorld(separation=dial, seed=seed)
            demos, labels = world.sample(100, seed=1)
            margins[seed, j] = inter_cluster_margin(demos.features(world.mdp), labels)
    means = margins.mean(axis=0)
    assert means[0] < 0.05
    assert np.all(np.diff(means) > 0.1)


def test_recovery_improves_with_separation() -> None:
    scores = np.zeros((5, 4))
    for seed in range(5):
        for j, dial in enumerate((0.0, 0.15, 0.3, 1.0)):
            world = SyntheticWorld(separation=dial, seed=seed)
            demos, labels = world.sample(100, seed=1)
            mixture = IntentMixture(3, MaxEnt(), likelihood_tol=1e-3, random_state=0).fit(
                world.mdp, demos.replace(labels=None)
            )
            scores[seed, j] = anid(np.eye(3)[labels], mixture.responsibilities_)
    means = scores.mean(axis=0)
    assert np.all(np.diff(means) < -0.05)
    assert means[0] > 0.95
    assert means[-1] < 0.15


def test_text_shows_every_state() -> None:
    world = SyntheticWorld(n_states=24, horizon=5, n_features=12, seed=3)
    rows = [line.split() for line in str(world).splitlines()]
    for column, layer in enumerate(world.layers[:-1]):
        shown = [row[column] for row in rows[: layer.size]]
        assert shown == [str(kind + 1) for kind in world.kinds[layer]]
    assert rows[0][-1] == "G"
    assert len(rows[-1]) == 3  # two layers are shorter


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({"n_states": 10}, {"parameter": "n_states", "value": 10}),
        ({"n_actions": 0}, {"parameter": "n_actions", "value": 0}),
        ({"n_features": 2}, {"parameter": "n_features", "value": 2}),
        ({"n_intents": 0}, {"parameter": "n_intents", "value": 0}),
        ({"horizon": 0}, {"parameter": "horizon", "value": 0}),
        ({"branching": 0}, {"parameter": "branching", "value": 0}),
        (
            {"branching": 7},
            {"parameter": "branching", "value": 7},
        ),
        ({"separation": 1.5}, {"parameter": "separation", "value": 1.5}),
        ({"separation": float("nan")}, {"parameter": "separation"}),
        ({"gamma": -1}, {"parameter": "gamma", "value": -1}),
        ({"seed": "one"}, {"parameter": "seed", "value": "one"}),
    ],
)
def test_invalid_parameters_are_rejected(parameters: dict[str, object], expected: dict[str, object]) -> None:
    with raises(InvalidParameter, **expected):
        SyntheticWorld(**parameters)  # type: ignore[arg-type]
