"""Partial trips: their extensions, and the posteriors over intents, next states and destinations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from limiirl._typing import FloatArray, IntArray
from limiirl.demos import Demonstrations, name_demo
from limiirl.errors import InvalidDemos
from limiirl.forecast.validate import log
from limiirl.mdp import MDP


class NextEdges(NamedTuple):
    """Continuations of N prefixes under K intents.

    Attributes
    ----------
    edge : (m,)
        Next edges.
    offsets : (N + 1,)
        The next edges of prefix i are edge[offsets[i]:offsets[i + 1]].
    probability : (m, K)
        P(next edge | prefix, intent).
    stop : (N, K)
        P(trip ends | prefix, intent). If the prefix is impossible under the intent, `probability` and `stop` are 0.
    """

    edge: IntArray
    offsets: IntArray
    probability: FloatArray
    stop: FloatArray

    @property
    def owner(self) -> IntArray:
        """Index (m,) of the prefix of each edge."""
        return np.repeat(np.arange(self.offsets.size - 1), np.diff(self.offsets))


def one_state_trips(states: IntArray) -> Demonstrations:
    """Return trips that consist of one state each."""
    return Demonstrations(states, np.arange(states.size + 1))


def outgoing_edges(mdp: MDP, demos: Demonstrations, mask: NDArray[np.bool_]) -> tuple[IntArray, IntArray]:
    """Return the outgoing edges of the last states of the trips in `mask` (N,), and their offsets (N + 1,)."""
    last = demos.last_states
    sizes = np.where(mask, mdp.out_ptr[last + 1] - mdp.out_ptr[last], 0)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    return np.arange(offsets[-1]) + np.repeat(mdp.out_ptr[last] - offsets[:-1], sizes), offsets


def extend(mdp: MDP, demos: Demonstrations, owner: IntArray, edge: IntArray) -> Demonstrations:
    """Return m trips; trip j is trip owner[j] of `demos`, extended by edge[j]."""
    sizes = demos.lengths[owner]
    offsets = np.concatenate([[0], np.cumsum(sizes + 1)])
    last = offsets[1:] - 1
    states = np.empty(offsets[-1], dtype=np.int64)
    actions = np.full(offsets[-1], -1, dtype=np.int64)
    old = np.ones(states.size, dtype=bool)
    old[last] = False
    rows = np.arange(sizes.sum()) + np.repeat(demos.offsets[owner] - (offsets[:-1] - np.arange(owner.size)), sizes)
    states[old], states[last] = demos.states[rows], mdp.dst[edge]
    if demos.actions is not None:
        actions[old] = demos.actions[rows]
    actions[last - 1] = mdp.act[edge]
    return Demonstrations(states, offsets, actions)


def concatenate(parts: list[Demonstrations]) -> Demonstrations:
    """Return the trips of all parts, without their ids."""
    offsets = np.concatenate([[0], np.cumsum(np.concatenate([demos.lengths for demos in parts]))])
    actions = [np.full(demos.n_steps, -1) if demos.actions is None else demos.actions for demos in parts]
    return Demonstrations(np.concatenate([demos.states for demos in parts]), offsets, np.concatenate(actions))


def log_prior(
    weights: FloatArray, model: Any, mdp: Any, thetas: FloatArray, demos: Any, history: Demonstrations | None
) -> FloatArray:
    """Return the log-prior (N, K) over the intents of the drivers of `demos`, given the drivers' earlier trips.

    ``p(k | history)`` is proportional to ``rho_k prod_i p(tau_i | theta_k)``, because all trips of a driver have the
    same intent. If `demos` and `history` have groups, each group is a driver; otherwise, there is one driver.
    """
    log_p = np.tile(log(weights), (len(demos), 1))
    if history is None or len(history) == 0:
        return log_p
    log_trip = np.asarray(model.log_prob(mdp, thetas, history))
    if history.groups is None or demos.groups is None:
        log_p += log_trip.sum(axis=0)
    else:
        for group in np.unique(demos.groups):
            log_p[demos.groups == group] += log_trip[history.groups == group].sum(axis=0)
    impossible = np.max(log_p, axis=1) == -np.inf
    if np.any(impossible):
        i = int(np.argmax(impossible))
        raise InvalidDemos(
            f"The history of {name_demo(demos.ids, i)} must have positive probability under some intent. Pass trips "
            "that are possible in the mixture's MDP.",
            parameter="history",
            index=i,
        )
    return np.asarray(log_p - np.logaddexp.reduce(log_p, axis=1)[:, None])


def posterior(log_joint: FloatArray) -> tuple[FloatArray, NDArray[np.bool_]]:
    """Return the posterior (N, K) from joint log-probabilities (N, K), and the mask (N,) of possible rows."""
    total = np.logaddexp.reduce(log_joint, axis=1)
    possible = total > -np.inf
    return np.exp(log_joint - np.where(possible, total, 0.0)[:, None]), possible


# Maximum number of next states or destinations in `repr`.
_SHOWN = 5
# Maximum number of entries in an array (partial trips, candidates, intents).
_BATCH = 2**22


@dataclass(frozen=True, eq=False, repr=False)
class NextStates:
    """Probabilities of the next states of N partial trips; `probability` and `stop` sum to 1 for each trip.

    Attributes
    ----------
    state, edge, probability : (m,)
        Next states, the edges that lead to them, and their probabilities.
    offsets : (N + 1,)
        Entries offsets[i]:offsets[i + 1] of these arrays belong to trip i.
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
        """Most probable next state (N,) of each trip (the first one if several are tied), or -1 if there is none."""
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
    """Return the posterior (N, K) over intents given partial trips with goals (N,); the log-prior is (N, K)."""
    probability, possible = posterior(log_prior + trips.log_prob_prefix(demos, goals))
    if not np.all(possible):
        i = int(np.argmin(possible))
        name, last = name_demo(demos.ids, i), int(demos.last_states[i])
        if goals is None:
            raise InvalidDemos(
                f"{name} must be a prefix of a possible trip; after state {last}, no continuation is possible.",
                parameter="partial",
                value=last,
                index=i,
            )
        raise InvalidDemos(
            f"{name}: goal {goals[i]} must be reachable from state {last} within max_length, and the partial trip must "
            "not have visited it already. Choose another goal.",
            parameter="goal",
            value=int(goals[i]),
            index=i,
        )
    return probability


