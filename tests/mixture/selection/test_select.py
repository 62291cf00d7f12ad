"""`select_intents`: each criterion against an independent computation, the recommendation, and failures."""

import json
from dataclasses import replace
from functools import partial

import matplotlib as mpl
import numpy as np
import pytest
from scipy.special import comb

import limiirl as ll
from limiirl import _progress
from limiirl.errors import InvalidDemos, InvalidParameter, LimiirlError, SelectionInterrupted
from limiirl.executors import Executor
from limiirl.mixture.selection import select as select_module
from limiirl.mixture.selection.cross_validation import RESAMPLE, RefitTask, SelectionProblem, agreement, check_numbers
from limiirl.mixture.selection.recommend import (
    SelectionRow,
    compare_held_out,
    explain,
    recommend,
    stick_breaking,
    whiten,
)
from tests.helpers import raises

mpl.use("agg")
IRL = ll.MaxEnt(bounds=(-4.0, 4.0))


def two_rooms() -> ll.MDP:
    """State 0 leads to rooms 1 and 2, in which one may stay, or change to the other."""
    phi = [[0, 0], [1, 0], [0, 1]]
    return ll.MDP.from_edges([0, 0, 1, 1, 2, 2], [1, 2, 1, 2, 2, 1], p0=[1, 0, 0], state_features=phi)


def two_intents(n: int = 20, seed: int = 0) -> ll.Demonstrations:
    """Half of them stay in room 1, half in room 2, for different times; the longest has 7 states."""
    lengths = np.random.default_rng(seed).integers(2, 6, size=n)
    lengths[0] = 6
    return ll.Demonstrations.from_lists([[0, *[1 + i % 2] * int(length)] for i, length in enumerate(lengths)])


def mixture(**changes) -> ll.IntentMixture:
    return ll.IntentMixture(**{"irl": IRL, **changes})


def select(numbers=(2,), demos=None, **changes) -> ll.Selection:
    given = {"mixture": mixture(), "folds": 4, "resamples": 3, "seed": 0, **changes}
    return ll.select_intents(two_rooms(), two_intents() if demos is None else demos, numbers, **given)


def failing(when) -> ll.IntentMixture:
    """A mixture whose fit fails where `when(points, K)` is true."""

    def init(points, n_intents, rng):
        if when(points, n_intents):
            raise InvalidParameter("no such clusters")
        return np.arange(len(points)) % n_intents

    return mixture(init=init)


@pytest.fixture(scope="module")
def up_to_two() -> ll.Selection:
    return select((2,))


@pytest.fixture(scope="module")
def up_to_three() -> ll.Selection:
    return select((2, 3))


# --- the whole ---


def test_two_intents_are_recommended_with_their_fit(up_to_three):
    selection = up_to_three
    assert [row.n_intents for row in selection.rows] == [1, 2, 3]
    assert selection.recommended == 2
    assert selection.best is selection.mixtures[2]
    assert selection.rows[1].converged
    assert selection.rows[1].stability == 1.0
    assert selection.rows[1].held_out > selection.rows[0].held_out
    np.testing.assert_array_equal(selection.best.labels_ == selection.best.labels_[0], np.arange(20) % 2 == 0)


@pytest.mark.slow
def test_elementworld_has_three_intents():
    world = ll.worlds.ElementWorld(seed=1)
    demos, _ = world.sample(100, seed=1)
    selection = ll.select_intents(world.mdp, demos, range(1, 5), irl=ll.MaxEnt(), folds=3, resamples=2, seed=0)
    assert selection.recommended == 3
    assert selection.recommendations["held_out"] == selection.recommendations["bic"] == 3


def test_information_criteria_are_those_of_the_fit():
    demos, groups = two_intents(), np.arange(20) % 10
    selection = select((2,), demos, groups=groups, resamples=0)
    for row in selection.rows:
        fitted = selection.mixtures[row.n_intents]
        assert (row.bic, row.aic, row.icl) == tuple(
            criterion(demos, groups) for criterion in (fitted.bic, fitted.aic, fitted.icl)
        )
        assert row.log_likelihood == fitted.log_likelihood_
    assert selection.rows[0].bic != selection.rows[0].aic


