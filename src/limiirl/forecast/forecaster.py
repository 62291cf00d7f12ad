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
from limiirl.forecast.destinations import DestinationPosterior, infer_destinations
from limiirl.forecast.flows import Flows, compute_flows, compute_own_flows
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

    Forecasts are averaged over intents: with the mixture weights, or with the posterior given a driver's earlier trips
    (`history`), updated by the partial trip. With `MaxEnt`, start and destination also update the posterior;
    `DestinationMaxEnt` is conditioned on them.

    Parameters
    ----------
    mixture : IntentMixture
        A fitted mixture.
    demos : Demonstrations, optional
        Their last states are the candidate destinations, with their frequencies as prior. By default the training
        demonstrations; a mixture loaded from a file has none.

    Examples
    --------
    Two paths connect 0 and 3: via 1 (three of four trips) or via 2.

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

        To evaluate forecasts on complete trips, exclude the trip itself: its last state is the destination.

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
        """Return a forecaster for one driver, whose weights are the posterior given the driver's earlier trips.

        Do not pass the same trips as `history` to its methods.

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
            Trips in progress. If None, one row is returned, given the history alone.
        goal : int or (N,), optional
            Known destinations.
        history : Demonstrations, optional
            Complete earlier trips. All trips of a driver have the same intent. If `partial` and `history` have groups,
            each group is a driver; otherwise all trips belong to one driver.
        """
        if partial is None:
            if goal is not None:
                message = "goal requires partial. Pass at least the first state of the trip."
                raise InvalidParameter(message, parameter="partial")
            return np.exp(self._prior(one_state_trips(np.zeros(1, dtype=np.int64)), history))
        demos, goals = self._partials(partial, goal)
        return next_state.infer_intents(self._trips, self._prior(demos, history), demos, goals)

    def next_states(
        self, partial: Any, goal: ArrayLike | None = None, history: Demonstrations | None = None
    ) -> NextStates:
        """Return the probabilities of the next states of partial trips; see `intents` for the arguments.

        Without a goal, forecasts of `DestinationMaxEnt` are averaged over the candidate destinations.
        """
        demos, goals = self._partials(partial, goal)
        return next_state.predict_next_states(self._trips, self._prior(demos, history), demos, goals)

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
            Distinct states; by default the last states of the forecaster's demonstrations.
        prior : (G,) or "model", optional
            Weights of the candidates: by default uniform, or the frequencies of the default candidates. "model" (only
            with `MaxEnt`) is the model's distribution of final states given the start.
        history : Demonstrations, optional
        """
        demos, _ = self._partials(partial, None)
        own = isinstance(prior, str)
        if own and (prior != "model" or not isinstance(self._trips, MaxEntTrips)):
            raise InvalidParameter.of("prior", prior, "must be weights of the candidates, or 'model' with MaxEnt")
        if candidates is None:
            ends = self._open_ends()
            if ends is None:
                message = "candidates are required: no demonstrations of the forecaster end in an open state."
                raise InvalidParameter(message, parameter="candidates")
            states, weights = ends
        else:
            states = validate.check_states(candidates, "candidates", self.mdp, self._scenario.closed)
            if np.unique(states).size != states.size:
                raise InvalidParameter.of("candidates", candidates, "must be distinct states")
            weights = np.full(states.size, 1.0 / states.size)
        if prior is not None and not own:
            weights = validate.check_prior(prior, states.size)
        return infer_destinations(self._trips, self._prior(demos, history), demos, states, None if own else weights)

    def route(self, start: int, goal: int, history: Demonstrations | None = None, *, partial: Any = None) -> Route:
        """Return, of the most likely routes of each intent, the most probable one under the mixture.

        `routes` compares more routes and may rank another one first. The search ignores the discount.
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
        """Return the k most probable routes without repeated states under the mixture; see `best_routes`.

        Parameters
        ----------
        start, goal : int
        k : int
        history : Demonstrations, optional
            The driver's earlier trips.
        most : int
            Maximum number of routes to enumerate; `Route.exact` is True if the rank of a route is proven.
        partial : Demonstrations, or a list of states, optional
            A trip in progress that ends in `start`; routes are its continuations.
        """
        scores, g = self._scores(start, goal, history, partial)
        return best_routes(scores, g, check_count(k, "k"), check_count(most, "most"))

    def predict_routes(
        self, starts: ArrayLike, goals: ArrayLike, intents: ArrayLike | None = None, *, threads: int | None = None
    ) -> Demonstrations:
        """Return `route` for many pairs of states, as demonstrations with the most likely intent as label.

        Parameters
        ----------
        starts, goals : (n,)
        intents : (K,) or (n, K), optional
            Probabilities of the drivers' intents; the forecaster's weights by default.
        threads : int, optional
            Number of threads, one per core by default.
        """
        first, last = validate.check_pairs(starts, goals, self.mdp)
        for states, name in ((first, "starts"), (last, "goals")):
            validate.check_states(states, name, self.mdp, self._scenario.closed)
        validate.check_starts(first, self._trips.mdp, self._scenario.closed)
        checked = validate.check_intents(self.weights if intents is None else intents, first.size, self.weights.size)
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
            A single start or goal is repeated. If both are None, they are distributed as in `MaxEnt`.
        weights : (n,), optional
            Number of trips per pair; 1 by default.
        n_trips : float
            Number of trips if starts and goals are None.
        """
        if starts is None and goals is None:
            return compute_own_flows(self._trips, self.weights, check_positive(n_trips, "n_trips"))
        if starts is None or goals is None:
            missing = "starts" if starts is None else "goals"
            raise InvalidParameter(f"{missing} is missing. Pass both starts and goals, or neither.", parameter=missing)
        first, last = validate.check_pairs(starts, goals, self.mdp)
        validate.check_starts(first, self._trips.mdp, self._scenario.closed)
        return compute_flows(
            self._trips,
            log(self.weights),
            first,
            last,
            validate.check_weights(weights, first.size),
            self._scenario.closed,
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
        raise InvalidParameter.of("mixture", type(model).__name__, "must be fitted with MaxEnt or DestinationMaxEnt")

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
        """Return the log-prior (N, K) over intents; `history` is evaluated in the mixture's MDP, not the scenario's."""
        earlier = None if history is None else validate.check_history(history)
        return log_prior(self.weights, self.mixture.irl_, self.mixture.mdp_, self.thetas, demos, earlier)

    def _partials(self, partial: Any, goal: ArrayLike | None) -> tuple[Demonstrations, IntArray | None]:
        demos = validate.check_partial(partial)
        validate.check_open(demos, self._scenario.closed)
        demos.steps(self._trips.mdp)
        return demos, None if goal is None else validate.check_goals(goal, len(demos), self.mdp, self._scenario.closed)

    def _scores(self, start: int, goal: int, history: Demonstrations | None, partial: Any = None) -> tuple[Scores, int]:
        s = validate.check_state(start, "start", self.mdp, self._scenario.closed)
        g = validate.check_state(goal, "goal", self.mdp, self._scenario.closed)
        prefix = one_state_trips(np.array([s])) if partial is None else self._partials(partial, None)[0]
        if len(prefix) != 1 or prefix.last_states[0] != s:
            last = int(prefix.last_states[0])
            message = (
                f"partial must be a single trip that ends in start = {s}; got {len(prefix)} trips, the first ending"
            )
            raise InvalidParameter(f"{message} in state {last}.", parameter="partial", value=last)
        validate.check_starts(prefix.start_states, self._trips.mdp, self._scenario.closed)
        return Scores(self._trips, self._costs, self._prior(prefix, history)[0], s, g, prefix), g

    def _open_ends(self) -> Ends | None:
        """Return the candidate destinations that are not closed, or None."""
        if self._ends is None or np.all(self._scenario.closed[self._ends.states]):
            return None
        kept = ~self._scenario.closed[self._ends.states]
        return Ends(self._ends.states[kept], self._ends.prior[kept] / self._ends.prior[kept].sum())


def _ends_of(demos: Demonstrations) -> Ends | None:
    """Return the last states of demonstrations with their frequencies, or None if there are no demonstrations."""
    if len(demos) == 0:
        return None
    states, counts = np.unique(demos.last_states, return_counts=True)
    return Ends(states, counts / counts.sum())
