"""`GivenEnds`: trips of `DestinationMaxEnt`, which says how they go, given the first state and the destination."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from limiirl.demos import Demonstrations
from limiirl.errors import InvalidParameter
from limiirl.forecast.checks import log
from limiirl.forecast.prefixes import Onward, moves
from limiirl.irl.destination_values import GoalValues, Solution
from limiirl.irl.evidence import Evidence
from limiirl.mdp import MDP

Float = NDArray[np.float64]
Int = NDArray[np.int64]
# Pairs of a state and a goal that are looked at together.
_AT_ONCE = 2**21


class Ends(NamedTuple):
    """Where trips may be bound for (G,), and the probability of each, before anything is known of a trip."""

    states: Int
    prior: Float


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

    def __init__(self, model: Any, mdp: MDP, thetas: Float, ends: Ends | None) -> None:
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

    def log_begin(self, demos: Demonstrations, goals: Int | None = None) -> Float:
        """Return (N, K) the log-probability that a trip from its first state to its goal (N,) begins with each."""
        if goals is not None:
            found: Float = self.model.log_prob_prefix(self.mdp, self.thetas, demos, goals)
            return found
        ends = self._known_ends()
        each = self.log_begin_each(demos, ends.states)
        return np.asarray(np.logaddexp.reduce(each + log(ends.prior)[:, None], axis=1))

    def log_begin_each(self, demos: Demonstrations, candidates: Int) -> Float:
        """Return (N, G, K) `log_begin` with each of the candidates (G,) as the goal."""
        log_weight = Evidence(self.mdp, demos, by_start=True).log_weight(self.thetas)
        log_weight -= self._reward[demos.start_states]
        ahead, whole = self._value(demos.last_states, candidates), self._value(demos.start_states, candidates)
        found = _part(log_weight[:, None] + ahead, whole)
        for j, goal in enumerate(candidates):
            found[_passed(demos, goal), j] = -np.inf
        return found

    def onward(self, demos: Demonstrations, goals: Int | None = None) -> Onward:
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
        return Onward(edge, offsets, move, stop)

    def log_scale(self, starts: Int, goals: Int) -> Float:
        """Return (n, K) what the log-weight of a trip, its rewards and outcomes, lacks to its log-probability."""
        log_all = self._values(starts, goals)
        return np.where(log_all > -np.inf, -log_all - self._reward[starts], -np.inf)

    def flow(self, k: int, starts: Int, goals: Int, weights: Float) -> Float:
        """Return (E,) the expected uses of each edge by trips of intent k between pairs (n,) that are connected."""
        rows = np.flatnonzero(weights > 0.0)
        if rows.size == 0:
            return np.zeros(self.mdp.n_edges)
        theta = self.thetas[k]
        return np.asarray(self.model.expected_flow(self.mdp, theta, starts[rows], goals[rows], weights[rows]))

    def own_flow(self, k: int) -> tuple[Float, Float]:
        """Say that this model has no trips of its own."""
        del k
        raise InvalidParameter(
            "DestinationMaxEnt says how trips reach their destinations, not where trips begin and end. "
            "Pass starts and goals."
        )

    def _values(self, states: Int, goals: Int) -> Float:
        """Return (m, K) log beta_g(s) of pairs (m,); -inf where no way leads from s to g."""
        return np.stack([solved.ways(states, goals).log_value for solved in self._solved], axis=1)

    @cached_property
    def _solved(self) -> list[Solution]:
        """The sums over all ways of each intent."""
        return [GoalValues(self.mdp).known(theta) for theta in self.thetas]

    def _value(self, states: Int, goals: Int) -> Float:
        """Return (n, G, K) log beta_g(s) of each of the states (n,) and each of the goals (G,)."""
        distinct, which = np.unique(states, return_inverse=True)
        found = self._values(np.repeat(distinct, goals.size), np.tile(goals, distinct.size))
        return np.asarray(found.reshape(distinct.size, goals.size, len(self.thetas))[which])

    def _known_ends(self) -> Ends:
        if self.ends is None:
            raise InvalidParameter(
                "DestinationMaxEnt needs destinations. Pass goal=, or make the forecaster with demos=: the states in "
                "which they end are the candidates."
            )
        return self.ends


def _passed(demos: Demonstrations, goal: int) -> NDArray[np.bool_]:
    """Return (N,) whether a trip was at the goal before its last state: it would have ended there."""
    there = demos.states == goal
    there[demos.offsets[1:] - 1] = False
    return np.add.reduceat(there, demos.offsets[:-1]) > 0


def _part(log_part: Float, log_whole: Float) -> Float:
    """Return the logarithm of a part of a whole; -inf where the whole is nothing."""
    possible = log_whole > -np.inf
    return np.where(possible, log_part - np.where(possible, log_whole, 0.0), -np.inf)


def _pieces(n: int, size: int) -> Iterator[slice]:
    """Yield slices of n goals such that pairs with `size` states fit into memory."""
    step = max(1, _AT_ONCE // max(1, size))
    return (slice(first, min(first + step, n)) for first in range(0, n, step))
