"""The model of the particle filter on a fine grid of positions, summed exactly: what many particles must agree with."""

from typing import NamedTuple

import numpy as np
from scipy import sparse
from scipy.sparse.csgraph import shortest_path

from limiirl.roads import RoadNetwork
from limiirl.roads.matching.particle_filter import ParticleSettings


class Posterior(NamedTuple):
    log_evidence: np.ndarray  # (T,) of each fix, given those before
    segments: np.ndarray  # (T, S) where the car is at each fix, given all of them


class Grid(NamedTuple):
    segment: np.ndarray  # (P,)
    along: np.ndarray  # (P,)
    xy: np.ndarray  # (P, 2)
    step: np.ndarray  # (P,) metres that a point stands for, on the flat map


def grid_of(network: RoadNetwork, step_m: float) -> Grid:
    start, end = network.node_xy[network.tail], network.node_xy[network.head]
    parts = []
    for s in range(network.n_segments):
        n = int(np.ceil(network.length_m[s] / step_m))
        share = (np.arange(n) + 0.5) / n
        flat = np.hypot(*(end[s] - start[s]))
        parts.append((np.full(n, s), share * network.length_m[s], start[s] + share[:, None] * (end[s] - start[s])))
        parts[-1] += (np.full(n, flat / n),)
    return Grid(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def route_distance(network: RoadNetwork, grid: Grid) -> np.ndarray:
    """Metres (P, P) from each point to each other; inf to what lies behind on the own segment."""
    n = network.n_segments
    turns = sparse.csr_array((network.length_m[network.turn_from], (network.turn_from, network.turn_to)), shape=(n, n))
    starts = shortest_path(turns)
    d = starts[grid.segment[:, None], grid.segment] + grid.along - grid.along[:, None]
    return np.where(d >= 0.0, d, np.inf)


def posterior(
    network: RoadNetwork, fixes: np.ndarray, times: np.ndarray, settings: ParticleSettings, step_m: float = 0.5
) -> Posterior:
    """Forward and backward over all points of a fine grid; to stand still is a matrix of its own."""
    grid = grid_of(network, step_m)
    d = route_distance(network, grid)
    g = np.hypot(*(grid.xy[:, None] - grid.xy).transpose(2, 0, 1))
    variance = settings.sigma_m**2
    emission = np.exp(-0.5 * ((grid.xy[None] - fixes[:, None]) ** 2).sum(axis=2) / variance) / (2 * np.pi * variance)
    steps = []
    for t in range(1, len(fixes)):
        dt = times[t] - times[t - 1]
        rate, stands = settings.speed_rate / dt, np.exp(-settings.stay_rate * dt)
        moves = (1.0 - stands) * rate * np.exp(-rate * d - settings.deviation_rate * np.abs(d - g)) * grid.step
        moves[d > settings.max_speed_ms * dt + settings.slack_m] = 0.0
        steps.append(moves + stands * np.eye(len(d)))
    alpha, beta, evidence = [emission[0] * grid.step], [np.ones(len(d))], []
    for t, step in enumerate(steps, 1):
        alpha.append((alpha[-1] @ step) * emission[t])
    for t in range(len(steps) - 1, -1, -1):
        beta.insert(0, steps[t] @ (emission[t + 1] * beta[0]))
    evidence = np.diff(np.log([1.0, *(a.sum() for a in alpha)]))
    shares = [
        np.bincount(grid.segment, weights=a * b, minlength=network.n_segments) for a, b in zip(alpha, beta, strict=True)
    ]
    return Posterior(evidence, np.array([share / share.sum() for share in shares]))
