"""The observed information against second differences of an enumerated likelihood, and standard errors from it."""

from types import SimpleNamespace

import numpy as np
import pytest

from limiirl import MDP, Demonstrations, IntentMixture, MaxCausalEnt, SwitchingMixture
from limiirl.errors import InvalidParameter, NotFitted
from limiirl.mixture import free_parameters
from limiirl.switching.information import SwitchingInformation
from limiirl.switching.problem import Parameters, SwitchingProblem
from limiirl.switching.transitions import Logits
from tests.helpers import raises
from tests.oracles.switching import Problem, random_problem
from tests.switching.test_inference import fix_parameters

KINDS = ("homogeneous", "state", "covariates")


def build(problem: Problem, ridge: float = 0.0) -> SwitchingInformation:
    x = None if problem.covariates is None else problem.x
    x, initial = (problem.z, "covariates") if problem.z is not None else (x, "constant")
    own = SwitchingProblem(MaxCausalEnt(ridge=ridge), problem.mdp, problem.demos, problem.kind, x, initial)
    K = len(problem.initial)
    parameters = Parameters(problem.initial, problem.thetas, Logits(problem.A, problem.B), problem.first)
    free = free_parameters(own.model, problem.mdp, np.full(K, 1.0 / K), problem.thetas, own.n_steps)
    return SwitchingInformation(own, parameters, ridge, free)


def compute_log_prob(problem: Problem, values: np.ndarray) -> float:
    """The log-likelihood at parameters in the order initial, thetas, A, B."""
    parts, start = [], 0
    for array in (problem.initial if problem.first is None else problem.first, problem.thetas, problem.A, problem.B):
        parts.append(values[start : start + array.size].reshape(array.shape))
        start += array.size
    first, parts[0] = (None, parts[0]) if problem.first is None else (parts[0], problem.initial)
    moved = Problem(problem.mdp, problem.demos, problem.kind, *parts, problem.x, problem.covariates, first, problem.z)
    return sum(one.log_prob for one in moved.enumerate())


def parameters_of(problem: Problem) -> np.ndarray:
    first = problem.initial if problem.first is None else problem.first
    return np.concatenate([np.ravel(x) for x in (first, problem.thetas, problem.A, problem.B)])


@pytest.mark.parametrize("recorded", ["all", "some"])
@pytest.mark.parametrize("initial", ["constant", "covariates"])
@pytest.mark.parametrize("kind", KINDS)
def test_score_and_information_equal_differences_of_the_enumerated_likelihood(kind, initial, recorded):
    problem = random_problem(11, kind, 2, recorded, lengths=(3, 4), initial=initial)
    own, at, h = build(problem), parameters_of(problem), 2e-3
    counts = own.count()
    basis = own.basis(counts)
    # Perturbations along random combinations of the free directions involve all blocks.
    directions = basis @ np.random.default_rng(0).normal(size=(basis.shape[1], 2))
    directions /= np.linalg.norm(directions, axis=0)

    def value(*steps):
        return compute_log_prob(problem, at + sum(steps))

    expected, gradient = np.zeros((2, 2)), np.zeros(2)
    for i, u in enumerate(directions.T):
        # Fourth-order differences of the gradient.
        gradient[i] = (8 * (value(h * u) - value(-h * u)) - value(2 * h * u) + value(-2 * h * u)) / (12 * h)
        for j, v in enumerate(directions.T):
            total = sum(
                a * b * value(c * h * u, e * h * v)
                for a, c in ((8, 1), (-8, -1), (-1, 2), (1, -2))
                for b, e in ((8, 1), (-8, -1), (-1, 2), (1, -2))
            )
            expected[i, j] = -total / (12 * h) ** 2
    np.testing.assert_allclose(directions.T @ own.score(counts), gradient, rtol=0, atol=1e-7)
    observed = directions.T @ (own.complete(counts) @ directions - own.missing(directions))
    np.testing.assert_allclose(observed, expected, rtol=0, atol=1e-6 * np.abs(expected).max())
    # The missing information is not negligible.
    assert np.abs(own.missing(directions)).max() > 0.02 * np.abs(expected).max()


