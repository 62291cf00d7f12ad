"""State features from tables with one row per state."""

import datetime as dt

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from limiirl.errors import InvalidDemos, InvalidParameter
from limiirl.mdp import MDP, encode, is_text, name_of, read_frame, read_state_features, renumber
from tests.helpers import raises

NAMES = ("den", "nest", "pond")
TABLE = {
    "state": ["pond", "den", "lake", "nest"],
    "depth": [2, 0, 9, 1],
    "zone": ["wet", "dry", "lake", "dry"],
    "safe": [False, True, False, True],
}
EXPECTED = [[0, 1, 0, 1], [1, 1, 0, 1], [2, 0, 1, 0]]
MAKERS = {
    "pandas": pd.DataFrame,
    "pandas nullable": lambda rows: pd.DataFrame(rows).convert_dtypes(),
    "categories": lambda rows: pd.DataFrame(rows).astype({"zone": "category", "state": "category"}),
    "polars": pl.DataFrame,
    "pyarrow": pa.table,
    "mapping": dict,
}


@pytest.mark.parametrize("maker", MAKERS)
def test_columns_become_features_in_the_order_of_states(maker):
    features = read_state_features(MAKERS[maker](TABLE), NAMES)
    np.testing.assert_array_equal(features.matrix, EXPECTED)
    assert features.names == ("depth", "zone[dry]", "zone[wet]", "safe")


def test_states_without_names_are_numbers():
    features = read_state_features({"state": [1, 0], "depth": [0.5, 1.5]})
    np.testing.assert_array_equal(features.matrix, [[1.5], [0.5]])
    named = read_state_features({"state": [12, 7], "depth": [0.5, 1.5]}, ["7", "12"])
    np.testing.assert_array_equal(named.matrix, [[1.5], [0.5]])


@pytest.mark.parametrize(
    ("changes", "names", "value", "index"),
    [
        ({"state": ["pond", "den", "pond", "nest"]}, NAMES, "pond", 2),
        ({}, (*NAMES, "tree"), "tree", None),
        ({}, None, "pond", 0),
        ({"state": [0, 1, 2, 1.5]}, None, 1.5, 3),
        ({"state": ["pond", None, "lake", "nest"]}, NAMES, None, 1),
        ({"depth": [2.0, np.nan, 9.0, 1.0]}, NAMES, "den", None),
        ({"zone": ["wet", "", "lake", "dry"]}, NAMES, "den", None),
        ({"depth": [np.inf, 0.0, 9.0, 1.0]}, NAMES, np.inf, 2),
        ({"depth": [1j, 0j, 9j, 1j]}, NAMES, None, None),
    ],
)
def test_invalid_tables_are_reported(changes, names, value, index):
    expected = {} if value is None and index is None else {"value": value, "index": index}
    with raises(InvalidParameter, parameter="state_features", **expected):
        read_state_features(TABLE | changes, names)


@pytest.mark.parametrize("table", [{"state": [0]}, {"place": [0], "depth": [1]}, 3])
def test_a_column_of_states_and_a_feature_are_required(table):
    with raises(InvalidParameter, parameter="state_features"):
        read_state_features(table)


def test_estimated_mdps_accept_tables():
    rows = {"demo": [0, 0, 0], "t": [0, 1, 2], "state": ["den", "pond", "nest"]}
    mdp = MDP.from_demonstrations(rows, state_features=TABLE)
    np.testing.assert_array_equal(mdp.state_features, EXPECTED)
    assert mdp.feature_names == ("depth", "zone[dry]", "zone[wet]", "safe")
    numbered = rows | {"state": [0, 2, 1]}
    assert MDP.from_demonstrations(numbered, state_features={"state": [0, 1, 2, 3], "x": [1, 2, 3, 4]}).n_states == 4
    with raises(InvalidParameter, parameter="state_features", value=2):
        MDP.from_demonstrations(numbered, state_features={"state": [0, 1], "x": [1, 2]})


RECORDS = {"demo": [7, 7], "t": [0, 1], "state": [4, 5], "action": [1, 2], "group": [3, 3], "label": [1, 1]}
BOOLEANS, COMPLEX, DURATIONS = np.array([True, False]), np.array([1j, 2.0]), np.array([1, 2], "m8[s]")
MASKED = np.ma.array([1, 2], mask=[False, True])


@pytest.mark.parametrize("make", [dict, pd.DataFrame, lambda table: pd.DataFrame(table, dtype=object)])
@pytest.mark.parametrize(
    ("column", "values"),
    [
        *((name, COMPLEX) for name in RECORDS),
        *((name, DURATIONS) for name in RECORDS if name != "t"),
        *((name, BOOLEANS) for name in ("t", "state", "action")),
        *((name, np.array(["2024-01-31"] * 2, "M8[D]")) for name in RECORDS if name != "t"),
        *((name, np.array([b"a", b"b"])) for name in RECORDS),
    ],
)
def test_values_without_an_order_or_a_number_are_refused(make, column, values):
    with raises(InvalidDemos, parameter=column, index=0):
        read_frame(make(RECORDS | {column: values}))


