"""Paths after matching: U-turns there and back that only noise has driven are left out."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from limiirl.roads.matching.matches import TripMatch
from limiirl.roads.network import RoadNetwork

Int = NDArray[np.int64]

CHATTER_M = 60.0
"""Shorter ways there and back, between two U-turns, are noise about a car that stands."""


def chatter(network: RoadNetwork, path: Int, most_m: float = CHATTER_M) -> NDArray[np.bool_]:
    """Return which places (k,) of a path are chatter: back the way it came, and there again.

    Between two U-turns the car goes back over its last segments, then drives them anew. Without these two stretches
    the path is legal as before, since it goes on from the same segment. A network without U-turns has none.

    Parameters
    ----------
    network : RoadNetwork
    path : (k,) int64
    most_m : float
        How long one of the stretches may be; a longer one is driving.

    Examples
    --------
    >>> lane = RoadNetwork.from_segments([41.15, 41.1502], [-8.63, -8.63], [0, 1], [1, 0], u_turns=True)
    >>> path = np.array([0, 1, 0])
    >>> path[~chatter(lane, path)]
    array([0])
    """
    noise = np.zeros(path.size, dtype=np.bool_)
    back = network.opposite[path]
    turns = np.flatnonzero(path[1:] == back[:-1]).tolist()
    for i in turns:
        left = np.flatnonzero(~noise[: i + 1])
        for j in (turn for turn in turns if turn > i):
            n = j - i
            before, here = path[left[-n:]], path[i + 1 : j + 1]
            if noise[i + 1] or before.size < n or network.length_m[here].sum() > most_m:
                break
            if np.array_equal(here, back[left[-n:]][::-1]) and np.array_equal(path[j + 1 : j + 1 + n], before):
                noise[i + 1 : j + 1 + n] = True
                break
    return noise


def without_chatter(network: RoadNetwork, match: TripMatch) -> TripMatch:
    """Return a match without chatter; a fix on a segment that is left out lies on its other direction instead."""
    noise = [chatter(network, piece.segments) for piece in match.pieces]
    if not any(part.any() for part in noise):
        return match
    segment, along = match.segment.copy(), match.along_m.copy()
    pieces = []
    for piece, wrong in zip(match.pieces, noise, strict=True):
        path = piece.segments[~wrong]
        here = slice(piece.first, piece.last + 1)
        lost = (segment[here] >= 0) & ~np.isin(segment[here], path)
        other = network.opposite[segment[here][lost]]
        along[here][lost] = network.length_m[other] - along[here][lost]
        segment[here][lost] = other
        pieces.append(piece._replace(segments=path))
    return match._replace(pieces=tuple(pieces), segment=segment, along_m=along)
