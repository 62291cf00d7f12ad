"""What if? Worlds in which links are closed or have other features, and what that changes.

What differs between two worlds: links that gain and lose, pairs that are cut off, routes that change.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from limiirl._typing import BoolArray, FloatArray, IntArray
from limiirl.errors import InvalidParameter
from limiirl.forecast import validate
from limiirl.forecast.flows import Flows, shares_of_pairs
from limiirl.forecast.routes import Scores, written
from limiirl.forecast.validate import log
from limiirl.irl import MaxEnt
from limiirl.mdp import MDP

if TYPE_CHECKING:
    from limiirl.forecast.forecaster import Forecaster

# Links that are written out.
_SHOWN = 3


@dataclass(frozen=True, eq=False, repr=False)
class Change:
    """What changes from one world to another, for the same demand.

    Attributes
    ----------
    before, after : Flows
        Edges of both have the numbers of the first world's MDP.
    edge, state : (E,), (S,)
        Flow after less flow before.
    cut_off : (m,)
        Pairs that were connected and are not any more; their trips are missing in `after`.
    trips_lost : float
        How many trips that are.

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
        """Return the edges that gain most, at most n, the most first."""
        order = np.argsort(-self.edge, kind="stable")[:n]
        return np.asarray(order[self.edge[order] > 0.0])

    def losses(self, n: int = 10) -> IntArray:
        """Return the edges that lose most, at most n, the most first."""
        order = np.argsort(self.edge, kind="stable")[:n]
        return np.asarray(order[self.edge[order] < 0.0])

    def __repr__(self) -> str:
        # What differs by rounding does not change.
        changed = np.count_nonzero(np.abs(self.edge) > 1e-9 * max(1.0, self.before.trips))
        lines = [f"{self.before.trips:g} trips, {changed} of {self.edge.size} edges change"]
        for what, which in (("gain", self.gains(_SHOWN)), ("lose", self.losses(_SHOWN))):
            if which.size:
                lines.append(f"  {what}: " + ", ".join(f"edge {e} {self.edge[e]:+.4g}" for e in which))
        if self.cut_off.size:
            lines.append(f"  cut off: {self.cut_off.size} pairs, {self.trips_lost:g} trips")
        return "\n".join(lines)


def change(before: Flows, after: Flows, weights: FloatArray) -> Change:
    """Return the change from one world's flows to another's, for the same pairs of `weights` (n,) trips."""
    lost = np.setdiff1d(after.cut_off, before.cut_off)
    return Change(before, after, after.edge - before.edge, after.state - before.state, lost, float(weights[lost].sum()))


