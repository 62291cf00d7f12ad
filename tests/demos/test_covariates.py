"""Covariates are read from arrays and tables, matched to demonstrations or groups, and checked by column."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from limiirl import Demonstrations
from limiirl.demos import Covariates, Groups
from limiirl.errors import InvalidParameter
from tests.helpers import raises

DEMOS = Demonstrations.from_lists([[0, 1, 0], [1, 0]])
TABLE = {"age": [3, 5, 4], "tagged": [True, False, True], "site": ["north", "south", "east"]}


class TestColumns:
    @pytest.mark.parametrize("make", [dict, pd.DataFrame, pl.DataFrame, pa.table])
    def test_numbers_booleans_and_text(self, make):
        read = Covariates.read(make(TABLE))
        assert read.names == ("age", "tagged", "site[north]", "site[south]")
        assert read.levels == {"site": ("east", "north", "south")}
        np.testing.assert_array_equal(read.values, [[3, 1, 1, 0], [5, 0, 0, 1], [4, 1, 0, 0]])

    def test_first_category_is_the_reference(self):
        column = pd.Categorical(["b", "a", "b"], categories=["unused", "b", "a"])
        read = Covariates.read(pd.DataFrame({"x": column}))
        assert (read.names, read.levels) == (("x[a]",), {"x": ("b", "a")})
        np.testing.assert_array_equal(read.values, [[0], [1], [0]])

    def test_new_data_have_the_levels_and_columns_of_the_training_data(self):
        like = Covariates.read(TABLE).measure()
        new = Covariates.read({"site": ["south"], "tagged": [1], "age": [9], "weight": [2.0]}, like)
        assert new.names == like.names
        np.testing.assert_array_equal(new.values, [[9, 1, 0, 1]])

    def test_unknown_level(self):
        like = Covariates.read(TABLE).measure()
        with raises(InvalidParameter, parameter="covariates", value="west", index=1):
            Covariates.read(TABLE | {"site": ["north", "west", "east"]}, like)

    def test_missing_column(self):
        like = Covariates.read(TABLE).measure()
        with raises(InvalidParameter, parameter="covariates", value=["age", "tagged"]):
            Covariates.read({"age": [3], "tagged": [True]}, like)

    def test_array_has_no_levels(self):
        like = Covariates.read(TABLE).measure()
        with raises(InvalidParameter, parameter="covariates", value=(3, 4)):
            Covariates.read(np.zeros((3, 4)), like)

    @pytest.mark.parametrize(("column", "gap"), [("age", None), ("age", np.nan), ("site", None), ("site", " ")])
    def test_gap(self, column, gap):
        values = [*TABLE[column][:2], gap]
        with raises(InvalidParameter, parameter="covariates", value=np.nan, index=(2, 0)):
            Covariates.read({column: values})

    @pytest.mark.parametrize("values", [[b"a", b"b"], [1j, 2], [np.datetime64("2020"), np.datetime64("2021")]])
    def test_other_types(self, values):
        with pytest.raises(InvalidParameter) as caught:
            Covariates.read({"x": np.array(values)})
        assert caught.value.parameter == "covariates"

    def test_text_in_a_numeric_column_of_new_data(self):
        like = Covariates.read({"age": [3, 4]}).measure()
        with raises(InvalidParameter, parameter="covariates"):
            Covariates.read({"age": ["3", "4"]}, like)

    def test_text_with_one_level(self):
        with raises(InvalidParameter, parameter="covariates", value=["a"]):
            Covariates.read({"x": ["a", "a"]})

    def test_repeated_column(self):
        with raises(InvalidParameter, parameter="covariates", value=["x", "x"]):
            Covariates.read(pd.DataFrame([[1, 2]], columns=["x", "x"]))


class TestScale:
    def test_means_and_standard_deviations(self):
        scale = Covariates.read(np.array([[1.0, 0.0], [3.0, 0.0], [5.0, 3.0]])).measure()
        np.testing.assert_allclose(scale.mean, [3.0, 1.0], rtol=1e-15)
        np.testing.assert_allclose(scale.scale, [np.sqrt(8 / 3), np.sqrt(2.0)], rtol=1e-15)
        np.testing.assert_allclose(scale.standardise(np.array([[3.0, 1.0]])), [[0.0, 0.0]], atol=0)

    def test_constant_column(self):
        with raises(InvalidParameter, parameter="covariates", value=0.1, index=(0, 1)):
            Covariates.read(np.array([[1.0, 0.1], [3.0, 0.1], [5.0, 0.1]])).measure()

    def test_columns_that_depend_on_others(self):
        x = np.random.default_rng(0).normal(size=(20, 2))
        Covariates.read(x).check_independent()
        for column in (-2.0 * x[:, 0] + 1.0, x[:, 0] + x[:, 1]):
            table = {"a": x[:, 0], "b": x[:, 1], "c": column}
            with raises(InvalidParameter, parameter="covariates", value="c", index=2):
                Covariates.read(table).check_independent()


class TestSteps:
    def test_rows_of_states_without_decision_are_dropped(self):
        values = np.arange(10.0).reshape(5, 2)
        np.testing.assert_array_equal(Covariates.for_steps(values, DEMOS).values, values[[0, 1, 3]])
        np.testing.assert_array_equal(Covariates.for_steps(values[:3], DEMOS).values, values[:3])

    def test_names_are_those_of_the_frame(self):
        read = Covariates.for_steps(pd.DataFrame({"light": [0.0, 1.0, 0.0], "hour": [1, 2, 3]}), DEMOS)
        assert read.names == ("light", "hour")
        assert Covariates.for_steps(np.zeros(3), DEMOS).names == ("covariate 0",)

    @pytest.mark.parametrize("bad", [np.nan, np.inf])
    def test_gap_raises_with_its_position(self, bad):
        with raises(InvalidParameter, parameter="covariates", value=bad, index=(2, 1)):
            Covariates.for_steps(np.array([[1.0, 0.0], [3.0, 0.0], [5.0, bad]]), DEMOS)

    @pytest.mark.parametrize("shape", [(4, 1), (3, 0), (3, 1, 1), (0, 2)])
    def test_wrong_shape(self, shape):
        with raises(InvalidParameter, parameter="covariates", value=shape):
            Covariates.for_steps(np.zeros(shape), DEMOS)


class TestUnits:
    demos = Demonstrations.from_frame(
        {"demo": ["x", "x", "y", "z"], "t": [0, 1, 0, 0], "state": [0, 1, 1, 0], "group": ["b", "b", "a", "b"]}
    )
    units = Groups.from_labels(["b", "a", "b"], 3)

    def test_rows_per_demonstration_and_per_group(self):
        alone = Groups.from_labels(None, 3)
        np.testing.assert_array_equal(Covariates.for_units([1, 2, 3], self.demos, alone).values, [[1], [2], [3]])
        np.testing.assert_array_equal(Covariates.for_units([7, 8], self.demos, self.units).values, [[7], [8]])
        np.testing.assert_array_equal(Covariates.for_units([8, 7, 8], self.demos, self.units).values, [[7], [8]])

    @pytest.mark.parametrize("make", [dict, pd.DataFrame, pl.DataFrame, pa.table])
    def test_rows_are_matched_by_key(self, make):
        alone = Groups.from_labels(None, 3)
        by_demo = make({"demo": ["z", "other", "x", "y"], "age": [3, 0, 1, 2]})
        np.testing.assert_array_equal(Covariates.for_units(by_demo, self.demos, alone).values, [[1], [2], [3]])
        by_group = make({"age": [5, 6], "group": ["b", "a"]})
        np.testing.assert_array_equal(Covariates.for_units(by_group, self.demos, alone).values, [[5], [6], [5]])
        np.testing.assert_array_equal(Covariates.for_units(by_group, self.demos, self.units).values, [[6], [5]])

    def test_numbers_match_text(self):
        demos = Demonstrations.from_lists([[0], [1]])
        read = Covariates.for_units({"demo": ["1", "0"], "age": [5, 6]}, demos, Groups.from_labels(None, 2))
        np.testing.assert_array_equal(read.values, [[6], [5]])

    def test_covariate_that_differs_within_a_group(self):
        with raises(InvalidParameter, parameter="covariates", value=[3.0], index=2):
            Covariates.for_units([1, 2, 3], self.demos, self.units)

    def test_missing_and_repeated_keys(self):
        with raises(InvalidParameter, parameter="covariates", value="a"):
            Covariates.for_units({"group": ["b"], "age": [5]}, self.demos, self.units)
        with raises(InvalidParameter, parameter="covariates", value="b", index=2):
            Covariates.for_units({"group": ["b", "a", "b"], "age": [5, 6, 7]}, self.demos, self.units)

    def test_groups_without_groups(self):
        with raises(InvalidParameter, parameter="covariates", value="group"):
            Covariates.for_units({"group": ["a"], "age": [5]}, DEMOS, Groups.from_labels(None, 2))

    def test_wrong_number_of_rows(self):
        with raises(InvalidParameter, parameter="covariates", value=(4,)):
            Covariates.for_units([1, 2, 3, 4], self.demos, self.units)

    def test_table_without_covariates(self):
        with raises(InvalidParameter, parameter="covariates", value=["demo"]):
            Covariates.for_units({"demo": ["x", "y", "z"]}, self.demos, Groups.from_labels(None, 3))
