"""From a table of ways to a road network: pieces, turns, the connected component, and counts of what was dropped."""

from __future__ import annotations

import warnings
from collections import Counter
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.csgraph import connected_components

from limiirl._typing import FloatArray, IntArray
from limiirl.errors import DisconnectedWarning, InvalidNetwork, InvalidParameter
from limiirl.roads.geometry import distance_m
from limiirl.roads.lookup import index_names, name_street
from limiirl.roads.maps import osm
from limiirl.roads.maps.osm import SegmentTurns, find_forbidden_turns
from limiirl.roads.maps.tables import MapWay, Restriction, WayTable
from limiirl.roads.network import RoadNetwork, as_centre, join_segments


class LargestComponent(NamedTuple):
    """The largest strongly connected part: which segments (S,) lie in it, and how many parts there are."""

    kept: NDArray[np.bool_]
    n_parts: int


def largest_node_component(tail: NDArray[Any], head: NDArray[Any], n_nodes: int) -> LargestComponent:
    """Return the segments between nodes of the part in which every node can be reached from every other.

    The part of most nodes; of two as large, the one with the smallest node. Turns play no role: a dead end belongs to
    it, since its street leads back, though no turn does.

    Examples
    --------
    >>> largest_node_component(np.array([0, 1, 1]), np.array([1, 0, 2]), 3)  # nothing leads back from node 2
    LargestComponent(kept=array([ True,  True, False]), n_parts=2)
    """
    label = _labels(tail, head, n_nodes)
    used = np.zeros(n_nodes, dtype=np.bool_)
    used[tail] = used[head] = True
    best = _largest(label[used])
    return LargestComponent((label[tail] == best) & (label[head] == best), int(np.unique(label[used]).size))


def in_node_component(tail: NDArray[Any], head: NDArray[Any], n_nodes: int) -> NDArray[np.bool_]:
    """Return which segments (S,) lie within some strongly connected part of the nodes; the others never come back.

    Examples
    --------
    >>> in_node_component(np.array([0, 1, 1, 2, 3]), np.array([1, 0, 2, 3, 2]), 4)
    array([ True,  True, False,  True,  True])
    """
    label = _labels(tail, head, n_nodes)
    return np.asarray(label[tail] == label[head])


def largest_turn_component(turn_from: NDArray[Any], turn_to: NDArray[Any], n_segments: int) -> LargestComponent:
    """Return the segments of the part in which every segment can be reached from every other by legal turns.

    Examples
    --------
    >>> largest_turn_component(np.array([0, 1, 1]), np.array([1, 0, 2]), 3)
    LargestComponent(kept=array([ True,  True, False]), n_parts=2)
    """
    label = _labels(turn_from, turn_to, n_segments)
    return LargestComponent(label == _largest(label), int(np.unique(label).size))


def merge_nodes(tail: NDArray[Any], head: NDArray[Any], n_nodes: int) -> NDArray[np.int64]:
    """Return for each node (V,) the first of all those that the given pairs make one.

    Examples
    --------
    >>> merge_nodes(np.array([1]), np.array([2]), 4)
    array([0, 1, 1, 3])
    """
    graph = sparse.csr_array((np.ones(tail.size, dtype=np.int8), (tail, head)), shape=(n_nodes, n_nodes))
    _, label = connected_components(graph, directed=False)
    _, first, inverse = np.unique(label, return_index=True, return_inverse=True)
    return np.asarray(first[inverse], dtype=np.int64)


def _labels(source: NDArray[Any], target: NDArray[Any], n: int) -> NDArray[np.int64]:
    graph = sparse.csr_array((np.ones(source.size, dtype=np.int8), (source, target)), shape=(n, n))
    _, label = connected_components(graph, directed=True, connection="strong")
    return np.asarray(label, dtype=np.int64)


def _largest(label: NDArray[np.int64]) -> int:
    """Return the label that occurs most often, and of two the one that occurs first."""
    names, first, counts = np.unique(label, return_index=True, return_counts=True)
    return int(names[np.lexsort((first, -counts))[0]])


_MUCH_LOST = 0.2  # of the length


