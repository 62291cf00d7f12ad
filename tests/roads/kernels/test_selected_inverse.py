"""Diagonal of the inverse, compared with the dense inverse."""

import numpy as np
import pytest

from limiirl.roads.kernels.selected_inverse import return_visits


@pytest.mark.parametrize("seed", range(8))
def test_the_diagonal_agrees_with_the_dense_inverse(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 60))
    src, dst = np.array(np.divmod(rng.choice(n * n, size=min(n * n, 3 * n), replace=False), n))
    dense = np.zeros((n, n))
    weight = rng.uniform(0.0, 1.0, src.size) * rng.choice([1.0, 1e-3, 0.0], size=src.size)
    dense[src, dst] = weight
    scale = 0.98 / max(np.abs(np.linalg.eigvals(dense)).max(), 0.5)
    wanted = np.diag(np.linalg.inv(np.eye(n) - scale * dense))
    np.testing.assert_allclose(return_visits(src, dst, scale * weight, n), wanted, rtol=1e-9)


def test_no_edges_give_ones():
    assert return_visits(np.empty(0, int), np.empty(0, int), np.empty(0), 3).tolist() == [1.0, 1.0, 1.0]
