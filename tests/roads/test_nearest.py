"""From a place to a street: against shapely on a flat map about each place, and what is said where there is none."""

import numpy as np
import pytest
import shapely

from limiirl.errors import InvalidParameter
from limiirl.roads import RoadNetwork, nearest_segments
from limiirl.roads.geometry import offsets_m
from limiirl.roads.lookup import describe_direction
from tests.helpers import raises
from tests.oracles.road_networks import CENTRE, from_xy, random_grid


def exact(network, lat, lon):
    """Distances (S,) of all segments from a place, by shapely."""
    ends = [offsets_m(lat, lon, network.lat[at], network.lon[at]) for at in (network.tail, network.head)]
    return shapely.distance(shapely.linestrings(np.stack(ends, axis=1)), shapely.Point(0.0, 0.0))


def places(network, n, seed, margin=2e-4):
    rng = np.random.default_rng(seed)
    return tuple(rng.uniform(x.min() - margin, x.max() + margin, n) for x in (network.lat, network.lon))


@pytest.mark.parametrize("seed", range(3))
def test_finds_what_shapely_finds(seed):
    network = random_grid(seed, nx=5, ny=5)
    lat, lon = places(network, 60, seed)
    found = network.nearest(lat, lon, within_m=500.0)
    for i in range(60):
        far = exact(network, lat[i], lon[i])
        np.testing.assert_allclose(found.distance_m[i], far.min(), rtol=0.0, atol=2e-6)
        assert found.segment[i] == np.flatnonzero(far <= far.min() + 1e-6)[0]
    np.testing.assert_array_equal(found.opposite, network.opposite[found.segment])


def test_the_flat_map_of_the_network_does_not_decide():
    """12 degrees from the centre a metre east on its map is 0.8 true ones: there the diagonal streets are confused."""
    town = random_grid(3, nx=6, ny=6)
    network = town.replace(centre=(CENTRE[0] - 12.0, CENTRE[1] + 1.0))
    lat, lon = places(network, 300, 5)
    found = network.nearest(lat, lon, within_m=500.0)
    true = np.array([exact(network, *place) for place in zip(lat, lon, strict=True)])
    np.testing.assert_allclose(found.distance_m, true.min(axis=1), rtol=1e-9, atol=2e-6)
    xy, ends = network.plane.xy(lat, lon), network.node_xy
    lines = shapely.linestrings(np.stack([ends[network.tail], ends[network.head]], axis=1))
    flat = shapely.distance(lines, shapely.points(xy)[:, None]).argmin(axis=1)
    assert np.any(true[np.arange(300), flat] > true.min(axis=1) + 0.01)


def test_where_on_the_street_a_place_is():
    network = from_xy([[0, 0], [200, 0], [200, 100]], [0, 1, 1], [1, 0, 2])
    lat, lon = network.plane.degrees([[50.0, 7.0], [203.0, 80.0]]).T
    found = network.nearest(lat, lon)
    np.testing.assert_allclose(found.distance_m, [7.0, 3.0], rtol=1e-4)
    assert found.segment.tolist() == [0, 2]
    assert found.opposite.tolist() == [1, -1]
    np.testing.assert_allclose(found.along, [0.25, 0.8], rtol=1e-4)
    assert found.segments.tolist() == [0, 1, 2]


def test_one_place_and_many_give_the_same():
    network = random_grid(0)
    lat, lon = places(network, 5, 1, 0.0)
    many = network.nearest(lat, lon)
    assert [int(network.nearest(a, b).segment[0]) for a, b in zip(lat, lon, strict=True)] == many.segment.tolist()


def test_a_crowded_place_has_its_nearest():
    """100 spokes meet at one node: more than there is room for at first."""
    turn = np.linspace(0.0, 2.0 * np.pi, 100, endpoint=False)
    rim = 80.0 * np.stack([np.sin(turn), np.cos(turn)], axis=1)
    network = from_xy([[0.0, 0.0], *rim], np.zeros(100, dtype=int), np.arange(1, 101))
    lat, lon = network.plane.degrees(rim * 0.5).T
    assert network.nearest(lat, lon).segment.tolist() == list(range(100))
    assert network.nearest(*network.plane.degrees([0.0, 0.0])).segment.tolist() == [0]


