"""Where files go: folders that are named, made, and looked through."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from limiirl.errors import InvalidFile, InvalidParameter


def a_path(given: Any, name: str) -> Path:
    """Return a path as it was given.

    Examples
    --------
    >>> a_path("features", "folder").name
    'features'
    >>> a_path(3, "folder")
    Traceback (most recent call last):
    limiirl.errors.InvalidParameter: folder must be a path; it is 3.
    """
    if not isinstance(given, str | os.PathLike):
        raise InvalidParameter(f"{name} must be a path; it is {given!r}.")
    return Path(given)


def make_folder(given: Any) -> Path:
    """Return the absolute path of a folder, since workers may stand elsewhere; it is made if it is not there."""
    place = a_path(given, "folder").absolute()
    try:
        place.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise InvalidFile(
            f"{place} cannot be a folder: that, or what it should lie in, is a file. Give another."
        ) from None
    return place


def is_scratch(path: Path) -> bool:
    """Whether a file is what `atomic_write` renames in the end, or leaves behind when it is killed."""
    return path.name.startswith(".") and path.name.endswith(".tmp")
