"""`write_features`: resumption, concurrent writers, and validation."""

import gc
import os
import time
import weakref

import numpy as np
import pytest

from limiirl import MDP, Demonstrations
from limiirl._io import atomic_write
from limiirl.errors import InvalidDemos, InvalidFile, LimiirlWarning, MissingFile
from limiirl.streams import FeatureStore, FunctionSource, write_features
from limiirl.streams.store import NewerFormat
from limiirl.streams.write import claim
from tests.helpers import raises
from tests.oracles.forks import fork
from tests.oracles.mixture import crossings, walks
from tests.oracles.stores import files, flip

pytestmark = pytest.mark.filterwarnings("ignore::limiirl.errors.ConvergenceWarning")


def test_a_benchmark_folder_with_other_data_is_rejected(tmp_path):
    from benchmarks.streaming import write_store

    assert write_store(40, tmp_path).n == 40
    assert write_store(40, tmp_path).n == 40
    with raises(InvalidFile, parameter="folder"):
        write_store(50, tmp_path)


def test_only_the_corrupted_shard_is_rebuilt_with_a_warning(tmp_path, named_shards):
    write_features(crossings(), named_shards, tmp_path)
    flip(tmp_path / "shard-00001.features.npy", -1)
    before = {path.name: path.stat().st_mtime_ns for path in tmp_path.glob("shard-*")}
    with pytest.warns(LimiirlWarning, match=r"shard-00001.json.*rebuilt") as caught:
        write_features(crossings(), named_shards, tmp_path)
    assert len(caught) == 1
    changed = {path.name for path in tmp_path.glob("shard-*") if before[path.name] != path.stat().st_mtime_ns}
    assert {name.partition(".")[0] for name in changed} == {"shard-00001"}


