"""Groups of demonstrations."""

import numpy as np
import pytest

from limiirl.demos.groups import Groups
from limiirl.errors import InvalidDemos
from tests.helpers import raises


def test_without_labels_each_demonstration_is_a_group():
    units = Groups.from_labels(None, 3)
    values = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    assert len(units) == 3
    assert not units.grouped
    assert units.noun == "demonstrations"
    for method in (units.sum, units.mean, units.broadcast):
        np.testing.assert_array_equal(method(values), values)


def test_groups_are_summed_averaged_and_broadcast():
    units = Groups.from_labels(np.array([7, 3, 7, 7]), 4)
    values = np.array([[1.0], [10.0], [2.0], [6.0]])
    assert units.names.tolist() == [3, 7]
    assert units.counts.tolist() == [1.0, 3.0]
    assert units.sum(values).ravel().tolist() == [10.0, 9.0]
    assert units.mean(values).ravel().tolist() == [10.0, 3.0]
    assert units.sum(values[:, 0]).tolist() == [10.0, 9.0]
    assert units.broadcast(np.array([0.25, 0.5])).tolist() == [0.5, 0.25, 0.5, 0.5]


@pytest.mark.parametrize("groups", [[1, 2], [[1], [2], [3]], [1.0, np.nan, 2.0], ["a", None, "b"]])
def test_labels_of_wrong_length_are_rejected(groups):
    with raises(InvalidDemos, parameter="groups"):
        Groups.from_labels(groups, 3)
