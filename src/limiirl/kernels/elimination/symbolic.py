"""Symbolic factorisation for state elimination: a fill-reducing order, the fill-in and the elimination tree."""

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy import sparse

from limiirl._typing import FloatArray, IntArray
from limiirl.kernels.sparse_lu import diagonal_lu

ROOT = -1
"""Parent index of a root of the elimination tree."""


class SymbolicFactorisation(NamedTuple):
    """Elimination order, fill-in and elimination tree of a graph.

    States are numbered in elimination order. `up[up_ptr[v]:up_ptr[v + 1]]` contains, in ascending order, the neighbours
    of v when v is eliminated; all are ancestors of v in the tree. The values of transitions are stored in one array:
    v -> up[p] at index p, up[p] -> v at n + p, and v -> v at 2 n + v, where n = up.size.

    Attributes
    ----------
    rank : (S,)
        Position of each state of the MDP in the elimination order.
    up_ptr, up : (S + 1,), (n,)
    low_ptr, low, place : (S + 1,), (n,), (n,)
        Transpose of `up`: row i of `low` contains the states v with i in up(v), and row i of `place` contains the
        corresponding indices p with up[p] = i.
    parent, depth : (S,)
        Parent of each state in the tree, and its number of ancestors.
    level : (n,)
        depth[up].
    slot : (E,)
        Index of each edge of the graph in the array of values.
    """

    rank: IntArray
    up_ptr: IntArray
    up: IntArray
    low_ptr: IntArray
    low: IntArray
    place: IntArray
    parent: IntArray
    depth: IntArray
    level: NDArray[np.int32]
    slot: IntArray

    @property
    def n_values(self) -> int:
        """Length of the array of values, including fill-in."""
        return 2 * self.up.size + self.rank.size


def factorise(
    n_states: int, src: NDArray[np.integer], dst: NDArray[np.integer], last: int = 0
) -> SymbolicFactorisation:
    """Return the symbolic factorisation of the graph with edges (src[e], dst[e]), in minimum degree order.

    The `last` states with the highest indices are eliminated last, because the minimum degree order is slow to compute
    if a state is adjacent to all others.
    """
    inner = (src < n_states - last) & (dst < n_states - last)
    rank = np.append(_order(n_states - last, src[inner], dst[inner]), np.arange(n_states - last, n_states))
    tail, head = rank[src], rank[dst]
    low_end, high_end = np.minimum(tail, head), np.maximum(tail, head)
    apart = low_end != high_end
    links = np.unique(low_end[apart] * n_states + high_end[apart])
    ptr = np.zeros(n_states + 1, dtype=np.int64)
    np.cumsum(np.bincount(links // n_states, minlength=n_states), out=ptr[1:])
    up_ptr, up, parent = _fill(ptr, links % n_states)
    owner = np.repeat(np.arange(n_states), np.diff(up_ptr))
    place = np.argsort(up, kind="stable").astype(np.int64)
    low_ptr = np.zeros(n_states + 1, dtype=np.int64)
    np.cumsum(np.bincount(up, minlength=n_states), out=low_ptr[1:])
    at = np.searchsorted(owner * n_states + up, low_end * n_states + high_end)
    slot = np.where(apart, at + np.where(tail < head, 0, up.size), 2 * up.size + tail)
    depth = _depth(parent)
    level = depth[up].astype(np.int32)
    return SymbolicFactorisation(rank, up_ptr, up, low_ptr, owner[place], place, parent, depth, level, slot)


def _order(n_states: int, src: NDArray[np.integer], dst: NDArray[np.integer]) -> IntArray:
    """Return the position (S,) of each state in a fill-reducing order."""
    links = sparse.csc_array((np.ones(src.size), (src, dst)), shape=(n_states, n_states))
    links = links + links.T
    links.data[:] = -1.0
    # Only the ordering of SuperLU is used; the matrix is diagonally dominant, so that the factorisation is stable.
    degree: FloatArray = np.asarray(-links.sum(axis=0)).ravel()
    matrix = (links + sparse.diags_array(degree + 1.0)).tocsc()
    return np.asarray(diagonal_lu(matrix).perm_c, dtype=np.int64)


@njit(cache=True, nogil=True)
def _fill(ptr: IntArray, head: IntArray) -> tuple[IntArray, IntArray, IntArray]:
    """Return the neighbours of each state when it is eliminated, as CSR (up_ptr, up), and the elimination tree."""
    n = ptr.size - 1
    up_ptr, parent = np.zeros(n + 1, dtype=np.int64), np.full(n, -1, dtype=np.int64)
    first, beside = np.full(n, -1, dtype=np.int64), np.full(n, -1, dtype=np.int64)
    mark = np.full(n, -1, dtype=np.int64)
    up = np.empty(max(16, 4 * head.size), dtype=np.int64)
    for v in range(n):
        mark[v] = v
        at = up_ptr[v]
        if at + n - v > up.size:
            larger = np.empty(2 * up.size + n, dtype=np.int64)
            larger[:at] = up[:at]
            up = larger
        for e in range(ptr[v], ptr[v + 1]):
            if mark[head[e]] != v:
                mark[head[e]] = v
                up[at] = head[e]
                at += 1
        child = first[v]
        while child != -1:
            for p in range(up_ptr[child], up_ptr[child + 1]):
                if mark[up[p]] != v:
                    mark[up[p]] = v
                    up[at] = up[p]
                    at += 1
            child = beside[child]
        up[up_ptr[v] : at].sort()
        up_ptr[v + 1] = at
        if at > up_ptr[v]:
            above = up[up_ptr[v]]
            parent[v] = above
            beside[v], first[above] = first[above], v
    return up_ptr, up[: up_ptr[n]].copy(), parent


@njit(cache=True, nogil=True)
def _depth(parent: IntArray) -> IntArray:
    depth = np.zeros(parent.size, dtype=np.int64)
    for v in range(parent.size - 1, -1, -1):
        if parent[v] != -1:
            depth[v] = depth[parent[v]] + 1
    return depth
