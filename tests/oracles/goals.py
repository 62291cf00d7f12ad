"""Paths to a goal in 60 digits: the linear system with the goal absorbing, and a plain list of paths.

Written from the definition, not from the code: one system per goal, no elimination order, no diagonal scaling,
no identity of first passages.
"""

from __future__ import annotations

import mpmath
import numpy as np
from mpmath import mpf
from numpy.typing import NDArray

from limiirl.mdp import MDP
from tests.oracles.precise import exact_rewards

Float = NDArray[np.float64]
DIGITS = 60


class ExactPaths:
    """All paths to one goal at theta (d,)."""

    def __init__(self, mdp: MDP, theta: Float, goal: int) -> None:
        self.mdp, self.goal = mdp, goal
        with mpmath.workdps(DIGITS):
            node, edge = exact_rewards(mdp, theta)
            self.weight = [
                mpf(float(mdp.prob[e])) * mpmath.exp(edge[e] + node[int(mdp.dst[e])]) for e in range(mdp.n_edges)
            ]
            system = mpmath.eye(mdp.n_states)
            for e in range(mdp.n_edges):
                if mdp.src[e] != goal:
                    system[int(mdp.src[e]), int(mdp.dst[e])] -= self.weight[e]
            self.inverse = mpmath.inverse(system)

    def log_value(self) -> Float:
        """log beta_g(s) (S,)."""
        with mpmath.workdps(DIGITS):
            values = [self.inverse[s, self.goal] for s in range(self.mdp.n_states)]
            # Values below 1e-2000 are exact zeros, rounded.
            return np.array([float(mpmath.log(x)) if x > mpf(10) ** -2000 and x > 0 else -np.inf for x in values])

    def flow(self, start: int) -> Float:
        """Expected counts (E,) of each edge on paths from a start."""
        with mpmath.workdps(DIGITS):
            total = self.inverse[start, self.goal]
            flow = np.zeros(self.mdp.n_edges)
            for e in range(self.mdp.n_edges):
                s, t = int(self.mdp.src[e]), int(self.mdp.dst[e])
                if s != self.goal:
                    flow[e] = float(self.inverse[start, s] * self.weight[e] * self.inverse[t, self.goal] / total)
            return flow


def list_paths(mdp: MDP, start: int, goal: int, most_moves: int) -> list[list[int]]:
    """The edges of every path from a start to its first arrival in the goal, of at most `most_moves` edges."""
    complete: list[list[int]] = [[]] if start == goal else []
    partial: list[tuple[int, list[int]]] = [] if start == goal else [(start, [])]
    for _ in range(most_moves):
        longer = []
        for at, path in partial:
            for e in range(int(mdp.out_ptr[at]), int(mdp.out_ptr[at + 1])):
                target = int(mdp.dst[e])
                if target == goal:
                    complete.append([*path, e])
                else:
                    longer.append((target, [*path, e]))
        partial = longer
    return complete


def log_weights(mdp: MDP, theta: Float, paths: list[list[int]]) -> Float:
    """The log-weight of each path without the reward of its first state."""
    node, edge = exact_rewards(mdp, theta)
    moves = np.array([float(edge[e] + node[int(mdp.dst[e])]) for e in range(mdp.n_edges)]) + np.log(mdp.prob)
    return np.array([moves[path].sum() for path in paths])
