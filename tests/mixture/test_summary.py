"""The summary of a mixture."""

import json
import re
import sys
import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from limiirl import MDP, Demonstrations, IntentMixture, MaxEnt, RewardEnsemble
from limiirl.errors import (
    BackendUnavailable,
    BoundWarning,
    ConvergenceWarning,
    DegenerateIntentWarning,
    ModelMismatchWarning,
    NotFitted,
)
from limiirl.metrics import mean_interval
from limiirl.mixture import GroupWeights, membership_table
from limiirl.mixture.restarts import Restart
from limiirl.mixture.summary import Membership
from tests.helpers import raises

FORK = MDP.from_edges(
    [0, 0, 1, 1, 2, 2], [1, 2, 1, 2, 1, 2], p0=[1, 0, 0],
    state_features=[[0, 0], [1, 0], [0, 1]], feature_names=["left", "right <b>"],
)  # fmt: skip
TRUTH = RewardEnsemble([0.6, 0.4], [[1.0, -0.2], [-0.2, 1.0]])


def demos_of(n: int = 100) -> Demonstrations:
    counts = (np.array([0.6, 0.4]) * n).astype(int)
    return Demonstrations.concat(
        [
            MaxEnt(6).sample(FORK, theta, int(m), k)
            for k, (theta, m) in enumerate(zip(TRUTH.thetas, counts, strict=True))
        ]
    )


DEMOS = demos_of()


def fit_mixture(groups=None, **parameters) -> IntentMixture:
    defaults = {"irl": MaxEnt(bounds=(-3, 3)), "init": TRUTH, "max_iter": 2000, "resp_tol": 1e-4}
    return IntentMixture(2, **{**defaults, **parameters}).fit(FORK, DEMOS, groups)


def row(text: str, name: str) -> str:
    (result,) = [line for line in text.splitlines() if line.strip().startswith(f"{name} ")]
    return re.sub(r"\s+", " ", result.strip())


def test_summary_has_the_attributes_of_the_mixture():
    mix = fit_mixture()
    result, errors = mix.summary(), mix.standard_errors()
    assert (result.n_intents, result.n_units, result.unit) == (2, 100, "demonstrations")
    assert result.log_likelihood == pytest.approx(mix.log_likelihood_, rel=1e-12)
    assert result.bic == pytest.approx(mix.bic(DEMOS), rel=1e-12)
    np.testing.assert_array_equal(result.weights, mix.weights_)
    np.testing.assert_array_equal(result.thetas, mix.thetas_)
    np.testing.assert_array_equal(result.errors, errors.thetas)
    np.testing.assert_array_equal(result.weight_errors, errors.weights)
    np.testing.assert_allclose(result.sizes, mix.responsibilities_.sum(axis=0), rtol=1e-9)
    np.testing.assert_array_equal(result.counts, np.bincount(mix.labels_, minlength=2))
    assert result.feature_names == ("left", "right <b>")
    assert result.n_free == errors.n_free
    assert result.converged


