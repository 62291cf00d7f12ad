"""Likelihoods of demonstrations from a list of all trajectories, as a reference for fits and log-probabilities."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from limiirl.demos import Demonstrations
from limiirl.mdp import MDP
from tests.oracles.enumeration import Enumeration, log_sum

Float = NDArray[np.float64]
Rows = Sequence[int] | NDArray[np.integer]

# (s, a, s', p): a slip, a self-loop, two actions that connect 0 to 1 and two that connect 1 to 3, which is terminal.
EDGES = (
    (0, 0, 1, 0.7), (0, 0, 2, 0.3), (0, 1, 1, 1.0), (0, 2, 0, 1.0),
    (1, 0, 2, 0.6), (1, 0, 3, 0.4), (1, 1, 3, 1.0),
    (2, 0, 0, 1.0), (2, 1, 3, 1.0),
)  # fmt: skip


def small_mdp(gamma: float = 0.9, moves: bool = True) -> MDP:
    """Four states, nine edges, two features on states and, with moves, one on actions and one on edges."""
    src, act, dst = (np.array([edge[i] for edge in EDGES]) for i in range(3))
    action = np.array([[0.5], [0.5], [-1.0], [0.3], [0.0], [0.0], [1.2], [0.7], [-0.4]])
    edge = np.array([[0.2], [1.0], [0.9], [-0.3], [0.0], [0.8], [-0.5], [0.4], [0.6]])
    return MDP.from_edges(
        src,
        dst,
        action=act,
        prob=[edge[3] for edge in EDGES],
        p0=[0.5, 0.3, 0.2, 0.0],
        gamma=gamma,
        state_features=[[1.0, 0.0], [0.0, 1.0], [0.5, 2.0], [0.3, -0.7]],
        action_features=action if moves else None,
        edge_features=edge if moves else None,
    )


def possible(paths: Enumeration) -> NDArray[np.intp]:
    """The trajectories that start where p0 is positive."""
    return np.flatnonzero(paths.mdp.p0[paths.first] > 0.0)


def as_demonstrations(paths: Enumeration, rows: Rows, actions: bool = True) -> Demonstrations:
    """The trajectories of some rows, with or without their actions."""
    listed = [paths.listed[int(i)] for i in rows]
    act = paths.mdp.act.tolist()
    taken = [[act[edge] for edge in edges] for _, edges in listed] if actions else None
    return Demonstrations.from_lists([states for states, _ in listed], taken)


def log_probs(paths: Enumeration, theta: Float, by_start: bool = False) -> Float:
    """log p (N,) of every trajectory; given its start state, if by start."""
    law, weight = paths.law(theta), paths.log_P + paths.F @ theta
    if by_start:
        return weight - law.log_Z_by_start[paths.first]
    with np.errstate(divide="ignore"):
        return np.log(paths.mdp.p0)[paths.first] + weight - law.log_Z


def same_states(paths: Enumeration) -> dict[tuple[int, ...], list[int]]:
    """The trajectories that a recording without actions cannot distinguish, by their states."""
    rows: dict[tuple[int, ...], list[int]] = {}
    for i in possible(paths):
        rows.setdefault(paths.listed[i][0], []).append(int(i))
    return rows


def objective(
    paths: Enumeration, weights: Float, by_start: bool = False, ridge: float = 0.0
) -> Callable[[Float], tuple[float, Float]]:
    """Return the objective of a fit, with its gradient: weights (N,) count every trajectory as a demonstration."""
    share = weights / weights.sum()
    starts = np.bincount(paths.first, weights=share, minlength=paths.mdp.n_states)

    def value_and_gradient(theta: Float) -> tuple[float, Float]:
        law = paths.law(theta, by_start=by_start, starts=starts if by_start else None)
        value = law.log_Z - math.fsum(share * (paths.F @ theta)) + ridge / 2 * theta @ theta
        return float(value), law.mean() - share @ paths.F + ridge * theta

    return value_and_gradient


def marginal_objective(paths: Enumeration, groups: list[list[int]], by_start: bool = False) -> Callable[[Float], float]:
    """Minus the mean log-probability of recordings without actions, each a group of trajectories."""

    def value(theta: Float) -> float:
        log_p = log_probs(paths, theta, by_start)
        return -math.fsum(log_sum(log_p[group]) for group in groups) / len(groups)

    return value
