"""WGS84 distances, a local planar projection, and the compass regions of the paper."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from limiirl._typing import FloatArray
from limiirl._validation import check_positive
from limiirl.errors import InvalidParameter
from limiirl.worlds import SECTORS

if TYPE_CHECKING:
    from limiirl.roads.network import RoadNetwork


SEMI_MAJOR_M = 6_378_137.0
_FLATTENING = 1.0 / 298.257223563
ECCENTRICITY2 = _FLATTENING * (2.0 - _FLATTENING)


def radii_m(lat: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Return the meridional and the transverse radius of curvature at each latitude, in metres."""
    squared = 1.0 - ECCENTRICITY2 * np.sin(np.radians(lat)) ** 2
    along = SEMI_MAJOR_M * (1.0 - ECCENTRICITY2) / squared**1.5
    return np.asarray(along), np.asarray(SEMI_MAJOR_M / np.sqrt(squared))


def distance_m(lat: ArrayLike, lon: ArrayLike, to_lat: ArrayLike, to_lon: ArrayLike) -> FloatArray:
    """Return distances between points in metres, using the radii of curvature at the mean latitude.

    Up to 10 km and up to a latitude of 70 degrees, the relative difference from the geodesic is below 1e-6.

    Examples
    --------
    >>> round(float(distance_m(41.15, -8.63, 41.16, -8.63)), 1)  # a hundredth of a degree north
    1110.6
    """
    lat, lon, to_lat, to_lon = (np.asarray(values, dtype=np.float64) for values in (lat, lon, to_lat, to_lon))
    middle = 0.5 * (lat + to_lat)
    along, across = radii_m(middle)
    # Longitudes are compared across the 180th meridian.
    turn = np.radians((to_lon - lon + 180.0) % 360.0 - 180.0)
    return np.asarray(np.hypot(along * np.radians(to_lat - lat), across * np.cos(np.radians(middle)) * turn))


def offsets_m(lat: ArrayLike, lon: ArrayLike, to_lat: ArrayLike, to_lon: ArrayLike) -> FloatArray:
    """Return the offsets (n, 2) from one point to another in metres east and north, projected at the first point."""
    lat, lon, to_lat, to_lon = (np.asarray(values, dtype=np.float64) for values in (lat, lon, to_lat, to_lon))
    east, north = _metres_per_degree(lat)
    turn = (to_lon - lon + 180.0) % 360.0 - 180.0
    return np.stack([turn * east, (to_lat - lat) * north], axis=-1)


class Plane(NamedTuple):
    """Local planar projection around a point (lat, lon) in degrees, to metres east and north of the point.

    Distances are exact at the latitude of the point. At latitude 41 degrees, the error of an east-west distance 10 km
    further north or south is 0.14 %. Use the projection to compare fixes with segments, and `distance_m` for lengths.

    Examples
    --------
    >>> plane = Plane(41.15, -8.63)
    >>> plane.xy([41.15, 41.16], [-8.63, -8.63]).round(1)
    array([[   0. ,    0. ],
           [   0. , 1110.6]])
    """

    lat: float
    lon: float

    def xy(self, lat: ArrayLike, lon: ArrayLike) -> FloatArray:
        """Project points in degrees to metres east and north (n, 2)."""
        return offsets_m(self.lat, self.lon, lat, lon)

    def degrees(self, xy: ArrayLike) -> FloatArray:
        """Return the latitudes and longitudes (n, 2) of projected points; the inverse of `xy`."""
        east, north = _metres_per_degree(self.lat)
        points = np.asarray(xy, dtype=np.float64)
        return np.stack([self.lat + points[..., 1] / north, self.lon + points[..., 0] / east], axis=-1)


