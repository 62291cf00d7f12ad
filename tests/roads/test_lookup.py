"""Lookup by coordinates and by name: nearest segments compared with shapely, and names from map tags."""

import json

import networkx as nx
import numpy as np
import pytest
import shapely

from limiirl._io import read_arrays
from limiirl.errors import InvalidNetwork, InvalidParameter
from limiirl.roads import RoadNetwork, build, from_networkx, from_ways, nearest_segments
from limiirl.roads.geometry import offsets_m
from limiirl.roads.lookup import (
    describe_direction,
    describe_street,
    index_names,
    list_street_names,
    name_street,
    street_components,
)
from tests.helpers import raises
from tests.oracles.road_networks import CENTRE, from_xy, random_grid


def exact(network, lat, lon):
    """Return the distances (S,) of all segments from a point, computed with shapely."""
    ends = [offsets_m(lat, lon, network.lat[at], network.lon[at]) for at in (network.tail, network.head)]
    return shapely.distance(shapely.linestrings(np.stack(ends, axis=1)), shapely.Point(0.0, 0.0))


def places(network, n, seed, margin=2e-4):
    rng = np.random.default_rng(seed)
    return tuple(rng.uniform(x.min() - margin, x.max() + margin, n) for x in (network.lat, network.lon))


@pytest.mark.parametrize("seed", range(3))
def test_nearest_agrees_with_shapely(seed):
    network = random_grid(seed, nx=5, ny=5)
    lat, lon = places(network, 60, seed)
    result = network.nearest(lat, lon, within_m=500.0)
    for i in range(60):
        far = exact(network, lat[i], lon[i])
        np.testing.assert_allclose(result.distance_m[i], far.min(), rtol=0.0, atol=2e-6)
        assert result.segment[i] == np.flatnonzero(far <= far.min() + 1e-6)[0]
    np.testing.assert_array_equal(result.opposite, network.opposite[result.segment])


def test_nearest_does_not_depend_on_the_network_plane():
    """12 degrees from the centre, a projected metre eastward is 0.8 m, which changes the nearest diagonal street."""
    town = random_grid(3, nx=6, ny=6)
    network = town.replace(centre=(CENTRE[0] - 12.0, CENTRE[1] + 1.0))
    lat, lon = places(network, 300, 5)
    result = network.nearest(lat, lon, within_m=500.0)
    true = np.array([exact(network, *place) for place in zip(lat, lon, strict=True)])
    np.testing.assert_allclose(result.distance_m, true.min(axis=1), rtol=1e-9, atol=2e-6)
    xy, ends = network.plane.xy(lat, lon), network.node_xy
    lines = shapely.linestrings(np.stack([ends[network.tail], ends[network.head]], axis=1))
    flat = shapely.distance(lines, shapely.points(xy)[:, None]).argmin(axis=1)
    assert np.any(true[np.arange(300), flat] > true.min(axis=1) + 0.01)


def test_position_along_the_nearest_segment():
    network = from_xy([[0, 0], [200, 0], [200, 100]], [0, 1, 1], [1, 0, 2])
    lat, lon = network.plane.degrees([[50.0, 7.0], [203.0, 80.0]]).T
    result = network.nearest(lat, lon)
    np.testing.assert_allclose(result.distance_m, [7.0, 3.0], rtol=1e-4)
    assert result.segment.tolist() == [0, 2]
    assert result.opposite.tolist() == [1, -1]
    np.testing.assert_allclose(result.along, [0.25, 0.8], rtol=1e-4)
    assert result.segments.tolist() == [0, 1, 2]


def test_one_place_and_many_give_the_same():
    network = random_grid(0)
    lat, lon = places(network, 5, 1, 0.0)
    many = network.nearest(lat, lon)
    assert [int(network.nearest(a, b).segment[0]) for a, b in zip(lat, lon, strict=True)] == many.segment.tolist()


def test_nearest_segment_in_a_dense_area():
    """100 streets meet at one node, which exceeds the initial capacity."""
    turn = np.linspace(0.0, 2.0 * np.pi, 100, endpoint=False)
    rim = 80.0 * np.stack([np.sin(turn), np.cos(turn)], axis=1)
    network = from_xy([[0.0, 0.0], *rim], np.zeros(100, dtype=int), np.arange(1, 101))
    lat, lon = network.plane.degrees(rim * 0.5).T
    assert network.nearest(lat, lon).segment.tolist() == list(range(100))
    assert network.nearest(*network.plane.degrees([0.0, 0.0])).segment.tolist() == [0]


