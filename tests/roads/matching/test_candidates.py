"""Segments near a fix, compared with shapely and with an exhaustive search."""

import numpy as np
import pytest
import shapely

from limiirl.errors import InvalidParameter
from limiirl.roads.kernels import spatial_index as kernel
from limiirl.roads.matching.candidates import build_grid, find_unique_neighbours
from tests.helpers import raises
from tests.oracles.map_matching import chains
from tests.oracles.road_networks import from_xy, random_grid


def nearest(grid, x, y, radius_m, most=64, streets=False):
    return kernel.near(grid, float(x), float(y), float(radius_m), most, streets)


def lines(network):
    xy = network.node_xy
    return shapely.linestrings(np.stack([xy[network.tail], xy[network.head]], axis=1))


def points(network, n, seed):
    low, high = network.node_xy.min(axis=0) - 80.0, network.node_xy.max(axis=0) + 80.0
    return np.random.default_rng(seed).uniform(low, high, (n, 2))


@pytest.mark.parametrize("cell_m", [7.0, 60.0, 5000.0])
@pytest.mark.parametrize("seed", range(3))
def test_radius_search_agrees_with_shapely(seed, cell_m):
    network = random_grid(seed, nx=5, ny=6)
    grid, streets = build_grid(network, cell_m), lines(network)
    for x, y in points(network, 60, seed):
        segment, along, distance = nearest(grid, x, y, radius_m=60.0)
        point = shapely.Point(x, y)
        exact = shapely.distance(streets, point)
        near = np.flatnonzero(exact <= 60.0)
        assert sorted(segment.tolist()) == near.tolist()
        np.testing.assert_allclose(distance, exact[segment], rtol=0.0, atol=1e-9)
        share = shapely.line_locate_point(streets[segment], point, normalized=True)
        np.testing.assert_allclose(along, share, rtol=0.0, atol=1e-9)
        assert np.all(np.diff(distance) >= 0.0)


def test_ties_are_broken_by_the_lower_segment():
    network = random_grid(1, one_way=0.0)
    grid = build_grid(network)
    for x, y in points(network, 40, 5):
        everything = nearest(grid, x, y, radius_m=150.0, most=500)
        for most in (1, 2, 5):
            few = nearest(grid, x, y, radius_m=150.0, most=most)
            for all_of, some in zip(everything, few, strict=True):
                np.testing.assert_array_equal(some, all_of[:most])
        tied = np.diff(everything[2]) == 0.0
        assert np.all(np.diff(everything[0])[tied] > 0)


def test_both_directions_are_candidates():
    network = from_xy([(0, 0), (100, 0)], [0, 1], [1, 0])
    segment, along, distance = nearest(build_grid(network), 30.0, 5.0, radius_m=20.0)
    assert segment.tolist() == [0, 1]
    np.testing.assert_allclose(along, [0.3, 0.7], rtol=1e-9)
    np.testing.assert_allclose(distance, [5.0, 5.0], rtol=1e-9)


def test_a_long_slanted_segment_is_indexed_along_its_whole_length():
    network = from_xy([(0, 0), (2000, 700)], [0], [1])
    grid = build_grid(network, 20.0)
    for share in np.linspace(0.0, 1.0, 101):
        assert nearest(grid, 2000 * share, 700 * share + 1.0, radius_m=3.0)[0].tolist() == [0]
    # A segment is listed in the cells along its line, not in its bounding box.
    assert grid.items.size < 300


@pytest.mark.parametrize("seed", range(3))
def test_streets_are_reported_at_local_minima_of_the_distance(seed):
    network = random_grid(seed, nx=5, ny=5, one_way=0.5)
    grid, street = build_grid(network), chains(network)
    before, after = find_unique_neighbours(network)
    dropped = 0
    for x, y in points(network, 60, seed):
        segment, _, distance = nearest(grid, x, y, radius_m=200.0, most=500)
        kept, share, _ = nearest(grid, x, y, radius_m=200.0, most=500, streets=True)
        far = dict(zip(segment.tolist(), distance.tolist(), strict=True))
        assert set(kept.tolist()) <= set(far)
        assert {tuple(street[s]) for s in far} == {tuple(street[s]) for s in kept.tolist()}
        for s in set(far) - set(kept.tolist()):
            dropped += 1
            neighbours = [far[t] for t in (before[s], after[s]) if t in far]
            assert neighbours
            assert min(neighbours) <= far[s] + 1e-9
        # The end of a segment is a local minimum only if the next segment of the street is not closer.
        assert np.all(before[kept[share == 0.0]] < 0)
        assert all(far.get(after[s], np.inf) >= far[s] - 1e-9 for s in kept[share == 1.0].tolist())
    assert dropped > 0


def test_neighbours_need_a_single_turn_out_and_a_single_turn_in():
    # 0-1-2 is one street; it forks at node 2, where the street 4-2 ends.
    network = from_xy([(0, 0), (50, 0), (100, 0), (150, 50), (150, -50)], [0, 1, 2, 4], [1, 2, 3, 2])
    before, after = find_unique_neighbours(network)
    assert after.tolist() == [1, -1, -1, -1]
    assert before.tolist() == [-1, 0, -1, -1]


def test_the_radius_doubles_up_to_the_maximum():
    grid = build_grid(from_xy([(0, 0), (100, 0)], [0], [1]))
    result = [kernel.near_growing(grid, 50.0, y, 50.0, 120.0, 64, False)[2].tolist() for y in (30.0, 90.0, 130.0)]
    assert [len(distance) for distance in result] == [1, 1, 0]
    np.testing.assert_allclose([result[0][0], result[1][0]], [30.0, 90.0], rtol=1e-6)


def test_distant_or_nonfinite_points_have_no_candidates():
    network = random_grid(0)
    grid = build_grid(network)
    for x, y in ((1e18, 0.0), (-1e18, -1e18), (np.nan, 0.0), (0.0, np.inf), (5e5, 5e5)):
        assert nearest(grid, x, y, radius_m=50.0)[0].size == 0


def test_a_cell_size_of_zero_is_rejected():
    with raises(InvalidParameter, parameter="cell_m", value=0.0):
        build_grid(random_grid(0), 0.0)


def test_another_network_does_not_recompile_the_index():
    kernel.near(build_grid(random_grid(0)), 0.0, 0.0, 50.0, 8, True)
    before = len(kernel.near.signatures)
    kernel.near(build_grid(random_grid(1, nx=3)), 0.0, 0.0, 50.0, 8, True)
    assert len(kernel.near.signatures) == before
