"""Expected value difference (EVD), inverse learning error (ILE), and their ranges over tie-breaking rules.

Paper: section "MI-IRL Performance Metrics". With V* the optimal values of the true reward, and V the values under the
true reward of the policy that is optimal for the learned reward, ``EVD = p0 . (V* - V)`` and ``ILE = |V* - V|_1``. Ties
are broken uniformly at random; the interval spans the best and the worst tie-breaking.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from limiirl._typing import FloatArray
from limiirl._validation import check_type
from limiirl.errors import InvalidParameter, NumericalError
from limiirl.mdp import MDP, optimal_policy, optimal_values, policy_values

TIES = 1e-6
"""Actions are tied if their Q-values differ by less than this fraction of the range of Q."""

# Relative accuracy of planning; smaller losses are rounding errors.
_RESOLUTION = 1e-11


def evd(mdp: MDP, theta_true: ArrayLike, theta_learned: ArrayLike, *, tol: float = TIES) -> float:
    """Return the expected value difference ``p0 @ (V* - V)``, which is nonnegative and not symmetric.

    With gamma = 1, an error is raised if a reward has no finite optimum, or if the learned policy never terminates.

    Parameters
    ----------
    mdp : MDP
    theta_true, theta_learned : (d,)
    tol : float
        Actions are tied if their Q-values differ by less than this fraction of the range of Q.

    Examples
    --------
    >>> mdp = MDP.from_edges([0, 0, 0], [1, 2, 3], 4, gamma=0.5, state_features=np.eye(4))
    >>> true, learned = [0.0, 4.0, 2.0, 0.0], [0.0, 0.0, 1.0, 1.0]
    >>> evd(mdp.replace(p0=[1.0, 0.0, 0.0, 0.0]), true, learned)
    1.5
    """
    check_type(mdp, "mdp", MDP)
    return float(_compute_single(mdp, theta_true, theta_learned, mdp.p0, tol, ties=False).value[0, 0])


def ile(mdp: MDP, theta_true: ArrayLike, theta_learned: ArrayLike, *, tol: float = TIES) -> float:
    """Return the inverse learning error ``|V* - V|_1``, S times the EVD for a uniform start distribution. See `evd`.

    Examples
    --------
    >>> mdp = MDP.from_edges([0, 0, 1, 1], [2, 3, 2, 3], 4, gamma=0.5, state_features=np.eye(4))
    >>> ile(mdp, [0.0, 0.0, 4.0, 2.0], [0.0, 0.0, 0.0, 1.0])
    2.0
    """
    check_type(mdp, "mdp", MDP)
    return float(_compute_single(mdp, theta_true, theta_learned, np.ones(mdp.n_states), tol, ties=False).value[0, 0])


def evd_interval(
    mdp: MDP, theta_true: ArrayLike, theta_learned: ArrayLike, *, tol: float = TIES
) -> tuple[float, float, float]:
    """Return (low, EVD, high), where low and high are the EVD of the best and the worst tie-breaking.

    The range is over all policies that are optimal for the learned reward; with gamma = 1, `high` may be infinite.
    See `evd`.

    Examples
    --------
    >>> mdp = MDP.from_edges([0, 0, 0], [1, 2, 3], 4, gamma=0.5, p0=[1.0, 0.0, 0.0, 0.0], state_features=np.eye(4))
    >>> evd_interval(mdp, [0.0, 4.0, 2.0, 0.0], [0.0, 0.0, 1.0, 1.0])
    (1.0, 1.5, 2.0)
    """
    check_type(mdp, "mdp", MDP)
    return _to_interval(_compute_single(mdp, theta_true, theta_learned, mdp.p0, tol, ties=True))


def ile_interval(
    mdp: MDP, theta_true: ArrayLike, theta_learned: ArrayLike, *, tol: float = TIES
) -> tuple[float, float, float]:
    """Return (low, ILE, high), with the ILE of the best and the worst tie-breaking; see `evd_interval`.

    Examples
    --------
    >>> mdp = MDP.from_edges([0, 0, 1, 1], [2, 3, 2, 3], 4, gamma=0.5, state_features=np.eye(4))
    >>> ile_interval(mdp, [0.0, 0.0, 4.0, 2.0], [0.0, 0.0, 1.0, 1.0])
    (0.0, 1.0, 2.0)
    """
    check_type(mdp, "mdp", MDP)
    return _to_interval(_compute_single(mdp, theta_true, theta_learned, np.ones(mdp.n_states), tol, ties=True))


def _to_interval(regrets: Regrets) -> tuple[float, float, float]:
    return float(regrets.low[0, 0]), float(regrets.value[0, 0]), float(regrets.high[0, 0])


@dataclass(frozen=True)
class Regrets:
    """Regrets (K', K) of the policies of K learned rewards under K' true rewards.

    Ties are broken to minimise the regret (`low`), uniformly at random (`value`) or to maximise the regret (`high`).
    """

    low: FloatArray
    value: FloatArray
    high: FloatArray


def compute_regrets(
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
    """Return the regrets ``weights @ (V* - V)`` of learned rewards (K, d) under true rewards (K', d).

    `optimum` (K', S) contains the optimal values of the true rewards. If `ties` is False, the range over tie-breaking
    rules is not computed, and `low` and `high` equal `value`. `names` are the names of the rewards in error messages.
    """
    shape = (len(truth), len(learned))
    low, value, high = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    for j, theta in enumerate(learned):
        with prefix_errors(names[1], j):
            policy = optimal_policy(mdp, theta, tol=tol)
        tied = ties and bool(np.any((policy > 0.0) & (policy < 1.0)))
        restricted = _restrict(mdp, policy > 0.0) if tied else mdp
        for i, true in enumerate(truth):
            with prefix_errors(f"{_label(names[1], j)} evaluated under {names[0]}", i):
                value[i, j] = _loss(optimum[i], policy_values(mdp, policy, true), weights)
            low[i, j] = high[i, j] = value[i, j]
            if tied:
                best = optimal_values(restricted, true)
                low[i, j] = min(value[i, j], _loss(optimum[i], best, weights))
                high[i, j] = max(value[i, j], _loss(optimum[i], worst_values(restricted, true), weights))
    return Regrets(low, value, high)


def compute_optimal_values(mdp: MDP, thetas: FloatArray, name: str = "truth.thetas") -> FloatArray:
    """Return the optimal values V* (K, S) of K rewards."""
    values = np.empty((len(thetas), mdp.n_states))
    for i, theta in enumerate(thetas):
        with prefix_errors(name, i):
            values[i] = optimal_values(mdp, theta)
    return values


def worst_values(mdp: MDP, theta: FloatArray) -> FloatArray:
    """Return the values (S,) of the worst policy; -inf if the undiscounted reward is unbounded below."""
    try:
        return optimal_values(mdp, theta, minimise=True)
    except InvalidParameter:
        # The optimal values are finite, so the error means that the loss is unbounded.
        if mdp.gamma < 1.0:
            raise
        return np.full(mdp.n_states, -np.inf)


@contextmanager
def prefix_errors(name: str, index: int) -> Iterator[None]:
    """Prefix the messages of planning errors with the name and index of the reward."""
    try:
        yield
    except (InvalidParameter, NumericalError) as error:
        own = index if name.endswith("s") else None
        parameter = re.split("[ .]", name)[0]
        message = f"{_label(name, index)}: {error}"
        raise type(error)(message, parameter=parameter, value=error.value, index=own) from error


def check_theta(mdp: MDP, theta: ArrayLike, name: str) -> FloatArray:
    """Validate one reward vector, and return it as (1, d)."""
    check_type(mdp, "mdp", MDP)
    with prefix_errors(name, 0):
        row = mdp.check_thetas(theta)
        if len(row) != 1:
            message = f"must be one reward vector; got {len(row)}. Use gevd for ensembles."
            raise InvalidParameter(message, value=len(row))
    return row


def _label(name: str, index: int) -> str:
    """Return "name[index]" for a plural name, otherwise "name"."""
    return f"{name}[{index}]" if name.endswith("s") else name


def _compute_single(
    mdp: MDP, theta_true: ArrayLike, theta_learned: ArrayLike, weights: FloatArray, tol: float, *, ties: bool
) -> Regrets:
    names = ("theta_true", "theta_learned")
    truth, learned = check_theta(mdp, theta_true, names[0]), check_theta(mdp, theta_learned, names[1])
    return compute_regrets(
        mdp, compute_optimal_values(mdp, truth, names[0]), truth, learned, weights, tol=tol, ties=ties, names=names
    )


def _loss(optimum: FloatArray, values: FloatArray, weights: FloatArray) -> float:
    """Return ``weights @ (V* - V)``; rounding errors are set to 0, so that the loss of equal values is exactly 0."""
    loss = optimum - values
    slack = _RESOLUTION * float(np.abs(optimum[weights > 0.0]).max(initial=0.0))
    counts = (loss > slack) & (weights > 0.0)
    return float(weights[counts] @ loss[counts])


def _restrict(mdp: MDP, used: NDArray[np.bool_]) -> MDP:
    """Return the MDP with only the state-action pairs in the mask `used` (P,)."""
    edges = used[mdp.pair_of_edge]
    rows = {"action_features": used, "edge_features": edges}
    features = {name: getattr(mdp, name)[kept] for name, kept in rows.items() if getattr(mdp, name) is not None}
    parts = {name: getattr(mdp, name)[edges] for name in ("src", "act", "dst", "prob")}
    return mdp.replace(**parts, **features)
