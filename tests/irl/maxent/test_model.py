"""`MaxEnt` as a distribution and an estimator: log-probabilities, marginals, samples, `max_length`, parameters."""

import math
import pickle

import numpy as np
import pytest
from sklearn.base import clone

import limiirl
from limiirl.demos import Demonstrations
from limiirl.errors import InvalidDemos, NotFitted
from limiirl.irl import IRLModel, MaxEnt, Status
from limiirl.mdp import MDP
from tests.helpers import raises
from tests.oracles.enumeration import Enumeration, log_sum
from tests.oracles.likelihood import as_demonstrations, log_probs, possible, same_states, small_mdp

CONDITIONS = ("none", "start")
STOPS = ("anywhere", "terminal", "terminal_or_max_length")
LENGTH = 4
THETAS = np.array([[-0.4, 0.3, 0.8, -0.6], [0.0, 0.0, 0.0, 0.0], [1.5, -2.0, -1.0, 2.5]])
SHORT = [[0, 1, 3], [0, 2], [1, 3]]
ACTIONS = [[0, 1], [0], [0]]


# Log-probabilities.


@pytest.mark.parametrize("arithmetic", ["auto", "linear", "log"])
@pytest.mark.parametrize("stop", STOPS)
@pytest.mark.parametrize("condition", CONDITIONS)
def test_log_prob_of_every_trajectory(condition: str, stop: str, arithmetic: str):
    mdp = small_mdp()
    paths = Enumeration(mdp, LENGTH, stop)
    rows = possible(paths)
    model = MaxEnt(LENGTH, stop=stop, condition=condition, arithmetic=arithmetic)
    log_prob = model.log_prob(mdp, THETAS, as_demonstrations(paths, rows))
    assert log_prob.shape == (rows.size, 3)
    for k, theta in enumerate(THETAS):
        np.testing.assert_allclose(
            log_prob[:, k], log_probs(paths, theta, condition == "start")[rows], rtol=1e-11, atol=1e-11
        )
    if condition == "none":
        np.testing.assert_allclose(np.exp(log_prob).sum(axis=0), 1.0, rtol=1e-12)
    else:
        for state in (0, 1, 2):
            np.testing.assert_allclose(np.exp(log_prob[paths.first[rows] == state]).sum(axis=0), 1.0, rtol=1e-12)


@pytest.mark.parametrize("edge_features", [True, False], ids=["all features", "state features"])
@pytest.mark.parametrize("condition", CONDITIONS)
def test_log_prob_of_every_state_sequence_without_actions(condition: str, edge_features: bool):
    """log_prob sums over the unrecorded actions, weighted by theta if they have features."""
    mdp = small_mdp(moves=edge_features)
    paths = Enumeration(mdp, LENGTH)
    groups = list(same_states(paths).values())
    assert max(len(group) for group in groups) >= 4
    thetas = THETAS[:, : mdp.n_features]
    demos = as_demonstrations(paths, [group[0] for group in groups], actions=False)
    log_prob = MaxEnt(LENGTH, condition=condition).log_prob(mdp, thetas, demos)
    for k, theta in enumerate(thetas):
        log_p = log_probs(paths, theta, condition == "start")
        np.testing.assert_allclose(log_prob[:, k], [log_sum(log_p[group]) for group in groups], rtol=1e-11, atol=1e-11)
    total = (
        np.exp(log_prob).sum(axis=0) if condition == "none" else np.exp(log_prob[demos.start_states == 1]).sum(axis=0)
    )
    np.testing.assert_allclose(total, 1.0, rtol=1e-12)


