"""`FreeEnds`: trips of the unconditioned model, `MaxEnt`, which also says where they begin and end.

`GivenEnds`: trips of `DestinationMaxEnt`, which says how they go, given the first state and the destination.

`Endings`: an MDP in which trips end in chosen states alone, made so that `MaxEnt` itself sums over them.
"""

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
from limiirl.errors import InvalidParameter
from limiirl.forecast.prefixes import NextEdges, alone, extended, moves, together
from limiirl.forecast.validate import log
from limiirl.irl import GoalPathSums, GoalValues, MaxEnt, ObservedPaths, prefix_continuations
from limiirl.irl import validate as irl_checks
from limiirl.mdp import MDP

# Pairs of a state and a goal that are looked at together.
_AT_ONCE = 2**21


class Ends(NamedTuple):
    """Where trips may be bound for (G,), and the probability of each, before anything is known of a trip."""

    states: IntArray
    prior: FloatArray


class GivenEnds:
    """What K intents of a `DestinationMaxEnt` model say of trips; the methods are those of `FreeEnds`.

    A trip is over where it first reaches its destination. Without a known destination, it is averaged over `ends`.

    Parameters
    ----------
    model : DestinationMaxEnt
    mdp : MDP
    thetas : (K, d)
    ends : Ends or None
    """

    def __init__(self, model: Any, mdp: MDP, thetas: FloatArray, ends: Ends | None) -> None:
        # The model is conditioned on the start, so that p0 says nothing: a trip may begin anywhere.
        anywhere = np.full(mdp.n_states, 1.0 / mdp.n_states)
        self.mdp = mdp.replace(p0=anywhere) if np.any(mdp.p0 == 0.0) else mdp
        self.model, self.thetas, self.ends = model, thetas, ends
        r_state, r_edge = self.mdp.rewards(thetas)
        self._reward = r_state
        self._move = log(self.mdp.prob)[:, None] + r_state[self.mdp.dst] + (0.0 if r_edge is None else r_edge)

    def ending_in(self, ends: Ends | None) -> GivenEnds:
        """Return the same with other ends; what was solved is shared."""
        assert self._solved  # before the copy is made
        found = copy.copy(self)
        found.ends = ends
        return found

    def log_begin(self, demos: Demonstrations, goals: IntArray | None = None) -> FloatArray:
        """Return (N, K) the log-probability that a trip from its first state to its goal (N,) begins with each."""
        if goals is not None:
            found: FloatArray = self.model.log_prob_prefix(self.mdp, self.thetas, demos, goals)
            return found
        ends = self._known_ends()
        each = self.log_begin_each(demos, ends.states)
        return np.asarray(np.logaddexp.reduce(each + log(ends.prior)[:, None], axis=1))

    def log_begin_each(self, demos: Demonstrations, candidates: IntArray) -> FloatArray:
        """Return (N, G, K) `log_begin` with each of the candidates (G,) as the goal."""
        log_weight = ObservedPaths(self.mdp, demos, by_start=True).log_weight(self.thetas)
        log_weight -= self._reward[demos.start_states]
        ahead, whole = self._value(demos.last_states, candidates), self._value(demos.start_states, candidates)
        found = _part(log_weight[:, None] + ahead, whole)
        for j, goal in enumerate(candidates):
            found[_passed(demos, goal), j] = -np.inf
        return found

    def onward(self, demos: Demonstrations, goals: IntArray | None = None) -> NextEdges:
        """Return what comes next after each of `demos`, on its way to its goal (N,), or to any of `ends`."""
        if goals is None:
            ends = self._known_ends()
            candidates = ends.states
            log_joint = self.log_begin_each(demos, candidates) + log(ends.prior)[:, None]
            given = np.exp(_part(log_joint, np.logaddexp.reduce(log_joint, axis=1)[:, None]))
        else:
            candidates, which = np.unique(goals, return_inverse=True)
            given = np.zeros((len(demos), candidates.size, len(self.thetas)))
            given[np.arange(len(demos)), which] = self.log_begin(demos, goals) > -np.inf
        last = demos.last_states
        here = last[:, None] == candidates
        stop = np.sum(np.where(here[:, :, None], given, 0.0), axis=1)
        given[here] = 0.0
        edge, offsets = moves(self.mdp, demos, np.ones(len(demos), dtype=bool))
        owner = np.repeat(np.arange(len(demos)), np.diff(offsets))
        move = np.zeros((edge.size, len(self.thetas)))
        for part in _pieces(candidates.size, edge.size):
            heads = self._value(self.mdp.dst[edge].astype(np.int64), candidates[part])
            log_move = _part(self._move[edge][:, None] + heads, self._value(last, candidates[part])[owner])
            move += np.sum(given[owner, part] * np.exp(log_move), axis=1)
        return NextEdges(edge, offsets, move, stop)

    def log_scale(self, starts: IntArray, goals: IntArray) -> FloatArray:
        """Return (n, K) what the log-weight of a trip, its rewards and outcomes, lacks to its log-probability."""
        log_all = self._values(starts, goals)
        return np.where(log_all > -np.inf, -log_all - self._reward[starts], -np.inf)

    def flow(self, k: int, starts: IntArray, goals: IntArray, weights: FloatArray) -> FloatArray:
        """Return (E,) the expected uses of each edge by trips of intent k between pairs (n,) that are connected."""
        rows = np.flatnonzero(weights > 0.0)
        if rows.size == 0:
            return np.zeros(self.mdp.n_edges)
        theta = self.thetas[k]
        return np.asarray(self.model.expected_flow(self.mdp, theta, starts[rows], goals[rows], weights[rows]))

    def own_flow(self, k: int) -> tuple[FloatArray, FloatArray]:
        """Say that this model has no trips of its own."""
        del k
        raise InvalidParameter(
            "DestinationMaxEnt says how trips reach their destinations, not where trips begin and end. "
            "Pass starts and goals.",
            parameter="starts",
        )

    def _values(self, states: IntArray, goals: IntArray) -> FloatArray:
        """Return (m, K) log beta_g(s) of pairs (m,); -inf where no way leads from s to g."""
        return np.stack([solved.pair_sums(states, goals).log_value for solved in self._solved], axis=1)

    @cached_property
    def _solved(self) -> list[GoalPathSums]:
        """The sums over all ways of each intent."""
        return [GoalValues(self.mdp).cached(theta) for theta in self.thetas]

    def _value(self, states: IntArray, goals: IntArray) -> FloatArray:
        """Return (n, G, K) log beta_g(s) of each of the states (n,) and each of the goals (G,)."""
        distinct, which = np.unique(states, return_inverse=True)
        found = self._values(np.repeat(distinct, goals.size), np.tile(goals, distinct.size))
        return np.asarray(found.reshape(distinct.size, goals.size, len(self.thetas))[which])

    def _known_ends(self) -> Ends:
        if self.ends is None:
            raise InvalidParameter(
                "DestinationMaxEnt needs destinations. Pass goal=, or make the forecaster with demos=: the states in "
                "which they end are the candidates.",
                parameter="goal",
            )
        return self.ends


