"""The norm in which path sums are compared with their oracles."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

# The figure: relative to the largest entry of the oracle's array, or to 1 where all entries are smaller.
TOLERANCE = 1e-10


def assert_close(
    actual: ArrayLike, oracle: ArrayLike, what: str, tolerance: float = TOLERANCE, size: float = 1.0
) -> None:
    """Assert |actual - oracle| <= tolerance ** max(size, max |oracle|) in every entry; infinities must agree."""
    oracle = np.asarray(oracle, dtype=np.float64)
    scale = max(size, float(np.max(np.abs(oracle), initial=0.0, where=np.isfinite(oracle))))
    np.testing.assert_allclose(actual, oracle, rtol=0.0, atol=tolerance * scale, err_msg=what)