def test_log_prob_includes_p0_and_dynamics():
    """At theta = 0, log_prob is log q minus log Z."""
    mdp = MDP.from_edges(
        [0, 0, 1], [1, 2, 2], action=[0, 0, 0], prob=[0.25, 0.75, 1.0], p0=[0.5, 0.5, 0.0], state_features=np.eye(3)
    )
    demos = Demonstrations.from_lists([[0], [0, 1], [0, 2], [1, 2], [0, 1, 2]])
    log_prob = MaxEnt(3).log_prob(mdp, np.zeros(3), demos)[:, 0]
    Z = 0.5 * (1 + 1 + 0.25) + 0.5 * 2  # from 0: no step, one step, two steps via 1; from 1: no step or one step
    np.testing.assert_allclose(np.exp(log_prob), np.array([0.5, 0.125, 0.375, 0.5, 0.125]) / Z, rtol=1e-14)


def test_one_theta_may_be_a_vector():
    mdp = small_mdp()
    demos = Demonstrations.from_lists(SHORT, ACTIONS)
    model = MaxEnt(LENGTH)
    np.testing.assert_array_equal(model.log_prob(mdp, THETAS[0], demos), model.log_prob(mdp, THETAS[:1], demos))
    assert model.log_partition(mdp, THETAS[0]).shape == (1,)
    assert model.log_prob(mdp, THETAS, demos[:0]).shape == (0, 3)


def test_theta_may_be_a_list_of_integers():
    mdp = small_mdp()
    np.testing.assert_array_equal(
        MaxEnt(3).log_partition(mdp, [1, 0, 0, -1]), MaxEnt(3).log_partition(mdp, np.array([1.0, 0, 0, -1]))
    )


@pytest.mark.parametrize("condition", CONDITIONS)
def test_log_partition_expected_features_and_hessian(condition: str):
    mdp = small_mdp()
    paths = Enumeration(mdp, LENGTH)
    model, by_start = MaxEnt(LENGTH, condition=condition), condition == "start"
    laws = [paths.law(theta, by_start=by_start) for theta in THETAS]
    np.testing.assert_allclose(model.log_partition(mdp, THETAS), [law.log_Z for law in laws], rtol=1e-12)
    features = model.expected_features(mdp, THETAS)
    assert features.shape == (3, 4)
    np.testing.assert_allclose(features, [law.mean() for law in laws], rtol=1e-11, atol=1e-12)
    for theta, law in zip(THETAS, laws, strict=True):
        np.testing.assert_allclose(
            model.hessian(mdp, theta), law.covariance(), atol=1e-10 * (1 + np.abs(law.second_moment()).max())
        )


# Marginals.


@pytest.mark.parametrize("edge_features", [True, False], ids=["all features", "state features"])
@pytest.mark.parametrize("stop", STOPS)
@pytest.mark.parametrize("condition", CONDITIONS)
def test_marginals_against_enumeration(condition: str, stop: str, edge_features: bool):
    """Includes MDPs whose parallel edges are merged by the path sums."""
    mdp = small_mdp(moves=edge_features)
    paths = Enumeration(mdp, LENGTH, stop)
    model = MaxEnt(LENGTH, stop=stop, condition=condition)
    thetas = THETAS[:, : mdp.n_features]
    states, edges = model.state_marginals(mdp, thetas), model.edge_marginals(mdp, thetas)
    assert states.shape == (3, mdp.n_states)
    assert edges.shape == (3, mdp.n_edges)
    for k, theta in enumerate(thetas):
        law = paths.law(theta, by_start=condition == "start")
        times = model.time_marginals(mdp, theta)
        assert times.shape == (LENGTH, mdp.n_states)
        np.testing.assert_allclose(times, law.time_marginals(), atol=1e-12)
        np.testing.assert_allclose(edges[k], law.edge_counts(np.ones(LENGTH)), atol=1e-12)
        np.testing.assert_allclose(times.sum(axis=0), states[k], atol=1e-12)
        inflow = np.bincount(mdp.dst, weights=edges[k], minlength=mdp.n_states)
        np.testing.assert_allclose(times[0] + inflow, states[k], atol=1e-12)
        np.testing.assert_allclose(times[0].sum(), 1.0, rtol=1e-12)
        if condition == "start":
            np.testing.assert_allclose(times[0], mdp.p0, atol=1e-14)


