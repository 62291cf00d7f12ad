"""`limiirl stream`: from parquet files to features, intents and memberships, as a user runs it."""

import contextlib
import io
import json
import warnings
from typing import NamedTuple

import numpy as np
import pyarrow.parquet as pq
import pytest

from limiirl import Demonstrations, IntentMixture, MaxEnt
from limiirl.cli import main
from tests.helpers import read_error
from tests.oracles.mixture import crossings, walks

DEMOS = walks(300, seed=2)[0].replace(groups=np.arange(300) // 5)
SETTINGS = ("--intents", "2", "--set", "irl__bounds=[-5, 5]", "--set", "resp_tol=1e-3")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with an MDP, demonstrations in three files, a store of their features, and a mixture."""
    path = tmp_path_factory.mktemp("files")
    crossings().save(path / "town.npz")
    (path / "walks").mkdir()
    for i in range(3):
        DEMOS[100 * i : 100 * (i + 1)].to_parquet(path / "walks" / f"{i}.parquet")
    limiirl(path, "features", "walks", "--mdp", "town.npz", "--out", "features")
    limiirl(path, "fit", "features", *SETTINGS, "--out", "intents")
    return path


class Done(NamedTuple):
    stdout: str
    stderr: str


def limiirl(folder, *arguments: str, code: int = 0) -> Done:
    out, err, shows = io.StringIO(), io.StringIO(), warnings.showwarning
    with contextlib.chdir(folder), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            with pytest.raises(SystemExit) as ended:
                main(["stream", *arguments])
        finally:
            warnings.showwarning = shows
    assert (ended.value.code or 0) == code, err.getvalue()
    return Done(out.getvalue(), err.getvalue())


@pytest.mark.smoke
def test_from_files_to_memberships(folder):
    done = limiirl(folder, "features", "walks", "--mdp", "town.npz", "--out", "again")
    assert done.stdout == "Wrote 3 features of 300 demonstrations to again (3 shards).\n"
    assert "3 of 3" in done.stderr
    done = limiirl(folder, "fit", "again", *SETTINGS, "--out", "mixture", "--checkpoint", "fit.npz", "--verify")
    assert "2 intents, 300 demonstrations; converged after" in done.stdout
    assert "river" in done.stdout
    assert "iteration 1: log-likelihood" in done.stderr
    assert "rows per second" in done.stderr
    whole = IntentMixture(2, MaxEnt(bounds=(-5, 5)), resp_tol=1e-3, random_state=0).fit(crossings(), DEMOS)
    facts = IntentMixture.load(folder / "mixture")
    np.testing.assert_allclose(facts.thetas_, whole.thetas_, rtol=1e-8)
    assert (folder / "fit.npz").exists()
    done = limiirl(folder, "assign", "mixture", "again", "--out", "who")
    assert done.stdout == "Wrote the intents of 300 demonstrations to who (3 files).\n"
    labels = np.concatenate([pq.read_table(path)["intent"].to_numpy() for path in sorted((folder / "who").iterdir())])
    np.testing.assert_array_equal(labels, whole.labels_)


def test_a_mixture_from_a_gpu_is_applied_without_one(folder):
    mix = IntentMixture.load(folder / "intents")
    mix.irl_.device = "gpu"
    mix.save(folder / "on_gpu")
    limiirl(folder, "assign", "on_gpu", "features", "--out", "there", "--device", "cpu")
    limiirl(folder, "assign", "intents", "features", "--out", "here")
    for i in range(3):
        name = f"shard-0000{i}.parquet"
        assert pq.read_table(folder / "there" / name).equals(pq.read_table(folder / "here" / name))


@pytest.mark.filterwarnings("always::limiirl.errors.LimiirlWarning")
def test_what_verify_finds_damaged_is_rebuilt(folder):
    options = ("--mdp", "town.npz", "--out", "damaged")
    limiirl(folder, "features", "walks", *options)
    path = folder / "damaged" / "shard-00001.features.npy"
    path.write_bytes(path.read_bytes()[:-1] + b"!")
    text = limiirl(folder, "fit", "damaged", *SETTINGS, "--out", "x", "--verify", code=2).stderr
    assert "Run write_features (`limiirl stream features`) again" in text
    assert text == limiirl(folder, "assign", "intents", "damaged", "--out", "x", "--verify", code=2).stderr
    assert not (folder / "x").exists()
    assert "The shard is rebuilt" in limiirl(folder, "features", "walks", *options).stderr
    limiirl(folder, "fit", "damaged", *SETTINGS, "--out", "repaired", "--verify")
    limiirl(folder, "assign", "repaired", "damaged", "--out", "whose", "--verify")


def test_json(folder):
    options = ("--mdp", "town.npz", "--by-group", "--out", "groups", "--json")
    facts = json.loads(limiirl(folder, "features", "walks", *options).stdout)
    assert facts == {
        "rows": 60, "demonstrations": 300, "features": 3, "shards": 3, "longest": 7, "saved": "groups"
    }  # fmt: skip
    facts = json.loads(limiirl(folder, "fit", "groups", *SETTINGS, "--out", "by_group", "--json").stdout)
    assert facts["rows"] == 60
    assert facts["converged"]
    np.testing.assert_allclose(sum(facts["weights"]), 1.0, rtol=1e-12)
    text = json.loads(limiirl(folder, "assign", "by_group", "groups", "--out", "groups_who", "--json").stdout)
    assert text["rows"] == 60
    assert pq.read_table(folder / text["files"][0]).column_names[0] == "group"


REFUSED = [
    (("features", "walks", "--mdp", "nowhere.npz"), "--mdp", "nowhere.npz"),
    (("features", "empty", "--mdp", "town.npz", "--out", "x"), None, "empty"),
    (("features", "nowhere", "--mdp", "town.npz", "--out", "x"), None, "nowhere"),
    (("features", "bad", "--mdp", "town.npz", "--out", "y"), None, 99),
    (("features", "walks", "--mdp", "town.npz", "--out", "walks"), "--out", "walks"),
    (("features", "walks", "--mdp", "town.npz", "--executor", "dask"), "--scheduler", None),
    (("fit", "walks", "-k", "2"), None, "walks"),
    (("fit", "features", "-k", "2", "--out", "walks"), "--out", "walks"),
    (("fit", "features", "-k", "2", "--set", "n_init=4"), "--set n_init", 4),
    (("fit", "features", "-k", "2", "--set", "colour=red"), "--set", "colour=red"),
    (("assign", "intents", "walks"), None, "walks"),
    (("assign", "intents", "features", "--out", "x", "--device", "tpu"), "--device", "tpu"),
    (("assign", "intents", "features", "--out", "town.npz"), "--out", "town.npz"),
    (("features", "walks", "--mdp", "town.npz", "--out", "walks/0.parquet"), "--out", "walks/0.parquet"),
    (("fit", "features", "-k", "2", "--sample", "1"), "--sample", 1),
    (("assign", "intents", "features", "--out", "walks"), None, "walks/0.parquet"),
]


@pytest.mark.parametrize(("arguments", "option", "value"), REFUSED, ids=[" ".join(words) for words, *_ in REFUSED])
def test_invalid_input_is_reported_with_option_and_value(folder, arguments, option, value):
    (folder / "empty").mkdir(exist_ok=True)
    (folder / "bad").mkdir(exist_ok=True)
    Demonstrations.from_lists([[0, 1]]).to_parquet(folder / "bad" / "0.parquet")
    Demonstrations.from_lists([[0, 99]]).to_parquet(folder / "bad" / "1.parquet")
    done = limiirl(folder, *arguments, "--json", code=2)
    assert read_error(done.stderr, folder) == (option, value)
    assert done.stdout == ""


@pytest.mark.parametrize("command", ["features", "fit", "assign"])
def test_help_has_an_example(folder, command):
    printed = limiirl(folder, command, "--help").stdout
    assert f"Example: limiirl stream {command}" in " ".join(printed.split())
