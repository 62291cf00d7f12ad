"""Features and regions: independent computation of the paper's 24 features, custom choices, turns, and units."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from limiirl import roads
from limiirl.errors import InvalidNetwork, InvalidParameter
from limiirl.roads import FeatureChoice, RoadNetwork
from limiirl.roads.features import check_units, choose_features, state_features, turn_features
from limiirl.roads.geometry import PORTO_CENTRE, Plane, great_circle_m
from limiirl.worlds.roadgrid import REGIONS
from tests.helpers import raises

CLASSES = ("motorway", "primary_link", "tertiary", "residential", "busway")
KIND = {"motorway": 0, "primary_link": 1, "tertiary": 2, "residential": 3, "busway": 3}


def scatter_network(n: int = 400, seed: int = 0) -> RoadNetwork:
    """Return a chain of streets of about 100 m in Porto, with all classes, limits and numbers of lanes."""
    rng = np.random.default_rng(seed)
    lat = PORTO_CENTRE[0] + rng.normal(scale=0.03, size=n)
    lon = PORTO_CENTRE[1] + rng.normal(scale=0.04, size=n)
    ends = lat + rng.normal(scale=1e-3, size=n), lon + rng.normal(scale=1e-3, size=n)
    return RoadNetwork.from_segments(
        np.concatenate([lat, ends[0]]),
        np.concatenate([lon, ends[1]]),
        np.arange(n),
        np.arange(n, 2 * n),
        road_class=rng.integers(len(CLASSES), size=n),
        class_names=CLASSES,
        lanes=rng.choice([np.nan, 1.0, 1.5, 2.0, 3.0], size=n),
        speed_kmh=rng.choice([np.nan, 30.0, 50.0, 50.1, 120.0], size=n),
        centre=PORTO_CENTRE,
    )


def region_by_hand(lat: float, lon: float, centre: tuple[float, float], radius_km: float = 2.0) -> str:
    """Return the region by the rule of the released code: the nearest compass point, with angles in degrees."""
    a, b, c = math.radians(lat), math.radians(centre[0]), math.radians(lon - centre[1])
    cosine = math.sin(a) * math.sin(b) + math.cos(a) * math.cos(b) * math.cos(c)
    if 6371.0088 * math.acos(min(1.0, cosine)) <= radius_km:
        return "centre"
    angle = math.degrees(math.atan2(lat - centre[0], lon - centre[1]))
    counter_clockwise = [
        "E",
        "ENE",
        "NE",
        "NNE",
        "N",
        "NNW",
        "NW",
        "WNW",
        "W",
        "WSW",
        "SW",
        "SSW",
        "S",
        "SSE",
        "SE",
        "ESE",
    ]
    gaps = [abs((angle - 22.5 * k + 180.0) % 360.0 - 180.0) for k in range(16)]
    return counter_clockwise[gaps.index(min(gaps))]


def middles(network: RoadNetwork) -> list[tuple[float, float]]:
    lat = 0.5 * (network.lat[network.tail] + network.lat[network.head])
    lon = 0.5 * (network.lon[network.tail] + network.lon[network.head])
    return list(zip(lat.tolist(), lon.tolist(), strict=True))


def test_regions_follow_the_paper_s_rule():
    network = scatter_network()
    result = [REGIONS[i] for i in roads.regions(network)]
    assert result == [region_by_hand(*place, PORTO_CENTRE) for place in middles(network)]
    assert len(set(result)) == 17
    moved = (41.2, -8.5)
    assert [REGIONS[i] for i in roads.regions(network, moved, radius_km=5.0)] == [
        region_by_hand(*place, moved, 5.0) for place in middles(network)
    ]
    assert 0 not in roads.regions(network, radius_km=0.0)


def place_at(bearing: float, metres: float = 5000.0) -> RoadNetwork:
    """Return a street of 20 m whose midpoint has a given distance and true bearing from the centre."""
    from pyproj import Geod

    lon, lat, _ = Geod(ellps="WGS84").fwd(PORTO_CENTRE[1], PORTO_CENTRE[0], bearing, metres)
    return RoadNetwork.from_segments([lat - 1e-4, lat + 1e-4], [lon, lon], [0], [1], centre=PORTO_CENTRE)


@pytest.mark.parametrize(
    ("bearing", "name"), [(0, "N"), (45, "NE"), (67.5, "ENE"), (90, "E"), (202.5, "SSW"), (315, "NW")]
)
@pytest.mark.parametrize("beside", [-11.0, 0.0, 11.0])
def test_corrected_regions_equal_compass_points(bearing: float, name: str, beside: float):
    network = place_at(bearing + beside)
    assert REGIONS[roads.regions(network, corrected=True)[0]] == name


def test_compass_of_the_paper_is_distorted():
    # 55 degrees from north is NE, but the paper treats degrees of longitude and latitude as equally long.
    network = place_at(55.0)
    assert REGIONS[roads.regions(network, corrected=True)[0]] == "NE"
    assert REGIONS[roads.regions(network)[0]] == "ENE"


def test_regions_across_the_date_line():
    network = RoadNetwork.from_segments([0.0, 0.0], [179.9, -179.9], [0], [1], centre=(0.0, 179.5))
    assert REGIONS[roads.regions(network)[0]] == "E"


def test_great_circle():
    np.testing.assert_allclose(great_circle_m(0.0, 0.0, 90.0, 0.0), 6_371_008.8 * np.pi / 2.0, rtol=1e-12)
    np.testing.assert_allclose(
        great_circle_m(10.0, 179.0, 10.0, -179.0), great_circle_m(10.0, 0.0, 10.0, 2.0), rtol=1e-9
    )


@pytest.mark.parametrize("centre", [(91.0, 0.0), (0.0, 200.0), (float("nan"), 0.0)])
def test_regions_need_degrees(centre: tuple[float, float]):
    with raises(InvalidParameter, parameter="centre"):
        roads.regions(scatter_network(2), centre)
    with raises(InvalidParameter, parameter="radius_km", value=-1.0):
        roads.regions(scatter_network(2), radius_km=-1.0)


def test_the_paper_s_24_features_by_hand():
    network = scatter_network()
    km = network.length_m / 1000.0
    wanted = np.zeros((network.n_segments, 24))
    for s, place in enumerate(middles(network)):
        limit = network.speed_kmh[s]
        wanted[s, KIND[CLASSES[network.road_class[s]]]] = km[s]
        wanted[s, 4 + (2 if np.isnan(limit) else int(limit > 50.0))] = km[s]
        wanted[s, 7 + REGIONS.index(region_by_hand(*place, PORTO_CENTRE))] = km[s]
    mdp = network.mdp("paper", gamma=0.999)
    assert mdp.gamma == 0.999
    np.testing.assert_allclose(mdp.state_features.toarray(), wanted, rtol=1e-12)
    assert mdp.feature_names[:8] == (
        "km of highway", "km of major road", "km of minor road", "km of local street",
        "km at up to 50 km/h", "km at over 50 km/h", "km at unknown speed", "km in centre",
    )  # fmt: skip
    np.testing.assert_allclose(mdp.p0, 1.0 / network.n_segments, rtol=1e-12)


def test_every_group_sums_to_the_length():
    network = scatter_network()
    choice = FeatureChoice(lanes=True, length=True)
    matrix = state_features(network, choice).toarray()
    assert matrix.shape[1] == len(choice.names) == 4 + 3 + 4 + 17 + 1
    assert list(choice.groups) == ["road class", "speed", "lanes", "region", "length"]
    for places in choice.groups.values():
        np.testing.assert_allclose(matrix[:, list(places)].sum(axis=1), network.length_m / 1000.0, rtol=1e-12)
    assert np.linalg.matrix_rank(matrix) == matrix.shape[1] - (len(choice.groups) - 1)


def test_lanes_and_speeds_fall_into_their_groups():
    network = scatter_network()
    choice = FeatureChoice(class_groups=None, speed_groups=(30, 50), lanes=True, regions=False)
    assert choice.names == (
        "km at up to 30 km/h", "km at 30 to 50 km/h", "km at over 50 km/h", "km at unknown speed",
        "km with up to 1 lane", "km with 1 to 2 lanes", "km with over 2 lanes", "km with unknown lanes",
    )  # fmt: skip
    rows = state_features(network, choice).toarray() > 0.0
    speed = {30.0: 0, 50.0: 1, 50.1: 2, 120.0: 2}
    lanes = {1.0: 0, 1.5: 1, 2.0: 1, 3.0: 2}
    for s in range(network.n_segments):
        assert np.flatnonzero(rows[s]).tolist() == [
            speed.get(network.speed_kmh[s], 3),
            4 + lanes.get(network.lanes[s], 3),
        ]


def test_classes_follow_the_given_groups():
    network = scatter_network()
    groups = {
        "links": ("primary_link",),
        "fast": ("motorway", "primary"),
        "slow": ("tertiary", "residential", "busway"),
    }
    choice = FeatureChoice(class_groups=groups, speed_groups=None, regions=False)
    rows = state_features(network, choice).toarray() > 0.0
    home = {"motorway": 1, "primary_link": 0, "tertiary": 2, "residential": 2, "busway": 2}
    assert [int(np.flatnonzero(row)[0]) for row in rows] == [home[CLASSES[k]] for k in network.road_class]
    with raises(InvalidParameter, parameter="class_groups", value="busway"):
        state_features(network, FeatureChoice(class_groups={"all": CLASSES[:-1]}, regions=False))


def star() -> RoadNetwork:
    """From the south into a junction with ways to the west, the north, the east and sharply back; and a bend after it.

    Nodes: 0 south, 1 junction, 2 west, 3 north, 4 east, 5 south-east, 6 beyond the west, to the north.
    """
    lat = [-0.01, 0.0, 0.0, 0.01, 0.0, -0.01, 0.01]
    lon = [0.0, 0.0, -0.01, 0.0, 0.01, 0.004, -0.01]
    return RoadNetwork.from_segments(lat, lon, [0, 1, 1, 1, 1, 2], [1, 2, 3, 4, 5, 6])


def test_turns_by_hand():
    network = star()
    assert list(zip(network.turn_from.tolist(), network.turn_to.tolist(), strict=True)) == [
        (0, 1), (0, 2), (0, 3), (0, 4), (1, 5),
    ]  # fmt: skip
    wanted = [[1, 0, 0], [0, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0, 0]]  # the bend at node 2 is no turn
    np.testing.assert_array_equal(turn_features(network), wanted)


@pytest.mark.parametrize("side", [-1, 1])
@pytest.mark.parametrize(("angle", "kind"), [(43, None), (47, "side"), (133, "side"), (137, "sharp"), (149, "sharp")])
def test_turns_above_45_degrees_and_sharp_turns_above_135(side: int, angle: float, kind: str | None):
    # Northward into a junction with one street straight on and one street at the given angle.
    way = np.radians(side * angle)
    lat, lon = Plane(41.15, -8.63).degrees([(0, -100), (0, 0), (0, 100), (100 * np.sin(way), 100 * np.cos(way))]).T
    network = RoadNetwork.from_segments(lat, lon, [0, 1, 1], [1, 2, 3], centre=(41.15, -8.63))
    (turn,) = np.flatnonzero(network.turn_to == 2)
    wanted = {None: [0, 0, 0], "side": [side < 0, side > 0, 0], "sharp": [0, 0, 1]}[kind]
    np.testing.assert_array_equal(turn_features(network)[turn], wanted)


def test_u_turns_are_sharp_also_at_dead_ends():
    street = RoadNetwork.from_segments([0.0, 0.01], [0.0, 0.0], [0, 1], [1, 0], u_turns=True)
    np.testing.assert_array_equal(turn_features(street), [[0, 0, 1], [0, 0, 1]])


def test_turn_features_belong_to_the_edges_of_the_mdp():
    rng = np.random.default_rng(3)
    n = 12
    ends = np.array([(a, b) for a in range(n) for b in range(n) if a != b and rng.random() < 0.4])
    ends = ends[rng.permutation(len(ends))]
    network = RoadNetwork.from_segments(
        rng.normal(size=n), rng.normal(size=n), *ends.T, length_m=np.full(len(ends), 100.0)
    )
    choice = FeatureChoice(turns=True, regions=False, check_units=False)
    mdp = network.mdp(choice)
    np.testing.assert_array_equal(mdp.src, network.turn_from)
    np.testing.assert_array_equal(mdp.dst, network.turn_to)
    np.testing.assert_array_equal(mdp.edge_features, turn_features(network))
    assert mdp.feature_names == choice.names
    assert mdp.n_features == len(choice.names) == 7 + 3
    assert turn_features(network).sum() > 0


def test_turns_alone():
    choice = FeatureChoice(class_groups=None, speed_groups=None, regions=False, turns=True)
    mdp = star().mdp(choice)
    assert mdp.n_features == 3
    assert state_features(star(), choice).shape == (6, 0)


def test_choices_are_logarithms_of_the_number_of_turns():
    choice = FeatureChoice(class_groups=None, speed_groups=None, regions=False, turns=True, choices=True)
    mdp = star().mdp(choice)
    np.testing.assert_allclose(mdp.edge_features[:, 3], np.log([4, 4, 4, 4, 1]), rtol=1e-15)
    assert mdp.feature_names == choice.names
    assert choice.groups == {"turns": (0, 1, 2), "choices": (3,)}
    assert choice != replace(choice, choices=False)


def test_segment_without_outgoing_turn_is_terminal():
    np.testing.assert_array_equal(star().mdp("plain").terminal, [False, False, True, True, True, True])


def test_extra_features():
    network = star()
    toll = np.where(network.head == 3, network.length_m / 1000.0, 0.0)
    choice = FeatureChoice(regions=False, turns=True, extra={"km of toll road": toll, "lights": np.arange(6.0)})
    assert choice.names[7:9] == ("km of toll road", "lights")
    mdp = network.mdp(choice)
    np.testing.assert_array_equal(mdp.state_features.toarray()[:, 7:], np.stack([toll, np.arange(6.0)], axis=1))
    assert mdp.feature_names == choice.names


@pytest.mark.parametrize(
    ("extra", "words"),
    [
        ({"km of toll road": np.full(6, 500.0)}, r"\[0\] is 500 km on a segment of 1\.1.* km\. Is it in metres"),
        ({"lights": np.zeros(5)}, r"must have shape \(6,\); it has \(5,\)"),
        ({"lights": np.array([0, 0, np.nan, 0, 0, 0])}, r"\['lights'\]\[2\] is nan"),
    ],
)
def test_extra_features_are_checked(extra: dict[str, Any], words: str):
    with raises(InvalidParameter, parameter="extra"):
        star().mdp(FeatureChoice(extra=extra))


@pytest.mark.parametrize("factor", [0.001, 3.28, 1 / 1609.0, 1000.0])
def test_lengths_in_other_units_are_rejected(factor: float):
    network = star()
    wrong = network.replace(length_m=network.length_m * factor)
    with raises(InvalidNetwork, parameter="length_m"):
        wrong.mdp()
    assert wrong.mdp(FeatureChoice(check_units=False)).n_features == 24


@pytest.mark.parametrize("factor", [0.9, 1.0, 2.5])
def test_lengths_in_metres_are_accepted(factor: float):
    network = star()
    check_units(network.replace(length_m=network.length_m * factor))


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ({"speed_groups": (50, 30)}, {"parameter": "speed_groups", "value": (50, 30)}),
        ({"lanes": (1, float("nan"))}, {"parameter": "lanes"}),
        ({"class_groups": {"a": ("primary",), "b": ("primary",)}}, {"parameter": "class_groups", "value": "primary"}),
        ({"class_groups": None, "speed_groups": None, "regions": False}, {"parameter": None}),
        ({"length": True, "extra": {"km": [0.1]}}, {"parameter": "extra", "value": "km"}),
        ({"extra": {"km of highway": [0.1]}}, {"parameter": "extra", "value": "km of highway"}),
    ],
)
def test_choices_are_checked(choice: dict[str, Any], expected: dict[str, Any]):
    with raises(InvalidParameter, **expected):
        FeatureChoice(**choice)


def test_choices_by_name():
    assert len(choose_features("paper").names) == 24
    assert len(choose_features("plain").names) == 4
    with raises(InvalidParameter, parameter="features", value="fancy"):
        scatter_network(3).mdp("fancy")


def test_equality_of_choices():
    def make_network(**known: Any) -> FeatureChoice:
        return FeatureChoice(**({"extra": {"tolls": np.array([0.0, 1.0])}} | known))

    assert make_network() == make_network(extra={"tolls": [-0.0, 1]})
    assert hash(make_network()) == hash(make_network(speed_groups=[50]))
    assert len({FeatureChoice(), FeatureChoice(speed_groups=[50.0]), choose_features("paper")}) == 1
    for other in (
        {"extra": {"tolls": [0.0, 2.0]}},
        {"extra": {"toll": [0.0, 1.0]}},
        {"extra": None},
        {"speed_groups": None},
        {"class_groups": {"all": ("*",)}},
        {"lanes": ()},
        {"turns": True},
        {"centre": (41.0, -8.0)},
        {"radius_km": 1.0},
    ):
        assert make_network(**other) != make_network()
    assert make_network() != "paper"


def test_empty_bounds_leave_the_groups_any_and_unknown():
    choice = FeatureChoice(class_groups=None, speed_groups=(), regions=False, lanes=())
    assert choice.names == ("km at any km/h", "km at unknown speed", "km with any lanes", "km with unknown lanes")
    assert FeatureChoice(class_groups=None, regions=False, lanes=np.array([1.0])).names[-1] == "km with unknown lanes"
    network = scatter_network(9)
    phi = state_features(network, choice).toarray()
    np.testing.assert_allclose(phi[:, 2:].sum(axis=1), network.length_m / 1000.0, rtol=1e-12)
    np.testing.assert_array_equal(phi[:, 3] > 0.0, np.isnan(network.lanes))
