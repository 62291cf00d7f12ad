"""Reachability and shortest paths along the edges of an MDP."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse
from scipy.sparse.csgraph import breadth_first_order, dijkstra

from limiirl._typing import BoolArray, FloatArray, IntArray
from limiirl.mdp import MDP


def find_reachable(src: Any, dst: Any, sources: BoolArray) -> BoolArray:
    """Return the mask (S,) of the states reachable along edges (m,) from the states of a mask (S,)."""
    n, first = sources.size, np.flatnonzero(sources)
    # Search from an additional node that is linked to all sources.
    tail, head = np.concatenate([src, np.full(first.size, n)]), np.concatenate([dst, first])
    links = sparse.csr_array((np.ones(tail.size), (tail, head)), shape=(n + 1, n + 1))
    reached = np.zeros(n + 1, dtype=bool)
    reached[breadth_first_order(links, n, return_predecessors=False)] = True
    return reached[:n]


def is_connected(mdp: MDP, start: int, goal: int) -> bool:
    """Return True if a path leads from the start to the goal."""
    return bool(find_reachable(mdp.src, mdp.dst, np.arange(mdp.n_states) == start)[goal])


def shortest_path(src: Any, dst: Any, cost: FloatArray, n_states: int, start: int, goal: int) -> IntArray:
    """Return the indices (m,) of the edges of the shortest path between two connected states, for nonnegative costs."""
    # Of parallel edges, use the edge of lowest cost or, if tied, the first edge.
    ranked = np.lexsort((np.arange(src.size), cost, dst, src))
    pairs, place = np.unique(src[ranked].astype(np.int64) * n_states + dst[ranked], return_index=True)
    chosen = ranked[place]
    tail, head = np.divmod(pairs, n_states)
    graph = sparse.csr_array((cost[chosen], (tail, head)), shape=(n_states, n_states))
    before = dijkstra(graph, indices=[start], return_predecessors=True)[1][0]
    path = [goal]
    while path[-1] != start:
        path.append(int(before[path[-1]]))
    states = np.array(path[::-1], dtype=np.int64)
    return np.asarray(chosen[np.searchsorted(pairs, states[:-1] * n_states + states[1:])])
