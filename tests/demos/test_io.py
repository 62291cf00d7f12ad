"""Parquet files: exact round trips, their table, and invalid files."""

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
REMEDY = r"Demonstrations\.to_parquet.*Demonstrations\.from_frame"

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
def test_round_trip_of_random_demonstrations(tmp_path, states, texts):
    demos = Demonstrations.from_lists(states).replace(groups=np.array(texts[: len(states)], dtype=str))
    demos.to_parquet(tmp_path / "demos.parquet")
    assert Demonstrations.from_parquet(tmp_path / "demos.parquet") == demos


def test_demonstrations_with_equal_ids_stay_separate(tmp_path):
    demos = Demonstrations.from_lists(STATES, ACTIONS).replace(ids=list("wxyz"))[[0, 0, 1, 1]]
    demos.to_parquet(tmp_path / "demos.parquet")
    assert Demonstrations.from_parquet(tmp_path / "demos.parquet") == demos


def test_table_has_one_row_per_step(tmp_path):
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


def test_writing_replaces_a_file_atomically(tmp_path):
    path = tmp_path / "demos.parquet"
    path.write_text("something else")
    demos = Demonstrations.from_lists(STATES)
    with path.open() as reader:
        demos.to_parquet(path)
        # A reader of the old file is not affected.
        assert reader.read() == "something else"
    assert Demonstrations.from_parquet(path) == demos
    assert [x.name for x in tmp_path.iterdir()] == ["demos.parquet"]


@pytest.mark.parametrize("share", [0, 0.1, 0.5, 0.9, 0.999])
def test_truncated_file_is_rejected(tmp_path, share):
    path = tmp_path / "demos.parquet"
    Demonstrations.from_lists(STATES * 50, ACTIONS * 50).to_parquet(path)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(share * len(whole))])
    with pytest.raises(InvalidFile, match=rf"demos\.parquet is .*damaged.* {REMEDY}"):
        Demonstrations.from_parquet(path)


def test_flipped_bits_in_the_states_are_detected(tmp_path):
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
    """Write the table with the metadata of limiirl, partly changed."""
    metadata = {"limiirl.format": "limiirl.demonstrations", "limiirl.version": "1", "limiirl.ids": "0"} | about
    pq.write_table(table.replace_schema_metadata(metadata), path)


def columns(**changes):
    content = {"demo": [0, 0, 1], "t": [0, 1, 0], "state": [4, 5, 6]} | changes
    return pa.table({name: values for name, values in content.items() if values is not None})


def test_file_written_without_limiirl_in_the_same_format_is_read(tmp_path):
    rewrite(tmp_path / "hand.parquet", columns())
    expected = Demonstrations.from_lists([[4, 5], [6]])
    assert Demonstrations.from_parquet(tmp_path / "hand.parquet") == expected


@pytest.mark.parametrize(
    ("content", "about", "message"),
    [
        ({}, {"limiirl.format": "other"}, rf"was not written by.* {REMEDY}"),
        ({}, {"limiirl.version": "2"}, r"format version 2"),
        ({}, {"limiirl.version": "new"}, r"format version new"),
        ({}, {"limiirl.version": ""}, r"format version None"),
        ({"state": None}, {}, rf"'state'.* {REMEDY}"),
        ({"t": [0, 2, 0]}, {}, r"bad\.parquet: t must"),
        ({"t": [1, 0, 1]}, {}, r"bad\.parquet: t must"),
        ({"t": [0, None, 0]}, {}, r"bad\.parquet: t must"),
        ({"state": [4, None, 6]}, {}, "demonstration 0, step 1: state nan"),
        ({"action": [1, 1, None]}, {}, "demonstration 0, step 1: action 1"),
        ({"label": ["a", "a", None]}, {}, r"labels\[1\]"),
    ],
)
def test_foreign_newer_and_damaged_tables_are_rejected(tmp_path, content, about, message):
    path = tmp_path / "bad.parquet"
    rewrite(path, columns(**content), **about)
    with pytest.raises(InvalidFile, match=message):
        Demonstrations.from_parquet(path)


def test_other_parquet_files_are_rejected_with_a_remedy(tmp_path):
    path = tmp_path / "pandas.parquet"
    pd.DataFrame({"demo": [0], "t": [0], "state": [1]}).to_parquet(path)
    with pytest.raises(InvalidFile, match=rf"pandas\.parquet was not written by.* {REMEDY}"):
        Demonstrations.from_parquet(path)
    pq.write_table(pa.table({"x": [1]}), path)
    with pytest.raises(InvalidFile, match="not written by"):
        Demonstrations.from_parquet(path)
    path.write_text(json.dumps(STATES))
    with pytest.raises(InvalidFile, match="not a parquet file"):
        Demonstrations.from_parquet(path)


def test_missing_files_and_directories_raise_os_errors(tmp_path):
    with pytest.raises(FileNotFoundError):
        Demonstrations.from_parquet(tmp_path / "absent.parquet")
    with pytest.raises(IsADirectoryError):
        Demonstrations.from_parquet(tmp_path)
    with pytest.raises(FileNotFoundError):
        Demonstrations.from_lists(STATES).to_parquet(tmp_path / "absent" / "demos.parquet")
