"""Reader of parquet and CSV tables of trips, with one fix or one polyline per row."""

from __future__ import annotations

import csv
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from limiirl._io import atomic_write, load_json
from limiirl._typing import FloatArray, IntArray
from limiirl.errors import InvalidFile, InvalidParameter
from limiirl.roads.kernels.gps import read_polylines
from limiirl.roads.traces.assembly import RawTrips, as_names, to_seconds
from limiirl.roads.traces.trips import SkippedTrip

if TYPE_CHECKING:
    from limiirl.roads.traces.trips import Trips


# Recognised column names by role, in lower case and in order of preference.
COLUMN_NAMES: Mapping[str, tuple[str, ...]] = {
    "polyline": ("polyline",),
    "lat": ("lat", "latitude", "y"),
    "lon": ("lon", "lng", "long", "longitude", "x"),
    "trip": ("trip_id", "trip", "tripid", "traj_id", "trajectory_id", "track_id", "track", "journey"),
    "piece": ("piece",),
    "driver": ("driver", "driver_id", "taxi_id", "taxi", "vehicle_id", "vehicle", "user_id", "user"),
    "time": ("timestamp", "time", "time_s", "datetime", "date_time", "start_time", "unix_time"),
    "missing": ("missing_data",),
}
# Names of the trip column that are recognised only in tables of polylines; in tables of fixes, they may be ids of
# fixes.
_IF_NO_FIXES: Mapping[str, tuple[str, ...]] = {"polyline": ("trajectory", "coordinates"), "trip": ("id",)}
_AMBIGUOUS = ("id", "trajectory")


def choose_columns(names: list[str], columns: Mapping[str, str | None] | None, path: Path) -> dict[str, str]:
    """Return the column of each role, from `columns` or by its name."""
    given = dict(columns or {})
    for role, name in given.items():
        if role not in COLUMN_NAMES:
            raise InvalidParameter.of("columns", role, f"must have keys among {', '.join(COLUMN_NAMES)}")
        if name is not None and name not in names:
            message = f"columns[{role!r}] is {name!r}, but {path} has the columns {', '.join(names)}."
            raise InvalidParameter(message, parameter="columns", value=name)
    chosen = _guess_columns(names) | given
    if {"lat", "lon"} <= given.keys() and "polyline" not in given:
        chosen["polyline"] = None
    if chosen.get("polyline") is not None:
        chosen["lat"] = chosen["lon"] = None
    elif chosen.get("lat") is None or chosen.get("lon") is None:
        message = (
            f"{path} has no recognised column of polylines, or of latitudes and longitudes "
            f"({', '.join(COLUMN_NAMES['polyline'] + COLUMN_NAMES['lat'] + COLUMN_NAMES['lon'])}); its columns are "
            f"{', '.join(names)[:300]}. Check that the first row has column names, and pass "
            "columns={'polyline': ...} or columns={'lat': ..., 'lon': ...}; on the command line, --columns lat=NAME."
        )
        raise InvalidFile(message, parameter="columns", value=str(path))
    elif chosen.get("trip") is None and "trip" not in given:
        ambiguous = next((name for name in names if name.strip().lower() in _AMBIGUOUS), None)
        if ambiguous is not None:
            message = (
                f"{path}: column {ambiguous!r} may be an id of trips or of fixes; the columns are "
                f"{', '.join(names)[:300]}. Pass columns={{'trip': {ambiguous!r}}} or columns={{'trip': None}}."
            )
            raise InvalidFile(message, parameter="columns", value=ambiguous)
    return {role: name for role in COLUMN_NAMES if (name := chosen.get(role)) is not None}


def _guess_columns(names: list[str]) -> dict[str, str | None]:
    """Return the column of each role by its name; None if no name is recognised."""
    lower: dict[str, str] = {}
    for name in names:
        lower.setdefault(name.strip().lower(), name)

    def first(words: tuple[str, ...]) -> str | None:
        return next((lower[word] for word in words if word in lower), None)

    guessed = {role: first(words) for role, words in COLUMN_NAMES.items()}
    if guessed["lat"] is None or guessed["lon"] is None or guessed["polyline"] is not None:
        guessed |= {role: guessed[role] or first(words) for role, words in _IF_NO_FIXES.items()}
    return guessed


