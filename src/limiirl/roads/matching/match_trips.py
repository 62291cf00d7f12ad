"""`match`: paths of segments from trips by either method; `estimate_noise`: the GPS noise from the trips themselves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from limiirl._progress import Progress
from limiirl._typing import IntArray
from limiirl._validation import check_choice, check_count
from limiirl.errors import InvalidParameter, InvalidTrips
from limiirl.roads.kernels.matched_path import path_progress
from limiirl.roads.matching import hmm, particle_filter
from limiirl.roads.matching.candidates import build_grid, only_neighbours, parse_settings
from limiirl.roads.matching.matches import UNMATCHED, Matches, TripMatch
from limiirl.roads.network import RoadNetwork
from limiirl.roads.traces.trips import Trips

if TYPE_CHECKING:
    from limiirl.roads.kernels.spatial_index import GridIndex
    from limiirl.roads.traces.cleaning import CleanedTrips


CHATTER_M = 60.0
"""Shorter ways there and back, between two U-turns, are noise about a car that stands."""


def find_chatter(network: RoadNetwork, path: IntArray, most_m: float = CHATTER_M) -> NDArray[np.bool_]:
    """Return which places (k,) of a path are chatter: back the way it came, and there again.

    Between two U-turns the car goes back over its last segments, then drives them anew. Without these two stretches
    the path is legal as before, since it goes on from the same segment. A network without U-turns has none.

    Parameters
    ----------
    network : RoadNetwork
    path : (k,) int64
    most_m : float
        How long one of the stretches may be; a longer one is driving.

    Examples
    --------
    >>> lane = RoadNetwork.from_segments([41.15, 41.1502], [-8.63, -8.63], [0, 1], [1, 0], u_turns=True)
    >>> path = np.array([0, 1, 0])
    >>> path[~find_chatter(lane, path)]
    array([0])
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
    """Return a match without chatter; a fix on a segment that is left out lies on its other direction instead."""
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


class _Method(NamedTuple):
    words: str
    settings: type[Any]
    match: Callable[..., list[TripMatch]]


METHODS = {
    "hmm": _Method("HMM", hmm.HmmSettings, hmm.match_hmm),
    "particles": _Method("particle filter", particle_filter.ParticleSettings, particle_filter.match_particles),
}
_LEAST_SIGMA_M, _LEAST_BETA_M = 0.5, 10.0
# From as many the estimate is within a quarter of the truth, more often than not; fewer say little.
_ENOUGH_FIXES = 20
GIVEN, ESTIMATED, DEFAULT = "given", "estimated from the trips", "the default, since too few fixes could be matched"
"""Where `sigma_m` among the settings of `Matches` comes from."""


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
    """Find the path of segments behind each trip.

    Parameters
    ----------
    network : RoadNetwork
    trips : Trips or CleanedTrips
        What `limiirl.roads.clean` returned: a piece is whole only if it is all of its trip. Trips are taken as they
        are, and are whole unless they are pieces (`Trips.cut`).
    method : {"hmm", "particles"}
        The most likely sequence of a hidden Markov model, or the paper's particle filter.
    sigma_m : float, optional
        Noise of a fix in metres, a coordinate. By default it is estimated from all the trips given
        (`estimate_noise`), whatever the method; where fewer than 20 fixes can be matched the method's own default is
        used. `Matches.settings` has the number as ``sigma_m`` and where it comes from as ``sigma_from``. Give a number
        to match some trips exactly as with others beside them.
    index : GridIndex, optional
        From `limiirl.roads.matching.candidates.build_grid` of this very network, if you have it already.
    threads : int, optional
        As many as numba uses by default; the result is the same with any number.
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
    >>> found = match(street, trips, sigma_m=5.0)
    >>> found.path(0), found.whole
    (array([0, 1]), array([ True]))
    >>> match(street, trips).settings["sigma_from"]
    'the default, since too few fixes could be matched'
    """
    given, whole = (trips, None) if isinstance(trips, Trips) else (trips.trips, trips.whole)
    check_choice(method, "method", tuple(METHODS))
    how = METHODS[method]
    numbers = parse_settings(how.settings, how.words, settings if sigma_m is None else settings | {"sigma_m": sigma_m})
    grid = build_grid(network) if index is None else _own(network, index)
    source = GIVEN
    if sigma_m is None:
        measured = _noise(network, given, grid, threads=threads)
        source = DEFAULT if measured is None else ESTIMATED
        numbers = numbers if measured is None else replace(numbers, sigma_m=measured[0])
    found = how.match(network, grid, given, numbers, threads=threads, progress=progress)
    paths = [remove_chatter(network, each) for each in found]
    notes = {"method": method, "network": network.fingerprint()} | asdict(numbers) | numbers.radii()._asdict()
    return Matches.from_trips(given, paths, whole=whole, settings=notes | {"sigma_from": source})


