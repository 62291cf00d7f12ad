"""LU factorisation of sparse matrices with SuperLU, guarded against matrices for which SuperLU crashes."""

from typing import Any

import numpy as np
from scipy.sparse.linalg import splu


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
