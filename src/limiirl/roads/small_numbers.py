"""Hiding what few people did: counts in tables, groups, and road segments."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from limiirl.demos import Demonstrations
from limiirl.demos.checks import frozen
from limiirl.errors import InvalidDemos, InvalidParameter

Float = NDArray[np.float64]
Int = NDArray[np.int64]
Bool = NDArray[np.bool_]


def suppress_small(counts: ArrayLike, least: int = 5, *, totals: tuple[int, ...] = ()) -> Float:
    """Return a table of counts with NaN in place of those from 1 to below `least`.

    A zero stays: nobody stands behind it. Where totals are shown as well, a count that is hidden alone follows
    by subtraction, and two that add up to less than `least` are as good as one; then the next smallest of that row or
    column is hidden too. Hide small totals by another call.

    Parameters
    ----------
    counts : array
        People, not trips, if people are to be protected.
    least : int
        The smallest count that is shown.
    totals : tuple of int
        Axes of `counts` whose sums are shown: 0 for the totals under the columns of a table, 1 for those beside rows.

    Examples
    --------
    >>> suppress_small([12, 3, 0, 7])
    array([12., nan,  0.,  7.])
    >>> suppress_small([12, 3, 0, 7], totals=(0,))  # 22 in all: 3 alone could be computed
    array([12., nan,  0., nan])
    """
    table = np.array(counts, dtype=np.float64)
    wrong = ~(np.isfinite(table) & (table >= 0.0) & (table == np.floor(table)))
    if wrong.any():
        raise InvalidParameter(f"counts must be whole numbers from 0; one of them is {table[wrong][0]}.")
    _positive(least)
    if any(not 0 <= axis < table.ndim for axis in totals):
        raise InvalidParameter(f"totals names axes of a table that has {table.ndim}; got {totals}.")
    hidden = (table > 0) & (table < least)
    before = -1
    while before != hidden.sum():
        before = int(hidden.sum())
        for axis in totals:
            _hide_more(np.moveaxis(table, axis, -1), np.moveaxis(hidden, axis, -1), least)
    table[hidden] = np.nan
    return table


def merge_small(labels: ArrayLike, least: int = 5, *, into: str = "others") -> NDArray[np.str_]:
    """Return labels as text, with all groups of fewer than `least` members under one name.

    If those together are still fewer than `least`, the next smallest group joins them.

    Examples
    --------
    >>> merge_small(["a", "a", "a", "b", "c", "a"], least=2).tolist()
    ['a', 'a', 'a', 'others', 'others', 'a']
    """
    _positive(least)
    names, inverse, counts = np.unique(np.asarray(labels).astype(np.str_), return_inverse=True, return_counts=True)
    if into in names:
        raise InvalidParameter(f"there is a group called {into!r} already. Pass another name: into=...")
    order = np.argsort(counts, kind="stable")
    small = counts < least
    for k in order:
        if small.any() and counts[small].sum() < least:
            small[k] = True
    return np.where(small[inverse], into, names[inverse]).astype(np.str_)


@dataclass(frozen=True, eq=False)
class RouteMask:
    """Which road segments may be shown: those that at least so many drivers passed.

    Attributes
    ----------
    drivers : (S,) int64
        How many drivers passed each segment.
    least : int
        The smallest number that is shown.

    Examples
    --------
    >>> demos = Demonstrations.from_lists([[0, 1], [1, 2], [1, 1]], groups=["ann", "bob", "bob"])
    >>> mask = RouteMask.of(demos, n_segments=4, least=2)
    >>> mask.drivers.tolist(), mask.hidden.tolist()
    ([1, 2, 1, 0], [True, False, True, False])
    >>> mask.apply([5.0, 6.0, 7.0, 0.0])
    array([nan,  6., nan,  0.])
    """

    drivers: Int
    least: int

    def __post_init__(self) -> None:
        _positive(self.least)
        object.__setattr__(self, "drivers", frozen(np.asarray(self.drivers, dtype=np.int64)))

    @classmethod
    def of(cls, demos: Demonstrations, n_segments: int, least: int = 5) -> RouteMask:
        """Count the drivers (`Demonstrations.groups`) of each segment."""
        if demos.groups is None:
            raise InvalidDemos(
                "These demonstrations do not say who drove, and many trips of one driver hide nobody. "
                "Give them groups: demos.replace(groups=...)."
            )
        _check_segments(demos, n_segments)
        return cls(drivers_by_segment(demos, demos.states, n_segments), least)

    @property
    def hidden(self) -> Bool:
        """Segments (S,) that somebody passed, but too few."""
        return np.asarray((self.drivers > 0) & (self.drivers < self.least))

    def apply(self, values: ArrayLike) -> Float:
        """Return values a segment, (S, ...), with NaN where they are hidden."""
        table = np.array(values, dtype=np.float64)
        if table.shape[:1] != self.drivers.shape:
            raise InvalidParameter(f"values must have one row a segment, {self.drivers.size}; shape is {table.shape}.")
        table[self.hidden] = np.nan
        return table

    def shown(self, demos: Demonstrations) -> Bool:
        """Return which paths (N,) lead over no hidden segment at all, and may be drawn as a whole."""
        _check_segments(demos, self.drivers.size)
        seen = np.concatenate([[0], np.cumsum(self.hidden[demos.states])])
        return np.asarray(np.diff(seen[demos.offsets]) == 0)


def _check_segments(demos: Demonstrations, n_segments: int) -> None:
    """Say that paths are of another network."""
    if demos.n_steps and demos.states.max() >= n_segments:
        raise InvalidDemos(
            f"a path passes segment {demos.states.max()}, but there are {n_segments} segments. Is it another network?"
        )


def _hide_more(table: Float, hidden: Bool, least: int) -> None:
    """Hide more of the lines along the last axis, until no hidden count follows from the line's sum."""
    for line in np.ndindex(table.shape[:-1]):
        counts, gone = table[line], hidden[line]
        while gone.any() and (np.count_nonzero(gone) < 2 or counts[gone].sum() < least):
            rest = np.flatnonzero(~gone & (counts > 0))
            if rest.size == 0:
                break  # the sum itself is small, or the only count of its line
            gone[rest[np.argmin(counts[rest])]] = True