@pytest.mark.parametrize("grouped", [False, True])
def test_held_out_likelihood_of_one_intent_equals_single_fits(grouped):
    mdp, demos = two_rooms(), two_intents(21)
    groups = np.array(["ann", "bob", "cat", "dan", "eve", "fay", "gus"])[np.arange(21) % 7] if grouped else None
    row = select((1,), demos, groups=groups, resamples=0).rows[0]
    fold_of = SelectionProblem.from_data(mixture(), mdp, demos, groups, 0).folds(4)[
        np.arange(21) % 7 if grouped else np.arange(21)
    ]
    # One model for all folds: its longest trajectory is that of all the data.
    irl = ll.MaxEnt(max_length=int(demos.lengths.max()), bounds=IRL.bounds)
    each = np.empty(21)
    for fold in range(4):
        theta = irl.fit(mdp, demos[fold_of != fold])
        each[fold_of == fold] = irl.log_prob(mdp, theta, demos[fold_of == fold])[:, 0]
    units = np.array([each[i::7].sum() for i in range(7)]) if grouped else each
    np.testing.assert_allclose(row.held_out, units.mean(), rtol=1e-6)
    np.testing.assert_allclose(row.held_out_se, units.std(ddof=1) / np.sqrt(units.size), rtol=1e-5)
    assert resolve_length(demos, groups) == demos.lengths.max()


