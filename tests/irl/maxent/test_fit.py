"""`MaxEnt.fit` and `fit_many` against the likelihood computed by enumeration."""

import math

import numpy as np
import pytest
from scipy.optimize import minimize

from limiirl.demos import Demonstrations
from limiirl.errors import ConvergenceWarning, DivergentPartition
from limiirl.irl import FitResult, MaxEnt, Status, make_problem
from limiirl.irl.maxent.infinite_horizon import InfinitePathSums
from limiirl.irl.maxent.path_sums import FinitePathSums
from limiirl.irl.maxent.problem import PathLikelihood, feasible_start
from limiirl.irl.observed_paths import ObservedPaths
from limiirl.irl.optim import Box
from limiirl.mdp import MDP
from limiirl.worlds import ElementWorld
from tests.helpers import raises
from tests.oracles.enumeration import Enumeration, log_sum
from tests.oracles.likelihood import (
    as_demonstrations,
    log_probs,
    marginal_objective,
    objective,
    possible,
    same_states,
    small_mdp,
)

SOLVERS = ("newton", "lbfgs")
CONDITIONS = ("none", "start")
STOPS = ("anywhere", "terminal", "terminal_or_max_length")
TRUTH = np.array([-0.4, 0.3, 0.8, -0.6])
LENGTH = 4
# L-BFGS-B's line search compares values, which differ by rounding alone once the gradient is about 1e-8.
TOL = {"newton": 1e-10, "lbfgs": 2e-7}


def sample_rows(paths: Enumeration, n: int, seed: int, theta: np.ndarray = TRUTH) -> np.ndarray:
    """Draw n rows of `paths.listed` from the enumerated distribution."""
    return np.random.default_rng(seed).choice(len(paths.listed), size=n, p=paths.law(theta).p)


def path_counts(paths: Enumeration, rows: np.ndarray) -> np.ndarray:
    return np.bincount(rows, minlength=len(paths.listed)).astype(float)


def fit_model(model: MaxEnt, mdp: MDP, demos: Demonstrations, **given: object) -> FitResult:
    theta = model.fit(mdp, demos, **given)  # type: ignore[arg-type]
    np.testing.assert_array_equal(theta, model.result_.theta)
    return model.result_


def kkt_violation(theta: np.ndarray, gradient: np.ndarray, low: float, high: float) -> float:
    """Return the largest violation of the optimality conditions for bounds."""
    free = np.abs(gradient[(theta > low) & (theta < high)])
    at_low, at_high = gradient[theta <= low], gradient[theta >= high]
    return float(np.max(np.concatenate([free, -at_low, at_high]), initial=0.0))


# Optimality conditions.


