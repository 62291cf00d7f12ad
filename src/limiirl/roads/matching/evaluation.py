"""Agreement of two matchings by geometry, and recovery of true paths where they are known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from limiirl._typing import FloatArray
from limiirl._validation import check_positive
from limiirl.demos import Demonstrations
from limiirl.errors import InvalidDemos, InvalidParameter, InvalidTrips
from limiirl.roads.kernels.spatial_index import length_near
from limiirl.roads.matching.matches import Matches
from limiirl.roads.network import RoadNetwork


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

    length_m: FloatArray
    near_m: FloatArray
    metres: float

    @property
    def shares(self) -> FloatArray:
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


def measure_agreement(
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
    >>> from limiirl.roads.matching.evaluation import measure_agreement
    >>> network = RoadNetwork.from_segments([41.15, 41.16], [-8.63, -8.63], [0, 1], [1, 0])
    >>> street = [(41.15, -8.63), (41.16, -8.63)]
    >>> half = [(41.15, -8.63), (41.155, -8.63)]
    >>> found = measure_agreement(network, [street], [half], metres=10.0)
    >>> found.length_m.round(1), found.shares.round(3)
    (array([[1110.6,  555.3]]), array([[0.509, 1.   ]]))
    """
    if len(ours) != len(theirs):
        raise InvalidTrips(
            f"Lines are compared trip by trip: there are {len(ours)} and {len(theirs)}.",
            parameter="theirs",
            value=len(theirs),
        )
    check_positive(metres, "metres")
    length, near = np.zeros((len(ours), 2)), np.zeros((len(ours), 2))
    for i in range(len(ours)):
        one, two = _flat(network, ours[i], i), _flat(network, theirs[i], i)
        length[i, 0], near[i, 0] = length_near(one, two, metres)
        length[i, 1], near[i, 1] = length_near(two, one, metres)
    return Agreement(length, near, float(metres))


def _flat(network: RoadNetwork, line: ArrayLike, i: int) -> FloatArray:
    """Return a line (k, 2) in metres on the network's flat map."""
    corners = np.asarray(line, dtype=np.float64)
    if corners.ndim != 2 or corners.shape[1] != 2 or not len(corners) or not np.all(np.isfinite(corners)):
        raise InvalidTrips(
            f"Line {i} must be (k, 2) finite latitudes and longitudes, k at least 1; leave the trip out.",
            parameter="ours",
            index=i,
        )
    return np.ascontiguousarray(network.plane.xy(corners[:, 0], corners[:, 1]))


@dataclass(frozen=True)
class PathRecovery:
    """Lengths by trip: driven, found and made up.

    A directed segment that was driven twice must be found twice; order does not matter. What belongs to trips of which
    nothing was matched is missing like everything else.

    Attributes
    ----------
    driven_m : (N,)
        Of each true path, its first and last segments whole.
    found_m : (N,)
        The part of it that was matched.
    added_m : (N,)
        Matched, but not driven.

    Examples
    --------
    >>> PathRecovery(np.array([900.0, 1100.0]), np.array([900.0, 1000.0]), np.array([0.0, 60.0]))
    PathRecovery: 95.00 % of 2.0 km found, 3.00 % added
    """

    driven_m: FloatArray
    found_m: FloatArray
    added_m: FloatArray

    @property
    def share(self) -> float:
        """Share of the driven length that was found."""
        return float(self.found_m.sum() / self.driven_m.sum())

    @property
    def added(self) -> float:
        """Length that was made up, as a share of the driven length."""
        return float(self.added_m.sum() / self.driven_m.sum())

    def __repr__(self) -> str:
        km = self.driven_m.sum() / 1000.0
        return f"PathRecovery: {100 * self.share:.2f} % of {km:,.1f} km found, {100 * self.added:.2f} % added"


def path_recovery(
    network: RoadNetwork, truth: Demonstrations, matches: Matches, source: ArrayLike | None = None
) -> PathRecovery:
    """Compare matched paths with the true ones.

    Parameters
    ----------
    network : RoadNetwork
    truth : Demonstrations
        N true paths.
    matches : Matches
        Of their recordings.
    source : (M,) int, optional
        The true path behind each trip that was matched, such as `CleanedTrips.source`; the same number by default.

    Examples
    --------
    >>> from limiirl.roads import City, match, simulate_gps
    >>> city = City(radius_km=0.8)
    >>> demos = city.drive(2, 2).demos
    >>> trips = simulate_gps(city.network, demos, noise_m=0.5, step_s=5.0)
    >>> found = path_recovery(city.network, demos, match(city.network, trips))
    >>> found.share > 0.999, found.added < 0.001
    (True, True)
    """
    segments, n_trips = matches.on(network), matches.fix_offsets.size - 1
    if truth.n_steps and truth.states.max() >= network.n_segments:
        raise InvalidDemos(
            f"a true path drives segment {truth.states.max()}, but the network has {network.n_segments}: give the one "
            "that was driven on.",
            parameter="truth",
            value=int(truth.states.max()),
        )
    of_trip = np.arange(n_trips) if source is None else np.asarray(source)
    numbers = of_trip.shape == (n_trips,) and (of_trip.dtype.kind in "iu" or not n_trips)
    if not numbers or np.any((of_trip < 0) | (of_trip >= len(truth))):
        raise InvalidParameter(
            f"source must name one of {len(truth)} true paths, from 0, for each of {n_trips} trips that were matched; "
            f"it has {of_trip.dtype}, shape {of_trip.shape}. Pass CleanedTrips.source where the trips were cleaned.",
            parameter="source",
        )
    of_trip, n = of_trip.astype(np.int64), network.n_segments
    driven = np.repeat(np.arange(len(truth)), truth.lengths) * n + truth.states
    matched = np.repeat(of_trip[matches.trip], matches.lengths) * n + segments
    keys, column = np.unique(np.concatenate([driven, matched]), return_inverse=True)
    often = [np.bincount(part, minlength=keys.size) for part in np.split(column, [driven.size])]
    length, trip = network.length_m[keys % n], keys // n
    shared = np.minimum(*often)

    def total(count: NDArray[np.int64]) -> FloatArray:
        return np.bincount(trip, weights=count * length, minlength=len(truth)).astype(np.float64)

    return PathRecovery(total(often[0]), total(shared), total(often[1] - shared))
