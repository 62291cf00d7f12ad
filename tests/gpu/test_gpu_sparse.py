"""Products with sparse matrices on a GPU, or its emulation, against scipy; on a GPU also bit-reproducibility."""

import numpy as np
import pytest
from scipy import sparse

from limiirl.irl import with_choices
from limiirl.irl.destination.gpu import GpuGoalValues
from limiirl.irl.estimator import choose_backend
from limiirl.irl.maxent.path_sums import FinitePathSums
from limiirl.kernels.gpu import device as gpu_device
from limiirl.kernels.gpu.device import SparseRows
from limiirl.worlds import RoadGrid
from tests.oracles.gpu_cases import NO_DEVICE, ONLY_REAL, device

pytestmark = NO_DEVICE


def random_matrix(rows: int, columns: int, density: float, seed: int = 0) -> sparse.csr_array:
    matrix = sparse.random(rows, columns, density, random_state=np.random.default_rng(seed), format="csr")
    return sparse.csr_array(matrix)


@pytest.mark.parametrize("K", [1, 3, 40])
@pytest.mark.parametrize("piece", [1000, 7, 2])
@pytest.mark.parametrize(
    "matrix",
    [
        random_matrix(30, 20, 0.3),
        random_matrix(3, 400, 0.8),  # long rows, which are cut into pieces, and these again
        random_matrix(400, 3, 0.2),
        sparse.csr_array((4, 5)),
        sparse.csr_array((0, 5)),
        sparse.csr_array(np.array([[0.0, 0.0], [1.0, 2.0], [0.0, 0.0]])),
    ],
    ids=lambda matrix: f"{matrix.shape}",
)
def test_products(matrix: sparse.csr_array, piece: int, K: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_device, "PIECE", piece)
    dense = np.random.default_rng(1).normal(size=(matrix.shape[1], K))
    place = device()
    product = place.take(SparseRows(place, matrix).times(place.put(dense)))
    np.testing.assert_allclose(product, matrix @ dense, rtol=1e-13, atol=1e-13)


@ONLY_REAL
@pytest.mark.parametrize("K", [1, 3, 8])
def test_sums_over_trajectories_have_the_same_bits_every_time(K: int) -> None:
    mdp = RoadGrid(100_000, 200_000).mdp
    assert sparse.issparse(mdp.state_features)
    thetas = -np.random.default_rng(0).uniform(1.0, 2.0, (K, mdp.n_features))
    sums = FinitePathSums(mdp, 50, backend=choose_backend("gpu", mdp))
    results = {tuple(part.tobytes() for part in sums.value_and_grad(thetas)) for _ in range(20)}
    assert len(results) == 1


@ONLY_REAL
@pytest.mark.parametrize("K", [1, 3])
def test_sums_over_paths_have_the_same_bits_every_time(K: int) -> None:
    mdp = with_choices(RoadGrid(30_000, 36_000, seed=0).mdp)
    rng = np.random.default_rng(0)
    starts, goals = rng.integers(0, mdp.n_states, (2, 500))
    thetas = -rng.uniform(1.0, 2.0, (K, mdp.n_features))
    values = GpuGoalValues(mdp, device())
    weights = np.full((500, K), 1e-3)
    results = {
        tuple(part.tobytes() for part in values.sum_pairs(thetas, starts, goals, weights, 1e-6)) for _ in range(20)
    }
    assert len(results) == 1