def read_parquet_names(path: Path) -> list[str]:
    """Return the column names of a parquet file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with path.open("rb") as handle, pq.ParquetFile(handle) as file:
            return list(file.schema_arrow.names)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise make_read_error(path, error) from None


def read_parquet_batches(path: Path, chosen: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    """Yield batches of rows of a parquet file as {role: column}."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with path.open("rb") as handle, pq.ParquetFile(handle, page_checksum_verification=True) as file:
            for batch in file.iter_batches(batch_size=1 << 15, columns=list(dict.fromkeys(chosen.values()))):
                yield {role: batch.column(name) for role, name in chosen.items()}
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise make_read_error(path, error) from None


def write_parquet(trips: Trips, path: Any) -> None:
    """Write trips to `path`, one row per fix; see `Trips.to_parquet`."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = pa.array(trips.trip_of_fix)
    columns = {"trip": _as_arrow(trips.ids).take(rows), "piece": _as_arrow(trips.pieces).take(rows)}
    columns |= {"time": pa.array(trips.time_s), "lat": pa.array(trips.lat), "lon": pa.array(trips.lon)}
    if trips.groups is not None:
        columns["driver"] = _as_arrow(trips.groups).take(rows)
    with atomic_write(path) as scratch, scratch.open("wb") as stream:  # pyarrow opens only paths in UTF-8
        pq.write_table(pa.table(columns), stream, compression="zstd", write_page_checksum=True)


def make_read_error(path: Path, error: Exception) -> Exception:
    """Return the error to raise for a file that could not be read completely."""
    # Errors of the operating system, such as missing permission, are raised unchanged.
    if isinstance(error, OSError) and error.errno is not None:
        return error
    reason = str(error).partition("\n")[0].rstrip(".")[:200]
    return InvalidFile.at(path, f"is corrupted or truncated ({reason}). Copy or write it again.")


def _as_arrow(values: NDArray[Any]) -> Any:
    import pyarrow as pa

    return pa.array(values, type=pa.large_string() if values.dtype.kind == "U" else None)


# pyarrow's messages for a table without rows.
_NO_ROWS = ("cannot infer number of columns", "Could not skip initial")
_SEPARATORS = ",;\t|"
_MAX_HEADER = 1 << 20
_LINE_END = re.compile(r"\r\n?|\n")


class CsvHead(NamedTuple):
    """Column names, separator and encoding of a CSV file.

    The separator is the one of ``, ; tab |`` that yields the most cells. The encoding is "utf-16" if the file has its
    byte-order mark, else "latin1", which accepts every byte; cells are decoded as UTF-8 afterwards.
    """

    names: list[str]
    separator: str
    encoding: str


def read_csv_head(path: Path) -> CsvHead:
    """Read the header of a CSV file with any line ending."""
    import pyarrow as pa

    try:
        with _open(path) as stream:
            head = bytearray()
            while not any(end in head for end in (b"\n", b"\r")) and len(head) < _MAX_HEADER:
                block = stream.read(4096)
                if not block:
                    break
                head += block
    except (pa.ArrowException, OSError) as error:
        raise make_read_error(path, error) from None
    wide = head.startswith((b"\xff\xfe", b"\xfe\xff"))
    if not wide and b"\0" in head:
        reason = "it contains null bytes (binary data, or UTF-16 without a byte-order mark)"
        raise InvalidFile.at(path, f"is not a text file: {reason}. Pass CSV in UTF-8, parquet or GPX.")
    if wide:
        line = re.split(r"[\r\n]", head[: len(head) // 2 * 2].decode("utf-16", errors="replace"), maxsplit=1)[0]
    else:
        line = _decode(re.split(rb"[\r\n]", bytes(head), maxsplit=1)[0])
    line = line.strip()
    if not line:
        raise InvalidFile.at(path, "or its first row is empty. Check that the file is complete.")
    try:
        rows = [next(csv.reader([line], delimiter=separator)) for separator in _SEPARATORS]
    except csv.Error as error:
        raise InvalidFile.at(path, f"has no header row ({error}). Pass CSV in UTF-8, parquet or GPX.") from None
    names = max(rows, key=len)
    return CsvHead(names, _SEPARATORS[rows.index(names)], "utf-16" if wide else "latin1")


def read_csv_batches(
    path: Path, head: CsvHead, chosen: Mapping[str, str], broken: list[tuple[int, str]], notes: Counter[str]
) -> Iterator[dict[str, Any]]:
    """Yield batches of rows of a CSV file as {role: text}; add rows with a wrong number of cells to `broken`.

    An unclosed quotation mark merges the following lines into one row; they are parsed separately at the end.
    """
    import pyarrow as pa
    import pyarrow.csv as reading

    merged_lines: list[str] = []

    def decode(block: dict[str, Any]) -> dict[str, Any]:
        if head.encoding != "latin1":
            return block
        return {role: _as_utf8(column, role, notes) for role, column in block.items()}

    def skip_row(row: Any) -> str:
        # `splitlines` would also split within multi-byte UTF-8 characters that were read as Latin-1.
        first, *rest = _LINE_END.split(row.text)
        # Rows are numbered from 1, including the header.
        broken.append((-1 if row.number is None else row.number - 2, _show_line(first, head)))
        merged_lines.extend(line for line in rest if line)
        return "skip"

    places = {role: str(head.names.index(name)) for role, name in chosen.items()}
    columns = sorted(set(places.values()))
    try:
        with _open(path) as stream:
            reader = reading.open_csv(
                stream,
                # A block must contain a complete row, which may be long.
                read_options=reading.ReadOptions(
                    use_threads=False,
                    block_size=1 << 24,
                    encoding=head.encoding,
                    skip_rows=1,
                    column_names=[str(i) for i in range(len(head.names))],
                ),
                parse_options=reading.ParseOptions(
                    delimiter=head.separator, invalid_row_handler=skip_row, newlines_in_values=True
                ),
                convert_options=reading.ConvertOptions(
                    include_columns=columns, column_types={name: pa.large_string() for name in columns}
                ),
            )
            for batch in reader:
                yield decode({role: batch.column(place) for role, place in places.items()})
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        if any(words in str(error) for words in _NO_ROWS):
            return
        raise make_read_error(path, error) from None
    if merged_lines:
        yield decode(_read_lines(merged_lines, head, chosen, broken))


def _as_utf8(column: Any, role: str, notes: Counter[str]) -> Any:
    """Decode text that was read as Latin-1 as UTF-8; polylines are ASCII."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if role == "polyline" or pc.all(pc.string_is_ascii(column)).as_py() is not False:
        return column
    cells = []
    for text in column.to_pylist():
        decoded = _decode(text.encode("latin-1"))
        # Text that is not UTF-8 remains unchanged, so that distinct names remain distinct.
        notes["cells that are not UTF-8, read as Latin-1"] += decoded == text and not text.isascii()
        cells.append(decoded)
    return pa.array(cells, pa.large_string())


