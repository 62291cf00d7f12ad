"""The store of results: exact, ordered, indifferent to repetition, and strict about what it reads."""

import json
import math
import os
import re
import time
import warnings
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from limiirl.errors import InvalidFile, InvalidParameter, LimiirlWarning
from limiirl.experiments.spec import Spec, parameters
from limiirl.experiments.store import Store, describe, digest, pack, schema, unpack
from limiirl.experiments.trial import Record

FLOATS = st.floats(allow_nan=True, allow_infinity=True)
STRATEGIES = {
    "str": st.text(max_size=20),
    "int": st.integers(-(2**63), 2**63 - 1),
    "float": FLOATS,
    "bool": st.booleans(),
    "list[float]": st.lists(FLOATS, max_size=3),
    "list[list[float]]": st.lists(st.lists(FLOATS, max_size=3), max_size=3),
}


def _values(annotation: str) -> st.SearchStrategy[object]:
    plain, optional, _ = annotation.partition(" | None")
    return st.none() | STRATEGIES[plain] if optional else STRATEGIES[plain]


RECORDS = st.builds(Record, **{field.name: _values(str(field.type)) for field in fields(Record)})
FULL = Record(
    **{
        field.name: {
            "str": "x",
            "int": 3,
            "float": 0.1,
            "bool": True,
            "list[float]": [0.1],
            "list[list[float]]": [[0.1]],
        }[str(field.type).removesuffix(" | None")]
        for field in fields(Record)
    }
)


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "run")


def shards(store):
    return sorted((store.folder / "records").glob("*.parquet"))


def add_table(store, table):
    """Write a table of another version's making as a shard whose digest agrees with its name."""
    out = pa.BufferOutputStream()
    pq.write_table(table, out)
    data = bytes(out.getvalue())
    (store.folder / "records").mkdir(exist_ok=True)
    (store.folder / "records" / f"{digest(data)}.parquet").write_bytes(data)


def table_of(*records):
    return pq.read_table(pa.BufferReader(pack(records)))


# What is written is read.


@given(st.lists(RECORDS, min_size=1, max_size=4))
@example([FULL])
@example([Record("ab", 0)])
@example([replace(FULL, nll=math.nan, gevd=-math.inf, anid=-0.0, weights=[], thetas=[[], [math.nan]], error="\0é🦉")])
def test_every_field_returns_exactly(records):
    data = pack(records)
    # As text: NaN is not equal to itself, and -0.0 is equal to 0.0.
    assert repr(unpack(data, Path(f"{digest(data)}.parquet"))) == repr(records)


def test_every_field_has_a_typed_column():
    assert schema().names == [field.name for field in fields(Record)]
    assert schema().field("thetas").type == pa.list_(pa.list_(pa.float64()))


def test_text_that_is_no_unicode_does_not_keep_a_failure_from_being_recorded(store):
    store.append([Record("ab", 0, error="no file 'a\udcff'")])
    assert store.read()[0].error == r"no file 'a\udcff'"


def test_numpy_values_are_stored_as_plain_ones(store):
    store.append([Record("ab", int(np.int64(1)), nll=np.float64(0.5), weights=np.array([0.5, 0.5]))])
    assert type(store.read()[0].nll) is float
    assert store.read()[0].weights == [0.5, 0.5]


@pytest.mark.parametrize(("field", "value"), [("nll", "much"), ("seed", 2**63), ("weights", [[0.5]]), ("seed", 0.5)])
def test_a_value_of_another_type_is_refused_and_nothing_is_written(store, field, value):
    with pytest.raises(InvalidParameter, match=rf"^Field {field} .* record 1 has {re.escape(repr(value))}"):
        store.append([Record("ab", 0), replace(Record("ab", 1), **{field: value})])
    assert shards(store) == []


def test_appending_nothing_writes_nothing(store):
    store.append([])
    assert shards(store) == []


