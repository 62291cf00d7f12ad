"""RoadGrid: exact counts, planar geometry, legal turns, features."""

from functools import cache

import numpy as np
import pytest
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse
from scipy.sparse.csgraph import connected_components

from limiirl.errors import InvalidParameter
from limiirl.worlds import RoadGrid
from limiirl.worlds.roadgrid import LIPSCHITZ, REGIONS, ROAD_CLASSES, TURNS, plan_streets
from tests.helpers import raises

SIZES = [(2_000, 4_000, 0), (2_000, 4_000, 1), (2_001, 4_067, 2), (1_500, 1_950, 3), (3_000, 8_100, 4), (200, 400, 5)]
BACK = TURNS.index("back")


@cache
def town(n_states: int = 2_000, n_edges: int = 4_000, seed: int = 0) -> RoadGrid:
    return RoadGrid(n_states, n_edges, seed)


def n_components(grid: RoadGrid) -> int:
    graph = csr_array((np.ones(grid.n_edges), (grid.mdp.src, grid.mdp.dst)), shape=(grid.n_states, grid.n_states))
    return int(connected_components(graph, directed=True, connection="strong")[0])


def unique_pairs(grid: RoadGrid) -> NDArray[np.int64]:
    """Node pairs of the streets' pieces, each once."""
    return np.unique(np.sort(np.column_stack([grid.tail, grid.head]), axis=1), axis=0)


def side(a: NDArray[np.float64], b: NDArray[np.float64], c: NDArray[np.float64]) -> NDArray[np.float64]:
    """Positive where c lies to the left of the line from a to b."""
    area: NDArray[np.float64] = (b - a)[..., 0] * (c - a)[..., 1] - (b - a)[..., 1] * (c - a)[..., 0]
    return area


@pytest.mark.parametrize("size", SIZES)
def test_counts_are_exact(size: tuple[int, int, int]) -> None:
    grid = town(*size)
    mdp = grid.mdp
    assert (mdp.n_states, mdp.n_edges, mdp.n_features) == (*size[:2], 24)
    assert len(np.unique(grid.turns[:, :2], axis=0)) == grid.n_edges
    assert len(np.unique(np.column_stack([grid.tail, grid.head]), axis=0)) == grid.n_states
    assert mdp.deterministic
    assert not mdp.terminal.any()
    assert mdp.gamma == 1.0
    np.testing.assert_allclose(mdp.p0, 1.0 / grid.n_states, rtol=1e-14, atol=0.0)


@pytest.mark.parametrize("n_states", range(400, 410))
@pytest.mark.parametrize("excess", [300, 301])
def test_counts_are_exact_for_any_parity(n_states: int, excess: int) -> None:
    grid = RoadGrid(n_states, n_states + excess, seed=n_states)
    assert grid.tail.shape == grid.head.shape == (n_states,)
    assert len(np.unique(grid.turns[:, :2], axis=0)) == n_states + excess


@pytest.mark.parametrize("ratio", [1.2, 1.5, 1.8, 2.1, 2.4, 2.7])
def test_documented_range_of_turns_is_feasible(ratio: float) -> None:
    grid = RoadGrid(1_000, round(1_000 * ratio), seed=9)
    assert len(grid.turns) == round(1_000 * ratio)


def test_default_has_the_size_of_the_paper() -> None:
    grid = RoadGrid()
    assert (grid.mdp.n_states, grid.mdp.n_edges) == (292_604, 594_933)
    assert n_components(grid) == 1
    # A city about 30 km across, blocks of about 100 m.
    assert 20.0 < np.ptp(grid.node_xy, axis=0).max() < 40.0
    assert 0.05 < np.median(grid.length_km) < 0.15
    assert grid.length_km.min() > 0.005
    assert np.bincount(grid.region, minlength=17).min() > 0.02 * grid.n_states


@pytest.mark.parametrize("size", SIZES)
def test_network_is_strongly_connected(size: tuple[int, int, int]) -> None:
    assert n_components(town(*size)) == 1


