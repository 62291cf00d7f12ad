"""Grid index of segments with radius and nearest-neighbour searches; overlap of polylines."""

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from limiirl._typing import FloatArray

# Margin of cells, so that rounding errors do not omit segments on a border.
_MARGIN = 1e-6


class GridIndex(NamedTuple):
    """Straight segments in a plane, and the segments that intersect each grid cell."""

    x0: float  # coordinates of the south-west corner
    y0: float
    cell_m: float  # side of a cell
    nx: int  # number of cells eastward
    ny: int  # number of cells northward
    ptr: NDArray[np.int64]  # (nx ny + 1,): cell (i, j) has items[ptr[j nx + i]:ptr[j nx + i + 1]]
    items: NDArray[np.int32]  # segments, ascending within a cell
    ax: FloatArray  # (S,): start and end of each segment, in metres
    ay: FloatArray
    bx: FloatArray
    by: FloatArray
    before: NDArray[np.int32]  # (S,): unique predecessor of each segment, -1 if there is none
    after: NDArray[np.int32]  # (S,): unique successor of each segment, -1 if there is none


@njit(cache=True, nogil=True)
def _row(ax: float, ay: float, bx: float, by: float, low: float, high: float) -> tuple[float, float]:
    """Return the range of x of a segment within low <= y <= high; the segment must intersect this band."""
    if by == ay:
        return min(ax, bx), max(ax, bx)
    first, last = (low - ay) / (by - ay), (high - ay) / (by - ay)
    first, last = max(0.0, min(first, last)), min(1.0, max(first, last))
    x, other = ax + first * (bx - ax), ax + last * (bx - ax)
    return min(x, other), max(x, other)


@njit(cache=True, nogil=True)
def _list_cells(grid: Any, ends: Any, ptr: Any, items: Any, fill: bool) -> None:
    """Add the number of segments per cell to ptr[cell + 1]; or, with `fill`, write them to `items` from ptr[cell]."""
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
    """Return the grid index of straight segments between nodes `xy` (V, 2), with cells of `cell_m` metres."""
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
    """Project (x, y) onto segment s; return the relative position in [0, 1], and the distance."""
    dx, dy = index.bx[s] - index.ax[s], index.by[s] - index.ay[s]
    squared = dx * dx + dy * dy
    along = 0.0
    if squared > 0.0:
        along = min(1.0, max(0.0, ((x - index.ax[s]) * dx + (y - index.ay[s]) * dy) / squared))
    return along, np.hypot(x - (index.ax[s] + along * dx), y - (index.ay[s] + along * dy))


@njit(cache=True, nogil=True)
def _worse_than_neighbour(index: GridIndex, s: int, along: float, x: float, y: float) -> bool:
    """Return True if a neighbour on the same street is closer, or is preferred at equal distance."""
    if along == 0.0 and index.before[s] >= 0:
        return True
    if along == 1.0 and index.after[s] >= 0:
        return closest(index, index.after[s], x, y)[0] > 0.0
    return False


@njit(cache=True, nogil=True)
def _insert(n: int, most: int, s: int, share: float, far: float, segment: Any, along: Any, distance: Any) -> int:
    """Insert a segment into the list of the nearest `most`, sorted by distance and segment; return its new size."""
    at = n
    while at > 0 and (distance[at - 1] > far or (distance[at - 1] == far and segment[at - 1] > s)):
        at -= 1
    if at == most:
        return n
    for k in range(min(n, most - 1), at, -1):
        segment[k], along[k], distance[k] = segment[k - 1], along[k - 1], distance[k - 1]
    segment[at], along[at], distance[at] = s, share, far
    return min(n + 1, most)


@njit(cache=True, nogil=True)
def collect(
    index: GridIndex, x: float, y: float, radius: float, streets: bool, segment: Any, along: Any, distance: Any
) -> int:
    """Write the segments within a radius of (x, y), nearest first, and return their number.

    The output arrays (most,) limit the number of segments; ties are broken by lower index, and `along` is the relative
    position in [0, 1]. With `streets`, only local minima of the distance along a street are written.
    """
    most, n = segment.size, 0
    if not (np.isfinite(x) and np.isfinite(y)):
        return 0
    # Clip first: the conversion to integers would overflow for very distant fixes.
    left = int(np.floor(min(max((x - radius - index.x0) / index.cell_m, 0.0), float(index.nx))))
    right = int(np.floor(min(max((x + radius - index.x0) / index.cell_m, -1.0), index.nx - 1.0)))
    bottom = int(np.floor(min(max((y - radius - index.y0) / index.cell_m, 0.0), float(index.ny))))
    top = int(np.floor(min(max((y + radius - index.y0) / index.cell_m, -1.0), index.ny - 1.0)))
    for j in range(bottom, top + 1):
        for i in range(left, right + 1):
            for k in range(index.ptr[j * index.nx + i], index.ptr[j * index.nx + i + 1]):
                s = index.items[k]
                share, far = closest(index, s, x, y)
                if far > radius or (n == most and far > distance[most - 1]):
                    continue
                # A segment is listed in several cells; use only the cell that contains its closest point.
                px = index.ax[s] + share * (index.bx[s] - index.ax[s])
                py = index.ay[s] + share * (index.by[s] - index.ay[s])
                if i != int(np.floor((px - index.x0) / index.cell_m)):
                    continue
                if j != int(np.floor((py - index.y0) / index.cell_m)):
                    continue
                if streets and _worse_than_neighbour(index, s, share, x, y):
                    continue
                n = _insert(n, most, s, share, far, segment, along, distance)
    return n


