"""Posteriors, predictions and counts of switching intents against an enumeration of all sequences of intents."""

from types import SimpleNamespace

import numpy as np
import pytest

from limiirl import MLIRL, Demonstrations, IntentMixture, MaxCausalEnt, RewardEnsemble, SwitchingMixture
from limiirl.errors import InvalidDemos, InvalidParameter, NotFitted
from limiirl.switching import Segments
from tests.helpers import raises
from tests.oracles.switching import Sequences, emission_tables, random_problem
from tests.switching.test_estimator import switch

KINDS = ("homogeneous", "state", "covariates")


def fix_parameters(problem, **options):
    """A mixture whose fitted parameters are those of the problem: EM without iterations."""
    K = len(problem.initial)
    options = {"irl": MaxCausalEnt(), "max_iter": 0} | problem.options | options
    mixture = SwitchingMixture(K, options.pop("irl"), problem.kind, problem.start(), **options)
    return mixture.fit(problem.mdp, problem.demos, covariates=problem.covariates)


def cases():
    for kind in KINDS:
        for recorded in ("all", "some", "none"):
            for K, seed in ((2, 0), (3, 1)):
                yield pytest.param((kind, recorded, K, seed, "constant"), id=f"{kind}-{recorded}-{K}")
        yield pytest.param((kind, "some", 3, 2, "covariates"), id=f"{kind}-first-by-covariates")


@pytest.fixture(params=list(cases()))
def problem(request):
    kind, recorded, K, seed, initial = request.param
    return random_problem(seed, kind, K, recorded, initial=initial)


def test_likelihood_equals_the_sum_over_sequences(problem):
    sw, sequences = fix_parameters(problem), problem.enumerate()
    expected = np.array([one.log_prob for one in sequences])
    np.testing.assert_allclose(sw.score_samples(problem.demos, problem.covariates), expected, rtol=0, atol=1e-12)
    predictive = np.concatenate([one.predictive() for one in sequences])
    np.testing.assert_allclose(
        sw.predictive_log_prob(problem.demos, problem.covariates), predictive, rtol=0, atol=1e-12
    )
    assert sw.score(problem.demos, problem.covariates) == pytest.approx(predictive.mean(), abs=1e-12)
    assert sw.log_likelihood_ == pytest.approx(predictive.mean(), abs=1e-12)


def test_posteriors_equal_those_of_the_enumeration(problem):
    sw, sequences = fix_parameters(problem), problem.enumerate()
    arguments = problem.demos, problem.covariates
    filtered = np.concatenate([one.filter() for one in sequences])
    smoothed = np.concatenate([one.smooth() for one in sequences])
    np.testing.assert_allclose(sw.filter_proba(*arguments), filtered, rtol=0, atol=1e-12)
    np.testing.assert_allclose(sw.predict_proba(*arguments), smoothed, rtol=0, atol=1e-12)
    assert np.abs(filtered - smoothed).max() > 1e-3


def test_viterbi_path_is_the_most_probable_sequence(problem):
    sw = fix_parameters(problem)
    paths = np.split(sw.predict(problem.demos, problem.covariates), np.cumsum(problem.demos.lengths - 1)[:-1])
    for path, one in zip(paths, problem.enumerate(), strict=True):
        assert tuple(path.tolist()) in one.best()[1]


def test_expected_counts_equal_those_of_the_enumeration(problem):
    sw, sequences = fix_parameters(problem), problem.enumerate()
    counts = sum(one.pairs().sum(axis=0) for one in sequences)
    np.testing.assert_allclose(sw.switching_graph(problem.demos, problem.covariates).counts, counts, rtol=0, atol=1e-12)
    occupancy = np.zeros((problem.mdp.n_states, len(problem.initial)))
    for demo, one in zip(problem.demos, sequences, strict=True):
        for state, row in zip(demo.states.tolist(), one.smooth(), strict=False):
            occupancy[state] += row
    np.testing.assert_allclose(sw.occupancy(problem.demos, problem.covariates), occupancy, rtol=0, atol=1e-12)
    np.testing.assert_allclose(sw.shares_, occupancy.sum(axis=0) / occupancy.sum(), rtol=0, atol=1e-12)


def test_counts_of_groups_equal_those_of_the_enumeration(problem):
    sw, sequences = fix_parameters(problem), problem.enumerate()
    dynamics = sw.group_dynamics(problem.demos, ["x", "y", "x"], problem.covariates)
    assert dynamics.groups.names.tolist() == ["x", "y"]
    for g, own in enumerate([[0, 2], [1]]):
        pairs = sum(sequences[i].pairs().sum(axis=0) for i in own)
        steps = sum(sequences[i].smooth().sum(axis=0) for i in own)
        np.testing.assert_allclose(dynamics.transitions[g], pairs, rtol=0, atol=1e-12)
        np.testing.assert_allclose(dynamics.steps[g], steps, rtol=0, atol=1e-12)
    alone = sw.group_dynamics(problem.demos, covariates=problem.covariates)
    np.testing.assert_allclose(alone.steps.sum(axis=1), problem.demos.lengths - 1, rtol=1e-12)


