"""The store of results: exact, ordered, indifferent to repetition, and strict about what it reads."""

import json
import math
import sqlite3
import warnings
from contextlib import closing, suppress
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from limiirl.errors import InvalidFile, InvalidParameter, LimiirlWarning
from limiirl.experiments import DriverRecord, DriverSpec, Record, Spec, Store, parameters
from limiirl.experiments.store import FILE, _encode, describe
from tests.helpers import raises

FLOATS = st.floats(allow_nan=True, allow_infinity=True)
STRATEGIES = {
    "str": st.text(max_size=20),
    "int": st.integers(-(2**63), 2**63 - 1),
    "float": FLOATS,
    "bool": st.booleans(),
    "list[float]": st.lists(FLOATS, max_size=3),
    "list[list[float]]": st.lists(st.lists(FLOATS, max_size=3), max_size=3),
}
PLAIN = {"str": "x", "int": 3, "float": 0.1, "bool": True, "list[float]": [0.1], "list[list[float]]": [[0.1]]}


def _values(annotation: str) -> st.SearchStrategy[object]:
    plain, optional, _ = annotation.partition(" | None")
    return st.none() | STRATEGIES[plain] if optional else STRATEGIES[plain]


RECORDS = st.one_of(
    *(st.builds(kind, **{f.name: _values(str(f.type)) for f in fields(kind)}) for kind in (Record, DriverRecord))
)
FULL = Record(**{field.name: PLAIN[str(field.type).removesuffix(" | None")] for field in fields(Record)})


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "run")


def query(store, statement, *values):
    """Do something to the file behind the store's back."""
    with closing(sqlite3.connect(store.folder / FILE)) as database, database:
        return database.execute(statement, values).fetchall()


def n_rows(store, table="records"):
    return query(store, f"SELECT COUNT(*) FROM {table}")[0][0]


# What is written is read.


@given(RECORDS)
@example(FULL)
@example(Record("ab", 0))
@example(replace(FULL, nll=math.nan, gevd=-math.inf, anid=-0.0, weights=[], thetas=[[], [math.nan]], error="\0é🦉"))
def test_every_field_round_trips_exactly(record):
    content = json.loads(json.dumps(_encode(record, 0)))
    # As text: NaN is not equal to itself, and -0.0 is equal to 0.0.
    assert repr(type(record)(**content)) == repr(record)


@pytest.mark.parametrize("record", [FULL, replace(FULL, nll=math.nan, gevd=-math.inf, anid=-0.0, error="\0é🦉")])
def test_records_round_trip_exactly(store, record):
    store.append([record])
    assert repr(Store(store.folder, create=False).read()) == repr([record])


def test_driver_records_round_trip_exactly(tmp_path):
    kinds = {"record": DriverRecord, "spec": DriverSpec}
    spec = DriverSpec("one intent", 0.1 + 0.2)
    record = DriverRecord(spec.hash, 3, gamma=spec.gamma, test_nll=1 / 3, thetas=[[0.1]], converged=True)
    store = Store(tmp_path, **kinds)
    store.append([record])
    store.add_specs([spec])
    again = Store(tmp_path, create=False, **kinds)
    assert repr(again.read()) == repr([record])
    assert again.specs() == {spec.hash: spec}
    unknown = min(vars(record).keys() - vars(FULL).keys())
    with raises(InvalidFile, parameter="folder", value=unknown):  # they are no records of worlds
        Store(tmp_path)


def test_errors_with_invalid_unicode_are_recorded(store):
    store.append([Record("ab", 0, error="no file 'a\udcff'")])
    assert store.read()[0].error == r"no file 'a\udcff'"


def test_numpy_values_are_stored_as_plain_ones(store):
    store.append([Record("ab", int(np.int64(1)), nll=np.float64(0.5), weights=np.array([0.5, 0.5]))])
    assert type(store.read()[0].nll) is float
    assert store.read()[0].weights == [0.5, 0.5]


@pytest.mark.parametrize(("field", "value"), [("nll", "much"), ("seed", 2**63), ("weights", [[0.5]]), ("seed", 0.5)])
def test_a_value_of_another_type_is_rejected_and_nothing_is_written(store, field, value):
    with raises(InvalidParameter, parameter=field, value=value, index=1):
        store.append([Record("ab", 0), replace(Record("ab", 1), **{field: value})])
    assert n_rows(store) == 0


