"""Porto's streets as an MDP, for benchmarks: states are directed segments, actions are turns.

Reads the OpenStreetMap extract `porto_road_osm` of the shared data: ../shared/data beside the checkout, or where
`LIMIIRL_DATA` says. A segment is an ordered pair of consecutive nodes of a way that is not a service way, in the
largest part of the streets where every node can be reached from every other. There are no U-turns, so that a dead end
is terminal. Data (c) OpenStreetMap contributors, ODbL.
"""

import csv
import gzip
import itertools
import json
import os
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.csgraph import connected_components

from limiirl import MDP

FOLDER = Path(os.environ.get("LIMIIRL_DATA", Path(__file__).parents[2] / "shared" / "data")) / "porto_road_osm"
CLASSES = ("motorway", "trunk", "primary", "secondary", "tertiary", "residential", "other")
# What the data's README counts, by the same rules; a reader that finds anything else is wrong.
N_SEGMENTS, N_TURNS = 85_189, 99_685
_KM_A_DEGREE = 111.195


def available() -> bool:
    """Return whether the data are there."""
    return (FOLDER / "osm_ways.jsonl.gz").exists()


def network(gamma: float) -> MDP:
    """Return Porto's roads with a feature a road class, the length in km; p0 is uniform."""
    pairs, kind = _segments()
    kept = _connected(pairs)
    pairs, kind = pairs[kept], kind[kept]
    turns, n = _turns(pairs), len(pairs)
    if (n, len(turns)) != (N_SEGMENTS, N_TURNS):
        raise ValueError(f"{n} segments and {len(turns)} turns, not {N_SEGMENTS} and {N_TURNS}: is it another extract?")
    features = np.zeros((n, len(CLASSES)))
    features[np.arange(n), kind] = _lengths(pairs)
    return MDP.from_edges(
        turns[:, 0],
        turns[:, 1],
        n_states=n,
        p0=np.full(n, 1.0 / n),
        gamma=gamma,
        state_features=features,
        feature_names=[f"km of {name}" for name in CLASSES],
    )


def _segments() -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the distinct directed segments (n, 2), as pairs of node numbers, and the class (n,) of each."""
    found: dict[tuple[int, int], int] = {}
    with gzip.open(FOLDER / "osm_ways.jsonl.gz", "rt", encoding="utf-8") as lines:
        for way in map(json.loads, lines):
            tags, nodes = way["tags"], way["nodes"]
            highway = tags["highway"].removesuffix("_link")
            if highway == "service":
                continue
            kind = CLASSES.index(highway) if highway in CLASSES else len(CLASSES) - 1
            oneway = tags.get("oneway")
            if oneway is None and (highway == "motorway" or tags.get("junction") == "roundabout"):
                oneway = "yes"
            if oneway != "-1":
                found |= dict.fromkeys(itertools.pairwise(nodes), kind)
            if oneway not in ("yes", "true", "1"):
                found |= dict.fromkeys(itertools.pairwise(reversed(nodes)), kind)
    return np.array(list(found), dtype=np.int64), np.fromiter(found.values(), dtype=np.int64)


def _connected(pairs: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return (n,) which segments lie in the largest strongly connected part of the street nodes."""
    nodes, at = np.unique(pairs, return_inverse=True)
    ends = at.reshape(pairs.shape)
    streets = sparse.csr_array((np.ones(len(pairs)), ends.T), shape=(nodes.size, nodes.size))
    _, part = connected_components(streets, connection="strong")
    return np.asarray(np.all(part[ends] == np.argmax(np.bincount(part)), axis=1))


def _turns(pairs: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return (m, 2): from and to segment of every turn that is no U-turn."""
    order = np.argsort(pairs[:, 0], kind="stable")
    tails = pairs[order, 0]
    low, high = np.searchsorted(tails, pairs[:, 1], "left"), np.searchsorted(tails, pairs[:, 1], "right")
    source = np.repeat(np.arange(len(pairs)), high - low)
    target = order[np.arange(source.size) - np.repeat(np.cumsum(high - low) - high, high - low)]
    onward = pairs[target, 1] != pairs[source, 0]
    return np.column_stack([source, target])[onward]


def _lengths(pairs: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the length (n,) in km of segments, on a plane, which a city is."""
    place = {}
    with gzip.open(FOLDER / "osm_nodes.csv.gz", "rt", encoding="utf-8") as lines:
        for row in csv.DictReader(lines):
            place[int(row["id"])] = (float(row["lat"]), float(row["lon"]))
    tail, head = (np.array([place[node] for node in pairs[:, end].tolist()]) for end in (0, 1))
    north, east = (_KM_A_DEGREE * (head - tail)).T
    return np.asarray(np.hypot(north, east * np.cos(np.radians(tail[:, 0]))))
