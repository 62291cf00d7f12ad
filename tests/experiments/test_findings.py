"""Results gather records world by world; findings follow from them, and turn with them."""

from dataclasses import replace

import numpy as np
import pytest

from limiirl.errors import InvalidParameter
from limiirl.experiments.claims import FAILS, HOLDS, OPEN, findings
from limiirl.experiments.record import Record
from limiirl.experiments.results import NAMES, TABLE1, TARGETS, Reported, Results, verdict
from limiirl.experiments.spec import METHODS
from limiirl.experiments.studies import PAPER_LENGTH, STUDIES
from limiirl.metrics import Interval, mean_interval
from tests.helpers import raises
from tests.oracles.records import made


def verdicts(results):
    return {finding.claim: finding.verdict for finding in findings(results)}


QUALITY = {
    "k-means, MLE": 1.0,
    "k-means, mean": 1.0,
    "GMM, MLE": 2.0,
    "full GMM, MLE": 2.0,
    "random rewards": 3.0,
    "supervised": 1.0,
}


def test_table_1_as_the_paper_has_it():
    told = verdicts(made(STUDIES["table1"], lambda m, x, k, s: 5.0 if k == "nll" else QUALITY.get(m, 3.0)))
    assert set(told.values()) == {HOLDS}
    assert len(told) == 7


def test_table_1_turned_around():
    told = verdicts(made(STUDIES["table1"], lambda m, x, k, s: -QUALITY.get(m, 3.0) + 9.0 + m.endswith("mean")))
    assert told["k-means, MLE is ahead of random rewards in ANID, GEVD and iterations"] == FAILS
    assert told["Hard clustering is ahead of soft (GMM)"] == FAILS
    assert told["MLE and mean rewards do equally well"] == FAILS
    assert told["NLL does not tell warm starts from random ones"] == FAILS


def test_nothing_is_certain_of_a_few_worlds_or_of_equal_methods():
    few = verdicts(made(STUDIES["table1"], lambda m, x, k, s: QUALITY.get(m, 3.0), n_worlds=5))
    assert set(few.values()) == {OPEN}
    same = verdicts(made(STUDIES["boxplots"], lambda m, x, k, s: 1.0))
    assert same["k-means, MLE is ahead of random rewards in ANID, GEVD and iterations"] == OPEN
    assert same["MLE and mean rewards do equally well"] == HOLDS


def test_sweeps_as_the_paper_has_them():
    def grows(method, x, measure, seed):
        return (
            QUALITY.get(method, 3.0) + (2.0 * float(x) if measure != "n_iter" else 0.0) - (measure == "margin") * 9 * x
        )

    assert set(verdicts(made(STUDIES["wind"], grows)).values()) == {HOLDS}
    margin = verdicts(made(STUDIES["margin"], grows))
    assert list(margin.values()) == [HOLDS]

    def elements(method, x, measure, seed):
        return 1.0 if method == "supervised" else QUALITY.get(method, 3.0) * x

    assert set(verdicts(made(STUDIES["elements"], elements)).values()) == {HOLDS}
    harder = verdicts(made(STUDIES["elements"], lambda m, x, k, s: QUALITY.get(m, 3.0) * x))
    assert harder["More intents are not harder for the supervised one"] == FAILS

    def clusters(method, x, measure, seed):
        if measure == "anid":
            return abs(x - 3.0) + QUALITY.get(method, 3.0)
        if measure == "gevd":
            return max(3.0 - x, 0.0) + QUALITY.get(method, 3.0)
        return x

    assert set(verdicts(made(STUDIES["clusters"], clusters)).values()) == {HOLDS}

    def imbalance(method, x, measure, seed):
        return QUALITY.get(method, 3.0) + (x if method == "full GMM, MLE" else 0.0)

    assert set(verdicts(made(STUDIES["imbalance"], imbalance)).values()) == {HOLDS}


def test_sweeps_turned_around():
    calm = verdicts(made(STUDIES["wind"], lambda m, x, k, s: 3.0 - float(x)))
    assert calm["Every method has a larger ANID with wind than without"] == FAILS
    assert verdicts(made(STUDIES["margin"], lambda m, x, k, s: x)) == {
        "The margin between intents is smaller with wind than without": FAILS
    }
    falling = verdicts(made(STUDIES["clusters"], lambda m, x, k, s: 9.0 - x))
    assert falling["ANID is least at K = E"] == FAILS
    assert falling["GEVD falls until K = E and then no further"] == FAILS
    assert falling["Test NLL grows with K"] == FAILS
    demos = verdicts(made(STUDIES["demos"], lambda m, x, k, s: 1.0 + np.log(x)))
    assert demos["The number of iterations does not depend on the number of demonstrations"] == FAILS
    assert demos["The duration grows with the number of demonstrations"] == HOLDS


