"""`RoadNetwork`: directed segments with their attributes, and the turns between them; validation, files, summary."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from os import PathLike
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from limiirl._io import FileFormat, read_archive, write_archive
from limiirl._typing import FloatArray, Int32Array, IntArray
from limiirl._validation import check_each
from limiirl.errors import InvalidFile, InvalidNetwork
from limiirl.roads.geometry import Plane, distance_m

if TYPE_CHECKING:
    from limiirl.mdp import MDP
    from limiirl.roads.features import FeatureChoice
    from limiirl.roads.kernels.spatial_index import GridIndex
    from limiirl.roads.lookup import NearestStreets


_Array = TypeVar("_Array", bound=NDArray[Any])
_USUAL_KMH = 50.0
_MOST_DEGREES = {"lat": 90.0, "lon": 180.0}


def freeze(array: _Array) -> _Array:
    """Make an array read-only in place and return it."""
    array.flags.writeable = False
    return array


def join_segments(tail: NDArray[Any], head: NDArray[Any], *, u_turns: bool = False) -> NDArray[np.int64]:
    """Return the sorted pairs (E, 2) of segments such that the second starts where the first ends."""
    order = np.argsort(tail, kind="stable")
    low, high = (np.searchsorted(tail, head, side, sorter=order) for side in ("left", "right"))
    source = np.repeat(np.arange(head.size), high - low)
    target = order[np.arange(source.size) - np.repeat(np.cumsum(high - low) - high, high - low)]
    allowed = np.ones(source.size, dtype=np.bool_) if u_turns else head[target] != tail[source]
    pairs = np.column_stack([source, target])[allowed]
    return np.asarray(pairs[np.lexsort((pairs[:, 1], pairs[:, 0]))])


def check_network(network: RoadNetwork) -> dict[str, Any]:
    """Return read-only copies of the fields of a network; raise `InvalidNetwork` if they are inconsistent."""
    fields: dict[str, Any] = {name: np.array(getattr(network, name), dtype=np.float64) for name in ("lat", "lon")}
    n_nodes, n = fields["lat"].size, np.size(network.tail)
    if n == 0:
        rule = "must have at least one entry, since a network has at least one segment"
        raise InvalidNetwork.of("tail", n, rule, remedy="Check the map and the options.")
    _check_node_arrays(fields["lat"], fields["lon"])
    for name, most in _MOST_DEGREES.items():
        wrong = ~(np.abs(fields[name]) <= most)
        if wrong.any():
            raise _make_range_error(name, name, float(fields[name][np.argmax(wrong)]), int(np.argmax(wrong)))
    centre = as_centre(network.centre)
    for i, (name, most) in enumerate(_MOST_DEGREES.items()):
        if not abs(centre[i]) <= most:
            raise _make_range_error("centre", name, centre[i], i)
    fields |= {name: _as_indices(getattr(network, name), name, n_nodes).astype(np.int32) for name in ("tail", "head")}
    fields |= {name: np.array(getattr(network, name), dtype=np.int64) for name in ("node_id", "way_id")}
    fields |= {name: np.array(getattr(network, name), dtype=np.float64) for name in ("length_m", "lanes", "speed_kmh")}
    names = tuple(str(name) for name in network.class_names)
    fields["road_class"] = _as_indices(network.road_class, "road_class", len(names), "class_names").astype(np.int32)
    streets = tuple(str(name) for name in network.street_names)
    if streets[:1] != ("",):
        raise InvalidNetwork.of("street_names", streets[:3], "must begin with '', the name of unnamed streets")
    given = network.street_of if np.size(network.street_of) else np.zeros(n, dtype=np.int32)
    fields["street_of"] = _as_indices(given, "street_of", len(streets), "street_names").astype(np.int32)
    for name in ("turn_from", "turn_to"):
        fields[name] = _as_indices(getattr(network, name), name, n, "segments").astype(np.int32)
    for name, size in {
        "node_id": n_nodes, "head": n, "way_id": n, "length_m": n, "lanes": n, "speed_kmh": n,
        "road_class": n, "street_of": n, "turn_to": fields["turn_from"].size,
    }.items():  # fmt: skip
        if fields[name].shape != (size,):
            raise InvalidNetwork.of(name, fields[name].shape, f"must have shape ({size},)")
    _check_positive(fields["length_m"], "length_m", unknown=False)
    _check_positive(fields["lanes"], "lanes", unknown=True)
    _check_positive(fields["speed_kmh"], "speed_kmh", unknown=True)
    _check_turns(fields)
    header = {"class_names": names, "street_names": streets, "centre": centre, "notes": dict(network.notes)}
    header["landmarks"] = _check_landmarks(network.landmarks)
    return {name: freeze(array) for name, array in fields.items()} | header


def _check_landmarks(given: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Return the landmarks as lists; raise `InvalidNetwork` if they have another form."""
    try:
        places = [[str(name), str(kind), float(lat), float(lon)] for name, kind, lat, lon in given.get("places", ())]
        water = [[[float(lat), float(lon)] for lat, lon in line] for line in given.get("water", ())]
        points = np.array(
            [place[2:] for place in places] + [point for line in water for point in line], dtype=np.float64
        )
        if points.size and not (np.abs(points) <= [_MOST_DEGREES["lat"], _MOST_DEGREES["lon"]]).all():
            raise ValueError
    except (TypeError, ValueError, AttributeError):
        rule = "must have places [name, kind, lat, lon] and water [[lat, lon], ...], with coordinates in degrees"
        raise InvalidNetwork.of("landmarks", type(given).__name__, rule) from None
    return {"places": places, "water": [line for line in water if len(line) > 1]}


