"""Keeping the backward messages: all of them, or every so many and the rest again when the forward sweep comes by."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

Float = NDArray[np.float64]
# (rows, exponents, first step): fill the rows of a stretch of steps from its last one.
Sweep = Callable[[Float, NDArray[np.int64], int], None]


class Messages:
    """The messages of `length` steps, of `row` doubles and `n_columns` exponents each.

    Storing all takes length * row doubles. Where that is more than `max_bytes`, the steps are cut into stretches of
    about sqrt(length): the first backward sweep keeps the message at the end of each stretch, and `stretches`
    recomputes the ones inside, for one more backward sweep in all and about 2 sqrt(length) rows of memory. Recomputed
    messages are the same bits. `xp` is the module whose arrays they are.
    """

    def __init__(self, length: int, row: int, n_columns: int, max_bytes: float, xp: Any = np) -> None:
        self.length = length
        self.stretch = max(1, length - 1) if 8 * row * length <= max_bytes else _root(length)
        self.bounds = _bounds(length, self.stretch)
        held, kept = _sizes(self.bounds)
        self._rows: Any = xp.zeros((held, row))
        self._exponents: Any = xp.zeros((held, n_columns), dtype=np.int64)
        self._marks: Any = xp.zeros((kept, row))
        self._mark_exponents: Any = xp.zeros((kept, n_columns), dtype=np.int64)
        self._loaded = 0  # the stretch whose messages are in place

    @property
    def nbytes(self) -> int:
        """Memory held, in bytes."""
        return int(self._rows.nbytes + self._marks.nbytes)

    @staticmethod
    def least_rows(length: int) -> int:
        """Return how many rows are held where `max_bytes` does not allow all of them.

        Examples
        --------
        >>> Messages.least_rows(300), Messages.least_rows(4000)
        (37, 129)
        """
        return sum(_sizes(_bounds(length, _root(length))))

    def sweep_back(self, last: Float, sweep: Sweep) -> tuple[Float, NDArray[np.int64]]:
        """Run the whole backward sweep from the message of the last step; return that of step 0 and its exponents."""
        if self.length == 1:
            self._rows[0, : last.size] = last
            self._exponents[0] = 0
            return self._rows[0], self._exponents[0]
        n = len(self.bounds) - 1
        for j in range(n - 1, -1, -1):
            size = self.bounds[j + 1] - self.bounds[j]
            if j == n - 1:
                self._rows[size, : last.size] = last
                self._rows[size, last.size :] = 0.0
                self._exponents[size] = 0
            else:
                self._rows[size] = self._rows[0]
                self._exponents[size] = self._exponents[0]
            if self._marks.size:
                self._marks[j + 1] = self._rows[size]
                self._mark_exponents[j + 1] = self._exponents[size]
            sweep(self._rows[: size + 1], self._exponents[: size + 1], self.bounds[j])
        self._loaded = 0
        return self._rows[0], self._exponents[0]

    def stretches(self, sweep: Sweep, backwards: bool = False) -> Iterator[tuple[int, Float, NDArray[np.int64]]]:
        """Yield (first step, messages, exponents) of each stretch, in the order of time or against it.

        Neighbouring stretches share a step.
        """
        count = len(self.bounds) - 1
        for j in range(count - 1, -1, -1) if backwards else range(count):
            size = self.bounds[j + 1] - self.bounds[j]
            rows, exponents = self._rows[: size + 1], self._exponents[: size + 1]
            if j != self._loaded:
                rows[size] = self._marks[j + 1]
                exponents[size] = self._mark_exponents[j + 1]
                sweep(rows, exponents, self.bounds[j])
                self._loaded = j
            yield self.bounds[j], rows, exponents


def _root(length: int) -> int:
    """Return how many steps make a stretch where messages are recomputed."""
    return math.isqrt(max(1, length - 1))


def _bounds(length: int, stretch: int) -> list[int]:
    """Return the steps at which stretches begin and end."""
    return [*range(0, length - 1, stretch), length - 1]


def _sizes(bounds: list[int]) -> tuple[int, int]:
    """Return how many rows there are for the steps of one stretch, and for those at which several meet."""
    longest = max((after - before for before, after in pairwise(bounds)), default=0)
    return longest + 1, len(bounds) if len(bounds) > 2 else 0


class KeptMessages(threading.local):
    """The messages' memory of an engine, by the number of columns: each thread that uses the engine has its own."""

    def __init__(self) -> None:
        self.by_columns: dict[int, Messages] = {}

    def __reduce__(self) -> tuple[type[KeptMessages], tuple[()]]:
        """Return none of it: what is pickled starts with no memory."""
        return KeptMessages, ()
