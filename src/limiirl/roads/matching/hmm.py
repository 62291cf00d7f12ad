"""Matching by a hidden Markov model (Newson and Krumm 2009): the most likely sequence of places given the fixes."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from limiirl.errors import InvalidParameter
from limiirl.kernels.candidates import GridIndex
from limiirl.kernels.matched_path import match_trip
from limiirl.kernels.routing import Router, Streets, streets
from limiirl.kernels.viterbi_matching import Model
from limiirl.roads.matching.candidates import only_neighbours
from limiirl.roads.matching.matches import Piece, TripMatch
from limiirl.roads.matching.pool import Progress, match_each
from limiirl.roads.network import RoadNetwork
from limiirl.roads.traces.trips import Trips

_LEAST_RADIUS_M = 50.0

OUTSIDE = "nothing of it lies near the network"
SINGLE = "a single fix is no path"
CUT = "cut where no way leads on in time"
LEFT_OVER = "a single fix between cuts"
SKIPPED = "a fix that cannot be true was skipped"
AWAY = "a fix lies off the network"


@dataclass(frozen=True)
class Settings:
    """The numbers of the model.

    Parameters
    ----------
    sigma_m : float
        Standard deviation of the distance of a fix from its road.
    beta_m : float
        Scale of how much the driven way and the straight line between two fixes differ.
    radius_m : float, optional
        How far from a fix roads are looked for: 4 sigmas, but at least 50 m, by default.
    max_radius_m : float, optional
        Where there are none the radius grows up to this: twice the radius by default.
    most : int
        How many streets nearest to a fix are looked at.
    thin_sigmas : float
        Fixes so many sigmas or less from the one before are no evidence of their own.
    speed_ms, slack_m : float
        Metres a second that are possible, and metres on top of it.
    detour_betas : float
        Ways longer than the straight line by more betas are looked for only where there is no other.
    back_sigmas : float
        So many sigmas back along a street are noise, not driving.
    beam : float
        Candidates less likely than the best by a factor of e to this are followed only where there is no other.
    max_skips : int
        How many fixes in a row may be skipped as outliers before the trip is cut.
    end_m : float
        A first or last segment of which less was driven, and less than half, is left out.

    Examples
    --------
    >>> Settings(sigma_m=5.0).model().back_m
    25.0
    """

    sigma_m: float = 8.0
    beta_m: float = 15.0
    radius_m: float | None = None
    max_radius_m: float | None = None
    most: int = 16
    thin_sigmas: float = 1.0
    speed_ms: float = 40.0
    slack_m: float = 100.0
    detour_betas: float = 12.0
    back_sigmas: float = 5.0
    beam: float = 18.0
    max_skips: int = 2
    end_m: float = 5.0

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if value is None and name in ("radius_m", "max_radius_m"):
                continue
            least = 1 if name == "most" else 0
            positive = name in ("sigma_m", "beta_m", "radius_m", "speed_ms")
            whole = name in ("most", "max_skips")
            good = isinstance(value, int | float | np.number) and not isinstance(value, bool) and value >= least
            if not good or (positive and value == 0) or (whole and value != int(value)) or not value < np.inf:
                kind = "a whole number" if whole else "a finite number"
                rule = "above 0" if positive else f"of at least {least}"
                raise InvalidParameter(f"{name} must be {kind} {rule}; it is {value!r}.")
            # Plain numbers: those of numpy cannot be written to a file's header.
            object.__setattr__(self, name, int(value) if whole else float(value))

    def model(self) -> Model:
        """Return the numbers as the kernel takes them."""
        radius_m = max(_LEAST_RADIUS_M, 4.0 * self.sigma_m) if self.radius_m is None else self.radius_m
        largest_m = 2.0 * radius_m if self.max_radius_m is None else self.max_radius_m
        return Model(
            sigma_m=float(self.sigma_m),
            beta_m=float(self.beta_m),
            radius_m=float(radius_m),
            max_radius_m=float(max(radius_m, largest_m)),
            most=int(self.most),
            thin_m=float(self.thin_sigmas * self.sigma_m),
            speed_ms=float(self.speed_ms),
            slack_m=float(self.slack_m),
            detour_m=float(self.detour_betas * self.beta_m),
            back_m=float(self.back_sigmas * self.sigma_m),
            beam=float(self.beam),
            max_skips=int(self.max_skips),
            end_m=float(self.end_m),
        )


def streets_of(network: RoadNetwork) -> Streets:
    """Return the streets of a network: chains of segments without a choice.

    Examples
    --------
    >>> fork = RoadNetwork.from_segments([0, 0, 0, 1], [0, 1, 2, 2], [0, 1, 2, 2], [1, 2, 1, 3])
    >>> streets_of(fork).street
    array([0, 0, 1, 0], dtype=int32)
    """
    return streets(*only_neighbours(network), network.length_m, network.out_ptr, network.turn_to)


def match_hmm(
    network: RoadNetwork,
    index: GridIndex,
    trips: Trips,
    settings: Settings,
    *,
    threads: int | None = None,
    progress: Progress | None = None,
) -> list[TripMatch]:
    """Match every trip on its own; the result does not depend on the threads.

    Parameters
    ----------
    network : RoadNetwork
    index : GridIndex
        From `limiirl.roads.matching.candidates.index`.
    trips : Trips
    settings : Settings
    threads : int, optional
        As many as numba uses by default.
    progress : callable, optional
        Called with the number of trips done and of all.
    """
    roads, model = streets_of(network), settings.model()
    xy = network.plane.xy(trips.lat, trips.lon)
    x, y = np.ascontiguousarray(xy[:, 0]), np.ascontiguousarray(xy[:, 1])

    def one(i: int, desk: Router) -> TripMatch:
        rows = slice(trips.offsets[i], trips.offsets[i + 1])
        return _words(match_trip(index, roads, x[rows], y[rows], trips.time_s[rows], model, desk))

    return match_each(one, len(trips), roads, threads, progress)


def _words(answer: tuple[Any, ...]) -> TripMatch:
    """Return the kernel's answer about one trip with the reasons in words."""
    segments, offsets, span, confidence, fix_segment, along_m, distance_m, lost = answer
    pieces = tuple(
        Piece(int(span[k, 0]), int(span[k, 1]), segments[offsets[k] : offsets[k + 1]], float(confidence[k]))
        for k in range(len(confidence))
    )
    return TripMatch(pieces, fix_segment, along_m, distance_m, _reasons(len(pieces), fix_segment, lost))


def _reasons(n_pieces: int, fix_segment: NDArray[np.int64], lost: NDArray[np.int64]) -> tuple[str, ...]:
    away, skipped, single = (int(count) for count in lost)
    if n_pieces == 0:
        alone = fix_segment.size == 1
        return (SINGLE,) if alone and single else (OUTSIDE,) if not single else (CUT,)
    reasons = (CUT,) * (n_pieces + single - 1) + (LEFT_OVER,) * single
    return reasons + (AWAY,) * away + (SKIPPED,) * skipped
