"""Walks to a goal, drawn edge by edge."""

import numpy as np
from numba import njit
from numpy.typing import NDArray

Float = NDArray[np.float64]
Int = NDArray[np.int64]


@njit(cache=True, nogil=True)
def walk(
    out_ptr: Int, dst: NDArray[np.int32], share: Float, start: int, goal: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Return the edges of a walk that ends at its first arrival in the goal.

    Parameters
    ----------
    out_ptr, dst : the target (E,) of the edges that leave each state, as CSR
    share : (E,)
        Probability of each edge for those who are bound for the goal.
    """
    edges, n, at = np.empty(16, dtype=np.int64), 0, start
    while at != goal:
        left, last = rng.random(), -1
        for e in range(out_ptr[at], out_ptr[at + 1]):
            if share[e] > 0.0:
                # Rounding may leave a little of 1: the last possible edge has it.
                last = e
                left -= share[e]
                if left < 0.0:
                    break
        if n == edges.size:
            edges = np.concatenate((edges, np.empty(n, dtype=np.int64)))
        edges[n], at = last, dst[last]
        n += 1
    return edges[:n]
