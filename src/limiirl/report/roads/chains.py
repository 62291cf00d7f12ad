"""Streets as few long lines: both directions of a street are one, and bends between crossings do not end it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from limiirl.roads import RoadNetwork

Float = NDArray[np.float64]
Int = NDArray[np.int64]


@dataclass(frozen=True)
class Chains:
    """Lines along streets, and the segments of each.

    Attributes
    ----------
    points : (n, 2)
        Latitudes and longitudes.
    offsets : (m + 1,)
        Chain i has the points ``offsets[i]:offsets[i + 1]``.
    segments : (n - m,)
        One segment a step; of a street driven both ways, the lower number.
    """

    points: Float
    offsets: Int
    segments: Int

    @property
    def n_chains(self) -> int:
        """Number m of lines."""
        return int(self.offsets.size - 1)

    @property
    def starts(self) -> Int:
        """Where in `segments` each chain begins (m,)."""
        return self.offsets[:-1] - np.arange(self.n_chains)

    @property
    def first(self) -> Int:
        """A segment (m,) of each chain: what all of a chain share is read there."""
        return self.segments[self.starts]

    def total(self, values: ArrayLike) -> Float:
        """Return the sums (m,) of values (S,) along each chain."""
        chosen = np.asarray(values, dtype=np.float64)[self.segments]
        return np.add.reduceat(chosen, self.starts) if self.n_chains else np.empty(0)


def chains(network: RoadNetwork, keys: Sequence[ArrayLike] = (), within: ArrayLike | None = None) -> Chains:
    """Join segments into lines that end only at crossings, or where one of the keys changes.

    Parameters
    ----------
    network : RoadNetwork
    keys : sequence of (S,)
        What must be equal along a line.
    within : (S,) bool, optional
        Which segments to draw; all by default. A street is drawn if one of its directions is.

    Examples
    --------
    >>> bend = RoadNetwork.from_segments([41.15, 41.16, 41.16], [-8.63, -8.63, -8.62], [0, 1, 1, 2], [1, 2, 0, 1])
    >>> chains(bend).points.tolist()
    [[41.15, -8.63], [41.16, -8.63], [41.16, -8.62]]
    """
    chosen = np.ones(network.n_segments, dtype=bool) if within is None else np.asarray(within, dtype=bool)
    other = network.opposite
    twin = np.where(other >= 0, other, np.arange(network.n_segments))
    streets = np.flatnonzero((chosen | chosen[twin]) & (np.arange(network.n_segments) <= twin))
    tail, head = network.tail[streets].astype(np.int64), network.head[streets].astype(np.int64)
    joint = _joints(network.n_nodes, tail, head, [np.asarray(key)[streets] for key in keys])
    nodes, lengths, order = _walk(tail.tolist(), head.tolist(), joint.tolist())
    points = np.stack([network.lat[nodes], network.lon[nodes]], axis=1) if nodes else np.empty((0, 2))
    return Chains(points, np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]), streets[np.array(order, np.int64)])


def _joints(n_nodes: int, tail: Int, head: Int, keys: list[NDArray[np.generic]]) -> Int:
    """Return the street (n, 2) that goes on from each end of a street, tail first; -1 where the line ends."""
    n = tail.size
    ends = np.concatenate([tail, head])
    meeting = np.bincount(ends, minlength=n_nodes)
    order = np.argsort(ends, kind="stable")
    pairs = order[meeting[ends[order]] == 2].reshape(-1, 2)
    alike = pairs[:, 0] % n != pairs[:, 1] % n if n else np.empty(0, dtype=bool)
    for key in keys:
        a, b = key[pairs[:, 0] % n], key[pairs[:, 1] % n]
        # Unknown is as good as equal to unknown.
        alike &= (a == b) | ((a != a) & (b != b))
    joint = np.full(2 * n, -1, dtype=np.int64)
    for one, two in ((0, 1), (1, 0)):
        joint[pairs[alike, one]] = pairs[alike, two] % n
    return joint.reshape(2, n).T


def _walk(tail: list[int], head: list[int], joint: list[list[int]]) -> tuple[list[int], list[int], list[int]]:
    """Follow every line from an end of it, then the rings, which have none: nodes, points a line, streets in order."""
    nodes: list[int] = []
    lengths: list[int] = []
    order: list[int] = []
    done = [False] * len(tail)
    ends = [i for i in range(len(tail)) if min(joint[i]) < 0]
    for first in [*ends, *range(len(tail))]:
        if done[first]:
            continue
        at, street = (tail[first] if joint[first][0] < 0 else head[first]), first
        if min(joint[first]) >= 0:
            at = tail[first]
        begun = len(nodes)
        nodes.append(at)
        while street >= 0 and not done[street]:
            done[street] = True
            order.append(street)
            forward = tail[street] == at
            at = head[street] if forward else tail[street]
            nodes.append(at)
            street = joint[street][1 if forward else 0]
        lengths.append(len(nodes) - begun)
    return nodes, lengths, order
