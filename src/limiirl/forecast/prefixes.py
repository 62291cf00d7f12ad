"""Beginnings of trips: of one state, and each with every move that could come next.

Whose trip is it? The posterior of a driver's intent, from earlier trips and from the one that is going on.
"""

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
    """What comes next after N beginnings, for each of K intents.

    Attributes
    ----------
    edge : (m,)
        The edges on which to go on; those of beginning i are offsets[i]:offsets[i + 1].
    offsets : (N + 1,)
    move : (m, K)
        Probability of each, given the beginning and the intent.
    stop : (N, K)
        Probability that the trip ends here. Both are 0 where the beginning is impossible for the intent.
    """

    edge: IntArray
    offsets: IntArray
    move: FloatArray
    stop: FloatArray

    @property
    def owner(self) -> IntArray:
        """The beginning (m,) of each edge."""
        return np.repeat(np.arange(self.offsets.size - 1), np.diff(self.offsets))


def alone(states: IntArray) -> Demonstrations:
    """Return trips that have only begun, in these states.

    Examples
    --------
    >>> alone(np.array([3, 5])).offsets
    array([0, 1, 2])
    """
    return Demonstrations(states, np.arange(states.size + 1))


def moves(mdp: MDP, demos: Demonstrations, may_move: NDArray[np.bool_]) -> tuple[IntArray, IntArray]:
    """Return the edges that leave the last state of each trip that may move, and their offsets (N + 1,).

    Examples
    --------
    >>> mdp = MDP.from_edges([0, 0, 1], [1, 2, 2])
    >>> moves(mdp, Demonstrations.from_lists([[0, 1], [0]]), np.array([True, True]))
    (array([2, 0, 1]), array([0, 1, 3]))
    """
    last = demos.last_states
    sizes = np.where(may_move, mdp.out_ptr[last + 1] - mdp.out_ptr[last], 0)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    return np.arange(offsets[-1]) + np.repeat(mdp.out_ptr[last] - offsets[:-1], sizes), offsets


def extended(mdp: MDP, demos: Demonstrations, owner: IntArray, edge: IntArray) -> Demonstrations:
    """Return trip owner[j] with one more move, along edge[j], for each j.

    Examples
    --------
    >>> mdp = MDP.from_edges([0, 0, 1], [1, 2, 2])
    >>> longer = extended(mdp, Demonstrations.from_lists([[0], [0, 1]]), np.array([0, 1]), np.array([1, 2]))
    >>> longer.states, longer.actions
    (array([0, 2, 0, 1, 2]), array([ 1, -1, -1,  0, -1]))
    """
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


def together(parts: list[Demonstrations]) -> Demonstrations:
    """Return trips one after the other, without their names.

    Examples
    --------
    >>> together([alone(np.array([3])), Demonstrations.from_lists([[0, 1]], [[5]])]).actions
    array([-1,  5, -1])
    """
    offsets = np.concatenate([[0], np.cumsum(np.concatenate([demos.lengths for demos in parts]))])
    actions = [np.full(demos.n_steps, -1) if demos.actions is None else demos.actions for demos in parts]
    return Demonstrations(np.concatenate([demos.states for demos in parts]), offsets, np.concatenate(actions))


def log_prior(
    shares: FloatArray, model: Any, mdp: Any, thetas: FloatArray, demos: Any, history: Demonstrations | None
) -> FloatArray:
    """Return (N, K) the log-probability of each intent of those who drive `demos`, before these trips.

    ``p(k | history) prop. to rho_k prod_i p(tau_i | theta_k)``: all trips of a driver follow one intent. Where both
    `demos` and `history` have groups, each driver is judged by the trips of the same group, and one without any by the
    shares; elsewhere the whole history is of the one who drives them all.

    Parameters
    ----------
    shares : (K,)
    model, mdp, thetas : what the mixture was fitted with
    demos : Demonstrations
        N trips that are going on.
    history : Demonstrations or None
        Earlier trips, whole.
    """
    found = np.tile(log(shares), (len(demos), 1))
    if history is None or len(history) == 0:
        return found
    log_p = np.asarray(model.log_prob(mdp, thetas, history))
    if history.groups is None or demos.groups is None:
        found += log_p.sum(axis=0)
    else:
        for group in np.unique(demos.groups):
            found[demos.groups == group] += log_p[history.groups == group].sum(axis=0)
    lost = np.max(found, axis=1) == -np.inf
    if np.any(lost):
        raise InvalidDemos(
            f"The history of {name_demo(demos.ids, int(np.argmax(lost)))} has no probability under any intent. Check "
            "that it was recorded in the MDP that was fitted.",
            parameter="history",
            index=int(np.argmax(lost)),
        )
    return np.asarray(found - np.logaddexp.reduce(found, axis=1)[:, None])


def posterior(log_joint: FloatArray) -> tuple[FloatArray, NDArray[np.bool_]]:
    """Return the posterior (N, K) of joint log-probabilities (N, K), and whether each row is possible at all.

    Rows that are not are zero.

    Examples
    --------
    >>> posterior(np.log([[0.1, 0.3]]))
    (array([[0.25, 0.75]]), array([ True]))
    """
    total = np.logaddexp.reduce(log_joint, axis=1)
    possible = total > -np.inf
    return np.exp(log_joint - np.where(possible, total, 0.0)[:, None]), possible
