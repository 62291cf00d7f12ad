"""Reports on studies beyond the paper: tables and figures agree with the records."""

import numpy as np
import pytest
from scipy import stats

from limiirl.experiments.claims import CAUSAL, N_HEADLINES, NEAR
from limiirl.experiments.record import Record
from limiirl.experiments.results import Results
from limiirl.experiments.store import Store
from limiirl.experiments.studies import GROUPS, STUDIES, choose_studies, join_method, model_of, start_of
from limiirl.report import Callout, Fold, write
from limiirl.report.studies import run_report, summarise_run
from limiirl.report.studies.beyond import methods_at, paper_point, score_table
from tests.oracles.browser import examine, require_browser
from tests.oracles.records import make_results
from tests.oracles.report import fill_store, half_width, make_records, reader, rows

pytestmark = pytest.mark.slow

WORLDS = 9
MODELS, ELEMENTS, WIND = (STUDIES[name] for name in GROUPS["beyond"])


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return fill_store(tmp_path_factory.mktemp("run"), ["beyond"], WORLDS)


@pytest.fixture(scope="module")
def report(store):
    return run_report(store)


@pytest.fixture(scope="module")
def folder(report, tmp_path_factory):
    return write(report, tmp_path_factory.mktemp("report")).parent


@pytest.fixture(scope="module")
def raw(store):
    return reader(store, WORLDS)


def round_ties(gap, measure):
    """Set differences to 0 that are within the tolerance of EM."""
    return np.where(np.abs(gap) <= {"anid": 1e-4, "gevd": 1e-3}[measure], 0.0, gap)


def test_all_figures_and_tables_are_written(folder):
    figures = {path.stem for path in (folder / "figures").glob("*.svg")}
    curves = {f"{name}{kind}" for name in GROUPS["beyond"][1:] for kind in ("", "-anid", "-gevd")}
    assert figures == {"quality", *curves}
    tables = {path.stem for path in (folder / "tables").glob("*.tex")}
    along = {f"{name}-{kind}" for name in GROUPS["beyond"][1:] for kind in ("supervised", "seconds")}
    assert tables == {"claims", "beyond", "beyond-tests", "beyond-models", "beyond-models-tests", *along}


def test_the_setting_of_the_paper():
    for study, x in ((MODELS, 3), (ELEMENTS, 3), (WIND, 0.1)):
        assert paper_point(Results(study, {})) == x
    assert paper_point(Results(STUDIES["sigma-girl"], {})) is None


def test_models_at_the_setting_of_the_paper_have_their_own_table(folder, raw):
    table = {(row["Model"], row["Initialisation"]): row for row in rows(folder, "tables/beyond-models.csv")}
    assert len(table) == len(MODELS.settings) == 10
    for (model, start), row in table.items():
        np.testing.assert_allclose(
            float(row["GEVD"]), raw(MODELS, join_method(model, start), 3, "gevd").mean(), rtol=1e-12
        )


def test_scores_are_means_of_the_records(folder, raw):
    table = {(row["Model"], row["Initialisation"]): row for row in rows(folder, "tables/beyond.csv")}
    assert list(table) == [(model_of(s.method), start_of(s.method)) for s in ELEMENTS.settings if s.x == 3]
    for (model, start), row in table.items():
        names = {"GEVD": "gevd", "ANID": "anid", "Accuracy": "accuracy", "Iterations": "n_iter", "Fit time": "seconds"}
        for heading, measure in names.items():
            if start == "supervised" and measure in ("n_iter", "seconds"):
                assert row[heading] == ""
                continue
            values = raw(ELEMENTS, join_method(model, start), 3, measure)
            np.testing.assert_allclose(float(row[heading]), values.mean(), rtol=1e-12)
            np.testing.assert_allclose(float(row[f"{heading} ±"]), half_width(values), rtol=1e-9)


def test_the_best_methods_are_unsupervised(folder):
    table = rows(folder, "tables/beyond.csv")
    for heading in ("GEVD", "ANID"):
        known = [row for row in table if row["Initialisation"] != "supervised"]
        best = min(known, key=lambda row: float(row[heading]))
        assert [row for row in table if row[f"{heading} mark"] == "best"] == [best]


def test_tied_methods_are_all_marked_as_best():
    # Means that differ by less than the tolerance of EM tie.
    def value(method, x, measure, seed):
        return (1.0 if model_of(method) == "MaxCausalEnt" else 2.0) + 1e-6 * ("GMM" in method)

    table = score_table(make_results(ELEMENTS, value, n_worlds=2), 3)
    for cells in table.cells:
        best = cells[0].text == "MaxCausalEnt" and cells[1].text != "supervised"
        assert [cell.mark for cell in cells[2:4]] == ["best" if best else None] * 2


