"""Networks of tiny maps with segments and turns listed by hand, and the network of Porto."""

import json
from collections.abc import Callable, Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from limiirl import roads
from limiirl.errors import DisconnectedWarning, InvalidFile, InvalidNetwork, InvalidParameter, MissingFile
from limiirl.roads.geometry import PORTO_CENTRE
from limiirl.roads.maps import builders, osm
from tests.helpers import examples, raises

# A crossing: 1 - 2 - 3 from west to east, and 4 - 2 - 5 from north to south.
CROSSING = {1: (41.0, -8.01), 2: (41.0, -8.0), 3: (41.0, -7.99), 4: (41.01, -8.0), 5: (40.99, -8.0)}
WEST_EAST = [1, 2, 3]
NORTH_SOUTH = [4, 2, 5]


def way(number: int, nodes: Iterable[int], highway: str = "residential", **tags: str) -> dict[str, Any]:
    named = {name.replace("__", ":"): value for name, value in tags.items()}
    return {"id": number, "nodes": list(nodes), "tags": {"highway": highway} | named}


def build_from(
    *osm_ways: dict[str, Any], nodes: dict[int, tuple[float, float]] = CROSSING, **options: Any
) -> roads.RoadNetwork:
    return roads.from_ways(osm_ways, nodes, **({"component": None} | options))


def segments_of(network: roads.RoadNetwork) -> list[tuple[int, int]]:
    """Return the ids of the start and end node of each segment."""
    return list(zip(network.node_id[network.tail].tolist(), network.node_id[network.head].tolist(), strict=True))


def turns_of(network: roads.RoadNetwork) -> set[tuple[int, int, int]]:
    """Return the ids of the first, middle and last node of each turn."""
    pairs = segments_of(network)
    turns = zip(network.turn_from.tolist(), network.turn_to.tolist(), strict=True)
    return {(*pairs[a], pairs[b][1]) for a, b in turns if pairs[a][1] == pairs[b][0]}


def crossing(**options: Any) -> roads.RoadNetwork:
    return build_from(way(10, WEST_EAST), way(11, NORTH_SOUTH, oneway="yes"), **options)


TURNS_WITHOUT_U_TURNS = {(1, 2, 3), (1, 2, 5), (3, 2, 1), (3, 2, 5), (4, 2, 1), (4, 2, 3), (4, 2, 5)}


def test_every_segment_and_turn_of_a_crossing():
    network = crossing()
    assert segments_of(network) == [(1, 2), (2, 3), (3, 2), (2, 1), (4, 2), (2, 5)]
    assert network.way_id.tolist() == [10, 10, 10, 10, 11, 11]
    assert turns_of(network) == TURNS_WITHOUT_U_TURNS
    assert network.n_turns == len(TURNS_WITHOUT_U_TURNS)


def test_u_turns_everywhere():
    assert turns_of(crossing(u_turns=True)) == TURNS_WITHOUT_U_TURNS | {(1, 2, 1), (3, 2, 3), (2, 1, 2), (2, 3, 2)}


@pytest.mark.parametrize("option", [1, np.True_, 1.0])
def test_truthy_options_become_bool(option: Any, tmp_path: Path):
    network = crossing(u_turns=option, service=np.False_, centre=np.array([41.0, -8.0], dtype=np.float32))
    assert network.n_turns == crossing(u_turns=True).n_turns > crossing(u_turns=False).n_turns
    network.save(tmp_path / "x.npz")  # its notes are plain


def test_u_turns_only_at_dead_ends():
    network = crossing(u_turns="dead_ends")
    assert turns_of(network) == TURNS_WITHOUT_U_TURNS | {(2, 1, 2), (2, 3, 2)}  # nothing leads back from 5
    assert network.notes["turns"]["u_turns_at_dead_ends"] == 2
    assert network.notes["turns"]["dead_ends"] == 1


def test_the_connected_part_by_nodes_and_by_turns():
    with pytest.warns(DisconnectedWarning, match="3 connected components; 2 of 6 segments"):
        network = crossing(component="street_nodes")
    assert set(segments_of(network)) == {(1, 2), (2, 1), (2, 3), (3, 2)}
    assert network.notes["component"]["segments_dropped"] == 2
    assert network.node_id.tolist() == [1, 2, 3]
    # A ring 1 - 2 - 4 with a spur 2 - 3: without U-turns, neither direction of the spur is in the component of turns.
    ring = [way(10, [1, 2, 4, 1], oneway="yes"), way(11, [2, 3])]
    assert set(segments_of(build_from(*ring, component="street_nodes"))) == {(1, 2), (2, 4), (4, 1), (2, 3), (3, 2)}
    with pytest.warns(DisconnectedWarning):
        network = build_from(*ring, component="turns")
    assert segments_of(network) == [(1, 2), (2, 4), (4, 1)]
    assert turns_of(network) == {(1, 2, 4), (2, 4, 1), (4, 1, 2)}
    assert set(segments_of(build_from(*ring, component="turns", u_turns="dead_ends"))) >= {(2, 3), (3, 2)}


