"""Trimming the ends of cleaned trips: every trip and fix is accounted for."""

import numpy as np

from limiirl.errors import InvalidTrips
from limiirl.roads import RoadNetwork, Trips, clean
from limiirl.roads.geometry import Plane, distance_m
from limiirl.roads.privacy import trim_cleaned
from tests.helpers import raises

PLANE = Plane(41.15, -8.63)
CORNERS = PLANE.degrees([[-5000.0, -5000.0], [5000.0, -5000.0], [5000.0, 5000.0]])
NETWORK = RoadNetwork.from_segments(CORNERS[:, 0], CORNERS[:, 1], [0, 1, 2], [1, 2, 0])


def drives(*lines: list[float]) -> Trips:
    """Trips along a line, at metres east of a point."""
    points = [PLANE.degrees(np.column_stack([x, np.zeros(len(x))])) for x in lines]
    return Trips.from_lists([p[:, 0] for p in points], [p[:, 1] for p in points])


def test_an_outlier_at_the_beginning_does_not_save_the_home():
    steps = np.arange(0.0, 3000.0, 100.0)
    homes = [100.0, 0.0]  # the first true fix of the trip with the outlier is at 100 m
    left = trim_cleaned(clean(drives([4000.0, *steps[1:]], list(steps)), NETWORK), NETWORK, 250.0).trips
    assert 1 in left.ids
    for trip, (lat, lon, _) in zip(left.ids.tolist(), left, strict=True):
        for end in (homes[trip], steps[-1]):
            assert distance_m(lat, lon, *PLANE.degrees([[end, 0.0]])[0]).min() > 250.0


def test_every_trip_is_still_accounted_for():
    steps = list(np.arange(0.0, 3000.0, 100.0))
    # The second is too short for its ends whatever is drawn, the third has a jump in the middle.
    cleaned = clean(drives(steps, steps[:5], [*steps[:15], *(x + 1500.0 for x in steps[15:])]), NETWORK)
    left = trim_cleaned(cleaned, NETWORK, 250.0)
    assert left.n_trips == 3
    assert len(left.trips) == 1
    assert left.lost == {"cut before its ends could be trimmed": 1, "nothing left without its ends": 1}


def test_nothing_left_is_said():
    with raises(InvalidTrips, parameter="metres", value=2000.0):
        trim_cleaned(clean(drives(list(np.arange(0.0, 3000.0, 100.0))), NETWORK), NETWORK, 2000.0)