def _decode(text: bytes) -> str:
    try:
        return text.decode("utf-8-sig")
    except UnicodeDecodeError:
        return text.decode("latin-1")


def _show_line(line: str, head: CsvHead) -> str:
    return _decode(line.encode("latin-1")) if head.encoding == "latin1" else line


def _read_lines(
    lines: list[str], head: CsvHead, chosen: Mapping[str, str], broken: list[tuple[int, str]]
) -> dict[str, Any]:
    """Return lines of a CSV file as {role: text}; add lines with a wrong number of cells to `broken`."""
    import pyarrow as pa

    rows = []
    for line in lines:
        try:
            cells = next(csv.reader([line], delimiter=head.separator), [])
        except csv.Error:  # a cell beyond the size limit
            cells = []
        if len(cells) == len(head.names):
            rows.append(cells)
        else:
            broken.append((-1, _show_line(line, head)))
    return {
        role: pa.array([row[head.names.index(name)] for row in rows], pa.large_string())
        for role, name in chosen.items()
    }


def _open(path: Path) -> Any:
    import pyarrow as pa

    with path.open("rb") as handle:
        zipped = handle.read(2) == b"\x1f\x8b"
    return pa.input_stream(str(path), compression="gzip" if zipped else None)


DECIMAL_COMMAS = "numbers with a decimal comma, read as a point"
# Cells that mean a missing value.
_NOTHING = ("", "nan", "null", "none", "na", "n/a", "-")
_COMMA = re.compile(r"\s*[-+]?\d+,\d+\s*")
_REMEDIES = {
    "lat": ("latitude", "Write degrees as 41.15, or choose another column: columns={'lat': ...}."),
    "lon": ("longitude", "Write degrees as -8.63, or choose another column: columns={'lon': ...}."),
    "time": ("time", "Write times as 2013-07-02 18:05:00 or as seconds since 1970, or pass columns={'time': None}."),
}


