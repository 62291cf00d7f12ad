"""Geometric agreement between two sets of paths, and recovery of known true paths."""

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
    """Agreement between two sets of N polylines: lengths that lie near the other polyline."""

    length_m: FloatArray  # (N, 2): length of the first and the second polyline of each trip
    near_m: FloatArray  # (N, 2): length of the first polyline near the second, and of the second near the first
    metres: float  # distance within which points are near

    @property
    def shares(self) -> FloatArray:
        """Fraction (N, 2) of the length of each polyline that lies near the other; NaN if the length is 0."""
        with np.errstate(invalid="ignore"):
            return np.asarray(np.where(self.length_m > 0.0, self.near_m / self.length_m, np.nan))

    @property
    def total(self) -> tuple[float, float]:
        """Fraction of the total length of the first and of the second set near the other; NaN if the length is 0."""
        with np.errstate(invalid="ignore"):
            first, second = self.near_m.sum(axis=0) / self.length_m.sum(axis=0)
        return float(first), float(second)

    @property
    def worst(self) -> NDArray[np.int64]:
        """Trips (N,) in ascending order of the minimum of their two fractions; NaN is last."""
        return np.argsort(self.shares.min(axis=1), kind="stable")

    def __len__(self) -> int:
        return len(self.length_m)


def measure_agreement(
    network: RoadNetwork, ours: Sequence[ArrayLike], theirs: Sequence[ArrayLike], metres: float = 15.0
) -> Agreement:
    """Measure the length of each polyline that lies within some distance of another polyline.

    The result is exact: the points near a line segment form a convex set, so that each pair of line segments
    contributes one interval. The direction of travel and the order of the points are ignored.

    Parameters
    ----------
    network : RoadNetwork
        Network that defines the planar projection.
    ours, theirs : N arrays (k, 2)
        Latitudes and longitudes of polylines, such as results of `Matches.geometry`.
    metres : float
        Points within this distance of the other polyline are near it.

    Examples
    --------
    >>> from limiirl.roads import RoadNetwork
    >>> network = RoadNetwork.from_segments([41.15, 41.16], [-8.63, -8.63], [0, 1], [1, 0])
    >>> street = [(41.15, -8.63), (41.16, -8.63)]
    >>> half = [(41.15, -8.63), (41.155, -8.63)]
    >>> agreement = measure_agreement(network, [street], [half], metres=10.0)
    >>> agreement.length_m.round(1), agreement.shares.round(3)
    (array([[1110.6,  555.3]]), array([[0.509, 1.   ]]))
    """
    if len(ours) != len(theirs):
        raise InvalidTrips.of("theirs", len(theirs), f"must have as many polylines as ours ({len(ours)})")
    check_positive(metres, "metres")
    length, near = np.zeros((len(ours), 2)), np.zeros((len(ours), 2))
    for i in range(len(ours)):
        first, second = _project(network, ours[i], "ours", i), _project(network, theirs[i], "theirs", i)
        length[i, 0], near[i, 0] = length_near(first, second, metres)
        length[i, 1], near[i, 1] = length_near(second, first, metres)
    return Agreement(length, near, float(metres))


def _project(network: RoadNetwork, line: ArrayLike, name: str, i: int) -> FloatArray:
    corners = np.asarray(line, dtype=np.float64)
    if corners.ndim != 2 or corners.shape[1] != 2 or not len(corners) or not np.all(np.isfinite(corners)):
        message = f"{name}[{i}] must be a nonempty array (k, 2) of finite latitudes and longitudes. Omit the trip."
        raise InvalidTrips(message, parameter=name, index=i)
    return np.ascontiguousarray(network.plane.xy(corners[:, 0], corners[:, 1]))


@dataclass(frozen=True)
class PathRecovery:
    """Recovery of N true paths by map matching: driven, correctly matched and wrongly matched lengths.

    A segment that was driven twice must be matched twice; the order is ignored. Unmatched trips are included.
    """

    driven_m: FloatArray  # (N,): length of the true path, including the whole first and last segment
    recovered_m: FloatArray  # (N,): length that was driven and matched
    added_m: FloatArray  # (N,): length that was matched but not driven

    @property
    def share(self) -> float:
        """Recovered length as a fraction of the driven length."""
        return float(self.recovered_m.sum() / self.driven_m.sum())

    @property
    def added(self) -> float:
        """Length that was matched but not driven, as a fraction of the driven length."""
        return float(self.added_m.sum() / self.driven_m.sum())

    def __repr__(self) -> str:
        km = self.driven_m.sum() / 1000.0
        return f"PathRecovery: {100 * self.share:.2f} % of {km:,.1f} km recovered, {100 * self.added:.2f} % added"


def path_recovery(
    network: RoadNetwork, truth: Demonstrations, matches: Matches, source: ArrayLike | None = None
) -> PathRecovery:
    """Compare matched paths with the true paths.

    Parameters
    ----------
    network : RoadNetwork
    truth : Demonstrations
        N true paths.
    matches : Matches
        Matches of recordings of these paths.
    source : (M,) int, optional
        Index of the true path of each matched trip, such as `CleanedTrips.source`; by default 0, 1, 2, ...

    Examples
    --------
    >>> from limiirl.roads import City, match, simulate_gps
    >>> city = City(radius_km=0.8)
    >>> demos = city.drive(2, 2).demos
    >>> trips = simulate_gps(city.network, demos, noise_m=0.5, step_s=5.0)
    >>> recovery = path_recovery(city.network, demos, match(city.network, trips))
    >>> recovery.share > 0.999, recovery.added < 0.001
    (True, True)
    """
    segments, n_trips = matches.on(network), matches.fix_offsets.size - 1
    if truth.n_steps and truth.states.max() >= network.n_segments:
        rule = f"must have segments below {network.n_segments}, the number of segments of the network"
        raise InvalidDemos.of("truth", int(truth.states.max()), rule)
    of_trip = np.arange(n_trips) if source is None else np.asarray(source)
    integers = of_trip.shape == (n_trips,) and (of_trip.dtype.kind in "iu" or not n_trips)
    if not integers or np.any((of_trip < 0) | (of_trip >= len(truth))):
        rule = f"source must be {n_trips} integers (one per matched trip) from 0 to {len(truth) - 1}"
        message = f"{rule}; got {of_trip.dtype} of shape {of_trip.shape}. Pass CleanedTrips.source for cleaned trips."
        raise InvalidParameter(message, parameter="source")
    of_trip, n = of_trip.astype(np.int64), network.n_segments
    driven = np.repeat(np.arange(len(truth)), truth.lengths) * n + truth.states
    matched = np.repeat(of_trip[matches.trip], matches.lengths) * n + segments
    keys, column = np.unique(np.concatenate([driven, matched]), return_inverse=True)
    n_driven, n_matched = (np.bincount(part, minlength=keys.size) for part in np.split(column, [driven.size]))
    length, trip = network.length_m[keys % n], keys // n
    shared = np.minimum(n_driven, n_matched)

    def total(count: NDArray[np.int64]) -> FloatArray:
        return np.bincount(trip, weights=count * length, minlength=len(truth)).astype(np.float64)

    return PathRecovery(total(n_driven), total(shared), total(n_matched - shared))
