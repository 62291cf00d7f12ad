"""Cutting planes of the domain of a convex function, and projected BFGS steps within them."""

import math

import numpy as np
import pytest
from scipy.optimize import minimize

from limiirl import MDP, Demonstrations
from limiirl.demos import Groups
from limiirl.errors import DivergentPartition
from limiirl.irl import DestinationMaxEnt
from limiirl.irl.base import Status
from limiirl.irl.destination.likelihood import DestinationLikelihood, ObservedTrips, feasible_domain, is_feasible
from limiirl.irl.destination.path_sums import GoalValues
from limiirl.irl.destination.problem import DestinationProblem, feasible_start
from limiirl.irl.optim import Box, CuttingPlanes, minimise_bfgs
from limiirl.irl.optim.projected_bfgs import solve_box_qp
from tests.helpers import raises


def ring_with_chords(seed: int, n: int = 12) -> MDP:
    """Return a ring with chords in both directions, two state features and one edge feature."""
    rng = np.random.default_rng(seed)
    chords = [(s, t) for s in range(n) for t in range(n) if s != t and rng.random() < 0.2]
    edges = sorted({(s, (s + 1) % n) for s in range(n)} | set(chords))
    src, dst = zip(*edges, strict=True)
    return MDP.from_edges(
        src, dst, state_features=rng.uniform(0.1, 1.0, (n, 2)), edge_features=rng.uniform(0.0, 1.0, (len(edges), 1))
    )


def radius(mdp: MDP, theta: np.ndarray) -> float:
    """Return the spectral radius of the transition weights; path sums are finite if it is below 1."""
    node, edge = mdp.rewards(theta)
    assert edge is not None
    weights = np.zeros((mdp.n_states, mdp.n_states))
    np.add.at(weights, (mdp.src, mdp.dst), mdp.prob * np.exp(node[mdp.dst, 0] + edge[:, 0]))
    return float(np.max(np.abs(np.linalg.eigvals(weights))))


@pytest.mark.parametrize("seed", range(6))
def test_divergent_points_yield_half_spaces_that_contain_the_domain(seed: int) -> None:
    mdp, rng = ring_with_chords(seed), np.random.default_rng(seed)
    domain, values = feasible_domain(GoalValues(mdp)), GoalValues(mdp)
    thetas = rng.uniform(-4.0, 1.0, (400, 3))
    inside = np.array([theta for theta in thetas if radius(mdp, theta) < 1.0])
    outside = [theta for theta in thetas if radius(mdp, theta) > 1.0 + 1e-9][:20]
    assert len(inside) > 20
    assert len(outside) == 20
    for theta in outside:
        assert not values.is_finite(theta)
        assert domain.learn(theta)
        assert domain.rows[-1] @ theta >= domain.most[-1] - 1e-12
    assert np.all(inside @ domain.rows.T < domain.most)
    # The half-spaces are tight: they exclude most other divergent points.
    others = np.array([theta for theta in thetas if radius(mdp, theta) > 1.0])[20:]
    assert np.mean(np.any(others @ domain.rows.T > domain.most, axis=1)) > 0.8


@pytest.mark.parametrize("seed", range(4))
def test_half_space_normals_agree_with_finite_differences(seed: int) -> None:
    mdp = ring_with_chords(seed)
    values, theta = GoalValues(mdp), np.array([-0.3, -0.2, -0.1])
    domain = feasible_domain(values)
    level, _ = values.divergent_loop(theta)
    gradient = np.empty(3)
    for j, step in enumerate(1e-6 * np.eye(3)):
        (above, _), (below, _) = values.divergent_loop(theta + step), values.divergent_loop(theta - step)
        gradient[j] = (above - below) / 2e-6
    assert domain.learn(theta)
    size = np.linalg.norm(gradient)
    np.testing.assert_allclose(domain.rows[0], gradient / size, rtol=0, atol=1e-7)
    np.testing.assert_allclose(domain.most[0], (gradient @ theta - level - 1e-6) / size, rtol=0, atol=1e-8)


