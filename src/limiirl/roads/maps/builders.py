"""`build`: a road network from a map in any supported format."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterable, Mapping
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
from limiirl.roads.maps.networkx import read_networkx
from limiirl.roads.maps.osm import SegmentTurns, find_forbidden_turns, read_osm
from limiirl.roads.maps.tables import MapWay, Source, WayTable, find_files, read_ways
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

    Cars use the road classes `osm.DRIVABLE`; one-way streets, roundabouts and motorways only in their direction. Lanes
    and speed limits are NaN where the map has none. Lengths are on the ellipsoid. The network's notes count what was
    read, kept and dropped.

    Parameters
    ----------
    source : path or networkx graph
        An OpenStreetMap file: .osm (XML, also .gz and .bz2) or .osm.pbf (needs osmium); or ways.jsonl(.gz) together
        with `nodes`; or a folder with one such map; or a graph made by OSMnx.
    nodes : path, optional
        CSV file with id, lat and lon, if `source` is a file of OSM ways.
    service : bool
        Keep service roads (to yards, car parks and houses).
    public : bool
        Drop roads that access tags close to the public. Kept by default: many such tags are newer than the trips, and
        taxis have permits.
    u_turns : bool or "dead_ends"
        Allow U-turns everywhere, nowhere, or only at dead ends. Without U-turns a segment into a dead end is terminal.
    restrictions : bool
        Apply the map's turn restrictions.
    component : "street_nodes", "turns" or None
        Part of a disconnected map to keep: the segments between mutually reachable nodes, the segments that are
        mutually reachable by legal turns, or everything.
    centre : (lat, lon), optional
        Centre of the flat map and the regions; by default the mean of the nodes.

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
    """Build a network from an OpenStreetMap file, .osm or .osm.pbf; options as in `build`."""
    return assemble(read_osm(path), BuildOptions(**options))


def from_ways(
    osm_ways: Source | Iterable[Mapping[str, Any]], nodes: Source | Mapping[int, tuple[float, float]], **options: Any
) -> RoadNetwork:
    """Build a network from OSM ways and nodes, in files or in memory; options as in `build`.

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
    """Build a network from a networkx graph made by OSMnx; options as in `build`.

    Edges with a geometry are cut at its points, so that segments are straight.

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

    Of two equally large components, the one with the smallest node. Turns are ignored: a dead end belongs to the
    component, since its street leads back, though no turn does.
    """
    label = _labels(tail, head, n_nodes)
    used = np.zeros(n_nodes, dtype=np.bool_)
    used[tail] = used[head] = True
    best = _largest(label[used])
    return LargestComponent((label[tail] == best) & (label[head] == best), int(np.unique(label[used]).size))


def in_node_component(tail: NDArray[Any], head: NDArray[Any], n_nodes: int) -> NDArray[np.bool_]:
    """Return which segments (S,) lie within a strongly connected component of the nodes."""
    label = _labels(tail, head, n_nodes)
    return np.asarray(label[tail] == label[head])


def largest_turn_component(turn_from: NDArray[Any], turn_to: NDArray[Any], n_segments: int) -> LargestComponent:
    """Return the largest set of segments that can all be reached from each other by legal turns."""
    label = _labels(turn_from, turn_to, n_segments)
    return LargestComponent(label == _largest(label), int(np.unique(label).size))


def merge_nodes(tail: NDArray[Any], head: NDArray[Any], n_nodes: int) -> NDArray[np.int64]:
    """Return for each node (V,) the lowest of the nodes that the given pairs merge with it."""
    graph = sparse.csr_array((np.ones(tail.size, dtype=np.int8), (tail, head)), shape=(n_nodes, n_nodes))
    _, label = connected_components(graph, directed=False)
    _, first, inverse = np.unique(label, return_index=True, return_inverse=True)
    return np.asarray(first[inverse], dtype=np.int64)


def _labels(source: NDArray[Any], target: NDArray[Any], n: int) -> NDArray[np.int64]:
    graph = sparse.csr_array((np.ones(source.size, dtype=np.int8), (source, target)), shape=(n, n))
    _, label = connected_components(graph, directed=True, connection="strong")
    return np.asarray(label, dtype=np.int64)


def _largest(label: NDArray[np.int64]) -> int:
    """Return the most frequent label; of two, the one that occurs first."""
    names, first, counts = np.unique(label, return_index=True, return_counts=True)
    return int(names[np.lexsort((first, -counts))[0]])


_LARGE_LOSS = 0.2  # fraction of the length


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
        """Check the values; convert truthy values to bool, since notes are saved as JSON."""
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
    """Directed straight pieces between nodes, unique per node pair; nodes are indices into the table."""

    tail: IntArray
    head: IntArray
    way: IntArray  # index into the ways that are kept
    speed_kmh: FloatArray
    length_m: FloatArray

    def take(self, which: Any) -> DirectedPieces:
        """Return a selection."""
        return DirectedPieces(*(column[which] for column in self))


