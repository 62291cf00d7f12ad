import warnings

import numpy as np
import pytest
from scipy import sparse

from limiirl import MDP, MLIRL, Demonstrations, IntentMixture, MaxCausalEnt, MaxEnt
from limiirl.errors import FeatureScaleWarning
from limiirl.irl import DestinationMaxEnt
from limiirl.irl.optim import Box, minimise_lbfgs, minimise_newton, minimise_scaled
from limiirl.mdp import feature_sizes

RNG = np.random.default_rng(0)
SRC = np.repeat(np.arange(9), 3)
DST = np.concatenate([[*RNG.choice(np.delete(np.arange(9), s), 2, replace=False), 9] for s in range(9)])
PHI = -RNG.random((10, 2))
MODELS = {
    "maxent": MaxEnt(bounds=None),
    "unbounded": MaxEnt(np.inf, bounds=None),
    "lbfgs": MaxEnt(bounds=None, solver="lbfgs"),
    "soft": MaxCausalEnt(ridge=0.0),
    "hard": MLIRL(ridge=0.0),
    "average": MLIRL(q="bv", ridge=0.0),
    "horizon": MaxCausalEnt(ridge=0.0, max_length=30),
    "destination": DestinationMaxEnt(bounds=None),
}


def mdp_of(scale: float | list[float], name: str) -> MDP:
    gamma = 1.0 if name in ("unbounded", "destination", "horizon") else 0.95
    start = np.append([0.5, 0.5], np.zeros(8))
    return MDP.from_edges(SRC, DST, p0=start, gamma=gamma, state_features=PHI * np.asarray(scale))


def draw() -> Demonstrations:
    return MaxCausalEnt().sample(mdp_of(1.0, "soft"), [1.5, 0.7], 100, seed=0)


@pytest.mark.parametrize("scale", [1e-6, [1.0, 1e-6], [1e-9, 1e3]], ids=str)
@pytest.mark.parametrize("name", MODELS)
def test_fits_do_not_depend_on_the_units_of_features(name: str, scale: float | list[float]) -> None:
    if name == "destination" and np.min(scale) < 1e-6:
        scale = [1e-6, 1e3]  # costs of more than 2^20 are not tried as initial points
    irl, demos = MODELS[name], draw()
    expected = irl.fit(mdp_of(1.0, name), demos)
    assert np.abs(expected).min() > 0.05
    with pytest.warns(FeatureScaleWarning):
        theta = irl.fit(mdp_of(scale, name), demos)
    assert irl.result_.converged
    np.testing.assert_allclose(theta * np.asarray(scale), expected, rtol=1e-3)


def test_mixtures_do_not_depend_on_the_units_of_features() -> None:
    demos, irl = draw(), MaxEnt(bounds=None)
    labels = np.arange(100) % 2
    expected = IntentMixture(2, irl, init=labels, max_iter=3, resp_tol=1.0).fit(mdp_of(1.0, "maxent"), demos)
    with pytest.warns(FeatureScaleWarning):
        mix = IntentMixture(2, irl, init=labels, max_iter=3, resp_tol=1.0).fit(mdp_of(1e-6, "maxent"), demos)
    np.testing.assert_allclose(mix.thetas_ * 1e-6, expected.thetas_, rtol=1e-3)


@pytest.mark.parametrize("scale", [1.0, 0.011, 1e3])
def test_features_of_usual_size_give_no_warning(scale: float) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        MaxEnt(bounds=None).fit(mdp_of(scale, "maxent"), draw())


class Quadratic:
    """0.5 |x - centre|^2 in units of `size`, which counts its evaluations."""

    def __init__(self, size: np.ndarray) -> None:
        self.size, self.points = size, []

    def evaluate(self, thetas: np.ndarray, which: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        self.points += [tuple(theta) for theta in thetas]
        rest = thetas * self.size - np.array([1.0, 2.0])
        return 0.5 * np.sum(rest**2, axis=1), rest * self.size

    def hessian(self, theta: np.ndarray, k: int) -> np.ndarray:
        return np.diag(self.size**2)


@pytest.mark.parametrize("solver", [minimise_lbfgs, minimise_newton])
def test_minimise_scaled_within_bounds(solver) -> None:
    size, box = np.array([1e-7, 1.0]), Box(np.array([0.0, 0.0]), np.array([1e12, 1.5]))
    tol = np.full((1, 2), 1e-9)
    result = minimise_scaled(solver, Quadratic(size), np.zeros((1, 2)), box, tol, 100, size)[0]
    assert result.converged
    np.testing.assert_allclose(result.theta, [1e7, 1.5], rtol=1e-8)
    assert result.theta[1] <= 1.5


def test_a_scale_of_one_evaluates_the_same_points() -> None:
    box, tol = Box(np.full(2, -9.0), np.full(2, 9.0)), np.full((1, 2), 1e-9)
    direct, scaled = Quadratic(np.array([3.0, 0.1])), Quadratic(np.array([3.0, 0.1]))
    expected = minimise_lbfgs(direct, np.zeros((1, 2)), box, tol, 100)[0]
    result = minimise_scaled(minimise_lbfgs, scaled, np.zeros((1, 2)), box, tol, 100, np.ones(2))[0]
    np.testing.assert_array_equal(result.theta, expected.theta)
    assert scaled.points == direct.points


def test_feature_sizes_of_dense_and_sparse_features() -> None:
    dense, action = np.array([[1.0, -4.0], [0.0, 2.0]]), np.array([[0.5]])
    for features in (dense, sparse.csr_array(dense)):
        mdp = MDP.from_edges([0], [1], state_features=features, action_features=action, edge_features=[[-1e-6]])
        assert feature_sizes(mdp).tolist() == [1.0, 4.0, 0.5, 1e-6]
    one = MDP.from_edges([], [], n_states=1, state_features=[[2.0]], edge_features=np.zeros((0, 1)))
    assert feature_sizes(one).tolist() == [2.0, 0.0]
