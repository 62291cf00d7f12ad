"""Lookup of segments by coordinates and by street name; street names and descriptions."""

from __future__ import annotations

import difflib
import unicodedata
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse
from scipy.sparse.csgraph import connected_components

from limiirl._typing import FloatArray, IntArray
from limiirl._validation import check_positive
from limiirl.errors import InvalidParameter
from limiirl.roads.geometry import line_distance_m, offsets_m, radii_m
from limiirl.roads.kernels.spatial_index import nearest

if TYPE_CHECKING:
    from limiirl.roads.network import RoadNetwork


_CARRIAGEWAY_M = 40.0  # maximum distance from the point to the opposite carriageway
_CARRIAGEWAY_DEGREES = 30.0  # maximum deviation of its bearing from the opposite bearing
_MARGIN_DEGREES = 0.05  # margin of the bounding box in the test for swapped coordinates
_N_SUGGESTIONS = 8


class NearestStreets(NamedTuple):
    """Nearest segments to n points.

    Attributes
    ----------
    segment : (n,) int64
        Index of the nearest segment; the lowest index if several are equally near.
    opposite : (n,) int64
        Segment in the opposite direction between the same nodes; -1 if there is none.
    distance_m : (n,)
        Distance from each point to its segment, in the planar projection around the point.
    along : (n,)
        Position of the closest point on the segment, in [0, 1].
    """

    segment: IntArray
    opposite: IntArray
    distance_m: FloatArray
    along: FloatArray

    @property
    def segments(self) -> IntArray:
        """Distinct segments in both directions, in ascending order; pass them to `close_streets`."""
        both = np.unique(np.concatenate([self.segment, self.opposite]))
        return np.asarray(both[both >= 0])


def find_nearest(network: RoadNetwork, lat: ArrayLike, lon: ArrayLike, within_m: float) -> NearestStreets:
    """Return the segments nearest to points; see `RoadNetwork.nearest`."""
    north, east = (np.atleast_1d(np.asarray(values, dtype=np.float64)) for values in (lat, lon))
    if north.ndim != 1 or north.shape != east.shape:
        rule = "and lon must be two numbers or two arrays (n,) of the same shape"
        raise InvalidParameter.of("lat", (north.shape, east.shape), rule)
    check_positive(within_m, "within_m")
    wrong = ~((np.abs(north) <= 90.0) & (np.abs(east) <= 180.0))
    if wrong.any():
        i = int(np.argmax(wrong))
        raise InvalidParameter(
            f"{_name_point(north, i)} ({north[i]:g}, {east[i]:g}) is out of range: latitudes must be in [-90, 90], "
            f"longitudes in [-180, 180].{_swap_hint(network, float(north[i]), float(east[i]))}",
            parameter="lat" if abs(north[i]) > 90.0 or np.isnan(north[i]) else "lon",
            value=(float(north[i]), float(east[i])),
            index=i,
        )
    xy = np.ascontiguousarray(network.plane.xy(north, east))
    scales = np.ascontiguousarray(_axis_scales(network.centre[0], north))
    segment, along, distance = nearest(network.grid, xy, scales, float(within_m))
    if np.any(segment < 0):
        i = int(np.argmax(segment < 0))
        message = _describe_miss(network, _name_point(north, i), float(north[i]), float(east[i]), within_m)
        raise InvalidParameter(message, parameter="within_m", value=within_m, index=i)
    return NearestStreets(segment, network.opposite[segment], distance, along)


def nearest_segments(
    network: RoadNetwork, lat: float, lon: float, *, both: bool = True, within_m: float = 100.0
) -> IntArray:
    """Return the segments to close in order to close the street at a point.

    If the opposite carriageway is a separate line on the map, it is included: the nearest segment within 40 m of the
    point that has the same class and name and the opposite direction. One direction of a two-way street that is a
    single line cannot be selected by a point; the error then lists the two segments.

    Parameters
    ----------
    network : RoadNetwork
    lat, lon : float
        In degrees.
    both : bool
        Return both directions; if False, only the nearest segment.
    within_m : float
        As in `RoadNetwork.nearest`.

    Examples
    --------
    >>> from limiirl.roads import RoadNetwork
    >>> lat, lon = [41.15, 41.16, 41.15, 41.16], [-8.63, -8.63, -8.6301, -8.6301]
    >>> avenue = RoadNetwork.from_segments(lat, lon, [0, 3], [1, 2])
    >>> nearest_segments(avenue, 41.155, -8.63), nearest_segments(avenue, 41.155, -8.63, both=False)
    (array([0, 1]), array([0]))
    """
    nearest = network.nearest(float(lat), float(lon), within_m=within_m)
    here, back = int(nearest.segment[0]), int(nearest.opposite[0])
    if back >= 0:
        if both:
            return nearest.segments
        first, second = sorted((here, back))
        raise InvalidParameter(
            f"A point does not determine the direction on a two-way street. Pass one of its segments: {first} "
            f"({describe_direction(network, first)}) or {second} ({describe_direction(network, second)}).",
            parameter="both",
            value=(first, second),
        )
    return np.array(sorted({here, *(_opposite_carriageway(network, here, lat, lon) if both else ())}), dtype=np.int64)


