"""Atomic writes, and npz files of plain arrays with a JSON header, without pickle."""

import errno
import json
import os
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from limiirl._validation import available_memory
from limiirl.errors import BackendUnavailable, InvalidFile, InvalidParameter, MissingFile


def as_path(value: object, name: str = "path") -> Path:
    """Return an argument as a Path; raise `InvalidParameter` unless it is a path that the file system can name.

    Examples
    --------
    >>> as_path("demos.csv").suffix
    '.csv'
    """
    if not isinstance(value, str | PathLike):
        raise InvalidParameter.of(name, value, "must be a path")
    path = Path(os.fsdecode(value))
    if "\0" in str(path):
        raise InvalidParameter.of(name, str(path), "must not contain NUL characters")
    try:
        path.stat()
    except OSError as error:  # other errors, such as a missing file, are raised where the path is used
        if error.errno == errno.ELOOP:
            rule = "must not be a loop of symbolic links"
            raise InvalidFile.of(name, str(path), rule, remedy="Pass the file itself.") from None
    return path


def to_pandas(columns: Mapping[str, Any]) -> Any:
    """Return named columns of equal length as a pandas DataFrame; raise `BackendUnavailable` without pandas."""
    try:
        import pandas as pd
    except ImportError:
        message = "to_frame requires pandas. Install it with pip install pandas, or use to_dict."
        raise BackendUnavailable(message) from None
    return pd.DataFrame(dict(columns))


def load_json(text: str | bytes) -> Any:
    """Return the content of JSON text; raise ValueError if it is invalid or nested too deeply.

    Examples
    --------
    >>> load_json(b'{"version": 1}')
    {'version': 1}
    """
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def escape_formula(text: str) -> str:
    """Return a cell of a CSV file with a leading apostrophe if a spreadsheet would evaluate it as a formula.

    Examples
    --------
    >>> [escape_formula(text) for text in ("=1+1", "-4", "@x", "ann")]
    ["'=1+1", '-4', "'@x", 'ann']
    """
    if not text.startswith(("=", "+", "-", "@", "\t", "\r")):
        return text
    try:
        float(text)
    except ValueError:
        return f"'{text}"
    return text


@contextmanager
def atomic_write(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary path in the same directory; on success rename it to `path`, on failure remove it.

    The file is flushed to disk before the rename, so that after a crash it has either the old or the new content.
    """
    target = as_path(path)
    try:
        handle, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".tmp", dir=target.parent)
    except OSError as error:  # name the directory, not the temporary file
        name = str(target if error.errno == errno.ENAMETOOLONG else target.parent)
        raise type(error)(error.errno, error.strerror, name) from None
    os.close(handle)
    scratch = Path(name)
    try:
        yield scratch
        with scratch.open("r+b") as written:  # Windows flushes only writable files
            os.fsync(written.fileno())
        # mkstemp creates private files; apply the user's umask instead.
        umask = os.umask(0)
        os.umask(umask)
        scratch.chmod(0o666 & ~umask)
        scratch.replace(target)
    except OSError as error:
        if error.filename not in (None, str(scratch)):
            raise
        # Disk-full errors have no file name, and the name of the temporary file means nothing to a user.
        raise OSError(error.errno, error.strerror or str(error), str(target)) from error
    finally:
        scratch.unlink(missing_ok=True)


class FileFormat(NamedTuple):
    """File format: name, newest supported version, noun for messages ("a road network"), and name of its writer."""

    name: str
    version: int
    noun: str
    writer: str

    @property
    def remedy(self) -> str:
        """Last sentence of an error message about a file of another format."""
        return f"Use a file written by {self.writer}."


def write_archive(
    path: str | PathLike[str], file_format: FileFormat, header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]
) -> None:
    """Write arrays and a JSON header to an npz file.

    Store strings in the header, because numpy removes trailing NUL characters.
    """
    text = json.dumps({"format": file_format.name, "version": file_format.version, **header}).encode("ascii")
    with atomic_write(path) as scratch, scratch.open("wb") as stream:
        write_arrays(stream, {"header": np.frombuffer(text, dtype=np.uint8), **arrays})


def write_arrays(stream: BinaryIO, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write an npz file; arrays of objects raise ValueError.

    `np.savez` of numpy 2.1 has no `allow_pickle`: it would pickle objects, and store the argument as another array.
    """
    with zipfile.ZipFile(stream, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
                np.lib.format.write_array(entry, np.asanyarray(array), allow_pickle=False)


def read_archive(path: str | PathLike[str], file_format: FileFormat) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Return the header and arrays of a file written by `write_archive`.

    Raises `InvalidFile` if the file is truncated, has another format, or was written by a newer limiirl.
    """
    arrays = read_arrays(path, file_format.remedy)
    try:
        header = load_json(arrays.pop("header").tobytes())
        written, version = header["format"], header["version"]
    except (KeyError, ValueError, TypeError) as error:
        raise InvalidFile.at(path, f"is not {file_format.noun}: it has no header. {file_format.remedy}") from error
    if written != file_format.name or not isinstance(version, int):
        raise InvalidFile.at(path, f"contains {written!r}, not {file_format.name!r}. {file_format.remedy}")
    if version > file_format.version:
        reason = f"has format version {version}; this release reads up to {file_format.version}. Upgrade limiirl."
        raise InvalidFile.at(path, reason)
    return header, arrays


def read_arrays(
    path: str | PathLike[str], remedy: str, select: Callable[[list[str]], list[str]] = list
) -> dict[str, NDArray[Any]]:
    """Return arrays of an npz file by name; `select` maps the stored names to the names to read.

    `remedy` is the last sentence of error messages.
    """
    path = as_path(path)
    if path.is_dir():  # Windows would report a missing permission
        raise InvalidFile.at(path, f"is a folder. {remedy}")
    try:
        with path.open("rb") as stream:
            stored = np.load(stream, allow_pickle=False)
            if not isinstance(stored, np.lib.npyio.NpzFile):
                raise InvalidFile.at(path, f"is a single array, not an npz file. {remedy}")
            size = sum(entry.file_size for entry in zipfile.ZipFile(stream).infolist())
            if size > (available := available_memory()):
                need = f"requires {size / 2**30:.1f} GiB of memory, but {available / 2**30:.1f} GiB are available"
                raise InvalidFile.at(path, f"{need}. {remedy}")
            return {name: stored[name] for name in select(stored.files)}
    except InvalidFile:
        raise
    except FileNotFoundError:
        raise MissingFile.at(path, f"does not exist. {remedy}") from None
    except MemoryError as error:  # the header of an array may claim any size
        raise InvalidFile.at(path, f"does not fit in memory ({error}). {remedy}") from None
    # OSError: a corrupted zip directory may refer to positions beyond the end of the file.
    except (ValueError, KeyError, OSError, EOFError, zipfile.BadZipFile, zlib.error, NotImplementedError) as error:
        # For files of another type, numpy's message suggests allow_pickle.
        reason = "it contains objects or has no npz signature" if "pickle" in str(error) else f"{error!s:.200}"
        raise InvalidFile.at(path, f"is truncated or not an npz file ({reason}). {remedy}") from error
