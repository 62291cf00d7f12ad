"""Reports on other models: scores of ML-IRL, assignments of agents, and the text of the page."""

import numpy as np
import pytest
from scipy import stats

from limiirl.experiments.results import Results
from limiirl.experiments.spec import METHODS
from limiirl.experiments.studies import SIGMA_METHODS, STUDIES, choose_studies
from limiirl.report import write
from limiirl.report.studies import run_report, summarise_run
from limiirl.report.studies.report import _title
from tests.oracles.browser import examine, require_browser
from tests.oracles.report import fill_store, half_width, reader, rows

pytestmark = pytest.mark.slow

REPEATS = 9
ML, SIGMA = STUDIES["mlirl"], STUDIES["sigma-girl"]
WARM = [name for name in SIGMA_METHODS if name.startswith(("k-means", "GMM"))]


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return fill_store(tmp_path_factory.mktemp("run"), ["mlirl", "sigma-girl"], REPEATS)


@pytest.fixture(scope="module")
def report(store):
    return run_report(store)


@pytest.fixture(scope="module")
def folder(report, tmp_path_factory):
    return write(report, tmp_path_factory.mktemp("report")).parent


@pytest.fixture(scope="module")
def raw(store):
    return reader(store, REPEATS)


@pytest.mark.smoke
def test_all_figures_and_tables_are_written(folder):
    figures = {path.stem for path in (folder / "figures").glob("*.svg")}
    boxes = {f"sigma-girl-{n}" for n in SIGMA.points}
    assert figures == {"mlirl", "sigma-girl", "sigma-girl-lines", *boxes}
    tables = {path.stem for path in (folder / "tables").glob("*.tex")}
    assert tables == {"findings", "mlirl-scores", "mlirl-tests", "sigma-girl-scores", "sigma-girl-tests"}


def test_scores_of_ml_irl_are_means_of_the_records(folder, raw):
    table = {row["Method"]: row for row in rows(folder, "tables/mlirl-scores.csv")}
    assert list(table) == list(METHODS)
    for method, row in table.items():
        for heading, measure in (("NLL", "nll"), ("ANID", "anid"), ("GEVD", "gevd")):
            values = raw(ML, method, ML.points[0], measure)
            np.testing.assert_allclose(float(row[heading]), values.mean(), rtol=1e-12)
            np.testing.assert_allclose(float(row[f"{heading} ±"]), half_width(values), rtol=1e-9)
    assert table["supervised"]["Iterations"] == ""


def test_box_plots_of_ml_irl_have_the_quartiles_of_the_records(folder, raw):
    for row in rows(folder, "figures/mlirl.csv"):
        if not (row["method"] == "supervised" and row["measure"] in ("n_iter", "seconds")):
            values = raw(ML, row["method"], ML.points[0], row["measure"])
            quartiles = [float(row[name]) for name in ("q1", "median", "q3")]
            np.testing.assert_allclose(quartiles, np.percentile(values, (25, 50, 75)), rtol=1e-12)
        assert row["paper"] == "nan"


def test_correctly_assigned_agents_are_counted(folder, raw):
    table = rows(folder, "tables/sigma-girl-scores.csv")
    assert len(table) == len(SIGMA_METHODS) * len(SIGMA.points)
    for row in table:
        x = int(row["Trajectories"])
        accuracy = raw(SIGMA, row["Method"], x, "accuracy")
        np.testing.assert_allclose(float(row["Accuracy"]), accuracy.mean(), rtol=1e-12)
        assert int(row["All correct"]) == np.sum(accuracy == 1.0)
        np.testing.assert_allclose(float(row["ANID"]), raw(SIGMA, row["Method"], x, "anid").mean(), atol=1e-12)
    dots = rows(folder, "figures/sigma-girl.csv")
    for row in dots:
        x, measure = int(row["setting"].split()[0]), row["measure"]
        values = raw(SIGMA, row["method"], x, measure)
        near = np.isclose(values, float(row["value"]), rtol=0.0, atol=1e-9)
        assert int(row["count"]) == near.sum()
        np.testing.assert_allclose(float(row["mean"]), values.mean(), atol=1e-12)
    assert {row["measure"] for row in dots} == {"accuracy", "anid"}