def describe_direction(network: RoadNetwork, segment: int) -> str:
    """Return the compass direction of a segment: "to the north"."""
    points = ("north", "north-east", "east", "south-east", "south", "south-west", "west", "north-west")
    return f"to the {points[round(float(network.bearing[segment]) / 45.0) % 8]}"


def _opposite_carriageway(network: RoadNetwork, here: int, lat: float, lon: float) -> list[int]:
    """Return the nearest segment of the opposite carriageway, as a list with at most one entry."""
    bend = (network.bearing - network.bearing[here]) % 360.0
    alike = (np.abs(bend - 180.0) <= _CARRIAGEWAY_DEGREES) & (network.road_class == network.road_class[here])
    alike &= (network.opposite < 0) & (network.street_of == network.street_of[here])
    rows = np.flatnonzero(alike)
    distance = distances_m(network, rows, lat, lon)
    return [int(rows[np.argmin(distance)])] if rows.size and distance.min() <= _CARRIAGEWAY_M else []


def distances_m(network: RoadNetwork, segments: IntArray, lat: float, lon: float) -> FloatArray:
    """Return the distance (n,) from a point to each given segment, in the planar projection around the point."""
    begin, end = (
        offsets_m(lat, lon, network.lat[at[segments]], network.lon[at[segments]]) for at in (network.tail, network.head)
    )
    return line_distance_m(begin, end)


def _axis_scales(centre: float, lat: FloatArray) -> FloatArray:
    """Return the factors (n, 2), east and north, from the projection of the network to that at each latitude."""
    (along, across), (along_0, across_0) = radii_m(lat), radii_m(centre)
    east = across * np.cos(np.radians(lat)) / (across_0 * np.cos(np.radians(centre)))
    # At a pole, a degree of longitude has length 0.
    return np.asarray(np.maximum(np.stack([east, along / along_0], axis=1), 1e-6))


def _name_point(lat: FloatArray, i: int) -> str:
    return "The point" if lat.size == 1 else f"Point {i}"


def _swap_hint(network: RoadNetwork, lat: float, lon: float) -> str:
    """Return a hint if the point is in the network only after swapping latitude and longitude, else ""."""
    box = [(values.min() - _MARGIN_DEGREES, values.max() + _MARGIN_DEGREES) for values in (network.lat, network.lon)]
    given, exchanged = (
        all(low <= value <= high for (low, high), value in zip(box, pair, strict=True))
        for pair in ((lat, lon), (lon, lat))
    )
    return " Latitude and longitude look swapped; latitude comes first." if exchanged and not given else ""


def _describe_miss(network: RoadNetwork, which: str, lat: float, lon: float, within_m: float) -> str:
    distance = float(distances_m(network, np.arange(network.n_segments), lat, lon).min())
    text = f"{distance:,.0f} m" if distance < 10_000.0 else f"about {distance / 1000.0:,.0f} km"
    middle = f"({float(np.median(network.lat)):.4f}, {float(np.median(network.lon)):.4f})"
    return f"{which} ({lat:g}, {lon:g}) has no street within {within_m:g} m; the nearest is {text} away." + (
        _swap_hint(network, lat, lon)
        or f" Pass a point near a street (the centre of the network is {middle}), or increase within_m."
    )


def name_street(tags: Mapping[str, Any]) -> str:
    """Return the name of a street from its OpenStreetMap tags: name, bridge or tunnel name, and reference number."""

    def join(*keys: str) -> str:
        parts = (part.strip() for key in keys for part in str(tags.get(key) or "").split(";"))
        return ", ".join(dict.fromkeys(part for part in parts if part))

    name, number = join("name", "bridge:name", "tunnel:name"), join("ref")
    return f"{name} ({number})" if name and number else name or number


