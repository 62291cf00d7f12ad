"""Matching by a hidden Markov model (Newson and Krumm 2009): the most likely sequence of places given the fixes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from limiirl._progress import Progress
from limiirl.roads.kernels.hmm import HmmModel
from limiirl.roads.kernels.matched_path import match_trip
from limiirl.roads.kernels.routing import Router
from limiirl.roads.kernels.spatial_index import GridIndex
from limiirl.roads.matching.candidates import (
    Radii,
    build_streets,
    check_numbers,
    loss_reasons,
    match_each,
    search_radii,
)
from limiirl.roads.matching.matches import MatchedPiece, TripMatch
from limiirl.roads.network import RoadNetwork
from limiirl.roads.traces.trips import Trips

_WHOLE = ("most", "max_skips")
_FROM_ZERO = (
    "max_radius_m", "thin_sigmas", "slack_m", "detour_betas", "back_sigmas", "beam", "max_skips", "end_m",
)  # fmt: skip


@dataclass(frozen=True)
class HmmSettings:
    """The numbers of the model.

    Parameters
    ----------
    sigma_m : float
        Standard deviation of the distance of a fix from its road; `match` estimates it where it is not given, and the
        number here is for too few fixes.
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
    >>> HmmSettings(sigma_m=5.0).model().back_m
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
        """Check the numbers, and make them plain ones."""
        check_numbers(self, whole=_WHOLE, from_zero=_FROM_ZERO, optional=("radius_m", "max_radius_m"))

    def model(self) -> HmmModel:
        """Return the numbers as the kernel takes them."""
        return HmmModel(
            sigma_m=self.sigma_m,
            beta_m=self.beta_m,
            most=self.most,
            thin_m=self.thin_sigmas * self.sigma_m,
            speed_ms=self.speed_ms,
            slack_m=self.slack_m,
            detour_m=self.detour_betas * self.beta_m,
            back_m=self.back_sigmas * self.sigma_m,
            beam=self.beam,
            max_skips=self.max_skips,
            end_m=self.end_m,
            **self.radii()._asdict(),
        )

    def radii(self) -> Radii:
        """Return both radii, as they follow from sigma where they are not given."""
        return search_radii(self.sigma_m, self.radius_m, self.max_radius_m)


def match_hmm(
    network: RoadNetwork,
    index: GridIndex,
    trips: Trips,
    settings: HmmSettings,
    *,
    threads: int | None = None,
    progress: Progress | None = None,
) -> list[TripMatch]:
    """Match every trip on its own; the result does not depend on the threads.

    Parameters
    ----------
    network : RoadNetwork
    index : GridIndex
        From `limiirl.roads.matching.candidates.build_grid`.
    trips : Trips
    settings : HmmSettings
    threads : int, optional
        As many as numba uses by default.
    progress : callable, optional
        Called as ``progress(done, total, message)`` after each trip.
    """
    roads, model = build_streets(network), settings.model()
    xy = network.plane.xy(trips.lat, trips.lon)
    x, y = np.ascontiguousarray(xy[:, 0]), np.ascontiguousarray(xy[:, 1])

    def one(i: int, desk: Router) -> TripMatch:
        rows = slice(trips.offsets[i], trips.offsets[i + 1])
        return _trip_match(match_trip(index, roads, x[rows], y[rows], trips.time_s[rows], model, desk))

    return match_each(one, len(trips), roads, threads, progress)


def _trip_match(answer: tuple[Any, ...]) -> TripMatch:
    """Return the kernel's answer about one trip with the reasons in words."""
    segments, offsets, span, confidence, fix_segment, along_m, distance_m, lost = answer
    pieces = tuple(
        MatchedPiece(int(span[k, 0]), int(span[k, 1]), segments[offsets[k] : offsets[k + 1]], float(confidence[k]))
        for k in range(len(confidence))
    )
    away, skipped, single = (int(count) for count in lost)
    reasons = loss_reasons(len(fix_segment), len(pieces), single=single, away=away, skipped=skipped)
    return TripMatch(pieces, fix_segment, along_m, distance_m, reasons)