def test_marginals_are_in_the_order_of_the_mdp():
    """The path sums reorder the states of this chain, which are numbered randomly."""
    order = np.random.default_rng(3).permutation(40)
    mdp = MDP.from_edges(order[:-1], order[1:], p0=(np.arange(40) == order[0]).astype(float))
    theta = np.zeros(40)
    theta[order[17]] = 50.0  # reached with probability 1
    model = MaxEnt(18)
    expected = np.zeros(40)
    expected[order[:18]] = 1.0
    np.testing.assert_allclose(model.state_marginals(mdp, theta)[0], expected, atol=1e-12)
    np.testing.assert_allclose(model.edge_marginals(mdp, theta)[0], expected[mdp.src] * expected[mdp.dst], atol=1e-12)
    np.testing.assert_array_equal(np.argmax(model.time_marginals(mdp, theta), axis=1), order[:18])


def test_marginals_of_unbounded_length():
    """A self-loop of weight x: a trajectory has 1 / (1 - x) states on average."""
    mdp = MDP.from_edges([0], [0], n_states=1)
    model, x = MaxEnt(math.inf), 0.3
    np.testing.assert_allclose(model.state_marginals(mdp, [math.log(x)]), [[1 / (1 - x)]], rtol=1e-12)
    np.testing.assert_allclose(model.edge_marginals(mdp, [math.log(x)]), [[x / (1 - x)]], rtol=1e-12)
    np.testing.assert_allclose(model.hessian(mdp, [math.log(x)]), [[x / (1 - x) ** 2]], rtol=1e-11)
    demos = Demonstrations.from_lists([[0], [0, 0, 0]])
    np.testing.assert_allclose(
        model.log_prob(mdp, [math.log(x)], demos)[:, 0], np.log([1 - x, x**2 * (1 - x)]), rtol=1e-12
    )


# The maximum length.


def test_max_length_defaults_to_the_longest_demonstration_of_fit():
    mdp = small_mdp()
    model = MaxEnt()
    demos = Demonstrations.from_lists(SHORT, ACTIONS)
    theta = model.fit(mdp, demos)
    assert model.max_length_ == 3
    assert isinstance(model.max_length_, int)
    assert model.max_length is None
    before = model.log_prob(mdp, theta, demos)
    np.testing.assert_array_equal(before, MaxEnt(3).log_prob(mdp, theta, demos))
    longer = Demonstrations.from_lists([*SHORT, [0, 0, 1, 3], [0, 0, 0, 1, 3]], [*ACTIONS, [2, 0, 1], [2, 2, 0, 1]])
    with raises(InvalidDemos, parameter="demos", value=4, index=3):
        model.log_prob(mdp, theta, longer)
    assert model.max_length_ == 3
    np.testing.assert_array_equal(model.log_prob(mdp, theta, demos), before)
    np.testing.assert_array_equal(model.log_prob(mdp, theta, demos[1:]), before[1:])


def test_max_length_does_not_depend_on_weights():
    mdp = small_mdp()
    model = MaxEnt()
    model.fit(mdp, Demonstrations.from_lists(SHORT, ACTIONS), [0.0, 1.0, 1.0])
    assert model.max_length_ == 3


def test_second_fit_resolves_max_length_again():
    mdp = small_mdp()
    model = MaxEnt()
    model.fit(mdp, Demonstrations.from_lists(SHORT, ACTIONS))
    model.fit(mdp, Demonstrations.from_lists([[0, 0, 0, 1, 3], [1, 3]], [[2, 2, 0, 1], [0]]))
    assert model.max_length_ == 5


@pytest.mark.parametrize("max_length", [7, np.int64(7), 7.0])
def test_max_length_is_used_as_passed(max_length: object):
    mdp = small_mdp()
    model = MaxEnt(max_length)
    theta = model.fit(mdp, Demonstrations.from_lists(SHORT, ACTIONS))
    assert model.max_length_ == 7
    assert model.time_marginals(mdp, theta).shape == (7, 4)
    assert model.max_length is max_length


