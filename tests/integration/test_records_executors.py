"""The same records, to the last bit, whatever the executor and the number of workers: `limiirl reproduce` on each."""

import pytest

from limiirl.experiments.spec import METHODS
from tests.oracles.runs import command, counts, expected, read_records, rows

# Every method once, in one world.
STUDY, REPEATS = "boxplots", 1
TRIALS = len(METHODS)


def run(folder, *arguments):
    """Run the study on an executor, and return how many trials there were, were skipped and were run."""
    done = command("reproduce", STUDY, "--repeats", REPEATS, "--no-report", "--json", "--out", folder, *arguments)
    assert done.messages == []
    return counts(done)


def check(folder):
    """Compare what was recorded with a plain loop in this process."""
    assert read_records(folder) == expected(STUDY, REPEATS)
    assert rows(folder) == sorted(expected(STUDY, REPEATS))


@pytest.mark.parametrize("workers", [1, 2])
def test_local_processes(tmp_path, workers):
    assert run(tmp_path, "--executor", "local", "--workers", workers) == (TRIALS, 0, TRIALS)
    check(tmp_path)


def test_a_dask_cluster(tmp_path, running):
    assert run(tmp_path, "--executor", "dask", "--scheduler", running.address) == (TRIALS, 0, TRIALS)
    check(tmp_path)
    # What one executor has recorded, another does not do again.
    assert run(tmp_path, "--executor", "local", "--workers", 1) == (TRIALS, TRIALS, 0)