class CellReader:
    """Parser of batches of numbers and times; records the first unreadable cell of each role."""

    def __init__(self, path: Path, chosen: Mapping[str, str]) -> None:
        self.path, self.notes = path, Counter[str]()
        self._chosen = chosen
        self._read: Counter[str] = Counter()
        self._odd: dict[str, tuple[int, str]] = {}

    def numbers(self, role: str, column: Any, row: int) -> FloatArray:
        """Return a batch of a column as float64, with NaN for unreadable cells; its first cell is in row `row`."""
        return self._record(role, column, row, as_numbers(column, self.notes))

    def times(self, role: str, column: Any, row: int) -> FloatArray:
        """Return a batch of a column as times; see `as_times`."""
        return self._record(role, column, row, as_times(column, self.notes))

    def check(self) -> None:
        """Raise `InvalidFile` for a column without a single readable cell."""
        for role, (row, text) in self._odd.items():
            if not self._read[role]:
                word, remedy = _REMEDIES[role]
                message = (
                    f"{self.path}: column {self._chosen[role]!r} has no readable {word}; data row {row} (from 0) is "
                    f"{text[:40]!r}. {remedy}"
                )
                raise InvalidFile(message, parameter="columns", value=self._chosen[role], index=row)

    def _record(self, role: str, column: Any, row: int, values: FloatArray) -> FloatArray:
        known = np.isfinite(values)
        self._read[role] += int(np.count_nonzero(known))
        if role not in self._odd and not self._read[role]:
            for i in np.flatnonzero(~known).tolist():
                text = str(column[i].as_py())
                if text.strip().lower() not in _NOTHING:
                    self._odd[role] = row + i, text
                    break
        return values


