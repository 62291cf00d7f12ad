"""Scenarios: MDPs with closed states and edges or other features, and their comparison."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from limiirl._typing import BoolArray, FloatArray, IntArray
from limiirl.errors import InvalidParameter
from limiirl.forecast import validate
from limiirl.forecast.flows import Flows, infer_pair_intents
from limiirl.forecast.routes import Scores, format_states
from limiirl.forecast.validate import log
from limiirl.irl import MaxEnt
from limiirl.mdp import MDP

if TYPE_CHECKING:
    from limiirl.forecast.forecaster import Forecaster

# Edges shown in a summary.
_SHOWN = 3


@dataclass(frozen=True, eq=False, repr=False)
class Change:
    """Change of flows between two scenarios with the same demand.

    Attributes
    ----------
    before, after : Flows
        Flows on the edges of the mixture's MDP.
    edge, state : (E,), (S,)
        Flow after minus flow before.
    cut_off : (m,)
        Indices of the pairs that are no longer connected; their trips are missing in `after`.
    trips_lost : float
        Number of trips between these pairs.

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
    """Return the change between the flows of two scenarios with the same pairs and numbers of trips `weights` (n,)."""
    lost = np.setdiff1d(after.cut_off, before.cut_off)
    return Change(before, after, after.edge - before.edge, after.state - before.state, lost, float(weights[lost].sum()))