class TestNothingNear:
    def test_error_states_the_distance_of_the_nearest_street(self):
        network = from_xy([[0, 0], [200, 0]], [0], [1])
        lat, lon = network.plane.degrees([100.0, 340.0])
        with raises(InvalidParameter, parameter="within_m", value=100.0, index=0):
            network.nearest(lat, lon)
        assert network.nearest(lat, lon, within_m=400.0).segment.tolist() == [0]

    def test_within_m_is_in_true_metres(self):
        town = from_xy([[0, 0], [0, 200]], [0], [1])
        network = town.replace(centre=(CENTRE[0] - 12.0, CENTRE[1]))
        lat, lon = town.plane.degrees([60.0, 100.0])
        assert network.nearest(lat, lon, within_m=60.5).segment.tolist() == [0]
        with raises(InvalidParameter, parameter="within_m", value=59.5, index=0):
            network.nearest(lat, lon, within_m=59.5)

    def test_error_hints_at_swapped_coordinates(self):
        network = random_grid(0)
        with raises(InvalidParameter, parameter="within_m", value=100.0, index=0):
            network.nearest(CENTRE[1], CENTRE[0])
        tokyo = RoadNetwork.from_segments([35.68, 35.69], [139.7, 139.7], [0], [1])
        with raises(InvalidParameter, parameter="lat", value=(139.7, 35.68), index=0):
            tokyo.nearest(139.7, 35.68)

    def test_error_has_the_index_among_many_places(self):
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
    def test_invalid_places_are_rejected(self, lat, lon, within_m, expected):
        with raises(InvalidParameter, **expected):
            random_grid(0).nearest(lat, lon, within_m=within_m)


class TestCarriageways:
    """Return an avenue of two lines 20 m apart (0 eastward, 1 westward), and a two-way lane 60 m away."""

    XY = ([0, 0], [200, 0], [200, 20], [0, 20], [0, 80], [200, 80])

    def avenue(self, **known):
        return from_xy(self.XY, [0, 2, 4, 5], [1, 3, 5, 4], **known)

    def at(self, network, x, y, **options):
        return nearest_segments(network, *network.plane.degrees([x, y]), **options).tolist()

    def test_both_carriageways_are_returned_by_default(self):
        network = self.avenue()
        assert self.at(network, 100.0, 1.0) == [0, 1]
        assert self.at(network, 100.0, 19.0) == [0, 1]
        assert self.at(network, 100.0, 1.0, both=False) == [0]

    def test_other_class_or_direction_is_a_separate_street(self):
        ramps = self.avenue(road_class=[0, 1, 0, 0], class_names=("primary", "service"))
        assert self.at(ramps, 100.0, 1.0) == [0]
        parallel = from_xy(self.XY, [0, 3], [1, 2])
        assert self.at(parallel, 100.0, 1.0) == [0]

    def test_other_name_is_a_separate_street(self):
        names = ("", "Rua Nova", "Rua Velha")
        assert self.at(self.avenue(street_names=names, street_of=[1, 2, 0, 0]), 100.0, 1.0) == [0]
        assert self.at(self.avenue(street_names=names, street_of=[1, 1, 0, 0]), 100.0, 1.0) == [0, 1]

    def test_too_far_is_another_street(self):
        apart = from_xy([[0, 0], [200, 0], [200, 50], [0, 50]], [0, 2], [1, 3])
        assert self.at(apart, 100.0, 1.0) == [0]
        assert self.at(apart, 100.0, 12.0) == [0, 1]

    def test_two_way_street_as_one_line(self):
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


NODES = {i: (41.0 + 0.001 * i, -8.0) for i in range(6)}
NAMES = ("", "Avenida Central", "Ponte da Arrábida (A 1)", "Rua Nova", "Rua Nova de Baixo")


def way(number, *nodes, **tags):
    return {"id": number, "nodes": list(nodes), "tags": {"highway": "tertiary"} | tags}


def line(street_of=(1, 2, 3, 4, 0)):
    """Return a chain of five segments."""
    xy = [[100.0 * i, 0.0] for i in range(6)]
    return from_xy(xy, range(5), range(1, 6), street_names=NAMES, street_of=list(street_of))


class TestFromMaps:
    def test_segments_of_both_directions_have_the_name_of_their_osm_way(self):
        network = from_ways([way(1, 0, 1, 2, name="Rua Nova"), way(2, 2, 3, ref="EN 1"), way(3, 3, 4)], NODES)
        named = {int(w): {network.street(s) for s in np.flatnonzero(network.way_id == w)} for w in (1, 2, 3)}
        assert named == {1: {"Rua Nova"}, 2: {"EN 1"}, 3: {""}}
        assert network.street_names == ("", "EN 1", "Rua Nova")
        assert network.street_of.dtype == np.int32

    def test_street_names_from_xml(self, tmp_path):
        nodes = "".join(f'<node id="{i}" lat="{lat}" lon="{lon}"/>' for i, (lat, lon) in NODES.items())
        tags = '<tag k="highway" v="road"/><tag k="name" v="Straße &amp; Çelik"/>'
        (tmp_path / "town.osm").write_text(
            f'<osm>{nodes}<way id="1"><nd ref="0"/><nd ref="1"/>{tags}</way></osm>', encoding="utf-8"
        )
        network = build(tmp_path / "town.osm")
        network.save(tmp_path / "town.npz")
        assert RoadNetwork.load(tmp_path / "town.npz").street(0) == "Straße & Çelik"

    def test_graphs_have_names_or_lists_of_them(self):
        graph = nx.MultiDiGraph()
        graph.add_nodes_from((i, {"y": lat, "x": lon}) for i, (lat, lon) in NODES.items())
        for u, v in ((0, 1), (1, 0)):
            graph.add_edge(u, v, name=["Rua B", "Rua A"], ref="EN 2")
        for u, v in ((1, 2), (2, 1)):
            graph.add_edge(u, v, name=np.nan)
        assert {from_networkx(graph).street(s) for s in range(4)} == {"Rua A, Rua B (EN 2)", ""}

    def test_tags(self):
        assert name_street({"name": " Rua  ", "ref": ""}) == "Rua"
        assert name_street({"ref": "IP 1; A 20"}) == "IP 1, A 20"
        assert name_street({"name": "Rua", "tunnel:name": "Túnel"}) == "Rua, Túnel"
        assert index_names([]) == (("",), pytest.approx(np.empty(0), abs=0.0))


