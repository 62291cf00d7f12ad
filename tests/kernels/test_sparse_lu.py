""""""

import subprocess
import sys

import numpy as np
import pytest
from scipy import sparse

from limiirl import MDP, Demonstrations, MaxCausalEnt, MaxEnt
from limiirl.errors import DivergentPartition, NumericalError
from limiirl.kernels.sparse_lu import diagonal_lu, factorise_lu, return_visits
from limiirl.mdp import policy_values
from tests.helpers import raises

SIDE = 38


def grid(certain: int, seed: int) -> sparse.csc_array:
    """Return I - P of random walks on a grid, with `certain` states that are never left."""
    rng, n = np.random.default_rng(seed), SIDE**2
    rows = [[(s, 0.1), *((s + d, 0.2) for d in (-1, 1, -SIDE, SIDE) if 0 <= s + d < n)] for s in range(n)]
    for s in rng.choice(n, certain, replace=False):
        rows[s] = [(s, 1.0)]
    entries = [(s, target, p) for s, row in enumerate(rows) for target, p in row]
    src, dst, p = (np.array(column) for column in zip(*entries, strict=True))
    return sparse.csc_array(sparse.eye_array(n) - sparse.csc_array((p, (src, dst)), shape=(n, n)))


@pytest.mark.parametrize("factorise", [factorise_lu, diagonal_lu])
@pytest.mark.parametrize("transposed", [False, True])
def test_empty_rows_do_not_reach_superlu(factorise, transposed: bool, capfd: pytest.CaptureFixture[str]) -> None:
    for seed in range(5):
        matrix = grid(40, seed)
        with pytest.raises(RuntimeError):
            factorise(matrix.T.tocsc() if transposed else matrix)
    # BLAS prints the invalid sizes that SuperLU passes before it ends the process.
    assert capfd.readouterr() == ("", "")


def test_regular_systems_are_solved() -> None:
    matrix = grid(0, 0)
    right = np.random.default_rng(1).normal(size=SIDE**2)
    for factorise in (factorise_lu, diagonal_lu):
        np.testing.assert_allclose(matrix @ factorise(matrix).solve(right), right, atol=1e-12)


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("entry", [(3, 3), (3, 4)])
def test_values_that_are_not_finite_do_not_reach_superlu(value: float, entry: tuple[int, int]) -> None:
    matrix = sparse.lil_array(grid(0, 0))
    matrix[entry] = value
    with pytest.raises(RuntimeError):
        factorise_lu(matrix.tocsc())


def bumping_grids() -> MDP:
    """Twelve grids of 11 x 11 cells, in which a step against a wall is a self-loop with a feature of its own."""
    n, src, dst, features = 11, [], [], []
    for g in range(12):
        for x, y in np.ndindex(n, n):
            for dx, dy in ((1, 0), (-1, 0), (0, 1), (0, -1)) if (x, y) != (n - 1, n - 1) else ():
                inside = 0 <= x + dx < n and 0 <= y + dy < n
                src.append((g * n + x) * n + y)
                dst.append((g * n + x + dx * inside) * n + y + dy * inside)
                features.append([1.0, not inside])
    return MDP.from_edges(src, dst, edge_features=np.array(features, dtype=float))


THETA = [-0.7024719755350042, 7.78103051058364]


def test_certain_self_loops_raise_an_error(capfd: pytest.CaptureFixture[str]) -> None:
    mdp, demos = bumping_grids(), Demonstrations.from_lists([[0, 1]])
    with raises(DivergentPartition, parameter="thetas", index=0):
        MaxCausalEnt().log_prob(mdp, THETA, demos)
    with raises(DivergentPartition, parameter="thetas"):
        MaxEnt(max_length=np.inf).log_prob(mdp, [0.0, 0.0], demos)
    assert capfd.readouterr() == ("", "")


def test_policy_that_is_left_with_probability_zero_up_to_rounding(capfd: pytest.CaptureFixture[str]) -> None:
    mdp = bumping_grids()
    loop = mdp.src == mdp.dst
    bumps = np.bincount(mdp.src, loop, minlength=mdp.n_states)[mdp.src]
    exits = np.bincount(mdp.src, minlength=mdp.n_states)[mdp.src]
    policy = np.where(bumps > 0, np.where(loop, 1.0 / np.maximum(bumps, 1), 1e-17), 1.0 / exits)
    with raises(NumericalError):
        policy_values(mdp, policy, [-1.0, 0.0])
    assert capfd.readouterr() == ("", "")


@pytest.mark.slow
def test_the_process_survives_certain_self_loops() -> None:
    code = (
        "import sys\n"
        "from limiirl import Demonstrations, MaxCausalEnt\n"
        "from limiirl.errors import DivergentPartition\n"
        "from tests.kernels.test_sparse_lu import THETA, bumping_grids\n"
        "mdp, demos, count = bumping_grids(), Demonstrations.from_lists([[0, 1]]), 0\n"
        "for _ in range(30):\n"
        "    try:\n"
        "        MaxCausalEnt().log_prob(mdp, THETA, demos)\n"
        "    except DivergentPartition:\n"
        "        count += 1\n"
        "print(count)\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout.strip(), run.stderr) == (0, "30", "")


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
