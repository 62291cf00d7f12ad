"""Shortest paths through an MDP with edge costs: one per pair of states, or all in order of cost."""

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

from limiirl._typing import FloatArray, IntArray
from limiirl.errors import InvalidParameter
from limiirl.mdp.mdp import MDP

# Pairs that a thread takes at a time.
_BATCH = 64


class ShortestPaths(NamedTuple):
    """Ways of n pairs: that of pair i is edges[offsets[i]:offsets[i + 1]], at a cost of inf where there is none."""

    edges: IntArray
    offsets: IntArray
    cost: FloatArray


class ShortestPath(NamedTuple):
    """One way, by its edges, and what they cost together."""

    edges: tuple[int, ...]
    cost: float


class PathFinder:
    """The ways through an MDP when each edge has a cost; what actions are likely to lead to plays no part.

    Parameters
    ----------
    mdp : MDP
    cost : (E,)
        Not negative. inf closes an edge.

    Examples
    --------
    Two ways lead from state 0 to state 3.

    >>> mdp = MDP.from_edges([0, 0, 1, 2], [1, 2, 3, 3])
    >>> ways = PathFinder(mdp, [1.0, 2.0, 1.0, 1.0])
    >>> ways.shortest([0, 3], [3, 0])
    ShortestPaths(edges=array([0, 2]), offsets=array([0, 2, 2]), cost=array([ 2., inf]))
    >>> list(ways.ranked(0, 3))
    [ShortestPath(edges=(0, 2), cost=2.0), ShortestPath(edges=(1, 3), cost=3.0)]
    """

    def __init__(self, mdp: MDP, cost: ArrayLike) -> None:
        self.mdp, self.cost = mdp, _costs(cost, mdp.n_edges)

    def shortest(self, starts: ArrayLike, goals: ArrayLike, *, threads: int | None = None) -> ShortestPaths:
        """Return the cheapest way of each pair of states, whatever the number of threads.

        Parameters
        ----------
        starts, goals : (n,)
        threads : int, optional
            By default one for each core.
        """
        from limiirl.kernels.dijkstra import cheapest_ways, desk

        first, last = _states(starts, "starts", self.mdp), _states(goals, "goals", self.mdp)
        if first.size != last.size:
            raise InvalidParameter(
                f"There must be a goal for each start; there are {first.size} and {last.size}.",
                parameter="goals",
                value=last.size,
            )
        graph = (self.mdp.out_ptr, self.mdp.dst, self.mdp.src, self.cost)
        pieces = [slice(i, i + _BATCH) for i in range(0, first.size, _BATCH)]
        n_threads = max(1, min(threads or os.cpu_count() or 1, len(pieces)))

        def some(which: int) -> list[Any]:
            work = desk(self.mdp.n_states, self.mdp.n_edges)
            return [cheapest_ways(*graph, first[part], last[part], work) for part in pieces[which::n_threads]]

        with ThreadPoolExecutor(n_threads) as pool:
            by_thread = list(pool.map(some, range(n_threads)))
        found = [by_thread[i % n_threads][i // n_threads] for i in range(len(pieces))]
        edges = np.concatenate([np.empty(0, dtype=np.int64), *(part[0] for part in found)])
        sizes = np.concatenate([np.empty(0, dtype=np.int64), *(part[1] for part in found)])
        cost = np.concatenate([np.empty(0), *(part[2] for part in found)])
        return ShortestPaths(edges, np.concatenate([[0], np.cumsum(sizes)]), cost)

    def ranked(self, start: int, goal: int) -> Iterator[ShortestPath]:
        """Yield the ways between two states that pass no state twice, each once, the cheapest first (Yen 1971).

        Each way that was yielded splits the rest into those that leave it at its first edge, at its second, and so
        on; a heap holds the cheapest of each part. Equals come in the order of their number of edges, then of
        the edges. From a state to itself there is one way, of no edge.

        A search backwards from the goal comes first. With what it found, all that does not lead the cheapest way to the
        goal costs extra, so that the searches that follow hardly look aside.
        """
        s, g = (int(_states([value], name, self.mdp)[0]) for value, name in ((start, "start"), (goal, "goal")))
        if s == g:
            yield ShortestPath((), 0.0)
            return
        spurs = _Spurs(self, s, g)
        heap: list[tuple[float, int, tuple[int, ...], int]] = []
        known: dict[int, Any] = {}  # a tree of the ways that were yielded: edge -> the tree of what follows
        first = spurs.search((), known)
        if first is not None:
            heap.append((self._total(first), len(first), first, 0))
        while heap:
            cost, _, edges, left_at = heapq.heappop(heap)
            yield ShortestPath(edges, cost)
            tree = known
            for i, edge in enumerate(edges):
                ahead = tree.setdefault(edge, {})
                if i >= left_at:
                    other = spurs.search(edges[:i], tree)
                    if other is not None:
                        whole = edges[:i] + other
                        heapq.heappush(heap, (self._total(whole), len(whole), whole, i))
                tree = ahead

    def _total(self, edges: tuple[int, ...]) -> float:
        """Return a way's cost, rounded once, so that ways of equal cost are equal whatever the order of their edges."""
        return math.fsum(self.cost[list(edges)])

    @cached_property
    def reverse(self) -> tuple[IntArray, Any, FloatArray]:
        """The graph with its edges turned round, as CSR: pointers, heads and costs."""
        order = self.mdp.in_order
        return self.mdp.in_ptr, np.ascontiguousarray(self.mdp.src[order]), self.cost[order]


class _Spurs:
    """Searches for the cheapest way on from a given beginning, some first edges excluded."""

    def __init__(self, ways: PathFinder, start: int, goal: int) -> None:
        from limiirl.kernels import dijkstra

        self._kernels, self.mdp, self.start, self.goal = dijkstra, ways.mdp, start, goal
        self.work = dijkstra.desk(self.mdp.n_states, self.mdp.n_edges)
        settled, _ = dijkstra.search(*ways.reverse, goal, start, math.inf, self.work)
        self.reachable = bool(self.work.settled[start])
        # The lower of the distance to the goal and that of the start is a potential: it falls by no more than the cost
        # along any edge. Farther states need not be searched for that.
        farthest = self.work.dist[self.work.order[settled - 1]]
        potential = np.full(self.mdp.n_states, farthest)
        near = self.work.order[:settled]
        potential[near] = self.work.dist[near]
        # Rounding may leave a little less than 0.
        self.cost = np.maximum(0.0, ways.cost + potential[self.mdp.dst] - potential[self.mdp.src])
        self.work = dijkstra.desk(self.mdp.n_states, self.mdp.n_edges)

    def search(self, begun: tuple[int, ...], without: dict[int, Any]) -> tuple[int, ...] | None:
        """Return the edges that lead on from the edges `begun` to the goal, the first not among `without`; or None.

        No state of the beginning is passed again.
        """
        if not self.reachable:
            return None
        passed = self.mdp.src[list(begun)]
        source = int(self.mdp.dst[begun[-1]]) if begun else self.start
        closed = list(without)
        costs = self.cost[closed]
        self.cost[closed] = math.inf
        self.work.settled[passed] = True  # what is settled already is not left again
        graph = (self.mdp.out_ptr, self.mdp.dst, self.cost)
        _, touched = self._kernels.search(*graph, source, self.goal, math.inf, self.work)
        found = None
        if self.work.settled[self.goal]:
            found = tuple(self._kernels.way(self.mdp.src, self.work, self.goal).tolist())
        self._kernels.clear(self.work, touched)
        self.work.settled[passed] = False
        self.cost[closed] = costs
        return found


def _costs(cost: ArrayLike, n_edges: int) -> FloatArray:
    """Return costs (E,), not negative."""
    try:
        found = np.ascontiguousarray(cost, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidParameter(f"cost must be an array of numbers ({error}).", parameter="cost") from None
    if found.shape != (n_edges,):
        raise InvalidParameter(
            f"cost must have shape ({n_edges},), one per edge of the MDP; got shape {found.shape}.",
            parameter="cost",
            value=found.shape,
        )
    wrong = ~(found >= 0.0)
    if np.any(wrong):
        e = int(np.argmax(wrong))
        raise InvalidParameter(
            f"cost must not be negative; cost[{e}] is {found[e]}. Pass inf to close an edge.",
            parameter="cost",
            value=float(found[e]),
            index=e,
        )
    return found


def _states(values: ArrayLike, name: str, mdp: MDP) -> IntArray:
    """Return numbers of states (n,)."""
    found = np.asarray(values)
    if found.size == 0:
        return np.empty(0, dtype=np.int64)
    if found.ndim != 1 or found.dtype.kind not in "iu":
        raise InvalidParameter(
            f"{name} must be a row of whole numbers, each a state; got {values!r}.", parameter=name, value=values
        )
    wrong = (found < 0) | (found >= mdp.n_states)
    if np.any(wrong):
        i = int(np.argmax(wrong))
        raise InvalidParameter(
            f"{name}[{i}] must be a state, 0 to {mdp.n_states - 1}; it is {found[i]}.",
            parameter=name,
            value=int(found[i]),
            index=i,
        )
    return np.ascontiguousarray(found, dtype=np.int64)