def _passed(demos: Demonstrations, goal: int) -> NDArray[np.bool_]:
    """Return (N,) whether a trip was at the goal before its last state: it would have ended there."""
    there = demos.states == goal
    there[demos.offsets[1:] - 1] = False
    return np.add.reduceat(there, demos.offsets[:-1]) > 0


def _part(log_part: FloatArray, log_whole: FloatArray) -> FloatArray:
    """Return the logarithm of a part of a whole; -inf where the whole is nothing."""
    possible = log_whole > -np.inf
    return np.where(possible, log_part - np.where(possible, log_whole, 0.0), -np.inf)


def _pieces(n: int, size: int) -> Iterator[slice]:
    """Yield slices of n goals such that pairs with `size` states fit into memory."""
    step = max(1, _AT_ONCE // max(1, size))
    return (slice(first, min(first + step, n)) for first in range(0, n, step))


class Endings:
    """A model and an MDP for trips that end in some states of another MDP.

    Parameters
    ----------
    model : MaxEnt
    mdp : MDP
    max_length : float
        Of the trips, without the added state.
    goals : (G,)
        States in which trips end, each once.

    Attributes
    ----------
    mdp : MDP
        With one state more, the last.

    Examples
    --------
    Of the trips that begin in state 0, two end in state 2.

    >>> mdp = MDP.from_edges([0, 0, 1], [1, 2, 2], p0=[1, 0, 0])
    >>> there = Endings(MaxEnt(3), mdp, 3, np.array([2]))
    >>> np.exp(there.log_mass(np.zeros((1, 3)), Demonstrations.from_lists([[0], [0, 1]]))).ravel()
    array([2., 1.])
    """

    def __init__(self, model: MaxEnt, mdp: MDP, max_length: float, goals: IntArray) -> None:
        self._model, self._base, self._max_length, self._goals = model, mdp, max_length, goals
        n, ends = mdp.n_states, np.zeros(mdp.n_states, dtype=bool)
        ends[goals] = True
        # What was terminal and is no goal any more leads to itself for ever, and so to no end.
        stuck = np.flatnonzero(mdp.terminal & ~ends)
        free = np.full(n, -1, dtype=np.int64)
        np.maximum.at(free, mdp.src, mdp.act)
        extra_src = np.concatenate([goals, stuck])
        extra_dst = np.concatenate([np.full(goals.size, n), stuck])
        self.mdp = MDP.from_edges(
            np.concatenate([mdp.src, extra_src]),
            np.concatenate([mdp.dst, extra_dst]),
            n_states=n + 1,
            action=np.concatenate([mdp.act, free[extra_src] + 1]),
            prob=np.concatenate([mdp.prob, np.ones(extra_src.size)]),
            p0=np.append(mdp.p0, 0.0),
            gamma=mdp.gamma,
            state_features=_padded(mdp.state_features, 1),
            action_features=_padded(_rows(mdp.action_features, mdp.pair_of_edge), extra_src.size),
            edge_features=_padded(mdp.edge_features, extra_src.size),
            terminal=[n],
        )

    @property
    def end(self) -> int:
        """The state that was added."""
        return self._base.n_states

    @cached_property
    def edges(self) -> IntArray:
        """The edges (E,) of this MDP that are those of the other one."""
        new = (self.mdp.dst == self.end) | np.append(self._base.terminal, False)[self.mdp.src]
        return np.flatnonzero(~new)

    @cached_property
    def last_edges(self) -> IntArray:
        """The edge (G,) by which each of the goals is left for the added state, in the order of the goals."""
        found = np.full(self.mdp.n_states, -1, dtype=np.int64)
        into = np.flatnonzero(self.mdp.dst == self.end)
        found[self.mdp.src[into]] = into
        return found[self._goals]

    def model(self, *, by_start: bool = False, after: int = 0) -> MaxEnt:
        """Return the model of trips with these ends, or of what is left of them after some steps."""
        longest = math.inf if self._max_length == math.inf else int(self._max_length) - after + 1
        found: MaxEnt = clone(self._model)
        found.set_params(max_length=longest, stop="terminal", condition="start" if by_start else "none")
        return found

    def log_mass(self, thetas: FloatArray, demos: Demonstrations) -> FloatArray:
        """Return (N, K) the log-weight, p0 included, of all trips with these ends that begin with each of `demos`."""
        ahead = prefix_continuations(self.model()._engine(self.mdp), thetas, demos)
        return np.asarray(ObservedPaths(self.mdp, demos).log_weight(thetas) + ahead.log_total() + ahead.log_factor)

    def beginning_in(self, p0: FloatArray) -> MDP:
        """Return the MDP with another distribution (S,) of starts."""
        return self.mdp.replace(p0=np.append(p0, 0.0))


def _rows(matrix: Any, rows: Any) -> Any:
    """Return rows of a feature matrix, if there is one."""
    return None if matrix is None else matrix[rows]


def _padded(matrix: Any, n: int) -> Any:
    """Return a feature matrix with n more rows of zeros, if there is one."""
    if matrix is None:
        return None
    empty = (n, matrix.shape[1])
    if sparse.issparse(matrix):
        both: list[Any] = [matrix, sparse.csr_array(empty)]
        return sparse.vstack(both).tocsr()
    return np.vstack([matrix, np.zeros(empty)])


class FreeEnds:
    """What K intents of a `MaxEnt` model say of trips, begun or whole, with and without a known end.

    Parameters
    ----------
    model : MaxEnt
    mdp : MDP
    thetas : (K, d)
    before : FreeEnds, optional
        The world as it was. How likely an intent is to go from one state to another is then as it was: a closed link
        changes how people get there, not who wants to. Without that, links that nobody there uses would change it too,
        as the model's probabilities are shares of all trips.

    Examples
    --------
    >>> mdp = MDP.from_edges([0, 0, 1], [1, 2, 2], p0=[1, 0, 0])
    >>> trips = FreeEnds(MaxEnt(3), mdp, np.zeros((1, 3)))
    >>> np.exp(trips.log_begin(Demonstrations.from_lists([[0, 1]]), np.array([2])))  # one of 0, 0-1, 0-2, 0-1-2
    array([[0.25]])
    """

    def __init__(self, model: MaxEnt, mdp: MDP, thetas: FloatArray, before: FreeEnds | None = None) -> None:
        if model.stop == "terminal_or_max_length":
            raise InvalidParameter(
                "A forecaster needs to know where trips may end whatever their length; the model has "
                "stop='terminal_or_max_length'. Use stop='anywhere' or stop='terminal'.",
                parameter="mixture",
                value="terminal_or_max_length",
            )
        self.model, self.mdp, self.thetas, self.before = model, mdp, thetas, before
        given = model.max_length if model.max_length is not None else getattr(model, "max_length_", None)
        self.max_length = irl_checks.max_length(given)
        self._joint: MaxEnt = clone(model).set_params(max_length=self.max_length, condition="none")
        self._ending_in: tuple[int, Endings] | None = None

    def log_begin(self, demos: Demonstrations, goals: IntArray | None = None) -> FloatArray:
        """Return (N, K) the log-probability that a trip begins with each of `demos`, and ends in its goal (N,).

        Where the model is conditioned on the start, it is that given the first state.
        """
        self._check(demos)
        found = self._log_begin(demos, goals)
        return found if self.before is None else found + self._demand(demos.start_states, goals)

    def _log_begin(self, demos: Demonstrations, goals: IntArray | None) -> FloatArray:
        """Return `log_begin` as this world alone has it."""
        if goals is None:
            found: FloatArray = self.model.log_prob_prefix(self.mdp, self.thetas, demos)
            return found
        found = np.full((len(demos), len(self.thetas)), -np.inf)
        for goal in np.unique(goals):
            rows = self._on_their_way(demos, goals, int(goal))
            if rows.size:
                found[rows] = self._endings(int(goal)).log_mass(self.thetas, demos[rows])
        return found - self._log_all(demos.start_states)

    def log_begin_each(self, demos: Demonstrations, candidates: IntArray) -> FloatArray:
        """Return (N, G, K) `log_begin` with each of the candidates (G,) as the goal, in two sweeps a trip."""
        self._check(demos)
        found = self._log_begin_each(demos, candidates)
        if self.before is None:
            return found
        begun = alone(demos.start_states)
        was, now = self.before.log_begin_each(begun, candidates), self._log_begin_each(begun, candidates)
        return found + _difference(was, now)

    def _log_begin_each(self, demos: Demonstrations, candidates: IntArray) -> FloatArray:
        """Return `log_begin_each` as this world alone has it."""
        found = np.full((len(demos), candidates.size, len(self.thetas)), -np.inf)
        log_p = self._log_begin(demos, None)
        may_end = np.arange(self.mdp.n_states) if self.model.stop == "anywhere" else np.flatnonzero(self.mdp.terminal)
        there = Endings(self.model, self.mdp, self.max_length, may_end)
        edge = np.full(self.mdp.n_states, -1, dtype=np.int64)
        edge[may_end] = there.last_edges
        places, which = np.unique(np.stack([demos.last_states, demos.lengths - 1]), axis=1, return_inverse=True)
        for j, (state, step) in enumerate(places.T.tolist()):
            only = np.zeros(self.mdp.n_states)
            only[state] = 1.0
            # What is left of a trip is a trip of its own, with rewards discounted already.
            thetas = self.mdp.gamma**step * self.thetas
            used = there.model(after=step).edge_marginals(there.beginning_in(only), thetas)
            ends = np.where(edge[candidates] >= 0, used[:, edge[candidates]], 0.0)
            rows = np.flatnonzero(which.ravel() == j)
            found[rows] = log_p[rows, None, :] + log(ends).T
        return found

    def onward(self, demos: Demonstrations, goals: IntArray | None = None) -> NextEdges:
        """Return what comes next after each of `demos`, on its way to its goal (N,) where that is known."""
        self._check(demos)
        edge, offsets = moves(self.mdp, demos, demos.lengths < self.max_length)
        owner = np.repeat(np.arange(len(demos)), np.diff(offsets))
        move, stop = np.zeros((edge.size, len(self.thetas))), np.zeros((len(demos), len(self.thetas)))
        if goals is None:
            longer = extended(self.mdp, demos, owner, edge)
            both = self.model.log_prob_prefix(self.mdp, self.thetas, together([demos, longer]))
            log_p, move = both[: len(demos)], _given(both[len(demos) :], both[: len(demos)][owner])
            going = np.zeros_like(stop)
            np.add.at(going, owner, move)
            return NextEdges(edge, offsets, move, np.where(log_p > -np.inf, np.maximum(0.0, 1.0 - going), 0.0))
        for goal in np.unique(goals):
            rows = self._on_their_way(demos, goals, int(goal))
            if rows.size == 0:
                continue
            there = self._endings(int(goal))
            some = np.flatnonzero(np.isin(owner, rows))
            done = rows[demos.last_states[rows] == goal]
            longer = extended(there.mdp, demos, owner[some], there.edges[edge[some]])
            ended = extended(there.mdp, demos, done, np.repeat(there.last_edges, done.size))
            # One sweep for all of them.
            log_mass = there.log_mass(self.thetas, together([demos[rows], longer, ended]))
            log_p = np.full(stop.shape, -np.inf)
            log_p[rows] = log_mass[: rows.size]
            move[some] = _given(log_mass[rows.size : rows.size + some.size], log_p[owner[some]])
            stop[done] = _given(log_mass[rows.size + some.size :], log_p[done])
        return NextEdges(edge, offsets, move, stop)

    def log_scale(self, starts: IntArray, goals: IntArray) -> FloatArray:
        """Return (n, K) what the log-weight of a trip, its rewards and outcomes, lacks to its log-probability."""
        found = np.asarray(log(self.mdp.p0[starts])[:, None] - self._log_all(starts))
        return found if self.before is None else found + self._demand(starts, goals)

    def flow(self, k: int, starts: IntArray, goals: IntArray, weights: FloatArray) -> FloatArray:
        """Return (E,) the expected uses of each edge by trips of intent k between pairs (n,) that are connected."""
        found = np.zeros(self.mdp.n_edges)
        for goal in np.unique(goals):
            rows = np.flatnonzero((goals == goal) & (weights > 0.0))
            if rows.size:
                there = self._endings(int(goal))
                p0 = np.bincount(starts[rows], weights=weights[rows], minlength=self.mdp.n_states)
                begun = there.beginning_in(p0 / p0.sum())
                used = there.model(by_start=True).edge_marginals(begun, self.thetas[k])[0]
                found += p0.sum() * used[there.edges]
        return found

    def own_flow(self, k: int) -> tuple[FloatArray, FloatArray]:
        """Return the expected uses of edges (E,) and visits to states (S,) of one trip of intent k, bound anywhere."""
        theta = self.thetas[k]
        return self.model.edge_marginals(self.mdp, theta)[0], self.model.state_marginals(self.mdp, theta)[0]

    def _demand(self, starts: IntArray, goals: IntArray | None) -> FloatArray:
        """Return (n, K) the change of log-probability that makes going from starts to goals as likely as it was."""
        assert self.before is not None
        pairs = starts[None] if goals is None else np.stack([starts, goals])
        distinct, which = np.unique(pairs, axis=1, return_inverse=True)
        begun, last = alone(distinct[0]), None if goals is None else distinct[1]
        return _difference(self.before.log_begin(begun, last), self._log_begin(begun, last))[which.ravel()]

    def _check(self, demos: Demonstrations) -> None:
        demos.steps(self.mdp)
        irl_checks.lengths(demos, self.max_length)

    def _endings(self, goal: int) -> Endings:
        """Return the MDP of trips that end in a goal; that of the last goal is kept."""
        if self._ending_in is None or self._ending_in[0] != goal:
            self._ending_in = (goal, Endings(self.model, self.mdp, self.max_length, np.array([goal])))
        return self._ending_in[1]

    def _log_all(self, starts: IntArray) -> FloatArray:
        """Return (n, K) the log-weight, p0 included, of all trips: of any start, or by start of those of each one."""
        if self.model.condition == "none":
            return np.broadcast_to(self._log_Z, (starts.size, self._log_Z.size))
        first, which = np.unique(starts, return_inverse=True)
        found = self._joint.log_prob_prefix(self.mdp, self.thetas, alone(first)) + self._log_Z
        return np.asarray(found[which.ravel()])

    @cached_property
    def _log_Z(self) -> FloatArray:
        return self._joint.log_partition(self.mdp, self.thetas)

    def _on_their_way(self, demos: Demonstrations, goals: IntArray, goal: int) -> IntArray:
        """Return which trips to a goal can still end there, in the number of states that the model allows."""
        if self.model.stop != "anywhere" and not self.mdp.terminal[goal]:
            return np.empty(0, dtype=np.int64)
        moves_left = np.asarray(dijkstra(self._back, indices=[goal], unweighted=True))[0, demos.last_states]
        can = (moves_left < np.inf) & (demos.lengths + moves_left <= self.max_length)
        return np.flatnonzero((goals == goal) & can)

    @cached_property
    def _back(self) -> Any:
        n = self.mdp.n_states
        return sparse.csr_array((np.ones(self.mdp.n_edges), (self.mdp.dst, self.mdp.src)), shape=(n, n))


def _given(log_joint: FloatArray, log_given: FloatArray) -> FloatArray:
    """Return probabilities given something; 0 where that is impossible itself."""
    possible = log_given > -math.inf
    return np.where(possible, np.exp(log_joint - np.where(possible, log_given, 0.0)), 0.0)


def _difference(log_was: FloatArray, log_is: FloatArray) -> FloatArray:
    """Return the difference of logarithms; 0 where nothing is possible any more."""
    return np.where(log_is > -math.inf, log_was - np.where(log_is > -math.inf, log_is, 0.0), 0.0)