def test_demonstrations_longer_than_max_length():
    with raises(InvalidDemos, parameter="demos", value=3, index=0):
        MaxEnt(2).fit(small_mdp(), Demonstrations.from_lists(SHORT, ACTIONS))


def test_max_length_changes_the_model():
    mdp = small_mdp()
    assert MaxEnt(3).log_partition(mdp, THETAS[0]) < MaxEnt(4).log_partition(mdp, THETAS[0])


@pytest.mark.parametrize(
    "call",
    [
        lambda model, mdp: model.log_prob(mdp, THETAS[0], Demonstrations.from_lists(SHORT, ACTIONS)),
        lambda model, mdp: model.log_partition(mdp, THETAS[0]),
        lambda model, mdp: model.expected_features(mdp, THETAS[0]),
        lambda model, mdp: model.hessian(mdp, THETAS[0]),
        lambda model, mdp: model.state_marginals(mdp, THETAS[0]),
        lambda model, mdp: model.edge_marginals(mdp, THETAS[0]),
        lambda model, mdp: model.time_marginals(mdp, THETAS[0]),
        lambda model, mdp: model.null_directions(mdp, THETAS[0]),
        lambda model, mdp: model.sample(mdp, THETAS[0], 3),
    ],
)
def test_max_length_none_requires_a_fit(call: object):
    with raises(NotFitted, parameter="max_length"):
        call(MaxEnt(), small_mdp())  # type: ignore[operator]


# Samples.


def test_samples_are_reproducible():
    mdp = small_mdp()
    model = MaxEnt(LENGTH)
    one = model.sample(mdp, THETAS[0], 50, seed=4)
    assert len(one) == 50
    assert one == model.sample(mdp, THETAS[0], 50, seed=4)
    assert one == model.sample(mdp, THETAS[0], 50, seed=np.random.default_rng(4))
    assert one != model.sample(mdp, THETAS[0], 50, seed=5)
    rng = np.random.default_rng(4)
    assert model.sample(mdp, THETAS[0], 50, seed=rng) != model.sample(mdp, THETAS[0], 50, seed=rng)


def test_samples_without_a_seed_differ():
    mdp = small_mdp()
    assert MaxEnt(LENGTH).sample(mdp, THETAS[0], 50) != MaxEnt(LENGTH).sample(mdp, THETAS[0], 50)


@pytest.mark.parametrize("length", [1, LENGTH, math.inf])
@pytest.mark.parametrize("condition", CONDITIONS)
def test_samples_are_possible_under_the_model(condition: str, length: float):
    mdp = small_mdp(gamma=1.0)
    model = MaxEnt(length, condition=condition)
    theta = np.array([-2.0, -1.0, -1.0, -1.0])
    demos = model.sample(mdp, theta, 200, seed=0)
    assert np.all(np.isfinite(model.log_prob(mdp, theta, demos)))
    assert demos.lengths.max() <= length


def test_samples_agree_with_the_enumerated_distribution():
    """Pearson's statistic over all trajectories; false-alarm rate 1e-4, with a fixed seed."""
    from scipy.stats import chi2

    mdp, n = small_mdp(), 20_000
    paths = Enumeration(mdp, LENGTH)
    demos = MaxEnt(LENGTH).sample(mdp, THETAS[0], n, seed=1)
    edges = np.split(demos.steps(mdp).edge, demos.steps(mdp).step_ptr[1:-1])
    rows = [
        paths.index[tuple(demo.states.tolist()), tuple(used.tolist())] for demo, used in zip(demos, edges, strict=True)
    ]
    expected = n * paths.law(THETAS[0]).p
    counts = np.bincount(rows, minlength=len(paths.listed))
    assert np.all(counts[expected == 0.0] == 0)
    counts, expected = counts[expected > 0.0], expected[expected > 0.0]
    assert expected.min() > 5
    assert expected.size > 30
    assert np.sum((counts - expected) ** 2 / expected) < chi2.isf(1e-4, expected.size - 1)


