"""Conditional means of path features, carried along the edges, for the exact Hessian; and the growth bound."""

import math
from typing import Any

import numpy as np
from numba import njit, prange
from numpy.typing import NDArray

from limiirl.kernels.graph import Neighbours, Rewards
from limiirl.kernels.simd import exp
from limiirl.kernels.threading import BLOCK, LOCK, ONLY_PRANGE


@njit(forceinline=True, error_model="numpy")
def _edge_feature(edge_phi: Any, scale: float, e: int, j: int) -> float:
    if edge_phi is None:
        return 0.0
    return scale * edge_phi[e, j]


@njit(forceinline=True, error_model="numpy")
def _add(total: Any, row: int, j: int, value: float) -> None:
    if total is not None:
        total[row, j] += value


@njit(cache=True, error_model="numpy")
def _block(
    near: Any,
    share: Any,
    marginals: Any,
    phi: Any,
    edge_phi: Any,
    mean: Any,
    out: Any,
    sums: Any,
    gains: Any,
    lo: int,
    hi: int,
) -> None:
    node_total, edge_total = sums
    node_gain, edge_gain = gains
    n_features = phi.shape[1]
    for s in range(lo, hi):
        for j in range(n_features):
            out[s, j] = node_gain * phi[s, j]
        for e in range(near.ptr[s], near.ptr[s + 1]):
            if share[e] > 0.0:
                other = near.idx[e]
                for j in range(n_features):
                    carried = share[e] * (mean[other, j] + _edge_feature(edge_phi, edge_gain, e, j))
                    out[s, j] += carried
                    _add(edge_total, e, j, edge_gain * marginals[s] * carried)
        for j in range(n_features):
            _add(node_total, s, j, node_gain * marginals[s] * out[s, j])


@njit(cache=True, error_model="numpy")
def _serial(
    near: Any, share: Any, marginals: Any, phi: Any, edge_phi: Any, mean: Any, sums: Any, node_gain: Any, edge_gain: Any
) -> None:
    for i in range(share.shape[0]):
        gains = (node_gain[i], edge_gain[i])
        _block(
            near, share[i], marginals[i], phi, edge_phi, mean[i % 2], mean[(i + 1) % 2], sums, gains, 0, phi.shape[0]
        )


@njit(parallel=ONLY_PRANGE, cache=True, error_model="numpy")
def _parallel(
    near: Any, share: Any, marginals: Any, phi: Any, edge_phi: Any, mean: Any, sums: Any, node_gain: Any, edge_gain: Any
) -> None:
    for i in range(share.shape[0]):
        gains = (node_gain[i], edge_gain[i])
        before, after = mean[i % 2], mean[(i + 1) % 2]
        for b in prange((phi.shape[0] + BLOCK - 1) // BLOCK):
            lo, hi = b * BLOCK, min(phi.shape[0], (b + 1) * BLOCK)
            _block(near, share[i], marginals[i], phi, edge_phi, before, after, sums, gains, lo, hi)


def carry(
    near: Neighbours,
    share: NDArray[np.float64],
    marginals: NDArray[np.float64],
    phi: NDArray[np.float64],
    edge_phi: NDArray[np.float64] | None,
    mean: NDArray[np.float64],
    sums: tuple[NDArray[np.float64] | None, NDArray[np.float64] | None],
    node_gain: NDArray[np.float64],
    edge_gain: NDArray[np.float64],
) -> None:
    """Carry mean features over n steps: mean(s) <- g_node phi(s) + sum_e share(e) (mean(neighbour) + g_edge phi(e)).

    With shares of arrival, E[features up to t given s_t]; with shares of departure, E[features from t on given s_t].

    Parameters
    ----------
    near : the direction in which `share` (n, E) and `edge_phi` (E, d) are sorted
    marginals : (n, S) probability of each state at each step
    phi : (S, d)
    mean : (2, S, d); row 0 holds the initial means, row n % 2 the result
    sums : G (S, d) or None, and G_e (E, d) or None; g_node marginals mean and the edges' part are added to them
    node_gain, edge_gain : (n,) discounts of the states' and of the edges' step
    """
    if phi.shape[0] > BLOCK:
        with LOCK:
            _parallel(near, share, marginals, phi, edge_phi, mean, sums, node_gain, edge_gain)
    else:
        _serial(near, share, marginals, phi, edge_phi, mean, sums, node_gain, edge_gain)


@njit(forceinline=True, error_model="numpy")
def _edge_part(prob: Any, reward: Any, e: int, k: int, n_columns: int) -> Any:
    """Return (probability, reward) of an edge."""
    p = 1.0 if prob is None else prob[e]
    r = 0.0 if reward is None else reward[e * n_columns + k]
    return p, r


@njit(cache=True, error_model="numpy")
def _log_growth(near: Any, rewards: Any, n_columns: int) -> Any:
    largest = np.zeros(n_columns)
    last = rewards.discount[max(0, rewards.discount.size - 2)]
    continuation = rewards.discount[min(1, rewards.discount.size - 1)]
    for s in range(near.ptr.size - 1):
        for k in range(n_columns):
            total = 0.0
            for e in range(near.ptr[s], near.ptr[s + 1]):
                p, r = _edge_part(rewards.prob, rewards.edge, e, k, n_columns)
                c = r + continuation * rewards.node[near.idx[e] * n_columns + k]
                total += p * exp(c if c > 0.0 else last * c)
            largest[k] = max(largest[k], total)
    for k in range(n_columns):
        largest[k] = math.log(largest[k]) if largest[k] > 0.0 else -np.inf
    return largest


def log_growth(near: Neighbours, rewards: Rewards, columns: tuple[int, ...]) -> NDArray[np.float64]:
    """Return an upper bound (K,) on log sum_e x_t(e) w_{t+1}(s') over all states and steps.

    The exponent discount_t (r(e) + discount_1 r(s')) is largest at the first step if the bracket is positive, and at
    the last step if it is negative.
    """
    return _log_growth(near, rewards, len(columns))
