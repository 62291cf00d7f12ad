"""`Forecaster`: forecasts of a fitted mixture, averaged over intents."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from limiirl._typing import FloatArray, IntArray
from limiirl._validation import check_count, check_positive
from limiirl.demos import Demonstrations
from limiirl.errors import InvalidParameter
from limiirl.forecast import partial_trips, routes, validate
from limiirl.forecast.partial_trips import DestinationPosterior, NextStates, log_prior, one_state_trips
from limiirl.forecast.routes import Costs, PolicyCosts, Route, Scores, best_routes, most_likely_route
from limiirl.forecast.scenarios import (
    Change,
    Flows,
    RouteChange,
    Scenario,
    apply_closures,
    change_features,
    compare_flows,
    compute_flows,
    compute_own_flows,
    infer_pair_intents,
)
from limiirl.forecast.trip_models import DestinationTrips, Ends, MaxEntTrips
from limiirl.forecast.validate import log
from limiirl.irl import DestinationMaxEnt, MaxEnt, ObservedPaths
from limiirl.mdp import MDP
from limiirl.mixture import check_fitted, training_demos


class Forecaster:
    """Forecasts of a fitted mixture of intents over `MaxEnt` or `DestinationMaxEnt`.

    Forecasts are averaged over the posterior over intents given the partial trip. The prior over intents is the mixture
    weights or, if a driver's earlier trips (`history`) are passed, the posterior given these trips. With `MaxEnt`, the
    start and the destination also update the posterior; `DestinationMaxEnt` is conditioned on them.

    Parameters
    ----------
    mixture : IntentMixture
        A fitted mixture.
    demos : Demonstrations, optional
        Demonstrations whose last states are the candidate destinations; the frequencies of these states are the prior.
        Default: the training demonstrations, which are not available if the mixture was loaded from a file.

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
        mdp: MDP = mixture.mdp_
        self._ends = None if demos is None else _count_ends(demos.renumber(mdp))
        self._scenario = Scenario(mdp, np.arange(mdp.n_edges), np.zeros(mdp.n_states, dtype=bool))
        self._unchanged: MaxEntTrips | None = None
        self._trips = self._build_trips(mdp)
        if isinstance(self._trips, MaxEntTrips):
            self._unchanged = self._trips

    @property
    def mdp(self) -> MDP:
        """MDP of the forecasts: the mixture's MDP after closures and changes of features."""
        return self._scenario.mdp

    @property
    def edges(self) -> IntArray:
        """Index (E',) of each edge in the mixture's MDP."""
        return self._scenario.edges

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
        other._ends = _count_ends(demos.renumber(self.mixture.mdp_))
        if isinstance(self._trips, DestinationTrips):
            other._trips = self._trips.with_ends(other._open_ends())
        return other

    def with_history(self, history: Demonstrations) -> Forecaster:
        """Return a forecaster for one driver, whose weights are the posterior given the driver's earlier trips.

        Do not pass these trips as `history` to the methods of the new forecaster too.

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
            Trips in progress. If None, the result has a single row, which depends only on `history`.
        goal : int or (N,), optional
            Known destinations.
        history : Demonstrations, optional
            Complete earlier trips; a driver is assumed to have the same intent in all trips. If `partial` and `history`
            have groups, each group is a driver; otherwise, all trips belong to one driver.
        """
        if partial is None:
            if goal is not None:
                message = "goal requires partial. Pass at least the first state of the trip."
                raise InvalidParameter(message, parameter="partial")
            return np.exp(self._log_prior(one_state_trips(np.zeros(1, dtype=np.int64)), history))
        demos, goals = self._check_partials(partial, goal)
        return partial_trips.infer_intents(self._trips, self._log_prior(demos, history), demos, goals)

    def next_states(
        self, partial: Any, goal: ArrayLike | None = None, history: Demonstrations | None = None
    ) -> NextStates:
        """Return the probabilities of the next states of partial trips; see `intents` for the arguments.

        Without a goal, forecasts of `DestinationMaxEnt` are averaged over the candidate destinations.
        """
        demos, goals = self._check_partials(partial, goal)
        return partial_trips.predict_next_states(self._trips, self._log_prior(demos, history), demos, goals)

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
            Distinct states. Default: the last states of the forecaster's demonstrations.
        prior : (G,) or "model", optional
            Weights of the candidates, or "model" for the distribution of last states given the start (only with
            `MaxEnt`). The default is the frequencies of the default candidates; for other candidates, it is uniform.
        history : Demonstrations, optional
            As in `next_states`.
        """
        demos, _ = self._check_partials(partial, None)
        own = isinstance(prior, str)
        if own and (prior != "model" or not isinstance(self._trips, MaxEntTrips)):
            raise InvalidParameter.of("prior", prior, "must be weights of the candidates, or 'model' with MaxEnt")
        if candidates is None:
            ends = self._open_ends()
            if ends is None:
                message = "candidates are required, because no demonstration of the forecaster ends in an open state."
                raise InvalidParameter(message, parameter="candidates")
            states, weights = ends
        else:
            states = validate.check_states(candidates, "candidates", self.mdp, self._scenario.closed)
            if np.unique(states).size != states.size:
                raise InvalidParameter.of("candidates", candidates, "must be distinct states")
            weights = np.full(states.size, 1.0 / states.size)
        if prior is not None and not own:
            weights = validate.check_prior(prior, states.size)
        return partial_trips.infer_destinations(
            self._trips, self._log_prior(demos, history), demos, states, None if own else weights
        )

    def route(self, start: int, goal: int, history: Demonstrations | None = None, *, partial: Any = None) -> Route:
        """Return the most probable route among K candidates: the most likely route under each intent.

        `routes` compares more candidates, so that its first route may be more probable. The search ignores the
        discount.
        """
        scores, g = self._build_scores(start, goal, history, partial)
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
            Maximum number of routes to enumerate. If the rank of a route is proven to be correct, `Route.exact` is
            True.
        partial : Demonstrations, or a list of states, optional
            A trip in progress that ends in `start`. The routes are its continuations.
        """
        scores, g = self._build_scores(start, goal, history, partial)
        return best_routes(scores, g, check_count(k, "k"), check_count(most, "most"))

    def predict_routes(
        self,
        starts: ArrayLike,
        goals: ArrayLike,
        intents: ArrayLike | None = None,
        *,
        candidates: int = 0,
        threads: int | None = None,
    ) -> Demonstrations:
        """Return the most probable route under the mixture for many pairs, labelled with the likeliest intent.

        The candidates are the most likely route of each intent, as in `route`. More candidates take longer, but may
        contain a route that no intent prefers and that is the most probable on average.

        Parameters
        ----------
        starts, goals : (n,)
        intents : (K,) or (n, K), optional
            Probabilities of the drivers' intents, such as the result of `intents(history=...)`. Default: the
            forecaster's weights.
        candidates : int
            If positive, up to this number of routes are enumerated and compared per pair, as in `routes`.
        threads : int, optional
            Number of threads. Default: one per core.
        """
        first, last = validate.check_pairs(starts, goals, self.mdp)
        for states, name in ((first, "starts"), (last, "goals")):
            validate.check_states(states, name, self.mdp, self._scenario.closed)
        validate.check_starts(first, self._trips.mdp, self._scenario.closed)
        checked = validate.check_intents(self.weights if intents is None else intents, first.size, self.weights.size)
        if check_count(candidates, "candidates", least=0):
            best = [
                best_routes(Scores(self._trips, self._costs_at(s, g), log_prior, s, g), g, 1, candidates)[0]
                for s, g, log_prior in zip(first.tolist(), last.tolist(), log(checked), strict=True)
            ]
            acts = [self._trips.mdp.act[route.edges] for route in best]
            labels = [int(np.argmax(route.intents)) for route in best]
            return Demonstrations.from_lists([route.states for route in best], acts).replace(labels=np.array(labels))
        if isinstance(self._trips, DestinationTrips) and self._trips.needs_policy:
            demos, intent, _ = routes.predict_routes_by_goal(self._trips, log(checked), first, last)
        else:
            demos, intent, _ = routes.predict_routes(
                self._trips, self._costs, log(checked), first, last, threads=threads
            )
        return demos.replace(labels=intent)

    def score_routes(self, trips: Demonstrations, history: Demonstrations | None = None) -> FloatArray:
        """Return the log posterior predictive probability (N,) of complete trips, given their first and last states.

        The probability is the average over intents, weighted by the posterior given the ends of the trip and the
        driver's history.

        Parameters
        ----------
        trips : Demonstrations
        history : Demonstrations, optional
            As in `intents`.

        Examples
        --------
        >>> from limiirl import DestinationMaxEnt, IntentMixture
        >>> phi = [[0, 0], [1, 0], [0, 1], [0, 0]]
        >>> mdp = MDP.from_edges([0, 0, 1, 2], [1, 2, 3, 3], state_features=phi)
        >>> demos = Demonstrations.from_lists([[0, 1, 3]] * 3 + [[0, 2, 3]])
        >>> mix = IntentMixture(2, DestinationMaxEnt(bounds=(-5, 0)), init=[0, 0, 0, 1], max_iter=0).fit(mdp, demos)
        >>> forecast = Forecaster(mix)
        >>> np.exp(forecast.score_routes(demos[2:])).round(2)
        array([0.75, 0.25])
        >>> np.exp(forecast.score_routes(demos[2:], history=demos[:2])).round(2)
        array([0.99, 0.01])
        """
        demos, _ = self._check_partials(trips, None)
        log_joint = self._log_prior(demos, history) + self._trips.log_scale(demos.start_states, demos.last_states)
        ends = self._trips.log_prob_prefix(one_state_trips(demos.start_states), demos.last_states)
        log_pair = np.logaddexp.reduce(self._log_prior(demos, history) + ends, axis=1)
        weight = ObservedPaths.from_demos(self._trips.mdp, demos, by_start=True).log_weight(self.thetas)
        return np.asarray(np.logaddexp.reduce(log_joint + weight, axis=1) - log_pair)

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
            A single start or goal applies to all pairs. If both are None, they are drawn from the `MaxEnt` mixture.
        weights : (n,), optional
            Number of trips per pair. Default: 1.
        n_trips : float
            Total number of trips if `starts` and `goals` are None; otherwise, use `weights`.
        """
        if starts is None and goals is None:
            if weights is not None:
                raise InvalidParameter.of(
                    "weights", weights, "must be None if starts and goals are None", remedy="Use n_trips."
                )
            return compute_own_flows(self._trips, self.weights, check_positive(n_trips, "n_trips"))
        if starts is None or goals is None:
            missing = "starts" if starts is None else "goals"
            raise InvalidParameter(
                f"starts and goals must be given together; {missing} is None. Pass both or neither.", parameter=missing
            )
        if n_trips != 1.0:
            raise InvalidParameter.of("n_trips", n_trips, "must be 1 if starts is given", remedy="Use weights.")
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

    def with_closures(self, states: ArrayLike | None = None, edges: ArrayLike | None = None) -> Forecaster:
        """Return a forecaster with some states and edges of the mixture's MDP closed; rewards are unchanged."""
        model = self.mixture.irl_
        stop = model.stop if isinstance(model, MaxEnt) else "anywhere"
        return self._with_scenario(apply_closures(self._scenario, states, edges, stop))

    def with_features(
        self, *, state_features: Any = None, action_features: Any = None, edge_features: Any = None
    ) -> Forecaster:
        """Return a forecaster with changed features of the same shapes as before."""
        scenario = change_features(
            self._scenario,
            state_features=state_features,
            action_features=action_features,
            edge_features=edge_features,
        )
        return self._with_scenario(scenario)

    def compare(
        self,
        other: Forecaster,
        starts: ArrayLike | None = None,
        goals: ArrayLike | None = None,
        weights: ArrayLike | None = None,
    ) -> Change:
        """Return the change in flows from this forecaster to `other`; see `flows` for the remaining arguments.

        Examples
        --------
        >>> from limiirl import IntentMixture
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
        before, after = (forecaster._flows_on_original_edges(starts, goals, weights) for forecaster in (self, other))
        n = 0 if starts is None or goals is None else validate.check_pairs(starts, goals, self.mdp)[0].size
        return compare_flows(before, after, validate.check_weights(weights, n))

    def compare_routes(self, other: Forecaster, start: int, goal: int, k: int = 5) -> RouteChange:
        """Return the probabilities, under both forecasters, of the k most probable routes under each forecaster."""
        self._check_origin(other)
        before, after = self._score_routes(start, goal, k), other._score_routes(start, goal, k)
        union = before[0] | after[0]
        old, new = (np.array([score(edges) for edges in union]) for _, score in (before, after))
        return RouteChange(list(union.values()), old, new)

    def __repr__(self) -> str:
        changed = "" if self.mdp is self.mixture.mdp_ else ", changed"
        kind = "destination-conditioned" if isinstance(self._trips, DestinationTrips) else "unconditioned"
        return f"Forecaster: {self.weights.size} intents, {kind}, {self.mdp.n_states} states{changed}"

    def _build_trips(self, mdp: MDP) -> MaxEntTrips | DestinationTrips:
        model = self.mixture.irl_
        if isinstance(model, MaxEnt):
            if mdp.environment is not None:
                rule = "must be fitted to one environment with MaxEnt, whose forecasts depend on the start distribution"
                raise InvalidParameter.of("mixture", mdp.environment_names, rule, remedy="Use DestinationMaxEnt.")
            return MaxEntTrips(model, mdp, self.thetas, self._unchanged)
        if isinstance(model, DestinationMaxEnt):
            return DestinationTrips(model, mdp, self.thetas, self._open_ends())
        raise InvalidParameter.of("mixture", type(model).__name__, "must be fitted with MaxEnt or DestinationMaxEnt")

    def _with_scenario(self, scenario: Scenario) -> Forecaster:
        other = copy.copy(self)
        other.__dict__.pop("_costs", None)
        other._scenario = scenario
        other._trips = other._build_trips(scenario.mdp)
        return other

    @cached_property
    def _costs(self) -> Costs:
        return Costs(self._trips.mdp, self.thetas)

    def _costs_at(self, origin: int, goal: int) -> Costs:
        """Return the edge costs of route searches for trips from `origin` to `goal`."""
        policy = isinstance(self._trips, DestinationTrips) and self._trips.needs_policy
        return PolicyCosts(self._trips, origin, goal) if policy else self._costs

    def _log_prior(self, demos: Demonstrations, history: Demonstrations | None) -> FloatArray:
        """Return the log-prior (N, K) over intents; `history` is evaluated in the mixture's MDP, not the scenario's."""
        earlier = None if history is None else validate.check_history(history).renumber(self.mixture.mdp_)
        return log_prior(self.weights, self.mixture.irl_, self.mixture.mdp_, self.thetas, demos, earlier)

    def _check_partials(self, partial: Any, goal: ArrayLike | None) -> tuple[Demonstrations, IntArray | None]:
        demos = validate.check_partial(partial).renumber(self.mixture.mdp_)
        validate.check_open(demos, self._scenario.closed)
        demos.steps(self._trips.mdp)
        return demos, None if goal is None else validate.check_goals(goal, len(demos), self.mdp, self._scenario.closed)

    def _build_scores(
        self, start: int, goal: int, history: Demonstrations | None, partial: Any = None
    ) -> tuple[Scores, int]:
        s = validate.check_state(start, "start", self.mdp, self._scenario.closed)
        g = validate.check_state(goal, "goal", self.mdp, self._scenario.closed)
        prefix = one_state_trips(np.array([s])) if partial is None else self._check_partials(partial, None)[0]
        if len(prefix) != 1 or prefix.last_states[0] != s:
            last = int(prefix.last_states[0])
            got = f"got {len(prefix)} trips, the first of which ends in state {last}"
            message = f"partial must be a single trip that ends in start = {s}; {got}."
            raise InvalidParameter(message, parameter="partial", value=last)
        validate.check_starts(prefix.start_states, self._trips.mdp, self._scenario.closed)
        costs = self._costs_at(int(prefix.start_states[0]), g)
        return Scores(self._trips, costs, self._log_prior(prefix, history)[0], s, g, prefix), g

    def _open_ends(self) -> Ends | None:
        """Return the candidate destinations that are not closed, or None if there are none."""
        if self._ends is None or np.all(self._scenario.closed[self._ends.states]):
            return None
        kept = ~self._scenario.closed[self._ends.states]
        return Ends(self._ends.states[kept], self._ends.prior[kept] / self._ends.prior[kept].sum())

    def _score_routes(
        self, start: int, goal: int, k: int
    ) -> tuple[dict[tuple[int, ...], IntArray], Callable[[Any], float]]:
        """Return the states of the k best routes by edges, and a function from the edges of a route to its probability.

        Edges are indexed as in the mixture's MDP, before closures.
        """
        pair = (
            np.array([validate.check_state(start, "start", self.mdp)]),
            np.array([validate.check_state(goal, "goal", self.mdp)]),
        )
        if not infer_pair_intents(self._trips, log(self.weights), *pair, self._scenario.closed)[1][0]:
            return {}, lambda _: 0.0
        best = {tuple(self.edges[route.edges].tolist()): route.states for route in self.routes(start, goal, k)}
        scores = Scores(self._trips, self._costs_at(start, goal), log(self.weights), start, goal)
        position = {int(edge): i for i, edge in enumerate(self.edges)}

        def score(edges: tuple[int, ...]) -> float:
            if not all(edge in position for edge in edges):
                return 0.0  # closed
            return float(np.exp(np.logaddexp.reduce(scores.log_joint([position[edge] for edge in edges]))))

        return best, score

    def _flows_on_original_edges(self, starts: Any, goals: Any, weights: Any) -> Flows:
        """Return flows indexed by the edges of the mixture's MDP."""
        flows = self.flows(starts, goals, weights)
        edge = np.zeros((self.weights.size, self.mixture.mdp_.n_edges))
        edge[:, self.edges] = flows.edge_by_intent
        return Flows(edge, flows.state_by_intent, flows.trips, flows.cut_off)

    def _check_origin(self, other: Any) -> None:
        if not isinstance(other, Forecaster) or other.mixture is not self.mixture:
            raise InvalidParameter.of("other", type(other).__name__, "must be a Forecaster of the same mixture")


def _count_ends(demos: Demonstrations) -> Ends | None:
    """Return the last states of demonstrations with their frequencies, or None if there are no demonstrations."""
    if len(demos) == 0:
        return None
    states, counts = np.unique(demos.last_states, return_counts=True)
    return Ends(states, counts / counts.sum())
