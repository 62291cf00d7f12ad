"""EM: each step against a plain implementation, a nondecreasing objective, empty intents, and warnings."""

import itertools
import warnings
from functools import partial

import numpy as np
import pytest

from limiirl import BayesianIntentMixture, IntentMixture, MaxCausalEnt, MaxEnt, RewardEnsemble, _progress
from limiirl.errors import ConvergenceWarning, DegenerateIntentWarning, DivergentPartition, InvalidParameter
from limiirl.irl.problem import FitProblem, make_problem
from limiirl.mixture import estimator
from limiirl.mixture.em import SMALLEST_WEIGHT, Settings, Start, floor_weights, nearly_empty, run
from limiirl.worlds import ElementWorld
from tests.helpers import raises
from tests.oracles.mixture import crossings, plain_em, responsibilities, walks

MDP = crossings()
DEMOS, LABELS = walks(120, seed=3)
IRL = MaxEnt(max_length=7, bounds=(-5, 5))


def decreases(history) -> list[float]:
    """Decreases of the objective in steps without an event."""
    return [before.objective - after.objective for before, after in itertools.pairwise(history) if not after.event]


def fit_mixture(**parameters):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.simplefilter("ignore", DegenerateIntentWarning)
        return IntentMixture(**{"n_intents": 2, "irl": IRL, "random_state": 0} | parameters).fit(MDP, DEMOS)


