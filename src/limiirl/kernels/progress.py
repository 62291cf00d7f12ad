"""How far along its path each fix of a matched trip has come."""

import numpy as np
from numba import njit
from numpy.typing import NDArray

Float = NDArray[np.float64]
Int = NDArray[np.int64]


@njit(cache=True, nogil=True)
def path_progress(path: Int, length: Float, segment: Int, along: Float) -> Float:
    """Return metres (k,) from the beginning of a path at each fix; NaN for those unmatched.

    Parameters
    ----------
    path : (n,) int64
        Segments in the order driven.
    length : (S,)
        Of all segments of the network.
    segment, along : (k,)
        Of the fixes, in order; -1 where unmatched. One that lies on no later segment of the path, since noise took it
        back, is where the one before was.
    """
    found = np.full(segment.size, np.nan)
    at, begins, last = 0, 0.0, 0.0
    for k in range(segment.size):
        if segment[k] < 0:
            continue
        ahead, start = at, begins
        while ahead < path.size and path[ahead] != segment[k]:
            start += length[path[ahead]]
            ahead += 1
        if ahead < path.size:
            at, begins = ahead, start
            last = max(last, begins + along[k])
        found[k] = last
    return found
