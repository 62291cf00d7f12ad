"""Reader of networkx graphs created by OSMnx; every edge becomes a way."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from limiirl.errors import InvalidNetwork
from limiirl.roads.geometry import distance_m
from limiirl.roads.maps.osm import DRIVABLE, SERVICE
from limiirl.roads.maps.tables import OSM_ATTRIBUTION, MapWay, WayTable, make_way_table

if TYPE_CHECKING:
    import networkx as nx


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
    # The network has lengths on the ellipsoid; the ratio shows whether the lengths of the graph are in metres.
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
    """Return a value or a list of values as distinct strings, without missing values."""
    values: Iterable[Any] = value if isinstance(value, list | tuple | set | np.ndarray) else (value,)
    known = (x for x in values if x is not None and not (isinstance(x, float | np.floating) and np.isnan(x)))
    return sorted({f"{item:g}" if isinstance(item, float | np.floating) else str(item) for item in known})


def _parse_osmid(osmid: Any) -> int:
    """Return the id of the OSM way; -1 if there is none, or if the edge consists of several ways."""
    if isinstance(osmid, str) and osmid.isdecimal():
        osmid = int(osmid)
    return int(osmid) if isinstance(osmid, int | np.integer) and abs(int(osmid)) < _MAX_ID else -1


def _parse_length(length: Any) -> float | None:
    """Return the length of an edge if it is a finite number, else None."""
    try:
        number = float(length)
    except (TypeError, ValueError):
        return None
    return number if np.isfinite(number) else None
