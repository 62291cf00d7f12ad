"""Sigma-GIRL for one intent: search on the simplex, recovery of known weights, invalid input."""

import numpy as np
import pytest
from sklearn.base import clone

import limiirl as ll
from limiirl.demos import Groups
from limiirl.demos.agents import Agents
from limiirl.errors import InvalidDemos, InvalidParameter
from limiirl.irl.sigma_girl.likelihood import jacobian_moments
from limiirl.irl.sigma_girl.model import SigmaGIRL
from tests.helpers import raises
from tests.oracles.sigma import best_gain, pickers, regulators

TRUE = np.array([[0.8, 0.2], [0.3, 0.7]])
BOTH = ["diagonal", "full"]


def simplex_grid(q: int, n: int) -> np.ndarray:
    """Return all points of the simplex with coordinates that are multiples of 1 / n."""
    axes = np.meshgrid(*[np.arange(n + 1)] * q, indexing="ij")
    points = np.stack([axis.ravel() for axis in axes], axis=1)
    return points[points.sum(axis=1) == n] / n


@pytest.mark.parametrize("covariance", BOTH)
def test_known_weights_of_linear_regulators_are_recovered(covariance):
    assert best_gain(TRUE[0], 0.5, 6, 0.9) > best_gain(TRUE[1], 0.5, 6, 0.9) + 0.1
    agents = regulators(TRUE, n=1500, seed=0)
    irl = SigmaGIRL(gamma=0.9, covariance=covariance)
    for i, omega in enumerate(TRUE):
        result = irl.fit(None, agents, weights=np.eye(2)[i])
        np.testing.assert_allclose(result, omega, rtol=0, atol=0.03)
        assert irl.result_.converged
    assert np.argmax(irl.log_prob(None, TRUE, agents), axis=1).tolist() == [0, 1]


def test_more_trajectories_increase_the_likelihood_ratio():
    few, many = (SigmaGIRL(gamma=0.9).log_prob(None, TRUE, regulators(TRUE, n, seed=3)) for n in (50, 2000))
    margin = [np.min(np.array([p[0, 0] - p[0, 1], p[1, 1] - p[1, 0]])) for p in (few, many)]
    assert margin[1] > 10.0 > margin[0]


@pytest.mark.parametrize("covariance", BOTH)
def test_no_point_of_a_fine_grid_on_the_simplex_is_better(covariance):
    agents = pickers(60, seed=1)
    irl = SigmaGIRL(gamma=0.9, covariance=covariance)
    grid = simplex_grid(3, 60)
    for weights in (np.ones(3), np.array([1.0, 0.0, 0.2])):
        omega = irl.fit(None, agents, weights=weights)
        assert omega.min() >= 0.0
        np.testing.assert_allclose(omega.sum(), 1.0, rtol=0, atol=1e-9)
        best = weights @ irl.log_prob(None, grid, agents)
        result = float(weights @ irl.log_prob(None, omega, agents)[:, 0])
        assert result >= best.max() - 1e-6
        assert irl.result_.value == pytest.approx(
            -(result + 0.5 * weights @ irl.make_problem(None, agents, Groups.from_labels(None, 3)).profile.log_det)
            / weights.sum()
        )


def test_one_search_alone_may_end_in_the_wrong_minimum():
    # Two agents with opposite rewards: each corner explains one agent, and the objective is worse between them.
    agents = regulators(np.array([[0.95, 0.05], [0.05, 0.95]]), n=400, seed=5)
    irl = SigmaGIRL(gamma=0.9)
    problem = irl.make_problem(None, agents, Groups.from_labels(None, 2))
    line = np.linspace(0.0, 1.0, 401)
    values = problem.profile.values(np.stack([line, 1.0 - line], axis=1)).sum(axis=0)
    inner = np.flatnonzero((values[1:-1] < values[:-2]) & (values[1:-1] < values[2:])) + 1
    assert inner.size >= 2  # several minima
    worst = int(inner[np.argmax(values[inner])])
    start = np.array([line[worst], 1.0 - line[worst]])
    result = irl.fit(None, agents, start=start)
    assert problem.profile.values(result[None]).sum() <= values.min() + 1e-6 < values[worst] - 1.0