def noisy(study, value, spread, n_worlds, seed=0):
    """As `made`, with noise of each cell's own in GEVD and ANID."""
    rng = np.random.default_rng(seed)
    results = made(study, value, n_worlds=n_worlds)
    records = {
        key: replace(r, gevd=r.gevd + spread * rng.normal(), anid=r.anid + 0.1 * spread * rng.normal())
        for key, r in results.records.items()
    }
    return Results.of(study, records.values())


def test_no_difference_found_is_not_yet_none():
    # A true difference of 0.4 in GEVD, drowned in noise: eight worlds must not call that "on par".
    def value(method, x, measure, seed):
        return 1.0 + (0.4 if method == "k-means, MLE" and measure == "gevd" else 0.0)

    claim = "Hard clustering is on par with supervision"
    assert verdicts(noisy(STUDIES["boxplots"], value, 3.0, n_worlds=8))[claim] == OPEN
    assert verdicts(noisy(STUDIES["boxplots"], value, 0.01, n_worlds=60))[claim] == HOLDS

    def far(method, x, measure, seed):
        return 1.0 + (2.0 if method == "k-means, MLE" and measure == "gevd" else 0.0)

    assert verdicts(noisy(STUDIES["boxplots"], far, 1.0, n_worlds=60))[claim] == FAILS


def test_a_certain_difference_that_may_not_matter_leaves_it_open():
    # About 0.5, the margin, and certain not to be 0: neither on par nor proven not to be.
    def value(method, x, measure, seed):
        return 1.0 + (0.5 if method == "k-means, MLE" and measure == "gevd" else 0.0)

    results = noisy(STUDIES["boxplots"], value, 0.1, n_worlds=20)
    found = results.compare(("k-means, MLE", PAPER_LENGTH), ("supervised", PAPER_LENGTH), "gevd")
    assert found.better == "supervised"
    assert found.difference.low < 0.5 < found.difference.high
    assert verdicts(results)["Hard clustering is on par with supervision"] == OPEN


def test_ml_irl_as_the_paper_has_it_and_turned_around():
    quality = QUALITY | {"random responsibilities": 3.0}
    told = verdicts(made(STUDIES["mlirl"], lambda m, x, k, s: quality[m]))
    assert set(told.values()) == {HOLDS}
    assert len(told) == 7
    told = verdicts(made(STUDIES["mlirl"], lambda m, x, k, s: 9.0 - quality[m] + (m == "supervised")))
    assert set(told.values()) == {FAILS}


def sigma(warm, random, policy, measure):
    """Records of Sigma-GIRL by the kind of start: warm ones, random ones, and warm ones by policy features."""

    def value(method, x, k, s):
        if k != measure:
            return 1.0
        return random if method.startswith("random") else policy if "policy" in method else warm

    return verdicts(made(STUDIES["sigma-girl"], value))


def test_sigma_girl_as_the_paper_has_it():
    told = sigma(1.0, 2.0, 1.0, "n_iter")  # fewer iterations, and so less time; all else is the same
    counted = {claim: verdict for claim, verdict in told.items() if "put more agents right" in claim}
    assert set(counted.values()) == {OPEN}
    assert len(counted) == 6
    assert {verdict for claim, verdict in told.items() if claim not in counted} == {HOLDS}


@pytest.mark.parametrize(
    ("measure", "claim"),
    [("anid", "end with the same ANID"), ("n_iter", "need fewer iterations")],
)
def test_sigma_girl_turned_around(measure, claim):
    told = sigma(3.0, 2.0, 3.0, measure)
    assert {verdict for name, verdict in told.items() if claim in name} == {FAILS}
    policy = sigma(1.0, 2.0, 3.0, measure)
    same = {verdict for name, verdict in policy.items() if "equally good to cluster by" in name}
    assert same == ({HOLDS} if measure == "n_iter" else {FAILS})


def test_nothing_is_claimed_of_a_likelihood_without_a_scale():
    # Sigma-GIRL's is a profile: no difference of its NLL is small, and none is large.
    assert sigma(1.0, 9.0, 5.0, "nll") == sigma(1.0, 1.0, 1.0, "nll")
    assert not any("NLL" in finding for finding in sigma(1.0, 9.0, 5.0, "nll"))


def test_more_agents_put_right_is_better():
    for warm, wanted in ((1.0, HOLDS), (0.5, FAILS)):

        def accuracy(method, x, k, s, warm=warm):
            return (warm if "features" in method else 0.8) + 0.001 * (s % 3) if k == "accuracy" else 1.0

        told = verdicts(made(STUDIES["sigma-girl"], accuracy))
        assert {verdict for claim, verdict in told.items() if "put more agents right" in claim} == {wanted}


def test_tests_that_point_in_opposite_directions_decide_nothing():
    results = made(STUDIES["boxplots"], lambda m, x, k, s: 1.0, n_worlds=100)
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