def test_every_iteration_equals_the_plain_implementation():
    U = np.random.default_rng(0).dirichlet(np.ones(2), size=len(DEMOS))
    irl = MaxEnt(max_length=7, bounds=(-5, 5), gtol=1e-9)
    rho, thetas, log_liks = plain_em(irl, MDP, DEMOS, U, n_steps=6)
    with pytest.warns(ConvergenceWarning):
        mix = IntentMixture(2, irl, init=U, max_iter=6).fit(MDP, DEMOS)
    np.testing.assert_allclose([entry.log_likelihood for entry in mix.history_], log_liks, rtol=1e-9)
    np.testing.assert_allclose(mix.weights_, rho, rtol=1e-6)
    np.testing.assert_allclose(mix.thetas_, thetas, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("max_evaluations", [2, 3, 50])
@pytest.mark.parametrize("init", ["kmeans", "gmm", "random", "random_rewards"])
@pytest.mark.parametrize("reward_init", ["mle", "mean", "mean_clipped", "mean_ray"])
def test_the_objective_never_decreases(max_evaluations, init, reward_init):
    mix = fit_mixture(n_intents=3, init=init, reward_init=reward_init, max_evaluations=max_evaluations, max_iter=40)
    assert len(mix.history_) > 3
    assert max(decreases(mix.history_)) <= 1e-9 * abs(mix.log_likelihood_)
    assert [entry.event for entry in mix.history_[2:]] == [""] * (mix.n_iter_ - 1)


@pytest.mark.parametrize("solver", ["newton", "lbfgs"])
@pytest.mark.parametrize("ridge", [0.0, 0.3])
def test_the_penalised_objective_never_decreases_for_groups_and_any_solver(solver, ridge):
    irl = MaxEnt(max_length=7, bounds=(-5, 5), ridge=ridge, solver=solver)
    groups = np.arange(len(DEMOS)) // 3
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        mix = IntentMixture(2, irl, init="random", max_evaluations=4, random_state=1, max_iter=30)
        mix.fit(MDP, DEMOS, groups=groups)
    assert max(decreases(mix.history_)) <= 1e-9 * abs(mix.log_likelihood_)
    penalty = 0.5 * ridge * len(DEMOS) / 2 * np.sum(mix.thetas_**2) / len(np.unique(groups))
    np.testing.assert_allclose(mix.history_[-1].log_likelihood - mix.history_[-1].objective, penalty, rtol=1e-9)


@pytest.mark.parametrize("stop", ["terminal", "terminal_or_max_length"])
@pytest.mark.parametrize("condition", ["none", "start"])
def test_other_trajectory_sets_and_conditions(stop, condition):
    world = ElementWorld(seed=3, gamma=1.0)
    demos, _ = world.sample(40, seed=1)
    irl = MaxEnt(max_length=int(demos.lengths.max()), stop=stop, condition=condition)
    mix = IntentMixture(2, irl, random_state=0, max_iter=5, resp_tol=1e-3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        mix.fit(world.mdp, demos)
    assert max(decreases(mix.history_)) <= 1e-9 * abs(mix.log_likelihood_)
    U, log_lik = responsibilities(mix.irl_.log_prob(world.mdp, mix.thetas_, demos), mix.weights_)
    np.testing.assert_allclose(mix.responsibilities_, U, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(mix.log_likelihood_, log_lik.mean(), rtol=1e-10)


def test_unrecorded_actions_with_action_features():
    src, dst, action = [0, 0, 0, 1, 2], [1, 1, 2, 3, 3], [0, 1, 2, 0, 0]
    phi = [[1.0, 0.0], [0.0, 1.0], [0.0, 0.0], [0.0, 0.0], [0.0, 0.0]]
    mdp = type(MDP).from_edges(src, dst, action=action, p0=[1, 0, 0, 0], edge_features=phi)
    demos = type(DEMOS).from_lists([[0, 1, 3]] * 6 + [[0, 2, 3]] * 5 + [[0, 1]] * 2)
    mix = IntentMixture(2, MaxEnt(max_length=3, bounds=(-3, 3)), init="random", random_state=2, max_iter=10)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        mix.fit(mdp, demos)
    assert max(decreases(mix.history_)) <= 1e-9
    U, _ = responsibilities(mix.irl_.log_prob(mdp, mix.thetas_, demos), mix.weights_)
    np.testing.assert_allclose(mix.responsibilities_, U, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("kind", [IntentMixture, BayesianIntentMixture])
def test_more_iterations_than_the_memory_can_record_are_refused(kind):
    with raises(InvalidParameter, parameter="max_iter", value=2**40):
        kind(2, IRL, max_iter=2**40).fit(MDP, DEMOS)


@pytest.mark.parametrize("annealing", [None, (10.0, 4), (1000.0, 20)])
@pytest.mark.parametrize("max_iter", [0, 1, 5, 100])
def test_responsibilities_and_likelihood_are_those_of_the_parameters(max_iter, annealing):
    mix = fit_mixture(init="random", max_iter=max_iter, annealing=annealing)
    U, log_lik = responsibilities(IRL.log_prob(MDP, mix.thetas_, DEMOS), mix.weights_)
    np.testing.assert_allclose(mix.responsibilities_, U, rtol=1e-10, atol=1e-13)
    np.testing.assert_allclose(mix.log_likelihood_, log_lik.mean(), rtol=1e-12)
    np.testing.assert_array_equal(mix.labels_, np.argmax(U, axis=1))
    assert mix.n_iter_ <= max_iter
    np.testing.assert_allclose(mix.predict_proba(DEMOS), U, rtol=1e-10, atol=1e-13)
    np.testing.assert_allclose(mix.score(DEMOS), mix.log_likelihood_, rtol=1e-12)


def test_the_papers_stopping_rule():
    mix = fit_mixture(resp_tol=1e-4)
    assert mix.converged_
    changes = [entry.change for entry in mix.history_]
    assert changes[-1] < 1e-4
    assert min(changes[1:-1]) >= 1e-4
    before = fit_mixture(resp_tol=1e-4, max_iter=mix.n_iter_ - 1)
    wanted = np.abs(mix.responsibilities_ - before.responsibilities_).sum(axis=1).mean()
    np.testing.assert_allclose(changes[-1], wanted, rtol=1e-6)


def test_the_stopping_rule_of_the_likelihood():
    mix = fit_mixture(resp_tol=0.0, likelihood_tol=1e-4)
    rises = np.diff([entry.objective for entry in mix.history_])
    assert mix.converged_
    assert rises[-1] < 1e-4
    assert rises[:-1].min() >= 1e-4


def test_at_least_two_e_steps_even_from_the_solution():
    solution = fit_mixture()
    again = IntentMixture(2, IRL, init=solution.ensemble_).fit(MDP, DEMOS)
    assert again.n_iter_ >= 1
    assert np.isnan(again.history_[0].change)
    np.testing.assert_allclose(again.log_likelihood_, solution.log_likelihood_, rtol=1e-8)


def test_non_convergence_issues_a_warning_with_a_remedy():
    with pytest.warns(ConvergenceWarning, match=r"EM did not converge in 2 iterations: .* Raise max_iter"):
        mix = IntentMixture(2, IRL, init="random", random_state=0, max_iter=2).fit(MDP, DEMOS)
    assert not mix.converged_
    assert mix.n_iter_ == 2


def test_the_first_change_is_the_realised_epsilon_of_the_warm_start():
    mix = fit_mixture(init=LABELS, max_iter=0)
    wanted = np.abs(mix.responsibilities_ - np.eye(2)[LABELS]).sum(axis=1).mean()
    np.testing.assert_allclose(mix.history_[0].change, wanted, rtol=1e-10)
    assert mix.history_[0].event == "start"


def test_mean_rewards_outside_the_bounds_are_marked_and_projected():
    world = ElementWorld(seed=1)
    demos, _ = world.sample(60, seed=2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        mix = IntentMixture(3, MaxEnt(), reward_init="mean", random_state=0, max_iter=20).fit(world.mdp, demos)
    assert [entry.event for entry in mix.history_[:3]] == ["start", "projected", ""]
    assert np.all((mix.thetas_ >= -10) & (mix.thetas_ <= 0))
    assert max(decreases(mix.history_)) <= 1e-9 * abs(mix.log_likelihood_)


def test_the_step_into_the_bounds_does_not_count_as_convergence():
    free = fit_mixture(irl=MaxEnt(7, None)).ensemble_
    narrow = fit_mixture(irl=MaxEnt(7, (-0.1, 0.2)), init=free, likelihood_tol=1e-5)
    assert narrow.history_[1].event == "projected"
    assert narrow.history_[1].objective < narrow.history_[0].objective
    assert narrow.n_iter_ >= 2
    assert max(decreases(narrow.history_)) <= 1e-9


def test_stopping_during_annealing_issues_a_warning():
    with pytest.warns(ConvergenceWarning, match=r"EM did not converge in 3 iterations: .* \(event 'annealed'\)"):
        IntentMixture(2, IRL, "random", annealing=(100, 50), max_iter=3, random_state=0).fit(MDP, DEMOS)


def test_annealing_is_marked_and_ends_at_temperature_one():
    mix = fit_mixture(annealing=(10.0, 4), init="random", max_iter=60)
    temperatures = [entry.temperature for entry in mix.history_[:6]]
    np.testing.assert_allclose(temperatures, [10.0, 10**0.75, 10**0.5, 10**0.25, 1.0, 1.0], rtol=1e-12)
    assert [entry.event for entry in mix.history_[:6]] == ["start", *["annealed"] * 4, ""]
    assert max(decreases(mix.history_)) <= 1e-9 * abs(mix.log_likelihood_)
    U, _ = responsibilities(IRL.log_prob(MDP, mix.thetas_, DEMOS), mix.weights_)
    np.testing.assert_allclose(mix.responsibilities_, U, rtol=1e-9, atol=1e-12)


def with_empty_intent() -> RewardEnsemble:
    """Return an ensemble whose third intent, to stay at the start, explains no demonstration."""
    return RewardEnsemble([0.5, 0.4, 0.1], [[0.5, 1.5, -0.5], [0.4, -0.5, 1.2], [-5.0, -5.0, -5.0]])


@pytest.mark.parametrize("degenerate", ["fit", "keep", "reseed"])
def test_treatment_of_an_empty_intent(degenerate):
    demos = DEMOS[DEMOS.lengths >= 4]
    mix = IntentMixture(3, IRL, init=with_empty_intent(), degenerate=degenerate, max_iter=30)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        mix.fit(MDP, demos)
    assert np.all(np.isfinite(mix.thetas_))
    assert np.all(np.isfinite(mix.responsibilities_))
    assert np.all(mix.weights_ >= SMALLEST_WEIGHT * (1 - 1e-12))
    np.testing.assert_allclose(mix.weights_.sum(), 1.0, rtol=1e-12)
    assert max(decreases(mix.history_)) <= 1e-9 * abs(mix.log_likelihood_)
    issued = [str(warning.message) for warning in caught if warning.category is DegenerateIntentWarning]
    if degenerate == "fit":
        assert np.abs(mix.thetas_[2] - with_empty_intent().thetas[2]).max() > 1.0
        assert mix.weights_[2] > 10.0 * mix.history_[1].weights[2]
        assert [entry.event for entry in mix.history_] == ["start", *[""] * mix.n_iter_]
        assert len(issued) == 1
    if degenerate == "keep":
        np.testing.assert_array_equal(mix.thetas_[2], with_empty_intent().thetas[2])
        assert len(issued) == 1
        assert "Intent 2" in issued[0]
        assert "degenerate='reseed'" in issued[0]
    if degenerate == "reseed":
        assert mix.history_[1].event == "reseeded 2"
        assert mix.weights_[2] > 1e-3


def test_indistinct_intents_warn():
    # Nearly equal rewards assign nearly equal likelihoods, and EM with this tolerance stops there.
    start = RewardEnsemble([0.4, 0.6], [[0.5, 0.2, 0.1], [0.501, 0.2, 0.1]])
    with pytest.warns(DegenerateIntentWarning, match="Intents 0 and 1 .* ratio of their likelihoods"):
        IntentMixture(2, IRL, init=start, resp_tol=0.05, max_iter=50).fit(MDP, DEMOS)
    with warnings.catch_warnings():
        warnings.simplefilter("error", DegenerateIntentWarning)
        IntentMixture(2, IRL, init="kmeans", max_iter=50, resp_tol=1e-3, random_state=0).fit(MDP, DEMOS)


def test_reseeding_fits_the_demonstration_with_the_lowest_likelihood():
    demos = DEMOS[DEMOS.lengths >= 4]
    ready = make_problem(IRL, MDP, demos)
    _, log_lik = responsibilities(ready.log_prob(np.array(with_empty_intent().thetas)), with_empty_intent().weights)
    worst = int(np.argmin(log_lik))
    start = Start(with_empty_intent().weights, np.array(with_empty_intent().thetas))
    result = run(ready, start, Settings(max_iter=1, degenerate="reseed"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wanted = IRL.fit(MDP, demos, weights=np.arange(len(demos)) == worst, start=with_empty_intent().thetas[2])
    np.testing.assert_allclose(result.thetas[2], wanted, rtol=1e-6, atol=1e-6)
    assert [entry.event for entry in result.history] == ["start", "reseeded 2"]


def test_floored_weights_maximise_the_likelihood_subject_to_the_floor():
    rng = np.random.default_rng(0)
    for _ in range(50):
        sizes = rng.gamma(0.05, size=5) * 10.0 ** rng.uniform(-9, 3)
        sizes[rng.integers(5)] = 0.0
        sizes[0] += 1.0
        rho = floor_weights(sizes, sizes.sum())
        assert rho.min() >= SMALLEST_WEIGHT * (1 - 1e-9)
        np.testing.assert_allclose(rho.sum(), 1.0, rtol=1e-12)
        value = np.sum(sizes * np.log(rho))
        for _ in range(20):
            other = np.maximum(rng.dirichlet(0.2 * np.ones(5)), SMALLEST_WEIGHT)
            other = 0.9 * rho + 0.1 * other / other.sum()
            if other.min() >= SMALLEST_WEIGHT:
                assert value >= np.sum(sizes * np.log(other)) - 1e-12 * abs(value)


def test_nearly_empty_intents():
    assert nearly_empty(np.array([0.4, 0.6, 0.9999]), 10).tolist() == [True, False, False]
    assert nearly_empty(np.array([9.0, 11.0]), 10_000).tolist() == [True, False]


def test_progress_reports_every_iteration_of_every_start():
    seen = []
    mix = fit_mixture(n_init=2, init="random", progress=lambda *report: seen.append(report))
    best = int(np.argmax([restart.objective for restart in mix.restarts_]))
    own = [report for report in seen if report[2].startswith(f"initialisation {best + 1} of 2: ")]
    assert [done for done, _, _ in own] == [entry.iteration for entry in mix.history_]
    assert all(f"{entry.log_likelihood:.6f}" in text for entry, (_, _, text) in zip(mix.history_, own, strict=True))
    assert {total for _, total, _ in seen} == {mix.max_iter}
    assert len(seen) == sum(restart.n_iter + 1 for restart in mix.restarts_)
    assert [entry.iteration for entry in mix.history_] == list(range(mix.n_iter_ + 1))
    np.testing.assert_array_equal(mix.history_[-1].weights, mix.weights_)


@pytest.mark.slow
def test_restarts_are_compared_with_the_best():
    mix = fit_mixture(n_intents=3, n_init=6, init="random_rewards", max_iter=60)
    objectives = [restart.objective for restart in mix.restarts_]
    assert mix.objective_ == max(objectives)
    best = mix.restarts_[int(np.argmax(objectives))]
    assert best.best
    assert best.distance <= 1e-12
    np.testing.assert_array_equal(best.ensemble.thetas, mix.thetas_)
    for restart in mix.restarts_:
        assert 0.0 <= restart.distance <= 1.0
        assert restart.best == (max(objectives) - restart.objective <= 1e-5)
    assert len({round(value, 9) for value in objectives}) > 1


class WorseningModel:
    """A model whose fit ignores the data and lowers the likelihood."""

    bounds = (-5, 5)

    def fit(self, mdp, demos, weights=None, start=None):
        return -np.ones(mdp.n_features) if start is None else np.asarray(start) * 0.1 - 1.0

    def log_prob(self, mdp, thetas, demos):
        return IRL.log_prob(mdp, thetas, demos)


def test_an_m_step_that_lowers_the_likelihood_is_rejected():
    ready = FitProblem(WorseningModel(), MDP, DEMOS, make_problem(IRL, MDP, DEMOS).units)
    solution = fit_mixture()
    result = run(ready, Start(solution.weights_, solution.thetas_), Settings(max_iter=4))
    np.testing.assert_array_equal(result.thetas, solution.thetas_)
    assert max(decreases(result.history)) <= 1e-9


class PlainModel(WorseningModel):
    """MaxEnt with `fit` and `log_prob` only, like the model of a user."""

    def fit(self, mdp, demos, weights=None, start=None):
        return IRL.fit(mdp, demos, weights, start)


def test_a_model_with_two_methods_gives_the_same_mixture():
    U = np.random.default_rng(4).dirichlet(np.ones(2), size=len(DEMOS))
    ready = make_problem(IRL, MDP, DEMOS)
    start = Start(U.mean(axis=0), ready.m_step(ready.moments(U), None, np.arange(2), 1000).thetas, U)
    settings = Settings(max_iter=5, max_evaluations=1000)
    own = run(ready, start, settings)
    plain = run(FitProblem(PlainModel(), MDP, DEMOS, ready.units), start, Settings(max_iter=5))
    np.testing.assert_allclose(plain.thetas, own.thetas, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(plain.U, own.U, rtol=1e-5, atol=1e-8)


def test_a_limit_on_evaluations_is_honoured_or_raises():
    class Capped(PlainModel):
        max_evaluations = 7

        def fit(self, mdp, demos, weights=None, start=None):
            caps.append(self.max_evaluations)
            return super().fit(mdp, demos, weights, start)

    caps: list[int] = []
    U = np.full((len(DEMOS), 1), 1.0)
    units = make_problem(IRL, MDP, DEMOS).units
    capped, plain = (FitProblem(model, MDP, DEMOS, units) for model in (Capped(), PlainModel()))
    capped.m_step(U, None, np.arange(1), 3)
    capped.m_step(U, None, np.arange(1), None)
    assert caps == [3, 7]
    assert capped.model.max_evaluations == 7
    with raises(InvalidParameter, parameter="max_evaluations", value=3):
        plain.m_step(U, None, np.arange(1), 3)


def test_a_subclass_with_its_own_likelihood_loses_the_statistics_of_its_parent():
    class Doubled(MaxEnt):
        def log_prob(self, mdp, thetas, demos):
            return 2.0 * super().log_prob(mdp, thetas, demos)

    class Renamed(MaxEnt):
        pass

    assert "sufficient_statistics" in Renamed.supports
    assert type(make_problem(Renamed(), MDP, DEMOS)).__name__ == "MaxEntProblem"
    assert MaxEnt.supports - Doubled.supports == {"sufficient_statistics"}
    assert type(make_problem(Doubled(), MDP, DEMOS)) is FitProblem


def test_verbose_writes_to_stderr_and_calls_progress(capsys, monkeypatch):
    monkeypatch.setattr(estimator, "report_progress", partial(_progress.report_progress, every_s=0.0))
    seen = []
    fit_mixture(verbose=True, n_init=2, init="random", max_iter=3, progress=lambda *report: seen.append(report))
    written = capsys.readouterr()
    assert written.out == ""
    lines = written.err.splitlines()
    assert len(lines) == len(seen) == 8
    for line, (done, total, message) in zip(lines, seen, strict=True):
        assert line.startswith(f"EM: {done} of {total}, {message}")
    assert [done for done, _, _ in seen] == [0, 1, 2, 3] * 2


def test_n_init_is_checked_before_the_data():
    with raises(InvalidParameter, parameter="n_init", value=0):
        IntentMixture(n_init=0).fit(None, None)


@pytest.mark.parametrize("parameter", ["init", "reward_init"])
def test_initial_rewards_with_an_infinite_partition_function(parameter):
    loop = type(MDP).from_edges([0, 0, 1], [0, 1, 0], p0=[1, 0], state_features=np.eye(2))
    demos = type(DEMOS).from_lists([[0], [0, 1], [0, 0]])
    thetas = np.array([[1.0, 2.0], [0.0, 3.0]])
    given = {"init": {"init": RewardEnsemble([0.5, 0.5], thetas)}, "reward_init": {"reward_init": lambda *_: thetas}}
    mix = IntentMixture(2, MaxEnt(np.inf, bounds=None), random_state=0, **given[parameter])
    with raises(DivergentPartition, parameter=parameter) as caught:
        mix.fit(loop, demos)
    message, inner = str(caught.value), caught.value.__cause__
    assert (caught.value.value, caught.value.index) == (inner.value, inner.index)
    assert message.endswith(str(inner))
    assert message.count("ower rewards") == 1
    assert ("reward_init" in message) == (parameter == "reward_init")


@pytest.mark.parametrize("irl", [MaxEnt(max_evaluations=2), MaxCausalEnt(max_evaluations=2)])
def test_an_m_step_respects_the_limit_of_the_model(irl):
    mix = fit_mixture(n_intents=2, irl=irl, init="random", max_iter=3)
    assert all(0 < step.n_evaluations <= 2 * 2 for step in mix.history_[1:])
