"""Regions of a city: the centre, and sixteen compass points around it, by the paper's rule."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from limiirl.errors import InvalidParameter
from limiirl.roads.geodesy import distance_m
from limiirl.worlds.roadgrid import REGIONS, SECTORS

if TYPE_CHECKING:
    from limiirl.roads.network import RoadNetwork

__all__ = ["PORTO_CENTRE", "REGIONS", "great_circle_m", "regions"]

PORTO_CENTRE = (41.1480637, -8.6329584)
"""The middle of the paper's centre, in degrees."""

_MEAN_RADIUS_M = 6_371_008.8


def regions(
    network: RoadNetwork,
    centre: tuple[float, float] | None = None,
    radius_km: float = 2.0,
    *,
    corrected: bool = False,
) -> NDArray[np.int64]:
    """Return the region (S,) of each segment's middle, as an index into `REGIONS`: "centre", "E", "ENE", and so on.

    The paper's rule: "centre" within `radius_km` of the centre on the great circle, else the nearest of 16 compass
    points by atan2(dlat, dlon) of differences in degrees, as if a degree of longitude were as long as one of latitude.

    Parameters
    ----------
    network : RoadNetwork
    centre : (lat, lon), optional
        In degrees; the network's by default.
    radius_km : float
        Of the centre; 0 for none.
    corrected : bool
        True for distances on the ellipsoid and directions in metres, on which a compass would agree. In Porto a degree
        of longitude is 0.75 of one of latitude, so that the paper's points lie up to 8 degrees beside the true ones.

    Examples
    --------
    >>> from limiirl.roads import RoadNetwork
    >>> east = RoadNetwork.from_segments([41.15, 41.15, 41.15], [-8.63, -8.62, -8.5], [0, 1], [1, 2])
    >>> [REGIONS[i] for i in regions(east, centre=(41.15, -8.63))]
    ['centre', 'E']
    """
    lat, lon = network.centre if centre is None else centre
    if not (abs(lat) <= 90.0 and abs(lon) <= 180.0):
        raise InvalidParameter(f"centre must be (latitude, longitude) in degrees; got {(lat, lon)}.")
    if not (np.isfinite(radius_km) and radius_km >= 0.0):
        raise InvalidParameter(f"radius_km must be finite and not negative; got {radius_km}.")
    # The shorter way around the globe, for a street that crosses the 180th meridian.
    step = (network.lon[network.head] - network.lon[network.tail] + 180.0) % 360.0 - 180.0
    middle_lat = 0.5 * (network.lat[network.tail] + network.lat[network.head])
    middle_lon = network.lon[network.tail] + 0.5 * step
    north, east = middle_lat - lat, (middle_lon - lon + 180.0) % 360.0 - 180.0
    if corrected:
        east = east * _longitude_scale(lat)
        away_m = distance_m(lat, lon, middle_lat, middle_lon)
    else:
        away_m = great_circle_m(lat, lon, middle_lat, middle_lon)
    share = np.degrees(np.arctan2(north, east)) / (360.0 / len(SECTORS))
    sector = np.rint(share).astype(np.int64) % len(SECTORS)
    return np.where(away_m <= 1000.0 * radius_km, 0, 1 + sector)


def great_circle_m(lat: Any, lon: Any, to_lat: Any, to_lon: Any) -> NDArray[np.float64]:
    """Return the distances on a globe of the Earth's mean radius, in metres, by the haversine formula.

    Examples
    --------
    >>> round(float(great_circle_m(0.0, 0.0, 0.0, 1.0)))
    111195
    """
    lat, lon, to_lat, to_lon = (np.radians(values) for values in (lat, lon, to_lat, to_lon))
    half = np.sin((to_lat - lat) / 2.0) ** 2 + np.cos(lat) * np.cos(to_lat) * np.sin((to_lon - lon) / 2.0) ** 2
    return np.asarray(2.0 * _MEAN_RADIUS_M * np.arcsin(np.sqrt(half)))


def _longitude_scale(lat: float) -> float:
    """Return how long a degree of longitude is in degrees of latitude, at a latitude."""
    step = 1e-4
    return float(distance_m(lat, 0.0, lat, step) / distance_m(lat - step / 2.0, 0.0, lat + step / 2.0, 0.0))
