"""Kernels on sequences: matching of transitions to edges, edit distances, and the baseline of GPOMDP."""

import numpy as np
from numba import njit
from numpy.typing import NDArray

from limiirl._typing import FloatArray, IntArray


@njit(cache=True)
def _find_recorded(
    lo: int, hi: int, act: NDArray[np.int32], dst: NDArray[np.int32], action: int, target: int
) -> int:  # pragma: no cover - compiled
    """Return the edge (action, target) among the edges lo:hi, sorted by (act, dst), or -1 if there is none."""
    end = hi
    while lo < hi:
        mid = (lo + hi) // 2
        if act[mid] < action or (act[mid] == action and dst[mid] < target):
            lo = mid + 1
        else:
            hi = mid
    if lo < end and act[lo] == action and dst[lo] == target:
        return lo
    return -1


@njit(cache=True)
def _first_from(
    lo: int, hi: int, in_order: NDArray[np.int32], src: NDArray[np.int32], state: int
) -> int:  # pragma: no cover - compiled
    """Return the first position in lo:hi with src[in_order[position]] >= state, or hi; sources are sorted."""
    while lo < hi:
        mid = (lo + hi) // 2
        if src[in_order[mid]] < state:
            lo = mid + 1
        else:
            hi = mid
    return lo


@njit(cache=True)
def find_edges(
    out_ptr: NDArray[np.int64],
    in_ptr: NDArray[np.int64],
    in_order: NDArray[np.int32],
    src: NDArray[np.int32],
    act: NDArray[np.int32],
    dst: NDArray[np.int32],
    states: NDArray[np.int64],
    actions: NDArray[np.int64],
    offsets: NDArray[np.int64],
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:  # pragma: no cover - compiled
    """Match every transition of N trajectories to the edges of a graph.

    A transition with a recorded action matches at most one edge (s, a, s'). Without an action it matches all edges from
    s to s', which are consecutive in the order (dst, src, act).

    Parameters
    ----------
    out_ptr, in_ptr : (S + 1,) int64
        The edges out of s are out_ptr[s]:out_ptr[s + 1]; the edges into s are in_order[in_ptr[s]:in_ptr[s + 1]].
    in_order : (E,) int32
        Permutation that sorts the edges by (dst, src, act).
    src, act, dst : (E,) int32
        Edges, sorted by (src, act, dst).
    states : (n,) int64
        Concatenated states of the trajectories, in 0..S - 1 (not checked).
    actions : (n,) int64, or empty
        Action in each state; negative if it was not recorded. Empty if no action was recorded.
    offsets : (N + 1,) int64
        Trajectory i is states[offsets[i]:offsets[i + 1]]; it is not empty.

    Returns
    -------
    edge : (n - N,) int64
        Matching edge of each transition, or -1 if no edge or several edges match.
    count : (n - N,) int64
        Number of matching edges.
    first : (n - N,) int64
        If count > 1, the matching edges are in_order[first:first + count]; otherwise -1.

    Examples
    --------
    Two actions lead from state 0 to state 1; only the second trajectory has a recorded action.

    >>> import numpy as np
    >>> src, act, dst = (np.array(x, dtype=np.int32) for x in ([0, 0, 1], [0, 1, 0], [1, 1, 2]))
    >>> in_order = np.array([0, 1, 2], dtype=np.int32)
    >>> edge, count, first = find_edges(
    ...     np.array([0, 2, 3, 3]), np.array([0, 0, 2, 3]), in_order, src, act, dst,
    ...     np.array([0, 1, 2, 0, 1]), np.array([-1, -1, -1, 1, -1]), np.array([0, 3, 5]))
    >>> edge.tolist(), count.tolist(), first.tolist()
    ([-1, 2, 1], [2, 1, 1], [0, -1, -1])
    """
    n_transitions = states.size - (offsets.size - 1)
    edge = np.full(n_transitions, -1, dtype=np.int64)
    count = np.zeros(n_transitions, dtype=np.int64)
    first = np.full(n_transitions, -1, dtype=np.int64)
    for i in range(offsets.size - 1):
        for j in range(offsets[i], offsets[i + 1] - 1):
            # Each previous trajectory has one transition fewer than it has states.
            k = j - i
            s, target = states[j], states[j + 1]
            if actions.size > 0 and actions[j] >= 0:
                edge[k] = _find_recorded(out_ptr[s], out_ptr[s + 1], act, dst, actions[j], target)
                count[k] = 1 if edge[k] >= 0 else 0
            else:
                lo = _first_from(in_ptr[target], in_ptr[target + 1], in_order, src, s)
                hi = _first_from(lo, in_ptr[target + 1], in_order, src, s + 1)
                count[k] = hi - lo
                if hi - lo == 1:
                    edge[k] = in_order[lo]
                elif hi - lo > 1:
                    first[k] = lo
    return edge, count, first


@njit(cache=True, nogil=True)
def edit_distances(
    one: IntArray, one_ptr: IntArray, other: IntArray, other_ptr: IntArray
) -> IntArray:  # pragma: no cover - compiled
    """Return the Levenshtein distances (N,) of N pairs of sequences.

    The Wagner-Fischer algorithm is applied after removing the common prefix and suffix. Pair i consists of
    one[one_ptr[i]:one_ptr[i + 1]] and other[other_ptr[i]:other_ptr[i + 1]].
    """
    n = one_ptr.size - 1
    distance = np.empty(n, dtype=np.int64)
    longest = 0
    for i in range(n):
        longest = max(longest, other_ptr[i + 1] - other_ptr[i])
    row = np.empty(longest + 1, dtype=np.int64)
    for i in range(n):
        a, a_end, b, b_end = one_ptr[i], one_ptr[i + 1], other_ptr[i], other_ptr[i + 1]
        while a < a_end and b < b_end and one[a] == other[b]:
            a += 1
            b += 1
        while a < a_end and b < b_end and one[a_end - 1] == other[b_end - 1]:
            a_end -= 1
            b_end -= 1
        width = b_end - b
        for j in range(width + 1):
            row[j] = j
        for x in range(a, a_end):
            diagonal = row[0]
            row[0] += 1
            for j in range(1, width + 1):
                replaced = diagonal + (one[x] != other[b + j - 1])
                diagonal = row[j]
                row[j] = min(replaced, row[j] + 1, row[j - 1] + 1)
        distance[i] = row[width]
    return distance


def baseline(G: FloatArray, collected: FloatArray, floor: float) -> FloatArray:
    """Return the baseline (H, d) or (H, d, q) of GPOMDP: the mean of `collected` over episodes, weighted by G^2.

    It minimises the variance of ``sum_t G_t (collected_t - baseline_t)``.

    Parameters
    ----------
    G : (n, H, d)
        Cumulative sums of the scores, per episode and step.
    collected : (n, H) or (n, H, q)
        Discounted reward, or discounted reward features, of each step.
    floor : float
        Added to the denominator, the sum of G^2.

    Examples
    --------
    The second of two episodes has twice the score and four times the weight.

    >>> baseline(np.array([[[1.0]], [[2.0]]]), np.array([[0.0], [1.0]]), 0.0)
    array([[0.8]])
    """
    squares, several = G**2, collected.ndim == 3
    # `optimize` makes einsum use matrix products, which are slower for a single column.
    mean = np.einsum("ntd,nt...->td...", squares, collected, optimize=several)
    total = np.sum(squares, axis=0) + floor
    total = np.where(total > 0.0, total, 1.0)
    return np.asarray(mean / (total[:, :, None] if several else total))
