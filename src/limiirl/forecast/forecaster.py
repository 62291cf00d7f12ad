"""`Forecaster`: forecasts of a fitted mixture, averaged over intents."""

from __future__ import annotations

import copy
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from limiirl._typing import FloatArray, IntArray
from limiirl._validation import check_count, check_positive
from limiirl.demos import Demonstrations
from limiirl.errors import InvalidParameter
from limiirl.forecast import next_state, routes, validate
from limiirl.forecast.destinations import DestinationPosterior, destinations
from limiirl.forecast.flows import Flows, flows, own_flows
from limiirl.forecast.next_state import NextStates
from limiirl.forecast.prefixes import log_prior, one_state_trips
from limiirl.forecast.routes import Costs, Route, Scores, best_routes, most_likely_route
from limiirl.forecast.scenarios import Scenario, WhatIf
from limiirl.forecast.trip_models import DestinationTrips, Ends, MaxEntTrips
from limiirl.forecast.validate import log
from limiirl.irl import DestinationMaxEnt, MaxEnt
from limiirl.mdp import MDP
from limiirl.mixture import check_fitted, training_demos


class Forecaster(WhatIf):
    """Forecasts of a fitted mixture of intents over `MaxEnt` or `DestinationMaxEnt`.

    Forecasts are averaged over intents: by the mixture weights, or by the posterior given a driver's earlier trips
    (`history`), updated by the partial trip. With `MaxEnt`, which models starts and ends, these are evidence about the
    intent too; `DestinationMaxEnt` is conditioned on them.

    Parameters
    ----------
    mixture : IntentMixture
        Fitted.
    demos : Demonstrations, optional
        Trips whose last states are the candidate destinations, with their frequencies as prior. By default the training
        demonstrations, which a mixture loaded from a file does not have.

    Examples
    --------
    Two paths lead from 0 to 3, via 1 (three of four trips) or 2.

    >>> from limiirl import IntentMixture
    >>> mdp = MDP.from_edges([0, 0, 1, 2], [1, 2, 3, 3], p0=[1, 0, 0, 0], state_features=[[0], [1], [2], [0]])
    >>> demos = Demonstrations.from_lists([[0, 1, 3]] * 3 + [[0, 2, 3]])
    >>> mix = IntentMixture(1, MaxEnt(stop="terminal", bounds=(-5, 0)), random_state=0).fit(mdp, demos)
    >>> forecast = Forecaster(mix)
    >>> forecast.next_states([0], goal=3)
    next: state 1 75.0 %, 2 25.0 %; ends here 0.0 %
    >>> forecast.routes(0, 3)
    [75.0 %: 3 states, 0 - 1 - 3; intent 0 (100 %), 25.0 %: 3 states, 0 - 2 - 3; intent 0 (100 %)]
    >>> forecast.with_closures(states=[1]).route(0, 3)
    100.0 %: 3 states, 0 - 2 - 3; intent 0 (100 %)
    """

    def __init__(self, mixture: Any, demos: Demonstrations | None = None) -> None:
        check_fitted(mixture)
        self.mixture = mixture
        self.weights: FloatArray = np.asarray(mixture.weights_, dtype=np.float64)
        self.thetas: FloatArray = np.asarray(mixture.thetas_, dtype=np.float64)
        if demos is None:
            demos = training_demos(mixture)
        self._ends = None if demos is None else _ends_of(demos)
        mdp: MDP = mixture.mdp_
        self._scenario = Scenario(mdp, np.arange(mdp.n_edges), np.zeros(mdp.n_states, dtype=bool))
        self._unchanged: MaxEntTrips | None = None
        self._trips = self._make_trips(mdp)
        if isinstance(self._trips, MaxEntTrips):
            self._unchanged = self._trips

    def with_destinations(self, demos: Demonstrations) -> Forecaster:
        """Return a forecaster with the last states of other demonstrations as candidate destinations.

        When evaluating on complete trips, exclude the trip itself, whose end would reveal its destination.

        Examples
        --------
        >>> from limiirl import IntentMixture
        >>> mdp = MDP.from_edges([0, 0, 1, 2], [1, 2, 3, 3], state_features=[1.0, 1.0, 1.0, 1.0])
        >>> demos = Demonstrations.from_lists([[0, 1, 3], [0, 2], [0, 1]])
        >>> forecast = Forecaster(IntentMixture(1, MaxEnt(bounds=(-5, 0)), random_state=0).fit(mdp, demos))
        >>> forecast.destinations([0]).candidates, forecast.with_destinations(demos[1:]).destinations([0]).candidates
        (array([1, 2, 3]), array([1, 2]))
        """
        other = copy.copy(self)
        other._ends = _ends_of(demos)
        if isinstance(self._trips, DestinationTrips):
            other._trips = self._trips.with_ends(other._open_ends())
        return other

    def with_history(self, history: Demonstrations) -> Forecaster:
        """Return a forecaster for one driver with known earlier trips.

        Its weights are the posterior over that driver's intents. Do not pass the same trips as `history` again.

        Examples
        --------
        >>> from limiirl import IntentMixture
        >>> phi = [[0, 0], [1, 0], [0, 1], [0, 0]]
        >>> mdp = MDP.from_edges([0, 0, 1, 2], [1, 2, 3, 3], p0=[1, 0, 0, 0], state_features=phi)
        >>> demos = Demonstrations.from_lists([[0, 1, 3]] * 3 + [[0, 2, 3]])
        >>> forecast = Forecaster(IntentMixture(2, MaxEnt(bounds=(-5, 5)), random_state=0).fit(mdp, demos))
        >>> forecast.weights.round(2), forecast.with_history(demos[3:]).weights.round(2)
        (array([0.75, 0.25]), array([0., 1.]))
        """
        other = copy.copy(self)
        other.weights = self.intents(history=history)[0]
        return other

    def intents(
        self, partial: Any = None, goal: ArrayLike | None = None, history: Demonstrations | None = None
    ) -> FloatArray:
        """Return the posterior (N, K) over the intents of the drivers of N partial trips.

        Parameters
        ----------
        partial : Demonstrations, or a list of states, optional
            Trips in progress. If None, one row given the history alone.
        goal : int or (N,), optional
            Known destinations.
        history : Demonstrations, optional
            Complete earlier trips. All trips of a driver share one intent. If both have groups, each partial trip has
            the history of its group; otherwise all of it belongs to one driver.
        """
        if partial is None:
            if goal is not None:
                raise InvalidParameter(
                    "partial must be given with a goal; pass at least the first state.", parameter="partial"
                )
            return np.exp(self._prior(one_state_trips(np.zeros(1, dtype=np.int64)), history))
        demos, goals = self._partials(partial, goal)
        return next_state.intents(self._trips, self._prior(demos, history), demos, goals)

    def next_states(
        self, partial: Any, goal: ArrayLike | None = None, history: Demonstrations | None = None
    ) -> NextStates:
        """Return the probabilities of the next states of partial trips; arguments as in `intents`.

        Without a goal, `DestinationMaxEnt` averages over the candidate destinations of the forecaster.
        """
        demos, goals = self._partials(partial, goal)
        return next_state.next_states(self._trips, self._prior(demos, history), demos, goals)

    def destinations(
        self,
        partial: Any,
        candidates: ArrayLike | None = None,
        prior: ArrayLike | str | None = None,
        history: Demonstrations | None = None,
    ) -> DestinationPosterior:
        """Return the posterior over the destinations of partial trips.

        Parameters
        ----------
        partial : Demonstrations, or a list of states
        candidates : (G,), optional
            States; by default the last states of the forecaster's demonstrations.
        prior : (G,) or "model", optional
            Weights of the candidates: by default uniform, or the frequencies of the default candidates. "model", for
            `MaxEnt`: the model's own distribution of ends given the start.
        history : Demonstrations, optional
        """
        demos, _ = self._partials(partial, None)
        own = isinstance(prior, str)
        if own and (prior != "model" or not isinstance(self._trips, MaxEntTrips)):
            raise InvalidParameter.of("prior", prior, "must be weights of the candidates, or 'model' with MaxEnt")
        if candidates is None:
            ends = self._open_ends()
            if ends is None:
                raise InvalidParameter(
                    "candidates must be given, since the forecaster has no demos that end in open states.",
                    parameter="candidates",
                )
            places, weights = ends
        else:
            places = np.unique(validate.states(candidates, "candidates", self.mdp, self._scenario.closed))
            if places.size != np.size(candidates):
                raise InvalidParameter.of("candidates", candidates, "must be distinct states")
            places = validate.states(candidates, "candidates", self.mdp)
            weights = np.full(places.size, 1.0 / places.size)
        if prior is not None and not own:
            weights = validate.prior(prior, places.size)
        return destinations(self._trips, self._prior(demos, history), demos, places, None if own else weights)

    def route(self, start: int, goal: int, history: Demonstrations | None = None, *, partial: Any = None) -> Route:
        """Return the most probable under the mixture of the intents' most likely routes.

        `routes` searches more routes and may rank another first. The search ignores the discount.
        """
        scores, g = self._scores(start, goal, history, partial)
        return most_likely_route(scores, g)

    def routes(
        self,
        start: int,
        goal: int,
        k: int = 5,
        history: Demonstrations | None = None,
        *,
        most: int = 1000,
        partial: Any = None,
    ) -> list[Route]:
        """Return the k most probable routes under the mixture without repeated states; see `best_routes`.

        Parameters
        ----------
        start, goal : int
        k : int
        history : Demonstrations, optional
            The driver's earlier trips.
        most : int
            Maximum number of routes to enumerate; `Route.exact` marks those that are certainly among the best.
        partial : Demonstrations, or a list of states, optional
            One trip in progress that has reached `start`. Routes are then its continuations.
        """
        scores, g = self._scores(start, goal, history, partial)
        return best_routes(scores, g, check_count(k, "k"), check_count(most, "most"))

    def predict_routes(
        self, starts: ArrayLike, goals: ArrayLike, intents: ArrayLike | None = None, *, threads: int | None = None
    ) -> Demonstrations:
        """Return `route` for many pairs of states as demonstrations, labelled by the most likely intent.

        Parameters
        ----------
        starts, goals : (n,)
        intents : (K,) or (n, K), optional
            Probabilities of the drivers' intents; the forecaster's weights by default.
        threads : int, optional
            One per core by default.
        """
        first, last = validate.pairs(starts, goals, self.mdp)
        for states, name in ((first, "starts"), (last, "goals")):
            validate.states(states, name, self.mdp, self._scenario.closed)
        validate.check_starts(first, self._trips.mdp, self._scenario.closed)
        checked = validate.intents(self.weights if intents is None else intents, first.size, self.weights.size)
        demos, intent, _ = routes.predict_routes(self._trips, self._costs, log(checked), first, last, threads=threads)
        return demos.replace(labels=intent)

    def flows(
        self,
        starts: ArrayLike | None = None,
        goals: ArrayLike | None = None,
        weights: ArrayLike | None = None,
        *,
        n_trips: float = 1.0,
    ) -> Flows:
        """Return the expected edge and state counts of trips between pairs of states.

        Parameters
        ----------
        starts, goals : (n,), optional
            A single start or goal is repeated. If neither is given, starts and ends follow `MaxEnt`.
        weights : (n,), optional
            Number of trips per pair; 1 by default.
        n_trips : float
            Number of trips if there are no pairs.
        """
        if starts is None and goals is None:
            return own_flows(self._trips, self.weights, check_positive(n_trips, "n_trips"))
        if starts is None or goals is None:
            missing = "starts" if starts is None else "goals"
            raise InvalidParameter(
                f"{missing} must be given: pass both starts and goals, or neither.", parameter=missing
            )
        first, last = validate.pairs(starts, goals, self.mdp)
        validate.check_starts(first, self._trips.mdp, self._scenario.closed)
        return flows(
            self._trips, log(self.weights), first, last, validate.weights(weights, first.size), self._scenario.closed
        )

    def __repr__(self) -> str:
        changed = "" if self.mdp is self.mixture.mdp_ else ", changed"
        kind = "destination-conditioned" if isinstance(self._trips, DestinationTrips) else "unconditioned"
        return f"Forecaster: {self.weights.size} intents, {kind}, {self.mdp.n_states} states{changed}"

    def _make_trips(self, mdp: MDP) -> MaxEntTrips | DestinationTrips:
        model = self.mixture.irl_
        if isinstance(model, MaxEnt):
            return MaxEntTrips(model, mdp, self.thetas, self._unchanged)
        if isinstance(model, DestinationMaxEnt):
            return DestinationTrips(model, mdp, self.thetas, self._open_ends())
        raise InvalidParameter.of("mixture", type(model).__name__, "must be over MaxEnt or DestinationMaxEnt")

    def _in_scenario(self, scenario: Scenario) -> Forecaster:
        other = copy.copy(self)
        other.__dict__.pop("_costs", None)
        other._scenario = scenario
        other._trips = other._make_trips(scenario.mdp)
        return other

    @cached_property
    def _costs(self) -> Costs:
        return Costs(self._trips.mdp, self.thetas)

    def _prior(self, demos: Demonstrations, history: Demonstrations | None) -> FloatArray:
        """Return the log-prior (N, K) over intents; earlier trips were made in the unchanged MDP."""
        earlier = None if history is None else validate.history(history)
        return log_prior(self.weights, self.mixture.irl_, self.mixture.mdp_, self.thetas, demos, earlier)

    def _partials(self, partial: Any, goal: ArrayLike | None) -> tuple[Demonstrations, IntArray | None]:
        demos = validate.partials(partial)
        validate.open_trips(demos, self._scenario.closed)
        demos.steps(self._trips.mdp)
        return demos, None if goal is None else validate.goals_of(goal, len(demos), self.mdp, self._scenario.closed)

    def _scores(self, start: int, goal: int, history: Demonstrations | None, partial: Any = None) -> tuple[Scores, int]:
        """Return the scores of routes from start to goal, given a partial trip if there is one."""
        s = validate.one_state(start, "start", self.mdp, self._scenario.closed)
        g = validate.one_state(goal, "goal", self.mdp, self._scenario.closed)
        begun = one_state_trips(np.array([s])) if partial is None else self._partials(partial, None)[0]
        if len(begun) != 1 or begun.last_states[0] != s:
            raise InvalidParameter(
                f"partial must be one trip that ends in start = {s}; got {len(begun)}, the first of which ends in "
                f"state {begun.last_states[0]}.",
                parameter="partial",
                value=int(begun.last_states[0]),
            )
        validate.check_starts(begun.start_states, self._trips.mdp, self._scenario.closed)
        return Scores(self._trips, self._costs, self._prior(begun, history)[0], s, g, begun), g

    def _open_ends(self) -> Ends | None:
        """Return the candidate destinations that are not closed, or None."""
        if self._ends is None or np.all(self._scenario.closed[self._ends.states]):
            return None
        kept = ~self._scenario.closed[self._ends.states]
        return Ends(self._ends.states[kept], self._ends.prior[kept] / self._ends.prior[kept].sum())


def _ends_of(demos: Demonstrations) -> Ends | None:
    """Return the last states of demonstrations with their frequencies, or None without demonstrations."""
    if len(demos) == 0:
        return None
    states, counts = np.unique(demos.last_states, return_counts=True)
    return Ends(states, counts / counts.sum())
