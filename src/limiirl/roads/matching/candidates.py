"""Code shared by both matchers: spatial grid, streets, settings, one router per thread, loss reasons."""

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
"""Side of a grid cell: about the search radius, so that a search visits about nine cells."""


def only_neighbours(network: RoadNetwork) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Return the only predecessor (S,) and the only successor (S,) of each segment; -1 if there is none.

    Segment b is the successor of a if it is the only turn out of a, and a is the only turn into b.
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
    """Return the streets of a network: chains of segments without alternatives."""
    return streets(*only_neighbours(network), network.length_m, network.out_ptr, network.turn_to)


def build_grid(network: RoadNetwork, cell_m: float = CELL_M) -> GridIndex:
    """Return the grid index of a network's segments, on its plane.

    Examples
    --------
    >>> street = RoadNetwork.from_segments([41.15, 41.151], [-8.63, -8.63], [0, 1], [1, 0])
    >>> build_grid(street).items  # 111 m touch three cells of 60 m
    array([0, 1, 0, 1, 0, 1], dtype=int32)
    """
    check_positive(cell_m, "cell_m")
    return rasterise(network.node_xy, network.tail, network.head, *only_neighbours(network), float(cell_m))


_Settings = TypeVar("_Settings")
_LEAST_RADIUS_M, _RADIUS_SIGMAS = 50.0, 4.0


class Radii(NamedTuple):
    """Search radius around a fix, and the maximum to which it grows while there are no candidates."""

    radius_m: float
    max_radius_m: float


class MatcherSettings:
    """Base of the frozen dataclasses of settings: validation, and search radii.

    `whole` lists the fields that must be integers, `from_zero` those that may be 0 (others are positive).
    """

    whole: ClassVar[Collection[str]]
    from_zero: ClassVar[Collection[str]]
    sigma_m: float
    radius_m: float | None
    max_radius_m: float | None

    def __post_init__(self) -> None:
        """Check the values and convert them to Python numbers."""
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
        """Return the search radii; by default 4 sigma, but at least 50 m, and twice that."""
        near_m = max(_LEAST_RADIUS_M, _RADIUS_SIGMAS * self.sigma_m) if self.radius_m is None else self.radius_m
        return Radii(near_m, max(near_m, 2.0 * near_m if self.max_radius_m is None else self.max_radius_m))


def parse_settings(kind: type[_Settings], matcher: str, given: Mapping[str, Any]) -> _Settings:
    """Return settings of a kind; an unknown name is an error."""
    known = [part.name for part in fields(kind)]  # type: ignore[arg-type]
    unknown = [name for name in given if name not in known]
    if unknown:
        message = f"{unknown[0]!r} is not a setting of the {matcher}; these are {', '.join(known)}."
        raise InvalidParameter(message, parameter=unknown[0], value=given[unknown[0]])
    return kind(**given)


def match_each(
    match_one: Callable[[int, Router], TripMatch],
    n: int,
    streets: Streets,
    threads: int | None,
    progress: Progress | None,
) -> list[TripMatch]:
    """Return [match_one(i, router) for i in range(n)], on several threads (by default as many as numba uses).

    No two calls use the same router at the same time. `progress` is called after each trip.
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
        # With one thread in this one: an interrupt then reaches the work itself.
        for match in pool.map(with_router, range(n)) if n_threads > 1 else map(with_router, range(n)):
            matches.append(match)
            if progress is not None:
                progress(len(matches), n, "")
    return matches


OUTSIDE = "no fix lies near the network"
SINGLE = "the trip has a single fix"
CUT = "cut: the next fix is not reachable in time"
LEFT_OVER = "a single fix between two cuts"
SKIPPED = "an implausible fix was skipped"
AWAY = "a fix lies off the network"


def loss_reasons(n_fixes: int, n_pieces: int, *, single: int, away: int, skipped: int) -> tuple[str, ...]:
    """Return one reason per unmatched part: pieces of a `single` fix, fixes `away` from roads, and `skipped` fixes."""
    if n_pieces == 0:
        return (OUTSIDE,) if not single else (SINGLE,) if n_fixes == 1 else (CUT,)
    return (CUT,) * (n_pieces + single - 1) + (LEFT_OVER,) * single + (AWAY,) * away + (SKIPPED,) * skipped
