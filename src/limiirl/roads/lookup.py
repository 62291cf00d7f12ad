"""Streets by place and by name: nearest segments, names from map tags, and descriptions."""

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
from limiirl.roads.kernels.spatial_index import nearest_of

if TYPE_CHECKING:
    from limiirl.roads.network import RoadNetwork


# Of another carriageway: how far from the place it may be, and how far from the opposite direction it may run.
_BESIDE_M = 40.0
_ASTRAY = 30.0
# So far beyond the network's box a place still looks like one of the same city.
_MARGIN_DEGREES = 0.05


class NearestStreets(NamedTuple):
    """The streets nearest to n places.

    Attributes
    ----------
    segment : (n,) int64
        The nearest; of several as near, the one of lowest number.
    opposite : (n,) int64
        The other direction of the same street, where it is driven both ways between the same nodes; -1 elsewhere.
    distance_m : (n,)
        From each place to its segment, on a flat map about the place.
    along : (n,)
        Where on the segment its closest point lies, as a share of it.

    Examples
    --------
    >>> found = NearestStreets(np.array([4, 4]), np.array([7, 7]), np.array([3.0, 5.0]), np.array([0.2, 0.3]))
    >>> found.segments
    array([4, 7])
    """

    segment: IntArray
    opposite: IntArray
    distance_m: FloatArray
    along: FloatArray

    @property
    def segments(self) -> IntArray:
        """Each segment once, both directions of a street: what is meant by closing the street at these places."""
        both = np.unique(np.concatenate([self.segment, self.opposite]))
        return np.asarray(both[both >= 0])


def find_nearest(network: RoadNetwork, lat: ArrayLike, lon: ArrayLike, within_m: float) -> NearestStreets:
    """Return the streets nearest to places; see `RoadNetwork.nearest`."""
    north, east = (np.atleast_1d(np.asarray(values, dtype=np.float64)) for values in (lat, lon))
    if north.ndim != 1 or north.shape != east.shape:
        raise InvalidParameter(
            f"lat and lon must be two numbers, or two rows as long; they have shapes {north.shape} and {east.shape}.",
            parameter="lat",
            value=(north.shape, east.shape),
        )
    check_positive(within_m, "within_m")
    wrong = ~((np.abs(north) <= 90.0) & (np.abs(east) <= 180.0))
    if wrong.any():
        i = int(np.argmax(wrong))
        raise InvalidParameter(
            f"{_place(north, i)}, ({north[i]:g}, {east[i]:g}), is not on the globe: latitudes lie within 90 of 0, "
            f"longitudes within 180.{_swap_hint(network, float(north[i]), float(east[i]))}",
            parameter="lat" if abs(north[i]) > 90.0 or np.isnan(north[i]) else "lon",
            value=(float(north[i]), float(east[i])),
            index=i,
        )
    segment, along, distance = nearest_of(
        network.grid, network.plane.xy(north, east), _stretch(network.centre[0], north), within_m
    )
    if np.any(segment < 0):
        i = int(np.argmax(segment < 0))
        raise InvalidParameter(
            _describe_miss(network, _place(north, i), float(north[i]), float(east[i]), within_m),
            parameter="within_m",
            value=within_m,
            index=i,
        )
    return NearestStreets(segment, network.opposite[segment], distance, along)


