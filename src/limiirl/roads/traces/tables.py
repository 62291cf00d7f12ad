"""Tables of trips: which column is what, and columns as numbers, times and text; parquet in and out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from limiirl.errors import InvalidFile, InvalidParameter
from limiirl.files import atomic_write

if TYPE_CHECKING:
    from limiirl.roads.traces.trips import Trips

Float = NDArray[np.float64]

# Names of columns that are understood without being told, in lower case, the likelier first.
GUESSES: Mapping[str, tuple[str, ...]] = {
    "polyline": ("polyline", "trajectory", "coordinates", "points", "path"),
    "lat": ("lat", "latitude", "y"),
    "lon": ("lon", "lng", "long", "longitude", "x"),
    "trip": ("trip_id", "trip", "tripid", "traj_id", "trajectory_id", "track_id", "track", "journey", "id"),
    "driver": ("driver", "driver_id", "taxi_id", "taxi", "vehicle_id", "vehicle", "user_id", "user", "group"),
    "time": ("timestamp", "time", "time_s", "datetime", "date_time", "start_time", "unix_time", "t"),
    "missing": ("missing_data",),
}


def choose_columns(names: list[str], columns: Mapping[str, str | None] | None, path: Path) -> dict[str, str]:
    """Return the column of each role: as told, or as guessed by name.

    Examples
    --------
    >>> choose_columns(["TRIP_ID", "TIMESTAMP", "POLYLINE"], None, Path("a.csv"))
    {'polyline': 'POLYLINE', 'trip': 'TRIP_ID', 'time': 'TIMESTAMP'}
    """
    told = dict(columns or {})
    for role, name in told.items():
        if role not in GUESSES:
            raise InvalidParameter(f"columns has no role {role!r}; the roles are {', '.join(GUESSES)}.")
        if name is not None and name not in names:
            raise InvalidParameter(f"{path} has no column {name!r} for {role!r}; it has {', '.join(names)}.")
    lower: dict[str, str] = {}
    for name in names:
        lower.setdefault(name.strip().lower(), name)
    chosen: dict[str, str] = {}
    for role, guesses in GUESSES.items():
        guess = next((lower[word] for word in guesses if word in lower), None)
        name = told.get(role, guess)
        if name is not None:
            chosen[role] = name
    if "polyline" in chosen and {"lat", "lon"} <= told.keys():
        del chosen["polyline"]
    if "polyline" in chosen:
        chosen.pop("lat", None)
        chosen.pop("lon", None)
    elif not {"lat", "lon"} <= chosen.keys():
        raise InvalidFile(
            f"{path} has neither a column of polylines nor columns of latitudes and longitudes; its columns are "
            f"{', '.join(names)[:300]}. Say which they are: columns={{'polyline': ...}} or "
            "columns={'lat': ..., 'lon': ...}."
        )
    return chosen


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


def as_text(column: Any) -> NDArray[Any]:
    """Return a column as text, "" where nothing stands."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_floating(column.type):
        # Whole numbers become floats in a column with gaps.
        whole = pc.floor(column)
        if pc.all(pc.equal(whole, column)).as_py() is not False:
            column = pc.cast(column, pa.int64())
    text = pc.fill_null(pc.cast(column, pa.large_string()), "")
    return np.array(text.to_pylist(), dtype=np.str_) if len(text) else np.empty(0, dtype="<U1")


def as_numbers(column: Any) -> Float:
    """Return a column as float64, NaN where nothing that is a number stands."""
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        numbers = pc.cast(column, pa.float64(), safe=False)
    except pa.ArrowInvalid:
        return np.array([float_or_nan(text) for text in column.to_pylist()])
    return np.asarray(pc.fill_null(numbers, float("nan")).to_numpy(zero_copy_only=False), dtype=np.float64)


def as_times(column: Any) -> Float:
    """Return a column of times as numbers: dates as seconds since 1970 (UTC unless they say otherwise)."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_timestamp(column.type):
        micro = pc.cast(pc.cast(column, pa.timestamp("us", tz=column.type.tz), safe=False), pa.int64())
        return np.asarray(pc.cast(micro, pa.float64(), safe=False).to_numpy(zero_copy_only=False)) / 1e6
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        return as_numbers(column)
    try:
        return as_numbers(pc.cast(column, pa.float64()))
    except pa.ArrowInvalid:
        pass
    for kind in (pa.timestamp("us"), pa.timestamp("us", tz="UTC")):
        try:
            return as_times(pc.cast(column, kind))
        except pa.ArrowInvalid:
            continue
    return np.array([moment_s(text) for text in column.to_pylist()])


def write_parquet(trips: Trips, path: Any) -> None:
    """Write trips to `path`, one row a fix; see `Trips.to_parquet`."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = pa.array(trips.trip_of_fix)
    columns = {"trip": _as_arrow(trips.ids).take(rows)}
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


def float_or_nan(text: str | None) -> float:
    """Return a number, NaN where the text is none."""
    try:
        return float(text or "nan")
    except ValueError:
        return float("nan")


def moment_s(text: str | None) -> float:
    """Return a date or a number as seconds, NaN where it is neither."""
    number = float_or_nan(text)
    if number == number:  # a number of 8 or of 13 digits would pass for a date
        return number
    try:
        moment = datetime.fromisoformat((text or "").strip().replace("/", "-"))
    except ValueError:
        return number
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
