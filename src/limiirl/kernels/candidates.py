"""Which segments of a plane lie near a point: a grid of square cells, each with the segments that touch it."""

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

Float = NDArray[np.float64]

# Cells are listed a little wider than they are, so that a point computed on a segment always lies in a listed cell.
_MARGIN = 1e-6


class GridIndex(NamedTuple):
    """Straight segments in a plane, and the cells that each of them touches.

    Attributes
    ----------
    x0, y0, cell_m : float
        South-west corner of the grid, and the side of a cell.
    nx, ny : int
        Number of cells eastward and northward.
    ptr : (nx ny + 1,) int64
        Cell (i, j) lists ``items[ptr[j nx + i]:ptr[j nx + i + 1]]``.
    items : int32
        Segments, ascending within a cell.
    ax, ay, bx, by : (S,)
        Where each segment begins and ends, in metres.
    before : (S,) int32
        The one segment that leads into each and leads nowhere else; -1 where there is a choice.
    after : (S,) int32
        The inverse of `before`.
    """

    x0: float
    y0: float
    cell_m: float
    nx: int
    ny: int
    ptr: NDArray[np.int64]
    items: NDArray[np.int32]
    ax: Float
    ay: Float
    bx: Float
    by: Float
    before: NDArray[np.int32]
    after: NDArray[np.int32]


@njit(cache=True, nogil=True)
def _row(ax: float, ay: float, bx: float, by: float, low: float, high: float) -> tuple[float, float]:
    """Return the range of x over which a segment runs between two heights, given that it comes there."""
    if by == ay:
        return min(ax, bx), max(ax, bx)
    first, last = (low - ay) / (by - ay), (high - ay) / (by - ay)
    first, last = max(0.0, min(first, last)), min(1.0, max(first, last))
    x, other = ax + first * (bx - ax), ax + last * (bx - ax)
    return min(x, other), max(x, other)


@njit(cache=True, nogil=True)
def _list_cells(grid: Any, ends: Any, ptr: Any, items: Any, fill: bool) -> None:
    """Count the segments of each cell into ptr[cell + 1], or put them into `items` from ptr[cell] on."""
    x0, y0, cell, nx, ny = grid
    ax, ay, bx, by = ends
    for s in range(ax.size):
        bottom = max(0, int(np.floor((min(ay[s], by[s]) - _MARGIN - y0) / cell)))
        top = min(ny - 1, int(np.floor((max(ay[s], by[s]) + _MARGIN - y0) / cell)))
        for j in range(bottom, top + 1):
            low, high = y0 + j * cell - _MARGIN, y0 + (j + 1) * cell + _MARGIN
            west, east = _row(ax[s], ay[s], bx[s], by[s], low, high)
            left = max(0, int(np.floor((west - _MARGIN - x0) / cell)))
            right = min(nx - 1, int(np.floor((east + _MARGIN - x0) / cell)))
            for i in range(left, right + 1):
                c = j * nx + i
                if fill:
                    items[ptr[c]] = s
                    ptr[c] += 1
                else:
                    ptr[c + 1] += 1


def rasterise(xy: Float, tail: NDArray[Any], head: NDArray[Any], before: Any, after: Any, cell_m: float) -> GridIndex:
    """Return the index of segments that run straight between points.

    Parameters
    ----------
    xy : (V, 2)
        Points in metres.
    tail, head : (S,) int
        Points at which each segment begins and ends.
    before, after : (S,) int32
        See `GridIndex`.
    cell_m : float

    Examples
    --------
    >>> none = np.full(1, -1, dtype=np.int32)
    >>> index = rasterise(np.array([[0.0, 0.0], [90.0, 0.0]]), np.array([0]), np.array([1]), none, none, 50.0)
    >>> near(index, 30.0, 4.0, 10.0, 8, False)
    (array([0], dtype=int32), array([0.33333333]), array([4.]))
    """
    ax, ay, bx, by = (np.ascontiguousarray(xy[end, axis]) for end in (tail, head) for axis in (0, 1))
    ends = (ax, ay, bx, by)
    used = xy[np.concatenate([tail, head])]
    low, high = used.min(axis=0) - cell_m * 0.5, used.max(axis=0) + cell_m * 0.5
    nx, ny = (int(np.ceil(side / cell_m)) for side in high - low)
    grid = (float(low[0]), float(low[1]), float(cell_m), nx, ny)
    ptr = np.zeros(nx * ny + 1, dtype=np.int64)
    _list_cells(grid, ends, ptr, np.empty(0, dtype=np.int32), False)
    ptr = np.cumsum(ptr)
    items = np.empty(ptr[-1], dtype=np.int32)
    _list_cells(grid, ends, ptr[:-1].copy(), items, True)
    return GridIndex(*grid, ptr, items, ax, ay, bx, by, before, after)


