"""Taxi paths in Shanghai as demonstrations in an MDP: states are road links, and actions are turns in eight directions.

Reads `shanghai_taxi_rcm` of the shared data: ../shared/data beside the checkout, or the folder in `LIMIIRL_DATA`.
Network (c) OpenStreetMap contributors, ODbL; paths of Zhao and Liang (2023).
"""

import os
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from limiirl import MDP, Demonstrations

FOLDER = Path(os.environ.get("LIMIIRL_DATA", Path(__file__).parents[2] / "shared" / "data")) / "shanghai_taxi_rcm"
N_LINKS, N_TURNS, N_PATHS = 714, 1_737, 24_468
CLASSES = ("primary", "secondary", "tertiary", "residential", "unclassified")
# Directions in transit.csv, confirmed by the bearings of links: 0 straight, 1 to 3 right, 4 back, 5 to 7 left.
RIGHT, BACK, LEFT = (1, 2, 3), (4,), (5, 6, 7)
TURNS = {"right turn": RIGHT, "left turn": LEFT, "U-turn": BACK}
N_FOLDS = 5


def available() -> bool:
    """Return True if the data are present."""
    return (FOLDER / "path.csv").exists()


def links() -> pd.DataFrame:
    """Return one row per link, in the order of the states."""
    table = pd.read_csv(FOLDER / "edge.txt", skipinitialspace=True).sort_values("n_id", ignore_index=True)
    if len(table) != N_LINKS or not np.array_equal(table["n_id"], np.arange(N_LINKS)):
        raise ValueError(f"{len(table)} links, not {N_LINKS} numbered from 0. Check the version of the file.")
    return table


def network() -> MDP:
    """Return the MDP.

    The features are km per road class, km with unknown lanes, a constant per link, and three types of turns.

    If a link has two classes, the first is used; living streets count as residential.
    """
    table = links()
    named = table["highway"].str.extract(r"([a-z_]+)")[0].replace("living_street", "residential")
    km = table["length"].to_numpy() / 1000.0
    columns = [km * (named == name) for name in CLASSES]
    columns += [km * table["lanes"].isna(), np.ones(N_LINKS)]
    turns = pd.read_csv(FOLDER / "transit.csv")
    if len(turns) != N_TURNS:
        raise ValueError(f"{len(turns)} turns, not {N_TURNS}. Check the version of the file.")
    turned = np.stack([turns["action"].isin(kinds) for kinds in TURNS.values()], axis=1)
    names = (*(f"km, {name}" for name in CLASSES), "km, lanes unknown", "link", *TURNS)
    return MDP.from_edges(
        turns["from_link"],
        turns["to_link"],
        action=turns["action"],
        n_states=N_LINKS,
        state_features=np.stack(columns, axis=1).astype(np.float64),
        edge_features=turned.astype(np.float64),
        feature_names=names,
    )


def lengths_only(mdp: MDP) -> MDP:
    """Return the network with the length in km as its only feature."""
    km = np.asarray(mdp.state_features)[:, : len(CLASSES)].sum(axis=1, keepdims=True)
    return mdp.replace(state_features=km, edge_features=None, feature_names=("km",))


def paths() -> Demonstrations:
    """Return the observed paths."""
    table = pd.read_csv(FOLDER / "path.csv")
    if len(table) != N_PATHS:
        raise ValueError(f"{len(table)} paths, not {N_PATHS}. Check the version of the file.")
    return Demonstrations.from_lists([[int(link) for link in path.split("_")] for path in table["path"]])


def folds(n: int) -> NDArray[np.int64]:
    """Return the fold (n,) of each path: a random permutation (seed 0) modulo 5. The authors' folds are unknown.

    Examples
    --------
    >>> np.bincount(folds(12)).tolist()
    [3, 3, 2, 2, 2]
    """
    fold = np.empty(n, dtype=np.int64)
    fold[np.random.default_rng(0).permutation(n)] = np.arange(n) % N_FOLDS
    return fold
