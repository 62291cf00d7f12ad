"""`match`: paths of segments from GPS trips; `estimate_noise`: the GPS noise from the trips themselves."""

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
from limiirl.roads.matching.candidates import build_grid, only_neighbours, parse_settings
from limiirl.roads.matching.matches import UNMATCHED, Matches, TripMatch
from limiirl.roads.network import RoadNetwork
from limiirl.roads.traces.trips import Trips

if TYPE_CHECKING:
    from limiirl.roads.kernels.spatial_index import GridIndex
    from limiirl.roads.traces.cleaning import CleanedTrips


CHATTER_M = 60.0
"""Shorter excursions between two U-turns are GPS noise of a standing car."""


def find_chatter(network: RoadNetwork, path: IntArray, most_m: float = CHATTER_M) -> NDArray[np.bool_]:
    """Return a mask (k,) of the chatter in a path: back over its last segments and forth again, between two U-turns.

    Excursions longer than `most_m` in one direction are driving. Without the chatter the path is still legal, since it
    continues from the same segment.
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
    """Return a match without chatter; fixes on removed segments move to the opposite direction of the segment."""
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
# With 20 fixes the estimate is more often than not within 25 % of the truth.
_ENOUGH_FIXES = 20
GIVEN, ESTIMATED, DEFAULT = "given", "estimated from the trips", "default: too few matched fixes"
"""Origin of `sigma_m` in the settings of `Matches`."""


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
        For the result of `limiirl.roads.clean`, a piece is whole only if it covers its recorded trip; `Trips` are whole
        unless they were cut (`Trips.cut`).
    method : {"hmm", "particles"}
        Viterbi path of a hidden Markov model, or the paper's particle filter.
    sigma_m : float, optional
        Standard deviation of a fix in metres per coordinate. By default it is estimated from all trips
        (`estimate_noise`), or the method's default if fewer than 20 fixes can be matched; `Matches.settings` has the
        value as ``sigma_m`` and its origin as ``sigma_from``. With a given value, trips are matched independently.
    index : GridIndex, optional
        Result of `limiirl.roads.build_grid` for this network, to reuse it.
    threads : int, optional
        By default as many as numba uses; the result does not depend on it.
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
    numbers = parse_settings(kind, label, settings if sigma_m is None else settings | {"sigma_m": sigma_m})
    grid = build_grid(network) if index is None else _check_grid(network, index)
    source = GIVEN
    if sigma_m is None:
        measured = _estimate(network, given, grid, threads=threads)
        source = DEFAULT if measured is None else ESTIMATED
        numbers = numbers if measured is None else replace(numbers, sigma_m=measured[0])
    raw = match_all(network, grid, given, numbers, threads=threads, progress=progress)
    paths = [remove_chatter(network, each) for each in raw]
    notes = {"method": method, "network": network.fingerprint()} | asdict(numbers) | numbers.radii()._asdict()
    return Matches.from_trips(given, paths, whole=whole, settings=notes | {"sigma_from": source})


def _check_grid(network: RoadNetwork, grid: GridIndex) -> GridIndex:
    """Return a grid of this network; with another one the kernels would read out of bounds."""
    start, end = network.node_xy[network.tail], network.node_xy[network.head]
    mine: tuple[Any, ...] = (*start.T, *end.T, *only_neighbours(network))
    theirs: tuple[Any, ...] = (grid.ax, grid.ay, grid.bx, grid.by, grid.before, grid.after)
    if not all(np.array_equal(one, two) for one, two in zip(mine, theirs, strict=True)):
        message = "index belongs to another network. Leave it out, or build it for this network."
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

    With d the distances of fixes from their segments, and e the difference between the driven and the straight distance
    of consecutive fixes, sigma = 1.4826 median(d) and beta = median(e) / ln 2 (Newson and Krumm 2009), with beta at
    least sigma and at least 10 m: most steps are straight, and the median alone would make turns too unlikely. The HMM
    is used for both methods.

    Parameters
    ----------
    network : RoadNetwork
    trips : Trips or CleanedTrips
    rounds : int
        Number of rounds of matching and estimation.
    most_trips : int
        Number of trips used, spread evenly.
    index, threads
        As in `match`.
    **settings
        Fields of `limiirl.roads.matching.hmm.HmmSettings`, with the initial `sigma_m` and `beta_m`.

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
        message = "No fix could be matched; the noise is unknown. Check that the trips lie on this network."
        raise InvalidTrips(message, parameter="trips")
    return scales


def _estimate(
    network: RoadNetwork, trips: Trips, grid: GridIndex, least: int = _ENOUGH_FIXES, *, rounds: int = 3,
    most_trips: int = 300, threads: int | None = None, **settings: Any,
) -> tuple[float, float] | None:  # fmt: skip
    """Return sigma and beta, or None if fewer than `least` fixes can be matched."""
    some = trips[np.unique(np.linspace(0, len(trips) - 1, min(most_trips, len(trips))).astype(np.int64))]
    numbers = parse_settings(hmm.HmmSettings, "HMM", settings)
    for _ in range(rounds):
        paths = hmm.match_hmm(network, grid, some, numbers, threads=threads)
        matches = Matches.from_trips(some, [remove_chatter(network, path) for path in paths])
        if np.count_nonzero(matches.fix_segment != UNMATCHED) < least:
            return None
        sigma_m, beta_m = _scales(network, some, matches)
        numbers = replace(numbers, sigma_m=sigma_m, beta_m=beta_m)
    return numbers.sigma_m, numbers.beta_m


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
    # Empty if one of the two fixes of every piece was skipped.
    pooled = np.concatenate(differences)
    beta = float(np.median(pooled) / np.log(2.0)) if pooled.size else _LEAST_BETA_M
    sigma = max(sigma, _LEAST_SIGMA_M)  # the variance must not be 0
    return sigma, max(beta, sigma, _LEAST_BETA_M)
