"""The optimisers on convex functions with known constrained minima."""

import math
import subprocess
import sys

import numpy as np
import pytest
from scipy.optimize import minimize

from limiirl import MaxEnt
from limiirl.errors import DivergentPartition
from limiirl.irl.base import FitResult, Status
from limiirl.irl.optim import SOLVERS, Box, evaluate_separately, minimise_bfgs, minimise_lbfgs, minimise_newton
from limiirl.testing import Case, cases
from tests.helpers import raises

EACH = pytest.mark.parametrize(
    "minimise", [minimise_newton, minimise_lbfgs, minimise_bfgs], ids=["newton", "lbfgs", "bfgs"]
)


class Recorder:
    """K functions, with a record of every call."""

    def __init__(self) -> None:
        self.calls: list[list[int]] = []
        self.points: list[list[tuple[float, np.ndarray]]] = []

    def evaluate(self, thetas: np.ndarray, which: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        self.calls.append(which.tolist())
        pairs = [self.function(theta, int(k)) for theta, k in zip(thetas, which, strict=True)]
        self.points.append([(value, theta.copy()) for (value, _), theta in zip(pairs, thetas, strict=True)])
        return np.array([value for value, _ in pairs]), np.array([gradient for _, gradient in pairs])

    def function(self, theta: np.ndarray, k: int) -> tuple[float, np.ndarray]:
        raise NotImplementedError


class Quadratic(Recorder):
    """theta' A theta / 2 - b_k . theta."""

    def __init__(self, matrix: np.ndarray, right: np.ndarray) -> None:
        super().__init__()
        self.matrix, self.right = matrix, np.atleast_2d(right)

    def function(self, theta: np.ndarray, k: int) -> tuple[float, np.ndarray]:
        return float(0.5 * theta @ self.matrix @ theta - self.right[k] @ theta), self.matrix @ theta - self.right[k]

    def hessian(self, theta: np.ndarray, k: int) -> np.ndarray:
        return self.matrix


class LogSum(Recorder):
    """log sum_i exp(x_i . theta) - b_k . theta, infinite where theta[0] > wall."""

    def __init__(self, x: np.ndarray, right: np.ndarray, wall: float = math.inf) -> None:
        super().__init__()
        self.x, self.right, self.wall = x, np.atleast_2d(right), wall

    def weights(self, theta: np.ndarray) -> tuple[float, np.ndarray]:
        power = self.x @ theta
        top = power.max()
        weight = np.exp(power - top)
        return float(top + np.log(weight.sum())), weight / weight.sum()

    def function(self, theta: np.ndarray, k: int) -> tuple[float, np.ndarray]:
        if theta[0] > self.wall:
            return math.inf, np.zeros_like(theta)
        total, p = self.weights(theta)
        return total - float(self.right[k] @ theta), self.x.T @ p - self.right[k]

    def hessian(self, theta: np.ndarray, k: int) -> np.ndarray:
        _, p = self.weights(theta)
        mean = self.x.T @ p
        return (self.x.T * p) @ self.x - np.outer(mean, mean)


def wide(d: int) -> Box:
    return Box(np.full(d, -np.inf), np.full(d, np.inf))


def definite(d: int, seed: int) -> np.ndarray:
    root = np.random.default_rng(seed).normal(size=(d, d))
    return root @ root.T + 0.1 * np.eye(d)


def log_sum(d: int = 4, n_functions: int = 3, seed: int = 0, wall: float = math.inf) -> LogSum:
    """Return functions whose right-hand sides are means of the points, so a minimum exists."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(30, d))
    return LogSum(x, rng.dirichlet(np.full(30, 0.3), size=n_functions) @ x, wall)


def solve(minimise: object, objective: Recorder, starts: object, box: Box, **options: float) -> list[FitResult]:
    given = {"tol": 1e-6, "max_evaluations": 500} | options
    return minimise(
        objective, np.atleast_2d(np.asarray(starts, dtype=float)), box, given["tol"], given["max_evaluations"]
    )  # type: ignore[operator]


def test_box():
    box = Box(np.array([-1.0, -np.inf, 0.0]), np.array([1.0, 2.0, np.inf]))
    np.testing.assert_array_equal(box.clip(np.array([[-3.0, 5.0, -1.0], [0.5, -9.0, 9.0]])), [[-1, 2, 0], [0.5, -9, 9]])
    on = np.array([-1.0, 2.0, 0.0])
    np.testing.assert_array_equal(box.active(on, np.array([0.1, -0.1, 0.1])), [True, True, True])
    np.testing.assert_array_equal(box.active(on, np.array([-0.1, 0.1, -0.1])), [False, False, False])
    np.testing.assert_array_equal(box.active(on, np.zeros(3)), [False, False, False])
    np.testing.assert_array_equal(box.active(np.array([0.0, 0.0, 1.0]), np.ones(3)), [False, False, False])
    assert box.residual(on, np.array([7.0, -8.0, -0.25])) == 0.25
    assert box.residual(on, np.array([7.0, -8.0, 9.0])) == 0.0
    assert box.residual(np.zeros(3), np.array([-3.0, 2.0, 1.0])) == 3.0


def test_names_of_solvers():
    assert {"newton": minimise_newton, "lbfgs": minimise_lbfgs, "bfgs": minimise_bfgs} == SOLVERS


def test_newton_solves_a_quadratic_in_one_step():
    matrix, right = definite(5, seed=1), np.arange(5.0)
    objective = Quadratic(matrix, right)
    (result,) = solve(minimise_newton, objective, np.full(5, 3.0), wide(5))
    np.testing.assert_allclose(result.theta, np.linalg.solve(matrix, right), atol=1e-5)
    assert result.status is Status.CONVERGED
    assert (result.n_evaluations, result.n_hessians) == (2, 1)


@EACH
@pytest.mark.parametrize("seed", range(8))
def test_bounded_quadratics_against_scipy(minimise: object, seed: int):
    rng = np.random.default_rng(seed)
    matrix, right = definite(5, seed), 3 * rng.normal(size=5)
    low = rng.uniform(-1, 0, size=5)
    box = Box(low, low + rng.uniform(0.1, 1.5, size=5))
    (result,) = solve(minimise, Quadratic(matrix, right), rng.normal(size=5), box)
    # Reference: SciPy's SLSQP.
    reference = minimize(
        lambda theta: (0.5 * theta @ matrix @ theta - right @ theta, matrix @ theta - right),
        low,
        jac=True,
        method="SLSQP",
        bounds=list(zip(box.lower, box.upper, strict=True)),
        options={"ftol": 1e-15, "maxiter": 500},
    )
    assert result.converged
    np.testing.assert_allclose(result.theta, reference.x, atol=1e-5)
    gradient = matrix @ result.theta - right
    assert np.all(gradient[result.theta <= box.lower] > -1e-6)
    assert np.all(gradient[result.theta >= box.upper] < 1e-6)
    free = (result.theta > box.lower) & (result.theta < box.upper)
    np.testing.assert_allclose(gradient[free], 0.0, atol=1e-6)
    assert result.value == Quadratic(matrix, right).function(result.theta, 0)[0]


@EACH
@pytest.mark.parametrize("bound", [np.inf, 0.5])
def test_log_sums_against_scipy(minimise: object, bound: float):
    objective = log_sum()
    results = solve(minimise, objective, np.zeros((3, 4)), Box(np.full(4, -bound), np.full(4, bound)))
    for k, result in enumerate(results):
        reference = minimize(
            lambda theta, k=k: objective.function(theta, k),
            np.zeros(4),
            jac=True,
            method="SLSQP",
            bounds=[(-bound, bound)] * 4,
            options={"ftol": 1e-15, "maxiter": 500},
        )
        assert result.converged
        assert result.projected_gradient <= 1e-6
        np.testing.assert_allclose(result.theta, reference.x, atol=2e-5)


@EACH
def test_minimum_in_the_opposite_corner(minimise: object):
    """All variables end at a bound, so the projected gradient is zero."""
    (result,) = solve(minimise, Quadratic(np.eye(3), [9.0, -9.0, 9.0]), [0.0, 1.0, 0.0], Box(np.zeros(3), np.ones(3)))
    np.testing.assert_array_equal(result.theta, [1.0, 0.0, 1.0])
    assert result.projected_gradient == 0.0
    assert result.converged


@EACH
def test_variables_leave_inactive_bounds(minimise: object):
    matrix = np.array([[1.0, 0.9], [0.9, 1.0]])
    right = matrix @ [0.5, 0.4]
    (result,) = solve(minimise, Quadratic(matrix, right), [0.0, 0.0], Box(np.zeros(2), np.full(2, 2.0)))
    np.testing.assert_allclose(result.theta, [0.5, 0.4], atol=1e-5)


def test_newton_with_a_singular_hessian_does_not_move_in_the_null_space():
    """f depends on theta[0] + theta[1] only; theta[0] - theta[1] and theta[2] keep their initial values."""
    row = np.array([1.0, 1.0, 0.0])
    (result,) = solve(minimise_newton, Quadratic(np.outer(row, row), 3.0 * row), [1.0, -2.0, 7.0], wide(3), tol=1e-10)
    assert result.converged
    np.testing.assert_allclose(result.theta.sum() - 7.0, 3.0, atol=1e-9)
    np.testing.assert_allclose(result.theta[0] - result.theta[1], 3.0, atol=1e-12)
    assert result.theta[2] == 7.0


def test_newton_with_a_slightly_indefinite_hessian():
    """Rounding can make eigenvalues negative; more damping restores a descent direction."""

    class Rough(Quadratic):
        def hessian(self, theta: np.ndarray, k: int) -> np.ndarray:
            return self.matrix - 1e-3 * np.eye(3)

    row = np.array([1.0, 1.0, 0.0])
    (result,) = solve(minimise_newton, Rough(np.outer(row, row), 3.0 * row), [1.0, -2.0, 7.0], wide(3))
    assert result.converged
    np.testing.assert_allclose(result.theta[0] + result.theta[1], 3.0, atol=1e-6)


@pytest.mark.parametrize("curvature", [0.0, 1e-320, -1e-17])
def test_newton_with_vanishing_curvature(curvature: float):
    """Far from the minimum the Hessian underflows or is dominated by rounding; the gradient is used instead."""

    class Flat(Quadratic):
        def hessian(self, theta: np.ndarray, k: int) -> np.ndarray:
            return self.matrix if np.max(np.abs(theta)) < 50.0 else np.full((2, 2), curvature)

    (result,) = solve(minimise_newton, Flat(np.eye(2), [1.0, 2.0]), [-300.0, 80.0], wide(2))
    assert result.converged
    np.testing.assert_allclose(result.theta, [1.0, 2.0], atol=1e-5)


@EACH
def test_infinite_values_are_rejected(minimise: object):
    """The first steps from a distant start enter the region where the function is infinite."""
    x = np.array([[-1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
    objective = LogSum(x, np.array([0.2, 0.1]), wall=0.6)
    (result,) = solve(minimise, objective, [-4.0, 0.0], wide(2))
    assert any(math.isinf(value) for call in objective.points for value, _ in call)
    (free,) = solve(minimise_newton, LogSum(x, np.array([0.2, 0.1])), [0.0, 0.0], wide(2))
    assert result.converged
    assert free.theta[0] < 0.6
    np.testing.assert_allclose(result.theta, free.theta, atol=1e-5)


@EACH
def test_divergent_start_names_its_column(minimise: object):
    objective = log_sum(wall=0.6)
    with raises(DivergentPartition, parameter="starts", index=2):
        solve(minimise, objective, [[0.0] * 4, [0.5] * 4, [0.7] * 4], wide(4))


def test_newton_rejects_nan():
    class Hole(LogSum):
        def function(self, theta: np.ndarray, k: int) -> tuple[float, np.ndarray]:
            value, gradient = super().function(theta, k)
            return (math.nan, gradient * math.nan) if value == math.inf else (value, gradient)

    x = np.array([[-1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
    objective = Hole(x, np.array([0.2, 0.1]), wall=0.6)
    (result,) = solve(minimise_newton, objective, [-4.0, 0.0], wide(2))
    assert any(math.isnan(value) for call in objective.points for value, _ in call)
    assert result.converged
    assert np.all(np.isfinite(result.theta))


def test_newton_is_monotone():
    objective = log_sum(n_functions=1, seed=5)
    start = np.full(4, 1.5)
    values = [
        solve(minimise_newton, log_sum(n_functions=1, seed=5), start, wide(4), max_evaluations=limit)[0].value
        for limit in range(2, 20)
    ]
    assert values[0] <= objective.function(start, 0)[0]
    assert np.all(np.diff(values) <= 0)
    assert len(set(values)) > 4


def test_newton_columns_equal_single_searches():
    together = log_sum(n_functions=4, seed=7)
    starts = np.random.default_rng(0).normal(size=(4, 4)) * [[0.1], [1.0], [3.0], [6.0]]
    box = Box(np.full(4, -1.0), np.full(4, 1.5))
    results = solve(minimise_newton, together, starts, box)
    for k, result in enumerate(results):
        alone = log_sum(n_functions=4, seed=7)
        single = LogSum(alone.x, alone.right[k])
        (expected,) = solve(minimise_newton, single, starts[k], box)
        np.testing.assert_array_equal(result.theta, expected.theta)
        assert result.value == expected.value
        assert (result.n_evaluations, result.n_hessians) == (expected.n_evaluations, expected.n_hessians)
    assert together.calls[0] == [0, 1, 2, 3]
    counts = [sum(k in call for call in together.calls) for k in range(4)]
    assert counts == [result.n_evaluations for result in results]
    assert len(together.calls) == max(counts)
    assert len(set(counts)) > 1  # columns converge at different times


@EACH
def test_a_start_at_the_minimum_is_evaluated_once(minimise: object):
    matrix, right = definite(4, seed=2), np.ones(4)
    objective = Quadratic(matrix, right)
    best = np.linalg.solve(matrix, right)
    (result,) = solve(minimise, objective, best, wide(4))
    assert result.n_evaluations == len(objective.calls) == 1
    np.testing.assert_array_equal(result.theta, best)
    assert result.status is Status.CONVERGED


@EACH
@pytest.mark.parametrize("limit", [1, 2, 3, 4, 6])
def test_max_evaluations_returns_the_best_point(minimise: object, limit: int):
    objective = log_sum(n_functions=1, seed=5)
    (result,) = solve(minimise, objective, np.full(4, 6.0), wide(4), max_evaluations=limit, tol=1e-12)
    points = [point for call in objective.points for point in call]
    value, theta = min(points, key=lambda point: point[0])
    assert result.status is Status.EVALUATIONS
    assert result.n_evaluations == len(points) == limit
    assert result.value == value <= points[0][0]
    np.testing.assert_array_equal(result.theta, theta)


def test_lbfgs_returns_the_best_point_and_not_the_last():
    """The function increases with every call, so the first point is the best."""

    class Worsening(Quadratic):
        def function(self, theta: np.ndarray, k: int) -> tuple[float, np.ndarray]:
            value, gradient = super().function(theta, k)
            return value + 100.0 * len(self.calls), gradient

    objective = Worsening(np.eye(2), np.ones(2))
    (result,) = solve(minimise_lbfgs, objective, [3.0, -3.0], wide(2))
    assert len(objective.calls) > 1
    np.testing.assert_array_equal(result.theta, [3.0, -3.0])
    assert result.value == objective.points[0][0][0]
    assert result.projected_gradient == 4.0
    assert result.status is Status.STALLED


@EACH
def test_search_stalls_if_the_gradient_cannot_vanish(minimise: object):
    """If rounding keeps the gradient above the tolerance, the status is STALLED and the best point is returned."""

    class Rounded(Quadratic):
        def function(self, theta: np.ndarray, k: int) -> tuple[float, np.ndarray]:
            value, gradient = super().function(theta, k)
            return value, np.where(np.abs(gradient) < 1e-5, 1e-5, gradient)

    matrix, right = definite(3, seed=3), np.ones(3)
    (result,) = solve(minimise, Rounded(matrix, right), np.ones(3), wide(3), tol=1e-8)
    assert result.status is Status.STALLED
    assert result.projected_gradient == 1e-5
    np.testing.assert_allclose(result.theta, np.linalg.solve(matrix, right), atol=1e-3)


def test_status_text():
    assert Status.CONVERGED.value == "converged"
    assert "raise max_evaluations" in Status.EVALUATIONS.value
    assert FitResult(np.zeros(1), 0.0, Status.CONVERGED, 1, 0, 0.0).converged
    assert not FitResult(np.zeros(1), 0.0, Status.STALLED, 1, 0, 0.0).converged
    assert FitResult(np.zeros(1), 0.0, Status.STALLED, 1, 0, 0.0).null_directions.shape[0] == 0


@pytest.mark.slow
def test_one_thread_limits_blas_or_all_libraries():
    """Runs in a subprocess, because other tests load further libraries."""
    code = """
from threadpoolctl import threadpool_info, threadpool_limits
from limiirl._parallel import one_thread
import sklearn.cluster

def threads():
    print(sorted({(pool["user_api"], pool["num_threads"]) for pool in threadpool_info()}))

with threadpool_limits(2):
    with one_thread("blas"):
        threads()
    with one_thread():
        threads()
    threads()
"""
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert output.splitlines() == [
        "[('blas', 1), ('openmp', 2)]",
        "[('blas', 1), ('openmp', 1)]",
        "[('blas', 2), ('openmp', 2)]",
    ]


class Barrier(Recorder):
    """-log(1 - sum exp(theta)) - b . theta: finite if the sum is below 1, with unbounded gradients at the boundary."""

    def __init__(self, right: np.ndarray) -> None:
        super().__init__()
        self.right = right

    def function(self, theta: np.ndarray, k: int) -> tuple[float, np.ndarray]:
        weights = np.exp(np.minimum(theta, 1.0))
        left = 1.0 - weights.sum()
        if left <= 0.0:
            return math.inf, np.zeros_like(theta)
        return -math.log(left) - float(self.right @ theta), weights / left - self.right


@pytest.mark.parametrize("right", [[0.3, 2.0, 0.5], [40.0, 1.0, 9.0], [200.0, 20.0, 1.0]])
@pytest.mark.parametrize("start", [[-2.0, -2.0, -2.0], [-30.0, -1.2, -3.0], [-1.2, -30.0, -20.0]])
def test_bfgs_near_the_boundary_of_the_domain(right: list[float], start: list[float]):
    """At the optimum exp(theta) = right / (1 + sum(right)), at distance 1 / (1 + sum(right)) from the boundary."""
    objective = Barrier(np.array(right))
    (result,) = solve(minimise_bfgs, objective, start, Box(np.full(3, -40.0), np.zeros(3)))
    assert any(math.isinf(value) for call in objective.points for value, _ in call)
    best = np.log(np.array(right) / (1.0 + sum(right)))
    np.testing.assert_allclose(result.value, objective.function(best, 0)[0], rtol=1e-9)
    np.testing.assert_allclose(result.theta, best, atol=1e-4)


def test_bfgs_with_active_bounds_near_the_boundary():
    """The first variable is at its bound -3; the others have a closed form given it."""
    objective = Barrier(np.array([5.0, 3.0, 2.0]))
    (result,) = solve(minimise_bfgs, objective, [-9.0, -2.0, -2.0], Box(np.full(3, -10.0), np.array([-3.0, 0.0, 0.0])))
    rest = np.log((1.0 - math.exp(-3.0)) * np.array([3.0, 2.0]) / 6.0)
    assert result.converged
    np.testing.assert_allclose(result.theta, [-3.0, *rest], atol=1e-5)


@pytest.mark.parametrize("limit", [1, 2, 3, 5, 10])
def test_bfgs_max_evaluations_with_infinite_values(limit: int):
    objective = Barrier(np.array([40.0, 1.0, 9.0]))
    (result,) = solve(minimise_bfgs, objective, [-9.0, -2.0, -9.0], wide(3), max_evaluations=limit)
    points = [point for call in objective.points for point in call]
    value, theta = min(points, key=lambda point: point[0])
    assert result.status is Status.EVALUATIONS
    assert result.n_evaluations == len(points) == limit
    assert result.value == value
    np.testing.assert_array_equal(result.theta, theta)


@pytest.mark.parametrize("size", [1e-4, 1.0, 1e4])
def test_bfgs_with_scaled_features(size: float):
    plain = log_sum(n_functions=1, seed=5)
    (expected,) = solve(minimise_newton, plain, np.zeros(4), wide(4))
    units = np.array([size, 1.0, 1.0, 1.0 / size])
    scaled = LogSum(plain.x * units, plain.right * units)
    scaled.scale = units[None] ** 2  # type: ignore[attr-defined]
    (result,) = solve(minimise_bfgs, scaled, np.zeros(4), wide(4), tol=1e-6 * units)
    np.testing.assert_allclose(result.value, expected.value, atol=1e-9)


def test_bfgs_columns_equal_single_searches():
    together, starts = log_sum(n_functions=3, seed=7), np.array([[0.1] * 4, [1.0] * 4, [-3.0] * 4])
    results = solve(minimise_bfgs, together, starts, wide(4))
    for k, result in enumerate(results):
        (alone,) = solve(minimise_bfgs, LogSum(together.x, together.right[k]), starts[k], wide(4))
        np.testing.assert_array_equal(result.theta, alone.theta)
        assert result.n_evaluations == alone.n_evaluations
    assert together.calls[0] == [0, 1, 2]


@pytest.mark.filterwarnings("ignore::limiirl.errors.IdentifiabilityWarning")
@pytest.mark.parametrize("problem", cases(), ids=lambda problem: problem.name)
def test_bfgs_and_lbfgs_fits_agree(problem: Case):
    values = []
    for solver in ("bfgs", "lbfgs"):
        model = MaxEnt(max_length=int(problem.demos.lengths.max()), bounds=(-5.0, 5.0), ridge=0.01, solver=solver)
        model.fit(problem.mdp, problem.demos)
        assert model.result_.converged
        values.append(model.result_.value)
    np.testing.assert_allclose(values[0], values[1], rtol=0, atol=1e-8)


def test_columns_are_evaluated_separately_after_an_error() -> None:
    def evaluate(columns: slice) -> tuple[np.ndarray, np.ndarray]:
        x = np.array([1.0, -1.0, 3.0])[columns]
        if np.any(x < 0.0):
            failed = np.array([np.inf]), np.zeros((1, 2))
            values, gradients = evaluate_separately(evaluate, len(x), failed)
            return values, gradients
        return x, np.outer(x, [1.0, 2.0])

    values, gradients = evaluate(slice(0, 3))
    np.testing.assert_array_equal(values, [1.0, np.inf, 3.0])
    np.testing.assert_array_equal(gradients, [[1.0, 2.0], [0.0, 0.0], [3.0, 6.0]])
    (rows,) = evaluate_separately(lambda j: (np.ones((2, 1)) * j.start,), 3, (np.zeros((2, 1)),), axis=1)
    np.testing.assert_array_equal(rows, [[0.0, 1.0, 2.0], [0.0, 1.0, 2.0]])
