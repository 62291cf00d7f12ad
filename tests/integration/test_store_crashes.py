"""The store of results under force: killed writers, many writers, a full disk, a folder that cannot be written."""

import itertools
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
import warnings
from contextlib import ExitStack
from pathlib import Path

import pytest

from limiirl.experiments import Record, Spec, Store
from limiirl.experiments.store import FILE
from tests.oracles.forks import fork


def batch(first, size=3):
    return [Record("ab", seed, nll=seed / 7, history=[seed / 3] * 50) for seed in range(first, first + size)]


def read(folder):
    """All records of a store that must be whole; a warning would be an error."""
    records = Store(folder).read()
    for record in records:
        assert record == Record("ab", record.seed, nll=record.seed / 7, history=[record.seed / 3] * 50)
    return records


def write_forever(pipe, folder, first):
    pipe.send("ready")
    store = Store(folder)
    for step in itertools.count():
        store.append(batch(first + 3 * step))
        pipe.send(first + 3 * step)


def test_killed_at_any_moment_nothing_that_was_promised_is_lost(tmp_path):
    dice = random.Random(0)
    promised = set()
    for first in range(0, 12 * 10_000, 10_000):
        with fork(write_forever, tmp_path / "run", first) as writer:
            assert writer.receive() == "ready"
            # Some batches, and then a moment in the middle of the next.
            messages = [writer.receive() for _ in range(dice.randrange(6))]
            time.sleep(dice.uniform(0.0, 0.03))
            assert writer.kill() == -signal.SIGKILL
            messages += writer.rest()
        promised |= set(messages)
        seeds = {record.seed for record in read(tmp_path / "run")}
        kept = {seed for seed in seeds if seed % 10_000 % 3 == 0}
        assert seeds == {seed + part for seed in kept for part in range(3)}, "half of a batch was recorded"
        assert promised <= kept
        # At most the last batch of each writer was recorded before the writer could report it.
        assert len(kept - promised) <= first // 10_000 + 1
    assert len(promised) >= 12


def die_at(pipe, folder, count):
    """Be killed at the so-manieth step of SQLite's program that appends a batch."""
    store = Store(folder)
    for step in range(4):
        store.append(batch(3 * step))
    real, steps = sqlite3.connect, itertools.count(1)

    def die():
        if next(steps) == count:
            os.kill(os.getpid(), signal.SIGKILL)

    def connect(*arguments, **options):
        database = real(*arguments, **options)
        database.set_progress_handler(die, 1)
        return database

    sqlite3.connect = connect
    store.append(batch(12))
    pipe.send("done")


@pytest.mark.parametrize("count", [*range(1, 40, 2), *range(40, 240, 10)])
def test_killed_at_each_step_of_a_write_all_or_nothing_of_it_is_there(tmp_path, count):
    with fork(die_at, tmp_path, count) as writer:
        messages = writer.rest()
        assert messages == ["done"] or writer.process.exitcode == -signal.SIGKILL, messages
    seeds = [record.seed for record in read(tmp_path)]
    assert seeds in (list(range(12)), list(range(15)))
    assert messages != ["done"] or len(seeds) == 15
    # The next run continues normally.
    Store(tmp_path).append(batch(15))
    assert [record.seed for record in read(tmp_path)] == [*seeds, 15, 16, 17]
    assert [path.name for path in tmp_path.iterdir()] == [FILE]


def write_until_stopped_in_commit(pipe, folder):
    """Write a batch, and stop when the file is half written: SQLite syncs it once per commit, after its journal."""
    store = Store(folder)
    store.append(batch(0, size=300))
    pipe.send("ready")
    pipe.recv()
    for first in itertools.count(300, 300):
        store.append(batch(first, size=300))
        pipe.send(first)


def test_killed_in_the_midst_of_large_commits_no_batch_is_cut(tmp_path):
    dice = random.Random(1)
    for attempt in range(10):
        folder = tmp_path / str(attempt)
        with fork(write_until_stopped_in_commit, folder) as writer:
            assert writer.receive() == "ready"
            writer.send("go")
            time.sleep(dice.uniform(0.0, 0.06))
            writer.kill()
            promised = [messages for messages in writer.rest() if isinstance(messages, int)]
        seeds = [record.seed for record in read(folder)]
        assert len(seeds) % 300 == 0
        assert seeds == list(range(len(seeds)))
        assert len(seeds) >= 300 * (1 + len(promised))


def write_shared(pipe, folder, number):
    pipe.send("ready")
    pipe.recv()
    store = Store(folder)
    for step in range(12):
        # Half of the trials are also another writer's.
        store.append(batch(30 * step + 10 * number, size=20))


