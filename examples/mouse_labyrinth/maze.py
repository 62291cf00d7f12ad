"""The labyrinth as an MDP: a binary tree of 127 nodes, in which the state includes the previous node.

Node n has the children 2n + 1 and 2n + 2; node 0 is next to the home cage, and the water port is node 116. Mice rarely
turn around within a corridor, which a reward on nodes cannot express. A state of `steps_mdp` is therefore a step: down
into a junction, or up from a node. A dead end offers no choice, so entering and leaving it is one step. `nodes_mdp` is
the baseline with one reward per node.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

import limiirl as ll

Int = NDArray[np.int64]
Float = NDArray[np.float64]

N_NODES, N_LEVELS, WATER = 127, 7, 116
N_JUNCTIONS = N_NODES // 2
"""The junctions are nodes 0 to 62; the other 64 nodes are dead ends."""

HOME = N_JUNCTIONS + N_NODES - 1
"""The terminal state, the home cage. Before it are 63 steps down into a junction and 126 steps up from a node."""

LEVEL = np.floor(np.log2(np.arange(N_NODES) + 1)).astype(np.int64)
"""Depth of each node, from 0 (the first junction) to 6 (the dead ends)."""

_REGION_LEVEL = 4

HABITS = ("turn round", "branch to branch")
"""Features of a move at a junction: turning around, and crossing from one branch into the other."""


def parent(node: ArrayLike) -> Int:
    """Return the parent of each node; the parent of node 0 is -1, the home cage."""
    return (np.asarray(node, dtype=np.int64) - 1) // 2


def came_from(states: ArrayLike) -> Int:
    """Return the node that each step leaves, or -1 for the home cage."""
    states = np.asarray(states, dtype=np.int64)
    below = states - N_JUNCTIONS + 1
    return np.where(states == HOME, 0, np.where(states < N_JUNCTIONS, parent(states), below))


def node_of(states: ArrayLike) -> Int:
    """Return the junction at which each step arrives, or -1 for the home cage."""
    states = np.asarray(states, dtype=np.int64)
    return np.where(states < N_JUNCTIONS, states, parent(came_from(states)))


def steps_of(nodes: ArrayLike) -> Int:
    """Convert the nodes of a bout to states, from the first junction to the home cage."""
    nodes = np.asarray(nodes, dtype=np.int64)
    before, after = nodes, np.append(nodes[1:], -1)
    steps = np.where(after > before, after, N_JUNCTIONS + before - 1)
    steps[-1] = HOME
    # Entering a dead end is not a separate step.
    return np.concatenate([nodes[:1], steps[(after < N_JUNCTIONS) | (after < before)]])


def nodes_of(states: ArrayLike) -> Int:
    """Return the nodes visited by steps, including dead ends and excluding the home cage."""
    states = np.asarray(states, dtype=np.int64)
    both = np.stack([came_from(states), node_of(states)], axis=1)
    both[(states == HOME) | (both[:, 0] < N_JUNCTIONS), 0] = -1
    return both[both >= 0]


def legal(nodes: ArrayLike) -> bool:
    """Return True if a bout begins and ends at the first junction, and every move is along a corridor."""
    nodes = np.asarray(nodes, dtype=np.int64)
    a, b = nodes[:-1], nodes[1:]
    inside = nodes.size > 0 and nodes.min() >= 0 and nodes.max() < N_NODES
    return bool(inside and nodes[0] == nodes[-1] == 0 and np.all((parent(a) == b) | (parent(b) == a)))


def visit_matrix() -> Float:
    """Return the indicator matrix (S, 128) of the nodes that each step visits; the last column is the home cage."""
    matrix = np.zeros((HOME + 1, N_NODES + 1))
    matrix[np.arange(HOME), node_of(np.arange(HOME))] = 1.0
    dead_ends = np.arange(N_JUNCTIONS, N_NODES)
    matrix[N_JUNCTIONS + dead_ends - 1, dead_ends] = 1.0
    matrix[HOME, N_NODES] = 1.0
    return matrix


def moves() -> tuple[Int, Int]:
    """Return the source and target states of all moves."""
    states = np.arange(HOME)
    node = node_of(states)
    up = np.where(node == 0, HOME, N_JUNCTIONS + node - 1)
    below = [np.where(child < N_JUNCTIONS, child, N_JUNCTIONS + child - 1) for child in (2 * node + 1, 2 * node + 2)]
    return np.tile(states, 3), np.concatenate([up, *below])


def habits(src: Int, dst: Int) -> Float:
    """Return the features `HABITS` of each move (E, 2)."""
    from_above, into_dead_end = src < N_JUNCTIONS, came_from(dst) >= N_JUNCTIONS
    towards = np.where(into_dead_end, came_from(dst), node_of(dst))
    back = towards == came_from(src)
    across = ~from_above & ~back & (towards > node_of(src))
    return np.stack([back, across], axis=1).astype(np.float64)


def node_features() -> tuple[Float, list[str]]:
    """Return the features of each node (127, 25) and their names.

    The features are indicators of the level and of the water port, the number of sides on the outer wall (0 to 2), and
    indicators of the 16 regions from level 4 on.
    """
    region = np.arange(N_NODES)
    for _ in range(N_LEVELS - 1 - _REGION_LEVEL):
        region = np.where(LEVEL[region] > _REGION_LEVEL, parent(region), region)
    first = 2**_REGION_LEVEL - 1
    outer = np.sum(np.abs(h_tree() - 7.0) == 7.0, axis=1)
    columns = [
        *np.eye(N_LEVELS)[LEVEL].T,
        np.arange(N_NODES) == WATER,
        outer,
        *(region == first + i for i in range(first + 1)),
    ]
    names = [*(f"level {n}" for n in range(N_LEVELS)), "water port", "outer wall"]
    return np.stack(columns, axis=1).astype(np.float64), names + [f"region {i}" for i in range(first + 1)]


def steps_mdp(gamma: float, *, each_node: bool = False) -> ll.MDP:
    """Return the MDP with 189 steps and the home cage as states.

    Features are `node_features`, or one indicator per node with `each_node`; the home cage; and `HABITS`.
    """
    src, dst = moves()
    phi, names = (np.eye(N_NODES), [f"node {n}" for n in range(N_NODES)]) if each_node else node_features()
    visits = visit_matrix()
    return ll.MDP.from_edges(
        src,
        dst,
        gamma=gamma,
        state_features=np.column_stack([visits[:, :-1] @ phi, visits[:, -1]]),
        edge_features=habits(src, dst),
        feature_names=[*names, "home", *HABITS],
    )


def nodes_mdp(gamma: float) -> ll.MDP:
    """Return the same MDP with one reward per node and without `HABITS`."""
    src, dst = moves()
    return ll.MDP.from_edges(src, dst, gamma=gamma, state_features=visit_matrix())


def reward_map(theta: ArrayLike) -> Float:
    """Return the reward of each node and of the home cage (128,), given the parameters of `steps_mdp`."""
    theta, (phi, _) = np.asarray(theta, dtype=np.float64), node_features()
    return np.append(phi @ theta[: phi.shape[1]], theta[phi.shape[1]])


def h_tree() -> Float:
    """Return the positions of the nodes (127, 2) as an H-tree, in which corridors become shorter with depth."""
    xy = np.full((N_NODES, 2), 7.0)
    for node in range(1, N_NODES):
        xy[node] = xy[parent(node)]
        length = (4.0, 4.0, 2.0, 2.0, 1.0, 1.0)[LEVEL[node] - 1]
        xy[node, LEVEL[node] % 2] += length if node % 2 == 0 else -length
    return xy
