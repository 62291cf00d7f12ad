"""OpenStreetMap: readers of XML and PBF files, rules for tags, and turn restrictions."""

from __future__ import annotations

import math
import re
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree as ET

import numpy as np
from numpy.typing import NDArray

from limiirl._typing import FloatArray, IntArray
from limiirl.errors import BackendUnavailable, InvalidFile, MissingFile
from limiirl.roads.maps.tables import (
    READ_ERRORS,
    MapWay,
    Restriction,
    Source,
    WayTable,
    make_way_table,
    open_map,
    parse_id,
)

_Member = tuple[str, str, int]  # kind ("node", "way", "relation"), role, id


def read_osm(path: Source) -> WayTable:
    """Read the roads, their nodes and the turn restrictions of an OpenStreetMap file (XML, or PBF with osmium)."""
    contents = _OsmContents()
    name = Path(path).name
    if name.endswith(".pbf"):
        _read_pbf(path, contents)
    else:
        _read_xml(path, contents)
    return contents.to_table(name)


@dataclass
class _OsmContents:
    """Roads, nodes and restrictions that have been read."""

    osm_ways: list[MapWay] = field(default_factory=list)
    restrictions: list[Restriction] = field(default_factory=list)
    node_ids: array[int] = field(default_factory=lambda: array("q"))
    lat: array[float] = field(default_factory=lambda: array("d"))
    lon: array[float] = field(default_factory=lambda: array("d"))
    places: list[tuple[str, str, float, float]] = field(default_factory=list)
    water: list[tuple[int, ...]] = field(default_factory=list)  # nodes of each line
    n_ways: int = 0

    def add_place(self, lat: float, lon: float, tags: Mapping[str, str]) -> None:
        name = tags.get("name", "").strip()
        if name and tags.get("place") in PLACES and math.isfinite(lat + lon):
            self.places.append((name, tags["place"], lat, lon))

    def add_way(self, number: int, nodes: tuple[int, ...], tags: Mapping[str, str]) -> None:
        self.n_ways += 1
        if "highway" in tags:
            self.osm_ways.append(MapWay(number, nodes, tags))
        elif tags.get("natural") == "water" or tags.get("waterway") in _WATERWAYS:
            self.water.append(nodes)

    def add_relation(self, number: int, members: Sequence[_Member], tags: Mapping[str, str]) -> None:
        if tags.get("type") != "restriction":
            return
        role_ids = {
            role: tuple(ref for kind, at, ref in members if (kind, at) == ("way", role)) for role in ("from", "to")
        }
        via = [(kind, ref) for kind, role, ref in members if role == "via"]
        node = via[0][1] if len(via) == 1 and via[0][0] == "node" else None
        self.restrictions.append(Restriction(number, role_ids["from"], node, role_ids["to"], tags))

    def to_table(self, name: str) -> WayTable:
        """Return the roads with their nodes."""
        numbers = np.frombuffer(self.node_ids, dtype=np.int64) if self.node_ids else np.empty(0, dtype=np.int64)
        lat, lon = (np.frombuffer(x) if x else np.empty(0) for x in (self.lat, self.lon))
        wanted = np.unique(np.array([node for way in self.osm_ways for node in way.nodes], dtype=np.int64))
        used = np.isin(numbers, wanted)
        source: dict[str, object] = {"kind": "OpenStreetMap", "name": name}
        nodes = numbers[used], lat[used], lon[used]
        more: dict[str, Any] = {"places": self.places, "water": self._locate_water(numbers, lat, lon)}
        return make_way_table(self.osm_ways, *nodes, source, restrictions=self.restrictions, **more)

    def _locate_water(self, numbers: IntArray, lat: FloatArray, lon: FloatArray) -> list[FloatArray]:
        """Return the lines (n, 2) of water; nodes without coordinates are skipped."""
        wanted = np.isin(numbers, np.array([node for line in self.water for node in line], dtype=np.int64))
        wanted &= np.isfinite(lat) & np.isfinite(lon)
        at = dict(
            zip(numbers[wanted].tolist(), zip(lat[wanted].tolist(), lon[wanted].tolist(), strict=True), strict=True)
        )
        lines = [np.array([at[node] for node in line if node in at]) for line in self.water]
        return [line for line in lines if len(line) > 1]


