"""Readers of published data sets: mice in a labyrinth, SWIRL's gridworld, and route choice in Borlänge and Shanghai."""

from __future__ import annotations

import os
from typing import Literal

import numpy as np

from limiirl.datasets.base import Dataset, as_numbers, locate, parse_path, read_arrays, read_rows
from limiirl.demos import Demonstrations
from limiirl.errors import InvalidFile, InvalidParameter
from limiirl.mdp import MDP

_N_NODES, _WATER_PORT = 127, 116
_MINIMUM_VISITS = 100


def load_mouse_labyrinth(folder: str | os.PathLike[str]) -> Dataset:
    """Read the node visits of mice in a labyrinth (Rosenberg et al. 2021, eLife 10:e66175).

    The labyrinth is a complete binary tree: node n leads to its parent (n - 1) // 2 and to the nodes 2n + 1 and 2n + 2.
    Node 0 is next to the home cage, where a bout begins and ends; the water port is node 116. Bouts of one visit, and
    mice with fewer than 100 visits, are excluded.

    Parameters
    ----------
    folder : path
        Folder with the file bouts.csv: mouse, water_restricted, bout, nodes (separated by spaces).

    Returns
    -------
    Dataset
        `demos.groups` is the mouse, and `condition` is "restricted" or "unrestricted". The state names are "home", the
        node next to the home cage, "water", and "node 1" and so on.
    """
    path = locate(folder, "bouts.csv")
    rows = read_rows(path, ("mouse", "water_restricted", "nodes"))
    bouts = [parse_path(path, i, row["nodes"], None, _N_NODES) for i, row in enumerate(rows)]
    mouse = np.array([row["mouse"] for row in rows])
    visits = {name: sum(len(bouts[i]) for i in np.flatnonzero(mouse == name)) for name in np.unique(mouse)}
    kept = [i for i, nodes in enumerate(bouts) if len(nodes) > 1 and visits[mouse[i]] >= _MINIMUM_VISITS]
    restricted = np.array([rows[i]["water_restricted"].strip() == "1" for i in kept])
    names = [f"node {n}" for n in range(_N_NODES)]
    names[0], names[_WATER_PORT] = "home", "water"
    nodes = np.arange(1, _N_NODES)
    parents = (nodes - 1) // 2
    mdp = MDP.from_edges(
        np.concatenate([nodes, parents]),
        np.concatenate([parents, nodes]),
        n_states=_N_NODES,
        gamma=0.9,
        state_names=names,
    )
    demos = Demonstrations.from_lists([bouts[i] for i in kept]).replace(groups=mouse[kept], state_names=mdp.state_names)
    return Dataset(
        mdp=mdp,
        demos=demos,
        description="Node visits of mice in a labyrinth, by bout (Rosenberg et al. 2021, eLife 10:e66175).",
        condition=np.where(restricted, "restricted", "unrestricted"),
    )


def load_swirl_labyrinth(folder: str | os.PathLike[str]) -> Dataset:
    """Read 238 windows of 500 actions of mice in a labyrinth, with the split of SWIRL (Ke et al., ICML 2025).

    Each state has four actions. Where two actions lead to the same node, the recorded action distinguishes them. The
    test set is every fifth window, from the first.

    Parameters
    ----------
    folder : path
        Folder with the file labyrinth.npz: states (N, 500), actions (N, 500), next_state (127, 4).
    """
    path = locate(folder, "labyrinth.npz")
    data = read_arrays(path, ("states", "actions", "next_state"))
    states, actions, following = (data[name].astype(np.int64) for name in ("states", "actions", "next_state"))
    if states.ndim != 2 or states.shape != actions.shape or following.ndim != 2:
        raise InvalidFile.at(path, "must have states and actions of the same shape (N, 500), and next_state (S, A).")
    states = np.column_stack([states, following[states[:, -1], actions[:, -1]]])
    n, n_actions = following.shape
    mdp = MDP.from_edges(
        np.repeat(np.arange(n), n_actions),
        following.ravel(),
        n_states=n,
        action=np.tile(np.arange(n_actions), n),
        gamma=0.9,
    )
    return Dataset(
        mdp=mdp,
        demos=Demonstrations.from_lists(list(states), list(actions)),
        description="Windows of 500 actions of water-restricted mice in a labyrinth (Ke et al., ICML 2025).",
        test=np.arange(len(states)) % 5 == 0,
    )


