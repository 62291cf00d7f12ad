"""The page on switching intents: sections, figures, tables, cautions and options."""

import numpy as np
import pandas as pd
import pytest

from limiirl import MDP, Demonstrations, MaxCausalEnt, SwitchingMixture, select_switching, with_history
from limiirl.errors import ConvergenceWarning, InvalidParameter
from limiirl.report import write
from limiirl.report.intents import switching_report
from limiirl.report.intents.view import make_switching_view, visit_rates
from tests.helpers import raises
from tests.switching.test_estimator import MODEL, switch


@pytest.fixture(scope="module")
def fitted():
    """Two intents of eight animals with two recordings each; the last four switch more often."""
    mdp, slow, _ = switch(0, n_demos=8, length=120, stay=0.98)
    _, fast, _ = switch(1, n_demos=8, length=120, stay=0.85)
    names = np.repeat([f"m{i}" for i in range(8)], 2)
    demos = (slow + fast).replace(groups=names, ids=np.array([f"{g}-{i % 2}" for i, g in enumerate(names)]))
    return SwitchingMixture(2, MODEL, random_state=0).fit(mdp, demos, demos.groups)


CONDITION = {f"m{i}": "slow" if i < 4 else "fast" for i in range(8)}


def titles(report):
    return [section.title for section in report.sections]


def figures(report):
    return {figure.name for figure in report.figures}


def test_the_page_has_figures_tables_and_downloads(fitted, tmp_path):
    page = fitted.report(tmp_path / "page", condition=CONDITION, intent_names=["<left>", "right"]).read_text()
    assert "&lt;left&gt;" in page
    assert "<left>" not in page
    assert "<script" not in page
    for name in ("rewards", "switches", "timeline", "visits", "reward-maps"):
        for ending in ("svg", "png", "csv"):
            assert (tmp_path / "page" / "figures" / f"{name}.{ending}").stat().st_size > 50, name
    for name in ("contrasts", "dwell-times", "transitions", "groups", "group-values", "prediction"):
        assert (tmp_path / "page" / "tables" / f"{name}.tex").is_file()


def test_numbers_of_the_tables_are_those_of_the_mixture(fitted, tmp_path):
    fitted.report(tmp_path, condition=CONDITION)
    demos = fitted._training[0]
    steps = pd.read_csv(tmp_path / "figures" / "timeline.csv")
    np.testing.assert_allclose(steps[["intent 0", "intent 1"]], fitted.predict_proba(demos), rtol=1e-12)
    assert steps["intent"].tolist() == [f"intent {k}" for k in fitted.predict(demos)]
    dwell = pd.read_csv(tmp_path / "tables" / "dwell-times.csv")
    np.testing.assert_allclose(dwell["Dwell time"], fitted.dwell_times_, rtol=1e-12)
    np.testing.assert_allclose(dwell["Dwell time ±"], fitted.summary().dwell_errors, rtol=1e-12)
    table = pd.read_csv(tmp_path / "tables" / "groups.csv").set_index("Quantity")
    rows = {row.quantity: row for row in fitted.compare_groups(demos, condition=CONDITION).rows}
    for name, row in rows.items():
        assert table.loc[name, "p"] == pytest.approx(row.p)
        assert table.loc[name, "slow"] == pytest.approx(row.mean_second)
    values = pd.read_csv(tmp_path / "tables" / "group-values.csv")
    assert values["Condition"].tolist() == ["slow"] * 4 + ["fast"] * 4
    rewards = pd.read_csv(tmp_path / "figures" / "rewards.csv")
    errors = fitted.standard_errors().thetas
    np.testing.assert_allclose(rewards["standard_error"], errors.T.ravel(), rtol=1e-12)


def test_the_summary_has_the_intents_and_the_difference_between_conditions(fitted):
    report = switching_report(fitted, condition=CONDITION, intent_names=["A", "B"])
    assert "prefers state" in report.lead
    assert "No significant difference between fast and slow" in report.lead
    assert "switches per 100 steps" not in report.lead
    assert "Comparison of groups" in titles(report)
    assert "Comparison of groups" not in titles(switching_report(fitted))
    assert dict(report.highlights)["steps"] == "1,920"


def test_a_selection_replaces_the_scores_of_the_training_data(fitted):
    demos = fitted._training[0]
    template = SwitchingMixture(irl=MODEL, random_state=0)
    selection = select_switching(fitted.mdp_, demos, [1, 2], mixture=template, groups=demos.groups, folds=2)
    report = switching_report(selection.best, selection=selection)
    (table,) = [table for table in report.tables if table.name == "prediction"]
    scores = {row[0].text: row[1].value for row in table.cells}
    assert scores["1 intent"] < scores["n-gram"]
    best = next(row for row in selection.rows if row.setting == selection.recommended)
    assert scores["2 intents"] == pytest.approx(best.held_out)
    assert dict(report.highlights)["nats per step, held out"] == f"{best.held_out:.3f}".replace("-", "−")


def test_new_demonstrations_are_compared_with_baselines_of_the_training_data(fitted):
    _, others, _ = switch(7, n_demos=2, length=60)
    report = switching_report(fitted, others)
    (table,) = [table for table in report.tables if table.name == "prediction"]
    scores = [row[1].value for row in table.cells]
    assert scores[0] == pytest.approx(fitted.score(others))
    assert scores[1] == pytest.approx(-np.log(2))
    view = make_switching_view(fitted, others)
    assert not view.trained
    assert np.isnan(view.errors).all()


