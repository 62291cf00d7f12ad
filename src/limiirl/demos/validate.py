"""Checks of the arrays of `Demonstrations`."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from limiirl.errors import InvalidDemos

NOT_RECORDED = -1
"""The action of a step whose action is unknown, and of the last state of a demonstration."""

# Room above every index that can occur, and below the point where the comparison of a float with it would round.
_LARGEST = 2**62

_REMEDY = {
    "state": "Number the states 0, 1, 2, ...",
    "action": f"Number the actions 0, 1, 2, ..., with {NOT_RECORDED} for one that was not recorded.",
}


def as_readonly(array: NDArray[Any]) -> NDArray[Any]:
    """Return `array` read-only and contiguous; a writeable one is copied, since its owner may go on writing to it.

    Examples
    --------
    >>> import numpy as np
    >>> mine = np.arange(3)
    >>> theirs = as_readonly(mine)
    >>> mine[0] = 7
    >>> theirs.tolist(), theirs.flags.writeable
    ([0, 1, 2], False)
    """
    if array.flags.writeable or not array.flags.c_contiguous:
        array = array.copy()
        array.flags.writeable = False
    return array


def locate(offsets: NDArray[np.int64], position: int) -> tuple[int, int]:
    """Return the demonstration and the step of a position in the flat arrays."""
    demo = int(np.searchsorted(offsets, position, side="right")) - 1
    return demo, int(position - offsets[demo])


def name_demo(ids: NDArray[Any] | None, demo: int) -> str:
    """Name a demonstration by its index, and by its id where that says more.

    Examples
    --------
    >>> name_demo(None, 4)
    'demonstration 4'
    """
    if ids is None or demo >= len(ids) or ids[demo] == demo:
        return f"demonstration {demo}"
    return f"demonstration {demo} (id {ids[demo].item()!r})"


def name_step(ids: NDArray[Any] | None, index: tuple[int, int]) -> str:
    """Name a step of a demonstration for an error message."""
    return f"{name_demo(ids, index[0])}, step {index[1]}"


def as_offsets(offsets: object, n: int) -> NDArray[np.int64]:
    """Check that `offsets` cuts n states into demonstrations of at least one state each."""
    array = np.asarray(offsets)
    if array.ndim != 1 or array.size == 0 or array.dtype.kind not in "iu":
        raise InvalidDemos(
            f"offsets must be a one-dimensional integer array of length N + 1; got shape {array.shape}, dtype "
            f"{array.dtype}. Use Demonstrations.from_lists to have them computed.",
            parameter="offsets",
            value=array.shape,
        )
    array = array.astype(np.int64, copy=False)
    if array[0] != 0 or array[-1] != n:
        raise InvalidDemos(
            f"offsets must begin with 0 and end with the number of states, {n}; they begin with {array[0]} and end "
            f"with {array[-1]}. Use Demonstrations.from_lists to have them computed.",
            parameter="offsets",
            value=(int(array[0]), int(array[-1])),
        )
    lengths = np.diff(array)
    if np.any(lengths <= 0):
        demo = int(np.argmax(lengths <= 0))
        if lengths[demo] == 0:
            raise InvalidDemos(
                f"demonstration {demo} is empty; a demonstration has at least one state. Leave it out.",
                parameter="states",
                value=0,
                index=demo,
            )
        raise InvalidDemos(
            f"offsets must increase; offsets[{demo}] is {array[demo]} and offsets[{demo + 1}] is {array[demo + 1]}. "
            "Use Demonstrations.from_lists to have them computed.",
            parameter="offsets",
            value=int(array[demo + 1]),
            index=demo + 1,
        )
    return array


def as_indices(
    values: object, what: str, lowest: int, offsets: NDArray[np.int64], ids: NDArray[Any] | None = None
) -> NDArray[np.int64]:
    """Return whole numbers of at least `lowest` as int64; `what` is "state" or "action".

    Whole numbers stored as floats pass, because a column of a frame turns into floats as soon as one entry is missing.
    """
    array = np.asarray(values)
    if array.ndim != 1:
        raise InvalidDemos(
            f"{what}s must form one flat sequence; got shape {array.shape}. Pass one number per step.",
            parameter=f"{what}s",
            value=array.shape,
        )
    if array.size == 0:
        return np.empty(0, dtype=np.int64)
    if array.dtype.kind in "iu":
        wrong = (array < lowest) | (array > _LARGEST)
    elif array.dtype.kind == "f":
        # Written so that NaN, for which every comparison is false, counts as wrong.
        wrong = ~((array >= lowest) & (array <= _LARGEST) & (array == np.floor(array)))
    else:
        whole = (isinstance(x, int | np.integer) and x <= _LARGEST for x in array.tolist())
        wrong = ~np.fromiter(whole, dtype=np.bool_, count=array.size)
        # A column of booleans passes as whole numbers, but numbers it has none.
        wrong[0] |= not wrong.any()
    if np.any(wrong):
        i = int(np.argmax(wrong))
        value, index = array.tolist()[i], locate(offsets, i)
        raise InvalidDemos(
            f"{name_step(ids, index)}: {what} {value!r} {_fault(value, lowest)}. {_REMEDY[what]}",
            parameter=f"{what}s",
            value=value,
            index=index,
        )
    return array.astype(np.int64, copy=False)


def _fault(value: object, lowest: int) -> str:
    """Say what is wrong with a state or an action."""
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value or value % 1 != 0:
        return "is not an integer"
    return f"is below {lowest}" if value < lowest else "is too large"


def as_actions(values: object, offsets: NDArray[np.int64], ids: NDArray[Any] | None = None) -> NDArray[np.int64] | None:
    """Check actions aligned with the states, and return None in their place where not one of them was recorded.

    One form for "nothing recorded" keeps equality and concatenation free of special cases.
    """
    if values is None:
        return None
    actions = as_indices(values, "action", NOT_RECORDED, offsets, ids)
    if actions.size != offsets[-1]:
        raise InvalidDemos(
            f"actions must be aligned with states; got {actions.size} actions for {offsets[-1]} states. "
            f"Write {NOT_RECORDED} at the last state of each demonstration, or use Demonstrations.from_lists.",
            parameter="actions",
            value=actions.size,
        )
    lasts = offsets[1:] - 1
    if np.any(actions[lasts] != NOT_RECORDED):
        position = int(lasts[np.argmax(actions[lasts] != NOT_RECORDED)])
        index = locate(offsets, position)
        raise InvalidDemos(
            f"{name_step(ids, index)}: action {actions[position]} at the last state leads nowhere. "
            f"Write {NOT_RECORDED} there, or add the state that the action led to.",
            parameter="actions",
            value=int(actions[position]),
            index=index,
        )
    return None if np.all(actions == NOT_RECORDED) else actions


def as_attribute(values: object, what: str, n: int) -> NDArray[Any] | None:
    """Check one value per demonstration (groups, labels or ids): integers, floats, booleans or strings, none missing.

    Examples
    --------
    >>> as_attribute(["ann", "bob"], "groups", 2).tolist()
    ['ann', 'bob']
    >>> as_attribute([0, 1, 1], "labels", 2)
    Traceback (most recent call last):
    limiirl.errors.InvalidDemos: labels must have one entry per demonstration; got shape (3,) for 2 demonstrations. ...
    """
    if values is None:
        return None
    array = np.asarray(values)
    if array.dtype.kind == "U" and not isinstance(values, np.ndarray):
        # NumPy has turned the whole list into text, a missing value into "nan": look at the originals.
        array = np.asarray(values, dtype=object)
    if array.shape != (n,):
        raise InvalidDemos(
            f"{what} must have one entry per demonstration; got shape {array.shape} for {n} demonstrations. "
            f"Pass {n} entries, in the order of the demonstrations.",
            parameter=what,
            value=array.shape,
        )
    remedy = f"Pass integers, floats, booleans or strings, one for every demonstration, or {what}=None."
    if array.dtype.kind in "OT":
        array = _from_objects(array, what, remedy)
    if array.dtype.kind in "iu":
        if n and array.max() > np.iinfo(np.int64).max:
            raise InvalidDemos(
                f"{what}[{int(array.argmax())}] is {array.max()}, too large for int64. {remedy}",
                parameter=what,
                value=int(array.max()),
                index=int(array.argmax()),
            )
        return array.astype(np.int64, copy=False)
    if array.dtype.kind == "f":
        if np.any(np.isnan(array)):
            raise InvalidDemos(
                f"{what}[{int(np.argmax(np.isnan(array)))}] is NaN: missing. {remedy}",
                parameter=what,
                value=float(np.nan),
                index=int(np.argmax(np.isnan(array))),
            )
        return array.astype(np.float64, copy=False)
    if array.dtype.kind not in "bU":
        raise InvalidDemos(f"{what} have dtype {array.dtype}. {remedy}", parameter=what, value=array.dtype)
    return array


def _from_objects(array: NDArray[Any], what: str, remedy: str) -> NDArray[Any]:
    """Give an array of Python objects the type that all of them share."""
    if array.size == 0:
        return array.astype(np.str_)
    values = array.tolist()
    types = set(map(type, values))
    for kind in (str, bool, int | float | np.number):
        if all(issubclass(x, kind) and (kind is bool or x is not bool) for x in types):
            return np.array(values)
    common = type(values[0])
    odd = next((i for i, x in enumerate(values) if type(x) is not common), 0)
    raise InvalidDemos(
        f"{what}[{odd}] is {values[odd]!r}: missing, or of another type than the rest. {remedy}",
        parameter=what,
        value=values[odd],
        index=odd,
    )