def test_a_full_disk_raises_and_leaves_no_truncated_shard(tmp_path, named_shards):
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    # 200 rows of three features: np.save would leave the last 900 bytes to a buffer and ignore its error.
    resource.setrlimit(resource.RLIMIT_FSIZE, (128 + 200 * 24 - 8, before[1]))
    try:
        with pytest.raises(OSError, match="shard-00001.features.npy"):
            write_features(crossings(), [shard.replace(ids=None) for shard in named_shards], tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not (tmp_path / "shard-00001.json").exists()


def stamps(folder):
    return {path.name: (path.stat().st_ino, path.stat().st_mtime_ns) for path in folder.iterdir()}


def test_a_resumed_call_writes_only_missing_shards(tmp_path, walked):
    folder, out = files(tmp_path / "in", walked, 100, 200), tmp_path / "out"
    whole = write_features(crossings(), folder, tmp_path / "whole")

    def until_second():
        yield walked[:100]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_features(crossings(), until_second(), tmp_path / "stopped")
    with raises(InvalidFile, parameter="folder", value=str(tmp_path / "stopped")):
        FeatureStore.open(tmp_path / "stopped")
    write_features(crossings(), folder, out)
    (out / "shard-00001.json").unlink()
    before = stamps(out)
    again = write_features(crossings(), folder, out)
    changed = {name for name, stamp in stamps(out).items() if before.get(name) != stamp}
    assert changed == {"shard-00001.json", "shard-00001.features.npy", "shard-00001.base.npy", "store.json"}
    assert [shard.fingerprint for shard in again.shards] == [shard.fingerprint for shard in whole.shards]


def abandon(path):
    """Write half a file, two hours old."""
    path.write_text("{")
    then = time.time() - 7200.0
    os.utime(path, (then, then))


def test_files_of_a_killed_writer_are_removed(tmp_path, walked):
    abandon(tmp_path / ".store.json.x1.tmp")
    store = write_features(crossings(), [walked], tmp_path)
    (tmp_path / "mdp.npz").unlink()  # killed just after the header
    (tmp_path / "shard-00000.json").unlink()
    abandon(tmp_path / ".shard-00000.features.npy.x2.tmp")
    (tmp_path / "shard-00000.base.npy").write_bytes(b"of another time")
    assert write_features(crossings(), [walked], tmp_path) == store
    assert store.mdp() == crossings()
    assert [path.name for path in tmp_path.iterdir() if path.name.endswith(".tmp")] == []


def test_shards_are_released_one_by_one(tmp_path):
    alive, most = weakref.WeakSet(), []

    def shard(i):
        demos, _ = walks(50, seed=i)
        most.append(len(alive))
        alive.add(demos.steps(crossings_once))
        return demos

    crossings_once = crossings()
    gc.disable()  # otherwise it could hide a leak
    try:
        write_features(crossings_once, FunctionSource(shard, 6), tmp_path)
    finally:
        gc.enable()
    assert max(most) <= 1


def test_progress_counts_shards(tmp_path, walked):
    seen = []
    for number, source in enumerate(([walked, walked], iter([walked, walked]))):
        write_features(crossings(), source, tmp_path / str(number), progress=lambda *report: seen.append(report))
    assert [report[:2] for report in seen] == [(0, 2), (1, 2), (2, 2), (0, None), (1, None), (2, 2)]
    assert [report[2] for report in seen[:3]] == ["shard 0", "shard 1", ""]


def test_a_shard_of_a_newer_version_is_not_overwritten(tmp_path, walked):
    write_features(crossings(), [walked], tmp_path)
    path = tmp_path / "shard-00000.json"
    path.write_text(path.read_text().replace('"version": 1', '"version": 2'))
    before = path.read_bytes()
    with raises(NewerFormat, parameter="folder", value=str(path)):
        write_features(crossings(), [walked], tmp_path)
    assert path.read_bytes() == before


def test_changed_data_are_rejected(tmp_path, walked):
    folder, out = files(tmp_path / "in", walked, 100), tmp_path / "out"
    write_features(crossings(), folder, out)
    walked[100:299].to_parquet(folder / "walks-1.parquet")
    with raises(InvalidFile, parameter="folder", value=str(out / "shard-00001.json")):
        write_features(crossings(), folder, out)
    (folder / "walks-1.parquet").rename(folder / "walks-9.parquet")
    with raises(InvalidFile, parameter="folder", value=str(out / "shard-00001.json")) as caught:
        write_features(crossings(), folder, out)
    assert "not from walks-9.parquet" in str(caught.value)
    (folder / "walks-9.parquet").unlink()
    with raises(InvalidFile, parameter="folder", value=str(out / "shard-00001.json")):
        write_features(crossings(), folder, out)


def test_changed_demonstrations_in_memory_are_rejected(tmp_path, walked):
    write_features(crossings(), [walked], tmp_path)
    with raises(InvalidFile, parameter="folder", value=str(tmp_path / "shard-00000.json")):
        write_features(crossings(), [walked[::-1]], tmp_path)


def test_a_folder_of_another_store_or_kind_is_rejected(tmp_path, walked):
    write_features(crossings(), [walked], tmp_path / "out")
    with raises(InvalidFile, parameter="folder", value=str(tmp_path / "out")):
        write_features(crossings().replace(gamma=0.5), [walked], tmp_path / "out")
    with raises(InvalidFile, parameter="folder", value=str(tmp_path / "out")):
        write_features(crossings(), [walked.replace(groups=np.arange(300))], tmp_path / "out", by_group=True)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("dear")
    with raises(InvalidFile, parameter="folder", value=str(tmp_path / "mine")):
        write_features(crossings(), [walked], tmp_path / "mine")


def test_unrecorded_actions_with_features_are_rejected(tmp_path):
    double = {"src": [0, 0], "dst": [1, 1], "action": [0, 1], "p0": [1, 0]}
    demos = Demonstrations.from_lists([[0, 1]])
    mdp = MDP.from_edges(**double, edge_features=[[1.0], [2.0]])
    with pytest.raises(InvalidDemos, match="shard 0: demonstration 0, step 0"):
        write_features(mdp, [demos], tmp_path / "a")
    alike = MDP.from_edges(**double, edge_features=[[2.0], [2.0]])
    store = write_features(alike, [demos], tmp_path / "b")
    assert store.take(np.arange(1)).features.tolist() == [[2.0]]


def test_a_group_must_lie_within_one_shard(tmp_path, walked):
    named = walked.replace(groups=[f"g{i // 10}" for i in range(300)])
    store = write_features(crossings(), [named[:100], named[100:]], tmp_path / "a", by_group=True)
    assert store.n == 30
    assert store.shards[1].names()[0] == "g10"
    with raises(InvalidDemos, parameter="source", value="g9"):
        write_features(crossings(), [named[:95], named[95:]], tmp_path / "b", by_group=True)
    with raises(InvalidDemos, parameter="by_group"):
        write_features(crossings(), [walked], tmp_path / "c", by_group=True)
    with raises(InvalidFile, parameter="folder", value=str(tmp_path / "b")):
        FeatureStore.open(tmp_path / "b")


def test_a_missing_shard_is_reported_and_rebuilt(tmp_path, walked):
    write_features(crossings(), [walked[:100], walked[100:]], tmp_path)
    (tmp_path / "shard-00001.json").unlink()
    with raises(InvalidFile, parameter="folder", value=str(tmp_path / "shard-00001.json")):
        FeatureStore.open(tmp_path)
    assert write_features(crossings(), [walked[:100], walked[100:]], tmp_path).n == len(walked)


def test_a_function_source_of_another_version_is_rejected(tmp_path, walked):
    write_features(crossings(), FunctionSource(lambda i: walked, 1, version="monday"), tmp_path)
    assert write_features(crossings(), FunctionSource(lambda i: walked, 1, version="monday"), tmp_path).n == len(walked)
    with raises(InvalidFile, parameter="folder", value=str(tmp_path / "shard-00000.json")):
        write_features(crossings(), FunctionSource(lambda i: walked, 1, version="tuesday"), tmp_path)


def test_a_file_of_a_concurrent_writer_is_kept(tmp_path, walked):
    store = write_features(crossings(), [walked], tmp_path)
    content = (tmp_path / "shard-00000.features.npy").read_bytes()
    with atomic_write(tmp_path / "shard-00000.features.npy") as scratch:
        scratch.write_bytes(content)
        assert write_features(crossings(), [walked], tmp_path) == store
    FeatureStore.open(tmp_path).verify()


def write_many(pipe, folder):
    demos, _ = walks(400, seed=1)
    pipe.send("ready")
    pipe.recv()
    store = write_features(crossings(), [demos[20 * i : 20 * (i + 1)] for i in range(20)], folder)
    store.verify()
    pipe.send(store.fingerprint)


@pytest.mark.slow
def test_concurrent_writers_produce_the_same_store(tmp_path):
    for turn in range(3):
        with fork(write_many, tmp_path / str(turn)) as one, fork(write_many, tmp_path / str(turn)) as other:
            assert [one.receive(), other.receive()] == ["ready"] * 2
            one.send("go")
            time.sleep(0.02 * turn)
            other.send("go")
            assert one.finish() == other.finish()


def test_an_interleaved_writer_changes_nothing(tmp_path, walked):
    shards = [walked[:100], walked[100:200], walked[200:]]

    def write_meanwhile(i):
        if i == 1:
            write_features(crossings(), FunctionSource(lambda j: shards[j], 3), tmp_path / "both")
        return shards[i]

    store = write_features(crossings(), FunctionSource(write_meanwhile, 3), tmp_path / "both")
    alone = write_features(crossings(), FunctionSource(lambda j: shards[j], 3), tmp_path / "alone")
    assert store.fingerprint == alone.fingerprint


def with_groups(walked):
    return walked.replace(groups=np.arange(300) // 10)


def test_a_missing_source_creates_no_folder(tmp_path, walked):
    with raises(MissingFile, parameter="source", value=str(tmp_path / "nowhere")):
        write_features(crossings(), tmp_path / "nowhere", tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert write_features(crossings(), [with_groups(walked)], tmp_path / "out", by_group=True).n == 30


def test_a_store_without_shards_may_be_redefined(tmp_path, walked):
    with raises(InvalidDemos, parameter="by_group"):
        write_features(crossings(), [walked], tmp_path / "a", by_group=True)
    assert write_features(crossings(), [walked], tmp_path / "a").n == 300
    with pytest.raises(InvalidDemos, match="shard 0"):
        write_features(crossings(), [Demonstrations.from_lists([[0, 15]])], tmp_path / "b")
    other = crossings().replace(gamma=0.5)
    store = write_features(other, [walked], tmp_path / "b")
    assert store.mdp() == other
    with raises(InvalidFile, parameter="folder", value=str(tmp_path / "b")):
        write_features(crossings(), [walked], tmp_path / "b")


def test_a_foreign_store_json_is_kept(tmp_path):
    (tmp_path / "store.json").write_text('{"mine": 1}')
    with raises(InvalidFile, parameter="folder", value=str(tmp_path / "store.json")):
        claim(tmp_path, crossings(), by_group=False)
    assert (tmp_path / "store.json").read_text() == '{"mine": 1}'
