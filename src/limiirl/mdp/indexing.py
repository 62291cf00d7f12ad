"""Index arithmetic on sorted edge lists: the order of the edges, their (s, a) pairs, and row pointers."""

import numpy as np
from numpy.typing import NDArray

from limiirl._typing import Int32Array, IntArray


def edge_order(src: NDArray[np.integer], act: NDArray[np.integer], dst: NDArray[np.integer]) -> IntArray | None:
    """Return the permutation that sorts edges by (src, act, dst), or None when they are sorted already."""
    if not descents(src, act, dst).any():
        return None
    return np.lexsort((dst, act, src)).astype(np.int64, copy=False)


def descents(src: NDArray[np.integer], act: NDArray[np.integer], dst: NDArray[np.integer]) -> NDArray[np.bool_]:
    """Return for each edge but the last whether it comes after its successor in the order (src, act, dst)."""
    later_src = src[1:] < src[:-1]
    same_src = src[1:] == src[:-1]
    later_act = act[1:] < act[:-1]
    same_act = act[1:] == act[:-1]
    later: NDArray[np.bool_] = later_src | (same_src & (later_act | (same_act & (dst[1:] < dst[:-1]))))
    return later


def pair_starts(src: NDArray[np.integer], act: NDArray[np.integer]) -> NDArray[np.bool_]:
    """Return for each of the sorted edges whether it is the first of its (s, a) pair."""
    first = np.ones(src.size, dtype=np.bool_)
    first[1:] = (src[1:] != src[:-1]) | (act[1:] != act[:-1])
    return first


def pair_index(src: NDArray[np.integer], act: NDArray[np.integer]) -> Int32Array:
    """Return for each of the sorted edges the number of its (s, a) pair."""
    return (np.cumsum(pair_starts(src, act)) - 1).astype(np.int32)


def row_pointers(rows: NDArray[np.integer], n_rows: int) -> IntArray:
    """Return CSR pointers (n_rows + 1,): sorted, the entries of row i are pointers[i]:pointers[i + 1]."""
    pointers = np.zeros(n_rows + 1, dtype=np.int64)
    np.cumsum(np.bincount(rows, minlength=n_rows), out=pointers[1:])
    return pointers


def number_within(groups: NDArray[np.integer]) -> IntArray:
    """Number the entries 0, 1, ... within each group, in the order in which they stand."""
    order = np.argsort(groups, kind="stable")
    ordered = groups[order]
    new = np.ones(groups.size, dtype=np.bool_)
    new[1:] = ordered[1:] != ordered[:-1]
    starts = np.flatnonzero(new)
    numbers = np.empty(groups.size, dtype=np.int64)
    numbers[order] = np.arange(groups.size) - starts[np.cumsum(new) - 1]
    return numbers
