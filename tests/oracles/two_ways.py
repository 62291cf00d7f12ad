"""A road network of six segments that can be computed by hand: two routes lead from A to B, and one road back."""

import numpy as np

from limiirl import Demonstrations
from limiirl.roads import RoadNetwork

# 0 leads to A and 4 away from B; 1 and 2 between them are a motorway of 400 m, 3 is a street of 300 m; 5 leads back.
LENGTH_M = np.array([100.0, 200.0, 200.0, 300.0, 100.0, 600.0])
SUCCESSORS = {0: [1, 3], 1: [2], 2: [4], 3: [4], 4: [5], 5: [0]}
MOTORWAY, STREET = [0, 1, 2, 4], [0, 3, 4]
KINDS = [MOTORWAY, STREET, [5, *STREET], [5, *MOTORWAY], [1, 2, 4, 5], [3, 4, 5], [4, 5, 0, 3], [2, 4, 5, 0]]


def two_ways() -> RoadNetwork:
    """Return the network: the motorway is the faster route, the street the shorter one."""
    return RoadNetwork.from_segments(
        [41.15, 41.151, 41.154, 41.151, 41.15],
        [-8.64, -8.638, -8.636, -8.634, -8.632],
        tail=[0, 1, 2, 1, 3, 4],
        head=[1, 2, 3, 3, 4, 0],
        length_m=LENGTH_M,
        road_class=[1, 0, 0, 1, 1, 1],
        class_names=("motorway", "residential"),
        speed_kmh=[30.0, 120.0, 120.0, 30.0, 30.0, 30.0],
    )


def drives(n: int, seed: int = 0) -> list[list[int]]:
    """Trips of the eight kinds, at random; the two whole routes are the most frequent."""
    drawn = np.random.default_rng(seed).choice(len(KINDS), size=n, p=[0.3, 0.2, 0.1, 0.1, 0.1, 0.1, 0.05, 0.05])
    return [KINDS[i] for i in drawn]


def demonstrations(paths: list[list[int]], **more: object) -> Demonstrations:
    """Return trips with their numbers as ids."""
    demos = Demonstrations.from_lists(paths)
    return Demonstrations(demos.states, demos.offsets, ids=np.arange(len(paths)), **more)
