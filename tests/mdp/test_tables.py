"""State features from tables with one row per state."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from limiirl.errors import InvalidParameter
from limiirl.mdp import MDP, read_state_features
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
