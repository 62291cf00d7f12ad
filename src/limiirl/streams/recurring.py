"""Names that must lie within one part: groups, and demonstrations of files.

A key of eight bytes stands for a name. Equal keys are a suspicion only: the names themselves are compared then, so that
nobody is accused by chance.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from limiirl.errors import InvalidDemos
from limiirl.streams.parts import StoredPart

Keys = NDArray[np.uint64]
# Demonstrations whose names are compared: 128 MB of keys. Of more, as many are drawn, beside the lowest and the highest
# of each file: where a table is sorted by name, it is there that it is cut.
MOST = 2**24
_TWO_PARTS = {
    "group": (
        "Group {!r} has demonstrations in {} and in {}. A group must lie within one part: partition the data by group."
    ),
    "demo": (
        "Demonstration {!r} has rows in {} and in {}. A demonstration must lie within one file, and each needs a name "
        "of its own: write it to one file, or number demonstrations through all files."
    ),
}


def check_names(parts: Sequence[StoredPart], unit: str, most: float = np.inf) -> None:
    """Check that no name occurs in two parts.

    Parameters
    ----------
    unit : {"group", "demo"}
        What has the names.
    most : float
        Keys to keep in memory. Beyond that only the lowest are compared, which are a random sample of names and the
        same in all parts, and the lowest and highest names of each.
    """
    kinds: dict[bool, str] = {}
    lowest: list[Keys] = []
    ends: list[Keys] = []
    limit = 2**64 - 1
    for part in parts:
        names = part.names()
        if names is None:
            continue
        kinds.setdefault(names.dtype.kind == "U", part.name)
        keys = np.unique(keys_of(names))
        lowest.append(keys[keys <= np.uint64(limit)])
        ends.append(np.unique(keys_of(names[[0, -1]])))
        while sum(map(len, lowest)) > most:
            limit //= 2
            lowest = [keys[keys <= np.uint64(limit)] for keys in lowest]
    if len(kinds) > 1:  # the text "2" and the number 2 would pass for two names
        raise InvalidDemos(
            f"The column {unit} has texts in {kinds[True]} and numbers in {kinds[False]}. Write them alike."
        )
    suspects = np.union1d(_twice(lowest), _twice(ends))
    if suspects.size:
        _compare(parts, suspects, _TWO_PARTS[unit])


def _twice(keys: list[Keys]) -> Keys:
    ordered = np.concatenate([np.empty(0, dtype=np.uint64), *keys])
    ordered.sort()
    return np.asarray(ordered[1:][ordered[1:] == ordered[:-1]])


def _compare(parts: Sequence[StoredPart], suspects: Keys, message: str) -> None:
    known: dict[Any, str] = {}
    for part in parts:
        names = part.names()
        if names is None:
            continue
        # A dict, to keep their order: which is named should not change from run to run.
        found = dict.fromkeys(names[np.isin(keys_of(names), suspects)].tolist(), part.name)
        for name in found:
            if name in known:
                raise InvalidDemos(message.format(name, known[name], part.name))
        known |= found


def keys_of(names: NDArray[Any]) -> Keys:
    """Return (n,) keys of texts or numbers: equal names have equal keys, of whatever type their arrays are.

    Examples
    --------
    >>> bool(keys_of(np.array([1]))[0] == keys_of(np.array([1.0]))[0])
    True
    >>> bool(keys_of(np.array(["ann"]))[0] == keys_of(np.array(["ann", "christopher"]))[0])
    True
    >>> np.unique(keys_of(np.array(["ann", "nan", "an", "1"]))).size
    4
    """
    if names.dtype.kind == "U":
        letters = np.ascontiguousarray(names).view(np.uint32).reshape(len(names), -1)
        keys = np.zeros(len(names), dtype=np.uint64)
        for place, column in enumerate(letters.T):
            # What fills up a shorter text is 0, and must not matter.
            keys += np.where(column > 0, _mixed(column.astype(np.uint64) + np.uint64((place + 1) << 32)), np.uint64(0))
        return keys
    if names.dtype.kind != "f":
        return _mixed(names.astype(np.int64).view(np.uint64))
    whole = (names == np.floor(names)) & (np.abs(names) < 2.0**63)
    numbers = np.where(whole, names, 0.0).astype(np.int64).view(np.uint64)
    return _mixed(np.where(whole, numbers, np.ascontiguousarray(names, dtype=np.float64).view(np.uint64)))


def _mixed(values: Keys) -> Keys:
    """Return numbers that look random, another for each."""
    values = values * np.uint64(0x9E3779B97F4A7C15)
    values = (values ^ (values >> np.uint64(32))) * np.uint64(0xD1342543DE82EF95)
    return np.asarray(values ^ (values >> np.uint64(29)))
