"""ElementWorld against a naive construction, and against reference values of spec.md."""

import subprocess
import sys

import numpy as np
import pytest
from matplotlib.figure import Figure
from numpy.typing import NDArray

from limiirl.errors import InvalidParameter
from limiirl.mdp.planning import optimal_values, policy_values
from limiirl.worlds import ElementWorld
from limiirl.worlds.elementworld import GOAL, START
from limiirl.worlds.gridworld import ACTIONS
from tests.helpers import raises

SHAPES = [
    {},
    {"wind": 0.0},
    {"wind": 1.0, "seed": 3},
    {"n_elements": 1, "height": 3, "seed": 1},
    {"n_elements": 3, "zone_size": 1, "wind": 0.4, "height": 4, "seed": 7},
    {"n_elements": 5, "zone_size": 2, "wind": 0.25, "height": 9, "seed": 11},
]


def dense(world: ElementWorld) -> NDArray[np.float64]:
    """T (S, A, S) of the world's MDP."""
    mdp = world.mdp
    T = np.zeros((mdp.n_states, len(ACTIONS), mdp.n_states))
    np.add.at(T, (mdp.src, mdp.act, mdp.dst), mdp.prob)
    return T


def naive_dynamics(world: ElementWorld) -> NDArray[np.float64]:
    """T by loops over cells, moves and winds, as the specification words it."""
    n_rows, height = world.n_elements * world.zone_size, world.height
    T = np.zeros((n_rows * height, 4, n_rows * height))
    for row in range(n_rows):
        for column in range(height - 1):  # the last column is terminal
            here = row * height + column
            moves = [(row - 1, column), (row + 1, column), (row, column - 1), (row, column + 1)]
            feasible = [0 <= c < height for _, c in moves]
            where = [(r % n_rows) * height + c for r, c in moves]
            for a in range(4):
                if not feasible[a]:
                    T[here, a, here] += 1.0
                    continue
                T[here, a, where[a]] += 1.0 - world.wind
                others = [where[b] for b in range(4) if b != a and feasible[b]]
                for other in others:
                    T[here, a, other] += world.wind / len(others)
    return T


def kernel(world: ElementWorld) -> NDArray[np.float64]:
    """The q-mass kernel M, (S, S); terminal rows are zero."""
    summed: NDArray[np.float64] = dense(world).sum(axis=1)
    return summed


def spectral_radius(matrix: NDArray[np.float64]) -> float:
    return float(np.abs(np.linalg.eigvals(matrix)).max())


@pytest.mark.parametrize("shape", SHAPES)
def test_dynamics_equal_the_naive_construction(shape: dict[str, float]) -> None:
    world = ElementWorld(**shape)  # type: ignore[arg-type]
    np.testing.assert_allclose(dense(world), naive_dynamics(world), rtol=0.0, atol=1e-15)


@pytest.mark.parametrize("shape", SHAPES)
def test_probabilities_of_each_action_sum_to_one(shape: dict[str, float]) -> None:
    world = ElementWorld(**shape)  # type: ignore[arg-type]
    sums = dense(world).sum(axis=2)
    alive = ~world.mdp.terminal
    np.testing.assert_allclose(sums[alive], 1.0, rtol=0.0, atol=1e-14)
    np.testing.assert_array_equal(sums[~alive], 0.0)


def test_paper_world_has_the_right_size() -> None:
    world = ElementWorld()
    mdp = world.mdp
    assert (mdp.n_states, mdp.n_actions, mdp.n_features, int(mdp.terminal.sum())) == (54, 4, 5, 9)
    assert world.grid.shape == (9, 6)
    assert mdp.gamma == 0.99
    assert mdp.feature_names == ("start", "goal", "element 1", "element 2", "element 3")
    np.testing.assert_array_equal(np.bincount(world.grid.ravel()), [9, 9, 12, 12, 12])


@pytest.mark.parametrize("shape", SHAPES)
def test_columns_are_rolled_lanes(shape: dict[str, float]) -> None:
    world = ElementWorld(**shape)  # type: ignore[arg-type]
    lanes = np.repeat(np.arange(world.n_elements), world.zone_size) + 2
    np.testing.assert_array_equal(world.grid[:, 0], START)
    np.testing.assert_array_equal(world.grid[:, -1], GOAL)
    previous = lanes
    for column in range(1, world.height - 1):
        rolled = [np.roll(previous, k) for k in range(-2, 3)]
        assert any(np.array_equal(world.grid[:, column], candidate) for candidate in rolled)
        previous = world.grid[:, column]


