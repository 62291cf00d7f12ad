"""GPS kernels: which fixes to drop and where to cut; parsing of polylines."""

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from limiirl._typing import BoolArray, FloatArray, Int8Array, IntArray

KEPT, SWAPPED, SAME_TIME, OUTLIER, OUTSIDE, STANDING, FEW, SHORT = range(8)
"""What became of a fix."""
NO_CUT, GAP, JUMP, LEFT, STOP = range(5)
"""Why a piece begins at a fix that is not the first kept of its trip."""


class CleaningLimits(NamedTuple):
    """What a car can have done, and what is too small to keep; see `limiirl.roads.clean`."""

    max_gap_s: float
    max_speed_ms: float
    slack_m: float
    max_outliers: float
    stop_radius_m: float
    split_stops_s: float
    min_fixes: float
    min_length_m: float
    bridge_jumps: bool


_SEMI_MAJOR_M = 6_378_137.0
_FLATTENING = 1.0 / 298.257223563
_ECCENTRICITY2 = _FLATTENING * (2.0 - _FLATTENING)
_RADIAN = np.pi / 180.0


@njit(cache=True, nogil=True)
def metres(lat: float, lon: float, to_lat: float, to_lon: float) -> float:  # pragma: no cover - compiled
    """Return the distance of two points, as `limiirl.roads.geometry.distance_m` does."""
    middle = 0.5 * (lat + to_lat) * _RADIAN
    bulge = 1.0 - _ECCENTRICITY2 * np.sin(middle) ** 2
    across = _SEMI_MAJOR_M / np.sqrt(bulge)
    along = across * (1.0 - _ECCENTRICITY2) / bulge
    turn = ((to_lon - lon + 180.0) % 360.0 - 180.0) * _RADIAN
    return float(np.hypot(along * (to_lat - lat) * _RADIAN, across * np.cos(middle) * turn))


@njit(cache=True, nogil=True)
def clean_fixes(
    lat: FloatArray,
    lon: FloatArray,
    time_s: FloatArray,
    offsets: IntArray,
    outside: BoolArray,
    fate: Int8Array,
    cut: Int8Array,
    limits: CleaningLimits,
) -> None:  # pragma: no cover - compiled
    """Decide the fate of every fix, and where pieces begin.

    Parameters
    ----------
    lat, lon, time_s : (n,)
        Fixes one after the other.
    offsets : (N + 1,)
        Trip i owns the fixes ``offsets[i]:offsets[i + 1]``.
    outside : (n,) bool
        Whether a fix lies outside the network.
    fate : (n,) int8
        All KEPT, or SWAPPED where that is decided already; filled in here.
    cut : (n,) int8
        All NO_CUT; filled in here.
    limits : CleaningLimits
    """
    longest = 0
    for i in range(offsets.size - 1):
        longest = max(longest, offsets[i + 1] - offsets[i])
    cost, before = np.empty(longest), np.empty(longest, dtype=np.int64)
    kept = np.empty(longest, dtype=np.int64)
    for i in range(offsets.size - 1):
        n = 0
        for k in range(offsets[i], offsets[i + 1]):
            if fate[k] != KEPT:
                continue
            if n and time_s[k] <= time_s[kept[n - 1]]:
                fate[k] = SAME_TIME
                continue
            kept[n] = k
            n += 1
        first = 0
        for m in range(1, n + 1):
            if m == n or time_s[kept[m]] - time_s[kept[m - 1]] > limits.max_gap_s:
                _outliers(lat, lon, time_s, kept[first:m], fate, cost, before, limits)
                first = m
        n = _pieces(lat, lon, time_s, kept[:n], outside, fate, cut, limits)
        n = _stops(lat, lon, time_s, kept[:n], fate, cut, limits)
        _small(lat, lon, kept[:n], fate, cut, limits)


@njit(cache=True, nogil=True)
def _far(
    lat: FloatArray, lon: FloatArray, time_s: FloatArray, q: int, k: int, limits: CleaningLimits
) -> bool:  # pragma: no cover - compiled
    """Whether fix k cannot be reached from the earlier fix q."""
    return bool(metres(lat[q], lon[q], lat[k], lon[k]) > limits.max_speed_ms * (time_s[k] - time_s[q]) + limits.slack_m)


