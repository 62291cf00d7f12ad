"""The streets of Porto as an MDP: states are directed road segments, and actions are turns.

Reads the OpenStreetMap extract `porto_road_osm` of the shared data: ../shared/data beside the checkout, or the folder
in `LIMIIRL_DATA`. The network is built with `limiirl.roads.build` without service roads and U-turns, so that dead ends
are terminal. Data (c) OpenStreetMap contributors, ODbL.
"""

import os
from pathlib import Path

from limiirl import MDP, roads

FOLDER = Path(os.environ.get("LIMIIRL_DATA", Path(__file__).parents[2] / "shared" / "data")) / "porto_road_osm"
CLASSES = ("motorway", "trunk", "primary", "secondary", "tertiary", "residential", "other")
# Counts in the README of the data, by the same rules.
N_SEGMENTS, N_TURNS = 85_189, 99_685


def available() -> bool:
    """Return True if the data are present."""
    return (FOLDER / "osm_ways.jsonl.gz").exists()


def streets() -> roads.RoadNetwork:
    """Return the road network of Porto."""
    network = roads.build(FOLDER)
    size = network.n_segments, network.n_turns
    if size != (N_SEGMENTS, N_TURNS):
        raise ValueError(f"{size} segments and turns, not {(N_SEGMENTS, N_TURNS)}. Check the version of the extract.")
    return network


def network(gamma: float) -> MDP:
    """Return the MDP, with the length in km per road class as features, and uniform p0."""
    groups = {name: (name,) for name in CLASSES[:-1]} | {CLASSES[-1]: ("*",)}
    choice = roads.FeatureChoice(class_groups=groups, speed_groups=None, regions=False)
    return streets().mdp(choice, gamma=gamma)