@dataclass(frozen=True)
class BuildOptions:
    """How to build; see `limiirl.roads.build`."""

    service: bool = False
    public: bool = False
    u_turns: bool | str = False
    restrictions: bool = True
    component: str | None = "street_nodes"
    centre: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        """Check the words; what is as good as a bool becomes one, since notes are saved and `1 is True` is not."""
        if self.u_turns not in (False, True, "dead_ends"):
            raise InvalidParameter(
                f"u_turns must be True, False or 'dead_ends'; got {self.u_turns!r}.",
                parameter="u_turns",
                value=self.u_turns,
            )
        for name in ("service", "public", "u_turns", "restrictions"):
            if getattr(self, name) != "dead_ends":
                object.__setattr__(self, name, bool(getattr(self, name)))
        if self.centre is not None:
            object.__setattr__(self, "centre", as_centre(self.centre))
        if self.component not in ("street_nodes", "turns", None):
            raise InvalidParameter(
                f"component must be 'street_nodes', 'turns' or None; got {self.component!r}.",
                parameter="component",
                value=self.component,
            )


class DirectedPieces(NamedTuple):
    """Directed straight pieces between nodes, each pair of nodes once; nodes are indices into the table's."""

    tail: IntArray
    head: IntArray
    way: IntArray  # index into the ways that were kept
    speed_kmh: FloatArray
    length_m: FloatArray

    def take(self, which: Any) -> DirectedPieces:
        """Return some of them."""
        return DirectedPieces(*(column[which] for column in self))


def assemble(table: WayTable, options: BuildOptions) -> RoadNetwork:
    """Return the network of a map.

    Examples
    --------
    >>> from limiirl.roads.maps.tables import read_ways
    >>> street = {"id": 1, "nodes": [5, 6, 7], "tags": {"highway": "residential"}}
    >>> network = assemble(read_ways([street], {5: (41.0, -8.0), 6: (41.001, -8.0), 7: (41.002, -8.0)}), BuildOptions())
    >>> network.n_segments, network.n_turns  # both ways, and no way to turn round
    (4, 2)
    """
    notes: dict[str, Any] = {"source": dict(table.source), "options": _plain(options)}
    notes["read"] = {"ways": len(table.ways), "nodes": table.node_id.size, "restrictions": len(table.restrictions)}
    ways = _roads(table, options, notes)
    whole, node_of = _pieces(table, ways, notes)
    joined_away = node_of != np.arange(node_of.size)
    notes |= {"segments": whole.tail.size, "nodes_joined": int(np.count_nonzero(joined_away))}
    if joined_away.any():
        table = replace(table, restrictions=[_moved(rule, table, node_of) for rule in table.restrictions])
    pieces, turns, notes["turns"], part = _connected(table, ways, whole, options)
    notes["turns"]["dead_ends"] = pieces.tail.size - np.unique(turns[:, 0]).size
    if part is not None:
        notes["component"] = _loss(part, whole, pieces, str(options.component))
    return _network(table, ways, pieces, turns, options, notes)


def _roads(table: WayTable, options: BuildOptions, notes: dict[str, Any]) -> list[MapWay]:
    """Return the ways on which cars drive, those with fewer than two nodes left out."""
    kept: list[MapWay] = []
    dropped: Counter[str] = Counter()
    for way in table.ways:
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
        words = ", ".join(f"{count} {reason}" for reason, count in dropped.items()) or "it is empty"
        raise InvalidNetwork(
            f"The map has no road to drive on among its {len(table.ways)} ways ({words}).",
            parameter="source",
            value=dict(dropped),
        )
    return kept


