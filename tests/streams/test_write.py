"""Folders of streams with several writers or after a failed call, and names that recur in several parts."""

import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from limiirl import Demonstrations
from limiirl._io import atomic_write
from limiirl.errors import InvalidDemos, InvalidFile, InvalidParameter, MissingFile
from limiirl.streams import FeatureStore, FunctionSource, write_features
from limiirl.streams.sources import check_names, hash_names
from limiirl.streams.store import StoredPart
from limiirl.streams.write import claim
from tests.helpers import raises
from tests.oracles.forks import fork
from tests.oracles.mixture import crossings, walks


@pytest.fixture
def walked():
    return walks(300, seed=1)[0]


def test_a_file_that_another_writer_is_writing_is_left_alone(tmp_path, walked):
    store = write_features(crossings(), [walked], tmp_path)
    content = (tmp_path / "part-00000.features.npy").read_bytes()
    with atomic_write(tmp_path / "part-00000.features.npy") as scratch:
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
def test_writers_at_once_all_end_with_the_same_store(tmp_path):
    for turn in range(3):
        with fork(write_many, tmp_path / str(turn)) as one, fork(write_many, tmp_path / str(turn)) as other:
            assert [one.hear(), other.hear()] == ["ready"] * 2
            one.tell("go")
            time.sleep(0.02 * turn)
            other.tell("go")
            assert one.finish() == other.finish()


def test_another_writer_in_the_middle_changes_nothing(tmp_path, walked):
    parts = [walked[:100], walked[100:200], walked[200:]]

    def interrupted(i):
        if i == 1:
            write_features(crossings(), FunctionSource(lambda j: parts[j], 3), tmp_path / "both")
        return parts[i]

    store = write_features(crossings(), FunctionSource(interrupted, 3), tmp_path / "both")
    alone = write_features(crossings(), FunctionSource(lambda j: parts[j], 3), tmp_path / "alone")
    assert store.fingerprint == alone.fingerprint


def grouped(walked):
    return walked.replace(groups=np.arange(300) // 10)


def test_a_source_that_is_not_there_leaves_nothing_behind(tmp_path, walked):
    with raises(MissingFile, parameter="source", value=str(tmp_path / "nowhere")):
        write_features(crossings(), tmp_path / "nowhere", tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert write_features(crossings(), [grouped(walked)], tmp_path / "out", by_group=True).n == 30


def test_a_store_without_parts_may_become_another(tmp_path, walked):
    with raises(InvalidDemos, parameter="by_group"):
        write_features(crossings(), [walked], tmp_path / "a", by_group=True)
    assert write_features(crossings(), [walked], tmp_path / "a").n == 300
    with pytest.raises(InvalidDemos, match="part 0"):
        write_features(crossings(), [Demonstrations.from_lists([[0, 15]])], tmp_path / "b")
    other = crossings().replace(gamma=0.5)
    store = write_features(other, [walked], tmp_path / "b")
    assert store.mdp() == other
    with raises(InvalidFile, parameter="folder", value=str(tmp_path / "b")):
        write_features(crossings(), [walked], tmp_path / "b")


def test_the_store_json_of_somebody_else_is_kept(tmp_path):
    (tmp_path / "store.json").write_text('{"mine": 1}')
    with raises(InvalidFile, parameter="folder", value=str(tmp_path / "store.json")):
        claim(tmp_path, crossings(), by_group=False)
    assert (tmp_path / "store.json").read_text() == '{"mine": 1}'


def table(path, demo, t, state, **more):
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"demo": demo, "t": t, "state": state, **more}), path)


def test_a_demonstration_that_was_cut_over_two_files_is_refused(tmp_path):
    anywhere = crossings().replace(p0=np.full(16, 1 / 16))
    place = tmp_path / "in"
    table(place / "1.parquet", ["a", "a", "b", "b"], [0, 1, 0, 1], [0, 1, 0, 4])
    table(place / "2.parquet", ["b", "c", "c"], [2, 0, 1], [8, 0, 4])
    with raises(InvalidDemos, parameter="source", value="b"):
        write_features(anywhere, place, tmp_path / "out")
    with raises(InvalidFile, parameter="folder", value=str(tmp_path / "out")):
        FeatureStore.open(tmp_path / "out")
    table(place / "1.parquet", ["a", "a"], [0, 1], [0, 1])
    table(place / "2.parquet", ["b", "b", "b", "c", "c"], [0, 1, 2, 0, 1], [0, 4, 8, 0, 4])
    assert write_features(anywhere, place, tmp_path / "whole").n == 3


