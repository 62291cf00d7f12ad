"""Tables with a fix a row, gathered into trips."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from limiirl.roads.traces.assembly import Raw, as_names, unit_s
from limiirl.roads.traces.cells import Cells, as_text
from limiirl.roads.traces.trips import Skipped

Int = NDArray[np.int64]


def read_fix_rows(batches: Iterable[dict[str, Any]], cells: Cells) -> Raw:
    """Read a table with a fix a row, in whatever order: trips of several drivers may alternate.

    A trip is what has one id and one driver, so that ids may begin anew with every driver. Without ids, a driver makes
    one trip; without drivers too, the file does, under its own name. Pieces of a trip that was cut stay apart.
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
                columns.append(_encoded(batch[role]))
    cells.check()
    none = np.empty(0)
    north, east = np.concatenate([none, *lat]), np.concatenate([none, *lon])
    trip, trip_names = _codes(words["trip"], north.size)
    driver, driver_names = _codes(words["driver"], north.size)
    piece, piece_names = _codes(words["piece"], north.size)
    skipped = []
    used = trip >= 0
    if not used.all():
        lost = int(np.count_nonzero(~used))
        reason = f"{lost:,} row{'s' * (lost != 1)} of the table ha{'ve' if lost != 1 else 's'} no trip id"
        skipped.append(Skipped("", int(np.argmin(used)), reason, trip=False))
    order, starts = _gather(trip, (driver, piece), used)
    first = order[starts]
    notes = cells.notes
    if words["driver"] and (nobody := int(np.count_nonzero(driver[first] < 0))):
        notes["trips without a driver, whose name is blank"] = nobody
    if words["trip"]:
        ids = trip_names[trip[first]]
    elif words["driver"]:
        ids = driver_names[driver[first]]
    else:
        ids = np.full(first.size, cells.path.name.partition(".")[0])
    return Raw(
        north[order],
        east[order],
        unit_s(np.concatenate(times)[order], notes) if times else None,
        None,
        np.diff(np.append(starts, order.size)),
        first,
        ids,
        driver_names[driver[first]] if words["driver"] else None,
        skipped,
        notes,
        _numbers(piece_names[piece[first]]) if words["piece"] else None,
    )


def _encoded(column: Any) -> Any:
    """Return a column as numbers into its distinct values: a name repeats over all fixes of its trip."""
    import pyarrow as pa

    if pa.types.is_dictionary(column.type):
        return column
    if pa.types.is_nested(column.type):  # lists and the like, of which only the text can name a trip
        column = pa.array(as_text(column), pa.large_string())
    return column.dictionary_encode()


def _codes(columns: list[Any], n: int) -> tuple[Int, NDArray[Any]]:
    """Return a number (n,) for each row's name, and the names; -1 for none."""
    import pyarrow as pa

    if not columns:
        return np.zeros(n, dtype=np.int64), np.array([""])
    encoded = pa.chunked_array(columns).unify_dictionaries().combine_chunks()
    names = as_text(encoded.dictionary)
    codes = np.asarray(encoded.indices.fill_null(-1), dtype=np.int64)
    blank = np.flatnonzero(np.char.strip(names) == "")
    if blank.size:
        codes[np.isin(codes, blank)] = -1
    return codes, np.append(names, "")  # where -1 points


def _numbers(names: NDArray[Any]) -> Int:
    """Return the numbers of pieces; where they are named by anything else, those in order of the names."""
    found = as_names(names)
    if found.dtype.kind == "i" and found.min(initial=0) >= 0:
        return found
    return np.unique(names, return_inverse=True)[1].astype(np.int64)


def _gather(trip: Int, parts: tuple[Int, ...], used: NDArray[np.bool_]) -> tuple[Int, Int]:
    """Return the rows in order of their trips, by first appearance, and where each trip starts in that order."""
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