def test_text_of_the_summary():
    mix = fit_mixture()
    text = str(mix.summary())
    assert repr(mix.summary()) == text
    assert text.startswith("IntentMixture: 2 intents behind 100 demonstrations\n")
    assert row(text, "model") == "model MaxEnt(bounds=(-3, 3)), trajectories of up to 6 states that stop anywhere"
    chain, walked = MDP.from_edges([0], [1], p0=[1, 0]), Demonstrations.from_lists([[0], [0, 1]])
    endless = IntentMixture(1, MaxEnt(np.inf, (-3, 3))).fit(chain, walked)
    assert row(str(endless.summary()), "model").endswith("), trajectories of unbounded length that stop anywhere")
    assert row(text, "init") == "init a given ensemble"
    assert row(text, "EM") == f"EM converged after {mix.n_iter_} iterations"
    assert row(text, "log-likelihood") == (
        f"log-likelihood {mix.log_likelihood_:.4f} per demonstration, {100 * mix.log_likelihood_:.2f} in total"
    )
    assert row(text, "BIC") == f"BIC {mix.bic(DEMOS):.1f}, with 5 free parameters"
    assert row(text, "initialisations") == "initialisations 1, given"
    once = fit_mixture(init="kmeans", max_iter=0, random_state=0).summary()
    assert row(str(once), "initialisations").startswith("initialisations 1; raise n_init")
    assert row(text, "intent") == "intent 0 t p intent 1 t p"
    errors = mix.standard_errors()
    weights = [f"{100 * w:.1f} % ± {100 * e:.1f}" for w, e in zip(mix.weights_, errors.weights, strict=True)]
    assert row(text, "weight") == f"weight {' '.join(weights)}"
    assert row(text, "expected size") == f"expected size {mix.weights_[0] * 100:.1f} {mix.weights_[1] * 100:.1f}"
    assert row(text, "assigned") == f"assigned {np.sum(mix.labels_ == 0)} {np.sum(mix.labels_ == 1)}"
    columns = (mix.thetas_[:, 0], errors.thetas[:, 0], errors.t[:, 0], errors.p[:, 0])
    left = [
        f"{x:.2f} ± {e:.2f} {t:.2f} {f'{p:.2g}' if p < 0.001 else f'{p:.3f}'}"
        for x, e, t, p in zip(*columns, strict=True)
    ]
    assert row(text, "left") == f"left {' '.join(left)}"
    assert "± one standard error" in text
    assert all(line == line.rstrip() for line in text.splitlines())
    table = text.split("\n\n")[1].splitlines()
    # Columns stand below one another.
    assert len({line.find("±") for line in table if "±" in line}) == 1


