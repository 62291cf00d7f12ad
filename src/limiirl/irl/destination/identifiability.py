"""Null directions of `DestinationMaxEnt`.

A direction v is null for a goal if v . F is the same for all paths from each start. Then v . phi(e) of an edge s ->
s' is the difference of potentials P(s) - P(s'), where P(s) is v . F of any path from s to the goal.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.csgraph import breadth_first_order

from limiirl._typing import FloatArray, IntArray
from limiirl.irl.identifiability import null_directions
from limiirl.irl.maxent.backends import edge_parts
from limiirl.mdp import MDP

# Largest number of states times goals to compare, and the least number of goals.
_WORK = 100_000
_LEAST = 4


def variation(mdp: MDP, starts: IntArray, goals: IntArray) -> tuple[FloatArray, FloatArray]:
    """Return the Gram matrix (d, d) of feature differences between paths from starts to goals (m,), and sizes (d,).

    At most max(4, 100,000 / S) goals are compared; see `subsample_goals`. A direction in which only trips to other
    goals differ is reported as null.
    """
    gram, size = np.zeros((mdp.n_features, mdp.n_features)), np.zeros(mdp.n_features)
    phi = edge_features(mdp)
    for goal in subsample_goals(np.unique(goals), mdp.n_states):
        for differences, squares in _differences(mdp, phi, np.unique(starts[goals == goal]), int(goal)):
            gram += differences.T @ differences
            size += squares
    return gram, np.sqrt(size)


def subsample_goals(goals: IntArray, n_states: int) -> IntArray:
    """Return evenly spaced entries of the goals, as many as are compared."""
    most = max(_LEAST, _WORK // n_states)
    return goals if goals.size <= most else goals[np.linspace(0, goals.size - 1, most).astype(np.int64)]


def null_directions_between(mdp: MDP, starts: IntArray, goals: IntArray) -> FloatArray:
    """Return an orthonormal basis of the directions that are null for all pairs (m,) of a start and a goal."""
    return null_directions(*variation(mdp, starts, goals))


def edge_features(mdp: MDP) -> FloatArray:
    """Return the features (E, d) of each edge and its target state."""
    blocks = []
    if mdp.state_features is not None:
        blocks.append(sparse.csr_array(mdp.state_features)[mdp.dst])
    blocks += map(sparse.csr_array, edge_parts(mdp))
    return np.asarray(sparse.hstack(blocks, format="csr").toarray())


def _differences(mdp: MDP, phi: FloatArray, starts: IntArray, goal: int) -> list[tuple[FloatArray, FloatArray]]:
    """Return the feature differences (m, d) of edges relative to a tree of paths to the goal, and squares (d,)."""
    n, on = mdp.n_states, mdp.src != goal
    tail, head = mdp.dst[on], mdp.src[on]
    back = sparse.csr_array((np.ones(tail.size), (tail, head)), shape=(n, n))
    order, before = breadth_first_order(back, goal)
    arrives = np.zeros(n, dtype=bool)
    arrives[order] = True
    reached = _reachable(mdp, on & arrives[mdp.dst], starts[arrives[starts]])
    used = np.flatnonzero(on & arrives[mdp.dst] & reached[mdp.src])
    if used.size == 0:
        return []
    # Potentials along the breadth-first tree towards the goal.
    key, wanted = mdp.src[used].astype(np.int64) * n + mdp.dst[used], order[1:] * np.int64(n) + before[order[1:]]
    place = np.argsort(key, kind="stable")
    at = np.minimum(np.searchsorted(key[place], wanted), used.size - 1)
    matched = key[place][at] == wanted
    potential = np.zeros((n, phi.shape[1]))
    for s, edge in zip(order[1:][matched], used[place[at[matched]]], strict=True):
        potential[s] = phi[edge] + potential[mdp.dst[edge]]
    differences = phi[used] + potential[mdp.dst[used]] - potential[mdp.src[used]]
    squares = np.sum(phi[used] ** 2 + potential[mdp.src[used]] ** 2, axis=0)
    return [(differences, squares)]


def _reachable(mdp: MDP, on: NDArray[np.bool_], starts: IntArray) -> NDArray[np.bool_]:
    """Return the states (S,) reachable from the starts along edges that are on."""
    n = mdp.n_states
    tail, head = np.concatenate([mdp.src[on], np.full(starts.size, n)]), np.concatenate([mdp.dst[on], starts])
    links = sparse.csr_array((np.ones(tail.size), (tail, head)), shape=(n + 1, n + 1))
    reached = np.zeros(n + 1, dtype=bool)
    reached[breadth_first_order(links, n, return_predecessors=False)] = True
    return reached[:n]
