"""The store of results under force: killed writers, many writers, a full disk, a folder that cannot be written."""

import itertools
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from contextlib import ExitStack
from pathlib import Path

import pytest

from limiirl.experiments.spec import Spec
from limiirl.experiments.store import Store, pack
from limiirl.experiments.trial import Record
from tests.oracles.forks import fork


def batch(first, size=3):
    return [Record("ab", seed, nll=seed / 7, history=[seed / 3] * 50) for seed in range(first, first + size)]


def read(folder):
    """All records of a store that must be whole; a warning would be an error."""
    records = Store(folder).read()
    assert not (Path(folder) / "quarantine").exists()
    for record in records:
        assert record == Record("ab", record.seed, nll=record.seed / 7, history=[record.seed / 3] * 50)
    return records


def write_forever(pipe, folder, first):
    pipe.send("ready")
    store = Store(folder)
    for step in itertools.count():
        store.append(batch(first + 3 * step))
        pipe.send(first + 3 * step)
        if step % 4 == 3:
            store.compact()


def test_killed_at_any_moment_nothing_that_was_promised_is_lost(tmp_path):
    dice = random.Random(0)
    promised = set()
    for first in range(0, 12 * 10_000, 10_000):
        with fork(write_forever, tmp_path / "run", first) as writer:
            assert writer.hear() == "ready"
            # Some batches, and then a moment in the middle of the next.
            said = [writer.hear() for _ in range(dice.randrange(6))]
            time.sleep(dice.uniform(0.0, 0.03))
            assert writer.kill() == -signal.SIGKILL
            said += writer.rest()
        promised |= set(said)
        seeds = {record.seed for record in read(tmp_path / "run")}
        kept = {seed for seed in seeds if seed % 10_000 % 3 == 0}
        assert seeds == {seed + part for seed in kept for part in range(3)}, "half of a batch was recorded"
        assert promised <= kept
        # At most the last batch of each writer was recorded without its having been able to say so.
        assert len(kept - promised) <= first // 10_000 + 1
    assert len(promised) >= 12


def die_at(pipe, folder, where, count):
    del pipe
    store = Store(folder)
    for step in range(4):
        store.append(batch(3 * step))

    def dying(real, when, relevant):
        calls = itertools.count(1)

        def call(*arguments, **options):
            last = relevant(*arguments) and next(calls) == count
            if last and when == "before":
                os.kill(os.getpid(), signal.SIGKILL)
            real(*arguments, **options)
            if last:
                os.kill(os.getpid(), signal.SIGKILL)

        return call

    name, when, action = where.split()
    relevant = (lambda path, **_: path.suffix == ".parquet") if name == "unlink" else (lambda *_: True)
    owner = os if name == "fsync" else Path
    setattr(owner, name, dying(getattr(owner, name), when, relevant))
    if action == "append":
        store.append(batch(12))
    else:
        store.compact()


@pytest.mark.parametrize(
    ("where", "count", "expected"),
    [
        ("write_bytes after append", 1, 12),
        ("fsync before append", 1, 12),
        ("replace before append", 1, 12),
        ("replace after append", 1, 15),
        ("replace before compact", 1, 12),
        ("replace after compact", 1, 12),
        ("unlink before compact", 1, 12),
        ("unlink after compact", 1, 12),
        ("unlink after compact", 3, 12),
    ],
)
def test_killed_at_each_step_of_a_write_all_or_nothing_of_it_is_there(tmp_path, where, count, expected):
    with fork(die_at, tmp_path, where, count) as writer:
        said = writer.rest()
        assert writer.process.exitcode == -signal.SIGKILL, said
    assert [record.seed for record in read(tmp_path)] == list(range(expected))
    # The next run goes on as if nothing had happened.
    store = Store(tmp_path)
    store.compact()
    assert len(list((tmp_path / "records").glob("*.parquet"))) == 1
    assert [record.seed for record in read(tmp_path)] == list(range(expected))


