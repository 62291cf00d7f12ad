"""How much of one polyline lies near another, exactly."""

import numpy as np
from numba import njit
from numpy.typing import NDArray

Float = NDArray[np.float64]


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
def _stadium(a: Float, b: Float, c: Float, d: Float, reach: float) -> tuple[float, float]:
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
def length_near(line: Float, other: Float, reach: float) -> tuple[float, float]:
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
