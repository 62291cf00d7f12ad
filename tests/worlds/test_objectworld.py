"""ObjectWorld: objects and features against loops, intents, and their recovery by a mixture."""

import numpy as np
import pytest

from limiirl import IntentMixture, MaxEnt
from limiirl.errors import InvalidParameter
from limiirl.metrics import anid
from limiirl.worlds import ObjectWorld
from tests.helpers import raises

SHAPES = [{}, {"size": 5, "n_objects": 4, "n_colours": 2, "n_intents": 2, "radius": 2}, {"radius": 0, "seed": 3}]


@pytest.mark.parametrize("shape", SHAPES)
def test_features_equal_a_loop_over_objects(shape: dict[str, int]) -> None:
    world = ObjectWorld(**shape)
    things = list(zip(*world.objects, strict=True))
    for state in range(world.n_states):
        row, column = world.cell(state)
        near = [(o, i) for r, c, o, i in things if abs(r - row) + abs(c - column) <= world.radius]
        expected = (
            {"clear"} if not near else {f"outer {'ABC'[o]}" for o, _ in near} | {f"inner {'abc'[i]}" for _, i in near}
        )
        shown = {name for name, value in zip(world.feature_names, world.features[state], strict=True) if value == 1.0}
        assert shown == expected
    assert set(np.unique(world.features)) <= {0.0, 1.0}
    np.testing.assert_array_equal(world.mdp.state_features, world.features)
    assert world.mdp.feature_names == world.feature_names


def test_objects_are_in_distinct_cells_with_equal_colour_counts() -> None:
    places = set()
    for seed in range(20):
        things = ObjectWorld(seed=seed).objects
        cells = set(zip(things.row.tolist(), things.column.tolist(), strict=True))
        assert len(cells) == 12
        assert min(*map(min, cells)) >= 0
        assert max(*map(max, cells)) <= 7
        places |= cells
        np.testing.assert_array_equal(np.bincount(things.outer), [4, 4, 4])
        assert 0 <= things.inner.min() <= things.inner.max() <= 2
    assert len(places) == 64


def test_world_has_no_terminal_state_and_uniform_start() -> None:
    mdp = ObjectWorld().mdp
    assert (mdp.n_states, mdp.n_actions, mdp.n_features) == (64, 4, 7)
    assert not mdp.terminal.any()
    np.testing.assert_allclose(mdp.p0, 1.0 / 64.0, rtol=1e-14, atol=0.0)
    demos, _ = ObjectWorld().sample(20, max_length=17)
    assert demos.lengths.tolist() == [17] * 20


def test_rewards_prefer_one_colour_per_intent() -> None:
    world = ObjectWorld(n_colours=3, n_intents=2)
    thetas = world.ensemble.thetas
    np.testing.assert_array_equal(
        thetas, [[-2.0, 0.0, -5.0, -5.0, 0.0, 0.0, 0.0], [-2.0, -5.0, 0.0, -5.0, 0.0, 0.0, 0.0]]
    )
    rewards = world.mdp.rewards(thetas)[0]
    assert rewards.max() == 0.0
    assert np.all(world.features[rewards[:, 1] == 0.0][:, 2] == 1.0)  # nothing is free but outer colour B


@pytest.mark.parametrize("seed", [0, 1, 2, 4])
def test_intent_moves_to_its_colour_and_stays(seed: int) -> None:
    world = ObjectWorld(seed=seed, wind=0.0)
    demos, labels = world.sample(120, seed=1)
    last = world.features[demos.last_states][:, 1:4]
    np.testing.assert_array_equal(last, np.eye(3)[labels])  # near its own colour, and near no other
    late = np.concatenate([demos.states[end - 10 : end] for end in demos.offsets[1:]])
    np.testing.assert_array_equal(world.features[late][:, 1:4], np.repeat(np.eye(3)[labels], 10, axis=0))


@pytest.mark.parametrize("policy", ["optimal", "boltzmann"])
def test_mixture_recovers_the_intents(policy: str) -> None:
    world = ObjectWorld(seed=1)
    demos, labels = world.sample(100, seed=1, policy=policy)
    mixture = IntentMixture(3, MaxEnt(), random_state=0).fit(world.mdp, demos.replace(labels=None))
    assert anid(np.eye(3)[labels], mixture.responsibilities_) < 0.05


def test_text_names_every_object() -> None:
    world = ObjectWorld(seed=5)
    shown = [line.split() for line in str(world).splitlines()]
    for row, column, outer, inner in zip(*world.objects, strict=True):
        assert shown[row][column] == "ABC"[outer] + "abc"[inner]
    assert sum(sign == "." for line in shown for sign in line) == 64 - 12


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({"size": 1}, {"parameter": "size", "value": 1}),
        ({"n_colours": 0}, {"parameter": "n_colours", "value": 0}),
        ({"n_intents": 0}, {"parameter": "n_intents", "value": 0}),
        ({"n_intents": 4}, {"parameter": "n_intents", "value": 4}),
        ({"n_objects": 2}, {"parameter": "n_objects", "value": 2}),
        ({"n_objects": 65}, {"parameter": "n_objects", "value": 65}),
        ({"n_colours": 27, "n_objects": 30}, {"parameter": "n_colours", "value": 27}),
        ({"radius": -1}, {"parameter": "radius", "value": -1}),
        ({"wind": "calm"}, {"parameter": "wind", "value": "calm"}),
        ({"gamma": 1.0}, {"parameter": "gamma", "value": 1.0}),
        ({"gamma": 1.5}, {"parameter": "gamma", "value": 1.5}),
        ({"seed": 1.0}, {"parameter": "seed", "value": 1.0}),
    ],
)
def test_invalid_parameters_are_rejected(parameters: dict[str, object], expected: dict[str, object]) -> None:
    with raises(InvalidParameter, **expected):
        ObjectWorld(**parameters)  # type: ignore[arg-type]
