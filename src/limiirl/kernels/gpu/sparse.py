"""Products of sparse and dense matrices on a GPU that have the same bits every time.

Not by cuSPARSE: where rows are long, the order in which it adds is left to chance (ADR 0018).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from limiirl._typing import IntArray
from limiirl.kernels.gpu.device import Device, flat_shape

# The most terms that a thread adds up one after the other; longer rows are dealt out to several.
PIECE = 128


class _Round(NamedTuple):
    """Rows to add up, on the device: see `sparse_sums` in the CUDA source."""

    n: int
    first: Any
    last: Any
    step: Any


def _pieces(ptr: IntArray) -> tuple[IntArray, IntArray, IntArray, IntArray]:
    """Cut rows into pieces of at most PIECE terms; return first, last and step of each, and ptr of the rows' pieces.

    Neighbouring threads have neighbouring pieces, and a piece takes every so many-th term: they read side by side.
    """
    length = np.diff(ptr)
    count = -(-length // PIECE)
    row = np.repeat(np.arange(length.size), count)
    ends = np.concatenate([[0], np.cumsum(count)])
    first = ptr[row] + np.arange(row.size) - ends[row]
    return first, ptr[row + 1], count[row], ends


class SparseRows:
    """A sparse matrix (n, m) on a device.

    Parameters
    ----------
    device : Device
    matrix : scipy.sparse.csr_array
    """

    def __init__(self, device: Device, matrix: Any) -> None:
        self.device, self.shape = device, matrix.shape
        self._at = device.put(matrix.indices.astype(np.int32))
        self._weight = device.put(matrix.data.astype(np.float64))
        self._rounds: list[_Round] = []
        ptr = matrix.indptr.astype(np.int64)
        while np.max(np.diff(ptr), initial=0) > PIECE:
            *piece, ptr = _pieces(ptr)
            self._rounds.append(_Round(piece[0].size, *map(device.put, piece)))
        self._rounds.append(_Round(ptr.size - 1, device.put(ptr), None, None))

    def times(self, dense: Any) -> Any:
        """Return (n, K) for a dense (m, K) on the device."""
        result, k = self.device.xp.ascontiguousarray(dense), dense.shape[1]
        at, weight = self._at, self._weight
        for part in self._rounds:
            x, result = result, self.device.xp.empty((part.n, k))
            if result.size:
                given = (part.n, k, part.first, part.last, part.step, at, weight, x, result)
                self.device.launch("sparse_sums", flat_shape(self.device, part.n * k), given, (0, 1, 0))
            at = weight = None
        return result