@dataclass(frozen=True, eq=False, repr=False)
class RouteChange:
    """The probabilities of routes between two states in two worlds; 0 for a route that a world does not have.

    Attributes
    ----------
    routes : list of (T,) arrays of states
        The best of both worlds, those of the first world first.
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
            lines.append(f"{100 * old:.1f} % -> {100 * new:.1f} %: {written(states)}")
        return "\n".join(lines)


class ScenarioWorld(NamedTuple):
    """A changed MDP.

    Attributes
    ----------
    mdp : MDP
    edges : (E',)
        Which edge of the first MDP each edge is.
    closed : (S,)
        Whether a state is closed: nobody begins, ends or passes there.
    """

    mdp: MDP
    edges: IntArray
    closed: BoolArray


def close_parts(world: ScenarioWorld, states: ArrayLike | None, edges: ArrayLike | None, stop: str) -> ScenarioWorld:
    """Return a world without some states and edges; edges have the numbers of the first MDP.

    Where an action may lead over a closed edge, it is not available any more. A state that nobody can leave any more
    is a dead end, in which trips may still end, if the model lets them end anywhere.

    Examples
    --------
    >>> mdp = MDP.from_edges([0, 0, 1], [1, 2, 2])
    >>> now = close_parts(ScenarioWorld(mdp, np.arange(3), np.zeros(3, dtype=bool)), None, [1], "anywhere")
    >>> now.mdp.src, now.mdp.dst, now.edges
    (array([0, 1], dtype=int32), array([1, 2], dtype=int32), array([0, 2]))
    """
    mdp = world.mdp
    shut = np.zeros(mdp.n_states, dtype=bool)
    if states is not None:
        shut[validate.states(states, "states", mdp)] = True
    gone = shut[mdp.src] | shut[mdp.dst]
    if edges is not None:
        given = np.atleast_1d(np.asarray(edges))
        known = given.dtype.kind in "iu" and given.ndim == 1
        wrong = ~np.isin(given, world.edges) if known else np.ones(1, dtype=bool)
        if given.size and np.any(wrong):
            raise InvalidParameter(
                f"edges must be numbers of edges of the MDP that are open; {given.ravel()[int(np.argmax(wrong))]!r} is "
                "not. mdp.src and mdp.dst say what each edge joins.",
                parameter="edges",
            )
        gone |= np.isin(world.edges, given)
    actions = np.zeros(mdp.n_pairs, dtype=bool)
    actions[mdp.pair_of_edge[gone]] = True
    keep = np.flatnonzero(~actions[mdp.pair_of_edge])
    left = np.bincount(mdp.src[keep], minlength=mdp.n_states) > 0
    stuck = ~left & ~mdp.terminal & ~shut
    if np.any(stuck) and stop != "anywhere":
        raise InvalidParameter(
            f"State {int(np.argmax(stuck))} has no way out any more, and the model has stop={stop!r}: trips would end "
            "there. Close it too, or use a model with stop='anywhere'.",
            parameter="edges",
            index=int(np.argmax(stuck)),
        )
    p0 = np.where(shut, 0.0, mdp.p0)
    if p0.sum() == 0.0:
        raise InvalidParameter(
            "Every state in which trips begin is closed. Leave one of them open.", parameter="states"
        )
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
    return ScenarioWorld(changed, world.edges[keep], world.closed | shut)


def change_features(world: ScenarioWorld, **features: Any) -> ScenarioWorld:
    """Return a world with other features, of as many columns as before."""
    given = {name: values for name, values in features.items() if values is not None}
    if not given:
        raise InvalidParameter("Pass state_features, action_features or edge_features.", parameter="state_features")
    for name, values in given.items():
        old = getattr(world.mdp, name)
        if old is None or np.shape(values) != old.shape:
            form = "none" if old is None else f"shape {old.shape}"
            raise InvalidParameter(
                f"{name} must have the form of the MDP that was fitted ({form}); got shape {np.shape(values)}.",
                parameter=name,
                value=np.shape(values),
            )
    return world._replace(mdp=world.mdp.replace(**given))


class WhatIf:
    """The methods of `Forecaster` that change its world, and that compare two."""

    mixture: Any
    shares: FloatArray
    flows: Any
    routes: Any
    _world: ScenarioWorld
    _trips: Any
    _costs: Any
    _in: Any

    @property
    def mdp(self) -> MDP:
        """The MDP of the forecasts: that of the mixture, or the changed one."""
        return self._world.mdp

    @property
    def edges(self) -> IntArray:
        """Which edge (E',) of the mixture's MDP each edge is, after edges were closed."""
        return self._world.edges

    def with_closures(self, states: ArrayLike | None = None, edges: ArrayLike | None = None) -> Forecaster:
        """Return a forecaster for the world without some states and edges; the rewards are the same.

        `edges` have the numbers of the mixture's MDP, whatever was closed before.
        """
        model = self.mixture.irl_
        found: Forecaster = self._in(
            close_parts(self._world, states, edges, model.stop if isinstance(model, MaxEnt) else "anywhere")
        )
        return found

    def with_features(
        self, *, state_features: Any = None, action_features: Any = None, edge_features: Any = None
    ) -> Forecaster:
        """Return a forecaster for the world with other features, in the form of this one's MDP."""
        features = {"state": state_features, "action": action_features, "edge": edge_features}
        found: Forecaster = self._in(
            change_features(self._world, **{f"{kind}_features": x for kind, x in features.items()})
        )
        return found

    def compare(
        self,
        other: Forecaster,
        starts: ArrayLike | None = None,
        goals: ArrayLike | None = None,
        weights: ArrayLike | None = None,
    ) -> Change:
        """Return what changes from this world to another, for the same trips; arguments as in `flows`.

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
          cut off: 1 pairs, 4 trips
        """
        self._same_origin(other)
        before, after = (forecaster._numbered(starts, goals, weights) for forecaster in (self, other))
        n = 0 if starts is None or goals is None else validate.pairs(starts, goals, self.mdp)[0].size
        return change(before, after, validate.weights(weights, n))

    def compare_routes(self, other: Forecaster, start: int, goal: int, k: int = 5) -> RouteChange:
        """Return how the probabilities of the k best routes of each of two worlds differ."""
        self._same_origin(other)
        before, after = self._scored(start, goal, k), other._scored(start, goal, k)
        named = before[0] | after[0]
        old, new = (np.array([score(edges) for edges in named]) for _, score in (before, after))
        return RouteChange(list(named.values()), old, new)

    def _scored(self, start: int, goal: int, k: int) -> tuple[dict[tuple[int, ...], IntArray], Callable[[Any], float]]:
        """Return the best routes, named by the edges of the first MDP, and a function that says how likely any is."""
        pair = (
            np.array([validate.one_state(start, "start", self.mdp)]),
            np.array([validate.one_state(goal, "goal", self.mdp)]),
        )
        if not shares_of_pairs(self._trips, log(self.shares), *pair, self._world.closed)[1][0]:
            return {}, lambda _: 0.0
        best = {tuple(self.edges[route.edges].tolist()): route.states for route in self.routes(start, goal, k)}
        scores = Scores(self._trips, self._costs, log(self.shares), start, goal)
        number = {int(edge): i for i, edge in enumerate(self.edges)}

        def score(edges: tuple[int, ...]) -> float:
            if not all(edge in number for edge in edges):
                return 0.0  # closed
            return float(np.exp(np.logaddexp.reduce(scores.log_joint([number[edge] for edge in edges]))))

        return best, score

    def _numbered(self, starts: Any, goals: Any, weights: Any) -> Flows:
        """Return flows by the edges of the mixture's MDP; pairs with a closed end are cut off."""
        found = self.flows(starts, goals, weights)
        edge = np.zeros((self.shares.size, self.mixture.mdp_.n_edges))
        edge[:, self.edges] = found.edge_by_intent
        return Flows(edge, found.state_by_intent, found.trips, found.cut_off)

    def _same_origin(self, other: Any) -> None:
        if not isinstance(other, WhatIf) or other.mixture is not self.mixture:
            raise InvalidParameter(
                "other must be a forecaster of the same mixture, made by with_closures or with_features.",
                parameter="other",
            )