@pytest.mark.parametrize("gamma", [1.0, 0.9])
@pytest.mark.parametrize("stop", STOPS)
@pytest.mark.parametrize("condition", CONDITIONS)
@pytest.mark.parametrize("solver", SOLVERS)
def test_expected_features_equal_demonstrated_ones(solver: str, condition: str, stop: str, gamma: float):
    mdp = small_mdp(gamma)
    paths = Enumeration(mdp, LENGTH, stop)
    rows = sample_rows(paths, 60, seed=1)
    model = MaxEnt(LENGTH, (-20, 20), stop=stop, condition=condition, solver=solver, gtol=TOL[solver])
    result = fit_model(model, mdp, as_demonstrations(paths, rows))
    assert result.converged
    assert result.at_bound == ()
    value, gradient = objective(paths, path_counts(paths, rows), condition == "start")(result.theta)
    np.testing.assert_allclose(gradient, 0.0, atol=5 * TOL[solver])
    np.testing.assert_allclose(result.value, value, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(result.projected_gradient, np.max(np.abs(gradient)), atol=1e-12)


@pytest.mark.parametrize("condition", CONDITIONS)
@pytest.mark.parametrize("solver", SOLVERS)
def test_gradients_point_outward_at_active_bounds(solver: str, condition: str):
    mdp = small_mdp()
    paths = Enumeration(mdp, LENGTH)
    rows = sample_rows(paths, 60, seed=2)
    model = MaxEnt(LENGTH, (-0.3, 0.25), condition=condition, solver=solver, gtol=TOL[solver])
    result = fit_model(model, mdp, as_demonstrations(paths, rows))
    _, gradient = objective(paths, path_counts(paths, rows), condition == "start")(result.theta)
    active = (result.theta == -0.3) | (result.theta == 0.25)
    assert 0 < active.sum() < 4
    assert result.at_bound == tuple(name for name, on in zip(mdp.feature_names, active, strict=True) if on)
    assert kkt_violation(result.theta, gradient, -0.3, 0.25) < 5 * TOL[solver]
    assert np.min(np.abs(gradient[active])) > 1e-3
    assert result.projected_gradient < 5 * TOL[solver]


@pytest.mark.parametrize("stop", STOPS)
@pytest.mark.parametrize("condition", CONDITIONS)
@pytest.mark.parametrize("solver", SOLVERS)
def test_fit_to_the_exact_distribution_returns_the_true_theta(solver: str, condition: str, stop: str):
    """The data are all trajectories weighted by their probability, whose likelihood is largest at the true theta."""
    mdp = small_mdp()
    paths = Enumeration(mdp, LENGTH, stop)
    rows = possible(paths)
    weights = paths.law(TRUTH, by_start=condition == "start").p[rows]
    model = MaxEnt(LENGTH, None, stop=stop, condition=condition, solver=solver, gtol=TOL[solver])
    theta = model.fit(mdp, as_demonstrations(paths, rows), weights)
    np.testing.assert_allclose(theta, TRUTH, atol=100 * TOL[solver])


def test_solvers_agree_on_an_element_world():
    world = ElementWorld(n_elements=2, height=4, seed=3)
    truth = np.array([-1.0, 0.0, -0.5, -3.0])
    model = MaxEnt(12, gtol=1e-6)
    demos = model.sample(world.mdp, truth, 200, seed=0)
    newton = fit_model(model, world.mdp, demos)
    lbfgs = fit_model(MaxEnt(12, gtol=1e-6, solver="lbfgs"), world.mdp, demos)
    np.testing.assert_allclose(newton.theta, lbfgs.theta, atol=1e-5)
    np.testing.assert_allclose(newton.value, lbfgs.value, rtol=1e-10)
    assert newton.n_hessians > 0
    assert lbfgs.n_hessians == 0
    assert newton.n_evaluations < lbfgs.n_evaluations


# SLSQP of scipy 1.15 leaves the bounds by a rounding error, and clips.
@pytest.mark.filterwarnings("ignore:Values in x were outside bounds:RuntimeWarning")
@pytest.mark.parametrize("method", ["SLSQP", "trust-constr"])
@pytest.mark.parametrize("condition", CONDITIONS)
@pytest.mark.parametrize("ridge", [0.0, 0.3])
def test_fit_agrees_with_scipy_on_the_enumerated_likelihood(method: str, condition: str, ridge: float):
    mdp = small_mdp(gamma=0.8)
    paths = Enumeration(mdp, LENGTH)
    rows = sample_rows(paths, 40, seed=3)
    model = MaxEnt(LENGTH, (-1.0, 0.2), condition=condition, ridge=ridge, gtol=1e-10)
    result = fit_model(model, mdp, as_demonstrations(paths, rows))
    options = {"ftol": 1e-14} if method == "SLSQP" else {"gtol": 1e-9, "xtol": 1e-12, "barrier_tol": 1e-12}
    reference = minimize(
        objective(paths, path_counts(paths, rows), condition == "start", ridge),
        np.full(4, -0.1),
        jac=True,
        method=method,
        bounds=[(-1.0, 0.2)] * 4,
        options=options,
    )
    np.testing.assert_allclose(result.theta, reference.x, atol=2e-5)
    np.testing.assert_allclose(result.value, reference.fun, atol=1e-9)


# Weights, ridge, bounds.


def test_fit_is_invariant_to_the_scale_of_weights():
    mdp = small_mdp()
    paths = Enumeration(mdp, LENGTH)
    demos = as_demonstrations(paths, sample_rows(paths, 30, seed=4))
    weights = np.random.default_rng(0).random(30)
    model = MaxEnt(LENGTH, None, gtol=1e-11)
    once = model.fit(mdp, demos, weights)
    np.testing.assert_allclose(model.fit(mdp, demos, 1e6 * weights), once, atol=1e-9)
    np.testing.assert_allclose(model.fit(mdp, demos, np.full(30, 7.0)), model.fit(mdp, demos), atol=1e-9)
    assert np.max(np.abs(once - model.fit(mdp, demos))) > 0.01


@pytest.mark.parametrize("condition", CONDITIONS)
def test_integer_weights_equal_repeated_demonstrations(condition: str):
    mdp = small_mdp()
    paths = Enumeration(mdp, LENGTH)
    demos = as_demonstrations(paths, sample_rows(paths, 30, seed=5))
    model = MaxEnt(LENGTH, (-20, 20), condition=condition, gtol=1e-11)
    weights = np.ones(30)
    weights[20:] = 0.0
    np.testing.assert_allclose(model.fit(mdp, demos, weights), model.fit(mdp, demos[:20]), atol=1e-9)
    weights[:5] = 2.0
    np.testing.assert_allclose(model.fit(mdp, demos, weights), model.fit(mdp, demos[:20] + demos[:5]), atol=1e-9)


def test_ridge_is_the_gradient_at_the_penalised_maximum():
    mdp = small_mdp()
    paths = Enumeration(mdp, LENGTH)
    rows = sample_rows(paths, 30, seed=6)
    demos, plain = as_demonstrations(paths, rows), objective(paths, path_counts(paths, rows))
    free = MaxEnt(LENGTH, None, gtol=1e-11).fit(mdp, demos)
    result = fit_model(MaxEnt(LENGTH, None, ridge=0.5, gtol=1e-11), mdp, demos)
    value, gradient = plain(result.theta)
    np.testing.assert_allclose(gradient, -0.5 * result.theta, atol=1e-10)
    np.testing.assert_allclose(result.value, value + 0.25 * result.theta @ result.theta, rtol=1e-12)
    assert np.linalg.norm(result.theta) < np.linalg.norm(free)


def test_ridge_makes_an_infinite_maximum_finite():
    """All demonstrations go right, so the likelihood has no finite maximum without ridge or bounds."""
    mdp = MDP.from_edges([0, 0], [1, 2], p0=[1, 0, 0], state_features=[[0.0], [-1.0], [1.0]])
    demos = Demonstrations.from_lists([[0, 2]] * 3)
    result = fit_model(MaxEnt(2, None, ridge=0.1, gtol=1e-10), mdp, demos)
    weight = np.exp(result.theta[0] * np.array([0.0, -1.0, 1.0]))
    np.testing.assert_allclose(weight @ [0.0, -1.0, 1.0] / weight.sum() - 1.0 + 0.1 * result.theta[0], 0.0, atol=1e-9)
    at_bound = fit_model(MaxEnt(2, (-10, 10)), mdp, demos)
    assert at_bound.theta[0] == 10.0
    assert at_bound.at_bound == ("state[0]",)


@pytest.mark.parametrize(
    ("bounds", "low", "high"),
    [
        ((-0.3, 0.25), [-0.3] * 4, [0.25] * 4),
        ([-0.3, 0.25], [-0.3] * 4, [0.25] * 4),
        (np.array([-0.3, 0.25]), [-0.3] * 4, [0.25] * 4),
        ([(-0.3, 0.25)] * 4, [-0.3] * 4, [0.25] * 4),
        ([[-0.1, 0.1], [-9, 9], [0.0, np.inf], [-np.inf, -0.7]], [-0.1, -9, 0, -np.inf], [0.1, 9, np.inf, -0.7]),
        ((-np.inf, np.inf), [-np.inf] * 4, [np.inf] * 4),
        ((-1, 0), [-1] * 4, [0] * 4),
        (None, [-np.inf] * 4, [np.inf] * 4),
    ],
)  # fmt: skip
@pytest.mark.parametrize("solver", SOLVERS)
def test_forms_of_bounds(solver: str, bounds: object, low: list[float], high: list[float]):
    mdp = small_mdp()
    paths = Enumeration(mdp, LENGTH)
    rows = sample_rows(paths, 60, seed=2)
    theta = MaxEnt(LENGTH, bounds, solver=solver, gtol=TOL[solver]).fit(mdp, as_demonstrations(paths, rows))
    assert np.all((low <= theta) & (theta <= high))
    _, gradient = objective(paths, path_counts(paths, rows))(theta)
    for j in range(4):
        assert kkt_violation(theta[j : j + 1], gradient[j : j + 1], low[j], high[j]) < 5 * TOL[solver]


def test_default_bounds_match_the_paper():
    mdp = MDP.from_edges([0, 0], [1, 2], p0=[1, 0, 0], state_features=[[0.0], [-1.0], [1.0]])
    assert MaxEnt().get_params()["bounds"] == (-10.0, 0.0)
    assert MaxEnt(2).fit(mdp, Demonstrations.from_lists([[0, 1]] * 2)) == [-10.0]
    assert MaxEnt(2).fit(mdp, Demonstrations.from_lists([[0, 2]] * 2)) == [0.0]


# Starts and max_evaluations.


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_start_at_the_optimum_costs_one_evaluation(solver: str):
    mdp = small_mdp()
    paths = Enumeration(mdp, LENGTH)
    demos = as_demonstrations(paths, sample_rows(paths, 40, seed=7))
    best = MaxEnt(LENGTH, (-0.3, 20), gtol=1e-11).fit(mdp, demos)
    result = fit_model(MaxEnt(LENGTH, (-0.3, 20), solver=solver, gtol=1e-6), mdp, demos, start=best)
    assert result.n_evaluations == 1
    assert result.n_hessians == 0
    assert result.converged
    np.testing.assert_array_equal(result.theta, best)


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_start_near_the_optimum_saves_evaluations(solver: str):
    world = ElementWorld(n_elements=2, height=4, seed=3)
    model = MaxEnt(12, solver=solver)
    demos = model.sample(world.mdp, [-1.0, 0.0, -0.5, -3.0], 200, seed=0)
    cold = fit_model(model, world.mdp, demos)
    warm = fit_model(model, world.mdp, demos, start=cold.theta + 1e-3)
    assert warm.n_evaluations < cold.n_evaluations
    np.testing.assert_allclose(warm.theta, cold.theta, atol=1e-4)


@pytest.mark.parametrize("solver", SOLVERS)
def test_start_outside_the_bounds_is_projected(solver: str):
    mdp = small_mdp()
    paths = Enumeration(mdp, LENGTH)
    demos = as_demonstrations(paths, sample_rows(paths, 40, seed=7))
    model = MaxEnt(LENGTH, (-0.3, 0.25), solver=solver, gtol=TOL[solver])
    np.testing.assert_allclose(model.fit(mdp, demos, start=[9.0, -9.0, 9.0, -9.0]), model.fit(mdp, demos), atol=1e-5)


@pytest.mark.parametrize("limit", [1, 2, 3, 5])
@pytest.mark.parametrize("solver", SOLVERS)
def test_max_evaluations_returns_the_best_point(solver: str, limit: int, monkeypatch: pytest.MonkeyPatch):
    mdp = small_mdp()
    paths = Enumeration(mdp, LENGTH)
    rows = sample_rows(paths, 40, seed=8)
    plain, start = objective(paths, path_counts(paths, rows)), np.array([4.0, -4.0, 5.0, 3.0])
    evaluated, value_and_grad = [], FinitePathSums.value_and_grad

    def spy(path_sums: FinitePathSums, thetas: np.ndarray, **options: object) -> object:
        evaluated.extend(thetas.copy())
        return value_and_grad(path_sums, thetas, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(FinitePathSums, "value_and_grad", spy)
    model = MaxEnt(LENGTH, None, solver=solver, max_evaluations=limit)
    with pytest.warns(ConvergenceWarning, match="max_evaluations"):
        model.fit(mdp, as_demonstrations(paths, rows), start=start)
    result, values = model.result_, [plain(theta)[0] for theta in evaluated]
    assert result.status is Status.EVALUATIONS
    assert not result.converged
    assert result.n_evaluations == len(evaluated)
    assert result.value <= plain(start)[0]
    np.testing.assert_allclose(result.value, min(values), rtol=1e-12)
    np.testing.assert_array_equal(result.theta, evaluated[int(np.argmin(values))])


@pytest.mark.parametrize("limit", [1, 2, 3, 8])
@pytest.mark.parametrize("solver", SOLVERS)
def test_max_evaluations_is_never_exceeded(solver: str, limit: int):
    mdp = small_mdp()
    paths = Enumeration(mdp, LENGTH)
    demos = as_demonstrations(paths, sample_rows(paths, 40, seed=8))
    model = MaxEnt(LENGTH, None, solver=solver, max_evaluations=limit, gtol=1e-13)
    with pytest.warns(ConvergenceWarning):
        model.fit(mdp, demos, start=[4.0, -4.0, 5.0, 3.0])
    assert model.result_.n_evaluations <= limit


def test_warnings_point_to_the_call_of_fit():
    mdp = small_mdp()
    paths = Enumeration(mdp, LENGTH)
    demos = as_demonstrations(paths, sample_rows(paths, 40, seed=8))
    with pytest.warns(ConvergenceWarning) as caught:
        MaxEnt(LENGTH, None, max_evaluations=2).fit(mdp, demos, start=[4.0, -4.0, 5.0, 3.0])
    assert caught[0].filename == __file__


# Several weightings at once.


@pytest.mark.parametrize("condition", CONDITIONS)
@pytest.mark.parametrize("solver", SOLVERS)
def test_fit_many_is_fit_for_each_column(solver: str, condition: str):
    mdp = small_mdp()
    paths = Enumeration(mdp, LENGTH)
    demos = as_demonstrations(paths, sample_rows(paths, 60, seed=9))
    rng = np.random.default_rng(1)
    weights, starts = rng.dirichlet(np.ones(5), size=60), rng.normal(size=(5, 4))
    model = MaxEnt(LENGTH, (-3.0, 0.5), condition=condition, solver=solver, gtol=TOL[solver])
    together = model.fit_many(mdp, demos, weights, starts)
    assert together.shape == (5, 4)
    alone = [model.fit(mdp, demos, weights[:, k], starts[k]) for k in range(5)]
    np.testing.assert_allclose(together, alone, atol=100 * TOL[solver])
    np.testing.assert_allclose(model.fit_many(mdp, demos, weights), alone, atol=100 * TOL[solver])
    assert np.max(np.std(together, axis=0)) > 0.1


def test_fit_many_evaluates_all_columns_together(monkeypatch: pytest.MonkeyPatch):
    mdp = small_mdp()
    paths = Enumeration(mdp, LENGTH)
    demos = as_demonstrations(paths, sample_rows(paths, 60, seed=9))
    weights = np.random.default_rng(1).dirichlet(np.ones(5), size=60)
    columns, value_and_grad = [], FinitePathSums.value_and_grad

    def spy(path_sums: FinitePathSums, thetas: np.ndarray, **options: object) -> object:
        columns.append(len(thetas))
        return value_and_grad(path_sums, thetas, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(FinitePathSums, "value_and_grad", spy)
    model, alone = MaxEnt(LENGTH, (-3.0, 0.5)), []
    for k in range(5):
        model.fit(mdp, demos, weights[:, k])
        alone.append(model.result_.n_evaluations)
    assert columns == [1] * sum(alone)
    columns.clear()
    model.fit_many(mdp, demos, weights)
    assert columns[0] == 5
    assert len(columns) == max(alone)
    assert sum(columns) == sum(alone)  # no column is evaluated after it has converged


@pytest.mark.parametrize("by_start", [False, True])
def test_derivatives_of_each_column(by_start: bool):
    """By start, log Z is averaged over the start states with the weights of the column."""
    mdp = small_mdp()
    paths = Enumeration(mdp, LENGTH)
    rows = sample_rows(paths, 30, seed=9)
    weights = np.random.default_rng(1).dirichlet(np.ones(3), size=30) ** 3
    path_sums = FinitePathSums(mdp, LENGTH, by_start=by_start)
    observed = ObservedPaths.from_demos(mdp, as_demonstrations(paths, rows), by_start=by_start)
    likelihood = PathLikelihood(path_sums, observed, observed.moments(weights), ridge=np.full(weights.shape[1], 0.2))
    thetas, which = np.array([TRUTH, -TRUTH]), np.array([2, 0])
    values, gradients = likelihood.evaluate(thetas, which)
    for j, k in enumerate(which):
        counts = np.bincount(rows, weights=weights[:, k], minlength=len(paths.listed))
        value, gradient = objective(paths, counts, by_start, ridge=0.2)(thetas[j])
        np.testing.assert_allclose(values[j], value, rtol=1e-12)
        np.testing.assert_allclose(gradients[j], gradient, rtol=1e-10, atol=1e-12)
        starts = np.bincount(paths.first, weights=counts / counts.sum(), minlength=mdp.n_states) if by_start else None
        covariance = paths.law(thetas[j], by_start=by_start, starts=starts).covariance()
        np.testing.assert_allclose(likelihood.hessian(thetas[j], k), covariance + 0.2 * np.eye(4), atol=1e-10)


def test_only_fit_stores_max_length():
    mdp = small_mdp()
    demos = Demonstrations.from_lists([[0, 1, 3], [0, 2], [1, 3]], actions=[[0, 1], [0], [0]])
    model = MaxEnt()
    assert model.fit_many(mdp, demos, np.ones((3, 2))).shape == (2, 4)
    assert not hasattr(model, "max_length_")
    problem = make_problem(model, mdp, demos)
    assert problem.model.max_length == 3
    assert not hasattr(model, "max_length_")
    theta = model.fit(mdp, demos[1:2])
    before = model.log_prob(mdp, theta, demos[1:2])
    model.fit_many(mdp, demos, np.ones((3, 2)))
    make_problem(model, mdp, demos)
    assert model.max_length_ == 2
    np.testing.assert_array_equal(model.log_prob(mdp, theta, demos[1:2]), before)


# Statistics.


@pytest.mark.parametrize("condition", CONDITIONS)
@pytest.mark.parametrize("stop", ["anywhere", "terminal"])
def test_parameters_are_recovered_from_samples_within_four_standard_errors(condition: str, stop: str):
    """False-alarm rate 2.5e-4 per case (6.3e-5 for each of 4 coordinates); the seed is fixed."""
    mdp = small_mdp()
    n = 5000
    model = MaxEnt(8, None, stop=stop, condition=condition)
    demos = model.sample(mdp, TRUTH, n, seed=11)
    theta = model.fit(mdp, demos)
    error = np.sqrt(np.diag(np.linalg.inv(n * model.hessian(mdp, TRUTH))))
    z = (theta - TRUTH) / error
    assert np.max(np.abs(z)) < 4
    assert np.max(np.abs(z)) > 0.01  # the estimate is not the true theta itself
    assert np.max(error) < 0.2


# Unbounded length.


@pytest.fixture
def loops() -> MDP:
    """Return a complete graph of two states with self-loops: the number of trajectories doubles per step."""
    return MDP.from_edges([0, 0, 1, 1], [0, 1, 0, 1], n_states=2, terminal=np.zeros(2, dtype=bool))


@pytest.mark.parametrize("condition", CONDITIONS)
@pytest.mark.parametrize("solver", SOLVERS)
def test_unbounded_length_from_the_default_start(loops: MDP, solver: str, condition: str):
    """At 0 the sum diverges, so the default start is lower; the expected features have a closed form."""
    demos = Demonstrations.from_lists([[0, 1, 0], [1, 1, 0, 0], [0], [1, 0]])
    model = MaxEnt(math.inf, None, condition=condition, solver=solver, gtol=TOL[solver])
    with pytest.raises(DivergentPartition):
        model.log_partition(loops, [0.0, 0.0])
    result = fit_model(model, loops, demos)
    assert result.converged
    assert model.max_length_ == math.inf
    x = np.exp(result.theta)  # each visit to state s has weight x[s]
    assert x.sum() < 1.0
    revisits = x / (1 - x.sum())  # expected visits after the first state
    first = x / x.sum() if condition == "none" else np.array([0.5, 0.5])
    np.testing.assert_allclose(first + revisits, demos.features(loops).mean(axis=0), atol=10 * TOL[solver])
    expected_value = -np.mean(model.log_prob(loops, result.theta, demos)) + np.mean(demos.log_q(loops))
    if condition == "none":
        np.testing.assert_allclose(result.value, expected_value, rtol=1e-12)


@pytest.mark.parametrize("solver", SOLVERS)
def test_line_search_rejects_divergent_points(loops: MDP, solver: str):
    """From far below, the first steps of both solvers overshoot into divergence."""
    demos = Demonstrations.from_lists([[0, 1, 0], [1, 1, 0, 0], [0], [1, 0]])
    best = MaxEnt(math.inf, None, gtol=1e-9).fit(loops, demos)
    result = fit_model(MaxEnt(math.inf, None, solver=solver), loops, demos, start=[-4.0, -4.5])
    assert math.isfinite(result.value)
    np.testing.assert_allclose(result.theta, best, atol=1e-4)


@pytest.mark.parametrize("solver", SOLVERS)
def test_divergent_start_is_an_error(loops: MDP, solver: str):
    """An error is raised; the fit never converges to an infinite value."""
    demos = Demonstrations.from_lists([[0, 1, 0], [1, 1, 0, 0], [0], [1, 0]])
    model = MaxEnt(math.inf, None, solver=solver)
    with raises(DivergentPartition, parameter="start", index=None):
        model.fit(loops, demos, start=[0.0, 0.0])
    assert not hasattr(model, "result_")
    with raises(DivergentPartition, parameter="starts", index=1):
        model.fit_many(loops, demos, np.ones((4, 2)), [[-3.0, -3.0], [0.0, 0.0]])


@pytest.mark.parametrize(("length", "start"), [(math.inf, [-50.0, -50.0]), (6, [-1000.0, 300.0])])
def test_fit_converges_from_a_distant_start(loops: MDP, length: float, start: list[float]):
    demos = Demonstrations.from_lists([[0, 1, 0], [1, 1, 0, 0], [0], [1, 0]])
    best = MaxEnt(length, None).fit(loops, demos)
    np.testing.assert_allclose(MaxEnt(length, None).fit(loops, demos, start=start), best, atol=1e-4)


def test_unbounded_length_with_negative_features(loops: MDP):
    """With costs as negative features, the sum is finite for positive parameters."""
    costs = loops.replace(state_features=-np.eye(2))
    demos = Demonstrations.from_lists([[0, 1, 0], [1, 1, 0, 0], [0], [1, 0]])
    np.testing.assert_allclose(
        MaxEnt(math.inf, None).fit(costs, demos), -MaxEnt(math.inf, None).fit(loops, demos), atol=1e-5
    )


@pytest.mark.filterwarnings("ignore::limiirl.errors.FeatureScaleWarning")
@pytest.mark.parametrize("unit", [1e-6, 1e-3, 1e3])
@pytest.mark.parametrize("solver", SOLVERS)
def test_scaled_features_need_few_evaluations(loops: MDP, solver: str, unit: float):
    """Smaller features have larger parameters, which must not need many more evaluations."""
    scaled = loops.replace(state_features=unit * np.eye(2))
    demos = Demonstrations.from_lists([[0, 1, 0], [1, 1, 0, 0], [0], [1, 0]])
    best = MaxEnt(6, None).fit(loops, demos)
    result = fit_model(MaxEnt(6, None, solver=solver), scaled, demos)
    assert result.converged
    assert result.n_evaluations <= 60
    np.testing.assert_allclose(unit * result.theta, best, atol=1e-5)


@pytest.mark.filterwarnings("ignore::limiirl.errors.FeatureScaleWarning")
@pytest.mark.parametrize("unit", [1e-4, 1e-2, 1e3])
def test_unbounded_length_with_scaled_features(loops: MDP, unit: float):
    """The feasible start depends on the unit of the features."""
    scaled = loops.replace(state_features=unit * np.eye(2))
    demos = Demonstrations.from_lists([[0, 1, 0], [1, 1, 0, 0], [0], [1, 0]])
    best = MaxEnt(math.inf, None, gtol=1e-9).fit(loops, demos)
    np.testing.assert_allclose(unit * MaxEnt(math.inf, None, gtol=1e-9).fit(scaled, demos), best, atol=1e-4)


def test_feasible_start_is_within_the_bounds(loops: MDP):
    """The start is 0 if feasible, else the smallest of the costs tried for which the sum is finite."""
    path_sums, finite = InfinitePathSums(loops), FinitePathSums(loops, 5)
    wide, high = Box(np.full(2, -np.inf), np.full(2, np.inf)), Box(np.full(2, 0.25), np.full(2, 3.0))
    np.testing.assert_array_equal(feasible_start(finite, wide), [0.0, 0.0])
    np.testing.assert_array_equal(feasible_start(finite, high), [0.25, 0.25])
    np.testing.assert_array_equal(feasible_start(path_sums, wide), [-1.0, -1.0])
    low = Box(np.array([-0.1, -9.0]), np.zeros(2))
    np.testing.assert_array_equal(feasible_start(path_sums, low), [-0.1, -4.0])
    negative = InfinitePathSums(loops.replace(state_features=-np.eye(2)))
    np.testing.assert_array_equal(feasible_start(negative, wide), [1.0, 1.0])


def test_no_feasible_start_with_features_of_both_signs(loops: MDP):
    """The first feature has opposite signs in the two states, so no multiple of it makes the sum finite."""
    mixed = loops.replace(state_features=np.array([[100.0, 1.0], [-99.0, 1.0]]))
    demos = Demonstrations.from_lists([[0, 1, 0], [1, 1, 0, 0], [0], [1, 0]])
    with raises(DivergentPartition, parameter="bounds"):
        MaxEnt(math.inf, None).fit(mixed, demos)
    assert np.all(np.isfinite(MaxEnt(math.inf, None).fit(mixed, demos, start=[0.0, -2.0])))


def test_unbounded_length_with_bounds_that_only_allow_divergence(loops: MDP):
    demos = Demonstrations.from_lists([[0, 1, 0]])
    with raises(DivergentPartition, parameter="bounds"):
        MaxEnt(math.inf, (-0.5, 0.0)).fit(loops, demos)


def test_unbounded_length_agrees_with_a_long_finite_length():
    mdp = small_mdp(gamma=1.0)
    model = MaxEnt(math.inf, (-10, 0), gtol=1e-9)
    demos = model.sample(mdp, [-1.0, -0.5, -0.4, -0.3], 300, seed=2)
    np.testing.assert_allclose(model.fit(mdp, demos), MaxEnt(200, (-10, 0), gtol=1e-9).fit(mdp, demos), atol=1e-7)


# Unrecorded actions.


@pytest.mark.parametrize("condition", CONDITIONS)
@pytest.mark.parametrize("solver", SOLVERS)
def test_fit_without_actions_maximises_the_enumerated_likelihood(solver: str, condition: str):
    mdp = small_mdp()
    paths = Enumeration(mdp, LENGTH)
    rows = sample_rows(paths, 50, seed=12)
    groups = same_states(paths)
    by_start = condition == "start"
    value = marginal_objective(paths, [groups[paths.listed[i][0]] for i in rows], by_start)
    model = MaxEnt(LENGTH, (-8, 8), condition=condition, solver=solver, gtol=2e-7)
    demos = as_demonstrations(paths, rows, actions=False)
    theta = model.fit(mdp, demos)
    assert model.result_.converged
    step = 1e-5 * np.eye(4)
    gradient = np.array([(value(theta + h) - value(theta - h)) / 2e-5 for h in step])
    assert kkt_violation(theta, gradient, -8.0, 8.0) < 1e-6
    log_q = demos.log_q(mdp) - (np.log(mdp.p0[demos.start_states]) if by_start else 0.0)
    np.testing.assert_allclose(model.result_.value, value(theta) + np.mean(log_q), rtol=1e-10)
    recorded = MaxEnt(LENGTH, (-8, 8), condition=condition).fit(mdp, as_demonstrations(paths, rows))
    assert np.max(np.abs(recorded - theta)) > 1e-2


def test_partly_recorded_actions():
    """An action of -1 between recorded actions is summed over."""
    mdp = small_mdp()
    paths = Enumeration(mdp, 3)
    demos = Demonstrations.from_lists(
        [[0, 1, 3], [0, 1, 3], [0, 1], [2, 3], [0, 2]], actions=[[1, -1], [-1, 0], [-1], [1], [-1]]
    )
    act, candidates = mdp.act.tolist(), []
    for demo in demos:
        recorded = demo.actions.tolist()
        candidates.append(
            [
                i
                for i, (states, edges) in enumerate(paths.listed)
                if states == tuple(demo.states.tolist())
                and all(a in (-1, act[e]) for a, e in zip(recorded, edges, strict=True))
            ]
        )
    assert [len(group) for group in candidates] == [2, 2, 2, 1, 1]
    theta = np.array([0.2, -0.3, 0.5, 0.7])
    expected = [log_sum(log_probs(paths, theta)[group]) for group in candidates]
    np.testing.assert_allclose(MaxEnt(3).log_prob(mdp, theta, demos)[:, 0], expected, rtol=1e-12)
