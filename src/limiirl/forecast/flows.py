"""Expected uses of links: how many trips take each edge and pass each state, by intent and in all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from limiirl._typing import BoolArray, FloatArray, IntArray
from limiirl.forecast.prefixes import alone, posterior


@dataclass(frozen=True, eq=False, repr=False)
class Flows:
    """Expected uses of the links of an MDP by some number of trips.

    Attributes
    ----------
    edge_by_intent, state_by_intent : (K, E), (K, S)
        Uses of edges and visits to states by trips of each intent.
    trips : float
        How many trips there are in all.
    cut_off : (m,)
        Pairs of start and goal that no trip of the model connects; theirs are not among `trips`.

    Examples
    --------
    >>> flows = Flows(np.array([[2.0, 1.0]]), np.array([[3.0, 2.0, 1.0]]), 3.0, np.array([], dtype=np.int64))
    >>> flows.edge, flows.state
    (array([2., 1.]), array([3., 2., 1.]))
    >>> flows
    flows of 3 trips: 2 edges used 3 times in all, the most is 2 (edge 0)
    """

    edge_by_intent: FloatArray
    state_by_intent: FloatArray
    trips: float
    cut_off: IntArray

    @property
    def edge(self) -> FloatArray:
        """Expected uses of each edge (E,)."""
        return np.asarray(self.edge_by_intent.sum(axis=0))

    @property
    def state(self) -> FloatArray:
        """Expected visits to each state (S,); a trip that passes twice counts twice."""
        return np.asarray(self.state_by_intent.sum(axis=0))

    def __repr__(self) -> str:
        edge = self.edge
        said = f"flows of {self.trips:g} trips: {np.count_nonzero(edge)} edges used {edge.sum():g} times in all"
        if edge.size and edge.max() > 0.0:
            said += f", the most is {edge.max():.4g} (edge {int(np.argmax(edge))})"
        return said + (f"; {self.cut_off.size} pairs are cut off" if self.cut_off.size else "")


def flows(
    trips: Any, log_prior: FloatArray, starts: IntArray, goals: IntArray, weights: FloatArray, closed: BoolArray
) -> Flows:
    """Return the flows of `weights` trips between pairs of states; pairs that are not connected are left out and named.

    Parameters
    ----------
    trips : FreeEnds or GivenEnds
    log_prior : (K,)
        Of intents. Where the model says how likely an intent is to go from one state to another, it counts too.
    starts, goals, weights : (n,)
    closed : (S,)
        States in which no trip begins or ends.
    """
    mdp, n_intents = trips.mdp, log_prior.size
    shares, possible = shares_of_pairs(trips, log_prior, starts, goals, closed)
    first, last = starts[possible], goals[possible]
    each = shares[possible] * weights[possible, None]
    edge, state = np.zeros((n_intents, mdp.n_edges)), np.zeros((n_intents, mdp.n_states))
    for k in range(n_intents):
        edge[k] = trips.flow(k, first, last, np.ascontiguousarray(each[:, k]))
        state[k] = np.bincount(mdp.dst, weights=edge[k], minlength=mdp.n_states)
        state[k] += np.bincount(first, weights=each[:, k], minlength=mdp.n_states)
    return Flows(edge, state, float(weights[possible].sum()), np.flatnonzero(~possible))


def own_flows(trips: Any, shares: FloatArray, n_trips: float) -> Flows:
    """Return the flows of trips that begin and end as an unconditioned model says; `shares` (K,) are of intents."""
    found = [trips.own_flow(k) for k in range(shares.size)]
    scale = n_trips * shares[:, None]
    edge, state = (np.array([pair[i] for pair in found]) for i in (0, 1))
    return Flows(scale * edge, scale * state, n_trips, np.empty(0, dtype=np.int64))


def shares_of_pairs(
    trips: Any, log_prior: FloatArray, starts: IntArray, goals: IntArray, closed: BoolArray
) -> tuple[FloatArray, BoolArray]:
    """Return (n, K) the posterior of the intent of one who goes from a start to a goal, and which pairs exist (n,)."""
    shares, possible = np.zeros((starts.size, log_prior.size)), np.zeros(starts.size, dtype=bool)
    rows = np.flatnonzero(~(closed[starts] | closed[goals]))
    if rows.size:
        pairs, which = np.unique(np.stack([starts[rows], goals[rows]]), axis=1, return_inverse=True)
        found, connected = posterior(log_prior + trips.log_begin(alone(pairs[0]), pairs[1]))
        shares[rows], possible[rows] = found[which.ravel()], connected[which.ravel()]
    return shares, possible
