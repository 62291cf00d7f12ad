"""`limiirl reproduce` and `limiirl report`: output, files, errors and the log of a run."""

import contextlib
import getpass
import html
import json
import platform
import re
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import pytest

from limiirl.executors import dask
from limiirl.experiments import studies
from limiirl.experiments.record import Record
from limiirl.experiments.store import FILE, Store
from limiirl.report.studies import report
from tests.helpers import read_error
from tests.oracles.runs import command, counts, expected, fill, read_records


def make_records() -> list[Record]:
    """The records of the study of the margin in three worlds."""
    return [Record(**given) for given in expected("margin", 3).values()]


@pytest.fixture
def folder(tmp_path):
    """A finished run of the study of the margin in three worlds, without a report."""
    fill(tmp_path / "run", make_records()).add_specs(studies.STUDIES["margin"].specs)
    return tmp_path / "run"


# What is there, what is refused and what is printed.


@pytest.mark.smoke
def test_a_finished_run_is_skipped_and_reported(folder):
    done = command("reproduce", "margin", "--repeats", 3, "--out", folder)
    assert "Margin between the intents, 3 worlds" in done.stdout
    *_, counts, page = done.stdout.splitlines()
    assert counts == "0 trials run, 15 skipped (finished before)."
    assert page == f"Report: {folder / 'report' / 'index.html'}"
    assert "Margin" in (folder / "report" / "index.html").read_text()
    assert done.messages == []


def test_json_contains_the_counts_only(folder):
    done = command("reproduce", "margin", "--repeats", 3, "--out", folder, "--json")
    page = str(folder / "report" / "index.html")
    assert counts(done) == (15, 15, 0)
    assert done.counts["report"] == page
    assert Path(page).exists()
    without = command("reproduce", "margin", "--repeats", 3, "--out", folder, "--json", "--no-report")
    assert without.counts["report"] is None
    assert json.loads(command("report", folder, "--json", "--out", folder.parent / "page").stdout) == {
        "report": str(folder.parent / "page" / "index.html")
    }


@pytest.mark.parametrize(
    ("arguments", "option", "value"),
    [
        (["nonsense"], None, "nonsense"),
        (["margin", "--repeats", "0"], "--repeats", 0),
        (["margin", "--repeats", "-2"], "--repeats", -2),
        (["margin", "--workers", "0"], "--workers", 0),
        (["margin", "--executor", "abacus"], "--executor", "abacus"),
        (["margin", "--executor", "dask"], "--scheduler", None),
        (["margin", "--executor", "dask", "--scheduler", "somewhere"], "--scheduler", "somewhere"),
        (["margin", "--scheduler", "tcp://127.0.0.1:1"], "--scheduler", "tcp://127.0.0.1:1"),
        (["margin", "--matches", "m.npz"], "--matches", "m.npz"),
        (["drivers", "--network", "town.npz"], "--network", "town.npz"),
    ],
)
def test_invalid_options_are_one_line_and_write_nothing(tmp_path, arguments, option, value):
    done = command("reproduce", *arguments, "--out", tmp_path / "run", "--json", code=2)
    assert done.stdout == ""
    (line,) = done.messages
    assert read_error(line, tmp_path) == (option, value)
    assert not (tmp_path / "run").exists()


def test_a_folder_with_other_files_is_unchanged(tmp_path):
    (tmp_path / "thesis.tex").write_text("precious")
    for path in (tmp_path, tmp_path / "thesis.tex"):
        (line,) = command("reproduce", "margin", "--repeats", 1, "--out", path, code=2).messages
        assert line.startswith(f"limiirl: --out: {path} ")
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_an_unreachable_scheduler_is_one_sentence_and_not_logged(tmp_path, monkeypatch):
    pytest.importorskip("distributed", reason="the extra 'cluster' is not installed")
    monkeypatch.setattr(dask, "_CONNECT_SECONDS", 1)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"tcp://127.0.0.1:{listener.getsockname()[1]}"  # the port is closed afterwards
    for given in (["--scheduler", address], [f"--scheduler={address}"]):
        arguments = ("reproduce", "margin", "--repeats", 1, "--executor", "dask", *given)
        (line,) = command(*arguments, "--out", tmp_path / "run", code=2).messages
        assert line.startswith("limiirl: --scheduler: ")
    assert read_records(tmp_path / "run") == {}
    # The address of a cluster does not belong in a report.
    assert not [run["command"] for run in Store(tmp_path / "run").runs() if address in run["command"]]


# Reports.


def test_a_report_of_a_folder_without_a_run_is_rejected(tmp_path):
    for name in ("absent", "empty"):
        if name == "empty":
            (tmp_path / name).mkdir()
        (line,) = command("report", tmp_path / name, code=2).messages
        assert line.startswith(f"limiirl: {tmp_path / name} is not the folder of a run")
    assert [path.name for path in tmp_path.rglob("*")] == ["empty"], "something was written"


def test_a_report_of_an_interrupted_run_uses_complete_worlds(tmp_path):
    records = make_records()
    fill(tmp_path / "run", records[:12])  # the third world has two of its five settings
    done = command("report", tmp_path / "run")
    assert done.stdout == f"Report: {tmp_path / 'run' / 'report' / 'index.html'}\n"
    points = (tmp_path / "run" / "report" / "figures" / "margin.csv").read_text().splitlines()
    fill(tmp_path / "two", records[:10])
    command("report", tmp_path / "two")
    assert points == (tmp_path / "two" / "report" / "figures" / "margin.csv").read_text().splitlines()

    fill(tmp_path / "none", records[:4])
    (line,) = command("report", tmp_path / "none", code=2).messages
    assert str(tmp_path / "none") in line


