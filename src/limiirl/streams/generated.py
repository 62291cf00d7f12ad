"""Parts that a function makes whenever they are read: no disk, and any number of rows."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from limiirl.errors import InvalidParameter
from limiirl.irl.checks import count
from limiirl.kernels.expectation import Rows
from limiirl.streams.parts import Facts


@dataclass(frozen=True)
class GeneratedPart:
    """A part that a function makes whenever it is read: function(index) -> Rows.

    Attributes
    ----------
    n_features : int
        Columns of the features.
    mark : str
        What the caller says of the data; another is taken for other data.
    by_group : bool
        Whether a row may stand for several demonstrations, which are its count.
    """

    index: int
    function: Callable[[int], Rows]
    facts: Facts
    n_features: int
    mark: str = ""
    by_group: bool = False

    @property
    def name(self) -> str:
        """Its number."""
        return f"part {self.index}"

    @property
    def fingerprint(self) -> str:
        """What is known of its content without making it: its size, the function's name, and the mark."""
        return f"{self.name}: {self.facts}, {name_of(self.function)}, {self.mark}"

    def windows(self, block: int) -> Iterator[Rows]:
        """Yield all rows at once: they are in memory already."""
        del block
        yield self._made()

    def take(self, index: NDArray[np.int64]) -> Rows:
        """Return some rows."""
        return Rows(*(array[index] for array in self._made()))

    def names(self) -> None:
        """Return None: rows have numbers only."""

    def _made(self) -> Rows:
        rows = self._arrays(self.function(self.index))
        if {array.shape[:1] for array in rows} != {(self.facts.n,)}:
            n_rows, n_log_q, n_counts = (len(np.atleast_1d(array)) for array in rows)
            raise InvalidParameter(
                f"{self.name}: the function made {n_rows} rows of features, {n_log_q} of log q and {n_counts} counts; "
                f"{self.facts.n} of each were announced."
            )
        expected = ((self.facts.n, self.n_features), (self.facts.n,), (self.facts.n,))
        for what, array, shape in zip(Rows._fields, rows, expected, strict=True):
            if array.shape != shape:
                raise InvalidParameter(
                    f"{self.name}: the function made {what} of the shape {array.shape}; {shape} was announced."
                )
        if not self.by_group and np.any(rows.counts != 1.0):
            row = int(np.argmax(rows.counts != 1.0))
            raise InvalidParameter(
                f"{self.name}, row {row}: its count is {rows.counts[row]:g}. A row that is generated is one "
                "demonstration, with the count 1; groups need files: write_features(..., by_group=True)."
            )
        return rows

    def _arrays(self, made: Any) -> Rows:
        """Return what the function made as arrays of numbers."""
        if not isinstance(made, tuple | list) or len(made) != len(Rows._fields):
            raise InvalidParameter(
                f"{self.name}: the function must return Rows(features, log_q, counts); it returned a "
                f"{type(made).__name__}."
            )
        try:
            return Rows(*(np.ascontiguousarray(array, dtype=np.float64).reshape(np.shape(array)) for array in made))
        except (TypeError, ValueError) as error:
            raise InvalidParameter(f"{self.name}: the function must return numbers ({error!s:.200}).") from None


def generated_parts(
    function: Any, sizes: Sequence[Any], n_features: Any, longest: Any, mark: Any
) -> tuple[GeneratedPart, ...]:
    """Return the parts of `FeatureStore.generated`, whose arguments these are.

    Examples
    --------
    >>> parts = generated_parts(lambda i: Rows(np.eye(2), np.zeros(2), np.ones(2)), [2, 2], 2, 3, "")
    >>> [part.name for part in parts]
    ['part 0', 'part 1']
    """
    check_function(function, mark)
    count(n_features, "n_features")
    count(longest, "longest")
    try:
        listed = list(sizes)
    except TypeError:
        raise InvalidParameter(f"sizes must be a list of numbers of rows; it is {sizes!r}.") from None
    if not listed:
        raise InvalidParameter("sizes is empty: a store must have at least one part.")
    for index, n in enumerate(listed):
        whole = isinstance(n, int | np.integer) or (isinstance(n, float | np.floating) and float(n).is_integer())
        if not whole or n < 1:
            raise InvalidParameter(
                f"sizes must be whole numbers of at least 1; part {index} has {n!r}. Leave out parts without rows."
            )
    return tuple(
        GeneratedPart(index, function, Facts(int(n), int(n), int(longest), 0, None, 0), int(n_features), mark)
        for index, n in enumerate(listed)
    )


def check_function(function: Any, mark: Any) -> None:
    """Check what is to make parts, and the text that stands for its data."""
    if not callable(function):
        raise InvalidParameter(f"function must be a function of a part's number; it is {function!r}.")
    if not isinstance(mark, str):
        raise InvalidParameter(f"mark must be a text, such as a date or str(seed); it is {mark!r}.")


def name_of(value: Any) -> str:
    """Return the full name of a function or class, or of an object's class: what tells it from others, if not surely.

    >>> name_of(functools.partial(len)), name_of(np.eye(2))
    ('partial of builtins.len', 'numpy.ndarray')
    """
    if isinstance(value, functools.partial):
        return f"partial of {name_of(value.func)}"
    named = value if hasattr(value, "__qualname__") else type(value)
    return f"{named.__module__}.{named.__qualname__}"