# Estimator interface.


def test_parameters_can_be_read_set_and_cloned():
    model = MaxEnt(
        5, (-1, 1), stop="terminal", condition="start", ridge=0.1, solver="lbfgs", gtol=1e-4, max_evaluations=9
    )
    params = model.get_params()
    assert params == {
        "max_length": 5, "bounds": (-1, 1), "stop": "terminal", "condition": "start", "ridge": 0.1, "solver": "lbfgs",
        "gtol": 1e-4, "max_evaluations": 9, "arithmetic": "auto", "max_memory": None,
        "device": "cpu",
    }  # fmt: skip
    assert clone(model).get_params() == params
    assert model.set_params(ridge=0.5, max_length=None) is model
    assert (model.ridge, model.max_length) == (0.5, None)
    with pytest.raises(ValueError, match="Invalid parameter 'length'"):
        model.set_params(length=3)


def test_constructor_neither_changes_nor_checks_parameters():
    """Parameters are checked when used, so that clone and set_params always work."""
    bounds = np.array([[-1.0, 1.0]])
    assert MaxEnt(0, bounds).bounds is bounds
    assert MaxEnt(max_length="x", solver="?").get_params()["solver"] == "?"


def test_a_clone_is_not_fitted():
    mdp, model = small_mdp(), MaxEnt()
    model.fit(mdp, Demonstrations.from_lists(SHORT, ACTIONS))
    fresh = clone(model)
    assert not hasattr(fresh, "max_length_")
    assert not hasattr(fresh, "result_")
    with pytest.raises(NotFitted):
        fresh.log_partition(mdp, THETAS[0])


def test_repr_shows_changed_parameters():
    assert repr(MaxEnt(5, ridge=0.1)) == "MaxEnt(max_length=5, ridge=0.1)"


def test_fitted_model_can_be_pickled():
    mdp, demos = small_mdp(), Demonstrations.from_lists(SHORT, ACTIONS)
    model = MaxEnt(bounds=(-2, 2))
    theta = model.fit(mdp, demos)
    copy = pickle.loads(pickle.dumps(model))
    assert copy.max_length_ == 3
    assert copy.result_.status is Status.CONVERGED
    assert copy.result_.at_bound == model.result_.at_bound != ()
    np.testing.assert_array_equal(copy.result_.theta, theta)
    np.testing.assert_array_equal(copy.log_prob(mdp, theta, demos), model.log_prob(mdp, theta, demos))
    assert copy.get_params() == model.get_params()


def test_maxent_implements_the_model_protocol():
    assert isinstance(MaxEnt(), IRLModel)
    assert limiirl.MaxEnt is MaxEnt
    assert not isinstance(object(), IRLModel)


def test_arguments_are_not_changed():
    mdp, demos = small_mdp(), Demonstrations.from_lists(SHORT, ACTIONS)
    fingerprint = mdp.fingerprint()
    weights, start, bounds = np.array([1.0, 2.0, 3.0]), np.full(4, 9.0), np.array([[-1.0, 1.0]] * 4)
    MaxEnt(3, bounds).fit(mdp, demos, weights, start)
    np.testing.assert_array_equal(weights, [1.0, 2.0, 3.0])
    np.testing.assert_array_equal(start, np.full(4, 9.0))
    np.testing.assert_array_equal(bounds, [[-1.0, 1.0]] * 4)
    assert mdp.fingerprint() == fingerprint


def test_memory_bound_does_not_change_results():
    mdp, demos = small_mdp(), Demonstrations.from_lists(SHORT, ACTIONS)
    unlimited, limited = MaxEnt(60), MaxEnt(60, max_memory=0)
    np.testing.assert_allclose(limited.log_prob(mdp, THETAS, demos), unlimited.log_prob(mdp, THETAS, demos), rtol=1e-13)
    np.testing.assert_allclose(limited.fit(mdp, demos), unlimited.fit(mdp, demos), atol=1e-9)
