"""The one form in which every reader hands over a map: ways with their nodes and tags, and where the nodes are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from limiirl.errors import InvalidNetwork

Int = NDArray[np.int64]
Float = NDArray[np.float64]

OSM_ATTRIBUTION = "(c) OpenStreetMap contributors, ODbL 1.0"

_FAR_DEGREES = 2.0  # a city is smaller


def whole_number(value: Any) -> int:
    """Return the number of a node, a way or a relation; a `ValueError` says that it is none of 64 bits.

    Examples
    --------
    >>> whole_number("17")
    17
    """
    number = int(value)
    if not -(2**63) <= number < 2**63:
        raise ValueError(f"{number} has more than 64 bits")
    return number


class Way(NamedTuple):
    """A line through nodes, in the order in which it was drawn, and what is written on it.

    Attributes
    ----------
    id : int
    nodes : tuple of int
        Numbers of nodes.
    tags : mapping of str to str
        As in OpenStreetMap: "highway", "oneway", "lanes", "maxspeed" and so on.
    """

    id: int
    nodes: tuple[int, ...]
    tags: Mapping[str, str]


class Restriction(NamedTuple):
    """A relation of type "restriction": its members by role, and its tags.

    Attributes
    ----------
    id : int
    sources, targets : tuple of int
        Ways, of roles "from" and "to".
    via : int or None
        A node; None where the way between the two is a way, or where there is none.
    tags : mapping of str to str
    """

    id: int
    sources: tuple[int, ...]
    via: int | None
    targets: tuple[int, ...]
    tags: Mapping[str, str]


@dataclass(frozen=True)
class WayTable:
    """A map as it was read, before any rule about roads.

    Attributes
    ----------
    ways : list of Way
    node_id : (V,) int64
        Ascending, each once.
    lat, lon : (V,)
        In degrees.
    restrictions : list of Restriction
    source : dict
        For the network's notes: what was read, and counts of what was not understood.
    attribution : str
    """

    ways: list[Way]
    node_id: Int
    lat: Float
    lon: Float
    restrictions: list[Restriction] = field(default_factory=list)
    source: dict[str, object] = field(default_factory=dict)
    attribution: str = OSM_ATTRIBUTION

    def places(self, numbers: Int) -> Int:
        """Return the index of each node number in `node_id`, -1 where the file does not say where the node is."""
        if not self.node_id.size:
            return np.full(numbers.shape, -1, dtype=np.int64)
        at = np.minimum(np.searchsorted(self.node_id, numbers), self.node_id.size - 1)
        return np.where(self.node_id[at] == numbers, at, -1)


def way_table(
    ways: list[Way], number: Int, lat: Float, lon: Float, source: dict[str, object], **known: Any
) -> WayTable:
    """Return a table of ways and of nodes in any order; nodes without coordinates (NaN) are counted and left out.

    Of a node that is given twice the last one counts, as in a file of changes.

    Examples
    --------
    >>> table = way_table([], np.array([7, 3, 7]), np.array([1.0, 2.0, 3.0]), np.array([4.0, np.nan, 6.0]), {})
    >>> table.node_id, table.lat, table.source
    (array([7]), array([3.]), {'nodes_without_coordinates': 1})
    """
    there = np.isfinite(lat) & np.isfinite(lon)
    source = source | {"nodes_without_coordinates": int(np.count_nonzero(~there))}
    number, lat, lon = number[there], lat[there], lon[there]
    check_degrees(number, lat, lon)
    # `unique` finds first places, so look from behind.
    kept, last = np.unique(number[::-1], return_index=True)
    return WayTable(ways, kept, lat[::-1][last], lon[::-1][last], source=source, **known)


def check_degrees(numbers: Int, lat: Float, lon: Float) -> None:
    """Raise `InvalidNetwork` for degrees that cannot be, and where some nodes have latitude and longitude swapped.

    Examples
    --------
    >>> check_degrees(np.array([1, 2]), np.array([41.1, 41.2]), np.array([-8.6, -8.7]))
    """
    for name, values, most in (("latitude", lat, 90.0), ("longitude", lon, 180.0)):
        wrong = np.abs(values) > most
        if wrong.any():
            i = int(np.argmax(wrong))
            hint = (
                "Are latitude and longitude swapped, or is it in metres?" if name == "latitude" else "Is it in metres?"
            )
            raise InvalidNetwork(
                f"node {numbers[i]} has {name} {values[i]:g}, as have {np.count_nonzero(wrong)} of {values.size} nodes "
                f"that lie more than {most:g} degrees from 0. {hint}"
            )
    if not lat.size:
        return
    middle_lat, middle_lon = float(np.median(lat)), float(np.median(lon))
    far = np.maximum(np.abs(lat - middle_lat), np.abs(lon - middle_lon)) > _FAR_DEGREES
    near_if_swapped = np.maximum(np.abs(lon - middle_lat), np.abs(lat - middle_lon)) <= _FAR_DEGREES
    swapped = far & near_if_swapped
    if swapped.any():
        i = int(np.argmax(swapped))
        raise InvalidNetwork(
            f"latitude and longitude look swapped in {np.count_nonzero(swapped)} of {lat.size} nodes: node "
            f"{numbers[i]} lies at ({lat[i]:g}, {lon[i]:g}), most nodes about ({middle_lat:g}, {middle_lon:g})."
        )
