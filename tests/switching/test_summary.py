"""`SwitchingSummary`: numbers, tables and text."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from limiirl import SwitchingMixture
from limiirl.errors import InvalidDemos
from limiirl.switching.information import SwitchingErrors
from tests.switching.test_estimator import MODEL, switch


@pytest.fixture(scope="module")
def fitted():
    mdp, demos, _ = switch(n_demos=4, length=100)
    return SwitchingMixture(2, MODEL, random_state=0, n_init=2).fit(mdp, demos), demos


def test_fields_are_those_of_the_mixture(fitted):
    sw, demos = fitted
    summary, errors = sw.summary(), sw.standard_errors()
    assert isinstance(errors, SwitchingErrors)
    np.testing.assert_array_equal(summary.errors, errors.thetas)
    np.testing.assert_array_equal(summary.initial_errors, errors.initial)
    np.testing.assert_array_equal(summary.transition_errors, errors.transition)
    assert summary.method == errors.method
    np.testing.assert_array_equal(summary.thetas, sw.thetas_)
    np.testing.assert_array_equal(summary.shares, sw.shares_)
    np.testing.assert_allclose(summary.stationary @ sw.transition_, summary.stationary, rtol=1e-12)
    np.testing.assert_allclose(summary.dwell_times, 1 / (1 - np.diag(sw.transition_)), rtol=1e-10)
    np.testing.assert_array_equal(summary.n_segments, np.bincount(sw.segments(demos).intent))
    assert (summary.n_starts, summary.n_demos, summary.n_steps) == (2, 4, 400)
    assert summary.bic == sw.bic()


def test_other_objects_are_not_demonstrations(fitted):
    with pytest.raises(InvalidDemos) as caught:
        fitted[0].summary(3)
    assert caught.value.parameter == "demos"


def test_only_marks_in_the_table_are_explained(fitted):
    summary = replace(fitted[0].summary(), status=np.array([["contrast", "bound"]] * 2))
    marked = replace(summary, errors=np.full((2, 2), np.nan))
    assert [("(contrast)" in str(one), "(bound)" in str(one)) for one in (summary, marked)] == [
        (False, False),
        (True, True),
    ]
    many = replace(marked, feature_names=("a",) * 41, thetas=np.ones((2, 41)), errors=np.ones((2, 41)))
    many.errors[:, -1] = np.nan
    assert "(bound)" not in str(replace(many, status=np.full((2, 41), "bound")))


def test_frame_has_one_row_per_parameter(fitted):
    sw, _ = fitted
    frame = sw.summary().to_frame()
    assert list(frame.columns) == ["intent", "parameter", "name", "value", "standard_error", "t", "p", "status"]
    K, d = sw.thetas_.shape
    assert len(frame) == K * (4 + K + d)
    rewards = frame[frame["parameter"] == "reward"]
    np.testing.assert_array_equal(rewards["value"].to_numpy().reshape(K, d), sw.thetas_)
    np.testing.assert_array_equal(rewards["standard_error"].to_numpy().reshape(K, d), sw.standard_errors().thetas)
    transitions = frame[frame["parameter"] == "transition"]
    np.testing.assert_array_equal(transitions["value"].to_numpy().reshape(K, K), sw.transition_)
    assert frame[frame["parameter"] == "dwell_time"]["standard_error"].notna().all()


def test_covariates_have_coefficients(fitted):
    mdp, demos, _ = switch(n_demos=3, length=80)
    X = pd.DataFrame(np.random.default_rng(0).normal(size=(240, 2)), columns=["light", "hour"])
    sw = SwitchingMixture(2, MODEL, "covariates", random_state=0, tol=1e-4).fit(mdp, demos, covariates=X)
    frame = sw.summary().to_frame()
    own = frame[frame["parameter"] == "coefficient"]
    assert own["name"].tolist() == ["light", "hour"] * 2
    np.testing.assert_array_equal(own["value"].to_numpy().reshape(2, 2), sw.logits_.B)
    np.testing.assert_array_equal(own["standard_error"].to_numpy().reshape(2, 2), sw.standard_errors().B)
    assert "light" in str(sw.summary())


def test_dictionary_is_json(fitted):
    sw, _ = fitted
    facts = json.loads(json.dumps(sw.summary().to_dict(), allow_nan=False))
    np.testing.assert_array_equal(facts["thetas"], sw.thetas_)
    assert facts["switching"] == sw.summary().switching


def test_text_and_html_show_names_and_numbers(fitted):
    sw, _ = fitted
    text, html = str(sw.summary()), sw.summary()._repr_html_()
    for shown in (*sw.mdp_.feature_names, "400 steps", "2 intents"):
        assert shown in text
        assert shown in html
    assert len(max(text.splitlines(), key=len)) <= 120


def test_without_data_there_are_neither_segments_nor_errors(fitted, tmp_path):
    sw, demos = fitted
    sw.save(tmp_path / "sw")
    loaded = SwitchingMixture.load(tmp_path / "sw")
    summary = loaded.summary()
    assert summary.n_segments is None
    assert np.isnan(summary.errors).all()
    assert summary.method == ""
    np.testing.assert_array_equal(loaded.summary(demos).errors, sw.summary().errors)


def test_errors_can_be_switched_off(fitted):
    sw, _ = fitted
    assert np.isnan(sw.summary(errors=False).errors).all()
    assert sw.summary(errors=False).n_segments is not None
