"""Ways to a goal in 60 digits: the linear system with the goal absorbing, and a plain list of ways.

Written from the definition, not from the code: one system a goal, no elimination order, no frames, no identity of
first passages.
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


class ExactWays:
    """All ways to one goal at theta (d,)."""

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
            found = [self.inverse[s, self.goal] for s in range(self.mdp.n_states)]
            # What 60 digits leave of an exact zero.
            return np.array([float(mpmath.log(x)) if x > mpf(10) ** -2000 and x > 0 else -np.inf for x in found])

    def flow(self, start: int) -> Float:
        """Expected uses (E,) of each edge by ways from a start."""
        with mpmath.workdps(DIGITS):
            total = self.inverse[start, self.goal]
            found = np.zeros(self.mdp.n_edges)
            for e in range(self.mdp.n_edges):
                s, t = int(self.mdp.src[e]), int(self.mdp.dst[e])
                if s != self.goal:
                    found[e] = float(self.inverse[start, s] * self.weight[e] * self.inverse[t, self.goal] / total)
            return found


def list_ways(mdp: MDP, start: int, goal: int, most_moves: int) -> list[list[int]]:
    """The edges of every way from a start to its first arrival in the goal, of at most so many moves."""
    found: list[list[int]] = [[]] if start == goal else []
    open_ways: list[tuple[int, list[int]]] = [] if start == goal else [(start, [])]
    for _ in range(most_moves):
        longer = []
        for at, way in open_ways:
            for e in range(int(mdp.out_ptr[at]), int(mdp.out_ptr[at + 1])):
                target = int(mdp.dst[e])
                if target == goal:
                    found.append([*way, e])
                else:
                    longer.append((target, [*way, e]))
        open_ways = longer
    return found


def log_weights(mdp: MDP, theta: Float, ways: list[list[int]]) -> Float:
    """The log-weight of each way without the reward of its first state."""
    node, edge = exact_rewards(mdp, theta)
    moves = np.array([float(edge[e] + node[int(mdp.dst[e])]) for e in range(mdp.n_edges)]) + np.log(mdp.prob)
    return np.array([moves[way].sum() for way in ways])
