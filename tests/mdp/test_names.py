"""Numbers of text values."""

import numpy as np
import pytest

from limiirl.mdp import encode, is_text, name_of, renumber


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
