"""EPIC and DARD: distances between rewards, invariant to potential shaping and positive scaling.

Both compare canonical forms C of R(s, a, s') by ``sqrt((1 - correlation) / 2)`` under a coverage distribution:

- EPIC: ``C = R + gamma E R(s', A, S') - E R(s, A, S') - gamma E R(S, A, S')``, with S, A and S' independent;
- DARD: ``C = R + gamma E R(s', A, S'') - E R(s, A, S') - gamma E R(S', A, S'')``, with S' ~ T(s, A), S'' ~ T(s', A).

Both are computed exactly on dense tensors, and depend on the rewards of infeasible transitions.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from limiirl._typing import FloatArray
from limiirl._validation import as_floats, scale_exponent
from limiirl.errors import InvalidParameter, NumericalError
from limiirl.mdp import MDP
from limiirl.metrics.evd import check_theta

# Maximum number of entries of a tensor (S, A, S), 128 MiB; a few tensors are in memory at a time.
_LARGEST = 2**24
# Relative deviation below which a canonical reward is constant, and distance below which rewards are equal.
_ROUNDING = 1e-12


def epic(mdp: MDP, theta_true: ArrayLike, theta_learned: ArrayLike, *, coverage: ArrayLike | None = None) -> float:
    """Return the EPIC distance in [0, 1]; it is 0 if two rewards are equal up to shaping and a positive factor.

    Distributions of states and actions are uniform. EPIC depends neither on transition probabilities nor on terminal
    states.

    Parameters
    ----------
    mdp : MDP
        Action features require all actions in every state; edge features require an edge for every (s, a, s').
    theta_true, theta_learned : (d,)
    coverage : (S, A, S), optional
        Weights of the transitions; default: uniform.

    Examples
    --------
    >>> mdp = MDP.from_edges([0, 0, 1], [1, 2, 2], gamma=0.5, state_features=np.eye(3))
    >>> epic(mdp, [0.0, 1.0, 2.0], [1.0, 3.0, 5.0]), epic(mdp, [0.0, 1.0, 2.0], [0.0, -1.0, -2.0])
    (0.0, 1.0)
    """
    return float(
        shaping_distances(mdp, *_check_thetas(mdp, theta_true, theta_learned), "epic", coverage=coverage)[0, 0]
    )


def dard(mdp: MDP, theta_true: ArrayLike, theta_learned: ArrayLike, *, coverage: ArrayLike | None = None) -> float:
    """Return the DARD distance in [0, 1]; it is 0 if two rewards are equal up to shaping and a positive factor.

    Actions are uniform over the available actions of a state. The reward of a terminal state is received once.

    Parameters
    ----------
    mdp : MDP
        Edge features require an edge for every (s, a, s'), because rewards of infeasible transitions affect DARD.
    theta_true, theta_learned : (d,)
    coverage : (E,), optional
        Weights of the edges; default: uniform.

    Examples
    --------
    >>> mdp = MDP.from_edges([0, 0, 1], [1, 2, 2], gamma=0.5, state_features=np.eye(3))
    >>> dard(mdp, [0.0, 1.0, 2.0], [9.0, 3.0, 6.0]), round(dard(mdp, [0.0, 1.0, 2.0], [0.0, 3.0, 2.0]), 6)
    (0.0, 1.0)
    """
    return float(
        shaping_distances(mdp, *_check_thetas(mdp, theta_true, theta_learned), "dard", coverage=coverage)[0, 0]
    )


def canonical_epic(reward: ArrayLike, gamma: float) -> FloatArray:
    """Return EPIC's canonical form of a reward (S, A, S), with uniform distributions of states and actions."""
    R = _check_tensor(reward, "reward")
    of_state, of_action = (np.full(n, 1.0 / n) for n in R.shape[:2])
    mean = np.einsum("a,sat,t->s", of_action, R, of_state)
    return np.asarray(R + gamma * (mean - of_state @ mean) - mean[:, None, None])


def canonical_dard(reward: ArrayLike, T: ArrayLike, gamma: float) -> FloatArray:
    """Return DARD's canonical form of a reward (S, A, S) under the dynamics T (S, A, S).

    An unavailable action (a row of zeros) is replaced by a uniformly drawn available action.
    """
    R, P = _check_tensor(reward, "reward"), _check_tensor(T, "T")
    if P.shape != R.shape:
        raise InvalidParameter.of("T", P.shape, f"must have the shape of the reward, {R.shape}")
    available = P.sum(axis=2) > 0.0
    n = available.sum(axis=1)
    if not n.all():
        i = int(np.argmin(n))
        rule = "must have an action in every state"
        raise InvalidParameter.of("T", 0, rule, index=i, remedy="Add an absorbing state with reward 0.")
    # Expected reward of a uniform available action.
    mean = np.einsum("sat,sat->s", P, R) / n
    # Replace unavailable actions by the mean of the available actions.
    P = np.where(available[:, :, None], P, (P.sum(axis=1) / n[:, None])[:, None, :])
    between = np.zeros((len(R), len(R)))
    for a in range(R.shape[1]):
        between += P[:, a] @ R[:, a] @ P[:, a].T
    between /= R.shape[1]
    return np.asarray(R + gamma * mean - mean[:, None, None] - gamma * between[:, None, :])


def pearson_distances(
    rows: FloatArray, columns: FloatArray, weights: FloatArray, scales: tuple[FloatArray, FloatArray]
) -> FloatArray:
    """Return ``sqrt((1 - correlation) / 2)`` (K', K) of vectors (K', n) and (K, n) under weights (n,).

    A vector is constant if its deviation is negligible relative to its scale. Two constant vectors have distance 0;
    a constant and a nonconstant vector have distance 1/sqrt(2).
    """
    p = weights / weights.sum() if weights.size else weights
    (x, flat_x), (y, flat_y) = (
        _standardise(values, p, scale) for values, scale in ((rows, scales[0]), (columns, scales[1]))
    )
    # Half the distance between the standardised vectors, which avoids cancellation.
    distances = np.array([[0.5 * np.sqrt(p @ (one - other) ** 2) for other in y] for one in x])
    distances = np.where(flat_x[:, None] | flat_y, np.sqrt(0.5), distances)
    same = (flat_x[:, None] & flat_y) | (distances < _ROUNDING)
    return np.asarray(np.where(same, 0.0, np.minimum(distances, 1.0)))


def shaping_distances(
    mdp: MDP, truth: FloatArray, learned: FloatArray, distance: str, *, coverage: ArrayLike | None = None
) -> FloatArray:
    """Return the EPIC or DARD distances (K', K) of rewards (K', d) and (K, d)."""
    form, weights = (_epic_form if distance == "epic" else _dard_form)(mdp, coverage)
    rows, columns = ([form(theta) for theta in thetas] for thetas in (truth, learned))
    (x, x_scale), (y, y_scale) = (tuple(map(np.array, zip(*part, strict=True))) for part in (rows, columns))
    return pearson_distances(x, y, weights, (x_scale, y_scale))


_Form = Callable[[FloatArray], tuple[FloatArray, float]]


def _epic_form(mdp: MDP, coverage: ArrayLike | None) -> tuple[_Form, FloatArray]:
    """Return a function from theta to its canonical reward and scale, and the weights of the transitions."""
    _check_size(mdp, mdp.n_states, "EPIC")
    _check_rewards(mdp, "EPIC", other_actions=True)
    shape = (mdp.n_states, max(mdp.n_actions, 1), mdp.n_states)

    def form(theta: FloatArray) -> tuple[FloatArray, float]:
        R = _rescale(_reward_tensor(mdp, theta))
        return canonical_epic(R, mdp.gamma).ravel(), float(np.abs(R).max())

    return form, _check_coverage(coverage, shape).ravel()


def _dard_form(mdp: MDP, coverage: ArrayLike | None) -> tuple[_Form, FloatArray]:
    n = mdp.n_states
    _check_size(mdp, n + 1, "DARD")
    _check_rewards(mdp, "DARD", other_actions=False)
    # An added absorbing state follows every terminal state.
    T = np.zeros((n + 1, max(mdp.n_actions, 1), n + 1))
    T[mdp.src, mdp.act, mdp.dst] = mdp.prob
    T[np.flatnonzero(mdp.terminal), :, n] = 1.0
    T[n, :, n] = 1.0

    def form(theta: FloatArray) -> tuple[FloatArray, float]:
        R = np.zeros_like(T)
        R[:n, :, :n] = _reward_tensor(mdp, theta)
        R[:n, :, n] = mdp.rewards(theta)[0]
        R = _rescale(R)
        C = canonical_dard(R, T, mdp.gamma)[mdp.src, mdp.act, mdp.dst]
        return C, float(np.abs(R).max())

    return form, _check_coverage(coverage, (mdp.n_edges,))


def _reward_tensor(mdp: MDP, theta: FloatArray) -> FloatArray:
    """Return R (S, A, S), the sum of state, action and edge rewards."""
    r_state = mdp.rewards(theta)[0][:, 0]
    R = np.zeros((mdp.n_states, max(mdp.n_actions, 1), mdp.n_states)) + r_state[:, None, None]
    _, of_action, of_edge = (part[0] for part in mdp.split(theta))
    if mdp.action_features is not None:
        rewards = np.asarray(mdp.action_features @ of_action)
        n = np.maximum(np.bincount(mdp.pair_state, minlength=mdp.n_states), 1)
        added = np.zeros(R.shape[:2]) + (np.bincount(mdp.pair_state, rewards, minlength=mdp.n_states) / n)[:, None]
        added[mdp.pair_state, mdp.pair_action] = rewards
        R += added[:, :, None]
    if mdp.edge_features is not None:
        R[mdp.src, mdp.act, mdp.dst] += np.asarray(mdp.edge_features @ of_edge)
    return R


def _rescale(R: FloatArray) -> FloatArray:
    """Divide extreme rewards by a power of two, which does not change distances."""
    if not np.all(np.isfinite(R)):
        message = "The rewards overflow float64. Use smaller parameters or features."
        raise NumericalError(message, parameter="theta")
    return np.ldexp(R, -scale_exponent(R))


def _standardise(values: FloatArray, p: FloatArray, scale: FloatArray) -> tuple[FloatArray, NDArray[np.bool_]]:
    centred = values - (values @ p)[:, None]
    deviation = np.sqrt(centred**2 @ p)
    flat = deviation <= _ROUNDING * scale
    return centred / np.where(flat, 1.0, deviation)[:, None], np.asarray(flat)


def _check_thetas(mdp: MDP, theta_true: ArrayLike, theta_learned: ArrayLike) -> tuple[FloatArray, FloatArray]:
    return check_theta(mdp, theta_true, "theta_true"), check_theta(mdp, theta_learned, "theta_learned")


def _check_size(mdp: MDP, n_states: int, name: str) -> None:
    if n_states**2 * mdp.n_actions > _LARGEST:
        rule = f"must have at most {_LARGEST:,} transitions (s, a, s') for {name}"
        raise InvalidParameter.of("mdp", n_states**2 * mdp.n_actions, rule, remedy="Use evd, or a smaller MDP.")


def _check_rewards(mdp: MDP, name: str, *, other_actions: bool) -> None:
    """Raise `InvalidParameter` unless the rewards of all transitions that affect the distance are defined."""
    if mdp.edge_features is not None and mdp.n_edges < mdp.n_states**2 * max(mdp.n_actions, 1):
        message = (
            f"mdp must have edge features for every (s, a, s'), feasible or not, to compute {name}; it has "
            f"{mdp.n_edges} edges. Use evd."
        )
        raise InvalidParameter(message, parameter="mdp", value=mdp.n_edges)
    lacking = np.flatnonzero(np.bincount(mdp.pair_state, minlength=mdp.n_states) < mdp.n_actions)
    lacking = lacking[~mdp.terminal[lacking]]
    if other_actions and mdp.action_features is not None and lacking.size:
        rule = f"must have all {mdp.n_actions} actions in every state for {name} with action features"
        raise InvalidParameter.of("mdp", int(lacking[0]), rule, index=int(lacking[0]), remedy="Use dard.")


def _check_tensor(values: ArrayLike, name: str) -> FloatArray:
    array = as_floats(values, name)
    if array.ndim != 3 or array.shape[0] != array.shape[2] or not np.isfinite(array).all():
        raise InvalidParameter.of(name, array.shape, "must be finite with shape (S, A, S)")
    return array


def _check_coverage(values: ArrayLike | None, shape: tuple[int, ...]) -> FloatArray:
    if values is None:
        return np.ones(shape)
    array = as_floats(values, "coverage")
    if array.shape != shape or not np.all(np.isfinite(array) & (array >= 0.0)) or not np.any(array):
        rule = f"must be finite nonnegative weights {shape}, not all zero"
        raise InvalidParameter.of("coverage", array.shape, rule)
    return np.ldexp(array, -scale_exponent(array))