def _read_xml(path: Source, contents: _OsmContents) -> None:
    def invalid(problem: str) -> InvalidFile:
        return InvalidFile.at(path, f"{problem} Download it again.")

    try:
        with open_map(path) as stream:
            events = ET.iterparse(stream, events=("start", "end"))
            _, root = next(events)
            if root.tag != "osm":
                raise invalid(f"is not an OpenStreetMap file: its root element is <{root.tag}>, not <osm>.")
            for event, item in events:
                if event == "end" and item.tag in ("node", "way", "relation"):
                    if item.get("visible") != "false":
                        _read_element(item, contents)
                    root.clear()  # free the memory of the elements that were read
    except ET.ParseError as error:
        raise invalid(f"is truncated or not XML ({error}).") from error
    except (KeyError, TypeError) as error:
        raise invalid(f"has an element without {error} after {contents.n_ways} ways.") from error
    except InvalidFile:
        raise
    except (*READ_ERRORS, StopIteration) as error:
        raise invalid(f"is truncated ({error!s:.200}).") from error
    except ValueError as error:
        raise invalid(f"has an invalid value after {contents.n_ways} ways: {error!s:.200}.") from error


def _read_element(item: ET.Element, contents: _OsmContents) -> None:
    number = parse_id(item.attrib["id"])
    if item.tag == "node":
        contents.node_ids.append(number)
        contents.lat.append(float(item.get("lat", "nan")))
        contents.lon.append(float(item.get("lon", "nan")))
    tags = {tag.attrib["k"]: tag.attrib["v"] for tag in item.iterfind("tag")}
    if item.tag == "node":
        if tags:
            contents.add_place(contents.lat[-1], contents.lon[-1], tags)
    elif item.tag == "way":
        contents.add_way(number, tuple(parse_id(node.attrib["ref"]) for node in item.iterfind("nd")), tags)
    else:
        parts = item.iterfind("member")
        members = [(part.attrib["type"], part.get("role", ""), parse_id(part.attrib["ref"])) for part in parts]
        contents.add_relation(number, members, tags)


def _read_pbf(path: Source, contents: _OsmContents) -> None:
    """Read the file twice, in order to store only the nodes of roads."""
    try:
        osmium: Any = import_module("osmium")
    except ImportError as error:
        message = "Reading .osm.pbf requires osmium: pip install osmium. Or convert the map to .osm (XML)."
        raise BackendUnavailable(message) from error
    if not Path(path).is_file():
        raise MissingFile.at(path, "does not exist.")
    kinds = {"n": "node", "w": "way", "r": "relation"}
    try:
        marked = osmium.filter.KeyFilter("highway", "type", "natural", "waterway")
        for item in osmium.FileProcessor(str(path), osmium.osm.WAY | osmium.osm.RELATION).with_filter(marked):
            tags = {tag.k: tag.v for tag in item.tags}
            if item.is_way():
                contents.add_way(item.id, tuple(node.ref for node in item.nodes), tags)
            else:
                contents.add_relation(item.id, [(kinds[part.type], part.role, part.ref) for part in item.members], tags)
        # The id filter of osmium would allocate one bit per node of the planet, over 1 GB.
        wanted = {node for way in contents.osm_ways for node in way.nodes}
        wanted |= {node for line in contents.water for node in line}
        for item in osmium.FileProcessor(str(path), osmium.osm.NODE):
            known = item.location.valid()
            if known and "place" in item.tags:
                contents.add_place(item.location.lat, item.location.lon, {tag.k: tag.v for tag in item.tags})
            if item.id not in wanted:
                continue
            contents.node_ids.append(item.id)
            contents.lat.append(item.location.lat if known else np.nan)
            contents.lon.append(item.location.lon if known else np.nan)
    except RuntimeError as error:
        raise InvalidFile.at(path, f"is truncated or not a PBF file ({error!s:.200}). Download it again.") from error