@pytest.mark.parametrize(
    ("tags", "along", "against"),
    [
        ({}, True, True),
        ({"oneway": "yes"}, True, False),
        ({"oneway": "true"}, True, False),
        ({"oneway": "1"}, True, False),
        ({"oneway": "Yes"}, True, False),
        ({"oneway": "-1"}, False, True),
        ({"oneway": "reverse"}, False, True),
        ({"oneway": "no"}, True, True),
        ({"oneway": "reversible"}, True, True),
        ({"oneway": "sideways"}, True, True),
        ({"junction": "roundabout"}, True, False),
        ({"junction": "roundabout", "oneway": "no"}, True, True),
        ({"highway": "motorway"}, True, False),
        ({"highway": "motorway_link"}, True, False),
        ({"highway": "motorway", "oneway": "no"}, True, True),
        ({"highway": "motorway", "oneway": "-1"}, False, True),
        ({"highway": "motorway", "oneway": "sideways"}, True, False),
        ({"highway": "trunk"}, True, True),
    ],
)
def test_directions(tags: dict[str, str], along: bool, against: bool):
    network = build_from({"id": 1, "nodes": [1, 2], "tags": {"highway": "residential"} | tags})
    assert segments_of(network) == [(1, 2)] * along + [(2, 1)] * against


@pytest.mark.parametrize(
    ("text", "kmh"),
    [
        ("50", 50.0), ("50 km/h", 50.0), ("50kmh", 50.0), ("30 mph", 48.28032), ("30mph", 48.28032), ("7.5", 7.5),
        ("10 knots", 18.52), ("50;50", 50.0), ("50;30", np.nan), ("PT:urban", np.nan), ("walk", np.nan),
        ("none", np.nan), ("signals", np.nan), ("", np.nan), ("0", np.nan), ("-30", np.nan), ("50 furlongs", np.nan),
        ("50;", np.nan), (None, np.nan),
    ],
)  # fmt: skip
def test_speed_limits(text: str | None, kmh: float):
    np.testing.assert_allclose(osm.speed_kmh(text), kmh, rtol=1e-12)


@pytest.mark.parametrize(
    ("text", "lanes"),
    [("2", 2.0), ("1.5", 1.5), ("2;3", np.nan), ("2; 2", 2.0), ("two", np.nan), ("0", np.nan), ("2 mph", np.nan)],
)
def test_lanes(text: str, lanes: float):
    np.testing.assert_array_equal(osm.lane_count(text), lanes)


def test_segments_have_the_attributes_of_their_road():
    network = build_from(
        way(10, WEST_EAST, "primary_link", lanes="2", maxspeed="50", maxspeed__backward="30"),
        way(11, NORTH_SOUTH, oneway="yes", maxspeed="PT:urban"),
    )
    assert [network.class_names[k] for k in network.road_class] == ["primary_link"] * 4 + ["residential"] * 2
    np.testing.assert_array_equal(network.lanes, [2, 2, 2, 2, np.nan, np.nan])
    np.testing.assert_array_equal(network.speed_kmh, [50, 50, 30, 30, np.nan, np.nan])


@pytest.mark.parametrize(
    ("tags", "closed"),
    [
        ({}, False),
        ({"access": "no"}, True),
        ({"access": "private"}, True),
        ({"access": "destination"}, False),
        ({"access": "no", "motor_vehicle": "yes"}, False),
        ({"access": "yes", "motor_vehicle": "no"}, True),
        ({"motor_vehicle": "agricultural;forestry"}, True),
        ({"motor_vehicle": "agricultural;yes"}, False),
        ({"vehicle": "no", "motorcar": "permissive"}, False),
    ],
)
def test_roads_closed_to_the_public_are_dropped_on_request(tags: dict[str, str], closed: bool):
    osm_ways = [way(10, WEST_EAST), way(11, NORTH_SOUTH, **tags)]
    assert build_from(*osm_ways).n_segments == 8
    assert build_from(*osm_ways).notes["ways"]["kept_though_closed_to_the_public"] == closed
    network = build_from(*osm_ways, public=True)
    assert network.n_segments == (4 if closed else 8)
    assert network.notes["ways"]["dropped"] == ({"closed to the public": 1} if closed else {})


