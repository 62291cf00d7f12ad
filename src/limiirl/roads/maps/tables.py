"""Tables of OSM ways and nodes, the common result of all readers; and the reader of JSON lines and CSV files."""

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
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from limiirl._io import load_json
from limiirl._typing import FloatArray, IntArray
from limiirl.errors import InvalidFile, InvalidNetwork, MissingFile

OSM_ATTRIBUTION = "(c) OpenStreetMap contributors, ODbL 1.0"

_FAR_DEGREES = 2.0  # larger than a city
_SAME_DEGREES = 1.5e-7  # OpenStreetMap rounds coordinates to 1e-7 degrees, about 1 cm


def parse_id(value: Any) -> int:
    """Return the id of a node, way or relation; raise `ValueError` if it does not fit in 64 bits."""
    number = int(value)
    if not -(2**63) <= number < 2**63:
        raise ValueError(f"{number} does not fit in 64 bits")
    return number


class MapWay(NamedTuple):
    """OSM way: its id, the ids of its nodes in order, and its tags such as "highway" and "maxspeed"."""

    id: int
    nodes: tuple[int, ...]
    tags: Mapping[str, str]


class Restriction(NamedTuple):
    """Turn restriction: ids of the "from" and "to" ways and of the "via" node; None if "via" is missing or a way."""

    id: int
    sources: tuple[int, ...]
    via: int | None
    targets: tuple[int, ...]
    tags: Mapping[str, str]


@dataclass(frozen=True)
class WayTable:
    """Unfiltered content of a map; `node_id` is ascending, and `source` is copied to the notes of the network.

    `places` are names, kinds and coordinates (lat, lon) of settlements, and `water` are lines (n, 2) of coordinates.
    """

    osm_ways: list[MapWay]
    node_id: IntArray
    lat: FloatArray
    lon: FloatArray
    restrictions: list[Restriction] = field(default_factory=list)
    source: dict[str, object] = field(default_factory=dict)
    attribution: str = OSM_ATTRIBUTION
    places: list[tuple[str, str, float, float]] = field(default_factory=list)
    water: list[NDArray[np.float64]] = field(default_factory=list)

    def index_nodes(self, numbers: IntArray) -> IntArray:
        """Return the index of each node id in `node_id`; -1 if the node has no coordinates."""
        if not self.node_id.size:
            return np.full(numbers.shape, -1, dtype=np.int64)
        at = np.minimum(np.searchsorted(self.node_id, numbers), self.node_id.size - 1)
        return np.where(self.node_id[at] == numbers, at, -1)


def make_way_table(
    osm_ways: list[MapWay], number: IntArray, lat: FloatArray, lon: FloatArray, source: dict[str, object], **fields: Any
) -> WayTable:
    """Return a table from unsorted nodes; nodes without coordinates (NaN) are counted and dropped.

    An id may be repeated at the same place, as in concatenated extracts; at another place it raises `InvalidNetwork`.
    """
    there = np.isfinite(lat) & np.isfinite(lon)
    source = source | {"nodes_without_coordinates": int(np.count_nonzero(~there))}
    number, lat, lon = number[there], lat[there], lon[there]
    check_degrees(number, lat, lon)
    kept, first, index = np.unique(number, return_index=True, return_inverse=True)
    moved = np.maximum(np.abs(lat - lat[first][index]), np.abs(lon - lon[first][index])) > _SAME_DEGREES
    if moved.any():
        i = int(np.argmax(moved))
        j = int(first[index[i]])
        message = (
            f"Ids of nodes must be unique; node {number[i]} is at ({lat[j]:.7f}, {lon[j]:.7f}) and at ({lat[i]:.7f}, "
            f"{lon[i]:.7f}). Remove the old versions of {np.count_nonzero(moved)} nodes, for example with osmium merge."
        )
        raise InvalidNetwork(message, parameter="nodes", value=int(number[i]), index=i)
    return WayTable(osm_ways, kept, lat[first], lon[first], source=source, **fields)