def as_centre(given: Any) -> tuple[float, float]:
    """Return (latitude, longitude) as floats; raise `InvalidNetwork` unless `given` has two numbers."""
    try:
        lat, lon = (float(value) for value in given)
    except (TypeError, ValueError):
        raise InvalidNetwork.of("centre", given, "must be (lat, lon) in degrees") from None
    return lat, lon


def usual_speed(network: RoadNetwork) -> NDArray[np.float64]:
    """Return the speed limit (S,) in km/h; an unknown limit is replaced by the median of the road class, or by 50."""
    speed, usual = network.speed_kmh.copy(), np.full(len(network.class_names), _USUAL_KMH)
    for k in range(usual.size):
        limits = speed[(network.road_class == k) & np.isfinite(speed)]
        usual[k] = np.median(limits) if limits.size else _USUAL_KMH
    unknown = ~np.isfinite(speed)
    speed[unknown] = usual[network.road_class[unknown]]
    return speed


def _as_indices(values: Any, name: str, size: int, of: str = "nodes") -> NDArray[np.int64]:
    array = np.asarray(values)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        rule = "must be a one-dimensional array of integers"
        raise InvalidNetwork.of(name, f"{array.dtype}, shape {array.shape}", rule)
    array = array.astype(np.int64)
    rule = f"must be an index into {of}, from 0 to {size - 1}"
    check_each((array >= 0) & (array < size), array, name, rule, error=InvalidNetwork)
    return array


def _check_node_arrays(lat: NDArray[np.float64], lon: NDArray[np.float64]) -> None:
    if lat.ndim != 1:
        raise InvalidNetwork.of("lat", lat.shape, "must be one-dimensional, with one entry per node")
    if lon.shape != lat.shape:
        raise InvalidNetwork.of("lon", lon.shape, f"must have the shape of lat, {lat.shape}")


def _make_range_error(parameter: str, kind: str, value: float, index: int) -> InvalidNetwork:
    """Return the error for a latitude or longitude outside its range; `kind` is "lat" or "lon"."""
    most = _MOST_DEGREES[kind]
    rule = f"must be a {'latitude' if kind == 'lat' else 'longitude'} in [-{most:g}, {most:g}] degrees"
    remedy = "Check whether latitude and longitude are swapped." if kind == "lat" else ""
    return InvalidNetwork.of(parameter, value, rule, index=index, remedy=remedy)


def _check_positive(values: NDArray[np.float64], name: str, *, unknown: bool) -> None:
    good = np.isfinite(values) & (values > 0.0)
    rule = "must be positive, or NaN where unknown" if unknown else "must be positive and finite"
    remedy = "Correct or drop this segment."
    check_each(good | (unknown & np.isnan(values)), values, name, rule, error=InvalidNetwork, remedy=remedy)