@njit(cache=True, nogil=True)
def _outliers(
    lat: FloatArray,
    lon: FloatArray,
    time_s: FloatArray,
    run: IntArray,
    fate: Int8Array,
    cost: FloatArray,
    before: IntArray,
    limits: CleaningLimits,
) -> None:  # pragma: no cover - compiled
    """Drop excursions from a run of fixes, at a cost of one a fix; a jump that stays costs more.

    An excursion is a row of fixes none of which can be reached from the fix before it, nor reach the fix after it,
    while the latter can be reached from the former. Where jumps are to be bridged, any row of fixes may be dropped.
    The cheapest way is found exactly: ``cost[m]`` is that of the run up to m with m kept. A jump costs half of what
    the longest excursion does, which has one at each end, so that excursions are dropped and relocations stay.
    """
    n = run.size
    most, bridge = int(min(limits.max_outliers, 1e9)), limits.bridge_jumps
    jump = most // 2 + 1
    for m in range(n):
        cost[m], before[m] = (float(m) if bridge or m == 0 else np.inf), -1
        for p in range(m - 1, max(m - 2 - most, -1), -1):
            least = cost[p] + (m - p - 1)
            if least >= cost[m]:
                continue
            far = _far(lat, lon, time_s, run[p], run[m], limits)
            if far:
                least += jump
            allowed = bridge or m == p + 1 or not far
            if allowed and not bridge:
                for d in range(p + 1, m):
                    allowed &= _far(lat, lon, time_s, run[p], run[d], limits)
                    allowed &= _far(lat, lon, time_s, run[d], run[m], limits)
            if allowed and least < cost[m]:
                cost[m], before[m] = least, p
    last = n - 1
    for m in range(n - 1 if bridge else 0):
        if cost[m] + (n - 1 - m) < cost[last] + (n - 1 - last):
            last = m
    for m in range(n - 1, -1, -1):
        if m == last:
            last = before[m]
        else:
            fate[run[m]] = OUTLIER


@njit(cache=True, nogil=True)
def _pieces(
    lat: FloatArray,
    lon: FloatArray,
    time_s: FloatArray,
    kept: IntArray,
    outside: BoolArray,
    fate: Int8Array,
    cut: Int8Array,
    limits: CleaningLimits,
) -> int:  # pragma: no cover - compiled
    """Cut at gaps, at jumps and where a trip is outside; squeeze `kept`, and return how many are left."""
    n, last, left = 0, -1, False
    for m in range(kept.size):
        k = kept[m]
        if fate[k] != KEPT:
            continue
        if outside[k]:
            fate[k] = OUTSIDE
            left = last >= 0
            continue
        if last >= 0:
            step = time_s[k] - time_s[last]
            if left:
                cut[k] = LEFT
            elif step > limits.max_gap_s:
                cut[k] = GAP
            elif _far(lat, lon, time_s, last, k, limits):
                cut[k] = JUMP
        left, last = False, k
        kept[n] = k
        n += 1
    return n


@njit(cache=True, nogil=True)
def _stops(
    lat: FloatArray,
    lon: FloatArray,
    time_s: FloatArray,
    kept: IntArray,
    fate: Int8Array,
    cut: Int8Array,
    limits: CleaningLimits,
) -> int:  # pragma: no cover - compiled
    """Keep the first and the last fix of each stop, and cut between them where it is long."""
    n, m = 0, 0
    while m < kept.size:
        first, last = kept[m], m
        while (
            last + 1 < kept.size
            and cut[kept[last + 1]] == NO_CUT
            and metres(lat[first], lon[first], lat[kept[last + 1]], lon[kept[last + 1]]) <= limits.stop_radius_m
        ):
            last += 1
        for p in range(m + 1, last):
            fate[kept[p]] = STANDING
        if last > m and time_s[kept[last]] - time_s[first] > limits.split_stops_s:
            cut[kept[last]] = STOP
        kept[n] = first
        n += 1
        if last > m:
            kept[n] = kept[last]
            n += 1
        m = last + 1
    return n


@njit(cache=True, nogil=True)
def _small(
    lat: FloatArray, lon: FloatArray, kept: IntArray, fate: Int8Array, cut: Int8Array, limits: CleaningLimits
) -> None:  # pragma: no cover - compiled
    """Drop pieces of too few fixes or too few metres."""
    first, length = 0, 0.0
    for m in range(1, kept.size + 1):
        if m < kept.size and cut[kept[m]] == NO_CUT:
            length += metres(lat[kept[m - 1]], lon[kept[m - 1]], lat[kept[m]], lon[kept[m]])
            continue
        verdict = FEW if m - first < limits.min_fixes else SHORT if length < limits.min_length_m else KEPT
        if verdict != KEPT:
            for p in range(first, m):
                fate[kept[p]] = verdict
        first, length = m, 0.0