def load_swirl_gridworld(folder: str | os.PathLike[str]) -> Dataset:
    """Read the simulated 5 x 5 gridworld of SWIRL (Ke et al., ICML 2025): two intents that switch, one with memory.

    The test set is every fifth trajectory, from the first. Transitions are deterministic, so that the last action of a
    trajectory, whose next state is not recorded, is known to lead to a state.

    Parameters
    ----------
    folder : path
        Folder with the file gridworld.npz: states, actions and modes (N, 500), transition (25, 5, 25).
    """
    path = locate(folder, "gridworld.npz")
    data = read_arrays(path, ("states", "actions", "modes", "transition"))
    states, actions, modes = (data[name].astype(np.int64) for name in ("states", "actions", "modes"))
    if states.ndim != 2 or not states.shape == actions.shape == modes.shape:
        raise InvalidFile.at(path, "must have states, actions and modes of the same shape (N, 500).")
    following = data["transition"].argmax(axis=2).astype(np.int64)
    states = np.column_stack([states, following[states[:, -1], actions[:, -1]]])
    mdp = MDP.from_dense(data["transition"], gamma=0.9)
    return Dataset(
        mdp=mdp,
        demos=Demonstrations.from_lists(list(states), list(actions)),
        description="Simulated trajectories in a 5 x 5 gridworld with two intents (Ke et al., ICML 2025).",
        test=np.arange(len(states)) % 5 == 0,
        intents=modes.ravel(),
    )


# Turn angles in radians, after Mai, Fosgerau and Frejinger (2015).
_LEFT, _U_TURN = 0.5236, 3.1

_ROAD_CLASSES = ("primary", "secondary", "tertiary", "residential", "unclassified")
# Directions of turns in transit.csv: 0 is straight, 1 to 3 right, 4 back, 5 to 7 left.
_TURNS = {"right turn": (1, 2, 3), "left turn": (5, 6, 7), "U-turn": (4,)}


def load_borlange(folder: str | os.PathLike[str]) -> Dataset:
    """Read 1,832 trips in Borlänge, the benchmark of the recursive logit (Fosgerau, Frejinger and Karlström 2013).

    States are links, and the last state of a trip is its destination. The attributes of an edge are those of Mai,
    Fosgerau and Frejinger (2015): travel time of the next link in minutes, left turn, link constant and U-turn.

    Parameters
    ----------
    folder : path
        Folder with link_pairs.csv.gz, trips.csv.gz and splits.npz.

    Returns
    -------
    Dataset
        `splits` (20, N) are the random splits of Knies, Lorca and Melo (2022).
    """
    path = locate(folder, "link_pairs.csv.gz")
    rows = read_rows(path, ("src", "dst", "travel_time", "turn_angle", "to_destination"))
    src, dst, time, angle, last = (as_numbers(path, rows, name) for name in rows[0])
    left, u_turn = (angle > -_U_TURN) & (angle < -_LEFT), np.abs(angle) > _U_TURN
    n = int(max(src.max(), dst.max())) + 1
    mdp = MDP.from_edges(
        src.astype(np.int64),
        dst.astype(np.int64),
        n_states=n,
        edge_features=np.column_stack([time, left, time > 0, u_turn]) * (last == 0)[:, None],
        feature_names=("travel time", "left turn", "link", "U-turn"),
    )
    path = locate(folder, "trips.csv.gz")
    trips = [parse_path(path, i, row["path"], "_", n) for i, row in enumerate(read_rows(path, ("path",)))]
    splits = read_arrays(locate(folder, "splits.npz"), ("test",))["test"].astype(bool)
    if splits.ndim != 2 or splits.shape[1] != len(trips):
        raise InvalidFile.at(path, f"has {len(trips)} trips, but splits.npz has the shape {splits.shape}.")
    return Dataset(
        mdp=mdp,
        demos=Demonstrations.from_lists(trips),
        description="GPS trips in Borlänge on 7,288 links (Fosgerau, Frejinger and Karlström 2013; Mai et al. 2015).",
        splits=splits,
    )