def assemble(table: WayTable, options: BuildOptions) -> RoadNetwork:
    """Build the network of a map."""
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
    return _make_network(table, roads, pieces, turns, options, notes)


def _select_roads(table: WayTable, options: BuildOptions, notes: dict[str, Any]) -> list[MapWay]:
    """Return the ways for cars with at least two nodes."""
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
        counts = ", ".join(f"{count} {reason}" for reason, count in dropped.items()) or "it is empty"
        message = f"The map has no road for cars among its {len(table.osm_ways)} ways ({counts})."
        raise InvalidNetwork(message, parameter="source", value=dict(dropped))
    return kept


def _cut_pieces(table: WayTable, roads: list[MapWay], notes: dict[str, Any]) -> tuple[DirectedPieces, IntArray]:
    """Cut ways at every node, in each allowed direction; also return the node that each node was merged into."""
    sizes = np.fromiter((len(way.nodes) for way in roads), dtype=np.int64, count=len(roads))
    flat = np.fromiter(chain.from_iterable(way.nodes for way in roads), dtype=np.int64, count=int(sizes.sum()))
    at = table.places(flat)
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
    # Merge nodes at the same position: dropping the piece between them would cut the street.
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
        message = f"None of the {len(roads)} roads has a piece for cars ({counts}). Check the nodes."
        raise InvalidNetwork(message, parameter="source", value=dropped)
    return pieces.take(np.sort(place)), node_of


def _add_directions(pieces: DirectedPieces, roads: list[MapWay]) -> DirectedPieces:
    """Return the pieces in each allowed direction, ordered by way, first along it, then against it."""
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
    """Return the kept pieces, their turns with counts, and the component."""
    n, part = pieces.tail.size, None
    ends = pieces.tail, pieces.head, table.node_id.size
    if options.component == "street_nodes":
        part = largest_node_component(*ends)
        pieces = pieces.take(part.kept)
    elif options.component == "turns":
        # A street whose only continuation never leads back is a dead end, with a U-turn if asked for.
        inner = in_node_component(*ends)
        pieces = pieces.take(inner)
    turns, counts = _turns(table, roads, pieces, options)
    if options.component == "turns" and pieces.tail.size:
        largest = largest_turn_component(turns[:, 0], turns[:, 1], pieces.tail.size)
        pieces, place = pieces.take(largest.kept), np.cumsum(largest.kept) - 1
        turns = place[turns[np.all(largest.kept[turns], axis=1)]]
        n_parts = largest.n_parts + int(np.count_nonzero(~inner))
        inner[inner] = largest.kept
        part = LargestComponent(inner, n_parts)
    if not pieces.tail.size or (options.component == "turns" and not turns.size):
        message = (
            f"The map's {n} segments have no cycle of legal turns. Check whether the extract is too small, or pass "
            "component=None to keep everything, or u_turns='dead_ends'."
        )
        raise InvalidNetwork(message, parameter="component", value=options.component)
    return pieces, turns, counts, part


def _turns(
    table: WayTable, roads: list[MapWay], pieces: DirectedPieces, options: BuildOptions
) -> tuple[IntArray, dict[str, Any]]:
    """Return the legal turns (E, 2), sorted, and counts of them."""
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
    """Return the size of what lies outside the component, and warn if it is large."""
    km, kept = (float(these.length_m.sum()) / 1000.0 for these in (whole, pieces))
    lost = int(np.count_nonzero(~part.kept))
    if kept < (1.0 - _LARGE_LOSS) * km:
        warnings.warn(
            f"The map has {part.n_parts} disconnected parts: {lost} of {part.kept.size} segments, {km - kept:.1f} of "
            f"{km:.1f} km, lie outside the largest and are dropped. Check whether the extract is cut off or lacks "
            "service roads.",
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


def _make_network(
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
    extra |= {"length_m": pieces.length_m, "speed_kmh": pieces.speed_kmh, "node_id": table.node_id[used]}
    by_way = {"road_class": classes, "lanes": lanes, "way_id": numbers, "street_of": street_of}
    extra |= {name: values[pieces.way] for name, values in by_way.items()}
    return RoadNetwork.from_segments(table.lat[used], table.lon[used], tail, head, turns=turns, **extra)


def check_centre(centre: tuple[float, float], table: WayTable, used: IntArray) -> tuple[float, float]:
    """Return the centre; raise `InvalidNetwork` if it is far from the map."""
    lat, lon = centre
    here = float(np.median(table.lat[used])), float(np.median(table.lon[used]))
    if max(abs(lat - here[0]), abs(lon - here[1])) > 2.0:
        swapped = max(abs(lon - here[0]), abs(lat - here[1])) <= 2.0
        hint = "Latitude and longitude are swapped in one of them." if swapped else "Check whether it is another city."
        message = f"centre ({lat:g}, {lon:g}) is far from the map, which lies around ({here[0]:g}, {here[1]:g}). {hint}"
        raise InvalidNetwork(message, parameter="centre", value=centre)
    return lat, lon
