"""The part of a map in which one can drive from anywhere to anywhere."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.csgraph import connected_components


class Part(NamedTuple):
    """The largest strongly connected part: which segments (S,) lie in it, and how many parts there are."""

    kept: NDArray[np.bool_]
    n_parts: int


def street_part(tail: NDArray[Any], head: NDArray[Any], n_nodes: int) -> Part:
    """Return the segments between nodes of the part in which every node can be reached from every other.

    The part of most nodes; of two as large, the one with the smallest node. Turns play no role: a dead end belongs to
    it, since its street leads back, though no turn does.

    Examples
    --------
    >>> street_part(np.array([0, 1, 1]), np.array([1, 0, 2]), 3)  # nothing leads back from node 2
    Part(kept=array([ True,  True, False]), n_parts=2)
    """
    label = _labels(tail, head, n_nodes)
    used = np.zeros(n_nodes, dtype=np.bool_)
    used[tail] = used[head] = True
    best = _largest(label[used])
    return Part((label[tail] == best) & (label[head] == best), int(np.unique(label[used]).size))


def within_parts(tail: NDArray[Any], head: NDArray[Any], n_nodes: int) -> NDArray[np.bool_]:
    """Return which segments (S,) lie within some strongly connected part of the nodes; the others never come back.

    Examples
    --------
    >>> within_parts(np.array([0, 1, 1, 2, 3]), np.array([1, 0, 2, 3, 2]), 4)
    array([ True,  True, False,  True,  True])
    """
    label = _labels(tail, head, n_nodes)
    return np.asarray(label[tail] == label[head])


def turn_part(turn_from: NDArray[Any], turn_to: NDArray[Any], n_segments: int) -> Part:
    """Return the segments of the part in which every segment can be reached from every other by legal turns.

    Examples
    --------
    >>> turn_part(np.array([0, 1, 1]), np.array([1, 0, 2]), 3)
    Part(kept=array([ True,  True, False]), n_parts=2)
    """
    label = _labels(turn_from, turn_to, n_segments)
    return Part(label == _largest(label), int(np.unique(label).size))


def joined_nodes(tail: NDArray[Any], head: NDArray[Any], n_nodes: int) -> NDArray[np.int64]:
    """Return for each node (V,) the first of all those that the given pairs make one.

    Examples
    --------
    >>> joined_nodes(np.array([1]), np.array([2]), 4)
    array([0, 1, 1, 3])
    """
    graph = sparse.csr_array((np.ones(tail.size, dtype=np.int8), (tail, head)), shape=(n_nodes, n_nodes))
    _, label = connected_components(graph, directed=False)
    _, first, inverse = np.unique(label, return_index=True, return_inverse=True)
    return np.asarray(first[inverse], dtype=np.int64)


def _labels(source: NDArray[Any], target: NDArray[Any], n: int) -> NDArray[np.int64]:
    graph = sparse.csr_array((np.ones(source.size, dtype=np.int8), (source, target)), shape=(n, n))
    _, label = connected_components(graph, directed=True, connection="strong")
    return np.asarray(label, dtype=np.int64)


def _largest(label: NDArray[np.int64]) -> int:
    """Return the label that occurs most often, and of two the one that occurs first."""
    names, first, counts = np.unique(label, return_index=True, return_counts=True)
    return int(names[np.lexsort((first, -counts))[0]])