def test_appending_nothing_writes_nothing(store):
    store.append([])
    assert n_rows(store) == 0


def test_records_are_distinct_and_sorted(tmp_path):
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


def test_refresh_reads_the_records_of_other_stores_once(store):
    other = Store(store.folder)
    store.append([Record("ab", 0)])
    assert other.keys() == {("ab", 0)}
    store.append([Record("ab", 1)])
    assert other.refresh() == 1
    assert other.refresh() == 0
    assert [record.seed for record in other.read()] == [0, 1]


def test_keys_are_copied(store):
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


def test_failures_are_kept_and_can_be_excluded(store):
    store.append([Record("ab", 0, error="lost"), Record("ab", 1)])
    assert store.keys() == {("ab", 0), ("ab", 1)}
    assert store.keys(failed=False) == {("ab", 1)}
    assert store.read()[0].failed


def test_records_may_differ_in_times_and_order(tmp_path):
    records = [Record("ab", 0, seconds_em=seconds, nll=math.nan) for seconds in (3.0, 1.0, 2.0)]
    texts = set()
    for name, order in {"a": [0, 1, 2], "b": [2, 1, 0], "c": [1, 0, 2]}.items():
        store = Store(tmp_path / name)
        for index in order:
            store.append([records[index]])
        texts |= {repr(store.read()), repr(Store(store.folder).read())}
    assert len(texts) == 1


def test_contradictory_records_warn_and_all_readers_agree(tmp_path):
    read = []
    for name, values in {"a": [2.0, 1.0], "b": [1.0, 2.0]}.items():
        store = Store(tmp_path / name)
        store.append([Record("ab", 7, nll=values[0])])
        with pytest.warns(LimiirlWarning, match="conflicting"):
            store.append([Record("ab", 7, nll=values[1])])
        with pytest.warns(LimiirlWarning, match="conflicting results"):
            read += [store.read(), Store(store.folder).read()]
    assert read == [[Record("ab", 7, nll=1.0)]] * 4


def test_two_failures_of_one_trial_do_not_warn(store):
    store.append([Record("ab", 0, error="b")])
    store.append([Record("ab", 0, error="a")])
    assert [record.error for record in store.read()] == ["a"]


# Damage.


def damage_stores(store, contents):
    """Open the store with each of some contents of its file; yield what is read, None where it was refused."""
    for content in contents:
        for leftover in store.folder.glob(f"{FILE}-*"):
            leftover.unlink()
        (store.folder / FILE).write_bytes(content)
        try:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                records = Store(store.folder, create=False).read()
        except InvalidFile:
            yield None, []
        else:
            yield records, caught


def test_a_damaged_byte_never_changes_a_record(store):
    """Records are read as they were written, or they are missing; what is missing counts as not done."""
    records = [Record("ab", seed, nll=seed / 7, history=[seed / 3] * 20) for seed in range(12)]
    store.append(records[:6])
    store.append(records[6:])
    whole = (store.folder / FILE).read_bytes()
    dice = np.random.default_rng(0)
    places = [*range(120), *dice.choice(len(whole), 300, replace=False).tolist()]
    contents = []
    for place in places:
        flipped = bytearray(whole)
        flipped[place] ^= 1 << int(dice.integers(8))
        contents.append(bytes(flipped))
    outcomes = {"refused": 0, "whole": 0, "partial": 0}
    for read, caught in damage_stores(store, contents):
        if read is None:
            outcomes["refused"] += 1
            continue
        assert {record.key: record for record in read}.items() <= {record.key: record for record in records}.items()
        outcomes["whole" if len(read) == len(records) else "partial"] += 1
        assert len(read) == len(records) or caught
    assert min(outcomes.values()) >= 3, outcomes


@pytest.mark.parametrize("cut", [1, 99, 100, 2000, 4096, 5000, 9000])
def test_a_truncated_file_is_rejected_and_unchanged(store, cut):
    store.append([Record("ab", seed, history=[0.1] * 200) for seed in range(5)])
    path = store.folder / FILE
    path.write_bytes(path.read_bytes()[:cut])
    with raises(InvalidFile, parameter="folder", value=str(path)):
        Store(store.folder).read()
    assert path.stat().st_size == cut
    path.unlink()
    assert Store(store.folder).keys() == set()


