"""Path sums of several environments, against those of each environment."""

import math

import numpy as np
import pytest

import limiirl as ll
from limiirl.demos import Demonstrations, split_environments
from limiirl.errors import InvalidParameter
from limiirl.irl import MaxEnt
from limiirl.mdp import MDP
from tests.helpers import raises

THETA = np.array([-1.0, -0.3, -0.5])


@pytest.fixture(scope="module", params=[7, math.inf], ids=["finite", "infinite"])
def world(request) -> tuple[MDP, list[MDP], MaxEnt]:
    """Two small worlds with discount 1 and different numbers of demonstrations."""
    rng = np.random.default_rng(3)
    names = ["cost", "view", "turn"]
    mdps = []
    for src, dst, n in (([0, 0, 1, 1, 2], [1, 2, 2, 3, 3], 4), ([0, 1, 1, 2, 2, 2], [1, 0, 2, 0, 3, 4], 5)):
        mdp = MDP.from_edges(src, dst, n_states=n, p0=[0.5, 0.5, *[0.0] * (n - 2)], state_features=rng.random((n, 2)))
        mdps.append(mdp.replace(edge_features=rng.random((mdp.n_edges, 1)), feature_names=names))
    pairs = [
        (mdps[0], Demonstrations.from_lists([[0, 1], [0, 2, 3]])),
        (mdps[1], Demonstrations.from_lists([[0, 1]] * 6)),
    ]
    return ll.combine_environments(pairs)[0], mdps, MaxEnt(max_length=request.param, bounds=None)


def test_expectations_are_weighted_by_the_environments(world):
    mdp, mdps, model = world
    for method in ("log_partition", "expected_features"):
        alone = [getattr(model, method)(own, THETA)[0] for own in mdps]
        np.testing.assert_allclose(getattr(model, method)(mdp, THETA)[0], 0.25 * alone[0] + 0.75 * alone[1], rtol=1e-10)
    alone = [model.hessian(own, THETA) for own in mdps]
    np.testing.assert_allclose(model.hessian(mdp, THETA), 0.25 * alone[0] + 0.75 * alone[1], rtol=1e-8)
    for method in ("state_marginals", "edge_marginals"):
        alone = [getattr(model, method)(own, THETA)[0] for own in mdps]
        joint = getattr(model, method)(mdp, THETA)[0]
        np.testing.assert_allclose(joint, np.concatenate([0.25 * alone[0], 0.75 * alone[1]]), rtol=1e-10)


def test_time_marginals(world):
    mdp, mdps, model = world
    if model.max_length == math.inf:
        with raises(InvalidParameter, parameter="max_length"):
            model.time_marginals(mdp, THETA)
        return
    alone = [model.time_marginals(own, THETA) for own in mdps]
    np.testing.assert_allclose(
        model.time_marginals(mdp, THETA), np.hstack([0.25 * alone[0], 0.75 * alone[1]]), rtol=1e-10
    )


def test_prefixes_next_actions_and_policies_are_those_of_the_environment(world):
    mdp, mdps, model = world
    prefixes = [Demonstrations.from_lists([[0], [0, 1], [1, 2]]), Demonstrations.from_lists([[1], [0, 1], [0, 1, 2]])]
    joint = Demonstrations.concat([prefixes[0], ll.to_environment(mdp, prefixes[1], 1)])
    alone = [model.log_prob_prefix(own, THETA, part) for own, part in zip(mdps, prefixes, strict=True)]
    np.testing.assert_allclose(model.log_prob_prefix(mdp, THETA, joint), np.vstack(alone), rtol=1e-10)
    expected = [model.next_actions(own, THETA, part) for own, part in zip(mdps, prefixes, strict=True)]
    actual = model.next_actions(mdp, THETA, joint)
    np.testing.assert_allclose(actual.stop, np.vstack([own.stop for own in expected]), rtol=1e-10)
    np.testing.assert_allclose(actual.action[:3, :, : mdps[0].n_actions], expected[0].action, rtol=1e-10)
    np.testing.assert_allclose(actual.action[3:], expected[1].action, rtol=1e-10)
    np.testing.assert_allclose(model.policy(mdp, THETA)[4:], model.policy(mdps[1], THETA), rtol=1e-10)


def test_the_most_likely_trajectory_is_that_of_the_environment(world):
    mdp, mdps, model = world
    path, log_prob = model.most_likely(mdp, THETA, 4, 8)
    own, expected = model.most_likely(mdps[1], THETA, 0, 4)
    np.testing.assert_array_equal(path.states, own.states + 4)
    assert log_prob == pytest.approx(expected, rel=1e-12)
    assert log_prob == pytest.approx(float(model.log_prob(mdp, THETA, path)[0, 0]), rel=1e-10)
    with raises(InvalidParameter, parameter="goal", value=3):
        model.most_likely(mdp, THETA, 4, 3)


def test_samples_follow_the_model(world):
    mdp, _, model = world
    sample = model.sample(mdp, THETA, 4000, seed=1)
    second = mdp.environment[sample.start_states] == 1
    assert abs(second.mean() - 0.75) < 4.0 * math.sqrt(0.75 * 0.25 / 4000)
    observed = sample.features(mdp).mean(axis=0)
    error = sample.features(mdp).std(axis=0) / math.sqrt(4000)
    assert np.all(np.abs(observed - model.expected_features(mdp, THETA)[0]) < 4.0 * error)


def test_null_directions_compare_start_states_within_environments():
    """A constant of one environment has no effect, although start states of different environments differ in it."""
    own = [[[1.0, 0.0, c], [2.0, 1.0, 0.0]] for c in (1.0, 0.0)]
    mdps = [MDP.from_edges([0], [1], p0=[1, 0], state_features=phi, feature_names=["a", "b", "c"]) for phi in own]
    demos = Demonstrations.from_lists([[0, 1]])
    mdp, _ = ll.combine_environments([(part, demos) for part in mdps])
    null = MaxEnt(3).null_directions(mdp, np.zeros(3))
    # Both environments are extended by gamma (2 a + b) only; c occurs at the start alone.
    span = np.array([[2.0, 1.0, 0.0]])
    assert len(null) == 2
    np.testing.assert_allclose(null @ span.T, 0.0, atol=1e-12)
    assert [len(part.mdp.feature_names) for part in split_environments(mdp)] == [3, 3]
