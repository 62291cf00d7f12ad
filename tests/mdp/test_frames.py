"""Recordings in tables of pandas, polars and pyarrow."""

import datetime as dt

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from limiirl.errors import InvalidDemos
from limiirl.mdp.estimation import read_frame
from tests.helpers import raises

# Two demonstrations, rows out of order; sorted: demo 3 = states 5, 6, 7 and demo 9 = states 1, 2.
ROWS = {
    "demo": [9, 3, 3, 9, 3],
    "t": [1, 2, 0, 0, 1],
    "state": [2, 7, 5, 1, 6],
    "action": [None, None, 4, 8, 0],
    "group": ["mouse", "rat", "rat", "mouse", "rat"],
    "label": [1, 0, 0, 1, 0],
    "speed": [0.1, 0.2, 0.3, 0.4, 0.5],
}
MAKERS = {
    "pandas": pd.DataFrame,
    "pandas nullable": lambda rows: pd.DataFrame(rows).convert_dtypes(),
    "pandas arrow": lambda rows: pd.DataFrame(rows).convert_dtypes(dtype_backend="pyarrow"),
    "polars": pl.DataFrame,
    "pyarrow": pa.table,
    "mapping": dict,
}


@pytest.mark.parametrize("maker", MAKERS)
def test_every_kind_of_table_gives_the_same(maker):
    runs = read_frame(MAKERS[maker](ROWS))
    np.testing.assert_array_equal(runs.states, [5, 6, 7, 1, 2])
    np.testing.assert_array_equal(runs.actions, [4, 0, -1, 8, -1])
    np.testing.assert_array_equal(runs.offsets, [0, 3, 5])
    np.testing.assert_array_equal(runs.ids, [3, 9])
    np.testing.assert_array_equal(runs.groups, ["rat", "mouse"])
    np.testing.assert_array_equal(runs.labels, [0, 1])
    assert (runs.states.dtype, runs.actions.dtype, runs.offsets.dtype) == (np.int32, np.int32, np.int64)
    assert runs.ids.dtype.kind == runs.labels.dtype.kind == "i"
    assert runs.groups.dtype.kind == "U"


@pytest.mark.parametrize("maker", MAKERS)
def test_optional_columns_may_be_absent(maker):
    runs = read_frame(MAKERS[maker]({name: ROWS[name] for name in ("demo", "t", "state")}))
    assert runs.actions is None
    assert runs.groups is None
    assert runs.labels is None


@pytest.mark.parametrize("maker", MAKERS)
def test_an_action_column_without_gaps_loses_its_last_actions(maker):
    # The outcome of a last action was not seen, so that nothing can be learnt from it.
    runs = read_frame(MAKERS[maker](ROWS | {"action": [3, 3, 4, 8, 0]}))
    np.testing.assert_array_equal(runs.actions, [4, 0, -1, 8, -1])


@pytest.mark.parametrize("empty", [None, float("nan"), -1])
def test_last_actions_may_be_empty_in_any_way(empty):
    runs = read_frame(pd.DataFrame(ROWS | {"action": [empty, empty, 4, 8, 0]}))
    np.testing.assert_array_equal(runs.actions, [4, 0, -1, 8, -1])


DAY = dt.date(2024, 2, 28)


@pytest.mark.parametrize(
    "times",
    [
        [0.5, 2e9, -7.0, 0.25, 1.5],
        [DAY + dt.timedelta(days=n) for n in (1, 2, 0, 0, 1)],
        [dt.datetime(2024, 1, 1, n, tzinfo=dt.UTC) for n in (1, 2, 0, 0, 1)],
        ["b", "c", "a", "a", "b"],
    ],
    ids=["numbers", "dates", "times", "strings"],
)
@pytest.mark.parametrize("maker", MAKERS)
def test_t_only_orders(maker, times):
    runs = read_frame(MAKERS[maker](ROWS | {"t": times}))
    np.testing.assert_array_equal(runs.states, [5, 6, 7, 1, 2])


@pytest.mark.parametrize("maker", MAKERS)
def test_demos_may_be_named_by_strings(maker):
    runs = read_frame(MAKERS[maker](ROWS | {"demo": ["z", "b", "b", "z", "b"]}))
    np.testing.assert_array_equal(runs.states, [5, 6, 7, 1, 2])
    np.testing.assert_array_equal(runs.ids, ["b", "z"])
    assert runs.ids.dtype.kind == "U"


