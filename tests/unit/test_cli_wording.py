"""Messages of the library on the command line: they name what can be typed, and only that."""

import re
from pathlib import Path

import pytest
import typer

from limiirl import roads
from limiirl.cli.bars import now_and_then
from limiirl.cli.main import app
from limiirl.cli.wording import _ADVICE, _FIRST, _PARAMETERS, in_options, options_of
from limiirl.files import atomic_write

GROUP = typer.main.get_command(app)
SOURCE = "\n".join(file.read_text(encoding="utf-8") for file in Path(roads.__file__).parent.rglob("*.py"))


@pytest.mark.parametrize(
    ("words", "said", "typed"),
    [
        (["roads", "match"], "Say which: columns={'trip': 'my id'} or columns={'trip': None}.",
         "Say which: --columns trip='my id' or --columns trip=."),
        (["roads", "match"], "Say: columns={'polyline': ...} or columns={'lat': ..., 'lon': ...}.",
         "Say: --columns polyline=NAME or --columns lat=NAME,lon=NAME."),
        (["roads", "match"], "Read them with read_trips(..., swap=True).", "Read them with --swap."),
        (["roads", "match"], "3 skipped. See Trips.skipped and Trips.notes.", "3 skipped."),
        (["roads", "match"], "step_s must be positive", "--step must be positive"),
        (["roads", "match"], "method must be hmm; no method is magic", "--method must be hmm; no method is magic"),
        (["roads", "match"], "step_s.csv and a/step_s are files", "step_s.csv and a/step_s are files"),
        (["roads", "fit"], "by_driver needs groups", "--by-driver needs groups"),
        (["roads", "fit"], "Give a file that RoadNetwork.save or `limiirl roads build` wrote.",
         "Give a file that `limiirl roads build` wrote."),
        (["roads", "build"], "pass nodes=, a CSV file", "pass --nodes, a CSV file"),
        (["roads", "build"], "Pass component=None to keep everything, or u_turns='dead_ends'.",
         "Pass --component all to keep everything, or --u-turns."),
        (["roads", "demo"], "n_drivers must be", "--drivers must be"),
        (["roads", "fit"], "trips must be longer; method x", "trips must be longer; method x"),
        # A command that has no such option says what the library says.
        (["roads", "build"], "step_s must be positive; swap=True", "step_s must be positive; swap=True"),
        (["roads"], "n_intents must be", "n_intents must be"),
        (["nonsense"], "n_intents must be", "n_intents must be"),
        ([], "n_intents must be", "n_intents must be"),
    ],
)  # fmt: skip
def test_advice_is_in_the_words_of_the_command(words, said, typed):
    assert in_options(said, options_of(GROUP, words)) == typed


def test_options_are_those_of_the_command_that_was_typed():
    assert "--columns" in options_of(GROUP, ["roads", "match", "town.npz", "--columns", "fit"])
    assert "--columns" not in options_of(GROUP, ["roads", "fit", "match"])
    assert "--version" in options_of(GROUP, ["--version"])


def test_every_option_that_is_advised_exists():
    options = set().union(*(options_of(GROUP, ["roads", name]) for name in ("build", "match", "fit", "demo")))
    advised = {option for option, _, _ in _ADVICE} | set(_PARAMETERS.values()) | {f"--{name}" for name in _FIRST}
    assert advised <= options
    for _, _, words in _ADVICE:
        assert set(re.findall(r"--[a-z-]+", words)) <= options


@pytest.mark.parametrize(
    "words",
    [*_PARAMETERS, "swap=True", "component=None", "columns has no role", "See Trips.skipped", "FeatureChoice, "],
)
def test_what_is_reworded_is_still_said_somewhere(words):
    assert words in SOURCE


def test_lines_come_now_and_then(capsys):
    seconds = iter([0.0, 5.0, 15.0, 29.0, 31.0])
    say = now_and_then(15.0, lambda: next(seconds))
    for text in "abcd":
        say(text)
    assert capsys.readouterr() == ("", "b\nd\n")


def test_a_missing_folder_is_named_and_not_a_file_that_nobody_knows(tmp_path):
    with pytest.raises(FileNotFoundError) as found, atomic_write(tmp_path / "nowhere" / "a.npz"):
        pass
    assert found.value.filename == str(tmp_path / "nowhere")
