"""Tables of trips in CSV: block by block, whatever is broken in them."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from limiirl.errors import InvalidFile
from limiirl.roads.traces.tables import unreadable

# What pyarrow says of a table that ends after its head.
_NO_ROWS = ("cannot infer number of columns", "Could not skip initial")
_SEPARATORS = ",;\t|"
_MOST_HEAD = 1 << 20
_LINE_END = re.compile(r"\r\n?|\n")


class CsvHead(NamedTuple):
    """What the first row of a CSV file says of it.

    Attributes
    ----------
    names : list of str
        Of its columns.
    separator : str
        What stands between cells: the one of ``, ; tab |`` that makes most of them.
    encoding : str
        "utf-16" where the file is marked so; else "latin1", which knows every byte, so that what is no UTF-8 costs a
        name at most.
    """

    names: list[str]
    separator: str
    encoding: str


def csv_head(path: Path) -> CsvHead:
    r"""Read the first row of a CSV file, whatever ends it: a line feed, a carriage return or both.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "trips.csv"
    >>> _ = path.write_bytes("lat;lon\r41,15;-8,63\r".encode("utf-16"))
    >>> csv_head(path)
    CsvHead(names=['lat', 'lon'], separator=';', encoding='utf-16')
    """
    import pyarrow as pa

    try:
        with _open(path) as stream:
            head = bytearray()
            while not any(end in head for end in (b"\n", b"\r")) and len(head) < _MOST_HEAD:
                block = stream.read(4096)
                if not block:
                    break
                head += block
    except (pa.ArrowException, OSError) as error:
        raise unreadable(path, error) from None
    wide = head.startswith((b"\xff\xfe", b"\xfe\xff"))
    if not wide and b"\0" in head:
        raise InvalidFile(
            f"{path} is no text: it has zero bytes, as a program's own format or unmarked UTF-16 has. Give CSV in "
            "UTF-8, parquet or GPX."
        )
    if wide:
        line = re.split(r"[\r\n]", head[: len(head) // 2 * 2].decode("utf-16", errors="replace"), maxsplit=1)[0]
    else:
        line = _decoded(re.split(rb"[\r\n]", bytes(head), maxsplit=1)[0])
    line = line.strip()
    if not line:
        raise InvalidFile(f"{path} is empty, or its first row is. Was it written to the end?")
    try:
        rows = [next(csv.reader([line], delimiter=separator)) for separator in _SEPARATORS]
    except csv.Error as error:
        raise InvalidFile(f"{path} begins with no row of names ({error}). Give CSV in UTF-8, parquet or GPX.") from None
    names = max(rows, key=len)
    return CsvHead(names, _SEPARATORS[rows.index(names)], "utf-16" if wide else "latin1")


def csv_batches(
    path: Path, head: CsvHead, chosen: Mapping[str, str], broken: list[tuple[int, str]], notes: Counter[str]
) -> Iterator[dict[str, Any]]:
    """Yield blocks of rows of a CSV file as {role: text}; rows of a wrong number of cells go to `broken`.

    A quote that is not closed swallows the lines after it. Those are read again at the end, each for itself.
    """
    import pyarrow as pa
    import pyarrow.csv as reading

    swallowed: list[str] = []

    def as_read(block: dict[str, Any]) -> dict[str, Any]:
        if head.encoding != "latin1":
            return block
        return {role: _as_utf8(column, role, notes) for role, column in block.items()}

    def handle(row: Any) -> str:
        # Not `splitlines`: for it half a letter of UTF-8, read as Latin-1, may end a line.
        first, *rest = _LINE_END.split(row.text)
        # Numbered from 1 with the header.
        broken.append((-1 if row.number is None else row.number - 2, _shown(first, head)))
        swallowed.extend(line for line in rest if line)
        return "skip"

    places = {role: str(head.names.index(name)) for role, name in chosen.items()}
    columns = sorted(set(places.values()))
    try:
        with _open(path) as stream:
            reader = reading.open_csv(
                stream,
                # A trip may be long: a row must fit into a block.
                read_options=reading.ReadOptions(
                    use_threads=False,
                    block_size=1 << 24,
                    encoding=head.encoding,
                    skip_rows=1,
                    column_names=[str(i) for i in range(len(head.names))],
                ),
                parse_options=reading.ParseOptions(
                    delimiter=head.separator, invalid_row_handler=handle, newlines_in_values=True
                ),
                convert_options=reading.ConvertOptions(
                    include_columns=columns, column_types={name: pa.large_string() for name in columns}
                ),
            )
            for batch in reader:
                yield as_read({role: batch.column(place) for role, place in places.items()})
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        if any(words in str(error) for words in _NO_ROWS):
            return
        raise unreadable(path, error) from None
    if swallowed:
        yield as_read(_one_by_one(swallowed, head, chosen, broken))


def _as_utf8(column: Any, role: str, notes: Counter[str]) -> Any:
    """Return text that was read as Latin-1 as the UTF-8 that it is; polylines have none but ASCII."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if role == "polyline" or pc.all(pc.string_is_ascii(column)).as_py() is not False:
        return column
    cells = []
    for text in column.to_pylist():
        mended = _decoded(text.encode("latin-1"))
        # Kept as it is, so that two names stay two.
        notes["cells that are no UTF-8, read as Latin-1"] += mended == text and not text.isascii()
        cells.append(mended)
    return pa.array(cells, pa.large_string())


def _decoded(text: bytes) -> str:
    """Return text that is UTF-8, or else Latin-1."""
    try:
        return text.decode("utf-8-sig")
    except UnicodeDecodeError:
        return text.decode("latin-1")


def _shown(line: str, head: CsvHead) -> str:
    """Return a line as it stands in the file."""
    return _decoded(line.encode("latin-1")) if head.encoding == "latin1" else line


def _one_by_one(
    lines: list[str], head: CsvHead, chosen: Mapping[str, str], broken: list[tuple[int, str]]
) -> dict[str, Any]:
    """Return lines of a CSV file as {role: text}; those that are broken themselves go to `broken`."""
    import pyarrow as pa

    rows = []
    for line in lines:
        try:
            cells = next(csv.reader([line], delimiter=head.separator), [])
        except csv.Error:  # a cell that is too long for it
            cells = []
        if len(cells) == len(head.names):
            rows.append(cells)
        else:
            broken.append((-1, _shown(line, head)))
    return {
        role: pa.array([row[head.names.index(name)] for row in rows], pa.large_string())
        for role, name in chosen.items()
    }


def _open(path: Path) -> Any:
    import pyarrow as pa

    with path.open("rb") as handle:
        zipped = handle.read(2) == b"\x1f\x8b"
    return pa.input_stream(str(path), compression="gzip" if zipped else None)
