"""Parquet in and out: an exact round trip, a table that others can read, and files that cannot be used."""

import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from limiirl.demos import Demonstrations
from limiirl.errors import InvalidFile
from tests.helpers import examples

STATES = [[0, 1, 2], [3], [1, 1], [4, 0, 2, 0]]
ACTIONS = [[5, 6], [], [0], [1, 0, 2]]
REMEDY = r"Write it again with Demonstrations\.to_parquet, or read a table of your own with Demonstrations\.from_frame"

ATTRIBUTES = {
    "none": None,
    "strings": ["x", "", "ünï", "a longer one"],
    "integers": [2**62, -1, 0, 0],
    "floats": [0.1, -np.inf, 1e300, 0.0],
    "booleans": [True, False, False, True],
}


def same_dtypes(one, other):
    names = ("states", "offsets", "actions", "groups", "labels", "ids")
    pairs = [(getattr(one, name), getattr(other, name)) for name in names]
    return all(a is b is None or a.dtype == b.dtype for a, b in pairs)


@pytest.mark.parametrize("actions", [None, ACTIONS, [[5, -1], None, [0], None]], ids=["none", "all", "some"])
@pytest.mark.parametrize("values", ATTRIBUTES.values(), ids=ATTRIBUTES)
def test_round_trip(tmp_path, actions, values):
    demos = Demonstrations.from_lists(STATES, actions, groups=values, labels=values).replace(ids=values)
    demos.to_parquet(tmp_path / "demos.parquet")
    again = Demonstrations.from_parquet(str(tmp_path / "demos.parquet"))
    assert again == demos
    assert same_dtypes(again, demos)
    assert not again.states.flags.writeable


@settings(deadline=None, max_examples=examples(50), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.lists(st.integers(0, 2**40), min_size=1, max_size=6), max_size=6),
    st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")), min_size=6, max_size=6),
)
def test_round_trip_of_anything(tmp_path, states, texts):
    demos = Demonstrations.from_lists(states).replace(groups=np.array(texts[: len(states)], dtype=str))
    demos.to_parquet(tmp_path / "demos.parquet")
    assert Demonstrations.from_parquet(tmp_path / "demos.parquet") == demos


def test_repeated_ids_stay_apart(tmp_path):
    demos = Demonstrations.from_lists(STATES, ACTIONS).replace(ids=list("wxyz"))[[0, 0, 1, 1]]
    demos.to_parquet(tmp_path / "demos.parquet")
    assert Demonstrations.from_parquet(tmp_path / "demos.parquet") == demos


def test_the_table_has_one_row_a_step_for_everyone_to_read(tmp_path):
    path = tmp_path / "demos.parquet"
    demos = Demonstrations.from_lists(STATES, ACTIONS, groups=list("aabb"), labels=[0, 1, 2, 3])
    demos.to_parquet(path)
    table = pq.read_table(path)
    assert table.column_names == ["demo", "t", "state", "action", "group", "label"]
    assert table["demo"].to_pylist() == [0, 0, 0, 1, 2, 2, 3, 3, 3, 3]
    assert table["t"].to_pylist() == [0, 1, 2, 0, 0, 1, 0, 1, 2, 3]
    assert table["state"].to_pylist() == [0, 1, 2, 3, 1, 1, 4, 0, 2, 0]
    assert table["action"].to_pylist() == [5, 6, None, None, 0, None, 1, 0, 2, None]
    assert table["group"].to_pylist() == list("aaaabbbbbb"[:4]) + list("bbbbbb")
    assert table["label"].to_pylist() == [0, 0, 0, 1, 2, 2, 3, 3, 3, 3]
    assert Demonstrations.from_frame(pd.read_parquet(path)) == demos.replace(ids=[0, 1, 2, 3])
    bare = tmp_path / "bare.parquet"
    Demonstrations.from_lists(STATES).to_parquet(bare)
    assert pq.read_table(bare).column_names == ["demo", "t", "state"]


def test_writing_replaces_a_file_whole_and_leaves_nothing_else(tmp_path):
    path = tmp_path / "demos.parquet"
    path.write_text("something else")
    demos = Demonstrations.from_lists(STATES)
    with path.open() as reader:
        demos.to_parquet(path)
        # Whoever had the old file open goes on reading it undisturbed.
        assert reader.read() == "something else"
    assert Demonstrations.from_parquet(path) == demos
    assert [x.name for x in tmp_path.iterdir()] == ["demos.parquet"]