def test_no_half_space_from_finite_or_overflowing_points() -> None:
    mdp = ring_with_chords(0)
    domain = feasible_domain(GoalValues(mdp))
    assert not domain.learn(np.full(3, -5.0))
    assert not domain.learn(np.full(3, 1e308))  # a reward beyond float64
    assert not CuttingPlanes(lambda theta: (1.0, np.zeros_like(theta))).learn(np.ones(3))
    assert domain.most.size == 0
    assert domain.room(np.zeros(3)).size == 0


def test_forks_are_independent_and_merged_once() -> None:
    whole = CuttingPlanes(lambda x: (float(x @ x) - 1.0, 2.0 * x))
    whole.learn(np.array([2.0, 0.0]))
    one, other = whole.fork(), whole.fork()
    one.learn(np.array([0.0, 3.0]))
    other.learn(np.array([0.0, -4.0]))
    assert (whole.most.size, one.most.size, other.most.size) == (1, 2, 2)
    for fork in (one, other, one):
        whole.merge(fork)
    np.testing.assert_allclose(whole.most, [1.25, 10.0 / 6.0, 17.0 / 8.0], rtol=1e-12)
    np.testing.assert_allclose(whole.rows, [[1.0, 0.0], [0.0, 1.0], [0.0, -1.0]], rtol=0, atol=1e-12)
    mirrored = whole.fork()
    mirrored.learn(np.array([-2.0, 0.0]))  # opposite to the first
    whole.merge(mirrored)
    np.testing.assert_allclose(whole.most[-1], 1.25, rtol=1e-12)
    np.testing.assert_allclose(whole.rows[-1], [-1.0, 0.0], rtol=0, atol=1e-12)
    empty = CuttingPlanes(lambda x: (float(x @ x) - 1.0, 2.0 * x))
    empty.merge(whole)
    np.testing.assert_array_equal(empty.most, whole.most)
    for x in np.linspace(2.0, 3.0, 400):
        whole.learn(np.array([x, 0.0]))
    assert whole.most.size < 300  # the oldest planes are removed
    np.testing.assert_allclose(whole.most[-1], 10.0 / 6.0, rtol=1e-12)


@pytest.mark.parametrize("seed", range(12))
def test_box_qp_with_cuts_against_slsqp(seed: int) -> None:
    rng = np.random.default_rng(seed)
    d, m = 5, 7
    root = rng.normal(size=(d, d))
    units = 10.0 ** rng.uniform(-2, 2, d)
    matrix, gradient = (root @ root.T + 0.1 * np.eye(d)) * np.outer(units, units), 4.0 * rng.normal(size=d) * units
    rows, most = rng.normal(size=(m, d)) * units, rng.uniform(0.0, 0.5, m)
    lower, upper = -rng.uniform(0.0, 1.0, d) / units, rng.uniform(0.0, 1.0, d) / units
    upper[0] = lower[0] = 0.0  # a fixed coordinate
    lower[1], upper[1] = -np.inf, np.inf
    step = solve_box_qp(matrix, gradient, lower, upper, (rows, most))
    reference = minimize(
        lambda z: z @ (gradient / units) + 0.5 * z @ (matrix / np.outer(units, units)) @ z,
        np.zeros(d),
        jac=lambda z: gradient / units + (matrix / np.outer(units, units)) @ z,
        method="SLSQP",
        bounds=list(zip(lower * units, upper * units, strict=True)),
        constraints={"type": "ineq", "fun": lambda z: most - (rows / units) @ z, "jac": lambda z: -rows / units},
        options={"ftol": 1e-15, "maxiter": 1000},
    )
    assert np.max(rows @ solve_box_qp(matrix, gradient, lower, upper) - most) > 1e-3  # the cuts are active
    np.testing.assert_allclose(step * units, reference.x, rtol=0, atol=1e-5)
    assert np.all(rows @ step <= most + 1e-9)
    assert np.all((step >= lower) & (step <= upper))


