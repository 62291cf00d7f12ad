"""`RoadNetwork`: directed segments, the turns from one to the next, and what is known of each."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from limiirl.roads import checks, storage
from limiirl.roads.geodesy import Plane

if TYPE_CHECKING:
    from limiirl.kernels.candidates import GridIndex
    from limiirl.mdp import MDP
    from limiirl.roads.features import FeatureChoice
    from limiirl.roads.nearest import Nearest

Float = NDArray[np.float64]
Int = NDArray[np.int64]
Int32 = NDArray[np.int32]


@dataclass(frozen=True, eq=False, repr=False)
class RoadNetwork:
    """V map nodes, S directed segments between them, and E legal turns; one frozen value.

    A segment is driven from its tail to its head, straight. It is a state of the MDP, by the same number; a turn is an
    action. Build one with `limiirl.roads.build`, or with `from_segments` from arrays of your own.

    Attributes
    ----------
    lat, lon : (V,)
        Of nodes, in degrees (WGS84).
    node_id : (V,) int64
        Their numbers in the source.
    tail, head : (S,) int32
        Nodes at the start and the end of each segment.
    length_m : (S,)
        On the ellipsoid, or what the source says.
    road_class : (S,) int32
        Index into `class_names`.
    class_names : tuple of str
        Such as "motorway", "residential".
    lanes, speed_kmh : (S,)
        NaN where the source does not say: nothing is guessed.
    way_id : (S,) int64
        The way in the source to which a segment belongs; -1 where there are no ways.
    turn_from, turn_to : (E,) int32
        Segments, sorted by (from, to), each pair once.
    centre : (lat, lon)
        Of the flat map, and of the regions unless told otherwise.
    attribution : str
        Whom to name under a map of it.
    notes : dict
        How it was made: counts of what was read, kept and dropped; plain JSON.
    street_names : tuple of str
        Names of streets, each once; the first is "", of streets without one.
    street_of : (S,) int32
        Index into `street_names`; all 0 by default. Names are no content: networks that differ in them are equal.

    Examples
    --------
    >>> from limiirl.roads import RoadNetwork
    >>> network = RoadNetwork.from_segments([41.15, 41.16, 41.16], [-8.63, -8.63, -8.62], [0, 1, 2], [1, 2, 0])
    >>> network.n_segments, network.n_turns
    (3, 3)
    >>> network.length_m.round(0)
    array([1111.,  839., 1392.])
    """

    lat: Float
    lon: Float
    node_id: Int
    tail: Int32
    head: Int32
    length_m: Float
    road_class: Int32
    class_names: tuple[str, ...]
    lanes: Float
    speed_kmh: Float
    way_id: Int
    turn_from: Int32
    turn_to: Int32
    centre: tuple[float, float]
    attribution: str = ""
    notes: Mapping[str, Any] = field(default_factory=dict)
    street_names: tuple[str, ...] = ("",)
    street_of: Int32 = field(default_factory=lambda: np.empty(0, dtype=np.int32))

    from_segments = classmethod(checks.from_segments)
    load = classmethod(storage.load)

    def __post_init__(self) -> None:
        """Check every rule once and take private, read-only copies."""
        for name, value in checks.checked(self).items():
            object.__setattr__(self, name, value)

    @property
    def n_nodes(self) -> int:
        """Number of map nodes V."""
        return int(self.lat.size)

    @property
    def n_segments(self) -> int:
        """Number of directed segments S."""
        return int(self.tail.size)

    @property
    def n_turns(self) -> int:
        """Number of turns E."""
        return int(self.turn_from.size)

    @cached_property
    def plane(self) -> Plane:
        """The flat map about the centre."""
        return Plane(*self.centre)

    @cached_property
    def node_xy(self) -> Float:
        """Metres (V, 2) east and north of the centre."""
        return checks.frozen(self.plane.xy(self.lat, self.lon))

    @cached_property
    def out_ptr(self) -> Int:
        """Pointers (S + 1,): the turns out of segment s are ``out_ptr[s]:out_ptr[s + 1]``."""
        counts = np.bincount(self.turn_from, minlength=self.n_segments)
        return checks.frozen(np.concatenate([[0], np.cumsum(counts)]).astype(np.int64))

    @cached_property
    def opposite(self) -> Int:
        """The segment (S,) that is driven the other way between the same nodes; -1 where there is none."""
        key = self.tail.astype(np.int64) * self.n_nodes + self.head
        other = self.head.astype(np.int64) * self.n_nodes + self.tail
        order = np.argsort(key, kind="stable")
        at = np.minimum(np.searchsorted(key, other, sorter=order), key.size - 1)
        return checks.frozen(np.where(key[order[at]] == other, order[at], -1).astype(np.int64))

    @cached_property
    def bearing(self) -> Float:
        """Direction (S,) in which each segment is driven, in degrees clockwise from north, in [0, 360)."""
        east, north = (self.node_xy[self.head] - self.node_xy[self.tail]).T
        return checks.frozen(np.degrees(np.arctan2(east, north)) % 360.0)

    @cached_property
    def turn_angle(self) -> Float:
        """How far (E,) each turn bends, in degrees in [-180, 180): 0 is straight on, positive is to the right."""
        bend = self.bearing[self.turn_to] - self.bearing[self.turn_from]
        return checks.frozen((bend + 180.0) % 360.0 - 180.0)

    @cached_property
    def duration_s(self) -> Float:
        """Seconds (S,) to drive each segment at its speed limit, or at the usual speed of its class where unknown.

        The usual speed is the median of the class's known limits, or 50 km/h where none is known: for comparing routes
        by time, never a feature.
        """
        return checks.frozen(self.length_m / (checks.usual_speed(self) / 3.6))

    @cached_property
    def grid(self) -> GridIndex:
        """The segments by the cells of a grid that they touch, for searches about a place."""
        from limiirl.roads.matching.candidates import index

        return index(self)

    def nearest(self, lat: ArrayLike, lon: ArrayLike, *, within_m: float = 100.0) -> Nearest:
        """Return the streets nearest to places: by default what to close where somebody says "close the street here".

        Of a street that is driven both ways between the same nodes, both directions are nearest; `Nearest.segments`
        has both. The carriageways of a road that is drawn as two lines are two streets: only the nearer is found
        (`limiirl.roads.segments_at` looks for the other). A segment reaches from one node of the map to the next, so
        that closing it lets nobody pass there; trips that begin or end elsewhere on the same block still can.

        Parameters
        ----------
        lat, lon : float or (n,)
            In degrees, latitudes first.
        within_m : float
            A place that has no street so near is an `InvalidParameter`, which says if the two look swapped.

        Examples
        --------
        >>> from limiirl.roads import RoadNetwork
        >>> street = RoadNetwork.from_segments([41.15, 41.16, 41.16], [-8.63, -8.63, -8.62], [0, 1, 1], [1, 0, 2])
        >>> found = street.nearest(41.152, -8.6301)
        >>> found.segments, found.distance_m.round(1)
        (array([0, 1]), array([8.4]))
        """
        from limiirl.roads.nearest import nearest

        return nearest(self, lat, lon, within_m)

    def street(self, segment: int) -> str:
        """Return the name of a segment's street; "" where the map has none.

        Examples
        --------
        >>> from limiirl.roads import RoadNetwork
        >>> names = {"street_names": ("", "Rua Nova"), "street_of": [0, 1]}
        >>> RoadNetwork.from_segments([41.15, 41.16, 41.17], [-8.63] * 3, [0, 1], [1, 2], **names).street(1)
        'Rua Nova'
        """
        return str(self.street_names[self.street_of[segment]])

    def find(self, name: str) -> Int:
        """Return the segments, in both directions, of the streets of a name or a part of it.

        Capitals and accents do not count. Streets that are called just so come before those whose names only contain
        it. A name that no street has is an `InvalidParameter` that lists those like it.

        Examples
        --------
        >>> from limiirl.roads import RoadNetwork
        >>> names = {"street_names": ("", "Ponte da Arrábida (A 1)", "Rua Nova"), "street_of": [2, 1]}
        >>> RoadNetwork.from_segments([41.15, 41.16, 41.17], [-8.63] * 3, [0, 1], [1, 2], **names).find("arrabida")
        array([1])
        """
        from limiirl.roads.street_names import find

        return find(self, name)

    def mdp(self, features: str | FeatureChoice = "paper", *, gamma: float = 1.0) -> MDP:
        """Return the MDP: a state a segment, an action a turn, p0 uniform; features as chosen.

        Examples
        --------
        >>> from limiirl.roads import RoadNetwork
        >>> ring = RoadNetwork.from_segments([41.15, 41.16, 41.16], [-8.63, -8.63, -8.62], [0, 1, 2], [1, 2, 0])
        >>> ring.mdp().n_states
        3
        """
        from limiirl.roads.features import driver_mdp

        return driver_mdp(self, features, gamma)

    def replace(self, **changes: Any) -> RoadNetwork:
        """Return a copy with some fields changed, checked anew."""
        return dataclasses.replace(self, **changes)

    def save(self, path: str | PathLike[str]) -> None:
        """Write everything to one npz file, atomically; `RoadNetwork.load` gives an equal network back."""
        storage.save(self, path)

    def fingerprint(self) -> str:
        """Return 16 hexadecimal digits that identify the content, the same on every machine."""
        return storage.digest(self)[:16]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RoadNetwork):
            return NotImplemented
        return self is other or storage.digest(self) == storage.digest(other)

    def __hash__(self) -> int:
        return int(storage.digest(self)[:15], 16)

    def __repr__(self) -> str:
        km = self.length_m.sum() / 1000.0
        return (
            f"RoadNetwork: {self.n_segments:,} directed segments of {km:,.1f} km in all, {self.n_turns:,} turns, "
            f"{self.n_nodes:,} nodes"
        )
