"""Forecasts by listing every trip: each is a sum over the trips that agree with it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from limiirl.mdp import MDP
from limiirl.mixture import IntentMixture
from tests.oracles.enumeration import Enumeration, Path

Float = NDArray[np.float64]


def make_mixture(irl: object, mdp: MDP, rho: Float, thetas: Float) -> IntentMixture:
    """Return a mixture with given weights and rewards, without demonstrations, as if read from a file."""
    mixture = IntentMixture(len(thetas), irl)
    mixture.irl_, mixture.mdp_ = irl, mdp
    mixture.weights_, mixture.thetas_ = np.asarray(rho), np.asarray(thetas)
    return mixture


@dataclass(frozen=True)
class Begun:
    """The beginning of a trip; edges are None where actions were not recorded."""

    states: tuple[int, ...]
    edges: tuple[int, ...] | None

    def fits(self, trip: Path) -> bool:
        m = len(self.states)
        known = self.edges is None or trip[1][: m - 1] == self.edges
        return trip[0][:m] == self.states and known


class Trips:
    """Every trip, with its probability under each intent.

    Attributes
    ----------
    trips : list of (states, edges)
    p : (n, K)
        rho_k p_k(trip); by_ends, rho_k p_k(trip | its first state, its last state).
    ends : (S,) or None
        By ends: the prior of destinations, where none is known.
    """

    def __init__(
        self,
        mdp: MDP,
        max_length: int,
        thetas: Float,
        rho: Float,
        *,
        stop: str = "anywhere",
        condition: str = "none",
        ends: Float | None = None,
    ) -> None:
        listed = Enumeration(mdp, max_length, stop)
        weight = np.exp(listed.log_P[:, None] + listed.F @ thetas.T)
        self.mdp, self.trips, self.ends = mdp, listed.listed, ends
        first = np.array([states[0] for states, _ in self.trips], dtype=int)
        last = np.array([states[-1] for states, _ in self.trips], dtype=int)
        if condition == "ends":
            once = np.array([states.count(states[-1]) == 1 for states, _ in self.trips])
            weight = weight * once[:, None]
            key = first * mdp.n_states + last
        elif condition == "start":
            key = first
        else:
            weight, key = weight * mdp.p0[first][:, None], np.zeros(first.size, dtype=int)
        total = np.zeros((key.max(initial=0) + 1, rho.size))
        np.add.at(total, key, weight)
        self.first, self.last = first, last
        with np.errstate(invalid="ignore"):
            self.p = rho * np.nan_to_num(weight / total[key])

    def joint(self, rows: NDArray[np.bool_], goal: int | None) -> Float:
        """(K,) the probability of some trips, to a goal, and of each intent."""
        if goal is not None:
            rows = rows & (self.last == goal)
        elif self.ends is not None:
            return (self.p * self.ends[self.last][:, None])[rows].sum(axis=0)
        return self.p[rows].sum(axis=0)

    def begun(self, begun: Begun) -> NDArray[np.bool_]:
        return np.array([begun.fits(trip) for trip in self.trips], dtype=bool)

    def intents(self, begun: Begun, goal: int | None) -> Float | None:
        joint = self.joint(self.begun(begun), goal)
        return joint / joint.sum() if joint.sum() > 0.0 else None

    def next(self, begun: Begun, goal: int | None) -> tuple[dict[int, float], float]:
        """The probability of each next edge, and of ending."""
        rows, m = self.begun(begun), len(begun.states)
        total = self.joint(rows, goal).sum()
        step = np.array([edges[m - 1] if len(edges) >= m else -1 for _, edges in self.trips])
        shares = {e: self.joint(rows & (step == e), goal).sum() / total for e in np.unique(step[rows]).tolist()}
        return {e: share for e, share in shares.items() if e >= 0}, shares.get(-1, 0.0)

    def destinations(self, begun: Begun, candidates: list[int], prior: Float | None) -> Float:
        """(G,) the posterior of destinations; without a prior, the model's own."""
        rows, start = self.begun(begun), self.first == begun.states[0]
        posterior = np.zeros(len(candidates))
        for j, goal in enumerate(candidates):
            whole = 1.0 if prior is None else self.joint(start, goal).sum()
            if whole > 0.0:
                posterior[j] = (1.0 if prior is None else prior[j]) * self.joint(rows, goal).sum() / whole
        return posterior / posterior.sum() if posterior.sum() > 0.0 else posterior

    def routes(self, start: int, goal: int) -> dict[tuple[int, ...], float]:
        """The probability of each route, by its edges, that passes no state twice, given start and goal."""
        rows = self.first == start
        total = self.joint(rows, goal).sum()
        probability = {}
        for i in np.flatnonzero(rows & (self.last == goal)):
            states, edges = self.trips[i]
            if len(set(states)) == len(states):
                probability[edges] = self.p[i].sum() / total
        return probability

    def flow(self, start: int, goal: int) -> tuple[Float, Float]:
        """(K, E) and (K, S): expected counts of edges and states of one trip, by intent."""
        rows = np.flatnonzero((self.first == start) & (self.last == goal))
        total = self.joint(self.first == start, goal).sum()
        return self._counts(rows, self.p / total)

    def own_flow(self) -> tuple[Float, Float]:
        return self._counts(np.arange(len(self.trips)), self.p)

    def _counts(self, rows: NDArray[np.int64], p: Float) -> tuple[Float, Float]:
        edge, state = np.zeros((p.shape[1], self.mdp.n_edges)), np.zeros((p.shape[1], self.mdp.n_states))
        for i in rows:
            for e in self.trips[i][1]:
                edge[:, e] += p[i]
            for s in self.trips[i][0]:
                state[:, s] += p[i]
        return edge, state
