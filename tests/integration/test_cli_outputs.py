"""Outputs on the command line never replace an input, are checked before the work and saved before printing."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from limiirl import MDP, IntentMixture
from limiirl.cli import main
from tests.helpers import read_error

POSIX = pytest.mark.skipif(os.name != "posix", reason="needs a named pipe among the files")
RUN = "from limiirl.cli import main; main()"


def write_steps(path: Path) -> None:
    rows = (f"w{i},{t},{s},g{i % 2}" for i in range(10) for t, s in enumerate([0, 1 + i % 2, 3]))
    path.write_text("\n".join(["demo,t,state,group", *rows]) + "\n", encoding="ascii")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with steps.csv, mdp.npz and a mixture."""
    root = tmp_path_factory.mktemp("outputs")
    write_steps(root / "steps.csv")
    MDP.from_edges([0, 0, 1, 2], [1, 2, 3, 3]).save(root / "mdp.npz")
    main_in(root, ["fit", "steps.csv", "-k", "1", "--out", "mixture"])
    (root / "loop").symlink_to("loop")
    (root / "alias.csv").symlink_to("steps.csv")
    (root / "other_name.csv").hardlink_to(root / "steps.csv")  # as STEPS.CSV is where names ignore case
    if os.name == "posix":
        os.mkfifo(root / "pipe.csv")
    return root


def main_in(root, words):
    before = Path.cwd()
    os.chdir(root)
    try:
        main(words)
    except SystemExit as ended:
        return ended.code
    finally:
        os.chdir(before)
    return 0


def content(root):
    """Names and contents of all files."""
    return {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("words", "option"),
    [
        ("predict mixture steps.csv --out steps.csv", "--out"),
        ("predict mixture steps.csv --out ./mixture/../steps.csv", "--out"),
        ("predict mixture alias.csv --out steps.csv", "--out"),
        ("predict mixture steps.csv --out other_name.csv", "--out"),
        ("predict mixture steps.csv --out mixture/labels.csv", "--out"),
        pytest.param("predict mixture steps.csv --out pipe.csv", "--out", marks=POSIX),
        ("predict mixture steps.csv --out nope/labels.csv", "--out"),
        ("fit steps.csv -k 1 --out steps.csv", "--out"),
        ("fit steps.csv -k 1 --out steps.csv/x", "--out"),
        ("fit steps.csv -k 1 --out mdp.npz/x/y", "--out"),
        ("infer steps.csv -k 1 --out steps.csv/x", "--out"),
        ("select steps.csv --plot nope/x.png", "--plot"),
        ("select steps.csv --plot x.txt", "--plot"),
        ("select steps.csv --out steps.csv/x", "--out"),
        ("stream fit mixture -k 1 --out mixture/x", "--out"),
        ("stream fit mixture -k 1 --out new --checkpoint nope/c.npz", "--checkpoint"),
        ("roads build steps.csv --out steps.csv", "--out"),
        ("roads build mdp.npz --nodes steps.csv --out steps.csv", "--out"),
        ("roads match mdp.npz steps.csv --out steps.csv", "--out"),
        ("roads match mdp.npz steps.csv --out mdp.npz", "--out"),
        ("roads match mdp.npz steps.csv --out m.npz --page steps.csv/x", "--page"),
        ("roads fit mdp.npz steps.csv --out steps.csv/x", "--out"),
    ],
)
def test_an_output_that_is_an_input_or_cannot_be_written_is_refused(folder, capsys, words, option):
    before = content(folder)
    assert main_in(folder, [*words.split(), "--json"]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert read_error(printed.err, folder)[0] == option
    assert content(folder) == before


@pytest.mark.parametrize(
    "words", ["fit steps.csv -k 1 --out loop", "fit steps.csv -k 1 --out loop/x", "predict loop steps.csv"]
)
def test_loops_of_symbolic_links_are_reported(folder, capsys, words):
    assert main_in(folder, words.split()) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="needs a folder that is not writable")
def test_a_read_only_folder_is_reported_before_the_fit(folder, tmp_path, capsys):
    tmp_path.chmod(0o500)
    assert main_in(folder, ["fit", "steps.csv", "-k", "1", "--out", str(tmp_path / "x"), "--json"]) == 2
    assert read_error(capsys.readouterr().err, folder)[0] == "--out"


@pytest.mark.smoke
@pytest.mark.parametrize("command", [["fit", "-k", "1"], ["select", "-k", "1", "--folds", "0", "--resamples", "0"]])
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_mixture_is_saved_although_printing_fails(tmp_path, command):
    write_steps(tmp_path / "steps.csv")
    words = [sys.executable, "-c", RUN, command[0], "steps.csv", *command[1:], "--out", "mixture"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    with Path("/dev/full").open("w", encoding="ascii") as full:
        ended = subprocess.run(
            words, cwd=tmp_path, env=environment, stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert ended.returncode != 0
    assert "Traceback" not in ended.stderr
    assert IntentMixture.load(tmp_path / "mixture").n_intents == 1
    assert json.loads((tmp_path / "mixture" / "mixture.json").read_text())["version"] == 1


def test_escape_sequences_in_names_are_printed_as_text(folder, tmp_path, capsys):
    rows = ["demo,t,state", *(f"\x1b[2J{i},{t},{s}" for i in range(4) for t, s in enumerate([0, 1, 3]))]
    (tmp_path / "odd.csv").write_text("\n".join(rows))
    assert main_in(folder, ["predict", "mixture", str(tmp_path / "odd.csv"), "--out", str(tmp_path / "x.csv")]) == 0
    printed = capsys.readouterr().out
    assert "\x1b" not in printed
    assert "\\x1b[2J0" in printed
    (tmp_path / "bad.csv").write_text("demo,t,state\n\x1b[2J,0,0\n\x1b[2J,0,1\n")
    assert main_in(folder, ["predict", "mixture", str(tmp_path / "bad.csv")]) == 2
    assert "\x1b" not in capsys.readouterr().err


def test_file_names_of_any_bytes_are_printed(folder, tmp_path, capsys):
    name = os.fsdecode(b"caf\xe9")
    assert main_in(folder, ["fit", "steps.csv", "-k", "1", "--out", str(tmp_path / name)]) == 0
    assert "caf\\udce9" in capsys.readouterr().out
    assert (tmp_path / name / "mixture.json").exists()


@pytest.mark.parametrize(
    "words",
    ["fit huge.csv -k 1 --out new", "fit steps.csv -k 1 --model MaxEnt --set irl__max_length=1000000000 --out new"],
)
def test_sizes_beyond_the_memory_are_refused(folder, capsys, words):
    (folder / "huge.csv").write_text("demo,t,state\na,0,2000000000\na,1,1\n")
    assert main_in(folder, words.split()) == 2
    assert capsys.readouterr().err.count("\n") == 1
