"""How many edits turn one sequence into another."""

import numpy as np
from numba import njit
from numpy.typing import NDArray

Int = NDArray[np.int64]


@njit(cache=True, nogil=True)
def edit_distances(one: Int, one_ptr: Int, other: Int, other_ptr: Int) -> Int:  # pragma: no cover - compiled
    """Return the Levenshtein distance of N pairs of sequences, (N,).

    Only one row of the table of Wagner and Fischer is kept. What both sequences begin and end with is set aside first:
    it costs no edit, and recorded and forecast routes share much of it.

    Parameters
    ----------
    one, other : (n,) int64
        Sequences one after the other; those of pair i are one[one_ptr[i]:one_ptr[i + 1]], and other's likewise.
    one_ptr, other_ptr : (N + 1,) int64
    """
    n = one_ptr.size - 1
    found = np.empty(n, dtype=np.int64)
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
        found[i] = row[width]
    return found
