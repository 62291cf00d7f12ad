"""Kernels for cleaning GPS fixes and for parsing polylines."""

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from limiirl._typing import BoolArray, FloatArray, Int8Array, IntArray
from limiirl.roads.geometry import ECCENTRICITY2, SEMI_MAJOR_M

KEPT, SWAPPED, SAME_TIME, OUTLIER, OUTSIDE, STANDING, FEW, SHORT = range(8)
"""Outcomes of cleaning for a fix."""
NO_CUT, GAP, JUMP, LEFT, STOP = range(5)
"""Reasons for a cut before a fix."""


class CleaningLimits(NamedTuple):
    """Limits of plausible driving and minimum sizes; see `limiirl.roads.clean`."""

    max_gap_s: float
    max_speed_ms: float
    slack_m: float
    max_outliers: float
    stop_radius_m: float
    split_stops_s: float
    min_fixes: float
    min_length_m: float
    bridge_jumps: bool


_RADIAN = np.pi / 180.0


@njit(cache=True, nogil=True)
def metres(lat: float, lon: float, to_lat: float, to_lon: float) -> float:
    """Return the distance between two points, like `limiirl.roads.geometry.distance_m`."""
    middle = 0.5 * (lat + to_lat) * _RADIAN
    squared = 1.0 - ECCENTRICITY2 * np.sin(middle) ** 2
    across = SEMI_MAJOR_M / np.sqrt(squared)
    along = across * (1.0 - ECCENTRICITY2) / squared
    difference = ((to_lon - lon + 180.0) % 360.0 - 180.0) * _RADIAN
    return float(np.hypot(along * (to_lat - lat) * _RADIAN, across * np.cos(middle) * difference))


class Track(NamedTuple):
    """Concatenated fixes of all trips: degrees and seconds."""

    lat: FloatArray
    lon: FloatArray
    time_s: FloatArray


@njit(cache=True, nogil=True)
def clean_fixes(
    lat: FloatArray, lon: FloatArray, time_s: FloatArray, offsets: IntArray, outside: BoolArray, fate: Int8Array,
    cut: Int8Array, limits: CleaningLimits,
) -> None:  # fmt: skip
    """Write the outcome for every fix to `fate` (n,), and the cuts between pieces to `cut` (n,).

    Initially, `fate` is KEPT or SWAPPED, and `cut` is NO_CUT. `outside` (n,) is True for fixes outside the network.
    """
    track, longest = Track(lat, lon, time_s), 0
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
                _drop_outliers(track, kept[first:m], fate, cost, before, limits)
                first = m
        n = _cut_pieces(track, kept[:n], outside, fate, cut, limits)
        n = _merge_stops(track, kept[:n], fate, cut, limits)
        _drop_small(track, kept[:n], fate, cut, limits)


@njit(cache=True, nogil=True)
def _distance(track: Track, p: int, q: int) -> float:
    return metres(track.lat[p], track.lon[p], track.lat[q], track.lon[q])


@njit(cache=True, nogil=True)
def _is_far(track: Track, p: int, q: int, limits: CleaningLimits) -> bool:
    return _distance(track, p, q) > limits.max_speed_ms * (track.time_s[q] - track.time_s[p]) + limits.slack_m


