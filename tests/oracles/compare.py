"""How near is near: the norm in which the engine is held to its oracles."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

# The figure: relative to the largest entry of the oracle's array, or to 1 where all entries are smaller.
TOLERANCE = 1e-10


def assert_close(
    found: ArrayLike, oracle: ArrayLike, what: str, tolerance: float = TOLERANCE, size: float = 1.0
) -> None:
    """|found - oracle| <= tolerance * max(size, max |oracle|) in every entry; infinities must be in the same places."""
    oracle = np.asarray(oracle, dtype=np.float64)
    scale = max(size, float(np.max(np.abs(oracle), initial=0.0, where=np.isfinite(oracle))))
    np.testing.assert_allclose(found, oracle, rtol=0.0, atol=tolerance * scale, err_msg=what)
