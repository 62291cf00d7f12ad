"""The folder of a run: files that are written whole or not at all, checked when read, and put aside when damaged."""

from __future__ import annotations

import json
import os
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from limiirl._version import __version__
from limiirl.errors import InvalidFile, LimiirlWarning
from limiirl.experiments.shards import Damaged, digest
from limiirl.files import atomic_write

FORMAT = "limiirl.run"
VERSION = 1

_HEADER = "run.json"
_PARTS = ("records", "specs", "runs")
# A write lasts milliseconds: what is older than this many seconds was left by a writer that was killed.
_STALE = 3600.0

T = TypeVar("T")


class RunFolder:
    """A folder with the header run.json, in which several processes may work at once.

    Parameters
    ----------
    path : path
    create : bool
        Make it a run's folder if it is absent or empty. If False, it must be one.

    Examples
    --------
    >>> import tempfile
    >>> folder = RunFolder(tempfile.mkdtemp(), create=True)
    >>> folder.write("specs", "a.json", b"[]")
    >>> folder.names("specs", ".json")
    {'a.json'}
    """

    def __init__(self, path: str | os.PathLike[str], *, create: bool) -> None:
        self.path = Path(path)
        # Damaged files that could not be moved, since the folder cannot be written: one warning each is enough.
        self._left: set[Path] = set()
        if self.path.exists() and not self.path.is_dir():
            raise InvalidFile(f"{self.path} is a file, and results need a folder. Give another name.")
        if create:
            self._create()
        self._check()

    def names(self, part: str, suffix: str) -> set[str]:
        """Return the names of the files in a subfolder, without those that are being written."""
        try:
            with os.scandir(self.path / part) as entries:
                return {entry.name for entry in entries if entry.name.endswith(suffix)}
        except FileNotFoundError:  # nothing was written yet
            return set()

    def write(self, part: str, name: str, data: bytes) -> None:
        """Write a file of a subfolder; if this fails, the folder is as it was, and the OSError says so."""
        path = self.path / part / name
        try:
            path.parent.mkdir(exist_ok=True)
            with atomic_write(path) as scratch:
                scratch.write_bytes(data)
        except OSError as error:
            raise self._unwritable(error) from error

    def load(self, part: str, name: str, parse: Callable[[bytes, Path], T]) -> T | None:
        """Return what `parse` makes of a file, or None if the file is gone or `Damaged`, which is put aside."""
        path = self.path / part / name
        if path in self._left:
            return None
        try:
            return parse(path.read_bytes(), path)
        except FileNotFoundError:
            return None
        except Damaged as fault:
            self._put_aside(path, fault, parse)
            return None

    def write_json(self, part: str, name: str, content: dict[str, Any]) -> None:
        """Write plain values as JSON with their digest."""
        self.write(part, name, json.dumps({"digest": _seal(content), **content}, indent=1).encode())

    def load_json(self, part: str) -> dict[str, dict[str, Any]]:
        """Return the content of every JSON file of a subfolder that agrees with its digest, by name.

        >>> import tempfile
        >>> folder = RunFolder(tempfile.mkdtemp(), create=True)
        >>> folder.write_json("specs", "a.json", {"x": 1})
        >>> folder.load_json("specs")
        {'a.json': {'x': 1}}
        """
        loaded = {name: self.load(part, name, _unseal) for name in sorted(self.names(part, ".json"))}
        return {name: content for name, content in loaded.items() if content is not None}

    def _create(self) -> None:
        """Make the folder a run's, unless it is one or holds something else."""
        self.path.mkdir(parents=True, exist_ok=True)
        strangers = [path.name for path in self.path.iterdir() if not path.name.startswith(f".{_HEADER}.")]
        # Another process may be creating the folder at the same time. It writes the header before all else, so that
        # whatever of it was listed, the header is there by now.
        if not (self.path / _HEADER).exists():
            if strangers:
                raise InvalidFile(
                    f"{self.path} holds other files ({min(strangers)!r}) and no {_HEADER}: it is no run of limiirl. "
                    "Give a new or an empty folder."
                )
            content = {"format": FORMAT, "version": VERSION, "made_by": f"limiirl {__version__}"}
            self.write("", _HEADER, json.dumps(content, indent=1).encode())
        self._sweep()

    def _check(self) -> None:
        """Check that the folder is a run's that this version can read."""
        header = self.path / _HEADER
        if not header.exists():
            raise InvalidFile(f"{self.path} is no run of limiirl: it has no {_HEADER}. Give a folder that a run wrote.")
        try:
            content = json.loads(header.read_bytes())
            known, version = content["format"] == FORMAT, int(content["version"])
        except (ValueError, KeyError, TypeError):
            known, version = False, 0
        if not known:
            raise InvalidFile(
                f"{header} is damaged or not of limiirl. If the folder is a run, write "
                f"{json.dumps({'format': FORMAT, 'version': VERSION})} into it; else give another folder."
            )
        if version > VERSION:
            raise InvalidFile(
                f"{self.path} has version {version} of the format; this limiirl reads up to {VERSION}. Upgrade it."
            )

    def _sweep(self) -> None:
        """Delete what killed writers left behind. It is never read, so that failing to do so does no harm."""
        with suppress(OSError):
            for part in ("", *_PARTS):
                for path in (self.path / part).glob(".*.tmp"):
                    if time.time() - path.stat().st_mtime > _STALE:
                        path.unlink(missing_ok=True)

    def _put_aside(self, path: Path, fault: Damaged, parse: Callable[[bytes, Path], object]) -> None:
        """Move a damaged file to quarantine, and say so."""
        target = self.path / "quarantine" / path.name
        try:
            target.parent.mkdir(exist_ok=True)
            path.replace(target)
        except FileNotFoundError:  # another process was quicker
            return
        except OSError as error:
            self._left.add(path)
            message = f"{fault} It is left out, and stays where it is ({error.strerror})."
        else:
            with suppress(Damaged, FileNotFoundError):
                # Between our reading and our moving another process may have put the damaged one aside, computed the
                # trials again and written the very bytes that were lost: those are good, and go back.
                parse(target.read_bytes(), target)
                target.replace(path)
                return
            message = f"{fault} It was moved to {target.parent}, and what it held counts as not done."
        warnings.warn(message, LimiirlWarning, stacklevel=4)

    def _unwritable(self, error: OSError) -> OSError:
        return OSError(
            error.errno,
            f"{error.strerror or error}, so that nothing more can be written there. What was recorded is safe: once "
            "this is mended, the same command goes on from it",
            str(self.path),
        )


def _seal(content: dict[str, Any]) -> str:
    return digest(json.dumps(content, sort_keys=True).encode())


def _unseal(data: bytes, path: Path) -> dict[str, Any]:
    """Return the content of a JSON file that agrees with its digest."""
    try:
        content = json.loads(data)
        seal = content.pop("digest")
    except (ValueError, KeyError, TypeError, AttributeError):
        raise Damaged(f"{path} is truncated or altered.") from None
    # What is named by a hash of its own must lie under that name.
    if seal != _seal(content) or content.get("hash", path.stem) != path.stem:
        raise Damaged(f"{path} is truncated or altered: its digest is not that of its content.")
    return dict(content)