def _pieces(table: WayTable, ways: list[MapWay], notes: dict[str, Any]) -> tuple[DirectedPieces, IntArray]:
    """Cut ways between consecutive nodes, both ways where allowed; and return which node each node was joined to."""
    sizes = np.fromiter((len(way.nodes) for way in ways), dtype=np.int64, count=len(ways))
    flat = np.fromiter(chain.from_iterable(way.nodes for way in ways), dtype=np.int64, count=int(sizes.sum()))
    at = table.places(flat)
    # A piece begins at every node of a way but its last.
    first = np.ones(flat.size, dtype=np.bool_)
    first[np.cumsum(sizes) - 1] = False
    begin = np.flatnonzero(first)
    way = np.repeat(np.arange(len(ways)), sizes - 1)
    tail, head = at[begin], at[begin + 1]
    known = (tail >= 0) & (head >= 0)
    dropped = {"node missing": int(np.count_nonzero(~known))}
    notes["nodes_missing"] = int(np.unique(flat[at < 0]).size)
    tail, head, way = tail[known], head[known], way[known]
    length = distance_m(table.lat[tail], table.lon[tail], table.lat[head], table.lon[head])
    # Two nodes in one place are one: to drop the piece between them would cut the street.
    short = (length <= 0.0) & (tail != head)
    node_of = merge_nodes(tail[short], head[short], table.node_id.size)
    tail, head = node_of[tail], node_of[head]
    dropped["no length"] = int(np.count_nonzero(tail == head))
    unknown = np.full(tail.size, np.nan)
    pieces = _directed(DirectedPieces(tail, head, way, unknown, length).take(tail != head), ways)
    _, place = np.unique(pieces.tail * table.node_id.size + pieces.head, return_index=True)
    dropped["drawn twice"] = pieces.tail.size - place.size
    notes["pieces_dropped"] = dropped
    if not place.size:
        words = ", ".join(f"{count}: {reason}" for reason, count in dropped.items() if count)
        raise InvalidNetwork(
            f"None of the {len(ways)} roads has a piece that can be driven ({words}). Check the nodes.",
            parameter="source",
            value=dropped,
        )
    return pieces.take(np.sort(place)), node_of


def _directed(pieces: DirectedPieces, ways: list[MapWay]) -> DirectedPieces:
    """Return the pieces along and against their ways where one may drive so: way by way, first along it, then back."""
    allowed = np.array([osm.directions(way.tags)[:2] for way in ways], dtype=np.bool_)
    limit = np.array([osm.speed_limits(way.tags) for way in ways], dtype=np.float64)
    way, n = pieces.way, pieces.tail.size
    along, against = (np.flatnonzero(allowed[way, side]) for side in (0, 1))
    ahead = pieces.take(along)._replace(speed_kmh=limit[way[along], 0])
    back = pieces.take(against)._replace(
        tail=pieces.head[against], head=pieces.tail[against], speed_kmh=limit[way[against], 1]
    )
    both = DirectedPieces(*(np.concatenate(columns) for columns in zip(ahead, back, strict=True)))
    place = np.concatenate([along, n - 1 - against])
    side = np.repeat([0, 1], [along.size, against.size])
    return both.take(np.lexsort((place, side, both.way)))


def _moved(rule: Restriction, table: WayTable, node_of: IntArray) -> Restriction:
    """Return a restriction at the node to which its node was joined."""
    at = int(table.places(np.array(-1 if rule.via is None else rule.via)))
    return rule if rule.via is None or at < 0 else rule._replace(via=int(table.node_id[node_of[at]]))


def _connected(
    table: WayTable, ways: list[MapWay], pieces: DirectedPieces, options: BuildOptions
) -> tuple[DirectedPieces, IntArray, dict[str, Any], LargestComponent | None]:
    """Return the pieces that are kept, the turns between them with counts, and the part of all that they are."""
    n, part = pieces.tail.size, None
    ends = pieces.tail, pieces.head, table.node_id.size
    if options.component == "street_nodes":
        part = largest_node_component(*ends)
        pieces = pieces.take(part.kept)
    elif options.component == "turns":
        # Where the only way on never comes back, a street ends as dead as any, and one may turn round if asked.
        inner = in_node_component(*ends)
        pieces = pieces.take(inner)
    turns, counts = _turns(table, ways, pieces, options)
    if options.component == "turns" and pieces.tail.size:
        found = largest_turn_component(turns[:, 0], turns[:, 1], pieces.tail.size)
        pieces, place = pieces.take(found.kept), np.cumsum(found.kept) - 1
        turns = place[turns[np.all(found.kept[turns], axis=1)]]
        n_parts = found.n_parts + int(np.count_nonzero(~inner))
        inner[inner] = found.kept
        part = LargestComponent(inner, n_parts)
    if not pieces.tail.size or (options.component == "turns" and not turns.size):
        raise InvalidNetwork(
            f"No cycle of legal turns exists on the map's {n} segments. Is the extract too small? Pass "
            "component=None to keep everything, or u_turns='dead_ends'.",
            parameter="component",
            value=options.component,
        )
    return pieces, turns, counts, part