def test_service_roads_on_request_and_footpaths_never():
    osm_ways = [
        way(10, WEST_EAST),
        way(11, [4, 2], "service"),
        way(12, [5, 2], "footway"),
        way(13, [5, 2, 4, 5], area="yes"),
    ]
    network = build_from(*osm_ways)
    assert network.n_segments == 4
    assert network.notes["ways"]["dropped"] == {"service road": 1, "not for cars": 1, "an area": 1}
    assert network.class_names == ("residential",)
    assert build_from(*osm_ways, service=True).class_names == ("residential", "service")


def test_roads_without_nodes_and_missing_nodes_are_counted():
    nodes = CROSSING | {6: (41.0, -7.98), 7: (float("nan"), -8.0)}
    lost = {"id": 14, "tags": {"highway": "residential"}}
    network = build_from(way(10, [1, 2, 99, 3, 6]), way(11, [4, 7]), way(12, [5]), way(13, []), lost, nodes=nodes)
    assert segments_of(network) == [(1, 2), (3, 6), (6, 3), (2, 1)]
    assert network.notes["ways"]["dropped"] == {"fewer than two nodes": 3}
    assert network.notes["nodes_missing"] == 2
    assert network.notes["source"]["nodes_without_coordinates"] == 1
    assert network.notes["pieces_dropped"]["node missing"] == 3


def test_duplicate_pieces_count_once():
    network = build_from(way(10, WEST_EAST, lanes="1"), way(11, [3, 2, 4], oneway="yes", lanes="3"))
    assert segments_of(network) == [(1, 2), (2, 3), (3, 2), (2, 1), (2, 4)]
    assert network.lanes.tolist() == [1, 1, 1, 1, 3]
    assert network.notes["pieces_dropped"]["drawn twice"] == 1


def test_nodes_at_the_same_position_are_merged():
    nodes = CROSSING | {6: CROSSING[2]}
    network = build_from(way(10, [1, 2, 6, 3], oneway="yes"), way(11, [4, 6, 6, 5], oneway="yes"), nodes=nodes)
    assert segments_of(network) == [(1, 2), (2, 3), (4, 2), (2, 5)]
    assert turns_of(network) == {(1, 2, 3), (1, 2, 5), (4, 2, 3), (4, 2, 5)}
    assert network.notes["nodes_joined"] == 1
    assert network.notes["pieces_dropped"]["no length"] == 2


def test_roundabout_is_a_cycle():
    network = build_from(way(10, [1, 4, 3, 5, 1], junction="roundabout"), way(11, [1, 2], oneway="yes"))
    assert turns_of(network) == {(5, 1, 4), (5, 1, 2), (1, 4, 3), (4, 3, 5), (3, 5, 1)}


def test_disconnected_map_keeps_the_larger_part_with_a_warning():
    far = {n: (42.0 + 0.01 * n, -8.0) for n in range(20, 24)}
    with pytest.warns(DisconnectedWarning, match=r"2 connected components; 2 of 8 segments \(4\.4 of 11\.1 km\)"):
        network = build_from(
            way(1, [20, 21, 22, 23]), way(2, [4, 5]), nodes=CROSSING | far, component="street_nodes"
        )  # fmt: skip
    assert network.node_id.tolist() == [20, 21, 22, 23]


@pytest.mark.parametrize("component", ["street_nodes", "turns"])
def test_one_way_streets_that_never_come_back(component: str):
    with raises(InvalidNetwork, parameter="component"):
        build_from(way(10, WEST_EAST, oneway="yes"), way(11, NORTH_SOUTH, oneway="yes"), component=component)


def test_small_loss_does_not_warn(recwarn: pytest.WarningsRecorder):
    ring = {n: (41.0 + 0.1 * np.sin(n), -8.0 + 0.1 * np.cos(n)) for n in range(7)} | {9: (41.0, -8.0)}
    network = build_from(way(1, [*range(7), 0]), way(2, [0, 9], oneway="yes"), nodes=ring, component="street_nodes")
    assert not [warning for warning in recwarn if warning.category is DisconnectedWarning]
    assert network.notes["component"]["segments_dropped"] == 1
    assert 0.0 < network.notes["component"]["share_of_km_dropped"] < 0.2


