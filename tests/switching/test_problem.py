"""The E-step and M-step of the rewards against enumeration and differences."""

import numpy as np
import pytest

from limiirl import Demonstrations, MaxCausalEnt, MaxEnt
from limiirl.errors import InvalidDemos, InvalidParameter
from limiirl.switching.problem import DistinctDecisions, Parameters, SwitchingProblem, check_model
from limiirl.switching.transitions import Logits
from tests.helpers import raises
from tests.oracles.switching import emission_tables, random_problem


def build(problem, **options):
    x = None
    if problem.covariates is not None:
        x = problem.x
    return SwitchingProblem(MaxCausalEnt(ridge_per="step", **options), problem.mdp, problem.demos, problem.kind, x)


def parameters(problem):
    return Parameters(problem.initial, problem.thetas, Logits(problem.A, problem.B))


@pytest.mark.parametrize("recorded", ["all", "some", "none"])
def test_distinct_decisions_have_the_probabilities_of_the_steps(recorded):
    problem = random_problem(0, recorded=recorded, lengths=(30, 1, 25))
    own = build(problem)
    expected = np.concatenate(emission_tables(problem.mdp, problem.thetas, problem.demos))
    log_emission = own.log_emission(problem.thetas)
    assert len(log_emission) < len(expected)
    np.testing.assert_allclose(np.exp(log_emission[own.decisions.number]), expected, rtol=1e-11, atol=0)
    decided = np.concatenate([demo.states[:-1] for demo in problem.demos])
    np.testing.assert_array_equal(own.decisions.state, decided)


@pytest.mark.parametrize("kind", ["homogeneous", "state", "covariates"])
def test_fishers_identity(kind):
    """The gradient of the log-likelihood is that of the expected complete log-likelihood of the E-step."""
    problem = random_problem(1, kind, 2, "some")
    own, h = build(problem), 1e-6
    counts = own.e_step(parameters(problem))
    objective = own.emissions.objective(counts.decisions)
    _, gradients = objective.evaluate(problem.thetas, np.arange(2))
    gradients *= -counts.decisions.sum(axis=0)[:, None]
    for index in np.ndindex(*problem.thetas.shape):
        ends = []
        for step in (h, -h):
            moved = problem.thetas.copy()
            moved[index] += step
            ends.append(sum(one.log_prob for one in problem.enumerate(moved)))
        assert (ends[0] - ends[1]) / (2 * h) == pytest.approx(gradients[index], abs=1e-7)


@pytest.mark.parametrize("ridge", [0.0, 0.4])
def test_m_step_of_the_rewards_reaches_a_stationary_point(ridge):
    problem = random_problem(2, n_intents=2, lengths=(40, 30))
    own = build(problem, ridge=ridge, gtol=1e-9)
    start = parameters(problem)
    counts = own.e_step(start)
    after, _ = own.m_step(start, counts, 1.0, 200)
    for _ in range(5):  # each M-step reduces the gradient by a factor
        after, _ = own.m_step(after, counts, 1.0, 200)

    def expected(thetas):
        log_emission = own.log_emission(thetas)
        return np.sum(counts.decisions * log_emission) - own.emissions.penalty(thetas)

    assert expected(after.thetas) > expected(problem.thetas)
    for index in np.ndindex(*after.thetas.shape):
        ends = []
        for step in (1e-4, -1e-4):
            moved = after.thetas.copy()
            moved[index] += step
            ends.append(expected(moved))
        assert (ends[0] - ends[1]) / 2e-4 == pytest.approx(0.0, abs=1e-5)


def test_penalty_is_per_step():
    problem = random_problem(3, "state", n_intents=2, lengths=(20, 5))
    own = build(problem, ridge=0.3)
    expected = 0.5 * 0.3 * 25 / 2 * np.sum(problem.thetas**2) + 0.5 * 2.0 * np.sum(problem.B**2)
    assert own.penalty(parameters(problem), 2.0) == pytest.approx(expected, rel=1e-12)


def test_initial_probabilities_are_the_mean_posterior_of_the_first_step():
    problem = random_problem(4, n_intents=3)
    own = build(problem)
    after, _ = own.m_step(parameters(problem), own.e_step(parameters(problem)), 1.0, 5)
    expected = np.mean([one.smooth()[0] for one in problem.enumerate()], axis=0)
    np.testing.assert_allclose(after.initial, expected, rtol=0, atol=1e-12)


def test_windows_have_nearly_equal_lengths():
    problem = random_problem(5, lengths=(45, 1, 20, 21))
    number, counts = build(problem).sum_windows(20)
    assert np.bincount(number).tolist() == [15, 15, 15, 1, 20, 11, 10]
    assert np.all(np.isin(np.diff(number), (0, 1)))
    np.testing.assert_array_equal(counts.sum(axis=1), np.bincount(number))


@pytest.mark.parametrize("step", [0, 1, 4, 10])
def test_impossible_decision_raises_with_its_demonstration_and_step(step):
    problem = random_problem(6)
    index = {0: (0, 0), 1: (1, 0), 4: (1, 3), 10: (2, 5)}[step]
    state = problem.demos[index[0]].states[index[1]]
    own = build(problem)
    with raises(InvalidDemos, parameter="demos", value=state, index=index):
        own._check_possible(step)


@pytest.mark.parametrize(
    "model", [MaxEnt(), MaxEnt(max_length=5), MaxCausalEnt(max_length=5), object()], ids=lambda m: type(m).__name__
)
def test_models_with_another_policy_at_every_step_raise(model):
    with raises(InvalidParameter, parameter="irl"):
        check_model(model)


def test_demonstration_of_one_state_raises_with_its_index():
    problem = random_problem(0)
    demos = Demonstrations.from_lists([problem.demos[1].states.tolist(), [2]])
    with raises(InvalidDemos, parameter="demos", value=1, index=1):
        DistinctDecisions.of(problem.mdp, demos)
