"""Selection of K, ridges and the discount by held-out units."""

import json
import math

import numpy as np
import pytest

from limiirl import Demonstrations, MaxCausalEnt, SwitchingMixture, select_intents, select_switching
from limiirl.baselines import MarkovChain, NGram, Uniform
from limiirl.demos import Groups
from limiirl.errors import InvalidDemos, InvalidParameter, SelectionInterrupted
from limiirl.mixture import validate
from limiirl.switching import SwitchingRow
from limiirl.switching.selection import SwitchingSelectionProblem, _folds, mean_per_step, recommend_setting
from tests.helpers import raises
from tests.switching.test_estimator import switch

TEMPLATE = SwitchingMixture(irl=MaxCausalEnt(ridge=1e-3), random_state=0, tol=1e-4)


@pytest.fixture(scope="module")
def data():
    return switch(n_demos=8, length=100)


def select(data, numbers=(1, 2), **options):
    mdp, demos, _ = data
    options = {"mixture": TEMPLATE, "folds": 4} | options
    return select_switching(mdp, demos, numbers, **options)


@pytest.fixture(scope="module")
def selection(data):
    return select(data, (1, 2, 3), ridges=(1e-3, 1.0), gammas=(0.9, 0.5))


def test_two_intents_are_recommended(selection):
    assert selection.recommended.n_intents == 2
    assert len(selection.rows) == 3 * 2 * 2 + 3
    assert selection.best.n_intents == 2
    assert selection.best.irl.ridge == selection.recommended.ridge
    assert selection.best.mdp_.gamma == selection.recommended.gamma
    assert selection.best.n_demos_ == 8
    by_k = {k: max(row.held_out for row in selection.rows if row.n_intents == k) for k in (1, 2)}
    assert by_k[2] > by_k[1] + 0.05


def test_an_interrupt_keeps_the_settings_whose_folds_are_complete(data):
    def stop(done, total, message):
        if done == 3 * 4 + 4 + 2:  # the baselines, K = 1, and half of K = 2
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as caught:
        select(data, progress=stop)
    assert isinstance(caught.value, SelectionInterrupted)
    partial, whole = caught.value.selection, select(data, (1,))
    assert [row.model for row in partial.rows] == [row.model for row in whole.rows]
    assert partial.rows[0].held_out == whole.rows[0].held_out
    assert partial.recommended.n_intents == 1
    assert [setting.n_intents for setting in partial.missing] == [2]
    assert not hasattr(partial.best, "thetas_")


def test_scores_are_those_of_fits_without_the_fold(data):
    """With one fold per demonstration, the folds are the demonstrations."""
    mdp, demos, _ = data
    selection = select(data, (2,), folds=8)
    sums = []
    for i in range(8):
        others = demos[np.arange(8) != i]
        mixture = SwitchingMixture(2, MaxCausalEnt(ridge=1e-3), random_state=0, tol=1e-4).fit(mdp, others)
        sums.append(mixture.predictive_log_prob(demos[[i]]).sum())
    row = selection.rows[0]
    assert row.held_out == pytest.approx(np.sum(sums) / 800, abs=1e-12)
    assert row.held_out_se == pytest.approx(np.std(sums, ddof=1) / np.sqrt(8) / 100, rel=1e-9)
    assert (row.behind, row.behind_se) == (0.0, 0.0)
    for model, own in (
        (Uniform(), selection.rows[1]),
        (MarkovChain(2), selection.rows[2]),
        (NGram(5), selection.rows[3]),
    ):
        expected = [model.fit(demos[np.arange(8) != i], mdp).predictive_log_prob(demos[[i]]).sum() for i in range(8)]
        assert own.held_out == pytest.approx(np.sum(expected) / 800, abs=1e-12)
        assert own.behind == pytest.approx(row.held_out - own.held_out, abs=1e-12)


