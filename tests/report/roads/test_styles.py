"""Reports on fits and on driver experiments: styles, trips, tables and forecasts."""

from dataclasses import replace

import numpy as np
import pytest

from limiirl import Demonstrations, MaxEnt, RewardEnsemble
from limiirl.errors import InvalidParameter
from limiirl.experiments import (
    DESTINATION_METHODS,
    DRIVER_METHODS,
    DriverData,
    DriverPlan,
    DriverResults,
    DriverSpec,
    driver_example,
    run_drivers,
)
from limiirl.mixture.selection.recommend import SelectionRow
from limiirl.mixture.selection.select import Selection
from limiirl.report import write
from limiirl.report.roads import experiment_report, styles_report, styles_view
from limiirl.report.roads.experiment import experiment_view
from limiirl.report.roads.styles import selection_table
from limiirl.roads.drivers.fit import fit_drivers
from tests.helpers import raises
from tests.oracles.two_ways import MOTORWAY, STREET, demonstrations, drives, two_ways

PLAN = DriverPlan(
    n_intents=2, n_splits=2, n_train=15, n_test=12, max_length=9, max_evaluations=8, max_iter=3, m_gtol=0.1, n_routes=10
)
QUICK = {"model": "MaxEnt", "features": "plain", "resp_tol": 1.0}


@pytest.fixture(scope="module")
def network():
    return two_ways()


@pytest.fixture(scope="module")
def demos():
    return demonstrations(drives(24), groups=np.arange(24) % 6)


@pytest.fixture(scope="module")
def fit(network, demos):
    return fit_drivers(network, demos, 2, gamma=0.9, max_length=9, **QUICK)


@pytest.fixture(scope="module")
def data(network):
    return DriverData(network, demonstrations(drives(40)))


@pytest.fixture(scope="module")
def results(data, tmp_path_factory):
    return run_drivers(data, PLAN, tmp_path_factory.mktemp("drivers"))


def list_segments(example):
    return np.concatenate([example.driven, example.actual]).tolist()


class TestFit:
    def test_the_view_has_the_learned_styles(self, network, demos, fit):
        view = styles_view(network, fit)
        assert view.facts == {
            "model": "MaxEnt",
            "trips": "24",
            "clusters (stick-breaking GMM)": fit.n_clusters,
            "EM iterations": fit.mixture.n_iter_,
        }
        assert list(view.ensembles) == ["k-means"]
        np.testing.assert_array_equal(view.main.thetas, fit.mixture.thetas_)
        np.testing.assert_allclose(view.responsibilities, fit.mixture.predict_proba(demos), rtol=1e-9)
        assert view.forecasts == []

    def test_kilometres_are_not_discounted(self, network, demos, fit):
        view = styles_view(network, fit)
        km = [network.length_m[demo.states].sum() / 1000.0 for demo in demos]
        np.testing.assert_allclose(view.features.sum(axis=1), km, rtol=1e-12)

    def test_a_given_initialisation_has_no_name(self, network, demos):
        start = RewardEnsemble(np.array([0.5, 0.5]), np.array([[-1.0] * 4, [-2.0] * 4]))
        fitted = fit_drivers(network, demos, 2, init=start, max_length=9, **QUICK)
        assert list(styles_view(network, fitted).ensembles) == ["custom values"]

    def test_examples_are_trips_of_medium_length(self, network):
        lap = [0, 3, 4, 5]
        trips = [MOTORWAY, lap * 40, lap * 10, STREET, lap * 12, lap * 9]
        fitted = fit_drivers(network, Demonstrations.from_lists(trips), 1, max_length=160, **QUICK)
        view = styles_view(network, fitted, examples=3)
        assert [list_segments(example) for example in view.forecasts] == [lap * 10, lap * 12]
        assert [example.title for example in view.forecasts] == ["Trip 1", "Trip 2"]
        assert len(styles_view(network, fitted, examples=1).forecasts) == 1

    def test_examples_are_the_longest_if_all_are_short(self, network, demos, fit):
        view = styles_view(network, fit, examples=2)
        assert [len(list_segments(example)) for example in view.forecasts] == sorted(demos.lengths)[-1:-3:-1]
        for example in view.forecasts:
            np.testing.assert_allclose(example.intents.sum(), 1.0, rtol=1e-9)

    def test_the_page_has_all_sections_and_is_written(self, network, fit, tmp_path):
        report = styles_report(network, fit)
        assert [section.title for section in report.sections if section.title != "Two routes"][:3] == [
            "Styles", "Streets by style", "Rewards"
        ]  # fmt: skip
        assert report.sections[-1].title == "Forecasts"
        assert len(report.sections[-1].items) == 3
        page = write(report, tmp_path / "page")
        assert page == tmp_path / "page" / "index.html"
        assert "Driving styles" in page.read_text(encoding="utf-8")


