"""What comes next after a partial trip: the probability of each turn, averaged over intents."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from limiirl._typing import FloatArray, IntArray
from limiirl.demos import Demonstrations, name_demo
from limiirl.errors import InvalidDemos
from limiirl.forecast.prefixes import posterior

# Turns that are written out.
_SHOWN = 5


@dataclass(frozen=True, eq=False, repr=False)
class NextStates:
    """The probabilities of what comes next after each of N partial trips; with `stop` they sum to 1 for each.

    Attributes
    ----------
    state, edge : (m,)
        Where each turn leads, and its edge of the MDP. The turns of trip i are offsets[i]:offsets[i + 1]; two edges to
        the same state are two turns.
    probability : (m,)
    offsets : (N + 1,)
    stop : (N,)
        The probability that the trip ends where it is.
    intents : (N, K)
        The posterior of the driver's intent that was averaged with.

    Examples
    --------
    >>> found = NextStates(*map(np.array, ([4, 7], [0, 1], [0.25, 0.7], [0, 2], [0.05], [[1.0]])))
    >>> found
    next: state 7 70.0 %, 4 25.0 %; ends here 5.0 %
    >>> found.most_likely
    array([7])
    """

    state: IntArray
    edge: IntArray
    probability: FloatArray
    offsets: IntArray
    stop: FloatArray
    intents: FloatArray

    def __len__(self) -> int:
        return self.stop.size

    def __getitem__(self, i: int) -> NextStates:
        if not -len(self) <= i < len(self):
            raise IndexError(f"there are {len(self)} partial trips; there is no number {i}")
        i %= len(self)
        own = slice(int(self.offsets[i]), int(self.offsets[i + 1]))
        return NextStates(
            self.state[own],
            self.edge[own],
            self.probability[own],
            np.array([0, own.stop - own.start]),
            self.stop[i : i + 1],
            self.intents[i : i + 1],
        )

    @property
    def most_likely(self) -> IntArray:
        """The most probable next state (N,) of each trip, the first of equals; -1 where there is no way on."""
        found = np.full(len(self), -1, dtype=np.int64)
        for i, (a, b) in enumerate(zip(self.offsets[:-1], self.offsets[1:], strict=True)):
            if b > a and np.max(self.probability[a:b]) > 0.0:
                found[i] = self.state[a + int(np.argmax(self.probability[a:b]))]
        return found

    def __repr__(self) -> str:
        if len(self) != 1:
            return f"next turns of {len(self)} partial trips, {self.state.size} in all"
        order = np.argsort(-self.probability, kind="stable")[:_SHOWN]
        turns = ", ".join(f"{self.state[j]} {100 * self.probability[j]:.1f} %" for j in order)
        more = f" and {self.state.size - _SHOWN} more" if self.state.size > _SHOWN else ""
        ways = f"state {turns}{more}" if turns else "no way on"
        return f"next: {ways}; ends here {100 * self.stop[0]:.1f} %"


def intents(trips: Any, log_prior: FloatArray, demos: Demonstrations, goals: IntArray | None) -> FloatArray:
    """Return the posterior (N, K) of the intents behind partial trips; one that is impossible is an error.

    Parameters
    ----------
    trips : FreeEnds or GivenEnds
    log_prior : (N, K)
    demos : Demonstrations
    goals : (N,) or None
    """
    found, possible = posterior(log_prior + trips.log_begin(demos, goals))
    if not np.all(possible):
        i = int(np.argmin(possible))
        name, last = name_demo(demos.ids, i), demos.last_states[i]
        if goals is None:
            raise InvalidDemos(
                f"{name}: no trip of the model begins so. It cannot end from state {last} on.",
                parameter="partial",
                value=int(last),
            )
        raise InvalidDemos(
            f"{name}: no trip that begins so ends in state {goals[i]}. It cannot be reached from state {last}, or not "
            "in the number of states that the model allows; or the trip was there already. Choose another goal.",
            parameter="partial",
            value=int(last),
        )
    return found


def next_states(trips: Any, log_prior: FloatArray, demos: Demonstrations, goals: IntArray | None) -> NextStates:
    """Return what comes next; arguments as in `intents`."""
    given = intents(trips, log_prior, demos, goals)
    onward = trips.onward(demos, goals)
    probability = np.sum(given[onward.owner] * onward.move, axis=1)
    state = trips.mdp.dst[onward.edge].astype(np.int64)
    return NextStates(state, onward.edge, probability, onward.offsets, np.sum(given * onward.stop, axis=1), given)
