"""`limiirl reproduce` on a Dask cluster whose processes are killed: it ends with the same records."""

import random
import signal
import time
from pathlib import Path

import pytest

from tests.oracles.clusters import Cluster, cluster, kill_workers
from tests.oracles.runs import command, counts, expected, read_keys, read_records, rows, start

pytest.importorskip("distributed", reason="the extra 'cluster' is not installed")

STUDY, REPEATS = "margin", 24
MARGIN = ("reproduce", STUDY, "--repeats", REPEATS, "--no-report", "--json", "--executor", "dask")
pytestmark = pytest.mark.slow


def check(folder: Path) -> None:
    assert read_records(folder) == expected(STUDY, REPEATS)
    assert rows(folder) == sorted(expected(STUDY, REPEATS))


def test_workers_killed_at_random_moments_cost_time_only(tmp_path: Path, running: Cluster) -> None:
    folder, address = tmp_path / "run", running.address
    with start(*MARGIN, "--out", folder, "--scheduler", address) as run:
        run.until(lambda: read_keys(folder))  # some trials are done, and others under way
        with kill_workers(address, times=2, seed=0, within=0.1) as killed:
            done = run.finish()
    assert killed, "the run was over before a worker was killed"
    assert done.code == 0, done
    assert counts(done)[2] == len(expected(STUDY, REPEATS))
    check(folder)


def test_the_scheduler_killed_then_the_run_killed_it_resumes_to_the_same_records(tmp_path: Path) -> None:
    dice, folder, wanted = random.Random(1), tmp_path / "run", expected(STUDY, REPEATS)
    with cluster(tmp_path, workers=1) as first, start(*MARGIN, "--out", folder, "--scheduler", first.address) as run:
        run.until(lambda: read_keys(folder))
        time.sleep(dice.uniform(0.0, 0.1))
        first.scheduler.kill()
        done = run.finish()
    assert done.code == 2, done
    assert f"{first.address} was lost" in " ".join(done.stderr.split())
    before = read_records(folder)
    assert 0 < len(before) < len(wanted), "the scheduler went too early or too late to test anything"
    assert before.items() <= wanted.items()

    # Restart the scheduler at the same address, as a cluster manager would.
    with cluster(tmp_path, workers=1, port=first.port) as second:
        known = read_keys(folder)
        with start(*MARGIN, "--out", folder, "--scheduler", second.address) as run:
            run.until(lambda: read_keys(folder) - known)
            time.sleep(dice.uniform(0.0, 0.1))
            run.kill_group()
        assert run.process.returncode == -signal.SIGKILL
        between = read_records(folder)
        assert before.items() < between.items() <= wanted.items()
        done = command(*MARGIN, "--out", folder, "--scheduler", second.address)
    assert counts(done) == (len(wanted), len(between), len(wanted) - len(between))
    check(folder)