def nearest_segments(
    network: RoadNetwork, lat: float, lon: float, *, both: bool = True, within_m: float = 100.0
) -> IntArray:
    """Return the segments that are closed where a street is closed at a place, for everybody or one direction.

    Both directions of a street, also where they are drawn as two lines: a segment beside the nearest one, within 40 m
    of the place, of the same class and name, that runs the other way. One direction of a street that is a single line
    cannot be told from its place: that is an error that names the two.

    Parameters
    ----------
    network : RoadNetwork
    lat, lon : float
        In degrees.
    both : bool
        Both directions, or only the nearest.
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
    found = network.nearest(float(lat), float(lon), within_m=within_m)
    here, back = int(found.segment[0]), int(found.opposite[0])
    if back >= 0:
        if both:
            return found.segments
        named = " and ".join(f"{s} ({describe_direction(network, s)})" for s in sorted((here, back)))
        raise InvalidParameter(
            f"One way of a street that is driven both ways must be named by its segment: here they are {named}.",
            parameter="both",
            value=(min(here, back), max(here, back)),
        )
    return np.array(sorted({here, *(_beside(network, here, lat, lon) if both else ())}), dtype=np.int64)


def describe_direction(network: RoadNetwork, segment: int) -> str:
    """Return where a segment leads, in words.

    Examples
    --------
    >>> from limiirl.roads import RoadNetwork
    >>> describe_direction(RoadNetwork.from_segments([41.15, 41.16], [-8.63, -8.63], [0], [1]), 0)
    'to the north'
    """
    points = ("north", "north-east", "east", "south-east", "south", "south-west", "west", "north-west")
    return f"to the {points[round(float(network.bearing[segment]) / 45.0) % 8]}"


def _beside(network: RoadNetwork, here: int, lat: float, lon: float) -> list[int]:
    """Return the nearest segment of the other carriageway of a road; none where there is no such."""
    bend = (network.bearing - network.bearing[here]) % 360.0
    alike = (np.abs(bend - 180.0) <= _ASTRAY) & (network.road_class == network.road_class[here])
    alike &= (network.opposite < 0) & (network.street_of == network.street_of[here])
    rows = np.flatnonzero(alike)
    far = distances_m(network, rows, lat, lon)
    return [int(rows[np.argmin(far)])] if rows.size and far.min() <= _BESIDE_M else []


def distances_m(network: RoadNetwork, segments: IntArray, lat: float, lon: float) -> FloatArray:
    """Return how far (n,) each of some segments is from a place, on a flat map about the place.

    Examples
    --------
    >>> from limiirl.roads import RoadNetwork
    >>> street = RoadNetwork.from_segments([41.15, 41.16], [-8.63, -8.63], [0, 1], [1, 0])
    >>> distances_m(street, np.array([0]), 41.155, -8.6301).round(1)
    array([8.4])
    """
    begin, end = (
        offsets_m(lat, lon, network.lat[at[segments]], network.lon[at[segments]]) for at in (network.tail, network.head)
    )
    return line_distance_m(begin, end)


def _stretch(centre: float, lat: FloatArray) -> FloatArray:
    """Return (n, 2) true metres a metre of the flat map about the centre, eastward and northward, at latitudes.

    Both that map and the one about a place are straight in degrees, so that one is the other, stretched.
    """
    (along, across), (along_0, across_0) = radii_m(lat), radii_m(centre)
    east = across * np.cos(np.radians(lat)) / (across_0 * np.cos(np.radians(centre)))
    # At a pole a degree east is nothing.
    return np.asarray(np.maximum(np.stack([east, along / along_0], axis=1), 1e-6))


def _place(lat: FloatArray, i: int) -> str:
    return "the place" if lat.size == 1 else f"place {i}"


def _swap_hint(network: RoadNetwork, lat: float, lon: float) -> str:
    """Return what to say if a place would be in the network with latitude and longitude exchanged."""
    box = [(values.min() - _MARGIN_DEGREES, values.max() + _MARGIN_DEGREES) for values in (network.lat, network.lon)]
    given, exchanged = (
        all(low <= value <= high for (low, high), value in zip(box, pair, strict=True))
        for pair in ((lat, lon), (lon, lat))
    )
    return " Latitude and longitude look swapped: latitude comes first." if exchanged and not given else ""


def _describe_miss(network: RoadNetwork, which: str, lat: float, lon: float, within_m: float) -> str:
    """Return what is wrong with a place that has no segment within reach."""
    far = float(distances_m(network, np.arange(network.n_segments), lat, lon).min())
    off = f"{far:,.0f} m" if far < 10_000.0 else f"about {far / 1000.0:,.0f} km"
    said = f"No street lies within {within_m:g} m of {which}, ({lat:g}, {lon:g}); the nearest is {off} away."
    middle = f"({float(np.median(network.lat)):.4f}, {float(np.median(network.lon)):.4f})"
    return said + (
        _swap_hint(network, lat, lon)
        or f" Move it onto a street of the network, which lies about {middle}, or raise within_m."
    )


_LISTED = 8


def name_street(tags: Mapping[str, Any]) -> str:
    """Return what tags of OpenStreetMap call a street: its name, that of its bridge or tunnel, and its number.

    Examples
    --------
    >>> name_street({"name": "Ponte da Arrábida", "bridge:name": "Ponte da Arrábida", "ref": "A 1"})
    'Ponte da Arrábida (A 1)'
    >>> name_street({"name": "Rua Nova", "bridge:name": "Ponte Velha"}), name_street({"ref": "A 1;IC 23"})
    ('Rua Nova, Ponte Velha', 'A 1, IC 23')
    """
    said, number = (", ".join(_texts(tags, keys)) for keys in (("name", "bridge:name", "tunnel:name"), ("ref",)))
    return f"{said} ({number})" if said and number else said or number


def _texts(tags: Mapping[str, Any], keys: Sequence[str]) -> list[str]:
    """Return the distinct values of some tags; a semicolon separates several of one."""
    given = (part.strip() for key in keys for part in str(tags.get(key) or "").split(";"))
    return list(dict.fromkeys(part for part in given if part))


def index_names(names: Sequence[str]) -> tuple[tuple[str, ...], IntArray]:
    """Return each name once, sorted, "" first, and which of them each is.

    Examples
    --------
    >>> index_names(["b", "", "a", "b"])
    (('', 'a', 'b'), array([2, 0, 1, 2]))
    """
    distinct = sorted({"", *names})
    place = {name: i for i, name in enumerate(distinct)}
    return tuple(distinct), np.array([place[name] for name in names], dtype=np.int64)


def find_street(network: RoadNetwork, name: str) -> IntArray:
    """Return the segments of streets by name; see `RoadNetwork.find`."""
    wanted = _plain(name)
    if not wanted:
        raise InvalidParameter("The name of a street is needed; got none.", parameter="name", value=name)
    names = network.street_names
    if not any(names):
        raise InvalidParameter(
            "This network has no names of streets: its map has none, or it was built by an earlier limiirl. Build it "
            "again (trips stay matched to it), or point at a place with network.nearest.",
            parameter="name",
            value=name,
        )
    plain = [_plain(known) for known in names]
    whole = [i for i, known in enumerate(plain) if wanted in (known, known.partition(" (")[0])]
    chosen = whole or [i for i, known in enumerate(plain) if wanted in known]
    if not chosen:
        close = difflib.get_close_matches(wanted, [known for known in plain if known], n=_LISTED, cutoff=0.5)
        like = ", ".join(dict.fromkeys(names[plain.index(known)] for known in close))
        raise InvalidParameter(
            f"No street is called {name!r}. " + (f"Alike are {like}." if like else "Nor is any name like it."),
            parameter="name",
            value=name,
        )
    return np.flatnonzero(np.isin(network.street_of, chosen))


def list_street_names(network: RoadNetwork, segments: IntArray) -> list[str]:
    """Return the distinct names of some segments, the longest street first, those without one left out."""
    metres = np.bincount(network.street_of[segments], network.length_m[segments], minlength=len(network.street_names))
    order = np.argsort(-metres, kind="stable")
    return [network.street_names[i] for i in order if metres[i] > 0.0 and network.street_names[i]]


def describe_street(network: RoadNetwork, segment: int) -> str:
    """Return how to speak of the street of a segment: its name, or what it is and where.

    Examples
    --------
    >>> from limiirl.roads import RoadNetwork
    >>> describe_street(RoadNetwork.from_segments([41.15, 41.16], [-8.63, -8.63], [0, 1], [1, 0]), 0)
    'a road near 41.1550,-8.6300'
    """
    name = network.street(segment)
    return name or f"{describe_class(network, segment)} near {format_place(network, segment)}"


def describe_class(network: RoadNetwork, segment: int) -> str:
    """Return what a street is, by its class: a tertiary road, a motorway."""
    word = network.class_names[network.road_class[segment]].replace("_", " ")
    noun = "" if word.endswith(("road", "way", "street", "avenue", "ring", "link", "service")) else " road"
    return f"{'an' if word[:1] in 'aeiou' else 'a'} {word}{noun}"


def format_place(network: RoadNetwork, segment: int) -> str:
    """Return the middle of a segment as LAT,LON."""
    nodes = [network.tail[segment], network.head[segment]]
    return f"{network.lat[nodes].mean():.4f},{network.lon[nodes].mean():.4f}"


def street_components(network: RoadNetwork) -> IntArray:
    """Return a number (S,) for each part of a street that hangs together: of one name, or one way where it has none.

    Two streets of one name in different quarters are two; so are the carriageways of an avenue.

    Examples
    --------
    >>> from limiirl.roads import RoadNetwork
    >>> line = RoadNetwork.from_segments([41.15, 41.16, 41.17], [-8.63] * 3, [0, 1, 1], [1, 0, 2], way_id=[4, 4, 5])
    >>> street_components(line)
    array([0, 0, 1])
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


def _plain(text: str) -> str:
    """Return a name as it is compared: no capitals, no accents, single blanks."""
    letters = unicodedata.normalize("NFKD", text.casefold())
    return " ".join("".join(letter for letter in letters if not unicodedata.combining(letter)).split())
