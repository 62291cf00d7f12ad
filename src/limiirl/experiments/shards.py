"""Records as bytes: a parquet table with a typed column for every field, restored exactly and checked by its name."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import fields
from functools import cache
from operator import index
from pathlib import Path
from typing import Any

from limiirl.errors import InvalidFile, InvalidParameter
from limiirl.experiments.records import Record

FORMAT = "limiirl.records"
VERSION = 1

# Arrow's own exceptions for values that do not fit are a ValueError and a TypeError.
_UNFIT = (ValueError, TypeError, OverflowError, AttributeError)


class Damaged(InvalidFile):
    """A file of a store is truncated or altered; the store puts it aside, and what it held is computed again."""


def digest(data: bytes) -> str:
    """Return the name of a file with this content: 32 hexadecimal digits.

    >>> digest(b"whole") == digest(b"whol")
    False
    """
    return hashlib.blake2b(data, digest_size=16).hexdigest()


@cache
def schema() -> Any:
    """Return the Arrow schema of a shard, which follows from the fields of `Record`.

    >>> schema().field("history").type
    ListType(list<item: double>)
    """
    import pyarrow as pa

    columns = {
        "str": pa.string(),
        "int": pa.int64(),
        "float": pa.float64(),
        "bool": pa.bool_(),
        "list[float]": pa.list_(pa.float64()),
        "list[list[float]]": pa.list_(pa.list_(pa.float64())),
    }
    typed = [pa.field(field.name, columns[str(field.type).removesuffix(" | None")]) for field in fields(Record)]
    return pa.schema(typed, metadata={"limiirl.format": FORMAT, "limiirl.version": str(VERSION)})


def pack(records: Sequence[Record]) -> bytes:
    """Return the content of a shard with these records.

    >>> pack([Record("ab", 0, nll=1.5)])[:4]
    b'PAR1'
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = [_column(field, [getattr(record, field.name) for record in records]) for field in schema()]
    out = pa.BufferOutputStream()
    # A shard has few rows of digits: dictionaries and statistics would be a quarter of it, and nothing can be squeezed.
    pq.write_table(
        pa.table(columns, schema=schema()),
        out,
        compression="none",
        use_dictionary=False,
        write_statistics=False,
    )
    return bytes(out.getvalue())


def unpack(data: bytes, path: Path) -> list[Record]:
    """Return the records in the content of the shard at `path`, which is named by their digest.

    Raises
    ------
    Damaged
        The content is not what was written.
    InvalidFile
        The shard is whole, but a newer limiirl wrote it.

    Examples
    --------
    >>> data = pack([Record("ab", 0, nll=1.5)])
    >>> unpack(data, Path(f"{digest(data)}.parquet"))[0].nll
    1.5
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    if digest(data) != path.stem:
        raise Damaged(f"{path} is truncated or altered: the digest of its {len(data)} bytes is not its name.")
    try:
        with pq.ParquetFile(pa.BufferReader(data)) as file:
            _check(path, file.schema_arrow)
            table = file.read(use_threads=False)
    except (pa.ArrowException, OSError) as error:
        reason = str(error).partition("\n")[0].rstrip(".")
        raise Damaged(f"{path} is no parquet file ({reason}).") from None
    names = table.column_names
    # A column that an older version did not write leaves the field's default.
    rows = zip(*(column.to_pylist() for column in table.columns), strict=True)
    return [Record(**dict(zip(names, row, strict=True))) for row in rows]


def _column(field: Any, values: list[Any]) -> Any:
    """Return one field of all records as an Arrow array."""
    try:
        return _array(values, field.type)
    except _UNFIT as error:
        at = next(at for at, value in enumerate(values) if not _fits(value, field.type))
        raise InvalidParameter(
            f"Field {field.name} of a record must be {field.type} or None; record {at} has {values[at]!r:.100}. "
            "Convert it to plain Python values."
        ) from error


def _array(values: list[Any], column: Any) -> Any:
    import pyarrow as pa

    if column == pa.string():
        # A message may quote a file name that is no valid text; it must not keep the failure from being recorded.
        values = [value.encode("utf-8", "backslashreplace").decode() for value in values]
    elif column == pa.int64():
        # Arrow would cut 0.5 down to 0.
        values = [None if value is None else index(value) for value in values]
    return pa.array(values, type=column)


def _fits(value: Any, column: Any) -> bool:
    try:
        _array([value], column)
    except _UNFIT:
        return False
    return True


def _check(path: Path, found: Any) -> None:
    """Check that the columns are ours, and not from the future."""
    about = found.metadata or {}
    if about.get(b"limiirl.format", b"").decode() != FORMAT:
        raise Damaged(f"{path} is a parquet file without records of limiirl.")
    version = about.get(b"limiirl.version", b"").decode()
    if not version.isdecimal() or int(version) > VERSION:
        raise InvalidFile(
            f"{path} has version {version or 'none'} of the format; this limiirl reads up to {VERSION}. Upgrade it."
        )
    if found.equals(schema()):  # nearly always, and much quicker
        return
    for field in found:
        if field.name not in schema().names:
            raise InvalidFile(
                f"{path} has a column {field.name!r} that this limiirl does not know: a newer one wrote it. "
                "Upgrade limiirl, or start a new folder."
            )
        expected = schema().field(field.name).type
        if field.type != expected:
            raise InvalidFile(
                f"{path} has {field.type} in column {field.name!r}, this limiirl has {expected}: another version wrote "
                "it. Use that version, or start a new folder."
            )
    absent = [name for name in ("spec", "seed") if name not in found.names]
    if absent:
        raise Damaged(f"{path} has no column {absent[0]!r}.")