def test_groups_are_held_out_as_a_whole(data):
    mdp, demos, _ = data
    groups = np.array(["a", "a", "b", "b", "b", "c", "c", "c"])
    selection = select(data, (2,), groups=groups, folds=3)
    sums, sizes = [], []
    for name in "abc":
        mixture = SwitchingMixture(2, MaxCausalEnt(ridge=1e-3), random_state=0, tol=1e-4)
        sums.append(mixture.fit(mdp, demos[groups != name]).predictive_log_prob(demos[groups == name]).sum())
        sizes.append(100 * np.sum(groups == name))
    mean, error = mean_per_step(np.array(sums), np.array(sizes, dtype=float))
    assert selection.rows[0].held_out == pytest.approx(mean, abs=1e-12)
    assert selection.rows[0].held_out_se == pytest.approx(error, abs=1e-12)
    assert selection.unit == "groups"
    assert selection.best.groups_.tolist() == groups.tolist()


def test_nested_score_never_uses_the_units_that_are_scored(data):
    """If the demonstrations of an outer fold change, its selection and its fit do not."""
    mdp, demos, _ = data
    options = {"outer_folds": 2, "folds": 2, "ridges": (1e-3, 10.0), "seed": 3}
    first = select(data, (1, 2), **options)
    assert len(first.nested_settings) == 2
    assert first.nested == pytest.approx(max(row.held_out for row in first.rows), abs=0.05)
    assert first.nested_se > 0.0
    # The folds are the same for the same seed: reconstruct the first outer fold, and reverse its actions.
    problem = SwitchingSelectionProblem(TEMPLATE, mdp, demos, None, Groups.for_demos(None, demos))
    outer = _folds(problem, 2, validate.spawn_seeds(3, 1)[0].entropy, 1, "outer_folds")
    shown = [demo.states.tolist() for demo in demos]
    for i in np.flatnonzero(outer == 0):
        shown[i] = [6 - s for s in shown[i][::-1]]
    changed = Demonstrations.from_lists(shown)
    second = select((mdp, changed, None), (1, 2), **options)
    assert second.nested_settings[0] == first.nested_settings[0]
    assert second.nested != first.nested


def test_covariates_are_divided_with_their_demonstrations(data):
    demos = data[1]
    X = np.random.default_rng(0).normal(size=(800, 1))
    template = SwitchingMixture(irl=MaxCausalEnt(ridge=1e-3), switching="covariates", random_state=0, tol=1e-3)
    one = select(data, (2,), mixture=template, covariates=X, switching_ridges=(1.0, 100.0))
    per_state = np.insert(X, np.cumsum(demos.lengths - 1), 0.0, axis=0)
    two = select(data, (2,), mixture=template, covariates=per_state, switching_ridges=(1.0, 100.0))
    assert str(one.rows) == str(two.rows)
    assert [row.switching_ridge for row in one.rows[:2]] == [1.0, 100.0]
    assert one.rows[0].held_out != one.rows[1].held_out


def test_select_intents_accepts_the_estimator(data, selection):
    mdp, demos, _ = data
    result = select_intents(mdp, demos, [1, 2, 3], mixture=TEMPLATE, folds=4, ridges=(1e-3, 1.0), gammas=(0.9, 0.5))
    assert result.to_dict() == selection.to_dict()
    without = SwitchingMixture(random_state=0, tol=1e-4)
    by_model = select_intents(mdp, demos, [2], mixture=without, irl=MaxCausalEnt(ridge=1e-3), folds=2)
    assert by_model.rows[0].ridge == 1e-3
    with raises(InvalidParameter, parameter="irl"):
        select_intents(mdp, demos, [2], mixture=TEMPLATE, irl=MaxCausalEnt())
    with raises(InvalidParameter, parameter="ridges"):
        select_intents(mdp, demos, [2], ridges=[1.0])
    with raises(InvalidParameter, parameter="mixture", value=3):
        select_intents(mdp, demos, [2], mixture=3)


def test_folds_depend_on_the_seed_only(data):
    one, two, other = (select(data, (2,), seed=seed) for seed in (0, 0, 1))
    assert str(one.rows) == str(two.rows)
    assert one.rows[0].held_out != other.rows[0].held_out