class BoundedDomain:
    """Quadratic function on a polyhedral domain, with its unconstrained minimum far outside."""

    def __init__(self, with_planes: bool, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        root = rng.normal(size=(6, 6))
        self.matrix, self.best = root @ root.T + np.eye(6), np.full(6, 4.0)
        self.rows, self.most = np.abs(rng.normal(size=(9, 6))), rng.uniform(1.0, 2.0, 9)
        self.values: list[float] = []
        if with_planes:
            self.domains = [CuttingPlanes(self.edge)]

    def edge(self, theta: np.ndarray) -> tuple[float, np.ndarray]:
        i = int(np.argmax(self.rows @ theta - self.most))
        return float(self.rows[i] @ theta - self.most[i]), self.rows[i]

    def evaluate(self, thetas: np.ndarray, which: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        del which
        distance = thetas - self.best
        inside = np.all(thetas @ self.rows.T < self.most, axis=1)
        values = np.where(inside, 0.5 * np.sum(distance @ self.matrix * distance, axis=1), math.inf)
        self.values += values.tolist()
        return values, np.where(inside[:, None], distance @ self.matrix, 0.0)

    def lowest(self) -> float:
        reference = minimize(
            lambda x: 0.5 * (x - self.best) @ self.matrix @ (x - self.best),
            np.zeros(6),
            jac=lambda x: self.matrix @ (x - self.best),
            method="SLSQP",
            bounds=[(-5.0, 5.0)] * 6,
            constraints={"type": "ineq", "fun": lambda x: self.most - self.rows @ x, "jac": lambda x: -self.rows},
            options={"ftol": 1e-14, "maxiter": 1000},
        )
        return float(reference.fun)


@pytest.mark.parametrize("seed", range(5))
def test_cutting_planes_speed_up_convergence_at_the_boundary(seed: int) -> None:
    error = {}
    for with_planes in (True, False):
        objective = BoundedDomain(with_planes, seed)
        box = Box(np.full(6, -5.0), np.full(6, 5.0))
        (result,) = minimise_bfgs(objective, np.full((1, 6), -1.0), box, 1e-9, 50)  # type: ignore[arg-type]
        error[with_planes] = result.value - objective.lowest()
        assert result.value == min(objective.values)  # hence never worse than the start
        assert result.status is not Status.CONVERGED
    start = objective.values[0] - objective.lowest()
    assert -1e-6 < error[True] < 1e-5 * start
    assert error[True] < 0.01 * error[False]


def test_fits_agree_with_and_without_cutting_planes() -> None:
    mdp, rng = ring_with_chords(3), np.random.default_rng(1)
    model = DestinationMaxEnt(bounds=(-30.0, 5.0))
    theta = feasible_start(GoalValues(mdp), Box(np.full(3, -30.0), np.full(3, 5.0))) - 0.2
    demos = model.sample(mdp, theta, rng.integers(0, 12, 60), rng.integers(0, 12, 60), seed=2)
    values, trips = GoalValues(mdp), ObservedTrips.from_demos(mdp, demos)
    box, start = Box(np.full(3, -30.0), np.full(3, 5.0)), np.full((1, 3), -6.0)
    results = []
    for with_planes in (True, False):
        objective = DestinationLikelihood(values, trips, np.ones((60, 1)), np.zeros(1))
        if not with_planes:
            del objective.domains
        results += minimise_bfgs(objective, start, box, 1e-6, 500)
    assert all(result.converged for result in results)
    np.testing.assert_allclose(results[0].value, results[1].value, rtol=0, atol=1e-9)
    np.testing.assert_allclose(results[0].theta, results[1].theta, rtol=0, atol=1e-3)


def test_cutting_planes_are_kept_between_searches() -> None:
    mdp = ring_with_chords(3)
    demos = Demonstrations.from_lists([[s, (s + 1) % 12, (s + 2) % 12] for s in range(12)])
    problem = DestinationProblem.from_demos(
        DestinationMaxEnt(bounds=(-30.0, 5.0)), mdp, demos, Groups.from_labels(None, 12), GoalValues(mdp)
    )
    weights = np.random.default_rng(0).uniform(0.1, 1.0, (12, 2))
    problem.search(weights, np.zeros(2), np.full((2, 3), -6.0), 20)
    n_planes = problem._domain.most.size
    assert n_planes > 0
    again = DestinationProblem.from_demos(
        DestinationMaxEnt(bounds=(-30.0, 5.0)), mdp, demos, Groups.from_labels(None, 12), GoalValues(mdp)
    )
    assert again._domain.most.size == 0  # problems share no planes, so fits are independent
    again.feasible_start()
    assert again._domain.most.size > 0


def test_fits_keep_a_distance_from_the_boundary() -> None:
    """The likelihood is flat up to the boundary; the fit stops at a safe distance from it."""
    mdp = MDP.from_edges([0, 1, 1], [1, 0, 2], state_features=[[0.5], [0.5], [1.0]])
    values = GoalValues(mdp)
    domain = feasible_domain(values)
    assert values.is_finite(np.array([-1e-9]))
    assert not values.is_finite(np.array([-1e-9]), 1e-6)
    trips = ObservedTrips.from_demos(mdp, Demonstrations.from_lists([[0, 1, 2]]))
    objective = DestinationLikelihood(values, trips, np.ones((1, 1)), np.zeros(1))
    assert objective.evaluate(np.array([[-1e-9]]), np.array([0]))[0][0] == math.inf
    assert domain.learn(np.array([-1e-9]))
    np.testing.assert_allclose(domain.most[0], -1e-6, rtol=1e-6)
    problem = DestinationProblem.from_demos(
        DestinationMaxEnt(), mdp, trips.observed.demos, Groups.from_labels(None, 1), values
    )
    (result,) = problem.search(np.ones((1, 1)), np.zeros(1), np.array([[-1e-9]]), 50)  # starts at the boundary
    assert values.is_finite(result.theta, 1e-6)


def both_signs() -> MDP:
    """Return an MDP whose self-loop has weight exp(-theta), so theta must be positive."""
    return MDP.from_edges([0, 0], [0, 1], state_features=[[-1.0], [5.0]])


@pytest.mark.parametrize("start", [[1.0], None])
def test_features_of_both_signs(start: list[float] | None) -> None:
    """The probability of 0-1 is 1 - exp(-theta), so the optimum is at the upper bound."""
    model = DestinationMaxEnt(bounds=(-20.0, 20.0), gtol=1e-12)
    theta = model.fit(both_signs(), Demonstrations.from_lists([[0, 1]]), start=start)
    np.testing.assert_allclose(theta, [20.0], rtol=0, atol=8.0)  # the likelihood is flat to within exp(-12)
    assert model.results_[0].value < 1e-5


def test_feasible_starts_are_only_clipped() -> None:
    """Feasible starts need no search and yield no cutting planes."""
    mdp, demos = both_signs(), Demonstrations.from_lists([[0, 1]])
    problem = DestinationProblem.from_demos(
        DestinationMaxEnt(bounds=(-20.0, 20.0)), mdp, demos, Groups.from_labels(None, 1), GoalValues(mdp)
    )
    np.testing.assert_array_equal(problem.project(np.array([[1.0], [30.0]])), [[1.0], [20.0]])
    assert problem._domain.most.size == 0
    projected = problem.project(np.array([[-3.0], [2.0]]))
    assert projected[0, 0] > 0.0
    assert projected[1, 0] == 2.0


@pytest.mark.parametrize("bound", [4.0, 1e4, np.inf])
@pytest.mark.parametrize("seed", range(8))
def test_feasible_start_in_a_narrow_cone(seed: int, bound: float) -> None:
    """Three self-loops have features of both signs; theta = planted is feasible by construction."""
    rng = np.random.default_rng(seed)
    planted = rng.uniform(-3.0, 3.0, 3)
    loops = rng.normal(size=(3, 3))
    loops -= ((loops @ planted + 0.5) / (planted @ planted))[
        :, None
    ] * planted  # each loop has reward -0.5 at `planted`
    mdp = MDP.from_edges(
        [0, 0, 1, 1, 2, 2], [0, 1, 1, 2, 2, 3], state_features=np.vstack([loops, rng.normal(size=(1, 3))])
    )
    values, box = GoalValues(mdp), Box(np.full(3, -bound), np.full(3, bound))
    start = feasible_start(values, box)
    assert is_feasible(values, start)
    assert np.all(loops @ start < 0.0)
    assert np.all(np.abs(start) <= bound)


@pytest.mark.parametrize("bound", [5.0, np.inf])
def test_no_feasible_start(bound: float) -> None:
    opposed = MDP.from_edges([0, 0, 1, 1], [0, 1, 1, 2], state_features=[[-1.0], [1.0], [0.0]])
    free = MDP.from_edges([0, 0], [0, 1], state_features=[[0.0], [1.0]])
    for mdp in (opposed, free):
        with pytest.raises(DivergentPartition, match="bounds"):
            feasible_start(GoalValues(mdp), Box(np.array([-bound]), np.array([bound])))


def test_warm_start_at_a_lower_boundary() -> None:
    """With a negative feature, sums diverge below 0, where a central difference would be evaluated."""
    mdp = MDP.from_edges([0, 1, 1], [1, 0, 2], state_features=[[-0.5], [-0.5], [-1.0]])
    model = DestinationMaxEnt(bounds=(-10.0, 10.0))
    trips = ObservedTrips.from_demos(
        mdp, Demonstrations.from_lists([[0, 1, 2], [0, 1, 0, 1, 0, 1, 0, 1, 2]] + [[0, 1] * 40 + [2]] * 20)
    )
    problem = DestinationProblem.from_demos(
        model, mdp, trips.observed.demos, Groups.from_labels(None, 22), GoalValues(mdp)
    )
    # n rounds have weight x^n with x = exp(-theta), so E[F] = -1.5 - x / (1 - x).
    (result,) = problem.search(np.ones((22, 1)), np.zeros(1), None, 30)
    x = math.exp(-float(result.theta[0]))
    np.testing.assert_allclose(problem.features(), trips.features + 1.5 + x / (1.0 - x), rtol=0, atol=1e-3)
    narrow = ObservedTrips.from_demos(mdp, Demonstrations.from_lists([[0, 1] * 100_000 + [2]]))
    close = DestinationProblem.from_demos(
        model, mdp, narrow.observed.demos, Groups.from_labels(None, 1), GoalValues(mdp)
    )
    (result,) = close.search(np.ones((1, 1)), np.zeros(1), None, 30)
    assert not is_feasible(GoalValues(mdp), result.theta - 1e-4)
    assert np.all(np.isfinite(close.features()))


@pytest.mark.parametrize("distance", [1e-3, 1.2e-5, 6e-6, 2.1e-6, 1.0001e-6])
def test_hessians_near_the_boundary(distance: float) -> None:
    """A round has weight x = exp(theta), so the second derivative is x / (1 - x)^2."""
    mdp = MDP.from_edges([0, 1, 1], [1, 0, 2], state_features=[[0.5], [0.5], [0.5]])
    values, trips = GoalValues(mdp), ObservedTrips.from_demos(mdp, Demonstrations.from_lists([[0, 1, 2]]))
    objective = DestinationLikelihood(values, trips, np.ones((1, 1)), np.zeros(1))
    x = math.exp(-distance)
    np.testing.assert_allclose(objective.hessian(np.array([-distance]), 0), [[x / (1.0 - x) ** 2]], rtol=2e-3)
    with raises(DivergentPartition, parameter="theta"):
        objective.hessian(np.array([-1e-7]), 0)
