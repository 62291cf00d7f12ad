"""State elimination as a dense, blocked LU factorisation of I - W without pivoting, for graphs with much fill-in.

I - W is an M-matrix if all path sums are finite. Without pivoting, its factors and the solutions of systems with
a nonnegative right-hand side are sums of terms of the same sign, so that each entry has a small relative error, however
small it is. With pivoting, as in LAPACK, cancellation would make small path sums, such as those between distant states,
inaccurate.

Almost all operations are products of matrices.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from limiirl._typing import FloatArray, IntArray

_BLOCK = 64
"""Number of rows that are factorised by a scalar loop."""


class DenseFactors(NamedTuple):
    """Factors of I - W = L U, and the inverses of their diagonal blocks.

    Attributes
    ----------
    lu : (S, S)
        U, and below the diagonal L, whose diagonal is 1.
    lower, upper : list of (b, b)
        Inverses of the diagonal blocks of L and U.
    divergent : int
        First state at which the total weight of the cycles through earlier states reaches the limit, or -1. Later
        states are not factorised.
    """

    lu: FloatArray
    lower: list[FloatArray]
    upper: list[FloatArray]
    divergent: int

    def solve(self, right: FloatArray, size: int | None = None) -> FloatArray:
        """Return (I - W)^-1 right (n, m), for the leading `size` states (all by default)."""
        n = len(self.lu) if size is None else size
        x = np.array(right[:n])
        for k, e in _blocks(n):
            x[k:e] = self.lower[k // _BLOCK][: e - k, : e - k] @ (x[k:e] - self.lu[k:e, :k] @ x[:k])
        for k, e in reversed(_blocks(n)):
            x[k:e] = self.upper[k // _BLOCK][: e - k, : e - k] @ (x[k:e] - self.lu[k:e, e:n] @ x[e:])
        return x

    def solve_transposed(self, right: FloatArray, size: int | None = None) -> FloatArray:
        """Return (I - W')^-1 right (n, m), for the leading `size` states (all by default)."""
        n = len(self.lu) if size is None else size
        x = np.array(right[:n])
        for k, e in _blocks(n):
            x[k:e] = self.upper[k // _BLOCK][: e - k, : e - k].T @ (x[k:e] - self.lu[:k, k:e].T @ x[:k])
        for k, e in reversed(_blocks(n)):
            x[k:e] = self.lower[k // _BLOCK][: e - k, : e - k].T @ (x[k:e] - self.lu[e:n, k:e].T @ x[e:])
        return x


def eliminate(W: FloatArray, limit: float) -> DenseFactors:
    """Return the factors of I - W for nonnegative weights W (S, S).

    Elimination stops at the first state at which the total weight of the cycles through earlier states reaches `limit`,
    as in `linear.eliminate`.

    Examples
    --------
    >>> factors = eliminate(np.array([[0.0, 0.5], [0.5, 0.0]]), 1.0)
    >>> factors.solve(np.eye(2)).round(3).tolist()  # walks from state 0 to itself have weights 1, 1/4, 1/16, ...
    [[1.333, 0.667], [0.667, 1.333]]
    """
    a = -W
    np.einsum("ii->i", a)[:] += 1.0
    n = len(a)
    lower: list[FloatArray] = []
    upper: list[FloatArray] = []
    for k, e in _blocks(n):
        a[k:e, k:] -= a[k:e, :k] @ a[:k, k:]
        a[e:, k:e] -= a[e:, :k] @ a[:k, k:e]
        block = np.ascontiguousarray(a[k:e, k:e])
        bad = int(_factorise(block, 1.0 - limit))
        a[k:e, k:e] = block
        for inverses, inverse in zip((lower, upper), _invert(block, e - k if bad < 0 else bad), strict=True):
            inverses.append(inverse)
        if bad >= 0:
            return DenseFactors(a, lower, upper, k + bad)
        a[k:e, e:] = lower[-1] @ a[k:e, e:]
        a[e:, k:e] = a[e:, k:e] @ upper[-1]
    return DenseFactors(a, lower, upper, -1)


def _blocks(n: int) -> list[tuple[int, int]]:
    return [(k, min(k + _BLOCK, n)) for k in range(0, n, _BLOCK)]


@njit(cache=True, nogil=True)
def _factorise(a: FloatArray, smallest: float) -> int:
    """Overwrite a (b, b) with its factors; return the first row with a pivot of at most `smallest`, or -1."""
    b = a.shape[0]
    for i in range(b):
        for j in range(i):
            a[i, j] /= a[j, j]
            for q in range(j + 1, b):
                a[i, q] -= a[i, j] * a[j, q]
        if not a[i, i] > smallest:
            return i
    return -1


@njit(cache=True, nogil=True)
def _invert(a: FloatArray, size: int) -> tuple[FloatArray, FloatArray]:
    """Return the inverses of L and U in the leading `size` rows of a (b, b); other entries are 0."""
    lower, upper = np.zeros_like(a), np.zeros_like(a)
    for j in range(size):
        lower[j, j] = 1.0
        for i in range(j + 1, size):
            total = 0.0
            for q in range(j, i):
                total -= a[i, q] * lower[q, j]
            lower[i, j] = total
        upper[j, j] = 1.0 / a[j, j]
        for i in range(j - 1, -1, -1):
            total = 0.0
            for q in range(i + 1, j + 1):
                total -= a[i, q] * upper[q, j]
            upper[i, j] = total / a[i, i]
    return lower, upper


@njit(cache=True, nogil=True)
def multiply_pairs(src: IntArray, dst: IntArray, left: FloatArray, right: FloatArray) -> FloatArray:
    """Return left[src[e]] . right[dst[e]] (E,) for matrices (S, m)."""
    out = np.empty(src.size)
    for e in range(src.size):
        s, t, total = src[e], dst[e], 0.0
        for j in range(left.shape[1]):
            total += left[s, j] * right[t, j]
        out[e] = total
    return out
