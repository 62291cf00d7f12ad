"""networkx graphs created by OSMnx: the same network as from files; lists, geometries and missing values."""

from typing import Any

import networkx as nx
import numpy as np
import pytest
from shapely.geometry import LineString

from limiirl import roads
from limiirl.errors import InvalidNetwork
from tests.helpers import raises
from tests.oracles import town_maps


def town() -> roads.RoadNetwork:
    osm_ways = [{"id": number, "nodes": nodes, "tags": tags} for number, nodes, tags in town_maps.WAYS]
    return roads.from_ways(osm_ways, town_maps.NODES, component=None)


def small(*edges: tuple[Any, Any, dict[str, Any]], kind: type = nx.MultiDiGraph, **known: Any) -> "nx.Graph[Any]":
    graph = kind(**known)
    graph.add_nodes_from(
        [("a", {"x": -8.0, "y": 41.0}), ("b", {"x": -8.0, "y": 41.01}), ("c", {"x": -7.99, "y": 41.0})]
    )
    graph.add_edges_from(edges)
    return graph


@pytest.mark.parametrize("simplified", [False, True])
def test_graph_and_files_give_the_same_network(simplified: bool):
    network = roads.build(town_maps.graph(simplified=simplified), component=None)
    wanted = town()
    assert network.n_segments == wanted.n_segments
    for ours, theirs in zip(town_maps.canonical(network), town_maps.canonical(wanted), strict=True):
        assert ours == theirs
    assert network.attribution == "(c) OpenStreetMap contributors, ODbL 1.0"


def test_points_of_lines_are_nodes_that_both_directions_share():
    network = roads.from_networkx(town_maps.graph(simplified=True), component=None)
    assert network.notes["source"]["points_of_lines"] == 2
    assert (network.opposite >= 0).sum() == 16
    assert sorted(network.node_id[network.node_id < 0].tolist()) == [-2, -1]


def test_reversed_geometries_are_corrected():
    line = LineString([(-8.0, 41.01), (-8.005, 41.005), (-8.0, 41.0)])
    network = roads.from_networkx(small(("a", "b", {"highway": "road", "geometry": line})), component=None)
    np.testing.assert_allclose(network.lat[[*network.tail, network.head[-1]]], [41.0, 41.005, 41.01], atol=1e-12)


def test_lists_of_merged_edges():
    data = {"highway": ["residential", "tertiary"], "lanes": ["1", "2"], "maxspeed": ["50", "50"], "osmid": [3, 4]}
    network = roads.from_networkx(small(("a", "b", data), ("b", "a", data)))
    assert network.class_names == ("tertiary",)
    np.testing.assert_array_equal(network.lanes, [np.nan, np.nan])
    np.testing.assert_array_equal(network.speed_kmh, [50.0, 50.0])
    assert network.way_id.tolist() == [-1, -1]
    assert network.attribution == ""


@pytest.mark.parametrize(
    ("value", "lanes"), [(2, 2.0), (2.0, 2.0), ("2", 2.0), (float("nan"), np.nan), (None, np.nan), ([2, "2"], 2.0)]
)
def test_numbers_and_texts(value: Any, lanes: float):
    network = roads.from_networkx(small(("a", "b", {"highway": "road", "lanes": value})), component=None)
    np.testing.assert_array_equal(network.lanes, [lanes])


def test_undirected_graph_is_two_way_and_needs_no_classes():
    network = roads.build(small(("a", "b", {}), ("b", "c", {}), kind=nx.Graph))
    assert (network.n_segments, network.n_turns, network.class_names) == (4, 2, ("road",))


def test_directed_graph_keeps_edge_directions():
    network = roads.build(small(("a", "b", {}), ("b", "c", {}), ("c", "a", {}), kind=nx.DiGraph))
    assert (network.n_segments, network.n_turns) == (3, 3)


def test_lengths_are_measured_and_compared():
    network = roads.from_networkx(small(("a", "b", {"highway": "road", "length": 1.1107})), component=None)
    np.testing.assert_allclose(network.length_m, 1110.6, atol=0.1)
    assert network.notes["source"]["median_length_over_measured"] == 0.001


@pytest.mark.parametrize("length", ["12 m", [500.0, 600.0], None, float("nan"), {}])
def test_nonnumeric_lengths_are_ignored(length: Any):
    network = roads.from_networkx(small(("a", "b", {"highway": "road", "length": length})), component=None)
    assert network.notes["source"]["median_length_over_measured"] is None


@pytest.mark.parametrize("number", [10**20, -(10**20), str(10**20)])
def test_numbers_beyond_64_bits_are_names(number: Any):
    graph = small(("a", "b", {"highway": "road", "osmid": number}))
    network = roads.from_networkx(nx.relabel_nodes(graph, {"a": 10**20, "b": 1}), component=None)
    assert (network.n_segments, network.way_id.tolist()) == (1, [-1])


def test_parallel_edges_and_loops():
    road = {"highway": "road"}
    network = roads.from_networkx(small(("a", "b", road), ("a", "b", road), ("b", "a", road), ("a", "a", road)))
    assert network.n_segments == 2
    assert network.notes["pieces_dropped"] == {"node missing": 0, "no length": 1, "drawn twice": 1}


@pytest.mark.parametrize(
    ("graph", "expected"),
    [
        (small(("a", "b", {"highway": "road"}), crs="EPSG:32629"), {"parameter": "graph", "value": "epsg:32629"}),
        (small(("a", "b", {"highway": "footway"})), {"parameter": "source"}),
        (small(), {"parameter": "source"}),
        (small(("a", "z", {"highway": "road"})), {"parameter": "source"}),
        (
            small(("a", "b", {"geometry": LineString([(-8.0, 41.0), (-7.0, 41.0)])})),
            {"parameter": "graph", "value": "edge ('a', 'b')"},
        ),
        ([(1, 2)], {"parameter": "graph", "value": "list"}),
    ],
)
def test_graphs_that_cannot_be_used(graph: Any, expected: dict[str, Any]):
    with raises(InvalidNetwork, **expected):
        roads.build(graph, component=None)


def test_nonnumeric_node_coordinates_are_rejected():
    graph = small(("a", "b", {}))
    graph.nodes["b"]["x"] = "east"
    with raises(InvalidNetwork, parameter="graph", value="b"):
        roads.build(graph)


def test_lines_written_as_text():
    text = "LINESTRING (-8 41, -8.005 41.005, -8 41.01)"
    network = roads.from_networkx(small(("a", "b", {"highway": "road", "geometry": text})), component=None)
    np.testing.assert_allclose(network.lat[[*network.tail, network.head[-1]]], [41.0, 41.005, 41.01], atol=1e-12)


@pytest.mark.parametrize("geometry", ["POINT (1 2)", "LINESTRING EMPTY", "LINESTRING (1, 2)", "", [], LineString()])
def test_invalid_geometries_name_their_edge(geometry: Any):
    with raises(InvalidNetwork, parameter="graph", value="edge ('a', 'b')"):
        roads.build(small(("a", "b", {"geometry": geometry})), component=None)