class TestSelection:
    def test_the_selection_table_has_all_numbers_of_styles(self, network, demos):
        fitted = fit_drivers(network, demos, "select", max_length=9, **QUICK)
        report = styles_report(network, fitted)
        (table,) = (table for table in report.tables if table.name.startswith("cross-validation"))
        assert [cells[0].value for cells in table.cells] == [row.n_intents for row in fitted.selection.rows]
        for cells, row in zip(table.cells, fitted.selection.rows, strict=True):
            assert cells[1].value == row.log_likelihood
            assert cells[2].value == row.held_out
            assert cells[2].text == f"{row.held_out:.2f} ± {row.held_out_se:.2f}".replace("-", "−")
            assert [cells[4].value, cells[5].value] == [row.bic, row.icl]
            assert (cells[0].mark == "best") == (row.n_intents == fitted.selection.recommended)
            assert ("recommended" in cells[6].text) == (row.n_intents == fitted.selection.recommended)
        assert report.sections[-1].title == "Cross-validation"
        assert "per trip" in table.caption

    def test_failures_and_missing_values_have_remarks(self):
        rows = (
            SelectionRow(1, held_out=-3.0, converged=True),
            SelectionRow(2, error="no <room>"),
            SelectionRow(3, n_empty=2),
        )
        table = selection_table(Selection(rows, 1, {}, "1 intent.", {}, "groups"))
        assert [cells[6].text for cells in table.cells] == [
            "recommended", "failed: no <room>", "EM did not converge, empty styles: 2"
        ]  # fmt: skip
        assert [cells[2].text for cells in table.cells] == ["−3.00", "–", "–"]
        assert "per driver" in table.caption

    def test_a_fixed_number_has_no_selection_table(self, network, fit):
        assert "cross-validation-styles" not in {table.name for table in styles_report(network, fit).tables}