def check_degrees(numbers: IntArray, lat: FloatArray, lon: FloatArray) -> None:
    """Raise `InvalidNetwork` for coordinates out of range, and for swapped latitudes and longitudes."""
    for name, values, most in (("lat", lat, 90.0), ("lon", lon, 180.0)):
        wrong = np.abs(values) > most
        if wrong.any():
            i = int(np.argmax(wrong))
            remedy = f"{np.count_nonzero(wrong)} of {values.size} nodes are out of range, such as node {numbers[i]}. "
            remedy += "Check for projected coordinates" + (" and swapped columns." if name == "lat" else ".")
            rule = f"must lie in [-{most:g}, {most:g}] degrees"
            raise InvalidNetwork.of(name, float(values[i]), rule, index=i, remedy=remedy)
    if not lat.size:
        return
    middle_lat, middle_lon = float(np.median(lat)), float(np.median(lon))
    far = np.maximum(np.abs(lat - middle_lat), np.abs(lon - middle_lon)) > _FAR_DEGREES
    near_if_swapped = np.maximum(np.abs(lon - middle_lat), np.abs(lat - middle_lon)) <= _FAR_DEGREES
    swapped = far & near_if_swapped
    if swapped.any():
        i = int(np.argmax(swapped))
        message = (
            f"Latitude and longitude look swapped in {np.count_nonzero(swapped)} of {lat.size} nodes: node "
            f"{numbers[i]} is at ({lat[i]:g}, {lon[i]:g}), but the median is ({middle_lat:g}, {middle_lon:g})."
        )
        raise InvalidNetwork(message, parameter="lat", value=float(lat[i]), index=i)


Source = str | PathLike[str]

# Exceptions of the decompressors for truncated files and files of another format.
READ_ERRORS = (EOFError, gzip.BadGzipFile, zlib.error, OSError, UnicodeDecodeError)
_COLUMNS = ("id", "lat", "lon")


@contextmanager
def open_map(path: Source) -> Iterator[BinaryIO]:
    """Open a file for reading bytes; decompress .gz and .bz2 files."""
    file = Path(path)
    if file.is_dir() or not file.exists():
        raise MissingFile.at(file, "does not exist or is a folder.")
    opener: Any = {".gz": gzip.open, ".bz2": bz2.open}.get(file.suffix, open)
    with opener(file, "rb") as stream:
        yield stream


def read_ways(
    osm_ways: Source | Iterable[Mapping[str, Any]], nodes: Source | Mapping[int, tuple[float, float]]
) -> WayTable:
    """Read OSM ways and nodes, from files or from memory; see `limiirl.roads.from_ways`."""
    if isinstance(osm_ways, str | PathLike):
        items = [_parse_way(item, f"{osm_ways}, line {line}") for line, item in _read_json_lines(osm_ways)]
        name = Path(osm_ways).name
    else:
        items = [_parse_way(item, f"way {i}") for i, item in enumerate(osm_ways)]
        name = "ways in memory"
    numbers, lat, lon = _read_csv_nodes(nodes) if isinstance(nodes, str | PathLike) else _parse_nodes(nodes)
    number = np.array(numbers, dtype=np.int64)
    return make_way_table(items, number, np.array(lat), np.array(lon), {"kind": "ways and nodes", "name": name})


def find_files(folder: Path) -> tuple[Path, Path | None]:
    """Return the two files with OSM ways and nodes in a folder, or its OpenStreetMap file and None."""
    names = sorted(folder.iterdir())
    osm_ways = [path for path in names if path.name.endswith((".jsonl", ".jsonl.gz")) and "ways" in path.name]
    nodes = [path for path in names if path.name.endswith((".csv", ".csv.gz")) and "nodes" in path.name]
    osm = [path for path in names if path.name.endswith((".osm", ".osm.gz", ".osm.bz2", ".osm.pbf"))]
    if len(osm_ways) == len(nodes) == 1 and not osm:
        return osm_ways[0], nodes[0]
    if len(osm) == 1 and not osm_ways:
        return osm[0], None
    message = (
        f"{folder} must contain one *ways*.jsonl(.gz) and one *nodes*.csv(.gz) file, or one .osm or .osm.pbf file; it "
        f"contains {len(osm_ways)}, {len(nodes)} and {len(osm)} of these. Pass the file instead of the folder."
    )
    raise InvalidFile(message, parameter="path", value=str(folder))


