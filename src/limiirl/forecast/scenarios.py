"""Expected flows, scenarios, that is, MDPs with closed edges or changed features, and comparisons of their flows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from limiirl._typing import BoolArray, FloatArray, IntArray
from limiirl.errors import InvalidParameter
from limiirl.forecast import validate
from limiirl.forecast.partial_trips import one_state_trips, posterior
from limiirl.forecast.routes import format_states
from limiirl.mdp import MDP


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


# Maximum number of edges per line of `repr`.
_SHOWN = 3


@dataclass(frozen=True, eq=False, repr=False)
class Change:
    """Change in flows between two scenarios with the same demand.

    Attributes
    ----------
    before, after : Flows
        Flows on the edges of the mixture's MDP.
    edge, state : (E,), (S,)
        Flow after minus flow before.
    cut_off : (m,)
        Indices of the pairs that are no longer connected; `after` does not include their trips.
    trips_lost : float
        Number of trips between the pairs that are no longer connected.

    Examples
    --------
    >>> none = np.array([], dtype=np.int64)
    >>> before = Flows(np.array([[2.0, 1.0]]), np.array([[3.0, 2.0, 1.0]]), 3.0, none)
    >>> after = Flows(np.array([[0.0, 3.0]]), np.array([[3.0, 0.0, 3.0]]), 3.0, none)
    >>> Change(before, after, after.edge - before.edge, after.state - before.state, none, 0.0)
    3 trips, 2 of 2 edges change
      gain: edge 1 +2
      lose: edge 0 -2
    """

    before: Flows
    after: Flows
    edge: FloatArray
    state: FloatArray
    cut_off: IntArray
    trips_lost: float

    def gains(self, n: int = 10) -> IntArray:
        """Return up to n edges with the largest gains, in descending order."""
        order = np.argsort(-self.edge, kind="stable")[:n]
        return np.asarray(order[self.edge[order] > 0.0])

    def losses(self, n: int = 10) -> IntArray:
        """Return up to n edges with the largest losses, in descending order."""
        order = np.argsort(self.edge, kind="stable")[:n]
        return np.asarray(order[self.edge[order] < 0.0])

    def __repr__(self) -> str:
        # Ignore rounding errors.
        changed = np.count_nonzero(np.abs(self.edge) > 1e-9 * max(1.0, self.before.trips))
        lines = [f"{self.before.trips:g} trips, {changed} of {self.edge.size} edges change"]
        for what, which in (("gain", self.gains(_SHOWN)), ("lose", self.losses(_SHOWN))):
            if which.size:
                lines.append(f"  {what}: " + ", ".join(f"edge {e} {self.edge[e]:+.4g}" for e in which))
        if self.cut_off.size:
            lines.append(f"  no longer connected: {self.cut_off.size} pairs, {self.trips_lost:g} trips")
        return "\n".join(lines)


def compare_flows(before: Flows, after: Flows, weights: FloatArray) -> Change:
    """Return the change in flows between two scenarios with the same number of trips per pair, `weights` (n,)."""
    lost = np.setdiff1d(after.cut_off, before.cut_off)
    return Change(before, after, after.edge - before.edge, after.state - before.state, lost, float(weights[lost].sum()))


@dataclass(frozen=True, eq=False, repr=False)
class RouteChange:
    """Probabilities of routes between two states in two scenarios; a route that does not exist has probability 0.

    Attributes
    ----------
    routes : list of (T,) arrays of states
        Most probable routes in the first scenario, followed by the most probable routes in the second that are not yet
        included.
    before, after : (R,)
        Probabilities of the routes in the first and the second scenario.

    Examples
    --------
    >>> RouteChange([np.array([0, 1, 3]), np.array([0, 2, 3])], np.array([0.8, 0.2]), np.array([0.0, 1.0]))
    80.0 % -> 0.0 %: 0 - 1 - 3
    20.0 % -> 100.0 %: 0 - 2 - 3
    """

    routes: list[IntArray]
    before: FloatArray
    after: FloatArray

    def __repr__(self) -> str:
        lines = []
        for states, old, new in zip(self.routes, self.before, self.after, strict=True):
            lines.append(f"{100 * old:.1f} % -> {100 * new:.1f} %: {format_states(states)}")
        return "\n".join(lines)


class Scenario(NamedTuple):
    """A changed MDP, the indices (E',) of its edges in the original MDP, and the mask (S,) of closed states."""

    mdp: MDP
    edges: IntArray
    closed: BoolArray


def apply_closures(scenario: Scenario, states: ArrayLike | None, edges: ArrayLike | None, stop: str) -> Scenario:
    """Return a scenario in which some states and edges, indexed as in the original MDP, are closed.

    Actions with a closed edge among their outcomes are removed. A state may lose all actions only with
    stop="anywhere".
    """
    mdp = scenario.mdp
    shut = np.zeros(mdp.n_states, dtype=bool)
    if states is not None:
        shut[validate.check_states(states, "states", mdp)] = True
    closed = shut[mdp.src] | shut[mdp.dst]
    if edges is not None:
        removed = np.atleast_1d(np.asarray(edges))
        integers = removed.dtype.kind in "iu" and removed.ndim == 1
        wrong = ~np.isin(removed, scenario.edges) if integers else np.ones(1, dtype=bool)
        if removed.size and np.any(wrong):
            i = int(np.argmax(wrong))
            raise InvalidParameter.of("edges", removed.ravel()[i].item(), "must be an open edge of the MDP", index=i)
        closed |= np.isin(scenario.edges, removed)
    actions = np.zeros(mdp.n_pairs, dtype=bool)
    actions[mdp.pair_of_edge[closed]] = True
    keep = np.flatnonzero(~actions[mdp.pair_of_edge])
    has_action = np.bincount(mdp.src[keep], minlength=mdp.n_states) > 0
    stuck = ~has_action & ~mdp.terminal & ~shut
    if np.any(stuck) and stop != "anywhere":
        raise InvalidParameter(
            f"Every open nonterminal state must keep an action if stop={stop!r}; state {int(np.argmax(stuck))} has "
            "none after the closures. Close the state too, or use a model with stop='anywhere'.",
            parameter="states" if edges is None else "edges",
            index=int(np.argmax(stuck)),
        )
    p0 = np.where(shut, 0.0, mdp.p0)
    if p0.sum() == 0.0:
        raise InvalidParameter("At least one state with p0 > 0 must stay open.", parameter="states")
    changed = MDP(
        src=mdp.src[keep],
        act=mdp.act[keep],
        dst=mdp.dst[keep],
        prob=mdp.prob[keep],
        p0=p0 / p0.sum() if np.any(shut & (mdp.p0 > 0.0)) else mdp.p0,
        gamma=mdp.gamma,
        terminal=mdp.terminal | ~has_action,
        state_features=mdp.state_features,
        action_features=None if mdp.action_features is None else mdp.action_features[np.flatnonzero(~actions)],
        edge_features=None if mdp.edge_features is None else mdp.edge_features[keep],
        feature_names=mdp.feature_names,
        state_names=mdp.state_names,
        action_names=mdp.action_names,
        history=mdp.history,
        original_names=mdp.original_names,
        goal_features=tuple(feature.select_edges(keep) for feature in mdp.goal_features),
        environment=mdp.environment,
        environment_names=mdp.environment_names,
    )
    return Scenario(changed, scenario.edges[keep], scenario.closed | shut)


def change_features(scenario: Scenario, **features: Any) -> Scenario:
    """Return a scenario with changed features of the same shapes."""
    changed = {name: values for name, values in features.items() if values is not None}
    if not changed:
        message = "Pass state_features, action_features or edge_features."
        raise InvalidParameter(message, parameter="state_features")
    for name, values in changed.items():
        old = getattr(scenario.mdp, name)
        if old is None or np.shape(values) != old.shape:
            rule = "must be None, as in the fit" if old is None else f"must have shape {old.shape}, as in the fit"
            raise InvalidParameter.of(name, np.shape(values), rule)
    return scenario._replace(mdp=scenario.mdp.replace(**changed))
