"""Tables of trips in CSV: block by block, whatever is broken in them."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from limiirl.errors import InvalidFile
from limiirl.roads.traces.tables import unreadable

# What pyarrow says of a table that ends after its head.
_NO_ROWS = ("cannot infer number of columns", "Could not skip initial")


def csv_names(path: Path) -> list[str]:
    """Return the names in the first row of a CSV file."""
    import pyarrow as pa

    try:
        with _open(path) as stream:
            head = bytearray()
            while b"\n" not in head and len(head) < 1 << 20:
                block = stream.read(4096)
                if not block:
                    break
                head += block
    except (pa.ArrowException, OSError) as error:
        raise unreadable(path, error) from None
    line = bytes(head).split(b"\n", 1)[0].decode("utf-8-sig", errors="replace").strip()
    if not line:
        raise InvalidFile(f"{path} is empty. Was it written to the end?")
    return next(csv.reader([line]))


def csv_batches(path: Path, chosen: Mapping[str, str], broken: list[tuple[int, str]]) -> Iterator[dict[str, Any]]:
    """Yield blocks of rows of a CSV file as {role: text}; rows of a wrong number of cells go to `broken`.

    A quote that is not closed swallows the lines after it. Those are read again at the end, each for itself.
    """
    import pyarrow as pa
    import pyarrow.csv as reading

    swallowed: list[str] = []

    def handle(row: Any) -> str:
        first, *rest = row.text.splitlines() or [""]
        # Numbered from 1 with the header.
        broken.append((-1 if row.number is None else row.number - 2, first))
        swallowed.extend(rest)
        return "skip"

    names = csv_names(path)
    places = {role: str(names.index(name)) for role, name in chosen.items()}
    columns = sorted(set(places.values()))
    try:
        with _open(path) as stream:
            reader = reading.open_csv(
                stream,
                # A trip may be long: a row must fit into a block. Latin-1 knows every byte, so that one that is no
                # UTF-8 costs a name at most; names are mended below.
                read_options=reading.ReadOptions(
                    use_threads=False,
                    block_size=1 << 24,
                    encoding="latin1",
                    skip_rows=1,
                    column_names=[str(i) for i in range(len(names))],
                ),
                parse_options=reading.ParseOptions(invalid_row_handler=handle, newlines_in_values=True),
                convert_options=reading.ConvertOptions(
                    include_columns=columns, column_types={name: pa.large_string() for name in columns}
                ),
            )
            for batch in reader:
                yield {role: _as_utf8(batch.column(place), role) for role, place in places.items()}
    except (pa.ArrowException, OSError) as error:
        if any(words in str(error) for words in _NO_ROWS):
            return
        raise unreadable(path, error) from None
    if swallowed:
        yield _one_by_one(swallowed, names, chosen, broken)


def _as_utf8(column: Any, role: str) -> Any:
    """Return text that was read as Latin-1 as the UTF-8 that it is; polylines have none but ASCII."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if role == "polyline" or pc.all(pc.string_is_ascii(column)).as_py() is not False:
        return column
    return pa.array(
        [text.encode("latin-1").decode("utf-8", errors="replace") for text in column.to_pylist()], pa.large_string()
    )


def _one_by_one(
    lines: list[str], names: list[str], chosen: Mapping[str, str], broken: list[tuple[int, str]]
) -> dict[str, Any]:
    """Return lines of a CSV file as {role: text}; those that are broken themselves go to `broken`."""
    import pyarrow as pa

    rows = []
    for line in lines:
        cells = next(csv.reader([line]), [])
        if len(cells) == len(names):
            rows.append(cells)
        else:
            broken.append((-1, line))
    return {
        role: pa.array([row[names.index(name)] for row in rows], pa.large_string()) for role, name in chosen.items()
    }


def _open(path: Path) -> Any:
    import pyarrow as pa

    with path.open("rb") as handle:
        zipped = handle.read(2) == b"\x1f\x8b"
    return pa.input_stream(str(path), compression="gzip" if zipped else None)