Byte = NDArray[np.uint8]

_OPEN, _CLOSE, _COMMA, _MINUS, _POINT, _ZERO, _NINE = 91, 93, 44, 45, 46, 48, 57
# With at most 15 digits and a power of ten below 10**22, both are exact, and one division rounds as float() does.
_MOST_DIGITS = 15
_POWERS = 10.0 ** np.arange(_MOST_DIGITS + 1)


@njit(cache=True, nogil=True)
def read_polylines(text: Byte, begin: IntArray) -> tuple[FloatArray, IntArray, IntArray]:  # pragma: no cover - compiled
    """Read polylines written ``[[x, y], [x, y], ...]``, and point to those that are written in any other way.

    Only the plain form is read here: pairs of decimal numbers of at most 15 digits, with spaces or without. Whatever
    else JSON allows, and whatever it does not, is left to a slower reader that has words for it.

    Parameters
    ----------
    text : (b,) uint8
        The texts one after the other, in ASCII or UTF-8.
    begin : (N + 1,) int64
        Text i is ``text[begin[i]:begin[i + 1]]``.

    Returns
    -------
    xy : (n, 2)
        The pairs one after the other.
    counts : (N,) int64
        Pairs of each text.
    odd : (k,) int64
        Texts that could not be read; their count is 0.
    """
    n = begin.size - 1
    xy = np.empty((text.size // 6 + 1, 2))  # "[1,2]," is the shortest pair
    counts, odd = np.zeros(n, dtype=np.int64), np.empty(n, dtype=np.int64)
    n_pairs, n_odd = 0, 0
    for i in range(n):
        found = _pairs(text, begin[i], begin[i + 1], xy, n_pairs)
        if found < 0:
            odd[n_odd] = i
            n_odd += 1
        else:
            counts[i] = found
            n_pairs += found
    return xy[:n_pairs].copy(), counts, odd[:n_odd].copy()


@njit(cache=True, nogil=True)
def _pairs(text: Byte, at: int, end: int, xy: FloatArray, first: int) -> int:  # pragma: no cover - compiled
    """Read one polyline into ``xy[first:]`` and return how many pairs it has, or -1."""
    at = _space(text, at, end)
    while end > at and text[end - 1] <= 32:
        end -= 1
    if end - at < 2 or text[at] != _OPEN or text[end - 1] != _CLOSE:
        return -1
    at, end = _space(text, at + 1, end - 1), end - 1
    row = first
    while at < end:
        if row > first:
            if text[at] != _COMMA:
                return -1
            at = _space(text, at + 1, end)
        at = _bracket(text, at, end, _OPEN)
        for k in range(2):
            at, value = _number(text, at, end)
            at = _bracket(text, at, end, _COMMA if k == 0 else _CLOSE)
            if at < 0:
                return -1
            xy[row, k] = value
        row += 1
    return row - first


@njit(cache=True, nogil=True)
def _space(text: Byte, at: int, end: int) -> int:  # pragma: no cover - compiled
    while at < end and (text[at] == 32 or 9 <= text[at] <= 13):
        at += 1
    return at


@njit(cache=True, nogil=True)
def _bracket(text: Byte, at: int, end: int, wanted: int) -> int:  # pragma: no cover - compiled
    """ParticleStep over one sign and the spaces about it; -1 where it is not there."""
    if at < 0:
        return -1
    at = _space(text, at, end)
    if at >= end or text[at] != wanted:
        return -1
    return _space(text, at + 1, end)


@njit(cache=True, nogil=True)
def _number(text: Byte, at: int, end: int) -> tuple[int, float]:  # pragma: no cover - compiled
    """Read a decimal number; where there is none, or one too long to be exact here, the place is -1."""
    if at < 0 or at >= end:
        return -1, 0.0
    negative = text[at] == _MINUS
    at += negative
    digits, decimals, whole, seen_point = 0, 0, 0, False
    start = at
    while at < end:
        sign = text[at]
        if _ZERO <= sign <= _NINE:
            whole = whole * 10 + (sign - _ZERO)
            digits += 1
            decimals += seen_point
            if digits > _MOST_DIGITS:
                return -1, 0.0
        elif sign == _POINT and not seen_point and at > start:
            seen_point = True
        else:
            break
        at += 1
    # JSON knows neither "1." nor "01".
    if digits == 0 or (seen_point and decimals == 0) or (digits - decimals > 1 and text[start] == _ZERO):
        return -1, 0.0
    value = whole / _POWERS[decimals]
    return at, -value if negative else value