class TestFiles:
    def test_street_names_are_saved_but_not_part_of_the_content(self, tmp_path):
        network = line()
        network.save(tmp_path / "line.npz")
        back = RoadNetwork.load(tmp_path / "line.npz")
        assert back.street_names == NAMES
        assert back.street_of.tolist() == [1, 2, 3, 4, 0]
        bare = from_xy([[100.0 * i, 0.0] for i in range(6)], range(5), range(1, 6))
        assert (bare.fingerprint(), bare) == (network.fingerprint(), network)
        assert [bare.street(s) for s in range(5)] == [""] * 5

    def test_files_of_the_first_version_have_none(self, tmp_path):
        line().save(tmp_path / "new.npz")
        arrays = read_arrays(tmp_path / "new.npz", "")
        header = json.loads(arrays.pop("header").tobytes())
        del header["street_names"], arrays["street_of"]
        old = np.frombuffer(json.dumps(header | {"version": 1}).encode(), dtype=np.uint8)
        np.savez(tmp_path / "old.npz", header=old, **arrays)
        network = RoadNetwork.load(tmp_path / "old.npz")
        assert network == line()
        assert network.street_names == ("",)
        with raises(InvalidParameter, parameter="name", value="Rua"):
            network.find("Rua")

    def test_replace_keeps_street_names(self):
        assert line().replace(attribution="us").street(1) == NAMES[2]

    @pytest.mark.parametrize(
        ("names", "street_of", "parameter"),
        [
            (("Rua",), [0] * 5, "street_names"),
            (("", "Rua"), [2, 0, 0, 0, 0], "street_of"),
            (("", "Rua"), [1, 0], "street_of"),
        ],
    )
    def test_mismatched_street_names_are_rejected(self, names, street_of, parameter):
        with raises(InvalidNetwork, parameter=parameter):
            line().replace(street_names=names, street_of=np.array(street_of))


class TestFind:
    @pytest.mark.parametrize(
        ("name", "result"),
        [
            ("arrabida", [1]),
            ("PONTE DA ARRÁBIDA", [1]),
            ("a 1", [1]),
            ("rua nova", [2]),
            ("nova", [2, 3]),
            ("rua  nova de", [3]),
            ("central", [0]),
        ],
    )
    def test_exact_names_precede_partial_names(self, name, result):
        assert line().find(name).tolist() == result

    def test_error_lists_similar_names(self):
        with raises(InvalidParameter, parameter="name", value="Rua Nava"):
            line().find("Rua Nava")
        with raises(InvalidParameter, parameter="name", value="xyzzy"):
            line().find("xyzzy")
        with raises(InvalidParameter, parameter="name", value="  "):
            line().find("  ")


def test_descriptions_of_streets():
    network = line().replace(road_class=[0, 1, 2, 3, 3], class_names=("a", "motorway_link", "unclassified", "tertiary"))
    assert describe_street(network, 1) == NAMES[2]
    assert describe_street(network, 4).startswith("a tertiary road near 41.1500,-8.62")
    assert list_street_names(network, np.array([2, 4, 0, 2])) == ["Rua Nova", "Avenida Central"]
    assert describe_street(network.replace(street_of=np.zeros(5, dtype=int)), 2).startswith(
        "an unclassified road near "
    )
    assert describe_street(network.replace(street_of=np.zeros(5, dtype=int)), 1).startswith("a motorway link near ")


def test_street_components_are_connected():
    result = street_components(line([3, 3, 1, 3, 3]))
    assert (result[:, None] == result).tolist() == [[a == b for b in (0, 0, 1, 2, 2)] for a in (0, 0, 1, 2, 2)]
    unnamed = line([0, 0, 3, 0, 0]).replace(way_id=[7, 7, 7, 7, -1])
    assert np.unique(street_components(unnamed)).size == 4
    both = from_xy([[0, 0], [100, 0], [200, 0]], [0, 1, 1, 2], [1, 0, 2, 1], way_id=[1, 1, 2, 2])
    assert street_components(both).tolist() == [0, 0, 1, 1]
