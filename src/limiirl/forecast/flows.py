"""Flows: expected counts of edges and states in a given number of trips."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from limiirl._typing import BoolArray, FloatArray, IntArray
from limiirl.forecast.prefixes import one_state_trips, posterior


@dataclass(frozen=True, eq=False, repr=False)
class Flows:
    """Expected counts of edges and states in a given number of trips.

    Attributes
    ----------
    edge_by_intent, state_by_intent : (K, E), (K, S)
        Expected counts of edges and states, per intent.
    trips : float
        Total number of trips.
    cut_off : (m,)
        Indices of the pairs of start and goal that are not connected; `trips` does not include their trips.

    Examples
    --------
    >>> flows = Flows(np.array([[2.0, 1.0]]), np.array([[3.0, 2.0, 1.0]]), 3.0, np.array([], dtype=np.int64))
    >>> flows.edge, flows.state
    (array([2., 1.]), array([3., 2., 1.]))
    >>> flows
    flows of 3 trips: 2 edges used, 3 traversals in total, at most 2 (edge 0)
    """

    edge_by_intent: FloatArray
    state_by_intent: FloatArray
    trips: float
    cut_off: IntArray

    @property
    def edge(self) -> FloatArray:
        """Expected counts (E,) of edges."""
        return np.asarray(self.edge_by_intent.sum(axis=0))

    @property
    def state(self) -> FloatArray:
        """Expected counts (S,) of states, including repeated visits."""
        return np.asarray(self.state_by_intent.sum(axis=0))

    def __repr__(self) -> str:
        edge = self.edge
        text = f"flows of {self.trips:g} trips: {np.count_nonzero(edge)} edges used, {edge.sum():g} traversals in total"
        if edge.size and edge.max() > 0.0:
            text += f", at most {edge.max():.4g} (edge {int(np.argmax(edge))})"
        return text + (f"; {self.cut_off.size} pairs are not connected" if self.cut_off.size else "")


def compute_flows(
    trips: Any, log_prior: FloatArray, starts: IntArray, goals: IntArray, weights: FloatArray, closed: BoolArray
) -> Flows:
    """Return the flows of trips between pairs (n,) of states, given a log-prior (K,) over intents.

    `weights` (n,) are the numbers of trips, and `closed` (S,) is the mask of closed states, in which no trip begins or
    ends. For `MaxEnt`, the start and the goal update the prior.
    """
    mdp, n_intents = trips.mdp, log_prior.size
    intents, possible = infer_pair_intents(trips, log_prior, starts, goals, closed)
    first, last = starts[possible], goals[possible]
    each = intents[possible] * weights[possible, None]
    edge, state = np.zeros((n_intents, mdp.n_edges)), np.zeros((n_intents, mdp.n_states))
    for k in range(n_intents):
        edge[k] = trips.flow(k, first, last, np.ascontiguousarray(each[:, k]))
        state[k] = np.bincount(mdp.dst, weights=edge[k], minlength=mdp.n_states)
        state[k] += np.bincount(first, weights=each[:, k], minlength=mdp.n_states)
    return Flows(edge, state, float(weights[possible].sum()), np.flatnonzero(~possible))


def compute_own_flows(trips: Any, weights: FloatArray, n_trips: float) -> Flows:
    """Return the flows of trips whose starts and goals are drawn from the `MaxEnt` mixture with weights (K,)."""
    by_intent = [trips.own_flow(k) for k in range(weights.size)]
    scale = n_trips * weights[:, None]
    edge, state = (np.array([pair[i] for pair in by_intent]) for i in (0, 1))
    return Flows(scale * edge, scale * state, n_trips, np.empty(0, dtype=np.int64))


def infer_pair_intents(
    trips: Any, log_prior: FloatArray, starts: IntArray, goals: IntArray, closed: BoolArray
) -> tuple[FloatArray, BoolArray]:
    """Return the posterior (n, K) over intents given start and goal, and the mask (n,) of connected pairs."""
    intents, possible = np.zeros((starts.size, log_prior.size)), np.zeros(starts.size, dtype=bool)
    rows = np.flatnonzero(~(closed[starts] | closed[goals]))
    if rows.size:
        pairs, which = np.unique(np.stack([starts[rows], goals[rows]]), axis=1, return_inverse=True)
        distinct, connected = posterior(log_prior + trips.log_prob_prefix(one_state_trips(pairs[0]), pairs[1]))
        intents[rows], possible[rows] = distinct[which.ravel()], connected[which.ravel()]
    return intents, possible