@pytest.fixture(scope="module")
def fitted():
    """Eight animals with two recordings each; the last four switch more often."""
    mdp, slow, _ = switch(0, n_demos=8, length=150, stay=0.98)
    _, fast, _ = switch(1, n_demos=8, length=150, stay=0.85)
    demos = (slow + fast).replace(groups=np.repeat(np.arange(8), 2))
    return SwitchingMixture(2, MaxCausalEnt(ridge=1e-4), random_state=0).fit(mdp, demos), demos


class TestCompareGroups:
    def test_a_difference_in_switching_is_significant(self, fitted):
        sw, demos = fitted
        result = sw.compare_groups(demos, condition=np.repeat(["slow", "fast"], 8))
        rows = {row.quantity: row for row in result.rows}
        assert (rows["switches per 100 steps"].n_first, rows["switches per 100 steps"].n_second) == (4, 4)
        assert rows["switches per 100 steps"].p == pytest.approx(2 / 70)
        assert rows["switches per 100 steps"].mean_first > 2 * rows["switches per 100 steps"].mean_second
        assert rows["dwell time, intent 0"].difference < 0.0
        assert rows["share of steps, intent 0"].p > 0.05
        assert "share of steps, intent 1" not in rows  # one share determines the other
        assert set(rows) < set(sw.group_dynamics(demos, None).quantities)
        assert result.groups == tuple("01234567")

    def test_condition_can_be_a_mapping_and_groups_can_be_given(self, fitted):
        sw, demos = fitted
        one = sw.compare_groups(demos, condition=np.repeat(["slow", "fast"], 8), correction="none")
        animals = np.array(list("abcdefgh"))[demos.groups]
        two = sw.compare_groups(demos, animals, dict(zip("abcdefgh", ["slow"] * 4 + ["fast"] * 4, strict=True)))
        assert [row.p for row in one.rows] == [row.p for row in two.rows]

    def test_recordings_are_the_units_without_groups(self, fitted):
        sw, demos = fitted
        result = sw.compare_groups(demos.replace(groups=None), condition=np.repeat([0, 1], 8))
        assert {row.n_first for row in result.rows} == {8}

    def test_errors(self, fitted):
        sw, demos = fitted
        with raises(InvalidDemos, parameter="condition", value="b", index=1):
            sw.compare_groups(demos, condition=["a", "b"] * 8)
        with raises(InvalidParameter, parameter="condition", value=7):
            sw.compare_groups(demos, condition=dict.fromkeys(range(7), "a"))
        with raises(InvalidDemos, parameter="condition"):
            sw.compare_groups(demos)
        with raises(InvalidDemos, parameter="condition"):
            sw.compare_groups(demos, condition=["a"])
        single = SwitchingMixture(1).fit(sw.mdp_, demos)
        with raises(InvalidParameter, parameter="n_intents", value=1):
            single.compare_groups(demos, condition=np.repeat([0, 1], 8))


def test_equal_sequences_are_resolved_towards_the_smallest_intent():
    problem = random_problem(0, n_intents=2)
    problem.thetas[1], problem.initial[:], problem.A[:] = problem.thetas[0], 0.5, 0.0
    np.testing.assert_array_equal(fix_parameters(problem).predict(problem.demos), np.zeros(11))


def test_segments_are_the_runs_of_the_viterbi_path():
    problem = random_problem(4, "state", 3, lengths=(9, 1, 8))
    sw = fix_parameters(problem)
    path, posterior = sw.predict(problem.demos), sw.predict_proba(problem.demos)
    rebuilt, probability, offsets = np.full(18, -1), np.full(18, np.nan), np.array([0, 9, 10, 18])
    segments = sw.segments(problem.demos)
    for i in range(len(segments)):
        steps = slice(*(offsets[segments.demo[i]] + np.array([segments.start[i], segments.stop[i]])))
        assert np.all(rebuilt[steps] == -1)
        rebuilt[steps] = segments.intent[i]
        probability[steps] = segments.probability[i]
        own = posterior[steps, segments.intent[i]]
        assert segments.probability[i] == pytest.approx(own.mean(), abs=1e-12)
    np.testing.assert_array_equal(rebuilt, path)
    inside = np.diff(segments.demo) == 0
    assert np.all(np.diff(segments.intent)[inside] != 0)
    np.testing.assert_array_equal(segments.length, segments.stop - segments.start)
    frame = segments.to_frame()
    assert list(frame.columns) == ["demo", "start", "stop", "intent", "probability"]
    np.testing.assert_array_equal(frame["intent"], segments.intent)


