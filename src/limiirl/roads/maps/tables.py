"""Maps as tables of ways and nodes, the common form of all readers; JSON lines and CSV files."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import json
import zlib
from array import array
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

import numpy as np

from limiirl._typing import FloatArray, IntArray
from limiirl.errors import InvalidFile, InvalidNetwork, MissingFile

OSM_ATTRIBUTION = "(c) OpenStreetMap contributors, ODbL 1.0"

_FAR_DEGREES = 2.0  # a city is smaller


def parse_id(value: Any) -> int:
    """Return the number of a node, a way or a relation; a `ValueError` says that it is none of 64 bits.

    Examples
    --------
    >>> parse_id("17")
    17
    """
    number = int(value)
    if not -(2**63) <= number < 2**63:
        raise ValueError(f"{number} has more than 64 bits")
    return number


class MapWay(NamedTuple):
    """A line through nodes, in the order in which it was drawn, and what is written on it.

    Attributes
    ----------
    id : int
    nodes : tuple of int
        Numbers of nodes.
    tags : mapping of str to str
        As in OpenStreetMap: "highway", "oneway", "lanes", "maxspeed" and so on.
    """

    id: int
    nodes: tuple[int, ...]
    tags: Mapping[str, str]


class Restriction(NamedTuple):
    """A relation of type "restriction": its members by role, and its tags.

    Attributes
    ----------
    id : int
    sources, targets : tuple of int
        Ways, of roles "from" and "to".
    via : int or None
        A node; None where the way between the two is a way, or where there is none.
    tags : mapping of str to str
    """

    id: int
    sources: tuple[int, ...]
    via: int | None
    targets: tuple[int, ...]
    tags: Mapping[str, str]


@dataclass(frozen=True)
class WayTable:
    """A map as it was read, before any rule about roads.

    Attributes
    ----------
    ways : list of MapWay
    node_id : (V,) int64
        Ascending, each once.
    lat, lon : (V,)
        In degrees.
    restrictions : list of Restriction
    source : dict
        For the network's notes: what was read, and counts of what was not understood.
    attribution : str
    """

    ways: list[MapWay]
    node_id: IntArray
    lat: FloatArray
    lon: FloatArray
    restrictions: list[Restriction] = field(default_factory=list)
    source: dict[str, object] = field(default_factory=dict)
    attribution: str = OSM_ATTRIBUTION

    def places(self, numbers: IntArray) -> IntArray:
        """Return the index of each node number in `node_id`, -1 where the file does not say where the node is."""
        if not self.node_id.size:
            return np.full(numbers.shape, -1, dtype=np.int64)
        at = np.minimum(np.searchsorted(self.node_id, numbers), self.node_id.size - 1)
        return np.where(self.node_id[at] == numbers, at, -1)


def way_table(
    ways: list[MapWay], number: IntArray, lat: FloatArray, lon: FloatArray, source: dict[str, object], **known: Any
) -> WayTable:
    """Return a table of ways and of nodes in any order; nodes without coordinates (NaN) are counted and left out.

    Of a node that is given twice the last one counts, as in a file of changes.

    Examples
    --------
    >>> table = way_table([], np.array([7, 3, 7]), np.array([1.0, 2.0, 3.0]), np.array([4.0, np.nan, 6.0]), {})
    >>> table.node_id, table.lat, table.source
    (array([7]), array([3.]), {'nodes_without_coordinates': 1})
    """
    there = np.isfinite(lat) & np.isfinite(lon)
    source = source | {"nodes_without_coordinates": int(np.count_nonzero(~there))}
    number, lat, lon = number[there], lat[there], lon[there]
    check_degrees(number, lat, lon)
    # `unique` finds first places, so look from behind.
    kept, last = np.unique(number[::-1], return_index=True)
    return WayTable(ways, kept, lat[::-1][last], lon[::-1][last], source=source, **known)


def check_degrees(numbers: IntArray, lat: FloatArray, lon: FloatArray) -> None:
    """Raise `InvalidNetwork` for degrees that cannot be, and where some nodes have latitude and longitude swapped.

    Examples
    --------
    >>> check_degrees(np.array([1, 2]), np.array([41.1, 41.2]), np.array([-8.6, -8.7]))
    """
    for name, values, most in (("latitude", lat, 90.0), ("longitude", lon, 180.0)):
        wrong = np.abs(values) > most
        if wrong.any():
            i = int(np.argmax(wrong))
            hint = (
                "Are latitude and longitude swapped, or is it in metres?" if name == "latitude" else "Is it in metres?"
            )
            raise InvalidNetwork(
                f"node {numbers[i]} has {name} {values[i]:g}, as have {np.count_nonzero(wrong)} of {values.size} nodes "
                f"that lie more than {most:g} degrees from 0. {hint}",
                parameter="lat" if name == "latitude" else "lon",
                value=float(values[i]),
                index=i,
            )
    if not lat.size:
        return
    middle_lat, middle_lon = float(np.median(lat)), float(np.median(lon))
    far = np.maximum(np.abs(lat - middle_lat), np.abs(lon - middle_lon)) > _FAR_DEGREES
    near_if_swapped = np.maximum(np.abs(lon - middle_lat), np.abs(lat - middle_lon)) <= _FAR_DEGREES
    swapped = far & near_if_swapped
    if swapped.any():
        i = int(np.argmax(swapped))
        raise InvalidNetwork(
            f"latitude and longitude look swapped in {np.count_nonzero(swapped)} of {lat.size} nodes: node "
            f"{numbers[i]} lies at ({lat[i]:g}, {lon[i]:g}), most nodes about ({middle_lat:g}, {middle_lon:g}).",
            parameter="lat",
            value=float(lat[i]),
            index=i,
        )


Source = str | PathLike[str]

# What the packers raise for a file that is cut short or of another kind.
BROKEN = (EOFError, gzip.BadGzipFile, zlib.error, OSError, UnicodeDecodeError)
_COLUMNS = ("id", "lat", "lon")


@contextmanager
def open_map(path: Source) -> Iterator[BinaryIO]:
    """Open a file for reading bytes, through gzip or bzip2 if its name ends so."""
    place = Path(path)
    if place.is_dir() or not place.exists():
        raise MissingFile(f"There is no file {place}. Give the path of a map.", parameter="path", value=str(place))
    if place.suffix == ".gz":
        with gzip.open(place, "rb") as stream:
            yield cast("BinaryIO", stream)
    elif place.suffix == ".bz2":
        with bz2.open(place, "rb") as stream:
            yield cast("BinaryIO", stream)
    else:
        with place.open("rb") as stream:
            yield stream


def read_ways(
    ways: Source | Iterable[Mapping[str, Any]], nodes: Source | Mapping[int, tuple[float, float]]
) -> WayTable:
    """Read ways and nodes, from files or from memory.

    Parameters
    ----------
    ways : path of JSON lines, or iterable of mappings
        Each with "id", "nodes" (numbers in order) and "tags".
    nodes : path of a CSV file with the columns id, lat and lon, or mapping of a number to (lat, lon)

    Examples
    --------
    >>> table = read_ways([{"id": 1, "nodes": [5, 6], "tags": {"highway": "road"}}], {5: (41.0, -8.0), 6: (41.1, -8.0)})
    >>> table.ways[0].nodes, table.lat
    ((5, 6), array([41. , 41.1]))
    """
    if isinstance(ways, str | PathLike):
        found = [_way(item, f"{ways}, line {line}") for line, item in _json_lines(ways)]
        name = Path(ways).name
    else:
        found = [_way(item, f"way {i}") for i, item in enumerate(ways)]
        name = "ways in memory"
    if isinstance(nodes, str | PathLike):
        numbers, lat, lon = _csv_nodes(nodes)
    else:
        numbers, lat, lon = _given_nodes(nodes)
    number = np.array(numbers, dtype=np.int64)
    return way_table(found, number, np.array(lat), np.array(lon), {"kind": "ways and nodes", "name": name})


def find_files(folder: Path) -> tuple[Path, Path | None]:
    """Return the map in a folder: its ways and its nodes, or one OpenStreetMap file and None."""
    names = sorted(folder.iterdir())
    ways = [path for path in names if path.name.endswith((".jsonl", ".jsonl.gz")) and "ways" in path.name]
    nodes = [path for path in names if path.name.endswith((".csv", ".csv.gz")) and "nodes" in path.name]
    osm = [path for path in names if path.name.endswith((".osm", ".osm.gz", ".osm.bz2", ".osm.pbf"))]
    if len(ways) == len(nodes) == 1 and not osm:
        return ways[0], nodes[0]
    if len(osm) == 1 and not ways:
        return osm[0], None
    raise InvalidFile(
        f"{folder} must hold one file *ways*.jsonl(.gz) and one *nodes*.csv(.gz), or one .osm or .osm.pbf file; it has "
        f"{len(ways)}, {len(nodes)} and {len(osm)} of them. Name the file instead of the folder.",
        parameter="path",
        value=str(folder),
    )


def _json_lines(path: Source) -> Iterator[tuple[int, Any]]:
    line = 0
    try:
        with open_map(path) as stream:
            for line, text in enumerate(stream, start=1):
                if text.strip():
                    yield line, json.loads(text)
    except InvalidFile:  # a missing file is an OSError as well
        raise
    except json.JSONDecodeError as error:
        raise InvalidFile(
            f"{path}, line {line}: not JSON ({error.msg}). Is the file truncated? Copy it again.",
            parameter="ways",
            value=str(path),
            index=line,
        ) from error
    except BROKEN as error:
        raise InvalidFile(
            f"{path} breaks off after line {line}: {error!s:.200}. Copy it again.",
            parameter="ways",
            value=str(path),
            index=line,
        ) from error


def _way(item: Any, where: str) -> MapWay:
    try:
        tags = {str(name): str(value) for name, value in (item.get("tags") or {}).items()}
        nodes = tuple(parse_id(node) for node in item.get("nodes") or ())
        return MapWay(parse_id(item["id"]), nodes, tags)
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError) as error:
        raise InvalidFile(
            f'{where}: a way needs "id", "nodes" (a list of numbers) and "tags" (a mapping); got {str(item)[:100]!r} '
            f"({error!s:.100}).",
            parameter="ways",
            value=str(item)[:100],
        ) from error


def _given_nodes(nodes: Mapping[int, tuple[float, float]]) -> tuple[array[int], array[float], array[float]]:
    numbers, lat, lon = array("q"), array("d"), array("d")
    for number, place in nodes.items():
        try:
            north, east = place
            numbers.append(parse_id(number))
            lat.append(float(north))
            lon.append(float(east))
        except (TypeError, ValueError, OverflowError) as error:
            raise InvalidNetwork(
                f"nodes must map a number of 64 bits to (lat, lon); {number!r} maps to {place!r} ({error!s:.100}).",
                parameter="nodes",
                value=number,
            ) from None
    return numbers, lat, lon


def _csv_nodes(path: Source) -> tuple[array[int], array[float], array[float]]:
    numbers, lat, lon, line = array("q"), array("d"), array("d"), 1
    try:
        with open_map(path) as stream:
            rows = csv.reader(io.TextIOWrapper(stream, encoding="utf-8-sig", newline=""))
            header = [name.strip().lower() for name in next(rows, [])]
            if not set(_COLUMNS) <= set(header):
                raise InvalidFile(
                    f"{path} needs the columns id, lat and lon; its first line is {','.join(header)[:100]!r}.",
                    parameter="nodes",
                    value=str(path),
                )
            at = [header.index(name) for name in _COLUMNS]
            for row in rows:
                line += 1
                if row:
                    numbers.append(parse_id(row[at[0]]))
                    lat.append(float(row[at[1]] or "nan"))
                    lon.append(float(row[at[2]] or "nan"))
    except InvalidFile:
        raise
    except BROKEN as error:
        raise InvalidFile(
            f"{path} breaks off after line {line}: {error!s:.200}. Copy it again.",
            parameter="nodes",
            value=str(path),
            index=line,
        ) from error
    except (ValueError, IndexError, csv.Error) as error:
        raise InvalidFile(
            f"{path}, line {line}: a node needs an id and two degrees ({error!s:.100}). Is the file truncated?",
            parameter="nodes",
            value=str(path),
            index=line,
        ) from error
    return numbers, lat, lon
