"""`match`: trips to paths of segments by either method; and `estimate_noise`, from the trips themselves."""

from __future__ import annotations

from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from limiirl.errors import InvalidParameter, InvalidTrips
from limiirl.roads.matching import hmm
from limiirl.roads.matching.candidates import index as grid_of
from limiirl.roads.matching.candidates import only_neighbours
from limiirl.roads.matching.matches import UNMATCHED, Matches
from limiirl.roads.matching.path_repair import without_chatter
from limiirl.roads.matching.pool import Progress
from limiirl.roads.network import RoadNetwork
from limiirl.roads.traces.trips import Trips

if TYPE_CHECKING:
    from limiirl.kernels.candidates import GridIndex
    from limiirl.roads.traces.cleaning import Cleaned

METHODS = ("hmm", "particles")
_LEAST_SIGMA_M, _LEAST_BETA_M = 0.5, 10.0


def match(
    network: RoadNetwork,
    trips: Trips | Cleaned,
    method: str = "hmm",
    *,
    index: GridIndex | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
    **settings: Any,
) -> Matches:
    """Find the path of segments behind each trip.

    Parameters
    ----------
    network : RoadNetwork
    trips : Trips or Cleaned
        What `limiirl.roads.clean` returned: a piece is whole only if it is all of its trip. Trips are taken as they
        are.
    method : {"hmm", "particles"}
        The most likely sequence of a hidden Markov model, or the paper's particle filter.
    index : GridIndex, optional
        From `limiirl.roads.matching.candidates.index` of this very network, if you have it already.
    threads : int, optional
        As many as numba uses by default; the result is the same with any number.
    progress : callable, optional
        Called with the number of trips done and of all.
    **settings
        Of the method: `limiirl.roads.matching.hmm.Settings` or `limiirl.roads.matching.particles`.

    Examples
    --------
    >>> from limiirl.roads import RoadNetwork, Trips, match
    >>> street = RoadNetwork.from_segments([41.15, 41.151, 41.152], [-8.63] * 3, [0, 1, 2, 1], [1, 2, 1, 0])
    >>> trips = Trips.from_lists([[41.1502, 41.1512, 41.1518]], [[-8.62999, -8.63002, -8.63001]])
    >>> found = match(street, trips)
    >>> found.path(0), found.whole
    (array([0, 1]), array([ True]))
    """
    given, whole = (trips, None) if isinstance(trips, Trips) else (trips.trips, trips.whole)
    if method not in METHODS:
        raise InvalidParameter(f"method must be one of {', '.join(METHODS)}; it is {method!r}.")
    grid = grid_of(network) if index is None else _own(network, index)
    notes: dict[str, Any] = {"method": method, "network": network.fingerprint()}
    if method == "particles":
        from limiirl.roads.matching.particles import Settings, match_particles

        found = match_particles(network, grid, given, threads=threads, progress=progress, **settings)
        found = [without_chatter(network, each) for each in found]
        return Matches.from_trips(given, found, whole=whole, settings=notes | asdict(Settings(**settings)))
    known = [part.name for part in fields(hmm.Settings)]
    unknown = [name for name in settings if name not in known]
    if unknown:
        raise InvalidParameter(f"The HMM knows no {unknown[0]!r}; its settings are {', '.join(known)}.")
    chosen = hmm.Settings(**settings)
    found = hmm.match_hmm(network, grid, given, chosen, threads=threads, progress=progress)
    found = [without_chatter(network, each) for each in found]
    radii = {name: getattr(chosen.model(), name) for name in ("radius_m", "max_radius_m")}
    return Matches.from_trips(given, found, whole=whole, settings=notes | asdict(chosen) | radii)


def _own(network: RoadNetwork, grid: GridIndex) -> GridIndex:
    """Return a grid, or say that it is of another network: the kernels would read beyond its arrays."""
    start, end = network.node_xy[network.tail], network.node_xy[network.head]
    mine: tuple[Any, ...] = (*start.T, *end.T, *only_neighbours(network))
    theirs: tuple[Any, ...] = (grid.ax, grid.ay, grid.bx, grid.by, grid.before, grid.after)
    if not all(np.array_equal(one, two) for one, two in zip(mine, theirs, strict=True)):
        raise InvalidParameter("index is of another network. Leave it out, or make it of the network that is given.")
    return grid


def estimate_noise(
    network: RoadNetwork,
    trips: Trips | Cleaned,
    *,
    rounds: int = 3,
    most_trips: int = 300,
    index: GridIndex | None = None,
    **settings: Any,
) -> tuple[float, float]:
    """Return sigma_m and beta_m as the trips have them: matched, measured, and matched anew with what was measured.

    With d the distances of fixes from their roads, and e how much the driven way and the straight line between
    consecutive fixes differ, sigma is 1.4826 median(d) and beta is median(e) / ln 2 (Newson and Krumm 2009), but at
    least sigma and at least 10 m: most steps are straight, so that the median alone makes turns all but impossible.

    Parameters
    ----------
    network : RoadNetwork
    trips : Trips or Cleaned
    rounds : int
        How often to match.
    most_trips : int
        Trips used, spread evenly over those given.
    index : GridIndex, optional
    **settings
        First `sigma_m` and `beta_m` among them; see `limiirl.roads.matching.hmm.Settings`.
    """
    given = trips if isinstance(trips, Trips) else trips.trips
    some = given[np.unique(np.linspace(0, len(given) - 1, min(most_trips, len(given))).astype(np.int64))]
    grid = grid_of(network) if index is None else index
    scales = {name: getattr(hmm.Settings(**settings), name) for name in ("sigma_m", "beta_m")}
    for _ in range(rounds):
        found = match(network, some, index=grid, **(settings | scales))
        scales = dict(zip(scales, _scales(network, some, found), strict=True))
    return scales["sigma_m"], scales["beta_m"]


def _scales(network: RoadNetwork, trips: Trips, found: Matches) -> tuple[float, float]:
    """Return sigma and beta of matched trips."""
    on = found.fix_segment != UNMATCHED
    if not on.any():
        raise InvalidTrips("No fix could be matched, so that its noise is unknown. Do the trips lie on this network?")
    sigma = 1.4826 * float(np.median(found.fix_distance_m[on]))
    xy = network.plane.xy(trips.lat, trips.lon)
    straight = np.hypot(*np.diff(xy, axis=0).T)
    differences = []
    for i in range(len(found)):
        low, high = found.span[i]
        driven = np.diff(_progress(network, found, i))
        gaps = straight[low:high]
        differences.append(np.abs(driven - gaps)[np.isfinite(driven)])
    beta = float(np.median(np.concatenate(differences)) / np.log(2.0)) if differences else 1.0
    # A recording without noise would make the model's variance 0.
    sigma = max(sigma, _LEAST_SIGMA_M)
    return sigma, max(beta, sigma, _LEAST_BETA_M)


def _progress(network: RoadNetwork, found: Matches, i: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return metres (k,) from the beginning of piece i's path at each of its fixes; NaN for those unmatched."""
    path, (low, high) = found.path(i), found.span[i]
    start = np.concatenate([[0.0], np.cumsum(network.length_m[path])])
    segment, along = found.fix_segment[low : high + 1], found.fix_along_m[low : high + 1]
    at, progress = 0, np.full(segment.size, np.nan)
    for k in range(segment.size):
        if segment[k] == UNMATCHED:
            continue
        onward = np.flatnonzero(path[at:] == segment[k])
        if onward.size:
            at += int(onward[0])
            progress[k] = start[at] + along[k]
        else:
            progress[k] = start[at]
    return progress
