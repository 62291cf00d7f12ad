"""`build`: construction of road networks from maps."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.csgraph import connected_components

from limiirl._typing import FloatArray, IntArray
from limiirl.errors import DisconnectedWarning, InvalidNetwork, InvalidParameter
from limiirl.roads.geometry import distance_m
from limiirl.roads.lookup import index_names, name_street
from limiirl.roads.maps import osm
from limiirl.roads.maps.osm import DRIVABLE, SERVICE, SegmentTurns, find_forbidden_turns, read_osm
from limiirl.roads.maps.tables import OSM_ATTRIBUTION, MapWay, Source, WayTable, find_files, make_way_table, read_ways
from limiirl.roads.network import RoadNetwork, as_centre, join_segments

if TYPE_CHECKING:
    import networkx as nx


def build(
    source: Source | nx.Graph[Any],
    *,
    nodes: Source | None = None,
    service: bool = False,
    public: bool = False,
    u_turns: bool | str = False,
    restrictions: bool = True,
    component: str | None = "street_nodes",
    centre: tuple[float, float] | None = None,
) -> RoadNetwork:
    """Build a road network: directed straight segments between map nodes, and the legal turns between them.

    The network has the roads that are open to cars (`osm.DRIVABLE`), in their allowed directions. Lanes and speed
    limits are NaN if the map does not specify them. Lengths are distances on the ellipsoid. `RoadNetwork.notes`
    contains counts of the map elements that were read, kept and dropped.

    Parameters
    ----------
    source : path or networkx graph
        OpenStreetMap file: .osm (XML, optionally .gz or .bz2) or .osm.pbf (requires osmium); or a file of OSM ways,
        .jsonl or .jsonl.gz, with `nodes`; or a folder that contains one of these maps; or a graph created by OSMnx.
    nodes : path, optional
        CSV file with the columns id, lat and lon, if `source` is a file of OSM ways.
    service : bool
        Keep service roads (to yards, car parks and houses).
    public : bool
        Drop roads that are closed to the public. They are kept by default, because access tags may be newer than the
        trips, and taxis may have permits.
    u_turns : bool or "dead_ends"
        True allows U-turns everywhere, False forbids them, and "dead_ends" allows them at dead ends only. Without
        U-turns, a segment into a dead end is terminal.
    restrictions : bool
        Apply the map's turn restrictions.
    component : "street_nodes", "turns" or None
        "street_nodes" keeps the largest strongly connected component of the nodes, "turns" the largest strongly
        connected component of the segments with respect to legal turns, and None all segments.
    centre : (lat, lon), optional
        Centre of the planar projection and of the regions; by default the mean of the nodes.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "street.osm"
    >>> _ = path.write_text('''<osm><node id="5" lat="41.0" lon="-8.0"/><node id="6" lat="41.01" lon="-8.0"/>
    ... <way id="1"><nd ref="5"/><nd ref="6"/><tag k="highway" v="tertiary"/></way></osm>''')
    >>> build(path, u_turns="dead_ends")
    RoadNetwork: 2 directed segments of 2.2 km in all, 2 turns, 2 nodes
    """
    options = BuildOptions(service, public, u_turns, restrictions, component, centre)
    if not isinstance(source, str | PathLike):
        return assemble(read_networkx(source), options)
    path = Path(source)
    if path.is_dir():
        path, nodes_file = find_files(path)
        nodes = nodes_file if nodes is None else nodes
    if path.name.endswith((".jsonl", ".jsonl.gz")):
        if nodes is None:
            message = f"{path.name} has no node coordinates; pass nodes=, a CSV file with id, lat and lon."
            raise InvalidParameter(message, parameter="nodes")
        return assemble(read_ways(path, nodes), options)
    return assemble(read_osm(path), options)


def from_osm(path: Source, **options: Any) -> RoadNetwork:
    """Build a network from an OpenStreetMap file, .osm or .osm.pbf; the options are those of `build`."""
    return assemble(read_osm(path), BuildOptions(**options))


def from_ways(
    osm_ways: Source | Iterable[Mapping[str, Any]], nodes: Source | Mapping[int, tuple[float, float]], **options: Any
) -> RoadNetwork:
    """Build a network from OSM ways and nodes, in files or in memory; the options are those of `build`.

    Parameters
    ----------
    osm_ways : path of JSON lines, or iterable of mappings with "id", "nodes" and "tags"
    nodes : path of a CSV file with id, lat and lon, or mapping of id to (lat, lon)

    Examples
    --------
    >>> street = {"id": 1, "nodes": [5, 6], "tags": {"highway": "residential", "maxspeed": "30"}}
    >>> from_ways([street], {5: (41.0, -8.0), 6: (41.01, -8.0)}).speed_kmh
    array([30., 30.])
    """
    return assemble(read_ways(osm_ways, nodes), BuildOptions(**options))


def from_networkx(graph: nx.Graph[Any], **options: Any) -> RoadNetwork:
    """Build a network from a networkx graph created by OSMnx; the options are those of `build`.

    Edges with a geometry are split at its points, since segments are straight.

    Examples
    --------
    >>> import networkx as nx
    >>> graph = nx.MultiDiGraph()
    >>> graph.add_nodes_from([(1, {"x": -8.0, "y": 41.0}), (2, {"x": -8.0, "y": 41.01})])
    >>> for u, v in [(1, 2), (2, 1)]:
    ...     _ = graph.add_edge(u, v, highway="residential", lanes=["1", "2"])
    >>> from_networkx(graph).lanes
    array([nan, nan])
    """
    return assemble(read_networkx(graph), BuildOptions(**options))


class LargestComponent(NamedTuple):
    """Largest strongly connected component: membership of each segment (S,), and the number of components."""

    kept: NDArray[np.bool_]
    n_parts: int


def largest_node_component(tail: NDArray[Any], head: NDArray[Any], n_nodes: int) -> LargestComponent:
    """Return the segments within the largest strongly connected component of the nodes.

    If several are equally large, the one with the lowest node is returned. Turns are ignored, so that a two-way street
    into a dead end belongs to the component.
    """
    label = _label_components(tail, head, n_nodes)
    used = np.zeros(n_nodes, dtype=np.bool_)
    used[tail] = used[head] = True
    best = _largest_label(label[used])
    return LargestComponent((label[tail] == best) & (label[head] == best), int(np.unique(label[used]).size))


def largest_turn_component(turn_from: NDArray[Any], turn_to: NDArray[Any], n_segments: int) -> LargestComponent:
    """Return the largest strongly connected component of the segments with respect to legal turns."""
    label = _label_components(turn_from, turn_to, n_segments)
    return LargestComponent(label == _largest_label(label), int(np.unique(label).size))


def merge_nodes(tail: NDArray[Any], head: NDArray[Any], n_nodes: int) -> NDArray[np.int64]:
    """Merge the nodes of each pair (tail, head); return the lowest node (V,) that each node is merged with."""
    graph = sparse.csr_array((np.ones(tail.size, dtype=np.int8), (tail, head)), shape=(n_nodes, n_nodes))
    _, label = connected_components(graph, directed=False)
    _, first, inverse = np.unique(label, return_index=True, return_inverse=True)
    return np.asarray(first[inverse], dtype=np.int64)


def _label_components(source: NDArray[Any], target: NDArray[Any], n: int) -> NDArray[np.int64]:
    graph = sparse.csr_array((np.ones(source.size, dtype=np.int8), (source, target)), shape=(n, n))
    _, label = connected_components(graph, directed=True, connection="strong")
    return np.asarray(label, dtype=np.int64)


def _largest_label(label: NDArray[np.int64]) -> int:
    names, first, counts = np.unique(label, return_index=True, return_counts=True)
    return int(names[np.lexsort((first, -counts))[0]])


_LARGE_LOSS = 0.2  # fraction of the length above which a warning is issued


@dataclass(frozen=True)
class BuildOptions:
    """Options of `limiirl.roads.build`."""

    service: bool = False
    public: bool = False
    u_turns: bool | str = False
    restrictions: bool = True
    component: str | None = "street_nodes"
    centre: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        """Validate the options, and convert flags to bool, which JSON requires."""
        if self.u_turns not in (False, True, "dead_ends"):
            raise InvalidParameter.of("u_turns", self.u_turns, "must be True, False or 'dead_ends'")
        for name in ("service", "public", "u_turns", "restrictions"):
            if getattr(self, name) != "dead_ends":
                object.__setattr__(self, name, bool(getattr(self, name)))
        if self.centre is not None:
            object.__setattr__(self, "centre", as_centre(self.centre))
        if self.component not in ("street_nodes", "turns", None):
            raise InvalidParameter.of("component", self.component, "must be 'street_nodes', 'turns' or None")


class DirectedPieces(NamedTuple):
    """Directed straight pieces between nodes, at most one per pair of nodes; nodes are indices into the `WayTable`."""

    tail: IntArray
    head: IntArray
    way: IntArray  # index into the kept ways
    speed_kmh: FloatArray
    length_m: FloatArray

    def take(self, which: Any) -> DirectedPieces:
        """Return the pieces selected by an index array or a mask."""
        return DirectedPieces(*(column[which] for column in self))


def assemble(table: WayTable, options: BuildOptions) -> RoadNetwork:
    """Build the network of a `WayTable`."""
    centre = None if options.centre is None else list(options.centre)
    notes: dict[str, Any] = {"source": dict(table.source), "options": vars(options) | {"centre": centre}}
    notes["read"] = {"ways": len(table.osm_ways), "nodes": table.node_id.size, "restrictions": len(table.restrictions)}
    roads = _select_roads(table, options, notes)
    whole, node_of = _cut_pieces(table, roads, notes)
    merged = node_of != np.arange(node_of.size)
    notes |= {"segments": whole.tail.size, "nodes_joined": int(np.count_nonzero(merged))}
    if merged.any():
        via = {int(old): int(table.node_id[new]) for old, new in zip(table.node_id, node_of, strict=True)}
        rules = [rule._replace(via=via.get(rule.via, rule.via)) for rule in table.restrictions]  # type: ignore[arg-type]
        table = replace(table, restrictions=rules)
    pieces, turns, notes["turns"], part = _keep_component(table, roads, whole, options)
    notes["turns"]["dead_ends"] = pieces.tail.size - np.unique(turns[:, 0]).size
    if part is not None:
        notes["component"] = _summarize_loss(part, whole, pieces, str(options.component))
    return _build_network(table, roads, pieces, turns, options, notes)


def _select_roads(table: WayTable, options: BuildOptions, notes: dict[str, Any]) -> list[MapWay]:
    """Return the ways that are open to cars and have at least two nodes."""
    kept: list[MapWay] = []
    dropped: Counter[str] = Counter()
    for way in table.osm_ways:
        reason = osm.drop_reason(way.tags, service=options.service, public=options.public)
        if reason is None and len(way.nodes) < 2:
            reason = "fewer than two nodes"
        if reason is None:
            kept.append(way)
        else:
            dropped[reason] += 1
    notes["ways"] = {
        "kept": len(kept),
        "dropped": dict(dropped),
        "kept_though_closed_to_the_public": sum(osm.is_closed(way.tags) for way in kept),
        "directions": dict(Counter(osm.directions(way.tags).rule for way in kept)),
    }
    if not kept:
        counts = ", ".join(f"{count} {reason}" for reason, count in dropped.items()) or "the map is empty"
        message = f"None of the {len(table.osm_ways)} ways of the map is a road for cars ({counts})."
        raise InvalidNetwork(message, parameter="source", value=dict(dropped))
    return kept


def _cut_pieces(table: WayTable, roads: list[MapWay], notes: dict[str, Any]) -> tuple[DirectedPieces, IntArray]:
    """Return the pieces of roads between consecutive nodes, and the node that each node was merged with."""
    sizes = np.fromiter((len(way.nodes) for way in roads), dtype=np.int64, count=len(roads))
    flat = np.fromiter(chain.from_iterable(way.nodes for way in roads), dtype=np.int64, count=int(sizes.sum()))
    at = table.index_nodes(flat)
    # A piece begins at every node of a way except its last.
    first = np.ones(flat.size, dtype=np.bool_)
    first[np.cumsum(sizes) - 1] = False
    begin = np.flatnonzero(first)
    way = np.repeat(np.arange(len(roads)), sizes - 1)
    tail, head = at[begin], at[begin + 1]
    known = (tail >= 0) & (head >= 0)
    dropped = {"node missing": int(np.count_nonzero(~known))}
    notes["nodes_missing"] = int(np.unique(flat[at < 0]).size)
    tail, head, way = tail[known], head[known], way[known]
    length = distance_m(table.lat[tail], table.lon[tail], table.lat[head], table.lon[head])
    # Merge nodes at the same position; dropping the piece between them instead would disconnect the street.
    short = (length <= 0.0) & (tail != head)
    node_of = merge_nodes(tail[short], head[short], table.node_id.size)
    tail, head = node_of[tail], node_of[head]
    dropped["no length"] = int(np.count_nonzero(tail == head))
    unknown = np.full(tail.size, np.nan)
    pieces = _add_directions(DirectedPieces(tail, head, way, unknown, length).take(tail != head), roads)
    _, place = np.unique(pieces.tail * table.node_id.size + pieces.head, return_index=True)
    dropped["drawn twice"] = pieces.tail.size - place.size
    notes["pieces_dropped"] = dropped
    if not place.size:
        counts = ", ".join(f"{count}: {reason}" for reason, count in dropped.items() if count)
        message = f"None of the {len(roads)} roads has a segment ({counts}). Check the nodes."
        raise InvalidNetwork(message, parameter="source", value=dropped)
    return pieces.take(np.sort(place)), node_of


def _add_directions(pieces: DirectedPieces, roads: list[MapWay]) -> DirectedPieces:
    """Return the pieces in each allowed direction, sorted by way; pieces along a way precede pieces against it."""
    allowed = np.array([osm.directions(way.tags)[:2] for way in roads], dtype=np.bool_)
    limit = np.array([osm.speed_limits(way.tags) for way in roads], dtype=np.float64)
    way, n = pieces.way, pieces.tail.size
    along, against = (np.flatnonzero(allowed[way, side]) for side in (0, 1))
    forth = pieces.take(along)._replace(speed_kmh=limit[way[along], 0])
    back = pieces.take(against)._replace(
        tail=pieces.head[against], head=pieces.tail[against], speed_kmh=limit[way[against], 1]
    )
    both = DirectedPieces(*(np.concatenate(columns) for columns in zip(forth, back, strict=True)))
    place = np.concatenate([along, n - 1 - against])
    side = np.repeat([0, 1], [along.size, against.size])
    return both.take(np.lexsort((place, side, both.way)))


def _keep_component(
    table: WayTable, roads: list[MapWay], pieces: DirectedPieces, options: BuildOptions
) -> tuple[DirectedPieces, IntArray, dict[str, Any], LargestComponent | None]:
    """Return the pieces in the kept component, their turns and turn counts, and the `LargestComponent` or None."""
    n, part = pieces.tail.size, None
    ends = pieces.tail, pieces.head, table.node_id.size
    if options.component == "street_nodes":
        part = largest_node_component(*ends)
        pieces = pieces.take(part.kept)
    elif options.component == "turns":
        # Drop pieces between components first, so that streets that lead only to such pieces are dead ends.
        label = _label_components(*ends)
        inner = label[pieces.tail] == label[pieces.head]
        pieces = pieces.take(inner)
    turns, counts = _find_turns(table, roads, pieces, options)
    if options.component == "turns" and pieces.tail.size:
        largest = largest_turn_component(turns[:, 0], turns[:, 1], pieces.tail.size)
        pieces, place = pieces.take(largest.kept), np.cumsum(largest.kept) - 1
        turns = place[turns[np.all(largest.kept[turns], axis=1)]]
        n_parts = largest.n_parts + int(np.count_nonzero(~inner))
        inner[inner] = largest.kept
        part = LargestComponent(inner, n_parts)
    if not pieces.tail.size or (options.component == "turns" and not turns.size):
        message = (
            f"The {n} segments of the map have no cycle of legal turns. Check whether the extract is too small, or "
            "pass component=None to keep all segments, or u_turns='dead_ends'."
        )
        raise InvalidNetwork(message, parameter="component", value=options.component)
    return pieces, turns, counts, part


def _find_turns(
    table: WayTable, roads: list[MapWay], pieces: DirectedPieces, options: BuildOptions
) -> tuple[IntArray, dict[str, Any]]:
    """Return the legal turns (E, 2) in ascending order, and their counts."""
    turns = join_segments(pieces.tail, pieces.head, u_turns=options.u_turns is True)
    counts: dict[str, Any] = {"joined": len(turns)}
    if options.restrictions and table.restrictions:
        numbers = np.array([way.id for way in roads], dtype=np.int64)[pieces.way]
        ends = table.node_id[pieces.tail], table.node_id[pieces.head]
        rule = find_forbidden_turns(table.restrictions, SegmentTurns(numbers, *ends, turns[:, 0], turns[:, 1]))
        turns = turns[~rule.turns]
        counts["restrictions"] = {
            "used": rule.used,
            "not_used": rule.unused,
            "turns_forbidden": int(np.count_nonzero(rule.turns)),
        }
    if options.u_turns == "dead_ends":
        stuck = np.setdiff1d(np.arange(pieces.tail.size), turns[:, 0])
        back = join_segments(pieces.tail, pieces.head, u_turns=True)
        back = back[np.isin(back[:, 0], stuck) & (pieces.head[back[:, 1]] == pieces.tail[back[:, 0]])]
        counts["u_turns_at_dead_ends"] = len(back)
        turns = np.unique(np.concatenate([turns, back]), axis=0)
    return turns, counts


def _summarize_loss(part: LargestComponent, whole: DirectedPieces, pieces: DirectedPieces, rule: str) -> dict[str, Any]:
    """Return the number and length of the dropped segments, and issue a warning if they are many."""
    km, kept = (float(these.length_m.sum()) / 1000.0 for these in (whole, pieces))
    lost = int(np.count_nonzero(~part.kept))
    if kept < (1.0 - _LARGE_LOSS) * km:
        warnings.warn(
            f"The map has {part.n_parts} connected components; {lost} of {part.kept.size} segments ({km - kept:.1f} of "
            f"{km:.1f} km) are outside the largest and are dropped. Check whether the extract is incomplete, or pass "
            "service=True.",
            DisconnectedWarning,
            stacklevel=4,
        )
    return {
        "rule": rule,
        "parts": part.n_parts,
        "segments_dropped": lost,
        "km_dropped": round(km - kept, 3),
        "share_of_km_dropped": round(1.0 - kept / km, 6),
    }


def _build_network(
    table: WayTable, roads: list[MapWay], pieces: DirectedPieces, turns: IntArray, options: BuildOptions, notes: Any
) -> RoadNetwork:
    used, ends = np.unique(np.stack([pieces.tail, pieces.head]), return_inverse=True)
    tail, head = ends.reshape(2, -1)
    present = {way.tags["highway"] for way in roads}
    names = tuple(name for name in (*osm.DRIVABLE, osm.SERVICE) if name in present)
    classes = np.array([names.index(way.tags["highway"]) for way in roads])
    lanes = np.array([osm.lane_count(way.tags.get("lanes")) for way in roads])
    numbers = np.array([way.id for way in roads], dtype=np.int64)
    streets, street_of = index_names([name_street(way.tags) for way in roads])
    extra: dict[str, Any] = {} if options.centre is None else {"centre": check_centre(options.centre, table, used)}
    extra |= {"class_names": names, "street_names": streets, "attribution": table.attribution, "notes": notes}
    extra |= {"landmarks": _clip_landmarks(table, table.lat[used], table.lon[used])}
    extra |= {"length_m": pieces.length_m, "speed_kmh": pieces.speed_kmh, "node_id": table.node_id[used]}
    by_way = {"road_class": classes, "lanes": lanes, "way_id": numbers, "street_of": street_of}
    extra |= {name: values[pieces.way] for name, values in by_way.items()}
    return RoadNetwork.from_segments(table.lat[used], table.lon[used], tail, head, turns=turns, **extra)


def _clip_landmarks(table: WayTable, lat: FloatArray, lon: FloatArray) -> dict[str, list[Any]]:
    """Return the places and the parts of water lines in the bounding box of the nodes of the network."""
    low, high = np.array([lat.min(), lon.min()]), np.array([lat.max(), lon.max()])

    def inside(points: FloatArray) -> NDArray[np.bool_]:
        return np.asarray(((points >= low) & (points <= high)).all(axis=1))

    places = [list(place) for place in table.places if inside(np.array([place[2:]]))[0]]
    water = []
    for line in table.water:
        kept = inside(line)
        if (line[0] == line[-1]).all() and kept.any():
            water.append(line)  # closed lines are areas; they are clipped when drawn
            continue
        runs = np.split(np.arange(len(line)), np.flatnonzero(np.diff(kept.astype(np.int8))) + 1)
        water += [line[run] for run in runs if kept[run[0]] and run.size > 1]
    return {"places": places, "water": [np.round(line, 6).tolist() for line in water]}


def check_centre(centre: tuple[float, float], table: WayTable, used: IntArray) -> tuple[float, float]:
    """Return the centre; raise `InvalidNetwork` if it is far from the nodes of the network."""
    lat, lon = centre
    middle = float(np.median(table.lat[used])), float(np.median(table.lon[used]))
    if max(abs(lat - middle[0]), abs(lon - middle[1])) > 2.0:
        swapped = max(abs(lon - middle[0]), abs(lat - middle[1])) <= 2.0
        hint = "Latitude and longitude look swapped." if swapped else "Check the centre and the map."
        message = (
            f"centre ({lat:g}, {lon:g}) is far from the map, which is around ({middle[0]:g}, {middle[1]:g}). {hint}"
        )
        raise InvalidNetwork(message, parameter="centre", value=centre)
    return lat, lon


_ORDER = {name: rank for rank, name in enumerate((*DRIVABLE, SERVICE))}
_TAGS = ("lanes", "maxspeed", "access", "junction", "name", "ref", "bridge:name", "tunnel:name")
_FURTHEST_M = 1.0
_MAX_ID = 2**62  # points of geometries get ids below the lowest node id


def read_networkx(graph: nx.Graph[Any]) -> WayTable:
    """Return the edges of a graph as ways.

    Nodes must have `x` (longitude) and `y` (latitude) in degrees. Edges may have `highway` ("road" if no edge has it),
    `lanes`, `maxspeed`, `name`, `ref` and `osmid`, each a value or a list, and `geometry`, a line between the nodes of
    the edge in either direction. Undirected edges are two-way. Merged edges have lists of values: the most important
    class is used, and lanes or speed limits that differ are unknown.
    """
    if not (hasattr(graph, "edges") and hasattr(graph, "is_directed")):
        rule = "must be a networkx graph (or the file or folder of a map)"
        raise InvalidNetwork.of("graph", type(graph).__name__, rule)
    crs = str(graph.graph.get("crs", "")).lower()
    if crs and not any(word in crs for word in ("4326", "wgs 84", "wgs84", "crs84")):
        message = f"graph must be in degrees (EPSG:4326), not projected ({crs[:60]}). Unproject it."
        raise InvalidNetwork(message, parameter="graph", value=crs)
    names = list(graph.nodes)
    whole = all(isinstance(name, int | np.integer) and abs(int(name)) < _MAX_ID for name in names)
    number = {name: int(name) if whole else i for i, name in enumerate(names)}
    shapes = _Shapes(min(number.values(), default=0))
    places = [(number[name], *_parse_coordinates(graph.nodes[name], name)) for name in names]
    degrees = {node: (lat, lon) for node, lat, lon in places}
    oneway = "yes" if graph.is_directed() else "no"
    untyped = not any("highway" in data for _, _, data in graph.edges(data=True))
    edges: list[MapWay] = []
    stretch: list[float] = []
    for u, v, data in graph.edges(data=True):
        inner = shapes.add_points(number[u], number[v], data.get("geometry"), degrees, f"edge ({u!r}, {v!r})")
        tags = _parse_tags(data, untyped=untyped) | {"oneway": oneway}
        edges.append(MapWay(_parse_osmid(data.get("osmid")), (number[u], *inner, number[v]), tags))
        if length := _parse_length(data.get("length")):
            path = np.array([degrees[node] if node in degrees else shapes.place[node] for node in edges[-1].nodes])
            line = distance_m(path[:-1, 0], path[:-1, 1], path[1:, 0], path[1:, 1]).sum()
            stretch += [length / line] if line > 0.0 else []
    places += [(node, lat, lon) for node, (lat, lon) in shapes.place.items()]
    columns = np.array(places, dtype=np.float64).reshape(-1, 3)
    numbers = np.array([node for node, _, _ in places], dtype=np.int64)
    source: dict[str, object] = {"kind": "networkx graph", "name": str(graph.graph.get("name", ""))}
    source |= {"edges": len(edges), "points_of_lines": len(shapes.place)}
    # Only a check: the network has lengths on the ellipsoid. The ratio shows whether the graph has lengths in metres.
    source["median_length_over_measured"] = round(float(np.median(stretch)), 4) if stretch else None
    by_osmnx = "osmnx" in str(graph.graph.get("created_with", "")).lower()
    attribution = OSM_ATTRIBUTION if by_osmnx or any(edge.id >= 0 for edge in edges) else ""
    return make_way_table(edges, numbers, columns[:, 1], columns[:, 2], source, attribution=attribution)


class _Shapes:
    """Inner points of edge geometries, with ids below all node ids; both directions of a street share them."""

    def __init__(self, lowest: int) -> None:
        self.place: dict[int, tuple[float, float]] = {}
        self._next = min(lowest, 0) - 1
        self._ids: dict[tuple[int, int, float, float], int] = {}

    def add_points(
        self, u: int, v: int, geometry: Any, degrees: dict[int, tuple[float, float]], where: str
    ) -> Sequence[int]:
        """Add the points between the two ends of a geometry, and return their ids."""
        if geometry is None or (isinstance(geometry, float) and np.isnan(geometry)):
            return ()
        points = _parse_points(geometry, where)
        if _end_distance_m(points, degrees[u], degrees[v]) > _end_distance_m(points[::-1], degrees[u], degrees[v]):
            points = points[::-1]
        distance = _end_distance_m(points, degrees[u], degrees[v])
        if distance > _FURTHEST_M:
            message = f"{where}: the geometry ends {distance:.0f} m from the nodes of the edge. Correct or drop it."
            raise InvalidNetwork(message, parameter="graph", value=where)
        return [self._add_point(min(u, v), max(u, v), *point) for point in points[1:-1]]

    def _add_point(self, low: int, high: int, lat: float, lon: float) -> int:
        key = (low, high, lat, lon)
        if key not in self._ids:
            self._ids[key] = self._next
            self.place[self._next] = (lat, lon)
            self._next -= 1
        return self._ids[key]


def _parse_points(geometry: Any, where: str) -> list[tuple[float, float]]:
    """Return the points (lat, lon) of a geometry: an object with `coords`, a list of pairs, or WKT text."""
    try:
        if isinstance(geometry, str):
            word, _, rest = geometry.strip().partition("(")
            if not word.strip().upper().startswith("LINESTRING"):
                raise ValueError("not a LINESTRING")
            geometry = [pair.split() for pair in rest.rstrip().removesuffix(")").split(",")]
        points = [(float(point[1]), float(point[0])) for point in getattr(geometry, "coords", geometry)]
    except (IndexError, TypeError, ValueError) as error:
        message = f"{where}: the geometry is not a line ({error!s:.100}). Correct or drop it."
        raise InvalidNetwork(message, parameter="graph", value=where) from error
    if len(points) < 2:
        message = f"{where}: the geometry must have at least two points; got {len(points)}. Drop it."
        raise InvalidNetwork(message, parameter="graph", value=where)
    return points


def _end_distance_m(points: list[tuple[float, float]], start: tuple[float, float], end: tuple[float, float]) -> float:
    """Return the maximum distance between the ends of a line and two given points, in metres."""
    return float(max(distance_m(*points[0], *start), distance_m(*points[-1], *end)))


def _parse_coordinates(data: dict[str, Any], name: object) -> tuple[float, float]:
    try:
        return float(data.get("y", "nan")), float(data.get("x", "nan"))
    except (TypeError, ValueError) as error:
        message = f"Node {name!r} must have numeric x and y in degrees ({error!s:.100})."
        raise InvalidNetwork(message, parameter="graph", value=name) from error


def _parse_tags(data: dict[str, Any], *, untyped: bool) -> dict[str, str]:
    classes = _as_strings(data.get("highway"))
    tags = {"highway": min(classes, key=lambda name: _ORDER.get(name, len(_ORDER)))} if classes else {}
    if untyped:
        tags = {"highway": "road"}
    return tags | {name: ";".join(texts) for name in _TAGS if (texts := _as_strings(data.get(name)))}


def _as_strings(value: Any) -> list[str]:
    values: Iterable[Any] = value if isinstance(value, list | tuple | set | np.ndarray) else (value,)
    known = (x for x in values if x is not None and not (isinstance(x, float | np.floating) and np.isnan(x)))
    return sorted({f"{item:g}" if isinstance(item, float | np.floating) else str(item) for item in known})


def _parse_osmid(osmid: Any) -> int:
    """Return the id of the OSM way; -1 if there is none, or if the edge consists of several ways."""
    if isinstance(osmid, str) and osmid.isdecimal():
        osmid = int(osmid)
    return int(osmid) if isinstance(osmid, int | np.integer) and abs(int(osmid)) < _MAX_ID else -1


def _parse_length(length: Any) -> float | None:
    try:
        number = float(length)
    except (TypeError, ValueError):
        return None
    return number if np.isfinite(number) else None
