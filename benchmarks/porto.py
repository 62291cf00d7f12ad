"""Porto's streets as an MDP, for benchmarks: states are directed segments, actions are turns.

Reads the OpenStreetMap extract `porto_road_osm` of the shared data: ../shared/data beside the checkout, or where
`LIMIIRL_DATA` says. Built by `limiirl.roads.build`: no service roads, no U-turns, so that a dead end is terminal. Data
(c) OpenStreetMap contributors, ODbL.
"""

import os
from pathlib import Path

from limiirl import MDP, roads

FOLDER = Path(os.environ.get("LIMIIRL_DATA", Path(__file__).parents[2] / "shared" / "data")) / "porto_road_osm"
CLASSES = ("motorway", "trunk", "primary", "secondary", "tertiary", "residential", "other")
# What the data's README counts, by the same rules; a reader that finds anything else is wrong.
N_SEGMENTS, N_TURNS = 85_189, 99_685


def available() -> bool:
    """Return whether the data are there."""
    return (FOLDER / "osm_ways.jsonl.gz").exists()


def streets() -> roads.RoadNetwork:
    """Return Porto's road network."""
    network = roads.build(FOLDER)
    size = network.n_segments, network.n_turns
    if size != (N_SEGMENTS, N_TURNS):
        raise ValueError(f"{size} segments and turns, not {(N_SEGMENTS, N_TURNS)}: is it another extract?")
    return network


def network(gamma: float) -> MDP:
    """Return Porto's roads with a feature a road class, the length in km; p0 is uniform."""
    groups = {name: (name,) for name in CLASSES[:-1]} | {CLASSES[-1]: ("*",)}
    choice = roads.FeatureChoice(class_groups=groups, speed_groups=None, regions=False)
    return streets().mdp(choice, gamma=gamma)
