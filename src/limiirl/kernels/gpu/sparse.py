"""Bit-reproducible products of sparse and dense matrices on a GPU.

cuSPARSE is not used because its order of summation is not deterministic for long rows (ADR 0018).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from limiirl._typing import IntArray
from limiirl.kernels.gpu.device import Device, flat_shape

# Maximum number of terms per thread; longer rows are split.
PIECE = 128


class _Pass(NamedTuple):
    """Ranges of terms summed by each thread in one launch of `sparse_sums` (cuda/sparse.cu)."""

    n: int
    first: Any
    last: Any
    step: Any


def _split_rows(ptr: IntArray) -> tuple[IntArray, IntArray, IntArray, IntArray]:
    """Split CSR rows into strided pieces of at most PIECE entries; return first, last, step and the row pointers.

    Piece i has the entries range(first[i], last[i], step[i]). The pieces of a row are interleaved, so that neighbouring
    threads read neighbouring entries.
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
        self._passes: list[_Pass] = []
        ptr = matrix.indptr.astype(np.int64)
        while np.max(np.diff(ptr), initial=0) > PIECE:
            *pieces, ptr = _split_rows(ptr)
            self._passes.append(_Pass(pieces[0].size, *map(device.put, pieces)))
        self._passes.append(_Pass(ptr.size - 1, device.put(ptr), None, None))

    def times(self, dense: Any) -> Any:
        """Return the product (n, K) with a dense matrix (m, K) on the device."""
        result, k = self.device.xp.ascontiguousarray(dense), dense.shape[1]
        at, weight = self._at, self._weight
        for rows in self._passes:
            x, result = result, self.device.xp.empty((rows.n, k))
            if result.size:
                arguments = (rows.n, k, rows.first, rows.last, rows.step, at, weight, x, result)
                self.device.launch("sparse_sums", flat_shape(self.device, rows.n * k), arguments, (0, 1, 0))
            at = weight = None
        return result