class TestCovariates:
    """Rooms depend on the site: about five of six demonstrations of a site stay in the same room."""

    demos = two_intents(80)
    sites = np.array([("north", "south")[(i % 2) ^ (i % 6 == i // 12)] for i in range(80)])

    @pytest.mark.parametrize("grouped", [False, True])
    def test_held_out_demonstrations_have_the_weights_of_their_covariates(self, grouped):
        groups = np.array([f"g{79 - i:02d}" for i in range(80)]) if grouped else None
        table = {"group": groups, "site": self.sites} if grouped else {"site": self.sites}
        chosen = select(demos=self.demos, groups=groups, covariates=table, resamples=2)
        plain = select(demos=self.demos, groups=groups, resamples=2)
        problem = SelectionProblem.from_data(mixture(), two_rooms(), self.demos, groups, 0, None, table)
        row, before = chosen.rows[1], plain.rows[1]
        assert row.held_out > before.held_out + 0.1
        total = 0.0
        for fold in range(4):
            out = problem.units.broadcast(problem.folds(4) == fold)
            own = ll.IntentMixture(2, ll.MaxEnt(7, bounds=(-4.0, 4.0)), init=(np.arange(80) % 2)[~out])
            own.fit(two_rooms(), self.demos[~out], covariates={"site": self.sites[~out]})
            total += own.score_samples(self.demos[out], covariates={"site": self.sites[out]}).sum()
        assert row.held_out == pytest.approx(total / 80, abs=1e-3)
        assert chosen.rows[0].held_out == pytest.approx(plain.rows[0].held_out, rel=1e-9)
        assert chosen.mixtures[2].membership_.names == ("site[south]",)
        assert row.bic == pytest.approx(chosen.mixtures[2].bic(), rel=1e-12)
        assert row.bic < before.bic

    @pytest.mark.slow
    def test_processes(self):
        parallel, own = (
            select(demos=self.demos, covariates={"site": self.sites}, executor=executor)
            for executor in (Executor(workers=1), None)
        )
        assert parallel.rows[1] == own.rows[1]
        errors = [selection.mixtures[2].membership_.errors[1] for selection in (parallel, own)]
        np.testing.assert_allclose(*errors, rtol=1e-9)

    def test_invalid_covariates(self):
        with raises(InvalidParameter, parameter="covariates"):
            select(covariates=np.ones(20))
        with raises(InvalidParameter, parameter="covariates"):
            select(covariates=np.ones((3, 1)))


def resolve_length(demos, groups) -> int:
    return select((1,), demos, groups=groups, resamples=0).best.irl_.max_length


def test_no_group_is_split_between_folds():
    groups = np.repeat([7, 3, 5, 9], 5)
    problem = SelectionProblem.from_data(mixture(), two_rooms(), two_intents(), groups, 0)
    fold_of = problem.folds(2)
    _, left = problem.subset(fold_of == 0)
    _, right = problem.subset(fold_of == 1)
    assert set(left) | set(right) == {3, 5, 7, 9}
    assert not set(left) & set(right)


def test_fold_groups_are_held_out_together():
    mdp, demos = two_rooms(), two_intents()
    animals = np.arange(20) % 5
    problem = SelectionProblem.from_data(mixture(), mdp, demos, None, 0, animals)
    for n in (2, 3, 5):
        folds = problem.folds(n)
        assert folds.shape == (20,)
        np.testing.assert_array_equal(folds, folds[:5][animals])
        assert np.ptp(np.bincount(folds[:5], minlength=n)) <= 1
    with raises(InvalidParameter, parameter="folds", value=6):
        problem.check(2, 6, 0)
    with raises(InvalidParameter, parameter="fold_groups"):
        ll.select_intents(mdp, demos, [1], groups=animals, fold_groups=animals)
    selection = select(fold_groups=animals, folds=5, resamples=0)
    assert len(selection.best.responsibilities_) == 20


def test_standard_errors_are_clustered_by_blocks():
    values, blocks = np.array([1.0, 2.0, 4.0, 8.0, 3.0, 5.0]), np.array([0, 0, 1, 1, 2, 2])
    (alone, _) = compare_held_out([SelectionRow(1), SelectionRow(2)], {1: -values, 2: 0 * values}, blocks)
    means = values.reshape(3, 2).mean(axis=1)  # of blocks of one size the mean of means is the mean
    np.testing.assert_allclose(alone.behind_se, np.std(means, ddof=1) / np.sqrt(3), rtol=1e-12)
    single = compare_held_out([SelectionRow(1), SelectionRow(2)], {1: -values, 2: 0 * values}, np.arange(6))[0]
    assert (
        single.behind_se
        == compare_held_out([SelectionRow(1), SelectionRow(2)], {1: -values, 2: 0 * values})[0].behind_se
    )


def test_stability_counts_a_group_once():
    # One group has most of the demonstrations, which would hide how the others change places.
    mdp, demos, groups = two_rooms(), two_intents(26), np.r_[np.zeros(20), np.arange(1, 7)]
    random = mixture(init="random", max_iter=0)
    selection = select((2,), demos, groups=groups, mixture=random, folds=0)
    problem = SelectionProblem.from_data(random, mdp, demos, groups, 0)
    fits = [problem.fit(RefitTask(2, RESAMPLE, i), problem.resample(i)) for i in range(3)]
    assert all(len(fit.groups_) == 5 for fit in fits)  # 80 % of seven
    each = [fit.predict(demos, groups) for fit in fits]
    assert selection.rows[1].stability == agreement([labels[19:] for labels in each])
    assert selection.rows[1].stability != agreement(each)


def test_stability_of_one_intent_is_nan_and_optional():
    selection = select((2,), folds=0, resamples=0)
    assert np.isnan([row.stability for row in selection.rows]).all()
    assert np.isnan([row.held_out for row in selection.rows]).all()
    assert not {"stability", "held_out"} & set(selection.recommendations)
    assert "held-out likelihood is not available" in selection.reason
    assert np.isnan(select((1,)).rows[0].stability)


@pytest.mark.slow
def test_results_are_reproducible_and_independent_of_other_numbers(up_to_two, up_to_three):
    selection, again, wider = up_to_two, select((2,)), up_to_three
    assert selection.to_dict() == again.to_dict()
    # `behind` compares with the others; the text of a row makes nan equal to nan.
    without = [str(replace(row, behind=0.0, behind_se=0.0)) for row in selection.rows]
    assert without == [str(replace(row, behind=0.0, behind_se=0.0)) for row in wider.rows[:2]]
    few = {"folds": 2, "resamples": 2}
    generators = [select((2,), seed=np.random.default_rng(4), **few).to_dict() for _ in range(2)]
    assert generators[0] == generators[1]


def test_the_random_state_of_the_mixture_is_the_default_seed():
    few = {"folds": 2, "resamples": 2, "seed": None}
    seeded = [select((2,), mixture=mixture(random_state=seed, init="random"), **few) for seed in (5, 5, 6)]
    assert seeded[0].to_dict() == seeded[1].to_dict()
    assert seeded[0].rows != seeded[2].rows


def test_the_mixture_given_is_not_changed_and_its_parameters_are_used():
    given = mixture(n_intents=9, max_iter=7, embedding=np.arange(20.0)[:, None] % 2, progress=print, verbose=True)
    before = given.get_params()
    selection = select((2,), mixture=given)
    assert given.get_params() == before
    assert given.irl.max_length is None
    assert selection.best.max_iter == 7
    assert selection.best.n_intents == 2
    assert [row.error for row in selection.rows] == ["", ""]


# --- what may go wrong ---


def test_a_failed_fit_affects_its_own_row_only():
    seen = []
    selection = select(
        (2, 3),
        mixture=failing(lambda points, n_intents: n_intents == 3),
        progress=lambda done, total, message: seen.append((done, total)),
    )
    assert selection.rows[2].error == "fit: no such clusters"
    assert sorted(selection.mixtures) == [1, 2]
    assert selection.recommended == 2
    assert "3 intents failed" in selection.reason
    assert "failed: fit: no such clusters" in selection.table()
    assert np.isnan(selection.rows[2].bic)
    assert seen == [(i, 25) for i in range(1, 26)]


def test_a_failed_fold_excludes_its_number_from_the_comparison():
    selection = select((2,), mixture=failing(lambda points, k: len(points) == 15 and k == 2))
    assert np.isnan(selection.rows[1].held_out)
    assert selection.rows[1].error.startswith("fold 1: no such clusters; fold 2:")
    assert np.isfinite(selection.rows[1].bic)
    assert np.isfinite(selection.rows[1].stability)
    assert selection.recommendations["held_out"] == selection.recommended == 1


def interrupt_after(n):
    """Return a `Progress` that raises KeyboardInterrupt in call n, as Ctrl-C does."""

    def report(done, total, message):
        if done == n:
            raise KeyboardInterrupt

    return report


# Each K has a fit, four folds and three resamples; the stability of K = 1 is not computed.
@pytest.mark.parametrize(("n", "compared"), [(12, [1]), (13, [1, 2]), (14, [1, 2]), (24, [1, 2, 3])])
def test_an_interrupt_keeps_the_numbers_whose_fit_and_folds_are_complete(up_to_three, n, compared):
    with pytest.raises(KeyboardInterrupt) as caught:
        select((2, 3, 4), progress=interrupt_after(n))
    assert isinstance(caught.value, SelectionInterrupted)
    partial = caught.value.selection
    assert [row.n_intents for row in partial.rows] == compared
    assert partial.missing == tuple({1, 2, 3, 4} - set(compared))
    assert partial.recommended == (1 if compared == [1] else 2)
    for row, full in zip(partial.rows, up_to_three.rows, strict=False):
        assert row.held_out == full.held_out
        assert row.bic == full.bic
    assert np.isnan(partial.rows[-1].stability) == (n < 24)
    assert partial.to_dict()["missing"] == list(partial.missing)


def test_an_interrupt_before_the_first_number_is_complete_has_no_selection():
    with pytest.raises(KeyboardInterrupt) as caught:
        select(progress=interrupt_after(2))
    assert type(caught.value) is KeyboardInterrupt


def test_an_error_is_raised_if_every_fit_fails():
    with raises(LimiirlError, parameter="n_intents"):
        select((2,), mixture=failing(lambda points, n_intents: True))


def test_warnings_are_counted_not_shown():
    same = ll.Demonstrations.from_lists([[0, 1, 1]] * 12)
    selection = select((2,), same)  # a warning that escapes is an error here
    assert selection.rows[1].n_warnings > len(selection.rows[1].warnings) > 0
    assert any("initially assigned" in text for text in selection.rows[1].warnings)
    assert selection.rows[0].n_warnings == 0
    assert "warnings" in selection.table()
    assert selection.recommended == 1


@pytest.mark.parametrize(
    ("changes", "parameter", "value"),
    [
        ({"numbers": (16,)}, "n_intents", 16),  # 4 folds leave 15 of 20 demonstrations
        ({"numbers": (17,), "folds": 0}, "n_intents", 17),  # a resample has 16
        ({"numbers": (21,), "folds": 0, "resamples": 0}, "n_intents", 21),
        ({"numbers": (4,), "groups": np.arange(20) % 5}, "n_intents", 4),  # 4 folds leave 3 of 5 groups
        ({"numbers": 3}, "n_intents", 3),
        ({"numbers": (2, 0)}, "n_intents", 0),
        ({"folds": 1}, "folds", 1),
        ({"folds": 21}, "folds", 21),
        ({"resamples": 1}, "resamples", 1),
        ({"resamples": True}, "resamples", True),
        ({"mixture": IRL}, "mixture", IRL),
        ({"irl": IRL}, "irl", IRL),  # the mixture has a model
        ({"progress": 3}, "progress", 3),
    ],
)
def test_invalid_arguments_raise_before_any_fit(changes, parameter, value):
    with raises(InvalidParameter, parameter=parameter, value=value):
        select(**{"progress": lambda *report: pytest.fail("something ran"), **changes})


@pytest.mark.parametrize(
    ("changes", "parameter"),
    [
        ({"mixture": mixture(init=np.zeros(20, dtype=int))}, "init"),
        ({"mixture": mixture(max_iter=-1)}, "max_iter"),
        ({"mixture": mixture(init="kmean")}, "init"),
        ({"mixture": mixture(reward_init="median")}, "reward_init"),
        ({"mixture": mixture(embedding="points")}, "embedding"),
        ({"seed": "x"}, "seed"),
    ],
)
def test_invalid_mixtures_raise_before_any_fit(changes, parameter):
    with raises(InvalidParameter, parameter=parameter):
        select(**{"progress": lambda *report: pytest.fail("something ran"), **changes})


def test_irl_equals_the_model_of_a_mixture():
    mdp, demos = two_rooms(), two_intents()
    given = {"folds": 2, "resamples": 0, "seed": 0}
    by_name = ll.select_intents(mdp, demos, (2,), irl=IRL, **given)
    by_mixture = ll.select_intents(mdp, demos, (2,), mixture=ll.IntentMixture(irl=IRL), **given)
    assert by_name.to_dict() == by_mixture.to_dict()


def test_groups_must_fit_the_demonstrations():
    with raises(InvalidDemos, parameter="groups"):
        select((2,), groups=[1, 2])


# --- output ---


def test_verbose_writes_to_stderr(capsys, monkeypatch):
    monkeypatch.setattr(select_module, "report_progress", partial(_progress.report_progress, every_s=0.0))
    select((1,), folds=2, resamples=0, verbose=True)
    written = capsys.readouterr()
    assert written.out == ""
    assert [line.split(",")[0] for line in written.err.splitlines()] == [f"fits: {i} of 4" for i in range(1, 5)]


def test_table_marks_optima_and_the_recommendation(up_to_three):
    selection = up_to_three
    lines = selection.table().splitlines()
    assert len(lines) == 4
    assert lines[0].split()[:4] == ["K", "log-likelihood", "held", "out"]
    assert "<- recommended" in lines[2]
    assert f"{selection.rows[1].bic:.1f}*" in lines[2]
    assert f"{selection.rows[0].bic:.1f}*" not in lines[1]
    assert str(selection).startswith(selection.table())
    assert str(selection).endswith(selection.reason)
    assert "Stick-breaking GMM: " in str(selection)


def test_to_dict_is_json_without_nan():
    selection = select((2,), folds=0, resamples=0)
    read = json.loads(json.dumps(selection.to_dict(), allow_nan=False))
    assert read["rows"][0]["held_out"] is None
    assert read["rows"][1]["bic"] == selection.rows[1].bic
    assert read["recommended"] == selection.recommended
    assert read["unit"] == "demonstrations"


def test_plot_has_a_panel_per_available_criterion(up_to_two):
    import matplotlib.pyplot as plt

    selection = up_to_two
    figure = selection.plot()
    assert len(figure.axes) == 6
    assert all(ax.lines[0].get_xdata()[0] == selection.recommended for ax in figure.axes)
    assert len(select((2,), folds=0, resamples=0).plot().axes) == 4
    own, ax = plt.subplots()
    assert selection.plot(ax) is own
    assert own.axes == [ax]
    assert "held-out" in ax.get_title()
    plt.close("all")


# --- criteria by themselves ---


def test_agreement_is_the_adjusted_rand_index_by_counting_pairs():
    labels = np.random.default_rng(0).integers(0, 3, size=(3, 30))

    def rand_index(a, b):
        table = np.array([[np.sum((a == i) & (b == j)) for j in range(3)] for i in range(3)])
        both, rows, columns = (comb(x, 2).sum() for x in (table, table.sum(axis=1), table.sum(axis=0)))
        expected = rows * columns / comb(30, 2)
        return (both - expected) / (0.5 * (rows + columns) - expected)

    pairs = [rand_index(labels[i], labels[j]) for i, j in ((0, 1), (0, 2), (1, 2))]
    np.testing.assert_allclose(agreement(list(labels)), np.mean(pairs), rtol=1e-12)
    assert np.isnan(agreement([labels[0]]))


def test_constant_labellings_have_no_agreement():
    assert np.isnan(agreement([[0] * 5] * 3))
    assert agreement([[0] * 5, [0, 0, 1, 1, 1]]) == 0.0
    assert agreement([[0] * 4, [0] * 4, [0, 0, 1, 1], [1, 1, 0, 0]]) == pytest.approx(1 / 5, rel=1e-12)


def test_numbers_include_one_without_repetition():
    assert check_numbers(iter([5, 2, 5, np.int64(3)])) == [1, 2, 3, 5]


def test_standard_error_of_the_difference():
    # Units differ by far more than numbers of intents do; the difference is nevertheless clear.
    base = np.array([-10.0, -50.0, -90.0, -30.0])
    rows = compare_held_out(
        [SelectionRow(1), SelectionRow(2), SelectionRow(3)],
        {1: base - [1.0, 1.2, 0.9, 1.1], 2: base, 3: base - [0.1, -0.1, 0.1, -0.08]},
    )
    assert rows[0].held_out_se > 10.0
    assert recommend(rows, None)["held_out"] == 2
    np.testing.assert_allclose([rows[0].behind, rows[2].behind], [1.05, 0.005], rtol=1e-12)
    np.testing.assert_allclose(rows[0].behind_se, np.std([1.0, 1.2, 0.9, 1.1], ddof=1) / 2, rtol=1e-12)


def test_a_number_with_a_failed_fold_is_not_compared():
    rows = compare_held_out(
        [SelectionRow(1), SelectionRow(2)], {1: np.array([-1.0, np.nan]), 2: np.array([-2.0, -3.0])}
    )
    assert np.isnan([rows[0].held_out, rows[0].behind]).all()
    assert (rows[1].held_out, rows[1].behind) == (-2.5, 0.0)


def test_ties_select_fewer_intents_except_for_stability_and_missing_values_are_skipped():
    rows = [
        SelectionRow(1),
        SelectionRow(2, bic=5.0, stability=1.0),
        SelectionRow(3, bic=5.0, stability=0.995),
        SelectionRow(4, stability=0.98),
    ]
    assert recommend(rows, None) == {"bic": 2, "stability": 3}


def row(k, behind, behind_se, bic, **more):
    return SelectionRow(
        k, log_likelihood=-10.0 + 0.1 * k, behind=behind, behind_se=behind_se, bic=bic, converged=True, **more
    )


def test_bic_chooses_among_adequate_numbers():
    rows = [row(1, 0.5, 0.1, 90.0), row(2, 0.02, 0.1, 103.0), row(3, 0.0, 0.0, 100.0), row(4, 0.03, 0.1, 110.0)]
    chosen, reason = explain(rows, recommend(rows, 4), "groups")
    assert chosen == 3
    assert reason == (
        "3 intents: the lowest BIC among 2, 3 and 4, whose held-out likelihood is within two standard errors, or one "
        "nat, of the best (K = 3). Other criteria recommend 1 (BIC), 2 (held-out likelihood), 4 (the "
        "stick-breaking GMM)."
    )


def test_the_smallest_adequate_number_without_bic():
    rows = [row(1, 0.5, 0.1, np.nan), row(2, 0.02, 0.1, np.nan), row(3, 0.0, 0.0, np.nan)]
    chosen, reason = explain(rows, recommend(rows, None), "groups")
    assert chosen == 2
    assert reason.startswith("2 intents: the smallest of 2 and 3, whose held-out likelihood")


def test_held_out_gains_below_one_nat_in_total_are_negligible():
    """One intent is adequate although two and three are better by many standard errors."""
    gaps = [(1, 0.009, 90.0), (2, 0.001, 103.0), (3, 0.0, 110.0)]
    rows = [row(k, behind, 1e-6, bic, n_units=100) for k, behind, bic in gaps]
    assert explain(rows, recommend(rows, None), "groups")[0] == 1
    assert recommend(rows, None)["held_out"] == 1
    more = [replace(own, n_units=1000) for own in rows]  # 9 nats in total
    assert explain(more, recommend(more, None), "groups")[0] == 2


def test_reason_names_the_criteria_that_agree():
    rows = [row(1, 0.5, 0.1, 120.0), row(2, 0.0, 0.0, 100.0), row(3, 0.3, 0.1, 110.0)]
    chosen, reason = explain(rows, recommend(rows, None), "demonstrations")
    assert chosen == 2
    assert reason == (
        "2 intents: the only number whose held-out likelihood is within two standard errors, or one nat, of the best "
        "(K = 2). "
        "Held-out likelihood and BIC agree."
    )


def test_fits_with_nearly_empty_intents_are_not_recommended():
    rows = [row(1, 0.5, 0.1, 120.0), row(2, 0.0, 0.0, 100.0), row(3, 0.01, 0.1, 90.0, n_empty=1)]
    selection = recommend(rows, None)
    assert selection == {"held_out": 2, "bic": 2}
    chosen, reason = explain(rows, selection, "demonstrations")
    assert chosen == 2
    assert reason.startswith("2 intents: the only number without nearly empty intents")
    assert reason.endswith("Fits with 3 intents have nearly empty intents.")
    # If all numbers have nearly empty intents, none is excluded.
    all_empty = [row(2, 0.5, 0.1, 100.0, n_empty=1), row(3, 0.0, 0.0, 90.0, n_empty=1)]
    assert explain(all_empty, recommend(all_empty, None), "demonstrations")[0] == 3


def test_held_out_likelihood_is_compared_with_the_best_number_without_nearly_empty_intents():
    rows = [SelectionRow(1), SelectionRow(2), SelectionRow(3, n_empty=1)]
    noise = np.array([0.1, -0.1, 0.0, 0.0])
    scores = {1: np.full(4, -3.0), 2: np.full(4, -2.0) + noise, 3: np.full(4, -1.0) - noise}
    compared = compare_held_out(rows, scores)
    np.testing.assert_allclose([row.behind for row in compared], [1.0, 0.0, -1.0], rtol=0, atol=1e-12)
    assert explain(compared, recommend(compared, None), "demonstrations")[0] == 2
    alone = compare_held_out(rows[:1] + rows[2:], {k: scores[k] for k in (1, 3)})
    assert [row.behind for row in alone] == [0.0, -2.0]


@pytest.mark.slow
def test_nearly_empty_intents_are_counted_in_the_row():
    world = ll.worlds.ElementWorld(seed=2)
    demos, _ = world.sample(100, seed=2)
    mixture = ll.IntentMixture(irl=ll.MaxCausalEnt())
    selection = ll.select_intents(world.mdp, demos, [3, 4], mixture=mixture, folds=0, resamples=0, seed=0)
    assert [row.n_empty for row in selection.rows] == [0, 0, int(np.sum(selection.mixtures[4].weights_ * 100 < 0.5))]
    assert selection.rows[2].n_empty == 1
    assert selection.rows[2].bic < selection.rows[1].bic  # so that BIC alone would have it
    assert selection.recommended == 3
    assert "1 nearly empty" in selection.table()


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([row(1, 0.5, 0.1, 9.0), row(2, 0.0, 0.0, 8.0)], "the largest number tried"),
        ([row(1, 0.0, 0.0, 9.0, stability=0.5), row(2, 0.5, 0.1, 8.0)], "stability 0.50"),
        ([replace(row(1, 0.0, 0.0, 9.0), converged=False), row(2, 0.5, 0.1, 8.0)], "did not converge: raise max_iter"),
        ([row(1, 0.0, 0.0, 9.0), replace(row(2, 0.5, 0.1, 8.0), log_likelihood=-11.0)], "2 intents are local optima"),
        ([row(1, 0.0, 0.0, 9.0), row(2, 0.5, 0.1, 8.0, error="fold 2: x")], "2 intents failed"),
    ],
)
def test_reason_has_cautions_only_if_they_apply(rows, words):
    assert words in explain(rows, recommend(rows, None), "demonstrations")[1]
    sound = [row(1, 0.0, 0.0, 7.0, stability=0.9), row(2, 0.5, 0.1, 8.0)]
    assert words not in explain(sound, recommend(sound, None), "demonstrations")[1]


def test_without_held_out_scores_bic_decides_then_icl_then_aic():
    rows = [SelectionRow(1, -2.0, bic=3.0, icl=2.0, aic=9.0), SelectionRow(2, -1.0, bic=2.0, icl=3.0, aic=9.0)]
    assert explain(rows, recommend(rows, None), "demonstrations")[0] == 2
    rows = [replace(row, bic=np.nan) for row in rows]
    assert explain(rows, recommend(rows, None), "demonstrations")[0] == 1
    rows = [replace(row, icl=np.nan, aic=-row.n_intents) for row in rows]
    assert explain(rows, recommend(rows, None), "demonstrations")[0] == 2
    rows = [replace(row, aic=np.nan) for row in rows]
    chosen, reason = explain(rows[1:], recommend(rows[1:], None), "demonstrations")
    assert chosen == 2
    assert "no criterion is available" in reason


# --- the stick-breaking mixture ---


@pytest.mark.parametrize("n_clusters", [1, 2, 3, 4])
def test_stick_breaking_counts_separate_clusters(n_clusters):
    rng = np.random.default_rng(n_clusters)
    corners = 20.0 * np.array([[0, 0], [1, 0], [0, 1], [1, 1]])[:n_clusters]
    points = np.repeat(corners, 30, axis=0) + rng.normal(size=(30 * n_clusters, 2))
    # A constant column and a combination of others leave no full covariance.
    collinear = np.column_stack([points, np.full(len(points), 3.0), points @ [1.0, -2.0]])
    assert stick_breaking(collinear, 6, seed=0) == n_clusters


@pytest.mark.parametrize("points", [np.full((10, 3), 2.5), np.ones((1, 2)), np.zeros((4, 1))])
def test_stick_breaking_counts_one_cluster_without_variation(points):
    assert whiten(points).shape == (len(points), 0)
    assert stick_breaking(points, 6, seed=0) == 1


def test_stick_breaking_respects_the_maximum():
    points = np.repeat(np.arange(6.0), 20)[:, None] + 1e-3 * np.random.default_rng(0).normal(size=(120, 1))
    assert stick_breaking(points, 2, seed=0) <= 2
    assert stick_breaking(points, 1, seed=0) == 1
    assert stick_breaking(points[:3], 6, seed=0) <= 3


@pytest.mark.slow
def test_stick_breaking_prunes_components_on_feature_counts():
    worlds = [ll.worlds.ElementWorld(n_elements=2, seed=seed) for seed in range(10)]
    selection = [stick_breaking(world.sample(100)[0].features(world.mdp), 6, seed=0) for world in worlds]
    assert max(selection) < 6
    assert sum(selection) <= 28  # the truth is 20; without a floor under variances it is 39


def test_frame_has_one_row_per_number_of_intents():
    rows = SelectionRow(1, bic=3.0), SelectionRow(2, bic=2.0, held_out=-1.5)
    frame = ll.Selection(rows, 2, {"bic": 2}, "By BIC.", {}).to_frame()
    assert frame["n_intents"].tolist() == [1, 2]
    assert frame["recommended"].tolist() == [False, True]
    assert frame.loc[1, "held_out"] == -1.5
