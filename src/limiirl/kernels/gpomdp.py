"""GPOMDP's baseline: what may be taken off rewards without a change of the gradient's mean, so that it varies least."""

import numpy as np
from numpy.typing import NDArray

Float = NDArray[np.float64]


def baseline(G: Float, collected: Float, floor: float) -> Float:
    """Return (H, d) or (H, d, q): for each step, the mean over walks of what is collected, weighted by G^2.

    Entry by entry, this makes the variance of ``sum_t G_t (collected_t - baseline_t)`` smallest.

    Parameters
    ----------
    G : (n, H, d)
        Sums of scores up to each step.
    collected : (n, H) or (n, H, q)
        Discounted rewards, or reward features.
    floor : float
        Added to the sum of G^2 by which is divided. With 0, a step at which no walk has a score has baseline 0.

    Examples
    --------
    The second of two walks has twice the score, and counts four times.

    >>> baseline(np.array([[[1.0]], [[2.0]]]), np.array([[0.0], [1.0]]), 0.0)
    array([[0.8]])
    """
    squares, several = G**2, collected.ndim == 3
    # For several columns numpy makes products of matrices of it, which for one column are slower than plain sums.
    found = np.einsum("ntd,nt...->td...", squares, collected, optimize=several)
    total = np.sum(squares, axis=0) + floor
    total = np.where(total > 0.0, total, 1.0)
    return np.asarray(found / (total[:, :, None] if several else total))