@pytest.mark.skipif(sys.platform == "win32", reason="Windows does not limit the size of files")
def test_a_report_on_a_full_disk_is_one_sentence(folder):
    import resource

    before, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1024, most))  # every byte after the first 1024 of a file is refused
    try:
        done = command("report", folder, code=2)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (before, most))
    (line,) = done.messages
    assert line.startswith(f"limiirl: {folder / 'report'}")
    assert "File too large" in line
    assert read_records(folder) == expected("margin", 3)
    command("report", folder)


# Trials that fail.


@pytest.fixture
def broken(monkeypatch):
    """The study of the margin with one more setting, of which no trial can succeed."""
    expected("margin", 3)  # of the study as it is
    study = studies.STUDIES["margin"]
    good = study.settings[-1]
    bad = replace(good, x=0.25, spec=good.spec.with_(model="Astrology"))
    changed = MappingProxyType({"margin": replace(study, settings=(*study.settings, bad))})
    for module in (studies, report):
        monkeypatch.setattr(module, "STUDIES", changed)
    return bad.spec


def test_a_failed_trial_is_recorded_and_reported(tmp_path, broken):
    folder, arguments = tmp_path / "run", ("reproduce", "margin", "--repeats", 1, "--workers", 1, "--json")
    done = command(*arguments, "--out", folder, code=1)
    (failed,) = done.counts["failed"]
    assert (failed["spec"], failed["seed"]) == (broken.hash, 0)
    assert "Astrology" in failed["error"]
    assert done.messages == [f"limiirl: trial {broken.hash} with seed 0 failed: {failed['error']}"]
    assert (done.counts["total"], done.counts["run"]) == (6, 6)
    assert failed["error"] in html.unescape(Path(done.counts["report"]).read_text())

    records = {record.key: record for record in Store(folder).read()}
    record = records.pop((broken.hash, 0))
    assert record == Record(broken.hash, 0, failed["error"], record.trace)
    assert "in run_trial" in record.trace
    assert str(Path(studies.__file__).parent) not in record.trace, "a folder of this machine"
    wanted = {key: given for key, given in expected("margin", 3).items() if key[1] == 0}
    assert {key: record.reproducible() for key, record in records.items()} == wanted

    # Called again, it does not try in vain; asked to, it does.
    again = command(*arguments, "--out", folder)
    assert (again.counts["skipped"], again.counts["run"], again.counts["failed_before"]) == (6, 0, 1)
    again = command(*arguments, "--out", folder, "--retry-failed", code=1)
    assert (again.counts["skipped"], again.counts["run"]) == (5, 1)
    assert again.counts["failed"] == [failed]


def test_a_retry_replaces_a_failure(tmp_path):
    folder, records = tmp_path / "run", make_records()
    fill(folder, [replace(records[0], error="MemoryError: too little"), *records[1:]])
    arguments = ("reproduce", "margin", "--repeats", 3, "--workers", 1, "--json", "--no-report", "--out", folder)
    assert command(*arguments).counts["skipped"] == 15
    assert read_records(folder) != expected("margin", 3)
    again = command(*arguments, "--retry-failed")
    assert counts(again) == (15, 14, 1)
    assert read_records(folder) == expected("margin", 3)


# What starts quickly, and what is kept of this machine.


def test_help_has_an_example_and_loads_nothing_heavy():
    for arguments in (["--help"], ["reproduce", "--help"], ["report", "--help"]):
        code = (
            "import sys; from limiirl.cli import main\n"
            f"try: main({arguments})\n"
            "except SystemExit: pass\n"
            "print(*(name for name in sys.modules if '.' not in name), file=sys.stderr)"
        )
        ran = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
        heavy = {"matplotlib", "pyarrow", "dask", "distributed", "ray", "joblib", "numba", "sklearn", "scipy", "pandas"}
        assert not heavy & set(ran.stderr.split())
        assert arguments == ["--help"] or f"Example: limiirl {arguments[0]} " in " ".join(ran.stdout.split())
        assert "reproduce" in command("--help").stdout


def test_the_log_of_a_run_contains_no_local_paths(folder):
    arguments = ("reproduce", "margin", "--repeats", "3", "--no-report", "--json")
    command(*arguments, f"--out={folder}")
    with contextlib.chdir(folder.parent):
        command(*arguments, "--out", "run")
    first, second = Store(folder).runs()
    assert first["command"] == "limiirl reproduce margin --repeats 3 --no-report --json --out=run"
    assert second["command"] == "limiirl reproduce margin --repeats 3 --no-report --json --out run"
    assert first["seeds"] == [0, 1, 2]
    text = (folder / FILE).read_bytes().decode("latin-1")
    assert "reproduce margin" in text
    for secret in (folder.parent, Path.home(), sys.prefix, Path.cwd(), platform.node(), getpass.getuser()):
        assert not re.search(rf"(?<!\w){re.escape(str(secret))}(?!\w)", text), secret
