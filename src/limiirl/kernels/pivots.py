"""LU factors of sparse matrices whose pivots may stay on the diagonal."""

from typing import Any

from scipy.sparse.linalg import splu


def diagonal_lu(matrix: Any) -> Any:
    """Return SuperLU's factors of a csc matrix, with pivots on the diagonal and an order of multiple minimum degree.

    For I - W, where W is not negative and the sums of its powers are finite, and for what has a dominant diagonal:
    there this is safe, and for the first all terms have one sign, so that none cancel. SuperLU's own choice of rows
    would lose digits.

    Examples
    --------
    >>> import numpy as np
    >>> from scipy import sparse
    >>> diagonal_lu(sparse.csc_array([[1.0, -0.5], [0.0, 1.0]])).solve(np.ones(2))
    array([1.5, 1. ])
    """
    return splu(matrix, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options={"SymmetricMode": True})