def test_a_cut_in_csv_and_numbers_of_other_types(tmp_path):
    anywhere = crossings().replace(p0=np.full(16, 1 / 16))
    (tmp_path / "1.csv").write_text("demo,t,state\n7,0,0\n8,0,0\n8,1,4\n")
    (tmp_path / "2.csv").write_text("demo,t,state\n8.0,2,8\n8.5,0,0\n")
    with raises(InvalidDemos, parameter="source", value=8.0):
        write_features(anywhere, [tmp_path / "1.csv", tmp_path / "2.csv"], tmp_path / "out")


def test_numbers_that_are_no_names_may_recur(tmp_path, walked):
    (tmp_path / "in").mkdir()
    for i in range(2):
        walked[100 * i : 100 * (i + 1)].to_parquet(tmp_path / "in" / f"{i}.parquet")
    assert write_features(crossings(), tmp_path / "in", tmp_path / "out").n == 200
    # Demonstrations that are given are whole; drawn with replacement, one may be in two parts.
    named = walked.replace(ids=[f"w{i}" for i in range(300)])
    assert write_features(crossings(), [named[:10], named[5:15]], tmp_path / "drawn").n == 20


def test_the_same_file_twice_is_refused(tmp_path, walked):
    walked.to_parquet(tmp_path / "a.parquet")
    (tmp_path / "link.parquet").symlink_to(tmp_path / "a.parquet")
    for again in ("a.parquet", "link.parquet"):
        with raises(InvalidParameter, parameter="source", value=str(tmp_path / again), index=1):
            write_features(crossings(), [tmp_path / "a.parquet", tmp_path / again], tmp_path / "out")


def test_groups_that_are_equal_numbers_are_one_group(tmp_path, walked):
    one = walked[:10].replace(groups=np.full(10, 1))
    for other in (1.0, True):
        with raises(InvalidDemos, parameter="source", value=1):
            write_features(
                crossings(),
                [one, walked[10:20].replace(groups=np.full(10, other))],
                tmp_path / str(other),
                by_group=True,
            )
    for other in (1.5, -1, 2**53 + 1):
        parts = [one, walked[10:20].replace(groups=np.full(10, other))]
        assert write_features(crossings(), parts, tmp_path / f"{other!r}", by_group=True).n == 2
    parts = [one, walked[10:20].replace(groups=np.full(10, "1"))]
    with raises(InvalidDemos, parameter="source", value="group"):
        write_features(crossings(), parts, tmp_path / "text", by_group=True)


class Named(StoredPart):
    """A part of names alone."""

    def __init__(self, source, names):
        object.__setattr__(self, "source", source)
        object.__setattr__(self, "known", None if names is None else np.asarray(names))

    def names(self):
        return self.known


def test_beyond_what_fits_a_sample_and_the_borders_are_compared():
    ids = np.random.default_rng(0).permutation(4000)
    first, second = np.sort(ids[:2000]), np.sort(ids[2000:])
    check_names([Named("a", first), Named("b", None), Named("c", second)], "demo", most=100)
    # A whole file again: some of its names are among those drawn.
    with raises(InvalidDemos, parameter="source") as caught:
        check_names([Named("a", first), Named("c", second), Named("d", second[5:-5])], "demo", most=100)
    assert caught.value.value in second[5:-5]
    assert "in c and in d" in str(caught.value)
    # A cut where two files meet.
    with raises(InvalidDemos, parameter="source", value=first[-1]):
        check_names([Named("a", first), Named("c", np.append(first[-1], second))], "demo", most=100)
    # All names are compared where there is room.
    with raises(InvalidDemos, parameter="source", value=first[77]):
        check_names([Named("a", first), Named("c", np.insert(second, 9, first[77]))], "demo")


def test_equal_keys_alone_are_no_proof():
    same = np.array([3.0]), np.array([3.0], dtype=np.float64).view(np.int64)
    assert hash_names(np.array([2.5]))[0] == hash_names(np.array([2.5]).view(np.int64))[0]
    check_names([Named("a", [2.5]), Named("b", np.array([2.5]).view(np.int64))], "group")
    assert hash_names(same[0])[0] != hash_names(same[1])[0]


def test_keys_depend_on_names_alone():
    names = np.array(["", "a", "b", "ab", "ba", "aa", "a" * 40, "\U0001f600", "1"])
    wide = hash_names(names)
    assert np.unique(wide).size == len(names)
    for name, key in zip(names, wide, strict=True):
        assert hash_names(np.array([name]))[0] == key
    numbers = np.array([0, 1, -1, 2**62, -(2**63)])
    np.testing.assert_array_equal(hash_names(numbers[:3]), hash_names(numbers[:3].astype(float)))
    assert hash_names(np.array([-0.0]))[0] == hash_names(np.array([0]))[0]
    assert np.unique(hash_names(numbers)).size == 5
