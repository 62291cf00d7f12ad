"""Commands on files: their output, files and errors."""

import contextlib
import csv
import io
import json
import re
import subprocess
import sys
import warnings
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest
import typer

from limiirl import Demonstrations, IntentMixture, MaxEnt
from limiirl.cli import app, main
from tests.helpers import read_error
from tests.oracles.mixture import crossings, walks


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with an MDP, and demonstrations with groups in both file formats."""
    path = tmp_path_factory.mktemp("files")
    demos, _ = walks(60, seed=2)
    crossings().save(path / "town.npz")
    demos.replace(groups=np.arange(60) % 12).to_parquet(path / "walks.parquet")
    rows = [
        {"demo": f"walk {i}", "t": t, "state": int(s), "group": f"g{i % 12}"}
        for i, demo in enumerate(demos)
        for t, s in enumerate(demo.states)
    ]
    pd.DataFrame(rows).to_csv(path / "walks.csv", index=False)
    return path


class Done(NamedTuple):
    stdout: str
    stderr: str


def limiirl(folder: Path, *arguments: str, code: int = 0) -> Done:
    """Run the command in a folder, in this process, since starting Python and numba is slow."""
    out, err, shows = io.StringIO(), io.StringIO(), warnings.showwarning
    with contextlib.chdir(folder), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            with pytest.raises(SystemExit) as ended:
                main(list(arguments))
        finally:
            warnings.showwarning = shows
    assert (ended.value.code or 0) == code, err.getvalue()
    return Done(out.getvalue(), err.getvalue())


FIT = ("--mdp", "town.npz", "--intents", "2", "--set", "irl__max_length=7", "--set", "irl__bounds=[-5, 5]")


def test_settings_accept_tuples_and_lists(folder):
    for form in ("(-5, 5)", "[-5, 5]", "-5, 5"):
        limiirl(folder, "fit", "walks.parquet", *FIT, "--set", f"irl__bounds={form}", "--out", "tuples", "--json")
        assert list(IntentMixture.load(folder / "tuples").irl.bounds) == [-5, 5]


@pytest.mark.smoke
def test_fit_then_predict(folder):
    printed = limiirl(folder, "fit", "walks.parquet", *FIT, "--out", "intents").stdout
    assert "2 intents behind 60 demonstrations" in printed
    assert "river" in printed
    assert "Saved to intents" in printed
    demos, _ = walks(60, seed=2)
    wanted = IntentMixture(2, MaxEnt(7, (-5, 5)), random_state=0).fit(crossings(), demos)
    np.testing.assert_array_equal(IntentMixture.load(folder / "intents").thetas_, wanted.thetas_)

    limiirl(folder, "predict", "intents", "walks.csv", "--out", "labels.csv")
    table = pd.read_csv(folder / "labels.csv")
    assert sorted(table.demo) == sorted(f"walk {i}" for i in range(60))
    by_name = {f"walk {i}": label for i, label in enumerate(wanted.labels_)}
    assert table.intent.tolist() == [by_name[name] for name in table.demo]
    np.testing.assert_allclose(table[["probability_0", "probability_1"]].sum(axis=1), 1.0, rtol=1e-12)
    facts = json.loads(limiirl(folder, "predict", "intents", "walks.parquet", "--json").stdout)
    np.testing.assert_allclose(facts["posterior"], wanted.responsibilities_, rtol=1e-12, atol=1e-15)
    limiirl(folder, "predict", "intents", "walks.parquet", "--out", "labels.parquet")
    np.testing.assert_allclose(
        pd.read_parquet(folder / "labels.parquet").log_likelihood, wanted.score_samples(demos), rtol=1e-12
    )


def test_fit_by_group_and_as_json(folder):
    done = limiirl(folder, "fit", "walks.csv", *FIT, "--by-group", "--out", "grouped", "--json", "--n-init", "3")
    facts = json.loads(done.stdout)
    assert facts["unit"] == "groups"
    assert facts["n_units"] == 12
    assert facts["saved"] == "grouped"
    partial = json.loads(limiirl(folder, "predict", "grouped", "walks.csv", "--by-group", "--partial", "--json").stdout)
    assert partial["group"] == sorted(f"g{i}" for i in range(12))
    demos = Demonstrations.from_file(folder / "walks.csv")
    mix = IntentMixture.load(folder / "grouped")
    each = mix.predict_proba(demos, demos.groups, partial=True)
    for name, row in zip(partial["group"], partial["posterior"], strict=True):
        np.testing.assert_array_equal(each[demos.groups == name], np.tile(row, (5, 1)))
    limiirl(folder, "predict", "grouped", "walks.csv", "--by-group", "--out", "groups.csv")
    assert pd.read_csv(folder / "groups.csv").columns[0] == "group"


def test_predict_compares_groups_between_conditions(folder):
    limiirl(folder, "fit", "walks.csv", *FIT, "--out", "compared")
    table = pd.read_csv(folder / "walks.csv")
    table["diet"] = np.where(table.group.str[1:].astype(int) < 6, "fish", "corn")
    table.to_csv(folder / "fed.csv", index=False)
    facts = json.loads(limiirl(folder, "predict", "compared", "fed.csv", "--condition", "diet", "--json").stdout)
    demos = Demonstrations.from_file(folder / "fed.csv")
    diet = np.where(np.char.lstrip(demos.groups.astype(str), "g").astype(int) < 6, "fish", "corn")
    wanted = IntentMixture.load(folder / "compared").compare_groups(demos, demos.groups, diet)
    assert [row["p"] for row in facts["comparison"]["rows"]] == [row.p for row in wanted.rows]
    assert len(wanted.rows) > 1
    assert str(wanted) in limiirl(folder, "predict", "compared", "fed.csv", "--condition", "diet").stdout
    refused = ("predict", "compared", "fed.csv", "--condition", "diet", "--partial", "--json")
    assert read_error(limiirl(folder, *refused, code=2).stderr, folder) == ("--condition", "diet")


def test_fit_predict_evaluate_and_report_with_covariates(folder):
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"demo": [f"walk {i}" for i in range(60)][::-1], "age": rng.normal(size=60)})
    table["sex"] = np.where(rng.random(60) < 0.5, "m", "f")
    table.to_csv(folder / "animals.csv", index=False)
    given = ("--covariates", "animals.csv")
    options = (*FIT, *given, "--set", "membership_ridge=0.1")
    printed = limiirl(folder, "fit", "walks.csv", *options, "--out", "covered", "--report", "covered-page").stdout
    assert "sex[m]" in printed
    mix, demos = IntentMixture.load(folder / "covered"), Demonstrations.from_file(folder / "walks.csv")
    wanted = IntentMixture(2, MaxEnt(7, (-5, 5)), random_state=0, membership_ridge=0.1)
    wanted.fit(crossings(), demos, covariates=table)
    np.testing.assert_array_equal(mix.membership_logits_, wanted.membership_logits_)
    facts = json.loads(limiirl(folder, "predict", "covered", "walks.csv", *given, "--json").stdout)
    np.testing.assert_allclose(facts["posterior"], wanted.responsibilities_, rtol=1e-12, atol=1e-15)
    facts = json.loads(limiirl(folder, "evaluate", "covered", "walks.csv", *given, "--json").stdout)
    np.testing.assert_allclose(facts["nll"]["mean"], -wanted.log_likelihood_, rtol=1e-12)
    limiirl(folder, "report", "covered", "--demos", "walks.csv", *given, "--out", "covered-again")
    assert (folder / "covered-again" / "index.html").is_file()
    assert (folder / "covered-page" / "index.html").is_file()
    done = limiirl(folder, "predict", "covered", "walks.csv", "--json", code=2)
    assert read_error(done.stderr, folder)[0] == "--covariates"


@pytest.mark.parametrize("covariance", ["robust", "cluster"])
def test_fit_prints_the_standard_errors_of_the_covariance(folder, covariance):
    options = (*FIT, "--covariance", covariance, "--out", "measured")
    facts = json.loads(limiirl(folder, "fit", "walks.csv", *options, "--json").stdout)
    demos = Demonstrations.from_file(folder / "walks.csv")
    wanted = IntentMixture.load(folder / "measured").standard_errors(demos, covariance=covariance)
    np.testing.assert_allclose(facts["weight_errors"], wanted.weights, rtol=1e-9)
    assert facts["covariance"] == covariance
    assert ("12 groups" in wanted.method) == (covariance == "cluster")


def test_fit_refuses_covariances_before_the_fit(folder):
    demos = Demonstrations.from_file(folder / "walks.csv").replace(groups=None)
    demos.to_parquet(folder / "alone.parquet")
    for path, covariance in (("walks.csv", "sandwich"), ("alone.parquet", "cluster")):
        done = limiirl(folder, "fit", path, *FIT, "--covariance", covariance, "--out", "refused", "--json", code=2)
        assert read_error(done.stderr, folder)[0] == "--covariance"
        assert not (folder / "refused").exists()


def test_select_with_covariates(folder):
    rng = np.random.default_rng(0)
    pd.DataFrame({"demo": [f"walk {i}" for i in range(60)], "age": rng.normal(size=60)}).to_csv(
        folder / "ages.csv", index=False
    )
    options = ("--mdp", "town.npz", "--max-intents", "2", "--folds", "2", "--resamples", "0")
    options += ("--set", "irl__max_length=7", "--covariates", "ages.csv", "--out", "aged", "--json")
    facts = json.loads(limiirl(folder, "select", "walks.csv", *options).stdout)
    best = IntentMixture.load(folder / "aged")
    assert best.covariates_.columns == ("age",)
    assert len(facts["rows"]) == 2


def test_fit_without_an_mdp_estimates_one(folder):
    arguments = ["fit", "walks.csv", "-k", "2", "--out", "estimated", "--set", "max_iter=3"]
    command = [sys.executable, "-c", "from limiirl.cli import main; main()", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=folder)
    assert "2 intents behind 60 demonstrations" in done.stdout
    assert "limiirl: warning: EM did not converge in 3 iterations" in done.stderr
    assert "Traceback" not in done.stderr
    assert IntentMixture.load(folder / "estimated").max_iter == 3


def test_select(folder):
    options = (
        "--mdp",
        "town.npz",
        "--max-intents",
        "2",
        "--folds",
        "2",
        "--resamples",
        "2",
        "--set",
        "irl__max_length=7",
    )
    done = limiirl(folder, "select", "walks.parquet", *options, "--plot", "criteria.png", "--out", "best")
    best = IntentMixture.load(folder / "best")
    assert (best.max_iter, best.likelihood_tol) == (500, 1e-5)
    assert "BIC" in done.stdout
    assert (folder / "criteria.png").read_bytes().startswith(b"\x89PNG")
    best = IntentMixture.load(folder / "best")
    facts = json.loads(limiirl(folder, "select", "walks.parquet", *options, "--json").stdout)
    assert [row["n_intents"] for row in facts["rows"]] == [1, 2]
    assert facts["recommended"] == best.n_intents


def test_demo(folder):
    facts = json.loads(limiirl(folder, "demo", "--demos", "60", "--worlds", "1", "--json").stdout)
    assert facts["correct"] >= 55
    assert facts["anid"] < 0.2
    assert facts["report"] == "report/index.html"
    page = (folder / "report" / "index.html").read_text()
    headings = re.findall(r'<h2 id="([^"]+)"', page)
    assert headings[1:4] == ["the-intents", "comparison-with-the-truth", "comparison-of-initialisations"]
    with (folder / "report" / "figures" / "intents.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 15
    for k in range(3):
        elements = {
            r["feature"]: float(r["reward"]) for r in rows if r["intent"] == str(k) and "element" in r["feature"]
        }
        assert max(elements, key=elements.get) == f"element {k + 1}"
    # The second call finds the finished study and only writes its report.
    done = limiirl(folder, "demo", "--worlds", "1")
    printed = done.stdout
    assert "warning" not in done.stderr
    assert re.findall(r"intent (\d) .* prefers element (\d)", printed) == [("0", "1"), ("1", "2"), ("2", "3")]
    assert printed.splitlines()[-1] == "Report: report/index.html"


REFUSED = [
    (("fit", "nowhere.parquet", "-k", "2"), None, "nowhere.parquet"),
    (("fit", "town.npz", "-k", "2"), None, "town.npz"),
    (("fit", "walks.parquet", "-k", "2", "--mdp", "walks.parquet"), "--mdp", "walks.parquet"),
    (("fit", "walks.parquet", *FIT, "-k", "100"), "--intents", 100),
    (("fit", "walks.parquet", *FIT, "--set", "colour=red"), "--set", "colour=red"),
    (("fit", "walks.parquet", *FIT, "--init", "kmeens"), "--init", "kmeens"),
    (("fit", "walks.parquet", *FIT, "--model", "MinEnt"), "--model", "MinEnt"),
    (("fit", "walks.parquet", *FIT, "--model", "maxent"), "--model", "maxent"),
    (("fit", ".", "-k", "2"), None, "."),
    (("fit", "semicolon.csv", "-k", "2"), None, "semicolon.csv"),
    (("fit", "walks.parquet", "-k", "2", "--mdp", "walks.csv"), "--mdp", "walks.csv"),
    (("predict", "walks.csv", "walks.csv"), None, "walks.csv"),
    (("predict", "absent", "walks.csv"), None, "absent"),
    (("fit", "broken.csv", "-k", "2"), None, "broken.csv"),
    (("fit", "half.parquet", "-k", "2"), None, "half.parquet"),
    (("fit", "flipped.parquet", "-k", "2"), None, "flipped.parquet"),
    (("fit", "walks.parquet", *FIT, "--out", "foreign"), "--out", "foreign"),
    (("select", "walks.parquet", "--plot", "criteria.foo"), "--plot", "criteria.foo"),
    (("select", "walks.parquet", "--out", "foreign"), "--out", "foreign"),
    (("predict", "foreign", "walks.csv", "--out", "labels.txt"), "--out", "labels.txt"),
]


@pytest.mark.smoke
@pytest.mark.parametrize(("arguments", "option", "value"), REFUSED, ids=[" ".join(words) for words, *_ in REFUSED])
def test_invalid_input_is_reported_with_option_and_value(folder, arguments, option, value):
    (folder / "broken.csv").write_text("demo,t\na,0\n")
    (folder / "semicolon.csv").write_text("demo;t;state\na;0;1\n")
    (folder / "half.parquet").write_bytes((folder / "walks.parquet").read_bytes()[:200])
    table = pd.DataFrame({"demo": np.repeat(np.arange(300), 40), "t": 0, "state": np.arange(12000) ** 2 % 977})
    table.to_parquet(folder / "flipped.parquet", compression="zstd")
    content = bytearray((folder / "flipped.parquet").read_bytes())
    middle = slice(len(content) // 2, len(content) // 2 + 200)
    content[middle] = bytes(byte ^ 255 for byte in content[middle])
    (folder / "flipped.parquet").write_bytes(content)
    (folder / "foreign").mkdir(exist_ok=True)
    (folder / "foreign" / "thesis.tex").write_text("ten years of work")
    done = limiirl(folder, *arguments, "--json", code=2)
    assert read_error(done.stderr, folder) == (option, value)
    assert "pickle" not in done.stderr
    assert done.stdout == ""


def test_a_folder_that_cannot_be_created_is_one_sentence(folder):
    done = limiirl(folder, "fit", "walks.parquet", *FIT, "--out", "walks.csv/inside", code=2)
    assert "limiirl: " in done.stderr
    assert "Traceback" not in done.stderr


def commands(group, *names):
    """All commands below a group, as typed."""
    for name, command in group.commands.items():
        yield from commands(command, *names, name) if hasattr(command, "commands") else [(*names, name)]


@pytest.mark.parametrize("command", [*commands(typer.main.get_command(app))], ids=" ".join)
def test_help_has_an_example(folder, command):
    printed = limiirl(folder, *command, "--help").stdout
    assert f"Example: limiirl {' '.join(command)}" in " ".join(printed.split())


def test_infer_prints_the_posterior_and_saves_the_mixture(folder, tmp_path):
    options = ("--mdp", "town.npz", "--max-intents", "3", "--set", "irl__max_length=7", "--set", "irl__bounds=[-5, 5]")
    saved = str(tmp_path / "inferred")
    facts = json.loads(limiirl(folder, "infer", "walks.parquet", *options, "--out", saved, "--json").stdout)
    posterior = facts["intent_posterior"]
    assert abs(sum(posterior.values()) - 1.0) < 1e-9
    mixture = IntentMixture.load(saved)
    assert max(posterior, key=posterior.get) == str(len(mixture.weights_)) == "2"
    text = limiirl(folder, "infer", "walks.parquet", *options, "--out", str(tmp_path / "again")).stdout
    assert text.startswith("Number of intents: 2 (posterior ")


def test_estimated_mdps_of_causal_models_are_discounted(tmp_path):
    # Trajectories never reach a terminal state: without a discount values would be infinite.
    rows = [(d, t, 1 + d % 2 if t % 2 else 0) for d in range(8) for t in range(6)]
    (tmp_path / "ring.csv").write_text("demo,t,state\n" + "".join(f"{d},{t},{s}\n" for d, t, s in rows))
    fit = ("fit", "ring.csv", "-k", "1", "--model", "MaxCausalEnt")
    limiirl(tmp_path, *fit, "--out", "default")
    limiirl(tmp_path, *fit, "--gamma", "0.8", "--out", "given")
    assert IntentMixture.load(tmp_path / "default").mdp_.gamma == 0.99
    assert IntentMixture.load(tmp_path / "given").mdp_.gamma == 0.8
    assert "--gamma" in limiirl(tmp_path, *fit, "--gamma", "1", "--out", "x", code=2).stderr
    limiirl(tmp_path, "fit", "ring.csv", "-k", "1", "--model", "MaxEnt", "--out", "plain")
    assert IntentMixture.load(tmp_path / "plain").mdp_.gamma == 1.0


def test_default_model_is_reported(folder):
    """Estimated transitions get the causal model; the deterministic town at discount 1 gets MaxEnt."""
    done = limiirl(folder, "fit", "walks.csv", "-k", "1", "--out", "chosen")
    assert "MaxCausalEnt by default" in done.stderr
    assert "MaxCausalEnt by default" in done.stdout
    mixture = IntentMixture.load(folder / "chosen")
    assert (type(mixture.irl_).__name__, mixture.mdp_.gamma) == ("MaxCausalEnt", 0.99)
    assert mixture.model_choice_ in done.stdout
    options = ("walks.csv", "--max-intents", "1", "--folds", "0", "--resamples", "0", "--out", "chosen")
    assert mixture.model_choice_ in limiirl(folder, "select", *options).stderr
    assert IntentMixture.load(folder / "chosen").model_choice_ == mixture.model_choice_
    assert mixture.model_choice_ in limiirl(folder, "infer", "walks.csv", "-k", "2", "--out", "chosen").stdout
    done = limiirl(folder, "fit", "walks.csv", "--mdp", "town.npz", "-k", "1", "--out", "chosen", "--json")
    assert json.loads(done.stdout)["model"].startswith("MaxEnt(")
    assert json.loads(done.stdout)["model_choice"].startswith("MaxEnt by default")
    done = limiirl(folder, "fit", "walks.csv", "-k", "1", "--model", "MaxCausalEnt", "--out", "chosen")
    assert "MaxCausalEnt by default" not in done.stdout + done.stderr


def test_gamma_is_for_an_mdp_that_is_estimated(folder):
    refused = limiirl(folder, "fit", "walks.parquet", *FIT, "--gamma", "0.9", "--out", "x", code=2)
    assert refused.stderr.startswith("limiirl: --gamma ")


def test_select_holds_out_whole_groups(folder):
    options = ("--mdp", "town.npz", "--max-intents", "2", "--folds", "3", "--resamples", "0", *FIT[4:])
    plain = json.loads(limiirl(folder, "select", "walks.parquet", *options, "--json").stdout)
    whole = json.loads(limiirl(folder, "select", "walks.parquet", *options, "--fold-by-group", "--json").stdout)
    assert plain["unit"] == whole["unit"] == "demonstrations"
    assert plain["rows"][1]["held_out"] != whole["rows"][1]["held_out"]


def test_text_states_and_actions_are_named_in_summaries_and_errors(folder):
    rows = [
        {"demo": i, "t": t, "state": place, "action": action}
        for i in range(6)
        for t, (place, action) in enumerate([("den", "run"), ("pond" if i % 2 else "meadow", "go"), ("nest", "")])
    ]
    pd.DataFrame(rows).to_csv(folder / "places.csv", index=False)
    limiirl(folder, "fit", "places.csv", "--intents", "1", "--set", "irl__ridge=0.1", "--out", "places")
    mdp = IntentMixture.load(folder / "places").mdp_
    assert (mdp.state_names, mdp.action_names) == (("den", "meadow", "nest", "pond"), ("go", "run"))
    pd.DataFrame(rows[:4]).replace({"pond": "lake", "meadow": "lake"}).to_csv(folder / "lake.csv", index=False)
    failed = limiirl(folder, "predict", "places", "lake.csv", "--json", code=2)
    assert (json.loads(failed.stderr)["value"], json.loads(failed.stderr)["index"]) == ("lake", [0, 1])


def test_columns_state_features_and_cut(folder):
    rng = np.random.default_rng(0)
    rows = [
        {"mouse": f"m{i % 3}", "bout": i // 3, "step": 10 * t, "place": "abcd"[s], "state": 0}
        for i in range(9)
        for t, s in enumerate(rng.integers(4, size=40))
    ]
    pd.DataFrame(rows).to_csv(folder / "visits.csv", index=False)
    pd.DataFrame({"state": list("dcba"), "zone": list("xxyy"), "depth": [0.0, 1.0, 2.0, 0.5]}).to_csv(
        folder / "table.csv", index=False
    )
    columns = ("--columns", "demo=mouse+bout,t=step,state=place,group=mouse", "--cut", "10")
    options = ("--model", "MaxCausalEnt", "--set", "irl__ridge=0.1", "--intents", "1", "--json")
    done = limiirl(folder, "fit", "visits.csv", *columns, *options, "--state-features", "table.csv", "--out", "own")
    summary = json.loads(done.stdout)
    assert (summary["n_units"], summary["feature_names"]) == (36, ["zone[x]", "zone[y]", "depth"])
    by_group = json.loads(limiirl(folder, "predict", "own", "visits.csv", *columns, "--by-group", "--json").stdout)
    assert by_group["group"] == ["m0", "m1", "m2"]
    # Without --cut, recordings are cut as for the fit.
    for cut, n in (((), 36), (("--cut", "20"), 18)):
        done = limiirl(folder, "predict", "own", "visits.csv", *columns[:2], *cut, "--json")
        assert len(json.loads(done.stdout)["posterior"]) == n
        assert ("10 steps" in done.stderr) == (n == 36)
    limiirl(folder, "evaluate", "own", "visits.csv", *columns, "--labels", "mouse")


@pytest.mark.parametrize(
    ("arguments", "option"),
    [
        (("--columns", "demo:walk"), "--columns"),
        (("--columns", "walk=demo"), "--columns"),
        (("--columns", "state=place"), None),
        (("--cut", "0"), None),
        (("--mdp", "town.npz", "--state-features", "walks.csv"), "--state-features"),
        (("--state-features", "walks.csv"), "--state-features"),
        (("--state-features", "walks.parquet"), "--state-features"),
    ],
)
def test_wrong_columns_and_tables_name_the_option(folder, arguments, option):
    failed = limiirl(folder, "fit", "walks.csv", "--intents", "1", *arguments, "--json", code=2)
    if option is not None:
        assert read_error(failed.stderr, folder)[0] == option


def test_default_features_are_reported_and_applied_to_new_demonstrations(folder):
    rng = np.random.default_rng(3)
    rows = []
    for demo in range(12):  # on a ring of numbered places, mostly without turning back
        place, step = int(rng.integers(6)), 1
        for t in range(30):
            rows.append({"demo": demo, "t": t, "state": place, "group": demo % 3})
            step = -step if rng.random() < 0.1 else step
            place = (place + step) % 6
    pd.DataFrame(rows).to_csv(folder / "ring.csv", index=False)
    options = ("--model", "MaxCausalEnt", "--gamma", "0.9", "--intents", "1")
    assert "turns" in limiirl(folder, "fit", "ring.csv", *options, "--out", "ring").stderr
    done = limiirl(folder, "fit", "ring.csv", *options, "--json", "--out", "ring")
    assert done.stderr == ""
    assert json.loads(done.stdout)["feature_names"][-1] == "turning back"
    assert json.loads(done.stdout)["thetas"][0][-1] < -1
    predicted = json.loads(limiirl(folder, "predict", "ring", "ring.csv", "--json").stdout)
    assert predicted["group_weights"]["weights"] == [[1.0]] * 3
    chosen = limiirl(folder, "select", "ring.csv", *options[:4], "-k", "1", "--folds", "0", "--resamples", "0")
    assert "turns" in chosen.stderr


def test_fits_do_not_depend_on_where_recordings_are_cut(folder):
    rng = np.random.default_rng(4)
    rows = [{"demo": d, "t": t, "state": s} for d in range(6) for t, s in enumerate(rng.integers(4, size=41).tolist())]
    pd.DataFrame(rows).to_csv(folder / "long.csv", index=False)
    pd.DataFrame({"state": range(4), "zone": list("xxyy"), "depth": [0.0, 1.0, 2.0, 0.5]}).to_csv(
        folder / "zones.csv", index=False
    )
    options = (
        "--model",
        "MaxCausalEnt",
        "--set",
        "irl__ridge=0.01",
        "--state-features",
        "zones.csv",
        "-k",
        "1",
        "--json",
    )
    thetas = [
        json.loads(limiirl(folder, "fit", "long.csv", *options, "--cut", cut, "--out", f"cut{cut}").stdout)["thetas"]
        for cut in ("8", "20")
    ]
    np.testing.assert_allclose(*thetas, rtol=1e-3)
