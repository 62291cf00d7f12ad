"""`ObservedPaths`: log-weights of demonstrations, with and without recorded actions, against enumeration."""

import math

import numpy as np
import pytest

from limiirl.demos import Demonstrations
from limiirl.irl.observed_paths import ObservedPaths
from limiirl.mdp import MDP
from tests.oracles.enumeration import Enumeration, log_sum
from tests.oracles.likelihood import as_demonstrations, possible, same_states, small_mdp

THETAS = np.array([[-0.4, 0.3, 0.8, -0.6], [1.5, -2.0, -3.0, 2.5]])
LENGTH = 4


def log_weights_of(paths: Enumeration, theta: np.ndarray, by_start: bool) -> np.ndarray:
    """Return log(q exp(theta . F)) of every trajectory, excluding p0 if `by_start`."""
    with np.errstate(divide="ignore"):
        start = 0.0 if by_start else np.log(paths.mdp.p0)[paths.first]
    return paths.log_P + start + paths.F @ theta


@pytest.mark.parametrize("by_start", [False, True])
def test_recorded_actions(by_start: bool):
    mdp = small_mdp()
    paths = Enumeration(mdp, LENGTH)
    rows = possible(paths)
    observed = ObservedPaths.from_demos(mdp, as_demonstrations(paths, rows), by_start)
    assert observed.fixed
    np.testing.assert_allclose(observed.features, paths.F[rows], rtol=1e-13, atol=1e-14)
    np.testing.assert_allclose(
        observed.log_q, log_weights_of(paths, np.zeros(4), by_start)[rows], rtol=1e-13, atol=1e-14
    )
    log_weights = observed.log_weight(THETAS)
    assert log_weights.shape == (rows.size, 2)
    for k, theta in enumerate(THETAS):
        np.testing.assert_allclose(
            log_weights[:, k], log_weights_of(paths, theta, by_start)[rows], rtol=1e-12, atol=1e-13
        )
    value, gradient = observed.correction(THETAS[0], np.ones(rows.size))
    assert value == 0.0
    np.testing.assert_array_equal(gradient, np.zeros(4))


@pytest.mark.parametrize("by_start", [False, True])
@pytest.mark.parametrize("gamma", [1.0, 0.6])
def test_unrecorded_actions_are_summed_over(gamma: float, by_start: bool):
    mdp = small_mdp(gamma)
    paths = Enumeration(mdp, LENGTH)
    groups = list(same_states(paths).values())
    observed = ObservedPaths.from_demos(
        mdp, as_demonstrations(paths, [group[0] for group in groups], actions=False), by_start
    )
    assert not observed.fixed
    log_weights = observed.log_weight(THETAS)
    for k, theta in enumerate(THETAS):
        log_w = log_weights_of(paths, theta, by_start)
        np.testing.assert_allclose(
            log_weights[:, k], [log_sum(log_w[group]) for group in groups], rtol=1e-12, atol=1e-13
        )


def test_unrecorded_actions_without_features_have_no_effect():
    mdp = small_mdp(moves=False)
    paths = Enumeration(mdp, LENGTH)
    groups = list(same_states(paths).values())
    observed = ObservedPaths.from_demos(mdp, as_demonstrations(paths, [group[0] for group in groups], actions=False))
    assert observed.fixed
    log_w = log_weights_of(paths, THETAS[0, :2], False)
    np.testing.assert_allclose(
        observed.log_weight(THETAS[:1, :2])[:, 0], [log_sum(log_w[group]) for group in groups], rtol=1e-12, atol=1e-13
    )


@pytest.mark.parametrize("which", ["action", "edge"])
def test_unrecorded_actions_with_action_or_edge_features(which: str):
    full = small_mdp(gamma=0.7)
    mdp = full.replace(**{f"{'edge' if which == 'action' else 'action'}_features": None, "feature_names": None})
    assert mdp.n_features == 3
    paths = Enumeration(mdp, LENGTH)
    groups = list(same_states(paths).values())
    observed = ObservedPaths.from_demos(mdp, as_demonstrations(paths, [group[0] for group in groups], actions=False))
    theta = np.array([0.3, -0.2, 1.7])
    log_w = log_weights_of(paths, theta, False)
    np.testing.assert_allclose(
        observed.log_weight(theta[None])[:, 0], [log_sum(log_w[group]) for group in groups], rtol=1e-12, atol=1e-13
    )


@pytest.mark.parametrize("gamma", [1.0, 0.6])
def test_gradient_of_the_correction_agrees_with_finite_differences(gamma: float):
    mdp = small_mdp(gamma)
    paths = Enumeration(mdp, LENGTH)
    groups = list(same_states(paths).values())
    observed = ObservedPaths.from_demos(mdp, as_demonstrations(paths, [group[0] for group in groups], actions=False))
    weights = np.random.default_rng(0).random(len(groups))
    for theta in THETAS:
        value, gradient = observed.correction(theta, weights)
        linear = observed.features @ theta + observed.log_q
        np.testing.assert_allclose(value, weights @ (observed.log_weight(theta[None])[:, 0] - linear), rtol=1e-11)
        differences = [
            (observed.correction(theta + h, weights)[0] - observed.correction(theta - h, weights)[0]) / 2e-5
            for h in 1e-5 * np.eye(4)
        ]
        np.testing.assert_allclose(gradient, differences, rtol=1e-6, atol=1e-8)
        assert np.max(np.abs(gradient)) > 0.1
        np.testing.assert_array_equal(gradient[:2], 0.0)  # the states are observed


def test_correction_is_weighted_by_demonstration():
    mdp = small_mdp()
    demos = Demonstrations.from_lists([[0, 1], [1, 3], [0, 2]])
    observed = ObservedPaths.from_demos(mdp, demos)
    parts = [observed.correction(THETAS[0], np.eye(3)[i]) for i in range(3)]
    value, gradient = observed.correction(THETAS[0], np.array([2.0, 0.5, 7.0]))
    np.testing.assert_allclose(value, 2 * parts[0][0] + 0.5 * parts[1][0], rtol=1e-13)
    np.testing.assert_allclose(gradient, 2 * parts[0][1] + 0.5 * parts[1][1], rtol=1e-13)
    assert parts[2][0] == 0.0  # only one edge leads from 0 to 2


def test_large_rewards_of_unrecorded_actions():
    """exp(800) overflows, its logarithm does not."""
    mdp = MDP.from_edges([0, 0], [1, 1], p0=[1, 0], edge_features=[[-1.0], [1.0]])
    observed = ObservedPaths.from_demos(mdp, Demonstrations.from_lists([[0, 1]]))
    for theta in (800.0, -800.0):
        np.testing.assert_allclose(observed.log_weight(np.array([[theta]])), [[800.0]], rtol=1e-15)
        value, gradient = observed.correction(np.array([theta]), np.ones(1))
        assert math.isfinite(value)
        np.testing.assert_allclose(observed.features[0] + gradient, [math.copysign(1.0, theta)], rtol=1e-15)


def test_start_distributions_of_weighted_demonstrations():
    demos = Demonstrations.from_lists([[0, 1], [2], [0], [1]])
    weights = np.array([[0.1, 0.4], [0.2, 0.3], [0.3, 0.2], [0.4, 0.1]])
    starts = ObservedPaths.from_demos(small_mdp(), demos).starts(weights)
    np.testing.assert_allclose(starts, [[0.4, 0.6], [0.4, 0.1], [0.2, 0.3], [0.0, 0.0]], rtol=1e-14)