def _check_turns(fields: dict[str, Any]) -> None:
    """Check that turns connect adjacent segments, and that they are sorted and unique."""
    source, target = fields["turn_from"].astype(np.int64), fields["turn_to"].astype(np.int64)
    apart = fields["head"][source] != fields["tail"][target]
    if apart.any():
        i = int(np.argmax(apart))
        rule = f"must connect adjacent segments: segment {target[i]} must start where segment {source[i]} ends"
        raise InvalidNetwork.of("turns", (int(source[i]), int(target[i])), rule, index=i)
    key = source * fields["tail"].size + target
    if np.any(np.diff(key) <= 0):
        i = int(np.argmax(np.diff(key) <= 0))
        message = f"turns must be sorted by (from, to) and unique; turn {i + 1} is not after turn {i}."
        raise InvalidNetwork(message, parameter="turns", index=i + 1)


FORMAT = FileFormat("limiirl.roads", 2, "a road network", "RoadNetwork.save or `limiirl roads build`")
_IN_HEADER = ("class_names", "centre", "attribution", "notes", "street_names", "landmarks")
# Defaults of the fields that are missing in older files.
_ADDED: dict[str, Any] = {"street_names": ("",), "landmarks": {}}


def _split(network: RoadNetwork) -> tuple[dict[str, Any], dict[str, Any]]:
    arrays = {part.name: getattr(network, part.name) for part in dataclasses.fields(network)}
    header = {name: arrays.pop(name) for name in _IN_HEADER}
    return header | {name: dict(header[name]) for name in ("notes", "landmarks")}, arrays


