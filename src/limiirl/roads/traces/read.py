"""`read_trips`: CSV or parquet with a polyline or a fix per row, and GPX."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from limiirl._validation import check_positive
from limiirl.errors import InvalidFile, InvalidParameter, InvalidTrips, MissingFile, SkippedTripsWarning
from limiirl.roads.traces import tables
from limiirl.roads.traces.assembly import RawTrips, assemble, merge
from limiirl.roads.traces.gpx import read_gpx
from limiirl.roads.traces.polylines import read_polyline_rows
from limiirl.roads.traces.tables import CellReader, CsvHead, csv_batches, csv_head, read_fix_rows
from limiirl.roads.traces.trips import SkippedTrip, Trips

if TYPE_CHECKING:
    from limiirl.roads.network import RoadNetwork


_BROKEN = "its row has too few or too many cells, as where a file is cut off or a quote is not closed"
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

    The content decides the format: CSV (also gzipped) or parquet with a polyline ``[[lon, lat], ...]`` a row, as
    Porto's taxis have it, or with a fix a row; or GPX, where each track segment is a trip. What cannot be read is
    skipped with a reason (`Trips.skipped`), what was mended is counted (`Trips.notes`), and one warning sums both up.

    Parameters
    ----------
    path : path, or several
        Files, or a folder of .csv, .csv.gz, .parquet, .gpx and .gpx.gz.
    step_s : float
        Seconds between fixes, where the file gives no time a fix.
    columns : dict, optional
        Which column has which role: "trip", "piece", "driver", "time", "polyline", "lat", "lon", "missing". Those not
        named are guessed; None leaves a role out. A "missing" column marks trips that lack fixes; they are skipped.
    swap : bool
        Whether latitude and longitude stand in each other's place in the file. Never guessed.
    network : RoadNetwork, optional
        Where the trips should be: trips that are far from it, and near it once swapped, are an error that says so.

    Returns
    -------
    Trips
        A copy of a trip is skipped; another trip of the same id is kept as ``id#2``.

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
    raw = merge(_read_all(_files(path), columns))
    if swap:
        raw.lat, raw.lon = raw.lon, raw.lat
    trips = assemble(raw, float(step_s))
    _check_swapped(trips, path)
    if network is not None:
        from limiirl.roads.traces.cleaning import check_swapped

        check_swapped(trips, network)
    _warn(trips, path)
    return trips


def _files(path: Any) -> list[Path]:
    if not isinstance(path, str | PathLike):
        found = [file for part in path for file in _files(part)]
        if not found:
            raise InvalidParameter("read_trips needs at least one path; the list is empty.", parameter="path")
        return found
    place = Path(path)
    if not place.is_dir():
        return [place]
    found = sorted(file for file in place.iterdir() if file.name.lower().endswith(_SUFFIXES))
    if not found:
        raise InvalidFile(
            f"{place} holds no trips: no file in it ends with {', '.join(_SUFFIXES)}.",
            parameter="path",
            value=str(place),
        )
    return found


def _read_all(files: Sequence[Path], columns: Mapping[str, str | None] | None) -> list[RawTrips]:
    """Read files; of several, one that is damaged or missing is skipped with its reason."""
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
    """Read one file, whose content decides how."""
    try:
        with path.open("rb") as handle:
            head = handle.read(512)
    except FileNotFoundError:
        raise MissingFile(
            f"There is no file {path}. Give a file of trips, or a folder of them.", parameter="path", value=str(path)
        ) from None
    if head[:4] == b"PAR1":
        chosen = tables.choose_columns(tables.parquet_names(path), columns, path)
        return _from_batches(tables.parquet_batches(path, chosen), chosen, CellReader(path, chosen))
    if path.name.lower().endswith((".gpx", ".gpx.gz")) or head.lstrip(b"\xef\xbb\xbf \r\n\t").startswith(b"<"):
        return read_gpx(path)
    if path.suffix.lower() == ".parquet":
        raise InvalidFile(
            f"{path} is no parquet file, or cut off: it does not begin as one does. Copy it again.",
            parameter="path",
            value=str(path),
        )
    if not head:
        raise InvalidFile(f"{path} is empty. Was it written to the end?", parameter="path", value=str(path))
    names = csv_head(path)
    chosen = tables.choose_columns(names.names, columns, path)
    broken: list[tuple[int, str]] = []
    cells = CellReader(path, chosen)
    raw = _from_batches(csv_batches(path, names, chosen, broken, cells.notes), chosen, cells)
    if broken:
        _count_broken(raw, broken, names, path, trips="polyline" in chosen)
    return raw


def _from_batches(batches: Iterator[dict[str, Any]], chosen: Mapping[str, str], cells: CellReader) -> RawTrips:
    return read_polyline_rows(batches, cells) if "polyline" in chosen else read_fix_rows(batches, cells)


def _count_broken(raw: RawTrips, broken: list[tuple[int, str]], head: CsvHead, path: Path, *, trips: bool) -> None:
    """Put rows of too few or too many cells on the account; where there are no others, say what may be wrong."""
    if not (raw.counts.size or raw.skipped):
        row, text = broken[0]
        raise InvalidFile(
            f"{path}: none of its {len(broken):,} rows has as many cells as the first row, {len(head.names)}; row "
            f"{row} below that is {text[:60]!r}. Are cells separated by something else than {head.separator!r}, or "
            "are there decimal commas between commas? Write points, or semicolons between cells.",
            parameter="path",
            value=str(path),
            index=row,
        )
    known = np.sort([row for row, _ in broken if row >= 0])
    if known.size:
        # Rows were counted without the broken ones so far.
        before = known - np.arange(known.size)
        raw.rows += np.searchsorted(before, raw.rows, side="right")
        shifts = np.searchsorted(before, [skip.row for skip in raw.skipped], side="right").tolist()
        raw.skipped = [replace(skip, row=skip.row + k) for skip, k in zip(raw.skipped, shifts, strict=True)]
    raw.skipped += [SkippedTrip(text.partition(head.separator)[0][:60], row, _BROKEN, trips) for row, text in broken]


def _check_swapped(trips: Trips, path: Any) -> None:
    """Raise where no trip could be read because all are swapped: a file of nothing is no result."""
    swapped = sum("swap=True" in skip.reason for skip in trips.skipped)
    if len(trips) == 0 and swapped:
        raise InvalidTrips(
            f"{path}: latitude and longitude are swapped: latitudes beyond 90 degrees in "
            f"{swapped:,} of {len(trips.skipped):,} trips. Read it with swap=True.",
            parameter="path",
            value=str(path),
        )


def _warn(trips: Trips, path: Any) -> None:
    if not (trips.skipped or trips.notes):
        return
    parts = [f"{len(trips):,} trip{'s' * (len(trips) != 1)} read"]
    if trips.skipped:
        first = trips.skipped[0]
        parts.append(
            f"{len(trips.skipped):,} skipped, the first (id {first.id!r}, row {first.row}) because {first.reason}"
        )
    parts += [f"{reason}: {count:,}" for reason, count in trips.notes.items()]
    warnings.warn(
        f"{path}: {parts[0]}. {'; '.join(parts[1:])}. See Trips.skipped and Trips.notes.",
        SkippedTripsWarning,
        stacklevel=3,
    )