def _positive(least: int) -> None:
    if not least >= 1:
        raise InvalidParameter(f"least must be at least 1; got {least}.")


def drivers_of(demos: Demonstrations) -> Int:
    """Return the driver (N,) of each trip, numbered from 0; another for each where they are not known.

    Examples
    --------
    >>> drivers_of(Demonstrations.from_lists([[0], [1], [2]], groups=["bob", "ann", "bob"]))
    array([1, 0, 1])
    """
    groups = np.arange(len(demos)) if demos.groups is None else demos.groups
    return np.asarray(np.unique(groups, return_inverse=True)[1])


def drivers_by_segment(demos: Demonstrations, passed: Int, n_segments: int) -> Int:
    """Return how many drivers (S,) pass each segment; `passed` has one for every state of the demonstrations."""
    pairs = np.unique(np.repeat(drivers_of(demos), demos.lengths) * np.int64(n_segments) + passed)
    return np.bincount(pairs % n_segments, minlength=n_segments)


def drivers_by_street(demos: Demonstrations, opposite: Int) -> Int:
    """Return how many drivers (S,) pass each street, either way; `opposite` (S,) is that of `RoadNetwork`.

    Examples
    --------
    >>> both = Demonstrations.from_lists([[0], [1], [2]], groups=["ann", "bob", "bob"])
    >>> drivers_by_street(both, np.array([1, 0, -1]))
    array([2, 2, 1])
    """
    own = np.arange(opposite.size)
    street = np.where(opposite >= 0, np.minimum(opposite, own), own)
    return np.asarray(drivers_by_segment(demos, street[demos.states], opposite.size)[street])
