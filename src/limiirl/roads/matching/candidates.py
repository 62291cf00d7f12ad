"""The segments near a fix: the grid over a network that both matchers search."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from limiirl.errors import InvalidParameter
from limiirl.kernels import candidates as kernel
from limiirl.kernels.candidates import GridIndex
from limiirl.roads.network import RoadNetwork

CELL_M = 60.0
"""Side of a cell: about the search radius, so that a search looks at some nine cells."""


class Candidates(NamedTuple):
    """The segments near n points, those of one point after those of another, nearest first.

    Attributes
    ----------
    offsets : (n + 1,) int64
        Point i owns entries ``offsets[i]:offsets[i + 1]``.
    segment : int32
        Both directions of a two-way street are two candidates.
    along : float64
        Where on the segment its closest point lies, as a share of it in [0, 1].
    distance_m : float64
        How far that is from the point.
    """

    offsets: NDArray[np.int64]
    segment: NDArray[np.int32]
    along: NDArray[np.float64]
    distance_m: NDArray[np.float64]


def only_neighbours(network: RoadNetwork) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Return (S,) the segment before each and (S,) the one after, where neither end offers a choice; else -1.

    Segment b is after a if b is the only turn out of a and a the only turn into b.

    Examples
    --------
    >>> fork = RoadNetwork.from_segments([0, 0, 0, 1], [0, 1, 2, 2], [0, 1, 2, 2], [1, 2, 1, 3])
    >>> only_neighbours(fork)[1]  # from 0 to 1; there 3 is the only way on, since back is no turn
    array([ 1,  3, -1, -1], dtype=int32)
    """
    n = network.n_segments
    ways_out = np.bincount(network.turn_from, minlength=n)
    ways_in = np.bincount(network.turn_to, minlength=n)
    single = (ways_out[network.turn_from] == 1) & (ways_in[network.turn_to] == 1)
    before, after = np.full(n, -1, dtype=np.int32), np.full(n, -1, dtype=np.int32)
    before[network.turn_to[single]] = network.turn_from[single]
    after[network.turn_from[single]] = network.turn_to[single]
    return before, after


def index(network: RoadNetwork, cell_m: float = CELL_M) -> GridIndex:
    """Return the grid over a network's segments, on its flat map.

    Examples
    --------
    >>> street = RoadNetwork.from_segments([41.15, 41.151], [-8.63, -8.63], [0, 1], [1, 0])
    >>> grid = index(street)
    >>> segment, along, distance_m = nearest(grid, *street.plane.xy(41.1505, -8.6301), radius_m=50.0)
    >>> segment, along.round(3), distance_m.round(2)
    (array([0, 1], dtype=int32), array([0.5, 0.5]), array([8.39, 8.39]))
    """
    if not (np.isfinite(cell_m) and cell_m > 0.0):
        raise InvalidParameter(f"cell_m must be positive; it is {cell_m!r}. About the search radius is quick.")
    return kernel.rasterise(network.node_xy, network.tail, network.head, *only_neighbours(network), float(cell_m))


def nearest(
    grid: GridIndex, x: float, y: float, *, radius_m: float, most: int = 64, streets: bool = False
) -> tuple[NDArray[np.int32], NDArray[np.float64], NDArray[np.float64]]:
    """Return the segments within a radius of a point in metres, nearest first: numbers, shares along, distances.

    Parameters
    ----------
    grid : GridIndex
        From `index`.
    x, y : float
        Metres east and north, as `RoadNetwork.plane` gives them.
    radius_m : float
    most : int
        Keep only the nearest.
    streets : bool
        Keep of each street (a chain of segments without a choice) only the places where it comes closest.
    """
    segment, along, distance = kernel.near(grid, float(x), float(y), float(radius_m), int(most), bool(streets))
    return segment, along, distance


def candidates(
    network: RoadNetwork,
    lat: ArrayLike,
    lon: ArrayLike,
    *,
    radius_m: float = 50.0,
    max_radius_m: float = 100.0,
    most: int = 64,
    streets: bool = False,
    grid: GridIndex | None = None,
) -> Candidates:
    """Return the segments near points in degrees; see `nearest` for the settings.

    The radius doubles up to `max_radius_m` around a point that has none within it.

    Examples
    --------
    >>> street = RoadNetwork.from_segments([41.15, 41.151], [-8.63, -8.63], [0], [1])
    >>> found = candidates(street, [41.1505, 42.0], [-8.6301, -8.63])
    >>> found.offsets, found.segment, found.distance_m.round(2)
    (array([0, 1, 1]), array([0], dtype=int32), array([8.39]))
    """
    grid = index(network) if grid is None else grid
    xy = np.atleast_2d(network.plane.xy(lat, lon))
    found: list[tuple[Any, Any, Any]] = [
        kernel.near_growing(grid, x, y, float(radius_m), float(max_radius_m), int(most), bool(streets))
        for x, y in xy.tolist()
    ]
    counts = np.array([segment.size for segment, _, _ in found], dtype=np.int64)
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    if not found:
        return Candidates(offsets, np.empty(0, dtype=np.int32), np.empty(0), np.empty(0))
    segment, along, distance = (np.concatenate(part) for part in zip(*found, strict=True))
    return Candidates(offsets, segment, along, distance)
