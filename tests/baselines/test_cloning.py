"""Behaviour cloning."""

import numpy as np
import pytest
from scipy import optimize, sparse

from limiirl.baselines import BehaviourCloning, Uniform
from limiirl.demos import Demonstrations
from limiirl.errors import InvalidParameter
from limiirl.irl import MaxCausalEnt
from limiirl.mdp import MDP
from tests.helpers import raises

RNG = np.random.default_rng(0)


def make(sparse_features):
    """Return a stochastic MDP with features of all kinds, and demonstrations."""
    rng = np.random.default_rng(1)
    T = rng.random((4, 3, 4)) * (rng.random((4, 3, 4)) < 0.7)
    T[:, :, 0] += 0.05
    T /= T.sum(axis=2, keepdims=True)
    phi = rng.normal(size=(4, 2))
    mdp = MDP.from_dense(
        T,
        gamma=0.9,
        state_features=sparse.csr_array(phi) if sparse_features else phi,
        action_features=rng.normal(size=(4, 3, 1)),
        edge_features=rng.normal(size=(4, 3, 4, 1)),
        feature_names=["x", "y", "act", "edge"],
    )
    return mdp, MaxCausalEnt().sample(mdp, [1.0, -1.0, 0.5, 0.5], 20, seed=2, max_length=15)


def expected_features(mdp):
    """Return E[phi(s, a, s')] (S, A, d) in the order action, state, edge, with loops."""
    phi = mdp.state_features if isinstance(mdp.state_features, np.ndarray) else mdp.state_features.toarray()
    features = np.zeros((mdp.n_states, mdp.n_actions, 4))
    for e in range(mdp.n_edges):
        s, a, t = mdp.src[e], mdp.act[e], mdp.dst[e]
        features[s, a, 1:] += mdp.prob[e] * np.append(phi[t], mdp.edge_features[e])
        features[s, a, 0] = mdp.action_features[mdp.pair_of_edge[e], 0]
    return features


@pytest.mark.parametrize("sparse_features", [False, True])
def test_the_fit_equals_a_logit(sparse_features):
    mdp, demos = make(sparse_features)
    features, ridge = expected_features(mdp), 0.02
    states = np.concatenate([d.states[:-1] for d in demos])
    actions = np.concatenate([d.actions for d in demos])

    def log_prob(theta):
        values = features @ theta
        return (values - np.log(np.exp(values).sum(axis=1, keepdims=True)))[states, actions]

    result = optimize.minimize(
        lambda theta: -log_prob(theta).mean() + 0.5 * ridge * theta @ theta, np.zeros(4), method="BFGS", tol=1e-9
    )
    model = BehaviourCloning(ridge=ridge).fit(demos, mdp)
    assert model.feature_names_ == ("act", "x", "y", "edge")
    np.testing.assert_allclose(model.theta_, result.x, rtol=0, atol=1e-5)
    np.testing.assert_allclose(model.predictive_log_prob(demos), log_prob(model.theta_), rtol=0, atol=1e-10)


def test_unrecorded_actions_are_summed_over():
    mdp, demos = make(False)
    model = BehaviourCloning(ridge=0.1).fit(demos.replace(actions=None), mdp)
    values = np.exp(expected_features(mdp) @ model.theta_)
    policy = values / values.sum(axis=1, keepdims=True)
    T = np.zeros((4, 3, 4))
    T[mdp.src, mdp.act, mdp.dst] = mdp.prob
    following = np.einsum("sa,sat->st", policy, T)
    expected = np.concatenate([np.log(following[d.states[:-1], d.states[1:]]) for d in demos])
    np.testing.assert_allclose(model.predictive_log_prob(demos.replace(actions=None)), expected, rtol=0, atol=1e-10)


def test_the_ridge_is_chosen_by_left_out_demonstrations():
    mdp, demos = make(False)
    useful = BehaviourCloning().fit(demos, mdp)
    assert useful.score(demos) > Uniform().fit(demos, mdp).score(demos) + 0.05
    noise = mdp.replace(
        state_features=None,
        action_features=None,
        edge_features=RNG.normal(size=(mdp.n_edges, 30)),
    )
    assert BehaviourCloning().fit(demos[:6], noise).ridge_ > useful.ridge_
    assert BehaviourCloning().fit(demos[:1], mdp).ridge_ == 0.01


def test_arguments_are_checked():
    mdp, demos = make(False)
    with raises(InvalidParameter, parameter="mdp"):
        BehaviourCloning().fit(demos)
    with raises(InvalidParameter, parameter="ridge", value=-1.0):
        BehaviourCloning(ridge=-1.0).fit(demos, mdp)
    assert (
        BehaviourCloning(ridge=0.1).fit(Demonstrations.from_lists([d.states for d in demos]), mdp).by_action_ is False
    )