def _turns(
    table: WayTable, ways: list[MapWay], pieces: DirectedPieces, options: BuildOptions
) -> tuple[IntArray, dict[str, Any]]:
    """Return the legal turns (E, 2), sorted, and counts of them."""
    turns = join_segments(pieces.tail, pieces.head, u_turns=options.u_turns is True)
    counts: dict[str, Any] = {"joined": len(turns)}
    if options.restrictions and table.restrictions:
        numbers = np.array([way.id for way in ways], dtype=np.int64)[pieces.way]
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


def _loss(part: LargestComponent, whole: DirectedPieces, pieces: DirectedPieces, rule: str) -> dict[str, Any]:
    """Return what lies outside of the connected part, and warn where it is much."""
    km, kept = (float(these.length_m.sum()) / 1000.0 for these in (whole, pieces))
    lost = int(np.count_nonzero(~part.kept))
    if kept < (1.0 - _MUCH_LOST) * km:
        warnings.warn(
            f"The map falls apart into {part.n_parts} parts: {lost} of {part.kept.size} segments, {km - kept:.1f} of "
            f"{km:.1f} km, lie outside of the largest and are left out. Is the extract cut off, or does it lack "
            "service roads?",
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


def _network(
    table: WayTable,
    ways: list[MapWay],
    pieces: DirectedPieces,
    turns: IntArray,
    options: BuildOptions,
    notes: dict[str, Any],
) -> RoadNetwork:
    used, ends = np.unique(np.stack([pieces.tail, pieces.head]), return_inverse=True)
    tail, head = ends.reshape(2, -1)
    present = {way.tags["highway"] for way in ways}
    names = tuple(name for name in (*osm.DRIVABLE, osm.SERVICE) if name in present)
    classes = np.array([names.index(way.tags["highway"]) for way in ways])
    lanes = np.array([osm.lane_count(way.tags.get("lanes")) for way in ways])
    numbers = np.array([way.id for way in ways], dtype=np.int64)
    streets, street_of = index_names([name_street(way.tags) for way in ways])
    known: dict[str, Any] = {} if options.centre is None else {"centre": check_centre(options.centre, table, used)}
    return RoadNetwork.from_segments(
        table.lat[used],
        table.lon[used],
        tail,
        head,
        turns=turns,
        length_m=pieces.length_m,
        road_class=classes[pieces.way],
        class_names=names,
        lanes=lanes[pieces.way],
        speed_kmh=pieces.speed_kmh,
        node_id=table.node_id[used],
        way_id=numbers[pieces.way],
        attribution=table.attribution,
        notes=notes,
        street_names=streets,
        street_of=street_of[pieces.way],
        **known,
    )


def check_centre(centre: tuple[float, float], table: WayTable, used: IntArray) -> tuple[float, float]:
    """Return a centre that lies near the map, or say that it does not: it may be swapped, or the map may be."""
    lat, lon = centre
    here = float(np.median(table.lat[used])), float(np.median(table.lon[used]))
    if max(abs(lat - here[0]), abs(lon - here[1])) > 2.0:
        swapped = max(abs(lon - here[0]), abs(lat - here[1])) <= 2.0
        hint = "Latitude and longitude are swapped in one of the two." if swapped else "Is it another city?"
        raise InvalidNetwork(
            f"centre ({lat:g}, {lon:g}) is far from the map, about ({here[0]:g}, {here[1]:g}). {hint}",
            parameter="centre",
            value=centre,
        )
    return lat, lon


def _plain(options: BuildOptions) -> dict[str, Any]:
    words = dict(vars(options))
    return words | {"centre": None if options.centre is None else list(options.centre)}