@njit(cache=True, nogil=True)
def collect_growing(
    index: GridIndex, x: float, y: float, radius: float, max_radius: float, streets: bool, segment: Any, along: Any,
    distance: Any,
) -> int:  # fmt: skip
    """Call `collect` with a radius that is doubled, up to `max_radius`, until a segment is within it."""
    while True:
        n = collect(index, x, y, radius, streets, segment, along, distance)
        if n > 0 or radius >= max_radius:
            return n
        radius = min(2.0 * radius, max_radius)


@njit(cache=True, nogil=True)
def near_growing(
    index: GridIndex, x: float, y: float, radius: float, max_radius: float, most: int, streets: bool
) -> tuple[Any, Any, Any]:
    """Return segments (n,), relative positions (n,) and distances (n,); see `collect_growing`."""
    segment, along, distance = np.empty(most, dtype=np.int32), np.empty(most), np.empty(most)
    n = collect_growing(index, x, y, radius, max_radius, streets, segment, along, distance)
    return segment[:n], along[:n], distance[:n]


@njit(cache=True, nogil=True)
def near(index: GridIndex, x: float, y: float, radius: float, most: int, streets: bool) -> tuple[Any, Any, Any]:
    """Return segments (n,), relative positions (n,) and distances (n,); see `collect`."""
    return near_growing(index, x, y, radius, radius, most, streets)


_FIRST_M = 30.0  # initial search radius
_MOST = 64  # initial capacity for segments
_ALIKE_M = 1e-6  # tolerance of equal distances, such as the distances to the two directions of a street


@njit(cache=True, nogil=True)
def _closest_scaled(index: GridIndex, s: int, x: float, y: float, east: float, north: float) -> tuple[float, float]:
    """Project (x, y) onto segment s after scaling the axes by (east, north); return relative position and distance."""
    ax, ay = (index.ax[s] - x) * east, (index.ay[s] - y) * north
    dx, dy = (index.bx[s] - index.ax[s]) * east, (index.by[s] - index.ay[s]) * north
    squared = dx * dx + dy * dy
    along = 0.0
    if squared > 0.0:
        along = min(1.0, max(0.0, -(ax * dx + ay * dy) / squared))
    return along, np.hypot(ax + along * dx, ay + along * dy)


@njit(cache=True, nogil=True)
def _all_near(index: GridIndex, x: float, y: float, radius: float) -> Any:
    most = _MOST
    while True:
        segment, _, _ = near(index, x, y, radius, most, False)
        if segment.size < most:
            return segment
        most *= 4


@njit(cache=True, nogil=True)
def nearest(index: GridIndex, xy: FloatArray, scale: FloatArray, within: float) -> tuple[Any, Any, Any]:
    """Return the segments (n,) nearest to n points, with relative positions (n,) and distances (n,).

    `scale` (n, 2) has the factors, east and north, from distances on the plane to true distances at each point, and
    `within` is the maximum true distance. Ties are broken by lower index. If no segment is within the maximum distance,
    the results are -1 and NaN.
    """
    n = xy.shape[0]
    segment, along, distance = np.full(n, -1), np.full(n, np.nan), np.full(n, np.nan)
    for i in range(n):
        x, y, east, north = xy[i, 0], xy[i, 1], scale[i, 0], scale[i, 1]
        narrow = min(east, north)
        nearby, _, _ = near_growing(index, x, y, min(_FIRST_M, within) / narrow, within / narrow, 1, False)
        if nearby.size == 0:
            continue
        # The true distance of the nearest segment on the plane is an upper bound.
        _, bound = _closest_scaled(index, nearby[0], x, y, east, north)
        around = _all_near(index, x, y, (bound + 2.0 * _ALIKE_M) / narrow)
        least = bound
        for s in around:
            least = min(least, _closest_scaled(index, s, x, y, east, north)[1])
        if least > within:
            continue
        for s in around:
            share, far = _closest_scaled(index, s, x, y, east, north)
            if far <= least + _ALIKE_M and (segment[i] < 0 or s < segment[i]):
                segment[i], along[i], distance[i] = s, share, far
    return segment, along, distance


@njit(cache=True, nogil=True)
def _disc(px: float, py: float, dx: float, dy: float, reach: float) -> tuple[float, float]:
    """Return the interval of t with |(px, py) + t (dx, dy)| <= reach; (1, 0) if it is empty."""
    a, b = dx * dx + dy * dy, px * dx + py * dy
    under = b * b - a * (px * px + py * py - reach * reach)
    if under < 0.0:
        return 1.0, 0.0
    root = np.sqrt(under)
    return (-b - root) / a, (-b + root) / a


@njit(cache=True, nogil=True)
def _band(px: float, py: float, dx: float, dy: float, reach: float, length: float) -> tuple[float, float]:
    """Return the interval of t for which the line lies in [0, length] x [-reach, reach]; (1, 0) if it is empty."""
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
    """Return the interval of positions on a-b within `reach` of c-d; (1, 0) if it is empty.

    The points within `reach` of a line segment form a convex set: a disc at each end and a band between them.
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
    """Return the length of a polyline (n, 2), and the length within `reach` > 0 of another polyline (m, 2).

    If `other` has one vertex, it is a point.
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
        n_intervals = 0
        for j in range(n):
            c, d = other[j], other[min(j + 1, other.shape[0] - 1)]
            if max(c[0], d[0]) < west or min(c[0], d[0]) > east or max(c[1], d[1]) < south or min(c[1], d[1]) > north:
                continue
            one, two = _stadium(a, b, c, d, reach)
            if one < two:
                low[n_intervals], high[n_intervals] = one, two
                n_intervals += 1
        covered, upto = 0.0, 0.0
        for k in np.argsort(low[:n_intervals]):
            if high[k] > upto:
                covered += high[k] - max(low[k], upto)
                upto = high[k]
        near += covered * length
    return total, near
