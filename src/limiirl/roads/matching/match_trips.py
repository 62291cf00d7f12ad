"""`match`: map matching of GPS trips; `estimate_noise`: estimation of the GPS noise from the trips."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from limiirl._progress import Progress
from limiirl._typing import IntArray
from limiirl._validation import check_choice, check_count
from limiirl.errors import InvalidParameter, InvalidTrips
from limiirl.roads.kernels.hmm import path_progress
from limiirl.roads.matching import hmm, particle_filter
from limiirl.roads.matching.candidates import build_grid, find_unique_neighbours, parse_settings
from limiirl.roads.matching.matches import UNMATCHED, Matches, TripMatch
from limiirl.roads.network import RoadNetwork
from limiirl.roads.traces.trips import Trips

if TYPE_CHECKING:
    from limiirl.roads.kernels.spatial_index import GridIndex
    from limiirl.roads.traces.cleaning import CleanedTrips


CHATTER_M = 60.0
"""Maximum length of a stretch between two U-turns that is considered GPS noise."""


def find_chatter(network: RoadNetwork, path: IntArray, most_m: float = CHATTER_M) -> NDArray[np.bool_]:
    """Return a mask (k,) of chatter in a path: a short stretch that is driven back and forth because of GPS noise.

    Chatter has two U-turns: after a stretch of at most `most_m` metres, the path returns over it and then repeats it.
    The return and the repetition are marked; the path remains legal without them.
    """
    noise = np.zeros(path.size, dtype=np.bool_)
    back = network.opposite[path]
    turns = np.flatnonzero(path[1:] == back[:-1]).tolist()
    for i in turns:
        left = np.flatnonzero(~noise[: i + 1])
        for j in (turn for turn in turns if turn > i):
            n = j - i
            before, here = path[left[-n:]], path[i + 1 : j + 1]
            if noise[i + 1] or before.size < n or network.length_m[here].sum() > most_m:
                break
            if np.array_equal(here, back[left[-n:]][::-1]) and np.array_equal(path[j + 1 : j + 1 + n], before):
                noise[i + 1 : j + 1 + n] = True
                break
    return noise


def remove_chatter(network: RoadNetwork, match: TripMatch) -> TripMatch:
    """Return a match without chatter; fixes on removed segments are assigned to the opposite segment."""
    noise = [find_chatter(network, piece.segments) for piece in match.pieces]
    if not any(part.any() for part in noise):
        return match
    segment, along = match.segment.copy(), match.along_m.copy()
    pieces = []
    for piece, wrong in zip(match.pieces, noise, strict=True):
        path = piece.segments[~wrong]
        here = slice(piece.first, piece.last + 1)
        lost = (segment[here] >= 0) & ~np.isin(segment[here], path)
        other = network.opposite[segment[here][lost]]
        along[here][lost] = network.length_m[other] - along[here][lost]
        segment[here][lost] = other
        pieces.append(piece._replace(segments=path))
    return match._replace(pieces=tuple(pieces), segment=segment, along_m=along)


# Label, settings and function of each method.
METHODS: dict[str, tuple[str, type[Any], Callable[..., list[TripMatch]]]] = {
    "hmm": ("HMM", hmm.HmmSettings, hmm.match_hmm),
    "particles": ("particle filter", particle_filter.ParticleSettings, particle_filter.match_particles),
}
_LEAST_SIGMA_M, _LEAST_BETA_M = 0.5, 10.0
# With 20 fixes, the relative error of the estimate is usually below 25 %.
_ENOUGH_FIXES = 20
GIVEN, ESTIMATED, DEFAULT = "given", "estimated from the trips", "default: too few matched fixes"
"""Values of "sigma_from" in the settings of `Matches`."""


def match(
    network: RoadNetwork,
    trips: Trips | CleanedTrips,
    method: str = "hmm",
    *,
    sigma_m: float | None = None,
    index: GridIndex | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
    **settings: Any,
) -> Matches:
    """Match trips to paths of road segments.

    Parameters
    ----------
    network : RoadNetwork
    trips : Trips or CleanedTrips
        `Matches.whole` is True for pieces that cover a complete recorded trip. `CleanedTrips` contain this information;
        `Trips` are assumed to be complete unless they are cut (`Trips.cut`).
    method : {"hmm", "particles"}
        Viterbi path of a hidden Markov model, or particle filter of the paper.
    sigma_m : float, optional
        Standard deviation of each coordinate of a fix, in metres. By default it is estimated from the trips with
        `estimate_noise`; if fewer than 20 fixes can be matched, the default of the method is used. `Matches.settings`
        contains the value as "sigma_m" and its source as "sigma_from".
    index : GridIndex, optional
        Result of `limiirl.roads.build_grid` for this network; built if not given.
    threads : int, optional
        Number of threads; by default the number of numba threads. The result does not depend on it.
    progress : callable, optional
        Called as ``progress(done, total, message)`` after each trip.
    **settings
        Fields of `limiirl.roads.matching.hmm.HmmSettings` or
        `limiirl.roads.matching.particle_filter.ParticleSettings`.

    Examples
    --------
    >>> from limiirl.roads import RoadNetwork, Trips, match
    >>> street = RoadNetwork.from_segments([41.15, 41.151, 41.152], [-8.63] * 3, [0, 1, 2, 1], [1, 2, 1, 0])
    >>> trips = Trips.from_lists([[41.1502, 41.1512, 41.1518]], [[-8.62999, -8.63002, -8.63001]])
    >>> matches = match(street, trips, sigma_m=5.0)
    >>> matches.path(0), matches.whole
    (array([0, 1]), array([ True]))
    >>> match(street, trips).settings["sigma_from"]
    'default: too few matched fixes'
    """
    given, whole = (trips, None) if isinstance(trips, Trips) else (trips.trips, trips.whole)
    check_choice(method, "method", tuple(METHODS))
    label, kind, match_all = METHODS[method]
    resolved = parse_settings(kind, label, settings if sigma_m is None else settings | {"sigma_m": sigma_m})
    grid = build_grid(network) if index is None else _check_grid(network, index)
    source = GIVEN
    if sigma_m is None:
        measured = _estimate(network, given, grid, threads=threads)
        source = DEFAULT if measured is None else ESTIMATED
        resolved = resolved if measured is None else replace(resolved, sigma_m=measured[0])
    raw = match_all(network, grid, given, resolved, threads=threads, progress=progress)
    paths = [remove_chatter(network, each) for each in raw]
    notes = {"method": method, "network": network.fingerprint()} | asdict(resolved) | resolved.radii()._asdict()
    return Matches.from_trips(given, paths, whole=whole, settings=notes | {"sigma_from": source})


def _check_grid(network: RoadNetwork, grid: GridIndex) -> GridIndex:
    """Return the grid; raise `InvalidParameter` if it belongs to another network. The kernels do not check bounds."""
    start, end = network.node_xy[network.tail], network.node_xy[network.head]
    mine: tuple[Any, ...] = (*start.T, *end.T, *find_unique_neighbours(network))
    theirs: tuple[Any, ...] = (grid.ax, grid.ay, grid.bx, grid.by, grid.before, grid.after)
    if not all(np.array_equal(one, two) for one, two in zip(mine, theirs, strict=True)):
        message = "index belongs to another network. Omit it, or build it for this network."
        raise InvalidParameter(message, parameter="index")
    return grid


def estimate_noise(
    network: RoadNetwork,
    trips: Trips | CleanedTrips,
    *,
    rounds: int = 3,
    most_trips: int = 300,
    index: GridIndex | None = None,
    threads: int | None = None,
    **settings: Any,
) -> tuple[float, float]:
    """Estimate sigma_m and beta_m from trips, alternating between matching and estimation.

    Let d be the distance between a fix and its segment, and e the absolute difference between the route distance and
    the straight-line distance of consecutive fixes. Then sigma = 1.4826 median(d) and beta = median(e) / ln 2 (Newson
    and Krumm 2009). Beta is at least sigma and at least 10 m, because the median of mostly straight routes would make
    turns too unlikely. Trips are matched with the hidden Markov model.

    Parameters
    ----------
    network : RoadNetwork
    trips : Trips or CleanedTrips
    rounds : int
        Number of rounds of matching and estimation.
    most_trips : int
        Maximum number of trips; evenly spaced trips are used.
    index, threads
        As in `match`.
    **settings
        Fields of `limiirl.roads.matching.hmm.HmmSettings`; `sigma_m` and `beta_m` are initial values.

    Returns
    -------
    sigma_m, beta_m : float

    Examples
    --------
    >>> from limiirl.roads import City, estimate_noise, simulate_gps
    >>> city = City(radius_km=0.8)
    >>> trips = simulate_gps(city.network, city.drive(6, 4).demos, noise_m=20.0)
    >>> sigma_m, beta_m = estimate_noise(city.network, trips)
    >>> 17.0 < sigma_m < 23.0, beta_m >= sigma_m
    (True, True)
    """
    given = trips if isinstance(trips, Trips) else trips.trips
    check_count(rounds, "rounds")
    check_count(most_trips, "most_trips")
    grid = build_grid(network) if index is None else _check_grid(network, index)
    scales = _estimate(network, given, grid, 1, rounds=rounds, most_trips=most_trips, threads=threads, **settings)
    if scales is None:
        message = "The noise cannot be estimated: no fix could be matched. Check that the trips are on this network."
        raise InvalidTrips(message, parameter="trips")
    return scales


def _estimate(
    network: RoadNetwork, trips: Trips, grid: GridIndex, least: int = _ENOUGH_FIXES, *, rounds: int = 3,
    most_trips: int = 300, threads: int | None = None, **settings: Any,
) -> tuple[float, float] | None:  # fmt: skip
    """Return sigma and beta, or None if fewer than `least` fixes can be matched."""
    some = trips[np.unique(np.linspace(0, len(trips) - 1, min(most_trips, len(trips))).astype(np.int64))]
    resolved = parse_settings(hmm.HmmSettings, "HMM", settings)
    for _ in range(rounds):
        paths = hmm.match_hmm(network, grid, some, resolved, threads=threads)
        matches = Matches.from_trips(some, [remove_chatter(network, path) for path in paths])
        if np.count_nonzero(matches.fix_segment != UNMATCHED) < least:
            return None
        sigma_m, beta_m = _scales(network, some, matches)
        resolved = replace(resolved, sigma_m=sigma_m, beta_m=beta_m)
    return resolved.sigma_m, resolved.beta_m


def _scales(network: RoadNetwork, trips: Trips, matches: Matches) -> tuple[float, float]:
    sigma = 1.4826 * float(np.nanmedian(matches.fix_distance_m))
    straight = np.hypot(*np.diff(network.plane.xy(trips.lat, trips.lon), axis=0).T)
    differences = []
    for i in range(len(matches)):
        low, high = matches.span[i]
        here = slice(low, high + 1)
        fixes = matches.fix_segment[here], matches.fix_along_m[here]
        driven = np.diff(path_progress(matches.path(i), network.length_m, *fixes))
        differences.append(np.abs(driven - straight[low:high])[np.isfinite(driven)])
    pooled = np.concatenate(differences)
    beta = float(np.median(pooled) / np.log(2.0)) if pooled.size else _LEAST_BETA_M
    sigma = max(sigma, _LEAST_SIGMA_M)  # the variance must be positive
    return sigma, max(beta, sigma, _LEAST_BETA_M)
