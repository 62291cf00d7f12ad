"""`read_trips`: GPS trips from CSV, parquet and GPX files."""

from __future__ import annotations

import gzip
import warnings
import xml.etree.ElementTree as ET
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

import numpy as np

from limiirl._io import as_path
from limiirl._validation import check_positive
from limiirl.errors import InvalidFile, InvalidParameter, InvalidTrips, MissingFile, SkippedTripsWarning
from limiirl.roads.traces import tables
from limiirl.roads.traces.assembly import RawTrips, assemble, merge
from limiirl.roads.traces.tables import CellReader, CsvHead, float_or_nan, parse_time
from limiirl.roads.traces.trips import SkippedTrip, Trips

if TYPE_CHECKING:
    from limiirl.roads.network import RoadNetwork

_BROKEN = "its row has too few or too many cells (a truncated file or an unclosed quote)"
_SUFFIXES = (".csv", ".csv.gz", ".parquet", ".gpx", ".gpx.gz")


def read_trips(
    path: str | PathLike[str] | Sequence[str | PathLike[str]],
    *,
    step_s: float = 15.0,
    columns: Mapping[str, str | None] | None = None,
    swap: bool = False,
    network: RoadNetwork | None = None,
) -> Trips:
    """Read GPS trips from a file, several files, or all files of a folder.

    The format is detected from the content. CSV files (optionally gzipped) and parquet files have one polyline
    ``[[lon, lat], ...]`` per row, as in the Porto taxi data, or one fix per row. In GPX files, each track segment is a
    trip. Unreadable trips are skipped, with reasons in `Trips.skipped`; repairs are counted in `Trips.notes`; a warning
    summarises both.

    Parameters
    ----------
    path : path or sequence of paths
        Files, or folders of .csv, .csv.gz, .parquet, .gpx and .gpx.gz files.
    step_s : float
        Seconds between fixes if the file has no times per fix.
    columns : dict, optional
        Column of each role: "trip", "piece", "driver", "time", "polyline", "lat", "lon", "missing". Other columns
        are recognised by name; None disables a role. Trips that the "missing" column marks as incomplete are skipped.
    swap : bool
        True if the file has latitude and longitude swapped.
    network : RoadNetwork, optional
        Network of the trips; `InvalidTrips` is raised if they are far from it, or look swapped.

    Returns
    -------
    Trips
        Trips with unique ids: copies of a trip are skipped, and other trips with the same id are renamed ``id#2``.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "trips.csv"
    >>> rows = ["TRIP_ID,TAXI_ID,TIMESTAMP,POLYLINE", '7,12,100,"[[-8.63,41.15],[-8.62,41.16]]"']
    >>> _ = path.write_text(chr(10).join(rows))
    >>> trips = read_trips(path)
    >>> trips.lat.tolist(), trips.time_s.tolist(), trips.groups.tolist()
    ([41.15, 41.16], [100.0, 115.0], [12])
    """
    check_positive(step_s, "step_s")
    raw = merge(_read_all(_list_files(path), columns))
    if swap:
        raw.lat, raw.lon = raw.lon, raw.lat
    trips = assemble(raw, float(step_s))
    _raise_if_swapped(trips, path)
    if network is not None:
        from limiirl.roads.traces.cleaning import check_swapped

        check_swapped(trips, network)
    _warn(trips, path)
    return trips


def _list_files(path: Any) -> list[Path]:
    if not isinstance(path, str | PathLike):
        files = [file for part in path for file in _list_files(part)]
        if not files:
            raise InvalidParameter("path must name at least one file; the list is empty.", parameter="path")
        return files
    place = as_path(path)
    if not place.is_dir():
        return [place]
    files = sorted(file for file in place.iterdir() if file.name.lower().endswith(_SUFFIXES))
    if not files:
        raise InvalidFile.at(place, f"has no files of trips ({', '.join(_SUFFIXES)}).")
    return files


def _read_all(files: Sequence[Path], columns: Mapping[str, str | None] | None) -> list[RawTrips]:
    """Read files; if there are several, corrupted and missing files are skipped with a reason."""
    if len(files) == 1:
        return [_read(files[0], columns)]
    raws, failures = [], []
    for file in files:
        try:
            raws.append(_read(file, columns))
        except InvalidFile as error:
            failures.append((file, error))
    if not raws:
        raise failures[0][1]
    raws[0].skipped += [SkippedTrip(file.name, -1, str(error), trip=False) for file, error in failures]
    return raws