@pytest.mark.parametrize("share", [0, 0.1, 0.5, 0.9, 0.999])
def test_a_truncated_file_is_refused(tmp_path, share):
    path = tmp_path / "demos.parquet"
    Demonstrations.from_lists(STATES * 50, ACTIONS * 50).to_parquet(path)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(share * len(whole))])
    with pytest.raises(InvalidFile, match=rf"demos\.parquet is no parquet file, or damaged \(.*\)\. {REMEDY}"):
        Demonstrations.from_parquet(path)


def test_a_flipped_bit_in_the_states_never_passes_as_another_recording(tmp_path):
    path = tmp_path / "demos.parquet"
    demos = Demonstrations.from_lists(np.random.default_rng(0).integers(1000, size=(20, 10)))
    demos.to_parquet(path)
    whole = path.read_bytes()
    column = pq.ParquetFile(path).metadata.row_group(0).column(2)
    assert column.path_in_schema == "state"
    refused = 0
    for position in range(column.dictionary_page_offset, column.data_page_offset):
        content = bytearray(whole)
        content[position] ^= 1
        path.write_bytes(content)
        try:
            assert Demonstrations.from_parquet(path) == demos
        except InvalidFile:
            refused += 1
    assert refused > 100


def rewrite(path, table, **about):
    """Write the table with our metadata, some of it changed."""
    metadata = {"limiirl.format": "limiirl.demonstrations", "limiirl.version": "1", "limiirl.ids": "0"} | about
    pq.write_table(table.replace_schema_metadata(metadata), path)


def columns(**changes):
    content = {"demo": [0, 0, 1], "t": [0, 1, 0], "state": [4, 5, 6]} | changes
    return pa.table({name: values for name, values in content.items() if values is not None})


def test_a_file_written_by_hand_in_our_format_is_read(tmp_path):
    rewrite(tmp_path / "hand.parquet", columns())
    expected = Demonstrations.from_lists([[4, 5], [6]])
    assert Demonstrations.from_parquet(tmp_path / "hand.parquet") == expected


@pytest.mark.parametrize(
    ("content", "about", "message"),
    [
        ({}, {"limiirl.format": "other"}, rf"a parquet file that Demonstrations\.to_parquet did not write\. {REMEDY}"),
        ({}, {"limiirl.version": "2"}, r"format version 2"),
        ({}, {"limiirl.version": "new"}, r"format version new"),
        ({}, {"limiirl.version": ""}, r"format version none"),
        ({"state": None}, {}, rf"has no column 'state'\. {REMEDY}"),
        ({"t": [0, 2, 0]}, {}, r"t must count 0, 1, 2, \.\.\. within each demonstration; rows were lost or moved"),
        ({"t": [1, 0, 1]}, {}, r"t must count 0, 1, 2"),
        ({"t": [0, None, 0]}, {}, r"t must count 0, 1, 2"),
        ({"state": [4, None, 6]}, {}, r"bad\.parquet: demonstration 0, step 1: state nan is not an integer"),
        ({"action": [1, 1, None]}, {}, r"bad\.parquet: demonstration 0, step 1: action 1 at the last state"),
        ({"label": ["a", "a", None]}, {}, r"bad\.parquet: labels\[1\] is None: missing"),
    ],
)
def test_foreign_newer_and_damaged_tables_are_refused(tmp_path, content, about, message):
    path = tmp_path / "bad.parquet"
    rewrite(path, columns(**content), **about)
    with pytest.raises(InvalidFile, match=message):
        Demonstrations.from_parquet(path)


def test_tables_of_other_origin_are_refused_with_the_way_to_read_them(tmp_path):
    path = tmp_path / "pandas.parquet"
    pd.DataFrame({"demo": [0], "t": [0], "state": [1]}).to_parquet(path)
    with pytest.raises(InvalidFile, match=rf"pandas\.parquet is a parquet file that .* did not write\. {REMEDY}"):
        Demonstrations.from_parquet(path)
    pq.write_table(pa.table({"x": [1]}), path)
    with pytest.raises(InvalidFile, match="did not write"):
        Demonstrations.from_parquet(path)
    path.write_text(json.dumps(STATES))
    with pytest.raises(InvalidFile, match="is no parquet file"):
        Demonstrations.from_parquet(path)


def test_missing_files_and_directories_speak_for_themselves(tmp_path):
    with pytest.raises(FileNotFoundError):
        Demonstrations.from_parquet(tmp_path / "absent.parquet")
    with pytest.raises(IsADirectoryError):
        Demonstrations.from_parquet(tmp_path)
    with pytest.raises(FileNotFoundError):
        Demonstrations.from_lists(STATES).to_parquet(tmp_path / "absent" / "demos.parquet")
