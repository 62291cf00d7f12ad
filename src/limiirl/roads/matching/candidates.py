"""What both matchers share: the grid over a network, streets, settings, one workspace per thread, loss reasons."""

from __future__ import annotations

import queue
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from typing import Any, NamedTuple, TypeVar

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
"""Side of a cell: about the search radius, so that a search looks at some nine cells."""


def only_neighbours(network: RoadNetwork) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Return (S,) the segment before each and (S,) the one after, where neither end offers a choice; else -1.

    Segment b is after a if b is the only turn out of a and a the only turn into b.

    Examples
    --------
    >>> fork = RoadNetwork.from_segments([0, 0, 0, 1], [0, 1, 2, 2], [0, 1, 2, 2], [1, 2, 1, 3])
    >>> only_neighbours(fork)[1]  # from 0 to 1; there 3 is the only way on, since back is no turn
    array([ 1,  3, -1, -1], dtype=int32)
    """
    n = network.n_segments
    ways_out = np.bincount(network.turn_from, minlength=n)
    ways_in = np.bincount(network.turn_to, minlength=n)
    single = (ways_out[network.turn_from] == 1) & (ways_in[network.turn_to] == 1)
    before, after = np.full(n, -1, dtype=np.int32), np.full(n, -1, dtype=np.int32)
    before[network.turn_to[single]] = network.turn_from[single]
    after[network.turn_from[single]] = network.turn_to[single]
    return before, after


def build_streets(network: RoadNetwork) -> Streets:
    """Return the streets of a network: chains of segments without a choice.

    Examples
    --------
    >>> fork = RoadNetwork.from_segments([0, 0, 0, 1], [0, 1, 2, 2], [0, 1, 2, 2], [1, 2, 1, 3])
    >>> build_streets(fork).street
    array([0, 0, 1, 0], dtype=int32)
    """
    return streets(*only_neighbours(network), network.length_m, network.out_ptr, network.turn_to)


def build_grid(network: RoadNetwork, cell_m: float = CELL_M) -> GridIndex:
    """Return the grid over a network's segments, on its flat map.

    Examples
    --------
    >>> street = RoadNetwork.from_segments([41.15, 41.151], [-8.63, -8.63], [0, 1], [1, 0])
    >>> build_grid(street).items  # cell by cell: 111 m in each direction touch three cells of 60 m
    array([0, 1, 0, 1, 0, 1], dtype=int32)
    """
    check_positive(cell_m, "cell_m")
    return rasterise(network.node_xy, network.tail, network.head, *only_neighbours(network), float(cell_m))


_Settings = TypeVar("_Settings")
_LEAST_RADIUS_M, _RADIUS_SIGMAS = 50.0, 4.0


class Radii(NamedTuple):
    """How far from a fix roads are looked for, and up to where that grows if there are none."""

    radius_m: float
    max_radius_m: float


def check_numbers(
    settings: Any, *, whole: Collection[str], from_zero: Collection[str], optional: Collection[str] = ()
) -> None:
    """Check a frozen dataclass of numbers, and make them plain: those of numpy cannot be written to a file's header.

    Parameters
    ----------
    settings : dataclass
        In its ``__post_init__``.
    whole : names
        Whole numbers; all others may be broken ones.
    from_zero : names
        May be 0; all others are above it.
    optional : names
        May be None.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Few:
    ...     n: int
    ...     def __post_init__(self):
    ...         check_numbers(self, whole=("n",), from_zero=())
    >>> Few(np.int64(3))
    Few(n=3)
    >>> Few(0)
    Traceback (most recent call last):
    ...
    limiirl.errors.InvalidParameter: n must be a whole number of at least 1; it is 0.
    """
    for part in fields(settings):
        name, value = part.name, getattr(settings, part.name)
        if value is None and name in optional:
            continue
        good = isinstance(value, int | float | np.number) and not isinstance(value, bool) and 0 <= value < np.inf
        if not good or (value == 0 and name not in from_zero) or (name in whole and value != int(value)):
            kind = "a whole number" if name in whole else "a finite number"
            rule = "of at least 0" if name in from_zero else "of at least 1" if name in whole else "above 0"
            raise InvalidParameter(f"{name} must be {kind} {rule}; it is {value!r}.", parameter=name, value=value)
        object.__setattr__(settings, name, int(value) if name in whole else float(value))


def parse_settings(kind: type[_Settings], matcher: str, given: Mapping[str, Any]) -> _Settings:
    """Return settings of a kind, or say which name the matcher does not know.

    Examples
    --------
    >>> from limiirl.roads.matching.hmm import HmmSettings
    >>> parse_settings(HmmSettings, "HMM", {"sigma_m": 5.0}).sigma_m
    5.0
    """
    known = [part.name for part in fields(kind)]  # type: ignore[arg-type]
    unknown = [name for name in given if name not in known]
    if unknown:
        raise InvalidParameter(
            f"The {matcher} knows no {unknown[0]!r}; its settings are {', '.join(known)}.",
            parameter=unknown[0],
            value=given[unknown[0]],
        )
    return kind(**given)


def search_radii(sigma_m: float, radius_m: float | None, max_radius_m: float | None) -> Radii:
    """Return the radii of a search: 4 sigmas, but at least 50 m, and twice that, where they are not given.

    With less than 4 sigmas the right road is out of sight too often.

    Examples
    --------
    >>> search_radii(25.0, None, None)
    Radii(radius_m=100.0, max_radius_m=200.0)
    """
    near_m = max(_LEAST_RADIUS_M, _RADIUS_SIGMAS * sigma_m) if radius_m is None else radius_m
    return Radii(near_m, max(near_m, 2.0 * near_m if max_radius_m is None else max_radius_m))


def match_each(
    one: Callable[[int, Router], TripMatch],
    n: int,
    streets: Streets,
    threads: int | None,
    progress: Progress | None,
) -> list[TripMatch]:
    """Return one(i, desk) for i = 0, ..., n - 1, in this order whatever the threads.

    Parameters
    ----------
    one : callable
        Matches trip i on a desk that nobody else uses meanwhile.
    n : int
    streets : Streets
        That the desks are for.
    threads : int, optional
        As many as numba uses by default.
    progress : callable, optional
        Called as ``progress(done, total, message)`` after each trip.
    """
    if threads is not None:
        check_count(threads, "threads")
    n_threads = min(threads or numba.get_num_threads(), max(1, n))
    desks: queue.SimpleQueue[Router] = queue.SimpleQueue()
    for _ in range(n_threads):
        desks.put(router(streets))

    def with_desk(i: int) -> TripMatch:
        desk = desks.get()
        try:
            return one(i, desk)
        finally:
            desks.put(desk)

    found: list[TripMatch] = []
    with ThreadPoolExecutor(n_threads) as pool:
        # Without a second thread an interrupt reaches the one that works.
        for match in pool.map(with_desk, range(n)) if n_threads > 1 else map(with_desk, range(n)):
            found.append(match)
            if progress is not None:
                progress(len(found), n, "")
    return found


OUTSIDE = "nothing of it lies near the network"
SINGLE = "a single fix is no path"
CUT = "cut where no way leads on in time"
LEFT_OVER = "a single fix between cuts"
SKIPPED = "a fix that cannot be true was skipped"
AWAY = "a fix lies off the network"


def loss_reasons(n_fixes: int, n_pieces: int, *, single: int, away: int, skipped: int) -> tuple[str, ...]:
    """Return a reason for each thing that is missing.

    Parameters
    ----------
    n_fixes, n_pieces : int
        Of the trip: fixes, and paths found.
    single : int
        Pieces of one fix, which are no paths.
    away, skipped : int
        Fixes without a place: off the network, and passed over although roads are near.

    Examples
    --------
    >>> loss_reasons(9, 2, single=0, away=0, skipped=1)
    ('cut where no way leads on in time', 'a fix that cannot be true was skipped')
    >>> loss_reasons(1, 0, single=1, away=0, skipped=0)
    ('a single fix is no path',)
    """
    if n_pieces == 0:
        return (OUTSIDE,) if not single else (SINGLE,) if n_fixes == 1 else (CUT,)
    return (CUT,) * (n_pieces + single - 1) + (LEFT_OVER,) * single + (AWAY,) * away + (SKIPPED,) * skipped