def _metres_per_degree(lat: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Return the metres per degree of longitude and per degree of latitude, at each latitude."""
    along, across = radii_m(lat)
    return np.asarray(np.radians(across * np.cos(np.radians(lat)))), np.asarray(np.radians(along))


def line_distance_m(p: FloatArray, q: FloatArray) -> FloatArray:
    """Return the distance (n,) from the origin to each line segment from p (n, 2) to q (n, 2)."""
    line = q - p
    square = np.maximum(np.sum(line**2, axis=1), 1e-12)
    fraction = np.clip(-np.sum(p * line, axis=1) / square, 0.0, 1.0)
    return np.asarray(np.hypot(*(p + fraction[:, None] * line).T))


PORTO_CENTRE = (41.1480637, -8.6329584)
"""Latitude and longitude, in degrees, of the centre of Porto in the paper."""

_MEAN_RADIUS_M = 6_371_008.8


def regions(
    network: RoadNetwork, centre: tuple[float, float] | None = None, radius_km: float = 2.0, *, corrected: bool = False
) -> NDArray[np.int64]:
    """Return the region (S,) of each segment's midpoint, as an index into `REGIONS`: "centre", "E", "ENE", ...

    As in the paper, a midpoint is in the region "centre" if its great-circle distance from the centre is at most
    `radius_km`. Other midpoints belong to the nearest of 16 compass points, by the angle atan2(dlat, dlon). This angle
    ignores that a degree of longitude is shorter than a degree of latitude.

    Parameters
    ----------
    network : RoadNetwork
    centre : (lat, lon), optional
        In degrees; by default `network.centre`.
    radius_km : float
        Radius of the region "centre"; with 0, there is no such region.
    corrected : bool
        Use ellipsoidal distances, and angles in metres. In Porto, a degree of longitude has 0.75 times the length of a
        degree of latitude, and the angles of the paper are wrong by up to 8 degrees.

    Examples
    --------
    >>> from limiirl.roads import REGIONS, RoadNetwork
    >>> east = RoadNetwork.from_segments([41.15, 41.15, 41.15], [-8.63, -8.62, -8.5], [0, 1], [1, 2])
    >>> [REGIONS[i] for i in regions(east, centre=(41.15, -8.63))]
    ['centre', 'E']
    """
    lat, lon = network.centre if centre is None else centre
    if not (abs(lat) <= 90.0 and abs(lon) <= 180.0):
        raise InvalidParameter.of("centre", (lat, lon), "must be (latitude, longitude) in degrees")
    check_positive(radius_km, "radius_km", zero=True)
    # A segment may cross the 180th meridian.
    span = (network.lon[network.head] - network.lon[network.tail] + 180.0) % 360.0 - 180.0
    middle_lat = 0.5 * (network.lat[network.tail] + network.lat[network.head])
    middle_lon = network.lon[network.tail] + 0.5 * span
    north, east = middle_lat - lat, (middle_lon - lon + 180.0) % 360.0 - 180.0
    if corrected:
        # Length of a degree of longitude, relative to a degree of latitude.
        step = 1e-4
        scale = distance_m(lat, 0.0, lat, step) / distance_m(lat - step / 2.0, 0.0, lat + step / 2.0, 0.0)
        east = east * float(scale)
        away_m = distance_m(lat, lon, middle_lat, middle_lon)
    else:
        away_m = great_circle_m(lat, lon, middle_lat, middle_lon)
    angle = np.degrees(np.arctan2(north, east)) / (360.0 / len(SECTORS))
    sector = np.rint(angle).astype(np.int64) % len(SECTORS)
    return np.where(away_m <= 1000.0 * radius_km, 0, 1 + sector)


def great_circle_m(lat: Any, lon: Any, to_lat: Any, to_lon: Any) -> NDArray[np.float64]:
    """Return great-circle distances in metres (haversine formula), on a sphere with the mean radius of the Earth."""
    lat, lon, to_lat, to_lon = (np.radians(values) for values in (lat, lon, to_lat, to_lon))
    half = np.sin((to_lat - lat) / 2.0) ** 2 + np.cos(lat) * np.cos(to_lat) * np.sin((to_lon - lon) / 2.0) ** 2
    return np.asarray(2.0 * _MEAN_RADIUS_M * np.arcsin(np.sqrt(half)))
