"""Selection and concatenation of demonstrations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from limiirl.demos.validate import NOT_RECORDED
from limiirl.errors import InvalidDemos, InvalidParameter

if TYPE_CHECKING:
    from limiirl.demos.demonstrations import Demonstrations


_ATTRIBUTES = ("groups", "labels", "ids")

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


def get_demonstration(demos: Demonstrations, index: int) -> Demonstration:
    """Return one demonstration; a negative index counts from the end."""
    i = int(_as_index_array([index], len(demos))[0])
    start, stop = int(demos.offsets[i]), int(demos.offsets[i + 1])
    if demos.actions is None:
        actions = np.full(stop - start - 1, NOT_RECORDED, dtype=np.int64)
    else:
        actions = demos.actions[start : stop - 1]
    attributes = (None if x is None else x[i].item() for x in (demos.groups, demos.labels, demos.ids))
    return Demonstration(demos.states[start:stop], actions, *attributes)


def select_fields(demos: Demonstrations, index: Subset) -> dict[str, Any]:
    """Return the fields of some demonstrations; see `Demonstrations.subset`."""
    selected = _as_index_array(index, len(demos))
    lengths = demos.lengths[selected]
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    rows = np.arange(offsets[-1]) + np.repeat(demos.offsets[selected] - offsets[:-1], lengths)
    fields: dict[str, Any] = {"states": demos.states[rows], "offsets": offsets}
    fields["actions"] = None if demos.actions is None else demos.actions[rows]
    for name in _ATTRIBUTES:
        values = getattr(demos, name)
        fields[name] = None if values is None else values[selected]
    return fields


def concatenate_fields(parts: Sequence[Demonstrations]) -> dict[str, Any]:
    """Return the concatenated fields of several sets; see `Demonstrations.concat`."""
    empty = np.empty(0, dtype=np.int64)  # np.concatenate needs at least one array
    lengths = np.concatenate([empty, *(part.lengths for part in parts)])
    actions = (np.full(x.n_steps, NOT_RECORDED) if x.actions is None else x.actions for x in parts)
    fields: dict[str, Any] = {
        "states": np.concatenate([empty, *(part.states for part in parts)]),
        "offsets": np.concatenate([[0], np.cumsum(lengths)]),
        "actions": np.concatenate([empty, *actions]),
    }
    for name in _ATTRIBUTES:
        fields[name] = _concatenate(name, [getattr(part, name) for part in parts])
    return fields


def _as_index_array(index: Subset, n: int) -> NDArray[np.int64]:
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


def _concatenate(name: str, parts: Sequence[NDArray[Any] | None]) -> NDArray[Any] | None:
    """Concatenate the groups, labels or ids of several sets; all sets must have them with one dtype, or none."""
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
