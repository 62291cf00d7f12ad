"""LU factorisation of sparse matrices I - W with SuperLU, and the diagonal of (I - W)^-1 by selected inversion.

`factorise_lu` rejects the matrices for which SuperLU crashes. Selected inversion: Erisman and Tinney (1975).
"""

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.linalg import splu

from limiirl._typing import FloatArray


def factorise_lu(matrix: Any, **options: Any) -> Any:
    """Return the SuperLU factors of a csc matrix I - W; raise `RuntimeError` if it is singular.

    SuperLU accesses memory outside its arrays, and may crash, if the nonzero entries contain no perfect matching of
    rows and columns. A nonzero diagonal is such a matching, so zeros on the diagonal are rejected. In I - W, a zero
    on the diagonal is an absorbing state, up to rounding.

    Parameters
    ----------
    matrix : (n, n) csc
    **options
        Arguments of `scipy.sparse.linalg.splu`.

    Examples
    --------
    >>> from scipy import sparse
    >>> factorise_lu(sparse.csc_array([[1.0, -0.5], [-0.5, 1.0]])).solve(np.ones(2))
    array([2., 2.])
    >>> factorise_lu(sparse.csc_array([[0.0, -1e-17], [0.0, 1.0]]))
    Traceback (most recent call last):
    RuntimeError: The matrix is singular: diagonal entry 0 is zero or not finite.
    """
    diagonal = matrix.diagonal()
    wrong = np.flatnonzero(~np.isfinite(diagonal) | (diagonal == 0.0))
    if wrong.size:
        message = f"The matrix is singular: diagonal entry {wrong[0]} is zero or not finite."
        raise RuntimeError(message)
    if not np.all(np.isfinite(matrix.data)):
        message = "The matrix must be finite."
        raise RuntimeError(message)
    return splu(matrix, **options)


def diagonal_lu(matrix: Any) -> Any:
    """Return the SuperLU factors of a csc matrix, with diagonal pivots and the multiple minimum degree ordering.

    Diagonal pivots are stable for M-matrices I - W, in which no terms cancel, and for diagonally dominant matrices.

    Examples
    --------
    >>> from scipy import sparse
    >>> diagonal_lu(sparse.csc_array([[1.0, -0.5], [0.0, 1.0]])).solve(np.ones(2))
    array([1.5, 1. ])
    """
    return factorise_lu(matrix, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options={"SymmetricMode": True})


@njit(cache=True, nogil=True)
def _at(ptr: Any, columns: Any, row: int, column: int) -> int:
    """Return the position of an entry of a sparse matrix, or -1 if the entry is not stored."""
    place = ptr[row] + np.searchsorted(columns[ptr[row] : ptr[row + 1]], column)
    return place if place < ptr[row + 1] and columns[place] == column else -1


@njit(cache=True, nogil=True)
def _fill(pattern: Any, lower: Any, upper: Any, z: Any) -> None:
    """Write the entry (j, i) of Z = (L U)^-1 into z for every entry (i, j) of L + U, from the last pivot to the first.

    With U = D U' and unit diagonals of L and U', Z = D^-1 L^-1 - (U' - I) Z = U'^-1 D^-1 - Z (L - I). An entry depends
    only on entries of later pivots, which are all stored because of fill-in.
    """
    ptr, columns = pattern
    low_ptr, low_row, low = lower
    up_ptr, up_col, up = upper
    for i in range(ptr.size - 2, -1, -1):
        pivot = up[up_ptr[i]]
        for a in range(up_ptr[i] + 1, up_ptr[i + 1]):
            total = 0.0
            for b in range(low_ptr[i] + 1, low_ptr[i + 1]):
                place = _at(ptr, columns, low_row[b], up_col[a])
                if place >= 0:
                    total -= z[place] * low[b]
            z[_at(ptr, columns, i, up_col[a])] = total
        for b in range(low_ptr[i] + 1, low_ptr[i + 1]):
            total = 0.0
            for a in range(up_ptr[i] + 1, up_ptr[i + 1]):
                place = _at(ptr, columns, low_row[b], up_col[a])
                if place >= 0:
                    total -= up[a] / pivot * z[place]
            z[_at(ptr, columns, low_row[b], i)] = total
        total = 1.0 / pivot
        for a in range(up_ptr[i] + 1, up_ptr[i + 1]):
            total -= up[a] / pivot * z[_at(ptr, columns, i, up_col[a])]
        z[_at(ptr, columns, i, i)] = total


def return_visits(src: NDArray[Any], dst: NDArray[Any], weight: FloatArray, n: int) -> FloatArray:
    """Return the diagonal (n,) of (I - W)^-1: the expected number of visits to each state after it is first reached.

    `src`, `dst` and `weight` (E,) are the edges of W, which has nonnegative weights and a spectral radius below 1.

    Examples
    --------
    >>> return_visits(np.array([0, 1, 1]), np.array([1, 0, 2]), np.array([0.5, 1.0, 0.3]), 3)
    array([2., 2., 1.])
    """
    W = sparse.csc_array((weight, (src, dst)), shape=(n, n))
    lu = diagonal_lu(sparse.csc_array(sparse.eye_array(n, format="csc") - W))
    lower, upper = sparse.csc_array(lu.L), sparse.csr_array(lu.U)
    both = sparse.csr_array(abs(lower.tocsr()) + abs(upper))
    for matrix in (lower, upper, both):
        matrix.sort_indices()
    z = np.zeros(both.nnz)
    factors = [(factor.indptr, factor.indices, factor.data) for factor in (lower, upper)]
    _fill((both.indptr, both.indices), *factors, z)
    return _diagonal(both.indptr, both.indices, z, lu.perm_r, lu.perm_c)


@njit(cache=True, nogil=True)
def _diagonal(ptr: Any, columns: Any, z: Any, rows: Any, cols: Any) -> Any:
    """Return the diagonal in state order; L + U has a full diagonal, so all its entries are stored."""
    diagonal = np.empty(rows.size)
    for s in range(rows.size):
        diagonal[s] = z[_at(ptr, columns, rows[s], cols[s])]
    return diagonal