def as_text(column: Any) -> NDArray[Any]:
    """Return a column as text, with "" for missing values."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_floating(column.type):
        column = pc.if_else(pc.is_nan(column), pa.scalar(None, column.type), column)
        # Integers become floats in a column with missing values.
        if pc.all(pc.equal(pc.floor(column), column)).as_py() is not False:
            with suppress(pa.ArrowInvalid):  # integers beyond 64 bits stay floats
                column = pc.cast(column, pa.int64())
    try:
        text = pc.fill_null(pc.cast(column, pa.large_string()), "").to_pylist()
    except pa.ArrowException:  # Arrow cannot cast lists to text
        text = ["" if value is None else str(value) for value in column.to_pylist()]
    return np.array(text, dtype=np.str_) if text else np.empty(0, dtype="<U1")


def as_numbers(column: Any, notes: Counter[str] | None = None) -> FloatArray:
    """Return a column as float64, with NaN for unreadable cells; decimal commas are counted in `notes`."""
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        numbers = pc.cast(column, pa.float64(), safe=False)
    except pa.ArrowException:
        cells = column.to_pylist()
        _count_commas(cells, notes)
        return np.array([float_or_nan(text) for text in cells])
    return np.asarray(pc.fill_null(numbers, float("nan")).to_numpy(zero_copy_only=False), dtype=np.float64)


def as_times(column: Any, notes: Counter[str] | None = None) -> FloatArray:
    """Return a column of times as numbers; dates are seconds since 1970, in UTC unless they have a time zone."""
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
    cells = column.to_pylist()
    _count_commas(cells, notes)
    return np.array([parse_time(text) for text in cells])


def float_or_nan(text: Any) -> float:
    """Return a number, or NaN if it is unreadable; a comma is accepted as decimal separator."""
    try:
        return float(text or "nan")
    except (ValueError, TypeError):
        comma = isinstance(text, str) and _COMMA.fullmatch(text)
        return float(text.replace(",", ".")) if comma else float("nan")


def parse_time(text: str | None) -> float:
    """Return a date or a number as seconds, or NaN if it is unreadable."""
    number = float_or_nan(text)
    if not np.isnan(number):  # before dates, since a number of 8 or 13 digits would parse as a date
        return number
    try:
        moment = datetime.fromisoformat((text or "").strip().replace("/", "-"))
    except ValueError:
        return number
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _count_commas(cells: list[Any], notes: Counter[str] | None) -> None:
    if notes is not None:
        notes[DECIMAL_COMMAS] += sum(isinstance(text, str) and _COMMA.fullmatch(text) is not None for text in cells)


def read_fix_rows(batches: Iterable[dict[str, Any]], cells: CellReader) -> RawTrips:
    """Read a table with one fix per row in any order; rows of different trips may alternate.

    Fixes with the same id, driver and piece form a trip. Without these columns, all fixes of the file form one trip.
    """
    lat, lon, times = [], [], []
    words: dict[str, list[Any]] = {"trip": [], "driver": [], "piece": []}
    row = 0
    for batch in batches:
        lat.append(cells.numbers("lat", batch["lat"], row))
        lon.append(cells.numbers("lon", batch["lon"], row))
        if "time" in batch:
            times.append(cells.times("time", batch["time"], row))
        row += lat[-1].size
        for role, columns in words.items():
            if role in batch:
                columns.append(_encode(batch[role]))
    cells.check()
    none = np.empty(0)
    north, east = np.concatenate([none, *lat]), np.concatenate([none, *lon])
    trip, trip_names = _unify_codes(words["trip"], north.size)
    driver, driver_names = _unify_codes(words["driver"], north.size)
    piece, piece_names = _unify_codes(words["piece"], north.size)
    skipped = []
    used = trip >= 0
    if not used.all():
        lost = int(np.count_nonzero(~used))
        reason = f"{lost:,} row{'s' * (lost != 1)} of the table ha{'ve' if lost != 1 else 's'} no trip id"
        skipped.append(SkippedTrip("", int(np.argmin(used)), reason, trip=False))
    order, starts = _group_rows(trip, (driver, piece), used)
    first = order[starts]
    notes = cells.notes
    if words["driver"] and (unnamed := int(np.count_nonzero(driver[first] < 0))):
        notes["trips without a driver name"] = unnamed
    if words["trip"]:
        ids = trip_names[trip[first]]
    elif words["driver"]:
        ids = driver_names[driver[first]]
    else:
        ids = np.full(first.size, cells.path.name.partition(".")[0])
    return RawTrips(
        lat=north[order],
        lon=east[order],
        time=to_seconds(np.concatenate(times)[order], notes) if times else None,
        start=None,
        counts=np.diff(np.append(starts, order.size)),
        rows=first,
        ids=ids,
        groups=driver_names[driver[first]] if words["driver"] else None,
        skipped=skipped,
        notes=notes,
        pieces=_piece_numbers(piece_names[piece[first]]) if words["piece"] else None,
    )


def _encode(column: Any) -> Any:
    """Dictionary-encode a column; names are repeated for every fix of a trip."""
    import pyarrow as pa

    if pa.types.is_dictionary(column.type):
        return column
    if pa.types.is_nested(column.type):  # nested types cannot be encoded; use their text
        column = pa.array(as_text(column), pa.large_string())
    return column.dictionary_encode()


def _unify_codes(columns: list[Any], n: int) -> tuple[IntArray, NDArray[Any]]:
    """Return the index (n,) of the name of each row (-1 if the name is missing), and the names."""
    import pyarrow as pa

    if not columns:
        return np.zeros(n, dtype=np.int64), np.array([""])
    encoded = pa.chunked_array(columns).unify_dictionaries().combine_chunks()
    names = as_text(encoded.dictionary)
    codes = np.asarray(encoded.indices.fill_null(-1), dtype=np.int64)
    blank = np.flatnonzero(np.char.strip(names) == "")
    if blank.size:
        codes[np.isin(codes, blank)] = -1
    return codes, np.append(names, "")  # the name of index -1


def _piece_numbers(names: NDArray[Any]) -> IntArray:
    """Return the piece numbers; names that are not nonnegative integers are replaced by their ranks."""
    numbers = as_names(names)
    if numbers.dtype.kind == "i" and numbers.min(initial=0) >= 0:
        return numbers
    return np.unique(names, return_inverse=True)[1].astype(np.int64)


def _group_rows(trip: IntArray, parts: tuple[IntArray, ...], used: NDArray[np.bool_]) -> tuple[IntArray, IntArray]:
    """Return the rows grouped by trip, in order of first appearance, and the start of each trip."""
    key = trip
    for part in parts:
        key = key * (part.max(initial=0) + 2) + part + 1
    rows = np.flatnonzero(used)
    _, first, inverse = np.unique(key[rows], return_index=True, return_inverse=True)
    rank = np.empty(first.size, dtype=np.int64)
    rank[np.argsort(first, kind="stable")] = np.arange(first.size)
    number = rank[inverse]
    order = rows[np.argsort(number, kind="stable")]
    counts = np.bincount(number, minlength=first.size)
    return order, np.cumsum(counts) - counts


_INCOMPLETE = "it is marked as incomplete in the file"


def read_polyline_rows(batches: Iterable[dict[str, Any]], cells: CellReader) -> RawTrips:
    """Read a table with one polyline per row, in batches."""
    lat, lon, counts, starts, ids, groups = [], [], [], [], [], []
    faults: dict[int, str] = {}
    row = 0
    for batch in batches:
        xy, n_points, wrong = read_points(batch["polyline"])
        if "missing" in batch:
            marked = np.char.lower(as_text(batch["missing"]))
            for i in np.flatnonzero(np.isin(marked, ("true", "1", "yes"))).tolist():
                wrong.setdefault(i, _INCOMPLETE)
        faults |= {row + i: reason for i, reason in wrong.items()}
        lat.append(np.ascontiguousarray(xy[:, 1]))
        lon.append(np.ascontiguousarray(xy[:, 0]))
        counts.append(n_points)
        place = np.arange(row, row + n_points.size)
        ids.append(as_text(batch["trip"]) if "trip" in batch else place.astype(np.str_))
        if "time" in batch:
            starts.append(cells.times("time", batch["time"], row))
        if "driver" in batch:
            groups.append(as_text(batch["driver"]))
        row += n_points.size
    cells.check()
    sizes = np.concatenate([np.empty(0, dtype=np.int64), *counts])
    none = np.empty(0)
    names = np.concatenate([np.empty(0, dtype="<U1"), *ids])
    keep = np.ones(row, dtype=np.bool_)
    keep[list(faults)] = False
    fixes = np.repeat(keep, sizes) if faults else slice(None)
    notes = cells.notes
    return RawTrips(
        lat=np.concatenate([none, *lat])[fixes],
        lon=np.concatenate([none, *lon])[fixes],
        time=None,
        start=to_seconds(np.concatenate(starts)[keep], notes) if starts else None,
        counts=sizes[keep],
        rows=np.flatnonzero(keep),
        ids=names[keep],
        groups=np.concatenate(groups)[keep] if groups else None,
        skipped=[SkippedTrip(str(names[i]), i, reason) for i, reason in sorted(faults.items())],
        notes=notes,
    )


def read_points(column: Any) -> tuple[FloatArray, IntArray, dict[int, str]]:
    """Return the points (n, 2) of a batch of polylines, their number per polyline, and problems by row."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        plain = _parse_pairs(column)
        if plain is not None:
            return *plain, {}
        # Named coordinates and missing values are rare; they are converted to text first.
        texts = [None if value is None else _to_json(value) for value in column.to_pylist()]
        column = pa.array(texts, pa.large_string())
    column = pc.fill_null(pc.cast(column, pa.large_string()), "")
    _, begin, data = column.buffers()
    place = np.frombuffer(begin, dtype=np.int64)[column.offset : column.offset + len(column) + 1]
    text = np.empty(0, dtype=np.uint8) if data is None else np.frombuffer(data, dtype=np.uint8)
    xy, counts, odd = read_polylines(text[place[0] : place[-1]], place - place[0])
    faults: dict[int, str] = {}
    more = []
    for i in odd.tolist():
        points = _parse_polyline(column[i].as_py())
        if isinstance(points, str):
            faults[i] = points
        elif len(points):
            more.append((i, points))
    if more:
        at = np.concatenate([[0], np.cumsum(counts)])
        where = np.concatenate([np.full(len(points), at[i]) for i, points in more])
        xy = np.insert(xy, where, np.concatenate([points for _, points in more]), axis=0)
        for i, points in more:
            counts[i] = len(points)
    return xy, counts, faults


