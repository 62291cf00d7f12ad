"""Demonstrations of several intents: how many of each, and their draw from one policy an intent."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from limiirl.demos import Demonstrations
from limiirl.demos.simulate import simulate
from limiirl.mdp import MDP

Float = NDArray[np.float64]
Int = NDArray[np.int64]


def intent_counts(n: int, weights: Float, *, least: int = 0) -> Int:
    """Share n demonstrations among K intents, as near to n * weights as whole numbers of at least `least` can be.

    Parameters
    ----------
    n : int
        At least ``K * least``.
    weights : (K,)
        Shares that sum to 1.
    least : int
        The smallest number that an intent gets.

    Examples
    --------
    >>> intent_counts(10, np.full(3, 1 / 3))
    array([4, 3, 3])
    >>> intent_counts(10, np.array([0.96, 0.04, 0.0]), least=1)
    array([8, 1, 1])
    """
    quotas = n * weights
    counts = np.maximum(np.floor(quotas).astype(np.int64), least)
    while counts.sum() < n:
        counts[np.argmax(quotas - counts)] += 1
    while counts.sum() > n:
        counts[np.argmax(np.where(counts > least, counts - quotas, -np.inf))] -= 1
    return counts


def sample_intents(
    mdp: MDP, policies: Float, counts: Sequence[int] | Int, rng: np.random.Generator, max_length: int
) -> tuple[Demonstrations, Int]:
    """Draw counts[k] demonstrations of policy k, in a random order.

    Parameters
    ----------
    mdp : MDP
    policies : (K, P)
        Probabilities of the (s, a) pairs, one row an intent.
    counts : (K,) int
        Number of demonstrations of each intent.
    rng : Generator
    max_length : int
        The largest number of states.

    Returns
    -------
    demos : Demonstrations
        With the labels.
    labels : (N,) int64

    Examples
    --------
    >>> mdp = MDP.from_edges([0, 0], [1, 2])
    >>> demos, labels = sample_intents(mdp, np.eye(2), [3, 2], np.random.default_rng(0), max_length=5)
    >>> sorted(labels.tolist()), (demos.last_states - 1 == labels).all()
    ([0, 0, 0, 1, 1], np.True_)
    """
    chosen = [(policy, int(count)) for policy, count in zip(policies, counts, strict=True) if count]
    parts = [simulate(mdp, policy, count, rng, max_length) for policy, count in chosen]
    order = rng.permutation(int(np.sum(counts)))
    labels = np.repeat(np.arange(len(counts), dtype=np.int64), counts)[order]
    return Demonstrations.concat(parts)[order].replace(labels=labels), labels
