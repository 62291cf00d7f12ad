"""Null directions of `DestinationMaxEnt`.

A direction v is null for a goal if v . F is the same for all paths from each start. Then v . phi(e) = P(s) - P(s') for
every edge e from s to s', where the potential P(s) is v . F of any path from s to the goal.
"""

from __future__ import annotations

import numpy as np
from scipy import sparse
from scipy.sparse.csgraph import breadth_first_order

from limiirl._typing import FloatArray, IntArray
from limiirl.irl.graph import find_reachable
from limiirl.irl.identifiability import null_directions
from limiirl.mdp import MDP, edge_parts

# Maximum number of states times goals to compare, and the minimum number of goals.
_WORK = 100_000
_LEAST = 4


def variation(mdp: MDP, starts: IntArray, goals: IntArray) -> tuple[FloatArray, FloatArray]:
    """Return the Gram matrix (d, d) of feature differences between paths, and the scale (d,) of each feature.

    Paths between the pairs (m,) of starts and goals are compared for at most max(4, 100,000 / S) goals; see
    `subsample_goals`. A direction in which only paths to other goals differ is reported as null.
    """
    gram, size = np.zeros((mdp.n_features, mdp.n_features)), np.zeros(mdp.n_features)
    phi = edge_features(mdp)
    for goal in subsample_goals(np.unique(goals), mdp.n_states):
        differences, squares = _differences(mdp, phi, np.unique(starts[goals == goal]), int(goal))
        gram += differences.T @ differences
        size += squares
    return gram, np.sqrt(size)


def subsample_goals(goals: IntArray, n_states: int) -> IntArray:
    """Return the goals to compare: all of them, or an evenly spaced subset if there are too many."""
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


def _differences(mdp: MDP, phi: FloatArray, starts: IntArray, goal: int) -> tuple[FloatArray, FloatArray]:
    """Return feature differences (m, d) of edges from a tree of paths to the goal, and sums of squares (d,)."""
    n, on = mdp.n_states, mdp.src != goal
    tail, head = mdp.dst[on], mdp.src[on]
    back = sparse.csr_array((np.ones(tail.size), (tail, head)), shape=(n, n))
    order, before = breadth_first_order(back, goal)
    arrives = np.zeros(n, dtype=bool)
    arrives[order] = True
    on &= arrives[mdp.dst]
    begins = np.zeros(n, dtype=bool)
    begins[starts[arrives[starts]]] = True
    used = np.flatnonzero(on & find_reachable(mdp.src[on], mdp.dst[on], begins)[mdp.src])
    if used.size == 0:
        return np.zeros((0, phi.shape[1])), np.zeros(phi.shape[1])
    # Potentials along the breadth-first tree towards the goal.
    key, wanted = mdp.src[used].astype(np.int64) * n + mdp.dst[used], order[1:] * np.int64(n) + before[order[1:]]
    by_key = np.argsort(key, kind="stable")
    at = np.minimum(np.searchsorted(key[by_key], wanted), used.size - 1)
    matched = key[by_key][at] == wanted
    potential = np.zeros((n, phi.shape[1]))
    for s, edge in zip(order[1:][matched], used[by_key[at[matched]]], strict=True):
        potential[s] = phi[edge] + potential[mdp.dst[edge]]
    differences = phi[used] + potential[mdp.dst[used]] - potential[mdp.src[used]]
    squares = np.sum(phi[used] ** 2 + potential[mdp.src[used]] ** 2, axis=0)
    return differences, squares