def test_records_come_once_in_order_whatever_was_written(tmp_path):
    records = [Record(spec, seed, nll=seed / 3) for spec in ("b", "a") for seed in (10, 9, 0)]
    batches = [records[:2], records[1:4], records[5:], records[3:5], records[:1]]
    one, other = Store(tmp_path / "one"), Store(tmp_path / "other")
    for batch in batches:
        one.append(batch)
    for batch in reversed(batches):
        other.append(batch[::-1])
    expected = sorted(records, key=lambda record: record.key)
    assert one.read() == other.read() == Store(one.folder).read() == expected
    assert one.read(["a", "c"]) == expected[:3]
    assert one.read([]) == []
    assert one.keys() == {record.key for record in records}


def test_what_another_store_adds_is_seen_and_only_that_is_read(store, monkeypatch):
    other = Store(store.folder)
    store.append([Record("ab", 0)])
    assert other.keys() == {("ab", 0)}
    store.append([Record("ab", 1)])
    opened = []
    real = Path.read_bytes
    monkeypatch.setattr(Path, "read_bytes", lambda path: opened.append(path) or real(path))
    assert other.refresh() == 1
    assert len(opened) == 1
    assert [record.seed for record in other.read()] == [0, 1]
    assert len(opened) == 1


def test_the_keys_given_out_are_the_callers_own(store):
    store.append([Record("ab", 0)])
    store.keys().clear()
    assert store.keys() == {("ab", 0)}


# Several records of one key.


@pytest.mark.parametrize("swap", [False, True])
def test_a_success_hides_a_failure(store, swap):
    records = [Record("ab", 0, error="lost"), Record("ab", 0, nll=1.0)]
    for record in records[:: -1 if swap else 1]:
        store.append([record])
    assert store.read() == [records[1]]
    assert store.keys(failed=False) == {("ab", 0)}


def test_failures_are_kept_and_can_be_told_apart(store):
    store.append([Record("ab", 0, error="lost"), Record("ab", 1)])
    assert store.keys() == {("ab", 0), ("ab", 1)}
    assert store.keys(failed=False) == {("ab", 1)}
    assert store.read()[0].failed


def test_times_may_differ_and_any_order_reads_the_same(tmp_path):
    records = [Record("ab", 0, seconds_em=seconds, nll=math.nan) for seconds in (3.0, 1.0, 2.0)]
    found = []
    for name, order in {"a": [0, 1, 2], "b": [2, 1, 0], "c": [1, 0, 2]}.items():
        store = Store(tmp_path / name)
        for index in order:
            store.append([records[index]])
        found += [repr(store.read()), repr(Store(store.folder).read())]
    assert len(set(found)) == 1


def test_contradictions_warn_with_the_key_and_all_readers_choose_alike(tmp_path):
    found = []
    for name, values in {"a": [2.0, 1.0], "b": [1.0, 2.0]}.items():
        store = Store(tmp_path / name)
        store.append([Record("ab", 7, nll=values[0])])
        with pytest.warns(
            LimiirlWarning, match="different results of one trial, 1 times; the first is seed 7 of .* ab"
        ):
            store.append([Record("ab", 7, nll=values[1])])
        with pytest.warns(LimiirlWarning, match="different results"):
            found += [store.read(), Store(store.folder).read()]
    assert found == [[Record("ab", 7, nll=1.0)]] * 4


def test_two_failures_of_one_trial_are_no_contradiction(store):
    store.append([Record("ab", 0, error="b")])
    store.append([Record("ab", 0, error="a")])
    assert [record.error for record in store.read()] == ["a"]


# Merging.


def test_merging_leaves_one_file_and_the_same_records(store):
    for seed in range(5):
        store.append([Record("ab", seed, nll=seed / 3, thetas=[[math.inf]]), Record("cd", 0, error="lost")])
    before = store.read()
    store.compact()
    assert len(shards(store)) == 1
    assert store.read() == Store(store.folder).read() == before
    store.compact()
    store.append([Record("ab", 9)])
    assert len(Store(store.folder).read()) == len(before) + 1


