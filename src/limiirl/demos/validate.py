"""Checks of the arrays of `Demonstrations`."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from limiirl._validation import is_collection, to_array
from limiirl.errors import InvalidDemos, InvalidParameter
from limiirl.mdp import is_frozen

NOT_RECORDED = -1
"""Value of an unrecorded action, and of the action in the last state of a demonstration."""

# Upper limit of indices; it is exactly representable as a float.
_LARGEST = 2**62

_REMEDY = {
    "state": "Number the states from 0.",
    "action": f"Number the actions from 0, with {NOT_RECORDED} for unrecorded actions.",
}


def as_array(values: object, name: str) -> NDArray[Any]:
    """Return `values` as an array; raise if nested lists have different lengths, or if an entry is masked."""
    try:
        return to_array(values, name)
    except InvalidParameter as error:
        raise InvalidDemos(str(error), parameter=name, value=values) from None


def as_readonly(array: NDArray[Any]) -> NDArray[Any]:
    """Return `array` if its memory is read-only and contiguous, otherwise a read-only copy.

    A read-only view of a writeable array is copied, because it would change with that array.

    Examples
    --------
    >>> array = np.zeros(3)
    >>> view = array.view()
    >>> view.flags.writeable = False
    >>> as_readonly(view) is view
    False
    """
    if not is_frozen(array):
        array = array.copy()
        array.flags.writeable = False
    return array


def locate(offsets: NDArray[np.int64], position: int) -> tuple[int, int]:
    """Return the demonstration and the step of a position in the flat arrays."""
    demo = int(np.searchsorted(offsets, position, side="right")) - 1
    return demo, int(position - offsets[demo])


def name_demo(ids: NDArray[Any] | None, demo: int) -> str:
    """Return the name of a demonstration for messages: its index and, if different, its id."""
    if ids is None or demo >= len(ids) or ids[demo] == demo:
        return f"demonstration {demo}"
    return f"demonstration {demo} (id {ids[demo].item()!r})"


def name_step(ids: NDArray[Any] | None, index: tuple[int, int]) -> str:
    """Return the name of a step of a demonstration for messages."""
    return f"{name_demo(ids, index[0])}, step {index[1]}"


def as_offsets(offsets: object, n: int) -> NDArray[np.int64]:
    """Return offsets as an array; raise unless they divide n states into nonempty demonstrations."""
    array = as_array(offsets, "offsets")
    if array.ndim != 1 or array.size == 0 or array.dtype.kind not in "iu":
        raise InvalidDemos.of(
            "offsets", array.shape, f"must be a one-dimensional array of N + 1 integers, not {array.dtype}"
        )
    array = array.astype(np.int64, copy=False)
    if array[0] != 0 or array[-1] != n:
        ends = int(array[0]), int(array[-1])
        raise InvalidDemos.of("offsets", ends, f"must begin with 0 and end with the number of states, {n}")
    lengths = np.diff(array)
    if np.any(lengths <= 0):
        demo = int(np.argmax(lengths <= 0))
        if lengths[demo] == 0:
            message = f"demonstration {demo} must have at least one state; it is empty."
            raise InvalidDemos(message, parameter="states", value=0, index=demo)
        raise InvalidDemos.of("offsets", int(array[demo + 1]), f"must exceed {array[demo]}", index=demo + 1)
    return array


def as_indices(
    values: object, name: str, lowest: int, offsets: NDArray[np.int64], ids: NDArray[Any] | None = None
) -> NDArray[np.int64]:
    """Return `values` as int64; raise unless they are integers >= `lowest`. `name` is "state" or "action".

    Integral floats are accepted, since data frames convert integer columns with missing entries to float.
    """
    array = as_array(values, f"{name}s")
    if array.ndim != 1:
        raise InvalidDemos.of(f"{name}s", array.shape, "must be one-dimensional")
    if array.size == 0:
        return np.empty(0, dtype=np.int64)
    if array.dtype.kind in "iu":
        wrong = (array < lowest) | (array > _LARGEST)
    elif array.dtype.kind == "f":
        # NaN fails every comparison and is therefore reported as invalid.
        wrong = ~((array >= lowest) & (array <= _LARGEST) & (array == np.floor(array)))
    else:
        wrong = ~np.fromiter((_is_index(x, lowest) for x in array.tolist()), dtype=np.bool_, count=array.size)
    if np.any(wrong):
        i = int(np.argmax(wrong))
        value, index = array.tolist()[i], locate(offsets, i)
        message = f"{name_step(ids, index)}: {name} {value!r} {_describe_fault(value, lowest)}. {_REMEDY[name]}"
        raise InvalidDemos(message, parameter=f"{name}s", value=value, index=index)
    return array.astype(np.int64, copy=False)


def _is_index(value: object, lowest: int) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and lowest <= int(value) <= _LARGEST


def _describe_fault(value: object, lowest: int) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value or value % 1 != 0:
        return "is not an integer"
    return f"is below {lowest}" if value < lowest else "is too large"


def as_names(values: Any, name: str, numbers: NDArray[np.int64] | None) -> tuple[str, ...] | None:
    """Return names as a tuple; raise unless they are distinct strings, one per index up to the largest of `numbers`."""
    if values is None:
        return None
    if not is_collection(values):
        raise InvalidDemos.of(name, values, "must be a sequence of strings", remedy="Put it in a list.")
    names, n = tuple(values), 1 + int(-1 if numbers is None else numbers.max(initial=-1))
    if len(names) < n:
        raise InvalidDemos.of(name, len(names), f"must have at least {n} entries, one per {name.partition('_')[0]}")
    position: dict[str, int] = {}
    for i, value in enumerate(names):
        if not isinstance(value, str):
            raise InvalidDemos.of(name, value, "must be a string", index=i)
        if not _is_encodable(value):
            raise InvalidDemos.of(name, value, "must contain no lone surrogates, which UTF-8 cannot encode", index=i)
        if position.setdefault(value, i) != i:
            raise InvalidDemos.of(name, value, "must not repeat a name", index=i)
    return tuple(map(str, names))


def as_step_times(values: object, n: int) -> NDArray[Any] | None:
    """Return the time of each step as numbers, dates, durations or text; other objects are converted to text."""
    if values is None:
        return None
    array = to_array(values, "times")
    if array.shape != (n,):
        raise InvalidDemos.of("times", array.shape, f"must have one entry per step ({n} in total)")
    if array.dtype.kind in "OT":
        array = np.array([str(x) for x in array.tolist()], dtype=np.str_)
    if array.dtype.kind not in "iufmMU":
        raise InvalidDemos.of("times", array.dtype, "must contain numbers, dates or text")
    return array


def _is_encodable(text: str) -> bool:
    return text.isascii() or not any("\ud800" <= character <= "\udfff" for character in text)


def as_actions(values: object, offsets: NDArray[np.int64], ids: NDArray[Any] | None = None) -> NDArray[np.int64] | None:
    """Return validated actions aligned with the states; None if no action is recorded."""
    if values is None:
        return None
    actions = as_indices(values, "action", NOT_RECORDED, offsets, ids)
    if actions.size != offsets[-1]:
        rule, remedy = f"must have one entry per state ({offsets[-1]} in total)", f"Use {NOT_RECORDED} at last states."
        raise InvalidDemos.of("actions", actions.size, rule, remedy=remedy)
    lasts = offsets[1:] - 1
    if np.any(actions[lasts] != NOT_RECORDED):
        position = int(lasts[np.argmax(actions[lasts] != NOT_RECORDED)])
        index = locate(offsets, position)
        message = (
            f"{name_step(ids, index)}: action {actions[position]} in the last state has no successor. "
            f"Use {NOT_RECORDED} there, or add the state that the action led to."
        )
        raise InvalidDemos(message, parameter="actions", value=int(actions[position]), index=index)
    return None if np.all(actions == NOT_RECORDED) else actions


def as_attribute(values: object, name: str, n: int) -> NDArray[Any] | None:
    """Return one value per demonstration (groups, labels or ids): integers, floats, booleans or strings."""
    if values is None:
        return None
    array = as_array(values, name)
    if array.dtype.kind == "U" and not isinstance(values, np.ndarray):
        # NumPy has converted the list to strings, including missing values.
        array = np.asarray(values, dtype=object)
    if array.shape != (n,):
        raise InvalidDemos.of(name, array.shape, f"must have one entry per demonstration ({n} in total)")
    remedy = f"Pass integers, floats, booleans or strings, or {name}=None."
    if array.dtype.kind in "OT":
        array = _from_objects(array, name, remedy)
    if array.dtype.kind in "iu":
        if n and array.max() > np.iinfo(np.int64).max:
            raise InvalidDemos.of(name, int(array.max()), "must fit into int64", index=int(array.argmax()))
        return array.astype(np.int64, copy=False)
    if array.dtype.kind == "f":
        if np.any(np.isnan(array)):
            index = int(np.argmax(np.isnan(array)))
            raise InvalidDemos.of(name, float("nan"), "must not contain missing values", index=index, remedy=remedy)
        return array.astype(np.float64, copy=False)
    if array.dtype.kind not in "bU":
        raise InvalidDemos.of(name, array.dtype, "must contain numbers or strings", remedy=remedy)
    return array


def _from_objects(array: NDArray[Any], name: str, remedy: str) -> NDArray[Any]:
    """Convert Python objects to an array of their common type."""
    if array.size == 0:
        return array.astype(np.str_)
    values = array.tolist()
    types = set(map(type, values))
    for kind in (str, bool, int | float | np.number):
        if all(issubclass(x, kind) and (kind is bool or x is not bool) for x in types):
            nul = next((i for i, x in enumerate(values) if kind is str and x.endswith("\0")), None)
            if nul is not None:  # NumPy would remove the character
                raise InvalidDemos.of(name, values[nul], "must not end in a NUL character", index=nul)
            return np.array(values)
    common = type(values[0])
    other = next((i for i, x in enumerate(values) if type(x) is not common), 0)
    raise InvalidDemos.of(
        name, values[other], "must not contain missing values or values of another type", index=other, remedy=remedy
    )
