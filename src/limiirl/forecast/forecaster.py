"""`Forecaster`: what a fitted mixture foresees, averaged over the intents that the driver may have."""

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
from limiirl.forecast.prefixes import alone, log_prior
from limiirl.forecast.routes import Costs, Route, Scores, best_routes, likeliest_route
from limiirl.forecast.scenarios import ScenarioWorld, WhatIf
from limiirl.forecast.trip_models import Ends, FreeEnds, GivenEnds
from limiirl.forecast.validate import log
from limiirl.irl import MaxEnt
from limiirl.mdp import MDP
from limiirl.mixture import fitted, trained_on


class Forecaster(WhatIf):
    """Forecasts of a fitted mixture of intents, whose model is `MaxEnt` or `DestinationMaxEnt`.

    Every forecast averages over intents. Their probabilities are the mixture's shares, or where a driver's earlier
    trips are given as `history`, the posterior from these; the trip itself then adds what it shows. `MaxEnt` says where
    trips begin and end, so that start and goal tell of the intent too; `DestinationMaxEnt` does not.

    Parameters
    ----------
    mixture : IntentMixture
        Fitted.
    demos : Demonstrations, optional
        Trips whose last states are the candidate destinations, their frequencies the prior. By default those that the
        mixture was fitted to, which a mixture read from a file no longer has.

    Examples
    --------
    Two ways lead from 0 to 3: most go by 1, some by 2.

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
        fitted(mixture)
        self.mixture = mixture
        self.shares: FloatArray = np.asarray(mixture.weights_, dtype=np.float64)
        self.thetas: FloatArray = np.asarray(mixture.thetas_, dtype=np.float64)
        if demos is None:
            demos = trained_on(mixture)
        self._ends = None if demos is None else _ends_of(demos)
        mdp: MDP = mixture.mdp_
        self._world = ScenarioWorld(mdp, np.arange(mdp.n_edges), np.zeros(mdp.n_states, dtype=bool))
        self._first: FreeEnds | None = None
        self._trips = self._begin(mdp)
        if isinstance(self._trips, FreeEnds):
            self._first = self._trips

    def with_destinations(self, demos: Demonstrations) -> Forecaster:
        """Return this forecaster with the ends of other demonstrations as candidate destinations.

        To forecast a trip that is known to its end, leave it out of them: its own end among few others gives it away.

        Examples
        --------
        >>> from limiirl import IntentMixture
        >>> mdp = MDP.from_edges([0, 0, 1, 2], [1, 2, 3, 3], state_features=[1.0, 1.0, 1.0, 1.0])
        >>> demos = Demonstrations.from_lists([[0, 1, 3], [0, 2], [0, 1]])
        >>> forecast = Forecaster(IntentMixture(1, MaxEnt(bounds=(-5, 0)), random_state=0).fit(mdp, demos))
        >>> forecast.destinations([0]).candidates, forecast.with_destinations(demos[1:]).destinations([0]).candidates
        (array([1, 2, 3]), array([1, 2]))
        """
        found = copy.copy(self)
        found._ends = _ends_of(demos)
        if isinstance(self._trips, GivenEnds):
            found._trips = self._trips.ending_in(found._open_ends())
        return found

    def given_history(self, history: Demonstrations) -> Forecaster:
        """Return this forecaster for one driver, whose earlier trips are known.

        All that it foresees, flows and what changes in another world included, is averaged by the posterior of that
        driver's intent in place of the shares. Do not pass the same trips as `history` again.

        Examples
        --------
        >>> from limiirl import IntentMixture
        >>> phi = [[0, 0], [1, 0], [0, 1], [0, 0]]
        >>> mdp = MDP.from_edges([0, 0, 1, 2], [1, 2, 3, 3], p0=[1, 0, 0, 0], state_features=phi)
        >>> demos = Demonstrations.from_lists([[0, 1, 3]] * 3 + [[0, 2, 3]])
        >>> forecast = Forecaster(IntentMixture(2, MaxEnt(bounds=(-5, 5)), random_state=0).fit(mdp, demos))
        >>> forecast.shares.round(2), forecast.given_history(demos[3:]).shares.round(2)
        (array([0.75, 0.25]), array([0., 1.]))
        """
        found = copy.copy(self)
        found.shares = self.intents(history=history)[0]
        return found

    def intents(
        self, partial: Any = None, goal: ArrayLike | None = None, history: Demonstrations | None = None
    ) -> FloatArray:
        """Return the posterior (N, K) of the intents of those who drive N partial trips.

        Parameters
        ----------
        partial : Demonstrations, or a list of states, optional
            Trips that are going on. None: one row, of what the history says.
        goal : int or (N,), optional
            Where they are going, if that is known.
        history : Demonstrations, optional
            Earlier trips, whole. A driver follows one intent in all of them. Where these and the partial trips have
            groups, each is judged by the history of the same group; elsewhere all of it is one driver's.
        """
        if partial is None:
            if goal is not None:
                raise InvalidParameter(
                    "A goal alone says nothing here. Pass a partial trip too, if only its first state.",
                    parameter="partial",
                )
            return np.exp(self._prior(alone(np.zeros(1, dtype=np.int64)), history))
        demos, goals = self._partials(partial, goal)
        return next_state.intents(self._trips, self._prior(demos, history), demos, goals)

    def next_states(
        self, partial: Any, goal: ArrayLike | None = None, history: Demonstrations | None = None
    ) -> NextStates:
        """Return the probability of each next state after partial trips; arguments as in `intents`.

        Without a goal, `MaxEnt` has its own idea of where trips end; `DestinationMaxEnt` averages over the ends of the
        forecaster's demonstrations.
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
        """Return where partial trips are going.

        Parameters
        ----------
        partial : Demonstrations, or a list of states
        candidates : (G,), optional
            States. By default those in which the forecaster's demonstrations end.
        prior : (G,) or "model", optional
            Weights of the candidates: by default equal, or for the default candidates how often they were an end.
            "model", for `MaxEnt`: how often it ends there itself, given the start.
        history : Demonstrations, optional
        """
        demos, _ = self._partials(partial, None)
        own = isinstance(prior, str)
        if own and (prior != "model" or not isinstance(self._trips, FreeEnds)):
            raise InvalidParameter(
                f"prior must be weights of the candidates, or 'model' with MaxEnt; it is {prior!r}.", parameter="prior"
            )
        if candidates is None:
            ends = self._open_ends()
            if ends is None:
                raise InvalidParameter(
                    "There are no demonstrations with open ends, which would be the candidates. Pass candidates=, or "
                    "make the forecaster with demos=.",
                    parameter="candidates",
                )
            places, weights = ends
        else:
            places = np.unique(validate.states(candidates, "candidates", self.mdp, self._world.closed))
            if places.size != np.size(candidates):
                raise InvalidParameter("candidates must name each state once.", parameter="candidates")
            places = validate.states(candidates, "candidates", self.mdp)
            weights = np.full(places.size, 1.0 / places.size)
        if prior is not None and not own:
            weights = validate.prior(prior, places.size)
        return destinations(self._trips, self._prior(demos, history), demos, places, None if own else weights)

    def route(self, start: int, goal: int, history: Demonstrations | None = None, *, partial: Any = None) -> Route:
        """Return, of the intents' likeliest routes, the one that is most probable under the whole mixture.

        `routes` looks at more, and may put another first that is no intent's likeliest. Rewards are searched without
        discount. `partial` is as in `routes`.
        """
        scores, g = self._scores(start, goal, history, partial)
        return likeliest_route(scores, g)

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
        """Return the k most probable routes under the mixture that pass no state twice; see `best_routes`.

        Parameters
        ----------
        start, goal : int
        k : int
        history : Demonstrations, optional
            The driver's earlier trips.
        most : int
            Routes to look at before giving up on certainty; `Route.exact` says which are certain.
        partial : Demonstrations, or a list of states, optional
            One trip that is going on and has come to `start`. Routes are then how it goes on, and intents count by how
            well they explain what was driven, on the way to `goal`.
        """
        scores, g = self._scores(start, goal, history, partial)
        return best_routes(scores, g, check_count(k, "k"), check_count(most, "most"))

    def predicted_routes(
        self, starts: ArrayLike, goals: ArrayLike, intents: ArrayLike | None = None, *, threads: int | None = None
    ) -> Demonstrations:
        """Return `route` for each pair of states, fast: states and actions, and as label the intent that fits best.

        Parameters
        ----------
        starts, goals : (n,)
        intents : (K,) or (n, K), optional
            Probabilities of the intents of those who drive; the shares by default. A row with a single 1 asks for the
            likeliest route of that intent.
        threads : int, optional
            By default one for each core.
        """
        first, last = validate.pairs(starts, goals, self.mdp)
        for states, name in ((first, "starts"), (last, "goals")):
            validate.states(states, name, self.mdp, self._world.closed)
        validate.beginnings(first, self._trips.mdp, self._world.closed)
        given = validate.shares(self.shares if intents is None else intents, first.size, self.shares.size)
        demos, intent, _ = routes.predicted_routes(self._trips, self._costs, log(given), first, last, threads=threads)
        return demos.replace(labels=intent)

    def flows(
        self,
        starts: ArrayLike | None = None,
        goals: ArrayLike | None = None,
        weights: ArrayLike | None = None,
        *,
        n_trips: float = 1.0,
    ) -> Flows:
        """Return the expected uses of links by trips between pairs of states, or by trips as `MaxEnt` has them.

        Parameters
        ----------
        starts, goals : (n,), optional
            One of either goes with all of the other. Neither: trips that begin and end as the model says.
        weights : (n,), optional
            Trips of each pair; 1 by default.
        n_trips : float
            Trips in all where there are no pairs.
        """
        if starts is None and goals is None:
            return own_flows(self._trips, self.shares, check_positive(n_trips, "n_trips"))
        if starts is None or goals is None:
            raise InvalidParameter(
                "flows needs both starts and goals, or neither.", parameter="starts" if starts is None else "goals"
            )
        first, last = validate.pairs(starts, goals, self.mdp)
        validate.beginnings(first, self._trips.mdp, self._world.closed)
        return flows(
            self._trips, log(self.shares), first, last, validate.weights(weights, first.size), self._world.closed
        )

    def __repr__(self) -> str:
        changed = "" if self.mdp is self.mixture.mdp_ else ", changed"
        kind = "destination-conditioned" if isinstance(self._trips, GivenEnds) else "unconditioned"
        return f"Forecaster: {self.shares.size} intents, {kind}, {self.mdp.n_states} states{changed}"

    def _begin(self, mdp: MDP) -> FreeEnds | GivenEnds:
        model = self.mixture.irl_
        if isinstance(model, MaxEnt):
            return FreeEnds(model, mdp, self.thetas, self._first)
        if callable(getattr(model, "log_value", None)) and callable(getattr(model, "expected_flow", None)):
            return GivenEnds(model, mdp, self.thetas, self._open_ends())
        raise InvalidParameter(
            f"A forecaster needs a mixture over MaxEnt or DestinationMaxEnt; this one is over {type(model).__name__}.",
            parameter="mixture",
        )

    def _in(self, world: ScenarioWorld) -> Forecaster:
        """Return a forecaster for a changed world."""
        found = copy.copy(self)
        found.__dict__.pop("_costs", None)
        found._world = world
        found._trips = found._begin(world.mdp)
        return found

    @cached_property
    def _costs(self) -> Costs:
        return Costs(self._trips.mdp, self.thetas)

    def _prior(self, demos: Demonstrations, history: Demonstrations | None) -> FloatArray:
        """Return the log-prior (N, K) of intents; earlier trips were made in the mixture's own world."""
        given = None if history is None else validate.history(history)
        return log_prior(self.shares, self.mixture.irl_, self.mixture.mdp_, self.thetas, demos, given)

    def _partials(self, partial: Any, goal: ArrayLike | None) -> tuple[Demonstrations, IntArray | None]:
        demos = validate.partials(partial)
        validate.open_trips(demos, self._world.closed)
        demos.steps(self._trips.mdp)
        return demos, None if goal is None else validate.goals_of(goal, len(demos), self.mdp, self._world.closed)

    def _scores(self, start: int, goal: int, history: Demonstrations | None, partial: Any = None) -> tuple[Scores, int]:
        """Return what says how likely a route from start to goal is, after a partial trip where there is one."""
        s = validate.one_state(start, "start", self.mdp, self._world.closed)
        g = validate.one_state(goal, "goal", self.mdp, self._world.closed)
        begun = alone(np.array([s])) if partial is None else self._partials(partial, None)[0]
        if len(begun) != 1 or begun.last_states[0] != s:
            raise InvalidParameter(
                f"partial must be one trip that has come to start = {s}; there are {len(begun)}, and the first has "
                f"come to state {begun.last_states[0]}. Pass its last state as start.",
                parameter="partial",
            )
        validate.beginnings(begun.start_states, self._trips.mdp, self._world.closed)
        return Scores(self._trips, self._costs, self._prior(begun, history)[0], s, g, begun), g

    def _open_ends(self) -> Ends | None:
        """Return the ends of demonstrations that are not closed; None where there are none."""
        if self._ends is None or np.all(self._world.closed[self._ends.states]):
            return None
        kept = ~self._world.closed[self._ends.states]
        return Ends(self._ends.states[kept], self._ends.prior[kept] / self._ends.prior[kept].sum())


def _ends_of(demos: Demonstrations) -> Ends | None:
    """Return the states in which demonstrations end, with their frequencies; None where there are none."""
    if len(demos) == 0:
        return None
    states, counts = np.unique(demos.last_states, return_counts=True)
    return Ends(states, counts / counts.sum())