def test_paired_tests_agree_with_scipy(folder, raw):
    table = rows(folder, "tables/beyond-tests.csv")
    assert {row["Model"] for row in table} == {model_of(s.method) for s in ELEMENTS.settings} - {"MaxEnt"}
    certain = 0
    for row in table:
        for measure in ("gevd", "anid"):
            mine, base = (
                raw(ELEMENTS, join_method(m, row["Initialisation"]), 3, measure) for m in (row["Model"], "MaxEnt")
            )
            gap, title = round_ties(mine - base, measure), measure.upper()
            np.testing.assert_allclose(float(row[f"{title} difference"]), gap.mean(), rtol=1e-9)
            np.testing.assert_allclose(float(row[f"{title} difference ±"]), half_width(gap, 0.99), rtol=1e-9)
            p_t, p_w = stats.ttest_1samp(gap, 0.0).pvalue, stats.wilcoxon(gap).pvalue
            np.testing.assert_allclose(float(row[f"{title} p, Student"]), p_t, rtol=1e-7)
            np.testing.assert_allclose(float(row[f"{title} p, Wilcoxon"]), p_w, rtol=1e-9)
            np.testing.assert_allclose(float(row[f"{title} d"]), gap.mean() / gap.std(ddof=1), rtol=1e-9)
            sure = max(p_t, p_w) < 0.01
            certain += sure
            assert (row[f"{title} difference mark"] == "certain") == sure
    assert 0 < certain < 2 * len(table)


@pytest.mark.parametrize(("study", "symbol"), [(ELEMENTS, "E"), (WIND, "w")])
def test_differences_are_relative_to_the_supervised_model(folder, raw, study, symbol):
    table = rows(folder, f"tables/{study.name}-supervised.csv")
    assert "supervised" not in {row["Initialisation"] for row in table}
    marks = set()
    for row in table:
        for x in study.points:
            heading = f"{symbol} = {x}"
            ours, floor = (join_method(row["Model"], start) for start in (row["Initialisation"], "supervised"))
            if study.spec(ours, x) is None:
                assert row[heading] == ""
                continue
            gap = round_ties(raw(study, ours, x, "anid") - raw(study, floor, x, "anid"), "anid")
            np.testing.assert_allclose(float(row[heading]), gap.mean(), rtol=1e-9, atol=1e-12)
            np.testing.assert_allclose(float(row[f"{heading} ±"]), half_width(gap, 0.99), rtol=1e-9)
            wanted = "agrees" if gap.mean() + half_width(gap, 0.99) <= NEAR else ""
            marks.add(wanted)
            assert row[f"{heading} mark"] == wanted
    assert marks == {"agrees", ""}


def test_fit_times_have_the_initialisation_of_the_paper(folder, raw):
    for row in rows(folder, "tables/beyond-elements-seconds.csv"):
        for x in ELEMENTS.points:
            method = join_method(row["Model"], "k-means, MLE")
            if ELEMENTS.spec(method, x) is None:
                assert row[f"E = {x}"] == ""
                continue
            values = raw(ELEMENTS, method, x, "seconds")
            np.testing.assert_allclose(float(row[f"E = {x}"]), values.mean(), rtol=1e-12)


def test_figures_have_the_means_of_the_records(folder, raw):
    for row in rows(folder, "figures/quality.csv"):
        method = join_method(row["model"], row["initialisation"])
        for measure in ("anid", "gevd"):
            np.testing.assert_allclose(float(row[measure]), raw(ELEMENTS, method, 3, measure).mean(), rtol=1e-12)
        assert (row["seconds"] == "nan") == (row["initialisation"] == "supervised")
    for row in rows(folder, "figures/beyond-wind.csv"):
        method = join_method(row["model"], "supervised" if row["supervised"] == "True" else "k-means, MLE")
        values = raw(WIND, method, float(row["wind w"]), row["measure"])
        np.testing.assert_allclose(float(row["mean"]), values.mean(), rtol=1e-12)
    for row in rows(folder, "figures/beyond-elements-gevd.csv"):
        values = raw(
            ELEMENTS, join_method(row["model"], row["initialisation"]), int(float(row["elements E = K"])), "gevd"
        )
        np.testing.assert_allclose(float(row["mean"]), values.mean(), rtol=1e-12)


