"""Code shared by both matching methods: grid index, streets, settings, threads, and reasons for unmatched fixes."""

from __future__ import annotations

import queue
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from typing import Any, ClassVar, NamedTuple, TypeVar

import numba
import numpy as np
from numpy.typing import NDArray

from limiirl._progress import Progress
from limiirl._validation import check_count, check_positive
from limiirl.errors import InvalidParameter
from limiirl.roads.kernels.routing import Router, Streets, router, streets
from limiirl.roads.kernels.spatial_index import GridIndex, rasterise
from limiirl.roads.matching.matches import TripMatch
from limiirl.roads.network import RoadNetwork

CELL_M = 60.0
"""Side of a grid cell; with a similar search radius, a search visits about nine cells."""


def find_unique_neighbours(network: RoadNetwork) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Return the unique predecessor (S,) and the unique successor (S,) of each segment; -1 if there is none.

    Segment b is the unique successor of a if the turn from a to b is the only turn out of a and the only turn into b.
    """
    n = network.n_segments
    out_degree = np.bincount(network.turn_from, minlength=n)
    in_degree = np.bincount(network.turn_to, minlength=n)
    single = (out_degree[network.turn_from] == 1) & (in_degree[network.turn_to] == 1)
    before, after = np.full(n, -1, dtype=np.int32), np.full(n, -1, dtype=np.int32)
    before[network.turn_to[single]] = network.turn_from[single]
    after[network.turn_from[single]] = network.turn_to[single]
    return before, after


def build_streets(network: RoadNetwork) -> Streets:
    """Return the streets of a network; a street is a maximal chain of unique successors."""
    return streets(*find_unique_neighbours(network), network.length_m, network.out_ptr, network.turn_to)


def build_grid(network: RoadNetwork, cell_m: float = CELL_M) -> GridIndex:
    """Return the grid index of the segments of a network.

    Examples
    --------
    >>> street = RoadNetwork.from_segments([41.15, 41.151], [-8.63, -8.63], [0, 1], [1, 0])
    >>> build_grid(street).items  # 111 m touch three cells of 60 m
    array([0, 1, 0, 1, 0, 1], dtype=int32)
    """
    check_positive(cell_m, "cell_m")
    return rasterise(network.node_xy, network.tail, network.head, *find_unique_neighbours(network), float(cell_m))


_Settings = TypeVar("_Settings")
_LEAST_RADIUS_M, _RADIUS_SIGMAS = 50.0, 4.0


class Radii(NamedTuple):
    """Search radius around a fix, and its maximum after doubling."""

    radius_m: float
    max_radius_m: float


class MatcherSettings:
    """Base class of the settings of a matching method.

    `whole` lists the fields that must be integers; `from_zero` lists the fields that may be 0.
    """

    whole: ClassVar[Collection[str]]
    from_zero: ClassVar[Collection[str]]
    sigma_m: float
    radius_m: float | None
    max_radius_m: float | None

    def __post_init__(self) -> None:
        """Validate the values, and convert them to Python numbers."""
        for part in fields(self):  # type: ignore[arg-type]
            name, value = part.name, getattr(self, part.name)
            if value is None and name in ("radius_m", "max_radius_m"):
                continue
            good = isinstance(value, int | float | np.number) and not isinstance(value, bool) and 0 <= value < np.inf
            whole, from_zero = name in self.whole, name in self.from_zero
            if not good or (value == 0 and not from_zero) or (whole and value != int(value)):
                rule = "of at least 0" if from_zero else "of at least 1" if whole else "above 0"
                kind = "an integer" if whole else "a finite number"
                raise InvalidParameter.of(name, value, f"must be {kind} {rule}")
            object.__setattr__(self, name, int(value) if whole else float(value))

    def radii(self) -> Radii:
        """Return the search radii."""
        near_m = max(_LEAST_RADIUS_M, _RADIUS_SIGMAS * self.sigma_m) if self.radius_m is None else self.radius_m
        return Radii(near_m, max(near_m, 2.0 * near_m if self.max_radius_m is None else self.max_radius_m))


def parse_settings(kind: type[_Settings], matcher: str, given: Mapping[str, Any]) -> _Settings:
    """Return the settings of a method; raise `InvalidParameter` for an unknown name."""
    known = [part.name for part in fields(kind)]  # type: ignore[arg-type]
    unknown = [name for name in given if name not in known]
    if unknown:
        message = f"{unknown[0]!r} is not a setting of the {matcher}; its settings are {', '.join(known)}."
        raise InvalidParameter(message, parameter=unknown[0], value=given[unknown[0]])
    return kind(**given)


def match_each(
    match_one: Callable[[int, Router], TripMatch],
    n: int,
    streets: Streets,
    threads: int | None,
    progress: Progress | None,
) -> list[TripMatch]:
    """Return [match_one(i, router) for i in range(n)], computed with several threads.

    Concurrent calls use different routers. `progress` is called after each trip.
    """
    if threads is not None:
        check_count(threads, "threads")
    n_threads = min(threads or numba.get_num_threads(), max(1, n))
    routers: queue.SimpleQueue[Router] = queue.SimpleQueue()
    for _ in range(n_threads):
        routers.put(router(streets))

    def with_router(i: int) -> TripMatch:
        own = routers.get()
        try:
            return match_one(i, own)
        finally:
            routers.put(own)

    matches: list[TripMatch] = []
    with ThreadPoolExecutor(n_threads) as pool:
        # A single thread runs in the caller, so that it can be interrupted.
        for match in pool.map(with_router, range(n)) if n_threads > 1 else map(with_router, range(n)):
            matches.append(match)
            if progress is not None:
                progress(len(matches), n, "")
    return matches


OUTSIDE = "no fix is near the network"
SINGLE = "the trip has a single fix"
CUT = "cut: the next fix is not reachable in time"
LEFT_OVER = "a single fix between two cuts"
SKIPPED = "an implausible fix was skipped"
AWAY = "a fix is not near the network"


def loss_reasons(n_fixes: int, n_pieces: int, *, single: int, away: int, skipped: int) -> tuple[str, ...]:
    """Return the reasons for unmatched parts, given the numbers of single, distant and skipped fixes."""
    if n_pieces == 0:
        return (OUTSIDE,) if not single else (SINGLE,) if n_fixes == 1 else (CUT,)
    return (CUT,) * (n_pieces + single - 1) + (LEFT_OVER,) * single + (AWAY,) * away + (SKIPPED,) * skipped
