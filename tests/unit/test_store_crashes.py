"""The store of results under force: killed writers, many writers, a full disk, a folder that cannot be written."""

import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from limiirl.experiments.records import Record
from limiirl.experiments.shards import pack
from limiirl.experiments.store import Store

PRELUDE = """
import itertools, os, signal, sys
from pathlib import Path
import pyarrow.parquet
from limiirl.experiments.records import Record
from limiirl.experiments.spec import Spec
from limiirl.experiments.store import Store

def batch(first, size=3):
    return [Record("ab", seed, nll=seed / 7, history=[seed / 3] * 50) for seed in range(first, first + size)]

def say(text):
    print(text, flush=True)
"""


def start(script, *arguments):
    command = [sys.executable, "-c", PRELUDE + script, *map(str, arguments)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(script, *arguments):
    """Run a script to its end, which must be good, and return what it printed."""
    with start(script, *arguments) as process:
        out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    return out


def read(folder):
    """All records of a store that must be whole; a warning would be an error."""
    records = Store(folder).read()
    assert not (Path(folder) / "quarantine").exists()
    for record in records:
        assert record == Record("ab", record.seed, nll=record.seed / 7, history=[record.seed / 3] * 50)
    return records


WRITE_FOREVER = """
folder, first = sys.argv[1], int(sys.argv[2])
say("ready")
store = Store(folder)
for step in itertools.count():
    store.append(batch(first + 3 * step))
    say(first + 3 * step)
    if step % 4 == 3:
        store.compact()
"""


def test_killed_at_any_moment_nothing_that_was_promised_is_lost(tmp_path):
    dice = random.Random(0)
    promised = set()
    for first in range(0, 12 * 10_000, 10_000):
        with start(WRITE_FOREVER, tmp_path / "run", first) as process:
            assert process.stdout.readline() == "ready\n"
            # Some batches, and then a moment in the middle of the next.
            lines = [process.stdout.readline() for _ in range(dice.randrange(6))]
            time.sleep(dice.uniform(0.0, 0.03))
            process.kill()
            lines += process.stdout.read().splitlines(keepends=True)
        assert process.returncode == -signal.SIGKILL
        promised |= {int(line) for line in lines if line.endswith("\n")}
        seeds = {record.seed for record in read(tmp_path / "run")}
        kept = {seed for seed in seeds if seed % 10_000 % 3 == 0}
        assert seeds == {seed + part for seed in kept for part in range(3)}, "half of a batch was recorded"
        assert promised <= kept
        # At most the last batch of each writer was recorded without its having been able to say so.
        assert len(kept - promised) <= first // 10_000 + 1
    assert len(promised) >= 12


KILLED_AT = """
folder, where, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
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
relevant = (lambda path, **options: path.suffix == ".parquet") if name == "unlink" else (lambda *arguments: True)
owner = os if name == "fsync" else Path
setattr(owner, name, dying(getattr(owner, name), when, relevant))
store.append(batch(12)) if action == "append" else store.compact()
"""


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
    with start(KILLED_AT, tmp_path, where, count) as process:
        _, err = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL, err
    assert [record.seed for record in read(tmp_path)] == list(range(expected))
    # The next run goes on as if nothing had happened.
    store = Store(tmp_path)
    store.compact()
    assert len(list((tmp_path / "records").glob("*.parquet"))) == 1
    assert [record.seed for record in read(tmp_path)] == list(range(expected))


WRITE_SHARED = """
folder, number = sys.argv[1], int(sys.argv[2])
say("ready")
sys.stdin.readline()
store = Store(folder)
for step in range(12):
    # Half of the trials are also another writer's.
    store.append(batch(30 * step + 10 * number, size=20))
    if step % 4 == number:
        store.compact()
say(len(store.keys()))
"""


def test_several_writers_at_once_lose_nothing_and_double_nothing(tmp_path):
    writers = [start(WRITE_SHARED, tmp_path / "run", number) for number in range(3)]
    for writer in writers:
        assert writer.stdout.readline() == "ready\n"
    for writer in writers:
        writer.stdin.write("go\n")
        writer.stdin.flush()
    for writer in writers:
        with writer:
            _, err = writer.communicate(timeout=60)
        assert writer.returncode == 0, err
    assert [record.seed for record in read(tmp_path / "run")] == list(range(30 * 11 + 40))


CREATE_MANY = """
say("ready")
sys.stdin.readline()
for number in range(40):
    store = Store(Path(sys.argv[1]) / str(number))
    store.append(batch(int(sys.argv[2]), size=1))
"""


def test_a_folder_may_be_created_by_several_at_once(tmp_path):
    makers = [start(CREATE_MANY, tmp_path, seed) for seed in range(2)]
    for maker in makers:
        assert maker.stdout.readline() == "ready\n"
    for maker in makers:
        maker.stdin.write("go\n")
        maker.stdin.flush()
    for maker in makers:
        with maker:
            _, err = maker.communicate(timeout=120)
        assert maker.returncode == 0, err
    for number in range(40):
        assert [record.seed for record in read(tmp_path / str(number))] == [0, 1]


TOO_LARGE = """
import resource
store = Store(sys.argv[1])
store.append(batch(0))
store.append(batch(3))
resource.setrlimit(resource.RLIMIT_FSIZE, (1024, resource.RLIM_INFINITY))
for attempt in (lambda: store.append(batch(6)), store.compact):
    try:
        attempt()
    except OSError as error:
        say(f"{error.filename}: {error.strerror}.")
assert len(store.keys()) == 6
say(sum(path.is_file() for path in Path(sys.argv[1]).rglob("*")))
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
store.append(batch(6))
"""


def test_a_write_that_fails_half_way_is_one_clear_error_and_leaves_the_store_intact(tmp_path):
    # The system refuses every byte after the first 1024 of a file: the write fails in its midst, as on a full disk.
    said = finish(TOO_LARGE, tmp_path).splitlines()
    sentence = f"{tmp_path}: File too large, so that nothing more can be written there. What was recorded is safe: "
    assert [line.startswith(sentence) for line in said] == [True, True, False]
    assert said[2] == "3", "the failed writes left something behind"  # the header and two shards
    assert [record.seed for record in read(tmp_path)] == list(range(9))


FILL = """
store = Store(sys.argv[1])
try:
    for first in itertools.count(0, 3):
        store.append(batch(first))
        done = first + 3
except OSError as error:
    say(error.strerror)
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
    script.write_text(PRELUDE + FILL)
    command = [*mount, f"{disk} '{sys.executable}' '{script}' '{tmp_path}'"]
    ran = subprocess.run(command, check=False, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith("No space left on device, so that nothing more can be written there.")


UNWRITABLE = """
import warnings
if os.geteuid() == 0:
    os.seteuid(65534)  # root may write anywhere; nobody may not
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    store = Store(sys.argv[1])
    assert len(store.read()) == 3
(warning,) = told
say(warning.message)
below = sys.argv[1] + "/records/new"
for attempt in (lambda: store.append(batch(3)), lambda: store.add_specs([Spec()]), lambda: Store(below)):
    try:
        attempt()
    except PermissionError as error:
        say(f"{error.filename}: {error.strerror}.")
"""


def test_a_folder_that_cannot_be_written_can_be_read():
    # Not pytest's folder, which only its owner may enter.
    folder = Path(tempfile.mkdtemp())
    try:
        store = Store(folder)
        store.append([Record("ab", seed) for seed in range(3)])
        (folder / "records" / ("0" * 32 + ".parquet")).write_bytes(pack([Record("cd", 0)]))
        for path in (folder, folder / "records"):
            path.chmod(0o555)
        said = finish(UNWRITABLE, folder).splitlines()
        assert "is left out, and stays where it is (Permission denied)" in said[0]
        assert [line.startswith(f"{folder}: Permission denied, so that") for line in said[1:3]] == [True, True]
        assert said[3] == f"{folder}/records/new: Permission denied."
        assert len(list((folder / "records").iterdir())) == 2
    finally:
        for path in (folder, folder / "records"):
            path.chmod(0o755)
        shutil.rmtree(folder)
