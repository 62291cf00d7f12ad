"""Partition of demonstrations into groups that share one intent."""

from __future__ import annotations

from collections.abc import Sized
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from limiirl._typing import FloatArray
from limiirl.demos.validate import as_attribute
from limiirl.errors import InvalidDemos


@dataclass(frozen=True, eq=False)
class Groups:
    """A partition of N demonstrations into G groups, each of which has one intent.

    Attributes
    ----------
    index : (N,) int64 or None
        Group of each demonstration; None if every demonstration is its own group.
    counts : (G,) float64
        Demonstrations per group.
    names : (G,)
        Sorted labels of the groups; 0 to N - 1 if every demonstration is its own group.
    each : str
        Plural noun for messages: "demonstrations" or "agents".

    Examples
    --------
    >>> groups = Groups.from_labels(["ann", "bob", "ann"], 3)
    >>> groups.names.tolist(), groups.counts.tolist()
    (['ann', 'bob'], [2.0, 1.0])
    >>> groups.sum(np.array([1.0, 5.0, 10.0])).tolist()
    [11.0, 5.0]
    >>> groups.broadcast(np.array([[0.25], [0.75]])).ravel().tolist()
    [0.25, 0.75, 0.25]
    """

    index: NDArray[np.int64] | None
    counts: FloatArray
    names: NDArray[Any]
    each: str = "demonstrations"

    @classmethod
    def from_labels(cls, groups: ArrayLike | None, n: int, each: str = "demonstrations") -> Groups:
        """Group n demonstrations or agents by labels (n,); without labels, each is its own group."""
        if groups is None:
            return cls(None, np.ones(n), np.arange(n), each)
        checked = as_attribute(groups, "groups", n)
        if checked is None:
            raise InvalidDemos.of("groups", groups, f"must be an array of {n} strings or numbers")
        names, index, counts = np.unique(checked, return_inverse=True, return_counts=True)
        return cls(index.astype(np.int64), counts.astype(np.float64), names, each)

    @classmethod
    def for_demos(cls, groups: ArrayLike | None, demos: Sized) -> Groups:
        """Return the groups of demonstrations or of agents."""
        from limiirl.demos.agents import Agents  # circular import

        return cls.from_labels(groups, len(demos), "agents" if isinstance(demos, Agents) else "demonstrations")

    def __len__(self) -> int:
        return self.counts.size

    @property
    def labels(self) -> NDArray[Any] | None:
        """Label (N,) of each demonstration's group; None if every demonstration is its own group."""
        return None if self.index is None else self.names[self.index]

    @property
    def grouped(self) -> bool:
        """True if labels were given."""
        return self.index is not None

    @property
    def noun(self) -> str:
        """Plural noun for messages: "groups", "demonstrations" or "agents"."""
        return "groups" if self.grouped else self.each

    def name(self, group: int) -> str:
        """Return the name of a group for messages: "demonstration 3", "agent 3" or "group 'ann'"."""
        return f"{self.noun[:-1]} {self.names[group].item()!r}"

    def sum(self, values: FloatArray) -> FloatArray:
        """Return the sums (G,) or (G, m) of values (N,) or (N, m) over each group."""
        if self.index is None:
            return values
        sums = np.zeros((len(self), *values.shape[1:]))
        np.add.at(sums, self.index, values)
        return sums

    def mean(self, values: FloatArray) -> FloatArray:
        """Return the means (G, m) of values (N, m) over each group."""
        return values if self.index is None else self.sum(values) / self.counts[:, None]

    def reduce(self, values: ArrayLike, name: str) -> NDArray[Any]:
        """Return the value (G,) of each group, given values (N,) of demonstrations; raise if one varies in a group."""
        labels = as_attribute(values, name, int(self.counts.sum()))
        if labels is None:
            raise InvalidDemos(f"{name} is required: one value per demonstration.", parameter=name)
        if self.index is None:
            return labels
        first = np.unique(self.index, return_index=True)[1]
        varies = np.flatnonzero(labels != labels[first][self.index])
        if varies.size:
            i = int(varies[0])
            rule = f"must be constant within a group ({self.name(int(self.index[i]))})"
            raise InvalidDemos.of(
                name, labels[i].item(), rule, index=i, remedy="Split the group, or correct the value."
            )
        return np.asarray(labels[first])

    def broadcast(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return the values (N,) or (N, m) of demonstrations, given the values (G,) or (G, m) of their groups."""
        return values if self.index is None else values[self.index]