def test_a_fit_is_never_worse_than_its_start():
    agents = pickers(40, seed=2)
    irl = SigmaGIRL(max_evaluations=1)
    near = 0.95 * SigmaGIRL().fit(None, agents) + 0.05 / 3
    with pytest.warns(ll.errors.ConvergenceWarning, match="raise max_evaluations"):
        result = irl.fit(None, agents, start=near)
    np.testing.assert_allclose(result, near, rtol=0, atol=1e-12)
    assert irl.result_.n_evaluations == 6  # one each for the start, uniform weights and four others


def test_log_prob_is_invariant_to_the_norm_of_theta():
    agents = pickers(20, seed=3)
    omega = np.array([0.2, 0.5, 0.3])
    p = SigmaGIRL().log_prob(None, np.array([omega, 7.0 * omega, 1e-6 * omega]), agents)
    np.testing.assert_allclose(p, np.tile(p[:, :1], 3), rtol=1e-10)


def test_projection_onto_the_simplex():
    problem = SigmaGIRL().make_problem(None, pickers(20, seed=3), Groups.from_labels(None, 3))
    given = np.array([[1.0, 1.0, 2.0], [-1.0, 0.0, 3.0], [-1.0, -1.0, 0.0], [0.2, 0.3, 0.5]])
    expected = [[0.25, 0.25, 0.5], [0.0, 0.0, 1.0], [1 / 3, 1 / 3, 1 / 3], [0.2, 0.3, 0.5]]
    np.testing.assert_allclose(problem.project(given), expected, rtol=1e-15)
    random = np.random.default_rng(0).normal(size=(200, 3))
    once = problem.project(random)
    np.testing.assert_array_equal(problem.project(once), once)


def test_fits_are_deterministic_and_models_can_be_cloned():
    agents = pickers(20, seed=4)
    irl = SigmaGIRL(gamma=0.8, cluster_on="policy", n_starts=3)
    assert clone(irl).get_params() == irl.get_params()
    np.testing.assert_array_equal(irl.fit(None, agents), clone(irl).fit(None, agents))


def test_steps_without_choice_are_ignored():
    agents = regulators(TRUE, n=30, seed=6)
    lives = [np.arange(6) < np.random.default_rng(i).integers(2, 7, size=(30, 1)) for i in range(2)]
    given = [[getattr(a, part) for a in agents] for part in ("policy_features", "actions", "reward_features")]
    x, actions = ([np.where(lives[i][..., None], parts[i], 99.0) for i in range(2)] for parts in given[:2])
    one, other = Agents.from_arrays(*given, lives), Agents.from_arrays(x, actions, given[2], lives)
    irl = SigmaGIRL()
    np.testing.assert_array_equal(irl.log_prob(None, TRUE, one), irl.log_prob(None, TRUE, other))
    np.testing.assert_array_equal(irl.features(None, one), irl.features(None, other))
    assert not np.array_equal(irl.log_prob(None, TRUE, one), irl.log_prob(None, TRUE, agents))


def test_errors_of_weights():
    agents, irl = pickers(8, seed=4), SigmaGIRL(gamma=0.9)
    with raises(InvalidParameter, parameter="weights", value=(2,)):
        irl.fit(None, agents, [1.0, 1.0])
    with raises(InvalidParameter, parameter="weights", value=-1.0, index=(1, 0)):
        irl.fit_many(None, agents, [[1.0], [-1.0], [1.0]])


