"""Recordings of mice in a labyrinth, and the simulated gridworld of SWIRL."""

from __future__ import annotations

import os

import numpy as np

from limiirl.datasets.base import Dataset, locate, parse_path, read_arrays, read_rows
from limiirl.demos import Demonstrations
from limiirl.errors import InvalidFile
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