def test_ridges_add_their_curvature():
    problem = random_problem(12, "covariates", 2)
    plain, ridged = build(problem), build(problem, 0.7)
    counts = plain.count()
    added = ridged.complete(counts) - plain.complete(counts)
    expected = np.concatenate([np.zeros(2), np.full(6, 0.7 * 11 / 2), np.zeros(4), np.full(4, 0.7)])
    np.testing.assert_allclose(added, np.diag(expected), rtol=0, atol=1e-10)


def test_one_intent_has_the_errors_of_an_intent_mixture():
    problem = random_problem(13, n_intents=2, lengths=(60, 80))
    model = MaxCausalEnt(ridge=0.0, gtol=1e-9)
    mix = IntentMixture(1, model).fit(problem.mdp, problem.demos)
    sw = SwitchingMixture(1, model).fit(problem.mdp, problem.demos)
    expected, errors = mix.standard_errors(), sw.standard_errors()
    np.testing.assert_allclose(sw.thetas_, mix.thetas_, rtol=0, atol=1e-5)
    np.testing.assert_array_equal(errors.status, expected.status)
    np.testing.assert_allclose(errors.thetas, expected.thetas, rtol=1e-4, atol=0)
    assert np.isnan(errors.initial).all()
    assert np.isnan(errors.transition).all()


def revealing(seed=0, n_demos=12, length=150):
    """Demonstrations whose actions reveal the intents, the intents, and the mixture."""
    rng = np.random.default_rng(seed)
    P = np.array([[0.9, 0.1], [0.25, 0.75]])
    mdp = MDP.from_edges([0, 0], [0, 0], action=[0, 1], gamma=0.9, action_features=np.eye(2))
    paths = []
    for _ in range(n_demos):
        z = [int(rng.random() < 0.3)]
        for _ in range(length - 1):
            z.append(int(rng.random() < P[z[-1], 1]))
        paths.append(z)
    demos = Demonstrations.from_lists([[0] * (length + 1)] * n_demos, paths)
    # The ridge prevents infinite rewards; 1e-6 leaves actions that contradict the intent a probability of about 1e-4.
    sw = SwitchingMixture(2, MaxCausalEnt(ridge=1e-6), random_state=0, init=np.concatenate(paths)).fit(mdp, demos)
    return demos, np.array(paths), sw


def test_errors_of_observed_intents_are_those_of_proportions():
    demos, paths, sw = revealing()
    counts = np.array([[np.sum((paths[:, :-1] == j) & (paths[:, 1:] == k)) for k in range(2)] for j in range(2)])
    P, first = counts / counts.sum(axis=1, keepdims=True), np.mean(paths[:, 0])
    logits = SimpleNamespace(A=np.log(P), B=np.zeros((2, 0)))
    start = SimpleNamespace(
        initial_=np.array([1 - first, first]), thetas_=30.0 * np.eye(2), logits_=logits, transition_=P
    )
    exact = SwitchingMixture(2, MaxCausalEnt(ridge=1e-6), init=start, max_iter=0).fit(sw.mdp_, demos)
    errors = exact.standard_errors()
    expected = np.sqrt(P * (1 - P) / counts.sum(axis=1, keepdims=True))
    np.testing.assert_allclose(errors.transition, expected, rtol=1e-6)
    np.testing.assert_allclose(errors.A[~np.eye(2, dtype=bool)], (expected / (P * (1 - P)))[:, 0], rtol=1e-6)
    np.testing.assert_allclose(errors.initial, np.sqrt(first * (1 - first) / len(paths)), rtol=1e-6)
    dwell = exact.summary(errors=True)
    np.testing.assert_allclose(dwell.dwell_errors, np.diag(expected) / (1 - np.diag(P)) ** 2, rtol=1e-6)
    assert np.isnan(np.diag(errors.A)).all()


