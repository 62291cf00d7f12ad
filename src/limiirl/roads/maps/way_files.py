"""Maps as two plain files: ways as JSON, one a line, and nodes as CSV; gzip or not."""

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
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np

from limiirl.errors import InvalidFile, InvalidNetwork, MissingFile
from limiirl.roads.maps.way_table import Way, WayTable, way_table, whole_number

Source = str | PathLike[str]

# What the packers raise for a file that is cut short or of another kind.
BROKEN = (EOFError, gzip.BadGzipFile, zlib.error, OSError, UnicodeDecodeError)
_COLUMNS = ("id", "lat", "lon")


@contextmanager
def unpacked(path: Source) -> Iterator[BinaryIO]:
    """Open a file for reading bytes, through gzip or bzip2 if its name ends so."""
    place = Path(path)
    if place.is_dir() or not place.exists():
        raise MissingFile(f"There is no file {place}. Give the path of a map.")
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
        f"{len(ways)}, {len(nodes)} and {len(osm)} of them. Name the file instead of the folder."
    )


def _json_lines(path: Source) -> Iterator[tuple[int, Any]]:
    line = 0
    try:
        with unpacked(path) as stream:
            for line, text in enumerate(stream, start=1):
                if text.strip():
                    yield line, json.loads(text)
    except InvalidFile:  # a missing file is an OSError as well
        raise
    except json.JSONDecodeError as error:
        raise InvalidFile(
            f"{path}, line {line}: not JSON ({error.msg}). Is the file truncated? Copy it again."
        ) from error
    except BROKEN as error:
        raise InvalidFile(f"{path} breaks off after line {line}: {error!s:.200}. Copy it again.") from error


def _way(item: Any, where: str) -> Way:
    try:
        tags = {str(name): str(value) for name, value in (item.get("tags") or {}).items()}
        nodes = tuple(whole_number(node) for node in item.get("nodes") or ())
        return Way(whole_number(item["id"]), nodes, tags)
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError) as error:
        raise InvalidFile(
            f'{where}: a way needs "id", "nodes" (a list of numbers) and "tags" (a mapping); got {str(item)[:100]!r} '
            f"({error!s:.100})."
        ) from error


def _given_nodes(nodes: Mapping[int, tuple[float, float]]) -> tuple[array[int], array[float], array[float]]:
    numbers, lat, lon = array("q"), array("d"), array("d")
    for number, place in nodes.items():
        try:
            north, east = place
            numbers.append(whole_number(number))
            lat.append(float(north))
            lon.append(float(east))
        except (TypeError, ValueError, OverflowError) as error:
            raise InvalidNetwork(
                f"nodes must map a number of 64 bits to (lat, lon); {number!r} maps to {place!r} ({error!s:.100})."
            ) from None
    return numbers, lat, lon


def _csv_nodes(path: Source) -> tuple[array[int], array[float], array[float]]:
    numbers, lat, lon, line = array("q"), array("d"), array("d"), 1
    try:
        with unpacked(path) as stream:
            rows = csv.reader(io.TextIOWrapper(stream, encoding="utf-8-sig", newline=""))
            header = [name.strip().lower() for name in next(rows, [])]
            if not set(_COLUMNS) <= set(header):
                raise InvalidFile(
                    f"{path} needs the columns id, lat and lon; its first line is {','.join(header)[:100]!r}."
                )
            at = [header.index(name) for name in _COLUMNS]
            for row in rows:
                line += 1
                if row:
                    numbers.append(whole_number(row[at[0]]))
                    lat.append(float(row[at[1]] or "nan"))
                    lon.append(float(row[at[2]] or "nan"))
    except InvalidFile:
        raise
    except BROKEN as error:
        raise InvalidFile(f"{path} breaks off after line {line}: {error!s:.200}. Copy it again.") from error
    except (ValueError, IndexError, csv.Error) as error:
        raise InvalidFile(
            f"{path}, line {line}: a node needs a whole number and two degrees ({error!s:.100}). Is the file truncated?"
        ) from error
    return numbers, lat, lon
