"""Every trajectory of a small MDP, written out one by one, as a reference for path sums.

Nothing is shared with the library: trajectories come from a plain recursion over the MDP's edges, and each sum is taken
over the list of them. A trajectory is a tuple of states and the tuple of the MDP's edges between them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from limiirl.mdp import MDP

Float = NDArray[np.float64]
Path = tuple[tuple[int, ...], tuple[int, ...]]


def dense(features: object, rows: int) -> Float:
    """A feature matrix as an array, of no columns for None."""
    if features is None:
        return np.zeros((rows, 0))
    return np.asarray(features.toarray() if hasattr(features, "toarray") else features)  # type: ignore[attr-defined]


def outgoing(mdp: MDP) -> list[list[int]]:
    """The edges that leave each state."""
    out: list[list[int]] = [[] for _ in range(mdp.n_states)]
    for edge, state in enumerate(mdp.src.tolist()):
        out[state].append(edge)
    return out


def count_paths(mdp: MDP, max_length: int) -> int:
    """Number of trajectories of 1 to `max_length` states, from every state, that may stop anywhere."""
    moves = [[int(mdp.dst[edge]) for edge in edges] for edges in outgoing(mdp)]
    continuations = [1] * mdp.n_states
    for _ in range(max_length - 1):
        continuations = [1 + sum(continuations[target] for target in targets) for targets in moves]
    return sum(continuations)


def paths(mdp: MDP, max_length: int, stop: str = "anywhere") -> Iterator[Path]:
    """Every trajectory from every state, regardless of p0, that ends where `stop` allows."""
    out, target, terminal = outgoing(mdp), mdp.dst.tolist(), mdp.terminal.tolist()

    def grow(states: tuple[int, ...], edges: tuple[int, ...]) -> Iterator[Path]:
        full = len(states) == max_length
        if stop == "anywhere" or terminal[states[-1]] or (stop == "terminal_or_max_length" and full):
            yield states, edges
        if not full:
            for edge in out[states[-1]]:
                yield from grow((*states, target[edge]), (*edges, edge))

    for state in range(mdp.n_states):
        yield from grow((state,), ())


def path_features(mdp: MDP, listed: list[Path]) -> Float:
    """F (N, d): discounted sums, step by step, of the features of states, of (s, a) and of edges."""
    pairs = sorted(set(zip(mdp.src.tolist(), mdp.act.tolist(), strict=True)))
    pair = [pairs.index(key) for key in zip(mdp.src.tolist(), mdp.act.tolist(), strict=True)]
    of_state = dense(mdp.state_features, mdp.n_states)
    of_action, of_edge = dense(mdp.action_features, len(pairs))[pair], dense(mdp.edge_features, mdp.n_edges)
    of_move, ds = np.hstack([of_action, of_edge]), of_state.shape[1]
    F = np.zeros((len(listed), ds + of_move.shape[1]))
    for i, (states, edges) in enumerate(listed):
        for t, state in enumerate(states):
            F[i, :ds] += mdp.gamma**t * of_state[state]
        for t, edge in enumerate(edges):
            F[i, ds:] += mdp.gamma**t * of_move[edge]
    return F


@dataclass(frozen=True, eq=False)
class Law:
    """The distribution over the trajectories of an `Enumeration` under one theta.

    `log_Z` is of all trajectories, or, by start, the mean of log Z(s) over the start distribution; `p` (N,) are the
    trajectories' probabilities, `log_Z_by_start` (S,) has no start distribution in it.
    """

    paths: Enumeration
    starts: Float
    log_Z: float
    log_Z_by_start: Float
    p: Float
    by_start: bool

    def mean(self, weights: Float | None = None) -> Float:
        """E[F] (d,), or the sum of F under other weights (N,)."""
        return fsum_columns((self.p if weights is None else weights)[:, None] * self.paths.F)

    def second_moment(self) -> Float:
        """E[F F'] (d, d)."""
        F = self.paths.F
        return (F.T * self.p) @ F

    def covariance(self) -> Float:
        """Cov[F] (d, d), summed from deviations; by start, its mean over the start distribution."""
        F, covariance = self.paths.F, np.zeros((self.paths.F.shape[1],) * 2)
        groups = range(self.starts.size) if self.by_start else [None]
        for state in groups:
            p = self.p if state is None else np.where(self.paths.first == state, self.p, 0.0)
            total = math.fsum(p)
            if total > 0.0:
                deviation = F - self.mean(p) / total
                covariance += (deviation.T * p) @ deviation
        return covariance

    def time_marginals(self) -> Float:
        """p_t(s) (L, S)."""
        marginals = np.zeros((self.paths.max_length, self.starts.size))
        for t, column in enumerate(self.paths.states.T):
            there = column >= 0
            np.add.at(marginals[t], column[there], self.p[there])
        return marginals

    def state_counts(self, gain: Float) -> Float:
        """sum_t gain_t p_t(s), (S,)."""
        return gain @ self.time_marginals()

    def edge_counts(self, gain: Float) -> Float:
        """sum_t gain_t P(edge e at step t), (E,)."""
        counts = np.zeros(self.paths.mdp.n_edges)
        for t, column in enumerate(self.paths.edges.T):
            there = column >= 0
            np.add.at(counts, column[there], gain[t] * self.p[there])
        return counts


class Enumeration:
    """All trajectories of an MDP of at most `max_length` states.

    Attributes
    ----------
    listed : the N trajectories
    states, edges : (N, L) and (N, L - 1), filled up with -1
    first : (N,) start states
    log_P : (N,) sum of the log-probabilities of the moves, without p0
    F : (N, d)
    """

    def __init__(self, mdp: MDP, max_length: int, stop: str = "anywhere") -> None:
        self.mdp, self.max_length, self.stop = mdp, max_length, stop
        self.listed = list(paths(mdp, max_length, stop))
        self.states = np.full((len(self.listed), max_length), -1)
        self.edges = np.full((len(self.listed), max_length - 1), -1)
        for i, (states, edges) in enumerate(self.listed):
            self.states[i, : len(states)] = states
            self.edges[i, : len(edges)] = edges
        self.first = self.states[:, 0]
        log_prob = [math.log(p) for p in mdp.prob.tolist()]
        self.log_P = np.array([math.fsum(log_prob[edge] for edge in edges) for _, edges in self.listed])
        self.F = path_features(mdp, self.listed)

    @cached_property
    def index(self) -> dict[Path, int]:
        """The number of each trajectory."""
        return {path: i for i, path in enumerate(self.listed)}

    def law(self, theta: Float, *, by_start: bool = False, starts: Float | None = None) -> Law:
        """The distribution under theta (d,), from p0 or from the start distribution given (S,)."""
        starts = self.mdp.p0 if starts is None else starts
        weight = self.log_P + self.F @ theta
        log_Z_by_start = np.array([log_sum(weight[self.first == s]) for s in range(self.mdp.n_states)])
        with np.errstate(divide="ignore"):
            log_start = np.log(starts)
        if by_start:
            used = starts > 0.0
            log_Z = math.fsum(starts[used] * log_Z_by_start[used])
            log_p = (log_start - np.where(used, log_Z_by_start, 0.0))[self.first] + weight
        else:
            log_Z = log_sum(log_start[self.first] + weight)
            log_p = log_start[self.first] + weight - (log_Z if log_Z > -math.inf else 0.0)
        return Law(self, starts, log_Z, log_Z_by_start, np.exp(log_p), by_start)


def log_sum(values: Float) -> float:
    """log sum exp, -inf for an empty sum."""
    top = max(values, default=-math.inf)
    if top == -math.inf:
        return -math.inf
    return float(top + math.log(math.fsum(np.exp(values - top))))


def fsum_columns(matrix: Float) -> Float:
    """The sum of each column, without rounding on the way."""
    return np.array([math.fsum(column) for column in matrix.T])