def _read_json_lines(path: Source) -> Iterator[tuple[int, Any]]:
    line = 0
    try:
        with open_map(path) as stream:
            for line, text in enumerate(stream, start=1):
                if text.strip():
                    yield line, load_json(text)
    except InvalidFile:  # a missing file is an OSError as well
        raise
    except json.JSONDecodeError as error:
        message = f"{path}, line {line} is not JSON ({error.msg}). The file may be truncated; copy it again."
        raise InvalidFile(message, parameter="osm_ways", value=str(path), index=line) from error
    except READ_ERRORS as error:
        message = f"{path} is truncated after line {line} ({error!s:.200}). Copy it again."
        raise InvalidFile(message, parameter="osm_ways", value=str(path), index=line) from error


def _parse_way(item: Any, where: str) -> MapWay:
    try:
        tags = {str(name): str(value) for name, value in (item.get("tags") or {}).items()}
        nodes = tuple(parse_id(node) for node in item.get("nodes") or ())
        return MapWay(parse_id(item["id"]), nodes, tags)
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError) as error:
        rule = 'a way must have the keys "id", "nodes" (ids) and "tags" (a mapping)'
        message = f"{where}: {rule}; got {str(item)[:100]!r} ({error!s:.100})."
        raise InvalidFile(message, parameter="osm_ways", value=str(item)[:100]) from error


def _parse_nodes(nodes: Mapping[int, tuple[float, float]]) -> tuple[array[int], array[float], array[float]]:
    numbers, lat, lon = array("q"), array("d"), array("d")
    for number, place in nodes.items():
        try:
            north, east = place
            numbers.append(parse_id(number))
            lat.append(float(north))
            lon.append(float(east))
        except (TypeError, ValueError, OverflowError) as error:
            message = f"nodes must map 64-bit ids to (lat, lon); {number!r} maps to {place!r} ({error!s:.100})."
            raise InvalidNetwork(message, parameter="nodes", value=number) from None
    return numbers, lat, lon


def _read_csv_nodes(path: Source) -> tuple[array[int], array[float], array[float]]:
    numbers, lat, lon, line = array("q"), array("d"), array("d"), 1
    try:
        with open_map(path) as stream:
            rows = csv.reader(io.TextIOWrapper(stream, encoding="utf-8-sig", newline=""))
            header = [name.strip().lower() for name in next(rows, [])]
            if not set(_COLUMNS) <= set(header):
                message = f"{path} must have the columns id, lat and lon; its header is {','.join(header)[:100]!r}."
                raise InvalidFile(message, parameter="nodes", value=str(path))
            at = [header.index(name) for name in _COLUMNS]
            for row in rows:
                line += 1
                if row:
                    numbers.append(parse_id(row[at[0]]))
                    lat.append(float(row[at[1]] or "nan"))
                    lon.append(float(row[at[2]] or "nan"))
    except InvalidFile:
        raise
    except READ_ERRORS as error:
        message = f"{path} is truncated after line {line} ({error!s:.200}). Copy it again."
        raise InvalidFile(message, parameter="nodes", value=str(path), index=line) from error
    except (ValueError, IndexError, csv.Error) as error:
        message = (
            f"{path}, line {line} must have an id and two coordinates ({error!s:.100}). The file may be truncated."
        )
        raise InvalidFile(message, parameter="nodes", value=str(path), index=line) from error
    return numbers, lat, lon
