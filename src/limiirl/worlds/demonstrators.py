"""Demonstrators: the policy of an intent, how many demonstrations each intent gets, and their draw."""

from collections.abc import Sequence
from numbers import Real

import numpy as np
from numpy.typing import ArrayLike, NDArray

from limiirl.demos import Demonstrations
from limiirl.demos.simulate import simulate
from limiirl.errors import InvalidParameter
from limiirl.mdp import MDP
from limiirl.mdp.ensemble import RewardEnsemble
from limiirl.mdp.planning import action_values, optimal_values
from limiirl.worlds.parameters import check_count

Float = NDArray[np.float64]
Int = NDArray[np.int64]


def boltzmann_policy(mdp: MDP, theta: ArrayLike, beta: float = 5.0) -> Float:
    """Return ``pi(a | s) = exp(beta Q*(s, a)) / sum_a' exp(beta Q*(s, a'))``: probabilities (P,) of the (s, a) pairs.

    Q* is the action value of `limiirl.mdp.planning`: what acting optimally earns after a, without any entropy bonus.

    Parameters
    ----------
    mdp : MDP
    theta : (d,)
        One parameter vector.
    beta : float
        Inverse temperature, finite and at least 0. At 0 all actions are equally likely; the larger it is, the nearer
        the policy comes to the optimal one, uniform over ties. 5 is what the paper's released code has.

    Examples
    --------
    >>> mdp = MDP.from_edges([0, 0], [1, 2], state_features=[0.0, 0.0, -1.0])
    >>> boltzmann_policy(mdp, [1.0], beta=np.log(3.0))
    array([0.75, 0.25])
    """
    check_beta(beta)
    if not mdp.n_pairs:
        return np.zeros(0)
    logits = beta * action_values(mdp, optimal_values(mdp, theta), theta)
    first, owner = np.unique(mdp.pair_state, return_index=True, return_inverse=True)[1:]
    # Less the largest of its state: no exponential overflows, and the largest is 1.
    mass = np.exp(logits - np.maximum.reduceat(logits, first)[owner])
    return np.asarray(mass / np.add.reduceat(mass, first)[owner])


def check_beta(beta: object) -> None:
    """Raise unless `beta` is a finite number of at least 0.

    >>> check_beta(-1.0)
    Traceback (most recent call last):
    ...
    limiirl.errors.InvalidParameter: beta must be finite and at least 0; got -1.0. For no noise use policy="optimal".
    """
    if isinstance(beta, bool) or not isinstance(beta, Real) or not 0.0 <= float(beta) < np.inf:
        raise InvalidParameter(f'beta must be finite and at least 0; got {beta!r}. For no noise use policy="optimal".')


def geometric_weights(n_intents: int, p: float) -> Float:
    """Return the paper's unequal shares (K,): ``rho_k`` proportional to ``p (1 - p) ** k``.

    Parameters
    ----------
    n_intents : int
        K.
    p : float
        In [0, 1): each intent is followed by a share `p` less than the one before it. 0 gives equal shares.

    Examples
    --------
    >>> geometric_weights(3, 0.0)
    array([0.33333333, 0.33333333, 0.33333333])
    >>> geometric_weights(3, 0.5)
    array([0.57142857, 0.28571429, 0.14285714])
    """
    check_count("n_intents", n_intents, 1, "A mixture has at least one intent.")
    if isinstance(p, bool) or not isinstance(p, Real) or not 0.0 <= float(p) < 1.0:
        raise InvalidParameter(f"p must lie in [0, 1); got {p!r}. Use 0 for equal shares.")
    # The common factor p cancels, which leaves p = 0 its limit.
    shares = (1.0 - float(p)) ** np.arange(n_intents)
    return np.asarray(shares / shares.sum())


def share_out(n: int, ensemble: RewardEnsemble, weights: ArrayLike | None) -> Int:
    """Return how many of n demonstrations each of K intents gets (K,): by the ensemble's shares, or by given ones.

    Given shares leave no intent without a demonstration.

    Examples
    --------
    >>> truth = RewardEnsemble([0.5, 0.5], [[0.0], [-1.0]])
    >>> share_out(9, truth, None), share_out(9, truth, [1.0, 0.0])
    (array([5, 4]), array([8, 1]))
    """
    if weights is None:
        return intent_counts(n, ensemble.weights)
    K = ensemble.n_intents
    if np.shape(weights) != (K,):
        raise InvalidParameter(
            f"weights must have shape ({K},), one share an intent; got shape {np.shape(weights)}. Give one weight an "
            "intent."
        )
    if n < K:
        raise InvalidParameter(f"n must be at least {K}, one demonstration an intent; got {n}. Raise n.")
    return intent_counts(n, RewardEnsemble(weights, ensemble.thetas).weights, least=1)


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