@njit(cache=True, nogil=True)
def _drop_outliers(
    track: Track, run: IntArray, fate: Int8Array, cost: FloatArray, before: IntArray, limits: CleaningLimits
) -> None:
    """Drop excursions from a run of fixes by dynamic programming.

    A jump is a step at an impossible speed. An excursion is a sequence of fixes between two jumps; without it, the step
    from the fix before it to the fix after it has a possible speed. With `bridge_jumps`, any fixes may be dropped. A
    dropped fix costs 1, and a jump costs slightly more than half of the maximum length of an excursion. An excursion
    has two jumps, so it is dropped; a relocation has one jump, so it is kept. ``cost[m]`` is the minimum cost up to fix
    m if m is kept.
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
            far = _is_far(track, run[p], run[m], limits)
            if far:
                least += jump
            allowed = bridge or m == p + 1 or not far
            if allowed and not bridge:
                for d in range(p + 1, m):
                    allowed &= _is_far(track, run[p], run[d], limits)
                    allowed &= _is_far(track, run[d], run[m], limits)
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
def _cut_pieces(
    track: Track, kept: IntArray, outside: BoolArray, fate: Int8Array, cut: Int8Array, limits: CleaningLimits
) -> int:
    """Cut trips at gaps, at jumps and outside the network; remove dropped fixes from `kept` and return its size."""
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
            step = track.time_s[k] - track.time_s[last]
            if left:
                cut[k] = LEFT
            elif step > limits.max_gap_s:
                cut[k] = GAP
            elif _is_far(track, last, k, limits):
                cut[k] = JUMP
        left, last = False, k
        kept[n] = k
        n += 1
    return n


@njit(cache=True, nogil=True)
def _merge_stops(track: Track, kept: IntArray, fate: Int8Array, cut: Int8Array, limits: CleaningLimits) -> int:
    """Drop all fixes of a stop except the first and the last; cut trips at long stops; return the size of `kept`."""
    n, m = 0, 0
    while m < kept.size:
        first, last = kept[m], m
        while (
            last + 1 < kept.size
            and cut[kept[last + 1]] == NO_CUT
            and _distance(track, first, kept[last + 1]) <= limits.stop_radius_m
        ):
            last += 1
        for p in range(m + 1, last):
            fate[kept[p]] = STANDING
        if last > m and track.time_s[kept[last]] - track.time_s[first] > limits.split_stops_s:
            cut[kept[last]] = STOP
        kept[n] = first
        n += 1
        if last > m:
            kept[n] = kept[last]
            n += 1
        m = last + 1
    return n


@njit(cache=True, nogil=True)
def _drop_small(track: Track, kept: IntArray, fate: Int8Array, cut: Int8Array, limits: CleaningLimits) -> None:
    """Drop pieces that have too few fixes or are too short."""
    first, length = 0, 0.0
    for m in range(1, kept.size + 1):
        if m < kept.size and cut[kept[m]] == NO_CUT:
            length += _distance(track, kept[m - 1], kept[m])
            continue
        outcome = FEW if m - first < limits.min_fixes else SHORT if length < limits.min_length_m else KEPT
        if outcome != KEPT:
            for p in range(first, m):
                fate[kept[p]] = outcome
        first, length = m, 0.0


Byte = NDArray[np.uint8]

_OPEN, _CLOSE, _COMMA, _MINUS, _POINT, _ZERO, _NINE = 91, 93, 44, 45, 46, 48, 57
# Integers of at most 15 digits and powers of ten below 10**22 are exact, so their quotient equals float(text).
_MOST_DIGITS = 15
_POWERS = 10.0 ** np.arange(_MOST_DIGITS + 1)


@njit(cache=True, nogil=True)
def read_polylines(text: Byte, begin: IntArray) -> tuple[FloatArray, IntArray, IntArray]:
    """Parse polylines of the form ``[[x, y], [x, y], ...]``, with decimal numbers of at most 15 digits.

    Text i is ``text[begin[i]:begin[i + 1]]``, in ASCII or UTF-8. Returns the concatenated points (n, 2), the number of
    points per text (N,), and the indices (k,) of texts that have another form, whose number of points is 0.
    """
    n = begin.size - 1
    xy = np.empty((text.size // 6 + 1, 2))  # "[1,2]," is the shortest pair
    counts, odd = np.zeros(n, dtype=np.int64), np.empty(n, dtype=np.int64)
    n_pairs, n_odd = 0, 0
    for i in range(n):
        count = _parse_pairs(text, begin[i], begin[i + 1], xy, n_pairs)
        if count < 0:
            odd[n_odd] = i
            n_odd += 1
        else:
            counts[i] = count
            n_pairs += count
    return xy[:n_pairs].copy(), counts, odd[:n_odd].copy()


@njit(cache=True, nogil=True)
def _parse_pairs(text: Byte, at: int, end: int, xy: FloatArray, first: int) -> int:
    """Parse one polyline into ``xy[first:]``; return the number of points, or -1 if the text has another form."""
    at = _skip_space(text, at, end)
    while end > at and text[end - 1] <= 32:
        end -= 1
    if end - at < 2 or text[at] != _OPEN or text[end - 1] != _CLOSE:
        return -1
    at, end = _skip_space(text, at + 1, end - 1), end - 1
    row = first
    while at < end:
        if row > first:
            if text[at] != _COMMA:
                return -1
            at = _skip_space(text, at + 1, end)
        at = _skip_sign(text, at, end, _OPEN)
        for k in range(2):
            at, value = _parse_number(text, at, end)
            at = _skip_sign(text, at, end, _COMMA if k == 0 else _CLOSE)
            if at < 0:
                return -1
            xy[row, k] = value
        row += 1
    return row - first


@njit(cache=True, nogil=True)
def _skip_space(text: Byte, at: int, end: int) -> int:
    while at < end and (text[at] == 32 or 9 <= text[at] <= 13):
        at += 1
    return at


@njit(cache=True, nogil=True)
def _skip_sign(text: Byte, at: int, end: int, wanted: int) -> int:
    """Return the position after a character and its surrounding spaces, or -1 if the character is missing."""
    if at < 0:
        return -1
    at = _skip_space(text, at, end)
    if at >= end or text[at] != wanted:
        return -1
    return _skip_space(text, at + 1, end)


@njit(cache=True, nogil=True)
def _parse_number(text: Byte, at: int, end: int) -> tuple[int, float]:
    """Parse a decimal number; return the position after it (-1 if the number is missing or too long) and its value."""
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
    # JSON allows neither "1." nor "01".
    if digits == 0 or (seen_point and decimals == 0) or (digits - decimals > 1 and text[start] == _ZERO):
        return -1, 0.0
    value = whole / _POWERS[decimals]
    return at, -value if negative else value
