"""Sources of demonstrations: files, objects in memory and functions; and names across shards."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from limiirl import Demonstrations, MaxCausalEnt, MaxEnt
from limiirl.errors import InvalidDemos, InvalidFile, InvalidParameter, MissingFile
from limiirl.streams import FeatureStore, FunctionSource, write_features
from limiirl.streams.sources import check_names, hash_names, list_shards
from limiirl.streams.store import StoredShard
from tests.helpers import raises
from tests.oracles.mixture import crossings
from tests.oracles.stores import files

pytestmark = pytest.mark.filterwarnings("ignore::limiirl.errors.ConvergenceWarning")


@pytest.mark.parametrize(
    ("arguments", "parameter", "value"),
    [
        ((abs, 2.5), "n_shards", 2.5),
        ((abs, "2"), "n_shards", "2"),
        ((abs, 0), "n_shards", 0),
        ((3, 2), "function", 3),
        ((abs, 2, print), "version", print),
        ((abs, 2, 3), "version", 3),
    ],
    ids=str,
)
def test_function_source_rejects_invalid_arguments(arguments, parameter, value):
    with raises(InvalidParameter, parameter=parameter, value=value):
        FunctionSource(*arguments)


def test_missing_files_and_folders_in_a_list_are_rejected(tmp_path, few):
    few.to_parquet(tmp_path / "a.parquet")
    for name in ("b.parquet", "b.csv"):
        with raises(MissingFile, parameter="source", value=str(tmp_path / name), index=1):
            write_features(crossings(), [tmp_path / "a.parquet", tmp_path / name], tmp_path / "out")
    with raises(InvalidParameter, parameter="source", value=str(tmp_path), index=0):
        write_features(crossings(), [tmp_path], tmp_path / "out")


@pytest.mark.parametrize("word", [b"weather", b"zulu"], ids=["a column", "a demonstration"])
def test_invalid_text_in_a_parquet_file_is_reported(tmp_path, word):
    good = tmp_path / "good.parquet"
    columns = {"demo": ["zulu", "zulu"], "t": [0, 1], "state": [0, 1], "weather": ["fine", "fine"]}
    pq.write_table(pa.table(columns), good, store_schema=False, compression="none")
    assert write_features(crossings(), good, tmp_path / "good").n == 1
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.parquet").write_bytes(good.read_bytes().replace(word, b"\xa6" + word[1:]))
    with raises(InvalidFile, parameter="source", value=str(tmp_path / "in" / "a.parquet")):
        write_features(crossings(), tmp_path / "in", tmp_path / "out")


def test_every_kind_of_source_gives_the_same_rows(tmp_path, walked):
    folder = files(tmp_path / "in", walked, 100)
    kinds = {
        "folder": folder,
        "name": str(folder),
        "paths": sorted(folder.iterdir()),
        "list": [walked[:100], walked[100:]],
        "generator": (shard for shard in (walked[:100], walked[100:])),
        "calls": FunctionSource(lambda i: walked[100 * i : 100 + 200 * i], 2),
    }
    expected = walked.features(crossings())
    for name, source in kinds.items():
        store = write_features(crossings(), source, tmp_path / name)
        assert len(store.shards) == 2
        np.testing.assert_array_equal(store.take(np.arange(300)).features, expected)
    single = write_features(crossings(), walked, tmp_path / "single")
    np.testing.assert_array_equal(single.take(np.arange(300)).features, expected)


def test_csv_and_subfolders_are_read_in_order(tmp_path):
    (tmp_path / "in" / "b").mkdir(parents=True)
    Demonstrations.from_lists([[0, 4]]).to_parquet(tmp_path / "in" / "b" / "x.parquet")
    (tmp_path / "in" / "a.csv").write_text("demo,t,state\nann,0,0\nann,1,1\n")
    (tmp_path / "in" / "_notes.csv").write_text("nothing")
    assert [shard.name for shard in list_shards(tmp_path / "in")] == ["a.csv", "b/x.parquet"]
    store = write_features(crossings(), tmp_path / "in", tmp_path / "out")
    assert store.shards[0].names().tolist() == ["ann"]
    assert store.shards[1].names() is None


def test_names_of_mixed_types_are_rejected(tmp_path):
    (tmp_path / "in").mkdir()
    for name, demo in (("a", "x"), ("b", "2")):
        (tmp_path / "in" / f"{name}.csv").write_text(f"demo,t,state\n{demo},0,0\n{demo},1,1\n")
    with raises(InvalidDemos, parameter="source", value="demo"):
        write_features(crossings(), tmp_path / "in", tmp_path / "out")


def test_empty_files_are_ignored_and_integer_types_may_differ(tmp_path, walked):
    folder = files(tmp_path / "in", walked, 100)
    store = write_features(crossings(), folder, tmp_path / "out")
    table = pq.read_table(folder / "walks-1.parquet")
    pq.write_table(table.slice(0, 0), folder / "walks-0a.parquet")
    small = table.schema.set(table.schema.get_field_index("state"), pa.field("state", pa.int16()))
    pq.write_table(table.cast(small), folder / "walks-1.parquet")
    again = write_features(crossings(), folder, tmp_path / "again")
    assert [shard.info.n for shard in again.shards] == [shard.info.n for shard in store.shards]
    np.testing.assert_array_equal(again.take(np.arange(300)).features, store.take(np.arange(300)).features)
    for path in folder.iterdir():
        pq.write_table(table.slice(0, 0), path)
    with raises(InvalidFile, parameter="source", value=str(folder / "walks-0.parquet")):
        write_features(crossings(), folder, tmp_path / "nothing")


def test_a_csv_file_with_only_a_header_is_ignored_and_an_empty_one_is_rejected(tmp_path):
    (tmp_path / "a.csv").write_text("demo,t,state\n\n")
    with raises(InvalidFile, parameter="source", value=str(tmp_path / "a.csv")):
        write_features(crossings(), tmp_path, tmp_path / "out")
    (tmp_path / "b.csv").write_text("demo,t,state\nx,0,0\n")
    (shard,) = write_features(crossings(), tmp_path, tmp_path / "out").shards
    assert shard.info.n == 1
    (tmp_path / "a.csv").write_bytes(b"demo,t,state\ry,0,0\rz,0,0\r")  # old Mac line endings
    assert write_features(crossings(), tmp_path, tmp_path / "more").n == 3
    for nothing in ("", "\ufeff"):
        (tmp_path / "a.csv").write_text(nothing, encoding="utf-8")
        with pytest.raises(InvalidFile, match=r"a\.csv"):
            write_features(crossings(), tmp_path, tmp_path / "again")


def bad_input(case, folder):
    """Write a folder with an invalid file."""
    good = Demonstrations.from_lists([[0, 1, 2], [0, 4]])
    rows = {"demo": [0, 0], "t": [0, 1], "state": [0, 1]}
    second = folder / "b.parquet"
    if case == "nothing":
        return
    good.to_parquet(folder / "a.parquet")
    if case == "schemas":
        Demonstrations.from_lists([[0, 1]], actions=[[0]]).to_parquet(second)
    elif case == "outside":
        Demonstrations.from_lists([[0, 1], [0, 4], [0, 1, 99]]).to_parquet(second)
    elif case == "impossible":
        Demonstrations.from_lists([[0, 1], [0, 15]]).to_parquet(second)
    elif case == "start":
        Demonstrations.from_lists([[0, 1], [5, 6]]).to_parquet(second)
    elif case == "damaged":
        second.write_bytes((folder / "a.parquet").read_bytes()[:-20])
    elif case == "nan":
        (folder / "a.parquet").unlink()
        pq.write_table(pa.table(rows | {"state": [0.0, float("nan")]}), second)
    elif case == "null":
        (folder / "a.parquet").unlink()
        pq.write_table(pa.table(rows | {"state": [0, None]}), second)


@pytest.mark.parametrize(
    ("case", "message"),
    [
        ("nothing", "has no .parquet or .csv file"),
        ("schemas", "b.parquet has .*, action integer"),
        ("outside", r"b.parquet: demonstration 2, step 2: .*99"),
        ("impossible", r"b.parquet: demonstration 1, step 0: "),
        ("start", r"b.parquet: demonstration 1"),
        ("damaged", "b.parquet is not a parquet file"),
        ("nan", "b.parquet.*"),
        ("null", "b.parquet.*"),
    ],
)
def test_invalid_files_are_named(tmp_path, case, message):
    (tmp_path / "in").mkdir()
    bad_input(case, tmp_path / "in")
    with pytest.raises((InvalidDemos, InvalidFile), match=message):
        write_features(crossings(), tmp_path / "in", tmp_path / "out")


def test_invalid_sources_are_rejected(tmp_path, walked):
    with raises(MissingFile, parameter="source", value=str(tmp_path / "nowhere")):
        write_features(crossings(), tmp_path / "nowhere", tmp_path / "a")
    with raises(InvalidParameter, parameter="source", value=3, index=1):
        write_features(crossings(), [walked, 3], tmp_path / "b")
    with raises(InvalidParameter, parameter="source", value=7):
        write_features(crossings(), 7, tmp_path / "c")
    with raises(InvalidDemos, parameter="source"):
        write_features(crossings(), [], tmp_path / "d")
    with raises(InvalidDemos, parameter="source", value=[]):
        write_features(crossings(), FunctionSource(lambda i: [], 1), tmp_path / "e")
    with raises(InvalidParameter, parameter="irl"):
        write_features(crossings(), [walked], tmp_path / "f", irl=MaxCausalEnt())
    with raises(InvalidDemos, parameter="max_length", value=7):
        write_features(crossings(), [walked], tmp_path / "g", irl=MaxEnt(max_length=4))


def test_hidden_folders_and_folders_named_like_files_are_ignored(tmp_path, walked):
    folder = tmp_path / "in"
    for name in ("sub", ".hidden", "_tmp"):
        (folder / name).mkdir(parents=True)
        walked.to_parquet(folder / name / "a.parquet")
    (folder / "b.parquet").mkdir()
    assert [shard.name for shard in list_shards(folder)] == ["sub/a.parquet"]


def write_table(path, demo, t, state, **more):
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"demo": demo, "t": t, "state": state, **more}), path)


def test_a_demonstration_in_two_files_is_rejected(tmp_path):
    anywhere = crossings().replace(p0=np.full(16, 1 / 16))
    folder = tmp_path / "in"
    write_table(folder / "1.parquet", ["a", "a", "b", "b"], [0, 1, 0, 1], [0, 1, 0, 4])
    write_table(folder / "2.parquet", ["b", "c", "c"], [2, 0, 1], [8, 0, 4])
    with raises(InvalidDemos, parameter="source", value="b"):
        write_features(anywhere, folder, tmp_path / "out")
    with raises(InvalidFile, parameter="folder", value=str(tmp_path / "out")):
        FeatureStore.open(tmp_path / "out")
    write_table(folder / "1.parquet", ["a", "a"], [0, 1], [0, 1])
    write_table(folder / "2.parquet", ["b", "b", "b", "c", "c"], [0, 1, 2, 0, 1], [0, 4, 8, 0, 4])
    assert write_features(anywhere, folder, tmp_path / "whole").n == 3


def test_a_demonstration_in_two_csv_files_is_rejected_for_mixed_number_types(tmp_path):
    anywhere = crossings().replace(p0=np.full(16, 1 / 16))
    (tmp_path / "1.csv").write_text("demo,t,state\n7,0,0\n8,0,0\n8,1,4\n")
    (tmp_path / "2.csv").write_text("demo,t,state\n8.0,2,8\n8.5,0,0\n")
    with raises(InvalidDemos, parameter="source", value="demo"):
        write_features(anywhere, [tmp_path / "1.csv", tmp_path / "2.csv"], tmp_path / "out")


def test_unnamed_demonstrations_may_share_numbers(tmp_path, walked):
    (tmp_path / "in").mkdir()
    for i in range(2):
        walked[100 * i : 100 * (i + 1)].to_parquet(tmp_path / "in" / f"{i}.parquet")
    assert write_features(crossings(), tmp_path / "in", tmp_path / "out").n == 200
    # Demonstrations that are given are whole; drawn with replacement, one may be in two shards.
    named = walked.replace(ids=[f"w{i}" for i in range(300)])
    assert write_features(crossings(), [named[:10], named[5:15]], tmp_path / "drawn").n == 20


def test_a_repeated_file_is_rejected(tmp_path, walked):
    walked.to_parquet(tmp_path / "a.parquet")
    (tmp_path / "link.parquet").symlink_to(tmp_path / "a.parquet")
    for again in ("a.parquet", "link.parquet"):
        with raises(InvalidParameter, parameter="source", value=str(tmp_path / again), index=1):
            write_features(crossings(), [tmp_path / "a.parquet", tmp_path / again], tmp_path / "out")


def test_equal_numbers_of_different_types_are_the_same_group(tmp_path, walked):
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
        shards = [one, walked[10:20].replace(groups=np.full(10, other))]
        assert write_features(crossings(), shards, tmp_path / f"{other!r}", by_group=True).n == 2
    shards = [one, walked[10:20].replace(groups=np.full(10, "1"))]
    with raises(InvalidDemos, parameter="source", value="group"):
        write_features(crossings(), shards, tmp_path / "text", by_group=True)


class NamedShard(StoredShard):
    """A shard with names only."""

    def __init__(self, source, names):
        object.__setattr__(self, "source", source)
        object.__setattr__(self, "known", None if names is None else np.asarray(names))

    def names(self):
        return self.known


def test_beyond_the_limit_a_sample_and_the_borders_are_compared():
    ids = np.random.default_rng(0).permutation(4000)
    first, second = np.sort(ids[:2000]), np.sort(ids[2000:])
    check_names([NamedShard("a", first), NamedShard("b", None), NamedShard("c", second)], "demo", max_keys=100)
    # A whole file again: some of its names are among those drawn.
    with raises(InvalidDemos, parameter="source") as caught:
        check_names(
            [NamedShard("a", first), NamedShard("c", second), NamedShard("d", second[5:-5])], "demo", max_keys=100
        )
    assert caught.value.value in second[5:-5]
    assert "in c and in d" in str(caught.value)
    # A cut where two files meet.
    with raises(InvalidDemos, parameter="source", value=first[-1]):
        check_names([NamedShard("a", first), NamedShard("c", np.append(first[-1], second))], "demo", max_keys=100)
    # All names are compared where there is room.
    with raises(InvalidDemos, parameter="source", value=first[77]):
        check_names([NamedShard("a", first), NamedShard("c", np.insert(second, 9, first[77]))], "demo")


def test_equal_hashes_are_compared_by_name():
    same = np.array([3.0]), np.array([3.0], dtype=np.float64).view(np.int64)
    assert hash_names(np.array([2.5]))[0] == hash_names(np.array([2.5]).view(np.int64))[0]
    check_names([NamedShard("a", [2.5]), NamedShard("b", np.array([2.5]).view(np.int64))], "group")
    assert hash_names(same[0])[0] != hash_names(same[1])[0]


def test_hashes_depend_only_on_names():
    names = np.array(["", "a", "b", "ab", "ba", "aa", "a" * 40, "\U0001f600", "1"])
    wide = hash_names(names)
    assert np.unique(wide).size == len(names)
    for name, key in zip(names, wide, strict=True):
        assert hash_names(np.array([name]))[0] == key
    numbers = np.array([0, 1, -1, 2**62, -(2**63)])
    np.testing.assert_array_equal(hash_names(numbers[:3]), hash_names(numbers[:3].astype(float)))
    assert hash_names(np.array([-0.0]))[0] == hash_names(np.array([0]))[0]
    assert np.unique(hash_names(numbers)).size == 5
