"""From lists of lists to flat arrays."""

from collections.abc import Sequence, Sized
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from limiirl.demos.checks import NOT_RECORDED, as_indices, place
from limiirl.errors import InvalidDemos


def flatten(sequences: Sequence[object], what: str) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Concatenate sequences into one array, with their lengths.

    The type is left to NumPy, for a forced conversion to int64 would cut 2.5 to 2 without a word.

    Examples
    --------
    >>> flat, lengths = flatten([[3, 4], [5]], "states")
    >>> flat.tolist(), lengths.tolist()
    ([3, 4, 5], [2, 1])
    """
    try:
        lengths = np.fromiter(map(len, sequences), dtype=np.int64)  # type: ignore[arg-type]
    except TypeError:
        i = next(i for i, x in enumerate(sequences) if not isinstance(x, Sized) or getattr(x, "ndim", 1) == 0)
        raise InvalidDemos(
            f"{what}[{i}] is {sequences[i]!r}, not a sequence. Pass a list with one list of {what} a demonstration."
        ) from None
    if len(sequences) == 0:
        return np.empty(0, dtype=np.int64), lengths
    try:
        # Arrays are joined as wholes; walking through them element by element would take many times longer.
        if all(isinstance(x, np.ndarray) for x in sequences):
            return np.concatenate(sequences), lengths  # type: ignore[arg-type]
        values: list[object] = list(chain.from_iterable(sequences))  # type: ignore[arg-type]
        array = np.array(values)
        if array.dtype.kind not in "iuf":
            # One string turns all numbers into strings; an error about them should name that one.
            array = np.array(values, dtype=object)
        return array, lengths
    except ValueError as error:
        raise InvalidDemos(f"{what} must be a list of flat lists, one a demonstration ({error}).") from None


def spread_actions(actions: Sequence[object], offsets: NDArray[np.int64]) -> NDArray[np.int64]:
    """Align lists of actions with the states: -1 at the last state of each demonstration, and wherever a list is None.

    Parameters
    ----------
    actions : list of N sequences or None
        One action fewer than the demonstration has states, or None where it recorded none.
    offsets : (N + 1,) int64
        Where each demonstration begins among the states.

    Returns
    -------
    (n,) int64

    Examples
    --------
    >>> import numpy as np
    >>> spread_actions([[7, 8], None, []], np.array([0, 3, 5, 6])).tolist()
    [7, 8, -1, -1, -1, -1]
    """
    n = offsets.size - 1
    if len(actions) != n:
        raise InvalidDemos(
            f"actions must have one list a demonstration; got {len(actions)} for {n} demonstrations. "
            "Pass None in place of a list where none was recorded."
        )
    missing = np.fromiter((x is None for x in actions), dtype=np.bool_, count=n)
    nothing = np.empty(0, dtype=np.int64)
    flat, lengths = flatten([nothing if x is None else x for x in actions], "actions")
    n_states = np.diff(offsets)
    wrong = (lengths != n_states - 1) & ~missing
    if np.any(wrong):
        demo = int(np.argmax(wrong))
        raise InvalidDemos(
            f"demonstration {demo} has {n_states[demo]} states and {lengths[demo]} actions; n states have n - 1 "
            "actions between them. Leave out the action at the last state, or add the state that it led to."
        )
    acted = np.repeat(~missing, n_states)
    acted[offsets[1:] - 1] = False
    positions = np.flatnonzero(acted)
    spread = np.full(acted.size, NOT_RECORDED, dtype=np.int64)
    spread[positions] = as_indices(flat, "action", NOT_RECORDED, lambda i: place(offsets, None, int(positions[i])))
    return spread
