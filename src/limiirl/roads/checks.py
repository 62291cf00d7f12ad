"""The rules of a road network, and building one from plain arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from limiirl.errors import InvalidNetwork
from limiirl.roads.geodesy import distance_m

if TYPE_CHECKING:
    from limiirl.roads.network import RoadNetwork

_Array = TypeVar("_Array", bound=NDArray[Any])
_USUAL_KMH = 50.0


def frozen(array: _Array) -> _Array:
    """Return an array that nobody can write to any more."""
    array.flags.writeable = False
    return array


def from_segments(
    cls: type[RoadNetwork],
    /,
    lat: ArrayLike,
    lon: ArrayLike,
    tail: ArrayLike,
    head: ArrayLike,
    *,
    turns: ArrayLike | None = None,
    u_turns: bool = False,
    **known: Any,
) -> RoadNetwork:
    """Build a network from nodes and the segments between them.

    Parameters
    ----------
    lat, lon : (V,)
        Of nodes, in degrees.
    tail, head : (S,)
        Nodes at the start and the end of each segment.
    turns : (E, 2), optional
        From and to segment; all that join head to tail by default, back only if `u_turns`.
    u_turns : bool
        Whether a turn back to where one came from is legal.
    **known
        Other fields of `RoadNetwork`: `length_m` (on the ellipsoid by default), `road_class` with `class_names` (all
        "road" by default), `lanes`, `speed_kmh` (unknown by default), `node_id`, `way_id`, `centre`, `attribution`,
        `notes`, `street_names` with `street_of`.
    """
    lat, lon = np.asarray(lat, dtype=np.float64), np.asarray(lon, dtype=np.float64)
    _one_a_node(lat, lon)
    tail, head = (_indices(values, name, lat.size) for values, name in ((tail, "tail"), (head, "head")))
    if tail.shape != head.shape:
        raise InvalidNetwork(f"tail and head must have one entry a segment; they have {tail.size} and {head.size}.")
    n = tail.size
    pairs = joined(tail, head, u_turns=u_turns) if turns is None else _pairs(turns)
    pairs = np.unique(pairs, axis=0)
    fields: dict[str, Any] = {
        "lat": lat,
        "lon": lon,
        "tail": tail,
        "head": head,
        "turn_from": pairs[:, 0],
        "turn_to": pairs[:, 1],
        "node_id": np.arange(lat.size),
        "length_m": distance_m(lat[tail], lon[tail], lat[head], lon[head]),
        "road_class": np.zeros(n, dtype=np.int32),
        "class_names": ("road",),
        "lanes": np.full(n, np.nan),
        "speed_kmh": np.full(n, np.nan),
        "way_id": np.full(n, -1),
        "centre": (float(lat.mean()), float(lon.mean())) if lat.size else (0.0, 0.0),
    }
    return cls(**(fields | known))


def joined(tail: NDArray[Any], head: NDArray[Any], *, u_turns: bool = False) -> NDArray[np.int64]:
    """Return (E, 2) all pairs of segments of which the second begins where the first ends, sorted.

    Examples
    --------
    >>> joined(np.array([0, 1, 1]), np.array([1, 0, 2]))  # 1-0 would be a U-turn
    array([[0, 2]])
    """
    order = np.argsort(tail, kind="stable")
    low, high = (np.searchsorted(tail, head, side, sorter=order) for side in ("left", "right"))
    source = np.repeat(np.arange(head.size), high - low)
    target = order[np.arange(source.size) - np.repeat(np.cumsum(high - low) - high, high - low)]
    onward = np.ones(source.size, dtype=np.bool_) if u_turns else head[target] != tail[source]
    pairs = np.column_stack([source, target])[onward]
    return np.asarray(pairs[np.lexsort((pairs[:, 1], pairs[:, 0]))])


def checked(network: RoadNetwork) -> dict[str, Any]:
    """Return the fields of a network as private, read-only arrays, or say which rule is broken where."""
    fields: dict[str, Any] = {name: np.array(getattr(network, name), dtype=np.float64) for name in ("lat", "lon")}
    n_nodes, n = fields["lat"].size, np.size(network.tail)
    if n == 0:
        raise InvalidNetwork("A network needs at least one segment; there is none. Check the map and what was kept.")
    _one_a_node(fields["lat"], fields["lon"])
    _degrees(fields["lat"], fields["lon"])
    centre = centre_of(network.centre)
    _degrees(np.array(centre[:1]), np.array(centre[1:]), of="centre ")
    fields |= {name: _indices(getattr(network, name), name, n_nodes).astype(np.int32) for name in ("tail", "head")}
    fields |= {name: np.array(getattr(network, name), dtype=np.int64) for name in ("node_id", "way_id")}
    fields |= {name: np.array(getattr(network, name), dtype=np.float64) for name in ("length_m", "lanes", "speed_kmh")}
    names = tuple(str(name) for name in network.class_names)
    fields["road_class"] = _indices(network.road_class, "road_class", len(names), "class_names").astype(np.int32)
    streets = tuple(str(name) for name in network.street_names)
    if streets[:1] != ("",):
        raise InvalidNetwork(f"street_names must begin with '', of streets without a name; they are {streets[:3]}.")
    given = network.street_of if np.size(network.street_of) else np.zeros(n, dtype=np.int32)
    fields["street_of"] = _indices(given, "street_of", len(streets), "street_names").astype(np.int32)
    for name in ("turn_from", "turn_to"):
        fields[name] = _indices(getattr(network, name), name, n, "segments").astype(np.int32)
    for name, size in {
        "node_id": n_nodes, "head": n, "way_id": n, "length_m": n, "lanes": n, "speed_kmh": n,
        "road_class": n, "street_of": n, "turn_to": fields["turn_from"].size,
    }.items():  # fmt: skip
        if fields[name].shape != (size,):
            raise InvalidNetwork(f"{name} must have shape ({size},); it has {fields[name].shape}.")
    _positive(fields["length_m"], "length_m", unknown=False)
    _positive(fields["lanes"], "lanes", unknown=True)
    _positive(fields["speed_kmh"], "speed_kmh", unknown=True)
    _turns(fields)
    words = {"class_names": names, "street_names": streets, "centre": centre, "notes": dict(network.notes)}
    return {name: frozen(array) for name, array in fields.items()} | words


def centre_of(given: Any) -> tuple[float, float]:
    """Return a latitude and a longitude, or say that these are no two numbers.

    Examples
    --------
    >>> centre_of([41, -8.63])
    (41.0, -8.63)
    """
    try:
        lat, lon = (float(value) for value in given)
    except (TypeError, ValueError):
        raise InvalidNetwork(f"centre must be (lat, lon), two numbers in degrees; got {given!r}.") from None
    return lat, lon


def usual_speed(network: RoadNetwork) -> NDArray[np.float64]:
    """Return km/h (S,): the limit, or where it is unknown the median limit of the class, or 50."""
    speed, usual = network.speed_kmh.copy(), np.full(len(network.class_names), _USUAL_KMH)
    for k in range(usual.size):
        limits = speed[(network.road_class == k) & np.isfinite(speed)]
        usual[k] = np.median(limits) if limits.size else _USUAL_KMH
    unknown = ~np.isfinite(speed)
    speed[unknown] = usual[network.road_class[unknown]]
    return speed


def _indices(values: Any, name: str, size: int, of: str = "nodes") -> NDArray[np.int64]:
    array = np.asarray(values)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise InvalidNetwork(f"{name} must be whole numbers in one dimension; it has {array.dtype}, {array.shape}.")
    array = array.astype(np.int64)
    wrong = (array < 0) | (array >= size)
    if wrong.any():
        i = int(np.argmax(wrong))
        raise InvalidNetwork(f"{name}[{i}] is {array[i]}, but there are {size} {of}, numbered from 0.")
    return array


def _pairs(turns: ArrayLike) -> NDArray[np.int64]:
    pairs = np.asarray(turns)
    if pairs.size and (pairs.dtype.kind not in "iu" or pairs.ndim != 2 or pairs.shape[1] != 2):
        raise InvalidNetwork(
            f"turns must be pairs (E, 2) of segments, from and to; it has shape {pairs.shape} of {pairs.dtype}."
        )
    return pairs.astype(np.int64).reshape(-1, 2)


def _one_a_node(lat: NDArray[np.float64], lon: NDArray[np.float64]) -> None:
    if lat.ndim != 1 or lat.shape != lon.shape:
        raise InvalidNetwork(f"lat and lon must have one entry a node; they have shapes {lat.shape} and {lon.shape}.")


def _degrees(lat: NDArray[np.float64], lon: NDArray[np.float64], of: str = "") -> None:
    for name, values, most in (("lat", lat, 90.0), ("lon", lon, 180.0)):
        wrong = ~(np.abs(values) <= most)
        if wrong.any():
            i = int(np.argmax(wrong))
            hint = " Are latitude and longitude swapped?" if name == "lat" else ""
            raise InvalidNetwork(f"{of}{name}[{i}] is {values[i]}; degrees lie within {most:g} of 0.{hint}")


def _positive(values: NDArray[np.float64], name: str, *, unknown: bool) -> None:
    good = np.isfinite(values) & (values > 0.0)
    wrong = ~(good | np.isnan(values)) if unknown else ~good
    if wrong.any():
        i = int(np.argmax(wrong))
        rule = "positive, or NaN where unknown" if unknown else "positive and finite"
        raise InvalidNetwork(f"{name} must be {rule}; {name}[{i}] is {values[i]}. Mend or drop that segment.")


def _turns(fields: dict[str, Any]) -> None:
    """Check that turns join segments that meet, and that they are sorted, each once."""
    source, target = fields["turn_from"].astype(np.int64), fields["turn_to"].astype(np.int64)
    apart = fields["head"][source] != fields["tail"][target]
    if apart.any():
        i = int(np.argmax(apart))
        raise InvalidNetwork(
            f"turn {i} leads from segment {source[i]} to segment {target[i]}, which does not begin where that one ends."
        )
    key = source * fields["tail"].size + target
    if np.any(np.diff(key) <= 0):
        i = int(np.argmax(np.diff(key) <= 0))
        raise InvalidNetwork(f"turns must be sorted by (from, to), each once; turn {i + 1} is not after turn {i}.")