@pytest.mark.parametrize("size", SIZES)
def test_streets_intersect_only_at_nodes(size: tuple[int, int, int]) -> None:
    grid = town(*size)
    pairs = unique_pairs(grid)
    start, end = grid.node_xy[pairs[:, 0]], grid.node_xy[pairs[:, 1]]
    i, j = np.triu_indices(len(pairs), k=1)
    shared = (pairs[i][:, :, None] == pairs[j][:, None, :]).any(axis=(1, 2))
    apart_i = side(start[i], end[i], start[j]) * side(start[i], end[i], end[j]) > 0.0
    apart_j = side(start[j], end[j], start[i]) * side(start[j], end[j], end[i]) > 0.0
    assert not (~shared & ~apart_i & ~apart_j).any()
    # Where two pieces share a node, they do not lie on each other: the other ends lie in different directions.
    i, j = i[shared], j[shared]
    common = np.where((pairs[i, 0] == pairs[j, 0]) | (pairs[i, 0] == pairs[j, 1]), pairs[i, 0], pairs[i, 1])
    to_i = grid.node_xy[pairs[i].sum(axis=1) - common] - grid.node_xy[common]
    to_j = grid.node_xy[pairs[j].sum(axis=1) - common] - grid.node_xy[common]
    cosine = (to_i * to_j).sum(axis=1) / np.linalg.norm(to_i, axis=1) / np.linalg.norm(to_j, axis=1)
    assert cosine.max() < 0.95


def test_displacement_is_injective() -> None:
    assert LIPSCHITZ < 1.0


@pytest.mark.parametrize("size", SIZES)
def test_turns_are_continuous(size: tuple[int, int, int]) -> None:
    grid = town(*size)
    np.testing.assert_array_equal(grid.head[grid.mdp.src], grid.tail[grid.mdp.dst])
    np.testing.assert_array_equal(grid.end_xy[grid.mdp.src], grid.start_xy[grid.mdp.dst])
    np.testing.assert_allclose(grid.length_km, np.hypot(*(grid.end_xy - grid.start_xy).T), rtol=1e-12, atol=0.0)


@pytest.mark.parametrize("size", SIZES)
def test_u_turns_exist_only_in_dead_ends(size: tuple[int, int, int]) -> None:
    grid = town(*size)
    src, dst, kind = grid.turns.T
    back = grid.tail[src] == grid.head[dst]
    np.testing.assert_array_equal(back, kind == BACK)
    departing: dict[int, set[int]] = {}
    for tail, head in zip(grid.tail.tolist(), grid.head.tolist(), strict=True):
        departing.setdefault(tail, set()).add(head)
    for s in src[back].tolist():
        assert departing[grid.head[s]] == {grid.tail[s]}


def test_dead_ends_exist() -> None:
    assert (town().turns[:, 2] == BACK).any()


@pytest.mark.parametrize("size", SIZES)
def test_kinds_of_turns_match_their_angles(size: tuple[int, int, int]) -> None:
    grid = town(*size)
    src, dst, kind = grid.turns.T
    bend = side(grid.start_xy[src], grid.end_xy[src], grid.end_xy[dst])
    assert (bend[kind == TURNS.index("left")] > 0.0).all()
    assert (bend[kind == TURNS.index("right")] < 0.0).all()
    ahead = ((grid.end_xy - grid.start_xy)[src] * (grid.end_xy - grid.start_xy)[dst]).sum(axis=1)
    assert (ahead[kind == TURNS.index("straight")] > 0.0).all()


def test_some_turns_are_forbidden_without_creating_traps() -> None:
    grid = town()
    allowed = set(map(tuple, grid.turns[:, :2].tolist()))
    leaving: dict[int, list[int]] = {}
    for s, tail in enumerate(grid.tail.tolist()):
        leaving.setdefault(tail, []).append(s)
    possible = {
        (s, after)
        for s in range(grid.n_states)
        for after in leaving[int(grid.head[s])]
        if grid.head[after] != grid.tail[s]
    }
    forbidden = len(possible - allowed)
    assert 0.0 < forbidden / grid.n_edges < 0.04
    degree = np.bincount(grid.turns[:, 0], minlength=grid.n_states)
    assert degree.min() == 1
    assert degree.max() == 3
    assert (np.bincount(degree)[1:] > 0.15 * grid.n_states).all()
    assert np.bincount(grid.turns[:, 1], minlength=grid.n_states).min() >= 1


