"""Checks of arguments."""

import numpy as np
import pytest

from limiirl._validation import available_memory, check_count, check_positive
from limiirl.errors import InvalidParameter
from tests.helpers import raises


@pytest.mark.parametrize("value", [True, np.True_, "1", None, 0, -1.0, np.inf, np.nan])
def test_check_positive_rejects(value):
    with raises(InvalidParameter, parameter="ridge", value=value):
        check_positive(value, "ridge")


@pytest.mark.parametrize("value", [2, np.float32(2.0), np.int64(2)])
def test_check_positive_returns_a_float(value):
    assert type(check_positive(value, "ridge")) is float
    assert check_positive(value, "ridge") == 2.0


def test_counts_that_exceed_the_memory_are_rejected():
    assert 0 < available_memory() < 1e15
    assert check_count(10**9, "n", bytes_each=0.01) == 10**9
    for value in (10**9, 10**30):
        with raises(InvalidParameter, parameter="n", value=value):
            check_count(value, "n", bytes_each=1e9)
