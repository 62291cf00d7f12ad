"""Map matching with a hidden Markov model (Newson and Krumm 2009)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from limiirl._progress import Progress
from limiirl.roads.kernels.hmm import HmmModel, match_trip
from limiirl.roads.kernels.routing import Router
from limiirl.roads.kernels.spatial_index import GridIndex
from limiirl.roads.matching.candidates import MatcherSettings, build_streets, loss_reasons, match_each
from limiirl.roads.matching.matches import MatchedPiece, TripMatch
from limiirl.roads.network import RoadNetwork
from limiirl.roads.traces.trips import Trips


@dataclass(frozen=True)
class HmmSettings(MatcherSettings):
    """Settings of the hidden Markov model (HMM).

    Parameters
    ----------
    sigma_m : float
        Standard deviation of the normal emission probability of the distance between fix and segment. `match`
        estimates it by default.
    beta_m : float
        Scale of the exponential transition probability of the difference between route and straight-line distance.
    radius_m, max_radius_m : float, optional
        Search radius around a fix, by default 4 sigma and at least 50 m. While there are no candidates, it is doubled
        up to the maximum, by default twice the radius.
    most : int
        Maximum number of candidate streets per fix.
    thin_sigmas : float
        Fixes closer than this many sigmas to the previously used fix are ignored.
    speed_ms, slack_m : float
        Maximum speed in metres per second, and a constant added to the reachable distance.
    detour_betas : float
        Routes that exceed the straight-line distance by more than this many betas are searched only if there are no
        others.
    back_sigmas : float
        Backward movement on a street by at most this many sigmas is considered noise.
    beam : float
        Candidates with a log-probability below the maximum minus this value are used only if there are no others.
    max_skips : int
        Maximum number of consecutive outliers that are skipped before the trip is cut.
    end_m : float
        The first or last segment is dropped if less than this distance and less than half of it was driven.
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

    whole: ClassVar = ("most", "max_skips")
    from_zero: ClassVar = (
        "max_radius_m", "thin_sigmas", "slack_m", "detour_betas", "back_sigmas", "beam", "max_skips", "end_m",
    )  # fmt: skip

    def model(self) -> HmmModel:
        """Return the parameters for the kernels."""
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


def match_hmm(
    network: RoadNetwork, index: GridIndex, trips: Trips, settings: HmmSettings, *, threads: int | None = None,
    progress: Progress | None = None,
) -> list[TripMatch]:  # fmt: skip
    """Match each trip independently; see `limiirl.roads.match`."""
    roads, model = build_streets(network), settings.model()
    xy = network.plane.xy(trips.lat, trips.lon)
    x, y = np.ascontiguousarray(xy[:, 0]), np.ascontiguousarray(xy[:, 1])

    def match_one(i: int, router: Router) -> TripMatch:
        rows = slice(trips.offsets[i], trips.offsets[i + 1])
        return _make_trip_match(match_trip(index, roads, x[rows], y[rows], trips.time_s[rows], model, router))

    return match_each(match_one, len(trips), roads, threads, progress)


def _make_trip_match(result: tuple[Any, ...]) -> TripMatch:
    segments, offsets, span, confidence, fix_segment, along_m, distance_m, lost = result
    pieces = tuple(
        MatchedPiece(int(span[k, 0]), int(span[k, 1]), segments[offsets[k] : offsets[k + 1]], float(confidence[k]))
        for k in range(len(confidence))
    )
    away, skipped, single = (int(count) for count in lost)
    reasons = loss_reasons(len(fix_segment), len(pieces), single=single, away=away, skipped=skipped)
    return TripMatch(pieces, fix_segment, along_m, distance_m, reasons)