def test_segments_name_demonstrations_by_their_identifiers():
    problem = random_problem(4, lengths=(3, 2))
    named = problem.demos.replace(ids=np.array(["wet", "dry"]))
    assert fix_parameters(problem).segments(named).to_frame()["demo"].iloc[[0, -1]].tolist() == ["wet", "dry"]


def test_text_names_are_matched_by_name():
    problem = random_problem(2, "state", 2)
    names = ("den", "nest", "pond", "tree")
    mdp = problem.mdp.replace(state_names=names)
    shown = [[names[s] for s in demo.states] for demo in problem.demos][::-1]
    actions = [demo.actions[: len(demo) - 1].tolist() for demo in problem.demos][::-1]
    texts = Demonstrations.from_lists(shown, actions)
    sw = SwitchingMixture(2, MaxCausalEnt(), "state", problem.start(), max_iter=0).fit(mdp, texts)
    np.testing.assert_allclose(
        sw.score_samples(texts)[::-1], [one.log_prob for one in problem.enumerate()], rtol=0, atol=1e-12
    )


def test_demonstrations_of_a_batch_do_not_affect_each_other(problem):
    sw = fix_parameters(problem)
    whole = np.split(sw.predict_proba(problem.demos, problem.covariates), np.cumsum(problem.demos.lengths - 1)[:-1])
    first = 0
    for i, own in enumerate(whole):
        x = None if problem.covariates is None else problem.covariates[first : first + len(own)]
        np.testing.assert_allclose(sw.predict_proba(problem.demos[[i]], x), own, rtol=0, atol=1e-14)
        first += len(own)


@pytest.mark.parametrize("irl", [MLIRL(beta=1.0, q="hard"), MaxCausalEnt(beta=2.0)], ids=["MLIRL", "beta"])
def test_emissions_are_the_policies_of_the_model(irl):
    problem = random_problem(3, n_intents=2)
    sw = fix_parameters(problem, irl=irl)
    log_prob, first = sw.score_samples(problem.demos), []
    policies = np.array([sw.policy(k) for k in range(2)])
    np.testing.assert_allclose(policies[1], irl.policy(problem.mdp, problem.thetas[1]), rtol=0, atol=0)
    for demo in problem.demos:
        table = np.array([policies[:, s, a] for s, a in zip(demo.states[:-1], demo.actions, strict=True)])
        rows = np.exp(problem.A) / np.exp(problem.A).sum(axis=1, keepdims=True)
        first.append(Sequences.of(problem.initial, np.array([rows] * (len(table) - 1)), table).log_prob)
    np.testing.assert_allclose(log_prob, first, rtol=0, atol=1e-12)


class TestWithoutSwitching:
    """A diagonal transition matrix is an IntentMixture of demonstrations."""

    def mixtures(self, recorded="all"):
        problem = random_problem(7, n_intents=3, recorded=recorded, lengths=(5, 9, 2, 14))
        problem.A, problem.initial = np.where(np.eye(3, dtype=bool), 0.0, -np.inf), np.array([0.4, 0.25, 0.35])
        problem.thetas *= 0.1
        ensemble = RewardEnsemble(problem.initial, problem.thetas)
        mix = IntentMixture(3, MaxCausalEnt(), ensemble, max_iter=0).fit(problem.mdp, problem.demos)
        return problem, fix_parameters(problem), mix

    @pytest.mark.parametrize("recorded", ["all", "some"])
    def test_posterior_is_that_of_the_demonstration(self, recorded):
        problem, sw, mix = self.mixtures(recorded)
        expected = np.repeat(mix.predict_proba(problem.demos), problem.demos.lengths - 1, axis=0)
        np.testing.assert_allclose(sw.predict_proba(problem.demos), expected, rtol=0, atol=1e-12)
        np.testing.assert_array_equal(sw.predict(problem.demos), np.argmax(expected, axis=1))
        np.testing.assert_array_equal(sw.dwell_times_, np.inf)

    def test_likelihood_lacks_only_the_dynamics(self):
        problem, sw, mix = self.mixtures()
        expected = mix.score_samples(problem.demos) - problem.demos.log_q(problem.mdp)
        np.testing.assert_allclose(sw.score_samples(problem.demos), expected, rtol=0, atol=1e-12)

    def test_em_reaches_the_likelihood_of_the_intent_mixture(self):
        # EM keeps transitions above 1e-8, so that likelihoods differ by less than 1e-8 per step.
        rng = np.random.default_rng(0)
        truth = fix_parameters(random_problem(7, n_intents=2))
        mdp, options = truth.mdp_, {"ridge": 0.02, "gtol": 1e-10, "ridge_per": "step"}
        parts = [truth.irl_.sample(mdp, theta, 15, rng, max_length=40) for theta in 2.0 * truth.thetas_]
        demos = Demonstrations.concat(parts)
        ensemble = RewardEnsemble(np.array([0.5, 0.5]), truth.thetas_)
        mix = IntentMixture(2, MaxCausalEnt(**options), ensemble, resp_tol=1e-13, max_iter=500).fit(mdp, demos)
        A = np.where(np.eye(2, dtype=bool), 0.0, -18.4)
        logits = SimpleNamespace(A=A, B=np.zeros((2, 0)))
        start = SimpleNamespace(initial_=ensemble.weights, thetas_=ensemble.thetas, logits_=logits, transition_=None)
        sw = SwitchingMixture(2, MaxCausalEnt(**options), init=start, tol=1e-15, max_iter=500).fit(mdp, demos)
        without_dynamics = mix.score_samples(demos).sum() - demos.log_q(mdp).sum()
        assert sw.log_likelihood_ == pytest.approx(without_dynamics / demos.n_transitions, abs=1e-7)
        np.testing.assert_allclose(sw.thetas_, mix.thetas_, rtol=0, atol=1e-3)
        np.testing.assert_allclose(sw.initial_, mix.weights_, rtol=0, atol=1e-5)


