"""Trips from GPX files, one per track segment."""

from __future__ import annotations

import gzip
import xml.etree.ElementTree as ET
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import IO, cast

import numpy as np

from limiirl.errors import InvalidFile
from limiirl.roads.traces.assembly import RawTrips
from limiirl.roads.traces.tables import float_or_nan, parse_time
from limiirl.roads.traces.trips import SkippedTrip

_READ_ERRORS = (ET.ParseError, EOFError, gzip.BadGzipFile, zlib.error)


def read_gpx(path: Path) -> RawTrips:
    """Read the track segments of a GPX file, version 1.0 or 1.1, optionally gzipped.

    Track segments without times are assigned a constant time step. Waypoints and routes are ignored. If the file is
    truncated or corrupted, all complete points before the error are kept.
    """
    rows: list[tuple[float, float, float]] = []
    counts: list[int] = []
    names: list[tuple[int, int]] = []
    skipped: list[SkippedTrip] = []
    try:
        with _open(path) as handle:
            for track, segment, points in _segments(handle, path):
                rows += points
                counts.append(len(points))
                names.append((track, segment))
    except _READ_ERRORS as error:
        if not counts:
            raise InvalidFile.at(path, f"is truncated or not a GPX file ({error}). Copy or write it again.") from None
        reason = f"the file is truncated or corrupted after {len(rows):,} points, which are kept ({error})"
        skipped.append(SkippedTrip(f"{path.name.partition('.')[0]}:rest", len(counts), reason, trip=False))
    if not counts:
        raise InvalidFile.at(path, "has no track segment (<trkseg> in a <trk>); routes and waypoints are not trips.")
    stem = path.name.partition(".")[0]
    lat, lon, times = np.array(rows, dtype=np.float64).reshape(-1, 3).T.copy()
    sizes = np.array(counts, dtype=np.int64)
    timed = np.bincount(np.repeat(np.arange(sizes.size), sizes)[np.isfinite(times)], minlength=sizes.size) > 0
    untimed = int(np.count_nonzero(~timed & (sizes > 0)))
    return RawTrips(
        lat=lat,
        lon=lon,
        time=times,
        start=np.where(timed, np.nan, 0.0),
        counts=sizes,
        rows=np.arange(sizes.size),
        ids=np.array([stem] if len(names) == 1 else [f"{stem}:{track}.{segment}" for track, segment in names]),
        groups=None,
        skipped=skipped,
        notes=Counter({"trips without times, read with a constant time step": untimed}),
    )


def _open(path: Path) -> IO[bytes]:
    with path.open("rb") as handle:
        zipped = handle.read(2) == b"\x1f\x8b"
    return cast("IO[bytes]", gzip.open(path, "rb")) if zipped else path.open("rb")


def _segments(handle: IO[bytes], path: Path) -> Iterator[tuple[int, int, list[tuple[float, float, float]]]]:
    """Yield (track, segment, points), numbered from 1; points before an error are yielded before it is raised."""
    track, segment = 0, 0
    points: list[tuple[float, float, float]] = []
    root = None
    try:
        for event, element in ET.iterparse(handle, events=("start", "end")):
            tag = element.tag.rpartition("}")[2]
            if event == "start":
                if root is None:
                    root = tag
                    if tag != "gpx":
                        message = f"{path} is XML but not GPX: its root element is <{tag}>. Convert it to GPX."
                        raise InvalidFile(message, parameter="path", value=str(path))
                if tag == "trk":
                    track, segment = track + 1, 0
            elif tag == "trkpt":
                when = next((child.text for child in element if child.tag.rpartition("}")[2] == "time"), None)
                points.append((float_or_nan(element.get("lat")), float_or_nan(element.get("lon")), parse_time(when)))
                element.clear()
            elif tag == "trkseg":
                segment += 1
                yield track, segment, points
                points = []
                element.clear()
    except _READ_ERRORS:
        if points:
            yield track, segment + 1, points
        raise
