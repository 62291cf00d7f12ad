"""One small town, and writers of it in every form of map that can be read."""

import gzip
import json
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.sax.saxutils import quoteattr

import networkx as nx
import osmium
from shapely.geometry import LineString

from limiirl.roads import RoadNetwork

NODES = {
    1: (41.0, -8.01), 2: (41.0, -8.0), 3: (41.0, -7.99), 4: (41.01, -8.0), 5: (40.99, -8.0),
    6: (41.01, -8.01), 7: (41.01, -7.99), 8: (41.0005, -7.995), 9: (41.005, -8.011),
}  # fmt: skip
# 8 and 9 are points of bent streets, where nothing else meets.
WAYS: list[tuple[int, list[int], dict[str, str]]] = [
    (100, [1, 2], {"highway": "primary", "lanes": "2", "maxspeed": "50"}),
    (101, [2, 8, 3], {"highway": "primary", "lanes": "3", "maxspeed": "30 mph"}),
    (102, [4, 2], {"highway": "residential", "oneway": "yes", "maxspeed": "PT:urban"}),
    (103, [2, 5], {"highway": "residential"}),
    (104, [6, 4, 7], {"highway": "secondary_link", "lanes": "2;3"}),
    (105, [1, 9, 6], {"highway": "tertiary"}),
    (106, [7, 3], {"highway": "motorway"}),
    (107, [5, 1], {"highway": "service"}),
    (108, [5, 3], {"highway": "footway"}),
]
# number, kind of restriction, from, via (kind, number), to, further tags
RESTRICTIONS: list[tuple[int, str, int, tuple[str, int], int, dict[str, str]]] = [
    (900, "no_left_turn", 100, ("n", 2), 103, {"except": "bus;psv"}),
    (901, "only_straight_on", 102, ("n", 2), 103, {}),
    (902, "no_right_turn", 105, ("w", 104), 102, {}),
    (903, "no_right_turn", 101, ("n", 2), 103, {"except": "motorcar"}),
]


def write_xml(path: Path) -> Path:
    lines = ["<?xml version='1.0' encoding='UTF-8'?>", '<osm version="0.6">', '<bounds minlat="40" maxlat="42"/>']
    lines += [f'<node id="{n}" lat="{lat}" lon="{lon}"><tag k="x" v="y"/></node>' for n, (lat, lon) in NODES.items()]
    lines += ['<node id="77" lat="41.0" lon="-8.0"/>', '<node id="78" visible="false"/>']
    for number, nodes, tags in WAYS:
        lines += [f'<way id="{number}">', *(f'<nd ref="{n}"/>' for n in nodes), *_tags(tags), "</way>"]
    for number, kind, source, (via, at), target, tags in RESTRICTIONS:
        what = {"n": "node", "w": "way"}[via]
        lines += [f'<relation id="{number}">', f'<member type="way" ref="{source}" role="from"/>']
        lines += [f'<member type="{what}" ref="{at}" role="via"/>', f'<member type="way" ref="{target}" role="to"/>']
        lines += [*_tags({"type": "restriction", "restriction": kind} | tags), "</relation>"]
    lines += ['<relation id="990"><member type="way" ref="100" role=""/><tag k="type" v="route"/></relation>', "</osm>"]
    text = "\n".join(lines).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    return path


def _tags(tags: dict[str, str]) -> list[str]:
    return [f"<tag k={quoteattr(k)} v={quoteattr(v)}/>" for k, v in tags.items()]


def write_pbf(path: Path) -> Path:
    writer = osmium.SimpleWriter(str(path))
    for n, (lat, lon) in NODES.items():
        writer.add_node(osmium.osm.mutable.Node(id=n, location=(lon, lat), version=1))
    writer.add_node(osmium.osm.mutable.Node(id=77, location=(-8.0, 41.0), version=1))
    for number, nodes, tags in WAYS:
        writer.add_way(osmium.osm.mutable.Way(id=number, nodes=nodes, tags=tags, version=1))
    for number, kind, source, (via, at), target, tags in RESTRICTIONS:
        members = [("w", source, "from"), (via, at, "via"), ("w", target, "to")]
        words = {"type": "restriction", "restriction": kind} | tags
        writer.add_relation(osmium.osm.mutable.Relation(id=number, members=members, tags=words, version=1))
    writer.close()
    return path


def write_folder(folder: Path) -> Path:
    lines = [json.dumps({"id": number, "nodes": nodes, "tags": tags}) for number, nodes, tags in WAYS]
    (folder / "ways.jsonl.gz").write_bytes(gzip.compress("\n".join(lines).encode()))
    rows = ["lat,lon,id", *(f"{lat},{lon},{n}" for n, (lat, lon) in NODES.items())]
    (folder / "nodes.csv.gz").write_bytes(gzip.compress("\n".join(rows).encode()))
    return folder


def graph(*, simplified: bool) -> "nx.MultiDiGraph[int]":
    """The town as OSMnx would give it: an edge a piece, or an edge from junction to junction with its line."""
    made: nx.MultiDiGraph[int] = nx.MultiDiGraph(crs="epsg:4326", created_with="OSMnx 2.0.0")
    for n, (lat, lon) in NODES.items():
        if not (simplified and n in (8, 9)):
            made.add_node(n, x=lon, y=lat)
    for number, nodes, tags in WAYS:
        oneway = tags.get("oneway") == "yes" or tags["highway"] == "motorway"
        known: dict[str, Any] = tags | {"osmid": number, "oneway": oneway}
        for key in ("lanes", "maxspeed"):
            if key in known and ";" in known[key]:
                known[key] = known[key].split(";")
        for path in [nodes] if oneway else [nodes, nodes[::-1]]:
            if simplified and path[1] in (8, 9):
                line = LineString([NODES[n][::-1] for n in path])
                made.add_edge(path[0], path[2], geometry=line, length=1.0, **known)
            else:
                for u, v in pairwise(path):
                    made.add_edge(u, v, length=1.0, **known)
    return made


def canonical(network: RoadNetwork) -> tuple[set[Any], set[Any]]:
    """Segments with all that is known of them, and turns, by the places of nodes: the same whatever the numbering."""
    place = [(round(lat, 7), round(lon, 7)) for lat, lon in zip(network.lat, network.lon, strict=True)]
    ends = [(place[a], place[b]) for a, b in zip(network.tail, network.head, strict=True)]
    known = zip(
        ends,
        network.length_m.round(9).tolist(),
        [network.class_names[k] for k in network.road_class],
        np_text(network.lanes),
        np_text(network.speed_kmh),
        network.way_id.tolist(),
        strict=True,
    )
    turns = {(*ends[a], ends[b][1]) for a, b in zip(network.turn_from, network.turn_to, strict=True)}
    return set(known), turns


def np_text(values: Any) -> list[str]:
    return [f"{value:.6g}" for value in values]