def test_merging_spares_what_it_has_not_read(store, monkeypatch):
    for seed in range(3):
        store.append([Record("ab", seed)])
    other = Store(store.folder)
    real = Store.refresh

    def late(self):
        found = real(self)
        if self is store:
            other.append([Record("ab", 99)])  # just after the merging store looked
        return found

    monkeypatch.setattr(Store, "refresh", late)
    store.compact()
    monkeypatch.undo()
    assert store.keys() == Store(store.folder).keys() == {("ab", seed) for seed in (0, 1, 2, 99)}


def test_a_reader_whose_files_are_merged_away_while_it_reads_loses_nothing(store, monkeypatch):
    for seed in range(3):
        store.append([Record("ab", seed)])
    real = Path.read_bytes

    def late(path):
        if path.suffix == ".parquet":
            monkeypatch.setattr(Path, "read_bytes", real)
            store.compact()
        return real(path)

    monkeypatch.setattr(Path, "read_bytes", late)
    reader = Store(store.folder)
    assert reader.refresh() == 0
    assert len(reader.read()) == 3


def test_merging_again_after_parts_were_left_keeps_the_whole(store):
    for seed in range(3):
        store.append([Record("ab", seed)])
    parts = {path: path.read_bytes() for path in shards(store)}
    store.compact()
    (whole,) = shards(store)
    for path, data in parts.items():
        path.write_bytes(data)  # as if it had been killed before it deleted them
    Store(store.folder).compact()
    assert shards(store) == [whole]
    assert len(Store(store.folder).read()) == 3


def test_merging_does_not_hide_a_contradiction(store):
    store.append([Record("ab", 0, nll=2.0)])
    with pytest.warns(LimiirlWarning, match="different results"):
        store.append([Record("ab", 0, nll=1.0)])
    store.compact()
    assert len(shards(store)) == 1
    with pytest.warns(LimiirlWarning, match="different results"):
        assert Store(store.folder).read() == [Record("ab", 0, nll=1.0)]


# Damage.


def _flip(at):
    def change(path):
        data = bytearray(path.read_bytes())
        data[at if at < 0 else min(at, len(data) - 1)] ^= 1
        path.write_bytes(bytes(data))

    return change


def _swap(path):
    data = pack([Record("zz", 0)])
    path.write_bytes(data)


