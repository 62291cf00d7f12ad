"""What is lost by following a learned reward where another one is true: EVD, ILE, and their interval over ties.

Paper: section "MI-IRL Performance Metrics". With V* the optimal values of the true reward, and V the values, under the
true reward, of the policy that is optimal for the learned one, ``EVD = p0 . (V* - V)`` and ``ILE = |V* - V|_1``.

Where several actions are optimal for the learned reward, the policy mixes them equally; the interval over ties tells
what the best and the worst choice among them would lose.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from limiirl._typing import FloatArray
from limiirl.errors import InvalidParameter, NumericalError
from limiirl.mdp import MDP, optimal_policy, optimal_values, policy_values

TIES = 1e-6
"""Actions whose Q differs by less than this share of the range of Q are equally good."""

# Planning proves 11 digits of a value; a smaller loss is rounding.
_RESOLUTION = 1e-11


def evd(mdp: MDP, theta_true: ArrayLike, theta_learned: ArrayLike, *, tol: float = TIES) -> float:
    """Return the expected value difference ``p0 @ (V* - V)``, nonnegative; the order of the rewards matters.

    It is an error, at a discount of 1, if a reward has no finite optimum, or if the learned reward's policy never ends
    where the true reward still counts.

    Parameters
    ----------
    mdp : MDP
    theta_true, theta_learned : (d,)
        The reward that counts, and the one whose optimal policy is followed.
    tol : float
        Actions tie where their Q differs by less than this share of the range of Q.

    Examples
    --------
    >>> mdp = MDP.from_edges([0, 0, 0], [1, 2, 3], 4, gamma=0.5, state_features=np.eye(4))
    >>> true, learned = [0.0, 4.0, 2.0, 0.0], [0.0, 0.0, 1.0, 1.0]
    >>> evd(mdp.replace(p0=[1.0, 0.0, 0.0, 0.0]), true, learned)
    1.5
    """
    return float(_single(mdp, theta_true, theta_learned, mdp.p0, tol, ties=False).value[0, 0])


def ile(mdp: MDP, theta_true: ArrayLike, theta_learned: ArrayLike, *, tol: float = TIES) -> float:
    """Return the inverse learning error ``|V* - V|_1``: S times the EVD of a uniform start. Arguments as in `evd`.

    Examples
    --------
    >>> mdp = MDP.from_edges([0, 0, 1, 1], [2, 3, 2, 3], 4, gamma=0.5, state_features=np.eye(4))
    >>> ile(mdp, [0.0, 0.0, 4.0, 2.0], [0.0, 0.0, 0.0, 1.0])
    2.0
    """
    return float(_single(mdp, theta_true, theta_learned, np.ones(mdp.n_states), tol, ties=False).value[0, 0])


def evd_interval(
    mdp: MDP, theta_true: ArrayLike, theta_learned: ArrayLike, *, tol: float = TIES
) -> tuple[float, float, float]:
    """Return (low, EVD, high): the least and the most that a policy optimal for the learned reward may lose.

    The learned reward leaves a set of best actions in every state. Planning under the true reward within these sets,
    once for the best and once for the worst, gives the ends. At a discount of 1 the worst may be infinite. Arguments
    as in `evd`.

    Examples
    --------
    >>> mdp = MDP.from_edges([0, 0, 0], [1, 2, 3], 4, gamma=0.5, p0=[1.0, 0.0, 0.0, 0.0], state_features=np.eye(4))
    >>> evd_interval(mdp, [0.0, 4.0, 2.0, 0.0], [0.0, 0.0, 1.0, 1.0])
    (1.0, 1.5, 2.0)
    """
    return _ends(_single(mdp, theta_true, theta_learned, mdp.p0, tol, ties=True))


def ile_interval(
    mdp: MDP, theta_true: ArrayLike, theta_learned: ArrayLike, *, tol: float = TIES
) -> tuple[float, float, float]:
    """Return (low, ILE, high), as `evd_interval` does for EVD.

    Examples
    --------
    >>> mdp = MDP.from_edges([0, 0, 1, 1], [2, 3, 2, 3], 4, gamma=0.5, state_features=np.eye(4))
    >>> ile_interval(mdp, [0.0, 0.0, 4.0, 2.0], [0.0, 0.0, 1.0, 1.0])
    (0.0, 1.0, 2.0)
    """
    return _ends(_single(mdp, theta_true, theta_learned, np.ones(mdp.n_states), tol, ties=True))


def _ends(found: Regrets) -> tuple[float, float, float]:
    return float(found.low[0, 0]), float(found.value[0, 0]), float(found.high[0, 0])


@dataclass(frozen=True)
class Regrets:
    """What the optimal policies of K rewards lose under K' others.

    Attributes
    ----------
    low, value, high : (K', K)
        With ties broken for the best, at random, and for the worst.
    """

    low: FloatArray
    value: FloatArray
    high: FloatArray


def regrets(
    mdp: MDP,
    optimum: FloatArray,
    truth: FloatArray,
    learned: FloatArray,
    weights: FloatArray,
    *,
    tol: float = TIES,
    ties: bool = True,
    names: tuple[str, str] = ("truth.thetas", "learned.thetas"),
) -> Regrets:
    """Return the weighted sums over states of ``V* - V`` of every true reward with every learned one.

    Each learned reward is planned for once, not once a pair.

    Parameters
    ----------
    mdp : MDP
    optimum : (K', S)
        V* of the true rewards; see `optima`.
    truth, learned : (K', d), (K, d)
    weights : (S,)
        Of the states: p0 for EVD, ones for ILE.
    tol : float
        As in `evd`.
    ties : bool
        Whether to look for the interval; else `low` and `high` are `value`.
    names : two strings
        What errors call the rewards.

    Examples
    --------
    >>> mdp = MDP.from_edges([0, 0], [1, 2], 3, gamma=0.5, state_features=np.eye(3))
    >>> thetas = np.array([[0.0, 4.0, 2.0], [0.0, 0.0, 4.0]])
    >>> regrets(mdp, optima(mdp, thetas), thetas, thetas, mdp.p0).value
    array([[0., 1.],
           [2., 0.]])
    """
    shape = (len(truth), len(learned))
    low, value, high = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    for j, theta in enumerate(learned):
        with blame(names[1], j):
            policy = optimal_policy(mdp, theta, tol=tol)
        tied = ties and bool(np.any((policy > 0.0) & (policy < 1.0)))
        choices = _restricted(mdp, policy > 0.0) if tied else mdp
        for i, true in enumerate(truth):
            with blame(f"{_label(names[1], j)} judged by {names[0]}", i):
                value[i, j] = _loss(optimum[i], policy_values(mdp, policy, true), weights)
            low[i, j] = high[i, j] = value[i, j]
            if tied:
                best = optimal_values(choices, true)
                low[i, j] = min(value[i, j], _loss(optimum[i], best, weights))
                high[i, j] = max(value[i, j], _loss(optimum[i], worst_values(choices, true), weights))
    return Regrets(low, value, high)


def optima(mdp: MDP, thetas: FloatArray, name: str = "truth.thetas") -> FloatArray:
    """Return V* (K, S) of K rewards; errors tell which.

    Examples
    --------
    >>> optima(MDP.from_edges([0], [1], gamma=0.5, state_features=[0.0, 4.0]), np.array([[1.0], [2.0]]))
    array([[2., 4.],
           [4., 8.]])
    """
    found = np.empty((len(thetas), mdp.n_states))
    for i, theta in enumerate(thetas):
        with blame(name, i):
            found[i] = optimal_values(mdp, theta)
    return found


def worst_values(mdp: MDP, theta: FloatArray) -> FloatArray:
    """Return the values (S,) of the worst policy: -inf in all states where, undiscounted, one loses without bound.

    Examples
    --------
    >>> worst_values(MDP.from_edges([0, 0], [0, 1], gamma=1.0, state_features=[-1.0, 0.0]), np.array([1.0]))
    array([-inf, -inf])
    """
    try:
        return optimal_values(mdp, theta, minimise=True)
    except InvalidParameter:
        # Only the total may be at fault: V* of this theta was found before.
        if mdp.gamma < 1.0:
            raise
        return np.full(mdp.n_states, -np.inf)


@contextmanager
def blame(name: str, index: int) -> Iterator[None]:
    """Let errors of planning begin with the name and number of the reward that was planned for.

    Examples
    --------
    >>> mdp = MDP.from_edges([0, 1], [1, 0], gamma=1.0, state_features=[-1.0, -1.0])
    >>> with blame("truth.thetas", 2):
    ...     optimal_values(mdp, [1.0])
    Traceback (most recent call last):
    limiirl.errors.InvalidParameter: truth.thetas[2]: At a discount of 1 the total reward must be finite; from state ...
    """
    try:
        yield
    except (InvalidParameter, NumericalError) as error:
        raise type(error)(
            f"{_label(name, index)}: {error}",
            parameter=re.split("[ .]", name)[0],
            value=error.value,
            index=index if name.endswith("s") else None,
        ) from error


def check_theta(mdp: MDP, theta: ArrayLike, name: str) -> FloatArray:
    """Return one reward as (1, d), or raise an error that names it.

    Examples
    --------
    >>> check_theta(MDP.from_edges([0], [1]), [1.0], "theta_true")
    Traceback (most recent call last):
    limiirl.errors.InvalidParameter: theta_true: thetas must have shape (K, 2) or (2,), one entry per feature (state[...
    """
    with blame(name, 0):
        found = mdp.check_thetas(theta)
        if len(found) != 1:
            raise InvalidParameter(
                f"must be one reward; got {len(found)} rows. Use gevd for ensembles.", value=len(found)
            )
    return found


def _label(name: str, index: int) -> str:
    """A name ending in s stands for several rewards."""
    return f"{name}[{index}]" if name.endswith("s") else name


def _single(
    mdp: MDP, theta_true: ArrayLike, theta_learned: ArrayLike, weights: FloatArray, tol: float, *, ties: bool
) -> Regrets:
    names = ("theta_true", "theta_learned")
    truth, learned = check_theta(mdp, theta_true, names[0]), check_theta(mdp, theta_learned, names[1])
    return regrets(mdp, optima(mdp, truth, names[0]), truth, learned, weights, tol=tol, ties=ties, names=names)


def _loss(optimum: FloatArray, values: FloatArray, weights: FloatArray) -> float:
    """Sum V* - V over the states; what is rounding counts as nothing, so that equals lose exactly nothing."""
    loss = optimum - values
    slack = _RESOLUTION * float(np.abs(optimum[weights > 0.0]).max(initial=0.0))
    counts = (loss > slack) & (weights > 0.0)
    return float(weights[counts] @ loss[counts])


def _restricted(mdp: MDP, used: NDArray[np.bool_]) -> MDP:
    """Return the MDP in which only some (s, a) pairs are available."""
    edges = used[mdp.pair_of_edge]
    rows = {"action_features": used, "edge_features": edges}
    features = {name: getattr(mdp, name)[kept] for name, kept in rows.items() if getattr(mdp, name) is not None}
    parts = {name: getattr(mdp, name)[edges] for name in ("src", "act", "dst", "prob")}
    return mdp.replace(**parts, **features)
