"""Simulated GPS recordings of known paths."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from limiirl._typing import FloatArray, IntArray
from limiirl._validation import check_fraction, check_positive, check_seed
from limiirl.demos import Demonstrations
from limiirl.errors import InvalidDemos, InvalidParameter
from limiirl.roads.network import RoadNetwork, usual_speed
from limiirl.roads.traces.trips import Trips

_PACE = (0.75, 1.0)  # speed of a trip as a fraction of the limit
_PARKED = (0.3, 0.7)  # position of the start and end of a trip on its first and last segment
_TURN_S = (
    (45.0, 3.0),
    (20.0, 1.0),
)  # (minimum turn angle in degrees, seconds lost); the first match applies
_DRIFT_S = 60.0  # time constant of the drift
_OUTLIER_M = (200.0, 2000.0)


@dataclass(frozen=True)
class Recording:
    """Simulated trips with the true position of each fix.

    Attributes
    ----------
    trips : Trips
    segment : (n,) int64
        True segment of each fix.
    along_m : (n,)
        True distance from the start of the segment, in metres.
    outlier : (n,) bool
        True for simulated outliers.
    """

    trips: Trips
    segment: IntArray
    along_m: FloatArray
    outlier: NDArray[np.bool_]


def simulate_gps(network: RoadNetwork, demos: Demonstrations, **settings: Any) -> Trips:
    """Return simulated GPS trips; the options are those of `simulate_recording`, which also returns true positions.

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
    """Simulate GPS recordings of demonstrations, with one fix per `step_s` seconds.

    A trip starts and ends at 30 to 70 % of its first and last segment. Its speed is 75 to 100 % of the speed limit (of
    the median limit of the road class, if unknown), and turns take additional seconds. The first fix is at the start of
    the trip, and the last fix at its end.

    Parameters
    ----------
    network : RoadNetwork
    demos : Demonstrations
        Paths of segments.
    noise_m : float
        Standard deviation of the independent Gaussian error of each coordinate.
    step_s : float
        Seconds between fixes.
    seed : int
        Seed of the speeds and errors.
    drift_m : float
        Standard deviation of a second Gaussian error of each coordinate, with a correlation time of 60 s.
    outliers : float
        Fraction of the fixes that are displaced by 200 m to 2 km.
    lost : float
        Fraction of the fixes that are missing; the first and the last fix of a trip are never missing.

    Examples
    --------
    >>> from limiirl.roads import City
    >>> city = City(radius_km=0.8)
    >>> demos = city.drive(2, 3).demos
    >>> recording = simulate_recording(city.network, demos, noise_m=0.0)
    >>> bool((recording.segment[recording.trips.offsets[:-1]] == demos.states[demos.offsets[:-1]]).all())
    True
    """
    check_positive(noise_m, "noise_m", zero=True)
    check_positive(drift_m, "drift_m", zero=True)
    check_positive(step_s, "step_s")
    if step_s < 1e-3:
        raise InvalidParameter.of("step_s", step_s, "must be at least 0.001 s")
    check_fraction(outliers, "outliers")
    check_fraction(lost, "lost")
    check_seed(seed)
    if not len(demos):
        raise InvalidDemos("demos must have at least one demonstration; got none.", parameter="demos")
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
    fraction = (along / network.length_m[segment])[:, None]
    xy = (1.0 - fraction) * network.node_xy[network.tail[segment]] + fraction * network.node_xy[network.head[segment]]
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
    """Return the seconds (n,) lost at the end of each segment; raise `InvalidDemos` for an illegal turn."""
    key = network.turn_from.astype(np.int64) * network.n_segments + network.turn_to
    if demos.states.size and demos.states.max() >= network.n_segments:
        i = int(demos.states.argmax())
        rule = f"must be segments of this network (0 to {network.n_segments - 1})"
        raise InvalidDemos.of("demos", int(demos.states[i]), rule, index=i)
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
        turned = int(demos.states[i]), int(demos.states[i + 1])
        rule = "must consist of legal turns of this network"
        remedy = "Check that the trips belong to this network."
        raise InvalidDemos.of("demos", turned, rule, index=trip, remedy=remedy)
    bend = np.abs(network.turn_angle[turn[~last]])
    lost = np.zeros(last.size)
    lost[~last] = np.select([bend > degrees for degrees, _ in _TURN_S], [seconds for _, seconds in _TURN_S], 0.0)
    return lost


def _drive(
    length_m: FloatArray, path: IntArray, speed: FloatArray, turn_s: FloatArray, step_s: float, rng: np.random.Generator
) -> tuple[FloatArray, IntArray, FloatArray]:
    """Return the time, the segment and the position on the segment (in metres) of each fix of one trip."""
    first, last = rng.uniform(*_PARKED, 2)
    if path.size == 1:
        first, last = min(first, last), max(first, last)
    end = np.cumsum(length_m[path])
    start = end - length_m[path]
    enter, leave = start.copy(), end.copy()
    enter[0], leave[-1] = start[0] + first * length_m[path[0]], start[-1] + last * length_m[path[-1]]
    pace = rng.uniform(*_PACE)
    spent = np.stack([(leave - enter) / (pace * speed[path]), turn_s], axis=1).ravel()
    # Times at the start and the end of each segment; the time of a turn is added between segments.
    clock = np.concatenate([[0.0], np.cumsum(spent)])[:-1]
    position = np.stack([enter, leave], axis=1).ravel()
    time = step_s * np.arange(np.ceil(clock[-1] / step_s) + 1.0)
    at = np.interp(time, clock, position)
    k = np.minimum(np.searchsorted(end, at, side="right"), path.size - 1)
    return time, path[k], np.clip(at - start[k], 0.0, length_m[path[k]])


def _drift(offsets: IntArray, step_s: float, rng: np.random.Generator) -> FloatArray:
    """Return a drift (n, 2) of unit variance: an AR(1) process per coordinate, restarted for each trip."""
    keep = np.exp(-step_s / _DRIFT_S)
    error = rng.normal(size=(offsets[-1], 2))
    begins = np.zeros(offsets[-1], dtype=np.bool_)
    begins[offsets[:-1]] = True
    for i in range(1, offsets[-1]):
        if not begins[i]:
            error[i] = keep * error[i - 1] + np.sqrt(1.0 - keep**2) * error[i]
    return error