class TestExamples:
    def test_the_end_of_a_trip_is_not_its_own_candidate(self, network):
        """Only one trip ends in segment 5."""
        trips = Demonstrations.from_lists([[0, 3, 4, 5], STREET, MOTORWAY, STREET])
        fitted = fit_drivers(network, trips, 1, max_length=9, **QUICK)
        examples = {
            tuple(list_segments(example)): example for example in styles_view(network, fitted, examples=4).forecasts
        }
        assert set(examples[0, 3, 4, 5].destinations) == {4}
        assert set(examples[tuple(MOTORWAY)].destinations) == {4, 5}

    def test_a_single_trip_has_no_forecast(self, network):
        fitted = fit_drivers(network, Demonstrations.from_lists([MOTORWAY]), 1, max_length=9, **QUICK)
        assert styles_view(network, fitted, examples=3).forecasts == []

    def test_pages_state_whether_trips_were_training_trips(self, network, fit, data, results):
        assert "These are training trips" in styles_report(network, fit).sections[-1].lead
        section = next(
            s
            for s in experiment_report(data, results, driver_example(data, results)).sections
            if s.title == "Forecasts"
        )
        assert "These are test trips" in section.lead

    def test_streets_are_counted_by_drivers_if_known(self, network, fit):
        trips = demonstrations([MOTORWAY] * 6 + [STREET] * 2, groups=[0, 0, 0, 0, 1, 1, 0, 1])
        view = styles_view(network, fit)
        # The first style has the trips of one driver and one trip of the other; the second has the others.
        one = np.array([1, 1, 1, 1, 1, 0, 1, 0])
        some = {"responsibilities": np.stack([0.4 + 0.2 * one, 0.6 - 0.2 * one], axis=1), "features": np.ones((8, 4))}
        for groups, unit, motorway, street, all_of in (
            (trips.groups, "drivers", [2, 1], [1, 1], [2, 1]),
            (None, "trips", [5, 1], [1, 1], [6, 2]),
        ):
            changed = replace(view, demos=trips.replace(groups=groups), **some)
            assert changed.unit == unit
            assert changed.drivers_per_street[:, MOTORWAY[1]].tolist() == motorway
            assert changed.drivers_per_street[:, STREET[1]].tolist() == street
            assert changed.drivers_per_style.tolist() == all_of

    def test_single_trips_can_be_left_out(self, network, fit):
        shown, hidden = styles_report(network, fit), styles_report(network, fit, examples=False)
        assert not {"Two routes", "Forecasts"} & {section.title for section in hidden.sections}
        names = [[layer.title for m in page.maps for layer in m.layers] for page in (shown, hidden)]
        assert any(name.startswith("Typical trips") for name in names[0])
        assert not any(name.startswith("Typical trips") for name in names[1])


