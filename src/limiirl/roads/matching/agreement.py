"""How far two matchings of the same trips agree, by geometry: they may be on different networks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from limiirl.errors import InvalidTrips
from limiirl.kernels.nearness import length_near

if TYPE_CHECKING:
    from limiirl.roads.network import RoadNetwork

Float = NDArray[np.float64]


@dataclass(frozen=True)
class Agreement:
    """What share of the length of each of two sets of lines lies near the other.

    Attributes
    ----------
    length_m : (N, 2)
        Of each trip's line in the first and in the second set.
    near_m : (N, 2)
        How much of the first line lies near the second, and of the second near the first.
    metres : float
        What counts as near.
    """

    length_m: Float
    near_m: Float
    metres: float

    @property
    def shares(self) -> Float:
        """Share (N, 2) of each line that lies near the other; NaN for a line without length."""
        with np.errstate(invalid="ignore"):
            return np.asarray(np.where(self.length_m > 0.0, self.near_m / self.length_m, np.nan))

    @property
    def total(self) -> tuple[float, float]:
        """Share of the length of all trips together, both ways; NaN where there is none."""
        with np.errstate(invalid="ignore"):
            first, second = self.near_m.sum(axis=0) / self.length_m.sum(axis=0)
        return float(first), float(second)

    @property
    def worst(self) -> NDArray[np.int64]:
        """Trips (N,), the one that agrees least first, by the lesser of its two shares; those without length last."""
        return np.argsort(self.shares.min(axis=1), kind="stable")

    def __len__(self) -> int:
        return len(self.length_m)


def length_within(
    network: RoadNetwork, ours: Sequence[ArrayLike], theirs: Sequence[ArrayLike], metres: float = 15.0
) -> Agreement:
    """Return what share of the length of lines lies within some metres of other lines, both ways.

    Nothing is sampled: what lies near a straight piece is convex, so each pair of pieces gives one stretch, and the
    stretches are joined. Direction and order do not count: a road driven the wrong way lies near itself.

    Parameters
    ----------
    network : RoadNetwork
        Whose flat map is used.
    ours, theirs : N lines, each (k, 2)
        Latitude and longitude of corners, trip by trip, as `Matches.geometry` gives them.
    metres : float
        What counts as near.

    Examples
    --------
    >>> from limiirl.roads import RoadNetwork
    >>> from limiirl.roads.matching.agreement import length_within
    >>> network = RoadNetwork.from_segments([41.15, 41.16], [-8.63, -8.63], [0, 1], [1, 0])
    >>> street = [(41.15, -8.63), (41.16, -8.63)]
    >>> half = [(41.15, -8.63), (41.155, -8.63)]
    >>> found = length_within(network, [street], [half], metres=10.0)
    >>> found.length_m.round(1), found.shares.round(3)
    (array([[1110.6,  555.3]]), array([[0.509, 1.   ]]))
    """
    if len(ours) != len(theirs):
        raise InvalidTrips(f"Lines are compared trip by trip: there are {len(ours)} and {len(theirs)}.")
    if not metres > 0.0:
        raise InvalidTrips(f"metres must be above 0; it is {metres!r}.")
    length, near = np.zeros((len(ours), 2)), np.zeros((len(ours), 2))
    for i in range(len(ours)):
        one, two = _flat(network, ours[i], i), _flat(network, theirs[i], i)
        length[i, 0], near[i, 0] = length_near(one, two, metres)
        length[i, 1], near[i, 1] = length_near(two, one, metres)
    return Agreement(length, near, float(metres))


def _flat(network: RoadNetwork, line: ArrayLike, i: int) -> Float:
    """Return a line (k, 2) in metres on the network's flat map."""
    corners = np.asarray(line, dtype=np.float64)
    if corners.ndim != 2 or corners.shape[1] != 2 or not len(corners) or not np.all(np.isfinite(corners)):
        raise InvalidTrips(
            f"Line {i} must be (k, 2) finite latitudes and longitudes, k at least 1; leave the trip out."
        )
    return np.ascontiguousarray(network.plane.xy(corners[:, 0], corners[:, 1]))