@njit(cache=True, nogil=True)
def closest(index: GridIndex, s: int, x: float, y: float) -> tuple[float, float]:
    """Return how far along segment s, as a share of it, lies its point closest to (x, y), and that point's distance."""
    dx, dy = index.bx[s] - index.ax[s], index.by[s] - index.ay[s]
    squared = dx * dx + dy * dy
    along = 0.0
    if squared > 0.0:
        along = min(1.0, max(0.0, ((x - index.ax[s]) * dx + (y - index.ay[s]) * dy) / squared))
    return along, np.hypot(x - (index.ax[s] + along * dx), y - (index.ay[s] + along * dy))


@njit(cache=True, nogil=True)
def _worse_than_neighbour(index: GridIndex, s: int, along: float, x: float, y: float) -> bool:
    """Return whether a neighbour on the same street is as close; of two that are equally close only one says so."""
    if along == 0.0 and index.before[s] >= 0:
        return True
    if along == 1.0 and index.after[s] >= 0:
        return closest(index, index.after[s], x, y)[0] > 0.0
    return False


@njit(cache=True, nogil=True)
def _insert(found: int, most: int, s: int, share: float, far: float, segment: Any, along: Any, distance: Any) -> int:
    """Keep the nearest `most` in order of distance, then of segment, so that no order of search shows."""
    at = found
    while at > 0 and (distance[at - 1] > far or (distance[at - 1] == far and segment[at - 1] > s)):
        at -= 1
    if at == most:
        return found
    for k in range(min(found, most - 1), at, -1):
        segment[k], along[k], distance[k] = segment[k - 1], along[k - 1], distance[k - 1]
    segment[at], along[at], distance[at] = s, share, far
    return min(found + 1, most)


@njit(cache=True, nogil=True)
def collect(
    index: GridIndex, x: float, y: float, radius: float, streets: bool, segment: Any, along: Any, distance: Any
) -> int:
    """Write the segments within a radius of (x, y), nearest first, and return how many.

    Parameters
    ----------
    index : GridIndex
    x, y, radius : float
        In metres.
    streets : bool
        Keep of each street, which is a chain of segments without a choice, only where it comes closest: the local
        minima of the distance along it. All segments within the radius otherwise.
    segment, along, distance : (most,) int32 and float64
        Where to write: the nearest, and of equals those of lower number, are kept. `along` is a share in [0, 1].
    """
    most, found = segment.size, 0
    if not (np.isfinite(x) and np.isfinite(y)):
        return 0
    # Clipped as floats: a fix on another continent would overflow as a whole number.
    left = int(np.floor(min(max((x - radius - index.x0) / index.cell_m, 0.0), float(index.nx))))
    right = int(np.floor(min(max((x + radius - index.x0) / index.cell_m, -1.0), index.nx - 1.0)))
    bottom = int(np.floor(min(max((y - radius - index.y0) / index.cell_m, 0.0), float(index.ny))))
    top = int(np.floor(min(max((y + radius - index.y0) / index.cell_m, -1.0), index.ny - 1.0)))
    for j in range(bottom, top + 1):
        for i in range(left, right + 1):
            for k in range(index.ptr[j * index.nx + i], index.ptr[j * index.nx + i + 1]):
                s = index.items[k]
                share, far = closest(index, s, x, y)
                if far > radius or (found == most and far > distance[most - 1]):
                    continue
                # A segment is listed in several cells; it counts in the one where its closest point lies.
                px = index.ax[s] + share * (index.bx[s] - index.ax[s])
                py = index.ay[s] + share * (index.by[s] - index.ay[s])
                if i != int(np.floor((px - index.x0) / index.cell_m)):
                    continue
                if j != int(np.floor((py - index.y0) / index.cell_m)):
                    continue
                if streets and _worse_than_neighbour(index, s, share, x, y):
                    continue
                found = _insert(found, most, s, share, far, segment, along, distance)
    return found


@njit(cache=True, nogil=True)
def near(index: GridIndex, x: float, y: float, radius: float, most: int, streets: bool) -> tuple[Any, Any, Any]:
    """Return segments (n,), shares along them (n,) and distances (n,): `collect` with arrays of its own."""
    segment, along, distance = np.empty(most, dtype=np.int32), np.empty(most), np.empty(most)
    n = collect(index, x, y, radius, streets, segment, along, distance)
    return segment[:n], along[:n], distance[:n]


@njit(cache=True, nogil=True)
def near_growing(
    index: GridIndex, x: float, y: float, radius: float, max_radius: float, most: int, streets: bool
) -> tuple[Any, Any, Any]:
    """Return what `near` does, with the radius doubled until something is found or it would pass the largest."""
    while True:
        segment, along, distance = near(index, x, y, radius, most, streets)
        if segment.size > 0 or radius >= max_radius:
            return segment, along, distance
        radius = min(2.0 * radius, max_radius)