@pytest.mark.parametrize(
    ("osm_ways", "nodes", "expected"),
    [
        ([], {}, {"parameter": "source"}),
        ([way(1, [1, 2], "footway"), way(2, [2, 3], "path")], CROSSING, {"parameter": "source"}),
        ([way(1, [8, 9])], CROSSING, {"parameter": "source"}),
        ([way(1, [1, 2])], {1: (91.0, 0.0), 2: (1.0, 0.0)}, {"parameter": "lat", "value": 91.0, "index": 0}),
        ([way(1, [1, 2])], {1: (1.0, 181.0), 2: (1.0, 0.0)}, {"parameter": "lon", "value": 181.0, "index": 0}),
        ([way(1, [1, 2])], CROSSING | {3: (-8.0, 41.0)}, {"parameter": "lat", "value": -8.0, "index": 2}),
    ],
)
def test_map_without_usable_roads_is_rejected(
    osm_ways: list[dict[str, Any]], nodes: dict[int, tuple[float, float]], expected: dict[str, Any]
):
    with raises(InvalidNetwork, **expected):
        roads.from_ways(osm_ways, nodes)


def test_centre_far_from_the_map_is_rejected():
    with raises(InvalidNetwork, parameter="centre", value=(-8.0, 41.0)):
        crossing(centre=(-8.0, 41.0))
    with raises(InvalidNetwork, parameter="centre", value=(31.2, 121.4)):
        crossing(centre=(31.2, 121.4))
    assert crossing(centre=(41.1, -8.1)).centre == (41.1, -8.1)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"u_turns": "often"}, {"parameter": "u_turns", "value": "often"}),
        ({"component": "big"}, {"parameter": "component", "value": "big"}),
    ],
)
def test_options_are_checked(options: dict[str, Any], expected: dict[str, Any]):
    with raises(InvalidParameter, **expected):
        crossing(**options)


@pytest.mark.parametrize("centre", [(41.0,), (41.0, -8.0, 3.0), 41.0, ("north", -8.0)])
def test_invalid_centre_is_rejected(centre: Any):
    with raises(InvalidNetwork, parameter="centre"):
        crossing(centre=centre)
    with raises(InvalidNetwork, parameter="centre"):
        roads.RoadNetwork.from_segments([41.0, 41.01], [-8.0, -8.0], [0], [1], centre=centre)


def test_notes_are_plain_and_survive_a_file(tmp_path: Path):
    network = crossing()
    assert json.loads(json.dumps(network.notes)) == network.notes
    network.save(tmp_path / "town.npz")
    loaded = roads.RoadNetwork.load(tmp_path / "town.npz")
    assert loaded == network
    assert loaded.notes == network.notes


# Comparison with brute force

NODES = {n: (41.0 + 0.01 * (n % 3), -8.0 + 0.01 * (n // 3)) for n in range(9)}
MAPS = st.lists(
    st.tuples(st.lists(st.integers(0, 9), min_size=1, max_size=5), st.sampled_from(["yes", "no", "-1", ""])), max_size=6
)


def pieces_by_hand(osm_ways: list[tuple[list[int], str]]) -> list[tuple[int, int]]:
    result: dict[tuple[int, int], None] = {}
    for nodes, oneway in osm_ways:
        steps = [(a, b) for a, b in pairwise(nodes) if a != b and a in NODES and b in NODES]
        if oneway != "-1":
            result |= dict.fromkeys(steps)
        if oneway != "yes":
            result |= dict.fromkeys((b, a) for a, b in reversed(steps))
    return list(result)


@given(MAPS)
@settings(max_examples=examples(80), deadline=None)
def test_segments_and_turns_equal_brute_force(osm_ways: list[tuple[list[int], str]]):
    wanted = pieces_by_hand(osm_ways)
    tagged = [way(i, nodes, **({"oneway": oneway} if oneway else {})) for i, (nodes, oneway) in enumerate(osm_ways)]
    if not wanted:
        with raises(InvalidNetwork, parameter="source"):
            build_from(*tagged, nodes=NODES)
        return
    network = build_from(*tagged, nodes=NODES)
    assert segments_of(network) == wanted
    continues = {(a, b, d) for a, b in wanted for c, d in wanted if b == c and d != a}
    assert turns_of(network) == continues
    assert network.n_turns == len(continues)


GRAPHS = st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7)), min_size=1, max_size=25, unique=True)