@pytest.mark.parametrize(
    "content", [b"\0" * 8192, b"junk" * 100, b"SQLite format 3\0" + b"\xff" * 4000], ids=["zeros", "junk", "header"]
)
def test_a_file_that_is_not_a_database_is_rejected_and_unchanged(store, content):
    (store.folder / FILE).write_bytes(content)
    with raises(InvalidFile, parameter="folder", value=str(store.folder / FILE)):
        Store(store.folder)
    assert (store.folder / FILE).read_bytes() == content


def test_rows_that_were_altered_are_reported_removed_and_run_again(store):
    store.append([Record("ab", 0, nll=1.0), Record("ab", 1, nll=2.0), Record("cd", 0)])
    query(store, """UPDATE records SET content = replace(content, '"nll": 2.0', '"nll": 7.0')""")
    with pytest.warns(LimiirlWarning, match="1 of its records") as caught:
        again = Store(store.folder)
    assert len(caught) == 1
    assert again.keys() == {("ab", 0), ("cd", 0)}
    other = Store(store.folder)  # nothing more to warn of
    again.append([Record("ab", 1, nll=2.0)])
    assert other.keys() == Store(store.folder).keys() == {("ab", 0), ("ab", 1), ("cd", 0)}


@pytest.mark.parametrize("change", ["content = NULL", "digest = NULL", "content = x'ff'", "content = ''"])
def test_invalid_rows_are_reported_and_removed(store, change):
    store.append([Record("ab", 0), Record("ab", 1)])
    query(store, f"UPDATE records SET {change} WHERE id = 2")
    with pytest.warns(LimiirlWarning, match="1 of its records"):
        assert Store(store.folder).keys() == {("ab", 0)}
    assert n_rows(store) == 1


def test_a_row_of_another_table_is_not_a_record(store):
    store.note(["limiirl"])
    query(store, "INSERT INTO records (content, digest) SELECT content, digest FROM runs")
    with pytest.warns(LimiirlWarning, match="1 of its records"):
        assert store.keys() == set()


def test_a_missing_table_is_rejected(store):
    query(store, "DROP TABLE records")
    with raises(InvalidFile, parameter="folder", value=str(store.folder / FILE)):
        Store(store.folder)


def test_an_unfinished_creation_is_completed(tmp_path):
    (tmp_path / FILE).write_bytes(b"")  # as a killed creator leaves it
    assert Store(tmp_path).keys() == set()


# Other versions.


def test_a_newer_record_is_rejected_and_kept(store):
    newer = Store(store.folder)
    newer._insert("records", [json.dumps(_encode(FULL, 0) | {"mood": 1.0})])
    for read in (store.read, lambda: Store(store.folder)):
        with raises(InvalidFile, parameter="folder", value="mood"):
            read()
    assert n_rows(store) == 1


def test_a_newer_format_is_rejected(store):
    query(store, "PRAGMA user_version = 2")
    with raises(InvalidFile, parameter="folder", value=2):
        Store(store.folder)


def test_fields_missing_in_older_versions_are_none(store):
    content = {k: v for k, v in _encode(FULL, 0).items() if k not in ("margin", "history", "trace")}
    store._insert("records", [json.dumps(content)])
    assert store.read() == [replace(FULL, margin=None, history=None, trace="")]


def test_a_foreign_database_is_rejected(tmp_path):
    with closing(sqlite3.connect(tmp_path / FILE)) as database, database:
        database.execute("CREATE TABLE records (id INTEGER PRIMARY KEY, content TEXT, digest TEXT)")
    before = (tmp_path / FILE).read_bytes()
    with raises(InvalidFile, parameter="folder", value=str(tmp_path / FILE)):
        Store(tmp_path)
    assert (tmp_path / FILE).read_bytes() == before


# The folder.


def test_a_folder_with_other_files_is_rejected_and_unchanged(tmp_path):
    (tmp_path / "thesis.tex").write_text("dear reader")
    with raises(InvalidFile, parameter="folder", value=str(tmp_path)) as caught:
        Store(tmp_path)
    assert "thesis.tex" in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_concurrent_creation_is_not_an_error(tmp_path, monkeypatch):
    real = Path.iterdir

    def late(path):
        monkeypatch.undo()
        Store(tmp_path).append([Record("ab", 0)])
        return (path / name for name in ("report", f"{FILE}-journal"))

    monkeypatch.setattr(Path, "iterdir", late)
    assert Store(tmp_path).keys() == {("ab", 0)}
    assert Path.iterdir is real


