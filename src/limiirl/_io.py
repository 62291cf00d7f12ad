"""Atomic writes, and npz files of plain arrays under a JSON header, without pickles."""

import json
import os
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from limiirl.errors import InvalidFile, MissingFile


@contextmanager
def atomic_write(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary path beside `path`; on success rename it into place, on failure remove it.

    The rename is atomic because both names lie in one directory, hence on one file system. The file is flushed to
    disk before the rename, so that a crash leaves either the old content or the new.

    Examples
    --------
    >>> import tempfile
    >>> target = Path(tempfile.mkdtemp()) / "note.txt"
    >>> with atomic_write(target) as scratch:
    ...     _ = scratch.write_text("whole")
    >>> target.read_text()
    'whole'
    """
    target = Path(path)
    try:
        handle, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".tmp", dir=target.parent)
    except OSError as error:  # it is about a name that nobody gave
        raise type(error)(error.errno, error.strerror, str(target.parent)) from None
    os.close(handle)
    scratch = Path(name)
    try:
        yield scratch
        with scratch.open("r+b") as written:  # Windows flushes only what may be written
            os.fsync(written.fileno())
        # mkstemp makes private files; a result should have the permissions that the user's umask gives to any other
        # file.
        umask = os.umask(0)
        os.umask(umask)
        scratch.chmod(0o666 & ~umask)
        scratch.replace(target)
    except OSError as error:
        if error.filename is not None:
            raise
        # A full disk does not say which file it was about.
        raise OSError(error.errno, error.strerror or str(error), str(target)) from error
    finally:
        scratch.unlink(missing_ok=True)


class Kind(NamedTuple):
    """What a file holds: the name and version in its header, and the words of messages about it.

    Parameters
    ----------
    format : str
        Such as "limiirl.roads".
    version : int
        The newest that can be read.
    noun : str
        What it is to a reader, with its article: "a road network".
    writer : str
        What writes it: "RoadNetwork.save".
    """

    format: str
    version: int
    noun: str
    writer: str

    @property
    def remedy(self) -> str:
        """What to do about a file of another kind."""
        return f"Give a file that {self.writer} wrote."


def write_archive(
    path: str | PathLike[str], kind: Kind, header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]
) -> None:
    """Write arrays under a header; texts belong to the header, since numpy's strings lose trailing NULs.

    Examples
    --------
    >>> import tempfile
    >>> kind = Kind("limiirl.example", 1, "an example", "this example")
    >>> path = Path(tempfile.mkdtemp()) / "example.npz"
    >>> write_archive(path, kind, {"name": "x"}, {"values": np.arange(3)})
    >>> header, arrays = read_archive(path, kind)
    >>> header["name"], arrays["values"]
    ('x', array([0, 1, 2]))
    """
    text = json.dumps({"format": kind.format, "version": kind.version, **header}).encode("ascii")
    with atomic_write(path) as scratch, scratch.open("wb") as stream:
        np.savez(stream, allow_pickle=False, header=np.frombuffer(text, dtype=np.uint8), **arrays)


def read_archive(path: str | PathLike[str], kind: Kind) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Return the header and the arrays of a file that `write_archive` wrote.

    A file that is truncated, of another kind or from a newer limiirl is an `InvalidFile` that says so.
    """
    arrays = read_arrays(path, kind.remedy)
    try:
        header = json.loads(arrays.pop("header").tobytes())
        written, version = header["format"], header["version"]
    except (KeyError, ValueError, TypeError) as error:
        raise InvalidFile(
            f"{path} is not {kind.noun} of limiirl: it has no header. {kind.remedy}", parameter="path", value=str(path)
        ) from error
    if written != kind.format or not isinstance(version, int):
        raise InvalidFile(
            f"{path} holds {written!r}, not {kind.format!r}. {kind.remedy}", parameter="path", value=str(path)
        )
    if version > kind.version:
        raise InvalidFile(
            f"{path} has format version {version}; this limiirl reads up to {kind.version}. Upgrade limiirl.",
            parameter="path",
            value=str(path),
        )
    return header, arrays


def read_arrays(
    path: str | PathLike[str], remedy: str, chosen: Callable[[list[str]], list[str]] = list
) -> dict[str, NDArray[Any]]:
    """Return those arrays of an npz file that are chosen from the names of all; `remedy` ends the message of errors.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "two.npz"
    >>> np.savez(path, a=np.arange(2), b=np.arange(3))
    >>> read_arrays(path, "Give another.", lambda names: ["b"])
    {'b': array([0, 1, 2])}
    """
    try:
        with Path(path).open("rb") as stream:
            stored = np.load(stream, allow_pickle=False)
            if not isinstance(stored, np.lib.npyio.NpzFile):
                raise InvalidFile(
                    f"{path} is a single array, not an npz file. {remedy}", parameter="path", value=str(path)
                )
            return {name: stored[name] for name in chosen(stored.files)}
    except InvalidFile:
        raise
    except FileNotFoundError:
        raise MissingFile(f"{path} does not exist. {remedy}", parameter="path", value=str(path)) from None
    except IsADirectoryError:
        raise InvalidFile(f"{path} is a folder. {remedy}", parameter="path", value=str(path)) from None
    # A damaged directory of the archive leads to places that the file does not have, an OSError.
    except (ValueError, KeyError, OSError, EOFError, zipfile.BadZipFile, zlib.error, NotImplementedError) as error:
        # What numpy says of a file of another kind advises to unpickle it.
        reason = "it holds objects, or begins like no npz file" if "pickle" in str(error) else f"{error!s:.200}"
        raise InvalidFile(
            f"{path} is truncated or not an npz file ({reason}). Copy it again, or save it anew. {remedy}",
            parameter="path",
            value=str(path),
        ) from error