class TestNothingNear:
    def test_says_how_far_the_nearest_is(self):
        network = from_xy([[0, 0], [200, 0]], [0], [1])
        lat, lon = network.plane.degrees([100.0, 340.0])
        with raises(InvalidParameter, parameter="within_m", value=100.0, index=0):
            network.nearest(lat, lon)
        assert network.nearest(lat, lon, within_m=400.0).segment.tolist() == [0]

    def test_the_reach_is_in_true_metres(self):
        town = from_xy([[0, 0], [0, 200]], [0], [1])
        network = town.replace(centre=(CENTRE[0] - 12.0, CENTRE[1]))
        lat, lon = town.plane.degrees([60.0, 100.0])
        assert network.nearest(lat, lon, within_m=60.5).segment.tolist() == [0]
        with raises(InvalidParameter, parameter="within_m", value=59.5, index=0):
            network.nearest(lat, lon, within_m=59.5)

    def test_says_that_the_two_are_swapped(self):
        network = random_grid(0)
        with raises(InvalidParameter, parameter="within_m", value=100.0, index=0):
            network.nearest(CENTRE[1], CENTRE[0])
        tokyo = RoadNetwork.from_segments([35.68, 35.69], [139.7, 139.7], [0], [1])
        with raises(InvalidParameter, parameter="lat", value=(139.7, 35.68), index=0):
            tokyo.nearest(139.7, 35.68)

    def test_names_the_place_among_many(self):
        network = random_grid(0)
        lat, lon = (x.copy() for x in places(network, 3, 0, 0.0))
        lat[1] += 1.0
        with raises(InvalidParameter, parameter="within_m", value=100.0, index=1):
            network.nearest(lat, lon)

    @pytest.mark.parametrize(
        ("lat", "lon", "within_m", "expected"),
        [
            ([41.15], [-8.63, -8.62], 100.0, {"parameter": "lat"}),
            (np.nan, -8.63, 100.0, {"parameter": "lat", "index": 0}),
            (41.15, -8.63, 0.0, {"parameter": "within_m", "value": 0.0}),
            (90.0, 0.0, 100.0, {"parameter": "within_m", "value": 100.0, "index": 0}),
        ],
    )
    def test_refuses_what_is_no_place(self, lat, lon, within_m, expected):
        with raises(InvalidParameter, **expected):
            random_grid(0).nearest(lat, lon, within_m=within_m)


class TestCarriageways:
    """An avenue of two lines 20 m apart: 0 east, 1 back west; beside it a lane east and west, 60 m off."""

    XY = ([0, 0], [200, 0], [200, 20], [0, 20], [0, 80], [200, 80])

    def avenue(self, **known):
        return from_xy(self.XY, [0, 2, 4, 5], [1, 3, 5, 4], **known)

    def at(self, network, x, y, **options):
        return nearest_segments(network, *network.plane.degrees([x, y]), **options).tolist()

    def test_both_are_closed_unless_one_is_asked_for(self):
        network = self.avenue()
        assert self.at(network, 100.0, 1.0) == [0, 1]
        assert self.at(network, 100.0, 19.0) == [0, 1]
        assert self.at(network, 100.0, 1.0, both=False) == [0]

    def test_another_class_or_direction_is_another_street(self):
        ramps = self.avenue(road_class=[0, 1, 0, 0], class_names=("primary", "service"))
        assert self.at(ramps, 100.0, 1.0) == [0]
        parallel = from_xy(self.XY, [0, 3], [1, 2])
        assert self.at(parallel, 100.0, 1.0) == [0]

    def test_another_name_is_another_street(self):
        names = ("", "Rua Nova", "Rua Velha")
        assert self.at(self.avenue(street_names=names, street_of=[1, 2, 0, 0]), 100.0, 1.0) == [0]
        assert self.at(self.avenue(street_names=names, street_of=[1, 1, 0, 0]), 100.0, 1.0) == [0, 1]

    def test_too_far_is_another_street(self):
        apart = from_xy([[0, 0], [200, 0], [200, 50], [0, 50]], [0, 2], [1, 3])
        assert self.at(apart, 100.0, 1.0) == [0]
        assert self.at(apart, 100.0, 12.0) == [0, 1]

    def test_one_line_driven_both_ways(self):
        network = self.avenue()
        assert self.at(network, 100.0, 79.0) == [2, 3]
        with raises(InvalidParameter, parameter="both", value=(2, 3)):
            self.at(network, 100.0, 79.0, both=False)


def test_directions_in_words():
    turn = np.radians([0.0, 44.0, 90.0, 140.0, 180.0, 225.0, 270.0, 315.0, 350.0])
    rim = 80.0 * np.stack([np.sin(turn), np.cos(turn)], axis=1)
    network = from_xy([[0.0, 0.0], *rim], np.zeros(9, dtype=int), np.arange(1, 10))
    words = ["north", "north-east", "east", "south-east", "south", "south-west", "west", "north-west", "north"]
    assert [describe_direction(network, s) for s in range(9)] == [f"to the {word}" for word in words]
