"""PuddleWorld: layout, intents, and their recovery by a mixture."""

import numpy as np
import pytest

from limiirl import IntentMixture, MaxEnt
from limiirl.errors import InvalidParameter
from limiirl.mdp.planning import policy_values
from limiirl.metrics import anid
from limiirl.worlds import PuddleWorld
from limiirl.worlds.puddleworld import DRY, GOAL, PUDDLE
from tests.helpers import raises

SHAPES = [(5, 5), (3, 3), (4, 7), (9, 9), (12, 6)]


def test_seed_zero_has_the_layout_of_the_literature() -> None:
    world = PuddleWorld()
    assert str(world).replace(" ", "").splitlines() == ["S....", "S~~~.", "S~~~G", "S~~~.", "S...."]
    mdp = world.mdp
    assert (mdp.n_states, mdp.n_actions, mdp.n_features, mdp.gamma) == (25, 4, 3, 0.99)
    assert np.flatnonzero(mdp.terminal).tolist() == [world.state(2, 4)]
    assert mdp.feature_names == ("dry", "puddle", "goal")
    np.testing.assert_array_equal(mdp.state_features, np.eye(3)[world.grid.ravel()])
    np.testing.assert_allclose(mdp.p0.reshape(5, 5)[:, 0], 0.2, rtol=1e-15, atol=0.0)
    assert repr(world) == "PuddleWorld(n_rows=5, n_columns=5, wind=0.1, gamma=0.99, seed=0)"


@pytest.mark.parametrize("shape", SHAPES)
def test_puddle_is_in_front_of_the_goal_between_dry_rows(shape: tuple[int, int]) -> None:
    layouts = set()
    for seed in range(300):
        grid = PuddleWorld(*shape, seed=seed).grid
        layouts.add(grid.tobytes())
        wet = (grid == PUDDLE).any(axis=1)
        assert not wet[0]
        assert not wet[-1]
        assert np.all(grid[wet, 1:-1] == PUDDLE)
        assert np.all(grid[:, 0] == DRY)
        assert np.all(grid[~wet] == DRY)
        assert wet.sum() == min((shape[0] + 1) // 2, shape[0] - 2)
        goals = np.argwhere(grid == GOAL)
        assert len(goals) == 1
        assert goals[0, 1] == shape[1] - 1
        assert wet[goals[0, 0]]
        rows = np.flatnonzero(wet)
        assert np.ptp(rows) == rows.size - 1
    assert len(layouts) == (shape[0] - int(wet.sum()) - 1) * int(wet.sum())  # every place, every goal
    first, middle = np.flatnonzero(PuddleWorld(*shape).grid[:, 1] == PUDDLE)[[0, -1]]
    assert abs(first + middle - (shape[0] - 1)) <= 1  # in the middle


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("wind", [0.0, 0.1])
def test_intents_differ_from_every_start(shape: tuple[int, int], wind: float) -> None:
    """Expected steps in the puddle, from each start: what an intent's policy earns where only the puddle pays."""
    for seed in range(4):
        world = PuddleWorld(*shape, wind=wind, gamma=1.0, seed=seed)
        starts = np.flatnonzero(world.mdp.p0)
        avoids, wades = (policy_values(world.mdp, policy, [0.0, 1.0, 0.0])[starts] for policy in world.optimal_policies)
        if wind == 0.0:
            np.testing.assert_allclose(avoids, 0.0, rtol=0.0, atol=1e-12)
            # Wading is worth no detour, but every way that is shortest and leads through the puddle is taken.
            assert np.all(wades >= shape[1] - 2 - 1e-9)
        assert np.all(wades > avoids + 0.6)


def test_rewards() -> None:
    np.testing.assert_array_equal(PuddleWorld().ensemble.thetas, [[-1.0, -10.0, 0.0], [-2.0, -1.0, 0.0]])
    np.testing.assert_array_equal(PuddleWorld().ensemble.weights, [0.5, 0.5])


@pytest.mark.parametrize("policy", ["optimal", "boltzmann"])
@pytest.mark.parametrize(("shape", "seed"), [((5, 5), 0), ((9, 9), 1)])
def test_mixture_recovers_the_intents(policy: str, shape: tuple[int, int], seed: int) -> None:
    world = PuddleWorld(*shape, seed=seed)
    demos, labels = world.sample(100, seed=1, policy=policy)
    mixture = IntentMixture(2, MaxEnt(), random_state=0).fit(world.mdp, demos.replace(labels=None))
    assert anid(np.eye(2)[labels], mixture.responsibilities_) < 0.1


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({"n_rows": 2}, {"parameter": "n_rows", "value": 2}),
        ({"n_columns": 2}, {"parameter": "n_columns", "value": 2}),
        ({"n_columns": 5.0}, {"parameter": "n_columns", "value": 5.0}),
        ({"wind": 1.1}, {"parameter": "wind", "value": 1.1}),
        ({"gamma": 0.0}, {"parameter": "gamma", "value": 0.0}),
        ({"seed": -1}, {"parameter": "seed", "value": -1}),
    ],
)
def test_invalid_parameters_are_rejected(parameters: dict[str, object], expected: dict[str, object]) -> None:
    with raises(InvalidParameter, **expected):
        PuddleWorld(**parameters)  # type: ignore[arg-type]


def test_cells_of_a_walled_world() -> None:
    world = PuddleWorld(4, 6)
    assert [world.state(*world.cell(s)) for s in range(24)] == list(range(24))
    with raises(InvalidParameter, parameter="row", value=-1):
        world.state(-1, 0)
    with raises(InvalidParameter, parameter="column", value=6):
        world.state(0, 6)
    with raises(InvalidParameter, parameter="state", value=24):
        world.cell(24)