def test_the_page_describes_what_was_run(folder):
    page = (folder / "index.html").read_text()
    assert "<title>Multiple intents: models and initialisations</title>" in page
    for name in ("MaxCausalEnt", "Sigma-GIRL", "ML-IRL, averaged"):
        assert f"<dt>{name}</dt>" in page
    assert "PuddleWorld" not in page
    assert "<em>Sigma-GIRL</em> in ElementWorld" in page
    assert "Best start</em>" in page
    assert "bounds=(-10, 0)" in page
    assert "100 iterations (25 for Sigma-GIRL in ElementWorld)" in page
    assert "SigmaGIRL with max_iter=25, n_agents=2" in page
    assert "refine=&#39;split_merge&#39;" in page
    assert "<dt>k-means, split and merge</dt>" in page
    assert "Split and merge</em>" in page
    assert "±0.5 (GEVD with MaxEnt), ±0.1 (GEVD with causal models)" in page


def test_claims_beyond_the_paper_are_collapsed(report):
    findings = next(section for section in report.sections if section.title == "Findings")
    assert [type(item) for item in findings.items] == [Fold]
    (table,) = findings.items[0].items
    assert [column.title for column in table.headings] == ["Claim", "Verdict", "Study"]
    assert all(" = " not in row[0].text for row in table.cells)  # no line break at the equals sign
    assert {row[1].text for row in table.cells} <= {"holds", "does not hold", "open"}
    titles = [section.title for section in report.sections]
    curves = ["Reward quality, clustering quality and fit time", ELEMENTS.title, WIND.title]
    assert titles == ["Overview", "Findings", MODELS.title, *curves]
    for section in report.sections[4:]:
        shown = [item.title for item in section.items if isinstance(item, Callout)]
        assert len(shown) == N_HEADLINES
        assert [title.startswith(f"{model} learns better") for title, model in zip(shown, CAUSAL, strict=False)] == [
            True
        ] * len(CAUSAL)
        assert "performs as well as" in shown[-1]


def test_values_over_fewer_worlds_have_a_note(tmp_path):
    store = Store(tmp_path)
    lost = ELEMENTS.spec("MaxEnt: k-means, MLE", 3)
    records = make_records(ELEMENTS, 4)
    store.append([Record(r.spec, r.seed, error="E: no") if r.key == (lost.hash, 2) else r for r in records])
    report = run_report(store)
    tables = {table.name: table for table in report.tables}
    for cells in tables["beyond"].cells:
        note = "Over 3 of the 4 worlds; the others failed."
        mine = (cells[0].text, cells[1].text) == ("MaxEnt", "k-means, MLE")
        assert all((note in cell.note) == mine for cell in cells[2:])
    against = [row for row in tables["beyond-tests"].cells if row[1].text == "k-means, MLE"]
    assert all("Over 3 of the 4 worlds" in row[2].note for row in against)
    captions = {figure.name: figure.caption for figure in report.figures}
    assert "over 4 worlds (fewer for settings with failed trials)" in captions["beyond-elements"]


def test_a_single_sweep_includes_the_setting_of_the_paper(tmp_path):
    report = run_report(fill_store(tmp_path, ["beyond-wind"], 2))
    titles = [section.title for section in report.sections]
    assert titles == ["Overview", "Findings", "Reward quality, clustering quality and fit time", WIND.title]


def test_the_summary_has_the_setting_of_the_paper_once(store):
    text = summarise_run(store, choose_studies(["beyond"]))
    assert text.count("E = 3 and wind 0.1") == 1
    line = next(line for line in text.splitlines() if line.startswith("  k-means, MLE"))
    assert line.count("±") == len({model_of(s.method) for s in MODELS.settings})
    assert "further claims" in text


def test_the_report_has_the_requested_studies(tmp_path):
    store = Store(tmp_path)
    store.note(["limiirl", "reproduce", "beyond-wind", "--out", "table1"], range(2), ["beyond-wind"])
    records = {record.key: record for study in (WIND, STUDIES["table1"]) for record in make_records(study, 2)}
    store.append(list(records.values()))
    assert all("Table 1" not in section.title for section in run_report(store).sections)


def test_without_requested_studies_all_are_reported(tmp_path):
    store = Store(tmp_path)
    store.note(["limiirl", "reproduce", "beyond-wind"], range(2))
    store.append(make_records(STUDIES["margin"], 2))
    assert [section.title for section in run_report(store).sections][-1] == STUDIES["margin"].title


def test_methods_at_a_point():
    methods = methods_at(Results(ELEMENTS, {}), 2)
    assert methods["MaxEnt", "k-means, MLE"] == "MaxEnt: k-means, MLE"
    assert ("Sigma-GIRL", "k-means, mean") not in methods
    assert methods_at(Results(ELEMENTS, {}), 99) == {}


def test_the_page_passes_the_browser_checks(folder):
    require_browser()
    result = examine(folder / "index.html")
    assert result.faults == {}
    assert result.n_figures == 7
