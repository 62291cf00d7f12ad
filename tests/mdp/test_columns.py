"""Columns of tables: what is read without loss, and what is refused."""

import datetime as dt

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from limiirl.errors import InvalidDemos
from limiirl.mdp import read_frame
from tests.helpers import raises

TABLE = {"demo": [7, 7], "t": [0, 1], "state": [4, 5], "action": [1, 2], "group": [3, 3], "label": [1, 1]}
BOOLEANS, COMPLEX, DURATIONS = np.array([True, False]), np.array([1j, 2.0]), np.array([1, 2], "m8[s]")
MASKED = np.ma.array([1, 2], mask=[False, True])


@pytest.mark.parametrize("make", [dict, pd.DataFrame, lambda table: pd.DataFrame(table, dtype=object)])
@pytest.mark.parametrize(
    ("column", "values"),
    [
        *((name, COMPLEX) for name in TABLE),
        *((name, DURATIONS) for name in TABLE if name != "t"),
        *((name, BOOLEANS) for name in ("t", "state", "action")),
        *((name, np.array(["2024-01-31"] * 2, "M8[D]")) for name in TABLE if name != "t"),
        *((name, np.array([b"a", b"b"])) for name in TABLE),
    ],
)
def test_values_without_an_order_or_a_number_are_refused(make, column, values):
    with raises(InvalidDemos, parameter=column, index=0):
        read_frame(make(TABLE | {column: values}))


@pytest.mark.parametrize("column", TABLE)
def test_masked_entries_are_refused(column):
    with raises(InvalidDemos, parameter=column, index=1):
        read_frame(TABLE | {column: MASKED})
    plain = np.ma.array(TABLE[column])
    np.testing.assert_array_equal(read_frame(TABLE | {column: plain}).states, [4, 5])


@pytest.mark.parametrize("column", ["demo", "group", "label"])
@pytest.mark.parametrize("blank", ["", " ", "\t", "\0"])
def test_blank_identifiers_are_refused(column, blank):
    for make in (dict, pd.DataFrame, pa.table):
        with raises(InvalidDemos, parameter=column, index=1):
            read_frame(make(TABLE | {column: ["a", blank]}))


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
        read_frame(TABLE | {"demo": values})


def test_times_of_day_are_parsed():
    for times in (["9:59:59", "10:00"], ["09:05", "9:05:00.5"], [dt.time(9, 59), dt.time(10)]):
        np.testing.assert_array_equal(read_frame(TABLE | {"t": times}).states, [4, 5])
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
    np.testing.assert_array_equal(read_frame(TABLE | {"t": large}).states, [5, 4])
    np.testing.assert_array_equal(read_frame(TABLE | {"t": list(map(str, large))}).states, [5, 4])
