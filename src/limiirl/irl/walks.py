"""Trajectories drawn from a policy that changes from step to step, and that may stop anywhere."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from limiirl.demos import Demonstrations
from limiirl.mdp import MDP

Float = NDArray[np.float64]


def walk(
    mdp: MDP, policy: Callable[[int], tuple[Float, Float]], n: int, rng: np.random.Generator, last: int
) -> Demonstrations:
    """Draw n trajectories that start from p0 and make at most `last` moves.

    Parameters
    ----------
    policy : callable
        Of a step: the probabilities (P,) of pairs for those who go on, and (S,) of stopping.

    Examples
    --------
    >>> mdp = MDP.from_edges([0, 1], [1, 2], p0=[1, 0, 0])
    >>> halves = np.ones(2), np.array([0.5, 0.5, 1.0])
    >>> np.bincount(walk(mdp, lambda step: halves, 1000, np.random.default_rng(0), 2).lengths)
    array([  0, 534, 236, 230])
    """
    state = rng.choice(mdp.n_states, size=n, p=mdp.p0 / mdp.p0.sum())
    states, actions = np.full((n, last + 1), -1), np.full((n, last + 1), -1)
    states[:, 0] = state
    walker = np.arange(n)
    for t in range(last):
        pi, stop = policy(t)
        mass = np.concatenate([[0.0], np.cumsum(pi[mdp.pair_of_edge] * mdp.prob)])
        here = states[walker, t]
        low, high = mass[mdp.out_ptr[here]], mass[mdp.out_ptr[here + 1]]
        on = rng.random(walker.size) >= stop[here]
        walker, low, high = walker[on], low[on], high[on]
        point = np.minimum(low + rng.random(walker.size) * (high - low), np.nextafter(high, -np.inf))
        edge = np.searchsorted(mass[1:], point, side="right")
        actions[walker, t], states[walker, t + 1] = mdp.act[edge], mdp.dst[edge]
    made = states >= 0
    offsets = np.concatenate([[0], np.cumsum(made.sum(axis=1))])
    return Demonstrations(states[made], offsets, actions[made])