def test_a_file_instead_of_a_folder_is_rejected(tmp_path):
    (tmp_path / "run").write_text("")
    with raises(InvalidFile, parameter="folder", value=str(tmp_path / "run")) as caught:
        Store(tmp_path / "run")
    assert "is a file" in str(caught.value)


@pytest.mark.parametrize("name", ["", "absent"])
def test_opening_does_not_create(tmp_path, name):
    with raises(InvalidFile, parameter="folder", value=str(tmp_path / name)):
        Store(tmp_path / name, create=False)
    assert list(tmp_path.iterdir()) == []


def test_a_closed_store_is_one_file(store):
    store.append([FULL])
    store.note(["limiirl"])
    store.read()
    assert [path.name for path in store.folder.iterdir()] == [FILE]


# Settings, the header, examples and invocations.


def test_specifications_round_trip(store):
    specs = [Spec(), Spec(world_parameters=parameters(wind=0.1, shape=(1.0, 2.0)), imbalance=0.2), Spec(max_length=9)]
    store.add_specs(specs)
    store.add_specs(specs[:1])
    assert Store(store.folder).specs() == {spec.hash: spec for spec in specs}
    assert n_rows(store, "specs") == 3


def test_a_damaged_specification_is_reported_and_written_again(store):
    store.add_specs([Spec()])
    query(store, "UPDATE specs SET content = replace(content, '100', '101')")
    with pytest.warns(LimiirlWarning, match="1 of its specs"):
        assert store.specs() == {}
    store.add_specs([Spec()])
    assert store.specs() == {Spec().hash: Spec()}


def test_a_specification_of_another_version_is_rejected(store):
    store._insert("specs", [json.dumps({"hash": "ab", "spec": {**Spec().to_dict(), "mood": 1}})])
    with raises(InvalidFile, parameter="folder", value=["mood"]) as caught:
        store.specs()
    assert FILE in str(caught.value)


def test_the_header_is_set_once(store):
    assert store.header == {}
    store.set_header({"plan": [1, 0.1]})
    Store(store.folder).set_header({"plan": 2})
    assert store.header == Store(store.folder).header == {"plan": [1, 0.1]}


def test_the_last_example_is_returned(store):
    assert store.example("table1") is None
    for seed in (1, 1, 2):
        store.put_example("table1", {"seed": seed, "x": [0.1]})
    store.put_example("boxplots", {"seed": 7})
    assert Store(store.folder).example("table1") == {"seed": 2, "x": [0.1]}
    assert n_rows(store, "examples") == 3


def test_invocations_are_logged_in_order(store):
    store.note(["limiirl", "reproduce", "a b"], seeds=range(3), studies=["wind", "margin"])
    store.note(["limiirl", "report"])
    Store(store.folder).note(["limiirl", "demo"], studies=["margin", "demos"])
    runs = store.runs()
    assert [run["command"] for run in runs] == ["limiirl reproduce 'a b'", "limiirl report", "limiirl demo"]
    assert runs[0]["seeds"] == [0, 1, 2]
    assert store.studies() == ["wind", "margin", "demos"]
    assert set(runs[0]["versions"]) == {"limiirl", "python", "numpy", "scipy", "numba", "scikit-learn"}


def test_the_log_contains_no_machine_or_folder_names(tmp_path):
    import getpass
    import platform

    text = json.dumps(describe([str(tmp_path / "bin" / "limiirl"), "--out", str(tmp_path), f"--run={tmp_path}"]))
    assert str(tmp_path.parent) not in text
    assert platform.node() not in text
    assert json.loads(text)["command"] == f"limiirl --out {tmp_path.name} --run={tmp_path.name}"
    assert f"/{getpass.getuser()}" not in text


def test_an_intact_store_issues_no_warnings(store):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        store.append([FULL])
        store.append([FULL])
        Store(store.folder).read()


def test_an_interrupted_reader_holds_no_lock(store):
    with suppress(ZeroDivisionError), store._connect() as database:
        database.execute("DELETE FROM records")
        raise ZeroDivisionError
    store.append([Record("ab", 0)])
    assert store.keys() == {("ab", 0)}
