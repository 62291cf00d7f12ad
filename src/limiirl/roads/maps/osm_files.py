"""Readers of OpenStreetMap files: XML with nothing but the standard library, and PBF with osmium."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

import numpy as np

from limiirl.errors import BackendUnavailable, InvalidFile, MissingFile
from limiirl.roads.maps.way_files import BROKEN, Source, unpacked
from limiirl.roads.maps.way_table import Restriction, Way, WayTable, way_table, whole_number

if TYPE_CHECKING:
    from types import ModuleType

_Member = tuple[str, str, int]  # kind ("node", "way", "relation"), role, number


def read_osm(path: Source) -> WayTable:
    """Read the ways that are roads, their nodes, and the turn restrictions of an OpenStreetMap file.

    Parameters
    ----------
    path : path
        XML (.osm, .xml, .osm.gz, .osm.bz2), or PBF (.pbf), which needs osmium.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "street.osm"
    >>> _ = path.write_text('''<osm><node id="5" lat="41.0" lon="-8.0"/><node id="6" lat="41.1" lon="-8.0"/>
    ... <way id="1"><nd ref="5"/><nd ref="6"/><tag k="highway" v="road"/></way></osm>''')
    >>> read_osm(path).ways
    [Way(id=1, nodes=(5, 6), tags={'highway': 'road'})]
    """
    found = _Collected()
    name = Path(path).name
    if name.endswith(".pbf"):
        _read_pbf(path, found)
    else:
        _read_xml(path, found)
    return found.table(name)


@dataclass
class _Collected:
    """What was met so far in a file."""

    ways: list[Way] = field(default_factory=list)
    restrictions: list[Restriction] = field(default_factory=list)
    numbers: array[int] = field(default_factory=lambda: array("q"))
    lat: array[float] = field(default_factory=lambda: array("d"))
    lon: array[float] = field(default_factory=lambda: array("d"))
    n_ways: int = 0

    def way(self, number: int, nodes: tuple[int, ...], tags: Mapping[str, str]) -> None:
        self.n_ways += 1
        if "highway" in tags:
            self.ways.append(Way(number, nodes, tags))

    def relation(self, number: int, members: Sequence[_Member], tags: Mapping[str, str]) -> None:
        if tags.get("type") != "restriction":
            return
        ways = {role: tuple(ref for kind, at, ref in members if (kind, at) == ("way", role)) for role in ("from", "to")}
        via = [(kind, ref) for kind, role, ref in members if role == "via"]
        node = via[0][1] if len(via) == 1 and via[0][0] == "node" else None
        self.restrictions.append(Restriction(number, ways["from"], node, ways["to"], tags))

    def table(self, name: str) -> WayTable:
        """Return what was met, nodes of other things than roads left out."""
        numbers = np.frombuffer(self.numbers, dtype=np.int64) if self.numbers else np.empty(0, dtype=np.int64)
        lat, lon = (np.frombuffer(x) if x else np.empty(0) for x in (self.lat, self.lon))
        wanted = np.unique(np.array([node for way in self.ways for node in way.nodes], dtype=np.int64))
        used = np.isin(numbers, wanted)
        source: dict[str, object] = {"kind": "OpenStreetMap", "name": name}
        nodes = numbers[used], lat[used], lon[used]
        return way_table(self.ways, *nodes, source, restrictions=self.restrictions)


def _read_xml(path: Source, found: _Collected) -> None:
    try:
        with unpacked(path) as stream:
            events = ET.iterparse(stream, events=("start", "end"))
            _, root = next(events)
            if root.tag != "osm":
                raise InvalidFile(f"{path} is XML of another kind: it begins with <{root.tag}>, not with <osm>.")
            for event, item in events:
                if event == "end" and item.tag in ("node", "way", "relation"):
                    if item.get("visible") != "false":
                        _element(item, found)
                    root.clear()  # or the whole file would stay in memory
    except ET.ParseError as error:
        raise InvalidFile(f"{path} is truncated or not XML ({error}). Copy or download it again.") from error
    except (KeyError, TypeError) as error:
        raise InvalidFile(f"{path}: after {found.n_ways} ways, an element lacks {error}. Download it again.") from error
    except InvalidFile:
        raise
    except (*BROKEN, StopIteration) as error:
        raise InvalidFile(f"{path} is truncated ({error!s:.200}). Copy or download it again.") from error
    except ValueError as error:
        raise InvalidFile(f"{path}: after {found.n_ways} ways, {error!s:.200}. Download it again.") from error


def _element(item: ET.Element, found: _Collected) -> None:
    number = whole_number(item.attrib["id"])
    if item.tag == "node":
        found.numbers.append(number)
        found.lat.append(float(item.get("lat", "nan")))
        found.lon.append(float(item.get("lon", "nan")))
        return
    tags = {tag.attrib["k"]: tag.attrib["v"] for tag in item.iterfind("tag")}
    if item.tag == "way":
        found.way(number, tuple(whole_number(node.attrib["ref"]) for node in item.iterfind("nd")), tags)
    else:
        members = [
            (part.attrib["type"], part.get("role", ""), whole_number(part.attrib["ref"]))
            for part in item.iterfind("member")
        ]
        found.relation(number, members, tags)


def _read_pbf(path: Source, found: _Collected) -> None:
    """Read in two passes, so that of a whole country only the nodes of roads are kept."""
    osmium = _osmium()
    if not Path(path).is_file():
        raise MissingFile(f"There is no file {path}. Give the path of a map.")
    kinds = {"n": "node", "w": "way", "r": "relation"}
    try:
        marked = osmium.filter.KeyFilter("highway", "type")
        for item in osmium.FileProcessor(str(path), osmium.osm.WAY | osmium.osm.RELATION).with_filter(marked):
            tags = {tag.k: tag.v for tag in item.tags}
            if item.is_way():
                found.way(item.id, tuple(node.ref for node in item.nodes), tags)
            else:
                found.relation(item.id, [(kinds[part.type], part.role, part.ref) for part in item.members], tags)
        # osmium's own filter of numbers would take a bit for every node of the planet, over a gigabyte.
        wanted = {node for way in found.ways for node in way.nodes}
        for item in osmium.FileProcessor(str(path), osmium.osm.NODE):
            if item.id not in wanted:
                continue
            known = item.location.valid()
            found.numbers.append(item.id)
            found.lat.append(item.location.lat if known else np.nan)
            found.lon.append(item.location.lon if known else np.nan)
    except RuntimeError as error:
        raise InvalidFile(f"{path} is truncated or no PBF file ({error!s:.200}). Copy or download it again.") from error


def _osmium() -> Any:
    try:
        import osmium
    except ImportError as error:
        raise BackendUnavailable(
            "Reading .osm.pbf needs osmium: pip install osmium. Or convert the map to .osm (XML)."
        ) from error
    module: ModuleType = osmium
    return module