def index_names(names: Sequence[str]) -> tuple[tuple[str, ...], IntArray]:
    """Return the sorted distinct names, beginning with "", and the index of each given name among them."""
    distinct = sorted({"", *names})
    index = {name: i for i, name in enumerate(distinct)}
    return tuple(distinct), np.array([index[name] for name in names], dtype=np.int64)


def find_street(network: RoadNetwork, name: str) -> IntArray:
    """Return the segments of the streets with a name; see `RoadNetwork.find`."""
    wanted = _normalise_name(name)
    if not wanted:
        raise InvalidParameter.of("name", name, "must be the name of a street")
    names = network.street_names
    if not any(names):
        raise InvalidParameter(
            "The network has no street names: the map has none, or an earlier version wrote the file. Build the "
            "network again (matched trips remain valid), or select a street by coordinates with network.nearest.",
            parameter="name",
            value=name,
        )
    plain = [_normalise_name(street) for street in names]
    exact = [i for i, street in enumerate(plain) if wanted in (street, street.partition(" (")[0])]
    chosen = exact or [i for i, street in enumerate(plain) if wanted in street]
    if not chosen:
        similar = difflib.get_close_matches(wanted, [s for s in plain if s], n=_N_SUGGESTIONS, cutoff=0.5)
        like = ", ".join(dict.fromkeys(names[plain.index(street)] for street in similar)) or "none"
        raise InvalidParameter(f"No street is named {name!r}. Similar names: {like}.", parameter="name", value=name)
    return np.flatnonzero(np.isin(network.street_of, chosen))


def list_street_names(network: RoadNetwork, segments: IntArray) -> list[str]:
    """Return the distinct street names of segments in descending order of length, without unnamed streets."""
    metres = np.bincount(network.street_of[segments], network.length_m[segments], minlength=len(network.street_names))
    order = np.argsort(-metres, kind="stable")
    return [network.street_names[i] for i in order if metres[i] > 0.0 and network.street_names[i]]


def describe_street(network: RoadNetwork, segment: int) -> str:
    """Return the name of a segment's street, or its class and position.

    Examples
    --------
    >>> from limiirl.roads import RoadNetwork
    >>> describe_street(RoadNetwork.from_segments([41.15, 41.16], [-8.63, -8.63], [0, 1], [1, 0]), 0)
    'a road near 41.1550,-8.6300'
    """
    name = network.street(segment)
    return name or f"{describe_class(network, segment)} near {format_place(network, segment)}"


def describe_class(network: RoadNetwork, segment: int) -> str:
    """Return the class of a segment as a noun phrase: "a tertiary road", "a motorway"."""
    word = network.class_names[network.road_class[segment]].replace("_", " ")
    noun = "" if word.endswith(("road", "way", "street", "avenue", "ring", "link", "service")) else " road"
    return f"{'an' if word[:1] in 'aeiou' else 'a'} {word}{noun}"


def format_place(network: RoadNetwork, segment: int) -> str:
    """Return the midpoint of a segment as LAT,LON."""
    nodes = [network.tail[segment], network.head[segment]]
    return f"{network.lat[nodes].mean():.4f},{network.lon[nodes].mean():.4f}"


def street_components(network: RoadNetwork) -> IntArray:
    """Return the street index (S,) of each segment; a street is connected and has one name, or one OSM way if unnamed.

    Streets with the same name in different districts are separate, and so are the carriageways of an avenue.
    """
    street = np.where(network.street_of > 0, -1 - network.street_of.astype(np.int64), network.way_id)
    alone = (network.street_of == 0) & (network.way_id < 0)
    _, key = np.unique(street, return_inverse=True)
    key = np.where(alone, key.max() + 1 + np.arange(key.size), key)
    ends = np.concatenate([key * network.n_nodes + network.tail, key * network.n_nodes + network.head])
    distinct, at = np.unique(ends, return_inverse=True)
    n = network.n_segments
    graph = sparse.csr_array((np.ones(n, dtype=np.int8), (at[:n], at[n:])), shape=(distinct.size, distinct.size))
    label = connected_components(graph, directed=False)[1][at[:n]]
    return np.asarray(np.unique(label, return_inverse=True)[1], dtype=np.int64)


def _normalise_name(text: str) -> str:
    """Return a name in lower case, without accents and with single spaces, for comparison."""
    letters = unicodedata.normalize("NFKD", text.casefold())
    return " ".join("".join(letter for letter in letters if not unicodedata.combining(letter)).split())
