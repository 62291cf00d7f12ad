"""`FreeEnds`: trips of the unconditioned model, `MaxEnt`, which also says where they begin and end."""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.csgraph import dijkstra
from sklearn.base import clone

from limiirl.demos import Demonstrations
from limiirl.errors import InvalidParameter
from limiirl.forecast.checks import log
from limiirl.forecast.endings import Endings
from limiirl.forecast.prefixes import Onward, alone, extended, moves, together
from limiirl.irl import MaxEnt
from limiirl.irl import checks as irl_checks
from limiirl.mdp import MDP

Float = NDArray[np.float64]
Int = NDArray[np.int64]


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

    def __init__(self, model: MaxEnt, mdp: MDP, thetas: Float, before: FreeEnds | None = None) -> None:
        if model.stop == "terminal_or_max_length":
            raise InvalidParameter(
                "A forecaster needs to know where trips may end whatever their length; the model has "
                "stop='terminal_or_max_length'. Use stop='anywhere' or stop='terminal'."
            )
        self.model, self.mdp, self.thetas, self.before = model, mdp, thetas, before
        given = model.max_length if model.max_length is not None else getattr(model, "max_length_", None)
        self.max_length = irl_checks.max_length(given)
        self._joint: MaxEnt = clone(model).set_params(max_length=self.max_length, condition="none")
        self._ending_in: tuple[int, Endings] | None = None

    def log_begin(self, demos: Demonstrations, goals: Int | None = None) -> Float:
        """Return (N, K) the log-probability that a trip begins with each of `demos`, and ends in its goal (N,).

        Where the model is conditioned on the start, it is that given the first state.
        """
        self._check(demos)
        found = self._log_begin(demos, goals)
        return found if self.before is None else found + self._demand(demos.start_states, goals)

    def _log_begin(self, demos: Demonstrations, goals: Int | None) -> Float:
        """Return `log_begin` as this world alone has it."""
        if goals is None:
            found: Float = self.model.log_prob_prefix(self.mdp, self.thetas, demos)
            return found
        found = np.full((len(demos), len(self.thetas)), -np.inf)
        for goal in np.unique(goals):
            rows = self._on_their_way(demos, goals, int(goal))
            if rows.size:
                found[rows] = self._endings(int(goal)).log_mass(self.thetas, demos[rows])
        return found - self._log_all(demos.start_states)

    def log_begin_each(self, demos: Demonstrations, candidates: Int) -> Float:
        """Return (N, G, K) `log_begin` with each of the candidates (G,) as the goal, in two sweeps a trip."""
        self._check(demos)
        found = self._log_begin_each(demos, candidates)
        if self.before is None:
            return found
        begun = alone(demos.start_states)
        was, now = self.before.log_begin_each(begun, candidates), self._log_begin_each(begun, candidates)
        return found + _difference(was, now)

    def _log_begin_each(self, demos: Demonstrations, candidates: Int) -> Float:
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

    def onward(self, demos: Demonstrations, goals: Int | None = None) -> Onward:
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
            return Onward(edge, offsets, move, np.where(log_p > -np.inf, np.maximum(0.0, 1.0 - going), 0.0))
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
        return Onward(edge, offsets, move, stop)

    def log_scale(self, starts: Int, goals: Int) -> Float:
        """Return (n, K) what the log-weight of a trip, its rewards and outcomes, lacks to its log-probability."""
        found = np.asarray(log(self.mdp.p0[starts])[:, None] - self._log_all(starts))
        return found if self.before is None else found + self._demand(starts, goals)

    def flow(self, k: int, starts: Int, goals: Int, weights: Float) -> Float:
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

    def own_flow(self, k: int) -> tuple[Float, Float]:
        """Return the expected uses of edges (E,) and visits to states (S,) of one trip of intent k, bound anywhere."""
        theta = self.thetas[k]
        return self.model.edge_marginals(self.mdp, theta)[0], self.model.state_marginals(self.mdp, theta)[0]

    def _demand(self, starts: Int, goals: Int | None) -> Float:
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

    def _log_all(self, starts: Int) -> Float:
        """Return (n, K) the log-weight, p0 included, of all trips: of any start, or by start of those of each one."""
        if self.model.condition == "none":
            return np.broadcast_to(self._log_Z, (starts.size, self._log_Z.size))
        first, which = np.unique(starts, return_inverse=True)
        found = self._joint.log_prob_prefix(self.mdp, self.thetas, alone(first)) + self._log_Z
        return np.asarray(found[which.ravel()])

    @cached_property
    def _log_Z(self) -> Float:
        return self._joint.log_partition(self.mdp, self.thetas)

    def _on_their_way(self, demos: Demonstrations, goals: Int, goal: int) -> Int:
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


def _given(log_joint: Float, log_given: Float) -> Float:
    """Return probabilities given something; 0 where that is impossible itself."""
    possible = log_given > -math.inf
    return np.where(possible, np.exp(log_joint - np.where(possible, log_given, 0.0)), 0.0)


def _difference(log_was: Float, log_is: Float) -> Float:
    """Return the difference of logarithms; 0 where nothing is possible any more."""
    return np.where(log_is > -math.inf, log_was - np.where(log_is > -math.inf, log_is, 0.0), 0.0)
