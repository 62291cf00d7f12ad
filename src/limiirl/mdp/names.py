"""Numbering of states and actions by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from limiirl._typing import BoolArray, IntArray


def is_text(values: NDArray[Any]) -> bool:
    """Return True if an array contains strings; an object array is text if any value is a string."""
    return values.dtype.kind in "UT" or (values.dtype.kind == "O" and any(isinstance(x, str) for x in values.flat))


def encode(values: NDArray[Any], missing: BoolArray, names: Sequence[str] | None) -> tuple[IntArray, tuple[str, ...]]:
    """Number text values by their position in `names`; by default, the distinct values in sorted order.

    Missing values are numbered -1, and values that are not among the names -2.

    Examples
    --------
    >>> encode(np.array(["pond", "den", ""]), np.array([False, False, True]), None)
    (array([ 1,  0, -1]), ('den', 'pond'))
    """
    present = values[~missing].tolist()  # not an array of strings, which would drop trailing NUL characters
    distinct = {x for x in present if isinstance(x, str)}
    named = tuple(sorted(distinct) if names is None else names)
    number = dict(zip(distinct, renumber(list(distinct), named).tolist(), strict=True))
    codes = np.full(values.size, -1, dtype=np.int64)
    codes[~missing] = [number[x] if isinstance(x, str) else -2 for x in present]
    return codes, named


def renumber(names: Sequence[str], target: Sequence[str]) -> IntArray:
    """Return the position in `target` of each name: -2 if it is absent, -3 if it occurs more than once.

    >>> renumber(["den", "pond", "nest"], ["pond", "den", "den"])
    array([-3,  0, -2])
    """
    position: dict[str, int] = {}
    for i, name in enumerate(target):
        position[name] = -3 if name in position else i
    return np.array([position.get(name, -2) for name in names], dtype=np.int64)


def name_of(names: Sequence[str] | None, number: int) -> str:
    """Return the quoted name of a state or action for messages, or its number if there are no names."""
    return repr(names[number]) if names is not None and 0 <= number < len(names) else str(number)
