"""Lengths, bearings and a flat map on the WGS84 ellipsoid, for distances of a city."""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

Float = NDArray[np.float64]

_SEMI_MAJOR_M = 6_378_137.0
_FLATTENING = 1.0 / 298.257223563
_ECCENTRICITY2 = _FLATTENING * (2.0 - _FLATTENING)


def radii_m(lat: ArrayLike) -> tuple[Float, Float]:
    """Return the ellipsoid's radii of curvature at latitudes, in metres: along the meridian, and across it.

    Examples
    --------
    >>> along, across = radii_m(0.0)
    >>> round(float(across))
    6378137
    """
    bulge = 1.0 - _ECCENTRICITY2 * np.sin(np.radians(lat)) ** 2
    along = _SEMI_MAJOR_M * (1.0 - _ECCENTRICITY2) / bulge**1.5
    return np.asarray(along), np.asarray(_SEMI_MAJOR_M / np.sqrt(bulge))


def distance_m(lat: ArrayLike, lon: ArrayLike, to_lat: ArrayLike, to_lon: ArrayLike) -> Float:
    """Return the distances between points in metres, by the radii of curvature halfway between them.

    Within one part in a million of the geodesic up to 10 km (at most 70 degrees from the equator); a street is far
    shorter.

    Examples
    --------
    >>> round(float(distance_m(41.15, -8.63, 41.16, -8.63)), 1)  # a hundredth of a degree north
    1110.6
    """
    lat, lon, to_lat, to_lon = (np.asarray(values, dtype=np.float64) for values in (lat, lon, to_lat, to_lon))
    middle = 0.5 * (lat + to_lat)
    along, across = radii_m(middle)
    # Around the globe the shorter way.
    turn = np.radians((to_lon - lon + 180.0) % 360.0 - 180.0)
    return np.asarray(np.hypot(along * np.radians(to_lat - lat), across * np.cos(np.radians(middle)) * turn))


def seen_m(lat: ArrayLike, lon: ArrayLike, to_lat: ArrayLike, to_lon: ArrayLike) -> Float:
    """Return (n, 2) metres east and north of points as seen from others, on the flat map about these; see `Plane`.

    Examples
    --------
    >>> seen_m([41.15, 0.0], [-8.63, 0.0], [41.16, 0.0], [-8.63, 0.01]).round(1)
    array([[   0. , 1110.6],
           [1113.2,    0. ]])
    """
    lat, lon, to_lat, to_lon = (np.asarray(values, dtype=np.float64) for values in (lat, lon, to_lat, to_lon))
    east, north = _metres_a_degree(lat)
    turn = (to_lon - lon + 180.0) % 360.0 - 180.0
    return np.stack([turn * east, (to_lat - lat) * north], axis=-1)


class Plane(NamedTuple):
    """A flat map about a point: metres east and north of it.

    True at the point's latitude; 10 km north or south of it, distances along a parallel are off by 0.14 % in Porto.
    Good for where a fix lies beside a street; lengths are `distance_m`.

    Parameters
    ----------
    lat, lon : float
        The point, in degrees.

    Examples
    --------
    >>> plane = Plane(41.15, -8.63)
    >>> plane.xy([41.15, 41.16], [-8.63, -8.63]).round(1)
    array([[   0. ,    0. ],
           [   0. , 1110.6]])
    >>> plane.degrees([[0.0, 1110.6]]).round(4)
    array([[41.16, -8.63]])
    """

    lat: float
    lon: float

    def xy(self, lat: ArrayLike, lon: ArrayLike) -> Float:
        """Return (n, 2) metres east and north of points in degrees."""
        return seen_m(self.lat, self.lon, lat, lon)

    def degrees(self, xy: ArrayLike) -> Float:
        """Return (n, 2) latitudes and longitudes of points in metres: the inverse of `xy`."""
        east, north = _metres_a_degree(self.lat)
        given = np.asarray(xy, dtype=np.float64)
        return np.stack([self.lat + given[..., 1] / north, self.lon + given[..., 0] / east], axis=-1)


def _metres_a_degree(lat: ArrayLike) -> tuple[Float, Float]:
    """Return how long a degree is at latitudes: along the parallel, and along the meridian."""
    along, across = radii_m(lat)
    return np.asarray(np.radians(across * np.cos(np.radians(lat)))), np.asarray(np.radians(along))


def passing_m(p: Float, q: Float) -> Float:
    """Return how near (n,) the straight lines from p (n, 2) to q pass the origin.

    Examples
    --------
    >>> passing_m(np.array([[-1.0, 2.0], [3.0, 4.0]]), np.array([[1.0, 2.0], [6.0, 8.0]]))
    array([2., 5.])
    """
    way = q - p
    square = np.maximum(np.sum(way**2, axis=1), 1e-12)
    share = np.clip(-np.sum(p * way, axis=1) / square, 0.0, 1.0)
    return np.asarray(np.hypot(*(p + share[:, None] * way).T))
