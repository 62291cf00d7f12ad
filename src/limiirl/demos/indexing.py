"""Selection and concatenation of demonstrations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from limiirl.errors import InvalidDemos, InvalidParameter

Subset: TypeAlias = slice | Sequence[int] | Sequence[bool] | NDArray[np.integer] | NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Demonstration:
    """One demonstration, as returned by `demos[i]`.

    Attributes
    ----------
    states : (T,) int64
        States, T >= 1.
    actions : (T - 1,) int64
        Actions between the states; -1 if not recorded.
    group, label, id
        Entries of `Demonstrations.groups`, `labels` and `ids`, or None.

    Examples
    --------
    >>> import limiirl.demos
    >>> demo = limiirl.demos.Demonstrations.from_lists([[0, 1, 2]], [[5, 6]], labels=["direct"])[0]
    >>> len(demo), demo.states.tolist(), demo.actions.tolist(), demo.label
    (3, [0, 1, 2], [5, 6], 'direct')
    """

    states: NDArray[np.int64]
    actions: NDArray[np.int64]
    group: Any = None
    label: Any = None
    id: Any = None

    def __len__(self) -> int:
        return self.states.size

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Demonstration):
            return NotImplemented
        return (
            np.array_equal(self.states, other.states)
            and np.array_equal(self.actions, other.actions)
            and (self.group, self.label, self.id) == (other.group, other.label, other.id)
        )

    def __hash__(self) -> int:
        return hash(self.states.tobytes())


def as_index_array(index: Subset, n: int) -> NDArray[np.int64]:
    """Return nonnegative indices below n from a slice, a mask or indices."""
    if isinstance(index, slice):
        return np.arange(n)[index]
    array = np.asarray(index)
    if array.ndim != 1:
        raise InvalidParameter.of("index", array.shape, "must be a one-dimensional mask or integer array")
    if array.dtype.kind == "b":
        if array.size != n:
            raise InvalidParameter.of("index", array.size, f"must have {n} entries if it is a mask")
        return np.flatnonzero(array)
    if array.size == 0:
        return np.empty(0, dtype=np.int64)
    if array.dtype.kind not in "iu":
        raise InvalidParameter.of("index", array.dtype, "must contain booleans or integers")
    outside = (array >= n) | (array < -n)
    if np.any(outside):
        raise IndexError(f"index {array[np.argmax(outside)]} is out of range for {n} demonstrations")
    return array.astype(np.int64) % n


def concatenate_attribute(name: str, parts: Sequence[NDArray[Any] | None]) -> NDArray[Any] | None:
    """Concatenate the groups, labels or ids of several sets; all or none of the sets must have them, with one dtype."""
    present = [part for part in parts if part is not None]
    if not present:
        return None
    drop = f"demos.replace({name}=None)"
    if len(present) < len(parts):
        absent = next(i for i, part in enumerate(parts) if part is None)
        having = next(i for i, part in enumerate(parts) if part is not None)
        message = f"part {absent} has no {name}, but part {having} does. Set them for all, or drop them: {drop}."
        raise InvalidDemos(message, parameter=name, index=absent)
    for i, part in enumerate(present):
        # NumPy would convert numbers to strings.
        if part.dtype.kind != present[0].dtype.kind:
            rule = f"must have the dtype of part 0, {present[0].dtype}"
            raise InvalidDemos.of(name, part.dtype, rule, index=i, remedy=f"Convert them, or drop them: {drop}.")
    return np.concatenate(present)


def same_arrays(one: NDArray[Any] | None, other: NDArray[Any] | None) -> bool:
    """Return True if two optional arrays have the same kind of dtype and the same content."""
    if one is None or other is None:
        return one is other
    return one.dtype.kind == other.dtype.kind and np.array_equal(one, other)
