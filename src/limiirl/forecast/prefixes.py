"""Beginnings of trips: of one state, and each with every move that could come next."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from limiirl.demos import Demonstrations
from limiirl.mdp import MDP

Float = NDArray[np.float64]
Int = NDArray[np.int64]


class Onward(NamedTuple):
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

    edge: Int
    offsets: Int
    move: Float
    stop: Float

    @property
    def owner(self) -> Int:
        """The beginning (m,) of each edge."""
        return np.repeat(np.arange(self.offsets.size - 1), np.diff(self.offsets))


def alone(states: Int) -> Demonstrations:
    """Return trips that have only begun, in these states.

    Examples
    --------
    >>> alone(np.array([3, 5])).offsets
    array([0, 1, 2])
    """
    return Demonstrations(states, np.arange(states.size + 1))


def moves(mdp: MDP, demos: Demonstrations, may_move: NDArray[np.bool_]) -> tuple[Int, Int]:
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


def extended(mdp: MDP, demos: Demonstrations, owner: Int, edge: Int) -> Demonstrations:
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
