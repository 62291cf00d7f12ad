"""Trip probabilities under the models of a forecast: `MaxEntTrips`, `DestinationTrips`, and `condition_on_ends`."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.csgraph import dijkstra
from sklearn.base import clone

from limiirl._typing import FloatArray, IntArray
from limiirl.demos import Demonstrations
from limiirl.errors import InvalidDemos, InvalidParameter
from limiirl.forecast.partial_trips import NextEdges, concatenate, extend, one_state_trips, outgoing_edges
from limiirl.forecast.validate import log
from limiirl.irl import (
    ConditionalGoalValues,
    DestinationMaxEnt,
    GoalPathSums,
    GoalValues,
    MaxEnt,
    ObservedPaths,
    group_conditions,
    make_goal_values,
    prefix_continuations,
)
from limiirl.irl import validate as irl_checks
from limiirl.mdp import MDP, RewardEnsemble
from limiirl.mixture import IntentMixture

# Maximum number of state-goal pairs per batch.
_BATCH = 2**21


class Ends(NamedTuple):
    """Candidate destinations (G,) and their prior (G,)."""

    states: IntArray
    prior: FloatArray


class DestinationTrips:
    """Trip probabilities of K intents of `DestinationMaxEnt`, with the methods of `MaxEntTrips`.

    A trip ends at the first arrival at its destination. Without a destination, results are averaged over `ends`.
    """

    def __init__(self, model: Any, mdp: MDP, thetas: FloatArray, ends: Ends | None) -> None:
        # p0 is irrelevant, because the model is conditioned on the start.
        uniform = np.full(mdp.n_states, 1.0 / mdp.n_states)
        self.mdp = mdp.replace(p0=uniform) if np.any(mdp.p0 == 0.0) else mdp
        self.model, self.thetas, self.ends = model, thetas, ends
        general = self.mdp.without_goal_features
        r_state, r_edge = general.rewards(thetas[:, : general.n_features])
        self._reward = r_state
        # Otherwise, the negative rewards are the costs of route searches.
        rewards = (r_state,) if r_edge is None else (r_state, r_edge)
        self.needs_policy = bool(self.mdp.goal_features) or any(np.any(part > 0.0) for part in rewards)
        self._log_edge = log(self.mdp.prob)[:, None] + r_state[self.mdp.dst] + (0.0 if r_edge is None else r_edge)

    def with_ends(self, ends: Ends | None) -> DestinationTrips:
        """Return a copy with other candidate destinations; the copy shares the path sums."""
        if not self.mdp.goal_features:
            assert self._path_sums  # compute and cache the path sums before copying
        other = copy.copy(self)
        other.ends = ends
        return other

    def log_prob_prefix(self, demos: Demonstrations, goals: IntArray | None = None) -> FloatArray:
        """Return the log-probability (N, K) of each prefix, given its first state and the goals (N,)."""
        if goals is not None:
            log_prob: FloatArray = self.model.log_prob_prefix(self.mdp, self.thetas, demos, goals)
            return log_prob
        ends = self._require_ends()
        each = self.log_prob_prefix_by_goal(demos, ends.states)
        return np.asarray(np.logaddexp.reduce(each + log(ends.prior)[:, None], axis=1))

    def log_prob_prefix_by_goal(self, demos: Demonstrations, candidates: IntArray) -> FloatArray:
        """Return `log_prob_prefix` (N, G, K) for each candidate goal (G,)."""
        if self.mdp.goal_features:
            each = [self.log_prob_prefix(demos, np.full(len(demos), goal)) for goal in candidates]
            return np.stack(each, axis=1)
        log_weight = ObservedPaths.from_demos(self.mdp, demos, by_start=True).log_weight(self.thetas)
        log_weight -= self._reward[demos.start_states]
        rest, whole = (
            self._log_beta_table(demos.last_states, candidates),
            self._log_beta_table(demos.start_states, candidates),
        )
        log_prob = _log_ratio(log_weight[:, None] + rest, whole)
        for j, goal in enumerate(candidates):
            log_prob[_find_earlier_visits(demos, goal), j] = -np.inf
        return log_prob

    def next_edges(self, demos: Demonstrations, goals: IntArray | None = None) -> NextEdges:
        """Return the continuations of prefixes towards goals (N,) or, without goals, their average over `ends`."""
        if goals is None:
            ends = self._require_ends()
            candidates = ends.states
            log_joint = self.log_prob_prefix_by_goal(demos, candidates) + log(ends.prior)[:, None]
            goal_prob = np.exp(_log_ratio(log_joint, np.logaddexp.reduce(log_joint, axis=1)[:, None]))
        else:
            candidates, which = np.unique(goals, return_inverse=True)
            goal_prob = np.zeros((len(demos), candidates.size, len(self.thetas)))
            goal_prob[np.arange(len(demos)), which] = self.log_prob_prefix(demos, goals) > -np.inf
        last = demos.last_states
        here = last[:, None] == candidates
        stop = np.sum(np.where(here[:, :, None], goal_prob, 0.0), axis=1)
        goal_prob[here] = 0.0
        edge, offsets = outgoing_edges(self.mdp, demos, np.ones(len(demos), dtype=bool))
        owner = np.repeat(np.arange(len(demos)), np.diff(offsets))
        probability = np.zeros((edge.size, len(self.thetas)))
        if self.mdp.goal_features:
            for j, goal in enumerate(candidates.tolist()):
                for rows, start, _ in group_conditions(self.mdp, demos.start_states, np.full(len(demos), goal)):
                    mine = np.isin(owner, rows)
                    for k, sums in enumerate(self.solve_at(start, goal)):
                        probability[mine, k] += goal_prob[owner[mine], j, k] * sums.policy_to(goal)[edge[mine]]
            return NextEdges(edge, offsets, probability, stop)
        for part in _batches(candidates.size, edge.size):
            heads = self._log_beta_table(self.mdp.dst[edge].astype(np.int64), candidates[part])
            whole = self._log_beta_table(last, candidates[part])[owner]
            log_prob = _log_ratio(self._log_edge[edge][:, None] + heads, whole)
            probability += np.sum(goal_prob[owner, part] * np.exp(log_prob), axis=1)
        return NextEdges(edge, offsets, probability, stop)

    def log_scale(self, starts: IntArray, goals: IntArray) -> FloatArray:
        """Return the log normalising constants (n, K): log p(trip) minus the unnormalised log-weight of the trip."""
        log_beta = self._log_beta(starts, goals)
        return np.where(log_beta > -np.inf, -log_beta - self._reward[starts], -np.inf)

    def flow(self, k: int, starts: IntArray, goals: IntArray, weights: FloatArray) -> FloatArray:
        """Return the expected edge counts (E,) of trips of intent k between connected pairs (n,)."""
        rows = np.flatnonzero(weights > 0.0)
        if rows.size == 0:
            return np.zeros(self.mdp.n_edges)
        theta = self.thetas[k]
        return np.asarray(self.model.expected_flow(self.mdp, theta, starts[rows], goals[rows], weights[rows]))

    def own_flow(self, k: int) -> tuple[FloatArray, FloatArray]:
        """Raise `InvalidParameter`, because the model is conditioned on start and destination."""
        del k
        raise InvalidParameter("starts and goals must be given for DestinationMaxEnt.", parameter="starts")

    def _log_beta(self, states: IntArray, goals: IntArray) -> FloatArray:
        """Return log beta_g(s) (m, K) for pairs (m,) of a state and a goal; -inf if the goal is unreachable."""
        if self.mdp.goal_features:
            return np.stack([self._conditional.pair_sums(t, states, goals).log_value for t in self.thetas], axis=1)
        return np.stack([sums.pair_sums(states, goals).log_value for sums in self._path_sums], axis=1)

    def solve_at(self, start: int | None, goal: int) -> list[GoalPathSums]:
        """Return the path sums of each intent for trips from `start` to `goal`; only goal features depend on them."""
        if not self.mdp.goal_features:
            return self._path_sums
        return [self._conditional.solve_at(theta, start, goal) for theta in self.thetas]

    @cached_property
    def _conditional(self) -> ConditionalGoalValues:
        none = np.empty(0, dtype=np.int64)
        return ConditionalGoalValues(self.mdp, none, none)

    @cached_property
    def _path_sums(self) -> list[GoalPathSums]:
        return [make_goal_values(self.mdp).solve_cached(theta) for theta in self.thetas]

    def _log_beta_table(self, states: IntArray, goals: IntArray) -> FloatArray:
        """Return log beta_g(s) (n, G, K) for all combinations of states (n,) and goals (G,)."""
        distinct, which = np.unique(states, return_inverse=True)
        log_beta = self._log_beta(np.repeat(distinct, goals.size), np.tile(goals, distinct.size))
        return np.asarray(log_beta.reshape(distinct.size, goals.size, len(self.thetas))[which])

    def _require_ends(self) -> Ends:
        if self.ends is None:
            message = (
                "DestinationMaxEnt requires goal, or candidate goals. Create the forecaster with demos=..., whose last "
                "states are the candidate goals."
            )
            raise InvalidParameter(message, parameter="goal")
        return self.ends


def _find_earlier_visits(demos: Demonstrations, goal: int) -> NDArray[np.bool_]:
    """Return the mask (N,) of trips that visit the goal before their last state."""
    there = demos.states == goal
    there[demos.offsets[1:] - 1] = False
    return np.add.reduceat(there, demos.offsets[:-1]) > 0


def _log_ratio(log_part: FloatArray, log_whole: FloatArray, undefined: float = -np.inf) -> FloatArray:
    """Return log(part / whole) from logarithms, or `undefined` where the whole is 0."""
    possible = log_whole > -np.inf
    return np.where(possible, log_part - np.where(possible, log_whole, 0.0), undefined)


def _batches(n: int, size: int) -> Iterator[slice]:
    step = max(1, _BATCH // max(1, size))
    return (slice(first, min(first + step, n)) for first in range(0, n, step))


class GoalMDP:
    """MDP with an additional absorbing end state, and the MaxEnt model of trips that end in one of the goals (G,)."""

    def __init__(self, model: MaxEnt, mdp: MDP, max_length: float, goals: IntArray) -> None:
        self._model, self._base, self._max_length, self._goals = model, mdp, max_length, goals
        n, ends = mdp.n_states, np.zeros(mdp.n_states, dtype=bool)
        ends[goals] = True
        # Terminal states that are not goals have a self-loop, so that no trip ends there.
        stuck = np.flatnonzero(mdp.terminal & ~ends)
        free = np.full(n, -1, dtype=np.int64)
        np.maximum.at(free, mdp.src, mdp.act)
        extra_src = np.concatenate([goals, stuck])
        extra_dst = np.concatenate([np.full(goals.size, n), stuck])
        by_edge = None if mdp.action_features is None else mdp.action_features[mdp.pair_of_edge]
        self.mdp = MDP.from_edges(
            np.concatenate([mdp.src, extra_src]),
            np.concatenate([mdp.dst, extra_dst]),
            n_states=n + 1,
            action=np.concatenate([mdp.act, free[extra_src] + 1]),
            prob=np.concatenate([mdp.prob, np.ones(extra_src.size)]),
            p0=np.append(mdp.p0, 0.0),
            gamma=mdp.gamma,
            state_features=_pad(mdp.state_features, 1),
            action_features=_pad(by_edge, extra_src.size),
            edge_features=_pad(mdp.edge_features, extra_src.size),
            terminal=[n],
        )

    @property
    def end(self) -> int:
        """Index of the end state."""
        return self._base.n_states

    @cached_property
    def edges(self) -> IntArray:
        """Indices (E,) of the original edges in this MDP."""
        new = (self.mdp.dst == self.end) | np.append(self._base.terminal, False)[self.mdp.src]
        return np.flatnonzero(~new)

    @cached_property
    def last_edges(self) -> IntArray:
        """Edges (G,) from the goals to the end state."""
        edge_from = np.full(self.mdp.n_states, -1, dtype=np.int64)
        into = np.flatnonzero(self.mdp.dst == self.end)
        edge_from[self.mdp.src[into]] = into
        return edge_from[self._goals]

    def model(self, *, by_start: bool = False, after: int = 0) -> MaxEnt:
        """Return the model of trips to the goals; if `after` > 0, only of the part after `after` steps."""
        longest = math.inf if self._max_length == math.inf else int(self._max_length) - after + 1
        model: MaxEnt = clone(self._model)
        model.set_params(max_length=longest, stop="terminal", condition="start" if by_start else "none")
        return model

    def log_weight(self, thetas: FloatArray, demos: Demonstrations) -> FloatArray:
        """Return the log total weight (N, K), including p0, of trips that begin with each prefix and end in a goal."""
        rest = prefix_continuations(self.model().path_sums(self.mdp), thetas, demos)
        return np.asarray(
            ObservedPaths.from_demos(self.mdp, demos).log_weight(thetas) + rest.log_total() + rest.log_factor
        )

    def with_starts(self, p0: FloatArray) -> MDP:
        """Return the MDP with another start distribution (S,)."""
        return self.mdp.replace(p0=np.append(p0, 0.0))


def _pad(matrix: Any, n: int) -> Any:
    if matrix is None:
        return None
    empty = (n, matrix.shape[1])
    if sparse.issparse(matrix):
        both: list[Any] = [matrix, sparse.csr_array(empty)]
        return sparse.vstack(both).tocsr()
    return np.vstack([matrix, np.zeros(empty)])


class MaxEntTrips:
    """Probabilities of whole and partial trips under K intents of `MaxEnt`, with or without a known destination.

    Parameters
    ----------
    model : MaxEnt
    mdp : MDP
    thetas : (K, d)
    before : MaxEntTrips, optional
        Model before a change of the MDP. If given, it determines the probability of each pair of start and goal, so
        that a closure changes the routes but not the destinations.
    """

    def __init__(self, model: MaxEnt, mdp: MDP, thetas: FloatArray, before: MaxEntTrips | None = None) -> None:
        if model.stop == "terminal_or_max_length":
            raise InvalidParameter(
                "The model of mixture must have stop='anywhere' or stop='terminal'; got 'terminal_or_max_length'.",
                parameter="mixture",
                value="terminal_or_max_length",
            )
        self.model, self.mdp, self.thetas, self.before = model, mdp, thetas, before
        self.max_length = irl_checks.max_length(model.max_length)
        self._joint: MaxEnt = clone(model).set_params(max_length=self.max_length, condition="none")
        self._last_goal: tuple[int, GoalMDP] | None = None

    def log_prob_prefix(self, demos: Demonstrations, goals: IntArray | None = None) -> FloatArray:
        """Return the log-probability (N, K) that a trip begins with each prefix and, if goals are given, ends there.

        With condition="start", the probability is conditional on the first state.
        """
        self._check(demos)
        log_prob = self._log_prob_prefix(demos, goals)
        return log_prob if self.before is None else log_prob + self._demand_shift(demos.start_states, goals)

    def _log_prob_prefix(self, demos: Demonstrations, goals: IntArray | None) -> FloatArray:
        """Return `log_prob_prefix` without the correction by `_demand_shift`."""
        if goals is None:
            log_prob: FloatArray = self.model.log_prob_prefix(self.mdp, self.thetas, demos)
            return log_prob
        log_prob = np.full((len(demos), len(self.thetas)), -np.inf)
        for goal in np.unique(goals):
            rows = self._can_reach(demos, goals, int(goal))
            if rows.size:
                log_prob[rows] = self._goal_mdp(int(goal)).log_weight(self.thetas, demos[rows])
        return log_prob - self._log_total(demos.start_states)

    def log_prob_prefix_by_goal(self, demos: Demonstrations, candidates: IntArray) -> FloatArray:
        """Return `log_prob_prefix` (N, G, K) for each candidate goal (G,), with one backward pass per last state."""
        self._check(demos)
        log_prob = self._log_prob_prefix_by_goal(demos, candidates)
        if self.before is None:
            return log_prob
        starts = one_state_trips(demos.start_states)
        old, new = (
            self.before.log_prob_prefix_by_goal(starts, candidates),
            self._log_prob_prefix_by_goal(starts, candidates),
        )
        return log_prob + _log_ratio(old, new, undefined=0.0)

    def _log_prob_prefix_by_goal(self, demos: Demonstrations, candidates: IntArray) -> FloatArray:
        """Return `log_prob_prefix_by_goal` without the correction by `_demand_shift`."""
        log_prob = np.full((len(demos), candidates.size, len(self.thetas)), -np.inf)
        log_p = self._log_prob_prefix(demos, None)
        may_end = np.arange(self.mdp.n_states) if self.model.stop == "anywhere" else np.flatnonzero(self.mdp.terminal)
        goal_mdp = GoalMDP(self.model, self.mdp, self.max_length, may_end)
        edge = np.full(self.mdp.n_states, -1, dtype=np.int64)
        edge[may_end] = goal_mdp.last_edges
        ends_of_prefixes = np.stack([demos.last_states, demos.lengths - 1])
        distinct, which = np.unique(ends_of_prefixes, axis=1, return_inverse=True)
        for j, (state, step) in enumerate(distinct.T.tolist()):
            only = np.zeros(self.mdp.n_states)
            only[state] = 1.0
            # After `step` steps, the rest of a trip has the rewards of a new trip, discounted by gamma^step.
            thetas = self.mdp.gamma**step * self.thetas
            counts = goal_mdp.model(after=step).edge_marginals(goal_mdp.with_starts(only), thetas)
            ends = np.where(edge[candidates] >= 0, counts[:, edge[candidates]], 0.0)
            rows = np.flatnonzero(which.ravel() == j)
            log_prob[rows] = log_p[rows, None, :] + log(ends).T
        return log_prob

    def next_edges(self, demos: Demonstrations, goals: IntArray | None = None) -> NextEdges:
        """Return the continuations of prefixes; towards goals (N,), if given."""
        self._check(demos)
        edge, offsets = outgoing_edges(self.mdp, demos, demos.lengths < self.max_length)
        owner = np.repeat(np.arange(len(demos)), np.diff(offsets))
        probability, stop = np.zeros((edge.size, len(self.thetas))), np.zeros((len(demos), len(self.thetas)))
        if goals is None:
            longer = extend(self.mdp, demos, owner, edge)
            both = self.model.log_prob_prefix(self.mdp, self.thetas, concatenate([demos, longer]))
            log_p, probability = both[: len(demos)], _ratio(both[len(demos) :], both[: len(demos)][owner])
            total = np.zeros_like(stop)
            np.add.at(total, owner, probability)
            return NextEdges(edge, offsets, probability, np.where(log_p > -np.inf, np.maximum(0.0, 1.0 - total), 0.0))
        for goal in np.unique(goals):
            rows = self._can_reach(demos, goals, int(goal))
            if rows.size == 0:
                continue
            goal_mdp = self._goal_mdp(int(goal))
            some = np.flatnonzero(np.isin(owner, rows))
            done = rows[demos.last_states[rows] == goal]
            longer = extend(goal_mdp.mdp, demos, owner[some], goal_mdp.edges[edge[some]])
            ended = extend(goal_mdp.mdp, demos, done, np.repeat(goal_mdp.last_edges, done.size))
            # One backward pass evaluates all prefixes.
            log_weight = goal_mdp.log_weight(self.thetas, concatenate([demos[rows], longer, ended]))
            log_p = np.full(stop.shape, -np.inf)
            log_p[rows] = log_weight[: rows.size]
            probability[some] = _ratio(log_weight[rows.size : rows.size + some.size], log_p[owner[some]])
            stop[done] = _ratio(log_weight[rows.size + some.size :], log_p[done])
        return NextEdges(edge, offsets, probability, stop)

    def log_scale(self, starts: IntArray, goals: IntArray) -> FloatArray:
        """Return the log normalising constants (n, K): log p(trip) minus the unnormalised log-weight of the trip."""
        log_scale = np.asarray(log(self.mdp.p0[starts])[:, None] - self._log_total(starts))
        return log_scale if self.before is None else log_scale + self._demand_shift(starts, goals)

    def flow(self, k: int, starts: IntArray, goals: IntArray, weights: FloatArray) -> FloatArray:
        """Return the expected edge counts (E,) of trips of intent k between connected pairs (n,)."""
        flow = np.zeros(self.mdp.n_edges)
        for goal in np.unique(goals):
            rows = np.flatnonzero((goals == goal) & (weights > 0.0))
            if rows.size:
                goal_mdp = self._goal_mdp(int(goal))
                p0 = np.bincount(starts[rows], weights=weights[rows], minlength=self.mdp.n_states)
                mdp = goal_mdp.with_starts(p0 / p0.sum())
                counts = goal_mdp.model(by_start=True).edge_marginals(mdp, self.thetas[k])[0]
                flow += p0.sum() * counts[goal_mdp.edges]
        return flow

    def own_flow(self, k: int) -> tuple[FloatArray, FloatArray]:
        """Return the expected counts of edges (E,) and states (S,) in one trip of intent k."""
        theta = self.thetas[k]
        return self.model.edge_marginals(self.mdp, theta)[0], self.model.state_marginals(self.mdp, theta)[0]

    def _demand_shift(self, starts: IntArray, goals: IntArray | None) -> FloatArray:
        """Return the log-probabilities (n, K) of pairs of start and goal under `before` minus those of this model."""
        assert self.before is not None
        pairs = starts[None] if goals is None else np.stack([starts, goals])
        distinct, which = np.unique(pairs, axis=1, return_inverse=True)
        trips, last = one_state_trips(distinct[0]), None if goals is None else distinct[1]
        old, new = self.before.log_prob_prefix(trips, last), self._log_prob_prefix(trips, last)
        return _log_ratio(old, new, undefined=0.0)[which.ravel()]

    def _check(self, demos: Demonstrations) -> None:
        irl_checks.check_trajectories(self.mdp, demos, "anywhere", self.max_length)

    def _goal_mdp(self, goal: int) -> GoalMDP:
        """Return the MDP of trips to a goal; the most recent MDP is cached."""
        if self._last_goal is None or self._last_goal[0] != goal:
            self._last_goal = (goal, GoalMDP(self.model, self.mdp, self.max_length, np.array([goal])))
        return self._last_goal[1]

    def _log_total(self, starts: IntArray) -> FloatArray:
        """Return the log total weight (n, K) of all trips or, if condition="start", of the trips from each start."""
        if self.model.condition == "none":
            return np.broadcast_to(self._log_Z, (starts.size, self._log_Z.size))
        first, which = np.unique(starts, return_inverse=True)
        by_start = self._joint.log_prob_prefix(self.mdp, self.thetas, one_state_trips(first)) + self._log_Z
        return np.asarray(by_start[which.ravel()])

    @cached_property
    def _log_Z(self) -> FloatArray:
        return self._joint.log_partition(self.mdp, self.thetas)

    def _can_reach(self, demos: Demonstrations, goals: IntArray, goal: int) -> IntArray:
        """Return the indices of the trips with this goal that can reach it within max_length."""
        if self.model.stop != "anywhere" and not self.mdp.terminal[goal]:
            return np.empty(0, dtype=np.int64)
        distance = np.asarray(dijkstra(self._reversed_graph, indices=[goal], unweighted=True))[0, demos.last_states]
        reachable = (distance < np.inf) & (demos.lengths + distance <= self.max_length)
        return np.flatnonzero((goals == goal) & reachable)

    @cached_property
    def _reversed_graph(self) -> Any:
        n = self.mdp.n_states
        return sparse.csr_array((np.ones(self.mdp.n_edges), (self.mdp.dst, self.mdp.src)), shape=(n, n))


def _ratio(log_part: FloatArray, log_whole: FloatArray) -> FloatArray:
    """Return part / whole from logarithms, or 0 where the whole is 0."""
    return np.asarray(np.exp(_log_ratio(log_part, log_whole)))


# Number of trips that determine the rewards per state of `condition_on_ends`, range of these rewards, and number of
# bisection steps.
_CALIBRATION, _STEP_RANGE, _BISECTIONS = 500, (-20.0, 10.0), 22


def condition_on_ends(mixture: IntentMixture, demos: Demonstrations) -> IntentMixture:
    """Return a mixture of `DestinationMaxEnt` with the rewards of a mixture of `MaxEnt`, for trips with given ends.

    `MaxEnt` sums over all paths of at most `max_length` states. If long paths dominate this sum, a typical path between
    two states contains many cycles, and each pair of states requires its own forward pass. The returned mixture sums
    over paths of unbounded length instead. A constant reward per state is added to each intent, chosen such that the
    expected length of trips between the observed starts and destinations equals the observed length.

    Parameters
    ----------
    mixture : IntentMixture
        Fitted mixture of `MaxEnt`; its discount is ignored.
    demos : Demonstrations
        Trips from which the constants are computed; a random sample of 500 is used.

    Examples
    --------
    >>> mdp = MDP.from_edges([0, 0, 1, 1, 2], [1, 2, 2, 0, 0], state_features=[[0.0], [1.0], [0.0]])
    >>> demos = Demonstrations.from_lists([[0, 1, 2], [0, 2], [0, 2], [0, 2]])
    >>> mix = IntentMixture(1, MaxEnt(max_length=4, bounds=(-5, 5)), random_state=0).fit(mdp, demos)
    >>> condition_on_ends(mix, demos).mdp_.feature_names
    ('state[0]', 'every state')
    """
    usable = demos.renumber(mixture.mdp_)
    usable = usable[DestinationMaxEnt().admits(usable) & (usable.lengths > 1)]
    if not len(usable):
        message = "demos must have trips of at least two states that visit their last state once."
        raise InvalidDemos(message, parameter="demos")
    rng = np.random.default_rng(0)
    sample = usable[np.sort(rng.permutation(len(usable))[:_CALIBRATION])]
    short = sample.lengths <= irl_checks.max_length(mixture.irl_.max_length)
    U = np.tile(mixture.weights_, (len(sample), 1))
    if np.any(short):
        U[short] = mixture.predict_proba(sample[np.flatnonzero(short)])
    mdp = _with_constant(mixture.mdp_)
    thetas = np.insert(mixture.thetas_, mixture.mdp_.n_state_features, 0.0, axis=1)
    values, at = GoalValues(mdp), mdp.n_state_features - 1
    for theta, u in zip(thetas, U.T, strict=True):
        weights = u if u.sum() > 1e-6 else np.ones(len(sample))
        theta[at] = _match_length(values, theta, at, sample, weights)
    ensemble = RewardEnsemble(mixture.weights_, thetas)
    return IntentMixture(len(thetas), DestinationMaxEnt(bounds=None), init=ensemble, max_iter=0).fit(mdp, sample)


def _with_constant(mdp: MDP) -> MDP:
    """Return the MDP at discount 1 with a further state feature, which is 1 everywhere."""
    one: Any = np.ones((mdp.n_states, 1))
    own, n = mdp.state_features, mdp.n_state_features
    if own is None:
        features = one
    elif isinstance(own, np.ndarray):
        features = np.hstack([own, one])
    else:
        features = sparse.hstack([own, sparse.csr_array(one)], format="csr")
    names = (*mdp.feature_names[:n], "every state", *mdp.feature_names[n:])
    return mdp.replace(state_features=features, feature_names=names, gamma=1.0)


def _match_length(values: GoalValues, theta: FloatArray, at: int, demos: Demonstrations, u: FloatArray) -> float:
    """Return the theta[at] for which the expected number of transitions per trip equals the observed number."""
    starts, goals, observed = demos.start_states, demos.last_states, float(u @ (demos.lengths - 1))
    low, high = _STEP_RANGE
    for _ in range(_BISECTIONS):  # the number increases, up to infinity where cycles have weight 1
        theta[at] = 0.5 * (low + high)
        total, gradient = values.sum_pairs(theta[None], starts, goals, u[:, None])
        if np.isfinite(total[0]) and gradient[0, at] <= observed:
            low = theta[at]
        else:
            high = theta[at]
    return low
