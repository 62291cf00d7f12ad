"""`limiirl evaluate` on files: output and errors."""

import json

import numpy as np
import pandas as pd
import pytest

from limiirl import IntentMixture, MaxEnt, RewardEnsemble
from limiirl.metrics.evaluate import evaluate
from tests.helpers import read_error
from tests.integration.test_cli import limiirl
from tests.oracles.mixture import TASTES, crossings, walks

pytestmark = pytest.mark.smoke

TRUTH = RewardEnsemble([0.6, 0.4], TASTES)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a fitted mixture, the truth, and labelled demonstrations in both file formats."""
    path = tmp_path_factory.mktemp("files")
    IntentMixture(2, MaxEnt(7, (-5, 5)), random_state=0).fit(crossings(), walks(60, seed=2)[0]).save(path / "intents")
    demos, labels = walks(40, seed=5)
    demos = demos.replace(groups=np.arange(40) % 8, labels=labels)
    demos.to_parquet(path / "walks.parquet")
    demos.replace(labels=None, groups=None).to_parquet(path / "plain.parquet")
    rows = [
        {"demo": i, "t": t, "state": int(s), "kind": ["river", "park"][labels[i]], "label": "x"}
        for i, demo in enumerate(demos)
        for t, s in enumerate(demo.states)
    ]
    pd.DataFrame(rows).to_csv(path / "walks.csv", index=False)
    TRUTH.save(path / "truth.json")
    np.savez(path / "truth.npz", weights=TRUTH.weights, thetas=TRUTH.thetas)
    RewardEnsemble([1.0], [[1.0, 2.0]]).save(path / "other.json")
    (path / "broken.json").write_text('{"format"')
    return path


def test_evaluate_prints_the_result_of_the_library(folder):
    mix, (demos, labels) = IntentMixture.load(folder / "intents"), walks(40, seed=5)
    wanted = evaluate(mix, demos, labels, TRUTH)
    printed = limiirl(folder, "evaluate", "intents", "walks.parquet", "--truth", "truth.json").stdout
    assert printed == f"{wanted}\n"
    assert limiirl(folder, "evaluate", "intents", "walks.parquet", "--truth", "truth.npz").stdout == printed
    assert "GEVD" in printed
    assert "ANID" in printed
    read = json.loads(limiirl(folder, "evaluate", "intents", "walks.parquet", "--truth", "truth.json", "--json").stdout)
    assert read == json.loads(json.dumps(wanted.to_dict()))


def test_without_labels_and_truth_only_the_likelihood_is_printed(folder):
    mix, (demos, _) = IntentMixture.load(folder / "intents"), walks(40, seed=5)
    printed = limiirl(folder, "evaluate", "intents", "plain.parquet").stdout
    assert printed == f"{evaluate(mix, demos)}\n"
    assert "labels" not in printed


def test_labels_can_be_read_from_any_column(folder):
    recoveries = {
        arguments: json.loads(limiirl(folder, "evaluate", "intents", *arguments, "--json").stdout)["recovery"]
        for arguments in [
            ("walks.parquet",),
            ("walks.parquet", "--labels", "label"),
            ("walks.parquet", "--labels", "group"),
            ("walks.csv", "--labels", "kind"),
            ("walks.csv",),
        ]
    }
    by_label, named, by_group, by_kind, other = recoveries.values()
    assert by_label == named
    assert by_group["labels"] == list(range(8))
    assert by_kind["labels"] == ["park", "river"]
    assert by_kind["accuracy"] == by_label["accuracy"]
    np.testing.assert_allclose(by_kind["anid"], by_label["anid"], rtol=1e-9)
    assert other["labels"] == ["x"]


def test_by_group(folder):
    mix, (demos, labels) = IntentMixture.load(folder / "intents"), walks(40, seed=5)
    read = json.loads(limiirl(folder, "evaluate", "intents", "walks.parquet", "--by-group", "--json").stdout)
    wanted = evaluate(mix, demos, labels, groups=np.arange(40) % 8)
    assert read == json.loads(json.dumps(wanted.to_dict()))
    assert read["nll"]["unit"] == "groups"


REFUSED = [
    (("absent", "walks.parquet"), None, "absent"),
    (("intents", "absent.parquet"), None, "absent.parquet"),
    (("intents", "walks.parquet", "--truth", "absent.json"), "--truth", "absent.json"),
    (("intents", "walks.parquet", "--truth", "broken.json"), "--truth", "broken.json"),
    (("intents", "walks.parquet", "--truth", "other.json"), "--truth", "(1, 2)"),
    (("intents", "walks.parquet", "--truth", "intents/mixture.json"), "--truth", "intents/mixture.json"),
    (("intents", "plain.parquet", "--labels", "label"), "--labels", "label"),
    (("intents", "walks.csv", "--labels", "colour"), "--labels", "colour"),
    (("intents", "walks.csv", "--labels", "state"), "--labels", 1),
    (("intents", "plain.parquet", "--by-group"), "--by-group", True),
]


@pytest.mark.parametrize(("arguments", "option", "value"), REFUSED, ids=[" ".join(words) for words, *_ in REFUSED])
def test_invalid_input_is_reported_with_option_and_value(folder, arguments, option, value):
    done = limiirl(folder, "evaluate", *arguments, "--json", code=2)
    assert read_error(done.stderr, folder) == (option, value)
    assert len(done.stderr.splitlines()) == 1
    assert done.stdout == ""


def test_help_has_an_example(folder):
    printed = limiirl(folder, "evaluate", "--help").stdout
    assert "Example: limiirl evaluate intents test_demos.parquet" in " ".join(printed.split())