def test_clustered_initialisations_are_tested_against_both_random_ones(folder, raw):
    table = rows(folder, "tables/sigma-girl-tests.csv")
    assert {row["Method"] for row in table} == set(WARM)
    assert {row["Compared with"] for row in table} == {"random responsibilities", "random rewards"}
    assert len(table) == 2 * len(WARM) * len(SIGMA.points)
    for row in table:
        x = int(row["Trajectories"])
        gap = raw(SIGMA, row["Method"], x, "accuracy") - raw(SIGMA, row["Compared with"], x, "accuracy")
        np.testing.assert_allclose(float(row["Accuracy difference"]), gap.mean(), atol=1e-12)
        if np.ptp(gap) > 0:
            p = stats.ttest_1samp(gap, 0.0).pvalue
            np.testing.assert_allclose(float(row["Accuracy p, Student"]), p, rtol=1e-7)


def test_the_page_describes_what_was_run(folder):
    page = (folder / "index.html").read_text()
    assert "Multiple intents with other behaviour models</title>" in page
    assert "box plots with ML-IRL, paper&#39;s" in page
    assert "three agents (center, up, border)" in page
    assert "ElementWorlds were generated" in page
    assert "<dt>Sigma-GIRL</dt>" in page
    # The name of the model is the same as in the studies beyond the paper.
    assert "<dt>ML-IRL, paper&#39;s</dt>" in page
    assert "<dt>ML-IRL</dt>" not in page
    assert "<dt>MaxCausalEnt</dt>" not in page
    assert "Best start</em>" not in page
    assert "<em>MaxEnt</em> is" not in page  # not run


def test_a_study_of_agents_does_not_describe_other_worlds(tmp_path):
    report = run_report(fill_store(tmp_path, ["sigma-girl"], 2))
    assert [section.title for section in report.sections] == ["Overview", "Findings", "Box plots: Sigma-GIRL"]
    assert "ElementWorld" not in report.lead
    assert "ElementWorld" not in report.methods[0].prose
    assert "ElementWorld" not in report.sections[0].items[0].prose
    for words in (
        "less than 1e-6 per agent, or after 100 iterations",
        "*k-means* clusters the mean discounted reward or policy features of the agents",
        "*GMM* fits a Gaussian mixture",
        "*Random responsibilities* are drawn uniformly",
    ):
        assert words in report.methods[0].prose


def test_titles_depend_on_the_studies():
    def title(*names):
        return _title([Results(study, {}) for study in choose_studies(names)])

    assert title("table1", "wind") == title("boxplots") == "Multiple intents in ElementWorld"
    assert title("models") == "Multiple intents with other behaviour models"
    assert title("all") == "Multiple intents: the experiments of the paper"
    assert title("beyond") == "Multiple intents: models and initialisations"
    assert title("all", "beyond") == "Multiple intents: the paper and beyond"


def test_the_summary_has_the_scores(store, raw):
    text = summarise_run(store, choose_studies(["mlirl", "sigma-girl"]))
    lines = text.splitlines()
    head = next(line for line in lines if line.startswith("  Accuracy"))
    assert head.split() == ["Accuracy", *map(str, SIGMA.points)]
    first = lines[lines.index(head) + 1]
    values = raw(SIGMA, "k-means, reward features", SIGMA.points[0], "accuracy")
    assert f"{values.mean():.3f} ± {half_width(values):.3f}" in first
    gevd = raw(ML, "GMM, MLE", ML.points[0], "gevd")
    line = next(line for line in lines if line.startswith("  GMM, MLE"))
    assert f"{gevd.mean():.2f} ± {half_width(gevd):.2f}" in line


def test_the_page_passes_the_browser_checks(folder):
    require_browser()
    result = examine(folder / "index.html")
    assert result.faults == {}
    assert result.n_figures == 6
