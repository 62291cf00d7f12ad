"""Route choice in Borlänge: estimates and standard errors of the recursive logit with four attributes."""

import gzip
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import limiirl as ll
from limiirl.irl import DestinationMaxEnt, link_size
from limiirl.mdp import add_goal_features

# From the README of the data set: published estimates and log-likelihood, and errors of an independent implementation.
ESTIMATES = [-2.494, -0.933, -0.411, -4.459]
LOG_LIKELIHOOD = -6302.93
ERRORS = [0.0644, 0.0263, 0.0103, 0.1129]
ROBUST_ERRORS = [0.0980, 0.0297, 0.0127, 0.1140]


def read(folder: Path) -> tuple[ll.MDP, ll.Demonstrations]:
    """Return the network with the attributes of Mai, Fosgerau and Frejinger (2015), and the trips."""
    pairs = np.loadtxt(folder / "link_pairs.csv.gz", delimiter=",", skiprows=1)
    src, dst = pairs[:, :2].astype(np.int64).T
    time, angle, within = pairs[:, 2], pairs[:, 3], pairs[:, 4] == 0
    left, constant, u_turn = (angle > -3.1) & (angle < -0.5236), time > 0, np.abs(angle) > 3.1
    features = np.column_stack([time, left, constant, u_turn]) * within[:, None]
    n = int(max(src.max(), dst.max())) + 1
    mdp = ll.MDP.from_edges(src, dst, n_states=n, edge_features=features)
    with gzip.open(folder / "trips.csv.gz", "rt", encoding="utf-8") as file:
        rows = [line.strip().split(",") for line in file][1:]
    return mdp, ll.Demonstrations.from_lists([[int(link) for link in path.split("_")] for _, path in rows])


@pytest.mark.slow
def test_standard_errors_are_those_of_the_observed_information(shared_data: Callable[[str], Path]) -> None:
    mdp, demos = read(shared_data("borlange"))
    assert len(demos) == 1832
    mix = ll.IntentMixture(1, DestinationMaxEnt(bounds=None)).fit(mdp, demos)
    np.testing.assert_allclose(mix.thetas_[0], ESTIMATES, rtol=0.0, atol=6e-4)
    # The model includes the uniform distribution of starts.
    np.testing.assert_allclose(mix.score(demos) * len(demos), LOG_LIKELIHOOD, rtol=0.0, atol=0.01)
    errors = mix.standard_errors()
    assert errors.method == "observed information"
    np.testing.assert_allclose(errors.thetas[0], ERRORS, rtol=0.0, atol=6e-5)
    robust = mix.standard_errors(covariance="robust")
    np.testing.assert_allclose(robust.thetas[0], ROBUST_ERRORS, rtol=0.0, atol=6e-5)
    assert str(len(demos)) in robust.method
    summary = mix.summary(covariance="robust")
    np.testing.assert_allclose(summary.t_values[0], np.divide(ESTIMATES, ROBUST_ERRORS), rtol=2e-3)
    # Without costs, the network of links has an infinite partition function.
    assert np.isnan(summary.rho_squared)
    ratio = mix.delta_method(lambda weights, thetas: thetas[0, 1] / thetas[0, 0])  # left turns in minutes
    time, left = mix.thetas_[0, :2]
    variance, gradient = errors.covariance[1:3, 1:3], np.array([-left / time**2, 1.0 / time])
    np.testing.assert_allclose(ratio.error, np.sqrt(gradient @ variance @ gradient), rtol=1e-5)


@pytest.mark.slow
def test_link_size_exceeds_the_published_log_likelihood(shared_data: Callable[[str], Path]) -> None:
    """Fosgerau, Frejinger and Karlström (2013): -6045.6 with link size, against -6303.9 without."""
    mdp, demos = read(shared_data("borlange"))
    # The link sizes are expected flows under fixed parameters close to the estimates without link size.
    feature = link_size(mdp, [-2.5, -1.0, -0.4, -4.0], demos.start_states, demos.last_states)
    mdp, model = add_goal_features(mdp, feature), DestinationMaxEnt(bounds=None)
    theta = model.fit(mdp, demos, start=[*ESTIMATES, 0.0])
    assert model.result_.converged
    np.testing.assert_allclose(theta, [-3.088, -1.062, -0.350, -4.492, -0.236], rtol=0.0, atol=1e-3)
    np.testing.assert_allclose(model.log_prob(mdp, theta, demos).sum(), -6029.74, rtol=0.0, atol=0.01)


@pytest.mark.slow
def test_accelerated_mixtures_converge_in_fewer_evaluations(shared_data: Callable[[str], Path]) -> None:
    mdp, demos = read(shared_data("borlange"))
    model = DestinationMaxEnt(bounds=None)
    fast = ll.IntentMixture(2, model, accelerate=True, random_state=0).fit(mdp, demos)
    with pytest.warns(match="EM did not converge in 10 iterations"):
        plain = ll.IntentMixture(2, model, max_iter=10, random_state=0).fit(mdp, demos)
    assert fast.converged_
    used = [sum(entry.n_evaluations for entry in mix.history_) for mix in (fast, plain)]
    assert used[0] < used[1]
    assert fast.log_likelihood_ > plain.log_likelihood_
    objectives = [entry.objective for entry in fast.history_]
    assert np.all(np.diff(objectives) >= -1e-12)
    np.testing.assert_allclose(fast.score(demos) * len(demos), -6136.12, rtol=0.0, atol=0.02)
