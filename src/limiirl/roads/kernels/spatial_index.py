"""Grid index of segments: those near a point, the nearest of each point, and the overlap of polylines."""

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from limiirl._typing import FloatArray

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
    ax: FloatArray
    ay: FloatArray
    bx: FloatArray
    by: FloatArray
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


def rasterise(
    xy: FloatArray, tail: NDArray[Any], head: NDArray[Any], before: Any, after: Any, cell_m: float
) -> GridIndex:
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
    >>> from limiirl.roads.kernels.spatial_index import rasterise
    >>> none = np.full(1, -1, dtype=np.int32)
    >>> index = rasterise(np.array([[0.0, 0.0], [90.0, 0.0]]), np.array([0]), np.array([1]), none, none, 50.0)
    >>> nearest_of(index, np.array([[30.0, 4.0], [30.0, 400.0]]), np.ones((2, 2)), 100.0)
    (array([ 0, -1]), array([0.33333333,        nan]), array([ 4., nan]))
    """
    n = len(xy)
    segment, along, distance = np.empty(n, dtype=np.int64), np.empty(n), np.empty(n)
    nearest(index, np.ascontiguousarray(xy), np.ascontiguousarray(scale), float(within), segment, along, distance)
    return segment, along, distance


@njit(cache=True, nogil=True)
def _disc(px: float, py: float, dx: float, dy: float, reach: float) -> tuple[float, float]:
    """From and to which t the line (px, py) + t (dx, dy) lies within `reach` of the origin; (1, 0) for nowhere."""
    a, b = dx * dx + dy * dy, px * dx + py * dy
    under = b * b - a * (px * px + py * py - reach * reach)
    if under < 0.0:
        return 1.0, 0.0
    root = np.sqrt(under)
    return (-b - root) / a, (-b + root) / a


@njit(cache=True, nogil=True)
def _band(px: float, py: float, dx: float, dy: float, reach: float, length: float) -> tuple[float, float]:
    """The same within `reach` of the x axis between 0 and `length`."""
    low, high = -np.inf, np.inf
    for at, by, least, most in ((px, dx, 0.0, length), (py, dy, -reach, reach)):
        if by == 0.0:
            if not least <= at <= most:
                return 1.0, 0.0
        else:
            one, two = (least - at) / by, (most - at) / by
            low, high = max(low, min(one, two)), min(high, max(one, two))
    return low, high


@njit(cache=True, nogil=True)
def _stadium(a: FloatArray, b: FloatArray, c: FloatArray, d: FloatArray, reach: float) -> tuple[float, float]:
    """From and to which share of the piece a-b it lies within `reach` of the piece c-d; (1, 0) for nowhere.

    What lies within `reach` of a straight piece is convex (a disc at each end and a band between), so it is one
    stretch.
    """
    dx, dy, length = b[0] - a[0], b[1] - a[1], np.hypot(d[0] - c[0], d[1] - c[1])
    low, high = _disc(a[0] - c[0], a[1] - c[1], dx, dy, reach)
    if length > 0.0:
        one, two = _disc(a[0] - d[0], a[1] - d[1], dx, dy, reach)
        if one <= two:
            low, high = (min(low, one), max(high, two)) if low <= high else (one, two)
        ex, ey, px, py = (d[0] - c[0]) / length, (d[1] - c[1]) / length, a[0] - c[0], a[1] - c[1]
        one, two = _band(px * ex + py * ey, py * ex - px * ey, dx * ex + dy * ey, dy * ex - dx * ey, reach, length)
        if one <= two:
            low, high = (min(low, one), max(high, two)) if low <= high else (one, two)
    low, high = max(low, 0.0), min(high, 1.0)
    return (low, high) if low < high else (1.0, 0.0)


@njit(cache=True, nogil=True)
def length_near(line: FloatArray, other: FloatArray, reach: float) -> tuple[float, float]:
    """Return the length of a polyline, and how much of it lies within `reach` of another polyline, on a plane.

    Parameters
    ----------
    line, other : (n, 2), (m, 2)
        Corners; an `other` of one corner is a point.
    reach : float
        Above 0.
    """
    total, near = 0.0, 0.0
    n = max(other.shape[0] - 1, 1)
    low, high = np.empty(n), np.empty(n)
    for i in range(line.shape[0] - 1):
        a, b = line[i], line[i + 1]
        length = np.hypot(b[0] - a[0], b[1] - a[1])
        if length == 0.0:
            continue
        total += length
        west, east = min(a[0], b[0]) - reach, max(a[0], b[0]) + reach
        south, north = min(a[1], b[1]) - reach, max(a[1], b[1]) + reach
        found = 0
        for j in range(n):
            c, d = other[j], other[min(j + 1, other.shape[0] - 1)]
            if max(c[0], d[0]) < west or min(c[0], d[0]) > east or max(c[1], d[1]) < south or min(c[1], d[1]) > north:
                continue
            one, two = _stadium(a, b, c, d, reach)
            if one < two:
                low[found], high[found] = one, two
                found += 1
        covered, upto = 0.0, 0.0
        for k in np.argsort(low[:found]):
            if high[k] > upto:
                covered += high[k] - max(low[k], upto)
                upto = high[k]
        near += covered * length
    return total, near
