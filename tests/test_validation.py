"""Checks of arguments."""

import numpy as np
import pytest

from limiirl._validation import check_positive
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
