"""Tables of trips: which column is what; parquet in and out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from limiirl.errors import InvalidFile, InvalidParameter
from limiirl.files import atomic_write

if TYPE_CHECKING:
    from limiirl.roads.traces.trips import Trips

# Names of columns that are understood without being told, in lower case, the likelier first.
GUESSES: Mapping[str, tuple[str, ...]] = {
    "polyline": ("polyline",),
    "lat": ("lat", "latitude", "y"),
    "lon": ("lon", "lng", "long", "longitude", "x"),
    "trip": ("trip_id", "trip", "tripid", "traj_id", "trajectory_id", "track_id", "track", "journey"),
    "piece": ("piece",),
    "driver": ("driver", "driver_id", "taxi_id", "taxi", "vehicle_id", "vehicle", "user_id", "user"),
    "time": ("timestamp", "time", "time_s", "datetime", "date_time", "start_time", "unix_time"),
    "missing": ("missing_data",),
}
# Names that mean something else in a table with a fix a row, where an id may be that of the fix.
_IF_NO_FIXES: Mapping[str, tuple[str, ...]] = {"polyline": ("trajectory", "coordinates"), "trip": ("id",)}
_OF_WHAT = ("id", "trajectory")


def choose_columns(names: list[str], columns: Mapping[str, str | None] | None, path: Path) -> dict[str, str]:
    """Return the column of each role: as told, or as guessed by name.

    Examples
    --------
    >>> choose_columns(["TRIP_ID", "TIMESTAMP", "POLYLINE"], None, Path("a.csv"))
    {'polyline': 'POLYLINE', 'trip': 'TRIP_ID', 'time': 'TIMESTAMP'}
    >>> choose_columns(["id", "lat", "lon"], {"trip": "id"}, Path("a.csv"))  # or is it the fix's? it must be told
    {'lat': 'lat', 'lon': 'lon', 'trip': 'id'}
    """
    told = dict(columns or {})
    for role, name in told.items():
        if role not in GUESSES:
            raise InvalidParameter(f"columns has no role {role!r}; the roles are {', '.join(GUESSES)}.")
        if name is not None and name not in names:
            raise InvalidParameter(f"{path} has no column {name!r} for {role!r}; it has {', '.join(names)}.")
    chosen = _guessed(names) | told
    if {"lat", "lon"} <= told.keys() and "polyline" not in told:
        chosen["polyline"] = None
    if chosen.get("polyline") is not None:
        chosen["lat"] = chosen["lon"] = None
    elif chosen.get("lat") is None or chosen.get("lon") is None:
        raise InvalidFile(
            f"{path} has neither a column of polylines nor columns of latitudes and longitudes by a name that is known "
            f"({', '.join(GUESSES['polyline'] + GUESSES['lat'] + GUESSES['lon'])}); its columns are "
            f"{', '.join(names)[:300]}. Is its first row one of names? Say which they are: columns={{'polyline': ...}} "
            "or columns={'lat': ..., 'lon': ...}."
        )
    elif chosen.get("trip") is None and "trip" not in told:
        doubtful = next((name for name in names if name.strip().lower() in _OF_WHAT), None)
        if doubtful is not None:
            raise InvalidFile(
                f"{path}: column {doubtful!r} could name trips or single fixes; its columns are "
                f"{', '.join(names)[:300]}. Say which: columns={{'trip': {doubtful!r}}} or columns={{'trip': None}}."
            )
    return {role: name for role in GUESSES if (name := chosen.get(role)) is not None}


def _guessed(names: list[str]) -> dict[str, str | None]:
    """Return the column of each role by its name, None where none has one that is known."""
    lower: dict[str, str] = {}
    for name in names:
        lower.setdefault(name.strip().lower(), name)

    def first(words: tuple[str, ...]) -> str | None:
        return next((lower[word] for word in words if word in lower), None)

    found = {role: first(words) for role, words in GUESSES.items()}
    if found["lat"] is None or found["lon"] is None or found["polyline"] is not None:
        found |= {role: found[role] or first(words) for role, words in _IF_NO_FIXES.items()}
    return found


def parquet_names(path: Path) -> list[str]:
    """Return the names of the columns of a parquet file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with path.open("rb") as handle, pq.ParquetFile(handle) as file:
            return list(file.schema_arrow.names)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise unreadable(path, error) from None


def parquet_batches(path: Path, chosen: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    """Yield blocks of rows of a parquet file as {role: column}."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with path.open("rb") as handle, pq.ParquetFile(handle, page_checksum_verification=True) as file:
            for batch in file.iter_batches(batch_size=1 << 15, columns=list(dict.fromkeys(chosen.values()))):
                yield {role: batch.column(name) for role, name in chosen.items()}
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise unreadable(path, error) from None


def write_parquet(trips: Trips, path: Any) -> None:
    """Write trips to `path`, one row a fix; see `Trips.to_parquet`."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = pa.array(trips.trip_of_fix)
    columns = {"trip": _as_arrow(trips.ids).take(rows), "piece": _as_arrow(trips.pieces).take(rows)}
    columns |= {"time": pa.array(trips.time_s), "lat": pa.array(trips.lat), "lon": pa.array(trips.lon)}
    if trips.groups is not None:
        columns["driver"] = _as_arrow(trips.groups).take(rows)
    with atomic_write(path) as scratch:
        pq.write_table(pa.table(columns), scratch, compression="zstd", write_page_checksum=True)


def unreadable(path: Path, error: Exception) -> Exception:
    """Return the error to raise for a file that could not be read to its end."""
    # A missing file or a lack of permission has a number, and speaks for itself.
    if isinstance(error, OSError) and error.errno is not None:
        return error
    reason = str(error).partition("\n")[0].rstrip(".")[:200]
    return InvalidFile(f"{path} is damaged or cut off ({reason}). Copy or write it again.")


def _as_arrow(values: NDArray[Any]) -> Any:
    import pyarrow as pa

    return pa.array(values, type=pa.large_string() if values.dtype.kind == "U" else None)