def test_a_single_row_is_a_demonstration():
    runs = read_frame({"demo": [1], "t": [0], "state": [4], "action": [2]})
    np.testing.assert_array_equal(runs.states, [4])
    np.testing.assert_array_equal(runs.actions, [-1])


def test_whole_floats_are_states():
    np.testing.assert_array_equal(read_frame(ROWS | {"state": [2.0, 7.0, 5.0, 1.0, 6.0]}).states, [5, 6, 7, 1, 2])


BAD = [
    ({"state": [2, 7, 5, None, 6]}, "state", None, 3),
    ({"state": [2, 7, 5, 1, -6]}, "state", -6, 4),
    ({"state": [2, 7, 5, 1, -1]}, "state", -1, 4),
    ({"state": [2.0, 7.0, 5.0, 1.5, 6.0]}, "state", 1.5, 3),
    ({"state": [2, 7, 5, 2**31, 6]}, "state", 2**31, 3),
    ({"state": list("abcde")}, "state", None, None),
    ({"action": [None, None, 4, None, 0]}, "action", None, 3),
    ({"action": [None, None, -1, 8, 0]}, "action", None, 2),
    ({"action": [None, None, -2, 8, 0]}, "action", -2, 2),
    ({"t": [1, 2, 0, 0, 2]}, "t", 2, 4),
    ({"t": [1, None, 0, 0, 2]}, "t", None, 1),
    ({"demo": [9, 3, None, 9, 3]}, "demo", None, 2),
    ({"group": ["mouse", "rat", "cat", "mouse", "rat"]}, "group", "rat", 0),
    ({"label": [1, 0, 0, 2, 0]}, "label", 1, 1),
    ({"label": [1, 0, None, 1, 0]}, "label", None, 2),
]


@pytest.mark.parametrize("maker", ["pandas", "pandas nullable", "polars", "pyarrow"])
@pytest.mark.parametrize(("changes", "column", "value", "index"), BAD)
def test_bad_rows_are_named(maker, changes, column, value, index):
    with raises(InvalidDemos, parameter=column, value=value, index=index):
        read_frame(MAKERS[maker](ROWS | changes))


@pytest.mark.parametrize("missing", ["demo", "t", "state"])
@pytest.mark.parametrize("maker", MAKERS)
def test_missing_columns_are_named(maker, missing):
    rows = {name: column for name, column in ROWS.items() if name != missing}
    with raises(InvalidDemos, parameter="df", value=missing):
        read_frame(MAKERS[maker](rows))


def test_other_objects_are_refused():
    with raises(InvalidDemos, parameter="df", value="ndarray"):
        read_frame(np.zeros((3, 3)))
    with raises(InvalidDemos, parameter="df", value=0):
        read_frame(pd.DataFrame({"demo": [], "t": [], "state": []}))
    with raises(InvalidDemos, parameter="df"):
        read_frame({"demo": [0, 0], "t": [0], "state": [1, 2]})
    with raises(InvalidDemos, parameter="demo", value="int"):
        read_frame(pd.DataFrame({"demo": ["a", 1], "t": [0, 0], "state": [1, 2]}))


def test_ids_must_be_single_values_of_one_kind():
    objects = np.array(["a", float("nan")], dtype=object)
    with raises(InvalidDemos, parameter="demo", index=1):
        read_frame({"demo": objects, "t": [0, 0], "state": [1, 2]})
    pairs = pd.DataFrame({"demo": [("a", 1), ("b", 2)], "t": [0, 0], "state": [1, 2]})
    with raises(InvalidDemos, parameter="demo", index=0):
        read_frame(pairs)
    with raises(InvalidDemos, parameter="t"):
        read_frame(pd.DataFrame({"demo": [0, 0], "t": [DAY, 1], "state": [1, 2]}))


def test_large_tables_are_read_quickly_enough_to_be_vectorised():
    rng = np.random.default_rng(0)
    n = 200_000
    order = rng.permutation(n)
    demo, t = np.divmod(np.arange(n), 100)
    runs = read_frame(pd.DataFrame({"demo": demo[order], "t": t[order], "state": np.arange(n)[order]}))
    np.testing.assert_array_equal(runs.states, np.arange(n))
    np.testing.assert_array_equal(runs.offsets, np.arange(0, n + 1, 100))
