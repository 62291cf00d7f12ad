"""What a GPS receiver would have written of drives along known segments: a fix every few seconds, metres off."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from limiirl._typing import FloatArray, IntArray
from limiirl._validation import check_positive, check_seed, check_share
from limiirl.demos import Demonstrations
from limiirl.errors import InvalidDemos, InvalidParameter
from limiirl.roads.network import RoadNetwork, usual_speed
from limiirl.roads.traces.trips import Trips

_PACE = (0.75, 1.0)  # of the limit, a driver's trip
_PARKED = (0.3, 0.7)  # of the first and the last segment: where a trip begins and ends
_TURN_S = ((45.0, 3.0), (20.0, 1.0))  # over so many degrees, seconds lost; the first that applies
_DRIFT_S = 60.0  # over which a slow error is forgotten
_OUTLIER_M = (200.0, 2000.0)


@dataclass(frozen=True)
class Recording:
    """Noisy trips, and the truth behind each fix.

    Attributes
    ----------
    trips : Trips
    segment : (n,) int64
        On which each fix was really taken.
    along_m : (n,)
        Metres from that segment's start.
    outlier : (n,) bool
        Whether the fix was thrown far off on purpose.
    """

    trips: Trips
    segment: IntArray
    along_m: FloatArray
    outlier: NDArray[np.bool_]


def simulate_gps(network: RoadNetwork, demos: Demonstrations, **settings: Any) -> Trips:
    """Return what a receiver would have written of drives; `simulate_recording` has the settings, and keeps the truth.

    Examples
    --------
    >>> from limiirl.roads import City
    >>> city = City(radius_km=0.8)
    >>> simulate_gps(city.network, city.drive(2, 3).demos, noise_m=5.0).groups.tolist()
    [0, 0, 0, 1, 1, 1]
    """
    return simulate_recording(network, demos, **settings).trips


def simulate_recording(
    network: RoadNetwork,
    demos: Demonstrations,
    *,
    noise_m: float = 10.0,
    step_s: float = 15.0,
    seed: int = 0,
    drift_m: float = 0.0,
    outliers: float = 0.0,
    lost: float = 0.0,
) -> Recording:
    """Drive every demonstration and take a fix every `step_s`.

    A trip begins and ends on its first and last segment, somewhere between three and seven tenths along. It is driven
    at 75 to 100 % of the speed limit (the usual one of the class where it is unknown), and turns cost seconds. The
    first fix is taken at the start; the car waits at the end until the last one is.

    Parameters
    ----------
    network : RoadNetwork
    demos : Demonstrations
        Paths of segments.
    noise_m : float
        Standard deviation of the error to the east, and of that to the north; so the error is 1.25 times as long on
        average. Gaussian, and anew at each fix.
    step_s : float
        Seconds between fixes.
    seed : int
        Determines pace and errors.
    drift_m : float
        Standard deviation of a second error each way, which changes slowly (over a minute).
    outliers : float
        Share of fixes that lie 200 m to 2 km off.
    lost : float
        Share of fixes that are missing, the first and last of a trip never.

    Examples
    --------
    >>> from limiirl.roads import City
    >>> city = City(radius_km=0.8)
    >>> demos = city.drive(2, 3).demos
    >>> found = simulate_recording(city.network, demos, noise_m=0.0)
    >>> bool((found.segment[found.trips.offsets[:-1]] == demos.states[demos.offsets[:-1]]).all())
    True
    """
    check_positive(noise_m, "noise_m", zero=True)
    check_positive(drift_m, "drift_m", zero=True)
    check_positive(step_s, "step_s")
    if step_s < 1e-3:
        raise InvalidParameter(f"step_s must be at least 0.001 s; got {step_s!r}.", parameter="step_s", value=step_s)
    check_share(outliers, "outliers")
    check_share(lost, "lost")
    check_seed(seed)
    if not len(demos):
        raise InvalidDemos("There are no demonstrations to drive. Give at least one.", parameter="demos")
    turn_s = _turn_seconds(network, demos)
    rng = np.random.default_rng((seed, 1))
    speed = usual_speed(network) / 3.6
    drives = []
    for i in range(len(demos)):
        rows = slice(demos.offsets[i], demos.offsets[i + 1])
        drives.append(_drive(network.length_m, demos.states[rows], speed, turn_s[rows], step_s, rng))
    lengths = np.array([time.size for time, _, _ in drives])
    time, segment, along = (np.concatenate(parts) for parts in zip(*drives, strict=True))
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    share = (along / network.length_m[segment])[:, None]
    xy = (1.0 - share) * network.node_xy[network.tail[segment]] + share * network.node_xy[network.head[segment]]
    xy = xy + noise_m * rng.normal(size=xy.shape) + drift_m * _drift(offsets, step_s, rng)
    outlier = rng.random(time.size) < outliers
    angle, away = rng.uniform(0.0, 2.0 * np.pi, time.size), rng.uniform(*_OUTLIER_M, time.size)
    xy += (outlier * away)[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    kept = rng.random(time.size) >= lost
    kept[offsets[:-1]] = kept[offsets[1:] - 1] = True
    lat, lon = network.plane.degrees(xy[kept]).T
    trips = Trips(
        lat,
        lon,
        time[kept],
        np.concatenate([[0], np.cumsum(np.add.reduceat(kept, offsets[:-1]))]),
        np.arange(len(demos)) if demos.ids is None else demos.ids,
        demos.groups,
    )
    return Recording(trips, segment[kept], along[kept], outlier[kept])


def _turn_seconds(network: RoadNetwork, demos: Demonstrations) -> FloatArray:
    """Return the seconds (n,) lost at the end of each segment driven, or say which turn does not exist."""
    key = network.turn_from.astype(np.int64) * network.n_segments + network.turn_to
    if demos.states.size and demos.states.max() >= network.n_segments:
        raise InvalidDemos(
            f"segment {demos.states.max()} is driven, but the network has {network.n_segments}. Is it another network?",
            parameter="demos",
            value=int(demos.states.max()),
            index=int(demos.states.argmax()),
        )
    last = np.zeros(demos.states.size, dtype=np.bool_)
    last[demos.offsets[1:] - 1] = True
    wanted = demos.states * network.n_segments + np.roll(demos.states, -1)
    turn = np.searchsorted(key, wanted)
    known = turn < key.size
    known[known] = key[turn[known]] == wanted[known]
    wrong = ~last & ~known
    if wrong.any():
        i = int(np.argmax(wrong))
        trip = int(np.searchsorted(demos.offsets, i, side="right")) - 1
        raise InvalidDemos(
            f"demonstration {trip} drives from segment {demos.states[i]} to {demos.states[i + 1]}, which is no legal "
            "turn of the network. Is it another network?",
            parameter="demos",
            value=(int(demos.states[i]), int(demos.states[i + 1])),
            index=trip,
        )
    bend = np.abs(network.turn_angle[turn[~last]])
    lost = np.zeros(last.size)
    lost[~last] = np.select([bend > degrees for degrees, _ in _TURN_S], [seconds for _, seconds in _TURN_S], 0.0)
    return lost


def _drive(
    length_m: FloatArray, path: IntArray, speed: FloatArray, turn_s: FloatArray, step_s: float, rng: np.random.Generator
) -> tuple[FloatArray, IntArray, FloatArray]:
    """Return time, segment and metres along it of each fix of one trip."""
    first, last = rng.uniform(*_PARKED, 2)
    if path.size == 1:
        first, last = min(first, last), max(first, last)
    end = np.cumsum(length_m[path])
    start = end - length_m[path]
    enter, leave = start.copy(), end.copy()
    enter[0], leave[-1] = start[0] + first * length_m[path[0]], start[-1] + last * length_m[path[-1]]
    pace = rng.uniform(*_PACE)
    spent = np.stack([(leave - enter) / (pace * speed[path]), turn_s], axis=1).ravel()
    # The clock at the start of each segment, at its end, and once the turn there is made.
    clock = np.concatenate([[0.0], np.cumsum(spent)])[:-1]
    place = np.stack([enter, leave], axis=1).ravel()
    time = step_s * np.arange(np.ceil(clock[-1] / step_s) + 1.0)
    at = np.interp(time, clock, place)
    k = np.minimum(np.searchsorted(end, at, side="right"), path.size - 1)
    return time, path[k], np.clip(at - start[k], 0.0, length_m[path[k]])


def _drift(offsets: IntArray, step_s: float, rng: np.random.Generator) -> FloatArray:
    """Return a slow error (n, 2) of standard deviation 1 each way: an autoregression, begun anew with each trip."""
    keep = np.exp(-step_s / _DRIFT_S)
    error = rng.normal(size=(offsets[-1], 2))
    begins = np.zeros(offsets[-1], dtype=np.bool_)
    begins[offsets[:-1]] = True
    for i in range(1, offsets[-1]):
        if not begins[i]:
            error[i] = keep * error[i - 1] + np.sqrt(1.0 - keep**2) * error[i]
    return error
