"""Reports on runs: values agree with the records, and the page passes the browser checks."""

import re

import numpy as np
import pytest

from limiirl import IntentMixture
from limiirl.errors import InvalidFile
from limiirl.executors import Executor
from limiirl.experiments import (
    METHODS,
    PAPER_LENGTH,
    STUDIES,
    SWEEPS,
    TABLE1,
    Record,
    Results,
    Store,
    WorldExample,
    choose_studies,
    run_studies,
    store_examples,
)
from limiirl.experiments.run import restore, typical_seed
from limiirl.experiments.trial import make_problem
from limiirl.metrics import mean_interval
from limiirl.report.studies import run_report, summarise_run, write_run
from limiirl.report.studies.methods import _format_ranges
from limiirl.report.studies.report import count_verdicts
from tests.helpers import raises
from tests.oracles.browser import examine, require_browser
from tests.oracles.records import make_results
from tests.oracles.report import rows

pytestmark = pytest.mark.slow

WORLDS = 3


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Return a run with fits of the main setting and synthetic records of all other settings."""
    store = Store(tmp_path_factory.mktemp("run"))
    store.note(["limiirl", "reproduce", "all", "<b>"], range(WORLDS), [study.name for study in choose_studies(["all"])])
    run_studies(choose_studies(["boxplots"]), store, Executor(workers=1), repeats=WORLDS)
    real = store.keys()
    for number, study in enumerate(STUDIES.values()):
        records = make_results(study, lambda m, x, k, s: 1.0 + 0.1 * s, n_worlds=WORLDS, seed=number).records.values()
        known = store.keys()
        store.append([record for record in records if record.key not in known])
        store.add_specs(study.specs)
    assert len(real) == WORLDS * len(METHODS)
    store_examples([STUDIES["table1"]], store)
    return store


@pytest.fixture(scope="module")
def folder(store, tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    write_run(store, folder)
    return folder


def test_all_figures_and_tables_are_written(folder):
    figures = {path.stem for path in (folder / "figures").glob("*.svg")}
    assert figures == {path.stem for path in (folder / "figures").glob("*.png")}
    assert figures == {path.stem for path in (folder / "figures").glob("*.csv")}
    assert figures == {
        "boxplots",
        "paired-differences",
        *SWEEPS,
        "margin",
        "demos-true",
        "demos-learned",
        "rewards",
        "responsibilities",
        "weights",
        "flow-kmeans",
        "flow-random-rewards",
        "convergence",
        "mlirl",
        "sigma-girl",
        "sigma-girl-lines",
        *(f"sigma-girl-{n}" for n in STUDIES["sigma-girl"].points),
    }
    tables = {path.stem for path in (folder / "tables").glob("*.tex")}
    assert tables == {path.stem for path in (folder / "tables").glob("*.md")}
    wanted = {"findings", "table1", "table1-length", "table1-early", "before-and-after", "anid", "paired-tests"}
    assert tables == wanted | {"mlirl-scores", "mlirl-tests", "sigma-girl-scores", "sigma-girl-tests"}


def test_table_1_has_the_means_of_the_records_and_of_the_paper(folder, store):
    results = Results.of(STUDIES["table1"], store.read())
    table = {row["Method"]: row for row in rows(folder, "tables/table1.csv")}
    for method in METHODS:
        values = [results.record(method, PAPER_LENGTH, seed).nll for seed in range(WORLDS)]
        np.testing.assert_allclose(float(table[method]["NLL"]), np.mean(values), rtol=1e-12)
    assert float(table["Random, paper"]["GEVD"]) == TABLE1["random rewards"]["gevd"].mean


def test_sweep_figures_have_the_intervals_of_the_records(folder, store):
    results = Results.of(STUDIES["wind"], store.read())
    curve = [r for r in rows(folder, "figures/wind.csv") if (r["measure"], r["method"]) == ("gevd", "GMM, MLE")]
    for row, x in zip(curve, STUDIES["wind"].points, strict=True):
        wanted = mean_interval(results.values("GMM, MLE", x, "gevd"))
        interval = [float(row[name]) for name in ("mean", "low", "high")]
        np.testing.assert_allclose(interval, [wanted.mean, wanted.low, wanted.high], rtol=1e-12)


def test_convergence_shows_the_histories_of_the_typical_world(folder, store):
    results = Results.of(STUDIES["boxplots"], store.read())
    seed = typical_seed(results)
    warm, random = (results.values(name, PAPER_LENGTH, "gevd") for name in ("k-means, MLE", "random rewards"))
    apart = np.abs(warm - random) > 1e-3
    assert apart[seed] == apart.any()
    for method in ("k-means, MLE", "random rewards"):
        history = [float(r["nll"]) for r in rows(folder, "figures/convergence.csv") if r["method"] == method]
        np.testing.assert_allclose(history, results.record(method, PAPER_LENGTH, seed).history, rtol=1e-12)


def test_the_example_is_the_mixture_of_its_record(store):
    results = Results.of(STUDIES["boxplots"], store.read())
    example = WorldExample.from_dict(store.example("boxplots"))
    seed, spec = typical_seed(results), STUDIES["boxplots"].spec("k-means, MLE", PAPER_LENGTH)
    assert (example.seed, example.spec) == (seed, spec)
    problem, record = make_problem(spec, seed), results.record("k-means, MLE", PAPER_LENGTH, seed)
    mixture = restore(spec, record)
    np.testing.assert_array_equal(example.demos.states, problem.demos.states)
    np.testing.assert_array_equal(example.demos.offsets, problem.demos.offsets)
    np.testing.assert_array_equal(example.labels, problem.labels)
    np.testing.assert_array_equal(example.responsibilities, mixture.responsibilities_)
    np.testing.assert_array_equal(example.learned_labels, mixture.labels_)
    np.testing.assert_array_equal(example.true_thetas, problem.truth.thetas)
    assert sorted(map(tuple, example.thetas)) == sorted(map(tuple, record.thetas))
    for method, flow in example.flows.items():
        np.testing.assert_allclose(flow.value, results.record(method, PAPER_LENGTH, seed).gevd, rtol=1e-9)
    assert WorldExample.from_dict(example.to_dict()) == example


def test_the_report_fits_nothing(store, tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("reports must not fit models")

    monkeypatch.setattr(IntentMixture, "fit", refuse)
    report = run_report(store)
    assert "One world in detail" in [section.title for section in report.sections]


def test_the_page_has_versions_seeds_and_the_escaped_command(folder):
    page = (folder / "index.html").read_text()
    assert "limiirl reproduce all" in page
    assert "&lt;b&gt;" in page
    assert "<b>'" not in page
    assert "numba" in page
    assert "margin: 0 to 2" in page


def test_the_summary_has_the_table_and_the_findings(store):
    text = summarise_run(store, choose_studies(["table1", "wind"]))
    assert re.search(r"k-means, MLE +[\d.]+ ± [\d.]+ .*\(19\.65\)", text)  # three worlds are not compared
    assert "Cluster separation, 3 worlds" in text
    assert "open           Hard clustering outperforms soft" in text


def test_failed_trials_are_listed_and_escaped(tmp_path):
    study = STUDIES["margin"]
    store = Store(tmp_path / "run")
    results = make_results(study, lambda m, x, k, s: 1.0, n_worlds=2)
    spec = study.specs[0]
    store.append([r for r in results.records.values() if r.key != (spec.hash, 1)])
    store.append([Record(spec.hash, 1, error="Boom: <script>alert(1)</script>")])
    page = write_run(store, tmp_path / "report").read_text()
    assert "Failed trials" in page
    assert "<script" not in page
    assert "Boom: &lt;script&gt;" in page


def test_a_run_without_a_complete_world_is_rejected(tmp_path):
    store = Store(tmp_path)
    store.append(list(make_results(STUDIES["margin"], lambda m, x, k, s: 1.0, n_worlds=1).records.values())[1:])
    with raises(InvalidFile, value=str(tmp_path)):
        run_report(store)


def test_box_plots_alone_include_the_table(tmp_path):
    store = Store(tmp_path)
    store.append(list(make_results(STUDIES["boxplots"], lambda m, x, k, s: 1.0 + s, n_worlds=2).records.values()))
    report = run_report(store)
    assert [section.title for section in report.sections] == ["Overview", "Findings", "Table 1", "Box plots"]


def test_consecutive_seeds_are_ranges():
    assert _format_ranges([0, 1, 2, 5, 7, 8]) == "0 to 2, 5, 7 to 8"


def test_the_page_passes_the_browser_checks(folder):
    require_browser()
    result = examine(folder / "index.html")
    assert result.faults == {}
    assert result.n_figures == 22


def test_counts_of_verdicts_are_grammatical():
    assert count_verdicts(["holds", "does not hold", "open"]) == "1 holds, 1 does not hold and 1 is open"
    assert count_verdicts(["holds"] * 2 + ["open"] * 3) == "2 hold, 0 do not hold and 3 are open"
