"""Trials, records and tables of the comparison with published methods."""

from dataclasses import replace

import numpy as np
import pytest

from limiirl.errors import InvalidFile, InvalidParameter
from limiirl.experiments.rivals import (
    RIVAL_PARTS,
    Goal,
    Published,
    RivalPart,
    Score,
    choose_parts,
    read_rivals,
    run_rivals,
)
from tests.helpers import raises

SIZES = np.array([10.0, 20.0, 10.0])


def make_method(*sums, train=-0.5, accuracy=None):
    """Return a method with given log-likelihoods of three recordings."""
    return lambda data, number: Score(np.array(sums) + data[number], SIZES, train, accuracy)


def fails(data, number):
    del data
    raise InvalidParameter.of("number", number, "must not be used")


PART = RivalPart(
    "toy",
    "A toy",
    "Three recordings.",
    "toy_folder",
    "step",
    lambda folder: [float(line) for line in (folder / "levels.txt").read_text().split()],
    {"weak": make_method(-10.0, -20.0, -10.0), "ours": make_method(-5.0, -12.0, -5.0, accuracy=0.75)},
    "ours",
    published=(Published("theirs", -0.8, "a paper", accuracy=0.7),),
    goals=(Goal("likelihood", -0.8), Goal("accuracy", 0.8, "accuracy")),
    candidates={"a": make_method(-6.0, -12.0, -6.0), "b": make_method(-5.0, -12.0, -5.0)},
    chosen="b",
    n_folds=2,
)


@pytest.fixture
def root(tmp_path):
    (tmp_path / "toy_folder").mkdir()
    (tmp_path / "toy_folder" / "levels.txt").write_text("0 1")
    return tmp_path


def test_rows_have_paired_differences_from_our_method(root):
    (results,), counts = run_rivals([PART], root, root / "run")
    assert (counts.total, counts.done, len(counts.failures)) == (2, 2, 0)
    rows = {row.method: row for row in results.rows()}
    assert list(rows) == ["weak", "theirs", "ours"]
    np.testing.assert_allclose([rows["weak"].held_out, rows["ours"].held_out], [-1.0, -22.0 / 40.0], rtol=1e-12)
    # Residuals of the differences (5, 8, 5) from 18 / 40 per step: 0.5, -1, 0.5.
    np.testing.assert_allclose(rows["weak"].gain, 18.0 / 40.0, rtol=1e-12)
    np.testing.assert_allclose(rows["weak"].gain_error, np.sqrt(1.5 * 1.5) / 40.0, rtol=1e-12)
    assert np.isnan(rows["theirs"].gain)
    assert rows["theirs"].source == "a paper"
    assert [(goal.text, ok) for goal, _, ok in results.goals()] == [("likelihood", True), ("accuracy", False)]
    assert results.candidates() == []


def test_goals_may_concern_figures_and_single_splits(root):
    def ours(data, number):
        return Score(np.array([-8.0, 0.0, 0.0]) * (1 + number), SIZES, -0.5, figures={"edit": 0.2 + 0.1 * number})

    goals = (
        Goal("edit", 0.24, "edit", below=True),
        Goal("edit, first split", 0.24, "edit", below=True, split=0),
        Goal("likelihood, second split", -0.3, split=1),
    )
    part = replace(PART, methods={"ours": ours}, n_splits=2, goals=goals)
    (results,), _ = run_rivals([part], root, root / "run")
    np.testing.assert_allclose([value for _, value, _ in results.goals()], [0.25, 0.2, -0.4], rtol=1e-12)
    assert [ok for *_, ok in results.goals()] == [False, True, False]
    (again,) = read_rivals([part], root / "run")
    assert again.ours.figures == {"edit": pytest.approx(0.25)}


def test_finished_trials_are_skipped_and_read_again(root):
    first, _ = run_rivals([PART], root, root / "run")
    again, counts = run_rivals([PART], root, root / "run")
    assert (counts.skipped, counts.done) == (2, 0)
    assert again[0].rows() == first[0].rows() == read_rivals([PART], root / "run")[0].rows()


def test_candidates_are_scored_on_request(root):
    messages = []
    (results,), counts = run_rivals(
        [PART], root, root / "run", select=True, progress=lambda *given: messages.append(given)
    )
    assert counts.done == counts.total == 6
    assert [done for done, *_ in messages] == list(range(1, 7))
    a, b = results.candidates()
    # Sums of -24 and -21 over 40 steps.
    np.testing.assert_allclose(a.held_out, -45.0 / 80.0, rtol=1e-12)
    np.testing.assert_allclose((b.gain, b.gain_error), 0.0, rtol=0, atol=1e-15)
    np.testing.assert_allclose(a.gain, 2.0 / 40.0, rtol=1e-12)


def test_splits_are_units_and_incomplete_methods_are_left_out(root):
    part = replace(PART, n_splits=2, methods=PART.methods | {"half": fails})
    (results,), counts = run_rivals([part], root, root / "run")
    assert len(counts.failures) == len(results.failures) == 2
    ours = results.ours
    assert (ours.n_units, ours.n_splits) == (6, 2)
    np.testing.assert_allclose(ours.held_out, -(22.0 + 19.0) / 80.0, rtol=1e-12)
    assert "half" not in {row.method for row in results.rows()}
    assert results.to_csv().count("\n") == 1 + 4 * 3


def test_failed_trials_are_repeated_on_request(root):
    broken = replace(PART, methods={"ours": fails})
    _, counts = run_rivals([broken], root, root / "run")
    assert len(counts.failures) == 1
    _, counts = run_rivals([PART], root, root / "run", retry_failed=True)
    assert (counts.done, len(counts.failures)) == (2, 0)


def test_missing_data_and_unknown_parts_are_refused(root):
    with raises(InvalidFile, parameter="data", value=str(root / "run")):
        run_rivals([PART], root / "run", root / "out")
    assert not (root / "out").exists()
    with raises(InvalidParameter, parameter="part", value="porto", index=1):
        choose_parts(["mice", "porto"], RIVAL_PARTS)
    assert choose_parts([], RIVAL_PARTS) == list(RIVAL_PARTS.values())
    assert [part.name for part in choose_parts(["mice"], RIVAL_PARTS)] == ["mice"]


@pytest.mark.parametrize("part", RIVAL_PARTS.values(), ids=list(RIVAL_PARTS))
def test_parts_name_methods_that_exist(part):
    assert part.ours in part.methods
    assert part.chosen in part.candidates or not part.candidates
    assert len({spec.hash for spec, _ in part.trials(select=True)}) == len(part.methods) + len(part.candidates)
