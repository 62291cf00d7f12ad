"""`limiirl switch`, and `predict` and `report` of switching intents: output, files, pages and errors."""

import json

import numpy as np
import pandas as pd
import pytest

from limiirl import Demonstrations, SwitchingMixture
from tests.helpers import read_error
from tests.integration.test_cli import limiirl
from tests.oracles.browser import examine, require_browser
from tests.switching.test_estimator import corridor, switch

OPTIONS = ("--mdp", "corridor.npz", "--set", "irl__ridge=1e-4")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a corridor, and a table of twelve recordings of six animals in random order of the rows."""
    path = tmp_path_factory.mktemp("switch")
    corridor().save(path / "corridor.npz")
    _, slow, _ = switch(0, n_demos=6, length=80, stay=0.98)
    _, fast, _ = switch(1, n_demos=6, length=80, stay=0.85)
    demos, rng = slow + fast, np.random.default_rng(0)
    rows = []
    for i, demo in enumerate(demos):
        animal = f"m{i // 2}"
        light = rng.normal()
        for t, (s, a) in enumerate(zip(demo.states.tolist(), [*demo.actions.tolist(), -1], strict=True)):
            light = 0.9 * light + rng.normal()
            fed = "fed" if i < 6 else "thirsty"
            row = {"recording": f"r{i:02}", "t": 10 * t, "state": s, "action": a if a >= 0 else None, "group": animal}
            rows.append(row | {"diet": fed, "day": i % 2, "light": light, "gap": np.nan if t == 5 else 0.1 * t})
    table = pd.DataFrame(rows).astype({"action": "Int64"}).sample(frac=1.0, random_state=0)
    table.to_csv(path / "steps.csv", index=False)
    return path


COLUMNS = ("--columns", "demo=recording")
RUN = ("switch", "steps.csv", *COLUMNS, *OPTIONS)


@pytest.fixture(scope="module")
def fitted(folder):
    """The output of a selection with a comparison of groups, a page and segments."""
    more = ("--condition", "diet", "--by-group", "--folds", "2", "--report", "page", "--segments", "segments.csv")
    return limiirl(folder, *RUN, "--intents", "1-2", *more, "--out", "mix")


@pytest.mark.smoke
def test_switch_selects_prints_and_saves(folder, fitted):
    for text in (
        "expected dwell time",
        "<- recommended",
        "n-gram",
        "switches per 100 steps",
        "3 fed",
        "held-out groups",
    ):
        assert text in fitted.stdout
    sw = SwitchingMixture.load(folder / "mix")
    assert len(sw.shares_) == 2
    assert sw.groups_.tolist()[::2] == [f"m{i}" for i in range(6)]
    segments = pd.read_csv(folder / "segments.csv")
    assert list(segments.columns) == [
        *("demo", "group", "start", "stop", "start_time", "stop_time", "intent", "probability"),
    ]
    np.testing.assert_array_equal(segments["stop_time"], 10 * segments["stop"])
    assert segments.groupby("demo")["stop"].max().tolist() == [80] * 12
    page = (folder / "page" / "index.html").read_text()
    assert "limiirl switch steps.csv" in page
    assert (folder / "page" / "tables" / "groups.csv").is_file()


def test_page_has_no_fault_in_a_browser(folder, fitted):
    require_browser()
    assert examine(folder / "page" / "index.html").faults == {}


def test_predict_writes_posteriors_and_segments(folder, fitted):
    options = ("--out", "steps.parquet", "--segments", "again.csv")
    done = limiirl(folder, "predict", "mix", "steps.csv", *COLUMNS, *options)
    assert "960 steps in 12 recordings" in done.stdout
    pd.testing.assert_frame_equal(pd.read_csv(folder / "again.csv"), pd.read_csv(folder / "segments.csv"))
    steps = pd.read_parquet(folder / "steps.parquet")
    sw = SwitchingMixture.load(folder / "mix")
    demos = Demonstrations.from_file(folder / "steps.csv", {"demo": "recording"})
    np.testing.assert_allclose(steps[["probability_0", "probability_1"]], sw.predict_proba(demos), rtol=1e-12)
    np.testing.assert_array_equal(steps["intent"], sw.predict(demos))
    assert steps["t"].tolist()[:3] == [0, 10, 20]
    facts = json.loads(limiirl(folder, "predict", "mix", "steps.csv", *COLUMNS, "--json").stdout)
    assert facts["score"] == pytest.approx(sw.score(demos))
    assert len(facts["segments"]["start"]) == len(pd.read_csv(folder / "again.csv"))


def test_report_reads_the_recorded_file_and_condition(folder, fitted):
    facts = json.loads(limiirl(folder, "report", "mix", "--out", "later", "--json").stdout)
    assert facts == {"report": "later/index.html"}
    for name in ("groups.csv", "dwell-times.csv"):
        assert (folder / "later" / "tables" / name).read_text() == (folder / "page" / "tables" / name).read_text()


def test_covariates_are_read_in_the_order_of_the_steps(folder):
    options = ("--step-covariates", "light, day", "--folds", "0", "--intents", "2", "--out", "light")
    facts = json.loads(limiirl(folder, *RUN, *options, "--json").stdout)
    assert facts["covariate_names"] == ["light", "day"]
    assert facts["selection"] is None
    demos = Demonstrations.from_file(folder / "steps.csv", {"demo": "recording"})
    table = pd.read_csv(folder / "steps.csv").sort_values(["recording", "t"])
    sw = SwitchingMixture.load(folder / "light")
    score = sw.score(demos, table[["light", "day"]])
    assert facts["log_likelihood"] == pytest.approx(score, abs=1e-12)
    predicted = json.loads(limiirl(folder, "predict", "light", "steps.csv", *COLUMNS, "--json").stdout)
    assert predicted["score"] == pytest.approx(score, abs=1e-12)


def test_defaults_choose_features_and_estimate_the_mdp(folder):
    done = limiirl(folder, "switch", "steps.csv", *COLUMNS, "--intents", "2", "--folds", "0", "--out", "default")
    assert "Features by default" in done.stderr
    sw = SwitchingMixture.load(folder / "default")
    assert sw.mdp_.gamma == 0.99
    assert sw.irl_.ridge_per == "step"


def test_conditions_of_one_intent_are_not_compared(folder):
    options = ("--intents", "1", "--folds", "0", "--condition", "diet", "--out", "one", "--report", "one-page")
    done = limiirl(folder, *RUN, *options)
    assert "One intent" in done.stderr
    assert not (folder / "one-page" / "tables" / "groups.csv").exists()


REFUSED = [
    ((*RUN, "-k", "0"), "--intents", "0"),
    ((*RUN, "-k", "4-2"), "--intents", "4-2"),
    ((*RUN, "-k", "two"), "--intents", "two"),
    ((*RUN, "-k", "1-2", "--folds", "0"), "--intents", "1-2"),
    ((*RUN, "-k", "961", "--folds", "0"), "--intents", 961),
    ((*RUN, "-k", "2", "--model", "MaxEnt"), "--model", "MaxEnt"),
    ((*RUN, "-k", "2", "--switching", "sometimes", "--folds", "0"), "--switching", "sometimes"),
    ((*RUN, "-k", "2", "--condition", "colour"), "--condition", "colour"),
    ((*RUN, "-k", "2", "--condition", "state"), "--condition", None),
    ((*RUN, "-k", "2", "--condition", "day"), "--condition", 1),
    ((*RUN, "-k", "2", "--step-covariates", "light,wind"), "--step-covariates", "wind"),
    ((*RUN, "-k", "2", "--step-covariates", "gap", "--folds", "0"), "--step-covariates", None),
    ((*RUN, "-k", "2", "--segments", "segments.txt"), "--segments", "segments.txt"),
    ((*RUN, "-k", "2", "--segments", "steps.csv"), "--segments", "steps.csv"),
    (("predict", "mix", "steps.csv", *COLUMNS, "--cut", "10"), "--cut", 10),
    (("predict", "mix", "steps.csv", *COLUMNS, "--partial"), "--partial", True),
    (("predict", "mix", "steps.csv", *COLUMNS, "--by-group"), "--by-group", True),
    (("switch", "short.csv", "-k", "2"), None, 1),
    (("switch", "partly.csv", "--mdp", "corridor.npz", "-k", "2"), None, "partly.csv"),
    (("switch", "jump.csv", "--mdp", "corridor.npz", "-k", "2"), None, None),
    (("switch", "unknown.csv", "--mdp", "corridor.npz", "-k", "2"), None, None),
    (("switch", "single.csv", "--mdp", "corridor.npz", "-k", "2", "--folds", "0"), None, 1),
]


@pytest.mark.parametrize(("arguments", "option", "value"), REFUSED, ids=[" ".join(words) for words, *_ in REFUSED])
def test_invalid_input_is_reported_with_option_and_value(folder, fitted, arguments, option, value):
    (folder / "short.csv").write_text("demo,t,state\na,0,1\na,1,2\nb,0,1\n")  # b has one state
    (folder / "partly.csv").write_text("demo,t,state,action\na,0,1,1\na,1,2,\na,2,3,\n")  # the second action is missing
    (folder / "jump.csv").write_text("demo,t,state\na,0,1\na,1,5\na,2,4\n")  # 5 cannot be reached from 1
    (folder / "unknown.csv").write_text("demo,t,state\na,0,1\na,1,2\na,2,9\n")  # the corridor has 7 states
    (folder / "single.csv").write_text("demo,t,state\na,0,1\na,1,2\nb,0,3\nb,1,4\n")  # one step each: no switch
    done = limiirl(folder, *arguments, "--json", code=2)
    shown, given = read_error(done.stderr, folder)
    assert shown == option
    if value is not None:
        assert given == value
