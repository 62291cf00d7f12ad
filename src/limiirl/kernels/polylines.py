"""Numbers out of the text of polylines, many at a time."""

import numpy as np
from numba import njit
from numpy.typing import NDArray

Byte = NDArray[np.uint8]
Int = NDArray[np.int64]
Float = NDArray[np.float64]

_OPEN, _CLOSE, _COMMA, _MINUS, _POINT, _ZERO, _NINE = 91, 93, 44, 45, 46, 48, 57
# With at most 15 digits and a power of ten below 10**22, both are exact, and one division rounds as float() does.
_MOST_DIGITS = 15
_POWERS = 10.0 ** np.arange(_MOST_DIGITS + 1)


@njit(cache=True, nogil=True)
def read_polylines(text: Byte, begin: Int) -> tuple[Float, Int, Int]:  # pragma: no cover - compiled
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
def _pairs(text: Byte, at: int, end: int, xy: Float, first: int) -> int:  # pragma: no cover - compiled
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
    """Step over one sign and the spaces about it; -1 where it is not there."""
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
