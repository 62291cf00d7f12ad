"""Intents of one fit in the order of another's: intents have no numbers by nature, so every fit numbers them anew."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist
from sklearn.base import clone

from limiirl.errors import DivergentPartition, InvalidParameter, NumericalError
from limiirl.mdp.ensemble import RewardEnsemble
from limiirl.mixture import checks
from limiirl.mixture.em import Iteration

if TYPE_CHECKING:
    from limiirl.mixture.estimator import IntentMixture

Float = NDArray[np.float64]
Order = NDArray[np.int64]


def intent_order(mixture: IntentMixture, other: IntentMixture | RewardEnsemble) -> Order:
    """Return (K,) the intents of a mixture in the order of those of another that they resemble most.

    Two mixtures of the same demonstrations are compared by who follows which intent. Otherwise what matters is how
    intents behave: features that they are expected to collect, in units of their spread, where the mixture's model has
    `expected_features`; else rewards themselves. Where the numbers of intents differ, some have no counterpart; those
    of the mixture come last.

    Examples
    --------
    >>> from limiirl import MDP, Demonstrations, IntentMixture, MaxEnt
    >>> mdp = MDP.from_edges([0, 0], [1, 2], p0=[1, 0, 0], state_features=[[0], [1], [-1]])
    >>> demos = Demonstrations.from_lists([[0, 1], [0, 1], [0, 2]])
    >>> mix = IntentMixture(2, MaxEnt(2, bounds=(-3, 3)), init=[0, 0, 1]).fit(mdp, demos)
    >>> mix.thetas_.ravel().tolist()
    [3.0, -3.0]
    >>> intent_order(mix, RewardEnsemble([0.5, 0.5], [[-1.0], [1.0]])).tolist()
    [1, 0]
    """
    checks.fitted(mixture)
    if not isinstance(other, RewardEnsemble):
        if not hasattr(other, "thetas_"):
            raise InvalidParameter(
                f"Intents are aligned to a fitted IntentMixture or a RewardEnsemble; got {type(other).__name__}. "
                "Fit it first."
            )
        if _same_demonstrations(mixture, other):
            return assign(-(other.responsibilities_.T @ mixture.responsibilities_))
    theirs = np.asarray(other.thetas if isinstance(other, RewardEnsemble) else other.thetas_)
    if theirs.shape[1] != mixture.thetas_.shape[1]:
        raise InvalidParameter(
            f"Intents can only be aligned where rewards have the same features; these have {mixture.thetas_.shape[1]}, "
            f"the others {theirs.shape[1]}."
        )
    behaviour = _behaviour(mixture, np.vstack([mixture.thetas_, theirs]))
    spread = behaviour.std(axis=0)
    told_apart = spread > 1e-12 * np.abs(behaviour).max(axis=0)
    scaled = behaviour[:, told_apart] / spread[told_apart]
    K = len(mixture.weights_)
    return assign(cdist(scaled[K:], scaled[:K]))


def _same_demonstrations(one: Any, other: Any) -> bool:
    mine, theirs = getattr(one, "_prepared", None), getattr(other, "_prepared", None)
    return mine is not None and theirs is not None and bool(mine.demos == theirs.demos)


def _behaviour(mixture: Any, thetas: Float) -> Float:
    """Return a row for each of thetas (n, d): expected features, or the rewards where these cannot be had."""
    expected = getattr(mixture.irl_, "expected_features", None)
    if expected is not None:
        try:
            return np.asarray(expected(mixture.mdp_, thetas), dtype=np.float64)
        except (DivergentPartition, NumericalError):
            pass  # the other's rewards may lie where this model has no finite sum
    return thetas


def assign(cost: Float) -> Order:
    """Return (K,) the columns of cost (K', K) in the order of the rows that they go with; those left over come last.

    Examples
    --------
    >>> assign(np.array([[5.0, 0.0, 5.0], [5.0, 5.0, 1.0]])).tolist()
    [1, 2, 0]
    """
    _, columns = linear_sum_assignment(cost)  # rows come sorted
    left = np.setdiff1d(np.arange(cost.shape[1]), columns)
    return np.concatenate([columns, left]).astype(np.int64)


def in_order_of_labels(mixture: IntentMixture, labels: NDArray[np.int64], n_labels: int) -> IntentMixture:
    """Return a copy of a mixture whose intent k is that which most resembles label k of its own demonstrations (N,).

    Examples
    --------
    >>> from limiirl import MDP, Demonstrations, IntentMixture, MaxEnt
    >>> mdp = MDP.from_edges([0, 0], [1, 2], p0=[1, 0, 0], state_features=[[0], [1], [-1]])
    >>> demos = Demonstrations.from_lists([[0, 1], [0, 1], [0, 2]])
    >>> mix = IntentMixture(2, MaxEnt(2, bounds=(-3, 3)), init=[0, 0, 1]).fit(mdp, demos)
    >>> in_order_of_labels(mix, np.array([1, 1, 0]), 2).labels_
    array([1, 1, 0])
    """
    truth = np.eye(n_labels)[labels]
    return permuted(mixture, assign(-(truth.T @ mixture.responsibilities_)))


def permuted(mixture: IntentMixture, order: Order) -> IntentMixture:
    """Return a copy of a fitted mixture whose intent k is what was intent order[k]; history and restarts follow.

    Examples
    --------
    >>> from limiirl import MDP, Demonstrations, IntentMixture, MaxEnt
    >>> mdp = MDP.from_edges([0, 0], [1, 2], p0=[1, 0, 0], state_features=[[0], [1], [-1]])
    >>> demos = Demonstrations.from_lists([[0, 1], [0, 1], [0, 2]])
    >>> mix = IntentMixture(2, MaxEnt(2, bounds=(-3, 3)), init=[0, 0, 1]).fit(mdp, demos)
    >>> permuted(mix, np.array([1, 0])).weights_.round(2)
    array([0.33, 0.67])
    """
    found: IntentMixture = clone(mixture)
    for name in vars(mixture).keys() - mixture.get_params(deep=False).keys():
        setattr(found, name, getattr(mixture, name))
    for name in ("weights_", "thetas_"):
        setattr(found, name, getattr(mixture, name)[order])
    for name in ("responsibilities_", "group_responsibilities_"):
        U = getattr(mixture, name, None)
        setattr(found, name, None if U is None else np.ascontiguousarray(U[:, order]))
    if found.responsibilities_ is not None:
        found.labels_ = np.argmax(found.responsibilities_, axis=1)
    found.history_ = [_permuted_iteration(entry, order) for entry in mixture.history_]
    found.restarts_ = [
        replace(start, ensemble=RewardEnsemble(start.ensemble.weights[order], start.ensemble.thetas[order]))
        for start in mixture.restarts_
    ]
    return found


def _permuted_iteration(entry: Iteration, order: Order) -> Iteration:
    event, word = entry.event, "reseeded "
    if event.startswith(word):  # it names an intent
        event = f"{word}{int(np.argmax(order == int(event.removeprefix(word))))}"
    return replace(entry, weights=entry.weights[order], event=event)
