"""One npz file for a road network: plain arrays and a JSON header."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np

from limiirl.archives import Kind, read_archive, write_archive
from limiirl.errors import InvalidFile, InvalidNetwork

if TYPE_CHECKING:
    from limiirl.roads.network import RoadNetwork

KIND = Kind("limiirl.roads", 2, "a road network", "RoadNetwork.save or `limiirl roads build`")
_WORDS = ("class_names", "centre", "attribution", "notes", "street_names")
# What files of the first version do not have: names of streets.
_LATER: dict[str, Any] = {"street_names": ("",)}


def _split(network: RoadNetwork) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what goes to the header, and the arrays."""
    fields = {part.name: getattr(network, part.name) for part in dataclasses.fields(network)}
    words = {name: fields.pop(name) for name in _WORDS}
    return words | {"notes": dict(words["notes"])}, fields


def save(network: RoadNetwork, path: str | PathLike[str]) -> None:
    """Write a network to `path`; see `RoadNetwork.save`."""
    write_archive(path, KIND, *_split(network))


def load(cls: type[RoadNetwork], path: str | PathLike[str]) -> RoadNetwork:
    """Read a network that `save` wrote; a file that is truncated or foreign is an `InvalidFile` that says so.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> from limiirl.roads import RoadNetwork
    >>> network = RoadNetwork.from_segments([41.15, 41.16], [-8.63, -8.63], [0, 1], [1, 0])
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "town.npz"
    >>> network.save(path)
    >>> RoadNetwork.load(path) == network
    True
    """
    header, arrays = read_archive(path, KIND)
    try:
        known = _LATER | header
        fields: dict[str, Any] = arrays | {name: known[name] for name in _WORDS}
        lists = ("class_names", "centre", "street_names")
        return cls(**(fields | {name: tuple(fields[name]) for name in lists}))
    except (KeyError, TypeError, ValueError, InvalidNetwork) as error:
        raise InvalidFile(f"{path} is damaged: {error!s:.300} Build the network again.") from error


def digest(network: RoadNetwork) -> str:
    """Return the sha256 of the content in hexadecimal; notes, attribution and names of streets are no content."""
    words, arrays = _split(network)
    del arrays["street_of"]
    sha = hashlib.sha256(json.dumps([words["class_names"], words["centre"]]).encode())
    for name, array in sorted(arrays.items()):
        values = np.ascontiguousarray(array.astype(array.dtype.newbyteorder("<"), copy=False))
        sha.update(f"{name} {values.dtype.str} {values.shape}\n".encode())
        sha.update(values.data)
    return sha.hexdigest()
