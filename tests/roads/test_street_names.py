"""Names of streets: from the tags of a map into a network and its file, and from a name to segments."""

import json

import networkx as nx
import numpy as np
import pytest

from limiirl._io import read_arrays
from limiirl.errors import InvalidNetwork, InvalidParameter
from limiirl.roads import RoadNetwork, build, from_networkx, from_ways
from limiirl.roads.lookup import describe_street, index_names, list_street_names, name_street, street_components
from tests.helpers import raises
from tests.oracles.road_networks import from_xy

NODES = {i: (41.0 + 0.001 * i, -8.0) for i in range(6)}
NAMES = ("", "Avenida Central", "Ponte da Arrábida (A 1)", "Rua Nova", "Rua Nova de Baixo")


def way(number, *nodes, **tags):
    return {"id": number, "nodes": list(nodes), "tags": {"highway": "tertiary"} | tags}


def line(street_of=(1, 2, 3, 4, 0)):
    """Five segments one after the other."""
    xy = [[100.0 * i, 0.0] for i in range(6)]
    return from_xy(xy, range(5), range(1, 6), street_names=NAMES, street_of=list(street_of))


class TestFromMaps:
    def test_ways_give_their_names_to_segments_in_both_directions(self):
        network = from_ways([way(1, 0, 1, 2, name="Rua Nova"), way(2, 2, 3, ref="EN 1"), way(3, 3, 4)], NODES)
        named = {int(w): {network.street(s) for s in np.flatnonzero(network.way_id == w)} for w in (1, 2, 3)}
        assert named == {1: {"Rua Nova"}, 2: {"EN 1"}, 3: {""}}
        assert network.street_names == ("", "EN 1", "Rua Nova")
        assert network.street_of.dtype == np.int32

    def test_xml_has_names(self, tmp_path):
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
    def test_names_come_back_and_are_no_content(self, tmp_path):
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

    def test_a_copy_keeps_them(self):
        assert line().replace(attribution="us").street(1) == NAMES[2]

    @pytest.mark.parametrize(
        ("names", "street_of", "parameter"),
        [
            (("Rua",), [0] * 5, "street_names"),
            (("", "Rua"), [2, 0, 0, 0, 0], "street_of"),
            (("", "Rua"), [1, 0], "street_of"),
        ],
    )
    def test_refuses_what_does_not_fit(self, names, street_of, parameter):
        with raises(InvalidNetwork, parameter=parameter):
            line().replace(street_names=names, street_of=np.array(street_of))


class TestFind:
    @pytest.mark.parametrize(
        ("name", "found"),
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
    def test_by_a_part_of_the_name_just_so_first(self, name, found):
        assert line().find(name).tolist() == found

    def test_says_what_is_like_it(self):
        with raises(InvalidParameter, parameter="name", value="Rua Nava"):
            line().find("Rua Nava")
        with raises(InvalidParameter, parameter="name", value="xyzzy"):
            line().find("xyzzy")
        with raises(InvalidParameter, parameter="name", value="  "):
            line().find("  ")


def test_how_to_speak_of_streets():
    network = line().replace(road_class=[0, 1, 2, 3, 3], class_names=("a", "motorway_link", "unclassified", "tertiary"))
    assert describe_street(network, 1) == NAMES[2]
    assert describe_street(network, 4).startswith("a tertiary road near 41.1500,-8.62")
    assert list_street_names(network, np.array([2, 4, 0, 2])) == ["Rua Nova", "Avenida Central"]
    assert describe_street(network.replace(street_of=np.zeros(5, dtype=int)), 2).startswith(
        "an unclassified road near "
    )
    assert describe_street(network.replace(street_of=np.zeros(5, dtype=int)), 1).startswith("a motorway link near ")


def test_parts_of_a_street_hang_together():
    found = street_components(line([3, 3, 1, 3, 3]))
    assert (found[:, None] == found).tolist() == [[a == b for b in (0, 0, 1, 2, 2)] for a in (0, 0, 1, 2, 2)]
    ways = line([0, 0, 3, 0, 0]).replace(way_id=[7, 7, 7, 7, -1])
    assert np.unique(street_components(ways)).size == 4
    both = from_xy([[0, 0], [100, 0], [200, 0]], [0, 1, 1, 2], [1, 0, 2, 1], way_id=[1, 1, 2, 2])
    assert street_components(both).tolist() == [0, 0, 1, 1]