@given(GRAPHS)
@settings(max_examples=examples(150), deadline=None)
def test_component_is_a_largest_strong_component(pairs: list[tuple[int, int]]):
    graph = nx.DiGraph(pairs)
    components = list(nx.strongly_connected_components(graph))
    ends = np.array(pairs)
    part = builders.largest_node_component(ends[:, 0], ends[:, 1], 8)
    assert part.n_parts == len(components)
    largest = [result for result in components if len(result) == max(map(len, components))]
    inside = [[a in result and b in result for a, b in pairs] for result in largest]
    assert part.kept.tolist() in inside
    by_turns = builders.largest_turn_component(ends[:, 0], ends[:, 1], 8)
    # All 8 segments are kept, including segments without turns.
    graph.add_nodes_from(range(8))
    components = list(nx.strongly_connected_components(graph))
    largest = [result for result in components if len(result) == max(map(len, components))]
    nodes = {int(s) for s in np.flatnonzero(by_turns.kept)}
    assert nodes in largest
    assert by_turns.n_parts == len(components)


@given(MAPS, st.sampled_from([False, True]))
@settings(max_examples=examples(80), deadline=None)
@pytest.mark.filterwarnings("ignore::limiirl.errors.DisconnectedWarning")
def test_component_by_turns_is_largest_in_the_turn_graph(osm_ways: list[tuple[list[int], str]], u_turns: bool):
    pieces = pieces_by_hand(osm_ways)
    continues = [((a, b), (c, d)) for a, b in pieces for c, d in pieces if b == c and (u_turns or d != a)]
    graph = nx.DiGraph(continues)
    parts = [part for part in nx.strongly_connected_components(graph) if len(part) > 1]
    tagged = [way(i, nodes, **({"oneway": oneway} if oneway else {})) for i, (nodes, oneway) in enumerate(osm_ways)]
    if not parts:
        with raises(InvalidNetwork, parameter="component" if pieces else "source"):
            build_from(*tagged, nodes=NODES, component="turns", u_turns=u_turns)
        return
    network = build_from(*tagged, nodes=NODES, component="turns", u_turns=u_turns)
    kept = set(segments_of(network))
    assert kept in [part for part in parts if len(part) == max(map(len, parts))]
    assert turns_of(network) == {(a, b, d) for (a, b), (_, d) in continues if {(a, b), (b, d)} <= kept}


def test_street_that_never_leads_back_is_a_dead_end():
    # A ring 1 - 2 - 4, a two-way street 2 - 3, and a one-way street from 3 to the dead end 5.
    osm_ways = [way(10, [1, 2, 4, 1], oneway="yes"), way(11, [2, 3]), way(12, [3, 5], oneway="yes")]
    with pytest.warns(DisconnectedWarning, match="2 connected components; 1 of 6 segments"):
        network = build_from(*osm_ways, component="turns", u_turns="dead_ends")
    assert set(segments_of(network)) == {(1, 2), (2, 4), (4, 1), (2, 3), (3, 2)}
    assert (2, 3, 2) in turns_of(network)
    assert network.notes["component"]["segments_dropped"] == 1


# Files


def write_map(folder: Path, osm_ways: list[dict[str, Any]], nodes: str) -> tuple[Path, Path]:
    paths = folder / "my_ways.jsonl", folder / "my_nodes.csv"
    paths[0].write_text("\n".join(map(json.dumps, osm_ways)) + "\n", encoding="utf-8")
    paths[1].write_text(nodes, encoding="utf-8")
    return paths


TABLE = "\ufeffid,lat,lon,highway\n" + "".join(f"{n},{lat},{lon},\n" for n, (lat, lon) in CROSSING.items())


def test_a_folder_and_its_files_give_the_same_network(tmp_path: Path):
    osm_ways, nodes = write_map(tmp_path, [way(10, WEST_EAST), way(11, NORTH_SOUTH, oneway="yes")], TABLE)
    wanted = crossing()
    assert roads.build(tmp_path, component=None) == wanted
    assert roads.build(osm_ways, nodes=nodes, component=None) == wanted
    assert roads.from_ways(str(osm_ways), str(nodes), component=None) == wanted
    with raises(InvalidParameter, parameter="nodes"):
        roads.build(osm_ways)
    (tmp_path / "more_ways.jsonl").write_text("")
    with raises(InvalidFile, parameter="path"):
        roads.build(tmp_path)