def test_one_way_streets() -> None:
    grid = town()
    pairs = set(zip(grid.tail.tolist(), grid.head.tolist(), strict=True))
    single = np.array([(h, t) not in pairs for t, h in zip(grid.tail.tolist(), grid.head.tolist(), strict=True)])
    np.testing.assert_array_equal(grid.one_way, single)
    assert 0.08 < single.mean() < 0.3
    # Arterials are two-way, except where the town's edge has cut off one direction.
    assert single[grid.road_class <= 1].mean() < 0.02


def test_arterials_run_through_the_town() -> None:
    grid = town()
    share = np.bincount(grid.road_class, minlength=4) / grid.n_states
    assert (share > 0.02).all()
    assert share[ROAD_CLASSES.index("residential")] > 0.5
    for k in (0, 1):  # the primary roads span the town
        on_primary = grid.start_xy[grid.road_class == 0]
        assert np.ptp(on_primary[:, k]) > 0.6 * np.ptp(grid.node_xy[:, k])
    speeds = np.bincount(grid.road_class * 3 + grid.speed_class, minlength=12).reshape(4, 3)
    assert speeds[0, 2] == 0  # no primary road has a limit of 30 km/h
    assert speeds[3, 0] == 0
    assert speeds[3, 2] > speeds[3, 1] > 0


def test_shape_points_split_streets() -> None:
    """A shape point has two neighbours, and the way through it is straight on."""
    grid = town(1_500, 1_950, 3)
    neighbours = np.bincount(unique_pairs(grid).ravel())
    assert (neighbours == 2).mean() > 0.4
    assert neighbours.max() == 4
    assert (np.bincount(grid.turns[:, 0]) == 1).mean() > 0.6


@pytest.mark.parametrize("size", SIZES)
def test_features_are_lengths_in_three_groups(size: tuple[int, int, int]) -> None:
    grid = town(*size)
    phi = grid.mdp.state_features
    assert issparse(phi)
    assert phi.nnz == 3 * grid.n_states
    dense = phi.toarray()
    for group in (slice(0, 4), slice(4, 7), slice(7, 24)):
        np.testing.assert_array_equal((dense[:, group] > 0.0).sum(axis=1), 1)
        np.testing.assert_array_equal(dense[:, group].sum(axis=1), grid.length_km)
    np.testing.assert_array_equal(dense[:, :4].argmax(axis=1), grid.road_class)
    np.testing.assert_array_equal(dense[:, 4:7].argmax(axis=1), grid.speed_class)
    np.testing.assert_array_equal(dense[:, 7:].argmax(axis=1), grid.region)
    assert grid.mdp.feature_names == grid.feature_names
    assert len(set(grid.feature_names)) == 24


def test_features_have_exactly_two_null_directions() -> None:
    phi = town(3_000, 6_100, 0).mdp.state_features.toarray()  # type: ignore[union-attr]
    assert np.linalg.matrix_rank(phi) == 22
    for group in (slice(4, 7), slice(7, 24)):
        direction = np.zeros(24)
        direction[:4], direction[group] = 1.0, -1.0
        np.testing.assert_allclose(phi @ direction, 0.0, rtol=0.0, atol=1e-15)


def test_regions_are_the_centre_and_compass_sectors() -> None:
    grid = town()
    east, north = (0.5 * (grid.start_xy + grid.end_xy)).T
    radius, degrees = np.hypot(east, north), np.degrees(np.arctan2(north, east))
    compass = {"E": 0.0, "NE": 45.0, "NNE": 67.5, "N": 90.0, "WNW": 157.5, "W": 180.0, "S": -90.0, "ESE": -22.5}
    for name, angle in compass.items():
        inside = grid.region == REGIONS.index(name)
        assert inside.any()
        off = np.abs((degrees[inside] - angle + 180.0) % 360.0 - 180.0)
        assert off.max() <= 11.25 + 1e-9
    central = grid.region == 0
    assert 0.02 < central.mean() < 0.12
    assert radius[central].max() < radius[~central].min()