def test_summary_of_groups():
    text = str(fit_mixture(groups=np.arange(100) // 4).summary())
    assert text.startswith("IntentMixture: 2 intents behind 25 groups\n")
    assert "per group" in text


def test_summary_of_other_demonstrations():
    mix = fit_mixture()
    result = mix.summary(DEMOS[:50], np.arange(50) // 5)
    assert (result.n_units, result.unit) == (10, "groups")
    assert result.bic == pytest.approx(mix.bic(DEMOS[:50], np.arange(50) // 5), rel=1e-12)
    assert result.sizes.sum() == pytest.approx(10.0, rel=1e-12)


@pytest.mark.parametrize("groups", [None, np.arange(100) // 4])
def test_a_loaded_mixture_has_a_summary_without_errors(groups):
    mix = fit_mixture(groups=groups)
    before = mix.summary()
    vars(mix).pop("_problem")
    result = mix.summary()
    assert (result.n_units, result.unit) == (before.n_units, before.unit)
    assert result.bic == pytest.approx(before.bic, rel=1e-10)
    np.testing.assert_allclose(result.sizes, before.sizes, rtol=1e-9)
    assert np.all(np.isnan(result.errors))
    assert np.all(result.status == "ok")
    assert "no standard errors: pass the demonstrations to summary()" in str(result)
    assert "±" not in str(result)
    assert str(mix.summary(DEMOS, groups)) == str(before)


def test_marks_explain_missing_errors():
    features = np.array([[0, 0, 0, 0], [1, 0, 0, 1], [0, 1, 1, 1]])
    names = ["one", "two", "three", "four"]
    mdp = MDP.from_edges(FORK.src, FORK.dst, p0=[1, 0, 0], state_features=features, feature_names=names)
    start = RewardEnsemble([1.0], [[-5e-32, -1.0, -1.0, -0.5]])
    mix = IntentMixture(1, MaxEnt(6), init=start, max_iter=0).fit(mdp, DEMOS)
    text = str(mix.summary())
    assert row(text, "one") == "one 0 (bound)"
    assert row(text, "two") == "two -1 (not identified)"
    assert "(bound) the reward is on a bound of the model" in text
    assert "(not identified) the reward has a component" in text
    assert "(flat)" not in text
    assert row(text, "EM") == "EM not run (max_iter=0): initial rewards"


def test_only_printed_marks_are_explained():
    summary = IntentMixture(2, MaxEnt(bounds=(-3, 3)), random_state=0).fit(FORK, demos_of()).summary()
    contrasts = replace(summary, status=np.full(summary.thetas.shape, "contrast"))
    assert np.all(np.isfinite(contrasts.errors))
    assert "(contrast)" not in str(contrasts)
    assert "2 rewards (left, ...) are relative to their mean" in str(contrasts)
    without = replace(contrasts, errors=np.full(summary.thetas.shape, np.nan))
    # Two marks per row, and one explanation.
    assert str(without).count("(contrast)") == 5
    assert "relative to their mean" not in str(summary)


def test_an_empty_intent_is_marked():
    start = RewardEnsemble([1.0 - 1e-8, 1e-8], [[1.0, -0.2], [-2.9, -2.9]])
    with pytest.warns(DegenerateIntentWarning):
        mix = fit_mixture(init=start, max_iter=0)
    result = mix.summary()
    assert np.isnan(result.weight_errors[1])
    assert row(str(result), "left").endswith(" - (empty)")
    assert result.n_free == 2


def test_a_fit_that_did_not_converge_has_a_remedy():
    with pytest.warns(ConvergenceWarning):
        mix = fit_mixture(max_iter=2)
    text = row(str(mix.summary()), "EM")
    assert text.startswith("EM not converged after 2 iterations: mean change in responsibilities ")
    assert text.endswith("Raise max_iter or resp_tol.")


@pytest.mark.parametrize(
    ("distances", "best", "expected"),
    [
        ([0.0, 0.0], [True, True], "2 of 2 reached the best solution"),
        (
            [0.0, 0.12],
            [True, False],
            "1 of 2 reached the best solution; the others differ in 12 % of",
        ),
        (
            [0.3, 0.0, 0.123],
            [False, True, False],
            "1 of 3 reached the best solution; the others differ in 12 % to 30 %",
        ),
    ],
)
def test_restarts(distances, best, expected):
    mix = fit_mixture()
    mix.restarts_ = [Restart(-1.0, 3, True, TRUTH, x, b) for x, b in zip(distances, best, strict=True)]
    result = mix.summary()
    assert row(str(result), "initialisations").startswith(f"initialisations {expected}")
    assert (result.n_starts, result.n_best) == (len(best), sum(best))
    np.testing.assert_array_equal(result.distances, distances)


def alternate(points, n_intents, rng):
    return np.arange(len(points)) % n_intents


@pytest.mark.parametrize(
    ("init", "reward_init", "expected"),
    [
        ("kmeans", "mean_ray", "kmeans, rewards by mean_ray"),
        ("random_rewards", "mle", "random_rewards"),
        (np.arange(100) % 2, "mle", "given labels, rewards by mle"),
        (np.full((100, 2), 0.5), lambda problem, U: TRUTH.thetas, "given responsibilities, rewards by <lambda>"),
        (alternate, "mle", "alternate, rewards by mle"),
    ],
)
def test_description_of_init(init, reward_init, expected):
    mix = fit_mixture(init=init, reward_init=reward_init, max_iter=0, random_state=0)
    assert mix.summary().init == expected


def test_summary_is_serialisable():
    mix = fit_mixture(irl=MaxEnt(6, bounds=(-3, 0.5)))
    result = mix.summary().to_dict()
    back = json.loads(json.dumps(result, allow_nan=False))
    assert back == result
    assert back["feature_names"] == ["left", "right <b>"]
    assert back["thetas"] == mix.thetas_.tolist()
    assert back["status"][0][0] == "bound"
    assert back["errors"][0][0] is None
    assert back["errors"][1][0] > 0.0
    assert back["n_units"] == 100


def test_summary_has_html():
    html = fit_mixture().summary()._repr_html_()
    assert "right &lt;b&gt;" in html
    assert "<b>IntentMixture: 2 intents behind 100 demonstrations</b>" in html
    assert html.count("<table>") == html.count("</table>") == 2
    assert html.count("<tr>") == html.count("</tr>") == 7 + 4 + 2
    assert "<th>intent 1</th>" in html


def test_many_features_and_many_intents_stay_readable():
    thetas = np.random.default_rng(0).normal(size=(12, 61))
    result = replace(
        fit_mixture().summary(),
        n_intents=12,
        weights=np.full(12, 1 / 12),
        weight_errors=np.full(12, 0.01),
        sizes=np.full(12, 5.0),
        counts=np.full(12, 5),
        feature_names=tuple(f"feature {j}" for j in range(61)),
        thetas=thetas,
        errors=np.abs(thetas),
        status=np.full((12, 61), "ok"),
    )
    text = str(result)
    assert max(len(line) for line in text.splitlines()) <= 100
    assert "... 21 more features in to_dict(), with smaller differences between intents" in text
    gaps = np.abs(thetas[:, None] - thetas) / np.maximum(np.hypot(thetas[:, None], thetas), 1e-300)
    order = np.argsort(-gaps.max(axis=(0, 1)), kind="stable")
    shown = [int(j) for j in re.findall(r"^  feature (\d+) ", text, re.M)]
    assert shown == order[:40].tolist() * (len(shown) // 40)
    for k in range(12):
        assert len(re.findall(rf"intent {k}\b", text)) == 1
    assert len(result.to_dict()["feature_names"]) == 61


def test_rewards_are_printed_to_two_digits_of_their_errors():
    values, errors = [1234.5678, 0.012345, 1e-9, 12.0, 3.0], [23.4, 0.00123, 2e-9, 1234.0, 0.0]
    result = replace(
        fit_mixture().summary(),
        feature_names=tuple("abcde"),
        thetas=np.tile(values, (2, 1)),
        errors=np.tile(errors, (2, 1)),
        status=np.full((2, 5), "ok"),
    )
    table = [re.sub(r"\s+", " ", line.strip()) for line in str(result).splitlines() if re.match(r"  [a-e] ", line)]
    one = ["1235 ± 23", "0.0123 ± 0.0012", "1e-09 ± 2e-09", "12 ± 1.2e+03", "3.0000 ± 0.0000"]
    tests = ["52.76 0", "10.04 1.1e-23", "0.50 0.617", "0.01 0.992", ""]
    cells = [f"{cell} {test}".strip() for cell, test in zip(one, tests, strict=True)]
    assert table == [f"{name} {cell} {cell}" for name, cell in zip("abcde", cells, strict=True)]


def test_summary_requires_a_fit():
    with pytest.raises(NotFitted, match="not fitted"):
        IntentMixture(2).summary()


def test_weights_of_groups_have_students_interval():
    rng = np.random.default_rng(0)
    U = rng.dirichlet([1.0, 2.0, 0.5], size=30)
    groups = np.repeat(["a", "b"], [12, 18])
    table = GroupWeights.from_posterior(U, groups, np.arange(30), level=0.9)
    for g, name in enumerate("ab"):
        for k in range(3):
            wanted = mean_interval(U[groups == name, k], 0.9)
            np.testing.assert_allclose(table.weights[g, k], wanted.mean, rtol=1e-12)
            np.testing.assert_allclose(table.low[g, k], max(wanted.low, 0.0), rtol=1e-12)
            np.testing.assert_allclose(table.high[g, k], min(wanted.high, 1.0), rtol=1e-12)


def test_intervals_of_weights_are_clustered_by_recording():
    # Copies of a recording add no information.
    U = np.random.default_rng(1).dirichlet([1.0, 1.0], size=8)
    one = GroupWeights.from_posterior(U, np.zeros(8), np.arange(8))
    thrice = GroupWeights.from_posterior(np.repeat(U, 3, axis=0), np.zeros(24), np.repeat(np.arange(8), 3))
    np.testing.assert_allclose(thrice.low, one.low, rtol=1e-12)
    alone = GroupWeights.from_posterior(U, np.zeros(8), np.zeros(8))
    assert np.isnan(alone.low).all()
    assert "95 %" in str(one)
    assert "95 %" not in str(alone)
    assert alone.to_dict()["low"] == [[None, None]]


def test_recordings_that_agree_have_the_binomial_limit():
    table = GroupWeights.from_posterior(np.tile([1.0, 0.0], (6, 1)), np.zeros(6), np.arange(6))
    # With a weight of 1 - high = 0.05^(1/6), six recordings all agree with probability 0.05.
    np.testing.assert_allclose([table.low[0, 0] ** 6, (1.0 - table.high[0, 1]) ** 6], 0.05, rtol=1e-12)
    assert (table.high[0, 0], table.low[0, 1]) == (1.0, 0.0)


def test_membership_keeps_groups_and_times(tmp_path):
    mdp = MDP.from_edges([0, 0], [1, 2], p0=[1, 0, 0], state_features=[[0], [1], [-1]])
    days = np.array(["2024-01-01", "2024-01-03", "2024-01-02", "2024-01-05"], dtype="M8[D]")
    demos = Demonstrations.from_lists([[0, 1], [0, 2]], groups=["a", "b"]).replace(times=days, ids=["x", "y"])
    mix = IntentMixture(1, MaxEnt(bounds=(-3, 3))).fit(mdp, demos)
    table = membership_table(mix, demos)
    assert table.to_dict()["start"] == ["2024-01-01", "2024-01-02"]
    assert table.to_dict()["group_weights"]["names"] == ["a", "b"]
    table.write(tmp_path / "m.csv")
    written = pd.read_csv(tmp_path / "m.csv")
    assert written.columns.tolist() == ["demo", "group", "start", "stop", "intent", "probability_0", "log_likelihood"]
    assert written.stop.tolist() == ["2024-01-03", "2024-01-05"]
    by_group = membership_table(mix, demos, demos.groups)
    assert (by_group.unit, by_group.keys, by_group.groups) == ("group", {}, None)


def test_formulas_in_names_are_escaped_in_csv_files_only(tmp_path):
    names = np.array(["=cmd()", "-3", "ann"])
    groups = np.array(["@x", "+1", "b"])
    table = Membership("demo", names, np.zeros(3, dtype=int), np.ones((3, 1)), np.zeros(3), {"group": groups})
    table.write(tmp_path / "labels.csv")
    table.write(tmp_path / "labels.parquet")
    rows = (tmp_path / "labels.csv").read_text().splitlines()[1:]
    cells = [[cell.strip('"') for cell in row.split(",")[:2]] for row in rows]
    assert cells == [["'=cmd()", "'@x"], ["-3", "+1"], ["ann", "b"]]
    assert pq.read_table(tmp_path / "labels.parquet")["demo"].to_pylist() == names.tolist()


def test_frames_have_one_row_per_reward_and_per_unit():
    demos = demos_of(60)
    mix = IntentMixture(2, MaxEnt(6, bounds=(-5, 5)), random_state=0).fit(FORK, demos)
    summary = mix.summary()
    frame = summary.to_frame()
    K, d = summary.thetas.shape
    assert len(frame) == K * d
    row = frame[(frame.intent == 1) & (frame.feature == summary.feature_names[0])].iloc[0]
    assert (row.reward, row.weight) == (summary.thetas[1, 0], summary.weights[1])
    assert mix.to_frame().equals(frame)
    members = membership_table(mix, demos).to_frame()
    np.testing.assert_array_equal(members["probability_1"], mix.predict_proba(demos)[:, 1])
    assert members["intent"].tolist() == mix.predict(demos).tolist()


def test_escape_sequences_in_names_are_printed_as_text():
    names = ["door", "\x1b[2Jfood", "water"]
    mdp = MDP.from_edges([0, 0], [1, 2], p0=[1, 0, 0], state_names=names)
    demos = Demonstrations.from_lists([["door", names[1]], ["door", "water"]] * 4, groups=["\x1b[31m", "b"] * 4)
    mix = IntentMixture(1, MaxEnt(bounds=(-3, 3))).fit(mdp, demos)
    table = membership_table(mix, demos)
    for text in (str(mix.summary()), str(table), str(table.groups)):
        assert "\x1b" not in text
        assert "\\x1b[" in text


def test_frames_require_pandas(monkeypatch):
    mix = IntentMixture(1, MaxEnt(6, bounds=(-5, 5))).fit(FORK, demos_of(20))
    monkeypatch.setitem(sys.modules, "pandas", None)
    with raises(BackendUnavailable):
        mix.summary().to_frame()


def test_uninformative_errors_are_not_printed():
    """Standard errors of weights above 0.5, or of rewards above ten times the largest reward, identify nothing."""
    mdp = MDP.from_edges([0, 0], [1, 2], p0=[1, 0, 0], state_features=[[0], [1], [-1]])
    demos = Demonstrations.from_lists([[0, 1]] * 6 + [[0, 2]] * 5)
    start = RewardEnsemble([0.5, 0.5], [[0.02], [0.03]])
    mix = IntentMixture(2, MaxEnt(2, bounds=None), init=start, max_iter=0).fit(mdp, demos)
    errors = mix.standard_errors()
    assert np.isnan(errors.thetas).all()
    assert np.isnan(errors.weights).all()
    assert (errors.status == "flat").all()
    assert "±" not in str(mix.summary()).partition("weight")[2].partition("expected size")[0]


def test_rewards_of_empty_intents_are_not_printed():
    mdp = MDP.from_edges([0, 0], [1, 2], p0=[1, 0, 0], state_features=[[0], [1], [-1]])
    demos = Demonstrations.from_lists([[0, 1]] * 6 + [[0, 2]] * 5)
    start = RewardEnsemble([1.0 - 1e-8, 1e-8], [[0.5], [0.12345]])
    with pytest.warns(DegenerateIntentWarning) as issued:
        mix = IntentMixture(2, MaxEnt(2, bounds=None), init=start, max_iter=0).fit(mdp, demos)
    assert [(w.message.parameter, w.message.index) for w in issued] == [("weights_", 1)]
    assert "0.12345" not in str(mix.summary())
    assert "(empty)" in str(mix.summary())


def test_equal_intents_are_named():
    mdp = MDP.from_edges([0, 0], [1, 2], p0=[1, 0, 0], state_features=[[0], [1], [-1]])
    demos = Demonstrations.from_lists([[0, 1]] * 6 + [[0, 2]] * 5)
    start = RewardEnsemble([0.3, 0.7], [[0.0], [0.01]])
    with pytest.warns(DegenerateIntentWarning) as issued:
        mix = IntentMixture(2, MaxEnt(2, bounds=(-0.02, 0.02)), init=start).fit(mdp, demos)
    assert ("thetas_", (0, 1)) in [(w.message.parameter, w.message.index) for w in issued]
    assert np.isnan(mix.standard_errors().weights).all()
    assert row(str(mix.summary()), "weight").count("±") == 0


def test_many_rewards_on_bounds_are_reported():
    """Twelve states that are always, or never, visited: every reward is on a bound."""
    mdp = MDP.from_edges([0] * 24, np.arange(1, 25), p0=[1] + [0] * 24, state_features=np.eye(25)[:, 1:])
    demos = Demonstrations.from_lists([[0, i] for i in range(1, 13)])
    with pytest.warns(BoundWarning) as issued:
        IntentMixture(1, MaxEnt(2, bounds=(-2, 2))).fit(mdp, demos)
    assert [(w.message.parameter, w.message.value) for w in issued] == [("bounds", 24)]


def test_groups_require_a_fit_with_groups():
    mdp = MDP.from_edges([0, 0], [1, 2], p0=[1, 0, 0], state_features=[[0], [1], [-1]])
    demos = Demonstrations.from_lists([[0, 1]] * 6 + [[0, 2]] * 6)
    animals = np.repeat([0, 1, 2, 3], 3)
    mix = IntentMixture(2, MaxEnt(2, bounds=(-3, 3)), init=[0] * 6 + [1] * 6).fit(mdp, demos)
    with pytest.warns(ModelMismatchWarning) as issued:
        mix.predict_proba(demos, animals)
    assert issued[0].message.parameter == "groups"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mix.predict_proba(demos)
        mix.predict_proba(demos, np.arange(12))  # one demonstration per group
        mix.set_params(init="kmeans").fit(mdp, demos[::2], animals[::2]).predict_proba(demos[::2], animals[::2])