@dataclass(frozen=True, eq=False, repr=False)
class RouteChange:
    """Probabilities of routes between two states in two scenarios; 0 for a route that does not exist.

    Attributes
    ----------
    routes : list of (T,) arrays of states
        The best routes of the first scenario, then further best routes of the second.
    before, after : (R,)

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
    """A changed MDP, the index (E',) of each of its edges in the original MDP, and the mask (S,) of closed states."""

    mdp: MDP
    edges: IntArray
    closed: BoolArray


def close_parts(scenario: Scenario, states: ArrayLike | None, edges: ArrayLike | None, stop: str) -> Scenario:
    """Return a scenario without some states and edges, indexed as in the original MDP.

    Actions with a closed edge among their outcomes are removed. States without actions become dead ends, which are
    allowed only with stop="anywhere".
    """
    mdp = scenario.mdp
    shut = np.zeros(mdp.n_states, dtype=bool)
    if states is not None:
        shut[validate.check_states(states, "states", mdp)] = True
    gone = shut[mdp.src] | shut[mdp.dst]
    if edges is not None:
        removed = np.atleast_1d(np.asarray(edges))
        integers = removed.dtype.kind in "iu" and removed.ndim == 1
        wrong = ~np.isin(removed, scenario.edges) if integers else np.ones(1, dtype=bool)
        if removed.size and np.any(wrong):
            i = int(np.argmax(wrong))
            raise InvalidParameter.of("edges", removed.ravel()[i].item(), "must be an open edge of the MDP", index=i)
        gone |= np.isin(scenario.edges, removed)
    actions = np.zeros(mdp.n_pairs, dtype=bool)
    actions[mdp.pair_of_edge[gone]] = True
    keep = np.flatnonzero(~actions[mdp.pair_of_edge])
    left = np.bincount(mdp.src[keep], minlength=mdp.n_states) > 0
    stuck = ~left & ~mdp.terminal & ~shut
    if np.any(stuck) and stop != "anywhere":
        raise InvalidParameter(
            f"Closing these edges leaves state {int(np.argmax(stuck))} without an action, which stop={stop!r} does not "
            "allow. Close the state too, or use a model with stop='anywhere'.",
            parameter="edges",
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
        terminal=mdp.terminal | ~left,
        state_features=mdp.state_features,
        action_features=None if mdp.action_features is None else mdp.action_features[np.flatnonzero(~actions)],
        edge_features=None if mdp.edge_features is None else mdp.edge_features[keep],
        feature_names=mdp.feature_names,
        state_names=mdp.state_names,
    )
    return Scenario(changed, scenario.edges[keep], scenario.closed | shut)


def change_features(scenario: Scenario, **features: Any) -> Scenario:
    """Return a scenario with other features of the same shapes."""
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


class WhatIf:
    """Methods of `Forecaster` that create scenarios and compare them."""

    mixture: Any
    weights: FloatArray
    flows: Any
    routes: Any
    _scenario: Scenario
    _trips: Any
    _costs: Any
    _in_scenario: Any

    @property
    def mdp(self) -> MDP:
        """MDP of the forecasts: the mixture's MDP with the changes of the scenario."""
        return self._scenario.mdp

    @property
    def edges(self) -> IntArray:
        """Index (E',) of each edge in the mixture's MDP."""
        return self._scenario.edges

    def with_closures(self, states: ArrayLike | None = None, edges: ArrayLike | None = None) -> Forecaster:
        """Return a forecaster without the given states and edges of the mixture's MDP; rewards are unchanged."""
        model = self.mixture.irl_
        stop = model.stop if isinstance(model, MaxEnt) else "anywhere"
        other: Forecaster = self._in_scenario(close_parts(self._scenario, states, edges, stop))
        return other

    def with_features(
        self, *, state_features: Any = None, action_features: Any = None, edge_features: Any = None
    ) -> Forecaster:
        """Return a forecaster with other features, of the same shapes as in its MDP."""
        scenario = change_features(
            self._scenario,
            state_features=state_features,
            action_features=action_features,
            edge_features=edge_features,
        )
        other: Forecaster = self._in_scenario(scenario)
        return other

    def compare(
        self,
        other: Forecaster,
        starts: ArrayLike | None = None,
        goals: ArrayLike | None = None,
        weights: ArrayLike | None = None,
    ) -> Change:
        """Return the change of flows from this scenario to another; see `flows` for the arguments.

        Examples
        --------
        >>> from limiirl import Demonstrations, IntentMixture
        >>> from limiirl.forecast import Forecaster
        >>> mdp = MDP.from_edges([0, 0, 1, 2], [1, 2, 3, 3], state_features=[1.0, 1.0, 1.0, 1.0])
        >>> demos = Demonstrations.from_lists([[0, 1, 3], [0, 2, 3]])
        >>> forecast = Forecaster(IntentMixture(1, MaxEnt(bounds=(-5, 0)), random_state=0).fit(mdp, demos))
        >>> forecast.compare(forecast.with_closures(edges=[2]), [0, 1], [3, 3], [10, 4])
        14 trips, 4 of 4 edges change
          gain: edge 1 +5, edge 3 +5
          lose: edge 2 -9, edge 0 -5
          no longer connected: 1 pairs, 4 trips
        """
        self._check_origin(other)
        before, after = (forecaster._original_flows(starts, goals, weights) for forecaster in (self, other))
        n = 0 if starts is None or goals is None else validate.check_pairs(starts, goals, self.mdp)[0].size
        return compare_flows(before, after, validate.check_weights(weights, n))

    def compare_routes(self, other: Forecaster, start: int, goal: int, k: int = 5) -> RouteChange:
        """Return the probabilities of the k best routes of either scenario in both scenarios."""
        self._check_origin(other)
        before, after = self._score_routes(start, goal, k), other._score_routes(start, goal, k)
        routes = before[0] | after[0]
        old, new = (np.array([score(edges) for edges in routes]) for _, score in (before, after))
        return RouteChange(list(routes.values()), old, new)

    def _score_routes(
        self, start: int, goal: int, k: int
    ) -> tuple[dict[tuple[int, ...], IntArray], Callable[[Any], float]]:
        """Return the best routes by their original edges, and the probability of a route as a function of its edges."""
        pair = (
            np.array([validate.check_state(start, "start", self.mdp)]),
            np.array([validate.check_state(goal, "goal", self.mdp)]),
        )
        if not infer_pair_intents(self._trips, log(self.weights), *pair, self._scenario.closed)[1][0]:
            return {}, lambda _: 0.0
        best = {tuple(self.edges[route.edges].tolist()): route.states for route in self.routes(start, goal, k)}
        scores = Scores(self._trips, self._costs, log(self.weights), start, goal)
        number = {int(edge): i for i, edge in enumerate(self.edges)}

        def score(edges: tuple[int, ...]) -> float:
            if not all(edge in number for edge in edges):
                return 0.0  # closed
            return float(np.exp(np.logaddexp.reduce(scores.log_joint([number[edge] for edge in edges]))))

        return best, score

    def _original_flows(self, starts: Any, goals: Any, weights: Any) -> Flows:
        """Return flows indexed by the edges of the mixture's MDP."""
        flows = self.flows(starts, goals, weights)
        edge = np.zeros((self.weights.size, self.mixture.mdp_.n_edges))
        edge[:, self.edges] = flows.edge_by_intent
        return Flows(edge, flows.state_by_intent, flows.trips, flows.cut_off)

    def _check_origin(self, other: Any) -> None:
        if not isinstance(other, WhatIf) or other.mixture is not self.mixture:
            raise InvalidParameter.of("other", type(other).__name__, "must be a Forecaster of the same mixture")