class TestGroups:
    def test_duplicates_in_a_group_do_not_reduce_errors(self):
        demos, _, sw = revealing(1)
        twice = demos + demos
        once = sw.standard_errors(demos, groups=np.arange(12))
        doubled = sw.standard_errors(twice, groups=np.tile(np.arange(12), 2))
        np.testing.assert_allclose(doubled.transition, once.transition, rtol=1e-6)
        np.testing.assert_allclose(doubled.initial, once.initial, rtol=1e-6)
        plain = sw.standard_errors(demos).transition, sw.standard_errors(twice).transition
        np.testing.assert_allclose(plain[0] / plain[1], np.sqrt(2.0), rtol=1e-3)

    def test_independent_groups_have_errors_like_the_observed_information(self):
        demos, _, sw = revealing(2, n_demos=150, length=40)
        clustered = sw.standard_errors(demos, groups=np.arange(150))
        plain = sw.standard_errors(demos)
        assert clustered.method != plain.method
        np.testing.assert_allclose(clustered.transition / plain.transition, 1.0, atol=0.25)

    def test_scores_of_groups_sum_to_the_score(self):
        from limiirl.demos import Groups
        from limiirl.switching.information import group_scores

        problem = random_problem(14, "state", 2, lengths=(2, 6, 3, 5))
        own = build(problem)
        total = own.score(own.count())
        for labels in ([0, 1, 0, 1], ["b", "a", "c", "b"]):
            scores = group_scores(own, Groups.from_labels(labels, 4))
            assert len(scores) == len(set(labels))
            np.testing.assert_allclose(scores.sum(axis=0), total, rtol=0, atol=1e-10)

    def test_groups_of_fit_are_used_by_default(self):
        demos, _, sw = revealing(3)
        groups = np.repeat(["ann", "bob", "eve"], 4)
        grouped = SwitchingMixture(2, MaxCausalEnt(ridge=1e-6), init=sw).fit(sw.mdp_, demos, groups)
        expected = grouped.standard_errors(demos, groups=groups)
        np.testing.assert_array_equal(grouped.standard_errors().transition, expected.transition)
        assert grouped.summary().method == expected.method
        alone = SwitchingMixture(2, MaxCausalEnt(ridge=1e-6), init=sw).fit(sw.mdp_, demos, ["ann"] * 12)
        assert alone.standard_errors().method == sw.standard_errors().method

    def test_one_group_raises(self):
        demos, _, sw = revealing(3)
        with raises(InvalidParameter, parameter="groups", value=1):
            sw.standard_errors(demos, groups=["ann"] * 12)


def test_parameters_without_information_have_no_error():
    problem = random_problem(15, "state", 2, lengths=(30, 40))
    sw = fix_parameters(problem, switching_ridge=0.5)
    unused = problem.mdp.replace(p0=np.eye(4)[0])
    assert sw.standard_errors().transition.shape == (4, 2, 2)
    problem.initial[:] = [1e-8, 1 - 1e-8]
    errors = fix_parameters(problem).standard_errors()
    assert np.isnan(errors.initial).all()
    assert unused.n_states == 4


def test_unvisited_states_have_no_error():
    mdp = MDP.from_edges([0, 0, 1, 1, 2], [0, 1, 0, 1, 0], action=[0, 1, 0, 1, 0], gamma=0.9, state_features=np.eye(3))
    paths = [([0] * 9 + [1] * 9 + [0, 1] * 6) * 5] * 3
    sw = SwitchingMixture(2, MaxCausalEnt(ridge=0.01), "state", random_state=0, max_iter=30, tol=1e-4)
    sw.fit(mdp, Demonstrations.from_lists(paths))
    errors = sw.standard_errors()
    assert np.isnan(errors.transition[2]).all()
    assert np.isnan(errors.B[:, 2]).all()
    assert np.isfinite(errors.B[:, :2]).all()


def test_unfitted_and_loaded_mixtures_raise(tmp_path):
    with raises(NotFitted):
        SwitchingMixture().standard_errors()
    demos, _, sw = revealing(4)
    sw.save(tmp_path / "sw")
    loaded = SwitchingMixture.load(tmp_path / "sw")
    with raises(InvalidParameter, parameter="demos"):
        loaded.standard_errors()
    np.testing.assert_array_equal(loaded.standard_errors(demos).thetas, sw.standard_errors().thetas)
