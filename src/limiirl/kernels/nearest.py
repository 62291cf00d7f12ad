"""The segment nearest to each of many points, exactly, on a flat map of each point's own."""

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from limiirl.kernels.candidates import GridIndex, near, near_growing

# The first radius to look within, in metres: most places that somebody points at lie on a street.
_FIRST_M = 30.0
# Segments to make room for; more if they do not suffice.
_MOST = 64
# Metres that do not count: the two directions of a street are as near, whatever the last digits say.
_ALIKE_M = 1e-6


@njit(cache=True, nogil=True)
def _stretched(index: GridIndex, s: int, x: float, y: float, east: float, north: float) -> tuple[float, float]:
    """Return how far along segment s its point closest to (x, y) lies, and its distance, on a stretched plane."""
    ax, ay = (index.ax[s] - x) * east, (index.ay[s] - y) * north
    dx, dy = (index.bx[s] - index.ax[s]) * east, (index.by[s] - index.ay[s]) * north
    squared = dx * dx + dy * dy
    along = 0.0
    if squared > 0.0:
        along = min(1.0, max(0.0, -(ax * dx + ay * dy) / squared))
    return along, np.hypot(ax + along * dx, ay + along * dy)


@njit(cache=True, nogil=True)
def _all_near(index: GridIndex, x: float, y: float, radius: float) -> Any:
    """Return all segments within a radius, however many."""
    most = _MOST
    while True:
        segment, _, _ = near(index, x, y, radius, most, False)
        if segment.size < most:
            return segment
        most *= 4


@njit(cache=True, nogil=True)
def nearest(index: GridIndex, xy: Any, scale: Any, within: float, segment: Any, along: Any, distance: Any) -> None:
    """Write the segment nearest to each point, of equals the one of lower number; -1 where none is within reach.

    Parameters
    ----------
    index : GridIndex
    xy : (n, 2)
        Points on the plane of the index.
    scale : (n, 2)
        True metres a metre of that plane, eastward and northward, at each point.
    within : float
        True metres.
    segment, along, distance : (n,) int64 and float64
        Where to write; distances are true metres.
    """
    for i in range(xy.shape[0]):
        x, y, east, north = xy[i, 0], xy[i, 1], scale[i, 0], scale[i, 1]
        narrow = min(east, north)
        found, _, _ = near_growing(index, x, y, min(_FIRST_M, within) / narrow, within / narrow, 1, False)
        segment[i], along[i], distance[i] = -1, np.nan, np.nan
        if found.size == 0:
            continue
        # Nearest on the plane need not be nearest in truth; but what is lies no further off than this one in truth.
        _, bound = _stretched(index, found[0], x, y, east, north)
        around = _all_near(index, x, y, (bound + 2.0 * _ALIKE_M) / narrow)
        least = bound
        for s in around:
            least = min(least, _stretched(index, s, x, y, east, north)[1])
        if least > within:
            continue
        for s in around:
            share, far = _stretched(index, s, x, y, east, north)
            if far <= least + _ALIKE_M and (segment[i] < 0 or s < segment[i]):
                segment[i], along[i], distance[i] = s, share, far


def nearest_of(
    index: GridIndex, xy: NDArray[np.float64], scale: NDArray[np.float64], within: float
) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
    """Return segments (n,), shares along them (n,) and distances (n,): `nearest` with arrays of its own.

    Examples
    --------
    >>> from limiirl.kernels.candidates import rasterise
    >>> none = np.full(1, -1, dtype=np.int32)
    >>> index = rasterise(np.array([[0.0, 0.0], [90.0, 0.0]]), np.array([0]), np.array([1]), none, none, 50.0)
    >>> nearest_of(index, np.array([[30.0, 4.0], [30.0, 400.0]]), np.ones((2, 2)), 100.0)
    (array([ 0, -1]), array([0.33333333,        nan]), array([ 4., nan]))
    """
    n = len(xy)
    segment, along, distance = np.empty(n, dtype=np.int64), np.empty(n), np.empty(n)
    nearest(index, np.ascontiguousarray(xy), np.ascontiguousarray(scale), float(within), segment, along, distance)
    return segment, along, distance