def test_solutions_that_differ_by_ems_tolerance_tie():
    results = made(STUDIES["boxplots"], lambda m, x, k, s: 1.0 + (1e-6 * (s + 1) if m == "k-means, MLE" else 0.0))
    compared = results.compare(("k-means, MLE", PAPER_LENGTH), ("GMM, MLE", PAPER_LENGTH), "anid")
    assert (compared.difference.mean, compared.p_wilcoxon, compared.better) == (0.0, 1.0, None)


def test_a_study_of_ones_own_has_no_findings_of_the_papers():
    own = replace(STUDIES["wind"], settings=STUDIES["wind"].settings[:7])
    assert findings(made(own, lambda m, x, k, s: 1.0)) == []


def test_cells_that_a_study_does_not_have_are_refused():
    results = made(STUDIES["margin"], lambda m, x, k, s: 1.0, n_worlds=1)
    for method, x in (("nobody", 0.1), ("supervised", 0.3)):
        with raises(InvalidParameter, parameter="method", value=(method, x)):
            results.values(method, x, "nll")


def test_evidence_has_the_means_that_decide():
    results = made(STUDIES["table1"], lambda m, x, k, s: QUALITY.get(m, 3.0))
    a = results.values("k-means, MLE", PAPER_LENGTH, "gevd").mean()
    b = results.values("random rewards", PAPER_LENGTH, "gevd").mean()
    assert f"GEVD {a:.3g} against {b:.3g} at L = longest, difference -2" in findings(results)[0].evidence


def test_evidence_names_the_points_one_or_several():
    told = findings(made(STUDIES["elements"], lambda m, x, k, s: QUALITY.get(m, 3.0)))
    assert " at E = 5, 6 on average, difference" in told[0].evidence
    assert " at E = 6, difference" in told[1].evidence
    # The only point of a study needs no name.
    alone = findings(made(STUDIES["boxplots"], lambda m, x, k, s: QUALITY.get(m, 3.0)))
    assert " at " not in alone[0].evidence


def test_only_worlds_in_which_everything_was_tried_count():
    whole = made(STUDIES["margin"], lambda m, x, k, s: 1.0, n_worlds=4)
    spec = STUDIES["margin"].specs[0]
    part = Results(whole.study, {key: r for key, r in whole.records.items() if key != (spec.hash, 2)})
    assert (whole.seeds, part.seeds) == ((0, 1, 2, 3), (0, 1, 3))
    assert Results(whole.study, {}).seeds == ()


def test_failed_trials_are_no_numbers_but_do_not_hide_the_world():
    whole = made(STUDIES["margin"], lambda m, x, k, s: float(s), n_worlds=4)
    spec = STUDIES["margin"].spec("supervised", 0.1)
    results = Results(whole.study, whole.records | {(spec.hash, 1): Record(spec.hash, 1, error="E: no")})
    np.testing.assert_array_equal(results.values("supervised", 0.1, "margin"), [0.0, np.nan, 2.0, 3.0])
    np.testing.assert_array_equal(results.finite("supervised", 0.1, "margin"), [0.0, 2.0, 3.0])
    assert results.interval("supervised", 0.1, "margin") == mean_interval([0.0, 2.0, 3.0])
    assert [record.seed for record in results.failures] == [1]
    assert results.compare(("supervised", 0.1), ("supervised", 0.2), "margin").difference.n == 3


def test_records_of_other_studies_are_left_out():
    records = made(STUDIES["wind"], lambda m, x, k, s: 1.0, n_worlds=1).records.values()
    assert len(Results.of(STUDIES["margin"], records).records) == 5


def test_the_mean_over_points_is_that_of_each_world():
    results = made(STUDIES["margin"], lambda m, x, k, s: 10.0 * x + s, n_worlds=3)
    np.testing.assert_allclose(results.values("supervised", (0.0, 0.2), "margin"), [1.0, 2.0, 3.0], rtol=1e-12)
    compared = results.compare(("supervised", (0.0, 0.2)), ("supervised", 0.1), "margin")
    assert compared.means == pytest.approx((2.0, 2.0), rel=1e-12)


def test_supervision_has_no_iterations_and_no_duration():
    results = made(STUDIES["boxplots"], lambda m, x, k, s: 1.0)
    assert results.interval("supervised", PAPER_LENGTH, "n_iter") is None
    assert results.interval("supervised", PAPER_LENGTH, "seconds") is None
    assert results.interval("supervised", PAPER_LENGTH, "nll") is not None


def test_an_unknown_measure_is_refused():
    with raises(InvalidParameter, parameter="measure", value="speed"):
        made(STUDIES["margin"], lambda m, x, k, s: 1.0, n_worlds=1).values("supervised", 0.1, "speed")


def test_the_papers_table_is_as_printed_with_halved_widths():
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


def test_verdicts_on_figures():
    ours = Interval(0.043, 0.007, 0.036, 0.05, 100)
    assert verdict(ours, Reported(0.04, 0.005)) == "agrees"
    assert verdict(ours, Reported(0.03, 0.005)) == "in rounding"
    assert verdict(ours, Reported(0.02, 0.005)) == "differs"
