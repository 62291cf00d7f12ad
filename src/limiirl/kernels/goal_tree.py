"""The tree of a `Plan` as a GPU walks it: what may be done at once, and the legs of states with their ancestors.

A state may be completed when all states below it are. States of the same height are never above one another, so that
those of a height, a *level*, are completed together, and what they read and write lies apart.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from limiirl.kernels.goal_plan import ROOT
from limiirl.kernels.goals import meet

Int = NDArray[np.int64]
Int32 = NDArray[np.int32]
# The most and the fewest columns of a tile: neighbours in memory are read together, but few tiles leave blocks idle.
_WIDEST, _NARROWEST = 32, 4


class Tiles(NamedTuple):
    """What the groups of threads of a grid do, level by level: a tile is a state and some of its columns.

    Attributes
    ----------
    ptr : (levels + 1,)
        The tiles of each level.
    state, first : (tiles,)
        The state of a tile, and its first column.
    wide, lanes : (levels,)
        Columns of a tile, and threads for each; powers of two.
    """

    ptr: Int
    state: Int32
    first: Int32
    wide: Int32
    lanes: Int32


class Legs(NamedTuple):
    """States with all that is above each, sorted so that those below any state stand together.

    Attributes
    ----------
    node : (l,)
    ptr : (l + 1,)
        Where each leg begins; it has a place for the state, then one for each ancestor.
    path : (ptr[-1],)
        The states at these places.
    touched, first, last : (t,)
        Every state on some leg, and the legs that it is on: first, ..., last - 1.
    """

    node: Int
    ptr: Int
    path: Int32
    touched: Int32
    first: Int32
    last: Int32


@njit(cache=True, nogil=True)
def heights(parent: Int) -> Int:
    """Return (S,) how many levels of states lie below each.

    Examples
    --------
    >>> heights(np.array([2, 2, 3, -1]))
    array([0, 0, 1, 2])
    """
    found = np.zeros(parent.size, dtype=np.int64)
    for v in range(parent.size):
        if parent[v] != ROOT:
            found[parent[v]] = max(found[parent[v]], found[v] + 1)
    return found


@njit(cache=True, nogil=True)
def intervals(parent: Int) -> tuple[Int, Int]:
    """Return numbers (S,) of the states, and the ends (S,) of ranges: below v are those numbered v's to its end.

    Examples
    --------
    >>> intervals(np.array([2, 2, 3, -1]))
    (array([3, 2, 1, 0]), array([4, 3, 4, 4]))
    """
    size = np.ones(parent.size, dtype=np.int64)
    for v in range(parent.size):
        if parent[v] != ROOT:
            size[parent[v]] += size[v]
    number, free, roots = np.empty_like(size), np.empty_like(size), 0
    for v in range(parent.size - 1, -1, -1):
        if parent[v] == ROOT:
            number[v], roots = roots, roots + size[v]
        else:
            number[v] = free[parent[v]]
            free[parent[v]] += size[v]
        free[v] = number[v] + 1
    return number, number + size


@njit(cache=True, nogil=True)
def _paths(parent: Int, node: Int, ptr: Int) -> Int32:
    found = np.empty(ptr[-1], dtype=np.int32)
    for i in range(node.size):
        v = node[i]
        for at in range(ptr[i], ptr[i + 1]):
            found[at] = v
            v = parent[v]
    return found


@njit(cache=True, nogil=True)
def meets(parent: Int, depth: Int, one: Int, other: Int) -> Int32:
    """Return the depth (m,) of the first common ancestor of pairs of states, or -1 where there is none.

    Examples
    --------
    >>> meets(np.array([2, 2, 3, -1]), np.array([2, 2, 1, 0]), np.array([0, 3]), np.array([1, 1]))
    array([1, 0], dtype=int32)
    """
    found = np.full(one.size, -1, dtype=np.int32)
    for i in range(one.size):
        v = meet(parent, depth, one[i], other[i])
        if v != ROOT:
            found[i] = depth[v]
    return found


def legs(parent: Int, depth: Int, nodes: Int) -> Legs:
    """Return the legs of some states (l,), each once.

    Examples
    --------
    >>> found = legs(np.array([2, 2, 3, -1]), np.array([2, 2, 1, 0]), np.array([0, 2]))
    >>> found.node, found.path
    (array([2, 0]), array([2, 3, 0, 2, 3], dtype=int32))
    >>> found.touched, found.first, found.last
    (array([0, 2, 3], dtype=int32), array([1, 0, 0], dtype=int32), array([2, 2, 2], dtype=int32))
    """
    number, end = intervals(parent)
    node = nodes[np.argsort(number[nodes])]
    ptr = np.concatenate([[0], np.cumsum(depth[node] + 1)])
    path = _paths(parent, node, ptr)
    touched = np.unique(path)
    first, last = (np.searchsorted(number[node], part[touched]).astype(np.int32) for part in (number, end))
    return Legs(node, ptr, path, touched, first, last)


def tiles(height: Int, columns: Int, terms: Int, rows: int, blocks: int) -> Tiles:
    """Return the tiles of all levels for a grid of blocks that have `rows` threads for each intent.

    Columns come first, since threads for the same column have to add up what they found; then as many threads a column
    as it has terms, or as are there.

    Parameters
    ----------
    height, columns, terms : (S,)
        The level of each state, its columns, and how many terms the longest of these has.

    Examples
    --------
    Two states of one level have 3 columns of 9 terms each, and four blocks have 16 threads.

    >>> found = tiles(np.zeros(2, int), np.full(2, 3), np.full(2, 9), 16, 4)
    >>> found.state, found.first, found.wide, found.lanes
    (array([0, 1], dtype=int32), array([0, 0], dtype=int32), array([4], dtype=int32), array([4], dtype=int32))
    """
    order = np.argsort(height, kind="stable")
    bounds = np.searchsorted(height[order], np.arange(int(height.max(initial=-1)) + 2))
    largest = 1 << (rows.bit_length() - 1)
    parts: list[tuple[Int, Int]] = []
    shapes: list[tuple[int, int]] = []
    for states in np.split(order, bounds[1:-1]):
        mine = columns[states]
        wide = min(_power_above(float(np.mean(mine))), _WIDEST, largest)
        while wide > _NARROWEST and int(np.sum(-(-mine // wide))) < blocks:
            wide //= 2
        counts = -(-mine // wide)
        n = int(counts.sum())
        lanes = min(_power_above(float(terms[states].max())), largest // wide)
        while lanes > 1 and n * wide * lanes > blocks * largest:
            lanes //= 2
        place = np.arange(n) - np.repeat(np.cumsum(counts) - counts, counts)
        parts.append((np.repeat(states, counts), place * wide))
        shapes.append((wide, lanes))
    state, first = (np.concatenate(part).astype(np.int32) for part in zip(*parts, strict=True))
    wide_of, lanes_of = (np.array(part, dtype=np.int32) for part in zip(*shapes, strict=True))
    return Tiles(np.concatenate([[0], np.cumsum([part.size for part, _ in parts])]), state, first, wide_of, lanes_of)


def _power_above(value: float) -> int:
    """Return the least power of two that is at least this; 1 or more."""
    return 1 << max(0, int(np.ceil(value)) - 1).bit_length()
