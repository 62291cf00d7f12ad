"""The cheapest ways between many pairs of states, one search a pair, on one desk."""

import numpy as np
from numba import njit
from numpy.typing import NDArray

from limiirl.kernels.shortest import Desk, clear, search, way


@njit(cache=True, nogil=True)
def cheapest_ways(
    ptr: NDArray[np.int64],
    head: NDArray[np.int32],
    tail: NDArray[np.int32],
    cost: NDArray[np.float64],
    starts: NDArray[np.int64],
    goals: NDArray[np.int64],
    work: Desk,
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """Return the edges of all ways one after the other, how many each has (n,), and what each costs (n,).

    A way that does not exist has no edges and costs inf. From a state to itself there is nothing to do, at cost 0.

    Parameters
    ----------
    ptr, head, tail, cost : the graph as CSR; see `shortest.search`
    starts, goals : (n,)
    work : Desk
        Clear, and left clear.

    Examples
    --------
    >>> from limiirl.kernels.shortest import desk
    >>> graph = np.array([0, 2, 3, 3]), np.array([1, 2, 2]), np.array([0, 0, 1]), np.array([1.0, 3.0, 1.0])
    >>> cheapest_ways(*graph, np.array([0, 2]), np.array([2, 0]), desk(3, 3))
    (array([0, 2]), array([2, 0]), array([ 2., inf]))
    """
    n, used = starts.size, 0
    edges = np.empty(16 * n + 16, dtype=np.int64)
    sizes, total = np.zeros(n, dtype=np.int64), np.full(n, np.inf)
    for i in range(n):
        _, n_touched = search(ptr, head, cost, starts[i], goals[i], np.inf, work)
        if work.settled[goals[i]]:
            found = way(tail, work, goals[i])
            total[i], sizes[i] = work.dist[goals[i]], found.size
            if used + found.size > edges.size:
                larger = np.empty(2 * edges.size + found.size, dtype=np.int64)
                larger[:used] = edges[:used]
                edges = larger
            edges[used : used + found.size] = found
            used += found.size
        clear(work, n_touched)
    return edges[:used].copy(), sizes, total