@pytest.mark.parametrize("method", ["predict", "predict_proba", "filter_proba", "score", "segments", "occupancy"])
def test_unfitted_raises(method):
    with raises(NotFitted):
        getattr(SwitchingMixture(), method)(random_problem(0).demos)


@pytest.mark.parametrize("name", ["summary", "bic", "aic"])
def test_unfitted_without_demonstrations_raises(name):
    with raises(NotFitted):
        getattr(SwitchingMixture(), name)()


def test_demonstration_without_decision_raises_with_its_index():
    problem = random_problem(0)
    demos = Demonstrations.from_lists([[0], problem.demos[1].states.tolist()])
    with raises(InvalidDemos, parameter="demos", value=1, index=0):
        fix_parameters(problem).predict(demos)


def test_covariates_without_use_raise():
    problem = random_problem(0)
    with raises(InvalidParameter, parameter="covariates"):
        fix_parameters(problem).predict(problem.demos, np.zeros((11, 1)))


@pytest.mark.parametrize("k", [-1, 2, True, 0.0])
def test_unknown_intent_raises(k):
    with raises(InvalidParameter, parameter="k", value=k):
        fix_parameters(random_problem(0)).policy(k)


def test_transition_at_original_covariates():
    problem = random_problem(5, "covariates", 3)
    sw = fix_parameters(problem)
    sequences = problem.enumerate()
    rows = sw.transition_at(problem.covariates)
    np.testing.assert_allclose(rows[1:4], sequences[1].transitions, rtol=0, atol=1e-12)
    with raises(InvalidParameter, parameter="switching", value="homogeneous"):
        fix_parameters(random_problem(0)).transition_at(np.zeros((1, 1)))


def test_information_criteria_count_the_free_parameters():
    # Two intents have six rewards, one initial probability and two of switching.
    problem = random_problem(8, "homogeneous", 2, lengths=(30, 40))
    sw = fix_parameters(problem)
    total = sw.score_samples(problem.demos).sum()
    assert sw.bic() == pytest.approx(-2 * total + sw.n_free_ * np.log(70), abs=1e-9)
    assert sw.bic(problem.demos) == pytest.approx(sw.bic(), abs=1e-9)
    assert sw.aic() == pytest.approx(-2 * total + 2 * sw.n_free_, abs=1e-9)
    assert sw.n_free_ == 2 * 3 + 1 + 2


def test_oracle_has_the_policies_of_the_model():
    problem = random_problem(1, recorded="all")
    log_p = MaxCausalEnt().log_prob(problem.mdp, problem.thetas, problem.demos)
    pi = np.exp(log_p - problem.demos.log_q(problem.mdp)[:, None])
    expected = np.array([table.prod(axis=0) for table in emission_tables(problem.mdp, problem.thetas, problem.demos)])
    np.testing.assert_allclose(pi, expected, rtol=1e-10, atol=0)


def test_empty_segments():
    assert len(Segments.from_path(np.empty(0, np.int64), np.empty((0, 2)), np.array([0]))) == 0