def test_rolls_are_uniform_and_independent() -> None:
    # Nine rows with three lanes distinguish rolls by -2..2. 300 worlds give 1200 rolls; chi-square with 4 degrees of
    # freedom exceeds 23.5 once in ten thousand.
    lanes = np.repeat([2, 3, 4], 3)
    counts = np.zeros(5)
    for seed in range(300):
        previous = lanes
        for column in ElementWorld(seed=seed).grid[:, 1:-1].T:
            counts[[np.array_equal(column, np.roll(previous, k)) for k in range(-2, 3)]] += 1
            previous = column
    assert counts.sum() == 1200
    assert ((counts - 240.0) ** 2 / 240.0).sum() < 23.5


def test_rows_wrap_around() -> None:
    world = ElementWorld(wind=0.0)
    T = dense(world)
    up, down = ACTIONS.index("up"), ACTIONS.index("down")
    for column in range(world.height - 1):
        assert T[world.state(0, column), up, world.state(8, column)] == 1.0
        assert T[world.state(8, column), down, world.state(0, column)] == 1.0


def test_moves_off_the_start_column_stay_put() -> None:
    world = ElementWorld(wind=0.7)
    left = ACTIONS.index("left")
    for row in range(world.n_rows):
        s = world.state(row, 0)
        assert dense(world)[s, left, s] == 1.0


def test_without_wind_the_world_is_deterministic() -> None:
    assert ElementWorld(wind=0.0).mdp.deterministic
    assert ElementWorld(wind=0.0).mdp.n_edges == 45 * 4
    assert not ElementWorld(wind=0.1).mdp.deterministic


def test_start_is_uniform_on_the_first_column() -> None:
    world = ElementWorld()
    np.testing.assert_allclose(world.mdp.p0.reshape(9, 6)[:, 0], 1.0 / 9.0, rtol=1e-15, atol=0.0)
    np.testing.assert_array_equal(world.mdp.p0.reshape(9, 6)[:, 1:], 0.0)


def test_features_and_rewards() -> None:
    world = ElementWorld(n_elements=4, seed=5)
    np.testing.assert_array_equal(world.mdp.state_features, np.eye(6)[world.grid.ravel()])
    np.testing.assert_array_equal(world.ensemble.weights, np.full(4, 0.25))
    for k in range(4):
        r = world.mdp.rewards(world.ensemble.thetas)[0][:, k].reshape(world.grid.shape)
        for (row, column), kind in np.ndenumerate(world.grid):
            expected = 0.0 if column == world.height - 1 else -1.0 if column == 0 or kind == 2 + k else -10.0
            assert r[row, column] == expected


def test_seed_determines_the_world() -> None:
    first, again, other = ElementWorld(seed=4), ElementWorld(seed=4), ElementWorld(seed=5)
    assert first == again
    assert first.mdp == again.mdp
    assert first.mdp.fingerprint() == again.mdp.fingerprint()
    assert first.ensemble == again.ensemble
    assert first.mdp != other.mdp
    assert first.mdp is first.mdp  # built once


@pytest.mark.parametrize("wind", [0.0, 0.1, 0.6, 1.0])
@pytest.mark.parametrize("seed", [0, 1])
def test_kernel_is_independent_of_wind(wind: float, seed: int) -> None:
    """Every neighbour has total mass 1, so rho(M) = 2 + 2 cos(pi / 11), of the product of a cycle and a path."""
    M = kernel(ElementWorld(wind=wind, seed=seed))
    np.testing.assert_allclose(M, kernel(ElementWorld(wind=0.0)), rtol=0.0, atol=1e-14)
    np.testing.assert_allclose(spectral_radius(M), 2.0 + 2.0 * np.cos(np.pi / 11.0), rtol=1e-12, atol=0.0)
    assert round(spectral_radius(M), 2) == 3.92  # the figure of spec.md, section C


def test_true_rewards_are_super_critical() -> None:
    """spec.md's rho(M diag e^r) = 1.234 is the mean over worlds, which spread by 0.016; intents of a world agree."""
    radii = []
    for seed in range(60):
        world = ElementWorld(seed=seed)
        M = kernel(world)
        r = world.mdp.rewards(world.ensemble.thetas)[0]
        per_intent = [spectral_radius(M * np.exp(r[:, k])) for k in range(3)]
        np.testing.assert_allclose(per_intent, per_intent[0], rtol=1e-10, atol=0.0)
        radii.append(per_intent[0])
    assert min(radii) > 1.215
    assert max(radii) < 1.272
    np.testing.assert_allclose(np.mean(radii), 1.234, rtol=0.0, atol=0.005)  # standard error 0.002


def test_states_and_cells_are_inverse() -> None:
    world = ElementWorld()
    assert [world.state(*world.cell(s)) for s in range(54)] == list(range(54))
    assert world.state(-1, 2) == world.state(8, 2)
    assert world.mdp.state_names is not None
    assert world.mdp.state_names[13] == "(2, 1)"
    with raises(InvalidParameter, parameter="column", value=6):
        world.state(0, 6)
    with raises(InvalidParameter, parameter="state", value=54):
        world.cell(54)