def at_once(job, folder, writers):
    """Let several writers do something at the same time."""
    with ExitStack() as stack:
        started = [stack.enter_context(fork(job, folder, number)) for number in range(writers)]
        for writer in started:
            assert writer.receive() == "ready"
        for writer in started:
            writer.send("go")
        for writer in started:
            assert writer.finish() == []


@pytest.mark.smoke
def test_several_writers_at_once_lose_nothing_and_double_nothing(tmp_path):
    at_once(write_shared, tmp_path / "run", writers=3)
    assert [record.seed for record in read(tmp_path / "run")] == list(range(30 * 11 + 40))


def create_many(pipe, folder, seed):
    pipe.send("ready")
    pipe.recv()
    for number in range(40):
        Store(folder / str(number)).append(batch(seed, size=1))


def test_a_folder_may_be_created_by_several_at_once(tmp_path):
    at_once(create_many, tmp_path, writers=2)
    for number in range(40):
        assert [record.seed for record in read(tmp_path / str(number))] == [0, 1]


def write_too_much(pipe, folder, most):
    import resource

    store = Store(folder)
    store.append(batch(0))
    store.append(batch(3))
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, resource.RLIM_INFINITY))
    for attempt in (lambda: store.append(batch(6, size=300)), lambda: store.note(["x" * 100_000])):
        try:
            attempt()
        except OSError as error:
            pipe.send(f"{error.filename}: {error.strerror}.")
    assert len(store.keys()) == 6
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    store.append(batch(6))


@pytest.mark.parametrize("most", [1024, 50_000], ids=["journal", "results"])
def test_a_write_that_fails_half_way_is_one_clear_error_and_leaves_the_store_intact(tmp_path, most):
    # The system refuses every byte after the first so many of a file: the write fails in its midst, as on a full disk.
    with fork(write_too_much, tmp_path, most) as writer:
        messages = writer.finish()
    assert [line.startswith(f"{tmp_path}: ") for line in messages] == [True, True]
    assert all("recorded trials are not affected" in line for line in messages)
    assert [path.name for path in tmp_path.iterdir()] == [FILE]
    assert [record.seed for record in read(tmp_path)] == list(range(9))


FILL = """
import itertools, sys
from limiirl.experiments import Store
from tests.integration.test_store_crashes import batch

store = Store(sys.argv[1])
try:
    for first in itertools.count(0, 3):
        store.append(batch(first))
        done = first + 3
except OSError as error:
    sys.stdout.write(f"{done} {error.strerror}")
assert done > 0
assert [record.seed for record in Store(sys.argv[1], create=False).read()] == list(range(done))
"""


def test_a_full_disk_is_one_clear_error_and_leaves_the_store_intact(tmp_path):
    mount = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]
    disk = f"mount -t tmpfs -o size=200k none '{tmp_path}' && "
    try:
        subprocess.run([*mount, disk + "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no permission to mount a small file system")
    script = tmp_path.parent / f"{tmp_path.name}.py"
    script.write_text(FILL)
    command = [*mount, f"{disk} '{sys.executable}' '{script}' '{tmp_path}'"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    ran = subprocess.run(command, check=False, capture_output=True, text=True, env=environment)
    assert ran.returncode == 0, ran.stderr
    assert "No space left on device; recorded trials are not affected" in ran.stdout


def write_where_forbidden(pipe, folder):
    if os.geteuid() == 0:
        os.seteuid(65534)  # root may write anywhere; uid 65534 may not
    store = Store(folder)
    assert len(store.read()) == 3
    for attempt in (lambda: store.append(batch(3)), lambda: store.add_specs([Spec()]), lambda: Store(folder / "new")):
        try:
            attempt()
        except PermissionError as error:
            pipe.send(f"{error.filename}: {error.strerror}.")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert len(Store(folder).read()) == 3
    pipe.send(len(caught))


@pytest.mark.parametrize("damaged", [False, True])
def test_a_folder_that_cannot_be_written_can_be_read(damaged):
    # Not pytest's folder, which only its owner may enter.
    folder = Path(tempfile.mkdtemp())
    try:
        store = Store(folder)
        store.append([Record("ab", seed) for seed in range(3)])
        if damaged:
            store.append([Record("cd", 0)])
            (folder / FILE).write_bytes((folder / FILE).read_bytes().replace(b'"spec": "cd"', b'"spec": "ce"'))
        before = (folder / FILE).read_bytes()
        (folder / FILE).chmod(0o444)
        folder.chmod(0o555)
        with fork(write_where_forbidden, folder) as writer:
            messages = writer.finish()
        assert [line.startswith(f"{folder}: Permission denied; recorded trials") for line in messages[:2]] == [
            True,
            True,
        ]
        assert messages[2] == f"{folder}/new: Permission denied."
        assert messages[3] == (1 if damaged else 0)
        assert (folder / FILE).read_bytes() == before
    finally:
        folder.chmod(0o755)
        shutil.rmtree(folder)
