"""How much of what was driven a match has found, and how much it has made up; where the truth is known."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from limiirl.demos import Demonstrations
from limiirl.errors import InvalidDemos, InvalidParameter
from limiirl.roads.matching.matches import Matches
from limiirl.roads.network import RoadNetwork

Float = NDArray[np.float64]


@dataclass(frozen=True)
class Recovered:
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
    >>> Recovered(np.array([900.0, 1100.0]), np.array([900.0, 1000.0]), np.array([0.0, 60.0]))
    Recovered: 95.00 % of 2.0 km found, 3.00 % added
    """

    driven_m: Float
    found_m: Float
    added_m: Float

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
        return f"Recovered: {100 * self.share:.2f} % of {km:,.1f} km found, {100 * self.added:.2f} % added"


def recovered(
    network: RoadNetwork, truth: Demonstrations, matches: Matches, source: ArrayLike | None = None
) -> Recovered:
    """Compare matched paths with the true ones.

    Parameters
    ----------
    network : RoadNetwork
    truth : Demonstrations
        N true paths.
    matches : Matches
        Of their recordings.
    source : (M,) int, optional
        The true path behind each trip that was matched, such as `Cleaned.source`; the same number by default.

    Examples
    --------
    >>> from limiirl.roads import City, match, record
    >>> city = City(radius_km=0.8)
    >>> demos = city.drive(2, 2).demos
    >>> trips = record(city.network, demos, noise_m=0.5, step_s=5.0)
    >>> found = recovered(city.network, demos, match(city.network, trips))
    >>> found.share > 0.999, found.added < 0.001
    (True, True)
    """
    segments, n_trips = matches.on(network), matches.fix_offsets.size - 1
    if truth.n_steps and truth.states.max() >= network.n_segments:
        raise InvalidDemos(
            f"a true path drives segment {truth.states.max()}, but the network has {network.n_segments}: give the one "
            "that was driven on."
        )
    of_trip = np.arange(n_trips) if source is None else np.asarray(source)
    numbers = of_trip.shape == (n_trips,) and (of_trip.dtype.kind in "iu" or not n_trips)
    if not numbers or np.any((of_trip < 0) | (of_trip >= len(truth))):
        raise InvalidParameter(
            f"source must name one of {len(truth)} true paths, from 0, for each of {n_trips} trips that were matched; "
            f"it has {of_trip.dtype}, shape {of_trip.shape}. Pass Cleaned.source where the trips were cleaned."
        )
    of_trip, n = of_trip.astype(np.int64), network.n_segments
    driven = np.repeat(np.arange(len(truth)), truth.lengths) * n + truth.states
    matched = np.repeat(of_trip[matches.trip], matches.lengths) * n + segments
    keys, column = np.unique(np.concatenate([driven, matched]), return_inverse=True)
    often = [np.bincount(part, minlength=keys.size) for part in np.split(column, [driven.size])]
    length, trip = network.length_m[keys % n], keys // n
    shared = np.minimum(*often)

    def total(count: NDArray[np.int64]) -> Float:
        return np.bincount(trip, weights=count * length, minlength=len(truth)).astype(np.float64)

    return Recovered(total(often[0]), total(shared), total(often[1] - shared))