def test_text_shows_every_cell() -> None:
    world = ElementWorld(n_elements=11, seed=1)
    rows = [line.split() for line in str(world).splitlines()]
    signs = ["S", "G", *(str(e) for e in range(1, 12))]
    assert rows == [[signs[kind] for kind in row] for row in world.grid]
    assert len({len(line) for line in str(world).splitlines()}) == 1
    assert repr(world) == "ElementWorld(n_elements=11, wind=0.1, height=6, zone_size=3, gamma=0.99, seed=1)"


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({"n_elements": 0}, {"parameter": "n_elements", "value": 0}),
        ({"n_elements": 2.0}, {"parameter": "n_elements", "value": 2.0}),
        ({"n_elements": True}, {"parameter": "n_elements", "value": True}),
        ({"height": 2}, {"parameter": "height", "value": 2}),
        ({"zone_size": 0}, {"parameter": "zone_size", "value": 0}),
        ({"n_elements": 2, "zone_size": 1}, {"parameter": "zone_size", "value": 1}),
        ({"wind": -0.1}, {"parameter": "wind", "value": -0.1}),
        ({"wind": 1.5}, {"parameter": "wind", "value": 1.5}),
        ({"wind": float("nan")}, {"parameter": "wind"}),
        ({"wind": "strong"}, {"parameter": "wind", "value": "strong"}),
        ({"gamma": 0.0}, {"parameter": "gamma", "value": 0.0}),
        ({"gamma": 1.01}, {"parameter": "gamma", "value": 1.01}),
        ({"gamma": "high"}, {"parameter": "gamma", "value": "high"}),
        ({"seed": -1}, {"parameter": "seed", "value": -1}),
        ({"seed": None}, {"parameter": "seed"}),
    ],
)
def test_invalid_parameters_are_rejected(parameters: dict[str, object], expected: dict[str, object]) -> None:
    with raises(InvalidParameter, **expected):
        ElementWorld(**parameters)  # type: ignore[arg-type]


@pytest.mark.parametrize("shape", SHAPES)
def test_demonstrators_are_optimal_and_mix_all_ties(shape: dict[str, float]) -> None:
    world = ElementWorld(**shape)  # type: ignore[arg-type]
    mdp, policies = world.mdp, world.optimal_policies
    assert policies.shape == (world.n_elements, mdp.n_pairs)
    T = dense(world)
    for theta, policy in zip(world.ensemble.thetas, policies, strict=True):
        V = np.zeros(mdp.n_states)
        r = mdp.rewards(theta)[0][:, 0]
        for _ in range(3000):
            Q = r[:, None] + mdp.gamma * T @ V
            V = np.where(mdp.terminal, r, Q.max(axis=1))
        ties = Q.max(axis=1, keepdims=True) - 1e-9 <= Q
        expected = (ties / ties.sum(axis=1, keepdims=True))[mdp.pair_state, mdp.pair_action]
        np.testing.assert_allclose(policy, expected, rtol=1e-12, atol=0.0)
        np.testing.assert_allclose(policy_values(mdp, policy, theta), optimal_values(mdp, theta), rtol=1e-10, atol=0.0)


def test_sampled_actions_include_ties() -> None:
    """Without wind several ways are equally good: some of the 3 x 45 choices are then split in two."""
    assert np.count_nonzero(ElementWorld(wind=0.0).optimal_policies == 0.5) > 20


def test_sample_has_equal_numbers_and_labels_in_a_random_order() -> None:
    world = ElementWorld(seed=2)
    demos, labels = world.sample(100, seed=1)
    assert (len(demos), labels.dtype, labels.shape) == (100, np.int64, (100,))
    np.testing.assert_array_equal(demos.labels, labels)
    np.testing.assert_array_equal(np.bincount(labels), [34, 33, 33])
    assert np.count_nonzero(np.diff(labels)) > 40  # 66 expected in a random order, 2 in blocks
    np.testing.assert_array_equal(np.bincount(world.sample(2)[1], minlength=3), [1, 1, 0])


def test_sample_matches_the_policy_of_each_intent() -> None:
    world = ElementWorld(seed=2)
    demos, labels = world.sample(300, seed=5)
    used = world.optimal_policies > 0.0
    edge = demos.steps(world.mdp).edge
    pairs = world.mdp.pair_of_edge[edge]
    intent = np.repeat(labels, demos.lengths - 1)
    assert used[intent, pairs].all()
    assert not used[(intent + 1) % 3, pairs].all()
    done = world.mdp.terminal[demos.last_states]
    assert np.all(done | (demos.lengths == 50))
    assert done.all()  # a wind of 0.1 causes only short delays


