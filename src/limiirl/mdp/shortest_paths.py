"""Reachability, shortest paths between states of an MDP with edge costs, and all loopless paths in order of cost."""

from __future__ import annotations

import heapq
import math
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse
from scipy.sparse.csgraph import breadth_first_order, dijkstra

from limiirl._typing import BoolArray, FloatArray, IntArray
from limiirl._validation import as_floats, check_each
from limiirl.errors import InvalidParameter
from limiirl.mdp.mdp import MDP


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


# Number of start-goal pairs per task.
_BATCH = 64


class ShortestPaths(NamedTuple):
    """Shortest paths of n pairs of states: path i is edges[offsets[i]:offsets[i + 1]], with cost inf if none exists."""

    edges: IntArray
    offsets: IntArray
    cost: FloatArray


class ShortestPath(NamedTuple):
    """Edges and total cost of one path."""

    edges: tuple[int, ...]
    cost: float


class PathFinder:
    """Shortest-path searches in the graph of an MDP; transition probabilities are ignored.

    Parameters
    ----------
    mdp : MDP
    cost : (E,)
        Nonnegative edge costs; inf removes an edge.

    Examples
    --------
    >>> mdp = MDP.from_edges([0, 0, 1, 2], [1, 2, 3, 3])
    >>> finder = PathFinder(mdp, [1.0, 2.0, 1.0, 1.0])
    >>> finder.shortest([0, 3], [3, 0])
    ShortestPaths(edges=array([0, 2]), offsets=array([0, 2, 2]), cost=array([ 2., inf]))
    >>> list(finder.shortest_simple_paths(0, 3))
    [ShortestPath(edges=(0, 2), cost=2.0), ShortestPath(edges=(1, 3), cost=3.0)]
    """

    def __init__(self, mdp: MDP, cost: ArrayLike) -> None:
        self.mdp, self.cost = mdp, _costs(cost, mdp.n_edges)

    def shortest(self, starts: ArrayLike, goals: ArrayLike, *, threads: int | None = None) -> ShortestPaths:
        """Return a shortest path for each pair of states; the result does not depend on the number of threads.

        Parameters
        ----------
        starts, goals : (n,)
        threads : int, optional
            Number of threads; default: one per core.
        """
        from limiirl.kernels.dijkstra import make_workspace, shortest_paths

        first, last = _states(starts, "starts", self.mdp), _states(goals, "goals", self.mdp)
        if first.size != last.size:
            raise InvalidParameter.of("goals", last.size, f"must have one entry per start, {first.size} in total")
        graph = (self.mdp.out_ptr, self.mdp.dst, self.mdp.src, self.cost)
        batches = [slice(i, i + _BATCH) for i in range(0, first.size, _BATCH)]
        n_threads = max(1, min(threads or os.cpu_count() or 1, len(batches)))

        def search_batches(thread: int) -> list[Any]:
            work = make_workspace(self.mdp.n_states, self.mdp.n_edges)
            return [shortest_paths(*graph, first[part], last[part], work) for part in batches[thread::n_threads]]

        with ThreadPoolExecutor(n_threads) as pool:
            by_thread = list(pool.map(search_batches, range(n_threads)))
        paths = [by_thread[i % n_threads][i // n_threads] for i in range(len(batches))]
        edges = np.concatenate([np.empty(0, dtype=np.int64), *(part[0] for part in paths)])
        sizes = np.concatenate([np.empty(0, dtype=np.int64), *(part[1] for part in paths)])
        cost = np.concatenate([np.empty(0), *(part[2] for part in paths)])
        return ShortestPaths(edges, np.concatenate([[0], np.cumsum(sizes)]), cost)

    def shortest_simple_paths(self, start: int, goal: int) -> Iterator[ShortestPath]:
        """Yield the loopless paths between two states in ascending order of cost (Yen 1971).

        Ties are ordered by the number of edges, then by the edge indices. The path from a state to itself has no edges.
        """
        s, g = (int(_states([value], name, self.mdp)[0]) for value, name in ((start, "start"), (goal, "goal")))
        if s == g:
            yield ShortestPath((), 0.0)
            return
        spurs = _Spurs(self, s, g)
        heap: list[tuple[float, int, tuple[int, ...], int]] = []
        yielded: dict[int, Any] = {}  # prefix tree of the yielded paths: edge -> subtree
        first = spurs.search((), yielded)
        if first is not None:
            heap.append((self._total(first), len(first), first, 0))
        while heap:
            cost, _, edges, spur_index = heapq.heappop(heap)
            yield ShortestPath(edges, cost)
            tree = yielded
            for i, edge in enumerate(edges):
                subtree = tree.setdefault(edge, {})
                if i >= spur_index:
                    spur = spurs.search(edges[:i], tree)
                    if spur is not None:
                        path = edges[:i] + spur
                        heapq.heappush(heap, (self._total(path), len(path), path, i))
                tree = subtree

    def _total(self, edges: tuple[int, ...]) -> float:
        """Return the cost of a path, rounded once, so that it does not depend on the order of summation."""
        return math.fsum(self.cost[list(edges)])

    @cached_property
    def reverse(self) -> tuple[IntArray, Any, FloatArray]:
        """Reversed graph as CSR: pointers, targets and costs."""
        order = self.mdp.in_order
        return self.mdp.in_ptr, np.ascontiguousarray(self.mdp.src[order]), self.cost[order]


class _Spurs:
    """Spur searches: shortest continuations of a path prefix whose first edge is not in an excluded set."""

    def __init__(self, finder: PathFinder, start: int, goal: int) -> None:
        from limiirl.kernels import dijkstra

        self._kernels, self.mdp, self.start, self.goal = dijkstra, finder.mdp, start, goal
        self.work = dijkstra.make_workspace(self.mdp.n_states, self.mdp.n_edges)
        n_done, _ = dijkstra.search(*finder.reverse, goal, start, math.inf, self.work)
        self.reachable = bool(self.work.done[start])
        # Potential for reduced costs, as in A*: the distance to the goal, at most that of the start. Along an edge,
        # it decreases by at most the cost of the edge.
        farthest = self.work.dist[self.work.order[n_done - 1]]
        potential = np.full(self.mdp.n_states, farthest)
        near = self.work.order[:n_done]
        potential[near] = self.work.dist[near]
        # Rounding may give slightly negative reduced costs.
        self.cost = np.maximum(0.0, finder.cost + potential[self.mdp.dst] - potential[self.mdp.src])
        self.work = dijkstra.make_workspace(self.mdp.n_states, self.mdp.n_edges)

    def search(self, prefix: tuple[int, ...], excluded: dict[int, Any]) -> tuple[int, ...] | None:
        """Return a shortest path from the end of `prefix` to the goal with its first edge not in `excluded`, or None.

        States of the prefix are not visited again.
        """
        if not self.reachable:
            return None
        visited = self.mdp.src[list(prefix)]
        source = int(self.mdp.dst[prefix[-1]]) if prefix else self.start
        closed = list(excluded)
        costs = self.cost[closed]
        self.cost[closed] = math.inf
        self.work.done[visited] = True  # finished states are not expanded
        graph = (self.mdp.out_ptr, self.mdp.dst, self.cost)
        _, touched = self._kernels.search(*graph, source, self.goal, math.inf, self.work)
        path = None
        if self.work.done[self.goal]:
            path = tuple(self._kernels.trace_path(self.mdp.src, self.work, self.goal).tolist())
        self._kernels.clear(self.work, touched)
        self.work.done[visited] = False
        self.cost[closed] = costs
        return path


def _costs(cost: ArrayLike, n_edges: int) -> FloatArray:
    costs = np.ascontiguousarray(as_floats(cost, "cost"))
    if costs.shape != (n_edges,):
        raise InvalidParameter.of("cost", costs.shape, f"must have shape ({n_edges},), one entry per edge")
    check_each(costs >= 0.0, costs, "cost", "must not be negative", remedy="Use inf to remove an edge.")
    return costs


def _states(values: ArrayLike, name: str, mdp: MDP) -> IntArray:
    states = np.asarray(values)
    if states.size == 0:
        return np.empty(0, dtype=np.int64)
    if states.ndim != 1 or states.dtype.kind not in "iu":
        raise InvalidParameter.of(name, values, "must be a one-dimensional array of states")
    check_each((states >= 0) & (states < mdp.n_states), states, name, f"must lie in 0..{mdp.n_states - 1}")
    return np.ascontiguousarray(states, dtype=np.int64)