@pytest.mark.slow
def test_executors_give_the_same_rows(data, selection):
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        parallel = select(data, (1, 2, 3), ridges=(1e-3, 1.0), gammas=(0.9, 0.5), executor=pool)
    assert str(parallel.rows) == str(selection.rows)


def test_failed_settings_are_rows_with_their_error(data):
    # At discount 1, an MDP without terminal states has no policy.
    result = select(data, (1, 2), gammas=(0.9, 1.0))
    failed = [row for row in result.rows if row.gamma == 1.0]
    assert all(math.isnan(row.held_out) and row.error for row in failed)
    assert result.recommended.gamma == 0.9


def test_standard_error_rule():
    def row(k, behind, behind_se):
        return SwitchingRow("switching", k, 0.1, 1.0, 0.9, -1.0 - behind, 0.1, behind, behind_se)

    rows = [row(1, 0.2, 0.05), row(2, 0.06, 0.05), row(3, 0.04, 0.05), row(4, 0.0, 0.0), SwitchingRow("n-gram")]
    assert [recommend_setting(rows, n).n_intents for n in (0.0, 1.0, 2.0, 5.0)] == [4, 3, 2, 1]


def test_error_per_step_is_that_of_a_ratio():
    rng = np.random.default_rng(0)
    sizes = rng.integers(20, 200, size=400).astype(float)
    means = []
    for _ in range(400):
        effects = rng.normal(size=400)
        means.append(mean_per_step(sizes * effects, sizes))
    spread = np.std([mean for mean, _ in means])
    assert np.mean([error for _, error in means]) == pytest.approx(spread, rel=0.1)


def test_tables(selection):
    frame = selection.to_frame()
    assert frame["recommended"].sum() == 1
    assert frame["model"].tolist()[-3:] == ["uniform", "Markov chain", "n-gram"]
    facts = json.loads(json.dumps(selection.to_dict(), allow_nan=False))
    assert facts["recommended"] == selection.recommended._asdict()
    assert facts["nested"] is None
    text = str(selection)
    assert "n-gram" in text
    assert "recommended" in text


def test_progress_counts_all_fits(data):
    calls = []
    select(data, (1, 2), folds=2, outer_folds=2, progress=lambda *call: calls.append(call))
    assert [done for done, _, _ in calls] == list(range(1, len(calls) + 1))
    assert {total for _, total, _ in calls} == {len(calls)}


class TestInvalid:
    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("folds", 1),
            ("folds", 9),
            ("folds", 2.5),
            ("outer_folds", 1),
            ("outer_folds", 9),
            ("n_errors", -1.0),
            ("n_errors", math.nan),
            ("progress", 3),
            ("seed", -1),
            ("mixture", 3),
        ],
    )
    def test_parameter(self, data, name, value):
        with raises(InvalidParameter, parameter=name, value=value):
            select(data, **{name: value})

    @pytest.mark.parametrize("numbers", [[], 3, "12"])
    def test_numbers(self, data, numbers):
        with raises(InvalidParameter, parameter="n_intents", value=numbers):
            select(data, numbers)

    @pytest.mark.parametrize(
        ("name", "bad"), [("ridges", -1.0), ("ridges", math.nan), ("gammas", 0.0), ("ridges", "x")]
    )
    def test_values(self, data, name, bad):
        with raises(InvalidParameter, parameter=name, value=bad):
            select(data, **{name: [0.5, bad]})

    def test_switching_ridges_without_use(self, data):
        with raises(InvalidParameter, parameter="switching_ridges"):
            select(data, switching_ridges=[1.0])

    def test_recordings_of_one_state(self, data):
        mdp, demos, _ = data
        with raises(InvalidDemos, parameter="demos", value=1, index=8):
            select((mdp, demos + Demonstrations.from_lists([[3]], [[]]), None))

    def test_given_init(self, data):
        with raises(InvalidParameter, parameter="init"):
            select(data, mixture=SwitchingMixture(init=np.zeros(800, dtype=int)))

    def test_covariates(self, data):
        with raises(InvalidParameter, parameter="covariates"):
            select(data, covariates=np.zeros((800, 1)))