@pytest.mark.parametrize(
    ("nodes", "words"),
    [
        ("id,lat,lon\n1,41\n", "line 2: a node needs"),
        ("id,lat,lon\n99999999999999999999,41,-8\n", "line 2: a node needs .*more than 64 bits"),
        ("id,lat,lon\n1,41,-8\n2,north,-8\n", "line 3: a node needs"),
        ("node,lat,lon\n1,41,-8\n", "needs the columns id, lat and lon; its first line is 'node,lat,lon'"),
        ("", "needs the columns"),
    ],
)
def test_broken_nodes(tmp_path: Path, nodes: str, words: str):
    osm_ways, table = write_map(tmp_path, [way(10, WEST_EAST)], nodes)
    with raises(InvalidFile, parameter="nodes"):
        roads.build(osm_ways, nodes=table)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('{"id": 1, "nodes": [1, 2', "line 2: not JSON"),
        ('{"nodes": [1, 2]}', 'line 2: a way needs "id"'),
        ("[1, 2]", 'line 2: a way needs "id"'),
        ('{"id": 99999999999999999999, "nodes": []}', 'line 2: a way needs "id".*more than 64 bits'),
        ('{"id": 1, "nodes": [1, 99999999999999999999]}', 'line 2: a way needs "id".*more than 64 bits'),
        ('{"id": Infinity, "nodes": []}', 'line 2: a way needs "id"'),
        ('{"id": 1, "nodes": ["a"], "tags": {}}', 'line 2: a way needs "id"'),
    ],
)
def test_malformed_osm_way_raises(tmp_path: Path, line: str, words: str):
    osm_ways, nodes = write_map(tmp_path, [way(10, WEST_EAST)], TABLE)
    with osm_ways.open("a", encoding="utf-8") as stream:
        stream.write(line)
    with raises(InvalidFile, parameter="osm_ways"):
        roads.build(osm_ways, nodes=nodes)


@pytest.mark.parametrize("nodes", [{1: (41.0,)}, {1: (41.0, -8.0, 3.0)}, {1: None}, {2**63: (41.0, -8.0)}])
def test_broken_nodes_in_memory(nodes: dict[int, Any]):
    with raises(InvalidNetwork, parameter="nodes"):
        roads.from_ways([way(10, WEST_EAST)], nodes)


def test_missing_files(tmp_path: Path):
    for name in ("x.jsonl", "x.osm", "x.osm.pbf"):
        with raises(MissingFile, parameter="path", value=str(tmp_path / name)):
            roads.build(tmp_path / name, nodes=tmp_path / "y.csv")


# Porto


def test_porto_has_the_segments_and_turns_that_its_readme_counts(shared_data: Callable[[str], Path]):
    network = roads.build(shared_data("porto_road_osm"), centre=PORTO_CENTRE)
    assert (network.n_segments, network.n_turns) == (85_189, 99_685)
    assert network.notes["segments"] == 88_307
    assert network.notes["ways"]["kept"] == 10_141
    facts = roads.summarize(network)
    assert facts["dropped"] == {"ways: service road": 5645, "segments: outside the connected component": 3118}
    assert facts["dead_ends"] == network.notes["turns"]["dead_ends"] == 1456
    south, west, north, east = facts["bounds"]
    assert 41.1199 <= south < north <= 41.1966
    assert -8.7029 <= west < east <= -8.5183
    assert network.mdp("paper").n_features == 24


def test_porto_with_service_roads(shared_data: Callable[[str], Path]):
    network = roads.build(shared_data("porto_road_osm"), service=True)
    assert (network.n_segments, network.n_turns) == (112_667, 136_025)


@pytest.mark.parametrize("keep", [0.3, 0.99])
def test_truncated_gzip_is_rejected(shared_data: Callable[[str], Path], tmp_path: Path, keep: float):
    folder = shared_data("porto_road_osm")
    whole = (folder / "osm_ways.jsonl.gz").read_bytes()
    (tmp_path / "ways.jsonl.gz").write_bytes(whole[: int(keep * len(whole))])
    with raises(InvalidFile, parameter="osm_ways"):
        roads.build(tmp_path / "ways.jsonl.gz", nodes=folder / "osm_nodes.csv.gz")
    whole = (folder / "osm_nodes.csv.gz").read_bytes()
    (tmp_path / "nodes.csv.gz").write_bytes(whole[: int(keep * len(whole))])
    with raises(InvalidFile, parameter="nodes"):
        roads.build(folder / "osm_ways.jsonl.gz", nodes=tmp_path / "nodes.csv.gz")
