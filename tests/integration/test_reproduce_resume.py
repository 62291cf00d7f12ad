"""`limiirl reproduce` under faults: kills, full disks, damaged files and concurrent runs."""

import random
import signal
import sys
import time
from typing import Any

import pytest

from limiirl.experiments import Record
from limiirl.experiments.store import FILE
from tests.oracles.runs import (
    Key,
    Run,
    command,
    counts,
    cpu_seconds,
    expected,
    fill,
    read_keys,
    read_records,
    rows,
    start,
)

resource = pytest.importorskip("resource", reason="runs are killed as process groups and limited, which needs POSIX")

# Many short trials, so that a kill always interrupts some of them.
STUDY, REPEATS = "margin", 150
MARGIN = ("reproduce", STUDY, "--no-report", "--json", "--repeats")


def expect_records(repeats: int = REPEATS) -> dict[Key, dict[str, Any]]:
    """Return the records of an uninterrupted run."""
    return {key: record for key, record in expected(STUDY, REPEATS).items() if key[1] < repeats}


def group(run: Run) -> None:
    """Kill a run with all its processes, as a power failure would."""
    run.kill_group()


def parent(run: Run) -> None:
    """Kill the parent only; the workers end on their own."""
    assert len(run.workers()) == 2
    run.kill_parent()


@pytest.mark.slow
def test_killed_runs_and_workers_lose_no_records(tmp_path):
    dice = random.Random(5)
    folder, wanted = tmp_path / "run", expect_records()
    before: dict[object, object] = {}
    for kill, trials in ((group, False), (parent, True), (group, True)):
        known = read_keys(folder)
        with start(*MARGIN, REPEATS, "--out", folder, "--workers", "2") as run:
            if trials:
                # New records, and then a moment in the middle of the trials.
                run.until(lambda known=known: read_keys(folder) - known)
                time.sleep(dice.uniform(0.0, 0.2))
            else:
                time.sleep(dice.uniform(0.0, 3.0))
            kill(run)
            assert run.process.returncode == -signal.SIGKILL
            run.must_vanish()
        if not trials and not rows(folder):
            continue
        records = read_records(folder)
        assert before.items() <= records.items(), "something that was recorded is lost"
        assert records.items() <= wanted.items(), "something was recorded that an uninterrupted run does not give"
        assert not trials or len(records) > len(before), "nothing was recorded"
        before = records
    assert len(before) < len(wanted), "the last kill came too late to test anything"

    # The last goes to the end, although one of its workers is killed on the way.
    known = read_keys(folder)
    with start(*MARGIN, REPEATS, "--out", folder, "--workers", "2") as run:
        run.until(lambda: read_keys(folder) - known)
        time.sleep(dice.uniform(0.0, 0.2))
        victim, *others = run.workers()
        victim.kill()
        run.until(lambda: set(run.workers()) - {victim, *others})  # trials were under way: others take them up
        done = run.finish()
        run.must_vanish()
    assert done.code == 0, done
    assert done.messages == []
    assert counts(done) == (len(wanted), len(before), len(wanted) - len(before))
    assert read_records(folder) == wanted
    assert rows(folder) == sorted(wanted), "on the disk each trial is there once"


def test_an_interrupt_keeps_finished_trials_and_ends_all_processes(tmp_path):
    folder = tmp_path / "run"
    with start(*MARGIN, REPEATS, "--out", folder, "--workers", "2") as run:
        run.until(lambda: read_keys(folder))
        first = len(rows(folder))
        workers = run.workers()
        before = cpu_seconds(workers)
        run.until(lambda: cpu_seconds(workers) > before + 0.8)  # seconds: some trials, whatever else this machine does
        # A terminal sends it to the parent and to its workers alike.
        for process in run.family():
            process.send_signal(signal.SIGINT)
        done = run.finish()
        run.must_vanish()
    assert done.code == 130
    assert done.messages == ["limiirl: interrupted. Finished trials are saved; run the same command to resume."]
    records = read_records(folder)
    assert first < len(records) < len(expect_records()), "an interrupt must write pending records"
    assert records.items() <= expect_records().items()


def test_two_concurrent_runs_in_one_folder(tmp_path):
    folder, wanted = tmp_path / "run", expect_records()
    arguments = (*MARGIN, REPEATS, "--out", folder, "--workers", "1")
    with start(*arguments) as one, start(*arguments) as other:
        ends = [one.finish(), other.finish()]
    for done in ends:
        assert done.code == 0, done
        assert done.messages == []
        total, skipped, run = counts(done)
        assert total == skipped + run == len(wanted)
    assert sum(counts(done)[2] for done in ends) >= len(wanted)
    assert read_records(folder) == wanted


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux limits another process's files")
def test_a_full_disk_is_one_sentence_and_the_next_run_resumes(tmp_path):
    folder, wanted = tmp_path / "run", expect_records(4)
    arguments = (*MARGIN, 4, "--workers", "1", "--out", folder)
    with start(*arguments) as run:
        run.until(lambda: read_keys(folder))
        # The system refuses every byte after the first 1024 of a file, from now on: the next write fails in its midst.
        resource.prlimit(run.process.pid, resource.RLIMIT_FSIZE, (1024, 1024))
        done = run.finish()
        run.must_vanish()
    assert (done.code, done.stdout) == (2, ""), done
    (sentence,) = done.messages
    assert sentence.startswith(f"limiirl: {folder}: ")
    assert "recorded trials are not affected" in sentence
    kept = read_records(folder)
    assert 1 <= len(kept) < len(wanted)
    assert kept.items() <= wanted.items()

    assert counts(command(*arguments)) == (len(wanted), len(kept), len(wanted) - len(kept))
    assert read_records(folder) == wanted
    assert rows(folder) == sorted(wanted)


def test_damaged_records_are_reported_and_computed_again(tmp_path):
    folder, wanted = tmp_path / "run", expect_records(3)
    fill(folder, [Record(**given) for given in wanted.values()])
    content = bytearray((folder / FILE).read_bytes())
    damaged = [content.index(f'"seed": {seed}, '.encode()) for seed in (0, 1, 2)]
    for place in damaged[:2]:
        content[place + 8] ^= 1  # another seed: no error of the format
    (folder / FILE).write_bytes(content)

    with start(*MARGIN, 3, "--workers", "1", "--out", folder) as run:
        done = run.finish()
    assert counts(done) == (15, 13, 2)
    (line,) = done.messages
    assert line.startswith(f"limiirl: warning: {folder / FILE} is corrupted: 2 of its records")
    assert read_records(folder) == wanted
    assert rows(folder) == sorted(wanted)


def test_a_damaged_file_is_one_sentence_with_a_remedy(tmp_path):
    folder, wanted = tmp_path / "run", expect_records(1)
    fill(folder, [Record(**given) for given in wanted.values()])
    content = (folder / FILE).read_bytes()
    (folder / FILE).write_bytes(b"x" * 100 + content[100:])
    arguments = (*MARGIN, 1, "--workers", "1", "--out", folder)
    (line,) = command(*arguments, code=2).messages
    assert f"{folder / FILE} is corrupted" in line
    assert "delete it" in line
    (folder / FILE).unlink()
    assert counts(command(*arguments)) == (5, 0, 5)
    assert read_records(folder) == wanted
