"""Display of progress: a bar on a terminal, lines elsewhere."""

import io

import pytest
from rich.console import Console

from limiirl._progress import LineReport, check_progress, report_progress, show_progress
from limiirl.errors import InvalidParameter
from tests.helpers import raises


def report(times: list[float], title: str = "fits") -> LineReport:
    clock = iter(times)
    return LineReport(title, 15.0, lambda: next(clock))


def test_lines_have_a_minimum_interval(capsys: pytest.CaptureFixture[str]) -> None:
    progress = report([0.0, 5.0, 15.0, 29.0, 31.0])
    for done, message in enumerate("abcd", start=1):
        progress(done, None, message)
    assert capsys.readouterr() == ("", "fits: 2, b\nfits: 4, d\n")


def test_remaining_time_uses_the_rate_since_the_last_line(capsys: pytest.CaptureFixture[str]) -> None:
    progress = report([0.0, 15.0, 35.0, 55.0])
    for done in (1000, 1010, 1210):
        progress(done, 1210, "")
    first, second, third = capsys.readouterr().err.splitlines()
    assert (first, second) == ("fits: 1,000 of 1,210", "fits: 1,010 of 1,210, about 400 s left")
    assert third == "fits: 1,210 of 1,210"


def test_each_stage_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with show_progress() as progress:
        for stage in ("reading", "reading", "cleaning"):
            progress(0, None, stage)
    assert capsys.readouterr() == ("", "reading ...\ncleaning ...\n")


def test_terminal_shows_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    monkeypatch.setattr("rich.console.Console", lambda **_: Console(file=screen, force_terminal=True, width=120))
    with show_progress("matching") as progress:
        progress(3, 7, "trip [a]")
    assert "matching" in screen.getvalue()
    assert "3/7" in screen.getvalue()
    assert "trip [a]" in screen.getvalue()  # no markup


def test_progress_must_be_callable() -> None:
    check_progress(None)
    with raises(InvalidParameter, parameter="callback", value=3):
        check_progress(3, "callback")


def test_verbose_shows_the_first_and_the_last_step_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with report_progress("EM", True, None) as progress:
        assert progress is not None
        for done in range(1, 6):
            progress(done, 100, f"step {done}")
    assert capsys.readouterr() == ("", "EM: 1 of 100, step 1\nEM: 5 of 100, step 5\n")


def test_commands_do_not_show_short_computations(capsys: pytest.CaptureFixture[str]) -> None:
    with show_progress("EM") as progress:
        progress(1, 2, "")
        progress(2, 2, "")
    assert capsys.readouterr() == ("", "")
