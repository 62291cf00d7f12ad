"""Index arithmetic on sorted edge lists: edge order, (s, a) pairs and row pointers."""

import numpy as np
from numpy.typing import NDArray

from limiirl._typing import Int32Array, IntArray


def edge_order(src: NDArray[np.integer], act: NDArray[np.integer], dst: NDArray[np.integer]) -> IntArray | None:
    """Return the permutation that sorts edges by (src, act, dst), or None if they are already sorted."""
    if not descents(src, act, dst).any():
        return None
    return np.lexsort((dst, act, src)).astype(np.int64, copy=False)


def descents(src: NDArray[np.integer], act: NDArray[np.integer], dst: NDArray[np.integer]) -> NDArray[np.bool_]:
    """Return the mask (E - 1,) of positions i where edge i + 1 sorts before edge i by (src, act, dst)."""
    same_src, same_act = src[1:] == src[:-1], act[1:] == act[:-1]
    descends_in_act = (act[1:] < act[:-1]) | (same_act & (dst[1:] < dst[:-1]))
    return np.asarray((src[1:] < src[:-1]) | (same_src & descends_in_act))


def pair_starts(src: NDArray[np.integer], act: NDArray[np.integer]) -> NDArray[np.bool_]:
    """Return a mask (E,) of the first edge of each (s, a) pair, for sorted edges."""
    first = np.ones(src.size, dtype=np.bool_)
    first[1:] = (src[1:] != src[:-1]) | (act[1:] != act[:-1])
    return first


def pair_index(src: NDArray[np.integer], act: NDArray[np.integer]) -> Int32Array:
    """Return the index (E,) of each edge's (s, a) pair, for sorted edges."""
    return (np.cumsum(pair_starts(src, act)) - 1).astype(np.int32)


def row_pointers(rows: NDArray[np.integer], n_rows: int) -> IntArray:
    """Return CSR pointers (n_rows + 1,); the sorted entries of row i are pointers[i]:pointers[i + 1]."""
    pointers = np.zeros(n_rows + 1, dtype=np.int64)
    np.cumsum(np.bincount(rows, minlength=n_rows), out=pointers[1:])
    return pointers


def number_within(groups: NDArray[np.integer]) -> IntArray:
    """Number the entries of each group 0, 1, ... in order of appearance."""
    order = np.argsort(groups, kind="stable")
    ordered = groups[order]
    new = np.ones(groups.size, dtype=np.bool_)
    new[1:] = ordered[1:] != ordered[:-1]
    starts = np.flatnonzero(new)
    numbers = np.empty(groups.size, dtype=np.int64)
    numbers[order] = np.arange(groups.size) - starts[np.cumsum(new) - 1]
    return numbers
