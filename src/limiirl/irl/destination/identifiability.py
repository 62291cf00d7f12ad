"""The directions in reward space that no choice of way to a goal can tell apart.

A direction v is null for a goal if v . F is the same for all ways from each start: then v . phi, along an edge, is a
difference of potentials, P(s') - P(s), where P(s) is v . F of any way from s to the goal. Features that depend on the
ends of a trip alone are such, whatever theta is.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.csgraph import breadth_first_order

from limiirl._typing import FloatArray, IntArray
from limiirl.irl.identifiability import null_directions
from limiirl.irl.maxent.compiled import edge_parts
from limiirl.mdp import MDP

# States times goals that are looked at, and the least number of goals: in a large network a few goals say what all do.
_WORK = 100_000
_LEAST = 4


def variation(mdp: MDP, starts: IntArray, goals: IntArray) -> tuple[FloatArray, FloatArray]:
    """Return the Gram matrix (d, d) of differences between ways from each start to its goal (m,), and sizes (d,).

    At most 100,000 / S goals are looked at, or 4, spread evenly over those given, each with all its own starts. A
    direction in which only trips to other goals differ is then taken for null.
    """
    gram, size = np.zeros((mdp.n_features, mdp.n_features)), np.zeros(mdp.n_features)
    phi = edge_features(mdp)
    for goal in spread(np.unique(goals), mdp.n_states):
        for differences, squares in _differences(mdp, phi, np.unique(starts[goals == goal]), int(goal)):
            gram += differences.T @ differences
            size += squares
    return gram, np.sqrt(size)


def spread(goals: IntArray, n_states: int) -> IntArray:
    """Return as many goals as can be looked at, evenly from among those given."""
    most = max(_LEAST, _WORK // n_states)
    return goals if goals.size <= most else goals[np.linspace(0, goals.size - 1, most).astype(np.int64)]


def nulls(mdp: MDP, starts: IntArray, goals: IntArray) -> FloatArray:
    """Return an orthonormal basis of the directions that are null for all pairs (m,) of a start and a goal."""
    return null_directions(*variation(mdp, starts, goals))


def edge_features(mdp: MDP) -> FloatArray:
    """Return (E, d): what taking each edge adds, the features of the state that it leads to included."""
    blocks = []
    if mdp.state_features is not None:
        blocks.append(sparse.csr_array(mdp.state_features)[mdp.dst])
    blocks += map(sparse.csr_array, edge_parts(mdp))
    return np.asarray(sparse.hstack(blocks, format="csr").toarray())


def _differences(mdp: MDP, phi: FloatArray, starts: IntArray, goal: int) -> list[tuple[FloatArray, FloatArray]]:
    """Return the differences (m, d) that edges make on their way to a goal, with what they are computed from (d,)."""
    n, on = mdp.n_states, mdp.src != goal
    tail, head = mdp.dst[on], mdp.src[on]
    back = sparse.csr_array((np.ones(tail.size), (tail, head)), shape=(n, n))
    order, before = breadth_first_order(back, goal)
    arrives = np.zeros(n, dtype=bool)
    arrives[order] = True
    reached = _reached(mdp, on & arrives[mdp.dst], starts[arrives[starts]])
    used = np.flatnonzero(on & arrives[mdp.dst] & reached[mdp.src])
    if used.size == 0:
        return []
    # P along the tree: from each state by one edge to the state that is one nearer to the goal.
    key, wanted = mdp.src[used].astype(np.int64) * n + mdp.dst[used], order[1:] * np.int64(n) + before[order[1:]]
    place = np.argsort(key, kind="stable")
    at = np.minimum(np.searchsorted(key[place], wanted), used.size - 1)
    found = key[place][at] == wanted
    potential = np.zeros((n, phi.shape[1]))
    for s, edge in zip(order[1:][found], used[place[at[found]]], strict=True):
        potential[s] = phi[edge] + potential[mdp.dst[edge]]
    apart = phi[used] + potential[mdp.dst[used]] - potential[mdp.src[used]]
    squares = np.sum(phi[used] ** 2 + potential[mdp.src[used]] ** 2, axis=0)
    return [(apart, squares)]


def _reached(mdp: MDP, on: NDArray[np.bool_], starts: IntArray) -> NDArray[np.bool_]:
    """Return (S,) the states to which edges that are on lead from the starts."""
    n = mdp.n_states
    tail, head = np.concatenate([mdp.src[on], np.full(starts.size, n)]), np.concatenate([mdp.dst[on], starts])
    links = sparse.csr_array((np.ones(tail.size), (tail, head)), shape=(n + 1, n + 1))
    found = np.zeros(n + 1, dtype=bool)
    found[breadth_first_order(links, n, return_predecessors=False)] = True
    return found[:n]