def test_numbering_follows_streets_within_shuffled_neighbourhoods() -> None:
    grid = town(20_000, 40_000, 1)
    assert 0.7 < (grid.head[:-1] == grid.tail[1:]).mean() < 0.95
    # Consecutive segments are close; distant numbers are unrelated, since neighbourhoods are in random order.
    middle = 0.5 * (grid.start_xy + grid.end_xy)
    assert np.median(np.linalg.norm(middle[1:] - middle[:-1], axis=1)) < 0.15
    apart = np.linalg.norm(middle[2_000:] - middle[:-2_000], axis=1)
    assert np.median(apart) > 0.5 * np.median(np.linalg.norm(middle, axis=1))
    jumps = np.abs(grid.turns[:, 0] - grid.turns[:, 1])
    assert np.median(jumps) < 200
    assert 0.03 < (jumps > 2_000).mean() < 0.3


def test_seed_determines_the_network() -> None:
    first, again, other = RoadGrid(500, 1_000, 3), RoadGrid(500, 1_000, 3), RoadGrid(500, 1_000, 4)
    assert first == again
    assert first.mdp == again.mdp
    np.testing.assert_array_equal(first.node_xy, again.node_xy)
    assert first != other
    assert first.mdp != other.mdp
    assert repr(first) == "RoadGrid(n_states=500, n_edges=1000, seed=3, gamma=1.0)"
    assert RoadGrid(500, 1_000, 3, gamma=0.999).mdp.gamma == 0.999


def test_arrays_are_read_only() -> None:
    grid = town()
    for name in ("node_xy", "tail", "head", "length_km", "road_class", "speed_class", "region", "one_way", "turns"):
        assert not getattr(grid, name).flags.writeable


def test_texture_controls_missing_and_one_way_streets() -> None:
    plain, full = (plan_streets(12.0, texture, np.random.default_rng(0)) for texture in (1.0, 0.0))
    assert len(full.street) == 2 * len(full.ends)
    assert len(plain.street) < 1.8 * len(plain.ends)
    assert len(plain.ends) < 0.95 * len(full.ends)
    assert len(full.turns) / len(full.street) > 2.8


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ((199, 400), {"parameter": "n_states", "value": 199}),
        ((2_000.0, 4_000), {"parameter": "n_states", "value": 2000.0}),
        ((2_000, "many"), {"parameter": "n_edges", "value": "many"}),
        (
            (2_000, 2_399),
            {"parameter": "n_edges", "value": 2399},
        ),
        ((2_000, 5_601), {"parameter": "n_edges", "value": 5601}),
        ((200, 560), {"parameter": "n_edges", "value": 560}),
        ((2_000, 4_000, -1), {"parameter": "seed", "value": -1}),
        ((2_000, 4_000, 0, 0.0), {"parameter": "gamma", "value": 0.0}),
    ],
)
def test_invalid_parameters_are_rejected(parameters: tuple[int, ...], expected: dict[str, object]) -> None:
    with raises(InvalidParameter, **expected):
        RoadGrid(*parameters)


def test_plot_draws_every_street_once_by_class() -> None:
    grid = town()
    ax = Figure().add_subplot()
    assert grid.plot(ax=ax) is ax
    layers = [c for c in ax.collections if isinstance(c, LineCollection)]
    assert len(layers) == 4
    assert sum(len(layer.get_segments()) for layer in layers) == len(unique_pairs(grid))
    by_height = sorted(layers, key=lambda layer: layer.get_zorder())
    widths = [float(layer.get_linewidths()[0]) for layer in by_height]
    assert widths == sorted(widths)  # wide roads are drawn over narrow ones
    legend = ax.get_legend()
    assert legend is not None
    assert tuple(text.get_text() for text in legend.get_texts()) == ROAD_CLASSES
    assert "2,000 directed segments, 4,000 turns" in ax.get_title()
    (left, right), (bottom, top) = ax.get_xlim(), ax.get_ylim()
    assert left < grid.node_xy[:, 0].min() < grid.node_xy[:, 0].max() < right
    assert bottom < grid.node_xy[:, 1].min() < grid.node_xy[:, 1].max() < top