def test_searches_converge_on_the_simplex():
    # The gradient at 2 omega is half the gradient at omega, so convergence must be tested on the simplex.
    # In the last case, a search without normalisation diverges and stalls.
    last = np.array([0.0, 0.0, 1.0])
    for agents, weights in ((pickers(60, seed=1), np.ones(3)), (pickers(8, seed=4), last)):
        irl = SigmaGIRL(gamma=0.9)
        profile = irl.make_problem(None, agents, Groups.from_labels(None, 3)).profile
        omega = irl.fit(None, agents, weights)
        gradient = 0.5 * (weights / weights.sum()) @ profile.gradients(omega)[1]
        free = np.where((omega == 0.0) & (gradient > 0.0), 0.0, gradient)
        assert irl.result_.converged
        assert np.abs(free).max() <= 1e-6 * max(1.0, irl.result_.value)


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({"gamma": 0.0}, {"parameter": "gamma", "value": 0.0}),
        ({"gamma": 1.1}, {"parameter": "gamma", "value": 1.1}),
        ({"ridge": 0.0}, {"parameter": "ridge", "value": 0.0}),
        ({"baseline_floor": -1.0}, {"parameter": "baseline_floor", "value": -1.0}),
        ({"covariance": "identity"}, {"parameter": "covariance", "value": "identity"}),
        ({"cluster_on": "states"}, {"parameter": "cluster_on", "value": "states"}),
        ({"n_starts": 2}, {"parameter": "n_starts", "value": 2}),
        ({"gtol": -1.0}, {"parameter": "gtol", "value": -1.0}),
        ({"max_evaluations": 0}, {"parameter": "max_evaluations", "value": 0}),
        ({"random_state": None}, {"parameter": "random_state"}),
    ],
)
def test_invalid_parameters(parameters, expected):
    with raises(InvalidParameter, **expected):
        SigmaGIRL(**parameters).fit(None, pickers(5, seed=0))


def test_invalid_input():
    agents, irl = pickers(10, seed=0), SigmaGIRL()
    mdp = ll.MDP.from_edges([0], [1])
    with raises(InvalidParameter, parameter="mdp"):
        irl.fit(mdp, agents)
    with raises(InvalidDemos, parameter="agents"):
        irl.fit(None, ll.Demonstrations.from_lists([[0, 1]]))
    with raises(InvalidDemos, parameter="agents"):
        irl.features(None, [])
    with raises(InvalidParameter, parameter="thetas"):
        irl.log_prob(None, [[1.0, 0.0]], agents)
    with raises(InvalidParameter, parameter="thetas", index=1):
        irl.log_prob(None, [[1.0, 0.0, 0.0], [0.0, 0.0, 0.0]], agents)
    with raises(InvalidParameter, parameter="start", value=(2, 3)):
        irl.fit(None, agents, start=np.ones((2, 3)))
    with raises(InvalidParameter, parameter="start", index=0):
        irl.fit(None, agents, start=[np.nan, 0.0, 1.0])
    with raises(InvalidParameter, parameter="theta", index=0):
        irl.null_directions(None, [0.0, 0.0])
    with raises(InvalidParameter, parameter="thetas"):
        irl.log_prob(None, [["a", "b", "c"]], agents)
    with raises(InvalidParameter, parameter="weights", value=(2,)):
        irl.fit(None, agents, weights=[1.0, 2.0])
    with raises(InvalidParameter, parameter="starts"):
        irl.fit_many(None, agents, np.ones((3, 2)), starts=[[1.0, 0.0, 0.0]])


def test_errors_name_uninformative_agents():
    x, phi = np.random.default_rng(0).normal(size=(2, 8, 4, 2))
    with raises(InvalidDemos, parameter="agents", index=0):
        SigmaGIRL().fit(None, Agents.from_arrays([x], [np.ones((8, 4), int)], [phi]))
    with raises(InvalidDemos, parameter="agents", value=0.0, index=0):
        SigmaGIRL().fit(None, Agents.from_arrays([x], [np.zeros((8, 4, 1))], [phi]))
    with raises(InvalidDemos, parameter="agents", value=1, index=0):
        SigmaGIRL().fit(None, Agents.from_arrays([x[:1]], [phi[:1]], [phi[:1]]))
    with raises(InvalidDemos, parameter="agents", index=1):
        SigmaGIRL().fit(None, Agents.from_arrays([x, x], [phi, phi], [phi, np.zeros_like(phi)]))
    with raises(InvalidDemos, parameter="agents", index=0):
        jacobian_moments(np.ones((3, 4, 2)))