DAMAGES = {
    "first byte": _flip(0),
    "middle": _flip(700),
    "footer": _flip(-20),
    "last byte": _flip(-1),
    "truncated": lambda path: path.write_bytes(path.read_bytes()[:-1]),
    "halved": lambda path: path.write_bytes(path.read_bytes()[:500]),
    "empty": lambda path: path.write_bytes(b""),
    "zeros": lambda path: path.write_bytes(bytes(path.stat().st_size)),
    "longer": lambda path: path.write_bytes(path.read_bytes() + b"\0"),
    "another's content": _swap,
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_file_is_put_aside_and_its_trials_count_as_not_done(store, damage):
    store.append([Record("ab", 0), Record("ab", 1)])
    (damaged,) = shards(store)
    store.append([Record("cd", 0)])
    damage(damaged)
    with pytest.warns(LimiirlWarning, match=f"{damaged.name} is truncated or altered.*moved to .*quarantine") as told:
        again = Store(store.folder)
    assert len(told) == 1
    assert again.keys() == {("cd", 0)}
    assert not damaged.exists()
    assert (store.folder / "quarantine" / damaged.name).exists()
    again.append([Record("ab", 0), Record("ab", 1)])
    assert Store(store.folder).keys() == {("ab", 0), ("ab", 1), ("cd", 0)}


@pytest.mark.parametrize("content", ["junk", "foreign", "keyless"])
def test_a_whole_file_without_records_is_put_aside(store, content):
    if content == "junk":
        (store.folder / "records").mkdir()
        (store.folder / "records" / f"{digest(b'junk')}.parquet").write_bytes(b"junk")
    else:
        table = pa.table({"x": [1]}) if content == "foreign" else table_of(FULL).drop_columns(["seed"])
        add_table(store, table)
    with pytest.warns(LimiirlWarning, match="no parquet file|without records of limiirl|no column 'seed'"):
        assert store.keys() == set()
    assert shards(store) == []


def test_good_bytes_that_another_process_wrote_anew_are_not_lost(store, monkeypatch):
    store.append([Record("ab", 0, error="lost")])
    (path,) = shards(store)
    good = path.read_bytes()
    path.write_bytes(good[:-1])
    real = Path.replace

    def late(self, target):
        if "quarantine" in str(target):
            path.write_bytes(good)  # the other process has put it aside and computed the trial again
        return real(self, target)

    monkeypatch.setattr(Path, "replace", late)
    Store(store.folder)
    monkeypatch.undo()
    assert Store(store.folder).keys() == {("ab", 0)}


def test_a_file_that_another_process_puts_aside_first_is_no_error(store, monkeypatch):
    store.append([Record("ab", 0)])
    (path,) = shards(store)
    path.write_bytes(b"")
    real = Path.replace

    def late(self, target):
        real(self, target)
        return real(self, target)

    monkeypatch.setattr(Path, "replace", late)
    assert Store(store.folder).keys() == set()


def test_files_in_the_making_are_ignored_and_old_ones_swept(store):
    store.append([Record("ab", 0)])
    old, new = (store.folder / "records" / f".{name}.parquet.x.tmp" for name in ("old", "new"))
    for path in (old, new):
        path.write_bytes(b"half")
    os.utime(old, (time.time() - 7200,) * 2)
    assert Store(store.folder, create=False).keys() == {("ab", 0)}
    assert old.exists()
    assert Store(store.folder).keys() == {("ab", 0)}
    assert not old.exists()
    assert new.exists()


# Other versions.


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda table: table.append_column("mood", pa.array([1.0])), "column 'mood' .* newer .*Upgrade"),
        (
            lambda table: table.set_column(table.column_names.index("nll"), "nll", pa.array(["x"])),
            "string in column 'nll'",
        ),
        (
            lambda table: table.replace_schema_metadata({"limiirl.format": "limiirl.records", "limiirl.version": "2"}),
            "has version 2 of the format; this limiirl reads up to 1. Upgrade",
        ),
    ],
    ids=["column", "type", "version"],
)
def test_a_newer_shard_is_refused_and_stays(store, change, message):
    add_table(store, change(table_of(FULL)))
    with pytest.raises(InvalidFile, match=message):
        store.read()
    with pytest.raises(InvalidFile, match=message):
        Store(store.folder)
    assert len(shards(store)) == 1
    assert not (store.folder / "quarantine").exists()


def test_what_an_older_version_did_not_write_is_none(store):
    add_table(store, table_of(FULL).drop_columns(["margin", "history", "trace"]))
    assert store.read() == [replace(FULL, margin=None, history=None, trace="")]


# The folder.