@dataclass(frozen=True, eq=False, repr=False)
class RoadNetwork:
    """Immutable road network of V nodes, S directed segments and E legal turns.

    A segment is a straight line from its tail to its head. Segment s is state s of the MDP, and a turn is an action.
    Build a network with `limiirl.roads.build`, or from arrays with `from_segments`.

    Attributes
    ----------
    lat, lon : (V,)
        Coordinates of the nodes, in degrees (WGS84).
    node_id : (V,) int64
        Ids of the nodes in the source map.
    tail, head : (S,) int32
        Start and end node of each segment.
    length_m : (S,)
        Length on the ellipsoid, or from the source map.
    road_class : (S,) int32
        Index into `class_names`.
    class_names : tuple of str
        Road classes, such as "motorway" and "residential".
    lanes, speed_kmh : (S,)
        Number of lanes and speed limit; NaN if the source map has no value.
    way_id : (S,) int64
        Id of the OSM way of each segment; -1 if there is none.
    turn_from, turn_to : (E,) int32
        First and second segment of each turn; sorted and unique.
    centre : (lat, lon)
        Origin of the planar projection, and default centre of the regions.
    attribution : str
        Copyright notice to display with the map.
    notes : dict
        Provenance of the network: counts of map elements that were read, kept and dropped. JSON-serialisable.
    street_names : tuple of str
        Distinct street names; the first is "" and denotes unnamed streets.
    street_of : (S,) int32
        Index into `street_names`, by default 0. Names are ignored in comparisons of networks.
    landmarks : dict
        For maps only, and ignored in comparisons: "places", a list of [name, kind, lat, lon], and "water", a list of
        lines [[lat, lon], ...], which are areas if they are closed.

    Examples
    --------
    >>> from limiirl.roads import RoadNetwork
    >>> network = RoadNetwork.from_segments([41.15, 41.16, 41.16], [-8.63, -8.63, -8.62], [0, 1, 2], [1, 2, 0])
    >>> network.n_segments, network.n_turns
    (3, 3)
    >>> network.length_m.round(0)
    array([1111.,  839., 1392.])
    """

    lat: FloatArray
    lon: FloatArray
    node_id: IntArray
    tail: Int32Array
    head: Int32Array
    length_m: FloatArray
    road_class: Int32Array
    class_names: tuple[str, ...]
    lanes: FloatArray
    speed_kmh: FloatArray
    way_id: IntArray
    turn_from: Int32Array
    turn_to: Int32Array
    centre: tuple[float, float]
    attribution: str = ""
    notes: Mapping[str, Any] = field(default_factory=dict)
    street_names: tuple[str, ...] = ("",)
    street_of: Int32Array = field(default_factory=lambda: np.empty(0, dtype=np.int32))
    landmarks: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Validate the fields and replace them by read-only copies."""
        for name, value in check_network(self).items():
            object.__setattr__(self, name, value)

    @classmethod
    def from_segments(
        cls,
        lat: ArrayLike,
        lon: ArrayLike,
        tail: ArrayLike,
        head: ArrayLike,
        *,
        turns: ArrayLike | None = None,
        u_turns: bool = False,
        **fields: Any,
    ) -> RoadNetwork:
        """Build a network from nodes and the segments between them.

        Parameters
        ----------
        lat, lon : (V,)
            Coordinates of the nodes, in degrees.
        tail, head : (S,)
            Start and end node of each segment.
        turns : (E, 2), optional
            First and second segment of each turn; by default all pairs of adjacent segments.
        u_turns : bool
            Include U-turns in the default of `turns`.
        **fields
            Other fields of `RoadNetwork`. By default, `length_m` is the distance on the ellipsoid, all segments have
            the class "road", and `lanes` and `speed_kmh` are unknown.
        """
        lat, lon = np.asarray(lat, dtype=np.float64), np.asarray(lon, dtype=np.float64)
        _check_node_arrays(lat, lon)
        tail, head = (_as_indices(values, name, lat.size) for values, name in ((tail, "tail"), (head, "head")))
        if head.shape != tail.shape:
            raise InvalidNetwork.of("head", head.shape, f"must have the shape of tail, {tail.shape}")
        n = tail.size
        if turns is None:
            pairs = join_segments(tail, head, u_turns=u_turns)
        else:
            pairs = np.asarray(turns)
            if pairs.size and (pairs.dtype.kind not in "iu" or pairs.ndim != 2 or pairs.shape[1] != 2):
                raise InvalidNetwork.of(
                    "turns", pairs.shape, "must be integers (E, 2), the first and the second segment of each turn"
                )
            pairs = pairs.astype(np.int64).reshape(-1, 2)
        pairs = np.unique(pairs, axis=0)
        ends = {"lat": lat, "lon": lon, "tail": tail, "head": head, "turn_from": pairs[:, 0], "turn_to": pairs[:, 1]}
        defaults: dict[str, Any] = {
            "node_id": np.arange(lat.size),
            "length_m": distance_m(lat[tail], lon[tail], lat[head], lon[head]),
            "road_class": np.zeros(n, dtype=np.int32),
            "class_names": ("road",),
            "lanes": np.full(n, np.nan),
            "speed_kmh": np.full(n, np.nan),
            "way_id": np.full(n, -1),
            "centre": (float(lat.mean()), float(lon.mean())) if lat.size else (0.0, 0.0),
        }
        return cls(**(ends | defaults | fields))

    @property
    def n_nodes(self) -> int:
        """Number of nodes V."""
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
        """Planar projection around the centre."""
        return Plane(*self.centre)

    @cached_property
    def node_xy(self) -> FloatArray:
        """Projected nodes (V, 2), in metres east and north of the centre."""
        return freeze(self.plane.xy(self.lat, self.lon))

    @cached_property
    def out_ptr(self) -> IntArray:
        """Row pointers (S + 1,): segment s has the outgoing turns ``out_ptr[s]:out_ptr[s + 1]``."""
        counts = np.bincount(self.turn_from, minlength=self.n_segments)
        return freeze(np.concatenate([[0], np.cumsum(counts)]).astype(np.int64))

    @cached_property
    def opposite(self) -> IntArray:
        """Index (S,) of the segment in the opposite direction between the same nodes; -1 if there is none."""
        key = self.tail.astype(np.int64) * self.n_nodes + self.head
        other = self.head.astype(np.int64) * self.n_nodes + self.tail
        order = np.argsort(key, kind="stable")
        at = np.minimum(np.searchsorted(key, other, sorter=order), key.size - 1)
        return freeze(np.where(key[order[at]] == other, order[at], -1).astype(np.int64))

    @cached_property
    def bearing(self) -> FloatArray:
        """Bearing (S,) of each segment, in degrees clockwise from north, in [0, 360)."""
        east, north = (self.node_xy[self.head] - self.node_xy[self.tail]).T
        return freeze(np.degrees(np.arctan2(east, north)) % 360.0)

    @cached_property
    def turn_angle(self) -> FloatArray:
        """Angle (E,) of each turn in degrees, in [-180, 180); 0 is straight on, and positive angles are right turns."""
        bend = self.bearing[self.turn_to] - self.bearing[self.turn_from]
        return freeze((bend + 180.0) % 360.0 - 180.0)

    @cached_property
    def duration_s(self) -> FloatArray:
        """Time (S,) to drive each segment at its speed limit, in seconds.

        An unknown limit is replaced by the median limit of the road class, or by 50 km/h.
        """
        return freeze(self.length_m / (usual_speed(self) / 3.6))

    @cached_property
    def grid(self) -> GridIndex:
        """Spatial index of the segments."""
        from limiirl.roads.matching.candidates import build_grid

        return build_grid(self)

    def nearest(self, lat: ArrayLike, lon: ArrayLike, *, within_m: float = 100.0) -> NearestStreets:
        """Return the segments nearest to one or several points.

        `NearestStreets.segments` contains both directions of a two-way street between the same nodes. If the
        carriageways of a road are separate lines on the map, only the nearer one is returned;
        `limiirl.roads.nearest_segments` returns both.

        Parameters
        ----------
        lat, lon : float or (n,)
            In degrees.
        within_m : float
            Maximum distance; `InvalidParameter` is raised for a point without a street within it.
        """
        from limiirl.roads.lookup import find_nearest

        return find_nearest(self, lat, lon, within_m)

    def street(self, segment: int) -> str:
        """Return the name of a segment's street; "" if it is unnamed."""
        return str(self.street_names[self.street_of[segment]])

    def find(self, name: str) -> IntArray:
        """Return the segments of the streets with a name, in both directions.

        Case and accents are ignored. If no street has this name, the streets whose name contains it are returned. If
        there are none, `InvalidParameter` is raised with a list of similar names.
        """
        from limiirl.roads.lookup import find_street

        return find_street(self, name)

    def mdp(self, features: str | FeatureChoice = "paper", *, gamma: float = 1.0) -> MDP:
        """Return the MDP with one state per segment, one action per turn, a uniform p0, and the given features."""
        from limiirl.roads.features import driver_mdp

        return driver_mdp(self, features, gamma)

    def replace(self, **changes: Any) -> RoadNetwork:
        """Return a validated copy with changed fields."""
        return dataclasses.replace(self, **changes)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the network to one npz file, atomically; `RoadNetwork.load` returns an equal network."""
        write_archive(path, FORMAT, *_split(self))

    @classmethod
    def load(cls, path: str | PathLike[str]) -> RoadNetwork:
        """Read a network written by `save`; raise `InvalidFile` if the file is corrupted or is not a network."""
        header, arrays = read_archive(path, FORMAT)
        try:
            complete = _ADDED | header
            fields: dict[str, Any] = arrays | {name: complete[name] for name in _IN_HEADER}
            lists = ("class_names", "centre", "street_names")
            return cls(**(fields | {name: tuple(fields[name]) for name in lists}))
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidFile.at(path, f"is corrupted: {error!s:.300} Build the network again.") from error

    @cached_property
    def _digest(self) -> str:
        """Hexadecimal SHA-256 digest of the content, without notes, attribution and street names."""
        header, arrays = _split(self)
        del arrays["street_of"]
        sha = hashlib.sha256(json.dumps([header["class_names"], header["centre"]]).encode())
        for name, array in sorted(arrays.items()):
            values = np.ascontiguousarray(array.astype(array.dtype.newbyteorder("<"), copy=False))
            sha.update(f"{name} {values.dtype.str} {values.shape}\n".encode())
            sha.update(values.data)
        return sha.hexdigest()

    def fingerprint(self) -> str:
        """Return a digest of the content with 16 hexadecimal digits, which do not depend on the machine."""
        return self._digest[:16]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RoadNetwork):
            return NotImplemented
        return self is other or self._digest == other._digest

    def __hash__(self) -> int:
        return int(self._digest[:15], 16)

    def __repr__(self) -> str:
        km = self.length_m.sum() / 1000.0
        return (
            f"RoadNetwork: {self.n_segments:,} directed segments of {km:,.1f} km in all, {self.n_turns:,} turns, "
            f"{self.n_nodes:,} nodes"
        )


def summarize(network: RoadNetwork) -> dict[str, Any]:
    """Return network statistics as a JSON-serialisable dict.

    Returns
    -------
    dict
        Counts "segments", "turns", "nodes", "dead_ends"; "km" and "km_by_class"; "lanes" and "speed" (fraction of the
        km with a known value, and km by value); "segment_m" (quantiles of the length); "bounds" (south, west, north and
        east, in degrees); "one_way_share" (fraction of the km); "turns_out" (number of segments by number of outgoing
        turns); "dropped" (counts by reason); "centre", "attribution", "fingerprint" and "notes".

    Examples
    --------
    >>> from limiirl.roads import RoadNetwork
    >>> ring = RoadNetwork.from_segments([41.15, 41.16, 41.16], [-8.63, -8.63, -8.62], [0, 1, 2], [1, 2, 0])
    >>> facts = summarize(ring)
    >>> facts["km"], facts["turns_out"], facts["speed"]
    (3.342, {'1': 3}, {'known_share': 0.0, 'km': {}})
    """
    km = network.length_m / 1000.0
    total = float(km.sum())
    by_class = np.bincount(network.road_class, weights=km, minlength=len(network.class_names))
    degree, count = np.unique(np.diff(network.out_ptr), return_counts=True)
    levels = (0.0, 0.25, 0.5, 0.75, 0.95, 1.0)
    lengths = np.quantile(network.length_m, levels)
    return {
        "segments": network.n_segments,
        "turns": network.n_turns,
        "nodes": network.n_nodes,
        "km": round(total, 3),
        "km_by_class": {
            name: round(float(part), 3) for name, part in zip(network.class_names, by_class, strict=True) if part > 0.0
        },
        "lanes": _summarize_known(network.lanes, km),
        "speed": _summarize_known(network.speed_kmh, km),
        "one_way_share": round(float(km[network.opposite < 0].sum()) / total, 6),
        "segment_m": {f"{level:g}": round(float(metres), 3) for level, metres in zip(levels, lengths, strict=True)},
        "bounds": [
            float(network.lat.min()), float(network.lon.min()), float(network.lat.max()), float(network.lon.max())
        ],
        "centre": list(network.centre),
        "turns_out": {str(k): int(n) for k, n in zip(degree, count, strict=True)},
        "dead_ends": int(np.count_nonzero(np.diff(network.out_ptr) == 0)),
        "dropped": _count_dropped(dict(network.notes)),
        "attribution": network.attribution,
        "fingerprint": network.fingerprint(),
        "notes": dict(network.notes),
    }  # fmt: skip


def _summarize_known(values: Any, km: Any) -> dict[str, Any]:
    """Return the fraction of the km with a known value, and the km by value."""
    known = np.isfinite(values)
    levels, at = np.unique(values[known], return_inverse=True)
    length = np.bincount(at, weights=km[known], minlength=levels.size)
    by_value = {f"{level:g}": round(float(part), 3) for level, part in zip(levels, length, strict=True)}
    return {"known_share": round(float(km[known].sum() / km.sum()), 6), "km": by_value}


def _count_dropped(notes: dict[str, Any]) -> dict[str, int]:
    counts = {f"ways: {reason}": count for reason, count in notes.get("ways", {}).get("dropped", {}).items()}
    counts |= {f"pieces: {reason}": count for reason, count in notes.get("pieces_dropped", {}).items()}
    counts["segments: outside the connected component"] = notes.get("component", {}).get("segments_dropped", 0)
    rules = notes.get("turns", {}).get("restrictions", {})
    counts |= {f"turn restrictions: {reason}": count for reason, count in rules.get("not_used", {}).items()}
    return {reason: count for reason, count in counts.items() if count}