def load_shanghai(
    folder: str | os.PathLike[str], *, fold: int | None = None, size: Literal[100, 1000, 10000] = 10000
) -> Dataset:
    """Read taxi paths on 714 links in Shanghai (Zhao and Liang 2023, arXiv:2206.10598).

    States are links, and actions are turns in eight directions. The features are kilometres per road class, kilometres
    without a recorded number of lanes, a constant per link, and three kinds of turns. If a link has several classes,
    the first is used; living streets count as residential.

    Parameters
    ----------
    folder : path
        Folder with edge.txt, transit.csv, path.csv and the folder cv.
    fold : int, optional
        One of the authors' five folds. The demonstrations are then its training paths, followed by its test paths,
        which `test` marks. Default: all 24,468 paths.
    size : {100, 1000, 10000}
        Number of training paths of the fold.
    """
    path = locate(folder, "edge.txt")
    links = sorted(read_rows(path, ("n_id", "highway", "length", "lanes")), key=lambda row: int(row["n_id"]))
    n = len(links)
    kilometres = as_numbers(path, links, "length") / 1000.0
    road_class = np.array([_road_class(row["highway"]) for row in links])
    columns = [kilometres * (road_class == name) for name in _ROAD_CLASSES]
    columns += [kilometres * np.array([not row["lanes"].strip() for row in links]), np.ones(n)]
    path = locate(folder, "transit.csv")
    rows = read_rows(path, ("from_link", "action", "to_link"))
    src, action, dst = (as_numbers(path, rows, name).astype(np.int64) for name in ("from_link", "action", "to_link"))
    mdp = MDP.from_edges(
        src,
        dst,
        action=action,
        n_states=n,
        state_features=np.stack(columns, axis=1),
        edge_features=np.stack([np.isin(action, kinds) for kinds in _TURNS.values()], axis=1).astype(np.float64),
        feature_names=(*(f"km, {name}" for name in _ROAD_CLASSES), "km, lanes unknown", "link", *_TURNS),
    )
    if fold is None:
        files = ["path.csv"]
    else:
        for name, value, choices in (("fold", fold, range(5)), ("size", size, (100, 1000, 10000))):
            if isinstance(value, bool) or value not in choices:
                raise InvalidParameter.of(name, value, f"must be one of {', '.join(map(str, choices))}")
        files = [f"cv/train_CV{fold}_size{size}.csv.gz", f"cv/test_CV{fold}.csv.gz"]
    trips: list[list[int]] = []
    first_test = 0
    for name in files:
        first_test = len(trips)
        path = locate(folder, name)
        trips += [parse_path(path, i, row["path"], "_", n) for i, row in enumerate(read_rows(path, ("path",)))]
    return Dataset(
        mdp=mdp,
        demos=Demonstrations.from_lists(trips),
        description="Map-matched taxi paths in Shanghai (Zhao and Liang 2023; network (c) OpenStreetMap contributors).",
        test=None if fold is None else np.arange(len(trips)) >= first_test,
    )


def _road_class(text: str) -> str:
    """Return the first road class in the text of OpenStreetMap, which may be a list."""
    for word in text.strip("[]' ").replace("'", "").split(","):
        return "residential" if word == "living_street" else word.strip()
    return ""
