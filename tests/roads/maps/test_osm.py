"""OpenStreetMap files: equal networks from XML, PBF and JSON lines; restrictions; corrupted files."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import osmium
import pytest

from limiirl import roads
from limiirl.errors import InvalidFile, InvalidNetwork
from limiirl.roads.maps.builders import BuildOptions, assemble
from limiirl.roads.maps.osm import SegmentTurns, find_forbidden_turns
from limiirl.roads.maps.tables import Restriction, read_ways
from tests.helpers import raises
from tests.oracles import town_maps

# First, middle and last node of the turns that signs forbid.
NO_LEFT = (1, 2, 5)
NOT_STRAIGHT_ON = {(4, 2, 1), (4, 2, 8)}


def turns_of(network: roads.RoadNetwork) -> set[tuple[int, int, int]]:
    tail, head = network.node_id[network.tail].tolist(), network.node_id[network.head].tolist()
    turns = zip(network.turn_from.tolist(), network.turn_to.tolist(), strict=True)
    return {(tail[a], head[a], head[b]) for a, b in turns}


def test_every_form_of_a_map_gives_the_same_network(tmp_path: Path):
    wanted = roads.build(town_maps.write_folder(tmp_path), component=None)
    assert (wanted.n_segments, wanted.notes["ways"]["kept"]) == (18, 7)
    for write, name in (
        (town_maps.write_xml, "town.osm"),
        (town_maps.write_xml, "town.osm.gz"),
        (town_maps.write_pbf, "town.osm.pbf"),
    ):
        network = roads.from_osm(write(tmp_path / name), component=None, restrictions=False)
        assert network == wanted, name
        assert network.attribution == wanted.attribution == "(c) OpenStreetMap contributors, ODbL 1.0"


def test_a_folder_with_one_file(tmp_path: Path):
    wanted = roads.from_osm(town_maps.write_xml(tmp_path / "town.osm"))
    assert roads.build(tmp_path) == wanted


@pytest.mark.parametrize("name", ["town.osm", "town.osm.pbf"])
def test_restrictions_of_a_file_are_obeyed(tmp_path: Path, name: str):
    write = town_maps.write_pbf if name.endswith("pbf") else town_maps.write_xml
    path = write(tmp_path / name)
    free, bound = (roads.build(path, component=None, restrictions=obeyed) for obeyed in (False, True))
    assert turns_of(free) - turns_of(bound) == {NO_LEFT} | NOT_STRAIGHT_ON
    assert turns_of(bound) < turns_of(free)
    assert bound.notes["turns"]["restrictions"] == {
        "used": 2,
        "not_used": {"via a way": 1, "cars are exempt": 1},
        "turns_forbidden": 3,
    }
    assert bound.notes["read"]["restrictions"] == 4
    assert roads.summarize(bound)["dropped"]["turn restrictions: via a way"] == 1


# Ways 10, 11, 12 and 13 end at node 0; way 14 passes through it. All are two-way.
STAR = {10: [(1, 0)], 11: [(2, 0)], 12: [(3, 0)], 13: [(4, 0)], 14: [(5, 0), (0, 6)]}


def star() -> SegmentTurns:
    ends = [(way, *pair) for way, pairs in STAR.items() for a, b in pairs for pair in ((a, b), (b, a))]
    way, tail, head = np.array(ends).T
    turns = [(i, j) for i in range(len(ends)) for j in range(len(ends)) if head[i] == tail[j] and tail[i] != head[j]]
    return SegmentTurns(way, tail, head, *np.array(turns).T)


def forbid(kind: str, sources: tuple[int, ...], targets: tuple[int, ...], **tags: str) -> set[tuple[int, int]] | str:
    """Return the first and last nodes of the turns that a restriction forbids, or the reason why it is ignored."""
    segments = star()
    name = tags.pop("name", "restriction")
    result = find_forbidden_turns([Restriction(1, sources, 0, targets, {name: kind} | tags)], segments)
    assert result.used + sum(result.unused.values()) == 1
    if not result.used:
        assert not result.turns.any()
        return next(iter(result.unused))
    source, target = segments.turn_from[result.turns], segments.turn_to[result.turns]
    return set(zip(segments.tail_node[source].tolist(), segments.head_node[target].tolist(), strict=True))


def test_kinds_of_restrictions():
    assert forbid("no_left_turn", (10,), (11,)) == {(1, 2)}
    assert forbid("no_exit", (10,), (11, 12)) == {(1, 2), (1, 3)}
    assert forbid("no_entry", (10, 11), (12,)) == {(1, 3), (2, 3)}
    assert forbid("only_left_turn", (10,), (11,)) == {(1, 3), (1, 4), (1, 5), (1, 6)}
    assert forbid("no_left_turn", (10,), (11,), name="restriction:motorcar") == {(1, 2)}


@pytest.mark.parametrize(
    ("reason", "kind", "sources", "targets", "tags"),
    [
        ("not for cars", "no_left_turn", (10,), (11,), {"name": "restriction:hgv"}),
        ("only at some hours", "no_left_turn @ (Mo-Fr)", (10,), (11,), {"name": "restriction:conditional"}),
        ("unknown type", "left", (10,), (11,), {}),
        ("cars are exempt", "no_left_turn", (10,), (11,), {"except": "bus; motor_vehicle"}),
        ("no such turn", "no_left_turn", (99,), (11,), {}),
        ("no such turn", "no_u_turn", (10,), (10,), {}),
        ("no such turn", "only_left_turn", (10,), (99,), {}),
        ("incomplete", "no_left_turn", (), (11,), {}),
        ("the way continues beyond the node", "no_left_turn", (14,), (11,), {}),
        ("the way continues beyond the node", "no_left_turn", (10,), (14,), {}),
    ],
)
def test_restrictions_that_are_not_used(
    reason: str, kind: str, sources: tuple[int, ...], targets: tuple[int, ...], tags: dict[str, str]
):
    assert forbid(kind, sources, targets, **tags) == reason


def test_restriction_can_forbid_a_u_turn():
    nodes = {1: (41.0, -8.01), 2: (41.0, -8.0), 3: (41.0, -7.99)}
    osm_ways = [{"id": w, "nodes": pair, "tags": {"highway": "road"}} for w, pair in ((10, [1, 2]), (11, [2, 3]))]
    table = read_ways(osm_ways, nodes)
    table.restrictions.append(Restriction(1, (10,), 2, (10,), {"restriction": "no_u_turn"}))
    turns = turns_of(assemble(table, BuildOptions(u_turns=True)))
    assert turns == {(1, 2, 3), (3, 2, 1), (3, 2, 3), (2, 1, 2), (2, 3, 2)}


def test_restriction_at_a_merged_node():
    nodes = {1: (41.0, -8.01), 2: (41.0, -8.0), 9: (41.0, -8.0), 3: (41.0, -7.99), 4: (41.01, -8.0)}
    pairs = ((10, [1, 2, 9]), (11, [9, 3]), (12, [9, 4]))
    osm_ways = [{"id": w, "nodes": pair, "tags": {"highway": "road", "oneway": "yes"}} for w, pair in pairs]
    table = read_ways(osm_ways, nodes)
    table.restrictions.append(Restriction(1, (10,), 9, (11,), {"restriction": "no_right_turn"}))
    table.restrictions.append(Restriction(2, (10,), None, (12,), {"restriction": "no_left_turn"}))
    assert turns_of(assemble(table, BuildOptions(component=None))) == {(1, 2, 4)}


@pytest.mark.parametrize("keep", [0.0, 0.02, 0.5, 0.9])
@pytest.mark.parametrize("name", ["town.osm", "town.osm.gz", "town.osm.pbf"])
def test_truncated_files_are_rejected(tmp_path: Path, name: str, keep: float):
    write = town_maps.write_pbf if name.endswith("pbf") else town_maps.write_xml
    path = write(tmp_path / name)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(keep * len(whole))])
    with raises(InvalidFile, parameter="path"):
        roads.build(path)


def test_files_of_another_kind(tmp_path: Path):
    (tmp_path / "a.osm").write_text("<gpx></gpx>")
    with raises(InvalidFile, parameter="path"):
        roads.build(tmp_path / "a.osm")
    (tmp_path / "b.osm").write_text("lat,lon\n41,-8\n")
    with raises(InvalidFile, parameter="path"):
        roads.build(tmp_path / "b.osm")
    (tmp_path / "c.osm.gz").write_text("<osm></osm>")
    with raises(InvalidFile, parameter="path"):
        roads.build(tmp_path / "c.osm.gz")
    town_maps.write_xml(tmp_path / "d.osm.pbf")
    with raises(InvalidFile, parameter="path"):
        roads.build(tmp_path / "d.osm.pbf")


def xml(tmp_path: Path, content: str) -> Path:
    path = tmp_path / "x.osm"
    path.write_text(f"<osm>{content}</osm>", encoding="utf-8")
    return path


STREET = '<way id="1"><nd ref="1"/><nd ref="2"/><tag k="highway" v="{}"/></way>'


def test_maps_without_roads(tmp_path: Path):
    with raises(InvalidNetwork, parameter="source"):
        roads.build(xml(tmp_path, ""))
    nodes = '<node id="1" lat="41" lon="-8"/><node id="2" lat="41.01" lon="-8"/>'
    with raises(InvalidNetwork, parameter="source"):
        roads.build(xml(tmp_path, nodes + STREET.format("footway")))
    with raises(InvalidNetwork, parameter="source"):
        roads.build(xml(tmp_path, '<node id="1"/><node id="2" lat="41.01" lon="-8"/>' + STREET.format("road")))
    with raises(InvalidNetwork, parameter="lat", value=121.4, index=0):
        roads.build(xml(tmp_path, nodes.replace('lat="41"', 'lat="121.4"') + STREET.format("road")))


def test_repeated_nodes_must_be_at_the_same_place(tmp_path: Path):
    nodes = '<node id="1" lat="41" lon="-8"/><node id="2" lat="41.01" lon="-8"/>'
    street = STREET.format("road")
    wanted = roads.build(xml(tmp_path, nodes + street), component=None)
    # A difference of one unit of the last digit is one of rounding.
    again = nodes.replace('lat="41.01"', 'lat="41.0100001"')
    assert roads.build(xml(tmp_path, nodes + again + street), component=None) == wanted
    with raises(InvalidNetwork, parameter="nodes", value=2, index=2):
        roads.build(xml(tmp_path, nodes + '<node id="2" lat="41.01" lon="-8.001"/>' + street), component=None)


@pytest.mark.parametrize(
    "content",
    [
        '<node lat="41" lon="-8"/>',
        '<node id="1" lat="north" lon="-8"/>',
        '<way id="1"><nd/></way>',
        '<node id="99999999999999999999" lat="41" lon="-8"/>',
        '<way id="1"><nd ref="99999999999999999999"/></way>',
        '<relation id="1"><member type="way" ref="99999999999999999999"/></relation>',
    ],
)
def test_elements_that_lack_something(tmp_path: Path, content: str):
    with raises(InvalidFile, parameter="path"):
        roads.build(xml(tmp_path, content))


def test_importing_roads_is_light_and_xml_needs_no_osmium(tmp_path: Path):
    path = town_maps.write_xml(tmp_path / "town.osm")
    code = (
        "import sys; import limiirl.roads as roads; light = [m for m in ('scipy', 'numba') if m in sys.modules];"
        f"roads.build({str(path)!r}); print(light, [m for m in ('osmium', 'shapely', 'networkx') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[] []"


def test_pbf_without_osmium_names_the_package(tmp_path: Path):
    path = town_maps.write_pbf(tmp_path / "town.osm.pbf")
    code = f"import sys; sys.modules['osmium'] = None; from limiirl import roads; roads.build({str(path)!r})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "BackendUnavailable: Reading .osm.pbf requires osmium: pip install osmium" in done.stderr


LANDMARKS = """
<node id="500" lat="41.002" lon="-8.001"><tag k="place" v="suburb"/><tag k="name" v="Baixa &amp; Sé"/></node>
<node id="501" lat="45.0" lon="-8.001"><tag k="place" v="city"/><tag k="name" v="Far away"/></node>
<node id="502" lat="41.003" lon="-8.002"><tag k="place" v="suburb"/></node>
<node id="503" lat="41.003" lon="-8.002"><tag k="place" v="island"/><tag k="name" v="No settlement"/></node>
<node id="510" lat="41.001" lon="-8.1"/><node id="511" lat="41.001" lon="-8.009"/>
<node id="512" lat="41.001" lon="-7.999"/><node id="513" lat="41.001" lon="-7.5"/>
<node id="520" lat="41.004" lon="-8.005"/><node id="521" lat="41.006" lon="-8.005"/>
<node id="522" lat="41.005" lon="-8.2"/>
<way id="600"><nd ref="510"/><nd ref="511"/><nd ref="599"/><nd ref="512"/><nd ref="513"/>
<tag k="waterway" v="river"/></way>
<way id="601"><nd ref="520"/><nd ref="521"/><nd ref="522"/><nd ref="520"/><tag k="natural" v="water"/></way>
<way id="602"><nd ref="510"/><nd ref="511"/><tag k="waterway" v="ditch"/></way>
"""


def with_landmarks(path: Path) -> Path:
    """Write the town with places and water: the far parts are outside of the bounding box of the roads."""
    text = town_maps.write_xml(path.parent / "plain.osm").read_text()
    source = path.parent / "landmarks.osm"
    # Nodes come before ways in a file.
    nodes, lines = LANDMARKS.split("<way", 1)
    text = text.replace("<way", nodes + "<way", 1).replace("<relation", f"<way{lines}<relation", 1)
    source.write_text(text)
    if path.suffix == ".osm":
        return source.rename(path)
    with osmium.SimpleWriter(str(path)) as writer:
        for item in osmium.FileProcessor(str(source)):
            writer.add(item)
    return path


@pytest.mark.parametrize("name", ["town.osm", "town.osm.pbf"])
def test_places_and_water_are_landmarks(tmp_path: Path, name: str):
    plain = roads.build(town_maps.write_xml(tmp_path / "other.osm"), component=None)
    network = roads.build(with_landmarks(tmp_path / name), component=None)
    assert plain.landmarks == {"places": [], "water": []}
    assert network == plain
    assert network.fingerprint() == plain.fingerprint()
    assert network.landmarks["places"] == [["Baixa & Sé", "suburb", 41.002, -8.001]]
    river, lake = network.landmarks["water"]
    assert river == [[41.001, -8.009], [41.001, -7.999]]
    assert lake == [[41.004, -8.005], [41.006, -8.005], [41.005, -8.2], [41.004, -8.005]]
    network.save(tmp_path / "network.npz")
    assert roads.RoadNetwork.load(tmp_path / "network.npz").landmarks == network.landmarks


@pytest.mark.parametrize(
    "landmarks",
    [{"places": [["a", "city", 91.0, 0.0]]}, {"places": [["a"]]}, {"water": [[1, 2]]}, {"water": [[[0, None]]]}],
)
def test_invalid_landmarks_are_rejected(tmp_path: Path, landmarks: dict[str, list[object]]):
    network = roads.build(town_maps.write_xml(tmp_path / "town.osm"))
    with raises(InvalidNetwork, parameter="landmarks"):
        network.replace(landmarks=landmarks)
