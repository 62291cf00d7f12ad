"""Errors on the command line: one sentence that names the option at fault, exit code 2, and JSON for machines."""

import json
from pathlib import Path

import numpy as np
import pytest

from limiirl.cli import _describe, find_option, main
from limiirl.errors import InvalidParameter


@pytest.mark.parametrize(
    ("words", "parameter", "option"),
    [
        (["fit", "walks.csv"], "n_intents", "--intents"),
        (["fit", "walks.csv"], "random_state", "--seed"),
        (["infer", "walks.csv"], "max_intents", "--intents"),
        (["fit", "walks.csv"], "workers", "--workers"),
        (["fit", "walks.csv", "--set", "resp_tol=-1"], "resp_tol", "--set resp_tol"),
        (["fit", "walks.csv", "--set", "irl__gamma=2"], "gamma", "--gamma"),
        (["fit", "walks.csv", "--set", "irl__max_length=0"], "max_length", "--set irl__max_length"),
        (["stream", "fit", "features"], "n_intents", "--intents"),
        (["roads", "match", "town.npz"], "step_s", "--step"),
        (["roads", "match", "town.npz"], "sigma_m", "--sigma"),
        (["roads", "match", "town.npz"], "columns", "--columns"),
        (["roads", "build", "map.osm"], "u_turns", "--u-turns"),
        (["roads", "fit", "town.npz"], "by_driver", "--by-driver"),
        (["roads", "demo"], "radius_km", "--radius"),
        (["roads", "close", "--one-way"], "both", "--one-way"),
        (["roads", "demo"], "n_drivers", "--drivers"),
        (["roads", "demo"], "noise_m", "--noise"),
        # An argument is no option, and a command has its own options only.
        (["roads", "fit", "town.npz"], "network", None),
        (["roads", "build", "map.osm"], "step_s", None),
        (["roads"], "n_intents", None),
        (["nonsense"], "n_intents", None),
        ([], "n_intents", None),
        (["fit", "walks.csv"], None, None),
    ],
)
def test_a_parameter_is_named_by_its_option(words, parameter, option):
    assert find_option(parameter, words) == option


def test_the_equal_value_of_another_option_is_not_blamed():
    assert find_option("max_length", ["fit", "walks.csv", "--seed", "3"], 3) is None


def test_an_absolute_path_is_named_by_its_option():
    words = ["fit", "walks.csv", "--out", "mixture"]
    assert find_option("folder", words, str(Path("mixture").absolute())) == "--out"


def test_an_error_names_the_option_once():
    error = InvalidParameter("n_intents must be at least 1; got 0.", parameter="n_intents", value=0)
    assert _describe(error, ["fit"]) == "limiirl: --intents must be at least 1; got 0."
    remedy = InvalidParameter.of("n_intents", 0, "must be at least 1", remedy="Pass --intents 1.")
    assert _describe(remedy, ["fit"]) == "limiirl: --intents must be at least 1; got 0. Pass --intents 1."
    other = InvalidParameter("Not enough data.", parameter="n_intents", value=3)
    assert _describe(other, ["fit"]) == "limiirl: --intents: Not enough data."
    named = InvalidParameter("--intents must be at least 1; got 0.", parameter="n_intents", value=0)
    assert _describe(named, ["fit"]) == "limiirl: --intents must be at least 1; got 0."
    assert _describe(InvalidParameter("No parameter."), ["fit"]) == "limiirl: No parameter."


@pytest.mark.parametrize(
    ("value", "plain"),
    [(0, 0), ("x", "x"), (None, None), (0.5, 0.5), (np.float64(2), 2.0), (np.nan, "nan"), ([1], "[1]")],
)
def test_errors_are_json_with_the_option_json(value, plain):
    error = InvalidParameter("Wrong.", parameter="n_intents", value=value, index=(1, 2))
    facts = json.loads(_describe(error, ["fit", "--json"]))
    assert facts == {
        "error": "InvalidParameter",
        "message": "Wrong.",
        "parameter": "n_intents",
        "option": "--intents",
        "value": plain,
        "index": [1, 2],
    }


def test_the_exit_code_is_2_and_nothing_is_printed(tmp_path, capsys):
    (tmp_path / "walks.csv").write_text("demo,t,state\na,0,1\na,1,2\n")
    with pytest.raises(SystemExit) as ended:
        main(["fit", str(tmp_path / "walks.csv"), "--intents", "0", "--out", str(tmp_path / "out"), "--json"])
    assert ended.value.code == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    facts = json.loads(printed.err)
    assert (facts["error"], facts["parameter"], facts["option"], facts["value"]) == (
        "InvalidParameter",
        "n_intents",
        "--intents",
        0,
    )


@pytest.mark.parametrize(
    ("words", "ending"),
    [
        (["fit", "walks.csv", "--gamma", "abc"], "got 'abc'"),
        (["infer", "walks.csv", "--intents=none"], "got 'none'"),
        (["fit", "walks.csv", "--cut", "0", "-k", "1"], "got '0'"),
    ],
)
def test_an_invalid_number_is_in_the_message(words, ending, capsys):
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    assert capsys.readouterr().err.rstrip().endswith(ending)


def test_one_number_of_intents_is_checked_before_the_data_are_read(capsys):
    for words, value in ((["-k", "0"], 0), (["-k", "1-3"], "1-3"), (["-k", "few"], "few")):
        with pytest.raises(SystemExit):
            main(["fit", "absent.csv", *words, "--json"])
        facts = json.loads(capsys.readouterr().err)
        assert (facts["option"], facts["value"]) == ("--intents", value)
