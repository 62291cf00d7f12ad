"""Results of a study as arrays over worlds, and the numbers of the paper."""

from dataclasses import replace

import numpy as np
import pytest

from limiirl.errors import InvalidParameter
from limiirl.experiments.record import Record
from limiirl.experiments.results import NAMES, TABLE1, TARGETS, Reported, Results, verdict
from limiirl.experiments.spec import METHODS
from limiirl.experiments.studies import PAPER_LENGTH, STUDIES
from limiirl.metrics import Interval, mean_interval
from tests.helpers import raises
from tests.oracles.records import make_results


def test_contradictory_tests_are_inconclusive():
    results = make_results(STUDIES["boxplots"], lambda m, x, k, s: 1.0, n_worlds=100)
    spec = STUDIES["boxplots"].spec("k-means, MLE", PAPER_LENGTH)
    shifted = {}
    for key, r in results.records.items():
        step = (-1.0 - key[1] / 1000) if key[1] < 85 else 30.0
        shifted[key] = replace(r, gevd=r.gevd + step) if key[0] == spec.hash else r
    compared = Results.of(results.study, shifted.values()).compare(
        ("k-means, MLE", PAPER_LENGTH), ("supervised", PAPER_LENGTH), "gevd"
    )
    assert max(compared.p_t, compared.p_wilcoxon) < 0.01
    assert compared.better is None


def test_differences_below_the_em_tolerance_are_ties():
    results = make_results(
        STUDIES["boxplots"], lambda m, x, k, s: 1.0 + (1e-6 * (s + 1) if m == "k-means, MLE" else 0.0)
    )
    compared = results.compare(("k-means, MLE", PAPER_LENGTH), ("GMM, MLE", PAPER_LENGTH), "anid")
    assert (compared.difference.mean, compared.p_wilcoxon, compared.better) == (0.0, 1.0, None)


def test_unknown_cells_are_rejected():
    results = make_results(STUDIES["margin"], lambda m, x, k, s: 1.0, n_worlds=1)
    for method, x in (("unknown", 0.1), ("supervised", 0.3)):
        with raises(InvalidParameter, parameter="method", value=(method, x)):
            results.values(method, x, "nll")


def test_incomplete_worlds_are_excluded():
    whole = make_results(STUDIES["margin"], lambda m, x, k, s: 1.0, n_worlds=4)
    spec = STUDIES["margin"].specs[0]
    part = Results(whole.study, {key: r for key, r in whole.records.items() if key != (spec.hash, 2)})
    assert (whole.seeds, part.seeds) == ((0, 1, 2, 3), (0, 1, 3))
    assert Results(whole.study, {}).seeds == ()


def test_failed_trials_are_missing_values():
    whole = make_results(STUDIES["margin"], lambda m, x, k, s: float(s), n_worlds=4)
    spec = STUDIES["margin"].spec("supervised", 0.1)
    results = Results(whole.study, whole.records | {(spec.hash, 1): Record(spec.hash, 1, error="E: no")})
    np.testing.assert_array_equal(results.values("supervised", 0.1, "margin"), [0.0, np.nan, 2.0, 3.0])
    np.testing.assert_array_equal(results.finite("supervised", 0.1, "margin"), [0.0, 2.0, 3.0])
    assert results.interval("supervised", 0.1, "margin") == mean_interval([0.0, 2.0, 3.0])
    assert [record.seed for record in results.failures] == [1]
    assert results.compare(("supervised", 0.1), ("supervised", 0.2), "margin").difference.n == 3


def test_records_of_other_studies_are_excluded():
    records = make_results(STUDIES["wind"], lambda m, x, k, s: 1.0, n_worlds=1).records.values()
    assert len(Results.of(STUDIES["margin"], records).records) == 5


def test_means_over_points_are_taken_per_world():
    results = make_results(STUDIES["margin"], lambda m, x, k, s: 10.0 * x + s, n_worlds=3)
    np.testing.assert_allclose(results.values("supervised", (0.0, 0.2), "margin"), [1.0, 2.0, 3.0], rtol=1e-12)
    compared = results.compare(("supervised", (0.0, 0.2)), ("supervised", 0.1), "margin")
    assert compared.means == pytest.approx((2.0, 2.0), rel=1e-12)


def test_supervision_has_no_iterations_and_no_duration():
    results = make_results(STUDIES["boxplots"], lambda m, x, k, s: 1.0)
    assert results.interval("supervised", PAPER_LENGTH, "n_iter") is None
    assert results.interval("supervised", PAPER_LENGTH, "seconds") is None
    assert results.interval("supervised", PAPER_LENGTH, "nll") is not None


def test_an_unknown_measure_is_rejected():
    with raises(InvalidParameter, parameter="measure", value="speed"):
        make_results(STUDIES["margin"], lambda m, x, k, s: 1.0, n_worlds=1).values("supervised", 0.1, "speed")


def test_table_1_is_as_printed_with_halved_widths():
    printed = {
        "LiMIIRL-MLE": ((3.41, 1.40), (33.20, 13.49), (19.65, 0.64), (0.03, 0.01), (3.70, 1.11)),
        "LiMIIRL-Mean": ((5.08, 1.13), (21.86, 6.65), (19.76, 0.45), (0.04, 0.01), (4.49, 0.98)),
        "Random": ((17.22, 4.80), (136.58, 39.69), (20.05, 0.71), (0.13, 0.07), (6.75, 2.09)),
        "Supervised": (None, None, (19.65, 0.66), (0.04, 0.01), (3.65, 1.27)),
    }
    for method, name in NAMES.items():
        for measure, cell in zip(("n_iter", "seconds", "nll", "anid", "gevd"), printed[name], strict=True):
            reported = TABLE1[method].get(measure)
            assert (reported is None) == (cell is None)
            if cell is not None:
                np.testing.assert_allclose(reported[:2], (cell[0], cell[1] / 2), rtol=1e-12)
    assert set(TARGETS) == {"nll", "anid", "gevd"}
    assert set(NAMES) < set(METHODS)


def test_verdicts_on_reported_means():
    ours = Interval(0.043, 0.007, 0.036, 0.05, 100)
    assert verdict(ours, Reported(0.04, 0.005)) == "agrees"
    assert verdict(ours, Reported(0.03, 0.005)) == "in rounding"
    assert verdict(ours, Reported(0.02, 0.005)) == "differs"


def test_frames_have_one_row_per_trial():
    results = make_results(STUDIES["margin"], lambda m, x, k, s: float(s), n_worlds=3)
    frame = results.to_frame()
    assert len(frame) == len(results.records)
    cell = frame[(frame.method == "supervised") & (frame.point == 0.1)]
    assert cell["seed"].tolist() == [0, 1, 2]
    np.testing.assert_array_equal(cell["nll"], results.values("supervised", 0.1, "nll"))