def _parse_pairs(column: Any) -> tuple[FloatArray, IntArray] | None:
    """Return the points and counts of a column of lists of pairs, or None if the column has another type."""
    import pyarrow as pa
    import pyarrow.compute as pc

    lists = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    if not any(test(column.type) and any(inner(column.type.value_type) for inner in lists) for test in lists):
        return None
    counts = np.asarray(pc.fill_null(pc.list_value_length(column), 0), dtype=np.int64)
    pairs = pc.list_flatten(column)
    numbers = pc.list_flatten(pairs)
    if not (pa.types.is_floating(numbers.type) or pa.types.is_integer(numbers.type)):
        return None
    two = pc.equal(pc.list_value_length(pairs), 2)
    if pairs.null_count or numbers.null_count or pc.all(two).as_py() is False:
        return None
    return np.asarray(numbers, dtype=np.float64).reshape(-1, 2), counts


def _to_json(points: Any) -> str:
    if points and isinstance(points[0], dict):
        roles = [COLUMN_NAMES[role] for role in ("lon", "lat")]
        points = [[next((x for key, x in p.items() if key.lower() in names), None) for names in roles] for p in points]
    return json.dumps(points)


def _parse_polyline(text: str) -> FloatArray | str:
    """Return the points (k, 2) of a JSON polyline, with NaN for missing numbers, or a description of the problem."""
    if not text.strip():
        return "it has no polyline"
    try:
        points = load_json(text)
    except ValueError as error:
        return f"its polyline is not JSON ({error}), perhaps truncated; it ends in {text[-20:]!r}"
    except RecursionError:
        return "its polyline is not JSON: brackets are nested too deeply"
    if not isinstance(points, list) or not all(isinstance(point, list) and len(point) >= 2 for point in points):
        return "its polyline is not a list of pairs [longitude, latitude]"
    numbers = [[_float(x) for x in point[:2]] for point in points]
    return np.array(numbers, dtype=np.float64).reshape(-1, 2)


def _float(value: Any) -> float:
    try:
        return float(value) if isinstance(value, int | float) else float("nan")
    except OverflowError:
        return float("inf")
