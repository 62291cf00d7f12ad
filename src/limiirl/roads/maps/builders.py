"""`build`: a road network from a map in any supported format."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from limiirl.errors import InvalidParameter
from limiirl.roads.maps.assembly import BuildOptions, assemble
from limiirl.roads.maps.networkx import read_networkx
from limiirl.roads.maps.osm import read_osm
from limiirl.roads.maps.tables import Source, find_files, read_ways
from limiirl.roads.network import RoadNetwork

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

    Warns
    -----
    DisconnectedWarning
        If more than 20 % of the length lies outside the largest component.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "street.osm"
    >>> _ = path.write_text('''<osm><node id="5" lat="41.0" lon="-8.0"/><node id="6" lat="41.01" lon="-8.0"/>
    ... <way id="1"><nd ref="5"/><nd ref="6"/><tag k="highway" v="tertiary"/></way></osm>''')
    >>> build(path)
    RoadNetwork: 2 directed segments of 2.2 km in all, 0 turns, 2 nodes
    >>> build(path, u_turns="dead_ends").n_turns
    2
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