def predict_next_states(trips: Any, log_prior: FloatArray, demos: Demonstrations, goals: IntArray | None) -> NextStates:
    """Return the next states of partial trips with goals (N,), given a log-prior (N, K) over intents."""
    weights = infer_intents(trips, log_prior, demos, goals)
    after = trips.next_edges(demos, goals)
    probability = np.sum(weights[after.owner] * after.probability, axis=1)
    state = trips.mdp.dst[after.edge].astype(np.int64)
    return NextStates(state, after.edge, probability, after.offsets, np.sum(weights * after.stop, axis=1), weights)


@dataclass(frozen=True, eq=False, repr=False)
class DestinationPosterior:
    """Posterior (N, G) over candidate destinations (G,) of N partial trips.

    Examples
    --------
    >>> posterior = DestinationPosterior(np.array([4, 7, 9]), np.array([[0.2, 0.7, 0.1]]))
    >>> posterior
    destination: state 7 70.0 %, 4 20.0 %, 9 10.0 %
    >>> posterior.most_likely, posterior.top(2)
    (array([7]), array([[7, 4]]))
    """

    candidates: IntArray
    probability: FloatArray

    def __len__(self) -> int:
        return len(self.probability)

    @property
    def most_likely(self) -> IntArray:
        """Most probable destination (N,) of each trip. If several are tied, it is the first one."""
        return np.asarray(self.candidates[np.argmax(self.probability, axis=1)])

    def top(self, n: int) -> IntArray:
        """Return the n most probable destinations (N, n) of each trip in descending order."""
        order = np.argsort(-self.probability, axis=1, kind="stable")
        return np.asarray(self.candidates[order[:, :n]])

    def __repr__(self) -> str:
        if len(self) != 1:
            return f"destinations of {len(self)} partial trips among {self.candidates.size} candidates"
        order = np.argsort(-self.probability[0], kind="stable")[:_SHOWN]
        listed = ", ".join(f"{self.candidates[j]} {100 * self.probability[0, j]:.1f} %" for j in order)
        more = f" and {self.candidates.size - _SHOWN} more" if self.candidates.size > _SHOWN else ""
        return f"destination: state {listed}{more}"


def infer_destinations(
    trips: Any, log_prior: FloatArray, demos: Demonstrations, candidates: IntArray, prior: FloatArray | None
) -> DestinationPosterior:
    """Return the posterior over the destinations of partial trips, given a log-prior (N, K) over intents.

    The posterior is proportional to ``prior(g) sum_k p(k | s_1, g) p_k(prefix | s_1, g)``, where p(k | s_1, g) is rho_k
    for `DestinationMaxEnt`. If `prior` (G,) is None, the distribution of last states under `MaxEnt` is used.
    """
    size = max(1, _BATCH // max(1, candidates.size * log_prior.shape[1]))
    batches = [slice(i, i + size) for i in range(0, len(demos), size)]
    log_p = np.concatenate([_log_joint(trips, log_prior[rows], demos[rows], candidates, prior) for rows in batches])
    total = np.logaddexp.reduce(log_p, axis=1)
    impossible = total == -np.inf
    if np.any(impossible):
        i = int(np.argmax(impossible))
        raise InvalidDemos(
            f"{name_demo(demos.ids, i)} must be able to end in one of the {candidates.size} candidates; each is "
            f"unreachable from state {demos.last_states[i]} or was visited before. Pass other candidates.",
            parameter="candidates",
            index=i,
        )
    return DestinationPosterior(candidates, np.exp(log_p - total[:, None]))


def _log_joint(
    trips: Any, log_prior: FloatArray, demos: Demonstrations, candidates: IntArray, prior: FloatArray | None
) -> FloatArray:
    """Return log prior(g) p(prefix | s_1, g) (N, G), up to a constant per trip."""
    log_prefix = np.logaddexp.reduce(trips.log_prob_prefix_by_goal(demos, candidates) + log_prior[:, None], axis=2)
    if prior is None:
        return np.asarray(log_prefix)
    # Divide by the probability of all trips from the start state to the candidate.
    starts = one_state_trips(demos.start_states)
    whole = np.logaddexp.reduce(trips.log_prob_prefix_by_goal(starts, candidates) + log_prior[:, None], axis=2)
    possible = whole > -np.inf
    return np.where(possible, log(prior) + log_prefix - np.where(possible, whole, 0.0), -np.inf)