Tags = Mapping[str, str]

PLACES = ("city", "town", "village", "suburb", "quarter", "neighbourhood", "hamlet")
"""Values of the tag "place" that are labelled on maps, in descending order of importance."""
_WATERWAYS = ("river", "canal", "riverbank", "dock")

DRIVABLE = (
    "motorway", "motorway_link", "trunk", "trunk_link", "primary", "primary_link", "secondary", "secondary_link",
    "tertiary", "tertiary_link", "unclassified", "residential", "living_street", "road",
)  # fmt: skip
"""Values of the tag "highway" that are open to cars, in descending order of importance."""
SERVICE = "service"
"""Value of the tag "highway" of roads to yards, car parks and houses; dropped by default."""

_ACCESS = ("motorcar", "motor_vehicle", "vehicle", "access")
_CLOSED = frozenset({"no", "private", "agricultural", "forestry", "emergency", "military", "permit", "residents"})
_ALONG, _AGAINST, _BOTH = ("yes", "true", "1"), ("-1", "reverse"), ("no", "false", "0")
_KMH = {"": 1.0, "km/h": 1.0, "kmh": 1.0, "kph": 1.0, "mph": 1.609344, "knots": 1.852}
_NUMBER = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z/]*)")


class Directions(NamedTuple):
    """Allowed directions of a way, along and against the order of its nodes, and the rule that determines them."""

    along: bool
    against: bool
    rule: str


def drop_reason(tags: Tags, *, service: bool = False, public: bool = False) -> str | None:
    """Return the reason why a way is dropped, or None if it is a road for cars.

    Service roads are dropped unless `service` is True. If `public` is True, roads are dropped that are closed to the
    public by the most specific of the tags motorcar, motor_vehicle, vehicle and access.
    """
    highway = tags.get("highway")
    if highway is None:
        return "not a road"
    if highway == SERVICE:
        if not service:
            return "service road"
    elif highway not in DRIVABLE:
        return "not for cars"
    if tags.get("area") == "yes":
        return "an area"
    return "closed to the public" if public and is_closed(tags) else None


def is_closed(tags: Tags) -> bool:
    """Return True if a way is closed to public car traffic."""
    value = next((tags[name] for name in _ACCESS if name in tags), "yes")
    return all(part.strip() in _CLOSED for part in value.split(";"))


def directions(tags: Tags) -> Directions:
    """Return the allowed directions of a way.

    The tag `oneway` has priority; its values "reversible" and "alternating" mean two-way, and unknown values are
    ignored. Without it, motorways, their links and roundabouts are one-way in the order of their nodes, and all other
    ways are two-way.
    """
    oneway = tags.get("oneway", "").strip().lower()
    if oneway in _ALONG:
        return Directions(True, False, "along")
    if oneway in _AGAINST:
        return Directions(False, True, "against")
    if oneway in _BOTH:
        return Directions(True, True, "both")
    if oneway in ("reversible", "alternating"):
        return Directions(True, True, "changing")
    motorway = tags.get("highway", "").removesuffix("_link") == "motorway"
    if motorway or tags.get("junction") == "roundabout":
        return Directions(True, False, "implied")
    return Directions(True, True, "unknown value" if oneway else "both")


def speed_kmh(text: str | None) -> float:
    """Return a speed limit in km/h; NaN if the text is not one number with a known unit.

    For example, "PT:urban", "walk", "none", "signals" and "50;30" are NaN.
    """
    return _one_number(text, _KMH)


def lane_count(text: str | None) -> float:
    """Return the number of lanes, such as 1.5 for a narrow two-way road; NaN if the text is not one number."""
    return _one_number(text, {"": 1.0})


def speed_limits(tags: Tags) -> tuple[float, float]:
    """Return the speed limits in km/h along and against a way; "maxspeed:forward" overrides "maxspeed"."""
    both = tags.get("maxspeed")
    return speed_kmh(tags.get("maxspeed:forward", both)), speed_kmh(tags.get("maxspeed:backward", both))