def test_a_folder_that_holds_something_else_is_refused_and_untouched(tmp_path):
    (tmp_path / "thesis.tex").write_text("dear reader")
    with pytest.raises(InvalidFile, match=r"holds other files \('thesis.tex'\) and no run.json.*new or an empty"):
        Store(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_what_another_process_makes_during_creation_is_not_taken_for_something_else(tmp_path, monkeypatch):
    real = Path.iterdir

    def late(path):
        monkeypatch.undo()
        Store(tmp_path).append([Record("ab", 0)])
        return (path / name for name in ("records", ".run.json.x.tmp"))

    monkeypatch.setattr(Path, "iterdir", late)
    assert Store(tmp_path).keys() == {("ab", 0)}
    assert Path.iterdir is real


def test_a_folder_with_only_a_killed_creators_file_is_empty(tmp_path):
    (tmp_path / ".run.json.abc.tmp").write_bytes(b"")
    assert Store(tmp_path).keys() == set()


def test_a_file_is_no_folder(tmp_path):
    (tmp_path / "run").write_text("")
    with pytest.raises(InvalidFile, match="run is a file, and results need a folder"):
        Store(tmp_path / "run")


@pytest.mark.parametrize("name", ["", "absent"])
def test_only_creating_creates(tmp_path, name):
    with pytest.raises(InvalidFile, match="is no run of limiirl: it has no run.json"):
        Store(tmp_path / name, create=False)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "content", ["", "{", "[]", "null", '{"format": "zip", "version": 1}', '{"format": "limiirl.run"}']
)
def test_a_damaged_header_is_refused_with_a_remedy_that_works(store, content):
    store.append([Record("ab", 0)])
    (store.folder / "run.json").write_text(content)
    with pytest.raises(InvalidFile, match="damaged or not of limiirl") as caught:
        Store(store.folder)
    remedy = re.search(r"write (\{.*\}) into it", str(caught.value))
    assert remedy is not None
    (store.folder / "run.json").write_text(remedy[1])
    assert Store(store.folder).keys() == {("ab", 0)}


def test_a_newer_header_is_refused(store):
    (store.folder / "run.json").write_text('{"format": "limiirl.run", "version": 2}')
    with pytest.raises(InvalidFile, match="has version 2 of the format; this limiirl reads up to 1. Upgrade"):
        Store(store.folder)


# Specifications and invocations.


def test_specifications_return(store):
    specs = [Spec(), Spec(world_parameters=parameters(wind=0.1, shape=(1.0, 2.0)), imbalance=0.2), Spec(max_length=9)]
    store.add_specs(specs)
    store.add_specs(specs[:1])
    assert Store(store.folder).specs() == {spec.hash: spec for spec in specs}


@pytest.mark.parametrize("damage", ["truncated", "altered", "renamed", "no object"])
def test_a_damaged_specification_is_put_aside_and_written_again(store, damage):
    spec = Spec()
    store.add_specs([spec])
    path = store.folder / "specs" / f"{spec.hash}.json"
    text = path.read_text()
    if damage == "renamed":
        path = path.replace(path.with_stem("0" * 16))
    else:
        path.write_text({"truncated": text[:-3], "altered": text.replace("100", "101"), "no object": "[]"}[damage])
    with pytest.warns(LimiirlWarning, match=f"{path.name} is truncated or altered"):
        assert store.specs() == {}
    store.add_specs([spec])
    assert store.specs() == {spec.hash: spec}


def test_a_specification_of_another_version_is_refused_by_name(store):
    store._files.write_json("specs", "ab.json", {"hash": "ab", "spec": {**Spec().to_dict(), "mood": 1}})
    with pytest.raises(InvalidFile, match="ab.json: .*unknown fields: mood"):
        store.specs()


def test_invocations_are_logged_in_order(store):
    store.note(["limiirl", "reproduce", "a b"], seeds=range(3))
    store.note(["limiirl", "report"])
    Store(store.folder).note(["limiirl", "demo"])
    runs = store.runs()
    assert [run["command"] for run in runs] == ["limiirl reproduce 'a b'", "limiirl report", "limiirl demo"]
    assert runs[0]["seeds"] == [0, 1, 2]
    assert set(runs[0]["versions"]) == {"limiirl", "python", "numpy", "scipy", "numba", "scikit-learn", "pyarrow"}


def test_the_log_names_no_machine_and_no_folder(tmp_path):
    import getpass
    import platform

    text = json.dumps(describe([str(tmp_path / "bin" / "limiirl"), "--out", str(tmp_path), f"--run={tmp_path}"]))
    assert str(tmp_path.parent) not in text
    assert platform.node() not in text
    assert json.loads(text)["command"] == f"limiirl --out {tmp_path.name} --run={tmp_path.name}"
    assert f"/{getpass.getuser()}" not in text


def test_nothing_warns_in_a_store_that_is_whole(store):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        store.append([FULL])
        store.append([FULL])
        store.compact()
        Store(store.folder).read()