def _read(path: Path, columns: Mapping[str, str | None] | None) -> RawTrips:
    """Read one file; the format is detected from its content."""
    try:
        with path.open("rb") as handle:
            head = handle.read(512)
    except FileNotFoundError:
        raise MissingFile.at(path, "does not exist. Pass a file or a folder of trips.") from None
    if head[:4] == b"PAR1":
        chosen = tables.choose_columns(tables.read_parquet_names(path), columns, path)
        return _from_batches(tables.read_parquet_batches(path, chosen), chosen, CellReader(path, chosen))
    if path.name.lower().endswith((".gpx", ".gpx.gz")) or head.lstrip(b"\xef\xbb\xbf \r\n\t").startswith(b"<"):
        return read_gpx(path)
    if path.suffix.lower() == ".parquet":
        raise InvalidFile.at(path, "is truncated or not a parquet file. Copy it again.")
    if not head:
        raise InvalidFile.at(path, "is empty. Check that it was written completely.")
    names = tables.read_csv_head(path)
    chosen = tables.choose_columns(names.names, columns, path)
    broken: list[tuple[int, str]] = []
    cells = CellReader(path, chosen)
    raw = _from_batches(tables.read_csv_batches(path, names, chosen, broken, cells.notes), chosen, cells)
    if broken:
        _count_broken(raw, broken, names, path, trips="polyline" in chosen)
    return raw


def _from_batches(batches: Iterator[dict[str, Any]], chosen: Mapping[str, str], cells: CellReader) -> RawTrips:
    return tables.read_polyline_rows(batches, cells) if "polyline" in chosen else tables.read_fix_rows(batches, cells)


def _count_broken(raw: RawTrips, broken: list[tuple[int, str]], head: CsvHead, path: Path, *, trips: bool) -> None:
    """Add rows with a wrong number of cells to `skipped`; raise `InvalidFile` if there are no other rows."""
    if not (raw.counts.size or raw.skipped):
        row, text = broken[0]
        message = (
            f"{path}: none of the {len(broken):,} rows has {len(head.names)} cells like the header; data row {row} is "
            f"{text[:60]!r}. The separator was detected as {head.separator!r}; check it, and check for decimal commas."
        )
        raise InvalidFile(message, parameter="path", value=str(path), index=row)
    known = np.sort([row for row, _ in broken if row >= 0])
    if known.size:
        # Row numbers so far exclude the broken rows.
        before = known - np.arange(known.size)
        raw.rows += np.searchsorted(before, raw.rows, side="right")
        shifts = np.searchsorted(before, [skip.row for skip in raw.skipped], side="right").tolist()
        raw.skipped = [replace(skip, row=skip.row + k) for skip, k in zip(raw.skipped, shifts, strict=True)]
    raw.skipped += [SkippedTrip(text.partition(head.separator)[0][:60], row, _BROKEN, trips) for row, text in broken]


def _raise_if_swapped(trips: Trips, path: Any) -> None:
    """Raise `InvalidTrips` if no trip could be read because latitude and longitude are swapped."""
    swapped = sum("swap=True" in skip.reason for skip in trips.skipped)
    if len(trips) == 0 and swapped:
        message = (
            f"{path}: latitude and longitude are swapped; latitudes exceed 90 degrees in {swapped:,} of "
            f"{len(trips.skipped):,} trips. Read it with swap=True."
        )
        raise InvalidTrips(message, parameter="swap", value=False)


def _warn(trips: Trips, path: Any) -> None:
    if not (trips.skipped or trips.notes):
        return
    parts = [f"{len(trips):,} trip{'s' * (len(trips) != 1)} read"]
    if trips.skipped:
        first = trips.skipped[0]
        parts.append(f"{len(trips.skipped):,} skipped, the first (id {first.id!r}, row {first.row}): {first.reason}")
    parts += [f"{reason}: {count:,}" for reason, count in trips.notes.items()]
    warnings.warn(
        f"{path}: {parts[0]}. {'; '.join(parts[1:])}. See Trips.skipped and Trips.notes.",
        SkippedTripsWarning,
        stacklevel=3,
    )


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