def _one_number(text: str | None, units: Mapping[str, float]) -> float:
    """Return the converted value of a semicolon-separated list if all its entries are equal, else NaN."""
    numbers = set()
    for part in (text or "").lower().split(";"):
        match = _NUMBER.fullmatch(part.strip())
        if match is None or match.group(2) not in units:
            return math.nan
        numbers.add(float(match.group(1)) * units[match.group(2)])
    value = numbers.pop()
    return value if not numbers and value > 0.0 else math.nan


# Restriction tags that apply to cars, from the most to the least specific.
_KINDS = ("restriction:motorcar", "restriction:motor_vehicle", "restriction:vehicle", "restriction")
_CARS = frozenset({"motorcar", "motor_vehicle", "vehicle"})


class ForbiddenTurns(NamedTuple):
    """Mask (E,) of forbidden turns, number of applied restrictions, and counts of ignored restrictions by reason."""

    turns: NDArray[np.bool_]
    used: int
    unused: dict[str, int]


class SegmentTurns(NamedTuple):
    """Way and node ids of segments, and the turns between the segments."""

    way: IntArray
    tail_node: IntArray
    head_node: IntArray
    turn_from: IntArray
    turn_to: IntArray


def find_forbidden_turns(restrictions: Iterable[Restriction], segments: SegmentTurns) -> ForbiddenTurns:
    """Return the turns that restrictions forbid.

    A restriction "no_..." forbids the turns from its "from" way to its "to" way at its "via" node; "only_..." forbids
    the turns from its "from" way to all other ways. Restrictions are ignored if they have a "via" way, apply only at
    some hours, do not apply to cars, or are ambiguous because a way continues beyond the node.
    """
    at_node: dict[int, list[int]] = {}
    for turn, node in enumerate(segments.head_node[segments.turn_from].tolist()):
        at_node.setdefault(node, []).append(turn)
    banned = np.zeros(segments.turn_from.size, dtype=np.bool_)
    unused: Counter[str] = Counter()
    used = 0
    for rule in restrictions:
        reason, turns = _find_turns(rule, segments, at_node)
        if reason:
            unused[reason] += 1
        else:
            banned[turns] = True
            used += 1
    return ForbiddenTurns(banned, used, dict(unused))


def _find_turns(rule: Restriction, segments: SegmentTurns, at_node: dict[int, list[int]]) -> tuple[str, list[int]]:
    """Return the reason why a restriction is ignored (else ""), and the turns that it forbids."""
    kind = next((rule.tags[name] for name in _KINDS if name in rule.tags), None)
    if kind is None:
        conditional = any(name.startswith("restriction") and name.endswith(":conditional") for name in rule.tags)
        return ("only at some hours" if conditional else "not for cars"), []
    if not kind.startswith(("no_", "only_")):
        return "unknown type", []
    if _CARS & {name.strip() for name in rule.tags.get("except", "").split(";")}:
        return "cars are exempt", []
    if rule.via is None:
        return "via a way", []
    if not (rule.sources and rule.targets):
        return "incomplete", []
    here = np.array(at_node.get(rule.via, []), dtype=np.int64)
    source, target = segments.turn_from[here], segments.turn_to[here]
    leaves, arrives = np.isin(segments.way[source], rule.sources), np.isin(segments.way[target], rule.targets)
    if not leaves.any():
        return "no such turn", []
    if any(_repeats_way(segments.way[these], these) for these in (source[leaves], target[arrives])):
        return "the way continues beyond the node", []
    if kind.startswith("no_"):
        hit = leaves & arrives
        return ("" if hit.any() else "no such turn"), here[hit].tolist()
    if not (leaves & arrives).any():
        # The "to" way is not in the network: applying the restriction would forbid every turn.
        return "no such turn", []
    return "", here[leaves & ~arrives].tolist()


def _repeats_way(way: IntArray, segments: IntArray) -> bool:
    pairs = np.unique(np.stack([way, segments]), axis=1)
    return bool(pairs.shape[1] > np.unique(pairs[0]).size)
