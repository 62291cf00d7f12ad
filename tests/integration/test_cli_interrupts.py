"""Interrupts of commands, also while compiled code runs."""

import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
import time

import pytest

from limiirl import IntentMixture
from limiirl.cli import interruptible, main, mixtures

# The loop of compiled code does not return to Python; it releases the lock of the interpreter, like the kernels.
BUSY = """
import sys, numba
from limiirl.cli import interruptible

@numba.njit(nogil=True)
def spin(n):
    total = 0.0
    for i in range(n):
        total += 1.0 / (i + total + 1.0)
    return total

spin(1)
with interruptible():
    print("ready", flush=True)
    {work}
"""


@pytest.mark.smoke
@pytest.mark.parametrize(
    ("work", "code"),
    [("spin(10**13)", 130), ("import time; time.sleep(600)", -signal.SIGINT)],
    ids=["kernel", "python"],
)
def test_an_interrupt_ends_the_process(work, code):
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    words = [sys.executable, "-c", BUSY.format(work=work)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment) as process:
        assert process.stdout.readline() == b"ready\n"
        time.sleep(1.0)  # until the loop has begun
        process.send_signal(signal.SIGINT)
        _, message = process.communicate(timeout=30)
    assert process.returncode == code
    assert (b"KeyboardInterrupt" in message) == (code != 130)


def test_the_handler_is_restored():
    with interruptible():
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) is not signal.default_int_handler
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert signal.set_wakeup_fd(-1) == -1


def stop_after(n):
    """Return a replacement of `show_progress` whose reports raise KeyboardInterrupt in call n, as Ctrl-C does."""
    calls = itertools.count(1)

    def report(done, total, message):
        if next(calls) == n:
            raise KeyboardInterrupt

    return lambda title: contextlib.nullcontext(report)


@pytest.fixture
def recordings(tmp_path):
    states = [[0, *[1 + i % 2] * (3 + i % 3)] for i in range(16)]
    rows = [f"{i},{t},{s}" for i, demo in enumerate(states) for t, s in enumerate(demo)]
    path = tmp_path / "demos.csv"
    path.write_text("\n".join(["demo,t,state", *rows]))
    return path


def test_an_interrupted_select_prints_and_saves_what_is_complete(recordings, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(mixtures, "show_progress", stop_after(8))
    words = ["select", str(recordings), "-k", "3", "--folds", "2", "--resamples", "2", "--out", str(tmp_path / "best")]
    with pytest.raises(SystemExit) as ended:
        main([*words, "--json"])
    assert ended.value.code == 130
    printed = json.loads(capsys.readouterr().out)
    assert [row["n_intents"] for row in printed["rows"]] == [1, 2]
    assert printed["missing"] == [3]
    assert IntentMixture.load(tmp_path / "best").n_intents == printed["recommended"]


def test_an_interrupted_switch_prints_what_is_complete(recordings, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(mixtures, "show_progress", stop_after(9))
    words = ["switch", str(recordings), "-k", "1-3", "--folds", "2", "--out", str(tmp_path / "best"), "--json"]
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 130
    printed = json.loads(capsys.readouterr().out)
    assert [row["n_intents"] for row in printed["rows"]] == [1, 0, 0, 0]
    assert [setting["n_intents"] for setting in printed["missing"]] == [2, 3]
    assert not (tmp_path / "best").exists()
