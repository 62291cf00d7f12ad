"""EPIC and DARD: distances between rewards that potential shaping and positive scaling leave unchanged.

Both bring a reward R(s, a, s') into a canonical form C that shaping does not change, and compare two of them by
``sqrt((1 - correlation) / 2)`` under a coverage distribution over transitions:

- EPIC: ``C = R + gamma E R(s', A, S') - E R(s, A, S') - gamma E R(S, A, S')``, with S, A and S' independent;
- DARD: ``C = R + gamma E R(s', A, S'') - E R(s, A, S') - gamma E R(S', A, S'')``, with S' ~ T(s, A), S'' ~ T(s', A).

They work on dense tensors, exactly. Both ask for rewards of transitions that cannot happen.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from limiirl._typing import FloatArray
from limiirl.errors import InvalidParameter
from limiirl.mdp import MDP
from limiirl.metrics.evd import check_theta

# Entries of a tensor (S, A, S): 128 MiB. A handful of them are held at a time.
_LARGEST = 2**24
# A canonical reward that varies by less than this share of the reward itself is constant, and a distance below it is 0.
_ROUNDING = 1e-12


def epic(mdp: MDP, theta_true: ArrayLike, theta_learned: ArrayLike, *, coverage: ArrayLike | None = None) -> float:
    """Return the EPIC distance of two rewards, in [0, 1]: 0 if they are equal up to shaping and a positive factor.

    States and actions are drawn uniformly, feasible or not; EPIC knows neither the dynamics nor terminal states.

    Parameters
    ----------
    mdp : MDP
        With rewards of states, or of actions that every state has, or of edges between all states.
    theta_true, theta_learned : (d,)
    coverage : (S, A, S), optional
        Weights of the transitions that are compared; by default all count alike.

    Examples
    --------
    >>> mdp = MDP.from_edges([0, 0, 1], [1, 2, 2], gamma=0.5, state_features=np.eye(3))
    >>> epic(mdp, [0.0, 1.0, 2.0], [1.0, 3.0, 5.0]), epic(mdp, [0.0, 1.0, 2.0], [0.0, -1.0, -2.0])
    (0.0, 1.0)
    """
    return float(shaping_distances(mdp, *_both(mdp, theta_true, theta_learned), "epic", coverage=coverage)[0, 0])


def dard(mdp: MDP, theta_true: ArrayLike, theta_learned: ArrayLike, *, coverage: ArrayLike | None = None) -> float:
    """Return the DARD distance of two rewards, in [0, 1]: 0 if they are equal up to shaping and a positive factor.

    Actions are drawn uniformly among those that a state has. After a terminal state, whose reward is earned once,
    nothing follows.

    Parameters
    ----------
    mdp : MDP
        Rewards of edges need an edge between all states: DARD asks for R(S', A, S''), feasible or not.
    theta_true, theta_learned : (d,)
    coverage : (E,), optional
        Weights of the edges that are compared; by default all count alike.

    Examples
    --------
    >>> mdp = MDP.from_edges([0, 0, 1], [1, 2, 2], gamma=0.5, state_features=np.eye(3))
    >>> dard(mdp, [0.0, 1.0, 2.0], [9.0, 3.0, 6.0]), round(dard(mdp, [0.0, 1.0, 2.0], [0.0, 3.0, 2.0]), 6)
    (0.0, 1.0)
    """
    return float(shaping_distances(mdp, *_both(mdp, theta_true, theta_learned), "dard", coverage=coverage)[0, 0])


def canonical_epic(
    reward: ArrayLike, gamma: float, *, states: ArrayLike | None = None, actions: ArrayLike | None = None
) -> FloatArray:
    """Return EPIC's canonical form (S, A, S) of a reward (S, A, S), states and actions drawn as told, or uniformly.

    Examples
    --------
    >>> potential = np.array([3.0, -1.0])
    >>> shaping = 0.9 * potential - potential[:, None, None] + np.zeros((2, 2, 2))
    >>> canonical_epic(shaping, 0.9).round(12).any()
    np.False_
    """
    R = _tensor(reward, "reward")
    of_state = _distribution(states, R.shape[0], "states")
    mean = np.einsum("a,sat,t->s", _distribution(actions, R.shape[1], "actions"), R, of_state)
    return np.asarray(R + gamma * (mean - of_state @ mean) - mean[:, None, None])


def canonical_dard(reward: ArrayLike, T: ArrayLike, gamma: float) -> FloatArray:
    """Return DARD's canonical form (S, A, S) of a reward (S, A, S) under the dynamics T (S, A, S).

    An action that a state lacks (a row of zeros) is replaced by a draw among those that it has. A terminal state leads
    to a state of its own, in which nothing is earned.

    Examples
    --------
    >>> potential = np.array([3.0, -1.0])
    >>> shaping = 0.9 * potential - potential[:, None, None] + np.zeros((2, 2, 2))
    >>> T = np.array([[[0.5, 0.5], [1.0, 0.0]], [[0.2, 0.8], [0.0, 1.0]]])
    >>> canonical_dard(shaping, T, 0.9).round(12).any()
    np.False_
    """
    R, P = _tensor(reward, "reward"), _tensor(T, "T")
    if P.shape != R.shape:
        raise InvalidParameter(
            f"T must have the shape of the reward, {R.shape}; got {P.shape}. Pass (S, A, S) both.", parameter="T"
        )
    available = P.sum(axis=2) > 0.0
    n = available.sum(axis=1)
    if not n.all():
        raise InvalidParameter(
            f"Every state must have an action; state {int(np.argmin(n))} has none. Let it lead to one more state, "
            "which leads to itself and earns nothing.",
            parameter="T",
            index=int(np.argmin(n)),
        )
    # What a state earns next, by the actions that it has.
    mean = np.einsum("sat,sat->s", P, R) / n
    # In place of an absent action, the mean of the others: a uniform draw of an action is then a draw among these.
    P = np.where(available[:, :, None], P, (P.sum(axis=1) / n[:, None])[:, None, :])
    between = np.zeros((len(R), len(R)))
    for a in range(R.shape[1]):
        between += P[:, a] @ R[:, a] @ P[:, a].T
    between /= R.shape[1]
    return np.asarray(R + gamma * mean - mean[:, None, None] - gamma * between[:, None, :])


def pearson_distances(
    rows: FloatArray, columns: FloatArray, weights: FloatArray, scales: tuple[FloatArray, FloatArray]
) -> FloatArray:
    """Return ``sqrt((1 - correlation) / 2)`` (K', K) of vectors (K', n) with vectors (K, n) under weights (n,).

    A vector whose deviation is nothing beside its scale is constant: two of these are at distance 0, and one is at
    distance 1/sqrt(2) from all others.

    Examples
    --------
    >>> x = np.array([[1.0, 2.0, 3.0], [1.0, 1.0, 1.0]])
    >>> pearson_distances(x, x, np.ones(3), (np.ones(2), np.ones(2))).round(3)
    array([[0.   , 0.707],
           [0.707, 0.   ]])
    """
    share = weights / weights.sum() if weights.size else weights
    (x, flat_x), (y, flat_y) = (
        _standardised(values, share, scale) for values, scale in ((rows, scales[0]), (columns, scales[1]))
    )
    # Half the distance of the standardised vectors is the same number, without its cancellation.
    found = np.array([[0.5 * np.sqrt(share @ (one - other) ** 2) for other in y] for one in x])
    found = np.where(flat_x[:, None] | flat_y, np.sqrt(0.5), found)
    same = (flat_x[:, None] & flat_y) | (found < _ROUNDING)
    return np.asarray(np.where(same, 0.0, np.minimum(found, 1.0)))


def shaping_distances(
    mdp: MDP, truth: FloatArray, learned: FloatArray, distance: str, *, coverage: ArrayLike | None = None
) -> FloatArray:
    """Return the EPIC or DARD distances (K', K) of rewards (K', d) and (K, d); each is made canonical once.

    Examples
    --------
    >>> mdp = MDP.from_edges([0, 0, 1], [1, 2, 2], gamma=0.5, state_features=np.eye(3))
    >>> shaping_distances(mdp, np.eye(3)[:1], np.array([[2.0, 0.0, 0.0], [0.0, 1.0, 1.0]]), "epic")
    array([[0., 1.]])
    """
    form, weights = (_epic_form if distance == "epic" else _dard_form)(mdp, coverage)
    rows, columns = ([form(theta) for theta in thetas] for thetas in (truth, learned))
    found = [(np.array([c for c, _ in part]), np.array([size for _, size in part])) for part in (rows, columns)]
    return pearson_distances(found[0][0], found[1][0], weights, (found[0][1], found[1][1]))


_Form = Callable[[FloatArray], tuple[FloatArray, float]]


def _epic_form(mdp: MDP, coverage: ArrayLike | None) -> tuple[_Form, FloatArray]:
    """Return what makes a theta canonical, with the size of its reward, and the weights of the transitions."""
    _check_size(mdp, mdp.n_states, "EPIC")
    _check_known(mdp, "EPIC", other_actions=True)
    shape = (mdp.n_states, max(mdp.n_actions, 1), mdp.n_states)

    def form(theta: FloatArray) -> tuple[FloatArray, float]:
        R = _reward(mdp, theta)
        return canonical_epic(R, mdp.gamma).ravel(), float(np.abs(R).max())

    return form, _weights(coverage, shape).ravel()


def _dard_form(mdp: MDP, coverage: ArrayLike | None) -> tuple[_Form, FloatArray]:
    n = mdp.n_states
    _check_size(mdp, n + 1, "DARD")
    _check_known(mdp, "DARD", other_actions=False)
    # One state more follows the terminal ones.
    T = np.zeros((n + 1, max(mdp.n_actions, 1), n + 1))
    T[mdp.src, mdp.act, mdp.dst] = mdp.prob
    T[np.flatnonzero(mdp.terminal), :, n] = 1.0
    T[n, :, n] = 1.0

    def form(theta: FloatArray) -> tuple[FloatArray, float]:
        R = np.zeros_like(T)
        R[:n, :, :n] = _reward(mdp, theta)
        R[:n, :, n] = mdp.rewards(theta)[0]
        C = canonical_dard(R, T, mdp.gamma)[mdp.src, mdp.act, mdp.dst]
        return C, float(np.abs(R).max())

    return form, _weights(coverage, (mdp.n_edges,))


def _reward(mdp: MDP, theta: FloatArray) -> FloatArray:
    """Return R (S, A, S): r(s) everywhere, and what actions and edges add."""
    r_state = mdp.rewards(theta)[0][:, 0]
    R = np.zeros((mdp.n_states, max(mdp.n_actions, 1), mdp.n_states)) + r_state[:, None, None]
    _, of_action, of_edge = (part[0] for part in mdp.split(theta))
    if mdp.action_features is not None:
        earned = np.asarray(mdp.action_features @ of_action)
        n = np.maximum(np.bincount(mdp.pair_state, minlength=mdp.n_states), 1)
        added = np.zeros(R.shape[:2]) + (np.bincount(mdp.pair_state, earned, minlength=mdp.n_states) / n)[:, None]
        added[mdp.pair_state, mdp.pair_action] = earned
        R += added[:, :, None]
    if mdp.edge_features is not None:
        R[mdp.src, mdp.act, mdp.dst] += np.asarray(mdp.edge_features @ of_edge)
    return R


def _standardised(values: FloatArray, share: FloatArray, scale: FloatArray) -> tuple[FloatArray, NDArray[np.bool_]]:
    centred = values - (values @ share)[:, None]
    deviation = np.sqrt(centred**2 @ share)
    flat = deviation <= _ROUNDING * scale
    return centred / np.where(flat, 1.0, deviation)[:, None], np.asarray(flat)


def _both(mdp: MDP, theta_true: ArrayLike, theta_learned: ArrayLike) -> tuple[FloatArray, FloatArray]:
    return check_theta(mdp, theta_true, "theta_true"), check_theta(mdp, theta_learned, "theta_learned")


def _check_size(mdp: MDP, n_states: int, name: str) -> None:
    if n_states**2 * mdp.n_actions > _LARGEST:
        raise InvalidParameter(
            f"{name} works on dense tensors of at most {_LARGEST:,} transitions (s, a, s'); {n_states:,} states with "
            f"{mdp.n_actions} actions have {n_states**2 * mdp.n_actions:,}. Use evd, or a smaller MDP.",
            parameter="mdp",
            value=n_states,
        )


def _check_known(mdp: MDP, name: str, *, other_actions: bool) -> None:
    """Rewards must be known where the distance asks for them, also where nothing leads."""
    if mdp.edge_features is not None and mdp.n_edges < mdp.n_states**2 * max(mdp.n_actions, 1):
        raise InvalidParameter(
            f"{name} asks for the reward of every (s, a, s'), feasible or not; this MDP has edge features on "
            f"{mdp.n_edges:,} edges only. Use evd, or canonical_{name.lower()} on rewards given as (S, A, S).",
            parameter="mdp",
        )
    lacking = np.flatnonzero(np.bincount(mdp.pair_state, minlength=mdp.n_states) < mdp.n_actions)
    lacking = lacking[~mdp.terminal[lacking]]
    if other_actions and mdp.action_features is not None and lacking.size:
        raise InvalidParameter(
            f"{name} asks for the reward of every action in every state; state {lacking[0]} lacks some of the "
            f"{mdp.n_actions}. Use dard, which draws among the actions that a state has.",
            parameter="mdp",
        )


def _tensor(values: ArrayLike, name: str) -> FloatArray:
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 3 or array.shape[0] != array.shape[2] or not np.isfinite(array).all():
        raise InvalidParameter(f"{name} must be finite, of shape (S, A, S); got shape {array.shape}.", parameter=name)
    return array


def _weights(values: ArrayLike | None, shape: tuple[int, ...]) -> FloatArray:
    if values is None:
        return np.ones(shape)
    array = np.asarray(values, dtype=np.float64)
    if array.shape != shape or not np.all(np.isfinite(array) & (array >= 0.0)) or array.sum() <= 0.0:
        raise InvalidParameter(
            f"coverage must be {shape} weights, nonnegative and not all zero; got shape {array.shape} with sum "
            f"{array.sum():.6g}. Give each transition its weight.",
            parameter="coverage",
        )
    return array


def _distribution(values: ArrayLike | None, n: int, name: str) -> FloatArray:
    if values is None:
        return np.full(n, 1.0 / n)
    array = np.asarray(values, dtype=np.float64)
    if array.shape != (n,) or not np.all(array >= 0.0) or not abs(array.sum() - 1.0) <= 1e-8:
        raise InvalidParameter(
            f"{name} must be {n} probabilities that sum to 1; got shape {array.shape} with sum {array.sum():.9g}. "
            "Divide them by their sum.",
            parameter=name,
        )
    return array