def test_sample_stops_at_max_length() -> None:
    demos, _ = ElementWorld().sample(30, seed=0, max_length=7)
    assert demos.lengths.max() == 7
    assert not ElementWorld().mdp.terminal[demos.last_states].all()
    assert ElementWorld().sample(30, max_length=1)[0].lengths.tolist() == [1] * 30


def test_sample_is_determined_by_its_seeds() -> None:
    world = ElementWorld(seed=3)
    assert world.sample(20, seed=4)[0] == ElementWorld(seed=3).sample(20, seed=4)[0]
    assert world.sample(20, seed=4)[0] != world.sample(20, seed=5)[0]
    # Worlds do not share their luck, and none shares it with its own rolls.
    starts, others = (ElementWorld(seed=s).sample(20, seed=4, max_length=1)[0].start_states for s in (3, 4))
    assert not np.array_equal(starts, others)
    assert world.optimal_policies is world.optimal_policies  # planned once
    with pytest.raises(ValueError, match="read-only"):
        world.optimal_policies[0, 0] = 1.0


def test_sample_with_weights() -> None:
    world = ElementWorld()
    np.testing.assert_array_equal(np.bincount(world.sample(20, weights=[0.7, 0.2, 0.1])[1]), [14, 4, 2])
    np.testing.assert_array_equal(np.bincount(world.sample(20, weights=[1.0, 0.0, 0.0])[1]), [18, 1, 1])


def test_sample_starts_uniformly() -> None:
    """Chi-square with 8 degrees of freedom exceeds 42 once in a million."""
    world = ElementWorld()
    counts = np.bincount(world.sample(9000, seed=2)[0].start_states // world.height, minlength=9)
    assert ((counts - 1000.0) ** 2 / 1000.0).sum() < 42.0


def test_sample_lengths_agree_with_the_specification() -> None:
    """The longest of 200 demonstrations has about 20 states on average: spec.md, section 0."""
    longest = [ElementWorld(seed=s).sample(200, seed=1)[0].lengths.max() for s in range(16)]
    np.testing.assert_allclose(np.mean(longest), 20.0, rtol=0.0, atol=2.5)


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({"n": 0}, {"parameter": "n", "value": 0}),
        ({"n": 5, "seed": -1}, {"parameter": "seed", "value": -1}),
        ({"n": 5, "max_length": 0}, {"parameter": "max_length", "value": 0}),
        ({"n": 5, "weights": [0.5, 0.5]}, {"parameter": "weights", "value": (2,)}),
        ({"n": 5, "weights": [0.5, 0.5, 0.5]}, {"parameter": "weights", "value": 1.5}),
        ({"n": 5, "weights": [0.5, 0.8, -0.3]}, {"parameter": "weights", "value": -0.3, "index": 2}),
        ({"n": 2, "weights": [0.5, 0.3, 0.2]}, {"parameter": "n", "value": 2}),
    ],
)
def test_invalid_sample_arguments_are_rejected(parameters: dict[str, object], expected: dict[str, object]) -> None:
    with raises(InvalidParameter, **expected):
        ElementWorld().sample(**parameters)  # type: ignore[arg-type]


def test_map_is_coloured_by_cell_type() -> None:
    world = ElementWorld(seed=2)
    ax = Figure().add_subplot()
    assert world.plot(ax=ax) is ax
    mesh = ax.collections[0]
    np.testing.assert_array_equal(np.asarray(mesh.get_array()).reshape(world.grid.shape), world.grid)
    legend = ax.get_legend()
    assert legend is not None
    assert tuple(text.get_text() for text in legend.get_texts()) == world.feature_names
    colours = [tuple(patch.get_facecolor()) for patch in legend.get_patches()]
    assert len(set(colours)) == 5
    np.testing.assert_allclose(mesh.to_rgba(np.arange(5)), colours, rtol=0.0, atol=1e-12)
    signs = {(int(t.get_position()[1]), int(t.get_position()[0])): t.get_text() for t in ax.texts}
    drawn = "\n".join(" ".join(signs[row, column] for column in range(6)) for row in range(9))
    assert drawn == str(world)
    bottom, top = ax.get_ylim()
    assert bottom > top  # row 0 on top


def test_map_is_coloured_by_reward() -> None:
    world = ElementWorld(seed=2)
    theta = np.array([-1.0, 0.0, -3.0, -5.0, -7.0])
    ax = world.plot(theta, ax=Figure().add_subplot())
    shown = np.asarray(ax.collections[0].get_array()).reshape(world.grid.shape)
    np.testing.assert_array_equal(shown, theta[world.grid])
    assert [a.get_ylabel() for a in ax.figure.axes if a is not ax] == ["reward"]
    with raises(InvalidParameter, parameter="thetas", value=(3,)):
        world.plot(theta[:3], ax=Figure().add_subplot())


def test_worlds_do_not_import_matplotlib() -> None:
    code = "import sys, limiirl.worlds; print('matplotlib' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
