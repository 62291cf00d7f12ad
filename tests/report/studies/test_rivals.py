"""Tables and page of the comparison with published methods."""

from dataclasses import replace

import pytest

from limiirl.experiments.rivals import run_rivals
from limiirl.report import write
from limiirl.report.studies.rivals import format_rivals, rivals_report, scores_table, selection_table
from limiirl.report.tables import table_markdown
from tests.experiments.rivals.test_run import PART, fails


@pytest.fixture
def results(tmp_path):
    (tmp_path / "toy_folder").mkdir()
    (tmp_path / "toy_folder" / "levels.txt").write_text("0 1")
    part = replace(PART, methods=PART.methods | {"broken": fails})
    return run_rivals([part], tmp_path, tmp_path / "run", select=True)[0]


def test_table_marks_our_method_and_cites_quoted_scores(results):
    table = scores_table(results[0])
    cells = {row[0].text: row for row in table.cells}
    assert cells["ours"][1].mark == "best"
    assert cells["ours"][1].value == pytest.approx(-0.55)
    assert cells["weak"][2].value == pytest.approx(0.45)
    assert "a paper" in cells["theirs"][0].note
    assert [column.title for column in table.headings][3:5] == ["training", "accuracy"]
    assert "theirs" in table_markdown(table)


def test_selection_marks_the_chosen_setting(results):
    cells = {row[0].text: row for row in selection_table(results[0]).cells}
    assert cells["b"][0].mark == "best"
    assert cells["a"][2].value == pytest.approx(0.05)


def test_page_has_goals_failures_and_files(results, tmp_path):
    page = write(rivals_report(results, "limiirl reproduce rivals"), tmp_path / "page")
    names = {path.name for path in page.parent.rglob("*.*")}
    assert {"toy-scores.md", "toy-scores.csv", "toy-scores.tex", "toy-selection.md", "toy-methods.svg"} <= names
    text = page.read_text()
    assert "must not be used" in text
    lines = format_rivals(results).splitlines()
    assert sum("NOT reached" in line for line in lines) == 1
    assert sum("(quoted)" in line for line in lines) == 1
