"""Polylines in the cells of a table, as JSON text or lists."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import numpy as np

from limiirl._typing import FloatArray, IntArray
from limiirl.roads.kernels.gps import read_polylines
from limiirl.roads.traces.assembly import RawTrips, to_seconds
from limiirl.roads.traces.tables import COLUMN_NAMES, CellReader, as_text
from limiirl.roads.traces.trips import SkippedTrip

_INCOMPLETE = "the file marks it as incomplete (fixes are missing)"


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
        np.concatenate([none, *lat])[fixes],
        np.concatenate([none, *lon])[fixes],
        None,
        to_seconds(np.concatenate(starts)[keep], notes) if starts else None,
        sizes[keep],
        np.flatnonzero(keep),
        names[keep],
        np.concatenate(groups)[keep] if groups else None,
        [SkippedTrip(str(names[i]), i, reason) for i, reason in sorted(faults.items())],
        notes,
    )


def read_points(column: Any) -> tuple[FloatArray, IntArray, dict[int, str]]:
    """Return the points (n, 2) of a batch of polylines, their number per polyline, and problems by row."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        plain = _pairs(column)
        if plain is not None:
            return *plain, {}
        # Rare cases, named coordinates or missing values, are converted to text first.
        column = pa.array([None if value is None else _dump(value) for value in column.to_pylist()], pa.large_string())
    column = pc.fill_null(pc.cast(column, pa.large_string()), "")
    _, begin, data = column.buffers()
    place = np.frombuffer(begin, dtype=np.int64)[column.offset : column.offset + len(column) + 1]
    text = np.empty(0, dtype=np.uint8) if data is None else np.frombuffer(data, dtype=np.uint8)
    xy, counts, odd = read_polylines(text[place[0] : place[-1]], place - place[0])
    faults: dict[int, str] = {}
    more = []
    for i in odd.tolist():
        points = _parse_json(column[i].as_py())
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


def _pairs(column: Any) -> tuple[FloatArray, IntArray] | None:
    """Return points and counts of plain lists of pairs, or None for anything else."""
    import pyarrow as pa
    import pyarrow.compute as pc

    lists = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    if not any(test(column.type) and any(inner(column.type.value_type) for inner in lists) for test in lists):
        return None
    counts = np.asarray(pc.fill_null(pc.list_value_length(column), 0), dtype=np.int64)
    pairs = pc.list_flatten(column)
    numbers = pc.list_flatten(pairs)
    two = pc.equal(pc.list_value_length(pairs), 2)
    if pairs.null_count or numbers.null_count or pc.all(two).as_py() is False or not _numeric(numbers.type):
        return None
    return np.asarray(numbers, dtype=np.float64).reshape(-1, 2), counts


def _numeric(kind: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_floating(kind) or pa.types.is_integer(kind))


def _dump(points: Any) -> str:
    """Convert a list of pairs, or of {lon, lat}, to JSON."""
    if points and isinstance(points[0], dict):
        points = [[_by_name(point, role) for role in ("lon", "lat")] for point in points]
    return json.dumps(points)


def _by_name(point: dict[str, Any], role: str) -> Any:
    return next((value for key, value in point.items() if key.lower() in COLUMN_NAMES[role]), None)


def _parse_json(text: str) -> FloatArray | str:
    """Return the points (k, 2) of a JSON polyline, NaN for missing numbers; or a description of the problem."""
    if not text.strip():
        return "it has no polyline"
    try:
        points = json.loads(text)
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