def write_shared(pipe, folder, number):
    pipe.send("ready")
    pipe.recv()
    store = Store(folder)
    for step in range(12):
        # Half of the trials are also another writer's.
        store.append(batch(30 * step + 10 * number, size=20))
        if step % 4 == number:
            store.compact()


def at_once(job, folder, writers):
    """Let several writers do something at the same time."""
    with ExitStack() as stack:
        started = [stack.enter_context(fork(job, folder, number)) for number in range(writers)]
        for writer in started:
            assert writer.hear() == "ready"
        for writer in started:
            writer.tell("go")
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


def write_too_much(pipe, folder):
    import resource

    store = Store(folder)
    store.append(batch(0))
    store.append(batch(3))
    resource.setrlimit(resource.RLIMIT_FSIZE, (1024, resource.RLIM_INFINITY))
    for attempt in (lambda: store.append(batch(6)), store.compact):
        try:
            attempt()
        except OSError as error:
            pipe.send(f"{error.filename}: {error.strerror}.")
    assert len(store.keys()) == 6
    pipe.send(str(sum(path.is_file() for path in folder.rglob("*"))))
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    store.append(batch(6))


def test_a_write_that_fails_half_way_is_one_clear_error_and_leaves_the_store_intact(tmp_path):
    # The system refuses every byte after the first 1024 of a file: the write fails in its midst, as on a full disk.
    with fork(write_too_much, tmp_path) as writer:
        said = writer.finish()
    sentence = f"{tmp_path}: File too large, so that nothing more can be written there. What was recorded is safe: "
    assert [line.startswith(sentence) for line in said] == [True, True, False]
    assert said[2] == "3", "the failed writes left something behind"  # the header and two shards
    assert [record.seed for record in read(tmp_path)] == list(range(9))


FILL = """
import itertools, sys
from limiirl.experiments.store import Store
from tests.integration.test_store_crashes import batch

store = Store(sys.argv[1])
try:
    for first in itertools.count(0, 3):
        store.append(batch(first))
        done = first + 3
except OSError as error:
    sys.stdout.write(error.strerror)
assert [record.seed for record in Store(sys.argv[1], create=False).read()] == list(range(done))
"""


def test_a_full_disk_is_one_clear_error_and_leaves_the_store_intact(tmp_path):
    mount = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]
    disk = f"mount -t tmpfs -o size=100k none '{tmp_path}' && "
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
    assert ran.stdout.startswith("No space left on device, so that nothing more can be written there.")


def write_where_forbidden(pipe, folder):
    if os.geteuid() == 0:
        os.seteuid(65534)  # root may write anywhere; nobody may not
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        store = Store(folder)
        assert len(store.read()) == 3
    (warning,) = told
    pipe.send(str(warning.message))
    below = folder / "records" / "new"
    for attempt in (lambda: store.append(batch(3)), lambda: store.add_specs([Spec()]), lambda: Store(below)):
        try:
            attempt()
        except PermissionError as error:
            pipe.send(f"{error.filename}: {error.strerror}.")


def test_a_folder_that_cannot_be_written_can_be_read():
    # Not pytest's folder, which only its owner may enter.
    folder = Path(tempfile.mkdtemp())
    try:
        store = Store(folder)
        store.append([Record("ab", seed) for seed in range(3)])
        (folder / "records" / ("0" * 32 + ".parquet")).write_bytes(pack([Record("cd", 0)]))
        for path in (folder, folder / "records"):
            path.chmod(0o555)
        with fork(write_where_forbidden, folder) as writer:
            said = writer.finish()
        assert "is left out, and stays where it is (Permission denied)" in said[0]
        assert [line.startswith(f"{folder}: Permission denied, so that") for line in said[1:3]] == [True, True]
        assert said[3] == f"{folder}/records/new: Permission denied."
        assert len(list((folder / "records").iterdir())) == 2
    finally:
        for path in (folder, folder / "records"):
            path.chmod(0o755)
        shutil.rmtree(folder)