def test_a_loaded_mixture_has_a_page_with_and_without_its_data(fitted, tmp_path):
    fitted.save(tmp_path / "mix")
    loaded, demos = SwitchingMixture.load(tmp_path / "mix"), fitted._training[0]
    short = switching_report(loaded)
    assert figures(short) == {"rewards", "switches", "reward-maps"}
    assert write(short, tmp_path / "page").is_file()
    view = make_switching_view(loaded, demos)
    assert view.trained
    np.testing.assert_allclose(view.errors, fitted.standard_errors().thetas, rtol=1e-6)
    with raises(InvalidParameter, parameter="demos"):
        loaded.plot_timeline()
    with raises(InvalidParameter, parameter="demos"):
        switching_report(loaded, condition=CONDITION)


def test_states_with_history_are_merged_and_covariates_are_used(tmp_path):
    mdp, demos, _ = switch(2, n_demos=4, length=60)
    longer, own = with_history(mdp.replace(state_names=[f"place {s}" for s in range(7)]), demos)
    light = np.random.default_rng(0).normal(size=(own.n_transitions, 1))
    sw = SwitchingMixture(2, MODEL, "covariates", random_state=0).fit(longer, own, covariates={"light": light[:, 0]})
    assert sw.covariates_.names == ("light",)
    report = switching_report(sw)
    visits = next(figure for figure in report.figures if figure.name == "visits")
    assert set(visits.data["state"]) == {f"place {s}" for s in range(7)}
    assert any("covariates=X" in getattr(item, "text", "") for item in report.methods)


def test_one_intent_and_recordings_of_one_step():
    mdp, demos, _ = switch(3, n_demos=3, length=40)
    demos = demos + Demonstrations.from_lists([[3, 4]], [[1]])
    report = switching_report(SwitchingMixture(1, MODEL).fit(mdp, demos))
    assert "switches" not in figures(report)
    assert report.title.startswith("1 intent that")


def test_problems_are_reported_first():
    mdp, demos, _ = switch(4, n_demos=3, length=60)
    with pytest.warns(ConvergenceWarning):
        sw = SwitchingMixture(2, MODEL, max_iter=1, random_state=0).fit(mdp, demos)
    report = switching_report(sw)
    problems = [
        item for section in report.sections for item in section.items if getattr(item, "verdict", "") == "problem"
    ]
    assert len(problems) == 1
    assert report.lead.startswith(f"**{problems[0].title}")


class TestPlots:
    def test_timeline_has_one_row_per_recording(self, fitted):
        axes = fitted.plot_timeline().axes[0]
        assert [label.get_text() for label in axes.get_yticklabels()][:3] == ["m0-0", "m0-1", "m1-0"]

    def test_rewards_are_drawn_as_intervals_or_maps(self, fitted):
        assert fitted.plot_rewards().axes[0].get_xlabel().startswith("reward")
        maps = fitted.plot_rewards(maps=True, intent_names=["A", "B"])
        assert [axes.get_title(loc="left") for axes in maps.axes[:2]] == ["A", "B"]
        unnamed = MDP.from_edges([0, 0], [0, 0], action=[0, 1], gamma=0.9, action_features=[[1.0], [0.0]])
        demos = Demonstrations.from_lists([[0] * 21] * 2, [[0] * 10 + [1] * 10] * 2)
        sw = SwitchingMixture(1, MaxCausalEnt(ridge=1e-3)).fit(unnamed, demos)
        with raises(InvalidParameter, parameter="maps", value=True):
            sw.plot_rewards(maps=True)

    def test_graph_has_the_names_of_the_intents(self, fitted):
        texts = [text.get_text() for text in fitted.plot_switches(intent_names=["A", "B"]).axes[0].texts]
        assert any(text.startswith("A\n") for text in texts)
        assert texts.count("100 %") == 2

    def test_names_are_checked(self, fitted):
        with raises(InvalidParameter, parameter="intent_names"):
            fitted.plot_switches(intent_names=["A", "A"])


def test_visit_rates_are_ratios_with_errors_of_clusters():
    rng = np.random.default_rng(0)
    states, U, owner = rng.integers(3, size=400), rng.dirichlet([1, 1], size=400), np.repeat(np.arange(8), 50)
    rates = visit_rates(states, U, owner, 4)
    expected = [[100 * U[states == s, k].sum() / U[:, k].sum() for s in range(4)] for k in range(2)]
    np.testing.assert_allclose(rates.values, expected, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(rates.others, rates.values[::-1], rtol=1e-12, atol=1e-12)
    # The error of intent 0 by definition: residuals of the two ratios, summed over each cluster.
    residual = np.zeros((8, 4))
    for k, sign in ((0, 1.0), (1, -1.0)):
        for c in range(8):
            for s in range(4):
                own = owner == c
                hits = np.sum(U[own, k] * (states[own] == s))
                residual[c, s] += sign * (100 * hits - rates.values[k, s] * U[own, k].sum()) / U[:, k].sum()
    np.testing.assert_allclose(rates.errors[0], np.sqrt((residual**2).sum(axis=0)), rtol=1e-9, atol=1e-9)
