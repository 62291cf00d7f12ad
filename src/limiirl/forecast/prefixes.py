"""Prefixes of trips and their extensions, and the posterior over a driver's intents."""

from __future__ import annotations

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
