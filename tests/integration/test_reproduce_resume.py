"""`limiirl reproduce` under force: killed, starved, corrupted, alone or in company, it ends with the same records."""

import random
import signal
import sys
import time
from typing import Any

import pytest

from limiirl.experiments import Record
from limiirl.experiments.store import FILE
from tests.oracles.runs import Key, Run, command, counts, expected, fill, recorded, rows, start, worked, written

resource = pytest.importorskip("resource", reason="runs are killed as process groups and limited, which needs POSIX")

# Trials that are short, and many: whenever somebody is killed, some are under way and most are still to come.
STUDY, REPEATS = "margin", 12
MARGIN = ("reproduce", STUDY, "--no-report", "--json", "--repeats")


def wanted_of(repeats: int = REPEATS) -> dict[Key, dict[str, Any]]:
    """What an uninterrupted run comes to; one of fewer repeats comes to a part of it."""
    return {key: record for key, record in expected(STUDY, REPEATS).items() if key[1] < repeats}


def group(run: Run) -> None:
    """Kill a run and all that it has started, as the end of a machine would."""
    run.kill_group()


def parent(run: Run) -> None:
    """Kill the parent only: the workers see to their own end."""
    assert len(run.workers()) == 2
    run.kill_parent()


@pytest.mark.slow
def test_run_and_worker_killed_at_random_moments_it_ends_with_the_records_of_an_uninterrupted_run(tmp_path):
    dice = random.Random(5)
    folder, wanted = tmp_path / "run", wanted_of()
    before: dict[object, object] = {}
    for kill, trials in ((group, False), (parent, True), (group, True)):
        known = written(folder)
        with start(*MARGIN, REPEATS, "--out", folder, "--workers", "2") as run:
            if trials:
                # New records, and then a moment in the middle of the trials.
                run.until(lambda known=known: written(folder) - known)
                time.sleep(dice.uniform(0.0, 0.2))
            else:
                time.sleep(dice.uniform(0.0, 3.0))
            kill(run)
            assert run.process.returncode == -signal.SIGKILL
            run.must_vanish()
        if not trials and not rows(folder):
            continue
        found = recorded(folder)
        assert before.items() <= found.items(), "something that was recorded is lost"
        assert found.items() <= wanted.items(), "something was recorded that an uninterrupted run does not give"
        assert not trials or len(found) > len(before), "nothing was recorded"
        before = found
    assert len(before) < len(wanted), "the last kill came too late to test anything"

    # The last goes to the end, although one of its workers is killed on the way.
    known = written(folder)
    with start(*MARGIN, REPEATS, "--out", folder, "--workers", "2") as run:
        run.until(lambda: written(folder) - known)
        time.sleep(dice.uniform(0.0, 0.2))
        victim, *others = run.workers()
        victim.kill()
        run.until(lambda: set(run.workers()) - {victim, *others})  # trials were under way: others take them up
        done = run.finish()
        run.must_vanish()
    assert done.code == 0, done
    assert done.said == []
    assert counts(done) == (len(wanted), len(before), len(wanted) - len(before))
    assert recorded(folder) == wanted
    assert rows(folder) == sorted(wanted), "on the disk each trial is there once"


def test_an_interrupt_keeps_what_is_done_and_leaves_nobody_behind(tmp_path):
    folder = tmp_path / "run"
    with start(*MARGIN, REPEATS, "--out", folder, "--workers", "2") as run:
        run.until(lambda: written(folder))
        first = len(rows(folder))
        workers = run.workers()
        before = worked(workers)
        run.until(lambda: worked(workers) > before + 0.8)  # seconds: some trials, whatever else this machine does
        # A terminal sends it to the parent and to its workers alike.
        for process in run.family():
            process.send_signal(signal.SIGINT)
        done = run.finish()
        run.must_vanish()
    assert done.code == 130
    assert done.said == ["limiirl: interrupted. What was done is kept; the same command goes on from it."]
    found = recorded(folder)
    assert first < len(found) < len(wanted_of()), "what came after the first records was not written on the way out"
    assert found.items() <= wanted_of().items()


def test_two_runs_at_once_in_one_folder(tmp_path):
    folder, wanted = tmp_path / "run", wanted_of()
    arguments = (*MARGIN, REPEATS, "--out", folder, "--workers", "1")
    with start(*arguments) as one, start(*arguments) as other:
        ends = [one.finish(), other.finish()]
    for done in ends:
        assert done.code == 0, done
        assert done.said == []
        total, skipped, run = counts(done)
        assert total == skipped + run == len(wanted)
    assert sum(counts(done)[2] for done in ends) >= len(wanted)
    assert recorded(folder) == wanted


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux limits another process's files")
def test_a_disk_that_fills_midway_is_one_sentence_and_the_next_run_goes_on(tmp_path):
    folder, wanted = tmp_path / "run", wanted_of(4)
    arguments = (*MARGIN, 4, "--workers", "1", "--out", folder)
    with start(*arguments) as run:
        run.until(lambda: written(folder))
        # The system refuses every byte after the first 1024 of a file, from now on: the next write fails in its midst.
        resource.prlimit(run.process.pid, resource.RLIMIT_FSIZE, (1024, 1024))
        done = run.finish()
        run.must_vanish()
    assert (done.code, done.stdout) == (2, ""), done
    (sentence,) = done.said
    assert sentence.startswith(f"limiirl: {folder}: ")
    assert "nothing more can be written. What was recorded is safe" in sentence
    kept = recorded(folder)
    assert 1 <= len(kept) < len(wanted)
    assert kept.items() <= wanted.items()

    assert counts(command(*arguments)) == (len(wanted), len(kept), len(wanted) - len(kept))
    assert recorded(folder) == wanted
    assert rows(folder) == sorted(wanted)


def test_damaged_records_are_reported_and_computed_again(tmp_path):
    folder, wanted = tmp_path / "run", wanted_of(3)
    fill(folder, [Record(**given) for given in wanted.values()])
    content = bytearray((folder / FILE).read_bytes())
    damaged = [content.index(f'"seed": {seed}, '.encode()) for seed in (0, 1, 2)]
    for place in damaged[:2]:
        content[place + 8] ^= 1  # another seed: no error of the format
    (folder / FILE).write_bytes(content)

    with start(*MARGIN, 3, "--workers", "1", "--out", folder) as run:
        done = run.finish()
    assert counts(done) == (15, 13, 2)
    (line,) = done.said
    assert line.startswith(f"limiirl: warning: {folder / FILE} is damaged: 2 of its records")
    assert recorded(folder) == wanted
    assert rows(folder) == sorted(wanted)


def test_a_damaged_file_is_one_sentence_with_a_remedy_that_works(tmp_path):
    folder, wanted = tmp_path / "run", wanted_of(1)
    fill(folder, [Record(**given) for given in wanted.values()])
    content = (folder / FILE).read_bytes()
    (folder / FILE).write_bytes(b"x" * 100 + content[100:])
    arguments = (*MARGIN, 1, "--workers", "1", "--out", folder)
    (line,) = command(*arguments, code=2).said
    assert f"{folder / FILE} is damaged" in line
    assert "move it away" in line
    (folder / FILE).unlink()
    assert counts(command(*arguments)) == (5, 0, 5)
    assert recorded(folder) == wanted
