"""Reports on studies that users define."""

import re

import numpy as np
import pytest

from limiirl import experiments as ex
from limiirl.cli import main
from limiirl.errors import InvalidFile, InvalidParameter
from limiirl.executors import Executor
from limiirl.report import write
from limiirl.report.studies import run_report
from limiirl.report.studies.report import describe_custom_study
from tests.helpers import raises
from tests.oracles.records import make_results
from tests.oracles.report import make_records, rows

METHODS = ("k-means, MLE", "random rewards")


def make_study(points, name="dial", title="Separation <b> & more"):
    base = ex.Spec(world="SyntheticWorld", world_parameters=ex.parameters(separation=0.5, n_states=41), n_demos=20)
    settings = []
    for x in points:
        spec = base.with_(n_demos=10 + len(x)) if isinstance(x, str) else base.in_world(separation=x)
        settings += [ex.Setting(method, x, ex.method_spec(spec, method)) for method in METHODS]
    return ex.Study(name, title, "separation", 3, tuple(settings))


def fill(folder, study, n_worlds=4):
    store = ex.Store(folder)
    store.put_study(study)
    store.add_specs(study.specs)
    store.append(make_records(study, n_worlds))
    return store


@pytest.mark.parametrize("points", [(0.0, 0.5, 1.0), ("one",), ("low", "high")], ids=["numbers", "one", "words"])
def test_scores_are_means_over_worlds(points, tmp_path):
    study = make_study(points)
    store = fill(tmp_path / "run", study)
    folder = write(run_report(store), tmp_path / "page").parent
    results = ex.Results.of(study, store.read())
    table = rows(folder, "tables/study-1-scores.csv")
    assert [(row["Method"], row["separation"]) for row in table] == [(s.method, str(s.x)) for s in study.settings]
    for row, setting in zip(table, study.settings, strict=True):
        np.testing.assert_allclose(
            float(row["ANID"]), results.values(setting.method, setting.x, "anid").mean(), rtol=1e-12
        )
    text = (folder / "index.html").read_text()
    assert re.findall("<h1>(.*)</h1>", text) == ["Separation &lt;b&gt; &amp; more"]


@pytest.mark.parametrize("points", [(0.0, 0.5, 1.0), ("low", "high")], ids=["numbers", "words"])
def test_results_have_a_plot(points, tmp_path):
    study = make_study(points)
    results = ex.Results.of(study, fill(tmp_path, study).read())
    figure = results.plot(["anid", "seconds"])
    panels = [ax for ax in figure.axes if ax.get_title("left")]
    assert [ax.get_title("left").split(",")[0].splitlines()[0] for ax in panels] == ["ANID", "Duration"]
    if not isinstance(points[0], str):
        drawn = {tuple(np.round(line.get_ydata(), 12)) for line in panels[0].lines}
        for method in METHODS:
            means = tuple(np.round([results.values(method, x, "anid").mean() for x in points], 12))
            assert means in drawn
    assert len([ax for ax in results.plot().axes if ax.get_title("left")]) > 2
    with raises(InvalidParameter, parameter="measures", value="speed", index=1):
        results.plot(["anid", "speed"])
    with raises(InvalidParameter, parameter="measures", value=[]):
        results.plot([])


@pytest.mark.slow
def test_a_study_is_stored_by_its_run_and_reported_by_the_command(tmp_path, capsys):
    study = make_study((0.0, 1.0))
    store = ex.Store(tmp_path / "run")
    assert ex.run_studies([study], store, Executor(workers=1), repeats=1).failures == []
    ex.run_studies([study], store, Executor(workers=1), repeats=1)
    assert store.custom_studies() == [study]
    with pytest.raises(SystemExit, match="0"):
        main(["report", str(tmp_path / "run"), "--out", str(tmp_path / "page")])
    assert capsys.readouterr().out.split() == ["Report:", str(tmp_path / "page" / "index.html")]
    assert {path.name for path in (tmp_path / "page" / "figures").iterdir()} == {
        "study-1.svg", "study-1.png", "study-1.csv"
    }  # fmt: skip


def test_a_changed_definition_replaces_the_earlier_one(tmp_path):
    store = fill(tmp_path, make_study((0.0, 1.0)))
    store.put_study(make_study((0.0,)))
    assert [study.points for study in store.custom_studies()] == [(0.0,)]


def test_studies_of_users_follow_those_of_the_paper(tmp_path):
    store = fill(tmp_path, make_study((0.0, 1.0)))
    (margin,) = ex.choose_studies(["margin"])
    store.append(make_records(margin, 2))
    store.note(["limiirl"], range(2), ["margin"])
    titles = [section.title for section in run_report(store).sections]
    assert titles.index(margin.title) < titles.index("Separation <b> & more")


def test_a_run_without_a_complete_world_is_rejected(tmp_path):
    store = ex.Store(tmp_path)
    store.put_study(make_study((0.0,)))
    with raises(InvalidFile, value=str(tmp_path)):
        run_report(store)


@pytest.mark.parametrize(("gap", "n", "significant"), [(0.3, 10, True), (0.0, 10, False), (0.3, 1, None)])
def test_a_difference_is_described_as_significant_only_if_it_is(gap, n, significant):
    def value(method, x, measure, seed):
        return 1.0 + gap * (method == METHODS[1]) * (1.0 + 0.1 * (seed % 3))

    text = describe_custom_study(make_results(make_study((0.0, 1.0)), value, n))
    assert ("the difference is significant" in text, "not significant" in text) == (
        significant is True, significant is False
    )  # fmt: skip
    if gap:
        assert text.index("means") < text.index("lowest mean ANID (1.0") < text.index("random")