@pytest.mark.parametrize("column", RECORDS)
def test_masked_entries_are_refused(column):
    with raises(InvalidDemos, parameter=column, index=1):
        read_frame(RECORDS | {column: MASKED})
    plain = np.ma.array(RECORDS[column])
    np.testing.assert_array_equal(read_frame(RECORDS | {column: plain}).states, [4, 5])


@pytest.mark.parametrize("column", ["demo", "group", "label"])
@pytest.mark.parametrize("blank", ["", " ", "\t", "\0"])
def test_blank_identifiers_are_refused(column, blank):
    for make in (dict, pd.DataFrame, pa.table):
        with raises(InvalidDemos, parameter=column, index=1):
            read_frame(make(RECORDS | {column: ["a", blank]}))


@pytest.mark.parametrize(
    ("values", "value", "index"),
    [
        ([2.0**53 + 2, 1.0], 2.0**53 + 2, 0),
        ([1, 2**70], 2**70, 1),
        ([0.5, 2**53 + 1], 2**53 + 1, None),
        ([1, True], "int", None),
        (["a", "b\0"], "b\0", 1),
    ],
)
def test_identifiers_that_numpy_would_change_are_refused(values, value, index):
    with raises(InvalidDemos, parameter="demo", value=value, index=index):
        read_frame(RECORDS | {"demo": values})


def test_times_of_day_are_parsed():
    for times in (["9:59:59", "10:00"], ["09:05", "9:05:00.5"], [dt.time(9, 59), dt.time(10)]):
        np.testing.assert_array_equal(read_frame(RECORDS | {"t": times}).states, [4, 5])
    shuffled = {"demo": [1, 0, 1, 0], "t": ["10:00", "9:00", "11:00", "23:00"], "state": [0, 1, 2, 3]}
    np.testing.assert_array_equal(read_frame(shuffled).states, [1, 3, 0, 2])
    # 23:00 may be of the day before.
    with raises(InvalidDemos, parameter="t", value="1:00", index=2):
        read_frame({"demo": [0, 1, 0, 1], "t": ["23:00", "10:00", "1:00", "11:00"], "state": [0, 1, 2, 3]})


@pytest.mark.parametrize(
    ("times", "row"),
    [
        (["0", "1", "x"], 2),
        (["x", "1", "2"], 0),
        (["9:00", "10", "11:00"], 1),
        (["2024-01-31", "2024-02-31", "2024-03-31"], 1),
        (["2024-01-31 10:00Z", "2024-01-31 11:00", "2024-01-31 12:00Z"], 1),
        (["31/01/2024", "01/02/2024", "02/02/2024"], 0),
        (["1", "nan", "3"], 1),
        (["Mon", "Tue", "Wed"], 0),
        (["9:00", "9:60", "9:61"], 1),
    ],
)
def test_other_text_in_t_is_refused(times, row):
    with raises(InvalidDemos, parameter="t", value=times[row], index=row):
        read_frame({"demo": [0] * 3, "t": times, "state": [0, 1, 2]})


def test_large_integers_in_t_stay_apart():
    large = [2**63 - 1, 2**63 - 2]
    np.testing.assert_array_equal(read_frame(RECORDS | {"t": large}).states, [5, 4])
    np.testing.assert_array_equal(read_frame(RECORDS | {"t": list(map(str, large))}).states, [5, 4])


@pytest.mark.parametrize(
    ("values", "text"),
    [(["a", "b"], True), ([1, 2], False), (np.array([1, "a"], dtype=object), True), ([None, 2.0], False), ([], False)],
)
def test_text_is_recognised(values, text):
    assert is_text(np.asarray(values)) is text


def test_values_that_are_missing_or_unknown_have_negative_numbers():
    values = np.array(["b", None, "c", 4, "a"], dtype=object)
    numbers, names = encode(values, np.array([False, True, False, False, False]), ["a", "b"])
    np.testing.assert_array_equal(numbers, [1, -1, -2, -2, 0])
    assert names == ("a", "b")


def test_repeated_names_are_ambiguous():
    np.testing.assert_array_equal(renumber(["x", "y"], ["y", "x", "x"]), [-3, 0])


def test_numbers_without_a_name_are_printed():
    assert [name_of(("a",), 0), name_of(("a",), 1), name_of(None, 3)] == ["'a'", "1", "3"]