class TestExperiment:
    def test_the_view_has_the_best_ensemble_per_initialisation(self, data, results):
        view = experiment_view(data, results, driver_example(data, results))
        starts = {"hard clusters (k-means)": "k-means, MLE", "soft clusters (GMM)": "GMM, MLE"}
        starts["random rewards"] = "random rewards"
        assert list(view.ensembles) == list(starts)
        hard = min(results.of("k-means, MLE", 1.0), key=lambda record: record.train_nll)
        assert f"split {hard.split}" in view.source
        for start, method in starts.items():
            best = next(record for record in results.of(method, 1.0) if record.split == hard.split)
            np.testing.assert_array_equal(view.ensembles[start].thetas, best.thetas)
            np.testing.assert_array_equal(view.ensembles[start].weights, best.weights)

    def test_styles_belong_to_test_trips_of_the_split(self, data, results):
        view = experiment_view(data, results, driver_example(data, results))
        best = min(results.of("k-means, MLE", 1.0), key=lambda record: record.train_nll)
        test = data.split(PLAN, best.split)[1]
        np.testing.assert_array_equal(view.demos.ids, test.ids)
        mdp = data.mdp(PLAN, DriverSpec(best.method, 1.0))
        # Bayes' theorem with the likelihoods of the model.
        log_p = MaxEnt(PLAN.max_length, PLAN.bounds).log_prob(mdp, np.array(best.thetas), test)
        joint = np.array(best.weights) * np.exp(log_p)
        np.testing.assert_allclose(view.responsibilities, joint / joint.sum(axis=1, keepdims=True), rtol=1e-9)

    def test_forecasts_of_another_model_have_no_styles(self, data, results):
        view = experiment_view(data, results, driver_example(data, results))
        assert len(view.forecasts) == 3
        for example in view.forecasts:
            assert example.intents.size == 0
            assert list_segments(example) in [demo.states.tolist() for demo in view.demos]

    def test_settings_are_listed(self, data, results):
        facts = experiment_view(data, results, driver_example(data, results)).facts
        assert facts["discounts"] == "1, 0.999"
        assert facts["training trips per split"] == "15"
        assert facts["bounds of rewards given the destination"] == "−50 to 0"
        assert facts["features"] == "paper"
        assert len(facts) == len(PLAN.to_dict())
        assert not any("_" in name for name in facts)

    def test_tables_have_the_rows(self, data, results):
        report = experiment_report(data, results, driver_example(data, results))
        free, bound = (table for table in report.tables if table.name.startswith("cross-validation"))
        rows = {(row.method, f"{row.gamma:g}"): row for row in results.rows()}
        both = [("shortest distance", "–"), ("shortest time", "–")]
        for table, methods in (
            (free, [(m, g) for g in ("1", "0.999") for m in DRIVER_METHODS]),
            (bound, [(m, "1") for m in DESTINATION_METHODS]),
        ):
            assert [(cells[0].text, cells[1].text) for cells in table.cells] == methods + both
            for cells, key in zip(table.cells, methods, strict=False):
                row = rows[key]
                assert [cells[j].value for j in (2, 3, 4, 7)] == [
                    row.iterations.mean, row.minutes.mean, row.nll.mean, row.missed.mean
                ]  # fmt: skip
                assert cells[4].text == f"{row.nll.mean:.2f} ± {row.nll.half_width:.2f}"
                if row.gain is None:
                    assert (cells[5].text, cells[6].text) == ("–", "–")
                else:
                    assert cells[5].value == row.gain.mean
                    assert cells[5].text.startswith("−") == (round(row.gain.mean, 2) < 0.0)
                    assert cells[6].text == f"{row.n_better} of 2"
            for cells, name in zip(table.cells[-2:], ("shortest distance", "shortest time"), strict=True):
                assert cells[7].value == results.baselines()[name].mean
            assert [cells[8].value for cells in table.cells[:-2]] == [rows[key].surplus.mean for key in methods]
            assert table.cells[-1][8].value == results.baselines("surplus")["shortest time"].mean
        assert "over 2 random splits" in free.caption

    def test_initialisations_are_compared_within_one_split(self, data, results):
        """A soft initialisation with a higher likelihood in another split is not shown."""
        hard = results.best("k-means, MLE", 1.0).split
        records = tuple(
            replace(r, train_nll=r.train_nll - 100.0) if r.method == "GMM, MLE" and r.split != hard else r
            for r in results.records
        )
        changed = DriverResults(PLAN, records)
        shown = experiment_view(data, changed, driver_example(data, changed)).ensembles["soft clusters (GMM)"]
        np.testing.assert_array_equal(shown.thetas, results.best("GMM, MLE", 1.0, hard).thetas)

    def test_missing_gains_are_not_counted(self, data, results):
        """A split without the single-intent fit has no gain and is not counted."""
        plan = replace(PLAN, n_splits=3)
        more = [replace(record, seed=2) for record in results.records if record.split == 1]
        kept = (*results.records, *(record for record in more if record.method != "one intent"))
        page = experiment_report(data, DriverResults(plan, kept), driver_example(data, DriverResults(plan, kept)))
        table = next(t for t in page.tables if t.name.endswith("drivers"))
        line = next(cells for cells in table.cells if cells[0].text == "GMM, MLE")
        assert line[6].text.endswith(" of 2")

    def test_one_split_has_no_interval(self, data, results):
        alone = results.best("k-means, MLE", 1.0).split
        some = tuple(r for r in results.records if r.split == alone or r.method in DESTINATION_METHODS)
        page = experiment_report(data, DriverResults(PLAN, some), driver_example(data, DriverResults(PLAN, some)))
        free, bound = (t for t in page.tables if t.name.startswith("cro"))
        row = next(row for row in results.rows() if row.method in DESTINATION_METHODS)
        for cells in free.cells[:-2]:
            assert "±" not in "".join(cell.text for cell in cells)
        assert bound.cells[0][7].text == f"{100 * row.missed.mean:.1f} ± {100 * row.missed.half_width:.1f}"
        assert bound.cells[0][7].half_width == row.missed.half_width
        assert "over up to 2 random splits" in free.caption
        assert "over 2 random splits" in bound.caption

    def test_an_incomplete_experiment_is_rejected(self, data, results):
        for gone in ("random rewards", list(DESTINATION_METHODS)[-1]):
            some = DriverResults(PLAN, tuple(record for record in results.records if record.method != gone))
            with raises(InvalidParameter, parameter="method", value=gone):
                experiment_report(data, some, driver_example(data, some))
