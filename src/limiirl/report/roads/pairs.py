"""Two trips for a picture: nearly the same ends, different intents, different ways."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from limiirl.demos import Demonstrations
from limiirl.roads import RoadNetwork

Float = NDArray[np.float64]

# Longer than this over the straight line is an errand, not a way of getting there.
_STRAIGHT = 2.2
_LEAST_M = 1500.0
_REACHES_M = (200.0, 400.0, 800.0)
# Pairs compared at most; they are taken in the order of the trips, so that the choice is the same each time.
_MOST_PAIRS = 20_000


@dataclass(frozen=True)
class Pair:
    """Two trips, and how alike they are.

    Attributes
    ----------
    first, second : int
        Numbers of the demonstrations.
    apart_m : float
        The larger of the distances between their starts and between their ends.
    shared : float
        Of the shorter one's length, the share that both drive.
    """

    first: int
    second: int
    apart_m: float
    shared: float


def find_pair(network: RoadNetwork, demos: Demonstrations, labels: ArrayLike) -> Pair | None:
    """Return the two trips of different labels between nearly the same ends that share least; None if there are none.

    Ends are at most 200 m apart, or 400 or 800 where no pair is nearer. Trips shorter than 1.5 km, or more than 2.2
    times as long as the straight line, are left out.

    Examples
    --------
    >>> lat, lon = [41.15, 41.15, 41.17, 41.17], [-8.63, -8.61, -8.61, -8.63]
    >>> square = RoadNetwork.from_segments(lat, lon, [0, 1, 0, 3], [1, 2, 3, 2])
    >>> find_pair(square, Demonstrations([0, 1, 2, 3], [0, 2, 4]), [0, 1])
    Pair(first=0, second=1, apart_m=0.0, shared=0.0)
    """
    who = np.asarray(labels, dtype=np.int64)
    states, offsets = demos.states, demos.offsets
    start = network.node_xy[network.tail[states[offsets[:-1]]]]
    end = network.node_xy[network.head[states[offsets[1:] - 1]]]
    total = np.concatenate([[0.0], np.cumsum(network.length_m[states])])
    length = np.diff(total[offsets])
    straight = np.hypot(*(end - start).T)
    usable = np.flatnonzero((length >= _LEAST_M) & (length <= _STRAIGHT * np.maximum(straight, 1.0)))
    for reach in _REACHES_M:
        best: Pair | None = None
        for i, j in _near(start[usable], end[usable], who[usable], reach):
            one, two = int(usable[i]), int(usable[j])
            apart = float(max(np.hypot(*(start[one] - start[two])), np.hypot(*(end[one] - end[two]))))
            shared = _shared(network, demos, one, two, float(min(length[one], length[two])))
            if best is None or (shared, apart) < (best.shared, best.apart_m):
                best = Pair(one, two, apart, shared)
        if best is not None and best.shared < 0.5:
            return best
    return None


def _near(start: Float, end: Float, who: NDArray[np.int64], reach: float) -> list[tuple[int, int]]:
    """Return pairs of different labels whose starts and ends are within reach."""
    from scipy.spatial import cKDTree

    if len(start) < 2:
        return []
    # In four dimensions the distance bounds those of both ends.
    near = cKDTree(np.hstack([start, end])).query_pairs(np.sqrt(2.0) * reach, output_type="ndarray")
    near = near[np.lexsort((near[:, 1], near[:, 0]))]
    i, j = near[:, 0], near[:, 1]
    both = np.maximum(np.hypot(*(start[i] - start[j]).T), np.hypot(*(end[i] - end[j]).T)) <= reach
    kept = near[both & (who[i] != who[j])][:_MOST_PAIRS]
    return [(int(a), int(b)) for a, b in kept]


def _shared(network: RoadNetwork, demos: Demonstrations, one: int, two: int, shorter: float) -> float:
    a, b = (demos.states[demos.offsets[i] : demos.offsets[i + 1]] for i in (one, two))
    both = np.intersect1d(a, b)
    return float(network.length_m[both].sum() / shorter)