def _own(network: RoadNetwork, grid: GridIndex) -> GridIndex:
    """Return a grid, or say that it is of another network: the kernels would read beyond its arrays."""
    start, end = network.node_xy[network.tail], network.node_xy[network.head]
    mine: tuple[Any, ...] = (*start.T, *end.T, *only_neighbours(network))
    theirs: tuple[Any, ...] = (grid.ax, grid.ay, grid.bx, grid.by, grid.before, grid.after)
    if not all(np.array_equal(one, two) for one, two in zip(mine, theirs, strict=True)):
        raise InvalidParameter(
            "index is of another network. Leave it out, or make it of the network that is given.", parameter="index"
        )
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
    """Return sigma_m and beta_m as the trips have them: matched, measured, and matched anew with what was measured.

    With d the distances of fixes from their roads, and e how much the driven way and the straight line between
    consecutive fixes differ, sigma is 1.4826 median(d) and beta is median(e) / ln 2 (Newson and Krumm 2009), but at
    least sigma and at least 10 m: most steps are straight, so that the median alone makes turns all but impossible.
    RoadArrays and distances are those of the HMM, whichever method then uses the numbers.

    Parameters
    ----------
    network : RoadNetwork
    trips : Trips or CleanedTrips
    rounds : int
        How often to match.
    most_trips : int
        Trips used, spread evenly over those given.
    index : GridIndex, optional
        As for `match`.
    threads : int, optional
        As for `match`.
    **settings
        First `sigma_m` and `beta_m` among them; see `limiirl.roads.matching.hmm.HmmSettings`.

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
    for name, value in (("rounds", rounds), ("most_trips", most_trips)):
        check_count(value, name, remedy="Noise is measured on trips that were matched.")
    grid = build_grid(network) if index is None else _own(network, index)
    found = _noise(network, given, grid, 1, rounds=rounds, most_trips=most_trips, threads=threads, **settings)
    if found is None:
        raise InvalidTrips(
            "No fix could be matched, so that its noise is unknown. Do the trips lie on this network?",
            parameter="trips",
        )
    return found


def _noise(
    network: RoadNetwork,
    trips: Trips,
    grid: GridIndex,
    least: int = _ENOUGH_FIXES,
    *,
    rounds: int = 3,
    most_trips: int = 300,
    threads: int | None = None,
    **settings: Any,
) -> tuple[float, float] | None:
    """Return sigma and beta of trips, or None where fewer fixes than `least` can be matched."""
    some = trips[np.unique(np.linspace(0, len(trips) - 1, min(most_trips, len(trips))).astype(np.int64))]
    numbers = parse_settings(hmm.HmmSettings, "HMM", settings)
    for _ in range(rounds):
        paths = hmm.match_hmm(network, grid, some, numbers, threads=threads)
        found = Matches.from_trips(some, [remove_chatter(network, path) for path in paths])
        if np.count_nonzero(found.fix_segment != UNMATCHED) < least:
            return None
        sigma_m, beta_m = _scales(network, some, found)
        numbers = replace(numbers, sigma_m=sigma_m, beta_m=beta_m)
    return numbers.sigma_m, numbers.beta_m


def _scales(network: RoadNetwork, trips: Trips, found: Matches) -> tuple[float, float]:
    """Return sigma and beta of matched trips."""
    sigma = 1.4826 * float(np.nanmedian(found.fix_distance_m))
    straight = np.hypot(*np.diff(network.plane.xy(trips.lat, trips.lon), axis=0).T)
    differences = []
    for i in range(len(found)):
        low, high = found.span[i]
        here = slice(low, high + 1)
        came = path_progress(found.path(i), network.length_m, found.fix_segment[here], found.fix_along_m[here])
        driven = np.diff(came)
        differences.append(np.abs(driven - straight[low:high])[np.isfinite(driven)])
    # A piece has two fixes at least, but one of them may have been skipped.
    every = np.concatenate(differences)
    beta = float(np.median(every) / np.log(2.0)) if every.size else _LEAST_BETA_M
    # A recording without noise would make the model's variance 0.
    sigma = max(sigma, _LEAST_SIGMA_M)
    return sigma, max(beta, sigma, _LEAST_BETA_M)
