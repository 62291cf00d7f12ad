"""Probabilities of the next state after a partial trip, averaged over intents."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from limiirl._typing import FloatArray, IntArray
from limiirl.demos import Demonstrations, name_demo
from limiirl.errors import InvalidDemos
from limiirl.forecast.prefixes import posterior

# Next states shown in a summary.
_SHOWN = 5


@dataclass(frozen=True, eq=False, repr=False)
class NextStates:
    """Probabilities of the next states of N partial trips; they and `stop` sum to 1 for each trip.

    Attributes
    ----------
    state, edge, probability : (m,)
        Next states, the edges of the MDP to them, and their probabilities.
    offsets : (N + 1,)
        Trip i has the entries offsets[i]:offsets[i + 1] of these arrays.
    stop : (N,)
        Probability that the trip ends in its last state.
    intents : (N, K)
        Posterior over the driver's intents.

    Examples
    --------
    >>> after = NextStates(*map(np.array, ([4, 7], [0, 1], [0.25, 0.7], [0, 2], [0.05], [[1.0]])))
    >>> after
    next: state 7 70.0 %, 4 25.0 %; ends here 5.0 %
    >>> after.most_likely
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
            raise IndexError(f"index {i} is out of range for {len(self)} partial trips")
        i %= len(self)
        own = slice(int(self.offsets[i]), int(self.offsets[i + 1]))
        offsets = np.array([0, own.stop - own.start])
        one = slice(i, i + 1)
        return NextStates(
            self.state[own], self.edge[own], self.probability[own], offsets, self.stop[one], self.intents[one]
        )

    @property
    def most_likely(self) -> IntArray:
        """Most probable next state (N,) of each trip (the first one if tied); -1 at a dead end."""
        best = np.full(len(self), -1, dtype=np.int64)
        for i, (a, b) in enumerate(zip(self.offsets[:-1], self.offsets[1:], strict=True)):
            if b > a and np.max(self.probability[a:b]) > 0.0:
                best[i] = self.state[a + int(np.argmax(self.probability[a:b]))]
        return best

    def __repr__(self) -> str:
        if len(self) != 1:
            return f"{self.state.size} next states of {len(self)} partial trips"
        order = np.argsort(-self.probability, kind="stable")[:_SHOWN]
        listed = ", ".join(f"{self.state[j]} {100 * self.probability[j]:.1f} %" for j in order)
        more = f" and {self.state.size - _SHOWN} more" if self.state.size > _SHOWN else ""
        text = f"state {listed}{more}" if listed else "dead end"
        return f"next: {text}; ends here {100 * self.stop[0]:.1f} %"


def infer_intents(trips: Any, log_prior: FloatArray, demos: Demonstrations, goals: IntArray | None) -> FloatArray:
    """Return the posterior (N, K) over the intents of partial trips, given a log-prior (N, K) and goals (N,)."""
    probability, possible = posterior(log_prior + trips.log_prob_prefix(demos, goals))
    if not np.all(possible):
        i = int(np.argmin(possible))
        name, last = name_demo(demos.ids, i), int(demos.last_states[i])
        if goals is None:
            raise InvalidDemos(
                f"{name}: this prefix is impossible; no trip of the model continues it after state {last}.",
                parameter="partial",
                value=last,
                index=i,
            )
        raise InvalidDemos(
            f"{name}: goal {goals[i]} is impossible for this prefix: it is not reachable from state {last} within "
            "max_length, or the prefix has already visited it. Choose another goal.",
            parameter="goal",
            value=int(goals[i]),
            index=i,
        )
    return probability


def predict_next_states(trips: Any, log_prior: FloatArray, demos: Demonstrations, goals: IntArray | None) -> NextStates:
    """Return the next states of partial trips, given a log-prior (N, K) over intents and goals (N,)."""
    weights = infer_intents(trips, log_prior, demos, goals)
    after = trips.next_edges(demos, goals)
    probability = np.sum(weights[after.owner] * after.probability, axis=1)
    state = trips.mdp.dst[after.edge].astype(np.int64)
    return NextStates(state, after.edge, probability, after.offsets, np.sum(weights * after.stop, axis=1), weights)
